/* Llama (Touvron et al. 2023; Dubey et al. 2024): rotary positions, RMSNorm, SwiGLU, grouped-query
 * attention, no biases by default. */
#include "program.h"

static const struct parameter embedding_parameters[] = {
    {"table", "wte.weight", SIZE_VOCABULARY, SIZE_CHANNELS, CUT_ROWS, START_NORMAL, 0,
     "model.embed_tokens.weight"},
    {0},
};

/* Matrices first. */
static const struct parameter block_parameters[] = {
    {"qkv", "attn.q.weight", SIZE_QUERY, SIZE_CHANNELS, CUT_ROWS, START_NORMAL, 0,
     "self_attn.q_proj.weight"},
    {"qkv", "attn.k.weight", SIZE_KV, SIZE_CHANNELS, CUT_KV, START_NORMAL, 0,
     "self_attn.k_proj.weight"},
    {"qkv", "attn.v.weight", SIZE_KV, SIZE_CHANNELS, CUT_KV, START_NORMAL, 0,
     "self_attn.v_proj.weight"},
    {"proj", "attn.proj.weight", SIZE_CHANNELS, SIZE_QUERY, CUT_COLUMNS, START_NORMAL, 0,
     "self_attn.o_proj.weight"},
    {"up", "mlp.gate.weight", SIZE_FFN, SIZE_CHANNELS, CUT_ROWS, START_NORMAL, WHEN_GATE,
     "mlp.gate_proj.weight"},
    {"up", "mlp.up.weight", SIZE_FFN, SIZE_CHANNELS, CUT_ROWS, START_NORMAL, 0,
     "mlp.up_proj.weight"},
    {"down", "mlp.down.weight", SIZE_CHANNELS, SIZE_FFN, CUT_COLUMNS, START_NORMAL, 0,
     "mlp.down_proj.weight"},
    {"norm1", "norm_1.weight", SIZE_ONE, SIZE_CHANNELS, CUT_NONE, START_ONE, 0,
     "input_layernorm.weight"},
    {"qkv bias", "attn.q.bias", SIZE_ONE, SIZE_QUERY, CUT_COLUMNS, START_ZERO, WHEN_BIAS,
     "self_attn.q_proj.bias"},
    {"qkv bias", "attn.k.bias", SIZE_ONE, SIZE_KV, CUT_KV, START_ZERO, WHEN_BIAS,
     "self_attn.k_proj.bias"},
    {"qkv bias", "attn.v.bias", SIZE_ONE, SIZE_KV, CUT_KV, START_ZERO, WHEN_BIAS,
     "self_attn.v_proj.bias"},
    {"proj bias", "attn.proj.bias", SIZE_ONE, SIZE_CHANNELS, CUT_NONE, START_ZERO, WHEN_BIAS,
     "self_attn.o_proj.bias"},
    {"up bias", "mlp.gate.bias", SIZE_ONE, SIZE_FFN, CUT_COLUMNS, START_ZERO, WHEN_BIAS | WHEN_GATE,
     "mlp.gate_proj.bias"},
    {"up bias", "mlp.up.bias", SIZE_ONE, SIZE_FFN, CUT_COLUMNS, START_ZERO, WHEN_BIAS,
     "mlp.up_proj.bias"},
    {"down bias", "mlp.down.bias", SIZE_ONE, SIZE_CHANNELS, CUT_NONE, START_ZERO, WHEN_BIAS,
     "mlp.down_proj.bias"},
    {"norm2", "norm_2.weight", SIZE_ONE, SIZE_CHANNELS, CUT_NONE, START_ONE, 0,
     "post_attention_layernorm.weight"},
    {0},
};

/* The head's matrix is the embedding table where the two are tied. */
static const struct parameter head_parameters[] = {
    {"table", "head.weight", SIZE_VOCABULARY, SIZE_CHANNELS, CUT_ROWS, START_NORMAL, 0,
     "lm_head.weight"},
    {"norm", "norm_f.weight", SIZE_ONE, SIZE_CHANNELS, CUT_NONE, START_ONE, 0, "model.norm.weight"},
    {0},
};

enum { EMBEDDING_IDS, EMBEDDING_OUT };
enum { X, A1, RSTD1, QKV, O, LSE, Y1, H1, A2, RSTD2, F, G, Y2, OUT };
enum { HEAD_X, HEAD_A, HEAD_RSTD };

/* Llama 3.2 (1B, 3B) and 3.1 (8B, 70B, 405B): Meta's published config.json files. The tiny one is
 * ours, for tests. */
#define LLAMA3 "vocab=128256 context=131072 rope_theta=500000 rope_original_context=8192 "
static const struct ls_preset presets[] = {
    {"llama-1b",
     LLAMA3 "layers=16 channels=2048 heads=32 kv_heads=8 ffn=8192 rope_factor=32 tied=true"},
    {"llama-3b",
     LLAMA3 "layers=28 channels=3072 heads=24 kv_heads=8 ffn=8192 rope_factor=32 tied=true"},
    {"llama-8b", LLAMA3 "layers=32 channels=4096 heads=32 kv_heads=8 ffn=14336 rope_factor=8"},
    {"llama-70b", LLAMA3 "layers=80 channels=8192 heads=64 kv_heads=8 ffn=28672 rope_factor=8"},
    {"llama-405b", LLAMA3 "layers=126 channels=16384 heads=128 kv_heads=8 ffn=53248 rope_factor=8"},
    {"llama-tiny", "layers=2 channels=64 heads=4 kv_heads=2 context=64"},
    {0},
};

static const struct ls_hf_key hf_keys[] = {
    {"hidden_act", "activation", "\"silu\"", "silu=swiglu"},
    {"rms_norm_eps", "norm_epsilon", "1e-6", NULL},
    {"attention_bias", NULL, "false", NULL},
    {"mlp_bias", NULL, "false", NULL},
    {"pretraining_tp", NULL, "", NULL}, /* another way to the same products */
    {0},
};

const struct family family_llama = {
    .about = {.act = LS_ACT_SWIGLU,
              .acts = 1u << LS_ACT_SWIGLU,
              .ffn = {.times = 8, .over = 3, .multiple = 256},
              .presets = presets,
              .hf = {"llama", "LlamaForCausalLM", "model.", hf_keys},
              .gguf = {.architecture = "llama", .interleaved = true}},
    .embedding =
        {.prefix = "",
         .elsewhere_prefix = "",
         .values = {[EMBEDDING_IDS] = {"ids", ROWS_ALL, SIZE_ONE, AGAIN_FULL, false},
                    [EMBEDDING_OUT] = {"out", ROWS_STREAM, SIZE_CHANNELS, AGAIN_FULL, false}},
         .steps =
             {{&step_embedding, {EMBEDDING_IDS}, {EMBEDDING_OUT}, "table", .dropout = "embedding"}},
         .parameters = embedding_parameters},
    .block = {.prefix = "h.%ld.",
              .elsewhere_prefix = "model.layers.%ld.",
              .values = {[X] = {"x", ROWS_STREAM, SIZE_CHANNELS, AGAIN_FULL, false},
                         [A1] = {"a1", ROWS_STREAM, SIZE_CHANNELS, AGAIN_SELECTIVE, false},
                         [RSTD1] = {"rstd1", ROWS_STREAM, SIZE_ONE, .f32 = true},
                         [QKV] = {"qkv", ROWS_ALL, SIZE_QKV, AGAIN_FULL, false},
                         [O] = {"o", ROWS_ALL, SIZE_QUERY, AGAIN_SELECTIVE, false},
                         [LSE] = {"lse", ROWS_ALL, SIZE_HEADS, AGAIN_SELECTIVE, .f32 = true},
                         [Y1] = {"y1", ROWS_STREAM, SIZE_CHANNELS, AGAIN_FULL, false},
                         [H1] = {"h1", ROWS_STREAM, SIZE_CHANNELS, AGAIN_FULL, false},
                         [A2] = {"a2", ROWS_STREAM, SIZE_CHANNELS, AGAIN_SELECTIVE, false},
                         [RSTD2] = {"rstd2", ROWS_STREAM, SIZE_ONE, .f32 = true},
                         [F] = {"f", ROWS_ALL, SIZE_UP, AGAIN_FULL, false},
                         [G] = {"g", ROWS_ALL, SIZE_FFN, AGAIN_SELECTIVE, false},
                         [Y2] = {"y2", ROWS_STREAM, SIZE_CHANNELS, AGAIN_FULL, false},
                         [OUT] = {"out", ROWS_STREAM, SIZE_CHANNELS, AGAIN_FULL, false}},
              .steps = {{&step_rmsnorm, {X}, {A1, RSTD1, RSTD1, X}, "norm1", NULL, NULL},
                        {&step_column, {A1}, {QKV}, "qkv", "qkv bias", NULL},
                        {&step_rope, {QKV}, {QKV}, NULL, NULL, NULL},
                        {&step_attention, {QKV}, {O, LSE}, "qkv", NULL, NULL},
                        {&step_row, {O}, {Y1}, "proj", "proj bias", "attention"},
                        {&step_rmsnorm, {X, Y1}, {A2, RSTD2, RSTD2, H1}, "norm2", NULL, NULL},
                        {&step_column, {A2}, {F}, "up", "up bias", NULL},
                        {&step_activation, {F}, {G}, NULL, NULL, NULL},
                        {&step_row, {G}, {Y2}, "down", "down bias", "mlp"},
                        {&step_add, {H1, Y2}, {OUT}, NULL, NULL, NULL}},
              .parameters = block_parameters},
    .head =
        {.prefix = "",
         .elsewhere_prefix = "",
         .values = {[HEAD_X] = {"x", ROWS_STREAM, SIZE_CHANNELS, AGAIN_FULL, false},
                    [HEAD_A] = {"a", ROWS_STREAM, SIZE_CHANNELS, AGAIN_FULL, false},
                    [HEAD_RSTD] = {"rstd", ROWS_STREAM, SIZE_ONE, .f32 = true}},
         .steps =
             {{&step_rmsnorm, {HEAD_X}, {HEAD_A, HEAD_RSTD, HEAD_RSTD, HEAD_X}, "norm", NULL, NULL},
              {&step_head, {HEAD_A}, {0}, "table", NULL, NULL}},
         .parameters = head_parameters},
};
