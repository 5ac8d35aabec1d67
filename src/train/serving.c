/* A parameter server with ranks of its own (parallel.servers = 1): they hold the global parameters
 * and add gradients in the order in which workers come, or in the one that is computed.
 *
 * A rank of a worker talks to the server rank of its place. It says that it is ready; the server
 * answers when its turn comes, and gets the gradient. If the worker need not wait (the bound of
 * staleness) parameters follow at once, otherwise as soon as the push that it waits for has been
 * added. At the end of an interval the server sends everybody to the meeting instead: who is ready
 * pushes behind it. There all learn who pushed, and take the global parameters, which the ranks of
 * workers evaluate.
 *
 * In a job whose ranks survive the death of one (ls_mpi_survives) a worker that lost a rank leaves:
 * the log says so, a gradient of which a part is missing is not added, nobody waits for that
 * worker, and the others go on to the end of the interval. There all keep what they have, and end
 * (workers_rescue.c). Each worker has a communicator of its own with the server, so what is lost
 * with it is nobody else's.
 *
 * If the server itself loses a rank, each worker still has the global parameters and the
 * optimizer's state of the last meeting, and keeps these. So in such a job the ranks of a worker
 * agree about each thing that comes, or does not. */
#include "train/parameter_server.h"

#include <string.h>
#include <time.h>

enum { TAG_READY = 1, TAG_ANSWER, TAG_GRADIENT, TAG_THEN, TAG_PARAMETERS };
/* The last one and more: not to the meeting, for that worker, behind it, was lost. */
enum answer { ANSWER_PUSH, ANSWER_PARAMETERS, ANSWER_MEET, ANSWER_PART };
enum { SERVER, WORKER }; /* ranks of a pair */
/* What comes before parameters: the batch that is the worker's, and its loss scale. */
struct pulled {
    int64_t ticket;
    double scale;
};

int serving_open(struct ls_trainer *t, struct ls_error *error)
{
    struct workers *w = t->workers;
    int status = LS_OK;
    for (int i = 0; i < w->count && !status; i++) {
        struct ls_comm **pair = &w->server->pairs[i];
        bool in = w->group == i || w->group == w->owner;
        status = ls_comm_split(w->across, !in, w->group == i, pair, error);
        if (status)
            continue;
        ls_comm_set_name(*pair, "server");
        if (in)
            continue;
        ls_comm_free(*pair);
        *pair = NULL;
    }
    return status;
}

/* Of a worker, with the server. */
static struct ls_comm *own_pair(const struct ls_trainer *t)
{
    return t->workers->server->pairs[t->workers->group];
}

/* Collective over t->world. A rank of the server may die between what it sends to two of them. */
static int came(struct ls_trainer *t, int status, struct ls_error *error)
{
    return rescue_applies(t) ? ls_comm_agree(t->world, status, error) : status;
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
    int status = ls_recv(own_pair(t), &word, 1, LS_U64, SERVER, TAG_ANSWER, error);
    w->exchange.wait_s += ls_now_s() - start_s;
    *answer = (enum answer)ls_min(word, ANSWER_MEET);
    if (word >= ANSWER_PART)
        w->server->lost = (int)(word - ANSWER_PART);
    return status;
}

/* *met: the meeting comes first. */
static int gradient_push(struct ls_trainer *t, bool *met, struct ls_error *error)
{
    struct workers *w = t->workers;
    struct exchange *x = &t->memory.exchange;
    enum answer answer = ANSWER_MEET;
    struct ls_comm *pair = own_pair(t);
    int status = ls_send(pair, w->server->pushes->note, (int64_t)w->note_size, LS_U64, SERVER,
                         TAG_READY, error);
    if (!status)
        status = answer_get(t, &answer, error);
    status = came(t, status, error);
    *met = answer == ANSWER_MEET;
    if (status || *met)
        return status;
    server_pack(t, 0);
    if (corrects(t))
        status = server_masters(t, t->units, x->deltas, false, error);
    if (!status)
        status = ls_queue_synchronise(&t->ops.queue, error);
    if (!status)
        status = ls_send(pair, x->sums, x->piece, LS_F32, SERVER, TAG_GRADIENT, error);
    if (!status && corrects(t))
        status = ls_send(pair, x->deltas, x->masters, LS_F32, SERVER, TAG_THEN, error);
    return came(t, status, error);
}

static int parameters_get(struct ls_trainer *t, bool *met, struct ls_error *error)
{
    struct workers *w = t->workers;
    struct exchange *x = &t->memory.exchange;
    enum answer answer = ANSWER_MEET;
    struct pulled pulled = {0};
    int status = came(t, answer_get(t, &answer, error), error);
    *met = answer == ANSWER_MEET;
    if (status || *met)
        return status;
    struct ls_comm *pair = own_pair(t);
    status = ls_recv(pair, &pulled, sizeof pulled, LS_U8, SERVER, TAG_PARAMETERS, error);
    if (!status)
        status = ls_recv(pair, x->deltas, x->masters, LS_F32, SERVER, TAG_PARAMETERS, error);
    status = came(t, status, error);
    if (status)
        return status;
    w->server->own = pulled.ticket;
    status = server_masters(t, t->units, x->deltas, true, error);
    return status ? status : server_pulled(t, 0, pulled.scale, error);
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

/* ---- what passes between the server and a worker --------------------------------------------- */

/* Local. What came of it: where the worker lost a rank, that is no failure of the server's. */
static int pair_ended(struct ls_trainer *t, int worker, int status, struct ls_error *error)
{
    if (status != LS_ECOMM || !rescue_applies(t) || rescue_lost(t, worker) < 0)
        return status;
    t->workers->server->callers[worker].broken = true;
    if (error)
        *error = (struct ls_error){0};
    return LS_OK;
}

static int words_send(struct ls_trainer *t, int worker, const void *words, int64_t count,
                      enum ls_dtype dtype, int tag, struct ls_error *error)
{
    struct server *s = t->workers->server;
    if (s->callers[worker].broken)
        return LS_OK;
    int status = ls_send(s->pairs[worker], words, count, dtype, WORKER, tag, error);
    return pair_ended(t, worker, status, error);
}

static int words_take(struct ls_trainer *t, int worker, float *to, int64_t count, int tag,
                      struct ls_error *error)
{
    struct server *s = t->workers->server;
    if (s->callers[worker].broken)
        return LS_OK;
    int status = ls_recv(s->pairs[worker], to, count, LS_F32, WORKER, tag, error);
    return pair_ended(t, worker, status, error);
}

static int answer_send(struct ls_trainer *t, int worker, int answer, struct ls_error *error)
{
    uint64_t word = (uint64_t)answer;
    return words_send(t, worker, &word, 1, LS_U64, TAG_ANSWER, error);
}

/* ---- who comes ------------------------------------------------------------------------------- */

static int call_expect(struct ls_trainer *t, int worker, struct ls_error *error)
{
    struct workers *w = t->workers;
    struct server *s = w->server;
    struct caller *caller = &s->callers[worker];
    caller->stage = CALLER_COMPUTES;
    if (caller->broken)
        return LS_OK;
    int status = ls_recv_start(s->pairs[worker], s->calls + (size_t)worker * w->note_size,
                               (int64_t)w->note_size, LS_U64, WORKER, TAG_READY, &caller->request,
                               LS_HERE, error);
    return pair_ended(t, worker, status, error);
}

static int call_wait(struct ls_trainer *t, int worker, struct ls_error *error)
{
    struct server *s = t->workers->server;
    struct caller *caller = &s->callers[worker];
    if (caller->stage != CALLER_COMPUTES)
        return LS_OK;
    int status = caller->broken ? LS_OK : ls_wait(&caller->request, error);
    caller->stage = CALLER_READY;
    caller->came = s->came++;
    return pair_ended(t, worker, status, error);
}

/* Of those that are ready and whose push may come next the one that came first; -1: none. */
static int ready_first(const struct server *s, int next)
{
    int first = -1;
    for (int i = 0; i < s->clocks.rule.workers; i++)
        if (s->callers[i].stage == CALLER_READY && ls_clocks_admit(&s->clocks, i) &&
            (next < 0 || i == next) && (first < 0 || s->callers[i].came < s->callers[first].came))
            first = i;
    return first;
}

/* One that lost a rank, and has not left; -1: there is none. */
static int lost_first(const struct ls_trainer *t)
{
    const struct server *s = t->workers->server;
    int ranks = ls_comm_size(t->world);
    for (int i = 0; i < s->clocks.rule.workers && rescue_applies(t); i++)
        if (s->callers[i].stage != CALLER_GONE && ls_comm_lost(t->whole, i * ranks, ranks) >= 0)
            return i;
    return -1;
}

/* The first server rank looks who is ready, or lost. Once nobody has come for a while it waits for
 * one that computes, as ranks wait: who is late is then named. */
static int caller_choose(struct ls_trainer *t, int64_t choice[2], struct ls_error *error)
{
    struct workers *w = t->workers;
    struct server *s = w->server;
    static const struct timespec pause = {.tv_nsec = 50000};
    const double look_s = 0.1; /* at whom the system knows to have ended */
    double limit = t->config.comm.timeout_s / 2, start_s = ls_now_s(), looked_s = start_s;
    int next;
    int status = server_next(t, &next, error);
    while (!status && (choice[0] = ready_first(s, next)) < 0) {
        double now_s = ls_now_s();
        bool late = limit > 0 && now_s - start_s > limit;
        if (now_s - looked_s > look_s) {
            looked_s = now_s;
            choice[0] = lost_first(t);
            choice[1] = choice[0] >= 0;
        }
        if (choice[1])
            break;
        for (int i = 0; i < w->count && !status; i++)
            if (s->callers[i].stage == CALLER_COMPUTES &&
                (late || s->callers[i].broken || ls_test(&s->callers[i].request))) {
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
static int caller_next(struct ls_trainer *t, int *worker, bool *lost, struct ls_error *error)
{
    int64_t choice[2] = {0, 0};
    int status = ls_comm_rank(t->world) == 0 ? caller_choose(t, choice, error) : LS_OK;
    if (!status)
        status = ls_broadcast(t->world, choice, 2, LS_U64, 0, error);
    *worker = (int)choice[0];
    *lost = choice[1];
    return status || *lost ? status : call_wait(t, *worker, error);
}

/* ---- the server ------------------------------------------------------------------------------ */

/* Collective over t->world. *lost: not all of it came. */
static int gradient_take(struct ls_trainer *t, int worker, bool *lost, struct ls_error *error)
{
    struct exchange *x = &t->memory.exchange;
    struct caller *caller = &t->workers->server->callers[worker];
    int status = answer_send(t, worker, ANSWER_PUSH, error);
    caller->stage = CALLER_WAITS;
    if (!status)
        status = words_take(t, worker, x->sums, x->piece, TAG_GRADIENT, error);
    if (!status && corrects(t))
        status = words_take(t, worker, x->deltas, x->masters, TAG_THEN, error);
    int64_t broken = caller->broken;
    if (!status)
        status = ls_all_reduce_max(t->world, &broken, error);
    *lost = broken;
    if (status || *lost)
        return status;
    const double *note = t->workers->server->calls + (size_t)worker * t->workers->note_size;
    status = server_correct(t, NULL, x->deltas, note[NOTE_LOSS_SCALE], error);
    server_unpack(t);
    return status;
}

/* To those that may go on. */
static int parameters_send(struct ls_trainer *t, struct ls_error *error)
{
    struct server *s = t->workers->server;
    struct exchange *x = &t->memory.exchange;
    int status = LS_OK;
    bool packed = false;
    for (int i = 0; i < s->clocks.rule.workers && !status; i++) {
        struct pulled pulled = {s->ticket[i], workers_outer(t)->loss_scale.scale};
        if (s->callers[i].stage != CALLER_WAITS || s->clocks.pulled[i] != s->clocks.version)
            continue;
        if (!packed)
            status = server_masters(t, workers_outer(t), x->deltas, false, error);
        packed = true;
        if (!status)
            status = ls_queue_synchronise(&t->ops.queue, error);
        if (!status)
            status = answer_send(t, i, ANSWER_PARAMETERS, error);
        if (!status)
            status = words_send(t, i, &pulled, sizeof pulled, LS_U8, TAG_PARAMETERS, error);
        if (!status)
            status = words_send(t, i, x->deltas, x->masters, LS_F32, TAG_PARAMETERS, error);
        if (!status)
            status = call_expect(t, i, error);
    }
    return status;
}

/* Collective over t->world. The log has it before it counts. */
static int worker_leave(struct ls_trainer *t, int worker, struct ls_error *error)
{
    struct server *s = t->workers->server;
    int status = s->log ? ls_arrival_log_change(s->log, LS_ARRIVAL_LEFT, worker, error) : LS_OK;
    status = ls_comm_agree(t->world, status, error);
    s->callers[worker].stage = CALLER_GONE;
    s->lost = worker;
    server_leave(s, worker);
    if (!status && s->clocks.slowest_workers == 0)
        status = ls_error_set(error, LS_ECOMM, "each worker has lost a rank");
    return status ? status : parameters_send(t, error);
}

static int event_serve(struct ls_trainer *t, int64_t i, struct ls_error *error)
{
    struct workers *w = t->workers;
    struct server *s = w->server;
    double *note = w->notes + (size_t)i * w->note_size;
    int worker = 0;
    bool lost = true;
    int64_t ticket;
    int status = server_leaves(s, s->arrivals) ? parameters_send(t, error) : LS_OK;
    while (!status && lost) {
        status = caller_next(t, &worker, &lost, error);
        if (!status && !lost)
            status = gradient_take(t, worker, &lost, error);
        if (!status && lost)
            status = worker_leave(t, worker, error);
    }
    if (status)
        return status;
    memcpy(note, s->calls + (size_t)worker * w->note_size, w->note_size * sizeof *note);
    s->order[i] = worker;
    struct ls_arrival arrival = server_push(s, s->arrivals, worker, &ticket);
    if (s->log)
        status = ls_arrival_log_add(s->log, &arrival, error);
    status = ls_comm_agree(t->world, status, error);
    server_report(t, &arrival, ticket, &w->reports[i]);
    if (!status)
        status = server_add(t, note, &w->reports[i], error);
    /* Who would take the last ones finds them at the meeting. */
    return status || i == w->interval - 1 ? status : parameters_send(t, error);
}

/* Collective over t->world. Everybody is sent to the meeting; of those that lost a rank as they
 * came all server ranks learn. */
static int workers_gather(struct ls_trainer *t, struct ls_error *error)
{
    struct workers *w = t->workers;
    struct server *s = w->server;
    int status = LS_OK;
    for (int i = 0; i < w->count && !status; i++) {
        if (s->callers[i].stage == CALLER_GONE)
            continue;
        status = call_wait(t, i, error);
        if (!status)
            status = answer_send(t, i, s->lost < 0 ? ANSWER_MEET : ANSWER_PART + s->lost, error);
        if (s->callers[i].broken)
            s->lost = i;
    }
    int64_t lost = s->lost;
    if (!status)
        status = ls_all_reduce_max(t->world, &lost, error);
    s->lost = (int)lost;
    return status;
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
    return status ? status : workers_gather(t, error);
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
    int64_t ticket, words = w->interval * (int64_t)w->note_size;
    int status = server ? server_masters(t, outer, x->deltas, false, error) : LS_OK;
    if (!status)
        status = ls_queue_synchronise(&t->ops.queue, error);
    if (!status)
        status = ls_broadcast(w->across, s->order, w->interval, LS_U64, w->owner, error);
    if (!status) /* those of the last meeting stay until all has come */
        status =
            ls_broadcast(w->across, server ? w->notes : w->mine, words, LS_U64, w->owner, error);
    if (!status)
        status = ls_broadcast(w->across, x->deltas, x->masters, LS_F32, w->owner, error);
    if (!status && rescue_applies(t))
        status = server_states(t, false, error);
    status = came(t, status, error);
    if (status || server)
        return status;
    if (rescue_applies(t))
        server_states(t, true, error);
    memcpy(w->notes, w->mine, (size_t)words * sizeof *w->notes);
    s->copied = w->begin + w->interval;
    s->noted = true;
    for (int64_t i = 0; i < w->interval; i++) {
        struct ls_arrival arrival = server_push(s, s->arrivals, (int)s->order[i], &ticket);
        server_tell(t, &arrival, ticket);
        step_loss_scale(t, outer, w->notes[(size_t)i * w->note_size + NOTE_LOSS_SCALE],
                        !w->reports[i].skipped);
    }
    status = server_masters(t, outer, x->deltas, true, error);
    if (status)
        return status;
    if (s->clocks.pulled[w->group] != s->clocks.version && !s->renewed[w->group])
        return LS_OK;
    s->renewed[w->group] = false;
    status = server_masters(t, t->units, x->deltas, true, error);
    return status ? status : server_pulled(t, 0, outer->loss_scale.scale, error);
}

int serving_run(struct ls_trainer *t, struct ls_error *error)
{
    struct workers *w = t->workers;
    struct ls_state *outer = workers_outer(t);
    int status = ls_state_settle(outer, error);
    w->stage = WORKERS_AT_WORK;
    w->begin = outer->step;
    w->exchange.wait_s = 0;
    if (!status)
        status = w->group == w->owner ? serve(t, error) : worker_run(t, error);
    if (!status) {
        w->stage = WORKERS_MET; /* what is kept now is behind the interval */
        outer->step = w->begin + w->interval;
        outer->samples = outer->step * t->config.batch.global;
    }
    server_rest(t);
    if (!status && w->server->lost >= 0)
        status = ls_error_set(error, LS_ECOMM, "a rank of worker %d has ended", w->server->lost);
    return status ? status : meet(t, error);
}
