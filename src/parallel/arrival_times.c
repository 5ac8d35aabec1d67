/* The order of arrivals that a table of times gives, as a pure function of an event's number.
 *
 * With D the longest time and s the bound, worker w of time d pushes its gradient c at
 *
 *     F_w(c) = d + max(c d, (c - s) D)          c d alone where the bound is free
 *
 * It begins when its gradient c - 1 is pushed, and no sooner than every gradient c - s - 1 is. A
 * worker of time D never waits and pushes gradient c - s - 1 at (c - s) D; by induction no other is
 * later. A wait that ended is followed by no head start, so the last wait alone counts.
 *
 * With bound 0 all gradients of a clock are added when the last worker has its own: as if all took
 * D. Events are in the order of (time, worker); no worker has two at one time. How many a worker
 * has up to a time follows by division, so an event's time is found by bisection. */
#include "parallel/arrivals_private.h"

#include <stdlib.h>
#include <string.h>

struct place {
    int64_t time;
    int worker;
};

static bool is_after(struct place a, struct place b)
{
    return a.time != b.time ? a.time > b.time : a.worker > b.worker;
}

static int64_t pace(const struct ls_arrivals *a, int worker)
{
    return a->rule.bound == 0 ? a->slowest : a->times[worker];
}

/* F, and 0 of the gradient before the first. */
static int64_t push_time(const struct ls_arrivals *a, int worker, int64_t clock)
{
    int64_t own = pace(a, worker), begin = clock * own;
    if (clock < 0)
        return 0;
    if (a->rule.bound != LS_BOUND_FREE)
        begin = ls_max(begin, (clock - a->rule.bound) * a->slowest);
    return own + begin;
}

/* A worker's pushes up to a time. */
static int64_t pushes_of(const struct ls_arrivals *a, int worker, int64_t time)
{
    int64_t own = pace(a, worker);
    if (time < own)
        return 0;
    if (a->rule.bound == LS_BOUND_FREE)
        return time / own;
    return ls_min(time / own, a->rule.bound + 1 + (time - own) / a->slowest);
}

static int64_t pushes_up_to(const struct ls_arrivals *a, struct place place)
{
    int64_t sum = 0;
    for (int w = 0; w < a->rule.workers; w++)
        sum += pushes_of(a, w, place.time - (w > place.worker));
    return sum;
}

static struct place place_of(const struct ls_arrivals *a, int64_t event)
{
    const int last = a->rule.workers - 1;
    int64_t low = 1,
            high = (event + 1) * (a->rule.bound == LS_BOUND_FREE ? a->fastest : a->slowest);
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (pushes_up_to(a, (struct place){middle, last}) > event)
            high = middle;
        else
            low = middle + 1;
    }
    int64_t before = event - pushes_up_to(a, (struct place){low - 1, last});
    for (int w = 0; w < last; w++)
        if (pushes_of(a, w, low) > pushes_of(a, w, low - 1) && before-- == 0)
            return (struct place){low, w};
    return (struct place){low, last};
}

int arrival_times_worker(const struct ls_arrivals *arrivals, int64_t event)
{
    return place_of(arrivals, event).worker;
}

struct ls_arrival_time ls_arrivals_time(const struct ls_arrivals *arrivals, int64_t event)
{
    LS_ASSERT(arrivals->times && event >= 0 && event < LS_ARRIVAL_EVENTS_MAX);
    struct place place = place_of(arrivals, event);
    int64_t clock = pushes_of(arrivals, place.worker, place.time) - 1;
    int64_t since = push_time(arrivals, place.worker, clock - 1);
    return (struct ls_arrival_time){place.time, place.time - since - arrivals->times[place.worker]};
}

/* The version on which a worker of that clock computes, when `now` is the last push that was: that
 * of its own push, or of the push that it waited for, which is the last of the slowest workers'. */
static int64_t pulled_of(const struct ls_arrivals *a, int worker, int64_t clock, struct place now)
{
    struct place from = {push_time(a, worker, clock - 1), worker};
    const int32_t bound = a->rule.bound;
    if (clock == 0)
        return 0;
    if (bound != LS_BOUND_FREE && clock > bound) {
        int last = bound == 0 ? a->rule.workers - 1 : a->last;
        struct place gate = {(clock - bound) * a->slowest, last};
        from = is_after(gate, from) ? gate : from;
    }
    return is_after(from, now) ? LS_PULLED_NONE : pushes_up_to(a, from);
}

void arrival_times_seek(const struct ls_arrivals *arrivals, int64_t event, struct ls_clocks *clocks)
{
    struct place now = event > 0 ? place_of(arrivals, event - 1) : (struct place){0};
    clocks->version = event;
    for (int w = 0; w < arrivals->rule.workers; w++) {
        clocks->clock[w] = pushes_of(arrivals, w, now.time - (w > now.worker));
        clocks->pulled[w] = pulled_of(arrivals, w, clocks->clock[w], now);
    }
}

int ls_arrivals_of_times(struct ls_arrival_rule rule, const int64_t *times,
                         struct ls_arrivals **out, struct ls_error *error)
{
    int status = arrivals_new(rule, out, error);
    if (status)
        return status;
    struct ls_arrivals *a = *out;
    a->times = malloc((size_t)rule.workers * sizeof *times);
    if (!a->times)
        status =
            ls_error_set(error, LS_ENOMEM, "no memory for the times of %d workers", rule.workers);
    a->fastest = INT64_MAX;
    for (int w = 0; w < rule.workers && !status; w++) {
        if (times[w] < 1 || times[w] > LS_ARRIVAL_TIME_MAX)
            status =
                ls_error_set(error, LS_EINVAL, "the time of worker %d is %lld: expected 1 to %d", w,
                             (long long)times[w], LS_ARRIVAL_TIME_MAX);
        a->times[w] = times[w];
        a->fastest = ls_min(a->fastest, times[w]);
        a->last = times[w] >= a->slowest ? w : a->last;
        a->slowest = ls_max(a->slowest, times[w]);
    }
    if (status) {
        ls_arrivals_free(a);
        *out = NULL;
    }
    return status;
}
