/* What a parameter server's workers push, by the definition of stale synchronous parallel: a second
 * implementation beside src/parallel/arrivals.c, which looks at all workers after each push. */
#ifndef TEST_TRAIN_PUSHES_H
#define TEST_TRAIN_PUSHES_H

#include "workers_run.h"

/* A push: the batch that was computed on, which of the worker's gradients, on which version. */
struct push_expected {
    int64_t ticket, clock, version;
};
/* Of so many pushes in the order of their workers. bound -1: free. */
void pushes_expect(int workers, int bound, const int64_t *order, int count,
                   struct push_expected *out);
/* The order of so many pushes of workers that take times[worker] ticks for a gradient. */
void pushes_order(int workers, int bound, const int64_t *times, int count, int64_t *order);
/* The first push of the run that is not as expected, in order, clocks, tickets, staleness, samples
 * or ledger, or NULL. The text lives until the next call. */
const char *pushes_wrong(const struct workers_run *run);

#endif
