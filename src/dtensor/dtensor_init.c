/* Tensors: making them of parts and of wholes. */
#include "dtensor/dtensor_private.h"

#include <lockstep/base/words.h>

#include <stdlib.h>

/* ---- communicators --------------------------------------------------------------------------- */

int ls_mesh_comms_init(struct ls_mesh_comms *comms, const struct ls_mesh *mesh,
                       struct ls_comm *world, struct ls_error *error)
{
    *comms = (struct ls_mesh_comms){.mesh = *mesh, .rank = ls_comm_rank(world)};
    int status =
        ls_mesh_split(mesh, world, (1u << mesh->axis_count) - 1, "mesh", &comms->all, error);
    for (int axis = 0; status == LS_OK && axis < mesh->axis_count; axis++)
        status =
            ls_mesh_split(mesh, world, 1u << axis, mesh->name[axis], &comms->axis[axis], error);
    if (status != LS_OK)
        ls_mesh_comms_release(comms);
    return status;
}

void ls_mesh_comms_release(struct ls_mesh_comms *comms)
{
    for (int axis = LS_MESH_AXES_MAX - 1; axis >= 0; axis--)
        ls_comm_free(comms->axis[axis]);
    ls_comm_free(comms->all);
    free(comms->memory);
    *comms = (struct ls_mesh_comms){0};
}

int dtensor_comms_check(const struct ls_dtensor *tensor, const struct ls_mesh_comms *comms,
                        const char *what, struct ls_error *error)
{
    const struct ls_mesh *mesh = &tensor->spec.mesh;
    if (!dtensor_mesh_is(mesh, &comms->mesh))
        return ls_error_set(error, LS_EINVAL,
                            "%s: the tensor's mesh (%d axes, %lld ranks) is not that of the "
                            "communicators (%d axes, %lld ranks)",
                            what, mesh->axis_count, (long long)ls_mesh_ranks(mesh),
                            comms->mesh.axis_count, (long long)ls_mesh_ranks(&comms->mesh));
    if (tensor->rank != comms->rank)
        return ls_error_set(error, LS_EINVAL,
                            "%s: the part is of mesh rank %lld, the communicators of rank %lld",
                            what, (long long)tensor->rank, (long long)comms->rank);
    return LS_OK;
}

int dtensor_memory(struct ls_mesh_comms *comms, const int64_t *counts, int count,
                   enum ls_dtype dtype, void **buffers, struct ls_error *error)
{
    enum { ALIGNMENT = 64 };
    size_t bytes[LS_MESH_AXES_MAX] = {0}, total = 0;
    bool fits = true;
    LS_ASSERT(count <= LS_MESH_AXES_MAX);
    for (int i = 0; i < count; i++) {
        fits = fits && ls_size_mul((size_t)counts[i], ls_dtype_bytes(dtype), &bytes[i]) &&
               ls_size_add(bytes[i], ALIGNMENT - 1, &bytes[i]);
        bytes[i] -= bytes[i] % ALIGNMENT;
        fits = fits && ls_size_add(total, bytes[i], &total);
    }
    if (!fits || total > comms->memory_bytes) {
        free(comms->memory);
        comms->memory = fits ? aligned_alloc(ALIGNMENT, total) : NULL;
        comms->memory_bytes = comms->memory ? total : 0;
        if (!comms->memory)
            return ls_no_memory(error, "for a transfer buffer of %zu bytes",
                                fits ? total : SIZE_MAX);
    }
    char *next = comms->memory;
    for (int i = 0; i < count; i++) {
        buffers[i] = counts[i] > 0 ? next : NULL;
        next = counts[i] > 0 ? next + bytes[i] : next;
    }
    return LS_OK;
}

/* ---- tensors --------------------------------------------------------------------------------- */

int ls_dtensor_init(struct ls_dtensor *tensor, const struct ls_dtensor_spec *spec, int64_t rank,
                    void *data, struct ls_error *error)
{
    *tensor = (struct ls_dtensor){.spec = *spec, .rank = rank, .data = data};
    if (rank < 0 || rank >= ls_mesh_ranks(&spec->mesh))
        return ls_error_set(error, LS_EINVAL, "rank %lld of a mesh of %lld", (long long)rank,
                            (long long)ls_mesh_ranks(&spec->mesh));
    tensor->local_count = ls_dtensor_local_shape(spec, rank, tensor->local_shape);
    if (data)
        return LS_OK;
    tensor->data =
        calloc((size_t)ls_max(tensor->local_count, 1), ls_dtype_bytes(tensor->spec.dtype));
    tensor->owns_data = tensor->data != NULL;
    if (!tensor->data)
        return ls_no_memory(error, "for a tensor of %lld elements of %s",
                            (long long)tensor->local_count, ls_dtype_name(spec->dtype));
    return LS_OK;
}

void ls_dtensor_release(struct ls_dtensor *tensor)
{
    if (tensor->owns_data)
        free(tensor->data);
    *tensor = (struct ls_dtensor){0};
}

/* ---- from parts ------------------------------------------------------------------------------ */

/* What each rank brings: type, dims, local shape. */
enum { WORDS = 2 + LS_DTENSOR_DIMS_MAX };

/* The sizes along the axes that cut a dim, added; the others at coordinate 0. */
static int64_t global_size(const struct ls_mesh *mesh, const struct ls_placement *placements,
                           int dims, int dim, const int64_t *brought)
{
    int64_t coordinates[LS_MESH_AXES_MAX], size = 0;
    for (int64_t rank = 0; rank < ls_mesh_ranks(mesh); rank++) {
        bool counts = true;
        ls_mesh_coordinates(mesh, rank, coordinates);
        for (int axis = 0; axis < mesh->axis_count; axis++) {
            struct ls_placement p = placements[axis];
            bool cuts = ls_placement_cuts(p) && (p.dim == dim || p.dim + dims == dim);
            counts = counts && (cuts || coordinates[axis] == 0);
        }
        /* Absurd sizes do not overflow: they are found to be no shards. */
        if (counts)
            size = (int64_t)((uint64_t)size + (uint64_t)brought[rank * WORDS + 2 + dim]);
    }
    return size;
}

static int parts_check(const struct ls_dtensor_spec *spec, const int64_t *brought,
                       struct ls_error *error)
{
    int64_t shape[LS_DTENSOR_DIMS_MAX];
    for (int64_t rank = 0; rank < ls_mesh_ranks(&spec->mesh); rank++) {
        const int64_t *words = brought + rank * WORDS;
        if (words[0] != brought[0] || words[1] != brought[1])
            return ls_error_set(
                error, LS_EINVAL, "rank %lld passed %lld dims of type %s, rank 0 %lld of %s",
                (long long)rank, (long long)words[1], ls_dtype_name((enum ls_dtype)words[0]),
                (long long)brought[1], ls_dtype_name((enum ls_dtype)brought[0]));
        ls_dtensor_local_shape(spec, rank, shape);
        if (memcmp(shape, words + 2, (size_t)spec->dims * sizeof *shape) != 0)
            return ls_error_set(error, LS_EINVAL,
                                "rank %lld passed a part of shape %s; the parts make a tensor of "
                                "shape %s, of which it must have shape %s",
                                (long long)rank, ls_shape_text(spec->dims, words + 2).text,
                                ls_shape_text(spec->dims, spec->shape).text,
                                ls_shape_text(spec->dims, shape).text);
    }
    return LS_OK;
}

int ls_from_local(struct ls_dtensor *tensor, enum ls_dtype dtype, int dims,
                  const int64_t *local_shape, void *data, const struct ls_placement *placements,
                  struct ls_mesh_comms *comms, struct ls_error *error)
{
    int64_t ranks = ls_mesh_ranks(&comms->mesh), mine[WORDS] = {dtype, dims};
    int64_t shape[LS_DTENSOR_DIMS_MAX], *brought = NULL;
    struct ls_dtensor_spec spec;
    int status = LS_OK;
    *tensor = (struct ls_dtensor){0};
    if (dims < 0 || dims > LS_DTENSOR_DIMS_MAX)
        status = ls_error_set(error, LS_EINVAL, "a part of %d dims: 0 to %d are possible", dims,
                              LS_DTENSOR_DIMS_MAX);
    if (status == LS_OK && !(brought = calloc((size_t)ranks, sizeof mine)))
        status = ls_no_memory(error, "for the shapes of %lld parts", (long long)ranks);
    status = ls_comm_agree(comms->all, status, error);
    if (status != LS_OK)
        goto out;
    memcpy(mine + 2, local_shape, (size_t)dims * sizeof *local_shape);
    status = ls_all_gather(comms->all, mine, brought, WORDS, LS_I64, error);
    if (status != LS_OK)
        goto out;
    for (int dim = 0; dim < dims; dim++)
        shape[dim] = global_size(&comms->mesh, placements, dims, dim, brought);
    status = ls_dtensor_spec_init(&spec, dtype, dims, shape, &comms->mesh, placements, error);
    if (status == LS_OK)
        status = parts_check(&spec, brought, error);
    if (status == LS_OK)
        status = ls_dtensor_init(tensor, &spec, comms->rank, data, error);
out:
    free(brought);
    return status;
}

/* ---- from and to wholes ---------------------------------------------------------------------- */

/* True if this rank's part is what adds to nothing: behind coordinate 0 of a Partial(sum). */
static bool is_neutral(const struct ls_dtensor_spec *spec, int64_t rank)
{
    int64_t coordinates[LS_MESH_AXES_MAX];
    ls_mesh_coordinates(&spec->mesh, rank, coordinates);
    for (int axis = 0; axis < spec->mesh.axis_count; axis++)
        if (spec->placement[axis].kind == LS_PARTIAL &&
            spec->placement[axis].reduce == LS_REDUCE_SUM && coordinates[axis] > 0)
            return true;
    return false;
}

int dtensor_partial_check(const struct ls_dtensor_spec *spec, struct ls_error *error)
{
    char text[LS_PLACEMENT_TEXT_MAX];
    for (int axis = 0; axis < spec->mesh.axis_count; axis++)
        if (spec->placement[axis].kind == LS_PARTIAL && spec->dtype != LS_F32)
            return ls_error_set(error, LS_EINVAL,
                                "%s on axis %s: only F32 can be reduced, this is %s",
                                ls_placement_text(spec->placement[axis], text),
                                spec->mesh.name[axis], ls_dtype_name(spec->dtype));
    return LS_OK;
}

int ls_distribute_replicated(struct ls_dtensor *tensor, const void *full, struct ls_error *error)
{
    size_t bytes = ls_dtype_bytes(tensor->spec.dtype);
    struct ls_runs runs;
    struct ls_run run;
    int status = dtensor_partial_check(&tensor->spec, error);
    if (status != LS_OK)
        return status;
    if (is_neutral(&tensor->spec, tensor->rank)) {
        dtensor_fill_neutral(tensor->data, tensor->local_count);
        return LS_OK;
    }
    ls_runs_init(&runs, &tensor->spec, tensor->rank);
    while (ls_runs_next(&runs, &run))
        memcpy((char *)tensor->data + (size_t)run.local * bytes,
               (const char *)full + (size_t)run.global * bytes, (size_t)run.count * bytes);
    return LS_OK;
}

int ls_full_tensor(const struct ls_dtensor *tensor, void *full, struct ls_mesh_comms *comms,
                   struct ls_error *error)
{
    struct ls_placement placements[LS_MESH_AXES_MAX];
    struct ls_dtensor whole = {.rank = tensor->rank, .data = full};
    for (int axis = 0; axis < LS_MESH_AXES_MAX; axis++)
        placements[axis] = ls_replicate();
    int status = ls_dtensor_spec_place(&whole.spec, &tensor->spec, placements, error);
    if (status != LS_OK)
        return status;
    whole.local_count = ls_dtensor_local_shape(&whole.spec, whole.rank, whole.local_shape);
    return ls_redistribute(tensor, &whole, comms, error);
}
