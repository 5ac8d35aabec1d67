/* LayerNorm and RMSNorm: against formulas in double, gradients by central differences, the order of
 * the weight gradient's sum, and bits over instruction sets, threads and cuts. */
#include "../support/suite.h"
#include "gradient.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define EPSILON 1e-5f

enum { ACTS = 3 };
static const enum ls_dtype acts[ACTS] = {LS_F32, LS_BF16, LS_F16};
static double tolerance_of(enum ls_dtype act)
{
    return act == LS_F32 ? 2e-6 : act == LS_BF16 ? 5e-3 : 6e-4;
}

/* ---- reference ------------------------------------------------------------------------------- */

struct reference {
    bool centered;
    int64_t rows, channels;
    double *h, *weight, *bias, *dy; /* bias NULL for none */
};

static void reference_row(const struct reference *op, int64_t row, double *y)
{
    const double *h = op->h + row * op->channels;
    double mean = 0, square = 0;
    for (int64_t c = 0; c < op->channels && op->centered; c++)
        mean += h[c] / (double)op->channels;
    for (int64_t c = 0; c < op->channels; c++)
        square += (h[c] - mean) * (h[c] - mean) / (double)op->channels;
    for (int64_t c = 0; c < op->channels; c++)
        y[c] = (h[c] - mean) / sqrt(square + (double)EPSILON) * op->weight[c] +
               (op->bias ? op->bias[c] : 0);
}

/* sum of dy * y: its gradients are the op's backward. */
static double reference_loss(void *context)
{
    const struct reference *op = context;
    double loss = 0, *y = values_new((size_t)op->channels * sizeof *y);
    for (int64_t row = 0; row < op->rows; row++) {
        reference_row(op, row, y);
        for (int64_t c = 0; c < op->channels; c++)
            loss += op->dy[row * op->channels + c] * y[c];
    }
    free(y);
    return loss;
}

/* ---- forward --------------------------------------------------------------------------------- */

struct data {
    enum ls_dtype act;
    int64_t rows, channels;
    void *x, *residual, *dy;
    float *weight, *bias, *mean, *rstd;
};

static struct data data_new(enum ls_dtype act, int64_t rows, int64_t channels)
{
    int64_t count = rows * channels;
    struct data data = {act,
                        rows,
                        channels,
                        values_normal(1, act, count, 1),
                        values_normal(2, act, count, 0.7),
                        values_normal(3, act, count, 1),
                        values_normal(4, LS_F32, channels, 1),
                        values_normal(5, LS_F32, channels, 1),
                        values_new((size_t)rows * 4),
                        values_new((size_t)rows * 4)};
    return data;
}

static void data_free(struct data *data)
{
    free(data->x), free(data->residual), free(data->dy), free(data->weight), free(data->bias);
    free(data->mean), free(data->rstd);
}

static struct ls_norm norm_of(const struct data *data, bool centered)
{
    return (struct ls_norm){.rows = data->rows,
                            .channels = data->channels,
                            .act = data->act,
                            .epsilon = EPSILON,
                            .weight = data->weight,
                            .bias = centered ? data->bias : NULL,
                            .mean = data->mean,
                            .rstd = data->rstd};
}

static const int64_t shapes[][2] = {{1, 1}, {1, 15}, {3, 16}, {2, 100}, {4, 513}, {3, 1040}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void check_forward(bool centered, enum ls_dtype act, int64_t rows, int64_t channels)
{
    struct data data = data_new(act, rows, channels);
    struct ls_norm norm = norm_of(&data, centered);
    int64_t count = rows * channels;
    void *sum = values_new((size_t)count * 4), *y = values_new((size_t)count * 4);
    void *y_plain = values_new((size_t)count * 4), *added = values_new((size_t)count * 4);
    double *want = values_new((size_t)count * sizeof *want);
    if (centered)
        ls_layernorm_forward(&ops_best, &norm, data.x, data.residual, sum, y);
    else
        ls_rmsnorm_forward(&ops_best, &norm, data.x, data.residual, sum, y);
    /* The sum is ls_add's, and the norm of the sum alone gives the same bits. */
    ls_add(&ops_best, act, count, data.x, data.residual, added);
    assert_memory_equal(sum, added, (size_t)count * ls_dtype_bytes(act));
    if (centered)
        ls_layernorm_forward(&ops_best, &norm, sum, NULL, NULL, y_plain);
    else
        ls_rmsnorm_forward(&ops_best, &norm, sum, NULL, NULL, y_plain);
    assert_memory_equal(y, y_plain, (size_t)count * ls_dtype_bytes(act));
    /* sum may be x or residual. */
    for (int i = 0; i < 2; i++) {
        void *x = values_normal(1, act, count, 1), *residual = values_normal(2, act, count, 0.7);
        void *in_place = i ? residual : x;
        if (centered)
            ls_layernorm_forward(&ops_best, &norm, x, residual, in_place, y_plain);
        else
            ls_rmsnorm_forward(&ops_best, &norm, x, residual, in_place, y_plain);
        assert_memory_equal(in_place, sum, (size_t)count * ls_dtype_bytes(act));
        assert_memory_equal(y, y_plain, (size_t)count * ls_dtype_bytes(act));
        free(x), free(residual);
    }
    struct reference op = {centered,
                           rows,
                           channels,
                           values_in_double(act, sum, count),
                           values_in_double(LS_F32, data.weight, channels),
                           centered ? values_in_double(LS_F32, data.bias, channels) : NULL,
                           NULL};
    for (int64_t row = 0; row < rows; row++)
        reference_row(&op, row, want + row * channels);
    assert_near("norm forward", act, y, want, count, tolerance_of(act));
    free(op.h), free(op.weight), free(op.bias);
    free(sum), free(y), free(y_plain), free(added), free(want);
    data_free(&data);
}

CASE(test_forward)
{
    for (int s = 0; s < SHAPES; s++)
        for (int a = 0; a < ACTS; a++)
            for (int centered = 0; centered < 2; centered++)
                check_forward(centered, acts[a], shapes[s][0], shapes[s][1]);
}

/* A large mean must not eat the variance. */
CASE(test_large_mean)
{
    enum { CHANNELS = 768 };
    struct data data = data_new(LS_F32, 1, CHANNELS);
    struct ls_norm norm = norm_of(&data, true);
    float *x = data.x, y[CHANNELS];
    double want[CHANNELS];
    for (int c = 0; c < CHANNELS; c++)
        x[c] = x[c] * 0.25f + 4096;
    ls_layernorm_forward(&ops_best, &norm, x, NULL, NULL, y);
    struct reference op = {true,
                           1,
                           CHANNELS,
                           values_in_double(LS_F32, x, CHANNELS),
                           values_in_double(LS_F32, data.weight, CHANNELS),
                           values_in_double(LS_F32, data.bias, CHANNELS),
                           NULL};
    reference_row(&op, 0, want);
    assert_near("layernorm, mean 4096", LS_F32, y, want, CHANNELS, 1e-3);
    free(op.h), free(op.weight), free(op.bias);
    data_free(&data);
}

/* ---- backward -------------------------------------------------------------------------------- */

static void check_backward(bool centered, bool with_bias, bool around, enum ls_dtype act,
                           int64_t rows, int64_t channels)
{
    struct data data = data_new(act, rows, channels);
    struct ls_norm norm = norm_of(&data, centered);
    if (!with_bias)
        norm.bias = NULL;
    int64_t count = rows * channels;
    void *y = values_new((size_t)count * 4), *dh = values_new((size_t)count * 4);
    float *d_weight = values_new((size_t)channels * 4), *d_bias = values_new((size_t)channels * 4);
    double *want = values_new((size_t)count * sizeof *want);
    struct ls_token_sum sum = {1, 1, 1, rows, LS_ONTO_NOTHING};
    const void *d_residual = around ? data.residual : NULL;
    if (centered) {
        ls_layernorm_forward(&ops_best, &norm, data.x, NULL, NULL, y);
        ls_layernorm_backward_input(&ops_best, &norm, data.x, data.dy, d_residual, dh);
        ls_layernorm_backward_weight(&ops_best, &norm, data.x, data.dy, &sum, d_weight,
                                     with_bias ? d_bias : NULL);
    } else {
        ls_rmsnorm_forward(&ops_best, &norm, data.x, NULL, NULL, y);
        ls_rmsnorm_backward_input(&ops_best, &norm, data.x, data.dy, d_residual, dh);
        ls_rmsnorm_backward_weight(&ops_best, &norm, data.x, data.dy, &sum, d_weight);
    }
    struct reference op = {centered,
                           rows,
                           channels,
                           values_in_double(act, data.x, count),
                           values_in_double(LS_F32, data.weight, channels),
                           with_bias ? values_in_double(LS_F32, data.bias, channels) : NULL,
                           values_in_double(act, data.dy, count)};
    gradient_by_differences(reference_loss, &op, op.h, count, 1e-4, want);
    double *flows = values_in_double(act, data.residual, count);
    for (int64_t i = 0; i < count && around; i++)
        want[i] += flows[i];
    assert_near("norm backward input", act, dh, want, count, tolerance_of(act));
    assert_gradient_near("norm backward input", act, dh, want, count, tolerance_of(act));
    gradient_by_differences(reference_loss, &op, op.weight, channels, 1e-3, want);
    assert_near("norm backward weight", LS_F32, d_weight, want, channels, 2e-6);
    if (with_bias) {
        gradient_by_differences(reference_loss, &op, op.bias, channels, 1e-3, want);
        assert_near("norm backward bias", LS_F32, d_bias, want, channels, 2e-6);
    }
    /* dh may be d_residual or dy. */
    if (around) {
        if (centered)
            ls_layernorm_backward_input(&ops_best, &norm, data.x, data.dy, d_residual,
                                        data.residual);
        else
            ls_rmsnorm_backward_input(&ops_best, &norm, data.x, data.dy, d_residual, data.residual);
        assert_memory_equal(data.residual, dh, (size_t)count * ls_dtype_bytes(act));
    } else {
        if (centered)
            ls_layernorm_backward_input(&ops_best, &norm, data.x, data.dy, NULL, data.dy);
        else
            ls_rmsnorm_backward_input(&ops_best, &norm, data.x, data.dy, NULL, data.dy);
        assert_memory_equal(data.dy, dh, (size_t)count * ls_dtype_bytes(act));
    }
    free(op.h), free(op.weight), free(op.bias), free(op.dy), free(flows);
    free(y), free(dh), free(d_weight), free(d_bias), free(want);
    data_free(&data);
}

CASE(test_backward_against_differences)
{
    for (int a = 0; a < ACTS; a++)
        for (int around = 0; around < 2; around++) {
            check_backward(true, true, around, acts[a], 5, 50);
            check_backward(true, false, around, acts[a], 2, 33);
            check_backward(false, false, around, acts[a], 5, 50);
            check_backward(false, false, around, acts[a], 1, 600);
        }
}

/* A backward that forgets how the mean depends on its input must not pass. */
CASE(test_broken_twin_is_seen)
{
    enum { ROWS = 4, CHANNELS = 24, COUNT = ROWS * CHANNELS };
    struct data data = data_new(LS_F32, ROWS, CHANNELS);
    struct ls_norm norm = norm_of(&data, true);
    float y[COUNT], dh[COUNT];
    double want[COUNT];
    ls_layernorm_forward(&ops_best, &norm, data.x, NULL, NULL, y);
    /* RMSNorm's backward on h - mean is LayerNorm's without the mean's share. */
    float *h = data.x;
    for (int i = 0; i < COUNT; i++)
        h[i] -= data.mean[i / CHANNELS];
    ls_rmsnorm_backward_input(&ops_best, &norm, h, data.dy, NULL, dh);
    struct reference op = {true,
                           ROWS,
                           CHANNELS,
                           values_in_double(LS_F32, h, COUNT),
                           values_in_double(LS_F32, data.weight, CHANNELS),
                           NULL,
                           values_in_double(LS_F32, data.dy, COUNT)};
    gradient_by_differences(reference_loss, &op, op.h, COUNT, 1e-4, want);
    assert_false(gradient_near("broken twin", LS_F32, dh, want, COUNT, 1e-2));
    free(op.h), free(op.weight), free(op.dy);
    data_free(&data);
}

/* ---- order and bits -------------------------------------------------------------------------- */

/* Leaves and tokens of any count: the sum of a whole is the chain over its leaves, however
 * micro-batches cut it. */
CASE(test_weight_sum_is_a_chain_of_leaves)
{
    enum { LEAVES = 7, SEQUENCES = 3, TOKENS = 37, CHANNELS = 19 };
    enum { LEAF_ROWS = SEQUENCES * TOKENS };
    struct data data = data_new(LS_F32, LEAVES * LEAF_ROWS, CHANNELS);
    struct ls_norm norm = norm_of(&data, true);
    float *y = values_new((size_t)data.rows * CHANNELS * 4), *x = data.x, *dy = data.dy;
    float whole[2][CHANNELS], chain[2][CHANNELS] = {{0}};
    struct ls_token_sum sum = {LEAVES, SEQUENCES, 1, TOKENS, LS_ONTO_NOTHING};
    ls_layernorm_forward(&ops_best, &norm, x, NULL, NULL, y);
    ls_layernorm_backward_weight(&ops_best, &norm, x, dy, &sum, whole[0], whole[1]);
    sum.leaves = 1;
    norm.rows = LEAF_ROWS;
    for (int leaf = 0; leaf < LEAVES; leaf++) {
        float d_weight[CHANNELS], d_bias[CHANNELS];
        int64_t at = (int64_t)leaf * LEAF_ROWS;
        norm.mean = data.mean + at;
        norm.rstd = data.rstd + at;
        ls_layernorm_backward_weight(&ops_best, &norm, x + at * CHANNELS, dy + at * CHANNELS, &sum,
                                     d_weight, d_bias);
        for (int c = 0; c < CHANNELS; c++) {
            chain[0][c] = leaf ? chain[0][c] + d_weight[c] : d_weight[c];
            chain[1][c] = leaf ? chain[1][c] + d_bias[c] : d_bias[c];
        }
    }
    assert_memory_equal(chain, whole, sizeof whole);
    /* A leaf is added once it is whole. */
    sum.onto = LS_ONTO_SUM;
    float more[CHANNELS], before[CHANNELS];
    for (int c = 0; c < CHANNELS; c++)
        more[c] = before[c] = 0.1f * (float)c;
    ls_rmsnorm_backward_weight(&ops_best, &norm, x, dy, &sum, more);
    float alone[CHANNELS];
    sum.onto = LS_ONTO_NOTHING;
    ls_rmsnorm_backward_weight(&ops_best, &norm, x, dy, &sum, alone);
    for (int c = 0; c < CHANNELS; c++)
        assert_true(more[c] == before[c] + alone[c]);
    /* A leaf in two parts: sequences go on with its chain. */
    float parts[CHANNELS];
    sum.sequences = 1;
    norm.rows = TOKENS;
    ls_rmsnorm_backward_weight(&ops_best, &norm, x, dy, &sum, parts);
    sum.sequences = SEQUENCES - 1;
    sum.onto = LS_ONTO_CHAIN;
    norm.rows = (SEQUENCES - 1) * TOKENS;
    norm.mean += TOKENS;
    norm.rstd += TOKENS;
    ls_rmsnorm_backward_weight(&ops_best, &norm, x + TOKENS * CHANNELS, dy + TOKENS * CHANNELS,
                               &sum, parts);
    assert_memory_equal(parts, alone, sizeof alone);
    free(y);
    data_free(&data);
}

static void run_rows(struct ls_ops *ops, int pieces, void *context, void *out)
{
    struct data *data = context;
    size_t bytes = ls_dtype_bytes(data->act);
    size_t count = (size_t)(data->rows * data->channels) * bytes;
    for (int piece = 0; piece < pieces; piece++) {
        int64_t first = piece * 11, rows = pieces == 1 ? data->rows : piece ? data->rows - 11 : 11;
        size_t at = (size_t)(first * data->channels) * bytes;
        for (int centered = 0; centered < 2; centered++) {
            struct ls_norm norm = norm_of(data, centered);
            char *to = (char *)out + (size_t)(4 * centered) * count + at;
            norm.rows = rows;
            norm.mean += first;
            norm.rstd += first;
            const char *x = (char *)data->x + at, *residual = (char *)data->residual + at;
            const char *dy = (char *)data->dy + at;
            if (centered) {
                ls_layernorm_forward(ops, &norm, x, residual, to, to + count);
                ls_layernorm_backward_input(ops, &norm, to, dy, residual, to + 2 * count);
            } else {
                ls_rmsnorm_forward(ops, &norm, x, residual, to, to + count);
                ls_rmsnorm_backward_input(ops, &norm, to, dy, residual, to + 2 * count);
            }
            float *saved = (float *)((char *)out + (size_t)(4 * centered + 3) * count) + first;
            memcpy(saved, norm.rstd, (size_t)rows * 4);
            if (centered)
                memcpy(saved + data->rows, norm.mean, (size_t)rows * 4);
        }
    }
}

static void run_weights(struct ls_ops *ops, int pieces, void *context, void *out)
{
    struct data *data = context;
    struct ls_norm norm = norm_of(data, true);
    float *to = out;
    struct ls_token_sum sum = {data->rows / 21, 1, 1, 21, LS_ONTO_NOTHING};
    void *y = values_new((size_t)(data->rows * data->channels) * 4);
    ls_layernorm_forward(ops, &norm, data->x, NULL, NULL, y);
    ls_layernorm_backward_weight(ops, &norm, data->x, data->dy, &sum, to, to + data->channels);
    ls_rmsnorm_backward_weight(ops, &norm, data->x, data->dy, &sum, to + 2 * data->channels);
    free(y);
}

CASE(test_bits)
{
    for (int a = 0; a < ACTS; a++) {
        struct data data = data_new(acts[a], 63, 601);
        size_t count = (size_t)(data.rows * data.channels) * ls_dtype_bytes(acts[a]);
        struct bits_case rows = {"norm rows", 8 * count, false, run_rows, &data};
        assert_bits_same(&rows);
        struct bits_case weights = {"norm weights", (size_t)data.channels * 12, false, run_weights,
                                    &data};
        assert_bits_same(&weights);
        data_free(&data);
    }
}

/* ---- heads ----------------------------------------------------------------------------------- */

/* RMSNorm over heads side by side, in a row that holds more; and the same heads one behind the
 * other. */
enum { HEADS = 6, HEAD_DIM = 40, HEAD_TOKENS = 42, HEAD_LD = (HEADS + 2) * HEAD_DIM };
enum { HEAD_ROWS = HEAD_TOKENS * HEADS, WIDE = HEAD_TOKENS * HEAD_LD };

static void gather_heads(enum ls_dtype act, const void *wide, void *dense)
{
    size_t bytes = ls_dtype_bytes(act), head = HEAD_DIM * bytes;
    for (size_t row = 0; row < HEAD_ROWS; row++)
        memcpy((char *)dense + row * head,
               (const char *)wide + row / HEADS * HEAD_LD * bytes + row % HEADS * head, head);
}

struct heads {
    enum ls_dtype act;
    void *x, *dy;
    float *weight;
};

static struct heads heads_new(enum ls_dtype act)
{
    return (struct heads){act, values_normal(1, act, WIDE, 1), values_normal(3, act, WIDE, 1),
                          values_normal(4, LS_F32, HEAD_DIM, 1)};
}

static void heads_free(struct heads *heads)
{
    free(heads->x), free(heads->dy), free(heads->weight);
}

static struct ls_norm norm_of_heads(const struct heads *heads, float *rstd)
{
    return (struct ls_norm){.rows = HEAD_ROWS,
                            .channels = HEAD_DIM,
                            .act = heads->act,
                            .epsilon = EPSILON,
                            .weight = heads->weight,
                            .rstd = rstd,
                            .heads = HEADS,
                            .ld = HEAD_LD,
                            .statistics_ld = HEADS + 1};
}

static void check_heads(enum ls_dtype act)
{
    size_t bytes = ls_dtype_bytes(act);
    struct heads heads = heads_new(act);
    static float y[WIDE], dh[WIDE], dense[3][WIDE], got[WIDE], rstd[HEAD_TOKENS * (HEADS + 1)];
    static float rstd_dense[HEAD_ROWS];
    struct ls_norm wide = norm_of_heads(&heads, rstd), narrow = norm_of_heads(&heads, rstd_dense);
    narrow.heads = 0;
    gather_heads(act, heads.x, dense[0]);
    gather_heads(act, heads.dy, dense[1]);
    memcpy(y, heads.x, WIDE * bytes);
    ls_rmsnorm_forward(&ops_best, &wide, heads.x, NULL, NULL, y);
    ls_rmsnorm_forward(&ops_best, &narrow, dense[0], NULL, NULL, dense[2]);
    gather_heads(act, y, got);
    assert_memory_equal(got, dense[2], (size_t)HEAD_ROWS * HEAD_DIM * bytes);
    for (int row = 0; row < HEAD_ROWS; row++)
        assert_true(rstd[row / HEADS * (HEADS + 1) + row % HEADS] == rstd_dense[row]);
    /* What lies beside the heads stays. */
    for (size_t token = 0; token < HEAD_TOKENS; token++) {
        size_t at = (token * HEAD_LD + HEADS * HEAD_DIM) * bytes;
        assert_memory_equal((char *)y + at, (char *)heads.x + at, 2 * HEAD_DIM * bytes);
    }
    memcpy(dh, heads.dy, WIDE * bytes); /* in place */
    ls_rmsnorm_backward_input(&ops_best, &wide, heads.x, dh, NULL, dh);
    ls_rmsnorm_backward_input(&ops_best, &narrow, dense[0], dense[1], NULL, dense[2]);
    gather_heads(act, dh, got);
    assert_memory_equal(got, dense[2], (size_t)HEAD_ROWS * HEAD_DIM * bytes);
    heads_free(&heads);
}

/* Parts are those of the rows that they are said to be of, and all parts are the whole. */
static void check_head_weights(enum ls_dtype act)
{
    enum { UNITS = 2, TOKENS = HEAD_TOKENS / UNITS, LD = HEADS * HEAD_DIM + 3 };
    struct heads heads = heads_new(act);
    static float y[WIDE], rstd[HEAD_TOKENS * (HEADS + 1)], dense[2][WIDE], d_weight[HEAD_DIM];
    static float rstd_dense[HEAD_ROWS], sums[UNITS * LD];
    double whole[HEAD_DIM], got[HEAD_DIM];
    struct ls_norm wide = norm_of_heads(&heads, rstd), narrow = norm_of_heads(&heads, rstd_dense);
    narrow.heads = 0;
    gather_heads(act, heads.x, dense[0]);
    gather_heads(act, heads.dy, dense[1]);
    ls_rmsnorm_forward(&ops_best, &wide, heads.x, NULL, NULL, y);
    ls_rmsnorm_forward(&ops_best, &narrow, dense[0], NULL, NULL, y);
    struct ls_token_sum sum = {1, 1, 1, HEAD_ROWS, LS_ONTO_NOTHING};
    ls_rmsnorm_backward_weight(&ops_best, &narrow, dense[0], dense[1], &sum, d_weight);
    for (int c = 0; c < HEAD_DIM; c++)
        whole[c] = (double)d_weight[c];
    for (int tiles = 1; tiles <= HEADS; tiles++) {
        if (HEADS % tiles)
            continue;
        struct ls_norm_parts parts = {UNITS, TOKENS, tiles, LD, sums};
        ls_rmsnorm_heads_weight(&ops_best, &wide, heads.x, heads.dy, &parts);
        memset(got, 0, sizeof got);
        for (int i = 0; i < UNITS * tiles; i++)
            for (int c = 0; c < HEAD_DIM; c++)
                got[c] += (double)sums[i / tiles * LD + i % tiles * HEAD_DIM + c];
        for (int c = 0; c < HEAD_DIM; c++)
            assert_true(fabs(got[c] - whole[c]) < 1e-4);
        /* A tile of all heads is rows one behind the other, in groups of as many tokens. */
        if (tiles > 1)
            continue;
        sum.tokens = LS_TOKEN_TILE * HEADS;
        narrow.rows = sum.tokens;
        parts.units = 1;
        parts.tokens = LS_TOKEN_TILE;
        wide.rows = LS_TOKEN_TILE * HEADS;
        ls_rmsnorm_heads_weight(&ops_best, &wide, heads.x, heads.dy, &parts);
        float chain[HEAD_DIM] = {0};
        for (int64_t row = 0; row < narrow.rows; row++)
            for (int c = 0; c < HEAD_DIM; c++) {
                int64_t i = row * HEAD_DIM + c;
                double h = act == LS_F32 ? (double)dense[0][i]
                                         : (double)ls_half_to_f32(act, ((ls_half *)dense[0])[i]);
                double dy = act == LS_F32 ? (double)dense[1][i]
                                          : (double)ls_half_to_f32(act, ((ls_half *)dense[1])[i]);
                chain[c] += (float)dy * ((float)h * rstd_dense[row]);
            }
        assert_memory_equal(chain, sums, sizeof chain);
        wide.rows = HEAD_ROWS;
    }
    heads_free(&heads);
}

CASE(test_heads)
{
    for (int a = 0; a < ACTS; a++) {
        check_heads(acts[a]);
        check_head_weights(acts[a]);
    }
}

static void run_heads(struct ls_ops *ops, int pieces, void *context, void *out)
{
    const struct heads *heads = context;
    enum { UNITS = 2, LD = HEADS * HEAD_DIM };
    struct ls_norm norm = norm_of_heads(heads, (float *)out + 2 * WIDE);
    float *sums = norm.rstd + HEAD_TOKENS * (HEADS + 1);
    memset(out, 0, (2 * WIDE + HEAD_TOKENS * (HEADS + 1) + UNITS * LD) * sizeof(float));
    ls_rmsnorm_forward(ops, &norm, heads->x, NULL, NULL, out);
    ls_rmsnorm_backward_input(ops, &norm, heads->x, heads->dy, NULL, (float *)out + WIDE);
    struct ls_norm_parts parts = {UNITS, HEAD_TOKENS / UNITS, 2, LD, sums};
    ls_rmsnorm_heads_weight(ops, &norm, heads->x, heads->dy, &parts);
}

CASE(test_bits_of_heads)
{
    for (int a = 0; a < ACTS; a++) {
        struct heads heads = heads_new(acts[a]);
        size_t bytes = (2 * WIDE + HEAD_TOKENS * (HEADS + 1) + 2 * HEADS * HEAD_DIM) * 4;
        struct bits_case heads_case = {"norm of heads", bytes, false, run_heads, &heads};
        assert_bits_same(&heads_case);
        heads_free(&heads);
    }
}

/* A weight that is kept as its distance from one: the bits of the whole weight. */
CASE(test_plus_one)
{
    enum { ROWS = 3, CHANNELS = 70, COUNT = ROWS * CHANNELS };
    for (int a = 0; a < ACTS; a++) {
        struct data data = data_new(acts[a], ROWS, CHANNELS);
        struct ls_norm norm = norm_of(&data, false);
        float whole[CHANNELS], y[2][COUNT], dh[2][COUNT];
        size_t bytes = COUNT * ls_dtype_bytes(acts[a]);
        for (int c = 0; c < CHANNELS; c++)
            whole[c] = 1.0f + data.weight[c];
        for (int i = 0; i < 2; i++) {
            norm.plus_one = i;
            norm.weight = i ? data.weight : whole;
            ls_rmsnorm_forward(&ops_best, &norm, data.x, NULL, NULL, y[i]);
            ls_rmsnorm_backward_input(&ops_best, &norm, data.x, data.dy, NULL, dh[i]);
        }
        assert_memory_equal(y[0], y[1], bytes);
        assert_memory_equal(dh[0], dh[1], bytes);
        data_free(&data);
    }
}

/* ---- rows of which ranks hold parts ---------------------------------------------------------- */

enum { CUT_ROWS = 5, CUT_WHOLE = 192, CUT_LD = 200, CUT_TILES = 4 };

/* Columns [first, first + count) held of whole rows, by one of `ranks`. */
static struct ls_norm norm_of_cut(const struct heads *heads, int64_t held, float *rstd)
{
    return (struct ls_norm){.rows = CUT_ROWS,
                            .channels = held,
                            .act = heads->act,
                            .epsilon = EPSILON,
                            .weight = heads->weight,
                            .rstd = rstd,
                            .heads = 1,
                            .ld = CUT_LD,
                            .statistics_ld = 2};
}

/* On so many ranks: sums of each, added by the tree, and what each finishes, in its place. */
static void cut_run(struct ls_ops *ops, const struct heads *heads, int ranks, void *y, void *dx)
{
    float sums[CUT_TILES][CUT_ROWS], rstd[2 * CUT_ROWS];
    int64_t held = CUT_WHOLE / ranks;
    size_t bytes = ls_dtype_bytes(heads->act);
    for (int backward = 0; backward < 2; backward++) {
        for (int phase = 0; phase < 2; phase++)
            for (int rank = 0; rank < ranks; rank++) {
                struct ls_norm norm = norm_of_cut(heads, held, rstd);
                struct ls_norm_cut cut = {CUT_WHOLE, 0, held, CUT_TILES / ranks};
                size_t at = (size_t)(rank * held) * bytes;
                const char *h = (char *)heads->x + at, *dy = (char *)heads->dy + at;
                norm.weight += rank * held;
                char *to = (char *)(backward ? dx : y) + at;
                if (phase)
                    ls_rmsnorm_cut_finish(ops, &norm, &cut, h, backward ? dy : NULL, sums[0], to);
                else
                    ls_rmsnorm_cut_sum(ops, &norm, &cut, h, backward ? dy : NULL, sums[rank]);
                for (int r = 0; r < CUT_ROWS && !phase && rank == ranks - 1; r++) {
                    if (ranks == 4)
                        sums[2][r] += sums[3][r];
                    if (ranks >= 2)
                        sums[0][r] += sums[1][r];
                    if (ranks == 4)
                        sums[0][r] += sums[2][r];
                }
            }
    }
}

static void check_cut(enum ls_dtype act)
{
    struct heads heads = heads_new(act);
    free(heads.weight);
    heads.weight = values_normal(4, LS_F32, CUT_WHOLE, 1);
    static float y[3][CUT_ROWS * CUT_LD], dx[3][CUT_ROWS * CUT_LD];
    static double row[CUT_WHOLE], want[CUT_WHOLE], differences[CUT_WHOLE];
    size_t bytes = ls_dtype_bytes(act);
    memset(y, 0, sizeof y);
    memset(dx, 0, sizeof dx);
    for (int i = 0; i < 3; i++)
        cut_run(&ops_best, &heads, 1 << i, y[i], dx[i]);
    for (int i = 1; i < 3; i++) {
        assert_memory_equal(y[i], y[0], sizeof y[0]);
        assert_memory_equal(dx[i], dx[0], sizeof dx[0]);
    }
    double *weight = values_in_double(LS_F32, heads.weight, CUT_WHOLE);
    for (size_t r = 0; r < CUT_ROWS; r++) {
        size_t at = r * CUT_LD * bytes;
        double *x = values_in_double(act, (char *)heads.x + at, CUT_WHOLE);
        double *dy = values_in_double(act, (char *)heads.dy + at, CUT_WHOLE);
        memcpy(row, x, sizeof row);
        struct reference op = {false, 1, CUT_WHOLE, row, weight, NULL, dy};
        reference_row(&op, 0, want);
        assert_near("cut norm", act, (char *)y[0] + at, want, CUT_WHOLE, tolerance_of(act));
        gradient_by_differences(reference_loss, &op, row, CUT_WHOLE, 1e-4, differences);
        assert_near("cut norm, backward", act, (char *)dx[0] + at, differences, CUT_WHOLE,
                    tolerance_of(act));
        free(x), free(dy);
    }
    free(weight);
    heads_free(&heads);
}

CASE(test_cut)
{
    for (int a = 0; a < ACTS; a++)
        check_cut(acts[a]);
}

static void run_cut(struct ls_ops *ops, int pieces, void *context, void *out)
{
    memset(out, 0, 2 * sizeof(float) * CUT_ROWS * CUT_LD);
    cut_run(ops, context, 2, out, (float *)out + CUT_ROWS * CUT_LD);
}

CASE(test_bits_of_cut)
{
    for (int a = 0; a < ACTS; a++) {
        struct heads heads = heads_new(acts[a]);
        free(heads.weight);
        heads.weight = values_normal(4, LS_F32, CUT_WHOLE, 1);
        struct bits_case cut = {"norm of parts", 2 * sizeof(float) * CUT_ROWS * CUT_LD, false,
                                run_cut, &heads};
        assert_bits_same(&cut);
        heads_free(&heads);
    }
}

CASE(test_no_rows)
{
    struct data data = data_new(LS_F32, 1, 20);
    struct ls_norm norm = norm_of(&data, true);
    struct ls_token_sum sum = {0, 1, 1, 16, LS_ONTO_NOTHING};
    float d_weight[20], d_bias[20], guard = 7;
    norm.rows = 0;
    ls_layernorm_forward(&ops_best, &norm, data.x, data.residual, &guard, &guard);
    ls_layernorm_backward_input(&ops_best, &norm, data.x, data.dy, NULL, &guard);
    assert_true(guard == 7);
    ls_layernorm_backward_weight(&ops_best, &norm, data.x, data.dy, &sum, d_weight, d_bias);
    for (int c = 0; c < 20; c++)
        assert_true(d_weight[c] == 0 && d_bias[c] == 0);
    data_free(&data);
}

SUITE_MAIN(ops_best_setup, ops_best_teardown)
