/* Norms: what each thread takes of the rows, or of the columns of weights. */
#include "ops/kernels.h"
#include "ops/share.h"

typedef void forward_rows(const struct ls_norm *norm, const void *x, const void *residual,
                          void *sum, void *y, int64_t begin, int64_t end);
typedef void backward_rows(const struct ls_norm *norm, const void *h, const void *dy,
                           const void *d_residual, void *dh, int64_t begin, int64_t end);

/* Rows are independent: each thread takes a share of them. */
static void forward(struct ls_ops *ops, forward_rows *rows, const struct ls_norm *norm,
                    const void *x, const void *residual, void *sum, void *y)
{
    int parts = ops_parts(ops, norm->rows * norm->channels);
    LS_ASSERT(norm->channels <= LS_NORM_CHANNELS_MAX);
#pragma omp parallel for num_threads(parts)
    for (int part = 0; part < parts; part++) {
        int64_t begin, end;
        ops_share(norm->rows, 1, part, parts, &begin, &end);
        rows(norm, x, residual, sum, y, begin, end);
    }
}

static void backward_input(struct ls_ops *ops, backward_rows *rows, const struct ls_norm *norm,
                           const void *h, const void *dy, const void *d_residual, void *dh)
{
    int parts = ops_parts(ops, norm->rows * norm->channels);
    LS_ASSERT(norm->channels <= LS_NORM_CHANNELS_MAX);
#pragma omp parallel for num_threads(parts)
    for (int part = 0; part < parts; part++) {
        int64_t begin, end;
        ops_share(norm->rows, 1, part, parts, &begin, &end);
        rows(norm, h, dy, d_residual, dh, begin, end);
    }
}

void ls_layernorm_forward(struct ls_ops *ops, const struct ls_norm *norm, const void *x,
                          const void *residual, void *sum, void *y)
{
    if (ops->idle)
        return;
    forward(ops, ops->kernels->norm->layernorm_forward, norm, x, residual, sum, y);
}

void ls_rmsnorm_forward(struct ls_ops *ops, const struct ls_norm *norm, const void *x,
                        const void *residual, void *sum, void *y)
{
    if (ops->idle)
        return;
    forward(ops, ops->kernels->norm->rmsnorm_forward, norm, x, residual, sum, y);
}

void ls_layernorm_backward_input(struct ls_ops *ops, const struct ls_norm *norm, const void *h,
                                 const void *dy, const void *d_residual, void *dh)
{
    if (ops->idle)
        return;
    backward_input(ops, ops->kernels->norm->layernorm_backward_input, norm, h, dy, d_residual, dh);
}

void ls_rmsnorm_backward_input(struct ls_ops *ops, const struct ls_norm *norm, const void *h,
                               const void *dy, const void *d_residual, void *dh)
{
    if (ops->idle)
        return;
    backward_input(ops, ops->kernels->norm->rmsnorm_backward_input, norm, h, dy, d_residual, dh);
}

static void backward_weight(struct ls_ops *ops, const struct ls_norm *norm, const void *h,
                            const void *dy, const struct ls_token_sum *sum, float *d_weight,
                            float *d_bias)
{
    int parts = ops_parts(ops, norm->rows * norm->channels);
    LS_ASSERT(sum->leaves * sum->sequences * sum->tokens == norm->rows);
#pragma omp parallel for num_threads(parts)
    for (int part = 0; part < parts; part++) {
        int64_t begin, end;
        ops_share(norm->channels, 64, part, parts, &begin, &end);
        ops->kernels->sum->norm_weight(norm, h, dy, sum, d_weight, d_bias, begin, end);
    }
}

void ls_layernorm_backward_weight(struct ls_ops *ops, const struct ls_norm *norm, const void *h,
                                  const void *dy, const struct ls_token_sum *sum, float *d_weight,
                                  float *d_bias)
{
    if (ops->idle)
        return;
    backward_weight(ops, norm, h, dy, sum, d_weight, d_bias);
}

void ls_rmsnorm_backward_weight(struct ls_ops *ops, const struct ls_norm *norm, const void *h,
                                const void *dy, const struct ls_token_sum *sum, float *d_weight)
{
    if (ops->idle)
        return;
    struct ls_norm uncentered = *norm;
    uncentered.mean = NULL;
    backward_weight(ops, &uncentered, h, dy, sum, d_weight, NULL);
}
