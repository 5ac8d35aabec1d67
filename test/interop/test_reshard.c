/* A checkpoint in the files of another layout: those are, to the byte, the ones that its ranks
 * would have written; the state and its hash stay, and training goes on from it. */
#include "../support/checkpoints.h"
#include "../support/countdown.h"
#include "../support/extent.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "trained.h"

#include <lockstep/compare.h>
#include <lockstep/interop.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* Rows that two ranks do not divide evenly; a tied table. */
#define MODEL                                                                                      \
    "model.layers=3 model.channels=32 model.heads=4 model.ffn=56 model.context=16 "                \
    "model.vocab=61 model.vocab_multiple=2 train.save_every=2 train.keep=9 "
#define STEP_2 "checkpoints/step-00000002"

static int reshard(const char *from, const char *keys, const char *run,
                   const struct ls_fault *fault, struct ls_error *error)
{
    enum { KEYS_MAX = 32 };
    char text[1024], *words[KEYS_MAX], *save = NULL;
    struct ls_reshard_report report;
    struct ls_reshard what = {.from = from, .which = "2", .run = run, .fault = fault};
    snprintf(text, sizeof text, "%s", keys);
    for (char *word = strtok_r(text, " ", &save); word; word = strtok_r(NULL, " ", &save))
        words[what.count++] = word;
    what.keys = (const char *const *)words;
    int status = ls_reshard(&what, &report, error);
    if (!status && report.step != 2)
        fail_msg("%s: step %ld", run, (long)report.step);
    return status;
}

static void reshard_good(const char *from, const char *keys, const char *run)
{
    struct ls_error error = {0};
    if (reshard(from, keys, run, NULL, &error))
        fail_msg("%s: %s", keys, error.text);
}

/* The name of a file of tensors that a has and b has not, or has otherwise; "" where there is none.
 */
static const char *different(const char *a, const char *b)
{
    static char name[256];
    char path[PATH_MAX];
    DIR *files = opendir(a);
    assert_non_null(files);
    name[0] = '\0';
    for (struct dirent *entry; !name[0] && (entry = readdir(files));) {
        size_t bytes, others = 0;
        if (!strstr(entry->d_name, ".safetensors"))
            continue;
        snprintf(path, sizeof path, "%s/%s", a, entry->d_name);
        char *mine = scratch_read(path, &bytes), *other = NULL;
        snprintf(path, sizeof path, "%s/%s", b, entry->d_name);
        if (access(path, F_OK) == 0)
            other = scratch_read(path, &others);
        if (!other || others != bytes || memcmp(mine, other, bytes))
            snprintf(name, sizeof name, "%s", entry->d_name);
        free(mine);
        free(other);
    }
    closedir(files);
    return name;
}

static void draw_keys(const char *directory, const char *recipe, uint64_t seed, char keys[1024])
{
    struct ls_config config, drawn;
    struct ls_error error = {0};
    char words[2048];
    const struct ls_draw draw = {.seed = 11, .index = seed, .ranks_max = 8};
    snprintf(words, sizeof words, MODEL "%s train.steps=2 train.out=%s/none", recipe, directory);
    assert_ok(train_config(directory, words, &config, &error), error);
    assert_true(ls_draw_layout(&config, &draw, &drawn));
    ls_config_layout_text(&drawn, NULL, keys, 1024);
    char *to = keys;
    for (const char *from = keys; *from; from++) /* a key that is set alone has no quotes */
        if (*from != '"')
            *to++ = *from;
    *to = '\0';
}

/* From a drawn layout into another. Returns whether that has other files. */
static bool check_recipe(const char *directory, const char *recipe, uint64_t seed)
{
    char a[1024], b[1024], last[33], from[600], was[700], own[700], made[600], is[700], name[64];
    draw_keys(directory, recipe, 2 * seed, a);
    draw_keys(directory, recipe, 2 * seed + 1, b);
    snprintf(name, sizeof name, "from%d", (int)seed);
    snprintf(last, sizeof last, "%s",
             trained(directory, name, MODEL "train.steps=4 %s %s", recipe, a));
    snprintf(from, sizeof from, "%s/%s", directory, name);
    snprintf(name, sizeof name, "own%d", (int)seed);
    trained(directory, name, MODEL "train.steps=2 optim.decay_steps=4 %s %s", recipe, b);
    snprintf(own, sizeof own, "%s/%s/" STEP_2, directory, name);
    snprintf(made, sizeof made, "%s/made%d", directory, (int)seed);
    reshard_good(from, b, made);
    snprintf(is, sizeof is, "%s/" STEP_2, made);
    snprintf(was, sizeof was, "%s/" STEP_2, from);
    if (different(is, own)[0] || different(own, is)[0])
        fail_msg("%s to %s: %s is not as its ranks write it", a, b, different(own, is));
    expect_same_checkpoints(was, is, b);
    snprintf(name, sizeof name, "on%d", (int)seed);
    assert_string_equal(last, trained(directory, name, MODEL "train.steps=4 %s %s train.resume=%s",
                                      recipe, seed % 2 ? a : "", is));
    return different(was, own)[0] != 0;
}

CASE_WITH(test_drawn_layouts, tokens_setup, scratch_teardown)
{
    static const char *const recipes[] = {"model.tied=true", "optim.name=muon",
                                          "optim.moments=bf16 model.tied=false"};
    int differ = 0, draws = check_all() ? 60 : 3;
    for (int i = 0; i < draws; i++)
        differ += check_recipe(*state, recipes[i % 3], (uint64_t)i);
    assert_true(differ > 0); /* the twin, a copy of the files as they are, fails */
}

static int64_t hash_of(const char *directory, char hash[33])
{
    struct ls_checkpoint *checkpoint = checkpoint_open(directory);
    int64_t step = checkpoint->state.step;
    snprintf(hash, 33, "%s", checkpoint->state.hash);
    ls_checkpoint_close(checkpoint);
    return step;
}

/* Without keys it is one rank; the run that is made goes on by itself, and is resharded again. */
CASE_WITH(test_one_rank_and_back, tokens_setup, scratch_teardown)
{
    char run[600], one[600], hash[33], other[33];
    snprintf(run, sizeof run, "%s/run", (const char *)*state);
    snprintf(one, sizeof one, "%s/one", (const char *)*state);
    trained(*state, "run", MODEL "train.steps=2 parallel.tp=2 parallel.dp=2 parallel.zero=1");
    reshard_good(run, "", one);
    assert_int_equal(scratch_count(scratch_path(one, STEP_2)), 3);
    assert_int_equal(hash_of(scratch_path(run, STEP_2), hash), 2);
    assert_int_equal(hash_of(scratch_path(one, STEP_2), other), 2);
    assert_string_equal(hash, other);
    reshard_good(one, "parallel.tp=2 parallel.dp=2 parallel.zero=1", scratch_path(*state, "back"));
    assert_string_equal(different(scratch_path(run, STEP_2), scratch_path(*state, "back/" STEP_2)),
                        "");
}

static void expect_refused(const char *from, const char *keys, const char *run, int code,
                           const char *words)
{
    struct ls_error error = {0};
    int status = reshard(from, keys, run, NULL, &error);
    if (status != code || !strstr(error.text, words))
        fail_msg("%s: expected %d, %s, found %d: %s", keys, code, words, status, error.text);
}

/* In a process that may open one file fewer than two ranks, the four files that they read, and what
 * else a process has. */
static void expect_too_many(const char *from, const char *run)
{
    int ended = -1;
    pid_t child = fork();
    if (child == 0) {
        struct ls_error error = {0};
        setrlimit(RLIMIT_NOFILE, &(struct rlimit){69, 69});
        int status = reshard(from, "parallel.dp=2", run, NULL, &error);
        bool good = status == LS_EIO &&
                    strstr(error.text, "2 ranks write as many files at once, beside 68 others, "
                                       "and this process may open 69: raise the limit");
        if (!good)
            fprintf(stderr, "%d: %s\n", status, error.text);
        _exit(!good);
    }
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_int_equal(ended, 0);
}

/* Refused, or failed at any call: nothing is left. */
CASE_WITH(test_refusals_and_faults, tokens_setup, scratch_teardown)
{
    char run[600], made[600], hash[33];
    snprintf(run, sizeof run, "%s/run", (const char *)*state);
    snprintf(made, sizeof made, "%s/made", (const char *)*state);
    trained(*state, "run", MODEL "train.steps=2 parallel.tp=2");
    int entries = scratch_count(*state);
    expect_refused(run, "optim.lr=1", made, LS_ECONFIG, "optim.lr");
    expect_refused(run, "parallel.tp=3", made, LS_ELAYOUT, "parallel.tp");
    expect_refused(run, "", run, LS_ECONFIG, "already exists");
    expect_refused(scratch_path(*state, "none"), "", made, LS_EIO, "none");
    expect_too_many(run, made);
    const char *shard =
        scratch_path(run, STEP_2 "/shard-00002-optimizer-00001-of-00001.safetensors");
    size_t size;
    char *data = scratch_read(shard, &size);
    data[size - 5] ^= 4;
    scratch_write(shard, data, size);
    expect_refused(run, "parallel.dp=2", made, LS_ECKPT, "shard-00002-optimizer");
    data[size - 5] ^= 4;
    scratch_write(shard, data, size);
    free(data);
    assert_int_equal(scratch_count(*state), entries);
    int status = LS_ENOSPC, n;
    for (n = 0; status; n++) {
        struct countdown countdown = {.left = n};
        const struct ls_fault fault = {countdown_before, &countdown};
        struct ls_error error = {0};
        status = reshard(run, "parallel.dp=2", made, &fault, &error);
        bool there = scratch_count(*state) != entries;
        if (status && (status != LS_ENOSPC || (there && !strstr(error.text, "the directory"))))
            fail_msg("call %d: %d, %s", n, status, error.text);
        if (!there)
            continue;
        /* Past the last rename only the sync of the folder can fail. */
        assert_int_equal(scratch_count(*state), entries + 1);
        assert_int_equal(hash_of(scratch_path(made, STEP_2), hash), 2);
        char command[700];
        snprintf(command, sizeof command, "rm -r %s", made);
        assert_int_equal(system(command), 0);
    }
    assert_in_range(n, 20, 100);
}

SUITE_MAIN(NULL, NULL)
