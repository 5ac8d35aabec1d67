/* A parameter server over processes: a worker that is stopped for a while is not waited for, and
 * pushes less; a worker that is killed ends the job, which goes on from its last meeting. In either
 * case an audit on one rank gives every step of the run, as the log has it. Under a launcher this
 * program is one rank; by itself it starts itself under mpirun. */
#include "../support/await.h"
#include "../support/child.h"
#include "../support/mpirun.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "../support/wrapped.h"
#include "tokens.h"
#include "train/parameter_server.h"
#include "workers_run.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORKER = 3, RANKS = 5, STEPS = 24, AWAY = 9 /* pushes that the others make meanwhile */ };

static const char *program;

/* ---- one rank -------------------------------------------------------------------------------- */

static char directory[512], how[16];

/* The worker's first gradient: it stops, having said who it is. */
static void stop(void)
{
    char name[16];
    int length = snprintf(name, sizeof name, "%ld", (long)getpid());
    scratch_write(scratch_path(directory, "stopped.part"), name, (size_t)length);
    char *from = strdup(scratch_path(directory, "stopped.part"));
    rename(from, scratch_path(directory, "stopped"));
    free(from);
    raise(SIGSTOP);
}

WRAPPED(server_gradient);
int __wrap_server_gradient(struct ls_trainer *t, int worker, int64_t ticket, struct ls_error *error)
{
    static int gradients;
    if (t->workers->group == WORKER && gradients++ == 0 && !strcmp(how, "stop"))
        stop();
    /* Behind the first meeting, so there is a checkpoint. */
    if (t->workers->group == WORKER && workers_outer(t)->step >= STEPS / 2 && !strcmp(how, "kill"))
        raise(SIGKILL);
    return __real_server_gradient(t, worker, ticket, error);
}

static int rank_run(struct ls_comm *world, struct ls_error *error)
{
    if (sscanf(getenv(MPIRUN_MODE), "%15s %511s", how, directory) != 2)
        return ls_error_set(error, LS_EINVAL, "%s: expected what to do, and where",
                            getenv(MPIRUN_MODE));
    struct ls_config config = workers_config(
        directory,
        "async.mode=server async.order=clock async.sync_every=%d train.steps=%d "
        "train.save_every=%d "
        "log.hash_every=%d parallel.workers=4 parallel.servers=1 train.keep=9 train.resume=auto",
        STEPS / 2, STEPS, STEPS / 2, STEPS / 2);
    return ls_run(&config, world, NULL, NULL, error);
}

/* ---- the launcher ---------------------------------------------------------------------------- */

static int job(const char *where, const char *what, char *output, size_t bytes)
{
    char mode[640];
    snprintf(mode, sizeof mode, "%s %s", what, where);
    return mpirun(program, RANKS, mode, output, bytes);
}

/* Lines of the log; who pushed each event: a digit. */
static int log_read(const char *where, char pushes[STEPS + 1])
{
    char *text = scratch_read(scratch_path(where, "run/arrivals"), NULL), *line = text;
    int events = 0;
    while ((line = strstr(line, "\"worker\": ")) && events < STEPS)
        pushes[events++] = *(line += 10);
    pushes[events] = '\0';
    free(text);
    return events;
}

/* The pushes of the log so far. */
static int events_now(const char *where)
{
    char pushes[STEPS + 1];
    return access(scratch_path(where, "run/arrivals"), R_OK) ? 0 : log_read(where, pushes);
}

/* A process that lets the stopped worker go on when the others have pushed so often. */
static pid_t waker_start(const char *where)
{
    pid_t child = child_fork(SIGKILL);
    if (child > 0)
        return child;
    while (access(scratch_path(where, "stopped"), R_OK))
        await_pause();
    char *name = scratch_read(scratch_path(where, "stopped"), NULL);
    pid_t pid = atoi(name);
    bool stopped = await_stopped(pid);
    while (stopped && events_now(where) < AWAY)
        await_pause();
    _exit(stopped && kill(pid, SIGCONT) == 0 ? 0 : 1);
}

CASE_WITH(test_a_stopped_worker_is_not_waited_for, tokens_setup, scratch_teardown)
{
    static char output[8192];
    char pushes[STEPS + 1];
    int status = 0;
    mpirun_or_skip();
    pid_t waker = waker_start(*state);
    int code = job(*state, "stop", output, sizeof output);
    if (code)
        fail_msg("the job ended with %d:\n%s", code, output);
    assert_int_equal(waitpid(waker, &status, 0), waker);
    assert_int_equal(status, 0);
    assert_int_equal(log_read(*state, pushes), STEPS);
    for (int e = 0; e < AWAY; e++)
        if (pushes[e] == '0' + WORKER)
            fail_msg("the stopped worker pushed: %s", pushes);
    workers_expect_audit(*state, STEPS, 2);
}

CASE_WITH(test_a_killed_worker_ends_the_job_which_goes_on, tokens_setup, scratch_teardown)
{
    static char output[8192];
    char pushes[STEPS + 1];
    mpirun_or_skip();
    assert_int_not_equal(job(*state, "kill", output, sizeof output), 0);
    assert_int_equal(access(scratch_path(*state, "run/checkpoints/step-00000012"), R_OK), 0);
    assert_int_not_equal(access(scratch_path(*state, "run/checkpoints/step-00000024"), R_OK), 0);
    int code = job(*state, "goon", output, sizeof output);
    if (code)
        fail_msg("the job ended with %d:\n%s", code, output);
    assert_int_equal(log_read(*state, pushes), STEPS);
    workers_expect_audit(*state, STEPS, 2);
}

int main(int argc, char **argv)
{
    program = argv[0];
    if (getenv(MPIRUN_MODE))
        return mpirun_rank(rank_run);
    setenv("LOCKSTEP_PEAK_FLOPS", "1e12", 1); /* else it is measured */
    setenv("OMP_WAIT_POLICY", "passive", 1);
    return suite_run(NULL, NULL);
}
