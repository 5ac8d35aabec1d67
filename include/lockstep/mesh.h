/* lockstep/mesh.h - named axes over ranks.
 *
 * A mesh lays size(axis 0) x size(axis 1) x ... ranks out in row-major order: the last axis varies
 * fastest, so its neighbours are neighbouring ranks. The arithmetic is pure, without a network. */
#ifndef LOCKSTEP_MESH_H
#define LOCKSTEP_MESH_H

#include <lockstep/base.h>
#include <lockstep/comm.h>

LS_C_BEGIN

enum { LS_MESH_AXES_MAX = 8, LS_MESH_NAME_MAX = 15 };

/* A plain value: copy it freely. */
struct ls_mesh {
    int axis_count;
    char name[LS_MESH_AXES_MAX][LS_MESH_NAME_MAX + 1];
    int64_t size[LS_MESH_AXES_MAX];
};

/* Local. names[i] has sizes[i] >= 1; names are unique, not empty, at most LS_MESH_NAME_MAX bytes.
 * LS_EINVAL names the offending axis. */
int ls_mesh_init(struct ls_mesh *mesh, int axis_count, const char *const *names,
                 const int64_t *sizes, struct ls_error *error);
/* Local. Product of all sizes. */
int64_t ls_mesh_ranks(const struct ls_mesh *mesh);
/* Local. Index of the axis of that name, -1 if there is none. */
int ls_mesh_axis(const struct ls_mesh *mesh, const char *name);
/* Local. coordinates[axis_count] of rank, and back. */
void ls_mesh_coordinates(const struct ls_mesh *mesh, int64_t rank, int64_t *coordinates);
int64_t ls_mesh_rank(const struct ls_mesh *mesh, const int64_t *coordinates);
/* Groups: rank's group over a set of axes (bit i: axis i) has the ranks that share its coordinates
 * on all other axes, ascending. Several axes make one flat group (dp_shard and cp for the
 * gradients, say). Local: how many they are; which of them rank is; member i, 0 <= i < size. */
int64_t ls_mesh_group_size(const struct ls_mesh *mesh, unsigned axes);
int64_t ls_mesh_group_rank(const struct ls_mesh *mesh, int64_t rank, unsigned axes);
int64_t ls_mesh_group_member(const struct ls_mesh *mesh, int64_t rank, unsigned axes, int64_t i);
/* Collective over world (whose size must equal ls_mesh_ranks): the communicator of this rank's
 * group over these axes, ordered by mesh rank. Error texts call it name (ls_comm_set_name). */
int ls_mesh_split(const struct ls_mesh *mesh, struct ls_comm *world, unsigned axes,
                  const char *name, struct ls_comm **out, struct ls_error *error);

LS_C_END
#endif
