/* Snapshots of workers (async.mode): a run that is killed, at a step or before any call of a
 * snapshot, goes on from the newest one in another layout, with the bits of a run that lost
 * nothing; on other machines too. Where the memory has no room, steps go on.
 *
 * Checkpoints on the disk are written from snapshots beside steps: they are those that are written
 * while all wait, to the byte, a disk that hangs holds up no step, and a run that is killed or that
 * the disk refuses has all units' files of a step or none.
 *
 * Broken twins: files of the newest snapshot are written over; those of one that is being stored
 * are, by later steps; a worker's is not copied to another machine. */
#include "../support/extent.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "../support/testing.h"
#include "../support/wrapped.h"
#include "machines_apart.h"
#include "struck_calls.h"
#include "tokens.h"
#include "workers_run.h"

#include <lockstep/base/file.h>
#include <lockstep/ckpt.h>
#include <lockstep/state/unit_snapshots.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STEPS = 12, MEETS = 3, KILLED = 8, NEWEST = 6, MACHINES = 6 };

static const char *directory; /* of the test: `run` in it, and `memory0`, ... by machine */

/* ---- what happens at a call ------------------------------------------------------------------ */

static _Atomic int taken;      /* snapshots below the watched folder that got their name */
static _Atomic int64_t *named; /* the newest step whose global parameters got a name */
static _Atomic int64_t *stood; /* of those in the run's folder */

static _Atomic bool holds; /* what is written of worker 1 to the run's folder waits */
static sem_t arrived, go;  /* it does; it need not any more */

static void hold(void)
{
    sem_init(&arrived, 0, 0);
    sem_init(&go, 0, 0);
    holds = true;
}

static void let_go(void)
{
    holds = false;
    sem_post(&go);
}

WRAPPED(write);
ssize_t __wrap_write(int file, const void *data, size_t bytes)
{
    if (holds && strstr(path_of(file), "/run/workers/0001/checkpoints/")) {
        sem_post(&arrived);
        sem_wait(&go);
        sem_post(&go);
    }
    FAIL_BEFORE(path_of(file));
    return __real_write(file, data, bytes);
}

WRAPPED(renameat2);
int __wrap_renameat2(int from_folder, const char *from, int to_folder, const char *to,
                     unsigned flags)
{
    FAIL_BEFORE(from);
    int64_t step = strstr(to, "/workers/") ? -1 : step_named(to);
    int status = __real_renameat2(from_folder, from, to_folder, to, flags);
    taken += !status && step >= 0 && watched[0] && strstr(to, watched) == to;
    if (!status && step >= 0)
        *(strstr(to, "/run/") ? stood : named) = step;
    return status;
}

/* What is on its way to a disk that hangs is given up: by the rank of worker 1, or what waits would
 * be whole before that. */
static _Thread_local bool has_worker_1;
WRAPPED(ls_checkpoint_writer_cancel);
void __wrap_ls_checkpoint_writer_cancel(struct ls_checkpoint_writer *writer)
{
    __real_ls_checkpoint_writer_cancel(writer);
    if (holds && has_worker_1)
        let_go();
}

static volatile int stop;
static struct ls_running *first_rank;

/* The memory of a machine is its own. */
WRAPPED(ls_run_open);
int __wrap_ls_run_open(const struct ls_config *config, struct ls_comm *world,
                       const struct ls_log *log, const struct ls_run_hooks *hooks,
                       struct ls_running **out, struct ls_error *error)
{
    static const struct ls_run_hooks stopping = {.stop = &stop};
    struct ls_config own = *config;
    LS_ASSERT(!hooks);
    has_worker_1 = false;
    snprintf(own.snapshot.folder, sizeof own.snapshot.folder, "%s/memory%d", directory,
             apart ? ls_comm_rank(world) : 0);
    int status = __real_ls_run_open(&own, world, log, &stopping, out, error);
    if (ls_comm_rank(world) == 0)
        first_rank = *out;
    return status;
}

static int64_t killed_at;  /* after that step; 0: never */
static int64_t let_go_at;  /* the same of the disk that hangs, */
static bool stood_before;  /* whether a checkpoint did until then */
static int64_t stopped_at; /* the same of a stop */
WRAPPED(ls_run_step);
int __wrap_ls_run_step(struct ls_running *run, const struct ls_given_batch *batch,
                       struct ls_step_report *report, struct ls_error *error)
{
    int status = __real_ls_run_step(run, batch, report, error);
    if (!status && report->step == killed_at)
        raise(SIGKILL);
    if (!status && report->step == let_go_at && run == first_rank) {
        sem_wait(&arrived);
        stood_before = *stood >= 0;
        let_go();
    }
    stop |= !status && report->step == stopped_at;
    return status;
}

static enum { HONEST, OVER_THE_NEWEST, OVER_WHAT_IS_STORED, NOT_COPIED } twin;
static int64_t flipped_step; /* whose worker 1 is not what is hashed */
WRAPPED(ls_saving_begin_among);
int __wrap_ls_saving_begin_among(struct ls_saving **out, struct ls_state *state,
                                 const struct ls_unit_snapshots *of, int64_t newest, int64_t spare,
                                 bool stored, const struct ls_digest *hash, struct ls_error *error)
{
    struct ls_digest other = *hash;
    has_worker_1 |= of->holds && strstr(of->folder, "/workers/0001");
    if (twin == OVER_THE_NEWEST)
        spare = newest;
    if (twin == OVER_WHAT_IS_STORED && newest > MEETS)
        spare = MEETS;
    other.low ^= state->step == flipped_step && strstr(of->folder, "/workers/0001") != NULL;
    return __real_ls_saving_begin_among(out, state, of, newest, spare, stored, &other, error);
}

WRAPPED(ls_checkpoint_writer_replicate);
int __wrap_ls_checkpoint_writer_replicate(struct ls_checkpoint_writer *writer, int64_t copies,
                                          struct ls_error *error)
{
    return __real_ls_checkpoint_writer_replicate(writer, twin == NOT_COPIED ? 0 : copies, error);
}

/* ---- runs ------------------------------------------------------------------------------------ */

static const struct mode {
    const char *name, *words;
    bool clock; /* another run follows its log */
} modes[] = {
    {"diloco", "async.mode=diloco async.sync_every=3", false},
    {"streaming",
     "async.mode=diloco async.sync_every=6 async.fragments=2 async.delay=1 async.delta=int8",
     false},
    {"fp16", "async.mode=diloco async.sync_every=3 numerics.precision=fp16", false},
    {"adamw", "async.mode=diloco async.sync_every=3 async.outer_optim=adamw", false},
    {"free", "async.mode=server async.sync_every=3 async.times=1,3", false},
    {"bounded", "async.mode=server async.sync_every=3 async.times=1,3 async.staleness=1", false},
    {"clock", "async.mode=server async.sync_every=3 async.order=clock", true},
};
enum { MODES = sizeof modes / sizeof *modes };

static struct workers_run run_of(const struct mode *mode, const char *words)
{
    return (struct workers_run){
        .whole = true,
        .config = workers_config(directory,
                                 "async.workers=2 %s train.steps=12 train.save_every=0 "
                                 "log.hash_every=3 snapshot.every=2 train.resume=auto %s",
                                 mode->words, words)};
}

static void shell(const char *commands)
{
    char line[PATH_MAX + 512];
    snprintf(line, sizeof line, "cd '%s' && %s", directory, commands);
    assert_int_equal(system(line), 0);
}

static void start_over(void)
{
    watched[0] = '\0';
    strikes_at = strike = 0;
    lasts = false;
    *named = *stood = -1;
    ls_directory_remove(scratch_path(directory, "run"));
    ls_directory_remove(scratch_path(directory, "follows"));
    for (int i = 0; i < MACHINES; i++) {
        char name[16];
        snprintf(name, sizeof name, "memory%d", i);
        ls_directory_remove(scratch_path(directory, name));
        assert_int_equal(mkdir(scratch_path(directory, name), 0755), 0);
    }
}

/* In a process that is killed; false: it came to its end. */
static bool run_killed(const struct mode *mode, const char *words)
{
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        static struct workers_run run;
        run = run_of(mode, words);
        calls = 0;
        _exit(workers_run(&run) ? 1 : 0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
        return true;
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return false;
}

static void run_killed_at(const struct mode *mode, int64_t step, const char *words)
{
    killed_at = step;
    assert_true(run_killed(mode, words));
    killed_at = 0;
}

/* All of it on one rank, without snapshots. */
static struct workers_run reference_of(const struct mode *mode)
{
    static struct workers_run references[MODES];
    struct workers_run reference = references[mode - modes];
    char words[700];
    if (reference.hash[STEPS - 1][0] && !mode->clock)
        return reference;
    snprintf(words, sizeof words, "parallel.workers=1 snapshot.every=0 train.out=%s/follows %s%s",
             directory, mode->clock ? "async.follow=" : "",
             mode->clock ? scratch_path(directory, "run") : "");
    reference = run_of(mode, words);
    workers_run_well(&reference);
    shell("rm -rf follows");
    references[mode - modes] = reference;
    return reference;
}

static void expect_ended_well(const struct mode *mode, struct workers_run *run, const char *words)
{
    if (workers_run(run))
        fail_msg("%s, %s: %s", mode->name, words, run->error.text);
    assert_int_equal(run->steps, STEPS);
    struct workers_run reference = reference_of(mode);
    workers_expect_alike(&reference, run, words);
}

/* Folders of snapshots that are left. */
static int left(void)
{
    int count = 0;
    DIR *stream = opendir(scratch_path(directory, "memory0"));
    for (struct dirent *entry; (entry = readdir(stream));)
        count += entry->d_name[0] != '.';
    closedir(stream);
    return count;
}

/* ---- cases ----------------------------------------------------------------------------------- */

#define CLOCK "parallel.workers=2 parallel.servers=1 "
static const char *const layouts[] = {
    "parallel.workers=1",
    "parallel.workers=2",
    "parallel.workers=2 parallel.tp=2",
    "parallel.workers=1 parallel.dp_shard=2 parallel.zero=3",
    "parallel.workers=2 parallel.pp=2",
    "parallel.workers=2 memory.offload.optimizer=host memory.offload.parameters=host",
};
static const char *const clock_layouts[] = {CLOCK "memory.offload.optimizer=host",
                                            CLOCK "parallel.tp=2"};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

static const char *layout_of(const struct mode *mode, int i)
{
    return mode->clock ? clock_layouts[i % 2] : layouts[i % LAYOUTS];
}

/* Nothing is on the disk. */
CASE(test_a_run_goes_on_from_the_newest)
{
    int every = check_every(7, MODES * LAYOUTS); /* otherwise one for each mode */
    for (int i = 0; i < MODES * LAYOUTS; i++) {
        const struct mode *mode = &modes[i % MODES];
        if (i % every && i >= MODES)
            continue;
        const char *words = layout_of(mode, i / MODES + i + 1);
        start_over();
        run_killed_at(mode, KILLED, layout_of(mode, i / MODES + i));
        assert_int_equal(*named, NEWEST);
        struct workers_run run = run_of(mode, words);
        expect_ended_well(mode, &run, words);
        if (run.first != NEWEST || run.said[0])
            fail_msg("%s, %s: it went on from step %d: %s", mode->name, words, run.first, run.said);
        assert_int_equal(left(), 0);
    }
}

/* What had a name is whole, however far the next one came. Returns whether a run went on from
 * elsewhere, or had to pass something over. */
static bool is_lost(const struct mode *mode, const char *words)
{
    struct workers_run run = run_of(mode, words);
    int64_t newest = ls_max(ls_max(*named, *stood), 0);
    expect_ended_well(mode, &run, words);
    return run.first < newest || strstr(run.said, "snapshot");
}

CASE(test_killed_before_any_call)
{
    static const int tried[] = {0, 5};
    int trials = 0;
    for (int m = 0; m < 2; m++)
        for (int at = 1;; at += check_every(43, 97)) {
            const struct mode *mode = &modes[tried[m]];
            start_over();
            snprintf(watched, sizeof watched, "%s", scratch_path(directory, "memory0"));
            strikes_at = at;
            if (!run_killed(mode, "parallel.workers=2 parallel.dp=2"))
                break;
            watched[0] = '\0';
            trials++;
            if (is_lost(mode, at % 2 ? "parallel.workers=1 parallel.tp=2" : "parallel.workers=2"))
                fail_msg("%s: killed before call %d", mode->name, at);
        }
    print_message("killed %d times\n", trials);
    assert_true(trials > 4);
}

CASE(test_files_of_the_newest_written_over)
{
    bool lost = false;
    twin = OVER_THE_NEWEST;
    /* The snapshots before come first. */
    for (int at = check_all() ? 1 : 71; !lost; at += 7) {
        start_over();
        snprintf(watched, sizeof watched, "%s", scratch_path(directory, "memory0"));
        strikes_at = at;
        if (!run_killed(&modes[0], "parallel.workers=2"))
            break;
        watched[0] = '\0';
        lost = is_lost(&modes[0], "parallel.workers=1");
    }
    twin = HONEST;
    assert_true(lost);
}

/* ---- on the disk ----------------------------------------------------------------------------- */

#define STORES " train.save_every=3 train.keep=9"

/* Steps go on while the disk hangs from the first checkpoint, that of step 3, to step 10. Whether
 * it is to the byte what a run writes that waits. */
static bool is_held_alike(const struct mode *mode, const char *words)
{
    static const char checkpoints[] = "for i in . workers/0000 workers/0001; do diff -r "
                                      "stored/$i/checkpoints/step-00000003 "
                                      "run/$i/checkpoints/step-00000003 >/dev/null || exit 1; done";
    char line[PATH_MAX + sizeof checkpoints + 16];
    struct workers_run run = run_of(mode, words), waits = run;
    start_over();
    hold();
    let_go_at = 10;
    int status = workers_run(&run);
    let_go_at = 0;
    if (status || stood_before)
        fail_msg("%s, %s: %s", mode->name, words, status ? run.error.text : "it stood before");
    if (!strstr(run.said, "the checkpoint of step 3 is still being written to "))
        fail_msg("%s, %s: told: %s", mode->name, words, run.said);
    struct workers_run reference = reference_of(mode);
    workers_expect_alike(&reference, &run, words);
    assert_int_equal(*stood, STEPS);
    shell("mv run stored");

    start_over(); /* no memory: all wait */
    snprintf(watched, sizeof watched, "%s", scratch_path(directory, "memory0"));
    strike = ENOSPC;
    lasts = true;
    workers_run_well(&waits);
    assert_non_null(strstr(waits.said, "no snapshots are taken"));
    snprintf(line, sizeof line, "cd '%s' && %s", directory, checkpoints);
    bool alike = system(line) == 0;
    shell("rm -r stored");
    start_over();
    return alike;
}

CASE(test_a_disk_that_hangs)
{
    static const char *const words[] = {
        "parallel.workers=2" STORES,
        "parallel.workers=1" STORES,
        "parallel.workers=2 parallel.tp=2" STORES,
        "parallel.workers=2 memory.offload.optimizer=host memory.offload.parameters=host" STORES,
        "parallel.workers=1 parallel.dp_shard=2 parallel.zero=3" STORES,
    };
    for (int i = 0; i < 5; i += check_every(2, 4))
        if (!is_held_alike(&modes[i], words[i]))
            fail_msg("%s, %s: other bytes", modes[i].name, words[i]);
}

/* The checkpoint of step 3 has what later steps made of its snapshot. */
CASE(test_over_what_is_stored_is_caught)
{
    twin = OVER_WHAT_IS_STORED;
    assert_false(is_held_alike(&modes[0], "parallel.workers=2" STORES));
    twin = HONEST;
}

/* Who stops does not wait for what is on its way, and saves where the run is. */
CASE(test_a_stop_while_the_disk_hangs)
{
    struct workers_run run = run_of(&modes[0], "parallel.workers=2" STORES), more = run;
    start_over();
    hold();
    stopped_at = 5;
    int status = workers_run(&run);
    stopped_at = stop = 0;
    if (status != LS_ESTOPPED)
        fail_msg("%d: %s", status, run.error.text);
    assert_false(holds);
    shell("ls run/checkpoints run/workers/0000/checkpoints run/workers/0001/checkpoints | grep "
          "step- | sort -u >found && echo step-00000006 | diff - found");
    expect_ended_well(&modes[0], &more, "behind a stop");
    assert_int_equal(more.first, 6);
}

/* A disk that failed has lost the end of the order of arrivals, which is newer in memory: what the
 * disk has is gone on from, or nothing. A checkpoint never has to do without. */
CASE(test_a_log_that_is_shorter_than_the_snapshot)
{
    static const struct {
        const char *saves, *loses;
        int first;
    } trials[] = {
        {"", "sed -i 4,\\$d run/arrivals", 0},
        {"", "truncate -s 0 run/arrivals", 0},
        {"", "rm run/arrivals", 0},
        {" train.save_every=3 train.keep=9 snapshot.every=1", "sed -i 6,\\$d run/arrivals", 3},
    };
    const struct mode *mode = &modes[6];
    for (size_t i = check_all() ? 0 : 1; i < sizeof trials / sizeof *trials; i++) {
        char words[300];
        snprintf(words, sizeof words, "%s%s", clock_layouts[i % 2], trials[i].saves);
        start_over();
        run_killed_at(mode, KILLED, words);
        shell(trials[i].loses);
        struct workers_run run = run_of(mode, words);
        expect_ended_well(mode, &run, words);
        if (run.first != trials[i].first || !strstr(run.said, "arrivals"))
            fail_msg("%s: from step %d: %s", trials[i].loses, run.first, run.said);
    }
}

/* The memory is lost with the process: all of a checkpoint is there, or nothing of it. */
CASE(test_killed_before_any_call_to_the_disk)
{
    static const char *const below[] = {"run/checkpoints", "run/workers"};
    int trials[2] = {0};
    for (int b = 0; b < 2; b++)
        for (int at = 1;; at += check_every(53, 109)) {
            start_over();
            snprintf(watched, sizeof watched, "%s", scratch_path(directory, below[b]));
            strikes_at = at;
            if (!run_killed(&modes[0], "parallel.workers=2 parallel.dp=2" STORES))
                break;
            watched[0] = '\0';
            *named = -1;
            ls_directory_remove(scratch_path(directory, "memory0"));
            assert_int_equal(mkdir(scratch_path(directory, "memory0"), 0755), 0);
            trials[b]++;
            if (is_lost(&modes[0], at % 2 ? "parallel.workers=1" : "parallel.workers=2"))
                fail_msg("%s: killed before call %d", below[b], at);
        }
    print_message("killed %d and %d times\n", trials[0], trials[1]);
    assert_true(trials[0] > 0 && trials[1] > 1);
}

/* A call of the checkpoint of step 3 fails: nothing is left of that, and the next one follows. If
 * it cannot even be begun beside steps, all wait for it. */
CASE(test_the_disk_refuses)
{
    static const char *const below[] = {"run/checkpoints/step-00000003",
                                        "run/workers/0001/checkpoints/step-00000003"};
    struct workers_run reference = reference_of(&modes[0]);
    int refused = 0;
    for (int b = 0; b < 2; b++)
        for (int at = 1;; at += check_every(5, 8)) {
            struct workers_run run = run_of(&modes[0], "parallel.workers=2" STORES);
            start_over();
            snprintf(watched, sizeof watched, "%s", scratch_path(directory, below[b]));
            strikes_at = at;
            strike = EIO;
            calls = 0;
            int status = workers_run(&run);
            if (status)
                fail_msg("%s, call %d: %s", below[b], at, run.error.text);
            workers_expect_alike(&reference, &run, below[b]);
            assert_int_equal(*stood, STEPS);
            if (calls < at)
                break;
            bool begun = !strstr(run.said, "no snapshot of step 3");
            if (begun && !strstr(run.said, "no checkpoint of step 3 (there is none yet)"))
                fail_msg("%s, call %d: told: %s", below[b], at, run.said);
            shell(begun ? "! ls -d run/checkpoints/*3* run/workers/*/checkpoints/*3* 2>/dev/null"
                        : "ls -d run/checkpoints/*3 run/workers/000[01]/checkpoints/*3 >/dev/null");
            refused += begun;
        }
    print_message("refused %d times\n", refused);
    assert_true(refused > 2);
}

/* ---- what fails ------------------------------------------------------------------------------ */

CASE(test_no_room)
{
    int warned = 0;
    for (int at = 1; at < 200; at += check_every(23, 31)) {
        struct workers_run run = run_of(&modes[0], "parallel.workers=2");
        start_over();
        snprintf(watched, sizeof watched, "%s", scratch_path(directory, "memory0"));
        strikes_at = at;
        strike = ENOSPC;
        calls = taken = 0;
        int status = workers_run(&run);
        watched[0] = '\0';
        if (status)
            fail_msg("call %d: %s", at, run.error.text);
        struct workers_run reference = reference_of(&modes[0]);
        workers_expect_alike(&reference, &run, "without room");
        /* A file or a folder that cannot be written over is made anew. */
        bool warns = strstr(run.said, "no snapshot") != NULL;
        if (warns ? calls < at : taken != STEPS / MEETS - 1)
            fail_msg("call %d of %d, %d snapshots: %s", at, calls, taken, run.said);
        warned += warns;
    }
    print_message("warned %d times\n", warned);
    assert_true(warned > 2);
}

/* Machines change places, so that a worker's files are where another one is computed; or the one of
 * a worker is gone, of which another has copies. */
CASE(test_other_machines)
{
    static const struct {
        const char *from, *to, *moves;
    } trials[] = {
        {"parallel.workers=2", "parallel.workers=2",
         "mv memory0 m && mv memory1 memory0 && mv m memory1"},
        {"parallel.workers=2", "parallel.workers=1", "rm -r memory1 && mkdir memory1"},
        {"parallel.workers=2 parallel.tp=2", "parallel.workers=2 parallel.pp=2",
         "rm -r memory2 && mkdir memory2"},
        {"parallel.workers=1", "parallel.workers=2 parallel.tp=2",
         "mv memory0 m && mv memory3 memory0 && mv m memory3"},
    };
    for (size_t i = 0; i < sizeof trials / sizeof *trials; i++) {
        const struct mode *mode = &modes[i == 1 ? 5 : 0];
        start_over();
        apart = true;
        run_killed_at(mode, KILLED, trials[i].from);
        shell(trials[i].moves);
        struct workers_run run = run_of(mode, trials[i].to);
        int status = workers_run(&run);
        apart = false;
        if (status || run.first != NEWEST || run.said[0])
            fail_msg("%s: from step %d: %s%s", trials[i].from, run.first, run.error.text, run.said);
        struct workers_run reference = reference_of(mode);
        workers_expect_alike(&reference, &run, trials[i].to);
    }
}

CASE(test_a_worker_that_is_not_copied)
{
    start_over();
    apart = true;
    twin = NOT_COPIED;
    run_killed_at(&modes[0], KILLED, "parallel.workers=2");
    twin = HONEST;
    shell("rm -r memory1 && mkdir memory1");
    struct workers_run run = run_of(&modes[0], "parallel.workers=1");
    workers_run_well(&run);
    apart = false;
    assert_int_equal(run.first, 0);
    assert_non_null(strstr(run.said, "skipping a snapshot that is not whole"));
}

/* A bit flips between the hash and the copy. */
CASE(test_not_what_was_hashed)
{
    for (int disk = 1; disk >= 0; disk--) {
        struct workers_run run = run_of(&modes[0], "parallel.workers=1");
        start_over();
        flipped_step = NEWEST;
        if (disk) {
            struct workers_run first = run_of(&modes[0], "parallel.workers=2");
            first.steps = MEETS;
            workers_run_well(&first); /* it saves where it ends */
        }
        run_killed_at(&modes[0], KILLED, "parallel.workers=2 snapshot.every=6");
        flipped_step = 0;
        int status = workers_run(&run);
        if (disk) {
            if (status || run.first != MEETS ||
                !strstr(run.said, "the newest snapshot is left out"))
                fail_msg("from step %d: %s%s", run.first, run.error.text, run.said);
            continue;
        }
        assert_int_equal(status, LS_ENUMERIC);
        assert_non_null(strstr(run.error.text, "There is no checkpoint on the disk"));
        assert_non_null(strstr(run.said, "the newest snapshot is left out"));
        run.said[0] = '\0';
        expect_ended_well(&modes[0], &run, "anew");
        assert_int_equal(run.first, 0);
    }
}

static int setup(void **state)
{
    setenv("LOCKSTEP_PEAK_FLOPS", "1e12", 0);
    named =
        mmap(NULL, 2 * sizeof *named, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (named == MAP_FAILED || workers_setup(state))
        return -1;
    stood = named + 1;
    directory = *state;
    return 0;
}

SUITE_MAIN(setup, scratch_teardown)
