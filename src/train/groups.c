/* The groups of ranks that a layout makes. */
#include "trainer.h"

enum { PP = LS_AXIS_PP, DP_REPLICATE, DP_SHARD, CP, TP };

/* One group: the axes it spans, and where its communicator goes. */
struct group {
    const char *name;
    struct ls_comm **comm;
    int axes[LS_AXES], count;
};

static int group_open(const struct ls_mesh *mesh, struct ls_comm *world, const struct group *group,
                      struct ls_error *error)
{
    int status = ls_mesh_split(mesh, world, group->axes, group->count, group->comm, error);
    if (!status)
        ls_comm_set_name(*group->comm, group->name);
    return status;
}

int groups_open(const struct ls_layout *layout, struct ls_comm *world, struct train_groups *groups,
                struct ls_error *error)
{
    struct ls_mesh mesh;
    ls_layout_mesh(layout, &mesh);
    bool sharded = layout->zero > 0;
    const struct group list[] = {
        {"pp", &groups->pp, {PP}, 1},
        {"cp", &groups->cp, {CP}, 1},
        {"tp", &groups->tp, {TP}, 1},
        {"dp", &groups->dp, {DP_REPLICATE, DP_SHARD}, 2},
        {"dp_shard", &groups->dp_shard, {DP_SHARD}, 1},
        {"dp_replicate", &groups->dp_replicate, {DP_REPLICATE}, 1},
        {"shard", &groups->shard, {sharded ? DP_SHARD : CP, CP}, sharded ? 2 : 1},
        {"replicate", &groups->replicate, {DP_REPLICATE, DP_SHARD}, sharded ? 1 : 2},
        {"owners", &groups->owners, {PP, sharded ? DP_SHARD : TP, CP, TP}, sharded ? 4 : 2},
        {"copies", &groups->copies, {DP_REPLICATE, DP_SHARD, CP}, sharded ? 1 : 3},
    };
    int status = LS_OK;
    for (size_t i = 0; i < sizeof list / sizeof list[0] && !status; i++)
        status = group_open(&mesh, world, &list[i], error);
    return status;
}

void groups_close(struct train_groups *groups)
{
    struct ls_comm *all[] = {
        groups->pp,           groups->cp,    groups->tp,        groups->dp,     groups->dp_shard,
        groups->dp_replicate, groups->shard, groups->replicate, groups->owners, groups->copies};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        ls_comm_free(all[i]);
    *groups = (struct train_groups){0};
}
