/* Models larger than memory: what a process holds while it opens, imports and exports one is less
 * than a tensor, however large the whole is. Files of weights are sparse: holes read as zeros. */
#include "../support/scratch.h"
#include "../support/suite.h"

#include <lockstep/interop.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

struct shape {
    int64_t layers, channels, ffn, heads, kv_heads, vocab;
};
enum { MIB = 1 << 20, NAME_BYTES = 128 };

/* ---- a folder of a Llama in bf16 ------------------------------------------------------------- */

/* A file's tensors, each [rows, cols] or [rows]; its header grows in memory. */
struct shard {
    FILE *header;
    char *text;
    size_t length;
    int64_t bytes;
    char name[NAME_BYTES];
    FILE *index; /* "name": "file", of all shards */
};

static void shard_begin(struct shard *shard, int64_t number, int64_t count)
{
    snprintf(shard->name, sizeof shard->name, "model-%05lld-of-%05lld.safetensors",
             (long long)number, (long long)count);
    shard->bytes = 0;
    shard->header = open_memstream(&shard->text, &shard->length);
    fputc('{', shard->header);
}

static void tensor_put(struct shard *shard, const char *name, int64_t rows, int64_t cols)
{
    int64_t begin = shard->bytes;
    shard->bytes += 2 * rows * (cols ? cols : 1);
    fprintf(shard->header, "%s\"%s\": {\"dtype\": \"BF16\", \"shape\": [%lld", begin ? "," : "",
            name, (long long)rows);
    if (cols)
        fprintf(shard->header, ", %lld", (long long)cols);
    fprintf(shard->header, "], \"data_offsets\": [%lld, %lld]}", (long long)begin,
            (long long)shard->bytes);
    fprintf(shard->index, "%s\"%s\": \"%s\"", ftell(shard->index) > 20 ? "," : "", name,
            shard->name);
}

/* The header, and a hole of as many bytes as it says. */
static void shard_end(struct shard *shard, const char *folder)
{
    fputc('}', shard->header);
    assert_int_equal(fclose(shard->header), 0);
    const char *path = scratch_path(folder, shard->name);
    FILE *file = fopen(path, "wb");
    uint64_t length = shard->length;
    fwrite(&length, sizeof length, 1, file);
    fwrite(shard->text, 1, shard->length, file);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(truncate(path, (off_t)(8 + (int64_t)length + shard->bytes)), 0);
    free(shard->text);
}

static void layer_put(struct shard *shard, const struct shape *shape, int64_t layer)
{
    int64_t channels = shape->channels, kv = channels / shape->heads * shape->kv_heads;
    const struct {
        const char *name;
        int64_t rows, cols;
    } tensors[] = {
        {"input_layernorm", channels, 0},         {"self_attn.q_proj", channels, channels},
        {"self_attn.k_proj", kv, channels},       {"self_attn.v_proj", kv, channels},
        {"self_attn.o_proj", channels, channels}, {"post_attention_layernorm", channels, 0},
        {"mlp.gate_proj", shape->ffn, channels},  {"mlp.up_proj", shape->ffn, channels},
        {"mlp.down_proj", channels, shape->ffn},
    };
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        char name[NAME_BYTES];
        snprintf(name, sizeof name, "model.layers.%lld.%s.weight", (long long)layer,
                 tensors[i].name);
        tensor_put(shard, name, tensors[i].rows, tensors[i].cols);
    }
}

/* DIRECTORY/in, one shard for each layer and one for the rest. Returns the bytes of its weights. */
static int64_t folder_make(const char *directory, const struct shape *shape)
{
    char config[512], folder[PATH_MAX];
    struct shard shard = {0};
    snprintf(folder, sizeof folder, "%.4000s/in", directory);
    assert_int_equal(mkdir(folder, 0777), 0);
    snprintf(config, sizeof config,
             "{\"model_type\": \"llama\", \"num_hidden_layers\": %lld, \"hidden_size\": %lld, "
             "\"intermediate_size\": %lld, \"num_attention_heads\": %lld, "
             "\"num_key_value_heads\": %lld, \"vocab_size\": %lld, "
             "\"max_position_embeddings\": 8192, \"tie_word_embeddings\": false}",
             (long long)shape->layers, (long long)shape->channels, (long long)shape->ffn,
             (long long)shape->heads, (long long)shape->kv_heads, (long long)shape->vocab);
    scratch_write(scratch_path(folder, "config.json"), config, strlen(config));
    shard.index = fopen(scratch_path(folder, "model.safetensors.index.json"), "w");
    fputs("{\"weight_map\": {", shard.index);
    int64_t bytes = 0;
    for (int64_t layer = 0; layer <= shape->layers; layer++) {
        shard_begin(&shard, layer + 1, shape->layers + 1);
        if (layer < shape->layers) {
            layer_put(&shard, shape, layer);
        } else {
            tensor_put(&shard, "model.embed_tokens.weight", shape->vocab, shape->channels);
            tensor_put(&shard, "model.norm.weight", shape->channels, 0);
            tensor_put(&shard, "lm_head.weight", shape->vocab, shape->channels);
        }
        shard_end(&shard, folder);
        bytes += shard.bytes;
    }
    fputs("}}", shard.index);
    assert_int_equal(fclose(shard.index), 0);
    return bytes;
}

/* ---- what a process holds -------------------------------------------------------------------- */

typedef int body(const char *directory, struct ls_error *error);

/* Runs the body in a process of its own. Its peak, over what it began with, is at most limit bytes.
 */
static void expect_peak(body *run, const char *directory, int64_t limit)
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        struct ls_error error = {0};
        struct rusage before, after;
        getrusage(RUSAGE_SELF, &before);
        int status = run(directory, &error);
        getrusage(RUSAGE_SELF, &after);
        int64_t peak = (after.ru_maxrss - before.ru_maxrss) * 1024; /* KiB there */
        if (status)
            fprintf(stderr, "%s\n", error.text);
        else if (peak > limit)
            fprintf(stderr, "%lld MiB at the peak: expected at most %lld\n",
                    (long long)(peak / MIB), (long long)(limit / MIB));
        _exit(status || peak > limit);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static int model_check(const char *directory, struct ls_error *error)
{
    struct ls_model_source *source;
    struct ls_config *config = malloc(sizeof *config);
    int status = ls_model_source_open(&source, scratch_path(directory, "in"), NULL, error);
    if (!status)
        status = ls_model_source_alone(source, NULL, 0, NULL, config, error);
    if (!status) {
        struct ls_numerics numerics = ls_config_numerics(config);
        status = ls_model_source_check(source, &config->model, &numerics, error);
    }
    ls_model_source_close(source);
    free(config);
    return status;
}

static int model_import(const char *directory, struct ls_error *error)
{
    struct ls_import_report report;
    return ls_import(&(struct ls_import){.from = scratch_path(directory, "in"),
                                         .run = scratch_path(directory, "run")},
                     &report, error);
}

static int model_export(const char *directory, struct ls_error *error)
{
    struct ls_export_report report;
    return ls_export(&(struct ls_export){.from = scratch_path(directory, "run"),
                                         .dtype = LS_BF16,
                                         .out = scratch_path(directory, "out")},
                     &report, error);
}

/* All 723 tensors of Llama 3 70B in 81 files: what is read of them is their headers. */
CASE_WITH(test_a_model_of_70b_is_checked, scratch_setup, scratch_teardown)
{
    const struct shape shape = {
        .layers = 80, .channels = 8192, .ffn = 28672, .heads = 64, .kv_heads = 8, .vocab = 128256};
    int64_t bytes = folder_make(*state, &shape);
    assert_int_equal(bytes, 2 * 70553706496);
    expect_peak(model_check, *state, 32 * MIB);
}

/* Of 113 MiB in bf16 the table and the head are 48 MiB each, and 96 MiB as float32. */
CASE_WITH(test_memory_is_less_than_that_of_a_tensor, scratch_setup, scratch_teardown)
{
    const struct shape shape = {
        .layers = 2, .channels = 768, .ffn = 1024, .heads = 12, .kv_heads = 12, .vocab = 32768};
    int64_t bytes = folder_make(*state, &shape);
    assert_true(bytes > 100LL * MIB);
    expect_peak(model_import, *state, 24 * MIB);
    expect_peak(model_export, *state, 24 * MIB);
}

SUITE_MAIN(NULL, NULL)
