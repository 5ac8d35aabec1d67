/* Checkpoints that are written while steps go on, without snapshots (checkpoint.async): while the
 * disk is fast each is that of the step which asks for it, with the bits of a run that waits; a
 * disk that hangs holds up no step; a run that is killed before any call goes on from a whole one;
 * what memory or the disk refuses is told, and steps go on; a run that fails completes the one that
 * is on its way.
 *
 * Broken twins: a run that waits for the disk, and one that ends without completing. */
#include "../support/extent.h"
#include "struck_run.h"
#include "train/run_private.h"

#include <lockstep/state.h>
#include <lockstep/train/fit.h>

#include <dirent.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char in_memory[] = "/memfd:lockstep"; /* what a file there is called */

/* ---- what happens at a call ------------------------------------------------------------------ */

static _Atomic bool steps_wait; /* the thread that takes steps writes tensors itself: */
static bool fails_at_2;         /* a step is not finite: */
static bool forgets;            /* then run_save_end opens the gate, and does nothing else */
static atomic_int memory_writes;

WRAPPED(write);
ssize_t __wrap_write(int file, const void *data, size_t bytes)
{
    if (waits_at_gate(file) && pthread_equal(pthread_self(), rank_thread))
        steps_wait = true;
    else if (waits_at_gate(file))
        gate_await();
    memory_writes += !strncmp(path_of(file), in_memory, strlen(in_memory));
    FAIL_BEFORE(path_of(file));
    return __real_write(file, data, bytes);
}

WRAPPED(ls_trainer_step);
int __wrap_ls_trainer_step(struct ls_trainer *t, struct ls_step_report *report,
                           struct ls_error *error)
{
    if (fails_at_2 && ls_trainer_steps(t) == 1)
        return ls_error_set(error, LS_ENUMERIC, "the loss of step 2 is not finite");
    return __real_ls_trainer_step(t, report, error);
}

/* Of a fast disk: it is done when it is asked. */
WRAPPED(ls_saving_done);
bool __wrap_ls_saving_done(struct ls_saving *saving)
{
    while (!__real_ls_saving_done(saving) && !holds)
        sched_yield();
    return __real_ls_saving_done(saving);
}

WRAPPED(run_save_end);
void __wrap_run_save_end(struct ls_running *run, bool alike)
{
    if (fails_at_2)
        gate_open();
    if (!forgets)
        __real_run_save_end(run, alike);
}

/* ---- runs ------------------------------------------------------------------------------------ */

/* What was due stands when a step of the caller's returns. */
static int steps_body(struct job *job, struct ls_comm *world, const struct ls_run_hooks *hooks,
                      struct ls_error *error)
{
    struct ls_running *run;
    struct ls_step_report report;
    int status = ls_run_open(&job->config, world, NULL, hooks, &run, error);
    assert_true(status || ls_run_trainer(run)->saves == 0); /* no copy is planned */
    while (!status && !ls_run_ended(run)) {
        status = ls_run_step(run, NULL, &report, error);
        assert_int_equal(job->saved[report.step], 1);
    }
    return ls_run_close(run, status, error);
}

static int group_setup(void **state)
{
    own = "checkpoint.async=true";
    return struck_setup(state);
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* Every step has its checkpoint, with the step's hash. */
static void steps_are_saved(const struct job *job, const char *keys)
{
    for (int step = 1; step <= STEPS; step++) {
        struct ls_checkpoint *checkpoint;
        struct ls_error error = {0};
        char name[64];
        snprintf(name, sizeof name, "run/checkpoints/step-%08d", step);
        assert_ok(ls_checkpoint_open(&checkpoint, path_in(name), &error), error);
        if (job->saved[step] != 1 || strcmp(checkpoint->state.hash, job->hash[step]))
            fail_msg("%s: step %d was saved %d times, hash %s; its record says %s", keys, step,
                     job->saved[step], checkpoint->state.hash, job->hash[step]);
        ls_checkpoint_close(checkpoint);
    }
    assert_int_equal(newest_in(path_in("run")), STEPS);
}

WRAPPED(ls_fd_read);
static atomic_int portions; /* read as what copies a file would */

int __wrap_ls_fd_read(int fd, int64_t at, void *buffer, size_t bytes, size_t *done)
{
    portions += bytes == 4 << 20;
    return __real_ls_fd_read(fd, at, buffer, bytes, done);
}

WRAPPED(mmap);
static bool unmapped; /* no file without a name is mapped */

void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    struct stat about;
    if (unmapped && fd >= 0 && !fstat(fd, &about) && about.st_nlink == 0)
        return MAP_FAILED;
    return __real_mmap(at, bytes, protection, flags, fd, offset);
}

/* The copy goes to the disk from where it is. Its twin, which the system does not map, is read. */
CASE(test_a_copy_is_not_copied_again)
{
    static struct job job;
    for (int twin = 0; twin < 2; twin++) {
        start_over();
        unmapped = twin;
        portions = 0;
        expect_run(&job, 2, "parallel.dp=2 parallel.zero=1 train.save_every=1");
        assert_int_equal(portions > 0, twin);
        assert_int_equal(newest_in(path_in("run")), STEPS);
    }
    unmapped = false;
}

WRAPPED(ls_file_maps_keep);
static bool drops;
static atomic_int copied; /* files */

void __wrap_ls_file_maps_keep(struct ls_file_maps **maps, int fd)
{
    copied++;
    if (drops)
        close(fd);
    else
        __real_ls_file_maps_keep(maps, fd);
}

/* From the second one on copies are stored where the first one was written. The twin drops each. */
CASE(test_a_copy_takes_the_memory_of_the_one_before)
{
    static struct job job;
    int writes = 0;
    for (int twin = 0; twin < 2; twin++) {
        start_over();
        drops = twin;
        memory_writes = copied = 0;
        expect_run(&job, 2, "parallel.dp=2 parallel.zero=1 train.save_every=1");
        assert_int_equal(copied, 2 * 2 * (STEPS - 1));
        assert_int_equal(memory_writes > 2 * writes, twin || !writes);
        writes = memory_writes;
    }
    drops = false;
}

CASE(test_each_step_that_asks)
{
    static const struct {
        int ranks;
        const char *keys;
    } layouts[] = {
        {1, "train.save_every=1"},
        {2, "parallel.dp=2 parallel.zero=0 train.save_every=1"},
        {2, "parallel.dp=2 parallel.zero=1 train.save_every=1"},
        {4, "parallel.dp_shard=2 parallel.tp=2 parallel.zero=3 train.save_every=1"},
        {2, "parallel.dp_shard=2 parallel.zero=2 memory.offload.optimizer=host train.save_every=1"},
    };
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        struct job job = {0};
        start_over();
        expect_run(&job, layouts[i].ranks, layouts[i].keys);
        steps_are_saved(&job, layouts[i].keys);
        assert_string_equal(job.said.warnings, "");
    }
    struct job job = {.loop = steps_body};
    start_over();
    expect_run(&job, 1, "train.save_every=1");
    steps_are_saved(&job, "ls_run_step");
}

/* What is trained with adapters. Workers wait, and have a checkpoint when they have met. */
CASE(test_other_units)
{
    static const char *const keys[] = {
        "lora.rank=2 train.save_every=1",
        "checkpoint.async=auto async.mode=diloco async.workers=2 async.sync_every=2 "
        "train.save_every=2",
        "checkpoint.async=auto async.mode=server async.workers=2 async.sync_every=2 "
        "train.save_every=2",
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        struct job waits = {0}, job = {0};
        struct ls_error error = {0};
        char words[256];
        start_over();
        snprintf(words, sizeof words, "%s checkpoint.async=false", keys[i]);
        assert_ok(run_once(&waits, 1, words, &error), error);
        start_over();
        assert_ok(run_once(&job, 1, keys[i], &error), error);
        assert_string_equal(job.said.warnings, "");
        assert_memory_equal(job.hash, waits.hash, sizeof job.hash);
        assert_memory_equal(job.saved, waits.saved, sizeof job.saved);
        assert_int_equal(newest_in(path_in("run")), STEPS);
        if (i > 0)
            assert_int_equal(newest_in(path_in("run/workers/0001")), STEPS);
    }
}

/* Bytes of this process's files in memory. */
static int64_t memory_files(void)
{
    int64_t bytes = 0;
    DIR *stream = opendir("/proc/self/fd");
    for (struct dirent *entry; (entry = readdir(stream));) {
        struct stat about;
        int file = atoi(entry->d_name);
        if (entry->d_name[0] != '.' && !strncmp(path_of(file), in_memory, strlen(in_memory)) &&
            !fstat(file, &about))
            bytes += about.st_size;
    }
    closedir(stream);
    return bytes;
}

/* The disk hangs from the save of step 3 until step 5 is done. */
static void hold_until_5(struct job *job, int64_t step)
{
    if (step == 2)
        gate_close();
    if (step != 5)
        return;
    if (!steps_wait) {
        sem_wait(&arrived);
        job->memory = memory_files();
        assert_int_equal(job->saved[3], 0);
    }
    gate_open();
}

/* The twins wait: their steps write. The copy is what the plan says, and so is that of the best
 * evaluation. */
#define BEST " train.save_every=0 train.keep_best=true eval.every=3 eval.samples=4"
CASE(test_a_disk_that_hangs)
{
    enum { HEADERS = 64 << 10 };
    char hash[33] = "";
    static const char *const keys[] = {"", "checkpoint.async=auto", BEST, "checkpoint.async=false",
                                       ("checkpoint.async=false" BEST)};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        struct job job = {.stepped = hold_until_5};
        struct ls_layout layout;
        struct ls_error error = {0};
        struct ls_memory_fit fit;
        char words[PATH_MAX + 256];
        bool waits = i >= 3;
        start_over();
        steps_wait = false;
        snprintf(words, sizeof words,
                 "model.layers=8 model.channels=64 data.valid=u16:%s/valid.bin "
                 "train.save_every=3 %s",
                 directory,
                 keys[i]); /* a file is larger than what is gathered before it is written */
        assert_ok(run_once(&job, 1, words, &error), error);
        assert_true(i == 0 || !strcmp(job.hash[STEPS], hash));
        memcpy(hash, job.hash[STEPS], sizeof hash);
        assert_int_equal(steps_wait, waits);
        assert_int_equal(job.saved[3], 1);
        assert_int_equal(job.saved[6], 1);
        assert_string_equal(job.said.warnings, "");
        assert_int_equal(ls_config_layout(&job.config, 0, &layout, &error), LS_OK);
        assert_int_equal(ls_memory_fit(&job.config, &layout, NULL, &fit, &error), LS_OK);
        assert_in_range(job.memory, fit.saves, fit.saves + (fit.saves > 0) * HEADERS);
        assert_int_equal(fit.saves > 0, !waits);
    }
    assert_int_equal(memory_files(), 0);
}

/* From the first one that is due. */
static void hold_first_until_5(struct job *job, int64_t step)
{
    int64_t every = job->config.train.save_every;
    if (step == every)
        gate_close();
    if (step == 5) {
        sem_wait(&arrived);
        assert_int_equal(job->saved[every], 0);
        gate_open();
    }
}

/* The one that falls due meanwhile is that of the first step behind. Twice is a warning. */
CASE(test_a_checkpoint_that_is_due_while_the_disk_hangs)
{
    for (int every = 1; every <= 2; every++) {
        struct job job = {.stepped = hold_first_until_5};
        char words[64];
        start_over();
        snprintf(words, sizeof words, "train.save_every=%d", every);
        expect_run(&job, 1, words);
        const int saved[STEPS + 1] = {0, every == 1, every == 2, 0, 0, 1, 1};
        assert_memory_equal(job.saved, saved, sizeof saved);
        assert_text_contains(job.said.text, every == 1 ? "the checkpoint due after step 2 will be"
                                                       : "the checkpoint due after step 4 will be");
        assert_true(!strstr(job.said.warnings, "two more were due since") == (every == 2));
        assert_int_equal(newest_in(path_in("run")), STEPS);
    }
}

/* Killed behind its last checkpoint: the next start has nothing to compute. */
static void expect_ended(struct job *job)
{
    struct ls_checkpoint *checkpoint;
    struct ls_error error = {0};
    assert_ok(run_once(job, 2, "parallel.dp=2 parallel.zero=2", &error), error);
    assert_string_equal(job->hash[STEPS], "");
    assert_ok(ls_checkpoint_open(&checkpoint, path_in("run/checkpoints/step-00000006"), &error),
              error);
    assert_string_equal(checkpoint->state.hash, expected);
    ls_checkpoint_close(checkpoint);
}

CASE(test_killed_at_any_call)
{
    static const struct {
        int ranks;
        const char *keys;
    } jobs[] = {{1, "train.save_every=2"},
                {4, "parallel.dp_shard=2 parallel.tp=2 parallel.zero=3 train.save_every=2"}};
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
        int kills = 0, gone_on = 0, stride = i ? check_every(43, 41) : check_every(17, 13);
        for (int number = 1;; number += stride, kills++) {
            struct job job = {0};
            start_over();
            snprintf(watched, sizeof watched, "%s", directory);
            strikes_at = number;
            strike = 0;
            *named = -1;
            if (!run_killed(jobs[i].ranks, jobs[i].keys, NULL))
                break;
            watched[0] = '\0';
            int64_t from = newest_in(path_in("run"));
            if (from < *named)
                fail_msg("killed before call %d: step %ld had a name, and is lost", number,
                         (long)*named);
            gone_on += from > 0;
            if (from == STEPS) {
                expect_ended(&job);
                continue;
            }
            expect_run(&job, 2, "parallel.dp=2 parallel.zero=2");
            if (from > 0 && job.hash[from][0])
                fail_msg("killed before call %d: step %ld was there and is computed again", number,
                         (long)from);
        }
        print_message("%d kills, after %d of them the run went on from a checkpoint\n", kills,
                      gone_on);
        assert_true(kills > 3 && gone_on > 0);
    }
}

/* One call after the other fails, of a checkpoint or of its copy in memory. */
static void fails_at_every_call(const char *where, int errors, int stride)
{
    int failures = 0, told = 0;
    for (int number = 1;; number += stride, failures++) {
        struct job job = {0};
        start_over();
        if (where != in_memory)
            assert_int_equal(mkdir(path_in("run"), 0777), 0);
        snprintf(watched, sizeof watched, "%s", where);
        strikes_at = number;
        strike = errors;
        expect_run(&job, 2, "parallel.dp=2 parallel.zero=1 train.save_every=2");
        if (calls < number)
            break;
        told += strstr(job.said.warnings, "no checkpoint of step ") != NULL;
        assert_int_equal(newest_in(path_in("run")), STEPS);
    }
    print_message("%d failures in %s, %d of them told\n", failures, where, told);
    assert_true(failures > 2 && told > 0);
    if (where == in_memory)
        assert_int_equal(told, failures);
}

CASE(test_what_is_refused)
{
    char step_2[PATH_MAX];
    snprintf(step_2, sizeof step_2, "%s", path_in("run/checkpoints/step-00000002"));
    fails_at_every_call(step_2, EIO, check_every(7, 5));
    fails_at_every_call(in_memory, ENOSPC, 1);
}

static int taken_at;

static void memory_taken(struct job *job, int64_t step)
{
    if (step == taken_at)
        machine_free = 1;
}

/* At the start: the run waits for all. Later: for those that there is no room for, told once; the
 * first copy's is the run's. */
CASE(test_no_room)
{
    struct job job = {0};
    start_over();
    machine_free = 1;
    expect_run(&job, 1, "train.save_every=1 checkpoint.async=auto");
    machine_free = 0;
    assert_text_contains(job.said.text, "steps wait while checkpoints are written: memory has no");
    steps_are_saved(&job, "no room at the start");

    for (taken_at = 1; taken_at < 3; taken_at++) {
        struct job later = {.stepped = memory_taken};
        start_over();
        expect_run(&later, 1, "train.save_every=1");
        machine_free = 0;
        const char *told = strstr(later.said.warnings, "steps wait while the checkpoint of step 1");
        if (!told != (taken_at > 1) || (told && strstr(told + 1, "steps wait")))
            fail_msg("told: %s", later.said.warnings);
        steps_are_saved(&later, "no room later");
    }
}

static void hold_from_1(struct job *job, int64_t step)
{
    if (step == 1)
        gate_close();
}

/* The loss of step 2 is not finite while the checkpoint of step 1 is on its way. The twin ends at
 * once. */
CASE(test_a_run_that_fails)
{
    for (int twin = 0; twin < 2; twin++) {
        struct job job = {.stepped = hold_from_1};
        struct ls_error error = {0};
        start_over();
        fails_at_2 = true;
        forgets = twin;
        assert_int_equal(run_once(&job, 1, "train.save_every=1", &error), LS_ENUMERIC);
        fails_at_2 = forgets = false;
        assert_int_equal(newest_in(path_in("run")), twin ? -1 : 1);
    }
}

int main(void)
{
    setenv("LOCKSTEP_PEAK_FLOPS", "1e12", 1);
    return suite_run(group_setup, scratch_teardown);
}
