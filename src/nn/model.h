/* Private to nn: a model's buffers and the layers' functions. */
#ifndef NN_MODEL_H
#define NN_MODEL_H

#include <lockstep/nn.h>

/* Offsets of one block's parameters in the flat buffer, -1 for one that it has not. A stacked
 * weight begins at its first part: q (k and v follow), gate (up follows). */
struct block_params {
    int64_t norm1_weight, norm1_bias, qkv_weight, qkv_bias, proj_weight, proj_bias;
    int64_t norm2_weight, norm2_bias, up_weight, up_bias, down_weight, down_bias;
};

/* Saved by a block's forward for its backward. */
struct block_saved {
    const void *x;                        /* [M, C] input: the layer below's output */
    void *a1;                             /* [M, C] norm 1 */
    void *qkv;                            /* [M, (H+2G)D], rotated where positions are rotary */
    void *o;                              /* [M, H*D] attention's output */
    void *h1;                             /* [M, C] x + attention branch */
    void *a2;                             /* [M, C] norm 2 */
    void *f;                              /* [M, F] or [M, 2F] before the activation */
    void *g;                              /* [M, F] after it */
    void *out;                            /* [M, C] */
    float *mean1, *rstd1, *mean2, *rstd2; /* [M] */
    float *lse;                           /* [B, H, T] */
};

/* Gradients between a block's two backward halves; shared by all blocks, which go one by one. */
struct block_delta {
    const void *y2;   /* [M, C] of the mlp branch */
    void *y2_dropped; /* [M, C] storage for it where there is dropout */
    void *f;          /* [M, F] or [M, 2F] */
    void *g;          /* [M, F] */
    void *a2, *h1;    /* [M, C] */
    const void *y1;   /* [M, C] of the attention branch */
    void *y1_dropped;
    void *o;   /* [M, H*D] */
    void *qkv; /* [M, (H+2G)D] */
    void *a1;  /* [M, C] */
};

struct head_saved {
    int64_t norm_weight, norm_bias, weight; /* offsets */
    void *a;                                /* [M, C] final norm */
    float *mean, *rstd;                     /* [M] */
    void *logits;                           /* [group_leaves * leaf tokens, V] */
    void *d_a;                              /* [M, C] */
    float *loss;                            /* [M] */
    float *leaf_loss;                       /* [leaves] */
    int64_t group_leaves;                   /* leaves whose logits exist at once: a power of two */
    float *partial[8];                      /* [V, C] each: subtrees of the weight gradient */
    int partials;
};

struct ls_model {
    struct ls_model_options options;
    struct ls_model_config config;
    struct ls_numerics numerics;
    int64_t rows_max;
    struct block_params *block_params; /* [layers] */
    struct block_saved *saved;         /* [layers] */
    struct block_delta delta;
    struct head_saved head;
    void *embedded;    /* [M, C] layer 0's output */
    void *d_stream[2]; /* [M, C] gradient of layer l's input is d_stream[l & 1] */
    void *temporary;   /* [M, C] a branch's output before it joins the residual */
    struct ls_embedding_scratch embedding_scratch;
    float *rope_cosine, *rope_sine; /* [context, D/2] */
};

/* Offset of a named parameter, -1 where the model has none. */
int64_t model_offset(const struct ls_params *params, const char *format, int64_t layer);
void model_find_block(const struct ls_params *params, int64_t layer, struct block_params *out);
/* Weight matrix at offset, in the compute type. */
const void *model_weight(const struct ls_weights *weights, int64_t offset);
/* Float32 vector at offset; NULL for -1. */
const float *model_vector(const struct ls_weights *weights, int64_t offset);
size_t model_act_bytes(const struct ls_model *model);
/* The order of token sums for this micro-batch. */
struct ls_token_sum model_token_sum(const struct ls_model *model,
                                    const struct ls_micro_batch *batch, bool accumulate);
/* Tiles of a weight gradient's contraction over `leaves` leaves. */
int64_t model_leaf_tiles(const struct ls_model *model, int64_t leaves);
/* y [M, out] = x [M, in] W^T + bias, W [out, in]; contraction in `tiles`. */
int model_linear(struct ls_ops *ops, const struct ls_weights *weights, enum ls_dtype act,
                 int64_t rows, int64_t in, int64_t out, int64_t tiles, int64_t weight, int64_t bias,
                 const void *x, void *y, struct ls_error *error);
/* d_w [out, in] (+)= dy^T x over the micro-batch's leaves. */
int model_weight_gradient(const struct ls_model *model, struct ls_ops *ops, int64_t leaves,
                          int64_t rows, int64_t out, int64_t in, const void *dy, const void *x,
                          bool accumulate, float *d_w, struct ls_error *error);
/* Dropout of micro-batch rows for (step, layer, place); copies nothing when the model has none:
 * returns x then, storage otherwise. */
const void *model_dropout(const struct ls_model *model, struct ls_ops *ops,
                          const struct ls_micro_batch *batch, int layer, const char *place,
                          const void *x, void *storage);
struct ls_norm model_norm(const struct ls_model_config *config, const struct ls_weights *weights,
                          enum ls_dtype act, int64_t rows, int64_t weight, int64_t bias,
                          float *mean, float *rstd);
void model_norm_forward(const struct ls_model_config *config, struct ls_ops *ops,
                        const struct ls_norm *norm, const void *x, const void *residual, void *sum,
                        void *y);

void block_take(struct ls_model *model, struct ls_arena *arena, struct block_saved *saved);
void block_delta_take(struct ls_model *model, struct ls_arena *arena);
int block_forward(struct ls_model *model, struct ls_ops *ops, int64_t block,
                  const struct ls_micro_batch *batch, struct ls_error *error);
int block_backward_input(struct ls_model *model, struct ls_ops *ops, int64_t block,
                         const struct ls_micro_batch *batch, const void *dy, void *dx,
                         struct ls_error *error);
int block_backward_weight(struct ls_model *model, struct ls_ops *ops, int64_t block,
                          const struct ls_micro_batch *batch, const struct ls_gradient *gradient,
                          struct ls_error *error);

void head_take(struct ls_model *model, struct ls_arena *arena);
int head_forward(struct ls_model *model, struct ls_ops *ops, const struct ls_micro_batch *batch,
                 const void *x, const struct ls_gradient *gradient, struct ls_error *error);
void head_backward_input(struct ls_model *model, struct ls_ops *ops,
                         const struct ls_micro_batch *batch, const void *x, void *dx);
void head_backward_weight(struct ls_model *model, struct ls_ops *ops,
                          const struct ls_micro_batch *batch, const void *x,
                          const struct ls_gradient *gradient);

#endif
