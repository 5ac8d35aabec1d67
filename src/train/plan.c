/* What a configuration takes: sizes, buffers, admissibility. The buffers are planned by walking
 * memory_take with a measuring arena, so what is printed is what is allocated. */
#include "trainer.h"

#include <stdio.h>

/* Rows of a micro-batch that batch.micro = 0 aims at: enough to fill the product's blocks. */
enum { AUTO_MICRO_ROWS = 4096 };

int64_t ls_batch_at(const struct ls_config *config, int64_t samples)
{
    int64_t start = config->batch.rampup_start, increment = config->batch.rampup_increment;
    int64_t span = config->batch.rampup_samples, full = config->batch.global;
    if (start <= 0 || increment <= 0 || start >= full || samples >= span)
        return full;
    /* floor(samples / (span / increments)), without rounding the quotient. */
    int64_t increments = (full - start) / increment;
    int64_t done = (int64_t)((__int128)samples * increments / span);
    return ls_min(start + done * increment, full);
}

static struct ls_optim_config optim_of(const struct ls_config *config)
{
    const struct ls_config_optim *o = &config->optim;
    static const enum ls_optimizer_kind kinds[] = {
        [LS_CONFIG_ADAMW] = LS_ADAMW, [LS_CONFIG_SGD] = LS_SGD, [LS_CONFIG_LION] = LS_LION};
    static const enum ls_lr_schedule schedules[] = {
        [LS_CONFIG_CONSTANT] = LS_SCHEDULE_CONSTANT,
        [LS_CONFIG_LINEAR] = LS_SCHEDULE_LINEAR,
        [LS_CONFIG_COSINE] = LS_SCHEDULE_COSINE,
        [LS_CONFIG_INVERSE_SQRT] = LS_SCHEDULE_INVERSE_SQRT,
        [LS_CONFIG_WSD] = LS_SCHEDULE_WSD,
    };
    return (struct ls_optim_config){
        .kind = kinds[o->name],
        .lr = (float)o->lr,
        .beta1 = (float)o->beta1,
        .beta2 = (float)o->beta2,
        .epsilon = (float)o->epsilon,
        .weight_decay = (float)o->weight_decay,
        .momentum = (float)o->momentum,
        .nesterov = o->nesterov,
        .clip = (float)o->clip,
        .schedule = schedules[o->schedule],
        .warmup_steps = o->warmup_steps,
        .decay_steps = o->decay_steps,
        .cooldown_steps = o->cooldown_steps,
        .min_ratio = (float)o->min_ratio,
    };
}

void ls_fingerprint(enum ls_isa isa, char *text, size_t bytes)
{
    snprintf(text, bytes, "isa %s; lockstep %s; compiler %s", ls_isa_name(isa), LS_VERSION,
             __VERSION__);
}

struct ls_numerics numerics_of(const struct ls_config *config)
{
    const struct ls_config_numerics *n = &config->numerics;
    bool fast = n->mode == LS_CONFIG_FAST;
    return (struct ls_numerics){.act = n->precision,
                                .tp_tiles = fast ? 1 : n->tp_tiles,
                                .seq_tiles = fast ? 1 : n->seq_tiles,
                                .leaf_sequences = n->leaf_sequences,
                                .fast = fast};
}

/* The batch sizes that the ramp-up walks through all have to be admissible. */
static int batches_check(const struct ls_config *config, int64_t micro_leaves,
                         struct ls_error *error)
{
    int64_t leaf = config->numerics.leaf_sequences, dp = ls_config_ranks(config);
    int64_t start = config->batch.rampup_start, full = config->batch.global;
    int64_t increment = config->batch.rampup_increment;
    int64_t size = start > 0 && increment > 0 ? start : full;
    for (;; size = ls_min(size + increment, full)) {
        if (size % leaf)
            return ls_config_reject(config, LS_ELAYOUT, "batch.global", error,
                                    "a batch of %ld sequences is not whole leaves of "
                                    "numerics.leaf_sequences = %ld",
                                    (long)size, (long)leaf);
        if (config->numerics.mode == LS_CONFIG_FAST) {
            if (size / leaf % dp)
                return ls_config_reject(config, LS_ELAYOUT, "parallel.dp", error,
                                        "it does not divide a batch of %ld leaves",
                                        (long)(size / leaf));
        } else {
            struct ls_dp_share share;
            int status = ls_dp_share_init(&share, size / leaf, dp, 0, micro_leaves, error);
            if (status)
                return status;
        }
        if (size >= full)
            return LS_OK;
    }
}

int sizes_of(const struct ls_config *config, struct train_sizes *sizes, struct ls_error *error)
{
    int64_t leaf = config->numerics.leaf_sequences, dp = ls_config_ranks(config);
    int64_t tokens = config->data.sequence, micro = config->batch.micro;
    if (micro % leaf)
        return ls_config_reject(config, LS_ELAYOUT, "batch.micro", error,
                                "it must be whole leaves of numerics.leaf_sequences = %ld; the "
                                "nearest is %ld",
                                (long)leaf, (long)ls_round_up(micro, leaf));
    int64_t leaves = config->batch.global / leaf;
    int64_t share = ls_max(leaves / dp, 1), micro_leaves = micro / leaf;
    if (micro == 0) {
        micro_leaves = 1;
        while (micro_leaves * 2 <= share && micro_leaves * 2 * leaf * tokens <= AUTO_MICRO_ROWS)
            micro_leaves *= 2;
        if (share * leaf * tokens <= AUTO_MICRO_ROWS)
            micro_leaves = share;
    }
    int status = batches_check(config, micro_leaves, error);
    if (status)
        return status;
    micro_leaves = ls_min(micro_leaves, share);
    int64_t micro_batches = ls_ceil_div(share, micro_leaves);
    *sizes = (struct train_sizes){
        .sequence_tokens = tokens,
        .leaves_max = leaves,
        .micro_leaves = micro_leaves,
        .micro_batches_max = micro_batches,
        .micro_sequences = micro_leaves * leaf,
        .gradient_buffers =
            config->numerics.mode == LS_CONFIG_FAST ? 1 : ls_accumulation_buffers(micro_batches),
    };
    return LS_OK;
}

int memory_take(const struct ls_config *config, const struct train_sizes *sizes,
                const struct ls_numerics *numerics, const struct ls_params *params,
                struct ls_arena *arena, struct train_memory *memory, struct ls_optimizer *optimizer,
                struct ls_model **model, struct ls_memory_plan *plan, struct ls_error *error)
{
    size_t elements = (size_t)params->elements, start = arena->used;
    struct ls_weights *weights = &memory->weights;
    weights->master = ls_arena_take(arena, elements * sizeof(float));
    weights->compute =
        numerics->act == LS_BF16 ? ls_arena_take(arena, elements * sizeof(ls_bf16)) : NULL;
    plan->parameters = arena->used - start;
    start = arena->used;
    for (int i = 0; i < sizes->gradient_buffers; i++)
        memory->gradient[i] =
            ls_arena_take(arena, (size_t)params->gradient_elements * sizeof(float));
    plan->gradients = arena->used - start;
    start = arena->used;
    struct ls_optim_config optim = optim_of(config);
    ls_optimizer_init(optimizer, &optim, params, arena);
    plan->optimizer = arena->used - start;
    start = arena->used;
    struct ls_model_options options = {.config = &config->model,
                                       .numerics = numerics,
                                       .params = params,
                                       .weights = *weights,
                                       .sequences = sizes->micro_sequences,
                                       .tokens = sizes->sequence_tokens,
                                       .training = true,
                                       .accumulating = sizes->micro_batches_max > 1};
    int status = ls_model_new(&options, arena, model, error);
    plan->activations = arena->used - start;
    plan->total = arena->used;
    plan->micro_sequences = sizes->micro_sequences;
    plan->micro_batches = sizes->micro_batches_max;
    plan->gradient_buffers = sizes->gradient_buffers;
    return status;
}

int ls_plan(const struct ls_config *config, struct ls_memory_plan *plan, struct ls_error *error)
{
    struct train_sizes sizes;
    struct ls_params params;
    struct ls_numerics numerics = numerics_of(config);
    int status = sizes_of(config, &sizes, error);
    if (!status)
        status = ls_params_init(&params, &config->model, &numerics, error);
    if (status)
        return status;
    struct ls_arena arena;
    ls_arena_measure(&arena);
    struct train_memory memory = {0};
    struct ls_optimizer optimizer;
    struct ls_model *model = NULL;
    status = memory_take(config, &sizes, &numerics, &params, &arena, &memory, &optimizer, &model,
                         plan, error);
    ls_model_free(model);
    ls_params_release(&params);
    return status;
}
