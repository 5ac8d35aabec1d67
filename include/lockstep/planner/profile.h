/* lockstep/planner/profile.h - where the time of a run went, beside what its layout would take on a
 * cluster.
 *
 * A run's directory says it: metrics.jsonl has the parts of every step, means over ranks, and with
 * log.profile its ops by kind; config.yaml has recipe and layout. Each part is the median over the
 * steps that count: those of the newest layout and of a whole batch (ramp-ups and skipped steps
 * apart), without the first ones after each start. Where the run wrote traces (log.trace), the
 * parts are those of their spans, of the steps that all of them have; they also say what computing
 * is made of, and which rank is slow. Everything here is Local. */
#ifndef LOCKSTEP_PLANNER_PROFILE_H
#define LOCKSTEP_PLANNER_PROFILE_H

#include <lockstep/planner/forecast.h>

#include <limits.h>

LS_C_BEGIN

/* The parts of a step; together they are the step. */
enum ls_profile_part {
    LS_PROFILE_COMPUTE, /* forward and backward: all that is none of the others */
    LS_PROFILE_OPTIMIZER,
    LS_PROFILE_DATA, /* waits for samples */
    LS_PROFILE_WAIT, /* + enum ls_account: waits for other ranks; a plan's LS_ACCOUNT_OTHER has what
                      * ranks wait for the slowest one at a step's end */
    LS_PROFILE_PARTS = LS_PROFILE_WAIT + LS_ACCOUNTS
};
/* Kinds of ops, with log.profile or a plan. */
enum ls_profile_work {
    LS_PROFILE_PRODUCTS,
    LS_PROFILE_ATTENTION,
    LS_PROFILE_PASSES, /* all others: over memory, mostly */
    LS_PROFILE_UPDATE,
    LS_PROFILE_WORKS
};
/* "computing", "the optimizer", ..., "waits for tp"; "products", ... */
const char *ls_profile_part_name(int part);
const char *ls_profile_work_name(int work);

/* What a trace has within computing: forward and backward without waits and starts of moves,
 * recomputing within the latter; what reduces gradients; and the starts, which copy and pack. */
enum ls_profile_phase {
    LS_PROFILE_FORWARD,
    LS_PROFILE_BACKWARD,
    LS_PROFILE_RECOMPUTE,
    LS_PROFILE_REDUCE,
    LS_PROFILE_STARTS,
    LS_PROFILE_PHASES
};
/* And between steps. */
enum ls_profile_between {
    LS_PROFILE_SAVE,
    LS_PROFILE_EVALUATE,
    LS_PROFILE_SAMPLE,
    LS_PROFILE_HASH,
    LS_PROFILE_REPLAY,
    LS_PROFILE_RECORD,
    LS_PROFILE_BETWEENS
};
/* "forward", ...; "checkpoints", ... */
const char *ls_profile_phase_name(int phase);
const char *ls_profile_between_name(int between);

/* Seconds of a step. */
struct ls_profile_row {
    double median_s, low_s, high_s; /* nine in ten steps lie between low and high */
    double planned_s;
    bool measured; /* else the run has no such part, or does not say */
};

/* What only traces say. */
enum { LS_PROFILE_TRACES_MAX = 16 };
struct ls_profile_trace {
    int64_t ranks; /* whose traces were read, evenly among all; 0: none */
    int64_t rank[LS_PROFILE_TRACES_MAX];
    struct ls_profile_row phase[LS_PROFILE_PHASES];
    struct {
        int64_t count;
        double sum_s;
    } between[LS_PROFILE_BETWEENS]; /* of rank 0, in all of its trace */
    int64_t slowest;                /* computes longest; medians of it and of the middle one */
    double slowest_s, middle_s;
};

struct ls_profile {
    char directory[PATH_MAX];
    struct ls_config config; /* resolved */
    struct ls_layout layout;
    char transport[16];
    int64_t threads;         /* of a rank */
    int64_t steps, left_out; /* that count, and do not */
    int64_t first, last;     /* steps that count */
    bool profiled;           /* log.profile was on */
    bool planned;            /* ls_profile_plan came */
    struct ls_profile_row step;
    struct ls_profile_row part[LS_PROFILE_PARTS], work[LS_PROFILE_WORKS];
    struct ls_profile_trace trace;
    struct ls_profile_row offload; /* waits for memory tiers of rank 0, which are in the parts */
    struct ls_profile_row between; /* seconds from the end of a step to the next one's begin */
    struct ls_forecast forecast;   /* where planned */
    char drift[320];    /* the newest that the run names and that is not over; "": none */
    int64_t drift_step; /* after which it did */
};

/* path: a run's directory, or one of its checkpoints. LS_EIO, LS_ECONFIG and LS_EDATA (no step that
 * counts, a run recorded before steps had their parts) name the file. */
int ls_profile_read(struct ls_profile *profile, const char *path, struct ls_error *error);
/* The plan's column. Errors as of ls_forecast_make. */
int ls_profile_plan(struct ls_profile *profile, const struct ls_cluster *cluster,
                    struct ls_error *error);

/* One sentence: the resource that takes most of a step; and, where planned, what is most above the
 * plan. */
struct ls_profile_verdict {
    char text[640];
};
struct ls_profile_verdict ls_profile_bottleneck(const struct ls_profile *profile);

LS_C_END
#endif
