/* lockstep/planner/cost.h - how long one thing takes on a cluster: an op, a collective, a message,
 * a transfer. Pure arithmetic over a struct ls_cluster; everything here is Local.
 *
 * Works. Where the cluster has measured works of the kind, type and threads, the time is that of
 * the shape that was measured, and else interpolated; without such rows it is the roofline's. Ops
 * of one shape that read and write other bytes (onto a sum, say, or of other types) have rows of
 * their own; if none has the op's bytes, the nearest of its shape counts.
 *
 *   products and     where the rows are a grid (each of some m, with each of some n, of some k): by
 *   attention        the logarithms of m, n, k and of time, linear in each. Other rows: the rate
 *                    (m n k a second) of near ones, by distance. Beyond the rows: m n k at the
 *                    rate of their edge.
 *   the others       by the logarithms of the elements m n and of time; beyond: in proportion. Of
 *                    rows with as many bytes an element, if there are such.
 *
 * A larger shape never takes less time, if no measured one does; of rows that are no grid this
 * holds between an asked shape and the measured ones alone. So measure grids.
 *
 * The roofline (Williams, Waterman, Patterson 2009) is the longer of operations at the reachable
 * rate and bytes at the reachable bandwidth, after the launch. A product's reachable rate is
 * product_share of peak, less what is computed in vain where its tiles do not fill the units
 * ("wave quantization", NVIDIA, "Matrix Multiplication Background", 2023). Libraries choose the
 * tile by the shape, from 256 x 128, "most efficient", to 64 x 64, "least" (the same, section 2.3):
 * here the fastest of accelerator.tile and of those whose sides are halves, quarters, ... of its
 * sides, down to 64, either way round. Smaller tiles are less efficient because they use each
 * operand for fewer products: operands come to a tile at most as fast as to a whole one, so the
 * rate falls with m n / (m + n). Elementwise passes compute at the peak of float32.
 *
 * Attention reaches its share of peak on long sequences. Beyond its keys each query takes the time
 * of attention_edge more: a causal mask cuts tiles that are computed whole, and a row of tiles
 * begins and ends with loads and stores that nothing overlaps. Rates that are published by sequence
 * length follow n / (n + edge) with n keys a query (Dao 2023, figures 4 and 7: 230 to 280).
 *
 * Moves. Where the cluster has measured moves of the kind and so many ranks they are interpolated,
 * by the logarithms of bytes and time, for groups that the innermost link joins. Otherwise
 * Hockney's alpha-beta model for the algorithm that is faster: with n ranks, S bytes in all,
 * latency a and rate b
 *
 *   ring    all-gather, reduce-scatter   (n - 1) (a + S / (n b))                Thakur et al. 2005
 *           all-reduce                    twice that
 *   tree    broadcast                     ceil(log2 n) a + S / b
 *           all-reduce                    2 ceil(log2 n) a + 2 S (n - 1) / (n b)   Sanders 2009
 *   pairs   all-to-all                    (n - 1) a + S (n - 1) / (n b)
 *   message                               a + S / b
 *
 * The rate of a link is links.share of the datasheet's, which counts headers and acknowledgements.
 * A group that spans domains of a level goes at the rate of that level: a rank's own share of the
 * link, times the ranks that the group has in each domain (each has its card), but not faster than
 * the level below; divided by the oversubscription of a fat tree (of messages between stages, by as
 * much of it as those that cross a domain's edge make up of its ranks). Only an all-to-all has its
 * own share alone. The latency a is, of a ring through the domains, the mean of its hops; of a
 * tree, level by level that of its steps; of a message, that of the slowest level between its
 * ranks. Each move begins after accelerator.collective_launch. Links to neighbours alone (topology:
 * ring) have no trees. LS_COMM_OTHER is an all-reduce.
 *
 * A move takes units and bandwidth from what its ranks compute meanwhile. NCCL's kernels share no
 * unit with others and run on as many as the rate needs: 16 for the 190 GB/s of eight cards of 200
 * Gbit/s (its author in github.com/NVIDIA/nccl/issues/689). So a move takes its group's rate over
 * accelerator.unit_bandwidth of the units. Of the memory's bandwidth it takes three times the rate:
 * what comes is written, read again, and written or added where it belongs (the same,
 * issues/1428). */
#ifndef LOCKSTEP_PLANNER_COST_H
#define LOCKSTEP_PLANNER_COST_H

#include <lockstep/device/tier.h>
#include <lockstep/plan/simulate.h>
#include <lockstep/planner/closed_forms.h>
#include <lockstep/planner/cluster.h>

LS_C_BEGIN

/* The row of that very work on so many threads, or the one of all ops of its shape; NULL: none. */
const struct ls_measured_work *ls_cost_row(const struct ls_cluster *cluster, int threads,
                                           const struct ls_work *work);
/* Of one op on a rank that has so many accelerators (a GPU: 1; CPU: its threads). Nothing slows a
 * work that was measured. */
struct ls_work_time ls_cost_work_time(const struct ls_cluster *cluster, int accelerators,
                                      const struct ls_work *work);
/* Its seconds. */
double ls_cost_work(const struct ls_cluster *cluster, int accelerators, const struct ls_work *work);
/* How many times the mean the slowest of so many equal accelerators takes for the same work, by
 * accelerator.spread: the largest of so many draws of a normal distribution is expected at its
 * quantile (n - 0.375) / (n + 0.25) (Blom 1958). At least 1. */
double ls_cost_slowest(const struct ls_cluster *cluster, double accelerators);

/* Ranks that meet: n of them, of which `near` lie in one domain of each level, on average:
 * near[0] = 1 or more ranks in a domain of link 0, ... */
struct ls_cost_group {
    int64_t ranks;
    int accelerators; /* of each rank, which has the links of all of them; 0 is 1 */
    int level;        /* the lowest link that joins all of them; -1: one rank */
    double near[LS_CLUSTER_LINKS_MAX];
    /* Of a message from each rank to the one so many accelerators on, as between stages; 0: others.
     * From a domain of J only that many of J cross its edge, so they share what an oversubscribed
     * level has for all J. */
    double shift;
};
/* Of ranks `stride` apart, from `first` on; each has `accelerators`. */
struct ls_cost_group ls_cost_group_of(const struct ls_cluster *cluster, int accelerators,
                                      int64_t first, int64_t ranks, int64_t stride);

/* Latency and rate (bytes a second of each rank, each way) of a group. */
void ls_cost_link(const struct ls_cluster *cluster, const struct ls_cost_group *group,
                  double *latency_s, double *bytes_per_s);
/* The shares of a rank's units and of its memory's bandwidth that a move of the group takes. */
void ls_cost_taken(const struct ls_cluster *cluster, const struct ls_cost_group *group,
                   double *units, double *memory);
/* Seconds of a collective over bytes in all (what each rank has after an all-gather, before a
 * reduce-scatter), or of a message of bytes (LS_COMM_SEND). */
double ls_cost_move(const struct ls_cluster *cluster, const struct ls_cost_group *group,
                    enum ls_comm_kind kind, double bytes);

/* Seconds to move bytes to (or from) host memory or the disk: one accelerator, all of a host at
 * once (of a rank with several, its bytes divided by them). Infinite if the cluster has no such
 * tier (host_link or disk is 0). */
double ls_cost_tier(const struct ls_cluster *cluster, enum ls_tier_kind tier, bool writes,
                    double bytes);

LS_C_END
#endif
