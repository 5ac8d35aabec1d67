/* Norms: their commands, and what each thread takes of the rows, or of the columns of weights. */
#include "ops/kernels.h"
#include "ops/share.h"

/* What the norms' ops differ in. */
struct norm_kind {
    enum ls_work_kind work;
    int flops; /* of an element */
    enum ls_access statistics;
    bool row_sums; /* written: read where the statistics are written */
    enum norm_op rows;
    /* In the place of rows: a share of the columns of a weight, or of parts. */
    void (*share)(const struct ls_ops *ops, const struct norm_call *c, int64_t begin, int64_t end);
};

static size_t rows_bytes(const struct ls_norm *norm)
{
    if (norm->heads == 0)
        return ops_bytes(norm->act, norm->rows * norm->channels);
    return ops_rows_bytes(norm->act, norm->rows / norm->heads, norm->heads * norm->channels,
                          norm->ld);
}

static size_t statistics_bytes(const struct ls_norm *norm)
{
    if (norm->heads == 0)
        return ops_bytes(LS_F32, norm->rows);
    return ops_rows_bytes(LS_F32, norm->rows / norm->heads, norm->heads, norm->statistics_ld);
}

static void norm_operands(const void *arguments, struct ls_operands *out)
{
    const struct norm_call *c = arguments;
    const struct norm_kind *kind = c->kind;
    const struct ls_norm *norm = &c->norm;
    const size_t rows = rows_bytes(norm), vector = ops_bytes(LS_F32, norm->channels);
    ls_operand_add(out, c, &c->x, rows, LS_READS);
    ls_operand_add(out, c, &c->z, rows, LS_READS);
    ls_operand_add(out, c, &c->around, rows, LS_READS);
    ls_operand_add(out, c, &c->sum, rows, LS_WRITES);
    ls_operand_add(out, c, &c->y, rows, LS_WRITES);
    ls_operand_add(out, c, &norm->weight, vector, LS_READS);
    ls_operand_add(out, c, &norm->bias, vector, LS_READS);
    ls_operand_add(out, c, &norm->mean, statistics_bytes(norm), kind->statistics);
    ls_operand_add(out, c, &norm->rstd, statistics_bytes(norm), kind->statistics);
    ls_operand_add(out, c, &c->row_sums, ops_bytes(LS_F32, norm->rows),
                   kind->row_sums ? LS_WRITES : LS_READS);
    ls_operand_add(out, c, &c->d_weight, vector, ops_sum_access(&c->tokens));
    ls_operand_add(out, c, &c->d_bias, vector, ops_sum_access(&c->tokens));
    ls_operand_add(out, c, &c->parts,
                   ops_rows_bytes(LS_F32, c->units, c->tiles * norm->channels, c->sums_ld),
                   LS_WRITES);
}

/* Bytes of the rows that are read and written; vectors are left out. */
static struct ls_work norm_work(const void *arguments)
{
    const struct norm_call *c = arguments;
    int64_t columns = c->kind->row_sums ? c->cut.count : c->norm.channels;
    int rows =
        (c->x != NULL) + (c->z != NULL) + (c->around != NULL) + (c->sum != NULL) + (c->y != NULL);
    return ops_pass(c->kind->work, c->norm.act, c->norm.rows, columns, c->kind->flops, rows);
}

static void norm_run(struct ls_ops *ops, const void *arguments)
{
    const struct norm_call *c = arguments;
    const struct ls_norm *norm = &c->norm;
    int64_t columns = c->kind->row_sums ? c->cut.count : norm->channels;
    int64_t shares = c->d_weight ? norm->channels : c->parts ? c->units * c->tiles : norm->rows;
    OPS_EACH_SHARE (ops, norm->rows * columns, shares, c->d_weight ? 64 : 1)
        if (c->kind->share)
            c->kind->share(ops, c, begin, end);
        else
            ops->kernels->norm->of[c->kind->rows](c, begin, end);
}

static void norm_submit(struct ls_ops *ops, const struct norm_call *call)
{
    static const struct ops_op op = OPS_OP(*call, norm_work, norm_operands, norm_run);
    LS_ASSERT(call->norm.channels <= LS_NORM_CHANNELS_MAX);
    ops_submit(ops, &op, call);
}

/* RMSNorm has neither a mean nor a bias. */
static struct ls_norm uncentred(const struct ls_norm *norm)
{
    struct ls_norm rms = *norm;
    rms.mean = NULL;
    rms.bias = NULL;
    return rms;
}

/* ---- forward --------------------------------------------------------------------------------- */

void ls_layernorm_forward(struct ls_ops *ops, const struct ls_norm *norm, const void *x,
                          const void *residual, void *sum, void *y)
{
    static const struct norm_kind kind = {LS_WORK_NORM,      8,   LS_WRITES, false,
                                          LAYERNORM_FORWARD, NULL};
    norm_submit(ops, &(struct norm_call){.kind = &kind,
                                         .norm = *norm,
                                         .x = x,
                                         .z = residual,
                                         .sum = residual ? sum : NULL,
                                         .y = y});
}

void ls_rmsnorm_forward(struct ls_ops *ops, const struct ls_norm *norm, const void *x,
                        const void *residual, void *sum, void *y)
{
    static const struct norm_kind kind = {LS_WORK_NORM, 8, LS_WRITES, false, RMSNORM_FORWARD, NULL};
    norm_submit(ops, &(struct norm_call){.kind = &kind,
                                         .norm = uncentred(norm),
                                         .x = x,
                                         .z = residual,
                                         .sum = residual ? sum : NULL,
                                         .y = y});
}

/* ---- backward -------------------------------------------------------------------------------- */

void ls_layernorm_backward_input(struct ls_ops *ops, const struct ls_norm *norm, const void *h,
                                 const void *dy, const void *d_residual, void *dh)
{
    static const struct norm_kind kind = {LS_WORK_NORM_BACKWARD, 10,  LS_READS, false,
                                          LAYERNORM_BACKWARD,    NULL};
    norm_submit(ops,
                &(struct norm_call){
                    .kind = &kind, .norm = *norm, .x = h, .z = dy, .around = d_residual, .y = dh});
}

void ls_rmsnorm_backward_input(struct ls_ops *ops, const struct ls_norm *norm, const void *h,
                               const void *dy, const void *d_residual, void *dh)
{
    static const struct norm_kind kind = {LS_WORK_NORM_BACKWARD, 10,  LS_READS, false,
                                          RMSNORM_BACKWARD,      NULL};
    norm_submit(ops, &(struct norm_call){.kind = &kind,
                                         .norm = uncentred(norm),
                                         .x = h,
                                         .z = dy,
                                         .around = d_residual,
                                         .y = dh});
}

/* ---- gradients of weights -------------------------------------------------------------------- */

static void weight_columns(const struct ls_ops *ops, const struct norm_call *c, int64_t begin,
                           int64_t end)
{
    ops->kernels->sum->norm_weight(&c->norm, c->x, c->z, &c->tokens, c->d_weight, c->d_bias, begin,
                                   end);
}
static const struct norm_kind weight_kind = {LS_WORK_COLUMN_SUM, 4, LS_READS, false, NORM_OPS,
                                             weight_columns};

void ls_layernorm_backward_weight(struct ls_ops *ops, const struct ls_norm *norm, const void *h,
                                  const void *dy, const struct ls_token_sum *sum, float *d_weight,
                                  float *d_bias)
{
    LS_ASSERT(ls_token_rows(sum) == norm->rows);
    norm_submit(ops, &(struct norm_call){.kind = &weight_kind,
                                         .norm = *norm,
                                         .tokens = *sum,
                                         .x = h,
                                         .z = dy,
                                         .d_weight = d_weight,
                                         .d_bias = d_bias});
}

void ls_rmsnorm_backward_weight(struct ls_ops *ops, const struct ls_norm *norm, const void *h,
                                const void *dy, const struct ls_token_sum *sum, float *d_weight)
{
    const struct ls_norm rms = uncentred(norm);
    ls_layernorm_backward_weight(ops, &rms, h, dy, sum, d_weight, NULL);
}

/* Part i of units times tiles. */
static void heads_part(const struct ls_ops *ops, const struct norm_call *c, int64_t i)
{
    const struct ls_norm *norm = &c->norm;
    const struct ls_token_sum sum = {1, 1, 1, c->unit_tokens, LS_ONTO_NOTHING};
    int64_t unit = i / c->tiles, tile = i % c->tiles, heads = norm->heads / c->tiles;
    int64_t token = unit * c->unit_tokens, head = tile * heads;
    int64_t at = token * norm->ld + head * norm->channels;
    float *to = c->parts + unit * c->sums_ld + tile * norm->channels;
    struct ls_norm part = *norm;
    part.rows = c->unit_tokens;
    part.heads = heads;
    part.rstd = norm->rstd + token * norm->statistics_ld + head;
    ops->kernels->sum->norm_weight(&part, ops_at(norm->act, c->x, at), ops_at(norm->act, c->z, at),
                                   &sum, to, NULL, 0, norm->channels);
}

static void heads_parts(const struct ls_ops *ops, const struct norm_call *c, int64_t begin,
                        int64_t end)
{
    for (int64_t i = begin; i < end; i++)
        heads_part(ops, c, i);
}

void ls_rmsnorm_heads_weight(struct ls_ops *ops, const struct ls_norm *norm, const void *h,
                             const void *dy, const struct ls_norm_parts *out)
{
    static const struct norm_kind kind = {LS_WORK_COLUMN_SUM, 4,          LS_READS, false,
                                          NORM_OPS,           heads_parts};
    LS_ASSERT(norm->heads % out->tiles == 0);
    LS_ASSERT(out->units * out->tokens * norm->heads == norm->rows);
    norm_submit(ops, &(struct norm_call){.kind = &kind,
                                         .norm = uncentred(norm),
                                         .units = out->units,
                                         .tiles = out->tiles,
                                         .unit_tokens = out->tokens,
                                         .sums_ld = out->sums_ld,
                                         .x = h,
                                         .z = dy,
                                         .parts = out->sums});
}

/* ---- rows of which ranks hold parts ---------------------------------------------------------- */

void ls_rmsnorm_cut_sum(struct ls_ops *ops, const struct ls_norm *norm,
                        const struct ls_norm_cut *cut, const void *h, const void *dy, float *sums)
{
    static const struct norm_kind forward = {LS_WORK_COLUMN_SUM, 1,   LS_READS, true,
                                             RMSNORM_CUT_SUM,    NULL};
    static const struct norm_kind backward = {LS_WORK_COLUMN_SUM, 4,   LS_READS, true,
                                              RMSNORM_CUT_SUM,    NULL};
    struct ls_norm of = uncentred(norm);
    LS_ASSERT(norm->heads == 1 && cut->count % cut->tiles == 0);
    LS_ASSERT(cut->first + cut->count <= norm->channels);
    if (!dy) /* they are made of these sums */
        of.rstd = NULL;
    norm_submit(ops, &(struct norm_call){.kind = dy ? &backward : &forward,
                                         .norm = of,
                                         .cut = *cut,
                                         .x = h,
                                         .z = dy,
                                         .row_sums = sums});
}

void ls_rmsnorm_cut_finish(struct ls_ops *ops, const struct ls_norm *norm,
                           const struct ls_norm_cut *cut, const void *h, const void *dy,
                           const float *sums, void *to)
{
    static const struct norm_kind forward = {LS_WORK_NORM,       8,   LS_WRITES, false,
                                             RMSNORM_CUT_FINISH, NULL};
    static const struct norm_kind backward = {LS_WORK_NORM_BACKWARD, 10,  LS_READS, false,
                                              RMSNORM_CUT_FINISH,    NULL};
    norm_submit(ops, &(struct norm_call){.kind = dy ? &backward : &forward,
                                         .norm = uncentred(norm),
                                         .cut = *cut,
                                         .x = h,
                                         .z = dy,
                                         .y = to,
                                         .row_sums = (float *)(uintptr_t)sums});
}
