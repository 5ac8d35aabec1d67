/* Elementwise ops: their commands, and what each thread takes. */
#include "ops/kernels.h"
#include "ops/share.h"

#include <string.h>

enum { ALIGN = 64 }; /* elements: parts begin on cache lines */

/* An operand of rows that are so many times as wide as the op's; NONE where there is none, BIAS for
 * one row that all share. */
enum wide { NONE, ONCE, TWICE, BIAS };

/* What elementwise ops differ in. */
struct elements;
struct elements_kind {
    enum ls_work_kind work;
    int flops; /* of an element */
    void (*part)(const struct ls_ops *ops, const struct elements *e, int64_t begin, int64_t end);
    enum wide x, z, y;
    bool x_f32, y_f32; /* that operand is float32, whatever act is */
    bool updates;      /* y is read, too */
};

struct elements {
    const struct elements_kind *kind;
    enum ls_dtype act;
    int form; /* enum ls_gelu, enum ls_glu */
    float factor;
    int64_t rows, width; /* or a count, and 1 */
    const void *x, *z;
    void *y;
};

static size_t bytes_of(const struct elements *e, enum wide wide, bool f32)
{
    int64_t count = wide == BIAS ? e->width : (int64_t)wide * e->rows * e->width;
    return ops_bytes(f32 || wide == BIAS ? LS_F32 : e->act, count);
}

static void elements_operands(const struct ls_ops *ops, const void *arguments,
                              struct ls_operands *out)
{
    const struct elements *e = arguments;
    const struct elements_kind *kind = e->kind;
    (void)ops;
    ls_operand_add(out, e, &e->x, bytes_of(e, kind->x, kind->x_f32), LS_READS);
    ls_operand_add(out, e, &e->z, bytes_of(e, kind->z, false), LS_READS);
    ls_operand_add(out, e, &e->y, bytes_of(e, kind->y, kind->y_f32),
                   kind->updates ? LS_READS_WRITES : LS_WRITES);
}

/* A bias is left out, as all vectors of a matrix are. */
static struct ls_work elements_work(const struct ls_ops *ops, const void *arguments)
{
    const struct elements *e = arguments;
    const struct elements_kind *kind = e->kind;
    bool f32 = kind->x_f32 || kind->y_f32;
    struct ls_work work =
        ops_pass(kind->work, f32 ? LS_F32 : e->act, e->rows, e->width, kind->flops, 0);
    (void)ops;
    work.bytes = (double)bytes_of(e, kind->x, kind->x_f32) +
                 (kind->z == BIAS ? 0 : (double)bytes_of(e, kind->z, false)) +
                 (double)bytes_of(e, kind->y, kind->y_f32) * (kind->updates ? 2 : 1);
    return work;
}

static int elements_run(struct ls_ops *ops, const void *arguments, struct ls_error *error)
{
    const struct elements *e = arguments;
    (void)error;
    OPS_EACH_SHARE (ops, e->rows * e->width, e->rows, e->width == 1 ? ALIGN : 1)
        e->kind->part(ops, e, begin, end);
    return LS_OK;
}

static const struct ops_op elements_op =
    OPS_OP(struct elements, elements_work, elements_operands, elements_run);

/* Row `row` of an operand that is `wide` times as wide. */
static const void *x_at(const struct elements *e, int64_t row, int64_t wide)
{
    return ops_at(e->kind->x_f32 ? LS_F32 : e->act, e->x, row * wide * e->width);
}
static const void *z_at(const struct elements *e, int64_t row)
{
    return ops_at(e->act, e->z, row * e->width);
}
static void *y_at(const struct elements *e, int64_t row, int64_t wide)
{
    return ops_at_mutable(e->kind->y_f32 ? LS_F32 : e->act, e->y, row * wide * e->width);
}

static void gelu_forward_part(const struct ls_ops *ops, const struct elements *e, int64_t begin,
                              int64_t end)
{
    ops->kernels->pointwise->gelu_forward((enum ls_gelu)e->form, e->act, end - begin,
                                          x_at(e, begin, 1), y_at(e, begin, 1));
}
static const struct elements_kind gelu_forward = {
    LS_WORK_ACTIVATION, 12, gelu_forward_part, ONCE, NONE, ONCE, false, false, false};

void ls_gelu_forward(struct ls_ops *ops, enum ls_gelu kind, enum ls_dtype act, int64_t count,
                     const void *x, void *y)
{
    ops_submit(ops, &elements_op,
               &(struct elements){&gelu_forward, act, (int)kind, 0, count, 1, x, NULL, y});
}

static void gelu_backward_part(const struct ls_ops *ops, const struct elements *e, int64_t begin,
                               int64_t end)
{
    ops->kernels->pointwise->gelu_backward((enum ls_gelu)e->form, e->act, end - begin,
                                           x_at(e, begin, 1), z_at(e, begin), y_at(e, begin, 1));
}
static const struct elements_kind gelu_backward = {
    LS_WORK_ACTIVATION_BACKWARD, 20, gelu_backward_part, ONCE, ONCE, ONCE, false, false, false};

void ls_gelu_backward(struct ls_ops *ops, enum ls_gelu kind, enum ls_dtype act, int64_t count,
                      const void *x, const void *dy, void *dx)
{
    ops_submit(ops, &elements_op,
               &(struct elements){&gelu_backward, act, (int)kind, 0, count, 1, x, dy, dx});
}

static void glu_forward_part(const struct ls_ops *ops, const struct elements *e, int64_t begin,
                             int64_t end)
{
    ops->kernels->pointwise->glu_forward((enum ls_glu)e->form, e->act, end - begin, e->width,
                                         x_at(e, begin, 2), y_at(e, begin, 1));
}
static const struct elements_kind glu_forward = {
    LS_WORK_ACTIVATION, 6, glu_forward_part, TWICE, NONE, ONCE, false, false, false};

void ls_glu_forward(struct ls_ops *ops, enum ls_glu kind, enum ls_dtype act, int64_t rows,
                    int64_t width, const void *gate_up, void *y)
{
    ops_submit(ops, &elements_op,
               &(struct elements){&glu_forward, act, (int)kind, 0, rows, width, gate_up, NULL, y});
}

static void glu_backward_part(const struct ls_ops *ops, const struct elements *e, int64_t begin,
                              int64_t end)
{
    ops->kernels->pointwise->glu_backward((enum ls_glu)e->form, e->act, end - begin, e->width,
                                          x_at(e, begin, 2), z_at(e, begin), y_at(e, begin, 2));
}
static const struct elements_kind glu_backward = {
    LS_WORK_ACTIVATION_BACKWARD, 12, glu_backward_part, TWICE, ONCE, TWICE, false, false, false};

void ls_glu_backward(struct ls_ops *ops, enum ls_glu kind, enum ls_dtype act, int64_t rows,
                     int64_t width, const void *gate_up, const void *dy, void *d_gate_up)
{
    ops_submit(
        ops, &elements_op,
        &(struct elements){&glu_backward, act, (int)kind, 0, rows, width, gate_up, dy, d_gate_up});
}

static void softcap_part(const struct ls_ops *ops, const struct elements *e, int64_t begin,
                         int64_t end)
{
    ops->kernels->pointwise->softcap(e->act, end - begin, e->factor, x_at(e, begin, 1),
                                     y_at(e, begin, 1));
}
static const struct elements_kind softcap = {
    LS_WORK_ACTIVATION, 12, softcap_part, ONCE, NONE, ONCE, false, false, false};

void ls_softcap(struct ls_ops *ops, enum ls_dtype act, int64_t count, float cap, const void *x,
                void *y)
{
    ops_submit(ops, &elements_op, &(struct elements){&softcap, act, 0, cap, count, 1, x, NULL, y});
}

static void scale_part(const struct ls_ops *ops, const struct elements *e, int64_t begin,
                       int64_t end)
{
    ops->kernels->pointwise->scale(e->act, end - begin, e->factor, x_at(e, begin, 1),
                                   y_at(e, begin, 1));
}
static const struct elements_kind scale = {LS_WORK_ADD, 1,     scale_part, ONCE, NONE,
                                           ONCE,        false, false,      false};

void ls_scale(struct ls_ops *ops, enum ls_dtype act, int64_t count, float factor, const void *x,
              void *y)
{
    ops_submit(ops, &elements_op, &(struct elements){&scale, act, 0, factor, count, 1, x, NULL, y});
}

static void add_part(const struct ls_ops *ops, const struct elements *e, int64_t begin, int64_t end)
{
    ops->kernels->pointwise->add(e->act, end - begin, x_at(e, begin, 1), z_at(e, begin),
                                 y_at(e, begin, 1));
}
static const struct elements_kind add = {LS_WORK_ADD, 1,     add_part, ONCE, ONCE,
                                         ONCE,        false, false,    false};

void ls_add(struct ls_ops *ops, enum ls_dtype act, int64_t count, const void *x, const void *z,
            void *y)
{
    ops_submit(ops, &elements_op, &(struct elements){&add, act, 0, 0, count, 1, x, z, y});
}

static void bias_round_part(const struct ls_ops *ops, const struct elements *e, int64_t begin,
                            int64_t end)
{
    ops->kernels->pointwise->bias_round(e->act, end - begin, e->width, x_at(e, begin, 1), e->z,
                                        y_at(e, begin, 1));
}
static const struct elements_kind bias_round = {LS_WORK_ADD, 1,    bias_round_part, ONCE, BIAS,
                                                ONCE,        true, false,           false};

void ls_bias_round(struct ls_ops *ops, enum ls_dtype act, int64_t rows, int64_t n, const float *x,
                   const float *bias, void *y)
{
    ops_submit(ops, &elements_op, &(struct elements){&bias_round, act, 0, 0, rows, n, x, bias, y});
}

static void cast_to_half_part(const struct ls_ops *ops, const struct elements *e, int64_t begin,
                              int64_t end)
{
    ops->kernels->pointwise->cast_to_half(e->act, end - begin, x_at(e, begin, 1),
                                          y_at(e, begin, 1));
}
static const struct elements_kind cast_to_half = {
    LS_WORK_CAST, 0, cast_to_half_part, ONCE, NONE, ONCE, true, false, false};

void ls_cast_to_half(struct ls_ops *ops, enum ls_dtype half, int64_t count, const float *x,
                     ls_half *y)
{
    ops_submit(ops, &elements_op,
               &(struct elements){&cast_to_half, half, 0, 0, count, 1, x, NULL, y});
}

static void cast_from_half_part(const struct ls_ops *ops, const struct elements *e, int64_t begin,
                                int64_t end)
{
    ops->kernels->pointwise->cast_from_half(e->act, end - begin, x_at(e, begin, 1),
                                            y_at(e, begin, 1));
}
static const struct elements_kind cast_from_half = {
    LS_WORK_CAST, 0, cast_from_half_part, ONCE, NONE, ONCE, false, true, false};

void ls_cast_from_half(struct ls_ops *ops, enum ls_dtype half, int64_t count, const ls_half *x,
                       float *y)
{
    ops_submit(ops, &elements_op,
               &(struct elements){&cast_from_half, half, 0, 0, count, 1, x, NULL, y});
}

static void tree_add_part(const struct ls_ops *ops, const struct elements *e, int64_t begin,
                          int64_t end)
{
    ops->kernels->pointwise->tree_add(end - begin, y_at(e, begin, 1), x_at(e, begin, 1));
}
static const struct elements_kind tree_add = {LS_WORK_ADD, 1,    tree_add_part, ONCE, NONE,
                                              ONCE,        true, true,          true};

void ls_tree_add(struct ls_ops *ops, int64_t count, float *into, const float *from)
{
    ops_submit(ops, &elements_op,
               &(struct elements){&tree_add, LS_F32, 0, 0, count, 1, from, NULL, into});
}

/* ---- sums over rows, dropout ----------------------------------------------------------------- */

struct bias_gradient {
    enum ls_dtype act;
    int64_t n, ld;
    struct ls_token_sum sum;
    const void *dy;
    float *d_bias;
};

static struct ls_work bias_backward_work(const struct ls_ops *ops, const void *arguments)
{
    const struct bias_gradient *e = arguments;
    (void)ops;
    return ops_pass(LS_WORK_COLUMN_SUM, e->act, ls_token_rows(&e->sum), e->n, 1, 1);
}

static void bias_backward_operands(const struct ls_ops *ops, const void *arguments,
                                   struct ls_operands *out)
{
    const struct bias_gradient *e = arguments;
    (void)ops;
    ls_operand_add(out, e, &e->dy, ops_rows_bytes(e->act, ls_token_rows(&e->sum), e->n, e->ld),
                   LS_READS);
    ls_operand_add(out, e, &e->d_bias, ops_bytes(LS_F32, e->n), ops_sum_access(&e->sum));
}

static int bias_backward_run(struct ls_ops *ops, const void *arguments, struct ls_error *error)
{
    const struct bias_gradient *e = arguments;
    (void)error;
    OPS_EACH_SHARE (ops, ls_token_rows(&e->sum) * e->n, e->n, ALIGN)
        ops->kernels->sum->bias(e->act, e->ld, e->dy, &e->sum, e->d_bias, begin, end);
    return LS_OK;
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

static struct ls_work dropout_work(const struct ls_ops *ops, const void *arguments)
{
    const struct dropped *e = arguments;
    (void)ops;
    return ops_pass(LS_WORK_DROPOUT, e->act, e->dropout.rows, e->dropout.channels, 1, 2);
}

static void dropout_operands(const struct ls_ops *ops, const void *arguments,
                             struct ls_operands *out)
{
    const struct dropped *e = arguments;
    const size_t bytes = ops_bytes(e->act, e->dropout.rows * e->dropout.channels);
    (void)ops;
    ls_operand_add(out, e, &e->x, bytes, LS_READS);
    ls_operand_add(out, e, &e->y, bytes, LS_WRITES);
}

static int dropout_run(struct ls_ops *ops, const void *arguments, struct ls_error *error)
{
    const struct dropped *e = arguments;
    (void)error;
    OPS_EACH_SHARE (ops, e->dropout.rows * e->dropout.channels, e->dropout.rows, 1)
        ops->kernels->pointwise->dropout(e->act, &e->dropout, begin, end, e->x, e->y);
    return LS_OK;
}

void ls_dropout(struct ls_ops *ops, enum ls_dtype act, const struct ls_dropout *dropout,
                const void *x, void *y)
{
    static const struct ops_op op =
        OPS_OP(struct dropped, dropout_work, dropout_operands, dropout_run);
    ops_submit(ops, &op, &(struct dropped){act, *dropout, x, y});
}

/* ---- bytes ----------------------------------------------------------------------------------- */

bool ls_filled(struct ls_ops *ops, size_t bytes, unsigned char value, const void *buffer)
{
    const unsigned char *at = buffer;
    for (size_t i = 0; i < bytes && !ops->idle; i++)
        if (at[i] != value)
            return false;
    return true;
}

/* Rows of so many bytes, distances 0: dense ones. */
struct bytes {
    int64_t rows;
    size_t bytes, from_distance, to_distance;
    bool fills; /* with value, in the place of what is in from */
    unsigned char value;
    const void *from;
    void *to;
};

static struct ls_work bytes_work(const struct ls_ops *ops, const void *arguments)
{
    const struct bytes *e = arguments;
    enum ls_work_kind kind = e->fills ? LS_WORK_FILL : LS_WORK_COPY;
    int64_t bytes = (int64_t)e->bytes;
    (void)ops;
    return e->to_distance == 0 ? ops_pass(kind, LS_U8, bytes, 1, 0, e->fills ? 1 : 2)
                               : ops_pass(kind, LS_U8, e->rows, bytes, 0, 2);
}

static void bytes_operands(const struct ls_ops *ops, const void *arguments, struct ls_operands *out)
{
    const struct bytes *e = arguments;
    const size_t gaps = e->rows > 0 && e->bytes > 0 ? (size_t)e->rows - 1 : 0;
    (void)ops;
    ls_operand_add(out, e, &e->from, gaps * e->from_distance + e->bytes, LS_READS);
    ls_operand_add(out, e, &e->to, gaps * e->to_distance + e->bytes, LS_WRITES);
}

static void dense_part(const struct bytes *e, int64_t begin, int64_t end)
{
    if (e->fills)
        memset((char *)e->to + begin, e->value, (size_t)(end - begin));
    else
        memcpy((char *)e->to + begin, (const char *)e->from + begin, (size_t)(end - begin));
}

static int bytes_run(struct ls_ops *ops, const void *arguments, struct ls_error *error)
{
    const struct bytes *e = arguments;
    int64_t bytes = (int64_t)e->bytes;
    (void)error;
    if (e->to_distance == 0) {
        OPS_EACH_SHARE (ops, bytes / 4, bytes, ALIGN)
            dense_part(e, begin, end);
        return LS_OK;
    }
    OPS_EACH_SHARE (ops, e->rows * bytes / 4, e->rows, 1)
        for (int64_t i = begin; i < end && bytes > 0; i++)
            memcpy((char *)e->to + (size_t)i * e->to_distance,
                   (const char *)e->from + (size_t)i * e->from_distance, e->bytes);
    return LS_OK;
}

static const struct ops_op bytes_op = OPS_OP(struct bytes, bytes_work, bytes_operands, bytes_run);

void ls_fill_zero(struct ls_ops *ops, size_t bytes, void *buffer)
{
    ls_fill(ops, bytes, 0, buffer);
}

void ls_fill(struct ls_ops *ops, size_t bytes, unsigned char value, void *buffer)
{
    ops_submit(ops, &bytes_op, &(struct bytes){1, bytes, 0, 0, true, value, NULL, buffer});
}

void ls_copy(struct ls_ops *ops, size_t bytes, const void *from, void *to)
{
    ops_submit(ops, &bytes_op, &(struct bytes){1, bytes, 0, 0, false, 0, from, to});
}

void ls_copy_rows(struct ls_ops *ops, int64_t rows, size_t row_bytes, const void *from,
                  size_t from_distance, void *to, size_t to_distance)
{
    if (from_distance == row_bytes && to_distance == row_bytes)
        ls_copy(ops, (size_t)rows * row_bytes, from, to);
    else
        ops_submit(
            ops, &bytes_op,
            &(struct bytes){rows, row_bytes, from_distance, to_distance, false, 0, from, to});
}
