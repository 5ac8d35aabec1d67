/* Final norm, head and loss. In training the head's forward makes its gradients at once, group of
 * units by group of units, because logits are too large to keep: a group's logits become their own
 * gradient in place, which gives the rows' input gradient and the group's part of the weight
 * gradient. The weight gradient's parts are added by the tree over units, which are leaves or tiles
 * of them (S3, S4). The vocabulary is cut over tp: nobody has whole rows of logits. */
#include "model.h"

#include <math.h>

/* ---- buffers ----------------------------------------------------------------------------------
 */

/* Rows of a unit of whole sequences of that many tokens. */
static int64_t unit_rows(const struct ls_model *model, int64_t tokens)
{
    return model->numerics.leaf_sequences * tokens / model->numerics.seq_tiles;
}

static void groups_take(struct ls_model *model, struct ls_arena *arena, int64_t units)
{
    struct head_layer *head = &model->head;
    int64_t vocabulary = head->weight->rows, rows = unit_rows(model, model->options.tokens);
    int64_t given = model->options.logits_bytes;
    double bytes_max = given > 0 ? (double)given : (double)LS_LOGITS_BYTES;
    double unit_bytes = (double)rows * (double)vocabulary * (double)model_act_bytes(model);
    head->group_units = 1;
    while (2 * head->group_units <= units &&
           (double)(2 * head->group_units) * unit_bytes <= bytes_max)
        head->group_units *= 2;
    rows *= head->group_units;
    head->logits = model_take(model, arena, rows, vocabulary);
    if (model->tp.size == 1)
        return;
    head->max = ls_arena_take(arena, (size_t)rows * sizeof(float));
    head->sums = ls_arena_take(arena, (size_t)(2 * rows) * sizeof(float));
}

/* A right child that is itself more than one group, added to its left sibling, needs a place to be
 * summed in first: one for each level of the tree but the two lowest; so does the whole when it is
 * added to an earlier micro-batch's. */
static void partials_take(struct ls_model *model, struct ls_arena *arena, int64_t units)
{
    struct head_layer *head = &model->head;
    int64_t lowest = model->options.accumulating ? head->group_units : 2 * head->group_units;
    size_t bytes = (size_t)(head->weight->rows * model->config.channels) * sizeof(float);
    for (int64_t span = lowest; span < units && !model->numerics.fast; span *= 2) {
        LS_ASSERT(head->partials < (int)(sizeof head->partial / sizeof head->partial[0]));
        head->partial[head->partials++] = ls_arena_take(arena, bytes);
    }
}

void head_take(struct ls_model *model, struct ls_arena *arena)
{
    const struct ls_model_config *c = &model->config;
    const struct ls_params *params = model->options.params;
    struct head_layer *head = &model->head;
    int64_t leaves = model->options.sequences / model->numerics.leaf_sequences;
    int64_t units = leaves * model->numerics.seq_tiles / model->cp.size, n = model->stream_max;
    head->norm_weight =
        model_param(params, c->arch == LS_GPT2 ? "ln_f.weight" : "norm_f.weight", -1);
    head->norm_bias = model_param(params, "ln_f.bias", -1);
    head->weight = model_param(params, c->tied ? "wte.weight" : "head.weight", -1);
    head->a = model_take(model, arena, n, c->channels);
    for (int slot = 0; slot < model->options.slots; slot++) {
        struct head_saved *saved = &head->saved[slot];
        saved->mean = ls_arena_take(arena, (size_t)n * sizeof(float));
        saved->rstd = ls_arena_take(arena, (size_t)n * sizeof(float));
        if (model->options.training)
            saved->d_a = model_take(model, arena, n, c->channels);
    }
    groups_take(model, arena, units);
    head->loss = ls_arena_take(arena, (size_t)model->rows_max * sizeof(float));
    head->unit_loss = ls_arena_take(arena, (size_t)units * sizeof(float));
    head->leaf_loss = ls_arena_take(arena, (size_t)leaves * sizeof(float));
    if (model->options.training)
        partials_take(model, arena, units);
}

/* ---- forward ----------------------------------------------------------------------------------
 */

/* What the walk over groups of units needs. */
struct walk {
    const struct ls_micro_batch *batch;
    struct rows rows;
    const char *a; /* [M, C] */
    char *d_a;     /* where the input gradient of all rows goes: d_a, or partial sums of it */
    bool partial_sums;
};

/* Loss of a group's rows, and their logits' gradient in place. */
static int group_loss(struct ls_model *model, struct ls_ops *ops, const struct walk *walk,
                      int64_t first_row, int64_t rows, struct ls_error *error)
{
    struct head_layer *head = &model->head;
    const int32_t *target = walk->batch->targets + first_row;
    float *loss = head->loss + first_row;
    struct ls_cross_entropy op = {.rows = rows,
                                  .vocabulary = model->config.vocab,
                                  .padded = head->weight->rows,
                                  .tiles = model->tiles,
                                  .act = model->numerics.act,
                                  .scale = walk->batch->training ? walk->batch->gradient_scale : 0,
                                  .first = head->weight->first_row};
    if (model->tp.size == 1) {
        ls_cross_entropy(ops, &op, head->logits, target, loss);
        return LS_OK;
    }
    struct ls_comm *comm = model->tp.comm;
    float *sum = head->sums, *target_logit = head->sums + rows;
    ls_cross_entropy_max(ops, &op, head->logits, head->max);
    int status = ls_all_reduce_max_f32(comm, head->max, rows, error);
    if (status)
        return status;
    ls_cross_entropy_sum(ops, &op, head->logits, target, head->max, sum, target_logit);
    status = ls_all_reduce(comm, head->sums, 2 * rows, error);
    if (!status)
        ls_cross_entropy_finish(ops, &op, head->logits, target, head->max, sum, target_logit, loss);
    return status;
}

/* One group: logits, loss, and when training the two gradients. */
static int group_run(struct ls_model *model, struct ls_ops *ops, const struct walk *walk,
                     int64_t first_unit, int64_t units, float *d_weight, bool accumulate,
                     struct ls_error *error)
{
    struct head_layer *head = &model->head;
    int64_t channels = model->config.channels, vocabulary = head->weight->rows;
    int64_t unit = walk->rows.unit_sequences * walk->rows.unit_tokens;
    int64_t rows = units * unit, first_row = first_unit * unit;
    const void *a = walk->a + (size_t)(first_row * channels) * model_act_bytes(model);
    struct ls_gemm logits =
        model_linear(model, rows, vocabulary, 1, head->weight, NULL, a, head->logits);
    int status = ls_gemm_run(ops, &logits, error);
    if (!status)
        status = group_loss(model, ops, walk, first_row, rows, error);
    if (status || !walk->batch->training)
        return status;
    enum ls_dtype out = walk->partial_sums ? LS_F32 : model->numerics.act;
    struct ls_gemm input = model_input_gradient(
        model, rows, 1, &vocabulary, channels, model->tiles, model_weight(model, head->weight),
        head->logits, walk->d_a + (size_t)(first_row * channels) * ls_dtype_bytes(out));
    input.out = out;
    status = ls_gemm_run(ops, &input, error);
    if (status)
        return status;
    return model_weight_gradient(model, ops, units, rows, vocabulary, channels, head->logits, a,
                                 accumulate, d_weight, error);
}

/* The subtree of units [first, first + count): d_weight = it, or += it after it is whole. */
static int subtree_run(struct ls_model *model, struct ls_ops *ops, const struct walk *walk,
                       int64_t first, int64_t count, float *d_weight, bool accumulate,
                       int partials_used, struct ls_error *error)
{
    struct head_layer *head = &model->head;
    if (count <= head->group_units)
        return group_run(model, ops, walk, first, count, d_weight, accumulate, error);
    bool aside = accumulate && walk->batch->training && !model->numerics.fast;
    float *sum = d_weight;
    bool add_left = accumulate;
    if (aside) {
        LS_ASSERT(partials_used < head->partials);
        sum = head->partial[partials_used++];
        add_left = false;
    }
    int64_t split = ls_tree_split(count);
    int status = subtree_run(model, ops, walk, first, split, sum, add_left, partials_used, error);
    if (!status)
        status = subtree_run(model, ops, walk, first + split, count - split, sum, true,
                             partials_used, error);
    if (!status && aside)
        ls_tree_add(ops, head->weight->rows * model->config.channels, d_weight, sum);
    return status;
}

/* Each leaf's loss from its tokens here: units, then the tree over a leaf's units. */
static void losses_sum(struct ls_model *model, const struct rows *rows, int64_t leaves)
{
    struct head_layer *head = &model->head;
    struct ls_token_sum sum = rows_sum(rows, false);
    int64_t per_leaf = rows->units / leaves;
    ls_loss_sum(head->loss, &sum, head->unit_loss);
    for (int64_t leaf = 0; leaf < leaves; leaf++)
        head->leaf_loss[leaf] = ls_tree_sum(head->unit_loss + leaf * per_leaf, per_leaf);
}

static struct norm final_norm(const struct head_layer *head, int slot)
{
    const struct head_saved *saved = &head->saved[slot];
    return (struct norm){head->norm_weight, head->norm_bias, saved->mean, saved->rstd};
}

int head_forward(struct ls_model *model, struct ls_ops *ops, const struct ls_micro_batch *batch,
                 const void *x, const struct ls_gradient *gradient, struct ls_error *error)
{
    struct head_layer *head = &model->head;
    struct head_saved *saved = &head->saved[batch->slot];
    struct walk walk = {.batch = batch,
                        .rows = rows_of(model, batch),
                        .d_a = saved->d_a,
                        .partial_sums = model->tp.size > 1};
    LS_ASSERT(!batch->training || (gradient && model->options.training));
    if (walk.partial_sums)
        walk.d_a = (char *)model->scratch.partial;
    saved->x = x;
    struct norm norm = final_norm(head, batch->slot);
    norm_forward(model, ops, &norm, walk.rows.count, x, NULL, NULL, head->a);
    const void *a;
    model_label(model, head->weight);
    int status = model_gather(model, &walk.rows, head->a, &a, error);
    if (status)
        return status;
    walk.a = a;
    float *d_weight = batch->training ? gradient->flat + head->weight->region_offset : NULL;
    status = subtree_run(model, ops, &walk, 0, walk.rows.units, d_weight,
                         batch->training && gradient->accumulate, 0, error);
    if (!status && batch->training && walk.partial_sums)
        status =
            ls_tp_reduce_round(&model->tp, ops, model->numerics.act, walk.rows.all,
                               model->config.channels, &model->scratch, NULL, saved->d_a, error);
    if (!status)
        losses_sum(model, &walk.rows, batch->sequences / model->numerics.leaf_sequences);
    return status;
}

/* ---- backward ---------------------------------------------------------------------------------
 */

void head_backward_input(struct ls_model *model, struct ls_ops *ops,
                         const struct ls_micro_batch *batch, void *dx)
{
    const struct head_saved *saved = &model->head.saved[batch->slot];
    struct norm norm = final_norm(&model->head, batch->slot);
    struct rows rows = rows_of(model, batch);
    norm_backward_input(model, ops, &norm, rows.count, saved->x, saved->d_a, NULL, dx);
}

int head_backward_weight(struct ls_model *model, struct ls_ops *ops,
                         const struct ls_micro_batch *batch, const struct ls_gradient *gradient,
                         struct ls_error *error)
{
    const struct head_saved *saved = &model->head.saved[batch->slot];
    struct rows rows = rows_of(model, batch);
    struct norm_gradient norm = {final_norm(&model->head, batch->slot), saved->x, saved->d_a};
    return norms_backward_weight(model, ops, &rows, &norm, 1, gradient, error);
}
