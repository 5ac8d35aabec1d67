/* What the parts of workers share. */
#ifndef TRAIN_WORKERS_PRIVATE_H
#define TRAIN_WORKERS_PRIVATE_H

#include "train/workers.h"

/* An exchange of one fragment's deltas between groups, while workers go on. */
enum exchange_stage { EXCHANGE_NONE, EXCHANGE_DELTAS, EXCHANGE_SUMS, EXCHANGE_DONE };
struct exchange_run {
    enum exchange_stage stage;
    struct ls_request request;
    int64_t piece; /* elements of a group's share */
    double wait_s; /* that this rank waited for others */
    /* Why it cannot end; LS_OK: it can. Nobody is met then. If it is LS_ECOMM, as a rank has ended,
     * the steps beside it are done. */
    int lost;
};
/* Whether this rank alone is why, such as for want of memory. Others wait in what it did not start,
 * and hear of it as it leaves. */
static inline bool exchange_leaves(const struct exchange_run *run)
{
    return run->lost && run->lost != LS_ECOMM;
}

enum { WORKERS_MAX = LS_DELTA_INT8_WORKERS_MAX };

struct server;
struct members;

/* Where an interval stands, as far as another start of the job could go on from there. */
enum workers_stage { WORKERS_AT_WORK, WORKERS_HAVE_DELTAS, WORKERS_MET };

/* What another start of the job has kept of an interval. */
struct rescue {
    bool found;
    bool met;                  /* behind the outer step; of a server: with the notes of its steps */
    int from;                  /* a worker that it is of */
    bool has[WORKERS_MAX + 1]; /* of these; the last one is the server */
    bool placed[WORKERS_MAX];  /* who took samples */
    int64_t outer_step;        /* of the global parameters; -1: without them */
    int64_t base, start;       /* samples, as below */
    int64_t step, samples;     /* of each worker; -1: without it */
    double outer_norm;
};

/* A note of a step: what a worker says of it. Behind these, by source: loss times the weight, and
 * this. The weight: what the loss was divided by, tokens that count or the sum of their weights. */
enum {
    NOTE_LOSS, /* times the weight */
    NOTE_WEIGHT,
    NOTE_COUNTED,
    NOTE_NORM,
    NOTE_SKIPPED,
    NOTE_STEP_S,
    NOTE_DATA_S,
    NOTE_WAIT_S, /* [LS_ACCOUNTS] */
    NOTE_OPTIMIZER_S = NOTE_WAIT_S + LS_ACCOUNTS,
    NOTE_SEQUENCES,
    NOTE_LOSS_SCALE,
    NOTE_GRADIENT_LOSS, /* of a push, as they are */
    NOTE_GRADIENT_NORM,
    NOTES
};

struct workers {
    struct members *membership;
    bool member[WORKERS_MAX];    /* [count] who takes part in the interval's outer step */
    bool renew[WORKERS_MAX];     /* [count] who begins anew behind it all the same */
    bool placed[WORKERS_MAX];    /* [count] who takes samples: also those that were lost */
    int places;                  /* so many do */
    int index[WORKERS_MAX];      /* [count] of these the how many-th */
    int64_t joined[WORKERS_MAX]; /* [count] steps of the run when it began, or began anew */
    int members;                 /* so many take part */
    int64_t base, start;         /* samples when the interval began: of the run, of each worker */
    struct server *server;       /* NULL: with diloco */
    struct ls_comm *own;         /* t->world, if it is not t->whole */
    struct ls_comm *across;      /* the ranks of this one's place in all groups, by group */
    struct ls_comm *from[WORKERS_MAX + 1]; /* [all] t->whole, that group's ranks first; NULL: not
                                            * made yet */
    int groups, group;   /* groups of workers; of ranks, this one: behind those a server's */
    int all;             /* groups of ranks */
    int owner;           /* the group whose global parameters are saved and hashed */
    int held;            /* workers of this group: each, or none of a server's */
    int each, count;     /* workers of a group, and in all; a group has consecutive ones */
    int fragments;       /* of the model */
    int64_t interval;    /* steps between two meetings */
    int64_t delay;       /* of them those behind the start of an exchange */
    int64_t begin, told; /* steps done when the interval began, and reported */
    int worker;          /* of the group, under way */
    int64_t left;        /* steps of its phase, the one under way included */
    bool ends;           /* the phase: the interval does with it */
    int64_t phase;       /* samples that each had consumed when the phase began */

    int *place;                                 /* [params] of each in the whole model */
    int whole;                                  /* parameters of that */
    int *fragment;                              /* [params], -1: frozen */
    float *scales;                              /* [whole] */
    struct ls_digest hashes[WORKERS_MAX], hash; /* [each], and of all, after hashed_step */
    int64_t hashed_step;                        /* -1: none */
    int64_t sound;                              /* ls_state_load said so of a unit */
    bool unrecorded;                            /* ls_trainer_record_nothing */
    bool kept; /* workers' folders have what runs' folders keep of their inputs */
    struct ls_saving *storing[WORKERS_MAX + 1]; /* [count + 1] of each unit: on its way to the
                                                 * run's folder, or NULL */
    struct exchange_run exchange;
    double outer_norm;
    enum workers_stage stage;
    struct rescue rescue;
    char *kept_deltas[WORKERS_MAX]; /* [each] that had left when a rank died; NULL: none */

    /* Of an interval's steps: what this group's workers say, and what all do. */
    size_t note_size;               /* doubles of one note */
    double *mine, *notes;           /* [interval, each], [groups, interval, each] */
    double *waits;                  /* [all] for the others */
    struct ls_step_report *reports; /* [interval] */
    float *source_losses;           /* [interval, sources] */
    struct ls_config config;        /* of a unit that is saved or loaded */
};

/* The global parameters. */
static inline struct ls_state *workers_outer(const struct ls_trainer *t)
{
    return &t->units[t->unit_count - 1];
}
/* The fragment that has its turn at the end of the interval, and its how many-th turn that is, from
 * 1. */
static inline int workers_fragment(const struct workers *w)
{
    return (int)(w->begin / w->interval % w->fragments);
}
static inline int64_t workers_turn(const struct workers *w)
{
    return w->begin / w->interval / w->fragments + 1;
}

/* Collective over t->whole: ls_comm_agree. A rank of another group that dies meanwhile may leave
 * some ranks behind it and some not: all ranks of a group then fail, and none waits for the others.
 * So all of them call it, whatever they have come to. */
int workers_agree(struct ls_trainer *t, int status, struct ls_error *error);

/* Collective over t->world. It is t->state, and what is computed with is its own. */
int unit_enter(struct ls_trainer *t, struct ls_state *unit, struct ls_error *error);

/* What a report says, as a note of note_size doubles. */
void workers_note(const struct ls_trainer *t, const struct ls_step_report *report, double *note);

/* Collective over t->whole. The notes of all workers of an interval's steps. */
int reports_gather(struct ls_trainer *t, struct ls_error *error);
/* Local. Reports of these steps; the counters of the units follow. */
void reports_make(struct ls_trainer *t);
/* Local. Of so many steps, what that worker says of one. */
const double *reports_note(const struct workers *w, int worker, int64_t step);
/* Local. What reports of the interval's steps, each the push of one worker, have from its note. */
void reports_pushes(struct ls_trainer *t);

/* Whether a worker of this group takes part in the interval's outer step. */
static inline bool workers_takes_part(const struct workers *w, int worker)
{
    return w->member[w->group * w->each + worker];
}

/* Of which fragment parameter i is; -1: it is not trained. Blocks are cut into runs of equal
 * length; tables, and what else is in no block, are of the first fragment. */
int exchange_fragment(const struct ls_params *params, int layers, int fragments, int i);
/* Collective over t->whole. The deltas of the interval's fragment, of all workers of this group,
 * leave. status: what came of their steps, and is returned; with async.delay, on all ranks of the
 * group. After a failure the group goes on to where all agree on it (interval_run), with whatever
 * it has, because others wait for its part; but not after LS_ECOMM, or if it leaves. */
int exchange_begin(struct ls_trainer *t, int status, struct ls_error *error);
/* Local. Deltas of a worker of this group and of this rank, as they left, between that text of so
 * many bytes and the buffer that they leave from; and a hash of which elements these are. */
size_t exchange_deltas_bytes(struct ls_trainer *t);
void exchange_deltas_copy(struct ls_trainer *t, int worker, char *text, bool to_text);
uint64_t exchange_deltas_hash(struct ls_trainer *t);
void exchange_deltas_drop(struct workers *workers); /* kept_deltas */
/* Collective over `across`. Goes on as far as it can without waiting. */
int exchange_poll(struct ls_trainer *t, struct ls_error *error);
/* Collective over t->whole. All deltas are there, and their sums. */
int exchange_wait(struct ls_trainer *t, struct ls_error *error);
/* Collective over t->world, behind that. The outer step: the global parameters of the fragment are
 * new, and workers take them up. */
int exchange_end(struct ls_trainer *t, struct ls_error *error);
/* Local. The worker of this group is as one that begins with the global parameters as they are.
 * Errors of the tier's disk. */
int exchange_renew(struct ls_trainer *t, int worker, struct ls_error *error);

/* workers_rescue.c: what a job whose ranks survive the death of one (ls_mpi_survives) keeps of an
 * interval. Groups that lost a rank leave. Each of the others writes its workers, as they are
 * behind the steps of the interval or behind the outer step, what they say of these steps, and the
 * global parameters, to RUN/rescue, and ends: all without a word to another group. The next start
 * of the job takes that up and goes on from there. Who is not in it was lost, and RUN/members says
 * so before it counts. A checkpoint that is as new makes RUN/rescue needless.
 *
 * Local. Whether this job survives the death of a rank: with DiLoCo, and with a server by the clock
 * that has ranks of its own. And a rank of that group, -1: of any, that is known to have ended; -1:
 * none. A message that fails may tell of a death before the system does, so this waits a while. */
bool rescue_applies(const struct ls_trainer *t);
int rescue_lost(const struct ls_trainer *t, int group);
/* Collective over t->whole. Reads RUN/rescue if there is one that is newer than the checkpoint of
 * that step (-1: there is none). *resumed: the run goes on from it. */
int rescue_resume(struct ls_trainer *t, int64_t saved, bool *resumed, struct ls_error *error);
/* Local. Whether deltas that are on their way beside steps can be kept: not int8, whose scale is of
 * all workers, the one that died included. */
bool rescue_keeps_deltas(const struct ls_trainer *t);
/* Collective over `across`. In place of an interval's steps, which are done: their deltas leave. */
int rescue_take(struct ls_trainer *t, struct ls_error *error);
/* Local, on rank 0. It is not needed any more. */
void rescue_remove(const struct ls_trainer *t);
/* workers_snapshots.c. Collective over t->whole. The newest snapshot, as of
 * ls_checkpoint_collect, all of its units opened: close them. *step is -1 if there is none. And one
 * that cannot be used is removed, with what is newer. */
int workers_snapshot_collect(struct ls_trainer *t, const char *snapshots,
                             struct ls_checkpoint_saved than, int64_t *step,
                             struct ls_checkpoint *opened[WORKERS_MAX + 1], struct ls_error *error);
void workers_snapshot_close(const struct workers *workers,
                            struct ls_checkpoint *opened[WORKERS_MAX + 1]);
int workers_snapshot_remove(struct ls_trainer *t, const char *snapshots, int64_t step,
                            struct ls_error *error);
/* Collective over t->world. workers_state.c: a unit's configuration is that of its folder in a
 * run's folder, until unit->config is set again; -1: in that itself. The folder belongs to this
 * start of the run. And the unit as it was saved there. */
int unit_folder(struct ls_trainer *t, struct ls_state *unit, const char *run, int64_t worker,
                struct ls_error *error);
/* Collective over t->world. The same for a checkpoint of the k-th worker of this group, in the
 * folder of this run. */
int unit_saves(struct ls_trainer *t, int k, struct ls_error *error);
/* Local. What was appended to that file of the run is on the disk: a checkpoint that a power cut
 * leaves is worth nothing without the records that came before it. */
int workers_record_sync(const struct ls_trainer *t, const char *name, struct ls_error *error);
/* Collective over t->whole, once the workers' files of a checkpoint of that step are written.
 * status: what came of those of this group. The global parameters' follow, by `save`, which the
 * ranks of the owner call with what came of all: it returns a status that it is given. Then older
 * ones go. */
typedef int units_outer_save(struct ls_trainer *t, int status, struct ls_error *error);
int units_saved(struct ls_trainer *t, int64_t step, int status, units_outer_save *save,
                struct ls_error *error);
int unit_load(struct ls_trainer *t, struct ls_state *unit, const char *run, int64_t worker,
              int64_t step, struct ls_error *error);

#endif
