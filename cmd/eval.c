/* lockstep eval */
#include "cmd.h"
#include "launch.h"

#include <lockstep/base/words.h>

static void on_log(void *user, enum ls_log_level level, const char *line)
{
    (void)user;
    (void)level;
    fprintf(stderr, "lockstep eval: %s\n", line);
}

int cmd_eval(int argc, char **argv)
{
    struct ls_error error = {0};
    struct cmd_args args;
    int64_t samples = 0, threads = ls_device_cores();
    struct ls_log log = {.level_max = LS_LOG_WARNING, .write = on_log};
    struct ls_loaded *loaded = NULL;
    struct ls_eval_report report;
    int status = cmd_args_read(&args, "eval", argc, argv, 2, &error);
    if (!status && args.words < 1)
        status = ls_error_set(&error, LS_ECONFIG, "the run's directory is missing");
    if (!status)
        status = cmd_args_int(&args, "--samples", 1, INT64_MAX, &samples, &error);
    if (!status)
        status = cmd_args_int(&args, "--threads", 1, 4096, &threads, &error);
    if (!status)
        status = ls_loaded_new(args.word[0], cmd_args_value(&args, "--step"), (int)threads, &log,
                               &loaded, &error);
    if (!status) {
        const struct ls_config *config = ls_loaded_config(loaded);
        const char *data = args.words > 1 ? args.word[1] : config->data.valid;
        status = data[0] ? ls_loaded_evaluate(loaded, data, samples, &report, &error)
                         : ls_error_set(&error, LS_ECONFIG,
                                        "the run has no data.valid: name the data to evaluate on");
        if (status == LS_EIO && data == config->data.valid)
            ls_config_reject(config, status, "data.valid", &error,
                             "%s. Where it lies now: lockstep eval %s DATA", error.text,
                             args.word[0]);
        else if (status == LS_EIO || status == LS_EDATA)
            ls_error_prefix(&error, "%s = %.300s", args.words > 1 ? "DATA" : "data.valid", data);
    }
    if (!status) {
        printf("step %ld  %s  %s  loss %.6f nats per token  perplexity %.3f",
               (long)ls_loaded_step(loaded), ls_counted(report.sequences, "sequence").text,
               ls_counted(report.tokens, "token").text, ls_shown(report.loss),
               ls_shown(__builtin_exp(report.loss)));
        if (report.bits_per_byte > 0)
            printf("  %.4f bits per byte", report.bits_per_byte);
        putchar('\n');
    }
    ls_loaded_free(loaded);
    return status ? cmd_fail("eval", status, &error) : 0;
}
