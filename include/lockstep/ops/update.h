/* lockstep/ops/update.h - optimizer updates on flat ranges, and squared norms. Included by
 * lockstep/ops.h. All elementwise: any cut into calls gives the same bits. */
#ifndef LOCKSTEP_OPS_UPDATE_H
#define LOCKSTEP_OPS_UPDATE_H

/* Where the elements of a range lie in their whole tensor: a range is consecutive elements, from
 * `first` on, of a rectangle of `cols` columns whose element (0, 0) is element `corner` of a tensor
 * of `whole_cols` columns. */
struct ls_places {
    int64_t first, cols, corner, whole_cols;
};
static inline int64_t ls_place(const struct ls_places *places, int64_t i)
{
    int64_t row = (places->first + i) / places->cols, col = (places->first + i) % places->cols;
    return places->corner + row * places->whole_cols + col;
}
/* What rounds moments to bf16: ls_random_half(key[0], ...) those of the first one, key[1] those of
 * the second, at this step and the element's place in its whole tensor. */
struct ls_rounding {
    struct ls_philox_key key[2];
    int64_t step;
    struct ls_places places; /* of the update's range */
};

/* One range of parameters. gradient is multiplied by gradient_scale (1/loss scale times the clip
 * factor) first; second (may be NULL) is a second gradient of the same parameters (a tied
 * embedding's) that is added to gradient before that: g = (gradient + second) * gradient_scale. */
struct ls_update {
    int64_t count;
    float *master;              /* float32 parameters, updated */
    ls_half *compute;           /* rounded copy, rewritten; NULL for none */
    enum ls_dtype compute_type; /* LS_BF16 or LS_F16 */
    const float *gradient, *second;
    float gradient_scale;
    float lr, weight_decay; /* weight_decay 0 for norms and biases */
    /* Moments are LS_F32, or LS_BF16: then they are widened (exact), the formula is computed in
     * float32, the parameter moves by moments that are not rounded, and these are rounded last
     * (ls_f32_to_bf16_stochastic). */
    enum ls_dtype moment_type;
    struct ls_rounding rounding; /* LS_BF16 only */
};
/* AdamW, decoupled (Loshchilov, Hutter 2019), as torch.optim.AdamW:
 *   p -= lr*wd*p;  m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2
 *   p -= (lr / (1 - b1^step)) * m / (sqrt(v) / sqrt(1 - b2^step) + eps)        step counts from 1
 * m, v [count] of moment_type, updated. The powers and 1 - b are taken in double from the float b1,
 * b2. */
struct ls_adamw {
    float beta1, beta2, epsilon;
    int64_t step;
};
void ls_adamw_update(struct ls_ops *ops, const struct ls_update *update,
                     const struct ls_adamw *adamw, void *m, void *v);
/* SGD with momentum, as torch.optim.SGD: g += wd*p; b = momentum*b + g (b = g at step 1);
 * p -= lr * (nesterov ? g + momentum*b : b). momentum 0: buffer may be NULL. */
struct ls_sgd {
    float momentum;
    bool nesterov;
    int64_t step;
};
void ls_sgd_update(struct ls_ops *ops, const struct ls_update *update, const struct ls_sgd *sgd,
                   void *buffer);
/* Lion (Chen et al. 2023): p -= lr * (sign(b1 m + (1-b1) g) + wd p); m = b2 m + (1-b2) g. */
struct ls_lion {
    float beta1, beta2;
};
void ls_lion_update(struct ls_ops *ops, const struct ls_update *update, const struct ls_lion *lion,
                    void *m);

/* Sum of squares of gradient (+ second, added in float32), exactly, into sum (S5): every square is
 * added as it is, so the total does not depend on who adds which elements, nor in what order. A NaN
 * or an infinity sets sum->nonfinite. second may be NULL. Local. */
void ls_squared_norm(struct ls_ops *ops, int64_t count, const float *gradient, const float *second,
                     struct ls_exact_sum *sum);

#endif
