/* Generation, one token at a time, with a key/value cache. */
#include "model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct ls_decoder {
    struct ls_model model; /* only what the shared steps read: options, config, numerics */
    struct ls_arena arena;
    struct block_params *block_params;
    int64_t position;
    char *k_cache, *v_cache; /* [layers, context, G*D] act */
    void *x, *a, *qkv, *o, *y, *f, *g, *logits_act;
    float mean, rstd;
    float *logits; /* [V] */
    float *rope_cosine, *rope_sine;
};

static size_t act_bytes(const struct ls_decoder *d)
{
    return model_act_bytes(&d->model);
}

static void buffers_take(struct ls_decoder *d, struct ls_arena *arena)
{
    const struct ls_model_config *c = &d->model.config;
    size_t act = act_bytes(d);
    int64_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
    size_t cache = (size_t)(c->layers * c->context * kv) * act;
    d->k_cache = ls_arena_take(arena, cache);
    d->v_cache = ls_arena_take(arena, cache);
    d->x = ls_arena_take(arena, (size_t)c->channels * act);
    d->a = ls_arena_take(arena, (size_t)c->channels * act);
    d->y = ls_arena_take(arena, (size_t)c->channels * act);
    d->qkv = ls_arena_take(arena, (size_t)(q + 2 * kv) * act);
    d->o = ls_arena_take(arena, (size_t)q * act);
    d->f = ls_arena_take(arena, (size_t)(2 * c->ffn) * act);
    d->g = ls_arena_take(arena, (size_t)c->ffn * act);
    d->logits_act = ls_arena_take(arena, (size_t)c->vocab_padded * act);
    d->logits = ls_arena_take(arena, (size_t)c->vocab_padded * sizeof(float));
    if (c->arch == LS_LLAMA) {
        size_t table = (size_t)(c->context * c->head_dim / 2) * sizeof(float);
        d->rope_cosine = ls_arena_take(arena, table);
        d->rope_sine = ls_arena_take(arena, table);
    }
}

int ls_decoder_new(const struct ls_model_options *options, struct ls_decoder **out,
                   struct ls_error *error)
{
    *out = NULL;
    if ((options->tp && options->tp->size > 1) || options->layers)
        return ls_error_set(error, LS_EINVAL, "a decoder needs the whole model on one rank");
    struct ls_decoder *d = calloc(1, sizeof *d);
    if (d)
        d->block_params = calloc((size_t)options->config->layers, sizeof *d->block_params);
    if (!d || !d->block_params) {
        ls_decoder_free(d);
        return ls_error_set(error, LS_ENOMEM, "no memory for the decoder's tables");
    }
    model_init(&d->model, options);
    struct ls_arena measure;
    ls_arena_measure(&measure);
    buffers_take(d, &measure);
    int status = ls_arena_init(&d->arena, measure.peak, error);
    if (status) {
        ls_decoder_free(d);
        return status;
    }
    buffers_take(d, &d->arena);
    const struct ls_model_config *c = &d->model.config;
    for (int64_t i = 0; i < c->layers; i++)
        model_find_block(options->params, i, &d->block_params[i]);
    if (c->arch == LS_LLAMA)
        ls_rope_table(c->context, c->head_dim, c->rope_theta, &c->rope_scaling, d->rope_cosine,
                      d->rope_sine);
    *out = d;
    return LS_OK;
}

void ls_decoder_free(struct ls_decoder *d)
{
    if (!d)
        return;
    ls_arena_release(&d->arena);
    free(d->block_params);
    free(d);
}

void ls_decoder_reset(struct ls_decoder *d)
{
    d->position = 0;
}

int64_t ls_decoder_room(const struct ls_decoder *d)
{
    return d->model.config.context - d->position;
}

/* Puts this token's key and value in the cache and attends to all of it. */
static int attend(struct ls_decoder *d, struct ls_ops *ops, int64_t block, struct ls_error *error)
{
    const struct ls_model_config *c = &d->model.config;
    size_t act = act_bytes(d);
    int64_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
    if (c->arch == LS_LLAMA) {
        struct ls_rope rope = {.rows = 1,
                               .tokens = c->context,
                               .heads = c->heads + c->kv_heads,
                               .head_dim = c->head_dim,
                               .ld = q + 2 * kv,
                               .first_position = d->position,
                               .cosine = d->rope_cosine,
                               .sine = d->rope_sine};
        ls_rope_apply(ops, d->model.numerics.act, &rope, d->qkv, false);
    }
    size_t layer_bytes = (size_t)(c->context * kv) * act, row_bytes = (size_t)kv * act;
    char *k = d->k_cache + (size_t)block * layer_bytes,
         *v = d->v_cache + (size_t)block * layer_bytes;
    const char *qkv = d->qkv;
    memcpy(k + (size_t)d->position * row_bytes, qkv + (size_t)q * act, row_bytes);
    memcpy(v + (size_t)d->position * row_bytes, qkv + (size_t)(q + kv) * act, row_bytes);
    struct ls_attention_decode decode = {.batch = 1,
                                         .length = d->position + 1,
                                         .capacity = c->context,
                                         .heads = c->heads,
                                         .kv_heads = c->kv_heads,
                                         .head_dim = c->head_dim,
                                         .scale = (float)(1 / sqrt((double)c->head_dim)),
                                         .act = d->model.numerics.act,
                                         .q = qkv,
                                         .k_cache = k,
                                         .v_cache = v,
                                         .q_ld = q + 2 * kv,
                                         .o_ld = q,
                                         .o = d->o};
    return ls_attention_decode(ops, &decode, error);
}

/* The tiles of a contraction that tensor parallelism may cut are all here. */
static int linear(struct ls_decoder *d, struct ls_ops *ops, int64_t out, int64_t tiles,
                  const struct ls_param *weight, const struct ls_param *bias, const void *x,
                  void *y, struct ls_error *error)
{
    struct ls_gemm gemm = model_linear(&d->model, 1, out, tiles, weight, bias, x, y);
    return ls_gemm_run(ops, &gemm, error);
}

static void norm(struct ls_decoder *d, struct ls_ops *ops, const struct ls_param *weight,
                 const struct ls_param *bias)
{
    struct norm norm = {weight, bias, &d->mean, &d->rstd};
    norm_forward(&d->model, ops, &norm, 1, d->x, NULL, NULL, d->a);
}

static int block_step(struct ls_decoder *d, struct ls_ops *ops, int64_t block,
                      struct ls_error *error)
{
    const struct ls_model_config *c = &d->model.config;
    const struct block_params *p = &d->block_params[block];
    enum ls_dtype act = d->model.numerics.act;
    int64_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
    int64_t tiles = d->model.tiles, up = c->act == LS_ACT_SWIGLU ? 2 : 1;
    norm(d, ops, p->norm1_weight, p->norm1_bias);
    int status = linear(d, ops, q + 2 * kv, 1, p->qkv_weight, p->qkv_bias, d->a, d->qkv, error);
    if (!status)
        status = attend(d, ops, block, error);
    if (!status)
        status =
            linear(d, ops, c->channels, tiles, p->proj_weight, p->proj_bias, d->o, d->y, error);
    if (status)
        return status;
    ls_add(ops, act, c->channels, d->x, d->y, d->x);
    norm(d, ops, p->norm2_weight, p->norm2_bias);
    status = linear(d, ops, up * c->ffn, 1, p->up_weight, p->up_bias, d->a, d->f, error);
    if (status)
        return status;
    if (c->act == LS_ACT_SWIGLU)
        ls_swiglu_forward(ops, act, 1, c->ffn, d->f, d->g);
    else
        ls_gelu_forward(ops, c->act == LS_ACT_GELU_ERF ? LS_GELU_ERF : LS_GELU_TANH, act, c->ffn,
                        d->f, d->g);
    status = linear(d, ops, c->channels, tiles, p->down_weight, p->down_bias, d->g, d->y, error);
    if (!status)
        ls_add(ops, act, c->channels, d->x, d->y, d->x);
    return status;
}

int ls_decoder_next(struct ls_decoder *d, struct ls_ops *ops, int32_t token, const float **logits,
                    struct ls_error *error)
{
    const struct ls_model_config *c = &d->model.config;
    const struct ls_params *params = d->model.options.params;
    enum ls_dtype act = d->model.numerics.act;
    if (d->position >= c->context)
        return ls_error_set(error, LS_EINVAL, "the model's context of %ld tokens is full",
                            (long)c->context);
    if (token < 0 || token >= c->vocab)
        return ls_error_set(error, LS_EINVAL, "token %d is not in the vocabulary of %ld", token,
                            (long)c->vocab);
    const struct ls_param *position = model_param(params, "wpe.weight", -1);
    ls_embedding_forward(ops, act, 1, c->context, c->channels, &token,
                         model_weight(&d->model, model_param(params, "wte.weight", -1)),
                         position ? model_weight(&d->model, position) : NULL, d->position, d->x);
    for (int64_t i = 0; i < c->layers; i++) {
        int status = block_step(d, ops, i, error);
        if (status)
            return status;
    }
    bool gpt2 = c->arch == LS_GPT2;
    norm(d, ops, model_param(params, gpt2 ? "ln_f.weight" : "norm_f.weight", -1),
         model_param(params, "ln_f.bias", -1));
    int status = linear(d, ops, c->vocab_padded, 1,
                        model_param(params, c->tied ? "wte.weight" : "head.weight", -1), NULL, d->a,
                        d->logits_act, error);
    if (status)
        return status;
    if (act == LS_BF16)
        ls_cast_bf16_to_f32(ops, c->vocab, d->logits_act, d->logits);
    else
        memcpy(d->logits, d->logits_act, (size_t)c->vocab * sizeof(float));
    *logits = d->logits;
    d->position++;
    return LS_OK;
}

/* ---- sampling -------------------------------------------------------------------------------- */

static int32_t greedy(const float *logits, int64_t vocab)
{
    int32_t best = 0;
    for (int64_t i = 1; i < vocab; i++)
        if (logits[i] > logits[best])
            best = (int32_t)i;
    return best;
}

static int by_logit(const void *a, const void *b, void *user)
{
    const float *logits = user;
    int32_t i = *(const int32_t *)a, j = *(const int32_t *)b;
    if (logits[i] != logits[j])
        return logits[i] > logits[j] ? -1 : 1;
    return i < j ? -1 : i > j; /* ties: the smaller token first */
}

int32_t ls_sample(const struct ls_sampling *sampling, const float *logits, int64_t vocab,
                  int32_t *order, float u)
{
    if (sampling->temperature <= 0)
        return greedy(logits, vocab);
    for (int64_t i = 0; i < vocab; i++)
        order[i] = (int32_t)i;
    qsort_r(order, (size_t)vocab, sizeof *order, by_logit, (void *)logits);
    int64_t kept = sampling->top_k > 0 ? ls_min(sampling->top_k, vocab) : vocab;
    double top = logits[order[0]], total = 0;
    for (int64_t i = 0; i < kept; i++)
        total += exp((logits[order[i]] - top) / sampling->temperature);
    if (sampling->top_p < 1) {
        double reach = 0;
        for (int64_t i = 0; i < kept; i++) {
            reach += exp((logits[order[i]] - top) / sampling->temperature);
            if (reach >= sampling->top_p * total) {
                kept = i + 1;
                total = reach;
            }
        }
    }
    double target = u * total, reach = 0;
    for (int64_t i = 0; i < kept; i++) {
        reach += exp((logits[order[i]] - top) / sampling->temperature);
        if (target < reach)
            return order[i];
    }
    return order[kept - 1];
}
