/* OLMo 2 (Team OLMo 2024): Llama with the norms behind attention and mlp, none in front of them,
 * and an RMSNorm of the whole rows of q and of k. */
#include "nn/family_llama.h"

static const struct parameter block_parameters[] = {
    LLAMA_MATRICES,
    PARAMETER_NORM("q norm", "attn.q_norm.weight", SIZE_QUERY, CUT_COLUMNS,
                   "self_attn.q_norm.weight"),
    PARAMETER_NORM("k norm", "attn.k_norm.weight", SIZE_KV, CUT_KV, "self_attn.k_norm.weight"),
    PARAMETER_NORM("norm1", "norm_1.weight", SIZE_CHANNELS, CUT_NONE,
                   "post_attention_layernorm.weight"),
    PARAMETER_NORM("norm2", "norm_2.weight", SIZE_CHANNELS, CUT_NONE,
                   "post_feedforward_layernorm.weight"),
    {0},
};

enum { X, QKV, QKN, RSTDN, O, LSE, Y1, P1, RSTD1, H1, F, G, Y2, P2, RSTD2, OUT };

const struct program olmo2_block = {
    LLAMA_BLOCK_NAMES,
    .values = {LLAMA_VALUES,
               LLAMA_POSTNORM_VALUES, [QKN] = LLAMA_ALL("qkn", SIZE_QKV, AGAIN_SELECTIVE),
               [RSTDN] = {"rstdn", ROWS_ALL, SIZE_PAIR, AGAIN_FULL, true}},
    .steps = {LLAMA_PROJECT(X),
              {&step_widenorm, {QKV}, {QKN, RSTDN}, "q norm", "k norm", NULL},
              LLAMA_ATTEND(QKN),
              LLAMA_RMSNORM(step_rmsnorm, Y1, 0, P1, RSTD1, Y1, "norm1"),
              LLAMA_ADD(X, P1, H1),
              LLAMA_FEED(H1),
              LLAMA_RMSNORM(step_rmsnorm, Y2, 0, P2, RSTD2, Y2, "norm2"),
              LLAMA_ADD(H1, P2, OUT)},
    .parameters = block_parameters};

/* The published config.json files (0425 1B, 1124 7B and 13B, 0325 32B). The tiny one is ours, for
 * tests. */
#define OLMO2 "vocab=100352 context=4096 rope_theta=500000 norm_epsilon=1e-6 "
static const struct ls_preset presets[] = {
    {"olmo2-1b", OLMO2 "layers=16 channels=2048 heads=16 ffn=8192"},
    {"olmo2-7b", OLMO2 "layers=32 channels=4096 heads=32 ffn=11008"},
    {"olmo2-13b", OLMO2 "layers=40 channels=5120 heads=40 ffn=13824"},
    {"olmo2-32b", OLMO2 "layers=64 channels=5120 heads=40 kv_heads=8 ffn=27648"},
    {"olmo2-tiny", "layers=2 channels=64 heads=4 kv_heads=2 context=64"},
    {0},
};

static const struct ls_hf_key hf_keys[] = {
    {"hidden_act", "activation", "\"silu\"", "silu=swiglu"},
    {"rms_norm_eps", "norm_epsilon", "1e-5", NULL},
    {0},
};
const struct ls_gguf_name olmo2_gguf_names[] = {
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"post_attention_layernorm", "post_attention_norm"},
    {"post_feedforward_layernorm", "post_ffw_norm"},
    {0},
};

const struct family family_olmo2 = {
    .about = {.what = "Llama with norms behind attention and mlp, and of q and k",
              LLAMA_SWIGLU,
              .presets = presets,
              .hf = {LLAMA_HF("olmo2", "Olmo2ForCausalLM")},
              .gguf = {.architecture = "olmo2", .head = true, .names = olmo2_gguf_names}},
    LLAMA_LAYERS(olmo2_block),
};
