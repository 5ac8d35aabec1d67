/* The folder of a run, train.out, which rank 0 has locked. All Local, on rank 0, but for
 * run_folder_sweep_tiers. */
#ifndef TRAIN_RUN_FOLDER_H
#define TRAIN_RUN_FOLDER_H

#include <lockstep/base/lock.h>
#include <lockstep/config.h>

/* Whether the folder is where it was locked. Otherwise out, the trainer's train.out, becomes its
 * present name: later writes go there, and nothing is made under the old name, which has no lock.
 * LS_EIO if it cannot be found. */
int run_folder_find(const struct ls_lock *lock, char *out, const struct ls_log *log, bool *in_place,
                    struct ls_error *error);
/* LS_EIO if it is not where it was locked: a run that starts has nothing to save, and may have read
 * nothing under the old name. LS_OK if there is no lock. */
int run_folder_stays(const struct ls_lock *lock, const struct ls_config *config,
                     struct ls_error *error);
/* Local, on rank 0. LS_ECONFIG if the run's config.yaml would replace somebody's own. */
int run_folder_check(const struct ls_config *config, struct ls_error *error);

/* Removes what a killed run left half-written. Only names that a run itself writes: a picture, say,
 * may be under way beside it. */
void run_folder_sweep(const struct ls_config *config, const struct ls_log *log);
/* On the first rank of each machine: removes what killed ranks there offloaded to memory.file, now
 * or in the start before, as the config.yaml of that says. What a process holds stays. */
void run_folder_sweep_tiers(const struct ls_config *config, const struct ls_log *log);

/* The run goes on from a checkpoint that the user named, of that step. Later ones are of steps that
 * it computes again, maybe otherwise: each becomes step-%08d.old, and no start goes on from it. */
int run_folder_go_back(const struct ls_config *config, int64_t step, const struct ls_log *log,
                       struct ls_error *error);

#endif
