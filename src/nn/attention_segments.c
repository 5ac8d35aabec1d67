/* Attention of sequences in segments. A query segment is contiguous in tokens, but keys and values
 * lie tile by tile and, under context parallel, on several ranks: they are put in the order of
 * tokens first, in the forward and again in the backward. */
#include "nn/step_attention.h"

struct ls_attention segment_of(const struct attending *w, int i)
{
    const struct ls_model *model = w->model;
    size_t bytes = model_act_bytes(model);
    struct ls_attention a = attention_of(w);
    int64_t row = w->sequence * w->rows->tokens + i * w->rows->segment_rows;
    a.batch = 1;
    ls_segment(model->numerics.seq_tiles, model->cp.size, model->cp.rank, w->tokens, i, &a.q_first,
               &a.tokens);
    a.keys = w->tokens;
    a.q = (const char *)a.q + (size_t)(row * a.q_ld) * bytes;
    a.o = (char *)a.o + (size_t)(row * a.o_ld) * bytes;
    a.lse += row * a.heads;
    if (a.starts)
        a.starts += w->sequence * a.starts_ld;
    a.k = a.v = NULL;
    a.kv_ld = 2 * size_held(model, SIZE_KV);
    return a;
}

struct ls_attention segment_backward_of(const struct attending *w, int i)
{
    size_t bytes = model_act_bytes(w->model);
    struct ls_attention a = segment_of(w, i);
    int64_t row = w->sequence * w->rows->tokens + i * w->rows->segment_rows;
    a.d_o = w->d_o + (size_t)(row * a.o_ld) * bytes;
    a.d_q = w->d_qkv + (size_t)(row * a.q_ld) * bytes;
    return a;
}

int segment_share(const struct attending *w, float *pair, int64_t span, int64_t seen)
{
    const struct ls_model *model = w->model;
    int64_t kv = size_held(model, SIZE_KV);
    if (model->tp.sharers == 1)
        return LS_OK;
    int status =
        ls_all_reduce_start(model->tp.sharers_comm, pair, seen * kv, LS_QUEUED, LS_HERE, w->error);
    return status ? status
                  : ls_all_reduce_start(model->tp.sharers_comm, pair + span * kv, seen * kv,
                                        LS_QUEUED, LS_HERE, w->error);
}

/* natural = keys and values of one sequence. */
static int gather(struct attending *w)
{
    const struct ls_model *model = w->model;
    struct ls_attention a = attention_of(w);
    const char *own = (const char *)a.k +
                      (size_t)(w->sequence * w->rows->tokens * a.kv_ld) * model_act_bytes(model);
    const struct ls_cp_rows rows = {model->numerics.seq_tiles, w->tokens,
                                    2 * size_held(model, SIZE_KV), model->numerics.act};
    return ls_cp_gather(&model->cp, w->ops, &rows, own, a.kv_ld, w->buffers.staging,
                        w->buffers.natural, w->error);
}

static void keys_set(const struct attending *w, struct ls_attention *a)
{
    a->k = w->buffers.natural;
    a->v = (const char *)a->k + (size_t)size_held(w->model, SIZE_KV) * model_act_bytes(w->model);
}

static int gathered_forward(struct attending *w)
{
    int status = gather(w);
    for (int i = 0; i < w->rows->segments && !status; i++) {
        struct ls_attention a = segment_of(w, i);
        keys_set(w, &a);
        status = ls_attention_forward(w->ops, &a, w->error);
    }
    return status;
}

int segments_forward(struct attending *w)
{
    int status = LS_OK;
    for (w->sequence = 0; w->sequence < w->sequences && !status; w->sequence++)
        status = attention_ring(w->model) ? ring_forward(w) : gathered_forward(w);
    return status;
}

/* ---- backward -------------------------------------------------------------------------------- */

/* pair = the sums of d_k and d_v over segment i's queries and all their heads. */
static int segment_sums(void *context, int i, float *pair)
{
    struct attending *w = context;
    struct ls_attention a = segment_backward_of(w, i);
    keys_set(w, &a);
    a.d_k_sum = pair;
    a.d_v_sum = pair + w->tokens * size_held(w->model, SIZE_KV);
    int status = ls_attention_backward(w->ops, &a, w->error);
    return status ? status : segment_share(w, pair, w->tokens, a.q_first + a.tokens);
}

/* The tree is a binary counter of subtrees: level[0], level[1], ... hold ever smaller ones. */
int tiles_sum(struct attending *w, int64_t elements,
              int (*sums)(void *context, int segment, float *values), void *context)
{
    struct attention_buffers *b = &w->buffers;
    int held = 0, status = LS_OK;
    for (int tile = 0; tile < w->rows->segments / 2 && !status; tile++) {
        status = sums(context, 2 * tile, b->level[held]);
        if (!status)
            status = sums(context, 2 * tile + 1, b->work);
        if (status)
            return status;
        ls_tree_add(w->ops, elements, b->level[held++], b->work);
        for (int bits = tile; bits & 1; bits >>= 1, held--)
            ls_tree_add(w->ops, elements, b->level[held - 2], b->level[held - 1]);
    }
    for (; held > 1; held--)
        ls_tree_add(w->ops, elements, b->level[held - 2], b->level[held - 1]);
    return status;
}

/* The tree's top over cp ranks is ls_cp_reduce's. */
static int gathered_backward(struct attending *w)
{
    const struct ls_model *model = w->model;
    struct attention_buffers *b = &w->buffers;
    int64_t kv = size_held(model, SIZE_KV), tokens = w->rows->tokens;
    int status = gather(w);
    if (!status)
        status = tiles_sum(w, 2 * w->tokens * kv, segment_sums, w);
    const struct ls_cp_rows rows = {model->numerics.seq_tiles, w->tokens, kv, LS_F32};
    if (!status)
        status =
            ls_cp_reduce(&model->cp, w->ops, &rows, 2, b->level[0], b->work, b->level[0], w->error);
    if (!status)
        attention_kv_finish(w, w->sequence * tokens, tokens, b->level[0],
                            b->level[0] + tokens * kv);
    return status;
}

int segments_backward(struct attending *w)
{
    int status = LS_OK;
    for (w->sequence = 0; w->sequence < w->sequences && !status; w->sequence++)
        status = attention_ring(w->model) ? ring_backward(w) : gathered_backward(w);
    return status;
}
