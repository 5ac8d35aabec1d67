/* Redistributes between all pairs of placements, and checks every element. */
#include "pairs.h"

#include <string.h>

bool pairs_has_partial(const struct ls_dtensor_spec *spec)
{
    for (int axis = 0; axis < spec->mesh.axis_count; axis++)
        if (spec->placement[axis].kind == LS_PARTIAL)
            return true;
    return false;
}

/* The value of the whole is `factor` times the index: what a Partial axis of n coordinates makes of
 * what cases_fill brings. */
static double factor_of(const struct ls_dtensor_spec *spec)
{
    double factor = 1;
    for (int axis = 0; axis < spec->mesh.axis_count; axis++) {
        double n = (double)spec->mesh.size[axis];
        const double sum_avg_max_min[] = {n * (n + 1) / 2, (n + 1) / 2, n, 1};
        if (spec->placement[axis].kind == LS_PARTIAL)
            factor *= sum_avg_max_min[spec->placement[axis].reduce];
    }
    return factor;
}

static int check_pair(const struct pairs *pairs, int i, int j, struct ls_mesh_comms *comms,
                      struct ls_error *error)
{
    struct ls_dtensor_spec from_spec = cases_spec(pairs->shape, pairs->mesh, pairs->placements[i]);
    struct ls_dtensor_spec to_spec = cases_spec(pairs->shape, pairs->mesh, pairs->placements[j]);
    struct ls_dtensor_spec whole_spec = to_spec;
    for (int axis = 0; axis < whole_spec.mesh.axis_count; axis++)
        whole_spec.placement[axis] = ls_replicate();
    struct ls_dtensor from = {0}, to = {0}, whole = {0};
    int status = ls_dtensor_init(&from, &from_spec, comms->rank, NULL, error);
    if (status == LS_OK)
        status = ls_dtensor_init(&to, &to_spec, comms->rank, NULL, error);
    if (status == LS_OK)
        status = ls_dtensor_init(&whole, &whole_spec, comms->rank, NULL, error);
    if (status == LS_OK) {
        cases_fill(&from);
        if (pairs->shift > 0 && comms->rank == 1)
            memmove(from.data, (float *)from.data + pairs->shift,
                    (size_t)(from.local_count - pairs->shift) * sizeof(float));
        status = ls_redistribute(&from, &to, comms, error);
    }
    if (status == LS_OK && !pairs_has_partial(&to_spec))
        status = cases_check(&to, factor_of(&from_spec), error);
    if (status == LS_OK)
        status = ls_full_tensor(&to, whole.data, comms, error);
    if (status == LS_OK)
        status = cases_check(&whole, factor_of(&from_spec), error);
    ls_dtensor_release(&whole);
    ls_dtensor_release(&to);
    ls_dtensor_release(&from);
    return status == LS_OK ? LS_OK
                           : ls_error_prefix(error, "%s on %s, %s to %s", pairs->shape, pairs->mesh,
                                             pairs->placements[i], pairs->placements[j]);
}

int pairs_body(struct ls_comm *comm, void *user, struct ls_error *error)
{
    const struct pairs *pairs = user;
    struct ls_mesh mesh;
    struct ls_mesh_comms comms = {0};
    cases_mesh(pairs->mesh, &mesh);
    int status = ls_mesh_comms_init(&comms, &mesh, comm, error);
    for (int i = 0; i < pairs->count && status == LS_OK; i++)
        for (int j = 0; j < pairs->count && status == LS_OK; j++)
            status = check_pair(pairs, i, j, &comms, error);
    ls_mesh_comms_release(&comms);
    return status;
}
