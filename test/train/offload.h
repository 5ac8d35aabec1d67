/* What the tests of offload share: recipes deep enough for buffers to turn over, and the ways to
 * put things elsewhere. */
#ifndef TEST_TRAIN_OFFLOAD_H
#define TEST_TRAIN_OFFLOAD_H

#include <lockstep/train.h>

/* Twelve layers, in each precision and with each optimizer; leaves of one micro-batch, of parts of
 * one, and several in a micro-batch. */
enum offload_recipe {
    GPT2_FP32,
    GPT2_BF16,
    GPT2_FP16_SGD,
    GPT2_BF16_PARTS,
    LLAMA_FP32_LION,
    LLAMA_BF16_MOMENTS,
    LLAMA_TIED_SGD,
    WIDE, /* two layers, with tensors of more than one window */
    OFFLOAD_RECIPES
};
extern const char *const offload_recipe_names[OFFLOAD_RECIPES];

/* Every way to choose none, host or file for each of the four keys; the first is none. */
enum { OFFLOAD_WAYS = 81 };
/* The kind (enum ls_tier_kind) of a key in a way; keys: optimizer, gradients, activations,
 * parameters. */
enum { OFFLOAD_KEYS = 4 };
extern const char *const offload_keys[OFFLOAD_KEYS];
int offload_kind(int way, int key);
/* Its words: "memory.offload.optimizer=host ...". */
void offload_words(int way, double ratio, char *words, size_t bytes);

/* A recipe in a layout, with words behind both; its folder for files lies in directory. */
struct ls_config offload_config(const char *directory, enum offload_recipe recipe,
                                const char *layout, const char *words);

#endif
