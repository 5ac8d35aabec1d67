/* Attention of sequences in segments. A query segment is contiguous in tokens, but keys and values
 * lie tile by tile and, under context parallel, on several ranks: they are put in the order of
 * tokens first, in the forward and again in the backward. */
#include "attention.h"

#include <string.h>

struct ls_attention segment_of(const struct ls_model *model, const struct ls_micro_batch *batch,
                               const struct rows *rows, const struct block_saved *saved,
                               int64_t sequence, int i)
{
    size_t bytes = model_act_bytes(model);
    struct ls_attention a = attention_of(model, batch, saved);
    int64_t row = sequence * rows->tokens + i * rows->segment_rows;
    a.batch = 1;
    ls_segment(model->numerics.seq_tiles, model->cp.size, model->cp.rank, batch->tokens, i,
               &a.q_first, &a.tokens);
    a.keys = batch->tokens;
    a.q = (const char *)a.q + (size_t)(row * a.q_ld) * bytes;
    a.o = (char *)a.o + (size_t)(row * a.o_ld) * bytes;
    a.lse += row * a.heads;
    a.k = a.v = NULL;
    a.kv_ld = 2 * block_kv_width(model);
    return a;
}

struct ls_attention segment_backward_of(const struct ls_model *model,
                                        const struct ls_micro_batch *batch, const struct rows *rows,
                                        const struct segment_backward *way, int i)
{
    size_t bytes = model_act_bytes(model);
    struct ls_attention a = segment_of(model, batch, rows, way->saved, way->sequence, i);
    int64_t row = way->sequence * rows->tokens + i * rows->segment_rows;
    a.d_o = (const char *)way->d_o + (size_t)(row * a.o_ld) * bytes;
    a.d_q = (char *)way->d_qkv + (size_t)(row * a.q_ld) * bytes;
    return a;
}

int segment_share(const struct ls_model *model, float *pair, int64_t span, int64_t seen,
                  struct ls_error *error)
{
    int64_t kv = block_kv_width(model);
    if (model->tp.sharers == 1)
        return LS_OK;
    int status = ls_all_reduce(model->tp.sharers_comm, pair, seen * kv, error);
    return status ? status
                  : ls_all_reduce(model->tp.sharers_comm, pair + span * kv, seen * kv, error);
}

/* natural = keys and values of one sequence. */
static int gather(struct ls_model *model, const struct ls_micro_batch *batch,
                  const struct rows *rows, const struct block_saved *saved, int64_t sequence,
                  struct ls_error *error)
{
    struct attention_buffers *b = &model->attention;
    struct ls_attention a = attention_of(model, batch, saved);
    const char *own =
        (const char *)a.k + (size_t)(sequence * rows->tokens * a.kv_ld) * model_act_bytes(model);
    return ls_cp_gather(&model->cp, model->numerics.seq_tiles, model->numerics.act, batch->tokens,
                        2 * block_kv_width(model), own, a.kv_ld, b->staging, b->natural, error);
}

static void keys_set(const struct ls_model *model, struct ls_attention *a)
{
    a->k = model->attention.natural;
    a->v = (const char *)a->k + (size_t)block_kv_width(model) * model_act_bytes(model);
}

static int gathered_forward(struct ls_model *model, struct ls_ops *ops,
                            const struct ls_micro_batch *batch, const struct rows *rows,
                            struct block_saved *saved, int64_t sequence, struct ls_error *error)
{
    int status = gather(model, batch, rows, saved, sequence, error);
    for (int i = 0; i < rows->segments && !status; i++) {
        struct ls_attention a = segment_of(model, batch, rows, saved, sequence, i);
        keys_set(model, &a);
        status = ls_attention_forward(ops, &a, error);
    }
    return status;
}

int segments_forward(struct ls_model *model, struct ls_ops *ops, const struct ls_micro_batch *batch,
                     const struct rows *rows, struct block_saved *saved, struct ls_error *error)
{
    int status = LS_OK;
    for (int64_t sequence = 0; sequence < batch->sequences && !status; sequence++)
        status = attention_ring(model)
                     ? ring_forward(model, ops, batch, rows, saved, sequence, error)
                     : gathered_forward(model, ops, batch, rows, saved, sequence, error);
    return status;
}

/* ---- backward ---------------------------------------------------------------------------------
 */

/* pair = the sums of d_k and d_v over segment i's queries and all their heads. */
static int segment_sums(struct ls_model *model, struct ls_ops *ops,
                        const struct ls_micro_batch *batch, const struct rows *rows,
                        const struct segment_backward *way, int i, float *pair,
                        struct ls_error *error)
{
    struct ls_attention a = segment_backward_of(model, batch, rows, way, i);
    keys_set(model, &a);
    a.d_k_sum = pair;
    a.d_v_sum = pair + batch->tokens * block_kv_width(model);
    int status = ls_attention_backward(ops, &a, error);
    return status ? status : segment_share(model, pair, batch->tokens, a.q_first + a.tokens, error);
}

/* A tile is its early half chunk plus its late one; tiles are added by the tree, which is a binary
 * counter of subtrees. The tree's top over cp ranks is ls_cp_reduce's. */
static int gathered_backward(struct ls_model *model, struct ls_ops *ops,
                             const struct ls_micro_batch *batch, const struct rows *rows,
                             const struct segment_backward *way, struct ls_error *error)
{
    struct attention_buffers *b = &model->attention;
    int64_t kv = block_kv_width(model), pair = 2 * batch->tokens * kv, tokens = rows->tokens;
    int held = 0, status = gather(model, batch, rows, way->saved, way->sequence, error);
    for (int tile = 0; tile < rows->segments / 2 && !status; tile++) {
        status = segment_sums(model, ops, batch, rows, way, 2 * tile, b->level[held], error);
        if (!status)
            status = segment_sums(model, ops, batch, rows, way, 2 * tile + 1, b->work, error);
        if (status)
            return status;
        ls_tree_add(ops, pair, b->level[held++], b->work);
        for (int bits = tile; bits & 1; bits >>= 1, held--)
            ls_tree_add(ops, pair, b->level[held - 2], b->level[held - 1]);
    }
    if (!status)
        status = ls_cp_reduce(&model->cp, model->numerics.seq_tiles, batch->tokens, kv, 2,
                              b->level[0], b->work, b->level[0], error);
    if (!status)
        attention_kv_finish(model, ops, way->sequence * tokens, tokens, b->level[0],
                            b->level[0] + tokens * kv, way->d_qkv);
    return status;
}

int segments_backward(struct ls_model *model, struct ls_ops *ops,
                      const struct ls_micro_batch *batch, const struct rows *rows,
                      const struct block_saved *saved, const void *d_o, void *d_qkv,
                      struct ls_error *error)
{
    struct segment_backward way = {.saved = saved, .d_o = d_o, .d_qkv = d_qkv};
    int status = LS_OK;
    for (; way.sequence < batch->sequences && !status; way.sequence++)
        status = attention_ring(model) ? ring_backward(model, ops, batch, rows, &way, error)
                                       : gathered_backward(model, ops, batch, rows, &way, error);
    return status;
}
