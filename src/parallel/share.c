#include <lockstep/parallel.h>

#include <stdio.h>

/* Blocks, shards and micro-steps are all whole subtrees. A step of d parts of s leaves is the top
 * of their trees where both are powers of two, where s is one and nothing follows, or where d is 1.
 */
static bool cut_admitted(int64_t leaves, const struct ls_dp_cut *cut, int64_t micro)
{
    int64_t ranks = cut->replicas * cut->shards;
    if (leaves % ranks)
        return false;
    int64_t block = leaves / cut->replicas, share = leaves / ranks;
    if (cut->replicas > 1 && !ls_is_pow2(block))
        return false;
    micro = ls_min(micro, share);
    bool several = micro < share;
    if (!cut->neighbours)
        return (cut->shards == 1 || ls_is_pow2(share)) && (!several || ls_is_pow2(micro));
    int64_t rest = share % micro ? share % micro : micro;
    if (several && !(ls_is_pow2(cut->shards) && ls_is_pow2(micro)))
        return false;
    return cut->shards == 1 || ls_is_pow2(rest);
}

/* The admissible value nearest to *value in [1, max], the smaller one of two; 0 where none is.
 * value points into cut, or at micro. */
static int64_t nearest_of(int64_t leaves, const struct ls_dp_cut *cut, const int64_t *micro,
                          int64_t *value, int64_t max)
{
    int64_t asked = *value, found = 0;
    for (int64_t distance = 1; distance <= max && !found; distance++) {
        int64_t candidates[2] = {asked - distance, asked + distance};
        for (int i = 0; i < 2 && !found; i++) {
            *value = candidates[i];
            if (*value >= 1 && *value <= max && cut_admitted(leaves, cut, *micro))
                found = *value;
        }
    }
    *value = asked;
    return found;
}

static int cut_refuse(int64_t leaves, const struct ls_dp_cut *asked, int64_t micro,
                      struct ls_error *error)
{
    struct ls_dp_cut cut = *asked;
    char nearest[128] = "one rank with the batch as one micro-batch";
    int64_t found = 0;
    if (leaves % (cut.replicas * cut.shards) == 0)
        found = nearest_of(leaves, &cut, &micro, &micro, leaves);
    if (found)
        snprintf(nearest, sizeof nearest, "micro-batches of %ld leaves", (long)found);
    if (!found && (found = nearest_of(leaves, &cut, &micro, &cut.shards, leaves)))
        snprintf(nearest, sizeof nearest, "parallel.dp_shard = %ld", (long)found);
    if (!found && (found = nearest_of(leaves, &cut, &micro, &cut.replicas, leaves)))
        snprintf(nearest, sizeof nearest, "parallel.dp_replicate = %ld", (long)found);
    return ls_error_set(error, LS_ELAYOUT,
                        "parallel.dp_replicate = %ld times parallel.dp_shard = %ld cannot share a "
                        "batch of %ld leaves in "
                        "micro-batches of %ld%s: every part must be a whole subtree of the sum "
                        "over leaves; the nearest that works is %s",
                        (long)asked->replicas, (long)asked->shards, (long)leaves, (long)micro,
                        asked->neighbours ? ", reduced one by one" : "", nearest);
}

int ls_dp_share_init(struct ls_dp_share *share, int64_t leaves, const struct ls_dp_cut *cut,
                         int64_t micro_leaves, struct ls_error *error)
{
    LS_ASSERT(leaves >= 1 && micro_leaves >= 1);
    LS_ASSERT(cut->replicas >= 1 && cut->replica >= 0 && cut->replica < cut->replicas);
    LS_ASSERT(cut->shards >= 1 && cut->shard >= 0 && cut->shard < cut->shards);
    if (!cut_admitted(leaves, cut, micro_leaves))
        return cut_refuse(leaves, cut, micro_leaves, error);
    int64_t count = leaves / (cut->replicas * cut->shards), block = leaves / cut->replicas;
    micro_leaves = ls_min(micro_leaves, count);
    *share = (struct ls_dp_share){.leaves = leaves,
                                  .first = cut->replica * block,
                                  .count = count,
                                  .micro_leaves = micro_leaves,
                                  .micro_batches = ls_ceil_div(count, micro_leaves)};
    if (cut->neighbours) {
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
