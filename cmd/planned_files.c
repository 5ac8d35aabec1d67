/* Files that a plan is written to, and a planned step's timeline in them. */
#include "planned.h"

#include <lockstep/base/file.h>
#include <lockstep/planner/timeline.h>

#include <string.h>
#include <sys/stat.h>

int planned_file_check(const char *path, struct ls_error *error)
{
    struct ls_atomic_file file;
    struct stat about;
    bool there = stat(path, &about) == 0;
    if (!strcmp(path, "-") || (there && !S_ISREG(about.st_mode) && !S_ISDIR(about.st_mode)))
        return LS_OK; /* who reads a pipe would see it end */
    int status = ls_atomic_file_open(&file, path, NULL, error);
    if (!status)
        ls_atomic_file_abort(&file);
    return status;
}

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
