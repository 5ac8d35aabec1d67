/* lockstep/planner/closed_forms.h - the textbook's formulas, each with its source: bounds for the
 * search, what `--explain` and the lessons show beside a simulated time, and what tests compare
 * with. They know no cluster and no layout. Pure arithmetic; everything here is Local.
 *
 * Sources, by the names that are used below:
 *
 *   Amdahl        Amdahl 1967, "Validity of the single processor approach to achieving large scale
 *                 computing capabilities"
 *   Young         Young 1974, "A first order approximation to the optimum checkpoint interval"
 *   Daly          Daly 2006, "A higher order estimate of the optimum checkpoint interval for
 *                 restart dumps"
 *   Thakur        Thakur, Rabenseifner, Gropp 2005, "Optimization of collective communication
 *                 operations in MPICH"
 *   Sanders       Sanders, Speck, Traeff 2009, "Two-tree algorithms for full bandwidth broadcast,
 *                 reduction and scan"
 *   GPipe         Huang et al. 2019
 *   ZeRO          Rajbhandari et al. 2020, "ZeRO: memory optimizations toward training trillion
 *                 parameter models"
 *   Narayanan     Narayanan et al. 2021, "Efficient large-scale language model training on GPU
 *                 clusters using Megatron-LM"
 *   Qi            Qi et al. 2023, "Zero bubble pipeline parallelism"
 */
#ifndef LOCKSTEP_PLANNER_CLOSED_FORMS_H
#define LOCKSTEP_PLANNER_CLOSED_FORMS_H

#include <lockstep/parallel/schedule.h>

LS_C_BEGIN

/* ---- pipelines ------------------------------------------------------------------------------
 *
 * p ranks, m micro-batches, v chunks on each rank; all stages take as long, messages no time. */

/* Seconds of one micro-batch on one rank, over all of its chunks: F, and the two halves of the
 * backward, I of the input and W of the weights. */
struct ls_pass_times {
    double forward, backward_input, backward_weight;
};

/* Seconds of a step in which a rank has nothing to do.
 *
 *   gpipe, 1f1b   (p - 1) (F + I + W)            GPipe; Narayanan section 2.2.1
 *   interleaved   (p - 1) (F + I + W) / v        Narayanan section 2.2.2; p divides m
 *   zb-h1         (p - 1) (F + I - W)            Qi section 2; W at most F and I, and m >= p
 *
 * NaN of other kinds: they have no closed form here, their table is simulated. */
double ls_bubble_seconds(enum ls_schedule_kind kind, int64_t ranks, int64_t chunks,
                         struct ls_pass_times times);
/* m (F + I + W) and the bubble. */
double ls_pipeline_seconds(enum ls_schedule_kind kind, int64_t ranks, int64_t chunks,
                           int64_t micro_batches, struct ls_pass_times times);
/* The bubble's share of the whole step, not of its ideal time: (p - 1) / (m + p - 1) of gpipe and
 * 1f1b, (p - 1) / (m v + p - 1) of interleaved, and (p - 1) / (3 m + p - 1) of zb-h1 where F, I and
 * W take equally long. */
double ls_bubble_share(enum ls_schedule_kind kind, int64_t ranks, int64_t chunks,
                       int64_t micro_batches, struct ls_pass_times times);
/* ---- collectives ------------------------------------------------------------------------------
 *
 * n ranks, S bytes in all, latency a, b bytes a second of each rank, each way. 0 of one rank. */

/* (n - 1) (a + S / (n b)): an all-gather or a reduce-scatter in a ring; an all-reduce is twice
 * that. Thakur. */
double ls_ring_seconds(int64_t ranks, double bytes, double latency_s, double bytes_per_s,
                       bool all_reduce);
/* ceil(log2 n) a + S / b: a broadcast; an all-reduce by two trees
 * 2 ceil(log2 n) a + 2 S (n - 1) / (n b). Sanders. */
double ls_tree_seconds(int64_t ranks, double bytes, double latency_s, double bytes_per_s,
                       bool all_reduce);

/* ---- memory ---------------------------------------------------------------------------------- */

/* Bytes of training state a parameter with Adam in mixed precision, on each of n ranks: 2 of the
 * parameter, 2 of its gradient, 12 of master, momentum and variance. Stage 0: 16; 1: 4 + 12 / n;
 * 2: 2 + 14 / n; 3: 16 / n. ZeRO figure 1. (Lockstep's gradients are float32, and stages 1 and 2
 * scatter them alike: doc/memory.md.) */
double ls_zero_state_bytes(int stage, int64_t ranks);
/* Elements that a rank sends a step for each parameter: 2 (n - 1) / n, and of stage 3
 * 3 (n - 1) / n. ZeRO section 7. */
double ls_zero_sent_elements(int stage, int64_t ranks);

/* ---- failures ---------------------------------------------------------------------------------
 *
 * M mean seconds between failures (of the whole job), C seconds that a checkpoint holds the job up,
 * R seconds of a restart; t of lockstep/ckpt/interval.h is the best. */

/* Work done, a second of time: t / (M exp(R / M) (exp((t + C) / M) - 1)) where a checkpoint is
 * taken every t seconds of work. Daly equation 20. 1 less checkpoints where nothing fails
 * (M infinite). */
double ls_goodput(double interval_s, double checkpoint_s, double restart_s,
                  double between_failures_s);

/* ---- scaling --------------------------------------------------------------------------------- */

/* Times faster on n, where a share of the work runs on all and the rest on one:
 * 1 / (1 - share + share / n). Amdahl. */
double ls_amdahl_speedup(double parallel_share, double n);

LS_C_END
#endif
