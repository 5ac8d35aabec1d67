/* Private to train: a parameter server, as src/train/server.c explains. */
#ifndef TRAIN_SERVER_H
#define TRAIN_SERVER_H

#include "train/workers_private.h"

#include <lockstep/parallel/arrivals.h>

/* A gradient that a worker of this group computed and has not pushed. */
struct push {
    bool ready;
    struct train_gradient gradient;
    struct ls_step_report report;
};

struct server {
    struct ls_arrivals *arrivals;
    struct ls_clocks clocks;
    int64_t *ticket;     /* [workers] the batch that each computes on */
    int64_t tickets;     /* given so far */
    struct push *pushes; /* [workers of this group] */
};

/* Collective over t->whole; with w->each and so on set. */
int server_open(struct ls_trainer *t, struct ls_error *error);
void server_close(struct server *server);
/* Local. The state is that after so many events. */
void server_seek(struct ls_trainer *t, int64_t event);
/* Local. The buffer that gradients pass through. */
void server_take(const struct memory_request *request, struct ls_arena *arena,
                 struct exchange *exchange);
/* Collective over t->whole. The events of an interval, with a report and a note of each. */
int server_run(struct ls_trainer *t, struct ls_error *error);

#endif
