/* Bytes of a step by formulas, axis by axis. */
#include "formulas.h"
#include "../support/suite.h"

#include <stdlib.h>

/* ---- what a rank holds ----------------------------------------------------------------------- */

struct unit {
    int64_t gather[2]; /* elements that one rank brings to a gather: of matrices, of vectors */
};

/* Of all ranks with the same pipeline and tensor-parallel rank. */
struct part {
    struct ls_params params;
    bool cut, each;     /* ZeRO cuts the state; micro-batches are reduced one by one */
    struct unit *units; /* [params.unit_count] */
    int64_t *scatter;   /* [params.region_count] elements of a region that a rank keeps */
    int64_t kept[2];    /* elements that one rank brings of tensors that stay whole (zero 3) */
};

/* Elements of a tensor that each of the shard ranks has room for: rows are rounded up. */
static int64_t shard_elements(const struct ls_layout *layout, const struct ls_param *param)
{
    int64_t rows = param->rows == 1 ? param->cols : param->rows;
    int64_t cols = param->rows == 1 ? 1 : param->cols;
    return ls_ceil_div(rows, layout->sets[0].shard_ranks) * cols;
}

/* Elements that shard rank `rank` really has of it. */
static int64_t slice_elements(const struct ls_layout *layout, const struct ls_param *param,
                              bool cut, int64_t rank)
{
    int64_t all = param->rows * param->cols, room = shard_elements(layout, param);
    return cut ? ls_min(room, all - ls_min(rank * room, all)) : all;
}

static void part_init(const struct ls_layout *layout, const int64_t at[LS_AXES], struct part *part)
{
    bool held[LS_LAYOUT_LAYERS_MAX + 2];
    struct ls_error error = {0};
    *part = (struct part){.cut = layout->zero > 0 && layout->sets[0].shard_ranks > 1};
    ls_layout_layers(layout, at[LS_AXIS_PP], held, NULL);
    struct ls_part cut = {
        .tp = layout->size[LS_AXIS_TP], .tp_rank = at[LS_AXIS_TP], .layers = held};
    assert_ok(ls_params_init(&part->params, &layout->model, &layout->numerics, &cut, &error),
              error);
    part->units = calloc((size_t)part->params.unit_count + 1, sizeof *part->units);
    part->scatter = calloc((size_t)part->params.region_count + 1, sizeof *part->scatter);
    for (int i = 0; i < part->params.count; i++) {
        const struct ls_param *param = &part->params.list[i];
        int64_t mine = shard_elements(layout, param);
        bool stays = layout->zero == 3 && layout->reshard_after_forward &&
                     param->rows * param->cols <= layout->persist;
        int64_t *gather = stays ? part->kept : part->units[param->unit].gather;
        gather[!param->matrix] += mine;
        part->scatter[param->gradient.region] += mine;
        if (param->second.region >= 0)
            part->scatter[param->second.region] += mine;
    }
}

static void part_release(struct part *part)
{
    ls_params_release(&part->params);
    free(part->units);
    free(part->scatter);
}

/* What does not depend on the axis. */
struct step {
    const struct ls_layout *layout;
    const struct ls_params *params;
    int64_t at[LS_AXES];
    bool held[LS_LAYOUT_LAYERS_MAX + 2];
    int64_t blocks;
    bool embedding, head;
    struct ls_dp_share share;
    int64_t act; /* bytes */
};

/* An all-reduce of count float32 values over n ranks, as rank r. */
static int64_t reduced(int64_t count, int64_t n, int64_t r)
{
    int64_t own = count / n + (r < count % n);
    return 4 * (count - own + own * (n - 1));
}

static int64_t rows_of(const struct step *step, int64_t sequences)
{
    const struct ls_layout *l = step->layout;
    return sequences * l->sequence / l->size[LS_AXIS_CP];
}

/* ---- tp
 * ------------------------------------------------------------------------------------------ */

static int64_t kv_width(const struct ls_layout *l)
{
    return ls_max(l->model.kv_heads / l->size[LS_AXIS_TP], 1) * l->model.head_dim;
}

/* Gradients of shared keys and values, one block and micro-batch. Of each query segment, the keys
 * up to its end have them. */
static int64_t sharers_bytes(const struct step *step, int64_t sequences)
{
    const struct ls_layout *l = step->layout;
    int64_t n = ls_group_size(l, LS_GROUP_SHARERS), tiles = l->numerics.seq_tiles;
    int64_t r = step->at[LS_AXIS_TP] % n, cp = l->size[LS_AXIS_CP], kv = kv_width(l), sum = 0;
    if (n == 1)
        return 0;
    if (tiles == 1)
        return reduced(2 * rows_of(step, sequences) * kv, n, r);
    int64_t length = l->sequence / (2 * tiles);
    bool ring = cp > 1 && l->cp_method == LS_CP_RING;
    for (int i = 0; i < ls_segments(tiles, cp); i++) {
        int64_t first, count;
        ls_segment(tiles, cp, step->at[LS_AXIS_CP], l->sequence, i, &first, &count);
        sum += ring ? 2 * (first / length + 1) * reduced(length * kv, n, r)
                    : 2 * reduced((first + count) * kv, n, r);
    }
    return sequences * sum;
}

/* Units whose logits are there at once, of `leaf` units a leaf: whole leaves; or of a leaf
 * sequences, where those have one tile; or a power of two of tiles. */
static int64_t logits_units(const struct ls_layout *l, int64_t leaf, int64_t act)
{
    int64_t tiles = l->numerics.seq_tiles / l->size[LS_AXIS_CP], group = 1;
    int64_t bytes =
        l->sequence / l->numerics.seq_tiles * (l->model.vocab_padded / l->size[LS_AXIS_TP]) * act;
    int64_t fit = ls_max(1, ls_min(LS_LOGITS_BYTES / bytes, l->micro_sequences * tiles));
    while (2 * group <= fit)
        group *= 2;
    return fit >= leaf ? fit / leaf * leaf : tiles == 1 ? fit : group;
}

/* Maximum, sum and target's logit of each row, group by group: who sends an uneven rest depends on
 * the cut. */
static int64_t softmax_bytes(const struct step *step, int64_t sequences)
{
    const struct ls_layout *l = step->layout;
    int64_t tp = l->size[LS_AXIS_TP], r = step->at[LS_AXIS_TP], bytes = 0;
    int64_t tiles = l->numerics.seq_tiles / l->size[LS_AXIS_CP];
    int64_t whole = ls_min(l->micro_sequences, l->numerics.leaf_sequences) * tiles;
    int64_t leaf = ls_min(sequences, l->numerics.leaf_sequences) * tiles;
    int64_t group = logits_units(l, whole, step->act), units = sequences * tiles;
    for (int64_t first = 0, count; first < units; first += count) {
        int64_t left = leaf - first % leaf; /* of this leaf */
        count = group >= leaf ? ls_min(group / leaf * leaf, units - first) : ls_min(group, left);
        int64_t rows = count * (l->sequence / l->numerics.seq_tiles);
        bytes += reduced(rows, tp, r) + reduced(2 * rows, tp, r);
    }
    return bytes;
}

static int64_t tp_bytes(const struct step *step, int64_t sequences)
{
    const struct ls_layout *l = step->layout;
    int64_t tp = l->size[LS_AXIS_TP], r = step->at[LS_AXIS_TP], c = l->model.channels;
    if (tp == 1)
        return 0;
    int64_t rows = rows_of(step, sequences), m = ls_ceil_div(rows, tp) * c;
    int64_t product = (tp - 1) * (4 + step->act) * m, gather = (tp - 1) * step->act * m;
    int64_t products = 4 * step->blocks + step->embedding + step->head;
    int64_t bytes = products * product + step->blocks * sharers_bytes(step, sequences);
    if (step->head)
        bytes += softmax_bytes(step, sequences);
    if (!l->sp)
        return bytes;
    int64_t vectors = l->model.arch == LS_GPT2 && l->model.bias ? 2 : 1;
    int64_t tiles = sequences * (l->numerics.seq_tiles / l->size[LS_AXIS_CP]);
    int64_t norms = (l->numerics.fast ? 1 : tiles) * vectors * c;
    return bytes + step->blocks * (2 * gather + reduced(2 * norms, tp, r)) +
           step->head * reduced(norms, tp, r);
}

/* ---- cp
 * ------------------------------------------------------------------------------------------ */

/* Half chunks that rank hands on: all but those of its right neighbour; and those whose sums it
 * sends away: all but its own. */
static int64_t ring_bytes(const struct ls_layout *l, int64_t act)
{
    int64_t cp = l->size[LS_AXIS_CP], chunks = 2 * l->numerics.seq_tiles;
    int64_t block = l->sequence / chunks * 2 * kv_width(l), others = chunks - chunks / cp;
    return others * block * (2 * act + 4);
}

static int64_t cp_bytes(const struct step *step, int64_t sequences)
{
    const struct ls_layout *l = step->layout;
    int64_t cp = l->size[LS_AXIS_CP];
    if (cp == 1)
        return 0;
    int64_t each = l->cp_method == LS_CP_RING
                       ? ring_bytes(l, step->act)
                       : (cp - 1) * (l->sequence / cp * 2 * kv_width(l)) * (2 * step->act + 4);
    return step->blocks * sequences * each;
}

/* ---- pp
 * ------------------------------------------------------------------------------------------ */

static int64_t pp_bytes(const struct step *step, int64_t sequences)
{
    const struct ls_layout *l = step->layout;
    int64_t rows = rows_of(step, sequences), messages = 0;
    if (l->sp)
        rows = ls_ceil_div(rows, l->size[LS_AXIS_TP]);
    for (int64_t s = 0; s < l->stages; s++) {
        if (l->stage_rank[s] != step->at[LS_AXIS_PP])
            continue;
        messages += s + 1 < l->stages && l->stage_rank[s + 1] != l->stage_rank[s];
        messages += s > 0 && l->stage_rank[s - 1] != l->stage_rank[s];
    }
    return messages * rows * l->model.channels * step->act;
}

/* ---- dp
 * ------------------------------------------------------------------------------------------ */

/* An all-reduce in buckets, of which every one deals its rest out anew. */
static int64_t bucketed(const struct ls_layout *l, int64_t count, int64_t n, int64_t r)
{
    int64_t bucket = l->bucket_bytes > 0 ? l->bucket_bytes / 4 : ls_max(count, 1), bytes = 0;
    bucket = ls_round_up(ls_max(bucket, ls_ceil_div(count, 8)), 16);
    for (int64_t first = 0; first < count && n > 1; first += bucket)
        bytes += reduced(ls_min(bucket, count - first), n, r);
    return bytes;
}

/* What a replica sends of a region: its part of the sum, round after round, to the next; the last
 * one the whole sum to all. In fast mode an all-reduce. */
static int64_t replicate_bytes(const struct ls_layout *l, int64_t count, int64_t rounds,
                               int64_t rank)
{
    int64_t n = l->sets[0].replicate_ranks;
    if (n == 1 || l->numerics.fast)
        return bucketed(l, count, n, rank);
    return 4 * count * (rank == n - 1 ? rounds - 1 + n - 1 : rounds);
}

static void regions_bytes(const struct step *step, const struct part *part, int64_t rank,
                          struct formula_bytes *bytes)
{
    const struct ls_layout *l = step->layout;
    int64_t reduce = (int64_t)ls_dtype_bytes(l->reduce), d = l->sets[0].shard_ranks;
    int64_t times = !l->numerics.fast ? step->share.count
                    : l->zero >= 2    ? step->share.micro_batches
                                      : 1;
    int64_t shard_rank = ls_group_rank(l, LS_GROUP_SHARD, rank);
    int64_t replicate_rank = ls_group_rank(l, LS_GROUP_REPLICATE, rank);
    bool copies = l->zero == 0 && l->size[LS_AXIS_DP_REPLICATE] > 1;
    int64_t *sums = copies ? &bytes->replicate : &bytes->shard;
    for (int i = 0; i < step->params->region_count; i++) {
        int64_t whole = step->params->regions[i].elements, mine = part->scatter[i];
        if (part->cut)
            bytes->shard += times * reduce * mine * (d - 1);
        else
            *sums += times * bucketed(l, whole, d, shard_rank);
        bytes->replicate += replicate_bytes(l, part->cut ? mine : whole, times, replicate_rank);
    }
}

static void units_bytes(const struct step *step, const struct part *part,
                        struct formula_bytes *bytes)
{
    const struct ls_layout *l = step->layout;
    int64_t d = l->sets[0].shard_ranks, micro_batches = step->share.micro_batches;
    if (!part->cut)
        return;
    for (int i = 0; i < step->params->unit_count; i++) {
        const int64_t *gather = part->units[i].gather;
        int64_t times = l->zero == 3 && l->reshard_after_forward ? 2 * micro_batches : 1;
        int tied = step->params->tied_param;
        /* The embedding layer's backward reads no parameters. */
        if (times > 1 && step->params->units[i].layer == 0)
            times = micro_batches;
        /* A tied table is looked up in once more. */
        if (times > 1 && tied >= 0 && step->params->list[tied].unit == i)
            times += micro_batches;
        bytes->shard += times * (d - 1) * (gather[0] * step->act + gather[1] * 4);
    }
    if (l->zero == 3)
        bytes->shard += (d - 1) * (part->kept[0] * step->act + part->kept[1] * 4);
}

struct formula_bytes formula_bytes(const struct ls_layout *layout, int64_t leaves, int64_t rank)
{
    struct formula_bytes bytes = {0};
    struct part part;
    struct step step = {.layout = layout,
                        .params = &part.params,
                        .act = (int64_t)ls_dtype_bytes(layout->numerics.act)};
    ls_layout_coordinates(layout, rank, step.at);
    part_init(layout, step.at, &part);
    ls_layout_layers(layout, step.at[LS_AXIS_PP], step.held, NULL);
    ls_layout_share(layout, leaves, step.at, &step.share);
    step.embedding = step.held[0];
    step.head = step.held[layout->model.layers + 1];
    for (int64_t i = 1; i <= layout->model.layers; i++)
        step.blocks += step.held[i];
    for (int64_t m = 0; m < step.share.micro_batches; m++) {
        int64_t count = ls_dp_micro_batch(&step.share, m).count;
        bytes.tp += tp_bytes(&step, count);
        bytes.cp += cp_bytes(&step, count);
        bytes.pp += pp_bytes(&step, count);
    }
    int shared = part.params.shared_param;
    if (shared >= 0)
        bytes.pp += 4 * slice_elements(layout, &part.params.list[shared], part.cut,
                                       ls_group_rank(layout, LS_GROUP_SHARD, rank));
    regions_bytes(&step, &part, rank, &bytes);
    units_bytes(&step, &part, &bytes);
    part_release(&part);
    return bytes;
}
