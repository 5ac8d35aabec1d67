/* Units of state without a model. */
#include "unit.h"
#include "../support/suite.h"

#include <lockstep/train.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const recipe[] = {"model.arch=llama",
                                     "model.tied=true",
                                     "model.vocab_multiple=8",
                                     "model.layers=2",
                                     "model.channels=32",
                                     "model.heads=4",
                                     "model.kv_heads=2",
                                     "model.ffn=24",
                                     "model.context=64",
                                     "data.sequence=64",
                                     "data.tokenizer=byte",
                                     "numerics.tp_tiles=2",
                                     "numerics.leaf_sequences=1",
                                     "batch.global=8",
                                     "batch.micro=1",
                                     "train.steps=8",
                                     "log.tensorboard=false",
                                     "parallel.threads=1"};

static void set(struct ls_config *config, const char *key)
{
    struct ls_error error = {0};
    if (ls_config_set(config, key, &error))
        fail_msg("%s: %s", key, error.text);
}

struct ls_config unit_config(const char *const *keys, const char *out)
{
    struct ls_config config;
    struct ls_error error = {0};
    ls_config_defaults(&config);
    for (size_t i = 0; i < sizeof recipe / sizeof *recipe; i++)
        set(&config, recipe[i]);
    for (int i = 0; keys[i]; i++)
        set(&config, keys[i]);
    snprintf(config.train.out, sizeof config.train.out, "%s", out);
    assert_ok(ls_train_resolve(&config, &error), error);
    return config;
}

int seat_open(struct seat *seat, struct ls_config *config, void (*edit)(struct ls_layout *),
              struct ls_comm *world, struct ls_error *error)
{
    bool held[LS_LAYOUT_LAYERS_MAX + 2];
    int64_t at[LS_AXES];
    *seat = (struct seat){.rank = ls_comm_rank(world)};
    int status = ls_config_settle(config, world, error);
    if (!status)
        status = ls_config_ops(config, world, 1, &seat->ops, error);
    if (!status)
        status = ls_config_layout(config, 0, &seat->layout, error);
    if (status)
        return status;
    if (edit)
        edit(&seat->layout);
    ls_layout_coordinates(&seat->layout, seat->rank, at);
    ls_layout_layers(&seat->layout, at[LS_AXIS_PP], held, NULL);
    status = ls_groups_open(&seat->layout, world, &seat->ops.queue, seat->groups, error);
    return status ? status
                  : ls_layout_params(&seat->layout, at[LS_AXIS_TP], held, &seat->params, error);
}

void seat_close(struct seat *seat)
{
    ls_groups_close(seat->groups);
    ls_params_release(&seat->params);
    if (seat->ops.threads)
        ls_ops_release(&seat->ops);
}

void unit_init(struct unit *unit, const struct ls_config *config, uint64_t seed, struct seat *seat)
{
    *unit = (struct unit){.config = *config, .seed = seed};
    unit->state = (struct ls_state){.config = &unit->config,
                                    .layout = &seat->layout,
                                    .rank = seat->rank,
                                    .groups = seat->groups,
                                    .params = &seat->params,
                                    .ops = &seat->ops,
                                    .tiers = seat->tiers,
                                    .rooms = seat->rooms,
                                    .loss_scale = {.scale = 1},
                                    .saved_step = -1};
}

struct filling {
    const struct unit *unit;
    int i;
};

static int piece_fill(void *user, const struct ls_slice_piece *piece, struct ls_error *error)
{
    const struct filling *f = user;
    const struct ls_state *state = &f->unit->state;
    ls_param_fill(&state->params->list[f->i], f->unit->seed, state->ops,
                  state->slices[f->i].part->first + piece->from, piece->count, piece->values);
    return LS_OK;
}

int unit_fill(struct unit *unit, struct ls_error *error)
{
    struct ls_state *state = &unit->state;
    int status = LS_OK;
    for (int i = 0; i < state->params->count && !status; i++)
        status = ls_slice_visit_array(&state->optimizer, &state->slices[i], LS_OPTIM_MASTER,
                                      LS_WRITES, piece_fill, &(struct filling){unit, i}, error);
    return status ? status : ls_state_publish(state, error);
}

/* A number whose sums depend on their order. */
static float value_of(uint64_t key)
{
    key = (key + 1) * 0x9e3779b97f4a7c15u;
    key = (key ^ (key >> 30)) * 0xbf58476d1ce4e5b9u;
    key ^= key >> 27;
    return (ls_uniform_of((uint32_t)key) - 0.5f) * (float)(1 << (key >> 56 & 7));
}

/* What one leaf adds to the gradient of a parameter; table: the embedding layer's of a tied one. */
static void param_write(const struct unit *unit, const struct ls_param *param, bool table,
                        int64_t leaf, enum ls_onto onto, float *gradient)
{
    const uint64_t of[] = {unit->seed, (uint64_t)unit->state.step, (uint64_t)leaf, table};
    uint64_t key = ls_hash64(param->name, strlen(param->name), ls_hash64(of, sizeof of, 0));
    for (int64_t i = 0; i < ls_param_elements(param); i++) {
        int64_t row = param->first_row + i / param->cols, col = param->first_col + i % param->cols;
        float value = value_of(key + (uint64_t)(row * param->global_cols + col) * 977);
        gradient[i] = onto == LS_ONTO_NOTHING ? value : gradient[i] + value;
    }
}

/* A leaf is one micro-batch. */
static int region_write(struct unit *unit, int r, const struct ls_dp_micro *micro,
                        struct ls_error *error)
{
    struct ls_state *state = &unit->state;
    const struct ls_params *params = state->params;
    struct ls_zero_gradient gradient;
    LS_ASSERT(micro->begins && micro->ends);
    int status =
        ls_zero_gradient(ls_state_region_zero(state, r), state->ops, r, micro, &gradient, error);
    if (!status)
        status = ls_queue_synchronise(&state->ops->queue, error);
    if (status)
        return status;
    if (gradient.onto == LS_ONTO_NOTHING)
        memset(gradient.flat, 0, (size_t)params->regions[r].elements * sizeof(float));
    for (int i = 0; i < params->count; i++) {
        const struct ls_param *param = &params->list[i];
        bool first = i == params->shared_param && params->units[param->unit].layer == 0;
        if (param->gradient.region == r)
            param_write(unit, param, first, micro->first, gradient.onto,
                        gradient.flat + param->gradient.offset);
        if (param->second.region == r)
            param_write(unit, param, true, micro->first, gradient.onto,
                        gradient.flat + param->second.offset);
    }
    return ls_state_region_done(state, r, micro, error);
}

/* Clips, and updates. */
static int update(struct unit *unit, struct ls_error *error)
{
    struct ls_state *state = &unit->state;
    const struct ls_optim_config *config = &state->optimizer.config;
    int status = ls_state_gradient(state, error);
    if (!status)
        status = ls_state_square(state, error);
    if (!status)
        status = ls_queue_synchronise(&state->ops->queue, error);
    if (!status)
        status = ls_state_norm(state, &unit->norm, error);
    if (!status)
        status = ls_state_update(state, state->step + 1, ls_learning_rate(config, state->step + 1),
                                 ls_clip_factor(config, unit->norm), error);
    if (!status)
        status = ls_state_share(state, error);
    return status ? status : ls_state_settle(state, error);
}

int unit_step(struct unit *unit, struct ls_error *error)
{
    struct ls_state *state = &unit->state;
    int64_t at[LS_AXES];
    struct ls_dp_share share;
    int status = LS_OK;
    ls_layout_coordinates(state->layout, state->rank, at);
    ls_layout_share(state->layout, state->layout->ramp.full, at, &share);
    for (int64_t m = 0; m < share.micro_batches && !status; m++) {
        struct ls_dp_micro micro = ls_dp_micro_batch(&share, m);
        for (int r = state->params->region_count - 1; r >= 0 && !status; r--)
            status = region_write(unit, r, &micro, error);
    }
    if (!status)
        status = update(unit, error);
    state->step++;
    state->samples += share.leaves * share.leaf;
    return status;
}
