/* What the evaluations of a run say, as metrics.jsonl has them. */
#ifndef TRAIN_BEST_RECORDS_H
#define TRAIN_BEST_RECORDS_H

#include <lockstep/ckpt.h>
#include <lockstep/trace.h>

struct best_records {
    struct ls_checkpoint_best best; /* the lowest loss of those whose checkpoint is there, among
                                     * evaluations of as many sequences; step -1: none */
    int64_t last, recorded;         /* steps of the last evaluation and record; -1: none */
};
#define BEST_RECORDS_NONE ((struct best_records){.best = {.step = -1}, .last = -1, .recorded = -1})
/* Local. Takes the next record of a run's. out: where its checkpoints are. */
void best_records_see(struct best_records *records, const char *out,
                      const struct ls_record *record);
/* Takes one more, at step best.step; false: it is not the best. */
bool best_records_take(struct best_records *records, const struct ls_checkpoint_best *now);

#endif
