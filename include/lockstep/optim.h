/* lockstep/optim.h - optimizers, learning-rate schedules, gradient clipping.
 *
 * An optimizer updates slices of parameters (all of them, or a rank's shard) in one call per step:
 * the float32 masters and what it keeps of each element, its states. They lie on the device or in a
 * memory tier. Gradients are already reduced, and everything is Local, but with Muon
 * ls_optimizer_step: to orthogonalise a matrix, its parts meet on one rank.
 *
 * Muon (lockstep/ops/muon.h) is for hidden matrices (struct ls_param's hidden); beside it, tables
 * and vectors have AdamW's update. How matrices meet: doc/adr/0024-matrices-have-owners.md. */
#ifndef LOCKSTEP_OPTIM_H
#define LOCKSTEP_OPTIM_H

#include <lockstep/comm.h>
#include <lockstep/device/pass.h>
#include <lockstep/nn.h>
#include <lockstep/ops.h>
#include <lockstep/optim/loss_scale.h>
#include <lockstep/parallel/zero.h>

LS_C_BEGIN

enum ls_optimizer_kind { LS_ADAMW, LS_SGD, LS_LION, LS_MUON };
enum ls_lr_schedule {
    LS_LR_CONSTANT,     /* after warm-up */
    LS_LR_LINEAR,       /* down to min_ratio at decay_steps */
    LS_LR_COSINE,       /* Loshchilov, Hutter 2017 (SGDR), without restarts */
    LS_LR_INVERSE_SQRT, /* Vaswani et al. 2017: sqrt(warmup / step) */
    LS_LR_WSD,          /* warm-up, stable, decay (Hu et al. 2024): linear in cooldown_steps */
};

/* What the learning rate of a matrix of [rows, cols] is multiplied by, as torch.optim.Muon's
 * adjust_lr_fn; not in the weight decay. */
enum ls_muon_scale {
    LS_MUON_ORIGINAL,  /* sqrt(max(1, rows / cols)) */
    LS_MUON_MATCH_RMS, /* 0.2 sqrt(max(rows, cols)): updates as large as AdamW's */
};
struct ls_optim_config {
    enum ls_optimizer_kind kind;
    float lr, beta1, beta2, epsilon, weight_decay; /* Muon: betas and epsilon of AdamW beside it */
    float momentum;                                /* SGD, Muon */
    bool nesterov;                                 /* SGD, Muon */
    int ns_steps;                                  /* Muon, as what follows */
    enum ls_muon_scale muon_scale;
    float adamw_lr; /* of tables and vectors, on lr's schedule; 0: lr */
    float clip;     /* of the global norm; 0: off */
    enum ls_lr_schedule schedule;
    int64_t warmup_steps, decay_steps, cooldown_steps;
    enum ls_dtype moments; /* what states are kept in: LS_F32, or LS_BF16, rounded stochastically */
    float min_ratio;       /* the least learning rate, as a share of lr: linear, cosine, wsd */
    uint64_t seed;         /* the recipe's: of the bits that round moments */
};

/* The learning rate of a step, counted from 1. Warm-up is linear, lr * step / warmup_steps; then
 * the schedule runs to decay_steps; past that it stays at its end. */
float ls_learning_rate(const struct ls_optim_config *config, int64_t step);

/* How many states a parameter has, hidden or not: AdamW 2 (exp_avg, exp_avg_sq), SGD 0 or 1
 * (momentum_buffer), Lion 1 (exp_avg), Muon 1 of a hidden matrix (momentum_buffer) and AdamW's of
 * others. Their names are torch.optim's. */
int ls_optimizer_states(const struct ls_optim_config *config, bool hidden);
const char *ls_optimizer_state_name(const struct ls_optim_config *config, bool hidden, int state);
/* The most that a parameter has. */
int ls_optimizer_states_most(const struct ls_optim_config *config);
/* Local. How many a parameter of a model has: none if it is frozen. */
static inline int ls_param_states(const struct ls_optim_config *config,
                                  const struct ls_param *param)
{
    return param->frozen ? 0 : ls_optimizer_states(config, param->hidden);
}
/* The key of the random bits that round a state of a parameter to bf16: purpose
 * "round:exp_avg.h.0.attn.q.weight". */
struct ls_philox_key ls_optimizer_rounding_key(const struct ls_optim_config *config, int state,
                                               const struct ls_param *param);

/* Arrays of a slice. */
enum { LS_OPTIM_MASTER, LS_OPTIM_STATE, LS_OPTIM_ARRAYS = LS_OPTIM_STATE + 2 };

/* A run of parameters, as this rank owns them. Its arrays lie on the device, or all of them in the
 * optimizer's tier. */
struct ls_slice {
    /* What it is a run of, and which, with the places of its gradient: borrowed. A frozen one has
     * no gradient and no states and is not updated; values that are computed with in another type
     * are rounded to it. */
    const struct ls_param *param;
    const struct ls_zero_slice *part;
    bool half;      /* of a frozen matrix: it has no master, compute is all there is */
    void *blocks;   /* of a matrix in few bits: its rows of blocks, which are all there is */
    bool lent;      /* the caller has a place for its master, on the device, or it has none */
    float *master;  /* [count]; NULL in a tier, and of half */
    void *state[2]; /* [count] of config.moments, zero before step 1; NULL in a tier */
    bool away;      /* in the tier */
    size_t place[LS_OPTIM_ARRAYS]; /* then: where each array begins there */

    void *compute;     /* [count] the copy that is computed with, rewritten; NULL: the master is */
    bool compute_away; /* there is one, which comes and goes (struct ls_compute_places) */
    enum ls_dtype compute_type;
    struct ls_philox_key rounding_key[2]; /* by state; set by ls_optimizer_init */
};

/* Where slices lie whose masters the caller has no place for. */
struct ls_optim_storage {
    struct ls_tier *tier;          /* NULL: nothing is moved (planning, recording) */
    struct ls_tier_room *room;     /* of that tier; NULL: everything lies on the device */
    double ratio;                  /* of the elements that go there, at least, in whole slices */
    struct ls_tier *gradient_tier; /* of gradients that are away */
};

/* Where slice i's copy is now, from its first element on; it stays there until the next call. */
struct ls_compute_places {
    int (*open)(void *user, int i, void **place, struct ls_error *error);
    void *user;
};

/* Who orthogonalises which matrix, and what it does that in (src/optim/muon_matrices.h). */
struct ls_muon;

struct ls_optimizer {
    struct ls_optim_config config;
    struct ls_muon *muon; /* NULL: not Muon */
    struct ls_tier *tier, *gradient_tier;
    struct ls_pass pass;             /* of what lies there */
    struct ls_compute_places places; /* set by the caller where copies come and go */
};
/* Finds a place for each slice's states, and for its master unless lent: on the device (arena,
 * which may be measuring) or in the tier. Each takes its part's room, so that all ranks of a shard
 * group need the same. */
void ls_optimizer_init(struct ls_optimizer *optimizer, const struct ls_optim_config *config,
                       struct ls_slice *slices, int count, const struct ls_optim_storage *storage,
                       struct ls_arena *arena);

/* Parameters whose hidden matrices Muon updates, with their specs, borrowed as the communicator is;
 * slice i is that of parameter i. */
struct ls_matrices {
    const struct ls_params *params;
    const struct ls_slice *slices; /* read at once: whose gradients are away */
    struct ls_comm *comm; /* the ranks of the specs' mesh in its order; NULL for a group of one and
                           * while the arena is measuring */
    int rank;             /* this one in it */
};
/* Local. Muon only, after ls_optimizer_init: takes what it works in from arena. LS_ENOMEM. */
int ls_optimizer_meet(struct ls_optimizer *optimizer, const struct ls_matrices *matrices,
                      struct ls_arena *arena, struct ls_error *error);
/* Local. What the rank of comm does with the others in ls_optimizer_step, its transfers alone:
 * comm, in the place of ls_matrices', is one that is alone (lockstep/plan/recording.h), and ops are
 * idle. */
int ls_optimizer_rehearse(struct ls_optimizer *optimizer, struct ls_ops *ops, struct ls_comm *comm,
                          struct ls_error *error);
/* A zeroed struct is allowed. */
void ls_optimizer_release(struct ls_optimizer *optimizer);

/* Elements of an array of a slice, on the device while they are visited. */
struct ls_slice_piece {
    int64_t from, count;
    void *values;
};
typedef int ls_slice_visit(void *user, const struct ls_slice_piece *piece, struct ls_error *error);
/* Visits an array of a slice (LS_OPTIM_MASTER, LS_OPTIM_STATE + s) piece by piece in ascending
 * order, wherever it lies; with LS_WRITES what the visit leaves is kept, and without LS_READS it
 * finds no values. Of a matrix in blocks it finds their values and leaves some that are quantised:
 * LS_EDATA, with the element of the whole matrix, if one is not finite. Errors of visit and of
 * the tier's disk. */
int ls_slice_visit_array(const struct ls_optimizer *optimizer, const struct ls_slice *slice,
                         int array, enum ls_access access, ls_slice_visit *visit, void *user,
                         struct ls_error *error);
/* A piece of the slice's master, of first weights: LS_EDATA, with the element of the whole matrix,
 * if one is finite and its copy in fp16 is not. Of weights that training brings there the loss
 * scale judges. */
int ls_slice_fits(const struct ls_slice *slice, const struct ls_slice_piece *piece,
                  struct ls_error *error);
/* The slices' copies that are computed with, made anew of their masters; those of frozen slices get
 * the values of their copies. */
int ls_slices_round(const struct ls_optimizer *optimizer, struct ls_ops *ops,
                    const struct ls_slice *slices, int count, struct ls_error *error);

/* Visits the gradients of slices piece by piece: first those on the device, at gradient, then those
 * in a tier. slice: its index. Second gradients are the visitor's to ask for. */
typedef int ls_gradient_visit(void *user, int slice, int64_t from, int64_t count,
                              const float *values, struct ls_error *error);
int ls_slices_visit_gradient(const struct ls_optimizer *optimizer, const struct ls_slice *slices,
                             int count, const float *gradient, ls_gradient_visit *visit, void *user,
                             struct ls_error *error);
/* Adds the squares of the counted slices' gradients to sum, exactly (S5): the global norm is the
 * square root of all ranks' sums, the same however parameters are spread over them. */
int ls_gradient_square(const struct ls_optimizer *optimizer, const struct ls_slice *slices,
                       int count, const float *gradient, struct ls_ops *ops,
                       struct ls_exact_sum *sum, struct ls_error *error);
/* What gradients are multiplied by: min(1, clip / (norm + 1e-6)), as torch's clip_grad_norm_. */
float ls_clip_factor(const struct ls_optim_config *config, double norm);

/* One update. */
struct ls_optim_step {
    int64_t step; /* counted from 1 */
    float lr;
    float *gradient;      /* Muon: that of a hidden matrix is used up */
    float gradient_scale; /* ls_clip_factor, over the loss scale */
};
/* Local; with Muon Collective over the ranks that ls_optimizer_meet was told. Updates all slices:
 * masters, states, and the copies that are computed with. Slices in a tier pass through the device
 * in windows, which are read and written while others are updated. */
int ls_optimizer_step(struct ls_optimizer *optimizer, struct ls_ops *ops,
                      const struct ls_slice *slices, int count, const struct ls_optim_step *step,
                      struct ls_error *error);

LS_C_END
#endif
