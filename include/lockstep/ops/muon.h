/* lockstep/ops/muon.h - Muon: momentum, orthogonalisation, the step. Included by lockstep/ops.h.
 *
 * Source: Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks"; Liu et al.
 * 2025, "Muon is Scalable for LLM Training"; torch.optim.Muon.
 *
 *   m = m + (1 - mu) (g - m);  d = nesterov ? m + (1 - mu) (g - m) : m      ls_muon_momentum
 *   o = Newton-Schulz(d)                                                    ls_newton_schulz
 *   p = p - lr wd p - lr scale o                                            ls_muon_update
 *
 * The first and the last are elementwise: any cut into calls gives the same bits. The one between
 * reads the whole matrix. */
#ifndef LOCKSTEP_OPS_MUON_H
#define LOCKSTEP_OPS_MUON_H

struct ls_update; /* lockstep/ops/update.h */

/* g = (gradient + second) * gradient_scale, as of other updates. m [count] of update->moment_type,
 * updated; direction [count] =, which may be update->gradient itself. lr, weight_decay, master and
 * compute are not read. 1 - mu is taken in double from the float mu. */
struct ls_muon_momentum {
    float momentum;
    bool nesterov;
};
void ls_muon_momentum(struct ls_ops *ops, const struct ls_update *update,
                      const struct ls_muon_momentum *muon, void *m, float *direction);

/* master and compute become new; scale: what lr is multiplied by, but not in the weight decay.
 * orthogonal [count]. */
void ls_muon_update(struct ls_ops *ops, const struct ls_update *update, float scale,
                    const float *orthogonal);

/* The quintic iteration, `steps` times from X / max(|X|, 1e-7) (Frobenius):
 *
 *   A = X X^T (X^T X if there are more rows than columns)
 *   X = (a I + b A + c A A) X         (on the other side then)   a, b, c = 3.4445, -4.775, 2.0315
 *
 * which takes the singular values of X to about 1. All in float32: products are ls_gemm_run's, one
 * chain an element, so a matrix has one result on any instruction set; and a matrix and its
 * transpose have the same. The norm is summed exactly. Of A and A A, which are symmetric bit for
 * bit, only blocks on and below the diagonal are computed. */
struct ls_newton_schulz {
    int64_t rows, cols;
    int steps;
};
/* Elements of work. */
int64_t ls_newton_schulz_work(const struct ls_newton_schulz *op);
/* x [rows, cols] is used up. *out: where the result is, x or the first rows x cols elements of
 * work; the other one may be written to again. */
int ls_newton_schulz(struct ls_ops *ops, const struct ls_newton_schulz *op, float *x, float *work,
                     float **out, struct ls_error *error);

#endif
