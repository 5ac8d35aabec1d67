/* An optimizer: its states, the square of a gradient, clipping, one step over a rank's slices. */
#include <lockstep/optim.h>

#include <math.h>
#include <stdio.h>

int ls_optimizer_states(const struct ls_optim_config *config)
{
    switch (config->kind) {
    case LS_ADAMW:
        return 2;
    case LS_SGD:
        return config->momentum != 0 ? 1 : 0;
    case LS_LION:
        return 1;
    }
    return 0;
}

const char *ls_optimizer_state_name(const struct ls_optim_config *config, int state)
{
    if (config->kind == LS_SGD)
        return "momentum_buffer";
    return state == 0 ? "exp_avg" : "exp_avg_sq";
}

struct ls_philox_key ls_optimizer_rounding_key(const struct ls_optim_config *config, int state,
                                               uint64_t seed, const char *parameter)
{
    char purpose[256];
    snprintf(purpose, sizeof purpose, "round:%s.%s", ls_optimizer_state_name(config, state),
             parameter);
    return ls_philox_key_of(seed, purpose);
}

void ls_optimizer_init(struct ls_optimizer *optimizer, const struct ls_optim_config *config,
                       int64_t elements, struct ls_arena *arena)
{
    *optimizer = (struct ls_optimizer){.config = *config};
    for (int i = 0; i < ls_optimizer_states(config); i++)
        optimizer->state[i] =
            ls_arena_take(arena, (size_t)elements * ls_dtype_bytes(config->moments));
}

static const float *second_of(const struct ls_slice *slice, const float *gradient)
{
    return slice->second < 0 ? NULL : gradient + slice->second;
}

void ls_gradient_square(const struct ls_slice *slices, int count, const float *gradient,
                        struct ls_ops *ops, struct ls_exact_sum *sum)
{
    for (int i = 0; i < count; i++)
        if (slices[i].counted)
            ls_squared_norm(ops, slices[i].count, gradient + slices[i].gradient,
                            second_of(&slices[i], gradient), sum);
}

float ls_clip_factor(const struct ls_optim_config *config, double norm)
{
    if (config->clip <= 0)
        return 1.0f;
    double factor = config->clip / (norm + 1e-6);
    return factor < 1 ? (float)factor : 1.0f;
}

static struct ls_update update_of(const struct ls_optim_config *config,
                                  const struct ls_slice *slice, const struct ls_optim_step *step,
                                  float *master)
{
    return (struct ls_update){
        .count = slice->count,
        .master = master + slice->first,
        .compute = slice->compute,
        .compute_type = slice->compute_type,
        .gradient = step->gradient + slice->gradient,
        .second = second_of(slice, step->gradient),
        .gradient_scale = step->gradient_scale,
        .lr = step->lr,
        .weight_decay = slice->decay ? config->weight_decay : 0.0f,
        .moment_type = config->moments,
        .rounding = {.key = {slice->rounding_key[0], slice->rounding_key[1]},
                     .step = step->step,
                     .places = slice->places},
    };
}

/* The slice's part of a state; NULL where there is none. */
static void *state_at(const struct ls_optimizer *optimizer, int state, int64_t first)
{
    char *values = optimizer->state[state];
    return values ? values + (size_t)first * ls_dtype_bytes(optimizer->config.moments) : NULL;
}

void ls_optimizer_step(struct ls_optimizer *optimizer, struct ls_ops *ops,
                       const struct ls_slice *slices, int count, const struct ls_optim_step *step,
                       float *master)
{
    const struct ls_optim_config *c = &optimizer->config;
    for (int i = 0; i < count; i++) {
        const struct ls_slice *slice = &slices[i];
        struct ls_update update = update_of(c, slice, step, master);
        void *state0 = state_at(optimizer, 0, slice->first);
        if (c->kind == LS_ADAMW) {
            struct ls_adamw adamw = {c->beta1, c->beta2, c->epsilon, step->step};
            ls_adamw_update(ops, &update, &adamw, state0, state_at(optimizer, 1, slice->first));
        } else if (c->kind == LS_SGD) {
            struct ls_sgd sgd = {c->momentum, c->nesterov, step->step};
            ls_sgd_update(ops, &update, &sgd, state0);
        } else {
            struct ls_lion lion = {c->beta1, c->beta2};
            ls_lion_update(ops, &update, &lion, state0);
        }
    }
}
