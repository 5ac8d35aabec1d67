/* A small run whose files are struck by struck_calls.h, and held at a gate while they are written:
 * for tests of what is saved beside steps. Included by the one file of such a test, whose own
 * write() asks `holds`, and whose group begins with struck_setup. */
#ifndef TEST_TRAIN_STRUCK_RUN_H
#define TEST_TRAIN_STRUCK_RUN_H

#include "../support/config_words.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "struck_calls.h"
#include "tokens.h"

#include <lockstep/ckpt.h>
#include <lockstep/device.h>
#include <lockstep/train.h>

#include <pthread.h>
#include <semaphore.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { STEPS = 6 };

/* ---- what happens at a call ------------------------------------------------------------------ */

static int64_t machine_free; /* what it says of its memory; 0: what there is */

WRAPPED(ls_device_memory);
struct ls_device_memory __wrap_ls_device_memory(void)
{
    struct ls_device_memory memory = __real_ls_device_memory();
    if (machine_free)
        memory.free = machine_free;
    return memory;
}

static int64_t *named; /* the newest step that got a name, in a process that is killed too */

WRAPPED(renameat2);
int __wrap_renameat2(int from_folder, const char *from, int to_folder, const char *to,
                     unsigned flags)
{
    FAIL_BEFORE(from);
    int status = __real_renameat2(from_folder, from, to_folder, to, flags);
    if (!status && step_named(to) >= 0)
        *named = step_named(to);
    return status;
}

static _Atomic bool holds; /* tensors that are written to the run wait at the gate */
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static sem_t arrived;         /* one does */
static pthread_t rank_thread; /* who takes steps, of one rank */

static bool waits_at_gate(int file)
{
    return holds && strstr(path_of(file), "/run/") && strstr(path_of(file), ".safetensors");
}

static void gate_await(void)
{
    sem_post(&arrived);
    pthread_mutex_lock(&gate);
    pthread_mutex_unlock(&gate);
}

static void gate_close(void)
{
    pthread_mutex_lock(&gate);
    holds = true;
}

static void gate_open(void)
{
    holds = false;
    pthread_mutex_unlock(&gate);
}

/* ---- runs ------------------------------------------------------------------------------------ */

static const char *directory; /* of the test; the run is `run` in it, and `memory` its snapshots */
static const char *own = "";  /* keys of all runs of the test */
static char expected[33];     /* the hash after STEPS steps */
static int steps = STEPS;     /* of a run */

/* One message after the other: all, and warnings alone. */
struct said {
    char text[8192], warnings[4096];
};

static void say(void *user, enum ls_log_level level, const char *message)
{
    struct said *said = user;
    ls_string_add(said->text, sizeof said->text, "\n", "%s", message);
    if (level <= LS_LOG_WARNING)
        ls_string_add(said->warnings, sizeof said->warnings, "\n", "%s", message);
}

struct job {
    struct ls_config config;
    void (*stepped)(struct job *job, int64_t step);
    /* A caller with a loop of its own; NULL: ls_run. */
    int (*loop)(struct job *job, struct ls_comm *world, const struct ls_run_hooks *hooks,
                struct ls_error *error);
    struct said said;
    char hash[STEPS + 1][33];
    int saved[STEPS + 1];
    int64_t memory; /* bytes of files there, when the test looked */
};

static void on_step(void *user, const struct ls_step_report *report)
{
    struct job *job = user;
    rank_thread = pthread_self();
    if (report->hashed)
        memcpy(job->hash[report->step], report->hash, sizeof report->hash);
    if (job->stepped)
        job->stepped(job, report->step);
}

static void on_save(void *user, int64_t step)
{
    ((struct job *)user)->saved[step]++;
}

static int run_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct job *job = user;
    const struct ls_run_hooks hooks = {.user = job, .stepped = on_step, .saved = on_save};
    const struct ls_log log = {.write = say, .user = &job->said, .level_max = LS_LOG_INFO};
    bool first = ls_comm_rank(world) == 0;
    if (job->loop)
        return job->loop(job, world, &hooks, error);
    return ls_run(&job->config, world, first ? &log : NULL, first ? &hooks : NULL, error);
}

/* keys: the layout among them, which has that many ranks. */
static int run_once(struct job *job, int ranks, const char *keys, struct ls_error *error)
{
    job->config = config_of_words(
        "model.layers=1 model.channels=32 model.heads=2 model.vocab=50 model.context=16 "
        "batch.global=4 parallel.threads=1 log.tensorboard=false train.resume=auto train.keep=9 "
        "log.hash_every=1 optim.decay_steps=6 numerics.arithmetic=fma train.steps=%d "
        "data.train=u16:%s/tokens.bin train.out=%s/run snapshot.folder=%s/memory %s %s",
        steps, directory, directory, directory, own, keys);
    calls = 0;
    return ls_world_run(ranks, run_body, job, error);
}

static void expect_run(struct job *job, int ranks, const char *keys)
{
    struct ls_error error = {0};
    if (run_once(job, ranks, keys, &error))
        fail_msg("%s: %s", keys, error.text);
    if (strcmp(job->hash[STEPS], expected))
        fail_msg("%s: hash %s, expected %s; told: %s", keys, job->hash[STEPS], expected,
                 job->said.text);
}

/* In a process that is killed; false if it came to its end, which is a good one. */
static bool run_killed(int ranks, const char *keys, void (*stepped)(struct job *, int64_t))
{
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        static struct job job;
        struct ls_error error = {0};
        job.stepped = stepped;
        _exit(run_once(&job, ranks, keys, &error) ? 1 : 0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
        return true;
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return false;
}

static void start_over(void)
{
    char line[PATH_MAX + 64];
    watched[0] = '\0';
    strikes_at = 0;
    snprintf(line, sizeof line, "cd '%s' && rm -rf run memory && mkdir memory", directory);
    assert_int_equal(system(line), 0);
}

static const char *path_in(const char *name)
{
    return scratch_path(directory, name);
}

/* The newest step in a folder of checkpoints, -1: none. All that has a name there is whole. */
static int64_t newest_in(const char *folder)
{
    struct ls_checkpoint *checkpoint = NULL;
    struct ls_error error = {0};
    struct said said = {0};
    const struct ls_log log = {.write = say, .user = &said, .level_max = LS_LOG_WARNING};
    if (!folder[0])
        return -1;
    if (ls_checkpoint_find_latest(&checkpoint, folder, &log, &error) || said.text[0])
        fail_msg("%s: %s%s", folder, error.text, said.text);
    int64_t step = checkpoint ? checkpoint->state.step : -1;
    for (int part = 0; checkpoint && part < 2; part++)
        assert_ok(ls_checkpoint_verify(checkpoint, (enum ls_checkpoint_part)part, &error), error);
    ls_checkpoint_close(checkpoint);
    return step;
}

static int struck_setup(void **state)
{
    static struct job job;
    struct ls_error error = {0};
    if (tokens_setup(state))
        return -1;
    directory = *state;
    sem_init(&arrived, 0, 0);
    named = mmap(NULL, sizeof *named, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (named == MAP_FAILED)
        return -1;
    start_over();
    if (run_once(&job, 1, "", &error))
        return -1;
    memcpy(expected, job.hash[STEPS], sizeof expected);
    return 0;
}

#endif
