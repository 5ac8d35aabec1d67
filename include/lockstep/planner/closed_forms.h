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
 * restart dumps" Thakur        Thakur, Rabenseifner, Gropp 2005, "Optimization of collective
 * communication operations in MPICH" Sanders       Sanders, Speck, Traeff 2009, "Two-tree
 * algorithms for full bandwidth broadcast, reduction and scan" GPipe         Huang et al. 2019 ZeRO
 * Rajbhandari et al. 2020, "ZeRO: memory optimizations toward training trillion parameter models"
 *   Narayanan     Narayanan et al. 2021, "Efficient large-scale language model training on GPU
 *                 clusters using Megatron-LM"
 *   PaLM          Chowdhery et al. 2022, "PaLM: scaling language modeling with Pathways"
 *   Korthikanti   Korthikanti et al. 2022, "Reducing activation recomputation in large transformer
 *                 models"
 *   Qi            Qi et al. 2023, "Zero bubble pipeline parallelism"
 */
#ifndef LOCKSTEP_PLANNER_CLOSED_FORMS_H
#define LOCKSTEP_PLANNER_CLOSED_FORMS_H

#include <lockstep/parallel/schedule.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- pipelines ------------------------------------------------------------------------------
 *
 * p ranks, m micro-batches, v chunks on each rank; all stages take equally long, messages no time.
 */

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
/* 1 - the share of gpipe and 1f1b: m / (m + p - 1). 16 micro-batches on 4 stages: 84.2 %. */
double ls_pipeline_efficiency(int64_t ranks, int64_t micro_batches);
/* The fewest micro-batches with which it is at least so much, in [0, 1):
 * ceil((p - 1) efficiency / (1 - efficiency)), at least 1. */
int64_t ls_micro_batches_for(int64_t ranks, double efficiency);

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

enum ls_book_recompute { LS_BOOK_KEEP, LS_BOOK_SELECTIVE, LS_BOOK_FULL };
struct ls_book_layer {
    double sequence, batch, channels, heads; /* s, b (sequences of a micro-batch), h, a */
    int64_t tp;                              /* t */
    bool sequence_parallel;
    enum ls_book_recompute recompute;
};
/* Bytes of activations that a rank keeps of one micro-batch in one layer, in 16 bits (Korthikanti
 * table 2):
 *
 *                    t = 1, or tensor parallel              with sequence parallel
 *   keep             s b h (10 + 24 / t + 5 a s / (h t))    s b h (34 + 5 a s / h) / t
 *   selective        s b h (10 + 24 / t)                    s b h 34 / t
 *   full             2 s b h                                2 s b h
 */
double ls_book_activation_bytes(const struct ls_book_layer *layer);

/* ---- operations ------------------------------------------------------------------------------ */

/* Of one token, forward and backward: 6 N + 12 L H Q T, with N parameters, L layers, H heads of Q
 * and T tokens of a sequence, nothing taken off for causality. PaLM appendix B. Of which N counts
 * the embedding table is the caller's choice; ls_model_flops_per_token (lockstep/nn.h) counts the
 * model's own. */
double ls_palm_flops_per_token(double parameters, double layers, double heads, double head_dim,
                               double tokens);
/* Of an iteration of B sequences of s tokens through l layers of h channels, whose feed-forward
 * part is 4 h wide, and a head of V: 72 B s l h^2 (1 + s / (6 h) + V / (12 l h)); with full
 * recomputation 96 B s l h^2 (1 + s / (6 h) + V / (16 l h)). Narayanan equation 3. */
double ls_megatron_flops(double sequences, double tokens, double layers, double channels,
                         double vocabulary, bool recompute);
/* Of `tokens_per_s` and so many operations a token, a share of the accelerators' peak: MFU, where
 * these are the model's; HFU, where recomputed ones count too. PaLM appendix B; Korthikanti. */
double ls_flops_utilization(double tokens_per_s, double flops_per_token, double accelerators,
                            double peak);

/* ---- failures ---------------------------------------------------------------------------------
 *
 * M mean seconds between failures (of the whole job), C seconds that a checkpoint holds the job up,
 * R seconds of a restart. */

/* Seconds of work between checkpoints: sqrt(2 C M). */
double ls_young_interval(double checkpoint_s, double between_failures_s);
/* sqrt(2 C M) (1 + sqrt(C / 2 M) / 3 + (C / 2 M) / 9) - C where C < 2 M, else M. Daly equation 37.
 */
double ls_daly_interval(double checkpoint_s, double between_failures_s);
/* Work done, a second of time: t / (M exp(R / M) (exp((t + C) / M) - 1)) where a checkpoint is
 * taken every t seconds of work. Daly equation 20. 1 less checkpoints where nothing fails
 * (M infinite). */
double ls_goodput(double interval_s, double checkpoint_s, double restart_s,
                  double between_failures_s);

/* ---- scaling --------------------------------------------------------------------------------- */

/* Times faster on n, where a share of the work runs on all and the rest on one:
 * 1 / (1 - share + share / n). Amdahl. */
double ls_amdahl_speedup(double parallel_share, double n);

#ifdef __cplusplus
}
#endif
#endif
