/* An outer step: workers' deltas meet, the outer optimizer moves the global parameters, and workers
 * take these up.
 *
 * The elements of a fragment that a rank holds lie one after the other, and each group owns an
 * equal piece of them. An owner gets the raw deltas of all workers, adds them by index (the law of
 * sums), and sends the sum to all groups; each then computes the same update. */
#include "train/parameter_server.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int exchange_fragment(const struct ls_params *params, int layers, int fragments, int i)
{
    const struct ls_param *param = &params->list[i];
    int layer = params->units[param->unit].layer;
    if (param->frozen)
        return -1;
    return layer < 1 || layer > layers ? 0 : (int)((int64_t)(layer - 1) * fragments / layers);
}

/* ---- memory ---------------------------------------------------------------------------------- */

void exchange_take(const struct memory_request *r, struct ls_arena *arena,
                   struct exchange *exchange)
{
    const struct ls_config *config = r->config;
    const struct ls_state *unit = r->units;
    const enum ls_delta_type type = (enum ls_delta_type)config->async.delta;
    int64_t groups = config->parallel.workers, workers = ls_config_workers(config);
    int fragments = (int)config->async.fragments;
    *exchange = (struct exchange){0};
    if (config->async.mode == LS_CONFIG_SERVER) {
        server_take(r, arena, exchange);
        return;
    }
    for (int f = 0; f < fragments; f++) {
        int64_t elements = 0;
        for (int i = 0; i < unit->params->count; i++)
            if (exchange_fragment(unit->params, (int)r->layout->model.layers, fragments, i) == f)
                elements += unit->slices[i].part->count;
        exchange->piece = ls_max(exchange->piece, ls_ceil_div(elements, groups));
    }
    size_t piece = (size_t)exchange->piece;
    exchange->deltas = ls_arena_take(arena, (size_t)workers * piece * ls_delta_bytes(type));
    exchange->came = ls_arena_take(arena, (size_t)workers * piece * ls_delta_bytes(type));
    exchange->sums = ls_arena_take(arena, (size_t)groups * piece * ls_delta_sum_bytes(type));
}

/* ---- a walk over the fragment ---------------------------------------------------------------- */

struct walk {
    struct ls_trainer *t;
    int64_t elements; /* before this slice */
    uint64_t hash;
};
/* Of the interval's fragment: visits this rank's slices in their order. */
typedef int slice_visit(struct walk *walk, int i, struct ls_error *error);

/* *walk: as it is behind the last one. */
static int fragment_visit(struct ls_trainer *t, slice_visit *visit, struct walk *walk,
                          struct ls_error *error)
{
    const struct workers *w = t->workers;
    int status = LS_OK;
    *walk = (struct walk){.t = t};
    for (int i = 0; i < t->params.count && !status; i++) {
        if (w->fragment[i] != workers_fragment(w))
            continue;
        status = visit(walk, i, error);
        walk->elements += workers_outer(t)->slices[i].part->count;
    }
    return status;
}

static int slice_count(struct walk *walk, int i, struct ls_error *error)
{
    (void)walk, (void)i, (void)error;
    return LS_OK;
}

static int64_t fragment_elements(struct ls_trainer *t)
{
    struct walk walk;
    fragment_visit(t, slice_count, &walk, NULL);
    return walk.elements;
}

/* Elements [from, from + count) of slice i of worker k: its masters, which may lie in a tier, and
 * the global ones, which never do. */
struct both {
    struct walk *walk;
    int i, k;
    int64_t from, count;
    const float *global;
    float *values;
};
typedef void both_visit(const struct both *both);
struct both_walk {
    struct both both;
    both_visit *visit;
};

static int piece_both(void *user, const struct ls_slice_piece *piece, struct ls_error *error)
{
    const struct both_walk *walk = user;
    struct both both = walk->both;
    both.from = piece->from;
    both.count = piece->count;
    both.global += piece->from;
    both.values = piece->values;
    walk->visit(&both);
    (void)error;
    return LS_OK;
}

static int worker_visit(struct walk *walk, int i, int k, enum ls_access access, both_visit *visit,
                        struct ls_error *error)
{
    const struct ls_state *unit = &walk->t->units[k];
    const float *global = workers_outer(walk->t)->slices[i].master;
    struct both_walk both = {{.walk = walk, .i = i, .k = k, .global = global}, visit};
    return ls_slice_visit_array(&unit->optimizer, &unit->slices[i], LS_OPTIM_MASTER, access,
                                piece_both, &both, error);
}

/* Of the workers of this group that take part. */
static int workers_visit(struct walk *walk, int i, enum ls_access access, both_visit *visit,
                         struct ls_error *error)
{
    const struct workers *w = walk->t->workers;
    int status = LS_OK;
    for (int k = 0; k < w->each && !status; k++)
        if (workers_takes_part(w, k))
            status = worker_visit(walk, i, k, access, visit, error);
    return status;
}

static enum ls_delta_type type_of(const struct ls_trainer *t)
{
    return (enum ls_delta_type)t->config.async.delta;
}

/* ---- deltas leave ---------------------------------------------------------------------------- */

static void piece_measure(const struct both *both)
{
    struct ls_trainer *t = both->walk->t;
    struct workers *w = t->workers;
    ls_delta_amax(&t->ops, both->global, both->values, both->count, &w->scales[w->place[both->i]]);
}

static int slice_measure(struct walk *walk, int i, struct ls_error *error)
{
    return workers_visit(walk, i, LS_READS, piece_measure, error);
}

/* Collective over t->whole. One scale a tensor, of all its parts in all workers. status: what came
 * of this group's steps. */
static int scales_make(struct ls_trainer *t, int status, struct ls_error *error)
{
    struct workers *w = t->workers;
    struct walk walk;
    memset(w->scales, 0, (size_t)w->whole * sizeof *w->scales);
    if (!status)
        status = fragment_visit(t, slice_measure, &walk, error);
    if (!status)
        status = ls_queue_synchronise(&t->ops.queue, error);
    status = workers_agree(t, status, error);
    if (!status)
        status = ls_all_reduce_max_f32(t->whole, w->scales, w->whole, error);
    status = workers_agree(t, status, error);
    for (int i = 0; i < w->whole; i++)
        w->scales[i] /= 127;
    return status;
}

/* Cut where another group owns what follows. */
static void piece_encode(const struct both *both)
{
    struct ls_trainer *t = both->walk->t;
    const struct workers *w = t->workers;
    int64_t piece = w->exchange.piece, length;
    size_t bytes = ls_delta_bytes(type_of(t));
    for (int64_t from = 0; from < both->count; from += length) {
        int64_t at = both->walk->elements + both->from + from, owner = at / piece;
        length = ls_min(both->count - from, (owner + 1) * piece - at);
        int64_t place = (owner * w->each + both->k) * piece + at % piece;
        ls_delta_encode(&t->ops, type_of(t), both->global + from, both->values + from, length,
                        w->scales[w->place[both->i]],
                        (char *)t->memory.exchange.deltas + (size_t)place * bytes);
    }
}

static int slice_encode(struct walk *walk, int i, struct ls_error *error)
{
    const struct workers *w = walk->t->workers;
    const struct ls_slice *global = &workers_outer(walk->t)->slices[i];
    for (int k = 0; k < w->each; k++) /* who takes no part adds zeros */
        if (!workers_takes_part(w, k))
            piece_encode(
                &(struct both){walk, i, k, 0, global->part->count, global->master, global->master});
    return workers_visit(walk, i, LS_READS, piece_encode, error);
}

static int slice_hash(struct walk *walk, int i, struct ls_error *error)
{
    const struct ls_slice *slice = &workers_outer(walk->t)->slices[i];
    const int64_t range[] = {slice->part->first, slice->part->count};
    walk->hash = ls_hash64(slice->param->name, strlen(slice->param->name), walk->hash);
    walk->hash = ls_hash64(range, sizeof range, walk->hash);
    (void)error;
    return LS_OK;
}

uint64_t exchange_deltas_hash(struct ls_trainer *t)
{
    struct walk walk;
    fragment_visit(t, slice_hash, &walk, NULL);
    return walk.hash;
}

size_t exchange_deltas_bytes(struct ls_trainer *t)
{
    return (size_t)fragment_elements(t) * ls_delta_bytes(type_of(t));
}

/* The pieces of all owners, one behind the other: as many groups as there are cut them. */
void exchange_deltas_copy(struct ls_trainer *t, int worker, char *text, bool to_text)
{
    const struct workers *w = t->workers;
    const size_t all = exchange_deltas_bytes(t);
    const size_t piece = (size_t)w->exchange.piece * ls_delta_bytes(type_of(t));
    char *deltas = t->memory.exchange.deltas;
    for (size_t from = 0, place = (size_t)worker * piece; from < all;
         from += piece, place += (size_t)w->each * piece) {
        const size_t bytes = all - from < piece ? all - from : piece;
        memcpy(to_text ? text + from : deltas + place, to_text ? deltas + place : text + from,
               bytes);
    }
}

void exchange_deltas_drop(struct workers *w)
{
    for (int k = 0; k < w->each; k++) {
        free(w->kept_deltas[k]);
        w->kept_deltas[k] = NULL;
    }
}

/* Where this is another start of the job, in place of what workers have by now. */
static int kept_take(struct ls_trainer *t, struct ls_error *error)
{
    struct workers *w = t->workers;
    int status = LS_OK;
    for (int k = 0; k < w->each && !status; k++) {
        if (!w->kept_deltas[k])
            continue;
        status = ls_queue_synchronise(&t->ops.queue, error);
        if (!status)
            exchange_deltas_copy(t, k, w->kept_deltas[k], false);
    }
    exchange_deltas_drop(w);
    return status;
}

/* status, of an operation that other groups take part in. */
static int operation_take(struct exchange_run *run, int status)
{
    if (status) {
        run->lost = status;
        run->stage = EXCHANGE_DONE;
    }
    return status;
}

/* What a rank that died owes does not stop the steps beside it (exchange_run.lost): the other ranks
 * of this one's worker compute them, and may not have heard of it. */
static int lost_take(const struct ls_trainer *t, int status, struct ls_error *error)
{
    if (status != LS_ECOMM || !rescue_applies(t))
        return status;
    if (error)
        *error = (struct ls_error){0};
    return LS_OK;
}

static int deltas_make(struct ls_trainer *t, struct ls_error *error)
{
    struct walk walk;
    int status = fragment_visit(t, slice_encode, &walk, error);
    return status ? status : kept_take(t, error);
}

int exchange_begin(struct ls_trainer *t, int status, struct ls_error *error)
{
    struct workers *w = t->workers;
    struct exchange *x = &t->memory.exchange;
    struct ls_error why = {0};
    size_t bytes = ls_delta_bytes(type_of(t));
    w->exchange = (struct exchange_run){.stage = EXCHANGE_DONE,
                                        .piece = ls_ceil_div(fragment_elements(t), w->groups)};
    if (type_of(t) == LS_DELTA_INT8 && status != LS_ECOMM) {
        status = scales_make(t, status, error);
        if (status) /* on all */
            return status;
    }
    if (!status)
        status = deltas_make(t, error);
    if (w->delay > 0 && status != LS_ECOMM) /* the group's steps need all of its ranks */
        status = ls_comm_agree(t->world, status, error);
    if (status == LS_ECOMM)
        return status;
    ls_comm_label(w->across, "deltas");
    int begun = ls_all_to_all_start(w->across, x->deltas, x->came,
                                    w->each * w->exchange.piece * (int64_t)bytes, LS_U8,
                                    &w->exchange.request, LS_HERE, &why);
    if (!begun)
        w->exchange.stage = EXCHANGE_DELTAS;
    begun = lost_take(t, operation_take(&w->exchange, begun), &why);
    bool first = !status || exchange_leaves(&w->exchange);
    return begun && first ? ls_error_copy(error, begun, &why) : status;
}

/* ---- sums come ------------------------------------------------------------------------------- */

/* The next stage, once the one under way has ended. */
static int exchange_advance(struct ls_trainer *t, struct ls_error *error)
{
    struct workers *w = t->workers;
    struct exchange *x = &t->memory.exchange;
    struct exchange_run *run = &w->exchange;
    size_t bytes = ls_delta_sum_bytes(type_of(t));
    double start_s = ls_now_s();
    int status = operation_take(run, ls_wait(&run->request, error));
    run->wait_s += ls_now_s() - start_s;
    if (status || run->stage == EXCHANGE_SUMS) {
        run->stage = EXCHANGE_DONE;
        return status;
    }
    char *own = (char *)x->sums + (size_t)(w->group * run->piece) * bytes;
    if (run->piece > 0)
        ls_delta_sum(&t->ops, type_of(t), x->came, run->piece, w->count, run->piece, own);
    run->stage = EXCHANGE_SUMS;
    ls_comm_label(w->across, "sums of deltas");
    status = ls_all_gather_start(w->across, own, x->sums, run->piece * (int64_t)bytes, LS_U8,
                                 &run->request, LS_HERE, error);
    return operation_take(run, status);
}

int exchange_poll(struct ls_trainer *t, struct ls_error *error)
{
    struct exchange_run *run = &t->workers->exchange;
    bool ready = run->stage < EXCHANGE_DONE && ls_test(&run->request);
    return ready ? lost_take(t, exchange_advance(t, error), error) : LS_OK;
}

static int slice_decode(struct walk *walk, int i, struct ls_error *error)
{
    struct ls_trainer *t = walk->t;
    const struct workers *w = t->workers;
    struct ls_state *outer = workers_outer(t);
    const struct ls_zero_slice *part = outer->slices[i].part;
    size_t bytes = ls_delta_sum_bytes(type_of(t));
    ls_delta_decode(&t->ops, type_of(t),
                    (char *)t->memory.exchange.sums + (size_t)walk->elements * bytes, part->count,
                    w->scales[w->place[i]], outer->gradient + part->gradient);
    if (part->second >= 0) /* a tied table's deltas come in one */
        ls_fill_zero(&t->ops, (size_t)part->count * sizeof(float), outer->gradient + part->second);
    (void)error;
    return LS_OK;
}

/* ---- the outer step -------------------------------------------------------------------------- */

/* Calls back for runs of slices of the fragment that are of one set. */
typedef int run_visit(struct ls_trainer *t, int set, const struct ls_slice *slices, int count,
                      struct ls_error *error);

static int runs_visit(struct ls_trainer *t, run_visit *visit, struct ls_error *error)
{
    const struct workers *w = t->workers;
    const struct ls_params *params = &t->params;
    int status = LS_OK;
    for (int i = 0, end; i < params->count && !status; i = end) {
        int set = params->units[params->list[i].unit].set;
        end = i + 1;
        if (w->fragment[i] != workers_fragment(w))
            continue;
        while (end < params->count && w->fragment[end] == w->fragment[i] &&
               params->units[params->list[end].unit].set == set)
            end++;
        status = visit(t, set, &workers_outer(t)->slices[i], end - i, error);
    }
    return status;
}

static int run_square(struct ls_trainer *t, int set, const struct ls_slice *slices, int count,
                      struct ls_error *error)
{
    struct ls_state *outer = workers_outer(t);
    return ls_gradient_square(&outer->optimizer, slices, count, outer->gradient, &t->ops,
                              &outer->squares[set], error);
}

static int run_update(struct ls_trainer *t, int set, const struct ls_slice *slices, int count,
                      struct ls_error *error)
{
    struct ls_state *outer = workers_outer(t);
    const struct ls_optim_step update = {workers_turn(t->workers), outer->optimizer.config.lr,
                                         outer->gradient, 1.0f / (float)t->workers->members};
    (void)set;
    return ls_optimizer_step(&outer->optimizer, &t->ops, slices, count, &update, error);
}

/* Of the mean delta. */
static int norm_take(struct ls_trainer *t, struct ls_error *error)
{
    struct workers *w = t->workers;
    struct ls_state *outer = workers_outer(t);
    for (int set = 0; set < LS_SETS_MAX; set++)
        ls_exact_clear(&outer->squares[set]);
    int status = runs_visit(t, run_square, error);
    if (!status)
        status = ls_queue_synchronise(&t->ops.queue, error);
    if (!status)
        status = ls_state_norm(outer, &w->outer_norm, error);
    w->outer_norm /= w->members;
    if (!status && !isfinite(w->outer_norm))
        status = ls_error_set(error, LS_ENUMERIC,
                              "after step %ld the mean of the workers' deltas is not finite: the "
                              "global parameters were not updated. Go on from the newest "
                              "checkpoint with a lower optim.lr",
                              (long)(w->begin + w->interval));
    return status;
}

static void piece_mix(const struct both *both)
{
    struct ls_trainer *t = both->walk->t;
    ls_mix(&t->ops, both->global, both->values, both->count, (float)t->config.async.mixing);
}

static int slice_mix(struct walk *walk, int i, struct ls_error *error)
{
    return workers_visit(walk, i, LS_READS | LS_WRITES, piece_mix, error);
}

static void piece_copy(const struct both *both)
{
    ls_copy(&both->walk->t->ops, (size_t)both->count * sizeof(float), both->global, both->values);
}

struct clearing {
    struct ls_ops *ops;
    size_t bytes; /* of an element */
};

static int piece_clear(void *user, const struct ls_slice_piece *piece, struct ls_error *error)
{
    const struct clearing *clearing = user;
    ls_fill_zero(clearing->ops, (size_t)piece->count * clearing->bytes, piece->values);
    (void)error;
    return LS_OK;
}

/* As one that begins: with the global parameters, and an optimizer that has seen nothing. */
int exchange_renew(struct ls_trainer *t, int worker, struct ls_error *error)
{
    struct ls_state *unit = &t->units[worker];
    struct walk walk = {.t = t};
    int status = LS_OK;
    for (int i = 0; i < t->params.count && !status; i++) {
        const struct ls_slice *slice = &unit->slices[i];
        if (slice->param->frozen || slice->part->count == 0)
            continue;
        status = worker_visit(&walk, i, worker, LS_WRITES, piece_copy, error);
        for (int s = 0; s < ls_state_arrays(unit, slice->param) && !status; s++) {
            struct clearing clearing = {&t->ops, ls_dtype_bytes(ls_state_type(unit, s))};
            status = ls_slice_visit_array(&unit->optimizer, slice, LS_OPTIM_STATE + s, LS_WRITES,
                                          piece_clear, &clearing, error);
        }
    }
    unit->loss_scale = ls_loss_scale_begin(&t->loss_scale);
    return status;
}

int exchange_wait(struct ls_trainer *t, struct ls_error *error)
{
    int status =
        t->workers->exchange.lost
            ? ls_error_set(error, LS_ECOMM, "deltas of a worker that has ended are missing")
            : LS_OK;
    while (t->workers->exchange.stage < EXCHANGE_DONE && !status)
        status = exchange_advance(t, error);
    return status;
}

int exchange_end(struct ls_trainer *t, struct ls_error *error)
{
    struct workers *w = t->workers;
    struct ls_state *outer = workers_outer(t);
    struct walk walk;
    outer->gradient = ls_zero_gradient_base(outer->zero[0]);
    int status = fragment_visit(t, slice_decode, &walk, error);
    if (!status)
        status = norm_take(t, error);
    if (!status)
        status = runs_visit(t, run_update, error);
    if (!status)
        status = fragment_visit(t, slice_mix, &walk, error);
    for (int k = 0; k < w->each && !status; k++) {
        if (!workers_takes_part(w, k) || w->renew[w->group * w->each + k])
            status = exchange_renew(t, k, error);
        if (!status && !t->units[k].lender)
            status = ls_state_publish(&t->units[k], error);
        if (!status)
            status = ls_state_settle(&t->units[k], error);
    }
    return status;
}
