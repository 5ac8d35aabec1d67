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

/* What those ops differ in that read x and z, and write or update y. */
struct delta_call;
struct delta_kind {
    enum ls_work_kind work;
    int flops; /* of an element */
    void (*share)(const struct ls_ops *ops, const struct delta_call *c, int64_t begin, int64_t end);
    bool updates; /* y is read, too */
};

struct delta_call {
    const struct delta_kind *kind;
    enum ls_delta_type type;
    enum ls_dtype x_type, y_type; /* z is float32 */
    int64_t count;
    float factor;
    const void *x, *z; /* z NULL: none */
    void *y;
};

static struct ls_work delta_work(const struct ls_ops *ops, const void *arguments)
{
    const struct delta_call *c = arguments;
    struct ls_work work = ops_pass(c->kind->work, LS_F32, c->count, 1, c->kind->flops, 0);
    (void)ops;
    work.bytes = (double)ops_bytes(c->x_type, c->count) +
                 (double)ops_bytes(LS_F32, c->z ? c->count : 0) +
                 (double)ops_bytes(c->y_type, c->count) * (c->kind->updates ? 2 : 1);
    return work;
}

static void delta_operands(const struct ls_ops *ops, const void *arguments, struct ls_operands *out)
{
    const struct delta_call *c = arguments;
    (void)ops;
    ls_operand_add(out, c, &c->x, ops_bytes(c->x_type, c->count), LS_READS);
    ls_operand_add(out, c, &c->z, ops_bytes(LS_F32, c->count), LS_READS);
    ls_operand_add(out, c, &c->y, ops_bytes(c->y_type, c->count),
                   c->kind->updates ? LS_READS_WRITES : LS_WRITES);
}

static int delta_run(struct ls_ops *ops, const void *arguments, struct ls_error *error)
{
    const struct delta_call *c = arguments;
    (void)error;
    OPS_EACH_SHARE (ops, c->count, c->count, ALIGN)
        c->kind->share(ops, c, begin, end);
    return LS_OK;
}

static const struct ops_op delta_op =
    OPS_OP(struct delta_call, delta_work, delta_operands, delta_run);

static void encode_share(const struct ls_ops *ops, const struct delta_call *c, int64_t begin,
                         int64_t end)
{
    ops->kernels->delta->encode(c->type, c->x, c->z, c->factor, c->y, begin, end);
}

void ls_delta_encode(struct ls_ops *ops, enum ls_delta_type type, const float *global,
                     const float *local, int64_t count, float scale, void *out)
{
    static const struct delta_kind kind = {LS_WORK_CAST, 1, encode_share, false};
    ops_submit(ops, &delta_op,
               &(struct delta_call){&kind, type, LS_F32, ls_delta_dtype(type), count, scale, global,
                                    local, out});
}

static void decode_share(const struct ls_ops *ops, const struct delta_call *c, int64_t begin,
                         int64_t end)
{
    ops->kernels->delta->decode(c->type, c->x, c->factor, c->y, begin, end);
}

void ls_delta_decode(struct ls_ops *ops, enum ls_delta_type type, const void *sum, int64_t count,
                     float scale, float *out)
{
    static const struct delta_kind kind = {LS_WORK_CAST, 1, decode_share, false};
    ops_submit(ops, &delta_op,
               &(struct delta_call){&kind, type, ls_delta_sum_dtype(type), LS_F32, count, scale,
                                    sum, NULL, out});
}

static void mix_share(const struct ls_ops *ops, const struct delta_call *c, int64_t begin,
                      int64_t end)
{
    ops->kernels->delta->mix(c->x, c->y, c->factor, begin, end);
}

void ls_mix(struct ls_ops *ops, const float *global, float *local, int64_t count, float share)
{
    static const struct delta_kind kind = {LS_WORK_ADD, 3, mix_share, true};
    LS_ASSERT(share >= 0 && share <= 1);
    ops_submit(ops, &delta_op,
               &(struct delta_call){&kind, LS_DELTA_F32, LS_F32, LS_F32, count, share, global, NULL,
                                    local});
}

static void compensate_share(const struct ls_ops *ops, const struct delta_call *c, int64_t begin,
                             int64_t end)
{
    ops->kernels->delta->compensate(c->y, c->x, c->z, c->factor, begin, end);
}

void ls_compensate(struct ls_ops *ops, float *gradient, const float *now, const float *then,
                   int64_t count, float lambda)
{
    static const struct delta_kind kind = {LS_WORK_UPDATE, 5, compensate_share, true};
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

static struct ls_work amax_work(const struct ls_ops *ops, const void *arguments)
{
    const struct amax_call *c = arguments;
    (void)ops;
    return ops_pass(LS_WORK_SQUARES, LS_F32, c->count, 1, 2, 2);
}

static void amax_operands(const struct ls_ops *ops, const void *arguments, struct ls_operands *out)
{
    const struct amax_call *c = arguments;
    (void)ops;
    ls_operand_add(out, c, &c->global, ops_bytes(LS_F32, c->count), LS_READS);
    ls_operand_add(out, c, &c->local, ops_bytes(LS_F32, c->count), LS_READS);
    ls_operand_add(out, c, &c->amax, sizeof *c->amax, LS_READS_WRITES);
}

/* Magnitudes are compared as integers: NaN is above infinity, and none is lost. */
static int amax_run(struct ls_ops *ops, const void *arguments, struct ls_error *error)
{
    const struct amax_call *c = arguments;
    uint32_t most;
    (void)error;
    memcpy(&most, c->amax, sizeof most);
    most &= 0x7fffffffu;
    OPS_EACH_SHARE (ops, c->count, c->count, ALIGN) {
        uint32_t own = ops->kernels->delta->amax(c->global, c->local, begin, end);
#pragma omp critical(ls_delta_amax)
        most = own > most ? own : most;
    }
    most = most > 0x7f800000u ? 0x7fc00000u : most;
    memcpy(c->amax, &most, sizeof most);
    return LS_OK;
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

static struct ls_work sum_work(const struct ls_ops *ops, const void *arguments)
{
    const struct sum_call *c = arguments;
    enum ls_dtype dtype = ls_delta_dtype(c->type);
    (void)ops;
    struct ls_work work = ops_pass(LS_WORK_ADD, dtype, c->count, 1, c->n - 1, c->n);
    work.bytes += (double)ops_bytes(ls_delta_sum_dtype(c->type), c->count);
    return work;
}

static void sum_operands(const struct ls_ops *ops, const void *arguments, struct ls_operands *out)
{
    const struct sum_call *c = arguments;
    const int64_t parts = c->count > 0 ? c->n : 0;
    (void)ops;
    ls_operand_add(out, c, &c->parts,
                   ops_rows_bytes(ls_delta_dtype(c->type), parts, c->count, c->stride), LS_READS);
    ls_operand_add(out, c, &c->out, ops_bytes(ls_delta_sum_dtype(c->type), c->count), LS_WRITES);
}

static int sum_run(struct ls_ops *ops, const void *arguments, struct ls_error *error)
{
    const struct sum_call *c = arguments;
    (void)error;
    OPS_EACH_SHARE (ops, c->n * c->count, c->count, ALIGN)
        ops->kernels->delta->sum(c->type, c->parts, c->stride, c->n, c->out, begin, end);
    return LS_OK;
}

void ls_delta_sum(struct ls_ops *ops, enum ls_delta_type type, const void *parts, int64_t stride,
                  int n, int64_t count, void *out)
{
    static const struct ops_op op = OPS_OP(struct sum_call, sum_work, sum_operands, sum_run);
    LS_ASSERT(n >= 1 && (type != LS_DELTA_INT8 || n <= LS_DELTA_INT8_WORKERS_MAX));
    LS_ASSERT(stride >= count);
    ops_submit(ops, &op, &(struct sum_call){type, n, stride, count, parts, out});
}
