/* The list of layers: buffers, and who hands what to whom. */
#include "attention.h"

#include <stdlib.h>
#include <string.h>

/* ---- what is admissible -----------------------------------------------------------------------
 */

static int tokens_check(const struct ls_model *model, int64_t tokens, struct ls_error *error)
{
    const struct ls_numerics *n = &model->numerics;
    int64_t s = n->seq_tiles, cp = model->cp.size;
    if (tokens < 1 || tokens > model->config.context)
        return ls_error_set(error, LS_EINVAL,
                            "a sequence of %ld tokens does not fit the model's context of %ld",
                            (long)tokens, (long)model->config.context);
    if (attention_ring(model) && cp > RING_RANKS_MAX)
        return ls_error_set(error, LS_EINVAL,
                            "a ring of %ld context-parallel ranks: at most %d; gather instead",
                            (long)cp, RING_RANKS_MAX);
    if (s % cp)
        return ls_error_set(error, LS_EINVAL,
                            "%ld context-parallel ranks cannot share seq_tiles = %ld tiles",
                            (long)cp, (long)s);
    if (s > 1 && (n->leaf_sequences != 1 || tokens % (2 * s * LS_ATTENTION_BLOCK)))
        return ls_error_set(error, LS_EINVAL,
                            "seq_tiles %ld needs leaf_sequences 1 (is %ld) and sequences of a "
                            "multiple of %ld tokens (are %ld)",
                            (long)s, (long)n->leaf_sequences, (long)(2 * s * LS_ATTENTION_BLOCK),
                            (long)tokens);
    return LS_OK;
}

/* Where ranks share a key/value head, each brings a subtree of the group's query heads, and as much
 * of each tile of the head's rows. */
static int sharers_check(const struct ls_model *model, struct ls_error *error)
{
    const struct ls_model_config *c = &model->config;
    int64_t tp = model->tp.size, sharers = ls_tp_sharers(tp, c->kv_heads), heads = c->heads / tp;
    if (model->tp.sharers != sharers)
        return ls_error_set(error, LS_EINVAL,
                            "%ld ranks share each of %ld key/value heads, not %d: see ls_tp_init",
                            (long)sharers, (long)c->kv_heads, model->tp.sharers);
    bool subtree = model->numerics.fast || ls_is_pow2(heads);
    if (sharers > 1 && (!subtree || c->head_dim % sharers))
        return ls_error_set(error, LS_EINVAL,
                            "%ld tensor-parallel ranks and %ld key/value heads: each rank has %ld "
                            "query heads of width %ld; expected a power of two of heads, and a "
                            "width that %ld ranks can share",
                            (long)tp, (long)c->kv_heads, (long)heads, (long)c->head_dim,
                            (long)sharers);
    return LS_OK;
}

static int options_check(const struct ls_model *model, struct ls_error *error)
{
    const struct ls_model_options *options = &model->options;
    const struct ls_model_config *config = &model->config;
    const struct ls_numerics *numerics = &model->numerics;
    int status = tokens_check(model, options->tokens, error);
    if (!status)
        status = sharers_check(model, error);
    if (status)
        return status;
    if (config->head_dim % 8 || config->head_dim > 256)
        return ls_error_set(error, LS_EINVAL,
                            "heads are %ld wide: expected a multiple of 8, at most 256",
                            (long)config->head_dim);
    if (options->sequences < 1 || options->sequences % numerics->leaf_sequences)
        return ls_error_set(error, LS_EINVAL,
                            "a micro-batch of %ld sequences is not whole leaves of %ld",
                            (long)options->sequences, (long)numerics->leaf_sequences);
    if (options->slots < 1)
        return ls_error_set(error, LS_EINVAL, "a model of %d slots: at least 1 is needed",
                            options->slots);
    struct ls_micro_batch batch = {.sequences = options->sequences, .tokens = options->tokens};
    struct rows rows = rows_of(model, &batch);
    return options->training ? model_units_check(model, &rows, error) : LS_OK;
}

/* ---- buffers ----------------------------------------------------------------------------------
 */

/* The tables of pointers, which are not part of the arena. */
static int tables_new(struct ls_model *model, struct ls_error *error)
{
    size_t blocks = (size_t)model->config.layers, slots = (size_t)model->options.slots;
    size_t deltas = model->options.split_backward ? blocks * slots : 1;
    model->block_params = calloc(blocks, sizeof *model->block_params);
    model->saved = calloc(blocks * slots, sizeof *model->saved);
    model->deltas = calloc(deltas, sizeof *model->deltas);
    model->head.saved = calloc(slots, sizeof *model->head.saved);
    model->embedding.out = calloc(slots, sizeof *model->embedding.out);
    model->embedding.dy = calloc(slots, sizeof *model->embedding.dy);
    model->embedding.dy_store = calloc(slots, sizeof *model->embedding.dy_store);
    if (!model->block_params || !model->saved || !model->deltas || !model->head.saved ||
        !model->embedding.out || !model->embedding.dy || !model->embedding.dy_store)
        return ls_error_set(error, LS_ENOMEM, "no memory for the model's tables");
    return LS_OK;
}

/* The nth held block's saved activations in every slot. Without a backward, two sets serve all
 * blocks and slots in turn; but what leaves a chunk is kept. */
static void block_slots_take(struct ls_model *model, struct ls_arena *arena, int64_t block, int nth,
                             struct block_saved set[2])
{
    bool training = model->options.training;
    if (!training && nth < 2)
        block_take(model, arena, &set[nth]);
    for (int slot = 0; slot < model->options.slots; slot++) {
        struct block_saved *saved = block_saved_of(model, block, slot);
        if (training)
            block_take(model, arena, saved);
        else
            *saved = set[nth & 1];
        if (!training && model_chunk_last(model, block + 1))
            saved->out = model_take(model, arena, model->stream_max, model->config.channels);
    }
}

static void rope_take(struct ls_model *model, struct ls_arena *arena)
{
    const struct ls_model_config *c = &model->config;
    if (c->arch != LS_LLAMA)
        return;
    size_t bytes = (size_t)(model->options.tokens * c->head_dim / 2) * sizeof(float);
    model->rope_cosine = ls_arena_take(arena, bytes);
    model->rope_sine = ls_arena_take(arena, bytes);
    if (model->rope_cosine)
        ls_rope_table(model->options.tokens, c->head_dim, c->rope_theta, &c->rope_scaling,
                      model->rope_cosine, model->rope_sine);
}

static void blocks_take(struct ls_model *model, struct ls_arena *arena)
{
    const struct ls_model_options *options = &model->options;
    const struct block_delta *shared = NULL;
    struct block_saved set[2];
    int held = 0;
    for (int64_t i = 0; i < model->config.layers; i++) {
        if (!model_held(model, i + 1))
            continue;
        model_find_block(options->params, i, &model->block_params[i]);
        block_slots_take(model, arena, i, held++, set);
        for (int slot = 0; options->training && slot < options->slots; slot++) {
            struct block_delta *delta = &model->deltas[0];
            if (options->split_backward)
                delta = &model->deltas[i * options->slots + slot];
            else if (shared)
                break;
            block_delta_take(model, arena, delta, shared);
            shared = shared ? shared : delta;
        }
    }
    if (held == 0)
        return;
    attention_take(model, arena);
    rope_take(model, arena);
}

/* What ranks that share rows exchange. */
static void exchange_take(struct ls_model *model, struct ls_arena *arena)
{
    int64_t channels = model->config.channels, rows = model->rows_room;
    if (model->tp.size == 1)
        return;
    model->scratch.partial = ls_arena_take(arena, (size_t)(rows * channels) * sizeof(float));
    model->scratch.sum =
        ls_arena_take(arena, (size_t)(rows / model->tp.size * channels) * sizeof(float));
    if (!model->tp.sequence)
        return;
    model->gathered = model_take(model, arena, rows, channels);
    if (model->tp.chunks > 1)
        model->scratch.staging = model_take(model, arena, rows, channels);
    struct ls_micro_batch batch = {.sequences = model->options.sequences,
                                   .tokens = model->options.tokens};
    int64_t units = model->numerics.fast ? 1 : rows_of(model, &batch).units;
    if (model->options.training)
        model->vectors = ls_arena_take(arena, (size_t)(units * 4 * channels) * sizeof(float));
}

static void buffers_take(struct ls_model *model, struct ls_arena *arena)
{
    int64_t channels = model->config.channels;
    exchange_take(model, arena);
    model->temporary = model_take(model, arena, model->stream_max, channels);
    if (model->options.training)
        for (int i = 0; i < 2; i++)
            model->d_stream[i] = model_take(model, arena, model->stream_max, channels);
    if (model_held(model, 0))
        embedding_take(model, arena);
    blocks_take(model, arena);
    if (model_held(model, model->config.layers + 1))
        head_take(model, arena);
}

static void slices_set(struct ls_model *model)
{
    const struct ls_model_options *options = &model->options;
    if (options->tp)
        model->tp = *options->tp;
    else
        ls_tp_init(&model->tp, NULL, false, 1, 1, NULL);
    if (options->cp)
        model->cp = *options->cp;
    else
        ls_cp_init(&model->cp, NULL, LS_CP_ALL_GATHER);
    int64_t tp = model->tp.size;
    model->tiles = model->numerics.fast ? 1 : model->numerics.tp_tiles / tp;
    model->heads = model->config.heads / tp;
    model->kv_heads = ls_max(model->config.kv_heads / tp, 1);
    model->ffn = model->config.ffn / tp;
    model->rows_max = options->sequences * options->tokens / model->cp.size;
    model->rows_room = ls_tp_room(&model->tp, model->rows_max);
    model->stream_max = model->tp.sequence ? model->rows_room / tp : model->rows_room;
}

void model_init(struct ls_model *model, const struct ls_model_options *options)
{
    *model = (struct ls_model){
        .options = *options, .config = *options->config, .numerics = *options->numerics};
    slices_set(model);
}

int ls_model_new(const struct ls_model_options *options, struct ls_arena *arena,
                 struct ls_model **out, struct ls_error *error)
{
    *out = NULL;
    struct ls_model *model = malloc(sizeof *model);
    if (!model)
        return ls_error_set(error, LS_ENOMEM, "no memory for the model's tables");
    model_init(model, options);
    int status = options_check(model, error);
    if (!status)
        status = tables_new(model, error);
    if (status) {
        ls_model_free(model);
        return status;
    }
    buffers_take(model, arena);
    *out = model;
    return LS_OK;
}

void ls_model_free(struct ls_model *model)
{
    if (!model)
        return;
    free(model->block_params);
    free(model->saved);
    free(model->deltas);
    free(model->head.saved);
    free(model->embedding.out);
    free(model->embedding.dy);
    free(model->embedding.dy_store);
    free(model);
}

int ls_model_layers(const struct ls_model *model)
{
    return (int)model->config.layers + 2;
}

int64_t ls_model_stream_rows(const struct ls_model *model, int64_t sequences, int64_t tokens)
{
    int64_t rows = sequences * tokens / model->cp.size;
    return model->tp.sequence ? ls_tp_room(&model->tp, rows) / model->tp.size : rows;
}

/* ---- layer by layer ---------------------------------------------------------------------------
 */

static int batch_check(const struct ls_model *model, int layer, const struct ls_micro_batch *batch,
                       struct ls_error *error)
{
    LS_ASSERT(layer >= 0 && layer < ls_model_layers(model) && model_held(model, layer));
    LS_ASSERT(batch->sequences * batch->tokens <= model->options.sequences * model->options.tokens);
    LS_ASSERT(batch->slot >= 0 && batch->slot < model->options.slots);
    int status = tokens_check(model, batch->tokens, error);
    if (status || !batch->training)
        return status;
    struct rows rows = rows_of(model, batch);
    return model_units_check(model, &rows, error);
}

/* Layer's input: what the layer below made, or what came from another chunk. */
static const void *input_of(const struct ls_model *model, int layer,
                            const struct ls_micro_batch *batch)
{
    return model_chunk_first(model, layer) ? batch->input
                                           : ls_model_output(model, layer - 1, batch->slot);
}

static const void *output_gradient_of(const struct ls_model *model, int layer,
                                      const struct ls_micro_batch *batch)
{
    return model_chunk_last(model, layer) ? batch->d_output : model->d_stream[(layer + 1) & 1];
}

int ls_layer_forward(struct ls_model *model, struct ls_ops *ops, int layer,
                     const struct ls_micro_batch *batch, const struct ls_gradient *gradient,
                     struct ls_error *error)
{
    int status = batch_check(model, layer, batch, error);
    if (status)
        return status;
    if (layer == 0)
        return embedding_forward(model, ops, batch, error);
    const void *x = input_of(model, layer, batch);
    if (layer <= model->config.layers)
        return block_forward(model, ops, layer - 1, batch, x, error);
    return head_forward(model, ops, batch, x, gradient, error);
}

int ls_layer_backward_input(struct ls_model *model, struct ls_ops *ops, int layer,
                            const struct ls_micro_batch *batch, struct ls_error *error)
{
    if (layer > model->config.layers) {
        head_backward_input(model, ops, batch, model->d_stream[layer & 1]);
        return LS_OK;
    }
    const void *dy = output_gradient_of(model, layer, batch);
    if (layer > 0)
        return block_backward_input(model, ops, layer - 1, batch, dy, model->d_stream[layer & 1],
                                    error);
    embedding_backward_input(model, ops, batch, dy);
    return LS_OK;
}

int ls_layer_backward_weight(struct ls_model *model, struct ls_ops *ops, int layer,
                             const struct ls_micro_batch *batch, const struct ls_gradient *gradient,
                             struct ls_error *error)
{
    if (layer == 0)
        return embedding_backward_weight(model, ops, batch, gradient, error);
    if (layer <= model->config.layers)
        return block_backward_weight(model, ops, layer - 1, batch, gradient, error);
    return head_backward_weight(model, ops, batch, gradient, error);
}

const void *ls_model_output(const struct ls_model *model, int layer, int slot)
{
    return layer == 0 ? model->embedding.out[slot] : block_saved_of(model, layer - 1, slot)->out;
}

const float *ls_model_leaf_losses(const struct ls_model *model)
{
    return model->head.leaf_loss;
}

const void *ls_model_input_gradient(const struct ls_model *model, int layer)
{
    return model->d_stream[layer & 1];
}
