/* What a run records of its steps and evaluations: metrics.jsonl, TensorBoard's events,
 * metrics.prom. A file that the system refuses to write does not end the run (train/sink.h). Rank 0
 * has them; on others the struct is zero. Everything is Local. */
#ifndef TRAIN_RECORDS_H
#define TRAIN_RECORDS_H

#include "train/metrics_prom.h"
#include "train/sink.h"
#include "train/trainer.h"

#include <lockstep/ckpt.h>
#include <lockstep/train/chain.h>

/* What the evaluations of a run say, as metrics.jsonl has them. */
struct best_records {
    struct ls_checkpoint_best best;    /* the lowest loss of those whose checkpoint is there, among
                                        * evaluations of as many sequences of the same data; step
                                        * -1: none */
    struct ls_checkpoint_best before;  /* that was the best until this one came */
    struct ls_checkpoint_best dropped; /* the last time by best_records_drop; step -1: none was */
    int64_t last, recorded;            /* steps of the last evaluation and record; -1: none */
    char valid[33], seen[33];          /* digests of data.valid, and of that of the start whose
                                        * records are read; "": none is known */
    bool others;                       /* there are evaluations of other data */
};
#define BEST_RECORDS_NONE                                                                          \
    ((struct best_records){.best = {.step = -1},                                                   \
                           .before = {.step = -1},                                                 \
                           .dropped = {.step = -1},                                                \
                           .last = -1,                                                             \
                           .recorded = -1})
/* Takes one more, at step best.step; false: it is not the best. */
bool best_records_take(struct best_records *records, const struct ls_checkpoint_best *now);
/* The checkpoint of that step, in the run `out`, becomes one of a state that was not evaluated: if
 * it was the best, the one before is, where it is still there. False: it was not. */
bool best_records_drop(struct best_records *records, const char *out, int64_t step);
/* Behind that: it did not, and is the best again, if it was. False: it was not. */
bool best_records_restore(struct best_records *records, int64_t step);

struct records {
    const struct ls_trainer *trainer; /* borrowed, as log is */
    const struct ls_log *log;
    struct ls_jsonl *metrics;
    int64_t metrics_bytes;        /* of the records that stay */
    int64_t last_step;            /* that has a record; 0: none has */
    char last_hash[33];           /* of its state, in that; "": it has none */
    char chain[LS_CHAIN_BYTES];   /* of it; "": it has none */
    struct ls_tensorboard *board; /* NULL: none were asked for, or it cannot be opened so far */
    int64_t purge_step;           /* for it: of older files what is before it counts */
    struct metrics_prom prom;
    struct sink metrics_sink, board_sink, prom_sink;
    struct best_records best; /* as they were when they were opened */
    char (*data_seen)[33];    /* [sources] digests of the data that an earlier start recorded */
    double peak_flops;        /* that an earlier start measured, of trainer->peak_of; 0: none did */
};
/* Reads the records in train.out of a run that goes on (resumed) up to the step it goes on from,
 * once: 10^6 of them take seconds. origin: the other run whose checkpoint that is of, or "": its
 * records say what data it was trained on. Reads data.valid for its digest. Nothing is written. */
int records_read(struct records *records, const struct ls_trainer *trainer,
                 const struct ls_log *log, bool resumed, const char *origin,
                 struct ls_error *error);
/* Behind that: opens the files. Records behind the step that the run goes on from are cut off. A
 * run that begins anew keeps an older one's aside. */
int records_open(struct records *records, bool resumed, struct ls_error *error);
/* Says how many records are missing at the end, if any. */
void records_tell_lost(struct records *records);
void records_close(struct records *records);

/* Seconds of a step, mean over the ranks. */
struct step_means {
    float compute_s, data_s, optimizer_s, wait_s[LS_ACCOUNTS];
    float work_s[LS_WORK_KINDS], works[LS_WORK_KINDS]; /* with log.profile */
};
/* A step's record, before whatever else is recorded of it; and, behind that, metrics.prom. */
int records_step(struct records *records, const struct ls_step_report *report,
                 const struct step_means *means, struct ls_error *error);
int records_step_end(struct records *records, const struct ls_step_report *report, bool last,
                     struct ls_error *error);
int records_evaluation(struct records *records, int64_t step, const struct ls_eval_report *report,
                       double eval_s, struct ls_error *error);
/* What to do about a write to metrics that ended with status. */
int records_judge(struct records *records, int status, const struct ls_error *error);

#endif
