/* A batch that the caller gives in the place of the data's: it is checked, each rank takes its
 * share of it, and what the head found of its targets goes back to the caller. */
#include "train/stage.h"

#include <lockstep/base/words.h>

#include <stdlib.h>
#include <string.h>

/* Of one rank: room for the largest batch of the run, taken when the first one is given. */
struct given {
    struct ls_given_batch batch; /* the one under way */
    int64_t counted;             /* its targets that count */
    double divisor;
    int64_t row;               /* tokens held here of a sequence */
    int32_t *inputs, *targets; /* [sequences here, row] */
    float *weights, *entropy_weights, *row_losses, *row_entropies; /* the same */
    int32_t *whole; /* [T] one sequence, of ids or of weights */
    bool wants;     /* some rank asks for log-probabilities or entropies */
    float *answer;  /* [sequences, tokens] of the largest batch; NULL: not yet asked */
};

void given_free(struct given *g)
{
    if (!g)
        return;
    free(g->inputs);
    free(g->targets);
    free(g->weights);
    free(g->entropy_weights);
    free(g->row_losses);
    free(g->row_entropies);
    free(g->whole);
    free(g->answer);
    free(g);
}

static int given_new(struct ls_trainer *t, struct ls_error *error)
{
    struct given *g = calloc(1, sizeof *g);
    struct ls_dp_share share;
    ls_layout_share(&t->layout, t->layout.ramp.full, t->coordinates, &share);
    if (g) {
        for (int i = 0; i < t->segment_count; i++)
            g->row += t->segments[i].count;
        size_t count = (size_t)(share.count * share.leaf * g->row);
        g->inputs = calloc(count, sizeof *g->inputs);
        g->targets = calloc(count, sizeof *g->targets);
        g->weights = calloc(count, sizeof *g->weights);
        g->entropy_weights = calloc(count, sizeof *g->entropy_weights);
        g->row_losses = calloc(count, sizeof *g->row_losses);
        g->row_entropies = calloc(count, sizeof *g->row_entropies);
        g->whole = calloc((size_t)t->config.data.sequence, sizeof *g->whole);
    }
    if (g && g->inputs && g->targets && g->weights && g->entropy_weights && g->row_losses &&
        g->row_entropies && g->whole) {
        t->given = g;
        return LS_OK;
    }
    given_free(g);
    return ls_no_memory(error, "for a batch that is given");
}

/* ---- what is refused ------------------------------------------------------------------------- */

static int shape_check(const struct ls_trainer *t, const struct ls_given_batch *b,
                       struct ls_error *error)
{
    int64_t most = step_sequences(t), tokens = t->config.data.sequence;
    if (!b->inputs || !b->targets)
        return ls_error_set(error, LS_EINVAL,
                            "the given batch has no %s: expected [sequences, tokens] of them",
                            b->inputs ? "targets" : "inputs");
    if (b->sequences < 1 || b->sequences > most)
        return ls_error_set(error, LS_EINVAL,
                            "the given batch has %lld sequences: expected 1 to %lld, the batch of "
                            "step %lld (batch.global, batch.rampup)",
                            (long long)b->sequences, (long long)most,
                            (long long)t->state->step + 1);
    if (b->temperature != 0 && !(b->temperature >= FLT_MIN && isfinite(b->temperature)))
        return ls_error_set(error, LS_EINVAL,
                            "the given batch has temperature %g: expected a number from %g",
                            ls_shown((double)b->temperature), (double)FLT_MIN);
    if (b->entropies && !b->entropy_weights)
        return ls_error_set(error, LS_EINVAL,
                            "the given batch asks for entropies: expected entropy_weights, which "
                            "may be 0");
    if (b->tokens < 1 || b->tokens > tokens)
        return ls_error_set(error, LS_EINVAL,
                            "the given batch has sequences of %lld tokens: expected 1 to %lld "
                            "(data.sequence)",
                            (long long)b->tokens, (long long)tokens);
    return LS_OK;
}

static int weight_check(const struct ls_given_batch *b, const char *what, const float *weights,
                        int64_t i, struct ls_error *error)
{
    if (!weights || isfinite(weights[i]))
        return LS_OK;
    return ls_error_set(error, LS_EDATA,
                        "the given batch, sequence %lld, token %lld: %s is %g: expected a finite "
                        "number",
                        (long long)(i / b->tokens), (long long)(i % b->tokens), what,
                        ls_shown((double)weights[i]));
}

static int value_check(const struct ls_given_batch *b, int64_t vocabulary, int64_t i,
                       struct ls_error *error)
{
    const int32_t input = b->inputs[i], target = b->targets[i];
    long long sequence = i / b->tokens, token = i % b->tokens;
    if (input < 0 || input >= vocabulary)
        return ls_error_set(error, LS_EDATA,
                            "the given batch, sequence %lld, token %lld: input %d is not in the "
                            "model's vocabulary: expected 0 to %lld",
                            sequence, token, input, (long long)vocabulary - 1);
    if (target < -1 || target >= vocabulary)
        return ls_error_set(error, LS_EDATA,
                            "the given batch, sequence %lld, token %lld: target %d is not in the "
                            "model's vocabulary: expected 0 to %lld, or -1 for one that does not "
                            "count",
                            sequence, token, target, (long long)vocabulary - 1);
    int status = weight_check(b, "the weight", b->weights, i, error);
    return status ? status
                  : weight_check(b, "the weight of the entropy", b->entropy_weights, i, error);
}

/* What the sum of losses is divided by. The sum of weights is exact, and rounded once. */
static int divisor_find(struct given *g, const struct ls_given_batch *b, struct ls_error *error)
{
    struct ls_exact_sum sum;
    ls_exact_clear(&sum);
    g->counted = 0;
    for (int64_t i = 0; i < b->sequences * b->tokens; i++) {
        float weight = b->weights ? b->weights[i] : 1;
        bool entropy = b->entropy_weights && b->entropy_weights[i] != 0;
        if (b->targets[i] < 0 || (weight == 0 && !entropy))
            continue;
        g->counted++;
        if (b->weights)
            ls_exact_add(&sum, (double)weight);
    }
    g->divisor = b->sum ? 1 : b->weights ? ls_exact_value(&sum) : (double)g->counted;
    if (stage_divides(g->divisor))
        return LS_OK;
    if (!g->counted)
        return ls_error_set(error, LS_EDATA,
                            "no target of the given batch counts: each is -1, or has weight 0");
    return ls_error_set(error, LS_EDATA,
                        "the weights of the given batch sum up to %g, and the loss is divided by "
                        "their sum: ask for the sum of losses, or give other weights",
                        g->divisor);
}

static int batch_check(struct ls_trainer *t, const struct ls_given_batch *b, struct ls_error *error)
{
    int status = shape_check(t, b, error);
    for (int64_t i = 0; !status && i < b->sequences * b->tokens; i++)
        status = value_check(b, t->config.model.vocab, i, error);
    if (!status && !t->given)
        status = given_new(t, error);
    return status ? status : divisor_find(t->given, b, error);
}

static int64_t batch_digest(const struct ls_given_batch *b)
{
    const int64_t shape[] = {b->sequences, b->tokens, b->sum};
    const float temperature = b->temperature > 0 ? b->temperature : 1;
    const size_t count = (size_t)(b->sequences * b->tokens);
    struct ls_digest digest = {0, 0};
    ls_digest_piece(&digest, "shape", 0, 0, shape, sizeof shape);
    ls_digest_piece(&digest, "temperature", 0, 0, &temperature, sizeof temperature);
    ls_digest_piece(&digest, "inputs", 0, 0, b->inputs, count * sizeof *b->inputs);
    ls_digest_piece(&digest, "targets", 0, 0, b->targets, count * sizeof *b->targets);
    if (b->weights)
        ls_digest_piece(&digest, "weights", 0, 0, b->weights, count * sizeof *b->weights);
    if (b->entropy_weights)
        ls_digest_piece(&digest, "entropies", 0, 0, b->entropy_weights,
                        count * sizeof *b->entropy_weights);
    return (int64_t)(digest.low >> 1);
}

/* Collective. A rank that was given something else would train another model than the rest. */
static int batches_compare(struct ls_trainer *t, const struct ls_given_batch *b,
                           struct ls_error *error)
{
    int64_t most = batch_digest(b), least = -most, wants = b->logprobs || b->entropies;
    int status = ls_all_reduce_max(t->world, &most, error);
    if (!status)
        status = ls_all_reduce_max(t->world, &least, error);
    if (!status)
        status = ls_all_reduce_max(t->world, &wants, error);
    t->given->wants = wants;
    if (status || most == -least)
        return status;
    return ls_error_set(error, LS_EINVAL,
                        "step %lld: ranks were given different batches: expected the same whole "
                        "batch on each, which takes its share of it",
                        (long long)t->state->step + 1);
}

static int answer_open(struct ls_trainer *t, struct ls_error *error)
{
    struct given *g = t->given;
    int64_t most = t->layout.ramp.full * t->layout.numerics.leaf_sequences;
    if (!g->answer)
        g->answer = calloc((size_t)(most * t->config.data.sequence), sizeof *g->answer);
    return g->answer ? LS_OK : ls_no_memory(error, "for log-probabilities");
}

int given_admit(struct ls_trainer *t, const struct ls_given_batch *batch, struct ls_error *error)
{
    if (t->workers)
        return ls_config_reject(&t->config, LS_ECONFIG, "async.mode", error,
                                "each worker takes its own batches of the data, and none can be "
                                "given: expected none");
    int status = ls_comm_agree(t->world, batch_check(t, batch, error), error);
    if (!status)
        status = batches_compare(t, batch, error);
    if (!status && t->given->wants)
        status = ls_comm_agree(t->world, answer_open(t, error), error);
    if (!status)
        t->given->batch = *batch;
    return status;
}

/* ---- a rank's share -------------------------------------------------------------------------- */

/* Sequence `sequence` of values [sequences, tokens] to row `at` of out: the tokens held here, with
 * `padding` where it has none. All are of four bytes. */
static void row_take(const struct ls_trainer *t, int64_t sequence, int64_t at, const void *values,
                     int32_t padding, void *out)
{
    struct given *g = t->given;
    const struct ls_given_batch *b = &g->batch;
    const size_t bytes = sizeof *g->whole;
    int64_t count = sequence < b->sequences ? b->tokens : 0;
    for (int64_t i = count; i < t->config.data.sequence; i++)
        g->whole[i] = padding;
    if (count)
        memcpy(g->whole, (const char *)values + (size_t)(sequence * b->tokens) * bytes,
               (size_t)count * bytes);
    ls_segments_copy(t->segments, t->segment_count, 1, t->config.data.sequence, g->whole,
                     (char *)out + (size_t)(at * g->row) * bytes);
}

/* The weights of the entropies in row `at`, whose targets are there: 0 without a target. */
static void entropy_weights_take(const struct ls_trainer *t, int64_t sequence, int64_t at)
{
    struct given *g = t->given;
    row_take(t, sequence, at, g->batch.entropy_weights, 0, g->entropy_weights);
    for (int64_t i = at * g->row; i < (at + 1) * g->row; i++)
        if (g->targets[i] < 0)
            g->entropy_weights[i] = 0;
}

void given_take(struct ls_trainer *t, struct train_batch *batch)
{
    struct given *g = t->given;
    const struct ls_given_batch *b = &g->batch;
    for (int64_t m = 0; m < batch->share.micro_batches; m++) {
        struct ls_dp_micro micro = ls_dp_micro_batch(&batch->share, m);
        for (int64_t k = 0; k < micro.count; k++) {
            row_take(t, micro.first + k, micro.offset + k, b->inputs, 0, g->inputs);
            row_take(t, micro.first + k, micro.offset + k, b->targets, -1, g->targets);
            if (b->weights)
                row_take(t, micro.first + k, micro.offset + k, b->weights, 0, g->weights);
            if (b->entropy_weights)
                entropy_weights_take(t, micro.first + k, micro.offset + k);
        }
    }
    batch->inputs = g->inputs;
    batch->targets = g->targets;
    batch->weights = b->weights ? g->weights : NULL;
    batch->entropy_weights = b->entropy_weights ? g->entropy_weights : NULL;
    batch->row_losses = g->wants ? g->row_losses : NULL;
    batch->row_entropies = g->wants && b->entropy_weights ? g->row_entropies : NULL;
    batch->counted = g->counted;
    batch->divisor = g->divisor;
    batch->temperature = b->temperature;
    batch->sum = b->sum;
}

/* ---- what the head found --------------------------------------------------------------------- */

/* Row `at` of values to where its tokens are in sequence `sequence`; 0 without a target. */
static void row_give(const struct ls_trainer *t, int64_t sequence, int64_t at, const float *values)
{
    const struct given *g = t->given;
    const struct ls_given_batch *b = &g->batch;
    const float *value = values + at * g->row;
    for (int i = 0; i < t->segment_count; i++)
        for (int64_t k = 0; k < t->segments[i].count; k++, value++) {
            int64_t place = sequence * b->tokens + t->segments[i].first + k;
            if (t->segments[i].first + k < b->tokens)
                g->answer[place] = b->targets[place] < 0 ? 0 : *value;
        }
}

/* Collective. values [sequences here, row] as [sequences, tokens], times sign, to out unless that
 * is NULL. Each is known to one rank, and zero on the others: adding them rounds nothing. */
static int answer_give(struct ls_trainer *t, const struct train_batch *batch, const float *values,
                       float sign, float *out, struct ls_error *error)
{
    struct given *g = t->given;
    const struct ls_given_batch *b = &g->batch;
    bool answers = t->part.head && t->coordinates[LS_AXIS_TP] == 0;
    const int64_t count = b->sequences * b->tokens;
    memset(g->answer, 0, (size_t)count * sizeof *g->answer);
    for (int64_t m = 0; m < batch->share.micro_batches && answers; m++) {
        struct ls_dp_micro micro = ls_dp_micro_batch(&batch->share, m);
        for (int64_t k = 0; k < micro.count && micro.first + k < b->sequences; k++)
            row_give(t, micro.first + k, micro.offset + k, values);
    }
    int status = ls_all_reduce(t->world, g->answer, count, error);
    for (int64_t i = 0; i < count && !status && out; i++)
        out[i] = 0 + sign * g->answer[i]; /* no -0 */
    return status;
}

int given_answer(struct ls_trainer *t, const struct train_batch *batch, struct ls_error *error)
{
    const struct ls_given_batch *b = &t->given->batch;
    int status = LS_OK;
    if (batch->row_losses)
        status = answer_give(t, batch, batch->row_losses, -1, b->logprobs, error);
    if (!status && batch->row_entropies)
        status = answer_give(t, batch, batch->row_entropies, 1, b->entropies, error);
    return status;
}
