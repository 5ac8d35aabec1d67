/* Outer deltas of workers: the commands, and what each thread takes. */
#include "ops/kernels.h"
#include "ops/share.h"

#include <string.h>

enum { ALIGN = 64 }; /* elements: parts begin on cache lines */

enum ls_dtype ls_delta_dtype(enum ls_delta_type type)
{
    return type == LS_DELTA_F32 ? LS_F32 : type == LS_DELTA_BF16 ? LS_BF16 : LS_I8;
}

enum ls_dtype ls_delta_sum_dtype(enum ls_delta_type type)
{
    return type == LS_DELTA_F32 ? LS_F32 : type == LS_DELTA_BF16 ? LS_BF16 : LS_I16;
}

/* ---- element by element ---------------------------------------------------------------------- */

/* What those ops differ in. */
struct delta_kind {
    enum ls_work_kind work;
    int flops; /* of an element */
    enum delta_op op;
    bool updates; /* y is read, too */
};

static struct ls_work delta_work(const void *arguments)
{
    const struct delta_call *c = arguments;
    struct ls_work work = ops_pass(c->kind->work, LS_F32, c->count, 1, c->kind->flops, 0);
    work.bytes = (double)ops_bytes(c->x_type, c->count) +
                 (double)ops_bytes(LS_F32, c->z ? c->count : 0) +
                 (double)ops_bytes(c->y_type, c->count) * (c->kind->updates ? 2 : 1);
    return work;
}

static void delta_operands(const void *arguments, struct ls_operands *out)
{
    const struct delta_call *c = arguments;
    ls_operand_add(out, c, &c->x, ops_bytes(c->x_type, c->count), LS_READS);
    ls_operand_add(out, c, &c->z, ops_bytes(LS_F32, c->count), LS_READS);
    ls_operand_add(out, c, &c->y, ops_bytes(c->y_type, c->count),
                   c->kind->updates ? LS_READS_WRITES : LS_WRITES);
}

static void delta_run(struct ls_ops *ops, const void *arguments)
{
    const struct delta_call *c = arguments;
    OPS_EACH_SHARE (ops, c->count, c->count, ALIGN)
        ops->kernels->delta->of[c->kind->op](c, begin, end);
}

static const struct ops_op delta_op =
    OPS_OP(struct delta_call, delta_work, delta_operands, delta_run);

void ls_delta_encode(struct ls_ops *ops, enum ls_delta_type type, const float *global,
                     const float *local, int64_t count, float scale, void *out)
{
    static const struct delta_kind kind = {LS_WORK_CAST, 1, DELTA_ENCODE, false};
    ops_submit(ops, &delta_op,
               &(struct delta_call){&kind, type, LS_F32, ls_delta_dtype(type), count, scale, global,
                                    local, out});
}

void ls_delta_decode(struct ls_ops *ops, enum ls_delta_type type, const void *sum, int64_t count,
                     float scale, float *out)
{
    static const struct delta_kind kind = {LS_WORK_CAST, 1, DELTA_DECODE, false};
    ops_submit(ops, &delta_op,
               &(struct delta_call){&kind, type, ls_delta_sum_dtype(type), LS_F32, count, scale,
                                    sum, NULL, out});
}

void ls_mix(struct ls_ops *ops, const float *global, float *local, int64_t count, float share)
{
    static const struct delta_kind kind = {LS_WORK_ADD, 3, DELTA_MIX, true};
    LS_ASSERT(share >= 0 && share <= 1);
    ops_submit(ops, &delta_op,
               &(struct delta_call){&kind, LS_DELTA_F32, LS_F32, LS_F32, count, share, global, NULL,
                                    local});
}

void ls_compensate(struct ls_ops *ops, float *gradient, const float *now, const float *then,
                   int64_t count, float lambda)
{
    static const struct delta_kind kind = {LS_WORK_UPDATE, 5, DELTA_COMPENSATE, true};
    ops_submit(ops, &delta_op,
               &(struct delta_call){&kind, LS_DELTA_F32, LS_F32, LS_F32, count, lambda, now, then,
                                    gradient});
}

/* ---- the largest magnitude ------------------------------------------------------------------- */

struct amax_call {
    int64_t count;
    const float *global, *local;
    float *amax;
};

static struct ls_work amax_work(const void *arguments)
{
    const struct amax_call *c = arguments;
    return ops_pass(LS_WORK_SQUARES, LS_F32, c->count, 1, 2, 2);
}

static void amax_operands(const void *arguments, struct ls_operands *out)
{
    const struct amax_call *c = arguments;
    ls_operand_add(out, c, &c->global, ops_bytes(LS_F32, c->count), LS_READS);
    ls_operand_add(out, c, &c->local, ops_bytes(LS_F32, c->count), LS_READS);
    ls_operand_add(out, c, &c->amax, sizeof *c->amax, LS_READS_WRITES);
}

/* Magnitudes are compared as integers: NaN is above infinity, and none is lost. */
static void amax_run(struct ls_ops *ops, const void *arguments)
{
    const struct amax_call *c = arguments;
    uint32_t most;
    memcpy(&most, c->amax, sizeof most);
    most &= 0x7fffffffu;
    OPS_EACH_SHARE (ops, c->count, c->count, ALIGN) {
        uint32_t own = ops->kernels->delta->amax(c->global, c->local, begin, end);
#pragma omp critical(ls_delta_amax)
        most = own > most ? own : most;
    }
    most = most > 0x7f800000u ? 0x7fc00000u : most;
    memcpy(c->amax, &most, sizeof most);
}

void ls_delta_amax(struct ls_ops *ops, const float *global, const float *local, int64_t count,
                   float *amax)
{
    static const struct ops_op op = OPS_OP(struct amax_call, amax_work, amax_operands, amax_run);
    ops_submit(ops, &op, &(struct amax_call){count, global, local, amax});
}

/* ---- sums over workers ----------------------------------------------------------------------- */

struct sum_call {
    enum ls_delta_type type;
    int n;
    int64_t stride, count;
    const void *parts;
    void *out;
};

static struct ls_work sum_work(const void *arguments)
{
    const struct sum_call *c = arguments;
    enum ls_dtype dtype = ls_delta_dtype(c->type);
    struct ls_work work = ops_pass(LS_WORK_ADD, dtype, c->count, 1, c->n - 1, c->n);
    work.bytes += (double)ops_bytes(ls_delta_sum_dtype(c->type), c->count);
    return work;
}

static void sum_operands(const void *arguments, struct ls_operands *out)
{
    const struct sum_call *c = arguments;
    const int64_t parts = c->count > 0 ? c->n : 0;
    ls_operand_add(out, c, &c->parts,
                   ops_rows_bytes(ls_delta_dtype(c->type), parts, c->count, c->stride), LS_READS);
    ls_operand_add(out, c, &c->out, ops_bytes(ls_delta_sum_dtype(c->type), c->count), LS_WRITES);
}

static void sum_run(struct ls_ops *ops, const void *arguments)
{
    const struct sum_call *c = arguments;
    OPS_EACH_SHARE (ops, c->n * c->count, c->count, ALIGN)
        ops->kernels->delta->sum(c->type, c->parts, c->stride, c->n, c->out, begin, end);
}

void ls_delta_sum(struct ls_ops *ops, enum ls_delta_type type, const void *parts, int64_t stride,
                  int n, int64_t count, void *out)
{
    static const struct ops_op op = OPS_OP(struct sum_call, sum_work, sum_operands, sum_run);
    LS_ASSERT(n >= 1 && (type != LS_DELTA_INT8 || n <= LS_DELTA_INT8_WORKERS_MAX));
    LS_ASSERT(stride >= count);
    ops_submit(ops, &op, &(struct sum_call){type, n, stride, count, parts, out});
}
