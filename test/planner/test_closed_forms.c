/* The textbook's formulas, with the figures that their sources print. test/parallel/test_schedule.c
 * has the bubbles beside those of the tables, simulated. */
#include "../support/suite.h"

#include <lockstep/ckpt/interval.h>
#include <lockstep/planner/closed_forms.h>

#include <math.h>

static void near_to(const char *what, double value, double expected, double within)
{
    if (!(fabs(value - expected) <= within * fabs(expected) + 1e-300))
        fail_msg("%s: %.12g, expected %.12g", what, value, expected);
}
static const double exact = 1e-12;

/* ---- pipelines ------------------------------------------------------------------------------- */

static const struct ls_pass_times equal = {1, 1, 1}, uneven = {1, 1.25, 0.75};

CASE(test_bubbles)
{
    static const struct {
        enum ls_schedule_kind kind;
        int64_t ranks, chunks, micro_batches;
        double share;
    } cases[] = {
        {LS_SCHEDULE_GPIPE, 4, 1, 16, 3.0 / 19},
        {LS_SCHEDULE_1F1B, 4, 1, 16, 3.0 / 19},
        {LS_SCHEDULE_1F1B, 32, 1, 8, 31.0 / 39},
        {LS_SCHEDULE_INTERLEAVED, 4, 2, 16, 3.0 / 35},
        {LS_SCHEDULE_INTERLEAVED, 8, 4, 8, 7.0 / 39},
        {LS_SCHEDULE_ZB_H1, 4, 1, 16, 3.0 / 51},
        {LS_SCHEDULE_1F1B, 1, 1, 3, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        near_to("share",
                ls_bubble_share(cases[i].kind, cases[i].ranks, cases[i].chunks,
                                cases[i].micro_batches, equal),
                cases[i].share, exact);
    near_to("zb-h1", ls_bubble_seconds(LS_SCHEDULE_ZB_H1, 4, 1, uneven), 3 * 1.5, exact);
    near_to("a step", ls_pipeline_seconds(LS_SCHEDULE_1F1B, 4, 1, 10, uneven), 39, exact);
    assert_true(isnan(ls_bubble_seconds(LS_SCHEDULE_ZBV, 4, 2, equal)));
}

/* ---- collectives, memory --------------------------------------------------------------------- */

CASE(test_collectives)
{
    near_to("ring", ls_ring_seconds(4, 8e9, 1e-3, 1e9, false), 3 * (1e-3 + 2), exact);
    near_to("both ways", ls_ring_seconds(4, 8e9, 1e-3, 1e9, true), 6 * (1e-3 + 2), exact);
    near_to("tree", ls_tree_seconds(5, 8e9, 1e-3, 1e9, false), 3e-3 + 8, exact);
    near_to("two trees", ls_tree_seconds(5, 10e9, 1e-3, 1e9, true), 6e-3 + 16, exact);
    near_to("one", ls_ring_seconds(1, 8e9, 1, 1, true) + ls_tree_seconds(1, 8e9, 1, 1, true), 0,
            exact);
    /* Gradients of 70B in bf16 over 256 ranks at 100 Gbit/s: 22.3 s. */
    near_to("70B", ls_ring_seconds(256, 140e9, 0, 12.5e9, true), 22.3, 0.001);
}

CASE(test_zero)
{
    /* ZeRO figure 1: 7.5B parameters on 64 ranks take 120, 31.4, 16.6 and 1.88 GB. */
    static const double gb[] = {120, 31.4, 16.6, 1.88};
    for (int stage = 0; stage <= 3; stage++) {
        near_to("figure 1", 7.5 * ls_zero_state_bytes(stage, 64), gb[stage], 0.005);
        near_to("one rank", ls_zero_state_bytes(stage, 1), 16, exact);
    }
    near_to("sent", ls_zero_sent_elements(2, 4), 1.5, exact);
    near_to("sent with 3", ls_zero_sent_elements(3, 4), 2.25, exact);
}

/* ---- failures, scaling ---------------------------------------------------------------------- */

CASE(test_checkpoints)
{
    /* Daly's figures 3 to 5: with C 5 min, M of 24 h, 6 h and 15 min give 117, 57 and 9.1 min. */
    static const struct {
        double between, interval;
    } figures[] = {{24 * 60, 117}, {6 * 60, 57}, {15, 9.1}};
    for (size_t i = 0; i < 3; i++) {
        double m = figures[i].between, best = ls_daly_interval(5, m),
               most = ls_goodput(best, 5, 10, m);
        near_to("Daly", best, figures[i].interval, 0.01);
        assert_true(best < sqrt(2 * 5 * m)); /* Young's */
        /* It is nearly the best there is. */
        for (double t = best / 3; t < best * 3; t *= 1.05)
            assert_true(ls_goodput(t, 5, 10, m) < most * 1.001);
        assert_true(ls_goodput(best / 2, 5, 10, m) < most && ls_goodput(best * 2, 5, 10, m) < most);
    }
    near_to("a slow checkpoint", ls_daly_interval(100, 40), 40, exact);
    assert_true(isinf(ls_daly_interval(5, INFINITY)));
    near_to("nothing fails", ls_goodput(95, 5, 10, INFINITY), 0.95, exact);
    near_to("at all", ls_goodput(INFINITY, 5, 10, INFINITY), 1, exact);
    near_to("seldom", ls_goodput(95, 5, 10, 1e9), 0.95, 1e-6);
}

CASE(test_amdahl)
{
    near_to("all", ls_amdahl_speedup(1, 64), 64, exact);
    near_to("nothing", ls_amdahl_speedup(0, 64), 1, exact);
    near_to("95 % on 64", ls_amdahl_speedup(0.95, 64), 15.42, 0.001);
}

SUITE_MAIN(NULL, NULL)
