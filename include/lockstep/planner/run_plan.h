/* lockstep/planner/run_plan.h - a plan for a run that is under way: what its steps should take
 * (lockstep/train/drift.h), and where something drifts, the layout that would be faster.
 * Everything here is Local. */
#ifndef LOCKSTEP_PLANNER_RUN_PLAN_H
#define LOCKSTEP_PLANNER_RUN_PLAN_H

#include <lockstep/planner/search.h>
#include <lockstep/train/drift.h>

LS_C_BEGIN

/* config is resolved; threads of each rank. Fills plan, whose stage_s the caller has made. Errors
 * as of ls_forecast_make. */
int ls_run_plan_make(const struct ls_config *config, int threads, const struct ls_cluster *cluster,
                     struct ls_run_plan *plan, struct ls_error *error);

/* A sentence: the best layout on as many accelerators, by a search of so many seconds, and by how
 * much it is faster than config's; where a link is slow, on a cluster whose link is that much
 * slower. drift may be NULL. */
struct ls_run_advice {
    char text[512];
};
int ls_run_plan_advise(const struct ls_config *config, int threads,
                       const struct ls_cluster *cluster, const struct ls_drift *drift,
                       double seconds, struct ls_run_advice *advice, struct ls_error *error);

LS_C_END
#endif
