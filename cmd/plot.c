/* lockstep plot RUN [--output FILE]: the losses of a run as SVG. */
#include "cmd.h"

#include <lockstep/trace.h>

#include <limits.h>
#include <string.h>

/* The run's name: the last component of its path. */
static void run_name(char out[PATH_MAX], const char *run)
{
    snprintf(out, PATH_MAX, "%s", run);
    size_t length = strlen(out);
    while (length > 1 && out[length - 1] == '/')
        out[--length] = '\0';
    char *slash = strrchr(out, '/');
    if (slash && slash[1])
        memmove(out, slash + 1, strlen(slash + 1) + 1);
}

static int plot(const char *run, const char *output, struct ls_error *error)
{
    char metrics[PATH_MAX], name[PATH_MAX];
    if (snprintf(metrics, sizeof metrics, "%s/metrics.jsonl", run) >= (int)sizeof metrics)
        return ls_error_set(error, LS_EINVAL, "%.200s...: the path is too long", run);
    run_name(name, run);
    struct ls_loss_plot picture = {.title = name};
    int status = ls_series_read(&picture.train, metrics, "step", "loss", error);
    if (!status)
        status = ls_series_read(&picture.validation, metrics, "step", "validation_loss", error);
    if (!status && picture.train.count + picture.validation.count == 0)
        status = ls_error_set(error, LS_EDATA, "%s: no record has a loss yet", metrics);
    if (!status)
        status = ls_plot_loss(output, &picture, error);
    ls_series_release(&picture.train);
    ls_series_release(&picture.validation);
    return status;
}

int cmd_plot(int argc, char **argv)
{
    struct cmd_args args;
    struct ls_error error = {0};
    char beside[PATH_MAX];
    int status = cmd_args_read(&args, "plot", argc, argv, 1, &error);
    if (!status && args.words == 0)
        status = ls_error_set(&error, LS_ECONFIG, "expected the directory of a run");
    if (status)
        return cmd_fail("plot", status, &error);
    const char *output = cmd_args_value(&args, "--output");
    if (!output) {
        const char *run = args.word[0];
        size_t length = strlen(run); /* plot() refuses a path that is too long */
        bool slash = length > 0 && run[length - 1] == '/';
        snprintf(beside, sizeof beside, "%s%sloss.svg", run, slash ? "" : "/");
        output = beside;
    }
    status = plot(args.word[0], output, &error);
    if (status)
        return cmd_fail("plot", status, &error);
    printf("%s\n", output);
    return 0;
}
