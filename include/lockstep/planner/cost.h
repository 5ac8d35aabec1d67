/* lockstep/planner/cost.h - how long one thing takes on a cluster: an op, a collective, a message,
 * a transfer. Pure arithmetic over a struct ls_cluster; everything here is Local.
 *
 * Works. Where the cluster has measured works of the kind, type and threads, the time is
 * interpolated between them: of products and attention the rate (operations a second), by the
 * logarithms of m, n, k; of passes the rate of bytes, by the logarithm of the elements. Otherwise
 * by the roofline (Williams, Waterman, Patterson 2009): the longer of operations at the reachable
 * rate and bytes at the reachable bandwidth, after the launch. A product's reachable rate is
 * product_share of peak, less what is computed in vain where its tiles do not fill the units
 * ("wave quantization", NVIDIA, "Matrix Multiplication Background", 2023).
 *
 * Moves. Where the cluster has measured moves they are interpolated. Otherwise Hockney's alpha-beta
 * model for the algorithm that is faster: with n ranks, S bytes in all, latency a and rate b
 *
 *   ring    all-gather, reduce-scatter   (n - 1) (a + S / (n b))                Thakur et al. 2005
 *           all-reduce                    twice that
 *   tree    broadcast                     ceil(log2 n) a + S / b
 *           all-reduce                    2 ceil(log2 n) a + 2 S (n - 1) / (n b)   Sanders 2009
 *
 * A group that spans domains of a level goes at the rate of that level: a rank's own share of the
 * link, times the ranks that the group has in each domain (each has its card), but not faster than
 * the level below; divided by the oversubscription of a fat tree.
 */
#ifndef LOCKSTEP_PLANNER_COST_H
#define LOCKSTEP_PLANNER_COST_H

#include <lockstep/device/tier.h>
#include <lockstep/planner/cluster.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Seconds of one op on a rank that has so many accelerators (a GPU: 1; CPU: its threads). */
double ls_cost_work(const struct ls_cluster *cluster, int accelerators, const struct ls_work *work);

/* Ranks that meet: n of them, of which `near` lie in one domain of each level, on average:
 * near[0] = 1 or more ranks in a domain of link 0, ... */
struct ls_cost_group {
    int64_t ranks;
    int level; /* the lowest link that joins all of them; -1: one rank */
    double near[LS_CLUSTER_LINKS_MAX];
};
/* Of ranks `stride` apart, from `first` on; each has `accelerators`. */
struct ls_cost_group ls_cost_group_of(const struct ls_cluster *cluster, int accelerators,
                                      int64_t first, int64_t ranks, int64_t stride);

/* Latency and rate (bytes a second of each rank, each way) of a group. */
void ls_cost_link(const struct ls_cluster *cluster, const struct ls_cost_group *group,
                  double *latency_s, double *bytes_per_s);
/* Seconds of a collective over bytes in all (what each rank has after an all-gather, before a
 * reduce-scatter), or of a message of bytes (LS_COMM_SEND). */
double ls_cost_move(const struct ls_cluster *cluster, const struct ls_cost_group *group,
                    enum ls_comm_kind kind, double bytes);

/* Seconds to move bytes to (or from) host memory or the disk: one accelerator, all of a host at
 * once. tier as enum ls_tier_kind. */
double ls_cost_tier(const struct ls_cluster *cluster, enum ls_tier_kind tier, bool writes,
                    double bytes);

/* ---- closed forms -----------------------------------------------------------------------------
 */

double ls_ring_seconds(int64_t ranks, double bytes, double latency_s, double bytes_per_s,
                       bool all_reduce);
double ls_tree_seconds(int64_t ranks, double bytes, double latency_s, double bytes_per_s,
                       bool all_reduce);

#ifdef __cplusplus
}
#endif
#endif
