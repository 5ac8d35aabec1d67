/* Making and asking: sizes, buffers, slices. */
#include "parallel/zero_private.h"

#include <stdlib.h>
#include <string.h>

/* ---- buffers -------------------------------------------------------------------------------- */

/* Units of one size share slots. Where working copies are elsewhere a slot is only staging, and all
 * units share them. Returns the number of classes. */
static int units_classify(struct ls_zero *zero)
{
    int classes = 0;
    for (int u = 0; u < zero->options.params->unit_count; u++) {
        struct zero_unit *unit = &zero->units[u];
        unit->size_class = zero->keeps_whole ? 0 : classes;
        for (int v = 0; v < u && !zero->keeps_whole; v++) {
            const struct zero_unit *other = &zero->units[v];
            if (other->elements[0] == unit->elements[0] &&
                other->elements[1] == unit->elements[1] &&
                other->staging_bytes[0] == unit->staging_bytes[0] &&
                other->staging_bytes[1] == unit->staging_bytes[1]) {
                unit->size_class = other->size_class;
                break;
            }
        }
        classes = (int)ls_max(classes, unit->size_class + 1);
    }
    return classes;
}

static void slot_take(struct ls_zero *zero, int size_class, struct ls_arena *arena)
{
    size_t whole[2] = {0}, staging[2] = {0};
    for (int u = 0; u < zero->options.params->unit_count; u++) {
        const struct zero_unit *unit = &zero->units[u];
        for (int kind = 0; kind < 2 && unit->size_class == size_class; kind++) {
            size_t bytes = (size_t)unit->elements[kind] * zero_kind_bytes(zero, kind);
            if (bytes > whole[kind])
                whole[kind] = bytes;
            if (unit->staging_bytes[kind] > staging[kind])
                staging[kind] = unit->staging_bytes[kind];
        }
    }
    struct zero_slot *slot = &zero->slots[zero->slot_count++];
    *slot = (struct zero_slot){.size_class = size_class, .unit = -1};
    for (int kind = 0; kind < 2; kind++) {
        if (!zero->keeps_whole)
            slot->whole[kind] = ls_arena_take(arena, whole[kind]);
        slot->staging[kind] = ls_arena_take(arena, staging[kind]);
    }
}

static void slots_take(struct ls_zero *zero, struct ls_arena *arena)
{
    int classes = units_classify(zero);
    for (int c = 0; c < classes; c++) {
        int units = 0;
        for (int u = 0; u < zero->options.params->unit_count; u++)
            units += zero->units[u].size_class == c && zero_has_unit(&zero->options, u);
        int64_t count = ls_min(zero->options.prefetch + 2, units);
        for (int64_t i = 0; i < count; i++)
            slot_take(zero, c, arena);
    }
}

/* In stages 1 and 2 the whole copies hold this rank's part too. */
static bool has_own_copies(const struct ls_zero *zero)
{
    return zero->copies && (!zero->cut || zero->options.stage == 3);
}

static void parameters_borrow(struct ls_zero *zero, const struct ls_zero *lender)
{
    zero->master_begin = lender->master_begin;
    zero->master = lender->master;
    zero_copies_borrow(zero, lender);
    zero->send = lender->send;
    for (int kind = 0; kind < 2; kind++) {
        zero->working[kind] = lender->working[kind];
        zero->kept_store[kind] = lender->kept_store[kind];
    }
}

static int parameters_take(struct ls_zero *zero, struct ls_arena *arena, struct ls_error *error)
{
    size_t start = arena->used, bytes = zero_kind_bytes(zero, ZERO_MATRIX);
    if (zero->options.lender) {
        parameters_borrow(zero, zero->options.lender);
        return LS_OK;
    }
    zero->master_begin = zero->options.masters_away ? zero->shard_begin[ZERO_VECTOR] : 0;
    zero->master =
        ls_arena_take(arena, (size_t)(zero->shard_end - zero->master_begin) * sizeof(float));
    zero->sizes.master = arena->used - start;
    start = arena->used;
    bool whole_copies = zero->cut && zero->keeps_whole;
    /* The copy of what this rank owns; in stages 1 and 2 most of it is in the whole one. */
    int status = LS_OK;
    if (has_own_copies(zero))
        status = zero_copies_take(zero, arena, error);
    else if (zero->copies)
        zero->send = ls_arena_take(arena, (size_t)zero->send_elements * bytes);
    for (int kind = 0; kind < 2; kind++) {
        if (whole_copies)
            zero->working[kind] = ls_arena_take(arena, (size_t)zero->kind_elements[kind] *
                                                           zero_kind_bytes(zero, kind));
        if (zero->kept[kind].packed > 0)
            zero->kept_store[kind] =
                ls_arena_take(arena, (size_t)(zero->kept[kind].packed * zero->ranks) *
                                         zero_kind_bytes(zero, kind));
    }
    zero->sizes.parameters = arena->used - start;
    return status;
}

static int gradients_take(struct ls_zero *zero, struct ls_arena *arena, struct ls_error *error)
{
    size_t start = arena->used;
    int status = zero_sums_take(zero, arena, error);
    zero->sizes.gradients = arena->used - start;
    return status;
}

/* What a region needs of a place, in elements: whole, shard, staging. What is scattered in bfloat16
 * is added to the sum from a shard of the place: of each leaf, or in mode fast (which alone has it)
 * from stage 2 on of each micro-batch. */
static void region_needs(const struct ls_zero *zero, const struct zero_region *region,
                         int64_t needs[3])
{
    const struct ls_zero_options *options = &zero->options;
    bool several = options->stage > 1 && options->micro_batches_max > 1;
    bool adds = zero->cut && options->reduce == LS_BF16 && several;
    needs[0] = zero->alone || zero->parts || zero->in_place ? 0 : region->elements;
    needs[1] = adds ? region->shard_elements : 0;
    needs[2] = zero->cut ? region->scattered.packed * zero->ranks : 0;
}

/* Two regions should be on their way at once, but not two of the largest: the first place takes any
 * region, the small ones whatever is the smaller of two neighbours. */
static void places_take(struct ls_zero *zero, struct ls_arena *arena)
{
    int regions = zero->options.params->region_count;
    int64_t smaller = 0;
    for (int r = 0, before = -1; r < regions; r++) {
        if (!zero_has_region(&zero->options, r))
            continue;
        if (before >= 0)
            smaller =
                ls_max(smaller, ls_min(zero->regions[before].elements, zero->regions[r].elements));
        before = r;
    }
    int64_t most[2][3] = {0};
    for (int r = 0; r < regions; r++) {
        struct zero_region *region = &zero->regions[r];
        region->small = region->elements <= smaller;
        int64_t needs[3];
        region_needs(zero, region, needs);
        for (int i = 0; i < 3; i++)
            for (int small = 0; small <= region->small; small++)
                most[small][i] = ls_max(most[small][i], needs[i]);
    }
    int64_t large = most[0][0] + most[0][1] + most[0][2];
    zero->place_count = large == 0 ? 0 : most[0][0] > 0 ? 2 : ZERO_PLACES;
    if (large > 0 && most[0][0] == 0 && most[1][1] + most[1][2] > 0) {
        int64_t room = (int64_t)(zero->sizes.gradients / sizeof(float)) / ZERO_PLACES_SHARE;
        int64_t more = room / (most[1][1] + most[1][2]);
        zero->place_count = (int)ls_max(ls_min(more, ls_min(regions, ZERO_JOBS)), ZERO_PLACES);
    }
    for (int i = 0; i < zero->place_count; i++) {
        bool small = i > 0;
        zero->places[i] = (struct zero_place){.small = small};
        float **buffers[3] = {&zero->places[i].whole, &zero->places[i].shard,
                              &zero->places[i].staging};
        for (int k = 0; k < 3; k++)
            *buffers[k] = ls_arena_take(arena, (size_t)most[small][k] * sizeof(float));
    }
}

static int memory_take(struct ls_zero *zero, struct ls_arena *arena, struct ls_error *error)
{
    int status = parameters_take(zero, arena, error);
    if (!status)
        status = gradients_take(zero, arena, error);
    size_t start = arena->used;
    if (zero->cut)
        slots_take(zero, arena);
    places_take(zero, arena);
    zero->sizes.buffers = arena->used - start;
    return status;
}

/* ---- making --------------------------------------------------------------------------------- */

/* calloc that never returns NULL for zero bytes. */
static void *zeros(int count, size_t bytes)
{
    return calloc((size_t)ls_max(count, 1), bytes);
}

static void *copied(const void *from, int count, size_t bytes)
{
    void *to = zeros(count, bytes);
    if (to && count > 0)
        memcpy(to, from, (size_t)count * bytes);
    return to;
}

static bool tables_take(struct ls_zero *zero, const struct ls_zero_options *options)
{
    struct ls_zero_options *o = &zero->options;
    int tensors = options->params->count, units = options->params->unit_count;
    int regions = options->params->region_count;
    if (options->regions_away)
        o->regions_away = copied(options->regions_away, regions, sizeof *o->regions_away);
    zero->units = zeros(units, sizeof *zero->units);
    zero->regions = zeros(regions, sizeof *zero->regions);
    zero->slices = zeros(tensors, sizeof *zero->slices);
    zero->pieces = zeros(3 * tensors, sizeof *zero->pieces); /* as parameter, two gradients */
    zero->jobs = zeros(ZERO_JOBS, sizeof *zero->jobs);
    /* One class at most for each unit, each with as many slots as it has units at most. */
    zero->slots = zeros(units, sizeof *zero->slots);
    zero->order = zeros(units, sizeof *zero->order);
    zero->used = zeros(units, sizeof *zero->used);
    for (int u = 0; u < units && zero->order; u++)
        if (zero_has_unit(options, u))
            zero->order[zero->order_count++] = u;
    if (options->units_away)
        o->units_away = copied(options->units_away, units, sizeof *o->units_away);
    bool tables =
        (!options->regions_away || o->regions_away) && (!options->units_away || o->units_away);
    return tables && zero->units && zero->regions && zero->slices && zero->pieces && zero->jobs &&
           zero->slots && zero->order && zero->used;
}

int ls_zero_new(const struct ls_zero_options *options, struct ls_arena *arena, struct ls_zero **out,
                struct ls_error *error)
{
    *out = NULL;
    int status = zero_check(options, error);
    if (status)
        return status;
    struct ls_zero *zero = calloc(1, sizeof *zero);
    if (!zero)
        return ls_no_memory(error, "for the layout of parameters");
    zero->options = *options;
    zero->ranks = options->shard_ranks;
    zero->rank = options->shard_rank;
    zero->cut = options->stage > 0 && zero->ranks > 1;
    zero->alone = zero->ranks == 1 && options->replicate_ranks == 1;
    zero->ring = options->replicate_ranks > 1 && !options->fast;
    bool one_leaf = options->fast ? options->stage < 2 : options->leaves_max == 1;
    zero->parts = options->fast ? one_leaf && options->micro_batches_max > 1 : options->parts;
    zero->in_place = !zero->cut && !zero->ring && one_leaf;
    zero->grows = zero->parts && !zero->in_place;
    zero->keeps_whole = options->stage < 3 || !options->reshard_after_forward || !zero->cut;
    zero->ahead = zero->cut && options->stage < 3;
    zero->copies = options->act != LS_F32 || options->masters_away || options->units_away;
    zero->open_place = zero->open_unit = -1;
    if (!tables_take(zero, options)) {
        ls_zero_free(zero);
        return ls_no_memory(error, "for the layout of %d tensors", options->params->count);
    }
    zero_layout(zero);
    int operations = 0;
    for (int r = 0; r < options->params->region_count; r++) {
        struct zero_region *region = &zero->regions[r];
        region->operations = zero->cut ? region->scattered.direct + 1 : ZERO_BUCKETS;
        operations = (int)ls_max(operations, region->operations);
    }
    zero->gather_limit = LS_COMM_PENDING_MAX - operations - 2;
    status = memory_take(zero, arena, error);
    if (status)
        ls_zero_free(zero);
    else
        *out = zero;
    return status;
}

void ls_zero_free(struct ls_zero *zero)
{
    if (!zero)
        return;
    zero_copies_release(zero);
    zero_sums_release(zero);
    free((void *)zero->options.regions_away);
    free((void *)zero->options.units_away);
    free(zero->units);
    free(zero->regions);
    free(zero->slices);
    free(zero->pieces);
    free(zero->jobs);
    free(zero->slots);
    free(zero->order);
    free(zero->used);
    free(zero);
}

/* ---- asking --------------------------------------------------------------------------------- */

void ls_zero_get_sizes(const struct ls_zero *zero, struct ls_zero_sizes *sizes)
{
    *sizes = zero->sizes;
}

size_t ls_zero_passing_bytes(const struct ls_zero *zero)
{
    return zero->swap_bytes;
}

size_t ls_zero_unit_bytes(const struct ls_zero *zero, int u, bool first)
{
    const struct zero_unit *unit = &zero->units[u];
    size_t bytes = 0;
    if (!zero->cut || (zero->keeps_whole && !first))
        return 0;
    for (int kind = 0; kind < 2; kind++)
        bytes +=
            unit->staging_bytes[kind] +
            (zero->keeps_whole ? 0 : (size_t)unit->elements[kind] * zero_kind_bytes(zero, kind));
    return bytes;
}

void ls_zero_region_bytes(const struct ls_zero *zero, int r, const struct ls_dp_micro *micro,
                          struct ls_zero_region_bytes *out)
{
    const struct zero_region *region = &zero->regions[r];
    struct zero_turn turn = zero_turn(zero, micro);
    int64_t needs[3];
    region_needs(zero, region, needs);
    int64_t transit = needs[0] + (turn.ends ? needs[2] + (turn.first ? 0 : needs[1]) : 0);
    int64_t sum = region->away ? 0 : zero_sum_elements(zero, region);
    bool beside = zero->grows && !region->away &&
                  (!zero->alone || (!turn.first && !(turn.begins && turn.ends)));
    *out =
        (struct ls_zero_region_bytes){.sum = (size_t)sum * sizeof(float),
                                      .leaf = beside ? (size_t)region->elements * sizeof(float) : 0,
                                      .begins = turn.begins,
                                      .ends = turn.ends,
                                      .transit = (size_t)transit * sizeof(float),
                                      .large = !region->small};
}

const struct ls_zero_slice *ls_zero_slices(const struct ls_zero *zero)
{
    return zero->slices;
}

float *ls_zero_gradient_base(const struct ls_zero *zero)
{
    return zero->gradient_base;
}

bool ls_zero_has_master(const struct ls_zero *zero, int tensor)
{
    const struct ls_param *param = &zero->options.params->list[tensor];
    return param->matrix ? !zero->options.masters_away
                         : !zero->options.vectors_away || param->frozen;
}

float *ls_zero_master(struct ls_zero *zero, int tensor)
{
    return ls_zero_has_master(zero, tensor) ? zero_master(zero, zero->slices[tensor].offset) : NULL;
}

void *ls_zero_compute(struct ls_zero *zero, int tensor)
{
    const struct ls_param *param = &zero->options.params->list[tensor];
    const struct zero_unit *unit = &zero->units[param->unit];
    const struct ls_zero_slice *slice = &zero->slices[tensor];
    size_t bytes = zero_kind_bytes(zero, ZERO_MATRIX);
    if (!zero->copies || ls_zero_compute_away(zero, tensor))
        return NULL;
    if (!param->matrix)
        return ls_zero_has_master(zero, tensor) ? NULL : zero_master(zero, slice->offset);
    if (has_own_copies(zero))
        return zero_copy_at(zero, unit, slice->offset);
    const struct zero_parcel *parcel = &unit->moved[ZERO_MATRIX];
    if (slice->offset >= parcel->packed_shard)
        return zero->send +
               (size_t)(unit->send_base + (slice->offset - parcel->packed_shard)) * bytes;
    return zero->working[ZERO_MATRIX] +
           (size_t)(unit->base[ZERO_MATRIX] + param->offset + ls_param_room(param, slice->first)) *
               bytes;
}

void zero_label(struct ls_zero *zero, const struct zero_parcel *parcel, int piece)
{
    ls_comm_label(zero->options.shard,
                  piece < parcel->count ? parcel->pieces[piece].param->name : NULL);
}
