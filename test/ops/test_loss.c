/* Softmax cross-entropy: against the formula in double, gradient by central differences, padding,
 * ignored targets, non-finite logits, order of sums, bits. And the entropy of rows. */
#include "../support/suite.h"
#include "gradient.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ACTS = 3 };
static const enum ls_dtype acts[ACTS] = {LS_F32, LS_BF16, LS_F16};

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

static double reference_entropy(void *context)
{
    const struct reference *op = context;
    double max = -INFINITY, sum = 0, entropy = 0;
    for (int64_t v = 0; v < op->vocabulary; v++)
        max = fmax(max, op->z[v]);
    for (int64_t v = 0; v < op->vocabulary; v++)
        sum += exp(op->z[v] - max);
    for (int64_t v = 0; v < op->vocabulary; v++) {
        double p = exp(op->z[v] - max) / sum;
        entropy -= p > 0 ? p * log(p) : 0;
    }
    return entropy;
}

static void check_entropy(const struct ls_cross_entropy *op, const void *z, const double *z64)
{
    size_t bytes = (size_t)op->rows * sizeof(float);
    float *max = values_new(bytes), *sum = values_new(bytes), *product = values_new(bytes);
    float *entropy = values_new(bytes), *logit = values_new(bytes);
    int32_t *none = values_new(bytes); /* targets */
    memset(none, -1, bytes);
    double *want = values_new(2 * bytes);
    for (int64_t r = 0; r < op->rows; r++) {
        struct reference one = {op->vocabulary, (double *)(uintptr_t)z64 + r * op->padded, 0};
        want[r] = reference_entropy(&one);
    }
    ls_cross_entropy_max(&ops_best, op, z, max);
    ls_cross_entropy_sum(&ops_best, op, z, none, max, sum, logit, product);
    ls_entropy(&ops_best, op, sum, product, entropy);
    /* The sum of a row that is nearly sure is near 1, and rounds by 2^-24. */
    assert_near("entropy", LS_F32, entropy, want, op->rows, 4e-6);
    free(max), free(sum), free(product), free(entropy), free(logit), free(none), free(want);
}

/* dz has the gradient of the weighted losses; z is the logits. */
static void check_entropy_gradient(struct ls_cross_entropy op, void *z, const double *z64,
                                   const int32_t *target, double *dz, double tolerance)
{
    size_t bytes = (size_t)op.rows * sizeof(float);
    float *max = values_new(bytes), *sum = values_new(bytes), *logit = values_new(bytes);
    float *product = values_new(bytes), *entropy_weight = values_new(bytes);
    float *loss = values_new(bytes);
    double *d_entropy = values_new((size_t)op.padded * sizeof *d_entropy);
    for (int64_t r = 0; r < op.rows; r++) {
        struct reference one = {op.vocabulary, (double *)(uintptr_t)z64 + r * op.padded, 0};
        entropy_weight[r] = r == 1 ? 0 : 0.5f * (float)r - 0.75f;
        gradient_by_differences(reference_entropy, &one, one.z, op.vocabulary, 1e-4, d_entropy);
        for (int64_t v = 0; v < op.vocabulary; v++)
            dz[r * op.padded + v] +=
                (double)(op.scale * entropy_weight[r]) * d_entropy[v] *
                (op.softcap > 0 ? 1 - pow(one.z[v] / (double)op.softcap, 2) : 1);
    }
    ls_cross_entropy_max(&ops_best, &op, z, max);
    ls_cross_entropy_sum(&ops_best, &op, z, target, max, sum, logit, product);
    op.entropy_weight = entropy_weight;
    op.product = product;
    ls_cross_entropy_finish(&ops_best, &op, z, target, max, sum, logit, loss);
    assert_near("entropy gradient", op.act, z, dz, op.rows * op.padded, tolerance);
    assert_gradient_near("entropy gradient", op.act, z, dz, op.rows * op.padded, tolerance);
    free(max), free(sum), free(logit), free(product), free(entropy_weight), free(loss);
    free(d_entropy);
}

static void check(enum ls_dtype act, int64_t rows, int64_t vocabulary, int64_t padded,
                  int64_t tiles, float softcap)
{
    struct ls_cross_entropy op = {rows, vocabulary, padded, tiles, act, 0,
                                  0,    softcap,    NULL,   NULL,  NULL};
    void *z = values_normal(1, act, rows * padded, 3);
    void *kept = values_normal(1, act, rows * padded, 3);
    double *z64 = values_in_double(act, z, rows * padded);
    int32_t *target = values_new((size_t)rows * 4);
    float *loss = values_new((size_t)rows * 4), *again = values_new((size_t)rows * 4);
    float *weight = values_new((size_t)rows * 4);
    double *want = values_new((size_t)rows * 8), *dz = values_new((size_t)(rows * padded) * 8);
    for (int64_t r = 0; r < rows; r++) {
        target[r] = (int32_t)(r * 31 % vocabulary);
        weight[r] = r == 2 ? 0 : 0.75f - 0.5f * (float)r;
        struct reference one = {vocabulary, z64 + r * padded, target[r]};
        want[r] = reference_loss(&one);
        gradient_by_differences(reference_loss, &one, one.z, vocabulary, 1e-4, dz + r * padded);
        for (int64_t v = 0; v < padded; v++)
            dz[r * padded + v] = v < vocabulary ? 0.25 * dz[r * padded + v] : 0;
        for (int64_t v = 0; v < vocabulary && softcap > 0; v++)
            dz[r * padded + v] *= 1 - pow(one.z[v] / (double)softcap, 2);
    }
    check_entropy(&op, z, z64);
    ls_cross_entropy(&ops_best, &op, z, target, loss);
    assert_near("cross-entropy", LS_F32, loss, want, rows, 1e-6);
    assert_memory_equal(z, kept, (size_t)(rows * padded) * ls_dtype_bytes(act));
    op.scale = 0.25f;
    ls_cross_entropy(&ops_best, &op, z, target, again);
    assert_memory_equal(loss, again, (size_t)rows * 4);
    double tolerance = act == LS_F32 ? 2e-6 : act == LS_BF16 ? 4e-3 : 5e-4;
    assert_near("cross-entropy gradient", act, z, dz, rows * padded, tolerance);
    assert_gradient_near("cross-entropy gradient", act, z, dz, rows * padded, tolerance);
    /* Weights scale the gradient, and not the loss. */
    memcpy(z, kept, (size_t)(rows * padded) * ls_dtype_bytes(act));
    for (int64_t i = 0; i < rows * padded; i++)
        dz[i] *= (double)weight[i / padded];
    op.weight = weight;
    ls_cross_entropy(&ops_best, &op, z, target, again);
    assert_memory_equal(loss, again, (size_t)rows * 4);
    assert_near("weighted gradient", act, z, dz, rows * padded, tolerance);
    assert_gradient_near("weighted gradient", act, z, dz, rows * padded, tolerance);
    memcpy(z, kept, (size_t)(rows * padded) * ls_dtype_bytes(act));
    check_entropy_gradient(op, z, z64, target, dz, tolerance);
    free(weight);
    free(z), free(kept), free(z64), free(target), free(loss), free(again), free(want), free(dz);
}

CASE(test_loss_and_gradient)
{
    for (int a = 0; a < ACTS; a++) {
        check(acts[a], 1, 2, 2, 1, 0);
        check(acts[a], 5, 257, 257, 1, 0);
        check(acts[a], 5, 257, 320, 1, 0);
        check(acts[a], 5, 257, 320, 8, 0);
        check(acts[a], 3, 1030, 1040, 4, 0);
        check(acts[a], 2, 9, 32, 4, 0); /* tiles of nothing but padding */
        check(acts[a], 5, 257, 320, 8, 15);
    }
}

CASE(test_ignored_target)
{
    enum { ROWS = 3, VOCABULARY = 40 };
    struct ls_cross_entropy op = {ROWS, VOCABULARY, VOCABULARY, 1,    LS_F32, 1,
                                  0,    0,          NULL,       NULL, NULL};
    float *z = values_normal(1, LS_F32, ROWS * VOCABULARY, 1), loss[ROWS];
    int32_t target[ROWS] = {3, -1, 4};
    ls_cross_entropy(&ops_best, &op, z, target, loss);
    assert_true(loss[0] > 0 && loss[1] == 0 && loss[2] > 0);
    for (int v = 0; v < VOCABULARY; v++)
        assert_true(z[VOCABULARY + v] == 0 && z[v] != 0);
    free(z);
}

/* Weights of 1 change no bit. One of 0 leaves nothing of a row, whatever is in it. */
CASE(test_weights_of_one_and_of_zero)
{
    enum { ROWS = 4, VOCABULARY = 40 };
    float *z = values_normal(1, LS_F32, ROWS * VOCABULARY, 1), loss[ROWS], sums[2];
    float *plain = values_normal(1, LS_F32, ROWS * VOCABULARY, 1), plain_loss[ROWS], plain_sums[2];
    const int32_t target[ROWS] = {3, -1, 4, 5};
    const float ones[ROWS] = {1, 1, 1, 1}, some[ROWS] = {1, 1, -0.0f, -2};
    struct ls_cross_entropy op = {ROWS, VOCABULARY, VOCABULARY, 1,    LS_F32, 0.5f,
                                  0,    0,          NULL,       NULL, NULL};
    ls_cross_entropy(&ops_best, &op, plain, target, plain_loss);
    ls_loss_sum(&ops_best, &(struct ls_loss_sum){2, 1, 2, .loss = plain_loss}, plain_sums);
    op.weight = ones;
    ls_cross_entropy(&ops_best, &op, z, target, loss);
    ls_loss_sum(&ops_best, &(struct ls_loss_sum){2, 1, 2, .loss = loss, .weight = ones}, sums);
    assert_memory_equal(z, plain, ROWS * VOCABULARY * sizeof *z);
    assert_memory_equal(sums, plain_sums, sizeof sums);
    free(z);
    z = values_normal(1, LS_F32, ROWS * VOCABULARY, 1);
    z[2 * VOCABULARY + 7] = NAN;
    op.weight = some;
    ls_cross_entropy(&ops_best, &op, z, target, loss);
    ls_loss_sum(&ops_best, &(struct ls_loss_sum){2, 1, 2, .loss = loss, .weight = some}, sums);
    assert_true(isnan(loss[2]) && sums[0] == loss[0] && sums[1] == -2 * loss[3]);
    for (int v = 0; v < VOCABULARY; v++) {
        assert_true(z[2 * VOCABULARY + v] == 0);
        assert_true(z[3 * VOCABULARY + v] == -2 * plain[3 * VOCABULARY + v]);
    }
    free(z), free(plain);
}

CASE(test_large_and_non_finite_logits)
{
    enum { VOCABULARY = 50 };
    struct ls_cross_entropy op = {1, VOCABULARY, VOCABULARY, 1, LS_F32, 0, 0, 0, NULL, NULL, NULL};
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

CASE(test_loss_sum_is_the_ordered_sum)
{
    static const struct {
        int64_t sequences, tiles, tokens;
    } cases[] = {{1, 1, 1}, {3, 1, 16}, {5, 2, 57}, {3, 1, 200}, {2, 8, 33}, {7, 4, 20}};
    for (size_t s = 0; s < sizeof cases / sizeof *cases; s++) {
        int64_t tiles = cases[s].tiles, tokens = cases[s].tokens, sequences = cases[s].sequences;
        float *loss = values_normal(2, LS_F32, sequences * tiles * tokens, 1), got[7];
        const float *at = loss;
        ls_loss_sum(&ops_best, &(struct ls_loss_sum){sequences, tiles, tokens, .loss = loss}, got);
        for (int64_t i = 0; i < sequences; i++) {
            float sums[8];
            for (int64_t tile = 0; tile < tiles; tile++, at += tokens) {
                float groups[13] = {0};
                for (int64_t t = 0; t < tokens; t++)
                    groups[t / LS_TOKEN_TILE] += at[t];
                sums[tile] = ls_tree_sum(groups, ls_ceil_div(tokens, LS_TOKEN_TILE));
            }
            if (got[i] != ls_tree_sum(sums, tiles))
                fail_msg("case %zu, sequence %lld: %.9g, ordered %.9g", s, (long long)i,
                         (double)got[i], (double)ls_tree_sum(sums, tiles));
        }
        free(loss);
    }
}

/* ---- the vocabulary split over ranks --------------------------------------------------------- */

/* The last of four ranks holds nothing but padding, the third some. */
enum { ROWS = 12, VOCABULARY = 1190, PADDED = 1600, TILES = 8, RANKS_MAX = 8 };

/* Row by row: column rank of values [ranks][ROWS], added by the tree over ranks or, as the twin
 * does, one after the other. */
static void ranks_add(int ranks, bool by_tree, float values[RANKS_MAX][ROWS], float out[ROWS])
{
    for (int r = 0; r < ROWS; r++) {
        float column[RANKS_MAX] = {0};
        for (int rank = 0; rank < ranks; rank++)
            column[rank] = values[rank][r];
        out[r] = column[0];
        for (int rank = 1; rank < ranks; rank++)
            out[r] += column[rank];
        if (by_tree)
            out[r] = ls_tree_sum(column, ranks);
    }
}

/* The op of `rank`. */
static struct ls_cross_entropy rank_op(struct ls_cross_entropy op, int ranks, int rank)
{
    op.padded /= ranks;
    op.tiles /= ranks;
    op.first = rank * op.padded;
    return op;
}

/* Its columns of z [ROWS, PADDED] to own, or back. */
static void rank_copy(const struct ls_cross_entropy *op, char *z, char *own, bool back)
{
    const size_t bytes = ls_dtype_bytes(op->act), row = (size_t)op->padded * bytes;
    for (size_t r = 0; r < ROWS; r++) {
        char *there = z + (r * PADDED + (size_t)op->first) * bytes;
        memcpy(back ? there : own + r * row, back ? own + r * row : there, row);
    }
}

/* As ls_cross_entropy on z, on `ranks` ranks, with the gradient of entropies where they are
 * weighted; the losses of all ranks go to loss[rank]. sums[] are the whole sums of exponentials. */
static void run_split(int ranks, struct ls_cross_entropy op, bool by_tree, char *z,
                      const int32_t *target, float loss[RANKS_MAX][ROWS], float sums[ROWS])
{
    float max[ROWS], sum[RANKS_MAX][ROWS], at_target[RANKS_MAX][ROWS], logit[ROWS];
    float product[RANKS_MAX][ROWS], products[ROWS];
    char *own = values_new((size_t)(ROWS * PADDED) * ls_dtype_bytes(op.act));
    for (int rank = 0; rank < ranks; rank++) {
        struct ls_cross_entropy part = rank_op(op, ranks, rank);
        float own_max[ROWS];
        rank_copy(&part, z, own, false);
        ls_cross_entropy_max(&ops_best, &part, own, own_max);
        for (int r = 0; r < ROWS; r++)
            max[r] = rank ? fmaxf(max[r], own_max[r]) : own_max[r];
    }
    for (int rank = 0; rank < ranks; rank++) {
        struct ls_cross_entropy part = rank_op(op, ranks, rank);
        rank_copy(&part, z, own, false);
        ls_cross_entropy_sum(&ops_best, &part, own, target, max, sum[rank], at_target[rank],
                             op.entropy_weight ? product[rank] : NULL);
    }
    ranks_add(ranks, by_tree, sum, sums);
    if (op.entropy_weight)
        ranks_add(ranks, by_tree, product, products);
    op.product = op.entropy_weight ? products : NULL;
    ranks_add(ranks, by_tree, at_target, logit);
    for (int rank = 0; rank < ranks; rank++) {
        struct ls_cross_entropy part = rank_op(op, ranks, rank);
        rank_copy(&part, z, own, false);
        ls_cross_entropy_finish(&ops_best, &part, own, target, max, sums, logit, loss[rank]);
        rank_copy(&part, z, own, true);
    }
    free(own);
}

/* Rows that must behave: a target in every rank, none, logits of a whole rank at -inf, and (the
 * last) all of them. */
static void *split_logits(enum ls_dtype act, int32_t target[ROWS])
{
    void *z = values_normal(1, act, ROWS * PADDED, 4);
    for (int r = 0; r < ROWS; r++) {
        target[r] = r == 5 ? -1 : r * 105;
        for (int v = 0; v < PADDED && (r == 7 || r == ROWS - 1); v++)
            if (r != 7 || v < PADDED / 4) {
                if (act == LS_F32)
                    ((float *)z)[r * PADDED + v] = -INFINITY;
                else
                    ((ls_half *)z)[r * PADDED + v] = ls_f32_to_half(act, -INFINITY);
            }
    }
    return z;
}

CASE(test_split_vocabulary_gives_the_same_bits)
{
    int32_t target[ROWS];
    float weight[ROWS];
    bool twin_differs = false;
    for (int r = 0; r < ROWS; r++) /* nothing of the last row, whose loss is no number */
        weight[r] = r == ROWS - 1 ? 0 : r == 3 ? -1.5f : 0.25f * (float)r;
    for (int a = 0; a < ACTS; a++)
        for (int ranks = 1; ranks <= RANKS_MAX; ranks *= 2) {
            const size_t row = PADDED * ls_dtype_bytes(acts[a]);
            struct ls_cross_entropy op = {
                ROWS, VOCABULARY, PADDED, TILES, acts[a], 0.125f, 0, 0, ranks == 8 ? NULL : weight,
                NULL, NULL};
            char *whole = split_logits(acts[a], target), *cut = split_logits(acts[a], target);
            float want[ROWS], got[RANKS_MAX][ROWS], sums[ROWS], twin[ROWS];
            op.scale = 0;
            run_split(ranks, op, false, cut, target, got, twin);
            op.scale = 0.125f;
            run_split(ranks, op, true, cut, target, got, sums);
            ls_cross_entropy(&ops_best, &op, whole, target, want);
            for (int r = 0; r < ROWS - 1; r++)
                for (int rank = 0; rank < ranks; rank++)
                    if (got[rank][r] != want[r])
                        fail_msg("row %d, rank %d of %d: loss %.9g, whole %.9g", r, rank, ranks,
                                 (double)got[rank][r], (double)want[r]);
            assert_true(want[5] == 0 && isnan(want[ROWS - 1]));
            for (int rank = 0; rank < ranks; rank++)
                assert_true(isnan(got[rank][ROWS - 1]));
            assert_memory_equal(cut, whole, (ranks == 8 ? ROWS - 1 : ROWS) * row);
            for (int r = 0; r < ROWS - 1; r++)
                twin_differs |= twin[r] != sums[r];
            free(whole), free(cut);
        }
    assert_true(twin_differs);
}

CASE(test_entropy_gradient_of_a_split_vocabulary_has_the_same_bits)
{
    int32_t target[ROWS];
    float weight[ROWS], entropy_weight[ROWS];
    bool twin_differs = false;
    for (int r = 0; r < ROWS;
         r++) { /* row 9 has entropy alone, row 5 no target, the last nothing */
        weight[r] = r == ROWS - 1 || r == 9 ? 0 : 0.25f * (float)r;
        entropy_weight[r] = r == ROWS - 1 ? 0 : 0.5f * (float)(r - 4);
    }
    for (int a = 0; a < ACTS; a++) {
        const size_t element = ls_dtype_bytes(acts[a]), bytes = ROWS * PADDED * element;
        struct ls_cross_entropy op = {ROWS, VOCABULARY, PADDED, TILES,          acts[a], 0.125f,
                                      0,    0,          weight, entropy_weight, NULL};
        char *one = split_logits(acts[a], target), *plain = split_logits(acts[a], target);
        float loss[RANKS_MAX][ROWS], sums[ROWS];
        run_split(1, op, true, one, target, loss, sums);
        for (size_t i = 0; i < PADDED * element; i++)
            assert_true(one[5 * PADDED * element + i] == 0);
        for (int ranks = 2; ranks <= RANKS_MAX; ranks *= 2) {
            char *cut = split_logits(acts[a], target), *twin = split_logits(acts[a], target);
            run_split(ranks, op, true, cut, target, loss, sums);
            assert_memory_equal(cut, one, bytes);
            run_split(ranks, op, false, twin, target, loss, sums);
            twin_differs |= memcmp(twin, one, bytes) != 0;
            free(cut), free(twin);
        }
        op.entropy_weight = NULL; /* it is there, of row 9 and of those with a loss */
        run_split(1, op, true, plain, target, loss, sums);
        assert_memory_not_equal(plain + 9 * PADDED * element, one + 9 * PADDED * element,
                                PADDED * element);
        assert_memory_not_equal(plain + 3 * PADDED * element, one + 3 * PADDED * element,
                                PADDED * element);
        free(one), free(plain);
    }
    assert_true(twin_differs);
}

/* As ls_cross_entropy on `ranks` ranks, added by the tree or as the twin does. */
static void entropy_split(int ranks, const struct ls_cross_entropy *op, bool by_tree, char *z,
                          float entropy[ROWS])
{
    float max[ROWS], sum[RANKS_MAX][ROWS], product[RANKS_MAX][ROWS], sums[ROWS], products[ROWS];
    float logit[ROWS];
    int32_t none[ROWS]; /* targets */
    memset(none, -1, sizeof none);
    char *own = values_new((size_t)(ROWS * PADDED) * ls_dtype_bytes(op->act));
    ls_cross_entropy_max(&ops_best, op, z, max);
    for (int rank = 0; rank < ranks; rank++) {
        struct ls_cross_entropy part = rank_op(*op, ranks, rank);
        rank_copy(&part, z, own, false);
        ls_cross_entropy_sum(&ops_best, &part, own, none, max, sum[rank], logit, product[rank]);
    }
    ranks_add(ranks, by_tree, sum, sums);
    ranks_add(ranks, by_tree, product, products);
    ls_entropy(&ops_best, op, sums, products, entropy);
    free(own);
}

CASE(test_entropy_of_a_split_vocabulary_has_the_same_bits)
{
    int32_t target[ROWS];
    bool twin_differs = false;
    for (int a = 0; a < ACTS; a++) {
        struct ls_cross_entropy op = {.rows = ROWS,
                                      .vocabulary = VOCABULARY,
                                      .padded = PADDED,
                                      .tiles = TILES,
                                      .act = acts[a]};
        char *z = split_logits(acts[a], target);
        float whole[ROWS], cut[ROWS], twin[ROWS];
        entropy_split(1, &op, true, z, whole);
        for (int ranks = 2; ranks <= RANKS_MAX; ranks *= 2) {
            entropy_split(ranks, &op, true, z, cut);
            entropy_split(ranks, &op, false, z, twin);
            for (int r = 0; r < ROWS - 1; r++)
                if (cut[r] != whole[r])
                    fail_msg("row %d on %d ranks: entropy %.9g, whole %.9g", r, ranks,
                             (double)cut[r], (double)whole[r]);
            twin_differs |= memcmp(twin, whole, (ROWS - 1) * sizeof *twin) != 0;
            assert_true(isnan(cut[ROWS - 1])); /* nothing but -inf */
        }
        assert_true(whole[7] > 0 && whole[7] < logf(PADDED)); /* a fourth of it is -inf */
        free(z);
    }
    assert_true(twin_differs);
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

CASE(test_bits)
{
    enum { ROWS = 17, VOCABULARY = 2500, PADDED = 2560 };
    int32_t target[ROWS];
    for (int r = 0; r < ROWS; r++)
        target[r] = r * 100;
    for (int a = 0; a < ACTS; a++) {
        struct bits_values v = {
            {ROWS, VOCABULARY, PADDED, 4, acts[a], 0.125f, 0, 0, NULL, NULL, NULL},
            values_normal(1, acts[a], ROWS * PADDED, 4),
            target};
        struct bits_case bits = {"cross-entropy",
                                 ROWS * PADDED * ls_dtype_bytes(acts[a]) + ROWS * 4, false,
                                 run_bits, &v};
        assert_bits_same(&bits);
        free(v.z);
    }
}

/* The whole vocabulary at once, and two halves of it. */
CASE(test_place_of_the_largest_logit)
{
    enum { ROWS = 5, VOCABULARY = 300, PADDED = 320 };
    for (int a = 0; a < ACTS; a++) {
        float *z = values_normal(5, LS_F32, ROWS * PADDED, 3), max[ROWS], place[ROWS], half[ROWS];
        ls_half *act = values_new(ROWS * PADDED * sizeof *act);
        static const int64_t wanted[ROWS] = {0, 299, 150, 163, -1};
        for (int r = 0; r < ROWS - 1; r++)
            for (int64_t v = wanted[r]; v < VOCABULARY; v += 37)
                z[r * PADDED + v] = 90; /* several equal ones: the first counts */
        z[PADDED + 310] = 95;           /* padding */
        for (int64_t v = 0; v < VOCABULARY; v++)
            z[4 * PADDED + v] = NAN;
        if (acts[a] != LS_F32)
            ls_cast_to_half(&ops_best, acts[a], ROWS * PADDED, z, act);
        const void *logits = acts[a] == LS_F32 ? (const void *)z : act;
        struct ls_cross_entropy op = {
            .rows = ROWS, .vocabulary = VOCABULARY, .padded = PADDED, .tiles = 4, .act = acts[a]};
        ls_cross_entropy_max(&ops_best, &op, logits, max);
        ls_cross_entropy_place(&ops_best, &op, logits, max, place);
        for (int r = 0; r < ROWS - 1; r++)
            assert_true(place[r] == -(float)wanted[r]);
        assert_true(place[4] == -INFINITY);
        for (int r = 0; r < ROWS; r++) { /* a part that begins at column 160 */
            const char *row =
                (const char *)logits + (size_t)(r * PADDED + 160) * ls_dtype_bytes(acts[a]);
            struct ls_cross_entropy part = {.rows = 1,
                                            .vocabulary = VOCABULARY,
                                            .padded = 160,
                                            .tiles = 2,
                                            .act = acts[a],
                                            .first = 160};
            ls_cross_entropy_place(&ops_best, &part, row, &max[r], &half[r]);
        }
        assert_true(half[1] == -299 && half[3] == -163 && half[4] == -INFINITY);
        assert_true(half[0] == -185); /* 5 * 37: the first in this part */
        free(z), free(act);
    }
}

SUITE_MAIN(ops_best_setup, ops_best_teardown)
