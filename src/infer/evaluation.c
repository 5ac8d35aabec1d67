/* Validation loss in any layout: each data-parallel rank takes whole leaves, which go through the
 * stages one micro-batch at a time; the sum is exact, so it does not depend on who takes which. */
#include "infer/infer_private.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One rank's way through the validation data. */
struct evaluation {
    struct ls_runner *r;
    const struct ls_token_store *store;
    int64_t first, end;               /* sequences of this data-parallel rank */
    int64_t rounds;                   /* micro-batches of every rank: ZeRO 3 gathers with all */
    int32_t *ids, *targets;           /* [micro sequences, T] whole sequences */
    int32_t *ids_held, *targets_held; /* the tokens of this rank */
    int32_t *starts;                  /* [micro sequences, T], of packed samples */
    struct ls_exact_sum loss;
    uint64_t sequences, tokens, bytes;
    uint64_t *found; /* [sequences of all ranks, T]; NULL: nobody asks */
};

/* ---- buffers --------------------------------------------------------------------------------- */

static int model_make(struct ls_runner *r, bool documents, struct ls_error *error)
{
    const struct ls_layout *layout = r->parts.layout;
    struct ls_model_options options = r->parts.part;
    options.sequences = layout->micro_sequences;
    options.tokens = layout->sequence;
    options.slots = 1;
    options.documents = r->documents = documents;
    return runner_model_make(&options, &r->arena, &r->model, error);
}

/* What was made for samples that are not packed makes room. */
static void model_drop(struct ls_runner *r)
{
    ls_model_free(r->model);
    ls_arena_release(&r->arena);
    r->model = NULL;
}

static int buffers_open(struct ls_runner *r, bool documents, struct ls_error *error)
{
    const struct ls_layout *layout = r->parts.layout;
    int64_t count = layout->micro_sequences * layout->sequence;
    if (r->model && !r->parts.model && documents && !r->documents)
        model_drop(r);
    int status = r->model ? LS_OK : model_make(r, documents, error);
    if (!r->losses)
        r->losses = calloc((size_t)layout->micro_sequences, sizeof *r->losses);
    if (!r->tokens)
        r->tokens = calloc((size_t)(5 * count), sizeof *r->tokens);
    if (!status && (!r->losses || !r->tokens))
        status = ls_no_memory(error, "for a batch of tokens");
    return status;
}

/* ---- one micro-batch ------------------------------------------------------------------------- */

/* Bytes of text that the targets stand for, of those that count. */
static int bytes_add(struct evaluation *e, const int32_t *targets, int64_t count,
                     struct ls_error *error)
{
    struct ls_text text = {0};
    int status = LS_OK;
    if (!e->r->parts.tokenizer)
        return LS_OK;
    for (int64_t i = 0; i < count && !status;) {
        int64_t first = i;
        while (i < count && targets[i] >= 0)
            i++;
        status = ls_decode(e->r->parts.tokenizer, targets + first, i - first, &text, error);
        i += i < count; /* one that does not count */
    }
    e->bytes += text.count;
    ls_text_release(&text);
    return status;
}

/* Sequences [first, first + count), and as many more as make whole leaves: samples again, from the
 * first on, which do not count. */
static int samples_read(struct evaluation *e, int64_t first, int64_t count, int64_t padded,
                        struct ls_error *error)
{
    const struct ls_layout *layout = e->r->parts.layout;
    int64_t tokens = layout->sequence, samples;
    int status = ls_token_store_samples(e->store, tokens, &samples, error);
    if (status)
        return status;
    for (int64_t i = 0; i < count; i++)
        ls_sample_prefetch(e->store, (first + i) % samples, tokens);
    for (int64_t i = 0; i < padded && !status; i++) {
        int64_t sample = (first + i) % samples, counted = 0;
        status = ls_sample_read(e->store, sample, tokens, layout->model.vocab, e->ids + i * tokens,
                                e->targets + i * tokens, error);
        if (!status && ls_token_store_packed(e->store))
            ls_sample_starts(e->store, sample, e->starts + i * tokens);
        if (!status && i < count)
            status = ls_sample_counted(e->store, sample, tokens, &counted, error);
        e->tokens += (uint64_t)counted;
    }
    if (status)
        return status;
    for (int64_t i = count * tokens; i < padded * tokens; i++)
        e->targets[i] = -1;
    e->sequences += (uint64_t)count;
    return bytes_add(e, e->targets, count * tokens, error);
}

/* The next micro-batch, of full size; what a rank has none left for does not count. */
static int round_read(struct evaluation *e, int64_t round, struct ls_error *error)
{
    const struct ls_runner *r = e->r;
    const struct ls_layout *layout = r->parts.layout;
    int64_t tokens = layout->sequence, micro = layout->micro_sequences;
    int64_t first = e->first + round * micro, count = ls_max(ls_min(micro, e->end - first), 0);
    int status = LS_OK;
    if (count > 0) {
        status = samples_read(e, first, count, micro, error);
    } else {
        memset(e->ids, 0, (size_t)(micro * tokens) * sizeof *e->ids);
        memset(e->targets, 0xff, (size_t)(micro * tokens) * sizeof *e->targets);
        memset(e->starts, 0, (size_t)(micro * tokens) * sizeof *e->starts);
    }
    if (!status) {
        ls_segments_copy(r->segments, r->segment_count, micro, tokens, e->ids, e->ids_held);
        ls_segments_copy(r->segments, r->segment_count, micro, tokens, e->targets, e->targets_held);
    }
    return status;
}

static void found_keep(const struct evaluation *e, int64_t round,
                       const struct ls_micro_batch *batch)
{
    const struct ls_runner *r = e->r;
    int64_t first = e->first + round * batch->sequences;
    int64_t count = ls_min(batch->sequences, e->end - first);
    struct found_rows rows = {r->model, r->segments, r->segment_count};
    for (int64_t i = 0; i < count && e->found && runner_answers(r); i++)
        found_take(&rows, batch, i, e->found + (first + i) * batch->tokens, NULL);
}

/* A local failure is agreed before the stages talk to each other. */
static int round_run(struct evaluation *e, int64_t round, struct ls_error *error)
{
    struct ls_runner *r = e->r;
    const struct ls_layout *layout = r->parts.layout;
    int64_t micro = layout->micro_sequences;
    int status = runner_interrupted(r, round_read(e, round, error), error);
    status = ls_comm_agree(r->parts.groups[LS_GROUP_WORLD], status, error);
    if (status)
        return status;
    struct ls_micro_batch batch = {.sequences = micro,
                                   .tokens = layout->sequence,
                                   .ids = e->ids_held,
                                   .targets = e->targets_held,
                                   .starts = ls_token_store_packed(e->store) ? e->starts : NULL};
    status = runner_forward(r, r->model, &batch, error);
    if (status || !runner_ends(r))
        return status;
    ls_copy(r->parts.ops, (size_t)micro * sizeof *r->losses, ls_model_losses(r->model), r->losses);
    status = ls_queue_synchronise(&r->parts.ops->queue, error);
    if (!status)
        status = ls_all_reduce(r->parts.groups[LS_GROUP_CP], r->losses, micro, error);
    for (int64_t i = 0; i < micro; i++)
        ls_exact_add(&e->loss, r->losses[i]);
    if (!status)
        found_keep(e, round, &batch);
    return status;
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* Of the ranks that saw the same samples, one counts. */
static int report_sum(struct evaluation *e, struct ls_eval_report *report, struct ls_error *error)
{
    struct ls_comm *const *groups = e->r->parts.groups;
    bool counts = runner_ends(e->r) && ls_comm_rank(groups[LS_GROUP_TP]) == 0 &&
                  ls_comm_rank(groups[LS_GROUP_CP]) == 0;
    uint64_t sums[3] = {0};
    if (counts)
        memcpy(sums, (uint64_t[]){e->sequences, e->tokens, e->bytes}, sizeof sums);
    else
        e->loss = (struct ls_exact_sum){0};
    int status = ls_all_reduce_exact(groups[LS_GROUP_WORLD], &e->loss, error);
    if (!status)
        status = ls_all_reduce_u64(groups[LS_GROUP_WORLD], sums, 3, error);
    double total = ls_exact_value(&e->loss);
    *report = (struct ls_eval_report){
        .loss = total / (double)ls_max((int64_t)sums[1], 1),
        .bits_per_byte = sums[2] ? total / 0.69314718055994530942 / (double)sums[2] : 0,
        .sequences = (int64_t)sums[0],
        .tokens = (int64_t)sums[1],
    };
    return status;
}

/* Who takes what of `count` sequences. */
static void shares_set(struct evaluation *e, int64_t count)
{
    const struct ls_runner *r = e->r;
    const struct ls_layout *layout = r->parts.layout;
    struct ls_comm *group = r->parts.groups[LS_GROUP_DP];
    int64_t dp = ls_comm_size(group), rank = ls_comm_rank(group);
    e->first = count * rank / dp;
    e->end = count * (rank + 1) / dp;
    e->rounds = ls_ceil_div(ls_ceil_div(count, dp), layout->micro_sequences);
    int64_t buffer = layout->micro_sequences * layout->sequence;
    e->ids = r->tokens;
    e->targets = e->ids + buffer;
    e->ids_held = e->targets + buffer;
    e->targets_held = e->ids_held + buffer;
    e->starts = e->targets_held + buffer;
}

static int rounds_run(struct evaluation *e, int64_t sequences, struct ls_eval_report *report,
                      struct ls_error *error)
{
    struct ls_trace *trace = e->r->parts.trace;
    int64_t at_once =
        e->r->parts.layout->micro_sequences * ls_comm_size(e->r->parts.groups[LS_GROUP_DP]);
    int status = LS_OK;
    shares_set(e, sequences);
    for (int64_t round = 0; round < e->rounds && !status; round++) {
        ls_trace_set(trace, LS_TRACE_MICRO_BATCH, round);
        status = round_run(e, round, error);
        runner_tell(e->r, "sequences", (round + 1) * at_once, sequences);
    }
    ls_trace_set(trace, LS_TRACE_MICRO_BATCH, -1);
    if (!status)
        status = report_sum(e, report, error);
    if (!status && report->tokens == 0)
        status = ls_error_set(error, LS_EDATA,
                              "%s: no token of %lld sequences counts as a target, so there is no "
                              "loss. Evaluate more of them, or other data",
                              ls_token_store_file(e->store, 0).path, (long long)report->sequences);
    return status;
}

/* The sum over ranks, as values. */
static int logprobs_give(struct evaluation *e, int64_t count, float *logprobs,
                         struct ls_error *error)
{
    int status = ls_all_reduce_u64(e->r->parts.groups[LS_GROUP_WORLD], e->found, count, error);
    for (int64_t i = 0; i < count && !status; i++)
        logprobs[i] = e->found[i] ? found_logprob(e->found[i]) : NAN;
    return status;
}

int ls_runner_evaluate(struct ls_runner *r, const struct ls_token_store *store, int64_t sequences,
                       struct ls_eval_report *report, float **logprobs, struct ls_error *error)
{
    struct evaluation e = {.r = r, .store = store};
    int64_t samples = 0, tokens = r->parts.layout->sequence;
    int status = ls_token_store_samples(store, tokens, &samples, error);
    samples = sequences > 0 ? ls_min(sequences, samples) : samples;
    if (!status)
        status = buffers_open(r, ls_token_store_packed(store), error);
    if (logprobs) {
        *logprobs = calloc((size_t)(samples * tokens) + 1, sizeof **logprobs);
        e.found = calloc((size_t)(samples * tokens) + 1, sizeof *e.found);
        if (!status && (!*logprobs || !e.found))
            status = ls_no_memory(error, "for the log-probabilities of %ld tokens",
                                  (long)(samples * tokens));
    }
    status = ls_comm_agree(r->parts.groups[LS_GROUP_WORLD], status, error);
    if (!status)
        status = rounds_run(&e, samples, report, error);
    if (!status && logprobs)
        status = logprobs_give(&e, samples * tokens, *logprobs, error);
    free(e.found);
    if (status && logprobs) {
        free(*logprobs);
        *logprobs = NULL;
    }
    return status;
}
