/* lockstep/ops/loss.h - softmax cross-entropy on a block of rows. Included by lockstep/ops.h. */
#ifndef LOCKSTEP_OPS_LOSS_H
#define LOCKSTEP_OPS_LOSS_H

/* loss[r] = log(sum_v exp(z[r,v] - max)) + max - z[r, target[r]] over v < vocabulary.
 * z is [rows, padded] act; columns vocabulary..padded are padding: they take no part and get
 * gradient 0. With scale != 0, z becomes in place its gradient: scale * weight[r] * (softmax -
 * onehot), rounded to act; the loss itself is not weighted: ls_loss_sum does that. The sum over v:
 * the padded vocabulary is cut in `tiles` equal tiles, each summed in 64 interleaved lanes (lanes
 * by a fixed tree), tiles by the tree (S2). target -1 means: no loss, zero gradient; weights 0
 * mean zero gradient, whatever the logits are; any other target is below vocabulary (an assertion).
 * A logit that is NaN or +inf, or a row of nothing but -inf, gives a loss that is not finite. loss
 * [rows]. The rows are a chunk, so logits of the whole batch never exist. */
struct ls_cross_entropy {
    int64_t rows, vocabulary;
    int64_t padded, tiles; /* columns held here, padding included, and the tiles they make */
    enum ls_dtype act;
    float scale;
    int64_t first; /* vocabulary entry of column 0: 0 unless the vocabulary is split (below) */
    float softcap; /* z came from ls_softcap with this cap, and the gradient is that of what went
                    * in: times 1 - (z / cap)^2; 0: none */
    const float *weight; /* [rows], finite, of any sign; NULL: each is 1 */
    /* [rows], finite, of any sign: the gradient is that of weight[r] * loss[r] + entropy_weight[r]
     * * H[r], with H the entropy of the row (below): scale * -entropy_weight * p * (log p + H) is
     * added to it. Only ls_cross_entropy_finish takes these. NULL: each is 0. */
    const float *entropy_weight;
    const float *product; /* [rows] with entropy_weight: of ls_cross_entropy_sum, of all ranks */
};
/* Local. The whole vocabulary is here: first is 0 and vocabulary at most padded. */
void ls_cross_entropy(struct ls_ops *ops, const struct ls_cross_entropy *op, void *logits,
                      const int32_t *target, float *loss);

/* The same with the vocabulary split over ranks (Shoeybi et al. 2019, "Megatron-LM"), and the same
 * bits: each rank holds columns [first, first + padded), whole tiles that make a subtree of the
 * tree over all tiles; vocabulary stays global, so the last ranks may hold padding only. On each
 * rank, with what is reduced over the ranks in between:
 *
 *   ls_cross_entropy_max     max[r] = the largest logit here, -inf for none  -> maximum
 *   ls_cross_entropy_sum     sum[r] = sum of exp(z - max) here               -> tree over ranks
 *                            target_logit[r] = z[r, target[r]], 0 elsewhere  -> sum (one is not 0)
 *                            product[r] = sum of (z - max) exp(z - max)      -> tree over ranks
 *   ls_cross_entropy_finish  loss[r], and with scale != 0 the gradient of the columns here
 *
 * target holds entries of the whole vocabulary, or -1. max, sum, target_logit, product, loss
 * [rows]; loss is the same on every rank. product is for entropies, and then sum is of rows without
 * a target, too; NULL: none is wanted. Local. */
void ls_cross_entropy_max(struct ls_ops *ops, const struct ls_cross_entropy *op, const void *logits,
                          float *max);
void ls_cross_entropy_sum(struct ls_ops *ops, const struct ls_cross_entropy *op, const void *logits,
                          const int32_t *target, const float *max, float *sum, float *target_logit,
                          float *product);
void ls_cross_entropy_finish(struct ls_ops *ops, const struct ls_cross_entropy *op, void *logits,
                             const int32_t *target, const float *max, const float *sum,
                             const float *target_logit, float *loss);
/* place[r] = minus the lowest vocabulary entry here whose logit is max[r], -inf for none: the
 * maximum over ranks is that of the whole vocabulary. place [rows]. Local. */
void ls_cross_entropy_place(struct ls_ops *ops, const struct ls_cross_entropy *op,
                            const void *logits, const float *max, float *place);
/* entropy[r], in nats, of a row's distribution p = exp(z - max) / sum: minus the sum of p log p is
 * log sum - product / sum, and both terms are 0 or more. It has the same bits over any cut of the
 * vocabulary. A logit of -inf adds nothing; rows whose loss is not finite have an entropy that is
 * not either, whatever their target. sum, product, entropy [rows]. Local. */
void ls_entropy(struct ls_ops *ops, const struct ls_cross_entropy *op, const float *sum,
                const float *product, float *entropy);
/* What a loss is made of, [sequences, tiles, tokens] each. */
struct ls_loss_sum {
    int64_t sequences, tiles, tokens;
    const float *loss, *weight;            /* weight NULL: each is 1 */
    const float *entropy, *entropy_weight; /* NULL: none is added */
};
/* out[i], i < sequences: the sum over sequence i's tokens of weight * loss and entropy_weight *
 * entropy, each product rounded; what has weight 0 is left out, finite or not. Groups of
 * LS_TOKEN_TILE tokens from zero; those of a tile, and the tiles, by the tree. Single-threaded: it
 * is small. Local. */
void ls_loss_sum(struct ls_ops *ops, const struct ls_loss_sum *sum, float *out);

#endif
