/* lockstep/plan/groups.h - the groups of ranks that a layout makes.
 *
 * One table says what each group is called, over which axes it lies and which axis its bytes and
 * waits are accounted to. The arithmetic below, the communicators, the proof and the reports all
 * follow from it. Everything here but ls_groups_open and ls_groups_close is Local. */
#ifndef LOCKSTEP_PLAN_GROUPS_H
#define LOCKSTEP_PLAN_GROUPS_H

#include <lockstep/comm.h>
#include <lockstep/parallel/tensor.h>
#include <lockstep/plan.h>

LS_C_BEGIN

enum ls_layout_group {
    LS_GROUP_TP,
    LS_GROUP_SHARERS,   /* tp ranks that hold the same key/value head */
    LS_GROUP_CP,        /* keys and values */
    LS_GROUP_SHARD,     /* of struct ls_zero_options, for set 0 of parameters */
    LS_GROUP_REPLICATE, /* the same */
    LS_GROUP_PP,
    /* The loss, a few bytes: over dp_replicate x dp_shard, or one after the other. */
    LS_GROUP_DP,
    LS_GROUP_DP_SHARD,
    LS_GROUP_DP_REPLICATE,
    /* Of set 0, ranks that together hold the state once: the gradient's norm, the hash. */
    LS_GROUP_OWNERS,
    LS_GROUP_COPIES, /* ranks that hold the same part of it: rank 0 of each such group forms the
                      * first copy. Nothing moves here in a step */
    /* The same four of set 1: see ls_set_group. */
    LS_GROUP_SHARD_1,
    LS_GROUP_REPLICATE_1,
    LS_GROUP_OWNERS_1,
    LS_GROUP_COPIES_1,
    LS_GROUP_MATRICES, /* ranks of a set's mesh, in its order, where the optimizer's matrices meet
                        * (layout.matrices_meet); else each rank alone */
    LS_GROUP_WORLD,    /* agreement */
    LS_GROUPS
};

/* What a group's bytes and waits are accounted to: its axis. tp: sharers too; dp_shard and
 * dp_replicate: the two groups of ZeRO, and with parallel.zero = 0, whose ranks are all copies,
 * dp_replicate if that axis has ranks; optimizer: matrices that meet; other: the loss, the norm,
 * agreement. */
enum ls_account {
    LS_ACCOUNT_TP,
    LS_ACCOUNT_CP,
    LS_ACCOUNT_PP,
    LS_ACCOUNT_SHARD,
    LS_ACCOUNT_REPLICATE,
    LS_ACCOUNT_OPTIMIZER,
    LS_ACCOUNT_OTHER,
    LS_ACCOUNTS
};

/* LS_GROUP_SHARD, _REPLICATE, _OWNERS or _COPIES of a set of parameters. */
static inline enum ls_layout_group ls_set_group(int set, enum ls_layout_group group)
{
    if (set == 0)
        return group;
    return group == LS_GROUP_SHARD       ? LS_GROUP_SHARD_1
           : group == LS_GROUP_REPLICATE ? LS_GROUP_REPLICATE_1
           : group == LS_GROUP_OWNERS    ? LS_GROUP_OWNERS_1
                                         : LS_GROUP_COPIES_1;
}

/* "tp", "sharers", ... */
const char *ls_group_name(enum ls_layout_group group);
/* The axes of layout->mesh that the group lies over, as ls_mesh_split takes them. */
unsigned ls_group_axes(const struct ls_layout *layout, enum ls_layout_group group);
/* Ranks of the group, and this rank's number in it. */
int64_t ls_group_size(const struct ls_layout *layout, enum ls_layout_group group);
int64_t ls_group_rank(const struct ls_layout *layout, enum ls_layout_group group, int64_t rank);
/* The world's rank of member i of rank's group. */
int64_t ls_group_member(const struct ls_layout *layout, enum ls_layout_group group, int64_t rank,
                        int64_t i);

/* Local. A rank's tensor and context parallelism, over the groups that it opened, which are
 * borrowed. groups NULL: for plans, which communicate nothing. */
void ls_groups_parallel(const struct ls_layout *layout, int64_t rank,
                        struct ls_comm *const groups[LS_GROUPS], struct ls_tp *tp,
                        struct ls_cp *cp);

/* Collective over world, which is borrowed as group LS_GROUP_WORLD. The groups that this rank
 * belongs to; one of one rank is a communicator too, but those of sets that the layout does not
 * have are NULL. Their commands go to queue, which is borrowed. After a failure, close what was
 * opened. */
int ls_groups_open(const struct ls_layout *layout, struct ls_comm *world, struct ls_queue *queue,
                   struct ls_comm *groups[LS_GROUPS], struct ls_error *error);
/* Local (over MPI: Collective). The world's commands run at once again. */
void ls_groups_close(struct ls_comm *groups[LS_GROUPS]);

/* "tp", "cp", "pp", "dp_shard", "dp_replicate", "optimizer", "other" */
const char *ls_account_name(enum ls_account account);
enum ls_account ls_account_of(const struct ls_layout *layout, enum ls_layout_group group);
/* Whether a rank of the layout has anybody to talk to on that account. */
bool ls_account_used(const struct ls_layout *layout, enum ls_account account);

LS_C_END
#endif
