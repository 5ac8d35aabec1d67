/* lockstep/parallel.h - how a batch is cut over data-parallel ranks.
 *
 * The global batch of a step is n leaves (law of sums, S3). Each rank holds some of them and walks
 * through them in micro-batches. All of it is arithmetic on leaf indices, tested without a network;
 * lockstep/parallel/zero.h carries the gradients.
 */
#ifndef LOCKSTEP_PARALLEL_H
#define LOCKSTEP_PARALLEL_H

#include <lockstep/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the batches of a run -------------------------------------------------------------------- */

/* Leaves of a step's batch: start, start + increment, ... up to full, spread evenly over the first
 * `samples` sequences of a run (Megatron's --rampup-batch-size start increment samples). increment
 * 0: every batch is full. */
struct ls_ramp {
    int64_t full, start, increment;
    int64_t samples;
};
/* Local. The batch of the step that begins when `samples` sequences were consumed. */
int64_t ls_ramp_at(const struct ls_ramp *ramp, int64_t samples);
/* Local. The batch that follows one of `leaves`: the first after 0, and 0 after the full one. So
 * for (n = 0; (n = ls_ramp_next(ramp, n));) visits each once, ascending. */
int64_t ls_ramp_next(const struct ls_ramp *ramp, int64_t leaves);

/* ---- who computes which leaves --------------------------------------------------------------- */

/* One step's leaves on one replica, in micro-batches of micro_leaves (the last may be smaller). */
struct ls_dp_share {
    int64_t leaves;       /* of the global batch */
    int64_t first, count; /* this replica's: the first one's number, how many */
    int64_t micro_leaves;
    int64_t micro_batches;
    int64_t shard, shards; /* of neighbouring ranks that walk together (ls_dp_share_init), and
                            * which this is; shards 0 or 1: the replica's leaves are consecutive */
};
/* Two levels of ranks: replicas of shards (hybrid sharding, lockstep/parallel/zero.h), rank
 * (replica, shard). Replica i holds the block of leaves [i n/replicas, (i + 1) n/replicas), and
 *
 *   consecutive   shard j of d has its j-th part: sums are reduced once a step
 *   neighbours    in each micro-step the d shards have d * micro_leaves consecutive leaves, shard j
 *                 the j-th micro_leaves of them: sums are reduced at each micro-step
 *
 *     8 leaves, 2 shards, micro 2:   consecutive  0 0 0 0 1 1 1 1    neighbours  0 0 1 1 0 0 1 1
 */
enum ls_dp_order {
    LS_DP_FLAT,       /* consecutive; added over all ranks at once */
    LS_DP_LEVELS,     /* consecutive; added over a replica's shards, then over replicas */
    LS_DP_NEIGHBOURS, /* neighbours; added over shards, over micro-steps, then over replicas */
    LS_DP_ANY,        /* consecutive; sums may be taken in any order (numerics.mode = fast) */
};
struct ls_dp_cut {
    int64_t replicas, replica;
    int64_t shards, shard;
    enum ls_dp_order order;
};
/* What of a cut does not fit. */
enum ls_dp_part { LS_DP_REPLICAS, LS_DP_SHARDS, LS_DP_RANKS, LS_DP_MICRO_LEAVES };
/* Local. LS_ELAYOUT where the ranks cannot have equal shares, or a replica's block, a shard's part
 * of it or a micro-batch is no whole subtree, or the sum over shards, then replicas (and between
 * them, for neighbours, micro-steps) is not the tree over leaves; *part (may be NULL) is then what
 * does not fit, and the text the reason, as it stands behind its name. micro_leaves above a share
 * means the whole share. */
int ls_dp_admits(const struct ls_dp_cut *cut, int64_t leaves, int64_t micro_leaves,
                 enum ls_dp_part *part, struct ls_error *error);
/* Local. LS_ELAYOUT where ls_dp_admits refuses. */
int ls_dp_share_init(struct ls_dp_share *share, int64_t leaves, const struct ls_dp_cut *cut,
                     int64_t micro_leaves, struct ls_error *error);
/* Leaves [*first, *first + *count) of the global batch in micro-batch m. */
void ls_dp_micro_batch(const struct ls_dp_share *share, int64_t m, int64_t *first, int64_t *count);

/* ---- the sum over micro-batches -------------------------------------------------------------- */

/* A binary counter over micro-batches: micro-batch m's gradient is written (or added) into buffer
 * `target`; after that `merges` neighbouring buffers are added downwards, target into target - 1
 * and so on. After the last micro-batch the sum of all is in buffer 0: the tree over micro-batches.
 */
struct ls_accumulation {
    int target;
    bool accumulate; /* add to target after this micro-batch's own tree, rather than assign */
    int merges;
};
struct ls_accumulation ls_accumulation_of(int64_t micro_batch, int64_t micro_batches);
/* Buffers that such a walk needs. */
int ls_accumulation_buffers(int64_t micro_batches);

#ifdef __cplusplus
}
#endif
#endif
