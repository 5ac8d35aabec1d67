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
struct ls_dp_cut {
    int64_t replicas, replica;
    int64_t shards, shard;
    bool neighbours;
};
/* Local. LS_ELAYOUT with the nearest layout that works where a replica's block, a shard's part of
 * it or a micro-batch is no whole subtree, or where the sum over shards, then replicas (and between
 * them, for neighbours, micro-steps) is not the tree over leaves. So replicas times shards divide
 * leaves; a part is a power of two of leaves unless there is only one; shards must be a power of
 * two unless there is one replica (and, for neighbours, one micro-step), and so must be what a
 * shard holds in each micro-step unless it is all alone. */
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
