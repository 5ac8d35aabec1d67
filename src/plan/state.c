/* What ZeRO moves: parameters and gradients, on shard and replicate. The counterpart of
 * src/parallel/zero*.c. */
#include "walk.h"

/* ---- parameters
 * ---------------------------------------------------------------------------------- */

static int both_kinds(const struct plan_walk *walk, const int64_t elements[2], const char *what)
{
    int status = plan_collective(walk, LS_GROUP_SHARD, LS_COMM_ALL_GATHER,
                                 walk->layout->numerics.act, elements[0], what);
    return status ? status
                  : plan_collective(walk, LS_GROUP_SHARD, LS_COMM_ALL_GATHER, LS_F32, elements[1],
                                    what);
}

static int unit_use(struct plan_walk *walk, int unit)
{
    if (unit < 0 || (!walk->layout->reshard_after_forward && walk->gathered[unit]))
        return LS_OK;
    walk->gathered[unit] = true;
    return both_kinds(walk, walk->part->units[unit].gather, "parameters");
}

/* Zero 3 gathers a layer's parameters in front of its forward and of its backward; the embedding
 * layer's, and the head's table where it is tied, in front of the forward alone. */
int plan_weights(struct plan_walk *walk, bool forward)
{
    const struct plan_part *part = walk->part;
    if (!part->cut || walk->layout->zero < 3 || (walk->layer == 0 && !forward))
        return LS_OK;
    int status = unit_use(walk, part->unit_of[walk->layer]);
    if (!status && walk->layer == 0 && part->params.tied_param >= 0)
        status = unit_use(walk, part->params.list[part->params.tied_param].unit);
    return status;
}

/* After the update the others' parts are gathered anew: all of them (zero 1 and 2), or what always
 * stays whole (zero 3). */
int plan_publish(struct plan_walk *walk)
{
    const struct plan_part *part = walk->part;
    int status = LS_OK;
    walk->layer = -1;
    walk->micro_batch = -1;
    if (!part->cut)
        return LS_OK;
    if (walk->layout->zero == 3)
        return both_kinds(walk, part->kept, "parameters that stay whole");
    for (int u = 0; u < part->params.unit_count && !status; u++) {
        walk->layer = part->params.units[u].layer;
        status = both_kinds(walk, part->units[u].gather, "parameters");
    }
    return status;
}

/* ---- gradients
 * ----------------------------------------------------------------------------------- */

/* All-reduces are cut in buckets, because who owns an uneven rest depends on the cut. */
static int sum_over(const struct plan_walk *walk, enum ls_layout_group group, int64_t elements)
{
    enum { BUCKETS = 8, ALIGN = 16 };
    int64_t bucket = walk->layout->bucket_bytes / (int64_t)sizeof(float);
    int status = LS_OK;
    if (bucket <= 0)
        bucket = ls_max(elements, 1);
    bucket = ls_round_up(ls_max(bucket, ls_ceil_div(elements, BUCKETS)), ALIGN);
    for (int64_t first = 0; first < elements && !status; first += bucket)
        status = plan_collective(walk, group, LS_COMM_ALL_REDUCE, LS_F32,
                                 ls_min(bucket, elements - first), "gradients");
    return status;
}

int plan_region(struct plan_walk *walk, int region)
{
    const struct plan_part *part = walk->part;
    if (region < 0)
        return LS_OK;
    bool last = walk->micro_batch == walk->micro_batches - 1;
    int64_t whole = part->params.regions[region].elements, mine = part->scatter[region];
    int status = LS_OK;
    if (part->cut && (part->each || last))
        status = plan_collective(walk, LS_GROUP_SHARD, LS_COMM_REDUCE_SCATTER, walk->layout->reduce,
                                 mine, "gradients");
    else if (!part->cut && part->each)
        status = sum_over(walk, LS_GROUP_SHARD, whole);
    if (status || !last)
        return status;
    return sum_over(walk, LS_GROUP_REPLICATE, part->cut ? mine : whole);
}
