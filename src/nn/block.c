/* One Transformer block, pre-norm:
 *
 *     a1 = norm1(x);  y1 = attention(a1) Wo^T + bo;  h1 = x + dropout(y1)
 *     a2 = norm2(h1); y2 = act(a2 Wu^T + bu) Wd^T + bd;  out = h1 + dropout(y2)
 *
 * (Radford et al. 2019; Touvron et al. 2023.) Contractions over heads (Wo) and over the ffn width
 * (Wd), and the input gradients of the weights in front of them, are the ones that tensor
 * parallelism cuts: they are summed in tp_tiles (S2). */
#include "model.h"

#include <math.h>

static int64_t query_width(const struct ls_model_config *c)
{
    return c->heads * c->head_dim;
}
static int64_t kv_width(const struct ls_model_config *c)
{
    return c->kv_heads * c->head_dim;
}
static int64_t qkv_width(const struct ls_model_config *c)
{
    return query_width(c) + 2 * kv_width(c);
}
static int up_parts(const struct ls_model_config *c)
{
    return c->act == LS_ACT_SWIGLU ? 2 : 1;
}

static void *act_take(struct ls_model *model, struct ls_arena *arena, int64_t width)
{
    return ls_arena_take(arena, (size_t)(model->rows_max * width) * model_act_bytes(model));
}

static float *row_statistic_take(struct ls_model *model, struct ls_arena *arena)
{
    return ls_arena_take(arena, (size_t)model->rows_max * sizeof(float));
}

void block_take(struct ls_model *model, struct ls_arena *arena, struct block_saved *saved)
{
    const struct ls_model_config *c = &model->config;
    saved->a1 = act_take(model, arena, c->channels);
    saved->qkv = act_take(model, arena, qkv_width(c));
    saved->o = act_take(model, arena, query_width(c));
    saved->h1 = act_take(model, arena, c->channels);
    saved->a2 = act_take(model, arena, c->channels);
    saved->f = act_take(model, arena, up_parts(c) * c->ffn);
    saved->g = act_take(model, arena, c->ffn);
    saved->out = act_take(model, arena, c->channels);
    saved->mean1 = row_statistic_take(model, arena);
    saved->rstd1 = row_statistic_take(model, arena);
    saved->mean2 = row_statistic_take(model, arena);
    saved->rstd2 = row_statistic_take(model, arena);
    saved->lse = ls_arena_take(arena, (size_t)(model->rows_max * c->heads) * sizeof(float));
}

void block_delta_take(struct ls_model *model, struct ls_arena *arena)
{
    const struct ls_model_config *c = &model->config;
    struct block_delta *delta = &model->delta;
    if (c->dropout > 0) {
        delta->y2_dropped = act_take(model, arena, c->channels);
        delta->y1_dropped = act_take(model, arena, c->channels);
    }
    delta->f = act_take(model, arena, up_parts(c) * c->ffn);
    /* GELU's gradient is taken in place; SwiGLU's is twice as wide as what it comes from. */
    delta->g = c->act == LS_ACT_SWIGLU ? act_take(model, arena, c->ffn) : delta->f;
    delta->a2 = act_take(model, arena, c->channels);
    delta->h1 = act_take(model, arena, c->channels);
    delta->o = act_take(model, arena, query_width(c));
    delta->qkv = act_take(model, arena, qkv_width(c));
    delta->a1 = act_take(model, arena, c->channels);
}

/* Attention of this micro-batch over a [M, (H+2G)D] buffer of q, k and v. */
static struct ls_attention attention_of(const struct ls_model *model,
                                        const struct ls_micro_batch *batch,
                                        const struct block_saved *saved)
{
    const struct ls_model_config *c = &model->config;
    size_t bytes = model_act_bytes(model);
    const char *qkv = saved->qkv;
    return (struct ls_attention){.batch = batch->sequences,
                                 .tokens = batch->tokens,
                                 .heads = c->heads,
                                 .kv_heads = c->kv_heads,
                                 .head_dim = c->head_dim,
                                 .scale = (float)(1 / sqrt((double)c->head_dim)),
                                 .act = model->numerics.act,
                                 .q = qkv,
                                 .k = qkv + (size_t)query_width(c) * bytes,
                                 .v = qkv + (size_t)(query_width(c) + kv_width(c)) * bytes,
                                 .q_ld = qkv_width(c),
                                 .kv_ld = qkv_width(c),
                                 .o_ld = query_width(c),
                                 .o = saved->o,
                                 .lse = saved->lse};
}

/* Rotates q and k, which lie side by side, as H + G heads. */
static void rotate(const struct ls_model *model, struct ls_ops *ops,
                   const struct ls_micro_batch *batch, void *qkv, bool backward)
{
    const struct ls_model_config *c = &model->config;
    if (c->arch != LS_LLAMA)
        return;
    struct ls_rope rope = {.rows = batch->sequences * batch->tokens,
                           .tokens = batch->tokens,
                           .heads = c->heads + c->kv_heads,
                           .head_dim = c->head_dim,
                           .ld = qkv_width(c),
                           .cosine = model->rope_cosine,
                           .sine = model->rope_sine};
    ls_rope_apply(ops, model->numerics.act, &rope, qkv, backward);
}

static enum ls_gelu gelu_kind(const struct ls_model_config *c)
{
    return c->act == LS_ACT_GELU_ERF ? LS_GELU_ERF : LS_GELU_TANH;
}

int block_forward(struct ls_model *model, struct ls_ops *ops, int64_t block,
                  const struct ls_micro_batch *batch, struct ls_error *error)
{
    const struct ls_model_config *c = &model->config;
    const struct ls_weights *w = &model->options.weights;
    const struct block_params *p = &model->block_params[block];
    struct block_saved *s = &model->saved[block];
    enum ls_dtype act = model->numerics.act;
    int64_t rows = batch->sequences * batch->tokens, tiles = model->numerics.tp_tiles;
    int layer = (int)block + 1, status;

    struct ls_norm norm1 =
        model_norm(c, w, act, rows, p->norm1_weight, p->norm1_bias, s->mean1, s->rstd1);
    model_norm_forward(c, ops, &norm1, s->x, NULL, NULL, s->a1);
    status = model_linear(ops, w, act, rows, c->channels, qkv_width(c), 1, p->qkv_weight,
                          p->qkv_bias, s->a1, s->qkv, error);
    if (status)
        return status;
    rotate(model, ops, batch, s->qkv, false);
    struct ls_attention attention = attention_of(model, batch, s);
    status = ls_attention_forward(ops, &attention, error);
    if (status)
        return status;
    status = model_linear(ops, w, act, rows, query_width(c), c->channels, tiles, p->proj_weight,
                          p->proj_bias, s->o, model->temporary, error);
    if (status)
        return status;
    model_dropout(model, ops, batch, layer, "attention", model->temporary, model->temporary);

    struct ls_norm norm2 =
        model_norm(c, w, act, rows, p->norm2_weight, p->norm2_bias, s->mean2, s->rstd2);
    model_norm_forward(c, ops, &norm2, s->x, model->temporary, s->h1, s->a2);
    status = model_linear(ops, w, act, rows, c->channels, up_parts(c) * c->ffn, 1, p->up_weight,
                          p->up_bias, s->a2, s->f, error);
    if (status)
        return status;
    if (c->act == LS_ACT_SWIGLU)
        ls_swiglu_forward(ops, act, rows, c->ffn, s->f, s->g);
    else
        ls_gelu_forward(ops, gelu_kind(c), act, rows * c->ffn, s->f, s->g);
    status = model_linear(ops, w, act, rows, c->ffn, c->channels, tiles, p->down_weight,
                          p->down_bias, s->g, model->temporary, error);
    if (status)
        return status;
    model_dropout(model, ops, batch, layer, "mlp", model->temporary, model->temporary);
    ls_add(ops, act, rows * c->channels, s->h1, model->temporary, s->out);
    return LS_OK;
}

/* dx [M, in] = dy [M, out] W, W [out, in]: the contraction over the stacked parts of out. */
static int input_gradient(const struct ls_model *model, struct ls_ops *ops, int64_t rows,
                          int sections, const int64_t *k, int64_t in, int64_t tiles, int64_t weight,
                          const void *dy, void *dx, struct ls_error *error)
{
    struct ls_gemm gemm = {.m = rows,
                           .n = in,
                           .sections = sections,
                           .tiles = tiles,
                           .in = model->numerics.act,
                           .out = model->numerics.act,
                           .a = dy,
                           .b = model_weight(&model->options.weights, weight),
                           .ldb = in,
                           .c = dx,
                           .ldc = in};
    for (int i = 0; i < sections; i++) {
        gemm.k[i] = k[i];
        gemm.lda += k[i];
    }
    return ls_gemm_run(ops, &gemm, error);
}

static void norm_backward_input(const struct ls_model *model, struct ls_ops *ops,
                                const struct ls_norm *norm, const void *h, const void *dy,
                                const void *d_residual, void *dh)
{
    if (model->config.arch == LS_GPT2)
        ls_layernorm_backward_input(ops, norm, h, dy, d_residual, dh);
    else
        ls_rmsnorm_backward_input(ops, norm, h, dy, d_residual, dh);
}

int block_backward_input(struct ls_model *model, struct ls_ops *ops, int64_t block,
                         const struct ls_micro_batch *batch, const void *dy, void *dx,
                         struct ls_error *error)
{
    const struct ls_model_config *c = &model->config;
    const struct ls_weights *w = &model->options.weights;
    const struct block_params *p = &model->block_params[block];
    const struct block_saved *s = &model->saved[block];
    struct block_delta *d = &model->delta;
    enum ls_dtype act = model->numerics.act;
    int64_t rows = batch->sequences * batch->tokens, tiles = model->numerics.tp_tiles;
    int layer = (int)block + 1, status;

    d->y2 = model_dropout(model, ops, batch, layer, "mlp", dy, d->y2_dropped);
    status = input_gradient(model, ops, rows, 1, &c->channels, c->ffn, 1, p->down_weight, d->y2,
                            d->g, error);
    if (status)
        return status;
    if (c->act == LS_ACT_SWIGLU)
        ls_swiglu_backward(ops, act, rows, c->ffn, s->f, d->g, d->f);
    else
        ls_gelu_backward(ops, gelu_kind(c), act, rows * c->ffn, s->f, d->g, d->f);
    status = input_gradient(model, ops, rows, up_parts(c), (int64_t[]){c->ffn, c->ffn}, c->channels,
                            tiles, p->up_weight, d->f, d->a2, error);
    if (status)
        return status;
    struct ls_norm norm2 =
        model_norm(c, w, act, rows, p->norm2_weight, p->norm2_bias, s->mean2, s->rstd2);
    norm_backward_input(model, ops, &norm2, s->h1, d->a2, dy, d->h1);

    d->y1 = model_dropout(model, ops, batch, layer, "attention", d->h1, d->y1_dropped);
    status = input_gradient(model, ops, rows, 1, &c->channels, query_width(c), 1, p->proj_weight,
                            d->y1, d->o, error);
    if (status)
        return status;
    struct ls_attention attention = attention_of(model, batch, s);
    size_t bytes = model_act_bytes(model);
    attention.d_o = d->o;
    attention.d_q = d->qkv;
    attention.d_k = (char *)d->qkv + (size_t)query_width(c) * bytes;
    attention.d_v = (char *)d->qkv + (size_t)(query_width(c) + kv_width(c)) * bytes;
    status = ls_attention_backward(ops, &attention, error);
    if (status)
        return status;
    rotate(model, ops, batch, d->qkv, true);
    status =
        input_gradient(model, ops, rows, 3, (int64_t[]){query_width(c), kv_width(c), kv_width(c)},
                       c->channels, tiles, p->qkv_weight, d->qkv, d->a1, error);
    if (status)
        return status;
    struct ls_norm norm1 =
        model_norm(c, w, act, rows, p->norm1_weight, p->norm1_bias, s->mean1, s->rstd1);
    norm_backward_input(model, ops, &norm1, s->x, d->a1, d->h1, dx);
    return LS_OK;
}

/* One linear layer's weight and bias gradients. */
struct linear_gradient {
    int64_t weight, bias; /* offsets of parameters; bias -1 for none */
    int64_t out, in;
    const void *dy, *x;
};

static int linear_backward_weight(struct ls_model *model, struct ls_ops *ops,
                                  const struct ls_micro_batch *batch,
                                  const struct ls_gradient *gradient,
                                  const struct linear_gradient *linear, struct ls_error *error)
{
    float *flat = gradient->flat + model->options.params->tied_elements;
    struct ls_token_sum sum = model_token_sum(model, batch, gradient->accumulate);
    if (linear->bias >= 0)
        ls_bias_backward(ops, model->numerics.act, linear->out, linear->out, linear->dy, &sum,
                         flat + linear->bias);
    return model_weight_gradient(model, ops, sum.leaves, batch->sequences * batch->tokens,
                                 linear->out, linear->in, linear->dy, linear->x,
                                 gradient->accumulate, flat + linear->weight, error);
}

static void norm_backward_weight(struct ls_model *model, struct ls_ops *ops,
                                 const struct ls_micro_batch *batch,
                                 const struct ls_gradient *gradient, const struct ls_norm *norm,
                                 int64_t weight, int64_t bias, const void *h, const void *dy)
{
    float *flat = gradient->flat + model->options.params->tied_elements;
    struct ls_token_sum sum = model_token_sum(model, batch, gradient->accumulate);
    if (model->config.arch == LS_GPT2)
        ls_layernorm_backward_weight(ops, norm, h, dy, &sum, flat + weight,
                                     bias >= 0 ? flat + bias : NULL);
    else
        ls_rmsnorm_backward_weight(ops, norm, h, dy, &sum, flat + weight);
}

int block_backward_weight(struct ls_model *model, struct ls_ops *ops, int64_t block,
                          const struct ls_micro_batch *batch, const struct ls_gradient *gradient,
                          struct ls_error *error)
{
    const struct ls_model_config *c = &model->config;
    const struct ls_weights *w = &model->options.weights;
    const struct block_params *p = &model->block_params[block];
    const struct block_saved *s = &model->saved[block];
    const struct block_delta *d = &model->delta;
    int64_t rows = batch->sequences * batch->tokens;
    const struct linear_gradient linears[] = {
        {p->down_weight, p->down_bias, c->channels, c->ffn, d->y2, s->g},
        {p->up_weight, p->up_bias, up_parts(c) * c->ffn, c->channels, d->f, s->a2},
        {p->proj_weight, p->proj_bias, c->channels, query_width(c), d->y1, s->o},
        {p->qkv_weight, p->qkv_bias, qkv_width(c), c->channels, d->qkv, s->a1},
    };
    for (size_t i = 0; i < sizeof linears / sizeof linears[0]; i++) {
        int status = linear_backward_weight(model, ops, batch, gradient, &linears[i], error);
        if (status)
            return status;
    }
    struct ls_norm norm1 = model_norm(c, w, model->numerics.act, rows, p->norm1_weight,
                                      p->norm1_bias, s->mean1, s->rstd1);
    struct ls_norm norm2 = model_norm(c, w, model->numerics.act, rows, p->norm2_weight,
                                      p->norm2_bias, s->mean2, s->rstd2);
    norm_backward_weight(model, ops, batch, gradient, &norm2, p->norm2_weight, p->norm2_bias, s->h1,
                         d->a2);
    norm_backward_weight(model, ops, batch, gradient, &norm1, p->norm1_weight, p->norm1_bias, s->x,
                         d->a1);
    return LS_OK;
}
