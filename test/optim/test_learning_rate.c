/* Learning rates against their formulas in double with the C library's cosine and root. What they
 * return is float32, so they may differ by its rounding. */
#include "../support/suite.h"

#include <lockstep/optim.h>

#include <math.h>
#include <stdio.h>

static const char *const schedule_names[] = {"constant", "linear", "cosine", "inverse_sqrt", "wsd"};

/* The same numbers once more, as the papers write them. */
static double expected_rate(const struct ls_optim_config *c, int64_t step)
{
    double peak = c->lr, least = peak * (double)c->min_ratio, t = (double)step;
    double warmup = (double)c->warmup_steps, end = (double)c->decay_steps;
    double cooldown = (double)c->cooldown_steps;
    if (t < warmup)
        return peak * t / warmup;
    switch (c->schedule) {
    case LS_LR_CONSTANT:
        return peak;
    case LS_LR_LINEAR:
        return t >= end ? least : peak - (peak - least) * (t - warmup) / (end - warmup);
    case LS_LR_COSINE:
        return t >= end ? least
                        : least + (peak - least) *
                                      (1 + cos(acos(-1.0) * (t - warmup) / (end - warmup))) / 2;
    case LS_LR_INVERSE_SQRT:
        return peak * fmin(1, sqrt(fmax(warmup, 1) / t));
    case LS_LR_WSD:
        return t >= end              ? least
               : t <= end - cooldown ? peak
                                     : peak - (peak - least) * (t - (end - cooldown)) / cooldown;
    }
    return NAN;
}

static void check_rate(const struct ls_optim_config *c, int64_t step)
{
    double got = ls_learning_rate(c, step), want = expected_rate(c, step);
    if (!(fabs(got - want) <= 0x1p-23 * want))
        fail_msg("%s, warm-up %ld, decay %ld, cooldown %ld, step %ld: %.9g, expected %.9g",
                 schedule_names[c->schedule], (long)c->warmup_steps, (long)c->decay_steps,
                 (long)c->cooldown_steps, (long)step, got, want);
}

CASE(test_formulas)
{
    static const int64_t lengths[][3] = {
        /* warm-up, decay, cooldown */
        {0, 100, 0},  {0, 100, 100}, {1, 100, 20}, {10, 100, 90},  {10, 11, 1},
        {40, 97, 13}, {100, 100, 0}, {0, 1, 1},    {7, 1000, 333}, {2000, 3000, 5}};
    for (int s = LS_LR_CONSTANT; s <= LS_LR_WSD; s++)
        for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
            for (int ratio = 0; ratio < 3; ratio++) {
                struct ls_optim_config c = {.lr = 6e-4f,
                                            .schedule = (enum ls_lr_schedule)s,
                                            .warmup_steps = lengths[i][0],
                                            .decay_steps = lengths[i][1],
                                            .cooldown_steps = lengths[i][2],
                                            .min_ratio = (float)ratio * 0.1f};
                for (int64_t step = 1; step <= 1500; step++)
                    check_rate(&c, step);
                check_rate(&c, INT64_C(1) << 40);
            }
}

/* Where the pieces of a schedule meet, its value is exact. */
CASE(test_corners)
{
    for (int s = LS_LR_CONSTANT; s <= LS_LR_WSD; s++) {
        struct ls_optim_config c = {.lr = 0.25f,
                                    .schedule = (enum ls_lr_schedule)s,
                                    .warmup_steps = 8,
                                    .decay_steps = 64,
                                    .cooldown_steps = 16,
                                    .min_ratio = 0.125f};
        bool decays = s == LS_LR_LINEAR || s == LS_LR_COSINE || s == LS_LR_WSD;
        assert_float_equal(ls_learning_rate(&c, 1), 0.25f / 8, 0);
        assert_float_equal(ls_learning_rate(&c, 4), 0.125f, 0);
        assert_float_equal(ls_learning_rate(&c, 8), 0.25f, 0);
        if (decays) {
            assert_float_equal(ls_learning_rate(&c, 64), 0.03125f, 0);
            assert_float_equal(ls_learning_rate(&c, 1000), 0.03125f, 0);
        }
        c.warmup_steps = 0;
        if (s != LS_LR_INVERSE_SQRT)
            assert_true(ls_learning_rate(&c, 1) > 0.24f);
        /* Never above the peak, never rising after the warm-up. */
        float before = 0.25f;
        for (int64_t step = 1; step <= 100; step++) {
            float rate = ls_learning_rate(&c, step);
            if (!(rate <= before && rate >= 0))
                fail_msg("%s: %.9g at step %ld after %.9g", schedule_names[s], (double)rate,
                         (long)step, (double)before);
            before = rate;
        }
    }
}

/* inverse_sqrt has no minimum: the configuration gives it no min_ratio. */
CASE(test_inverse_sqrt_goes_on_falling)
{
    struct ls_optim_config c = {
        .lr = 1, .schedule = LS_LR_INVERSE_SQRT, .warmup_steps = 4, .min_ratio = 0.1f};
    assert_float_equal(ls_learning_rate(&c, 4 * 10000), 0.01f, 1e-9);
}

SUITE_MAIN(NULL, NULL)
