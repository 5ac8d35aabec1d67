/* A second copy of each checkpoint, in the place that checkpoint.also names. A thread of rank 0
 * copies, one checkpoint at a time; the run waits for it only at its end. All Local, on rank 0. */
#ifndef TRAIN_SECOND_COPY_H
#define TRAIN_SECOND_COPY_H

#include "train/events.h"

struct second_copy;
/* Opens the place, before anything is computed: *out is NULL, with success, if there is none. A
 * run that begins anew (train.resume=never) is refused a place that holds checkpoints. With
 * train.resume=auto, where the place has a newer whole copy than train.out has checkpoints, that is
 * fetched; of copies that are damaged the next older one. A place that has another run's copies is
 * refused, unless train.out is new and the run goes on from them: it is that run then. One that
 * cannot be reached is a warning where train.out has a checkpoint. */
int second_copy_open(struct second_copy **out, const struct ls_config *config,
                     const struct ls_log *log, struct ls_error *error);
/* Whether the path is that of a copy in the place, which is a directory. */
bool second_copy_holds(const struct ls_config *config, const char *checkpoint);
/* The run's name (ls_run_token), before anything is committed: the place will be its own. */
void second_copy_own(struct second_copy *copy, const char *run);
/* Resuming found damage in each checkpoint of train.out: fetches the newest copy, and says so.
 * False if the newest is sound after all, or no copy is. Before anything was committed. */
bool second_copy_restore(struct second_copy *copy, const struct ls_config *config,
                         const struct ls_log *log);
/* The run goes on from a checkpoint that the user named, of that step, before anything of train.out
 * is changed for it. Copies of later steps leave with the first copy of such a step that it
 * makes itself. Until then no start fetches them: a file in train.out, went_back, says so. */
int second_copy_went_back(struct second_copy *copy, const struct ls_config *config, int64_t step,
                          const struct ls_log *log, struct ls_error *error);
/* A checkpoint of run_directory is complete: it is copied next. One that still waits is skipped. */
void second_copy_committed(struct second_copy *copy, const char *run_directory, int64_t step);
/* Takes what became of the oldest copy that was not asked for yet; false if there is none. */
bool second_copy_next(struct second_copy *copy, struct copy_outcome *outcome);
/* Waits for the last copy. */
void second_copy_finish(struct second_copy *copy);
/* Gives up what is being copied. copy may be NULL, here and above. */
void second_copy_close(struct second_copy *copy);

#endif
