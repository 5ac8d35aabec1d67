/* The memory of a unit of state: ZeRO's, the optimizer's, and where its slices lie. It is planned
 * by taking it from a measuring arena, so what is printed is what is allocated. */
#include "state/state_private.h"

#include <stdlib.h>

static enum ls_tier_kind tier_of(const struct ls_state *state, enum ls_offload what)
{
    return state->resident ? LS_TIER_DEVICE : ls_config_tier(state->config, what);
}

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
static bool block_goes(const struct ls_state *state, enum ls_offload what, int layer)
{
    int64_t blocks = state->layout->model.layers, before = 0, all = 0;
    for (int u = 0; u < state->params->unit_count; u++) {
        int block = state->params->units[u].layer;
        all += block > 0 && block <= blocks;
        before += block > 0 && block <= blocks && block < layer;
    }
    double enough = state->config->memory.offload[what].ratio * (double)all;
    return layer > 0 && layer <= blocks && (double)before < enough;
}

static int tables_make(const struct ls_state *state, struct zero_tables *tables,
                       struct ls_error *error)
{
    const struct ls_params *params = state->params;
    *tables = (struct zero_tables){
        .regions_away =
            calloc((size_t)ls_max(params->region_count, 1), sizeof *tables->regions_away),
        .units_away = calloc((size_t)ls_max(params->unit_count, 1), sizeof *tables->units_away)};
    if (!tables->regions_away || !tables->units_away) {
        tables_release(tables);
        return ls_no_memory(error, "for the list of parameters");
    }
    for (int i = 0; i < params->unit_count; i++)
        tables->units_away[i] = block_goes(state, LS_OFFLOAD_PARAMETERS, params->units[i].layer);
    for (int i = 0; i < params->region_count; i++)
        tables->regions_away[i] = block_goes(state, LS_OFFLOAD_GRADIENTS, params->regions[i].layer);
    return LS_OK;
}

static int set_take(struct ls_state *state, int set, const struct zero_tables *tables,
                    struct ls_arena *arena, struct ls_error *error)
{
    const struct ls_layout *layout = state->layout;
    const struct ls_config *config = state->config;
    const struct ls_params *params = state->params;
    const struct ls_state *lender = state->lender;
    enum ls_layout_group shard = ls_set_group(set, LS_GROUP_SHARD),
                         replicate = ls_set_group(set, LS_GROUP_REPLICATE);
    enum ls_tier_kind regions_to = tier_of(state, LS_OFFLOAD_GRADIENTS),
                      units_to = tier_of(state, LS_OFFLOAD_PARAMETERS);
    int64_t coordinates[LS_AXES];
    struct ls_dp_share share;
    ls_layout_coordinates(layout, state->rank, coordinates);
    ls_layout_share(layout, layout->ramp.full, coordinates, &share);
    struct ls_zero_options options = {
        .stage = layout->zero,
        .units_away = units_to == LS_TIER_DEVICE ? NULL : tables->units_away,
        .units_tier = state->tiers[units_to],
        .units_room = &state->rooms[units_to],
        .regions_away = regions_to == LS_TIER_DEVICE ? NULL : tables->regions_away,
        .regions_tier = state->tiers[regions_to],
        .regions_room = &state->rooms[regions_to],
        .params = params,
        .set = set,
        .gradient_base = set == 0 ? NULL : ls_zero_gradient_base(state->zero[0]),
        .shard_ranks = (int)layout->sets[set].shard_ranks,
        .shard_rank = (int)ls_group_rank(layout, shard, state->rank),
        .replicate_ranks = (int)layout->sets[set].replicate_ranks,
        .shard = state->groups ? state->groups[shard] : NULL,
        .replicate = state->groups ? state->groups[replicate] : NULL,
        .replicate_rank = (int)ls_group_rank(layout, replicate, state->rank),
        .inner = (int)layout->size[LS_AXIS_CP],
        .leaves_max = share.count,
        .parts = share.micro < share.leaf,
        .micro_batches_max = layout->micro_batches,
        .fast = layout->numerics.fast,
        .reduce = config->numerics.reduce,
        .act = layout->numerics.act,
        .bucket_bytes = config->comm.bucket_mb << 20,
        .prefetch = (int)layout->prefetch,
        .masters_away = lender || tier_of(state, LS_OFFLOAD_OPTIMIZER) != LS_TIER_DEVICE ||
                        (layout->numerics.act != LS_F32 && params->trained < params->weights),
        .vectors_away = lender != NULL,
        .lender = lender && lender != state ? lender->zero[set] : NULL,
        .persistence_elements = layout->persist,
        .reshard_after_forward = layout->reshard_after_forward,
    };
    return ls_zero_new(&options, arena, &state->zero[set], error);
}

static int zero_take(struct ls_state *state, struct ls_arena *arena, struct ls_error *error)
{
    struct zero_tables tables;
    struct ls_zero_sizes *all = &state->bytes.zero;
    int status = tables_make(state, &tables, error);
    if (status)
        return status;
    for (int set = 0; set < state->layout->set_count && !status; set++) {
        struct ls_zero_sizes sizes;
        status = set_take(state, set, &tables, arena, error);
        if (status)
            break;
        ls_zero_get_sizes(state->zero[set], &sizes);
        all->master += sizes.master;
        all->parameters += sizes.parameters;
        all->gradients += sizes.gradients;
        all->buffers += sizes.buffers;
    }
    tables_release(&tables);
    return status;
}

/* ---- the optimizer -------------------------------------------------------------------------- */

/* The slices, and where their masters and states lie. */
static int optimizer_take(struct ls_state *state, struct ls_arena *arena, struct ls_error *error)
{
    enum ls_tier_kind to = tier_of(state, LS_OFFLOAD_OPTIMIZER);
    struct ls_optim_config config = state->optim ? *state->optim : ls_config_optim(state->config);
    int count = state->params->count;
    size_t start = arena->used;
    state->slices = calloc((size_t)count + 1, sizeof *state->slices);
    if (!state->slices)
        return ls_no_memory(error, "for the tables of %d tensors", count);
    for (int i = 0; i < count; i++) {
        const struct ls_param *param = &state->params->list[i];
        struct ls_zero *zero = ls_state_zero(state, param->unit);
        enum ls_dtype act = state->layout->numerics.act;
        bool away = ls_zero_compute_away(zero, i);
        bool half = param->frozen && param->matrix && (act != LS_F32 || state->lender) && !away &&
                    !param->blocks;
        state->slices[i] =
            (struct ls_slice){.param = param,
                              .part = &ls_zero_slices(zero)[i],
                              .half = half,
                              .lent = half || param->blocks || ls_zero_has_master(zero, i),
                              .compute_away = away,
                              .compute_type = param->matrix ? act : LS_F32};
    }
    const struct ls_optim_storage storage = {
        .tier = state->tiers[to],
        .room = to == LS_TIER_DEVICE ? NULL : &state->rooms[to],
        .ratio = state->config->memory.offload[LS_OFFLOAD_OPTIMIZER].ratio,
        .gradient_tier = state->tiers[tier_of(state, LS_OFFLOAD_GRADIENTS)]};
    ls_optimizer_init(&state->optimizer, &config, state->slices, count, &storage, arena);
    state->bytes.optimizer = arena->used - start;
    return LS_OK;
}

/* With Muon, what its matrices meet in. */
static int matrices_take(struct ls_state *state, struct ls_arena *arena, struct ls_error *error)
{
    size_t start = arena->used;
    const struct ls_matrices matrices = {
        .params = state->params,
        .slices = state->slices,
        .comm = state->groups ? state->groups[LS_GROUP_MATRICES] : NULL,
        .rank = (int)ls_group_rank(state->layout, LS_GROUP_MATRICES, state->rank),
    };
    int status = state->optimizer.config.kind == LS_MUON
                     ? ls_optimizer_meet(&state->optimizer, &matrices, arena, error)
                     : LS_OK;
    state->bytes.work = arena->used - start;
    return status;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static int compute_open(void *user, int i, void **place, struct ls_error *error)
{
    struct ls_state *state = user;
    struct ls_zero *zero = ls_state_zero(state, state->params->list[i].unit);
    return ls_zero_compute_open(zero, state->ops, i, place, error);
}

/* Where ZeRO has what the optimizer writes. */
static void slices_set(struct ls_state *state)
{
    state->optimizer.places = (struct ls_compute_places){compute_open, state};
    for (int i = 0; i < state->params->count; i++) {
        struct ls_slice *slice = &state->slices[i];
        struct ls_zero *zero = ls_state_zero(state, slice->param->unit);
        if (slice->lent && !slice->half)
            slice->master = ls_zero_master(zero, i);
        slice->compute = ls_zero_compute(zero, i);
        if (slice->param->blocks) { /* in whichever of the two there is */
            slice->blocks = slice->compute ? slice->compute : slice->master;
            slice->compute = slice->master = NULL;
        }
    }
}

int ls_state_take(struct ls_state *state, struct ls_arena *arena, struct ls_error *error)
{
    int status = zero_take(state, arena, error);
    if (!status)
        status = optimizer_take(state, arena, error);
    if (!status)
        status = matrices_take(state, arena, error);
    if (!status && arena->base)
        slices_set(state);
    return status;
}

void ls_state_release(struct ls_state *state)
{
    ls_file_maps_free(state->maps);
    ls_optimizer_release(&state->optimizer);
    for (int set = 0; set < LS_SETS_MAX; set++) {
        ls_zero_free(state->zero[set]);
        state->zero[set] = NULL;
    }
    free(state->slices);
    state->optimizer = (struct ls_optimizer){.muon = NULL};
    state->bytes = (struct ls_state_bytes){.work = 0};
    state->slices = NULL;
    state->gradient = NULL;
}
