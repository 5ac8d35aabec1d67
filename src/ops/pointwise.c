/* Elementwise ops: what each thread takes. */
#include "ops/kernels.h"
#include "ops/share.h"

#include <string.h>

enum { ALIGN = 64 }; /* elements: parts begin on cache lines */

void ls_gelu_forward(struct ls_ops *ops, enum ls_gelu kind, enum ls_dtype act, int64_t count,
                     const void *x, void *y)
{
    OPS_TELL(ops, ops_pass(LS_WORK_ACTIVATION, act, count, 1, 12, 2));
    OPS_EACH_SHARE (ops, count, count, ALIGN)
        ops->kernels->pointwise->gelu_forward(kind, act, end - begin, ops_at(act, x, begin),
                                              ops_at_mutable(act, y, begin));
}

void ls_gelu_backward(struct ls_ops *ops, enum ls_gelu kind, enum ls_dtype act, int64_t count,
                      const void *x, const void *dy, void *dx)
{
    OPS_TELL(ops, ops_pass(LS_WORK_ACTIVATION_BACKWARD, act, count, 1, 20, 3));
    OPS_EACH_SHARE (ops, count, count, ALIGN)
        ops->kernels->pointwise->gelu_backward(kind, act, end - begin, ops_at(act, x, begin),
                                               ops_at(act, dy, begin),
                                               ops_at_mutable(act, dx, begin));
}

void ls_glu_forward(struct ls_ops *ops, enum ls_glu kind, enum ls_dtype act, int64_t rows,
                    int64_t width, const void *gate_up, void *y)
{
    OPS_TELL(ops, ops_pass(LS_WORK_ACTIVATION, act, rows, width, 6, 3));
    OPS_EACH_SHARE (ops, rows * width, rows, 1)
        ops->kernels->pointwise->glu_forward(kind, act, end - begin, width,
                                             ops_at(act, gate_up, begin * 2 * width),
                                             ops_at_mutable(act, y, begin * width));
}

void ls_glu_backward(struct ls_ops *ops, enum ls_glu kind, enum ls_dtype act, int64_t rows,
                     int64_t width, const void *gate_up, const void *dy, void *d_gate_up)
{
    OPS_TELL(ops, ops_pass(LS_WORK_ACTIVATION_BACKWARD, act, rows, width, 12, 5));
    OPS_EACH_SHARE (ops, rows * width, rows, 1)
        ops->kernels->pointwise->glu_backward(
            kind, act, end - begin, width, ops_at(act, gate_up, begin * 2 * width),
            ops_at(act, dy, begin * width), ops_at_mutable(act, d_gate_up, begin * 2 * width));
}

void ls_softcap(struct ls_ops *ops, enum ls_dtype act, int64_t count, float cap, const void *x,
                void *y)
{
    OPS_TELL(ops, ops_pass(LS_WORK_ACTIVATION, act, count, 1, 12, 2));
    OPS_EACH_SHARE (ops, count, count, ALIGN)
        ops->kernels->pointwise->softcap(act, end - begin, cap, ops_at(act, x, begin),
                                         ops_at_mutable(act, y, begin));
}

void ls_scale(struct ls_ops *ops, enum ls_dtype act, int64_t count, float factor, const void *x,
              void *y)
{
    OPS_TELL(ops, ops_pass(LS_WORK_ADD, act, count, 1, 1, 2));
    OPS_EACH_SHARE (ops, count, count, ALIGN)
        ops->kernels->pointwise->scale(act, end - begin, factor, ops_at(act, x, begin),
                                       ops_at_mutable(act, y, begin));
}

void ls_bias_backward(struct ls_ops *ops, enum ls_dtype act, int64_t n, int64_t ld, const void *dy,
                      const struct ls_token_sum *sum, float *d_bias)
{
    OPS_TELL(ops, ops_pass(LS_WORK_COLUMN_SUM, act, ls_token_rows(sum), n, 1, 1));
    OPS_EACH_SHARE (ops, ls_token_rows(sum) * n, n, ALIGN)
        ops->kernels->sum->bias(act, ld, dy, sum, d_bias, begin, end);
}

void ls_add(struct ls_ops *ops, enum ls_dtype act, int64_t count, const void *x, const void *z,
            void *y)
{
    OPS_TELL(ops, ops_pass(LS_WORK_ADD, act, count, 1, 1, 3));
    OPS_EACH_SHARE (ops, count, count, ALIGN)
        ops->kernels->pointwise->add(act, end - begin, ops_at(act, x, begin), ops_at(act, z, begin),
                                     ops_at_mutable(act, y, begin));
}

void ls_bias_round(struct ls_ops *ops, enum ls_dtype act, int64_t rows, int64_t n, const float *x,
                   const float *bias, void *y)
{
    OPS_TELL(ops, ops_pass(LS_WORK_ADD, LS_F32, rows, n, 1, act == LS_F32 ? 2 : 1.5));
    OPS_EACH_SHARE (ops, rows * n, rows, 1)
        ops->kernels->pointwise->bias_round(act, end - begin, n, x + begin * n, bias,
                                            ops_at_mutable(act, y, begin * n));
}

void ls_dropout(struct ls_ops *ops, enum ls_dtype act, const struct ls_dropout *dropout,
                const void *x, void *y)
{
    OPS_TELL(ops, ops_pass(LS_WORK_DROPOUT, act, dropout->rows, dropout->channels, 1, 2));
    OPS_EACH_SHARE (ops, dropout->rows * dropout->channels, dropout->rows, 1)
        ops->kernels->pointwise->dropout(act, dropout, begin, end, x, y);
}

void ls_cast_to_half(struct ls_ops *ops, enum ls_dtype half, int64_t count, const float *x,
                     ls_half *y)
{
    OPS_TELL(ops, ops_pass(LS_WORK_CAST, LS_F32, count, 1, 0, 1.5));
    OPS_EACH_SHARE (ops, count, count, ALIGN)
        ops->kernels->pointwise->cast_to_half(half, end - begin, x + begin, y + begin);
}

void ls_cast_from_half(struct ls_ops *ops, enum ls_dtype half, int64_t count, const ls_half *x,
                       float *y)
{
    OPS_TELL(ops, ops_pass(LS_WORK_CAST, LS_F32, count, 1, 0, 1.5));
    OPS_EACH_SHARE (ops, count, count, ALIGN)
        ops->kernels->pointwise->cast_from_half(half, end - begin, x + begin, y + begin);
}

void ls_tree_add(struct ls_ops *ops, int64_t count, float *into, const float *from)
{
    OPS_TELL(ops, ops_pass(LS_WORK_ADD, LS_F32, count, 1, 1, 3));
    OPS_EACH_SHARE (ops, count, count, ALIGN)
        ops->kernels->pointwise->tree_add(end - begin, into + begin, from + begin);
}

bool ls_filled(struct ls_ops *ops, size_t bytes, unsigned char value, const void *buffer)
{
    const unsigned char *at = buffer;
    for (size_t i = 0; i < bytes && !ops->idle; i++)
        if (at[i] != value)
            return false;
    return true;
}

void ls_fill_zero(struct ls_ops *ops, size_t bytes, void *buffer)
{
    ls_fill(ops, bytes, 0, buffer);
}

void ls_fill(struct ls_ops *ops, size_t bytes, unsigned char value, void *buffer)
{
    OPS_TELL(ops, ops_pass(LS_WORK_FILL, LS_U8, (int64_t)bytes, 1, 0, 1));
    OPS_EACH_SHARE (ops, (int64_t)bytes / 4, (int64_t)bytes, ALIGN)
        memset((char *)buffer + begin, value, (size_t)(end - begin));
}

void ls_copy(struct ls_ops *ops, size_t bytes, const void *from, void *to)
{
    OPS_TELL(ops, ops_pass(LS_WORK_COPY, LS_U8, (int64_t)bytes, 1, 0, 2));
    OPS_EACH_SHARE (ops, (int64_t)bytes / 4, (int64_t)bytes, ALIGN)
        memcpy((char *)to + begin, (const char *)from + begin, (size_t)(end - begin));
}

void ls_copy_rows(struct ls_ops *ops, int64_t rows, size_t row_bytes, const void *from,
                  size_t from_distance, void *to, size_t to_distance)
{
    if (from_distance == row_bytes && to_distance == row_bytes) {
        ls_copy(ops, (size_t)rows * row_bytes, from, to);
        return;
    }
    OPS_TELL(ops, ops_pass(LS_WORK_COPY, LS_U8, rows, (int64_t)row_bytes, 0, 2));
    OPS_EACH_SHARE (ops, rows * (int64_t)row_bytes / 4, rows, 1)
        for (int64_t i = begin; i < end && row_bytes > 0; i++)
            memcpy((char *)to + (size_t)i * to_distance,
                   (const char *)from + (size_t)i * from_distance, row_bytes);
}
