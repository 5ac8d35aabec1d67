/* What evaluations read and report. */
#include "trainer.h"

#include <math.h>

/* Bytes of text that the ids stand for. */
static int bytes_of(const struct ls_tokenizer *tokenizer, const int32_t *ids, int64_t count,
                    uint64_t *bytes, struct ls_error *error)
{
    if (!tokenizer)
        return LS_OK;
    struct ls_text text = {0};
    int status = ls_decode(tokenizer, ids, count, &text, error);
    *bytes += text.count;
    ls_text_release(&text);
    return status;
}

int eval_read(const struct ls_token_store *store, const struct ls_tokenizer *tokenizer,
              const struct ls_config *config, int64_t first, int64_t count, int32_t *ids,
              int32_t *targets, int64_t *padded, struct eval_sum *sum, struct ls_error *error)
{
    int64_t tokens = config->data.sequence, samples;
    *padded = ls_round_up(count, config->numerics.leaf_sequences);
    int status = ls_token_store_samples(store, tokens, &samples, error);
    if (status)
        return status;
    /* What fills the last leaf is samples again, from the first on; they do not count. */
    struct ls_sample_order order = {.samples = samples};
    status = ls_samples_read(store, &order, first, *padded, tokens, config->model.vocab, ids,
                             targets, error);
    if (status)
        return status;
    for (int64_t i = count * tokens; i < *padded * tokens; i++)
        targets[i] = -1;
    status = bytes_of(tokenizer, targets, count * tokens, &sum->bytes, error);
    sum->sequences += (uint64_t)count;
    sum->tokens += (uint64_t)(count * tokens);
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
