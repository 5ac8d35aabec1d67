#include <lockstep/optim.h>

#include <math.h>

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

void ls_optimizer_init(struct ls_optimizer *optimizer, const struct ls_optim_config *config,
                       const struct ls_params *params, struct ls_arena *arena)
{
    *optimizer = (struct ls_optimizer){.config = *config, .params = params};
    for (int i = 0; i < ls_optimizer_states(config); i++)
        optimizer->state[i] = ls_arena_take(arena, (size_t)params->elements * sizeof(float));
}

/* The second gradient of a parameter, NULL for all but the tied table. */
static const float *second_gradient(const struct ls_params *params, int index,
                                    const float *gradient)
{
    return index == params->tied_param ? gradient : NULL;
}

double ls_gradient_norm(const struct ls_params *params, struct ls_ops *ops, const float *gradient)
{
    struct ls_exact_sum sum;
    ls_exact_clear(&sum);
    for (int i = 0; i < params->count; i++) {
        const struct ls_param *param = &params->list[i];
        ls_squared_norm(ops, param->rows * param->cols,
                        gradient + params->tied_elements + param->offset,
                        second_gradient(params, i, gradient), &sum);
    }
    return sqrt(ls_exact_value(&sum));
}

float ls_clip_factor(const struct ls_optim_config *config, double norm)
{
    if (config->clip <= 0)
        return 1.0f;
    double factor = config->clip / (norm + 1e-6);
    return factor < 1 ? (float)factor : 1.0f;
}

/* Parameters that follow each other with the same decay and no second gradient are updated in one
 * call: returns the index after the run that begins at first. */
static int run_end(const struct ls_params *params, int first)
{
    int end = first + 1;
    if (first == params->tied_param)
        return end;
    while (end < params->count && end != params->tied_param &&
           params->list[end].decay == params->list[first].decay)
        end++;
    return end;
}

void ls_optimizer_step(struct ls_optimizer *optimizer, struct ls_ops *ops,
                       const struct ls_weights *weights, const float *gradient,
                       float gradient_scale, float lr, int64_t step)
{
    const struct ls_params *params = optimizer->params;
    const struct ls_optim_config *c = &optimizer->config;
    for (int i = 0, end; i < params->count; i = end) {
        end = run_end(params, i);
        const struct ls_param *first = &params->list[i], *last = &params->list[end - 1];
        int64_t at = first->offset;
        struct ls_update update = {
            .count = last->offset + last->rows * last->cols - at,
            .master = weights->master + at,
            .compute = weights->compute ? weights->compute + at : NULL,
            .gradient = gradient + params->tied_elements + at,
            .second = second_gradient(params, i, gradient),
            .gradient_scale = gradient_scale,
            .lr = lr,
            .weight_decay = first->decay ? c->weight_decay : 0.0f,
        };
        float *state0 = optimizer->state[0] ? optimizer->state[0] + at : NULL;
        if (c->kind == LS_ADAMW) {
            struct ls_adamw adamw = {c->beta1, c->beta2, c->epsilon, step};
            ls_adamw_update(ops, &update, &adamw, state0, optimizer->state[1] + at);
        } else if (c->kind == LS_SGD) {
            struct ls_sgd sgd = {c->momentum, c->nesterov, step};
            ls_sgd_update(ops, &update, &sgd, state0);
        } else {
            struct ls_lion lion = {c->beta1, c->beta2};
            ls_lion_update(ops, &update, &lion, state0);
        }
    }
}
