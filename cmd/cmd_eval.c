/* lockstep eval: the validation loss of a finished run. */
#include "finished.h"

#include <lockstep/base/words.h>

/* What was asked, and on the process of rank 0 what came out. */
struct evaluated {
    int64_t samples;
    bool here;
    int64_t step;
    struct ls_eval_report report;
};

static int evaluate(struct finished_job *job, struct ls_finished *finished, bool first,
                    struct ls_error *error)
{
    const char *own = job->config.data.valid, *data = job->data ? job->data : own;
    struct ls_token_store *store;
    struct evaluated *out = job->user;
    struct ls_eval_report report;
    if (!data[0])
        return ls_error_set(error, LS_ECONFIG,
                            "the run has no data.valid: name the data to evaluate on");
    int status = ls_token_store_open(data, &store, error);
    if (!status)
        status =
            ls_runner_evaluate(ls_finished_runner(finished), store, out->samples, &report, error);
    ls_token_store_close(store);
    if (status == LS_EIO && data == own)
        ls_config_reject(&job->config, status, "data.valid", error,
                         "%s. Where it lies now: lockstep eval %s DATA", error->text,
                         job->args.word[0]);
    else if (status == LS_EIO || status == LS_EDATA)
        ls_error_prefix(error, "%s = %.300s", job->data ? "DATA" : "data.valid", data);
    if (!status && first) {
        out->here = true;
        out->step = ls_finished_step(finished);
        out->report = report;
    }
    return status;
}

int cmd_eval(int argc, char **argv)
{
    struct ls_error error = {0};
    struct evaluated out = {0};
    struct finished_job job = {
        .command = "eval", .use = LS_TO_EVALUATE, .act = evaluate, .user = &out};
    int status = cmd_args_read(&job.args, "eval", argc, argv, CMD_WORDS_MAX, &error);
    if (!status)
        status = cmd_args_int(&job.args, "--samples", 1, INT64_MAX, &out.samples, &error);
    if (!status)
        status = finished_run(&job, &error);
    if (!status && out.here) {
        const struct ls_eval_report *report = &out.report;
        printf("step %ld  %s  %s  loss %.6f nats per token  perplexity %.3f", (long)out.step,
               ls_counted(report->sequences, "sequence").text,
               ls_counted(report->tokens, "token").text, ls_shown(report->loss),
               ls_shown(__builtin_exp(report->loss)));
        if (report->bits_per_byte > 0)
            printf("  %.4f bits per byte", report->bits_per_byte);
        putchar('\n');
    }
    return finished_end(&job, status, &error);
}
