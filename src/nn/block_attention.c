/* A block between the products of qkv and proj: rotation and attention over the heads held here. */
#include "attention.h"

#include <math.h>
#include <string.h>

/* ---- buffers ----------------------------------------------------------------------------------
 */

static float *floats_take(struct ls_arena *arena, int64_t count)
{
    return ls_arena_take(arena, (size_t)count * sizeof(float));
}

static void segments_take(struct ls_model *model, struct ls_arena *arena)
{
    struct attention_buffers *b = &model->attention;
    int64_t tokens = model->options.tokens, kv = block_kv_width(model);
    bool ring = attention_ring(model), training = model->options.training;
    b->span = ring ? tokens / (2 * model->numerics.seq_tiles) : tokens;
    if (ring) {
        for (int i = 0; i < 2; i++)
            b->block[i] = model_take(model, arena, b->span, 2 * kv);
        b->state = ls_arena_take(arena, attention_state_room(model));
    } else {
        b->natural = model_take(model, arena, tokens, 2 * kv);
        if (model->cp.size > 1)
            b->staging = model_take(model, arena, tokens, 2 * kv);
    }
    if (!training)
        return;
    for (int64_t tiles = model->numerics.seq_tiles / model->cp.size; tiles > 0; tiles /= 2) {
        LS_ASSERT(b->levels < ATTENTION_LEVELS_MAX);
        b->level[b->levels++] = floats_take(arena, 2 * b->span * kv);
    }
    b->work = floats_take(arena, 2 * b->span * kv);
    if (ring) {
        b->arrived = floats_take(arena, model->cp.size * 2 * b->span * kv);
        b->sent = floats_take(arena, 2 * b->span * kv);
    }
}

void attention_take(struct ls_model *model, struct ls_arena *arena)
{
    struct attention_buffers *b = &model->attention;
    int64_t kv = block_kv_width(model), sharers = model->tp.sharers;
    if (model->numerics.seq_tiles > 1)
        segments_take(model, arena);
    if (sharers == 1 || !model->options.training)
        return;
    if (model->numerics.seq_tiles == 1)
        b->shared = floats_take(arena, 2 * model->rows_max * kv);
    int64_t own = block_query_width(model) + 2 * kv / sharers;
    b->d_own = model_take(model, arena, model->rows_max, own);
    b->weight_own = model_take(model, arena, own, model->config.channels);
}

/* ---- rotation ---------------------------------------------------------------------------------
 */

/* Rotates q and k, which lie side by side, as H + G heads. */
static void rotate(const struct ls_model *model, struct ls_ops *ops, const struct rows *rows,
                   void *qkv, bool backward)
{
    const struct ls_model_config *c = &model->config;
    if (c->arch != LS_LLAMA)
        return;
    struct ls_rope rope = {.heads = model->heads + model->kv_heads,
                           .head_dim = c->head_dim,
                           .ld = block_qkv_width(model),
                           .cosine = model->rope_cosine,
                           .sine = model->rope_sine};
    size_t bytes = (size_t)rope.ld * model_act_bytes(model);
    for (struct run run = {0}; rows_next(model, rows, 0, rows->all, &run);) {
        rope.rows = rope.tokens = run.count;
        rope.first_position = run.token;
        ls_rope_apply(ops, model->numerics.act, &rope, (char *)qkv + (size_t)run.row * bytes,
                      backward);
    }
}

/* ---- attention --------------------------------------------------------------------------------
 */

struct ls_attention attention_of(const struct ls_model *model, const struct ls_micro_batch *batch,
                                 const struct block_saved *saved)
{
    size_t bytes = model_act_bytes(model);
    int64_t q = block_query_width(model), kv = block_kv_width(model);
    const char *qkv = saved->qkv;
    return (struct ls_attention){.batch = batch->sequences,
                                 .tokens = batch->tokens,
                                 .heads = model->heads,
                                 .kv_heads = model->kv_heads,
                                 .head_dim = model->config.head_dim,
                                 .scale = (float)(1 / sqrt((double)model->config.head_dim)),
                                 .act = model->numerics.act,
                                 .q = qkv,
                                 .k = qkv + (size_t)q * bytes,
                                 .v = qkv + (size_t)(q + kv) * bytes,
                                 .q_ld = q + 2 * kv,
                                 .kv_ld = q + 2 * kv,
                                 .o_ld = q,
                                 .o = saved->o,
                                 .lse = saved->lse};
}

void attention_kv_finish(const struct ls_model *model, struct ls_ops *ops, int64_t row,
                         int64_t rows, const float *d_k_sum, const float *d_v_sum, void *d_qkv)
{
    size_t bytes = model_act_bytes(model);
    int64_t q = block_query_width(model), kv = block_kv_width(model), ld = q + 2 * kv;
    char *d_k = (char *)d_qkv + (size_t)(row * ld + q) * bytes;
    ls_attention_kv_finish(ops, model->numerics.act, rows, kv,
                           (float)(1 / sqrt((double)model->config.head_dim)), d_k_sum, d_v_sum, d_k,
                           d_k + (size_t)kv * bytes, ld);
}

int attention_forward(struct ls_model *model, struct ls_ops *ops,
                      const struct ls_micro_batch *batch, const struct rows *rows,
                      struct block_saved *saved, struct ls_error *error)
{
    rotate(model, ops, rows, saved->qkv, false);
    if (model->numerics.seq_tiles > 1)
        return segments_forward(model, ops, batch, rows, saved, error);
    struct ls_attention attention = attention_of(model, batch, saved);
    return ls_attention_forward(ops, &attention, error);
}

/* Whole sequences are here. Where other ranks have query heads of the same key/value head, its
 * gradient is the tree over all of them. */
static int whole_backward(struct ls_model *model, struct ls_ops *ops,
                          const struct ls_micro_batch *batch, const struct rows *rows,
                          const struct block_saved *saved, const void *d_o, void *d_qkv,
                          struct ls_error *error)
{
    size_t bytes = model_act_bytes(model);
    int64_t q = block_query_width(model), kv = block_kv_width(model), half = rows->all * kv;
    struct ls_attention attention = attention_of(model, batch, saved);
    attention.d_o = d_o;
    attention.d_q = d_qkv;
    attention.d_k = (char *)d_qkv + (size_t)q * bytes;
    attention.d_v = (char *)d_qkv + (size_t)(q + kv) * bytes;
    if (model->tp.sharers == 1)
        return ls_attention_backward(ops, &attention, error);
    float *sums = model->attention.shared;
    attention.d_k_sum = sums;
    attention.d_v_sum = sums + half;
    int status = ls_attention_backward(ops, &attention, error);
    if (!status)
        status = ls_all_reduce(model->tp.sharers_comm, sums, 2 * half, error);
    if (!status)
        attention_kv_finish(model, ops, 0, rows->all, sums, sums + half, d_qkv);
    return status;
}

int attention_backward(struct ls_model *model, struct ls_ops *ops,
                       const struct ls_micro_batch *batch, const struct rows *rows,
                       const struct block_saved *saved, const void *d_o, void *d_qkv,
                       struct ls_error *error)
{
    int status = model->numerics.seq_tiles > 1
                     ? segments_backward(model, ops, batch, rows, saved, d_o, d_qkv, error)
                     : whole_backward(model, ops, batch, rows, saved, d_o, d_qkv, error);
    if (!status)
        rotate(model, ops, rows, d_qkv, true);
    return status;
}

/* ---- the stacked weight's input gradient ------------------------------------------------------
 */

/* to [rows, widths of all parts]: some columns of from, side by side. */
struct part {
    int64_t first, width;
};
static void columns_pack(const struct ls_model *model, int64_t rows, const struct part *parts,
                         int64_t ld, const void *from, int64_t to_ld, void *to)
{
    size_t bytes = model_act_bytes(model);
    for (int64_t row = 0; row < rows; row++) {
        const char *in = (const char *)from + (size_t)(row * ld) * bytes;
        char *out = (char *)to + (size_t)(row * to_ld) * bytes;
        for (int i = 0; i < 3; i++) {
            memcpy(out, in + (size_t)parts[i].first * bytes, (size_t)parts[i].width * bytes);
            out += (size_t)parts[i].width * bytes;
        }
    }
}

/* Where ranks share a key/value head, all of them have its gradient whole; each brings its own
 * tiles of the contraction over the head's rows, so that every row counts once. */
int attention_input_gradient(struct ls_model *model, struct ls_ops *ops, const struct rows *rows,
                             const struct ls_param *weight, const void *d_qkv, void *d_a,
                             struct ls_error *error)
{
    int64_t channels = model->config.channels, sharers = model->tp.sharers;
    int64_t q = block_query_width(model), kv = block_kv_width(model), own = kv / sharers;
    const char *w = model_weight(model, weight);
    const void *d = d_qkv;
    if (sharers > 1) {
        size_t row = (size_t)channels * model_act_bytes(model);
        int64_t first = model->tp.rank % sharers * own;
        const struct part parts[] = {{0, q}, {q + first, own}, {q + kv + first, own}};
        char *packed = model->attention.weight_own;
        for (int i = 0; i < 3; i++) {
            memcpy(packed, w + (size_t)parts[i].first * row, (size_t)parts[i].width * row);
            packed += (size_t)parts[i].width * row;
        }
        columns_pack(model, rows->all, parts, q + 2 * kv, d_qkv, q + 2 * own,
                     model->attention.d_own);
        d = model->attention.d_own;
        w = model->attention.weight_own;
    }
    struct ls_gemm gemm = model_input_gradient(model, rows->all, 3, (int64_t[]){q, own, own},
                                               channels, model->tiles, w, d, d_a);
    return ls_tp_reduced_product(&model->tp, ops, &gemm, &model->scratch, error);
}
