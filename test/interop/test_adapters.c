/* PEFT's adapters: they come in and go out with every bit, train to one hash in any layout, and
 * merge into the matrices that they adapt; those of another model, or of another kind, are refused.
 */
#include "../support/checkpoints.h"
#include "../support/saved_tensors.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "../support/tensor_data.h"
#include "../support/wrapped.h"
#include "folders.h"
#include "trained.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH = 4400, ROOM = 8192, TENSORS = 64, RANK = 3, ALPHA = 6 };

/* ---- folders --------------------------------------------------------------------------------- */

static void import(const char *directory, const char *from, const char *run, const char *words)
{
    char text[ROOM], *save = NULL;
    const char *list[8];
    int count = 0;
    snprintf(text, sizeof text, "%s", words);
    for (char *word = strtok_r(text, " ", &save); word; word = strtok_r(NULL, " ", &save))
        list[count++] = word;
    model_import(directory, from, run, (struct ls_import){.words = list, .count = count});
}

static void export(const char *directory, const char *from, const char *out,
                   enum ls_export_format format)
{
    model_export(directory, from, out, (struct ls_export){.format = format});
}

static struct ls_safetensors *tensors_open(const char *directory, const char *name)
{
    struct ls_error error = {0};
    struct ls_safetensors *file;
    assert_ok(ls_safetensors_open(&file, scratch_path(directory, name), &error), error);
    return file;
}

/* FOLDER/adapter_model.safetensors anew: with random values, or without a tensor, or with one of
 * another name, or cut short by a row. */
struct change {
    bool fill;
    const char *away, *renamed, *to, *cut;
};
static void adapters_change(const char *directory, const char *folder, const struct change *change)
{
    char name[256];
    struct ls_error error = {0};
    struct ls_tensor_entry entries[TENSORS];
    float *values[TENSORS] = {NULL};
    size_t count = 0;
    snprintf(name, sizeof name, "%s/adapter_model.safetensors", folder);
    struct ls_safetensors *file = tensors_open(directory, name);
    for (size_t i = 0; i < ls_safetensors_count(file); i++) {
        const struct ls_tensor_view *view = ls_safetensors_at(file, i);
        if (change->away && strstr(view->name, change->away))
            continue;
        assert_true(count < TENSORS && view->dims == 2);
        struct ls_tensor_entry *entry = &entries[count];
        *entry = (struct ls_tensor_entry){.name = view->name, .dtype = LS_F32, .dims = 2};
        memcpy(entry->shape, view->shape, sizeof view->shape);
        int64_t elements = view->shape[0] * view->shape[1];
        values[count] = malloc((size_t)elements * sizeof(float));
        memcpy(values[count], tensor_data(file, view->name), view->bytes);
        if (change->fill)
            ls_normal_fill(ls_philox_key_of(9, view->name), 0, elements, 0, 0.2f, values[count]);
        if (change->renamed && strstr(view->name, change->renamed))
            entry->name = change->to ? change->to : "base_model.model.elsewhere.lora_A.weight";
        if (change->cut && strstr(view->name, change->cut))
            entry->shape[0]--;
        entry->data = values[count++];
    }
    assert_ok(tensors_save(scratch_path(directory, name), entries, count, &error), error);
    for (size_t i = 0; i < count; i++)
        free(values[i]);
    ls_safetensors_close(file);
}

/* DIRECTORY/base, and adapters for it with random values in DIRECTORY/NAME. */
static void adapters_make(const char *directory, const char *golden, const char *name,
                          const char *targets)
{
    char words[256], run[64];
    snprintf(run, sizeof run, "%s-made", name);
    snprintf(words, sizeof words, "lora.rank=%d lora.alpha=%d lora.targets=%s", RANK, ALPHA,
             targets);
    folder_make(directory, "base", &(struct folder_of){.golden = golden});
    import(directory, "base", run, words);
    export(directory, run, name, LS_EXPORT_PEFT);
    adapters_change(directory, name, &(struct change){.fill = true});
}

/* ---- in and out ------------------------------------------------------------------------------ */

static void expect_same_tensors(const char *directory, const char *a, const char *b)
{
    struct ls_safetensors *one = tensors_open(directory, a), *other = tensors_open(directory, b);
    assert_int_equal(ls_safetensors_count(one), ls_safetensors_count(other));
    for (size_t i = 0; i < ls_safetensors_count(one); i++) {
        const struct ls_tensor_view *x = ls_safetensors_at(one, i);
        const struct ls_tensor_view *y = ls_safetensors_find(other, x->name);
        assert_non_null(y);
        assert_int_equal(x->bytes, y->bytes);
        assert_memory_equal(tensor_data(one, x->name), tensor_data(other, y->name), x->bytes);
    }
    ls_safetensors_close(one);
    ls_safetensors_close(other);
}

/* One matrix of the merged model against W + alpha / rank B A in double. */
static void check_merged(const char *directory, const char *matrix, const char *module,
                         bool transposed)
{
    char name[256];
    struct ls_safetensors *files[] = {
        tensors_open(directory, "base/model.safetensors"),
        tensors_open(directory, "merged/model.safetensors"),
        tensors_open(directory, "adapters/adapter_model.safetensors")};
    const float *w = tensor_data(files[0], matrix);
    const struct ls_tensor_view *merged = ls_safetensors_find(files[1], matrix);
    const float *values = tensor_data(files[1], matrix);
    snprintf(name, sizeof name, "base_model.model.%s.lora_A.weight", module);
    const float *a = tensor_data(files[2], name);
    snprintf(name, sizeof name, "base_model.model.%s.lora_B.weight", module);
    const float *b = tensor_data(files[2], name);
    int64_t rows = merged->shape[transposed], cols = merged->shape[!transposed], moved = 0;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) {
            int64_t at = transposed ? c * rows + r : r * cols + c;
            double want = 0;
            for (int64_t k = 0; k < RANK; k++)
                want += (double)b[r * RANK + k] * (double)a[k * cols + c];
            want = (double)w[at] + (double)ALPHA / RANK * want;
            float got = values[at];
            moved += got != w[at];
            if (!(fabs((double)got - want) <= 1e-6 * (1 + fabs(want))))
                fail_msg("%s [%ld, %ld]: %g, expected %g", matrix, (long)r, (long)c, (double)got,
                         want);
        }
    assert_true(moved > rows * cols / 2);
    for (int i = 0; i < 3; i++)
        ls_safetensors_close(files[i]);
}

static void check_family(const char *directory, const char *golden, const char *targets)
{
    char words[PATH + 64];
    adapters_make(directory, golden, "adapters", targets);
    snprintf(words, sizeof words, "lora.from=%s/adapters", directory);
    import(directory, "base", "run", words);
    export(directory, "run", "again", LS_EXPORT_PEFT);
    expect_same_tensors(directory, "adapters/adapter_model.safetensors",
                        "again/adapter_model.safetensors");
    char *there = scratch_read(scratch_path(directory, "adapters/adapter_config.json"), NULL);
    char *back = scratch_read(scratch_path(directory, "again/adapter_config.json"), NULL);
    assert_non_null(strstr(back, "\"lora_alpha\": 6"));
    assert_non_null(strstr(back, "\"r\": 3"));
    free(there);
    free(back);
    export(directory, "run", "merged", LS_EXPORT_HF);
}

CASE_WITH(test_llama, tokens_setup, scratch_teardown)
{
    check_family(*state, "llama_tiny", "q_proj,v_proj,down_proj");
    check_merged(*state, "model.layers.1.self_attn.v_proj.weight",
                 "model.layers.1.self_attn.v_proj", false);
    check_merged(*state, "model.layers.0.mlp.down_proj.weight", "model.layers.0.mlp.down_proj",
                 false);
}

/* c_attn is three matrices here, which share an A. */
CASE_WITH(test_gpt2, tokens_setup, scratch_teardown)
{
    check_family(*state, "gpt2_tiny", "c_attn,mlp.c_proj");
    check_merged(*state, "h.1.attn.c_attn.weight", "transformer.h.1.attn.c_attn", true);
    check_merged(*state, "h.0.mlp.c_proj.weight", "transformer.h.0.mlp.c_proj", true);
    char *text = scratch_read(scratch_path(*state, "again/adapter_config.json"), NULL);
    assert_non_null(strstr(text, "\"fan_in_fan_out\": true"));
    assert_non_null(strstr(text, "\"mlp.c_proj\""));
    free(text);
}

/* ---- training -------------------------------------------------------------------------------- */

CASE_WITH(test_layouts, tokens_setup, scratch_teardown)
{
    static const char *const layouts[] = {
        "parallel.tp=2", "parallel.pp=2", "parallel.dp_shard=2 parallel.zero=3",
        "parallel.dp=2 parallel.zero=1 parallel.tp=2", "memory.offload.parameters=host"};
    char hash[33], from[2 * PATH];
    const char *directory = *state;
    adapters_make(directory, "llama_tiny", "adapters", "all");
    snprintf(from, sizeof from, "model.from=%s/base lora.from=%s/adapters train.steps=4", directory,
             directory);
    snprintf(hash, sizeof hash, "%s", trained(directory, "one", "%s", from));
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        char run[64];
        snprintf(run, sizeof run, "run%zu", i);
        assert_string_equal(hash, trained(directory, run, "%s %s", from, layouts[i]));
    }
    /* By a run that holds both, and stopped in between. */
    char words[PATH + 64];
    snprintf(words, sizeof words, "lora.from=%s/adapters", directory);
    import(directory, "base", "imported", words);
    assert_string_equal(hash,
                        trained(directory, "imported", "%s train.resume=auto parallel.tp=2", from));
    trained(directory, "stopped", "%s train.steps=2", from);
    assert_string_equal(hash, trained(directory, "stopped", "%s train.resume=auto", from));
    /* The model itself stays what it is, to the bit. */
    struct ls_safetensors *base = tensors_open(directory, "base/model.safetensors");
    struct ls_checkpoint *run =
        checkpoint_open(scratch_path(directory, "one/checkpoints/step-00000004"));
    const struct ls_tensor_view *w =
        ls_safetensors_find(base, "model.layers.0.self_attn.q_proj.weight");
    void *q = checkpoint_tensor(run, LS_CKPT_MODEL, "h.0.attn.q.weight", NULL);
    assert_memory_equal(tensor_data(base, w->name), q, w->bytes);
    free(q);
    ls_safetensors_close(base);
    const struct ls_stored_tensor *states;
    size_t count = ls_checkpoint_tensors(run, LS_CKPT_OPTIMIZER, &states);
    assert_true(count > 0);
    for (size_t i = 0; i < count; i++)
        assert_non_null(strstr(states[i].name, ".lora_"));
    ls_checkpoint_close(run);
}

/* A run with adapters is a model to start from: the merged one. */
CASE_WITH(test_from_adapted, tokens_setup, scratch_teardown)
{
    char words[2 * PATH];
    check_family(*state, "llama_tiny", "all");
    snprintf(words, sizeof words, "train.steps=2 model.from=%s/run", (const char *)*state);
    char hash[33];
    snprintf(hash, sizeof hash, "%s", trained(*state, "a", "%s", words));
    snprintf(words, sizeof words, "train.steps=2 model.from=%s/merged", (const char *)*state);
    assert_string_equal(hash, trained(*state, "b", "%s", words));
}

WRAPPED(ls_param_adapter);
static int looked_up; /* adapters, by their parameters */

bool __wrap_ls_param_adapter(const struct ls_params *params, const struct ls_model_config *config,
                             const struct ls_param *param, struct ls_elsewhere *out)
{
    looked_up++;
    return __real_ls_param_adapter(params, config, param, out);
}

/* Not each tensor beside each parameter: of 126 blocks there are 1,764 and 2,900. */
CASE_WITH(test_adapters_are_looked_up_by_name, scratch_setup, scratch_teardown)
{
    char words[2 * PATH];
    adapters_make(*state, "llama_tiny", "adapters", "all");
    struct ls_safetensors *file = tensors_open(*state, "adapters/adapter_model.safetensors");
    int tensors = (int)ls_safetensors_count(file);
    ls_safetensors_close(file);
    looked_up = 0;
    snprintf(words, sizeof words, "lora.from=%s/adapters", (const char *)*state);
    import(*state, "base", "run", words);
    assert_in_range(looked_up, tensors, 6 * tensors);
}

/* However target_modules says it, the tensors show which matrices have adapters; and a key that
 * says how they began changes nothing. */
CASE_WITH(test_targets_that_patterns_choose, tokens_setup, scratch_teardown)
{
    static const struct {
        const char *key, *value;
    } said[] = {
        {"eva_config", "{\"rho\": 2.0}"}, /* how the first values were found */
        {"target_modules", "\"all-linear\""},
        {"target_modules", "\".*(q|down)_proj\""},
        {"target_modules",
         "[\"model.layers.0.self_attn.q_proj\", \"model.layers.0.mlp.down_proj\", "
         "\"model.layers.1.self_attn.q_proj\", "
         "\"model.layers.1.mlp.down_proj\"]"},
        {"exclude_modules", "[\"lm_head\"]"},
        {"layers_to_transform", "[0, 1]"},
    };
    const char *directory = *state;
    char hash[33], words[2 * PATH], run[64];
    adapters_make(directory, "llama_tiny", "adapters", "q_proj,down_proj");
    const char *path = scratch_path(directory, "adapters/adapter_config.json");
    char *good = scratch_read(path, NULL);
    snprintf(words, sizeof words, "model.from=%s/base lora.from=%s/adapters train.steps=2",
             directory, directory);
    snprintf(hash, sizeof hash, "%s", trained(directory, "plain", "%s", words));
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        path = scratch_path(directory, "adapters/adapter_config.json");
        scratch_write(path, good, strlen(good));
        json_edit(path, said[i].key, said[i].value);
        snprintf(run, sizeof run, "said%zu", i);
        assert_string_equal(hash, trained(directory, run, "%s", words));
    }
    free(good);
    adapters_change(directory, "adapters", &(struct change){.away = "layers.1.self_attn.q_proj"});
    train_refused(directory, words,
                  "lora_A.weight [3, 32] is missing: the adapters are of another "
                  "model, or not of every block");
    struct change none = {.away = "lora_"};
    adapters_change(directory, "adapters", &none);
    train_refused(directory, words, "expected tensors of adapters, lora_A and lora_B");
}

/* ---- refusals -------------------------------------------------------------------------------- */

CASE_WITH(test_bad_descriptions, tokens_setup, scratch_teardown)
{
    static const struct {
        const char *key, *value, *text;
    } bad[] = {
        {"peft_type", "\"IA3\"", "peft_type = \"IA3\": expected \"LORA\""},
        {"peft_type", NULL, "expected \"LORA\""},
        {"r", "0", "r = 0"},
        {"r", "\"three\"", "expected numbers above 0"},
        {"r", "2.5", "r = 2.5"},
        {"lora_alpha", NULL, "expected numbers above 0"},
        {"target_modules", "3", "expected a list of names, a pattern or \"all-linear\""},
        {"init_lora_weights", "\"pissa_niter_4\"", "init_lora_weights = \"pissa_niter_4\": such"},
        {"init_lora_weights", "\"olora\"", "matrices that PEFT changes when it loads them"},
        {"target_modules", "[\"q_proj\", 3]", "has no matrix \"?\""},
        {"target_modules", "[\"q_proj\", \"lm_head\"]", "has no matrix \"lm_head\": expected all"},
        {"use_dora", "true", "use_dora = true: such adapters are not supported"},
        {"use_rslora", "1", "use_rslora = 1: expected true or false"},
        {"use_rslora", "\"true\"", "use_rslora = \"true\": expected true or false"},
        {"bias", "\"lora_only\"", "bias = \"lora_only\""},
        {"modules_to_save", "[\"lm_head\"]", "modules_to_save = "},
        {"rank_pattern", "{\"q_proj\": 8}", "rank_pattern = "},
    };
    const char *directory = *state;
    char words[2 * PATH];
    adapters_make(directory, "llama_tiny", "adapters", "q_proj");
    char *good = scratch_read(scratch_path(directory, "adapters/adapter_config.json"), NULL);
    snprintf(words, sizeof words, "model.from=%s/base lora.from=%s/adapters", directory, directory);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const char *path = scratch_path(directory, "adapters/adapter_config.json");
        scratch_write(path, good, strlen(good));
        json_edit(path, bad[i].key, bad[i].value);
        train_refused(directory, words, bad[i].text);
    }
    const char *path = scratch_path(directory, "adapters/adapter_config.json");
    scratch_write(path, "{", 1);
    train_refused(directory, words, "adapter_config.json");
    scratch_write(path, good, strlen(good));
    free(good);
    snprintf(words, sizeof words, "model.from=%s/base lora.from=%s/adapters lora.rank=8", directory,
             directory);
    train_refused(directory, words, "lora.rank = 8");
    snprintf(words, sizeof words, "model.from=%s/base lora.from=%s/nowhere", directory, directory);
    train_refused(directory, words, "nowhere/adapter_config.json");
    path = scratch_path(directory, "adapters/adapter_model.bin");
    scratch_write(path, "x", 1);
    unlink(scratch_path(directory, "adapters/adapter_model.safetensors"));
    snprintf(words, sizeof words, "model.from=%s/base lora.from=%s/adapters", directory, directory);
    train_refused(directory, words,
                  "adapter_model.bin can hold programs and is not read: expected "
                  "adapter_model.safetensors, which save_pretrained of peft writes");
    snprintf(words, sizeof words, "model.from=%s/base lora.from=some-one/adapters-4", directory);
    train_refused(directory, words, "hf download some-one/adapters-4 --local-dir adapters-4");
    snprintf(words, sizeof words, "model.from=%s/adapters", directory);
    train_refused(directory, words, "holds adapters (adapter_config.json) and not their model");
    train_refused(directory, "model.from=some-one/Model-1.5B",
                  "hf download some-one/Model-1.5B --local-dir Model-1.5B");
    snprintf(words, sizeof words, "model.preset=llama-tiny lora.from=%s/adapters", directory);
    train_refused(directory, words, "needs model.from");
}

CASE_WITH(test_bad_weights, tokens_setup, scratch_teardown)
{
    static const struct {
        struct change change;
        const char *text;
    } bad[] = {
        {{.away = "layers.1.self_attn.q_proj.lora_B"}, "lora_B.weight [32, 3] is missing"},
        {{.renamed = "layers.1.self_attn.q_proj.lora_A"}, "lora_A.weight [3, 32] is missing"},
        {{.cut = "layers.0.self_attn.q_proj.lora_B"}, "[31, 3], and this model makes it [32, 3]"},
    };
    const char *directory = *state;
    char words[2 * PATH];
    snprintf(words, sizeof words, "model.from=%s/base lora.from=%s/adapters", directory, directory);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char command[PATH];
        snprintf(command, sizeof command, "rm -rf '%s'/adapters* '%s'/base*", directory, directory);
        assert_int_equal(system(command), 0);
        adapters_make(directory, "llama_tiny", "adapters", "q_proj");
        adapters_change(directory, "adapters", &bad[i].change);
        train_refused(directory, words, bad[i].text);
    }
    /* Those of fewer matrices than the file has. */
    char command[PATH];
    snprintf(command, sizeof command, "rm -rf '%s'/adapters* '%s'/base*", directory, directory);
    assert_int_equal(system(command), 0);
    adapters_make(directory, "llama_tiny", "adapters", "q_proj,v_proj");
    json_edit(scratch_path(directory, "adapters/adapter_config.json"), "target_modules",
              "[\"q_proj\"]");
    train_refused(directory, words, "v_proj.lora_A.weight does not belong to this model");
    adapters_change(directory, "adapters",
                    &(struct change){.renamed = "layers.0.self_attn.v_proj.lora_A",
                                     .to = "base_model.model.lm_head.weight"});
    train_refused(directory, words,
                  "lm_head.weight is no adapter but a tensor of the model itself");
    /* What has none to give. */
    struct ls_error error = {0};
    struct ls_export_report report;
    char paths[2][PATH];
    import(directory, "base", "plain", "");
    snprintf(paths[0], PATH, "%s/plain", directory);
    snprintf(paths[1], PATH, "%s/out", directory);
    const struct ls_export what = {.from = paths[0], .out = paths[1], .format = LS_EXPORT_PEFT};
    assert_int_equal(ls_export(&what, &report, &error), LS_ECONFIG);
    assert_non_null(strstr(error.text, "has no adapters"));
}

SUITE_MAIN(NULL, NULL)
