/* lockstep/optim.h - optimizers, learning-rate schedules, gradient clipping.
 *
 * An optimizer holds its states for a flat array of parameters (all of them, or a rank's shard) and
 * updates its slices in one call per step. Everything is Local: gradients are already reduced.
 */
#ifndef LOCKSTEP_OPTIM_H
#define LOCKSTEP_OPTIM_H

#include <lockstep/ops.h>
#include <lockstep/optim/loss_scale.h>

#ifdef __cplusplus
extern "C" {
#endif

enum ls_optimizer_kind { LS_ADAMW, LS_SGD, LS_LION };
enum ls_lr_schedule {
    LS_LR_CONSTANT,     /* after warm-up */
    LS_LR_LINEAR,       /* down to min_ratio at decay_steps */
    LS_LR_COSINE,       /* Loshchilov, Hutter 2017 (SGDR), without restarts */
    LS_LR_INVERSE_SQRT, /* Vaswani et al. 2017: sqrt(warmup / step) */
    LS_LR_WSD,          /* warm-up, stable, decay (Hu et al. 2024): linear in cooldown_steps */
};

struct ls_optim_config {
    enum ls_optimizer_kind kind;
    float lr, beta1, beta2, epsilon, weight_decay;
    float momentum; /* SGD */
    bool nesterov;  /* SGD */
    float clip;     /* of the global norm; 0: off */
    enum ls_lr_schedule schedule;
    int64_t warmup_steps, decay_steps, cooldown_steps;
    enum ls_dtype moments; /* what states are kept in: LS_F32, or LS_BF16, rounded stochastically */
    float min_ratio;       /* the least learning rate, as a share of lr: linear, cosine, wsd */
};

/* The learning rate of a step, counted from 1. Warm-up is linear, lr * step / warmup_steps; then
 * the schedule runs to decay_steps; past that it stays at its end. */
float ls_learning_rate(const struct ls_optim_config *config, int64_t step);

/* Number of state arrays: AdamW 2 (exp_avg, exp_avg_sq), SGD 0 or 1 (momentum_buffer), Lion 1
 * (exp_avg). Their names are torch.optim's. */
int ls_optimizer_states(const struct ls_optim_config *config);
const char *ls_optimizer_state_name(const struct ls_optim_config *config, int state);
/* The key of the random bits that round a state of a parameter to bf16, from the recipe's seed:
 * purpose "round:exp_avg.h.0.attn.q.weight". */
struct ls_philox_key ls_optimizer_rounding_key(const struct ls_optim_config *config, int state,
                                               uint64_t seed, const char *parameter);

/* A run of parameters that lie side by side in the master and in each state. */
struct ls_slice {
    int64_t first, count;
    ls_half *compute;           /* [count] the rounded copy, rewritten; NULL for none */
    enum ls_dtype compute_type; /* LS_BF16 or LS_F16 */
    int64_t gradient;           /* place of its first element in the gradient */
    int64_t second; /* of a tied table's other gradient, added first; -1: there is none */
    bool decay;     /* weight decay applies */
    bool counted;   /* in the norm; false where another rank counts the same parameters */
    /* Of moments in bf16: keys by state, and where the slice lies in the whole parameter. */
    struct ls_philox_key rounding_key[2];
    struct ls_places places;
};

/* A plain value; states are borrowed arrays of config.moments laid out as the master, zero before
 * step 1. */
struct ls_optimizer {
    struct ls_optim_config config;
    void *state[2];
};
/* Takes states of that many elements from arena (which may be measuring). */
void ls_optimizer_init(struct ls_optimizer *optimizer, const struct ls_optim_config *config,
                       int64_t elements, struct ls_arena *arena);

/* Adds the squares of the counted slices' gradients to sum, exactly (S5): the global norm is the
 * square root of all ranks' sums, the same however parameters are spread over them. */
void ls_gradient_square(const struct ls_slice *slices, int count, const float *gradient,
                        struct ls_ops *ops, struct ls_exact_sum *sum);
/* What gradients are multiplied by: min(1, clip / (norm + 1e-6)), as torch's clip_grad_norm_. */
float ls_clip_factor(const struct ls_optim_config *config, double norm);

/* One update. */
struct ls_optim_step {
    int64_t step; /* counted from 1 */
    float lr;
    const float *gradient;
    float gradient_scale; /* ls_clip_factor, over the loss scale */
};
/* Updates all slices of master. */
void ls_optimizer_step(struct ls_optimizer *optimizer, struct ls_ops *ops,
                       const struct ls_slice *slices, int count, const struct ls_optim_step *step,
                       float *master);

#ifdef __cplusplus
}
#endif
#endif
