/* The steps of a redistribution: pure arithmetic, the same on every rank but for the counts. */
#include "dtensor/dtensor_private.h"

struct dtensor_cut dtensor_step_cut(const struct dtensor_step *step, struct ls_placement placement,
                                    int dim, int64_t index)
{
    if (!ls_placement_cuts(placement) || placement.dim != dim)
        placement = ls_replicate();
    return dtensor_cut_of(placement, step->shape[dim], step->parts, index);
}

static int64_t cut_count(const struct dtensor_step *step, struct ls_placement placement, int dim,
                         int64_t index)
{
    struct dtensor_cut cut = dtensor_step_cut(step, placement, dim, index);
    return dtensor_cut_count(&cut);
}

/* Local elements of a coordinate of the axis. */
static int64_t part_count(const struct dtensor_step *step, struct ls_placement placement,
                          int64_t index)
{
    int64_t count = 1;
    for (int dim = 0; dim < step->dims; dim++)
        count *= cut_count(step, placement, dim, index);
    return count;
}

/* The largest block that a coordinate sends another when both placements cut. */
static int64_t pair_count_max(const struct dtensor_step *step)
{
    struct ls_placement from = step->public.from, to = step->public.to;
    int64_t pair_max = 0, count = 1;
    if (from.dim != to.dim) {
        /* Coordinate 0 has the largest part of any cut. */
        for (int dim = 0; dim < step->dims; dim++)
            count *= ls_min(cut_count(step, from, dim, 0), cut_count(step, to, dim, 0));
        return count;
    }
    for (int64_t i = 0; i < step->parts; i++)
        for (int64_t j = 0; j < step->parts; j++)
            pair_max =
                ls_max(pair_max, dtensor_spans_count(dtensor_step_cut(step, from, from.dim, i),
                                                     dtensor_step_cut(step, to, to.dim, j)));
    for (int dim = 0; dim < step->dims; dim++)
        count *= dim == from.dim ? pair_max : step->shape[dim];
    return count;
}

/* Equal blocks that lie one behind the other in the tensor itself need no staging. */
static bool blocks_lie_in_order(const struct dtensor_step *step, struct ls_placement placement)
{
    if (placement.kind != LS_SHARD || step->shape[placement.dim] % step->parts != 0)
        return false;
    for (int dim = 0; dim < placement.dim; dim++)
        if (step->shape[dim] != 1)
            return false;
    return true;
}

/* All blocks of a step; too many to count are too many to have. */
static int64_t blocks_count(const struct dtensor_step *step)
{
    int64_t count;
    return __builtin_mul_overflow(step->parts, step->public.count, &count) ? INT64_MAX : count;
}

static void choose_op(struct dtensor_step *step)
{
    struct ls_placement from = step->public.from, to = step->public.to;
    bool adds = from.kind == LS_PARTIAL && from.reduce <= LS_REDUCE_AVG;
    struct ls_redistribute_step *public = &step->public;
    step->from_count = part_count(step, from, step->index);
    step->to_count = part_count(step, to, step->index);
    public->op = LS_STEP_LOCAL;
    if (step->parts == 1 || from.kind == LS_REPLICATE || to.kind == LS_PARTIAL)
        return;
    if (from.kind == LS_PARTIAL && to.kind == LS_REPLICATE) {
        public->op = adds ? LS_STEP_ALL_REDUCE : LS_STEP_ALL_GATHER;
        public->count = step->from_count;
        step->receive_count = adds ? 0 : blocks_count(step);
    } else if (from.kind == LS_PARTIAL) {
        public->op = adds ? LS_STEP_REDUCE_SCATTER : LS_STEP_ALL_TO_ALL;
        public->count = part_count(step, to, 0);
        step->send_count = blocks_lie_in_order(step, to) ? 0 : blocks_count(step);
        step->receive_count = !adds                             ? blocks_count(step)
                              : step->to_count == public->count ? 0
                                                                : public->count;
    } else if (to.kind == LS_REPLICATE) {
        public->op = LS_STEP_ALL_GATHER;
        public->count = part_count(step, from, 0);
        step->send_count = step->from_count == public->count ? 0 : public->count;
        step->receive_count = blocks_lie_in_order(step, from) ? 0 : blocks_count(step);
    } else {
        public->op = LS_STEP_ALL_TO_ALL;
        public->count = pair_count_max(step);
        step->send_count = step->receive_count = blocks_count(step);
    }
}

void dtensor_step_init(struct dtensor_step *step, struct ls_dtensor_spec *now,
                       const int64_t *coordinates, int axis, struct ls_placement to)
{
    *step = (struct dtensor_step){.public = {.axis = axis, .from = now->placement[axis], .to = to},
                                  .parts = now->mesh.size[axis],
                                  .index = coordinates[axis],
                                  .dims = now->dims};
    for (int dim = 0; dim < now->dims; dim++)
        step->shape[dim] = dtensor_local_size(now, coordinates, dim, axis);
    choose_op(step);
    now->placement[axis] = to;
}

/* True if the axes before `axis` cut dim in the same way in both layouts. */
static bool cut_alike_before(const struct ls_dtensor_spec *a, const struct ls_dtensor_spec *b,
                             int axis, int dim)
{
    for (int before = 0; before < axis; before++) {
        struct ls_placement p = a->placement[before], q = b->placement[before];
        bool p_cuts = ls_placement_cuts(p) && p.dim == dim;
        bool q_cuts = ls_placement_cuts(q) && q.dim == dim;
        if (p_cuts != q_cuts || (p_cuts && !ls_placement_equal(p, q)))
            return false;
    }
    return true;
}

/* What an axis becomes on the way from the last axis to the first. A shard below other shards of
 * its dim can be kept or made only where those stay; otherwise it is made whole and cut again
 * later. */
static struct ls_placement way_point(const struct ls_dtensor_spec *now,
                                     const struct ls_dtensor_spec *to, int axis)
{
    struct ls_placement p = now->placement[axis], q = to->placement[axis];
    if (ls_placement_cuts(q) && !cut_alike_before(now, to, axis, q.dim))
        return ls_replicate();
    if (q.kind == LS_PARTIAL && !ls_placement_equal(p, q) &&
        !(ls_placement_cuts(p) && q.reduce == LS_REDUCE_SUM))
        return ls_replicate();
    return q;
}

static int compare_check(const struct ls_dtensor_spec *from, const struct ls_dtensor_spec *to,
                         struct ls_error *error)
{
    char p[LS_PLACEMENT_TEXT_MAX], q[LS_PLACEMENT_TEXT_MAX];
    if (from->dtype != to->dtype || from->dims != to->dims ||
        memcmp(from->shape, to->shape, (size_t)from->dims * sizeof *from->shape) != 0)
        return ls_error_set(error, LS_EINVAL,
                            "a tensor cannot be redistributed to another type or shape (%s, %d "
                            "dims to %s, %d dims)",
                            ls_dtype_name(from->dtype), from->dims, ls_dtype_name(to->dtype),
                            to->dims);
    if (!dtensor_mesh_is(&from->mesh, &to->mesh))
        return ls_error_set(
            error, LS_EINVAL,
            "a tensor cannot be redistributed to another mesh; use ls_overlap between meshes");
    for (int axis = 0; axis < from->mesh.axis_count; axis++) {
        struct ls_placement a = from->placement[axis], b = to->placement[axis];
        if (from->dtype != LS_F32 && !ls_placement_equal(a, b) &&
            (a.kind == LS_PARTIAL || b.kind == LS_PARTIAL))
            return ls_error_set(error, LS_EINVAL,
                                "%s to %s on axis %s: only F32 can be reduced, this is %s",
                                ls_placement_text(a, p), ls_placement_text(b, q),
                                from->mesh.name[axis], ls_dtype_name(from->dtype));
    }
    return LS_OK;
}

int dtensor_plan_axes(const struct ls_dtensor_spec *from, const struct ls_dtensor_spec *to,
                      int64_t rank, struct dtensor_step steps[LS_REDISTRIBUTE_STEPS_MAX],
                      struct ls_error *error)
{
    struct ls_dtensor_spec now = *from;
    int64_t coordinates[LS_MESH_AXES_MAX];
    int count = 0, axes = from->mesh.axis_count, status = compare_check(from, to, error);
    if (status != LS_OK)
        return status;
    ls_mesh_coordinates(&from->mesh, rank, coordinates);
    for (int axis = axes - 1; axis >= 0; axis--) {
        struct ls_placement target = way_point(&now, to, axis);
        if (!ls_placement_equal(now.placement[axis], target))
            dtensor_step_init(&steps[count++], &now, coordinates, axis, target);
    }
    for (int axis = 0; axis < axes; axis++)
        if (!ls_placement_equal(now.placement[axis], to->placement[axis]))
            dtensor_step_init(&steps[count++], &now, coordinates, axis, to->placement[axis]);
    return count;
}

/* ---- steps or one exchange ------------------------------------------------------------------- */

bool dtensor_prefers_exchange(const struct ls_dtensor_spec *from, const struct ls_dtensor_spec *to,
                              const struct dtensor_step *steps, int count)
{
    struct dtensor_step first[LS_REDISTRIBUTE_STEPS_MAX];
    int moving = 0;
    int64_t received = 0;
    for (int axis = 0; axis < from->mesh.axis_count; axis++) {
        struct ls_placement p = from->placement[axis], q = to->placement[axis];
        if (!ls_placement_equal(p, q) && (p.kind == LS_PARTIAL || q.kind == LS_PARTIAL))
            return false;
    }
    for (int i = 0; i < count; i++)
        moving += steps[i].public.op != LS_STEP_LOCAL;
    if (count < 2 || moving == 0)
        return false;
    /* Judged by rank 0, which holds the largest parts, so that every rank decides alike. */
    dtensor_plan_axes(from, to, 0, first, NULL);
    for (int i = 0; i < count; i++)
        if (first[i].public.op != LS_STEP_LOCAL)
            received += first[i].public.count * (first[i].parts - 1);
    return ls_dtensor_local_shape(to, 0, NULL) <= received;
}

int ls_redistribute_plan(const struct ls_dtensor_spec *from, const struct ls_dtensor_spec *to,
                         int64_t rank, struct ls_redistribute_step *steps, struct ls_error *error)
{
    struct dtensor_step all[LS_REDISTRIBUTE_STEPS_MAX];
    int count = dtensor_plan_axes(from, to, rank, all, error);
    if (count > 0 && dtensor_prefers_exchange(from, to, all, count)) {
        *steps = (struct ls_redistribute_step){.op = LS_STEP_EXCHANGE, .axis = -1};
        for (int64_t r = 0; r < ls_mesh_ranks(&from->mesh); r++)
            steps->count += r == rank ? 0 : dtensor_exchange_count(from, r, to, rank);
        return 1;
    }
    for (int i = 0; i < count; i++)
        steps[i] = all[i].public;
    return count;
}
