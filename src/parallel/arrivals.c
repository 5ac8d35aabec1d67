/* Arrivals at a parameter server: the clocks of its workers, and an order that is gone through. */
#include "parallel/arrivals_private.h"

#include <stdlib.h>

/* ---- clocks ---------------------------------------------------------------------------------- */

int arrivals_check_rule(struct ls_arrival_rule rule, struct ls_error *error)
{
    if (rule.workers < 1 || rule.workers > LS_ARRIVAL_WORKERS_MAX)
        return ls_error_set(error, LS_EINVAL, "%d workers: expected 1 to %d", rule.workers,
                            LS_ARRIVAL_WORKERS_MAX);
    if (rule.bound < LS_BOUND_FREE || rule.bound > LS_ARRIVAL_BOUND_MAX)
        return ls_error_set(error, LS_EINVAL,
                            "a bound of %d clocks: expected 0 to %d, or %d for none", rule.bound,
                            LS_ARRIVAL_BOUND_MAX, LS_BOUND_FREE);
    return LS_OK;
}

int ls_clocks_init(struct ls_clocks *clocks, struct ls_arrival_rule rule, struct ls_error *error)
{
    *clocks = (struct ls_clocks){.rule = rule};
    int status = arrivals_check_rule(rule, error);
    if (status)
        return status;
    clocks->clock = calloc((size_t)rule.workers, sizeof *clocks->clock);
    clocks->pulled = calloc((size_t)rule.workers, sizeof *clocks->pulled);
    clocks->gone = calloc((size_t)rule.workers, sizeof *clocks->gone);
    if (!clocks->clock || !clocks->pulled || !clocks->gone) {
        ls_clocks_release(clocks);
        return ls_no_memory(error, "for the clocks of %d workers", rule.workers);
    }
    clocks->slowest_workers = rule.workers;
    return LS_OK;
}

void ls_clocks_release(struct ls_clocks *clocks)
{
    free(clocks->clock);
    free(clocks->pulled);
    free(clocks->gone);
    *clocks = (struct ls_clocks){.rule = clocks->rule};
}

bool ls_clocks_admit(const struct ls_clocks *clocks, int worker)
{
    if (worker < 0 || worker >= clocks->rule.workers || clocks->gone[worker] ||
        clocks->pulled[worker] == LS_PULLED_NONE)
        return false;
    for (int w = 0; w < worker && clocks->rule.bound == 0; w++)
        if (!clocks->gone[w] && clocks->clock[w] == clocks->slowest)
            return false;
    return true;
}

/* The least clock, and how many workers are there; if all have left, none. */
static void slowest_find(struct ls_clocks *clocks)
{
    clocks->slowest = INT64_MAX;
    clocks->slowest_workers = 0;
    for (int w = 0; w < clocks->rule.workers; w++) {
        if (clocks->gone[w])
            continue;
        if (clocks->clock[w] < clocks->slowest) {
            clocks->slowest = clocks->clock[w];
            clocks->slowest_workers = 0;
        }
        clocks->slowest_workers += clocks->clock[w] == clocks->slowest;
    }
}

/* A worker that waits begins its next gradient, if it may. */
static void begin_if_admitted(struct ls_clocks *clocks, int worker)
{
    const int32_t bound = clocks->rule.bound;
    if (clocks->pulled[worker] == LS_PULLED_NONE && !clocks->gone[worker] &&
        (bound == LS_BOUND_FREE || clocks->clock[worker] <= clocks->slowest + bound))
        clocks->pulled[worker] = clocks->version;
}

static void slowest_moved(struct ls_clocks *clocks)
{
    slowest_find(clocks);
    for (int w = 0; w < clocks->rule.workers; w++)
        begin_if_admitted(clocks, w);
}

struct ls_arrival ls_clocks_push(struct ls_clocks *clocks, int worker)
{
    LS_ASSERT(ls_clocks_admit(clocks, worker));
    struct ls_arrival arrival = {clocks->version++, worker, clocks->clock[worker],
                                 clocks->pulled[worker]};
    clocks->clock[worker]++;
    clocks->pulled[worker] = LS_PULLED_NONE;
    clocks->slowest_workers -= arrival.clock == clocks->slowest;
    if (clocks->slowest_workers > 0) {
        begin_if_admitted(clocks, worker);
        return arrival;
    }
    slowest_moved(clocks);
    return arrival;
}

void ls_clocks_leave(struct ls_clocks *clocks, int worker)
{
    clocks->gone[worker] = true;
    slowest_moved(clocks);
}

void ls_clocks_renew(struct ls_clocks *clocks, int worker)
{
    clocks->gone[worker] = true; /* how far the others are */
    slowest_find(clocks);
    if (clocks->slowest_workers > 0)
        clocks->clock[worker] = ls_max(clocks->clock[worker], clocks->slowest);
    if (clocks->pulled[worker] != LS_PULLED_NONE)
        clocks->pulled[worker] = clocks->version;
    clocks->gone[worker] = false;
    slowest_moved(clocks);
}

/* ---- an order -------------------------------------------------------------------------------- */

int arrivals_new(struct ls_arrival_rule rule, struct ls_arrivals **out, struct ls_error *error)
{
    *out = NULL;
    int status = arrivals_check_rule(rule, error);
    if (status)
        return status;
    struct ls_arrivals *arrivals = calloc(1, sizeof *arrivals);
    if (!arrivals)
        return ls_no_memory(error, "for an order of arrivals");
    arrivals->rule = rule;
    *out = arrivals;
    return LS_OK;
}

void ls_arrivals_free(struct ls_arrivals *arrivals)
{
    if (!arrivals)
        return;
    free(arrivals->times);
    free(arrivals->worker);
    free(arrivals->changes);
    free(arrivals);
}

struct ls_arrival_rule ls_arrivals_rule(const struct ls_arrivals *arrivals)
{
    return arrivals->rule;
}

int64_t ls_arrivals_end(const struct ls_arrivals *arrivals)
{
    return arrivals->times ? LS_ARRIVAL_EVENTS_MAX : arrivals->count;
}

int ls_arrivals_worker(const struct ls_arrivals *arrivals, int64_t event)
{
    LS_ASSERT(event >= 0 && event < ls_arrivals_end(arrivals));
    return arrivals->times ? arrival_times_worker(arrivals, event) : arrivals->worker[event];
}

bool ls_arrivals_changed(const struct ls_arrivals *arrivals, int64_t event,
                         enum ls_arrival_change change, int64_t *at, int *worker)
{
    for (; *at < arrivals->changed; ++*at) {
        const struct arrival_change *found = &arrivals->changes[*at];
        if (found->event != event || found->change != change)
            continue;
        *worker = found->worker;
        ++*at;
        return true;
    }
    return false;
}

/* The changes of one kind where clocks stand. */
static void changes_take(const struct ls_arrivals *arrivals, enum ls_arrival_change change,
                         struct ls_clocks *clocks)
{
    int64_t at = 0;
    int worker;
    while (ls_arrivals_changed(arrivals, clocks->version, change, &at, &worker))
        if (change == LS_ARRIVAL_LEFT)
            ls_clocks_leave(clocks, worker);
        else
            ls_clocks_renew(clocks, worker);
}

bool ls_arrivals_next(const struct ls_arrivals *arrivals, struct ls_clocks *clocks,
                      struct ls_arrival *out)
{
    if (clocks->version >= ls_arrivals_end(arrivals))
        return false;
    changes_take(arrivals, LS_ARRIVAL_LEFT, clocks);
    *out = ls_clocks_push(clocks, ls_arrivals_worker(arrivals, clocks->version));
    changes_take(arrivals, LS_ARRIVAL_RENEWED, clocks);
    return true;
}
