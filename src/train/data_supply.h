/* Whether data from elsewhere comes as fast as steps need it. */
#ifndef TRAIN_DATA_SUPPLY_H
#define TRAIN_DATA_SUPPLY_H

#include "train/trainer.h"

/* Of one rank. */
struct data_supply {
    bool begun;            /* a step is done: the first one waits for what no step could hide */
    int64_t fetched_bytes; /* until the last step */
    int64_t said_step;     /* when it was last said that data comes too slowly; 0: never */
};
/* Local. Reads that wait for a server end once *stop is not zero (NULL: never). log (NULL: none)
 * hears which files there are, if a source is of several. */
void data_supply_begin(struct data_supply *supply, struct ls_trainer *trainer,
                       const volatile int *stop, const struct ls_log *log);
/* Local, after a step: what caches had to say, and if the step waited for data from elsewhere, the
 * bytes a second that it needs and that came. */
void data_supply_step(struct data_supply *supply, const struct ls_trainer *trainer,
                      const struct ls_step_report *report, const struct ls_log *log);

#endif
