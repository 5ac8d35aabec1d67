/* What happens to a run besides its steps, as records of metrics.jsonl: {"step": 11, "event":
 * "save", "time": 1763766378.25, ...}. A step's and an evaluation's record have `time` too, seconds
 * since 1970. doc/training.md lists them. */
#ifndef TRAIN_EVENTS_H
#define TRAIN_EVENTS_H

#include "train/trainer.h"

#include <lockstep/ckpt.h>
#include <lockstep/trace.h>
#include <lockstep/train/drift.h>

struct events {
    struct ls_jsonl *metrics;    /* NULL until the file is open, and on ranks that do not write */
    const struct ls_log *caller; /* the log that was given to the run; may be NULL */
    struct ls_log log;           /* the log that the trainer gets: warnings become events too */
    int64_t step;                /* done; kept by the run */
    char early[16][1024];        /* warnings from before the file was open, the first ones */
    int early_count;
};

/* Makes events->log. events stays where it is while the log is used. */
void events_init(struct events *events, const struct ls_log *caller);
/* A meeting of workers: which fragment took its outer step, the norm of its gradient, and how long
 * each group of ranks waited for the others. */
int events_outer(struct events *events, const struct ls_outer_report *outer,
                 struct ls_error *error);
/* The file is open and holds the steps up to `step`: "start" or "resume", with the
 * layout, the machine, digests of the data and of data.valid ("": none are read) and the plan
 * (NULL: there is none); then the warnings from before. */
int events_open(struct events *events, struct ls_jsonl *metrics, const struct ls_trainer *trainer,
                const char *digest, const char *valid, const struct ls_run_plan *plan, bool resumed,
                struct ls_error *error);
/* seen[sources] = what the record, of an earlier start, says of the data, where it does ("" at
 * first). */
void events_data_see(const struct ls_trainer *trainer, char (*seen)[33],
                     const struct ls_record *record);
/* Sets trainer->peak_of to what a measurement of its peak would be of. */
void events_peak_name(struct ls_trainer *trainer);
/* *flops = what the record, of an earlier start, says that it measured of the same, if it does. */
void events_peak_see(const struct ls_trainer *trainer, double *flops,
                     const struct ls_record *record);
/* "save" of a step's state, which took save_s; beside: while steps went on; changed: its record
 * says nothing of the state, which the caller changed since. */
int events_saved(struct events *events, int64_t step, double save_s, bool beside, bool changed,
                 struct ls_error *error);
/* What became of a checkpoint's copy in the place that checkpoint.also names. */
struct copy_outcome {
    int64_t step; /* of the checkpoint */
    enum { COPY_DONE, COPY_SKIPPED, COPY_FAILED } how;
    double copy_s;
    uint64_t bytes;  /* copied; 0: the same was there */
    char text[1024]; /* what failed; of one that is done: older copies that could not be removed */
};
/* "copy". A copy that failed is a warning too. */
int events_copied(struct events *events, const char *where, const struct copy_outcome *outcome,
                  struct ls_error *error);
/* "changed": a checkpoint of that step is about to be replaced by one of another state. */
int events_changed(struct events *events, int64_t step, struct ls_error *error);
/* "kept": it was not, because the system refused. */
int events_kept(struct events *events, int64_t step, struct ls_error *error);
/* "replay": the step was computed twice, with one result; what that took beside the step. */
int events_replayed(struct events *events, double replay_s, struct ls_error *error);
/* "signal": the step that was under way is the last one. */
int events_signal(struct events *events, struct ls_error *error);
/* "drift": what was found, what a step takes and should (plan NULL: there is none), and, beside an
 * unbalanced stage, what all compute: stage_s[stages]. What is new is shown as a warning too.
 * "drift_over": it is no more so. "advice": a sentence for people. */
int events_drift(struct events *events, const struct ls_drift *drift, bool new, double step_s,
                 const struct ls_run_plan *plan, const double *stage_s, int64_t stages,
                 struct ls_error *error);
int events_drift_over(struct events *events, enum ls_drift_kind kind, struct ls_error *error);
int events_advice(struct events *events, const char *text, struct ls_error *error);
/* "end" with how: done, stopped, or failed and why. */
int events_end(struct events *events, int status, const struct ls_error *why,
               struct ls_error *error);

#endif
