/* parallel/arrivals_private.h - an order of arrivals: a table of times, or a list of workers. */
#ifndef PARALLEL_ARRIVALS_PRIVATE_H
#define PARALLEL_ARRIVALS_PRIVATE_H

#include <lockstep/parallel/arrivals.h>

struct arrival_change {
    int64_t event;
    enum ls_arrival_change change;
    int worker;
};

struct ls_arrivals {
    struct ls_arrival_rule rule;
    /* Of a table. */
    int64_t *times; /* [workers]; NULL: a log */
    int64_t fastest, slowest;
    /* Of a log. */
    uint16_t *worker; /* [count] */
    int64_t count, room;
    struct arrival_change *changes; /* [changed] as the log has them */
    int64_t changed, changes_room;
};

/* LS_EINVAL says what is wrong. */
int arrivals_check_rule(struct ls_arrival_rule rule, struct ls_error *error);
/* Without an order. LS_EINVAL, LS_ENOMEM. */
int arrivals_new(struct ls_arrival_rule rule, struct ls_arrivals **out, struct ls_error *error);

/* Of a table. */
int arrival_times_worker(const struct ls_arrivals *arrivals, int64_t event);

#endif
