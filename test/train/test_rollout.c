/* Rollouts in a layout of their own: for each pair of a training layout and one of rollouts over 1,
 * 2 and 4 ranks, texts and log-probabilities have the bits of one rank after each step, and memory
 * is what was planned. Weights of the step before, and rows in the wrong place, are seen. */
#include "../support/extent.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "../support/wrapped.h"
#include "tokens.h"

#include <lockstep/infer/rollout.h>
#include <lockstep/parallel/zero.h>
#include <lockstep/train.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 2, PROMPTS = 3, SAMPLES = 2, TEXTS = PROMPTS * SAMPLES, ADDED = 6, LONG = 24 };
enum { WORDS_MAX = 48, ROOM = 600, ROLLOUTS_MAX = 6 };

static const char *const common =
    "model.layers=2 model.channels=64 model.heads=4 model.context=256 model.vocab=90 "
    "model.vocab_multiple=32 data.sequence=256 batch.global=4 train.steps=4 optim.lr=0.05 "
    "optim.schedule=constant numerics.tp_tiles=4 numerics.seq_tiles=2 log.tensorboard=false "
    "numerics.leaf_sequences=1 numerics.arithmetic=fma parallel.threads=1";
static const char *const recipes[] = {
    "numerics.precision=fp32",
    "model.arch=llama model.kv_heads=2 model.ffn=56 model.tied=false numerics.precision=bf16",
    "model.arch=qwen3 model.channels=128 model.kv_heads=2 model.ffn=128 model.tied=true "
    "numerics.precision=bf16 numerics.tp_tiles=2 lora.rank=4 lora.base=nf4",
    "model.arch=llama model.channels=128 model.ffn=128 numerics.precision=bf16 "
    "numerics.tp_tiles=2 lora.rank=4 lora.base=int8",
};
enum { RECIPES = sizeof recipes / sizeof recipes[0] };

/* Beside the products of the axes. */
static const char *const corners[] = {
    "parallel.dp=2 parallel.zero=3 parallel.persist=200",
    "parallel.dp=2 parallel.zero=3 parallel.reshard_after_forward=false",
    "parallel.dp_replicate=2 parallel.dp_shard=2 parallel.zero=3",
    "parallel.dp=2 parallel.zero=3 memory.offload.optimizer=host",
    "parallel.dp=2 parallel.zero=3 memory.offload.parameters=host",
    "parallel.tp=2 memory.offload.parameters=host memory.offload.parameters_ratio=0.5",
    "parallel.pp=2 parallel.schedule=interleaved parallel.chunks=2",
    "parallel.pp=2 parallel.schedule=zbv",
    "parallel.pp=2 parallel.dp=2 parallel.split=0-0,1-3 parallel.zero=3",
};
enum { CORNERS = sizeof corners / sizeof corners[0], LAYOUTS_MAX = 64, LAYOUT_BYTES = 128 };

/* ---- what passes between ranks --------------------------------------------------------------- */

WRAPPED(ls_send_start);
WRAPPED(ls_recv_start);
WRAPPED(ls_arena_init);
WRAPPED(ls_zero_weights);

static _Thread_local struct {
    bool listens;
    size_t arena;
    int64_t sent, came; /* the most at once */
    int64_t moved;      /* all that was sent */
} heard;
static bool swaps; /* the two halves of what is sent */

int __wrap_ls_send_start(struct ls_comm *comm, const void *buffer, int64_t count,
                         enum ls_dtype dtype, int peer, int tag, struct ls_request *request,
                         struct ls_call_site site, struct ls_error *error)
{
    if (heard.listens && dtype == LS_U8) {
        heard.sent = ls_max(heard.sent, count);
        heard.moved += count;
    }
    if (!swaps || !heard.listens || dtype != LS_U8)
        return __real_ls_send_start(comm, buffer, count, dtype, peer, tag, request, site, error);
    char *other = malloc((size_t)count);
    int64_t half = count / 2;
    assert_non_null(other);
    memcpy(other, (const char *)buffer + half, (size_t)(count - half));
    memcpy(other + count - half, buffer, (size_t)half);
    int status = __real_ls_send_start(comm, other, count, dtype, peer, tag, request, site, error);
    free(other); /* the rollout's sends are over when they return */
    return status;
}

int __wrap_ls_recv_start(struct ls_comm *comm, void *buffer, int64_t count, enum ls_dtype dtype,
                         int peer, int tag, struct ls_request *request, struct ls_call_site site,
                         struct ls_error *error)
{
    if (heard.listens && dtype == LS_U8)
        heard.came = ls_max(heard.came, count);
    return __real_ls_recv_start(comm, buffer, count, dtype, peer, tag, request, site, error);
}

int __wrap_ls_arena_init(struct ls_arena *arena, size_t bytes, struct ls_error *error)
{
    if (heard.listens)
        heard.arena += bytes;
    return __real_ls_arena_init(arena, bytes, error);
}

/* The call on this rank, from 0, that fails; -1: none. */
static _Thread_local int weights_left = -1;

int __wrap_ls_zero_weights(struct ls_zero *zero, struct ls_ops *ops, int unit,
                           struct ls_zero_weights *out, struct ls_error *error)
{
    if (weights_left >= 0 && weights_left-- == 0)
        return ls_error_set(error, LS_EIO, "the weights cannot be read");
    return __real_ls_zero_weights(zero, ops, unit, out, error);
}

/* ---- configurations -------------------------------------------------------------------------- */

static void words_set(struct ls_config *config, const char *words)
{
    struct ls_error error = {0};
    char word[ROOM];
    for (size_t length; *words; words += length + (words[length] == ' ')) {
        length = strcspn(words, " ");
        snprintf(word, sizeof word, "%.*s", (int)length, words);
        if (ls_config_set(config, word, &error))
            fail_msg("%s", error.text);
    }
}

static struct ls_config config_make(const char *directory, int recipe, const char *layout)
{
    struct ls_config config;
    struct ls_error error = {0};
    char data[ROOM];
    snprintf(data, sizeof data, "data.train=u16:%s/tokens.bin", directory);
    ls_config_defaults(&config);
    words_set(&config, data);
    words_set(&config, common);
    words_set(&config, recipes[recipe]);
    words_set(&config, layout);
    assert_ok(ls_train_resolve(&config, &error), error);
    return config;
}

/* Products of pp, dp, cp and tp that are 1, 2 or 4, with each stage of ZeRO; and the corners. */
static int layouts_make(char list[LAYOUTS_MAX][LAYOUT_BYTES])
{
    int count = 0;
    for (int code = 0; code < 81; code++) {
        int log[4] = {code % 3, code / 3 % 3, code / 9 % 3, code / 27};
        if (log[0] + log[1] + log[2] + log[3] > 2)
            continue;
        for (int zero = 0; zero < (log[1] ? 4 : 1); zero++) {
            assert_true(count < LAYOUTS_MAX);
            snprintf(list[count++], LAYOUT_BYTES,
                     "parallel.pp=%d parallel.dp=%d parallel.cp=%d parallel.tp=%d parallel.zero=%d",
                     1 << log[0], 1 << log[1], 1 << log[2], 1 << log[3], zero);
        }
    }
    for (int i = 0; i < CORNERS; i++)
        snprintf(list[count++], LAYOUT_BYTES, "%s", corners[i]);
    return count;
}

/* ---- what a layout makes of a recipe --------------------------------------------------------- */

struct outcome {
    int64_t count[TEXTS];
    int32_t ids[TEXTS][LONG];
    float logprobs[TEXTS][LONG], scored[TEXTS][LONG];
};

struct job {
    struct ls_config config, rollouts[ROLLOUTS_MAX]; /* none: the trainer's own runner */
    int rollout_count;
    bool stale;                      /* weights come after the first step alone */
    int64_t moved[STEPS];            /* bytes that passed between ranks */
    bool rewrites;                   /* rollouts are told that parameters were written */
    struct outcome *own;             /* [STEPS]: made by one rank */
    const struct outcome *reference; /* [STEPS] */
};

static int on_done(void *user, int64_t prompt, int64_t sample, const struct ls_generated *text,
                   struct ls_error *error)
{
    struct outcome *out = user;
    int64_t i = prompt * SAMPLES + sample;
    if (text->count > LONG)
        return ls_error_set(error, LS_EINVAL, "a text of %ld tokens", (long)text->count);
    out->count[i] = text->count;
    memcpy(out->ids[i], text->ids, (size_t)text->count * sizeof *text->ids);
    memcpy(out->logprobs[i] + 1, text->logprobs + 1, (size_t)(text->count - 1) * sizeof(float));
    return LS_OK;
}

/* Collective. Texts, on all ranks, and their scores. */
static int outcome_make(struct ls_runner *runner, struct outcome *out, struct ls_error *error)
{
    struct ls_text_request list[PROMPTS];
    int32_t ids[PROMPTS][LONG];
    struct ls_generation_report report;
    struct ls_scored scored[TEXTS];
    memset(out, 0, sizeof *out);
    for (int i = 0; i < PROMPTS; i++) {
        int64_t length = 3 + 7 * i;
        for (int64_t t = 0; t < length; t++)
            ids[i][t] = (int32_t)((t * t + 7 * i + t / 3) % 50);
        list[i] = (struct ls_text_request){
            .line = i + 1, .tokens = {ids[i], length, length}, .first = length};
    }
    const struct ls_text_requests prompts = {.list = list, .count = PROMPTS};
    const struct ls_generation generation = {.prompts = &prompts,
                                             .tokens = ADDED,
                                             .sampling = {.temperature = 1, .top_p = 1},
                                             .seed = 5,
                                             .samples = SAMPLES,
                                             .batch = 4,
                                             .logprobs = true,
                                             .done = on_done,
                                             .user = out,
                                             .everywhere = true};
    int status = ls_runner_continue(runner, &generation, &report, error);
    for (int i = 0; i < TEXTS; i++)
        scored[i] = (struct ls_scored){
            .ids = out->ids[i], .count = out->count[i], .first = 1, .logprobs = out->scored[i]};
    return status ? status : ls_runner_score(runner, scored, TEXTS, error);
}

static int outcome_compare(const struct outcome *a, const struct outcome *b, int step, int rollout,
                           struct ls_error *error)
{
    return memcmp(a, b, sizeof *a)
               ? ls_error_set(error, LS_EDATA, "step %d, rollout %d: other bits than one rank's",
                              step, rollout)
               : LS_OK;
}

/* What was planned is what is taken. */
static int bytes_check(const struct job *job, int i, struct ls_trainer *t, int rank,
                       struct ls_error *error)
{
    struct ls_config config = job->config;
    size_t planned;
    const struct ls_layout_keys *keys = &job->rollouts[i].parallel;
    config.rollout = (struct ls_config_rollout){keys->pp, keys->dp, keys->tp};
    int status = ls_rollout_bytes(&config, ls_trainer_layout(t), rank, 1, &planned, error);
    size_t taken = heard.arena + (size_t)heard.sent + (size_t)heard.came;
    if (status || planned == taken)
        return status;
    return ls_error_set(error, LS_EINVAL, "rollout %d: %zu bytes were planned, %zu taken", i,
                        planned, taken);
}

static int rollout_run(struct job *job, int step, int i, struct ls_trainer *t,
                       struct ls_rollout **rollout, int rank, struct ls_error *error)
{
    struct outcome out;
    int status = LS_OK;
    memset(&heard, 0, sizeof heard);
    heard.listens = true;
    if (!*rollout)
        status = ls_rollout_new(ls_trainer_runner(t), &job->rollouts[i], rollout, error);
    if (!status && (step == 0 || !job->stale))
        status = ls_rollout_refresh(*rollout, error);
    heard.listens = false;
    __atomic_add_fetch(&job->moved[step], heard.moved, __ATOMIC_RELAXED);
    if (!status && step == 0)
        status = bytes_check(job, i, t, rank, error);
    if (!status)
        status = outcome_make(ls_rollout_runner(*rollout), &out, error);
    return status ? status : outcome_compare(&out, &job->reference[step], step, i, error);
}

static int body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct job *job = user;
    struct ls_trainer *t;
    struct ls_step_report report;
    struct ls_rollout *rollouts[ROLLOUTS_MAX] = {0};
    int status = ls_trainer_new(&job->config, world, NULL, &t, error);
    for (int step = 0; step < STEPS && !status; step++) {
        status = ls_trainer_step(t, &report, error);
        for (int i = 0; i < job->rollout_count && job->rewrites; i++)
            ls_rollout_forget(rollouts[i]);
        if (!status && job->own)
            status = outcome_make(ls_trainer_runner(t), &job->own[step], error);
        for (int i = 0; i < job->rollout_count && !status; i++) {
            status = rollout_run(job, step, i, t, &rollouts[i], ls_comm_rank(world), error);
            status = ls_comm_agree(world, status, error);
        }
    }
    for (int i = 0; i < job->rollout_count; i++)
        ls_rollout_free(rollouts[i]);
    ls_trainer_free(t);
    return status;
}

/* Made once for all tests. */
static const struct outcome *one_rank(const char *directory, int recipe)
{
    static struct outcome *made[RECIPES];
    struct ls_error error = {0};
    if (!made[recipe]) {
        struct job job = {.config = config_make(directory, recipe, "")};
        made[recipe] = job.own = calloc(STEPS, sizeof *job.own);
        assert_ok(ls_world_run(1, body, &job, &error), error);
        assert_memory_not_equal(&job.own[0].logprobs, &job.own[1].logprobs,
                                sizeof job.own[0].logprobs);
    }
    return made[recipe];
}

/* All over so many ranks; in `make check` those of one `turn` in two. */
static void rollouts_add(struct job *job, int64_t ranks, int turn)
{
    int place = 0;
    for (int64_t pp = 1; pp <= ranks; pp *= 2)
        for (int64_t tp = 1; tp <= ranks / pp; tp *= 2) {
            struct ls_config config = job->config;
            if (ranks > 1 && !check_pair(place++, turn, 2))
                continue;
            config.rollout = (struct ls_config_rollout){.pp = pp, .tp = tp};
            if (!ls_config_rollout_check(&config, ranks, NULL, NULL))
                assert_true(ls_config_rollout(&config, &job->rollouts[job->rollout_count++]));
        }
}

/* ---- tests ----------------------------------------------------------------------------------- */

CASE(test_every_pair_has_the_bits_of_one_rank)
{
    char layouts[LAYOUTS_MAX][LAYOUT_BYTES];
    int count = layouts_make(layouts), pairs = 0, runs = 0, refused = 0;
    for (int recipe = 0; recipe < RECIPES; recipe++) {
        for (int l = 0; l < count; l++) {
            struct ls_error error = {0};
            struct ls_layout layout;
            if (!check_pair(recipe, l, 5 * RECIPES))
                continue;
            struct job job = {.config = config_make(*state, recipe, layouts[l]),
                              .reference = one_rank(*state, recipe)};
            if (ls_config_layout(&job.config, 0, &layout, NULL)) {
                refused++;
                continue;
            }
            rollouts_add(&job, layout.ranks, runs);
            assert_true(job.rollout_count > 0);
            if (ls_world_run((int)layout.ranks, body, &job, &error))
                fail_msg("%s: %s: %s", recipes[recipe], layouts[l], error.text);
            pairs += job.rollout_count;
            runs++;
        }
    }
    print_message("pairs of a training and a rollout layout: %d, of %d training layouts; %d were "
                  "refused\n",
                  pairs, runs, refused);
    assert_true(runs > 5 * refused);
    assert_true(pairs > (check_all() ? 3 : 1) * runs);
}

static int twin(const char *directory, int recipe, const char *words, bool stale)
{
    struct ls_error error = {0};
    struct job job = {.config = config_make(directory, recipe, words),
                      .reference = one_rank(directory, recipe),
                      .stale = stale};
    assert_true(ls_config_rollout(&job.config, &job.rollouts[job.rollout_count++]));
    return ls_world_run(2, body, &job, &error);
}

CASE(test_weights_of_the_step_before_are_seen)
{
    static const char *const pairs[] = {"parallel.dp=2 parallel.zero=3 rollout.dp=2",
                                        "parallel.tp=2 rollout.dp=2", "parallel.dp=2 rollout.tp=2",
                                        "parallel.pp=2 rollout.dp=2"};
    for (int recipe = 0; recipe < 2; recipe++)
        for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
            if (!check_pair(recipe, (int)i, 4))
                continue;
            assert_int_equal(twin(*state, recipe, pairs[i], false), LS_OK);
            assert_int_equal(twin(*state, recipe, pairs[i], true), LS_EDATA);
        }
}

/* Bytes that pass between ranks in each step. */
static struct job moves_of(const char *directory, int recipe, const char *words, bool rewrites)
{
    struct ls_error error = {0};
    struct ls_layout layout;
    struct job job = {.config = config_make(directory, recipe, words),
                      .reference = one_rank(directory, recipe),
                      .rewrites = rewrites};
    assert_ok(ls_config_layout(&job.config, 0, &layout, &error), error);
    assert_true(ls_config_rollout(&job.config, &job.rollouts[job.rollout_count++]));
    if (ls_world_run((int)layout.ranks, body, &job, &error))
        fail_msg("%s: %s: %s", recipes[recipe], words, error.text);
    return job;
}

/* Of a model with adapters these alone move again, until somebody else writes parameters. */
CASE(test_frozen_weights_move_once)
{
    static const char *const pairs[] = {"parallel.tp=2 rollout.dp=2", "parallel.pp=2 rollout.dp=2",
                                        "parallel.pp=2 rollout.tp=2",
                                        "parallel.tp=2 parallel.pp=2 rollout.dp=4"};
    for (int recipe = 0; recipe < RECIPES; recipe++)
        for (int i = 0; i < (int)(sizeof pairs / sizeof *pairs); i++) {
            if (!check_pair(recipe, i, 4) || !check_pair(recipe, 0, 2))
                continue;
            bool adapts = strstr(recipes[recipe], "lora.rank") != NULL;
            struct job job = moves_of(*state, recipe, pairs[i], false);
            if (adapts ? 2 * job.moved[1] > job.moved[0] : job.moved[1] != job.moved[0])
                fail_msg("%s: %s: %ld bytes moved, then %ld", recipes[recipe], pairs[i],
                         (long)job.moved[0], (long)job.moved[1]);
            assert_true(job.moved[1] > 0);
            job = moves_of(*state, recipe, pairs[i], true);
            assert_int_equal(job.moved[1], job.moved[0]);
        }
}

CASE(test_swapped_shards_are_seen)
{
    static const char *const pairs[] = {"parallel.tp=2 rollout.dp=2", "parallel.pp=2 rollout.dp=2",
                                        "parallel.pp=2 rollout.tp=2"};
    for (int recipe = 0; recipe < 2; recipe++)
        for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
            if (!check_pair(recipe, (int)i, 3))
                continue;
            swaps = true;
            int status = twin(*state, recipe, pairs[i], false);
            swaps = false;
            assert_int_equal(status, LS_EDATA);
        }
}

/* Of weights that both layouts place alike nothing is taken. */
CASE(test_equal_places_are_not_copied)
{
    static const struct {
        const char *words;
        bool none;
    } cases[] = {
        {"parallel.dp=4 rollout.dp=4", true},
        {"parallel.dp=2 parallel.zero=2 rollout.dp=2", true},
        {"parallel.tp=2 parallel.dp=2 parallel.zero=1 rollout.tp=2", true},
        {"parallel.pp=2 rollout.pp=2", true},
        {"parallel.zero=3 rollout.dp=1", true},
        {"parallel.dp=2 parallel.zero=3 parallel.reshard_after_forward=false rollout.dp=2", true},
        {"parallel.dp=2 parallel.zero=3 rollout.dp=2", false},
        {"memory.offload.parameters=host rollout.dp=1", false},
        {"parallel.tp=2 rollout.dp=2", false},
        {"parallel.pp=2 rollout.dp=2", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ls_config config = config_make(*state, 1, cases[i].words), without = config;
        struct ls_error error = {0};
        struct ls_memory_plan plan, plain;
        struct ls_memory_fit fit, plain_fit;
        struct ls_layout layout;
        without.rollout = (struct ls_config_rollout){0};
        assert_ok(ls_config_layout(&config, 0, &layout, &error), error);
        assert_ok(ls_plan_rank(&config, &layout, 0, &plan, &error), error);
        assert_ok(ls_plan_rank(&without, &layout, 0, &plain, &error), error);
        if (cases[i].none != (plan.rollout == 0))
            fail_msg("%s: %zu bytes", cases[i].words, plan.rollout);
        assert_int_equal(plain.rollout, 0);
        assert_int_equal(plan.total, plain.total);
        assert_ok(ls_memory_fit(&config, &layout, NULL, &fit, &error), error);
        assert_ok(ls_memory_fit(&without, &layout, NULL, &plain_fit, &error), error);
        assert_true(cases[i].none ? fit.bytes == plain_fit.bytes : fit.bytes > plain_fit.bytes);
        assert_int_equal(fit.rank_bytes - plain_fit.rank_bytes, plan.rollout);
    }
}

/* A layer that stays on its rank takes no memory: of two stages each rank gets the other half,
 * which passes through two buffers of a layer. */
CASE(test_stages_get_what_they_lack)
{
    struct ls_error error = {0};
    struct ls_memory_plan half, whole;
    struct ls_layout layout;
    struct ls_config config = config_make(*state, 0, "model.layers=16 parallel.pp=2 rollout.dp=2");
    assert_ok(ls_config_layout(&config, 0, &layout, &error), error);
    assert_ok(ls_plan_rank(&config, &layout, 0, &half, &error), error);
    config = config_make(*state, 0, "model.layers=16 parallel.dp=2 parallel.zero=3 rollout.dp=2");
    assert_ok(ls_config_layout(&config, 0, &layout, &error), error);
    assert_ok(ls_plan_rank(&config, &layout, 0, &whole, &error), error);
    assert_true(half.rollout < whole.rollout * 3 / 4);
}

/* ---- through a trainer ----------------------------------------------------------------------- */

static int trainer_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct job *job = user;
    struct ls_trainer *t;
    struct ls_runner *runner = NULL, *first = NULL;
    struct ls_step_report report;
    struct outcome out;
    const volatile int flag = 1;
    int status = ls_trainer_new(&job->config, world, NULL, &t, error);
    for (int step = 0; step < STEPS && !status; step++) {
        status = ls_trainer_step(t, &report, error);
        if (!status)
            status = ls_trainer_rollout(t, &runner, error);
        if (!status)
            status = outcome_make(runner, &out, error);
        if (!status)
            status = outcome_compare(&out, &job->reference[step], step, 0, error);
        if (!status && (runner == ls_trainer_runner(t) || (step && runner != first)))
            status = ls_error_set(error, LS_EINVAL, "step %d: another runner", step);
        first = runner;
    }
    if (!status) { /* who interrupts the trainer's runner interrupts rollouts */
        ls_runner_set_interrupt(ls_trainer_runner(t), &flag);
        status = ls_trainer_rollout(t, &runner, error);
    }
    if (!status) {
        status = outcome_make(runner, &out, error);
        status = status == LS_ESTOPPED ? LS_OK : ls_error_set(error, LS_EINVAL, "not interrupted");
    }
    ls_trainer_free(t);
    return status;
}

CASE(test_a_trainer_keeps_its_rollout)
{
    struct ls_error error = {0};
    struct job job = {.reference = one_rank(*state, 1),
                      .config = config_make(*state, 1,
                                            "parallel.dp=2 parallel.tp=2 parallel.zero=3 "
                                            "rollout.pp=2")};
    assert_ok(ls_world_run(4, trainer_body, &job, &error), error);
}

/* ---- a rank that fails alone ----------------------------------------------------------------- */

/* The refresh ends as on the rank that fails, and others name that; *over: none fails any more. */
static int refresh_fails(struct ls_rollout *rollout, int rank, int failing, bool *over,
                         struct ls_error *error)
{
    struct ls_error found = {0};
    char named[32];
    int status = ls_rollout_refresh(rollout, &found);
    snprintf(named, sizeof named, "rank %d: the weights", failing);
    const char *says = rank == failing ? "the weights" : named;
    *over = status == LS_OK;
    if (*over || (status == LS_EIO && !strncmp(found.text, says, strlen(says))))
        return LS_OK;
    return ls_error_set(error, LS_EINVAL, "rank %d failed; found %s: %s", failing,
                        ls_status_name(status), found.text);
}

/* At each unit that a rank has; then the weights come whole. */
static int failing_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct job *job = user;
    struct ls_trainer *t;
    struct ls_step_report report;
    struct ls_rollout *rollout = NULL;
    struct outcome out;
    int status = ls_trainer_new(&job->config, world, NULL, &t, error);
    if (!status)
        status = ls_trainer_step(t, &report, error);
    if (!status)
        status = ls_rollout_new(ls_trainer_runner(t), &job->rollouts[0], &rollout, error);
    for (int failing = 0; failing < ls_comm_size(world) && !status; failing++) {
        bool over = false;
        int n = 0;
        for (; !over && !status; n++) {
            weights_left = ls_comm_rank(world) == failing ? n : -1;
            status = refresh_fails(rollout, ls_comm_rank(world), failing, &over, error);
            weights_left = -1;
            status = ls_comm_agree(world, status, error);
        }
        if (!status && n < 3)
            status = ls_error_set(error, LS_EINVAL, "rank %d failed %d times", failing, n - 1);
        if (!status)
            status = outcome_make(ls_rollout_runner(rollout), &out, error);
        if (!status)
            status = outcome_compare(&out, &job->reference[0], 0, 0, error);
    }
    ls_rollout_free(rollout);
    ls_trainer_free(t);
    return status;
}

CASE(test_a_rank_that_fails_alone_is_told)
{
    static const char *const pairs[] = {"parallel.tp=2 rollout.dp=2", "parallel.pp=2 rollout.dp=2",
                                        "parallel.pp=2 rollout.tp=2", "parallel.dp=2 rollout.tp=2"};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        struct ls_error error = {0};
        struct job job = {.config = config_make(*state, 1, pairs[i]),
                          .reference = one_rank(*state, 1)};
        assert_true(ls_config_rollout(&job.config, &job.rollouts[0]));
        assert_ok(ls_world_run(2, failing_body, &job, &error), error);
    }
}

/* Doubles the vectors held here that are not trained, and says how many that are. */
static int vectors_double(struct ls_trainer *t, struct ls_error *error)
{
    const struct ls_params *params = ls_trainer_params(t);
    int status = LS_OK, doubled = 0;
    for (int i = 0; i < params->count && !status; i++) {
        const struct ls_param *param = &params->list[i];
        struct ls_dtensor tensor;
        if (param->matrix || !param->frozen)
            continue;
        status = ls_trainer_dtensor(t, i, LS_TENSOR_PARAMETER, &tensor, error);
        for (int64_t k = 0; k < ls_param_elements(param) && !status; k++)
            ((float *)tensor.data)[k] *= 2;
        doubled++;
    }
    if (!status && !doubled)
        status = ls_error_set(error, LS_EINVAL, "no vector is frozen");
    return status ? status : ls_trainer_publish(t, error);
}

static int written_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct job *job = user;
    struct ls_trainer *t;
    struct ls_runner *runner;
    struct ls_step_report report;
    struct outcome own[2], out;
    int status = ls_trainer_new(&job->config, world, NULL, &t, error);
    if (!status)
        status = ls_trainer_step(t, &report, error);
    for (int written = 0; written < 2 && !status; written++) {
        status = written ? vectors_double(t, error) : LS_OK;
        if (!status)
            status = outcome_make(ls_trainer_runner(t), &own[written], error);
        if (!status)
            status = ls_trainer_rollout(t, &runner, error);
        if (!status)
            status = outcome_make(runner, &out, error);
        if (!status)
            status = outcome_compare(&out, &own[written], written, 0, error);
    }
    if (!status && !memcmp(&own[0], &own[1], sizeof own[0]))
        status = ls_error_set(error, LS_EINVAL, "what was written changes nothing");
    ls_trainer_free(t);
    return status;
}

CASE(test_written_parameters_reach_the_rollout)
{
    static const char *const pairs[] = {"parallel.tp=2 rollout.dp=2", "parallel.pp=2 rollout.dp=2"};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        struct ls_error error = {0};
        struct job job = {.config = config_make(*state, 3, pairs[i])};
        assert_ok(ls_world_run(2, written_body, &job, &error), error);
    }
}

/* Every rank of every copy takes what it takes when it is asked for alone. */
CASE(test_ranks_are_planned_together)
{
    static const char *const pairs[] = {
        "parallel.tp=2 parallel.pp=2 rollout.dp=4", "parallel.dp=4 parallel.zero=3 rollout.tp=4",
        "parallel.dp=2 parallel.tp=2 parallel.zero=3 rollout.pp=2 rollout.dp=2",
        "parallel.pp=2 parallel.dp=2 rollout.tp=2"};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        struct ls_config config = config_make(*state, 1, pairs[i]);
        struct ls_error error = {0};
        struct ls_layout layout;
        size_t all[4], one;
        assert_ok(ls_config_layout(&config, 0, &layout, &error), error);
        assert_ok(ls_rollout_bytes(&config, &layout, 0, layout.ranks, all, &error), error);
        for (int64_t rank = 0; rank < layout.ranks; rank++) {
            assert_ok(ls_rollout_bytes(&config, &layout, rank, 1, &one, &error), error);
            assert_int_equal(one, all[rank]);
        }
    }
}

SUITE_MAIN(tokens_setup, scratch_teardown)
