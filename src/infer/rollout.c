/* A runner in another layout of the same ranks: its weights come from the runner that trains, layer
 * by layer, over the ranks of one copy of the model. */
#include "infer/rollout_moves.h"

#include "infer/infer_private.h"

#include <lockstep/infer/rollout.h>

#include <stdlib.h>
#include <string.h>

struct ls_rollout {
    struct ls_runner *from;
    struct ls_config config;
    struct ls_comm *world, *copy; /* all ranks; those of this rank's copy of the model */
    struct model_place place;
    struct rollout_moves moves;
    void *sent, *came; /* one layer's rows, packed */
    struct ls_runner *runner;
};

/* ---- making it ------------------------------------------------------------------------------- */

/* Whether training has each layer whole in one place, from when it was made available to the next
 * step. */
static bool is_steady(const struct ls_config *config, const struct ls_layout *layout)
{
    bool whole = true;
    for (int set = 0; set < layout->set_count; set++)
        whole = whole && layout->sets[set].shard_ranks == 1;
    return ls_config_tier(config, LS_OFFLOAD_PARAMETERS) == LS_TIER_DEVICE &&
           (layout->zero < 3 || !layout->reshard_after_forward || whole);
}

static int weights_open(struct ls_rollout *r, struct ls_error *error)
{
    const struct ls_runner_parts *parts = &r->from->parts;
    struct model_place *place = &r->place;
    int rank = ls_comm_rank(parts->groups[LS_GROUP_WORLD]);
    int status = rollout_moves_init(&r->moves, parts->layout, &place->layout, rank,
                                    is_steady(parts->config, parts->layout), error);
    if (status)
        return status;
    status = held_weights_init(&place->weights, &place->params, place->layout.numerics.act,
                               LS_QUANTIZE_NONE, r->moves.lent, error);
    r->sent = malloc(r->moves.sent_max + 1);
    r->came = malloc(r->moves.came_max + 1);
    if (!status && (!r->sent || !r->came))
        status = ls_no_memory(error, "for weights on their way");
    return status;
}

static int ranks_open(struct ls_rollout *r, struct ls_error *error)
{
    struct ls_comm *world = r->from->parts.groups[LS_GROUP_WORLD];
    int status = ls_comm_split(world, 0, ls_comm_rank(world), &r->world, error);
    if (status)
        return status;
    ls_comm_set_name(r->world, "rollout");
    status = model_place_open(&r->place, r->world, &r->from->parts.ops->queue, error);
    status = ls_comm_agree(r->world, status, error);
    if (!status)
        status = weights_open(r, error);
    status = ls_comm_agree(r->world, status, error);
    if (!status)
        status = ls_comm_group(r->world, r->moves.ranks, r->moves.members, &r->copy, error);
    if (!status)
        ls_comm_set_name(r->copy, "rollout copy");
    return status;
}

int ls_rollout_new(struct ls_runner *from, const struct ls_config *config, struct ls_rollout **out,
                   struct ls_error *error)
{
    const struct ls_runner_parts *parts = &from->parts;
    struct ls_comm *world = parts->groups[LS_GROUP_WORLD];
    struct ls_rollout *r = calloc(1, sizeof *r);
    *out = NULL;
    int status = r ? LS_OK : ls_no_memory(error, "for a rollout");
    if (r) {
        r->from = from;
        r->config = *config;
        status = ls_config_layout(config, ls_comm_size(world), &r->place.layout, error);
    }
    status = ls_comm_agree(world, status, error);
    if (!status)
        status = ranks_open(r, error);
    if (status) {
        ls_rollout_free(r);
        return status;
    }
    const struct ls_runner_parts own = {.config = &r->config,
                                        .layout = &r->place.layout,
                                        .groups = r->place.groups,
                                        .ops = parts->ops,
                                        .tokenizer = parts->tokenizer,
                                        .trace = parts->trace,
                                        .part = model_place_part(&r->place)};
    status = ls_comm_agree(world, ls_runner_new(&own, &r->runner, error), error);
    if (status) {
        ls_rollout_free(r);
        return status;
    }
    *out = r;
    return LS_OK;
}

void ls_rollout_free(struct ls_rollout *r)
{
    if (!r)
        return;
    ls_comm_free(r->copy); /* what failed transfers use goes after their groups */
    ls_groups_close(r->place.groups);
    ls_comm_free(r->world);
    ls_runner_free(r->runner);
    model_place_release(&r->place);
    rollout_moves_release(&r->moves);
    free(r->sent);
    free(r->came);
    free(r);
}

struct ls_runner *ls_rollout_runner(struct ls_rollout *r)
{
    return r->runner;
}

int ls_rollout_bytes(const struct ls_config *config, const struct ls_layout *layout, int64_t first,
                     int64_t count, size_t *bytes, struct ls_error *error)
{
    struct ls_layout there;
    memset(bytes, 0, (size_t)count * sizeof *bytes);
    if (!ls_config_rollout(config, NULL) ||
        ls_config_rollout_check(config, layout->ranks, &there, NULL))
        return LS_OK;
    return rollout_moves_ranks_bytes(layout, &there, is_steady(config, layout), first, count, bytes,
                                     error);
}

/* ---- the weights of this moment -------------------------------------------------------------- */

static void rows_copy(const struct rollout_move *move, const char *from, size_t from_step, char *to,
                      size_t to_step)
{
    if (from_step == move->bytes && to_step == move->bytes) {
        memcpy(to, from, (size_t)move->rows * move->bytes);
        return;
    }
    for (int64_t i = 0; i < move->rows; i++)
        memcpy(to + (size_t)i * to_step, from + (size_t)i * from_step, move->bytes);
}

static char *side_at(const struct ls_weights *list, const struct rollout_side *side)
{
    const struct ls_weights *weights = &list[side->unit];
    return (char *)(side->matrix ? weights->matrices : (const void *)weights->vectors) +
           side->offset;
}

/* Rows of moves [first, end) from here to that member. */
static void pack(const struct ls_rollout *r, int64_t first, int64_t end, int to)
{
    char *at = r->sent;
    for (int64_t i = first; i < end; i++) {
        const struct rollout_move *move = &r->moves.list[i];
        if (!rollout_moves_passes(&r->moves, i, r->moves.me, to))
            continue;
        rows_copy(move, side_at(r->from->parts.part.weights, &move->source), move->source.step, at,
                  move->bytes);
        at += (size_t)move->rows * move->bytes;
    }
}

static void unpack(const struct ls_rollout *r, int64_t first, int64_t end, int from)
{
    const char *at = r->came;
    for (int64_t i = first; i < end; i++) {
        const struct rollout_move *move = &r->moves.list[i];
        if (!rollout_moves_passes(&r->moves, i, from, r->moves.me))
            continue;
        rows_copy(move, at, move->bytes, side_at(r->place.weights.list, &move->target),
                  move->target.step);
        at += (size_t)move->rows * move->bytes;
    }
}

static void copy_here(const struct ls_rollout *r, int64_t first, int64_t end)
{
    for (int64_t i = first; i < end; i++) {
        const struct rollout_move *move = &r->moves.list[i];
        if (rollout_moves_passes(&r->moves, i, r->moves.me, r->moves.me))
            rows_copy(move, side_at(r->from->parts.part.weights, &move->source), move->source.step,
                      side_at(r->place.weights.list, &move->target), move->target.step);
    }
}

/* With the member that is k behind and the one that is k ahead. */
static int exchange(struct ls_rollout *r, int64_t first, int64_t end, int k, struct ls_error *error)
{
    const struct rollout_moves *moves = &r->moves;
    int to = (moves->me + k) % moves->members;
    int from = (moves->me - k + moves->members) % moves->members;
    size_t sent = rollout_moves_bytes(moves, first, end, moves->me, to),
           came = rollout_moves_bytes(moves, first, end, from, moves->me);
    struct ls_request request = {0};
    int status = LS_OK;
    if (came > 0)
        status = ls_recv_start(r->copy, r->came, (int64_t)came, LS_U8, from, 0, &request, LS_HERE,
                               error);
    if (!status && sent > 0) {
        pack(r, first, end, to);
        status = ls_send(r->copy, r->sent, (int64_t)sent, LS_U8, to, 0, error);
    }
    if (!status)
        status = ls_wait(&request, error);
    if (!status && came > 0)
        unpack(r, first, end, from);
    return status;
}

/* The rollout reads the trainer's memory. */
static void lend(struct ls_rollout *r, int layer)
{
    for (int u = 0; u < r->place.params.unit_count; u++)
        if (r->place.params.units[u].layer == layer && r->moves.lent[u] >= 0)
            r->place.weights.list[u] = r->from->parts.part.weights[r->moves.lent[u]];
}

/* The weights of a layer that is held here are there. */
static int layer_enter(struct ls_rollout *r, int layer, struct ls_error *error)
{
    const struct ls_runner_parts *parts = &r->from->parts;
    int last = layer, layers = (int)parts->layout->model.layers + 2;
    while (last + 1 < layers && parts->part.layers[last + 1])
        last++;
    int status = parts->enter ? parts->enter(parts->user, layer, last, error) : LS_OK;
    return status ? status : ls_queue_synchronise(&parts->ops->queue, error);
}

int ls_rollout_refresh(struct ls_rollout *r, struct ls_error *error)
{
    const struct ls_runner_parts *parts = &r->from->parts;
    int layers = (int)parts->layout->model.layers + 2, status = LS_OK;
    int64_t first = 0;
    r->runner->interrupt = r->from->interrupt;
    for (int layer = 0; layer < layers && !status; layer++) {
        bool held = parts->part.layers[layer];
        bool moves = first < r->moves.count && r->moves.list[first].layer == layer;
        int64_t end = moves ? rollout_moves_end(&r->moves, first) : first;
        if (held)
            status = layer_enter(r, layer, error);
        status = ls_comm_agree(r->world, status, error);
        if (!status && held) {
            lend(r, layer);
            copy_here(r, first, end);
        }
        for (int k = 1; k < r->moves.members && !status; k++)
            status = exchange(r, first, end, k, error);
        if (held && parts->leave)
            parts->leave(parts->user, layer);
        first = end;
        ls_progress();
    }
    r->moves.frozen_held = !status;
    return status;
}

void ls_rollout_forget(struct ls_rollout *r)
{
    if (r)
        r->moves.frozen_held = false;
}
