/* Which elements of the whole a rank holds. Each cut keeps the order of indices, so runs ascend
 * both globally and locally, and two layouts are intersected like two sorted lists. */
#include "dtensor/dtensor_private.h"

/* The global index of element `local` of a dim; *run = how many follow on from there. local is less
 * than the dim's local size. */
static int64_t locate(const struct ls_dtensor_spec *spec, const int64_t *coordinates, int dim,
                      int64_t local, int64_t *run)
{
    struct dtensor_cut cuts[LS_MESH_AXES_MAX];
    int count = 0;
    int64_t size = spec->shape[dim];
    for (int axis = 0; axis < spec->mesh.axis_count; axis++) {
        struct ls_placement placement = spec->placement[axis];
        if (!ls_placement_cuts(placement) || placement.dim != dim)
            continue;
        cuts[count] = dtensor_cut_of(placement, size, spec->mesh.size[axis], coordinates[axis]);
        size = dtensor_cut_count(&cuts[count++]);
    }
    *run = size - local;
    while (count-- > 0) {
        int64_t follow;
        local = dtensor_cut_locate(&cuts[count], local, &follow);
        *run = ls_min(*run, follow);
    }
    return local;
}

void ls_dtensor_offset(const struct ls_dtensor_spec *spec, int64_t rank, int64_t *offset)
{
    int64_t coordinates[LS_MESH_AXES_MAX], run;
    ls_mesh_coordinates(&spec->mesh, rank, coordinates);
    for (int dim = 0; dim < spec->dims; dim++)
        offset[dim] = dtensor_local_size(spec, coordinates, dim, -1) > 0
                          ? locate(spec, coordinates, dim, 0, &run)
                          : spec->shape[dim];
}

/* The run at runs->index, and the index behind it. */
static void read_ahead(struct ls_runs *runs)
{
    const struct ls_dtensor_spec *spec = runs->spec;
    int64_t global = 0, run = 1;
    runs->next.count = 0;
    if (runs->ended)
        return;
    for (int dim = 0; dim <= runs->last; dim++)
        global =
            global * spec->shape[dim] + locate(spec, runs->coordinate, dim, runs->index[dim], &run);
    runs->next = (struct ls_run){global * runs->inner, runs->local, run * runs->inner};
    runs->local += runs->next.count;
    int dim = runs->last;
    runs->ended = dim < 0;
    if (dim < 0)
        return;
    runs->index[dim] += run;
    for (; runs->index[dim] == runs->local_shape[dim]; runs->index[dim]++) {
        runs->index[dim--] = 0;
        runs->ended = dim < 0;
        if (dim < 0)
            return;
    }
}

void ls_runs_init(struct ls_runs *runs, const struct ls_dtensor_spec *spec, int64_t rank)
{
    *runs = (struct ls_runs){.spec = spec, .inner = 1, .last = -1};
    ls_mesh_coordinates(&spec->mesh, rank, runs->coordinate);
    runs->ended = ls_dtensor_local_shape(spec, rank, runs->local_shape) == 0;
    /* A part as long as its dim is the dim, in order. */
    for (int dim = 0; dim < spec->dims; dim++)
        if (runs->local_shape[dim] != spec->shape[dim])
            runs->last = dim;
    for (int dim = runs->last + 1; dim < spec->dims; dim++)
        runs->inner *= spec->shape[dim];
    read_ahead(runs);
}

bool ls_runs_next(struct ls_runs *runs, struct ls_run *run)
{
    *run = runs->next;
    if (run->count == 0)
        return false;
    do {
        read_ahead(runs);
        if (runs->next.count == 0 || runs->next.global != run->global + run->count)
            return true;
        run->count += runs->next.count;
    } while (true);
}

/* False if the parts are apart on some dim: then no run need be looked at. */
static bool bounds_meet(const struct ls_runs *a, const struct ls_runs *b)
{
    for (int dim = 0; dim < a->spec->dims; dim++) {
        int64_t a_size = a->local_shape[dim], b_size = b->local_shape[dim], run;
        if (a_size == 0 || b_size == 0 ||
            locate(a->spec, a->coordinate, dim, a_size - 1, &run) <
                locate(b->spec, b->coordinate, dim, 0, &run) ||
            locate(b->spec, b->coordinate, dim, b_size - 1, &run) <
                locate(a->spec, a->coordinate, dim, 0, &run))
            return false;
    }
    return true;
}

void ls_overlap_init(struct ls_overlap *overlap, const struct ls_dtensor_spec *from,
                     int64_t from_rank, const struct ls_dtensor_spec *to, int64_t to_rank)
{
    LS_ASSERT(from->dims == to->dims &&
              memcmp(from->shape, to->shape, (size_t)from->dims * sizeof *from->shape) == 0);
    ls_runs_init(&overlap->from_runs, from, from_rank);
    ls_runs_init(&overlap->to_runs, to, to_rank);
    overlap->more = bounds_meet(&overlap->from_runs, &overlap->to_runs) &&
                    ls_runs_next(&overlap->from_runs, &overlap->from) &&
                    ls_runs_next(&overlap->to_runs, &overlap->to);
}

bool ls_overlap_next(struct ls_overlap *overlap, struct ls_copy *copy)
{
    struct ls_run *from = &overlap->from, *to = &overlap->to;
    while (overlap->more) {
        int64_t first = ls_max(from->global, to->global);
        int64_t from_end = from->global + from->count, to_end = to->global + to->count;
        *copy =
            (struct ls_copy){from->local + (first - from->global), to->local + (first - to->global),
                             ls_min(from_end, to_end) - first};
        if (from_end < to_end)
            overlap->more = ls_runs_next(&overlap->from_runs, from);
        else
            overlap->more = ls_runs_next(&overlap->to_runs, to);
        if (copy->count > 0)
            return true;
    }
    return false;
}
