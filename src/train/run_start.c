/* What may refuse a run, after its state is there and before anything of it is changed. */
#include "train/run_private.h"

#include <lockstep/base/words.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the run that it goes on from ------------------------------------------------------------ */

/* The other run whose checkpoint this one goes on from; "" if that is its own, or a copy of it in
 * its second place. */
static void origin_find(const struct ls_running *run, char origin[PATH_MAX])
{
    const struct ls_config *config = run->config;
    const struct ls_state *state = run->trainer->state;
    const char *path = ls_config_resume_path(config);
    bool own = !strcmp(config->train.resume, "auto") &&
               (state->from_snapshot || state->saved_step < 0 ||
                ls_checkpoint_there(config->train.out, state->saved_step));
    origin[0] = '\0';
    if (own || !path || second_copy_holds(config, path))
        return;
    if (ls_checkpoint_run(path, origin, NULL) || ls_path_same(origin, config->train.out))
        origin[0] = '\0';
}

enum { HASH_BYTES = 33 };

static void hash_take(void *user, const char *directory, const struct ls_checkpoint_state *state)
{
    (void)directory;
    snprintf(user, HASH_BYTES, "%s", state->hash);
}

/* Whether the state that was named is that of train.out at this step: its checkpoint has the hash
 * of the record, or of the run's own checkpoint. */
static bool same_state(const struct ls_running *run)
{
    const struct ls_config *config = run->config;
    const int64_t step = ls_trainer_steps(run->trainer);
    char named[HASH_BYTES] = "", own[HASH_BYTES] = "", path[PATH_MAX];
    if (run->records.last_step == step)
        snprintf(own, sizeof own, "%s", run->records.last_hash);
    else if (!ls_checkpoint_path(path, config->train.out, step, NULL))
        ls_checkpoint_visit(path, hash_take, own, NULL);
    const char *resume = config->train.resume;
    if (!ls_checkpoint_newest(resume, path, NULL))
        ls_checkpoint_visit(path, hash_take, named, NULL);
    return own[0] && !strcmp(own, named);
}

/* Whether steps up to the present one stay in train.out: their records, or a checkpoint. */
static int steps_stay(const struct ls_running *run, bool *stay, struct ls_error *error)
{
    int64_t *steps, count;
    *stay = run->records.last_step > 0;
    int status = ls_checkpoint_steps(run->config->train.out, &steps, &count, error);
    if (status) {
        free(steps);
        return ls_config_blame(run->config, "train.out", error), status;
    }
    *stay |= count > 0 && steps[count - 1] <= ls_trainer_steps(run->trainer);
    free(steps);
    return LS_OK;
}

/* What stays in train.out is the past of the checkpoint that was named, by its path or as its hash
 * was recorded: a run has one past. */
static int origin_check(struct ls_running *run, const char *origin, struct ls_error *error)
{
    const struct ls_config *config = run->config;
    bool stay;
    if (!*origin)
        return LS_OK;
    int status = steps_stay(run, &stay, error);
    if (!status && !stay)
        snprintf(run->origin, sizeof run->origin, "%s", origin);
    if (status || !stay || !strcmp(config->train.resume, "auto"))
        return status;
    return same_state(run)
               ? LS_OK
               : ls_config_reject(config, LS_ECONFIG, "train.out", error,
                                  "this run has done other steps than %.300s, which train.resume "
                                  "names: name another directory, or go on from one of this run's "
                                  "own checkpoints",
                                  config->train.resume);
}

/* ---- what it was given ----------------------------------------------------------------------- */

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
    char digest[33], origin[PATH_MAX] = "";
    if (resumed)
        origin_find(run, origin);
    int status =
        records_read(&run->records, run->trainer, &run->events.log, resumed, origin, error);
    if (!status)
        status = origin_check(run, origin, error);
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
