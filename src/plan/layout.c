/* Who is where in a layout. */
#include "plan.h"

const char *ls_axis_name(enum ls_layout_axis axis)
{
    static const char *const names[LS_AXES] = {"pp", "dp_replicate", "dp_shard", "cp", "tp"};
    return names[axis];
}

void ls_layout_mesh(const struct ls_layout *layout, struct ls_mesh *mesh)
{
    const char *names[LS_AXES];
    for (int axis = 0; axis < LS_AXES; axis++)
        names[axis] = ls_axis_name((enum ls_layout_axis)axis);
    int status = ls_mesh_init(mesh, LS_AXES, names, layout->size, NULL);
    LS_ASSERT(status == LS_OK);
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
