/* Private to nn: what the layers of the Gemma families share beside Llama's: norms by weights kept
 * as their distance from one, and a scaled embedding. */
#ifndef NN_FAMILY_GEMMA_H
#define NN_FAMILY_GEMMA_H

#include "nn/family_llama.h"

/* The whole programs. */
extern const struct program gemma_embedding, gemma_head;

#define GEMMA_NORM(role, name, elsewhere)                                                          \
    {                                                                                              \
        role, name, SIZE_ONE, SIZE_CHANNELS, CUT_NONE, START_ZERO, WHEN_ALWAYS, elsewhere          \
    }

#endif
