/* lockstep report RUN [RUN]: a run, or two, as one page for a browser. */
#include "cmd.h"

#include <lockstep/base/file.h>
#include <lockstep/ckpt.h>
#include <lockstep/compare/report.h>

#include <limits.h>
#include <stdlib.h>

static int write_page(const struct cmd_args *args, const char *output, struct ls_error *error)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&text, &bytes);
    if (!stream)
        return ls_error_set(error, LS_ENOMEM, "no memory for the page");
    int status = ls_report_write(args->word, args->words, stream, error);
    if (fclose(stream) != 0 && !status)
        status = ls_error_set(error, LS_ENOMEM, "no memory for the page");
    if (!status)
        status = ls_file_save(output, text, bytes, error);
    free(text);
    return status;
}

int cmd_report(int argc, char **argv)
{
    struct cmd_args args;
    struct ls_error error = {0};
    char beside[PATH_MAX + 16], run[PATH_MAX];
    int status = cmd_args_read(&args, "report", argc, argv, LS_REPORT_RUNS_MAX, &error);
    if (!status && args.words == 0)
        status = ls_error_set(&error, LS_ECONFIG, "expected the directory of a run, or of two");
    if (status)
        return cmd_fail("report", status, &error);
    const char *output = cmd_args_value(&args, "--output");
    if (!output && args.words > 1)
        output = "report.html";
    if (!output) {
        status = ls_checkpoint_run(args.word[0], run, &error);
        if (status)
            return cmd_fail("report", status, &error);
        snprintf(beside, sizeof beside, "%s/report.html", run);
        output = beside;
    }
    status = write_page(&args, output, &error);
    if (status)
        return cmd_fail("report", status, &error);
    cmd_print("%s\n", output);
    return 0;
}
