/* lockstep bench interop: import and export of a model of Hugging Face's beside a program that
 * reads and writes as many bytes; a table, and one JSON object on the last line. */
#include "bench.h"

#include <lockstep/ckpt.h>
#include <lockstep/interop.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOCK = 4 << 20, CHANNELS = 1024, VOCABULARY = 32000 };

struct bench {
    const char *folder;
    int64_t mib, rounds;
    char work[PATH_MAX], model[PATH_MAX], run[PATH_MAX], out[PATH_MAX], copy[PATH_MAX];
    struct ls_config config;
    struct ls_ops ops;
    int64_t bytes[2]; /* of the model's file, and of the run's */
};

/* ---- a model --------------------------------------------------------------------------------- */

/* A Llama of about so many MiB in bf16. */
static int shape_set(struct bench *b, struct ls_error *error)
{
    char words[5][64];
    int64_t table = 2LL * VOCABULARY * CHANNELS, block = 11LL * CHANNELS * CHANNELS;
    int64_t layers = ls_max((b->mib * (1 << 20) / 2 - table) / block, 1);
    snprintf(words[0], sizeof words[0], "model.arch=llama");
    snprintf(words[1], sizeof words[1], "model.layers=%lld", (long long)layers);
    snprintf(words[2], sizeof words[2], "model.channels=%d", CHANNELS);
    snprintf(words[3], sizeof words[3], "model.heads=16");
    snprintf(words[4], sizeof words[4], "model.context=1024");
    ls_config_defaults(&b->config);
    b->config.model_keys.vocab = VOCABULARY;
    int status = LS_OK;
    for (int i = 0; i < 5 && !status; i++)
        status = ls_config_set(&b->config, words[i], error);
    return status ? status : ls_config_resolve(&b->config, 0, error);
}

static int weights_append(struct bench *b, struct ls_safetensors_writer *writer,
                          const struct ls_param *param, float *values, ls_half *halves,
                          struct ls_error *error)
{
    int64_t rows = param->matrix ? param->live_rows : 1, count = rows * param->global_cols;
    int status = LS_OK;
    for (int64_t at = 0; at < count && !status; at += BLOCK / 2) {
        int64_t n = ls_min(BLOCK / 2, count - at);
        ls_param_fill(param, 1, &b->ops, at, n, values);
        ls_cast_to_half(&b->ops, LS_BF16, n, values, halves);
        status = ls_safetensors_writer_append(writer, halves, (size_t)n * sizeof *halves, error);
    }
    return status;
}

static int weights_write(struct bench *b, const struct ls_params *params,
                         struct ls_tensor_entry *entries, struct ls_error *error)
{
    char path[PATH_MAX + 32];
    struct ls_safetensors_writer *writer;
    const struct ls_tensor_entry *next;
    float *values = malloc(BLOCK * 2);
    ls_half *halves = malloc(BLOCK);
    snprintf(path, sizeof path, "%s/model.safetensors", b->model);
    int status = values && halves
                     ? ls_safetensors_writer_open(&writer, path, entries, (size_t)params->count,
                                                  NULL, 0, NULL, error)
                     : ls_no_memory(error, "for a model");
    bool open = !status;
    while (!status && (next = ls_safetensors_writer_next(writer)))
        status = weights_append(b, writer, &params->list[next - entries], values, halves, error);
    if (!status)
        status = ls_safetensors_writer_commit(writer, error);
    else if (open)
        ls_safetensors_writer_abort(writer);
    free(values);
    free(halves);
    return status;
}

/* Its names are those of Hugging Face's Llama, one a parameter. */
static int model_make(struct bench *b, struct ls_error *error)
{
    static const char text[] = "{\"model_type\": \"llama\", \"num_hidden_layers\": %lld, "
                               "\"hidden_size\": %lld, \"num_attention_heads\": %lld, "
                               "\"intermediate_size\": %lld, \"vocab_size\": %lld, "
                               "\"max_position_embeddings\": %lld}";
    const struct ls_model_config *m = &b->config.model;
    struct ls_numerics numerics = ls_config_numerics(&b->config);
    struct ls_params params;
    char path[PATH_MAX + 32];
    int status = ls_directory_make(b->model, NULL, error);
    if (!status)
        status = ls_params_init(&params, m, &numerics, NULL, error);
    if (status)
        return status;
    struct ls_elsewhere *there = calloc((size_t)params.count, sizeof *there);
    struct ls_tensor_entry *entries = calloc((size_t)params.count, sizeof *entries);
    for (int i = 0; i < params.count && there && entries; i++) {
        const struct ls_param *param = &params.list[i];
        ls_param_elsewhere(&params, m, param, &there[i]);
        entries[i] = (struct ls_tensor_entry){.name = there[i].name,
                                              .dtype = LS_BF16,
                                              .dims = param->matrix ? 2 : 1,
                                              .shape = {there[i].rows, there[i].cols}};
    }
    snprintf(path, sizeof path, "%s/config.json", b->model);
    FILE *file = fopen(path, "w");
    if (!there || !entries || !file)
        status = ls_error_set(error, LS_EIO, "%s: cannot be written", path);
    else
        fprintf(file, text, (long long)m->layers, (long long)m->channels, (long long)m->heads,
                (long long)m->ffn, (long long)m->vocab, (long long)m->context);
    if (file)
        fclose(file);
    if (!status)
        status = weights_write(b, &params, entries, error);
    free(there);
    free(entries);
    ls_params_release(&params);
    return status;
}

/* ---- turns ----------------------------------------------------------------------------------- */

static int64_t size_of(const char *folder, const char *name)
{
    char path[PATH_MAX + 128];
    struct stat found;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return stat(path, &found) ? 0 : (int64_t)found.st_size;
}

/* Reads the file and writes so many bytes of what it has read, on the disk when it ends. */
static int copy_run(struct bench *b, const char *from, int64_t bytes, struct ls_error *error)
{
    char *block = malloc(BLOCK);
    int in = open(from, O_RDONLY | O_CLOEXEC);
    int out = open(b->copy, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    struct stat found;
    int64_t size = in >= 0 && fstat(in, &found) == 0 ? (int64_t)found.st_size : 0;
    int64_t got = 0, read_all = 0, written = 0;
    bool good = block && in >= 0 && out >= 0 && size > 0;
    while (good && (got = read(in, block, BLOCK)) > 0) {
        read_all += got;
        while (good && written < bytes && written * size < read_all * bytes) {
            int64_t n = ls_min(got, bytes - written);
            good = write(out, block, (size_t)n) == n;
            written += n;
        }
    }
    good = good && got == 0 && fsync(out) == 0;
    int failure = errno;
    if (in >= 0)
        close(in);
    if (out >= 0)
        close(out);
    unlink(b->copy);
    free(block);
    return good ? LS_OK : ls_error_errno(error, failure, "%s: a plain copy", b->copy);
}

enum way { IMPORT, IMPORT_COPY, EXPORT, EXPORT_COPY, WAYS };

/* A copy reads what was read before it and writes as many bytes as were written. */
static int copy_turn(struct bench *b, bool imports, struct ls_error *error)
{
    static const char weights[] =
        "checkpoints/step-00000000/shard-00001-model-00001-of-00001.safetensors";
    char file[PATH_MAX + 128];
    b->bytes[0] = size_of(b->model, "model.safetensors");
    b->bytes[1] = size_of(b->run, weights);
    snprintf(file, sizeof file, "%s/%s", imports ? b->model : b->run,
             imports ? "model.safetensors" : weights);
    return copy_run(b, file, b->bytes[imports], error);
}

static int turn(void *user, int way, double *seconds, struct ls_error *error)
{
    struct bench *b = user;
    struct ls_import_report imported;
    struct ls_export_report exported;
    const struct ls_import import = {.from = b->model, .run = b->run};
    const struct ls_export export = {.from = b->run, .dtype = LS_BF16, .out = b->out};
    double begin = ls_now_s();
    int status = way == IMPORT   ? ls_import(&import, &imported, error)
                 : way == EXPORT ? ls_export(&export, &exported, error)
                                 : copy_turn(b, way == IMPORT_COPY, error);
    *seconds = ls_now_s() - begin;
    if (way == EXPORT_COPY) {
        ls_directory_remove(b->run);
        ls_directory_remove(b->out);
    }
    return status;
}

static void print(const struct bench *b, const struct bench_turns *turns)
{
    static const char *const names[] = {"import", "export"};
    double all = (double)(b->bytes[0] + b->bytes[1]), ratio[2];
    printf("%-8s %12s %12s %12s\n", "", "GB/s", "plain GB/s", "share");
    for (int i = 0; i < 2; i++) {
        int way = i ? EXPORT : IMPORT, plain = way + 1;
        ratio[i] = bench_ratio(turns, plain, way);
        printf("%-8s %12.2f %12.2f %12.2f\n", names[i], all / bench_seconds(turns, way) / 1e9,
               all / bench_seconds(turns, plain) / 1e9, ratio[i]);
    }
    printf("{\"model_bytes\": %lld, \"run_bytes\": %lld, \"rounds\": %lld, \"import_share\": %.3f, "
           "\"export_share\": %.3f}\n",
           (long long)b->bytes[0], (long long)b->bytes[1], (long long)b->rounds, ratio[0],
           ratio[1]);
}

static int places_set(struct bench *b, struct ls_error *error)
{
    if (snprintf(b->work, PATH_MAX, "%.3900s/bench-interop-XXXXXX", b->folder) < 0 ||
        !mkdtemp(b->work))
        return ls_error_errno(error, errno, "%s: cannot make a folder in it", b->folder);
    snprintf(b->model, PATH_MAX, "%.4000s/model", b->work);
    snprintf(b->run, PATH_MAX, "%.4000s/run", b->work);
    snprintf(b->out, PATH_MAX, "%.4000s/out", b->work);
    snprintf(b->copy, PATH_MAX, "%.4000s/copy", b->work);
    return LS_OK;
}

int cmd_bench_interop(const struct cmd_args *args, struct ls_error *error)
{
    static struct bench b;
    b = (struct bench){.folder = ".", .mib = 1024, .rounds = 3};
    const struct bench_key keys[] = {
        {.name = "folder", .text = &b.folder},
        {.name = "mib", .number = &b.mib, .min = 160, .max = 1 << 20},
        {.name = "rounds", .number = &b.rounds, .min = 1, .max = BENCH_ROUNDS_MAX},
        {0}};
    int status = bench_args(args, keys, error);
    struct bench_turns turns = {
        .ways = WAYS, .rounds = (int)b.rounds, .cold = true, .run = turn, .user = &b};
    if (!status)
        status = ls_ops_init(&b.ops, ls_device_cores(), ls_isa_best(), error);
    if (!status)
        status = shape_set(&b, error);
    if (!status)
        status = places_set(&b, error);
    if (!status)
        status = model_make(&b, error);
    cmd_progress_begin(); /* of each import and export */
    if (!status)
        status = bench_turns(&turns, error);
    if (!status)
        print(&b, &turns);
    if (b.work[0])
        ls_directory_remove(b.work);
    ls_ops_release(&b.ops);
    return status;
}
