#include "trainer.h"

#include <math.h>
#include <string.h>

/* Bytes of text that the ids stand for. */
static int bytes_of(const struct ls_tokenizer *tokenizer, const int32_t *ids, int64_t count,
                    struct ls_text *text, uint64_t *bytes, struct ls_error *error)
{
    if (!tokenizer)
        return LS_OK;
    text->count = 0;
    int status = ls_decode(tokenizer, ids, count, text, error);
    *bytes += text->count;
    return status;
}

int eval_range(const struct eval_task *task, int64_t first, int64_t count, struct eval_sum *sum,
               struct ls_error *error)
{
    int64_t tokens = task->sequence_tokens, micro = task->micro_sequences;
    struct ls_text text = {0};
    int64_t samples;
    int status = ls_token_store_samples(task->store, tokens, &samples, error);
    struct ls_sample_order order = {.samples = samples};
    for (int64_t done = 0; done < count && !status; done += micro) {
        /* Whole leaves: a last partial one is filled with repeated samples, which do not count. */
        int64_t now = ls_min(micro, count - done);
        int64_t padded = ls_round_up(now, task->leaf_sequences);
        int32_t *targets = task->ids + padded * tokens;
        status = ls_samples_read(task->store, &order, first + done, padded, tokens,
                                 task->vocabulary, task->ids, targets, error);
        if (status)
            break;
        for (int64_t i = now * tokens; i < padded * tokens; i++)
            targets[i] = -1;
        struct ls_micro_batch batch = {
            .sequences = padded, .tokens = tokens, .ids = task->ids, .targets = targets};
        for (int layer = 0; layer < ls_model_layers(task->model) && !status; layer++)
            status = ls_layer_forward(task->model, task->ops, layer, &batch, NULL, error);
        if (!status)
            status = bytes_of(task->tokenizer, targets, now * tokens, &text, &sum->bytes, error);
        const float *loss = ls_model_leaf_losses(task->model);
        for (int64_t leaf = 0; leaf < padded / task->leaf_sequences && !status; leaf++)
            ls_exact_add(&sum->loss, loss[leaf]);
        sum->sequences += (uint64_t)now;
        sum->tokens += (uint64_t)(now * tokens);
    }
    ls_text_release(&text);
    return status;
}

void eval_report_of(const struct eval_sum *sum, struct ls_eval_report *report)
{
    double total = ls_exact_value(&sum->loss);
    *report = (struct ls_eval_report){
        .loss = sum->tokens ? total / (double)sum->tokens : NAN,
        .bits_per_byte = sum->bytes ? total / 0.69314718055994530942 / (double)sum->bytes : 0,
        .sequences = (int64_t)sum->sequences,
        .tokens = (int64_t)sum->tokens,
    };
}

int ls_trainer_evaluate(struct ls_trainer *t, struct ls_eval_report *report, struct ls_error *error)
{
    int64_t samples = 0, dp = ls_config_ranks(&t->config), rank = ls_comm_rank(t->replicas);
    int status = t->valid_store ? ls_token_store_samples(t->valid_store, t->sizes.sequence_tokens,
                                                         &samples, error)
                                : ls_config_require(&t->config, "data.valid", error);
    status = ls_comm_agree(t->world, status, error);
    if (status)
        return status;
    /* Ranks take whole leaves, so that a leaf's sum is the same for any number of ranks. */
    int64_t leaf = t->numerics.leaf_sequences;
    int64_t count = ls_min(samples, t->config.eval.samples), leaves = ls_ceil_div(count, leaf);
    int64_t begin = leaves * rank / dp * leaf, end = ls_min(leaves * (rank + 1) / dp * leaf, count);
    struct eval_task task = {.model = t->model,
                             .ops = &t->ops,
                             .store = t->valid_store,
                             .tokenizer = t->tokenizer,
                             .sequence_tokens = t->sizes.sequence_tokens,
                             .micro_sequences = t->sizes.micro_sequences,
                             .leaf_sequences = leaf,
                             .vocabulary = t->config.model.vocab,
                             .ids = t->eval_ids};
    struct eval_sum sum = {0};
    status = eval_range(&task, begin, ls_max(end - begin, 0), &sum, error);
    status = ls_comm_agree(t->world, status, error);
    if (!status)
        status = ls_all_reduce_exact(t->world, &sum.loss, error);
    uint64_t counts[3] = {sum.sequences, sum.tokens, sum.bytes};
    if (!status)
        status = ls_all_reduce_u64(t->world, counts, 3, error);
    sum.sequences = counts[0];
    sum.tokens = counts[1];
    sum.bytes = counts[2];
    eval_report_of(&sum, report);
    return status;
}
