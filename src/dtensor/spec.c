/* Placements and layouts: what is allowed, and the local shapes that follow. */
#include "dtensor/dtensor_private.h"

#include <stdio.h>

static const char *const reduce_names[] = {"sum", "avg", "max", "min"};

bool ls_placement_equal(struct ls_placement a, struct ls_placement b)
{
    if (a.kind != b.kind)
        return false;
    switch (a.kind) {
    case LS_REPLICATE:
        return true;
    case LS_SHARD:
        return a.dim == b.dim;
    case LS_STRIDED_SHARD:
        return a.dim == b.dim && a.split_factor == b.split_factor;
    case LS_PARTIAL:
        return a.reduce == b.reduce;
    }
    return false;
}

const char *ls_placement_text(struct ls_placement placement, char text[LS_PLACEMENT_TEXT_MAX])
{
    switch (placement.kind) {
    case LS_REPLICATE:
        snprintf(text, LS_PLACEMENT_TEXT_MAX, "Replicate");
        break;
    case LS_SHARD:
        snprintf(text, LS_PLACEMENT_TEXT_MAX, "Shard(%d)", placement.dim);
        break;
    case LS_STRIDED_SHARD:
        snprintf(text, LS_PLACEMENT_TEXT_MAX, "StridedShard(%d, %lld)", placement.dim,
                 (long long)placement.split_factor);
        break;
    case LS_PARTIAL:
        snprintf(text, LS_PLACEMENT_TEXT_MAX, "Partial(%s)", reduce_names[placement.reduce]);
        break;
    }
    return text;
}

/* ---- making ---------------------------------------------------------------------------------- */

static int shape_check(enum ls_dtype dtype, int dims, const int64_t *shape, struct ls_error *error)
{
    if (dims < 0 || dims > LS_DTENSOR_DIMS_MAX)
        return ls_error_set(error, LS_EINVAL, "a tensor of %d dims: 0 to %d are possible", dims,
                            LS_DTENSOR_DIMS_MAX);
    /* Sizes of 0 do not excuse the others: products of some dims are taken, too. */
    int64_t bytes = (int64_t)ls_dtype_bytes(dtype);
    for (int dim = 0; dim < dims; dim++) {
        if (shape[dim] < 0)
            return ls_error_set(error, LS_EINVAL, "dim %d of a tensor has size %lld", dim,
                                (long long)shape[dim]);
        if (__builtin_mul_overflow(bytes, ls_max(shape[dim], 1), &bytes))
            return ls_error_set(error, LS_EINVAL, "dim %d of size %lld: more bytes than INT64_MAX",
                                dim, (long long)shape[dim]);
    }
    return LS_OK;
}

static int placement_check(const struct ls_dtensor_spec *spec, int axis,
                           struct ls_placement *placement, struct ls_error *error)
{
    char text[LS_PLACEMENT_TEXT_MAX], other[LS_PLACEMENT_TEXT_MAX];
    const char *name = spec->mesh.name[axis];
    ls_placement_text(*placement, text);
    if (ls_placement_cuts(*placement)) {
        if (placement->dim < -spec->dims || placement->dim >= spec->dims)
            return ls_error_set(error, LS_EINVAL, "%s on axis %s: the tensor has %d dims", text,
                                name, spec->dims);
        if (placement->kind == LS_STRIDED_SHARD && placement->split_factor < 1)
            return ls_error_set(error, LS_EINVAL, "%s on axis %s: the split factor is at least 1",
                                text, name);
        if (placement->dim < 0)
            placement->dim += spec->dims;
        return LS_OK;
    }
    for (int before = 0; placement->kind == LS_PARTIAL && before < axis; before++) {
        struct ls_placement earlier = spec->placement[before];
        bool linear = placement->reduce <= LS_REDUCE_AVG && earlier.reduce <= LS_REDUCE_AVG;
        if (earlier.kind == LS_PARTIAL && earlier.reduce != placement->reduce && !linear)
            return ls_error_set(error, LS_EINVAL,
                                "%s on axis %s beside %s on axis %s: their order would matter; "
                                "use one reduction (sum and avg may be mixed)",
                                text, name, ls_placement_text(earlier, other),
                                spec->mesh.name[before]);
    }
    return LS_OK;
}

int ls_dtensor_spec_init(struct ls_dtensor_spec *spec, enum ls_dtype dtype, int dims,
                         const int64_t *shape, const struct ls_mesh *mesh,
                         const struct ls_placement *placements, struct ls_error *error)
{
    *spec = (struct ls_dtensor_spec){.dtype = dtype, .dims = dims, .mesh = *mesh};
    int status = shape_check(dtype, dims, shape, error);
    if (status != LS_OK)
        return status;
    memcpy(spec->shape, shape, (size_t)dims * sizeof *shape);
    for (int axis = 0; status == LS_OK && axis < mesh->axis_count; axis++) {
        spec->placement[axis] = placements[axis];
        status = placement_check(spec, axis, &spec->placement[axis], error);
    }
    return status;
}

int ls_dtensor_spec_place(struct ls_dtensor_spec *spec, const struct ls_dtensor_spec *like,
                          const struct ls_placement *placements, struct ls_error *error)
{
    struct ls_dtensor_spec same = *like; /* spec may be like */
    return ls_dtensor_spec_init(spec, same.dtype, same.dims, same.shape, &same.mesh, placements,
                                error);
}

/* ---- shapes ---------------------------------------------------------------------------------- */

int64_t ls_dtensor_count(const struct ls_dtensor_spec *spec)
{
    int64_t count = 1;
    for (int dim = 0; dim < spec->dims; dim++)
        count *= spec->shape[dim];
    return count;
}

int64_t dtensor_local_size(const struct ls_dtensor_spec *spec, const int64_t *coordinates, int dim,
                           int skip_axis)
{
    int64_t size = spec->shape[dim];
    for (int axis = 0; axis < spec->mesh.axis_count; axis++) {
        struct ls_placement placement = spec->placement[axis];
        if (axis == skip_axis || !ls_placement_cuts(placement) || placement.dim != dim)
            continue;
        struct dtensor_cut cut =
            dtensor_cut_of(placement, size, spec->mesh.size[axis], coordinates[axis]);
        size = dtensor_cut_count(&cut);
    }
    return size;
}

int64_t ls_dtensor_local_shape(const struct ls_dtensor_spec *spec, int64_t rank,
                               int64_t *local_shape)
{
    int64_t coordinates[LS_MESH_AXES_MAX], count = 1;
    ls_mesh_coordinates(&spec->mesh, rank, coordinates);
    for (int dim = 0; dim < spec->dims; dim++) {
        int64_t size = dtensor_local_size(spec, coordinates, dim, -1);
        count *= size;
        if (local_shape)
            local_shape[dim] = size;
    }
    return count;
}
