/* What the tests of offload share: recipes deep enough for buffers to turn over, and the ways to
 * put things elsewhere. */
#include "offload.h"

#include "../support/config_words.h"

#include <lockstep/device/tier.h>

#include <stdio.h>

#define COMMON                                                                                     \
    "model.vocab=50 model.layers=12 model.channels=32 model.heads=4 batch.global=4 batch.micro=1 " \
    "parallel.threads=1 optim.lr=3e-3 optim.warmup_steps=0 optim.clip=0.5 log.tensorboard=false "  \
    "log.progress=off train.steps=8 numerics.tp_tiles=4 "
#define GPT2 COMMON "model.arch=gpt2 model.context=16 data.sequence=16 model.dropout=0.1 "
#define LLAMA                                                                                      \
    COMMON "model.arch=llama model.kv_heads=2 model.ffn=48 model.context=256 data.sequence=256 "   \
           "numerics.seq_tiles=2 "

const char *const offload_recipe_names[OFFLOAD_RECIPES] = {
    "gpt2 fp32",       "gpt2 bf16",          "gpt2 fp16 sgd",       "gpt2 bf16 parts of leaves",
    "llama fp32 lion", "llama bf16 moments", "llama fp32 tied sgd", "wide gpt2 bf16"};
static const char *const recipes[OFFLOAD_RECIPES] = {
    [GPT2_FP32] = GPT2 "numerics.precision=fp32 batch.global=8",
    [GPT2_BF16] = GPT2 "numerics.precision=bf16 batch.global=8 batch.micro=2",
    [GPT2_FP16_SGD] = GPT2 "numerics.precision=fp16 optim.name=sgd batch.global=8",
    [GPT2_BF16_PARTS] = GPT2 "numerics.precision=bf16 numerics.leaf_sequences=2 batch.global=8 "
                             "model.context=32 data.sequence=32",
    [LLAMA_FP32_LION] = LLAMA "numerics.precision=fp32 optim.name=lion",
    [LLAMA_BF16_MOMENTS] = LLAMA "numerics.precision=bf16 optim.moments=bf16",
    [LLAMA_TIED_SGD] = LLAMA "numerics.precision=fp32 model.tied=true optim.name=sgd",
    [WIDE] = GPT2 "numerics.precision=bf16 model.layers=2 model.channels=64 model.ffn=20000 "
                  "batch.global=2",
};

const char *const offload_keys[OFFLOAD_KEYS] = {"optimizer", "gradients", "activations",
                                                "parameters"};

int offload_kind(int way, int key)
{
    for (; key > 0; key--)
        way /= LS_TIER_KINDS;
    return way % LS_TIER_KINDS;
}

void offload_words(int way, double ratio, char *words, size_t bytes)
{
    size_t used = 0;
    words[0] = '\0';
    for (int k = 0; k < OFFLOAD_KEYS; k++) {
        const char *kind = ls_tier_name((enum ls_tier_kind)offload_kind(way, k));
        used += (size_t)snprintf(words + used, bytes - used,
                                 "memory.offload.%s=%s memory.offload.%s_ratio=%g ",
                                 offload_keys[k], kind, offload_keys[k], ratio);
    }
}

struct ls_config offload_config(const char *directory, enum offload_recipe recipe,
                                const char *layout, const char *words)
{
    return config_of_words("%s data.train=u16:%s/tokens.bin data.valid=u16:%s/tokens.bin "
                           "train.out=%s/run memory.file=%s/offload %s %s",
                           recipes[recipe], directory, directory, directory, directory, layout,
                           words);
}
