/* lockstep/parallel/arrivals.h - in which order workers' gradients arrive at a parameter server.
 *
 * W workers compute gradients by themselves and push them to a server (DistBelief: Dean et al.
 * 2012). Event e is one push: worker w's gradient number c, counted from 0, the worker's clock. It
 * makes version e + 1 of the parameters of version e. Then the worker pulls, and begins with
 * gradient c + 1, unless it is too far ahead.
 *
 * Stale synchronous parallel (Ho et al. 2013; arXiv 1312.7869): a worker begins a gradient only if
 * it is at most `bound` clocks ahead of the slowest, c <= slowest + bound; else it waits, and pulls
 * as soon as the push that it waits for has been added. So
 *
 *   bound free (LS_BOUND_FREE)   nobody waits: asynchronous SGD
 *   bound s                      no two clocks are more than s + 1 apart, and a gradient is at most
 *                                (2 s + 1)(W - 1) versions old when it arrives
 *   bound 0                      bulk synchronous: at each clock all compute on one version, and
 *                                push in the order of workers, whoever was done first
 *
 * A gradient's staleness is the version at its push minus the version that it was computed on:
 * ls_arrival_staleness. Who pushes is all that is not given; everything else follows from it. So
 * bits follow from the order alone, and the order is one of
 *
 *   a table of times     worker w takes times[w] ticks for a gradient and none to push or pull. The
 *                        order is a pure function of the event's number: any resume computes it
 *   a log                of what happened, a line an event: `lockstep/parallel/arrival_log.h`
 *
 *     ls_arrivals_of_times(times, 4, 2, &arrivals, &error);    or ls_arrivals_of_log
 *     ls_clocks_init(&clocks, ls_arrivals_rule(arrivals), &error);
 *     while (ls_arrivals_next(arrivals, &clocks, &arrival)) {
 *         // add the gradient arrival.clock of arrival.worker, of version arrival.pulled
 *         for (int w = 0; w < clocks.rule.workers; w++)
 *             if (clocks.pulled[w] == clocks.version)
 *                 // worker w takes the parameters as they are now
 *     }
 *
 * A server whose workers arrive by the clock asks ls_clocks_admit, calls ls_clocks_push for each
 * push in the order in which it adds them, and writes what that returns to the log.
 *
 * A worker that dies leaves: its pushes end, and nobody waits for it. Later it is renewed: it
 * computes on the version as it is then, at the clock of the slowest, if it was behind. A log has
 * both; a table has neither.
 *
 * Arrivals are immutable: any number of threads may use them. Everything here is Local. */
#ifndef LOCKSTEP_PARALLEL_ARRIVALS_H
#define LOCKSTEP_PARALLEL_ARRIVALS_H

#include <lockstep/base.h>

LS_C_BEGIN

enum { LS_BOUND_FREE = -1, LS_ARRIVAL_BOUND_MAX = 1 << 30, LS_ARRIVAL_WORKERS_MAX = 4096 };

struct ls_arrival_rule {
    int workers;   /* 1 to LS_ARRIVAL_WORKERS_MAX */
    int32_t bound; /* 0 to LS_ARRIVAL_BOUND_MAX, or LS_BOUND_FREE */
};

/* One push. */
struct ls_arrival {
    int64_t event; /* the version that it is added to */
    int worker;
    int64_t clock;  /* which of the worker's gradients, from 0 */
    int64_t pulled; /* the version that it was computed on */
};
static inline int64_t ls_arrival_staleness(const struct ls_arrival *arrival)
{
    return arrival->event - arrival->pulled;
}

/* ---- clocks ---------------------------------------------------------------------------------- */

/* Where the workers stand. Read only. */
struct ls_clocks {
    struct ls_arrival_rule rule;
    int64_t version;     /* of the parameters: pushes so far */
    int64_t slowest;     /* the least clock of those that have not left */
    int slowest_workers; /* so many are there */
    int64_t *clock;      /* [workers]: gradients that it has pushed */
    int64_t *pulled;     /* [workers]: version that it computes on; LS_PULLED_NONE: it waits */
    bool *gone;          /* [workers]: it has left */
};
enum { LS_PULLED_NONE = -1 };
/* All at clock 0, on version 0. LS_EINVAL of a rule; LS_ENOMEM. */
int ls_clocks_init(struct ls_clocks *clocks, struct ls_arrival_rule rule, struct ls_error *error);
void ls_clocks_release(struct ls_clocks *clocks);
/* Whether the worker's push may come next: it neither waits nor has left and, where bound is 0, it
 * is the first in the order of workers that has not pushed at this clock. */
bool ls_clocks_admit(const struct ls_clocks *clocks, int worker);
/* It comes; ls_clocks_admit. Those who may begin their next gradient now pull the version that this
 * made. */
struct ls_arrival ls_clocks_push(struct ls_clocks *clocks, int worker);
/* It leaves, if it has not. Those that waited for it alone pull the version as it is. */
void ls_clocks_leave(struct ls_clocks *clocks, int worker);
/* It begins anew, whether or not it had left: it pulls the version as it is, unless it waits. */
void ls_clocks_renew(struct ls_clocks *clocks, int worker);

/* ---- an order -------------------------------------------------------------------------------- */

struct ls_arrivals;

/* Ticks of a gradient: 1 to LS_ARRIVAL_TIME_MAX. Only their proportions matter: events at one tick
 * come in the order of workers, and a worker that pulls takes all that were before it. */
enum { LS_ARRIVAL_TIME_MAX = 1 << 20 };
/* times[rule.workers], copied. LS_EINVAL names the worker whose time is out of range, or says what
 * is wrong with the rule; LS_ENOMEM. */
int ls_arrivals_of_times(struct ls_arrival_rule rule, const int64_t *times,
                         struct ls_arrivals **out, struct ls_error *error);
/* arrivals may be NULL. */
void ls_arrivals_free(struct ls_arrivals *arrivals);

struct ls_arrival_rule ls_arrivals_rule(const struct ls_arrivals *arrivals);
/* Events of it: those of a log, and LS_ARRIVAL_EVENTS_MAX of a table. */
#define LS_ARRIVAL_EVENTS_MAX ((int64_t)1 << 40)
int64_t ls_arrivals_end(const struct ls_arrivals *arrivals);
/* Who pushes at an event, 0 <= event < end. Of a table in O(W log event), of a log in O(1). */
int ls_arrivals_worker(const struct ls_arrivals *arrivals, int64_t event);
/* Of a log: who leaves just before an event, or is renewed just behind the one before it; from the
 * first such line on, by *at, which begins with 0. False: nobody else. */
enum ls_arrival_change { LS_ARRIVAL_LEFT, LS_ARRIVAL_RENEWED };
bool ls_arrivals_changed(const struct ls_arrivals *arrivals, int64_t event,
                         enum ls_arrival_change change, int64_t *at, int *worker);
/* The event that clocks stand at, *out, is pushed to them, with who leaves before it and who is
 * renewed behind it; false at the end. */
bool ls_arrivals_next(const struct ls_arrivals *arrivals, struct ls_clocks *clocks,
                      struct ls_arrival *out);

LS_C_END
#endif
