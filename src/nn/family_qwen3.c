/* Qwen3 (Qwen Team 2025), dense: Llama with an RMSNorm of each head of q and k, whose width is
 * apart from channels / heads. */
#include "nn/family_llama.h"

static const struct parameter block_parameters[] = {
    LLAMA_MATRICES,
    PARAMETER_NORM("norm1", "norm_1.weight", SIZE_CHANNELS, CUT_NONE, "input_layernorm.weight"),
    PARAMETER_NORM("q norm", "attn.q_norm.weight", SIZE_HEAD, CUT_NONE, "self_attn.q_norm.weight"),
    PARAMETER_NORM("k norm", "attn.k_norm.weight", SIZE_HEAD, CUT_NONE, "self_attn.k_norm.weight"),
    PARAMETER_NORM("norm2", "norm_2.weight", SIZE_CHANNELS, CUT_NONE,
                   "post_attention_layernorm.weight"),
    {0},
};

enum { X, A1, RSTD1, QKV, QKN, RSTDN, O, LSE, Y1, H1, A2, RSTD2, F, G, Y2, OUT };

static const struct program block = {
    LLAMA_BLOCK_NAMES,
    .values = {LLAMA_VALUES,
               LLAMA_PRENORM_VALUES, [QKN] = LLAMA_ALL("qkn", SIZE_QKV, AGAIN_SELECTIVE),
               [RSTDN] = {"rstdn", ROWS_ALL, SIZE_QK_HEADS, AGAIN_FULL, true}},
    .steps = {LLAMA_RMSNORM(step_rmsnorm, X, 0, A1, RSTD1, X, "norm1"),
              LLAMA_PROJECT(A1),
              {&step_headnorm, {QKV}, {QKN, RSTDN}, "q norm", "k norm", NULL},
              LLAMA_ATTEND(QKN),
              LLAMA_RMSNORM(step_rmsnorm, X, Y1, A2, RSTD2, H1, "norm2"),
              LLAMA_FEED(A2),
              LLAMA_ADD(H1, Y2, OUT)},
    .parameters = block_parameters};

/* The published config.json files. The tiny one is ours, for tests. */
#define QWEN3                                                                                      \
    "vocab=151936 context=40960 rope_theta=1000000 norm_epsilon=1e-6 kv_heads=8 head_dim=128 "
static const struct ls_preset presets[] = {
    {"qwen3-0.6b", QWEN3 "layers=28 channels=1024 heads=16 ffn=3072 tied=true"},
    {"qwen3-1.7b", QWEN3 "layers=28 channels=2048 heads=16 ffn=6144 tied=true"},
    {"qwen3-4b", QWEN3 "layers=36 channels=2560 heads=32 ffn=9728 tied=true"},
    {"qwen3-8b", QWEN3 "layers=36 channels=4096 heads=32 ffn=12288"},
    {"qwen3-14b", QWEN3 "layers=40 channels=5120 heads=40 ffn=17408"},
    {"qwen3-32b", QWEN3 "layers=64 channels=5120 heads=64 ffn=25600"},
    {"qwen3-tiny", "layers=2 channels=64 heads=4 kv_heads=2 head_dim=32 context=64"},
    {0},
};

static const struct ls_hf_key hf_keys[] = {
    LLAMA_HF_KEYS,
    {"num_key_value_heads", "kv_heads", "32", "null=0 *"},
    {"head_dim", "head_dim", "128", NULL},
    /* None without use_sliding_window. */
    {"sliding_window|max_window_layers", NULL, "", NULL},
    {0},
};
static const struct ls_gguf_name gguf_names[] = {
    {"self_attn.q_norm", "attn_q_norm"}, {"self_attn.k_norm", "attn_k_norm"}, {0}};

const struct family family_qwen3 = {
    .about = {.what = "Llama with an RMSNorm of each head of q and k",
              LLAMA_SWIGLU,
              .presets = presets,
              .hf = {LLAMA_HF("qwen3", "Qwen3ForCausalLM")},
              .gguf = {.architecture = "qwen3", .names = gguf_names}},
    LLAMA_LAYERS(block),
};
