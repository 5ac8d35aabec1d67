/* A file of a model or a checkpoint that is cut while it is read: each reader has an error with the
 * file's name, and none ends by SIGBUS. */
#include "../support/checkpoints.h"
#include "../support/cut_before_read.h"
#include "../support/extent.h"
#include "../support/saved_tensors.h"
#include "../support/scratch.h"
#include "../support/tensor_data.h"
#include "folders.h"
#include "trained.h"

#include <lockstep/infer.h>

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { PATH = 4400 };

/* A reader, and the file of its model in the directory that is cut. */
struct reader {
    const char *from, *file;
    int (*read)(const char *directory, const char *from, struct ls_error *error);
};

static const char *full(const char *directory, const char *name, char path[PATH])
{
    snprintf(path, PATH, "%s/%s", directory, name);
    return path;
}

/* DIRECTORY/out is not there before, and goes afterwards. */
static int out_remove(const char *directory, int status)
{
    char command[PATH];
    snprintf(command, sizeof command, "rm -rf %s/out*", directory);
    assert_int_equal(system(command), 0);
    return status;
}

static int import(const char *directory, const char *from, struct ls_error *error)
{
    char path[2][PATH];
    struct ls_import_report report;
    const struct ls_import what = {.from = full(directory, from, path[0]),
                                   .run = full(directory, "out", path[1])};
    return out_remove(directory, ls_import(&what, &report, error));
}

static int export_as(const char *directory, const char *from, enum ls_export_format format,
                     struct ls_error *error)
{
    char path[2][PATH];
    struct ls_export_report report;
    const struct ls_export what = {.from = full(directory, from, path[0]),
                                   .out = full(directory, "out.bin", path[1]),
                                   .format = format};
    return out_remove(directory, ls_export(&what, &report, error));
}

static int export_hf(const char *directory, const char *from, struct ls_error *error)
{
    return export_as(directory, from, LS_EXPORT_HF, error);
}

static int export_gguf(const char *directory, const char *from, struct ls_error *error)
{
    return export_as(directory, from, LS_EXPORT_GGUF, error);
}

static int reshard(const char *directory, const char *from, struct ls_error *error)
{
    static const char *const keys[] = {"parallel.tp=2"};
    char path[2][PATH];
    struct ls_reshard_report report;
    const struct ls_reshard what = {.from = full(directory, from, path[0]),
                                    .run = full(directory, "out", path[1]),
                                    .keys = keys,
                                    .count = 1};
    return out_remove(directory, ls_reshard(&what, &report, error));
}

static int verify(const char *directory, const char *from, struct ls_error *error)
{
    char path[PATH];
    struct ls_checkpoint *checkpoint;
    int status = ls_checkpoint_choose(&checkpoint, full(directory, from, path), NULL, NULL, error);
    for (int part = 0; part < 2 && !status; part++)
        status = ls_checkpoint_verify(checkpoint, (enum ls_checkpoint_part)part, error);
    ls_checkpoint_close(checkpoint);
    return status;
}

struct finished {
    char path[PATH];
    struct ls_config config;
};

static int finished_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    const struct finished *f = user;
    struct ls_finished *finished = NULL;
    int status = ls_finished_new(&f->config, f->path, NULL, world, NULL, &finished, error);
    ls_finished_free(finished);
    return status;
}

/* As generate and eval do, on two ranks that have columns and rows of the matrices. */
static int generate(const char *directory, const char *from, struct ls_error *error)
{
    static const char *const words[] = {"parallel.tp=2", "parallel.threads=1"};
    static struct finished f;
    full(directory, from, f.path);
    int status = ls_finished_configure(f.path, LS_TO_GENERATE, words, 2, &f.config, error);
    return status ? status : ls_world_run(2, finished_body, &f, error);
}

static int train(const char *directory, const char *words, struct ls_error *error)
{
    char all[2 * PATH];
    snprintf(all, sizeof all, "train.out=%s/out train.steps=1 parallel.dp_shard=2 %s", directory,
             words);
    return out_remove(directory, train_words(directory, all, error));
}

static int train_from(const char *directory, const char *from, struct ls_error *error)
{
    char words[PATH];
    snprintf(words, sizeof words, "model.from=%.2000s/%s parallel.zero=3", directory, from);
    return train(directory, words, error);
}

static int train_adapters(const char *directory, const char *from, struct ls_error *error)
{
    char words[PATH];
    snprintf(words, sizeof words, "model.from=%.1500s/llama lora.from=%.1500s/%s", directory,
             directory, from);
    return train(directory, words, error);
}

static int resume(const char *directory, const char *from, struct ls_error *error)
{
    char words[PATH];
    snprintf(words, sizeof words, "train.steps=3 model.from=%.1500s/gpt2 train.resume=%.1500s/%s",
             directory, directory, from);
    return train(directory, words, error);
}

#define STEP  "checkpoints/step-00000002/shard-00001-"
#define SHARD "-00001-of-00001.safetensors"
static const struct reader readers[] = {
    {"gpt2", "gpt2/model.safetensors", import},
    {"llama", "llama/model-00002-of-00002.safetensors", import},
    {"nf4", "nf4/model.safetensors", import},
    {"gpt2.bin", "gpt2.bin", import},
    {"gpt2", "gpt2/model.safetensors", export_gguf},
    {"run", "run/" STEP "model" SHARD, export_hf},
    {"run", "run/" STEP "model" SHARD, reshard},
    {"run", "run/" STEP "optimizer" SHARD, verify},
    {"run", "run/" STEP "model" SHARD, generate},
    {"llama", "llama/model-00001-of-00002.safetensors", generate},
    {"gpt2", "gpt2/model.safetensors", generate},
    {"gpt2", "gpt2/model.safetensors", train_from},
    {"adapters", "adapters/adapter_model.safetensors", train_adapters},
    {"run", "run/" STEP "optimizer" SHARD, resume},
};
enum { READERS = sizeof readers / sizeof *readers };

/* ---- the models ------------------------------------------------------------------------------ */

/* A folder of the model llama with its first matrix in NF4 of bitsandbytes: 32 rows and columns. */
static void nf4_make(const char *directory)
{
    enum { TENSORS = 64, VALUES = 32 * 32 };
    static const char matrix[] = "model.layers.0.self_attn.q_proj.weight",
                      *const more[] = {"", ".absmax", ".quant_map",
                                       ".quant_state.bitsandbytes__nf4"};
    static const char state[] = "{\"quant_type\": \"nf4\", \"blocksize\": 64, \"shape\": [32, 32]}";
    static const unsigned char codes[VALUES / 2];
    static const float absmax[VALUES / 64];
    const void *const data[] = {codes, absmax, ls_nf4_map(), state};
    const int64_t sizes[] = {VALUES / 2, VALUES / 64, 16, sizeof state - 1};
    char path[PATH], names[4][128];
    struct ls_error error = {0};
    struct ls_tensor_entry entries[TENSORS];
    size_t count = 0;
    const char *folder = folder_make(directory, "nf4", &(struct folder_of){.golden = "llama_tiny"});
    struct ls_safetensors *file;
    full(folder, "model.safetensors", path);
    assert_ok(ls_safetensors_open(&file, path, &error), error);
    for (size_t i = 0; i < ls_safetensors_count(file); i++) {
        const struct ls_tensor_view *view = ls_safetensors_at(file, i);
        if (!strcmp(view->name, matrix))
            continue;
        assert_true(count < TENSORS - 4);
        entries[count] = (struct ls_tensor_entry){.name = view->name,
                                                  .dtype = view->dtype,
                                                  .dims = view->dims,
                                                  .data = tensor_data(file, view->name)};
        memcpy(entries[count++].shape, view->shape, sizeof view->shape);
    }
    for (int i = 0; i < 4; i++) {
        snprintf(names[i], sizeof names[0], "%s%s", matrix, more[i]);
        entries[count++] = (struct ls_tensor_entry){.name = names[i],
                                                    .dtype = i == 1 || i == 2 ? LS_F32 : LS_U8,
                                                    .dims = 1,
                                                    .shape = {sizes[i]},
                                                    .data = data[i]};
    }
    assert_ok(tensors_save(path, entries, count, &error), error);
    ls_safetensors_close(file);
    json_edit(scratch_path(folder, "config.json"), "quantization_config",
              "{\"quant_method\": \"bitsandbytes\", \"load_in_4bit\": true, "
              "\"bnb_4bit_quant_type\": \"nf4\"}");
}

static void models_make(const char *directory)
{
    folder_make(directory, "gpt2", &(struct folder_of){.golden = "gpt2_tiny"});
    folder_make(directory, "llama",
                &(struct folder_of){.golden = "llama_tiny", .dtype = LS_BF16, .shards = 2});
    nf4_make(directory);
    model_import(directory, "gpt2", "imported", (struct ls_import){0});
    model_export(directory, "imported", "gpt2.bin", (struct ls_export){.format = LS_EXPORT_LLMC});
    trained(directory, "run", "train.steps=2 model.from=%s/gpt2", directory);
    trained(directory, "lora", "train.steps=1 lora.rank=2 model.from=%s/llama", directory);
    model_export(directory, "lora", "adapters", (struct ls_export){.format = LS_EXPORT_PEFT});
}

/* ---- readers --------------------------------------------------------------------------------- */

/* How often the reader fails as its file is cut before read 0, 1, 2, 3, 4, 8, ..., or a share of
 * these. It may have had all that it needs. */
static int cuts_refused(const char *directory, const struct reader *reader)
{
    char path[PATH];
    size_t bytes;
    int refused = 0;
    bool past = false;
    const char *name = strrchr(full(directory, reader->file, path), '/') + 1;
    char *data = scratch_read(path, &bytes);
    for (long n = 0; !past; n = !n ? 1 : !check_all() ? 4 * n : n < 4 ? n + 1 : 2 * n) {
        struct ls_error error = {0};
        cut.path = path;
        cut.bytes = n % 3 ? (off_t)bytes / 2 : 0;
        cut.n = n;
        int status = reader->read(directory, reader->from, &error);
        past = atomic_exchange(&cut.n, -1) >= 0; /* it reads less often */
        scratch_write(path, data, bytes);
        if (!status)
            continue;
        if (past || status != LS_ECKPT || !strstr(error.text, name))
            fail_msg("%s, read %ld: %d: %s", reader->file, n, status, error.text);
        refused++;
    }
    free(data);
    return refused;
}

CASE_WITH(test_each_reader, tokens_setup, scratch_teardown)
{
    models_make(*state);
    for (int i = 0; i < READERS; i++) {
        int refused = cuts_refused(*state, &readers[i]);
        if (refused < 2)
            fail_msg("%s, reader %d: %d refused", readers[i].file, i, refused);
    }
}

/* A reader that maps the file is ended. */
CASE_WITH(test_a_map_is_seen, scratch_setup, scratch_teardown)
{
    enum { BYTES = 1 << 16 };
    static const char zeros[BYTES];
    const char *path = scratch_path(*state, "file");
    scratch_write(path, zeros, BYTES);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        char byte;
        size_t done;
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        const volatile char *map = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, fd, 0);
        signal(SIGBUS, SIG_DFL); /* cmocka's would go on */
        cut.path = path;
        cut.bytes = 0;
        cut.n = 0;
        ls_fd_read(fd, 0, &byte, 1, &done);
        _exit(map[BYTES / 2]);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
}

SUITE_MAIN(NULL, NULL)
