/* Snapshots of a run: checkpoints in the memory of its machines (snapshot.every), which outlive its
 * ranks, and from which the checkpoints of train.out are written while steps go on. Without them
 * these are written from a copy in memory that has no name (checkpoint.async), which is there from
 * the first one on.
 *
 * They lie in snapshot.folder/lockstep-UID-RUN-HOST, RUN from the run's token (lockstep/ckpt.h):
 * another run of the same path does not find them, and hosts that share the memory do not write to
 * one folder. A run that ends well removes them. */
#ifndef TRAIN_SNAPSHOTS_H
#define TRAIN_SNAPSHOTS_H

#include "train/trainer.h"

#include <lockstep/ckpt.h>

struct snapshots {
    struct ls_trainer *trainer; /* NULL: none are taken, and checkpoints are waited for */
    bool nameless;              /* none are taken but of what is stored, without a name */
    const struct ls_log *log;   /* NULL but on rank 0 */
    char folder[PATH_MAX];      /* of this run, the same on each machine */
    bool first;                 /* this rank is the first of its machine */
    int64_t named;              /* the step of the newest that has a name; -1: none has */
    int64_t spare;              /* of the one before, whose files the next one may take; or -1 */
    struct ls_saving *newest;   /* has no name yet, or NULL */
    struct ls_saving *storing;  /* on its way to train.out, or NULL; workers have their own */
    bool stores;                /* the newest is to be */
    bool refused;               /* the memory had no room for the last one */
    int64_t missed;             /* so many in a row */
    int held_up;                /* checkpoints that were due since storing began */
    double begun_s, stored_s;   /* when newest and storing began; 0: none has */
    double cost_s;              /* of the last one that was named, on this rank; 0: none was */
    double every_s;             /* snapshot.every=auto: between two of them; 0: not known yet */
    double before_s;            /* what snapshots_weigh was told last; 0: nothing */
    int64_t weighed;            /* how often it was told of two */
    double machines;
};

/* Local. Where the snapshots of a run are. */
int snapshots_find(const struct ls_config *config, const struct ls_run_token *token,
                   char folder[PATH_MAX], struct ls_error *error);
/* Local. Whether the folder is there and is not this user's, as error says: all may write where it
 * lies, and what it holds may be anybody's. */
bool snapshots_foreign(const char *folder, struct ls_error *error);
/* Collective, once the trainer's state is there. Removes what is left of runs that are gone, and of
 * this one what it did not go on from. If snapshots are not asked for, or the folder cannot be
 * made, which is a warning, none are taken. The trainer's checkpoints are then written beside steps
 * if it has memory for that. */
int snapshots_open(struct snapshots *snapshots, struct ls_trainer *trainer, const char *folder,
                   const struct ls_run_token *token, const struct ls_log *log,
                   struct ls_error *error);
/* Local. Whether one is due after that step: by its number, or, of snapshot.every=auto, by the
 * clock of the rank that asks, which has to be one for all. */
bool snapshots_due(const struct snapshots *snapshots, int64_t step);
/* Local, once one was named. Its cost, of the mean rank, says how often they are taken. */
void snapshots_weigh(struct snapshots *snapshots, double cost_s);
/* Collective, after a step. The state as it is now; hash as of ls_saving_begin. Of workers it is
 * complete at once. */
int snapshots_take(struct snapshots *snapshots, bool stored, const struct ls_digest *hash,
                   struct ls_error *error);
/* Collective, after the next one: it gets its name, if it is to have one. Without room for it: a
 * warning, and refused. */
int snapshots_name(struct snapshots *snapshots, struct ls_error *error);
/* Local. The step of the checkpoint that is on its way to train.out; -1: there is none. Cancelled
 * it will not be finished, unless it is already. */
int64_t snapshots_storing(const struct snapshots *snapshots);
void snapshots_cancel(struct snapshots *snapshots);
/* Collective. *step is that of a checkpoint which is complete now, or, with a status, could not be
 * written; -1: there is none. wait: for one that is under way. save_s: since it began. */
int snapshots_stored(struct snapshots *snapshots, bool wait, int64_t *step, double *save_s,
                     struct ls_error *error);
/* Local. Another checkpoint is due, after that step, while one is on its way. The log says so, and
 * the second time it is a warning: the disk is slow, or hangs. */
void snapshots_held_up(struct snapshots *snapshots, int64_t due);
/* Local. A checkpoint of train.out is complete: if no snapshots are taken, that which the run went
 * on from is removed. */
void snapshots_outdated(struct snapshots *snapshots);
/* Collective. The state is damaged, so snapshots may be: they are removed on all machines. A
 * warning names a folder that cannot be. */
void snapshots_void(struct snapshots *snapshots, struct ls_comm *world);
/* Local. stay: the run will go on from them. */
void snapshots_close(struct snapshots *snapshots, bool stay);

#endif
