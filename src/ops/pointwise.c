/* Elementwise ops: their commands, and what each thread takes. */
#include "ops/kernels.h"
#include "ops/share.h"

#include <string.h>

enum { ALIGN = 64 }; /* elements: parts begin on cache lines */

/* An operand of rows that are so many times as wide as the op's; NONE if there is none, BIAS for
 * one row that all share. */
enum wide { NONE, ONCE, TWICE, BIAS };

/* What elementwise ops differ in. */
static const struct elements_kind {
    enum ls_work_kind work;
    int flops; /* of an element */
    enum wide x, z, y;
    bool x_f32, y_f32; /* that operand is float32, whatever act is */
    bool updates;      /* y is read, too */
} kinds[POINTWISE_OPS] = {
    [GELU_FORWARD] = {LS_WORK_ACTIVATION, 12, ONCE, NONE, ONCE, false, false, false},
    [GELU_BACKWARD] = {LS_WORK_ACTIVATION_BACKWARD, 20, ONCE, ONCE, ONCE, false, false, false},
    [GLU_FORWARD] = {LS_WORK_ACTIVATION, 6, TWICE, NONE, ONCE, false, false, false},
    [GLU_BACKWARD] = {LS_WORK_ACTIVATION_BACKWARD, 12, TWICE, ONCE, TWICE, false, false, false},
    [SOFTCAP] = {LS_WORK_ACTIVATION, 12, ONCE, NONE, ONCE, false, false, false},
    [SCALE] = {LS_WORK_ADD, 1, ONCE, NONE, ONCE, false, false, false},
    [ADD] = {LS_WORK_ADD, 1, ONCE, ONCE, ONCE, false, false, false},
    [BIAS_ROUND] = {LS_WORK_ADD, 1, ONCE, BIAS, ONCE, true, false, false},
    [CAST_TO_HALF] = {LS_WORK_CAST, 0, ONCE, NONE, ONCE, true, false, false},
    [CAST_FROM_HALF] = {LS_WORK_CAST, 0, ONCE, NONE, ONCE, false, true, false},
    [TREE_ADD] = {LS_WORK_ADD, 1, ONCE, NONE, ONCE, true, true, true},
};

struct elements {
    enum pointwise_op op;
    struct pointwise all;
};

static size_t bytes_of(const struct pointwise *e, int64_t rows, enum wide wide, bool f32)
{
    int64_t count = wide == BIAS ? e->width : (int64_t)wide * rows * e->width;
    return ops_bytes(f32 || wide == BIAS ? LS_F32 : e->act, count);
}

static void elements_operands(const void *arguments, struct ls_operands *out)
{
    const struct elements *c = arguments;
    const struct pointwise *e = &c->all;
    const struct elements_kind *kind = &kinds[c->op];
    ls_operand_add(out, c, &e->x, bytes_of(e, e->rows, kind->x, kind->x_f32), LS_READS);
    ls_operand_add(out, c, &e->z, bytes_of(e, e->rows, kind->z, false), LS_READS);
    ls_operand_add(out, c, &e->y, bytes_of(e, e->rows, kind->y, kind->y_f32),
                   kind->updates ? LS_READS_WRITES : LS_WRITES);
}

/* A bias is left out, as all vectors of a matrix are. */
static struct ls_work elements_work(const void *arguments)
{
    const struct elements *c = arguments;
    const struct pointwise *e = &c->all;
    const struct elements_kind *kind = &kinds[c->op];
    bool f32 = kind->x_f32 || kind->y_f32;
    struct ls_work work =
        ops_pass(kind->work, f32 ? LS_F32 : e->act, e->rows, e->width, kind->flops, 0);
    work.bytes = (double)bytes_of(e, e->rows, kind->x, kind->x_f32) +
                 (kind->z == BIAS ? 0 : (double)bytes_of(e, e->rows, kind->z, false)) +
                 (double)bytes_of(e, e->rows, kind->y, kind->y_f32) * (kind->updates ? 2 : 1);
    return work;
}

static void elements_run(struct ls_ops *ops, const void *arguments)
{
    const struct elements *c = arguments;
    const struct pointwise *e = &c->all;
    const struct elements_kind *kind = &kinds[c->op];
    OPS_EACH_SHARE (ops, e->rows * e->width, e->rows, e->width == 1 ? ALIGN : 1) {
        struct pointwise part = *e;
        part.rows = end - begin;
        part.x = (const char *)e->x + bytes_of(e, begin, kind->x, kind->x_f32);
        if (kind->z == ONCE)
            part.z = (const char *)e->z + bytes_of(e, begin, kind->z, false);
        part.y = (char *)e->y + bytes_of(e, begin, kind->y, kind->y_f32);
        ops->kernels->pointwise->of[c->op](&part);
    }
}

static void elements_submit(struct ls_ops *ops, enum pointwise_op op, struct pointwise all)
{
    static const struct ops_op elements_op =
        OPS_OP(struct elements, elements_work, elements_operands, elements_run);
    ops_submit(ops, &elements_op, &(struct elements){op, all});
}

void ls_gelu_forward(struct ls_ops *ops, enum ls_gelu kind, enum ls_dtype act, int64_t count,
                     const void *x, void *y)
{
    elements_submit(ops, GELU_FORWARD, (struct pointwise){act, (int)kind, 0, count, 1, x, NULL, y});
}

void ls_gelu_backward(struct ls_ops *ops, enum ls_gelu kind, enum ls_dtype act, int64_t count,
                      const void *x, const void *dy, void *dx)
{
    elements_submit(ops, GELU_BACKWARD, (struct pointwise){act, (int)kind, 0, count, 1, x, dy, dx});
}

void ls_glu_forward(struct ls_ops *ops, enum ls_glu kind, enum ls_dtype act, int64_t rows,
                    int64_t width, const void *gate_up, void *y)
{
    elements_submit(ops, GLU_FORWARD,
                    (struct pointwise){act, (int)kind, 0, rows, width, gate_up, NULL, y});
}

void ls_glu_backward(struct ls_ops *ops, enum ls_glu kind, enum ls_dtype act, int64_t rows,
                     int64_t width, const void *gate_up, const void *dy, void *d_gate_up)
{
    elements_submit(ops, GLU_BACKWARD,
                    (struct pointwise){act, (int)kind, 0, rows, width, gate_up, dy, d_gate_up});
}

void ls_softcap(struct ls_ops *ops, enum ls_dtype act, int64_t count, float cap, const void *x,
                void *y)
{
    elements_submit(ops, SOFTCAP, (struct pointwise){act, 0, cap, count, 1, x, NULL, y});
}

void ls_scale(struct ls_ops *ops, enum ls_dtype act, int64_t count, float factor, const void *x,
              void *y)
{
    elements_submit(ops, SCALE, (struct pointwise){act, 0, factor, count, 1, x, NULL, y});
}

void ls_add(struct ls_ops *ops, enum ls_dtype act, int64_t count, const void *x, const void *z,
            void *y)
{
    elements_submit(ops, ADD, (struct pointwise){act, 0, 0, count, 1, x, z, y});
}

void ls_bias_round(struct ls_ops *ops, enum ls_dtype act, int64_t rows, int64_t n, const float *x,
                   const float *bias, void *y)
{
    elements_submit(ops, BIAS_ROUND, (struct pointwise){act, 0, 0, rows, n, x, bias, y});
}

void ls_cast_to_half(struct ls_ops *ops, enum ls_dtype half, int64_t count, const float *x,
                     ls_half *y)
{
    elements_submit(ops, CAST_TO_HALF, (struct pointwise){half, 0, 0, count, 1, x, NULL, y});
}

void ls_cast_from_half(struct ls_ops *ops, enum ls_dtype half, int64_t count, const ls_half *x,
                       float *y)
{
    elements_submit(ops, CAST_FROM_HALF, (struct pointwise){half, 0, 0, count, 1, x, NULL, y});
}

void ls_tree_add(struct ls_ops *ops, int64_t count, float *into, const float *from)
{
    elements_submit(ops, TREE_ADD, (struct pointwise){LS_F32, 0, 0, count, 1, from, NULL, into});
}

/* ---- sums over rows, dropout ----------------------------------------------------------------- */

struct bias_gradient {
    enum ls_dtype act;
    int64_t n, ld;
    struct ls_token_sum sum;
    const void *dy;
    float *d_bias;
};

static struct ls_work bias_backward_work(const void *arguments)
{
    const struct bias_gradient *e = arguments;
    return ops_pass(LS_WORK_COLUMN_SUM, e->act, ls_token_rows(&e->sum), e->n, 1, 1);
}

static void bias_backward_operands(const void *arguments, struct ls_operands *out)
{
    const struct bias_gradient *e = arguments;
    ls_operand_add(out, e, &e->dy, ops_rows_bytes(e->act, ls_token_rows(&e->sum), e->n, e->ld),
                   LS_READS);
    ls_operand_add(out, e, &e->d_bias, ops_bytes(LS_F32, e->n), ops_sum_access(&e->sum));
}

static void bias_backward_run(struct ls_ops *ops, const void *arguments)
{
    const struct bias_gradient *e = arguments;
    OPS_EACH_SHARE (ops, ls_token_rows(&e->sum) * e->n, e->n, ALIGN)
        ops->kernels->sum->bias(e->act, e->ld, e->dy, &e->sum, e->d_bias, begin, end);
}

void ls_bias_backward(struct ls_ops *ops, enum ls_dtype act, int64_t n, int64_t ld, const void *dy,
                      const struct ls_token_sum *sum, float *d_bias)
{
    static const struct ops_op op =
        OPS_OP(struct bias_gradient, bias_backward_work, bias_backward_operands, bias_backward_run);
    ops_submit(ops, &op, &(struct bias_gradient){act, n, ld, *sum, dy, d_bias});
}

struct dropped {
    enum ls_dtype act;
    struct ls_dropout dropout;
    const void *x;
    void *y;
};

static struct ls_work dropout_work(const void *arguments)
{
    const struct dropped *e = arguments;
    return ops_pass(LS_WORK_DROPOUT, e->act, e->dropout.rows, e->dropout.channels, 1, 2);
}

static void dropout_operands(const void *arguments, struct ls_operands *out)
{
    const struct dropped *e = arguments;
    const size_t bytes = ops_bytes(e->act, e->dropout.rows * e->dropout.channels);
    ls_operand_add(out, e, &e->x, bytes, LS_READS);
    ls_operand_add(out, e, &e->y, bytes, LS_WRITES);
}

static void dropout_run(struct ls_ops *ops, const void *arguments)
{
    const struct dropped *e = arguments;
    OPS_EACH_SHARE (ops, e->dropout.rows * e->dropout.channels, e->dropout.rows, 1)
        ops->kernels->pointwise->dropout(e->act, &e->dropout, begin, end, e->x, e->y);
}

void ls_dropout(struct ls_ops *ops, enum ls_dtype act, const struct ls_dropout *dropout,
                const void *x, void *y)
{
    static const struct ops_op op =
        OPS_OP(struct dropped, dropout_work, dropout_operands, dropout_run);
    ops_submit(ops, &op, &(struct dropped){act, *dropout, x, y});
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* Rows of so many bytes, distances 0: dense ones. */
struct bytes {
    int64_t rows;
    size_t bytes, from_distance, to_distance;
    bool fills; /* with zeros, in the place of what is in from */
    const void *from;
    void *to;
};

static struct ls_work bytes_work(const void *arguments)
{
    const struct bytes *e = arguments;
    enum ls_work_kind kind = e->fills ? LS_WORK_FILL : LS_WORK_COPY;
    int64_t bytes = (int64_t)e->bytes;
    return e->to_distance == 0 ? ops_pass(kind, LS_U8, bytes, 1, 0, e->fills ? 1 : 2)
                               : ops_pass(kind, LS_U8, e->rows, bytes, 0, 2);
}

static void bytes_operands(const void *arguments, struct ls_operands *out)
{
    const struct bytes *e = arguments;
    const size_t gaps = e->rows > 0 && e->bytes > 0 ? (size_t)e->rows - 1 : 0;
    ls_operand_add(out, e, &e->from, gaps * e->from_distance + e->bytes, LS_READS);
    ls_operand_add(out, e, &e->to, gaps * e->to_distance + e->bytes, LS_WRITES);
}

static void dense_part(const struct bytes *e, int64_t begin, int64_t end)
{
    if (e->fills)
        memset((char *)e->to + begin, 0, (size_t)(end - begin));
    else
        memcpy((char *)e->to + begin, (const char *)e->from + begin, (size_t)(end - begin));
}

static void bytes_run(struct ls_ops *ops, const void *arguments)
{
    const struct bytes *e = arguments;
    int64_t bytes = (int64_t)e->bytes;
    if (e->to_distance == 0) {
        OPS_EACH_SHARE (ops, bytes / 4, bytes, ALIGN)
            dense_part(e, begin, end);
        return;
    }
    OPS_EACH_SHARE (ops, e->rows * bytes / 4, e->rows, 1)
        for (int64_t i = begin; i < end && bytes > 0; i++)
            memcpy((char *)e->to + (size_t)i * e->to_distance,
                   (const char *)e->from + (size_t)i * e->from_distance, e->bytes);
}

static const struct ops_op bytes_op = OPS_OP(struct bytes, bytes_work, bytes_operands, bytes_run);

void ls_fill_zero(struct ls_ops *ops, size_t bytes, void *buffer)
{
    ops_submit(ops, &bytes_op,
               &(struct bytes){.rows = 1, .bytes = bytes, .fills = true, .to = buffer});
}

void ls_copy(struct ls_ops *ops, size_t bytes, const void *from, void *to)
{
    ops_submit(ops, &bytes_op, &(struct bytes){1, bytes, 0, 0, false, from, to});
}

void ls_copy_rows(struct ls_ops *ops, int64_t rows, size_t row_bytes, const void *from,
                  size_t from_distance, void *to, size_t to_distance)
{
    if (from_distance == row_bytes && to_distance == row_bytes)
        ls_copy(ops, (size_t)rows * row_bytes, from, to);
    else
        ops_submit(ops, &bytes_op,
                   &(struct bytes){rows, row_bytes, from_distance, to_distance, false, from, to});
}
