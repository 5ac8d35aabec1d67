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

static int run_ours(const struct sample *sample, struct ls_error *error)
{
    return ls_all_reduce(sample->comm, sample->buffer, sample->count, error);
}

/* What ours is held against: over threads every rank at once copies as many bytes as an all-reduce
 * makes it read and write; over MPI, MPI's own. */
static int run_limit(const struct sample *sample, struct ls_error *error)
{
#ifdef LS_WITH_MPI
    if (sample->mpi) {
        int code = MPI_Allreduce(MPI_IN_PLACE, sample->buffer, (int)sample->count, MPI_FLOAT,
                                 MPI_SUM, MPI_COMM_WORLD);
        return code == MPI_SUCCESS ? LS_OK : ls_error_set(error, LS_ECOMM, "MPI_Allreduce failed");
    }
#endif
    (void)error;
    memcpy(sample->copy, sample->buffer, (size_t)sample->count * sizeof *sample->copy);
    return LS_OK;
}

/* *seconds of one call: from when all ranks are there to when the last is through, so that ranks
 * that share a core count whole. */
static int measure(const struct sample *sample,
                   int (*run)(const struct sample *sample, struct ls_error *error), double *seconds,
                   struct ls_error *error)
{
    int status = ls_barrier(sample->comm, error);
    double begin = ls_now_s();
    for (int64_t i = 0; i < sample->calls && status == LS_OK; i++)
        status = run(sample, error);
    if (status == LS_OK)
        status = ls_barrier(sample->comm, error);
    int64_t taken_ns = (int64_t)((ls_now_s() - begin) * 1e9);
    if (status == LS_OK)
        status = ls_all_reduce_max(sample->comm, &taken_ns, error);
    *seconds = (double)taken_ns * 1e-9 / (double)sample->calls;
    return status;
}

static int bench_size(struct ls_comm *comm, bool mpi, int64_t bytes, struct ls_error *error)
{
    struct sample sample = {.comm = comm, .mpi = mpi, .count = bytes / (int64_t)sizeof(float)};
    double ours[REPEATS], limit[REPEATS], ratio[REPEATS];
    sample.calls = ls_max(1, (8 << 20) / bytes);
    sample.buffer = calloc((size_t)ls_max(1, sample.count), sizeof *sample.buffer);
    sample.copy = calloc((size_t)ls_max(1, sample.count), sizeof *sample.copy);
    int status = LS_OK;
    if (!sample.buffer || !sample.copy)
        status = ls_error_set(error, LS_ENOMEM, "no memory for two buffers of %lld bytes",
                              (long long)bytes);
    status = ls_comm_agree(comm, status, error);
    for (int i = -1; i < REPEATS && status == LS_OK; i++) {
        int slot = i < 0 ? 0 : i; /* the first warms up */
        status = measure(&sample, run_ours, &ours[slot], error);
        if (status == LS_OK)
            status = measure(&sample, run_limit, &limit[slot], error);
        ratio[slot] = ours[slot] / limit[slot];
    }
    if (status == LS_OK && ls_comm_rank(comm) == 0) {
        double time = bench_median(ours, REPEATS), other = bench_median(limit, REPEATS);
        printf("%10lld  %12.1f  %8.2f  %16.1f  %8.2f\n", (long long)bytes, time * 1e6,
               (double)bytes / time * 1e-9, other * 1e6, bench_median(ratio, REPEATS));
        fflush(stdout);
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

int cmd_bench_comm(int argc, char **argv)
{
    struct bench bench = {.ranks = 2, .mpi = ls_mpi_launched()};
    const struct bench_key keys[] = {{"ranks", &bench.ranks, 1, RANKS_MAX, NULL, NULL, NULL},
                                     {"bytes", &bench.bytes, 4, INT32_MAX, NULL, NULL, NULL},
                                     {0}};
    struct ls_error error = {0};
    int status = bench_args("bench comm", argc, argv, keys, &error);
    if (status == LS_OK && bench.mpi) {
        struct ls_comm *comm;
        status = ls_comm_mpi_new(&comm, &error);
        if (status == LS_OK)
            status = bench_body(comm, &bench, &error);
        /* After a failure the launcher ends the other ranks: nobody waits for this one. */
        if (status == LS_OK) {
            ls_comm_free(comm);
            ls_mpi_finish();
        }
    } else if (status == LS_OK) {
        status = ls_world_run((int)bench.ranks, bench_body, &bench, &error);
    }
    return status == LS_OK ? 0 : cmd_fail("bench comm", status, &error);
}
