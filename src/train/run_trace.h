/* The trace of a run: what it does besides its steps, and its file. */
#ifndef TRAIN_RUN_TRACE_H
#define TRAIN_RUN_TRACE_H

#include "trainer.h"

struct run_trace {
    struct ls_trace *trace; /* the trainer's; NULL: off, and nothing happens */
    const struct ls_log *log;
    const struct ls_trainer *trainer;
    const char *phase; /* around the one that was begun */
    double next_s;     /* when it is written again */
    bool failed;       /* it could not be written, and that was said */
};

/* train.out/trace/rank-NNNNN.json. */
void run_trace_open(struct run_trace *trace, const struct ls_trainer *trainer,
                    const struct ls_log *log);
/* A span, and the phase of all within: "save", "evaluate". Not nested. */
void run_trace_begin(struct run_trace *trace, const char *phase);
void run_trace_end(struct run_trace *trace);
/* Writes the file anew: at most every ten seconds and for a twentieth of the time, or now. So a run
 * that is killed leaves a whole file of a while before. A failure is a warning. */
void run_trace_write(struct run_trace *trace, bool now);

#endif
