/* Cross-entropy: its commands, what each thread takes, and the sum of losses over tokens. */
#include "ops/kernels.h"
#include "ops/share.h"
#include "ops/tree.h"

static void check(const struct ls_cross_entropy *op, const int32_t *target)
{
    LS_ASSERT(op->tiles > 0 && op->padded % op->tiles == 0 && op->first >= 0);
    for (int64_t row = 0; target && row < op->rows; row++)
        LS_ASSERT(target[row] >= -1 && target[row] < op->vocabulary);
}

/* What the losses' ops differ in. */
struct loss_kind {
    int passes, gradient_passes; /* over the logits; with a gradient */
    enum ls_access logits, row_max, row_sum;
    enum loss_op op; /* LOSS_OPS: places */
};

static struct ls_work loss_work(const void *arguments)
{
    const struct loss_call *c = arguments;
    return ops_pass(LS_WORK_LOSS, c->op.act, c->op.rows, c->op.padded, 4,
                    c->op.scale != 0 ? c->kind->gradient_passes : c->kind->passes);
}

static void loss_operands(const void *arguments, struct ls_operands *out)
{
    const struct loss_call *c = arguments;
    const struct loss_kind *kind = c->kind;
    const size_t row = ops_bytes(LS_F32, c->op.rows);
    ls_operand_add(out, c, &c->logits, ops_bytes(c->op.act, c->op.rows * c->op.padded),
                   c->op.scale != 0 ? kind->logits : LS_READS);
    ops_operand_ids(ls_operand_add(out, c, &c->target, row, LS_READS), -1, c->op.vocabulary);
    if (kind->gradient_passes > kind->passes) {
        ls_operand_add(out, c, &c->op.weight, row, LS_READS);
        ls_operand_add(out, c, &c->op.entropy_weight, row, LS_READS);
        ls_operand_add(out, c, &c->op.product, row, LS_READS);
    }
    ls_operand_add(out, c, &c->max, row, kind->row_max);
    ls_operand_add(out, c, &c->sum, row, kind->row_sum);
    ls_operand_add(out, c, &c->beside, row, kind->row_sum);
    ls_operand_add(out, c, &c->out, row, LS_WRITES);
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

static void loss_run(struct ls_ops *ops, const void *arguments)
{
    const struct loss_call *c = arguments;
    check(&c->op, c->target);
    OPS_EACH_SHARE (ops, c->op.rows * c->op.padded, c->op.rows, 1)
        if (c->kind->op != LOSS_OPS)
            ops->kernels->loss->of[c->kind->op](c, begin, end);
        else
            for (int64_t row = begin; row < end; row++)
                c->out[row] = place_of(&c->op, c->logits, row, c->max[row]);
}

static const struct ops_op loss_op = OPS_OP(struct loss_call, loss_work, loss_operands, loss_run);

void ls_cross_entropy(struct ls_ops *ops, const struct ls_cross_entropy *op, void *logits,
                      const int32_t *target, float *loss)
{
    static const struct loss_kind kind = {1, 3, LS_READS_WRITES, 0, 0, LOSS_WHOLE};
    LS_ASSERT(ops->idle || (op->first == 0 && op->vocabulary <= op->padded));
    LS_ASSERT(!op->entropy_weight);
    ops_submit(ops, &loss_op,
               &(struct loss_call){&kind, *op, logits, target, NULL, NULL, NULL, loss});
}

void ls_cross_entropy_max(struct ls_ops *ops, const struct ls_cross_entropy *op, const void *logits,
                          float *max)
{
    static const struct loss_kind kind = {1, 1, LS_READS, LS_WRITES, 0, LOSS_MAX};
    ops_submit(
        ops, &loss_op,
        &(struct loss_call){&kind, *op, (void *)(uintptr_t)logits, NULL, max, NULL, NULL, NULL});
}

void ls_cross_entropy_sum(struct ls_ops *ops, const struct ls_cross_entropy *op, const void *logits,
                          const int32_t *target, const float *max, float *sum, float *target_logit,
                          float *product)
{
    static const struct loss_kind kind = {1, 1, LS_READS, LS_READS, LS_WRITES, LOSS_SUM};
    ops_submit(ops, &loss_op,
               &(struct loss_call){&kind, *op, (void *)(uintptr_t)logits, target,
                                   (float *)(uintptr_t)max, sum, target_logit, product});
}

void ls_cross_entropy_finish(struct ls_ops *ops, const struct ls_cross_entropy *op, void *logits,
                             const int32_t *target, const float *max, const float *sum,
                             const float *target_logit, float *loss)
{
    static const struct loss_kind kind = {0, 2, LS_READS_WRITES, LS_READS, LS_READS, LOSS_FINISH};
    LS_ASSERT(!op->entropy_weight == !op->product);
    ops_submit(ops, &loss_op,
               &(struct loss_call){&kind, *op, logits, target, (float *)(uintptr_t)max,
                                   (float *)(uintptr_t)sum, (float *)(uintptr_t)target_logit,
                                   loss});
}

void ls_entropy(struct ls_ops *ops, const struct ls_cross_entropy *op, const float *sum,
                const float *product, float *entropy)
{
    static const struct loss_kind kind = {3, 3, 0, 0, LS_READS, ENTROPY};
    struct ls_cross_entropy rows = *op;
    rows.padded = rows.tiles = 1; /* a number of each row alone */
    ops_submit(ops, &loss_op,
               &(struct loss_call){.kind = &kind,
                                   .op = rows,
                                   .sum = (float *)(uintptr_t)sum,
                                   .beside = (float *)(uintptr_t)product,
                                   .out = entropy});
}

void ls_cross_entropy_place(struct ls_ops *ops, const struct ls_cross_entropy *op,
                            const void *logits, const float *max, float *place)
{
    static const struct loss_kind kind = {1, 1, LS_READS, LS_READS, 0, LOSS_OPS};
    ops_submit(ops, &loss_op,
               &(struct loss_call){&kind, *op, (void *)(uintptr_t)logits, NULL,
                                   (float *)(uintptr_t)max, NULL, NULL, place});
}

static float weighted(float value, float weight)
{
    return weight != 0 ? weight * value : 0.0f;
}

/* What token i adds. */
static float token_term(const struct ls_loss_sum *sum, int64_t i)
{
    float term = sum->weight ? weighted(sum->loss[i], sum->weight[i]) : sum->loss[i];
    return sum->entropy_weight ? term + weighted(sum->entropy[i], sum->entropy_weight[i]) : term;
}

/* Of a tile of a sequence that begins with token first. */
static float tokens_sum(const struct ls_loss_sum *sum, int64_t first)
{
    float stack[64];
    int top = 0;
    int64_t tiles = ls_ceil_div(sum->tokens, LS_TOKEN_TILE);
    for (int64_t tile = 0; tile < tiles; tile++) {
        float partial = 0;
        int64_t end = ls_min(sum->tokens, (tile + 1) * LS_TOKEN_TILE);
        for (int64_t t = tile * LS_TOKEN_TILE; t < end; t++)
            partial += token_term(sum, first + t);
        stack[top++] = partial;
        for (int merges = ops_tree_merges(tile, tiles); merges > 0; merges--, top--)
            stack[top - 2] += stack[top - 1];
    }
    return top ? stack[0] : 0.0f;
}

struct loss_sum {
    struct ls_loss_sum sum;
    float *out;
};

static void loss_sum_operands(const void *arguments, struct ls_operands *out)
{
    const struct loss_sum *c = arguments;
    const size_t rows = ops_bytes(LS_F32, c->sum.sequences * c->sum.tiles * c->sum.tokens);
    ls_operand_add(out, c, &c->sum.loss, rows, LS_READS);
    ls_operand_add(out, c, &c->sum.weight, rows, LS_READS);
    ls_operand_add(out, c, &c->sum.entropy, rows, LS_READS);
    ls_operand_add(out, c, &c->sum.entropy_weight, rows, LS_READS);
    ls_operand_add(out, c, &c->out, ops_bytes(LS_F32, c->sum.sequences), LS_WRITES);
}

static void loss_sum_run(struct ls_ops *ops, const void *arguments)
{
    const struct loss_sum *c = arguments;
    (void)ops;
    for (int64_t sequence = 0; sequence < c->sum.sequences; sequence++) {
        float stack[64] = {0};
        int top = 0;
        for (int64_t tile = 0; tile < c->sum.tiles; tile++) {
            stack[top++] = tokens_sum(&c->sum, (sequence * c->sum.tiles + tile) * c->sum.tokens);
            for (int merges = ops_tree_merges(tile, c->sum.tiles); merges > 0; merges--, top--)
                stack[top - 2] += stack[top - 1];
        }
        c->out[sequence] = stack[0];
    }
}

void ls_loss_sum(struct ls_ops *ops, const struct ls_loss_sum *sum, float *out)
{
    static const struct ops_op op = OPS_OP(struct loss_sum, NULL, loss_sum_operands, loss_sum_run);
    ops_submit(ops, &op, &(struct loss_sum){*sum, out});
}
