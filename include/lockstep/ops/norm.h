/* lockstep/ops/norm.h - LayerNorm and RMSNorm, with the residual addition in front of them.
 * Included by lockstep/ops.h. */
#ifndef LOCKSTEP_OPS_NORM_H
#define LOCKSTEP_OPS_NORM_H

/* h = x + residual (rounded to act once; residual NULL: h = x, then `sum` is not written)
 *
 *   LayerNorm (Ba, Kiros, Hinton 2016):  y = (h - mean) * rstd * weight + bias,
 *                                        rstd = 1 / sqrt(variance + epsilon)
 *   RMSNorm (Zhang, Sennrich 2019):      y = h * rstd * weight,
 *                                        rstd = 1 / sqrt(mean(h^2) + epsilon)
 *
 * x, residual, sum, y [M, C] act; sum may be x or residual. Statistics and arithmetic in float32,
 * the variance from differences to the mean; row sums in 64 interleaved lanes (channel c in lane
 * c % 64), lanes by a fixed tree. Saved: mean [M] (LayerNorm), rstd [M]. */
enum { LS_NORM_CHANNELS_MAX = 32768 };
/* Rows lie one behind the other, or as heads do (heads > 0): the heads of a token side by side, and
 * tokens ld elements apart; rows are then M times heads, head by head, token by token, and so are
 * their statistics, which of a token are statistics_ld behind those of the token before. All
 * buffers of a call lie alike. */
struct ls_norm {
    int64_t rows, channels; /* M, C; C at most LS_NORM_CHANNELS_MAX */
    enum ls_dtype act;
    float epsilon;
    const float *weight;              /* [C] */
    const float *bias;                /* [C], LayerNorm with bias; NULL otherwise */
    float *mean, *rstd;               /* [M] saved statistics; mean unused by RMSNorm */
    int64_t heads, ld, statistics_ld; /* 0: dense rows */
    bool plus_one;                    /* RMSNorm: the weight is kept as its distance from one */
};
void ls_layernorm_forward(struct ls_ops *ops, const struct ls_norm *norm, const void *x,
                          const void *residual, void *sum, void *y);
void ls_rmsnorm_forward(struct ls_ops *ops, const struct ls_norm *norm, const void *x,
                        const void *residual, void *sum, void *y);

/* dh = gradient through the norm + d_residual (the gradient that flows around it, NULL for none),
 * rounded to act once. h [M, C] is the norm's input (the sum). dh may be d_residual or dy. */
void ls_layernorm_backward_input(struct ls_ops *ops, const struct ls_norm *norm, const void *h,
                                 const void *dy, const void *d_residual, void *dh);
void ls_rmsnorm_backward_input(struct ls_ops *ops, const struct ls_norm *norm, const void *h,
                               const void *dy, const void *d_residual, void *dh);

/* Weight gradients over `leaves` leaves, each of `sequences` sequences of `tiles` tiles of `tokens`
 * tokens: groups of LS_TOKEN_TILE tokens from zero; those of a tile, and tiles of a sequence, by
 * the tree; sequences of a leaf, and leaves, by the chain (S3, S4). What d_weight [C] and d_bias
 * [C] are before is the chain's begin, as `onto` says: the sum of leaves, or of this one leaf's
 * sequences so far. d_bias NULL if there is none. Needs the statistics that the forward saved. */
struct ls_token_sum {
    int64_t leaves, sequences, tiles, tokens; /* rows = leaves * sequences * tiles * tokens */
    enum ls_onto onto;                        /* LS_ONTO_CHAIN: leaves is 1 */
};
static inline int64_t ls_token_rows(const struct ls_token_sum *sum)
{
    return sum->leaves * sum->sequences * sum->tiles * sum->tokens;
}
void ls_layernorm_backward_weight(struct ls_ops *ops, const struct ls_norm *norm, const void *h,
                                  const void *dy, const struct ls_token_sum *sum, float *d_weight,
                                  float *d_bias);
void ls_rmsnorm_backward_weight(struct ls_ops *ops, const struct ls_norm *norm, const void *h,
                                const void *dy, const struct ls_token_sum *sum, float *d_weight);

/* The weight gradient of RMSNorm over heads (which share the weight), in parts: for each of `units`
 * units of `tokens` tokens, and for each of `tiles` tiles of the heads, the sum over the tile's
 * heads and the unit's tokens: token by token, head by head, groups of LS_TOKEN_TILE tokens from
 * zero, those by the tree. norm.heads is a multiple of tiles; norm.rows = units * tokens *
 * norm.heads. Part (u, t) goes to sums + u * sums_ld + t * C. */
struct ls_norm_parts {
    int64_t units, tokens, tiles, sums_ld;
    float *sums;
};
void ls_rmsnorm_heads_weight(struct ls_ops *ops, const struct ls_norm *norm, const void *h,
                             const void *dy, const struct ls_norm_parts *out);

/* RMSNorm over rows of which ranks hold parts: here columns 0 .. C - 1 of rows that have `whole` of
 * them. Each rank sums over the columns [first, first + count) that it answers for, in `tiles`
 * equal tiles (64 lanes each, tiles by the tree); ranks' sums are added by the tree; then each
 * finishes the columns that it holds (S2).
 *
 *   sum       sums[r] = sum of h^2                     dy given: of dy weight h rstd
 *   finish    rstd[r], to = h rstd weight              dy given: to = rstd (dy weight - h rstd
 * mean)
 *
 * norm: heads is 1, so that rows lie ld apart, and statistics_ld. to may be dy. The weight's
 * gradient is ls_rmsnorm_backward_weight's. */
struct ls_norm_cut {
    int64_t whole, first, count, tiles;
};
void ls_rmsnorm_cut_sum(struct ls_ops *ops, const struct ls_norm *norm,
                        const struct ls_norm_cut *cut, const void *h, const void *dy, float *sums);
void ls_rmsnorm_cut_finish(struct ls_ops *ops, const struct ls_norm *norm,
                           const struct ls_norm_cut *cut, const void *h, const void *dy,
                           const float *sums, void *to);

#endif
