/* Embedding, forward and backward: its commands, and what each thread takes. The arithmetic is in
 * kern/embedding_kernel.c. */
#include "ops/kernels.h"
#include "ops/share.h"

#include <string.h>

/* What the forward's ops differ in. */
struct embedding_kind {
    enum ls_work_kind work;
    int flops;         /* of an element */
    bool table, y_f32; /* the table is read; y is float32, whatever act is */
    enum embedding_op op;
};

static struct ls_work embedding_work(const void *arguments)
{
    const struct embedding_call *c = arguments;
    const struct ls_embedding *e = &c->embedding;
    return ops_pass(c->kind->work, c->kind->y_f32 ? LS_F32 : e->act, e->rows, e->channels,
                    c->kind->flops, e->position ? 3 : 2);
}

static void embedding_operands(const void *arguments, struct ls_operands *out)
{
    const struct embedding_call *c = arguments;
    const struct ls_embedding *e = &c->embedding;
    int64_t count = e->rows * e->channels;
    int64_t positions = e->first_position + ls_min(e->rows, e->tokens);
    if (c->kind->table) {
        struct ls_operand *ids =
            ls_operand_add(out, c, &e->ids, ops_bytes(LS_F32, e->rows), LS_READS);
        ops_operand_ids(ids, e->first_id, e->first_id + e->vocabulary);
        ls_operand_add(out, c, &e->table, ops_bytes(e->act, e->vocabulary * e->channels), LS_READS);
    }
    ls_operand_add(out, c, &e->position, ops_bytes(e->act, positions * e->channels), LS_READS);
    ls_operand_add(out, c, &c->x, ops_bytes(LS_F32, count), LS_READS);
    ls_operand_add(out, c, &c->y, ops_bytes(c->kind->y_f32 ? LS_F32 : e->act, count), LS_WRITES);
}

static void embedding_run(struct ls_ops *ops, const void *arguments)
{
    const struct embedding_call *c = arguments;
    OPS_EACH_SHARE (ops, c->embedding.rows * c->embedding.channels, c->embedding.rows, 1)
        ops->kernels->embedding->of[c->kind->op](c, begin, end);
}

static const struct ops_op embedding_op =
    OPS_OP(struct embedding_call, embedding_work, embedding_operands, embedding_run);

void ls_embedding_forward(struct ls_ops *ops, const struct ls_embedding *embedding, void *y)
{
    static const struct embedding_kind kind = {LS_WORK_EMBEDDING, 1, true, false,
                                               EMBEDDING_FORWARD};
    ops_submit(ops, &embedding_op, &(struct embedding_call){&kind, *embedding, NULL, y});
}

void ls_embedding_gather(struct ls_ops *ops, const struct ls_embedding *embedding, float *y)
{
    static const struct embedding_kind kind = {LS_WORK_EMBEDDING, 0, true, true, EMBEDDING_GATHER};
    struct embedding_call call = {&kind, *embedding, NULL, y};
    call.embedding.position = NULL; /* of finish */
    ops_submit(ops, &embedding_op, &call);
}

void ls_embedding_finish(struct ls_ops *ops, const struct ls_embedding *embedding, const float *x,
                         void *y)
{
    static const struct embedding_kind kind = {LS_WORK_ADD, 1, false, false, EMBEDDING_FINISH};
    ops_submit(ops, &embedding_op, &(struct embedding_call){&kind, *embedding, x, y});
}

/* ---- backward -------------------------------------------------------------------------------- */

struct iota {
    int64_t count;
    int32_t first;
    int32_t *to;
};

static void iota_operands(const void *arguments, struct ls_operands *out)
{
    const struct iota *c = arguments;
    ls_operand_add(out, c, &c->to, ops_bytes(LS_F32, c->count), LS_WRITES);
}

static void iota_run(struct ls_ops *ops, const void *arguments)
{
    const struct iota *c = arguments;
    (void)ops;
    for (int64_t i = 0; i < c->count; i++)
        c->to[i] = c->first + (int32_t)i;
}

void ls_iota(struct ls_ops *ops, int64_t count, int32_t first, int32_t *to)
{
    static const struct ops_op op = OPS_OP(struct iota, NULL, iota_operands, iota_run);
    ops_submit(ops, &op, &(struct iota){count, first, to});
}

/* order[start[v]] ... order[start[v + 1] - 1] = the rows with id first_id + v, ascending. */
static void sort_by_id(const struct ls_embedding *embedding, int64_t rows,
                       struct ls_embedding_scratch scratch)
{
    const int32_t *ids = embedding->ids;
    int64_t first_id = embedding->first_id, vocabulary = embedding->vocabulary;
    int32_t *start = scratch.start;
    memset(start, 0, ((size_t)vocabulary + 1) * sizeof *start);
    for (int64_t row = 0; row < rows; row++) {
        int64_t v = ids[row] - first_id;
        if (v >= 0 && v < vocabulary)
            start[v + 1]++;
    }
    for (int64_t v = 0; v < vocabulary; v++)
        start[v + 1] += start[v];
    /* Filling moves each start to its end; the last loop moves them back. */
    for (int64_t row = 0; row < rows; row++) {
        int64_t v = ids[row] - first_id;
        if (v >= 0 && v < vocabulary)
            scratch.order[start[v]++] = (int32_t)row;
    }
    for (int64_t v = vocabulary; v > 0; v--)
        start[v] = start[v - 1];
    start[0] = 0;
}

struct embedding_gradient {
    struct ls_embedding embedding; /* without tables */
    struct ls_token_sum sum;
    struct ls_embedding_scratch scratch;
    const void *dy;
    float *d_table;
};

/* The table is written as a whole, or read and written. */
static struct ls_work backward_work(const void *arguments)
{
    const struct embedding_gradient *c = arguments;
    const struct ls_embedding *e = &c->embedding;
    int64_t rows = ls_token_rows(&c->sum);
    struct ls_work work = ops_pass(LS_WORK_EMBEDDING_BACKWARD, e->act, rows, e->channels, 1, 1);
    work.bytes += 4.0 * (double)(c->sum.onto ? 2 * rows : e->vocabulary) * (double)e->channels;
    return work;
}

static void backward_operands(const void *arguments, struct ls_operands *out)
{
    const struct embedding_gradient *c = arguments;
    const struct ls_embedding *e = &c->embedding;
    int64_t rows = ls_token_rows(&c->sum);
    struct ls_operand *ids = ls_operand_add(out, c, &e->ids, ops_bytes(LS_F32, rows), LS_READS);
    ops_operand_ids(ids, e->first_id, e->first_id + e->vocabulary);
    ls_operand_add(out, c, &c->dy, ops_bytes(e->act, rows * e->channels), LS_READS);
    ls_operand_add(out, c, &c->scratch.order, ops_bytes(LS_F32, rows), LS_WRITES);
    ls_operand_add(out, c, &c->scratch.start, ops_bytes(LS_F32, e->vocabulary + 1), LS_WRITES);
    ls_operand_add(out, c, &c->d_table, ops_bytes(LS_F32, e->vocabulary * e->channels),
                   ops_sum_access(&c->sum));
}

static void backward_run(struct ls_ops *ops, const void *arguments)
{
    const struct embedding_gradient *c = arguments;
    int64_t rows = ls_token_rows(&c->sum), vocabulary = c->embedding.vocabulary;
    enum { CHUNK = 64 }; /* vocabulary rows: frequent ids cluster, so threads take chunks in turn */
    int64_t chunks = ls_ceil_div(vocabulary, CHUNK);
    sort_by_id(&c->embedding, rows, c->scratch);
    int parts = ops_parts(ops, (vocabulary + rows) * c->embedding.channels);
#pragma omp parallel for num_threads(parts) schedule(dynamic)
    for (int64_t chunk = 0; chunk < chunks; chunk++)
        ops->kernels->embedding->backward(&c->embedding, c->dy, &c->sum, c->scratch, c->d_table,
                                          chunk * CHUNK, ls_min((chunk + 1) * CHUNK, vocabulary));
}

void ls_embedding_backward(struct ls_ops *ops, const struct ls_embedding *embedding, const void *dy,
                           const struct ls_token_sum *sum, struct ls_embedding_scratch scratch,
                           float *d_table)
{
    static const struct ops_op op =
        OPS_OP(struct embedding_gradient, backward_work, backward_operands, backward_run);
    struct embedding_gradient call = {*embedding, *sum, scratch, dy, d_table};
    LS_ASSERT(ls_token_rows(sum) <= INT32_MAX && (sum->tiles == 1 || sum->sequences == 1));
    call.embedding.table = NULL;
    call.embedding.position = NULL;
    ops_submit(ops, &op, &call);
}

struct position_gradient {
    enum ls_dtype act;
    int64_t channels, row_first, rows;
    struct ls_token_sum sum;
    const void *dy;
    float *d_position;
};

static int64_t position_rows(const struct position_gradient *c)
{
    return c->sum.leaves * c->sum.sequences * c->rows;
}

static struct ls_work position_work(const void *arguments)
{
    const struct position_gradient *c = arguments;
    return ops_pass(LS_WORK_COLUMN_SUM, c->act, position_rows(c), c->channels, 1, 1);
}

static void position_operands(const void *arguments, struct ls_operands *out)
{
    const struct position_gradient *c = arguments;
    ls_operand_add(out, c, &c->dy, ops_bytes(c->act, ls_token_rows(&c->sum) * c->channels),
                   LS_READS);
    ls_operand_add(out, c, &c->d_position, ops_bytes(LS_F32, c->rows * c->channels),
                   ops_sum_access(&c->sum));
}

static void position_run(struct ls_ops *ops, const void *arguments)
{
    const struct position_gradient *c = arguments;
    OPS_EACH_SHARE (ops, position_rows(c) * c->channels, c->rows, 1)
        ops->kernels->embedding->position_backward(c->act, c->channels, c->dy, &c->sum,
                                                   c->row_first, c->d_position, begin, end);
}

void ls_position_backward(struct ls_ops *ops, enum ls_dtype act, int64_t channels, const void *dy,
                          const struct ls_token_sum *sum, int64_t row_first, int64_t rows,
                          float *d_position)
{
    static const struct ops_op op =
        OPS_OP(struct position_gradient, position_work, position_operands, position_run);
    LS_ASSERT(row_first >= 0 && row_first + rows <= sum->tokens && sum->tiles == 1);
    ops_submit(ops, &op,
               &(struct position_gradient){act, channels, row_first, rows, *sum, dy, d_position});
}
