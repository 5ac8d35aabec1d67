/* Brings together what the hosts of a job measured: medians, who is slow, the network. */
#include <lockstep/planner/measure.h>

#include "cluster_private.h"
#include "planner/measure_private.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FIGURES = 7, HOST_BYTES = 64 };
static const double slow_ratio = 1.1;

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

/* All hosts measured the same rows: their number, and a digest of what they are of. */
static int rows_agree(const struct ls_cluster *cluster, struct ls_comm *hosts,
                      struct ls_error *error)
{
    uint64_t digest = ls_hash64(&cluster->accelerators, sizeof cluster->accelerators, 0);
    for (int64_t i = 0; i < cluster->works_count; i++) {
        const struct ls_measured_work *w = &cluster->works[i];
        const int64_t key[] = {w->kind, w->dtype, w->threads, w->m, w->n, w->k};
        digest = ls_hash64(key, sizeof key, digest);
    }
    for (int64_t i = 0; i < cluster->moves_count; i++) {
        const struct ls_measured_move *m = &cluster->moves[i];
        const int64_t key[] = {m->kind, m->ranks, m->bytes};
        digest = ls_hash64(key, sizeof key, digest);
    }
    int64_t most = (int64_t)(digest >> 1), least = -most;
    int status = ls_all_reduce_max(hosts, &most, error);
    if (!status)
        status = ls_all_reduce_max(hosts, &least, error);
    if (!status && most != -least)
        status = ls_error_set(error, LS_ECONFIG,
                              "the hosts have other numbers of cores, or measured other things: "
                              "measure each kind of hosts by itself");
    return status;
}

/* values[count] of each host, host by host. */
static void medians_set(struct ls_cluster *cluster, const double *all, int64_t count, int hosts)
{
    double *figure[FIGURES], *one = calloc((size_t)hosts, sizeof *one);
    figures_of(cluster, figure);
    for (int64_t i = 0; i < count && one; i++) {
        for (int h = 0; h < hosts; h++)
            one[h] = all[h * count + i];
        double median = measure_median(one, hosts);
        int64_t move = i - cluster->works_count, f = move - cluster->moves_count;
        if (move < 0)
            cluster->works[i].seconds = median;
        else if (f < 0)
            cluster->moves[move].seconds = median;
        else
            *figure[f] = median;
    }
    free(one);
}

/* By how much the works of a host take longer than the medians do, in the middle of all works. */
static double slowness(const struct ls_cluster *cluster, const double *own)
{
    int64_t count = cluster->works_count;
    double *ratio = calloc((size_t)count + 1, sizeof *ratio);
    for (int64_t i = 0; i < count && ratio; i++)
        ratio[i] = own[i] / cluster->works[i].seconds;
    double median = ratio ? measure_median(ratio, count) : 1;
    free(ratio);
    return median;
}

static void slow_note(const struct ls_cluster *cluster, const double *all, int64_t count, int hosts,
                      const char *names, struct ls_measure_note *note)
{
    size_t used = 0;
    for (int h = 0; h < hosts; h++) {
        double slow = slowness(cluster, all + h * count);
        if (slow > slow_ratio && used < sizeof note->text)
            used += (size_t)snprintf(note->text + used, sizeof note->text - used,
                                     "%s%s takes %.0f %% longer than the median of the hosts",
                                     used ? "; " : "", names + (size_t)h * HOST_BYTES,
                                     (slow - 1) * 100);
    }
}

/* Two hosts' messages are what the network gives. */
static int network_measure(const struct ls_measure *measure, struct ls_comm *hosts,
                           struct ls_error *error)
{
    struct ls_cluster *cluster = measure->cluster, between = {.hosts = 1};
    struct ls_measure alone = *measure;
    alone.cluster = &between;
    int status = ls_measure_moves_of(&alone, hosts, error);
    if (!status && ls_comm_rank(hosts) == 0) {
        between.accelerators = 1;
        ls_measure_finish(&between, 1);
        cluster->link[1] = between.link[0];
        struct ls_cluster_link *link = &cluster->link[1];
        snprintf(link->name, sizeof link->name, "network");
        link->joins = cluster->accelerators * cluster->hosts;
        link->bytes_per_s /= (double)cluster->accelerators; /* of a core: its share of the card */
        cluster->links = 2;
    }
    ls_cluster_release(&between);
    return status;
}

int ls_measure_hosts(const struct ls_measure *measure, struct ls_comm *hosts,
                     struct ls_measure_note *note, struct ls_error *error)
{
    struct ls_cluster *cluster = measure->cluster;
    int count = ls_comm_size(hosts);
    int64_t values = cluster->works_count + cluster->moves_count + FIGURES;
    char name[HOST_BYTES] = "";
    double *figure[FIGURES];
    *note = (struct ls_measure_note){{0}};
    gethostname(name, sizeof name - 1);
    int status = rows_agree(cluster, hosts, error);
    double *own = calloc((size_t)values, sizeof *own);
    double *all = calloc((size_t)(values * count), sizeof *all);
    char *names = calloc((size_t)count, HOST_BYTES);
    if (!status && (!own || !all || !names))
        status = ls_error_set(error, LS_ENOMEM, "no memory for the figures of %d hosts", count);
    status = ls_comm_agree(hosts, status, error);
    if (!status) {
        figures_of(cluster, figure);
        for (int64_t i = 0; i < cluster->works_count; i++)
            own[i] = cluster->works[i].seconds;
        for (int64_t i = 0; i < cluster->moves_count; i++)
            own[cluster->works_count + i] = cluster->moves[i].seconds;
        for (int i = 0; i < FIGURES; i++)
            own[values - FIGURES + i] = *figure[i];
        status = ls_all_gather(hosts, own, all, values, LS_U64, error);
    }
    if (!status)
        status = ls_all_gather(hosts, name, names, HOST_BYTES, LS_U8, error);
    if (!status) {
        medians_set(cluster, all, values, count);
        slow_note(cluster, all, values, count, names, note);
        cluster->hosts = count;
        status = network_measure(measure, hosts, error);
    }
    free(names);
    free(all);
    free(own);
    return status;
}
