/* The losses of runs as a picture. */
#include "compare/report_private.h"

#include <lockstep/ckpt.h>

#include <string.h>

struct drawn {
    struct ls_run_curves runs[LS_PLOT_RUNS_MAX];
    char names[LS_PLOT_RUNS_MAX][PATH_MAX];
    int count;
};

/* Runs of one name are told apart by their whole paths. */
static int run_add(struct drawn *drawn, const char *path, struct ls_error *error)
{
    char run[PATH_MAX], metrics[PATH_MAX], *name = drawn->names[drawn->count];
    int status = ls_checkpoint_run(path, run, error);
    if (!status &&
        snprintf(metrics, sizeof metrics, "%s/metrics.jsonl", run) >= (int)sizeof metrics)
        status = ls_error_set(error, LS_EINVAL, "%.200s...: the path is too long", run);
    if (status)
        return status;
    snprintf(name, PATH_MAX, "%s", report_name(run).text);
    for (int i = 0; i < drawn->count; i++)
        if (strcmp(drawn->names[i], name) == 0)
            snprintf(name, PATH_MAX, "%s", run);
    status = ls_run_curves_read(&drawn->runs[drawn->count], name, metrics, error);
    drawn->count += status == LS_OK;
    return status;
}

int ls_run_plot_write(const char *const *directories, int count, bool log, FILE *file,
                      struct ls_error *error)
{
    struct drawn drawn = {.count = 0};
    int status = LS_OK;
    if (count < 1 || count > LS_PLOT_RUNS_MAX)
        status = ls_error_set(error, LS_EINVAL, "%d runs: expected from 1 to %d", count,
                              LS_PLOT_RUNS_MAX);
    for (int i = 0; i < count && !status; i++)
        status = run_add(&drawn, directories[i], error);
    if (!status) {
        const struct ls_plot picture = {.runs = drawn.runs, .count = drawn.count, .log = log};
        status = ls_plot_draw(&picture, file, error);
    }
    for (int i = 0; i < drawn.count; i++)
        ls_run_curves_release(&drawn.runs[i]);
    return status;
}
