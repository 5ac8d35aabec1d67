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

/* Part i of units times tiles. */
static void heads_part(const struct ls_ops *ops, const struct ls_norm *norm, const void *h,
                       const void *dy, const struct ls_norm_parts *out, int64_t i)
{
    const struct ls_token_sum sum = {1, 1, 1, out->tokens, LS_ONTO_NOTHING};
    int64_t unit = i / out->tiles, tile = i % out->tiles, heads = norm->heads / out->tiles;
    int64_t token = unit * out->tokens, head = tile * heads;
    int64_t at = token * norm->ld + head * norm->channels;
    float *to = out->sums + unit * out->sums_ld + tile * norm->channels;
    struct ls_norm part = *norm;
    part.rows = out->tokens;
    part.heads = heads;
    part.mean = NULL;
    part.rstd = norm->rstd + token * norm->statistics_ld + head;
    ops->kernels->sum->norm_weight(&part, ops_at(norm->act, h, at), ops_at(norm->act, dy, at), &sum,
                                   to, NULL, 0, norm->channels);
}

void ls_rmsnorm_heads_weight(struct ls_ops *ops, const struct ls_norm *norm, const void *h,
                             const void *dy, const struct ls_norm_parts *out)
{
    LS_ASSERT(norm->heads % out->tiles == 0);
    LS_ASSERT(out->units * out->tokens * norm->heads == norm->rows);
    OPS_TELL(ops, ops_pass(LS_WORK_COLUMN_SUM, norm->act, norm->rows, norm->channels, 4, 2));
    OPS_EACH_SHARE (ops, norm->rows * norm->channels, out->units * out->tiles, 1)
        for (int64_t i = begin; i < end; i++)
            heads_part(ops, norm, h, dy, out, i);
}

/* As large as passes that the planner can play again. */
void ls_rmsnorm_cut_sum(struct ls_ops *ops, const struct ls_norm *norm,
                        const struct ls_norm_cut *cut, const void *h, const void *dy, float *sums)
{
    LS_ASSERT(norm->heads == 1 && cut->count % cut->tiles == 0);
    LS_ASSERT(cut->first + cut->count <= norm->channels);
    OPS_TELL(ops, ops_pass(LS_WORK_COLUMN_SUM, norm->act, norm->rows, cut->count, dy ? 4 : 1,
                           dy ? 2 : 1));
    OPS_EACH_SHARE (ops, norm->rows * cut->count, norm->rows, 1)
        ops->kernels->norm->cut_sum(norm, cut, h, dy, sums, begin, end);
}

void ls_rmsnorm_cut_finish(struct ls_ops *ops, const struct ls_norm *norm,
                           const struct ls_norm_cut *cut, const void *h, const void *dy,
                           const float *sums, void *to)
{
    OPS_TELL(ops, ops_pass(dy ? LS_WORK_NORM_BACKWARD : LS_WORK_NORM, norm->act, norm->rows,
                           norm->channels, dy ? 10 : 8, dy ? 3 : 2));
    OPS_EACH_SHARE (ops, norm->rows * norm->channels, norm->rows, 1)
        ops->kernels->norm->cut_finish(norm, cut, h, dy, sums, to, begin, end);
}
