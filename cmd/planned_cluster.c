/* What a plan is for: a cluster's file, or this machine, measured in short. */
#include "planned.h"

#include <lockstep/planner/measure.h>

int planned_cluster(const char *path, const struct ls_config *config, struct ls_cluster *cluster,
                    struct ls_error *error)
{
    if (path)
        return ls_cluster_read(path, cluster, error);
    fprintf(stderr, "measuring this machine (lockstep bench machine --out FILE keeps that for "
                    "--cluster)\n");
    return ls_measure_here(config, cluster, error);
}
