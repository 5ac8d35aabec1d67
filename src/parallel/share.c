#include <lockstep/parallel.h>

static int64_t pow2_at_most(int64_t n)
{
    int64_t p = 1;
    while (2 * p <= n)
        p *= 2;
    return p;
}

/* The admissible number of replicas nearest to dp: leaves / (a power of two), or 1. */
static int64_t nearest_dp(int64_t leaves, int64_t dp)
{
    int64_t best = 1;
    for (int64_t share = 1; share <= leaves; share *= 2) {
        int64_t candidate = leaves / share;
        int64_t distance = candidate > dp ? candidate - dp : dp - candidate;
        int64_t best_distance = best > dp ? best - dp : dp - best;
        if (leaves % share == 0 && distance < best_distance)
            best = candidate;
    }
    return best;
}

int ls_dp_share_init(struct ls_dp_share *share, int64_t leaves, int64_t dp, int64_t rank,
                     int64_t micro_leaves, struct ls_error *error)
{
    LS_ASSERT(leaves >= 1 && dp >= 1 && rank >= 0 && rank < dp && micro_leaves >= 1);
    int64_t count = leaves / dp;
    if (leaves % dp || (dp > 1 && !ls_is_pow2(count)))
        return ls_error_set(error, LS_ELAYOUT,
                            "parallel.dp = %ld cannot share a batch of %ld leaves: each replica "
                            "must get the same power of two of leaves; the nearest that works is "
                            "parallel.dp = %ld",
                            (long)dp, (long)leaves, (long)nearest_dp(leaves, dp));
    if (micro_leaves > count)
        micro_leaves = count;
    if (micro_leaves != count && !ls_is_pow2(micro_leaves))
        return ls_error_set(error, LS_ELAYOUT,
                            "micro-batches of %ld leaves are no subtrees of a share of %ld leaves: "
                            "use a power of two (the nearest is %ld) or the whole share",
                            (long)micro_leaves, (long)count, (long)pow2_at_most(micro_leaves));
    *share = (struct ls_dp_share){.leaves = leaves,
                                  .first = rank * count,
                                  .count = count,
                                  .micro_leaves = micro_leaves,
                                  .micro_batches = ls_ceil_div(count, micro_leaves)};
    return LS_OK;
}

void ls_dp_micro_batch(const struct ls_dp_share *share, int64_t m, int64_t *first, int64_t *count)
{
    LS_ASSERT(m >= 0 && m < share->micro_batches);
    *first = share->first + m * share->micro_leaves;
    *count = ls_min(share->micro_leaves, share->first + share->count - *first);
}

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
