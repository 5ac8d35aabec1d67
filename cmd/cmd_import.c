/* lockstep import: a run of another program's model. */
#include "cmd.h"

#include <lockstep/base/meter.h>
#include <lockstep/base/words.h>
#include <lockstep/interop.h>

static void on_log(void *user, enum ls_log_level level, const char *line)
{
    (void)user, (void)level;
    ls_meter_clear();
    fprintf(stderr, "lockstep import: %s\n", line);
}

int cmd_import(int argc, char **argv)
{
    struct ls_error error = {0};
    struct cmd_args args;
    const struct ls_log log = {.level_max = LS_LOG_WARNING, .write = on_log};
    struct ls_import import = {.log = &log};
    struct ls_import_report report;
    int status = cmd_args_read(&args, "import", argc, argv, CMD_WORDS_MAX, &error);
    if (!status && (args.words < 1 || !cmd_args_given(&args, "--out")))
        status =
            ls_error_set(&error, LS_ECONFIG, "%s is missing: expected %s",
                         args.words < 1 ? "the model's folder" : "--out RUN", args.page->arguments);
    if (!status) {
        cmd_progress_begin("import");
        import.from = args.word[0];
        import.run = cmd_args_value(&args, "--out");
        import.words = args.word + 1;
        import.count = args.words - 1;
        status = ls_import(&import, &report, &error);
    }
    if (status)
        return cmd_fail("import", status, &error);
    cmd_print("%s  %s of the family %s, %s, %lld parameters\n", import.run,
              ls_counted(report.model.layers, "layer").text, ls_arch_name(report.model.arch),
              ls_counted(report.model.vocab, "token").text, (long long)report.parameters);
    return 0;
}
