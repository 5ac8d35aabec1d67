/* What a configuration takes. The buffers are planned by walking memory_take with a measuring
 * arena, so what is printed is what is allocated. */
#include "stage.h"

#include <stdio.h>
#include <stdlib.h>

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
                                    .elements = param->rows * param->cols,
                                    .slice = ls_dtensor_local_shape(&param->spec, 0, NULL),
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
    int64_t rank = ls_layout_rank(layout, r->coordinates);
    struct ls_zero_options options = {
        .stage = layout->zero,
        .units = tables.units,
        .tensors = tables.tensors,
        .region_elements = tables.regions,
        .unit_count = params->unit_count,
        .tensor_count = params->count,
        .region_count = params->region_count,
        .shard_ranks = (int)layout->shard_ranks,
        .shard_rank = (int)ls_group_rank(layout, LS_GROUP_SHARD, rank),
        .replicate_ranks = (int)layout->replicate_ranks,
        .shard = r->groups ? r->groups[LS_GROUP_SHARD] : NULL,
        .replicate = r->groups ? r->groups[LS_GROUP_REPLICATE] : NULL,
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

/* Debug builds always check. */
static bool memory_checked(const struct ls_config *config)
{
#ifdef LS_MEMORY_CHECK
    (void)config;
    return true;
#else
    return config->memory.check;
#endif
}

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
        .recompute = layout->recompute,
        .partition_activations = layout->partition_activations,
        .check = memory_checked(r->config),
    };
    return ls_model_new(&options, arena, &memory->model, error);
}

int memory_take(const struct memory_request *r, struct ls_arena *arena, struct train_memory *memory,
                struct ls_memory_plan *plan, struct ls_error *error)
{
    const struct ls_params *params = r->params;
    size_t *bytes = plan->bytes, start = arena->used;
    int status = zero_take(r, arena, &memory->zero, error);
    if (status)
        return status;
    struct ls_zero_sizes sizes;
    ls_zero_get_sizes(memory->zero, &sizes);
    bytes[LS_MEMORY_PARAMETERS] = sizes.master + sizes.parameters;
    bytes[LS_MEMORY_GRADIENTS] = sizes.gradients;
    bytes[LS_MEMORY_COMMUNICATION] = sizes.buffers;
    start = arena->used;
    struct ls_optim_config optim = ls_config_optim(r->config);
    ls_optimizer_init(&memory->optimizer, &optim, ls_zero_elements(memory->zero), arena);
    bytes[LS_MEMORY_OPTIMIZER] = arena->used - start;
    memory->weights = calloc((size_t)params->unit_count + 1, sizeof *memory->weights);
    memory->slices = calloc((size_t)params->count + 1, sizeof *memory->slices);
    if (!memory->weights || !memory->slices)
        return ls_error_set(error, LS_ENOMEM, "no memory for the tables of %d tensors",
                            params->count);
    start = arena->used;
    status = stage_take(r, arena, memory, error);
    bytes[LS_MEMORY_COMMUNICATION] += arena->used - start;
    start = arena->used;
    if (!status)
        status = model_take(r, arena, memory, error);
    if (status)
        return status;
    bytes[LS_MEMORY_ACTIVATIONS] = ls_model_kept_bytes(memory->model);
    bytes[LS_MEMORY_WORKSPACE] = arena->used - start - bytes[LS_MEMORY_ACTIVATIONS];
    plan->total = arena->used;
    plan->micro_sequences = r->layout->micro_sequences;
    plan->micro_batches = r->layout->micro_batches;
    plan->batches = ls_layout_batches(r->layout);
    plan->slots = memory->slots;
    plan->live = memory->live;
    return LS_OK;
}

void memory_release(struct train_memory *memory)
{
    ls_model_free(memory->model);
    free(memory->weights);
    free(memory->slices);
    ls_zero_free(memory->zero);
    stage_release(memory);
    ls_arena_release(&memory->arena);
    *memory = (struct train_memory){0};
}

/* ---- plans ----------------------------------------------------------------------------------- */

const char *ls_memory_name(enum ls_memory_kind kind)
{
    static const char *const names[LS_MEMORY_KINDS] = {"parameters",  "gradients", "optimizer",
                                                       "activations", "workspace", "communication"};
    return names[kind];
}

int memory_measure(const struct ls_config *config, const struct ls_layout *layout, int64_t rank,
                   struct measured_memory *out, struct ls_error *error)
{
    *out = (struct measured_memory){0};
    ls_layout_coordinates(layout, rank, out->coordinates);
    const int64_t *at = out->coordinates, *size = layout->size;
    struct ls_tp tp = {.size = (int)size[LS_AXIS_TP],
                       .rank = (int)at[LS_AXIS_TP],
                       .sequence = layout->sp,
                       .chunks = (int)layout->tp_overlap,
                       .sharers = ls_tp_sharers(size[LS_AXIS_TP], layout->model.kv_heads)};
    struct ls_cp cp = {
        .size = (int)size[LS_AXIS_CP], .rank = (int)at[LS_AXIS_CP], .method = layout->cp_method};
    int status = part_init(&out->part, layout, at[LS_AXIS_PP], error);
    if (!status)
        status = ls_layout_params(layout, tp.rank, out->part.held, &out->params, error);
    struct memory_request request = {.config = config,
                                     .layout = layout,
                                     .coordinates = at,
                                     .params = &out->params,
                                     .part = &out->part,
                                     .tp = &tp,
                                     .cp = &cp};
    struct ls_arena arena;
    ls_arena_measure(&arena);
    if (!status)
        status = memory_take(&request, &arena, &out->memory, &out->plan, error);
    if (status)
        memory_measure_release(out);
    return status;
}

void memory_measure_release(struct measured_memory *measured)
{
    memory_release(&measured->memory);
    ls_params_release(&measured->params);
    part_release(&measured->part);
}

int ls_plan_rank(const struct ls_config *config, const struct ls_layout *layout, int64_t rank,
                 struct ls_memory_plan *plan, struct ls_error *error)
{
    struct measured_memory measured;
    int status = memory_measure(config, layout, rank, &measured, error);
    if (status)
        return status;
    *plan = measured.plan;
    memory_measure_release(&measured);
    return LS_OK;
}

int ls_plan(const struct ls_config *config, struct ls_memory_plan *plan, struct ls_error *error)
{
    struct ls_layout *layout = malloc(sizeof *layout);
    if (!layout)
        return ls_error_set(error, LS_ENOMEM, "no memory for a layout");
    int status = ls_config_layout(config, 0, layout, error);
    *plan = (struct ls_memory_plan){0};
    for (int64_t pp = 0; !status && pp < layout->size[LS_AXIS_PP]; pp++) {
        struct ls_memory_plan stage = {0};
        status = ls_plan_rank(config, layout, ls_layout_first_rank(layout, pp), &stage, error);
        if (stage.total > plan->total)
            *plan = stage;
    }
    free(layout);
    return status;
}
