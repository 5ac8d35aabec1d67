/* Gathers what the steps of all ranks took, window by window, and keeps what was found. */
#include "train/drift_watch.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WARM_UP_STEPS = 2 };

int drift_watch_open(struct drift_watch *w, const struct ls_trainer *t, struct ls_error *error)
{
    char host[LS_DRIFT_HOST_BYTES] = "";
    int64_t ranks = t->layout.ranks;
    *w = (struct drift_watch){
        .every = t->config.log.drift_every, .layout = &t->layout, .world = t->world};
    if (w->every == 0)
        return LS_OK;
    w->window = calloc((size_t)w->every, sizeof *w->window);
    w->sorted = calloc((size_t)w->every, sizeof *w->sorted);
    w->all = calloc((size_t)ranks, sizeof *w->all);
    w->hosts = calloc((size_t)ranks, sizeof *w->hosts);
    w->stage_s = calloc((size_t)t->layout.size[LS_AXIS_PP], sizeof *w->stage_s);
    w->plan.stage_s = calloc((size_t)t->layout.size[LS_AXIS_PP], sizeof(double));
    bool made = w->window && w->sorted && w->all && w->hosts && w->stage_s && w->plan.stage_s;
    int status = made ? LS_OK : ls_no_memory(error, "to watch for drift");
    status = ls_comm_agree(w->world, status, error);
    gethostname(host, sizeof host - 1);
    return status ? status
                  : ls_all_gather(w->world, host, w->hosts, LS_DRIFT_HOST_BYTES, LS_U8, error);
}

void drift_watch_close(struct drift_watch *w)
{
    free(w->window);
    free(w->sorted);
    free(w->all);
    free(w->hosts);
    free(w->stage_s);
    free(w->plan.stage_s);
    *w = (struct drift_watch){0};
}

static struct ls_drift_sample sample_of(const struct ls_step_report *r)
{
    struct ls_drift_sample sample = {.step_s = (float)r->step_s, .data_s = (float)r->data_wait_s};
    double own = r->step_s - r->data_wait_s;
    for (int a = 0; a < LS_ACCOUNTS; a++) {
        sample.wait_s[a] = (float)r->wait_s[a];
        own -= r->wait_s[a];
    }
    sample.own_s = (float)(own > 0 ? own : 0);
    return sample;
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Of word `word` of the window's samples, sorted. */
static const float *sort(struct drift_watch *w, size_t word)
{
    for (int64_t i = 0; i < w->every; i++)
        w->sorted[i] = ((const float *)&w->window[i])[word];
    qsort(w->sorted, (size_t)w->every, sizeof *w->sorted, by_value);
    return w->sorted;
}

static struct ls_drift_sample window_sample(struct drift_watch *w)
{
    const size_t own = offsetof(struct ls_drift_sample, own_s) / sizeof(float);
    const size_t waits = offsetof(struct ls_drift_sample, wait_s) / sizeof(float);
    struct ls_drift_sample sample;
    for (size_t word = 0; word < LS_DRIFT_WORDS; word++)
        ((float *)&sample)[word] = sort(w, word)[word < waits ? w->every / 2 : w->every / 10];
    sample.own_low_s = sort(w, own)[w->every / 4];
    return sample;
}

int drift_watch_step(struct drift_watch *w, const struct ls_step_report *report, bool *whole,
                     struct ls_error *error)
{
    *whole = false;
    if (w->every == 0 || ++w->since <= WARM_UP_STEPS)
        return LS_OK;
    w->window[w->count++] = sample_of(report);
    if (w->count < w->every)
        return LS_OK;
    w->count = 0;
    *whole = true;
    struct ls_drift_sample mine = window_sample(w);
    return ls_all_gather(w->world, &mine, w->all, LS_DRIFT_WORDS, LS_F32, error);
}

/* Launchers act by how slow a rank or a stage is: they are to know when that is no more so. */
static enum drift_change change_of(const struct ls_drift *before, const struct ls_drift *now,
                                   double recorded)
{
    if (before->found != now->found || (now->found && before->subject != now->subject))
        return DRIFT_NEW;
    bool acted_on = now->kind == LS_DRIFT_SLOW_RANK || now->kind == LS_DRIFT_STAGE;
    bool moved = now->found && acted_on && fabs(now->above - recorded) >= 0.25 * recorded;
    return moved ? DRIFT_MOVED : DRIFT_STAYS;
}

int drift_watch_judge(struct drift_watch *w, enum drift_change changed[LS_DRIFT_KINDS],
                      struct ls_error *error)
{
    struct ls_drift before[LS_DRIFT_KINDS];
    memcpy(before, w->now, sizeof before);
    int status = ls_drift_judge(w->layout, w->all, (const char(*)[LS_DRIFT_HOST_BYTES])w->hosts,
                                w->planned ? &w->plan : NULL, w->stage_s, w->now, error);
    for (int kind = 0; kind < LS_DRIFT_KINDS; kind++) {
        changed[kind] = change_of(&before[kind], &w->now[kind], w->recorded[kind]);
        if (changed[kind] != DRIFT_STAYS)
            w->recorded[kind] = w->now[kind].above;
    }
    return status;
}
