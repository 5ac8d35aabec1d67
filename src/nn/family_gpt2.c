/* GPT-2 (Radford et al. 2019): learned positions, LayerNorm, GELU, biases. */
#include "nn/family_llama.h"

static const struct parameter embedding_parameters[] = {
    PARAMETER_MATRIX("table", "wte.weight", SIZE_VOCABULARY, SIZE_CHANNELS, CUT_ROWS, "wte.weight"),
    PARAMETER_MATRIX("position", "wpe.weight", SIZE_CONTEXT, SIZE_CHANNELS, CUT_NONE, "wpe.weight"),
    {0},
};

/* Matrices first. */
static const struct parameter block_parameters[] = {
    PARAMETER_MATRIX("qkv", "attn.q.weight", SIZE_QUERY, SIZE_CHANNELS, CUT_ROWS,
                     "attn.c_attn.weight"),
    PARAMETER_MATRIX("qkv", "attn.k.weight", SIZE_KV, SIZE_CHANNELS, CUT_KV, "attn.c_attn.weight"),
    PARAMETER_MATRIX("qkv", "attn.v.weight", SIZE_KV, SIZE_CHANNELS, CUT_KV, "attn.c_attn.weight"),
    {"proj", "attn.proj.weight", SIZE_CHANNELS, SIZE_QUERY, CUT_COLUMNS, START_RESIDUAL,
     WHEN_ALWAYS, "attn.c_proj.weight"},
    PARAMETER_MATRIX("up", "mlp.up.weight", SIZE_FFN, SIZE_CHANNELS, CUT_ROWS, "mlp.c_fc.weight"),
    {"down", "mlp.down.weight", SIZE_CHANNELS, SIZE_FFN, CUT_COLUMNS, START_RESIDUAL, WHEN_ALWAYS,
     "mlp.c_proj.weight"},
    PARAMETER_NORM("norm1", "ln_1.weight", SIZE_CHANNELS, CUT_NONE, "ln_1.weight"),
    PARAMETER_BIAS("norm1 bias", "ln_1.bias", SIZE_CHANNELS, CUT_NONE, "ln_1.bias"),
    PARAMETER_BIAS("qkv bias", "attn.q.bias", SIZE_QUERY, CUT_COLUMNS, "attn.c_attn.bias"),
    PARAMETER_BIAS("qkv bias", "attn.k.bias", SIZE_KV, CUT_KV, "attn.c_attn.bias"),
    PARAMETER_BIAS("qkv bias", "attn.v.bias", SIZE_KV, CUT_KV, "attn.c_attn.bias"),
    PARAMETER_BIAS("proj bias", "attn.proj.bias", SIZE_CHANNELS, CUT_NONE, "attn.c_proj.bias"),
    PARAMETER_BIAS("up bias", "mlp.up.bias", SIZE_FFN, CUT_COLUMNS, "mlp.c_fc.bias"),
    PARAMETER_BIAS("down bias", "mlp.down.bias", SIZE_CHANNELS, CUT_NONE, "mlp.c_proj.bias"),
    PARAMETER_NORM("norm2", "ln_2.weight", SIZE_CHANNELS, CUT_NONE, "ln_2.weight"),
    PARAMETER_BIAS("norm2 bias", "ln_2.bias", SIZE_CHANNELS, CUT_NONE, "ln_2.bias"),
    {0},
};

/* The head's matrix is the embedding table where the two are tied. */
static const struct parameter head_parameters[] = {
    PARAMETER_MATRIX("table", "head.weight", SIZE_VOCABULARY, SIZE_CHANNELS, CUT_ROWS,
                     "lm_head.weight"),
    PARAMETER_NORM("norm", "ln_f.weight", SIZE_CHANNELS, CUT_NONE, "ln_f.weight"),
    PARAMETER_BIAS("norm bias", "ln_f.bias", SIZE_CHANNELS, CUT_NONE, "ln_f.bias"),
    {0},
};

enum { EMBEDDING_IDS, EMBEDDING_OUT };
enum { X, A1, MEAN1, RSTD1, QKV, O, LSE, Y1, H1, A2, MEAN2, RSTD2, F, G, Y2, OUT };
enum { HEAD_X, HEAD_A, HEAD_MEAN, HEAD_RSTD };

static const struct program embedding = {
    LLAMA_NAMES,
    .values = {[EMBEDDING_IDS] = LLAMA_ALL("ids", SIZE_ONE, AGAIN_FULL),
               [EMBEDDING_OUT] = LLAMA_STREAM("out", AGAIN_FULL)},
    .steps =
        {{&step_embedding, {EMBEDDING_IDS}, {EMBEDDING_OUT}, "table", "position", "embedding"}},
    .parameters = embedding_parameters};

static const struct program block = {
    .prefix = "h.%ld.",
    .elsewhere_prefix = "h.%ld.",
    .elsewhere_transposed = true,
    .values = {LLAMA_VALUES,
               LLAMA_PRENORM_VALUES, [MEAN1] = LLAMA_RSTD("mean1"), [MEAN2] = LLAMA_RSTD("mean2")},
    .steps = {{&step_layernorm, {X}, {A1, MEAN1, RSTD1, X}, "norm1", "norm1 bias", NULL},
              {&step_column, {A1}, {QKV}, "qkv", "qkv bias", NULL},
              {&step_attention, {QKV}, {O, LSE}, "qkv", NULL, NULL},
              {&step_row, {O}, {Y1}, "proj", "proj bias", "attention"},
              {&step_layernorm, {X, Y1}, {A2, MEAN2, RSTD2, H1}, "norm2", "norm2 bias", NULL},
              {&step_column, {A2}, {F}, "up", "up bias", NULL},
              {&step_activation, {F}, {G}, NULL, NULL, NULL},
              {&step_row, {G}, {Y2}, "down", "down bias", "mlp"},
              {&step_add, {H1, Y2}, {OUT}, NULL, NULL, NULL}},
    .parameters = block_parameters};

static const struct program head = {LLAMA_NAMES,
                                    .values = {[HEAD_X] = LLAMA_STREAM("x", AGAIN_FULL),
                                               [HEAD_A] = LLAMA_STREAM("a", AGAIN_FULL),
                                               [HEAD_MEAN] = LLAMA_RSTD("mean"),
                                               [HEAD_RSTD] = LLAMA_RSTD("rstd")},
                                    .steps = {{&step_layernorm,
                                               {HEAD_X},
                                               {HEAD_A, HEAD_MEAN, HEAD_RSTD, HEAD_X},
                                               "norm",
                                               "norm bias",
                                               NULL},
                                              {&step_head, {HEAD_A}, {0}, "table", NULL, NULL}},
                                    .parameters = head_parameters};

/* Radford et al.'s; the tiny one is ours, for tests. */
#define PUBLISHED "vocab=50257 context=1024 "
static const struct ls_preset presets[] = {
    {"gpt2-124m", PUBLISHED "layers=12 channels=768 heads=12"},
    {"gpt2-350m", PUBLISHED "layers=24 channels=1024 heads=16"},
    {"gpt2-774m", PUBLISHED "layers=36 channels=1280 heads=20"},
    {"gpt2-1558m", PUBLISHED "layers=48 channels=1600 heads=25"},
    {"gpt2-tiny", "layers=2 channels=64 heads=4 context=64"},
    {0},
};

static const struct ls_hf_dropout hf_dropouts[] = {
    {"attn_pdrop", false}, {"embd_pdrop", true}, {"resid_pdrop", true}, {0}};
static const struct ls_hf_key hf_keys[] = {
    {"n_layer", "layers", NULL, NULL},
    {"n_embd", "channels", NULL, NULL},
    {"n_head", "heads", NULL, NULL},
    {"n_inner", "ffn", "", NULL},
    {"n_positions", "context", NULL, NULL},
    {"", "kv_heads", "", NULL},
    {"", "head_dim", "", NULL},
    {"num_hidden_layers", NULL, "null", NULL}, /* other names, which transformers prefers */
    {"hidden_size", NULL, "null", NULL},
    {"num_attention_heads", NULL, "null", NULL},
    {"max_position_embeddings", NULL, "null", NULL},
    {"n_ctx", NULL, "", NULL}, /* n_positions, by its old name */
    {"activation_function", "activation", "\"gelu_new\"",
     "gelu_new=gelu_tanh gelu_pytorch_tanh=gelu_tanh gelu=gelu_erf"},
    {"layer_norm_epsilon", "norm_epsilon", "1e-5", NULL},
    {"scale_attn_weights", NULL, "true", NULL},
    {"scale_attn_by_inverse_layer_idx", NULL, "false", NULL},
    {"reorder_and_upcast_attn", NULL, "false", NULL},
    {"add_cross_attention", NULL, "false", NULL},
    /* Of other heads. */
    {"summary_activation|summary_first_dropout|summary_proj_to_labels|summary_type|"
     "summary_use_proj",
     NULL, "", NULL},
    {0},
};
static const struct ls_gguf_name gguf_names[] = {
    {"wpe", "position_embd"},       {"ln_1", "attn_norm"},
    {"attn.c_attn", "attn_qkv"},    {"ln_2", "ffn_norm"},
    {"attn.c_proj", "attn_output"}, {"mlp.c_fc", "ffn_up"},
    {"ln_f", "output_norm"},        {"mlp.c_proj", "ffn_down"},
    {"wte", "token_embd"},          {0},
};

const struct family family_gpt2 = {
    .about = {.what = "learned positions, LayerNorm, GELU",
              .tied = true,
              .bias = true,
              .act = LS_ACT_GELU_TANH,
              .acts = 1u << LS_ACT_GELU_TANH | 1u << LS_ACT_GELU_ERF,
              .ffn = {.times = 4, .over = 1, .multiple = 1},
              .presets = presets,
              .hf = {.model_type = "gpt2",
                     .architecture = "GPT2LMHeadModel",
                     .prefix = "transformer.",
                     .keys = hf_keys,
                     .dropouts = hf_dropouts},
              .gguf = {.architecture = "gpt2", .names = gguf_names}},
    .embedding = &embedding,
    .block = &block,
    .head = &head,
};
