/* What a configuration takes. The buffers are planned by walking memory_take with a measuring
 * arena, so what is printed is what is allocated. */
#include "stage.h"

#include <stdio.h>
#include <stdlib.h>

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

struct ls_optim_config ls_config_optim(const struct ls_config *config)
{
    const struct ls_config_optim *o = &config->optim;
    static const enum ls_optimizer_kind kinds[] = {
        [LS_CONFIG_ADAMW] = LS_ADAMW, [LS_CONFIG_SGD] = LS_SGD, [LS_CONFIG_LION] = LS_LION};
    static const enum ls_lr_schedule schedules[] = {
        [LS_CONFIG_CONSTANT] = LS_LR_CONSTANT, [LS_CONFIG_LINEAR] = LS_LR_LINEAR,
        [LS_CONFIG_COSINE] = LS_LR_COSINE,     [LS_CONFIG_INVERSE_SQRT] = LS_LR_INVERSE_SQRT,
        [LS_CONFIG_WSD] = LS_LR_WSD,
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

/* ---- what ZeRO is told of the parameters ----------------------------------------------------- */

struct zero_tables {
    struct ls_zero_unit *units;
    struct ls_zero_tensor *tensors;
    int64_t *regions;
};

static void tables_release(struct zero_tables *tables)
{
    free(tables->units);
    free(tables->tensors);
    free(tables->regions);
}

/* The second gradient of a tied table: computed here, on another stage, or nowhere. */
static struct ls_zero_place second_place(const struct ls_params *params, int i)
{
    if (i == params->tied_param)
        return (struct ls_zero_place){params->tied_region, params->tied_offset};
    return (struct ls_zero_place){i == params->shared_param ? LS_ZERO_OUTSIDE : LS_ZERO_NONE, 0};
}

static int tables_make(const struct ls_params *params, struct zero_tables *tables,
                       struct ls_error *error)
{
    *tables = (struct zero_tables){
        .units = calloc((size_t)ls_max(params->unit_count, 1), sizeof *tables->units),
        .tensors = calloc((size_t)ls_max(params->count, 1), sizeof *tables->tensors),
        .regions = calloc((size_t)ls_max(params->region_count, 1), sizeof *tables->regions)};
    if (!tables->units || !tables->tensors || !tables->regions) {
        tables_release(tables);
        return ls_error_set(error, LS_ENOMEM, "no memory for the list of parameters");
    }
    for (int i = 0; i < params->unit_count; i++)
        tables->units[i] =
            (struct ls_zero_unit){params->units[i].elements, params->units[i].matrix_elements};
    for (int i = 0; i < params->region_count; i++)
        tables->regions[i] = params->regions[i].elements;
    for (int i = 0; i < params->count; i++) {
        const struct ls_param *param = &params->list[i];
        tables->tensors[i] =
            (struct ls_zero_tensor){.name = param->name,
                                    .unit = param->unit,
                                    .offset = param->offset,
                                    .rows = param->matrix ? param->rows : param->cols,
                                    .cols = param->matrix ? param->cols : 1,
                                    .gradient = {param->region, param->region_offset},
                                    .second = second_place(params, i)};
    }
    return LS_OK;
}

static int zero_take(const struct memory_request *r, struct ls_arena *arena, struct ls_zero **out,
                     struct ls_error *error)
{
    const struct ls_layout *layout = r->layout;
    const struct ls_params *params = r->params;
    struct zero_tables tables;
    int status = tables_make(params, &tables, error);
    if (status)
        return status;
    int64_t cp = r->coordinates[LS_AXIS_CP], shard = r->coordinates[LS_AXIS_DP_SHARD];
    bool sharded = layout->zero > 0;
    struct ls_zero_options options = {
        .stage = layout->zero,
        .units = tables.units,
        .tensors = tables.tensors,
        .region_elements = tables.regions,
        .unit_count = params->unit_count,
        .tensor_count = params->count,
        .region_count = params->region_count,
        .shard_ranks = (int)layout->shard_ranks,
        .shard_rank = (int)(sharded ? shard * layout->size[LS_AXIS_CP] + cp : cp),
        .replicate_ranks = (int)layout->replicate_ranks,
        .shard = r->groups ? r->groups->shard : NULL,
        .replicate = r->groups ? r->groups->replicate : NULL,
        .each_micro_batch = layout->each_micro_batch,
        .micro_batches_max = layout->micro_batches,
        .fast = layout->numerics.fast,
        .reduce = r->config->numerics.reduce,
        .act = layout->numerics.act,
        .bucket_bytes = r->config->comm.bucket_mb << 20,
        .prefetch = (int)layout->prefetch,
        .persistence_elements = layout->persist,
        .reshard_after_forward = layout->reshard_after_forward,
    };
    status = ls_zero_new(&options, arena, out, error);
    tables_release(&tables);
    return status;
}

/* ---- all buffers ----------------------------------------------------------------------------- */

static int model_take(const struct memory_request *r, struct ls_arena *arena,
                      struct train_memory *memory, struct ls_error *error)
{
    const struct ls_layout *layout = r->layout;
    struct ls_model_options options = {
        .config = &layout->model,
        .numerics = &layout->numerics,
        .params = r->params,
        .weights = memory->weights,
        .tp = r->tp,
        .cp = r->cp,
        .layers = r->part->held,
        .chunk_first = r->part->chunk_first,
        .sequences = layout->micro_sequences,
        .tokens = layout->sequence,
        .slots = memory->slots,
        .training = true,
        .accumulating = layout->micro_batches > 1,
        .split_backward = memory->split_backward,
    };
    return ls_model_new(&options, arena, &memory->model, error);
}

int memory_take(const struct memory_request *r, struct ls_arena *arena, struct train_memory *memory,
                struct ls_memory_plan *plan, struct ls_error *error)
{
    const struct ls_params *params = r->params;
    size_t start = arena->used;
    int status = zero_take(r, arena, &memory->zero, error);
    if (status)
        return status;
    struct ls_zero_sizes sizes;
    ls_zero_get_sizes(memory->zero, &sizes);
    plan->parameters = sizes.master + sizes.parameters;
    plan->gradients = sizes.gradients;
    plan->transit = arena->used - start - plan->parameters - plan->gradients;
    start = arena->used;
    struct ls_optim_config optim = ls_config_optim(r->config);
    ls_optimizer_init(&memory->optimizer, &optim, ls_zero_elements(memory->zero), arena);
    plan->optimizer = arena->used - start;
    start = arena->used;
    memory->weights = ls_arena_take(arena, (size_t)params->unit_count * sizeof *memory->weights);
    memory->slices = ls_arena_take(arena, (size_t)params->count * sizeof *memory->slices);
    status = stage_take(r, arena, memory, error);
    if (!status)
        status = model_take(r, arena, memory, error);
    plan->activations = arena->used - start;
    plan->total = arena->used;
    plan->micro_sequences = r->layout->micro_sequences;
    plan->micro_batches = r->layout->micro_batches;
    plan->batches = ls_layout_batches(r->layout);
    plan->slots = memory->slots;
    return status;
}

void memory_release(struct train_memory *memory)
{
    ls_model_free(memory->model);
    ls_zero_free(memory->zero);
    stage_release(memory);
    ls_arena_release(&memory->arena);
    *memory = (struct train_memory){0};
}

/* What the rank at those coordinates takes. */
int memory_plan(const struct ls_config *config, const struct ls_layout *layout,
                const int64_t coordinates[LS_AXES], struct ls_memory_plan *plan,
                struct ls_error *error)
{
    struct train_part part = {0};
    struct ls_params params;
    struct train_memory memory = {0};
    struct ls_tp tp = {.size = (int)layout->size[LS_AXIS_TP],
                       .rank = (int)coordinates[LS_AXIS_TP],
                       .sequence = layout->sp,
                       .chunks = (int)layout->tp_overlap,
                       .sharers = ls_tp_sharers(layout->size[LS_AXIS_TP], layout->model.kv_heads)};
    struct ls_cp cp = {.size = (int)layout->size[LS_AXIS_CP],
                       .rank = (int)coordinates[LS_AXIS_CP],
                       .method = layout->cp_method};
    int status = part_init(&part, layout, coordinates[LS_AXIS_PP], error);
    if (status)
        return status;
    struct ls_part held = {tp.size, tp.rank, part.held};
    status = ls_params_init(&params, &layout->model, &layout->numerics, &held, error);
    if (!status) {
        struct memory_request request = {.config = config,
                                         .layout = layout,
                                         .coordinates = coordinates,
                                         .params = &params,
                                         .part = &part,
                                         .tp = &tp,
                                         .cp = &cp};
        struct ls_arena arena;
        ls_arena_measure(&arena);
        status = memory_take(&request, &arena, &memory, plan, error);
        memory_release(&memory);
        ls_params_release(&params);
    }
    part_release(&part);
    return status;
}

int ls_plan(const struct ls_config *config, struct ls_memory_plan *plan, struct ls_error *error)
{
    struct ls_layout *layout = malloc(sizeof *layout);
    if (!layout)
        return ls_error_set(error, LS_ENOMEM, "no memory for a layout");
    int status = ls_config_layout(config, 0, layout, error);
    *plan = (struct ls_memory_plan){0};
    for (int64_t pp = 0; !status && pp < layout->size[LS_AXIS_PP]; pp++) {
        int64_t coordinates[LS_AXES] = {[LS_AXIS_PP] = pp};
        struct ls_memory_plan stage;
        status = memory_plan(config, layout, coordinates, &stage, error);
        if (stage.total > plan->total)
            *plan = stage;
    }
    free(layout);
    return status;
}
