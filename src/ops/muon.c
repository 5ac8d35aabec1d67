/* Muon: its commands, what each thread takes of the elementwise ones, and the Newton-Schulz
 * iteration. */
#include "ops/kernels.h"
#include "ops/share.h"

#include <math.h>

enum {
    ALIGN = 64,
    BAND = 256, /* rows of a symmetric product that are computed at once, up to the diagonal */
    SQUARE = 32 /* what is mirrored at once */
};

/* ---- elementwise ----------------------------------------------------------------------------- */

static struct ls_work muon_work(const void *arguments)
{
    const struct muon_call *c = arguments;
    bool step = c->op == MUON_STEP;
    return ops_pass(LS_WORK_UPDATE, LS_F32, c->update.count, 1, step ? 4 : 6, step ? 3.5 : 4);
}

static void muon_operands(const void *arguments, struct ls_operands *out)
{
    const struct muon_call *c = arguments;
    const size_t bytes = ops_bytes(LS_F32, c->update.count);
    ops_update_operands(&c->update, c, out);
    ls_operand_add(out, c, &c->m, ops_bytes(c->update.moment_type, c->update.count),
                   LS_READS_WRITES);
    ls_operand_add(out, c, &c->direction, bytes, LS_WRITES);
    ls_operand_add(out, c, &c->orthogonal, bytes, LS_READS);
}

static void muon_run(struct ls_ops *ops, const void *arguments)
{
    const struct muon_call *c = arguments;
    OPS_EACH_SHARE (ops, c->update.count, c->update.count, ALIGN)
        ops->kernels->muon->of[c->op](c, begin, end);
}

static const struct ops_op muon_op = OPS_OP(struct muon_call, muon_work, muon_operands, muon_run);

void ls_muon_momentum(struct ls_ops *ops, const struct ls_update *update,
                      const struct ls_muon_momentum *muon, void *m, float *direction)
{
    struct muon_call call = {MUON_MOMENTUM, *update, *muon, 0, m, direction, NULL};
    call.update.master = NULL;
    call.update.compute = NULL;
    ops_submit(ops, &muon_op, &call);
}

void ls_muon_update(struct ls_ops *ops, const struct ls_update *update, float scale,
                    const float *orthogonal)
{
    struct muon_call call = {.op = MUON_STEP, .update = *update, .scale = scale};
    call.orthogonal = orthogonal;
    call.update.gradient = NULL;
    call.update.second = NULL;
    ops_submit(ops, &muon_op, &call);
}

/* ---- passes of Newton-Schulz ----------------------------------------------------------------- */

/* Over a matrix of n x n, or over n elements: `with` is read, x is read and written. */
struct schulz_call;
struct schulz_kind {
    enum ls_work_kind work;
    int flops, moved;
    int64_t align;
    bool with_sum; /* `with` is a struct ls_exact_sum; else as large as x */
    void (*rows)(const struct ls_ops *ops, const struct schulz_call *c, int64_t begin, int64_t end);
};
struct schulz_call {
    const struct schulz_kind *kind;
    int64_t rows, cols;
    const void *with;
    float *x;
};

static struct ls_work schulz_work(const void *arguments)
{
    const struct schulz_call *c = arguments;
    return ops_pass(c->kind->work, LS_F32, c->rows, c->cols, c->kind->flops, c->kind->moved);
}

static void schulz_operands(const void *arguments, struct ls_operands *out)
{
    const struct schulz_call *c = arguments;
    const size_t bytes = ops_bytes(LS_F32, c->rows * c->cols);
    if (c->kind->with_sum)
        ops_operand_ids(ls_operand_add(out, c, &c->with, sizeof(struct ls_exact_sum), LS_READS), 0,
                        1);
    else
        ls_operand_add(out, c, &c->with, bytes, LS_READS);
    ls_operand_add(out, c, &c->x, bytes, LS_READS_WRITES);
}

static void schulz_run(struct ls_ops *ops, const void *arguments)
{
    const struct schulz_call *c = arguments;
    OPS_EACH_SHARE (ops, c->rows * c->cols, c->rows, c->kind->align)
        c->kind->rows(ops, c, begin, end);
}

static const struct ops_op schulz_op =
    OPS_OP(struct schulz_call, schulz_work, schulz_operands, schulz_run);

static void unit_rows(const struct ls_ops *ops, const struct schulz_call *c, int64_t begin,
                      int64_t end)
{
    const float factor = (float)(1 / fmax(sqrt(ls_exact_value(c->with)), 1e-7));
    ops->kernels->muon->scale(factor, c->x, begin, end);
}

static void mirror_rows(const struct ls_ops *ops, const struct schulz_call *c, int64_t begin,
                        int64_t end)
{
    int64_t n = c->cols;
    (void)ops;
    for (int64_t row = begin; row < end; row += SQUARE)
        for (int64_t col = row; col < n; col += SQUARE)
            for (int64_t i = row; i < ls_min(row + SQUARE, end); i++)
                for (int64_t j = ls_max(col, i + 1); j < ls_min(col + SQUARE, n); j++)
                    c->x[i * n + j] = c->x[j * n + i];
}

/* What is above the diagonal, from below it. */
static void mirror(struct ls_ops *ops, int64_t n, float *x)
{
    static const struct schulz_kind kind = {LS_WORK_COPY, 0, 1, SQUARE, false, mirror_rows};
    ops_submit(ops, &schulz_op, &(struct schulz_call){&kind, n, n, NULL, x});
}

static void polynomial_rows(const struct ls_ops *ops, const struct schulz_call *c, int64_t begin,
                            int64_t end)
{
    ops->kernels->muon->polynomial(c->cols, c->with, c->x, begin, end);
}

static void polynomial(struct ls_ops *ops, int64_t n, const float *gram, float *square)
{
    static const struct schulz_kind kind = {LS_WORK_ADD, 4, 3, 1, false, polynomial_rows};
    ops_submit(ops, &schulz_op, &(struct schulz_call){&kind, n, n, gram, square});
}

/* ---- Newton-Schulz --------------------------------------------------------------------------- */

static int64_t smaller(const struct ls_newton_schulz *op)
{
    return ls_min(op->rows, op->cols);
}

int64_t ls_newton_schulz_work(const struct ls_newton_schulz *op)
{
    int64_t n = smaller(op);
    int64_t products = 2 * ls_round_up(n * n, ALIGN);
    int64_t sum = (int64_t)(sizeof(struct ls_exact_sum) / sizeof(float));
    return ls_round_up(op->rows * op->cols, ALIGN) + ls_max(products, ls_round_up(sum, ALIGN));
}

/* sum: where the squares are added; the host need not see what they come to. */
static void normalise(struct ls_ops *ops, int64_t count, float *x, struct ls_exact_sum *sum)
{
    static const struct schulz_kind kind = {LS_WORK_UPDATE, 1, 2, ALIGN, true, unit_rows};
    ls_fill_zero(ops, sizeof *sum, sum);
    ls_squared_norm(ops, count, x, NULL, sum);
    ops_submit(ops, &schulz_op, &(struct schulz_call){&kind, count, 1, sum, x});
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
    normalise(ops, op->rows * op->cols, x, (struct ls_exact_sum *)(void *)gram); /* before it */
    for (int i = 0; i < op->steps && !status; i++) {
        status = iterate(ops, op, x, other, gram, error);
        float *was = x;
        x = other;
        other = was;
    }
    *out = x;
    return status;
}
