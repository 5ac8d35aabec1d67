/* Cross-entropy: what each thread takes, and the sum of losses over tokens. */
#include "ops/kernels.h"
#include "ops/share.h"
#include "ops/tree.h"

static void check(const struct ls_cross_entropy *op, const int32_t *target)
{
    LS_ASSERT(op->tiles > 0 && op->padded % op->tiles == 0 && op->first >= 0);
    for (int64_t row = 0; target && row < op->rows; row++)
        LS_ASSERT(target[row] >= -1 && target[row] < op->vocabulary);
}

/* passes: how often the logits are read or written. */
static struct ls_work work_of(const struct ls_cross_entropy *op, double passes)
{
    return ops_pass(LS_WORK_LOSS, op->act, op->rows, op->padded, 4, passes);
}

void ls_cross_entropy(struct ls_ops *ops, const struct ls_cross_entropy *op, void *logits,
                      const int32_t *target, float *loss)
{
    OPS_TELL(ops, work_of(op, op->scale != 0 ? 3 : 1));
    if (ops->idle)
        return;
    check(op, target);
    LS_ASSERT(op->first == 0 && op->vocabulary <= op->padded);
    OPS_EACH_SHARE (ops, op->rows * op->padded, op->rows, 1)
        ops->kernels->loss->cross_entropy(op, logits, target, loss, begin, end);
}

void ls_cross_entropy_max(struct ls_ops *ops, const struct ls_cross_entropy *op, const void *logits,
                          float *max)
{
    OPS_TELL(ops, work_of(op, 1));
    if (ops->idle)
        return;
    check(op, NULL);
    OPS_EACH_SHARE (ops, op->rows * op->padded, op->rows, 1)
        ops->kernels->loss->max(op, logits, max, begin, end);
}

void ls_cross_entropy_sum(struct ls_ops *ops, const struct ls_cross_entropy *op, const void *logits,
                          const int32_t *target, const float *max, float *sum, float *target_logit)
{
    OPS_TELL(ops, work_of(op, 1));
    if (ops->idle)
        return;
    check(op, target);
    OPS_EACH_SHARE (ops, op->rows * op->padded, op->rows, 1)
        ops->kernels->loss->sum(op, logits, target, max, sum, target_logit, begin, end);
}

void ls_cross_entropy_finish(struct ls_ops *ops, const struct ls_cross_entropy *op, void *logits,
                             const int32_t *target, const float *max, const float *sum,
                             const float *target_logit, float *loss)
{
    OPS_TELL(ops, work_of(op, op->scale != 0 ? 2 : 0));
    if (ops->idle)
        return;
    check(op, target);
    const struct loss_rows rows = {max, sum, target_logit};
    OPS_EACH_SHARE (ops, op->rows * op->padded, op->rows, 1)
        ops->kernels->loss->finish(op, logits, target, &rows, loss, begin, end);
}

/* Columns are looked through once, and none is added: no kernel is needed. */
static float place_of(const struct ls_cross_entropy *op, const void *logits, int64_t row, float max)
{
    int64_t columns = ls_max(0, ls_min(op->padded, op->vocabulary - op->first));
    for (int64_t i = row * op->padded; i < row * op->padded + columns; i++) {
        float z = op->act == LS_F32 ? ((const float *)logits)[i]
                                    : ls_half_to_f32(op->act, ((const ls_half *)logits)[i]);
        if (z == max)
            return -(float)(op->first + i - row * op->padded);
    }
    return -__builtin_inff();
}

void ls_cross_entropy_place(struct ls_ops *ops, const struct ls_cross_entropy *op,
                            const void *logits, const float *max, float *place)
{
    OPS_TELL(ops, work_of(op, 1));
    if (ops->idle)
        return;
    check(op, NULL);
    OPS_EACH_SHARE (ops, op->rows * op->padded, op->rows, 1)
        for (int64_t row = begin; row < end; row++)
            place[row] = place_of(op, logits, row, max[row]);
}

static float tokens_sum(const float *loss, int64_t tokens)
{
    float stack[64];
    int top = 0;
    int64_t tiles = ls_ceil_div(tokens, LS_TOKEN_TILE);
    for (int64_t tile = 0; tile < tiles; tile++) {
        float partial = 0;
        int64_t end = ls_min(tokens, (tile + 1) * LS_TOKEN_TILE);
        for (int64_t t = tile * LS_TOKEN_TILE; t < end; t++)
            partial += loss[t];
        stack[top++] = partial;
        for (int merges = ops_tree_merges(tile, tiles); merges > 0; merges--, top--)
            stack[top - 2] += stack[top - 1];
    }
    return top ? stack[0] : 0.0f;
}

void ls_loss_sum(struct ls_ops *ops, const float *loss, int64_t sequences, int64_t tiles,
                 int64_t tokens, float *out)
{
    if (ops->idle)
        return;
    for (int64_t sequence = 0; sequence < sequences; sequence++) {
        float stack[64] = {0};
        int top = 0;
        for (int64_t tile = 0; tile < tiles; tile++, loss += tokens) {
            stack[top++] = tokens_sum(loss, tokens);
            for (int merges = ops_tree_merges(tile, tiles); merges > 0; merges--, top--)
                stack[top - 2] += stack[top - 1];
        }
        out[sequence] = stack[0];
    }
}
