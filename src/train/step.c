/* One optimizer step. ls_trainer_step reads as the sentence at the top of lockstep/train.h; how its
 * parts are cut over ranks and micro-batches is in the functions above it. */
#include "trainer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* This step's part of the global batch on this rank. */
struct step_batch {
    int64_t sequences; /* of the global batch */
    struct ls_dp_share share;
    const int32_t *inputs, *targets; /* of this rank's share: [count * leaf_sequences, T] */
};

static int share_of(const struct ls_trainer *t, int64_t samples, struct ls_dp_share *share,
                    struct ls_error *error)
{
    int64_t leaves = ls_batch_at(&t->config, samples) / t->numerics.leaf_sequences;
    int64_t dp = ls_config_ranks(&t->config), rank = ls_comm_rank(t->replicas);
    if (!t->numerics.fast)
        return ls_dp_share_init(share, leaves, dp, rank, t->sizes.micro_leaves, error);
    int64_t count = leaves / dp, micro = ls_min(t->sizes.micro_leaves, count);
    *share = (struct ls_dp_share){.leaves = leaves,
                                  .first = rank * count,
                                  .count = count,
                                  .micro_leaves = micro,
                                  .micro_batches = ls_ceil_div(count, micro)};
    return LS_OK;
}

/* Asks the loader for the samples of the step that begins at `samples`. */
static int batch_post(struct ls_trainer *t, int64_t samples, struct ls_error *error)
{
    struct ls_dp_share share;
    int status = share_of(t, samples, &share, error);
    if (status)
        return status;
    int64_t leaf = t->numerics.leaf_sequences;
    status = ls_loader_post(t->loader, samples + share.first * leaf, share.count * leaf);
    return status ? ls_error_set(error, status, "the loader refused a request") : LS_OK;
}

static int batch_load(struct ls_trainer *t, struct step_batch *batch, double *wait_s,
                      struct ls_error *error)
{
    int status = share_of(t, t->samples, &batch->share, error);
    if (!status && !t->posted)
        status = batch_post(t, t->samples, error);
    batch->sequences = ls_batch_at(&t->config, t->samples);
    if (!status)
        status = batch_post(t, t->samples + batch->sequences, error);
    t->posted = status == LS_OK;
    if (!status)
        status = ls_loader_take(t->loader, &batch->inputs, &batch->targets, wait_s, error);
    return ls_comm_agree(t->world, status, error);
}

static struct ls_accumulation accumulation_of(const struct ls_trainer *t, int64_t m,
                                              int64_t micro_batches)
{
    if (t->numerics.fast)
        return (struct ls_accumulation){.accumulate = m > 0};
    return ls_accumulation_of(m, micro_batches);
}

/* After a layer's last write in this micro-batch: adds its part of the gradient buffers as the tree
 * over micro-batches says, and hands it to the reduction when it is final. */
static int layer_finish(struct ls_trainer *t, int layer, struct ls_accumulation accumulation,
                        bool last, struct ls_error *error)
{
    int64_t begin, end;
    ls_layer_gradient_range(t->model, layer, &begin, &end);
    for (int i = 0; i < accumulation.merges; i++) {
        int from = accumulation.target - i;
        ls_tree_add(&t->ops, end - begin, t->memory.gradient[from - 1] + begin,
                    t->memory.gradient[from] + begin);
    }
    return last ? ls_dp_ready(t->dp, t->memory.gradient[0], begin, error) : LS_OK;
}

static int forward(struct ls_trainer *t, const struct ls_micro_batch *micro,
                   const struct ls_gradient *gradient, struct ls_error *error)
{
    ls_trace_begin(t->trace, "forward", "compute");
    int status = LS_OK, layers = ls_model_layers(t->model);
    for (int layer = 0; layer < layers && !status; layer++)
        status = ls_layer_forward(t->model, &t->ops, layer, micro, gradient, error);
    ls_trace_end(t->trace);
    return status;
}

static int backward(struct ls_trainer *t, const struct ls_micro_batch *micro,
                    const struct ls_gradient *gradient, struct ls_accumulation accumulation,
                    bool last, struct ls_error *error)
{
    ls_trace_begin(t->trace, "backward", "compute");
    int status = LS_OK;
    for (int layer = ls_model_layers(t->model) - 1; layer >= 0 && !status; layer--) {
        status = ls_layer_backward_input(t->model, &t->ops, layer, micro, error);
        if (!status)
            status = ls_layer_backward_weight(t->model, &t->ops, layer, micro, gradient, error);
        if (!status)
            status = layer_finish(t, layer, accumulation, last, error);
    }
    ls_trace_end(t->trace);
    return status;
}

/* Forward and backward of all micro-batches; the gradient's buckets leave during the last one. */
static int micro_batches_run(struct ls_trainer *t, const struct step_batch *batch,
                             struct ls_error *error)
{
    int64_t tokens = t->sizes.sequence_tokens, leaf = t->numerics.leaf_sequences;
    for (int64_t m = 0; m < batch->share.micro_batches; m++) {
        int64_t first, count;
        ls_dp_micro_batch(&batch->share, m, &first, &count);
        struct ls_accumulation accumulation = accumulation_of(t, m, batch->share.micro_batches);
        int64_t offset = (first - batch->share.first) * leaf * tokens;
        struct ls_micro_batch micro = {
            .sequences = count * leaf,
            .tokens = tokens,
            .ids = batch->inputs + offset,
            .targets = batch->targets + offset,
            .first_sequence = first * leaf,
            .step = t->step + 1,
            .training = true,
            .gradient_scale = (float)(1.0 / ((double)batch->sequences * (double)tokens)),
        };
        struct ls_gradient gradient = {.flat = t->memory.gradient[accumulation.target],
                                       .accumulate = accumulation.accumulate};
        int status = forward(t, &micro, &gradient, error);
        if (!status)
            status = backward(t, &micro, &gradient, accumulation,
                              m == batch->share.micro_batches - 1, error);
        if (status)
            return status;
        memcpy(t->leaf_loss + (first - batch->share.first), ls_model_leaf_losses(t->model),
               (size_t)count * sizeof(float));
    }
    return LS_OK;
}

/* The batch's mean loss: the tree over leaves, this rank's subtree first. */
static int loss_reduce(struct ls_trainer *t, const struct step_batch *batch, float *loss,
                       struct ls_error *error)
{
    float sum = ls_tree_sum(t->leaf_loss, batch->share.count);
    int status = ls_all_reduce(t->replicas, &sum, 1, error);
    *loss = (float)((double)sum / ((double)batch->sequences * (double)t->sizes.sequence_tokens));
    return status;
}

static int nonfinite_refuse(const struct ls_trainer *t, const struct ls_step_report *report,
                            struct ls_error *error)
{
    char good[LS_CONFIG_TEXT_BYTES + 128];
    if (t->saved_step < 0)
        snprintf(good, sizeof good, "There is no checkpoint yet");
    else
        snprintf(good, sizeof good, "The last good checkpoint is %s/checkpoints/step-%08ld",
                 t->config.train.out, (long)t->saved_step);
    return ls_error_set(error, LS_ENUMERIC,
                        "step %ld: the loss is %g and the gradient norm %g; nothing was updated. "
                        "%s; lower optim.lr, or set train.on_nonfinite=skip to pass over such "
                        "steps",
                        (long)report->step, (double)report->loss, report->grad_norm, good);
}

static void report_finish(const struct ls_trainer *t, const struct step_batch *batch,
                          double start_s, struct ls_step_report *report)
{
    double tokens = (double)batch->sequences * (double)t->sizes.sequence_tokens;
    report->step_s = ls_now_s() - start_s;
    report->tokens_per_s = tokens / report->step_s;
    double flops = ls_model_flops_per_token(&t->config.model, t->sizes.sequence_tokens);
    report->peak_share = t->peak_flops > 0 ? flops * report->tokens_per_s / t->peak_flops : 0;
    memcpy(&report->loss_bits, &report->loss, sizeof report->loss_bits);
}

int ls_trainer_step(struct ls_trainer *t, struct ls_step_report *report, struct ls_error *error)
{
    double start_s = ls_now_s();
    struct ls_optim_config optim = t->optimizer.config;
    struct step_batch batch;
    *report = (struct ls_step_report){.step = t->step + 1};
    report->lr = ls_learning_rate(&optim, report->step);

    int status = batch_load(t, &batch, &report->data_wait_s, error);
    if (!status)
        status = micro_batches_run(t, &batch, error);
    if (status)
        return status;
    ls_trace_begin(t->trace, "reduce", "comm");
    status = ls_dp_finish(t->dp, &report->comm_wait_s, error);
    if (!status)
        status = loss_reduce(t, &batch, &report->loss, error);
    ls_trace_end(t->trace);
    if (status)
        return status;

    ls_trace_begin(t->trace, "update", "compute");
    report->grad_norm = ls_gradient_norm(&t->params, &t->ops, t->memory.gradient[0]);
    if (!isfinite(report->loss) || !isfinite(report->grad_norm)) {
        if (t->config.train.on_nonfinite == LS_CONFIG_STOP)
            return nonfinite_refuse(t, report, error);
        report->skipped = true;
    } else {
        ls_optimizer_step(&t->optimizer, &t->ops, &t->memory.weights, t->memory.gradient[0],
                          ls_clip_factor(&optim, report->grad_norm), report->lr, report->step);
    }
    ls_trace_end(t->trace);

    t->step = report->step;
    t->samples += batch.sequences;
    report->samples = t->samples;
    report->tokens = t->samples * t->sizes.sequence_tokens;
    report_finish(t, &batch, start_s, report);
    return LS_OK;
}
