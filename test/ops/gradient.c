/* References in double, central differences, and equality of bits, for the tests of ops. */
#include "gradient.h"
#include "../support/testing.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ls_ops ops_best;

int ops_best_setup(void **state)
{
    struct ls_error error = {0};
    return ls_ops_init(&ops_best, 2, ls_isa_best(), &error);
}

int ops_best_teardown(void **state)
{
    ls_ops_release(&ops_best);
    return 0;
}

void *values_new(size_t bytes)
{
    void *values = aligned_alloc(64, (bytes + 64) / 64 * 64 + 64);
    assert_non_null(values);
    memset(values, 0x5a, bytes);
    return values;
}

void *values_normal(uint64_t seed, enum ls_dtype act, int64_t count, double stddev)
{
    float *values = values_new((size_t)count * sizeof *values);
    ls_normal_fill(ls_philox_key_of(seed, "test"), 0, count, 0, stddev, values);
    if (act == LS_F32)
        return values;
    ls_half *rounded = values_new((size_t)count * sizeof *rounded);
    for (int64_t i = 0; i < count; i++)
        rounded[i] = ls_f32_to_half(act, values[i]);
    free(values);
    return rounded;
}

static double value_at(enum ls_dtype act, const void *values, int64_t i)
{
    return act == LS_F32 ? ((const float *)values)[i]
                         : ls_half_to_f32(act, ((const ls_half *)values)[i]);
}

double *values_in_double(enum ls_dtype act, const void *values, int64_t count)
{
    double *wide = values_new((size_t)count * sizeof *wide);
    for (int64_t i = 0; i < count; i++)
        wide[i] = value_at(act, values, i);
    return wide;
}

void assert_near(const char *what, enum ls_dtype act, const void *got, const double *want,
                 int64_t count, double tolerance)
{
    double difference = 0, norm = 0, worst = 0;
    int64_t worst_at = 0;
    for (int64_t i = 0; i < count; i++) {
        double d = fabs(value_at(act, got, i) - want[i]);
        if (!(d <= worst)) {
            worst = d;
            worst_at = i;
        }
        difference += d * d;
        norm += want[i] * want[i];
    }
    if (!(sqrt(difference) <= tolerance * sqrt(norm)))
        fail_msg("%s: |difference| %g, |reference| %g, tolerance %g; worst at [%lld]: %.9g, "
                 "reference %.9g",
                 what, sqrt(difference), sqrt(norm), tolerance, (long long)worst_at,
                 value_at(act, got, worst_at), want[worst_at]);
}

bool gradient_near(const char *what, enum ls_dtype act, const void *got, const double *want,
                   int64_t count, double tolerance)
{
    double gg = 0, ww = 0, gw = 0;
    for (int64_t i = 0; i < count; i++) {
        double g = value_at(act, got, i);
        gg += g * g;
        ww += want[i] * want[i];
        gw += g * want[i];
    }
    double ratio = sqrt(gg / ww), off = 1 - gw / sqrt(gg * ww);
    if (fabs(ratio - 1) <= tolerance && off <= tolerance * tolerance + 1e-13)
        return true;
    printf("%s: norm ratio %.9g, 1 - cosine %.3g, tolerance %g\n", what, ratio, off, tolerance);
    return false;
}

void assert_gradient_near(const char *what, enum ls_dtype act, const void *got, const double *want,
                          int64_t count, double tolerance)
{
    if (!gradient_near(what, act, got, want, count, tolerance))
        fail_msg("%s: gradient differs from central differences", what);
}

void gradient_by_differences(double (*f)(void *context), void *context, double *x, int64_t count,
                             double step, double *gradient)
{
    for (int64_t i = 0; i < count; i++) {
        double kept = x[i];
        x[i] = kept + step;
        double above = f(context);
        x[i] = kept - step;
        double below = f(context);
        x[i] = kept;
        gradient[i] = (above - below) / (2 * step);
    }
}

void assert_bits_same(const struct bits_case *bits)
{
    unsigned char *first = values_new(bits->bytes), *other = values_new(bits->bytes);
    bool have_first = false;
    for (int isa = LS_ISA_PLAIN; isa <= (int)ls_isa_best(); isa++) {
        if (bits->isa_each)
            have_first = false;
        for (int threads = 1; threads <= 3; threads++)
            for (int pieces = 1; pieces <= 2; pieces++) {
                struct ls_ops ops;
                struct ls_error error = {0};
                assert_ok(ls_ops_init(&ops, threads, (enum ls_isa)isa, &error), error);
                unsigned char *out = have_first ? other : first;
                memset(out, 0x5a, bits->bytes);
                bits->run(&ops, pieces, bits->context, out);
                ls_ops_release(&ops);
                for (size_t i = 0; have_first && i < bits->bytes; i++)
                    if (first[i] != other[i])
                        fail_msg("%s: %s, %d threads, %d calls: byte %zu is %#x, in the first run "
                                 "%#x",
                                 bits->what, ls_isa_name((enum ls_isa)isa), threads, pieces, i,
                                 other[i], first[i]);
                have_first = true;
            }
    }
    free(first);
    free(other);
}
