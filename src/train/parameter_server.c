/* A parameter server (async.mode = server): a step is one worker's gradient, added to the global
 * parameters in the order of lockstep/parallel/arrivals.h. The worker then takes these and computes
 * its next gradient on them, while others push theirs.
 *
 * Every group of ranks holds the global parameters and adds each gradient to them: it comes from
 * the group that computes its worker. A group computes what its own workers will push before it
 * waits for what others do, so groups compute at the same time.
 *
 * A worker takes samples when it takes parameters, the next batch of the order: its ticket. */
#include "train/parameter_server.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- memory ---------------------------------------------------------------------------------- */

/* Gradients of a slice, as they are sent: of a tied table two. */
static int64_t slice_elements(const struct ls_slice *slice)
{
    if (slice->param->frozen)
        return 0;
    return slice->part->count * (slice->part->second >= 0 ? 2 : 1);
}

void server_take(const struct memory_request *r, struct ls_arena *arena, struct exchange *exchange)
{
    const struct ls_state *unit = r->units;
    *exchange = (struct exchange){0};
    for (int i = 0; i < unit->params->count; i++) {
        exchange->piece += slice_elements(&unit->slices[i]);
        exchange->masters += unit->slices[i].param->frozen ? 0 : unit->slices[i].part->count;
    }
    exchange->sums = ls_arena_take(arena, (size_t)exchange->piece * sizeof(float));
    if (r->config->parallel.servers > 0)
        exchange->deltas = ls_arena_take(arena, (size_t)exchange->masters * sizeof(float));
}

/* ---- making and ending ----------------------------------------------------------------------- */

int server_open(struct ls_trainer *t, struct ls_error *error)
{
    struct workers *w = t->workers;
    struct server *s = w->server = calloc(1, sizeof *s);
    size_t workers = (size_t)w->count;
    int64_t times[WORKERS_MAX];
    struct ls_arrival_rule rule = {w->count, (int32_t)t->config.async.staleness};
    if (!s)
        return ls_no_memory(error, "for a parameter server");
    s->lost = -1;
    s->ticket = calloc(workers, sizeof *s->ticket);
    s->given = calloc(workers, sizeof *s->given);
    s->renewed = calloc(workers, sizeof *s->renewed);
    s->pairs = calloc(workers, sizeof *s->pairs);
    s->pushes = calloc((size_t)w->each, sizeof *s->pushes);
    s->pushed = calloc((size_t)w->each * w->note_size, sizeof *s->pushed);
    s->order = calloc((size_t)w->interval, sizeof *s->order);
    s->callers = calloc(workers, sizeof *s->callers);
    s->calls = calloc(workers * w->note_size, sizeof *s->calls);
    if (!s->ticket || !s->given || !s->renewed || !s->pairs || !s->pushes || !s->pushed ||
        !s->order || !s->callers || !s->calls)
        return ls_no_memory(error, "for a parameter server");
    for (int k = 0; k < w->each; k++)
        s->pushes[k].note = s->pushed + (size_t)k * w->note_size;
    int status = ls_clocks_init(&s->clocks, rule, error);
    if (status || t->config.async.order == LS_CONFIG_BY_CLOCK)
        return status;
    status = ls_config_times(&t->config, times, error);
    return status ? status : ls_arrivals_of_times(rule, times, &s->arrivals, error);
}

int server_close(struct server *s, struct ls_error *error)
{
    if (!s)
        return LS_OK;
    int status = ls_arrival_log_close(s->log, error);
    for (int i = 0; i < s->clocks.rule.workers && s->pairs; i++)
        ls_comm_free(s->pairs[i]);
    ls_arrivals_free(s->arrivals);
    ls_clocks_release(&s->clocks);
    free(s->ticket);
    free(s->given);
    free(s->renewed);
    free(s->pairs);
    free(s->pushes);
    free(s->pushed);
    free(s->order);
    free(s->callers);
    free(s->calls);
    free(s);
    return status;
}

/* Tickets of those that take the parameters as they are now and have none yet, by index. */
static void tickets_give(struct server *s)
{
    for (int i = 0; i < s->clocks.rule.workers; i++)
        if (s->clocks.pulled[i] == s->clocks.version && s->given[i] != s->clocks.version) {
            s->given[i] = s->clocks.version;
            s->ticket[i] = s->tickets++;
        }
}

void server_leave(struct server *s, int worker)
{
    ls_clocks_leave(&s->clocks, worker);
    tickets_give(s);
}

bool server_leaves(struct server *s, const struct ls_arrivals *order)
{
    int64_t at = 0;
    int worker;
    bool any = false;
    while (order && ls_arrivals_changed(order, s->clocks.version, LS_ARRIVAL_LEFT, &at, &worker)) {
        any = any || !s->clocks.gone[worker];
        server_leave(s, worker);
    }
    return any;
}

/* What it computed on is lost, and the batch that it has not pushed is still its own. */
static void server_renew(struct server *s, int worker)
{
    if (s->clocks.pulled[worker] != LS_PULLED_NONE)
        s->given[worker] = s->clocks.version;
    ls_clocks_renew(&s->clocks, worker);
    s->renewed[worker] = true;
    tickets_give(s);
}

struct ls_arrival server_push(struct server *s, const struct ls_arrivals *order, int worker,
                              int64_t *ticket)
{
    int64_t at = 0;
    int renewed;
    server_leaves(s, order);
    *ticket = s->ticket[worker];
    struct ls_arrival arrival = ls_clocks_push(&s->clocks, worker);
    tickets_give(s);
    while (order &&
           ls_arrivals_changed(order, s->clocks.version, LS_ARRIVAL_RENEWED, &at, &renewed))
        server_renew(s, renewed);
    return arrival;
}

void server_tell(struct ls_trainer *t, const struct ls_arrival *arrival, int64_t ticket)
{
    const struct workers *w = t->workers;
    const int64_t i = arrival->event - w->begin;
    const double *note = w->notes + (size_t)i * w->note_size;
    server_report(t, arrival, ticket, &w->reports[i]);
    w->reports[i].skipped =
        !isfinite(note[NOTE_GRADIENT_LOSS]) || !isfinite(note[NOTE_GRADIENT_NORM]);
}

int server_seek(struct ls_trainer *t, int64_t event, const char *run, struct ls_error *error)
{
    struct workers *w = t->workers;
    struct server *s = w->server;
    struct ls_arrivals *before;
    struct ls_arrival_rule rule = s->clocks.rule;
    int64_t ticket;
    ls_clocks_release(&s->clocks);
    s->sought = true;
    int status = ls_clocks_init(&s->clocks, rule, error);
    if (!status)
        status = server_log_open(t, event, run, &before, error);
    if (status)
        return status;
    s->tickets = 0;
    s->copied = event;
    s->noted = w->stage == WORKERS_MET;
    memset(s->given, -1, (size_t)w->count * sizeof *s->given);
    tickets_give(s);
    const struct ls_arrivals *order = before ? before : s->arrivals;
    while (s->clocks.version < event) {
        struct ls_arrival arrival =
            server_push(s, order, ls_arrivals_worker(order, s->clocks.version), &ticket);
        if (w->stage == WORKERS_MET && arrival.event >= w->begin)
            server_tell(t, &arrival, ticket);
    }
    memset(s->renewed, 0, (size_t)w->count * sizeof *s->renewed); /* the state has that */
    for (int k = 0; k < w->each; k++)
        s->pushes[k].ready = false;
    if (before && (w->all == w->groups || *t->config.async.follow)) { /* to its end */
        ls_arrivals_free(s->arrivals);
        s->arrivals = before;
        return LS_OK;
    }
    ls_arrivals_free(before);
    return LS_OK;
}

/* ---- a worker's gradient --------------------------------------------------------------------- */

int server_gradient(struct ls_trainer *t, int worker, int64_t ticket, struct ls_error *error)
{
    struct workers *w = t->workers;
    struct push *push = &w->server->pushes[worker];
    struct ls_state *unit = &t->units[worker];
    struct train_gradient gradient;
    struct ls_step_report report = {0};
    struct train_batch batch;
    unit->step = ticket;
    unit->samples = ticket * t->config.batch.global;
    t->posted = false;
    int status = unit_enter(t, unit, error);
    if (!status)
        status = step_gradient(t, false, &batch, &gradient, &report, error);
    if (!status)
        status = ls_state_settle(unit, error);
    if (status)
        return status;
    unit->step++;
    unit->samples += t->config.batch.global;
    step_report(t, &batch, &gradient, &report);
    workers_note(t, &report, push->note);
    push->note[NOTE_GRADIENT_NORM] = gradient.norm;
    push->note[NOTE_GRADIENT_LOSS] = (double)gradient.loss;
    push->ready = true;
    return LS_OK;
}

/* Collective over t->world. What this group's workers will push, if they do not wait; with one
 * group only what comes next. */
static int gradients_compute(struct ls_trainer *t, int next, struct ls_error *error)
{
    const struct workers *w = t->workers;
    const struct server *s = w->server;
    int status = LS_OK;
    for (int k = 0; k < w->held && !status; k++) {
        int worker = w->group * w->each + k;
        bool computes = s->clocks.pulled[worker] != LS_PULLED_NONE && !s->clocks.gone[worker] &&
                        !s->pushes[k].ready;
        if (computes && (w->groups > 1 || worker == next))
            status = server_gradient(t, k, s->ticket[worker], error);
    }
    return status;
}

/* ---- it goes to all groups ------------------------------------------------------------------- */

void server_pack(struct ls_trainer *t, int worker)
{
    const struct ls_state *unit = &t->units[worker];
    float *to = t->memory.exchange.sums;
    for (int i = 0; i < t->params.count; i++) {
        const struct ls_zero_slice *part = unit->slices[i].part;
        size_t bytes = (size_t)part->count * sizeof *to;
        if (slice_elements(&unit->slices[i]) == 0)
            continue;
        ls_copy(&t->ops, bytes, unit->gradient + part->gradient, to);
        if (part->second >= 0)
            ls_copy(&t->ops, bytes, unit->gradient + part->second, to + part->count);
        to += slice_elements(&unit->slices[i]);
    }
}

/* The square of a gradient that is too large by `scale` is too large by that once more. */
struct correcting {
    struct ls_trainer *t;
    float lambda, *to;
    const float *now;
};

static int piece_correct(void *user, const struct ls_slice_piece *piece, struct ls_error *error)
{
    const struct correcting *c = user;
    ls_compensate(&c->t->ops, c->to + piece->from, c->now + piece->from, piece->values,
                  piece->count, c->lambda);
    (void)error;
    return LS_OK;
}

int server_correct(struct ls_trainer *t, const struct ls_state *unit, const float *then,
                   double scale, struct ls_error *error)
{
    const struct ls_state *outer = workers_outer(t);
    float lambda = (float)(t->config.async.compensation / scale), *to = t->memory.exchange.sums;
    int status = LS_OK;
    for (int i = 0; i < t->params.count && lambda > 0 && !status; i++) {
        const struct ls_slice *slice = &outer->slices[i];
        int64_t count = slice->part->count;
        if (slice_elements(slice) == 0)
            continue;
        if (slice->part->second >= 0) {
            ls_add(&t->ops, LS_F32, count, to, to + count, to);
            ls_fill_zero(&t->ops, (size_t)count * sizeof *to, to + count);
        }
        struct correcting correcting = {t, lambda, to, slice->master};
        if (unit)
            status = ls_slice_visit_array(&unit->optimizer, &unit->slices[i], LS_OPTIM_MASTER,
                                          LS_READS, piece_correct, &correcting, error);
        else
            ls_compensate(&t->ops, to, slice->master, then, count, lambda);
        to += slice_elements(slice);
        then = then ? then + count : NULL;
    }
    return status;
}

/* Local. Masters of one unit or, packed one behind the other, of the exchange. Of both only what is
 * trained. */
struct masters {
    const struct ls_state *unit; /* NULL: packed */
    float *packed;
};
/* Those of a worker may lie in a tier, the others are where the device has them. */
struct copying {
    struct ls_ops *ops;
    float *there;
    bool writes; /* to the worker's */
};

static int piece_copy(void *user, const struct ls_slice_piece *piece, struct ls_error *error)
{
    const struct copying *c = user;
    float *there = c->there + piece->from;
    ls_copy(c->ops, (size_t)piece->count * sizeof *there, c->writes ? there : piece->values,
            c->writes ? piece->values : there);
    (void)error;
    return LS_OK;
}

static int masters_copy(struct ls_trainer *t, struct masters from, struct masters to,
                        struct ls_error *error)
{
    const bool writes = to.unit != NULL;
    const struct ls_state *unit = writes ? to.unit : from.unit;
    const struct masters *there = writes ? &from : &to;
    float *packed = there->packed;
    int status = LS_OK;
    for (int i = 0; i < t->params.count && !status; i++) {
        const struct ls_slice *slice = &unit->slices[i];
        if (slice_elements(slice) == 0)
            continue;
        struct copying copying = {&t->ops, there->unit ? there->unit->slices[i].master : packed,
                                  writes};
        status = ls_slice_visit_array(&unit->optimizer, slice, LS_OPTIM_MASTER,
                                      writes ? LS_WRITES : LS_READS, piece_copy, &copying, error);
        if (!there->unit)
            packed += slice->part->count;
    }
    return status;
}

int server_masters(struct ls_trainer *t, struct ls_state *unit, float *packed, bool writes,
                   struct ls_error *error)
{
    const struct masters held = {.unit = unit}, sent = {.packed = packed};
    return masters_copy(t, writes ? sent : held, writes ? held : sent, error);
}

int server_states(struct ls_trainer *t, bool takes, struct ls_error *error)
{
    const struct workers *w = t->workers;
    const bool serves = w->group == w->owner;
    struct ls_state *outer = workers_outer(t);
    float *packed = t->memory.exchange.sums, *gradient = ls_zero_gradient_base(outer->zero[0]);
    int status = LS_OK;
    for (int i = 0; i < t->params.count; i++) {
        const struct ls_slice *slice = &outer->slices[i];
        const int64_t count = slice->param->frozen ? 0 : slice->part->count;
        const int arrays = count ? ls_state_arrays(outer, slice->param) : 0;
        for (int s = 0; s < arrays && !status; s++) {
            const size_t bytes = (size_t)count * ls_dtype_bytes(ls_state_type(outer, s));
            float *held = s ? gradient + slice->part->gradient : packed;
            if (takes)
                ls_copy(&t->ops, bytes, held, slice->state[s]);
            else
                status = ls_broadcast(w->across, serves ? slice->state[s] : held, (int64_t)bytes,
                                      LS_U8, w->owner, error);
        }
        packed += count;
    }
    return status;
}

void server_unpack(struct ls_trainer *t)
{
    struct ls_state *outer = workers_outer(t);
    const float *from = t->memory.exchange.sums;
    outer->gradient = ls_zero_gradient_base(outer->zero[0]);
    for (int i = 0; i < t->params.count; i++) {
        const struct ls_slice *slice = &outer->slices[i];
        size_t bytes = (size_t)slice->part->count * sizeof *from;
        if (slice_elements(slice) == 0)
            continue;
        ls_copy(&t->ops, bytes, from, outer->gradient + slice->part->gradient);
        if (slice->part->second >= 0)
            ls_copy(&t->ops, bytes, from + slice->part->count,
                    outer->gradient + slice->part->second);
        from += slice_elements(slice);
    }
}

/* Collective over t->whole. What the group that computed it says of it, and the gradient. */
static int gradient_send(struct ls_trainer *t, int worker, double *note, struct ls_error *error)
{
    struct workers *w = t->workers;
    struct server *s = w->server;
    struct exchange *x = &t->memory.exchange;
    int owner = worker / w->each;
    const struct push *push = &s->pushes[worker % w->each];
    int status = LS_OK;
    if (owner == w->group) {
        memcpy(note, push->note, w->note_size * sizeof *note);
        server_pack(t, worker % w->each);
        status = server_correct(t, &t->units[worker % w->each], NULL, note[NOTE_LOSS_SCALE], error);
    }
    double start_s = ls_now_s();
    ls_comm_label(w->across, "gradient");
    if (!status)
        status = ls_queue_synchronise(&t->ops.queue, error);
    if (!status)
        status = ls_broadcast(w->across, note, (int64_t)w->note_size, LS_U64, owner, error);
    if (!status)
        status = ls_broadcast(w->across, x->sums, x->piece, LS_F32, owner, error);
    w->exchange.wait_s += ls_now_s() - start_s;
    if (!status)
        server_unpack(t);
    return status;
}

/* ---- an event -------------------------------------------------------------------------------- */

/* Collective over t->world. Workers that need not wait go on from the new parameters, as do those
 * that begin anew. */
static int parameters_pull(struct ls_trainer *t, struct ls_error *error)
{
    const struct workers *w = t->workers;
    struct server *s = w->server;
    const struct masters outer = {.unit = workers_outer(t)};
    int status = LS_OK;
    for (int k = 0; k < w->held && !status; k++) {
        int worker = w->group * w->each + k;
        if (s->clocks.pulled[worker] != s->clocks.version && !s->renewed[worker])
            continue;
        s->renewed[worker] = false;
        status = masters_copy(t, outer, (struct masters){.unit = &t->units[k]}, error);
        if (!status)
            status = server_pulled(t, k, workers_outer(t)->loss_scale.scale, error);
    }
    return status;
}

int server_pulled(struct ls_trainer *t, int worker, double scale, struct ls_error *error)
{
    struct ls_state *unit = &t->units[worker];
    unit->loss_scale.scale = scale;
    int status = ls_state_publish(unit, error);
    if (!status)
        status = ls_state_settle(unit, error);
    t->workers->server->pushes[worker].ready = false;
    return status;
}

void server_report(struct ls_trainer *t, const struct ls_arrival *arrival, int64_t ticket,
                   struct ls_step_report *report)
{
    float lr = ls_learning_rate(&workers_outer(t)->optimizer.config, arrival->event + 1);
    int64_t staleness = ls_arrival_staleness(arrival);
    bool divides = t->config.async.staleness_lr == LS_CONFIG_INVERSE && staleness > 1;
    *report = (struct ls_step_report){.step = arrival->event + 1,
                                      .lr = divides ? lr / (float)staleness : lr,
                                      .push = {.is = true,
                                               .worker = arrival->worker,
                                               .clock = arrival->clock,
                                               .ticket = ticket,
                                               .staleness = staleness}};
}

int server_add(struct ls_trainer *t, const double *note, struct ls_step_report *report,
               struct ls_error *error)
{
    const struct train_gradient gradient = {.scale = note[NOTE_LOSS_SCALE],
                                            .norm = note[NOTE_GRADIENT_NORM],
                                            .loss = (float)note[NOTE_GRADIENT_LOSS]};
    t->state = workers_outer(t);
    int status = step_update(t, &gradient, false, report, error);
    if (status)
        return status;
    t->state->step = report->step;
    t->state->samples = report->step * t->config.batch.global;
    return LS_OK;
}

int server_next(const struct ls_trainer *t, int *worker, struct ls_error *error)
{
    const struct server *s = t->workers->server;
    int64_t event = s->clocks.version;
    *worker = -1;
    if (s->arrivals && event >= ls_arrivals_end(s->arrivals))
        return ls_config_reject(&t->config, LS_EDATA, "async.order", error,
                                "the log that is followed ends with %lld events, and step %lld is "
                                "not among them: a run goes on by the clock only with "
                                "parallel.servers = 1 and no async.follow",
                                (long long)event, (long long)event + 1);
    if (s->arrivals)
        *worker = ls_arrivals_worker(s->arrivals, event);
    return LS_OK;
}

static int event_run(struct ls_trainer *t, struct ls_step_report *report, double *note,
                     struct ls_error *error)
{
    struct server *s = t->workers->server;
    int64_t ticket;
    int worker;
    int status = server_leaves(s, s->arrivals) ? parameters_pull(t, error) : LS_OK;
    if (!status)
        status = server_next(t, &worker, error);
    if (!status)
        status = gradients_compute(t, worker, error);
    if (!status)
        status = gradient_send(t, worker, note, error);
    if (status)
        return status;
    struct ls_arrival arrival = server_push(s, s->arrivals, worker, &ticket);
    server_report(t, &arrival, ticket, report);
    status = server_add(t, note, report, error);
    return status ? status : parameters_pull(t, error);
}

int server_run(struct ls_trainer *t, struct ls_error *error)
{
    struct workers *w = t->workers;
    struct ls_state *outer = workers_outer(t);
    int status = ls_state_settle(outer, error);
    w->begin = outer->step;
    w->exchange.wait_s = 0;
    for (int64_t i = 0; i < w->interval && !status; i++)
        status = event_run(t, &w->reports[i], w->notes + (size_t)i * w->note_size, error);
    server_rest(t);
    return status;
}

int server_rescued(struct ls_trainer *t, struct ls_error *error)
{
    struct workers *w = t->workers;
    struct server *s = w->server;
    const struct ls_log *log = ls_comm_rank(t->whole) == 0 ? t->log : NULL;
    int status = LS_OK;
    bool served = w->rescue.from == w->count;
    if (!served)
        ls_log(log, LS_LOG_WARNING,
               "a rank of the server died: the run goes on behind step %ld, as worker %d had it; "
               "workers that went on from there begin anew",
               (long)s->clocks.version, w->rescue.from);
    for (int i = 0; i < w->count; i++) {
        if (w->rescue.has[i])
            continue;
        if (served)
            ls_log(log, LS_LOG_WARNING, "a rank of worker %d died: it begins anew behind step %ld",
                   i, (long)s->clocks.version);
        if (s->clocks.pulled[i] == s->clocks.version)
            continue; /* as it would in any case */
        if (s->log && !status)
            status = ls_arrival_log_change(s->log, LS_ARRIVAL_RENEWED, i, error);
        server_renew(s, i);
    }
    status = ls_comm_agree(t->whole, status, error);
    if (status)
        return status;
    if (w->stage == WORKERS_MET)
        reports_pushes(t);
    w->rescue.found = false;
    return ls_comm_agree(t->whole, parameters_pull(t, error), error);
}

void server_rest(struct ls_trainer *t)
{
    struct ls_state *outer = workers_outer(t);
    t->state = outer;
    for (int k = 0; k < t->workers->held; k++) {
        t->units[k].step = outer->step;
        t->units[k].samples = outer->samples;
    }
}
