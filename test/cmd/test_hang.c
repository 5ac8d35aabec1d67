/* No hang: ranks that stop, die, stay away or call something else are named, the last operations of
 * all are kept, and the job ends with the documented code, over processes and over threads. Under a
 * launcher this program is a rank of `lockstep train`. */
#include "../../cmd/cmd.h"

#include "../support/late.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "../support/turned_clock.h"
#include "run_program.h"

#include <lockstep/train.h>

#include "train/trainer.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define CLOCK "HANG_CLOCK"
#define KEYS                                                                                       \
    "data.train=corpus_train model.preset=gpt2-tiny batch.global=8 parallel.threads=1 "            \
    "log.progress=off log.tensorboard=false train.save_every=0 "

enum { RANKS = 4 };

static char *folder; /* every command runs there */
static char enter[PATH_MAX];

static int folder_setup(void **state)
{
    int status = scratch_setup(state);
    folder = *state;
    snprintf(enter, sizeof enter, "cd '%s'; OMP_WAIT_POLICY=passive", folder);
    program_corpus(folder);
    return status;
}

static void expect_text(const char *name, const char *words)
{
    char *text = scratch_read(scratch_path(folder, name), NULL);
    if (!strstr(text, words))
        fail_msg("%s\nis: %s\nexpected: %s", name, text, words);
    free(text);
}

/* ---- the clock ------------------------------------------------------------------------------- */

/* The ranks that say who is late. */
static int all_say = RANKS;
static _Thread_local int self;

/* A rank that found somebody late leaves when the others have said so too. */
WRAPPED(train_late_grace);
void __wrap_train_late_grace(double timeout_s)
{
    turned_say();
    turned_stay(self, all_say);
}

/* ---- processes ------------------------------------------------------------------------------- */

/* The rank that stops says nothing. */
static int rank_main(int argc, char **argv)
{
    turned_share(getenv(CLOCK));
    turned->ranks = RANKS;
    all_say = RANKS - 1;
    self = atoi(getenv("OMPI_COMM_WORLD_RANK"));
    int code = EXIT_FAILURE;
    cmd_run("train", argc - 1, argv + 1, &code);
    return code;
}

/* The processes of the job that trains into `out`, by rank. */
static int job_find(const char *out, pid_t pids[RANKS])
{
    char word[64];
    const char *words[] = {word};
    snprintf(word, sizeof word, "train.out=%s", out);
    return program_ranks(folder, words, 1, pids, RANKS);
}

#define STAGES "parallel.pp=2 parallel.tp=2 train.steps=1000000 "
/* Rank 3 is the server, and ranks 0 to 2 do not wait for each other between two meetings. */
#define SERVER                                                                                     \
    "batch.global=1 async.mode=server async.order=clock async.workers=3 async.sync_every=3 "       \
    "parallel.workers=3 parallel.servers=1 train.steps=999999 "

/* Starts the job in a session of its own and returns the launcher. */
static pid_t job_start(const char *out, const char *keys)
{
    char self_path[PATH_MAX] = "", line[3 * PATH_MAX];
    assert_true(readlink("/proc/self/exe", self_path, sizeof self_path - 1) > 0);
    snprintf(line, sizeof line,
             "cd '%s' && OMP_WAIT_POLICY=passive ASAN_OPTIONS=detect_leaks=0 "
             "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 " CLOCK "=%s.clock exec "
             "mpirun --oversubscribe -n %d '%s' train " KEYS
             "%s comm.timeout_s=%g train.out=%s > %s.log 2>&1",
             folder, out, RANKS, self_path, keys, turned_timeout_s, out, out);
    return program_start(line, SIGTERM);
}

/* Waits until the run has recorded a few steps. */
static void job_wait(pid_t launcher, const char *out)
{
    char name[64], log[64];
    struct stat found;
    snprintf(name, sizeof name, "%s/metrics.jsonl", out);
    snprintf(log, sizeof log, "%s.log", out);
    while (stat(scratch_path(folder, name), &found) || found.st_size <= 1000)
        program_await_job(launcher, scratch_path(folder, log));
}

/* A signal to rank 2, which is away from then on; the job's exit code. Nobody is left behind. */
static int job_disturb(const char *out, const char *keys, int signal)
{
    pid_t pids[RANKS], launcher = job_start(out, keys);
    char name[64];
    int status;
    job_wait(launcher, out);
    int found = job_find(out, pids);
    if (found != RANKS)
        kill(-launcher, SIGKILL);
    assert_int_equal(found, RANKS);
    assert_int_equal(kill(pids[2], signal), 0);
    snprintf(name, sizeof name, "%s.clock", out);
    turned_share(scratch_path(folder, name));
    if (await_stopped(pids[2]))
        atomic_store(&turned->rank[2].away, INT_MAX);
    assert_int_equal(waitpid(launcher, &status, 0), launcher);
    while (job_find(out, pids))
        await_pause();
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void mpi_or_skip(void)
{
#if !defined(LS_WITH_MPI)
    print_message("skipped: this build has no MPI\n");
    skip();
#endif
    if (system("mpirun --version 2>/dev/null | grep -q 'Open MPI'") != 0) {
        print_message("skipped: no mpirun of Open MPI\n");
        skip();
    }
}

/* Every rank but the frozen one says in its own words in which operation it was, and who is late.
 */
static void freeze_and_expect_names(const char *out, const char *keys)
{
    char name[64];
    snprintf(name, sizeof name, "%s.log", out);
    mpi_or_skip();
    int code = job_disturb(out, keys, SIGSTOP);
    char *said = scratch_read(scratch_path(folder, name), NULL);
    if (code != ls_exit_code(LS_ECOMM) || !strstr(said, "is stopped; "))
        fail_msg("exited with %d and printed:\n%s", code, said);
    free(said);
    bool named = false;
    for (int rank = 0; rank < RANKS; rank++) {
        snprintf(name, sizeof name, "%s/log/rank-%05d.txt", out, rank);
        if (rank == 2)
            continue;
        expect_text(name, " at #");
        expect_text(name, "; late ");
        char *text = scratch_read(scratch_path(folder, name), NULL);
        if (!says_waited(text, turned_timeout_s))
            fail_msg("%s\nis: %s", name, text);
        named = named || strstr(text, "is stopped");
        free(text);
    }
    assert_true(named);
    char line[PATH_MAX + 128];
    snprintf(line, sizeof line,
             "cd '%s/%s/log' && test $(ls operations-*.txt | wc -l) = 1 && "
             "for r in 0 1 2 3; do grep -c \"^rank $r: #\" operations-*.txt; done > counts",
             folder, out);
    assert_int_equal(system(line), 0);
    snprintf(name, sizeof name, "%s/log/counts", out);
    expect_text(name, "64\n64\n64\n64\n");
}

CASE(test_a_process_that_freezes)
{
    freeze_and_expect_names("frozen", STAGES);
}

/* The others go on to where all meet, and wait there. */
CASE(test_a_worker_that_freezes)
{
    freeze_and_expect_names("worker", SERVER);
}

/* The launcher tells of the signal, or of the code with which the others ended. */
CASE(test_a_process_that_dies)
{
    mpi_or_skip();
    int code = job_disturb("killed", STAGES, SIGKILL);
    if (code != 128 + SIGKILL && code != ls_exit_code(LS_ECOMM))
        fail_msg("exited with %d and printed:\n%s", code,
                 scratch_read(scratch_path(folder, "killed.log"), NULL));
}

/* ---- threads --------------------------------------------------------------------------------- */

struct thread_job {
    struct ls_config config;
    struct ls_comm *world; /* of rank 0 */
    bool calls; /* rank 0 calls another collective; else it stays until the others say so */
    struct ls_error errors[RANKS];
    int status[RANKS];
};

/* Rank 0 alone comes here after a step. */
static void on_stepped(void *user, const struct ls_step_report *report)
{
    struct thread_job *job = user;
    struct ls_error ignored;
    if (report->step == 2 && job->calls)
        ls_barrier(job->world, &ignored);
    else if (report->step == 2)
        __wrap_train_late_grace(0);
}

static int thread_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct thread_job *job = user;
    int rank = ls_comm_rank(world);
    struct ls_run_hooks hooks = {.user = job, .stepped = on_stepped};
    self = rank;
    if (rank == 0)
        job->world = world;
    job->status[rank] = ls_run(&job->config, world, NULL, &hooks, error);
    job->errors[rank] = *error;
    return job->status[rank];
}

static struct thread_job *threads_run(const char *out, const char *layout, bool calls)
{
    static struct thread_job job;
    char keys[1024], key[PATH_MAX + 32], *save = NULL;
    struct ls_error error = {0};
    job = (struct thread_job){.calls = calls};
    turned_begin(RANKS);
    ls_config_defaults(&job.config);
    snprintf(keys, sizeof keys,
             "model.preset=gpt2-tiny batch.global=8 parallel.threads=1 log.tensorboard=false "
             "model.vocab=320 train.save_every=0 train.steps=100 %s",
             layout);
    for (char *word = strtok_r(keys, " ", &save); word; word = strtok_r(NULL, " ", &save))
        assert_int_equal(ls_config_set(&job.config, word, &error), 0);
    snprintf(key, sizeof key, "data.train=%s/corpus_train", folder);
    assert_int_equal(ls_config_set(&job.config, key, &error), 0);
    snprintf(key, sizeof key, "comm.timeout_s=%g", turned_timeout_s);
    assert_int_equal(ls_config_set(&job.config, key, &error), 0);
    snprintf(key, sizeof key, "train.out=%s/%s", folder, out);
    assert_int_equal(ls_config_set(&job.config, key, &error), 0);
    assert_ok(ls_train_resolve(&job.config, &error), error);
    int status = ls_world_run(RANKS, thread_body, &job, &error);
    if (status != LS_ECOMM)
        fail_msg("status %d: %s", status, error.text);
    return &job;
}

/* Rank 0 does; the others, if they do not wait for it at once, find it late where they do. */
static void stay_away_and_expect_names(const char *out, const char *layout)
{
    char name[64];
    const struct thread_job *job = threads_run(out, layout, false);
    for (int rank = 0; rank < RANKS; rank++)
        assert_int_equal(job->status[rank], LS_ECOMM);
    for (int rank = 1; rank < RANKS; rank++)
        if (!says_waited(job->errors[rank].text, turned_timeout_s) ||
            !strstr(job->errors[rank].text, " of world (4 ranks); late is rank 0: ") ||
            !strstr(job->errors[rank].text, out))
            fail_msg("rank %d: %s", rank, job->errors[rank].text);
    snprintf(name, sizeof name, "%s/log/rank-00003.txt", out);
    expect_text(name, "late is rank 0");
    char line[PATH_MAX + 128];
    snprintf(line, sizeof line, "grep -l '^rank 3: #' '%s'/%s/log/operations-*.txt >/dev/null",
             folder, out);
    assert_int_equal(system(line), 0);
}

CASE(test_a_thread_that_stays_away)
{
    stay_away_and_expect_names("away", "parallel.tp=2 parallel.dp=2");
}

CASE(test_a_worker_thread_that_stays_away)
{
    stay_away_and_expect_names("idle", SERVER);
}

/* A barrier where the others agree: each side is named with its call site. */
CASE(test_a_thread_that_calls_another_collective)
{
    const struct thread_job *job = threads_run("other", "parallel.tp=2 parallel.dp=2", true);
    for (int rank = 1; rank < RANKS; rank++)
        if (!strstr(job->errors[rank].text, "test_hang.c:") ||
            !strstr(job->errors[rank].text, "barrier"))
            fail_msg("rank %d: %s", rank, job->errors[rank].text);
    expect_text("other/log/rank-00001.txt", "test_hang.c:");
}

/* The program over threads: where all are given no time, it ends with the code and tells why. */
CASE(test_the_program_over_threads)
{
    program_expect_under(enter,
                         "train " KEYS "parallel.pp=2 train.steps=100000 train.out=hasty "
                         "comm.timeout_s=1e-6",
                         ls_exit_code(LS_ECOMM), "timed out after ");
}

int main(int argc, char **argv)
{
    if (getenv(CLOCK))
        return rank_main(argc, argv);
    return suite_run(folder_setup, scratch_teardown);
}
