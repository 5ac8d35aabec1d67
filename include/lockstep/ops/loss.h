/* lockstep/ops/loss.h - softmax cross-entropy on a block of rows. Included by lockstep/ops.h. */
#ifndef LOCKSTEP_OPS_LOSS_H
#define LOCKSTEP_OPS_LOSS_H

/* loss[r] = log(sum_v exp(z[r,v] - max)) + max - z[r, target[r]] over v < vocabulary.
 * z is [rows, padded] act; columns vocabulary..padded are padding: they take no part and get
 * gradient 0. With scale != 0, z becomes in place its gradient: scale * (softmax - onehot), rounded
 * to act. The sum over v: the padded vocabulary is cut in `tiles` equal tiles, each summed in 64
 * interleaved lanes (lanes by a fixed tree), tiles by the tree (S2). target -1 means: no loss, zero
 * gradient; any other target is below vocabulary (an assertion). A logit that is NaN or +inf, or a
 * row of nothing but -inf, gives a loss that is not finite. loss [rows]. The rows are a chunk, so
 * logits of the whole batch never exist. */
struct ls_cross_entropy {
    int64_t rows, vocabulary, padded, tiles;
    enum ls_dtype act;
    float scale;
};
void ls_cross_entropy(struct ls_ops *ops, const struct ls_cross_entropy *op, void *logits,
                      const int32_t *target, float *loss);
/* *out[leaf] = per leaf: token tiles from zero, tiles of a sequence by the tree, sequences by the
 * tree. loss [leaves * sequences * tokens]. Single-threaded: it is small. */
struct ls_token_sum;
void ls_loss_sum(const float *loss, const struct ls_token_sum *sum, float *leaf_loss);

#endif
