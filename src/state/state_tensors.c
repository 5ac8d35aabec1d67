/* Each slice of the state as a distributed tensor, wherever it lies. */
#include "state_private.h"

#include <stdlib.h>
#include <string.h>

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

/* ---- slices, wherever they lie --------------------------------------------------------------- */

struct copying {
    unsigned char *copy;
    size_t element;
    bool out; /* of the tier */
};

static int piece_copy(void *user, const struct ls_slice_piece *piece, struct ls_error *error)
{
    const struct copying *c = user;
    unsigned char *there = c->copy + (size_t)piece->from * c->element;
    size_t bytes = (size_t)piece->count * c->element;
    (void)error;
    memcpy(c->out ? there : piece->values, c->out ? piece->values : there, bytes);
    return LS_OK;
}

static int slice_copy(const struct ls_state *state, const struct ls_lent_slice *lent, bool out,
                      struct ls_error *error)
{
    struct copying copying = {lent->copy, ls_dtype_bytes(ls_state_type(state, lent->array)), out};
    return ls_slice_visit_array(state->optimizer, &state->slices[lent->i], lent->array + 1,
                                out ? LS_READS : LS_WRITES, piece_copy, &copying, error);
}

static void *array_of(const struct ls_slice *slice, int array)
{
    return array == LS_STATE_PARAMETERS ? slice->master : slice->state[array];
}

int ls_state_lend(const struct ls_state *state, int i, int array, enum ls_access access,
                  struct ls_lent_slice *out, struct ls_error *error)
{
    const struct ls_slice *slice = &state->slices[i];
    enum ls_dtype dtype = ls_state_type(state, array);
    *out = (struct ls_lent_slice){.i = i, .array = array, .access = access};
    if (slice->away || (slice->half && array == LS_STATE_PARAMETERS)) {
        out->copy = malloc((size_t)(slice->count + 1) * ls_dtype_bytes(dtype));
        if (!out->copy)
            return ls_error_set(error, LS_ENOMEM, "no memory for %ld elements of %s",
                                (long)slice->count, state->params->list[i].name);
    }
    int status = out->copy && access & LS_READS ? slice_copy(state, out, true, error) : LS_OK;
    if (!status)
        status = ls_state_tensor(state, i, dtype, out->copy ? out->copy : array_of(slice, array),
                                 &out->tensor, error);
    if (status) {
        free(out->copy);
        out->copy = NULL;
    }
    return status;
}

int ls_state_return(const struct ls_state *state, struct ls_lent_slice *lent,
                    struct ls_error *error)
{
    int status =
        lent->copy && lent->access & LS_WRITES ? slice_copy(state, lent, false, error) : LS_OK;
    free(lent->copy);
    lent->copy = NULL;
    return status;
}

int ls_state_publish(struct ls_state *state, struct ls_error *error)
{
    int status = ls_zero_settle(state->zero, state->ops, error);
    if (!status)
        status = ls_slices_round(state->optimizer, state->ops, state->slices, state->params->count,
                                 error);
    status = ls_comm_agree(ls_state_world(state), status, error);
    return status ? status : ls_zero_publish(state->zero, state->ops, error);
}
