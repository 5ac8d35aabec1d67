/* The names of transformers in the files of a checkpoint: whoever reads them by these names, and
 * knows nothing of the manifest, gets what `lockstep export` writes, bit for bit. */
#include "../support/checkpoints.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "../support/tensor_data.h"
#include "trained.h"

#include <lockstep/interop.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VOCABULARY "model.vocab=64 model.vocab_multiple=32 "
/* Pieces of rows and of columns, in several files. */
#define LAYOUT  "parallel.pp=2 parallel.dp_shard=2 parallel.tp=2 parallel.zero=3 parallel.sp=false "
#define TIED    "model.preset=llama-tiny model.tied=true " VOCABULARY
#define STEP(n) "checkpoints/step-0000000" #n

/* ---- a reader that knows the files alone ----------------------------------------------------- */

/* One box of a tensor, at its offsets. */
static void box_take(const struct ls_safetensors *file, const struct ls_tensor_view *view,
                     const json_t *info, const struct ls_tensor_view *whole, float *values,
                     int64_t *elements)
{
    const json_t *offsets = json_object_get(json_object_get(info, view->name), "saved_offsets");
    const float *data = tensor_data(file, view->name);
    bool matrix = view->dims == 2;
    int64_t first_row = matrix ? json_integer_value(json_array_get(offsets, 0)) : 0;
    int64_t first_col = json_integer_value(json_array_get(offsets, matrix));
    int64_t rows = matrix ? view->shape[0] : 1, cols = view->shape[matrix];
    int64_t all_rows = matrix ? whole->shape[0] : 1, all_cols = whole->shape[matrix];
    assert_int_equal(json_array_size(offsets), view->dims);
    assert_int_equal(view->dims, whole->dims);
    assert_true(first_row + rows <= all_rows && first_col + cols <= all_cols);
    for (int64_t r = 0; r < rows; r++)
        memcpy(values + (first_row + r) * all_cols + first_col, data + r * cols,
               (size_t)cols * sizeof *values);
    *elements += rows * cols;
}

/* The tensor of those name and shape of all files, to be freed; NULL: none has it, or too little.
 */
static float *tensor_read(const char *directory, const struct ls_tensor_view *wanted)
{
    float *values = calloc(1, wanted->bytes + 1);
    int64_t elements = 0;
    char path[PATH_MAX + 256];
    DIR *files = opendir(directory);
    assert_non_null(files);
    for (struct dirent *entry; (entry = readdir(files));) {
        struct ls_safetensors *file;
        struct ls_error error = {0};
        if (!strstr(entry->d_name, "-model-"))
            continue;
        snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
        assert_ok(ls_safetensors_open(&file, path, &error), error);
        const struct ls_tensor_view *view = ls_safetensors_find(file, wanted->name);
        json_t *info = json_loads(ls_safetensors_metadata(file, "DCP_SHARDING_INFO"), 0, NULL);
        if (view)
            box_take(file, view, info, wanted, values, &elements);
        json_decref(info);
        ls_safetensors_close(file);
    }
    closedir(files);
    if (elements * (int64_t)sizeof *values == (int64_t)wanted->bytes)
        return values;
    free(values);
    return NULL;
}

/* ---- beside an export ------------------------------------------------------------------------ */

/* A path that lives as long as the test. */
struct path {
    char text[PATH_MAX];
};

static struct path path_in(const char *directory, const char *run, const char *name)
{
    struct path path;
    snprintf(path.text, sizeof path.text, "%.2000s/%.100s%.100s", directory, run, name);
    return path;
}

static struct path exported(struct path run)
{
    struct path out = path_in(run.text, "out", "");
    struct ls_error error = {0};
    struct ls_export_report report;
    const struct ls_export what = {.from = run.text, .out = out.text, .dtype = LS_F32};
    if (ls_export(&what, &report, &error))
        fail_msg("%s: %s", run.text, error.text);
    return out;
}

/* How many tensors of the exported folder the checkpoint's files have by the same name, with the
 * same bits. */
static size_t alike(struct path checkpoint, struct path folder, size_t *count)
{
    struct ls_safetensors *file;
    struct ls_error error = {0};
    size_t found = 0;
    assert_ok(
        ls_safetensors_open(&file, path_in(folder.text, "model", ".safetensors").text, &error),
        error);
    *count = ls_safetensors_count(file);
    for (size_t i = 0; i < *count; i++) {
        const struct ls_tensor_view *view = ls_safetensors_at(file, i);
        float *values = tensor_read(checkpoint.text, view);
        found += values && !memcmp(values, tensor_data(file, view->name), view->bytes);
        free(values);
    }
    ls_safetensors_close(file);
    return found;
}

/* How many tensors have another name in the files than in the manifest. */
static size_t renamed(struct path checkpoint, size_t *count)
{
    struct ls_checkpoint *opened = checkpoint_open(checkpoint.text);
    const struct ls_stored_tensor *list;
    size_t found = 0;
    *count = ls_checkpoint_tensors(opened, LS_CKPT_MODEL, &list);
    for (size_t i = 0; i < *count; i++)
        found += strcmp(list[i].name, list[i].fqn) != 0;
    ls_checkpoint_close(opened);
    return found;
}

static void expect_alike(struct path checkpoint, struct path folder)
{
    size_t tensors, count;
    size_t others = renamed(checkpoint, &tensors), same = alike(checkpoint, folder, &count);
    assert_int_equal(others, tensors);
    assert_int_equal(same, count);
    assert_int_equal(count, tensors);
}

static void expect_own_names(struct path checkpoint)
{
    size_t tensors, others = renamed(checkpoint, &tensors);
    assert_int_equal(others, 0);
    assert_true(tensors > 0);
}

/* ---- the tests ------------------------------------------------------------------------------- */

/* All but GPT-2, whose matrices are transposed and fused there, and Phi-3, whose are fused. */
CASE_WITH(test_each_family, tokens_setup, scratch_teardown)
{
    for (int i = 0; i < LS_ARCHES; i++) {
        enum ls_arch arch = (enum ls_arch)i;
        const char *name = ls_arch_name(arch);
        struct path run = path_in(*state, name, "");
        trained(*state, name, "model.preset=%s-tiny " VOCABULARY LAYOUT "train.steps=1", name);
        if (arch == LS_GPT2 || arch == LS_PHI3)
            expect_own_names(path_in(run.text, STEP(1), ""));
        else
            expect_alike(path_in(run.text, STEP(1), ""), exported(run));
    }
}

/* Whoever writes a checkpoint gives its tensors these names, and whoever reads it finds them. */
CASE_WITH(test_written_by_others, tokens_setup, scratch_teardown)
{
    static const char *const keys[] = {"parallel.tp=2"}, *const words[] = {
                                                             "model.vocab_multiple=1"};
    struct path run = path_in(*state, "run", ""), made = path_in(*state, "made", "");
    struct path back = path_in(*state, "back", "");
    struct ls_error error = {0};
    struct ls_reshard_report resharded;
    struct ls_import_report imported;
    size_t count;
    const char *last = trained(*state, "run", TIED LAYOUT "train.steps=2 train.save_every=1");
    const struct ls_reshard reshard = {
        .from = run.text, .which = "1", .keys = keys, .count = 1, .run = made.text};
    assert_ok(ls_reshard(&reshard, &resharded, &error), error);
    expect_alike(path_in(made.text, STEP(1), ""), exported(made));
    const char *again =
        trained(*state, "made", TIED "train.steps=2 parallel.dp=2 train.resume=auto");
    assert_string_equal(again, last);
    struct path folder = exported(run);
    const struct ls_import import = {
        .from = folder.text, .run = back.text, .words = words, .count = 1};
    assert_ok(ls_import(&import, &imported, &error), error);
    expect_alike(path_in(back.text, STEP(0), ""), folder);
    /* The twin: another step's values are seen. */
    size_t same = alike(path_in(run.text, STEP(1), ""), folder, &count);
    assert_true(same < count);
}

/* A table with rows of padding is no tensor of transformers, nor is an adapter. */
CASE_WITH(test_padding_and_adapters, tokens_setup, scratch_teardown)
{
    trained(*state, "padded",
            "model.preset=llama-tiny model.vocab=62 model.vocab_multiple=32 train.steps=1");
    expect_own_names(path_in(*state, "padded/", STEP(1)));
    trained(*state, "adapted", "model.preset=llama-tiny " VOCABULARY "lora.rank=2 train.steps=1");
    expect_own_names(path_in(*state, "adapted/", STEP(1)));
}

SUITE_MAIN(NULL, NULL)
