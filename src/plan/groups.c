/* The groups of ranks, as arithmetic. */
#include <lockstep/plan/moves.h>

#include <string.h>

const char *ls_group_name(enum ls_layout_group group)
{
    static const char *const names[LS_GROUPS] = {"tp",           "sharers", "cp",   "shard",
                                                 "replicate",    "pp",      "dp",   "dp_shard",
                                                 "dp_replicate", "owners",  "world"};
    return names[group];
}

const char *ls_account_name(enum ls_account account)
{
    static const char *const names[LS_ACCOUNTS] = {"tp",       "cp",           "pp",
                                                   "dp_shard", "dp_replicate", "other"};
    return names[account];
}

enum ls_account ls_account_of(enum ls_layout_group group)
{
    switch (group) {
    case LS_GROUP_TP:
    case LS_GROUP_SHARERS:
        return LS_ACCOUNT_TP;
    case LS_GROUP_CP:
        return LS_ACCOUNT_CP;
    case LS_GROUP_PP:
        return LS_ACCOUNT_PP;
    case LS_GROUP_SHARD:
        return LS_ACCOUNT_SHARD;
    case LS_GROUP_REPLICATE:
        return LS_ACCOUNT_REPLICATE;
    default:
        return LS_ACCOUNT_OTHER;
    }
}

bool ls_account_used(const struct ls_layout *layout, enum ls_account account)
{
    for (int g = 0; g < LS_GROUPS; g++)
        if (ls_account_of((enum ls_layout_group)g) == account &&
            ls_group_size(layout, (enum ls_layout_group)g) > 1)
            return true;
    return false;
}

/* The axes that a group spans, outermost first; a group of all ranks is none of these. */
static int axes_of(const struct ls_layout *layout, enum ls_layout_group group, int axes[LS_AXES])
{
    int count = 0;
    enum { PP = 1, R = 2, S = 4, CP = 8, TP = 16 }; /* one bit an axis, in their order */
    bool zero = layout->zero > 0;
    const int sets[LS_GROUPS] = {
        [LS_GROUP_TP] = TP,
        [LS_GROUP_CP] = CP,
        [LS_GROUP_SHARD] = zero ? S | CP : CP,
        [LS_GROUP_REPLICATE] = zero ? R : R | S,
        [LS_GROUP_PP] = PP,
        [LS_GROUP_DP] = R | S,
        [LS_GROUP_DP_SHARD] = S,
        [LS_GROUP_DP_REPLICATE] = R,
        [LS_GROUP_OWNERS] = zero ? PP | S | CP | TP : PP | TP,
    };
    for (int axis = 0; axis < LS_AXES; axis++)
        if (sets[group] & 1 << axis)
            axes[count++] = axis;
    return count;
}

static int64_t sharers(const struct ls_layout *layout)
{
    return ls_tp_sharers(layout->size[LS_AXIS_TP], layout->model.kv_heads);
}

int64_t ls_group_size(const struct ls_layout *layout, enum ls_layout_group group)
{
    if (group == LS_GROUP_WORLD)
        return layout->ranks;
    if (group == LS_GROUP_SHARERS)
        return sharers(layout);
    int axes[LS_AXES], count = axes_of(layout, group, axes);
    int64_t size = 1;
    for (int i = 0; i < count; i++)
        size *= layout->size[axes[i]];
    return size;
}

int64_t ls_group_rank(const struct ls_layout *layout, enum ls_layout_group group, int64_t rank)
{
    int64_t at[LS_AXES];
    if (group == LS_GROUP_WORLD)
        return rank;
    ls_layout_coordinates(layout, rank, at);
    if (group == LS_GROUP_SHARERS)
        return at[LS_AXIS_TP] % sharers(layout);
    int axes[LS_AXES], count = axes_of(layout, group, axes);
    int64_t mine = 0;
    for (int i = 0; i < count; i++)
        mine = mine * layout->size[axes[i]] + at[axes[i]];
    return mine;
}

int64_t ls_group_member(const struct ls_layout *layout, enum ls_layout_group group, int64_t rank,
                        int64_t i)
{
    int64_t at[LS_AXES];
    if (group == LS_GROUP_WORLD)
        return i;
    ls_layout_coordinates(layout, rank, at);
    if (group == LS_GROUP_SHARERS)
        at[LS_AXIS_TP] += i - at[LS_AXIS_TP] % sharers(layout);
    int axes[LS_AXES], count = axes_of(layout, group, axes);
    for (int k = count - 1; k >= 0; k--) {
        at[axes[k]] = i % layout->size[axes[k]];
        i /= layout->size[axes[k]];
    }
    return ls_layout_rank(layout, at);
}

int64_t ls_move_bytes(const struct ls_layout *layout, int64_t rank, const struct ls_move *move)
{
    int64_t n = ls_group_size(layout, move->group), r = ls_group_rank(layout, move->group, rank);
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
