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

/* A slice's place in the whole parameter: elements [first, first + count) of a part that begins at
 * (first_row, first_col) and has cols columns. */
struct state_place {
    int64_t first_row, first_col, cols, first, count;
};
/* Of parameter i of this rank. */
struct state_place state_place_of(const struct ls_trainer *t, int i);
/* Elements [at, at + count) of the slice, which are piece [count], into or out of the whole
 * parameter [.., whole_cols]. */
void state_scatter(const struct state_place *place, int64_t whole_cols, int64_t at, int64_t count,
                   const float *piece, float *whole);
void state_gather(const struct state_place *place, int64_t whole_cols, int64_t at, int64_t count,
                  const float *whole, float *piece);

#endif
