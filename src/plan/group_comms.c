/* The communicators of the groups of ranks that a layout makes. */
#include <lockstep/plan/groups.h>

int ls_groups_open(const struct ls_layout *layout, struct ls_comm *world, struct ls_queue *queue,
                   struct ls_comm *groups[LS_GROUPS], struct ls_error *error)
{
    groups[LS_GROUP_WORLD] = world;
    for (int g = 0; g < LS_GROUP_WORLD; g++) {
        enum ls_layout_group group = (enum ls_layout_group)g;
        bool of_second = group >= LS_GROUP_SHARD_1 && group <= LS_GROUP_COPIES_1;
        if (of_second && layout->set_count == 1)
            continue;
        int status = ls_mesh_split(&layout->mesh, world, ls_group_axes(layout, group),
                                   ls_group_name(group), &groups[g], error);
        if (status)
            return status;
    }
    for (int g = 0; g < LS_GROUPS; g++)
        if (groups[g])
            ls_comm_set_queue(groups[g], queue);
    return LS_OK;
}

void ls_groups_close(struct ls_comm *groups[LS_GROUPS])
{
    for (int g = 0; g < LS_GROUP_WORLD; g++) {
        ls_comm_free(groups[g]);
        groups[g] = NULL;
    }
    if (groups[LS_GROUP_WORLD])
        ls_comm_set_queue(groups[LS_GROUP_WORLD], NULL);
}
