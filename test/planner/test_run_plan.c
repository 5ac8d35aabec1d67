/* Advice for a run under way: where a link is slow, the plan's moves over it are, whether they
 * follow from the link's figures or were measured. */
#include "../support/config_words.h"
#include "../support/suite.h"

#include <lockstep/planner.h>
#include <lockstep/planner/rebalance.h>

#include <stdio.h>
#include <string.h>

static const char machine[] = "name: two\n"
                              "hosts: 1\n"
                              "accelerators: 2\n"
                              "accelerator: {name: A, peak: {bf16: 100 GFLOP/s}, memory: 8 GB,\n"
                              "  bandwidth: 50 GB/s}\n"
                              "links:\n"
                              "  - {name: near, joins: 2, latency: 1 us, bandwidth: 10 GB/s}\n";
static const char measured[] = "measured:\n"
                               "  moves:\n"
                               "    - [all_reduce, 2, 10000, 2e-6]\n"
                               "    - [all_gather, 2, 10000, 1e-6]\n"
                               "    - [reduce_scatter, 2, 10000, 1e-6]\n"
                               "    - [send, 2, 10000, 1e-6]\n"
                               "    - [broadcast, 2, 10000, 1e-6]\n"
                               "    - [other, 2, 8, 1e-6]\n";

static struct ls_cluster cluster_of(const char *more)
{
    char text[2048];
    struct ls_cluster cluster;
    struct ls_error error = {0};
    snprintf(text, sizeof text, "%s%s", machine, more);
    assert_ok(ls_cluster_read_text("test", text, strlen(text), &cluster, &error), error);
    return cluster;
}

static struct ls_config config_of(void)
{
    return config_of_words("model.vocab=257 model.layers=4 model.channels=128 model.heads=4 "
                           "model.context=128 batch.global=4 batch.micro=1 parallel.tp=2 "
                           "parallel.threads=1");
}

static double step_s(const struct ls_config *config, const struct ls_cluster *cluster)
{
    static struct ls_layout layout;
    struct ls_forecast forecast;
    struct ls_error error = {0};
    const struct ls_forecast_ask ask = {.config = config, .layout = &layout, .cluster = cluster};
    if (ls_config_layout(config, 0, &layout, &error) || ls_forecast_make(&ask, &forecast, &error))
        fail_msg("%s", error.text);
    return forecast.step_s;
}

/* Seconds of the run's own layout in the advice. */
static double here_s(const struct ls_config *config, const struct ls_cluster *cluster,
                     const struct ls_drift *drift)
{
    struct ls_run_advice advice;
    struct ls_error error = {0};
    double here;
    assert_ok(ls_run_plan_advise(config, 1, cluster, drift, 5, &advice, &error), error);
    if (sscanf(advice.text, "by the plan a step takes %lf s in this layout", &here) != 1)
        fail_msg("%s", advice.text);
    if (strstr(advice.text, "parallel.tp=2"))
        fail_msg("the slow axis is advised: %s", advice.text);
    return here;
}

CASE(test_a_slow_link_slows_its_moves)
{
    const char *const rows[] = {"", measured};
    struct ls_drift drift = {.found = true,
                             .kind = LS_DRIFT_LINK,
                             .subject = LS_ACCOUNT_TP,
                             .took_s = 1,
                             .expected_s = 0.005};
    for (int i = 0; i < 2; i++) {
        struct ls_config config = config_of();
        struct ls_cluster cluster = cluster_of(rows[i]);
        double planned = step_s(&config, &cluster), slow = here_s(&config, &cluster, &drift);
        if (slow < 1.5 * planned)
            fail_msg("%s: %g s where tp takes 200 times as long, %g s before",
                     i ? "measured moves" : "a link's figures", slow, planned);
        assert_true(step_s(&config, &cluster) == planned); /* the cluster is as it was */
        ls_cluster_release(&cluster);
    }
}

SUITE_MAIN(NULL, NULL)

/* ---- a slow stage ---------------------------------------------------------------------------- */

static struct ls_rebalance rebalance(const char *layout, const double *stage_s)
{
    struct ls_rebalance found;
    struct ls_error error = {0};
    struct ls_config config =
        config_of_words("model.vocab=257 model.layers=8 model.channels=128 model.heads=4 "
                        "model.context=128 batch.global=8 batch.micro=1 %s",
                        layout);
    assert_ok(ls_rebalance_find(&config, stage_s, 4, &found, &error), error);
    return found;
}

/* By the times of stages, whatever the schedule; nothing changes if stages take what their layers
 * cost, or memory has no room for another split. */
CASE(test_a_slow_stage_gets_fewer_layers)
{
    static const char *const layouts[] = {
        "parallel.pp=2", "parallel.pp=2 parallel.schedule=zb-h1",
        "parallel.pp=2 parallel.schedule=interleaved parallel.chunks=2"};
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        struct ls_rebalance found = rebalance(layouts[i], (double[]){3, 1});
        if (found.stage != 0 || !(found.above > 1 && found.above < 4) || !found.split[0] ||
            !(found.share > 0.4 && found.share < 0.9))
            fail_msg("%s: stage %ld is %g above others; %g with \"%s\"", layouts[i],
                     (long)found.stage, found.above, found.share, found.split);
    }
    struct ls_rebalance found = rebalance("parallel.pp=2", (double[]){3, 1});
    assert_string_equal(found.split, "0-2,3-9");
    found = rebalance("parallel.pp=2 parallel.split=0-2,3-9", (double[]){1, 1});
    assert_int_equal(found.stage, 0);
    assert_string_equal(found.split, ""); /* it is the best already */
    found = rebalance("parallel.pp=2", (double[]){1, 1});
    assert_string_equal(found.split, "");
    assert_true(found.share == 1);
    found = rebalance("parallel.pp=2 memory.device_budget=1KiB memory.overcommit=true",
                      (double[]){3, 1});
    assert_string_equal(found.split, "");
}
