/* One optimizer step. ls_trainer_step reads as the sentence at the top of lockstep/train.h; how its
 * parts are cut over ranks and micro-batches is in the functions above it and in stage.c. */
#include "train/workers.h"

#include <lockstep/base/words.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS_AHEAD = 4 }; /* whose data is fetched from elsewhere */

/* ---- disks ----------------------------------------------------------------------------------- */

/* A disk may fail one rank alone, while others wait for what it sends: it goes on, with whatever
 * came, to where all agree on it (tiers_agree). Nothing is updated before. */
static void tiers_hold(const struct ls_trainer *t, bool held)
{
    for (int kind = LS_TIER_HOST; kind < LS_TIER_KINDS; kind++)
        if (t->memory.tiers[kind])
            ls_tier_hold(t->memory.tiers[kind], held);
}

static bool has_tiers(const struct ls_trainer *t)
{
    bool has = false;
    for (int what = 0; what < LS_OFFLOADS; what++)
        has |= ls_config_tier(&t->config, (enum ls_offload)what) != LS_TIER_DEVICE;
    return has;
}

/* Collective. What failed on any rank, with the rank and the file, on all; status: what else this
 * one has. */
static int tiers_agree(const struct ls_trainer *t, int status, struct ls_error *error)
{
    if (!has_tiers(t))
        return status;
    tiers_hold(t, false);
    for (int kind = LS_TIER_HOST; kind < LS_TIER_KINDS && !status; kind++)
        if (t->memory.tiers[kind])
            status = ls_tier_failure(t->memory.tiers[kind], error);
    return ls_comm_agree(t->world, status, error);
}

/* ---- samples --------------------------------------------------------------------------------- */

static struct ls_dp_share share_of(const struct ls_trainer *t, int64_t samples)
{
    struct ls_dp_share share;
    ls_layout_share(&t->layout, ls_ramp_at(&t->layout.ramp, samples), t->coordinates, &share);
    return share;
}

/* Where a step begins: what the state has consumed, which says how large its batch is, and the
 * batch's first sample in the order of the run. Without workers they are one number. */
struct cursor {
    int64_t samples;
    int worker; /* of those that this rank computes */
};

static struct cursor cursor_of(const struct ls_trainer *t)
{
    return (struct cursor){t->state->samples, (int)(t->state - t->units)};
}

/* Of the step after the one of `batch` sequences; false: it is not known yet. */
static bool cursor_next(const struct ls_trainer *t, int64_t batch, struct cursor *next)
{
    *next = cursor_of(t);
    next->samples += batch;
    return !t->workers || workers_next(t, &next->worker, &next->samples);
}

static int64_t place_of_batch(const struct ls_trainer *t, struct cursor at, int64_t batch)
{
    return t->workers ? workers_place(t->workers, at.worker, at.samples, batch) : at.samples;
}

/* This rank's runs of the step that begins there; *all: the batch. */
static int64_t runs_of(struct ls_trainer *t, struct cursor at, struct ls_sample_run *all)
{
    struct ls_dp_share share = share_of(t, at.samples);
    int64_t count = share.leaves * share.leaf, first = place_of_batch(t, at, count);
    for (int64_t m = 0; m < share.micro_batches; m++) {
        struct ls_dp_micro micro = ls_dp_micro_batch(&share, m);
        t->runs[m] = (struct ls_sample_run){first + micro.first, micro.count};
    }
    *all = (struct ls_sample_run){first, count};
    return share.micro_batches;
}

/* Asks the loader for the samples of the step that begins there: micro-batch by micro-batch,
 * wherever in the batch each lies and however many it has. */
static int batch_post(struct ls_trainer *t, struct cursor at, struct ls_error *error)
{
    struct ls_sample_run all;
    int64_t count = runs_of(t, at, &all);
    int status = ls_loader_post_runs(t->loader, t->runs, count, all);
    return status ? ls_error_set(error, status,
                                 "the loader refused the request for this step's samples")
                  : LS_OK;
}

/* The steps from the one on that begins there: what of them lies elsewhere is fetched meanwhile. */
static void batches_prefetch(struct ls_trainer *t, struct cursor at)
{
    if (at.worker != (int)(t->state - t->units))
        t->ahead = 0;
    for (int i = 0; i < STEPS_AHEAD; i++) {
        struct ls_sample_run all;
        int64_t count = runs_of(t, at, &all);
        if (at.samples >= t->ahead)
            ls_loader_prefetch(t->loader, t->runs, count);
        at.samples += all.count;
    }
    t->ahead = at.samples;
}

/* Sequences of the whole batch. */
static int64_t sequences_of(const struct train_batch *batch)
{
    return batch->share.leaves * batch->share.leaf;
}

/* The mean loss of no target is none. */
static int batch_admit(const struct ls_trainer *t, const struct train_batch *batch,
                       struct ls_error *error)
{
    long long first = batch->first, last = first + sequences_of(batch) - 1;
    if (stage_divides(batch->divisor))
        return LS_OK;
    int status =
        batch->counted
            ? ls_error_set(error, LS_EDATA,
                           "step %lld: the weights of the batch's targets, of samples %lld to %lld "
                           "of the run, sum up to %g, and the loss is divided by their sum. Use "
                           "other weights, or a larger batch.global",
                           (long long)batch->step, first, last, batch->divisor)
            : ls_error_set(error, LS_EDATA,
                           "step %lld: no token of the batch counts: samples %lld to %lld of "
                           "the run contain only prompts, no target tokens. Use a larger "
                           "batch.global or data.sequence, or shorter prompts",
                           (long long)batch->step, first, last);
    ls_config_blame(&t->config, ls_config_data_key(&t->config), error);
    return status;
}

/* Collective over dp. Each rank knows the weights of its own samples; their sum is exact, so it is
 * the same whoever has which. */
static int weights_sum(struct ls_trainer *t, struct train_batch *batch, struct ls_error *error)
{
    const struct ls_exact_sum *own = ls_loader_weight_sums(t->loader);
    struct ls_exact_sum all;
    int status = LS_OK;
    ls_exact_clear(&all);
    for (int i = 0; i < t->sources && !status; i++) {
        struct ls_exact_sum sum = own[i];
        status = ls_all_reduce_exact(t->groups[LS_GROUP_DP], &sum, error);
        t->source_weights[i] = ls_exact_value(&sum);
        ls_exact_merge(&all, &sum);
    }
    batch->source_weights = t->source_weights;
    batch->divisor = ls_exact_value(&all);
    return status;
}

/* The samples of the next step are asked for while this one computes. */
static int next_post(struct ls_trainer *t, int64_t batch, struct ls_error *error)
{
    struct cursor next;
    if (!cursor_next(t, batch, &next))
        return LS_OK;
    int status = batch_post(t, next, error);
    t->posted = status == LS_OK;
    if (!status)
        batches_prefetch(t, next);
    return status;
}

/* The samples that were asked for are not those of the step after a batch that was given. What came
 * of the request matters to nobody. */
static void posted_drop(struct ls_trainer *t)
{
    const int32_t *inputs, *targets;
    if (t->posted)
        ls_loader_take(t->loader, &inputs, &targets, NULL, NULL);
    t->posted = false;
}

int64_t step_sequences(const struct ls_trainer *t)
{
    return ls_ramp_at(&t->layout.ramp, t->state->samples) * t->layout.numerics.leaf_sequences;
}

/* Of idle steps nobody reads the tokens, but the host where documents start: a sequence is one. */
static int batch_idle(struct ls_trainer *t, struct train_batch *batch, struct ls_error *error)
{
    int64_t count = batch->share.count * batch->share.leaf * t->config.data.sequence;
    int status = LS_OK;
    batch->inputs = batch->targets = (const int32_t *)t->memory.arena.base;
    if (t->config.data.packing != LS_CONFIG_STREAM) {
        free(t->idle_starts);
        batch->starts = t->idle_starts = calloc((size_t)count, sizeof *t->idle_starts);
        if (!batch->starts)
            status = ls_no_memory(error, "for %lld documents", (long long)count);
    }
    return ls_comm_agree(t->world, status, error);
}

static int batch_load(struct ls_trainer *t, bool given, struct train_batch *batch, double *wait_s,
                      struct ls_error *error)
{
    *batch = (struct train_batch){.step = t->state->step + 1, .given = given};
    batch->loss_scale = t->state->loss_scale.scale;
    batch->share = share_of(t, t->state->samples);
    batch->first = place_of_batch(t, cursor_of(t), sequences_of(batch));
    batch->shift = t->workers ? workers_shift(t->workers, sequences_of(batch)) : 0;
    batch->counted = sequences_of(batch) * t->config.data.sequence;
    batch->divisor = (double)batch->counted;
    if (t->ops.idle)
        return batch_idle(t, batch, error);
    if (given) {
        posted_drop(t);
        given_take(t, batch);
        return LS_OK;
    }
    int status = t->posted ? LS_OK : batch_post(t, cursor_of(t), error);
    t->ahead = t->posted ? t->ahead : 0;
    t->posted = false;
    if (!status)
        status = next_post(t, sequences_of(batch), error);
    ls_trace_begin(t->trace, "wait for samples", "data");
    if (!status)
        status = ls_loader_take(t->loader, &batch->inputs, &batch->targets, wait_s, error);
    ls_trace_end(t->trace);
    if (status == LS_ESTOPPED)
        ls_error_prefix(error, "stopped while step %lld waited for its samples",
                        (long long)batch->step);
    if (!status) {
        batch->source_counted = ls_loader_counted(t->loader);
        batch->counted = 0;
        for (int i = 0; i < t->sources; i++)
            batch->counted += batch->source_counted[i];
        batch->divisor = (double)batch->counted;
        batch->starts = ls_loader_starts(t->loader);
        batch->weights = ls_loader_weights(t->loader);
    }
    status = ls_comm_agree(t->world, status, error);
    if (!status && batch->weights)
        status = weights_sum(t, batch, error);
    return status ? status : batch_admit(t, batch, error);
}

/* ---- the gradient ---------------------------------------------------------------------------- */

static void loss_label(struct ls_trainer *t, const char *label)
{
    static const enum ls_layout_group groups[] = {LS_GROUP_CP, LS_GROUP_DP, LS_GROUP_DP_SHARD,
                                                  LS_GROUP_DP_REPLICATE, LS_GROUP_PP};
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
        ls_comm_label(t->groups[groups[i]], label);
}

/* Where this rank's sequence i lies in the batch. */
static int64_t place_of(const struct ls_dp_share *share, const struct ls_dp_cut *cut, int64_t i)
{
    int64_t own = i / share->leaf;
    int64_t leaf = cut->in_turn ? own * cut->ranks + cut->rank : cut->rank * share->count + own;
    return leaf * share->leaf + i % share->leaf;
}

/* Of the batch's losses those of one source, in their order: the tree over them. */
static float source_loss(struct ls_trainer *t, const struct train_batch *batch, int source,
                         float *scratch)
{
    int64_t all = sequences_of(batch), count = 0;
    for (int64_t i = 0; i < all; i++)
        if (ls_blend_source_at(t->data.blend, batch->first + i) == source)
            scratch[count++] = t->losses[i];
    return count > 0 ? ls_tree_sum(scratch, count) : 0;
}

/* What the losses of a source are divided by. */
static double source_divisor(const struct train_batch *batch, int source)
{
    return batch->source_weights ? batch->source_weights[source]
                                 : (double)batch->source_counted[source];
}

/* The batch's mean loss: the tree over its sequences. A sequence's parts meet over cp, sequences
 * over dp; the last stage then tells the others. With several sources so does each one's sum. */
static int loss_reduce(struct ls_trainer *t, const struct train_batch *batch, float *loss,
                       struct ls_error *error)
{
    const struct ls_dp_share *share = &batch->share;
    int64_t own = share->count * share->leaf, all = sequences_of(batch);
    float *sums = t->loss_sums, *gathered = t->losses + all;
    int sources = batch->given ? 1 : t->sources;
    bool parted = sources > 1 && t->data.blend;
    int status = LS_OK;
    loss_label(t, "loss");
    if (t->part.head) {
        status = ls_all_reduce(t->groups[LS_GROUP_CP], t->losses, own, error);
        if (!status)
            status = ls_all_gather(t->groups[LS_GROUP_DP], t->losses, gathered, own, LS_F32, error);
        for (int64_t i = 0; i < all; i++) {
            struct ls_dp_cut cut = {share->cut.ranks, i / own, share->cut.in_turn};
            t->losses[place_of(share, &cut, i % own)] = gathered[i];
        }
        sums[0] = ls_tree_sum(t->losses, all);
        for (int i = 0; i < sources && parted; i++)
            sums[1 + i] = source_loss(t, batch, i, gathered);
    }
    if (!status)
        status = ls_broadcast(t->groups[LS_GROUP_PP], sums, sources > 1 ? 1 + sources : 1, LS_F32,
                              ls_layout_head_rank(&t->layout), error);
    loss_label(t, NULL);
    *loss = (float)((double)sums[0] / batch->divisor);
    for (int i = 0; i < sources && parted; i++) /* NAN: nothing of it counts */
        sums[1 + i] = (float)((double)sums[1 + i] / source_divisor(batch, i));
    return status;
}

/* The squares of what this rank holds, and the one place in a step where the host waits for the
 * device. */
static int gradient_square(struct ls_trainer *t, struct ls_error *error)
{
    int status = ls_state_square(t->state, error);
    if (!status)
        status = ls_queue_synchronise(&t->ops.queue, error);
    return tiers_agree(t, status, error);
}

/* The global norm: squares are added exactly, so that it does not matter who holds what. */
static int gradient_norm(struct ls_trainer *t, struct train_gradient *gradient,
                         struct ls_error *error)
{
    int status = ls_state_norm(t->state, &gradient->norm, error);
    gradient->norm /= gradient->scale;
    return status;
}

/* What the host needs to know of a gradient before it updates with it: the losses, which each
 * forward left in t->losses, and the norm. */
static int gradient_judge(struct ls_trainer *t, const struct train_batch *batch,
                          struct train_gradient *gradient, struct ls_error *error)
{
    int status = gradient_square(t, error);
    if (!status)
        status = loss_reduce(t, batch, &gradient->loss, error);
    return status ? status : gradient_norm(t, gradient, error);
}

/* The caller may have written to it since. */
static int gradient_judge_again(struct ls_trainer *t, struct train_gradient *gradient,
                                struct ls_error *error)
{
    enum ls_work_pass before = stage_pass_begin(t, LS_WORK_PASS_REDUCE);
    tiers_hold(t, true);
    int status = gradient_square(t, error);
    if (!status)
        status = gradient_norm(t, gradient, error);
    stage_pass_end(t, before);
    return status;
}

/* Forward and backward of all micro-batches in the order of the pipeline's table, whose gradients
 * leave as they become final; what is still under way arrives. */
static int gradient_compute(struct ls_trainer *t, const struct train_batch *batch,
                            struct train_gradient *gradient, struct ls_error *error)
{
    tiers_hold(t, true);
    int status = stage_pipeline_run(t, batch, error);
    if (status)
        return status;
    enum ls_work_pass before = stage_pass_begin(t, LS_WORK_PASS_REDUCE);
    status = ls_state_gradient(t->state, error);
    gradient->scale = t->gradient_scale = batch->loss_scale;
    gradient->weighted = batch->weights != NULL;
    if (!status)
        status = gradient_judge(t, batch, gradient, error);
    if (!status)
        status = digests_finish(t, error);
    if (!status && batch->given)
        status = given_answer(t, batch, error);
    stage_pass_end(t, before);
    return status;
}

/* ---- the update ------------------------------------------------------------------------------ */

/* The first parameter of this rank whose gradient is not finite. */
struct nonfinite {
    struct ls_queue *queue;
    const struct ls_slice *slices;
    const float *gradient;
    int first;
};

static int piece_finite(void *user, int i, int64_t from, int64_t count, const float *values,
                        struct ls_error *error)
{
    struct nonfinite *n = user;
    int64_t second = n->slices[i].part->second;
    int status = ls_queue_synchronise(n->queue, error);
    for (int64_t k = 0; k < count && i < n->first && !status; k++)
        if (!isfinite(values[k]) || (second >= 0 && !isfinite(n->gradient[second + from + k])))
            n->first = i;
    return status;
}

/* Its index, -1: there is none. */
static int nonfinite_here(struct ls_trainer *t)
{
    const struct ls_state *state = t->state;
    struct nonfinite n = {&t->ops.queue, state->slices, state->gradient, t->params.count};
    ls_slices_visit_gradient(&state->optimizer, state->slices, t->params.count, state->gradient,
                             piece_finite, &n, NULL);
    return n.first < t->params.count ? n.first : -1;
}

/* Collective. The same of all ranks, by the order of layers; "" if there is none. */
static int nonfinite_name(struct ls_trainer *t, char name[LS_PARAM_NAME_MAX + 1],
                          struct ls_error *error)
{
    enum { NONE = -(1 << 30) };
    int i = nonfinite_here(t);
    const struct ls_param *param = i < 0 ? NULL : &t->params.list[i];
    const struct ls_unit *unit = param ? &t->params.units[param->unit] : NULL;
    int64_t mine = unit ? -(unit->layer * (int64_t)4096 + i - unit->first_param) : NONE;
    int64_t first = mine, rank;
    snprintf(name, LS_PARAM_NAME_MAX + 1, "%s", param ? param->name : "");
    int status = ls_all_reduce_max(t->world, &first, error);
    rank = mine == first ? ls_comm_rank(t->world) : -1;
    if (!status)
        status = ls_all_reduce_max(t->world, &rank, error);
    return status ? status
                  : ls_broadcast(t->world, name, LS_PARAM_NAME_MAX + 1, LS_U8, (int)rank, error);
}

/* Collective. Says what is not finite, and what to do. */
static int nonfinite_refuse(struct ls_trainer *t, const struct train_gradient *gradient,
                            struct ls_error *error)
{
    char good[LS_CONFIG_TEXT_BYTES + 128], scale[96] = "", name[LS_PARAM_NAME_MAX + 1];
    const char *weights =
        gradient->weighted ? "; use smaller weights of the targets, if they are large" : "";
    int status = nonfinite_name(t, name, error);
    if (status)
        return status;
    const char *elsewhere = trainer_newest_elsewhere(t);
    if (t->state->saved_step < 0)
        snprintf(good, sizeof good, "There is no checkpoint yet");
    else if (elsewhere)
        snprintf(good, sizeof good, "The last good checkpoint is %s", elsewhere);
    else
        snprintf(good, sizeof good, "The last good checkpoint is %s/checkpoints/step-%08ld",
                 t->config.train.out, (long)t->state->saved_step);
    if (t->config.numerics.precision == LS_F16)
        snprintf(scale, sizeof scale, " at a loss scale of %g%s", gradient->scale,
                 t->loss_scale.dynamic ? ", which is numerics.min_loss_scale" : "");
    return ls_error_set(
        error, LS_ENUMERIC,
        "step %ld: the loss is %g and the gradient norm %g%s%s%s; nothing was updated. %s; lower "
        "optim.lr, or set train.on_nonfinite=skip to skip such steps%s",
        (long)t->state->step + 1, ls_shown((double)gradient->loss), ls_shown(gradient->norm), scale,
        *name ? "; the first gradient that is not finite is that of " : "", name, good, weights);
}

/* What this rank has waited for others' parts of matrices so far. */
static double matrices_wait_s(const struct ls_trainer *t)
{
    struct ls_comm_stats stats;
    ls_comm_get_stats(t->groups[LS_GROUP_MATRICES], &stats);
    return stats.wait_s;
}

bool step_loss_scale(const struct ls_trainer *t, struct ls_state *unit, double scale, bool finite)
{
    if (!finite && scale > unit->loss_scale.scale)
        return true;
    return ls_loss_scale_update(&t->loss_scale, finite, &unit->loss_scale);
}

int step_update(struct ls_trainer *t, const struct train_gradient *gradient, bool shares,
                struct ls_step_report *report, struct ls_error *error)
{
    bool finite = isfinite(gradient->loss) && isfinite(gradient->norm);
    bool goes_on = step_loss_scale(t, t->state, gradient->scale, finite);
    report->skipped = !finite;
    if (!goes_on && t->config.train.on_nonfinite == LS_CONFIG_STOP)
        return nonfinite_refuse(t, gradient, error);
    if (!finite)
        return LS_OK;
    double clip = (double)ls_clip_factor(&t->state->optimizer.config, gradient->norm);
    double start_s = ls_now_s() - matrices_wait_s(t);
    enum ls_work_pass before = stage_pass_begin(t, LS_WORK_PASS_UPDATE);
    int64_t seen = t->workers ? workers_joined(t->workers) : 0;
    int status = ls_state_update(t->state, report->step - seen, report->lr,
                                 (float)(clip / gradient->scale), error);
    report->optimizer_s = ls_now_s() - matrices_wait_s(t) - start_s;
    status = tiers_agree(t, status, error);
    if (!status && shares) {
        tiers_hold(t, true);
        status = ls_state_share(t->state, error);
    }
    if (!status)
        status = tiers_agree(t, status, error);
    stage_pass_end(t, before);
    return status;
}

/* ---- the step -------------------------------------------------------------------------------- */

/* Adds sign times what this rank has waited for others so far. */
static void waits_add(const struct ls_trainer *t, double sign, double wait_s[LS_ACCOUNTS])
{
    struct ls_comm_stats stats[LS_GROUPS];
    ls_trainer_stats(t, stats);
    for (int g = 0; g < LS_GROUPS; g++) {
        enum ls_account account = ls_account_of(&t->layout, (enum ls_layout_group)g);
        if (ls_account_used(&t->layout, account)) /* what is done alone is computing */
            wait_s[account] += sign * stats[g].wait_s;
    }
}

/* Adds sign times what moved to and from this rank's tiers so far. */
static void tiers_add(const struct ls_trainer *t, double sign, struct ls_step_report *report)
{
    for (int kind = LS_TIER_HOST; kind < LS_TIER_KINDS; kind++) {
        if (!t->memory.tiers[kind])
            continue;
        struct ls_tier_counts counts = ls_tier_get_counts(t->memory.tiers[kind]);
        report->offload_bytes += sign * (double)(counts.read_bytes + counts.written_bytes);
        report->offload_busy_s += sign * counts.busy_s;
        report->offload_wait_s += sign * counts.wait_s;
    }
}

/* A product that was measured while others used the machine is no bound: a step that is faster than
 * it shows that more is possible, and is what later ones are shares of. */
double step_peak_share(struct ls_trainer *t, double tokens_per_s)
{
    double flops_per_s =
        ls_model_flops_per_token(&t->config.model, t->config.data.sequence) * tokens_per_s;
    if (t->peak_flops <= 0 || !isfinite(flops_per_s))
        return 0;
    t->peak_flops = fmax(t->peak_flops, flops_per_s);
    return flops_per_s / t->peak_flops;
}

void step_ledger(const struct ls_trainer *t, int64_t first, struct ls_step_report *report)
{
    struct ls_digest digest = {0, 0};
    if (!t->data.blend || ls_comm_rank(t->whole) != 0)
        return;
    ls_blend_ledger(t->data.blend, first, report->sequences, &digest);
    ls_digest_hex(&digest, report->ledger);
}

void step_report(struct ls_trainer *t, const struct train_batch *batch,
                 const struct train_gradient *gradient, struct ls_step_report *report)
{
    double tokens = (double)sequences_of(batch) * (double)t->config.data.sequence;
    report->loss = gradient->loss;
    report->grad_norm = gradient->norm;
    report->loss_scale = gradient->scale;
    report->source_losses = batch->source_counted && t->sources > 1 ? t->loss_sums + 1 : NULL;
    report->samples = t->state->samples;
    report->sequences = sequences_of(batch);
    report->given = batch->given;
    if (!t->workers && !batch->given)
        step_ledger(t, batch->first, report);
    report->source_counted = batch->source_counted;
    report->source_weights = batch->source_weights;
    report->counted = batch->counted < (int64_t)tokens ? batch->counted : 0;
    report->weight = batch->divisor;
    report->weighted = batch->weights && !batch->sum;
    report->tokens = t->state->samples * t->config.data.sequence;
    waits_add(t, 1, report->wait_s);
    tiers_add(t, 1, report);
    report->comm_wait_s = 0;
    for (int a = 0; a < LS_ACCOUNT_OTHER; a++)
        report->comm_wait_s += report->wait_s[a];
    memcpy(report->work_s, t->times.work_s, sizeof report->work_s);
    memcpy(report->works, t->times.works, sizeof report->works);
    report->step_s = ls_now_s() - gradient->start_s;
    report->tokens_per_s = tokens / report->step_s;
    report->peak_share = t->workers ? 0 : step_peak_share(t, report->tokens_per_s);
    memcpy(&report->loss_bits, &report->loss, sizeof report->loss_bits);
}

int step_gradient(struct ls_trainer *t, bool given, struct train_batch *batch,
                  struct train_gradient *gradient, struct ls_step_report *report,
                  struct ls_error *error)
{
    *report = (struct ls_step_report){.step = t->state->step + 1};
    report->lr = ls_learning_rate(&t->state->optimizer.config, report->step);
    gradient->start_s = ls_now_s();
    waits_add(t, -1, report->wait_s);
    tiers_add(t, -1, report);
    digests_begin(t->digests);
    work_times_clear(&t->times);
    int status = batch_load(t, given, batch, &report->data_wait_s, error);
    return status ? status : gradient_compute(t, batch, gradient, error);
}

/* The step is done. */
static void step_count(struct ls_trainer *t, const struct train_batch *batch)
{
    t->state->step = batch->step;
    t->state->samples += sequences_of(batch);
}

/* ---- a step in two parts --------------------------------------------------------------------- */

/* What lies between a backward and its update. */
struct step_waiting {
    struct train_batch batch;
    struct train_gradient gradient;
    struct ls_step_report report;
    int64_t changes; /* the trainer's, when the gradient was made */
};

static int waiting_begin(struct ls_trainer *t, struct ls_step_report *report,
                         struct ls_error *error)
{
    struct step_waiting *w = malloc(sizeof *w);
    int status = w ? LS_OK : ls_no_memory(error, "for a gradient that waits");
    status = ls_comm_agree(t->world, status, error);
    if (!status)
        status = step_gradient(t, true, &w->batch, &w->gradient, report, error);
    if (status) {
        free(w);
        return status;
    }
    step_report(t, &w->batch, &w->gradient, report);
    w->report = *report;
    w->changes = t->changes;
    t->waiting = w;
    return LS_OK;
}

/* The report goes on where the backward's ended: what was done in between is no part of it. */
static int waiting_end(struct ls_trainer *t, struct ls_step_report *report, struct ls_error *error)
{
    struct step_waiting *w = t->waiting;
    *report = w->report;
    w->gradient.start_s = ls_now_s() - report->step_s;
    memcpy(t->times.work_s, report->work_s, sizeof report->work_s);
    memcpy(t->times.works, report->works, sizeof report->works);
    waits_add(t, -1, report->wait_s);
    tiers_add(t, -1, report);
    int status = w->changes == t->changes ? LS_OK : gradient_judge_again(t, &w->gradient, error);
    if (!status)
        status = step_update(t, &w->gradient, true, report, error);
    if (!status) {
        step_count(t, &w->batch);
        step_report(t, &w->batch, &w->gradient, report);
    }
    ls_trainer_discard(t);
    return status;
}

void ls_trainer_discard(struct ls_trainer *t)
{
    free(t->waiting);
    t->waiting = NULL;
}

/* ---- the step -------------------------------------------------------------------------------- */

static int step_run(struct ls_trainer *t, bool given, struct ls_step_report *report,
                    struct ls_error *error)
{
    struct train_batch batch;
    struct train_gradient gradient;
    int status = step_gradient(t, given, &batch, &gradient, report, error);
    if (!status)
        status = step_update(t, &gradient, true, report, error);
    if (status)
        return status;
    step_count(t, &batch);
    step_report(t, &batch, &gradient, report);
    return LS_OK;
}

enum step_part { STEP_OF_DATA, STEP_GIVEN, STEP_BACKWARD, STEP_UPDATE };

static int part_run(struct ls_trainer *t, enum step_part part, struct ls_step_report *report,
                    struct ls_error *error)
{
    switch (part) {
    case STEP_BACKWARD:
        return waiting_begin(t, report, error);
    case STEP_UPDATE:
        return waiting_end(t, report, error);
    default:
        return step_run(t, part == STEP_GIVEN, report, error);
    }
}

static int part_traced(struct ls_trainer *t, enum step_part part, struct ls_step_report *report,
                       struct ls_error *error)
{
    const char *before = ls_trace_phase(t->trace, "train");
    ls_trace_set(t->trace, LS_TRACE_STEP, t->state->step + 1);
    ls_trace_begin(t->trace, "step", "step");
    int status = part_run(t, part, report, error);
    bool ends = !status || status == LS_ESTOPPED;
    t->failed = t->failed || !ends;
    if (!ends)
        return status; /* the trace shows a step that did not end */
    ls_trace_end(t->trace);
    ls_trace_phase(t->trace, before);
    return status;
}

int step_once(struct ls_trainer *t, struct ls_step_report *report, struct ls_error *error)
{
    return part_traced(t, STEP_OF_DATA, report, error);
}

/* A gradient that waits is used, or given up, before another is made. */
static int none_waits(const struct ls_trainer *t, struct ls_error *error)
{
    if (!t->waiting)
        return LS_OK;
    return ls_error_set(
        error, LS_EINVAL,
        "the gradient of step %lld waits for its update: expected the update, which "
        "takes that step, or discard, before another batch",
        (long long)t->state->step + 1);
}

int ls_trainer_step(struct ls_trainer *t, struct ls_step_report *report, struct ls_error *error)
{
    int status = none_waits(t, error);
    if (!status && !t->loader && !t->ops.idle)
        status = ls_config_require_data(&t->config, error);
    if (status)
        return status;
    return t->workers ? workers_step(t, report, error) : step_once(t, report, error);
}

static int given_run(struct ls_trainer *t, const struct ls_given_batch *batch, enum step_part part,
                     struct ls_step_report *report, struct ls_error *error)
{
    int status = none_waits(t, error);
    if (!status)
        status = given_admit(t, batch, error);
    return status ? status : part_traced(t, part, report, error);
}

int ls_trainer_step_on(struct ls_trainer *t, const struct ls_given_batch *batch,
                       struct ls_step_report *report, struct ls_error *error)
{
    return given_run(t, batch, STEP_GIVEN, report, error);
}

int ls_trainer_backward(struct ls_trainer *t, const struct ls_given_batch *batch,
                        struct ls_step_report *report, struct ls_error *error)
{
    return given_run(t, batch, STEP_BACKWARD, report, error);
}

int ls_trainer_update(struct ls_trainer *t, struct ls_step_report *report, struct ls_error *error)
{
    if (!t->waiting)
        return ls_error_set(error, LS_EINVAL,
                            "step %lld: no gradient waits: expected ls_trainer_backward first",
                            (long long)t->state->step + 1);
    return part_traced(t, STEP_UPDATE, report, error);
}
