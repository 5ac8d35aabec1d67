#include "model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- lookups and shared steps ---------------------------------------------------------------- */

int64_t model_offset(const struct ls_params *params, const char *suffix, int64_t layer)
{
    char name[LS_PARAM_NAME_MAX + 1];
    if (layer >= 0)
        snprintf(name, sizeof name, "h.%ld.%s", (long)layer, suffix);
    else
        snprintf(name, sizeof name, "%s", suffix);
    const struct ls_param *param = ls_params_find(params, name);
    return param ? param->offset : -1;
}

/* The first of two names that exists. */
static int64_t offset_either(const struct ls_params *params, const char *a, const char *b,
                             int64_t layer)
{
    int64_t offset = model_offset(params, a, layer);
    return offset >= 0 ? offset : model_offset(params, b, layer);
}

void model_find_block(const struct ls_params *params, int64_t layer, struct block_params *out)
{
    *out = (struct block_params){
        .norm1_weight = offset_either(params, "ln_1.weight", "norm_1.weight", layer),
        .norm1_bias = model_offset(params, "ln_1.bias", layer),
        .qkv_weight = model_offset(params, "attn.q.weight", layer),
        .qkv_bias = model_offset(params, "attn.q.bias", layer),
        .proj_weight = model_offset(params, "attn.proj.weight", layer),
        .proj_bias = model_offset(params, "attn.proj.bias", layer),
        .norm2_weight = offset_either(params, "ln_2.weight", "norm_2.weight", layer),
        .norm2_bias = model_offset(params, "ln_2.bias", layer),
        .up_weight = offset_either(params, "mlp.gate.weight", "mlp.up.weight", layer),
        .up_bias = offset_either(params, "mlp.gate.bias", "mlp.up.bias", layer),
        .down_weight = model_offset(params, "mlp.down.weight", layer),
        .down_bias = model_offset(params, "mlp.down.bias", layer),
    };
}

const void *model_weight(const struct ls_weights *weights, int64_t offset)
{
    return weights->compute ? (const void *)(weights->compute + offset)
                            : (const void *)(weights->master + offset);
}

const float *model_vector(const struct ls_weights *weights, int64_t offset)
{
    return offset < 0 ? NULL : weights->master + offset;
}

size_t model_act_bytes(const struct ls_model *model)
{
    return ls_dtype_bytes(model->numerics.act);
}

struct ls_token_sum model_token_sum(const struct ls_model *model,
                                    const struct ls_micro_batch *batch, bool accumulate)
{
    int64_t per_leaf = model->numerics.leaf_sequences;
    return (struct ls_token_sum){.leaves = batch->sequences / per_leaf,
                                 .sequences = per_leaf,
                                 .tokens = batch->tokens,
                                 .accumulate = accumulate};
}

int64_t model_leaf_tiles(const struct ls_model *model, int64_t leaves)
{
    return model->numerics.fast ? 1 : leaves * model->numerics.seq_tiles;
}

int model_linear(struct ls_ops *ops, const struct ls_weights *weights, enum ls_dtype act,
                 int64_t rows, int64_t in, int64_t out, int64_t tiles, int64_t weight, int64_t bias,
                 const void *x, void *y, struct ls_error *error)
{
    struct ls_gemm gemm = {.m = rows,
                           .n = out,
                           .sections = 1,
                           .k = {in},
                           .tiles = tiles,
                           .b_transposed = true,
                           .in = act,
                           .out = act,
                           .a = x,
                           .lda = in,
                           .b = model_weight(weights, weight),
                           .ldb = in,
                           .c = y,
                           .ldc = out,
                           .bias = model_vector(weights, bias)};
    return ls_gemm_run(ops, &gemm, error);
}

int model_weight_gradient(const struct ls_model *model, struct ls_ops *ops, int64_t leaves,
                          int64_t rows, int64_t out, int64_t in, const void *dy, const void *x,
                          bool accumulate, float *d_w, struct ls_error *error)
{
    struct ls_gemm gemm = {.m = out,
                           .n = in,
                           .sections = 1,
                           .k = {rows},
                           .tiles = model_leaf_tiles(model, leaves),
                           .a_transposed = true,
                           .in = model->numerics.act,
                           .out = LS_F32,
                           .a = dy,
                           .lda = out,
                           .b = x,
                           .ldb = in,
                           .c = d_w,
                           .ldc = in,
                           .accumulate = accumulate};
    return ls_gemm_run(ops, &gemm, error);
}

const void *model_dropout(const struct ls_model *model, struct ls_ops *ops,
                          const struct ls_micro_batch *batch, int layer, const char *place,
                          const void *x, void *storage)
{
    if (model->config.dropout == 0 || !batch->training)
        return x;
    char purpose[96];
    snprintf(purpose, sizeof purpose, "dropout:%ld:%d:%s", (long)batch->step, layer, place);
    struct ls_dropout dropout = {.key = ls_philox_key_of(model->config.seed, purpose),
                                 .p = model->config.dropout,
                                 .rows = batch->sequences * batch->tokens,
                                 .channels = model->config.channels,
                                 .first_row = batch->first_sequence * batch->tokens};
    ls_dropout(ops, model->numerics.act, &dropout, x, storage);
    return storage;
}

struct ls_norm model_norm(const struct ls_model_config *config, const struct ls_weights *weights,
                          enum ls_dtype act, int64_t rows, int64_t weight, int64_t bias,
                          float *mean, float *rstd)
{
    return (struct ls_norm){.rows = rows,
                            .channels = config->channels,
                            .act = act,
                            .epsilon = config->norm_epsilon,
                            .weight = model_vector(weights, weight),
                            .bias = model_vector(weights, bias),
                            .mean = mean,
                            .rstd = rstd};
}

void model_norm_forward(const struct ls_model_config *config, struct ls_ops *ops,
                        const struct ls_norm *norm, const void *x, const void *residual, void *sum,
                        void *y)
{
    if (config->arch == LS_GPT2)
        ls_layernorm_forward(ops, norm, x, residual, sum, y);
    else
        ls_rmsnorm_forward(ops, norm, x, residual, sum, y);
}

/* ---- the embedding layer --------------------------------------------------------------------- */

static void embedding_forward(struct ls_model *model, struct ls_ops *ops,
                              const struct ls_micro_batch *batch)
{
    const struct ls_weights *weights = &model->options.weights;
    int64_t table = model_offset(model->options.params, "wte.weight", -1);
    int64_t position = model_offset(model->options.params, "wpe.weight", -1);
    ls_embedding_forward(ops, model->numerics.act, batch->sequences * batch->tokens, batch->tokens,
                         model->config.channels, batch->ids, model_weight(weights, table),
                         position < 0 ? NULL : model_weight(weights, position), 0, model->embedded);
    model_dropout(model, ops, batch, 0, "embedding", model->embedded, model->embedded);
}

static void embedding_backward_weight(struct ls_model *model, struct ls_ops *ops,
                                      const struct ls_micro_batch *batch,
                                      const struct ls_gradient *gradient)
{
    const struct ls_params *params = model->options.params;
    struct ls_token_sum sum = model_token_sum(model, batch, gradient->accumulate);
    void *dy = model->d_stream[1];
    model_dropout(model, ops, batch, 0, "embedding", dy, dy);
    int64_t table = model->config.tied ? 0 : model_offset(params, "wte.weight", -1);
    ls_embedding_backward(ops, model->numerics.act, 0, model->config.vocab_padded,
                          model->config.channels, batch->ids, dy, &sum, model->embedding_scratch,
                          gradient->flat + table);
    int64_t position = model_offset(params, "wpe.weight", -1);
    if (position < 0)
        return;
    float *d_position = gradient->flat + params->tied_elements + position;
    ls_position_backward(ops, model->numerics.act, model->config.channels, dy, &sum, 0,
                         batch->tokens, d_position);
    if (!gradient->accumulate && batch->tokens < model->config.context)
        ls_fill_zero(ops,
                     (size_t)((model->config.context - batch->tokens) * model->config.channels) *
                         sizeof(float),
                     d_position + batch->tokens * model->config.channels);
}

/* ---- the list of layers ---------------------------------------------------------------------- */

static int options_check(const struct ls_model_options *options, struct ls_error *error)
{
    const struct ls_model_config *config = options->config;
    const struct ls_numerics *numerics = options->numerics;
    if (options->tokens < 1 || options->tokens > config->context)
        return ls_error_set(error, LS_EINVAL,
                            "a sequence of %ld tokens does not fit the model's context of %ld",
                            (long)options->tokens, (long)config->context);
    if (config->head_dim % 8 || config->head_dim > 256)
        return ls_error_set(error, LS_EINVAL,
                            "heads are %ld wide: expected a multiple of 8, at most 256",
                            (long)config->head_dim);
    if (options->sequences < 1 || options->sequences % numerics->leaf_sequences)
        return ls_error_set(error, LS_EINVAL,
                            "a micro-batch of %ld sequences is not whole leaves of %ld",
                            (long)options->sequences, (long)numerics->leaf_sequences);
    if (numerics->seq_tiles > 1 &&
        (numerics->leaf_sequences != 1 || options->tokens % numerics->seq_tiles))
        return ls_error_set(error, LS_EINVAL,
                            "seq_tiles %ld needs leaf_sequences 1 (is %ld) and must divide the "
                            "sequence of %ld tokens",
                            (long)numerics->seq_tiles, (long)numerics->leaf_sequences,
                            (long)options->tokens);
    return LS_OK;
}

int ls_model_new(const struct ls_model_options *options, struct ls_arena *arena,
                 struct ls_model **out, struct ls_error *error)
{
    *out = NULL;
    int status = options_check(options, error);
    if (status)
        return status;
    struct ls_model *model = calloc(1, sizeof *model);
    size_t layers = (size_t)options->config->layers;
    if (model) {
        model->block_params = calloc(layers, sizeof *model->block_params);
        model->saved = calloc(layers, sizeof *model->saved);
    }
    if (!model || !model->block_params || !model->saved) {
        ls_model_free(model);
        return ls_error_set(error, LS_ENOMEM, "no memory for the model's tables");
    }
    model->options = *options;
    model->config = *options->config;
    model->numerics = *options->numerics;
    model->rows_max = options->sequences * options->tokens;
    const struct ls_model_config *config = &model->config;
    size_t stream = (size_t)(model->rows_max * config->channels) * model_act_bytes(model);
    model->embedded = ls_arena_take(arena, stream);
    for (size_t i = 0; i < layers; i++) {
        model_find_block(options->params, (int64_t)i, &model->block_params[i]);
        /* Without a backward, two sets of saved activations serve all blocks in turn. */
        if (options->training || i < 2)
            block_take(model, arena, &model->saved[i]);
        else
            model->saved[i] = model->saved[i & 1];
    }
    model->temporary = ls_arena_take(arena, stream);
    head_take(model, arena);
    if (options->training) {
        block_delta_take(model, arena);
        for (int i = 0; i < 2; i++)
            model->d_stream[i] = ls_arena_take(arena, stream);
        model->embedding_scratch.order =
            ls_arena_take(arena, (size_t)model->rows_max * sizeof(int32_t));
        model->embedding_scratch.start =
            ls_arena_take(arena, (size_t)(config->vocab_padded + 1) * sizeof(int32_t));
    }
    if (config->arch == LS_LLAMA) {
        size_t table = (size_t)(options->tokens * config->head_dim / 2) * sizeof(float);
        model->rope_cosine = ls_arena_take(arena, table);
        model->rope_sine = ls_arena_take(arena, table);
        if (model->rope_cosine)
            ls_rope_table(options->tokens, config->head_dim, config->rope_theta,
                          &config->rope_scaling, model->rope_cosine, model->rope_sine);
    }
    for (size_t i = 0; i < layers; i++)
        model->saved[i].x = i ? model->saved[i - 1].out : model->embedded;
    *out = model;
    return LS_OK;
}

void ls_model_free(struct ls_model *model)
{
    if (!model)
        return;
    free(model->block_params);
    free(model->saved);
    free(model);
}

int ls_model_layers(const struct ls_model *model)
{
    return (int)model->config.layers + 2;
}

int ls_layer_forward(struct ls_model *model, struct ls_ops *ops, int layer,
                     const struct ls_micro_batch *batch, const struct ls_gradient *gradient,
                     struct ls_error *error)
{
    LS_ASSERT(batch->sequences * batch->tokens <= model->rows_max);
    int blocks = (int)model->config.layers;
    if (layer == 0) {
        embedding_forward(model, ops, batch);
        return LS_OK;
    }
    if (layer <= blocks)
        return block_forward(model, ops, layer - 1, batch, error);
    return head_forward(model, ops, batch, model->saved[blocks - 1].out, gradient, error);
}

int ls_layer_backward_input(struct ls_model *model, struct ls_ops *ops, int layer,
                            const struct ls_micro_batch *batch, struct ls_error *error)
{
    int blocks = (int)model->config.layers;
    if (layer == 0)
        return LS_OK;
    void *dx = model->d_stream[layer & 1];
    if (layer <= blocks)
        return block_backward_input(model, ops, layer - 1, batch, model->d_stream[(layer + 1) & 1],
                                    dx, error);
    head_backward_input(model, ops, batch, model->saved[blocks - 1].out, dx);
    return LS_OK;
}

int ls_layer_backward_weight(struct ls_model *model, struct ls_ops *ops, int layer,
                             const struct ls_micro_batch *batch, const struct ls_gradient *gradient,
                             struct ls_error *error)
{
    int blocks = (int)model->config.layers;
    if (layer == 0)
        embedding_backward_weight(model, ops, batch, gradient);
    else if (layer <= blocks)
        return block_backward_weight(model, ops, layer - 1, batch, gradient, error);
    else
        head_backward_weight(model, ops, batch, model->saved[blocks - 1].out, gradient);
    return LS_OK;
}

void ls_layer_gradient_range(const struct ls_model *model, int layer, int64_t *begin, int64_t *end)
{
    const struct ls_params *params = model->options.params;
    *begin = layer == 0 ? 0 : params->gradient_elements;
    *end = params->gradient_elements;
    for (int i = params->count - 1; i >= 0; i--) {
        int64_t at = params->tied_elements + params->list[i].offset;
        if (layer > 0 && params->list[i].layer == layer)
            *begin = at;
        if (params->list[i].layer == layer + 1)
            *end = at;
    }
}

const float *ls_model_leaf_losses(const struct ls_model *model)
{
    return model->head.leaf_loss;
}

const void *ls_model_input_gradient(const struct ls_model *model, int layer)
{
    return model->d_stream[layer & 1];
}
