/* lockstep/parallel.h - how a batch is cut over data-parallel ranks.
 *
 * The global batch of a step is n leaves (law of sums, S3). Each rank holds some of them and walks
 * through them in micro-batches. All of it is arithmetic on indices, tested without a network;
 * lockstep/parallel/zero.h carries the gradients. */
#ifndef LOCKSTEP_PARALLEL_H
#define LOCKSTEP_PARALLEL_H

#include <lockstep/base.h>

LS_C_BEGIN

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

/* Data-parallel ranks that share a batch of leaves.
 *
 *   in turn      in round q rank r of d has leaf q d + r: after each round the sum goes on with d
 *                leaves in their order (S3), so a micro-batch has at most one leaf
 *   side by side rank r has the r-th part of the leaves (numerics.mode fast): sums are reduced in
 *                any order
 *
 *     6 leaves, 2 ranks:   in turn  0 1 0 1 0 1    side by side  0 0 0 1 1 1 */
struct ls_dp_cut {
    int64_t ranks, rank;
    bool in_turn;
};

/* One step's leaves on one rank, in micro-batches of at most `micro` sequences: whole leaves, or
 * parts of one. The last of the step, or of each leaf, may be smaller. */
struct ls_dp_share {
    struct ls_dp_cut cut;
    int64_t leaves; /* of the global batch */
    int64_t leaf;   /* sequences of one */
    int64_t count;  /* leaves of this rank */
    int64_t micro;
    int64_t micro_batches;
};

/* Local. Micro-batches are as large as they can be with at most `micro` sequences. LS_ELAYOUT if
 * the ranks cannot have equal shares; the text is the reason, as it stands behind their number. */
int ls_dp_share_init(struct ls_dp_share *share, const struct ls_dp_cut *cut, int64_t leaves,
                     int64_t leaf, int64_t micro, struct ls_error *error);

struct ls_dp_micro {
    int64_t m;
    int64_t first, count; /* its sequences, of the global batch's */
    int64_t offset;       /* of the first, among this rank's */
    bool begins, ends;    /* it has the first, the last sequence of its leaf, or of its leaves */
    bool begins_sum;      /* no leaf of this rank comes before its own */
    bool last;            /* of the step */
};
/* Local. 0 <= m < share->micro_batches. */
struct ls_dp_micro ls_dp_micro_batch(const struct ls_dp_share *share, int64_t m);

LS_C_END
#endif
