/* A whole on the first rank goes out axis by axis: on each, the ranks at coordinate 0 of that axis
 * and of those after it hold what the axes before left, and send the other coordinates theirs. */
#include "dtensor/dtensor_private.h"

/* The ways of this rank's part, at most one step an axis; axes of size 1 are passed over. */
struct route {
    struct dtensor_step step[LS_MESH_AXES_MAX];
    int count;
};

/* True if a rank has a part in the step of an axis: it is at coordinate 0 of all later ones. */
static bool takes_part(const struct ls_mesh *mesh, const int64_t *coordinates, int axis)
{
    for (int later = axis + 1; later < mesh->axis_count; later++)
        if (coordinates[later] != 0)
            return false;
    return true;
}

static void route_init(struct route *route, const struct ls_dtensor_spec *spec, int64_t rank)
{
    struct ls_dtensor_spec now = *spec;
    int64_t coordinates[LS_MESH_AXES_MAX];
    ls_mesh_coordinates(&spec->mesh, rank, coordinates);
    route->count = 0;
    for (int axis = 0; axis < spec->mesh.axis_count; axis++)
        now.placement[axis] = ls_replicate();
    for (int axis = 0; axis < spec->mesh.axis_count; axis++) {
        struct dtensor_step step;
        dtensor_step_init(&step, &now, coordinates, axis, spec->placement[axis]);
        if (step.parts > 1 && takes_part(&spec->mesh, coordinates, axis))
            route->step[route->count++] = step;
    }
}

/* Coordinate 0 of the axis has in; every coordinate gets its out. */
static int step_scatter(const struct dtensor_step *step, enum ls_dtype dtype, const void *in,
                        void *out, void *block, struct ls_comm *comm, struct ls_error *error)
{
    size_t bytes = ls_dtype_bytes(dtype);
    struct ls_placement to = step->public.to;
    int status = LS_OK;
    if (to.kind == LS_PARTIAL && to.reduce == LS_REDUCE_SUM) {
        if (step->index > 0)
            dtensor_fill_neutral(out, step->to_count);
        else
            dtensor_copy(out, in, (size_t)step->to_count * bytes);
        return LS_OK;
    }
    if (!ls_placement_cuts(to)) {
        if (step->index == 0)
            dtensor_copy(out, in, (size_t)step->to_count * bytes);
        return ls_broadcast(comm, out, step->to_count, dtype, 0, error);
    }
    if (step->index > 0)
        return step->to_count > 0 ? ls_recv(comm, out, step->to_count, dtype, 0, 0, error) : LS_OK;
    dtensor_pack(step, bytes, 0, 0, in, out);
    for (int64_t j = 1; j < step->parts && status == LS_OK; j++) {
        size_t used = dtensor_pack(step, bytes, 0, j, in, block);
        if (used > 0)
            status = ls_send(comm, block, (int64_t)(used / bytes), dtype, (int)j, 0, error);
    }
    return status;
}

/* Two buffers between steps and a block to send. The last step writes to the tensor, and sends no
 * block that is larger than what it keeps. */
static int buffers_take(struct ls_mesh_comms *comms, const struct route *route, enum ls_dtype dtype,
                        void *buffers[3], struct ls_error *error)
{
    int64_t counts[3] = {0};
    for (int i = 0; i < route->count; i++) {
        const struct dtensor_step *step = &route->step[i];
        bool sends = step->index == 0 && ls_placement_cuts(step->public.to);
        counts[2] = ls_max(counts[2], sends ? step->to_count : 0);
        if (i + 1 < route->count)
            counts[i % 2] = ls_max(counts[i % 2], step->to_count);
    }
    return dtensor_memory(comms, counts, 3, dtype, buffers, error);
}

int ls_distribute(struct ls_dtensor *tensor, const void *full, struct ls_mesh_comms *comms,
                  struct ls_error *error)
{
    enum ls_dtype dtype = tensor->spec.dtype;
    void *buffers[3] = {NULL};
    struct route route = {.count = 0};
    int status = dtensor_comms_check(tensor, comms, "distribute", error);
    if (status == LS_OK && comms->rank == 0 && !full && ls_dtensor_count(&tensor->spec) > 0)
        status = ls_error_set(error, LS_EINVAL, "distribute: rank 0 passed no tensor");
    if (status == LS_OK)
        status = dtensor_partial_check(&tensor->spec, error);
    if (status == LS_OK) {
        route_init(&route, &tensor->spec, tensor->rank);
        status = buffers_take(comms, &route, dtype, buffers, error);
    }
    status = ls_comm_agree(comms->all, status, error);
    const void *in = full;
    for (int i = 0; i < route.count && status == LS_OK; i++) {
        void *out = i + 1 == route.count ? tensor->data : buffers[i % 2];
        status = step_scatter(&route.step[i], dtype, in, out, buffers[2],
                              comms->axis[route.step[i].public.axis], error);
        in = out;
    }
    if (status == LS_OK && route.count == 0)
        dtensor_copy(tensor->data, in, (size_t)tensor->local_count * ls_dtype_bytes(dtype));
    return status;
}
