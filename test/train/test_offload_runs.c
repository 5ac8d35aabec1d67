/* Runs that keep things elsewhere: they stop and go on in another layout with or without, evaluate
 * between steps, take what was planned and no more, and refuse a folder that cannot serve. */
/* check: disk */
#include "../support/child.h"
#include "../support/extent.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "offload.h"
#include "tokens.h"
#include "train/trainer.h"

#include "device/tier_private.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STEPS_MAX = 4, ALL_FILE = 2 + 3 * 2 + 9 * 2, ALL_HOST = 1 + 3 + 9 };

/* ---- a run ---------------------------------------------------------------------------------- */

struct run {
    struct ls_config config;
    int steps;     /* to run to */
    bool resume;   /* first */
    bool save;     /* last */
    bool evaluate; /* behind each step */
    /* of rank 0: */
    uint32_t bits[STEPS_MAX];
    char hash[STEPS_MAX][33];
    struct ls_eval_report evaluation;
};

static int step_run(struct ls_trainer *t, struct run *run, bool first, struct ls_error *error)
{
    struct ls_step_report report;
    struct ls_digest digest;
    struct ls_eval_report evaluation = {0};
    int status = ls_trainer_step(t, &report, error);
    if (!status)
        status = ls_trainer_hash(t, &digest, error);
    if (!status && run->evaluate)
        status = ls_trainer_evaluate(t, &evaluation, error);
    if (!status && first) {
        run->bits[report.step - 1] = report.loss_bits;
        ls_digest_hex(&digest, run->hash[report.step - 1]);
        run->evaluation = evaluation;
    }
    return status;
}

static int run_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct run *run = user;
    struct ls_trainer *t = NULL;
    bool resumed = false;
    int status = ls_trainer_new(&run->config, world, NULL, &t, error);
    if (!status && run->resume)
        status = ls_trainer_resume(t, &resumed, error);
    if (!status && run->resume && !resumed)
        status = ls_error_set(error, LS_ECKPT, "nothing to go on from");
    while (!status && ls_trainer_steps(t) < run->steps)
        status = step_run(t, run, ls_comm_rank(world) == 0, error);
    if (!status && run->save)
        status = ls_trainer_save(t, error);
    ls_trainer_free(t);
    return status;
}

static void run(struct run *run)
{
    struct ls_error error = {0};
    assert_ok(ls_world_run((int)ls_config_ranks(&run->config), run_body, run, &error), error);
}

static void expect_same(const struct run *a, const struct run *b, int first, const char *what)
{
    for (int i = first; i < STEPS_MAX; i++)
        if (a->bits[i] != b->bits[i] || strcmp(a->hash[i], b->hash[i]))
            fail_msg("%s: step %d has loss %08x and hash %s, expected %08x and %s", what, i + 1,
                     b->bits[i], b->hash[i], a->bits[i], a->hash[i]);
}

/* A recipe in a layout, in one of the ways. */
static struct ls_config config_of(const char *directory, enum offload_recipe recipe,
                                  const char *layout, int way)
{
    char words[500];
    offload_words(way, 1, words, sizeof words);
    return offload_config(directory, recipe, layout, words);
}

static struct run reference_of(const char *directory, enum offload_recipe recipe)
{
    struct run whole = {.config = config_of(directory, recipe, "", 0), .steps = STEPS_MAX};
    run(&whole);
    return whole;
}

/* ---- saved and resumed ---------------------------------------------------------------------- */

CASE_WITH(test_saved_in_one_layout_and_resumed_in_another, tokens_setup, scratch_teardown)
{
    static const struct {
        enum offload_recipe recipe;
        const char *layout[2];
        int way[2];
    } cases[] = {
        {GPT2_BF16, {"parallel.pp=2", ""}, {ALL_FILE, 0}},
        {GPT2_BF16, {"parallel.dp_shard=2 parallel.zero=3", "parallel.tp=2"}, {0, ALL_HOST}},
        {GPT2_FP32, {"", "parallel.dp_shard=2 parallel.zero=1"}, {ALL_FILE, ALL_HOST}},
        {GPT2_FP32, {"parallel.dp_shard=2 parallel.zero=2", "parallel.pp=2"}, {1, 2}},
        {LLAMA_BF16_MOMENTS, {"parallel.cp=2", ""}, {ALL_HOST, 0}},
        {LLAMA_BF16_MOMENTS, {"", "parallel.dp_shard=2 parallel.zero=3"}, {0, ALL_FILE}},
    };
    struct run whole = {0};
    enum offload_recipe of = GPT2_BF16; /* whole's */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char out[300];
        enum offload_recipe recipe = cases[i].recipe;
        if (!check_pair((int)i / 2, (int)i, 2)) /* one of each recipe */
            continue;
        if (recipe != of || whole.steps == 0)
            whole = reference_of(*state, recipe);
        of = recipe;
        snprintf(out, sizeof out, "%s/run-%zu", (const char *)*state, i);
        for (int half = 0; half < 2; half++) {
            struct run part = {
                .config = config_of(*state, recipe, cases[i].layout[half], cases[i].way[half]),
                .steps = half ? STEPS_MAX : STEPS_MAX / 2,
                .resume = half,
                .save = !half};
            snprintf(part.config.train.out, sizeof part.config.train.out, "%s", out);
            snprintf(part.config.train.resume, sizeof part.config.train.resume, "auto");
            run(&part);
            if (half)
                expect_same(&whole, &part, STEPS_MAX / 2, cases[i].layout[1]);
        }
    }
}

CASE_WITH(test_evaluation_changes_nothing, tokens_setup, scratch_teardown)
{
    static const char *const layouts[] = {"parallel.dp_shard=2 parallel.zero=3", "parallel.pp=2",
                                          "", "parallel.tp=2"};
    struct run whole = {
        .config = config_of(*state, GPT2_BF16, "", 0), .steps = STEPS_MAX, .evaluate = true};
    run(&whole);
    assert_true(whole.evaluation.loss > 0);
    for (size_t i = 0; i < (check_all() ? sizeof layouts / sizeof *layouts : 2); i++) {
        struct run other = {
            .config = config_of(*state, GPT2_BF16, layouts[i], i % 2 ? ALL_HOST : ALL_FILE),
            .steps = STEPS_MAX,
            .evaluate = true};
        run(&other);
        expect_same(&whole, &other, 0, layouts[i]);
        assert_memory_equal(&other.evaluation.loss, &whole.evaluation.loss,
                            sizeof whole.evaluation.loss);
    }
}

/* ---- what is taken -------------------------------------------------------------------------- */

static size_t state_bytes(const struct ls_trainer *t)
{
    size_t elements = 0;
    for (int i = 0; i < t->params.count; i++)
        elements += (size_t)(t->params.list[i].rows * t->params.list[i].cols);
    return elements * sizeof(float) *
           (size_t)(1 + ls_optimizer_states_most(&t->state->optimizer.config));
}

static int plan_differs(const struct ls_trainer *t, const char *directory, struct ls_error *error)
{
    struct ls_memory_plan plan;
    int rank = ls_comm_rank(t->world);
    int status = ls_plan_rank(&t->config, &t->layout, rank, &plan, error);
    if (status)
        return status;
    size_t sum = 0;
    for (int kind = 0; kind < LS_MEMORY_KINDS; kind++)
        sum += plan.bytes[kind];
    if (t->memory.arena.peak != plan.total || t->memory.arena.size != plan.total ||
        sum != plan.total)
        return ls_error_set(error, LS_EINVAL, "rank %d: %zu bytes are planned, %zu taken", rank,
                            plan.total, t->memory.arena.peak);
    for (int kind = 0; kind < LS_TIER_KINDS; kind++) {
        const struct ls_tier *tier = t->memory.tiers[kind];
        if (plan.tiers[kind] != (tier ? tier->bytes : 0))
            return ls_error_set(error, LS_EINVAL, "rank %d, %s: %zu bytes are planned, %zu taken",
                                rank, ls_tier_name((enum ls_tier_kind)kind), plan.tiers[kind],
                                tier ? tier->bytes : 0);
    }
    char path[400];
    struct stat file = {0};
    snprintf(path, sizeof path, "%s/offload/rank-%05d.offload/data", directory, rank);
    bool there = !stat(path, &file);
    if (there != (plan.tiers[LS_TIER_FILE] > 0) || (size_t)file.st_size != plan.tiers[LS_TIER_FILE])
        return ls_error_set(error, LS_EINVAL, "%s: %zu bytes are planned, it has %ld", path,
                            plan.tiers[LS_TIER_FILE], (long)file.st_size);
    return LS_OK;
}

struct taking {
    struct ls_config config;
    const char *directory;
    size_t total, tiers, state; /* of rank 0 */
};

static int taking_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct taking *taking = user;
    struct ls_trainer *t = NULL;
    struct ls_step_report report;
    int status = ls_trainer_new(&taking->config, world, NULL, &t, error);
    if (!status)
        status = ls_trainer_step(t, &report, error);
    if (!status)
        status = plan_differs(t, taking->directory, error);
    if (!status && ls_comm_rank(world) == 0) {
        taking->total = t->plan.total;
        taking->tiers = t->plan.tiers[LS_TIER_HOST] + t->plan.tiers[LS_TIER_FILE];
        taking->state = state_bytes(t);
    }
    ls_trainer_free(t);
    return status;
}

static struct taking take(const char *directory, const struct ls_config *config)
{
    struct taking taking = {.config = *config, .directory = directory};
    struct ls_error error = {0};
    assert_ok(ls_world_run((int)ls_config_ranks(config), taking_body, &taking, &error), error);
    return taking;
}

CASE_WITH(test_the_plan_is_what_is_taken, tokens_setup, scratch_teardown)
{
    static const struct {
        enum offload_recipe recipe;
        const char *layout;
    } cases[] = {
        {GPT2_BF16, ""},
        {GPT2_FP32, "parallel.dp_shard=2 parallel.zero=3"},
        {LLAMA_BF16_MOMENTS, "parallel.pp=2 parallel.schedule=zb-h1 memory.recompute=full"},
        {GPT2_FP16_SGD, "parallel.tp=2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static const int ways[] = {0, 1, 3, 2 * 9, 1 + 3 * 2 + 9, ALL_FILE};
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
            if (!check_pair((int)i, (int)w, 3))
                continue;
            struct ls_config config = config_of(*state, cases[i].recipe, cases[i].layout, ways[w]);
            struct taking taking = take(*state, &config);
            assert_true(taking.total > 0);
            assert_int_equal(taking.tiers == 0, w == 0);
        }
    }
}

/* Where there are many parameters for each token, the device needs less than the state alone. */
CASE_WITH(test_the_device_is_smaller_than_the_state, tokens_setup, scratch_teardown)
{
    static const char *const words = "model.channels=128 model.layers=12 batch.global=2 "
                                     "batch.micro=1 memory.offload.optimizer=file "
                                     "memory.offload.gradients=host "
                                     "memory.offload.activations=host";
    struct ls_config config = offload_config(*state, GPT2_BF16, "", words);
    struct taking taking = take(*state, &config);
    print_message("%.1f MiB on the device, %.1f MiB in tiers; masters and states are %.1f MiB\n",
                  (double)taking.total / 0x1p20, (double)taking.tiers / 0x1p20,
                  (double)taking.state / 0x1p20);
    assert_true(taking.total < taking.state);
    assert_true(taking.tiers > taking.state * 9 / 10);
    struct run with = {.config = config, .steps = 2}, without = with;
    struct ls_config_memory *memory = &without.config.memory;
    for (int what = 0; what < LS_OFFLOADS; what++)
        memory->offload[what].to = LS_TIER_DEVICE;
    run(&with);
    run(&without);
    expect_same(&without, &with, 0, "a device smaller than the state");
}

/* ---- folders that cannot serve -------------------------------------------------------------- */

static int new_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct ls_trainer *t = NULL;
    int status = ls_trainer_new(user, world, NULL, &t, error);
    ls_trainer_free(t);
    return status;
}

/* Every rank is refused with code, and the text has the key, once, and `text`; none hangs. */
static void expect_refused(struct ls_config *config, int code, const char *text)
{
    struct ls_error error = {0};
    config->comm.timeout_s = 20;
    assert_int_equal(ls_world_run((int)ls_config_ranks(config), new_body, config, &error), code);
    if (!strstr(error.text, "memory.file: ") || strstr(error.text, "memory.file: memory.file") ||
        !strstr(error.text, text))
        fail_msg("%s", error.text);
}

CASE_WITH(test_one_run_at_a_time_uses_a_folder, tokens_setup, scratch_teardown)
{
    struct ls_config one = config_of(*state, GPT2_BF16, "", 2);
    struct ls_config two = config_of(*state, GPT2_BF16, "parallel.dp_shard=2 parallel.zero=1", 2);
    struct ls_comm *self;
    struct ls_trainer *t;
    struct ls_error error = {0};
    struct ls_step_report report;
    assert_int_equal(ls_comm_self_new(&self, &error), LS_OK);
    assert_ok(ls_trainer_new(&one, self, NULL, &t, &error), error);
    expect_refused(&one, LS_EBUSY, "rank-00000.offload");
    expect_refused(&two, LS_EBUSY, "rank-00000.offload");
    if (ls_trainer_step(t, &report, &error)) /* it was not disturbed */
        fail_msg("%s", error.text);
    ls_trainer_free(t);
    ls_comm_free(self);
    assert_int_equal(ls_world_run(2, new_body, &two, &error), LS_OK);
}

CASE_WITH(test_bad_folders_are_refused, tokens_setup, scratch_teardown)
{
    struct ls_config config =
        config_of(*state, GPT2_BF16, "parallel.dp_shard=2 parallel.zero=1", ALL_FILE);
    char *folder = config.memory.file;
    snprintf(folder, sizeof config.memory.file, "%s/tokens.bin", (const char *)*state);
    expect_refused(&config, LS_EIO, "tokens.bin");
    snprintf(folder, sizeof config.memory.file, "%s/absent/offload", (const char *)*state);
    expect_refused(&config, LS_EIO, "the folder that should contain it does not exist");
    if (!access("/sys", F_OK)) { /* where nobody makes folders, not even root */
        snprintf(folder, sizeof config.memory.file, "/sys/offload");
        expect_refused(&config, LS_EIO, "/sys/offload: cannot make the folder");
    }
    if (geteuid() != 0) {
        snprintf(folder, sizeof config.memory.file, "%s/closed", (const char *)*state);
        assert_int_equal(mkdir(folder, 0500), 0);
        expect_refused(&config, LS_EIO, "Permission denied");
    }
}

static int whole_run(struct ls_comm *world, void *user, struct ls_error *error)
{
    return ls_run(user, world, NULL, NULL, error);
}

/* A rank that is killed while it has a file in the folder. */
static void leave_file(const char *folder)
{
    pid_t child = child_fork(SIGKILL);
    if (child == 0) {
        const struct ls_tier_options options = {
            .kind = LS_TIER_FILE, .bytes = 1 << 20, .folder = folder, .rank = 5};
        struct ls_tier *tier;
        struct ls_error error;
        if (ls_tier_new(&options, &tier, &error))
            _exit(1);
        kill(getpid(), SIGKILL);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(access(scratch_path(folder, "rank-00005.offload/data"), F_OK), 0);
}

/* Also by a start that offloads nothing, from where the start before had it. */
CASE_WITH(test_what_killed_ranks_offloaded_is_removed, tokens_setup, scratch_teardown)
{
    struct ls_config config = config_of(*state, GPT2_FP32, "", 2);
    struct ls_error error = {0};
    char folder[300], replay[320];
    snprintf(folder, sizeof folder, "%s/offload", (const char *)*state);
    snprintf(replay, sizeof replay, "%s/replay", folder);
    snprintf(config.train.resume, sizeof config.train.resume, "auto");
    for (int start = 0; start < 3; start++) {
        if (start > 0)
            leave_file(folder);
        if (start > 0)
            leave_file(replay);
        if (start == 2) {
            config.memory = config_of(*state, GPT2_FP32, "", 0).memory;
            config.memory.file[0] = '\0';
        }
        config.train.steps = start + 1;
        assert_ok(ls_world_run(1, whole_run, &config, &error), error);
        assert_int_not_equal(access(replay, F_OK), 0);
        assert_int_not_equal(access(scratch_path(folder, "rank-00005.offload"), F_OK), 0);
    }
}

/* Sums that go from replica to replica of the shards stay on the device. */
CASE_WITH(test_gradients_of_replicas_are_refused, tokens_setup, scratch_teardown)
{
    static const char *const layout = "parallel.dp_shard=2 parallel.dp_replicate=2 parallel.zero=1";
    struct ls_error error = {0};
    for (int kind = 1; kind < LS_TIER_KINDS; kind++) {
        struct ls_config config = config_of(*state, GPT2_FP32, layout, 3 * kind);
        assert_true(ls_world_run(4, new_body, &config, &error) != LS_OK);
        if (!strstr(error.text, "gradients") || !strstr(error.text, "2 replicas of shards"))
            fail_msg("%s", error.text);
    }
    struct ls_config config = config_of(*state, GPT2_FP32, layout, 1 + 9);
    assert_ok(ls_world_run(4, new_body, &config, &error), error);
}

SUITE_MAIN(NULL, NULL)
