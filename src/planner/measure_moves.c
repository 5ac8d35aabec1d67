/* Measures moves: each kind of collective, by ranks and bytes. */
#include <lockstep/planner/measure.h>

#include "planner/measure_private.h"

#include <math.h>
#include <stdlib.h>

enum { ROUNDS = 5, SIZES_MAX = 12, WORDS_BYTES_MAX = 4096 };
/* Buffers of all ranks of a process together. */
static const int64_t room_bytes = 256 << 20;
static const double call_s = 1e-3; /* as many calls are timed at once */

struct moves_run {
    const struct ls_measure *measure;
    int ranks; /* that bring a buffer, in this process */
    double budget_s;
};

/* One rank's part in measuring one kind and size. */
struct sample {
    struct ls_comm *comm;
    enum ls_comm_kind kind;
    int64_t bytes;
    float *a, *b;
    int64_t calls; /* timed at once */
    double seconds[ROUNDS];
};

/* A message to the neighbour and one back: two in turn, all pairs at once. */
static int messages(const struct sample *s, int64_t count, struct ls_error *error)
{
    int rank = ls_comm_rank(s->comm), peer = rank ^ 1;
    if (peer >= ls_comm_size(s->comm))
        return LS_OK;
    int status = rank & 1 ? ls_recv(s->comm, s->b, count, LS_F32, peer, 1, error)
                          : ls_send(s->comm, s->a, count, LS_F32, peer, 1, error);
    if (!status)
        status = rank & 1 ? ls_send(s->comm, s->a, count, LS_F32, peer, 2, error)
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

/* The calls that make a measurement long enough to be measured. */
static int calls_settle(struct sample *s, struct ls_error *error)
{
    double seconds = 0;
    int status = timed(s, 1, &seconds, error);
    if (!status)
        status = timed(s, 1, &seconds, error);
    s->calls = (int64_t)fmin(200, fmax(1, call_s / fmax(seconds, 1e-7)));
    return status ? status : ls_all_reduce_max(s->comm, &s->calls, error);
}

struct samples {
    struct sample list[LS_COMM_KINDS * SIZES_MAX];
    int count;
};

static void samples_init(struct samples *samples, struct ls_comm *comm, const struct moves_run *run,
                         float *a, float *b)
{
    int64_t least = 8 * ls_comm_size(comm);
    int64_t most = ls_min(run->measure->effort.bytes_max, room_bytes / (2 * run->ranks));
    samples->count = 0;
    for (int kind = 0; kind < LS_COMM_KINDS; kind++)
        for (int64_t bytes = 8; bytes <= most; bytes *= 8) {
            struct sample s = {.comm = comm, .kind = (enum ls_comm_kind)kind, .bytes = bytes};
            s.a = a;
            s.b = b;
            if ((kind == LS_COMM_OTHER && bytes > WORDS_BYTES_MAX) ||
                (kind != LS_COMM_OTHER && kind != LS_COMM_SEND && bytes < least))
                continue;
            samples->list[samples->count++] = s;
        }
}

static int samples_store(const struct samples *samples, struct ls_cluster *cluster,
                         struct ls_error *error)
{
    int status = LS_OK;
    for (int i = 0; i < samples->count && !status; i++) {
        struct sample s = samples->list[i];
        struct ls_measured_move row = {.kind = s.kind,
                                       .ranks = ls_comm_size(s.comm),
                                       .bytes = s.bytes,
                                       .seconds = measure_median(s.seconds, ROUNDS)};
        status = ls_measure_add_move(cluster, &row, error);
    }
    return status;
}

/* All kinds and sizes in turns, some rounds of them. */
static int group_run(struct ls_comm *comm, const struct moves_run *run, struct ls_error *error)
{
    int64_t bytes = ls_min(run->measure->effort.bytes_max, room_bytes / (2 * run->ranks)) + 64;
    struct samples *samples = calloc(1, sizeof *samples);
    float *a = calloc(1, (size_t)bytes), *b = calloc(1, (size_t)bytes);
    int status = LS_OK;
    if (!samples || !a || !b)
        status = ls_error_set(error, LS_ENOMEM, "no memory for two buffers of %lld bytes",
                              (long long)bytes);
    status = ls_comm_agree(comm, status, error);
    if (!status)
        samples_init(samples, comm, run, a, b);
    for (int i = 0; !status && i < samples->count && !status; i++)
        status = calls_settle(&samples->list[i], error);
    for (int round = 0; round < ROUNDS && !status; round++)
        for (int i = 0; i < samples->count && !status; i++) {
            struct sample *s = &samples->list[i];
            status = timed(s, s->calls, &s->seconds[round], error);
        }
    if (!status && ls_comm_rank(comm) == 0)
        status = samples_store(samples, run->measure->cluster, error);
    status = ls_comm_agree(comm, status, error);
    free(b);
    free(a);
    free(samples);
    return status;
}

static int thread_body(struct ls_comm *comm, void *user, struct ls_error *error)
{
    return group_run(comm, user, error);
}

int ls_measure_moves(const struct ls_measure *measure, struct ls_error *error)
{
    int status = LS_OK;
    for (int ranks = 2; ranks <= measure->effort.ranks_max && !status; ranks *= 2) {
        struct moves_run run = {.measure = measure, .ranks = ranks};
        status = ls_world_run(ranks, thread_body, &run, error);
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

int ls_measure_moves_of(const struct ls_measure *measure, struct ls_comm *world,
                        struct ls_error *error)
{
    int size = ls_comm_size(world), status = LS_OK;
    for (int ranks = 2; ranks < size && !status; ranks *= 2)
        status = first_run(measure, world, ranks, error);
    if (!status && size > 1)
        status = first_run(measure, world, size, error);
    return status;
}
