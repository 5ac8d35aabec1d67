/* Updates of parameters: what each thread takes, and the numbers that depend on the step. */
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

/* states: moments that are read and written; the gradients, the master and the rounded copy too. */
static struct ls_work update_work(const struct ls_update *update, int states, int flops)
{
    struct ls_work work = ops_pass(LS_WORK_UPDATE, update->moment_type, update->count, 1, flops, 0);
    double each = (update->second ? 16 : 12) + (update->compute ? 2 : 0) +
                  2.0 * states * (double)ls_dtype_bytes(update->moment_type);
    work.bytes = (double)update->count * each;
    return work;
}

void ls_adamw_update(struct ls_ops *ops, const struct ls_update *update,
                     const struct ls_adamw *adamw, void *m, void *v)
{
    OPS_TELL(ops, update_work(update, 2, 15));
    if (ops->idle)
        return;
    LS_ASSERT(adamw->step >= 1);
    float step_size = (float)(update->lr / (1 - power(adamw->beta1, adamw->step)));
    float inverse_root = (float)(1 / sqrt(1 - power(adamw->beta2, adamw->step)));
    OPS_EACH_SHARE (ops, update->count, update->count, ALIGN)
        ops->kernels->update->adamw(update, adamw, step_size, inverse_root, m, v, begin, end);
}

void ls_sgd_update(struct ls_ops *ops, const struct ls_update *update, const struct ls_sgd *sgd,
                   void *buffer)
{
    OPS_TELL(ops, update_work(update, buffer ? 1 : 0, 6));
    OPS_EACH_SHARE (ops, update->count, update->count, ALIGN)
        ops->kernels->update->sgd(update, sgd, buffer, begin, end);
}

void ls_lion_update(struct ls_ops *ops, const struct ls_update *update, const struct ls_lion *lion,
                    void *m)
{
    OPS_TELL(ops, update_work(update, 1, 9));
    OPS_EACH_SHARE (ops, update->count, update->count, ALIGN)
        ops->kernels->update->lion(update, lion, m, begin, end);
}

void ls_squared_norm(struct ls_ops *ops, int64_t count, const float *gradient, const float *second,
                     struct ls_exact_sum *sum)
{
    OPS_TELL(ops, ops_pass(LS_WORK_SQUARES, LS_F32, count, 1, 2, second ? 2 : 1));
    OPS_EACH_SHARE (ops, count, count, ALIGN) {
        struct ls_exact_sum own;
        ls_exact_clear(&own);
        ops->kernels->update->squares(gradient, second, begin, end, &own);
#pragma omp critical(ls_squared_norm)
        ls_exact_merge(sum, &own);
    }
}
