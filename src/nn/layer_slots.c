/* Where layers keep what their backward reads: in slots of their own, or, for layers that are
 * offloaded, in a tier. Those pass through a few buffers on the device: written behind the forward,
 * read ahead of the backward. */
#include "nn/model.h"

#include <lockstep/device/swap.h>

#include <stdlib.h>

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
        return ls_error_set(error, LS_ENOMEM, "no memory for the model's tables");
    size_t largest = 0, mark = arena->used;
    for (int i = 0; i < layers * slots; i++) {
        const struct layer *layer = &model->layers[i / slots];
        if (!layer->away)
            continue;
        s->place[i] = ls_tier_room_take(model->options.offload_room, layer->kept_bytes);
        largest = layer->kept_bytes > largest ? layer->kept_bytes : largest;
    }
    ls_swap_init(&s->swap, model->options.offload_tier, BUFFERS, largest, arena);
    s->bytes = arena->used - mark;
    return LS_OK;
}

int slots_take(struct ls_model *model, struct ls_arena *arena, struct ls_error *error)
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

void slots_release(struct ls_model *model)
{
    if (!model->slots)
        return;
    ls_swap_settle(&model->slots->swap, NULL);
    free(model->slots->place);
    free(model->slots);
    model->slots = NULL;
}

size_t slots_device_bytes(const struct ls_model *model)
{
    return model->slots ? model->slots->bytes : 0;
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

int slots_enter(struct ls_model *model, int layer, enum phase phase, int slot,
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

int slots_leave(struct ls_model *model, int layer, int slot, struct ls_error *error)
{
    if (!model->slots || !is_away(model, layer))
        return LS_OK;
    struct ls_swap *swap = &model->slots->swap;
    const struct ls_swap_block block = block_of(model, layer, slot);
    return ls_swap_put(swap, ls_swap_find(swap, block.number), &block, error);
}
