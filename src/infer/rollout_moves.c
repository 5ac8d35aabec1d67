/* The plan of a reshard: pure arithmetic on two layouts. A copy of the model lies on the ranks that
 * differ in pp and tp alone, so each rank finds all that it needs among those of its own copy. */
#include "infer/rollout_moves.h"

#include "infer/infer_private.h"

#include <stdlib.h>
#include <string.h>

struct rectangle {
    int64_t row, col, rows, cols;
};

/* What a member has of the model in both layouts. */
struct member {
    int rank; /* of the world */
    struct ls_params source;
    const struct ls_params *target;
    int *lent; /* [units of the target] */
};

/* A member has a part of a parameter. */
struct holding {
    const struct ls_param *param;
    int member, next; /* the next one of the same parameter, -1: none. Members ascend */
};

struct planning {
    const struct ls_layout *from, *to;
    bool steady;
    struct member *members; /* [count] */
    int count;
    struct ls_params whole;    /* the parameters of the model, by which holdings are found */
    int *first;                /* [whole.count]: of holdings */
    struct holding *holdings;  /* of all members */
    struct ls_params *targets; /* [pp, tp] of `to`: of the ranks that were asked for */
    struct rectangle *seen;    /* [count] */
};

/* ---- members --------------------------------------------------------------------------------- */

/* The parameters of the ranks with those coordinates, to be released. */
static int params_of(const struct ls_layout *layout, int64_t pp, int64_t tp,
                     struct ls_params *params, struct ls_error *error)
{
    bool *held = calloc((size_t)layout->model.layers + 2, sizeof *held);
    if (!held)
        return ls_no_memory(error, "for a list of layers");
    ls_layout_layers(layout, pp, held, NULL);
    int status = ls_layout_params(layout, tp, held, params, error);
    free(held);
    return status;
}

/* Its index in params, where *hint is next looked at: in the order of the list each is found at
 * once. */
static int find(const struct ls_params *params, const char *name, int *hint)
{
    int i = 0;
    while (i < params->count && strcmp(params->list[(*hint + i) % params->count].name, name) != 0)
        i++;
    LS_ASSERT(i < params->count);
    int at = (*hint + i) % params->count;
    *hint = at + 1;
    return at;
}

static int member_of(const struct planning *p, int64_t rank)
{
    int64_t at[LS_AXES];
    ls_layout_coordinates(p->from, rank, at);
    return (int)(at[LS_AXIS_PP] * p->from->size[LS_AXIS_TP] + at[LS_AXIS_TP]);
}

/* The rank of member i of that rank's copy. */
static int64_t member_rank(const struct planning *p, int64_t rank, int i)
{
    int64_t at[LS_AXES], tp = p->from->size[LS_AXIS_TP];
    ls_layout_coordinates(p->from, rank, at);
    at[LS_AXIS_PP] = i / tp;
    at[LS_AXIS_TP] = i % tp;
    return ls_layout_rank(p->from, at);
}

/* Where targets has the rank's parameters. */
static int64_t target_of(const struct planning *p, int64_t rank)
{
    int64_t at[LS_AXES];
    ls_layout_coordinates(p->to, rank, at);
    return at[LS_AXIS_PP] * p->to->size[LS_AXIS_TP] + at[LS_AXIS_TP];
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
        same =
            same_place(&m->source.list[a->first_param + i], &m->target->list[b->first_param + i]);
    return same;
}

static int holdings_find(struct planning *p, struct ls_error *error)
{
    int64_t all = 0;
    for (int i = 0; i < p->count; i++)
        all += p->members[i].source.count;
    p->first = malloc(((size_t)p->whole.count + 1) * sizeof *p->first);
    p->holdings = malloc(((size_t)all + 1) * sizeof *p->holdings);
    if (!p->first || !p->holdings)
        return ls_no_memory(error, "for moves of weights");
    for (int id = 0; id < p->whole.count; id++)
        p->first[id] = -1;
    for (int i = p->count - 1; i >= 0; i--) {
        const struct ls_params *source = &p->members[i].source;
        int hint = 0;
        for (int k = 0; k < source->count; k++) {
            int id = find(&p->whole, source->list[k].name, &hint);
            p->holdings[--all] = (struct holding){&source->list[k], i, p->first[id]};
            p->first[id] = (int)all;
        }
    }
    return LS_OK;
}

/* The training layout, which every copy of the model cuts alike. */
static int planning_open(struct planning *p, const struct ls_layout *from,
                         const struct ls_layout *to, bool steady, struct ls_error *error)
{
    const int64_t *size = to->size;
    *p = (struct planning){.from = from, .to = to, .steady = steady};
    int count = (int)(from->size[LS_AXIS_PP] * from->size[LS_AXIS_TP]);
    p->members = calloc((size_t)count, sizeof *p->members);
    p->seen = calloc((size_t)count, sizeof *p->seen);
    p->targets = calloc((size_t)(size[LS_AXIS_PP] * size[LS_AXIS_TP]), sizeof *p->targets);
    if (!p->members || !p->seen || !p->targets)
        return ls_no_memory(error, "for moves of weights");
    p->count = count;
    int status = ls_layout_params(from, 0, NULL, &p->whole, error);
    for (int i = 0; i < count && !status; i++)
        status = params_of(from, i / from->size[LS_AXIS_TP], i % from->size[LS_AXIS_TP],
                           &p->members[i].source, error);
    return status ? status : holdings_find(p, error);
}

static void planning_close(struct planning *p)
{
    int64_t targets = p->to->size[LS_AXIS_PP] * p->to->size[LS_AXIS_TP];
    for (int i = 0; i < p->count; i++) {
        ls_params_release(&p->members[i].source);
        free(p->members[i].lent);
    }
    for (int64_t i = 0; i < targets && p->targets; i++)
        ls_params_release(&p->targets[i]);
    ls_params_release(&p->whole);
    free(p->members);
    free(p->first);
    free(p->holdings);
    free(p->targets);
    free(p->seen);
}

static int member_open(struct planning *p, struct member *m, struct ls_error *error)
{
    int64_t at = target_of(p, m->rank), tp = p->to->size[LS_AXIS_TP];
    struct ls_params *target = &p->targets[at];
    int status = target->list ? LS_OK : params_of(p->to, at / tp, at % tp, target, error);
    if (status)
        return status;
    free(m->lent);
    m->target = target;
    m->lent = calloc((size_t)target->unit_count + 1, sizeof *m->lent);
    if (!m->lent)
        return ls_no_memory(error, "for a list of layers");
    for (int u = 0; u < target->unit_count; u++) {
        m->lent[u] = -1;
        for (int v = 0; v < m->source.unit_count && p->steady; v++)
            if (same_unit(m, &m->source.units[v], &target->units[u]))
                m->lent[u] = v;
    }
    return LS_OK;
}

/* The copy of the model that the rank belongs to. */
static int copy_open(struct planning *p, int64_t rank, struct ls_error *error)
{
    int status = LS_OK;
    for (int i = 0; i < p->count && !status; i++) {
        p->members[i].rank = (int)member_rank(p, rank, i);
        status = member_open(p, &p->members[i], error);
    }
    return status;
}

/* ---- rectangles ------------------------------------------------------------------------------ */

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

/* What member `to` lacks of a parameter that another one, or itself, has. */
static int part_plan(struct rollout_moves *moves, const struct planning *p, int to,
                     const struct ls_param *target, const struct holding *holding,
                     const struct rectangle *part, struct ls_error *error)
{
    const struct ls_param *source = holding->param;
    const struct ls_params *sources = &p->members[holding->member].source;
    enum ls_dtype act = p->from->numerics.act;
    if (moves->me >= 0 && holding->member != moves->me && to != moves->me)
        return LS_OK;
    if (!ls_list_grow(&moves->list, moves->count, &moves->room, sizeof *moves->list))
        return ls_no_memory(error, "for moves of weights");
    moves->list[moves->count] = (struct rollout_move){
        .layer = sources->units[source->unit].layer,
        .from = holding->member,
        .to = to,
        .order = moves->count,
        .frozen = source->frozen,
        .rows = part->rows,
        .bytes = row_bytes(source, part->cols, ls_dtype_bytes(source->matrix ? act : LS_F32)),
        .source = side_of(sources, source, part, act),
        .target = side_of(p->members[to].target, target, part, act)};
    moves->count++;
    return LS_OK;
}

/* All of a parameter that member `to` needs, from itself if it can be, else from the next ones.
 * Parts that two members hold are equal or disjoint. */
static int param_plan(struct rollout_moves *moves, const struct planning *p, int to,
                      const struct ls_param *target, int first, struct ls_error *error)
{
    const struct rectangle whole = rectangle_of(target);
    int64_t missing = whole.rows * whole.cols;
    int seen_count = 0, status = LS_OK;
    for (int before = 0; before < 2; before++)
        for (int h = first; h >= 0 && missing > 0 && !status; h = p->holdings[h].next) {
            const struct holding *holding = &p->holdings[h];
            struct rectangle held = rectangle_of(holding->param), part = shared(held, whole);
            bool again = (holding->member < to) != before || part.rows * part.cols == 0;
            for (int i = 0; i < seen_count && !again; i++)
                again = p->seen[i].row == held.row && p->seen[i].col == held.col;
            if (again)
                continue;
            p->seen[seen_count++] = held;
            missing -= part.rows * part.cols;
            status = part_plan(moves, p, to, target, holding, &part, error);
        }
    LS_ASSERT(status || missing == 0);
    return status;
}

static int by_message(const void *a, const void *b)
{
    const struct rollout_move *x = a, *y = b;
    if (x->layer != y->layer)
        return x->layer < y->layer ? -1 : 1;
    if (x->from != y->from)
        return x->from < y->from ? -1 : 1;
    if (x->to != y->to)
        return x->to < y->to ? -1 : 1;
    return (x->order > y->order) - (x->order < y->order);
}

/* The moves of the copy that is open: of `me` alone, unless that is -1. */
static int moves_plan(struct rollout_moves *moves, const struct planning *p, struct ls_error *error)
{
    int status = LS_OK;
    for (int to = 0; to < p->count; to++) {
        const struct member *m = &p->members[to];
        int hint = 0;
        for (int i = 0; i < m->target->count && !status; i++) {
            const struct ls_param *target = &m->target->list[i];
            if (m->lent[target->unit] < 0)
                status = param_plan(moves, p, to, target,
                                    p->first[find(&p->whole, target->name, &hint)], error);
        }
    }
    if (moves->count)
        qsort(moves->list, (size_t)moves->count, sizeof *moves->list, by_message);
    return status;
}

/* The most that a member sends and gets in one message. */
struct passing {
    size_t sent, came;
};

static void messages_measure(const struct rollout_moves *moves, struct passing *most)
{
    size_t bytes = 0;
    for (int64_t i = 0; i < moves->count; i++) {
        const struct rollout_move *move = &moves->list[i], *last = i ? move - 1 : NULL;
        if (move->from == move->to)
            continue;
        if (!last || last->layer != move->layer || last->from != move->from || last->to != move->to)
            bytes = 0;
        bytes += (size_t)move->rows * move->bytes;
        most[move->from].sent = ls_max(most[move->from].sent, bytes);
        most[move->to].came = ls_max(most[move->to].came, bytes);
    }
}

int64_t rollout_moves_end(const struct rollout_moves *moves, int64_t i)
{
    int layer = moves->list[i].layer;
    while (i < moves->count && moves->list[i].layer == layer)
        i++;
    return i;
}

bool rollout_moves_passes(const struct rollout_moves *moves, int64_t i, int from, int to)
{
    const struct rollout_move *move = &moves->list[i];
    return move->from == from && move->to == to && !(moves->frozen_held && move->frozen);
}

size_t rollout_moves_bytes(const struct rollout_moves *moves, int64_t first, int64_t end, int from,
                           int to)
{
    size_t bytes = 0;
    for (int64_t i = first; i < end; i++)
        if (rollout_moves_passes(moves, i, from, to))
            bytes += (size_t)moves->list[i].rows * moves->list[i].bytes;
    return bytes;
}

int rollout_moves_init(struct rollout_moves *moves, const struct ls_layout *from,
                       const struct ls_layout *to, int64_t rank, bool steady,
                       struct ls_error *error)
{
    struct planning p;
    struct passing *most = NULL;
    *moves = (struct rollout_moves){0};
    int status = planning_open(&p, from, to, steady, error);
    if (!status)
        status = copy_open(&p, rank, error);
    if (!status) {
        moves->members = p.count;
        moves->me = member_of(&p, rank);
        moves->ranks = calloc((size_t)p.count, sizeof *moves->ranks);
        most = calloc((size_t)p.count, sizeof *most);
        status = most && moves->ranks ? moves_plan(moves, &p, error)
                                      : ls_no_memory(error, "for moves of weights");
    }
    if (!status) {
        messages_measure(moves, most);
        moves->sent_max = most[moves->me].sent;
        moves->came_max = most[moves->me].came;
        for (int i = 0; i < p.count; i++)
            moves->ranks[i] = p.members[i].rank;
        moves->lent = p.members[moves->me].lent;
        p.members[moves->me].lent = NULL;
    }
    free(most);
    planning_close(&p);
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

/* ---- what ranks take ------------------------------------------------------------------------- */

/* Copies of the model whose members have the same places in the other layout take the same. */
struct kind {
    int64_t *places; /* [count] */
    size_t *bytes;   /* [count] */
};

static int kind_measure(struct planning *p, struct kind *kind, int64_t rank, struct ls_error *error)
{
    struct rollout_moves moves = {.me = -1};
    struct passing *most = calloc((size_t)p->count, sizeof *most);
    kind->bytes = calloc((size_t)p->count, sizeof *kind->bytes);
    int status = most && kind->bytes ? copy_open(p, rank, error)
                                     : ls_no_memory(error, "for moves of weights");
    if (!status)
        status = moves_plan(&moves, p, error);
    if (!status)
        messages_measure(&moves, most);
    for (int i = 0; i < p->count && !status; i++)
        kind->bytes[i] =
            held_weights_bytes(p->members[i].target, p->to->numerics.act, p->members[i].lent) +
            most[i].sent + most[i].came;
    free(most);
    rollout_moves_release(&moves);
    return status;
}

static int places_of(const struct planning *p, int64_t rank, int64_t **out, struct ls_error *error)
{
    int64_t *places = *out = calloc((size_t)p->count, sizeof *places);
    for (int i = 0; i < p->count && places; i++)
        places[i] = target_of(p, member_rank(p, rank, i));
    return places ? LS_OK : ls_no_memory(error, "for moves of weights");
}

int rollout_moves_ranks_bytes(const struct ls_layout *from, const struct ls_layout *to, bool steady,
                              int64_t first, int64_t count, size_t *bytes, struct ls_error *error)
{
    struct planning p;
    struct kind *kinds = NULL;
    int64_t known = 0, room = 0;
    int status = planning_open(&p, from, to, steady, error);
    for (int64_t i = 0; i < count && !status; i++) {
        int64_t *places, k = 0;
        status = places_of(&p, first + i, &places, error);
        while (!status && k < known &&
               memcmp(kinds[k].places, places, (size_t)p.count * sizeof *places) != 0)
            k++;
        if (!status && k < known) {
            free(places);
        } else if (!status && ls_list_grow(&kinds, known, &room, sizeof *kinds)) {
            kinds[known++] = (struct kind){.places = places};
            status = kind_measure(&p, &kinds[k], first + i, error);
        } else if (!status) {
            free(places);
            status = ls_no_memory(error, "for moves of weights");
        }
        if (!status)
            bytes[i] = kinds[k].bytes[member_of(&p, first + i)];
    }
    for (int64_t k = 0; k < known; k++) {
        free(kinds[k].places);
        free(kinds[k].bytes);
    }
    free(kinds);
    planning_close(&p);
    return status;
}
