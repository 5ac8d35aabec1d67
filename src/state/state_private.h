/* What the files of the state share. An array of it is the parameters or one of the optimizer's
 * states of them; a rank holds a slice of each parameter's part of it. */
#ifndef STATE_STATE_PRIVATE_H
#define STATE_STATE_PRIVATE_H

#include <lockstep/ckpt.h>
#include <lockstep/state.h>

enum { STATE_PREFIX_BYTES = 32 };

/* What of a rank's part of a tensor is left, in ascending order; run.count is 0 at the end. The
 * spec is borrowed. */
struct state_cursor {
    struct ls_runs runs;
    struct ls_run run;
};
void state_cursor_init(struct state_cursor *cursor, const struct ls_dtensor_spec *spec,
                       int64_t rank);
/* The next `most` elements at most of the run at hand, which must not be the end. */
struct ls_run state_cursor_take(struct state_cursor *cursor, int64_t most);

/* Who gets a whole tensor on rank 0: its elements in ascending order, window by window. */
struct state_sink {
    int (*take)(void *user, const void *values, int64_t count, struct ls_error *error);
    void *user;
};

/* Makes whole tensors of their parts, in memory that does not depend on their size. */
struct state_collector {
    struct ls_state *state;
    const struct ls_params *all; /* of every layer */
    void *window, *message;      /* [LS_STATE_MESSAGE] elements; message on rank 0 */
    struct state_cursor *parts;  /* [ranks of the world], on rank 0 */
};
/* Local. all is borrowed. LS_ENOMEM. */
int state_collector_init(struct state_collector *c, struct ls_state *state,
                         const struct ls_params *all, struct ls_error *error);
void state_collector_release(struct state_collector *c);
/* Parameter i of c->all, or that array of the optimizer's state of it, to rank 0's sink, which is
 * unused elsewhere. Collective over the ranks that hold the first copy, rank 0 of each
 * LS_GROUP_COPIES; others may call it too. All messages go through also where a rank could not read
 * its part, or the sink failed: that rank alone has the error. */
int state_collect(struct state_collector *c, int i, int array, const struct state_sink *sink,
                  struct ls_error *error);

/* What is written before the parameter's name: "" or "exp_avg.". */
void state_prefix(const struct ls_optim_config *optim, const struct ls_param *param, int array,
                  char prefix[STATE_PREFIX_BYTES]);
/* The resolved recipe of a checkpoint in that directory; its arithmetic is never auto. */
int state_recipe_read(const char *directory, const struct ls_checkpoint_state *state,
                      int64_t vocabulary, struct ls_config *recipe, struct ls_error *error);

#endif
