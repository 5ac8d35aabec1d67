/* A run names what drifts: a slow rank, an unbalanced stage, a slow link, input wait; and names
 * nothing where nothing does. Updates and samples take what the test says, by a clock that it
 * turns.
 */
#include <lockstep/train.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support/config_words.h"
#include "../support/prom.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "slow_ranks.h"
#include "tokens.h"
#include "train/drift_watch.h"

/* ---- runs ------------------------------------------------------------------------------------ */

struct told {
    const struct ls_config *config;
    bool plans;
    int drifted;
    struct ls_drift drift;
    bool advised;
};

static int on_plan(void *user, const struct ls_config *config, int threads,
                   struct ls_run_plan *plan, struct ls_error *error)
{
    (void)user, (void)config, (void)error;
    assert_true(threads > 0);
    plan->step_s = 0.07;
    plan->stage_s[0] = 0.06;
    return LS_OK;
}

static void on_drifted(void *user, const struct ls_drift *drift)
{
    struct told *told = user;
    told->drifted++;
    told->drift = *drift;
}

static bool on_advice(void *user, char *text, size_t bytes)
{
    struct told *told = user;
    bool first = told->drifted > 0 && !told->advised;
    told->advised |= first;
    snprintf(text, bytes, "take another machine");
    return first;
}

static int body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct told *told = user;
    const struct ls_run_hooks hooks = {.user = told,
                                       .plan = told->plans ? on_plan : NULL,
                                       .drifted = on_drifted,
                                       .advice = on_advice};
    here = ls_comm_rank(world);
    return ls_run(told->config, world, NULL, &hooks, error);
}

static struct ls_config config_of(const char *directory, const char *layout)
{
    return config_of_words(SLOW_RANKS_RUN "%s", directory, directory, layout);
}

/* A file of the run, to be freed. */
static char *file_of(const struct ls_config *config, const char *name)
{
    char path[1200];
    snprintf(path, sizeof path, "%s/%s", config->train.out, name);
    return scratch_read(path, NULL);
}

static char *metrics_of(const struct ls_config *config)
{
    return file_of(config, "metrics.jsonl");
}

static void run(const struct ls_config *config, struct told *told)
{
    struct ls_error error = {0};
    told->config = config;
    assert_ok(ls_world_run((int)ls_config_ranks(config), body, told, &error), error);
}

static void has(const char *text, const char *words)
{
    if (!strstr(text, words))
        fail_msg("%s is not in\n%s", words, text);
}

CASE_WITH(test_nothing_slowed_nothing_named, tokens_setup, scratch_teardown)
{
    struct ls_config config = config_of(*state, "parallel.dp=2 train.plan=none");
    struct told told = {.plans = true};
    slow(BASE_MS, 0, BASE_MS);
    run(&config, &told);
    char *metrics = metrics_of(&config);
    if (told.drifted)
        fail_msg("%s", told.drift.text);
    assert_null(strstr(metrics, "\"drift\""));
    has(metrics, "\"plan_step_s\": 0.07");
    free(metrics);
}

CASE_WITH(test_slow_rank, tokens_setup, scratch_teardown)
{
    struct ls_config config = config_of(*state, "parallel.dp=2");
    struct told told = {0};
    slow(BASE_MS, 1, 3 * BASE_MS);
    run(&config, &told);
    assert_int_equal(told.drifted, 1);
    assert_int_equal(told.drift.kind, LS_DRIFT_SLOW_RANK);
    assert_int_equal(told.drift.subject, 1);
    assert_true(told.advised && told.drift.above > 1 && told.drift.above < 4);
    char *metrics = metrics_of(&config), *prom = file_of(&config, "metrics.prom");
    has(metrics, "\"event\": \"drift\"");
    has(metrics, "\"kind\": \"slow_rank\", \"rank\": 1");
    has(metrics, "\"text\": \"rank 1 on host ");
    has(metrics, "\"text\": \"take another machine\"");
    assert_prom(prom);
    assert_true(prom_value(prom, "lockstep_drift{run=\"run\",kind=\"slow_rank\"}") > 1);
    assert_true(prom_value(prom, "lockstep_drift{run=\"run\",kind=\"input_wait\"}") == 0);
    free(metrics);
    free(prom);
}

CASE_WITH(test_unbalanced_stage, tokens_setup, scratch_teardown)
{
    struct ls_config config = config_of(*state, "parallel.pp=2");
    struct told told = {0};
    slow(BASE_MS, 1, 4 * BASE_MS);
    run(&config, &told);
    assert_int_equal(told.drifted, 1);
    assert_int_equal(told.drift.kind, LS_DRIFT_STAGE);
    assert_int_equal(told.drift.subject, 1);
    has(told.drift.text, "stage 1 (rank 1 on host ");
    static const char name[] = "\"stages_s\": \"";
    char *metrics = metrics_of(&config), *at = strstr(metrics, name), *end = "";
    double first = at ? strtod(at + strlen(name), &end) : 0;
    if (*end != ',' || !(first > 0) || fabs(strtod(end + 1, NULL) / first - 4) > 1)
        fail_msg("stages take %.30s", at ? at : "what nobody records");
    free(metrics);
}

CASE_WITH(test_input_wait, tokens_setup, scratch_teardown)
{
    struct ls_config config = config_of(*state, "parallel.dp=2");
    struct told told = {0};
    slow(BASE_MS, 0, BASE_MS);
    input_ms[1] = 30;
    run(&config, &told);
    input_ms[1] = 0;
    assert_int_equal(told.drifted, 1);
    assert_int_equal(told.drift.kind, LS_DRIFT_INPUT);
    assert_int_equal(told.drift.subject, 1);
}

/* It ends, and the error is the one of the rank that failed. */
CASE_WITH(test_a_rank_that_fails, tokens_setup, scratch_teardown)
{
    struct ls_config config = config_of(*state, "parallel.dp=2 log.drift_every=2");
    struct ls_error error = {0};
    struct told told = {.config = &config};
    slow(0, 1, FAIL);
    assert_int_equal(ls_world_run(2, body, &told, &error), LS_EIO);
    has(error.text, "rank 1 fails");
}

static void hash_read(void **state, const char *words, char hash[33])
{
    char layout[128];
    struct told told = {0};
    snprintf(layout, sizeof layout, "parallel.dp=2 train.resume=auto train.steps=4 %s", words);
    struct ls_config config = config_of(*state, layout);
    snprintf(config.train.out + strlen(config.train.out), 8, "%c", words[strlen(words) - 1]);
    run(&config, &told);
    char *metrics = metrics_of(&config), *found = strstr(metrics, "\"hash\": \"");
    assert_non_null(found);
    snprintf(hash, 33, "%s", found + 9);
    free(metrics);
}

CASE_WITH(test_watching_changes_no_bits, tokens_setup, scratch_teardown)
{
    char watched[33], alone[33];
    slow(0, 0, 0);
    hash_read(state, "log.drift_every=1", watched);
    hash_read(state, "log.drift_every=0", alone);
    assert_string_equal(watched, alone);
}

/* ---- the judgement --------------------------------------------------------------------------- */

static struct ls_layout layout_of(const char *words)
{
    struct ls_layout layout;
    struct ls_error error = {0};
    struct ls_config config = config_of_words(
        "model.layers=6 model.channels=32 model.heads=2 model.vocab=50 model.context=16 "
        "batch.global=8 batch.micro=1 %s",
        words);
    assert_ok(ls_config_layout(&config, 0, &layout, &error), error);
    return layout;
}

static void judge(const struct ls_layout *layout, const struct ls_drift_sample *samples,
                  const struct ls_run_plan *plan, struct ls_drift drifts[LS_DRIFT_KINDS])
{
    struct ls_error error = {0};
    double stage_s[4];
    assert_ok(ls_drift_judge(layout, samples, NULL, plan, stage_s, drifts, &error), error);
}

/* Samples of ranks that compute 0.8 s of a step of 1 s. */
static void samples_fill(struct ls_drift_sample *samples, int count)
{
    for (int i = 0; i < count; i++)
        samples[i] = (struct ls_drift_sample){1, 0.8F, 0.79F, 0.001F, {0}};
}

static void expect_only(const struct ls_drift *drifts, int kind)
{
    for (int k = 0; k < LS_DRIFT_KINDS; k++)
        if (drifts[k].found != (k == kind))
            fail_msg("%s: %s", ls_drift_name((enum ls_drift_kind)k), drifts[k].text);
}

CASE(test_thresholds_of_ranks)
{
    struct ls_layout layout = layout_of("parallel.dp=4");
    struct ls_drift_sample samples[4];
    struct ls_drift drifts[LS_DRIFT_KINDS];
    samples_fill(samples, 4);
    judge(&layout, samples, NULL, drifts);
    expect_only(drifts, -1);
    samples[2].own_s = 1;
    samples[2].own_low_s = 0.91F; /* 14 % above 0.8 */
    judge(&layout, samples, NULL, drifts);
    expect_only(drifts, -1);
    samples[2].own_low_s = 0.93F; /* 16 % */
    judge(&layout, samples, NULL, drifts);
    expect_only(drifts, LS_DRIFT_SLOW_RANK);
    assert_int_equal(drifts[LS_DRIFT_SLOW_RANK].subject, 2);
    samples[1].own_s = samples[1].own_low_s = 1.2F; /* the worst is named */
    judge(&layout, samples, NULL, drifts);
    assert_int_equal(drifts[LS_DRIFT_SLOW_RANK].subject, 1);
    samples_fill(samples, 4);
    samples[3].data_s = 0.051F;
    judge(&layout, samples, NULL, drifts);
    expect_only(drifts, LS_DRIFT_INPUT);
    assert_int_equal(drifts[LS_DRIFT_INPUT].subject, 3);
}

CASE(test_thresholds_of_a_plan)
{
    struct ls_layout layout = layout_of("parallel.dp=2 parallel.pp=2 parallel.zero=1");
    struct ls_drift_sample samples[4];
    struct ls_drift drifts[LS_DRIFT_KINDS];
    double stages[2] = {0.8, 0.8};
    struct ls_run_plan plan = {.step_s = 1, .stage_s = stages};
    samples_fill(samples, 4);
    samples[2].own_s = samples[3].own_s = 1.2F; /* mean 1.0: 20 % above */
    samples[2].own_low_s = samples[3].own_low_s = 1.19F;
    judge(&layout, samples, &plan, drifts);
    expect_only(drifts, LS_DRIFT_STAGE);
    assert_int_equal(drifts[LS_DRIFT_STAGE].subject, 1);
    has(drifts[LS_DRIFT_STAGE].text, "stage 1 (ranks 2 to 3)");
    stages[1] = 1.15; /* as the plan has it: nothing drifts */
    judge(&layout, samples, &plan, drifts);
    expect_only(drifts, -1);
    samples_fill(samples, 4);
    stages[1] = 0.8;
    for (int i = 0; i < 4; i++)
        samples[i].wait_s[LS_ACCOUNT_SHARD] = 0.11F;
    plan.exposed_s[LS_ACCOUNT_SHARD] = 0.05;
    judge(&layout, samples, &plan, drifts);
    expect_only(drifts, LS_DRIFT_LINK);
    assert_int_equal(drifts[LS_DRIFT_LINK].subject, LS_ACCOUNT_SHARD);
    judge(&layout, samples, NULL, drifts); /* nobody knows */
    expect_only(drifts, -1);
    samples[1].wait_s[LS_ACCOUNT_SHARD] = 0.01F; /* the one that the others wait for */
    judge(&layout, samples, &plan, drifts);
    expect_only(drifts, -1);
}

/* A launcher hears of a rank again that became slower or faster since; of input, nobody acts by how
 * slow it is. */
CASE(test_a_drift_that_moves)
{
    static const struct {
        float own_s; /* others take 0.8 s */
        enum drift_change rank, input;
    } windows[] = {
        {0.8F, DRIFT_STAYS, DRIFT_NEW},    {1.0F, DRIFT_NEW, DRIFT_STAYS}, /* 25 % above */
        {1.0F, DRIFT_STAYS, DRIFT_STAYS},  {1.03F, DRIFT_STAYS, DRIFT_STAYS},
        {1.06F, DRIFT_MOVED, DRIFT_STAYS}, /* since 1.0, not since the window before */
        {1.06F, DRIFT_STAYS, DRIFT_STAYS}, {2.4F, DRIFT_MOVED, DRIFT_STAYS},
        {1.0F, DRIFT_MOVED, DRIFT_STAYS},  {0.8F, DRIFT_NEW, DRIFT_STAYS},
    };
    struct ls_layout layout = layout_of("parallel.dp=4");
    struct ls_drift_sample samples[4];
    char hosts[4][LS_DRIFT_HOST_BYTES] = {""};
    double stage_s[1];
    struct drift_watch watch = {
        .layout = &layout, .all = samples, .hosts = hosts, .stage_s = stage_s};
    samples_fill(samples, 4);
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
        enum drift_change changed[LS_DRIFT_KINDS];
        struct ls_error error = {0};
        samples[2].own_s = windows[i].own_s;
        samples[2].own_low_s = windows[i].own_s - 0.01F;
        samples[3].data_s = 0.1F * windows[i].own_s;
        assert_ok(drift_watch_judge(&watch, changed, &error), error);
        if (changed[LS_DRIFT_SLOW_RANK] != windows[i].rank ||
            changed[LS_DRIFT_INPUT] != windows[i].input)
            fail_msg("window %d: %d and %d", (int)i, changed[LS_DRIFT_SLOW_RANK],
                     changed[LS_DRIFT_INPUT]);
    }
}

SUITE_MAIN(NULL, NULL)
