/* How large a run's batches are, and who computes which leaves of one. */
#include <lockstep/parallel.h>

#include <lockstep/base/words.h>

int64_t ls_ramp_at(const struct ls_ramp *ramp, int64_t samples)
{
    if (ramp->increment == 0 || samples >= ramp->samples)
        return ramp->full;
    /* floor(samples / (span / increments)), without rounding the quotient. */
    int64_t increments = (ramp->full - ramp->start) / ramp->increment;
    int64_t done = (int64_t)((__int128)samples * increments / ramp->samples);
    return ls_min(ramp->start + done * ramp->increment, ramp->full);
}

int64_t ls_ramp_next(const struct ls_ramp *ramp, int64_t leaves)
{
    if (leaves >= ramp->full)
        return 0;
    if (leaves == 0)
        return ramp->increment ? ramp->start : ramp->full;
    return ls_min(leaves + ramp->increment, ramp->full);
}

/* ---- who computes which leaves --------------------------------------------------------------- */

static int shares_admit(const struct ls_dp_cut *cut, int64_t leaves, enum ls_dp_part *part,
                        struct ls_error *error)
{
    const int64_t sizes[] = {[LS_DP_REPLICAS] = cut->replicas,
                             [LS_DP_SHARDS] = cut->shards,
                             [LS_DP_RANKS] = cut->replicas * cut->shards};
    for (*part = LS_DP_REPLICAS; *part <= LS_DP_RANKS; (*part)++)
        if (leaves % sizes[*part])
            return ls_error_set(error, LS_ELAYOUT, "it does not divide a batch of %s",
                                ls_counted(leaves, "leaf").text);
    return LS_OK;
}

/* Each rank has leaves side by side, which are added at the end of the step. */
static int consecutive_admit(const struct ls_dp_cut *cut, int64_t leaves, enum ls_dp_part *part,
                             struct ls_error *error)
{
    int64_t ranks = cut->replicas * cut->shards, share = leaves / ranks;
    *part = LS_DP_RANKS;
    if (ranks > 1 && !ls_is_pow2(share))
        return ls_error_set(error, LS_ELAYOUT,
                            "each of the %ld data-parallel ranks would get %ld of a batch of %s: "
                            "a share must be a power of two to be a whole subtree",
                            (long)ranks, (long)share, ls_counted(leaves, "leaf").text);
    *part = LS_DP_SHARDS;
    if (cut->order == LS_DP_LEVELS && cut->replicas > 1 && !ls_is_pow2(cut->shards))
        return ls_error_set(error, LS_ELAYOUT,
                            "with several copies it must be a power of two, so that what shards "
                            "add is a whole subtree");
    return LS_OK;
}

/* At each micro-step the shards have leaves side by side, which are added at once. */
static int neighbours_admit(const struct ls_dp_cut *cut, int64_t leaves, int64_t micro,
                            enum ls_dp_part *part, struct ls_error *error)
{
    int64_t block = leaves / cut->replicas, share = block / cut->shards;
    int64_t last = share % micro ? share % micro : micro;
    *part = LS_DP_REPLICAS;
    if (cut->replicas > 1 && !ls_is_pow2(block))
        return ls_error_set(error, LS_ELAYOUT,
                            "each copy would get %ld of a batch of %s: that must be a power of two "
                            "to be a whole subtree",
                            (long)block, ls_counted(leaves, "leaf").text);
    *part = LS_DP_MICRO_LEAVES;
    if (cut->shards > 1 && !(ls_is_pow2(micro) && ls_is_pow2(last)))
        return ls_error_set(error, LS_ELAYOUT,
                            "gradients are added after each micro-batch of a rank's %s, so each "
                            "must be a power of two of them",
                            ls_counted(share, "leaf").text);
    *part = LS_DP_SHARDS;
    if (micro < share && !ls_is_pow2(cut->shards))
        return ls_error_set(error, LS_ELAYOUT,
                            "gradients are added over these ranks after each of several "
                            "micro-batches, so it must be a power of two");
    return LS_OK;
}

int ls_dp_admits(const struct ls_dp_cut *cut, int64_t leaves, int64_t micro_leaves,
                 enum ls_dp_part *part, struct ls_error *error)
{
    enum ls_dp_part ignored;
    part = part ? part : &ignored;
    int status = shares_admit(cut, leaves, part, error);
    if (status || cut->order == LS_DP_ANY)
        return status;
    int64_t share = leaves / (cut->replicas * cut->shards), micro = ls_min(micro_leaves, share);
    status = cut->order == LS_DP_NEIGHBOURS ? neighbours_admit(cut, leaves, micro, part, error)
                                            : consecutive_admit(cut, leaves, part, error);
    if (status || micro == share || ls_is_pow2(micro))
        return status;
    *part = LS_DP_MICRO_LEAVES;
    return ls_error_set(error, LS_ELAYOUT,
                        "micro-batches of %s are not subtrees of a share of %s: use a power of two "
                        "of leaves, or the whole share",
                        ls_counted(micro, "leaf").text, ls_counted(share, "leaf").text);
}

int ls_dp_share_init(struct ls_dp_share *share, int64_t leaves, const struct ls_dp_cut *cut,
                     int64_t micro_leaves, struct ls_error *error)
{
    LS_ASSERT(leaves >= 1 && micro_leaves >= 1);
    LS_ASSERT(cut->replicas >= 1 && cut->replica >= 0 && cut->replica < cut->replicas);
    LS_ASSERT(cut->shards >= 1 && cut->shard >= 0 && cut->shard < cut->shards);
    int status = ls_dp_admits(cut, leaves, micro_leaves, NULL, error);
    if (status)
        return status;
    int64_t count = leaves / (cut->replicas * cut->shards), block = leaves / cut->replicas;
    micro_leaves = ls_min(micro_leaves, count);
    *share = (struct ls_dp_share){.leaves = leaves,
                                  .first = cut->replica * block,
                                  .count = count,
                                  .micro_leaves = micro_leaves,
                                  .micro_batches = ls_ceil_div(count, micro_leaves)};
    if (cut->order == LS_DP_NEIGHBOURS) {
        share->shards = cut->shards;
        share->shard = cut->shard;
        share->first += cut->shard * micro_leaves;
    } else {
        share->first += cut->shard * count;
    }
    return LS_OK;
}

void ls_dp_micro_batch(const struct ls_dp_share *share, int64_t m, int64_t *first, int64_t *count)
{
    LS_ASSERT(m >= 0 && m < share->micro_batches);
    *count = ls_min(share->micro_leaves, share->count - m * share->micro_leaves);
    *first = share->first + m * share->micro_leaves;
    if (share->shards > 1) {
        int64_t block = share->first - share->shard * share->micro_leaves;
        *first = block + m * share->shards * share->micro_leaves + share->shard * *count;
    }
}

/* ---- micro-batches -------------------------------------------------------------------------- */

/* Before micro-batch m the buffers hold one subtree for each bit set in m, the largest lowest. An
 * odd m completes the pair in the top buffer, and each further trailing one of m merges two
 * buffers. */
struct ls_accumulation ls_accumulation_of(int64_t m, int64_t micro_batches)
{
    LS_ASSERT(m >= 0 && m < micro_batches);
    int held = __builtin_popcountll((uint64_t)m);
    struct ls_accumulation step = {.accumulate = m & 1};
    step.target = step.accumulate ? held - 1 : held;
    int trailing_ones = __builtin_ctzll(~(uint64_t)m);
    step.merges = step.accumulate ? trailing_ones - 1 : 0;
    if (m == micro_batches - 1)
        step.merges = step.target;
    return step;
}

int ls_accumulation_buffers(int64_t micro_batches)
{
    int buffers = 1;
    for (int64_t m = 0; m < micro_batches; m++) {
        int target = ls_accumulation_of(m, micro_batches).target;
        if (target + 1 > buffers)
            buffers = target + 1;
    }
    return buffers;
}
