/* Element by element: against plain formulas in double, gradients against central differences, and
 * bits over instruction sets, threads and cuts. */
#include "../support/suite.h"
#include "gradient.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ACTS = 3 };
static const enum ls_dtype acts[ACTS] = {LS_F32, LS_BF16, LS_F16};
/* Relative error of a result that is rounded once to act. */
static double tolerance_of(enum ls_dtype act)
{
    return act == LS_F32 ? 1e-6 : act == LS_BF16 ? 4e-3 : 5e-4;
}

/* ---- GELU ------------------------------------------------------------------------------------ */

static double gelu_reference(enum ls_gelu kind, double x)
{
    if (kind == LS_GELU_ERF)
        return x * 0.5 * (1 + erf(x / sqrt(2)));
    return x * 0.5 * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
}

CASE(test_gelu)
{
    enum { COUNT = 1037 };
    for (int kind = LS_GELU_TANH; kind <= LS_GELU_ERF; kind++)
        for (int a = 0; a < ACTS; a++) {
            enum ls_dtype act = acts[a];
            void *x = values_normal(1, act, COUNT, 2), *dy = values_normal(2, act, COUNT, 1);
            void *y = values_new(COUNT * 4);
            double *x64 = values_in_double(act, x, COUNT), *dy64 = values_in_double(act, dy, COUNT);
            double want[COUNT];
            ls_gelu_forward(&ops_best, (enum ls_gelu)kind, act, COUNT, x, y);
            for (int i = 0; i < COUNT; i++)
                want[i] = gelu_reference((enum ls_gelu)kind, x64[i]);
            assert_near("gelu", act, y, want, COUNT, tolerance_of(act));
            ls_gelu_backward(&ops_best, (enum ls_gelu)kind, act, COUNT, x, dy, y);
            for (int i = 0; i < COUNT; i++)
                want[i] = dy64[i] *
                          (gelu_reference((enum ls_gelu)kind, x64[i] + 1e-5) -
                           gelu_reference((enum ls_gelu)kind, x64[i] - 1e-5)) /
                          2e-5;
            assert_near("gelu backward", act, y, want, COUNT, tolerance_of(act));
            assert_gradient_near("gelu backward", act, y, want, COUNT, tolerance_of(act));
            ls_gelu_backward(&ops_best, (enum ls_gelu)kind, act, COUNT, x, dy, dy);
            assert_memory_equal(dy, y, COUNT * ls_dtype_bytes(act));
            free(x), free(dy), free(y), free(x64), free(dy64);
        }
}

CASE(test_gelu_far_out)
{
    const float x[6] = {-200, -30, -9, 9, 30, 200};
    float y[6];
    for (int kind = LS_GELU_TANH; kind <= LS_GELU_ERF; kind++) {
        ls_gelu_forward(&ops_best, (enum ls_gelu)kind, LS_F32, 6, x, y);
        for (int i = 0; i < 6; i++)
            if (!(fabs(y[i] - gelu_reference((enum ls_gelu)kind, x[i])) <= 1e-6 * fabs(x[i])))
                fail_msg("gelu(%g) = %g", (double)x[i], (double)y[i]);
    }
}

/* ---- SwiGLU and GeGLU
 * ---------------------------------------------------------------------------------- */

struct glu {
    bool gelu;
    int64_t rows, width;
    double *gate_up, *dy;
};

static double gated(bool gelu, double gate)
{
    double u = sqrt(2 / acos(-1)) * (gate + 0.044715 * gate * gate * gate);
    return gelu ? gate * (1 + tanh(u)) / 2 : gate / (1 + exp(-gate));
}

static double glu_loss(void *context)
{
    struct glu *op = context;
    double loss = 0;
    for (int64_t r = 0; r < op->rows; r++)
        for (int64_t i = 0; i < op->width; i++) {
            double gate = op->gate_up[r * 2 * op->width + i];
            double up = op->gate_up[r * 2 * op->width + op->width + i];
            loss += op->dy[r * op->width + i] * gated(op->gelu, gate) * up;
        }
    return loss;
}

static void check_glu(bool gelu, enum ls_dtype act)
{
    enum { ROWS = 3, WIDTH = 37, COUNT = ROWS * WIDTH };
    enum ls_glu kind = gelu ? LS_GEGLU : LS_SWIGLU;
    void *gate_up = values_normal(3, act, 2 * COUNT, 2), *dy = values_normal(4, act, COUNT, 1);
    float y[2 * COUNT];
    struct glu op = {gelu, ROWS, WIDTH, values_in_double(act, gate_up, 2 * COUNT),
                     values_in_double(act, dy, COUNT)};
    double want[2 * COUNT];
    for (int i = 0; i < COUNT; i++) {
        const double *row = op.gate_up + i / WIDTH * 2 * WIDTH;
        want[i] = gated(gelu, row[i % WIDTH]) * row[WIDTH + i % WIDTH];
    }
    ls_glu_forward(&ops_best, kind, act, ROWS, WIDTH, gate_up, y);
    assert_near("gated unit", act, y, want, COUNT, tolerance_of(act));
    gradient_by_differences(glu_loss, &op, op.gate_up, 2 * COUNT, 1e-4, want);
    ls_glu_backward(&ops_best, kind, act, ROWS, WIDTH, gate_up, dy, y);
    assert_near("gated unit, backward", act, y, want, 2 * COUNT, tolerance_of(act));
    assert_gradient_near("gated unit, backward", act, y, want, 2 * COUNT, tolerance_of(act));
    ls_glu_backward(&ops_best, kind, act, ROWS, WIDTH, gate_up, dy, gate_up);
    assert_memory_equal(gate_up, y, 2 * COUNT * ls_dtype_bytes(act));
    free(gate_up), free(dy), free(op.gate_up), free(op.dy);
}

CASE(test_gated_units)
{
    for (int a = 0; a < ACTS; a++) {
        check_glu(false, acts[a]);
        check_glu(true, acts[a]);
    }
}

/* ---- soft cap, scale ------------------------------------------------------------------------- */

CASE(test_softcap_and_scale)
{
    enum { COUNT = 700 };
    for (int a = 0; a < ACTS; a++) {
        void *x = values_normal(3, acts[a], COUNT, 40);
        double *in = values_in_double(acts[a], x, COUNT), want[COUNT];
        float y[COUNT];
        for (int i = 0; i < COUNT; i++)
            want[i] = 30 * tanh(in[i] / 30);
        ls_softcap(&ops_best, acts[a], COUNT, 30, x, y);
        assert_near("softcap", acts[a], y, want, COUNT, tolerance_of(acts[a]));
        for (int i = 0; i < COUNT; i++)
            want[i] = 3.25 * in[i];
        ls_scale(&ops_best, acts[a], COUNT, 3.25f, x, y);
        assert_near("scale", acts[a], y, want, COUNT, tolerance_of(acts[a]));
        ls_softcap(&ops_best, acts[a], COUNT, 30, x, y);
        ls_softcap(&ops_best, acts[a], COUNT, 30, x, x); /* in place */
        assert_memory_equal(x, y, COUNT * ls_dtype_bytes(acts[a]));
        free(x), free(in);
    }
}

/* ---- bias ------------------------------------------------------------------------------------ */

/* One sequence's sum of a column whose first value is at `at`: groups from zero, the tree over
 * those of a tile, the tree over tiles. */
static float sequence_reference(const double *at, int64_t ld, const struct ls_token_sum *sum)
{
    float tiles[8], groups[8];
    for (int64_t tile = 0; tile < sum->tiles; tile++, at += sum->tokens * ld) {
        memset(groups, 0, sizeof groups);
        for (int64_t t = 0; t < sum->tokens; t++)
            groups[t / LS_TOKEN_TILE] += (float)at[t * ld];
        tiles[tile] = ls_tree_sum(groups, ls_ceil_div(sum->tokens, LS_TOKEN_TILE));
    }
    return ls_tree_sum(tiles, sum->tiles);
}

/* The order of ls_token_sum written down, to the bit. */
static void token_sum_reference(enum ls_dtype act, const void *dy, int64_t n, int64_t ld,
                                const struct ls_token_sum *sum, float *out)
{
    double *wide = values_in_double(act, dy, ls_token_rows(sum) * ld);
    for (int64_t c = 0; c < n; c++) {
        const double *at = wide + c;
        for (int64_t leaf = 0; leaf < sum->leaves; leaf++) {
            float value = 0;
            for (int64_t i = 0; i < sum->sequences; i++, at += sum->tiles * sum->tokens * ld) {
                float sequence = sequence_reference(at, ld, sum);
                if (sum->onto == LS_ONTO_CHAIN)
                    out[c] += sequence;
                else
                    value = i ? value + sequence : sequence;
            }
            if (sum->onto != LS_ONTO_CHAIN)
                out[c] = leaf || sum->onto == LS_ONTO_SUM ? out[c] + value : value;
        }
    }
    free(wide);
}

CASE(test_bias_backward_is_the_ordered_sum)
{
    const struct ls_token_sum sums[] = {
        {1, 1, 1, 1, LS_ONTO_NOTHING}, {1, 1, 1, 15, LS_ONTO_NOTHING},
        {1, 1, 1, 16, LS_ONTO_SUM},    {3, 2, 1, 33, LS_ONTO_NOTHING},
        {2, 3, 1, 100, LS_ONTO_SUM},   {5, 1, 1, 113, LS_ONTO_NOTHING},
        {3, 1, 4, 32, LS_ONTO_SUM},    {2, 2, 2, 48, LS_ONTO_NOTHING},
        {1, 3, 1, 40, LS_ONTO_CHAIN},  {1, 2, 4, 16, LS_ONTO_CHAIN}};
    enum { N = 75, LD = 80 };
    for (int a = 0; a < ACTS; a++)
        for (size_t s = 0; s < sizeof sums / sizeof *sums; s++) {
            const struct ls_token_sum *sum = &sums[s];
            int64_t rows = ls_token_rows(sum);
            void *dy = values_normal(5, acts[a], rows * LD, 1);
            float got[N], want[N];
            for (int c = 0; c < N; c++)
                got[c] = want[c] = 0.37f * (float)c;
            ls_bias_backward(&ops_best, acts[a], N, LD, dy, sum, got);
            token_sum_reference(acts[a], dy, N, LD, sum, want);
            for (int c = 0; c < N; c++)
                if (got[c] != want[c])
                    fail_msg("sum %zu, column %d: %.9g, ordered %.9g", s, c, (double)got[c],
                             (double)want[c]);
            free(dy);
        }
}

/* ---- dropout --------------------------------------------------------------------------------- */

CASE(test_dropout_is_philox_by_token_and_channel)
{
    enum { ROWS = 5, CHANNELS = 1031 };
    struct ls_dropout op = {{{11, 22}}, 0.3f, ROWS, CHANNELS, (1ll << 32) - 2};
    float *x = values_normal(6, LS_F32, ROWS * CHANNELS, 1), y[ROWS * CHANNELS];
    ls_dropout(&ops_best, LS_F32, &op, x, y);
    for (int64_t r = 0; r < ROWS; r++)
        for (int64_t c = 0; c < CHANNELS; c++) {
            uint64_t token = (uint64_t)(op.first_row + r);
            uint32_t out[4],
                counter[4] = {(uint32_t)(c / 4), 0, (uint32_t)token, (uint32_t)(token >> 32)};
            ls_philox(op.key, counter, out);
            float want = ls_uniform_of(out[c % 4]) >= op.p
                             ? x[r * CHANNELS + c] * (1.0f / (1.0f - op.p))
                             : 0.0f;
            if (y[r * CHANNELS + c] != want)
                fail_msg("row %lld channel %lld: %.9g, by ls_philox %.9g", (long long)r,
                         (long long)c, (double)y[r * CHANNELS + c], (double)want);
        }
    free(x);
}

CASE(test_dropout_statistics_and_backward)
{
    enum { ROWS = 64, CHANNELS = 1024, COUNT = ROWS * CHANNELS };
    for (int a = 0; a < ACTS; a++) {
        struct ls_dropout op = {ls_philox_key_of(9, "dropout:0"), 0.25f, ROWS, CHANNELS, 0};
        float *ones32 = values_new(COUNT * sizeof(float));
        for (int i = 0; i < COUNT; i++)
            ones32[i] = 1.5f;
        void *ones = ones32, *y = values_new(COUNT * 4), *dx = values_new(COUNT * 4);
        if (acts[a] != LS_F32) {
            ones = values_new(COUNT * 2);
            ls_cast_to_half(&ops_best, acts[a], COUNT, ones32, ones);
        }
        ls_dropout(&ops_best, acts[a], &op, ones, y);
        double *y64 = values_in_double(acts[a], y, COUNT), kept = 0, sum = 0;
        for (int i = 0; i < COUNT; i++) {
            kept += y64[i] != 0;
            sum += y64[i];
        }
        /* 0.75 kept; standard deviation of the share is 0.0017. */
        assert_true(fabs(kept / COUNT - 0.75) < 0.007);
        assert_true(fabs(sum / COUNT - 1.5) < 0.015);
        /* Backward of dy = x is the same call: the same elements. In place too. */
        memcpy(dx, ones, COUNT * ls_dtype_bytes(acts[a]));
        ls_dropout(&ops_best, acts[a], &op, dx, dx);
        assert_memory_equal(dx, y, COUNT * ls_dtype_bytes(acts[a]));
        /* Another key drops others; p = 0 keeps all. */
        op.key = ls_philox_key_of(9, "dropout:1");
        ls_dropout(&ops_best, acts[a], &op, ones, dx);
        assert_memory_not_equal(dx, y, COUNT * ls_dtype_bytes(acts[a]));
        op.p = 0;
        ls_dropout(&ops_best, acts[a], &op, ones, dx);
        assert_memory_equal(dx, ones, COUNT * ls_dtype_bytes(acts[a]));
        if (ones != ones32)
            free(ones);
        free(ones32), free(y), free(dx), free(y64);
    }
}

/* ---- add, casts, tree add, zero -------------------------------------------------------------- */

CASE(test_add_and_casts)
{
    enum { COUNT = 40003 };
    float *x = values_normal(7, LS_F32, COUNT, 3), *z = values_normal(8, LS_F32, COUNT, 3);
    x[5] = NAN, x[6] = INFINITY, x[7] = -0.0f, x[8] = 3.4e38f, x[9] = 1e-40f, x[10] = -NAN;
    float *y = values_new(COUNT * 4);
    ls_bf16 *half = values_new(COUNT * 2), *half_z = values_new(COUNT * 2);
    ls_cast_to_half(&ops_best, LS_BF16, COUNT, x, half);
    ls_cast_to_half(&ops_best, LS_BF16, COUNT, z, half_z);
    ls_cast_from_half(&ops_best, LS_BF16, COUNT, half, y);
    for (int i = 0; i < COUNT; i++) {
        float back = ls_bf16_to_f32(half[i]);
        assert_int_equal(half[i], ls_f32_to_bf16(x[i]));
        assert_memory_equal(&y[i], &back, 4);
    }
    ls_add(&ops_best, LS_F32, COUNT, x, z, y);
    for (int i = 0; i < COUNT; i++)
        assert_true(y[i] == x[i] + z[i] || isnan(x[i]));
    ls_tree_add(&ops_best, COUNT, x, z);
    assert_memory_equal(x, y, COUNT * 4);
    ls_bf16 *sum = values_new(COUNT * 2);
    ls_add(&ops_best, LS_BF16, COUNT, half, half_z, sum);
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(sum[i],
                         ls_f32_to_bf16(ls_bf16_to_f32(half[i]) + ls_bf16_to_f32(half_z[i])));
    ls_add(&ops_best, LS_BF16, COUNT, half, half_z, half);
    assert_memory_equal(half, sum, COUNT * 2);
    ls_fill_zero(&ops_best, COUNT * 4 - 1, y);
    for (int i = 0; i < COUNT * 4 - 1; i++)
        assert_int_equal(((unsigned char *)y)[i], 0);
    assert_int_not_equal(((unsigned char *)y)[COUNT * 4 - 1], 0);
    free(x), free(z), free(y), free(half), free(half_z), free(sum);
}

/* Exactly the rows' bytes move: small and shared among threads, dense and not, off any alignment.
 */
CASE(test_copies)
{
    static const struct {
        int64_t rows;
        size_t row_bytes, from_distance, to_distance;
    } cases[] = {{1, 1, 1, 1},
                 {3, 5, 7, 5},
                 {3, 5, 5, 9},
                 {0, 8, 8, 16},
                 {4, 0, 8, 16},
                 {300, 999, 1003, 999},
                 {301, 999, 999, 1001},
                 {300, 1000, 1000, 1000},
                 {2, 100001, 100003, 100001}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t rows = (size_t)cases[i].rows, bytes = cases[i].row_bytes;
        size_t from_distance = cases[i].from_distance, to_distance = cases[i].to_distance;
        float *values = values_normal(i + 1, LS_F32, 100003, 1);
        unsigned char *from = (unsigned char *)values + 1, *want = values_new(400013);
        unsigned char *got = values_new(400013);
        for (size_t row = 0; row < rows; row++)
            for (size_t at = 0; at < bytes; at++)
                want[1 + row * to_distance + at] = from[row * from_distance + at];
        ls_copy_rows(&ops_best, cases[i].rows, bytes, from, from_distance, got + 1, to_distance);
        assert_memory_equal(got, want, 400013);
        memset(want + 1, 0x5a, rows * to_distance);
        memset(got + 1, 0x5a, rows * to_distance);
        for (size_t at = 0; at < rows * bytes; at++)
            want[1 + at] = from[at];
        ls_copy(&ops_best, rows * bytes, from, got + 1);
        assert_memory_equal(got, want, 400013);
        free(values), free(want), free(got);
    }
}

CASE(test_nothing_is_allowed)
{
    float guard = 7, none = 3;
    struct ls_dropout dropout = {{{1, 2}}, 0.5f, 0, 10, 0};
    ls_gelu_forward(&ops_best, LS_GELU_TANH, LS_F32, 0, &none, &guard);
    ls_add(&ops_best, LS_F32, 0, &none, &none, &guard);
    ls_dropout(&ops_best, LS_F32, &dropout, &none, &guard);
    ls_glu_forward(&ops_best, LS_SWIGLU, LS_F32, 0, 10, &none, &guard);
    ls_fill_zero(&ops_best, 0, &guard);
    ls_copy(&ops_best, 0, NULL, &guard);
    ls_copy_rows(&ops_best, 0, 4, NULL, 8, &guard, 8);
    assert_true(guard == 7);
    struct ls_token_sum no_rows = {0, 1, 1, 16, LS_ONTO_NOTHING};
    ls_bias_backward(&ops_best, LS_F32, 1, 1, &none, &no_rows, &guard);
    assert_true(guard == 0);
}

/* ---- bits ------------------------------------------------------------------------------------ */

struct bits_values {
    enum ls_dtype act;
    int64_t rows, channels;
    void *x, *dy;
};

static void run_elementwise(struct ls_ops *ops, int pieces, void *context, void *out)
{
    struct bits_values *v = context;
    size_t bytes = ls_dtype_bytes(v->act);
    for (int piece = 0; piece < pieces; piece++) {
        /* Cut after a row count that is no multiple of anything. */
        int64_t first = piece * 7, rows = pieces == 1 ? v->rows : piece == 0 ? 7 : v->rows - 7;
        int64_t at = first * v->channels, n = rows * v->channels;
        char *x = (char *)v->x + (size_t)at * bytes, *dy = (char *)v->dy + (size_t)at * bytes;
        size_t stride = (size_t)(v->rows * v->channels) * bytes;
        char *to = (char *)out + (size_t)at * bytes;
        for (int kind = LS_GELU_TANH; kind <= LS_GELU_ERF; kind++, to += 2 * stride) {
            ls_gelu_forward(ops, (enum ls_gelu)kind, v->act, n, x, to);
            ls_gelu_backward(ops, (enum ls_gelu)kind, v->act, n, x, dy, to + stride);
        }
        ls_add(ops, v->act, n, x, dy, to);
        struct ls_dropout dropout = {{{1, 2}}, 0.1f, rows, v->channels, 1000 + first};
        ls_dropout(ops, v->act, &dropout, x, to + stride);
        char *swiglu = (char *)out + 6 * stride + (size_t)at * bytes / 2;
        ls_glu_forward(ops, LS_SWIGLU, v->act, rows, v->channels / 2, x, swiglu);
        char *d_swiglu = (char *)out + 7 * stride + (size_t)at * bytes;
        ls_glu_backward(ops, LS_SWIGLU, v->act, rows, v->channels / 2, x,
                        (char *)v->dy + (size_t)at * bytes / 2, d_swiglu);
        ls_glu_forward(ops, LS_GEGLU, v->act, rows, v->channels / 2, x, swiglu + stride / 2);
        ls_glu_backward(ops, LS_GEGLU, v->act, rows, v->channels / 2, x,
                        (char *)v->dy + (size_t)at * bytes / 2, d_swiglu + stride);
        ls_softcap(ops, v->act, n, 3, x, d_swiglu + 2 * stride);
        ls_scale(ops, v->act, n, 3, x, d_swiglu + 3 * stride);
    }
}

static void run_bias(struct ls_ops *ops, int pieces, void *context, void *out)
{
    struct bits_values *v = context;
    /* Cut by columns. */
    int64_t cut = pieces == 1 ? v->channels : 29;
    struct ls_token_sum sum = {3, 1, 1, v->rows / 3, LS_ONTO_NOTHING};
    ls_bias_backward(ops, v->act, cut, v->channels, v->x, &sum, out);
    if (pieces == 2)
        ls_bias_backward(ops, v->act, v->channels - cut, v->channels,
                         (char *)v->x + (size_t)cut * ls_dtype_bytes(v->act), &sum,
                         (float *)out + cut);
}

CASE(test_bits)
{
    for (int a = 0; a < ACTS; a++) {
        int64_t rows = 63, channels = 602, count = rows * channels;
        struct bits_values v = {acts[a], rows, channels, values_normal(1, acts[a], count, 2),
                                values_normal(2, acts[a], count, 2)};
        struct bits_case elementwise = {"elementwise", 11 * (size_t)count * ls_dtype_bytes(acts[a]),
                                        false, run_elementwise, &v};
        assert_bits_same(&elementwise);
        struct bits_case bias = {"bias", (size_t)channels * 4, false, run_bias, &v};
        assert_bits_same(&bias);
        free(v.x), free(v.dy);
    }
}

SUITE_MAIN(ops_best_setup, ops_best_teardown)
