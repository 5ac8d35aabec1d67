/* A step computed a second time, each rank's part by another rank (check.replay): what a rank
 * computes wrongly alone, and holds alone, no comparison of copies shows. */
#ifndef TRAIN_STEP_REPLAY_H
#define TRAIN_STEP_REPLAY_H

#include "train/trainer.h"

/* In memory.file: where the second trainer offloads to. */
#define REPLAY_FOLDER "replay"

/* Local. Whether the step is one of those: drawn with probability check.replay, from seed and step
 * alone. */
bool replay_due(const struct ls_config *config, int64_t step);
/* Local. LS_ECONFIG if nothing can be replayed: there is one rank, or mode fast, or servers. */
int replay_admit(const struct ls_config *config, struct ls_error *error);

struct replay;
/* Of workers (workers.h) it is the interval that begins with the step.
 *
 * Collective. Before the step: a second trainer, in which rank w has the place of rank w + 1 (the
 * last one that of rank 0), and the state of this one. It takes as much memory as the first.
 * *out is NULL, with a warning, where the system refuses its files in memory.file. */
int replay_new(struct ls_trainer *trainer, struct replay **out, struct ls_error *error);
/* Collective. Behind the trainer's step: the same step again. *hash is that of the state.
 * LS_ENUMERIC if it differs, with the ranks that computed the part that does, if there is one;
 * or where what a rank held changed between two steps that were replayed. */
int replay_judge(struct replay *replay, struct ls_digest *hash, struct ls_error *error);
/* replay may be NULL. */
void replay_free(struct replay *replay);

#endif
