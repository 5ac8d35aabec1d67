/* A parameter server (async.mode = server): a step is one worker's gradient, added to the global
 * parameters in the order of lockstep/parallel/arrivals.h. The worker then takes these and computes
 * its next gradient on them, while others push theirs.
 *
 * Every group of ranks holds the global parameters and adds each gradient to them: it comes from
 * the group that computes its worker. A group computes what its own workers will push before it
 * waits for what others do, so groups compute at the same time.
 *
 * A worker takes samples when it takes parameters, the next batch of the run's order: its ticket.
 */
#include "train/server.h"

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
    int64_t elements = 0;
    *exchange = (struct exchange){0};
    for (int i = 0; i < unit->params->count; i++)
        elements += slice_elements(&unit->slices[i]);
    exchange->piece = elements;
    exchange->sums = ls_arena_take(arena, (size_t)elements * sizeof(float));
}

/* ---- making and ending ----------------------------------------------------------------------- */

int server_open(struct ls_trainer *t, struct ls_error *error)
{
    struct workers *w = t->workers;
    struct server *s = w->server = calloc(1, sizeof *s);
    size_t workers = (size_t)w->count, each = (size_t)w->each;
    int64_t times[WORKERS_MAX];
    struct ls_arrival_rule rule = {w->count, (int32_t)t->config.async.staleness};
    if (!s)
        return ls_error_set(error, LS_ENOMEM, "no memory for a parameter server");
    s->ticket = calloc(workers, sizeof *s->ticket);
    s->pushes = calloc(each, sizeof *s->pushes);
    if (!s->ticket || !s->pushes)
        return ls_error_set(error, LS_ENOMEM, "no memory for a parameter server");
    int status = ls_config_times(&t->config, times, error);
    if (!status)
        status = ls_arrivals_of_times(rule, times, &s->arrivals, error);
    return status ? status : ls_clocks_init(&s->clocks, rule, error);
}

void server_close(struct server *s)
{
    if (!s)
        return;
    ls_arrivals_free(s->arrivals);
    ls_clocks_release(&s->clocks);
    free(s->ticket);
    free(s->pushes);
    free(s);
}

/* Tickets of those that take the parameters as they are now, by index. */
static void tickets_give(struct server *s)
{
    for (int i = 0; i < s->clocks.rule.workers; i++)
        if (s->clocks.pulled[i] == s->clocks.version)
            s->ticket[i] = s->tickets++;
}

void server_seek(struct ls_trainer *t, int64_t event)
{
    struct workers *w = t->workers;
    struct server *s = w->server;
    struct ls_arrival arrival;
    s->tickets = 0;
    ls_arrivals_seek(s->arrivals, 0, &s->clocks);
    tickets_give(s);
    while (s->clocks.version < event && ls_arrivals_next(s->arrivals, &s->clocks, &arrival))
        tickets_give(s);
    for (int k = 0; k < w->each; k++)
        s->pushes[k].ready = false;
}

/* ---- a worker's gradient --------------------------------------------------------------------- */

static int gradient_compute(struct ls_trainer *t, int worker, struct ls_error *error)
{
    struct workers *w = t->workers;
    struct push *push = &w->server->pushes[worker];
    struct ls_state *unit = &t->units[worker];
    struct train_batch batch;
    int64_t ticket = w->server->ticket[w->group * w->each + worker];
    unit->step = ticket;
    unit->samples = ticket * t->config.batch.global;
    t->state = unit;
    t->posted = false;
    int status = step_gradient(t, &batch, &push->gradient, &push->report, error);
    if (!status)
        status = ls_state_settle(unit, error);
    if (status)
        return status;
    unit->step++;
    unit->samples += t->config.batch.global;
    step_report(t, &batch, &push->gradient, &push->report);
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
    for (int k = 0; k < w->each && !status; k++) {
        int worker = w->group * w->each + k;
        bool computes = s->clocks.pulled[worker] != LS_PULLED_NONE && !s->pushes[k].ready;
        if (computes && (w->groups > 1 || worker == next))
            status = gradient_compute(t, k, error);
    }
    return status;
}

/* ---- it goes to all groups ------------------------------------------------------------------- */

/* As it is sent; towards the newest parameters corrected, if the recipe says so: then of a tied
 * table the sum of both. */
static void gradient_pack(struct ls_trainer *t, int worker)
{
    const struct ls_state *unit = &t->units[worker], *outer = workers_outer(t);
    float lambda = (float)t->config.async.compensation, *to = t->memory.exchange.sums;
    for (int i = 0; i < t->params.count; i++) {
        const struct ls_slice *slice = &unit->slices[i];
        int64_t count = slice->part->count, second = slice->part->second;
        if (slice_elements(slice) == 0)
            continue;
        ls_copy(&t->ops, (size_t)count * sizeof *to, unit->gradient + slice->part->gradient, to);
        if (second >= 0 && lambda > 0) {
            ls_add(&t->ops, LS_F32, count, to, unit->gradient + second, to);
            ls_fill_zero(&t->ops, (size_t)count * sizeof *to, to + count);
        } else if (second >= 0) {
            ls_copy(&t->ops, (size_t)count * sizeof *to, unit->gradient + second, to + count);
        }
        if (lambda > 0)
            ls_compensate(&t->ops, to, outer->slices[i].master, slice->master, count, lambda);
        to += slice_elements(slice);
    }
}

static void gradient_unpack(struct ls_trainer *t)
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
    if (owner == w->group) {
        workers_note(t, &push->report, note);
        note[NOTE_GRADIENT_NORM] = push->gradient.norm;
        note[NOTE_GRADIENT_LOSS] = (double)push->gradient.loss;
        gradient_pack(t, worker % w->each);
    }
    double start_s = ls_now_s();
    ls_comm_label(w->across, "gradient");
    int status = ls_queue_synchronise(&t->ops.queue, error);
    if (!status)
        status = ls_broadcast(w->across, note, (int64_t)w->note_size, LS_U64, owner, error);
    if (!status)
        status = ls_broadcast(w->across, x->sums, x->piece, LS_F32, owner, error);
    w->exchange.wait_s += ls_now_s() - start_s;
    if (!status)
        gradient_unpack(t);
    return status;
}

/* ---- an event -------------------------------------------------------------------------------- */

/* Collective over t->world. Workers that need not wait go on from the new parameters. */
static int parameters_pull(struct ls_trainer *t, struct ls_error *error)
{
    const struct workers *w = t->workers;
    struct server *s = w->server;
    const struct ls_state *outer = workers_outer(t);
    int status = LS_OK;
    tickets_give(s);
    for (int k = 0; k < w->each && !status; k++) {
        struct ls_state *unit = &t->units[k];
        if (s->clocks.pulled[w->group * w->each + k] != s->clocks.version)
            continue;
        for (int i = 0; i < t->params.count; i++)
            if (slice_elements(&unit->slices[i]) > 0)
                ls_copy(&t->ops, (size_t)unit->slices[i].part->count * sizeof(float),
                        outer->slices[i].master, unit->slices[i].master);
        status = ls_state_publish(unit, error);
        if (!status)
            status = ls_state_settle(unit, error);
        s->pushes[k].ready = false;
    }
    return status;
}

static float rate_of(const struct ls_trainer *t, const struct ls_arrival *arrival)
{
    float lr = ls_learning_rate(&workers_outer(t)->optimizer.config, arrival->event + 1);
    int64_t staleness = ls_arrival_staleness(arrival);
    bool divides = t->config.async.staleness_lr == LS_CONFIG_INVERSE && staleness > 1;
    return divides ? lr / (float)staleness : lr;
}

static int event_run(struct ls_trainer *t, struct ls_step_report *report, double *note,
                     struct ls_error *error)
{
    struct workers *w = t->workers;
    struct server *s = w->server;
    struct ls_arrival arrival;
    int worker = ls_arrivals_worker(s->arrivals, s->clocks.version);
    int64_t ticket = s->ticket[worker];
    int status = gradients_compute(t, worker, error);
    if (!status)
        status = gradient_send(t, worker, note, error);
    if (status)
        return status;
    LS_ASSERT(ls_arrivals_next(s->arrivals, &s->clocks, &arrival));
    const struct train_gradient gradient = {1, note[NOTE_GRADIENT_NORM],
                                            (float)note[NOTE_GRADIENT_LOSS], 0};
    *report = (struct ls_step_report){.step = arrival.event + 1, .lr = rate_of(t, &arrival)};
    t->state = workers_outer(t);
    status = step_update(t, &gradient, false, report, error);
    if (status)
        return status;
    t->state->step = report->step;
    t->state->samples = report->step * t->config.batch.global;
    report->push = (struct ls_push_report){.is = true,
                                           .worker = worker,
                                           .clock = arrival.clock,
                                           .ticket = ticket,
                                           .staleness = ls_arrival_staleness(&arrival)};
    return parameters_pull(t, error);
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
    t->state = outer;
    /* A gradient that is not pushed yet is no part of the state. */
    for (int k = 0; k < w->each; k++) {
        t->units[k].step = outer->step;
        t->units[k].samples = outer->samples;
    }
    return status;
}
