/* Pure arithmetic of who holds what.
 *
 * Shards of parameters: the matrices of unit 0, 1, ..., then all persistent matrices, then the same
 * of vectors. Shards of gradients: by region. Within each, direct pieces come before packed ones,
 * and every rank gives every tensor the room of the largest slice: so layouts are equal on all
 * ranks and packed shards can be sent from where they lie. */
#include "parallel/zero_private.h"

bool zero_is_matrix(const struct ls_zero_options *options, const struct ls_zero_tensor *tensor)
{
    return tensor->offset < options->units[tensor->unit].matrix_elements;
}

/* ---- checks --------------------------------------------------------------------------------- */

static int place_check(const struct ls_zero_options *o, int i, const struct ls_zero_place *place,
                       struct ls_error *error)
{
    if (place->region < 0 || place->region >= o->region_count || place->offset < 0 ||
        place->offset + o->tensors[i].elements > o->region_elements[place->region])
        return ls_error_set(error, LS_EINVAL,
                            "the gradient of tensor %d, %ld elements at %ld of region %d, is "
                            "outside the %d regions",
                            i, (long)o->tensors[i].elements, (long)place->offset, place->region,
                            o->region_count);
    return LS_OK;
}

static int tensor_check(const struct ls_zero_options *o, int i, struct ls_error *error)
{
    const struct ls_zero_tensor *t = &o->tensors[i];
    if (t->unit < 0 || t->unit >= o->unit_count || t->elements < 0 || t->offset < 0 ||
        (o->stage > 0 && o->shard_ranks > 1 && t->slice * o->shard_ranks < t->elements))
        return ls_error_set(
            error, LS_EINVAL,
            "tensor %d of %ld elements in slices of %ld, at %ld of unit %d: no such "
            "unit or shape",
            i, (long)t->elements, (long)t->slice, (long)t->offset, t->unit);
    const struct ls_zero_unit *unit = &o->units[t->unit];
    int64_t end = t->offset + t->elements;
    int64_t limit = zero_is_matrix(o, t) ? unit->matrix_elements : unit->elements;
    if (end > limit)
        return ls_error_set(error, LS_EINVAL,
                            "tensor %d ends at element %ld of unit %d, past the end of its %s "
                            "at %ld",
                            i, (long)end, t->unit, zero_is_matrix(o, t) ? "matrices" : "vectors",
                            (long)limit);
    int status =
        t->gradient.region == LS_ZERO_NONE ? LS_OK : place_check(o, i, &t->gradient, error);
    if (!status && t->second.region != LS_ZERO_NONE && t->second.region != LS_ZERO_OUTSIDE)
        status = place_check(o, i, &t->second, error);
    return status;
}

static int persistence_check(const struct ls_zero_options *o, struct ls_error *error)
{
    if (o->stage < 3 || o->shard_ranks == 1)
        return LS_OK;
    int64_t largest = 0;
    for (int i = 0; i < o->tensor_count; i++)
        largest = ls_max(largest, o->tensors[i].elements);
    if (largest > o->persistence_elements)
        return LS_OK;
    return ls_error_set(
        error, LS_ELAYOUT,
        "ZeRO stage 3 would shard nothing: the largest tensor has %ld elements, and "
        "tensors of up to %ld stay whole; use a lower persistence threshold, or "
        "stage 2",
        (long)largest, (long)o->persistence_elements);
}

int zero_check(const struct ls_zero_options *o, struct ls_error *error)
{
    if (o->stage < 0 || o->stage > 3)
        return ls_error_set(error, LS_EINVAL, "ZeRO stage %d: expected 0 to 3", o->stage);
    if (o->shard_ranks < 1 || o->replicate_ranks < 1 || o->shard_rank < 0 ||
        o->shard_rank >= o->shard_ranks || (o->shard && ls_comm_size(o->shard) != o->shard_ranks) ||
        (o->shard && ls_comm_rank(o->shard) != o->shard_rank) ||
        (o->replicate && ls_comm_size(o->replicate) != o->replicate_ranks))
        return ls_error_set(error, LS_EINVAL,
                            "rank %d of %d shards and %d replicas are not the groups given",
                            o->shard_rank, o->shard_ranks, o->replicate_ranks);
    if (!ls_is_act(o->act) || o->micro_batches_max < 1 || o->prefetch < 0)
        return ls_error_set(error, LS_EINVAL,
                            "parameters of type %s, %ld micro-batches, %d units ahead: types are "
                            "F32, BF16 and F16, counts at least 1 and 0",
                            ls_dtype_name(o->act), (long)o->micro_batches_max, o->prefetch);
    if (o->reduce != LS_F32 && !(o->reduce == LS_BF16 && o->fast))
        return ls_error_set(error, LS_EINVAL,
                            "gradients reduced in %s: F32, or, in fast mode only, BF16",
                            ls_dtype_name(o->reduce));
    if (o->units_away && o->shard_ranks > 1 && (o->stage == 1 || o->stage == 2))
        return ls_error_set(error, LS_EINVAL,
                            "parameters in a memory tier, and stage %d over %d ranks: whole copies "
                            "stay on the device there; stage 3 is expected",
                            o->stage, o->shard_ranks);
    if (o->regions_away && o->replicate_ranks > 1)
        return ls_error_set(error, LS_EINVAL,
                            "gradients in a memory tier, and %d replicas of shards: sums that go "
                            "from replica to replica stay on the device",
                            o->replicate_ranks);
    for (int i = 0; i < o->unit_count; i++)
        if (o->units[i].matrix_elements < 0 || o->units[i].elements < o->units[i].matrix_elements)
            return ls_error_set(error, LS_EINVAL, "unit %d has %ld elements, %ld of matrices", i,
                                (long)o->units[i].elements, (long)o->units[i].matrix_elements);
    int status = LS_OK;
    for (int i = 0; i < o->tensor_count && !status; i++)
        status = tensor_check(o, i, error);
    return status ? status : persistence_check(o, error);
}

/* ---- parcels -------------------------------------------------------------------------------- */

/* A walk over a shard's layout. */
struct cursor {
    struct ls_zero *zero;
    struct zero_piece *piece; /* the next free one */
    int64_t shard;            /* the next free element */
};

static void parcel_begin(struct cursor *at, struct zero_parcel *parcel)
{
    at->shard = ls_round_up(at->shard, ZERO_ALIGN);
    *parcel = (struct zero_parcel){.pieces = at->piece, .packed_shard = at->shard};
}

/* Adds a tensor that lies at `whole`; returns its shard's offset. */
static int64_t parcel_add(struct cursor *at, struct zero_parcel *parcel,
                          const struct ls_zero_tensor *tensor, int64_t whole, bool direct)
{
    int64_t shard = at->shard;
    *at->piece++ = (struct zero_piece){whole, shard, tensor->slice, tensor->elements, tensor->name};
    at->shard += tensor->slice;
    parcel->count++;
    if (direct) {
        parcel->direct++;
        parcel->packed_shard = at->shard;
    } else {
        parcel->packed += tensor->slice;
    }
    return shard;
}

static bool goes_direct(const struct ls_zero *zero, const struct ls_zero_tensor *tensor)
{
    return zero_is_matrix(&zero->options, tensor) &&
           tensor->slice * zero->ranks == tensor->elements &&
           tensor->elements >= ZERO_DIRECT_ELEMENTS;
}

static bool is_persistent(const struct ls_zero *zero, const struct ls_zero_tensor *tensor)
{
    const struct ls_zero_options *o = &zero->options;
    return !zero->keeps_whole && tensor->elements <= o->persistence_elements;
}

enum filter { DIRECT, PACKED, PERSISTENT };

/* Adds the unit's tensors of a kind that pass the filter. Direct ones above the limit are packed.
 */
static void unit_add(struct cursor *at, int u, enum zero_kind kind, enum filter filter,
                     struct zero_parcel *parcel)
{
    struct ls_zero *zero = at->zero;
    int direct = 0;
    for (int i = 0; i < zero->options.tensor_count; i++) {
        const struct ls_zero_tensor *t = &zero->options.tensors[i];
        bool matrix = zero_is_matrix(&zero->options, t);
        if (t->unit != u || matrix != (kind == ZERO_MATRIX))
            continue;
        enum filter mine = is_persistent(zero, t)                               ? PERSISTENT
                           : goes_direct(zero, t) && direct++ < ZERO_DIRECT_MAX ? DIRECT
                                                                                : PACKED;
        if (mine != filter)
            continue;
        int64_t whole = t->offset - (matrix ? 0 : zero->units[u].elements[ZERO_MATRIX]);
        zero->slices[i].offset = parcel_add(at, parcel, t, whole, filter == DIRECT);
    }
}

static void kind_layout(struct cursor *at, enum zero_kind kind)
{
    struct ls_zero *zero = at->zero;
    int units = zero->options.unit_count;
    at->shard = ls_round_up(at->shard, ZERO_ALIGN);
    zero->shard_begin[kind] = at->shard;
    for (int u = 0; u < units; u++) {
        struct zero_parcel *parcel = &zero->units[u].moved[kind];
        parcel_begin(at, parcel);
        unit_add(at, u, kind, DIRECT, parcel);
        unit_add(at, u, kind, PACKED, parcel);
    }
    at->shard = ls_round_up(at->shard, ZERO_ALIGN);
    int64_t begin = at->shard;
    for (int u = 0; u < units; u++) {
        struct zero_parcel *parcel = &zero->units[u].kept[kind];
        *parcel = (struct zero_parcel){.pieces = at->piece, .packed_shard = begin};
        unit_add(at, u, kind, PERSISTENT, parcel);
    }
    zero->kept[kind] = (struct zero_parcel){.packed_shard = begin, .packed = at->shard - begin};
}

/* A tensor's gradients in region r, up to two. */
static int places_in(const struct ls_zero_tensor *t, int r, const struct ls_zero_place *places[2])
{
    int count = 0;
    if (t->gradient.region == r)
        places[count++] = &t->gradient;
    if (t->second.region == r)
        places[count++] = &t->second;
    return count;
}

static void region_layout(struct cursor *at, int r)
{
    struct ls_zero *zero = at->zero;
    struct zero_region *region = &zero->regions[r];
    parcel_begin(at, &region->scattered);
    region->shard = at->shard;
    for (int direct = 1; direct >= 0; direct--) {
        int seen = 0;
        for (int i = 0; i < zero->options.tensor_count; i++) {
            const struct ls_zero_tensor *t = &zero->options.tensors[i];
            const struct ls_zero_place *places[2];
            int count = places_in(t, r, places);
            for (int p = 0; p < count; p++) {
                bool mine = goes_direct(zero, t) && seen++ < ZERO_DIRECT_MAX;
                if (mine != direct)
                    continue;
                int64_t shard = parcel_add(at, &region->scattered, t, places[p]->offset, direct);
                if (places[p] == &t->gradient)
                    zero->slices[i].gradient = shard;
                else
                    zero->slices[i].second = shard;
            }
        }
    }
    region->shard_elements = at->shard - region->shard;
}

/* ---- the whole ------------------------------------------------------------------------------ */

static void units_place(struct ls_zero *zero)
{
    for (int kind = 0; kind < 2; kind++) {
        int64_t at = 0;
        for (int u = 0; u < zero->options.unit_count; u++) {
            zero->units[u].base[kind] = at;
            at = ls_round_up(at + zero->units[u].elements[kind], ZERO_ALIGN);
        }
        zero->kind_elements[kind] = at;
    }
}

static void slices_range(struct ls_zero *zero)
{
    for (int i = 0; i < zero->options.tensor_count; i++) {
        const struct ls_zero_tensor *t = &zero->options.tensors[i];
        int64_t first = zero->cut ? ls_min(zero->rank * t->slice, t->elements) : 0;
        int64_t room = zero->cut ? t->slice : t->elements;
        zero->slices[i] = (struct ls_zero_slice){.first = first,
                                                 .count = ls_min(room, t->elements - first),
                                                 .room = room,
                                                 .gradient = -1,
                                                 .second = -1};
    }
}

/* Nothing is cut: the master holds the units, the gradient the regions, each as described. */
static void whole_layout(struct ls_zero *zero)
{
    zero->shard_begin[ZERO_VECTOR] = zero->kind_elements[ZERO_MATRIX];
    zero->shard_end = zero->kind_elements[ZERO_MATRIX] + zero->kind_elements[ZERO_VECTOR];
    for (int i = 0; i < zero->options.tensor_count; i++) {
        const struct ls_zero_tensor *t = &zero->options.tensors[i];
        const struct zero_unit *unit = &zero->units[t->unit];
        struct ls_zero_slice *slice = &zero->slices[i];
        int kind = zero_is_matrix(&zero->options, t) ? ZERO_MATRIX : ZERO_VECTOR;
        slice->offset = zero->shard_begin[kind] + unit->base[kind] + t->offset -
                        (kind == ZERO_VECTOR ? unit->elements[ZERO_MATRIX] : 0);
        if (t->gradient.region >= 0)
            slice->gradient = zero->regions[t->gradient.region].base + t->gradient.offset;
        if (t->second.region >= 0)
            slice->second = zero->regions[t->second.region].base + t->second.offset;
    }
}

static void cut_layout(struct ls_zero *zero)
{
    struct cursor at = {.zero = zero, .piece = zero->pieces};
    kind_layout(&at, ZERO_MATRIX);
    kind_layout(&at, ZERO_VECTOR);
    zero->shard_end = ls_round_up(at.shard, ZERO_ALIGN);
    at.shard = 0;
    for (int r = 0; r < zero->options.region_count; r++)
        region_layout(&at, r);
    zero->region_shard_elements = ls_round_up(at.shard, ZERO_ALIGN);
    size_t act = ls_dtype_bytes(zero->options.act);
    for (int u = 0; u < zero->options.unit_count; u++) {
        struct zero_unit *unit = &zero->units[u];
        unit->send_base = zero->send_elements;
        zero->send_elements =
            ls_round_up(zero->send_elements + unit->moved[ZERO_MATRIX].packed, ZERO_ALIGN);
        for (int kind = 0; kind < 2; kind++) {
            const struct zero_parcel *parcel = &unit->moved[kind];
            size_t bytes = kind == ZERO_MATRIX ? act : sizeof(float);
            unit->staging_bytes[kind] = (size_t)(parcel->packed * zero->ranks) * bytes;
            unit->operations += parcel->direct + (parcel->packed > 0);
        }
    }
}

void zero_layout(struct ls_zero *zero)
{
    const struct ls_zero_options *o = &zero->options;
    for (int u = 0; u < o->unit_count; u++) {
        zero->units[u].elements[ZERO_MATRIX] = o->units[u].matrix_elements;
        zero->units[u].elements[ZERO_VECTOR] = o->units[u].elements - o->units[u].matrix_elements;
        zero->units[u].slot = -1;
    }
    for (int r = 0; r < o->region_count; r++) {
        struct zero_region *region = &zero->regions[r];
        region->elements = o->region_elements[r];
        region->base = zero->region_elements;
        zero->region_elements = ls_round_up(zero->region_elements + region->elements, ZERO_ALIGN);
    }
    for (int i = o->tensor_count - 1; i >= 0; i--) {
        if (o->tensors[i].gradient.region >= 0)
            zero->regions[o->tensors[i].gradient.region].name = o->tensors[i].name;
        if (o->tensors[i].second.region >= 0)
            zero->regions[o->tensors[i].second.region].name = o->tensors[i].name;
    }
    units_place(zero);
    slices_range(zero);
    if (zero->cut)
        cut_layout(zero);
    else
        whole_layout(zero);
    zero->gradient_elements = zero->cut ? zero->region_shard_elements : zero->region_elements;
    for (int i = 0; i < o->tensor_count; i++) {
        const struct ls_zero_tensor *t = &zero->options.tensors[i];
        if (t->second.region != LS_ZERO_OUTSIDE)
            continue;
        zero->slices[i].second = zero->gradient_elements;
        int64_t room = zero->cut ? t->slice : t->elements;
        zero->gradient_elements = ls_round_up(zero->gradient_elements + room, ZERO_ALIGN);
    }
}
