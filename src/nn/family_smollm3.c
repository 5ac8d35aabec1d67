/* SmolLM3 (Bakouch et al. 2025): Llama without positions in every fourth block (Yang et al. 2025,
 * "RoPE to NoPE and back again"). */
#include "nn/family_llama.h"

/* The published config.json file. The tiny one is ours, for tests. */
static const struct ls_preset presets[] = {
    {"smollm3-3b", "vocab=128256 context=65536 layers=36 channels=2048 heads=16 kv_heads=4 "
                   "ffn=11008 rope_theta=5000000 norm_epsilon=1e-6"},
    {"smollm3-tiny", "layers=4 channels=64 heads=4 kv_heads=2 context=64"},
    {0},
};

static const struct ls_hf_key hf_keys[] = {
    LLAMA_HF_KEYS,
    {"num_key_value_heads", "kv_heads", "4", "null=0 *"},
    {"tie_word_embeddings", "tied", "true", NULL},
    /* None without use_sliding_window. */
    {"sliding_window|max_window_layers", NULL, "", NULL},
    {"attention_bias", NULL, "false", NULL},
    {"mlp_bias", NULL, "false", NULL},
    {"pretraining_tp", NULL, "", NULL}, /* another way to the same products */
    /* Which blocks have positions: the period counts if there is no list. */
    {"no_rope_layer_interval", "rope_layers", "4", LLAMA_PERIODS},
    {"no_rope_layers", "rope_layers", "", "1|0"},
    {0},
};

const struct family family_smollm3 = {
    .about = {.what = "Llama without positions in every fourth block",
              .tied = true,
              LLAMA_SWIGLU,
              .rope_layers = LS_LAYERS_THREE_OF_FOUR,
              .presets = presets,
              .hf = {LLAMA_HF("smollm3", "SmolLM3ForCausalLM"), .rope_theta = "2000000"},
              .gguf = {.architecture = "smollm3", .interleaved = true}},
    .keys = "rope_layers",
    LLAMA_LAYERS(llama_block),
};
