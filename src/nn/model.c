/* The list of layers: buffers, and who hands what to whom. What the backward of a layer reads is in
 * slots of its own, or, of layers that are offloaded, in a tier: that passes through a few buffers
 * on the device, written behind the forward, read ahead of the backward. */
#include "nn/step_attention.h"

#include <lockstep/device/swap.h>

#include <stdlib.h>

/* ---- where values of layers are -------------------------------------------------------------- */

/* While a layer is under work: its own, that of the layer whose output it reads, one that is being
 * read and one that is being written. */
enum { BUFFERS = 4 };

struct layer_slots {
    struct ls_swap swap; /* its blocks: [layers + 2, slots] */
    size_t *place;       /* of each block in the tier */
    size_t bytes;        /* of all buffers */
};

/* ---- places ---------------------------------------------------------------------------------- */

/* The outputs of a chunk's last layer are read while other layers are under work. */
static bool may_go(const struct ls_model *model, int index)
{
    return index > 0 && index <= model->config.layers && model_held(model, index) &&
           model->layers[index].kept_bytes > 0 && !model_chunk_last(model, index);
}

/* The first layers go: what they keep is kept longest. */
static int layers_choose(struct ls_model *model)
{
    const struct ls_model_options *options = &model->options;
    int all = 0, gone = 0;
    for (int i = 0; i < ls_model_layers(model); i++)
        all += may_go(model, i);
    for (int i = 0; i < ls_model_layers(model) && options->offload_room; i++)
        if (may_go(model, i) && (double)gone < options->offload_ratio * (double)all) {
            model->layers[i].away = true;
            gone++;
        }
    return gone;
}

static int away_take(struct ls_model *model, struct ls_arena *arena, struct ls_error *error)
{
    int layers = ls_model_layers(model), slots = model->options.slots;
    struct layer_slots *s = calloc(1, sizeof *s);
    model->slots = s;
    if (s)
        s->place = calloc((size_t)(layers * slots), sizeof *s->place);
    if (!s || !s->place)
        return ls_no_memory(error, "for the model's tables");
    size_t largest = 0, mark = arena->used;
    int blocks = 0;
    for (int i = 0; i < layers * slots; i++) {
        const struct layer *layer = &model->layers[i / slots];
        if (!layer->away)
            continue;
        s->place[i] = ls_tier_room_take(model->options.offload_room, layer->kept_bytes);
        blocks++;
        largest = layer->kept_bytes > largest ? layer->kept_bytes : largest;
    }
    ls_swap_init(&s->swap, model->options.offload_tier, (int)ls_min(BUFFERS, blocks), largest,
                 arena);
    s->bytes = arena->used - mark;
    return LS_OK;
}

/* What each layer keeps in each slot. Without a backward only what leaves a chunk is kept. */
static int slots_take(struct ls_model *model, struct ls_arena *arena, struct ls_error *error)
{
    int away = layers_choose(model);
    for (int i = 0; i < ls_model_layers(model); i++) {
        struct layer *layer = &model->layers[i];
        for (int slot = 0; layer->program && slot < model->options.slots; slot++) {
            if (!layer->away)
                layer->kept[slot] = ls_arena_take(arena, layer->kept_bytes);
            layer->held[slot] = ls_arena_take(arena, layer->held_bytes);
        }
    }
    return away > 0 ? away_take(model, arena, error) : LS_OK;
}

static void slots_release(struct ls_model *model)
{
    if (!model->slots)
        return;
    ls_swap_settle(&model->slots->swap, NULL);
    free(model->slots->place);
    free(model->slots);
    model->slots = NULL;
}

/* ---- walks ----------------------------------------------------------------------------------- */

static struct ls_swap_block block_of(const struct ls_model *model, int layer, int slot)
{
    int number = layer * model->options.slots + slot;
    return (struct ls_swap_block){number, model->slots->place[number],
                                  model->layers[layer].kept_bytes};
}

/* The layer's buffer; reads: with its values on their way there. */
static int buffer_get(struct ls_model *model, int layer, int slot, bool reads,
                      struct ls_swap_buffer **out, struct ls_error *error)
{
    struct ls_swap *swap = &model->slots->swap;
    const struct ls_swap_block block = block_of(model, layer, slot);
    int64_t other = ls_swap_find(swap, block.number) ? -1 : ls_swap_next(swap);
    int slots = model->options.slots;
    if (other >= 0)
        model->layers[other / slots].kept[other % slots] = NULL;
    int status = ls_swap_get(swap, &block, reads, out, error);
    if (!status)
        model->layers[layer].kept[slot] = (char *)(*out)->data;
    return status;
}

static bool is_away(const struct ls_model *model, int layer)
{
    return layer > 0 && model->layers[layer].away;
}

/* Backward only reads, while the forward's write may still move; but checks fill what has ended. */
static int buffer_need(struct ls_model *model, int layer, int slot, struct ls_error *error)
{
    struct ls_swap_buffer *buffer;
    if (!is_away(model, layer))
        return LS_OK;
    int status = buffer_get(model, layer, slot, true, &buffer, error);
    if (status)
        return status;
    return model->layers[layer].lives ? ls_swap_wait(buffer, error)
                                      : ls_swap_wait_read(buffer, error);
}

/* Before a walk: what the layer keeps, and the one below, whose output it reads, are on the device.
 * Behind a forward of training: what it keeps may go. Errors of the tier's disk. */
static int slots_enter(struct ls_model *model, int layer, enum phase phase, int slot,
                       struct ls_error *error)
{
    bool below = layer > 0 && !model_chunk_first(model, layer) && model_held(model, layer - 1);
    struct ls_swap_buffer *buffer;
    int status = LS_OK;
    if (!model->slots)
        return LS_OK;
    if (below)
        status = buffer_need(model, layer - 1, slot, error);
    if (!status && is_away(model, layer))
        status = phase == PHASE_FORWARD ? buffer_get(model, layer, slot, false, &buffer, error)
                                        : buffer_need(model, layer, slot, error);
    bool ahead = below && phase >= PHASE_INPUT && !model_chunk_first(model, layer - 1) &&
                 is_away(model, layer - 2);
    return status || !ahead ? status : buffer_get(model, layer - 2, slot, true, &buffer, error);
}

static int slots_leave(struct ls_model *model, int layer, int slot, struct ls_error *error)
{
    if (!model->slots || !is_away(model, layer))
        return LS_OK;
    struct ls_swap *swap = &model->slots->swap;
    const struct ls_swap_block block = block_of(model, layer, slot);
    return ls_swap_put(swap, ls_swap_find(swap, block.number), &block, error);
}

/* ---- what is admissible ---------------------------------------------------------------------- */

static int tokens_check(const struct ls_model *model, int64_t tokens, struct ls_error *error)
{
    const struct ls_numerics *n = &model->numerics;
    int64_t s = n->seq_tiles, cp = model->cp.size;
    if (tokens < 1 || tokens > model->config.context)
        return ls_error_set(error, LS_EINVAL,
                            "a sequence of %ld tokens does not fit the model's context of %ld",
                            (long)tokens, (long)model->config.context);
    int status = ls_cp_admits(cp, s, model->cp.method, error);
    if (status) {
        ls_error_prefix(error, "%ld context-parallel ranks", (long)cp);
        return status;
    }
    status = ls_seq_tiles_admit(s, tokens, n->leaf_sequences, error);
    if (status)
        ls_error_prefix(error, "seq_tiles %ld", (long)s);
    return status;
}

static int options_check(const struct ls_model *model, struct ls_error *error)
{
    const struct ls_model_options *options = &model->options;
    const struct ls_model_config *config = &model->config;
    const struct ls_numerics *numerics = &model->numerics;
    int status = tokens_check(model, options->tokens, error);
    if (status)
        return status;
    int sharers = ls_tp_sharers(model->tp.size, config->kv_heads);
    if (model->tp.sharers != sharers)
        return ls_error_set(error, LS_EINVAL, "%d ranks share each of %ld key/value heads, not %d",
                            sharers, (long)config->kv_heads, model->tp.sharers);
    if (config->head_dim % 8 || config->head_dim > 256)
        return ls_error_set(error, LS_EINVAL,
                            "heads are %ld wide: expected a multiple of 8, at most 256",
                            (long)config->head_dim);
    int64_t leaf = numerics->leaf_sequences;
    if (options->sequences < 1 || (options->sequences > leaf && options->sequences % leaf))
        return ls_error_set(error, LS_EINVAL,
                            "a micro-batch of %ld sequences is no part of a leaf of %ld, nor whole "
                            "leaves",
                            (long)options->sequences, (long)leaf);
    if (options->slots < 1)
        return ls_error_set(error, LS_EINVAL, "a model of %d slots: at least 1 is needed",
                            options->slots);
    struct ls_micro_batch batch = {.sequences = options->sequences, .tokens = options->tokens};
    struct rows rows = rows_of(model, &batch);
    return options->training ? model_units_check(model, &rows, error) : LS_OK;
}

/* ---- buffers --------------------------------------------------------------------------------- */

static void layer_constants(struct ls_model *model, const struct layer *layer,
                            struct ls_arena *arena)
{
    for (int i = 0; i < layer->step_count; i++)
        if (layer->steps[i].step->kind->constants)
            layer->steps[i].step->kind->constants(model, arena, &layer->steps[i]);
}

/* The layers held, planned, with tables for their slots. */
static int layers_new(struct ls_model *model, struct ls_error *error)
{
    size_t slots = (size_t)model->options.slots;
    model->layers = calloc((size_t)ls_model_layers(model), sizeof *model->layers);
    for (int i = 0; i < ls_model_layers(model) && model->layers; i++) {
        struct layer *layer = &model->layers[i];
        if (!model_held(model, i))
            continue;
        layer->kept = calloc(2 * slots, sizeof *layer->kept);
        layer->lives = model->options.check ? calloc(LIVES_MAX, sizeof *layer->lives) : NULL;
        if (!layer->kept || (model->options.check && !layer->lives))
            return ls_no_memory(error, "for the model's tables");
        layer->held = layer->kept + slots;
        layer_plan(model, i, layer);
    }
    return model->layers ? LS_OK : ls_no_memory(error, "for the model's tables");
}

/* Forward and backward are not under work at the same time: their buffers lie over each other. */
static void work_take(struct ls_model *model, struct ls_arena *arena)
{
    size_t work[2] = {0, 0}, end[2], mark = arena->used;
    int places = 0;
    for (int i = 0; i < ls_model_layers(model); i++) {
        const struct layer *layer = &model->layers[i];
        for (int half = 0; half < 2; half++)
            work[half] = (size_t)ls_max((int64_t)work[half], (int64_t)layer->work_bytes[half]);
        model->segment_bytes =
            (size_t)ls_max((int64_t)model->segment_bytes, (int64_t)layer->segment_bytes);
        places = (int)ls_max(places, layer->index - layer->segment_first + 1);
    }
    for (int i = 0; i < 2; i++)
        model->pass[i] = model_take(model, arena, model->stream_max, model->config.channels);
    model->work[0] = ls_arena_take(arena, work[0]);
    end[0] = arena->used;
    ls_arena_reset(arena, mark);
    if (model->options.training) {
        for (int i = 0; i < 2; i++)
            model->d_stream[i] =
                model_take(model, arena, model->stream_max, model->config.channels);
        model->segment = ls_arena_take(arena, (size_t)places * model->segment_bytes);
        model->work[1] = ls_arena_take(arena, work[1]);
    }
    end[1] = arena->used;
    if (end[0] > end[1])
        ls_arena_take(arena, end[0] - end[1]);
}

static int buffers_take(struct ls_model *model, struct ls_arena *arena, struct ls_error *error)
{
    size_t start = arena->used;
    for (int i = 0; i < ls_model_layers(model); i++)
        layer_constants(model, &model->layers[i], arena);
    model->table_bytes = arena->used - start;
    start = arena->used;
    int status = slots_take(model, arena, error);
    model->kept_bytes = arena->used - start;
    work_take(model, arena);
    return status;
}

static void slices_set(struct ls_model *model)
{
    const struct ls_model_options *options = &model->options;
    if (options->tp)
        model->tp = *options->tp;
    else
        ls_tp_init(&model->tp, NULL, NULL, false, 1);
    if (options->cp)
        model->cp = *options->cp;
    else
        ls_cp_init(&model->cp, NULL, LS_CP_ALL_GATHER);
    int64_t tp = model->tp.size;
    model->tiles = tiles_held(&model->numerics, tp);
    model->heads = model->config.heads / tp;
    model->kv_heads = ls_max(model->config.kv_heads / tp, 1);
    model->ffn = model->config.ffn / tp;
    model->rows_max = options->sequences * options->tokens / model->cp.size;
    model->rows_room = ls_tp_room(&model->tp, model->rows_max);
    model->stream_max = model->tp.sequence ? model->rows_room / tp : model->rows_room;
}

int ls_model_new(const struct ls_model_options *options, struct ls_arena *arena,
                 struct ls_model **out, struct ls_error *error)
{
    *out = NULL;
    struct ls_model *model = malloc(sizeof *model);
    if (!model)
        return ls_no_memory(error, "for the model's tables");
    *model = (struct ls_model){
        .options = *options, .config = *options->config, .numerics = *options->numerics};
    slices_set(model);
    int status = options_check(model, error);
    if (!status)
        status = layers_new(model, error);
    if (!status)
        status = buffers_take(model, arena, error);
    if (status) {
        ls_model_free(model);
        return status;
    }
    *out = model;
    return LS_OK;
}

void ls_model_free(struct ls_model *model)
{
    if (!model)
        return;
    slots_release(model);
    for (int i = 0; i < ls_model_layers(model) && model->layers; i++) {
        free(model->layers[i].kept);
        free(model->layers[i].lives);
    }
    free(model->layers);
    free(model);
}

int ls_model_layers(const struct ls_model *model)
{
    return (int)model->config.layers + 2;
}

const char *ls_layer_name(const struct ls_model_config *config, int64_t layer)
{
    return layer == 0 ? "embedding" : layer > config->layers ? "head" : "block";
}

size_t ls_model_kept_bytes(const struct ls_model *model)
{
    return model->kept_bytes;
}

size_t ls_model_passing_bytes(const struct ls_model *model)
{
    return model->slots ? model->slots->bytes : 0;
}

size_t ls_model_table_bytes(const struct ls_model *model)
{
    return model->table_bytes;
}

static size_t room_bytes(size_t bytes)
{
    struct ls_arena arena;
    ls_arena_measure(&arena);
    ls_arena_take(&arena, bytes);
    return arena.used;
}

void ls_model_layer_bytes(const struct ls_model *model, int index, struct ls_layer_bytes *out)
{
    const struct layer *layer = &model->layers[index];
    LS_ASSERT(model_held(model, index));
    size_t stream =
        room_bytes((size_t)(model->stream_max * model->config.channels) * model_act_bytes(model));
    bool passes = layer->value[layer->value_count - 1].room == ROOM_PASS;
    bool passed = index > 0 && !model_chunk_first(model, index) && model_held(model, index - 1) &&
                  !model->layers[index - 1].output_kept;
    *out = (struct ls_layer_bytes){
        .kept = layer->away ? 0 : room_bytes(layer->kept_bytes),
        .held = room_bytes(layer->held_bytes),
        .again = room_bytes(layer->segment_bytes),
        .forward = room_bytes(layer->work_bytes[0]) + stream * (size_t)(passes + passed),
        .backward = room_bytes(layer->work_bytes[1]),
    };
    if (model->options.training)
        out->backward += stream * (size_t)((index > 0) + !model_chunk_last(model, index));
}

int64_t ls_model_stream_rows(const struct ls_model *model, int64_t sequences, int64_t tokens)
{
    int64_t rows = sequences * tokens / model->cp.size;
    return model->tp.sequence ? ls_tp_room(&model->tp, rows) / model->tp.size : rows;
}

/* ---- layer by layer -------------------------------------------------------------------------- */

static int batch_check(const struct ls_model *model, int layer, const struct ls_micro_batch *batch,
                       struct ls_error *error)
{
    LS_ASSERT(layer >= 0 && layer < ls_model_layers(model) && model_held(model, layer));
    LS_ASSERT(batch->sequences * batch->tokens <= model->options.sequences * model->options.tokens);
    LS_ASSERT(batch->slot >= 0 && batch->slot < model->options.slots);
    LS_ASSERT(!batch->starts || model->options.documents);
    int status = tokens_check(model, batch->tokens, error);
    if (status || !batch->training)
        return status;
    struct rows rows = rows_of(model, batch);
    return model_units_check(model, &rows, error);
}

/* A walk with what the layer and the one below keep on the device. */
static int walk(struct ls_model *model, struct ls_ops *ops, int layer, enum phase phase,
                const struct ls_micro_batch *batch, const struct ls_gradient *gradient,
                struct ls_error *error)
{
    int status = slots_enter(model, layer, phase, batch->slot, error);
    return status ? status : layer_walk(model, ops, layer, phase, batch, gradient, error);
}

int ls_layer_forward(struct ls_model *model, struct ls_ops *ops, int layer,
                     const struct ls_micro_batch *batch, const struct ls_gradient *gradient,
                     struct ls_error *error)
{
    int status = batch_check(model, layer, batch, error);
    if (!status)
        status = walk(model, ops, layer, PHASE_FORWARD, batch, gradient, error);
    if (status || !batch->training)
        return status;
    return slots_leave(model, layer, batch->slot, error);
}

int ls_layer_again_first(const struct ls_model *model, int layer)
{
    const struct layer *l = &model->layers[layer];
    return l->recomputed && l->segment_last ? l->segment_first : layer + 1;
}

int ls_layer_forward_again(struct ls_model *model, struct ls_ops *ops, int layer,
                           const struct ls_micro_batch *batch, struct ls_error *error)
{
    return walk(model, ops, layer, PHASE_AGAIN, batch, NULL, error);
}

int ls_layer_backward_input(struct ls_model *model, struct ls_ops *ops, int layer,
                            const struct ls_micro_batch *batch, struct ls_error *error)
{
    return walk(model, ops, layer, PHASE_INPUT, batch, NULL, error);
}

int ls_layer_backward_weight(struct ls_model *model, struct ls_ops *ops, int layer,
                             const struct ls_micro_batch *batch, const struct ls_gradient *gradient,
                             struct ls_error *error)
{
    return walk(model, ops, layer, PHASE_WEIGHT, batch, gradient, error);
}

const float *ls_model_losses(const struct ls_model *model)
{
    return model->losses.sequences;
}

const float *ls_model_row_losses(const struct ls_model *model)
{
    return model->losses.rows;
}

const float *ls_model_likeliest(const struct ls_model *model)
{
    return model->losses.likeliest;
}

const float *ls_model_entropies(const struct ls_model *model)
{
    return model->losses.entropies;
}

const void *ls_model_input_gradient(const struct ls_model *model, int layer)
{
    return model->d_stream[layer & 1];
}
