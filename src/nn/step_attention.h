/* Private to nn: attention, as step_attention.c begins it and others go on.
 *
 *   step_attention.c      whole sequences on this rank
 *   attention_segments.c  sequences in segments: all keys and values are gathered
 *   attention_ring.c      the same, keys and values in half chunks that go round
 */
#ifndef NN_STEP_ATTENTION_H
#define NN_STEP_ATTENTION_H

#include "nn/model.h"

/* What it works in where a sequence's keys, values and their gradients do not simply lie in its
 * queries' rows. A pair is the sums of d_k and of d_v, [2, rows, GD]. */
enum { ATTENTION_LEVELS_MAX = __builtin_ctz(LS_SEQ_TILES_MAX) + 1 };
struct attention_buffers {
    int64_t span;            /* rows of a pair: T, or a half chunk where keys go round a ring */
    void *natural, *staging; /* [T, 2GD] keys and values of one sequence */
    void *block[2];          /* [T/2S, 2GD] those of a half chunk, in a ring */
    float *state;            /* unfinished rows of all segments of one sequence, in a ring */
    float *level[ATTENTION_LEVELS_MAX]; /* pairs: a counter of subtrees of tiles */
    int levels;
    float *work;    /* a pair */
    float *arrived; /* [cp] pairs: a half chunk's from all ranks, in a ring */
    float *sent;    /* a pair that is on its way, in a ring */
    float *shared;  /* [2, M, GD], where ranks share a key/value head */
};

/* An attention of the run's micro-batch, forward or backward. */
struct attending {
    const struct layer_run *run;
    const struct ls_model *model;
    struct ls_ops *ops;
    const struct rows *rows;
    int64_t tokens, sequences, sequence; /* T, B; the one under work */
    char *qkv, *o;                       /* [M, (H+2G)D], [M, HD] */
    float *lse;                          /* [B, segments, H, T / segments] */
    const char *d_o;
    char *d_qkv;
    struct attention_buffers buffers;
    struct ls_error *error;
};

/* What a layer's attention is beside its sizes: as struct ls_attention has it. All its callers ask
 * here. */
struct attention_form {
    float scale;
    int64_t window;
    float softcap;
};
struct attention_form attention_shape(const struct ls_model *model, int layer);

/* Over the [M, (H+2G)D] buffer of q, k and v. */
struct ls_attention attention_of(const struct attending *a);
/* d_k and d_v of rows [row, row + rows) of d_qkv from their sums [rows, GD]. */
void attention_kv_finish(const struct attending *a, int64_t row, int64_t rows, const float *d_k_sum,
                         const float *d_v_sum);

/* Whether keys and values go round rather than being gathered; bytes of the unfinished rows. */
bool attention_ring(const struct ls_model *model);
size_t attention_state_room(const struct ls_model *model);

/* Attention of segment i of the sequence: its queries, without keys and values. */
struct ls_attention segment_of(const struct attending *a, int i);
/* The same with the backward's pointers. */
struct ls_attention segment_backward_of(const struct attending *a, int i);
/* A pair of sums [2, span, GD], of which only the first `seen` rows may differ from zero, is added
 * over the ranks that share key/value heads. */
int segment_share(const struct attending *a, float *pair, int64_t span, int64_t seen);

/* level[0] = the tree over this rank's tiles of `elements` values each. sums(context, i, values)
 * writes those of segment i; a tile is its early half chunk's plus its late one's. */
int tiles_sum(struct attending *a, int64_t elements,
              int (*sums)(void *context, int segment, float *values), void *context);

int segments_forward(struct attending *a);
int segments_backward(struct attending *a);
int ring_forward(struct attending *a);
int ring_backward(struct attending *a);

#endif
