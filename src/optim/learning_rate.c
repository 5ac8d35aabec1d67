/* The learning rate of a step. */
#include <lockstep/optim.h>

#include <math.h>

/* cos(pi x) for x in [0, 1], by its Taylor series around the nearer end: the same bits on every
 * machine, which the C library's cosine does not promise. */
static double cos_pi(double x)
{
    bool upper = x > 0.5;
    double t = 3.14159265358979323846 * (upper ? 1 - x : x), t2 = t * t, series = 0;
    for (int k = 24; k >= 2; k -= 2)
        series = (1 + series) * (-t2 / ((k - 1) * k));
    return upper ? -(1 + series) : 1 + series;
}

static double decay_share(int64_t step, int64_t from, int64_t to)
{
    if (step >= to)
        return 1;
    return step <= from ? 0 : (double)(step - from) / (double)(to - from);
}

float ls_learning_rate(const struct ls_optim_config *c, int64_t step)
{
    double peak = c->lr, least = c->lr * (double)c->min_ratio;
    if (step < c->warmup_steps)
        return (float)(peak * (double)step / (double)c->warmup_steps);
    double share = decay_share(step, c->warmup_steps, c->decay_steps);
    switch (c->schedule) {
    case LS_LR_CONSTANT:
        return c->lr;
    case LS_LR_LINEAR:
        return (float)(peak + (least - peak) * share);
    case LS_LR_COSINE:
        return (float)(least + (peak - least) * 0.5 * (1 + cos_pi(share)));
    case LS_LR_INVERSE_SQRT: {
        double warmup = (double)ls_max(c->warmup_steps, 1);
        double lr = peak * sqrt(warmup / (double)ls_max(step, 1));
        return (float)(lr < peak ? lr : peak);
    }
    case LS_LR_WSD:
        share = decay_share(step, c->decay_steps - c->cooldown_steps, c->decay_steps);
        return (float)(peak + (least - peak) * share);
    }
    return c->lr;
}
