/* `lockstep verify` and `lockstep diff`: one hash for layouts of a recipe, and where two runs part.
 */
#include "../support/extent.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "run_program.h"

#include <lockstep/base.h>
#include <lockstep/compare.h>

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char *folder; /* every command runs there */
static char enter[PATH_MAX];
static char output[PROGRAM_OUTPUT_BYTES];

static void expect(const char *arguments, int code, const char *words)
{
    program_expect_under(enter, arguments, code, words);
}

static int folder_setup(void **state)
{
    int status = scratch_setup(state);
    folder = *state;
    snprintf(enter, sizeof enter, "cd '%s'; OMP_WAIT_POLICY=passive", folder);
    program_corpus(folder);
    static const char config[] = "model: {preset: gpt2-tiny, context: 128}\n"
                                 "data: {train: corpus_train, sequence: 128}\n"
                                 "batch: {global: 8}\n"
                                 "numerics: {precision: fp32, seq_tiles: 1}\n"
                                 "parallel: {threads: 1}\n"
                                 "train: {steps: 6, save_every: 2, keep: 9, out: run}\n"
                                 "log: {progress: \"off\", hash_every: 2, tensorboard: false}\n";
    scratch_write(scratch_path(folder, "run.yaml"), config, strlen(config));
    expect("train run.yaml train.out=one", 0, "");
    return status;
}

/* ---- verify ---------------------------------------------------------------------------------- */

CASE(test_layouts_have_one_hash)
{
    const int layouts = check_all() ? 12 : 6;
    char line[128], said[64];
    snprintf(line, sizeof line, "verify run.yaml parallel.tp=2 --layouts %d --steps 2 --ranks 4",
             layouts);
    snprintf(said, sizeof said, "%d layouts, 1 hash: ", layouts);
    int code = program_run(enter, line, output);
    if (code || !strstr(output, said) || !strstr(output, "one rank, "))
        fail_msg("%s\nexited with %d and printed:\n%s", line, code, output);
    assert_null(strstr(output, "settings covered"));
    assert_non_null(strstr(output, " pairs of settings occurred together\n"));
    /* The configuration's own layout is the first. */
    assert_non_null(strstr(output, check_all() ? "   1/12   2 ranks" : "   1/6   2 ranks"));
    assert_non_null(strstr(output, ": ok\n"));
    assert_int_equal(access(scratch_path(folder, "run"), F_OK), -1);
}

/* Where a folder is named for it; what was offloaded is gone again. */
CASE(test_a_file_tier_is_drawn)
{
    const int layouts = check_all() ? 24 : 8;
    for (int tier = 0; tier < 2; tier++) {
        char line[128], said[64];
        snprintf(line, sizeof line, "verify run.yaml --layouts %d --steps 1 --ranks 4%s", layouts,
                 tier ? " memory.file=tier" : "");
        snprintf(said, sizeof said, "%d layouts, 1 hash: ", layouts);
        int code = program_run(enter, line, output);
        if (code || !strstr(output, said) || !strstr(output, "=host") ||
            !strstr(output, "=file") != !tier)
            fail_msg("%s\nexited with %d and printed:\n%s", line, code, output);
    }
    assert_int_equal(scratch_count(scratch_path(folder, "tier")), 0);
}

CASE(test_a_recipe_that_admits_few)
{
    const char *line = "verify run.yaml batch.global=1 numerics.tp_tiles=1 model.layers=1 "
                       "--layouts 12 --ranks 2 --steps 1 --verbose";
    int code = program_run(enter, line, output);
    if (code || !strstr(output, "settings covered, with the number of layouts: ") ||
        !strstr(output, "the recipe admits few layouts of at most 2 ranks"))
        fail_msg("%s\nexited with %d and printed:\n%s", line, code, output);
}

CASE(test_verify_refuses)
{
    expect("verify run.yaml parallel.tp=3", ls_exit_code(LS_ELAYOUT), "parallel.tp = 3");
    expect("verify run.yaml numerics.mode=fast", 2, "numerics.mode = fast");
    expect("verify run.yaml --layouts none", 2, "--layouts = none");
    expect("verify run.yaml data.train=nowhere", ls_exit_code(LS_EIO), "nowhere");
    expect("verify", 2, "model.preset");
}

/* By the clock the recipe does not say which update comes first; a log that is followed does. */
CASE(test_an_order_that_no_recipe_gives)
{
#define CLOCK                                                                                      \
    "run.yaml train.out=clock train.steps=2 async.mode=server async.workers=2 "                    \
    "async.sync_every=1 async.order=clock "
    static const char *const words[] = {"", "parallel.workers=2 parallel.servers=1 "};
    char line[512];
    expect("train " CLOCK "parallel.workers=2 parallel.servers=1", 0, "");
    for (int i = 0; i < 2; i++) {
        snprintf(line, sizeof line, "verify " CLOCK "%s--layouts 2 --steps 2 --ranks 4", words[i]);
        expect(line, 2, "async.order = clock");
    }
    expect("verify " CLOCK "async.follow=clock parallel.workers=2 parallel.servers=1 --layouts 2 "
           "--steps 2 --ranks 4",
           0, "2 layouts, 1 hash: ");
#undef CLOCK
}

/* Its records of workers, and a request for others that it has not taken up: with the run's own
 * configuration, proofs and benches train all workers, and leave both. */
CASE(test_the_folder_of_a_run_stays)
{
#define WORKERS                                                                                    \
    "run.yaml train.out=workers train.steps=2 async.mode=diloco async.workers=2 "                  \
    "async.sync_every=1 "
    static const char *const commands[] = {
        "verify " WORKERS "--layouts 1 --steps 1 --ranks 2",
        "bench step " WORKERS,
        "bench plan --steps 1 --cluster '%s' " WORKERS,
    };
    const char *const members = scratch_path(folder, "workers/members");
    const char *const wanted = scratch_path(folder, "workers/members.wanted");
    char cluster[PATH_MAX], line[2 * PATH_MAX];
    assert_non_null(realpath("clusters/cpu-2core.yaml", cluster));
    assert_int_equal(mkdir(scratch_path(folder, "workers"), 0777), 0);
    scratch_write(wanted, "0\n", 2);
    expect("train " WORKERS, 0, "");
    char *recorded = scratch_read(members, NULL);
    assert_non_null(strstr(recorded, "\"workers\": \"0\""));
    scratch_write(wanted, "1\n", 2);
    for (int i = 0; i < 3; i++) {
        snprintf(line, sizeof line, commands[i], cluster);
        expect(line, 0, "");
        char *now = scratch_read(members, NULL), *asked = scratch_read(wanted, NULL);
        assert_string_equal(now, recorded);
        assert_string_equal(asked, "1\n");
        free(now);
        free(asked);
    }
    free(recorded);
#undef WORKERS
}

/* A number draws the same layout each time; another number or seed another one; all are
 * admissible, and of at most so many ranks. */
CASE(test_drawing)
{
    struct ls_config config, drawn, again;
    struct ls_error error = {0};
    struct ls_layout layout;
    char text[1024], other[1024];
    bool axes[LS_AXES] = {false};
    ls_config_defaults(&config);
    assert_int_equal(ls_config_load_file(&config, scratch_path(folder, "run.yaml"), &error), 0);
    assert_int_equal(ls_config_set(&config, "data.sequence=512", &error), 0);
    assert_int_equal(ls_config_set(&config, "model.context=512", &error), 0);
    assert_int_equal(ls_config_set(&config, "numerics.seq_tiles=4", &error), 0);
    assert_ok(ls_config_resolve(&config, 257, &error), error);
    int different = 0;
    static struct ls_draw_cover covers[3];
    const uint64_t layouts = check_all() ? 40 : 20;
    for (uint64_t i = 0; i < layouts; i++) {
        struct ls_draw draw = {.seed = 1, .index = i, .ranks_max = 8};
        assert_int_equal(ls_compare_draw(&config, 1, &draw, &covers[0], &drawn), 0);
        assert_int_equal(ls_compare_draw(&config, 1, &draw, &covers[1], &again), 0);
        ls_config_layout_text(&drawn, NULL, text, sizeof text);
        ls_config_layout_text(&again, NULL, other, sizeof other);
        assert_string_equal(text, other);
        if (ls_config_layout(&drawn, 0, &layout, &error))
            fail_msg("%s: %s", text, error.text);
        if (layout.ranks < 2 || layout.ranks > 8)
            fail_msg("%s: %ld ranks", text, (long)layout.ranks);
        for (int axis = 0; axis < LS_AXES; axis++)
            axes[axis] |= layout.size[axis] > 1;
        draw.seed = 2;
        assert_int_equal(ls_compare_draw(&config, 1, &draw, &covers[2], &again), 0);
        ls_config_layout_text(&again, NULL, other, sizeof other);
        different += strcmp(text, other) != 0;
    }
    for (int axis = 0; axis < LS_AXES; axis++)
        if (!axes[axis])
            fail_msg("no layout had %s above 1", ls_axis_name((enum ls_layout_axis)axis));
    assert_true(different > (int)layouts * 3 / 4);
    ls_compare_one_rank(&drawn, &again);
    ls_config_layout_text(&again, NULL, text, sizeof text);
    assert_string_equal(text, "one rank");
}

/* ---- diff ------------------------------------------------------------------------------------ */

CASE(test_layouts_that_agree)
{
    expect("train run.yaml train.out=two parallel.dp=2 parallel.pp=2 train.steps=4 "
           "optim.decay_steps=6",
           0, "");
    expect("diff one two", 0,
           "equal up to step 4 (4 steps compared, the state's hash last at step "
           "4)");
}

static void replace(const char *name, const char *from, const char *to)
{
    char *text = scratch_read(scratch_path(folder, name), NULL), *at = strstr(text, from);
    if (!at)
        fail_msg("%s has no %s", name, from);
    memcpy(at, to, strlen(to));
    scratch_write(scratch_path(folder, name), text, strlen(text));
    free(text);
}

/* `copy` is run, but for one bit of that step's loss. */
static void copy_at_fault(const char *run, const char *copy, int64_t at)
{
    char line[PATH_MAX + 128], name[64];
    snprintf(line, sizeof line, "cd '%s' && cp -r %s %s", folder, run, copy);
    assert_int_equal(system(line), 0);
    struct ls_run_record record = {0};
    struct ls_error error = {0};
    char from[64], to[64];
    char directory[PATH_MAX];
    snprintf(directory, sizeof directory, "%s/%s", folder, run);
    /* The configuration names its data relative to the folder. */
    int back = open(".", O_RDONLY | O_DIRECTORY);
    assert_true(back >= 0 && chdir(folder) == 0);
    int status = ls_run_record_read(&record, directory, &error);
    assert_true(fchdir(back) == 0 && close(back) == 0);
    assert_ok(status, error);
    const struct ls_recorded_step *step = ls_run_record_at(&record, at);
    assert_non_null(step);
    snprintf(from, sizeof from, "\"loss_bits\": \"%08x", step->loss_bits);
    snprintf(to, sizeof to, "\"loss_bits\": \"%08x", step->loss_bits ^ 4);
    ls_run_record_release(&record);
    snprintf(name, sizeof name, "%s/metrics.jsonl", copy);
    replace(name, from, to);
}

/* A record that no layout gives: one bit of a loss, as a machine with faulty memory writes it. */
CASE(test_a_machine_at_fault)
{
    copy_at_fault("one", "faulty", 5);
    int code = program_run(enter, "diff one faulty", output);
    if (code != 1 || !strstr(output, "the records differ at step 5, in the loss") ||
        !strstr(output, "A again: steps 5 to 5, 1 rank") ||
        !strstr(output, "the repeated runs agree") ||
        !strstr(output, "A is reproduced bit for bit") ||
        !strstr(output, "B is not reproduced: step 5 gives other bits"))
        fail_msg("exited with %d and printed:\n%s", code, output);
    expect("diff one faulty --no-rerun", 1, "the records differ at step 5");
}

/* Runs that began with another run's checkpoint, and have none of the step before they differ. */
CASE(test_runs_from_another_run)
{
    expect("train run.yaml train.out=fork train.resume=one/checkpoints/step-00000002 "
           "train.save_every=6 log.hash_every=0",
           0, "");
    copy_at_fault("fork", "bent", 4);
    int code = program_run(enter, "diff fork bent", output);
    if (code != 1 || !strstr(output, "the records differ at step 4, in the loss") ||
        !strstr(output, "A again: steps 3 to 4, 1 rank") ||
        !strstr(output, "B again: steps 3 to 4, 1 rank") ||
        !strstr(output, "the repeated runs agree") ||
        !strstr(output, "A is reproduced bit for bit") ||
        !strstr(output, "B is not reproduced: step 4 gives other bits"))
        fail_msg("exited with %d and printed:\n%s", code, output);
    char from[PATH_MAX], to[PATH_MAX];
    snprintf(from, sizeof from, "%s/one/checkpoints/step-00000002", folder);
    snprintf(to, sizeof to, "%s/moved", folder);
    assert_int_equal(rename(from, to), 0);
    expect("diff fork bent", 15, "one/checkpoints/step-00000002, which is not there any more");
    expect("diff fork bent --no-rerun", 1, "the records differ at step 4");
    assert_int_equal(rename(to, from), 0);
}

/* Recipes that sum in different orders diverge in a tensor of the first step, which shows only
 * later. */
CASE(test_the_first_tensor)
{
    expect("train run.yaml train.out=other numerics.tp_tiles=2 parallel.tp=2 train.steps=4", 0, "");
    expect("diff one other", 2, "numerics.tp_tiles: 4 here, 2 there");
    int code = program_run(enter, "diff one other --force", output);
    if (code != 1 || !strstr(output, "the records differ at step ") ||
        !strstr(output, "again: steps 1 to ") || !strstr(output, "1 rank thread") ||
        !strstr(output, "2 rank threads") ||
        !strstr(output,
                "the repeated runs diverge at step 1; first tensor: forward, block 0 (h.0)") ||
        !strstr(output, "A is reproduced bit for bit") ||
        !strstr(output, "B is reproduced bit for bit"))
        fail_msg("exited with %d and printed:\n%s", code, output);
}

CASE(test_diff_refuses)
{
    expect("diff one", 2, "the directories of two runs");
    expect("diff one nowhere", ls_exit_code(LS_EIO), "nowhere/config.yaml");
    char line[PATH_MAX + 64];
    snprintf(line, sizeof line, "cd '%s' && mkdir -p bare && cp one/config.yaml bare", folder);
    assert_int_equal(system(line), 0);
    expect("diff one bare", ls_exit_code(LS_EIO), "bare/metrics.jsonl");
    scratch_write(scratch_path(folder, "bare/metrics.jsonl"), "{\"step\": 1}\n", 12);
    expect("diff one bare", ls_exit_code(LS_EDATA), "nothing to compare");
    scratch_write(scratch_path(folder, "bare/metrics.jsonl"), "no JSON\n", 8);
    expect("diff one bare", ls_exit_code(LS_EDATA), "bare/metrics.jsonl:1");
}

SUITE_MAIN(folder_setup, scratch_teardown)
