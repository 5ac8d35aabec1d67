/* The hash of a run's state, and the comparison of what several ranks hold alike. */
#include "state.h"

#include <stdlib.h>

/* Digests of this rank's slices. */
struct held {
    struct ls_digest owned;   /* what this rank answers for */
    struct ls_digest all;     /* everything: equal on the ranks of groups.copies */
    struct ls_digest alike;   /* what all ranks of groups.tp hold */
    struct ls_digest sharers; /* the key/value heads that neighbours in groups.tp share */
    struct ls_digest tied;    /* the table that first and last stage hold */
};

/* Ranks of groups.tp that hold the same part of param. */
static int holders_of(const struct ls_trainer *t, const struct ls_param *param)
{
    int64_t part = param->rows * param->cols, whole = param->global_rows * param->global_cols;
    return (int)(part * ls_comm_size(t->groups.tp) / whole);
}

/* Of all arrays. *span: how many neighbours share key/value heads. */
static void digest_held(struct ls_trainer *t, struct held *held, int *span)
{
    int tp = ls_comm_size(t->groups.tp);
    const struct ls_zero_slice *slices = ls_zero_slices(t->memory.zero);
    *held = (struct held){0};
    *span = 1;
    for (int s = STATE_PARAMETERS; s < ls_optimizer_states(&t->memory.optimizer.config); s++) {
        const float *values = state_array(t, s);
        char prefix[STATE_PREFIX_BYTES];
        state_prefix(t, s, prefix);
        for (int i = 0; i < t->params.count; i++) {
            ls_progress();
            const struct ls_param *param = &t->params.list[i];
            struct ls_digest digest = {0, 0};
            ls_param_digest(param, &t->ops, prefix, slices[i].first, slices[i].count,
                            values + slices[i].offset, &digest);
            ls_digest_merge(&held->all, &digest);
            if (param->owned)
                ls_digest_merge(&held->owned, &digest);
            int holders = holders_of(t, param);
            if (holders == tp) {
                ls_digest_merge(&held->alike, &digest);
            } else if (holders > 1) {
                *span = holders;
                ls_digest_merge(&held->sharers, &digest);
            }
            if (i == t->params.shared_param)
                ls_digest_merge(&held->tied, &digest);
        }
    }
    struct ls_digest position = {0, 0};
    int64_t place[2] = {t->step, t->samples};
    ls_digest_piece(&position, "position", 0, 0, place, sizeof place);
    ls_digest_merge(&held->all, &position);
    if (ls_comm_rank(t->groups.owners) == 0)
        ls_digest_merge(&held->owned, &position);
}

/* ---- ranks that must hold the same ----------------------------------------------------------- */

/* What a rank tells the others of its group. */
struct claim {
    uint64_t low, high, world_rank, holds;
};

struct comparison {
    struct ls_comm *comm;
    int span; /* blocks of so many neighbours are compared among themselves */
    const struct ls_digest *digest;
    bool holds; /* this rank takes part */
};

static int claims_check(const struct ls_trainer *t, const struct claim *claims, int count,
                        struct ls_error *error)
{
    const struct claim *first = NULL;
    for (int i = 0; i < count; i++) {
        const struct claim *claim = &claims[i];
        if (!claim->holds)
            continue;
        if (!first)
            first = claim;
        if (claim->low != first->low || claim->high != first->high)
            return ls_error_set(error, LS_ENUMERIC,
                                "after step %ld the state of rank %d differs from rank %d's: "
                                "memory or arithmetic of one of them is faulty. Go on from the "
                                "newest checkpoint on other hardware",
                                (long)t->step, (int)claim->world_rank, (int)first->world_rank);
    }
    return LS_OK;
}

/* Collective over the comparison's group, also after a difference elsewhere (status). */
static int compare(const struct ls_trainer *t, const struct comparison *c, struct claim *claims,
                   int status, struct ls_error *error)
{
    int ranks = ls_comm_size(c->comm);
    if (ranks == 1 || (status && status != LS_ENUMERIC))
        return status;
    struct claim mine = {c->digest->low, c->digest->high, (uint64_t)ls_comm_rank(t->world),
                         c->holds};
    int failed =
        ls_all_gather(c->comm, &mine, claims, sizeof mine / sizeof(uint64_t), LS_U64, error);
    if (failed)
        return failed;
    for (int block = 0; block < ranks && !status; block += c->span)
        status = claims_check(t, claims + block, c->span, error);
    return status;
}

int ls_trainer_hash(struct ls_trainer *t, struct ls_digest *digest, struct ls_error *error)
{
    const struct train_groups *g = &t->groups;
    struct held held;
    int span, ranks = ls_comm_size(t->world);
    digest_held(t, &held, &span);
    struct claim *claims = calloc((size_t)ranks, sizeof *claims);
    int status = claims ? LS_OK : ls_error_set(error, LS_ENOMEM, "no memory for %d digests", ranks);
    status = ls_comm_agree(t->world, status, error);
    const struct comparison list[] = {
        {g->copies, ls_comm_size(g->copies), &held.all, true},
        {g->tp, ls_comm_size(g->tp), &held.alike, true},
        {g->tp, span, &held.sharers, true},
        {g->pp, ls_comm_size(g->pp), &held.tied, t->params.shared_param >= 0},
    };
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
        status = compare(t, &list[i], claims, status, error);
    free(claims);
    uint64_t sum[2] = {held.owned.low, held.owned.high};
    if (!status || status == LS_ENUMERIC) {
        int failed = ls_all_reduce_u64(g->owners, sum, 2, error);
        status = failed ? failed : status;
    }
    *digest = (struct ls_digest){sum[0], sum[1]};
    return ls_comm_agree(t->world, status, error);
}
