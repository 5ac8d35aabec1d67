/* Seconds of ops by kind, measured while a rank works (log.profile). Two readings of the clock an
 * op. */
#ifndef TRAIN_WORK_TIMES_H
#define TRAIN_WORK_TIMES_H

#include <lockstep/ops.h>

struct work_times {
    double begin_s; /* of the op that is under way */
    double work_s[LS_WORK_KINDS];
    int64_t works[LS_WORK_KINDS];
};

/* times is borrowed by what watches. */
struct ls_queue_watch work_times_watch(struct work_times *times);
void work_times_clear(struct work_times *times);

#endif
