/* Muon's parts against references in double: Newton-Schulz on matrices of many shapes, what it
 * does to singular values, transposes; momentum and step; bits. */
#include "../support/suite.h"
#include "gradient.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the reference --------------------------------------------------------------------------- */

static double dot_of(const double *x, const double *y, int64_t n)
{
    enum { LANES = 8 };
    double sums[LANES] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int lane = 0; lane < LANES; lane++)
            sums[lane] += x[i + lane] * y[i + lane];
    for (; i < n; i++)
        sum += x[i] * y[i];
    for (int lane = 0; lane < LANES; lane++)
        sum += sums[lane];
    return sum;
}

/* x = (a I + b A + c A A) x, A = x x^T, which is its own transpose; rows <= cols. */
static void reference_step(double *x, int64_t rows, int64_t cols)
{
    double *gram = calloc((size_t)(rows * rows), sizeof *gram);
    double *poly = calloc((size_t)(rows * rows), sizeof *poly);
    double *next = calloc((size_t)(rows * cols), sizeof *next);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j <= i; j++)
            gram[i * rows + j] = gram[j * rows + i] = dot_of(x + i * cols, x + j * cols, cols);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < rows; j++)
            poly[i * rows + j] = (i == j ? 3.4445 : 0) - 4.7750 * gram[i * rows + j] +
                                 2.0315 * dot_of(gram + i * rows, gram + j * rows, rows);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < rows; k++)
            for (int64_t j = 0; j < cols; j++)
                next[i * cols + j] += poly[i * rows + k] * x[k * cols + j];
    memcpy(x, next, (size_t)(rows * cols) * sizeof *x);
    free(gram), free(poly), free(next);
}

static void transpose(const double *x, int64_t rows, int64_t cols, double *out)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            out[j * rows + i] = x[i * cols + j];
}

static double *reference_of(const struct ls_newton_schulz *op, const float *from)
{
    int64_t count = op->rows * op->cols;
    bool tall = op->rows > op->cols;
    double *x = values_in_double(LS_F32, from, count), *turned = calloc((size_t)count, sizeof *x);
    double norm = 0;
    for (int64_t i = 0; i < count; i++)
        norm += x[i] * x[i];
    for (int64_t i = 0; i < count; i++)
        x[i] /= fmax(sqrt(norm), 1e-7);
    if (tall)
        transpose(x, op->rows, op->cols, turned);
    for (int i = 0; i < op->steps; i++)
        reference_step(tall ? turned : x, ls_min(op->rows, op->cols), ls_max(op->rows, op->cols));
    if (tall)
        transpose(turned, op->cols, op->rows, x);
    free(turned);
    return x;
}

/* ---- Newton-Schulz --------------------------------------------------------------------------- */

/* The result, in a buffer of its own. */
static float *orthogonal(struct ls_ops *ops, const struct ls_newton_schulz *op, const float *from)
{
    size_t bytes = (size_t)(op->rows * op->cols) * sizeof(float);
    float *x = values_new(bytes), *result = values_new(bytes), *out;
    float *work = values_new((size_t)ls_newton_schulz_work(op) * sizeof *work);
    struct ls_error error = {0};
    memcpy(x, from, bytes);
    assert_int_equal(ls_newton_schulz(ops, op, x, work, &out, &error), LS_OK);
    assert_true(out == x || out == work);
    memcpy(result, out, bytes);
    free(x), free(work);
    return result;
}

/* Above and below a band of a symmetric product (256 rows) and a square that is mirrored (32). */
static const struct ls_newton_schulz shapes[] = {
    {1, 1, 5},    {1, 77, 5},  {77, 1, 5},    {64, 64, 5},   {33, 130, 5},
    {130, 33, 5}, {31, 32, 4}, {300, 300, 5}, {257, 600, 5}, {600, 257, 1},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

/* In float32 five steps keep about five digits. */
CASE(test_newton_schulz)
{
    for (int s = 0; s < SHAPES; s++) {
        const struct ls_newton_schulz *op = &shapes[s];
        char what[64];
        snprintf(what, sizeof what, "%ld x %ld", (long)op->rows, (long)op->cols);
        float *from = values_normal(40 + (uint64_t)s, LS_F32, op->rows * op->cols, 3);
        float *got = orthogonal(&ops_best, op, from);
        double *want = reference_of(op, from);
        assert_near(what, LS_F32, got, want, op->rows * op->cols, 2e-5);
        free(from), free(got), free(want);
    }
}

/* Singular values of a random matrix, which spread over a factor of about 2, end near 1: rows of
 * the result are nearly orthogonal. Of what went in they are not. */
CASE(test_rows_become_orthonormal)
{
    const struct ls_newton_schulz op = {40, 160, 5};
    float *from = values_normal(3, LS_F32, op.rows * op.cols, 1);
    float *got = orthogonal(&ops_best, &op, from);
    for (int64_t i = 0; i < op.rows; i++)
        for (int64_t j = 0; j <= i; j++) {
            double dot = 0;
            for (int64_t k = 0; k < op.cols; k++)
                dot += (double)got[i * op.cols + k] * (double)got[j * op.cols + k];
            if (!(fabs(dot - (i == j)) < 0.45))
                fail_msg("rows %ld and %ld: the product is %g", (long)i, (long)j, dot);
        }
    free(from), free(got);
}

/* A matrix's transpose has the transposed result, bit for bit: also one of a shape that is cut in
 * bands. */
CASE(test_a_transpose_has_the_same_bits)
{
    const struct ls_newton_schulz wide = {290, 301, 5}, tall = {301, 290, 5};
    int64_t count = wide.rows * wide.cols;
    float *from = values_normal(4, LS_F32, count, 1), *turned = values_new((size_t)count * 4);
    for (int64_t i = 0; i < wide.rows; i++)
        for (int64_t j = 0; j < wide.cols; j++)
            turned[j * wide.rows + i] = from[i * wide.cols + j];
    float *a = orthogonal(&ops_best, &wide, from), *b = orthogonal(&ops_best, &tall, turned);
    for (int64_t i = 0; i < wide.rows; i++)
        for (int64_t j = 0; j < wide.cols; j++)
            if (memcmp(&a[i * wide.cols + j], &b[j * wide.rows + i], sizeof *a) != 0)
                fail_msg("element %ld, %ld: %.9g and %.9g", (long)i, (long)j,
                         (double)a[i * wide.cols + j], (double)b[j * wide.rows + i]);
    free(from), free(turned), free(a), free(b);
}

/* The scale of a matrix does not matter, down to 1e-7; one of zeros stays zero. */
CASE(test_scales)
{
    const struct ls_newton_schulz op = {9, 14, 5};
    enum { COUNT = 9 * 14 };
    static const float scales[] = {0x1p-20f, 0x1p20f};
    float *from = values_normal(5, LS_F32, COUNT, 1), *want = orthogonal(&ops_best, &op, from);
    for (int s = 0; s < 2; s++) {
        float scaled[COUNT];
        for (int i = 0; i < COUNT; i++)
            scaled[i] = scales[s] * from[i];
        float *got = orthogonal(&ops_best, &op, scaled);
        double *expected = values_in_double(LS_F32, want, COUNT);
        assert_near("scaled", LS_F32, got, expected, COUNT, 1e-5);
        free(got), free(expected);
    }
    memset(from, 0, COUNT * sizeof *from);
    float *zeros = orthogonal(&ops_best, &op, from);
    for (int i = 0; i < COUNT; i++)
        assert_true(zeros[i] == 0);
    free(from), free(want), free(zeros);
}

/* ---- momentum and step ----------------------------------------------------------------------- */

enum { COUNT = 1003, STEPS = 4 };

/* A trial over several steps with fresh gradients; nesterov or not. */
static void check_momentum(bool nesterov)
{
    float *m = values_new(COUNT * sizeof *m), *direction = values_new(COUNT * sizeof *m);
    float *p = values_normal(1, LS_F32, COUNT, 1);
    double *want_m = calloc(COUNT, sizeof *want_m), *want_p = values_in_double(LS_F32, p, COUNT);
    double want[COUNT];
    ls_half compute[COUNT];
    const double mu = (double)0.95f, lr = (double)0.01f, decay = (double)0.1f;
    memset(m, 0, COUNT * sizeof *m);
    for (int step = 0; step < STEPS; step++) {
        float *gradient = values_normal(10 + (uint64_t)step, LS_F32, COUNT, 2);
        struct ls_update update = {.count = COUNT,
                                   .master = p,
                                   .compute = compute,
                                   .compute_type = LS_BF16,
                                   .gradient = gradient,
                                   .gradient_scale = 0.125f,
                                   .lr = 0.01f,
                                   .weight_decay = 0.1f};
        const struct ls_muon_momentum op = {0.95f, nesterov};
        for (int i = 0; i < COUNT; i++) {
            double g = 0.125 * (double)gradient[i];
            want_m[i] = mu * want_m[i] + (1 - mu) * g;
            want[i] = nesterov ? (1 - mu) * g + mu * want_m[i] : want_m[i];
            want_p[i] -= lr * decay * want_p[i] + lr * 3 * want[i];
        }
        ls_muon_momentum(&ops_best, &update, &op, m, direction);
        assert_near("direction", LS_F32, direction, want, COUNT, 1e-6);
        ls_muon_update(&ops_best, &update, 3, direction);
        free(gradient);
    }
    assert_near("momentum", LS_F32, m, want_m, COUNT, 1e-6);
    assert_near("parameters", LS_F32, p, want_p, COUNT, 1e-6);
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(compute[i], ls_f32_to_bf16(p[i]));
    free(m), free(direction), free(p), free(want_m), free(want_p);
}

CASE(test_momentum_and_step)
{
    check_momentum(true);
    check_momentum(false);
}

/* The direction may replace the gradient. */
CASE(test_a_direction_in_the_gradient_s_place)
{
    float *apart = values_normal(1, LS_F32, COUNT, 1),
          *in_place = values_normal(1, LS_F32, COUNT, 1);
    float out[COUNT], m[2][COUNT] = {{0}};
    const struct ls_muon_momentum op = {0.9f, true};
    struct ls_update update = {.count = COUNT, .gradient = apart, .gradient_scale = 0.5f};
    ls_muon_momentum(&ops_best, &update, &op, m[0], out);
    update.gradient = in_place;
    ls_muon_momentum(&ops_best, &update, &op, m[1], in_place);
    assert_memory_equal(out, in_place, sizeof out);
    assert_memory_equal(m[0], m[1], sizeof m[0]);
    free(apart), free(in_place);
}

/* ---- bits ------------------------------------------------------------------------------------ */

static void run_newton_schulz(struct ls_ops *ops, int pieces, void *context, void *out)
{
    const struct ls_newton_schulz *op = context;
    float *from = values_normal(7, LS_F32, op->rows * op->cols, 1);
    float *got = orthogonal(ops, op, from);
    memcpy(out, got, (size_t)(op->rows * op->cols) * sizeof *got);
    free(from), free(got);
}

enum { MANY = 40017 };
static void run_elementwise(struct ls_ops *ops, int pieces, void *context, void *out)
{
    const float *gradient = context;
    float *master = out, *m = master + MANY, *direction = m + MANY;
    memset(out, 0, 3 * MANY * sizeof *master);
    for (int step = 1; step <= 2; step++)
        for (int piece = 0; piece < pieces; piece++) {
            int64_t at = piece * 12345, end = piece == pieces - 1 ? MANY : 12345;
            struct ls_update update = {.count = end - at,
                                       .master = master + at,
                                       .gradient = gradient + at,
                                       .gradient_scale = 0.3f,
                                       .lr = 0.01f,
                                       .weight_decay = 0.1f};
            const struct ls_muon_momentum op = {0.95f, step == 2};
            ls_muon_momentum(ops, &update, &op, m + at, direction + at);
            ls_muon_update(ops, &update, 0.7f, direction + at);
        }
}

CASE(test_bits)
{
    static struct ls_newton_schulz ops[] = {{130, 70, 3}, {270, 290, 2}, {64, 64, 5}, {1, 50, 5}};
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        struct bits_case bits = {"Newton-Schulz", (size_t)(ops[i].rows * ops[i].cols) * 4, false,
                                 run_newton_schulz, &ops[i]};
        assert_bits_same(&bits);
    }
    float *gradient = values_normal(8, LS_F32, MANY, 1);
    struct bits_case bits = {"momentum and step", 3 * MANY * 4, false, run_elementwise, gradient};
    assert_bits_same(&bits);
    free(gradient);
}

SUITE_MAIN(ops_best_setup, ops_best_teardown)
