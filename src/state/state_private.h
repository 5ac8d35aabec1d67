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

/* What a manifest says of a state, and what its strings live in. */
struct state_about {
    char hash[33], recipe_digest[33], fingerprint[256], layout[160];
    char *recipe; /* to be freed */
    struct ls_checkpoint_state state;
};
/* Local. hash NULL: not known. */
int state_about(const struct ls_state *state, const struct ls_digest *hash,
                struct state_about *about, struct ls_error *error);
/* Local. This rank's share of all parts. `beside`: by a thread beside the rank's, which nothing of
 * the state lies in a tier for. */
int state_parts_write(struct ls_state *state, struct ls_checkpoint_writer *checkpoint, bool beside,
                      struct ls_error *error);
/* Collective. A checkpoint of that step stands in train.out: prunes to train.keep. */
int state_saved(struct ls_state *state, int64_t step, struct ls_error *error);
/* Local. Waits for the thread that still reads the state, if there is one. */
void state_copied(struct ls_state *state);

#endif
