/* Values of parameters, products with them, and the exchange of rows around products. */
#include "nn/model.h"

#include <stdio.h>

/* ---- parameters ------------------------------------------------------------------------------ */

const void *model_weight(const struct ls_model *model, const struct ls_param *param)
{
    const char *matrices = model->options.weights[param->unit].matrices;
    return matrices + (size_t)param->offset * model_act_bytes(model);
}

const float *model_vector(const struct ls_model *model, const struct ls_param *param)
{
    if (!param)
        return NULL;
    int64_t matrices = model->options.params->units[param->unit].matrix_elements;
    return model->options.weights[param->unit].vectors + (param->offset - matrices);
}

size_t model_act_bytes(const struct ls_model *model)
{
    return ls_dtype_bytes(model->numerics.act);
}

void *model_take(const struct ls_model *model, struct ls_arena *arena, int64_t rows, int64_t width)
{
    return ls_arena_take(arena, (size_t)(rows * width) * model_act_bytes(model));
}

/* ---- products -------------------------------------------------------------------------------- */

struct ls_gemm model_linear(const struct ls_model *model, int64_t rows, int64_t out, int64_t tiles,
                            const struct ls_param *weight, const struct ls_param *bias,
                            const void *x, void *y)
{
    const struct ls_weights *weights = &model->options.weights[weight->unit];
    bool int8 = weight->hidden && weights->int8;
    LS_ASSERT(!int8 || tiles == weight->tiles);
    return (struct ls_gemm){.m = rows,
                            .n = out,
                            .sections = 1,
                            .k = {weight->cols},
                            .tiles = tiles,
                            .b_transposed = true,
                            .in = model->numerics.act,
                            .out = model->numerics.act,
                            .a = x,
                            .lda = weight->cols,
                            .b =
                                int8 ? weights->int8 + weight->offset : model_weight(model, weight),
                            .ldb = weight->cols,
                            .b_scales = int8 ? weights->int8_scales + weight->first_scale : NULL,
                            .a_kept = int8 && weights->int8_alone,
                            .b_blocks = weight->blocks,
                            .c = y,
                            .ldc = out,
                            .bias = model_vector(model, bias)};
}

struct ls_gemm model_input_gradient(const struct ls_model *model, int64_t rows, int64_t out,
                                    int64_t tiles, const struct ls_param *weight, const void *dy,
                                    void *dx)
{
    return (struct ls_gemm){.m = rows,
                            .n = weight->cols,
                            .sections = 1,
                            .k = {out},
                            .tiles = tiles,
                            .in = model->numerics.act,
                            .out = model->numerics.act,
                            .a = dy,
                            .lda = out,
                            .b = model_weight(model, weight),
                            .ldb = weight->cols,
                            .b_blocks = weight->blocks,
                            .c = dx,
                            .ldc = weight->cols};
}

struct ls_gemm model_weight_gradient(const struct ls_model *model, const struct ls_token_sum *sum,
                                     int64_t out, const struct ls_param *weight, const void *dy,
                                     const void *x, float *d_w)
{
    bool fast = model->numerics.fast;
    return (struct ls_gemm){.m = out,
                            .n = weight->cols,
                            .sections = 1,
                            .k = {ls_token_rows(sum)},
                            .tiles = fast ? 1 : sum->leaves * sum->tiles,
                            .leaves = fast ? 1 : sum->leaves,
                            .onto = sum->onto,
                            .a_transposed = true,
                            .in = model->numerics.act,
                            .out = LS_F32,
                            .a = dy,
                            .lda = out,
                            .b = x,
                            .ldb = weight->cols,
                            .c = d_w,
                            .ldc = weight->cols};
}

void model_label(const struct ls_model *model, const struct ls_param *param)
{
    if (model->tp.size > 1)
        ls_comm_label(model->tp.comm, param->name);
    if (model->tp.sharers > 1)
        ls_comm_label(model->tp.sharers_comm, param->name);
    if (model->cp.size > 1)
        ls_comm_label(model->cp.comm, param->name);
}

/* ---- rows of the stream over tensor-parallel ranks ------------------------------------------- */

struct exchange exchange_staging(const struct ls_model *model, struct ls_arena *arena)
{
    struct exchange exchange = {0};
    if (model->tp.sequence && model->tp.chunks > 1)
        exchange.scratch.staging =
            model_take(model, arena, model->rows_room, model->config.channels);
    return exchange;
}

struct exchange exchange_gather(const struct ls_model *model, struct ls_arena *arena)
{
    struct exchange exchange = exchange_staging(model, arena);
    if (model->tp.sequence)
        exchange.gathered = model_take(model, arena, model->rows_room, model->config.channels);
    return exchange;
}

struct exchange exchange_reduce(const struct ls_model *model, struct ls_arena *arena)
{
    struct exchange exchange = exchange_staging(model, arena);
    size_t bytes = (size_t)(model->rows_room * model->config.channels) * sizeof(float);
    if (model->tp.size > 1) {
        exchange.scratch.partial = ls_arena_take(arena, bytes);
        exchange.scratch.sum = ls_arena_take(arena, bytes / (size_t)model->tp.size);
    }
    return exchange;
}

int model_gather(const struct ls_model *model, const struct rows *rows, const void *own,
                 void *gathered, const void **all, struct ls_error *error)
{
    *all = own;
    if (!model->tp.sequence)
        return LS_OK;
    *all = gathered;
    return ls_tp_gather(&model->tp, model->numerics.act, rows->all, model->config.channels, own,
                        gathered, LS_QUEUED, error);
}

/* ---- dropout --------------------------------------------------------------------------------- */

bool model_drops(const struct ls_model *model, const char *place)
{
    return place && model->config.dropout > 0;
}

const void *model_dropout(const struct layer_run *run, const char *place, const void *x,
                          void *storage)
{
    const struct ls_model *model = run->model;
    const struct ls_micro_batch *batch = run->batch;
    const struct rows *rows = run->rows;
    if (!model_drops(model, place) || !batch->training)
        return x;
    char purpose[96];
    snprintf(purpose, sizeof purpose, "dropout:%ld:%d:%s", (long)batch->step, run->layer->index,
             place);
    struct ls_dropout dropout = {.key = ls_philox_key_of(model->config.seed, purpose),
                                 .p = model->config.dropout,
                                 .channels = model->config.channels};
    size_t bytes = (size_t)model->config.channels * model_act_bytes(model);
    for (struct token_run piece = {0}; rows_next(model, rows, rows->first, rows->count, &piece);) {
        dropout.rows = piece.count;
        dropout.first_row = (batch->first_sequence + piece.sequence) * batch->tokens + piece.token;
        size_t at = (size_t)piece.row * bytes;
        ls_dropout(run->ops, model->numerics.act, &dropout, (const char *)x + at,
                   (char *)storage + at);
    }
    return storage;
}
