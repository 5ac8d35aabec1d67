/* Who computes which leaves of a step. */
#include "plan/plan_private.h"

#include <stdio.h>

static int64_t replicas(const struct ls_layout *layout)
{
    return layout->size[LS_AXIS_DP_REPLICATE] * layout->size[LS_AXIS_DP_SHARD];
}

/* ---- shares ---------------------------------------------------------------------------------- */

/* How a batch's leaves are cut, and the rank at these coordinates. */
static struct ls_dp_cut cut_of(const struct ls_layout *layout, const int64_t at[LS_AXES])
{
    return (struct ls_dp_cut){
        .ranks = replicas(layout),
        .rank = at[LS_AXIS_DP_REPLICATE] * layout->size[LS_AXIS_DP_SHARD] + at[LS_AXIS_DP_SHARD],
        .in_turn = !layout->numerics.fast && replicas(layout) * layout->size[LS_AXIS_CP] > 1};
}

/* A refusal of data parallel, by the key that the user gave: of two the one that does not divide
 * the leaves, if one alone does not. */
static int refuse_dp(const struct ls_layout_keys *keys, const struct ls_layout *layout,
                     int64_t leaves, const char *reason, struct ls_error *error)
{
    const int64_t *size = layout->size;
    int64_t dp = replicas(layout), replicate = keys->dp_replicate, shard = keys->dp_shard;
    bool by_replicate = leaves % size[LS_AXIS_DP_REPLICATE] != 0;
    bool by_shard = !by_replicate && leaves % size[LS_AXIS_DP_SHARD] != 0;
    if (!by_replicate && !by_shard && keys->dp > 0)
        return plan_refuse(error, "parallel.dp", keys->dp, "%s", reason);
    if (!by_replicate && !by_shard && replicate > 1 && shard > 1)
        return plan_refuse(error, "parallel.dp_replicate", replicate,
                           "with parallel.dp_shard = %ld data parallel has %ld ranks: %s",
                           (long)shard, (long)dp, reason);
    const char *key = by_shard ? "parallel.dp_shard" : "parallel.dp_replicate";
    int64_t value = size[by_shard ? LS_AXIS_DP_SHARD : LS_AXIS_DP_REPLICATE];
    if ((by_shard ? shard : replicate) || keys->dp == 0)
        return plan_refuse(error, key, value, "%s", reason);
    if (value == keys->dp)
        return plan_refuse(error, "parallel.dp", value, "%s", reason);
    return plan_refuse(error, "parallel.dp", keys->dp, "it leaves %s = %ld: %s", key, (long)value,
                       reason);
}

/* A part of a leaf goes on with its chain, which on some instruction sets is cut only so. */
enum { CHAIN_TOKENS = 32 };

/* One batch size: that every rank has an equal share in whole micro-batches, and that the schedule
 * takes that many. */
static int check_batch(const struct ls_layout_keys *keys, const struct ls_layout *layout,
                       const struct ls_schedule *file, int64_t leaves, int64_t micro,
                       struct ls_error *error)
{
    static const int64_t origin[LS_AXES];
    struct ls_dp_cut cut = cut_of(layout, origin);
    int64_t leaf = layout->numerics.leaf_sequences;
    struct ls_dp_share share;
    struct ls_error why = {0};
    if (micro > INT32_MAX / layout->sequence)
        return plan_refuse(error, "batch.micro", micro,
                           "expected at most %ld sequences of %ld tokens: a micro-batch has at "
                           "most %d tokens",
                           (long)(INT32_MAX / layout->sequence), (long)layout->sequence, INT32_MAX);
    if (!layout->numerics.fast && micro < leaf && micro * layout->sequence % CHAIN_TOKENS)
        return plan_refuse(error, "batch.micro", micro,
                           "a micro-batch that is a part of a leaf must have a multiple of %d "
                           "tokens, not %s of %ld",
                           CHAIN_TOKENS, ls_counted(micro, "sequence").text,
                           (long)layout->sequence);
    int status = ls_dp_share_init(&share, &cut, leaves, leaf, micro, error ? &why : NULL);
    int64_t tiles = ls_max(layout->numerics.seq_tiles / layout->size[LS_AXIS_CP], 1);
    if (!status && !layout->numerics.fast &&
        share.micro / ls_min(share.micro, leaf) > LS_GEMM_TILES_MAX / tiles)
        return plan_refuse(error, "batch.micro", micro,
                           "expected at most %ld leaves: a weight gradient is summed in at most %d "
                           "tiles, and each leaf of numerics.leaf_sequences = %ld has %ld",
                           (long)(LS_GEMM_TILES_MAX / tiles), LS_GEMM_TILES_MAX, (long)leaf,
                           (long)tiles);
    if (!status)
        return plan_schedule_takes(layout, file, share.micro_batches, error);
    return error ? refuse_dp(keys, layout, leaves, why.text, error) : status;
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
                         const struct ls_layout *layout, int64_t micro, struct ls_error *error)
{
    int status = LS_OK;
    for (int64_t leaves = 0; !status && (leaves = ls_ramp_next(&layout->ramp, leaves));) {
        status = check_batch(request->keys, layout, file, leaves, micro, error);
        if (status && error)
            ls_error_suffix(error, "%s", plan_rampup_text(layout, leaves).text);
    }
    return status;
}

/* ---- the micro-batch ------------------------------------------------------------------------- */

/* Whether data-parallel ranks have equal shares of every batch. */
static bool shares_are_equal(const struct ls_layout *layout)
{
    bool equal = true;
    for (int64_t leaves = 0; equal && (leaves = ls_ramp_next(&layout->ramp, leaves));)
        equal = leaves % replicas(layout) == 0;
    return equal;
}

/* The largest that fills LS_MICRO_ROWS, leaves a pipeline at least two micro-batches a rank, and
 * is no more than a leaf where ranks take them in turn; if nothing of that kind is admissible,
 * the largest that is. */
static int64_t choose_micro(const struct ls_layout_request *request, const struct ls_schedule *file,
                            const struct ls_layout *layout)
{
    static const int64_t origin[LS_AXES];
    int64_t pp = layout->size[LS_AXIS_PP], leaf = layout->numerics.leaf_sequences;
    int64_t rows = layout->sequence / layout->size[LS_AXIS_CP];
    int64_t share = ls_max(layout->ramp.full / replicas(layout), 1) * leaf;
    int64_t most = cut_of(layout, origin).in_turn ? leaf : share, wanted = pp > 1 ? 2 * pp : 1;
    if (!shares_are_equal(layout)) /* no size is admissible */
        return leaf;
    if (pp == 1 && most * rows <= LS_MICRO_ROWS &&
        !check_batches(request, file, layout, most, NULL))
        return most;
    int64_t start = 1;
    while (start * 2 <= most && start * 2 * rows <= LS_MICRO_ROWS && share / (start * 2) >= wanted)
        start *= 2;
    for (int64_t micro = start; micro >= 1; micro /= 2)
        if (!check_batches(request, file, layout, micro, NULL))
            return micro;
    for (int64_t micro = start + 1; micro <= most; micro++)
        if ((micro <= leaf || micro % leaf == 0) &&
            !check_batches(request, file, layout, micro, NULL))
            return micro;
    return ls_min(start, most);
}

int plan_batch(const struct ls_layout_request *request, const struct ls_schedule *file,
               struct ls_layout *layout, struct ls_error *error)
{
    static const int64_t origin[LS_AXES];
    int64_t micro = request->micro_sequences;
    micro = micro ? micro : choose_micro(request, file, layout);
    int status = check_batches(request, file, layout, micro, error);
    if (status)
        return status;
    struct ls_dp_share share;
    layout->micro_sequences = micro;
    ls_layout_share(layout, layout->ramp.full, origin, &share);
    layout->micro_sequences = share.micro;
    layout->micro_batches = share.micro_batches;
    if (cut_of(layout, origin).in_turn && micro > layout->micro_sequences)
        snprintf(layout->note, sizeof layout->note,
                 "a micro-batch has %s and not batch.micro = %ld: ranks take leaves in turn, of "
                 "numerics.leaf_sequences = %ld",
                 ls_counted(layout->micro_sequences, "sequence").text, (long)micro,
                 (long)layout->numerics.leaf_sequences);
    return LS_OK;
}

void ls_layout_share(const struct ls_layout *layout, int64_t leaves,
                     const int64_t coordinates[LS_AXES], struct ls_dp_share *share)
{
    struct ls_dp_cut cut = cut_of(layout, coordinates);
    int status = ls_dp_share_init(share, &cut, leaves, layout->numerics.leaf_sequences,
                                  layout->micro_sequences, NULL);
    LS_ASSERT(status == LS_OK); /* ls_layout_resolve checked it */
}

struct ls_batches_text ls_layout_batches(const struct ls_layout *layout)
{
    static const int64_t origin[LS_AXES];
    struct ls_batches_text words;
    struct ls_dp_share share;
    ls_layout_share(layout, layout->ramp.full, origin, &share);
    int64_t last = ls_dp_micro_batch(&share, share.micro_batches - 1).count;
    snprintf(words.text, sizeof words.text, "%s of %s%s",
             ls_counted(share.micro_batches, "micro-batch").text,
             last < share.micro ? "up to " : "",
             ls_counted(layout->micro_sequences, "sequence").text);
    return words;
}
