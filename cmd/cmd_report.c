/* lockstep report RUN...: a run, or several, as one page for a browser. */
#include "cmd.h"

#include <lockstep/base/file.h>
#include <lockstep/compare/report.h>

static int write_page(const void *context, FILE *file, struct ls_error *error)
{
    const struct cmd_args *args = context;
    return ls_report_write(args->word, args->words, file, error);
}

int cmd_report(const struct cmd_args *args, struct ls_error *error)
{
    const char *output;
    cmd_progress_begin();
    int status = cmd_args_output(args, "report.html", &output, error);
    if (!status)
        status = ls_file_write(output, write_page, args, error);
    if (!status)
        cmd_print("%s\n", output);
    return status;
}
