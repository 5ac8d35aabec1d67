/* The trainer: nothing is allocated after the first step, the plan is what is taken, batches ramp
 * up, steps that are not finite are skipped or stop the run, and the same bits come out of every
 * layout, evaluation and resumption included. */
#include "../support/extent.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "tokens.h"
#include "train/trainer.h"

#include <lockstep/train/recorded.h>

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS_MAX = 8 };

/* ---- allocations of our objects -------------------------------------------------------------- */

/* The linker sends every call of these from our objects here (see the Makefile); calls inside other
 * libraries (OpenMP's run time, oneDNN) are not ours and do not count. */
static atomic_bool counting;
static atomic_int allocations;

static void count(void)
{
    if (atomic_load(&counting))
        atomic_fetch_add(&allocations, 1);
}

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
int __real_posix_memalign(void **out, size_t alignment, size_t bytes);
void *__real_mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t number, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);
int __wrap_posix_memalign(void **out, size_t alignment, size_t bytes);
void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset);

void *__wrap_malloc(size_t bytes)
{
    count();
    return __real_malloc(bytes);
}
void *__wrap_calloc(size_t number, size_t bytes)
{
    count();
    return __real_calloc(number, bytes);
}
void *__wrap_realloc(void *old, size_t bytes)
{
    count();
    return __real_realloc(old, bytes);
}
void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
    count();
    return __real_aligned_alloc(alignment, bytes);
}
int __wrap_posix_memalign(void **out, size_t alignment, size_t bytes)
{
    count();
    return __real_posix_memalign(out, alignment, bytes);
}
void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset)
{
    count();
    return __real_mmap(at, bytes, protection, flags, file, offset);
}

/* ---- a small run ----------------------------------------------------------------------------- */

static const char *const common_keys[] = {
    "model.vocab=50",        "model.vocab_multiple=16", "model.layers=2",
    "model.channels=32",     "model.heads=4",           "model.context=16",
    "data.sequence=16",      "batch.global=8",          "optim.lr=3e-3",
    "optim.clip=0.5",        "train.steps=8",           "numerics.precision=fp32",
    "log.tensorboard=false", "parallel.threads=1"};

/* The common recipe with further "key=value" words, ended by NULL. Returns the status. */
static int config_try(struct ls_config *config, const char *directory, struct ls_error *error,
                      const char *const *keys)
{
    char train[600], valid[600], out[600];
    snprintf(train, sizeof train, "data.train=u16:%s/tokens.bin", directory);
    snprintf(valid, sizeof valid, "data.valid=u16:%s/tokens.bin", directory);
    snprintf(out, sizeof out, "train.out=%s/run", directory);
    ls_config_defaults(config);
    int status = ls_config_set(config, train, error);
    if (!status)
        status = ls_config_set(config, valid, error);
    if (!status)
        status = ls_config_set(config, out, error);
    for (size_t i = 0; i < sizeof common_keys / sizeof common_keys[0] && !status; i++)
        status = ls_config_set(config, common_keys[i], error);
    for (; *keys && !status; keys++)
        status = ls_config_set(config, *keys, error);
    return status ? status : ls_train_resolve(config, error);
}

#define KEYS(...) ((const char *const[]){__VA_ARGS__, NULL})

static struct ls_config config_make(const char *directory, const char *const *keys)
{
    struct ls_config config;
    struct ls_error error = {0};
    assert_ok(config_try(&config, directory, &error, keys), error);
    return config;
}

struct run {
    struct ls_config config;
    int steps;     /* to run to */
    bool resume;   /* first */
    bool save;     /* last */
    bool evaluate; /* after the last step */
    /* results, of rank 0 */
    uint32_t bits[STEPS_MAX];
    float loss[STEPS_MAX];
    int64_t samples[STEPS_MAX];
    char hash[33];
    struct ls_eval_report evaluation;
};

static int run_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct run *run = user;
    struct ls_trainer *t = NULL;
    bool first = ls_comm_rank(world) == 0, resumed = false;
    int status = ls_trainer_new(&run->config, world, NULL, &t, error);
    if (!status && run->resume)
        status = ls_trainer_resume(t, &resumed, error);
    if (!status && run->resume && !resumed)
        status = ls_error_set(error, LS_ECKPT, "nothing to go on from");
    while (!status && ls_trainer_steps(t) < run->steps) {
        struct ls_step_report report;
        status = ls_trainer_step(t, &report, error);
        if (!status && first) {
            run->bits[report.step - 1] = report.loss_bits;
            run->loss[report.step - 1] = report.loss;
            run->samples[report.step - 1] = report.samples;
        }
    }
    struct ls_digest digest = {0, 0};
    struct ls_eval_report evaluation = {0};
    if (!status && run->save)
        status = ls_trainer_save(t, error);
    if (!status)
        status = ls_trainer_hash(t, &digest, error);
    if (!status && run->evaluate)
        status = ls_trainer_evaluate(t, &evaluation, error);
    if (!status && first) {
        ls_digest_hex(&digest, run->hash);
        run->evaluation = evaluation;
    }
    ls_trainer_free(t);
    return status;
}

static void run(struct run *run)
{
    struct ls_error error = {0};
    assert_ok(ls_world_run((int)ls_config_ranks(&run->config), run_body, run, &error), error);
}

static void expect_same(const struct run *a, const struct run *b, int first, int last,
                        const char *what)
{
    for (int i = first; i < last; i++)
        if (a->bits[i] != b->bits[i])
            fail_msg("%s: step %d has loss %08x, expected %08x", what, i + 1, b->bits[i],
                     a->bits[i]);
    if (strcmp(a->hash, b->hash))
        fail_msg("%s: hash %s, expected %s", what, b->hash, a->hash);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static int counting_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    const struct ls_config *config = user;
    struct ls_trainer *t = NULL;
    struct ls_step_report report;
    int status = ls_trainer_new(config, world, NULL, &t, error);
    if (!status)
        status = ls_trainer_step(t, &report, error);
    if (!status)
        status = ls_barrier(world, error);
    if (!status && ls_comm_rank(world) == 0)
        atomic_store(&counting, true);
    if (!status)
        status = ls_barrier(world, error);
    while (!status && ls_trainer_steps(t) < 4)
        status = ls_trainer_step(t, &report, error);
    if (!status)
        status = ls_barrier(world, error);
    atomic_store(&counting, false);
    ls_trainer_free(t);
    return status;
}

CASE_WITH(test_nothing_is_allocated_after_the_first_step, tokens_setup, scratch_teardown)
{
    static const char *const recipes[][4] = {
        {"model.dropout=0.1", "batch.micro=2", "log.trace=true", NULL},
        {"numerics.precision=bf16", "optim.name=lion", NULL},
        {"parallel.zero=1", "optim.name=muon", NULL},
        {"model.arch=llama", "model.ffn=64", "batch.micro=1", NULL}};
    for (size_t i = 0; i < sizeof recipes / sizeof recipes[0]; i++)
        for (int ranks = 1; ranks <= 2; ranks++) {
            struct ls_error error = {0};
            struct ls_config config = config_make(*state, recipes[i]);
            config.parallel.dp = ranks;
            atomic_store(&allocations, 0);
            assert_ok(ls_world_run(ranks, counting_body, &config, &error), error);
            if (atomic_load(&allocations))
                fail_msg("recipe %zu, %d ranks: %d allocations in steps 2 to 4", i, ranks,
                         atomic_load(&allocations));
        }
    /* The counter does count, in the library's own objects. */
    struct ls_comm *self;
    struct ls_error error = {0};
    atomic_store(&counting, true);
    assert_int_equal(ls_comm_self_new(&self, &error), LS_OK);
    atomic_store(&counting, false);
    ls_comm_free(self);
    assert_true(atomic_load(&allocations) > 0);
}

/* In a whole run too, whose records are written every step: counted from the end of step 1 to the
 * end of step 4, when neither checkpoint nor evaluation is due. */
static void on_stepped(void *user, const struct ls_step_report *report)
{
    atomic_store(&counting, report->step >= 1 && report->step < 4);
}

static int whole_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    const struct ls_run_hooks hooks = {.stepped = on_stepped};
    return ls_run(user, world, NULL, &hooks, error);
}

CASE_WITH(test_nothing_is_allocated_by_a_run, tokens_setup, scratch_teardown)
{
    for (int ranks = 1; ranks <= 2; ranks++) {
        struct ls_error error = {0};
        char out[32];
        snprintf(out, sizeof out, "/run-%d", ranks);
        struct ls_config config =
            config_make(*state, KEYS("log.tensorboard=true", "data.valid=", "train.steps=6"));
        config.parallel.dp = ranks;
        strcat(config.train.out, out);
        atomic_store(&allocations, 0);
        assert_ok(ls_world_run(ranks, whole_body, &config, &error), error);
        if (atomic_load(&allocations))
            fail_msg("%d ranks: %d allocations in steps 2 to 4", ranks, atomic_load(&allocations));
    }
}

CASE_WITH(test_the_plan_is_what_is_taken, tokens_setup, scratch_teardown)
{
    static const char *const recipes[][5] = {
        {"batch.micro=2", "model.dropout=0.1", NULL},
        {"numerics.precision=bf16", "batch.global=12", "batch.micro=4", NULL},
        {"model.arch=llama", "model.ffn=64", "optim.name=sgd", "batch.micro=8", NULL},
        {"optim.moments=bf16", "batch.micro=2", NULL},
        {"optim.name=muon", "batch.micro=4", NULL},
        {"numerics.mode=fast", "batch.micro=3", NULL}};
    for (size_t i = 0; i < sizeof recipes / sizeof recipes[0]; i++) {
        struct ls_error error = {0};
        struct ls_config config = config_make(*state, recipes[i]);
        struct ls_memory_plan plan;
        struct ls_comm *self;
        struct ls_trainer *t;
        struct ls_step_report report;
        assert_int_equal(ls_plan(&config, &plan, &error), LS_OK);
        assert_int_equal(ls_comm_self_new(&self, &error), LS_OK);
        if (ls_trainer_new(&config, self, NULL, &t, &error) || ls_trainer_step(t, &report, &error))
            fail_msg("%s", error.text);
        assert_int_equal(t->memory.arena.peak, plan.total);
        assert_int_equal(t->memory.arena.size, plan.total);
        size_t sum = 0;
        for (int kind = 0; kind < LS_MEMORY_KINDS; kind++)
            sum += plan.bytes[kind];
        assert_int_equal(plan.total, sum);
        ls_trainer_free(t);
        ls_comm_free(self);
    }
}

/* ---- the batch ------------------------------------------------------------------------------- */

CASE_WITH(test_ramp_up_has_the_same_bits_on_two_ranks, tokens_setup, scratch_teardown)
{
    static const char *const keys[] = {"batch.rampup_start=4", "batch.rampup_increment=4",
                                       "batch.rampup_samples=10", "batch.micro=2", NULL};
    struct run one = {.config = config_make(*state, keys), .steps = 6}, two = one;
    two.config.parallel.dp = 2;
    run(&one);
    run(&two);
    static const int64_t expected[] = {4, 8, 12, 20, 28, 36};
    for (int i = 0; i < 6; i++)
        assert_int_equal(one.samples[i], expected[i]);
    expect_same(&one, &two, 0, 6, "dp 2");
    /* 4, 8 and 12 leaves: three ranks can share the last one alone. */
    struct ls_memory_plan plan;
    struct ls_error error = {0};
    struct ls_config config = config_make(*state, KEYS("batch.global=12", "batch.rampup_start=4",
                                                       "batch.rampup_increment=4",
                                                       "batch.rampup_samples=10", "parallel.dp=3"));
    assert_int_equal(ls_plan(&config, &plan, &error), LS_ELAYOUT);
}

/* Each number of micro-batches has its schedule, however many the ramp-up walks through. */
CASE_WITH(test_a_long_ramp_up_has_all_its_schedules, tokens_setup, scratch_teardown)
{
    struct run ramp = {.config = config_make(
                           *state, KEYS("batch.global=300", "batch.micro=1", "batch.rampup_start=1",
                                        "batch.rampup_increment=1", "batch.rampup_samples=2")),
                       .steps = 3};
    run(&ramp);
    static const int64_t expected[] = {1, 151, 451}; /* steps of 1, 150 and 300 */
    for (int i = 0; i < 3; i++)
        assert_int_equal(ramp.samples[i], expected[i]);
}

/* ---- steps that are not finite --------------------------------------------------------------- */

struct spoiled {
    struct ls_config config;
    bool saved; /* a checkpoint before the spoiled step */
};

/* The second step meets an infinity in one rank's parameters only. */
static int spoiled_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    const struct spoiled *spoiled = user;
    struct ls_trainer *t = NULL;
    struct ls_step_report report;
    int status = ls_trainer_new(&spoiled->config, world, NULL, &t, error);
    if (!status)
        status = ls_trainer_step(t, &report, error);
    if (!status && spoiled->saved)
        status = ls_trainer_save(t, error);
    if (status) {
        ls_trainer_free(t);
        return status;
    }
    const struct ls_slice *slice = &t->state->slices[0];
    size_t count = (size_t)slice->part->count;
    float *master = slice->master, kept = master[1000];
    float *before = malloc(count * sizeof *before), *moment = malloc(count * sizeof *moment);
    bool mine = ls_comm_rank(world) == ls_comm_size(world) - 1;
    if (mine)
        master[1000] = INFINITY;
    memcpy(before, master, count * sizeof *before);
    memcpy(moment, slice->state[0], count * sizeof *moment);
    status = ls_trainer_step(t, &report, error);
    if (memcmp(before, master, count * sizeof *before) ||
        memcmp(moment, slice->state[0], count * sizeof *moment))
        status = ls_error_set(error, LS_EINVAL, "a step that is not finite changed the state");
    free(before);
    free(moment);
    if (!status && (!report.skipped || ls_trainer_steps(t) != 2))
        status = ls_error_set(error, LS_EINVAL, "the step was not skipped");
    master[1000] = kept;
    if (!status)
        status = ls_trainer_step(t, &report, error);
    if (!status && (report.skipped || !isfinite(report.loss)))
        status = ls_error_set(error, LS_EINVAL, "the step after a skipped one is not finite");
    struct ls_digest digest;
    if (!status)
        status = ls_trainer_hash(t, &digest, error);
    ls_trainer_free(t);
    return status;
}

CASE_WITH(test_a_step_that_is_not_finite_is_skipped, tokens_setup, scratch_teardown)
{
    for (int ranks = 1; ranks <= 2; ranks++) {
        struct spoiled spoiled = {.config = config_make(*state, KEYS("train.on_nonfinite=skip"))};
        struct ls_error error = {0};
        spoiled.config.parallel.dp = ranks;
        if (ls_world_run(ranks, spoiled_body, &spoiled, &error))
            fail_msg("%d ranks: %s", ranks, error.text);
    }
}

CASE_WITH(test_a_step_that_is_not_finite_stops, tokens_setup, scratch_teardown)
{
    for (int saved = 0; saved < 2; saved++) {
        struct spoiled spoiled = {.config = config_make(*state, KEYS("parallel.dp=2")),
                                  .saved = saved};
        struct ls_error error = {0};
        assert_int_equal(ls_world_run(2, spoiled_body, &spoiled, &error), LS_ENUMERIC);
        const char *good = saved ? "/run/checkpoints/step-00000001" : "no checkpoint yet";
        if (!strstr(error.text, "step 2: the loss is ") || !strstr(error.text, good))
            fail_msg("the text lacks the step or \"%s\": %s", good, error.text);
    }
}

/* ---- fp16 ------------------------------------------------------------------------------------ */

/* A scale that is too large at first: steps are skipped until it fits, and it grows again. */
#define FP16                                                                                       \
    "numerics.precision=fp16", "numerics.initial_scale_power=24", "numerics.loss_scale_window=2",  \
        "numerics.hysteresis=1"

enum { SCALED_STEPS = 8 };
struct scaled {
    struct ls_config config;
    int64_t stop; /* after so many steps another trainer goes on from the checkpoint; 0: never */
    double scale[SCALED_STEPS];
    bool skipped[SCALED_STEPS];
    struct ls_digest digest;
};

static int scaled_steps(struct ls_comm *world, struct scaled *scaled, int64_t from, int64_t to,
                        struct ls_error *error)
{
    struct ls_trainer *t = NULL;
    struct ls_digest digest;
    bool resumed = false;
    struct ls_config config = scaled->config;
    strcpy(config.train.resume, from > 0 ? "auto" : "never");
    int status = ls_trainer_new(&config, world, NULL, &t, error);
    if (!status && from > 0)
        status = ls_trainer_resume(t, &resumed, error);
    for (int64_t i = from; i < to && !status; i++) {
        struct ls_step_report report;
        status = ls_trainer_step(t, &report, error);
        if (ls_comm_rank(world) > 0)
            continue;
        scaled->scale[i] = report.loss_scale;
        scaled->skipped[i] = report.skipped;
    }
    if (!status && to < SCALED_STEPS)
        status = ls_trainer_save(t, error);
    if (!status)
        status = ls_trainer_hash(t, &digest, error);
    if (!status && ls_comm_rank(world) == 0)
        scaled->digest = digest;
    ls_trainer_free(t);
    return status;
}

static int scaled_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct scaled *scaled = user;
    int status = scaled->stop ? scaled_steps(world, scaled, 0, scaled->stop, error) : LS_OK;
    return status ? status : scaled_steps(world, scaled, scaled->stop, SCALED_STEPS, error);
}

static struct scaled scaled_run(struct ls_config config, int ranks, int64_t stop)
{
    struct scaled scaled = {.config = config, .stop = stop};
    struct ls_error error = {0};
    if (ls_world_run(ranks, scaled_body, &scaled, &error))
        fail_msg("%d ranks: %s", ranks, error.text);
    return scaled;
}

/* The rule is tested beside PyTorch and DeepSpeed (test/optim/test_loss_scale.c): here, that every
 * rank follows it in every layout, and that a checkpoint remembers it. */
CASE_WITH(test_the_loss_scale_is_the_same_on_all_ranks, tokens_setup, scratch_teardown)
{
    struct ls_config config = config_make(*state, KEYS(FP16));
    struct scaled one = scaled_run(config, 1, 0);
    int skipped = 0, grown = 0;
    for (int i = 1; i < SCALED_STEPS; i++) {
        assert_true(!one.skipped[i - 1] || one.scale[i] == one.scale[i - 1] / 2);
        skipped += one.skipped[i - 1];
        grown += one.scale[i] > one.scale[i - 1];
    }
    assert_true(one.scale[0] == 0x1p24 && one.skipped[0]);
    assert_true(skipped >= 2 && grown >= 1);
    static const char *const layouts[][3] = {{"parallel.dp=2"},
                                             {"parallel.dp_shard=2", "parallel.zero=3"},
                                             {"parallel.pp=2"},
                                             {"parallel.tp=2", "memory.recompute=full"}};
    for (int l = 0; l < 4; l++)
        for (int64_t stop = 0; stop <= 3; stop += 3) {
            struct ls_config cut = config_make(*state, KEYS(FP16));
            struct ls_error error = {0};
            for (int k = 0; k < 3 && layouts[l][k]; k++)
                assert_int_equal(ls_config_set(&cut, layouts[l][k], &error), LS_OK);
            assert_int_equal(ls_train_resolve(&cut, &error), LS_OK);
            struct scaled other = scaled_run(cut, 2, stop);
            assert_memory_equal(other.scale, one.scale, sizeof one.scale);
            assert_memory_equal(other.skipped, one.skipped, sizeof one.skipped);
            assert_memory_equal(&other.digest, &one.digest, sizeof one.digest);
        }
}

/* Not with a scale that cannot fall: the run stops, and says where. */
CASE_WITH(test_a_scale_at_its_least_stops, tokens_setup, scratch_teardown)
{
    struct ls_config config =
        config_make(*state, KEYS(FP16, "numerics.min_loss_scale=8388608", "parallel.dp=2"));
    struct scaled scaled = {.config = config};
    struct ls_error error = {0};
    assert_int_equal(ls_world_run(2, scaled_body, &scaled, &error), LS_ENUMERIC);
    if (!strstr(error.text, "step 2: ") || !strstr(error.text, "numerics.min_loss_scale") ||
        !strstr(error.text, "not finite is that of "))
        fail_msg("%s", error.text);
    assert_true(scaled.scale[0] == 0x1p24 && scaled.skipped[0]);
    struct ls_config fixed =
        config_make(*state, KEYS("numerics.precision=fp16", "numerics.loss_scale=1e9"));
    scaled = (struct scaled){.config = fixed};
    assert_int_equal(ls_world_run(1, scaled_body, &scaled, &error), LS_ENUMERIC);
    assert_non_null(strstr(error.text, "at a loss scale of 1e+09;"));
}

/* ---- the same bits --------------------------------------------------------------------------- */

static void check_layouts(const char *directory, const char *const *keys, const int (*layouts)[2],
                          int count_layouts)
{
    struct run one = {.config = config_make(directory, keys), .steps = 3, .evaluate = true};
    run(&one);
    for (int i = 0; i < count_layouts; i++) {
        struct run other = {.config = one.config, .steps = 3, .evaluate = true};
        char what[64];
        other.config.parallel.dp = layouts[i][0];
        other.config.batch.micro = layouts[i][1];
        snprintf(what, sizeof what, "dp %d, micro %d", layouts[i][0], layouts[i][1]);
        run(&other);
        expect_same(&one, &other, 0, 3, what);
        if (memcmp(&one.evaluation, &other.evaluation, sizeof one.evaluation))
            fail_msg("%s: evaluation %.17g over %ld tokens, expected %.17g over %ld", what,
                     other.evaluation.loss, (long)other.evaluation.tokens, one.evaluation.loss,
                     (long)one.evaluation.tokens);
    }
}

/* Steps and evaluations; 13 sequences are no whole number of leaves, nor of shares. */
CASE_WITH(test_layouts, tokens_setup, scratch_teardown)
{
    static const int any[][2] = {{1, 2}, {2, 1}, {2, 4}, {4, 2}};
    static const int pairs[][2] = {{1, 2}, {1, 4}, {2, 2}, {4, 2}};
    static const int fours[][2] = {{1, 4}, {2, 4}};
    check_layouts(*state, KEYS("eval.samples=13"), any, 4);
    check_layouts(*state, KEYS("eval.samples=13", "numerics.leaf_sequences=2"), pairs, 4);
    check_layouts(*state, KEYS("eval.samples=13", "numerics.leaf_sequences=4"), fours, 2);
    check_layouts(*state,
                  KEYS("eval.samples=5", "model.context=256", "data.sequence=256",
                       "numerics.seq_tiles=2", "numerics.precision=bf16"),
                  any, 4);
}

/* Ranks take leaves in turn, so a rank's micro-batches lie apart from each other in the batch, and
 * the last one of a leaf may have fewer sequences: leaves of 3 in 2s, 2 and 1. Each step of a
 * ramp-up has its own such cut: 1 and 2 leaves a rank. */
CASE_WITH(test_an_uneven_last_micro_batch, tokens_setup, scratch_teardown)
{
    static const char *const ramp[] = {"batch.global=12",
                                       "numerics.leaf_sequences=3",
                                       "batch.rampup_start=6",
                                       "batch.rampup_increment=6",
                                       "batch.rampup_samples=10",
                                       "eval.samples=13",
                                       NULL};
    const char *const *const recipes[] = {KEYS("batch.global=12", "numerics.leaf_sequences=3"),
                                          ramp};
    enum { STEPS = 4 };
    for (int recipe = 0; recipe < 2; recipe++) {
        struct run one = {
            .config = config_make(*state, recipes[recipe]), .steps = STEPS, .evaluate = true};
        run(&one);
        for (int zero = 0; zero <= 3; zero++) {
            struct run other = {.config = one.config, .steps = STEPS, .evaluate = true};
            char what[64];
            other.config.parallel.dp = 2;
            other.config.parallel.zero = zero;
            other.config.batch.micro = 2;
            snprintf(what, sizeof what, "recipe %d, zero %d", recipe, zero);
            run(&other);
            expect_same(&one, &other, 0, STEPS, what);
            assert_memory_equal(&one.evaluation, &other.evaluation, sizeof one.evaluation);
        }
    }
}

/* Replicas of shards pass a sum around: of the first 32 regions at once, of the others when its
 * next leaf is there. */
CASE_WITH(test_replicas_of_a_deep_model, tokens_setup, scratch_teardown)
{
    struct run one = {.config = config_make(*state, KEYS("model.layers=40", "model.channels=32",
                                                         "model.ffn=64", "batch.global=8")),
                      .steps = 2};
    run(&one);
    for (int replicas = 2; replicas <= 4; replicas += 2)
        for (int zero = 1; zero <= 3; zero++) {
            if (!check_pair(replicas / 2, zero, 2))
                continue;
            struct run other = {.config = one.config, .steps = 2};
            struct ls_layout layout;
            struct ls_layout_proof proof;
            struct ls_error error = {0};
            char what[64];
            snprintf(what, sizeof what, "%d replicas, zero %d", replicas, zero);
            other.config.parallel.dp_replicate = replicas;
            other.config.parallel.dp_shard = 2;
            other.config.parallel.zero = zero;
            if (ls_config_layout(&other.config, 0, &layout, &error) ||
                ls_layout_check(&other.config, &layout, false, &proof, &error))
                fail_msg("%s: %s", what, error.text);
            run(&other);
            expect_same(&one, &other, 0, 2, what);
        }
}

/* Stages lie as the lines of a schedule's file do: the embedding's need not be the first rank's. */
CASE_WITH(test_a_tied_table_of_stages_in_another_order, tokens_setup, scratch_teardown)
{
    static const char table[] = "1F0,1B0,1F1,1B1\n0F0,0F1,0B0,0B1\n";
    const char *path = scratch_path(*state, "turned.csv");
    char file[600];
    scratch_write(path, table, sizeof table - 1);
    snprintf(file, sizeof file, "parallel.schedule_file=%s", path);
    struct run one = {.config = config_make(*state, KEYS("batch.global=2")), .steps = 3};
    struct run other = {
        .config = config_make(*state, KEYS("batch.global=2", "batch.micro=1", "parallel.pp=2",
                                           "comm.timeout_s=10", "parallel.schedule=csv", file)),
        .steps = 3};
    run(&one);
    run(&other);
    expect_same(&one, &other, 0, 3, "stages 1 and 0");
}

/* ---- shares of the machine's rate ------------------------------------------------------------ */

/* A run whose rate is measured, or given: too slow a one is what a busy machine gives. */
struct shares {
    struct ls_config config;
    double peak; /* 0: measured */
    double share[STEPS_MAX];
};

static int shares_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct shares *shares = user;
    struct ls_trainer *t = NULL;
    struct ls_step_report report;
    int status = ls_trainer_new(&shares->config, world, NULL, &t, error);
    if (!status && shares->peak <= 0)
        status = ls_trainer_measure_peak(t, error);
    else if (!status)
        t->peak_flops = shares->peak;
    for (int i = 0; i < STEPS_MAX && !status; i++) {
        status = ls_trainer_step(t, &report, error);
        if (ls_comm_rank(world) == 0)
            shares->share[i] = report.peak_share;
    }
    ls_trainer_free(t);
    return status;
}

CASE_WITH(test_a_share_of_the_peak_is_at_most_one, tokens_setup, scratch_teardown)
{
    static const char *const layouts[][4] = {
        {NULL}, {"parallel.threads=8"}, {"parallel.dp=8", "parallel.threads=2"}};
    static const double peaks[] = {0, 1, 1e6, 1e30};
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++)
        for (size_t k = 0; k < sizeof peaks / sizeof peaks[0]; k++) {
            if (!check_pair((int)i, (int)k, 3))
                continue;
            struct ls_error error = {0};
            struct shares shares = {.config = config_make(*state, layouts[i]), .peak = peaks[k]};
            int ranks = (int)ls_config_ranks(&shares.config);
            assert_ok(ls_world_run(ranks, shares_body, &shares, &error), error);
            for (int step = 0; step < STEPS_MAX; step++)
                if (!(shares.share[step] > 0 && shares.share[step] <= 1))
                    fail_msg("layout %zu, rate %g, step %d: a share of %g", i, peaks[k], step + 1,
                             shares.share[step]);
        }
    /* What a step showed to be possible stays: a rate that is a bound is not moved. */
    struct ls_error error = {0};
    struct shares shares = {.config = config_make(*state, KEYS("batch.micro=8")), .peak = 1e30};
    assert_int_equal(ls_world_run(1, shares_body, &shares, &error), LS_OK);
    assert_true(shares.share[STEPS_MAX - 1] < 1e-15);
}

/* ---- going on -------------------------------------------------------------------------------- */

CASE_WITH(test_resume_under_another_layout, tokens_setup, scratch_teardown)
{
    struct run whole = {.config = config_make(*state, KEYS("batch.micro=8")), .steps = 6};
    run(&whole);
    struct run begin = {.config = config_make(*state, KEYS("parallel.dp=4", "batch.micro=1")),
                        .steps = 3,
                        .save = true};
    struct run end = {.config =
                          config_make(*state, KEYS("parallel.dp=2", "batch.micro=2",
                                                   "parallel.threads=2", "train.resume=auto")),
                      .steps = 6,
                      .resume = true};
    run(&begin);
    run(&end);
    memcpy(end.bits, begin.bits, 3 * sizeof *end.bits);
    expect_same(&whole, &end, 0, 6, "dp 4 then dp 2");
}

/* bf16 moments are rounded by bits of the step and the element's place in the whole model: stopping
 * after any step, in any layout, changes none. And they are not what float32 moments would be. */
CASE_WITH(test_bf16_moments_are_the_same_when_resumed, tokens_setup, scratch_teardown)
{
    static const char *const optimizers[] = {"optim.name=adamw", "optim.name=lion",
                                             "optim.name=sgd", "optim.name=muon"};
    static const char *const layouts[][3] = {
        {"parallel.dp=4", "batch.micro=1", NULL},
        {"parallel.dp_shard=2", "parallel.zero=3", NULL},
        {"parallel.pp=2", "parallel.tp=2", NULL},
        {"parallel.tp=4", "parallel.dp=2", "parallel.zero=1"},
        {"batch.micro=8", "parallel.threads=2", NULL},
        {"memory.offload.optimizer=host", "memory.offload.gradients=host", "parallel.dp_shard=2"}};
    enum { LAYOUTS = sizeof layouts / sizeof *layouts };
    for (int o = 0; o < 4; o++) {
        struct run whole = {
            .config = config_make(*state, KEYS("optim.moments=bf16", optimizers[o])), .steps = 4};
        struct run wide = {.config = config_make(*state, KEYS(optimizers[o])), .steps = 4};
        run(&whole);
        run(&wide);
        assert_string_not_equal(whole.hash, wide.hash);
        for (int i = 0; i < LAYOUTS; i++) {
            if (!check_pair(o, i, 3))
                continue;
            const char *const *a = layouts[i], *const *b = layouts[(i + 1) % LAYOUTS];
            char what[64];
            snprintf(what, sizeof what, "%s, layout %d and the next", optimizers[o], i);
            struct run begin = {
                .config = config_make(*state,
                                      KEYS("optim.moments=bf16", optimizers[o], a[0], a[1], a[2])),
                .steps = 1 + i % 3,
                .save = true};
            struct run end = {.config =
                                  config_make(*state, KEYS("optim.moments=bf16", optimizers[o],
                                                           "train.resume=auto", b[0], b[1], b[2])),
                              .steps = 4,
                              .resume = true};
            snprintf(begin.config.train.out, sizeof begin.config.train.out, "%s/%d-%d",
                     (const char *)*state, o, i);
            strcpy(end.config.train.out, begin.config.train.out);
            run(&begin);
            run(&end);
            memcpy(end.bits, begin.bits, (size_t)begin.steps * sizeof *end.bits);
            expect_same(&whole, &end, 0, 4, what);
        }
    }
}

CASE_WITH(test_resume_refuses_moments_of_another_type, tokens_setup, scratch_teardown)
{
    static const char *const types[] = {"optim.moments=fp32", "optim.moments=bf16"};
    static const char *const texts[] = {"optim.moments: fp32 here, bf16 there",
                                        "optim.moments: bf16 here, fp32 there"};
    for (int i = 0; i < 2; i++) {
        struct run begin = {
            .config = config_make(*state, KEYS(types[1 - i])), .steps = 1, .save = true};
        struct run other = {.config = config_make(*state, KEYS(types[i], "train.resume=auto")),
                            .steps = 2,
                            .resume = true};
        struct ls_error error = {0};
        run(&begin);
        assert_int_equal(ls_world_run(1, run_body, &other, &error), LS_ECKPT);
        if (!strstr(error.text, texts[i]))
            fail_msg("the text lacks \"%s\": %s", texts[i], error.text);
    }
}

CASE_WITH(test_resume_refuses_another_recipe, tokens_setup, scratch_teardown)
{
    struct run begin = {
        .config = config_make(*state, KEYS("batch.micro=8")), .steps = 1, .save = true};
    run(&begin);
    struct run other = {.config = config_make(*state, KEYS("optim.lr=1e-3", "model.dropout=0.1",
                                                           "train.resume=auto")),
                        .steps = 2,
                        .resume = true};
    struct ls_error error = {0};
    assert_int_equal(ls_world_run(1, run_body, &other, &error), LS_ECKPT);
    static const char *const words[] = {"another recipe",
                                        "optim.lr: ", "model.dropout: ", "step-00000001"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (!strstr(error.text, words[i]))
            fail_msg("the text lacks %s: %s", words[i], error.text);
    if (strstr(error.text, "batch.global"))
        fail_msg("the text names a key that does not differ: %s", error.text);
}

SUITE_MAIN(NULL, NULL)
