/* Final norm, head and loss. In training the head's forward makes its gradients at once, group of
 * leaves by group of leaves, because logits are too large to keep: a group's logits become their
 * own gradient in place, which gives the rows' input gradient and the group's part of the weight
 * gradient. The weight gradient's parts are added by the tree over leaves (S3). */
#include "model.h"

#include <math.h>

static int64_t leaf_rows(const struct ls_model *model, int64_t tokens)
{
    return model->numerics.leaf_sequences * tokens;
}

static const char *norm_weight_name(const struct ls_model *model)
{
    return model->config.arch == LS_GPT2 ? "ln_f.weight" : "norm_f.weight";
}

void head_take(struct ls_model *model, struct ls_arena *arena)
{
    const struct ls_model_config *c = &model->config;
    const struct ls_params *params = model->options.params;
    struct head_saved *head = &model->head;
    size_t act = model_act_bytes(model);
    int64_t leaves = model->options.sequences / model->numerics.leaf_sequences;
    int64_t rows = leaf_rows(model, model->options.tokens);
    head->norm_weight = model_offset(params, norm_weight_name(model), -1);
    head->norm_bias = model_offset(params, "ln_f.bias", -1);
    head->weight = model_offset(params, c->tied ? "wte.weight" : "head.weight", -1);
    int64_t given = model->options.logits_bytes;
    double logits_bytes_max = given > 0 ? (double)given : (double)LS_LOGITS_BYTES;
    head->group_leaves = 1;
    while (2 * head->group_leaves <= leaves &&
           (double)(2 * head->group_leaves * rows) * (double)c->vocab_padded * (double)act <=
               logits_bytes_max)
        head->group_leaves *= 2;
    head->a = ls_arena_take(arena, (size_t)(model->rows_max * c->channels) * act);
    head->mean = ls_arena_take(arena, (size_t)model->rows_max * sizeof(float));
    head->rstd = ls_arena_take(arena, (size_t)model->rows_max * sizeof(float));
    head->logits =
        ls_arena_take(arena, (size_t)(head->group_leaves * rows * c->vocab_padded) * act);
    head->loss = ls_arena_take(arena, (size_t)model->rows_max * sizeof(float));
    head->leaf_loss = ls_arena_take(arena, (size_t)leaves * sizeof(float));
    if (!model->options.training)
        return;
    head->d_a = ls_arena_take(arena, (size_t)(model->rows_max * c->channels) * act);
    /* A right child that is itself more than one group, added to its left sibling, needs a place to
     * be summed in first: one for each level of the tree but the two lowest; so does the whole when
     * it is added to an earlier micro-batch's. */
    int64_t lowest = model->options.accumulating ? head->group_leaves : 2 * head->group_leaves;
    for (int64_t span = lowest; span < leaves && !model->numerics.fast; span *= 2) {
        LS_ASSERT(head->partials < (int)(sizeof head->partial / sizeof head->partial[0]));
        head->partial[head->partials++] =
            ls_arena_take(arena, (size_t)(c->vocab_padded * c->channels) * sizeof(float));
    }
}

/* One group: logits, loss, and when training the two gradients. */
static int group_run(struct ls_model *model, struct ls_ops *ops, const struct ls_micro_batch *batch,
                     int64_t first_leaf, int64_t leaves, float *d_weight, bool accumulate,
                     struct ls_error *error)
{
    const struct ls_model_config *c = &model->config;
    const struct ls_weights *w = &model->options.weights;
    struct head_saved *head = &model->head;
    enum ls_dtype act = model->numerics.act;
    int64_t rows = leaves * leaf_rows(model, batch->tokens);
    int64_t first_row = first_leaf * leaf_rows(model, batch->tokens);
    size_t offset = (size_t)(first_row * c->channels) * model_act_bytes(model);
    const void *a = (const char *)head->a + offset;
    int status = model_linear(ops, w, act, rows, c->channels, c->vocab_padded, 1, head->weight, -1,
                              a, head->logits, error);
    if (status)
        return status;
    struct ls_cross_entropy loss = {.rows = rows,
                                    .vocabulary = c->vocab,
                                    .padded = c->vocab_padded,
                                    .tiles = model->numerics.tp_tiles,
                                    .act = act,
                                    .scale = batch->training ? batch->gradient_scale : 0.0f};
    ls_cross_entropy(ops, &loss, head->logits, batch->targets + first_row, head->loss + first_row);
    if (!batch->training)
        return LS_OK;
    struct ls_gemm input = {.m = rows,
                            .n = c->channels,
                            .sections = 1,
                            .k = {c->vocab_padded},
                            .tiles = model->numerics.tp_tiles,
                            .in = act,
                            .out = act,
                            .a = head->logits,
                            .lda = c->vocab_padded,
                            .b = model_weight(w, head->weight),
                            .ldb = c->channels,
                            .c = (char *)head->d_a + offset,
                            .ldc = c->channels};
    status = ls_gemm_run(ops, &input, error);
    if (status)
        return status;
    return model_weight_gradient(model, ops, leaves, rows, c->vocab_padded, c->channels,
                                 head->logits, a, accumulate, d_weight, error);
}

/* The subtree of leaves [first, first + count): d_weight = it, or += it after it is whole. */
static int subtree_run(struct ls_model *model, struct ls_ops *ops,
                       const struct ls_micro_batch *batch, int64_t first, int64_t count,
                       float *d_weight, bool accumulate, int partials_used, struct ls_error *error)
{
    struct head_saved *head = &model->head;
    if (count <= head->group_leaves)
        return group_run(model, ops, batch, first, count, d_weight, accumulate, error);
    bool aside = accumulate && batch->training && !model->numerics.fast;
    float *sum = d_weight;
    bool add_left = accumulate;
    if (aside) {
        LS_ASSERT(partials_used < head->partials);
        sum = head->partial[partials_used++];
        add_left = false;
    }
    int64_t split = ls_tree_split(count);
    int status = subtree_run(model, ops, batch, first, split, sum, add_left, partials_used, error);
    if (!status)
        status = subtree_run(model, ops, batch, first + split, count - split, sum, true,
                             partials_used, error);
    if (!status && aside)
        ls_tree_add(ops, model->config.vocab_padded * model->config.channels, d_weight, sum);
    return status;
}

static struct ls_norm final_norm(const struct ls_model *model, const struct ls_micro_batch *batch)
{
    const struct head_saved *head = &model->head;
    return model_norm(&model->config, &model->options.weights, model->numerics.act,
                      batch->sequences * batch->tokens, head->norm_weight, head->norm_bias,
                      head->mean, head->rstd);
}

int head_forward(struct ls_model *model, struct ls_ops *ops, const struct ls_micro_batch *batch,
                 const void *x, const struct ls_gradient *gradient, struct ls_error *error)
{
    struct head_saved *head = &model->head;
    LS_ASSERT(!batch->training || (gradient && model->options.training));
    struct ls_norm norm = final_norm(model, batch);
    model_norm_forward(&model->config, ops, &norm, x, NULL, NULL, head->a);
    struct ls_token_sum sum = model_token_sum(model, batch, false);
    float *d_weight = batch->training
                          ? gradient->flat + model->options.params->tied_elements + head->weight
                          : NULL;
    int status = subtree_run(model, ops, batch, 0, sum.leaves, d_weight,
                             batch->training && gradient->accumulate, 0, error);
    if (!status)
        ls_loss_sum(head->loss, &sum, head->leaf_loss);
    return status;
}

void head_backward_input(struct ls_model *model, struct ls_ops *ops,
                         const struct ls_micro_batch *batch, const void *x, void *dx)
{
    struct head_saved *head = &model->head;
    struct ls_norm norm = final_norm(model, batch);
    if (model->config.arch == LS_GPT2)
        ls_layernorm_backward_input(ops, &norm, x, head->d_a, NULL, dx);
    else
        ls_rmsnorm_backward_input(ops, &norm, x, head->d_a, NULL, dx);
}

void head_backward_weight(struct ls_model *model, struct ls_ops *ops,
                          const struct ls_micro_batch *batch, const void *x,
                          const struct ls_gradient *gradient)
{
    struct head_saved *head = &model->head;
    struct ls_norm norm = final_norm(model, batch);
    struct ls_token_sum sum = model_token_sum(model, batch, gradient->accumulate);
    float *flat = gradient->flat + model->options.params->tied_elements;
    if (model->config.arch == LS_GPT2)
        ls_layernorm_backward_weight(ops, &norm, x, head->d_a, &sum, flat + head->norm_weight,
                                     head->norm_bias >= 0 ? flat + head->norm_bias : NULL);
    else
        ls_rmsnorm_backward_weight(ops, &norm, x, head->d_a, &sum, flat + head->norm_weight);
}
