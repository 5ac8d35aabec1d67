/* The groups of ranks: one table, and arithmetic on it. */
#include <lockstep/plan/moves.h>

/* A set of axes of a layout's mesh has one bit an axis. */
enum {
    PP = 1 << LS_AXIS_PP,
    REPLICATE = 1 << LS_AXIS_DP_REPLICATE,
    SHARD = 1 << LS_AXIS_DP_SHARD,
    CP = 1 << LS_AXIS_CP,
    SHARERS = 1 << LS_AXIS_SHARERS,
    TP = 1 << LS_AXIS_TP | SHARERS,
    DP = REPLICATE | SHARD,
    ALL = PP | DP | CP | TP,
};

static const struct {
    const char *name;
    enum ls_account account;
    unsigned axes; /* 0: those of a set of parameters */
} table[LS_GROUPS] = {
    [LS_GROUP_TP] = {"tp", LS_ACCOUNT_TP, TP},
    [LS_GROUP_SHARERS] = {"sharers", LS_ACCOUNT_TP, SHARERS},
    [LS_GROUP_CP] = {"cp", LS_ACCOUNT_CP, CP},
    [LS_GROUP_SHARD] = {"shard", LS_ACCOUNT_SHARD, 0},
    [LS_GROUP_REPLICATE] = {"replicate", LS_ACCOUNT_REPLICATE, 0},
    [LS_GROUP_PP] = {"pp", LS_ACCOUNT_PP, PP},
    [LS_GROUP_DP] = {"dp", LS_ACCOUNT_OTHER, DP},
    [LS_GROUP_DP_SHARD] = {"dp_shard", LS_ACCOUNT_OTHER, SHARD},
    [LS_GROUP_DP_REPLICATE] = {"dp_replicate", LS_ACCOUNT_OTHER, REPLICATE},
    [LS_GROUP_OWNERS] = {"owners", LS_ACCOUNT_OTHER, 0},
    [LS_GROUP_COPIES] = {"copies", LS_ACCOUNT_OTHER, 0},
    [LS_GROUP_SHARD_1] = {"shard 1", LS_ACCOUNT_SHARD, 0},
    [LS_GROUP_REPLICATE_1] = {"replicate 1", LS_ACCOUNT_REPLICATE, 0},
    [LS_GROUP_OWNERS_1] = {"owners 1", LS_ACCOUNT_OTHER, 0},
    [LS_GROUP_COPIES_1] = {"copies 1", LS_ACCOUNT_OTHER, 0},
    [LS_GROUP_MATRICES] = {"matrices", LS_ACCOUNT_OPTIMIZER, DP | CP | TP},
    [LS_GROUP_WORLD] = {"world", LS_ACCOUNT_OTHER, ALL},
};

const char *ls_group_name(enum ls_layout_group group)
{
    return table[group].name;
}

/* Without ZeRO nothing is cut: all ranks of a set are copies, and gradients are added over all. */
static unsigned set_axes(const struct ls_layout *layout, enum ls_layout_group group)
{
    bool second = group >= LS_GROUP_SHARD_1 && group <= LS_GROUP_COPIES_1, cut = layout->zero > 0;
    const struct ls_layout_set *set = &layout->sets[second];
    if (second && layout->set_count == 1)
        return 0;
    if (group == ls_set_group(second, LS_GROUP_SHARD))
        return cut ? set->shard : set->shard | set->replicate;
    if (group == ls_set_group(second, LS_GROUP_REPLICATE))
        return cut ? set->replicate : 0;
    if (group == ls_set_group(second, LS_GROUP_OWNERS))
        return PP | TP | (cut ? set->shard : 0);
    return cut ? set->replicate : set->shard | set->replicate;
}

unsigned ls_group_axes(const struct ls_layout *layout, enum ls_layout_group group)
{
    if (group == LS_GROUP_MATRICES && !layout->matrices_meet)
        return 0;
    return table[group].axes ? table[group].axes : set_axes(layout, group);
}

int64_t ls_group_size(const struct ls_layout *layout, enum ls_layout_group group)
{
    return ls_mesh_group_size(&layout->mesh, ls_group_axes(layout, group));
}

int64_t ls_group_rank(const struct ls_layout *layout, enum ls_layout_group group, int64_t rank)
{
    return ls_mesh_group_rank(&layout->mesh, rank, ls_group_axes(layout, group));
}

int64_t ls_group_member(const struct ls_layout *layout, enum ls_layout_group group, int64_t rank,
                        int64_t i)
{
    return ls_mesh_group_member(&layout->mesh, rank, ls_group_axes(layout, group), i);
}

const char *ls_account_name(enum ls_account account)
{
    static const char *const names[LS_ACCOUNTS] = {"tp",           "cp",        "pp",   "dp_shard",
                                                   "dp_replicate", "optimizer", "other"};
    return names[account];
}

enum ls_account ls_account_of(const struct ls_layout *layout, enum ls_layout_group group)
{
    bool copies = layout->zero == 0 && layout->size[LS_AXIS_DP_REPLICATE] > 1;
    return copies && table[group].account == LS_ACCOUNT_SHARD && group != LS_GROUP_DP_SHARD
               ? LS_ACCOUNT_REPLICATE
               : table[group].account;
}

bool ls_account_used(const struct ls_layout *layout, enum ls_account account)
{
    for (int g = 0; g < LS_GROUPS; g++)
        if (ls_account_of(layout, (enum ls_layout_group)g) == account &&
            ls_group_size(layout, (enum ls_layout_group)g) > 1)
            return true;
    return false;
}

int64_t ls_move_bytes(const struct ls_layout *layout, int64_t rank, const struct ls_recorded *move)
{
    enum ls_layout_group group = (enum ls_layout_group)move->group;
    return ls_operation_bytes(&move->operation, ls_group_size(layout, group),
                              ls_group_rank(layout, group, rank));
}

void ls_groups_parallel(const struct ls_layout *layout, int64_t rank,
                        struct ls_comm *const groups[LS_GROUPS], struct ls_tp *tp, struct ls_cp *cp)
{
    *tp = (struct ls_tp){
        .comm = groups ? groups[LS_GROUP_TP] : NULL,
        .size = (int)ls_group_size(layout, LS_GROUP_TP),
        .rank = (int)ls_group_rank(layout, LS_GROUP_TP, rank),
        .sequence = layout->sp,
        .chunks = (int)layout->tp_overlap,
        .sharers_comm = groups ? groups[LS_GROUP_SHARERS] : NULL,
        .sharers = (int)ls_group_size(layout, LS_GROUP_SHARERS),
    };
    *cp = (struct ls_cp){
        .comm = groups ? groups[LS_GROUP_CP] : NULL,
        .size = (int)ls_group_size(layout, LS_GROUP_CP),
        .rank = (int)ls_group_rank(layout, LS_GROUP_CP, rank),
        .method = layout->cp_method,
    };
}
