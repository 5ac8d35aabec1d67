/* What a resolved configuration tells the optimizer. */
#include "config/config_private.h"

#include <lockstep/parallel/arrivals.h>

#include <math.h>
#include <stdlib.h>

struct ls_optim_config ls_config_optim(const struct ls_config *config)
{
    const struct ls_config_optim *o = &config->optim;
    return (struct ls_optim_config){
        .kind = (enum ls_optimizer_kind)o->name,
        .lr = (float)o->lr,
        .beta1 = (float)o->beta1,
        .beta2 = (float)o->beta2,
        .epsilon = (float)o->epsilon,
        .weight_decay = (float)o->weight_decay,
        .momentum = (float)o->momentum,
        .nesterov = o->nesterov,
        .ns_steps = (int)o->ns_steps,
        .muon_scale = (enum ls_muon_scale)o->muon_scale,
        .adamw_lr = (float)o->adamw_lr,
        .clip = (float)o->clip,
        .moments = o->moments,
        .schedule = (enum ls_lr_schedule)o->schedule,
        .warmup_steps = o->warmup_steps,
        .decay_steps = o->decay_steps,
        .cooldown_steps = o->cooldown_steps,
        .min_ratio = (float)o->min_ratio,
        .seed = config->model.seed,
    };
}

struct ls_optim_config ls_config_outer_optim(const struct ls_config *config)
{
    const struct ls_config_async *a = &config->async;
    bool adamw = a->outer == LS_CONFIG_OUTER_ADAMW, nesterov = a->outer == LS_CONFIG_NESTEROV;
    return (struct ls_optim_config){
        .kind = adamw ? LS_ADAMW : LS_SGD,
        .lr = (float)a->outer_lr,
        .beta1 = (float)a->outer_momentum,
        .beta2 = (float)a->outer_beta2,
        .epsilon = (float)a->outer_epsilon,
        .momentum = nesterov ? (float)a->outer_momentum : 0,
        .nesterov = nesterov && a->outer_momentum > 0,
        .schedule = LS_LR_CONSTANT,
        .moments = LS_F32,
        .seed = config->model.seed,
    };
}

int ls_config_times(const struct ls_config *config, int64_t *times, struct ls_error *error)
{
    const char *text = config->async.times;
    int64_t workers = config->async.workers, count = 0;
    for (; !*text && count < workers; count++)
        times[count] = 1;
    for (char *end; *text; text = end + (*end == ',')) {
        long value = strtol(text, &end, 10);
        bool whole = end > text && (*end == '\0' || (*end == ',' && end[1]));
        if (!whole || value < 1 || value > LS_ARRIVAL_TIME_MAX)
            return ls_config_reject(config, LS_ECONFIG, "async.times", error,
                                    "expected whole numbers from 1 to %d with commas between, "
                                    "such as 1,1,1,4",
                                    LS_ARRIVAL_TIME_MAX);
        if (count < workers)
            times[count] = value;
        count++;
    }
    if (count != workers)
        return ls_config_reject(config, LS_ECONFIG, "async.times", error,
                                "expected a time of each worker: async.workers = %lld, and there "
                                "are %lld",
                                (long long)workers, (long long)count);
    return LS_OK;
}

int64_t ls_config_workers(const struct ls_config *config)
{
    return config->async.mode == LS_CONFIG_SYNC ? 1 : config->async.workers;
}
int64_t ls_config_workers_each(const struct ls_config *config)
{
    return ls_config_workers(config) / config->parallel.workers;
}
int64_t ls_config_batches(const struct ls_config *config)
{
    return config->async.mode == LS_CONFIG_DILOCO ? config->async.workers : 1;
}
int64_t ls_config_interval(const struct ls_config *config)
{
    const struct ls_config_async *a = &config->async;
    return a->mode == LS_CONFIG_SYNC ? 1 : a->sync_every / a->fragments;
}

struct ls_loss_scale_config ls_config_loss_scale(const struct ls_config *config)
{
    const struct ls_config_numerics *n = &config->numerics;
    if (n->precision != LS_F16)
        return (struct ls_loss_scale_config){.initial = 1};
    bool dynamic = n->loss_scale == 0;
    return (struct ls_loss_scale_config){
        .dynamic = dynamic,
        .initial = dynamic ? ldexp(1, (int)n->initial_scale_power) : n->loss_scale,
        .window = n->loss_scale_window,
        .hysteresis = n->hysteresis,
        .consecutive = n->consecutive_hysteresis,
        .least = n->min_loss_scale,
    };
}
