/* Weights of a finished run's model in the compute type, as evaluation and generation read them. */
#include "infer/infer_private.h"

#include <stdlib.h>

static bool is_int8(const struct held_weights *held, const struct ls_param *param)
{
    return held->quantize != LS_QUANTIZE_NONE && param->hidden;
}

/* Its values wait in the staging until they are all there. */
static bool is_quantised(const struct held_weights *held, const struct ls_param *param)
{
    return is_int8(held, param) || param->blocks;
}

/* A block's matrices are all int8 or none is; no other unit has scales. */
static void unit_take(struct held_weights *held, int u, struct ls_arena *arena)
{
    const struct ls_unit *unit = &held->params->units[u];
    struct ls_weights *weights = &held->list[u];
    bool int8 = held->quantize != LS_QUANTIZE_NONE && unit->scales > 0;
    size_t vectors = (size_t)(unit->elements - unit->matrix_elements) * sizeof(float);
    size_t elements = (size_t)unit->matrix_elements;
    if (int8) {
        weights->int8 = ls_arena_take(arena, elements);
        weights->int8_scales = ls_arena_take(arena, (size_t)unit->scales * sizeof(float));
        weights->int8_alone = held->quantize == LS_QUANTIZE_INT8_WEIGHTS;
    } else {
        weights->matrices = ls_arena_take(arena, elements * ls_dtype_bytes(held->act));
    }
    weights->vectors = ls_arena_take(arena, vectors);
}

static void weights_take(struct held_weights *held, const int *lent, struct ls_arena *arena)
{
    for (int u = 0; u < held->params->unit_count; u++)
        if (!lent || lent[u] < 0)
            unit_take(held, u, arena);
}

static int staging_open(struct held_weights *held, struct ls_error *error)
{
    int64_t most = 0;
    for (int i = 0; i < held->params->count; i++) {
        const struct ls_param *param = &held->params->list[i];
        if (is_quantised(held, param))
            most = ls_max(most, param->rows * param->cols);
    }
    if (most == 0)
        return LS_OK;
    held->staging = malloc((size_t)most * sizeof *held->staging);
    return held->staging ? LS_OK : ls_no_memory(error, "for a matrix of %ld elements", (long)most);
}

int held_weights_init(struct held_weights *held, const struct ls_params *params, enum ls_dtype act,
                      enum ls_quantize quantize, const int *lent, struct ls_error *error)
{
    struct ls_arena measure;
    for (int i = 0; i < params->count && quantize != LS_QUANTIZE_NONE; i++)
        if (params->list[i].adapts)
            return ls_error_set(error, LS_ECONFIG,
                                "a model with adapters is not quantised: export it, which merges "
                                "them, and take what is exported");
    *held = (struct held_weights){.params = params, .act = act, .quantize = quantize};
    held->list = calloc((size_t)params->unit_count + 1, sizeof *held->list);
    if (!held->list)
        return ls_no_memory(error, "for the weights of %d layers", params->unit_count);
    int status =
        lent ? LS_OK : staging_open(held, error); /* what comes from a model is quantised */
    ls_arena_measure(&measure);
    weights_take(held, lent, &measure);
    if (!status)
        status = ls_arena_init(&held->arena, measure.peak, error);
    if (!status)
        weights_take(held, lent, &held->arena);
    return status;
}

size_t held_weights_bytes(const struct ls_params *params, enum ls_dtype act, const int *lent)
{
    struct ls_arena measure;
    struct ls_weights *list = calloc((size_t)params->unit_count + 1, sizeof *list);
    struct held_weights held = {.params = params, .act = act, .list = list};
    ls_arena_measure(&measure);
    if (list)
        weights_take(&held, lent, &measure);
    free(list);
    return measure.peak;
}

void held_weights_release(struct held_weights *held)
{
    ls_arena_release(&held->arena);
    free(held->list);
    free(held->staging);
    *held = (struct held_weights){0};
}

void *held_weights_data(const struct held_weights *held, const struct ls_param *param)
{
    const struct ls_weights *weights = &held->list[param->unit];
    int64_t matrices = held->params->units[param->unit].matrix_elements;
    if (is_int8(held, param))
        return NULL;
    return param->matrix
               ? (char *)weights->matrices + (size_t)param->offset * ls_dtype_bytes(held->act)
               : (char *)weights->vectors + (size_t)(param->offset - matrices) * sizeof(float);
}

void held_weights_set(struct held_weights *held, struct ls_ops *ops, const struct ls_param *param,
                      int64_t first, int64_t count, const float *values)
{
    const struct ls_unit *unit = &held->params->units[param->unit];
    const struct ls_weights *weights = &held->list[param->unit];
    int64_t at = param->offset + first;
    if (param->matrix && !is_quantised(held, param) && held->act != LS_F32) {
        ls_cast_to_half(ops, held->act, count, values, (ls_half *)weights->matrices + at);
        return;
    }
    float *place = is_quantised(held, param) ? held->staging + first
                   : param->matrix           ? (float *)weights->matrices + at
                                   : (float *)weights->vectors + at - unit->matrix_elements;
    ls_copy(ops, (size_t)count * sizeof *values, values, place);
}

int held_weights_end(struct held_weights *held, struct ls_ops *ops, const struct ls_param *param,
                     struct ls_error *error)
{
    const struct ls_weights *weights = &held->list[param->unit];
    if (!is_quantised(held, param))
        return LS_OK;
    int status = param->blocks
                     ? ls_blocks_quantize(param->blocks, param->rows * param->cols, held->staging,
                                          (char *)weights->matrices +
                                              (size_t)param->offset * ls_dtype_bytes(held->act),
                                          error)
                     : ls_int8_quantize(ops, param->rows, param->cols, param->tiles, held->staging,
                                        (int8_t *)weights->int8 + param->offset,
                                        (float *)weights->int8_scales + param->first_scale, error);
    if (status)
        ls_error_prefix(error, "%.100s", param->name);
    return status;
}

const struct ls_word ls_quantizes[] = {{"none", LS_QUANTIZE_NONE},
                                       {"int8", LS_QUANTIZE_INT8},
                                       {"int8-weights", LS_QUANTIZE_INT8_WEIGHTS},
                                       {NULL, 0}};
