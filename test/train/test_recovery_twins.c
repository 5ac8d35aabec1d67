/* Broken twins of a recovery: a restore that forgets the loss scale or skips a batch, a start that
 * is not fenced off, and a copy of a snapshot that is one step old. */
#include "../../src/ckpt/exchange.h"
#include "../support/config_words.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "../support/wrapped.h"
#include "machines_apart.h"
#include "tokens.h"

#include <lockstep/ckpt.h>
#include <lockstep/state.h>

#include <signal.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STEPS = 6, KILLED = 5 };

/* ---- the twins ------------------------------------------------------------------------------- */

static enum { HONEST, SCALE_FORGOTTEN, BATCH_SKIPPED, NOT_FENCED, COPY_STALE } twin;

/* What is loaded becomes what is computed with: the last step of a restore, before its check. */
WRAPPED(ls_state_publish);
int __wrap_ls_state_publish(struct ls_state *state, struct ls_error *error)
{
    if (state->step > 0 && twin == SCALE_FORGOTTEN)
        state->loss_scale.scale = 0x1p8; /* as it was before step 1; it has grown */
    if (state->step > 0 && twin == BATCH_SKIPPED)
        state->samples += state->config->batch.global;
    return __real_ls_state_publish(state, error);
}

WRAPPED(ckpt_token_check);
int __wrap_ckpt_token_check(const char *directory, int64_t start, struct ls_error *error)
{
    return twin == NOT_FENCED ? LS_OK : __real_ckpt_token_check(directory, start, error);
}

/* A file that came from another machine; the twin keeps what came in the step before. */
static void copy_keep(int rank, const char *directory, const char *name)
{
    enum { RANKS = 2, FILES_MAX = 8 };
    static struct kept {
        char name[64], *bytes;
        size_t size;
    } kept[RANKS][FILES_MAX];
    char path[PATH_MAX];
    size_t size;
    struct kept *of = kept[rank];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    char *bytes = scratch_read(path, &size);
    while (of->bytes && strcmp(of->name, name) != 0)
        of++;
    if (of->bytes && twin == COPY_STALE)
        scratch_write(path, of->bytes, of->size);
    free(of->bytes);
    snprintf(of->name, sizeof of->name, "%s", name);
    of->bytes = bytes;
    of->size = size;
}

WRAPPED(ckpt_files_move);
int __wrap_ckpt_files_move(const char *directory, struct ls_comm *comm,
                           const struct ckpt_move *moves, size_t count, struct ls_error *error)
{
    int status = __real_ckpt_files_move(directory, comm, moves, count, error);
    for (size_t i = 0; i < count && !status; i++)
        if (moves[i].to == ls_comm_rank(comm))
            copy_keep(moves[i].to, directory, moves[i].name);
    return status;
}

/* ---- runs ------------------------------------------------------------------------------------ */

static const char *directory; /* of the test: `run` in it, and `memory0`, `memory1`, by machine */

struct job {
    struct ls_config config;
    void (*stepped)(const struct ls_step_report *report);
    char said[4096];
    int64_t first; /* step */
    char hash[33]; /* after the last step */
    struct ls_error error;
};

static void say(void *user, enum ls_log_level level, const char *message)
{
    struct job *job = user;
    size_t used = strlen(job->said);
    if (level <= LS_LOG_WARNING)
        snprintf(job->said + used, sizeof job->said - used, "%s\n", message);
}

static void on_step(void *user, const struct ls_step_report *report)
{
    struct job *job = user;
    job->first = job->first ? job->first : report->step;
    memcpy(job->hash, report->hash, sizeof report->hash);
    if (job->stepped)
        job->stepped(report);
}

/* A machine's memory is its own. */
static int run_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct job *job = user;
    const struct ls_run_hooks hooks = {.user = job, .stepped = on_step};
    const struct ls_log log = {.write = say, .user = job, .level_max = LS_LOG_INFO};
    struct ls_config config = job->config;
    bool first = ls_comm_rank(world) == 0;
    snprintf(config.snapshot.folder, sizeof config.snapshot.folder, "%s/memory%d", directory,
             apart ? ls_comm_rank(world) : 0);
    return ls_run(&config, world, first ? &log : NULL, first ? &hooks : NULL, error);
}

static int run_once(struct job *job, const char *keys)
{
    job->config = config_of_words(
        "model.layers=1 model.channels=32 model.heads=2 model.vocab=50 model.context=16 "
        "batch.global=4 parallel.threads=1 log.tensorboard=false train.resume=auto train.keep=9 "
        "optim.decay_steps=6 numerics.arithmetic=fma numerics.precision=fp16 "
        "numerics.initial_scale_power=8 numerics.loss_scale_window=1 data.train=u16:%s/tokens.bin "
        "train.steps=%d train.out=%s/run snapshot.folder=%s %s",
        directory, STEPS, directory, directory, keys);
    return ls_world_run((int)ls_config_ranks(&job->config), run_body, job, &job->error);
}

static void shell(const char *words)
{
    char line[PATH_MAX + 256];
    snprintf(line, sizeof line, "cd '%s' && %s", directory, words);
    assert_int_equal(system(line), 0);
}

static void kill_at(const struct ls_step_report *report)
{
    if (report->step == KILLED)
        raise(SIGKILL);
}

/* Begins anew, in a process that is killed. */
static void run_killed(const char *keys)
{
    int status;
    shell("rm -rf run memory* && mkdir memory0 memory1");
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        static struct job job;
        job.stepped = kill_at;
        run_once(&job, keys);
        _exit(1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static struct job whole; /* that nothing disturbed */

static int group_setup(void **state)
{
    if (tokens_setup(state))
        return -1;
    directory = *state;
    return run_once(&whole, "");
}

/* ---- a restore that forgets ------------------------------------------------------------------ */

#define LAYOUT    "parallel.dp=2 parallel.zero=1 "
#define ON_DISK   LAYOUT "train.save_every=2"
#define IN_MEMORY LAYOUT "snapshot.every=1"

/* What is saved, on the disk or in memory, has the state's hash, of which place and loss scale are
 * part: the run refuses. */
static void expect_caught(int broken)
{
    static const char *const keys[] = {ON_DISK, IN_MEMORY};
    for (int i = 0; i < 2; i++)
        for (int honest = 0; honest < 2; honest++) {
            struct job job = {0};
            run_killed(keys[i]);
            twin = honest ? HONEST : broken;
            int status = run_once(&job, keys[i]);
            twin = HONEST;
            int refuses = i == 0 ? LS_ECKPT : LS_ENUMERIC; /* there is nothing to go back to */
            if (status != (honest ? LS_OK : refuses) ||
                (!honest && !strstr(job.error.text, "the state's hash is ")))
                fail_msg("%s: status %d: %s", keys[i], status, job.error.text);
            if (!honest)
                continue;
            assert_true(job.first > 1);
            assert_string_equal(job.hash, whole.hash);
        }
}

CASE(test_a_restore_that_forgets_the_loss_scale)
{
    expect_caught(SCALE_FORGOTTEN);
}

CASE(test_a_recovery_that_skips_a_batch)
{
    expect_caught(BATCH_SKIPPED);
}

/* ---- a start that is not fenced off ---------------------------------------------------------- */

static void start_taken(const struct ls_step_report *report)
{
    struct ls_run_token token;
    if (report->step == 3)
        assert_int_equal(ls_run_token_take(scratch_path(directory, "run"), &token, NULL), LS_OK);
}

CASE(test_a_token_that_is_not_checked)
{
    for (int honest = 0; honest < 2; honest++) {
        struct job job = {.stepped = start_taken};
        shell("rm -rf run memory* && mkdir memory0 memory1");
        twin = honest ? HONEST : NOT_FENCED;
        int status = run_once(&job, ON_DISK);
        twin = HONEST;
        bool named = access(scratch_path(directory, "run/checkpoints/step-00000004"), F_OK) == 0;
        assert_int_equal(status, honest ? LS_EBUSY : LS_OK);
        assert_int_equal(named, !honest);
    }
}

/* ---- a copy that is one step old ------------------------------------------------------------- */

/* Of two machines the second is lost: the first has copies of its files. Stale ones have other
 * digests than the manifest says, so that no snapshot is whole: the run begins anew. */
CASE(test_a_copy_that_is_one_step_old)
{
    for (int honest = 0; honest < 2; honest++) {
        struct job job = {0};
        apart = true;
        twin = honest ? HONEST : COPY_STALE;
        run_killed(IN_MEMORY);
        apart = false;
        twin = HONEST;
        shell("rm -r memory1");
        if (run_once(&job, "parallel.dp=1"))
            fail_msg("%s", job.error.text);
        assert_string_equal(job.hash, whole.hash);
        if (honest ? job.first == 1 || job.said[0]
                   : !strstr(job.said, "skipping a damaged snapshot") ||
                         !strstr(job.said, "shard-00002-") || job.first > 1)
            fail_msg("%s: %s", honest ? "honest" : "stale", job.said);
    }
}

int main(void)
{
    setenv("LOCKSTEP_PEAK_FLOPS", "1e12", 1);
    return suite_run(group_setup, scratch_teardown);
}
