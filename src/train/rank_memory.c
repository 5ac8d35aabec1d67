/* What a configuration takes. The buffers are planned by walking memory_take with a measuring
 * arena, so what is printed is what is allocated. */
#include "train/stage.h"

#include <lockstep/base/words.h>

#include <stdio.h>
#include <stdlib.h>

/* ---- what ZeRO is told ----------------------------------------------------------------------- */

struct zero_tables {
    bool *regions_away, *units_away;
};

static void tables_release(struct zero_tables *tables)
{
    free(tables->regions_away);
    free(tables->units_away);
}

/* Whether what is offloaded of that layer goes: of blocks, the first ones, until enough have. Of
 * tables it is large and stays. */
static bool block_goes(const struct memory_request *r, enum ls_offload what, int layer)
{
    int64_t blocks = r->layout->model.layers, before = 0, all = 0;
    for (int64_t block = 1; block <= blocks; block++) {
        all += r->part->held[block];
        before += r->part->held[block] && block < layer;
    }
    double enough = r->config->memory.offload[what].ratio * (double)all;
    return layer > 0 && layer <= blocks && (double)before < enough;
}

static int tables_make(const struct memory_request *r, struct zero_tables *tables,
                       struct ls_error *error)
{
    const struct ls_params *params = r->params;
    *tables = (struct zero_tables){
        .regions_away =
            calloc((size_t)ls_max(params->region_count, 1), sizeof *tables->regions_away),
        .units_away = calloc((size_t)ls_max(params->unit_count, 1), sizeof *tables->units_away)};
    if (!tables->regions_away || !tables->units_away) {
        tables_release(tables);
        return ls_error_set(error, LS_ENOMEM, "no memory for the list of parameters");
    }
    for (int i = 0; i < params->unit_count; i++)
        tables->units_away[i] = block_goes(r, LS_OFFLOAD_PARAMETERS, params->units[i].layer);
    for (int i = 0; i < params->region_count; i++)
        tables->regions_away[i] = block_goes(r, LS_OFFLOAD_GRADIENTS, params->regions[i].layer);
    return LS_OK;
}

static int zero_take(const struct memory_request *r, struct ls_arena *arena,
                     struct train_memory *memory, struct ls_error *error)
{
    const struct ls_layout *layout = r->layout;
    const struct ls_params *params = r->params;
    enum ls_tier_kind regions_to = ls_config_tier(r->config, LS_OFFLOAD_GRADIENTS),
                      units_to = ls_config_tier(r->config, LS_OFFLOAD_PARAMETERS);
    struct zero_tables tables;
    int status = tables_make(r, &tables, error);
    if (status)
        return status;
    int64_t rank = ls_layout_rank(layout, r->coordinates);
    struct ls_dp_share share;
    ls_layout_share(layout, layout->ramp.full, r->coordinates, &share);
    struct ls_zero_options options = {
        .stage = layout->zero,
        .units_away = units_to == LS_TIER_DEVICE ? NULL : tables.units_away,
        .units_tier = memory->tiers[units_to],
        .units_room = &memory->rooms[units_to],
        .regions_away = regions_to == LS_TIER_DEVICE ? NULL : tables.regions_away,
        .regions_tier = memory->tiers[regions_to],
        .regions_room = &memory->rooms[regions_to],
        .params = params,
        .shard_ranks = (int)layout->shard_ranks,
        .shard_rank = (int)ls_group_rank(layout, LS_GROUP_SHARD, rank),
        .replicate_ranks = (int)layout->replicate_ranks,
        .shard = r->groups ? r->groups[LS_GROUP_SHARD] : NULL,
        .replicate = r->groups ? r->groups[LS_GROUP_REPLICATE] : NULL,
        .replicate_rank = (int)ls_group_rank(layout, LS_GROUP_REPLICATE, rank),
        .inner = (int)layout->size[LS_AXIS_CP],
        .leaves_max = share.count,
        .parts = share.micro < share.leaf,
        .micro_batches_max = layout->micro_batches,
        .fast = layout->numerics.fast,
        .reduce = r->config->numerics.reduce,
        .act = layout->numerics.act,
        .bucket_bytes = r->config->comm.bucket_mb << 20,
        .prefetch = (int)layout->prefetch,
        .masters_away = ls_config_tier(r->config, LS_OFFLOAD_OPTIMIZER) != LS_TIER_DEVICE ||
                        (layout->numerics.act != LS_F32 && params->trained < params->weights),
        .persistence_elements = layout->persist,
        .reshard_after_forward = layout->reshard_after_forward,
    };
    status = ls_zero_new(&options, arena, &memory->zero, error);
    tables_release(&tables);
    return status;
}

/* ---- the optimizer -------------------------------------------------------------------------- */

/* The slices, and where their masters and states lie. */
static int optimizer_take(const struct memory_request *r, struct ls_arena *arena,
                          struct train_memory *memory, struct ls_error *error)
{
    const struct ls_config_offload *offload = &r->config->memory.offload[LS_OFFLOAD_OPTIMIZER];
    const struct ls_zero_slice *zero = ls_zero_slices(memory->zero);
    struct ls_optim_config config = ls_config_optim(r->config);
    int count = r->params->count;
    memory->slices = calloc((size_t)count + 1, sizeof *memory->slices);
    if (!memory->slices)
        return ls_error_set(error, LS_ENOMEM, "no memory for the tables of %d tensors", count);
    for (int i = 0; i < count; i++) {
        const struct ls_param *param = &r->params->list[i];
        enum ls_dtype act = r->layout->numerics.act;
        bool away = ls_zero_compute_away(memory->zero, i);
        bool half = param->frozen && param->matrix && act != LS_F32 && !away;
        memory->slices[i] = (struct ls_slice){.param = param,
                                              .part = &zero[i],
                                              .half = half,
                                              .lent = half || ls_zero_has_master(memory->zero, i),
                                              .compute_away = away,
                                              .compute_type = act};
    }
    const struct ls_optim_storage storage = {
        .tier = memory->tiers[offload->to],
        .room = offload->to == LS_TIER_DEVICE ? NULL : &memory->rooms[offload->to],
        .ratio = offload->ratio,
        .gradient_tier = memory->tiers[ls_config_tier(r->config, LS_OFFLOAD_GRADIENTS)]};
    ls_optimizer_init(&memory->optimizer, &config, memory->slices, count, &storage, arena);
    return LS_OK;
}

/* With Muon, what its matrices meet in. */
static int matrices_take(const struct memory_request *r, struct ls_arena *arena,
                         struct train_memory *memory, struct ls_error *error)
{
    size_t start = arena->used;
    const struct ls_matrices matrices = {
        .params = r->params,
        .slices = memory->slices,
        .comm = r->groups ? r->groups[LS_GROUP_MATRICES] : NULL,
        .rank = (int)ls_group_rank(r->layout, LS_GROUP_MATRICES,
                                   ls_layout_rank(r->layout, r->coordinates)),
    };
    int status = r->layout->matrices_meet
                     ? ls_optimizer_meet(&memory->optimizer, &matrices, arena, error)
                     : LS_OK;
    memory->optimizer_work = arena->used - start;
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
    const struct ls_config_offload *offload = &r->config->memory.offload[LS_OFFLOAD_ACTIVATIONS];
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
        .documents = r->config->data.packing == LS_CONFIG_DOCUMENTS,
        .adding = layout->micro_batches > 1,
        .split_backward = memory->split_backward,
        .recompute = layout->recompute,
        .partition_activations = layout->partition_activations,
        .offload_tier = memory->tiers[offload->to],
        .offload_room = offload->to == LS_TIER_DEVICE ? NULL : &memory->rooms[offload->to],
        .offload_ratio = offload->ratio,
        .check = memory_checked(r->config),
    };
    return ls_model_new(&options, arena, &memory->model, error);
}

int memory_take(const struct memory_request *r, struct ls_arena *arena, struct train_memory *memory,
                struct ls_memory_plan *plan, struct ls_error *error)
{
    const struct ls_params *params = r->params;
    size_t *bytes = plan->bytes, start = arena->used;
    int status = zero_take(r, arena, memory, error);
    if (status)
        return status;
    struct ls_zero_sizes sizes;
    ls_zero_get_sizes(memory->zero, &sizes);
    bytes[LS_MEMORY_PARAMETERS] = sizes.master + sizes.parameters;
    bytes[LS_MEMORY_GRADIENTS] = sizes.gradients;
    bytes[LS_MEMORY_COMMUNICATION] = sizes.buffers;
    start = arena->used;
    status = optimizer_take(r, arena, memory, error);
    if (status)
        return status;
    bytes[LS_MEMORY_OPTIMIZER] = arena->used - start;
    status = matrices_take(r, arena, memory, error);
    if (status)
        return status;
    memory->weights = calloc((size_t)params->unit_count + 1, sizeof *memory->weights);
    if (!memory->weights)
        return ls_error_set(error, LS_ENOMEM, "no memory for the tables of %d layers",
                            params->unit_count);
    start = arena->used;
    status = stage_take(r, arena, memory, error);
    bytes[LS_MEMORY_COMMUNICATION] += arena->used - start;
    start = arena->used;
    if (!status)
        status = model_take(r, arena, memory, error);
    if (status)
        return status;
    bytes[LS_MEMORY_ACTIVATIONS] = ls_model_kept_bytes(memory->model);
    bytes[LS_MEMORY_WORKSPACE] =
        memory->optimizer_work + arena->used - start - bytes[LS_MEMORY_ACTIVATIONS];
    plan->total = arena->used;
    for (int kind = 0; kind < LS_TIER_KINDS; kind++)
        plan->tiers[kind] = memory->rooms[kind].used;
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
    ls_optimizer_release(&memory->optimizer);
    ls_zero_free(memory->zero);
    stage_release(memory);
    for (int kind = 0; kind < LS_TIER_KINDS; kind++)
        ls_tier_free(memory->tiers[kind]);
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

struct ls_tiers_text ls_memory_tiers_text(const struct ls_memory_plan *plan)
{
    struct ls_tiers_text out = {""};
    size_t used = 0;
    for (int kind = LS_TIER_HOST; kind < LS_TIER_KINDS; kind++)
        if (plan->tiers[kind] > 0)
            used += (size_t)snprintf(out.text + used, sizeof out.text - used, "%s%s %s",
                                     used ? ", " : "", ls_tier_name((enum ls_tier_kind)kind),
                                     ls_bytes((double)plan->tiers[kind]).text);
    return out;
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
