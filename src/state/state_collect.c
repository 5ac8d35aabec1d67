/* The state of a run, spread over ranks: a whole tensor from its parts. */
#include "state_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void state_prefix(const struct ls_optim_config *optim, const struct ls_param *param, int array,
                  char prefix[STATE_PREFIX_BYTES])
{
    prefix[0] = '\0';
    if (array >= 0)
        snprintf(prefix, STATE_PREFIX_BYTES, "%s.",
                 ls_optimizer_state_name(optim, param->hidden, array));
}

int64_t ls_state_largest(const struct ls_params *all)
{
    int64_t largest = 0;
    for (int i = 0; i < all->count; i++)
        largest = ls_max(largest, ls_dtensor_count(&all->list[i].spec));
    return largest;
}

/* ---- a whole tensor on rank 0 ---------------------------------------------------------------- */

/* Of the ranks that hold the same elements the first one sends them. */
static bool sends(const struct ls_dtensor_spec *spec, int64_t rank)
{
    int64_t coordinate[LS_MESH_AXES_MAX];
    ls_mesh_coordinates(&spec->mesh, rank, coordinate);
    for (int axis = 0; axis < spec->mesh.axis_count; axis++)
        if (spec->placement[axis].kind == LS_REPLICATE && coordinate[axis] > 0)
            return false;
    return ls_dtensor_local_shape(spec, rank, NULL) > 0;
}

static int part_send(const struct ls_state *state, const struct ls_dtensor *part,
                     struct ls_error *error)
{
    enum ls_dtype dtype = part->spec.dtype;
    const char *data = part->data;
    int status = LS_OK;
    for (int64_t at = 0; at < part->local_count && !status; at += LS_STATE_MESSAGE)
        status = ls_send(ls_state_world(state), data + (size_t)at * ls_dtype_bytes(dtype),
                         ls_min(LS_STATE_MESSAGE, part->local_count - at), dtype, 0, 0, error);
    return status;
}

/* What rank 0 waits for, where the part could not be read: zeros, which it will not keep. */
static void nothing_send(const struct ls_state *state, const struct ls_dtensor_spec *spec,
                         int64_t rank)
{
    void *zeros = calloc(LS_STATE_MESSAGE, ls_dtype_bytes(spec->dtype));
    int64_t count = ls_dtensor_local_shape(spec, rank, NULL);
    for (int64_t at = 0; at < count && zeros; at += LS_STATE_MESSAGE)
        if (ls_send(ls_state_world(state), zeros, ls_min(LS_STATE_MESSAGE, count - at), spec->dtype,
                    0, 0, NULL))
            break;
    free(zeros);
}

/* Rank 0's own part goes to its places in whole. */
static void part_place(const struct ls_dtensor *part, char *whole)
{
    size_t bytes = ls_dtype_bytes(part->spec.dtype);
    struct ls_runs runs;
    struct ls_run run;
    ls_runs_init(&runs, &part->spec, part->rank);
    while (ls_runs_next(&runs, &run))
        memcpy(whole + (size_t)run.global * bytes,
               (const char *)part->data + (size_t)run.local * bytes, (size_t)run.count * bytes);
}

/* So does the part of mesh rank `rank`, which the world's rank `from` sends. */
static int part_receive(const struct ls_state *state, const struct ls_dtensor_spec *spec,
                        int64_t rank, int64_t from, char *message, char *whole,
                        struct ls_error *error)
{
    size_t bytes = ls_dtype_bytes(spec->dtype);
    struct ls_runs runs;
    struct ls_run run;
    int64_t have = 0, used = 0, left = ls_dtensor_local_shape(spec, rank, NULL);
    ls_runs_init(&runs, spec, rank);
    while (ls_runs_next(&runs, &run))
        while (run.count > 0) {
            if (used == have) {
                have = ls_min(LS_STATE_MESSAGE, left);
                int status =
                    ls_recv(ls_state_world(state), message, have, spec->dtype, (int)from, 0, error);
                if (status)
                    return status;
                used = 0;
                left -= have;
            }
            int64_t count = ls_min(run.count, have - used);
            memcpy(whole + (size_t)run.global * bytes, message + (size_t)used * bytes,
                   (size_t)count * bytes);
            run.global += count;
            run.count -= count;
            used += count;
        }
    return LS_OK;
}

int ls_state_collect(struct ls_state *state, const struct ls_params *all, int i, int array,
                     void *values, struct ls_error *error)
{
    const struct ls_param *param = &all->list[i];
    const struct ls_param *mine = ls_params_find(state->params, param->name);
    struct ls_dtensor_spec spec = param->spec;
    spec.dtype = ls_state_type(state, array);
    int stage = ls_layout_stage(state->layout, all->units[param->unit].layer);
    int64_t first = ls_layout_first_rank(state->layout, state->layout->stage_rank[stage]);
    int64_t rank = ls_comm_rank(ls_state_world(state)) - first, ranks = ls_mesh_ranks(&spec.mesh);
    struct ls_lent_slice part = {0};
    int status = LS_OK;
    bool holds = rank >= 0 && rank < ranks && sends(&spec, rank);
    if (holds)
        status =
            ls_state_lend(state, (int)(mine - state->params->list), array, LS_READS, &part, error);
    bool sender = holds && ls_comm_rank(ls_state_world(state)) > 0;
    if (status && sender)
        nothing_send(state, &spec, rank);
    if (status)
        return status;
    if (ls_comm_rank(ls_state_world(state)) > 0) {
        status = sender ? part_send(state, &part.tensor, error) : LS_OK;
        ls_state_return(state, &part, NULL);
        return status;
    }
    char *message = (char *)values + (size_t)ls_dtensor_count(&spec) * ls_dtype_bytes(spec.dtype);
    for (int64_t from = 0; from < ranks && !status; from++) {
        if (first + from == 0)
            part_place(&part.tensor, values);
        else if (sends(&spec, from))
            status = part_receive(state, &spec, from, first + from, message, values, error);
    }
    ls_state_return(state, &part, NULL);
    return status;
}
