/* What may refuse a run, after its state is there and before anything of it is changed. */
#include "train/run_private.h"

#include <lockstep/base/words.h>

static int plan_open(struct ls_running *run, struct ls_error *error)
{
    struct drift_watch *watch = &run->drift;
    if (watch->every == 0 || !run->config->train.plan[0] || !run->hooks->plan)
        return LS_OK;
    int status = run->hooks->plan(run->hooks->user, run->config, run->trainer->ops.threads,
                                  &watch->plan, error);
    if (status)
        return ls_config_blame(run->config, "train.plan", error), status;
    watch->planned = true;
    run->records.prom.plan_step_s = watch->plan.step_s;
    ls_log(&run->events.log, LS_LOG_INFO, "by the plan of %s a step takes %s",
           run->config->train.plan, ls_duration(watch->plan.step_s).text);
    return LS_OK;
}

int run_start_check(struct ls_running *run, bool resumed, struct ls_error *error)
{
    struct ls_training_data *data = &run->trainer->data;
    char digest[33];
    int status = records_read(&run->records, run->trainer, &run->events.log, resumed, error);
    if (!status)
        status = plan_open(run, error);
    if (!status && data->count > 0) /* a failure here is one of the data */
        status = ls_training_data_digest(data, digest, error);
    if (!status && resumed && !run->config->data.changed)
        status = ls_training_data_check(
            data, run->config, NULL, run->records.data_seen,
            "Put back what the run began with, or give data.changed=true, which reads samples "
            "again or leaves some out",
            error);
    return status;
}
