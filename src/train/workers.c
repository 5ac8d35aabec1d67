/* Workers: who computes which, an interval of steps, and what is reported of it. */
#include "train/parameter_server.h"

#include <stdlib.h>
#include <string.h>

/* ---- units of state -------------------------------------------------------------------------- */

int units_count(const struct ls_config *config)
{
    return config->async.mode == LS_CONFIG_SYNC ? 1 : (int)ls_config_workers_each(config) + 1;
}

void units_init(struct ls_state *units, int count, const struct ls_state *borrowed,
                const struct ls_config *config, struct ls_optim_config *outer)
{
    for (int i = 0; i < count; i++)
        units[i] = *borrowed;
    if (count == 1)
        return;
    for (int i = 0; i < count - 1; i++)
        units[i].log = NULL; /* the last one tells for all */
    *outer = ls_config_outer_optim(config);
    bool server = config->async.mode == LS_CONFIG_SERVER;
    for (int i = 0; i < count - 1 && server; i++)
        units[i].optim = outer; /* workers of a server update nothing, and keep nothing for it */
    if (!server)
        units[count - 1].optim = outer;
}

/* ---- making and ending ----------------------------------------------------------------------- */

static int tables_open(struct ls_trainer *t, struct ls_error *error)
{
    struct workers *w = t->workers;
    size_t steps = (size_t)w->interval, sources = (size_t)ls_config_source_count(&t->config);
    w->note_size = NOTES + 2 * sources;
    w->mine = calloc(steps * (size_t)w->each * w->note_size, sizeof *w->mine);
    w->notes = calloc(steps * (size_t)w->count * w->note_size, sizeof *w->notes);
    w->waits = calloc((size_t)w->all, sizeof *w->waits);
    w->reports = calloc(steps, sizeof *w->reports);
    w->source_losses = calloc(steps * sources, sizeof *w->source_losses);
    w->config = malloc(sizeof *w->config);
    if (w->mine && w->notes && w->waits && w->reports && w->source_losses && w->config)
        return LS_OK;
    return ls_error_set(error, LS_ENOMEM, "no memory for the reports of %ld steps of workers",
                        (long)w->interval);
}

int workers_open(struct ls_trainer *t, struct ls_error *error)
{
    const struct ls_config *config = &t->config;
    if (config->async.mode == LS_CONFIG_SYNC)
        return LS_OK;
    struct workers *w = t->workers = calloc(1, sizeof *w);
    t->state = workers_outer(t);
    int status = w ? LS_OK : ls_error_set(error, LS_ENOMEM, "no memory for workers");
    int rank = ls_comm_rank(t->whole), ranks = (int)t->layout.ranks;
    if (w) {
        w->groups = (int)config->parallel.workers;
        w->group = rank / ranks;
        w->all = (int)ls_config_groups(config);
        w->owner = w->all > w->groups ? w->groups : 0;
        w->each = (int)ls_config_workers_each(config);
        w->held = w->group < w->groups ? w->each : 0;
        w->count = (int)ls_config_workers(config);
        w->fragments = (int)config->async.fragments;
        w->interval = ls_config_interval(config);
        w->delay = config->async.delay;
        w->hashed_step = -1;
        status = tables_open(t, error);
        if (!status && config->async.mode == LS_CONFIG_SERVER)
            status = server_open(t, error);
    }
    status = ls_comm_agree(t->whole, status, error);
    if (!status)
        status = ls_comm_split(t->whole, rank % ranks, w->group, &w->across, error);
    if (!status && w->all > 1)
        status = ls_comm_split(t->whole, w->group, rank % ranks, &w->own, error);
    if (status)
        return status;
    ls_comm_set_name(w->across, "workers");
    ls_comm_set_queue(w->across, &t->ops.queue);
    if (w->own) {
        ls_comm_set_name(w->own, "worker");
        t->world = w->own;
    }
    return LS_OK;
}

/* Which parameters of the whole model this rank has a part of, in which fragments. */
int workers_params(struct ls_trainer *t, struct ls_error *error)
{
    struct workers *w = t->workers;
    struct ls_params whole;
    int count = t->params.count, at = 0;
    int status = ls_params_init(&whole, &t->config.model, &t->numerics, NULL, error);
    if (status)
        return status;
    w->whole = whole.count;
    w->place = calloc((size_t)count + 1, sizeof *w->place);
    w->fragment = calloc((size_t)count + 1, sizeof *w->fragment);
    w->scales = calloc((size_t)whole.count + 1, sizeof *w->scales);
    if (!w->place || !w->fragment || !w->scales)
        status = ls_error_set(error, LS_ENOMEM, "no memory for the list of parameters");
    for (int i = 0; i < count && !status; i++) {
        /* In their order, but for a tied table, which the last stage has behind its layers. */
        int tried = 0;
        for (; tried < whole.count && strcmp(whole.list[at].name, t->params.list[i].name); tried++)
            at = (at + 1) % whole.count;
        LS_ASSERT(tried < whole.count);
        w->place[i] = at;
        w->fragment[i] =
            exchange_fragment(&t->params, (int)t->layout.model.layers, w->fragments, i);
    }
    ls_params_release(&whole);
    return status;
}

void workers_stop(struct ls_trainer *t)
{
    if (!t->workers)
        return;
    ls_comm_free(t->workers->across);
    t->workers->across = NULL;
}

void workers_close(struct ls_trainer *t)
{
    struct workers *w = t->workers;
    if (!w)
        return;
    ls_comm_free(w->own);
    server_close(w->server, NULL);
    free(w->place);
    free(w->fragment);
    free(w->scales);
    free(w->mine);
    free(w->notes);
    free(w->waits);
    free(w->reports);
    free(w->source_losses);
    free(w->config);
    free(w);
}

/* ---- whose turn it is ------------------------------------------------------------------------ */

int64_t workers_told(const struct workers *w)
{
    return w->told;
}

bool workers_next(const struct ls_trainer *t, int *worker, int64_t *samples)
{
    const struct workers *w = t->workers;
    if (w->server)
        return false;
    if (w->left > 1)
        return true;
    *worker = (w->worker + 1) % w->each;
    if (*worker > 0)
        *samples = w->phase;
    return true;
}

int64_t workers_place(const struct workers *w, int worker, int64_t samples, int64_t batch)
{
    int64_t index = (int64_t)w->group * w->each + worker;
    return w->server ? samples : samples * w->count + index * batch;
}

int64_t workers_shift(const struct workers *w, int64_t batch)
{
    return w->server ? 0 : ((int64_t)w->group * w->each + w->worker) * batch;
}

/* ---- notes and reports ----------------------------------------------------------------------- */

void workers_note(const struct ls_trainer *t, const struct ls_step_report *r, double *note)
{
    int64_t tokens = r->sequences * t->config.data.sequence;
    double counted = (double)(r->counted ? r->counted : tokens);
    note[NOTE_LOSS] = (double)r->loss * counted;
    note[NOTE_COUNTED] = counted;
    note[NOTE_NORM] = r->grad_norm;
    note[NOTE_SKIPPED] = r->skipped;
    note[NOTE_STEP_S] = r->step_s;
    note[NOTE_DATA_S] = r->data_wait_s;
    note[NOTE_COMM_S] = r->comm_wait_s;
    note[NOTE_OPTIMIZER_S] = r->optimizer_s;
    for (int i = 0; i < t->sources && r->source_losses; i++) {
        double of = (double)r->source_counted[i];
        note[NOTES + 2 * i] = of > 0 ? (double)r->source_losses[i] * of : 0;
        note[NOTES + 2 * i + 1] = of;
    }
}

/* The mean over workers: values are added by their index, and divided once. */
static void report_join(struct ls_trainer *t, int64_t step)
{
    struct workers *w = t->workers;
    struct ls_step_report *r = &w->reports[step];
    float *losses = w->source_losses + step * t->sources;
    double sum[NOTES] = {0}, slowest = 0;
    for (int g = 0; g < w->groups; g++) {
        double group_s = 0;
        for (int k = 0; k < w->each; k++) {
            const double *note =
                w->notes +
                ((size_t)((g * w->interval + step) * w->each) + (size_t)k) * w->note_size;
            for (int i = 0; i < NOTES; i++)
                sum[i] += note[i];
            group_s += note[NOTE_STEP_S];
        }
        slowest = group_s > slowest ? group_s : slowest;
    }
    for (int i = 0; i < t->sources; i++) {
        double loss = 0, counted = 0;
        for (int worker = 0; worker < w->count; worker++) {
            const double *note = w->notes +
                                 ((size_t)((worker / w->each * w->interval + step) * w->each) +
                                  (size_t)(worker % w->each)) *
                                     w->note_size +
                                 NOTES + 2 * i;
            loss += note[0];
            counted += note[1];
        }
        losses[i] = (float)(loss / counted); /* NAN: nothing of it counts */
    }
    r->samples *= w->count;
    r->sequences *= w->count;
    r->tokens = r->samples * t->config.data.sequence;
    int64_t tokens = r->sequences * t->config.data.sequence;
    r->loss = (float)(sum[NOTE_LOSS] / sum[NOTE_COUNTED]);
    memcpy(&r->loss_bits, &r->loss, sizeof r->loss_bits);
    r->counted = sum[NOTE_COUNTED] < (double)tokens ? (int64_t)sum[NOTE_COUNTED] : 0;
    r->source_losses = t->sources > 1 && t->data.blend ? losses : NULL;
    r->source_counted = NULL;
    r->grad_norm = sum[NOTE_NORM] / w->count;
    r->skipped = sum[NOTE_SKIPPED] > 0;
    r->step_s = slowest;
    r->tokens_per_s = (double)tokens / slowest;
    r->peak_share = step_peak_share(t, r->tokens_per_s);
    r->data_wait_s = sum[NOTE_DATA_S] / w->count;
    r->comm_wait_s = sum[NOTE_COMM_S] / w->count;
    r->optimizer_s = sum[NOTE_OPTIMIZER_S] / w->count;
    step_ledger(t, r->samples - r->sequences, r);
}

/* Collective over t->whole. */
static int reports_join(struct ls_trainer *t, struct ls_error *error)
{
    struct workers *w = t->workers;
    int64_t words = w->interval * w->each * (int64_t)w->note_size;
    int status = ls_all_gather(w->across, w->mine, w->notes, words, LS_U64, error);
    if (!status)
        status = ls_all_gather(w->across, &w->exchange.wait_s, w->waits, 1, LS_U64, error);
    for (int64_t step = 0; step < w->interval && !status; step++)
        report_join(t, step);
    if (status)
        return status;
    w->reports[w->interval - 1].outer = (struct ls_outer_report){.step = w->begin / w->interval + 1,
                                                                 .fragment = workers_fragment(w),
                                                                 .norm = w->outer_norm,
                                                                 .groups = w->groups,
                                                                 .wait_s = w->waits};
    return LS_OK;
}

/* ---- an interval ----------------------------------------------------------------------------- */

/* The workers of this group, each so many steps, which begin `done` steps into the interval. poll:
 * an exchange is under way. */
static int phase_run(struct ls_trainer *t, int64_t done, int64_t steps, bool poll,
                     struct ls_error *error)
{
    struct workers *w = t->workers;
    int status = LS_OK;
    w->phase = t->units->samples;
    for (w->worker = 0; w->worker < w->each && steps > 0 && !status; w->worker++) {
        t->state = &t->units[w->worker];
        for (w->left = steps; w->left > 0 && !status; w->left--) {
            int64_t step = done + steps - w->left;
            struct ls_step_report *report = &w->reports[step];
            status = step_once(t, report, error);
            if (!status)
                workers_note(t, report,
                             w->mine + (size_t)(step * w->each + w->worker) * w->note_size);
            if (!status && poll)
                status = exchange_poll(t, error);
        }
        if (!status)
            status = ls_state_settle(t->state, error);
    }
    return status;
}

/* A step is the push of one worker, which alone has something to report. */
static void push_report(struct ls_trainer *t, int64_t step)
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
    for (int i = 0; i < t->sources; i++)
        w->source_losses[step * t->sources + i] =
            (float)(note[NOTES + 2 * i] / note[NOTES + 2 * i + 1]);
    r->source_losses =
        t->sources > 1 && t->data.blend ? w->source_losses + step * t->sources : NULL;
    r->grad_norm = note[NOTE_GRADIENT_NORM];
    r->loss_scale = 1;
    r->step_s = note[NOTE_STEP_S];
    r->tokens_per_s = (double)tokens / r->step_s;
    r->peak_share = step_peak_share(t, r->tokens_per_s);
    r->data_wait_s = note[NOTE_DATA_S];
    r->comm_wait_s = note[NOTE_COMM_S];
    step_ledger(t, r->push.ticket * batch, r);
}

/* Collective over t->whole. */
static int pushes_run(struct ls_trainer *t, struct ls_error *error)
{
    struct workers *w = t->workers;
    int status = w->server->sought ? LS_OK : server_seek(t, workers_outer(t)->step, error);
    if (!status)
        status = w->all > w->groups ? serving_run(t, error) : server_run(t, error);
    if (!status)
        status = ls_all_gather(w->across, &w->exchange.wait_s, w->waits, 1, LS_U64, error);
    for (int64_t step = 0; step < w->interval && !status; step++)
        push_report(t, step);
    w->reports[w->interval - 1].outer =
        (struct ls_outer_report){.groups = w->all, .wait_s = w->waits};
    return status;
}

static int interval_run(struct ls_trainer *t, struct ls_error *error)
{
    struct workers *w = t->workers;
    struct ls_state *outer = workers_outer(t);
    int status = ls_state_settle(outer, error);
    w->begin = outer->step;
    memset(w->mine, 0, (size_t)(w->interval * w->each) * w->note_size * sizeof *w->mine);
    if (!status)
        status = phase_run(t, 0, w->interval - w->delay, false, error);
    if (!status)
        status = exchange_begin(t, error);
    if (!status)
        status = phase_run(t, w->interval - w->delay, w->delay, true, error);
    if (!status)
        status = exchange_end(t, error);
    t->state = outer;
    if (status)
        return status;
    outer->step = t->units->step;
    outer->samples = t->units->samples * w->count;
    return reports_join(t, error);
}

int workers_step(struct ls_trainer *t, struct ls_step_report *report, struct ls_error *error)
{
    struct workers *w = t->workers;
    int status = LS_OK;
    if (ls_trainer_meets(t))
        status = w->server ? pushes_run(t, error) : interval_run(t, error);
    t->failed = t->failed || status;
    if (status == LS_ESTOPPED && w->all > 1) /* others wait for this one's part */
        status = ls_error_set(error, LS_ECOMM, "%s", error ? error->text : "");
    if (status)
        return status;
    *report = w->reports[w->told - w->begin];
    w->told++;
    return LS_OK;
}
