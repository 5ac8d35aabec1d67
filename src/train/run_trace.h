/* The trace of a run: what it does besides its steps, and its file. */
#ifndef TRAIN_RUN_TRACE_H
#define TRAIN_RUN_TRACE_H

#include "train/trainer.h"

struct run_trace {
    struct ls_trace *trace; /* the trainer's; NULL: off, and nothing happens */
    const struct ls_log *log;
    const struct ls_trainer *trainer;
    const char *phase;          /* around the one that was begun */
    struct ls_trace_file *file; /* NULL: nothing is written yet */
    double next_s;              /* when it is written again */
    bool failed;                /* it could not be written, and that was said */
};

/* train.out/trace/rank-NNNNN.json. */
void run_trace_open(struct run_trace *trace, const struct ls_trainer *trainer,
                    const struct ls_log *log);
/* A span, and the phase of all within: "save", "evaluate". Not nested. */
void run_trace_begin(struct run_trace *trace, const char *phase);
void run_trace_end(struct run_trace *trace);
/* Appends what is new to the file: every ten seconds, or when much has gathered. So a run that is
 * killed leaves all but its last seconds. A failure is a warning. */
void run_trace_write(struct run_trace *trace);
/* The rest, with what has not ended. */
void run_trace_close(struct run_trace *trace);

#endif
