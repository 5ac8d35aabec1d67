/* The state of a run, spread over ranks: a whole tensor on rank 0, window by window, from its
 * parts.
 *
 * A window is LS_STATE_MESSAGE elements of the whole. The runs of a part ascend both globally and
 * locally, so each rank goes through its slice once and sends what lies in a window as one message;
 * rank 0 knows from the spec how long it is. */
#include "state/state_private.h"

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

/* ---- a part, in ascending order -------------------------------------------------------------- */

void state_cursor_init(struct state_cursor *cursor, const struct ls_dtensor_spec *spec,
                       int64_t rank)
{
    ls_runs_init(&cursor->runs, spec, rank);
    if (!ls_runs_next(&cursor->runs, &cursor->run))
        cursor->run.count = 0;
}

struct ls_run state_cursor_take(struct state_cursor *cursor, int64_t most)
{
    struct ls_run taken = cursor->run;
    taken.count = ls_min(taken.count, most);
    cursor->run.global += taken.count;
    cursor->run.local += taken.count;
    cursor->run.count -= taken.count;
    if (cursor->run.count == 0 && !ls_runs_next(&cursor->runs, &cursor->run))
        cursor->run.count = 0;
    return taken;
}

/* ---- the collector --------------------------------------------------------------------------- */

int state_collector_init(struct state_collector *c, struct ls_state *state,
                         const struct ls_params *all, struct ls_error *error)
{
    size_t ranks = (size_t)ls_comm_size(ls_state_world(state));
    bool collects = ls_comm_rank(ls_state_world(state)) == 0;
    *c = (struct state_collector){.state = state, .all = all};
    c->window = malloc(LS_STATE_MESSAGE * sizeof(float));
    c->message = collects ? malloc(LS_STATE_MESSAGE * sizeof(float)) : NULL;
    c->parts = collects ? calloc(ranks, sizeof *c->parts) : NULL;
    if (c->window && (!collects || (c->message && c->parts)))
        return LS_OK;
    return ls_error_set(error, LS_ENOMEM, "no memory for the windows of a checkpoint's tensors");
}

void state_collector_release(struct state_collector *c)
{
    free(c->window);
    free(c->message);
    free(c->parts);
}

/* ---- one tensor ------------------------------------------------------------------------------ */

struct collecting {
    struct state_collector *c;
    struct ls_dtensor_spec spec;
    const struct state_sink *sink;
    int64_t first, total; /* the window's first element; elements of the whole */
    int64_t origin, rank; /* mesh rank 0 in the world; this one in the mesh, where it has a part */
    struct state_cursor own;
    int64_t have;           /* elements of it in the window */
    bool cut;               /* no message goes through */
    int failed;             /* the first failure, and */
    struct ls_error *error; /* where it is told; afterwards unheard */
    struct ls_error unheard;
};

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

static void fail(struct collecting *g, int status)
{
    if (!status || g->failed)
        return;
    g->failed = status;
    g->error = &g->unheard;
}

static bool is_root(const struct collecting *g)
{
    return ls_comm_rank(ls_state_world(g->c->state)) == 0;
}

static int64_t window_end(const struct collecting *g)
{
    return ls_min(g->first + LS_STATE_MESSAGE, g->total);
}

/* What the part of mesh rank `rank` has in the window comes from it, and goes to its places. */
static int part_receive(struct collecting *g, int64_t rank)
{
    struct state_cursor *cursor = &g->c->parts[rank], ahead = *cursor;
    size_t bytes = ls_dtype_bytes(g->spec.dtype);
    int64_t end = window_end(g), count = 0;
    while (ahead.run.count > 0 && ahead.run.global < end)
        count += state_cursor_take(&ahead, end - ahead.run.global).count;
    int status = count == 0 ? LS_OK
                            : ls_recv(ls_state_world(g->c->state), g->c->message, count,
                                      g->spec.dtype, (int)(g->origin + rank), 0, g->error);
    const char *from = g->c->message;
    while (!status && cursor->run.count > 0 && cursor->run.global < end) {
        struct ls_run run = state_cursor_take(cursor, end - cursor->run.global);
        memcpy((char *)g->c->window + (size_t)(run.global - g->first) * bytes, from,
               (size_t)run.count * bytes);
        from += (size_t)run.count * bytes;
    }
    return status;
}

/* Rank 0 goes on after a failure, for the others go on sending. */
static void window_end_root(struct collecting *g)
{
    int64_t ranks = ls_mesh_ranks(&g->spec.mesh);
    for (int64_t rank = 0; rank < ranks && !g->cut; rank++) {
        int status = g->origin + rank == 0 ? LS_OK : part_receive(g, rank);
        g->cut = status != LS_OK;
        fail(g, status);
    }
    if (!g->failed)
        fail(g, g->sink->take(g->sink->user, g->c->window, window_end(g) - g->first, g->error));
}

static void window_finish(struct collecting *g)
{
    if (is_root(g)) {
        window_end_root(g);
    } else if (g->have > 0) {
        int status = ls_send(ls_state_world(g->c->state), g->c->window, g->have, g->spec.dtype, 0,
                             0, g->error);
        g->cut = status != LS_OK;
        fail(g, status);
    }
    g->first = window_end(g);
    g->have = 0;
    ls_progress();
}

/* Elements of this rank's part; without values, which could not be read, zeros stand for them. */
static int piece_take(void *user, const struct ls_slice_piece *piece, struct ls_error *error)
{
    struct collecting *g = user;
    size_t bytes = ls_dtype_bytes(g->spec.dtype);
    int64_t piece_end = piece->from + piece->count;
    if (piece->values)
        fail(g, ls_queue_synchronise(&g->c->state->ops->queue, error));
    while (!g->cut && g->own.run.count > 0 && g->own.run.local < piece_end) {
        if (g->own.run.global >= window_end(g)) {
            window_finish(g);
            continue;
        }
        struct ls_run run = state_cursor_take(
            &g->own, ls_min(window_end(g) - g->own.run.global, piece_end - g->own.run.local));
        int64_t at = is_root(g) ? run.global - g->first : g->have;
        char *to = (char *)g->c->window + (size_t)at * bytes;
        if (piece->values)
            memcpy(to, (const char *)piece->values + (size_t)(run.local - piece->from) * bytes,
                   (size_t)run.count * bytes);
        else
            memset(to, 0, (size_t)run.count * bytes);
        g->have += run.count;
    }
    return g->cut ? g->failed : LS_OK;
}

static void part_take(struct collecting *g, const struct ls_param *param, int array)
{
    struct ls_state *state = g->c->state;
    const struct ls_param *mine = ls_params_find(state->params, param->name);
    const struct ls_slice *slice = &state->slices[mine - state->params->list];
    const struct ls_slice_piece rest = {0, slice->part->count, NULL};
    state_cursor_init(&g->own, &g->spec, g->rank);
    fail(g, ls_queue_synchronise(&state->ops->queue, g->error));
    fail(g, ls_slice_visit_array(&state->optimizer, slice, array + 1, LS_READS, piece_take, g,
                                 g->error));
    piece_take(g, &rest, NULL);
}

int state_collect(struct state_collector *c, int i, int array, const struct state_sink *sink,
                  struct ls_error *error)
{
    struct ls_state *state = c->state;
    const struct ls_param *param = &c->all->list[i];
    int stage = ls_layout_stage(state->layout, c->all->units[param->unit].layer);
    struct collecting g = {.c = c, .spec = param->spec, .sink = sink, .error = error};
    g.spec.dtype = ls_state_type(state, array);
    g.total = ls_dtensor_count(&g.spec);
    g.origin = ls_layout_first_rank(state->layout, state->layout->stage_rank[stage]);
    g.rank = ls_comm_rank(ls_state_world(state)) - g.origin;
    int64_t ranks = ls_mesh_ranks(&g.spec.mesh);
    for (int64_t rank = 0; rank < ranks && is_root(&g); rank++) {
        c->parts[rank].run.count = 0;
        if (sends(&g.spec, rank))
            state_cursor_init(&c->parts[rank], &g.spec, rank);
    }
    if (g.rank >= 0 && g.rank < ranks && sends(&g.spec, g.rank))
        part_take(&g, param, array);
    while (g.first < g.total && !g.cut && (is_root(&g) || g.have > 0))
        window_finish(&g);
    return g.failed;
}
