/* Validation loss in any layout: each data-parallel rank takes whole leaves, which go through the
 * stages one micro-batch at a time; the sum is exact, so it does not depend on who takes which. */
#include "stage.h"

#include <string.h>

/* One rank's way through the validation data. */
struct evaluation {
    struct ls_trainer *t;
    int64_t first, end;     /* sequences of this data-parallel rank */
    int64_t rounds;         /* micro-batches of every rank: ZeRO 3 gathers with all of them */
    int32_t *ids, *targets; /* [micro sequences, T] whole sequences */
    int32_t *ids_held, *targets_held; /* the tokens of this rank */
    struct eval_sum sum;
};

/* The next micro-batch; where a rank has none left, a leaf that does not count. */
static int round_read(struct evaluation *e, int64_t round, int64_t *padded, struct ls_error *error)
{
    struct ls_trainer *t = e->t;
    int64_t leaf = t->numerics.leaf_sequences, tokens = t->config.data.sequence;
    int64_t micro = t->layout.micro_leaves * leaf, first = e->first + round * micro;
    int64_t count = ls_max(ls_min(micro, e->end - first), 0);
    int status = LS_OK;
    if (count > 0) {
        status = eval_read(t->valid_store, t->tokenizer, &t->config, first, count, e->ids,
                           e->targets, padded, &e->sum, error);
    } else {
        *padded = leaf;
        memset(e->ids, 0, (size_t)(leaf * tokens) * sizeof *e->ids);
        memset(e->targets, 0xff, (size_t)(leaf * tokens) * sizeof *e->targets);
    }
    if (!status) {
        ls_segments_copy(t->segments, t->segment_count, *padded, tokens, e->ids, e->ids_held);
        ls_segments_copy(t->segments, t->segment_count, *padded, tokens, e->targets,
                         e->targets_held);
    }
    return status;
}

/* A local failure is agreed before the stages talk to each other. */
static int round_run(struct evaluation *e, int64_t round, struct ls_error *error)
{
    struct ls_trainer *t = e->t;
    int64_t leaf = t->numerics.leaf_sequences, padded = 0;
    int status = round_read(e, round, &padded, error);
    status = ls_comm_agree(t->world, status, error);
    if (status)
        return status;
    struct stage_batch batch = {.t = t,
                                .leaves = padded / leaf,
                                .micro_leaves = padded / leaf,
                                .micro_batches = 1,
                                .inputs = e->ids_held,
                                .targets = e->targets_held,
                                .leaf_loss = t->leaf_loss};
    status = stage_forward_all(&batch, error);
    if (status || !t->part.head)
        return status;
    status = ls_all_reduce(t->groups.cp, t->leaf_loss, batch.leaves, error);
    for (int64_t i = 0; i < batch.leaves; i++)
        ls_exact_add(&e->sum.loss, t->leaf_loss[i]);
    return status;
}

int ls_trainer_evaluate(struct ls_trainer *t, struct ls_eval_report *report, struct ls_error *error)
{
    int64_t samples = 0, leaf = t->numerics.leaf_sequences, tokens = t->config.data.sequence;
    int status = t->valid_store ? ls_token_store_samples(t->valid_store, tokens, &samples, error)
                                : ls_config_require(&t->config, "data.valid", error);
    status = ls_comm_agree(t->world, status, error);
    if (status)
        return status;
    int64_t dp = ls_comm_size(t->groups.dp), rank = ls_comm_rank(t->groups.dp);
    int64_t count = ls_min(samples, t->config.eval.samples), leaves = ls_ceil_div(count, leaf);
    int64_t micro = t->layout.micro_leaves;
    struct evaluation e = {.t = t,
                           .first = leaves * rank / dp * leaf,
                           .end = ls_min(leaves * (rank + 1) / dp * leaf, count),
                           .ids = t->eval_ids};
    int64_t buffer = micro * leaf * tokens;
    e.targets = e.ids + buffer;
    e.ids_held = e.targets + buffer;
    e.targets_held = e.ids_held + buffer;
    for (int64_t r = 0; r < dp; r++)
        e.rounds = ls_max(e.rounds, ls_ceil_div(leaves * (r + 1) / dp - leaves * r / dp, micro));
    for (int64_t round = 0; round < e.rounds && !status; round++) {
        ls_trace_set(t->trace, LS_TRACE_MICRO_BATCH, round);
        status = round_run(&e, round, error);
    }
    ls_trace_set(t->trace, LS_TRACE_MICRO_BATCH, -1);
    if (status)
        return status;
    /* Of the ranks that saw the same samples, one counts. */
    if (!t->part.head || ls_comm_rank(t->groups.tp) > 0 || ls_comm_rank(t->groups.cp) > 0)
        e.sum = (struct eval_sum){0};
    status = ls_all_reduce_exact(t->world, &e.sum.loss, error);
    uint64_t counts[3] = {e.sum.sequences, e.sum.tokens, e.sum.bytes};
    if (!status)
        status = ls_all_reduce_u64(t->world, counts, 3, error);
    e.sum.sequences = counts[0];
    e.sum.tokens = counts[1];
    e.sum.bytes = counts[2];
    eval_report_of(&e.sum, report);
    return status;
}
