/* Private to plan: a rank's micro-batches in memory. */
#ifndef PLAN_MEMORY_H
#define PLAN_MEMORY_H

#include <lockstep/plan/moves.h>

/* What the schedule makes of a rank. */
struct plan_rank {
    bool held[LS_LAYOUT_LAYERS_MAX + 2];
    bool split;    /* weight halves come apart from input halves */
    int64_t slots; /* micro-batches of a chunk that are live at once, at most */
    int64_t live;  /* the same, summed over chunks */
    int64_t
        boundaries; /* received activations and gradients, and gradients on their way, at most */
};

/* Bytes that layers keep of live micro-batches, and bytes of what they and the pipeline work in. */
int64_t plan_kept_bytes(const struct ls_layout *layout, const struct plan_rank *rank);
int64_t plan_work_bytes(const struct ls_layout *layout, const struct plan_rank *rank);

#endif
