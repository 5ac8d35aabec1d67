/* Private to train: a parameter server, as src/train/parameter_server.c explains. */
#ifndef TRAIN_PARAMETER_SERVER_H
#define TRAIN_PARAMETER_SERVER_H

#include "train/workers_private.h"

#include <lockstep/parallel/arrival_log.h>
#include <lockstep/parallel/arrivals.h>

/* A gradient that a worker of this group computed and has not pushed. */
struct push {
    bool ready;
    double
        *note; /* [note_size] what is said of it; what it was said by is the next one's by then */
};

/* What a server rank knows of the rank of its place in a worker's group. */
struct caller {
    enum { CALLER_COMPUTES, CALLER_READY, CALLER_WAITS, CALLER_GONE } stage;
    bool broken;               /* nothing passes between the two ranks any more */
    struct ls_request request; /* for the note that it is ready */
    int64_t came;              /* the how many-th that came ready */
};

struct server {
    bool sought;                  /* clocks and order are those of the state */
    struct ls_arrivals *arrivals; /* NULL: whoever comes first */
    struct ls_clocks clocks;
    int64_t *ticket;     /* [workers] the batch that each computes on */
    int64_t *given;      /* [workers] the version that it was given on */
    int64_t tickets;     /* given so far */
    bool *renewed;       /* [workers] it is to take the parameters, though it may wait */
    struct push *pushes; /* [workers of this group] */
    double *pushed;      /* [workers of this group, note_size] their notes */

    /* With ranks of its own. */
    struct ls_arrival_log *log; /* of its first rank, by the clock */
    int64_t *order;             /* [interval] who pushed */
    struct ls_comm **pairs;     /* [workers] the server rank, 0, and the worker's of this place */
    int lost;                   /* a worker of which a rank died in the interval; -1: none */
    int64_t copied; /* the step of what this group has of the global parameters and, if the job
                     * survives a death, of the optimizer's state */
    bool noted;     /* notes are those of the interval before that */
    struct caller *callers; /* [workers] */
    double *calls;          /* [workers, note_size] their notes */
    int64_t came;
    int64_t own; /* the ticket of this group's worker */
};

/* Local; with w->each and so on set. */
int server_open(struct ls_trainer *t, struct ls_error *error);
int server_close(struct server *server, struct ls_error *error);
/* Collective over t->whole. The state is that after so many events, of `run` (NULL: of this run);
 * the order goes on from there. */
int server_seek(struct ls_trainer *t, int64_t event, const char *run, struct ls_error *error);
/* Collective over t->whole. By the clock: *before = the log of async.follow, of `run` or of this
 * run, where it is needed, otherwise NULL: to be freed. It has at least so many events. This run's
 * own goes on from there, with what came before it. */
int server_log_open(struct ls_trainer *t, int64_t event, const char *run,
                    struct ls_arrivals **before, struct ls_error *error);
/* Collective over t->whole. LS_ECKPT: a snapshot of so many events outlived what the run's folder
 * has of them. */
int server_log_reaches(const struct ls_trainer *t, int64_t event, struct ls_error *error);
/* Local, of every rank, before a checkpoint gets its name: the log that this rank writes, if it
 * writes one, is on the disk. */
int server_log_sync(const struct ls_trainer *t, struct ls_error *error);
/* Local. The buffers that gradients and parameters pass through. */
void server_take(const struct memory_request *request, struct ls_arena *arena,
                 struct exchange *exchange);
/* Collective over t->whole. The events of an interval, with a report and a note of each: by all
 * groups, or (src/train/serving.c) by ranks that do nothing else. */
int server_run(struct ls_trainer *t, struct ls_error *error);
int serving_run(struct ls_trainer *t, struct ls_error *error);
/* Collective over t->whole, with w->across: the pairs. */
int serving_open(struct ls_trainer *t, struct ls_error *error);
/* Collective over t->whole, behind server_seek. The run goes on from what a job that lost a rank
 * kept (workers_rescue.c): who is not in it begins anew, which the log says before it counts. */
int server_rescued(struct ls_trainer *t, struct ls_error *error);

/* ---- parts of an event ----------------------------------------------------------------------- */

/* Local. Who pushes next; -1: whoever comes. LS_EDATA at the end of a log. */
int server_next(const struct ls_trainer *t, int *worker, struct ls_error *error);
/* Collective over t->world. The gradient of a worker of this group on that batch, which is then
 * ready. */
int server_gradient(struct ls_trainer *t, int worker, int64_t ticket, struct ls_error *error);
/* Local. Into the buffer that it is sent from, and from there to the global parameters' gradient.
 * In between corrected towards these as they are now, if the recipe says so: it was computed on
 * those of unit, or on `then`, packed by server_masters; of a tied table the sum of both. scale:
 * the loss scale that it was computed with. Errors of the tier's disk, in which parameters of a
 * worker may lie. */
void server_pack(struct ls_trainer *t, int worker);
int server_correct(struct ls_trainer *t, const struct ls_state *unit, const float *then,
                   double scale, struct ls_error *error);
void server_unpack(struct ls_trainer *t);
/* Local. The parameters of a unit, one after the other: taken from there, or written to it. */
int server_masters(struct ls_trainer *t, struct ls_state *unit, float *packed, bool writes,
                   struct ls_error *error);
/* Collective over `across`. All groups get the optimizer's state of the global parameters, in
 * buffers that are free at a meeting. takes: Local, a worker's becomes that. */
int server_states(struct ls_trainer *t, bool takes, struct ls_error *error);
/* Local. The worker pushes: clocks and tickets follow. *ticket: of what it pushed. order may be
 * NULL, or a log: who leaves before that push or is renewed behind it does. */
struct ls_arrival server_push(struct server *server, const struct ls_arrivals *order, int worker,
                              int64_t *ticket);
/* Local. The worker leaves; and those that do where clocks stand, by the log: true if any did. Who
 * waited for them alone is to have the parameters. */
void server_leave(struct server *server, int worker);
bool server_leaves(struct server *server, const struct ls_arrivals *order);
/* Local. Begins the report of its step. */
void server_report(struct ls_trainer *t, const struct ls_arrival *arrival, int64_t ticket,
                   struct ls_step_report *report);
/* Local. The report of a push of the interval that others added. */
void server_tell(struct ls_trainer *t, const struct ls_arrival *arrival, int64_t ticket);
/* Collective over t->world. The update with that gradient. */
int server_add(struct ls_trainer *t, const double *note, struct ls_step_report *report,
               struct ls_error *error);
/* Collective over t->world. A worker of this group has new parameters, and computes with that loss
 * scale: the server's, when they left it. */
int server_pulled(struct ls_trainer *t, int worker, double scale, struct ls_error *error);
/* Local. The end of an interval: a gradient that is not pushed yet is no part of the state. */
void server_rest(struct ls_trainer *t);

#endif
