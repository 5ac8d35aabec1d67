/* The whole model in one place, as generation and evaluation on one process read it. */
#include "trainer.h"

#include <stdlib.h>
#include <string.h>

static void weights_take(struct whole_model *whole, struct ls_arena *arena)
{
    for (int u = 0; u < whole->params.unit_count; u++) {
        const struct ls_unit *unit = &whole->params.units[u];
        size_t matrices = (size_t)unit->matrix_elements * ls_dtype_bytes(whole->act);
        size_t vectors = (size_t)(unit->elements - unit->matrix_elements) * sizeof(float);
        whole->weights[u].matrices = ls_arena_take(arena, matrices);
        whole->weights[u].vectors = ls_arena_take(arena, vectors);
    }
}

int whole_init(struct whole_model *whole, const struct ls_model_config *config,
               const struct ls_numerics *numerics, struct ls_error *error)
{
    *whole = (struct whole_model){.act = numerics->act};
    int status = ls_params_init(&whole->params, config, numerics, NULL, error);
    if (status)
        return status;
    whole->weights = calloc((size_t)whole->params.unit_count, sizeof *whole->weights);
    if (whole->weights) {
        struct ls_arena measure;
        ls_arena_measure(&measure);
        weights_take(whole, &measure);
        status = ls_arena_init(&whole->arena, measure.peak, error);
    } else {
        status = ls_error_set(error, LS_ENOMEM, "no memory for the weights of %d layers",
                              whole->params.unit_count);
    }
    if (!status)
        weights_take(whole, &whole->arena);
    else
        whole_release(whole);
    return status;
}

void whole_release(struct whole_model *whole)
{
    ls_arena_release(&whole->arena);
    free(whole->weights);
    ls_params_release(&whole->params);
    *whole = (struct whole_model){0};
}

void whole_set(struct whole_model *whole, struct ls_ops *ops, int i, const float *values)
{
    const struct ls_param *param = &whole->params.list[i];
    const struct ls_unit *unit = &whole->params.units[param->unit];
    struct ls_weights *weights = &whole->weights[param->unit];
    int64_t count = param->rows * param->cols;
    if (param->matrix && whole->act == LS_BF16) {
        ls_cast_f32_to_bf16(ops, count, values, (ls_bf16 *)weights->matrices + param->offset);
        return;
    }
    float *place = param->matrix
                       ? (float *)weights->matrices + param->offset
                       : (float *)weights->vectors + param->offset - unit->matrix_elements;
    memcpy(place, values, (size_t)count * sizeof *values);
}
