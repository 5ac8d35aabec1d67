/* What a rank sends in a step, by the formulas of the literature, worked out apart from the
 * trainer: M is the rows of a micro-batch on a rank, B T / cp; C channels; a the bytes of the
 * compute type. */
#ifndef TEST_PLAN_FORMULAS_H
#define TEST_PLAN_FORMULAS_H

#include <lockstep/plan/moves.h>

/* Bytes that one rank sends in a step, by axis, without the loss, what LS_COMM_OTHER counts, and
 * what is recomputed. With m = ceil(M / tp) C (a rank's share of a row-parallel product), per
 * micro-batch:
 *
 *   tp   (tp - 1) times, over the layers held:
 *          embedding   4 m + a m
 *          block       4 (4 m + a m): two reduce-scatters in float32 and two all-gathers in the
 *                      compute type forward, and the same backward; with sp 2 a m more, since the
 *                      weight halves gather their inputs again
 *          head        4 m + a m
 *        and all-reduces: of 3 M float32 for softmax (maximum, sum and target's logit of each row),
 *        and with sp of the norms' gradients (C float32 for each vector and unit; units: leaves of
 *        the micro-batch x seq_tiles / cp).
 *   cp   (cp - 1) times, per block and sequence, with kv = max(kv_heads / tp, 1) head_dim:
 *          forward     2 (T / cp) kv a     keys and values
 *          backward    2 (T / cp) kv a     and their gradients, 2 (T / cp) kv 4
 *        A ring: half chunks, 2 kv T / (2 seq_tiles) elements each, a forward and a + 4 backward;
 *        all of them but 2 seq_tiles / cp.
 *   pp   per boundary to another rank a N C forwards and as much back; N = M, or ceil(M / tp) with
 *        sp. Once a step, for a table that is tied across stages, its shard's gradient each way.
 *   dp   with P the elements of the rank's parameters, d ranks of shard, r of replicate and L of
 *        its leaves; in mode fast L is 1 with zero 0 and 1, the micro-batches with 2 and 3:
 *          zero 0      L 2 4 P (d - 1) / d, an all-reduce of each leaf, on account of replicate
 *                      where that axis has ranks, else of shard
 *          zero 1, 2   shard L 4 (P / d) (d - 1) for gradients (2 bytes for 4 with
 *                      numerics.reduce bf16), and a (P / d) (d - 1) for parameters (4 for vectors)
 *                      replicate L 4 (P / d), the sum to the next replica; of the last one
 *                      (L - 1 + r - 1) 4 (P / d). In mode fast 2 4 (P / d) (r - 1) / r, once
 *          zero 3      parameters at every forward and again at every backward (the embedding's
 *                      at the forward alone), or once a step without reshard_after_forward,
 *                      instead of once at the end
 *
 * Rows of a tensor that d does not divide are rounded up: P / d means ceil(rows / d) cols. */
struct formula_bytes {
    int64_t tp; /* sharers included */
    int64_t cp, pp;
    int64_t shard, replicate; /* dp: the two groups of ZeRO */
};
/* Fails the test where there is no memory. */
struct formula_bytes formula_bytes(const struct ls_layout *layout, int64_t leaves, int64_t rank);

#endif
