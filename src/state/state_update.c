/* A step of a unit of state, once its gradients are written: what the reductions made, its norm,
 * the update. */
#include <lockstep/state.h>

#include <math.h>

/* A tied table that the first and the last stage both hold: each gets the other's gradient. */
static int tied_exchange(struct ls_state *state, struct ls_error *error)
{
    const struct ls_params *params = state->params;
    int shared = params->shared_param;
    if (shared < 0 || params->list[shared].frozen)
        return LS_OK;
    const struct ls_param *table = &params->list[shared];
    const struct ls_zero_slice *slice = state->slices[shared].part;
    struct ls_comm *pp = state->groups[LS_GROUP_PP];
    int peer = params->units[table->unit].layer == 0 ? ls_layout_head_rank(state->layout) : 0;
    struct ls_request send = {0}, receive = {0};
    ls_comm_label(pp, table->name);
    int status = ls_recv_start(pp, state->gradient + slice->second, slice->count, LS_F32, peer,
                               LS_COMM_TAG_MAX, &receive, LS_HERE, error);
    if (!status)
        status = ls_send_start(pp, state->gradient + slice->gradient, slice->count, LS_F32, peer,
                               LS_COMM_TAG_MAX, &send, LS_HERE, error);
    if (!status)
        status = ls_wait(&receive, error);
    return status ? status : ls_wait(&send, error);
}

int ls_state_gradient(struct ls_state *state, struct ls_error *error)
{
    int status = ls_zero_gradient_finish(state->zero, state->ops, &state->gradient, NULL, error);
    return status ? status : tied_exchange(state, error);
}

int ls_state_square(struct ls_state *state, struct ls_error *error)
{
    ls_exact_clear(&state->squares);
    return ls_gradient_square(&state->optimizer, state->slices, state->params->count,
                              state->gradient, state->ops, &state->squares, error);
}

int ls_state_norm(struct ls_state *state, double *norm, struct ls_error *error)
{
    int status = ls_all_reduce_exact(state->groups[LS_GROUP_OWNERS], &state->squares, error);
    *norm = sqrt(ls_exact_value(&state->squares));
    return status;
}

int ls_state_update(struct ls_state *state, int64_t step, float lr, float gradient_scale,
                    struct ls_error *error)
{
    const struct ls_optim_step update = {step, lr, state->gradient, gradient_scale};
    return ls_optimizer_step(&state->optimizer, state->ops, state->slices, state->params->count,
                             &update, error);
}

int ls_state_settle(struct ls_state *state, struct ls_error *error)
{
    return ls_zero_settle(state->zero, state->ops, error);
}
