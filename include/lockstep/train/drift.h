/* lockstep/train/drift.h - a running job's steps against its plan, and ranks against each other.
 *
 * Each rank keeps what its steps took; every log.drift_every steps all ranks gather their medians
 * of that window, and the judgement names what drifts:
 *
 *   slow rank         its own computing (the step without waits) is 15 % above the median of the
 *                     ranks of its stage, in three of four steps of the window
 *   unbalanced stage  its ranks' computing, as a share of all stages', is 15 % above the plan's
 *                     share; without a plan 30 % above that of its layers' operations
 *   slow link         in nine of ten steps even the rank that waits least on an axis waits more
 *                     than twice what the plan has, and more than 5 % of a step beyond it. With a
 *                     plan only: a late rank makes others wait, but not itself
 *   input wait        a rank waits for samples more than 5 % of a step
 *
 * The plan's figures come from the caller (struct ls_run_hooks): this module knows no cluster. */
#ifndef LOCKSTEP_TRAIN_DRIFT_H
#define LOCKSTEP_TRAIN_DRIFT_H

#include <lockstep/plan/groups.h>

LS_C_BEGIN

/* What a plan has for one step, in seconds. */
struct ls_run_plan {
    double step_s;
    double exposed_s[LS_ACCOUNTS]; /* waits, mean over ranks */
    double *stage_s; /* [pipeline ranks] what a rank of that stage computes; belongs to the run */
};

/* Of one rank: medians over a window, in seconds; own: computing, the update too. It travels as
 * float words. Of own_low_s three of four steps were above, of wait_s nine of ten. */
struct ls_drift_sample {
    float step_s, own_s, own_low_s, data_s;
    float wait_s[LS_ACCOUNTS];
};
enum { LS_DRIFT_STAGES_MAX = 256 /* whose times are recorded */ };
enum { LS_DRIFT_WORDS = sizeof(struct ls_drift_sample) / sizeof(float), LS_DRIFT_HOST_BYTES = 64 };

enum ls_drift_kind {
    LS_DRIFT_SLOW_RANK,
    LS_DRIFT_STAGE,
    LS_DRIFT_LINK,
    LS_DRIFT_INPUT,
    LS_DRIFT_KINDS
};
/* "slow_rank", "unbalanced_stage", "slow_link", "input_wait" */
const char *ls_drift_name(enum ls_drift_kind kind);

struct ls_drift {
    bool found;
    enum ls_drift_kind kind;
    int64_t subject; /* the rank, the pipeline rank, the account, or the rank that waits most */
    double took_s, expected_s;
    double above; /* took / expected - 1; of links and input the share of a step that is lost */
    char host[LS_DRIFT_HOST_BYTES]; /* of a slow rank, if it is known; else "" */
    char text[320];                 /* "rank 3 on host node2 computes 0.310 s a step, ..." */
};

/* Local. The worst of each kind; samples[ranks], hosts[ranks] (may be NULL), plan may be NULL;
 * stage_s[pipeline ranks] = what a rank of each stage computes, in seconds. LS_ENOMEM. */
int ls_drift_judge(const struct ls_layout *layout, const struct ls_drift_sample *samples,
                   const char (*hosts)[LS_DRIFT_HOST_BYTES], const struct ls_run_plan *plan,
                   double *stage_s, struct ls_drift drifts[LS_DRIFT_KINDS], struct ls_error *error);

LS_C_END
#endif
