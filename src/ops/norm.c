/* Norms: what each thread takes of the rows, or of the columns of weights. */
#include "ops/kernels.h"
#include "ops/share.h"

/* Rows are independent: each thread takes a share of them. */
void ls_layernorm_forward(struct ls_ops *ops, const struct ls_norm *norm, const void *x,
                          const void *residual, void *sum, void *y)
{
    LS_ASSERT(norm->channels <= LS_NORM_CHANNELS_MAX);
    OPS_TELL(ops,
             ops_pass(LS_WORK_NORM, norm->act, norm->rows, norm->channels, 8, residual ? 4 : 2));
    OPS_EACH_SHARE (ops, norm->rows * norm->channels, norm->rows, 1)
        ops->kernels->norm->layernorm_forward(norm, x, residual, sum, y, begin, end);
}

void ls_rmsnorm_forward(struct ls_ops *ops, const struct ls_norm *norm, const void *x,
                        const void *residual, void *sum, void *y)
{
    LS_ASSERT(norm->channels <= LS_NORM_CHANNELS_MAX);
    OPS_TELL(ops,
             ops_pass(LS_WORK_NORM, norm->act, norm->rows, norm->channels, 8, residual ? 4 : 2));
    OPS_EACH_SHARE (ops, norm->rows * norm->channels, norm->rows, 1)
        ops->kernels->norm->rmsnorm_forward(norm, x, residual, sum, y, begin, end);
}

void ls_layernorm_backward_input(struct ls_ops *ops, const struct ls_norm *norm, const void *h,
                                 const void *dy, const void *d_residual, void *dh)
{
    LS_ASSERT(norm->channels <= LS_NORM_CHANNELS_MAX);
    OPS_TELL(ops, ops_pass(LS_WORK_NORM_BACKWARD, norm->act, norm->rows, norm->channels, 10,
                           d_residual ? 4 : 3));
    OPS_EACH_SHARE (ops, norm->rows * norm->channels, norm->rows, 1)
        ops->kernels->norm->layernorm_backward_input(norm, h, dy, d_residual, dh, begin, end);
}

void ls_rmsnorm_backward_input(struct ls_ops *ops, const struct ls_norm *norm, const void *h,
                               const void *dy, const void *d_residual, void *dh)
{
    LS_ASSERT(norm->channels <= LS_NORM_CHANNELS_MAX);
    OPS_TELL(ops, ops_pass(LS_WORK_NORM_BACKWARD, norm->act, norm->rows, norm->channels, 10,
                           d_residual ? 4 : 3));
    OPS_EACH_SHARE (ops, norm->rows * norm->channels, norm->rows, 1)
        ops->kernels->norm->rmsnorm_backward_input(norm, h, dy, d_residual, dh, begin, end);
}

static void backward_weight(struct ls_ops *ops, const struct ls_norm *norm, const void *h,
                            const void *dy, const struct ls_token_sum *sum, float *d_weight,
                            float *d_bias)
{
    LS_ASSERT(ls_token_rows(sum) == norm->rows);
    OPS_TELL(ops, ops_pass(LS_WORK_COLUMN_SUM, norm->act, norm->rows, norm->channels, 4, 2));
    OPS_EACH_SHARE (ops, norm->rows * norm->channels, norm->channels, 64)
        ops->kernels->sum->norm_weight(norm, h, dy, sum, d_weight, d_bias, begin, end);
}

void ls_layernorm_backward_weight(struct ls_ops *ops, const struct ls_norm *norm, const void *h,
                                  const void *dy, const struct ls_token_sum *sum, float *d_weight,
                                  float *d_bias)
{
    backward_weight(ops, norm, h, dy, sum, d_weight, d_bias);
}

void ls_rmsnorm_backward_weight(struct ls_ops *ops, const struct ls_norm *norm, const void *h,
                                const void *dy, const struct ls_token_sum *sum, float *d_weight)
{
    struct ls_norm uncentered = *norm;
    uncentered.mean = NULL;
    backward_weight(ops, &uncentered, h, dy, sum, d_weight, NULL);
}
