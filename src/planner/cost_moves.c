/* How long a collective, a message or a transfer takes on a cluster. */
#include "planner/cost_private.h"

#include <math.h>

/* ---- groups ---------------------------------------------------------------------------------- */

struct ls_cost_group ls_cost_group_of(const struct ls_cluster *cluster, int accelerators,
                                      int64_t first, int64_t ranks, int64_t stride)
{
    struct ls_cost_group group = {.ranks = ranks, .accelerators = accelerators, .level = -1};
    int64_t from = first * accelerators, step = stride * accelerators;
    int64_t to = from + (ranks - 1) * step;
    for (int l = 0; l < cluster->links; l++) {
        int64_t joins = cluster->link[l].joins;
        /* Steps that are shorter than a domain leave none out. */
        int64_t domains = step >= joins ? ranks : to / joins - from / joins + 1;
        group.near[l] = (double)ranks / (double)domains;
        if (group.level < 0 && domains == 1 && ranks > 1)
            group.level = l;
    }
    if (group.level < 0 && ranks > 1)
        group.level = cluster->links - 1;
    return group;
}

static double link_rate(const struct ls_cluster *cluster, const struct ls_cost_group *group, int l)
{
    const struct ls_cluster_link *link = &cluster->link[l];
    double domain = l > 0 ? (double)cluster->link[l - 1].joins : 1;
    double cross = group->shift > 0 ? fmin(group->shift / domain, 1) : 1;
    return link->bytes_per_s * link->share / fmax(link->oversubscription * cross, 1);
}

/* Of domains of each level the group has so many ranks in one; all of them at its own level. */
static double near_of(const struct ls_cost_group *group, int level)
{
    return level < 0 ? 1 : level >= group->level ? (double)group->ranks : group->near[level];
}

void ls_cost_link(const struct ls_cluster *cluster, const struct ls_cost_group *group,
                  double *latency_s, double *bytes_per_s)
{
    double own = group->accelerators > 0 ? group->accelerators : 1;
    *latency_s = 0;
    *bytes_per_s = INFINITY;
    if (group->level < 0)
        return;
    for (int l = 0; l <= group->level; l++) {
        double inside = near_of(group, l - 1);
        /* No two ranks meet at this level. */
        if (near_of(group, l) <= inside)
            continue;
        *latency_s = fmax(*latency_s, cluster->link[l].latency_s);
        *bytes_per_s = fmin(*bytes_per_s, own * inside * link_rate(cluster, group, l));
    }
}

/* A byte that comes is written, read again, and written or added where it belongs. */
#define MEMORY_PASSES 3.0
/* Of units or bandwidth: something is left for what computes. */
#define TAKEN_MOST 0.9

void ls_cost_taken(const struct ls_cluster *cluster, const struct ls_cost_group *group,
                   double *units, double *memory)
{
    const struct ls_cluster_accelerator *accelerator = &cluster->accelerator;
    double latency, rate, own = group->accelerators > 0 ? group->accelerators : 1;
    *units = *memory = 0;
    if (group->level < 0 || accelerator->unit_bytes_per_s <= 0 || accelerator->units == 0)
        return;
    ls_cost_link(cluster, group, &latency, &rate);
    *units =
        fmin(TAKEN_MOST, rate / (own * (double)accelerator->units * accelerator->unit_bytes_per_s));
    *memory = fmin(TAKEN_MOST, MEMORY_PASSES * rate / (own * accelerator->bytes_per_s));
}

/* The mean over the hops of a ring through all ranks, domain by domain: most stay inside. */
static double ring_latency(const struct ls_cluster *cluster, const struct ls_cost_group *group)
{
    double sum = 0;
    for (int l = 0; l <= group->level; l++) {
        /* Hops that leave a domain of the level below, less those that leave one of this. */
        double leave = 1 / near_of(group, l - 1);
        double far = l == group->level ? 0 : 1 / near_of(group, l);
        sum += (leave - far) * cluster->link[l].latency_s;
    }
    return sum;
}

/* From the root of a tree to its leaves, level by level. */
static double tree_latency(const struct ls_cluster *cluster, const struct ls_cost_group *group)
{
    double sum = 0;
    for (int l = 0; l <= group->level; l++)
        sum += ceil(log2(near_of(group, l) / near_of(group, l - 1)) - 1e-9) *
               cluster->link[l].latency_s;
    return sum;
}

/* ---- moves ----------------------------------------------------------------------------------- */

/* Negative: nothing like it was measured. Less than the smallest measured takes as long as that,
 * more than the largest as much longer as it is larger. */
static double measured_move(const struct ls_cluster *cluster, const struct ls_cost_group *group,
                            enum ls_comm_kind kind, double bytes)
{
    const struct ls_measured_move *below = NULL, *above = NULL;
    if (group->level != 0)
        return -1;
    for (int64_t i = 0; i < cluster->moves_count && !above; i++) {
        const struct ls_measured_move *move = &cluster->moves[i];
        if (move->kind != kind || move->ranks != group->ranks)
            continue;
        if ((double)move->bytes <= bytes)
            below = move;
        else
            above = move;
    }
    if (!below)
        return above ? above->seconds : -1;
    return above ? cost_between(bytes, (double)below->bytes, below->seconds, (double)above->bytes,
                                above->seconds)
                 : below->seconds * bytes / (double)below->bytes;
}

/* Every rank has bytes / n for each: what leaves a domain goes by each rank's own share of the
 * link above it, and the links work side by side. */
static double all_to_all_seconds(const struct ls_cluster *cluster,
                                 const struct ls_cost_group *group, double bytes)
{
    double n = (double)group->ranks, longest = 0;
    double own = group->accelerators > 0 ? group->accelerators : 1;
    for (int l = 0; l <= group->level; l++) {
        const struct ls_cluster_link *link = &cluster->link[l];
        double leaves =
            bytes * (1 - near_of(group, l - 1) / n) / (own * link_rate(cluster, group, l));
        /* Along a ring data pass a quarter of its members, both ways at once. */
        if (link->topology == LS_LINK_RING)
            leaves *= fmax(1, near_of(group, l) / near_of(group, l - 1) / 4);
        longest = fmax(longest, leaves);
    }
    return (n - 1) * ring_latency(cluster, group) + longest;
}

double ls_cost_move(const struct ls_cluster *cluster, const struct ls_cost_group *group,
                    enum ls_comm_kind kind, double bytes)
{
    double latency, rate, n = (double)group->ranks;
    if (group->ranks < 2 || group->level < 0)
        return 0;
    double measured = measured_move(cluster, group, kind, bytes);
    if (measured >= 0)
        return measured;
    ls_cost_link(cluster, group, &latency, &rate);
    double ring = ring_latency(cluster, group), tree = tree_latency(cluster, group);
    bool neighbours = cluster->link[group->level].topology == LS_LINK_RING;
    double moved = bytes * (n - 1) / (n * rate), launch = cluster->accelerator.collective_launch_s;
    switch (kind) {
    case LS_COMM_ALL_GATHER:
    case LS_COMM_REDUCE_SCATTER:
        return launch + ls_ring_seconds(group->ranks, bytes, ring, rate, false);
    case LS_COMM_ALL_REDUCE:
    case LS_COMM_OTHER:
        return launch + 2 * (neighbours ? (n - 1) * ring : fmin((n - 1) * ring, tree)) + 2 * moved;
    case LS_COMM_BROADCAST:
        return launch + (neighbours ? (n - 1) * ring : tree) + bytes / rate;
    case LS_COMM_ALL_TO_ALL:
        return launch + all_to_all_seconds(cluster, group, bytes);
    default:
        return launch + latency + bytes / rate;
    }
}

/* ---- tiers ----------------------------------------------------------------------------------- */

double ls_cost_tier(const struct ls_cluster *cluster, enum ls_tier_kind tier, bool writes,
                    double bytes)
{
    double link = cluster->host_link_bytes_per_s, rate = link;
    if (bytes <= 0 || tier == LS_TIER_DEVICE)
        return 0;
    if (tier == LS_TIER_FILE) {
        double disk = writes ? cluster->disk_write_bytes_per_s : cluster->disk_read_bytes_per_s;
        rate = disk / (double)cluster->accelerators;
        rate = link > 0 ? fmin(rate, link) : rate;
    }
    return rate > 0 ? bytes / rate : INFINITY;
}
