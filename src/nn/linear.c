/* Parameters, and the products with them. */
#include "model.h"

#include <stdio.h>
#include <string.h>

/* ---- parameters -------------------------------------------------------------------------------
 */

const struct ls_param *model_param(const struct ls_params *params, const char *suffix,
                                   int64_t block)
{
    char name[LS_PARAM_NAME_MAX + 1];
    if (block >= 0)
        snprintf(name, sizeof name, "h.%ld.%s", (long)block, suffix);
    else
        snprintf(name, sizeof name, "%s", suffix);
    return ls_params_find(params, name);
}

/* The first of two names that exists. */
static const struct ls_param *either(const struct ls_params *params, const char *a, const char *b,
                                     int64_t block)
{
    const struct ls_param *param = model_param(params, a, block);
    return param ? param : model_param(params, b, block);
}

void model_find_block(const struct ls_params *params, int64_t block, struct block_params *out)
{
    *out = (struct block_params){
        .norm1_weight = either(params, "ln_1.weight", "norm_1.weight", block),
        .norm1_bias = model_param(params, "ln_1.bias", block),
        .qkv_weight = model_param(params, "attn.q.weight", block),
        .qkv_bias = model_param(params, "attn.q.bias", block),
        .proj_weight = model_param(params, "attn.proj.weight", block),
        .proj_bias = model_param(params, "attn.proj.bias", block),
        .norm2_weight = either(params, "ln_2.weight", "norm_2.weight", block),
        .norm2_bias = model_param(params, "ln_2.bias", block),
        .up_weight = either(params, "mlp.gate.weight", "mlp.up.weight", block),
        .up_bias = either(params, "mlp.gate.bias", "mlp.up.bias", block),
        .down_weight = model_param(params, "mlp.down.weight", block),
        .down_bias = model_param(params, "mlp.down.bias", block),
    };
}

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

/* ---- products ---------------------------------------------------------------------------------
 */

int64_t model_unit_tiles(const struct ls_model *model, int64_t units)
{
    return model->numerics.fast ? 1 : units;
}

struct ls_gemm model_linear(const struct ls_model *model, int64_t rows, int64_t out, int64_t tiles,
                            const struct ls_param *weight, const struct ls_param *bias,
                            const void *x, void *y)
{
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
                            .b = model_weight(model, weight),
                            .ldb = weight->cols,
                            .c = y,
                            .ldc = out,
                            .bias = model_vector(model, bias)};
}

struct ls_gemm model_input_gradient(const struct ls_model *model, int64_t rows, int sections,
                                    const int64_t *k, int64_t in, int64_t tiles, const void *weight,
                                    const void *dy, void *dx)
{
    struct ls_gemm gemm = {.m = rows,
                           .n = in,
                           .sections = sections,
                           .tiles = tiles,
                           .in = model->numerics.act,
                           .out = model->numerics.act,
                           .a = dy,
                           .b = weight,
                           .ldb = in,
                           .c = dx,
                           .ldc = in};
    for (int i = 0; i < sections; i++) {
        gemm.k[i] = k[i];
        gemm.lda += k[i];
    }
    return gemm;
}

int model_weight_gradient(const struct ls_model *model, struct ls_ops *ops, int64_t units,
                          int64_t rows, int64_t out, int64_t in, const void *dy, const void *x,
                          bool accumulate, float *d_w, struct ls_error *error)
{
    struct ls_gemm gemm = {.m = out,
                           .n = in,
                           .sections = 1,
                           .k = {rows},
                           .tiles = model_unit_tiles(model, units),
                           .a_transposed = true,
                           .in = model->numerics.act,
                           .out = LS_F32,
                           .a = dy,
                           .lda = out,
                           .b = x,
                           .ldb = in,
                           .c = d_w,
                           .ldc = in,
                           .accumulate = accumulate};
    return ls_gemm_run(ops, &gemm, error);
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

int model_gather(const struct ls_model *model, const struct rows *rows, const void *own,
                 const void **all, struct ls_error *error)
{
    *all = own;
    if (!model->tp.sequence)
        return LS_OK;
    *all = model->gathered;
    return ls_tp_gather(&model->tp, model->numerics.act, rows->all, model->config.channels, own,
                        model->gathered, error);
}

const void *model_dropout(const struct ls_model *model, struct ls_ops *ops,
                          const struct ls_micro_batch *batch, const struct rows *rows, int layer,
                          const char *place, const void *x, void *storage)
{
    if (model->config.dropout == 0 || !batch->training)
        return x;
    char purpose[96];
    snprintf(purpose, sizeof purpose, "dropout:%ld:%d:%s", (long)batch->step, layer, place);
    struct ls_dropout dropout = {.key = ls_philox_key_of(model->config.seed, purpose),
                                 .p = model->config.dropout,
                                 .channels = model->config.channels};
    size_t bytes = (size_t)model->config.channels * model_act_bytes(model);
    for (struct run run = {0}; rows_next(model, rows, rows->first, rows->count, &run);) {
        dropout.rows = run.count;
        dropout.first_row = (batch->first_sequence + run.sequence) * batch->tokens + run.token;
        size_t at = (size_t)run.row * bytes;
        ls_dropout(ops, model->numerics.act, &dropout, (const char *)x + at, (char *)storage + at);
    }
    return storage;
}
