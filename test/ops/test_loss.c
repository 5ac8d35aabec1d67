/* Softmax cross-entropy: against the formula in double, gradient by central differences, padding,
 * ignored targets, non-finite logits, order of sums, bits. */
#include "gradient.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const enum ls_dtype acts[2] = {LS_F32, LS_BF16};

struct reference {
    int64_t vocabulary;
    double *z; /* one row */
    int32_t target;
};

static double reference_loss(void *context)
{
    const struct reference *op = context;
    double max = -INFINITY, sum = 0;
    for (int64_t v = 0; v < op->vocabulary; v++)
        max = fmax(max, op->z[v]);
    for (int64_t v = 0; v < op->vocabulary; v++)
        sum += exp(op->z[v] - max);
    return log(sum) + max - op->z[op->target];
}

static void check(enum ls_dtype act, int64_t rows, int64_t vocabulary, int64_t padded,
                  int64_t tiles)
{
    struct ls_cross_entropy op = {rows, vocabulary, padded, tiles, act, 0};
    void *z = values_normal(1, act, rows * padded, 3);
    void *kept = values_normal(1, act, rows * padded, 3);
    double *z64 = values_in_double(act, z, rows * padded);
    int32_t *target = values_new((size_t)rows * 4);
    float *loss = values_new((size_t)rows * 4), *again = values_new((size_t)rows * 4);
    double *want = values_new((size_t)rows * 8), *dz = values_new((size_t)(rows * padded) * 8);
    for (int64_t r = 0; r < rows; r++) {
        target[r] = (int32_t)(r * 31 % vocabulary);
        struct reference one = {vocabulary, z64 + r * padded, target[r]};
        want[r] = reference_loss(&one);
        gradient_by_differences(reference_loss, &one, one.z, vocabulary, 1e-4, dz + r * padded);
        for (int64_t v = 0; v < padded; v++)
            dz[r * padded + v] = v < vocabulary ? 0.25 * dz[r * padded + v] : 0;
    }
    ls_cross_entropy(&ops_best, &op, z, target, loss);
    assert_near("cross-entropy", LS_F32, loss, want, rows, 1e-6);
    assert_memory_equal(z, kept, (size_t)(rows * padded) * ls_dtype_bytes(act));
    op.scale = 0.25f;
    ls_cross_entropy(&ops_best, &op, z, target, again);
    assert_memory_equal(loss, again, (size_t)rows * 4);
    double tolerance = act == LS_F32 ? 2e-6 : 4e-3;
    assert_near("cross-entropy gradient", act, z, dz, rows * padded, tolerance);
    assert_gradient_near("cross-entropy gradient", act, z, dz, rows * padded, tolerance);
    free(z), free(kept), free(z64), free(target), free(loss), free(again), free(want), free(dz);
}

static void test_loss_and_gradient(void **state)
{
    (void)state;
    for (int a = 0; a < 2; a++) {
        check(acts[a], 1, 2, 2, 1);
        check(acts[a], 5, 257, 257, 1);
        check(acts[a], 5, 257, 320, 1);
        check(acts[a], 5, 257, 320, 8);
        check(acts[a], 3, 1030, 1040, 4);
        check(acts[a], 2, 9, 32, 4); /* tiles of nothing but padding */
    }
}

static void test_ignored_target(void **state)
{
    (void)state;
    enum { ROWS = 3, VOCABULARY = 40 };
    struct ls_cross_entropy op = {ROWS, VOCABULARY, VOCABULARY, 1, LS_F32, 1};
    float *z = values_normal(1, LS_F32, ROWS * VOCABULARY, 1), loss[ROWS];
    int32_t target[ROWS] = {3, -1, 4};
    ls_cross_entropy(&ops_best, &op, z, target, loss);
    assert_true(loss[0] > 0 && loss[1] == 0 && loss[2] > 0);
    for (int v = 0; v < VOCABULARY; v++)
        assert_true(z[VOCABULARY + v] == 0 && z[v] != 0);
    free(z);
}

static void test_large_and_non_finite_logits(void **state)
{
    (void)state;
    enum { VOCABULARY = 50 };
    struct ls_cross_entropy op = {1, VOCABULARY, VOCABULARY, 1, LS_F32, 0};
    float z[VOCABULARY] = {0}, loss;
    int32_t target = 3;
    z[3] = 1e30f;
    ls_cross_entropy(&ops_best, &op, z, &target, &loss);
    assert_true(loss == 0);
    z[4] = 2e30f;
    ls_cross_entropy(&ops_best, &op, z, &target, &loss);
    assert_true(loss == 2e30f - 1e30f);
    const float bad[3] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3; i++) {
        for (int v = 0; v < VOCABULARY; v++)
            z[v] = i < 2 ? 0.5f : bad[i];
        z[7] = bad[i];
        ls_cross_entropy(&ops_best, &op, z, &target, &loss);
        if (isfinite(loss))
            fail_msg("loss %g of logits with %g", (double)loss, (double)bad[i]);
    }
}

static void test_loss_sum_is_the_ordered_sum(void **state)
{
    (void)state;
    const struct ls_token_sum sums[] = {{1, 1, 1, 0}, {3, 1, 16, 0}, {2, 5, 57, 0}, {1, 3, 200, 0}};
    for (size_t s = 0; s < sizeof sums / sizeof *sums; s++) {
        const struct ls_token_sum *sum = &sums[s];
        float *loss = values_normal(2, LS_F32, sum->leaves * sum->sequences * sum->tokens, 1);
        float got[3], sequence[5], tile[13];
        const float *at = loss;
        ls_loss_sum(loss, sum, got);
        for (int64_t leaf = 0; leaf < sum->leaves; leaf++) {
            for (int64_t q = 0; q < sum->sequences; q++, at += sum->tokens) {
                int64_t tiles = ls_ceil_div(sum->tokens, LS_TOKEN_TILE);
                memset(tile, 0, sizeof tile);
                for (int64_t t = 0; t < sum->tokens; t++)
                    tile[t / LS_TOKEN_TILE] += at[t];
                sequence[q] = ls_tree_sum(tile, tiles);
            }
            float want = ls_tree_sum(sequence, sum->sequences);
            if (got[leaf] != want)
                fail_msg("sum %zu, leaf %lld: %.9g, ordered %.9g", s, (long long)leaf,
                         (double)got[leaf], (double)want);
        }
        free(loss);
    }
}

struct bits_values {
    struct ls_cross_entropy op;
    void *z;
    int32_t *target;
};

static void run_bits(struct ls_ops *ops, int pieces, void *context, void *out)
{
    struct bits_values *v = context;
    size_t bytes = ls_dtype_bytes(v->op.act);
    size_t count = (size_t)(v->op.rows * v->op.padded);
    memcpy(out, v->z, count * bytes);
    float *loss = (float *)((char *)out + count * bytes);
    int64_t cut = pieces == 1 ? v->op.rows : 5;
    struct ls_cross_entropy op = v->op;
    op.rows = cut;
    ls_cross_entropy(ops, &op, out, v->target, loss);
    op.rows = v->op.rows - cut;
    ls_cross_entropy(ops, &op, (char *)out + (size_t)(cut * op.padded) * bytes, v->target + cut,
                     loss + cut);
}

static void test_bits(void **state)
{
    (void)state;
    enum { ROWS = 17, VOCABULARY = 2500, PADDED = 2560 };
    int32_t target[ROWS];
    for (int r = 0; r < ROWS; r++)
        target[r] = r * 100;
    for (int a = 0; a < 2; a++) {
        struct bits_values v = {{ROWS, VOCABULARY, PADDED, 4, acts[a], 0.125f},
                                values_normal(1, acts[a], ROWS * PADDED, 4),
                                target};
        struct bits_case bits = {"cross-entropy",
                                 ROWS * PADDED * ls_dtype_bytes(acts[a]) + ROWS * 4, false,
                                 run_bits, &v};
        assert_bits_same(&bits);
        free(v.z);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loss_and_gradient),
        cmocka_unit_test(test_ignored_target),
        cmocka_unit_test(test_large_and_non_finite_logits),
        cmocka_unit_test(test_loss_sum_is_the_ordered_sum),
        cmocka_unit_test(test_bits),
    };
    return cmocka_run_group_tests_name("loss", tests, ops_best_setup, ops_best_teardown);
}
