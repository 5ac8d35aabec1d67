/* Weights on their way to who computes with them. Which gathers are started, and in which order,
 * follows from the calls alone, never from what has arrived: so it is the same on all ranks. */
#include "parallel/zero_private.h"

static unsigned char *whole_of(struct ls_zero *zero, const struct zero_unit *unit, int kind)
{
    if (zero->keeps_whole)
        return zero->working[kind] + (size_t)unit->base[kind] * zero_kind_bytes(zero, kind);
    return zero->slots[unit->slot].whole[kind];
}

/* Where this rank's part of a gather is read: the shard at `shard`. */
static const void *shard_of(const struct ls_zero *zero, const struct zero_unit *unit, int kind,
                            int64_t shard)
{
    if (kind == ZERO_MATRIX && zero->copies)
        return zero_copy_at(zero, unit, shard);
    return zero_master(zero, shard);
}

static const void *packed_of(const struct ls_zero *zero, const struct zero_unit *unit, int kind)
{
    if (kind == ZERO_MATRIX && zero->send)
        return zero->send + (size_t)unit->send_base * zero_kind_bytes(zero, kind);
    return shard_of(zero, unit, kind, unit->moved[kind].packed_shard);
}

/* Spreads the ranks' parts of a packed piece, `offset` elements into each rank's block. */
static void piece_unpack(struct ls_ops *ops, const struct zero_piece *piece, int64_t offset,
                         int64_t block, int ranks, const unsigned char *staging,
                         unsigned char *whole, size_t bytes)
{
    const int64_t room = ls_param_room(piece->param, ls_param_elements(piece->param));
    const int64_t full = ls_min(room / piece->chunk, ranks);
    const int64_t rest = ls_min(room - full * piece->chunk, (ranks - full) * piece->chunk);
    const size_t part = (size_t)piece->chunk * bytes, step = (size_t)block * bytes;
    const unsigned char *from = staging + (size_t)offset * bytes;
    unsigned char *to = whole + (size_t)piece->whole * bytes;
    if (full > 0)
        ls_copy_rows(ops, full, part, from, step, to, part);
    if (rest > 0)
        ls_copy(ops, (size_t)rest * bytes, from + (size_t)full * step, to + (size_t)full * part);
}

/* ---- one gather ----------------------------------------------------------------------------- */

static int kind_start(struct ls_zero *zero, struct zero_unit *unit, struct zero_slot *slot,
                      int kind, struct ls_error *error)
{
    const struct zero_parcel *parcel = &unit->moved[kind];
    size_t bytes = zero_kind_bytes(zero, kind);
    unsigned char *whole = whole_of(zero, unit, kind);
    int status = LS_OK;
    for (int i = 0; i < parcel->direct && !status; i++) {
        const struct zero_piece *piece = &parcel->pieces[i];
        unsigned char *output = whole + (size_t)piece->whole * bytes;
        /* Stages 1 and 2 keep the copy of the part only there. */
        const void *input = kind == ZERO_MATRIX && zero->send
                                ? output + (size_t)(zero->rank * piece->chunk) * bytes
                                : shard_of(zero, unit, kind, piece->shard);
        zero_label(zero, parcel, i);
        status = ls_all_gather_start(zero->options.shard, input, output, piece->chunk,
                                     zero_kind_dtype(zero, kind), &slot->request[slot->pending++],
                                     LS_HERE, error);
    }
    zero_label(zero, parcel, parcel->direct);
    if (!status && parcel->packed > 0)
        status = ls_all_gather_start(
            zero->options.shard, packed_of(zero, unit, kind), slot->staging[kind], parcel->packed,
            zero_kind_dtype(zero, kind), &slot->request[slot->pending++], LS_HERE, error);
    return status;
}

static int gather_start(struct ls_zero *zero, struct zero_slot *slot, int u, struct ls_error *error)
{
    struct zero_unit *unit = &zero->units[u];
    slot->unit = u;
    slot->stamp = zero->stamp++;
    slot->pending = 0;
    unit->slot = (int)(slot - zero->slots);
    unit->state = ZERO_COMING;
    int status = zero_scatters_make_room(zero, unit->operations, error);
    for (int kind = 0; kind < 2 && !status; kind++)
        status = kind_start(zero, unit, slot, kind, error);
    zero->gathers_pending += slot->pending;
    return status;
}

static int kept_wait(struct ls_zero *zero, struct ls_error *error)
{
    int status = LS_OK;
    for (int kind = 0; kind < 2 && !status; kind++)
        status = ls_wait(&zero->kept_request[kind], error);
    return status;
}

static void slot_free(struct ls_zero *zero, struct zero_slot *slot)
{
    zero->units[slot->unit].slot = -1;
    slot->unit = -1;
}

/* The unit that is coming is here. */
static int gather_finish(struct ls_zero *zero, struct ls_ops *ops, struct zero_slot *slot,
                         struct ls_error *error)
{
    struct zero_unit *unit = &zero->units[slot->unit];
    int status = kept_wait(zero, error);
    for (int i = 0; i < slot->pending && !status; i++)
        status = ls_wait(&slot->request[i], error);
    if (status)
        return status;
    zero->gathers_pending -= slot->pending;
    slot->pending = 0;
    for (int kind = 0; kind < 2; kind++) {
        unsigned char *whole = whole_of(zero, unit, kind);
        size_t bytes = zero_kind_bytes(zero, kind);
        const struct zero_parcel *moved = &unit->moved[kind], *kept = &unit->kept[kind];
        for (int i = moved->direct; i < moved->count; i++)
            piece_unpack(ops, &moved->pieces[i], moved->pieces[i].shard - moved->packed_shard,
                         moved->packed, zero->ranks, slot->staging[kind], whole, bytes);
        for (int i = 0; i < kept->count; i++)
            piece_unpack(ops, &kept->pieces[i], kept->pieces[i].shard - kept->packed_shard,
                         zero->kept[kind].packed, zero->ranks, zero->kept_store[kind], whole,
                         bytes);
    }
    unit->state = ZERO_HERE;
    if (zero->keeps_whole)
        slot_free(zero, slot);
    return LS_OK;
}

/* ---- slots ---------------------------------------------------------------------------------- */

static struct zero_slot *slot_find_free(struct ls_zero *zero, int size_class)
{
    for (int s = 0; s < zero->slot_count; s++)
        if (zero->slots[s].size_class == size_class && zero->slots[s].unit < 0)
            return &zero->slots[s];
    return NULL;
}

/* The gather that was started first among those on their way, or, of one size, not held. */
static struct zero_slot *slot_oldest(struct ls_zero *zero, int size_class, bool coming)
{
    struct zero_slot *oldest = NULL;
    for (int s = 0; s < zero->slot_count; s++) {
        struct zero_slot *slot = &zero->slots[s];
        if (slot->unit < 0 || (oldest && oldest->stamp < slot->stamp))
            continue;
        const struct zero_unit *unit = &zero->units[slot->unit];
        if (coming ? unit->state == ZERO_COMING : slot->size_class == size_class && !unit->pinned)
            oldest = slot;
    }
    return oldest;
}

static bool has_room(const struct ls_zero *zero, int u)
{
    return zero->gathers_pending + zero->units[u].operations <= zero->gather_limit;
}

static int room_make(struct ls_zero *zero, struct ls_ops *ops, int u, struct ls_error *error)
{
    int status = LS_OK;
    while (!has_room(zero, u) && !status) {
        struct zero_slot *oldest = slot_oldest(zero, 0, true);
        LS_ASSERT(oldest);
        status = gather_finish(zero, ops, oldest, error);
    }
    return status;
}

/* A slot for a unit that is wanted now. What was prefetched and never used gives way. */
static int slot_get(struct ls_zero *zero, struct ls_ops *ops, int u, struct zero_slot **out,
                    struct ls_error *error)
{
    int size_class = zero->units[u].size_class;
    *out = slot_find_free(zero, size_class);
    if (*out)
        return LS_OK;
    struct zero_slot *oldest = slot_oldest(zero, size_class, false);
    if (!oldest)
        return ls_error_set(error, LS_EINVAL,
                            "unit %d cannot be gathered: the buffers of its size are all held; "
                            "release a unit first",
                            u);
    struct zero_unit *unit = &zero->units[oldest->unit];
    int status = unit->state == ZERO_COMING ? gather_finish(zero, ops, oldest, error) : LS_OK;
    if (!status && !zero->keeps_whole) {
        unit->state = ZERO_ABSENT;
        slot_free(zero, oldest);
    }
    *out = oldest;
    return status;
}

static int unit_start(struct ls_zero *zero, struct ls_ops *ops, int u, struct ls_error *error)
{
    struct zero_slot *slot = NULL;
    int status = zero_copies_need(zero, ops, u, error);
    if (!status)
        status = room_make(zero, ops, u, error);
    if (!status)
        status = slot_get(zero, ops, u, &slot, error);
    return status ? status : gather_start(zero, slot, u, error);
}

/* Stages 1 and 2: the units that will be used next, as far as there are buffers. */
static int units_start_ahead(struct ls_zero *zero, struct ls_error *error)
{
    int status = LS_OK;
    while (!status && zero->next < zero->order_count) {
        int u = zero->order[zero->next];
        struct zero_slot *slot = slot_find_free(zero, 0);
        bool absent = zero->units[u].state == ZERO_ABSENT;
        if (absent && (!slot || !has_room(zero, u)))
            break;
        if (absent)
            status = gather_start(zero, slot, u, error);
        zero->next++;
    }
    return status;
}

static void unit_note_use(struct ls_zero *zero, int u)
{
    if (zero->units[u].used)
        return;
    zero->units[u].used = true;
    zero->used[zero->used_count++] = u;
}

/* Units are expected as they were used since the last time, those that were not after them. */
static void order_renew(struct ls_zero *zero)
{
    for (int i = 0; i < zero->order_count; i++)
        unit_note_use(zero, zero->order[i]);
    int *order = zero->order;
    zero->order = zero->used;
    zero->used = order;
    zero->used_count = zero->next = 0;
    for (int u = 0; u < zero->options.params->unit_count; u++)
        zero->units[u].used = false;
}

int zero_gather_end(struct ls_zero *zero, struct ls_ops *ops, int u, struct ls_error *error)
{
    const struct zero_unit *unit = &zero->units[u];
    return unit->state == ZERO_COMING ? gather_finish(zero, ops, &zero->slots[unit->slot], error)
                                      : LS_OK;
}

int ls_zero_settle(struct ls_zero *zero, struct ls_ops *ops, struct ls_error *error)
{
    int status = kept_wait(zero, error);
    struct zero_slot *oldest;
    while (!status && (oldest = slot_oldest(zero, 0, true)))
        status = gather_finish(zero, ops, oldest, error);
    return status;
}

/* ---- calls ---------------------------------------------------------------------------------- */

int ls_zero_weights(struct ls_zero *zero, struct ls_ops *ops, int u, struct ls_zero_weights *out,
                    struct ls_error *error)
{
    LS_ASSERT(u >= 0 && u < zero->options.params->unit_count && zero_has_unit(&zero->options, u));
    struct zero_unit *unit = &zero->units[u];
    if (!zero->cut) {
        int64_t vectors = zero->shard_begin[ZERO_VECTOR] + unit->base[ZERO_VECTOR];
        int status = zero_copies_need(zero, ops, u, error);
        if (status)
            return status;
        unit->pinned = unit->away;
        out->matrices = shard_of(zero, unit, ZERO_MATRIX, unit->base[ZERO_MATRIX]);
        out->vectors = zero_master(zero, vectors);
        return LS_OK;
    }
    int status = LS_OK;
    unit_note_use(zero, u);
    if (unit->state == ZERO_ABSENT)
        status = unit_start(zero, ops, u, error);
    if (!status && unit->state == ZERO_COMING)
        status = gather_finish(zero, ops, &zero->slots[unit->slot], error);
    if (!status && zero->ahead)
        status = units_start_ahead(zero, error);
    if (status)
        return status;
    unit->pinned = true;
    out->matrices = whole_of(zero, unit, ZERO_MATRIX);
    out->vectors = (const float *)whole_of(zero, unit, ZERO_VECTOR);
    return LS_OK;
}

int ls_zero_prefetch(struct ls_zero *zero, int u, struct ls_error *error)
{
    LS_ASSERT(u >= 0 && u < zero->options.params->unit_count && zero_has_unit(&zero->options, u));
    bool came = false;
    int status = LS_OK;
    if (!zero->cut || zero->units[u].state == ZERO_ABSENT)
        status = zero_copies_prefetch(zero, u, &came, error);
    if (status || came || !zero->cut || zero->ahead || zero->units[u].state != ZERO_ABSENT ||
        !has_room(zero, u))
        return status;
    struct zero_slot *slot = slot_find_free(zero, zero->units[u].size_class);
    if (!slot)
        return LS_OK;
    if (zero->units[u].away) /* it is there: nothing gives way */
        status = zero_copies_need(zero, NULL, u, error);
    return status ? status : gather_start(zero, slot, u, error);
}

void ls_zero_release(struct ls_zero *zero, int u)
{
    LS_ASSERT(u >= 0 && u < zero->options.params->unit_count && zero_has_unit(&zero->options, u));
    struct zero_unit *unit = &zero->units[u];
    if (!unit->pinned)
        return;
    unit->pinned = false;
    if (!zero->keeps_whole) {
        unit->state = ZERO_ABSENT;
        slot_free(zero, &zero->slots[unit->slot]);
    }
}

static int kept_start(struct ls_zero *zero, struct ls_error *error)
{
    int status = LS_OK;
    for (int kind = 0; kind < 2 && !status; kind++) {
        const struct zero_parcel *kept = &zero->kept[kind];
        if (kept->packed > 0)
            status = ls_all_gather_start(
                zero->options.shard, shard_of(zero, zero->units, kind, kept->packed_shard),
                zero->kept_store[kind], kept->packed, zero_kind_dtype(zero, kind),
                &zero->kept_request[kind], LS_HERE, error);
    }
    return status;
}

int ls_zero_publish(struct ls_zero *zero, struct ls_ops *ops, struct ls_error *error)
{
    int status = ls_zero_settle(zero, ops, error);
    if (!status)
        status = zero_copies_close(zero, error);
    for (int u = 0; u < zero->options.params->unit_count; u++)
        zero->units[u].written = zero->units[u].expected = false;
    if (!zero->cut || status)
        return status;
    for (int u = 0; u < zero->options.params->unit_count; u++) {
        struct zero_unit *unit = &zero->units[u];
        if (unit->pinned && !zero->keeps_whole)
            return ls_error_set(error, LS_EINVAL,
                                "unit %d is held while its parameters change; release it first", u);
        unit->state = ZERO_ABSENT;
        unit->pinned = false;
        if (unit->slot >= 0)
            slot_free(zero, &zero->slots[unit->slot]);
    }
    order_renew(zero);
    status = kept_start(zero, error);
    if (!status && zero->ahead)
        status = units_start_ahead(zero, error);
    return status;
}
