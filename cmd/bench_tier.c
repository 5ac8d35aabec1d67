/* lockstep bench tier: memory tiers beside plain copies and plain reads and writes of the disk; a
 * table, and one JSON object on the last line. */
#include "bench.h"

#include <lockstep/device/tier.h>
#include <lockstep/planner/measure.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    ROUNDS = 9,
    BUFFERS = 4, /* transfers under way at a time */
    TRANSFER_BYTES = 64 << 20,
    MIB = 1 << 20,
    DISK_BLOCK = 4 << 20,
    DISK_THREADS = 16, /* each waits for its block: the depth of the disk's queue */
};

/* What moves the bytes: once all there, or all back. */
struct way {
    const char *name;
    struct ls_tier *tier; /* NULL: plain */
    int fd;               /* of plain I/O; -1 for plain copies */
    double rate[2];       /* out and back, bytes/s: medians */
};

struct bench {
    const char *folder;
    int64_t mib;
    struct ls_arena device, host; /* BUFFERS transfers; all of it, for plain copies */
    struct way *ways;             /* those that are measured */
    int count;
};

static unsigned char *buffer_of(const struct bench *bench, int64_t transfer)
{
    return bench->device.base + (size_t)(transfer % BUFFERS) * TRANSFER_BYTES;
}

/* ---- plain ---------------------------------------------------------------------------------- */

static void copy_all(const struct bench *bench, bool writes)
{
    int64_t transfers = bench->mib * MIB / TRANSFER_BYTES;
    for (int64_t i = 0; i < transfers; i++) {
        unsigned char *host = bench->host.base + i * TRANSFER_BYTES;
        if (writes)
            memcpy(host, buffer_of(bench, i), TRANSFER_BYTES);
        else
            memcpy(buffer_of(bench, i), host, TRANSFER_BYTES);
    }
}

/* Blocks of the whole file, by threads that wait for each. Errors end the benchmark. */
static int disk_all(const struct bench *bench, int fd, bool writes, struct ls_error *error)
{
    int failure = 0;
#pragma omp parallel for schedule(dynamic) num_threads(DISK_THREADS) reduction(max : failure)
    for (int64_t block = 0; block < bench->mib * MIB / DISK_BLOCK; block++) {
        unsigned char *memory =
            bench->device.base + block * DISK_BLOCK % (BUFFERS * (int64_t)TRANSFER_BYTES);
        ssize_t moved = writes ? pwrite(fd, memory, DISK_BLOCK, block * DISK_BLOCK)
                               : pread(fd, memory, DISK_BLOCK, block * DISK_BLOCK);
        if (moved != DISK_BLOCK)
            failure = moved < 0 ? errno : EIO;
    }
    return failure ? ls_error_errno(error, failure, "%s: plain reads and writes", bench->folder)
                   : LS_OK;
}

/* A file without a name that O_DIRECT reads and writes. */
static int disk_open(const struct bench *bench, int *fd, struct ls_error *error)
{
    *fd = open(bench->folder, O_TMPFILE | O_RDWR | O_DIRECT | O_CLOEXEC, 0600);
    if (*fd < 0)
        return ls_error_errno(error, errno, "%s: cannot open a file with O_DIRECT", bench->folder);
    if (fallocate(*fd, 0, 0, bench->mib * MIB))
        return ls_error_errno(error, errno, "%s: no room for %lld MiB", bench->folder,
                              (long long)bench->mib);
    return LS_OK;
}

/* ---- turns ---------------------------------------------------------------------------------- */

/* All ways write, then all read. */
static int measure(void *user, int turn, double *seconds, struct ls_error *error)
{
    const struct bench *bench = user;
    const struct way *way = &bench->ways[turn % bench->count];
    bool writes = turn < bench->count;
    (void)seconds;
    if (way->tier)
        return ls_measure_tier_pass(way->tier,
                                    &(struct ls_measure_pass){bench->device.base, BUFFERS,
                                                              TRANSFER_BYTES, bench->mib * MIB,
                                                              writes},
                                    error);
    if (way->fd >= 0)
        return disk_all(bench, way->fd, writes, error);
    copy_all(bench, writes);
    return LS_OK;
}

/* The first way is the limit of the others. The round that warms up takes what is taken once:
 * pages, and blocks that were never written. */
static int ways_measure(struct bench *bench, struct way *ways, int count, struct ls_error *error)
{
    struct bench_turns turns = {
        .ways = 2 * count, .rounds = ROUNDS, .meter = "passes", .run = measure, .user = bench};
    double bytes = (double)(bench->mib * MIB);
    bench->ways = ways;
    bench->count = count;
    int status = bench_turns(&turns, error);
    for (int i = 0; i < count && !status; i++) {
        printf("%-18s", ways[i].name);
        for (int back = 0; back < 2; back++) {
            int turn = back * count + i;
            ways[i].rate[back] = bytes / bench_seconds(&turns, turn);
            printf("  %10.2f  %5.2f", ways[i].rate[back] * 1e-9,
                   bench_ratio(&turns, back * count, turn));
        }
        printf("\n");
    }
    cmd_flush();
    return status;
}

/* {"plain copy": {"out": 1.2e+10, "back": ...}, ...}: medians in bytes a second. */
static void print_json(const struct way *ways, int count)
{
    for (int i = 0; i < count; i++)
        printf("%s\"%s\": {\"out\": %.4g, \"back\": %.4g}", i ? ", " : "{", ways[i].name,
               ways[i].rate[0], ways[i].rate[1]);
    printf("}\n");
}

static int open_tier(const struct bench *bench, enum ls_tier_kind kind, bool threads,
                     struct ls_tier **tier, struct ls_error *error)
{
    struct ls_tier_options options = {.kind = kind,
                                      .bytes = (size_t)bench->mib * MIB,
                                      .folder = bench->folder,
                                      .rank = threads, /* each its own file */
                                      .threads = threads};
    int status = ls_tier_new(&options, tier, error);
    if (status == LS_OK)
        printf("%s\n", ls_tier_text(*tier));
    return status;
}

static int bench_ways(struct bench *bench, struct way ways[5], struct ls_error *error)
{
    int status = open_tier(bench, LS_TIER_HOST, false, &ways[1].tier, error);
    if (!status)
        status = disk_open(bench, &ways[2].fd, error);
    if (!status)
        status = open_tier(bench, LS_TIER_FILE, false, &ways[3].tier, error);
    if (!status)
        status = open_tier(bench, LS_TIER_FILE, true, &ways[4].tier, error);
    if (status)
        return status;
    printf("%lld MiB in transfers of %d MiB, median of %d; share: of the plain way's rate in the "
           "same round\n%-18s  %10s  %5s  %10s  %5s\n",
           (long long)bench->mib, TRANSFER_BYTES / MIB, ROUNDS, "", "out, GB/s", "share",
           "back, GB/s", "share");
    status = ways_measure(bench, ways, 2, error);
    if (!status)
        status = ways_measure(bench, ways + 2, 3, error);
    if (!status)
        print_json(ways, 5);
    return status;
}

int cmd_bench_tier(const struct cmd_args *args, struct ls_error *error)
{
    struct bench bench = {.folder = ".", .mib = 1024};
    const struct bench_key keys[] = {
        {.name = "folder", .text = &bench.folder},
        {.name = "mib", .number = &bench.mib, .min = 64, .max = 1 << 20},
        {0}};
    struct way ways[] = {{.name = "plain copy", .fd = -1},
                         {.name = "host", .fd = -1},
                         {.name = "plain O_DIRECT", .fd = -1},
                         {.name = "file", .fd = -1},
                         {.name = "file by threads", .fd = -1}};
    int status = bench_args(args, keys, error);
    cmd_progress_begin();
    bench.mib = ls_round_up(bench.mib, TRANSFER_BYTES / MIB);
    if (!status)
        status = ls_arena_init(&bench.device, (size_t)BUFFERS * TRANSFER_BYTES, error);
    if (!status)
        status = ls_arena_init(&bench.host, (size_t)bench.mib * MIB, error);
    if (!status)
        status = bench_ways(&bench, ways, error);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        ls_tier_free(ways[i].tier);
        if (ways[i].fd >= 0)
            close(ways[i].fd);
    }
    ls_arena_release(&bench.host);
    ls_arena_release(&bench.device);
    return status;
}
