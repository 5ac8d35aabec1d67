/* When and how a run evaluates. */
#include "train/run_private.h"

#include <lockstep/infer.h>

bool run_evaluates(const struct ls_config *config, int64_t step)
{
    bool final = step >= ls_config_steps(config);
    return config->data.valid[0] && config->eval.every > 0 &&
           (final || (step > 0 && train_due(step, config->eval.every)));
}

/* The same of a meeting of workers, which it follows too where it falls due between two. */
static bool evaluates_by(const struct ls_config *config, int64_t step)
{
    int64_t every = config->eval.every, before = ls_max(0, step - ls_config_interval(config));
    return run_evaluates(config, step) ||
           (config->data.valid[0] && every > 0 && step / every > before / every);
}

int run_evaluate(struct ls_running *run, struct ls_error *error)
{
    struct ls_eval_report report;
    struct ls_runner *runner = run->trainer->runner;
    double start_s = ls_now_s();
    int64_t step = ls_trainer_steps(run->trainer);
    run_trace_begin(&run->trace, "evaluate");
    const volatile int *before =
        ls_runner_set_interrupt(runner, run_steps_remain(run) ? run->hooks->stop : NULL);
    int status = ls_trainer_evaluate(run->trainer, &report, error), local = LS_OK;
    ls_runner_set_interrupt(runner, before);
    run_trace_end(&run->trace);
    if (status == LS_ESTOPPED)
        return ls_error_set(error, LS_ESTOPPED,
                            "stopped by a signal in the evaluation after step %ld, which the next "
                            "start with train.resume=auto makes up",
                            (long)step);
    if (status)
        return status;
    if (run->writer) {
        local = records_evaluation(&run->records, step, &report, ls_now_s() - start_s, error);
        if (run->hooks->evaluated)
            run->hooks->evaluated(run->hooks->user, step, &report);
    }
    status = ls_comm_agree(run->world, local, error);
    return status || !run->config->train.keep_best ? status : run_best_keep(run, &report, error);
}

int run_evaluation_make_up(struct ls_running *run, struct ls_error *error)
{
    int64_t step = ls_trainer_steps(run->trainer);
    int64_t lacks = run->writer && evaluates_by(run->config, step) && run->best.last < step &&
                    run->best.recorded == step;
    int status = ls_all_reduce_max(run->world, &lacks, error);
    return status || !lacks ? status : run_evaluate(run, error);
}
