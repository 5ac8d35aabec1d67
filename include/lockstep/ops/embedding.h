/* lockstep/ops/embedding.h - token and position embedding. Included by lockstep/ops.h. */
#ifndef LOCKSTEP_OPS_EMBEDDING_H
#define LOCKSTEP_OPS_EMBEDDING_H

/* Rows of ids, and what they are looked up in: tables in act, as the matrices that a step computes
 * with. The table is whole (first_id 0, vocabulary V), or a rank's rows of it. */
struct ls_embedding {
    enum ls_dtype act;
    int64_t rows, channels;
    const int32_t *ids;             /* [rows] in [0, V) (checked where data is read) */
    int64_t first_id, vocabulary;   /* row v of the table is that of id first_id + v */
    const void *table;              /* [vocabulary, C] */
    int64_t first_position, tokens; /* row m is at position first_position + m % tokens */
    const void *position;           /* [.., C]; NULL: none is added */
};

/* y[m] = table[id[m]] (+ position of row m), added in float32 and rounded to act once; the table is
 * whole. y [rows, C] act. No result is -0. Local. */
void ls_embedding_forward(struct ls_ops *ops, const struct ls_embedding *embedding, void *y);

/* The same with the vocabulary split over ranks, and the same bits: each rank gathers the rows that
 * it has, the ranks' y are added (in any order: one of them holds the value, the others 0), and
 * each finishes the rows that it needs.
 *
 *   gather:  y[m] = 0 + table[id[m] - first_id], 0 if id[m] is not here; y [rows, C] float32
 *   finish:  y[r] = x[r] (+ position of row r), rounded to act once; neither ids nor table are read
 *
 * x [rows, C] float32; y of finish [rows, C] act, which may be x where act is LS_F32. Local. */
void ls_embedding_gather(struct ls_ops *ops, const struct ls_embedding *embedding, float *y);
void ls_embedding_finish(struct ls_ops *ops, const struct ls_embedding *embedding, const float *x,
                         void *y);

/* d_table [vocabulary, C], row v: the tokens with its id in ascending order from zero, a chain in
 * each tile; tiles of a leaf by the tree, leaves by the chain (S3), which begins as sum->onto says;
 * with LS_ONTO_CHAIN (one tile) the tokens go on with the chain that is there. A leaf has one tile
 * or one sequence. Other ids take no part; with LS_ONTO_NOTHING all of d_table is written. A leaf
 * that does not hold the id counts as zero. dy [rows, C] act, rows = ls_token_rows(sum), at most
 * 2^31 - 1. The tables' values are not read. scratch is filled inside, by a counting sort of the
 * ids. Local. */
struct ls_embedding_scratch {
    int32_t *order; /* [rows] */
    int32_t *start; /* [vocabulary + 1] */
};
/* to[i] = first + i, i < count: the positions of tokens that follow each other, which are ids of a
 * position table. Local. */
void ls_iota(struct ls_ops *ops, int64_t count, int32_t first, int32_t *to);
struct ls_token_sum;
void ls_embedding_backward(struct ls_ops *ops, const struct ls_embedding *embedding, const void *dy,
                           const struct ls_token_sum *sum, struct ls_embedding_scratch scratch,
                           float *d_table);
/* d_position [rows, C], for tokens row_first, row_first + 1, ... row_first + rows - 1 of each
 * sequence (0 and sum->tokens for all; sum->tiles is 1): the sequences of a leaf by the chain,
 * leaves by the chain, which begins as sum->onto says. dy as above, with all tokens of a sequence.
 * Local. */
void ls_position_backward(struct ls_ops *ops, enum ls_dtype act, int64_t channels, const void *dy,
                          const struct ls_token_sum *sum, int64_t row_first, int64_t rows,
                          float *d_position);

#endif
