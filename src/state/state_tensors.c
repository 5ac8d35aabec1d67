/* Each slice of the state as a distributed tensor. */
#include "state_private.h"

int ls_state_tensor(const struct ls_state *state, int i, enum ls_dtype dtype, void *data,
                    struct ls_dtensor *out, struct ls_error *error)
{
    /* pp is the outermost axis. */
    struct ls_dtensor_spec spec = state->params->list[i].spec;
    spec.dtype = dtype;
    int64_t rank = ls_comm_rank(ls_state_world(state)) % ls_mesh_ranks(&spec.mesh);
    int status = ls_dtensor_init(out, &spec, rank, data, error);
    LS_ASSERT(status || out->local_count == ls_zero_slices(state->zero)[i].count);
    return status;
}

int ls_state_slice(const struct ls_state *state, int i, int array, struct ls_dtensor *out,
                   struct ls_error *error)
{
    enum ls_dtype dtype = ls_state_type(state, array);
    size_t offset = (size_t)ls_zero_slices(state->zero)[i].offset * ls_dtype_bytes(dtype);
    return ls_state_tensor(state, i, dtype, (char *)ls_state_array(state, array) + offset, out,
                           error);
}
