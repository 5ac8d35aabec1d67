/* lockstep/ops/pointwise.h - element by element. Included by lockstep/ops.h.
 * The same bits for any thread count, any split into calls, body and tail of a vector loop.
 * Buffers of different arguments do not overlap unless said. */
#ifndef LOCKSTEP_OPS_POINTWISE_H
#define LOCKSTEP_OPS_POINTWISE_H

/* GELU, y = x * Phi(x) (Hendrycks, Gimpel 2016). tanh form: Phi(x) ~ (1 + tanh(sqrt(2/pi) *
 * (x + 0.044715 x^3))) / 2; erf form: Phi(x) = (1 + erf(x / sqrt 2)) / 2. x, y, dy, dx [count] act;
 * dx may be dy. Both forms keep their relative precision in the left tail. */
enum ls_gelu { LS_GELU_TANH, LS_GELU_ERF };
void ls_gelu_forward(struct ls_ops *ops, enum ls_gelu kind, enum ls_dtype act, int64_t count,
                     const void *x, void *y);
void ls_gelu_backward(struct ls_ops *ops, enum ls_gelu kind, enum ls_dtype act, int64_t count,
                      const void *x, const void *dy, void *dx);

/* Gated units (Shazeer 2020), y = f(gate) * up: SwiGLU, f = silu; GeGLU, f = GELU's tanh form.
 * gate_up [rows, 2F] holds gate in columns [0, F) and up in [F, 2F), as one stacked product writes
 * them; y, dy [rows, F]; d_gate_up [rows, 2F]; all act. d_gate_up may be gate_up. */
enum ls_glu { LS_SWIGLU, LS_GEGLU };
void ls_glu_forward(struct ls_ops *ops, enum ls_glu kind, enum ls_dtype act, int64_t rows,
                    int64_t width, const void *gate_up, void *y);
void ls_glu_backward(struct ls_ops *ops, enum ls_glu kind, enum ls_dtype act, int64_t rows,
                     int64_t width, const void *gate_up, const void *dy, void *d_gate_up);

/* y = cap * tanh(x / cap), rounded once (Gemma team 2024, "Gemma 2"); x, y [count] act, y may be x.
 * Its gradient is in ls_cross_entropy, behind which it is needed. */
void ls_softcap(struct ls_ops *ops, enum ls_dtype act, int64_t count, float cap, const void *x,
                void *y);

/* y = factor * x, rounded once; x, y [count] act, y may be x. */
void ls_scale(struct ls_ops *ops, enum ls_dtype act, int64_t count, float factor, const void *x,
              void *y);

/* d_bias[n] = the column sums of dy [rows, n] act with row distance ld, in the order of
 * ls_token_sum and onto what it says (norm.h); rows = ls_token_rows(sum). */
struct ls_token_sum;
void ls_bias_backward(struct ls_ops *ops, enum ls_dtype act, int64_t n, int64_t ld, const void *dy,
                      const struct ls_token_sum *sum, float *d_bias);

/* y = x + z, rounded once; x, y, z [count] act. y may be x or z. */
void ls_add(struct ls_ops *ops, enum ls_dtype act, int64_t count, const void *x, const void *z,
            void *y);

/* y = x + bias, rounded to act once: what ls_gemm_run does last, for a product whose tile sums were
 * left in float32 because other ranks add theirs (S2). Tiles in subtrees, added by ls_tree_add and
 * passed through here, give the bits of one ls_gemm_run. x [rows, n] float32, dense; bias [n]
 * float32 or NULL; y [rows, n] act, dense; y may be x where act is LS_F32. */
void ls_bias_round(struct ls_ops *ops, enum ls_dtype act, int64_t rows, int64_t n, const float *x,
                   const float *bias, void *y);

/* Dropout (Srivastava et al. 2014), y = keep ? x / (1 - p) : 0, decided by Philox from key and the
 * global element, so by token and channel, never by rank: with n = first_row + r the row's global
 * token number, word c % 4 of ls_philox(key, {c / 4, 0, low half of n, high half of n}) keeps
 * channel c where ls_uniform_of(word) >= p. The backward is the same call on the gradient. x, y
 * [rows, channels] act; y may be x. 0 <= p < 1. */
struct ls_dropout {
    struct ls_philox_key key;
    float p;
    int64_t rows, channels;
    int64_t first_row; /* global token number of row 0; row r is first_row + r */
};
void ls_dropout(struct ls_ops *ops, enum ls_dtype act, const struct ls_dropout *dropout,
                const void *x, void *y);

/* Conversions to and from half, LS_BF16 or LS_F16: ls_f32_to_half and ls_half_to_f32 of
 * lockstep/base.h, element by element. */
void ls_cast_to_half(struct ls_ops *ops, enum ls_dtype half, int64_t count, const float *x,
                     ls_half *y);
void ls_cast_from_half(struct ls_ops *ops, enum ls_dtype half, int64_t count, const ls_half *x,
                       float *y);

/* into[i] += from[i]: one node of a sum tree (into is the left child). */
void ls_tree_add(struct ls_ops *ops, int64_t count, float *into, const float *from);
void ls_fill_zero(struct ls_ops *ops, size_t bytes, void *buffer);
/* to[bytes] = from[bytes]; they do not overlap. Of 0 bytes either may be NULL. */
void ls_copy(struct ls_ops *ops, size_t bytes, const void *from, void *to);
/* The same for `rows` rows of row_bytes each, whose beginnings are *_distance bytes apart. */
void ls_copy_rows(struct ls_ops *ops, int64_t rows, size_t row_bytes, const void *from,
                  size_t from_distance, void *to, size_t to_distance);

#endif
