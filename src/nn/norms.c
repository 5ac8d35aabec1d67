/* LayerNorm and RMSNorm of the residual stream. */
#include "model.h"

#include <string.h>

static struct ls_norm op_of(const struct ls_model *model, const struct norm *norm, int64_t rows)
{
    return (struct ls_norm){.rows = rows,
                            .channels = model->config.channels,
                            .act = model->numerics.act,
                            .epsilon = model->config.norm_epsilon,
                            .weight = model_vector(model, norm->weight),
                            .bias = model_vector(model, norm->bias),
                            .mean = norm->mean,
                            .rstd = norm->rstd};
}

void norm_forward(const struct ls_model *model, struct ls_ops *ops, const struct norm *norm,
                  int64_t rows, const void *x, const void *residual, void *sum, void *y)
{
    struct ls_norm op = op_of(model, norm, rows);
    if (model->config.arch == LS_GPT2)
        ls_layernorm_forward(ops, &op, x, residual, sum, y);
    else
        ls_rmsnorm_forward(ops, &op, x, residual, sum, y);
}

void norm_backward_input(const struct ls_model *model, struct ls_ops *ops, const struct norm *norm,
                         int64_t rows, const void *h, const void *dy, const void *d_residual,
                         void *dh)
{
    struct ls_norm op = op_of(model, norm, rows);
    if (model->config.arch == LS_GPT2)
        ls_layernorm_backward_input(ops, &op, h, dy, d_residual, dh);
    else
        ls_rmsnorm_backward_input(ops, &op, h, dy, d_residual, dh);
}

static void backward_weight(const struct ls_model *model, struct ls_ops *ops,
                            const struct ls_norm *op, const void *h, const void *dy,
                            const struct ls_token_sum *sum, float *d_weight, float *d_bias)
{
    if (model->config.arch == LS_GPT2)
        ls_layernorm_backward_weight(ops, op, h, dy, sum, d_weight, d_bias);
    else
        ls_rmsnorm_backward_weight(ops, op, h, dy, sum, d_weight);
}

/* ---- weights of a stream that is cut over ranks -----------------------------------------------
 */

/* Rows of unit `unit` that this rank holds, [*begin, *end) of its share, and the order of their
 * sum: a subtree of the unit's (ls_tp_admits). */
static struct ls_token_sum unit_part(const struct ls_model *model, const struct rows *rows,
                                     int64_t unit, int64_t *begin, int64_t *end)
{
    int64_t length = rows->unit_sequences * rows->unit_tokens;
    if (model->numerics.fast) {
        *begin = 0;
        *end = rows->count;
        return (struct ls_token_sum){.leaves = 1, .sequences = 1, .tokens = rows->count};
    }
    *begin = ls_max(unit * length - rows->first, 0);
    *end = ls_min((unit + 1) * length - rows->first, rows->count);
    int64_t count = ls_max(*end - *begin, 0), sequences = ls_max(count / rows->unit_tokens, 1);
    return (struct ls_token_sum){.leaves = 1, .sequences = sequences, .tokens = count / sequences};
}

/* The tree over vectors [first, first + count) of that width, into the first of them. */
static void vectors_tree(struct ls_ops *ops, float *vectors, int64_t count, int64_t width)
{
    if (count <= 1)
        return;
    int64_t split = ls_tree_split(count);
    vectors_tree(ops, vectors, split, width);
    vectors_tree(ops, vectors + split * width, count - split, width);
    ls_tree_add(ops, width, vectors, vectors + split * width);
}

static void deliver(struct ls_ops *ops, const float *from, int64_t count, bool accumulate,
                    float *to)
{
    if (accumulate)
        ls_tree_add(ops, count, to, from);
    else
        memcpy(to, from, (size_t)count * sizeof *to);
}

/* Each unit's vectors, zero where another rank holds its rows, are added over ranks; then units by
 * the tree. No sum that starts from zero is ever -0, so adding another rank's zeros changes
 * nothing. */
static int cut_backward_weight(struct ls_model *model, struct ls_ops *ops, const struct rows *rows,
                               const struct norm_gradient *norms, int count,
                               const struct ls_gradient *gradient, struct ls_error *error)
{
    int64_t c = model->config.channels, units = model->numerics.fast ? 1 : rows->units;
    int64_t parts = norms[0].norm.bias ? 2 : 1, width = count * parts * c;
    size_t row_bytes = (size_t)c * model_act_bytes(model);
    ls_fill_zero(ops, (size_t)(units * width) * sizeof(float), model->vectors);
    for (int64_t unit = 0; unit < units; unit++) {
        int64_t begin, end;
        struct ls_token_sum sum = unit_part(model, rows, unit, &begin, &end);
        for (int i = 0; i < count && begin < end; i++) {
            struct norm part = norms[i].norm;
            if (part.mean)
                part.mean += begin;
            part.rstd += begin;
            struct ls_norm op = op_of(model, &part, end - begin);
            float *to = model->vectors + unit * width + i * parts * c;
            size_t at = (size_t)begin * row_bytes;
            backward_weight(model, ops, &op, (const char *)norms[i].h + at,
                            (const char *)norms[i].dy + at, &sum, to, parts > 1 ? to + c : NULL);
        }
    }
    model_label(model, norms[0].norm.weight);
    int status = ls_all_reduce(model->tp.comm, model->vectors, units * width, error);
    if (status)
        return status;
    vectors_tree(ops, model->vectors, units, width);
    for (int i = 0; i < count; i++) {
        const struct norm *norm = &norms[i].norm;
        const float *from = model->vectors + i * parts * c;
        deliver(ops, from, c, gradient->accumulate, gradient->flat + norm->weight->region_offset);
        if (norm->bias)
            deliver(ops, from + c, c, gradient->accumulate,
                    gradient->flat + norm->bias->region_offset);
    }
    return LS_OK;
}

int norms_backward_weight(struct ls_model *model, struct ls_ops *ops, const struct rows *rows,
                          const struct norm_gradient *norms, int count,
                          const struct ls_gradient *gradient, struct ls_error *error)
{
    if (model->tp.sequence)
        return cut_backward_weight(model, ops, rows, norms, count, gradient, error);
    struct ls_token_sum sum = rows_sum(rows, gradient->accumulate);
    for (int i = 0; i < count; i++) {
        const struct norm *norm = &norms[i].norm;
        struct ls_norm op = op_of(model, norm, rows->all);
        backward_weight(model, ops, &op, norms[i].h, norms[i].dy, &sum,
                        gradient->flat + norm->weight->region_offset,
                        norm->bias ? gradient->flat + norm->bias->region_offset : NULL);
    }
    return LS_OK;
}
