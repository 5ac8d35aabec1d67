/* Mistral (Jiang et al. 2023): Llama with a sliding window. */
#include "nn/family_llama.h"

/* The published config.json files. The tiny one is ours, for tests. */
#define MISTRAL "context=32768 layers=32 channels=4096 heads=32 kv_heads=8 ffn=14336 "
static const struct ls_preset presets[] = {
    {"mistral-7b-v0.1", MISTRAL "vocab=32000 window=4096"},
    {"mistral-7b-v0.3", MISTRAL "vocab=32768 rope_theta=1000000"},
    {"mistral-tiny", "layers=2 channels=64 heads=4 kv_heads=2 context=64 window=24"},
    {0},
};

static const struct ls_hf_key hf_keys[] = {
    LLAMA_HF_KEYS,
    {"num_key_value_heads", "kv_heads", "8", "null=0 *"},
    {"sliding_window", "window", "4096", "null=0 *"},
    {"layer_types", NULL, "null", NULL}, /* transformers makes another class of it */
    {0},
};

const struct family family_mistral = {
    .about = {.what = "Llama with a sliding window",
              LLAMA_SWIGLU,
              .presets = presets,
              .hf = {LLAMA_HF("mistral", "MistralForCausalLM")},
              .gguf = {.architecture = "llama", .interleaved = true, .frequencies = true}},
    .keys = "window",
    LLAMA_LAYERS(llama_block),
};
