/* Workers: who computes which, an interval of steps, and what is reported of it. */
#include "train/membership.h"
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
    for (int i = 0; i < count - 1; i++) {
        units[i].log = NULL; /* the last one tells for all */
        units[i].keeps_older = true;
    }
    /* The same on all ranks. In a tier, copies come and go. */
    bool lends = (config->model.lora.rank > 0 || config->model.frozen[0]) &&
                 ls_config_tier(config, LS_OFFLOAD_PARAMETERS) == LS_TIER_DEVICE;
    for (int i = 0; i < count && lends; i++)
        units[i].lender = units;
    /* An exchange reads and writes the global state and a worker's at once. */
    units[count - 1].resident = true;
    bool server = config->async.mode == LS_CONFIG_SERVER;
    /* Workers of a server update nothing, and keep nothing for it. */
    *outer = server ? (struct ls_optim_config){.kind = LS_SGD, .moments = LS_F32}
                    : ls_config_outer_optim(config);
    for (int i = 0; i < count - 1 && server; i++)
        units[i].optim = outer;
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
    if (w->mine && w->notes && w->waits && w->reports && w->source_losses)
        return LS_OK;
    return ls_no_memory(error, "for the reports of %ld steps of workers", (long)w->interval);
}

int workers_open(struct ls_trainer *t, struct ls_error *error)
{
    const struct ls_config *config = &t->config;
    if (config->async.mode == LS_CONFIG_SYNC)
        return LS_OK;
    struct workers *w = t->workers = calloc(1, sizeof *w);
    t->state = workers_outer(t);
    int status = w ? LS_OK : ls_no_memory(error, "for workers");
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
        if (!status)
            status = members_open(w, error);
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
    if (w->server && w->all > w->groups)
        status = serving_open(t, error);
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
        status = ls_no_memory(error, "for the list of parameters");
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

void ls_trainer_record_nothing(struct ls_trainer *t)
{
    if (t->workers)
        t->workers->unrecorded = true;
}

void workers_stop(struct ls_trainer *t)
{
    if (!t->workers)
        return;
    ls_comm_free(t->workers->across);
    t->workers->across = NULL;
    for (int i = 0; i < t->workers->all; i++) {
        ls_comm_free(t->workers->from[i]);
        t->workers->from[i] = NULL;
    }
}

void workers_close(struct ls_trainer *t)
{
    struct workers *w = t->workers;
    if (!w)
        return;
    ls_comm_free(w->own);
    server_close(w->server, NULL);
    members_close(w->membership);
    exchange_deltas_drop(w);
    free(w->place);
    free(w->fragment);
    free(w->scales);
    free(w->mine);
    free(w->notes);
    free(w->waits);
    free(w->reports);
    free(w->source_losses);
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
    int next = w->worker;
    do
        next = (next + 1) % w->each;
    while (!workers_takes_part(w, next));
    if (next <= w->worker && w->ends)
        return false; /* who takes part in the next interval, they say when it begins */
    if (next > w->worker)
        *samples = w->phase;
    *worker = next;
    return true;
}

int64_t workers_place(const struct workers *w, int worker, int64_t samples, int64_t batch)
{
    int index = w->index[w->group * w->each + worker];
    return w->server ? samples : w->base + (samples - w->start) * w->places + index * batch;
}

int64_t workers_shift(const struct workers *w, int64_t batch)
{
    return w->server ? 0 : w->index[w->group * w->each + w->worker] * batch;
}

int64_t workers_joined(const struct workers *w)
{
    return w->server ? 0 : w->joined[w->group * w->each + w->worker];
}

int workers_agree(struct ls_trainer *t, int status, struct ls_error *error)
{
    status = ls_comm_agree(t->whole, status, error);
    return t->workers->own ? ls_comm_agree(t->world, status, error) : status;
}

int unit_enter(struct ls_trainer *t, struct ls_state *unit, struct ls_error *error)
{
    t->state = unit;
    return unit->lender ? ls_state_publish(unit, error) : LS_OK;
}

/* ---- an interval ----------------------------------------------------------------------------- */

/* The workers of this group, each so many steps, which begin `done` steps into the interval. poll:
 * an exchange is under way. */
static int phase_run(struct ls_trainer *t, int64_t done, int64_t steps, bool poll,
                     struct ls_error *error)
{
    struct workers *w = t->workers;
    int status = LS_OK;
    w->ends = done + steps == w->interval;
    w->phase = w->start;
    for (int k = 0; k < w->each; k++) /* alike of all that take part */
        w->phase = ls_max(w->phase, t->units[k].samples);
    for (w->worker = 0; w->worker < w->each && steps > 0 && !status; w->worker++) {
        if (!workers_takes_part(w, w->worker))
            continue;
        status = unit_enter(t, &t->units[w->worker], error);
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

/* Collective over t->whole. */
static int pushes_run(struct ls_trainer *t, struct ls_error *error)
{
    struct workers *w = t->workers;
    int status = w->server->sought ? LS_OK : server_seek(t, workers_outer(t)->step, NULL, error);
    if (!status)
        status = w->all > w->groups ? serving_run(t, error) : server_run(t, error);
    if (!status)
        status = ls_all_gather(w->across, &w->exchange.wait_s, w->waits, 1, LS_U64, error);
    if (!status)
        reports_pushes(t);
    return status;
}

/* Steps, and deltas on their way. */
static int interval_compute(struct ls_trainer *t, struct ls_error *error)
{
    struct workers *w = t->workers;
    w->stage = WORKERS_AT_WORK;
    w->base = workers_outer(t)->samples;
    w->start = t->units->samples;
    memset(w->mine, 0, (size_t)(w->interval * w->each) * w->note_size * sizeof *w->mine);
    int status = phase_run(t, 0, w->interval - w->delay, false, error);
    if (!status && w->delay == 0)
        w->stage = WORKERS_HAVE_DELTAS;
    status = exchange_begin(t, status, error);
    if (!status)
        status = phase_run(t, w->interval - w->delay, w->delay, true, error);
    if (!status && rescue_keeps_deltas(t))
        w->stage = WORKERS_HAVE_DELTAS;
    return status;
}

/* All deltas and notes are there. status: what came of this group's steps. */
static int interval_meet(struct ls_trainer *t, int status, struct ls_error *error)
{
    struct ls_error why = {0};
    int met = exchange_wait(t, &why);
    if (!met)
        met = reports_gather(t, &why);
    return status || !met ? status : ls_error_copy(error, met, &why);
}

static int interval_run(struct ls_trainer *t, struct ls_error *error)
{
    struct workers *w = t->workers;
    struct ls_state *outer = workers_outer(t);
    int status = ls_state_settle(outer, error);
    w->begin = outer->step;
    if (!status)
        status = members_next(t, error);
    if (status)
        return status;
    status = w->rescue.found ? rescue_take(t, error) : interval_compute(t, error);
    if (status != LS_ECOMM)
        status = interval_meet(t, status, error);
    t->state = outer;
    if (exchange_leaves(&w->exchange))
        return status;
    /* The outer step counts on all ranks or on none, unless one dies while they agree. */
    status = workers_agree(t, status, error);
    if (status)
        return status;
    w->stage = WORKERS_AT_WORK;
    status = exchange_end(t, error);
    if (status)
        return status;
    reports_make(t);
    w->stage = WORKERS_MET;
    return LS_OK;
}

int workers_step(struct ls_trainer *t, struct ls_step_report *report, struct ls_error *error)
{
    struct workers *w = t->workers;
    int status = LS_OK;
    if (ls_trainer_meets(t))
        status = w->server ? pushes_run(t, error) : interval_run(t, error);
    t->failed = t->failed || status;
    if (status == LS_ESTOPPED && w->server && w->all > 1) /* others wait for this one's part */
        status = ls_error_set(error, LS_ECOMM, "%s", error ? error->text : "");
    if (status)
        return status;
    *report = w->reports[w->told - w->begin];
    w->told++;
    return LS_OK;
}
