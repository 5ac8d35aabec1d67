/* OLMo 3 (Team OLMo 2025): OLMo 2 with a window in three blocks of four. Scaled positions are those
 * of the other blocks alone. */
#include "nn/family_llama.h"

/* The published config.json files. The tiny one is ours, for tests. */
#define OLMO3                                                                                      \
    "vocab=100278 context=65536 window=4096 rope_theta=500000 rope_local_theta=500000 "            \
    "rope_scaling=yarn rope_factor=8 rope_original_context=8192 norm_epsilon=1e-6 "
static const struct ls_preset presets[] = {
    {"olmo3-7b", OLMO3 "layers=32 channels=4096 heads=32 ffn=11008"},
    {"olmo3-32b", OLMO3 "layers=64 channels=5120 heads=40 kv_heads=8 ffn=27648"},
    {"olmo3-tiny", "layers=4 channels=64 heads=4 kv_heads=2 context=64 window=24"},
    {0},
};

static const struct ls_hf_key hf_keys[] = {
    {"hidden_act", "activation", "\"silu\"", "silu=swiglu"},
    {"rms_norm_eps", "norm_epsilon", "1e-5", NULL},
    {"sliding_window", "window", "4096", NULL},
    LLAMA_HF_LAYER_TYPES,
    {0},
};

static const struct ls_gguf_key gguf_keys[] = {{"attention.sliding_window", "window"}, {0}};

const struct family family_olmo3 = {
    .about = {.what = "OLMo 2 with a window in three blocks of four",
              LLAMA_SWIGLU,
              .window_layers = LS_LAYERS_THREE_OF_FOUR,
              .presets = presets,
              .hf = {LLAMA_HF("olmo3", "Olmo3ForCausalLM"), .rope_theta = "500000"},
              .gguf = {.architecture = "olmo2",
                       .head = true,
                       .names = olmo2_gguf_names,
                       .keys = gguf_keys}},
    .keys = "window|window_layers|rope_local_theta",
    LLAMA_LAYERS(olmo2_block),
};
