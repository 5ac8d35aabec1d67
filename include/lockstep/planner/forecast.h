/* lockstep/planner/forecast.h - what a step of a layout takes on a cluster: time, memory, power and
 * money.
 *
 * A forecast records what each distinct rank of the layout would do (lockstep/train/recorded.h),
 * gives each op, collective and message its time (lockstep/planner/cost.h), and carries all ranks
 * out against a clock (lockstep/plan/simulate.h). Memory is the run's own plan, to the byte. What
 * is read and written beside steps is in lockstep/planner/storage.h. Everything here is Local. */
#ifndef LOCKSTEP_PLANNER_FORECAST_H
#define LOCKSTEP_PLANNER_FORECAST_H

#include <lockstep/plan/simulate.h>
#include <lockstep/planner/storage.h>
#include <lockstep/train/memory.h>

LS_C_BEGIN

struct json_t; /* jansson.h */

struct ls_forecast_ask {
    const struct ls_config *config; /* resolved */
    const struct ls_layout *layout; /* its layout */
    const struct ls_cluster *cluster;
    double tokens; /* of the whole training; 0: as ls_forecast_tokens says */
    /* Simulates two shorter steps where a step has many micro-batches, and goes on in a line. */
    bool extend;
    bool tells;        /* how many ranks it has recorded (lockstep/base/meter.h) */
    bool first_misfit; /* stops at the first rank that does not fit, and simulates nothing then */
    double until_s;    /* of ls_now_s: gives up then, between two ranks; 0: never */
    /* Works take as long as on the slowest of so many accelerators (ls_cost_slowest); 0: of those
     * of the layout. */
    int64_t slowest_of;
    /* Sees the spans of the step, one rank of each kind; may be NULL. */
    ls_simulated_visit *visit;
    void *visit_user;
};

/* Times are of a step in the middle of training, in seconds; those of ranks are means over all. */
struct ls_forecast {
    int64_t ranks;
    int accelerators; /* of each rank */
    double step_s, tokens_per_s;
    double compute_s, work_s[LS_WORK_KINDS];
    double slowest;     /* times the mean accelerator's: what works take, by ls_cost_slowest */
    double contended_s; /* of compute_s: what works lose beside operations, by no kind */
    double exposed_s[LS_ACCOUNTS]; /* waits for others and for links that nothing hides */
    double moving_s[LS_ACCOUNTS];  /* operations under way, hidden or not */
    /* 0 if the step was extended: computing, and waits behind it, by pass; and of computing,
     * what no operation slows. */
    double pass_s[LS_WORK_PASSES], fixed_s;
    double offload_exposed_s, offload_s; /* the same of memory tiers */
    struct ls_samples_cost samples;      /* of a step; read while the one before computes */
    double samples_exposed_s;            /* what is longer than a step, for which it waits */
    double idle_s;                       /* what is left of step_s */
    double bubble;                       /* share of the step that ranks wait for other stages */
    /* Model flops utilisation: flops that the model needs (ls_model_flops_per_token), and hardware
     * flops utilisation: those that are computed, recomputation with them; of the peak. */
    double mfu, hfu;
    double device_bytes; /* of the rank that takes most */
    double tier_bytes[LS_TIER_KINDS];
    double capacity_bytes; /* by ls_forecast_capacity */
    bool fits;
    /* Of all; 0: not known. By ls_forecast_run, as what follows. */
    double power_w, price_per_hour;
    struct {
        double tokens, days, price, energy_wh;
        double failures; /* expected */
        struct ls_save_cost save;
        double save_every_s; /* of train.save_every, else best_every_s; 0: at the end alone */
        double best_every_s; /* Daly 2006; 0 if nothing fails */
        struct ls_snapshot_cost snapshot; /* zeros: none are taken, as below */
        double snapshot_every_s;
        /* Work done, a second of time: of checkpoints or snapshots, failures and restarts. A
         * failure may take a host: without copies on others the job goes back to a checkpoint. */
        double goodput;
    } run;
};

/* Accelerators of a rank: parallel.threads on a machine whose accelerators are cores, or a host's
 * by the ranks on it; else 1. */
int ls_forecast_accelerators(const struct ls_cluster *cluster, const struct ls_config *config,
                             const struct ls_layout *layout);
/* What a rank may take of the memory of so many accelerators: all, or memory.device_budget. */
double ls_forecast_capacity(const struct ls_cluster *cluster, const struct ls_config *config,
                            int64_t accelerators);
/* LS_ELAYOUT if the cluster, or a host for its ranks, has fewer accelerators than they ask for.
 * LS_ENOMEM. What does not fit into memory is forecast all the same (fits is false). LS_ESTOPPED at
 * until_s. */
int ls_forecast_make(const struct ls_forecast_ask *ask, struct ls_forecast *forecast,
                     struct ls_error *error);
/* What the whole training takes, of a forecast that ls_forecast_make made for the same. */
int ls_forecast_run(const struct ls_forecast_ask *ask, struct ls_forecast *forecast,
                    struct ls_error *error);
/* All figures by name, which ends in the unit ("step_s", "device_bytes"; shares have none): an
 * object, to be released with json_decref. What is not finite is null. */
struct json_t *ls_forecast_json(const struct ls_forecast *forecast);
/* Elements of all parameters. */
double ls_forecast_parameters(const struct ls_config *config);
/* Tokens of the whole training, of one worker: with a ramp-up of batches fewer than steps x
 * batch.global. */
double ls_forecast_tokens(const struct ls_config *config);

LS_C_END
#endif
