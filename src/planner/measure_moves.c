/* Measures moves: each kind of collective, by ranks and bytes. */

#include "planner/measure_private.h"

#include <math.h>
#include <stdlib.h>

enum { ROUNDS = 5, SIZES_MAX = 12, WORDS_BYTES_MAX = 4096 };
/* Buffers of all ranks of a process together; the largest message between hosts, and the largest
 * that is measured in any case. */
static const int64_t room_bytes = 256 << 20, message_bytes_max = 64 << 20;
static const int64_t message_bytes_least = 2 << 20;
static const double call_s = 1e-3; /* as many calls are timed at once */

struct moves_run {
    const struct ls_measure *measure;
    int ranks; /* that bring a buffer, in this process */
    /* Messages alone, with this rank; -1: with none. NULL: all kinds, and messages with the
     * neighbour. Sizes end where they would take more than effort.moves_s. */
    const int *peer;
};

/* One rank's part in measuring one kind and size. */
struct sample {
    struct ls_comm *comm;
    enum ls_comm_kind kind;
    int64_t bytes;
    int peer; /* of messages; -1: none */
    float *a, *b;
    int64_t calls; /* timed at once */
    double seconds[ROUNDS];
};

/* A message to the peer and one back: two in turn, all pairs at once. */
static int messages(const struct sample *s, int64_t count, struct ls_error *error)
{
    int peer = s->peer;
    bool second = ls_comm_rank(s->comm) > peer;
    if (peer < 0)
        return LS_OK;
    int status = second ? ls_recv(s->comm, s->b, count, LS_F32, peer, 1, error)
                        : ls_send(s->comm, s->a, count, LS_F32, peer, 1, error);
    if (!status)
        status = second ? ls_send(s->comm, s->a, count, LS_F32, peer, 2, error)
                        : ls_recv(s->comm, s->b, count, LS_F32, peer, 2, error);
    return status;
}

static int call(const struct sample *s, struct ls_error *error)
{
    int64_t n = ls_comm_size(s->comm), count = s->bytes / (int64_t)sizeof(float);
    int64_t part = ls_max(1, count / n);
    switch (s->kind) {
    case LS_COMM_ALL_REDUCE:
        return ls_all_reduce(s->comm, s->a, count, error);
    case LS_COMM_REDUCE_SCATTER:
        return ls_reduce_scatter(s->comm, s->a, s->b, part, error);
    case LS_COMM_ALL_GATHER:
        return ls_all_gather(s->comm, s->a, s->b, part, LS_F32, error);
    case LS_COMM_ALL_TO_ALL:
        return ls_all_to_all(s->comm, s->a, s->b, part, LS_F32, error);
    case LS_COMM_BROADCAST:
        return ls_broadcast(s->comm, s->a, count, LS_F32, 0, error);
    case LS_COMM_SEND:
        return messages(s, count, error);
    default:
        return ls_all_reduce_u64(s->comm, (uint64_t *)(void *)s->a, ls_max(1, s->bytes / 8), error);
    }
}

/* From when all ranks are there to when the last is through. */
static int timed(const struct sample *s, int64_t calls, double *seconds, struct ls_error *error)
{
    int status = ls_barrier(s->comm, error);
    double begin = ls_now_s();
    for (int64_t i = 0; i < calls && !status; i++)
        status = call(s, error);
    int64_t taken_ns = (int64_t)((ls_now_s() - begin) * 1e9);
    if (!status)
        status = ls_all_reduce_max(s->comm, &taken_ns, error);
    *seconds = (double)taken_ns * 1e-9 / (double)calls;
    if (s->kind == LS_COMM_SEND)
        *seconds /= 2;
    return status;
}

/* The calls that make a measurement long enough to be measured. *seconds: of one call, the same on
 * all ranks. */
static int calls_settle(struct sample *s, double *seconds, struct ls_error *error)
{
    int status = timed(s, 1, seconds, error);
    if (!status)
        status = timed(s, 1, seconds, error);
    s->calls = (int64_t)fmin(200, fmax(1, call_s / fmax(*seconds, 1e-7)));
    return status;
}

static int64_t bytes_most(const struct moves_run *run)
{
    int64_t most = run->peer ? message_bytes_max : run->measure->effort.bytes_max;
    return ls_min(most, room_bytes / (2 * run->ranks));
}

struct samples {
    struct sample list[LS_COMM_KINDS * SIZES_MAX];
    int count;
};

static void samples_init(struct samples *samples, struct ls_comm *comm, const struct moves_run *run,
                         float *a, float *b)
{
    int64_t least = 8 * ls_comm_size(comm), most = bytes_most(run);
    int neighbour = ls_comm_rank(comm) ^ 1;
    samples->count = 0;
    for (int kind = 0; kind < LS_COMM_KINDS; kind++)
        for (int64_t bytes = 8; bytes <= most; bytes *= 8) {
            struct sample s = {.comm = comm, .kind = (enum ls_comm_kind)kind, .bytes = bytes};
            s.peer = run->peer ? *run->peer : neighbour < ls_comm_size(comm) ? neighbour : -1;
            s.a = a;
            s.b = b;
            if ((run->peer && kind != LS_COMM_SEND) ||
                (kind == LS_COMM_OTHER && bytes > WORDS_BYTES_MAX) ||
                (kind != LS_COMM_OTHER && kind != LS_COMM_SEND && bytes < least))
                continue;
            samples->list[samples->count++] = s;
        }
}

/* How long the next size takes, from what the last two took. */
static double next_seconds(const struct sample *next, double last_s, double before_s)
{
    return last_s + fmax(0, last_s - before_s) * ((double)next->bytes / (double)next[-1].bytes);
}

/* Once each. Over a slow link the largest are left out. */
static int samples_settle(struct samples *samples, const struct moves_run *run,
                          struct ls_error *error)
{
    const double calls = 2 * (2 + ROUNDS); /* there and back, with those that settle */
    double spent_s = 0, seconds = 0, before_s = 0;
    int status = LS_OK;
    for (int i = 0; i < samples->count && !status; i++) {
        struct sample *s = &samples->list[i];
        if (run->peer && s->bytes > message_bytes_least &&
            spent_s + calls * next_seconds(s, seconds, before_s) > run->measure->effort.moves_s) {
            samples->count = i;
            break;
        }
        before_s = seconds;
        status = calls_settle(s, &seconds, error);
        spent_s += calls * seconds;
    }
    return status;
}

/* What memory gives while all use it, in the middle; of a network, a limit, the best counts. */
static int samples_store(const struct samples *samples, const struct moves_run *run,
                         struct ls_error *error)
{
    int status = LS_OK;
    for (int i = 0; i < samples->count && !status; i++) {
        struct sample s = samples->list[i];
        double median = ls_median(s.seconds, ROUNDS); /* sorts them */
        struct ls_measured_move row = {.kind = s.kind,
                                       .ranks = ls_comm_size(s.comm),
                                       .bytes = s.bytes,
                                       .seconds = run->peer ? s.seconds[0] : median};
        status = ls_measure_add_move(run->measure->cluster, &row, error);
    }
    return status;
}

/* All kinds and sizes in turns, some rounds of them. */
static int group_run(struct ls_comm *comm, void *user, struct ls_error *error)
{
    const struct moves_run *run = user;
    int64_t bytes = bytes_most(run) + 64;
    struct samples *samples = calloc(1, sizeof *samples);
    float *a = calloc(1, (size_t)bytes), *b = calloc(1, (size_t)bytes);
    int status = LS_OK;
    if (!samples || !a || !b)
        status = ls_no_memory(error, "for two buffers of %lld bytes", (long long)bytes);
    status = ls_comm_agree(comm, status, error);
    if (!status)
        samples_init(samples, comm, run, a, b);
    if (!status)
        status = samples_settle(samples, run, error);
    for (int round = 0; round < ROUNDS && !status; round++)
        for (int i = 0; i < samples->count && !status; i++) {
            struct sample *s = &samples->list[i];
            status = timed(s, s->calls, &s->seconds[round], error);
        }
    if (!status && ls_comm_rank(comm) == 0)
        status = samples_store(samples, run, error);
    status = ls_comm_agree(comm, status, error);
    free(b);
    free(a);
    free(samples);
    return status;
}

int ls_measure_moves(const struct ls_measure *measure, struct ls_error *error)
{
    int status = LS_OK;
    for (int ranks = 2; ranks <= measure->effort.ranks_max && !status; ranks *= 2) {
        struct moves_run run = {.measure = measure, .ranks = ranks};
        status = ls_world_run(ranks, group_run, &run, error);
    }
    return status;
}

/* The first `ranks` of the world; the others wait. */
static int first_run(const struct ls_measure *measure, struct ls_comm *world, int ranks,
                     struct ls_error *error)
{
    struct moves_run run = {.measure = measure, .ranks = ls_comm_machine_ranks(world)};
    struct ls_comm *group = NULL;
    bool in = ls_comm_rank(world) < ranks;
    int status = ls_comm_split(world, in ? 0 : 1, 0, &group, error);
    if (!status && in)
        status = group_run(group, &run, error);
    ls_comm_free(group);
    return ls_comm_agree(world, status, error);
}

int measure_messages(const struct ls_measure *measure, struct ls_comm *world, int peer,
                     struct ls_error *error)
{
    struct moves_run run = {
        .measure = measure, .ranks = ls_comm_machine_ranks(world), .peer = &peer};
    return group_run(world, &run, error);
}

/* ---- messages beside computation ------------------------------------------------------------- */

static void compute_turns(int64_t turns)
{
    volatile double sum = 0;
    for (int64_t i = 0; i < turns; i++)
        sum = sum + (double)i;
}

/* Both ways at once, beside so many turns; from all there to the last through. peer -1: turns
 * alone. */
static int beside(struct ls_comm *world, int peer, float *memory, int64_t turns, double *seconds,
                  struct ls_error *error)
{
    int64_t count = message_bytes_least / (int64_t)sizeof(float);
    struct ls_request in = {0}, out = {0};
    int status = ls_barrier(world, error);
    double begin = ls_now_s();
    if (!status && peer >= 0)
        status = ls_recv_start(world, memory, count, LS_F32, peer, 1, &in, LS_HERE, error);
    if (!status && peer >= 0)
        status = ls_send_start(world, memory + count, count, LS_F32, peer, 1, &out, LS_HERE, error);
    compute_turns(turns);
    int received = ls_wait(&in, error), sent = ls_wait(&out, error);
    status = status ? status : received ? received : sent;
    int64_t taken_ns = (int64_t)((ls_now_s() - begin) * 1e9);
    if (!status)
        status = ls_all_reduce_max(world, &taken_ns, error);
    *seconds = (double)taken_ns * 1e-9;
    return status;
}

/* Messages alone, as many turns as take as long, and both: the best rounds of each. */
int measure_overlap(struct ls_comm *world, int peer, double *overlap, struct ls_error *error)
{
    double move_s = INFINITY, work_s = INFINITY, both_s = INFINITY, seconds = 0;
    int64_t turns = 1 << 20;
    float *memory = calloc(2, (size_t)message_bytes_least);
    int status = memory ? LS_OK : ls_no_memory(error, "for messages");
    status = ls_comm_agree(world, status, error);
    for (int round = 0; round <= ROUNDS && !status; round++) {
        status = beside(world, peer, memory, 0, &seconds, error);
        move_s = fmin(move_s, seconds);
    }
    if (!status)
        status = beside(world, -1, memory, turns, &seconds, error);
    turns = (int64_t)((double)turns * move_s / fmax(seconds, 1e-6)) + 1;
    if (!status)
        status = ls_all_reduce_max(world, &turns, error);
    for (int round = 0; round < ROUNDS && !status; round++) {
        status = beside(world, -1, memory, turns, &seconds, error);
        work_s = fmin(work_s, seconds);
        if (!status)
            status = beside(world, peer, memory, turns, &seconds, error);
        both_s = fmin(both_s, seconds);
    }
    if (!status)
        *overlap = fmin(1, fmax(0, (move_s + work_s - both_s) / fmin(move_s, work_s)));
    free(memory);
    return status;
}

/* ---- collectives ----------------------------------------------------------------------------- */

int ls_measure_moves_of(const struct ls_measure *measure, struct ls_comm *world,
                        struct ls_error *error)
{
    int size = ls_comm_size(world), status = LS_OK;
    for (int ranks = 1; ranks < size && !status;) {
        ranks = (int)ls_min(2 * ranks, size);
        status = first_run(measure, world, ranks, error);
    }
    return status;
}
