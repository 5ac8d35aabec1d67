/* How large a run's batches are, and who computes which leaves of one. */
#include <lockstep/parallel.h>

#include <lockstep/base/words.h>

#include <stdio.h>

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

int ls_dp_share_init(struct ls_dp_share *share, const struct ls_dp_cut *cut, int64_t leaves,
                     int64_t leaf, int64_t micro, struct ls_error *error)
{
    LS_ASSERT(leaves >= 1 && leaf >= 1 && micro >= 1);
    LS_ASSERT(cut->ranks >= 1 && cut->rank >= 0 && cut->rank < cut->ranks);
    char of[96] = "";
    if (leaf > 1)
        snprintf(of, sizeof of, " of %ld sequences (a smaller numerics.leaf_sequences makes more)",
                 (long)leaf);
    if (leaves % cut->ranks)
        return ls_error_set(error, LS_ELAYOUT, "it does not divide a batch of %s%s",
                            ls_counted(leaves, "leaf").text, of);
    int64_t count = leaves / cut->ranks;
    micro = ls_min(micro, (cut->in_turn ? 1 : count) * leaf);
    if (micro > leaf)
        micro -= micro % leaf;
    *share =
        (struct ls_dp_share){.cut = *cut,
                             .leaves = leaves,
                             .leaf = leaf,
                             .count = count,
                             .micro = micro,
                             .micro_batches = micro >= leaf ? ls_ceil_div(count * leaf, micro)
                                                            : count * ls_ceil_div(leaf, micro)};
    return LS_OK;
}

struct ls_dp_micro ls_dp_micro_batch(const struct ls_dp_share *share, int64_t m)
{
    LS_ASSERT(m >= 0 && m < share->micro_batches);
    int64_t leaf = share->leaf, micro = share->micro, parts = ls_ceil_div(leaf, micro);
    int64_t end = micro >= leaf ? share->count * leaf : (m / parts + 1) * leaf;
    int64_t at = micro >= leaf ? m * micro : m / parts * leaf + m % parts * micro;
    int64_t own = at / leaf, rank = share->cut.rank;
    int64_t whole = share->cut.in_turn ? own * share->cut.ranks + rank : rank * share->count + own;
    return (struct ls_dp_micro){.m = m,
                                .first = whole * leaf + at % leaf,
                                .count = ls_min(micro, end - at),
                                .offset = at,
                                .begins = at % leaf == 0,
                                .ends = at + micro >= end || micro >= leaf,
                                .begins_sum = own == 0,
                                .last = m == share->micro_batches - 1};
}
