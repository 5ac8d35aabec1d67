/* Measures what a machine is: peaks, bandwidth, memory, copies, the disk, links. */
#include <lockstep/device/tier.h>

#include "planner/cluster_private.h"
#include "planner/measure_private.h"

#include <math.h>
#include <stdlib.h>
#include <sys/statvfs.h>

enum { ROUNDS = 5, TRANSFER_BYTES = 16 << 20, COPY_BYTES = 64 << 20 };

/* ---- all cores at once ----------------------------------------------------------------------- */

struct core_run {
    double *peak[3]; /* [cores] each: fp32, bf16, fp16 */
    double *bytes_s; /* [cores] of copies */
    size_t bytes;
    int rounds;
};

static int core_copies(struct ls_comm *comm, struct ls_ops *ops, size_t bytes, double *rate,
                       struct ls_error *error)
{
    struct ls_arena arena = {0};
    double seconds[ROUNDS] = {0};
    int status = ls_comm_agree(comm, ls_arena_init(&arena, 2 * bytes, error), error);
    for (int round = -1; round < ROUNDS && !status; round++) {
        status = ls_barrier(comm, error);
        double begin = ls_now_s();
        ls_copy(ops, bytes, arena.base, arena.base + bytes);
        seconds[round < 0 ? 0 : round] = ls_now_s() - begin;
    }
    *rate = 2 * (double)bytes / fmax(ls_median(seconds, ROUNDS), 1e-9);
    ls_arena_release(&arena);
    return status;
}

static int core_body(struct ls_comm *comm, void *user, struct ls_error *error)
{
    static const enum ls_dtype types[] = {LS_F32, LS_BF16, LS_F16};
    struct core_run *run = user;
    struct ls_ops ops = {0};
    int rank = ls_comm_rank(comm);
    int status = ls_comm_agree(comm, ls_ops_init(&ops, 1, ls_isa_best(), error), error);
    for (int i = 0; i < 3 && !status; i++) {
        for (int round = 0; round < run->rounds && !status; round++) {
            double rate = 0; /* a limit: the best counts */
            status = ls_barrier(comm, error);
            if (!status)
                status = ls_gemm_peak(&ops, types[i], &rate, error);
            status = ls_comm_agree(comm, status, error);
            run->peak[i][rank] = fmax(run->peak[i][rank], rate);
        }
    }
    if (!status)
        status = core_copies(comm, &ops, run->bytes, &run->bytes_s[rank], error);
    ls_ops_release(&ops);
    return status;
}

/* Figures of one core while all work. */
static int cores_measure(const struct ls_measure *measure, struct ls_error *error)
{
    struct ls_cluster_accelerator *core = &measure->cluster->accelerator;
    int cores = measure_cores(measure), status = LS_OK;
    double *values = calloc(4 * (size_t)cores, sizeof *values);
    if (!values)
        return ls_no_memory(error, "for the rates of %d cores", cores);
    struct core_run run = {.peak = {values, values + cores, values + 2 * cores},
                           .bytes_s = values + 3 * cores,
                           .bytes = measure->effort.coarse ? COPY_BYTES / 4 : COPY_BYTES,
                           .rounds = measure->effort.coarse ? 1 : 3};
    status = ls_world_run(cores, core_body, &run, error);
    for (int i = 0; i < 3 && !status; i++)
        core->peak[i] = ls_median(run.peak[i], cores);
    if (!status)
        core->bytes_per_s = ls_median(run.bytes_s, cores);
    free(values);
    return status;
}

/* ---- tiers ----------------------------------------------------------------------------------- */

int ls_measure_tier_pass(struct ls_tier *tier, const struct ls_measure_pass *pass,
                         struct ls_error *error)
{
    struct ls_transfer moves[LS_MEASURE_BUFFERS_MAX] = {{0}};
    int64_t pieces = pass->bytes / pass->piece;
    int status = LS_OK;
    LS_ASSERT(pass->buffers <= LS_MEASURE_BUFFERS_MAX);
    for (int64_t i = 0; i < pieces + pass->buffers; i++) {
        struct ls_transfer *move = &moves[i % pass->buffers];
        unsigned char *buffer = pass->memory + i % pass->buffers * pass->piece;
        size_t at = (size_t)(i * pass->piece), bytes = (size_t)pass->piece;
        int ended = ls_transfer_wait(move, error);
        status = status ? status : ended;
        if (i < pieces && !status)
            status = pass->writes ? ls_tier_write(tier, at, buffer, bytes, move, error)
                                  : ls_tier_read(tier, at, buffer, bytes, move, error);
    }
    return status;
}

/* rate[0] of reads, rate[1] of writes. */
static int tier_measure(enum ls_tier_kind kind, const char *folder, int64_t bytes, double rate[2],
                        struct ls_error *error)
{
    struct ls_tier_options options = {.kind = kind, .bytes = (size_t)bytes, .folder = folder};
    struct ls_tier *tier = NULL;
    struct ls_arena arena = {0};
    double rates[2][ROUNDS] = {{0}};
    int status = ls_arena_init(&arena, 2 * (size_t)TRANSFER_BYTES, error);
    if (!status)
        status = ls_tier_new(&options, &tier, error);
    for (int round = -1; round < ROUNDS && !status; round++) /* the first takes pages and blocks */
        for (int writes = 1; writes >= 0 && !status; writes--) {
            const struct ls_measure_pass pass = {arena.base, 2, TRANSFER_BYTES, bytes, writes};
            double begin = ls_now_s();
            status = ls_measure_tier_pass(tier, &pass, error);
            rates[writes][ls_max(round, 0)] = (double)bytes / (ls_now_s() - begin);
        }
    ls_tier_free(tier);
    ls_arena_release(&arena);
    for (int i = 0; i < 2; i++)
        rate[i] = ls_median(rates[i], ROUNDS);
    return status;
}

static int tiers_measure(const struct ls_measure *measure, const char *folder,
                         struct ls_error *error)
{
    struct ls_cluster *cluster = measure->cluster;
    int64_t bytes = measure->effort.coarse ? 4 * TRANSFER_BYTES : 16 * TRANSFER_BYTES;
    double rate[2];
    int status = tier_measure(LS_TIER_HOST, NULL, bytes, rate, error);
    if (!status) /* a rank copies; all share what memory has */
        cluster->host_link_bytes_per_s =
            fmin(fmin(rate[0], rate[1]), cluster->accelerator.bytes_per_s);
    if (status || !folder)
        return status;
    status = tier_measure(LS_TIER_FILE, folder, 4 * bytes, rate, error);
    struct statvfs room;
    if (status)
        return status;
    cluster->disk_read_bytes_per_s = rate[0];
    cluster->disk_write_bytes_per_s = rate[1];
    if (statvfs(folder, &room) == 0)
        cluster->disk_bytes = (double)room.f_blocks * (double)room.f_frsize;
    return LS_OK;
}

/* ---- names and links ------------------------------------------------------------------------- */

int ls_measure_machine(const struct ls_measure *measure, const char *folder, struct ls_error *error)
{
    struct ls_cluster *cluster = measure->cluster;
    struct ls_device_memory memory = ls_device_memory();
    char processor[64] = "CPU";
    cluster_defaults(cluster);
    ls_device_processor(processor, sizeof processor);
    cluster->hosts = 1;
    cluster->accelerators = measure_cores(measure);
    snprintf(cluster->name, sizeof cluster->name, "%s x %lld, measured", processor,
             (long long)cluster->accelerators);
    snprintf(cluster->accelerator.name, sizeof cluster->accelerator.name, "core of %s", processor);
    cluster->host_memory_bytes = (double)memory.total;
    cluster->accelerator.memory_bytes = (double)memory.total / (double)cluster->accelerators;
    cluster->accelerator.is_core = 1;
    cluster->overlap = 0; /* cores move their bytes themselves */
    int status = cores_measure(measure, error);
    return status ? status : tiers_measure(measure, folder, error);
}

/* The row of messages among so many ranks with the most bytes, or the fewest. */
static const struct ls_measured_move *message_row(const struct ls_cluster *cluster, int ranks,
                                                  bool most)
{
    const struct ls_measured_move *found = NULL;
    for (int64_t i = 0; i < cluster->moves_count; i++) {
        const struct ls_measured_move *move = &cluster->moves[i];
        if (move->kind != LS_COMM_SEND || move->ranks != ranks)
            continue;
        if (!found || (most ? move->bytes > found->bytes : move->bytes < found->bytes))
            found = move;
    }
    return found;
}

/* The rate is what more bytes take more. */
bool measure_link(const struct ls_cluster *cluster, int ranks, struct ls_cluster_link *link)
{
    const struct ls_measured_move *small = message_row(cluster, ranks, false);
    const struct ls_measured_move *large = message_row(cluster, ranks, true);
    if (!small)
        return false;
    double seconds = large->seconds - small->seconds;
    link->latency_s = small->seconds;
    link->bytes_per_s = seconds > large->seconds / 2
                            ? (double)(large->bytes - small->bytes) / seconds
                            : (double)large->bytes / large->seconds;
    return true;
}

/* The best share of peak among rows of these kinds that are large enough to be limited by it. */
static double best_share(const struct ls_cluster *cluster, enum ls_work_kind first,
                         enum ls_work_kind last, double flops_each)
{
    double best = 0;
    for (int64_t i = 0; i < cluster->works_count; i++) {
        const struct ls_measured_work *row = &cluster->works[i];
        double flops = flops_each * (double)row->m * (double)row->n * (double)row->k;
        double peak = ls_cluster_peak(cluster, row->dtype) * row->threads;
        if (row->kind >= first && row->kind <= last && flops > 1e8)
            best = fmax(best, flops / row->seconds / peak);
    }
    return fmin(best, 1);
}

void ls_measure_finish(struct ls_cluster *cluster)
{
    struct ls_cluster_link *link = &cluster->link[0];
    cluster_link_defaults(link);
    snprintf(link->name, sizeof link->name, "memory");
    link->joins = cluster->accelerators;
    if (!measure_link(cluster, 2, link)) {
        link->latency_s = 1e-6;
        link->bytes_per_s = cluster->accelerator.bytes_per_s;
    }
    cluster->links = 1;
    cluster->hosts = 1;
    double products = best_share(cluster, LS_WORK_PRODUCT, LS_WORK_PRODUCT_AT, 2);
    double attention = best_share(cluster, LS_WORK_ATTENTION, LS_WORK_ATTENTION, 4);
    if (products > 0)
        cluster->accelerator.product_share = products;
    if (attention > 0)
        cluster->accelerator.attention_share = attention;
}
