/* A step of a unit of state, once its gradients are written: what the reductions made, its norm,
 * the update. */
#include "state/state_private.h"

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
    const struct ls_layout *layout = state->layout;
    bool embeds = params->units[table->unit].layer == 0;
    int peer = embeds ? ls_layout_head_rank(layout) : layout->stage_rank[0];
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

/* A function of ZeRO for each set. */
static int sets_do(struct ls_state *state,
                   int (*call)(struct ls_zero *zero, struct ls_ops *ops, struct ls_error *error),
                   struct ls_error *error)
{
    int status = LS_OK;
    for (int set = 0; set < state->layout->set_count && !status; set++)
        if (state->zero[set])
            status = call(state->zero[set], state->ops, error);
    return status;
}

int ls_state_region_done(struct ls_state *state, int region, const struct ls_dp_micro *micro,
                         struct ls_error *error)
{
    struct ls_zero *zero = ls_state_region_zero(state, region);
    int status = ls_zero_gradient_done(zero, state->ops, region, micro, error);
    bool alone = state->layout->set_count == 1;
    return status || alone ? status : ls_zero_gradient_pass_on(zero, state->ops, error);
}

int ls_state_pass_on(struct ls_state *state, struct ls_error *error)
{
    return sets_do(state, ls_zero_gradient_pass_on, error);
}

int ls_state_gradient(struct ls_state *state, struct ls_error *error)
{
    int status = LS_OK;
    for (int set = 0; set < state->layout->set_count && !status; set++)
        status = ls_zero_gradient_finish(state->zero[set], state->ops, &state->gradient, error);
    return status ? status : tied_exchange(state, error);
}

/* Slices of one set that follow each other, at once. */
int ls_state_square(struct ls_state *state, struct ls_error *error)
{
    const struct ls_params *params = state->params;
    int status = LS_OK;
    for (int set = 0; set < LS_SETS_MAX; set++)
        ls_exact_clear(&state->squares[set]);
    for (int i = 0, end; i < params->count && !status; i = end) {
        int set = params->units[params->list[i].unit].set;
        for (end = i + 1; end < params->count; end++)
            if (params->units[params->list[end].unit].set != set)
                break;
        status = ls_gradient_square(&state->optimizer, &state->slices[i], end - i, state->gradient,
                                    state->ops, &state->squares[set], error);
    }
    return status;
}

int ls_state_norm(struct ls_state *state, double *norm, struct ls_error *error)
{
    int status = LS_OK;
    struct ls_exact_sum all;
    ls_exact_clear(&all);
    for (int set = 0; set < state->layout->set_count && !status; set++) {
        struct ls_comm *owners = state->groups[ls_set_group(set, LS_GROUP_OWNERS)];
        status = ls_all_reduce_exact(owners, &state->squares[set], error);
        ls_exact_merge(&all, &state->squares[set]);
    }
    *norm = sqrt(ls_exact_value(&all));
    return status;
}

int ls_state_update(struct ls_state *state, int64_t step, float lr, float gradient_scale,
                    struct ls_error *error)
{
    const struct ls_optim_step update = {step, lr, state->gradient, gradient_scale};
    state_copied(state);
    return ls_optimizer_step(&state->optimizer, state->ops, state->slices, state->params->count,
                             &update, error);
}

int ls_state_share(struct ls_state *state, struct ls_error *error)
{
    return sets_do(state, ls_zero_publish, error);
}

int ls_state_settle(struct ls_state *state, struct ls_error *error)
{
    return sets_do(state, ls_zero_settle, error);
}
