/* Private to train: workers, replicas of the model that train by themselves and meet now and then
 * (async.mode = diloco, doc/async.md).
 *
 * A worker is a unit of state, and so are the global parameters: their optimizer is the outer one,
 * their gradient the mean over workers of (global - worker's parameters). The ranks of a run form
 * parallel.workers groups; each has the layout of one worker and computes async.workers / groups of
 * them in turn. So t->world, t->groups and t->layout are those of a group, and t->whole has all.
 *
 * Between two meetings lies an interval of ls_config_interval steps, in two phases: up to where the
 * deltas of a fragment leave, and the async.delay steps behind that. In each phase a group computes
 * its workers one after the other. No group hears of another one before they meet. */
#ifndef TRAIN_WORKERS_H
#define TRAIN_WORKERS_H

#include "train/stage.h"

#include <lockstep/ckpt.h>

struct workers;

/* Collective over t->whole, once t->layout is known. Sets t->world, and t->workers where
 * async.mode asks for them. */
int workers_open(struct ls_trainer *t, struct ls_error *error);
/* Local, once t->params is there. */
int workers_params(struct ls_trainer *t, struct ls_error *error);
/* Local. Gives up what is under way; then, with all else freed, the rest. */
void workers_stop(struct ls_trainer *t);
void workers_close(struct ls_trainer *t);

/* Collective over t->whole. The next step's report; the first one of an interval computes all. */
int workers_step(struct ls_trainer *t, struct ls_step_report *report, struct ls_error *error);
/* Collective over t->whole. Units have the state of a meeting, from elsewhere: behind it comes the
 * next interval. */
int workers_at_meeting(struct ls_trainer *t, struct ls_error *error);
/* Local. Steps that were reported. */
int64_t workers_told(const struct workers *workers);

/* Local. The step of this rank's worker that follows the one under way: which worker's, and what
 * that has consumed then. On entry: this one's, after the step. False: that is not known yet. */
bool workers_next(const struct ls_trainer *t, int *worker, int64_t *samples);
/* Local. Where a worker's batch begins in the order of the run's samples. With diloco each step
 * takes one range: the batches of all workers, by index, of which so many sequences are before the
 * batch of the worker under way (workers_shift). */
int64_t workers_place(const struct workers *workers, int worker, int64_t samples, int64_t batch);
int64_t workers_shift(const struct workers *workers, int64_t batch);
/* Local. Steps of the run before the worker under way began, or began anew: its moments have seen
 * those behind. */
int64_t workers_joined(const struct workers *workers);

/* Collective over t->whole: of all workers and the global parameters. Files:
 * RUN/checkpoints has the global ones, RUN/workers/%04d/checkpoints a worker's; a checkpoint is
 * complete with the former, which are written last. */
int workers_hash(struct ls_trainer *t, struct ls_digest *digest, struct ls_error *error);
/* Local. What was hashed is no longer the state. */
void workers_changed(struct workers *workers);
int workers_save(struct ls_trainer *t, struct ls_error *error);
int workers_resume(struct ls_trainer *t, bool *resumed, struct ls_error *error);
/* Local, on rank 0, before the first step. The run begins from a checkpoint of another one: who
 * took part in that up to there is part of RUN/members, and from there on all do. */
int workers_begin_from(const struct ls_trainer *t, const char *run, struct ls_error *error);
/* Local, of the first rank of a machine. The folders of workers' snapshots in that of the run's,
 * and in them nothing but what goes with the one that is named, of that step; -1: none is. */
int workers_snapshots_open(const struct ls_trainer *t, const char *snapshots, int64_t named,
                           const struct ls_run_token *token, struct ls_error *error);
/* Collective over t->whole, before there are any: the groups that take them. A rank that dies while
 * MPI makes these ends the job, and what others keep of an interval would be lost. */
int workers_snapshots_comms(struct ls_trainer *t, struct ls_error *error);
/* Collective over t->whole, at a meeting: a snapshot of all, which has its name when this returns.
 * newest, spare and stored as of ls_saving_begin: a checkpoint to be stored is on its way then. */
int workers_snapshot(struct ls_trainer *t, const char *snapshots, int64_t newest, int64_t spare,
                     bool stored, struct ls_error *error);
/* Local. The step of the checkpoint that is on its way to the run's folder; -1: there is none.
 * Whether this rank's threads have nothing more to do for it. And as of ls_saving_cancel, and of
 * ls_saving_free. */
int64_t workers_storing(const struct ls_trainer *t);
bool workers_stored(const struct ls_trainer *t);
void workers_store_cancel(struct ls_trainer *t);
void workers_store_drop(struct ls_trainer *t);
/* Collective over t->whole. It gets its name once it is done; whatever came of it, none is on its
 * way then. */
int workers_store(struct ls_trainer *t, struct ls_error *error);
/* Collective over t->world, after LS_ECOMM: what outlives a rank that died is kept for the next
 * start (workers_private.h). False: no rank is known to have died, or the job does not survive
 * that. Otherwise error says what was lost and what is kept. */
bool workers_rescue(struct ls_trainer *t, struct ls_error *error);
/* Local. Steps of the run that such workers had done, and this start did not have to do. */
int64_t workers_rescued(const struct ls_trainer *t);

/* Collective over t->world. The copies that are computed with become those of the global
 * parameters', which evaluations and samples read. */
int workers_publish(struct ls_trainer *t, struct ls_error *error);

/* One optimizer step of t->state, on the next batch of the data; and its parts: a gradient of
 * t->state, of that batch or the one that was given (given_admit); an update of t->state with
 * t->state->gradient, which makes it known where it shares; the report. */
int step_once(struct ls_trainer *t, struct ls_step_report *report, struct ls_error *error);
int step_gradient(struct ls_trainer *t, bool given, struct train_batch *batch,
                  struct train_gradient *gradient, struct ls_step_report *report,
                  struct ls_error *error);
int step_update(struct ls_trainer *t, const struct train_gradient *gradient, bool shares,
                struct ls_step_report *report, struct ls_error *error);
/* Local. The unit's loss scale behind a gradient that was computed with `scale`: one that
 * overflowed with a scale that was lowered since says nothing of the one in use. False: the run
 * cannot go on. */
bool step_loss_scale(const struct ls_trainer *t, struct ls_state *unit, double scale, bool finite);
void step_report(struct ls_trainer *t, const struct train_batch *batch,
                 const struct train_gradient *gradient, struct ls_step_report *report);
/* The digest of a step's samples, from that one on, on rank 0. */
void step_ledger(const struct ls_trainer *t, int64_t first, struct ls_step_report *report);
/* Of so many tokens per second. */
double step_peak_share(struct ls_trainer *t, double tokens_per_s);

#endif
