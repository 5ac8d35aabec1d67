/* Models of transformers become runs: logits, every bit of every type, what is refused and how it
 * is said, and nothing half-written. */
#include "../support/checkpoints.h"
#include "../support/countdown.h"
#include "../support/saved_tensors.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "../support/tensor_data.h"
#include "folders.h"

#include <lockstep/infer.h>

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void import(const char *from, const char *run)
{
    struct ls_error error = {0};
    struct ls_import_report report;
    const struct ls_import what = {.from = from, .run = run};
    assert_ok(ls_import(&what, &report, &error), error);
}

/* ---- logits ---------------------------------------------------------------------------------- */

enum { TOKENS = 16, VOCABULARY_MAX = 64 };

struct job {
    const char *path;
    struct ls_config config;
    const int32_t *tokens;
    float logits[TOKENS][VOCABULARY_MAX];
};

static int logits_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct job *job = user;
    struct ls_finished *finished = NULL;
    const float *logits = NULL;
    int status = ls_finished_new(&job->config, job->path, NULL, world, NULL, &finished, error);
    struct ls_runner *runner = status ? NULL : ls_finished_runner(finished);
    if (!status)
        status = ls_runner_restart(runner, error);
    for (int i = 0; i < TOKENS && !status; i++) {
        status = ls_runner_next(runner, job->tokens[i], &logits, error);
        if (logits && ls_comm_rank(world) == ls_comm_size(world) - 1)
            memcpy(job->logits[i], logits, sizeof(float) * (size_t)job->config.model.vocab);
    }
    ls_finished_free(finished);
    return status;
}

static void logits_run(struct job *job, const char *const *words, int count)
{
    struct ls_error error = {0};
    memset(job->logits, 0, sizeof job->logits);
    if (ls_finished_configure(job->path, LS_TO_GENERATE, words, count, &job->config, &error) ||
        ls_world_run((int)ls_config_ranks(&job->config), logits_body, job, &error))
        fail_msg("%s: %s", job->path, error.text);
}

static void check_logits(const char *directory, const char *golden)
{
    static const char *const cut[] = {"parallel.tp=2", "parallel.pp=2"};
    struct ls_safetensors *file = golden_open(golden);
    const float *wanted = tensor_data(file, "logits");
    struct job run = {.tokens = tensor_data(file, "input_ids")}, folder, parts;
    int64_t vocabulary = ls_safetensors_find(file, "logits")->shape[2];
    char path[2][4200];
    snprintf(path[0], 4096, "%s",
             folder_make(directory, golden, &(struct folder_of){.golden = golden}));
    snprintf(path[1], 4200, "%.4090s-run", path[0]);
    import(path[0], path[1]);
    folder = parts = run;
    run.path = path[1];
    folder.path = parts.path = path[0];
    logits_run(&run, NULL, 0);
    logits_run(&folder, NULL, 0);
    logits_run(&parts, cut, 2);
    assert_memory_equal(run.logits, folder.logits, sizeof run.logits);
    assert_memory_equal(run.logits, parts.logits, sizeof run.logits);
    double worst = 0, scale = 0;
    for (int i = 0; i < TOKENS; i++)
        for (int64_t v = 0; v < vocabulary; v++) {
            worst = fmax(worst, fabs((double)run.logits[i][v] - wanted[i * vocabulary + v]));
            scale = fmax(scale, fabs(wanted[i * vocabulary + v]));
        }
    if (!(worst <= 1e-5 * scale))
        fail_msg("%s: logits differ by %.3g of %.3g", golden, worst, scale);
    ls_safetensors_close(file);
}

CASE_WITH(test_logits, scratch_setup, scratch_teardown)
{
    char golden[64];
    for (int arch = 0; arch < LS_ARCHES; arch++) {
        snprintf(golden, sizeof golden, "%s_tiny", ls_arch_name((enum ls_arch)arch));
        check_logits(*state, golden);
    }
    check_logits(*state, "llama3_tiny");
}

/* ---- bits ------------------------------------------------------------------------------------ */

/* The values of an imported run are those of the golden file, rounded to the folder's type. */
static void check_bits(const char *directory, const char *name, const struct folder_of *of)
{
    char folder[4096], run[4200];
    struct ls_checkpoint *checkpoint;
    struct ls_error error = {0};
    snprintf(folder, sizeof folder, "%s", folder_make(directory, name, of));
    snprintf(run, sizeof run, "%s-run", folder);
    import(folder, run);
    struct ls_safetensors *golden = golden_open(of->golden);
    assert_int_equal(ls_checkpoint_choose(&checkpoint, run, NULL, NULL, &error), LS_OK);
    assert_true(checkpoint->state.fresh);
    const struct ls_stored_tensor *ours, *table, *none;
    assert_int_equal(ls_checkpoint_tensors(checkpoint, LS_CKPT_OPTIMIZER, &none), 0);
    /* A matrix that is cut in three there, and stored by columns. */
    bool gpt2 = !strcmp(of->golden, "gpt2_tiny");
    float *values = checkpoint_tensor(checkpoint, LS_CKPT_MODEL, "h.1.attn.k.weight", &ours);
    const struct ls_tensor_view *theirs =
        ls_safetensors_find(golden, gpt2 ? "param.h.1.attn.c_attn.weight"
                                         : "param.model.layers.1.self_attn.k_proj.weight");
    const float *data = tensor_data(golden, theirs->name);
    int64_t rows = ours->shape[0], cols = ours->shape[1];
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) {
            int64_t at = gpt2 ? c * 3 * rows + rows + r : r * cols + c;
            float value = data[at];
            if (of->dtype != LS_F32)
                value = ls_half_to_f32(of->dtype, ls_f32_to_half(of->dtype, value));
            assert_memory_equal(&value, values + r * cols + c, sizeof value);
        }
    /* Padding of the vocabulary is zero. */
    free(values);
    values = checkpoint_tensor(checkpoint, LS_CKPT_MODEL, "wte.weight", &table);
    const float *last = values + (table->shape[0] - 1) * table->shape[1];
    assert_int_equal(table->shape[0], 128);
    for (int64_t c = 0; c < table->shape[1]; c++)
        assert_true(last[c] == 0);
    free(values);
    ls_checkpoint_close(checkpoint);
    ls_safetensors_close(golden);
}

CASE_WITH(test_types_names_and_shards, scratch_setup, scratch_teardown)
{
    check_bits(*state, "a", &(struct folder_of){.golden = "gpt2_tiny", .shards = 3});
    check_bits(*state, "b",
               &(struct folder_of){
                   .golden = "gpt2_tiny", .dtype = LS_BF16, .prefix = "transformer.", .shards = 1});
    check_bits(*state, "c", &(struct folder_of){.golden = "llama_tiny", .dtype = LS_F16});
    check_bits(*state, "d",
               &(struct folder_of){.golden = "llama3_tiny", .dtype = LS_BF16, .shards = 2});
}

/* What transformers 4 calls by other names means the same. */
CASE_WITH(test_older_names, scratch_setup, scratch_teardown)
{
    struct ls_config config[2];
    struct ls_error error = {0};
    for (int old = 0; old < 2; old++) {
        const char *folder =
            folder_make(*state, old ? "old" : "new", &(struct folder_of){.golden = "llama3_tiny"});
        char path[4200];
        snprintf(path, sizeof path, "%s/config.json", folder);
        if (old) {
            json_edit(path, "rope_parameters", NULL);
            json_edit(path, "rope_theta", "10000");
            json_edit(path, "rope_scaling",
                      "{\"type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 1, "
                      "\"high_freq_factor\": 4, \"original_max_position_embeddings\": 128}");
            json_edit(path, "torch_dtype", "\"float32\"");
            json_edit(path, "eos_token_id", "[1, 2]");
        }
        struct ls_model_source *source;
        assert_int_equal(ls_model_source_open(&source, folder, NULL, &error), LS_OK);
        assert_ok(ls_model_source_alone(source, NULL, 0, NULL, &config[old], &error), error);
        ls_model_source_close(source);
    }
    char text[512];
    ls_config_recipe_diff(&config[0], &config[1], text, sizeof text);
    assert_string_equal(text, "");
    assert_true(config[0].model.rope_scaling.factor == 8);
}

CASE_WITH(test_positions, scratch_setup, scratch_teardown)
{
    static const struct {
        const char *group, *word;
        enum ls_rope_kind kind;
        double factor;
        int64_t context;
    } cases[] = {
        {"{\"rope_type\": \"linear\", \"factor\": 4.0, \"rope_theta\": 500000}", "linear",
         LS_ROPE_LINEAR, 4, 0},
        {"{\"rope_type\": \"yarn\", \"factor\": 2.0, \"beta_fast\": 16}", "yarn", LS_ROPE_YARN, 2,
         1024},
        {"{\"rope_type\": \"default\"}", "default", LS_ROPE_LLAMA3, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ls_config config;
        struct ls_error error = {0};
        struct ls_model_source *source;
        const char *folder =
            folder_make(*state, cases[i].word, &(struct folder_of){.golden = "llama_tiny"});
        json_edit(scratch_path(folder, "config.json"), "rope_parameters", cases[i].group);
        if (ls_model_source_open(&source, folder, NULL, &error) ||
            ls_model_source_alone(source, NULL, 0, NULL, &config, &error))
            fail_msg("%s", error.text);
        assert_int_equal(config.model.rope_scaling.kind, cases[i].kind);
        assert_true(config.model.rope_scaling.factor == (float)cases[i].factor);
        assert_int_equal(config.model.rope_scaling.original_context, cases[i].context);
        ls_model_source_close(source);
    }
}

/* What transformers' class of the family has where a key is absent or null, and which of two keys
 * counts there (tools/interop_config.py goes through all of them). */
static const struct {
    const char *golden, *edits[2][2], *key, *wanted;
} read_cases[] = {
    {"mistral_tiny", {{"sliding_window", NULL}}, "model.window", "4096"},
    {"mistral_tiny", {{"sliding_window", "null"}}, "model.window", "0"},
    {"mistral_tiny", {{"num_key_value_heads", "null"}}, "model.kv_heads", "4"},
    {"olmo2_tiny", {{"rms_norm_eps", NULL}}, "model.norm_epsilon", "1e-05"},
    {"llama_tiny", {{"rms_norm_eps", NULL}}, "model.norm_epsilon", "1e-06"},
    {"qwen3_tiny", {{"head_dim", NULL}}, "model.head_dim", "128"},
    {"gemma2_tiny", {{"head_dim", NULL}}, "model.head_dim", "256"},
    {"gemma2_tiny", {{"final_logit_softcapping", NULL}}, "model.logit_softcap", "30"},
    {"gemma2_tiny", {{"attn_logit_softcapping", NULL}}, "model.attention_softcap", "50"},
    {"gemma2_tiny", {{"query_pre_attn_scalar", NULL}}, "model.query_scale", "256"},
    {"gemma3_tiny", {{"rope_parameters", NULL}}, "model.rope_theta", "1000000"},
    {"gemma3_tiny", {{"rope_parameters", NULL}}, "model.rope_local_theta", "10000"},
    {"gemma3_tiny",
     {{"rope_parameters", NULL}, {"rope_local_base_freq", "30"}},
     "model.rope_local_theta",
     "30"},
    {"gemma3_tiny",
     {{"rope_scaling", "{\"rope_type\": \"linear\", \"factor\": 2.0}"}},
     "model.rope_factor",
     "2"},
    {"gemma3_tiny",
     {{"rope_scaling", "{\"rope_type\": \"linear\", \"factor\": 2.0}"}},
     "model.rope_theta",
     "500"},
    {"gemma3_tiny",
     {{"layer_types", NULL}, {"sliding_window_pattern", "6"}},
     "model.window_layers",
     "five_of_six"},
    {"gemma3_tiny",
     {{"layer_types", NULL}, {"sliding_window_pattern", "2"}},
     "model.window_layers",
     "even"},
    {"gemma3_tiny",
     {{"layer_types", "[\"sliding_attention\", \"full_attention\", \"sliding_attention\", "
                      "\"full_attention\", \"sliding_attention\", \"full_attention\"]"}},
     "model.window_layers",
     "even"},
    {"olmo3_tiny", {{"layer_types", NULL}}, "model.window_layers", "three_of_four"},
    {"olmo3_tiny", {{"sliding_window", NULL}}, "model.window", "4096"},
    {"olmo3_tiny", {{"rope_parameters", NULL}}, "model.rope_theta", "500000"},
    {"olmo3_tiny", {{"rope_parameters", NULL}}, "model.rope_local_theta", "500000"},
    {"olmo3_tiny",
     {{"rope_parameters", NULL}, {"rope_scaling", "{\"rope_type\": \"yarn\", \"factor\": 8.0}"}},
     "model.rope_factor",
     "8"},
    {"smollm3_tiny", {{"no_rope_layers", NULL}}, "model.rope_layers", "three_of_four"},
    {"smollm3_tiny",
     {{"no_rope_layers", NULL}, {"no_rope_layer_interval", "2"}},
     "model.rope_layers",
     "even"},
    {"smollm3_tiny", {{"no_rope_layers", "[1, 1, 1, 1]"}}, "model.rope_layers", "all"},
    {"smollm3_tiny", {{"rope_parameters", NULL}}, "model.rope_theta", "2000000"},
    {"smollm3_tiny", {{"tie_word_embeddings", NULL}}, "model.tied", "true"},
    {"llama_tiny",
     {{"rope_scaling", "{\"rope_type\": \"linear\", \"factor\": 2.0}"},
      {"rope_parameters", "{\"rope_type\": \"linear\", \"factor\": 8.0}"}},
     "model.rope_factor",
     "2"},
    {"llama_tiny",
     {{"rope_scaling", "{}"}, {"rope_parameters", "{\"rope_type\": \"linear\", \"factor\": 8.0}"}},
     "model.rope_factor",
     "8"},
};

CASE_WITH(test_keys_as_transformers_reads_them, scratch_setup, scratch_teardown)
{
    for (size_t i = 0; i < sizeof read_cases / sizeof *read_cases; i++) {
        struct ls_config config;
        struct ls_error error = {0};
        struct ls_model_source *source;
        char name[16], found[4 * LS_CONFIG_TEXT_BYTES];
        snprintf(name, sizeof name, "key%zu", i);
        const char *folder =
            folder_make(*state, name, &(struct folder_of){.golden = read_cases[i].golden});
        for (int k = 0; k < 2 && read_cases[i].edits[k][0]; k++)
            json_edit(scratch_path(folder, "config.json"), read_cases[i].edits[k][0],
                      read_cases[i].edits[k][1]);
        if (ls_model_source_open(&source, folder, NULL, &error) ||
            ls_model_source_alone(source, NULL, 0, NULL, &config, &error))
            fail_msg("%s: %s", read_cases[i].golden, error.text);
        ls_config_value(&config, ls_config_key_of(read_cases[i].key), found, sizeof found);
        assert_string_equal(found, read_cases[i].wanted);
        ls_model_source_close(source);
    }
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void expect_refused(const char *from, const char *run, const char *words)
{
    struct ls_error error = {0};
    struct ls_import_report report;
    const struct ls_import what = {.from = from, .run = run};
    int status = ls_import(&what, &report, &error);
    char text[256], *save = NULL;
    snprintf(text, sizeof text, "%s", words);
    for (char *word = strtok_r(text, "|", &save); word; word = strtok_r(NULL, "|", &save))
        if (!status || !strstr(error.text, word))
            fail_msg("expected %s, found %d: %s", word, status, error.text);
    assert_int_not_equal(access(run, F_OK), 0);
}

/* What AutoModel saves, which names itself so in transformers. Of an untied model it has no head.
 */
static const struct {
    const char *golden, *name;
    bool tied;
} bases[] = {{"gpt2_tiny", "GPT2Model", true},        {"llama_tiny", "LlamaModel", false},
             {"mistral_tiny", "MistralModel", false}, {"qwen2_tiny", "Qwen2Model", false},
             {"qwen3_tiny", "Qwen3Model", false},     {"gemma_tiny", "GemmaModel", true},
             {"gemma2_tiny", "Gemma2Model", true},    {"gemma3_tiny", "Gemma3TextModel", true},
             {"phi3_tiny", "Phi3Model", false},       {"olmo2_tiny", "Olmo2Model", false},
             {"olmo3_tiny", "Olmo3Model", false},     {"smollm3_tiny", "SmolLM3Model", false}};
enum { BASES = sizeof bases / sizeof *bases };

CASE_WITH(test_models_without_their_head, scratch_setup, scratch_teardown)
{
    assert_int_equal(BASES, LS_ARCHES);
    for (int i = 0; i < BASES; i++) {
        char folder[4096], run[4200], word[64];
        const struct folder_of of = {.golden = bases[i].golden};
        snprintf(folder, sizeof folder, "%s", folder_make(*state, bases[i].golden, &of));
        snprintf(run, sizeof run, "%s-run", folder);
        snprintf(word, sizeof word, "[\"%s\"]", bases[(i + 1) % BASES].name);
        json_edit(scratch_path(folder, "config.json"), "architectures", word);
        expect_refused(folder, run, "architectures = ");
        snprintf(word, sizeof word, "[\"%s\"]", bases[i].name);
        json_edit(scratch_path(folder, "config.json"), "architectures", word);
        if (!bases[i].tied) {
            tensor_edit(folder, "lm_head.weight", NULL, 0);
            expect_refused(folder, run, "lm_head.weight|missing: a model without its head");
        } else {
            import(folder, run);
            json_edit(scratch_path(folder, "config.json"), "architectures", "[]");
            snprintf(run, sizeof run, "%s-unsaid", folder);
            import(folder, run);
            snprintf(run, sizeof run, "%s-run", folder);
        }
    }
}

/* One key of config.json, or of the index, is another one. */
static const struct {
    const char *golden, *key, *value, *words; /* words: with | between */
} bad_keys[] = {
    {"gpt2_tiny", "model_type", "\"falcon\"", "model_type = \"falcon\"|gpt2|llama"},
    {"gpt2_tiny", "model_type", NULL, "model_type = nothing"},
    {"llama_tiny", "model_type", "\"qwen3_moe\"", "smollm3; models with experts are not supported"},
    {"llama_tiny", "model_type", "\"deepseek_v3\"",
     "smollm3; models with experts are not supported"},
    {"gpt2_tiny", "architectures", "[\"GPT2ForTokenClassification\"]",
     "GPT2ForTokenClassification|expected GPT2LMHeadModel"},
    {"gpt2_tiny", "activation_function", "\"relu\"", "activation_function = \"relu\"|gelu_new"},
    {"gpt2_tiny", "scale_attn_by_inverse_layer_idx", "true", "scale_attn_by_inverse_layer_idx"},
    {"llama_tiny", "is_causal", "false", "is_causal = false: a model of the family llama here"},
    {"llama_tiny", "per_layer_config", "{\"1\": {}}", "per_layer_config = {"},
    {"llama3_tiny", "original_max_position_embeddings", "8",
     "original_max_position_embeddings = 8: |beside rope_parameters: expected the same number"},
    {"gpt2_tiny", "n_layer", NULL, "n_layer is missing"},
    {"gpt2_tiny", "n_layer", "\"two\"", "n_layer|two|whole number"},
    {"gpt2_tiny", "n_layer", "[2]", "n_layer = [2]"},
    {"gpt2_tiny", "n_layer", "\"2\"", "n_layer = \"2\"|a whole number there"},
    {"gpt2_tiny", "n_layer", "2.0", "n_layer = 2.0|a whole number there"},
    {"llama_tiny", "clip_qkv", "0.30000000000000004", "clip_qkv = 0.30000000000000004:"},
    {"llama_tiny", "clip_qkv", "1e-5", "clip_qkv = 1e-5:"},
    {"llama_tiny", "rms_norm_eps", "\"1e-5\"", "rms_norm_eps = \"1e-5\"|a number there"},
    {"llama_tiny", "tie_word_embeddings", "\"false\"",
     "tie_word_embeddings = \"false\"|true or false there"},
    {"gpt2_tiny", "n_layer", "3", "tensor h.2.|is missing"},
    {"gpt2_tiny", "n_layer", "1", "h.1.|does not belong"},
    {"gpt2_tiny", "n_positions", "32", "wpe.weight is [16, 32]|config.json makes it [32, 32]"},
    {"gpt2_tiny", "vocab_size", "60", "wte.weight is [61, 32]|makes it [60, 32]"},
    {"gpt2_tiny", "tie_word_embeddings", "false", "tensor lm_head.weight [61, 32] is missing"},
    {"gpt2_tiny", "quantization_config", "{\"bits\": 4}", "quantization_config = {\"bits\":4}"},
    {"llama_tiny", "quantization_config", "{\"quant_method\": \"gptq\", \"bits\": 4}",
     "quant_method = gptq: expected weights in F32|dequantize"},
    {"llama_tiny", "quantization_config",
     "{\"quant_method\": \"bitsandbytes\", \"load_in_4bit\": true}",
     "config.json: quantization_config|no matrix in NF4|remove the key"},
    {"llama_tiny", "attention_bias", "true", "attention_bias = true|false"},
    {"llama_tiny", "hidden_act", "\"gelu\"", "hidden_act = \"gelu\"|silu"},
    {"llama_tiny", "num_key_value_heads", "3", "/bad|: model.kv_heads|divisor"},
    {"llama_tiny", "head_dim", "12", "/bad|: model.head_dim = 12|multiple of 8"},
    {"llama_tiny", "num_experts", "8", "num_experts = 8"},
    {"llama_tiny", "rope_parameters.rope_type", "\"dynamic\"",
     "rope_parameters.rope_type = \"dynamic\"|linear, llama3 or yarn"},
    {"llama_tiny", "rope_parameters.partial_rotary_factor", "0.5", "partial_rotary_factor = 0.5"},
    {"llama3_tiny", "rope_parameters.factor", NULL, "rope_parameters.factor is missing"},
    {"llama3_tiny", "rope_parameters", "7", "rope_parameters = 7"},
    {"phi3_tiny", "rope_parameters.rope_type", "\"yarn\"",
     "rope_parameters.rope_type = \"yarn\"|in a phi3 expected default"},
    {"phi3_tiny", "rope_parameters.rope_type", "\"longrope\"", "rope_type = \"longrope\""},
    {"gemma2_tiny", "layer_types", "[\"full_attention\", \"sliding_attention\"]", "layer_types"},
    {"gemma2_tiny", "final_logit_softcapping", "\"*\"", "final_logit_softcapping = \"*\""},
    {"gemma3_tiny", "layer_types", "[\"full_attention\", \"sliding_attention\"]", "layer_types"},
    {"gemma3_tiny", "sliding_window_pattern", "3", "sliding_window_pattern = 3|has 0, 2, 4, 6"},
    {"olmo3_tiny", "layer_types", "[\"sliding_attention\"]", "layer_types|model.window_layers"},
    {"smollm3_tiny", "no_rope_layers", "[0, 1, 1, 1]", "no_rope_layers|model.rope_layers"},
    {"smollm3_tiny", "no_rope_layers", "7", "no_rope_layers = 7"},
    {"smollm3_tiny", "use_sliding_window", "true", "use_sliding_window = true"},
    {"qwen2_tiny", "use_sliding_window", "true", "use_sliding_window = true"},
    {"gemma3_tiny", "use_bidirectional_attention", "true", "use_bidirectional_attention = true"},
    {"gemma3_tiny", "final_logit_softcapping", "30.0", "final_logit_softcapping = 30"},
    {"gemma3_tiny", "rope_parameters", "{\"rope_type\": \"default\"}",
     "rope_parameters = |expected full_attention and sliding_attention"},
    {"gemma3_tiny", "rope_parameters.sliding_attention", "{\"rope_type\": \"linear\"}",
     "sliding_attention.rope_type = \"linear\": expected default"},
    {"gemma3_tiny", "model_type", "\"gemma3\"", "model_type = \"gemma3\"|gemma3_text"},
    {"gpt2_tiny", "num_attention_heads", "8", "num_attention_heads = 8"},
    {"mistral_tiny", "layer_types", "[\"full_attention\"]", "layer_types"},
    {"mistral_tiny", "num_key_value_heads", NULL, "model.kv_heads = 8"},
    {"llama_tiny", "layer_types", "[\"full_attention\", \"sliding_attention\"]", "layer_types"},
};

CASE_WITH(test_bad_configurations, scratch_setup, scratch_teardown)
{
    for (size_t i = 0; i < sizeof bad_keys / sizeof *bad_keys; i++) {
        char name[16], folder[4096];
        snprintf(name, sizeof name, "bad%zu", i);
        snprintf(folder, sizeof folder, "%s",
                 folder_make(*state, name, &(struct folder_of){.golden = bad_keys[i].golden}));
        json_edit(scratch_path(folder, "config.json"), bad_keys[i].key, bad_keys[i].value);
        expect_refused(folder, scratch_path(*state, "never"), bad_keys[i].words);
    }
}

/* A value that changes nothing there. */
CASE_WITH(test_a_switch_that_is_off, scratch_setup, scratch_teardown)
{
    static const char *const families[] = {"gemma_tiny", "gemma2_tiny", "gemma3_tiny"};
    for (int i = 0; i < 3; i++) {
        char run[16];
        const char *folder =
            folder_make(*state, families[i], &(struct folder_of){.golden = families[i]});
        json_edit(scratch_path(folder, "config.json"), "use_bidirectional_attention", "false");
        snprintf(run, sizeof run, "run%d", i);
        model_import(*state, families[i], run, (struct ls_import){0});
    }
}

static const char *link_to(const char *folder, const char *name, const char *target)
{
    const char *path = scratch_path(folder, name);
    unlink(path);
    assert_int_equal(symlink(target, path), 0);
    return path;
}

/* A published folder is a stranger's: its links must not name files of this machine. Those of a
 * cache lead to blobs/ beside its snapshots/. */
CASE_WITH(test_links_stay_in_the_tree, scratch_setup, scratch_teardown)
{
    static const char *const names[] = {"config.json", "model.safetensors", "tokenizer_config.json",
                                        "generation_config.json"};
    char secret[4096], never[4096], inside[4096], folder[4096];
    snprintf(secret, sizeof secret, "%s", scratch_path(*state, "secret"));
    snprintf(never, sizeof never, "%s", scratch_path(*state, "never"));
    scratch_write(secret, "{}", 2);
    for (int i = 0; i < 4; i++) {
        snprintf(folder, sizeof folder, "%s",
                 folder_make(*state, names[i], &(struct folder_of){.golden = "llama_tiny"}));
        link_to(folder, names[i], secret);
        expect_refused(folder, never, "secret, which is not in the folder|links to");
        link_to(folder, names[i], "../nothing");
        expect_refused(folder, never, "links to ../nothing, which cannot be read|was all of it");
    }
    snprintf(folder, sizeof folder, "%s", scratch_path(*state, "models--x"));
    assert_int_equal(mkdir(folder, 0700) | mkdir(scratch_path(folder, "snapshots"), 0700) |
                         mkdir(scratch_path(folder, "blobs"), 0700),
                     0);
    snprintf(inside, sizeof inside, "%s",
             folder_make(folder, "snapshots/1", &(struct folder_of){.golden = "llama_tiny"}));
    snprintf(secret, sizeof secret, "%s", scratch_path(inside, "config.json"));
    assert_int_equal(rename(secret, scratch_path(folder, "blobs/a")), 0);
    link_to(inside, "config.json", "../../blobs/a");
    import(inside, never);
}

static void warning_keep(void *user, enum ls_log_level level, const char *line)
{
    char *said = user;
    if (level == LS_LOG_WARNING)
        snprintf(said + strlen(said), 2000 - strlen(said), "%s\n", line);
}

/* A weight that is not finite is told, with its tensor and place, and stays what it is. */
CASE_WITH(test_values_that_are_not_finite_are_told, scratch_setup, scratch_teardown)
{
    char said[2000] = "", run[4096];
    const struct ls_log log = {LS_LOG_INFO, warning_keep, said};
    const char *folder = folder_make(*state, "nan", &(struct folder_of){.golden = "gpt2_tiny"});
    struct ls_error error = {0};
    struct ls_import_report report;
    values_edit(folder, "ln_f.bias", (size_t[]){3}, (float[]){NAN}, 1);
    values_edit(folder, "wpe.weight", (size_t[]){0, 5}, (float[]){-INFINITY, NAN}, 2);
    snprintf(run, sizeof run, "%s", scratch_path(*state, "told"));
    const struct ls_import what = {.from = folder, .run = run, .log = &log};
    assert_ok(ls_import(&what, &report, &error), error);
    assert_non_null(strstr(said, "wpe.weight: 2 values not finite, the first at [0, 0]: -inf"));
    assert_non_null(strstr(said, "ln_f.bias: 1 value not finite, the first at [0, 3]: nan"));
    /* Of tensors that are read in turns each is told once. */
    size_t c = (size_t)report.model.channels;
    const size_t turns[] = {0, c, 2 * c, (c - 1) * 3 * c, (c - 1) * 3 * c + c};
    folder = folder_make(*state, "turns", &(struct folder_of){.golden = "gpt2_tiny"});
    values_edit(folder, "h.0.attn.c_attn.weight", turns, (float[]){NAN, NAN, NAN, NAN, NAN}, 5);
    struct ls_export_report exported;
    char out[4096];
    snprintf(out, sizeof out, "%s", scratch_path(*state, "exported"));
    const struct ls_export to = {.from = folder, .out = out, .dtype = LS_F32, .log = &log};
    said[0] = '\0';
    assert_ok(ls_export(&to, &exported, &error), error);
    int lines = 0;
    for (const char *at = said; (at = strchr(at, '\n')); at++)
        lines++;
    if (lines != 3 || !strstr(said, "attn.q.weight: 2 values") ||
        !strstr(said, "attn.k.weight: 2 values") || !strstr(said, "attn.v.weight: 1 value"))
        fail_msg("%s", said);
    const char *good = folder_make(*state, "good", &(struct folder_of){.golden = "gpt2_tiny"});
    const struct ls_import other = {
        .from = good, .run = scratch_path(*state, "silent"), .log = &log};
    said[0] = '\0';
    assert_ok(ls_import(&other, &report, &error), error);
    assert_string_equal(said, "");
}

/* Nothing but generation reads these, and the run keeps a copy. */
CASE_WITH(test_files_that_nothing_reads_are_told, scratch_setup, scratch_teardown)
{
    static const char *const cases[][3] = {
        {"generation_config.json", "{\"eos_token_id\": 2", "generation_config.json:1:18: not JSON"},
        {"generation_config.json", "[]", "generation_config.json:1: expected an object"},
        {"special_tokens_map.json", "5", "special_tokens_map.json:1:1: not JSON"},
        {"generation_config.json", "{\"eos_token_id\": 2}", ""},
    };
    struct ls_error error = {0};
    struct ls_import_report report;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char said[2000] = "", name[16], run[4096];
        const struct ls_log log = {LS_LOG_INFO, warning_keep, said};
        snprintf(name, sizeof name, "told%zu", i);
        const char *folder = folder_make(*state, name, &(struct folder_of){.golden = "gpt2_tiny"});
        scratch_write(scratch_path(folder, cases[i][0]), cases[i][1], strlen(cases[i][1]));
        snprintf(run, sizeof run, "%s", scratch_path(*state, "run"));
        const struct ls_import what = {.from = folder, .run = scratch_path(run, name), .log = &log};
        assert_ok(ls_import(&what, &report, &error), error);
        if (cases[i][2][0] ? !strstr(said, cases[i][2]) : said[0])
            fail_msg("%zu: %s", i, said);
    }
}

/* Versions of transformers differ in yarn's factor beside another length: in and out it is told. */
CASE_WITH(test_a_factor_beside_another_length_is_told, scratch_setup, scratch_teardown)
{
#define YARN(more) "{\"rope_type\": \"yarn\", \"factor\": " more "}"
#define ORIGINAL   "\"original_max_position_embeddings\": "
    static const char told[] =
        "config.json: yarn's factor is 2, and transformers 4.48 to 4.57 take "
        "max_position_embeddings / original_max_position_embeddings = ";
    static const struct {
        const char *group, *in, *out; /* said behind what is told; NULL: nothing is */
    } cases[] = {
        {YARN("2.0, " ORIGINAL "256"),
         "1024 / 256 = 4 instead: expected max_position_embeddings = "
         "512",
         "1024 / 256 = 4"},
        {YARN("4.0, " ORIGINAL "256"), NULL, NULL},
        {YARN("2.0"), NULL, "1024 / 1024 = 1"}, /* what is absent there is written */
        {"{\"rope_type\": \"linear\", \"factor\": 2.0}", NULL, NULL},
    };
    struct ls_error error = {0};
    struct ls_import_report report;
    struct ls_export_report exported;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char said[2000] = "", wanted[400], name[16], run[4096], out[4096];
        const struct ls_log log = {LS_LOG_INFO, warning_keep, said};
        snprintf(name, sizeof name, "yarn%zu", i);
        const char *folder = folder_make(*state, name, &(struct folder_of){.golden = "llama_tiny"});
        json_edit(scratch_path(folder, "config.json"), "rope_parameters", cases[i].group);
        snprintf(run, sizeof run, "%s", scratch_path(folder, "run"));
        snprintf(out, sizeof out, "%s", scratch_path(folder, "out"));
        const struct ls_import what = {.from = folder, .run = run, .log = &log};
        const struct ls_export to = {.from = run, .out = out, .dtype = LS_F32, .log = &log};
        for (int turn = 0; turn < 2; turn++) {
            const char *more = turn ? cases[i].out : cases[i].in;
            said[0] = '\0';
            assert_ok(turn ? ls_export(&to, &exported, &error) : ls_import(&what, &report, &error),
                      error);
            snprintf(wanted, sizeof wanted, "%s%s", told, more ? more : "");
            if (more ? !strstr(said, wanted) : said[0])
                fail_msg("%zu: %s", i, said);
        }
    }
}

static const struct {
    const char *value, *words;
} bad_index[] = {
    {"\"../other/model.safetensors\"", "expected the name of a file in this folder"},
    {"\"/etc/passwd\"", "expected the name of a file in this folder"},
    {"\"..\"", "expected the name of a file in this folder"},
    {"\"\"", "expected the name of a file in this folder"},
    {"5", "expected the name of a file in this folder"},
    {"\"model-00009-of-00003.safetensors\"",
     "model-00009-of-00003.safetensors|index.json lists it"},
    {"\"model-00002-of-00003.safetensors\"", "is not in model-00002-of-00003.safetensors"},
};

CASE_WITH(test_bad_index, scratch_setup, scratch_teardown)
{
    char folder[4096];
    snprintf(
        folder, sizeof folder, "%s",
        folder_make(*state, "shards", &(struct folder_of){.golden = "gpt2_tiny", .shards = 3}));
    const char *path = scratch_path(folder, "model.safetensors.index.json");
    char index[4096];
    snprintf(index, sizeof index, "%s", path);
    size_t bytes;
    char *good = scratch_read(index, &bytes);
    for (size_t i = 0; i < sizeof bad_index / sizeof *bad_index; i++) {
        scratch_write(index, good, bytes);
        json_edit(index, "weight_map.h.0.attn.c_attn.bias", bad_index[i].value);
        expect_refused(folder, scratch_path(*state, "never"), bad_index[i].words);
    }
    scratch_write(index, "{\"weight_map\": []}", 18);
    expect_refused(folder, scratch_path(*state, "never"), "weight_map = []");
    scratch_write(index, "{\"weight_map\"", 13);
    expect_refused(folder, scratch_path(*state, "never"), "index.json:1:|not JSON");
    free(good);
}

/* A tensor that the index has in one file, and another file too: the same, or refused. */
CASE_WITH(test_a_tensor_twice, scratch_setup, scratch_teardown)
{
    static const char name[] = "model.norm.weight", golden[] = "param.model.norm.weight";
    const struct folder_of of = {.golden = "llama3_tiny", .shards = 2};
    struct ls_safetensors *file = golden_open(of.golden);
    struct ls_tensor_entry entry = {.name = name, .dims = 1, .shape = {32, 1}};
    struct ls_error error = {0};
    char folder[4096];
    float values[32];
    memcpy(values, tensor_data(file, golden), sizeof values);
    entry.data = values;
    ls_safetensors_close(file);
    snprintf(folder, sizeof folder, "%s", folder_make(*state, "two", &of));
    const float last = values[31];
    enum { SAME, ANOTHER_VALUE, ANOTHER_SHAPE, CASES };
    for (int other = SAME; other < CASES; other++) {
        values[31] = other == ANOTHER_VALUE ? last + 1 : last;
        entry.dims = other == ANOTHER_SHAPE ? 2 : 1;
        assert_ok(tensors_save(scratch_path(folder, "more.safetensors"), &entry, 1, &error), error);
        json_edit(scratch_path(folder, "model.safetensors.index.json"),
                  "weight_map.model.norm.weight", "\"more.safetensors\"");
        if (other)
            expect_refused(folder, scratch_path(*state, "never"),
                           "tensor model.norm.weight is in model-0000|more.safetensors|once");
        else
            model_import(*state, "two", "run", (struct ls_import){0});
    }
}

CASE_WITH(test_bad_weights, scratch_setup, scratch_teardown)
{
    char folder[4096];
    snprintf(folder, sizeof folder, "%s",
             folder_make(*state, "w", &(struct folder_of){.golden = "llama3_tiny"}));
    char never[4096];
    snprintf(never, sizeof never, "%s", scratch_path(*state, "never"));
    tensor_edit(folder, "model.norm.weight", "model.norm.weight", 1);
    expect_refused(folder, never, "tensor model.norm.weight is [31]|config.json makes it [32]");
    tensor_edit(folder, "model.norm.weight", NULL, 0);
    expect_refused(folder, never, "tensor model.norm.weight [32] is missing");
    snprintf(folder, sizeof folder, "%s",
             folder_make(*state, "x", &(struct folder_of){.golden = "llama_tiny"}));
    tensor_edit(folder, "lm_head.weight", "model.layers.0.self_attn.q_norm.weight", 0);
    expect_refused(folder, never, "lm_head.weight [64, 32] is missing");
    char path[4200];
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    size_t bytes;
    char *whole = scratch_read(path, &bytes);
    scratch_write(path, whole, bytes - 5);
    expect_refused(folder, never, "model.safetensors|truncated");
    scratch_write(path, whole, 100);
    expect_refused(folder, never, "model.safetensors|truncated");
    unlink(path);
    expect_refused(folder, never, "holds neither model.safetensors nor");
    scratch_write(scratch_path(folder, "pytorch_model.bin"), whole, 10);
    expect_refused(folder, never, "pytorch_model.bin");
    free(whole);
    expect_refused(scratch_path(*state, "nowhere"), never, "there is no such folder");
    mkdir(scratch_path(*state, "empty"), 0777);
    expect_refused(scratch_path(*state, "empty"), never, "holds neither config.json");
}

/* A head beside the table that it is tied to. */
CASE_WITH(test_tied_head_is_there_too, scratch_setup, scratch_teardown)
{
    char folder[4096];
    snprintf(folder, sizeof folder, "%s",
             folder_make(*state, "two", &(struct folder_of){.golden = "llama_tiny"}));
    json_edit(scratch_path(folder, "config.json"), "tie_word_embeddings", "true");
    expect_refused(folder, scratch_path(*state, "never"), "lm_head.weight is not|ties the two");
    tensor_edit(folder, "lm_head.weight", NULL, 0);
    import(folder, scratch_path(*state, "tied"));
}

/* A head in place of the table that it is tied to, as programs leave it that write one of two names
 * of a tensor: the same model, however it is cut. */
CASE_WITH(test_tied_head_is_there_alone, scratch_setup, scratch_teardown)
{
    static const char *const cut[] = {"parallel.pp=2"};
    static const int32_t tokens[TOKENS] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3};
    struct job jobs[3];
    char folders[2][4096];
    for (int i = 0; i < 2; i++) {
        snprintf(
            folders[i], sizeof folders[i], "%s",
            folder_make(*state, i ? "head" : "table", &(struct folder_of){.golden = "llama_tiny"}));
        json_edit(scratch_path(folders[i], "config.json"), "tie_word_embeddings", "true");
        tensor_edit(folders[i], "lm_head.weight", NULL, 0);
    }
    tensor_edit(folders[1], "model.embed_tokens.weight", "lm_head.weight", 0);
    for (int i = 0; i < 3; i++) {
        jobs[i] = (struct job){.tokens = tokens, .path = folders[i > 0]};
        logits_run(&jobs[i], cut, i == 2);
        assert_memory_equal(jobs[i].logits, jobs[0].logits, sizeof jobs[0].logits);
    }
    assert_true(jobs[0].logits[TOKENS - 1][0] != 0);
    tensor_edit(folders[1], "lm_head.weight", "other", 0);
    expect_refused(folders[1], scratch_path(*state, "never"), "model.embed_tokens.weight|missing");
}

/* A tokenizer's added tokens for which the model has no rows, such as a pad that nobody trained.
 * Its other tokens the model must have. */
CASE_WITH(test_model_lacks_added_tokens, scratch_setup, scratch_teardown)
{
    enum { TEXT_BYTES = 1 << 16 };
    char folder[4096], *text = malloc(TEXT_BYTES);
    struct ls_error error = {0};
    struct ls_config config;
    snprintf(folder, sizeof folder, "%s",
             folder_make(*state, "lacks", &(struct folder_of){.golden = "llama_tiny"}));
    json_t *description = json_load_file(scratch_path(folder, "config.json"), 0, NULL);
    int rows = (int)json_integer_value(json_object_get(description, "vocab_size"));
    json_decref(description);
    for (int more = 0; more < 2; more++) { /* tokens of the model that have no row */
        size_t at = (size_t)sprintf(
            text, "{\"added_tokens\":[{\"id\":%d,\"content\":\"<pad>\",\"special\":true}],",
            rows + more);
        at += (size_t)sprintf(text + at,
                              "\"decoder\":{\"type\":\"Fuse\"},\"model\":{\"type\":\"BPE\","
                              "\"merges\":[],\"vocab\":{\"a\":0");
        for (int id = 1; id < rows + more; id++)
            at += (size_t)snprintf(text + at, TEXT_BYTES - at, ",\"b%d\":%d", id, id);
        at += (size_t)snprintf(text + at, TEXT_BYTES - at, "}}}");
        scratch_write(scratch_path(folder, "tokenizer.json"), text, at);
        int status = ls_finished_configure(folder, LS_TO_GENERATE, NULL, 0, &config, &error);
        assert_int_equal(status, more ? LS_ECONFIG : LS_OK);
        if (!more)
            assert_true(config.data.tokenizer[0] && config.model.vocab == rows);
    }
    assert_non_null(strstr(error.text, "expected at least the tokenizer's"));
    free(text);
}

/* What is no model says what it is, also to who would generate with it. */
CASE_WITH(test_folders_that_are_no_models, scratch_setup, scratch_teardown)
{
    struct ls_error error = {0};
    struct ls_config config;
    assert_int_equal(
        ls_finished_configure("some-one/Model", LS_TO_GENERATE, NULL, 0, &config, &error), LS_EIO);
    assert_text_contains(error.text, "hf download some-one/Model --local-dir Model");
    assert_int_equal(ls_finished_configure(*state, LS_TO_GENERATE, NULL, 0, &config, &error),
                     LS_ECONFIG);
    assert_text_contains(error.text, "holds neither config.json");
    scratch_write(scratch_path(*state, "adapter_config.json"), "{}", 2);
    assert_int_equal(ls_finished_configure(*state, LS_TO_GENERATE, NULL, 0, &config, &error),
                     LS_ECONFIG);
    assert_text_contains(error.text, "lockstep import MODEL --out RUN lora.from=");
}

/* Other trainers leave a config.yaml in their folders too; a run has checkpoints/ beside it. */
CASE_WITH(test_a_folder_with_a_config_yaml, scratch_setup, scratch_teardown)
{
    struct ls_error error = {0};
    struct ls_config config;
    struct ls_import_report report;
    char folder[4096];
    snprintf(folder, sizeof folder, "%s",
             folder_make(*state, "yaml", &(struct folder_of){.golden = "llama_tiny"}));
    scratch_write(scratch_path(folder, "config.yaml"), "base_model: x\n", 14);
    assert_true(ls_model_is_foreign(folder));
    const struct ls_import what = {.from = folder, .run = scratch_path(*state, "run")};
    assert_ok(ls_import(&what, &report, &error), error);
    assert_ok(ls_finished_configure(folder, LS_TO_GENERATE, NULL, 0, &config, &error), error);
    assert_int_equal(mkdir(scratch_path(folder, "checkpoints"), 0700), 0);
    assert_false(ls_model_is_foreign(folder));
}

static void on_log(void *user, enum ls_log_level level, const char *line)
{
    snprintf(user, 512, "%s", line);
}

/* A soft cap of null is none, and is null again in what is exported. */
CASE_WITH(test_no_cap, scratch_setup, scratch_teardown)
{
    const char *folder = folder_make(*state, "nocap", &(struct folder_of){.golden = "gemma2_tiny"});
    char out[4096];
    snprintf(out, sizeof out, "%s", scratch_path(*state, "nocap-out"));
    for (int turn = 0; turn < 2; turn++) {
        struct ls_error error = {0};
        struct ls_model_source *source = NULL;
        struct ls_config config;
        const char *from = turn ? out : folder;
        if (!turn) {
            json_edit(scratch_path(folder, "config.json"), "attn_logit_softcapping", "null");
            json_edit(scratch_path(folder, "config.json"), "final_logit_softcapping", "null");
        }
        if (ls_model_source_open(&source, from, NULL, &error) ||
            ls_model_source_alone(source, NULL, 0, NULL, &config, &error))
            fail_msg("%s", error.text);
        ls_model_source_close(source);
        assert_true(config.model.attention_softcap == 0 && config.model.logit_softcap == 0);
        const struct ls_export what = {
            .from = folder, .format = LS_EXPORT_HF, .dtype = LS_F32, .out = out};
        struct ls_export_report report;
        if (!turn && ls_export(&what, &report, &error))
            fail_msg("%s", error.text);
    }
}

CASE_WITH(test_unknown_keys_are_warnings, scratch_setup, scratch_teardown)
{
    char said[512] = "";
    struct ls_log log = {.level_max = LS_LOG_WARNING, .write = on_log, .user = said};
    struct ls_error error = {0};
    struct ls_model_source *source;
    const char *folder = folder_make(*state, "u", &(struct folder_of){.golden = "gpt2_tiny"});
    assert_int_equal(ls_model_source_open(&source, folder, &log, &error), LS_OK);
    assert_string_equal(said, "");
    ls_model_source_close(source);
    json_edit(scratch_path(folder, "config.json"), "unheard_of", "{\"a\": 1}");
    assert_int_equal(ls_model_source_open(&source, folder, &log, &error), LS_OK);
    assert_non_null(strstr(said, "unheard_of = {\"a\":1} is not known here"));
    ls_model_source_close(source);
    said[0] = '\0'; /* dropout of other classes than GPT-2's has these names too */
    folder = folder_make(*state, "p", &(struct folder_of){.golden = "phi3_tiny"});
    json_edit(scratch_path(folder, "config.json"), "resid_pdrop", "0.0");
    json_edit(scratch_path(folder, "config.json"), "embd_pdrop", "0.0");
    json_edit(scratch_path(folder, "config.json"), "unheard_of", "null"); /* says nothing */
    /* Published, and read by no class of transformers. */
    json_edit(scratch_path(folder, "config.json"), "transformers.js_config", "{\"kv\": 1}");
    json_edit(scratch_path(folder, "config.json"), "sliding_window_size", "4096");
    assert_int_equal(ls_model_source_open(&source, folder, &log, &error), LS_OK);
    assert_string_equal(said, "");
    ls_model_source_close(source);
}

/* Of a Gemma 1, gelu is tanh's approximation here, and in some versions of transformers. */
CASE_WITH(test_a_doubtful_value_is_told, scratch_setup, scratch_teardown)
{
    static const char *const words[] = {"\"gelu\"", "\"gelu_pytorch_tanh\""};
    const char *folder = folder_make(*state, "g", &(struct folder_of){.golden = "gemma_tiny"});
    for (int i = 0; i < 2; i++) {
        char said[512] = "";
        struct ls_log log = {.level_max = LS_LOG_WARNING, .write = on_log, .user = said};
        struct ls_error error = {0};
        struct ls_model_source *source;
        struct ls_config config;
        json_edit(scratch_path(folder, "config.json"), "hidden_act", words[i]);
        assert_ok(ls_model_source_open(&source, folder, &log, &error), error);
        assert_ok(ls_model_source_alone(source, NULL, 0, NULL, &config, &error), error);
        assert_int_equal(config.model.act, LS_ACT_GEGLU);
        ls_model_source_close(source);
        if (i == 0)
            assert_text_contains(said, "hidden_act = \"gelu\": versions of transformers differ in "
                                       "what that is; here it is gelu_pytorch_tanh: expected that "
                                       "word");
        else
            assert_string_equal(said, "");
    }
}

/* ---- nothing half-written -------------------------------------------------------------------- */

CASE_WITH(test_every_call_that_fails, scratch_setup, scratch_teardown)
{
    char folder[4096], run[4096];
    snprintf(folder, sizeof folder, "%s",
             folder_make(*state, "f", &(struct folder_of){.golden = "gpt2_tiny"}));
    snprintf(run, sizeof run, "%s", scratch_path(*state, "run"));
    int failures = 0, status = LS_ENOSPC;
    for (int n = 0; status; n++) {
        struct countdown countdown = {.left = n};
        struct ls_fault fault = {countdown_before, &countdown};
        struct ls_error error = {0};
        struct ls_import_report report;
        const struct ls_import what = {.from = folder, .run = run, .fault = &fault};
        status = ls_import(&what, &report, &error);
        failures += status != LS_OK;
        if (status && status != LS_ENOSPC)
            fail_msg("call %d: %d: %s", n, status, error.text);
        if (status && access(run, F_OK) == 0) {
            /* All but the last sync was done: it is complete. */
            assert_int_equal(access(scratch_path(run, "config.yaml"), F_OK), 0);
            break;
        }
        if (status)
            assert_int_equal(scratch_count(*state), 1); /* no temporary stays */
    }
    assert_true(failures > 10);
}

SUITE_MAIN(NULL, NULL)
