/* The timeline of a planned step: a picture, and a trace for Perfetto. */
#include "planned.h"

#include <lockstep/base/file.h>

int planned_draw(const struct ls_config *config, const struct ls_cluster *cluster, const char *svg,
                 const char *trace, struct ls_error *error)
{
    (void)config, (void)cluster, (void)svg, (void)trace, (void)error;
    return LS_OK;
}

int planned_cluster(const char *path, const struct ls_config *config, struct ls_cluster *cluster,
                    struct ls_error *error)
{
    (void)config;
    if (path)
        return ls_cluster_read(path, cluster, error);
    return ls_error_set(error, LS_ECONFIG, "--cluster is missing");
}
