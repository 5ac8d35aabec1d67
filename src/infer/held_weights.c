/* Weights of a finished run's model, in the compute type, as evaluation and generation read them.
 */
#include "infer_private.h"

#include <stdlib.h>
#include <string.h>

static void weights_take(struct held_weights *held, struct ls_arena *arena)
{
    for (int u = 0; u < held->params->unit_count; u++) {
        const struct ls_unit *unit = &held->params->units[u];
        size_t matrices = (size_t)unit->matrix_elements * ls_dtype_bytes(held->act);
        size_t vectors = (size_t)(unit->elements - unit->matrix_elements) * sizeof(float);
        held->list[u].matrices = ls_arena_take(arena, matrices);
        held->list[u].vectors = ls_arena_take(arena, vectors);
    }
}

int held_weights_init(struct held_weights *held, const struct ls_params *params, enum ls_dtype act,
                      struct ls_error *error)
{
    struct ls_arena measure;
    *held = (struct held_weights){.params = params, .act = act};
    held->list = calloc((size_t)params->unit_count + 1, sizeof *held->list);
    if (!held->list)
        return ls_error_set(error, LS_ENOMEM, "no memory for the weights of %d layers",
                            params->unit_count);
    ls_arena_measure(&measure);
    weights_take(held, &measure);
    int status = ls_arena_init(&held->arena, measure.peak, error);
    if (!status)
        weights_take(held, &held->arena);
    return status;
}

void held_weights_release(struct held_weights *held)
{
    ls_arena_release(&held->arena);
    free(held->list);
    *held = (struct held_weights){0};
}

void held_weights_set(struct held_weights *held, struct ls_ops *ops, const struct ls_param *param,
                      int64_t first, int64_t count, const float *values)
{
    const struct ls_unit *unit = &held->params->units[param->unit];
    const struct ls_weights *weights = &held->list[param->unit];
    int64_t at = param->offset + first;
    if (param->matrix && held->act != LS_F32) {
        ls_cast_to_half(ops, held->act, count, values, (ls_half *)weights->matrices + at);
        return;
    }
    float *place = param->matrix ? (float *)weights->matrices + at
                                 : (float *)weights->vectors + at - unit->matrix_elements;
    ls_copy(ops, (size_t)count * sizeof *values, values, place);
}
