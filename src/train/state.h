/* Private to train: the state of a run, parameter by parameter. An array of it is the parameters or
 * one of the optimizer's states of them; a rank holds a slice of each parameter's part of it. */
#ifndef TRAIN_STATE_H
#define TRAIN_STATE_H

#include "trainer.h"

enum { STATE_PARAMETERS = -1, STATE_PREFIX_BYTES = 32 };

/* Arrays are STATE_PARAMETERS, 0, 1, ... below ls_optimizer_states. */
static inline float *state_array(const struct ls_trainer *t, int state)
{
    return state < 0 ? ls_zero_master(t->memory.zero) : t->memory.optimizer.state[state];
}
/* What is written before the parameter's name: "" or "exp_avg.". */
void state_prefix(const struct ls_trainer *t, int state, char prefix[STATE_PREFIX_BYTES]);

#endif
