/* Qwen2 and Qwen2.5 (Qwen Team 2024): Llama with biases of q, k and v, and of nothing else. */
#include "nn/family_llama.h"

/* Qwen2.5, as the published config.json files of the base models have it. The tiny one is ours, for
 * tests. */
#define SMALL "rope_theta=1000000 norm_epsilon=1e-6 vocab=151936 tied=true "
#define LARGE "rope_theta=1000000 vocab=152064 context=131072 "
static const struct ls_preset presets[] = {
    {"qwen2.5-0.5b", SMALL "context=32768 layers=24 channels=896 heads=14 kv_heads=2 ffn=4864"},
    {"qwen2.5-1.5b", SMALL "context=131072 layers=28 channels=1536 heads=12 kv_heads=2 ffn=8960"},
    {"qwen2.5-3b", SMALL "context=32768 layers=36 channels=2048 heads=16 kv_heads=2 ffn=11008"},
    {"qwen2.5-7b", LARGE "norm_epsilon=1e-6 layers=28 channels=3584 heads=28 kv_heads=4 ffn=18944"},
    {"qwen2.5-14b", LARGE "layers=48 channels=5120 heads=40 kv_heads=8 ffn=13824"},
    {"qwen2.5-32b", LARGE "layers=64 channels=5120 heads=40 kv_heads=8 ffn=27648"},
    {"qwen2.5-72b", LARGE "layers=80 channels=8192 heads=64 kv_heads=8 ffn=29568"},
    {"qwen2-tiny", "layers=2 channels=64 heads=4 kv_heads=2 context=64"},
    {0},
};

static const struct ls_hf_key hf_keys[] = {
    LLAMA_HF_KEYS,
    {"num_key_value_heads", "kv_heads", "32", "null=0 *"},
    /* None without use_sliding_window. */
    {"sliding_window|max_window_layers", NULL, "", NULL},
    {"use_mrope", NULL, "false", NULL},
    {0},
};

const struct family family_qwen2 = {
    .about = {.what = "Llama with biases of q, k and v",
              .bias = true,
              LLAMA_SWIGLU,
              .presets = presets,
              .hf = {LLAMA_HF("qwen2", "Qwen2ForCausalLM")},
              .gguf = {.architecture = "qwen2"}},
    LLAMA_LAYERS(llama_block),
};
