/* A parameter server with ranks of its own (parallel.servers = 1): they hold the global parameters
 * and add gradients in the order in which workers come, or in the one that is computed.
 *
 * A rank of a worker talks to the server rank of its place. It says that it is ready; the server
 * answers when its turn comes, and gets the gradient. If the worker need not wait (the bound of
 * staleness) parameters follow at once, otherwise as soon as the push that it waits for has been
 * added. At the end of an interval the server sends everybody to the meeting instead: who is ready
 * pushes behind it. There all learn who pushed, and take the global parameters, which the ranks of
 * workers evaluate. */
#include "train/parameter_server.h"

#include <math.h>
#include <string.h>
#include <time.h>

enum { TAG_READY = 1, TAG_ANSWER, TAG_GRADIENT, TAG_THEN, TAG_PARAMETERS };
enum answer { ANSWER_PUSH, ANSWER_PARAMETERS, ANSWER_MEET };

/* The rank of this one's place in another group. */
static int peer_of(const struct ls_trainer *t, int group)
{
    return group * ls_comm_size(t->world) + ls_comm_rank(t->world);
}

static bool corrects(const struct ls_trainer *t)
{
    return t->config.async.compensation > 0;
}

/* ---- a worker -------------------------------------------------------------------------------- */

static int answer_get(struct ls_trainer *t, enum answer *answer, struct ls_error *error)
{
    struct workers *w = t->workers;
    uint64_t word = 0;
    double start_s = ls_now_s();
    int status = ls_recv(t->whole, &word, 1, LS_U64, peer_of(t, w->owner), TAG_ANSWER, error);
    w->exchange.wait_s += ls_now_s() - start_s;
    *answer = (enum answer)word;
    return status;
}

/* *met: the meeting comes first. */
static int gradient_push(struct ls_trainer *t, bool *met, struct ls_error *error)
{
    struct workers *w = t->workers;
    struct exchange *x = &t->memory.exchange;
    enum answer answer = ANSWER_MEET;
    int server = peer_of(t, w->owner);
    int status = ls_send(t->whole, w->server->pushes->note, (int64_t)w->note_size, LS_U64, server,
                         TAG_READY, error);
    if (!status)
        status = answer_get(t, &answer, error);
    *met = answer == ANSWER_MEET;
    if (status || *met)
        return status;
    server_pack(t, 0);
    if (corrects(t))
        server_masters(t, t->units, x->deltas, false);
    status = ls_queue_synchronise(&t->ops.queue, error);
    if (!status)
        status = ls_send(t->whole, x->sums, x->piece, LS_F32, server, TAG_GRADIENT, error);
    if (!status && corrects(t))
        status = ls_send(t->whole, x->deltas, x->masters, LS_F32, server, TAG_THEN, error);
    return status;
}

static int parameters_get(struct ls_trainer *t, bool *met, struct ls_error *error)
{
    struct workers *w = t->workers;
    struct exchange *x = &t->memory.exchange;
    enum answer answer = ANSWER_MEET;
    uint64_t ticket = 0;
    int status = answer_get(t, &answer, error);
    *met = answer == ANSWER_MEET;
    if (status || *met)
        return status;
    int server = peer_of(t, w->owner);
    status = ls_recv(t->whole, &ticket, 1, LS_U64, server, TAG_PARAMETERS, error);
    if (!status)
        status = ls_recv(t->whole, x->deltas, x->masters, LS_F32, server, TAG_PARAMETERS, error);
    if (status)
        return status;
    w->server->own = (int64_t)ticket;
    server_masters(t, t->units, x->deltas, true);
    return server_pulled(t, 0, error);
}

static int worker_run(struct ls_trainer *t, struct ls_error *error)
{
    struct workers *w = t->workers;
    struct push *push = w->server->pushes;
    bool waits = w->server->clocks.pulled[w->group] == LS_PULLED_NONE, met = false;
    int status = LS_OK;
    w->server->own = w->server->ticket[w->group];
    while (!status && !met) {
        if (!waits && !push->ready)
            status = server_gradient(t, 0, w->server->own, error);
        if (!status && !waits)
            status = gradient_push(t, &met, error);
        waits = !met;
        if (!status && !met)
            status = parameters_get(t, &met, error);
        waits = met;
    }
    return status;
}

/* ---- who comes ------------------------------------------------------------------------------- */

static int call_wait(struct ls_trainer *t, int worker, struct ls_error *error)
{
    struct server *s = t->workers->server;
    struct caller *caller = &s->callers[worker];
    if (caller->stage != CALLER_COMPUTES)
        return LS_OK;
    int status = ls_wait(&caller->request, error);
    caller->stage = CALLER_READY;
    caller->came = s->came++;
    return status;
}

/* Of those that are ready and whose push may come next the one that came first; -1: there is none.
 */
static int ready_first(const struct server *s, int next)
{
    int first = -1;
    for (int i = 0; i < s->clocks.rule.workers; i++)
        if (s->callers[i].stage == CALLER_READY && ls_clocks_admit(&s->clocks, i) &&
            (next < 0 || i == next) && (first < 0 || s->callers[i].came < s->callers[first].came))
            first = i;
    return first;
}

/* The first server rank looks who is ready. Once nobody has come for a while it waits for one that
 * computes, as ranks wait: who is late is then named. */
static int caller_choose(struct ls_trainer *t, int64_t *choice, struct ls_error *error)
{
    struct workers *w = t->workers;
    struct server *s = w->server;
    static const struct timespec pause = {.tv_nsec = 50000};
    double limit = t->config.comm.timeout_s / 2, start_s = ls_now_s();
    int next;
    int status = server_next(t, &next, error);
    while (!status && (*choice = ready_first(s, next)) < 0) {
        bool late = limit > 0 && ls_now_s() - start_s > limit;
        for (int i = 0; i < w->count && !status; i++)
            if (s->callers[i].stage == CALLER_COMPUTES &&
                (late || ls_test(&s->callers[i].request))) {
                status = call_wait(t, i, error);
                late = false;
            }
        ls_progress();
        if (!status && ready_first(s, next) < 0)
            nanosleep(&pause, NULL);
    }
    return status;
}

/* Collective over t->world. */
static int caller_next(struct ls_trainer *t, int *worker, struct ls_error *error)
{
    int64_t choice = 0;
    int status = ls_comm_rank(t->world) == 0 ? caller_choose(t, &choice, error) : LS_OK;
    if (!status)
        status = ls_broadcast(t->world, &choice, 1, LS_U64, 0, error);
    *worker = (int)choice;
    return status ? status : call_wait(t, *worker, error);
}

/* ---- the server ------------------------------------------------------------------------------ */

static int answer_send(struct ls_trainer *t, int worker, enum answer answer, struct ls_error *error)
{
    uint64_t word = answer;
    return ls_send(t->whole, &word, 1, LS_U64, peer_of(t, worker), TAG_ANSWER, error);
}

static int call_expect(struct ls_trainer *t, int worker, struct ls_error *error)
{
    struct workers *w = t->workers;
    struct caller *caller = &w->server->callers[worker];
    caller->stage = CALLER_COMPUTES;
    return ls_recv_start(t->whole, w->server->calls + (size_t)worker * w->note_size,
                         (int64_t)w->note_size, LS_U64, peer_of(t, worker), TAG_READY,
                         &caller->request, LS_HERE, error);
}

static int gradient_take(struct ls_trainer *t, int worker, struct ls_error *error)
{
    struct exchange *x = &t->memory.exchange;
    int peer = peer_of(t, worker);
    int status = answer_send(t, worker, ANSWER_PUSH, error);
    t->workers->server->callers[worker].stage = CALLER_WAITS;
    if (!status)
        status = ls_recv(t->whole, x->sums, x->piece, LS_F32, peer, TAG_GRADIENT, error);
    if (!status && corrects(t))
        status = ls_recv(t->whole, x->deltas, x->masters, LS_F32, peer, TAG_THEN, error);
    if (status)
        return status;
    server_correct(t, NULL, x->deltas);
    server_unpack(t);
    return LS_OK;
}

/* To those that may go on. */
static int parameters_send(struct ls_trainer *t, struct ls_error *error)
{
    struct server *s = t->workers->server;
    struct exchange *x = &t->memory.exchange;
    int status = LS_OK;
    bool packed = false;
    for (int i = 0; i < s->clocks.rule.workers && !status; i++) {
        uint64_t ticket = (uint64_t)s->ticket[i];
        if (s->clocks.pulled[i] != s->clocks.version)
            continue;
        if (!packed)
            server_masters(t, workers_outer(t), x->deltas, false);
        packed = true;
        status = ls_queue_synchronise(&t->ops.queue, error);
        if (!status)
            status = answer_send(t, i, ANSWER_PARAMETERS, error);
        if (!status)
            status = ls_send(t->whole, &ticket, 1, LS_U64, peer_of(t, i), TAG_PARAMETERS, error);
        if (!status)
            status = ls_send(t->whole, x->deltas, x->masters, LS_F32, peer_of(t, i), TAG_PARAMETERS,
                             error);
        if (!status)
            status = call_expect(t, i, error);
    }
    return status;
}

static int event_serve(struct ls_trainer *t, int64_t i, struct ls_error *error)
{
    struct workers *w = t->workers;
    struct server *s = w->server;
    double *note = w->notes + (size_t)i * w->note_size;
    int worker = 0;
    int64_t ticket;
    int status = caller_next(t, &worker, error);
    if (!status)
        status = gradient_take(t, worker, error);
    if (status)
        return status;
    memcpy(note, s->calls + (size_t)worker * w->note_size, w->note_size * sizeof *note);
    s->order[i] = worker;
    struct ls_arrival arrival = server_push(s, worker, &ticket);
    if (s->log)
        status = ls_arrival_log_add(s->log, &arrival, error);
    status = ls_comm_agree(t->world, status, error);
    server_report(t, &arrival, ticket, &w->reports[i]);
    if (!status)
        status = server_add(t, note, &w->reports[i], error);
    /* Who would take the last ones finds them at the meeting. */
    return status || i == w->interval - 1 ? status : parameters_send(t, error);
}

static int serve(struct ls_trainer *t, struct ls_error *error)
{
    struct workers *w = t->workers;
    struct server *s = w->server;
    int status = LS_OK;
    for (int i = 0; i < w->count && !status; i++) {
        s->callers[i].stage = CALLER_WAITS;
        if (s->clocks.pulled[i] != LS_PULLED_NONE)
            status = call_expect(t, i, error);
    }
    for (int64_t i = 0; i < w->interval && !status; i++)
        status = event_serve(t, i, error);
    for (int i = 0; i < w->count && !status; i++) {
        status = call_wait(t, i, error);
        if (!status)
            status = answer_send(t, i, ANSWER_MEET, error);
    }
    return status;
}

/* ---- the meeting ----------------------------------------------------------------------------- */

/* Collective over t->whole. Workers learn what happened. */
static int meet(struct ls_trainer *t, struct ls_error *error)
{
    struct workers *w = t->workers;
    struct server *s = w->server;
    struct exchange *x = &t->memory.exchange;
    struct ls_state *outer = workers_outer(t);
    bool server = w->group == w->owner;
    int64_t ticket;
    if (server)
        server_masters(t, outer, x->deltas, false);
    int status = ls_queue_synchronise(&t->ops.queue, error);
    if (!status)
        status = ls_broadcast(w->across, s->order, w->interval, LS_U64, w->owner, error);
    if (!status)
        status = ls_broadcast(w->across, w->notes, w->interval * (int64_t)w->note_size, LS_U64,
                              w->owner, error);
    if (!status)
        status = ls_broadcast(w->across, x->deltas, x->masters, LS_F32, w->owner, error);
    if (status || server)
        return status;
    for (int64_t i = 0; i < w->interval; i++) {
        const double *note = w->notes + (size_t)i * w->note_size;
        struct ls_arrival arrival = server_push(s, (int)s->order[i], &ticket);
        server_report(t, &arrival, ticket, &w->reports[i]);
        w->reports[i].skipped =
            !isfinite(note[NOTE_GRADIENT_LOSS]) || !isfinite(note[NOTE_GRADIENT_NORM]);
    }
    server_masters(t, outer, x->deltas, true);
    outer->step = s->clocks.version;
    outer->samples = outer->step * t->config.batch.global;
    if (s->clocks.pulled[w->group] != s->clocks.version)
        return LS_OK;
    server_masters(t, t->units, x->deltas, true);
    return server_pulled(t, 0, error);
}

int serving_run(struct ls_trainer *t, struct ls_error *error)
{
    struct workers *w = t->workers;
    int status = ls_state_settle(workers_outer(t), error);
    w->begin = workers_outer(t)->step;
    w->exchange.wait_s = 0;
    if (!status)
        status = w->group == w->owner ? serve(t, error) : worker_run(t, error);
    if (!status)
        status = meet(t, error);
    server_rest(t);
    return status;
}
