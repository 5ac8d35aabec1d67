/* What the evaluations of a run say, as metrics.jsonl has them. */
#ifndef TRAIN_BEST_RECORDS_H
#define TRAIN_BEST_RECORDS_H

#include <lockstep/ckpt.h>

struct best_records {
    struct ls_checkpoint_best best; /* the lowest loss of those whose checkpoint is there, among
                                     * evaluations of as many sequences; step -1: none */
    int64_t last, recorded;         /* steps of the last evaluation and record; -1: none */
};
/* Local. Of train.out. */
int best_records_read(const char *out, struct best_records *records, struct ls_error *error);
/* Takes one more, at step best.step; false: it is not the best. */
bool best_records_take(struct best_records *records, const struct ls_checkpoint_best *now);

#endif
