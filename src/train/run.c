/* A whole run: steps, records, evaluation, samples, checkpoints, and ending early in good order. */
#include "train/run_private.h"
#include "train/workers.h"

#include <lockstep/base/file.h>
#include <lockstep/interop.h>
#include <lockstep/train/peak.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- where it writes ------------------------------------------------------------------------- */

/* What goes with the model that the run begins from, and is no weight, lies with the run too. */
static int source_keep(const struct ls_config *config, struct ls_error *error)
{
    struct ls_model_source *source = NULL;
    int status = LS_OK;
    if (config->model_keys.from[0])
        status = ls_model_source_open(&source, config->model_keys.from, NULL, error);
    if (!status)
        status = ls_model_source_keep(source, config->train.out, NULL, error);
    ls_model_source_close(source);
    return status;
}

/* What the run needs later of what it was given. */
static int folder_fill(const struct ls_running *run, bool resumed, struct ls_error *error)
{
    char path[LS_CONFIG_TEXT_BYTES + 64];
    snprintf(path, sizeof path, "%s/checkpoints", run->config->train.out);
    int status = ls_directory_add(path, NULL, error);
    if (status)
        ls_config_blame(run->config, "train.out", error);
    if (!status)
        status = ls_kept_write(run->config, run->trainer->tokenizer, resumed, error);
    if (resumed && sink_refused(status)) {
        ls_log(&run->events.log, LS_LOG_WARNING,
               "the run continues, and its config.yaml stays that of the start before: %s",
               error->text);
        return LS_OK;
    }
    return status || resumed ? status : source_keep(run->config, error);
}

/* ---- a step ---------------------------------------------------------------------------------- */

static int sample(struct ls_running *run, struct ls_error *error)
{
    char *text = NULL;
    run_trace_begin(&run->trace, "sample");
    int status = ls_trainer_sample(run->trainer, run->config->sample.prompt, &text, error);
    run_trace_end(&run->trace);
    if (!status && run->writer && run->hooks->sampled)
        run->hooks->sampled(run->hooks->user, ls_trainer_steps(run->trainer), text);
    free(text);
    return status;
}

/* What ranks tell each other after a step: whether a signal came or train.out was moved, and where
 * their time went. */
static int step_agree(struct ls_running *run, const struct ls_step_report *r, bool *stop,
                      struct step_means *means, struct ls_error *error)
{
    enum {
        ASKED,
        MOVED,
        SNAPSHOT,
        SNAPSHOT_COST,
        STEP,
        DATA,
        OPTIMIZER,
        WAIT,
        WORK = WAIT + LS_ACCOUNTS,
        COUNT = WORK + LS_WORK_KINDS,
        ALL = COUNT + LS_WORK_KINDS
    };
    bool in_place = true;
    if (run->writer) /* where it cannot be found, saving fails */
        run_folder_find(&run->lock, run->trainer->config.train.out, &run->events.log, &in_place,
                        NULL);
    const volatile int *asked = run->hooks->stop; /* other threads than its writer read it too */
    float sum[ALL] = {[ASKED] = asked && __atomic_load_n(asked, __ATOMIC_RELAXED) ? 1.0f : 0.0f,
                      [MOVED] = in_place ? 0.0f : 1.0f,
                      [SNAPSHOT] = run->writer && run->due.snapshot,
                      [SNAPSHOT_COST] = (float)run->snapshots.cost_s,
                      [STEP] = (float)r->step_s,
                      [DATA] = (float)r->data_wait_s,
                      [OPTIMIZER] = (float)r->optimizer_s};
    for (int i = 0; i < LS_ACCOUNTS; i++)
        sum[WAIT + i] = (float)r->wait_s[i];
    for (int i = 0; i < LS_WORK_KINDS; i++) {
        sum[WORK + i] = (float)r->work_s[i];
        sum[COUNT + i] = (float)r->works[i];
    }
    int status =
        ls_all_reduce(run->world, sum, run->config->log.profile ? ALL : (int64_t)WORK, error);
    float ranks = (float)ls_comm_size(run->world);
    run->moved = sum[MOVED] > 0;
    *stop = sum[ASKED] > 0 || run->moved;
    run->snapshot_due = sum[SNAPSHOT] > 0;
    if (run->snapshots.cost_s > 0)
        snapshots_weigh(&run->snapshots, sum[SNAPSHOT_COST] / ranks);
    if (!status && run->moved)
        status = run_out_follow(run, error);
    *means =
        (struct step_means){.data_s = sum[DATA] / ranks, .optimizer_s = sum[OPTIMIZER] / ranks};
    means->compute_s = sum[STEP] / ranks - means->data_s - means->optimizer_s;
    for (int i = 0; i < LS_ACCOUNTS; i++) {
        means->wait_s[i] = sum[WAIT + i] / ranks;
        means->compute_s -= means->wait_s[i];
    }
    for (int i = 0; i < LS_WORK_KINDS; i++) {
        means->work_s[i] = sum[WORK + i] / ranks;
        means->works[i] = sum[COUNT + i] / ranks;
    }
    return status;
}

/* Local, on rank 0: what a window showed goes to the records, and to who may know better. */
static int drift_tell(struct ls_running *run, double step_s, struct ls_error *error)
{
    struct drift_watch *watch = &run->drift;
    enum drift_change changed[LS_DRIFT_KINDS];
    int status = drift_watch_judge(watch, changed, error);
    if (!status)
        metrics_prom_drift(&run->records.prom, watch->now);
    for (int kind = 0; kind < LS_DRIFT_KINDS && !status; kind++) {
        const struct ls_drift *drift = &watch->now[kind];
        if (changed[kind] == DRIFT_STAYS)
            continue;
        if (drift->found)
            status = events_drift(&run->events, drift, changed[kind] == DRIFT_NEW, step_s,
                                  watch->planned ? &watch->plan : NULL, watch->stage_s,
                                  watch->layout->size[LS_AXIS_PP], error);
        else
            status = events_drift_over(&run->events, (enum ls_drift_kind)kind, error);
        status = records_judge(&run->records, status, error);
        if (drift->found && changed[kind] == DRIFT_NEW && run->hooks->drifted)
            run->hooks->drifted(run->hooks->user, drift);
    }
    return status;
}

/* Local, on rank 0. */
static int advice_tell(struct ls_running *run, struct ls_error *error)
{
    char text[512];
    if (!run->hooks->advice || !run->hooks->advice(run->hooks->user, text, sizeof text))
        return LS_OK;
    return records_judge(&run->records, events_advice(&run->events, text, error), error);
}

/* Rank 0's part of what follows a step. */
static int step_write(struct ls_running *run, const struct ls_step_report *report,
                      const struct step_means *means, bool whole, bool stop, bool last,
                      struct ls_error *error)
{
    run->events.step = report->step;
    int status = records_step(&run->records, report, means, error);
    if (!status && report->outer.groups > 0)
        status =
            records_judge(&run->records, events_outer(&run->events, &report->outer, error), error);
    if (!status && run->replay_s > 0)
        status = records_judge(&run->records, events_replayed(&run->events, run->replay_s, error),
                               error);
    if (!status && whole)
        status = drift_tell(run, report->step_s, error);
    data_supply_step(&run->supply, run->trainer, report, &run->events.log);
    if (!status)
        status = advice_tell(run, error);
    if (!status)
        status = run_copies_tell(run, error);
    if (!status && stop && !run->moved)
        status = records_judge(&run->records, events_signal(&run->events, error), error);
    if (!status)
        status = records_step_end(&run->records, report, last, error);
    if (run->hooks->stepped)
        run->hooks->stepped(run->hooks->user, report);
    return status;
}

/* A step, and if it is drawn the same step again, by other ranks: with workers all up to where they
 * meet next. What the caller computes of is not computed again. */
static int step_compute(struct ls_running *run, const struct ls_given_batch *batch,
                        struct ls_step_report *report, struct ls_error *error)
{
    struct replay *replay = NULL;
    int64_t number = ls_trainer_steps(run->trainer) + 1;
    run->replay_s = 0;
    if (batch)
        return ls_trainer_step_on(run->trainer, batch, report, error);
    if (run->trainer->waiting)
        return ls_trainer_update(run->trainer, report, error);
    if (!ls_trainer_meets(run->trainer) || !replay_due(run->config, number))
        return ls_trainer_step(run->trainer, report, error);
    double start_s = ls_now_s();
    run_trace_begin(&run->trace, "replay");
    int status = replay_new(run->trainer, &replay, error);
    run_trace_end(&run->trace);
    if (!status && !replay)
        return ls_trainer_step(run->trainer, report, error);
    run->replay_s = ls_now_s() - start_s;
    if (!status)
        status = ls_trainer_step(run->trainer, report, error);
    start_s = ls_now_s();
    run_trace_begin(&run->trace, "replay");
    if (!status) {
        status = replay_judge(replay, &run->hash, error);
        if (status == LS_ENUMERIC)
            snapshots_void(&run->snapshots, run->world);
    }
    if (!status)
        run->hashed_step = run->trainer->state->step;
    replay_free(replay);
    run_trace_end(&run->trace);
    run->replay_s += ls_now_s() - start_s;
    return status;
}

/* What falls due with a step is done when workers meet. */
static void due_add(struct ls_running *run, int64_t step)
{
    const struct ls_config *config = run->config;
    run->due.hash |= train_due(step, config->log.hash_every);
    run->due.save |= train_due(step, config->train.save_every);
    run->due.evaluate |= run_evaluates(config, step);
    run->due.sample |= train_due(step, config->sample.every);
    run->due.snapshot |= snapshots_due(&run->snapshots, step);
}

/* Local, on rank 0: the record of a step between two meetings, with the means of its workers. */
static int step_between(struct ls_running *run, const struct ls_step_report *report,
                        struct ls_error *error)
{
    double rest_s = report->step_s - report->data_wait_s - report->optimizer_s;
    struct step_means means = {.data_s = (float)report->data_wait_s,
                               .optimizer_s = (float)report->optimizer_s};
    for (int a = 0; a < LS_ACCOUNTS; a++) {
        means.wait_s[a] = (float)report->wait_s[a];
        rest_s -= report->wait_s[a];
    }
    means.compute_s = (float)fmax(0, rest_s);
    return step_write(run, report, &means, false, false, false, error);
}

/* One step with all that follows it. run->stop: a signal asked for the end, on any rank, or
 * train.out was moved. */
static int step(struct ls_running *run, const struct ls_given_batch *batch,
                struct ls_step_report *report, struct ls_error *error)
{
    const struct ls_config *config = run->config;
    double waited_s = run->trainer->state->saving_wait_s;
    int status = step_compute(run, batch, report, error);
    if (status)
        return status;
    run->unsaved = false;
    due_add(run, report->step);
    if (!ls_trainer_meets(run->trainer)) /* nothing can be seen but its losses */
        return run->writer ? step_between(run, report, error) : LS_OK;
    report->snapshot_s = run->snapshot_s + run->trainer->state->saving_wait_s - waited_s;
    struct step_means means;
    status = step_agree(run, report, &run->stop, &means, error);
    bool last = report->step >= ls_config_steps(config) || run->stop;
    struct due due = run->due;
    run->due = (struct due){0};
    bool saves = due.save || last;
    bool hashed = run->hashed_step == report->step;
    if (!status && !hashed && (due.hash || saves)) {
        run_trace_begin(&run->trace, "hash");
        status = ls_trainer_hash(run->trainer, &run->hash, error);
        if (status == LS_ENUMERIC)
            snapshots_void(&run->snapshots, run->world);
        run_trace_end(&run->trace);
        hashed = true;
    }
    if (status)
        return status;
    if (hashed) {
        run->hashed_step = report->step;
        report->hashed = true;
        ls_digest_hex(&run->hash, report->hash);
    }
    run_trace_begin(&run->trace, "record");
    bool whole;
    int local = LS_OK;
    status = drift_watch_step(&run->drift, report, &whole, error);
    if (!status && run->writer)
        local = step_write(run, report, &means, whole, run->stop, last, error);
    if (status)
        return status;
    status = ls_comm_agree(run->world, local, error);
    run_trace_write(&run->trace);
    run_trace_end(&run->trace);
    /* Saved first: who asked for the end does not wait for more than that. */
    if (!status)
        status = run_saves(run, saves, last, run->stop, error);
    bool ends = run->stop && run_steps_remain(run); /* the next start evaluates */
    if (!status && due.evaluate && !ends)
        status = run_evaluate(run, error);
    if (!status && due.sample && !ends)
        status = sample(run, error);
    return status;
}

/* ---- the beginning --------------------------------------------------------------------------- */

/* A run is never started over an older one by accident. */
static int fresh_check(const struct ls_config *config, struct ls_error *error)
{
    char folder[PATH_MAX];
    int count;
    if (strcmp(config->train.resume, "never"))
        return LS_OK;
    int status = ls_checkpoint_count(config->train.out, &count, error);
    if (!status && !count && ls_run_has_snapshot(config, folder))
        return ls_config_reject(config, LS_ECONFIG, "train.out", error,
                                "this run was killed and has a snapshot in %.300s; resume with "
                                "train.resume=auto, or name another directory",
                                folder);
    if (status)
        ls_config_blame(config, "train.out", error);
    else if (count)
        status = ls_config_reject(config, LS_ECONFIG, "train.out", error,
                                  "this run already holds checkpoints; resume with "
                                  "train.resume=auto, or name another directory");
    return status;
}

/* Local, on rank 0: nobody else writes to train.out from here on. */
static int directory_open(struct ls_running *run, const struct ls_log *log, struct ls_error *error)
{
    const char *out = run->config->train.out;
    int status = ls_lock_take(&run->lock, out, NULL, error);
    if (status)
        return ls_config_blame(run->config, "train.out", error), status;
    if (ls_lock_former(&run->lock)[0])
        ls_log(log, LS_LOG_INFO, "%s: the run of %s was killed; this one takes over", out,
               ls_lock_former(&run->lock));
    status = run_folder_check(run->config, error);
    if (!status)
        status = fresh_check(run->config, error);
    if (!status)
        run_folder_sweep(run->config, log);
    return status ? status : second_copy_open(&run->copy, run->config, log, error);
}

/* The initial weights. */
static int first_save(struct ls_running *run, struct ls_error *error)
{
    const struct ls_config *config = run->config;
    bool only = ls_config_steps(config) == 0;
    int status = only || config->train.save_first ? run_save(run, only, error) : LS_OK;
    return status || !only || config->eval.every == 0 ? status : run_evaluate(run, error);
}

/* Collective. A run that resumes at its end has that checkpoint in its own folder, also if it began
 * from another run's, from one that was set aside, or from a snapshot. */
static int ended_save(struct ls_running *run, struct ls_error *error)
{
    int64_t lacks = run->writer && ls_run_ended(run) &&
                    !ls_checkpoint_there(run->config->train.out, ls_trainer_steps(run->trainer));
    int status = ls_all_reduce_max(run->world, &lacks, error);
    return status || !lacks ? status : run_save(run, true, error);
}

/* What an earlier start of the run measured, or a measurement, which takes some tenths of a second,
 * and seconds where ranks share cores: a run that goes on shall not wait for it. */
static int peak_measure(struct ls_running *run, struct ls_error *error)
{
    struct ls_trainer *t = run->trainer;
    uint64_t flops = (uint64_t)run->records.peak_flops;
    int status = ls_all_reduce_u64(run->world, &flops, 1, error);
    t->peak_flops = (double)flops;
    return status || flops ? status : ls_trainer_measure_peak(t, error);
}

/* What the environment says; otherwise it is measured later. */
static int peak_given(struct ls_running *run, struct ls_error *error)
{
    struct ls_trainer *t = run->trainer;
    int status = ls_peak_given(&t->peak_flops, error);
    if (!status && t->peak_flops == 0)
        events_peak_name(t);
    status = ls_comm_agree(run->world, status, error);
    int64_t flops = (int64_t)t->peak_flops; /* it may be set for some ranks alone */
    if (!status)
        status = ls_all_reduce_max(run->world, &flops, error);
    t->peak_flops = (double)flops;
    return status;
}

/* Local, on rank 0. */
static int go_back(struct ls_running *run, struct ls_error *error)
{
    const int64_t step = ls_trainer_steps(run->trainer);
    const struct ls_log *log = &run->events.log;
    int status = second_copy_went_back(run->copy, run->config, step, log, error);
    return status ? status : run_folder_go_back(run->config, step, log, error);
}

/* Local, on rank 0. */
static int writer_open(struct ls_running *run, bool resumed, struct ls_error *error)
{
    int status = run_folder_stays(&run->lock, run->config, error);
    if (!status)
        status = run_start_check(run, resumed, error);
    if (!status) /* refuses another tokenizer before it writes */
        status = folder_fill(run, resumed, error);
    if (!status && resumed && strcmp(run->config->train.resume, "auto"))
        status = go_back(run, error);
    if (!status && *run->origin)
        status = workers_begin_from(run->trainer, run->origin, error);
    if (!status)
        status = records_open(&run->records, resumed, error);
    int moved = run_folder_stays(&run->lock, run->config, error);
    return moved ? moved : status;
}

/* Local, on rank 0. */
static int writer_begin(struct ls_running *run, bool resumed, struct ls_error *error)
{
    struct ls_params whole;
    char digest[33] = "";
    int status = LS_OK;
    if (run->trainer->data.count > 0)
        status = ls_training_data_digest(&run->trainer->data, digest, error);
    if (!status)
        status =
            records_judge(&run->records,
                          events_open(&run->events, run->records.metrics, run->trainer, digest,
                                      run->records.best.valid,
                                      run->drift.planned ? &run->drift.plan : NULL, resumed, error),
                          error);
    int64_t saved = run->trainer->state->saved_step;
    if (!status && saved >= 0 && !trainer_newest_elsewhere(run->trainer)) /* left uncopied? */
        second_copy_committed(run->copy, run->config->train.out, saved);
    if (!status && *run->trainer->layout.note)
        ls_log(&run->events.log, LS_LOG_INFO, "%s", run->trainer->layout.note);
    if (!status)
        status = run_best_open(run, error);
    int moved = run_folder_stays(&run->lock, run->config, error);
    if (status || moved)
        return moved ? moved : status;
    status = ls_params_init(&whole, &run->config->model, &run->trainer->numerics, NULL, error);
    if (!status && run->hooks->started)
        run->hooks->started(run->hooks->user, &run->trainer->config, &run->trainer->plan, &whole,
                            ls_trainer_steps(run->trainer));
    if (!status)
        ls_params_release(&whole);
    return status;
}

/* Collective. What the state has to know of the run: which start it is, where snapshots are. */
static int state_tell(struct ls_running *run, struct ls_error *error)
{
    struct ls_state *state = run->trainer->state;
    int status =
        run->writer ? ls_run_token_take(run->config->train.out, &run->token, error) : LS_OK;
    if (!status && run->writer)
        second_copy_own(run->copy, run->token.run);
    status = ls_comm_agree(run->world, status, error);
    if (!status)
        status = ls_broadcast(run->world, &run->token, sizeof run->token, LS_U8, 0, error);
    if (!status)
        status = snapshots_find(run->config, &run->token, run->snapshots_folder, error);
    struct ls_error why = {0};
    int64_t foreign = !status && snapshots_foreign(run->snapshots_folder, &why);
    if (foreign)
        ls_log(&run->events.log, LS_LOG_WARNING, "snapshots are not looked at: %s", why.text);
    status = ls_comm_agree(run->world, status, error);
    if (!status)
        status = ls_all_reduce_max(run->world, &foreign, error);
    state->start = run->token.start;
    state->snapshots = foreign ? NULL : run->snapshots_folder;
    return status;
}

/* Collective. If all checkpoints of train.out are damaged, the second place may have one. */
static int resume(struct ls_running *run, bool *resumed, struct ls_error *error)
{
    const struct ls_config *config = run->config;
    int status = ls_trainer_resume(run->trainer, resumed, error);
    if (status != LS_ECKPT || !config->checkpoint.also[0] || strcmp(config->train.resume, "auto"))
        return status;
    int64_t fetched = run->writer && second_copy_restore(run->copy, config, &run->events.log);
    int agreed = ls_all_reduce_max(run->world, &fetched, error);
    if (agreed || !fetched)
        return agreed ? agreed : status;
    return ls_trainer_resume(run->trainer, resumed, error);
}

static int run_open(struct ls_running *run, bool *resumed, struct ls_error *error)
{
    struct ls_config config = *run->config;
    config.checkpoint.async = run->beside ? config.checkpoint.async : false;
    int status = run->writer ? directory_open(run, &run->events.log, error) : LS_OK;
    if (!status && ls_comm_first_on_machine(run->world))
        run_folder_sweep_tiers(run->config, run->writer ? &run->events.log : NULL);
    status = ls_comm_agree(run->world, status, error);
    if (!status)
        status =
            trainer_new(&config, NULL, true, run->world, &run->events.log, &run->trainer, error);
    if (!status) {
        run->config = &run->trainer->config;
        run_trace_open(&run->trace, run->trainer, &run->events.log);
        data_supply_begin(&run->supply, run->trainer, run->hooks->stop,
                          run->writer ? &run->events.log : NULL);
    }
    if (!status)
        status = ls_comm_agree(run->world, replay_admit(run->config, error), error);
    if (!status)
        status = peak_given(run, error);
    if (!status)
        status = state_tell(run, error);
    if (!status)
        status = resume(run, resumed, error);
    if (!status)
        status = drift_watch_open(&run->drift, run->trainer, error);
    if (status) /* a checkpoint may be missing because it was moved */
        return run->writer && run_folder_stays(&run->lock, run->config, error) ? LS_EIO : status;
    status = run->writer ? writer_open(run, *resumed, error) : LS_OK;
    status = ls_comm_agree(run->world, status, error);
    if (!status) /* a start that is refused removes none */
        status = snapshots_open(&run->snapshots, run->trainer, run->snapshots_folder, &run->token,
                                run->writer ? &run->events.log : NULL, error);
    if (!status && run->trainer->peak_flops == 0)
        status = peak_measure(run, error);
    if (status)
        return status;
    status = run->writer ? writer_begin(run, *resumed, error) : LS_OK;
    return ls_comm_agree(run->world, status, error);
}

/* ---- the end --------------------------------------------------------------------------------- */

/* Collective. A run that has no step to do says so, and what it holds. */
static int idle(struct ls_running *run, struct ls_error *error)
{
    struct ls_digest digest;
    char hash[33];
    int status = ls_trainer_hash(run->trainer, &digest, error);
    if (status || !run->writer || !run->hooks->idle)
        return status;
    ls_digest_hex(&digest, hash);
    run->hooks->idle(run->hooks->user, ls_trainer_steps(run->trainer), hash);
    return LS_OK;
}

/* A rank was late, or called something else: every rank tells what it knows before it unwinds. */
static void late(const struct ls_running *run, struct ls_error *error)
{
    struct ls_error ignored = {0};
    const struct ls_config *config = run->config;
    if (ls_comm_size(run->world) == 1)
        return;
    if (!ls_run_late(config->train.out, run->world, error, &ignored))
        ls_string_add(error->text, sizeof error->text, ". ",
                      "The last operations of the ranks are in %s/log", config->train.out);
    train_late_grace(config->comm.timeout_s);
}

/* A run that was asked to end before its last step. A batch system that starts it again would find
 * nothing under the old name, and begin anew: so this is another code where it was moved. */
static int stopped(const struct ls_running *run, struct ls_error *error)
{
    long step = (long)ls_trainer_steps(run->trainer);
    const char *out = run->config->train.out;
    if (run->moved)
        return ls_error_set(error, LS_EIO,
                            "%s was moved while the run wrote to it; the state after step %ld is "
                            "saved in %s/checkpoints: resume with train.out=%s train.resume=auto",
                            run->given->train.out, step, out, out);
    return ls_error_set(error, LS_ESTOPPED,
                        "stopped by a signal after step %ld; the state is saved in "
                        "%s/checkpoints: resume with train.resume=auto",
                        step, out);
}

/* Collective. The signal came in an evaluation, or while ranks waited for a step's data: what the
 * steps before have made is saved as after a step, but not within an interval of workers. Nothing
 * is where no step was done; and the last step has saved already. */
static int wait_stopped(struct ls_running *run, struct ls_error *error)
{
    int64_t step = ls_trainer_steps(run->trainer);
    if (run_begins(run))
        ls_error_suffix(error, "; no step was done, and nothing is saved");
    if (run_begins(run) || step >= ls_config_steps(run->config))
        return LS_ESTOPPED;
    if (run->trainer->workers && run->trainer->failed) {
        ls_error_suffix(error, "; workers save where they meet, and this is between two meetings");
        return LS_ESTOPPED;
    }
    run->stop = true;
    int local = run->writer
                    ? records_judge(&run->records, events_signal(&run->events, error), error)
                    : LS_OK;
    int status = ls_comm_agree(run->world, local, error);
    return status || run_stands(run) ? status : run_saves(run, true, true, true, error);
}

/* ---- step by step ---------------------------------------------------------------------------- */

static const struct ls_run_hooks no_hooks;

static struct ls_running *run_alloc(const struct ls_config *config, struct ls_comm *world,
                                    const struct ls_run_hooks *hooks)
{
    struct ls_running *run = calloc(1, sizeof *run);
    if (!run)
        return NULL;
    run->config = run->given = config;
    run->world = world;
    run->hooks = hooks ? hooks : &no_hooks;
    run->hashed_step = run->best_step = -1;
    run->writer = ls_comm_rank(world) == 0;
    return run;
}

/* alone: no caller changes the state between two steps. A snapshot of workers, which their
 * checkpoints are written from, is complete before a caller can. */
static int run_begin(const struct ls_config *config, struct ls_comm *world,
                     const struct ls_log *log, const struct ls_run_hooks *hooks, bool alone,
                     struct ls_running **out, struct ls_error *error)
{
    struct ls_running *run = run_alloc(config, world, hooks);
    bool resumed = false;
    int status = run ? LS_OK : ls_no_memory(error, "for a run");
    *out = NULL;
    status = ls_comm_agree(world, status, error);
    if (status) {
        free(run);
        return status;
    }
    run->beside = alone || config->async.mode != LS_CONFIG_SYNC;
    events_init(&run->events, log);
    status = run_open(run, &resumed, error);
    if (!status)
        status = resumed ? ended_save(run, error) : first_save(run, error);
    if (!status && resumed)
        status = run_evaluation_make_up(run, error);
    if (!status && ls_run_ended(run))
        status = idle(run, error);
    if (status)
        return ls_run_close(run, status, error);
    run->first_step = ls_trainer_steps(run->trainer);
    run->changes = run->trainer->changes;
    *out = run;
    return LS_OK;
}

int ls_run_open(const struct ls_config *config, struct ls_comm *world, const struct ls_log *log,
                const struct ls_run_hooks *hooks, struct ls_running **out, struct ls_error *error)
{
    return run_begin(config, world, log, hooks, false, out, error);
}

bool run_steps_remain(const struct ls_running *run)
{
    return ls_trainer_steps(run->trainer) < ls_config_steps(run->config);
}

bool ls_run_ended(const struct ls_running *run)
{
    return run->stop || !run_steps_remain(run);
}

struct ls_trainer *ls_run_trainer(struct ls_running *run)
{
    return run->trainer;
}

bool ls_run_waits(const struct ls_running *run)
{
    return run->trainer->waiting != NULL;
}

const char *ls_run_folder(const struct ls_running *run)
{
    return run->config->train.out;
}

int ls_run_step(struct ls_running *run, const struct ls_given_batch *batch,
                struct ls_step_report *report, struct ls_error *error)
{
    run_changes_look(run);
    int status = step(run, batch, report, error);
    return status == LS_ESTOPPED ? wait_stopped(run, error) : status;
}

int ls_run_save(struct ls_running *run, struct ls_error *error)
{
    if (!ls_trainer_meets(run->trainer))
        return ls_error_set(error, LS_EINVAL,
                            "workers save where they meet, and this is between two meetings");
    run_changes_look(run);
    return run_save(run, true, error);
}

/* Collective. Who ends a run keeps what its steps have made, and what was changed since. Between
 * two meetings of workers those up to the next one are computed already, and are told first. */
static int close_save(struct ls_running *run, struct ls_error *error)
{
    struct ls_step_report report;
    int status = LS_OK;
    run_changes_look(run);
    while (!status && !ls_trainer_meets(run->trainer) && !ls_run_ended(run))
        status = step(run, NULL, &report, error);
    return status || run_stands(run) ? status : run_saves(run, true, true, true, error);
}

int ls_run_close(struct ls_running *run, int status, struct ls_error *error)
{
    if (!run)
        return status;
    struct ls_comm *world = run->world;
    if (!status)
        status = close_save(run, error);
    if (run->trainer)
        run_save_end(run, !status || status == LS_ENUMERIC || status == LS_ESTOPPED ||
                              ls_comm_size(world) == 1);
    run_trace_close(&run->trace);
    if (!status && run->stop && run_steps_remain(run))
        status = stopped(run, error);
    if (status == LS_ECOMM && error && !workers_rescue(run->trainer, error))
        late(run, error);
    if (!status || status == LS_ESTOPPED) /* after a failure the next start goes on at once */
        second_copy_finish(run->copy);
    run_copies_tell(run, NULL);
    second_copy_close(run->copy);
    records_tell_lost(&run->records);
    events_end(&run->events, status, error, NULL);
    records_close(&run->records);
    bool stopped_whole = status == LS_ESTOPPED && run->trainer && run_stands(run);
    snapshots_close(&run->snapshots, status && !stopped_whole);
    drift_watch_close(&run->drift);
    ls_trainer_free(run->trainer);
    ls_lock_release(&run->lock);
    free(run);
    /* A process that returns with this ends its job: not before rank 0 has written how it ended. */
    if (status == LS_ESTOPPED)
        ls_comm_agree(world, LS_OK, NULL);
    return status;
}

int ls_run(const struct ls_config *config, struct ls_comm *world, const struct ls_log *log,
           const struct ls_run_hooks *hooks, struct ls_error *error)
{
    struct ls_running *run;
    struct ls_step_report report;
    int status = run_begin(config, world, log, hooks, true, &run, error);
    if (status)
        return status;
    while (!status && !ls_run_ended(run))
        status = ls_run_step(run, NULL, &report, error);
    return ls_run_close(run, status, error);
}
