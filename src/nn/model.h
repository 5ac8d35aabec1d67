/* Private to nn: a model's buffers and the layers' functions.
 *
 * Widths below are of this rank's slice: H, G, F and V count what it holds. M is all rows of a
 * micro-batch on this context-parallel rank, N the rows of the residual stream: M, or this rank's
 * share of them under sequence parallel. */
#ifndef NN_MODEL_H
#define NN_MODEL_H

#include <lockstep/nn.h>

/* One block's parameters, NULL for one that it has not. A stacked weight is its first part: q (k
 * and v follow), gate (up follows). */
struct block_params {
    const struct ls_param *norm1_weight, *norm1_bias, *qkv_weight, *qkv_bias, *proj_weight,
        *proj_bias, *norm2_weight, *norm2_bias, *up_weight, *up_bias, *down_weight, *down_bias;
};

/* Saved by a block's forward for its backward. */
struct block_saved {
    const void *x;                        /* [N, C] input: the layer below's output */
    void *a1;                             /* [N, C] norm 1 */
    void *qkv;                            /* [M, (H+2G)D], rotated where positions are rotary */
    void *o;                              /* [M, H*D] attention's output */
    void *h1;                             /* [N, C] x + attention branch */
    void *a2;                             /* [N, C] norm 2 */
    void *f;                              /* [M, F] or [M, 2F] before the activation */
    void *g;                              /* [M, F] after it */
    void *out;                            /* [N, C] */
    float *mean1, *rstd1, *mean2, *rstd2; /* [N] */
    float *lse;                           /* [B, segments, H, T / segments] */
};

/* Gradients between a block's two backward halves. */
struct block_delta {
    const void *y2, *y1;       /* [M, C] of the mlp and the attention branch */
    void *y2_store, *y1_store; /* storage for them where they are not the stream's own */
    void *f;                   /* [M, F] or [M, 2F] */
    void *g;                   /* [M, F]; not read by the weight half */
    void *a2, *h1;             /* [N, C] */
    void *o;                   /* [M, H*D]; not read by the weight half */
    void *qkv;                 /* [M, (H+2G)D] */
    void *a1;                  /* [N, C] */
};

struct embedding_layer {
    const struct ls_param *table, *position; /* NULL where not held, or where there is none */
    void **out;                              /* [slots] of [N, C] */
    const void **dy;                         /* [slots] gradient of out after its dropout */
    void **dy_store;                         /* [slots] storage for it, where it is kept */
    struct ls_embedding_scratch scratch;
};

/* Of the head in one slot. */
struct head_saved {
    const void *x;      /* [N, C] */
    void *d_a;          /* [N, C] gradient of the final norm's output */
    float *mean, *rstd; /* [N] */
};

struct head_layer {
    const struct ls_param *norm_weight, *norm_bias, *weight;
    struct head_saved *saved; /* [slots] */
    void *a;                  /* [N, C] final norm */
    void *logits;             /* [group_units * unit rows, V] */
    float *max, *sums;        /* [group rows], [2, group rows] where the vocabulary is split */
    float *loss;              /* [M] */
    float *unit_loss;         /* [units] */
    float *leaf_loss;         /* [leaves] */
    int64_t group_units;      /* units whose logits exist at once: a power of two */
    float *partial[8];        /* [V, C] each: subtrees of the weight gradient */
    int partials;
};

/* Buffers of attention where a sequence's keys, values and their gradients do not simply lie in its
 * queries' rows. A pair is the sums of d_k and of d_v, [2, rows, GD]. */
enum { ATTENTION_LEVELS_MAX = 16 };
struct attention_buffers {
    int64_t span;            /* rows of a pair: T, or a half chunk where keys go round a ring */
    void *natural, *staging; /* [T, 2GD] keys and values of one sequence */
    void *block[2];          /* [T/2S, 2GD] those of a half chunk, in a ring */
    float *state;            /* unfinished rows of all segments of one sequence, in a ring */
    float *level[ATTENTION_LEVELS_MAX]; /* pairs: a counter of subtrees of tiles */
    int levels;
    float *work;              /* a pair */
    float *arrived;           /* [cp] pairs: a half chunk's from all ranks, in a ring */
    float *sent;              /* a pair that is on its way, in a ring */
    float *shared;            /* [2, M, GD], where ranks share a key/value head */
    void *d_own, *weight_own; /* [M, own], [own, C]: see attention_input_gradient */
};

struct ls_model {
    struct ls_model_options options;
    struct ls_model_config config;
    struct ls_numerics numerics;
    struct ls_tp tp;
    struct ls_cp cp;
    int64_t tiles;                           /* of a contraction that is cut: tp_tiles / tp */
    int64_t heads, kv_heads, ffn;            /* held here */
    int64_t rows_max, rows_room, stream_max; /* M, as a buffer of all rows has it, N */
    struct block_params *block_params;       /* [layers] */
    struct block_saved *saved;               /* [layers][slots] */
    struct block_delta *deltas; /* [layers][slots] with split_backward, else one for all */
    struct embedding_layer embedding;
    struct head_layer head;
    struct attention_buffers attention;
    void *d_stream[2]; /* [N, C] gradient of layer l's input is d_stream[l & 1] */
    void *temporary;   /* [M, C] a branch's output before it joins the residual */
    void *gathered;    /* [M, C] rows of all ranks, under sequence parallel */
    float *vectors;    /* [units, 4C] sums over a rank's share, under sequence parallel */
    struct ls_tp_scratch scratch;
    float *rope_cosine, *rope_sine; /* [T, D/2] */
};

/* ---- rows.c: where rows lie ------------------------------------------------------------------ */

/* The rows of one micro-batch on this rank. */
struct rows {
    int64_t all;                    /* M */
    int64_t first, count;           /* the stream's: [first, first + count) of all */
    int64_t tokens;                 /* of each sequence, here: T / cp */
    int64_t segments, segment_rows; /* each sequence is so many runs of consecutive tokens */
    int64_t units;                  /* what sums over tokens are trees over: leaves, or tiles */
    int64_t unit_sequences, unit_tokens;
};
struct rows rows_of(const struct ls_model *model, const struct ls_micro_batch *batch);
/* The order of token sums over all rows. */
struct ls_token_sum rows_sum(const struct rows *rows, bool accumulate);

/* A piece of [first, first + count) whose tokens follow each other. Start from {0}. */
struct run {
    int64_t row, count;      /* relative to first */
    int64_t sequence, token; /* of its first row; of the micro-batch, of the sequence */
};
bool rows_next(const struct ls_model *model, const struct rows *rows, int64_t first, int64_t count,
               struct run *run);

bool model_held(const struct ls_model *model, int64_t layer);
/* Whether layer's input is the caller's, and whether its output's gradient is. */
bool model_chunk_first(const struct ls_model *model, int64_t layer);
bool model_chunk_last(const struct ls_model *model, int64_t layer);
int model_units_check(const struct ls_model *model, const struct rows *rows,
                      struct ls_error *error);

/* What the steps of a model read, but its buffers. */
void model_init(struct ls_model *model, const struct ls_model_options *options);

/* ---- linear.c: parameters and products ------------------------------------------------------- */

/* NULL where the part held has none. */
const struct ls_param *model_param(const struct ls_params *params, const char *suffix,
                                   int64_t block);
void model_find_block(const struct ls_params *params, int64_t block, struct block_params *out);
/* Values of a matrix in the compute type, of a vector in float32 (NULL for NULL). */
const void *model_weight(const struct ls_model *model, const struct ls_param *param);
const float *model_vector(const struct ls_model *model, const struct ls_param *param);
size_t model_act_bytes(const struct ls_model *model);
void *model_take(const struct ls_model *model, struct ls_arena *arena, int64_t rows, int64_t width);
/* Tiles of a weight gradient's contraction over `units` units. */
int64_t model_unit_tiles(const struct ls_model *model, int64_t units);
/* y [rows, out] = x [rows, weight->cols] W^T + bias, W [out, cols]. */
struct ls_gemm model_linear(const struct ls_model *model, int64_t rows, int64_t out, int64_t tiles,
                            const struct ls_param *weight, const struct ls_param *bias,
                            const void *x, void *y);
/* dx [rows, in] = dy [rows, sum of k] W, W [sum of k, in]; k [sections]. */
struct ls_gemm model_input_gradient(const struct ls_model *model, int64_t rows, int sections,
                                    const int64_t *k, int64_t in, int64_t tiles, const void *weight,
                                    const void *dy, void *dx);
/* d_w [out, in] (+)= dy^T x over the micro-batch's units. */
int model_weight_gradient(const struct ls_model *model, struct ls_ops *ops, int64_t units,
                          int64_t rows, int64_t out, int64_t in, const void *dy, const void *x,
                          bool accumulate, float *d_w, struct ls_error *error);
/* What the operations that follow on this model's groups move, for error texts and records. */
void model_label(const struct ls_model *model, const struct ls_param *param);
/* All rows of own [N, width]: itself, or gathered. */
int model_gather(const struct ls_model *model, const struct rows *rows, const void *own,
                 const void **all, struct ls_error *error);
/* Dropout of the rows [first, first + count) for (step, layer, place); copies nothing when the
 * model has none: returns x then, storage otherwise. */
const void *model_dropout(const struct ls_model *model, struct ls_ops *ops,
                          const struct ls_micro_batch *batch, const struct rows *rows, int layer,
                          const char *place, const void *x, void *storage);

/* ---- norms.c ----------------------------------------------------------------------------------
 */

/* A norm over `rows` rows of the stream. */
struct norm {
    const struct ls_param *weight, *bias;
    float *mean, *rstd;
};
void norm_forward(const struct ls_model *model, struct ls_ops *ops, const struct norm *norm,
                  int64_t rows, const void *x, const void *residual, void *sum, void *y);
void norm_backward_input(const struct ls_model *model, struct ls_ops *ops, const struct norm *norm,
                         int64_t rows, const void *h, const void *dy, const void *d_residual,
                         void *dh);
/* Weight gradients of `count` norms (at most 2) of one region, summed over tp where the stream is
 * cut. */
struct norm_gradient {
    struct norm norm;
    const void *h, *dy;
};
int norms_backward_weight(struct ls_model *model, struct ls_ops *ops, const struct rows *rows,
                          const struct norm_gradient *norms, int count,
                          const struct ls_gradient *gradient, struct ls_error *error);

/* ---- layers -----------------------------------------------------------------------------------
 */

void embedding_take(struct ls_model *model, struct ls_arena *arena);
int embedding_forward(struct ls_model *model, struct ls_ops *ops,
                      const struct ls_micro_batch *batch, struct ls_error *error);
void embedding_backward_input(struct ls_model *model, struct ls_ops *ops,
                              const struct ls_micro_batch *batch, const void *dy);
int embedding_backward_weight(struct ls_model *model, struct ls_ops *ops,
                              const struct ls_micro_batch *batch,
                              const struct ls_gradient *gradient, struct ls_error *error);

int64_t block_query_width(const struct ls_model *model);
int64_t block_kv_width(const struct ls_model *model);
int64_t block_qkv_width(const struct ls_model *model);
void block_take(struct ls_model *model, struct ls_arena *arena, struct block_saved *saved);
void block_delta_take(struct ls_model *model, struct ls_arena *arena, struct block_delta *delta,
                      const struct block_delta *shared);
struct block_saved *block_saved_of(const struct ls_model *model, int64_t block, int slot);
int block_forward(struct ls_model *model, struct ls_ops *ops, int64_t block,
                  const struct ls_micro_batch *batch, const void *x, struct ls_error *error);
int block_backward_input(struct ls_model *model, struct ls_ops *ops, int64_t block,
                         const struct ls_micro_batch *batch, const void *dy, void *dx,
                         struct ls_error *error);
int block_backward_weight(struct ls_model *model, struct ls_ops *ops, int64_t block,
                          const struct ls_micro_batch *batch, const struct ls_gradient *gradient,
                          struct ls_error *error);

/* ---- block_attention.c: between the products of qkv and proj --------------------------------- */

void attention_take(struct ls_model *model, struct ls_arena *arena);
int attention_forward(struct ls_model *model, struct ls_ops *ops,
                      const struct ls_micro_batch *batch, const struct rows *rows,
                      struct block_saved *saved, struct ls_error *error);
/* d_qkv from d_o. */
int attention_backward(struct ls_model *model, struct ls_ops *ops,
                       const struct ls_micro_batch *batch, const struct rows *rows,
                       const struct block_saved *saved, const void *d_o, void *d_qkv,
                       struct ls_error *error);
/* The input gradient of the stacked qkv weight. */
int attention_input_gradient(struct ls_model *model, struct ls_ops *ops, const struct rows *rows,
                             const struct ls_param *weight, const void *d_qkv, void *d_a,
                             struct ls_error *error);

void head_take(struct ls_model *model, struct ls_arena *arena);
int head_forward(struct ls_model *model, struct ls_ops *ops, const struct ls_micro_batch *batch,
                 const void *x, const struct ls_gradient *gradient, struct ls_error *error);
void head_backward_input(struct ls_model *model, struct ls_ops *ops,
                         const struct ls_micro_batch *batch, void *dx);
int head_backward_weight(struct ls_model *model, struct ls_ops *ops,
                         const struct ls_micro_batch *batch, const struct ls_gradient *gradient,
                         struct ls_error *error);

#endif
