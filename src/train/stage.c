/* A chunk's layers, forward and backward, on one micro-batch: weights come from ZeRO, gradients go
 * to it. */
#include "train/stage.h"

static struct ls_micro_batch micro_batch_of(const struct ls_trainer *t,
                                            const struct train_batch *batch,
                                            const struct ls_pipeline_task *task, int slot)
{
    const struct ls_dp_share *share = &batch->share;
    struct ls_dp_micro micro = ls_dp_micro_batch(share, task->action.micro_batch);
    int64_t tokens = t->config.data.sequence;
    int64_t offset = micro.offset * (tokens / t->layout.size[LS_AXIS_CP]);
    return (struct ls_micro_batch){
        .sequences = micro.count,
        .tokens = tokens,
        .ids = batch->inputs + offset,
        .targets = batch->targets + offset,
        .weights = batch->weights ? batch->weights + offset : NULL,
        .entropy_weights = batch->entropy_weights ? batch->entropy_weights + offset : NULL,
        .starts = batch->starts ? batch->starts + micro.offset * tokens : NULL,
        .first_sequence = batch->shift + micro.first,
        .step = batch->step,
        .training = true,
        .temperature = batch->temperature,
        .gradient_scale = (float)(batch->loss_scale / batch->divisor),
        .slot = slot,
        .input = task->input,
        .d_output = task->output_gradient,
    };
}

/* ---- parameters ------------------------------------------------------------------------------ */

int stage_units_of(const struct ls_params *params, int layer, int units[2])
{
    int count = 0, own = ls_params_unit(params, layer);
    if (own >= 0)
        units[count++] = own;
    if (layer == 0 && params->tied_param >= 0)
        units[count++] = params->list[params->tied_param].unit;
    return count;
}

int stage_prefetch(struct ls_trainer *t, int layer, struct ls_error *error)
{
    int units[2], status = LS_OK;
    for (int i = 0, count = stage_units_of(&t->params, layer, units); i < count && !status; i++)
        status = ls_zero_prefetch(ls_state_zero(t->state, units[i]), units[i], error);
    return status;
}

/* The layer's weights are there, and those of the layers that come next, up to `last`, are on their
 * way, as many as parallel.prefetch says. */
static int weights_enter(struct ls_trainer *t, int layer, int last, struct ls_error *error)
{
    int units[2], status = LS_OK, by = last < layer ? -1 : 1;
    for (int i = 0, count = stage_units_of(&t->params, layer, units); i < count && !status; i++) {
        struct ls_zero_weights weights;
        status =
            ls_zero_weights(ls_state_zero(t->state, units[i]), &t->ops, units[i], &weights, error);
        if (!status)
            t->memory.weights[units[i]] =
                (struct ls_weights){.matrices = weights.matrices, .vectors = weights.vectors};
    }
    for (int64_t i = 0; i < t->layout.prefetch && layer != last && !status; i++) {
        layer += by;
        status = stage_prefetch(t, layer, error);
    }
    return status;
}

static void weights_leave(struct ls_trainer *t, int layer)
{
    int units[2];
    for (int i = 0, count = stage_units_of(&t->params, layer, units); i < count; i++)
        ls_zero_release(ls_state_zero(t->state, units[i]), units[i]);
}

/* ---- gradients ------------------------------------------------------------------------------- */

static int gradient_begin(struct ls_trainer *t, const struct train_batch *batch, int region,
                          int64_t m, struct ls_gradient *gradient, struct ls_error *error)
{
    struct ls_zero_gradient place;
    struct ls_dp_micro micro = ls_dp_micro_batch(&batch->share, m);
    int status = ls_zero_gradient(ls_state_region_zero(t->state, region), &t->ops, region, &micro,
                                  &place, error);
    *gradient = (struct ls_gradient){.flat = place.flat, .onto = place.onto};
    int tied = t->params.tied_param;
    if (!status && tied >= 0 && region == t->params.list[tied].second.region)
        gradient->table = place.flat + t->params.list[tied].second.offset;
    return status;
}

static int gradient_end(struct ls_trainer *t, const struct train_batch *batch, int region,
                        int64_t m, struct ls_error *error)
{
    struct ls_dp_micro micro = ls_dp_micro_batch(&batch->share, m);
    return ls_state_region_done(t->state, region, &micro, error);
}

/* ---- passes and layers, for those who watch -------------------------------------------------- */

enum ls_work_pass stage_pass_begin(struct ls_trainer *t, enum ls_work_pass pass)
{
    enum ls_work_pass before = t->ops.queue.pass;
    t->ops.queue.pass = pass;
    ls_trace_begin(t->trace, ls_work_pass_name(pass), "compute");
    return before;
}

void stage_pass_end(struct ls_trainer *t, enum ls_work_pass before)
{
    ls_trace_end(t->trace);
    t->ops.queue.pass = before;
}

static void layer_begin(struct ls_trainer *t, int layer)
{
    ls_trace_set(t->trace, LS_TRACE_LAYER, layer);
    ls_trace_begin(t->trace, ls_layer_name(&t->config.model, layer), "compute");
}

static void layer_end(struct ls_trainer *t)
{
    ls_trace_end(t->trace);
    ls_trace_set(t->trace, LS_TRACE_LAYER, -1);
}

/* ---- layers ---------------------------------------------------------------------------------- */

/* What the head found of a micro-batch: the loss of each sequence and, if they are wanted, the loss
 * and entropy of each row. */
static void losses_keep(struct ls_trainer *t, const struct train_batch *batch,
                        const struct ls_micro_batch *micro, int64_t m)
{
    int64_t offset = ls_dp_micro_batch(&batch->share, m).offset;
    int64_t row = micro->tokens / t->layout.size[LS_AXIS_CP];
    size_t bytes = (size_t)(micro->sequences * row) * sizeof(float);
    ls_copy(&t->ops, (size_t)micro->sequences * sizeof(float), ls_model_losses(t->memory.model),
            t->losses + offset);
    if (batch->row_losses)
        ls_copy(&t->ops, bytes, ls_model_row_losses(t->memory.model),
                batch->row_losses + offset * row);
    if (batch->row_entropies)
        ls_copy(&t->ops, bytes, ls_model_entropies(t->memory.model),
                batch->row_entropies + offset * row);
}

static int layer_forward(struct ls_trainer *t, const struct train_batch *batch, int layer,
                         int64_t m, const struct ls_micro_batch *micro, struct ls_error *error)
{
    struct ls_gradient gradient;
    bool head = layer == t->config.model.layers + 1, trains = head && t->params.head_region >= 0;
    int status =
        trains ? gradient_begin(t, batch, t->params.head_region, m, &gradient, error) : LS_OK;
    if (!status)
        status = ls_layer_forward(t->memory.model, &t->ops, layer, micro, trains ? &gradient : NULL,
                                  error);
    if (!status && trains)
        status = gradient_end(t, batch, t->params.head_region, m, error);
    if (!status && !head)
        status = digests_note_stream(t, DIGEST_OUTPUT, layer, micro,
                                     ls_model_output(t->memory.model, layer, micro->slot), error);
    if (!status && head)
        losses_keep(t, batch, micro, m);
    return status;
}

int stage_forward(struct ls_trainer *t, const struct train_batch *batch,
                  const struct ls_pipeline_task *task, int slot, struct ls_error *error)
{
    const struct train_chunk *layers = &t->part.chunks[task->chunk];
    struct ls_micro_batch micro = micro_batch_of(t, batch, task, slot);
    enum ls_work_pass before = stage_pass_begin(t, LS_WORK_PASS_FORWARD);
    int status = LS_OK;
    for (int layer = layers->first; layer < layers->end && !status; layer++) {
        layer_begin(t, layer);
        status = weights_enter(t, layer, layers->end - 1, error);
        if (!status)
            status = layer_forward(t, batch, layer, task->action.micro_batch, &micro, error);
        weights_leave(t, layer);
        layer_end(t);
        ls_progress();
    }
    stage_pass_end(t, before);
    return status;
}

static int layer_backward_weight(struct ls_trainer *t, const struct train_batch *batch, int layer,
                                 int64_t m, const struct ls_micro_batch *micro,
                                 struct ls_error *error)
{
    int region = ls_params_region(&t->params, layer);
    if (region < 0)
        return LS_OK;
    struct ls_gradient gradient;
    int status = gradient_begin(t, batch, region, m, &gradient, error);
    if (!status)
        status = ls_layer_backward_weight(t->memory.model, &t->ops, layer, micro, &gradient, error);
    return status ? status : gradient_end(t, batch, region, m, error);
}

/* What the layer gave up after its forward is made again. */
static int layer_again(struct ls_trainer *t, int layer, const struct ls_micro_batch *micro,
                       struct ls_error *error)
{
    enum ls_work_pass before = stage_pass_begin(t, LS_WORK_PASS_RECOMPUTE);
    int status = ls_layer_forward_again(t->memory.model, &t->ops, layer, micro, error);
    stage_pass_end(t, before);
    ls_progress();
    return status;
}

/* The input half, after what it needs of this layer, and of those below that gave all up with it,
 * has been made again. last: the layer at which the backward of the chunk ends. */
static int layer_backward_input(struct ls_trainer *t, int layer, int last,
                                const struct ls_micro_batch *micro, struct ls_error *error)
{
    int again = ls_layer_again_first(t->memory.model, layer), status = LS_OK;
    for (; again < layer && !status; again++) {
        status = weights_enter(t, again, layer, error);
        if (!status)
            status = layer_again(t, again, micro, error);
        weights_leave(t, again);
    }
    if (!status)
        status = weights_enter(t, layer, last, error);
    if (!status && again == layer)
        status = layer_again(t, layer, micro, error);
    if (!status)
        status = ls_layer_backward_input(t->memory.model, &t->ops, layer, micro, error);
    weights_leave(t, layer);
    return status ? status
                  : digests_note_stream(t, DIGEST_INPUT_GRADIENT, layer, micro,
                                        ls_model_input_gradient(t->memory.model, layer), error);
}

int stage_backward(struct ls_trainer *t, const struct train_batch *batch,
                   const struct ls_pipeline_task *task, int slot, struct ls_error *error)
{
    const struct train_chunk *layers = &t->part.chunks[task->chunk];
    struct ls_micro_batch micro = micro_batch_of(t, batch, task, slot);
    int last = (int)ls_max(layers->first, t->part.lowest);
    bool input = task->action.kind != LS_ACTION_W, weight = task->action.kind != LS_ACTION_I;
    enum ls_work_pass before = stage_pass_begin(t, !input    ? LS_WORK_PASS_WEIGHTS
                                                   : !weight ? LS_WORK_PASS_INPUT
                                                             : LS_WORK_PASS_BACKWARD);
    int status = LS_OK;
    for (int layer = layers->end - 1; layer >= last && !status; layer--) {
        layer_begin(t, layer);
        /* Weight halves, and the embedding's input half, need no weights. */
        if (input && layer > 0)
            status = layer_backward_input(t, layer, (int)ls_max(last, 1), &micro, error);
        else if (input)
            status = ls_layer_backward_input(t->memory.model, &t->ops, layer, &micro, error);
        if (!status && weight)
            status =
                layer_backward_weight(t, batch, layer, task->action.micro_batch, &micro, error);
        layer_end(t);
        ls_progress();
    }
    stage_pass_end(t, before);
    return status;
}

/* ---- the forward alone ----------------------------------------------------------------------- */

static int runner_enter(void *user, int layer, int last, struct ls_error *error)
{
    return weights_enter(user, layer, last, error);
}

static void runner_leave(void *user, int layer)
{
    weights_leave(user, layer);
}

int stage_runner_new(struct ls_trainer *t, struct ls_runner **out, struct ls_error *error)
{
    const struct ls_runner_parts parts = {.config = &t->config,
                                          .layout = &t->layout,
                                          .groups = t->groups,
                                          .ops = &t->ops,
                                          .tokenizer = t->tokenizer,
                                          .trace = t->trace,
                                          .part = {.config = &t->layout.model,
                                                   .numerics = &t->layout.numerics,
                                                   .params = &t->params,
                                                   .weights = t->memory.weights,
                                                   .tp = &t->tp,
                                                   .cp = &t->cp,
                                                   .layers = t->part.held,
                                                   .chunk_first = t->part.chunk_first},
                                          .model = t->memory.model,
                                          .enter = runner_enter,
                                          .leave = runner_leave,
                                          .user = t,
                                          .together = t->layout.zero > 0};
    return ls_runner_new(&parts, out, error);
}
