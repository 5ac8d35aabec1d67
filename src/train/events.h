/* What happens to a run besides its steps, as records of metrics.jsonl: {"step": 11, "event":
 * "save", "time": 1763766378.25, ...}. A step's and an evaluation's record have `time` too, seconds
 * since 1970. doc/training.md lists them. */
#ifndef TRAIN_EVENTS_H
#define TRAIN_EVENTS_H

#include "trainer.h"

struct events {
    struct ls_jsonl *metrics;    /* NULL until the file is open, and on ranks that do not write */
    const struct ls_log *caller; /* the log that was given to the run; may be NULL */
    struct ls_log log;           /* the log that the trainer gets: warnings become events too */
    int64_t step;                /* done; kept by the run */
    char early[4][512];          /* warnings from before the file was open */
    int early_count;
};

/* Seconds since 1970. */
double events_time_s(void);
/* Makes events->log. events stays where it is while the log is used. */
void events_init(struct events *events, const struct ls_log *caller);
/* The file is open and holds the steps up to `step`: "start" or "resume", with the
 * layout and the machine; then the warnings from before. */
int events_open(struct events *events, struct ls_jsonl *metrics, const struct ls_trainer *trainer,
                bool resumed, struct ls_error *error);
/* "save", which took save_s. */
int events_saved(struct events *events, double save_s, struct ls_error *error);
/* "signal": the step that was under way is the last one. */
int events_signal(struct events *events, struct ls_error *error);
/* "end" with how: done, stopped, or failed and why. */
int events_end(struct events *events, int status, const struct ls_error *why,
               struct ls_error *error);

#endif
