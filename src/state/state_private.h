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
/* The state of a rank, as arithmetic needs it. */
struct state_of_rank {
    const struct ls_model_config *model;
    const struct ls_params *params;
    const struct ls_optim_config *optim;
    int64_t rank;
};
/* The elements [first, first + count) of the rank's slice of a parameter's array. */
struct state_share {
    int param, array;
    int64_t first, count;
};
/* What this rank writes of one of the two parts. */
struct state_listing {
    struct ls_tensor_entry *entries; /* [count] */
    struct ls_tensor_box *boxes;     /* with the tensors' names */
    struct state_share *shares;
    struct state_name {
        char name[LS_PARAM_NAME_MAX + STATE_PREFIX_BYTES], fqn[LS_PARAM_NAME_MAX + 1];
    } * names;
    size_t count;
};
/* Local. Release it in any case. */
int state_listing_init(struct state_listing *list, const struct state_of_rank *of,
                       enum ls_checkpoint_part part, struct ls_error *error);
void state_listing_release(struct state_listing *list);
/* "pp=1 dp_replicate=1 ... zero=1": what a checkpoint says of who wrote it. */
void state_layout_text(const struct ls_layout *layout, char *text, size_t bytes);

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
/* Digests of this rank's slices. */
struct state_held {
    struct ls_digest owned[LS_SETS_MAX]; /* by set: what this rank answers for */
    struct ls_digest all[LS_SETS_MAX];   /* everything: equal on the ranks of group copies */
    struct ls_digest alike;              /* what all ranks of group tp hold */
    struct ls_digest sharers; /* the key/value heads that the ranks of group sharers share */
    struct ls_digest tied;    /* the table that first and last stage hold */
};
/* Local. Of the counters and the loss scale: a step changes them before the arrays. */
struct ls_digest state_position(const struct ls_state *state);
/* Local. Adds what state_position gave to the rest, which begins with zeros. */
void state_held_place(const struct ls_state *state, const struct ls_digest *position,
                      struct state_held *held);
/* Local. Adds these elements, the first of which is at values. Rounds in place what a matrix in
 * blocks is visited as. `beside`: as of state_parts_write. */
void state_held_add(const struct ls_state *state, bool beside, const struct state_share *which,
                    void *values, struct state_held *held);
/* Local. Adds all elements of the rank's slices but except[array + 1][param]; NULL: all. */
int state_held_rest(struct ls_state *state, bool beside, const struct state_share *except,
                    struct state_held *held, struct ls_error *error);
/* Collective. The hash of ls_state_hash from what each rank had after that step, if status is good
 * on all. */
int state_hash_agree(const struct ls_state *state, int64_t step, const struct state_held *held,
                     int status, struct ls_digest *digest, struct ls_error *error);
/* Local. This rank's share of all parts. `beside`: by a thread beside the rank's, which nothing of
 * the state lies in a tier for. held (NULL: nobody asks) gets all that the rank holds: what is
 * written is read once for both. */
int state_parts_write(struct ls_state *state, struct ls_checkpoint_writer *checkpoint, bool beside,
                      struct state_held *held, struct ls_error *error);
/* Local. A checkpoint of that step stands in train.out: rank 0 prunes to train.keep. */
void state_saved(struct ls_state *state, int64_t step);
/* Local. Waits for the thread that still reads the state, if there is one. */
void state_copied(struct ls_state *state);

#endif
