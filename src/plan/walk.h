/* Private to plan: the walk over one rank's moves. */
#ifndef PLAN_WALK_H
#define PLAN_WALK_H

#include "part.h"

#include <lockstep/plan/moves.h>

/* A move of the ring: a message, or on the sharers an all-reduce. */
struct plan_ring_item {
    enum ls_layout_group group;
    bool receive;
    int peer, channel;
    enum ls_dtype dtype;
    int64_t count;
    const char *what;
};
/* A sequence's way through a block's attention, forward or backward. */
struct plan_ring {
    bool backward;
    struct plan_ring_item *items;
    int count;
};
/* ring.c */
int64_t plan_kv_width(const struct ls_layout *layout);
static inline bool plan_is_ring(const struct ls_layout *layout)
{
    return layout->size[LS_AXIS_CP] > 1 && layout->cp_method == LS_CP_RING;
}
int plan_ring_init(const struct ls_layout *layout, int64_t cp_rank, bool backward,
                   struct plan_ring *ring, struct ls_error *error);
void plan_ring_release(struct plan_ring *ring);

struct plan_walk {
    const struct ls_layout *layout;
    const struct ls_schedule *table; /* of a step */
    const struct plan_part *part;
    int64_t at[LS_AXES];
    struct ls_dp_share share;
    ls_move_visit *visit;
    /* NULL, or takes a ring as a whole: its moves are then not visited. */
    int (*visit_ring)(void *user, const struct plan_ring *ring, int layer, int64_t micro_batch,
                      struct ls_error *error);
    void *user;
    struct ls_error *error;

    int64_t group_size[LS_GROUPS];
    int layer; /* of what moves now */
    int64_t micro_batch, micro_batches;
    int64_t sequences;        /* of the micro-batch */
    int64_t rows, mine;       /* M, and ceil(M / tp) */
    int64_t units;            /* of token sums: leaves x tiles held here */
    struct plan_ring ring[2]; /* forward and backward, where cp is one */
    bool *gathered;           /* [units] in this step (zero 3 without resharding) */
};

/* One operation; nothing where the group has one rank. */
int plan_collective(const struct plan_walk *walk, enum ls_layout_group group,
                    enum ls_comm_kind kind, enum ls_dtype dtype, int64_t count, const char *what);
int plan_message(const struct plan_walk *walk, enum ls_layout_group group, bool receive, int peer,
                 int channel, enum ls_dtype dtype, int64_t count, const char *what);

/* Sets what follows from the micro-batch. */
void plan_walk_micro_batch(struct plan_walk *walk, int64_t micro_batch);

/* layers.c: what a layer's functions do on tp, cp and sharers. */
int plan_layer_forward(const struct plan_walk *walk);
int plan_layer_input(const struct plan_walk *walk);
int plan_layer_weight(const struct plan_walk *walk);
/* state.c: what ZeRO does on shard and replicate. */
int plan_weights(struct plan_walk *walk, bool forward);
int plan_region(struct plan_walk *walk, int region);
int plan_publish(struct plan_walk *walk);

/* A step of walk's rank. Sets up all but layout, table, part, at, visit, user and error. */
int plan_walk_step(struct plan_walk *walk, int64_t leaves);

#endif
