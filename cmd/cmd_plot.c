/* lockstep plot RUN... [--log] [--output FILE]: the losses of runs as SVG. */
#include "cmd.h"

#include <lockstep/base/file.h>
#include <lockstep/ckpt.h>
#include <lockstep/trace/picture.h>

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

static int draw(const void *picture, FILE *file, struct ls_error *error)
{
    return ls_plot_draw(picture, file, error);
}

static int plot(const struct cmd_args *args, const char *output, struct ls_error *error)
{
    static char names[LS_PLOT_RUNS_MAX][PATH_MAX];
    struct ls_run_curves runs[LS_PLOT_RUNS_MAX];
    struct ls_plot picture = {.runs = runs, .log = cmd_args_given(args, "--log")};
    int status = LS_OK;
    for (int i = 0; i < args->words && !status; i++) {
        char metrics[PATH_MAX], run[PATH_MAX];
        status = ls_checkpoint_run(args->word[i], run, error);
        if (!status &&
            snprintf(metrics, sizeof metrics, "%s/metrics.jsonl", run) >= (int)sizeof metrics)
            status = ls_error_set(error, LS_EINVAL, "%.200s...: the path is too long", run);
        if (status)
            break;
        /* Runs of one name are told apart by their whole paths. */
        run_name(names[i], run);
        for (int j = 0; j < i; j++)
            if (strcmp(names[i], names[j]) == 0)
                snprintf(names[i], PATH_MAX, "%s", run);
        status = ls_run_curves_read(&runs[i], names[i], metrics, error);
        picture.count += status == LS_OK;
    }
    if (!status)
        status = ls_file_write(output, draw, &picture, error);
    for (int i = 0; i < picture.count; i++)
        ls_run_curves_release(&runs[i]);
    return status;
}

int cmd_plot(const struct cmd_args *args, struct ls_error *error)
{
    const char *output;
    cmd_progress_begin();
    int status = cmd_args_output(args, "loss.svg", &output, error);
    if (!status)
        status = plot(args, output, error);
    if (!status)
        cmd_print("%s\n", output);
    return status;
}
