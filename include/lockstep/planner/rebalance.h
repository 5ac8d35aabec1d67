/* lockstep/planner/rebalance.h - another split of layers for a run whose stages do not take what
 * their layers cost: the measured times of stages stand in place of those of a model. Everything
 * here is Local. */
#ifndef LOCKSTEP_PLANNER_REBALANCE_H
#define LOCKSTEP_PLANNER_REBALANCE_H

#include <lockstep/config.h>

LS_C_BEGIN

struct ls_rebalance {
    /* How much longer a rank of the slowest stage computes for its layers than one of the others
     * does for as many operations (the median of those): 0.5 = 50 %; and which stage. */
    double above;
    int64_t stage;
    /* The split with which a step takes least, "0-2,3", and the share of its time that it takes
     * then: of its schedule's length, with and without. "" and 1: the split stays. */
    char split[LS_CONFIG_TEXT_BYTES];
    double share;
};
/* config is resolved; stage_s[parallel.pp]: what a rank of each pipeline rank computes in a step,
 * in seconds. A split that would take more memory than there is on this machine, slots ranks of
 * which it holds, is none. Errors as of ls_config_layout, ls_schedule_simulate and
 * ls_memory_fit. */
int ls_rebalance_find(const struct ls_config *config, const double *stage_s, int64_t slots,
                      struct ls_rebalance *found, struct ls_error *error);

LS_C_END
#endif
