/* RUN/metrics.prom: the newest figures of a run, for node_exporter's textfile collector. */
#ifndef TRAIN_METRICS_PROM_H
#define TRAIN_METRICS_PROM_H

#include <lockstep/config/inputs.h>
#include <lockstep/train.h>
#include <lockstep/train/drift.h>

struct metrics_prom {
    const struct ls_config *config;
    struct ls_run_name run;
    double next_s; /* when it may be written again; 0: at once */
    size_t memory; /* bytes that this rank planned */
    int64_t skipped;
    bool evaluated;
    struct ls_step_report step;
    struct ls_eval_report evaluation; /* where evaluated */
    double plan_step_s;               /* 0: there is no plan */
    bool watched;                     /* a window was judged */
    double drift[LS_DRIFT_KINDS];     /* how far above what is expected; 0: it does not drift */
};

/* config is borrowed. */
void metrics_prom_open(struct metrics_prom *prom, const struct ls_config *config, size_t memory);
/* After each step: at most every ten seconds, and after the last one. */
int metrics_prom_step(struct metrics_prom *prom, const struct ls_step_report *step, bool last,
                      struct ls_error *error);
/* At the end of a window, before the step's. */
void metrics_prom_drift(struct metrics_prom *prom, const struct ls_drift drifts[LS_DRIFT_KINDS]);
int metrics_prom_evaluated(struct metrics_prom *prom, const struct ls_eval_report *evaluation,
                           struct ls_error *error);

#endif
