/* Holds a part of a model with its values and gradients. */
#include "held.h"

#include <stdio.h>
#include <stdlib.h>

static void check(int status, const struct ls_error *error)
{
    if (status == LS_OK)
        return;
    fprintf(stderr, "%s\n", error->text);
    abort();
}

static int64_t unit_place(const struct ls_params *params, int unit)
{
    int64_t place = 0;
    for (int i = 0; i < unit; i++)
        place += params->units[i].elements;
    return place;
}

static int64_t region_place(const struct ls_params *params, int region)
{
    int64_t place = 0;
    for (int i = 0; i < region; i++)
        place += params->regions[i].elements;
    return place;
}

void held_open(struct held *held, const struct ls_model_config *config,
               const struct ls_numerics *numerics, const struct ls_part *part)
{
    struct ls_error error = {0};
    *held = (struct held){0};
    check(ls_params_init(&held->params, config, numerics, part, &error), &error);
    const struct ls_params *params = &held->params;
    LS_ASSERT(params->unit_count <= HELD_UNITS_MAX);
    held->gradient_elements = region_place(params, params->region_count);
    held->values = calloc((size_t)params->elements, sizeof *held->values);
    held->gradient = calloc((size_t)held->gradient_elements, sizeof *held->gradient);
    held->act = numerics->act;
    if (held->act != LS_F32)
        held->compute = calloc((size_t)params->elements, sizeof *held->compute);
    LS_ASSERT(held->values && held->gradient);
    for (int i = 0; i < params->unit_count; i++) {
        int64_t place = unit_place(params, i);
        held->weights[i] =
            (struct ls_weights){.matrices = held->compute ? (const void *)(held->compute + place)
                                                          : (const void *)(held->values + place),
                                .vectors = held->values + place + params->units[i].matrix_elements};
    }
}

void held_close(struct held *held)
{
    free(held->values);
    free(held->compute);
    free(held->gradient);
    ls_params_release(&held->params);
}

int64_t held_place(const struct ls_params *params, const struct ls_param *param)
{
    return unit_place(params, param->unit) + param->offset;
}

float *held_values(const struct held *held, const struct ls_param *param)
{
    return held->values + held_place(&held->params, param);
}

float *held_gradient(const struct held *held, const struct ls_param *param)
{
    return held->gradient + region_place(&held->params, param->gradient.region) +
           param->gradient.offset;
}

float *held_table(const struct held *held)
{
    const struct ls_params *params = &held->params;
    const struct ls_param *table =
        params->tied_param < 0 ? NULL : &params->list[params->tied_param];
    if (!table || table->second.region < 0)
        return NULL;
    return held->gradient + region_place(params, table->second.region) + table->second.offset;
}

void held_publish(struct held *held, struct ls_ops *ops)
{
    if (held->compute)
        ls_cast_to_half(ops, held->act, held->params.elements, held->values, held->compute);
}

struct ls_gradient held_target(const struct held *held, int layer, bool forward, enum ls_onto onto)
{
    const struct ls_params *params = &held->params;
    int region = forward ? params->head_region : ls_params_region(params, layer);
    return (struct ls_gradient){.flat = region < 0 ? NULL
                                                   : held->gradient + region_place(params, region),
                                .table = layer == 0 ? held_table(held) : NULL,
                                .onto = onto};
}

void held_forward(const struct held *held, struct ls_model *model, struct ls_ops *ops, int first,
                  int end, const struct ls_micro_batch *batch, enum ls_onto onto)
{
    struct ls_error error = {0};
    for (int layer = first; layer < end; layer++) {
        struct ls_gradient target = held_target(held, layer, true, onto);
        check(ls_layer_forward(model, ops, layer, batch, &target, &error), &error);
    }
}

void held_backward(const struct held *held, struct ls_model *model, struct ls_ops *ops, int first,
                   int end, const struct ls_micro_batch *batch, enum ls_onto onto)
{
    struct ls_error error = {0};
    for (int layer = end - 1; layer >= first; layer--) {
        struct ls_gradient target = held_target(held, layer, false, onto);
        check(ls_layer_backward_input(model, ops, layer, batch, &error), &error);
        check(ls_layer_backward_weight(model, ops, layer, batch, &target, &error), &error);
    }
}
