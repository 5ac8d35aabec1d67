/* What a configuration takes. The buffers are planned by walking memory_take with a measuring
 * arena, so what is printed is what is allocated. */
#include "train/stage.h"

#include <lockstep/base/words.h>
#include <lockstep/infer/rollout.h>

#include <stdlib.h>

/* ---- all buffers ----------------------------------------------------------------------------- */

bool memory_checked(const struct ls_config *config)
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
        .params = r->units->params,
        .weights = memory->weights,
        .tp = r->tp,
        .cp = r->cp,
        .layers = r->part->held,
        .chunk_first = r->part->chunk_first,
        .sequences = layout->micro_sequences,
        .tokens = layout->sequence,
        .slots = memory->slots,
        .training = true,
        .documents = r->config->data.packing != LS_CONFIG_STREAM,
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

static int units_take(const struct memory_request *r, struct ls_arena *arena,
                      struct train_memory *memory, size_t *bytes, size_t *work,
                      struct ls_error *error)
{
    int status = LS_OK;
    bytes[LS_MEMORY_PARAMETERS] = bytes[LS_MEMORY_GRADIENTS] = 0;
    bytes[LS_MEMORY_COMMUNICATION] = bytes[LS_MEMORY_OPTIMIZER] = 0;
    for (int i = 0; i < r->unit_count && !status; i++) {
        const struct ls_state_bytes *held = &r->units[i].bytes;
        status = ls_state_take(&r->units[i], arena, error);
        bytes[LS_MEMORY_PARAMETERS] += held->zero.master + held->zero.parameters;
        bytes[LS_MEMORY_GRADIENTS] += held->zero.gradients;
        bytes[LS_MEMORY_COMMUNICATION] += held->zero.buffers;
        bytes[LS_MEMORY_OPTIMIZER] += held->optimizer;
        *work += held->work;
    }
    if (!status && r->unit_count > 1) {
        size_t start = arena->used;
        exchange_take(r, arena, &memory->exchange);
        memory->exchange.bytes = arena->used - start;
        bytes[LS_MEMORY_COMMUNICATION] += memory->exchange.bytes;
    }
    return status;
}

int memory_take(const struct memory_request *r, struct ls_arena *arena, struct train_memory *memory,
                struct ls_memory_plan *plan, struct ls_error *error)
{
    const struct ls_params *params = r->units->params;
    size_t *bytes = plan->bytes, work = 0;
    int status = units_take(r, arena, memory, bytes, &work, error);
    if (status)
        return status;
    memory->weights = calloc((size_t)params->unit_count + 1, sizeof *memory->weights);
    if (!memory->weights)
        return ls_no_memory(error, "for the tables of %d layers", params->unit_count);
    size_t start = arena->used;
    status = stage_take(r, arena, memory, error);
    bytes[LS_MEMORY_COMMUNICATION] += arena->used - start;
    start = arena->used;
    if (!status)
        status = model_take(r, arena, memory, error);
    if (status)
        return status;
    bytes[LS_MEMORY_ACTIVATIONS] = ls_model_kept_bytes(memory->model);
    bytes[LS_MEMORY_WORKSPACE] = work + arena->used - start - bytes[LS_MEMORY_ACTIVATIONS];
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
    stage_release(memory);
    for (int kind = 0; kind < LS_TIER_KINDS; kind++)
        ls_tier_free(memory->tiers[kind]);
    ls_arena_release(&memory->arena);
    *memory = (struct train_memory){0};
}

/* ---- plans ----------------------------------------------------------------------------------- */

const char *ls_memory_name(enum ls_memory_kind kind)
{
    static const char *const names[LS_MEMORY_KINDS] = {
        [LS_MEMORY_PARAMETERS] = "parameters", [LS_MEMORY_GRADIENTS] = "gradients",
        [LS_MEMORY_OPTIMIZER] = "optimizer",   [LS_MEMORY_ACTIVATIONS] = "activations",
        [LS_MEMORY_WORKSPACE] = "workspace",   [LS_MEMORY_COMMUNICATION] = "communication"};
    return names[kind];
}

struct ls_tiers_text ls_memory_tiers_text(const struct ls_memory_plan *plan)
{
    struct ls_tiers_text out = {""};
    for (int kind = LS_TIER_HOST; kind < LS_TIER_KINDS; kind++)
        if (plan->tiers[kind] > 0)
            ls_string_add(out.text, sizeof out.text, ", ", "%s %s",
                          ls_tier_name((enum ls_tier_kind)kind),
                          ls_bytes((double)plan->tiers[kind]).text);
    if (plan->rollout > 0)
        ls_string_add(out.text, sizeof out.text, ", ", "rollout %s",
                      ls_bytes((double)plan->rollout).text);
    return out;
}

int memory_measure(const struct ls_config *config, const struct ls_layout *layout, int64_t rank,
                   struct measured_memory *out, struct ls_error *error)
{
    *out = (struct measured_memory){0};
    ls_layout_coordinates(layout, rank, out->coordinates);
    const int64_t *at = out->coordinates;
    struct ls_tp tp;
    struct ls_cp cp;
    ls_groups_parallel(layout, rank, NULL, &tp, &cp);
    int status = part_init(&out->part, layout, at[LS_AXIS_PP], error);
    if (!status)
        status = ls_layout_params(layout, tp.rank, out->part.held, &out->params, error);
    const struct ls_state borrowed = {.config = config,
                                      .layout = layout,
                                      .rank = rank,
                                      .params = &out->params,
                                      .tiers = out->memory.tiers,
                                      .rooms = out->memory.rooms};
    out->unit_count = units_count(config);
    out->units = calloc((size_t)out->unit_count, sizeof *out->units);
    if (!status && !out->units)
        status = ls_no_memory(error, "for units of state");
    if (out->units)
        units_init(out->units, out->unit_count, &borrowed, config, &out->outer);
    struct memory_request request = {.config = config,
                                     .layout = layout,
                                     .coordinates = at,
                                     .units = out->units,
                                     .unit_count = out->unit_count,
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
    for (int i = 0; i < measured->unit_count && measured->units; i++)
        ls_state_release(&measured->units[i]);
    free(measured->units);
    memory_release(&measured->memory);
    ls_params_release(&measured->params);
    part_release(&measured->part);
}

/* Ranks of a pipeline rank may take differently. */
static int rollout_plan(const struct ls_config *config, const struct ls_layout *layout,
                        int64_t rank, size_t *most, struct ls_error *error)
{
    int64_t count = layout->ranks / layout->size[LS_AXIS_PP], first = rank / count * count;
    size_t *bytes = calloc((size_t)count, sizeof *bytes);
    int status = bytes ? ls_rollout_bytes(config, layout, first, count, bytes, error)
                       : ls_no_memory(error, "for %ld ranks", (long)count);
    for (int64_t i = 0; i < count && !status; i++)
        *most = ls_max(*most, bytes[i]);
    free(bytes);
    return status;
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
    return rollout_plan(config, layout, rank, &plan->rollout, error);
}

int ls_plan(const struct ls_config *config, struct ls_memory_plan *plan, struct ls_error *error)
{
    struct ls_layout layout;
    int status = ls_config_layout(config, 0, &layout, error);
    *plan = (struct ls_memory_plan){0};
    for (int64_t pp = 0; !status && pp < layout.size[LS_AXIS_PP]; pp++) {
        struct ls_memory_plan stage = {0};
        status = ls_plan_rank(config, &layout, ls_layout_first_rank(&layout, pp), &stage, error);
        if (stage.total > plan->total)
            *plan = stage;
    }
    return status;
}
