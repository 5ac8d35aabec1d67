/* lockstep/ops/position.h - rotary position embedding. Included by lockstep/ops.h. */
#ifndef LOCKSTEP_OPS_POSITION_H
#define LOCKSTEP_OPS_POSITION_H

/* RoPE (Su et al. 2021), half-split form as Hugging Face's Llama: with i < D/2,
 *   y[i]       = x[i] cos(t f_i) - x[i + D/2] sin(t f_i)
 *   y[i + D/2] = x[i + D/2] cos(t f_i) + x[i] sin(t f_i),      f_i = theta^(-2i/D)
 * Llama-3 scaling (llama-models, `apply_scaling`): with wavelength w = 2 pi / f and context L0,
 * f/factor where w > L0/low_freq_factor, f where w < L0/high_freq_factor, interpolated between.
 * Linear scaling (Chen et al. 2023): f/factor. YaRN (Peng et al. 2023): pair i turns L0 / w times
 * in that context; i(n) is the pair, as a real number, that turns n times. f up to
 * floor(i(beta_fast)), f/factor from ceil(i(beta_slow)) on, linear in i between; cosine and sine
 * times attention_factor. */
enum ls_rope_kind { LS_ROPE_LLAMA3, LS_ROPE_LINEAR, LS_ROPE_YARN };
struct ls_rope_scaling {
    float factor; /* 0 or 1: no scaling */
    float low_freq_factor, high_freq_factor;
    int64_t original_context;
    enum ls_rope_kind kind;
    float beta_fast, beta_slow, attention_factor; /* 0: 0.1 ln(factor) + 1 */
};
/* Fills cosine and sine, each [tokens, D/2], in double then rounded: the same on every machine.
 * head_dim is even; tokens at most 1.6 million. scaling NULL: none. */
void ls_rope_table(int64_t tokens, int64_t head_dim, double theta,
                   const struct ls_rope_scaling *scaling, float *cosine, float *sine);
/* By how much the frequency of pair i is scaled: 1 if it is not. */
double ls_rope_scaled(int64_t head_dim, double theta, const struct ls_rope_scaling *scaling,
                      int64_t i);
/* In place on x [rows, heads * D] act, row distance ld; row r has position first_position + r %
 * tokens, which the table holds. backward == true rotates the other way, which is the gradient. */
struct ls_rope {
    int64_t rows, tokens, heads, head_dim, ld, first_position;
    const float *cosine, *sine;
};
void ls_rope_apply(struct ls_ops *ops, enum ls_dtype act, const struct ls_rope *rope, void *x,
                   bool backward);

#endif
