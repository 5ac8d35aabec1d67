/* lockstep bench comm: an all-reduce beside the copy that bounds it, or beside MPI_Allreduce. */
#include "bench.h"

#include <lockstep/comm.h>

#include <stdlib.h>
#include <string.h>
#ifdef LS_WITH_MPI
#include <mpi.h>
#endif

enum { REPEATS = 15, RANKS_MAX = 1024 };

struct bench {
    int64_t ranks, bytes; /* bytes 0: a range */
    bool mpi;
};

/* One size on one rank. */
struct sample {
    struct ls_comm *comm;
    bool mpi;
    int64_t count, calls; /* elements; calls in one measurement */
    float *buffer, *copy;
};

/* What ours is held against: over threads every rank at once copies as many bytes as an all-reduce
 * makes it read and write; over MPI, MPI's own. */
static int run_limit(const struct sample *sample, struct ls_error *error)
{
#ifdef LS_WITH_MPI
    if (sample->mpi) {
        int status = MPI_Allreduce(MPI_IN_PLACE, sample->buffer, (int)sample->count, MPI_FLOAT,
                                   MPI_SUM, MPI_COMM_WORLD);
        return status == MPI_SUCCESS ? LS_OK
                                     : ls_error_set(error, LS_ECOMM, "MPI_Allreduce failed");
    }
#endif
    (void)error;
    memcpy(sample->copy, sample->buffer, (size_t)sample->count * sizeof *sample->copy);
    return LS_OK;
}

enum way { OURS, LIMIT, WAYS };

/* *seconds of one call: from when all ranks are there to when the last is through, so that ranks
 * that share a core count whole. */
static int measure(void *user, int way, double *seconds, struct ls_error *error)
{
    const struct sample *sample = user;
    int status = ls_barrier(sample->comm, error);
    double begin = ls_now_s();
    for (int64_t i = 0; i < sample->calls && !status; i++)
        status = way == OURS ? ls_all_reduce(sample->comm, sample->buffer, sample->count, error)
                             : run_limit(sample, error);
    if (!status)
        status = ls_barrier(sample->comm, error);
    int64_t taken_ns = (int64_t)((ls_now_s() - begin) * 1e9);
    if (!status)
        status = ls_all_reduce_max(sample->comm, &taken_ns, error);
    *seconds = (double)taken_ns * 1e-9 / (double)sample->calls;
    return status;
}

static int bench_size(struct ls_comm *comm, bool mpi, int64_t bytes, struct ls_error *error)
{
    struct sample sample = {.comm = comm, .mpi = mpi, .count = bytes / (int64_t)sizeof(float)};
    struct bench_turns turns = {.ways = WAYS, .rounds = REPEATS, .run = measure, .user = &sample};
    sample.calls = ls_max(1, (8 << 20) / bytes);
    sample.buffer = calloc((size_t)ls_max(1, sample.count), sizeof *sample.buffer);
    sample.copy = calloc((size_t)ls_max(1, sample.count), sizeof *sample.copy);
    int status = LS_OK;
    if (!sample.buffer || !sample.copy)
        status = ls_no_memory(error, "for two buffers of %lld bytes", (long long)bytes);
    status = ls_comm_agree(comm, status, error);
    if (!status)
        status = bench_turns(&turns, error);
    if (!status && ls_comm_rank(comm) == 0) {
        double time = bench_seconds(&turns, OURS);
        printf("%10lld  %12.1f  %8.2f  %16.1f  %8.2f\n", (long long)bytes, time * 1e6,
               (double)bytes / time * 1e-9, bench_seconds(&turns, LIMIT) * 1e6,
               bench_ratio(&turns, OURS, LIMIT));
        cmd_flush();
    }
    free(sample.copy);
    free(sample.buffer);
    return status;
}

static int bench_body(struct ls_comm *comm, void *user, struct ls_error *error)
{
    const struct bench *bench = user;
    if (ls_comm_rank(comm) == 0)
        printf("all-reduce of float32 over %d %s ranks, median of %d; ratio: time over %s\n"
               "%10s  %12s  %8s  %16s  %8s\n",
               ls_comm_size(comm), ls_transport_name(ls_comm_transport(comm)), REPEATS,
               bench->mpi ? "MPI_Allreduce's" : "that of the copies it takes", "bytes", "time, us",
               "GB/s", bench->mpi ? "MPI's, us" : "copy, us", "ratio");
    if (bench->bytes)
        return bench_size(comm, bench->mpi, bench->bytes, error);
    int status = LS_OK;
    for (int64_t bytes = 64 << 10; bytes <= 64 << 20 && status == LS_OK; bytes *= 4)
        status = bench_size(comm, bench->mpi, bytes, error);
    return status;
}

int cmd_bench_comm(const struct cmd_args *args, struct ls_error *error)
{
    struct bench bench = {.ranks = 2, .mpi = ls_mpi_launched()};
    const struct bench_key keys[] = {
        {.name = "ranks", .number = &bench.ranks, .min = 1, .max = RANKS_MAX},
        {.name = "bytes", .number = &bench.bytes, .min = 4, .max = INT32_MAX},
        {0}};
    struct ls_comm *comm;
    int status = bench_args(args, keys, error);
    if (status)
        return status;
    if (!bench.mpi)
        return ls_world_run((int)bench.ranks, bench_body, &bench, error);
    status = ls_comm_mpi_new(&comm, error);
    if (!status)
        status = bench_body(comm, &bench, error);
    /* After a failure the launcher ends the other ranks: nobody waits for this one. */
    if (!status) {
        ls_comm_free(comm);
        ls_mpi_finish();
    }
    return status;
}
