/* What workers refuse: keys of async that cannot be kept, and checkpoints of workers that are
 * damaged, missing, of another step or of another recipe. A run goes on from the newest one that is
 * whole, says so, and ends with the bits of one that nothing disturbed. */
#include "../support/scratch.h"
#include "../support/suite.h"
#include "../support/wrapped.h"
#include "tokens.h"
#include "workers_run.h"

#include <lockstep/base/file.h>
#include <lockstep/ckpt.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *directory;

/* ---- keys ------------------------------------------------------------------------------------ */

CASE(test_keys_that_cannot_be_kept)
{
    static const struct {
        const char *words, *key, *says;
    } cases[] = {
        {"async.fragments=2", "async.sync_every = 3", "multiple of async.fragments = 2"},
        {"async.sync_every=6 async.fragments=6", "async.fragments = 6", "model.layers = 3"},
        {"async.delay=3", "async.delay = 3", "less than the 3 steps between two outer steps"},
        {"async.sync_every=6 async.fragments=2 async.delay=3", "async.delay = 3", "the 3 steps"},
        {"train.steps=7", "train.steps = 7", "expected 6 or 9 steps"},
        {"train.extend=2", "train.extend = 2", "expected 6 or 9 steps"},
        {"async.mode=none", "async.workers = 4", "async.mode = none"},
        {"async.outer_optim=sgd async.outer_momentum=0.5", "async.outer_momentum = 0.5",
         "async.outer_optim = sgd"},
        {"async.outer_beta2=0.9", "async.outer_beta2 = 0.9", "adamw"},
        {"async.mode=dilco", "async.mode", "diloco"},
        {"async.workers=0", "async.workers = 0", "from 1 to 258"},
        {"async.workers=259", "async.workers = 259", "from 1 to 258"},
        {"async.outer_lr=0", "async.outer_lr = 0", "above 0"},
        {"async.mixing=1.5", "async.mixing = 1.5", "from 0 to 1"},
        {"async.delta=fp8", "async.delta", "int8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ls_config config;
        struct ls_error error = {0};
        int status = workers_config_try(&config, &error, *state, cases[i].words);
        if (status != LS_ECONFIG || !strstr(error.text, cases[i].key) ||
            !strstr(error.text, cases[i].says))
            fail_msg("%s: status %d: %s", cases[i].words, status, error.text);
    }
}

CASE(test_layouts_that_workers_cannot_have)
{
    static const struct {
        const char *words, *key, *says;
    } cases[] = {
        {"parallel.workers=3", "parallel.workers = 3", "divisor of async.workers = 4"},
        {"parallel.workers=8", "parallel.workers = 8", "divisor of async.workers = 4"},
        {"async.workers=1 parallel.workers=2", "parallel.workers = 2",
         "divisor of async.workers = 1"},
        {"async.mode=server memory.offload.gradients=host", "memory.offload.gradients = host",
         "async.mode = server"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ls_config config = workers_config(*state, "%s", cases[i].words);
        struct ls_memory_plan plan;
        struct ls_error error = {0};
        int status = ls_plan(&config, &plan, &error);
        if (status != LS_ELAYOUT || !strstr(error.text, cases[i].key) ||
            !strstr(error.text, cases[i].says))
            fail_msg("%s: status %d: %s", cases[i].words, status, error.text);
    }
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

static struct workers_run whole; /* nine steps that nothing disturbed */

static void shell(const char *words)
{
    char line[2048];
    assert_true(snprintf(line, sizeof line, "cd '%s' && %s", directory, words) < (int)sizeof line);
    assert_int_equal(system(line), 0);
}

/* Both checkpoints of `saved`, those after steps 3 and 6, are in `run`, and a command spoiled it.
 */
static void run_spoil(const char *command)
{
    shell("rm -rf run && cp -r saved run");
    shell(command);
}

#define WORKER(n, step) "run/workers/000" #n "/checkpoints/step-0000000" #step

CASE(test_a_worker_whose_checkpoint_is_not_whole)
{
    static const struct {
        const char *command, *says; /* says NULL: there is nothing to say */
    } cases[] = {
        {"true", NULL},
        {"rm -r " WORKER(2, 6), WORKER(2, 6) " is missing"},
        {"for f in " WORKER(3, 6) "/*model*; do printf '\\377\\377\\377' | "
                                  "dd of=$f bs=1 seek=3000 conv=notrunc status=none; done",
         WORKER(3, 6) "/shard-00001-model"},
        {"rm -r " WORKER(1, 6) " && cp -r " WORKER(1, 3) " " WORKER(1, 6), "the state's hash is"},
        {"rm -r " WORKER(1, 6) " && cp -r " WORKER(2, 6) " " WORKER(1, 6), "the state's hash is"},
        {"rm run/checkpoints/step-00000006/*optimizer*", "run/checkpoints/step-00000006/shard"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct workers_run after = {
            .config = workers_config(*state, "train.steps=9 train.resume=auto parallel.workers=%d",
                                     i % 2 ? 4 : 1),
            .resume = true};
        run_spoil(cases[i].command);
        workers_run_well(&after);
        bool told = cases[i].says ? strstr(after.said, "skipping a damaged checkpoint: ") &&
                                        strstr(after.said, cases[i].says)
                                  : !after.said[0];
        if (!told || after.first != (cases[i].says ? 3 : 6) || workers_difference(&whole, &after))
            fail_msg("%s: from step %d: %s", cases[i].command, after.first, after.said);
    }
}

/* A folder of a run with train.keep=1 takes no second checkpoint: the run goes on from the first,
 * and so often as a save fails, none of another step stays, which would fill a disk. */
static void expect_refused_save(int groups, const char *folder, const char *stays)
{
    static const char *const resume[] = {
        "never", "%s/former/checkpoints/step-00000003 train.out=%s/run", "auto"};
    struct workers_run part;
    char words[1024];
    shell("rm -rf run former saving");
    for (int i = 0; i < 3; i++) {
        snprintf(words, sizeof words, resume[i], directory, directory);
        part = (struct workers_run){
            .config = workers_config(directory,
                                     "train.steps=9 train.keep=1 parallel.workers=%d "
                                     "train.resume=%s",
                                     groups, words),
            .resume = i > 0,
            .steps = 3 * (i + 1),
            .save = true};
        int status = workers_run(&part);
        if (i == 1 ? !status : status || workers_difference(&whole, &part))
            fail_msg("%s, part %d: from step %d: %s", folder, i, part.first, part.error.text);
        snprintf(words, sizeof words,
                 i == 0 ? "cp -r run former && mv run/%s saving && touch run/%s"
                        : "rm run/%s && mv saving run/%s",
                 folder, folder);
        if (i == 1)
            shell(stays);
        if (i < 2)
            shell(words);
    }
    assert_int_equal(part.first, 3);
    shell("test -d " WORKER(3, 9) " && ! test -e " WORKER(3, 6) " && ! test -e " WORKER(0, 3));
}

CASE(test_the_last_checkpoint_stays_until_the_next_is_whole)
{
    for (int groups = 1; groups <= 4; groups += 3) {
        /* The list of what the run keeps cannot be read. */
        expect_refused_save(groups, "checkpoints", "test -d " WORKER(3, 6));
        expect_refused_save(groups, "workers/0002/checkpoints",
                            "! test -e " WORKER(0, 6) " && ! test -e " WORKER(
                                3, 6) " && test -d " WORKER(0, 3) " && test -d " WORKER(3, 3));
    }
}

/* The best one of a run stays with its workers'. */
CASE(test_workers_keep_what_the_run_keeps)
{
    shell("rm -rf run");
    for (int i = 0; i < 3; i++) {
        struct workers_run part = {
            .config = workers_config(*state, "train.steps=9 train.keep=1 parallel.workers=2 %s",
                                     i ? "train.resume=auto" : ""),
            .resume = i > 0,
            .steps = 3 * (i + 1),
            .save = true};
        workers_run_well(&part);
        struct ls_checkpoint_best best = {.step = 3, .loss = 1, .sequences = 1};
        struct ls_error error = {0};
        if (i == 0 && ls_checkpoint_best_write(part.config.train.out, &best, &error))
            fail_msg("%s", error.text);
    }
    shell("test -d " WORKER(3, 3) " && test -d " WORKER(3, 9) " && ! test -e " WORKER(3, 6));
}

/* None of a run that has checkpoints is whole: it does not begin anew. */
CASE(test_workers_without_any_checkpoint)
{
    static const char *const commands[] = {"rm -r run/workers/0001", "rm -r run/workers",
                                           "rm -r run/workers && touch run/workers"};
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        struct workers_run after = {
            .config = workers_config(*state, "train.steps=9 train.resume=auto parallel.workers=%d",
                                     i % 2 ? 1 : 2),
            .resume = true};
        run_spoil(commands[i]);
        int status = workers_run(&after);
        if (status != LS_ECKPT || !strstr(after.error.text, "none of 2 checkpoints can be read") ||
            !strstr(after.error.text, "step-00000006 is missing"))
            fail_msg("%s: status %d: %s", commands[i], status, after.error.text);
    }
}

/* A checkpoint of another recipe is whole: it is not passed over for an older one. */
CASE(test_a_recipe_that_changed)
{
    for (int groups = 1; groups <= 2; groups++) {
        struct workers_run after = {
            .config = workers_config(*state,
                                     "train.steps=9 train.resume=auto optim.lr=0.5 "
                                     "parallel.workers=%d",
                                     groups),
            .resume = true};
        run_spoil("true");
        int status = workers_run(&after);
        if (status != LS_ECKPT || !strstr(after.error.text, "it belongs to another recipe") ||
            strstr(after.error.text, "can be read"))
            fail_msg("status %d: %s", status, after.error.text);
    }
}

/* ---- checkpoints by their path --------------------------------------------------------------- */

static void expect_resume(const char *path, const char *words, const char *says)
{
    struct workers_run after = {.config = workers_config(directory,
                                                         "train.steps=9 train.out=%s/new "
                                                         "train.resume=%s/%s %s",
                                                         directory, directory, path, words),
                                .resume = true};
    int status = workers_run(&after);
    if (!says && (status || after.first != 3 || workers_difference(&whole, &after)))
        fail_msg("%s: status %d, from step %d: %s", path, status, after.first, after.error.text);
    if (says && (status != LS_ECKPT || !strstr(after.error.text, says)))
        fail_msg("%s: status %d: %s", path, status, after.error.text);
}

CASE(test_checkpoints_by_their_path)
{
    const char *sync = "async.mode=none async.workers=1 async.sync_every=100";
    struct workers_run alone = {
        .config = workers_config(*state, "%s train.out=%s/sync", sync, directory), .save = true};
    workers_run_well(&alone);
    expect_resume("saved/checkpoints/step-00000003", "parallel.workers=2", NULL);
    expect_resume("saved/checkpoints/step-00000003", "async.workers=2",
                  "async.workers: 2 here, 4 there");
    expect_resume("saved/checkpoints/step-00000003", "async.outer_lr=0.5",
                  "async.outer_lr: 0.5 here, 0.7 there");
    expect_resume("saved/checkpoints/step-00000003", sync, "async.mode: none here, diloco there");
    expect_resume("saved/workers/0001/checkpoints/step-00000003", "",
                  "expected a checkpoint of each worker");
    expect_resume("sync/checkpoints/step-00000006", "", "sync/workers/0000/checkpoints/");
}

/* ---- who takes part -------------------------------------------------------------------------- */

static void text_write(const char *name, const char *text)
{
    scratch_write(scratch_path(directory, name), text, strlen(text));
}

static int durable; /* how often RUN/members was made so */
WRAPPED(fdatasync);
int __wrap_fdatasync(int file)
{
    durable += ls_path_ends(path_of(file), "/members");
    return __real_fdatasync(file);
}

/* What was asked for while a run trained is all that another one needs to do the same, in another
 * layout; so does the run itself, when it goes on. */
CASE(test_members_of_a_run_are_followed)
{
    static const char *const wanted[] = {"0-2\n", "1,3\n", "9\n"};
    struct workers_run part = {0};
    char *said = NULL;
    shell("rm -rf run && mkdir run");
    for (int i = 0; i < 3; i++) {
        part = (struct workers_run){
            .config = workers_config(*state, "train.steps=9 %s", i ? "train.resume=auto" : ""),
            .resume = i > 0,
            .steps = 3 * (i + 1),
            .save = true};
        text_write("run/members.wanted", wanted[i]);
        workers_run_well(&part);
        assert_int_not_equal(access(scratch_path(directory, "run/members.wanted"), F_OK), 0);
    }
    assert_non_null(strstr(part.said, "\"9\" names no workers"));
    assert_int_equal(durable, 2); /* before a checkpoint that goes on from there */
    said = scratch_read(scratch_path(directory, "run/members"), NULL);
    assert_string_equal(said, "{\"outer_step\": 1, \"workers\": \"0-2\"}\n"
                              "{\"outer_step\": 2, \"workers\": \"1,3\"}\n");
    free(said);
    struct workers_run after = {.config = workers_config(*state,
                                                         "train.steps=9 parallel.workers=4 "
                                                         "async.follow=%s/run",
                                                         directory)};
    workers_run_well(&after);
    part.first = 6; /* of the others it has no record */
    const char *difference = workers_difference(&part, &after);
    if (difference)
        fail_msg("%s", difference);
    assert_string_not_equal(after.hash[8], whole.hash[8]);
}

CASE(test_a_run_to_follow_that_is_not_there)
{
    struct workers_run run = {.config =
                                  workers_config(*state, "async.follow=%s/nobody", directory)};
    assert_int_equal(workers_run(&run), LS_ECONFIG);
    assert_non_null(strstr(run.error.text, "there is no such folder"));
}

/* A change that was recorded holds where a run that was killed does its steps again, until another
 * one is asked for. */
CASE(test_members_of_steps_that_are_done_again)
{
    static const char *const lines = "{\"outer_step\": 2, \"workers\": \"0-1\"}\n";
    struct workers_run part[4];
    for (int i = 0; i < 4; i++) {
        part[i] = (struct workers_run){
            .config = workers_config(*state, "train.steps=9 parallel.workers=%d %s", i == 2 ? 4 : 1,
                                     i ? "train.resume=auto" : ""),
            .resume = i > 0,
            .steps = i ? 9 : 3,
            .save = i < 2};
        if (i == 0)
            shell("rm -rf run && mkdir run");
        if (i == 1)
            text_write("run/members.wanted", "0-1\n");
        if (i == 2)
            shell("rm -r run/checkpoints/step-00000009");
        if (i == 3)
            text_write("run/members.wanted", "2\n");
        workers_run_well(&part[i]);
        char *said = i > 0 ? scratch_read(scratch_path(directory, "run/members"), NULL) : NULL;
        if (i > 0)
            assert_string_equal(said, i < 3 ? lines : "{\"outer_step\": 2, \"workers\": \"2\"}\n");
        free(said);
    }
    const char *difference = workers_difference(&part[1], &part[2]);
    if (difference)
        fail_msg("%s", difference);
    assert_string_not_equal(part[3].hash[8], part[1].hash[8]);
}

/* A request is not worth a run. */
CASE(test_a_request_that_cannot_be_read)
{
    static char digits[(1 << 16) + 2];
    for (int i = 0; i < 2; i++) {
        struct workers_run run = {.config = workers_config(*state, "train.steps=3")};
        shell(i ? "rm -rf run && mkdir -p run/members.wanted" : "rm -rf run && mkdir run");
        memset(digits, '0', sizeof digits - 1);
        if (i == 0)
            text_write("run/members.wanted", digits);
        workers_run_well(&run);
        assert_non_null(strstr(run.said, i ? "a folder" : "65537 bytes"));
        assert_int_not_equal(access(scratch_path(directory, "run/members"), F_OK), 0);
    }
}

CASE(test_members_that_cannot_be_read)
{
    static const char *const lines[] = {
        "{\"outer_step\": 1, \"workers\": \"0-4\"}\n",
        "{\"outer_step\": 1, \"workers\": \"\"}\n",
        "{\"outer_step\": 0, \"workers\": \"0\"}\n",
        "{\"outer_step\": 1.5, \"workers\": \"0\"}\n",
        "{\"workers\": \"0\"}\n",
        "{\"outer_step\": 2, \"workers\": \"0\"}\n{\"outer_step\": 2, \"workers\": \"1\"}\n",
        "outer_step: 1\n",
    };
    shell("rm -rf other && mkdir other");
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        struct workers_run run = {.config =
                                      workers_config(*state, "async.follow=%s/other", directory)};
        text_write("other/members", lines[i]);
        int status = workers_run(&run);
        if (status != LS_EDATA || !strstr(run.error.text, "other/members:"))
            fail_msg("%s: status %d: %s", lines[i], status, run.error.text);
    }
}

/* ---- many checkpoints ------------------------------------------------------------------------ */

/* However many the run has: the newest whole one is found behind the damaged, and a worker's old
 * checkpoint, of which there is no global one any more, is removed with the next save. */
CASE(test_more_than_300_checkpoints)
{
    struct workers_run first = {
        .config = workers_config(*state, "train.steps=9"), .steps = 3, .save = true};
    shell("rm -rf run && mkdir run");
    workers_run_well(&first);
    shell("for i in $(seq 1000 1299); do mkdir run/checkpoints/step-0000$i; done && "
          "cp -r run/workers/0001/checkpoints/step-00000003 "
          "run/workers/0001/checkpoints/step-00000001");
    struct workers_run rest = {
        .config = workers_config(*state, "train.steps=9 train.resume=auto parallel.workers=2"),
        .resume = true,
        .save = true};
    workers_run_well(&rest);
    assert_int_equal(rest.first, 3);
    const char *difference = workers_difference(&whole, &rest);
    if (difference)
        fail_msg("%s", difference);
    assert_int_not_equal(access(scratch_path(directory, WORKER(1, 1)), F_OK), 0);
    assert_int_equal(access(scratch_path(directory, WORKER(1, 9)), F_OK), 0);
}

/* ---- folders that cannot be written ---------------------------------------------------------- */

/* The global parameters come last: without those of all workers there is no checkpoint. */
CASE(test_folders_of_workers_that_cannot_be_made)
{
    static const char *const commands[] = {"mkdir run && touch run/workers",
                                           "mkdir -p run/workers && touch run/workers/0002"};
    for (size_t i = 0; i < 2; i++) {
        struct workers_run run = {.config = workers_config(*state, "parallel.workers=2"),
                                  .save = true};
        shell("rm -rf run");
        shell(commands[i]);
        int status = workers_run(&run);
        if (status != LS_EIO || !strstr(run.error.text, "cannot create the directory"))
            fail_msg("%s: status %d: %s", commands[i], status, run.error.text);
        assert_int_not_equal(access(scratch_path(directory, "run/checkpoints"), F_OK), 0);
    }
}

static bool unlisted; /* checkpoints of the run */

WRAPPED(ls_checkpoint_steps);
int __wrap_ls_checkpoint_steps(const char *run, int64_t **steps, int64_t *count,
                               struct ls_error *error)
{
    int status = __real_ls_checkpoint_steps(run, steps, count, error);
    return unlisted ? ls_error_set(error, LS_EIO, "%s: cannot list", run) : status;
}

/* It ends no run, which says what stays. */
CASE(test_a_folder_that_cannot_be_listed)
{
    struct workers_run run = {.config = workers_config(*state, "parallel.workers=2"), .save = true};
    shell("rm -rf run");
    unlisted = true;
    int status = workers_run(&run);
    unlisted = false;
    if (status || !strstr(run.said, "older checkpoints of the workers stay: "))
        fail_msg("status %d: %s%s", status, run.error.text, run.said);
}

static int group_setup(void **state)
{
    if (tokens_setup(state))
        return -1;
    directory = *state;
    whole = (struct workers_run){.config = workers_config(directory, "train.steps=9")};
    for (int i = 0; i < 2; i++) {
        struct workers_run half = {
            .config = workers_config(directory, "train.steps=9 train.out=%s/saved train.resume=%s",
                                     directory, i ? "auto" : "never"),
            .resume = i == 1,
            .steps = i ? 6 : 3,
            .save = true};
        workers_run_well(&half);
    }
    return workers_run(&whole);
}

SUITE_MAIN(group_setup, scratch_teardown)
