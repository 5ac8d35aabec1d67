/* lockstep/ops/rank_sum.h - what ranks hold, added element by element in the order of the law of
 * sums (S1, S3). Included by lockstep/ops.h.
 *
 * A leaf is the tree (ls_tree_split) over `inner` neighbouring inputs; leaves are a chain, in the
 * order of inputs, behind what out holds if the sum goes on. The tree over all ranks is one leaf.
 * A command has at most LS_RANK_SUM_INPUTS inputs, a power of two. More are several commands:
 * subtrees of so many, which are added as the tree has it, and chains that go on. */
#ifndef LOCKSTEP_OPS_RANK_SUM_H
#define LOCKSTEP_OPS_RANK_SUM_H

enum { LS_RANK_SUM_INPUTS = 8 };

/* What is added, in float32. */
enum ls_rank_sum_form {
    LS_RANK_SUM_F32,
    LS_RANK_SUM_BF16,    /* the inputs are bf16 */
    LS_RANK_SUM_ROUNDED, /* the inputs are float32, rounded to bf16 before they are added */
    LS_RANK_SUM_MAX, /* the maximum in place of the sum. NaN wins, as 7fc00000; +0 is above -0 */
};

struct ls_rank_sum {
    enum ls_rank_sum_form form;
    int n, inner; /* inputs, 1 to LS_RANK_SUM_INPUTS; inputs of a leaf, a divisor of n */
    bool onto;    /* the sum goes on: out is read */
    int64_t count;
    const void *inputs[LS_RANK_SUM_INPUTS]; /* [n], each [count] */
    float *out;                             /* [count] */
};
/* out may be one of the inputs if they are float32, all of one leaf, and the sum does not go on.
 * One input alone is copied, or rounded. */
void ls_rank_sum_run(struct ls_ops *ops, const struct ls_rank_sum *sum);

#endif
