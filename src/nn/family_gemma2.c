/* Gemma 2 (Gemma Team 2024): a scaled embedding, RMSNorm in front of and behind attention and mlp
 * by weights kept as their distance from one, GeGLU, soft caps of scores and logits, and a window
 * in every other block. */
#include "nn/family_gemma.h"

static const struct parameter block_parameters[] = {
    LLAMA_MATRICES,
    GEMMA_BEHIND_PARAMETERS,
    {0},
};

enum { X, A1, RSTD1, QKV, GEMMA_BEHIND_ENUMERATORS };

static const struct program block = {
    LLAMA_BLOCK_NAMES, .values = {LLAMA_VALUES, LLAMA_PRENORM_VALUES, GEMMA_BEHIND_VALUES},
    .steps = {LLAMA_RMSNORM(step_rmsnorm_plus_one, X, 0, A1, RSTD1, X, "norm1"), LLAMA_PROJECT(A1),
              LLAMA_ATTEND(QKV), GEMMA_BEHIND_STEPS},
    .parameters = block_parameters};

/* The published config.json files. The tiny one is ours, for tests. */
#define CAPS   "attention_softcap=50 logit_softcap=30 "
#define GEMMA2 CAPS "vocab=256000 context=8192 window=4096 norm_epsilon=1e-6 "
static const struct ls_preset presets[] = {
    {"gemma2-2b", GEMMA2 "layers=26 channels=2304 heads=8 kv_heads=4 head_dim=256 ffn=9216 "
                         "query_scale=256"},
    {"gemma2-9b", GEMMA2 "layers=42 channels=3584 heads=16 kv_heads=8 head_dim=256 ffn=14336 "
                         "query_scale=256"},
    {"gemma2-27b", GEMMA2 "layers=46 channels=4608 heads=32 kv_heads=16 head_dim=128 ffn=36864 "
                          "query_scale=144"},
    {"gemma2-tiny",
     CAPS "layers=2 channels=64 heads=4 kv_heads=2 head_dim=32 context=64 window=24"},
    {0},
};

static const struct ls_hf_key hf_keys[] = {
    {"hidden_activation", "activation", "\"gelu_pytorch_tanh\"", "gelu_pytorch_tanh=geglu"},
    {"hidden_act", NULL, "", NULL}, /* an old name, which has no effect */
    GEMMA_BEHIND_HF_KEYS,
    {"attn_logit_softcapping", "attention_softcap", "50.0", "null=0 *"},
    {"final_logit_softcapping", "logit_softcap", "30.0", "null=0 *"},
    LLAMA_HF_LAYER_TYPES,
    {0},
};
static const struct ls_gguf_name gguf_names[] = {GEMMA_BEHIND_GGUF_NAMES, {0}};

static const struct ls_gguf_key gguf_keys[] = {
    {"attention.sliding_window", "window"},
    {"attn_logit_softcapping", "attention_softcap"},
    {"final_logit_softcapping", "logit_softcap"},
    {0},
};

const struct family family_gemma2 = {
    .about = {.what = "scaled embedding, norms in front and behind, GeGLU, soft caps, windows",
              GEMMA_GEGLU,
              .window_layers = LS_LAYERS_EVEN,
              .ffn = {.times = 4, .over = 1, .multiple = 1},
              .presets = presets,
              .hf = {LLAMA_HF("gemma2", "Gemma2ForCausalLM")},
              .gguf = {.architecture = "gemma2",
                       .norm_plus_one = true,
                       .tied = true,
                       .layers_by_width = 46,
                       .names = gguf_names,
                       .keys = gguf_keys}},
    .keys = "window|window_layers|attention_softcap|logit_softcap|query_scale",
    .embedding = &gemma_embedding,
    .block = &block,
    .head = &gemma_head,
};
