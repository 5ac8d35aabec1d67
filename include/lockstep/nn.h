/* lockstep/nn.h - the Transformer: its parameters, and its layers forward and backward.
 *
 * Two families share one block: GPT-2 (learned positions, LayerNorm, GELU, biases) and Llama
 * (rotary positions, RMSNorm, SwiGLU, grouped-query attention). A model is a list of layers:
 *
 *     layer 0            token (and position) embedding
 *     layers 1 .. L      blocks
 *     layer L + 1        final norm, head and loss
 *
 * Order of calls for a micro-batch: ls_layer_forward for 0 .. L+1, then for each layer from L+1
 * down to 0 ls_layer_backward_input and ls_layer_backward_weight. The weight half of a layer may be
 * called any time before the next layer's input half. What calls the layers knows nothing of
 * attention or norms; what reduces gradients knows only flat ranges.
 *
 * Parameters live in one flat float32 buffer, gradients in another with the same order. A tied
 * embedding has two gradients (as the head, as the table), which are summed apart and added when
 * the optimizer reads them: the table's comes first in the gradient buffer (struct ls_params).
 *
 * Everything here is Local. B sequences, T tokens, M = B*T rows, C channels, H heads, G key/value
 * heads, D head dim, F ffn, V vocabulary (padded).
 */
#ifndef LOCKSTEP_NN_H
#define LOCKSTEP_NN_H

#include <lockstep/ops.h>

#ifdef __cplusplus
extern "C" {
#endif

enum ls_arch { LS_GPT2, LS_LLAMA };
enum ls_activation { LS_ACT_GELU_TANH, LS_ACT_GELU_ERF, LS_ACT_SWIGLU };

struct ls_model_config {
    enum ls_arch arch;
    int64_t vocab; /* tokens that exist */
    int64_t
        vocab_padded; /* rows of the table and the head; padding rows take no part in the loss */
    int64_t layers, channels, heads, kv_heads, head_dim, ffn; /* head_dim: a multiple of 8 */
    int64_t context;                                          /* the longest sequence */
    bool tied;                                                /* the head is the embedding table */
    bool bias; /* biases in linear layers and LayerNorm */
    enum ls_activation act;
    float norm_epsilon;
    double rope_theta;
    struct ls_rope_scaling rope_scaling;
    float dropout; /* after the embedding and on both residual branches */
    float init_std;
    uint64_t seed; /* of initial values and dropout */
};

/* The part of the recipe that fixes the order of sums (DESIGN: the law of sums). */
struct ls_numerics {
    enum ls_dtype act;      /* LS_F32 or LS_BF16: what forward and backward compute in */
    int64_t tp_tiles;       /* S2: divides heads, kv_heads, ffn, vocab_padded */
    int64_t seq_tiles;      /* S4: tiles of a leaf's tokens in weight gradients */
    int64_t leaf_sequences; /* S3 */
    bool fast;              /* lifts S2 to S4: bits depend on the micro-batching */
};

/* ---- parameters ------------------------------------------------------------------------------ */

enum { LS_PARAM_NAME_MAX = 63 };
enum ls_init { LS_INIT_ZERO, LS_INIT_ONE, LS_INIT_NORMAL };

struct ls_param {
    char name[LS_PARAM_NAME_MAX + 1]; /* "h.0.attn.q.weight" */
    int64_t rows, cols;               /* a vector has rows == 1 */
    int64_t col_tiles; /* canonical pieces of a row: tp_tiles where a layout may cut it */
    int64_t offset;    /* of element (0, 0) in the flat parameter buffer */
    int layer;         /* that uses it */
    bool decay;        /* weight decay: matrices, not norms and biases */
    enum ls_init init;
    float init_std;
};

struct ls_params {
    struct ls_param *list; /* in the order of the flat buffer */
    int count;
    int64_t elements;          /* of the flat parameter buffer, padding included */
    int64_t gradient_elements; /* = elements + tied_elements */
    int64_t tied_elements;     /* the tied table's gradient comes first in the gradient buffer;
                                * parameter offset o has its gradient at tied_elements + o */
    int tied_param;            /* index of the tied table in list, -1 where untied */
    int64_t weights;           /* number of trained values, padding of buffers excluded */
};
int ls_params_init(struct ls_params *params, const struct ls_model_config *config,
                   const struct ls_numerics *numerics, struct ls_error *error);
void ls_params_release(struct ls_params *params);
/* NULL where there is none of that name. */
const struct ls_param *ls_params_find(const struct ls_params *params, const char *name);
/* Initial values, each a function of (seed, name, element): GPT-2's normal(0, std) with residual
 * projections scaled by 1/sqrt(2 L) (Radford et al. 2019); Llama's normal(0, std) throughout.
 * Padding rows of the vocabulary are zero. master [elements]. */
void ls_params_fill(const struct ls_params *params, const struct ls_model_config *config,
                    struct ls_ops *ops, float *master);
/* Adds to digest each row (cut in col_tiles) of values, an array laid out as the parameters; prefix
 * goes before the parameter's name ("" for the parameters themselves). */
void ls_params_digest(const struct ls_params *params, struct ls_ops *ops, const char *prefix,
                      const float *values, struct ls_digest *digest);

/* Floating-point operations of one token's forward and backward: 6 per weight that multiplies (the
 * embedding table counts once, as the head) plus 12 L H D T for attention, as PaLM's and Megatron's
 * model flops count them. */
double ls_model_flops_per_token(const struct ls_model_config *config, int64_t tokens);

/* ---- the model ------------------------------------------------------------------------------- */

/* What a layer reads and writes besides its activations. */
struct ls_weights {
    float *master;    /* [params.elements] */
    ls_bf16 *compute; /* the same, rounded; NULL when numerics.act is LS_F32 */
};

struct ls_micro_batch {
    int64_t sequences;      /* B: whole leaves, at most the model's */
    int64_t tokens;         /* T, at most config.context */
    const int32_t *ids;     /* [B, T] */
    const int32_t *targets; /* [B, T]; -1: no loss */
    int64_t first_sequence; /* of the global batch: which one row 0 belongs to (dropout) */
    int64_t step;           /* dropout */
    bool training;          /* dropout on, gradients of the head made */
    float gradient_scale;   /* of every token's loss: 1 / tokens of the global batch */
};

/* Where a micro-batch's weight gradients go. */
struct ls_gradient {
    float *flat;     /* [params.gradient_elements] */
    bool accumulate; /* false: =, true: += after this micro-batch's own tree */
};

struct ls_model; /* buffers for one micro-batch at a time */

/* Takes the model's buffers for micro-batches of up to sequences x tokens from arena (which may be
 * measuring: then only counts; *out may not run). config, numerics, params and weights are
 * borrowed. training false: only forward and decoding. */
struct ls_model_options {
    const struct ls_model_config *config;
    const struct ls_numerics *numerics;
    const struct ls_params *params;
    struct ls_weights weights;
    int64_t sequences, tokens;
    bool training;
    bool accumulating; /* struct ls_gradient's accumulate may be true: several micro-batches a step
                        */
    int64_t logits_bytes; /* of the head that exist at once, though at least one leaf's do; 0:
                           * LS_LOGITS_BYTES. Changes no bits. */
};
enum { LS_LOGITS_BYTES = 256 << 20 };
int ls_model_new(const struct ls_model_options *options, struct ls_arena *arena,
                 struct ls_model **out, struct ls_error *error);
void ls_model_free(struct ls_model *model);
int ls_model_layers(const struct ls_model *model);

/* layer: 0 .. layers + 1. The head's forward computes the loss and, when training, its gradients
 * too (logits are never kept): leaf by leaf, so that its input and weight halves are done there;
 * gradient is where its weight gradient goes (NULL when not training). */
int ls_layer_forward(struct ls_model *model, struct ls_ops *ops, int layer,
                     const struct ls_micro_batch *batch, const struct ls_gradient *gradient,
                     struct ls_error *error);
int ls_layer_backward_input(struct ls_model *model, struct ls_ops *ops, int layer,
                            const struct ls_micro_batch *batch, struct ls_error *error);
int ls_layer_backward_weight(struct ls_model *model, struct ls_ops *ops, int layer,
                             const struct ls_micro_batch *batch, const struct ls_gradient *gradient,
                             struct ls_error *error);
/* The range of the gradient buffer that layer's weight half writes (with the head's forward).
 * Ranges of descending layers descend and leave no gap. */
void ls_layer_gradient_range(const struct ls_model *model, int layer, int64_t *begin, int64_t *end);

/* After the head's forward: loss summed over each leaf, [leaves]. */
const float *ls_model_leaf_losses(const struct ls_model *model);
/* The gradient of layer's input after its backward_input (layer 1 .. L+1), [M, C] act. */
const void *ls_model_input_gradient(const struct ls_model *model, int layer);

/* ---- generation ------------------------------------------------------------------------------ */

struct ls_decoder; /* key/value cache and row buffers for one sequence */
int ls_decoder_new(const struct ls_model_options *options, struct ls_decoder **out,
                   struct ls_error *error);
void ls_decoder_free(struct ls_decoder *decoder);
void ls_decoder_reset(struct ls_decoder *decoder);
/* Tokens that still fit config.context. */
int64_t ls_decoder_room(const struct ls_decoder *decoder);
/* Appends one token and gives the float32 logits [vocab] of the next, owned by the decoder.
 * LS_EINVAL past config.context. */
int ls_decoder_next(struct ls_decoder *decoder, struct ls_ops *ops, int32_t token,
                    const float **logits, struct ls_error *error);

/* Temperature (0 = greedy), then top-k (0 = off), then nucleus top-p (1 = off), then a draw with
 * the uniform number u. logits [vocab]; order [vocab] is scratch. */
struct ls_sampling {
    float temperature, top_p;
    int64_t top_k;
};
int32_t ls_sample(const struct ls_sampling *sampling, const float *logits, int64_t vocab,
                  int32_t *order, float u);

#ifdef __cplusplus
}
#endif
#endif
