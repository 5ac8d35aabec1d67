/* The timeline of a planned step, written to files. */
#include "planned.h"

#include <lockstep/base/file.h>
#include <lockstep/planner/timeline.h>

struct planned {
    const struct ls_config *config;
    const struct ls_cluster *cluster;
};

static int svg_write(const void *context, FILE *file, struct ls_error *error)
{
    const struct planned *planned = context;
    return ls_timeline_draw(planned->config, planned->cluster, file, error);
}

static int trace_write(const void *context, FILE *file, struct ls_error *error)
{
    const struct planned *planned = context;
    return ls_timeline_trace(planned->config, planned->cluster, file, error);
}

int planned_draw(const struct ls_config *config, const struct ls_cluster *cluster, const char *svg,
                 const char *trace, struct ls_error *error)
{
    const struct planned planned = {config, cluster};
    int status = svg ? ls_file_write(svg, svg_write, &planned, error) : LS_OK;
    if (!status && trace)
        status = ls_file_write(trace, trace_write, &planned, error);
    return status;
}
