/* The plan of a reshard: pure arithmetic on two layouts. A copy of the model lies on the ranks that
 * differ in pp and tp alone, so each rank finds all that it needs among those of its own copy. */
#include "infer/rollout_moves.h"

#include <stdlib.h>
#include <string.h>

/* What a member has of the model in both layouts. */
struct member {
    struct ls_params source, target;
    int *lent;
};

struct planning {
    const struct ls_layout *from, *to;
    bool steady;
    struct member *members; /* [count] */
    int count;
};

/* ---- members --------------------------------------------------------------------------------- */

int rollout_params(const struct ls_layout *layout, int64_t rank, struct ls_params *params,
                   struct ls_error *error)
{
    bool *held = calloc((size_t)layout->model.layers + 2, sizeof *held);
    int64_t at[LS_AXES];
    if (!held)
        return ls_no_memory(error, "for a list of layers");
    ls_layout_coordinates(layout, rank, at);
    ls_layout_layers(layout, at[LS_AXIS_PP], held, NULL);
    int status = ls_layout_params(layout, at[LS_AXIS_TP], held, params, error);
    free(held);
    return status;
}

static bool same_place(const struct ls_param *a, const struct ls_param *b)
{
    return !strcmp(a->name, b->name) && a->rows == b->rows && a->cols == b->cols &&
           a->first_row == b->first_row && a->first_col == b->first_col && a->offset == b->offset &&
           a->matrix == b->matrix && a->blocks == b->blocks;
}

static bool same_unit(const struct member *m, const struct ls_unit *a, const struct ls_unit *b)
{
    bool same = a->layer == b->layer && a->set == b->set && a->elements == b->elements &&
                a->matrix_elements == b->matrix_elements && a->param_count == b->param_count;
    for (int i = 0; i < a->param_count && same; i++)
        same = same_place(&m->source.list[a->first_param + i], &m->target.list[b->first_param + i]);
    return same;
}

static int member_init(const struct planning *p, struct member *m, int64_t rank,
                       struct ls_error *error)
{
    int status = rollout_params(p->from, rank, &m->source, error);
    if (!status)
        status = rollout_params(p->to, rank, &m->target, error);
    if (status)
        return status;
    m->lent = calloc((size_t)m->target.unit_count + 1, sizeof *m->lent);
    if (!m->lent)
        return ls_no_memory(error, "for a list of layers");
    for (int u = 0; u < m->target.unit_count; u++) {
        m->lent[u] = -1;
        for (int v = 0; v < m->source.unit_count && p->steady; v++)
            if (same_unit(m, &m->source.units[v], &m->target.units[u]))
                m->lent[u] = v;
    }
    return LS_OK;
}

static void members_release(struct planning *p)
{
    for (int i = 0; i < p->count && p->members; i++) {
        ls_params_release(&p->members[i].source);
        ls_params_release(&p->members[i].target);
        free(p->members[i].lent);
    }
    free(p->members);
}

/* ---- rectangles ------------------------------------------------------------------------------ */

struct rectangle {
    int64_t row, col, rows, cols;
};

static struct rectangle rectangle_of(const struct ls_param *param)
{
    return (struct rectangle){param->first_row, param->first_col, param->rows, param->cols};
}

static void cut(int64_t a, int64_t a_count, int64_t b, int64_t b_count, int64_t *first,
                int64_t *count)
{
    *first = ls_max(a, b);
    *count = ls_max(ls_min(a + a_count, b + b_count) - *first, 0);
}

static struct rectangle shared(struct rectangle a, struct rectangle b)
{
    struct rectangle out;
    cut(a.row, a.rows, b.row, b.rows, &out.row, &out.rows);
    cut(a.col, a.cols, b.col, b.cols, &out.col, &out.cols);
    return out;
}

/* ---- moves ----------------------------------------------------------------------------------- */

/* NULL: it has none of that name. *hint: where the last one was found. */
static const struct ls_param *find(const struct ls_params *params, const char *name, int *hint)
{
    for (int i = 0; i < params->count; i++) {
        int at = (*hint + i) % params->count;
        if (!strcmp(params->list[at].name, name)) {
            *hint = at;
            return &params->list[at];
        }
    }
    return NULL;
}

static size_t row_bytes(const struct ls_param *param, int64_t cols, size_t element)
{
    return param->blocks ? ls_blocks_row_bytes(param->blocks, cols) : (size_t)cols * element;
}

static struct rollout_side side_of(const struct ls_params *params, const struct ls_param *param,
                                   const struct rectangle *r, enum ls_dtype act)
{
    size_t element = ls_dtype_bytes(param->matrix ? act : LS_F32);
    int64_t base = param->matrix ? 0 : params->units[param->unit].matrix_elements;
    size_t step = (size_t)ls_param_room(param, param->cols) * element;
    return (struct rollout_side){.unit = param->unit,
                                 .matrix = param->matrix,
                                 .step = step,
                                 .offset = (size_t)(param->offset - base) * element +
                                           (size_t)(r->row - param->first_row) * step +
                                           row_bytes(param, r->col - param->first_col, element)};
}

static int move_add(struct rollout_moves *moves, const struct rollout_move *move,
                    struct ls_error *error)
{
    if (moves->count == moves->room) {
        int64_t room = 2 * moves->room + 64;
        struct rollout_move *list = realloc(moves->list, (size_t)room * sizeof *list);
        if (!list)
            return ls_no_memory(error, "for %ld moves of weights", (long)room);
        moves->list = list;
        moves->room = room;
    }
    moves->list[moves->count] = *move;
    moves->list[moves->count].order = moves->count;
    moves->count++;
    return LS_OK;
}

/* All of a parameter that member `to` needs, from itself if it can be. Parts that two members hold
 * are equal or disjoint. */
static int param_plan(struct rollout_moves *moves, const struct planning *p, int to,
                      const struct ls_param *target, int *hints, struct rectangle *seen,
                      struct ls_error *error)
{
    const struct rectangle whole = rectangle_of(target);
    int64_t missing = whole.rows * whole.cols;
    int seen_count = 0, status = LS_OK;
    for (int k = 0; k < p->count && missing > 0 && !status; k++) {
        int from = (to + k) % p->count;
        const struct member *m = &p->members[from];
        const struct ls_param *source = find(&m->source, target->name, &hints[from]);
        if (!source)
            continue;
        struct rectangle held = rectangle_of(source), part = shared(held, whole);
        bool again = part.rows * part.cols == 0;
        for (int i = 0; i < seen_count && !again; i++)
            again = seen[i].row == held.row && seen[i].col == held.col;
        if (again)
            continue;
        seen[seen_count++] = held;
        missing -= part.rows * part.cols;
        enum ls_dtype act = p->from->numerics.act;
        const struct rollout_move move = {
            .layer = m->source.units[source->unit].layer,
            .from = from,
            .to = to,
            .rows = part.rows,
            .bytes = row_bytes(source, part.cols, ls_dtype_bytes(source->matrix ? act : LS_F32)),
            .source = side_of(&m->source, source, &part, act),
            .target = side_of(&p->members[to].target, target, &part, act)};
        if (from == moves->me || to == moves->me)
            status = move_add(moves, &move, error);
    }
    LS_ASSERT(status || missing == 0);
    return status;
}

static int member_plan(struct rollout_moves *moves, const struct planning *p, int to,
                       struct ls_error *error)
{
    const struct member *m = &p->members[to];
    int *hints = calloc((size_t)p->count, sizeof *hints), status = LS_OK;
    struct rectangle *seen = calloc((size_t)p->count, sizeof *seen);
    if (!hints || !seen)
        status = ls_no_memory(error, "for moves of weights");
    for (int i = 0; i < m->target.count && !status; i++)
        if (m->lent[m->target.list[i].unit] < 0)
            status = param_plan(moves, p, to, &m->target.list[i], hints, seen, error);
    free(hints);
    free(seen);
    return status;
}

static int by_layer(const void *a, const void *b)
{
    const struct rollout_move *x = a, *y = b;
    return x->layer != y->layer ? (x->layer > y->layer) - (x->layer < y->layer)
                                : (x->order > y->order) - (x->order < y->order);
}

int64_t rollout_moves_end(const struct rollout_moves *moves, int64_t i)
{
    int layer = moves->list[i].layer;
    while (i < moves->count && moves->list[i].layer == layer)
        i++;
    return i;
}

size_t rollout_moves_bytes(const struct rollout_moves *moves, int64_t first, int64_t end, int from,
                           int to)
{
    size_t bytes = 0;
    for (int64_t i = first; i < end; i++)
        if (moves->list[i].from == from && moves->list[i].to == to)
            bytes += (size_t)moves->list[i].rows * moves->list[i].bytes;
    return bytes;
}

static void buffers_measure(struct rollout_moves *moves)
{
    for (int64_t i = 0, end; i < moves->count; i = end) {
        end = rollout_moves_end(moves, i);
        for (int k = 0; k < moves->members; k++) {
            if (k == moves->me)
                continue;
            moves->sent_max =
                ls_max(moves->sent_max, rollout_moves_bytes(moves, i, end, moves->me, k));
            moves->came_max =
                ls_max(moves->came_max, rollout_moves_bytes(moves, i, end, k, moves->me));
        }
    }
}

int rollout_moves_init(struct rollout_moves *moves, const struct ls_layout *from,
                       const struct ls_layout *to, int64_t rank, bool steady,
                       struct ls_error *error)
{
    int64_t at[LS_AXES], tp = from->size[LS_AXIS_TP];
    struct planning p = {from, to, steady, .count = (int)(from->size[LS_AXIS_PP] * tp)};
    ls_layout_coordinates(from, rank, at);
    *moves = (struct rollout_moves){.members = p.count,
                                    .me = (int)(at[LS_AXIS_PP] * tp + at[LS_AXIS_TP])};
    moves->ranks = calloc((size_t)p.count, sizeof *moves->ranks);
    p.members = calloc((size_t)p.count, sizeof *p.members);
    int status = moves->ranks && p.members ? LS_OK : ls_no_memory(error, "for moves of weights");
    for (int i = 0; i < p.count && !status; i++) {
        at[LS_AXIS_PP] = i / tp;
        at[LS_AXIS_TP] = i % tp;
        moves->ranks[i] = (int)ls_layout_rank(from, at);
        status = member_init(&p, &p.members[i], moves->ranks[i], error);
    }
    for (int i = 0; i < p.count && !status; i++)
        status = member_plan(moves, &p, i, error);
    if (!status) {
        if (moves->count)
            qsort(moves->list, (size_t)moves->count, sizeof *moves->list, by_layer);
        buffers_measure(moves);
        moves->lent = p.members[moves->me].lent;
        p.members[moves->me].lent = NULL;
    }
    members_release(&p);
    if (status)
        rollout_moves_release(moves);
    return status;
}

void rollout_moves_release(struct rollout_moves *moves)
{
    free(moves->ranks);
    free(moves->lent);
    free(moves->list);
    *moves = (struct rollout_moves){0};
}
