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
    unsigned axes[2]; /* with parallel.zero = 0, and above it */
} table[LS_GROUPS] = {
    [LS_GROUP_TP] = {"tp", LS_ACCOUNT_TP, {TP, TP}},
    [LS_GROUP_SHARERS] = {"sharers", LS_ACCOUNT_TP, {SHARERS, SHARERS}},
    [LS_GROUP_CP] = {"cp", LS_ACCOUNT_CP, {CP, CP}},
    [LS_GROUP_SHARD] = {"shard", LS_ACCOUNT_SHARD, {DP | CP, SHARD | CP}},
    [LS_GROUP_REPLICATE] = {"replicate", LS_ACCOUNT_REPLICATE, {0, REPLICATE}},
    [LS_GROUP_PP] = {"pp", LS_ACCOUNT_PP, {PP, PP}},
    [LS_GROUP_DP] = {"dp", LS_ACCOUNT_OTHER, {DP, DP}},
    [LS_GROUP_DP_SHARD] = {"dp_shard", LS_ACCOUNT_OTHER, {SHARD, SHARD}},
    [LS_GROUP_DP_REPLICATE] = {"dp_replicate", LS_ACCOUNT_OTHER, {REPLICATE, REPLICATE}},
    [LS_GROUP_OWNERS] = {"owners", LS_ACCOUNT_OTHER, {PP | TP, PP | SHARD | CP | TP}},
    [LS_GROUP_COPIES] = {"copies", LS_ACCOUNT_OTHER, {DP | CP, REPLICATE}},
    [LS_GROUP_MATRICES] = {"matrices", LS_ACCOUNT_OPTIMIZER, {DP | CP | TP, DP | CP | TP}},
    [LS_GROUP_WORLD] = {"world", LS_ACCOUNT_OTHER, {ALL, ALL}},
};

const char *ls_group_name(enum ls_layout_group group)
{
    return table[group].name;
}

unsigned ls_group_axes(const struct ls_layout *layout, enum ls_layout_group group)
{
    bool unused = group == LS_GROUP_MATRICES && !layout->matrices_meet;
    return unused ? 0 : table[group].axes[layout->zero > 0];
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
    return group == LS_GROUP_SHARD && copies ? LS_ACCOUNT_REPLICATE : table[group].account;
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
    int64_t n = ls_group_size(layout, group), r = ls_group_rank(layout, group, rank);
    int64_t bytes = (int64_t)ls_dtype_bytes(move->dtype), count = move->count;
    if (move->kind == LS_COMM_OTHER)
        return 0;
    if (move->kind == LS_COMM_SEND)
        return move->receive ? 0 : count * bytes;
    if (move->kind == LS_COMM_ALL_REDUCE) {
        int64_t own = count / n + (r < count % n);
        return (count - own + own * (n - 1)) * bytes;
    }
    if (move->kind == LS_COMM_BROADCAST && move->peer != r)
        return 0;
    return count * bytes * (n - 1);
}
