/* Which rank writes what of a state: pure arithmetic, which every rank does alike. */
#include "state/state_private.h"

/* The ranks that hold the same part of a parameter, and which of them this one is. */
struct replicas {
    unsigned axes; /* of the mesh: its bits */
    int64_t count, index;
};

static struct replicas replicas_of(const struct ls_dtensor_spec *spec, int64_t mesh_rank)
{
    struct replicas of = {0, 1, 0};
    int64_t coordinate[LS_MESH_AXES_MAX];
    ls_mesh_coordinates(&spec->mesh, mesh_rank, coordinate);
    for (int axis = 0; axis < spec->mesh.axis_count; axis++)
        if (!ls_placement_cuts(spec->placement[axis])) {
            of.axes |= 1u << axis;
            of.index = of.index * spec->mesh.size[axis] + coordinate[axis];
            of.count *= spec->mesh.size[axis];
        }
    return of;
}

/* Whether this rank's stage writes a tied table: of the two that have one, the embedding's. */
static bool writes(const struct ls_params *params, int i)
{
    return i != params->shared_param || params->units[params->list[i].unit].layer == 0;
}

void ls_state_shares(const struct ls_params *params, int64_t rank,
                     const struct ls_optim_config *optim, int array, struct ls_state_rows *shares)
{
    /* By set and by axes over which parts are alike: elements of all such parameters, and of those
     * before the one at hand. */
    int64_t all[LS_SETS_MAX][1 << LS_MESH_AXES_MAX] = {{0}};
    int64_t before[LS_SETS_MAX][1 << LS_MESH_AXES_MAX] = {{0}};
    for (int turn = 0; turn < 2; turn++)
        for (int i = 0; i < params->count; i++) {
            const struct ls_param *param = &params->list[i];
            const struct ls_dtensor_spec *spec = &param->spec;
            int64_t shape[LS_DTENSOR_DIMS_MAX], at = rank % ls_mesh_ranks(&spec->mesh);
            int64_t count = ls_dtensor_local_shape(spec, at, shape);
            struct replicas of = replicas_of(spec, at);
            int set = params->units[param->unit].set;
            if (turn == 1)
                shares[i] = (struct ls_state_rows){0, 0};
            if (count == 0 || array >= ls_param_states(optim, param) || !writes(params, i))
                continue;
            if (turn == 0) {
                all[set][of.axes] += count;
                continue;
            }
            int64_t total = all[set][of.axes], *past = &before[set][of.axes];
            int64_t row = count / shape[0];
            int64_t first = total / of.count * of.index + total % of.count * of.index / of.count;
            int64_t last =
                total / of.count * (of.index + 1) + total % of.count * (of.index + 1) / of.count;
            first = ls_min(ls_max(first - *past, 0) / row, shape[0]);
            last = ls_min(ls_max(last - *past, 0) / row, shape[0]);
            shares[i] = (struct ls_state_rows){first, last - first};
            *past += count;
        }
}
