/* A block between the products of qkv and proj: rotation and attention over the heads held here. */
#include "model.h"

#include <math.h>
#include <string.h>

void attention_take(struct ls_model *model, struct ls_arena *arena)
{
    (void)model;
    (void)arena;
}

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

/* Attention over a [M, (H+2G)D] buffer of q, k and v. */
static struct ls_attention attention_of(const struct ls_model *model,
                                        const struct ls_micro_batch *batch,
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

int attention_forward(struct ls_model *model, struct ls_ops *ops,
                      const struct ls_micro_batch *batch, const struct rows *rows,
                      struct block_saved *saved, struct ls_error *error)
{
    rotate(model, ops, rows, saved->qkv, false);
    struct ls_attention attention = attention_of(model, batch, saved);
    return ls_attention_forward(ops, &attention, error);
}

int attention_backward(struct ls_model *model, struct ls_ops *ops,
                       const struct ls_micro_batch *batch, const struct rows *rows,
                       const struct block_saved *saved, const void *d_o, void *d_qkv,
                       struct ls_error *error)
{
    size_t bytes = model_act_bytes(model);
    int64_t q = block_query_width(model), kv = block_kv_width(model);
    struct ls_attention attention = attention_of(model, batch, saved);
    attention.d_o = d_o;
    attention.d_q = d_qkv;
    attention.d_k = (char *)d_qkv + (size_t)q * bytes;
    attention.d_v = (char *)d_qkv + (size_t)(q + kv) * bytes;
    int status = ls_attention_backward(ops, &attention, error);
    if (!status)
        rotate(model, ops, rows, d_qkv, true);
    return status;
}

int attention_input_gradient(struct ls_model *model, struct ls_ops *ops, const struct rows *rows,
                             const struct ls_param *weight, const void *d_qkv, void *d_a,
                             struct ls_error *error)
{
    int64_t q = block_query_width(model), kv = block_kv_width(model);
    struct ls_gemm gemm =
        model_input_gradient(model, rows->all, 3, (int64_t[]){q, kv, kv}, model->config.channels,
                             model->tiles, model_weight(model, weight), d_qkv, d_a);
    return ls_tp_reduced_product(&model->tp, ops, &gemm, &model->scratch, error);
}
