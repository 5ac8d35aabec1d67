/* Gemma (Gemma Team 2024): Llama with a scaled embedding, norms by weights kept as their distance
 * from one, GeGLU, and heads whose width is a key of its own. */
#include "nn/family_gemma.h"

static const struct parameter block_parameters[] = {
    LLAMA_MATRICES,
    GEMMA_NORM("norm1", "norm_1.weight", "input_layernorm.weight"),
    GEMMA_NORM("norm2", "norm_2.weight", "post_attention_layernorm.weight"),
    {0},
};

static const struct parameter head_parameters[] = {
    PARAMETER_MATRIX("table", "head.weight", SIZE_VOCABULARY, SIZE_CHANNELS, CUT_ROWS,
                     "lm_head.weight"),
    GEMMA_NORM("norm", "norm_f.weight", "model.norm.weight"),
    {0},
};

enum { EMBEDDING_IDS, EMBEDDING_ROWS, EMBEDDING_OUT };
enum { LLAMA_PRENORM_ENUMERATORS };
enum { HEAD_X, HEAD_A, HEAD_RSTD };

const struct program gemma_embedding = {
    LLAMA_NAMES,
    .values = {[EMBEDDING_IDS] = LLAMA_ALL("ids", SIZE_ONE, AGAIN_FULL),
               [EMBEDDING_ROWS] = LLAMA_STREAM("rows", AGAIN_FULL),
               [EMBEDDING_OUT] = LLAMA_STREAM("out", AGAIN_FULL)},
    .steps = {{&step_embedding, {EMBEDDING_IDS}, {EMBEDDING_ROWS}, "table", .dropout = "embedding"},
              {&step_scale, {EMBEDDING_ROWS}, {EMBEDDING_OUT}, NULL, NULL, NULL}},
    .parameters = llama_embedding_parameters};

static const struct program block = {LLAMA_PRENORM_BLOCK(step_rmsnorm_plus_one),
                                     .parameters = block_parameters};

const struct program gemma_head = {LLAMA_HEAD(step_rmsnorm_plus_one),
                                   .parameters = head_parameters};

/* The published config.json files. The tiny one is ours, for tests. */
#define GEMMA "vocab=256000 context=8192 norm_epsilon=1e-6 head_dim=256 "
static const struct ls_preset presets[] = {
    {"gemma-2b", GEMMA "layers=18 channels=2048 heads=8 kv_heads=1 ffn=16384"},
    {"gemma-7b", GEMMA "layers=28 channels=3072 heads=16 ffn=24576"},
    {"gemma-tiny", "layers=2 channels=64 heads=4 kv_heads=1 head_dim=32 context=64"},
    {0},
};

/* Old files say gelu, and mean its approximation by tanh, with which the models were trained.
 * transformers 4.39 to 4.47 take them so, other versions compute the exact one. */
static const struct ls_hf_key hf_keys[] = {
    {"hidden_act", "activation", "\"gelu_pytorch_tanh\"", "gelu_pytorch_tanh=geglu gelu=geglu?"},
    {"hidden_activation", NULL, "", NULL}, /* of old files too, without effect */
    {"rms_norm_eps", "norm_epsilon", "1e-6", NULL},
    {"num_key_value_heads", "kv_heads", "16", NULL},
    {"head_dim", "head_dim", "256", NULL},
    {0},
};

const struct family family_gemma = {
    .about = {.what = "Llama with a scaled embedding, GeGLU, and norms by 1 + w",
              GEMMA_GEGLU,
              .ffn = {.times = 8, .over = 1, .multiple = 1},
              .presets = presets,
              .hf = {LLAMA_HF("gemma", "GemmaForCausalLM")},
              .gguf = {.architecture = "gemma", .norm_plus_one = true, .tied = true}},
    .embedding = &gemma_embedding,
    .block = &block,
    .head = &gemma_head,
};
