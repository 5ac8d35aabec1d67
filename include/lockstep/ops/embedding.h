/* lockstep/ops/embedding.h - token and position embedding. Included by lockstep/ops.h. */
#ifndef LOCKSTEP_OPS_EMBEDDING_H
#define LOCKSTEP_OPS_EMBEDDING_H

/* y[m] = table[id[m]] (+ position[first_position + m % tokens]), added in float32 and rounded to
 * act once. table [V, C] and position [.., C] act, as the matrices that a step computes with;
 * position may be NULL. y [rows, C] act. ids must be in [0, V) (checked where data is read). No
 * result is -0. Local. */
void ls_embedding_forward(struct ls_ops *ops, enum ls_dtype act, int64_t rows, int64_t tokens,
                          int64_t channels, const int32_t *ids, const void *table,
                          const void *position, int64_t first_position, void *y);

/* The same with the vocabulary split over ranks, and the same bits: each rank holds rows [first_id,
 * first_id + count) of the table and gathers its own, the ranks' y are added (in any order: one of
 * them holds the value, the others 0), and each finishes the rows that it needs.
 *
 *   gather:  y[m] = 0 + table[id[m] - first_id], 0 where id[m] is not here; y [rows, C] float32
 *   finish:  y[r] = x[r] + position[first_position + r % tokens], rounded to act once
 *
 * table [count, C] act; x [rows, C] float32; position as above; y of finish [rows, C] act, which
 * may be x where act is LS_F32. Local. */
void ls_embedding_gather(struct ls_ops *ops, enum ls_dtype act, int64_t rows, int64_t channels,
                         const int32_t *ids, int64_t first_id, int64_t count, const void *table,
                         float *y);
void ls_embedding_finish(struct ls_ops *ops, enum ls_dtype act, int64_t rows, int64_t tokens,
                         int64_t channels, const float *x, const void *position,
                         int64_t first_position, void *y);

/* d_table [vocabulary, C] = (or, with sum->accumulate, +=) for each row v, which is that of id
 * first_id + v: per leaf, the tokens with that id in ascending order from zero, leaves by the tree
 * (S3). Other ids take no part: first_id is 0 and vocabulary V where the table is whole. With = all
 * of d_table is written. A leaf that does not hold the id counts as zero. dy [rows, C] act, rows =
 * leaves * sequences * tokens, at most 2^31 - 1. scratch is filled inside, by a counting sort of
 * the ids. Local. */
struct ls_embedding_scratch {
    int32_t *order; /* [rows] */
    int32_t *start; /* [vocabulary + 1] */
};
struct ls_token_sum;
void ls_embedding_backward(struct ls_ops *ops, enum ls_dtype act, int64_t first_id,
                           int64_t vocabulary, int64_t channels, const int32_t *ids, const void *dy,
                           const struct ls_token_sum *sum, struct ls_embedding_scratch scratch,
                           float *d_table);
/* d_position [rows, C] = (or +=), for tokens row_first, row_first + 1, ... row_first + rows - 1 of
 * each sequence (0 and sum->tokens for all): per leaf the sum over its sequences by the tree,
 * leaves by the tree. dy as above, with all tokens of a sequence. Local. */
void ls_position_backward(struct ls_ops *ops, enum ls_dtype act, int64_t channels, const void *dy,
                          const struct ls_token_sum *sum, int64_t row_first, int64_t rows,
                          float *d_position);

#endif
