/* Moments in bf16: the stochastic rounding alone (bounds, exact values, no bias), its random bits
 * in every instruction set and at every offset, and the updates beside those of float32 moments
 * that are rounded by the plain functions of lockstep/base.h. */
#include "../support/suite.h"
#include "gradient.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Random floats of any size, subnormal ones and NaN included. */
static uint32_t any_bits(uint32_t i)
{
    uint32_t word[4];
    ls_philox((struct ls_philox_key){{7, 8}}, (uint32_t[4]){i / 4, 0, 0, 0}, word);
    return word[i % 4];
}

typedef ls_bf16 rounding_t(float x, uint32_t random);

/* The broken twins. */
static ls_bf16 cut_off(float x, uint32_t random)
{
    return (ls_bf16)(bits_of(x) >> 16);
}

static ls_bf16 to_nearest(float x, uint32_t random)
{
    return ls_f32_to_bf16(x);
}

/* ---- the rounding ---------------------------------------------------------------------------- */

CASE(test_exact_values_stay)
{
    static const uint32_t random[] = {0, 1, 0x7fff, 0x8000, 0xffff, 0xffffffff};
    for (uint32_t half = 0; half < 0x10000; half++)
        for (size_t r = 0; r < sizeof random / sizeof *random; r++) {
            float x = ls_bf16_to_f32((ls_bf16)half);
            uint32_t want = isnan(x) ? half | 0x40 : half; /* quiet */
            ls_bf16 got = ls_f32_to_bf16_stochastic(x, random[r]);
            if (got != want)
                fail_msg("bf16 %04x became %04x by the random bits %x", half, got, random[r]);
        }
}

/* What is not finite stays so, with its sign; no finite value becomes infinite. */
CASE(test_the_ends_of_the_range)
{
    for (uint32_t random = 0; random < 0x10000; random++)
        for (uint32_t minus = 0; minus < 2; minus++) {
            uint32_t sign = minus << 31, top = sign >> 16;
            assert_int_equal(ls_f32_to_bf16_stochastic(float_of(sign | 0x7f800000u), random),
                             top | 0x7f80);
            /* The largest float lies beyond the largest bf16. */
            assert_int_equal(ls_f32_to_bf16_stochastic(float_of(sign | 0x7f7fffffu), random),
                             top | 0x7f7f);
            ls_bf16 nan = ls_f32_to_bf16_stochastic(float_of(sign | 0x7fffffffu), random);
            assert_true(isnan(ls_bf16_to_f32(nan)) && (nan & 0x8000) == top);
            nan = ls_f32_to_bf16_stochastic(float_of(sign | 0x7f800001u), random);
            assert_true(isnan(ls_bf16_to_f32(nan)) && (nan & 0x8000) == top);
        }
}

/* Either neighbour, and no other. */
CASE(test_bounds)
{
    for (uint32_t i = 0; i < 1000000; i++) {
        uint32_t bits = any_bits(2 * i), random = any_bits(2 * i + 1);
        float x = float_of(bits);
        if (!isfinite(x))
            continue;
        uint32_t down = bits >> 16,
                 up = ls_min((bits >> 16 & 0x7fff) + 1, 0x7f7f) | (down & 0x8000);
        ls_bf16 got = ls_f32_to_bf16_stochastic(x, random);
        if (got != down && !(bits & 0xffff && got == up))
            fail_msg("%a became %a, between %a and %a", (double)x, (double)ls_bf16_to_f32(got),
                     (double)ls_bf16_to_f32((ls_bf16)down), (double)ls_bf16_to_f32((ls_bf16)up));
    }
}

/* Of all 65536 random halves exactly as many go up as there are 65536ths above the lower
 * neighbour: so the mean is the value itself. */
static bool is_unbiased(rounding_t *rounding)
{
    for (uint32_t i = 0; i < 64; i++) {
        uint32_t bits = i == 0 ? 0x3f800001u : i == 1 ? 0x0000ffffu : any_bits(i), ups = 0;
        if ((bits & 0x7fffffffu) >= 0x7f7f0000u)
            continue;
        for (uint32_t random = 0; random < 0x10000; random++)
            ups += rounding(float_of(bits), random) != bits >> 16;
        if (ups != (bits & 0xffff))
            return false;
    }
    return true;
}

/* The mean over draws of the tree's own random bits: n draws of up with probability p have the
 * standard deviation sqrt(p (1 - p) / n); five of them are met in all but one of 1.7 million. */
static bool mean_is_near(rounding_t *rounding, int64_t steps, int64_t elements)
{
    struct ls_philox_key key = ls_philox_key_of(1, "round:exp_avg.test");
    static const uint32_t shares[] = {1, 0x1000, 0x8000, 0xc000, 0xffff};
    for (size_t s = 0; s < sizeof shares / sizeof *shares; s++) {
        uint32_t bits = 0x3f800000u | shares[s];
        double p = shares[s] * 0x1p-16, n = (double)(steps * elements), ups = 0;
        for (int64_t step = 1; step <= steps; step++)
            for (int64_t i = 0; i < elements; i++)
                ups += rounding(float_of(bits), ls_random_half(key, step, i)) == 0x3f81;
        if (!(fabs(ups / n - p) <= 5 * sqrt(p * (1 - p) / n)))
            return false;
    }
    return true;
}

CASE(test_no_bias)
{
    assert_true(is_unbiased(ls_f32_to_bf16_stochastic));
    assert_false(is_unbiased(cut_off));
    assert_false(is_unbiased(to_nearest));
    assert_true(mean_is_near(ls_f32_to_bf16_stochastic, 1, 200000));
    assert_true(mean_is_near(ls_f32_to_bf16_stochastic, 200000, 1));
    assert_true(mean_is_near(ls_f32_to_bf16_stochastic, 500, 400));
    assert_false(mean_is_near(cut_off, 500, 400));
    assert_false(mean_is_near(to_nearest, 500, 400));
}

/* Every half of a call is used, and none twice: the halves of 8 elements are the 4 words. */
CASE(test_a_call_has_the_bits_of_eight_elements)
{
    struct ls_philox_key key = {{3, 9}};
    const int64_t step = (5LL << 32) + 6, group = (2LL << 32) + 1;
    uint32_t word[4];
    ls_philox(key, (uint32_t[4]){1, 2, 6, 5}, word);
    for (int64_t i = 0; i < 8; i++)
        assert_int_equal(ls_random_half(key, step, 8 * group + i),
                         i % 2 ? word[i / 2] >> 16 : word[i / 2] & 0xffff);
}

/* ---- kernels --------------------------------------------------------------------------------- */

enum { MOST = 1500 };

/* A range that begins somewhere in its tensor, whole rows of it or some columns. */
struct range {
    int64_t count, first, cols, corner, whole_cols;
};
static const struct range ranges[] = {
    {MOST, 0, 1, 0, 1},
    {MOST, 8, 100, 0, 100},
    {MOST, 3, 7, 35, 7},
    {511, 5, 64, 640, 64},
    {513, 7, 64, 640, 64},
    {MOST, 0, 12, 24, 48},
    {MOST, 31, 12, 24, 50},
    {MOST, 6, 1, 3, 9},
    {1, 4, 3, 11, 20},
    {MOST, 700, 600, 13, 1301},
    {MOST, 2, 999, (1LL << 35) - 400, 999},
};
enum { RANGES = sizeof ranges / sizeof *ranges };

static struct ls_update update_of(const struct range *range, int64_t step, float *master)
{
    return (struct ls_update){
        .count = range->count,
        .master = master,
        .gradient_scale = 1,
        .moment_type = LS_BF16,
        .rounding = {.key = {{{1, 2}}, {{3, 4}}},
                     .step = step,
                     .places = {range->first, range->cols, range->corner, range->whole_cols}}};
}

/* At step 1 SGD's buffer is the gradient, rounded: the index of the first element that is not as
 * the plain functions make it, or -1. shift: what is done wrong to the places. */
static int64_t first_other(struct ls_ops *ops, const struct range *range, const float *gradient,
                           int64_t shift)
{
    static float master[MOST];
    static ls_bf16 buffer[MOST + 1];
    struct ls_update update = update_of(range, 1, master);
    struct ls_sgd sgd = {.momentum = 0.9f, .step = 1};
    memset(master, 0, sizeof master);
    memset(buffer, 0x5a, sizeof buffer);
    update.gradient = gradient;
    update.rounding.places.corner += shift;
    ls_sgd_update(ops, &update, &sgd, buffer);
    assert_int_equal(buffer[range->count], 0x5a5a);
    for (int64_t i = 0; i < range->count; i++) {
        int64_t row = (range->first + i) / range->cols, col = (range->first + i) % range->cols;
        int64_t index = range->corner + row * range->whole_cols + col;
        uint32_t random = ls_random_half(update.rounding.key[0], 1, index);
        if (buffer[i] != ls_f32_to_bf16_stochastic(gradient[i], random))
            return i;
    }
    return -1;
}

/* Every set, with ranges that begin at any of the 8 places of a call's bits, special values
 * among the elements; and bits that are another element's are seen. */
CASE(test_every_set_rounds_as_the_plain_functions)
{
    static float gradient[MOST];
    for (uint32_t i = 0; i < MOST; i++)
        gradient[i] = float_of(i % 3 ? any_bits(i) : bits_of(1.0f) | any_bits(i) >> 9);
    gradient[40] = INFINITY, gradient[41] = -INFINITY, gradient[42] = NAN, gradient[43] = 0.0f;
    gradient[44] = float_of(0x7f7fffff), gradient[45] = float_of(0xff7fffff);
    for (int isa = 0; isa <= (int)ls_isa_best(); isa++) {
        struct ls_ops ops;
        struct ls_error error = {0};
        assert_int_equal(ls_ops_init(&ops, 1, (enum ls_isa)isa, &error), LS_OK);
        for (int r = 0; r < RANGES; r++)
            for (int64_t offset = 0; offset < 9; offset++) {
                struct range range = ranges[r];
                range.corner += offset;
                int64_t i = first_other(&ops, &range, gradient, 0);
                if (i >= 0)
                    fail_msg("%s, range %d, offset %ld: element %ld, %a", ls_isa_name(isa), r,
                             (long)offset, (long)i, (double)gradient[i]);
                if (range.count > 1)
                    assert_true(first_other(&ops, &range, gradient, 1) >= 0);
                if (range.count > 1)
                    assert_true(first_other(&ops, &range, gradient, 8) >= 0);
            }
        ls_ops_release(&ops);
    }
}

/* ---- updates --------------------------------------------------------------------------------- */

enum { ADAMW, SGD, NESTEROV, LION, UPDATES, STEPS = 5 };

static void update_run(struct ls_ops *ops, int which, const struct ls_update *update, int64_t step,
                       void *m, void *v)
{
    struct ls_adamw adamw = {0.9f, 0.95f, 1e-8f, step};
    struct ls_sgd sgd = {0.9f, which == NESTEROV, step};
    struct ls_lion lion = {0.9f, 0.99f};
    if (which == ADAMW)
        ls_adamw_update(ops, update, &adamw, m, v);
    else if (which == LION)
        ls_lion_update(ops, update, &lion, m);
    else
        ls_sgd_update(ops, update, &sgd, m);
}

/* The update as the header tells it: moments widened, today's formula on float32, the parameter by
 * moments that are not rounded, and then each moment rounded by itself. */
static void plain_run(struct ls_ops *ops, int which, const struct ls_update *update, int64_t step,
                      ls_bf16 *const moments[2])
{
    float wide[2][MOST];
    struct ls_update plain = *update;
    plain.moment_type = LS_F32;
    for (int m = 0; m < 2; m++)
        for (int64_t i = 0; i < update->count; i++)
            wide[m][i] = ls_bf16_to_f32(moments[m][i]);
    update_run(ops, which, &plain, step, wide[0], wide[1]);
    for (int m = 0; m < (which == ADAMW ? 2 : 1); m++)
        for (int64_t i = 0; i < update->count; i++) {
            int64_t index = ls_place(&update->rounding.places, i);
            uint32_t random = ls_random_half(update->rounding.key[m], step, index);
            moments[m][i] = ls_f32_to_bf16_stochastic(wide[m][i], random);
        }
}

CASE(test_updates_are_those_of_float32_moments)
{
    const struct range range = {MOST, 5, 12, 24, 50};
    float *start = values_normal(1, LS_F32, MOST, 1);
    for (int which = 0; which < UPDATES; which++) {
        static float master[2][MOST];
        static ls_bf16 compute[2][MOST], moments[2][2][MOST];
        memset(moments, 0, sizeof moments);
        memcpy(master[0], start, sizeof master[0]);
        memcpy(master[1], start, sizeof master[1]);
        for (int64_t step = 1; step <= STEPS; step++) {
            float *gradient = values_normal(10 + (uint64_t)step, LS_F32, MOST, 2);
            for (int plain = 0; plain < 2; plain++) {
                struct ls_update update = update_of(&range, step, master[plain]);
                update.gradient = gradient;
                update.gradient_scale = 0.3f;
                update.lr = 0.01f;
                update.weight_decay = 0.1f;
                update.compute = compute[plain];
                update.compute_type = LS_BF16;
                if (plain)
                    plain_run(&ops_best, which, &update, step,
                              (ls_bf16 *[]){moments[1][0], moments[1][1]});
                else
                    update_run(&ops_best, which, &update, step, moments[0][0], moments[0][1]);
            }
            free(gradient);
            assert_memory_equal(master[0], master[1], sizeof master[0]);
            assert_memory_equal(compute[0], compute[1], sizeof compute[0]);
            assert_memory_equal(moments[0], moments[1], sizeof moments[0]);
        }
    }
    free(start);
}

/* ---- bits ------------------------------------------------------------------------------------ */

enum { MANY = 40017, CUT = 12345 };

static void run_bits(struct ls_ops *ops, int pieces, void *context, void *out)
{
    const float *values = context;
    float *master = out;
    ls_bf16 *m = (ls_bf16 *)(master + MANY), *v = m + MANY;
    memcpy(master, values, MANY * sizeof *master);
    memset(m, 0, 2 * MANY * sizeof *m);
    for (int64_t step = 1; step <= 2; step++)
        for (int piece = 0; piece < pieces; piece++) {
            int64_t at = piece * CUT, end = piece == pieces - 1 ? MANY : CUT;
            const struct range range = {end - at, at + 3, 20, 60, 61};
            struct ls_update update = update_of(&range, step, master + at);
            update.gradient = values + at;
            update.lr = 0.01f;
            update_run(ops, ADAMW, &update, step, m + at, v + at);
        }
}

CASE(test_bits)
{
    float *values = values_normal(3, LS_F32, MANY, 1);
    struct bits_case bits = {"bf16 moments", MANY * 8, false, run_bits, values};
    assert_bits_same(&bits);
    free(values);
}

SUITE_MAIN(ops_best_setup, ops_best_teardown)
