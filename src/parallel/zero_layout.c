/* Pure arithmetic of who holds what.
 *
 * Shards of parameters: the matrices of unit 0, 1, ..., then all persistent matrices, then the same
 * of vectors. Shards of gradients: by region. Within each, direct pieces come before packed ones,
 * and every rank gives every tensor the room of the largest slice: so layouts are equal on all
 * ranks and packed shards can be sent from where they lie. */
#include "parallel/zero_private.h"

/* ---- checks --------------------------------------------------------------------------------- */

static int place_check(const struct ls_zero_options *o, int i, struct ls_gradient_place place,
                       struct ls_error *error)
{
    int64_t elements = ls_param_elements(&o->params->list[i]);
    if (place.region < 0 || place.region >= o->params->region_count || place.offset < 0 ||
        !zero_has_region(o, place.region) ||
        place.offset + elements > o->params->regions[place.region].elements)
        return ls_error_set(error, LS_EINVAL,
                            "the gradient of tensor %d, %ld elements at %ld of region %d, is "
                            "outside the %d regions",
                            i, (long)elements, (long)place.offset, place.region,
                            o->params->region_count);
    return LS_OK;
}

/* This rank's index in the spec's mesh, but for axes that cut rows beside ZeRO, whose parts are
 * equal. -1 if the spec is not cut as the group is. */
static int64_t place_in_mesh(const struct ls_zero_options *o, const struct ls_param *param)
{
    const struct ls_mesh *mesh = &param->spec.mesh;
    bool cut = o->stage > 0 && o->shard_ranks > 1;
    int axis = ls_mesh_axis(mesh, "shard");
    bool cuts = axis >= 0 && mesh->size[axis] > 1 && ls_placement_cuts(param->spec.placement[axis]);
    if (cut != cuts || (cut && mesh->size[axis] != o->shard_ranks))
        return -1;
    int64_t stride = 1;
    for (int inner = axis + 1; cut && inner < mesh->axis_count; inner++)
        stride *= mesh->size[inner];
    return cut ? o->shard_rank * stride : 0;
}

static int tensor_check(const struct ls_zero_options *o, int i, struct ls_error *error)
{
    const struct ls_param *param = &o->params->list[i];
    int64_t elements = ls_param_elements(param);
    if (param->unit < 0 || param->unit >= o->params->unit_count || elements < 0 ||
        param->offset < 0)
        return ls_error_set(error, LS_EINVAL,
                            "tensor %d of %ld elements, at %ld of unit %d: no such unit or shape",
                            i, (long)elements, (long)param->offset, param->unit);
    if (place_in_mesh(o, param) < 0)
        return ls_error_set(
            error, LS_EINVAL,
            "tensor %d (%s) is not cut over the %d ranks of ZeRO stage %d: its spec "
            "gives other parts to the axis shard",
            i, param->name, o->shard_ranks, o->stage);
    const struct ls_unit *unit = &o->params->units[param->unit];
    int64_t end = param->offset + ls_param_room(param, elements);
    int64_t limit = param->matrix ? unit->matrix_elements : unit->elements;
    if (end > limit || (!param->matrix && param->offset < unit->matrix_elements))
        return ls_error_set(error, LS_EINVAL,
                            "tensor %d, elements %ld to %ld of unit %d, is outside its %s, which "
                            "end at %ld",
                            i, (long)param->offset, (long)end, param->unit,
                            param->matrix ? "matrices" : "vectors", (long)limit);
    struct ls_gradient_place gradient = zero_gradient_of(param);
    int status = gradient.region == LS_REGION_NONE ? LS_OK : place_check(o, i, gradient, error);
    if (!status && param->second.region != LS_REGION_NONE &&
        param->second.region != LS_REGION_OUTSIDE)
        status = place_check(o, i, param->second, error);
    return status;
}

static int persistence_check(const struct ls_zero_options *o, struct ls_error *error)
{
    if (o->stage < 3 || o->shard_ranks == 1)
        return LS_OK;
    int64_t largest = -1;
    for (int i = 0; i < o->params->count; i++)
        if (zero_has(o, i))
            largest = ls_max(largest, ls_param_elements(&o->params->list[i]));
    if (largest < 0 || largest > o->persistence_elements) /* or of the set this rank has nothing */
        return LS_OK;
    return ls_error_set(
        error, LS_ELAYOUT,
        "ZeRO stage 3 would shard nothing: the largest tensor has %ld elements, and tensors of up "
        "to %ld stay whole; use a lower persistence threshold, or stage 2",
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
    if (o->lender && (o->units_away || !o->masters_away || !o->vectors_away))
        return ls_error_set(error, LS_EINVAL,
                            "parameters in the memory of another ZeRO: all masters that are "
                            "trained are away, and no copies are");
    if (o->regions_away && o->replicate_ranks > 1)
        return ls_error_set(error, LS_EINVAL,
                            "gradients in a memory tier, and %d replicas of shards: sums that go "
                            "from replica to replica stay on the device",
                            o->replicate_ranks);
    for (int i = 0; i < o->params->unit_count; i++)
        if (o->params->units[i].matrix_elements < 0 ||
            o->params->units[i].elements < o->params->units[i].matrix_elements)
            return ls_error_set(error, LS_EINVAL, "unit %d has %ld elements, %ld of matrices", i,
                                (long)o->params->units[i].elements,
                                (long)o->params->units[i].matrix_elements);
    int status = LS_OK;
    for (int i = 0; i < o->params->count && !status; i++) {
        int unit = o->params->list[i].unit;
        if (unit < 0 || unit >= o->params->unit_count || zero_has_unit(o, unit))
            status = tensor_check(o, i, error);
    }
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

/* Adds tensor i, which lies at `whole`; returns its shard's offset. */
static int64_t parcel_add(struct cursor *at, struct zero_parcel *parcel, int i, int64_t whole,
                          bool direct)
{
    const struct ls_param *param = &at->zero->options.params->list[i];
    int64_t shard = at->shard, room = ls_param_room(param, at->zero->slices[i].room);
    *at->piece++ = (struct zero_piece){whole, shard, room, param};
    at->shard += room;
    parcel->count++;
    if (direct) {
        parcel->direct++;
        parcel->packed_shard = at->shard;
    } else {
        parcel->packed += room;
    }
    return shard;
}

static bool goes_direct(const struct ls_zero *zero, int i)
{
    const struct ls_param *param = &zero->options.params->list[i];
    int64_t elements = ls_param_elements(param);
    return param->matrix && zero->slices[i].room * zero->ranks == elements &&
           elements >= ZERO_DIRECT_ELEMENTS;
}

static bool is_persistent(const struct ls_zero *zero, const struct ls_param *param)
{
    return !zero->keeps_whole && ls_param_elements(param) <= zero->options.persistence_elements;
}

enum filter { DIRECT, PACKED, PERSISTENT };

/* Adds the unit's tensors of a kind that pass the filter. Direct ones past the limit are packed. */
static void unit_add(struct cursor *at, int u, enum zero_kind kind, enum filter filter,
                     struct zero_parcel *parcel)
{
    struct ls_zero *zero = at->zero;
    int direct = 0;
    if (!zero_has_unit(&zero->options, u))
        return;
    for (int i = 0; i < zero->options.params->count; i++) {
        const struct ls_param *param = &zero->options.params->list[i];
        if (param->unit != u || param->matrix != (kind == ZERO_MATRIX))
            continue;
        enum filter mine = is_persistent(zero, param)                           ? PERSISTENT
                           : goes_direct(zero, i) && direct++ < ZERO_DIRECT_MAX ? DIRECT
                                                                                : PACKED;
        if (mine != filter)
            continue;
        int64_t whole = param->offset - (param->matrix ? 0 : zero->units[u].elements[ZERO_MATRIX]);
        zero->slices[i].offset = parcel_add(at, parcel, i, whole, filter == DIRECT);
    }
}

static void kind_layout(struct cursor *at, enum zero_kind kind)
{
    struct ls_zero *zero = at->zero;
    int units = zero->options.params->unit_count;
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

static void region_layout(struct cursor *at, int r)
{
    struct ls_zero *zero = at->zero;
    struct zero_region *region = &zero->regions[r];
    parcel_begin(at, &region->scattered);
    region->shard = at->shard;
    if (!zero_has_region(&zero->options, r))
        return;
    for (int direct = 1; direct >= 0; direct--) {
        int seen = 0;
        for (int i = 0; i < zero->options.params->count; i++) {
            const struct ls_param *param = &zero->options.params->list[i];
            const struct ls_gradient_place places[2] = {zero_gradient_of(param), param->second};
            int64_t *in_slice[2] = {&zero->slices[i].gradient, &zero->slices[i].second};
            for (int p = 0; p < 2; p++) {
                if (places[p].region != r)
                    continue;
                bool mine = goes_direct(zero, i) && seen++ < ZERO_DIRECT_MAX;
                if (mine == direct)
                    *in_slice[p] = parcel_add(at, &region->scattered, i, places[p].offset, direct);
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
        for (int u = 0; u < zero->options.params->unit_count; u++) {
            zero->units[u].base[kind] = at;
            at = ls_round_up(at + zero->units[u].elements[kind], ZERO_ALIGN);
        }
        zero->kind_elements[kind] = at;
    }
}

static void slices_range(struct ls_zero *zero)
{
    for (int i = 0; i < zero->options.params->count; i++) {
        const struct ls_param *param = &zero->options.params->list[i];
        zero->slices[i] = (struct ls_zero_slice){.gradient = -1, .second = -1};
        if (!zero_has(&zero->options, i))
            continue;
        int64_t room = ls_dtensor_local_shape(&param->spec, 0, NULL);
        int64_t place = place_in_mesh(&zero->options, param);
        zero->slices[i] = (struct ls_zero_slice){
            .first = ls_min(place > 0 ? zero->rank * room : 0, ls_param_elements(param)),
            .count = ls_dtensor_local_shape(&param->spec, place, NULL),
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
    for (int i = 0; i < zero->options.params->count; i++) {
        const struct ls_param *param = &zero->options.params->list[i];
        if (!zero_has(&zero->options, i))
            continue;
        const struct zero_unit *unit = &zero->units[param->unit];
        const struct ls_gradient_place gradient = zero_gradient_of(param), second = param->second;
        struct ls_zero_slice *slice = &zero->slices[i];
        int kind = param->matrix ? ZERO_MATRIX : ZERO_VECTOR;
        slice->offset = zero->shard_begin[kind] + unit->base[kind] + param->offset -
                        (kind == ZERO_VECTOR ? unit->elements[ZERO_MATRIX] : 0);
        if (gradient.region >= 0)
            slice->gradient = zero->regions[gradient.region].base + gradient.offset;
        if (second.region >= 0)
            slice->second = zero->regions[second.region].base + second.offset;
    }
}

static void cut_layout(struct ls_zero *zero)
{
    struct cursor at = {.zero = zero, .piece = zero->pieces};
    kind_layout(&at, ZERO_MATRIX);
    kind_layout(&at, ZERO_VECTOR);
    zero->shard_end = ls_round_up(at.shard, ZERO_ALIGN);
    at.shard = 0;
    for (int r = 0; r < zero->options.params->region_count; r++)
        region_layout(&at, r);
    zero->region_shard_elements = ls_round_up(at.shard, ZERO_ALIGN);
    for (int u = 0; u < zero->options.params->unit_count; u++) {
        struct zero_unit *unit = &zero->units[u];
        unit->send_base = zero->send_elements;
        zero->send_elements =
            ls_round_up(zero->send_elements + unit->moved[ZERO_MATRIX].packed, ZERO_ALIGN);
        for (int kind = 0; kind < 2; kind++) {
            const struct zero_parcel *parcel = &unit->moved[kind];
            unit->staging_bytes[kind] =
                (size_t)(parcel->packed * zero->ranks) * zero_kind_bytes(zero, kind);
            unit->operations += parcel->direct + (parcel->packed > 0);
        }
    }
}

void zero_layout(struct ls_zero *zero)
{
    const struct ls_zero_options *o = &zero->options;
    for (int u = 0; u < o->params->unit_count; u++) {
        const struct ls_unit *unit = &o->params->units[u];
        zero->units[u].slot = -1;
        if (!zero_has_unit(o, u))
            continue;
        zero->units[u].elements[ZERO_MATRIX] = unit->matrix_elements;
        zero->units[u].elements[ZERO_VECTOR] = unit->elements - unit->matrix_elements;
    }
    for (int r = 0; r < o->params->region_count; r++) {
        struct zero_region *region = &zero->regions[r];
        region->elements = zero_has_region(o, r) ? o->params->regions[r].elements : 0;
        region->base = zero->region_elements;
        zero->region_elements = ls_round_up(zero->region_elements + region->elements, ZERO_ALIGN);
    }
    for (int i = o->params->count - 1; i >= 0; i--) {
        const struct ls_param *param = &o->params->list[i];
        int gradient = zero_gradient_of(param).region;
        if (!zero_has(o, i))
            continue;
        if (gradient >= 0)
            zero->regions[gradient].name = param->name;
        if (param->second.region >= 0)
            zero->regions[param->second.region].name = param->name;
    }
    units_place(zero);
    slices_range(zero);
    if (zero->cut)
        cut_layout(zero);
    else
        whole_layout(zero);
    zero->gradient_elements = zero->cut ? zero->region_shard_elements : zero->region_elements;
    for (int i = 0; i < o->params->count; i++) {
        const struct ls_param *param = &zero->options.params->list[i];
        if (param->second.region != LS_REGION_OUTSIDE || !zero_has(o, i))
            continue;
        zero->slices[i].second = zero->gradient_elements;
        zero->gradient_elements =
            ls_round_up(zero->gradient_elements + zero->slices[i].room, ZERO_ALIGN);
    }
}
