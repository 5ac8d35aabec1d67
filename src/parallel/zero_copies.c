/* Where the copies of matrices lie that are computed with: on the device, or in a tier, from which
 * they come unit by unit. */
#include "parallel/zero_private.h"

#include <stdlib.h>

static struct ls_swap_block block_of(const struct ls_zero *zero, int u)
{
    const struct zero_unit *unit = &zero->units[u];
    return (struct ls_swap_block){u, unit->place,
                                  (size_t)unit->copy_elements * zero_kind_bytes(zero, ZERO_MATRIX)};
}

/* The unit's matrices, or this rank's shard of those that are gathered. */
static void range_set(const struct ls_zero *zero, struct zero_unit *unit)
{
    const struct zero_parcel *moved = &unit->moved[ZERO_MATRIX];
    unit->copy_begin = unit->base[ZERO_MATRIX];
    unit->copy_elements = unit->elements[ZERO_MATRIX];
    if (!zero->cut)
        return;
    unit->copy_begin = moved->count > 0 ? moved->pieces[0].shard : 0;
    unit->copy_elements =
        moved->count > 0 ? moved->packed_shard + moved->packed - unit->copy_begin : 0;
}

int zero_copies_take(struct ls_zero *zero, struct ls_arena *arena, struct ls_error *error)
{
    int64_t near = 0, blocks = 0;
    size_t largest = 0;
    for (int u = 0; u < zero->options.params->unit_count; u++) {
        struct zero_unit *unit = &zero->units[u];
        range_set(zero, unit);
        unit->away =
            zero->options.units_away && zero->options.units_away[u] && unit->copy_elements > 0;
        unit->copy_near = near;
        if (!unit->away) {
            near = ls_round_up(near + unit->copy_elements, ZERO_ALIGN);
            continue;
        }
        size_t bytes = block_of(zero, u).bytes;
        unit->place = ls_tier_room_take(zero->options.units_room, bytes);
        largest = bytes > largest ? bytes : largest;
        blocks++;
    }
    zero->kept_near = near;
    near += zero->kept[ZERO_MATRIX].packed;
    zero->compute = ls_arena_take(arena, (size_t)near * zero_kind_bytes(zero, ZERO_MATRIX));
    if (largest == 0)
        return LS_OK;
    zero->copies_swap = calloc(1, sizeof *zero->copies_swap);
    if (!zero->copies_swap)
        return ls_no_memory(error, "for the buffers of parameters");
    /* One that is computed with, one that is gathered from or was just left, those that come. */
    int64_t count = ls_min(ls_min(zero->options.prefetch + 3, LS_SWAP_BUFFERS_MAX), blocks);
    ls_swap_init(zero->copies_swap, zero->options.units_tier, (int)count, largest, arena);
    return LS_OK;
}

void zero_copies_borrow(struct ls_zero *zero, const struct ls_zero *lender)
{
    for (int u = 0; u < zero->options.params->unit_count; u++) {
        range_set(zero, &zero->units[u]);
        zero->units[u].copy_near = lender->units[u].copy_near;
    }
    zero->kept_near = lender->kept_near;
    zero->compute = lender->compute;
}

void zero_copies_release(struct ls_zero *zero)
{
    if (zero->copies_swap)
        ls_swap_settle(zero->copies_swap, NULL);
    free(zero->copies_swap);
}

unsigned char *zero_copy_at(const struct ls_zero *zero, const struct zero_unit *unit, int64_t shard)
{
    const struct zero_parcel *kept = &zero->kept[ZERO_MATRIX];
    size_t bytes = zero_kind_bytes(zero, ZERO_MATRIX);
    if (kept->packed > 0 && shard >= kept->packed_shard)
        return zero->compute + (size_t)(zero->kept_near + shard - kept->packed_shard) * bytes;
    size_t at = (size_t)(shard - unit->copy_begin) * bytes;
    if (!unit->away)
        return zero->compute + (size_t)unit->copy_near * bytes + at;
    struct ls_swap_buffer *buffer = ls_swap_find(zero->copies_swap, unit - zero->units);
    LS_ASSERT(buffer);
    return buffer->data + at;
}

/* The unit whose buffer u would take; NULL: nobody's. */
static const struct zero_unit *victim_of(const struct ls_zero *zero, int u)
{
    struct ls_swap *swap = zero->copies_swap;
    int64_t victim = ls_swap_find(swap, u) ? -1 : ls_swap_next(swap);
    return victim < 0 ? NULL : &zero->units[victim];
}

static int copies_get(struct ls_zero *zero, struct ls_ops *ops, int u, bool reads,
                      struct ls_swap_buffer **buffer, struct ls_error *error)
{
    const struct ls_swap_block block = block_of(zero, u);
    const struct zero_unit *victim = victim_of(zero, u);
    int status = victim && victim->state == ZERO_COMING
                     ? zero_gather_end(zero, ops, (int)(victim - zero->units), error)
                     : LS_OK;
    return status ? status : ls_swap_get(zero->copies_swap, &block, reads, buffer, error);
}

int zero_copies_need(struct ls_zero *zero, struct ls_ops *ops, int u, struct ls_error *error)
{
    struct ls_swap_buffer *buffer;
    if (!zero->units[u].away)
        return LS_OK;
    int status = copies_get(zero, ops, u, true, &buffer, error);
    if (!status)
        status = ls_swap_wait_read(buffer, error);
    zero->units[u].expected = false;
    return status;
}

int zero_copies_prefetch(struct ls_zero *zero, int u, bool *came, struct ls_error *error)
{
    *came = zero->units[u].away && !ls_swap_find(zero->copies_swap, u);
    if (!*came)
        return LS_OK;
    const struct zero_unit *victim = victim_of(zero, u);
    if (victim && (victim->state == ZERO_COMING || victim->pinned || victim->expected))
        return LS_OK;
    zero->units[u].expected = true;
    struct ls_swap_buffer *buffer;
    const struct ls_swap_block block = block_of(zero, u);
    return ls_swap_get(zero->copies_swap, &block, true, &buffer, error);
}

int zero_copies_close(struct ls_zero *zero, struct ls_error *error)
{
    int u = zero->open_unit;
    zero->open_unit = -1;
    if (u < 0)
        return LS_OK;
    const struct ls_swap_block block = block_of(zero, u);
    return ls_swap_put(zero->copies_swap, ls_swap_find(zero->copies_swap, u), &block, error);
}

bool ls_zero_compute_away(const struct ls_zero *zero, int tensor)
{
    const struct ls_param *param = &zero->options.params->list[tensor];
    const struct zero_parcel *kept = &zero->kept[ZERO_MATRIX];
    bool stays = kept->packed > 0 && zero->slices[tensor].offset >= kept->packed_shard;
    return zero->units[param->unit].away && param->matrix && !stays;
}

int ls_zero_compute_open(struct ls_zero *zero, struct ls_ops *ops, int tensor, void **compute,
                         struct ls_error *error)
{
    int u = zero->options.params->list[tensor].unit;
    struct zero_unit *unit = &zero->units[u];
    int status = LS_OK;
    LS_ASSERT(ls_zero_compute_away(zero, tensor));
    if (zero->open_unit != u) {
        struct ls_swap_buffer *buffer;
        status = zero_copies_close(zero, error);
        if (!status)
            status = copies_get(zero, ops, u, unit->written, &buffer, error);
        if (!status)
            status = ls_swap_wait(buffer, error);
        if (status)
            return status;
        zero->open_unit = u;
        unit->written = true;
    }
    *compute = zero_copy_at(zero, unit, zero->slices[tensor].offset);
    return LS_OK;
}
