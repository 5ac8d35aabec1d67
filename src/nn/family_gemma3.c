/* Gemma 3 (Gemma Team 2025), text alone: Gemma 2 with an RMSNorm of each head of q and k in the
 * place of soft caps. All blocks but every sixth have a window, and positions that turn by a base
 * of their own. */
#include "nn/family_gemma.h"

static const struct parameter block_parameters[] = {
    LLAMA_MATRICES,
    GEMMA_NORM_OF(SIZE_HEAD, "q norm", "attn.q_norm.weight", "self_attn.q_norm.weight"),
    GEMMA_NORM_OF(SIZE_HEAD, "k norm", "attn.k_norm.weight", "self_attn.k_norm.weight"),
    GEMMA_BEHIND_PARAMETERS,
    {0},
};

enum { X, A1, RSTD1, QKV, QKN, RSTDN, GEMMA_BEHIND_ENUMERATORS };

static const struct program block = {
    LLAMA_BLOCK_NAMES,
    .values = {LLAMA_VALUES, LLAMA_PRENORM_VALUES,
               GEMMA_BEHIND_VALUES, [QKN] = LLAMA_ALL("qkn", SIZE_QKV, AGAIN_SELECTIVE),
               [RSTDN] = {"rstdn", ROWS_ALL, SIZE_QK_HEADS, AGAIN_FULL, true}},
    .steps = {LLAMA_RMSNORM(step_rmsnorm_plus_one, X, 0, A1, RSTD1, X, "norm1"),
              LLAMA_PROJECT(A1),
              {&step_headnorm_plus_one, {QKV}, {QKN, RSTDN}, "q norm", "k norm", NULL},
              LLAMA_ATTEND(QKN),
              GEMMA_BEHIND_STEPS},
    .parameters = block_parameters};

/* The published config.json files; from 4b on those of the part that reads text. The tiny one is
 * ours, for tests. */
#define GEMMA3 "norm_epsilon=1e-6 head_dim=256 rope_theta=1000000 "
#define SMALL  GEMMA3 "vocab=262144 context=32768 window=512 heads=4 kv_heads=1 query_scale=256 "
#define LARGE  GEMMA3 "vocab=262208 context=131072 window=1024 rope_scaling=linear rope_factor=8 "
static const struct ls_preset presets[] = {
    {"gemma3-270m", SMALL "layers=18 channels=640 ffn=2048"},
    {"gemma3-1b", SMALL "layers=26 channels=1152 ffn=6912"},
    {"gemma3-4b", LARGE "layers=34 channels=2560 heads=8 kv_heads=4 ffn=10240 query_scale=256"},
    {"gemma3-12b", LARGE "layers=48 channels=3840 heads=16 kv_heads=8 ffn=15360 query_scale=256"},
    {"gemma3-27b", LARGE "layers=62 channels=5376 heads=32 kv_heads=16 ffn=21504 head_dim=128 "
                         "query_scale=168"},
    {"gemma3-tiny", "layers=6 channels=64 heads=4 kv_heads=1 head_dim=32 context=64 window=24"},
    {0},
};

static const struct ls_hf_key hf_keys[] = {
    {"hidden_activation", "activation", "\"gelu_pytorch_tanh\"", "gelu_pytorch_tanh=geglu"},
    GEMMA_BEHIND_HF_KEYS,
    /* Which blocks have the window; old files have the period alone. */
    {"sliding_window_pattern", "window_layers", "", LLAMA_PERIODS},
    {"_sliding_window_pattern", NULL, "", NULL},
    LLAMA_HF_LAYER_TYPES,
    {0},
};
static const struct ls_gguf_name gguf_names[] = {
    GEMMA_BEHIND_GGUF_NAMES,
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {0},
};

static const struct ls_gguf_key gguf_keys[] = {
    {"attention.sliding_window", "window"},
    {"rope.freq_base_swa", "rope_local_theta"},
    {0},
};

const struct family family_gemma3 = {
    .about = {.what = "Gemma 2 with an RMSNorm of each head of q and k, a window and its own "
                      "positions in five blocks of six",
              GEMMA_GEGLU,
              .window_layers = LS_LAYERS_FIVE_OF_SIX,
              .ffn = {.times = 4, .over = 1, .multiple = 1},
              .presets = presets,
              .hf = {LLAMA_HF("gemma3_text", "Gemma3ForCausalLM"), .rope_theta = "1000000",
                     .rope_local_theta = "rope_local_base_freq"},
              .gguf = {.architecture = "gemma3",
                       .norm_plus_one = true,
                       .tied = true,
                       .layers_by_width = 62,
                       .names = gguf_names,
                       .keys = gguf_keys}},
    .keys = "window|window_layers|query_scale|rope_local_theta",
    .embedding = &gemma_embedding,
    .block = &block,
    .head = &gemma_head,
};
