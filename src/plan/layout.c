/* Who is where in a layout, and holds what. */
#include "plan/plan_private.h"

#include <lockstep/parallel/context.h>

#include <stdlib.h>

const char *ls_axis_name(enum ls_layout_axis axis)
{
    static const char *const names[LS_AXES] = {"pp", "dp_replicate", "dp_shard", "cp", "tp"};
    return names[axis];
}

void ls_layout_coordinates(const struct ls_layout *layout, int64_t rank,
                           int64_t coordinates[LS_AXES])
{
    LS_ASSERT(rank >= 0 && rank < layout->ranks);
    for (int axis = LS_AXES - 1; axis >= 0; axis--) {
        coordinates[axis] = rank % layout->size[axis];
        rank /= layout->size[axis];
    }
}

int64_t ls_layout_rank(const struct ls_layout *layout, const int64_t coordinates[LS_AXES])
{
    int64_t rank = 0;
    for (int axis = 0; axis < LS_AXES; axis++) {
        LS_ASSERT(coordinates[axis] >= 0 && coordinates[axis] < layout->size[axis]);
        rank = rank * layout->size[axis] + coordinates[axis];
    }
    return rank;
}

void ls_layout_layers(const struct ls_layout *layout, int64_t pp_rank, bool *held,
                      bool *first_of_chunk)
{
    for (int64_t l = 0; l < layout->model.layers + 2; l++) {
        held[l] = false;
        if (first_of_chunk)
            first_of_chunk[l] = false;
    }
    for (int64_t chunk = 0; chunk < layout->chunks; chunk++) {
        int stage = layout->rank_stage[pp_rank * layout->chunks + chunk];
        int first = layout->stage_first[stage];
        for (int l = first; l < layout->stage_first[stage + 1]; l++)
            held[l] = true;
        if (first_of_chunk && first > 0)
            first_of_chunk[first] = true;
    }
}

/* ---- who holds what -------------------------------------------------------------------------- */

/* Over the mesh of its set, from what tp gave to a rank: dim 0, dim 1 or nothing, in equal
 * parts. */
static int spec_make(const void *of, int set, struct ls_param *param, struct ls_error *error)
{
    const struct ls_layout *layout = of;
    bool rows = param->rows < param->global_rows, cols = param->cols < param->global_cols;
    int dim = cols && param->matrix ? 1 : 0;
    int64_t parts = rows   ? param->global_rows / param->rows
                    : cols ? param->global_cols / param->cols
                           : 1;
    bool cut = parts > 1, shared = parts < layout->size[LS_AXIS_TP];
    const struct ls_placement placements[] = {
        ls_replicate(),
        layout->zero == 0 ? ls_replicate()
        : cut && dim == 0 ? ls_strided_shard(0, parts)
                          : ls_shard(0),
        cut ? ls_shard(dim) : ls_replicate(),
        cut && !shared ? ls_shard(dim) : ls_replicate(),
    };
    const int64_t matrix[2] = {param->global_rows, param->global_cols};
    return ls_dtensor_spec_init(&param->spec, LS_F32, param->matrix ? 2 : 1,
                                param->matrix ? matrix : &param->global_cols,
                                &layout->sets[set].mesh, placements, error);
}

int ls_layout_params(const struct ls_layout *layout, int64_t tp_rank, const bool *layers,
                     struct ls_params *params, struct ls_error *error)
{
    const struct ls_part part = {.tp = layout->size[LS_AXIS_TP],
                                 .tp_rank = tp_rank,
                                 .layers = layers,
                                 .layer_set = layout->layer_set,
                                 .spec = spec_make,
                                 .layout = layout};
    return ls_params_init(params, &layout->model, &layout->numerics, &part, error);
}

int ls_layout_segments(const struct ls_layout *layout, int64_t cp_rank,
                       struct ls_token_segment **segments, int *count, struct ls_error *error)
{
    int64_t tiles = layout->numerics.seq_tiles, cp = layout->size[LS_AXIS_CP];
    *count = ls_segments(tiles, cp);
    *segments = calloc((size_t)*count, sizeof **segments);
    if (!*segments)
        return ls_no_memory(error, "for a list of segments");
    for (int i = 0; i < *count; i++)
        ls_segment(tiles, cp, cp_rank, layout->sequence, i, &(*segments)[i].first,
                   &(*segments)[i].count);
    return LS_OK;
}
