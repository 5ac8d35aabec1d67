/* What a run asks of the planner: its layout (parallel.auto), and how fast it should be
 * (train.plan). */
#ifndef CMD_PLANNED_RUN_H
#define CMD_PLANNED_RUN_H

#include <lockstep/planner/run_plan.h>

#include <pthread.h>
#include <stdatomic.h>

/* Where parallel.auto is set, config gets the layout that the planner finds; tells: says so. Called
 * before ranks are started. LS_ECONFIG under a launcher; errors of the search. */
int planned_auto(struct ls_config *config, bool tells, struct ls_error *error);

/* Of rank 0. Zero it first; it stays where it is. */
struct planned_run {
    struct ls_cluster cluster;
    struct ls_config config; /* settled */
    int threads;
    bool ready;                 /* there is a plan */
    bool searching;             /* there is a thread */
    bool asked[LS_DRIFT_KINDS]; /* each kind once */
    atomic_bool done;
    pthread_t thread;
    struct ls_drift drift;
    struct ls_run_advice advice;
};

/* What struct ls_run_hooks asks for. drifted searches on a thread of its own that only gets what
 * time others leave. */
int planned_run_plan(struct planned_run *p, const struct ls_config *config, int threads,
                     struct ls_run_plan *plan, struct ls_error *error);
void planned_run_drifted(struct planned_run *p, const struct ls_drift *drift);
bool planned_run_advice(struct planned_run *p, char *text, size_t bytes);
/* Waits for a search that is under way: some seconds at most. */
void planned_run_close(struct planned_run *p);

#endif
