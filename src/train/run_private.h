/* Private to the run: what it is made of. */
#ifndef TRAIN_RUN_PRIVATE_H
#define TRAIN_RUN_PRIVATE_H

#include "train/data_supply.h"
#include "train/drift_watch.h"
#include "train/events.h"
#include "train/records.h"
#include "train/run_folder.h"
#include "train/run_trace.h"
#include "train/second_copy.h"
#include "train/snapshots.h"
#include "train/step_replay.h"

#include <lockstep/base/lock.h>
#include <lockstep/ckpt.h>

/* What is to be done at the next meeting of workers: without workers after each step. */
struct due {
    bool hash, save, evaluate, sample, snapshot;
};

struct ls_running {
    struct ls_trainer *trainer;
    const struct ls_config *given;  /* borrowed while the run is opened */
    const struct ls_config *config; /* the trainer's, once it is there */
    struct ls_comm *world;
    const struct ls_run_hooks *hooks;
    struct records records;
    char origin[PATH_MAX]; /* another run, whose checkpoint this one begins from; "": none, or its
                            * steps up to that are in train.out */
    struct sink best_sink;
    struct events events;
    struct run_trace trace;
    struct drift_watch drift;
    struct data_supply supply;
    struct ls_lock lock;      /* on train.out, of rank 0 */
    struct second_copy *copy; /* of rank 0; NULL: there is none */
    struct best_records best; /* of rank 0 */
    struct ls_digest hash;    /* of the state after hashed_step; -1: none was computed */
    int64_t hashed_step;
    int64_t changes; /* the trainer's, as this run last looked */
    bool unsaved;    /* there were some since the last step, and no checkpoint has them */
    double replay_s; /* that the step's replay took, 0: there was none */
    struct ls_run_token token;
    char snapshots_folder[PATH_MAX];
    struct snapshots snapshots;
    double snapshot_s; /* that they took between two steps */
    bool snapshot_due;
    bool owed;                      /* a checkpoint is due, and not begun */
    int64_t best_step;              /* whose checkpoint is on its way, and is the best; -1: none */
    struct best_records best_after; /* then */
    struct due due;
    int64_t first_step; /* that it goes on from */
    bool stop;          /* a signal asked for the end, or train.out was moved */
    bool writer;        /* rank 0 */
    bool beside; /* files may be written while steps go on: no caller changes what they get */
    bool moved;  /* train.out was, while the run wrote to it */
};

/* Collective. Every rank's train.out is that of rank 0. */
int run_out_follow(struct ls_running *run, struct ls_error *error);
/* Local, on rank 0, first of all that follows the state. Whether the run can go on with what it was
 * given: its records are read; the run that it goes on from, its plan and its data are looked at.
 * Nothing is changed, so that one that is refused stays as it was. */
int run_start_check(struct ls_running *run, bool resumed, struct ls_error *error);
/* Local, on rank 0. What became of copies in the second place goes to the records. */
int run_copies_tell(struct ls_running *run, struct ls_error *error);
/* Local. Parameters that the caller changed between two steps make another state, which is neither
 * hashed nor saved. */
void run_changes_look(struct ls_running *run);
/* Local. Whether the state is the one that the run began with, and not a snapshot's, which would be
 * lost with that. And whether nothing is to be saved. */
bool run_begins(const struct ls_running *run);
bool run_stands(const struct ls_running *run);
/* Local. Whether steps remain up to the run's last one. */
bool run_steps_remain(const struct ls_running *run);
/* Whether an evaluation follows the step: every so many, and the last one. None is of the initial
 * weights, unless no step follows. */
bool run_evaluates(const struct ls_config *config, int64_t step);
/* Collective. A signal ends it with LS_ESTOPPED while steps remain: the next start makes it up. */
int run_evaluate(struct ls_running *run, struct ls_error *error);
/* Collective. A run that was killed between a checkpoint and its evaluation, or asked to end there,
 * evaluates now. One that goes on from the checkpoint of another has no record of its step. */
int run_evaluation_make_up(struct ls_running *run, struct ls_error *error);
/* Collective. The checkpoint of the state as it is. last: there is no later occasion. */
int run_save(struct ls_running *run, bool last, struct ls_error *error);
/* Collective, after each step and its record: snapshots and checkpoints that are under way get
 * their names if they are complete, and new ones are begun. saves: a checkpoint is due. */
int run_saves(struct ls_running *run, bool saves, bool last, bool stop, struct ls_error *error);
/* Collective. A checkpoint of this step is kept where it has the lowest validation loss so far,
 * among evaluations of as many sequences. */
int run_best_keep(struct ls_running *run, const struct ls_eval_report *r, struct ls_error *error);
/* Collective, at the end of a run that fails alike on all ranks: the checkpoint that is on its way
 * is completed. Otherwise (alike is false) Local: if there is one, what is lost is told. */
void run_save_end(struct ls_running *run, bool alike);
/* Local, on rank 0: what an earlier part of this run found best, of the same data. Its records say
 * so; the file, if there are none of them. A run that was killed between the two writes is mended
 * here, before anything is pruned. */
int run_best_open(struct ls_running *run, struct ls_error *error);
/* Local, on rank 0. Names the best one. */
int run_best_write(struct ls_running *run, struct ls_error *error);

#endif
