/* Each slice of the state as a distributed tensor, its name, and the copies computed with. */
#include "state/state_private.h"

#include <stdio.h>

void state_prefix(const struct ls_optim_config *optim, const struct ls_param *param, int array,
                  char prefix[STATE_PREFIX_BYTES])
{
    prefix[0] = '\0';
    if (array >= 0)
        snprintf(prefix, STATE_PREFIX_BYTES, "%s.",
                 ls_optimizer_state_name(optim, param->hidden, array));
}

int ls_state_tensor(const struct ls_state *state, int i, enum ls_dtype dtype, void *data,
                    struct ls_dtensor *out, struct ls_error *error)
{
    /* pp is the outermost axis. */
    struct ls_dtensor_spec spec = state->params->list[i].spec;
    spec.dtype = dtype;
    int64_t rank = ls_comm_rank(ls_state_world(state)) % ls_mesh_ranks(&spec.mesh);
    return ls_dtensor_init(out, &spec, rank, data, error);
}

int ls_state_publish(struct ls_state *state, struct ls_error *error)
{
    int status = ls_state_settle(state, error);
    if (!status)
        status = ls_slices_round(&state->optimizer, state->ops, state->slices, state->params->count,
                                 error);
    status = ls_comm_agree(ls_state_world(state), status, error);
    if (!status)
        status = ls_state_share(state, error);
    return status || !state->lender ? status : ls_state_settle(state, error);
}
