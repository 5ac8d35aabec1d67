/* lockstep/ops/embedding.h - token and position embedding. Included by lockstep/ops.h. */
#ifndef LOCKSTEP_OPS_EMBEDDING_H
#define LOCKSTEP_OPS_EMBEDDING_H

/* y[m] = table[id[m]] (+ position[first_position + m % tokens]), rounded to act once. table [V, C]
 * and position are the float32 masters; row m's position is first_position + m % tokens, and
 * position [.., C] holds as many; position may be NULL. y [rows, C] act. ids must be in [0, V)
 * (checked where data is read). */
void ls_embedding_forward(struct ls_ops *ops, enum ls_dtype act, int64_t rows, int64_t tokens,
                          int64_t channels, const int32_t *ids, const float *table,
                          const float *position, int64_t first_position, void *y);

/* d_table [V, C] = (or, with sum->accumulate, +=) for each row v: per leaf, the tokens with id v in
 * ascending order from zero, leaves by the tree (S3). With = the whole table is written. A leaf
 * that does not hold v counts as zero. dy [rows, C] act, rows = leaves * sequences * tokens, at
 * most 2^31 - 1. scratch is filled inside, by a counting sort of the ids. */
struct ls_embedding_scratch {
    int32_t *order; /* [rows] */
    int32_t *start; /* [V + 1] */
};
struct ls_token_sum;
void ls_embedding_backward(struct ls_ops *ops, enum ls_dtype act, int64_t vocabulary,
                           int64_t channels, const int32_t *ids, const void *dy,
                           const struct ls_token_sum *sum, struct ls_embedding_scratch scratch,
                           float *d_table);
/* d_position [T, C] = (or +=) per leaf the sum over its sequences by the tree, leaves by
 * the tree. */
void ls_position_backward(struct ls_ops *ops, enum ls_dtype act, int64_t channels, const void *dy,
                          const struct ls_token_sum *sum, float *d_position);

#endif
