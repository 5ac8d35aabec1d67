/* A chunk's layers, forward and backward, on one micro-batch: weights come from ZeRO, gradients go
 * to it. */
#include "stage.h"

#include <string.h>

static struct ls_micro_batch micro_batch_of(const struct stage_batch *batch, int64_t m, int slot,
                                            const void *input, const void *d_output)
{
    const struct ls_trainer *t = batch->t;
    int64_t leaf = t->numerics.leaf_sequences, tokens = t->config.data.sequence;
    int64_t before = m * batch->micro_leaves;
    int64_t count = ls_min(batch->micro_leaves, batch->leaves - before), first = before;
    if (batch->share)
        ls_dp_micro_batch(batch->share, m, &first, &count);
    int64_t offset = before * leaf * (tokens / t->layout.size[LS_AXIS_CP]);
    return (struct ls_micro_batch){
        .sequences = count * leaf,
        .tokens = tokens,
        .ids = batch->inputs + offset,
        .targets = batch->targets + offset,
        .first_sequence = first * leaf,
        .step = batch->step,
        .training = batch->training,
        .gradient_scale = batch->gradient_scale,
        .slot = slot,
        .input = input,
        .d_output = d_output,
    };
}

static bool is_head(const struct ls_trainer *t, int layer)
{
    return layer == t->config.model.layers + 1;
}

/* ---- parameters ------------------------------------------------------------------------------ */

/* The units that a layer reads: its own, and the embedding that of the head where they are tied. */
static int units_of(const struct ls_trainer *t, int layer, int units[2])
{
    int count = 0, own = ls_params_unit(&t->params, layer);
    if (own >= 0)
        units[count++] = own;
    if (layer == 0 && t->params.tied_param >= 0)
        units[count++] = t->params.list[t->params.tied_param].unit;
    return count;
}

int stage_prefetch(struct ls_trainer *t, int layer, struct ls_error *error)
{
    int units[2], status = LS_OK;
    for (int i = 0, count = units_of(t, layer, units); i < count && !status; i++)
        status = ls_zero_prefetch(t->memory.zero, units[i], error);
    return status;
}

/* The layer's weights are there, and those of the layers that come next, up to `last`, are on their
 * way, as many as parallel.prefetch says. */
static int weights_enter(struct ls_trainer *t, int layer, int last, struct ls_error *error)
{
    int units[2], status = LS_OK, by = last < layer ? -1 : 1;
    for (int i = 0, count = units_of(t, layer, units); i < count && !status; i++) {
        struct ls_zero_weights weights;
        status = ls_zero_weights(t->memory.zero, units[i], &weights, error);
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
    for (int i = 0, count = units_of(t, layer, units); i < count; i++)
        ls_zero_release(t->memory.zero, units[i]);
}

/* ---- gradients ------------------------------------------------------------------------------- */

static int gradient_begin(const struct stage_batch *batch, int region, int64_t m,
                          struct ls_gradient *gradient, struct ls_error *error)
{
    struct ls_trainer *t = batch->t;
    struct ls_zero_gradient place;
    int status =
        ls_zero_gradient(t->memory.zero, &t->ops, region, m, batch->micro_batches, &place, error);
    *gradient = (struct ls_gradient){.flat = place.flat, .accumulate = place.accumulate};
    if (!status && region == t->params.tied_region)
        gradient->table = place.flat + t->params.tied_offset;
    return status;
}

static int gradient_end(const struct stage_batch *batch, int region, int64_t m,
                        struct ls_error *error)
{
    struct ls_trainer *t = batch->t;
    return ls_zero_gradient_done(t->memory.zero, &t->ops, region, m, batch->micro_batches, error);
}

/* ---- layers in the trace -------------------------------------------------------------------- */

static void layer_begin(struct ls_trainer *t, int layer)
{
    ls_trace_set(t->trace, LS_TRACE_LAYER, layer);
    ls_trace_begin(t->trace,
                   layer == 0          ? "embedding"
                   : is_head(t, layer) ? "head"
                                       : "block",
                   "compute");
}

static void layer_end(struct ls_trainer *t)
{
    ls_trace_end(t->trace);
    ls_trace_set(t->trace, LS_TRACE_LAYER, -1);
}

/* ---- layers ---------------------------------------------------------------------------------- */

static int layer_forward(const struct stage_batch *batch, int layer, int64_t m,
                         const struct ls_micro_batch *micro, struct ls_error *error)
{
    struct ls_trainer *t = batch->t;
    struct ls_gradient gradient;
    bool makes_gradient = is_head(t, layer) && batch->training;
    int status = LS_OK;
    if (makes_gradient)
        status = gradient_begin(batch, t->params.head_region, m, &gradient, error);
    if (!status)
        status = ls_layer_forward(t->memory.model, &t->ops, layer, micro,
                                  makes_gradient ? &gradient : NULL, error);
    if (!status && makes_gradient)
        status = gradient_end(batch, t->params.head_region, m, error);
    if (!status && batch->training && !is_head(t, layer))
        digests_note_stream(t, DIGEST_OUTPUT, layer, micro,
                            ls_model_output(t->memory.model, layer, micro->slot));
    if (!status && is_head(t, layer))
        memcpy(batch->leaf_loss + m * batch->micro_leaves, ls_model_leaf_losses(t->memory.model),
               (size_t)(micro->sequences / t->numerics.leaf_sequences) * sizeof(float));
    return status;
}

int stage_forward(const struct stage_batch *batch, int chunk, int64_t m, int slot,
                  const void *input, struct ls_error *error)
{
    struct ls_trainer *t = batch->t;
    const struct train_chunk *layers = &t->part.chunks[chunk];
    struct ls_micro_batch micro = micro_batch_of(batch, m, slot, input, NULL);
    ls_trace_begin(t->trace, "forward", "compute");
    int status = LS_OK;
    for (int layer = layers->first; layer < layers->end && !status; layer++) {
        layer_begin(t, layer);
        status = weights_enter(t, layer, layers->end - 1, error);
        if (!status)
            status = layer_forward(batch, layer, m, &micro, error);
        weights_leave(t, layer);
        layer_end(t);
        ls_progress();
    }
    ls_trace_end(t->trace);
    return status;
}

static int layer_backward_weight(const struct stage_batch *batch, int layer, int64_t m,
                                 const struct ls_micro_batch *micro, struct ls_error *error)
{
    struct ls_trainer *t = batch->t;
    int region = ls_params_region(&t->params, layer);
    if (region < 0)
        return LS_OK;
    struct ls_gradient gradient;
    int status = gradient_begin(batch, region, m, &gradient, error);
    if (!status)
        status = ls_layer_backward_weight(t->memory.model, &t->ops, layer, micro, &gradient, error);
    if (!status)
        status = gradient_end(batch, region, m, error);
    return status;
}

int stage_backward(const struct stage_batch *batch, int chunk, int64_t m, int slot,
                   const void *input, const void *d_output, enum stage_halves halves,
                   struct ls_error *error)
{
    struct ls_trainer *t = batch->t;
    const struct train_chunk *layers = &t->part.chunks[chunk];
    struct ls_micro_batch micro = micro_batch_of(batch, m, slot, input, d_output);
    static const char *const names[] = {
        [STAGE_INPUT] = "backward, input",
        [STAGE_WEIGHT] = "backward, weights",
        [STAGE_BOTH] = "backward",
    };
    ls_trace_begin(t->trace, names[halves], "compute");
    int status = LS_OK;
    for (int layer = layers->end - 1; layer >= layers->first && !status; layer--) {
        /* Weight halves, and the embedding's input half, need no weights. */
        bool reads = (halves & STAGE_INPUT) && layer > 0;
        layer_begin(t, layer);
        if (reads)
            status = weights_enter(t, layer, (int)ls_max(layers->first, 1), error);
        if (!status && (halves & STAGE_INPUT))
            status = ls_layer_backward_input(t->memory.model, &t->ops, layer, &micro, error);
        if (reads)
            weights_leave(t, layer);
        if (!status && reads)
            digests_note_stream(t, DIGEST_INPUT_GRADIENT, layer, &micro,
                                ls_model_input_gradient(t->memory.model, layer));
        if (!status && (halves & STAGE_WEIGHT))
            status = layer_backward_weight(batch, layer, m, &micro, error);
        layer_end(t);
        ls_progress();
    }
    ls_trace_end(t->trace);
    return status;
}
