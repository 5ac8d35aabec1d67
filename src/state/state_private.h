/* What the files of the state share. An array of it is the parameters or one of the optimizer's
 * states of them; a rank holds a slice of each parameter's part of it. */
#ifndef STATE_STATE_PRIVATE_H
#define STATE_STATE_PRIVATE_H

#include <lockstep/ckpt.h>
#include <lockstep/state.h>

enum { STATE_PREFIX_BYTES = 32 };

/* What is written before the parameter's name: "" or "exp_avg.". */
void state_prefix(const struct ls_optim_config *optim, const struct ls_param *param, int array,
                  char prefix[STATE_PREFIX_BYTES]);
/* The resolved recipe of a checkpoint in that directory; its arithmetic is never auto. */
int state_recipe_read(const char *directory, const struct ls_checkpoint_state *state,
                      int64_t vocabulary, struct ls_config *recipe, struct ls_error *error);

#endif
