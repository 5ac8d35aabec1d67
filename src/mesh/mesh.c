/* Ranks, their coordinates on named axes, and the groups over some of the axes. */
#include <lockstep/mesh.h>

#include <stdlib.h>
#include <string.h>

static int axis_check(const struct ls_mesh *mesh, int axis, const char *name, int64_t size,
                      struct ls_error *error)
{
    if (!name || !name[0])
        return ls_error_set(error, LS_EINVAL, "mesh axis %d has no name", axis);
    if (strlen(name) > LS_MESH_NAME_MAX)
        return ls_error_set(error, LS_EINVAL,
                            "mesh axis %d: the name %.40s is longer than %d bytes", axis, name,
                            LS_MESH_NAME_MAX);
    if (ls_mesh_axis(mesh, name) >= 0)
        return ls_error_set(error, LS_EINVAL,
                            "mesh axis %d: the name %s is already that of axis %d", axis, name,
                            ls_mesh_axis(mesh, name));
    if (size < 1)
        return ls_error_set(error, LS_EINVAL, "mesh axis %s has size %lld; at least 1 is needed",
                            name, (long long)size);
    int64_t ranks;
    if (__builtin_mul_overflow(ls_mesh_ranks(mesh), size, &ranks))
        return ls_error_set(error, LS_EINVAL, "mesh axis %s of size %lld: too many ranks in all",
                            name, (long long)size);
    return LS_OK;
}

int ls_mesh_init(struct ls_mesh *mesh, int axis_count, const char *const *names,
                 const int64_t *sizes, struct ls_error *error)
{
    *mesh = (struct ls_mesh){0};
    if (axis_count < 0 || axis_count > LS_MESH_AXES_MAX)
        return ls_error_set(error, LS_EINVAL, "a mesh of %d axes: 0 to %d are possible", axis_count,
                            LS_MESH_AXES_MAX);
    for (int axis = 0; axis < axis_count; axis++) {
        int status = axis_check(mesh, axis, names[axis], sizes[axis], error);
        if (status != LS_OK)
            return status;
        strcpy(mesh->name[axis], names[axis]);
        mesh->size[axis] = sizes[axis];
        mesh->axis_count = axis + 1;
    }
    return LS_OK;
}

int64_t ls_mesh_ranks(const struct ls_mesh *mesh)
{
    int64_t ranks = 1;
    for (int axis = 0; axis < mesh->axis_count; axis++)
        ranks *= mesh->size[axis];
    return ranks;
}

int ls_mesh_axis(const struct ls_mesh *mesh, const char *name)
{
    for (int axis = 0; axis < mesh->axis_count; axis++)
        if (strcmp(mesh->name[axis], name) == 0)
            return axis;
    return -1;
}

void ls_mesh_coordinates(const struct ls_mesh *mesh, int64_t rank, int64_t *coordinates)
{
    for (int axis = mesh->axis_count - 1; axis >= 0; axis--) {
        coordinates[axis] = rank % mesh->size[axis];
        rank /= mesh->size[axis];
    }
}

int64_t ls_mesh_rank(const struct ls_mesh *mesh, const int64_t *coordinates)
{
    int64_t rank = 0;
    for (int axis = 0; axis < mesh->axis_count; axis++)
        rank = rank * mesh->size[axis] + coordinates[axis];
    return rank;
}

int64_t ls_mesh_group_size(const struct ls_mesh *mesh, unsigned axes)
{
    int64_t size = 1;
    LS_ASSERT(axes >> mesh->axis_count == 0);
    for (int axis = 0; axis < mesh->axis_count; axis++)
        size *= axes >> axis & 1 ? mesh->size[axis] : 1;
    return size;
}

int64_t ls_mesh_group_rank(const struct ls_mesh *mesh, int64_t rank, unsigned axes)
{
    int64_t coordinates[LS_MESH_AXES_MAX], within = 0;
    ls_mesh_coordinates(mesh, rank, coordinates);
    for (int axis = 0; axis < mesh->axis_count; axis++)
        if (axes >> axis & 1)
            within = within * mesh->size[axis] + coordinates[axis];
    return within;
}

int64_t ls_mesh_group_member(const struct ls_mesh *mesh, int64_t rank, unsigned axes, int64_t i)
{
    int64_t coordinates[LS_MESH_AXES_MAX];
    ls_mesh_coordinates(mesh, rank, coordinates);
    /* The digits of i over these axes, last axis fastest: ascending ranks. */
    for (int axis = mesh->axis_count - 1; axis >= 0; axis--) {
        if (axes >> axis & 1) {
            coordinates[axis] = i % mesh->size[axis];
            i /= mesh->size[axis];
        }
    }
    LS_ASSERT(i == 0);
    return ls_mesh_rank(mesh, coordinates);
}

int ls_mesh_split(const struct ls_mesh *mesh, struct ls_comm *world, unsigned axes,
                  const char *name, struct ls_comm **out, struct ls_error *error)
{
    *out = NULL;
    if (ls_mesh_ranks(mesh) != ls_comm_size(world))
        return ls_error_set(error, LS_EINVAL, "a mesh of %lld ranks over a communicator of %d",
                            (long long)ls_mesh_ranks(mesh), ls_comm_size(world));
    int64_t size = ls_mesh_group_size(mesh, axes);
    int *members = calloc((size_t)size, sizeof *members), status = LS_OK;
    if (!members)
        status = ls_no_memory(error, "for a group of %ld ranks", (long)size);
    status = ls_comm_agree(world, status, error);
    for (int64_t i = 0; i < size && !status; i++)
        members[i] = (int)ls_mesh_group_member(mesh, ls_comm_rank(world), axes, i);
    if (!status)
        status = ls_comm_group(world, members, (int)size, out, error);
    if (!status)
        ls_comm_set_name(*out, name);
    free(members);
    return status;
}
