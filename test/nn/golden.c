#include "golden.h"
#include "held.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ls_model_config golden_gpt2_config(void)
{
    return (struct ls_model_config){.arch = LS_GPT2,
                                    .vocab = 61,
                                    .vocab_padded = 64,
                                    .layers = 2,
                                    .channels = 32,
                                    .heads = 4,
                                    .kv_heads = 4,
                                    .head_dim = 8,
                                    .ffn = 128,
                                    .context = 16,
                                    .tied = true,
                                    .bias = true,
                                    .act = LS_ACT_GELU_TANH,
                                    .norm_epsilon = 1e-5f,
                                    .init_std = 0.02f};
}

struct ls_model_config golden_llama_config(void)
{
    return (struct ls_model_config){.arch = LS_LLAMA,
                                    .vocab = 64,
                                    .vocab_padded = 64,
                                    .layers = 2,
                                    .channels = 32,
                                    .heads = 4,
                                    .kv_heads = 2,
                                    .head_dim = 8,
                                    .ffn = 48,
                                    .context = 1024,
                                    .act = LS_ACT_SWIGLU,
                                    .norm_epsilon = 1e-5f,
                                    .rope_theta = 10000,
                                    .init_std = 0.02f};
}

struct ls_model_config golden_llama3_config(void)
{
    struct ls_model_config config = golden_llama_config();
    config.ffn = 64;
    config.tied = true;
    config.rope_scaling = (struct ls_rope_scaling){
        .factor = 8, .low_freq_factor = 1, .high_freq_factor = 4, .original_context = 128};
    return config;
}

struct ls_safetensors *golden_open(const char *name)
{
    const char *root = getenv("LS_TEST_DIR");
    char path[1024];
    snprintf(path, sizeof path, "%s/golden/%s.safetensors", root ? root : "test", name);
    struct ls_safetensors *file;
    struct ls_error error = {0};
    if (ls_safetensors_open(&file, path, &error)) {
        fprintf(stderr, "%s\n", error.text);
        exit(1);
    }
    return file;
}

const void *golden_data(const struct ls_safetensors *file, const char *name)
{
    const struct ls_tensor_view *view = ls_safetensors_find(file, name);
    if (!view) {
        fprintf(stderr, "the golden file has no tensor %s\n", name);
        exit(1);
    }
    return view->data;
}

/* Where one of our parameters lies in a Hugging Face model. */
struct place {
    const char *ours, *gpt2, *llama;
    int part; /* of GPT-2's stacked q|k|v: 0, 1, 2 */
};

static const struct place block_places[] = {
    {"ln_1.weight", "ln_1.weight", NULL, 0},
    {"ln_1.bias", "ln_1.bias", NULL, 0},
    {"norm_1.weight", NULL, "input_layernorm.weight", 0},
    {"attn.q.weight", "attn.c_attn.weight", "self_attn.q_proj.weight", 0},
    {"attn.k.weight", "attn.c_attn.weight", "self_attn.k_proj.weight", 1},
    {"attn.v.weight", "attn.c_attn.weight", "self_attn.v_proj.weight", 2},
    {"attn.q.bias", "attn.c_attn.bias", NULL, 0},
    {"attn.k.bias", "attn.c_attn.bias", NULL, 1},
    {"attn.v.bias", "attn.c_attn.bias", NULL, 2},
    {"attn.proj.weight", "attn.c_proj.weight", "self_attn.o_proj.weight", 0},
    {"attn.proj.bias", "attn.c_proj.bias", NULL, 0},
    {"ln_2.weight", "ln_2.weight", NULL, 0},
    {"ln_2.bias", "ln_2.bias", NULL, 0},
    {"norm_2.weight", NULL, "post_attention_layernorm.weight", 0},
    {"mlp.gate.weight", NULL, "mlp.gate_proj.weight", 0},
    {"mlp.up.weight", "mlp.c_fc.weight", "mlp.up_proj.weight", 0},
    {"mlp.up.bias", "mlp.c_fc.bias", NULL, 0},
    {"mlp.down.weight", "mlp.c_proj.weight", "mlp.down_proj.weight", 0},
    {"mlp.down.bias", "mlp.c_proj.bias", NULL, 0},
};
static const struct place model_places[] = {
    {"wte.weight", "wte.weight", "model.embed_tokens.weight", 0},
    {"wpe.weight", "wpe.weight", NULL, 0},
    {"ln_f.weight", "ln_f.weight", NULL, 0},
    {"ln_f.bias", "ln_f.bias", NULL, 0},
    {"norm_f.weight", NULL, "model.norm.weight", 0},
    {"head.weight", NULL, "lm_head.weight", 0},
};

static const struct place *place_of(const char *name, bool in_block)
{
    const struct place *places = in_block ? block_places : model_places;
    size_t count =
        in_block ? sizeof block_places / sizeof *places : sizeof model_places / sizeof *places;
    for (size_t i = 0; i < count; i++)
        if (!strcmp(places[i].ours, name))
            return &places[i];
    fprintf(stderr, "no place for parameter %s\n", name);
    exit(1);
}

void golden_gather(const struct ls_safetensors *file, const char *prefix,
                   const struct ls_model_config *config, const struct ls_params *params,
                   bool block_only, float *values)
{
    bool gpt2 = config->arch == LS_GPT2;
    for (int i = 0; i < params->count; i++) {
        const struct ls_param *param = &params->list[i];
        int layer = 0, used = 0;
        bool in_block = sscanf(param->name, "h.%d.%n", &layer, &used) == 1 && used > 0;
        if (block_only && (!in_block || layer > 0))
            continue;
        const struct place *place = place_of(param->name + used, in_block);
        char name[160], where[64] = "";
        if (in_block && !block_only)
            snprintf(where, sizeof where, gpt2 ? "h.%d." : "model.layers.%d.", layer);
        snprintf(name, sizeof name, "%s%s%s", prefix, where, gpt2 ? place->gpt2 : place->llama);
        const float *data = golden_data(file, name);
        bool conv1d = gpt2 && in_block && param->rows > 1; /* stored [in, out] */
        bool stacked =
            gpt2 && strstr(place->ours, "attn.") == place->ours && strstr(place->gpt2, "c_attn");
        int64_t out = param->rows > 1 ? param->rows : param->cols;
        int64_t stored_out = stacked ? 3 * out : out, first = stacked ? place->part * out : 0;
        int64_t rows = strcmp(param->name, "wte.weight") && strcmp(param->name, "head.weight")
                           ? param->rows
                           : config->vocab;
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < param->cols; c++)
                values[held_place(params, param) + r * param->cols + c] =
                    conv1d             ? data[c * stored_out + first + r]
                    : param->rows == 1 ? data[first + c]
                                       : data[r * param->cols + c];
    }
}

double golden_distance(const float *a, const float *b, int64_t count)
{
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < count; i++) {
        difference += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        norm += (double)b[i] * b[i];
    }
    return norm > 0 ? sqrt(difference / norm) : sqrt(difference);
}
