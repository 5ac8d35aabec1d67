/* What workers tell of their steps, and what the run reports of them. */
#include "train/parameter_server.h"

#include <string.h>

void workers_note(const struct ls_trainer *t, const struct ls_step_report *r, double *note)
{
    int64_t tokens = r->sequences * t->config.data.sequence;
    double counted = (double)(r->counted ? r->counted : tokens);
    note[NOTE_LOSS] = (double)r->loss * r->weight;
    note[NOTE_WEIGHT] = r->weight;
    note[NOTE_COUNTED] = counted;
    note[NOTE_NORM] = r->grad_norm;
    note[NOTE_SKIPPED] = r->skipped;
    note[NOTE_STEP_S] = r->step_s;
    note[NOTE_DATA_S] = r->data_wait_s;
    memcpy(note + NOTE_WAIT_S, r->wait_s, sizeof r->wait_s);
    note[NOTE_OPTIMIZER_S] = r->optimizer_s;
    note[NOTE_SEQUENCES] = (double)r->sequences;
    note[NOTE_LOSS_SCALE] = r->loss_scale;
    for (int i = 0; i < t->sources && r->source_losses; i++) {
        double of = r->source_weights ? r->source_weights[i] : (double)r->source_counted[i];
        note[NOTES + 2 * i] = of != 0 ? (double)r->source_losses[i] * of : 0;
        note[NOTES + 2 * i + 1] = of;
    }
}

const double *reports_note(const struct workers *w, int worker, int64_t step)
{
    int64_t group = worker / w->each, own = worker % w->each;
    return w->notes + (size_t)((group * w->interval + step) * w->each + own) * w->note_size;
}

/* The loss of a source: the mean over its tokens; NAN if there are none. */
static float source_loss(const struct workers *w, int source, int64_t step)
{
    double loss = 0, counted = 0;
    for (int i = 0; i < w->count; i++) {
        const double *note = reports_note(w, i, step) + NOTES + 2 * (size_t)source;
        loss += note[0];
        counted += note[1];
    }
    return (float)(loss / counted);
}

/* Targets of batches of the data. */
static bool have_weights(const struct ls_trainer *t)
{
    bool any = false;
    for (int i = 0; i < t->data.count; i++)
        any |= ls_token_store_weighted(t->data.stores[i]);
    return any;
}

/* Parts of step_s, of sums over so many groups; one has its workers' steps one after the other. */
static void times_set(struct ls_step_report *r, const double *sum, int groups)
{
    r->data_wait_s = sum[NOTE_DATA_S] / groups;
    r->comm_wait_s = 0;
    for (int a = 0; a < LS_ACCOUNTS; a++) {
        r->wait_s[a] = sum[NOTE_WAIT_S + a] / groups;
        r->comm_wait_s += a == LS_ACCOUNT_OTHER ? 0 : r->wait_s[a];
    }
}

/* The mean over workers: values are added by their index, and divided once. The step takes the same
 * number of sequences of each, from the sample `first` on; those of a worker that was lost too,
 * which nobody takes again. */
static void report_join(struct ls_trainer *t, int64_t step, int64_t first)
{
    struct workers *w = t->workers;
    struct ls_step_report *r = &w->reports[step];
    float *losses = w->source_losses + step * t->sources;
    double sum[NOTES] = {0}, slowest = 0, group_s = 0;
    int groups = 0; /* in which a worker took part */
    for (int i = 0; i < w->count; i++) {
        const double *note = reports_note(w, i, step);
        for (int k = 0; k < NOTES; k++)
            sum[k] += note[k];
        group_s = (i % w->each ? group_s : 0) + note[NOTE_STEP_S];
        slowest = group_s > slowest ? group_s : slowest;
        groups += i % w->each == w->each - 1 && group_s > 0;
    }
    for (int i = 0; i < t->sources; i++)
        losses[i] = source_loss(w, i, step);
    *r = (struct ls_step_report){.step = w->begin + 1 + step,
                                 .sequences = (int64_t)sum[NOTE_SEQUENCES] / w->members * w->places,
                                 .loss_scale = sum[NOTE_LOSS_SCALE] / w->members};
    r->lr = ls_learning_rate(&t->units->optimizer.config, r->step);
    r->samples = first + r->sequences;
    r->tokens = r->samples * t->config.data.sequence;
    int64_t tokens = r->sequences * t->config.data.sequence;
    r->loss = (float)(sum[NOTE_LOSS] / sum[NOTE_WEIGHT]);
    memcpy(&r->loss_bits, &r->loss, sizeof r->loss_bits);
    r->counted = sum[NOTE_COUNTED] < (double)tokens ? (int64_t)sum[NOTE_COUNTED] : 0;
    r->weight = sum[NOTE_WEIGHT];
    r->weighted = have_weights(t);
    r->source_losses = t->sources > 1 && t->data.blend ? losses : NULL;
    r->grad_norm = sum[NOTE_NORM] / w->members;
    r->skipped = sum[NOTE_SKIPPED] > 0;
    r->step_s = slowest;
    r->tokens_per_s = sum[NOTE_SEQUENCES] * (double)t->config.data.sequence / slowest;
    r->peak_share = step_peak_share(t, r->tokens_per_s);
    groups = ls_max(groups, 1);
    times_set(r, sum, groups);
    r->optimizer_s = sum[NOTE_OPTIMIZER_S] / groups;
    step_ledger(t, first, r);
}

/* All workers have done the steps of the interval, also those that took no part in it: where they
 * come again is where the others are. */
static void counters_set(struct ls_trainer *t, int64_t samples)
{
    struct workers *w = t->workers;
    struct ls_state *outer = workers_outer(t);
    outer->step = w->begin + w->interval;
    for (int k = 0; k < w->each; k++) {
        t->units[k].step = outer->step;
        t->units[k].samples = w->start + (samples - w->base) / w->places;
    }
    outer->samples = samples;
}

int reports_gather(struct ls_trainer *t, struct ls_error *error)
{
    struct workers *w = t->workers;
    int64_t words = w->interval * w->each * (int64_t)w->note_size;
    int status = ls_all_gather(w->across, w->mine, w->notes, words, LS_U64, error);
    return status ? status
                  : ls_all_gather(w->across, &w->exchange.wait_s, w->waits, 1, LS_U64, error);
}

void reports_make(struct ls_trainer *t)
{
    struct workers *w = t->workers;
    int64_t samples = w->base;
    for (int64_t step = 0; step < w->interval; step++) {
        report_join(t, step, samples);
        samples = w->reports[step].samples;
    }
    counters_set(t, samples);
    w->reports[w->interval - 1].outer = (struct ls_outer_report){.step = w->begin / w->interval + 1,
                                                                 .fragment = workers_fragment(w),
                                                                 .norm = w->outer_norm,
                                                                 .groups = w->groups,
                                                                 .members = w->members,
                                                                 .wait_s = w->waits};
}

/* A step is the push of one worker, which alone has something to report. */
static void report_push(struct ls_trainer *t, int64_t step)
{
    struct workers *w = t->workers;
    struct ls_step_report *r = &w->reports[step];
    const double *note = w->notes + (size_t)step * w->note_size;
    int64_t batch = t->config.batch.global, tokens = batch * t->config.data.sequence;
    r->samples = r->step * batch;
    r->sequences = batch;
    r->tokens = r->samples * t->config.data.sequence;
    r->loss = (float)note[NOTE_GRADIENT_LOSS];
    memcpy(&r->loss_bits, &r->loss, sizeof r->loss_bits);
    r->counted = note[NOTE_COUNTED] < (double)tokens ? (int64_t)note[NOTE_COUNTED] : 0;
    r->weight = note[NOTE_WEIGHT];
    r->weighted = have_weights(t);
    for (int i = 0; i < t->sources; i++)
        w->source_losses[step * t->sources + i] =
            (float)(note[NOTES + 2 * i] / note[NOTES + 2 * i + 1]);
    r->source_losses =
        t->sources > 1 && t->data.blend ? w->source_losses + step * t->sources : NULL;
    r->grad_norm = note[NOTE_GRADIENT_NORM];
    r->loss_scale = note[NOTE_LOSS_SCALE];
    r->step_s = note[NOTE_STEP_S] + r->optimizer_s;           /* of this push */
    r->tokens_per_s = (double)tokens / r->step_s * w->groups; /* all as busy as this one */
    r->peak_share = step_peak_share(t, r->tokens_per_s);
    times_set(r, note, 1);
    step_ledger(t, r->push.ticket * batch, r);
}

void reports_pushes(struct ls_trainer *t)
{
    struct workers *w = t->workers;
    for (int64_t step = 0; step < w->interval; step++)
        report_push(t, step);
    w->reports[w->interval - 1].outer =
        (struct ls_outer_report){.groups = w->all, .wait_s = w->waits};
}
