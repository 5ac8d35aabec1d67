/* The state of a run, spread over ranks: where a slice lies, and a whole tensor from its slices. */
#include "state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Slices move in messages of up to so many elements: what rank 0 needs besides the tensor. */
enum { MESSAGE_ELEMENTS = 1 << 20 };

void state_prefix(const struct ls_trainer *t, int state, char prefix[STATE_PREFIX_BYTES])
{
    prefix[0] = '\0';
    if (state >= 0)
        snprintf(prefix, STATE_PREFIX_BYTES, "%s.",
                 ls_optimizer_state_name(&t->memory.optimizer.config, state));
}

struct state_place state_place_of(const struct ls_trainer *t, int i)
{
    const struct ls_param *param = &t->params.list[i];
    const struct ls_zero_slice *slice = &ls_zero_slices(t->memory.zero)[i];
    return (struct state_place){param->first_row, param->first_col, param->cols, slice->first,
                                slice->count};
}

/* Of elements [at, at + count) of a slice, those that lie side by side in the whole parameter too,
 * from *index there. */
static int64_t run_at(const struct state_place *place, int64_t whole_cols, int64_t at,
                      int64_t count, int64_t *index)
{
    int64_t element = place->first + at, col = element % place->cols;
    *index = (place->first_row + element / place->cols) * whole_cols + place->first_col + col;
    return place->cols == whole_cols ? count : ls_min(place->cols - col, count);
}

void state_scatter(const struct state_place *place, int64_t whole_cols, int64_t at, int64_t count,
                   const float *piece, float *whole)
{
    for (int64_t done = 0, index; done < count;) {
        int64_t run = run_at(place, whole_cols, at + done, count - done, &index);
        memcpy(whole + index, piece + done, (size_t)run * sizeof *piece);
        done += run;
    }
}

void state_gather(const struct state_place *place, int64_t whole_cols, int64_t at, int64_t count,
                  const float *whole, float *piece)
{
    for (int64_t done = 0, index; done < count;) {
        int64_t run = run_at(place, whole_cols, at + done, count - done, &index);
        memcpy(piece + done, whole + index, (size_t)run * sizeof *piece);
        done += run;
    }
}

/* ---- a whole tensor on rank 0 ---------------------------------------------------------------- */

/* What the ranks that hold the state once tell of one tensor. */
struct collection {
    struct ls_comm *owners;
    int64_t whole_cols;
    struct state_place *places; /* [ranks] */
    float *message;             /* rank 0: [MESSAGE_ELEMENTS] */
};

static int slice_send(const struct collection *c, const float *slice, int64_t count,
                      struct ls_error *error)
{
    int status = LS_OK;
    for (int64_t at = 0; at < count && !status; at += MESSAGE_ELEMENTS)
        status = ls_send(c->owners, slice + at, ls_min(MESSAGE_ELEMENTS, count - at), LS_F32, 0, 0,
                         error);
    return status;
}

static int slice_receive(const struct collection *c, int rank, float *values,
                         struct ls_error *error)
{
    const struct state_place *place = &c->places[rank];
    int status = LS_OK;
    for (int64_t at = 0; at < place->count && !status; at += MESSAGE_ELEMENTS) {
        int64_t count = ls_min(MESSAGE_ELEMENTS, place->count - at);
        status = ls_recv(c->owners, c->message, count, LS_F32, rank, 0, error);
        if (!status)
            state_scatter(place, c->whole_cols, at, count, c->message, values);
    }
    return status;
}

static int slices_collect(const struct collection *c, const struct state_place *mine,
                          const float *slice, float *values, struct ls_error *error)
{
    int status =
        ls_all_gather(c->owners, mine, c->places, sizeof *mine / sizeof(int64_t), LS_I64, error);
    if (status)
        return status;
    if (ls_comm_rank(c->owners) > 0)
        return slice_send(c, slice, mine->count, error);
    state_scatter(mine, c->whole_cols, 0, mine->count, slice, values);
    for (int rank = 1; rank < ls_comm_size(c->owners) && !status; rank++)
        status = slice_receive(c, rank, values, error);
    return status;
}

int state_collect(struct ls_trainer *t, const struct ls_params *whole, int i, int state,
                  float *values, struct ls_error *error)
{
    if (ls_comm_rank(t->groups.copies) > 0)
        return LS_OK;
    struct collection c = {.owners = t->groups.owners, .whole_cols = whole->list[i].global_cols};
    int ranks = ls_comm_size(c.owners);
    struct state_place mine = {0};
    const float *slice = NULL;
    const struct ls_param *param = ls_params_find(&t->params, whole->list[i].name);
    if (param && param->owned) {
        int index = (int)(param - t->params.list);
        mine = state_place_of(t, index);
        slice = state_array(t, state) + ls_zero_slices(t->memory.zero)[index].offset;
    }
    bool receives = ranks > 1 && ls_comm_rank(c.owners) == 0;
    c.places = calloc((size_t)ranks, sizeof *c.places);
    c.message = receives ? malloc(MESSAGE_ELEMENTS * sizeof *c.message) : NULL;
    int status = LS_OK;
    if (!c.places || (receives && !c.message))
        status =
            ls_error_set(error, LS_ENOMEM, "no memory to collect a tensor from %d ranks", ranks);
    status = ls_comm_agree(c.owners, status, error);
    if (!status)
        status = slices_collect(&c, &mine, slice, values, error);
    free(c.places);
    free(c.message);
    return status;
}
