/* Seconds of ops by kind, measured while a rank works (log.profile). Two readings of the clock an
 * op. With a trace each op is a span of it, too. */
#ifndef TRAIN_WORK_TIMES_H
#define TRAIN_WORK_TIMES_H

#include <lockstep/ops.h>
#include <lockstep/trace.h>

struct work_times {
    struct ls_trace *trace; /* borrowed; NULL: none */
    double begin_s;         /* of the op that is under way */
    double work_s[LS_WORK_KINDS];
    int64_t works[LS_WORK_KINDS];
};

/* times and trace (NULL: none) are borrowed by what watches. */
struct ls_queue_watch work_times_watch(struct work_times *times, struct ls_trace *trace);
void work_times_clear(struct work_times *times);

#endif
