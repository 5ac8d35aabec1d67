/* Private to train: each rank's window of steps, and what drifts by it (lockstep/train/drift.h). */
#ifndef TRAIN_DRIFT_WATCH_H
#define TRAIN_DRIFT_WATCH_H

#include "train/events.h"

#include <lockstep/train/drift.h>

struct drift_watch {
    int64_t every; /* steps of a window; 0: nobody watches */
    int64_t since; /* steps since the start */
    int64_t count; /* of the window so far */
    const struct ls_layout *layout;
    struct ls_comm *world;
    struct ls_drift_sample *window;     /* [every]; own_low_s is not used */
    struct ls_drift_sample *all;        /* [ranks] */
    char (*hosts)[LS_DRIFT_HOST_BYTES]; /* [ranks] */
    float *sorted;                      /* [every] */
    double *stage_s; /* [pipeline ranks] rank 0's: what a rank of each computed in that window */
    struct ls_run_plan plan; /* rank 0's */
    bool planned;
    struct ls_drift now[LS_DRIFT_KINDS]; /* rank 0's: what was found in the last window */
    double recorded[LS_DRIFT_KINDS];     /* how far above it was at the last change */
};
/* DRIFT_NEW: it began or ended, or is about another subject now. DRIFT_MOVED: a rank or stage is
 * slower or faster by a quarter of what it was above the others at the last change. */
enum drift_change { DRIFT_STAYS, DRIFT_MOVED, DRIFT_NEW };

/* Collective. Which host each rank is on. */
int drift_watch_open(struct drift_watch *watch, const struct ls_trainer *trainer,
                     struct ls_error *error);
void drift_watch_close(struct drift_watch *watch);
/* Collective, after each step. *whole: a window is, and its samples are here. */
int drift_watch_step(struct drift_watch *watch, const struct ls_step_report *report, bool *whole,
                     struct ls_error *error);
/* Local, on rank 0, of a whole window: what became of each kind. */
int drift_watch_judge(struct drift_watch *watch, enum drift_change changed[LS_DRIFT_KINDS],
                      struct ls_error *error);

#endif
