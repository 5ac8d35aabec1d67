/* That ranks agree on what they do together. Each rank's operations on a group are folded into one
 * number and a count as they come; a group agrees where its members' are equal. Messages are folded
 * by (from, to, channel) on both ends. */
#include "walk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fold {
    uint64_t hash;
    int64_t count;
};

struct channel {
    int64_t from, to; /* world ranks; from -1: free */
    int group, number;
    struct fold sent, received;
};

/* A channel as one of its ends names it. */
struct channel_end {
    enum ls_layout_group group;
    bool receive;
    int peer, number; /* peer: rank in the group */
};

struct ls_move_proof {
    const struct ls_layout *layout;
    int64_t group_size[LS_GROUPS];
    struct fold *done;  /* [ranks, LS_GROUPS] collectives */
    struct fold *order; /* [ranks] the groups' collectives as they interleave */
    struct channel *channels;
    size_t room, used; /* of channels: an open table, room a power of two */
    int64_t collectives, messages;
    int64_t folds; /* what it took: operations, or whole lists of them, that were folded in */
};

static void fold_in(struct fold *fold, uint64_t value)
{
    uint64_t h = (fold->hash ^ value) * 0x9e3779b97f4a7c15u;
    fold->hash = h ^ h >> 29;
    fold->count++;
}

static bool fold_equal(const struct fold *a, const struct fold *b)
{
    return a->hash == b->hash && a->count == b->count;
}

int ls_move_proof_new(const struct ls_layout *layout, struct ls_move_proof **out,
                      struct ls_error *error)
{
    struct ls_move_proof *proof = calloc(1, sizeof *proof);
    *out = proof;
    if (!proof)
        return ls_error_set(error, LS_ENOMEM, "no memory for the proof of a layout");
    proof->layout = layout;
    proof->room = 1024;
    proof->done = calloc((size_t)layout->ranks * LS_GROUPS, sizeof *proof->done);
    proof->order = calloc((size_t)layout->ranks, sizeof *proof->order);
    proof->channels = malloc(proof->room * sizeof *proof->channels);
    if (!proof->done || !proof->order || !proof->channels) {
        ls_move_proof_free(proof);
        *out = NULL;
        return ls_error_set(error, LS_ENOMEM, "no memory for the proof of a layout");
    }
    for (size_t i = 0; i < proof->room; i++)
        proof->channels[i].from = -1;
    for (int group = 0; group < LS_GROUPS; group++)
        proof->group_size[group] = ls_group_size(layout, (enum ls_layout_group)group);
    return LS_OK;
}

void ls_move_proof_free(struct ls_move_proof *proof)
{
    if (!proof)
        return;
    free(proof->done);
    free(proof->order);
    free(proof->channels);
    free(proof);
}

/* ---- messages
 * ------------------------------------------------------------------------------------ */

static struct channel *channel_place(struct channel *channels, size_t room,
                                     const struct channel *key)
{
    uint64_t h = (uint64_t)key->from * 0x9e3779b97f4a7c15u ^ (uint64_t)key->to;
    h = (h * 0xbf58476d1ce4e5b9u) ^ (uint64_t)(key->number * LS_GROUPS + key->group);
    h *= 0x94d049bb133111ebu;
    size_t i = (size_t)(h >> 32) & (room - 1);
    for (;; i = (i + 1) & (room - 1)) {
        struct channel *c = &channels[i];
        if (c->from < 0 || (c->from == key->from && c->to == key->to && c->group == key->group &&
                            c->number == key->number))
            return c;
    }
}

static int channels_grow(struct ls_move_proof *proof, struct ls_error *error)
{
    size_t room = 2 * proof->room;
    struct channel *channels = malloc(room * sizeof *channels);
    if (!channels)
        return ls_error_set(error, LS_ENOMEM, "no memory for %zu channels of messages", room);
    for (size_t i = 0; i < room; i++)
        channels[i].from = -1;
    for (size_t i = 0; i < proof->room; i++)
        if (proof->channels[i].from >= 0)
            *channel_place(channels, room, &proof->channels[i]) = proof->channels[i];
    free(proof->channels);
    proof->channels = channels;
    proof->room = room;
    return LS_OK;
}

/* The fold of one end of a channel. NULL where there is no memory. */
static struct fold *channel_fold(struct ls_move_proof *proof, int64_t rank,
                                 const struct channel_end *end, struct ls_error *error)
{
    int64_t peer = ls_group_member(proof->layout, end->group, rank, end->peer);
    struct channel key = {.from = end->receive ? peer : rank,
                          .to = end->receive ? rank : peer,
                          .group = (int)end->group,
                          .number = end->number};
    if (2 * proof->used >= proof->room && channels_grow(proof, error))
        return NULL;
    struct channel *channel = channel_place(proof->channels, proof->room, &key);
    if (channel->from < 0) {
        *channel = key;
        proof->used++;
    }
    return end->receive ? &channel->received : &channel->sent;
}

static int message_add(struct ls_move_proof *proof, int64_t rank, const struct ls_move *move,
                       struct ls_error *error)
{
    struct channel_end end = {move->group, move->receive, move->peer, move->channel};
    struct fold *fold = channel_fold(proof, rank, &end, error);
    if (!fold)
        return LS_ENOMEM;
    fold_in(fold, (uint64_t)move->count * 16 + (uint64_t)move->dtype);
    fold_in(fold, (uint64_t)move->micro_batch * 8192 + (uint64_t)move->layer);
    proof->messages += !move->receive;
    proof->folds++;
    return LS_OK;
}

/* ---- adding and comparing
 * ------------------------------------------------------------------------- */

int ls_move_proof_add(struct ls_move_proof *proof, int64_t rank, const struct ls_move *move,
                      struct ls_error *error)
{
    LS_ASSERT(rank >= 0 && rank < proof->layout->ranks);
    if (move->kind == LS_COMM_SEND)
        return message_add(proof, rank, move, error);
    uint64_t what = (uint64_t)move->kind * 16 + (uint64_t)move->dtype;
    fold_in(&proof->done[rank * LS_GROUPS + (int)move->group],
            ((uint64_t)move->count * 256 + what) * 65536 + (uint64_t)(move->peer + 1));
    fold_in(&proof->order[rank], what * LS_GROUPS + (uint64_t)move->group);
    proof->collectives++;
    proof->folds++;
    return LS_OK;
}

static int collectives_check(const struct ls_move_proof *proof, struct ls_error *error)
{
    const struct ls_layout *layout = proof->layout;
    for (int group = 0; group < LS_GROUPS; group++) {
        if (proof->group_size[group] == 1)
            continue;
        for (int64_t rank = 0; rank < layout->ranks; rank++) {
            int64_t first = ls_group_member(layout, (enum ls_layout_group)group, rank, 0);
            const struct fold *a = &proof->done[first * LS_GROUPS + group];
            const struct fold *b = &proof->done[rank * LS_GROUPS + group];
            if (!fold_equal(a, b))
                return ls_error_set(error, LS_ELAYOUT,
                                    "group %s of rank %ld: rank %ld makes %s and rank "
                                    "%ld makes %ld%s",
                                    ls_group_name((enum ls_layout_group)group), (long)first,
                                    (long)first, ls_counted(a->count, "operation").text, (long)rank,
                                    (long)b->count,
                                    a->count == b->count ? ", but counts or order differ" : "");
        }
    }
    return LS_OK;
}

static int order_check(const struct ls_move_proof *proof, struct ls_error *error)
{
    int64_t stage = proof->layout->ranks / proof->layout->size[LS_AXIS_PP];
    for (int64_t rank = 0; rank < proof->layout->ranks; rank++) {
        int64_t first = rank / stage * stage;
        if (!fold_equal(&proof->order[first], &proof->order[rank]))
            return ls_error_set(error, LS_ELAYOUT,
                                "ranks %ld and %ld of one pipeline rank reach their groups' "
                                "operations in different orders: two groups could wait for each "
                                "other",
                                (long)first, (long)rank);
    }
    return LS_OK;
}

static int messages_check(const struct ls_move_proof *proof, struct ls_error *error)
{
    for (size_t i = 0; i < proof->room; i++) {
        const struct channel *c = &proof->channels[i];
        if (c->from >= 0 && !fold_equal(&c->sent, &c->received))
            return ls_error_set(
                error, LS_ELAYOUT,
                "rank %ld sends rank %ld %s on channel %d of %s, which "
                "receives %ld%s",
                (long)c->from, (long)c->to, ls_counted(c->sent.count / 2, "message").text,
                c->number, ls_group_name((enum ls_layout_group)c->group),
                (long)c->received.count / 2,
                c->sent.count == c->received.count ? ", but counts or order differ" : "");
    }
    return LS_OK;
}

int ls_move_proof_finish(struct ls_move_proof *proof, struct ls_error *error)
{
    int status = collectives_check(proof, error);
    if (!status)
        status = order_check(proof, error);
    return status ? status : messages_check(proof, error);
}

/* ---- of a layout
 * ---------------------------------------------------------------------------------- */

/* What a ring's list makes one end of a channel do, as one value. */
struct ring_end {
    struct channel_end end;
    struct fold fold;   /* of the list's messages on it, in their order */
    struct fold *place; /* where it goes; valid while the table has that room */
    size_t room;
};

/* The list of one rank, folded: by channel, and its all-reduces on the sharers. A list is folded
 * once; whatever repeats it, in another block, sequence or micro-batch, adds the folds. Two ends
 * agree on a message after the other where their lists' folds do. */
struct ring_folds {
    struct ring_end *ends;
    int count;
    struct fold shared;
};

struct feed {
    struct ls_move_proof *proof;
    int64_t rank;
    int64_t folded; /* the rank that rings are of, -1: none */
    struct ring_folds rings[2];
};

static void rings_release(struct feed *feed)
{
    for (int i = 0; i < 2; i++) {
        free(feed->rings[i].ends);
        feed->rings[i] = (struct ring_folds){0};
    }
    feed->folded = -1;
}

static struct ring_end *ring_end_of(struct ring_folds *folds, const struct plan_ring_item *item)
{
    struct channel_end end = {item->group, item->receive, item->peer, item->channel};
    for (int i = 0; i < folds->count; i++) {
        const struct channel_end *e = &folds->ends[i].end;
        if (e->group == end.group && e->receive == end.receive && e->peer == end.peer &&
            e->number == end.number)
            return &folds->ends[i];
    }
    folds->ends[folds->count] = (struct ring_end){.end = end};
    return &folds->ends[folds->count++];
}

static int ring_fold(const struct plan_ring *ring, struct ring_folds *folds, struct ls_error *error)
{
    /* A neighbour each way, and everybody for the sums each way. */
    folds->ends = calloc((size_t)ring->count + 1, sizeof *folds->ends);
    if (!folds->ends)
        return ls_error_set(error, LS_ENOMEM, "no memory for the proof of a layout");
    for (int i = 0; i < ring->count; i++) {
        const struct plan_ring_item *item = &ring->items[i];
        struct fold *fold =
            item->group == LS_GROUP_SHARERS ? &folds->shared : &ring_end_of(folds, item)->fold;
        fold_in(fold, (uint64_t)item->count * 16 + (uint64_t)item->dtype);
    }
    return LS_OK;
}

/* Adds a list to what the rank does: each channel's, then the sharers'. */
static int feed_ring(void *user, const struct plan_ring *ring, int layer, int64_t micro_batch,
                     struct ls_error *error)
{
    struct feed *feed = user;
    struct ls_move_proof *proof = feed->proof;
    struct ring_folds *folds = &feed->rings[ring->backward];
    if (feed->folded != feed->rank)
        rings_release(feed);
    feed->folded = feed->rank;
    int status = folds->ends ? LS_OK : ring_fold(ring, folds, error);
    for (int i = 0; i < folds->count && !status; i++) {
        struct ring_end *e = &folds->ends[i];
        if (e->room != proof->room)
            e->place = channel_fold(proof, feed->rank, &e->end, error);
        if (!e->place)
            return LS_ENOMEM;
        e->room = proof->room;
        int64_t count = e->place->count + 2 * e->fold.count;
        fold_in(e->place, e->fold.hash);
        fold_in(e->place, (uint64_t)micro_batch * 8192 + (uint64_t)layer);
        e->place->count = count;
        proof->messages += e->end.receive ? 0 : e->fold.count;
        proof->folds++;
    }
    if (status || folds->shared.count == 0 || proof->group_size[LS_GROUP_SHARERS] == 1)
        return status;
    struct fold *done = &proof->done[feed->rank * LS_GROUPS + LS_GROUP_SHARERS];
    int64_t count = done->count + folds->shared.count;
    fold_in(done, folds->shared.hash);
    done->count = count;
    fold_in(&proof->order[feed->rank], folds->shared.hash);
    proof->collectives += folds->shared.count;
    proof->folds++;
    return LS_OK;
}

static int feed_move(void *user, const struct ls_move *move, struct ls_error *error)
{
    struct feed *feed = user;
    return ls_move_proof_add(feed->proof, feed->rank, move, error);
}

/* All ranks that hold the same part: those of one pipeline and one tensor-parallel rank. */
static int part_feed(struct plan_walk *walk, struct feed *feed, struct ls_error *error)
{
    const struct ls_layout *layout = walk->layout;
    struct plan_part part;
    int status = plan_part_init(layout, walk->at[LS_AXIS_PP], walk->at[LS_AXIS_TP], &part, error);
    if (status)
        return status;
    walk->part = &part;
    const int64_t *size = layout->size;
    int64_t copies = size[LS_AXIS_DP_REPLICATE] * size[LS_AXIS_DP_SHARD] * size[LS_AXIS_CP];
    for (int64_t i = 0; i < copies && !status; i++) {
        walk->at[LS_AXIS_CP] = i % size[LS_AXIS_CP];
        walk->at[LS_AXIS_DP_SHARD] = i / size[LS_AXIS_CP] % size[LS_AXIS_DP_SHARD];
        walk->at[LS_AXIS_DP_REPLICATE] = i / size[LS_AXIS_CP] / size[LS_AXIS_DP_SHARD];
        feed->rank = ls_layout_rank(layout, walk->at);
        status = plan_walk_step(walk, layout->leaves);
    }
    plan_part_release(&part);
    return status;
}

int ls_layout_check(const struct ls_layout *layout, struct ls_layout_proof *out,
                    struct ls_error *error)
{
    struct ls_schedule table;
    struct feed feed = {.folded = -1};
    int status = ls_layout_table(layout, layout->micro_batches, &table, error);
    if (status)
        return status;
    status = ls_move_proof_new(layout, &feed.proof, error);
    struct plan_walk walk = {.layout = layout,
                             .table = &table,
                             .visit = feed_move,
                             .visit_ring = feed_ring,
                             .user = &feed,
                             .error = error};
    for (int64_t i = 0; i < layout->size[LS_AXIS_PP] * layout->size[LS_AXIS_TP] && !status; i++) {
        walk.at[LS_AXIS_PP] = i / layout->size[LS_AXIS_TP];
        walk.at[LS_AXIS_TP] = i % layout->size[LS_AXIS_TP];
        status = part_feed(&walk, &feed, error);
    }
    if (!status)
        status = ls_move_proof_finish(feed.proof, error);
    if (!status) {
        *out = (struct ls_layout_proof){.ranks = layout->ranks,
                                        .collectives = feed.proof->collectives,
                                        .messages = feed.proof->messages,
                                        .folds = feed.proof->folds};
        for (int group = 0; group < LS_GROUPS; group++)
            if (feed.proof->group_size[group] > 1)
                out->groups += layout->ranks / feed.proof->group_size[group];
    }
    rings_release(&feed);
    ls_move_proof_free(feed.proof);
    ls_schedule_release(&table);
    return status;
}
