/* Where a micro-batch's rows lie on this rank. */
#include "nn/model.h"

struct rows rows_of(const struct ls_model *model, const struct ls_micro_batch *batch)
{
    const struct ls_numerics *n = &model->numerics;
    int64_t tiles = n->seq_tiles / model->cp.size; /* of each sequence, here */
    struct rows rows = {.tokens = batch->tokens / model->cp.size,
                        .segments = ls_segments(n->seq_tiles, model->cp.size),
                        .starts = batch->starts,
                        .whole = batch->tokens};
    rows.all = batch->sequences * rows.tokens;
    rows.segment_rows = rows.tokens / rows.segments;
    rows.count = rows.all;
    if (model->tp.sequence)
        ls_tp_share(&model->tp, rows.all, &rows.first, &rows.count);
    rows.sequences = ls_min(batch->sequences, n->leaf_sequences);
    rows.leaves = batch->sequences / rows.sequences;
    rows.tiles = ls_max(tiles, 1);
    rows.tile_tokens = rows.tokens / rows.tiles;
    return rows;
}

struct rows rows_most(const struct ls_model *model)
{
    struct ls_micro_batch batch = {.sequences = model->options.sequences,
                                   .tokens = model->options.tokens};
    return rows_of(model, &batch);
}

struct ls_token_sum rows_sum(const struct rows *rows, enum ls_onto onto)
{
    return (struct ls_token_sum){.leaves = rows->leaves,
                                 .sequences = rows->sequences,
                                 .tiles = rows->tiles,
                                 .tokens = rows->tile_tokens,
                                 .onto = onto};
}

/* The run ends with its document. */
static void document_cut(const struct rows *rows, struct token_run *run)
{
    run->position = run->token;
    if (!rows->starts)
        return;
    const int32_t *starts = rows->starts + run->sequence * rows->whole + run->token;
    int64_t count = 1;
    while (count < run->count && starts[count] == starts[0])
        count++;
    run->count = count;
    run->position -= starts[0];
}

/* In a decoder pieces are those of its runs. */
static void decoded_piece(const struct decoding *decoding, int64_t row, int64_t most,
                          struct token_run *piece)
{
    int i = 0;
    while (row >= decoding->runs[i].row + decoding->runs[i].count)
        i++;
    const struct decoding_run *run = &decoding->runs[i];
    piece->sequence = run->sequence;
    piece->token = piece->position = run->position + row - run->row;
    piece->count = ls_min(run->row + run->count - row, most);
}

bool rows_next(const struct ls_model *model, const struct rows *rows, int64_t first, int64_t count,
               struct token_run *run)
{
    run->row += run->count;
    if (run->row >= count)
        return false;
    if (model->decoding) {
        decoded_piece(model->decoding, first + run->row, count - run->row, run);
        return true;
    }
    int64_t row = first + run->row, in_sequence = row % rows->tokens;
    int64_t in_segment = in_sequence % rows->segment_rows, segment_first, segment_count;
    ls_segment(model->numerics.seq_tiles, model->cp.size, model->cp.rank,
               rows->tokens * model->cp.size, (int)(in_sequence / rows->segment_rows),
               &segment_first, &segment_count);
    run->sequence = row / rows->tokens;
    run->token = segment_first + in_segment;
    run->count = ls_min(rows->segment_rows - in_segment, count - run->row);
    document_cut(rows, run);
    return true;
}

bool model_held(const struct ls_model *model, int64_t layer)
{
    return !model->options.layers || model->options.layers[layer];
}

bool model_chunk_first(const struct ls_model *model, int64_t layer)
{
    return model->options.chunk_first && model->options.chunk_first[layer];
}

bool model_chunk_last(const struct ls_model *model, int64_t layer)
{
    return layer <= model->config.layers &&
           (!model_held(model, layer + 1) || model_chunk_first(model, layer + 1));
}

int model_units_check(const struct ls_model *model, const struct rows *rows, struct ls_error *error)
{
    if (!model->tp.sequence || model->numerics.fast ||
        ls_tp_admits(model->tp.size, rows->all / rows->tile_tokens, rows->tile_tokens))
        return LS_OK;
    return ls_error_set(
        error, LS_EINVAL,
        "sequence parallel over %d ranks would split %ld times %ld tokens inside a sum that cannot "
        "be split: use more sequences a micro-batch or fewer ranks",
        model->tp.size, (long)(rows->all / rows->tile_tokens), (long)rows->tile_tokens);
}

void parts_tree(struct ls_ops *ops, float *parts, int64_t count, int64_t elements)
{
    if (count <= 1)
        return;
    int64_t split = ls_tree_split(count);
    parts_tree(ops, parts, split, elements);
    parts_tree(ops, parts + split * elements, count - split, elements);
    ls_tree_add(ops, elements, parts, parts + split * elements);
}
