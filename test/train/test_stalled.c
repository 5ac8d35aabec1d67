/* A stop while ranks wait for data of a server that says nothing: the state after the last step is
 * saved, on all ranks, and the run that goes on from it ends with the bits of one that was not
 * stopped. */
#include "../support/config_words.h"
#include "../support/extent.h"
#include "../support/s3_server.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "tokens.h"

#include <lockstep/ckpt.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 6, STOP_AT = 3 };

static struct s3_server *server;
static const char *directory;
static char expected[33];

struct job {
    struct ls_config config;
    bool stalls; /* from the run's first step on the server says nothing */
    int stop_at; /* the signal comes after this step's record; 0: never; -1: before the first */
    int stop;
    bool apart;          /* rank 1 hears of no stop, and evaluates on a copy of its own */
    int64_t last, saved; /* steps */
    char hash[33];       /* of the last */
    int status[2];       /* of the ranks */
};

/* The stores are open, and no sample was asked for. */
static void on_start(void *user, const struct ls_config *config, const struct ls_memory_plan *plan,
                     const struct ls_params *params, int64_t first_step)
{
    struct job *job = user;
    s3_server_fail(server, job->stalls ? S3_STALL : S3_SOUND, 1, true);
    if (job->stop_at < 0)
        __atomic_store_n(&job->stop, 1, __ATOMIC_RELAXED);
}

/* After a record ranks have agreed whether to stop: they learn of this in the next wait. */
static void on_step(void *user, const struct ls_step_report *report)
{
    struct job *job = user;
    job->last = report->step;
    memcpy(job->hash, report->hash, sizeof job->hash);
    if (report->step == job->stop_at)
        __atomic_store_n(&job->stop, 1, __ATOMIC_RELAXED);
}

static void on_save(void *user, int64_t step)
{
    ((struct job *)user)->saved = step;
}

static int run_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct job *job = user;
    struct ls_run_hooks hooks = {.user = job, .stop = &job->stop};
    struct ls_config config = job->config;
    int rank = ls_comm_rank(world);
    if (rank == 0) {
        hooks.started = on_start;
        hooks.stepped = on_step;
        hooks.saved = on_save;
    } else if (job->apart) {
        hooks.stop = NULL;
        snprintf(config.data.valid, sizeof config.data.valid, "u16:%s/tokens.bin", directory);
    }
    return job->status[rank] = ls_run(&config, world, NULL, &hooks, error);
}

/* From step 4 on half of the samples are the server's. */
static int run_once(struct job *job, const char *keys, struct ls_error *error)
{
    const char *url = s3_server_url(server, "data/tokens");
    job->last = job->saved = -1;
    s3_server_fail(server, S3_SOUND, 0, false);
    job->config = config_of_words(
        "model.layers=2 model.channels=32 model.heads=2 model.vocab=50 model.context=16 "
        "batch.global=4 parallel.threads=1 log.tensorboard=false train.resume=auto train.keep=9 "
        "log.hash_every=1 optim.decay_steps=6 numerics.arithmetic=fma train.steps=%d "
        "data.blend=[{\"source\":\"u16:%s/tokens.bin\",\"weight\":1},"
        "{\"source\":\"u16:%s\",\"weight\":1,\"from_step\":%d}] train.out=%s/run %s",
        STEPS, directory, url, STOP_AT, directory, keys);
    return ls_world_run(2, run_body, job, error);
}

static void run_well(struct job *job, const char *keys)
{
    struct ls_error error = {0};
    *job = (struct job){.stop = 0};
    if (run_once(job, keys, &error))
        fail_msg("%s: %s", keys, error.text);
    assert_int_equal(job->last, STEPS);
}

static void run_forget(void)
{
    char line[PATH_MAX + 32];
    snprintf(line, sizeof line, "rm -rf '%s/run'", directory);
    assert_int_equal(system(line), 0);
}

static void undisturbed(void)
{
    struct job job;
    if (expected[0])
        return;
    run_well(&job, "parallel.dp=2");
    memcpy(expected, job.hash, sizeof expected);
    run_forget();
}

static const char *const layouts[] = {
    "parallel.dp=2", "parallel.pp=2 batch.micro=1 parallel.zero=1",
    "parallel.dp=2 train.save_every=2", "parallel.dp=2 snapshot.every=1 train.save_every=2"};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

CASE(test_a_step_that_waits)
{
    undisturbed();
    for (int i = 0; i < LAYOUTS; i++) {
        struct job job = {.stalls = true, .stop_at = STOP_AT};
        struct ls_error error = {0};
        char keys[512];
        snprintf(keys, sizeof keys, "%s snapshot.folder=%s/memory", layouts[i], directory);
        assert_int_equal(run_once(&job, keys, &error), LS_ESTOPPED);
        assert_non_null(strstr(error.text, "stopped by a signal after step 3; the state is saved"));
        assert_int_equal(job.last, STOP_AT);
        assert_int_equal(job.saved, STOP_AT);
        run_well(&job, "parallel.dp=2");
        assert_string_equal(job.hash, expected);
        run_forget();
    }
}

/* A twin that lost the checkpoint would begin anew; so does a run that has none to go on from. */
CASE(test_a_first_step_that_waits)
{
    struct job job = {.stalls = true, .stop_at = -1};
    struct ls_error error = {0};
    int count;
    const char *none = "parallel.dp=2 data.blend=[{\"source\":\"u16:%s\",\"weight\":1}]";
    char keys[512];
    snprintf(keys, sizeof keys, none, s3_server_url(server, "data/tokens"));
    assert_int_equal(run_once(&job, keys, &error), LS_ESTOPPED);
    assert_non_null(strstr(error.text, "no step was done, and nothing is saved"));
    assert_int_equal(job.last, -1);
    assert_int_equal(ls_checkpoint_count(job.config.train.out, &count, &error), 0);
    assert_int_equal(count, 0);
    run_forget();
}

/* Steps read local data; the evaluation after the second waits for the server. */
CASE(test_an_evaluation_that_waits)
{
    char keys[1024];
    struct job job = {.stalls = true, .stop_at = 2};
    struct ls_error error = {0};
    snprintf(keys, sizeof keys,
             "parallel.dp=2 data.blend= data.train=u16:%s/tokens.bin eval.every=2 eval.samples=4 "
             "data.valid=u16:%s",
             directory, s3_server_url(server, "data/tokens"));
    assert_int_equal(run_once(&job, keys, &error), LS_ESTOPPED);
    assert_non_null(strstr(error.text, "after step 2; the state is saved"));
    assert_int_equal(job.saved, 2);
    run_forget();
}

/* Two workers, of which one hears of the stop as it waits: the other stops with it, where they met,
 * and the run goes on to the bits of one that was not stopped. */
static void expect_workers_stop(const char *mode)
{
    char keys[1024], whole[33];
    struct job job;
    struct ls_error error = {0};
    snprintf(keys, sizeof keys,
             "%s async.workers=2 parallel.workers=2 data.blend= data.train=u16:%s/tokens.bin "
             "eval.every=2 eval.samples=4 data.valid=u16:%s",
             mode, directory, s3_server_url(server, "data/tokens.bin"));
    run_well(&job, keys);
    memcpy(whole, job.hash, sizeof whole);
    run_forget();
    job = (struct job){.stalls = true, .stop_at = 2, .apart = true};
    assert_int_equal(run_once(&job, keys, &error), LS_ESTOPPED);
    assert_int_equal(job.status[1], LS_ESTOPPED);
    assert_non_null(strstr(error.text, "after step 2; the state is saved"));
    assert_int_equal(job.saved, 2);
    run_well(&job, keys);
    assert_string_equal(job.hash, whole);
    run_forget();
}

CASE(test_an_evaluation_of_workers_that_waits)
{
    expect_workers_stop("async.mode=diloco async.sync_every=2");
    if (check_all())
        expect_workers_stop("async.mode=server async.sync_every=2");
}

/* ---------------------------------------------------------------------------------------------- */

static int setup(void **state)
{
    size_t bytes;
    setenv("LOCKSTEP_PEAK_FLOPS", "1e12", 1); /* it is not measured */
    server = s3_server_start();
    if (tokens_setup(state))
        return -1;
    directory = *state;
    char *tokens = scratch_read(scratch_path(directory, "tokens.bin"), &bytes);
    s3_server_place_bytes(server, "data/tokens", tokens, bytes);
    s3_server_place_bytes(server, "data/tokens.bin", tokens, bytes);
    free(tokens);
    return 0;
}

static int teardown(void **state)
{
    s3_server_stop(server);
    return scratch_teardown(state);
}

SUITE_MAIN(setup, teardown)
