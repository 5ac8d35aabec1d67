/* Phi-3 and Phi-4 (Abdin et al. 2024): Llama, with matrices of q, k and v, and of gate and up, that
 * are one tensor in files, and a sliding window. */
#include "nn/family_llama.h"

#define PHI_QKV     "self_attn.qkv_proj.weight"
#define PHI_GATE_UP "mlp.gate_up_proj.weight"
static const struct parameter block_parameters[] = {
    LLAMA_MATRICES_OF(PHI_QKV, PHI_QKV, PHI_QKV, PHI_GATE_UP, PHI_GATE_UP),
    PARAMETER_NORM("norm1", "norm_1.weight", SIZE_CHANNELS, CUT_NONE, "input_layernorm.weight"),
    PARAMETER_NORM("norm2", "norm_2.weight", SIZE_CHANNELS, CUT_NONE,
                   "post_attention_layernorm.weight"),
    {0},
};

enum { LLAMA_PRENORM_ENUMERATORS };

static const struct program block = {LLAMA_PRENORM_BLOCK(step_rmsnorm),
                                     .parameters = block_parameters};

/* The published config.json files. The tiny one is ours, for tests. */
#define PHI3 "vocab=32064 context=4096 window=2047 "
#define WIDE "layers=40 channels=5120 heads=40 kv_heads=10 ffn=17920 "
static const struct ls_preset presets[] = {
    {"phi3-mini", PHI3 "layers=32 channels=3072 heads=32 ffn=8192"},
    {"phi3-medium", PHI3 WIDE},
    {"phi4", WIDE "vocab=100352 context=16384 rope_theta=250000"},
    {"phi3-tiny", "layers=2 channels=64 heads=4 kv_heads=2 context=64 window=24"},
    {0},
};

static const struct ls_gguf_name gguf_names[] = {
    {"self_attn.qkv_proj", "attn_qkv"}, {"mlp.gate_up_proj", "ffn_up"}, {0}};

/* What they call yarn is longrope, whose factors are tables: refused with all scaled positions. */
static const struct ls_hf_key hf_keys[] = {
    {"hidden_act", "activation", "\"silu\"", "silu=swiglu"},
    {"rms_norm_eps", "norm_epsilon", "1e-5", NULL},
    {"sliding_window", "window", "null", "null=0 *"},
    {0},
};

const struct family family_phi3 = {
    .about = {.what = "Llama with fused matrices and a sliding window",
              LLAMA_SWIGLU,
              .presets = presets,
              .hf = {LLAMA_HF("phi3", "Phi3ForCausalLM"), .unscaled = true},
              .gguf = {.architecture = "phi3", .names = gguf_names}},
    .keys = "window",
    LLAMA_LAYERS(block),
};
