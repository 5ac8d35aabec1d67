/* One rank's step, action by action. */
#include "walk.h"

#include <stdlib.h>
#include <string.h>

/* ---- operations
 * ---------------------------------------------------------------------------------- */

int plan_collective(const struct plan_walk *walk, enum ls_layout_group group,
                    enum ls_comm_kind kind, enum ls_dtype dtype, int64_t count, const char *what)
{
    if (walk->group_size[group] == 1 || count == 0)
        return LS_OK;
    struct ls_move move = {.group = group,
                           .kind = kind,
                           .peer = -1,
                           .dtype = dtype,
                           .count = count,
                           .layer = walk->layer,
                           .micro_batch = walk->micro_batch,
                           .what = what};
    return walk->visit(walk->user, &move, walk->error);
}

int plan_message(const struct plan_walk *walk, enum ls_layout_group group, bool receive, int peer,
                 int channel, enum ls_dtype dtype, int64_t count, const char *what)
{
    struct ls_move move = {.group = group,
                           .kind = LS_COMM_SEND,
                           .receive = receive,
                           .peer = peer,
                           .channel = channel,
                           .dtype = dtype,
                           .count = count,
                           .layer = walk->layer,
                           .micro_batch = walk->micro_batch,
                           .what = what};
    return walk->visit(walk->user, &move, walk->error);
}

void plan_walk_micro_batch(struct plan_walk *walk, int64_t micro_batch)
{
    const struct ls_layout *l = walk->layout;
    int64_t first, leaves, cp = l->size[LS_AXIS_CP];
    ls_dp_micro_batch(&walk->share, micro_batch, &first, &leaves);
    walk->micro_batch = micro_batch;
    walk->sequences = leaves * l->numerics.leaf_sequences;
    walk->rows = walk->sequences * l->sequence / cp;
    walk->mine = ls_ceil_div(walk->rows, l->size[LS_AXIS_TP]);
    walk->units = leaves * (l->numerics.seq_tiles / cp);
}

/* ---- pipeline
 * ------------------------------------------------------------------------------------ */

enum direction { ACTIVATION, GRADIENT };

/* What passes between stage and the one below it; the receiving chunk names the channel. */
static int boundary(struct plan_walk *walk, int stage, enum direction direction, bool receive)
{
    const struct ls_layout *l = walk->layout;
    int below = stage - 1;
    if (below < 0 || stage >= l->stages || l->stage_rank[below] == l->stage_rank[stage])
        return LS_OK;
    bool upper = (direction == ACTIVATION) == receive; /* this rank has the upper stage */
    int to = direction == ACTIVATION ? stage : below;
    int peer = l->stage_rank[upper ? below : stage];
    int64_t rows = l->sp ? walk->mine : walk->rows;
    walk->layer = l->stage_first[stage];
    return plan_message(walk, LS_GROUP_PP, receive, peer,
                        2 * walk->table->stage_chunk[to] + (int)direction, l->numerics.act,
                        rows * l->model.channels,
                        direction == ACTIVATION ? "activation" : "gradient of an activation");
}

static int run_forward(struct plan_walk *walk, int stage)
{
    const struct ls_layout *l = walk->layout;
    const struct ls_params *params = &walk->part->params;
    int status = boundary(walk, stage, ACTIVATION, true);
    for (int layer = l->stage_first[stage]; layer < l->stage_first[stage + 1] && !status; layer++) {
        walk->layer = layer;
        status = plan_weights(walk, true);
        if (!status)
            status = plan_layer_forward(walk);
        if (!status && layer == l->model.layers + 1)
            status = plan_region(walk, params->head_region);
    }
    return status ? status : boundary(walk, stage + 1, ACTIVATION, false);
}

static int layer_weight(struct plan_walk *walk)
{
    int status = plan_layer_weight(walk);
    return status ? status : plan_region(walk, walk->part->region_of[walk->layer]);
}

static int run_backward(struct plan_walk *walk, int stage, enum ls_action_kind kind)
{
    const struct ls_layout *l = walk->layout;
    bool input = kind != LS_ACTION_W, weight = kind != LS_ACTION_I;
    int status = input ? boundary(walk, stage + 1, GRADIENT, true) : LS_OK;
    for (int layer = l->stage_first[stage + 1] - 1; layer >= l->stage_first[stage] && !status;
         layer--) {
        walk->layer = layer;
        if (input)
            status = plan_weights(walk, false);
        if (!status && input)
            status = plan_layer_input(walk);
        if (!status && weight)
            status = layer_weight(walk);
    }
    return status || !input ? status : boundary(walk, stage, GRADIENT, false);
}

/* ---- the step
 * ------------------------------------------------------------------------------------ */

/* A table that is the first stage's embedding and the last one's head: each has a gradient of it,
 * and both update it with the sum of the two. */
static int tied_exchange(struct plan_walk *walk)
{
    enum { TIED = LS_COMM_TAG_MAX };
    const struct ls_layout *l = walk->layout;
    const struct plan_part *part = walk->part;
    if (part->params.shared_param < 0)
        return LS_OK;
    const struct ls_param *table = &part->params.list[part->params.shared_param];
    int64_t rank = ls_group_rank(l, LS_GROUP_SHARD, ls_layout_rank(l, walk->at));
    int64_t count = plan_slice_elements(l, table, part->cut, rank);
    int first = l->stage_rank[0], last = l->stage_rank[l->stages - 1];
    int peer = walk->at[LS_AXIS_PP] == first ? last : first;
    walk->layer = walk->micro_batch = -1;
    int status =
        plan_message(walk, LS_GROUP_PP, true, peer, TIED, LS_F32, count, "tied table's gradient");
    return status ? status
                  : plan_message(walk, LS_GROUP_PP, false, peer, TIED, LS_F32, count,
                                 "tied table's gradient");
}

/* The losses of the leaves, where the head is; then the last stage tells the others. */
static int loss_reduce(const struct plan_walk *walk)
{
    const struct ls_layout *l = walk->layout;
    const struct ls_dp_share *share = &walk->share;
    int head = l->stage_rank[l->stages - 1], status = LS_OK;
    if (walk->at[LS_AXIS_PP] == head) {
        status =
            plan_collective(walk, LS_GROUP_CP, LS_COMM_ALL_REDUCE, LS_F32, share->count, "loss");
        if (!status && l->neighbouring)
            status = plan_collective(walk, LS_GROUP_DP_SHARD, LS_COMM_ALL_REDUCE, LS_F32,
                                     share->micro_batches, "loss");
        if (!status)
            status = plan_collective(walk, l->neighbouring ? LS_GROUP_DP_REPLICATE : LS_GROUP_DP,
                                     LS_COMM_ALL_REDUCE, LS_F32, 1, "loss");
    }
    if (status || walk->group_size[LS_GROUP_PP] == 1)
        return status;
    struct ls_move tell = {.group = LS_GROUP_PP,
                           .kind = LS_COMM_BROADCAST,
                           .peer = head,
                           .dtype = LS_F32,
                           .count = 1,
                           .layer = -1,
                           .micro_batch = -1,
                           .what = "loss"};
    return walk->visit(walk->user, &tell, walk->error);
}

/* What follows the micro-batches. */
static int step_end(struct plan_walk *walk)
{
    int status = tied_exchange(walk);
    walk->layer = -1;
    walk->micro_batch = -1;
    if (!status)
        status = loss_reduce(walk);
    if (!status)
        status = plan_collective(walk, LS_GROUP_OWNERS, LS_COMM_OTHER, LS_U64, 1, "gradient norm");
    return status ? status : plan_publish(walk);
}

static int actions_run(struct plan_walk *walk)
{
    int64_t count;
    const struct ls_action *actions =
        ls_schedule_actions(walk->table, (int)walk->at[LS_AXIS_PP], &count);
    walk->layer = -1;
    walk->micro_batch = -1;
    int status = plan_collective(walk, LS_GROUP_WORLD, LS_COMM_OTHER, LS_U64, 1, "agreement");
    for (int64_t i = 0; i < count && !status; i++) {
        plan_walk_micro_batch(walk, actions[i].micro_batch);
        status = actions[i].kind == LS_ACTION_F
                     ? run_forward(walk, actions[i].stage)
                     : run_backward(walk, actions[i].stage, (enum ls_action_kind)actions[i].kind);
    }
    return status ? status : step_end(walk);
}

int plan_walk_step(struct plan_walk *walk, int64_t leaves)
{
    const struct ls_layout *l = walk->layout;
    for (int group = 0; group < LS_GROUPS; group++)
        walk->group_size[group] = ls_group_size(l, (enum ls_layout_group)group);
    ls_layout_share(l, leaves, walk->at, &walk->share);
    walk->micro_batches = walk->share.micro_batches;
    walk->gathered = calloc((size_t)walk->part->params.unit_count + 1, 1);
    int status = walk->gathered
                     ? LS_OK
                     : ls_error_set(walk->error, LS_ENOMEM, "no memory for a rank's list of moves");
    for (int i = 0; i < 2 && plan_is_ring(l) && !status; i++)
        status = plan_ring_init(l, walk->at[LS_AXIS_CP], i, &walk->ring[i], walk->error);
    if (!status)
        status = actions_run(walk);
    for (int i = 0; i < 2; i++)
        plan_ring_release(&walk->ring[i]);
    free(walk->gathered);
    walk->gathered = NULL;
    return status;
}

int ls_layout_moves(const struct ls_layout *layout, int64_t leaves, int64_t rank,
                    ls_move_visit *visit, void *user, struct ls_error *error)
{
    struct ls_schedule table;
    struct plan_part part;
    struct plan_walk walk = {.layout = layout,
                             .table = &table,
                             .part = &part,
                             .visit = visit,
                             .user = user,
                             .error = error};
    struct ls_dp_share share;
    ls_layout_coordinates(layout, rank, walk.at);
    ls_layout_share(layout, leaves, walk.at, &share);
    int status = ls_layout_table(layout, share.micro_batches, &table, error);
    if (status)
        return status;
    status = plan_part_init(layout, walk.at[LS_AXIS_PP], walk.at[LS_AXIS_TP], &part, error);
    if (!status) {
        status = plan_walk_step(&walk, leaves);
        plan_part_release(&part);
    }
    ls_schedule_release(&table);
    return status;
}
