/* A job on this machine that loses ranks, or its launcher, goes on to the state of a run that
 * nothing disturbed; one that cannot go on ends with its cause; and no process is left. */
#include "../../cmd/cmd.h"

#include "../cmd/run_program.h"
#include "../support/await.h"
#include "../support/extent.h"
#include "../support/mpirun.h"
#include "../support/prom.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "../support/wrapped.h"
#include "launched.h"

#include <lockstep/base.h>
#include <lockstep/launch.h>
#include <lockstep/train.h>

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define LONG LAUNCHED_KEYS "train.steps=1000000 train.save_every=4 parallel.dp=2 "
#define FOUR LONG "parallel.tp=2 --ranks 4 "
/* Of all runs here: what matters is which steps are computed. */
#define BRIEF "data.sequence=16 model.context=16 "
#define RATE  "LOCKSTEP_PEAK_FLOPS=1e12"

static char *folder;

static int setup(void **state)
{
    int status = scratch_setup(state);
    folder = *state;
    program_corpus(folder);
    return status;
}

static void expect_ranks(const char *out, int ranks, pid_t pids[LAUNCHED_RANKS])
{
    int found = launched_ranks(folder, out, pids);
    if (found != ranks)
        fail_msg("%s has %d ranks, not %d", out, found, ranks);
}

static void expect_status(const char *out, const char *words)
{
    char enter[PATH_MAX], arguments[64];
    snprintf(enter, sizeof enter, "cd '%s';", folder);
    snprintf(arguments, sizeof arguments, "status %s", out);
    program_expect_under(enter, arguments, 0, words);
}

static void await_no_ranks(const char *out)
{
    pid_t pids[LAUNCHED_RANKS];
    while (launched_ranks(folder, out, pids))
        await_pause();
}

/* Shared memory of ranks in the folder that the launcher gives to this run; -1: there is none. */
static int segments_of(const char *out)
{
    char path[PATH_MAX];
    struct stat of;
    int count = 0;
    assert_int_equal(stat(scratch_path(folder, out), &of), 0);
    snprintf(path, sizeof path, "/dev/shm/lockstep-launch-%ld-%llx-%llx", (long)geteuid(),
             (unsigned long long)of.st_dev, (unsigned long long)of.st_ino);
    DIR *stream = opendir(path);
    if (!stream)
        return -1;
    for (struct dirent *entry; (entry = readdir(stream));)
        count += entry->d_name[0] != '.';
    closedir(stream);
    return count;
}

/* launch.prom has what events.jsonl has. */
static void expect_figures(const char *out, int kills)
{
    char name[64], command[PATH_MAX + 64];
    snprintf(name, sizeof name, "%s/launch.prom", out);
    char *text = scratch_read(scratch_path(folder, name), NULL);
    assert_prom(text);
    assert_true(prom_value(text, "lockstep_launch_starts_total{") == kills + 1);
    snprintf(command, sizeof command, "lockstep_launch_failures_total{run=\"%s\",kind=\"killed\"}",
             out);
    assert_true(prom_value(text, command) == kills);
    snprintf(command, sizeof command, "lockstep_launch_failures_total{run=\"%s\",kind=\"late\"}",
             out);
    assert_true(prom_value(text, command) == 0);
    double last_s = prom_value(text, "lockstep_launch_last_recovery_seconds{");
    double all_s = prom_value(text, "lockstep_launch_recovery_seconds_total{");
    double goodput = prom_value(text, "lockstep_launch_goodput{");
    assert_true(last_s > 0 && all_s > last_s && goodput > 0 && goodput < 1);
    assert_true(prom_value(text, "lockstep_launch_updated_timestamp_seconds{") > 0);
    assert_true(prom_value(text, "lockstep_launch_checkpoint_timestamp_seconds{") > 0);
    free(text);
    snprintf(command, sizeof command, "tools/check-prom.py '%s' 1>&2", scratch_path(folder, name));
    int code = WEXITSTATUS(system(command));
    if (code != 77) /* it says loudly that it was skipped */
        assert_int_equal(code, 0);
}

/* ---- this program as `lockstep` -------------------------------------------------------------- */

/* The launcher's clock leaps once the file $LAUNCH_LEAP is there; ranks take a rest before each
 * step. */
#define LEAP "LAUNCH_LEAP"
#define PACE "LAUNCH_PACE"
enum { DEADLINE_S = 1000000 };

WRAPPED(ls_now_s);
double __wrap_ls_now_s(void)
{
    const char *leap = getenv(LEAP);
    return __real_ls_now_s() + (leap && access(leap, F_OK) == 0 ? DEADLINE_S : 0);
}

WRAPPED(ls_trainer_step);
int __wrap_ls_trainer_step(struct ls_trainer *trainer, struct ls_step_report *report,
                           struct ls_error *error)
{
    for (int i = 0; i < 10 && getenv(PACE); i++)
        await_pause();
    return __real_ls_trainer_step(trainer, report, error);
}

static int command_main(int argc, char **argv)
{
    int code = EXIT_FAILURE;
    if (strcmp(argv[1], "launch") != 0)
        unsetenv(LEAP);
    cmd_run(argv[1], argc - 1, argv + 1, &code);
    return code;
}

/* A job whose steps do not run away from the test, which looks at them one after the other: a step
 * takes less than a millisecond, and those that nobody waits for would take most of the test's time
 * here and in the reference. */
static pid_t job_start(const char *before, const char *out, const char *keys)
{
    char program[PATH_MAX], words[256], all[800];
    program_path(program, sizeof program);
    snprintf(all, sizeof all, "%s " BRIEF, keys);
    snprintf(words, sizeof words, "export " PACE "=1; %s", before);
    setenv("LOCKSTEP", "/proc/self/exe", 1);
    pid_t launcher = launched_start(folder, words, out, all);
    setenv("LOCKSTEP", program, 1);
    return launcher;
}

/* ---- ranks that die -------------------------------------------------------------------------- */

/* Each in turn, or the first and the last one, some steps after the one before; then the job is
 * asked to end. */
CASE(test_each_rank_killed)
{
    pid_t pids[LAUNCHED_RANKS];
    uint64_t draw = 20261126;
    mpirun_or_skip();
    pid_t launcher = job_start("", "killed", FOUR);
    int64_t step = 0;
    int kills = check_all() ? LAUNCHED_RANKS : 2;
    for (int i = 0; i < kills; i++) {
        int rank = i * (LAUNCHED_RANKS - 1) / (kills - 1);
        struct launched_steps before, after;
        draw = draw * 6364136223846793005u + 1442695040888963407u;
        step = launched_await_step(launcher, folder, "killed", step + 5 + (int64_t)(draw >> 61));
        launched_steps_read(&before, folder, "killed");
        expect_ranks("killed", LAUNCHED_RANKS, pids);
        assert_int_equal(kill(pids[rank], SIGKILL), 0);
        launched_await_event(launcher, folder, "killed", "going_on", i + 1);
        assert_int_equal(segments_of("killed"), LAUNCHED_RANKS); /* none of those that died */
        launched_steps_read(&after, folder, "killed");
        assert_true(launched_steps_agree(&before, &after)); /* none with other bits */
        launched_steps_release(&before);
        launched_steps_release(&after);
    }
    launched_stop(launcher, folder, "killed");
    await_no_ranks("killed");
    assert_int_equal(segments_of("killed"), -1);
    int64_t last = launched_expect_same_of(folder, "killed", BRIEF);
    assert_true(last > step);
    assert_int_equal(launched_events(folder, "killed", "start", NULL), kills + 1);
    assert_int_equal(launched_events(folder, "killed", "failed", "\"kind\": \"killed\""), kills);
    assert_int_equal(launched_events(folder, "killed", "going_on", "\"from\": 0,"), 0);
    assert_int_equal(launched_events(folder, "killed", "stopped", NULL), 1);
    expect_status("killed", "state       stopped: stopped by a signal after step ");
    expect_status("killed", check_all() ? "failures    4 killed; time lost "
                                        : "failures    2 killed; time lost ");
    expect_status("killed --json",
                  check_all() ? "\"failures\": {\"killed\": 4}" : "\"failures\": {\"killed\": 2}");
    expect_figures("killed", kills);
    static const char lock[] = "host elsewhere\npid 4711\nstarted 1\nsince now\n";
    scratch_write(scratch_path(folder, "killed/lock"), lock, sizeof lock - 1);
    expect_status("killed", "state       running: process 4711 on elsewhere, since now; seen from "
                            "here only by its lock; last record ");
}

/* A job whose ranks have little time: on a busy machine one may be late by itself at any moment,
 * and the job goes on. */
#define HASTY LONG "comm.timeout_s=3 launch.retries=1000000 launch.pause_s=0 "

static int late_events(const char *out)
{
    return launched_events(folder, out, "failed", "\"kind\": \"late\"");
}

/* Asks the job to end, which it does well: one in which a rank was late as it saved is started
 * again, gets further, and is asked again. */
static void hasty_stop(pid_t launcher, const char *out)
{
    int code;
    while ((code = launched_ask(launcher)) != ls_exit_code(LS_ESTOPPED)) {
        if (code != ls_exit_code(LS_ECOMM) && code != 128 + SIGKILL)
            fail_msg("%s: the launcher ended with %d", out, code);
        launcher = job_start(RATE, out, HASTY);
        launched_await_step(launcher, folder, out,
                            launched_await_step(launcher, folder, out, 0) + 1);
    }
    await_no_ranks(out);
    launched_expect_same_of(folder, out, BRIEF);
}

/* A rank that is stopped is late, is ended, and the job goes on. If one was late by itself, and the
 * job went on before, it is one of those that follow, once they compute steps. */
CASE(test_a_frozen_rank)
{
    pid_t pids[LAUNCHED_RANKS];
    int64_t step = 5;
    int before;
    mpirun_or_skip();
    pid_t launcher = job_start(RATE, "frozen", HASTY);
    do {
        step = launched_await_step(launcher, folder, "frozen", step + 1);
        before = launched_events(folder, "frozen", "going_on", NULL);
    } while (launched_ranks(folder, "frozen", pids) != 2 || kill(pids[1], SIGSTOP) != 0);
    launched_await_event(launcher, folder, "frozen", "going_on", before + 1);
    hasty_stop(launcher, "frozen");
    assert_true(late_events("frozen") > 0);
}

/* Open MPI starts each rank by this program, in the folder of the test. Rank 1 is stopped before it
 * begins; once the test has seen that named, after it has shown life; and no more after that. */
static const char agent[] =
    "#!/bin/sh\n"
    "if [ $OMPI_COMM_WORLD_RANK = 1 ] && [ ! -e goes ]; then\n"
    "  [ ! -e beats ] || echo host here process $$ beat 1 > stuck/starting/rank-00001\n"
    "  kill -STOP $$\n"
    "fi\n"
    "exec \"$@\"\n";

/* Until the job failed with that cause; from then on there is a file of that name. */
static void await_failed(pid_t launcher, const char *words, const char *then)
{
    while (!launched_events(folder, "stuck", "failed", words))
        program_await_job(launcher, scratch_path(folder, "stuck.log"));
    scratch_write(scratch_path(folder, then), "", 0);
}

/* Nobody is in a collective yet, so no rank can say who is late. */
CASE(test_a_rank_that_is_stopped_while_mpi_starts)
{
    mpirun_or_skip();
    if (system("mpirun --version | grep -q 'Open MPI'")) {
        print_message("SKIPPED: a rank that is stopped while MPI starts: needs Open MPI\n");
        skip();
    }
    scratch_write(scratch_path(folder, "agent"), agent, sizeof agent - 1);
    assert_int_equal(chmod(scratch_path(folder, "agent"), 0755), 0);
    pid_t launcher = job_start(RATE " OMPI_MCA_orte_fork_agent=\"$PWD/agent\"", "stuck", HASTY);
    await_failed(launcher, "rank 1 has not begun", "beats");
    await_failed(launcher, "rank 1 on here (process ", "goes");
    launched_await_event(launcher, folder, "stuck", "going_on", 1);
    while (access(scratch_path(folder, "stuck/starting"), F_OK) == 0) /* it may start again */
        program_await_job(launcher, scratch_path(folder, "stuck.log"));
    hasty_stop(launcher, "stuck");
    assert_true(late_events("stuck") >= 2);
}

/* That one of the ranks is killed: the steps of the others stay, and all of them meet again, as the
 * run's folder says. */
static void worker_kill(const char *out, const char *recipe, const char *layout, int ranks,
                        int rank)
{
    char keys[640];
    pid_t pids[LAUNCHED_RANKS];
    snprintf(keys, sizeof keys, "%s " LAUNCHED_KEYS "train.steps=1000000 train.save_every=4 %s",
             recipe, layout);
    pid_t launcher = job_start(RATE, out, keys);
    launched_await_step(launcher, folder, out, 6);
    expect_ranks(out, ranks, pids);
    assert_int_equal(kill(pids[rank], SIGKILL), 0);
    launched_await_event(launcher, folder, out, "going_on", 1);
    launched_stop(launcher, folder, out);
    await_no_ranks(out);
    snprintf(keys, sizeof keys, BRIEF "%s async.follow=%s", recipe, out);
    launched_expect_same_of(folder, out, keys);
    assert_int_equal(launched_events(folder, out, "failed", "\"kind\": \"worker\""), 1);
    assert_int_equal(launched_events(folder, out, "going_on", "\"again\": 0,"), 1);
    assert_int_equal(launched_events(folder, out, "layout", NULL), 0);
}

CASE(test_a_worker_that_is_killed)
{
    mpirun_or_skip();
    worker_kill("workers", "async.mode=diloco async.workers=4 async.sync_every=2 async.mixing=0.5",
                "parallel.workers=4", 4, 2);
}

#define SERVER "async.mode=server async.order=clock async.workers=2 async.sync_every=4"

CASE(test_a_worker_of_a_server_that_is_killed)
{
    if (!check_all())
        skip(); /* the server dies below, a worker in train/test_server_rescue */
    mpirun_or_skip();
    worker_kill("server", SERVER, "parallel.workers=2 parallel.servers=1", 3, 1);
}

/* What workers have of the last meeting is newer than any checkpoint. */
CASE(test_a_server_that_is_killed)
{
    mpirun_or_skip();
    worker_kill("serves", SERVER, "parallel.workers=2 parallel.servers=1 train.save_every=1000000",
                3, 2);
}

/* The order of updates, or who takes part, is given: the interval is computed again, to the same
 * bits. */
static void given_kill(const char *out, const char *recipe)
{
    char keys[640];
    pid_t pids[LAUNCHED_RANKS];
    snprintf(keys, sizeof keys,
             "%s " LAUNCHED_KEYS "train.steps=1000000 train.save_every=1000000 snapshot.every=1 "
             "parallel.workers=2",
             recipe);
    pid_t launcher = job_start(RATE, out, keys);
    launched_await_step(launcher, folder, out, 8);
    expect_ranks(out, 2, pids);
    assert_int_equal(kill(pids[1], SIGKILL), 0);
    launched_await_event(launcher, folder, out, "going_on", 1);
    launched_stop(launcher, folder, out);
    await_no_ranks(out);
    snprintf(keys, sizeof keys, BRIEF "%s", recipe);
    launched_expect_same_of(folder, out, keys);
    assert_int_equal(launched_events(folder, out, "going_on", NULL), 1);
    assert_int_equal(launched_events(folder, out, "going_on", "\"from\": 0,"), 0);
}

CASE(test_an_order_that_is_computed)
{
    mpirun_or_skip();
    given_kill("times", "async.mode=server async.workers=2 async.sync_every=4 async.times=1,3");
}

CASE(test_workers_that_are_followed)
{
    mpirun_or_skip();
    given_kill("followed", "async.mode=diloco async.workers=4 async.sync_every=2 async.mixing=0.5 "
                           "async.follow=workers");
}

/* All ranks die at once, and nothing is on the disk: there is the newest snapshot. */
CASE(test_all_workers_killed)
{
    static const char recipe[] = "async.mode=diloco async.workers=2 async.sync_every=2";
    char keys[640];
    pid_t pids[LAUNCHED_RANKS];
    mpirun_or_skip();
    snprintf(keys, sizeof keys,
             "%s " LAUNCHED_KEYS "train.steps=1000000 train.save_every=1000000 snapshot.every=1 "
             "parallel.workers=2",
             recipe);
    pid_t launcher = job_start(RATE, "all", keys);
    launched_await_step(launcher, folder, "all", 8);
    expect_ranks("all", 2, pids);
    for (int i = 0; i < 2; i++)
        kill(pids[i], SIGKILL);
    launched_await_event(launcher, folder, "all", "going_on", 1);
    launched_stop(launcher, folder, "all");
    await_no_ranks("all");
    snprintf(keys, sizeof keys, BRIEF "%s async.follow=all", recipe);
    launched_expect_same_of(folder, "all", keys);
    assert_int_equal(launched_events(folder, "all", "going_on", NULL), 1);
    assert_int_equal(launched_events(folder, "all", "going_on", "\"from\": 0,"), 0);
}

/* ---- what must be seen ----------------------------------------------------------------------- */

/* An mpirun that does `first` before the first start, and `second` before every other one. */
static void mpirun_write(const char *first, const char *second)
{
    char text[2048], real[PATH_MAX] = "";
    FILE *which = popen("command -v mpirun", "r");
    assert_true(which && fgets(real, sizeof real, which));
    pclose(which);
    real[strcspn(real, "\n")] = '\0';
    mkdir(scratch_path(folder, "bin"), 0755);
    snprintf(text, sizeof text,
             "#!/bin/sh\ncase \"$*\" in *--version*) exec '%s' --version ;; esac\n"
             "if [ -e begun ]; then\n%s\nelse\n%s\nfi\ntouch begun\nexec '%s' \"$@\"\n",
             real, second, first, real);
    scratch_write(scratch_path(folder, "bin/mpirun"), text, strlen(text));
    assert_int_equal(chmod(scratch_path(folder, "bin/mpirun"), 0755), 0);
    unlink(scratch_path(folder, "begun"));
}

/* A run of that mpirun, of which a rank is killed. */
static void twin_run(const char *out, const char *keys)
{
    pid_t pids[LAUNCHED_RANKS];
    pid_t launcher = job_start("PATH=\"$PWD/bin:$PATH\" " RATE, out, keys);
    launched_await_step(launcher, folder, out, 6);
    expect_ranks(out, 2, pids);
    assert_int_equal(kill(pids[1], SIGKILL), 0);
    launched_await_event(launcher, folder, out, "going_on", 1);
    launched_stop(launcher, folder, out);
}

/* A twin that goes on with other batches than those that come next: the losses tell. */
CASE(test_other_batches_are_seen)
{
    struct launched_steps got, expected;
    mpirun_or_skip();
    mkdir(scratch_path(folder, "other"), 0755);
    for (int i = 0; i < 3; i++) {
        static const char *const names[] = {"corpus_train.bin", "corpus_train.idx",
                                            "corpus.tokenizer"};
        char other[64];
        size_t bytes;
        char *data = scratch_read(scratch_path(folder, names[i]), &bytes);
        if (i == 0) /* everything comes one token later */
            memmove(data, data + 2, bytes - 2);
        snprintf(other, sizeof other, "other/%s", names[i]);
        scratch_write(scratch_path(folder, other), data, bytes);
        free(data);
    }
    mpirun_write(":", "set -- \"$@\" data.train=other/corpus_train data.changed=true");
    twin_run("batches", LONG);
    launched_steps_read(&got, folder, "batches");
    launched_reference(&expected, folder, BRIEF, got.last);
    assert_false(launched_steps_agree(&got, &expected));
    launched_steps_release(&got);
    launched_steps_release(&expected);
}

/* A twin that begins anew has the same bits, but its events say so. */
CASE(test_a_new_beginning_is_seen)
{
    mpirun_or_skip();
    mpirun_write(":", "rm -rf anew/checkpoints/step-*");
    twin_run("anew", LONG "snapshot.every=0");
    launched_expect_same_of(folder, "anew", BRIEF);
    assert_int_equal(launched_events(folder, "anew", "going_on", "\"from\": 0,"), 1);
}

/* A step that is not finite in the first start alone is a machine's fault; one that is so again
 * ends the job. */
CASE(test_a_step_that_is_not_finite)
{
    static const char diverges[] = "set -- \"$@\" optim.lr=1000 optim.clip=0";
    mpirun_or_skip();
    for (int once = 0; once < 2; once++) {
        const char *out = once ? "flip" : "diverged";
        /* That of one start saves after every step, lest it takes many before it is stopped. */
        mpirun_write(diverges, once ? "set -- \"$@\" train.save_every=1" : diverges);
        pid_t launcher = job_start("PATH=\"$PWD/bin:$PATH\" " RATE, out,
                                   LONG "snapshot.every=0 train.save_every=1000");
        if (once) {
            launched_await_event(launcher, folder, out, "going_on", 1);
            launched_stop(launcher, folder, out);
            launched_expect_same_of(folder, out, BRIEF);
        } else {
            assert_int_equal(launched_end(launcher), ls_exit_code(LS_ENUMERIC));
        }
        assert_int_equal(launched_events(folder, out, "start", NULL), 2);
        assert_int_equal(launched_events(folder, out, "failed", "\"kind\": \"nonfinite\""),
                         2 - once);
        assert_int_equal(launched_events(folder, out, "not_repeated", "is faulty"), once);
    }
}

/* ---- the launcher ---------------------------------------------------------------------------- */

/* A stage that is named as slow (by a record of the test's) gets fewer layers, and the bits are the
 * same. What that gains is up to the machine: the job may go back. */
CASE(test_a_slow_stage_has_the_same_bits)
{
    static const char layers[] = "model.layers=6 " BRIEF;
    static const char drift[] =
        "{\"time\": 1, \"event\": \"drift\", \"step\": 1, \"kind\": \"unbalanced_stage\", "
        "\"stage\": 1, \"stages_s\": \"1,4\", \"text\": \"slow\"}\n";
    char keys[512];
    if (!check_all())
        skip();
    mpirun_or_skip();
    snprintf(keys, sizeof keys,
             LAUNCHED_KEYS "%strain.steps=1000000 train.save_every=5 parallel.pp=2 "
                           "launch.pause_s=0 launch.slow=0.5",
             layers);
    pid_t launcher = job_start(RATE, "uneven", keys);
    launched_await_step(launcher, folder, "uneven", 3);
    int file = open(scratch_path(folder, "uneven/metrics.jsonl"), O_WRONLY | O_APPEND);
    assert_int_equal(write(file, drift, sizeof drift - 1), sizeof drift - 1);
    close(file);
    launched_await_event(launcher, folder, "uneven", "going_on", 1);
    assert_int_equal(launched_events(folder, "uneven", "stage_slow", "\"stage\": 1"), 1);
    launched_stop(launcher, folder, "uneven");
    launched_expect_same_of(folder, "uneven", layers);
    assert_int_equal(launched_events(folder, "uneven", "start", "parallel.split=0-"), 1);
    assert_int_equal(launched_events(folder, "uneven", "failed", NULL), 0);
}

/* No process of the job outlives it; the next one waits for their end, and goes on in one start. */
CASE(test_a_killed_launcher)
{
    char enter[PATH_MAX];
    pid_t pids[LAUNCHED_RANKS];
    mpirun_or_skip();
    pid_t launcher = job_start(RATE, "orphans", LONG);
    launched_await_step(launcher, folder, "orphans", 6);
    assert_int_equal(kill(launcher, SIGKILL), 0);
    launched_end(launcher);
    launcher = job_start(RATE, "orphans", LONG);
    launched_await_event(launcher, folder, "orphans", "start", 2); /* the ranks before are gone */
    int64_t last = launched_await_step(launcher, folder, "orphans", 6);
    launched_await_step(launcher, folder, "orphans",
                        last + 3); /* the first snapshot has its name */
    expect_ranks("orphans", 2, pids);
    assert_int_equal(launched_events(folder, "orphans", "start", NULL), 2);
    assert_int_equal(launched_events(folder, "orphans", "failed", NULL), 0);
    assert_int_equal(segments_of("orphans"), 2);
    for (int i = 0; i < 2; i++)
        assert_int_equal(kill(pids[i], SIGSTOP), 0); /* no steps while other programs look */
    snprintf(enter, sizeof enter, "cd '%s';", folder);
    program_expect_under(enter, "launch " LONG "train.out=orphans", ls_exit_code(LS_EBUSY),
                         "orphans/launch/lock is held by process ");
    expect_status("orphans", "state       running: process ");
    expect_status("orphans", "snapshot    of step ");
    expect_status("orphans --json", "{\"state\": \"running\", \"who\": \"process ");
    expect_status("orphans --json", "\"loss\": ");
    for (int i = 0; i < 2; i++)
        assert_int_equal(kill(pids[i], SIGCONT), 0);
    assert_int_equal(kill(launcher, SIGHUP), 0); /* the terminal is closed, and the session ends */
    launched_stop(launcher, folder, "orphans");
    launched_expect_same_of(folder, "orphans", BRIEF);
}

/* Nobody signals it: it saves and ends by itself. */
CASE(test_a_deadline)
{
    char keys[512];
    mpirun_or_skip();
    snprintf(keys, sizeof keys, LONG "parallel.dp=1 launch.deadline_s=%d", DEADLINE_S);
    pid_t launcher = job_start(RATE " " LEAP "=leap", "hour", keys);
    launched_await_step(launcher, folder, "hour", 6);
    scratch_write(scratch_path(folder, "leap"), "", 0);
    assert_int_equal(launched_end(launcher), ls_exit_code(LS_ESTOPPED));
    assert_int_equal(launched_events(folder, "hour", "deadline", "\"needed\": "), 1);
    assert_int_equal(launched_events(folder, "hour", "stopped", NULL), 1);
    assert_int_equal(launched_events(folder, "hour", "start", NULL), 1);
    launched_expect_same_of(folder, "hour", BRIEF);
}

/* It is asked to save, and hears nothing. The clock leaps once it is deaf. */
CASE(test_a_job_that_outlives_its_deadline)
{
    char keys[512];
    mpirun_or_skip();
    mpirun_write("trap '' TERM USR1\ntouch late\nmkfifo deaf\nread -r word < deaf", ":");
    snprintf(keys, sizeof keys, LAUNCHED_KEYS "comm.timeout_s=0 launch.deadline_s=%d", DEADLINE_S);
    pid_t launcher = job_start("PATH=\"$PWD/bin:$PATH\" " LEAP "=late", "outlives", keys);
    assert_int_equal(launched_end(launcher), 128 + SIGKILL);
    char *log = scratch_read(scratch_path(folder, "outlives.log"), NULL);
    assert_non_null(strstr(log, "the job has not ended when its time was over: it is killed"));
    free(log);
    assert_int_equal(launched_events(folder, "outlives", "deadline", NULL), 1);
    assert_int_equal(launched_events(folder, "outlives", "start", NULL), 1);
    assert_int_equal(launched_events(folder, "outlives", "stopped", NULL), 1);
}

/* As under nohup the job goes on without its terminal. Then rank 0 cannot save: the first signal
 * waits for it, the second one does not. */
CASE(test_a_second_signal)
{
    pid_t pids[LAUNCHED_RANKS];
    mpirun_or_skip();
    pid_t launcher = job_start("trap '' HUP; " RATE, "twice", LONG);
    int64_t last = launched_await_step(launcher, folder, "twice", 2);
    assert_int_equal(kill(launcher, SIGHUP), 0);
    launched_await_step(launcher, folder, "twice", last + 2);
    expect_ranks("twice", 2, pids);
    assert_int_equal(kill(pids[0], SIGSTOP), 0);
    assert_true(await_stopped(pids[0]));
    assert_int_equal(kill(launcher, SIGTERM), 0);
    assert_int_equal(kill(launcher, SIGUSR1), 0);
    assert_int_equal(launched_end(launcher), 128 + SIGTERM);
    await_no_ranks("twice");
}

int main(int argc, char **argv)
{
    return argc > 1 ? command_main(argc, argv) : suite_run(setup, scratch_teardown);
}
