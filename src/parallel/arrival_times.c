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

struct arrival_time {
    int64_t time;
    int worker;
};

static int64_t pace(const struct ls_arrivals *a, int worker)
{
    return a->rule.bound == 0 ? a->slowest : a->times[worker];
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

static int64_t pushes_up_to(const struct ls_arrivals *a, struct arrival_time place)
{
    int64_t sum = 0;
    for (int w = 0; w < a->rule.workers; w++)
        sum += pushes_of(a, w, place.time - (w > place.worker));
    return sum;
}

static struct arrival_time place_of(const struct ls_arrivals *a, int64_t event)
{
    const int last = a->rule.workers - 1;
    int64_t low = 1,
            high = (event + 1) * (a->rule.bound == LS_BOUND_FREE ? a->fastest : a->slowest);
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (pushes_up_to(a, (struct arrival_time){middle, last}) > event)
            high = middle;
        else
            low = middle + 1;
    }
    int64_t before = event - pushes_up_to(a, (struct arrival_time){low - 1, last});
    for (int w = 0; w < last; w++)
        if (pushes_of(a, w, low) > pushes_of(a, w, low - 1) && before-- == 0)
            return (struct arrival_time){low, w};
    return (struct arrival_time){low, last};
}

int arrival_times_worker(const struct ls_arrivals *arrivals, int64_t event)
{
    return place_of(arrivals, event).worker;
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
        status = ls_no_memory(error, "for the times of %d workers", rule.workers);
    a->fastest = INT64_MAX;
    for (int w = 0; w < rule.workers && !status; w++) {
        if (times[w] < 1 || times[w] > LS_ARRIVAL_TIME_MAX)
            status =
                ls_error_set(error, LS_EINVAL, "the time of worker %d is %lld: expected 1 to %d", w,
                             (long long)times[w], LS_ARRIVAL_TIME_MAX);
        a->times[w] = times[w];
        a->fastest = ls_min(a->fastest, times[w]);
        a->slowest = ls_max(a->slowest, times[w]);
    }
    if (status) {
        ls_arrivals_free(a);
        *out = NULL;
    }
    return status;
}
