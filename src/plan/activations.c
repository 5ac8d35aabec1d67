/* What layers keep of micro-batches and what they work in, buffer by buffer; the counterpart of
 * src/nn's buffers and of the pipeline's. */
#include "memory.h"

/* Sizes on one rank. */
struct sizes {
    const struct ls_layout *layout;
    int64_t act, channels;
    int64_t rows, room;                        /* M, and rounded up to a multiple of tp */
    int64_t stream;                            /* N */
    int64_t q, kv, ffn, up, vocabulary, heads; /* widths held; up: gate and up, or up alone */
    int64_t units;                             /* of token sums, in a micro-batch */
    int64_t blocks;
    bool embedding, head, split;
    int64_t slots;
};

static struct sizes sizes_of(const struct ls_layout *l, const struct plan_rank *rank)
{
    const struct ls_model_config *m = &l->model;
    int64_t tp = l->size[LS_AXIS_TP], cp = l->size[LS_AXIS_CP];
    int64_t rows = l->micro_sequences * l->sequence / cp, room = ls_round_up(rows, tp);
    struct sizes s = {
        .layout = l,
        .act = (int64_t)ls_dtype_bytes(l->numerics.act),
        .channels = m->channels,
        .rows = rows,
        .room = room,
        .stream = l->sp ? room / tp : room,
        .q = m->heads / tp * m->head_dim,
        .kv = ls_max(m->kv_heads / tp, 1) * m->head_dim,
        .ffn = m->ffn / tp,
        .up = (m->act == LS_ACT_SWIGLU ? 2 : 1) * (m->ffn / tp),
        .vocabulary = m->vocab_padded / tp,
        .heads = m->heads / tp,
        .units = l->micro_leaves * l->numerics.seq_tiles / cp,
        .embedding = rank->held[0],
        .head = rank->held[m->layers + 1],
        .split = rank->split,
        .slots = rank->slots,
    };
    for (int64_t i = 1; i <= m->layers; i++)
        s.blocks += rank->held[i];
    return s;
}

/* ---- kept of each micro-batch
 * -------------------------------------------------------------------- */

static int64_t block_kept(const struct sizes *s)
{
    int64_t stream = 4 * s->stream * s->channels;
    int64_t rows = s->rows * (s->q + 2 * s->kv + s->q + s->up + s->ffn);
    return s->act * (stream + rows) + 4 * (4 * s->stream + s->rows * s->heads);
}

int64_t plan_kept_bytes(const struct ls_layout *layout, const struct plan_rank *rank)
{
    struct sizes s = sizes_of(layout, rank);
    int64_t stream = s.act * s.stream * s.channels;
    int64_t embedding = s.embedding ? stream : 0;
    int64_t head = s.head ? stream + 8 * s.stream : 0;
    return s.slots * (s.blocks * block_kept(&s) + embedding + head);
}

/* ---- worked in
 * ----------------------------------------------------------------------------------- */

static int64_t exchange_work(const struct sizes *s)
{
    const struct ls_layout *l = s->layout;
    int64_t tp = l->size[LS_AXIS_TP], all = s->room * s->channels;
    if (tp == 1)
        return 0;
    int64_t bytes = 4 * all + 4 * all / tp;
    int64_t units = l->numerics.fast ? 1 : s->units;
    if (l->sp)
        bytes += s->act * all * (l->tp_overlap > 1 ? 2 : 1) + 4 * units * 4 * s->channels;
    return bytes;
}

/* Gradients between the two halves of a block's backward: one set for all blocks, or, where weight
 * halves come later, one for each block and slot, of which some buffers are shared. */
static int64_t delta_work(const struct sizes *s, bool first)
{
    const struct ls_layout *l = s->layout;
    bool apart = l->model.dropout > 0 || l->sp;
    int64_t store = (l->sp ? s->room : s->stream) * s->channels, stream = s->stream * s->channels;
    int64_t elements = s->rows * (s->up + s->q + 2 * s->kv) + 2 * stream;
    elements += store * ((apart || s->split) + apart);
    if (first || !apart)
        elements += stream;
    if (first)
        elements += s->rows * (s->q + (s->up > s->ffn ? s->ffn : 0));
    return s->act * elements;
}

static int64_t segments_work(const struct sizes *s)
{
    const struct ls_layout *l = s->layout;
    int64_t cp = l->size[LS_AXIS_CP], tiles = l->numerics.seq_tiles;
    bool ring = cp > 1 && l->cp_method == LS_CP_RING;
    int64_t span = ring ? l->sequence / (2 * tiles) : l->sequence, pair = 2 * span * s->kv;
    int64_t bytes = s->act * pair * (ring || cp > 1 ? 2 : 1), levels = 1;
    for (int64_t t = tiles / cp; t > 0; t /= 2)
        levels++;
    bytes += 4 * pair * levels;
    if (ring)
        bytes += 4 * pair * (cp + 1) +
                 4 * l->sequence / cp * s->heads * (ls_round_up(l->model.head_dim, 64) + 2);
    return bytes;
}

static int64_t attention_work(const struct sizes *s)
{
    const struct ls_layout *l = s->layout;
    int64_t sharers = ls_tp_sharers(l->size[LS_AXIS_TP], l->model.kv_heads), bytes = 0;
    if (l->numerics.seq_tiles > 1)
        bytes += segments_work(s);
    if (sharers == 1)
        return bytes;
    int64_t own = s->q + 2 * s->kv / sharers;
    if (l->numerics.seq_tiles == 1)
        bytes += 4 * 2 * s->rows * s->kv;
    return bytes + s->act * own * (s->rows + s->channels);
}

/* Logits of as many units as fit LS_LOGITS_BYTES, and sums of the weight's gradient over groups. */
static int64_t head_work(const struct sizes *s)
{
    const struct ls_layout *l = s->layout;
    int64_t unit = l->numerics.leaf_sequences * l->sequence / l->numerics.seq_tiles, group = 1;
    int64_t row = s->vocabulary * s->act, weight = 4 * s->vocabulary * s->channels;
    while (2 * group <= s->units && 2 * group * unit * row <= LS_LOGITS_BYTES)
        group *= 2;
    int64_t bytes = group * unit * (row + (l->size[LS_AXIS_TP] > 1 ? 12 : 0));
    int64_t span = l->micro_batches > 1 ? group : 2 * group;
    for (; span < s->units && !l->numerics.fast; span *= 2)
        bytes += weight;
    return bytes + s->act * s->stream * s->channels + 4 * s->rows;
}

int64_t plan_work_bytes(const struct ls_layout *layout, const struct plan_rank *rank)
{
    struct sizes s = sizes_of(layout, rank);
    int64_t stream = s.act * s.stream * s.channels;
    int64_t bytes = exchange_work(&s) + 3 * stream;
    if (s.embedding)
        bytes += (s.split ? s.slots * stream : 0) + 4 * (s.rows + s.vocabulary + 1);
    int64_t sets = s.split ? s.blocks * s.slots : ls_min(s.blocks, 1);
    if (sets > 0)
        bytes += delta_work(&s, true) + (sets - 1) * delta_work(&s, false) + attention_work(&s);
    if (s.head)
        bytes += head_work(&s);
    if (layout->model.arch == LS_LLAMA)
        bytes += 4 * layout->sequence * layout->model.head_dim;
    return bytes + rank->boundaries * stream;
}
