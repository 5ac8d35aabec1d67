/* Products with weights of int8: a plain reference, bits that depend on nothing, how far rounding
 * takes them, what is refused. */
#include <lockstep/ops.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { M_MAX = 70, N_MAX = 45, K_MAX = 1536 };

static float a[M_MAX * K_MAX], w[N_MAX * K_MAX], bias[N_MAX];
static ls_half half[M_MAX * K_MAX];
static int8_t q[N_MAX * K_MAX];
static float scales[N_MAX * 64];

static float draw(uint32_t seed, uint32_t i)
{
    uint32_t bits[4];
    ls_philox((struct ls_philox_key){{seed, 8}}, (uint32_t[4]){i, 0, 0, 0}, bits);
    return (ls_uniform_of(bits[0]) - 0.5f) * (float)(1 << bits[1] % 5);
}

static void operands_fill(uint32_t seed, enum ls_dtype act, int64_t m, int64_t n, int64_t k)
{
    for (int64_t i = 0; i < m * k; i++) {
        a[i] = draw(seed, (uint32_t)i);
        if (act != LS_F32) {
            half[i] = ls_f32_to_half(act, a[i]);
            a[i] = ls_half_to_f32(act, half[i]);
        }
    }
    for (int64_t i = 0; i < n * k; i++)
        w[i] = draw(seed + 1, (uint32_t)i) / 8;
    for (int64_t i = 0; i < n; i++)
        bias[i] = draw(seed + 2, (uint32_t)i);
}

static struct ls_gemm gemm_of(enum ls_dtype act, int64_t m, int64_t n, int64_t k, int64_t tiles,
                              bool kept, void *c)
{
    return (struct ls_gemm){.m = m,
                            .n = n,
                            .sections = 1,
                            .k = {k},
                            .tiles = tiles,
                            .b_transposed = true,
                            .in = act,
                            .out = act,
                            .a = act == LS_F32 ? (const void *)a : half,
                            .lda = k,
                            .b = q,
                            .ldb = k,
                            .b_scales = scales,
                            .a_kept = kept,
                            .c = c,
                            .ldc = n,
                            .bias = bias};
}

static void ops_open(struct ls_ops *ops, int threads, enum ls_isa isa)
{
    struct ls_error error = {0};
    if (ls_ops_init(ops, threads, isa, &error))
        fail_msg("%s", error.text);
}

static void quantize(struct ls_ops *ops, int64_t n, int64_t k, int64_t tiles)
{
    struct ls_error error = {0};
    if (ls_int8_quantize(ops, n, k, tiles, w, q, scales, &error))
        fail_msg("%s", error.text);
}

static void run(struct ls_ops *ops, const struct ls_gemm *gemm)
{
    struct ls_error error = {0};
    if (ls_gemm_run(ops, gemm, &error))
        fail_msg("%s", error.text);
}

/* ---- a plain reference ------------------------------------------------------------------------
 */

static float row_scale(const float *x, int64_t n)
{
    float most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fmaxf(most, fabsf(x[i]));
    return most / 127;
}

static int rounded(float x, float scale)
{
    return scale > 0 ? (int)nearbyintf(x * (127 / (scale * 127))) : 0;
}

/* One tile's value, in the order of the formula. */
static float tile_value(const float *x, const int8_t *y, int64_t k, float y_scale)
{
    float x_scale = row_scale(x, k), most = 0;
    int64_t sum = 0;
    for (int64_t i = 0; i < k; i++)
        most = fmaxf(most, fabsf(x[i]));
    for (int64_t i = 0; i < k && most > 0; i++)
        sum += (int64_t)nearbyintf(x[i] * (127 / most)) * y[i];
    return (float)sum * (x_scale * y_scale);
}

static float tree_value(const float *x, const int8_t *y, int64_t part, const float *y_scales,
                        int64_t first, int64_t tiles)
{
    if (tiles == 1)
        return tile_value(x + first * part, y + first * part, part, y_scales[first]);
    int64_t left = ls_tree_split(tiles);
    return tree_value(x, y, part, y_scales, first, left) +
           tree_value(x, y, part, y_scales, first + left, tiles - left);
}

static const struct {
    int64_t m, n, k, tiles;
} shapes[] = {{1, 1, 8, 1},    {1, 5, 65, 1},     {3, 4, 64, 4},    {4, 8, 96, 3},
              {7, 45, 200, 5}, {33, 12, 1536, 8}, {70, 31, 512, 1}, {2, 3, 1280, 64}};
static const enum ls_dtype acts[] = {LS_F32, LS_BF16, LS_F16};

static bool equals_reference(enum ls_dtype act, int64_t m, int64_t n, int64_t k, int64_t tiles,
                             const void *c, int64_t shift)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            int64_t of = (j + shift) % n;
            float want =
                tree_value(a + i * k, q + of * k, k / tiles, scales + of * tiles, 0, tiles) +
                bias[j];
            float got = act == LS_F32 ? ((const float *)c)[i * n + j]
                                      : ls_half_to_f32(act, ((const ls_half *)c)[i * n + j]);
            if (act != LS_F32)
                want = ls_half_to_f32(act, ls_f32_to_half(act, want));
            if (memcmp(&want, &got, sizeof want) != 0)
                return false;
        }
    return true;
}

static void test_the_formula(void **state)
{
    (void)state;
    static float c[M_MAX * N_MAX];
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (size_t t = 0; t < sizeof acts / sizeof *acts; t++)
            for (int isa = 0; isa <= (int)ls_isa_best(); isa++) {
                int64_t m = shapes[s].m, n = shapes[s].n, k = shapes[s].k, tiles = shapes[s].tiles;
                struct ls_ops ops;
                ops_open(&ops, 1 + isa % 3, (enum ls_isa)isa);
                operands_fill((uint32_t)(10 * s), acts[t], m, n, k);
                quantize(&ops, n, k, tiles);
                for (int64_t i = 0; i < n * k; i++) /* the weights' formula */
                    assert_int_equal(
                        q[i],
                        rounded(w[i], row_scale(w + i / (k / tiles) * (k / tiles), k / tiles)));
                struct ls_gemm gemm = gemm_of(acts[t], m, n, k, tiles, false, c);
                run(&ops, &gemm);
                if (!equals_reference(acts[t], m, n, k, tiles, c, 0))
                    fail_msg("%s on %s: [%ld, %ld, %ld] in %ld tiles is not the formula",
                             ls_dtype_name(acts[t]), ls_isa_name((enum ls_isa)isa), (long)m,
                             (long)n, (long)k, (long)tiles);
                if (n > 1) /* the twin: the neighbour's row */
                    assert_false(equals_reference(acts[t], m, n, k, tiles, c, 1));
                ls_ops_release(&ops);
            }
}

/* ---- bits -------------------------------------------------------------------------------------
 */

static void test_bits_depend_on_nothing(void **state)
{
    (void)state;
    enum { M = 37, N = 45, K = 768, TILES = 4 };
    static float whole[M * N], other[M * N];
    struct ls_ops one, many;
    ops_open(&one, 1, LS_ISA_PLAIN);
    ops_open(&many, 3, ls_isa_best());
    many.workspace_bytes = 16384; /* few rows at a time */
    for (int kept = 0; kept < 2; kept++) {
        operands_fill(77, LS_F32, M, N, K);
        quantize(&one, N, K, TILES);
        struct ls_gemm gemm = gemm_of(LS_F32, M, N, K, TILES, kept, whole);
        run(&one, &gemm);
        gemm.c = other;
        run(&many, &gemm);
        assert_memory_equal(whole, other, sizeof whole);
        for (int64_t i = 0; i < M; i++) { /* a row alone */
            struct ls_gemm row = gemm;
            row.m = 1;
            row.a = a + i * K;
            row.c = other + i * N;
            run(&many, &row);
        }
        assert_memory_equal(whole, other, sizeof whole);
        /* Two ranks with two tiles each: their sums add up to the whole. */
        static float part[2][M * N], part_scales[2][N * 2];
        for (int rank = 0; rank < 2; rank++) {
            struct ls_gemm half_of = gemm;
            for (int j = 0; j < N; j++)
                memcpy(part_scales[rank] + 2 * j, scales + TILES * j + 2 * rank, 2 * sizeof(float));
            half_of.k[0] = K / 2;
            half_of.tiles = 2;
            half_of.a = a + rank * K / 2;
            half_of.b = q + rank * K / 2;
            half_of.b_scales = part_scales[rank];
            half_of.bias = NULL;
            half_of.c = part[rank];
            run(&one, &half_of);
        }
        for (int i = 0; i < M * N; i++)
            other[i] = (part[0][i] + part[1][i]) + bias[i % N];
        assert_memory_equal(whole, other, sizeof whole);
        for (int i = 0; i < M * N; i++) /* the twin: ranks the other way round in a tree of four */
            other[i] = part[0][i] + (part[1][i] + bias[i % N]);
        assert_memory_not_equal(whole, other, sizeof whole);
    }
    ls_ops_release(&one);
    many.workspace_bytes = 16 << 20;
    ls_ops_release(&many);
}

/* ---- how far ----------------------------------------------------------------------------------
 */

/* Each rounding moves a value by at most half a scale, so a row's error is bounded; int8 weights
 * alone move it by less than both. */
static void test_error(void **state)
{
    (void)state;
    enum { M = 16, N = 40, K = 1024 };
    static float c[2][M * N];
    struct ls_ops ops;
    ops_open(&ops, 2, ls_isa_best());
    operands_fill(5, LS_F32, M, N, K);
    quantize(&ops, N, K, 1);
    double error[2] = {0}, all = 0;
    for (int kept = 0; kept < 2; kept++) {
        struct ls_gemm gemm = gemm_of(LS_F32, M, N, K, 1, kept, c[kept]);
        run(&ops, &gemm);
        for (int i = 0; i < M; i++)
            for (int j = 0; j < N; j++) {
                double want = bias[j], bound = 1e-4, x_scale = row_scale(a + i * K, K);
                for (int k = 0; k < K; k++) {
                    want += (double)a[i * K + k] * w[j * K + k];
                    bound += fabs(a[i * K + k]) * scales[j] / 2;
                    if (!kept)
                        bound += (fabs(w[j * K + k]) + scales[j] / 2) * x_scale / 2;
                }
                double off = c[kept][i * N + j] - want;
                if (fabs(off) > bound)
                    fail_msg("[%d, %d]: %g from %g, at most %g", i, j, off, want, bound);
                error[kept] += off * off;
                all += kept ? 0 : want * want;
            }
    }
    print_message("relative error: int8 %.2g, weights alone %.2g\n", sqrt(error[0] / all),
                  sqrt(error[1] / all));
    assert_true(error[1] < error[0] && error[0] < 1e-3 * all);
    ls_ops_release(&ops);
}

/* ---- edges ------------------------------------------------------------------------------------
 */

static void test_zero_and_not_finite(void **state)
{
    (void)state;
    struct ls_ops ops;
    struct ls_error error = {0};
    float c[2 * 4];
    ops_open(&ops, 1, ls_isa_best());
    operands_fill(9, LS_F32, 2, 4, 64);
    memset(w + 64, 0, 64 * sizeof *w);
    for (int i = 0; i < 64; i++)
        w[128 + i] = 1e-38f;
    quantize(&ops, 4, 64, 1);
    assert_true(scales[1] == 0 && scales[2] == 0);
    a[64 + 9] = NAN;
    struct ls_gemm gemm = gemm_of(LS_F32, 2, 4, 64, 1, false, c);
    run(&ops, &gemm);
    assert_true(c[1] == bias[1] && c[2] == bias[2] && isfinite(c[0]) && c[0] != bias[0]);
    for (int j = 0; j < 4; j++)
        assert_true(isnan(c[4 + j]));
    w[3 * 64 + 5] = INFINITY;
    assert_int_equal(ls_int8_quantize(&ops, 4, 64, 1, w, q, scales, &error), LS_EDATA);
    assert_non_null(strstr(error.text, "row 3"));
    ls_ops_release(&ops);
}

static void test_refusals(void **state)
{
    (void)state;
    struct ls_ops ops;
    struct ls_error error = {0};
    float c[16];
    ops_open(&ops, 1, ls_isa_best());
    struct ls_gemm gemm = gemm_of(LS_F32, 2, 4, 64, 1, false, c), bad = gemm;
    bad.b_transposed = false;
    bad.ldb = 64;
    assert_int_equal(ls_gemm_run(&ops, &bad, &error), LS_EINVAL);
    bad = gemm;
    bad.k[0] = bad.lda = bad.ldb = 2 * LS_INT8_K_MAX;
    assert_int_equal(ls_gemm_run(&ops, &bad, &error), LS_EINVAL);
    assert_non_null(strstr(error.text, "131072"));
    ops.workspace_bytes = 64;
    assert_int_equal(ls_gemm_run(&ops, &gemm, &error), LS_EINVAL);
    assert_non_null(strstr(error.text, "workspace"));
    ops.workspace_bytes = 16 << 20;
    ls_ops_release(&ops);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_formula), cmocka_unit_test(test_bits_depend_on_nothing),
        cmocka_unit_test(test_error),       cmocka_unit_test(test_zero_and_not_finite),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
