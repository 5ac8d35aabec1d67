/* What a caller of ls_run_open changes between two steps: later hashes, checkpoints and the end of
 * the run are of the new state, no rank is blamed for it, and what fell due before is of the old
 * one. And what a signal ends that came behind a step. */
#include "../support/config_words.h"
#include "../support/extent.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "../support/wrapped.h"
#include "tokens.h"
#include "train/run_private.h"

#include <lockstep/compare.h>
#include <lockstep/train.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEP = 2, STEPS = 3 };
#define DILOCO "async.mode=diloco async.workers=2 async.sync_every=1 "

static bool stops; /* a signal ends the wait for samples */

WRAPPED(ls_loader_take);
int __wrap_ls_loader_take(struct ls_loader *loader, const int32_t **inputs, const int32_t **targets,
                          double *wait_s, struct ls_error *error)
{
    return stops ? ls_error_set(error, LS_ESTOPPED, "a signal came")
                 : __real_ls_loader_take(loader, inputs, targets, wait_s, error);
}

static _Thread_local bool full; /* the disk */

WRAPPED(trainer_save);
int __wrap_trainer_save(struct ls_trainer *t, const struct ls_digest *hash, struct ls_error *error)
{
    return full ? ls_error_set(error, LS_ENOSPC, "the disk is full")
                : __real_trainer_save(t, hash, error);
}

static volatile int signalled; /* with the evaluation of this number, from 1; 0: with none */
static int evaluations, signalled_at;

WRAPPED(ls_runner_evaluate);
int __wrap_ls_runner_evaluate(struct ls_runner *runner, const struct ls_token_store *store,
                              int64_t sequences, struct ls_eval_report *report, float **logprobs,
                              struct ls_error *error)
{
    signalled = ++evaluations == signalled_at;
    return __real_ls_runner_evaluate(runner, store, sequences, report, logprobs, error);
}

static int64_t purged; /* what TensorBoard drops of older files, from this step on */

WRAPPED(ls_tensorboard_open);
int __wrap_ls_tensorboard_open(struct ls_tensorboard **out, const char *directory,
                               double wall_time_s, int64_t purge_step, struct ls_error *error)
{
    purged = purge_step;
    return __real_ls_tensorboard_open(out, directory, wall_time_s, purge_step, error);
}

/* The first element of each parameter, wherever this rank has it. */
static int change(struct ls_trainer *t, bool tells, struct ls_error *error)
{
    const struct ls_params *params = ls_trainer_params(t);
    struct ls_dtensor tensor;
    int status = LS_OK;
    for (int i = 0; i < params->count && !status; i++) {
        status = ls_trainer_dtensor(t, i, LS_TENSOR_PARAMETER, &tensor, error);
        if (!status && tensor.local_count > 0)
            *(float *)tensor.data += 1;
    }
    return status || !tells ? status : ls_trainer_publish(t, error);
}

/* A run that is changed behind its step STEP, and then saved, closed, or goes on. */
struct job {
    struct ls_config config;
    bool saves, closes, dies, silent, fills;
    volatile int stops; /* a signal ends the run with its first step */
    char before[33], after[33], resumed[33];
    bool stood; /* a checkpoint or snapshot of the step, when that returned */
};

static int hash_take(struct ls_trainer *t, char text[33], struct ls_error *error)
{
    struct ls_digest digest;
    char hash[33];
    int status = ls_trainer_hash(t, &digest, error);
    ls_digest_hex(&digest, hash);
    if (!status && ls_comm_rank(t->whole) == 0)
        memcpy(text, hash, sizeof hash);
    return status;
}

/* The newest checkpoint of the run on the disk, or in memory if it has snapshots. */
static bool stands(const struct ls_config *config)
{
    char folder[PATH_MAX];
    int64_t *steps = NULL, count = 0;
    bool memory = config->train.save_every == 0 && ls_run_has_snapshot(config, folder);
    int status = ls_checkpoint_steps(memory ? folder : config->train.out, &steps, &count, NULL);
    bool newest = !status && count > 0 && steps[0] == STEP;
    free(steps);
    return newest;
}

static int changed_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct job *job = user;
    const struct ls_run_hooks hooks = {.stop = &job->stops};
    struct ls_running *run;
    struct ls_step_report report;
    int status = ls_run_open(&job->config, world, NULL, &hooks, &run, error);
    for (int i = 0; i < STEP && !status && !ls_run_ended(run); i++)
        status = ls_run_step(run, NULL, &report, error);
    if (!status && ls_comm_rank(world) == 0)
        job->stood = stands(&job->config);
    struct ls_trainer *t = status ? NULL : ls_run_trainer(run);
    if (!status)
        status = hash_take(t, job->before, error);
    if (!status)
        status = change(t, !job->silent, error);
    if (!status)
        status = hash_take(t, job->after, error);
    full = job->fills;
    if (!status && job->saves)
        status = ls_run_save(run, error);
    full = false;
    while (!status && !job->closes && !ls_run_ended(run))
        status = ls_run_step(run, NULL, &report, error);
    /* Nothing follows: as where a run is killed. */
    bool dies = !status && (job->saves || job->dies);
    return ls_run_close(run, dies ? LS_ENUMERIC : status, error);
}

static int resumed_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct job *job = user;
    struct ls_running *run;
    struct ls_step_report report;
    int status = ls_run_open(&job->config, world, NULL, NULL, &run, error);
    if (!status)
        status = hash_take(ls_run_trainer(run), job->resumed, error);
    if (!status && stops)
        status = ls_run_step(run, NULL, &report, error);
    return ls_run_close(run, status, error);
}

static struct job job_of(void **state, const char *words)
{
    static int number;
    return (struct job){
        .config = config_of_words(
            "model.vocab=50 model.vocab_multiple=16 model.layers=1 model.channels=16 model.heads=2 "
            "model.context=16 data.train=u16:%s/tokens.bin data.sequence=16 batch.global=2 "
            "parallel.threads=1 log.tensorboard=false train.steps=%d train.resume=auto "
            "numerics.arithmetic=fma train.out=%s/run%d snapshot.folder=%s %s",
            (char *)*state, STEPS, (char *)*state, ++number, (char *)*state, words)};
}

typedef int rank_body(struct ls_comm *world, void *user, struct ls_error *error);

static int job_run(struct job *job, rank_body *body, struct ls_error *error)
{
    *error = (struct ls_error){0};
    return ls_world_run((int)ls_config_ranks(&job->config), body, job, error);
}

static void expect_new_state(struct job *job)
{
    struct ls_error error;
    assert_ok(job_run(job, resumed_body, &error), error);
    assert_string_not_equal(job->before, job->after);
    assert_string_equal(job->after, job->resumed);
}

/* The step's own checkpoint has its hash; the new one is of the new state. */
CASE(test_what_is_saved_is_the_new_state)
{
    struct ls_error error;
    struct job job = job_of(state, check_all() ? "train.save_every=2 parallel.dp=2 parallel.zero=1"
                                               : "train.save_every=2");
    job.saves = job.closes = true;
    assert_int_equal(job_run(&job, changed_body, &error), LS_ENUMERIC);
    assert_true(job.stood);
    expect_new_state(&job);
}

CASE(test_the_end_saves_the_new_state)
{
    struct ls_error error;
    struct job job = job_of(state, "train.save_every=2");
    job.closes = true;
    assert_ok(job_run(&job, changed_body, &error), error);
    expect_new_state(&job);
}

/* Also if a signal made the step the last, which had saved. */
CASE(test_the_end_after_a_signal_saves_the_new_state)
{
    struct ls_error error;
    struct job job = job_of(state, "");
    job.closes = true;
    job.stops = 1;
    assert_int_equal(job_run(&job, changed_body, &error), LS_ESTOPPED);
    expect_new_state(&job);
}

/* The step STEP is evaluated, and is the best one. */
static struct job best_job(void **state, const char *words)
{
    char all[PATH_MAX];
    snprintf(all, sizeof all,
             "train.keep_best=true eval.every=2 eval.samples=2 data.valid=u16:%s/valid.bin %s",
             (char *)*state, words);
    struct job job = job_of(state, all);
    job.saves = job.closes = true;
    return job;
}

/* -1: there is none. */
static int64_t best_of(const struct job *job)
{
    struct ls_error error = {0};
    struct ls_checkpoint_best best;
    bool found;
    assert_ok(ls_checkpoint_best_read(job->config.train.out, &best, &found, &error), error);
    return found ? best.step : -1;
}

static void record_add(const struct job *job, const char *line)
{
    FILE *records = fopen(scratch_path(job->config.train.out, "metrics.jsonl"), "a");
    assert_non_null(records);
    assert_true(fputs(line, records) >= 0);
    assert_int_equal(fclose(records), 0);
}

/* A checkpoint whose state was not evaluated is not the best, also for a run that goes on from it,
 * and where the one that was is still being stored as the state is changed. */
CASE(test_what_was_changed_is_not_the_best)
{
    static const char *const words[] = {"train.save_every=1",
                                        DILOCO "snapshot.every=1 train.save_every=2"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        struct ls_error error;
        struct job job = best_job(state, words[i]);
        assert_int_equal(job_run(&job, changed_body, &error), LS_ENUMERIC);
        assert_int_equal(best_of(&job), -1);
        record_add(&job, "{\"step\": 2.5, \"validation_loss\": 0.5, \"sequences\": 2}\n");
        expect_new_state(&job);
        assert_int_equal(best_of(&job), -1);
    }
}

static int run_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct job *job = user;
    const struct ls_run_hooks hooks = {.stop = &job->stops};
    return ls_run(&job->config, world, NULL, &hooks, error);
}

/* ---- a signal and evaluations ---------------------------------------------------------------- */

static int signalled_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct job *job = user;
    const struct ls_run_hooks hooks = {.stop = &signalled};
    return ls_run(&job->config, world, NULL, &hooks, error);
}

/* A start that ends with status, has one evaluation less than it began if that was interrupted, and
 * leaves a checkpoint of the step. */
static void expect_evaluations(struct job *job, int at, int status, int begun, int64_t step)
{
    struct ls_error error;
    int64_t *steps = NULL, count = 0;
    evaluations = 0;
    signalled_at = at;
    int got = job_run(job, signalled_body, &error);
    if (got != status)
        fail_msg("%d instead of %d: %s", got, status, error.text);
    assert_int_equal(evaluations, begun);
    assert_ok(ls_checkpoint_steps(job->config.train.out, &steps, &count, &error), error);
    assert_true(count > 0);
    assert_int_equal(steps[0], step);
    free(steps);
}

static void expect_evaluated(const struct job *job, const double *steps, size_t count)
{
    struct ls_error error = {0};
    struct ls_series series;
    static const char *const key[] = {"validation_loss"};
    const char *path = scratch_path(job->config.train.out, "metrics.jsonl");
    assert_ok(ls_series_read(&series, path, "step", key, 1, &error), error);
    assert_int_equal(series.count, count);
    for (size_t i = 0; i < count; i++)
        assert_true(series.x[i] == steps[i]);
    ls_series_release(&series);
}

/* A signal in an evaluation ends the run at that step, and the next start makes the evaluation up,
 * where another signal ends it too. That of the last step is finished. */
CASE(test_a_signal_ends_an_evaluation)
{
    struct job job = best_job(state, "eval.every=1");
    expect_evaluations(&job, 2, LS_ESTOPPED, 2, 2);
    expect_evaluated(&job, (double[]){1}, 1);
    expect_evaluations(&job, 1, LS_ESTOPPED, 1, 2);
    expect_evaluated(&job, (double[]){1}, 1);
    expect_evaluations(&job, 2, LS_OK, 2, STEPS);
    expect_evaluated(&job, (double[]){1, 2, 3}, 3);
    signalled = 0;
}

/* A signal with a step that an evaluation would follow: the run saves, and begins none. */
CASE(test_a_signal_before_an_evaluation)
{
    struct ls_error error;
    struct job job = best_job(state, "eval.every=1");
    job.stops = 1;
    evaluations = signalled_at = 0;
    assert_int_equal(job_run(&job, run_body, &error), LS_ESTOPPED);
    assert_int_equal(evaluations, 0);
    expect_evaluations(&job, 0, LS_OK, STEPS, STEPS);
    expect_evaluated(&job, (double[]){1, 2, 3}, 3);
}

/* A run that goes on from the initial weights has the evaluations of one that was not stopped. */
CASE(test_the_initial_weights_are_not_evaluated)
{
    struct ls_error error;
    struct job job = best_job(state, "eval.every=1 train.save_first=true");
    assert_ok(job_run(&job, resumed_body, &error), error); /* opens it, and closes it */
    assert_true(ls_checkpoint_there(job.config.train.out, 0));
    assert_ok(job_run(&job, run_body, &error), error);
    expect_evaluated(&job, (double[]){1, 2, 3}, 3);
}

/* ---- records --------------------------------------------------------------------------------- */

/* The chain of records goes on from the last step: a record of none is no link. */
CASE(test_what_is_no_step_is_not_in_the_chain)
{
    struct ls_error error;
    struct ls_run_record record = {0};
    struct job job = job_of(state, "");
    job.stops = 1;
    assert_int_equal(job_run(&job, run_body, &error), LS_ESTOPPED);
    record_add(&job, "{\"step\": 1.5, \"loss_bits\": \"40000000\", \"chain\": \"0123\"}\n");
    job.stops = 0;
    assert_ok(job_run(&job, run_body, &error), error);
    assert_ok(ls_run_record_read(&record, job.config.train.out, &error), error);
    assert_int_equal(record.chain.records, STEPS);
    if (record.chain.broken)
        fail_msg("%s", record.chain.why);
    ls_run_record_release(&record);
}

/* TensorBoard shows each step once: also those of a run that begins anew where an earlier one left
 * records and no checkpoint. */
CASE(test_tensorboard_drops_what_is_computed_again)
{
    struct ls_error error;
    struct job job = job_of(state, "");
    job.config.log.tensorboard = true;
    job.stops = 1;
    assert_int_equal(job_run(&job, run_body, &error), LS_ESTOPPED);
    job.stops = 0;
    assert_ok(job_run(&job, run_body, &error), error);
    assert_int_equal(purged, 2);
    assert_int_equal(rename(scratch_path(job.config.train.out, "checkpoints"),
                            scratch_path(job.config.train.out, "gone")),
                     0);
    assert_ok(job_run(&job, run_body, &error), error);
    assert_int_equal(purged, 0);
}

/* Behind the step before. */
static int earlier_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct job *job = user;
    struct ls_running *run;
    struct ls_step_report report;
    int status = ls_run_open(&job->config, world, NULL, NULL, &run, error);
    for (int i = 0; i < STEP && !status; i++) {
        if (i == STEP - 1)
            status = change(ls_run_trainer(run), true, error);
        if (!status)
            status = ls_run_step(run, NULL, &report, error);
    }
    if (!status)
        status = ls_run_save(run, error);
    return ls_run_close(run, status, error);
}

/* A change that the step was computed with is evaluated with it. */
CASE(test_what_was_changed_before_is_the_best)
{
    struct ls_error error;
    struct job job = best_job(state, DILOCO "snapshot.every=1 train.save_every=2");
    assert_ok(job_run(&job, earlier_body, &error), error);
    assert_int_equal(best_of(&job), STEP);
}

/* Where the new state cannot be saved, the checkpoint is still of the one that was evaluated: that
 * is the best, also by the records. So it is for a start that first wants to keep the best. */
CASE(test_what_cannot_be_replaced_is_still_the_best)
{
    static const char *const words[] = {"train.save_every=1",
                                        "train.save_every=1 train.keep_best=false"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        struct ls_error error;
        struct job job = best_job(state, words[i]);
        job.fills = true;
        assert_int_equal(job_run(&job, changed_body, &error), LS_ENOSPC);
        assert_int_equal(best_of(&job), job.config.train.keep_best ? STEP : -1);
        unlink(scratch_path(job.config.train.out, "checkpoints/best"));
        job.config.train.keep_best = true;
        assert_ok(job_run(&job, resumed_body, &error), error);
        assert_string_equal(job.resumed, job.before);
        assert_int_equal(best_of(&job), STEP);
    }
}

/* Of two that were the best one after the other, the first one is again, where it is there. */
CASE(test_the_best_before_is_the_best_again)
{
    struct ls_error error;
    struct job job = best_job(state, "train.save_every=1");
    const char *out = job.config.train.out;
    assert_int_equal(job_run(&job, changed_body, &error), LS_ENUMERIC);
    for (int before = 1; before <= STEPS; before += STEPS - 1) { /* the last one is not there */
        const struct ls_checkpoint_best first = {before, 3, 2}, second = {STEP, 2, 2};
        struct best_records records = BEST_RECORDS_NONE;
        assert_true(best_records_take(&records, &first) && best_records_take(&records, &second));
        assert_false(best_records_drop(&records, out, before));
        assert_true(best_records_drop(&records, out, STEP));
        assert_int_equal(records.best.step, before == 1 ? 1 : -1);
        assert_true(best_records_restore(&records, STEP));
        assert_int_equal(records.best.step, STEP);
        assert_true(best_records_drop(&records, out, STEP));
        assert_false(
            best_records_drop(&records, out, STEP)); /* of a state that was not evaluated */
        assert_false(best_records_restore(&records, STEP));
        assert_int_equal(records.best.step, before == 1 ? 1 : -1);
    }
}

/* Losses of other validation data are not compared with those of these, and are those of a later
 * start that has them again. */
CASE(test_the_best_is_of_the_same_data)
{
    struct ls_error error = {0};
    struct job job = best_job(state, "eval.every=1 train.keep=9 train.save_every=1");
    const struct ls_checkpoint_best low = {.step = STEPS, .loss = 0.01, .sequences = 2};
    size_t bytes;
    char *tokens = scratch_read(scratch_path(*state, "valid.bin"), &bytes);
    scratch_write(scratch_path(*state, "other.bin"), tokens + 2, bytes - 2);
    free(tokens);
    assert_ok(job_run(&job, run_body, &error), error);
    record_add(&job, "{\"step\": 3, \"validation_loss\": 0.01, \"sequences\": 2}\n");
    assert_ok(ls_checkpoint_best_write(job.config.train.out, &low, &error), error);
    static const struct {
        const char *valid;
        int64_t best;
    } starts[] = {{"valid", STEPS}, {"other", STEPS + 2}, {"valid", STEPS}};
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        job.config.train.extend = (int64_t)i + 1;
        snprintf(job.config.data.valid, sizeof job.config.data.valid, "u16:%s/%s.bin",
                 (char *)*state, starts[i].valid);
        assert_ok(job_run(&job, run_body, &error), error);
        assert_int_equal(best_of(&job), starts[i].best);
    }
}

static int refused_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct job *job = user;
    struct ls_running *run;
    struct ls_error why = {0};
    int status = ls_run_open(&job->config, world, NULL, NULL, &run, error);
    if (!status && ls_trainer_load(ls_run_trainer(run), job->config.data.train, &why) == LS_OK)
        status = ls_error_set(error, LS_EINVAL, "tokens were loaded as weights");
    return ls_run_close(run, status, error);
}

/* What changes nothing is not saved. */
CASE(test_a_model_that_is_refused_is_no_change)
{
    struct ls_error error;
    struct job job = job_of(state, "");
    int count;
    assert_ok(job_run(&job, refused_body, &error), error);
    assert_ok(ls_checkpoint_count(job.config.train.out, &count, &error), error);
    assert_int_equal(count, 0);
}

/* Checkpoints that are due with snapshots, and snapshots, have the values from before the caller
 * wrote. */
CASE(test_what_is_due_stands_before)
{
    static const char *const words[] = {"snapshot.every=2 train.save_every=0",
                                        "snapshot.every=1 train.save_every=2"};
    for (size_t i = check_all() ? 0 : 1; i < sizeof words / sizeof *words; i++) {
        struct ls_error error;
        struct job job = job_of(state, words[i]);
        job.dies = job.closes = true;
        assert_int_equal(job_run(&job, changed_body, &error), LS_ENUMERIC);
        assert_true(job.stood);
        assert_string_not_equal(job.before, job.after);
        assert_ok(job_run(&job, resumed_body, &error), error);
        assert_string_equal(job.before, job.resumed);
    }
}

/* A run that goes on from a snapshot and ends before its first step, by itself or by a signal: what
 * the snapshot had is not lost. Workers, which cannot save, leave the snapshot. */
CASE(test_what_came_of_a_snapshot_is_kept)
{
    static const struct {
        const char *words;
        bool stops;
    } ends[] = {{"", false}, {"", true}, {DILOCO, true}};
    for (size_t i = 0; i < (check_all() ? sizeof ends / sizeof *ends : 1); i++) {
        struct ls_error error;
        char words[200];
        snprintf(words, sizeof words, "snapshot.every=1 train.save_every=0 %s", ends[i].words);
        struct job job = job_of(state, words);
        job.dies = job.closes = true;
        assert_int_equal(job_run(&job, changed_body, &error), LS_ENUMERIC);
        stops = ends[i].stops;
        assert_int_equal(job_run(&job, resumed_body, &error), stops ? LS_ESTOPPED : LS_OK);
        stops = false;
        assert_string_equal(job.resumed, job.before);
        assert_ok(job_run(&job, resumed_body, &error), error);
        assert_string_equal(job.resumed, job.before);
    }
}

static int met_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct job *job = user;
    struct ls_running *run;
    struct ls_step_report report;
    struct ls_error why = {0};
    int status = ls_run_open(&job->config, world, NULL, NULL, &run, error), between = LS_OK;
    if (!status)
        status = ls_run_step(run, NULL, &report, error);
    if (!status)
        between = ls_trainer_load(ls_run_trainer(run), job->config.train.out, &why);
    while (!status && !ls_run_ended(run))
        status = ls_run_step(run, NULL, &report, error);
    if (!status)
        status = ls_trainer_load(ls_run_trainer(run), job->config.train.out, error);
    if (!status && (between != LS_EINVAL || !strstr(why.text, "workers load where they meet")))
        status = ls_error_set(error, LS_EINVAL, "between two meetings: %d: %s", between, why.text);
    return ls_run_close(run, status, error);
}

/* Between two meetings steps are computed that were not told yet. */
CASE(test_workers_load_where_they_meet)
{
    struct ls_error error;
    struct job job = job_of(state, "async.mode=diloco async.workers=2 async.sync_every=3 "
                                   "train.save_first=true");
    assert_ok(job_run(&job, met_body, &error), error);
}

/* A change that is told is no fault of memory. Its twin, which is not told, is. */
CASE(test_no_rank_is_blamed)
{
    struct ls_error error;
    struct job job = job_of(state, "check.replay=1 parallel.dp=2");
    assert_ok(job_run(&job, changed_body, &error), error);
    job = job_of(state, "check.replay=1 parallel.dp=2");
    job.silent = true;
    assert_int_equal(job_run(&job, changed_body, &error), LS_ENUMERIC);
    assert_non_null(strstr(error.text, "changed between steps 2 and 3"));
}

int main(void)
{
    setenv("LOCKSTEP_PEAK_FLOPS", "1e12", 1);
    return suite_run(tokens_setup, scratch_teardown);
}
