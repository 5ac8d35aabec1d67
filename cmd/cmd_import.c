/* lockstep import: a run of another program's model. */
#include "cmd.h"

#include <lockstep/base/words.h>
#include <lockstep/infer/defaults.h>
#include <lockstep/interop.h>

/* What generate would refuse is copied, and can still be mended in the folder. */
static void defaults_check(const char *folder, const struct ls_model_config *model)
{
    struct ls_generation_defaults found;
    struct ls_error error = {0};
    if (ls_generation_defaults_read(folder, model->vocab, &found, &error))
        ls_log(&cmd_warnings, LS_LOG_WARNING, "%s; `lockstep generate` will refuse it", error.text);
}

int cmd_import(const struct cmd_args *args, struct ls_error *error)
{
    struct ls_import_report report;
    const char *out = cmd_args_value(args, "--out");
    if (args->words < 1 || !out)
        return ls_error_set(error, LS_ECONFIG, "%s is missing: expected %s",
                            args->words < 1 ? "the model's folder" : "--out RUN",
                            args->page->arguments);
    const struct ls_import import = {.from = args->word[0],
                                     .run = out,
                                     .words = args->word + 1,
                                     .count = args->words - 1,
                                     .log = &cmd_warnings};
    cmd_progress_begin();
    int status = ls_import(&import, &report, error);
    if (!status)
        defaults_check(import.from, &report.model);
    if (!status)
        cmd_print("%s  %s of the family %s, %s, %lld parameters\n", import.run,
                  ls_counted(report.model.layers, "layer").text, ls_arch_name(report.model.arch),
                  ls_counted(report.model.vocab, "token").text, (long long)report.parameters);
    return status;
}
