/* Llama (Touvron et al. 2023; Dubey et al. 2024): rotary positions, RMSNorm, SwiGLU, grouped-query
 * attention, no biases. */
#include "nn/family_llama.h"

const struct parameter llama_embedding_parameters[] = {
    PARAMETER_MATRIX("table", "wte.weight", SIZE_VOCABULARY, SIZE_CHANNELS, CUT_ROWS,
                     "model.embed_tokens.weight"),
    {0},
};

static const struct parameter block_parameters[] = {
    LLAMA_MATRICES,
    PARAMETER_NORM("norm1", "norm_1.weight", SIZE_CHANNELS, CUT_NONE, "input_layernorm.weight"),
    PARAMETER_BIAS("qkv bias", "attn.q.bias", SIZE_QUERY, CUT_COLUMNS, "self_attn.q_proj.bias"),
    PARAMETER_BIAS("qkv bias", "attn.k.bias", SIZE_KV, CUT_KV, "self_attn.k_proj.bias"),
    PARAMETER_BIAS("qkv bias", "attn.v.bias", SIZE_KV, CUT_KV, "self_attn.v_proj.bias"),
    PARAMETER_NORM("norm2", "norm_2.weight", SIZE_CHANNELS, CUT_NONE,
                   "post_attention_layernorm.weight"),
    {0},
};

/* The head's matrix is the embedding table where the two are tied. */
static const struct parameter head_parameters[] = {
    PARAMETER_MATRIX("table", "head.weight", SIZE_VOCABULARY, SIZE_CHANNELS, CUT_ROWS,
                     "lm_head.weight"),
    PARAMETER_NORM("norm", "norm_f.weight", SIZE_CHANNELS, CUT_NONE, "model.norm.weight"),
    {0},
};

enum { EMBEDDING_IDS, EMBEDDING_OUT };
enum { LLAMA_PRENORM_ENUMERATORS };
enum { HEAD_X, HEAD_A, HEAD_RSTD };

const struct program llama_embedding = {
    LLAMA_NAMES,
    .values = {[EMBEDDING_IDS] = LLAMA_ALL("ids", SIZE_ONE, AGAIN_FULL),
               [EMBEDDING_OUT] = LLAMA_STREAM("out", AGAIN_FULL)},
    .steps = {{&step_embedding, {EMBEDDING_IDS}, {EMBEDDING_OUT}, "table", .dropout = "embedding"}},
    .parameters = llama_embedding_parameters};

const struct program llama_block = {LLAMA_PRENORM_BLOCK(step_rmsnorm),
                                    .parameters = block_parameters};

const struct program llama_head = {LLAMA_HEAD(step_rmsnorm), .parameters = head_parameters};

/* Llama 2; Llama 3.2 (1B, 3B) and 3.1 (8B, 70B, 405B); SmolLM2 (Ben Allal et al. 2025), which is a
 * Llama: the published config.json files. The tiny one is ours, for tests. */
#define LLAMA2 "vocab=32000 context=4096 "
#define SMOL   "vocab=49152 context=8192 tied=true "
#define LLAMA3 "vocab=128256 context=131072 rope_theta=500000 rope_original_context=8192 "
static const struct ls_preset presets[] = {
    {"llama2-7b", LLAMA2 "layers=32 channels=4096 heads=32 ffn=11008"},
    {"llama2-13b", LLAMA2 "layers=40 channels=5120 heads=40 ffn=13824"},
    {"llama2-70b", LLAMA2 "layers=80 channels=8192 heads=64 kv_heads=8 ffn=28672"},
    {"smollm2-135m", SMOL "layers=30 channels=576 heads=9 kv_heads=3 ffn=1536 rope_theta=100000"},
    {"smollm2-360m", SMOL "layers=32 channels=960 heads=15 kv_heads=5 ffn=2560 rope_theta=100000"},
    {"smollm2-1.7b", SMOL "layers=24 channels=2048 heads=32 ffn=8192 rope_theta=130000"},
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
    LLAMA_HF_KEYS,
    {"attention_bias", NULL, "false", NULL},
    {"mlp_bias", NULL, "false", NULL},
    {"pretraining_tp", NULL, "", NULL}, /* another way to the same products */
    {0},
};

const struct family family_llama = {
    .about = {.what = "RoPE, RMSNorm, SwiGLU",
              LLAMA_SWIGLU,
              .presets = presets,
              .hf = {LLAMA_HF("llama", "LlamaForCausalLM")},
              .gguf = {.architecture = "llama", .interleaved = true, .frequencies = true}},
    LLAMA_LAYERS(llama_block),
};
