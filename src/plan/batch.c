/* Who computes which leaves of a step. */
#include "plan.h"

#include <stdio.h>

/* Rows of a micro-batch on a rank that batch.micro = 0 aims at: enough to fill the products'
 * blocks. */
enum { AUTO_MICRO_ROWS = 4096 };

static int64_t replicas(const struct ls_layout *layout)
{
    return layout->size[LS_AXIS_DP_REPLICATE] * layout->size[LS_AXIS_DP_SHARD];
}

/* ---- whole subtrees ----------------------------------------------------------------------------
 */

/* Each replica has leaves side by side, which are added at the end of the step: over dp_shard, then
 * over dp_replicate. */
static int check_consecutive(const struct ls_layout_keys *keys, const struct ls_layout *layout,
                             int64_t leaves, int64_t micro, struct ls_error *error)
{
    int64_t dp = replicas(layout), share = leaves / dp, shard = layout->size[LS_AXIS_DP_SHARD];
    if (dp > 1 && !ls_is_pow2(share))
        return plan_refuse_dp(error, keys, LS_AXES, dp,
                              "each of the %ld data-parallel ranks would get %ld of a batch of %s: "
                              "a share must be a power of two to be a whole subtree",
                              (long)dp, (long)share, ls_counted(leaves, "leaf").text);
    if (layout->zero && layout->size[LS_AXIS_DP_REPLICATE] > 1 && !ls_is_pow2(shard))
        return plan_refuse_dp(
            error, keys, LS_AXIS_DP_SHARD, shard,
            "with parallel.dp_replicate above 1 it must be a power of two, so that "
            "what shards add is a whole subtree");
    if (micro < share && !ls_is_pow2(micro))
        return plan_refuse(error, "batch.micro", micro * layout->numerics.leaf_sequences,
                           "micro-batches of %s are not subtrees of a share of %s: "
                           "use a power of two of leaves, or the whole share",
                           ls_counted(micro, "leaf").text, ls_counted(share, "leaf").text);
    return LS_OK;
}

/* At each micro-step the dp_shard ranks have leaves side by side, which are added at once. */
static int check_neighbouring(const struct ls_layout_keys *keys, const struct ls_layout *layout,
                              int64_t leaves, int64_t micro, struct ls_error *error)
{
    int64_t shard = layout->size[LS_AXIS_DP_SHARD], replicate = layout->size[LS_AXIS_DP_REPLICATE];
    int64_t block = leaves / replicate, share = block / shard;
    if (replicate > 1 && !ls_is_pow2(block))
        return plan_refuse_dp(error, keys, LS_AXIS_DP_REPLICATE, replicate,
                              "each copy would get %ld of a batch of %s: that must be a power "
                              "of two to be a whole subtree",
                              (long)block, ls_counted(leaves, "leaf").text);
    if (shard == 1) {
        if (micro < share && !ls_is_pow2(micro))
            return plan_refuse(error, "batch.micro", micro * layout->numerics.leaf_sequences,
                               "micro-batches of %s are not subtrees of a share of %s: use a "
                               "power of two of leaves, or the whole share",
                               ls_counted(micro, "leaf").text, ls_counted(share, "leaf").text);
        return LS_OK;
    }
    int64_t last = share % micro ? share % micro : micro;
    if (!ls_is_pow2(micro) || !ls_is_pow2(last))
        return plan_refuse(error, "batch.micro", micro * layout->numerics.leaf_sequences,
                           "with parallel.zero = %d each micro-batch of a rank's %s must be "
                           "a power of two of them",
                           layout->zero, ls_counted(share, "leaf").text);
    if (micro < share && !ls_is_pow2(shard))
        return plan_refuse_dp(
            error, keys, LS_AXIS_DP_SHARD, shard,
            "gradients are added over these ranks after each of several micro-batches "
            "(parallel.zero = %d), so it must be a power of two",
            layout->zero);
    return LS_OK;
}

/* One batch size: that every rank's share and micro-batches are whole subtrees, and that the
 * schedule takes that many micro-batches. */
static int check_batch(const struct ls_layout_keys *keys, const struct ls_layout *layout,
                       const struct ls_schedule *file, int64_t leaves, int64_t micro_leaves,
                       struct ls_error *error)
{
    int64_t dp = replicas(layout), cp = layout->size[LS_AXIS_CP];
    if (leaves % dp)
        return plan_refuse_dp(error, keys, LS_AXES, dp, "it does not divide a batch of %s",
                              ls_counted(leaves, "leaf").text);
    int64_t share = leaves / dp, micro = ls_min(micro_leaves, share);
    if (!layout->numerics.fast) {
        if (cp > 1 && micro > 1)
            return plan_refuse(error, "batch.micro", micro,
                               "with parallel.cp = %ld each leaf is added up over ranks, so a "
                               "micro-batch is one leaf: set it to 1, or 0",
                               (long)cp);
        int status = layout->neighbouring ? check_neighbouring(keys, layout, leaves, micro, error)
                                          : check_consecutive(keys, layout, leaves, micro, error);
        if (status)
            return status;
    }
    return plan_schedule_takes(layout, file, ls_ceil_div(share, micro), error);
}

/* The batch that was refused is one of the ramp-up: not batch.global, but these keys give it. */
static void blame_rampup(const struct ls_layout_request *request, int64_t leaves,
                         struct ls_error *error)
{
    int64_t leaf = request->numerics.leaf_sequences;
    if (leaves == request->leaves_start)
        ls_error_suffix(error, " (the ramp-up's first batch: batch.rampup_start = %ld)",
                        (long)(leaves * leaf));
    else
        ls_error_suffix(error,
                        " (the ramp-up's batch of %s: batch.rampup_start = %ld, "
                        "batch.rampup_increment = %ld)",
                        ls_counted(leaves * leaf, "sequence").text,
                        (long)(request->leaves_start * leaf),
                        (long)(request->leaves_increment * leaf));
}

/* The same for all batch sizes that the ramp-up walks through. */
static int check_batches(const struct ls_layout_request *request, const struct ls_schedule *file,
                         const struct ls_layout *layout, int64_t micro_leaves,
                         struct ls_error *error)
{
    int64_t full = request->leaves;
    int64_t leaves = request->leaves_increment > 0 ? request->leaves_start : full;
    for (;; leaves = ls_min(leaves + request->leaves_increment, full)) {
        int status = check_batch(request->keys, layout, file, leaves, micro_leaves, error);
        if (status && leaves < full && error)
            blame_rampup(request, leaves, error);
        if (status || leaves >= full)
            return status;
    }
}

/* ---- the micro-batch ---------------------------------------------------------------------------
 */

/* The largest that fills AUTO_MICRO_ROWS and leaves a pipeline at least two micro-batches a rank;
 * where nothing of that kind is admissible, the largest that is. */
static int64_t choose_micro(const struct ls_layout_request *request, const struct ls_schedule *file,
                            const struct ls_layout *layout)
{
    int64_t share = ls_max(request->leaves / replicas(layout), 1);
    int64_t pp = layout->size[LS_AXIS_PP], wanted = pp > 1 ? 2 * pp : 1;
    int64_t rows = layout->numerics.leaf_sequences * layout->sequence / layout->size[LS_AXIS_CP];
    int64_t start = 1;
    while (start * 2 <= share && start * 2 * rows <= AUTO_MICRO_ROWS &&
           share / (start * 2) >= wanted)
        start *= 2;
    if (pp == 1 && share * rows <= AUTO_MICRO_ROWS &&
        !check_batches(request, file, layout, share, NULL))
        return share;
    for (int64_t micro = start; micro >= 1; micro /= 2)
        if (!check_batches(request, file, layout, micro, NULL))
            return micro;
    for (int64_t micro = 2 * start; micro <= share; micro *= 2)
        if (!check_batches(request, file, layout, micro, NULL))
            return micro;
    return start;
}

int plan_batch(const struct ls_layout_request *request, const struct ls_schedule *file,
               struct ls_layout *layout, struct ls_error *error)
{
    int64_t leaf = layout->numerics.leaf_sequences, micro = request->micro_sequences;
    if (micro % leaf)
        return plan_refuse(error, "batch.micro", micro,
                           "it must be whole leaves of numerics.leaf_sequences = %ld", (long)leaf);
    int64_t micro_leaves = micro ? micro / leaf : choose_micro(request, file, layout);
    int status = check_batches(request, file, layout, micro_leaves, error);
    if (status)
        return status;
    int64_t share = request->leaves / replicas(layout);
    layout->micro_leaves = ls_min(micro_leaves, share);
    layout->micro_sequences = layout->micro_leaves * leaf;
    layout->micro_batches = ls_ceil_div(share, layout->micro_leaves);
    return LS_OK;
}

void ls_layout_share(const struct ls_layout *layout, int64_t leaves,
                     const int64_t coordinates[LS_AXES], struct ls_dp_share *share)
{
    int64_t shards = layout->size[LS_AXIS_DP_SHARD], count = leaves / replicas(layout);
    int64_t j = coordinates[LS_AXIS_DP_SHARD], i = coordinates[LS_AXIS_DP_REPLICATE];
    if (layout->numerics.fast) {
        int64_t micro = ls_min(layout->micro_leaves, count);
        *share = (struct ls_dp_share){.leaves = leaves,
                                      .first = (i * shards + j) * count,
                                      .count = count,
                                      .micro_leaves = micro,
                                      .micro_batches = ls_ceil_div(count, micro)};
        return;
    }
    struct ls_dp_cut cut = {layout->size[LS_AXIS_DP_REPLICATE], i, shards, j, layout->neighbouring};
    if (layout->zero == 0) /* one level: all of them are replicas */
        cut = (struct ls_dp_cut){replicas(layout), i * shards + j, 1, 0, false};
    struct ls_error error;
    int status = ls_dp_share_init(share, leaves, &cut, layout->micro_leaves, &error);
    LS_ASSERT(status == LS_OK); /* ls_layout_resolve checked it */
}

struct ls_batches_text ls_layout_batches(const struct ls_layout *layout)
{
    static const int64_t origin[LS_AXES];
    struct ls_batches_text words;
    struct ls_dp_share share;
    int64_t first, last;
    ls_layout_share(layout, layout->leaves, origin, &share);
    ls_dp_micro_batch(&share, share.micro_batches - 1, &first, &last);
    snprintf(words.text, sizeof words.text, "%s of %s%s",
             ls_counted(share.micro_batches, "micro-batch").text,
             last < share.micro_leaves ? "up to " : "",
             ls_counted(layout->micro_sequences, "sequence").text);
    return words;
}
