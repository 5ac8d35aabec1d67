/* Updates of parameters: their commands, what each thread takes, and the numbers that depend on the
 * step. */
#include "ops/kernels.h"
#include "ops/share.h"

#include <math.h>

enum { ALIGN = 64 };

/* By squaring: products only, so the same on every machine. */
static double power(double base, int64_t exponent)
{
    double result = 1;
    for (; exponent > 0; exponent >>= 1, base *= base)
        if (exponent & 1)
            result *= base;
    return result;
}

/* Master and moments are read and written; the gradients are read, the rounded copy is written. */
static struct ls_work update_work(const void *arguments)
{
    static const int flops[UPDATE_OPS] = {15, 6, 9}; /* of an element */
    const struct update_call *c = arguments;
    const struct ls_update *update = &c->update;
    int states = (c->moment[0] != NULL) + (c->moment[1] != NULL);
    struct ls_work work =
        ops_pass(LS_WORK_UPDATE, update->moment_type, update->count, 1, flops[c->op], 0);
    double each = (update->second ? 16 : 12) + (update->compute ? 2 : 0) +
                  2.0 * states * (double)ls_dtype_bytes(update->moment_type);
    work.bytes = (double)update->count * each;
    return work;
}

static void update_operands(const void *arguments, struct ls_operands *out)
{
    const struct update_call *c = arguments;
    ops_update_operands(&c->update, c, out);
    for (int i = 0; i < 2; i++)
        ls_operand_add(out, c, &c->moment[i], ops_bytes(c->update.moment_type, c->update.count),
                       LS_READS_WRITES);
}

static void update_run(struct ls_ops *ops, const void *arguments)
{
    const struct update_call *c = arguments;
    OPS_EACH_SHARE (ops, c->update.count, c->update.count, ALIGN)
        ops->kernels->update->of[c->op](c, begin, end);
}

static const struct ops_op update_op =
    OPS_OP(struct update_call, update_work, update_operands, update_run);

void ls_adamw_update(struct ls_ops *ops, const struct ls_update *update,
                     const struct ls_adamw *adamw, void *m, void *v)
{
    float step_size = (float)(update->lr / (1 - power(adamw->beta1, adamw->step)));
    float inverse_root = (float)(1 / sqrt(1 - power(adamw->beta2, adamw->step)));
    LS_ASSERT(ops->idle || adamw->step >= 1);
    ops_submit(ops, &update_op,
               &(struct update_call){
                   UPDATE_ADAMW, *update, {.adamw = *adamw}, step_size, inverse_root, {m, v}});
}

void ls_sgd_update(struct ls_ops *ops, const struct ls_update *update, const struct ls_sgd *sgd,
                   void *buffer)
{
    ops_submit(ops, &update_op,
               &(struct update_call){UPDATE_SGD, *update, {.sgd = *sgd}, 0, 0, {buffer, NULL}});
}

void ls_lion_update(struct ls_ops *ops, const struct ls_update *update, const struct ls_lion *lion,
                    void *m)
{
    ops_submit(ops, &update_op,
               &(struct update_call){UPDATE_LION, *update, {.lion = *lion}, 0, 0, {m, NULL}});
}

/* ---- squares --------------------------------------------------------------------------------- */

struct squares_call {
    int64_t count;
    const float *gradient, *second;
    struct ls_exact_sum *sum;
};

static struct ls_work squares_work(const void *arguments)
{
    const struct squares_call *c = arguments;
    return ops_pass(LS_WORK_SQUARES, LS_F32, c->count, 1, 2, c->second ? 2 : 1);
}

static void squares_operands(const void *arguments, struct ls_operands *out)
{
    const struct squares_call *c = arguments;
    ls_operand_add(out, c, &c->gradient, ops_bytes(LS_F32, c->count), LS_READS);
    ls_operand_add(out, c, &c->second, ops_bytes(LS_F32, c->count), LS_READS);
    ops_operand_ids(ls_operand_add(out, c, &c->sum, sizeof *c->sum, LS_READS_WRITES), 0,
                    1); /* cleared */
}

static void squares_run(struct ls_ops *ops, const void *arguments)
{
    const struct squares_call *c = arguments;
    OPS_EACH_SHARE (ops, c->count, c->count, ALIGN) {
        struct ls_exact_sum own;
        ls_exact_clear(&own);
        ops->kernels->update->squares(c->gradient, c->second, begin, end, &own);
#pragma omp critical(ls_squared_norm)
        ls_exact_merge(c->sum, &own);
    }
}

void ls_squared_norm(struct ls_ops *ops, int64_t count, const float *gradient, const float *second,
                     struct ls_exact_sum *sum)
{
    static const struct ops_op op =
        OPS_OP(struct squares_call, squares_work, squares_operands, squares_run);
    ops_submit(ops, &op, &(struct squares_call){count, gradient, second, sum});
}
