/* A tiny model with all that it reads, for tests that look inside of it. */
#ifndef TEST_NN_TINY_H
#define TEST_NN_TINY_H

#include "held.h"

enum { TINY_VOCAB = 21, TINY_PADDED = 24, TINY_CHANNELS = 16 };

struct tiny {
    struct ls_model_config config;
    struct ls_numerics numerics;
    struct ls_ops ops;
    struct held held;
    struct ls_arena arena;
    struct ls_model *model; /* NULL before tiny_model */
};
/* Of one block, with the family's biases, activation, window and caps, in fp32. What the test wants
 * otherwise it writes there before tiny_open. */
struct tiny tiny_of(enum ls_arch arch);
/* The parameters, normal around their usual value. Fails the test where it cannot, as the next
 * does. The tiny stays where it is. */
void tiny_open(struct tiny *tiny, int threads);
/* The model, whose buffers fill the arena. Of options the model and its parameters are set here. */
void tiny_model(struct tiny *tiny, struct ls_model_options options);
void tiny_close(struct tiny *tiny);

#endif
