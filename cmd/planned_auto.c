/* parallel.auto: the layout that a run begins with is the best one that the planner finds. */
#include "planned.h"

#include "cmd.h"

enum { SECONDS = 8 };

int planned_auto(struct ls_config *config, bool tells, struct ls_error *error)
{
    struct ls_cluster cluster = {0};
    struct ls_search search = {0};
    if (!config->train.auto_layout)
        return LS_OK;
    if (ls_mpi_launched())
        return ls_config_reject(config, LS_ECONFIG, "parallel.auto", error,
                                "it plans for rank threads of one process; under a launcher "
                                "write the layout first: lockstep plan --apply FILE");
    config->train.auto_layout = false; /* what the run keeps is the layout */
    const char *path = *config->train.plan ? config->train.plan : NULL;
    int status = planned_cluster(path, config, &cluster, error);
    const struct ls_search_options options = {.config = config,
                                              .cluster = &cluster,
                                              .top = 1,
                                              .seconds = SECONDS,
                                              .pinned = planned_given(config)};
    if (!status)
        status = ls_search_run(&options, &search, error);
    if (!status)
        status = ls_search_apply(&search.plans[0], config, error);
    if (!status && tells)
        cmd_print("parallel.auto: %s, %.4g s a step by forecast\n", search.plans[0].keys,
                  search.plans[0].forecast.step_s);
    ls_search_release(&search);
    ls_cluster_release(&cluster);
    return status;
}
