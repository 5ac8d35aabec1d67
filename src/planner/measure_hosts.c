/* Brings together what the hosts of a job measured: medians, who is slow, the network. */

#include "planner/cluster_private.h"
#include "planner/measure_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FIGURES = 7 };
static const double slow_ratio = 1.1;

bool ls_measured_host_slow(const struct ls_measured_host *host)
{
    return host->slower > slow_ratio;
}

void ls_measured_hosts_release(struct ls_measured_hosts *hosts)
{
    free(hosts->host);
    *hosts = (struct ls_measured_hosts){.count = 0};
}

static struct ls_measured_host this_host(const struct ls_cluster *cluster, int processes)
{
    const struct ls_cluster_accelerator *core = &cluster->accelerator;
    struct ls_measured_host host = {.cores = cluster->accelerators,
                                    .processes = processes,
                                    .flops = {core->peak[0], core->peak[1]},
                                    .bytes_per_s = core->bytes_per_s,
                                    .slower = 1};
    gethostname(host.name, sizeof host.name - 1);
    return host;
}

int ls_measure_host(const struct ls_measure *measure, struct ls_measured_hosts *hosts,
                    struct ls_error *error)
{
    hosts->host = malloc(sizeof *hosts->host);
    hosts->count = hosts->host ? 1 : 0;
    if (!hosts->host)
        return ls_no_memory(error, "for the figures of a host");
    *hosts->host = this_host(measure->cluster, 1);
    return LS_OK;
}

/* ---- figures of all hosts -------------------------------------------------------------------- */

/* What each host has measured: values[count] of it, host by host. */
struct table {
    struct ls_comm *hosts; /* the ranks that measured one */
    int count;
    int64_t values;
    double *own, *all;
};

static void figures_of(struct ls_cluster *cluster, double *figure[FIGURES])
{
    struct ls_cluster_accelerator *core = &cluster->accelerator;
    double *const all[FIGURES] = {&core->peak[0],
                                  &core->peak[1],
                                  &core->peak[2],
                                  &core->bytes_per_s,
                                  &cluster->host_link_bytes_per_s,
                                  &cluster->disk_read_bytes_per_s,
                                  &cluster->disk_write_bytes_per_s};
    memcpy(figure, all, sizeof all);
}

/* Where value i of a host is kept. */
static double *value_at(struct ls_cluster *cluster, int64_t i)
{
    double *figure[FIGURES];
    int64_t move = i - cluster->works_count, f = move - cluster->moves_count;
    figures_of(cluster, figure);
    return move < 0 ? &cluster->works[i].seconds
           : f < 0  ? &cluster->moves[move].seconds
                    : figure[f];
}

/* All hosts measured the same rows: their number, and a digest of what they are of. */
static int rows_agree(const struct ls_cluster *cluster, struct ls_comm *hosts,
                      struct ls_error *error)
{
    uint64_t digest = ls_hash64(&cluster->accelerators, sizeof cluster->accelerators, 0);
    for (int64_t i = 0; i < cluster->works_count + cluster->moves_count; i++) {
        int64_t move = i - cluster->works_count;
        const struct measure_key key = move < 0 ? measure_work_key(&cluster->works[i])
                                                : measure_move_key(&cluster->moves[move]);
        digest = ls_hash64(&key, sizeof key, digest);
    }
    int64_t most = (int64_t)(digest >> 1), least = -most;
    int status = ls_all_reduce_max(hosts, &most, error);
    if (!status)
        status = ls_all_reduce_max(hosts, &least, error);
    if (!status && most != -least)
        status = ls_error_set(error, LS_ECONFIG,
                              "the hosts differ in their numbers of cores or processes, or in "
                              "what they measured: expected the same on each; measure each "
                              "kind of host separately");
    return status;
}

static int table_gather(struct table *table, struct ls_cluster *cluster,
                        struct ls_measured_hosts *hosts, int processes, struct ls_error *error)
{
    struct ls_measured_host own = this_host(cluster, processes);
    table->values = cluster->works_count + cluster->moves_count + FIGURES;
    table->own = calloc((size_t)table->values, sizeof(double));
    table->all = calloc((size_t)(table->values * table->count), sizeof(double));
    hosts->host = calloc((size_t)table->count, sizeof *hosts->host);
    hosts->count = table->count;
    int status = rows_agree(cluster, table->hosts, error);
    if (!status && (!table->own || !table->all || !hosts->host))
        status = ls_no_memory(error, "for the figures of %d hosts", table->count);
    status = ls_comm_agree(table->hosts, status, error);
    for (int64_t i = 0; i < table->values && !status; i++)
        table->own[i] = *value_at(cluster, i);
    if (!status)
        status = ls_all_gather(table->hosts, table->own, table->all, table->values, LS_U64, error);
    return status ? status
                  : ls_all_gather(table->hosts, &own, hosts->host, sizeof own, LS_U8, error);
}

/* By how much the works of each host take longer, in the middle of all works; and medians in
 * place of what this host measured. */
static int table_use(const struct table *table, struct ls_cluster *cluster,
                     struct ls_measured_hosts *hosts, struct ls_error *error)
{
    int64_t works = cluster->works_count;
    double *one = calloc((size_t)table->count, sizeof *one);
    double *ratio = calloc((size_t)(works * table->count) + 1, sizeof *ratio);
    int status = LS_OK;
    if (!one || !ratio)
        status = ls_no_memory(error, "for medians of %d hosts", table->count);
    for (int64_t i = 0; i < table->values && !status; i++) {
        for (int h = 0; h < table->count; h++)
            one[h] = table->all[h * table->values + i];
        *value_at(cluster, i) = ls_median(one, table->count); /* sorts them */
        for (int h = 0; h < table->count && i < works; h++)
            ratio[h * works + i] = table->all[h * table->values + i] / one[(table->count - 1) / 2];
    }
    for (int h = 0; h < table->count && works > 0 && !status; h++)
        hosts->host[h].slower = ls_median(ratio + h * works, works);
    free(ratio);
    free(one);
    return status;
}

/* ---- the network ----------------------------------------------------------------------------- */

/* The process of the neighbouring host that is there what this one is here; -1: it has none. Hosts
 * are neighbours in pairs. host[size]: as ls_comm_machines has it. */
static int peer_of(const int64_t *host, int size, int rank)
{
    int hosts = 0, own = 0, place = 0, peer = -1;
    for (int r = 0; r < size; r++) {
        own = r == host[rank] ? hosts : own;
        hosts += host[r] == r;
        place += r < rank && host[r] == host[rank];
    }
    for (int r = 0, at = 0; r < size; r++) {
        if (host[r] != r)
            continue;
        for (int p = r, there = 0; p < size && at == (own ^ 1); p++)
            if (host[p] == r && there++ == place)
                peer = p;
        at++;
    }
    return peer;
}

/* What the messages of all processes to the neighbouring host come to is what the network gives. */
static int network_measure(const struct ls_measure *measure, struct ls_comm *world,
                           const int64_t *host, struct ls_error *error)
{
    struct ls_cluster *cluster = measure->cluster, between = {.hosts = 1};
    struct ls_measure alone = *measure;
    int size = ls_comm_size(world), rank = ls_comm_rank(world);
    alone.cluster = &between;
    double overlap = 0;
    int peer = peer_of(host, size, rank);
    int status = measure_messages(&alone, world, peer, error);
    if (!status)
        status = measure_overlap(world, peer, &overlap, error);
    if (!status && rank == 0) {
        struct ls_cluster_link *link = &cluster->link[1];
        cluster_link_defaults(link);
        measure_link(&between, size, link);
        snprintf(link->name, sizeof link->name, "network");
        link->joins = cluster->accelerators * cluster->hosts;
        link->overlap = overlap;
        /* Of a core: its share of the card that its processes have. */
        link->bytes_per_s *= ls_comm_machine_ranks(world) / (double)cluster->accelerators;
        cluster->links = 2;
    }
    ls_cluster_release(&between);
    return status;
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* Collectives of the processes of this host, while the other hosts measure theirs. */
static int processes_measure(const struct ls_measure *measure, struct ls_comm *world, int first,
                             struct ls_error *error)
{
    struct ls_comm *local = NULL;
    int status = ls_comm_split(world, first, 0, &local, error);
    if (!status)
        status = ls_measure_moves_of(measure, local, error);
    if (!status && ls_comm_rank(local) == 0)
        ls_measure_finish(measure->cluster);
    ls_comm_free(local);
    return ls_comm_agree(world, status, error);
}

/* Over those that measured a host. */
static int hosts_compare(const struct ls_measure *measure, struct ls_comm *measured, int processes,
                         struct ls_measured_hosts *hosts, struct ls_error *error)
{
    struct ls_cluster *cluster = measure->cluster;
    struct table table = {.hosts = measured, .count = ls_comm_size(measured)};
    int status = table_gather(&table, cluster, hosts, processes, error);
    if (!status)
        status = table_use(&table, cluster, hosts, error);
    cluster->hosts = table.count;
    free(table.own);
    free(table.all);
    return status;
}

int ls_measure_hosts(const struct ls_measure *measure, struct ls_comm *world,
                     struct ls_measured_hosts *hosts, struct ls_error *error)
{
    int size = ls_comm_size(world), rank = ls_comm_rank(world);
    struct ls_comm *group = NULL;
    int64_t *host = calloc((size_t)size, sizeof *host);
    *hosts = (struct ls_measured_hosts){.count = 0};
    int status = host ? LS_OK : ls_no_memory(error, "for %d ranks", size);
    status = ls_comm_agree(world, status, error);
    if (!status)
        status = ls_comm_machines(world, host, error);
    if (!status)
        status = processes_measure(measure, world, (int)host[rank], error);
    bool measured = !status && host[rank] == rank;
    if (!status)
        status = ls_comm_split(world, measured, 0, &group, error);
    if (!status && measured)
        status = hosts_compare(measure, group, ls_comm_machine_ranks(world), hosts, error);
    ls_comm_free(group);
    status = ls_comm_agree(world, status, error);
    bool several = false;
    for (int r = 0; r < size && !status; r++)
        several |= host[r] != host[0];
    if (several)
        status = network_measure(measure, world, host, error);
    free(host);
    if (status || rank)
        ls_measured_hosts_release(hosts);
    return status;
}
