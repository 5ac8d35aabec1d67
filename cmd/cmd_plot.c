/* lockstep plot RUN... [--log] [--output FILE]: the losses of runs as SVG. */
#include "cmd.h"

#include <lockstep/base/file.h>
#include <lockstep/compare/report.h>

static int draw(const void *user, FILE *file, struct ls_error *error)
{
    const struct cmd_args *args = user;
    return ls_run_plot_write(args->word, args->words, cmd_args_given(args, "--log"), file, error);
}

int cmd_plot(const struct cmd_args *args, struct ls_error *error)
{
    const char *output;
    cmd_progress_begin();
    int status = cmd_args_output(args, "loss.svg", &output, error);
    if (!status)
        status = ls_file_write(output, draw, args, error);
    if (!status)
        cmd_print("%s\n", output);
    return status;
}
