/* Layer 0: token embedding, learned positions where the model has them, dropout. The vocabulary is
 * cut over tp: each rank looks its own rows up, one rank a token finds something. */
#include "model.h"

#include <string.h>

void embedding_take(struct ls_model *model, struct ls_arena *arena)
{
    struct embedding_layer *layer = &model->embedding;
    const struct ls_params *params = model->options.params;
    int64_t channels = model->config.channels;
    layer->table = model_param(params, "wte.weight", -1);
    layer->position = model_param(params, "wpe.weight", -1);

    for (int slot = 0; slot < model->options.slots; slot++) {
        layer->out[slot] = model_take(model, arena, model->stream_max, channels);
        if (model->options.training && model->options.split_backward)
            layer->dy_store[slot] = model_take(model, arena, model->stream_max, channels);
        else
            layer->dy_store[slot] = model->d_stream[0];
    }
    if (!model->options.training)
        return;
    layer->scratch.order = ls_arena_take(arena, (size_t)model->rows_max * sizeof(int32_t));
    layer->scratch.start = ls_arena_take(arena, (size_t)(layer->table->rows + 1) * sizeof(int32_t));
}

/* Rows [first, first + count), each run of tokens at its own positions. */
static void whole_forward(struct ls_model *model, struct ls_ops *ops,
                          const struct ls_micro_batch *batch, const struct rows *rows, void *out)
{
    const struct embedding_layer *layer = &model->embedding;
    int64_t channels = model->config.channels;
    size_t bytes = (size_t)channels * model_act_bytes(model);
    const void *position = layer->position ? model_weight(model, layer->position) : NULL;
    for (struct run run = {0}; rows_next(model, rows, 0, rows->all, &run);)
        ls_embedding_forward(ops, model->numerics.act, run.count, run.count, channels,
                             batch->ids + run.row, model_weight(model, layer->table), position,
                             run.token, (char *)out + (size_t)run.row * bytes);
}

/* This rank's share of the rows, from all ranks' parts of the table. */
static int cut_forward(struct ls_model *model, struct ls_ops *ops,
                       const struct ls_micro_batch *batch, const struct rows *rows, int64_t first,
                       int64_t count, void *out, struct ls_error *error)
{
    const struct embedding_layer *layer = &model->embedding;
    enum ls_dtype act = model->numerics.act;
    int64_t channels = model->config.channels;
    const void *position = layer->position ? model_weight(model, layer->position) : NULL;
    model_label(model, layer->table);
    ls_embedding_gather(ops, act, rows->all, channels, batch->ids, layer->table->first_row,
                        layer->table->rows, model_weight(model, layer->table),
                        model->scratch.partial);
    int status = ls_tp_reduce(&model->tp, rows->all, channels, &model->scratch, error);
    size_t bytes = (size_t)channels * model_act_bytes(model);
    for (struct run run = {0}; !status && rows_next(model, rows, first, count, &run);)
        ls_embedding_finish(ops, act, run.count, run.count, channels,
                            model->scratch.sum + run.row * channels, position, run.token,
                            (char *)out + (size_t)run.row * bytes);
    return status;
}

int embedding_forward(struct ls_model *model, struct ls_ops *ops,
                      const struct ls_micro_batch *batch, struct ls_error *error)
{
    struct rows rows = rows_of(model, batch);
    int64_t channels = model->config.channels, first, count;
    void *out = model->embedding.out[batch->slot];
    int status = LS_OK;
    if (model->tp.size == 1) {
        whole_forward(model, ops, batch, &rows, out);
    } else {
        ls_tp_share(&model->tp, rows.all, &first, &count);
        size_t bytes = (size_t)channels * model_act_bytes(model);
        int64_t share = ls_tp_room(&model->tp, rows.all) / model->tp.size;
        char *own =
            model->tp.sequence ? out : (char *)out + (size_t)(model->tp.rank * share) * bytes;
        status = cut_forward(model, ops, batch, &rows, first, count, own, error);
        if (!status && !model->tp.sequence)
            status =
                ls_tp_gather(&model->tp, model->numerics.act, rows.all, channels, own, out, error);
    }
    if (!status)
        model_dropout(model, ops, batch, &rows, 0, "embedding", out, out);
    return status;
}

void embedding_backward_input(struct ls_model *model, struct ls_ops *ops,
                              const struct ls_micro_batch *batch, const void *dy)
{
    struct rows rows = rows_of(model, batch);
    struct embedding_layer *layer = &model->embedding;
    void *store = layer->dy_store[batch->slot];
    const void *dropped = model_dropout(model, ops, batch, &rows, 0, "embedding", dy, store);
    if (dropped == dy && model->options.split_backward) {
        memcpy(store, dy, (size_t)(rows.count * model->config.channels) * model_act_bytes(model));
        dropped = store;
    }
    layer->dy[batch->slot] = dropped;
}

/* Each token's rows of the micro-batch's sequences. A rank that holds other tokens brings zeros, so
 * where sequences may be cut no sum is left -0: it is added to zero. */
static void position_backward(struct ls_model *model, struct ls_ops *ops,
                              const struct ls_micro_batch *batch, const struct rows *rows,
                              const void *dy, bool accumulate, float *d_position)
{
    const struct ls_numerics *n = &model->numerics;
    int64_t channels = model->config.channels;
    int64_t first = rows->segments == 1 ? batch->tokens : 0;
    struct ls_token_sum sum = {.leaves = batch->sequences / n->leaf_sequences,
                               .sequences = n->leaf_sequences,
                               .tokens = rows->tokens,
                               .accumulate = accumulate || rows->segments > 1};
    if (!accumulate)
        ls_fill_zero(ops, (size_t)((model->config.context - first) * channels) * sizeof(float),
                     d_position + first * channels);
    for (int64_t i = 0; i < rows->segments; i++) {
        int64_t token, count;
        ls_segment(n->seq_tiles, model->cp.size, model->cp.rank, batch->tokens, (int)i, &token,
                   &count);
        ls_position_backward(ops, n->act, channels, dy, &sum, i * rows->segment_rows, count,
                             d_position + token * channels);
    }
}

int embedding_backward_weight(struct ls_model *model, struct ls_ops *ops,
                              const struct ls_micro_batch *batch,
                              const struct ls_gradient *gradient, struct ls_error *error)
{
    struct rows rows = rows_of(model, batch);
    const struct embedding_layer *layer = &model->embedding;
    struct ls_token_sum sum = rows_sum(&rows, gradient->accumulate);
    const void *dy;
    model_label(model, layer->table);
    int status = model_gather(model, &rows, layer->dy[batch->slot], &dy, error);
    if (status)
        return status;
    float *d_table = gradient->table;
    if (!d_table)
        d_table = gradient->flat + layer->table->region_offset;
    ls_embedding_backward(ops, model->numerics.act, layer->table->first_row, layer->table->rows,
                          model->config.channels, batch->ids, dy, &sum, layer->scratch, d_table);
    if (layer->position)
        position_backward(model, ops, batch, &rows, dy, gradient->accumulate,
                          gradient->flat + layer->position->region_offset);
    return LS_OK;
}
