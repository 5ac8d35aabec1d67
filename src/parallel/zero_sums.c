/* Where sums over leaves, and leaves that grow beside them, lie: on the device, or in a tier, from
 * which they come while something is added. */
#include "parallel/zero_private.h"

#include <stdlib.h>

/* One that a leaf is added to, one that comes, one that goes; and one more for jobs under way. */
enum { BUFFERS = 4 };

int64_t zero_sum_elements(const struct ls_zero *zero, const struct zero_region *region)
{
    return zero->cut ? region->shard_elements : region->elements;
}

static int64_t part_elements(const struct ls_zero *zero, int r, enum zero_part part)
{
    const struct zero_region *region = &zero->regions[r];
    return part == ZERO_SUM ? zero_sum_elements(zero, region) : region->elements;
}

static struct ls_swap_block block_of(const struct ls_zero *zero, int r, enum zero_part part)
{
    return (struct ls_swap_block){(int)part * zero->options.params->region_count + r,
                                  zero->regions[r].place[part],
                                  (size_t)part_elements(zero, r, part) * sizeof(float)};
}

static int swap_take(struct ls_zero *zero, struct ls_arena *arena, struct ls_error *error)
{
    size_t largest = 0, start = arena->used;
    int blocks = 0;
    for (int r = 0; r < zero->options.params->region_count; r++)
        for (int part = 0; part <= zero->grows && zero->regions[r].away; part++) {
            size_t bytes = block_of(zero, r, (enum zero_part)part).bytes;
            zero->regions[r].place[part] = ls_tier_room_take(zero->options.regions_room, bytes);
            largest = bytes > largest ? bytes : largest;
            blocks++;
        }
    if (largest == 0)
        return LS_OK;
    zero->swap = calloc(1, sizeof *zero->swap);
    if (!zero->swap)
        return ls_no_memory(error, "for the buffers of gradients");
    ls_swap_init(zero->swap, zero->options.regions_tier, (int)ls_min(BUFFERS, blocks), largest,
                 arena);
    zero->swap_bytes = arena->used - start;
    return LS_OK;
}

/* A slice's gradient, counted in elements of all regions so far, is where its region's sum is. */
static void slices_place(struct ls_zero *zero)
{
    for (int i = 0; i < zero->options.params->count; i++) {
        struct ls_zero_slice *slice = &zero->slices[i];
        const struct ls_param *param = &zero->options.params->list[i];
        int r = zero_gradient_of(param).region;
        if (r < 0 || !zero_has(&zero->options, i))
            continue;
        const struct zero_region *region = &zero->regions[r];
        int64_t at = slice->gradient - (zero->cut ? region->shard : region->base);
        slice->gradient = region->away ? -1 : region->near[ZERO_SUM] + at;
        slice->gradient_away = region->away;
        slice->gradient_place = region->place[ZERO_SUM] + (size_t)at * sizeof(float);
        if (param->second.region < 0)
            continue;
        region = &zero->regions[param->second.region];
        slice->second += region->near[ZERO_SUM] - (zero->cut ? region->shard : region->base);
    }
}

/* Places of gradients on the device are counted from the base. */
static void slices_count(struct ls_zero *zero)
{
    float *own = zero->part[ZERO_SUM];
    zero->gradient_base = zero->options.gradient_base ? (float *)zero->options.gradient_base : own;
    int64_t before = own ? own - zero->gradient_base : 0;
    for (int i = 0; i < zero->options.params->count; i++) {
        struct ls_zero_slice *slice = &zero->slices[i];
        slice->gradient += slice->gradient >= 0 ? before : 0;
        slice->second += slice->second >= 0 ? before : 0;
    }
}

/* Those on the device lie one behind the other; returns their elements. */
static int64_t near_place(struct ls_zero *zero, enum zero_part part)
{
    int64_t near = 0;
    for (int r = 0; r < zero->options.params->region_count; r++) {
        zero->regions[r].near[part] = near;
        if (!zero->regions[r].away)
            near = ls_round_up(near + part_elements(zero, r, part), ZERO_ALIGN);
    }
    return near;
}

int zero_sums_take(struct ls_zero *zero, struct ls_arena *arena, struct ls_error *error)
{
    for (int r = 0; r < zero->options.params->region_count; r++)
        zero->regions[r].away = zero->options.regions_away && zero->options.regions_away[r] &&
                                zero_has_region(&zero->options, r);
    int64_t near = near_place(zero, ZERO_SUM);
    int64_t all = zero->cut ? zero->region_shard_elements : zero->region_elements;
    for (int i = 0; i < zero->options.params->count; i++)
        if (zero->options.params->list[i].second.region == LS_REGION_OUTSIDE &&
            zero_has(&zero->options, i))
            zero->slices[i].second += near - all;
    near += zero->gradient_elements - all; /* second gradients from elsewhere lie behind */
    zero->part[ZERO_SUM] = ls_arena_take(arena, (size_t)near * sizeof(float));
    if (zero->grows)
        zero->part[ZERO_LEAF] =
            ls_arena_take(arena, (size_t)near_place(zero, ZERO_LEAF) * sizeof(float));
    int status = swap_take(zero, arena, error);
    if (!status) {
        slices_place(zero);
        slices_count(zero);
    }
    return status;
}

void zero_sums_release(struct ls_zero *zero)
{
    if (zero->swap)
        ls_swap_settle(zero->swap, NULL);
    free(zero->swap);
}

int zero_sums_settle(struct ls_zero *zero, struct ls_error *error)
{
    return zero->swap ? ls_swap_settle(zero->swap, error) : LS_OK;
}

int zero_victim(const struct ls_zero *zero, int r, enum zero_part part)
{
    int regions = zero->options.params->region_count;
    if (!zero->regions[r].away || ls_swap_find(zero->swap, (int)part * regions + r))
        return -1;
    int64_t block = ls_swap_next(zero->swap);
    return block < 0 ? -1 : (int)(block % regions);
}

int zero_part_get(struct ls_zero *zero, int r, enum zero_part part, bool reads, float **values,
                  struct ls_error *error)
{
    const struct zero_region *region = &zero->regions[r];
    *values = region->away ? NULL : zero->part[part] + region->near[part];
    if (!region->away)
        return LS_OK;
    const struct ls_swap_block block = block_of(zero, r, part);
    struct ls_swap_buffer *buffer;
    int status = ls_swap_get(zero->swap, &block, reads, &buffer, error);
    if (!status)
        status = ls_swap_wait(buffer, error);
    *values = (float *)(void *)buffer->data;
    return status;
}

int zero_sum_prefetch(struct ls_zero *zero, int r, struct ls_error *error)
{
    if (r >= zero->options.params->region_count || !zero->regions[r].away)
        return LS_OK;
    const struct ls_swap_block block = block_of(zero, r, ZERO_SUM);
    struct ls_swap_buffer *buffer;
    return ls_swap_get(zero->swap, &block, true, &buffer, error);
}

int zero_part_put(struct ls_zero *zero, int r, enum zero_part part, struct ls_error *error)
{
    if (!zero->regions[r].away)
        return LS_OK;
    const struct ls_swap_block block = block_of(zero, r, part);
    return ls_swap_put(zero->swap, ls_swap_find(zero->swap, block.number), &block, error);
}
