/* Optimizer updates against independent references in double over several steps, squared norms,
 * bits. */
#include "../support/suite.h"
#include "gradient.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 1003, STEPS = 6 };

/* Parameters, their state, and the same in double. Each step has a fresh gradient. */
struct trial {
    float *master, *first, *second_state;
    ls_half *compute;
    enum ls_dtype half; /* of compute, since the last step */
    double *p, *s1, *s2;
    float *gradient, *second;
};

static struct trial trial_new(void)
{
    struct trial trial = {.master = values_normal(1, LS_F32, COUNT, 1),
                          .first = values_new(COUNT * 4),
                          .second_state = values_new(COUNT * 4),
                          .compute = values_new(COUNT * 2),
                          .s1 = values_new(COUNT * 8),
                          .s2 = values_new(COUNT * 8)};
    trial.p = values_in_double(LS_F32, trial.master, COUNT);
    memset(trial.first, 0, COUNT * 4);
    memset(trial.second_state, 0, COUNT * 4);
    memset(trial.s1, 0, COUNT * 8);
    memset(trial.s2, 0, COUNT * 8);
    return trial;
}

static struct ls_update trial_step(struct trial *trial, int step, bool with_second)
{
    free(trial->gradient), free(trial->second);
    trial->half = step & 1 ? LS_BF16 : LS_F16;
    trial->gradient = values_normal(10 + (uint64_t)step, LS_F32, COUNT, 2);
    trial->second = values_normal(50 + (uint64_t)step, LS_F32, COUNT, 2);
    return (struct ls_update){.count = COUNT,
                              .master = trial->master,
                              .compute = trial->compute,
                              .compute_type = trial->half,
                              .gradient = trial->gradient,
                              .second = with_second ? trial->second : NULL,
                              .gradient_scale = 0.125f,
                              .lr = 0.01f / (float)step,
                              .weight_decay = 0.1f};
}

static double gradient_of(const struct ls_update *update, int i)
{
    return ((double)update->gradient[i] + (update->second ? (double)update->second[i] : 0)) *
           (double)update->gradient_scale;
}

static void trial_check(const char *what, struct trial *trial)
{
    double start[COUNT];
    float moved[COUNT], *initial = values_normal(1, LS_F32, COUNT, 1);
    assert_near(what, LS_F32, trial->master, trial->p, COUNT, 1e-6);
    for (int i = 0; i < COUNT; i++) {
        start[i] = trial->p[i] - (double)initial[i];
        moved[i] = trial->master[i] - initial[i];
        assert_int_equal(trial->compute[i], ls_f32_to_half(trial->half, trial->master[i]));
    }
    assert_near(what, LS_F32, moved, start, COUNT, 1e-4);
    free(initial);
}

static void trial_free(struct trial *trial)
{
    free(trial->master), free(trial->first), free(trial->second_state), free(trial->compute);
    free(trial->p), free(trial->s1), free(trial->s2), free(trial->gradient), free(trial->second);
}

CASE(test_adamw)
{
    for (int with_second = 0; with_second < 2; with_second++) {
        struct trial trial = trial_new();
        for (int step = 1; step <= STEPS; step++) {
            struct ls_update update = trial_step(&trial, step, with_second);
            struct ls_adamw adamw = {0.9f, 0.95f, 1e-8f, step};
            ls_adamw_update(&ops_best, &update, &adamw, trial.first, trial.second_state);
            double lr = update.lr;
            for (int i = 0; i < COUNT; i++) {
                double g = gradient_of(&update, i);
                trial.p[i] -= lr * (double)update.weight_decay * trial.p[i];
                trial.s1[i] = 0.9 * trial.s1[i] + 0.1 * g;
                trial.s2[i] = 0.95 * trial.s2[i] + 0.05 * g * g;
                double m_hat = trial.s1[i] / (1 - pow(0.9, step));
                double v_hat = trial.s2[i] / (1 - pow(0.95, step));
                trial.p[i] -= lr * m_hat / (sqrt(v_hat) + 1e-8);
            }
        }
        assert_near("adamw m", LS_F32, trial.first, trial.s1, COUNT, 1e-5);
        assert_near("adamw v", LS_F32, trial.second_state, trial.s2, COUNT, 1e-5);
        trial_check("adamw", &trial);
        trial_free(&trial);
    }
}

static void check_sgd(float momentum, bool nesterov)
{
    struct trial trial = trial_new();
    memset(trial.first, 0xff, COUNT * 4); /* NaN: what was there before step 1 must not matter */
    for (int step = 1; step <= STEPS; step++) {
        struct ls_update update = trial_step(&trial, step, step & 1);
        struct ls_sgd sgd = {momentum, nesterov, step};
        ls_sgd_update(&ops_best, &update, &sgd, momentum != 0 ? trial.first : NULL);
        for (int i = 0; i < COUNT; i++) {
            double g = gradient_of(&update, i) + (double)update.weight_decay * trial.p[i];
            trial.s1[i] = step == 1 ? g : (double)momentum * trial.s1[i] + g;
            double d = nesterov ? g + (double)momentum * trial.s1[i] : trial.s1[i];
            trial.p[i] -= (double)update.lr * d;
        }
    }
    trial_check("sgd", &trial);
    trial_free(&trial);
}

CASE(test_sgd)
{
    check_sgd(0, false);
    check_sgd(0.9f, false);
    check_sgd(0.9f, true);
}

CASE(test_lion)
{
    struct trial trial = trial_new();
    for (int step = 1; step <= STEPS; step++) {
        struct ls_update update = trial_step(&trial, step, true);
        struct ls_lion lion = {0.9f, 0.99f};
        ls_lion_update(&ops_best, &update, &lion, trial.first);
        for (int i = 0; i < COUNT; i++) {
            double g = gradient_of(&update, i), c = 0.9 * trial.s1[i] + 0.1 * g;
            double sign = (c > 0) - (c < 0);
            trial.p[i] -= (double)update.lr * (sign + (double)update.weight_decay * trial.p[i]);
            trial.s1[i] = 0.99 * trial.s1[i] + 0.01 * g;
        }
    }
    trial_check("lion", &trial);
    trial_free(&trial);
}

/* The exact sum of squares: the square of a float has 48 bits and is exact in double. */
static struct ls_exact_sum squares_one_by_one(const float *x, const float *z, int64_t count)
{
    struct ls_exact_sum sum;
    ls_exact_clear(&sum);
    for (int64_t i = 0; i < count; i++) {
        float g = z ? x[i] + z[i] : x[i];
        ls_exact_add(&sum, (double)g * (double)g);
    }
    return sum;
}

enum { LONG = 50007 };

/* Values whose magnitudes span `binades`, from the float32 range's bottom (0), its middle or its
 * top; among them zeros, and both ends of the range. */
static float *values_spread(int binades, int from)
{
    float *x = values_new(LONG * sizeof *x);
    for (int i = 0; i < LONG; i++) {
        uint32_t out[4];
        ls_philox((struct ls_philox_key){{5, 6}}, (uint32_t[4]){(uint32_t)i, 0, 0, 0}, out);
        int exponent = from + (int)(out[1] % (uint32_t)binades);
        x[i] = ldexpf(1.0f + ls_uniform_of(out[0]), exponent);
        x[i] = out[2] % 16 == 0 ? 0.0f : out[2] & 16 ? -x[i] : x[i];
    }
    return x;
}

/* Any cut by anyone, in any order, at any offset from a cache line. */
static void check_cuts(const char *what, const float *x, const float *z)
{
    static const int64_t cuts[] = {0, 1, 514, 1025, 17000, 17007, LONG};
    struct ls_exact_sum want = squares_one_by_one(x, z, LONG), whole, parts;
    ls_exact_clear(&whole);
    ls_exact_clear(&parts);
    ls_squared_norm(&ops_best, LONG, x, z, &whole);
    if (memcmp(&whole, &want, sizeof want) != 0)
        fail_msg("%s: %.17g, one by one %.17g", what, ls_exact_value(&whole),
                 ls_exact_value(&want));
    for (int n = 5; n >= 0; n--)
        ls_squared_norm(&ops_best, cuts[n + 1] - cuts[n], x + cuts[n], z ? z + cuts[n] : NULL,
                        &parts);
    assert_memory_equal(&parts, &want, sizeof want);
}

CASE(test_squared_norm)
{
    float *x = values_normal(1, LS_F32, LONG, 1), *z = values_normal(2, LS_F32, LONG, 1);
    static const int spread[][2] = {{1, 0},      {20, -3},   {21, -3},  {22, -3}, {43, -40},
                                    {276, -149}, {30, -149}, {20, 107}, {1, 127}, {1, -149}};
    check_cuts("normal values", x, NULL);
    check_cuts("sums of two", x, z);
    for (size_t s = 0; s < sizeof spread / sizeof *spread; s++) {
        char what[60];
        snprintf(what, sizeof what, "%d binades from 2^%d", spread[s][0], spread[s][1]);
        float *y = values_spread(spread[s][0], spread[s][1]);
        check_cuts(what, y, NULL);
        free(y);
    }
    struct ls_exact_sum bad;
    const float non_finite[] = {INFINITY, -INFINITY, NAN};
    for (int i = 0; i < 3; i++) {
        ls_exact_clear(&bad);
        x[40000] = non_finite[i];
        ls_squared_norm(&ops_best, LONG, x, NULL, &bad);
        assert_true(isnan(ls_exact_value(&bad)));
    }
    ls_exact_clear(&bad);
    ls_squared_norm(&ops_best, 0, x, NULL, &bad);
    memset(x, 0, LONG * sizeof *x);
    ls_squared_norm(&ops_best, LONG, x, NULL, &bad);
    assert_true(ls_exact_value(&bad) == 0);
    free(x), free(z);
}

/* ---- bits ------------------------------------------------------------------------------------ */

enum { MANY = 40017 };
struct bits_values {
    float *gradient, *second, *master;
};

static void run_bits(struct ls_ops *ops, int pieces, void *context, void *out)
{
    struct bits_values *v = context;
    float *to = out;
    ls_bf16 *compute = (ls_bf16 *)(to + 8 * MANY + 4);
    double norm;
    struct ls_exact_sum sum;
    memset(to, 0, 8 * MANY * sizeof *to);
    for (int op = 0; op < 3; op++) {
        memcpy(to + 3 * op * MANY, v->master, MANY * sizeof *to);
        for (int step = 1; step <= 2; step++)
            for (int piece = 0; piece < pieces; piece++) {
                int64_t at = piece * 12345, end = piece == pieces - 1 ? MANY : 12345;
                float *p = to + 3 * op * MANY + at;
                struct ls_update update = {.count = end - at,
                                           .master = p,
                                           .compute = compute + op * MANY + at,
                                           .compute_type = step == 1 ? LS_BF16 : LS_F16,
                                           .gradient = v->gradient + at,
                                           .second = v->second + at,
                                           .gradient_scale = 0.3f,
                                           .lr = 0.01f,
                                           .weight_decay = 0.1f};
                struct ls_adamw adamw = {0.9f, 0.999f, 1e-8f, step};
                struct ls_sgd sgd = {0.9f, true, step};
                struct ls_lion lion = {0.9f, 0.99f};
                if (op == 0)
                    ls_adamw_update(ops, &update, &adamw, p + MANY, p + 2 * MANY);
                else if (op == 1)
                    ls_sgd_update(ops, &update, &sgd, p + MANY);
                else
                    ls_lion_update(ops, &update, &lion, p + MANY);
            }
    }
    ls_exact_clear(&sum);
    ls_squared_norm(ops, MANY, v->gradient, v->second, &sum);
    norm = ls_exact_value(&sum);
    memcpy(to + 8 * MANY, &norm, sizeof norm);
}

CASE(test_bits)
{
    struct bits_values v = {values_normal(1, LS_F32, MANY, 1), values_normal(2, LS_F32, MANY, 1),
                            values_normal(3, LS_F32, MANY, 1)};
    struct bits_case bits = {"updates", (8 * MANY + 4) * 4 + 3 * MANY * 2, false, run_bits, &v};
    assert_bits_same(&bits);
    free(v.gradient), free(v.second), free(v.master);
}

SUITE_MAIN(ops_best_setup, ops_best_teardown)
