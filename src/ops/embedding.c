/* Embedding, forward and backward: what each thread takes. The arithmetic is in
 * kern/embedding_kernel.c. */
#include "ops/kernels.h"
#include "ops/share.h"

#include <string.h>

void ls_embedding_forward(struct ls_ops *ops, const struct ls_embedding *embedding, void *y)
{
    OPS_TELL(ops, ops_pass(LS_WORK_EMBEDDING, embedding->act, embedding->rows, embedding->channels,
                           1, embedding->position ? 3 : 2));
    OPS_EACH_SHARE (ops, embedding->rows * embedding->channels, embedding->rows, 1)
        ops->kernels->embedding->forward(embedding, y, begin, end);
}

void ls_embedding_gather(struct ls_ops *ops, const struct ls_embedding *embedding, float *y)
{
    OPS_TELL(ops, ops_pass(LS_WORK_EMBEDDING, LS_F32, embedding->rows, embedding->channels, 0, 2));
    OPS_EACH_SHARE (ops, embedding->rows * embedding->channels, embedding->rows, 1)
        ops->kernels->embedding->gather(embedding, y, begin, end);
}

void ls_embedding_finish(struct ls_ops *ops, const struct ls_embedding *embedding, const float *x,
                         void *y)
{
    OPS_TELL(ops, ops_pass(LS_WORK_ADD, embedding->act, embedding->rows, embedding->channels, 1,
                           embedding->position ? 3 : 2));
    OPS_EACH_SHARE (ops, embedding->rows * embedding->channels, embedding->rows, 1)
        ops->kernels->embedding->finish(embedding, x, y, begin, end);
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

/* The table is written as a whole, or read and written. */
static struct ls_work backward_work(const struct ls_embedding *embedding,
                                    const struct ls_token_sum *sum)
{
    int64_t rows = ls_token_rows(sum), channels = embedding->channels;
    struct ls_work work =
        ops_pass(LS_WORK_EMBEDDING_BACKWARD, embedding->act, rows, channels, 1, 1);
    work.bytes += 4.0 * (double)(sum->onto ? 2 * rows : embedding->vocabulary) * (double)channels;
    return work;
}

void ls_embedding_backward(struct ls_ops *ops, const struct ls_embedding *embedding, const void *dy,
                           const struct ls_token_sum *sum, struct ls_embedding_scratch scratch,
                           float *d_table)
{
    OPS_TELL(ops, backward_work(embedding, sum));
    if (ops->idle)
        return;
    int64_t rows = ls_token_rows(sum), vocabulary = embedding->vocabulary;
    enum { CHUNK = 64 }; /* vocabulary rows: frequent ids cluster, so threads take chunks in turn */
    int64_t chunks = ls_ceil_div(vocabulary, CHUNK);
    LS_ASSERT(rows <= INT32_MAX && (sum->tiles == 1 || sum->sequences == 1));
    sort_by_id(embedding, rows, scratch);
    int parts = ops_parts(ops, (vocabulary + rows) * embedding->channels);
#pragma omp parallel for num_threads(parts) schedule(dynamic)
    for (int64_t chunk = 0; chunk < chunks; chunk++)
        ops->kernels->embedding->backward(embedding, dy, sum, scratch, d_table, chunk * CHUNK,
                                          ls_min((chunk + 1) * CHUNK, vocabulary));
}

void ls_position_backward(struct ls_ops *ops, enum ls_dtype act, int64_t channels, const void *dy,
                          const struct ls_token_sum *sum, int64_t row_first, int64_t rows,
                          float *d_position)
{
    LS_ASSERT(row_first >= 0 && row_first + rows <= sum->tokens && sum->tiles == 1);
    OPS_TELL(ops, ops_pass(LS_WORK_COLUMN_SUM, act, sum->leaves * sum->sequences * rows, channels,
                           1, 1));
    OPS_EACH_SHARE (ops, sum->leaves * sum->sequences * rows * channels, rows, 1)
        ops->kernels->embedding->position_backward(act, channels, dy, sum, row_first, d_position,
                                                   begin, end);
}
