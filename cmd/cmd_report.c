/* lockstep report RUN... and lockstep plot RUN...: a run, or several, as one page for a browser,
 * and their losses as SVG. */
#include "cmd.h"

#include <lockstep/base/file.h>
#include <lockstep/compare/report.h>

#include <string.h>

static int write_page(const void *context, FILE *file, struct ls_error *error)
{
    const struct cmd_args *args = context;
    return ls_report_write(args->word, args->words, file, error);
}

static int write_losses(const void *context, FILE *file, struct ls_error *error)
{
    const struct cmd_args *args = context;
    return ls_run_plot_write(args->word, args->words, cmd_args_given(args, "--log"), file, error);
}

static int write_as(const struct cmd_args *args, const char *name,
                    int (*write)(const void *context, FILE *file, struct ls_error *error),
                    struct ls_error *error)
{
    const char *output;
    cmd_progress_begin();
    int status = cmd_args_output(args, name, &output, error);
    if (status)
        return status;
    status = ls_file_write(output, write, args, error);
    bool of_file = status && !strncmp(error->text, output, strlen(output));
    if (of_file && !cmd_args_value(args, "--output"))
        ls_error_suffix(error, "; --output names another file");
    if (!status)
        cmd_print("%s\n", output);
    return status;
}

int cmd_report(const struct cmd_args *args, struct ls_error *error)
{
    return write_as(args, "report.html", write_page, error);
}

int cmd_plot(const struct cmd_args *args, struct ls_error *error)
{
    return write_as(args, "loss.svg", write_losses, error);
}
