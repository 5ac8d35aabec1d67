/* Snapshots: a run that takes them has the bits of one that does not; one that is killed before any
 * call of a snapshot or of a checkpoint that is written from it goes on from a whole one, in
 * another layout; where the memory or the disk refuses, steps go on. */
#include "../support/extent.h"
#include "struck_run.h"
#include "train/snapshots.h"

#include <lockstep/ckpt/interval.h>
#include <lockstep/interop.h>
#include <lockstep/state.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>

#include <linux/magic.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

/* ---- what happens at a call ------------------------------------------------------------------ */

static enum { HONEST, OVER_THE_NEWEST, OVER_WHAT_IS_STORED } twin; /* which files are taken */
static int64_t flipped_step; /* whose hash is another than its snapshot's */

WRAPPED(ls_saving_begin);
int __wrap_ls_saving_begin(struct ls_saving **out, struct ls_state *state, const char *folder,
                           int64_t newest, int64_t spare, bool stored, const struct ls_digest *hash,
                           struct ls_error *error)
{
    struct ls_digest other = hash ? *hash : (struct ls_digest){0, 0};
    other.low ^= flipped_step && state->step == flipped_step;
    if (twin == OVER_THE_NEWEST)
        spare = newest;
    if (twin == OVER_WHAT_IS_STORED)
        spare = state->step - 2;
    return __real_ls_saving_begin(out, state, folder, newest, spare, stored, hash ? &other : NULL,
                                  error);
}

static bool stays; /* no folder can be removed */

WRAPPED(ls_directory_remove);
bool __wrap_ls_directory_remove(const char *path)
{
    return !stays && __real_ls_directory_remove(path);
}

WRAPPED(write);
ssize_t __wrap_write(int file, const void *data, size_t bytes)
{
    if (waits_at_gate(file))
        gate_await();
    FAIL_BEFORE(path_of(file));
    return __real_write(file, data, bytes);
}

static void kill_after_5(struct job *job, int64_t step)
{
    if (step == 5)
        raise(SIGKILL);
}

/* The folder of the run's snapshots; "" where there is none. */
static const char *snapshots(void)
{
    static char path[PATH_MAX];
    DIR *stream = opendir(path_in("memory"));
    path[0] = '\0';
    for (struct dirent *entry; (entry = readdir(stream));)
        if (entry->d_name[0] != '.')
            snprintf(path, sizeof path, "%s/%s", path_in("memory"), entry->d_name);
    closedir(stream);
    return path;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static const struct {
    int ranks;
    const char *keys;
} layouts[] = {
    {1, ""},
    {2, "parallel.dp=2 parallel.zero=1"},
    {4, "parallel.dp_shard=2 parallel.tp=2 parallel.zero=3"},
    {2, "parallel.dp_shard=2 parallel.zero=1 memory.offload.optimizer=host"},
};

/* Checkpoints that are written from snapshots are those of steps, with the hash of each. */
CASE(test_the_bits_are_the_same)
{
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        struct job job = {0};
        char keys[256];
        int saves = 0;
        start_over();
        snprintf(keys, sizeof keys, "%s snapshot.every=1 train.save_every=1", layouts[i].keys);
        expect_run(&job, layouts[i].ranks, keys);
        for (int step = 1; step <= STEPS; step++) {
            struct ls_checkpoint *checkpoint;
            struct ls_error error = {0};
            char name[64];
            if (!job.saved[step])
                continue;
            snprintf(name, sizeof name, "run/checkpoints/step-%08d", step);
            assert_ok(ls_checkpoint_open(&checkpoint, path_in(name), &error), error);
            assert_string_equal(checkpoint->state.hash, job.hash[step]);
            ls_checkpoint_close(checkpoint);
            saves++;
        }
        assert_int_equal(newest_in(path_in("run")), STEPS);
        assert_true(saves >= 2); /* one beside steps, and the last */
        assert_string_equal(snapshots(), "");
    }
}

/* Killed behind its last checkpoint: the next start has nothing to compute, and removes snapshots
 * that are left. */
static void expect_ended(struct job *job)
{
    struct ls_checkpoint *checkpoint = NULL;
    struct ls_error error = {0};
    assert_ok(run_once(job, 2, "parallel.dp=2 parallel.zero=2 snapshot.every=1", &error), error);
    assert_string_equal(job->hash[STEPS], "");
    assert_ok(ls_checkpoint_find_latest(&checkpoint, path_in("run"), NULL, &error), error);
    assert_int_equal(checkpoint->state.step, STEPS);
    assert_string_equal(checkpoint->state.hash, expected);
    ls_checkpoint_close(checkpoint);
    assert_string_equal(snapshots(), "");
}

/* Killed before each call in the run's folder and in memory: what had a name is whole, and the run
 * goes on from it. Returns how often a snapshot was newer than the disk. */
static int killed_at_every_call(int ranks, const char *keys, int stride)
{
    char all[256];
    int kills = 0, on = 0;
    snprintf(all, sizeof all, "%s snapshot.every=1 train.save_every=2", keys);
    for (int number = 1;; number += stride) {
        struct job job = {0};
        start_over();
        snprintf(watched, sizeof watched, "%s", directory);
        strikes_at = number;
        strike = 0;
        *named = -1;
        if (!run_killed(ranks, all, NULL))
            break;
        kills++;
        watched[0] = '\0';
        int64_t in_memory = newest_in(snapshots()), on_disk = newest_in(path_in("run"));
        if (in_memory < *named && on_disk < *named)
            fail_msg("killed before call %d: step %ld had a name, and is lost", number,
                     (long)*named);
        if (on_disk == STEPS) {
            expect_ended(&job);
            continue;
        }
        expect_run(&job, 2, "parallel.dp=2 parallel.zero=2 snapshot.every=1");
        int64_t from = in_memory > on_disk ? in_memory : on_disk;
        if (from > 0 && job.hash[from][0])
            fail_msg("killed before call %d: step %ld was there and is computed again", number,
                     (long)from);
        on += in_memory > on_disk;
    }
    print_message("%d kills with %d rank%s, %d of them left a snapshot newer than the disk\n",
                  kills, ranks, ranks > 1 ? "s" : "", on);
    assert_true(kills > 3);
    return on;
}

CASE(test_killed_at_any_call)
{
    int on = killed_at_every_call(1, "", check_every(41, 53));
    on += killed_at_every_call(4, "parallel.dp_shard=2 parallel.tp=2 parallel.zero=3",
                               check_every(97, 97));
    assert_true(on > 0);
}

static bool there[STEPS + 1]; /* after the step, before what is saved then */

static void see_folder(struct job *job, int64_t step)
{
    there[step] = *snapshots();
}

/* A start that has no room for snapshots keeps the one that it goes on from until a checkpoint is
 * saved. */
CASE(test_no_room_for_more)
{
    struct job job = {.stepped = see_folder};
    start_over();
    assert_true(run_killed(1, "snapshot.every=1", kill_after_5));
    machine_free = 1;
    expect_run(&job, 1, "snapshot.every=auto train.save_every=5");
    machine_free = 0;
    assert_non_null(strstr(job.said.warnings, "That of step 3 stays until a checkpoint is saved"));
    assert_true(there[4] && there[5] && !there[6]);
}

/* ---- files of the one before the newest ------------------------------------------------------ */

static _Atomic int maps; /* files that are written over by a map, of those in memory */
static _Atomic bool in_memory;

WRAPPED(ls_atomic_file_map);
void __wrap_ls_atomic_file_map(struct ls_atomic_file *file, struct ls_file_maps **list)
{
    struct statfs system;
    in_memory = !fstatfs(file->fd, &system) && system.f_type == TMPFS_MAGIC;
    __real_ls_atomic_file_map(file, list);
    maps += file->map != NULL;
}

static int held[STEPS + 1]; /* a file of each snapshot, open: no other file gets its number */

static void file_hold(struct job *job, int64_t step)
{
    char path[2 * PATH_MAX];
    if (step < 3) /* then the first one has its name */
        return;
    snprintf(path, sizeof path, "%s/checkpoints/step-%08ld/shard-00001-model-00001-of-00001%s",
             snapshots(), (long)step - 2, ".safetensors");
    held[step - 2] = open(path, O_RDONLY);
    assert_true(held[step - 2] >= 0);
}

/* Each snapshot is written over the one before the last: a machine's memory gives no new pages. */
CASE(test_its_files_are_taken_again)
{
    struct job job = {.stepped = file_hold};
    struct stat file[STEPS - 1];
    start_over();
    maps = 0;
    expect_run(&job, 1, "snapshot.every=1");
    assert_int_equal(maps, in_memory ? 2 * (STEPS - 3) : 0); /* two parts, from the third on */
    for (int step = 1; step <= STEPS - 2; step++) {
        assert_int_equal(fstat(held[step], &file[step]), 0);
        if (step > 1)
            assert_true(file[step].st_ino != file[step - 1].st_ino);
        if (step > 2)
            assert_true(file[step].st_ino == file[step - 2].st_ino);
    }
    for (int step = 1; step <= STEPS - 2; step++)
        close(held[step]);
}

static void kill_at_6(struct job *job, int64_t step)
{
    if (step == 6)
        raise(SIGKILL);
}

/* The twin writes over the newest: while it does there is none. */
CASE(test_over_the_newest_is_caught)
{
    for (twin = HONEST; twin <= OVER_THE_NEWEST; twin++) {
        start_over();
        assert_true(run_killed(1, "snapshot.every=1", kill_at_6));
        assert_int_equal(newest_in(snapshots()), twin == HONEST ? 4 : -1);
    }
    twin = HONEST;
}

static void kill_at_3(struct job *job, int64_t step)
{
    if (step == 3)
        raise(SIGKILL);
}

/* Left on a machine that the next start did not have, and back in the one after, which goes on from
 * what that start saved. */
CASE(test_a_snapshot_of_an_earlier_start)
{
    struct job job = {0};
    char here[PATH_MAX], away[PATH_MAX];
    start_over();
    assert_true(run_killed(1, "snapshot.every=1 train.save_first=true", kill_at_6));
    snprintf(here, sizeof here, "%s", snapshots());
    snprintf(away, sizeof away, "%s", path_in("away"));
    assert_int_equal(rename(here, away), 0);
    assert_true(run_killed(1, "train.save_every=2 checkpoint.async=false", kill_at_3));
    assert_int_equal(rename(away, here), 0);
    assert_true(newest_in(snapshots()) > newest_in(path_in("run")));
    expect_run(&job, 1, "snapshot.every=1");
    assert_string_not_equal(job.hash[3], "");
    assert_non_null(strstr(job.said.warnings,
                           "start 1 of the run took it, and start 2 has saved a checkpoint since"));
    /* A copy has another name, and counts on. */
    struct ls_run_token token;
    struct ls_error error = {0};
    assert_int_equal(unlink(path_in("run/start")), 0);
    assert_ok(ls_run_token_take(path_in("run"), &token, &error), error);
    assert_int_equal(token.start, 4);
}

/* All may write where snapshots lie: one that another user made is not read. */
CASE(test_a_folder_of_another_user)
{
    struct job job = {0};
    if (geteuid() != 0) {
        print_message("SKIPPED: only root gives a folder away\n");
        skip();
    }
    start_over();
    assert_true(run_killed(1, "snapshot.every=1 train.save_first=true", kill_at_6));
    assert_int_equal(chown(snapshots(), 1, 1), 0);
    expect_run(&job, 1, "snapshot.every=1");
    assert_string_not_equal(job.hash[1], "");
    assert_non_null(strstr(job.said.warnings, "snapshots are not looked at: "));
}

/* A start that is refused, here with other data, leaves those that it would have gone behind. */
CASE(test_a_refused_start_removes_none)
{
    struct job job = {0};
    struct ls_error error = {0};
    static const uint16_t other[500] = {1};
    char keys[2 * PATH_MAX + 100];
    start_over();
    assert_true(run_killed(1, "snapshot.every=1 train.save_first=true", kill_at_6));
    scratch_write(path_in("other.bin"), other, sizeof other);
    int used = snprintf(keys, sizeof keys,
                        "data.train=u16:%s snapshot.every=1 train.resume=", path_in("other.bin"));
    snprintf(keys + used, sizeof keys - (size_t)used, "%s",
             path_in("run/checkpoints/step-00000000"));
    assert_int_not_equal(run_once(&job, 1, keys, &error), LS_OK);
    assert_text_contains(error.text, "Put back what the run began with");
    assert_int_equal(newest_in(snapshots()), 4);
}

static void hold_from_2_to_6(struct job *job, int64_t step)
{
    if (step == 2) {
        gate_close();
    }
    if (step == 6) { /* the snapshot of step 5 is copied */
        sem_wait(&arrived);
        gate_open();
    }
}

static bool is_whole(const char *run, const char *step)
{
    struct ls_checkpoint *checkpoint;
    struct ls_error error = {0};
    assert_ok(ls_checkpoint_choose(&checkpoint, run, step, NULL, &error), error);
    int status = ls_checkpoint_verify(checkpoint, LS_CKPT_MODEL, &error);
    status = status ? status : ls_checkpoint_verify(checkpoint, LS_CKPT_OPTIMIZER, &error);
    ls_checkpoint_close(checkpoint);
    assert_true(status == LS_OK || status == LS_ECKPT);
    return !status;
}

/* A checkpoint is copied from the snapshot of step 3 while that of step 5 is taken; the twin takes
 * its files. */
CASE(test_over_what_is_stored_is_caught)
{
    for (int honest = 0; honest < 2; honest++) {
        struct job job = {.stepped = hold_from_2_to_6};
        sem_init(&arrived, 0, 0);
        start_over();
        twin = honest ? HONEST : OVER_WHAT_IS_STORED;
        expect_run(&job, 1, "snapshot.every=1 train.save_every=3");
        twin = HONEST;
        assert_true(job.saved[3] == 1);
        assert_int_equal(is_whole(path_in("run"), "3"), honest);
    }
}

/* ---- what fails ------------------------------------------------------------------------------ */

/* A call fails, in memory or on the disk: the run says so, and ends with the same bits. */
static void fails_at_every_call(const char *below, int errors, int stride)
{
    int failures = 0, told = 0;
    for (int number = 1;; number += stride) {
        struct job job = {0};
        start_over();
        snprintf(watched, sizeof watched, "%s", path_in(below));
        if (!strcmp(below, "run")) {
            assert_int_equal(mkdir(path_in("run"), 0777), 0);
            snprintf(watched, sizeof watched, "%s", path_in("run/checkpoints/step-00000002"));
        }
        strikes_at = number;
        strike = errors;
        expect_run(&job, 2, "parallel.dp=2 parallel.zero=1 snapshot.every=1 train.save_every=2");
        if (calls < number)
            break;
        failures++;
        told +=
            strstr(job.said.warnings, "no snapshot") || strstr(job.said.warnings, "no checkpoint");
        assert_int_equal(newest_in(path_in("run")), STEPS);
        assert_string_equal(snapshots(), "");
    }
    print_message("%d failures in %s, %d of them told\n", failures, below, told);
    assert_true(failures > 2 && told > 0);
}

CASE(test_no_room)
{
    fails_at_every_call("memory", ENOSPC, check_every(61, 47));
    fails_at_every_call("run", EIO, check_every(13, 11));
}

/* Calls fail from the snapshot of step 1, which has no name yet, to that of step 4. */
static void refuse_from_2_to_5(struct job *job, int64_t step)
{
    lasts = step >= 2 && step < 5;
}

static int said_times(const struct said *said, const char *words)
{
    int count = 0;
    for (const char *at = said->warnings; (at = strstr(at, words)); at++)
        count++;
    return count;
}

/* However many are refused in a row, it is said once; and once that they are taken again. */
CASE(test_no_room_for_a_while)
{
    struct job job = {.stepped = refuse_from_2_to_5};
    start_over();
    snprintf(watched, sizeof watched, "%s", path_in("memory"));
    strike = ENOSPC;
    expect_run(&job, 2, "parallel.dp=2 snapshot.every=1");
    if (said_times(&job.said, "no snapshot of step ") != 1 ||
        !strstr(job.said.warnings, "and tries again when the next one is due") ||
        said_times(&job.said, "there is one of step 5; 4 before it are missing") != 1)
        fail_msg("told: %s", job.said.warnings);
}

/* What is damaged in memory is not gone on from. */
CASE(test_damage)
{
    char line[PATH_MAX + 256];
    int damages = 0;
    struct job first = {0};
    struct ls_error error = {0};
    start_over();
    steps = 2;
    assert_int_equal(run_once(&first, 1, "", &error), LS_OK);
    steps = STEPS;
    assert_true(run_killed(2, "parallel.dp=2 parallel.zero=1 snapshot.every=1", kill_after_5));
    assert_int_equal(newest_in(snapshots()), 3);
    snprintf(line, sizeof line, "cd '%s' && rm -rf kept && mkdir kept && cp -a run memory kept",
             directory);
    assert_int_equal(system(line), 0);
    snprintf(line, sizeof line, "%s/checkpoints/step-00000003", snapshots());
    char names[8][256];
    int count = 0;
    DIR *stream = opendir(line);
    for (struct dirent *entry; (entry = readdir(stream));)
        if (entry->d_name[0] != '.')
            snprintf(names[count++], sizeof names[0], "%s", entry->d_name);
    closedir(stream);
    assert_int_equal(count, 5);
    for (int i = 0; i < count; i++)
        for (int way = 0; way < 4; way++) {
            if (!check_pair(i, way, 3))
                continue;
            struct job job = {0};
            bool disk = way < 2; /* has a checkpoint */
            char path[PATH_MAX];
            size_t bytes;
            snprintf(line, sizeof line, /* the run's folder stays: a copy is another run */
                     "cd '%s' && rm -rf run/* memory/* && cp -a kept/run/. run && "
                     "cp -a kept/memory/. memory",
                     directory);
            assert_int_equal(system(line), 0);
            snprintf(line, sizeof line, "rm -r '%s'/run/checkpoints/*", directory);
            assert_int_equal(disk ? 0 : system(line), 0);
            snprintf(path, sizeof path, "%.1500s/checkpoints/step-00000003/%.255s", snapshots(),
                     names[i]);
            char *text = scratch_read(path, &bytes);
            text[bytes / 2] = (char)(text[bytes / 2] ^ 4);
            scratch_write(path, text, way % 2 ? bytes / 2 : bytes);
            free(text);
            expect_run(&job, 1, "snapshot.every=1");
            if (!job.hash[2][0] != disk || !job.hash[3][0] || !strstr(job.said.warnings, names[i]))
                fail_msg("%s: %s", path, job.said.warnings);
            damages++;
        }
    print_message("%d damages\n", damages);
}

/* Whoever would begin anew over a snapshot, or with another recipe, is told; it stays. */
CASE(test_what_would_lose_it)
{
    static const struct {
        const char *keys;
        int status;
        const char *words;
    } cases[] = {{"train.resume=never", LS_ECONFIG, "has a snapshot"},
                 {"optim.lr=0.5", LS_ECKPT, "another recipe (optim.lr"}};
    start_over();
    assert_true(run_killed(1, "snapshot.every=1", kill_after_5));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct job job = {0};
        struct ls_error error = {0};
        assert_int_equal(run_once(&job, 1, cases[i].keys, &error), cases[i].status);
        assert_text_contains(error.text, cases[i].words);
        assert_int_equal(newest_in(snapshots()), 3);
    }
    struct job job = {0};
    expect_run(&job, 2, "parallel.dp=2");
    assert_false(job.hash[3][0]);
}

/* Another run of that path does not find them, and takes away what nobody can use. */
CASE(test_a_run_that_begins_anew)
{
    struct job job = {0};
    char line[PATH_MAX + 64];
    start_over();
    assert_true(run_killed(1, "snapshot.every=1", kill_after_5));
    assert_int_equal(newest_in(snapshots()), 3);
    snprintf(line, sizeof line, "rm -r '%s/run'", directory);
    assert_int_equal(system(line), 0);
    expect_run(&job, 1, "");
    assert_true(job.hash[1][0]); /* from the first step */
    assert_string_equal(snapshots(), "");
}

static void start_taken(struct job *job, int64_t step)
{
    struct ls_run_token token;
    if (step == 3)
        assert_int_equal(ls_run_token_take(path_in("run"), &token, NULL), LS_OK);
}

static void start_removed(struct job *job, int64_t step)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/start", path_in("run"));
    if (step == 1)
        assert_int_equal(unlink(path), 0);
}

/* The folder was removed while the run goes on: nothing is saved, of workers neither. */
CASE(test_a_start_that_is_gone)
{
    static const char *const keys[] = {"train.save_every=3",
                                       "train.save_every=3 async.mode=diloco async.workers=2 "
                                       "async.sync_every=3"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        struct job job = {.stepped = start_removed};
        struct ls_error error = {0};
        start_over();
        int status = run_once(&job, 1, keys[i], &error);
        if (status != LS_EIO || !strstr(error.text, "run/start: it is gone"))
            fail_msg("%s: status %d: %s", keys[i], status, error.text);
    }
}

/* A later start writes to the run: the earlier one names nothing any more. */
CASE(test_an_earlier_start)
{
    static const char *const keys[] = {"train.save_every=2",
                                       "train.save_every=2 checkpoint.async=true",
                                       "train.save_every=2 snapshot.every=2"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        struct job job = {.stepped = start_taken};
        struct ls_error error = {0};
        start_over();
        assert_int_equal(run_once(&job, 1, keys[i], &error), LS_EBUSY);
        assert_non_null(strstr(error.text, "later start"));
        assert_int_equal(newest_in(path_in("run")), i ? -1 : 2);
    }
}

static bool held_for_two;
static int64_t held_from; /* the step: no checkpoint is on its way yet */

static void let_go_after_5(struct job *job, int64_t step)
{
    if (step == held_from) {
        gate_close();
    }
    if (step == 5) {
        sem_wait(&arrived);
        held_for_two = !job->saved[3];
        gate_open();
    }
}

/* A disk that hangs holds up no step. If that is longer than between two checkpoints, it is said,
 * once. */
CASE(test_a_slow_disk)
{
    static const char words[] = "the checkpoint of step 1 is still being written to ";
    struct job job = {.stepped = let_go_after_5}, often = job, honest = {0};
    sem_init(&arrived, 0, 0);
    held_from = 2;
    start_over();
    expect_run(&job, 1, "snapshot.every=1 train.save_every=3");
    assert_true(held_for_two);
    assert_true(job.saved[3] == 1 && job.saved[6] == 1);
    assert_string_equal(job.said.warnings, "");

    held_from = 1;
    start_over();
    expect_run(&often, 1, "snapshot.every=1 train.save_every=1");
    const char *said = strstr(often.said.warnings, words);
    if (!said || strstr(said + 1, words) || !strstr(said, path_in("run")))
        fail_msg("told: %s", often.said.warnings);
    assert_true(often.saved[6] == 1);
    assert_int_equal(newest_in(path_in("run")), STEPS);

    struct job alone = {.stepped = let_go_after_5}; /* a snapshot only where one is stored */
    held_from = 2;
    start_over();
    expect_run(&alone, 1, "snapshot.every=3 train.save_every=3");
    assert_true(held_for_two);
    assert_true(alone.saved[3] == 1 && alone.saved[6] == 1);
    assert_string_equal(alone.said.warnings, "");

    start_over(); /* the disk does not hang */
    expect_run(&honest, 1, "snapshot.every=1 train.save_every=3");
    assert_string_equal(honest.said.warnings, "");
}

/* The hash that threads make beside the step, which moves the loss scale meanwhile, is the one that
 * ranks make when they stop for it. */
CASE(test_its_hash)
{
    static const struct {
        int ranks;
        const char *keys;
    } layouts[] = {{1, ""},
                   {2, "parallel.dp=2 parallel.zero=0"},
                   {2, "parallel.dp=2 parallel.zero=2"},
                   {2, "parallel.tp=2"}};
    static const char scaled[] =
        "numerics.precision=fp16 numerics.initial_scale_power=8 numerics.loss_scale_window=1";
    struct job reference = {0};
    struct ls_error failed = {0};
    start_over();
    assert_ok(run_once(&reference, 1, scaled, &failed), failed);
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        struct ls_checkpoint *checkpoint = NULL;
        struct ls_error error = {0};
        char keys[256];
        start_over();
        snprintf(keys, sizeof keys, "%s %s snapshot.every=1 log.hash_every=0", scaled,
                 layouts[i].keys);
        assert_true(run_killed(layouts[i].ranks, keys, kill_after_5));
        assert_int_equal(ls_checkpoint_find_latest(&checkpoint, snapshots(), NULL, &error), LS_OK);
        assert_int_equal(checkpoint->state.step, 3);
        assert_string_equal(checkpoint->state.hash, reference.hash[3]);
        ls_checkpoint_close(checkpoint);
    }
}

/* A bit flips between the hash and the copy: the pieces are whole, and are not what was hashed. */
CASE(test_not_what_was_hashed)
{
    for (int disk = 1; disk >= 0; disk--) {
        struct job first = {0}, job = {0};
        struct ls_error error = {0};
        start_over();
        steps = 2;
        assert_int_equal(run_once(&first, 1, "", &error), LS_OK);
        steps = STEPS;
        flipped_step = 3;
        assert_true(run_killed(2, "parallel.dp=2 parallel.zero=1 snapshot.every=1", kill_after_5));
        flipped_step = 0;
        assert_int_equal(newest_in(snapshots()), 3);
        if (disk) {
            expect_run(&job, 2, "parallel.tp=2 snapshot.every=1");
            assert_string_not_equal(job.hash[3], ""); /* computed again */
            assert_non_null(strstr(job.said.warnings, "the newest snapshot is left out"));
            continue;
        }
        char line[PATH_MAX + 64];
        snprintf(line, sizeof line, "rm -r '%s'/run/checkpoints", directory);
        assert_int_equal(system(line), 0);
        stays = true;
        assert_int_equal(run_once(&job, 1, "", &error), LS_EIO);
        stays = false;
        snprintf(line, sizeof line, "%s: cannot remove this folder", snapshots());
        assert_non_null(strstr(error.text, line));
        assert_int_equal(newest_in(snapshots()), 3);
        assert_int_equal(run_once(&job, 1, "", &error), LS_ENUMERIC);
        assert_non_null(strstr(error.text, "There is no checkpoint on the disk"));
        assert_string_equal(snapshots(), "");
        expect_run(&job, 1, ""); /* anew */
        assert_string_not_equal(job.hash[1], "");
    }
}

static void shell_in(const char *commands)
{
    char line[2 * PATH_MAX];
    snprintf(line, sizeof line, "cd '%s' && %s", directory, commands);
    assert_int_equal(system(line), 0);
}

/* The same where imported weights take the snapshot's place: all else is as at the beginning. */
CASE(test_imported_weights_take_its_place)
{
    static const char keys[] = "numerics.precision=fp16 snapshot.every=1";
    struct job first = {0}, whole = {0}, job = {0};
    struct ls_error error = {0};
    struct ls_import_report report;
    char from[PATH_MAX], to[PATH_MAX];
    start_over();
    steps = 2;
    assert_int_equal(run_once(&first, 1, "numerics.precision=fp16", &error), LS_OK);
    steps = STEPS;
    snprintf(from, sizeof from, "%s/run", directory);
    snprintf(to, sizeof to, "%s/imported", directory);
    const struct ls_import what = {.from = from, .run = to};
    assert_ok(ls_import(&what, &report, &error), error);
    shell_in("rm -rf run && cp -r imported run");
    assert_ok(run_once(&whole, 1, "numerics.precision=fp16", &error), error);
    shell_in("rm -rf run && mv imported run");
    flipped_step = 3;
    assert_true(
        run_killed(2, "parallel.dp=2 numerics.precision=fp16 snapshot.every=1", kill_after_5));
    flipped_step = 0;
    assert_ok(run_once(&job, 1, keys, &error), error);
    assert_non_null(strstr(job.said.warnings, "the newest snapshot is left out"));
    for (int step = 1; step <= STEPS; step++)
        assert_string_equal(job.hash[step], whole.hash[step]);
}

/* The state is damaged, and snapshots may be: who goes on from one that stays is warned. */
CASE(test_what_may_be_damaged_and_stays)
{
    for (int i = 0; i < 2; i++) {
        struct said said = {0};
        const struct ls_log log = {.level_max = LS_LOG_WARNING, .write = say, .user = &said};
        struct snapshots s = {.log = &log, .first = true};
        struct ls_comm *world;
        struct ls_error error = {0};
        start_over();
        snprintf(s.folder, sizeof s.folder, "%s/lockstep", path_in("memory"));
        shell_in("mkdir -p memory/lockstep");
        assert_ok(ls_comm_self_new(&world, &error), error);
        stays = i > 0;
        snapshots_void(&s, world);
        stays = false;
        ls_comm_free(world);
        assert_int_equal(*snapshots() != 0, i > 0);
        assert_int_equal(strstr(said.warnings, s.folder) != NULL, i > 0);
    }
}

/* snapshot.every=auto: the first one after the first step, which is measured; then as Daly says, or
 * as often as two steps of a thousand pay for. */
CASE(test_as_often_as_it_pays)
{
    static struct ls_trainer trainer;
    struct snapshots s = {.trainer = &trainer, .machines = 100};
    trainer.config.snapshot.every = LS_CONFIG_AUTO;
    trainer.config.snapshot.failures = 0.01; /* one an hour in all */
    assert_true(snapshots_due(&s, 1));
    s.begun_s = ls_now_s() - 1e6;
    assert_false(snapshots_due(&s, 2)); /* its cost is not known */
    snapshots_weigh(&s, 9);             /* held up: another follows */
    assert_true(s.every_s == 9 && snapshots_due(&s, 3));
    snapshots_weigh(&s, 9);
    assert_true(s.every_s == 9); /* the same one */
    snapshots_weigh(&s, 2);
    assert_true(s.every_s == ls_daly_interval(2, 3600));
    assert_true(snapshots_due(&s, 4));
    s.begun_s = ls_now_s() + 1e6;
    assert_false(snapshots_due(&s, 5));
    snapshots_weigh(&s, 0.01);
    snapshots_weigh(&s, 7);
    assert_true(s.every_s == 0.01 / 0.002);
    trainer.config.snapshot.failures = 0;
    snapshots_weigh(&s, 8);
    assert_true(s.every_s == 7 / 0.002);
    s.begun_s = ls_now_s() - 1e6;
    s.refused = true; /* there was no room */
    assert_false(snapshots_due(&s, 6));
    trainer.config.snapshot.every = 3;
    assert_true(snapshots_due(&s, 6) && !snapshots_due(&s, 7));

    struct job job = {0};
    start_over();
    assert_true(run_killed(2, "parallel.dp=2 parallel.zero=2 snapshot.every=auto", kill_after_5));
    int64_t newest = newest_in(snapshots());
    assert_true(newest >= 1);
    expect_run(&job, 2, "parallel.tp=2 snapshot.every=auto");
    assert_string_equal(job.hash[newest], ""); /* not computed again */

    start_over();
    machine_free = 1;
    expect_run(&job, 1, "snapshot.every=auto");
    assert_non_null(strstr(job.said.warnings, "no snapshots are taken: they would take "));
    assert_int_equal(newest_in(snapshots()), -1);
    machine_free = 0;
}

int main(void)
{
    setenv("LOCKSTEP_PEAK_FLOPS", "1e12", 1);
    return suite_run(struck_setup, scratch_teardown);
}
