/* Each slice of the state as a distributed tensor. */
#include "state_private.h"

int ls_state_tensor(const struct ls_state *state, int i, float *data, struct ls_dtensor *out,
                    struct ls_error *error)
{
    /* pp is the outermost axis. */
    const struct ls_dtensor_spec *spec = &state->params->list[i].spec;
    int64_t rank = ls_comm_rank(ls_state_world(state)) % ls_mesh_ranks(&spec->mesh);
    int status = ls_dtensor_init(out, spec, rank, data, error);
    LS_ASSERT(status || out->local_count == ls_zero_slices(state->zero)[i].count);
    return status;
}

int ls_state_slice(const struct ls_state *state, int i, float *array, struct ls_dtensor *out,
                   struct ls_error *error)
{
    return ls_state_tensor(state, i, array + ls_zero_slices(state->zero)[i].offset, out, error);
}
