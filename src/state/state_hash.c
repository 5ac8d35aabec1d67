/* The hash of a run's state, and the comparison of what several ranks hold alike. */
#include "state/state_private.h"

#include <stdlib.h>

/* Whether all ranks of that axis hold the same of param. */
static bool alike_over(const struct ls_param *param, const char *axis)
{
    return !ls_placement_cuts(param->spec.placement[ls_mesh_axis(&param->spec.mesh, axis)]);
}

static void values_round(enum ls_dtype act, int64_t count, float *values)
{
    for (int64_t i = 0; i < count && act != LS_F32; i++)
        values[i] = ls_half_to_f32(act, ls_f32_to_half(act, values[i]));
}

void state_held_add(const struct ls_state *state, bool beside, const struct state_share *which,
                    void *values, struct state_held *held)
{
    const struct ls_params *params = state->params;
    const struct ls_param *param = &params->list[which->param];
    struct ls_ops alone = {.threads = 1};
    struct ls_digest digest = {0, 0};
    char prefix[STATE_PREFIX_BYTES];
    int set = params->units[param->unit].set;
    state_prefix(&state->optimizer.config, param, which->array, prefix);
    if (param->blocks) /* what is computed with */
        values_round(state->layout->numerics.act, which->count, values);
    ls_param_digest(param, beside ? &alone : state->ops, prefix,
                    state->slices[which->param].part->first + which->first, which->count,
                    ls_state_type(state, which->array), values, &digest);
    ls_digest_merge(&held->all[set], &digest);
    if (param->owned)
        ls_digest_merge(&held->owned[set], &digest);
    if (alike_over(param, "tp") && alike_over(param, "sharers"))
        ls_digest_merge(&held->alike, &digest);
    else if (alike_over(param, "sharers"))
        ls_digest_merge(&held->sharers, &digest);
    if (which->param == params->shared_param)
        ls_digest_merge(&held->tied, &digest);
}

struct digesting {
    struct ls_state *state;
    bool beside;
    struct state_share except;
    struct state_held *held;
};

/* Of a piece the elements [first, end), as far as it has them. */
static void elements_digest(const struct digesting *d, const struct ls_slice_piece *piece,
                            int64_t first, int64_t end)
{
    first = ls_max(first, piece->from);
    end = ls_min(end, piece->from + piece->count);
    const struct state_share which = {d->except.param, d->except.array, first, end - first};
    size_t bytes = ls_dtype_bytes(ls_state_type(d->state, which.array));
    if (first < end)
        state_held_add(d->state, d->beside, &which,
                       (char *)piece->values + (size_t)(first - piece->from) * bytes, d->held);
}

static int piece_digest(void *user, const struct ls_slice_piece *piece, struct ls_error *error)
{
    const struct digesting *d = user;
    int status = d->beside ? LS_OK : ls_queue_synchronise(&d->state->ops->queue, error);
    if (status)
        return status;
    elements_digest(d, piece, 0, d->except.first);
    elements_digest(d, piece, d->except.first + d->except.count, INT64_MAX);
    ls_progress();
    return LS_OK;
}

struct ls_digest state_position(const struct ls_state *state)
{
    struct ls_digest position = {0, 0};
    int64_t place[2] = {state->step, state->samples};
    ls_digest_piece(&position, "position", 0, 0, place, sizeof place);
    ls_digest_merge(&position, &state->beside);
    if (state->config->numerics.precision == LS_F16) {
        const struct ls_loss_scale *scale = &state->loss_scale;
        int64_t counters[2] = {scale->good_steps, scale->hysteresis};
        ls_digest_piece(&position, "loss_scale", 0, 0, &scale->scale, sizeof scale->scale);
        ls_digest_piece(&position, "loss_scale", 1, 0, counters, sizeof counters);
    }
    return position;
}

void state_held_place(const struct ls_state *state, const struct ls_digest *position,
                      struct state_held *held)
{
    ls_digest_merge(&held->all[0], position);
    if (ls_comm_rank(state->groups[LS_GROUP_OWNERS]) == 0)
        ls_digest_merge(&held->owned[0], position);
}

int state_held_rest(struct ls_state *state, bool beside, const struct state_share *except,
                    struct state_held *held, struct ls_error *error)
{
    const int params = state->params->count;
    const int last = ls_optimizer_states_most(&state->optimizer.config);
    int status = beside ? LS_OK : ls_queue_synchronise(&state->ops->queue, error);
    for (int array = LS_STATE_PARAMETERS, at = 0; array < last; array++)
        for (int i = 0; i < params && !status; i++, at++) {
            struct digesting digesting = {state, beside, {i, array, 0, 0}, held};
            if (array >= ls_state_arrays(state, &state->params->list[i]))
                continue;
            if (except && except[at].count > 0)
                digesting.except = except[at];
            if (digesting.except.count < state->slices[i].part->count)
                status = ls_slice_visit_array(&state->optimizer, &state->slices[i], array + 1,
                                              LS_READS, piece_digest, &digesting, error);
        }
    return status;
}

/* ---- ranks that must hold the same ----------------------------------------------------------- */

/* What a rank tells the others of its group. */
struct claim {
    uint64_t low, high, world_rank, holds;
};

struct comparison {
    struct ls_comm *comm;
    const struct ls_digest *digest;
    bool holds; /* this rank takes part */
};

static bool is_same(const struct claim *a, const struct claim *b)
{
    return a->low == b->low && a->high == b->high;
}

/* The claim of more than half of those that take part; NULL: there is none. */
static const struct claim *majority(const struct claim *claims, int count)
{
    for (int i = 0; i < count; i++) {
        int same = 0, all = 0;
        for (int j = 0; j < count; j++) {
            same += claims[j].holds && is_same(&claims[i], &claims[j]);
            all += claims[j].holds != 0;
        }
        if (claims[i].holds && 2 * same > all)
            return &claims[i];
    }
    return NULL;
}

/* Of two that differ, the one in a majority is right. */
static int claims_check(const struct ls_state *state, int64_t step, const struct claim *claims,
                        int count, struct ls_error *error)
{
    const struct claim *most = majority(claims, count), *right = most, *other = NULL;
    for (int i = 0; i < count; i++)
        if (claims[i].holds && !right)
            right = &claims[i];
        else if (claims[i].holds && !other && !is_same(&claims[i], right))
            other = &claims[i];
    if (!other)
        return LS_OK;
    ls_error_set(
        error, LS_ENUMERIC,
        "after step %ld the state of rank %d differs from rank %d's: memory or arithmetic of %s is "
        "faulty. Go on from the newest checkpoint on other hardware",
        (long)step, (int)other->world_rank, (int)right->world_rank,
        most ? ls_comm_rank_text(ls_state_world(state), (int)other->world_rank).text
             : "one of them");
    ls_error_blame(error, LS_CAUSE_FAULTY,
                   most ? ls_comm_rank_host(ls_state_world(state), (int)other->world_rank) : "");
    return LS_ENUMERIC;
}

/* Collective over the comparison's group, also after a difference elsewhere (status). */
static int compare(const struct ls_state *state, int64_t step, const struct comparison *c,
                   struct claim *claims, int status, struct ls_error *error)
{
    int ranks = ls_comm_size(c->comm);
    if (ranks == 1 || (status && status != LS_ENUMERIC))
        return status;
    struct claim mine = {c->digest->low, c->digest->high,
                         (uint64_t)ls_comm_rank(ls_state_world(state)), c->holds};
    int failed =
        ls_all_gather(c->comm, &mine, claims, sizeof mine / sizeof(uint64_t), LS_U64, error);
    if (failed)
        return failed;
    return status ? status : claims_check(state, step, claims, ranks, error);
}

int state_hash_agree(const struct ls_state *state, int64_t step, const struct state_held *held,
                     int status, struct ls_digest *digest, struct ls_error *error)
{
    struct ls_comm *const *g = state->groups;
    int ranks = ls_comm_size(ls_state_world(state));
    struct claim *claims = calloc((size_t)ranks, sizeof *claims);
    if (!claims && !status)
        status = ls_no_memory(error, "for %d digests", ranks);
    status = ls_comm_agree(ls_state_world(state), status, error);
    for (int set = 0; set < state->layout->set_count; set++) {
        const struct comparison copies = {g[ls_set_group(set, LS_GROUP_COPIES)], &held->all[set],
                                          true};
        status = compare(state, step, &copies, claims, status, error);
    }
    const struct comparison list[] = {
        {g[LS_GROUP_TP], &held->alike, true},
        {g[LS_GROUP_SHARERS], &held->sharers, true},
        {g[LS_GROUP_PP], &held->tied, state->params->shared_param >= 0},
    };
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
        status = compare(state, step, &list[i], claims, status, error);
    free(claims);
    *digest = (struct ls_digest){0, 0};
    for (int set = 0; set < state->layout->set_count; set++) {
        uint64_t sum[2] = {held->owned[set].low, held->owned[set].high};
        if (status && status != LS_ENUMERIC)
            break;
        int failed = ls_all_reduce_u64(g[ls_set_group(set, LS_GROUP_OWNERS)], sum, 2, error);
        status = failed ? failed : status;
        ls_digest_merge(digest, &(struct ls_digest){sum[0], sum[1]});
    }
    return ls_comm_agree(ls_state_world(state), status, error);
}

int ls_state_hash(struct ls_state *state, struct ls_digest *digest, struct ls_error *error)
{
    struct state_held held = {0};
    const struct ls_digest position = state_position(state);
    state_held_place(state, &position, &held);
    int status = state_held_rest(state, false, NULL, &held, error);
    return state_hash_agree(state, state->step, &held, status, digest, error);
}
