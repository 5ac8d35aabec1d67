/* Muon: what each thread takes of its elementwise parts, and the Newton-Schulz iteration. */
#include "ops/kernels.h"
#include "ops/share.h"

#include <math.h>

enum {
    ALIGN = 64,
    BAND = 256, /* rows of a symmetric product that are computed at once, up to the diagonal */
    SQUARE = 32 /* what is mirrored at once */
};

void ls_muon_momentum(struct ls_ops *ops, const struct ls_update *update,
                      const struct ls_muon_momentum *muon, void *m, float *direction)
{
    OPS_TELL(ops, ops_pass(LS_WORK_UPDATE, LS_F32, update->count, 1, 6, 4));
    OPS_EACH_SHARE (ops, update->count, update->count, ALIGN)
        ops->kernels->muon->momentum(update, muon, m, direction, begin, end);
}

void ls_muon_update(struct ls_ops *ops, const struct ls_update *update, float scale,
                    const float *orthogonal)
{
    OPS_TELL(ops, ops_pass(LS_WORK_UPDATE, LS_F32, update->count, 1, 4, 3.5));
    OPS_EACH_SHARE (ops, update->count, update->count, ALIGN)
        ops->kernels->muon->step(update, scale, orthogonal, begin, end);
}

/* ---- Newton-Schulz --------------------------------------------------------------------------- */

static int64_t smaller(const struct ls_newton_schulz *op)
{
    return ls_min(op->rows, op->cols);
}

int64_t ls_newton_schulz_work(const struct ls_newton_schulz *op)
{
    int64_t n = smaller(op);
    return ls_round_up(op->rows * op->cols, ALIGN) + 2 * ls_round_up(n * n, ALIGN);
}

static void normalise(struct ls_ops *ops, int64_t count, float *x)
{
    struct ls_exact_sum sum;
    ls_exact_clear(&sum);
    ls_squared_norm(ops, count, x, NULL, &sum);
    float factor = (float)(1 / fmax(sqrt(ls_exact_value(&sum)), 1e-7));
    OPS_TELL(ops, ops_pass(LS_WORK_UPDATE, LS_F32, count, 1, 1, 2));
    OPS_EACH_SHARE (ops, count, count, ALIGN)
        ops->kernels->muon->scale(factor, x, begin, end);
}

/* What is above the diagonal, from below it. */
static void mirror(struct ls_ops *ops, int64_t n, float *x)
{
    OPS_TELL(ops, ops_pass(LS_WORK_COPY, LS_F32, n, n, 0, 1));
    OPS_EACH_SHARE (ops, n * n, n, SQUARE)
        for (int64_t row = begin; row < end; row += SQUARE)
            for (int64_t col = row; col < n; col += SQUARE)
                for (int64_t i = row; i < ls_min(row + SQUARE, end); i++)
                    for (int64_t j = ls_max(col, i + 1); j < ls_min(col + SQUARE, n); j++)
                        x[i * n + j] = x[j * n + i];
}

/* product is of the whole; its rows of a band begin at a_step elements of A each. */
static int symmetric_product(struct ls_ops *ops, const struct ls_gemm *product, int64_t a_step,
                             struct ls_error *error)
{
    int status = LS_OK;
    for (int64_t row = 0; row < product->m && !status; row += BAND) {
        struct ls_gemm band = *product;
        band.m = ls_min(BAND, product->m - row);
        band.n = row + band.m;
        band.a = (const float *)product->a + row * a_step;
        band.c = (float *)product->c + row * product->ldc;
        status = ls_gemm_run(ops, &band, error);
        ls_progress();
    }
    return status;
}

/* A = X X^T or X^T X, n x n, up to the diagonal of each band. */
static int gram_of(struct ls_ops *ops, const struct ls_newton_schulz *op, const float *x,
                   float *gram, struct ls_error *error)
{
    int64_t n = smaller(op);
    bool tall = op->rows > op->cols;
    const struct ls_gemm product = {
        .m = n,
        .n = n,
        .sections = 1,
        .k = {tall ? op->rows : op->cols},
        .tiles = 1,
        .a_transposed = tall,
        .b_transposed = !tall,
        .in = LS_F32,
        .out = LS_F32,
        .a = x,
        .b = x,
        .c = gram,
        .lda = op->cols,
        .ldb = op->cols,
        .ldc = n,
    };
    return symmetric_product(ops, &product, tall ? 1 : op->cols, error);
}

static int square_of(struct ls_ops *ops, int64_t n, const float *gram, float *square,
                     struct ls_error *error)
{
    const struct ls_gemm product = {
        .m = n,
        .n = n,
        .sections = 1,
        .k = {n},
        .tiles = 1,
        .in = LS_F32,
        .out = LS_F32,
        .a = gram,
        .b = gram,
        .c = square,
        .lda = n,
        .ldb = n,
        .ldc = n,
    };
    return symmetric_product(ops, &product, n, error);
}

/* to = polynomial x, or x polynomial. */
static int apply(struct ls_ops *ops, const struct ls_newton_schulz *op, const float *polynomial,
                 const float *x, float *to, struct ls_error *error)
{
    int64_t n = smaller(op);
    bool tall = op->rows > op->cols;
    const struct ls_gemm product = {
        .m = op->rows,
        .n = op->cols,
        .sections = 1,
        .k = {n},
        .tiles = 1,
        .in = LS_F32,
        .out = LS_F32,
        .a = tall ? x : polynomial,
        .b = tall ? polynomial : x,
        .c = to,
        .lda = n,
        .ldb = op->cols,
        .ldc = op->cols,
    };
    return ls_gemm_run(ops, &product, error);
}

static void polynomial(struct ls_ops *ops, int64_t n, const float *gram, float *square)
{
    OPS_TELL(ops, ops_pass(LS_WORK_ADD, LS_F32, n, n, 4, 3));
    OPS_EACH_SHARE (ops, n * n, n, 1)
        ops->kernels->muon->polynomial(n, gram, square, begin, end);
}

static int iterate(struct ls_ops *ops, const struct ls_newton_schulz *op, const float *x, float *to,
                   float *gram, struct ls_error *error)
{
    int64_t n = smaller(op);
    float *square = gram + ls_round_up(n * n, ALIGN);
    int status = gram_of(ops, op, x, gram, error);
    mirror(ops, n, gram);
    if (!status)
        status = square_of(ops, n, gram, square, error);
    if (!status)
        polynomial(ops, n, gram, square);
    mirror(ops, n, square);
    return status ? status : apply(ops, op, square, x, to, error);
}

int ls_newton_schulz(struct ls_ops *ops, const struct ls_newton_schulz *op, float *x, float *work,
                     float **out, struct ls_error *error)
{
    float *other = work, *gram = work + ls_round_up(op->rows * op->cols, ALIGN);
    int status = LS_OK;
    normalise(ops, op->rows * op->cols, x);
    for (int i = 0; i < op->steps && !status; i++) {
        status = iterate(ops, op, x, other, gram, error);
        float *was = x;
        x = other;
        other = was;
    }
    *out = x;
    return status;
}
