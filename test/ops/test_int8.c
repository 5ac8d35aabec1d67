/* Products with weights of int8: a plain reference, bits that depend on nothing, how far rounding
 * takes them, what is refused. */
#include <lockstep/ops.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support/suite.h"

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
    assert_ok(ls_ops_init(ops, threads, isa, &error), error);
}

static void quantize(struct ls_ops *ops, int64_t n, int64_t k, int64_t tiles)
{
    struct ls_error error = {0};
    assert_ok(ls_int8_quantize(ops, n, k, tiles, w, q, scales, &error), error);
}

static void run(struct ls_ops *ops, const struct ls_gemm *gemm)
{
    struct ls_error error = {0};
    assert_ok(ls_gemm_run(ops, gemm, &error), error);
}

/* ---- a plain reference ----------------------------------------------------------------------- */

static float largest(const float *x, int64_t n)
{
    float most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    return most;
}

static float row_scale(const float *x, int64_t n)
{
    return largest(x, n) / 127;
}

static int rounded(float x, float scale)
{
    return scale > 0 ? (int)nearbyintf(x * (127 / (scale * 127))) : 0;
}

/* One tile's value, in the order of the formula. */
static float tile_value(const float *x, const int8_t *y, int64_t k, float y_scale)
{
    float most = largest(x, k);
    int64_t sum = 0;
    for (int64_t i = 0; i < k && most > 0; i++)
        sum += (int64_t)nearbyintf(x[i] * (127 / most)) * y[i];
    return (float)sum * (most / 127 * y_scale);
}

/* The same where the row stays what it is: the tile's sum of any product, times the scale. */
static float kept_value(const float *x, const int8_t *y, int64_t k, float y_scale, bool pairs)
{
    float sum = 0;
    for (int64_t i = 0; i < k && !pairs; i++)
        sum = fmaf(x[i], y[i], sum);
    for (int64_t i = 0; i < k && pairs; i += LS_PAIRS_STEP) {
        float chain[2] = {0};
        for (int64_t j = i; j < k && j < i + LS_PAIRS_STEP; j++)
            chain[j % 2] = fmaf(x[j], y[j], chain[j % 2]);
        sum += chain[0] + chain[1];
    }
    return sum * y_scale;
}

struct formula {
    int64_t part;
    bool kept, pairs;
};

static float tree_value(const struct formula *formula, const float *x, const int8_t *y,
                        const float *y_scales, int64_t tiles)
{
    int64_t part = formula->part, left = tiles > 1 ? ls_tree_split(tiles) : 0;
    if (tiles > 1)
        return tree_value(formula, x, y, y_scales, left) +
               tree_value(formula, x + left * part, y + left * part, y_scales + left, tiles - left);
    return formula->kept ? kept_value(x, y, part, *y_scales, formula->pairs)
                         : tile_value(x, y, part, *y_scales);
}

static const struct {
    int64_t m, n, k, tiles;
} shapes[] = {{1, 1, 8, 1},     {1, 5, 65, 1},      {3, 4, 64, 4},     {4, 8, 96, 3},
              {7, 45, 200, 5},  {12, 33, 37, 1},    {33, 12, 1536, 8}, {70, 31, 512, 1},
              {2, 3, 1280, 64}, {40, 33, 1280, 64}, {5, 32, 256, 1},   {16, 45, 1029, 3}};
static const enum ls_dtype acts[] = {LS_F32, LS_BF16, LS_F16};

static bool equals_formula(const struct formula *formula, const struct ls_gemm *gemm, int64_t shift)
{
    int64_t k = gemm->k[0], n = gemm->n;
    for (int64_t i = 0; i < gemm->m; i++)
        for (int64_t j = 0; j < n; j++) {
            int64_t of = (j + shift) % n, at = i * n + j;
            float want =
                tree_value(formula, a + i * k, q + of * k, scales + of * gemm->tiles, gemm->tiles) +
                bias[j];
            float got = gemm->out == LS_F32
                            ? ((const float *)gemm->c)[at]
                            : ls_half_to_f32(gemm->out, ((const ls_half *)gemm->c)[at]);
            if (gemm->out != LS_F32)
                want = ls_half_to_f32(gemm->out, ls_f32_to_half(gemm->out, want));
            if (memcmp(&want, &got, sizeof want) != 0)
                return false;
        }
    return true;
}

static void check_shape(struct ls_ops *ops, size_t s, enum ls_dtype act)
{
    static float c[M_MAX * N_MAX];
    int64_t m = shapes[s].m, n = shapes[s].n, k = shapes[s].k, tiles = shapes[s].tiles;
    operands_fill((uint32_t)(10 * s), act, m, n, k);
    quantize(ops, n, k, tiles);
    for (int64_t from = 0; from < n * k; from += k / tiles) { /* the weights' formula */
        float scale = row_scale(w + from, k / tiles);
        for (int64_t i = from; i < from + k / tiles; i++)
            assert_int_equal(q[i], rounded(w[i], scale));
    }
    for (int way = 0; way < 3; way++) {
        struct formula formula = {k / tiles, way > 0, way == 2 && act == LS_BF16};
        struct ls_gemm gemm = gemm_of(act, m, n, k, tiles, formula.kept, c);
        ops->arithmetic = way == 2 ? LS_ARITHMETIC_BF16_PAIRS : LS_ARITHMETIC_FMA;
        run(ops, &gemm);
        if (!equals_formula(&formula, &gemm, 0))
            fail_msg("%s on %s, way %d: [%ld, %ld, %ld] in %ld tiles is not the formula",
                     ls_dtype_name(act), ls_isa_name(ops->isa), way, (long)m, (long)n, (long)k,
                     (long)tiles);
        if (n > 1) /* the twin: the neighbour's row */
            assert_false(equals_formula(&formula, &gemm, 1));
    }
}

CASE(test_the_formula)
{
    for (int isa = 0; isa <= (int)ls_isa_best(); isa++) {
        struct ls_ops ops;
        ops_open(&ops, 1 + isa % 3, (enum ls_isa)isa);
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            for (size_t t = 0; t < sizeof acts / sizeof *acts; t++)
                check_shape(&ops, s, acts[t]);
        ls_ops_release(&ops);
    }
}

/* The largest sum there is: int32 holds it, though the kernels pass beyond on the way. */
CASE(test_the_longest_tile)
{
    enum { M = 16, N = 3, K = LS_INT8_K_MAX };
    float *x = malloc((size_t)M * K * sizeof *x), c[M * N], ones[N] = {1, 1, 1};
    int8_t *y = malloc((size_t)N * K);
    assert_true(x && y);
    for (int64_t i = 0; i < M * K; i++)
        x[i] = i / K % 2 ? -127 : 127;
    for (int64_t i = 0; i < N * K; i++)
        y[i] = i / K % 2 ? -127 : 127;
    for (int isa = 0; isa <= (int)ls_isa_best(); isa++)
        for (int64_t m = 1; m <= M; m += M - 1) {
            struct ls_ops ops;
            ops_open(&ops, 2, (enum ls_isa)isa);
            struct ls_gemm gemm = gemm_of(LS_F32, m, N, K, 1, false, c);
            gemm.a = x;
            gemm.b = y;
            gemm.b_scales = ones;
            gemm.bias = NULL;
            run(&ops, &gemm);
            for (int64_t i = 0; i < m * N; i++) {
                float want = (float)(127 * 127 * (int64_t)K);
                assert_true(c[i] == ((i / N + i % N) % 2 ? -want : want));
            }
            ls_ops_release(&ops);
        }
    free(x);
    free(y);
}

/* ---- bits ------------------------------------------------------------------------------------ */

/* Rows together, in parts of `step`, on any thread and instruction set. */
static void check_rows(const struct ls_gemm *whole, struct ls_ops *ops, int64_t step, void *other)
{
    struct ls_gemm part = *whole;
    size_t row = (size_t)whole->n * sizeof(float);
    memset(other, 0, (size_t)whole->m * row);
    for (int64_t i = 0; i < whole->m; i += step) {
        part.m = ls_min(step, whole->m - i);
        part.a = (const float *)whole->a + i * whole->lda;
        part.c = (float *)other + i * whole->ldc;
        run(ops, &part);
    }
    if (memcmp(whole->c, other, (size_t)whole->m * row) != 0)
        fail_msg("%s, rows %ld at a time: other bits", ls_isa_name(ops->isa), (long)step);
}

CASE(test_bits_depend_on_nothing)
{
    enum { M = 37, N = 45, K = 772, TILES = 4 };
    static float whole[M * N], other[M * N];
    struct ls_ops one, many;
    ops_open(&one, 1, LS_ISA_PLAIN);
    for (int kept = 0; kept < 2; kept++) {
        operands_fill(77, LS_F32, M, N, K);
        quantize(&one, N, K, TILES);
        memset(scales, 0, TILES * sizeof *scales); /* of column 0: sums below zero become -0 */
        struct ls_gemm gemm = gemm_of(LS_F32, M, N, K, TILES, kept, whole), bare = gemm;
        bare.bias = NULL;
        run(&one, &bare);
        int below = 0;
        for (int i = 0; i < M; i++)
            below += whole[i * N] == 0 && signbit(whole[i * N]);
        assert_true(below > 0);
        for (int isa = 0; isa <= (int)ls_isa_best(); isa++) {
            ops_open(&many, 3, (enum ls_isa)isa);
            for (int64_t step = 1; step <= M; step++)
                check_rows(&bare, &many, step, other);
            many.workspace_bytes = 16384; /* few rows at a time */
            if (!kept)
                check_rows(&bare, &many, M, other);
            many.workspace_bytes = 16 << 20;
            ls_ops_release(&many);
        }
        run(&one, &gemm);
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
}

/* Rows of int8 that are packed in several parts, each with what the others leave of the workspace:
 * those of one part. */
CASE(test_rows_in_parts)
{
    enum { M = 300, N = 70, K = 16384, TILES = 64 };
    struct ls_ops ops;
    float *x = malloc((size_t)M * K * sizeof *x), *c = malloc(2 * (size_t)M * N * sizeof *c);
    float *y_scales = malloc((size_t)N * TILES * sizeof *y_scales);
    int8_t *y = malloc((size_t)N * K);
    assert_true(x && c && y && y_scales);
    for (int64_t i = 0; i < (int64_t)M * K; i++)
        x[i] = draw(3, (uint32_t)i);
    for (int64_t i = 0; i < (int64_t)N * K; i++)
        y[i] = (int8_t)(i * 2654435761u % 255 - 127);
    for (int64_t i = 0; i < (int64_t)N * TILES; i++)
        y_scales[i] = 1 + draw(4, (uint32_t)i) / 16;
    struct ls_gemm gemm = gemm_of(LS_F32, M, N, K, TILES, false, c);
    gemm.a = x;
    gemm.b = y;
    gemm.b_scales = y_scales;
    gemm.bias = NULL;
    ops_open(&ops, 1, ls_isa_best());
    run(&ops, &gemm);
    ls_ops_release(&ops);
    ops_open(&ops, 3, LS_ISA_PLAIN);
    gemm.c = c + M * N;
    run(&ops, &gemm);
    ls_ops_release(&ops);
    assert_memory_equal(c, c + M * N, (size_t)M * N * sizeof *c);
    free(x);
    free(c);
    free(y);
    free(y_scales);
}

/* ---- how far --------------------------------------------------------------------------------- */

/* Each rounding moves a value by at most half a scale, so a row's error is bounded; int8 weights
 * alone move it by less than both. */
CASE(test_error)
{
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

/* ---- edges ----------------------------------------------------------------------------------- */

CASE(test_zero_and_not_finite)
{
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

CASE(test_refusals)
{
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

SUITE_MAIN(NULL, NULL)
