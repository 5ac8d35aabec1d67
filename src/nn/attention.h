/* Private to nn: attention, as block_attention.c begins it and others go on.
 *
 *   block_attention.c    whole sequences on this rank
 *   context_attention.c  sequences in segments: all keys and values are gathered
 *   ring_attention.c     the same, keys and values in half chunks that go round
 */
#ifndef NN_ATTENTION_H
#define NN_ATTENTION_H

#include "model.h"

/* Attention of a micro-batch over a [M, (H+2G)D] buffer of q, k and v. */
struct ls_attention attention_of(const struct ls_model *model, const struct ls_micro_batch *batch,
                                 const struct block_saved *saved);
/* d_k and d_v of rows [row, row + rows) of d_qkv from their sums [rows, GD]. */
void attention_kv_finish(const struct ls_model *model, struct ls_ops *ops, int64_t row,
                         int64_t rows, const float *d_k_sum, const float *d_v_sum, void *d_qkv);

/* Each rank awaits one message of every other, and has a few more on their way. */
enum { RING_RANKS_MAX = LS_COMM_PENDING_MAX - 4 };
/* Whether keys and values go round rather than being gathered; bytes of the unfinished rows. */
bool attention_ring(const struct ls_model *model);
size_t attention_state_room(const struct ls_model *model);

/* One backward's way through a sequence. */
struct segment_backward {
    const struct block_saved *saved;
    const void *d_o;
    void *d_qkv;
    int64_t sequence;
};

/* Attention of segment i of one sequence: its queries, without keys and values. */
struct ls_attention segment_of(const struct ls_model *model, const struct ls_micro_batch *batch,
                               const struct rows *rows, const struct block_saved *saved,
                               int64_t sequence, int i);
/* The same with the backward's pointers. */
struct ls_attention segment_backward_of(const struct ls_model *model,
                                        const struct ls_micro_batch *batch, const struct rows *rows,
                                        const struct segment_backward *way, int i);
/* A pair of sums [2, span, GD], of which only the first `seen` rows may differ from zero, is added
 * over the ranks that share key/value heads. */
int segment_share(const struct ls_model *model, float *pair, int64_t span, int64_t seen,
                  struct ls_error *error);

int segments_forward(struct ls_model *model, struct ls_ops *ops, const struct ls_micro_batch *batch,
                     const struct rows *rows, struct block_saved *saved, struct ls_error *error);
int segments_backward(struct ls_model *model, struct ls_ops *ops,
                      const struct ls_micro_batch *batch, const struct rows *rows,
                      const struct block_saved *saved, const void *d_o, void *d_qkv,
                      struct ls_error *error);
int ring_forward(struct ls_model *model, struct ls_ops *ops, const struct ls_micro_batch *batch,
                 const struct rows *rows, struct block_saved *saved, int64_t sequence,
                 struct ls_error *error);
int ring_backward(struct ls_model *model, struct ls_ops *ops, const struct ls_micro_batch *batch,
                  const struct rows *rows, const struct segment_backward *way,
                  struct ls_error *error);

#endif
