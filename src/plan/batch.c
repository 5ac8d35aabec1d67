/* Who computes which leaves of a step. */
#include "plan_private.h"

#include <stdio.h>

/* Rows of a micro-batch on a rank that batch.micro = 0 aims at: enough to fill the products'
 * blocks. */
enum { AUTO_MICRO_ROWS = 4096 };

static int64_t replicas(const struct ls_layout *layout)
{
    return layout->size[LS_AXIS_DP_REPLICATE] * layout->size[LS_AXIS_DP_SHARD];
}

/* ---- shares ------------------------------------------------------------------------------------
 */

/* How a batch's leaves are cut, and the rank at these coordinates. */
static struct ls_dp_cut cut_of(const struct ls_layout *layout, const int64_t at[LS_AXES])
{
    return (struct ls_dp_cut){.replicas = layout->size[LS_AXIS_DP_REPLICATE],
                              .replica = at[LS_AXIS_DP_REPLICATE],
                              .shards = layout->size[LS_AXIS_DP_SHARD],
                              .shard = at[LS_AXIS_DP_SHARD],
                              .order = layout->numerics.fast  ? LS_DP_ANY
                                       : layout->neighbouring ? LS_DP_NEIGHBOURS
                                       : layout->zero         ? LS_DP_LEVELS
                                                              : LS_DP_FLAT};
}

/* A refusal of data parallel, by the key that the user gave. */
static int refuse_dp(const struct ls_layout_keys *keys, const struct ls_layout *layout,
                     enum ls_dp_part part, const char *reason, struct ls_error *error)
{
    const int64_t *size = layout->size;
    int64_t dp = replicas(layout), replicate = keys->dp_replicate, shard = keys->dp_shard;
    if (part == LS_DP_RANKS && keys->dp > 0)
        return plan_refuse(error, "parallel.dp", keys->dp, "%s", reason);
    if (part == LS_DP_RANKS && replicate > 1 && shard > 1)
        return plan_refuse(error, "parallel.dp_replicate", replicate,
                           "with parallel.dp_shard = %ld data parallel has %ld ranks: %s",
                           (long)shard, (long)dp, reason);
    bool is_shard = part == LS_DP_RANKS ? shard > 1 : part == LS_DP_SHARDS;
    const char *key = is_shard ? "parallel.dp_shard" : "parallel.dp_replicate";
    int64_t value =
        part == LS_DP_RANKS ? dp : size[is_shard ? LS_AXIS_DP_SHARD : LS_AXIS_DP_REPLICATE];
    if ((is_shard ? shard : replicate) || keys->dp == 0)
        return plan_refuse(error, key, value, "%s", reason);
    if (value == keys->dp)
        return plan_refuse(error, "parallel.dp", value, "%s", reason);
    return plan_refuse(error, "parallel.dp", keys->dp, "it leaves %s = %ld: %s", key, (long)value,
                       reason);
}

/* One batch size: that every rank's share and micro-batches are whole subtrees, and that the
 * schedule takes that many micro-batches. */
static int check_batch(const struct ls_layout_keys *keys, const struct ls_layout *layout,
                       const struct ls_schedule *file, int64_t leaves, int64_t micro_leaves,
                       struct ls_error *error)
{
    static const int64_t origin[LS_AXES];
    struct ls_dp_cut cut = cut_of(layout, origin);
    int64_t cp = layout->size[LS_AXIS_CP], share = leaves / replicas(layout);
    int64_t micro = ls_min(micro_leaves, share);
    enum ls_dp_part part;
    struct ls_error why = {0};
    if (!layout->numerics.fast && cp > 1 && micro > 1)
        return plan_refuse(error, "batch.micro", micro,
                           "with parallel.cp = %ld each leaf is added up over ranks, so a "
                           "micro-batch is one leaf: set it to 1, or 0",
                           (long)cp);
    int status = ls_dp_admits(&cut, leaves, micro_leaves, &part, error ? &why : NULL);
    if (!status)
        return plan_schedule_takes(layout, file, ls_ceil_div(share, micro), error);
    if (!error)
        return status;
    if (layout->neighbouring && leaves % replicas(layout) == 0)
        ls_error_suffix(&why, " (parallel.zero = %d)", layout->zero);
    if (part == LS_DP_MICRO_LEAVES)
        return plan_refuse(error, "batch.micro", micro * layout->numerics.leaf_sequences, "%s",
                           why.text);
    return refuse_dp(keys, layout, part, why.text, error);
}

struct plan_rampup_text plan_rampup_text(const struct ls_layout *layout, int64_t leaves)
{
    struct plan_rampup_text words = {""};
    const struct ls_ramp *ramp = &layout->ramp;
    int64_t leaf = layout->numerics.leaf_sequences;
    if (leaves >= ramp->full)
        return words;
    if (leaves == ramp->start)
        snprintf(words.text, sizeof words.text,
                 " (the ramp-up's first batch: batch.rampup_start = %ld)", (long)(leaves * leaf));
    else
        snprintf(words.text, sizeof words.text,
                 " (the ramp-up's batch of %s: batch.rampup_start = %ld, "
                 "batch.rampup_increment = %ld)",
                 ls_counted(leaves * leaf, "sequence").text, (long)(ramp->start * leaf),
                 (long)(ramp->increment * leaf));
    return words;
}

/* The same for all batch sizes that the ramp-up walks through. */
static int check_batches(const struct ls_layout_request *request, const struct ls_schedule *file,
                         const struct ls_layout *layout, int64_t micro_leaves,
                         struct ls_error *error)
{
    int status = LS_OK;
    for (int64_t leaves = 0; !status && (leaves = ls_ramp_next(&layout->ramp, leaves));) {
        status = check_batch(request->keys, layout, file, leaves, micro_leaves, error);
        if (status && error)
            ls_error_suffix(error, "%s", plan_rampup_text(layout, leaves).text);
    }
    return status;
}

/* ---- the micro-batch ---------------------------------------------------------------------------
 */

/* The largest that fills AUTO_MICRO_ROWS and leaves a pipeline at least two micro-batches a rank;
 * where nothing of that kind is admissible, the largest that is. */
static int64_t choose_micro(const struct ls_layout_request *request, const struct ls_schedule *file,
                            const struct ls_layout *layout)
{
    int64_t share = ls_max(layout->ramp.full / replicas(layout), 1);
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
    int64_t share = layout->ramp.full / replicas(layout);
    layout->micro_leaves = ls_min(micro_leaves, share);
    layout->micro_sequences = layout->micro_leaves * leaf;
    layout->micro_batches = ls_ceil_div(share, layout->micro_leaves);
    return LS_OK;
}

void ls_layout_share(const struct ls_layout *layout, int64_t leaves,
                     const int64_t coordinates[LS_AXES], struct ls_dp_share *share)
{
    struct ls_dp_cut cut = cut_of(layout, coordinates);
    int status = ls_dp_share_init(share, leaves, &cut, layout->micro_leaves, NULL);
    LS_ASSERT(status == LS_OK); /* ls_layout_resolve checked it */
}

struct ls_batches_text ls_layout_batches(const struct ls_layout *layout)
{
    static const int64_t origin[LS_AXES];
    struct ls_batches_text words;
    struct ls_dp_share share;
    int64_t first, last;
    ls_layout_share(layout, layout->ramp.full, origin, &share);
    ls_dp_micro_batch(&share, share.micro_batches - 1, &first, &last);
    snprintf(words.text, sizeof words.text, "%s of %s%s",
             ls_counted(share.micro_batches, "micro-batch").text,
             last < share.micro_leaves ? "up to " : "",
             ls_counted(layout->micro_sequences, "sequence").text);
    return words;
}
