/* A rank's place in a layout that is run forward alone: its groups, its part of the model, and the
 * memory of its weights. */
#include "infer/infer_private.h"

#include <stdlib.h>

int model_place_open(struct model_place *place, struct ls_comm *world, struct ls_queue *queue,
                     struct ls_error *error)
{
    const struct ls_layout *layout = &place->layout;
    int64_t at[LS_AXES];
    size_t layers = (size_t)layout->model.layers + 2;
    int status = ls_groups_open(layout, world, queue, place->groups, error);
    if (status)
        return status;
    ls_layout_coordinates(layout, ls_comm_rank(world), at);
    ls_groups_parallel(layout, ls_comm_rank(world), place->groups, &place->tp, &place->cp);
    place->held = calloc(layers, sizeof *place->held);
    place->chunk_first = calloc(layers, sizeof *place->chunk_first);
    if (!place->held || !place->chunk_first)
        return ls_no_memory(error, "for a list of layers");
    ls_layout_layers(layout, at[LS_AXIS_PP], place->held, place->chunk_first);
    return ls_layout_params(layout, at[LS_AXIS_TP], place->held, &place->params, error);
}

struct ls_model_options model_place_part(const struct model_place *place)
{
    return (struct ls_model_options){.config = &place->layout.model,
                                     .numerics = &place->layout.numerics,
                                     .params = &place->params,
                                     .weights = place->weights.list,
                                     .tp = &place->tp,
                                     .cp = &place->cp,
                                     .layers = place->held,
                                     .chunk_first = place->chunk_first};
}

void model_place_release(struct model_place *place)
{
    held_weights_release(&place->weights);
    ls_params_release(&place->params);
    free(place->held);
    free(place->chunk_first);
}
