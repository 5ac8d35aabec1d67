/* What the files of `lockstep plan` share. */
#ifndef CMD_PLAN_SHOWN_H
#define CMD_PLAN_SHOWN_H

#include <lockstep/train/memory.h>

/* Ranks that take the same: those of pipeline ranks pp to pp_last. */
struct plan_ranks {
    int64_t rank, pp, pp_last; /* rank: one of them */
    struct ls_memory_plan plan;
    struct ls_memory_moment peak;
};
struct plan_shown {
    const struct ls_config *config;
    const struct ls_layout *layout;
    struct plan_ranks *kinds; /* [count] */
    int64_t count;
};

/* Prints the textbook's figures beside those of ranks, and beside a model that textbooks like. */
int plan_explain(const struct plan_shown *shown, const struct plan_ranks *ranks,
                 struct ls_error *error);

#endif
