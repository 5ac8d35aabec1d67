/* lockstep/train.h - the step and the loop.
 *
 *     text -> tokens -> sample order -> micro-batches -> forward/backward -> gradient reduction
 *          -> clip -> optimizer -> parameters -> checkpoint
 *
 * Order of calls, on every rank of a world communicator:
 *
 *     ls_config_*                        lockstep/config.h: a resolved configuration
 *     ls_trainer_new                     plans and takes all memory, initialises the parameters
 *     ls_trainer_resume                  optional: the newest checkpoint of the run
 *     ls_trainer_step ...                one optimizer step each, on the next samples of the data
 *     ls_trainer_step_on ...             or on a batch that the caller gives; or that in two parts,
 *     ls_trainer_backward, _update       with whatever reads the model in between
 *     ls_trainer_evaluate, ls_trainer_hash, ls_trainer_save
 *     ls_trainer_free
 *
 * or ls_run, which is that loop with records, evaluation, samples and checkpoints as configured.
 * For one recipe all layouts give the same losses and the same hash, bit for bit. */
#ifndef LOCKSTEP_TRAIN_H
#define LOCKSTEP_TRAIN_H

#include <lockstep/base/file.h>
#include <lockstep/comm.h>
#include <lockstep/config.h>
#include <lockstep/data.h>
#include <lockstep/dtensor.h>
#include <lockstep/infer.h>
#include <lockstep/nn.h>
#include <lockstep/optim.h>
#include <lockstep/plan/moves.h>
#include <lockstep/state.h>
#include <lockstep/train/drift.h>
#include <lockstep/train/fit.h>
#include <lockstep/train/memory.h>

LS_C_BEGIN

struct ls_trainer;

/* ---- the layout, before anything is allocated ------------------------------------------------ */

/* Local. ls_config_resolve with the vocabulary of the data's tokenizer (data.tokenizer, or the one
 * found beside data.train). A run that train.resume or train.resume_else names becomes the newest
 * of its checkpoints. */
int ls_train_resolve(struct ls_config *config, struct ls_error *error);
/* Local. Processes that a launcher started, for a configuration that says nothing of a layout, are
 * data parallel: with mpirun -n 2, parallel.dp becomes 2. *spread (may be NULL): it did. */
int ls_train_spread(struct ls_config *config, const struct ls_comm *world, bool *spread,
                    struct ls_error *error);

/* ---- a trainer ------------------------------------------------------------------------------- */

/* An outer step, at a meeting of workers. */
struct ls_outer_report {
    int64_t step; /* from 1; 0: there was none, but a server's workers met */
    int fragment;
    double norm;          /* of the outer gradient, the mean of the workers' deltas */
    int members;          /* workers that took part */
    int groups;           /* 0: nobody met */
    const double *wait_s; /* [groups] that each group of ranks waited for the others. Valid until
                           * the next step */
};

/* A step of a parameter server: one worker's gradient. */
struct ls_push_report {
    bool is; /* false: the step is none */
    int worker;
    int64_t clock, ticket; /* which of the worker's gradients, and of the run's batches, from 0 */
    int64_t staleness; /* updates between the parameters that it was computed on and those that it
                        * was added to */
};

struct ls_step_report {
    int64_t step;            /* counted from 1 */
    int64_t samples, tokens; /* consumed since the start of the run, this step's included */
    int64_t sequences;       /* of this step's batch */
    float loss;              /* mean over the batch's tokens that count, nats */
    int64_t counted;         /* how many those are, if not all do; else 0 */
    /* [sources] the same of each source's part of the batch, NAN if it has none; NULL if
     * there is one source. Valid until the next step. */
    const float *source_losses;
    const int64_t *source_counted; /* [sources] its tokens that count; NULL: nothing was read */
    const double *source_weights;  /* [sources] the sum of their weights; NULL: they have none */
    double weight; /* what the sum of the losses was divided by: as many tokens as count, or the
                    * sum of their weights; 1 if the loss is that sum */
    bool weighted; /* weight is a sum of weights */
    uint32_t loss_bits; /* the same, as stored */
    double grad_norm;   /* before clipping, without the loss scale */
    double loss_scale;  /* that the gradient was computed with; 1 if none is used */
    float lr;
    bool given;   /* on a batch of the caller's, not of the data */
    bool skipped; /* not finite; with fp16 the loss scale may be too large, else
                   * train.on_nonfinite is skip */
    double step_s, tokens_per_s;
    double snapshot_s; /* that ls_run waited for snapshots: since the step before, and in it */
    double peak_share; /* model flops per second / the best rate seen so far: that of one large
                        * product (ls_trainer_measure_peak), or of a step that was faster. Never
                        * above 1; 0 if nothing was measured */
    /* Of this rank, parts of step_s: the rest is computing. comm: the axes of wait_s, without
     * LS_ACCOUNT_OTHER. */
    double data_wait_s, comm_wait_s;
    double wait_s[LS_ACCOUNTS]; /* for other ranks, pipeline bubbles included */
    double optimizer_s;         /* the update */
    /* Of this rank, with log.profile: seconds in ops of each kind, and how many there were. */
    double work_s[LS_WORK_KINDS];
    int64_t works[LS_WORK_KINDS];
    /* Of this rank's memory tiers (memory.offload): bytes that moved, seconds in which some did,
     * and seconds that it waited for them, in whatever it did. So 1 - wait / busy was hidden. */
    double offload_bytes, offload_busy_s, offload_wait_s;
    bool hashed;
    char hash[33]; /* of the state after this step, where hashed */
    struct ls_outer_report outer;
    struct ls_push_report push;
    char ledger[33]; /* of rank 0: which samples the step took (ls_blend_ledger); else "" */
};

/* Collective over world, which is borrowed and must have as many ranks as the layout. config is
 * resolved and copied. log may be NULL. */
int ls_trainer_new(const struct ls_config *config, struct ls_comm *world, const struct ls_log *log,
                   struct ls_trainer **out, struct ls_error *error);
void ls_trainer_free(struct ls_trainer *trainer);
/* Local, on every rank, before the first step of a trainer that is no run, such as a proof or a
 * bench: train.out may be the folder of one. Without this, steps with async.mode record who took
 * part, or in which order gradients arrived, in train.out, and take up requests for other workers
 * that are there. With it they leave train.out as it is: all workers take part, or those that
 * async.follow has. */
void ls_trainer_record_nothing(struct ls_trainer *trainer);

/* Collective. Measures the rate of one large product on all threads of the run at once, a fraction
 * of a second, for peak_share. */
int ls_trainer_measure_peak(struct ls_trainer *trainer, struct ls_error *error);

/* Collective. One step on the next samples of data.train (LS_ECONFIG without). LS_ENUMERIC if
 * loss or gradient is not finite, train.on_nonfinite is stop, and no smaller loss scale can help:
 * nothing was updated. LS_ESTOPPED if a store's stop (ls_token_store_stop_on) ended the wait for
 * samples: the step has not begun on any rank, what was done before it can be saved, and no step
 * follows. */
int ls_trainer_step(struct ls_trainer *trainer, struct ls_step_report *report,
                    struct ls_error *error);

/* ---- batches of the caller ------------------------------------------------------------------- */

/* A whole batch, given instead of the data's next one. Every rank is given the same and takes its
 * share. If it is smaller than the step's batch or has shorter sequences, the rest is padding that
 * does not count. Each sequence is one document. Target t has the loss weight * -log p(t), plus
 * entropy_weight * H with H the entropy of p, -sum_v p(v) log p(v): a negative weight keeps the
 * model from being sure too early. The loss of the step is the sum over all targets, in the usual
 * order, divided by the exact sum of their weights; with `sum` nothing divides it. So the bits are
 * the same in every layout. A target of weights 0 is like one that does not count, and weights of 1
 * give the bits of no weights. */
struct ls_given_batch {
    int64_t sequences, tokens;    /* at most the step's batch (batch.global), and data.sequence */
    const int32_t *inputs;        /* [sequences, tokens] token ids */
    const int32_t *targets;       /* the same, what follows each; -1: does not count */
    const float *weights;         /* the same, finite, of any sign; NULL: each is 1 */
    const float *entropy_weights; /* the same; NULL: each is 0 */
    bool sum;                     /* nothing divides the loss */
    float temperature; /* by which logits are divided, so that losses and log-probabilities
                        * are of the distribution at it; 0: 1 */
    /* [sequences, tokens], memory of this rank, filled with the log-probability of each target
     * before the update: minus its loss without weight; 0 if the target is -1. If the model has no
     * dropout, ls_runner_score_at and generation give the same bits. NULL: not wanted. */
    float *logprobs;
    float *entropies; /* the same of H, if there are entropy_weights; NULL: not wanted */
};
/* Collective. One step on that batch. Steps and samples count as usual: the data's samples at these
 * places are skipped. A refused batch changes nothing: LS_EINVAL for its shape, or if ranks were
 * given different batches; LS_EDATA, with the place, for a token or target outside the vocabulary,
 * a weight that is not finite, or a sum of weights that divides and is 0; LS_ECONFIG with
 * async.mode. A trainer without data.train takes these steps alone. */
int ls_trainer_step_on(struct ls_trainer *trainer, const struct ls_given_batch *batch,
                       struct ls_step_report *report, struct ls_error *error);
/* Collective. The same step in two parts: backward makes the gradient, update clips it and applies
 * it. In between you may evaluate, score, generate, hash and save, all with the parameters before
 * the step; another step is LS_EINVAL. Backward reports its own part and counts no step; update
 * reports the whole step. You may also write to gradients (ls_trainer_dtensor, ls_trainer_publish):
 * update clips, judges and reports the norm of what was written. */
int ls_trainer_backward(struct ls_trainer *trainer, const struct ls_given_batch *batch,
                        struct ls_step_report *report, struct ls_error *error);
int ls_trainer_update(struct ls_trainer *trainer, struct ls_step_report *report,
                      struct ls_error *error);
/* Local, on every rank. Discards the gradient that waits, if any: its step is not taken. */
void ls_trainer_discard(struct ls_trainer *trainer);

/* Local. Scores and generates between two steps (ls_runner_score, ls_runner_continue of
 * lockstep/infer.h) with the trainer's current parameters, in its layout. NULL with async.mode,
 * because several models are trained. */
struct ls_runner *ls_trainer_runner(struct ls_trainer *trainer);
/* Collective, between two steps. *out: the same, or if group rollout of the configuration has a
 * layout, a runner in that one with the parameters of this moment (lockstep/infer/rollout.h): valid
 * until the next step or change of a parameter, and its memory is kept until the trainer is freed.
 * LS_EINVAL with async.mode, LS_ENOMEM. */
int ls_trainer_rollout(struct ls_trainer *trainer, struct ls_runner **out, struct ls_error *error);
/* Local. Of its data; NULL if none is known. */
const struct ls_tokenizer *ls_trainer_tokenizer(const struct ls_trainer *trainer);

/* Local. Whether the state is that of the last step that was reported. With workers
 * (async.mode) it is after the steps at which they meet, every ls_config_interval: the first step
 * behind a meeting computes all up to the next one, and the ones after it only report. */
bool ls_trainer_meets(const struct ls_trainer *trainer);
/* Local. Steps reported so far. */
int64_t ls_trainer_steps(const struct ls_trainer *trainer);

/* Collective. Over the first eval.samples sequences of data.valid, in order. */
int ls_trainer_evaluate(struct ls_trainer *trainer, struct ls_eval_report *report,
                        struct ls_error *error);

/* Collective. ls_state_hash, ls_state_save and ls_state_resume (lockstep/state.h) of what the ranks
 * hold; resume before the first step. Saving makes train.out if it is absent. */
int ls_trainer_hash(struct ls_trainer *trainer, struct ls_digest *digest, struct ls_error *error);
int ls_trainer_save(struct ls_trainer *trainer, struct ls_error *error);
int ls_trainer_resume(struct ls_trainer *trainer, bool *resumed, struct ls_error *error);
/* Collective. The weights of a model or a run (lockstep/interop.h) of the same shape, into all
 * units of state; what the optimizer keeps, and the counters, stay. A model that does not fit
 * changes nothing. After an error in its values, or in reading them, part of the weights may be its
 * own: load again. LS_EINVAL between two meetings of workers; LS_ECONFIG of a run with adapters. */
int ls_trainer_load(struct ls_trainer *trainer, const char *path, struct ls_error *error);
/* Collective. Text continued from prompt by the current parameters; *text is malloc'ed on rank 0
 * and NULL on the others. Needs a tokenizer. Each rank computes what it holds; with ZeRO 3 layers
 * are gathered for each token. */
int ls_trainer_sample(struct ls_trainer *trainer, const char *prompt, char **text,
                      struct ls_error *error);
/* Local. The layout that runs, and this rank's part of the parameters. */
const struct ls_layout *ls_trainer_layout(const struct ls_trainer *trainer);
const struct ls_params *ls_trainer_params(const struct ls_trainer *trainer);
/* Local. What this rank's operations moved and waited for since the trainer was made, by group:
 * between two steps the bytes are those that ls_record_bytes counts. */
void ls_trainer_stats(const struct ls_trainer *trainer, struct ls_comm_stats stats[LS_GROUPS]);

/* ---- its tensors ----------------------------------------------------------------------------- */

/* Each parameter, gradient and optimizer state is a distributed tensor; lockstep/state.h says over
 * which mesh it lies. */
enum ls_tensor_kind {
    LS_TENSOR_PARAMETER,
    LS_TENSOR_GRADIENT, /* of the last step, before clipping, times ls_trainer_gradient_scale; of a
                         * tied table that of the head. With Muon a hidden matrix has none: the
                         * update uses it up */
    LS_TENSOR_TABLE_GRADIENT, /* of a tied table that of the embedding; others have none */
    LS_TENSOR_STATE,          /* + s: state s of the optimizer, of the type optim.moments */
};
/* Local. Tensor `kind` of ls_trainer_params(trainer)->list[i]: its data are the trainer's own, to
 * be read, until the next ls_trainer_step or ls_trainer_free. A frozen matrix is in the compute
 * type, states are in that of optim.moments, all else is float32. LS_EINVAL if there is no such
 * tensor, where it lies in a memory tier (memory.offload) or in blocks (lora.base), or no step was
 * taken yet that made the gradient. */
int ls_trainer_dtensor(const struct ls_trainer *trainer, int i, enum ls_tensor_kind kind,
                       struct ls_dtensor *out, struct ls_error *error);

/* Local. The loss scale of the last gradients: their values are too large by it. 1 but for fp16. */
double ls_trainer_gradient_scale(const struct ls_trainer *trainer);

/* Collective. Parameters were written, between two steps and alike on all ranks that hold the same
 * elements: the copies that are computed with follow. */
int ls_trainer_publish(struct ls_trainer *trainer, struct ls_error *error);
/* Local. Pointers to data of tensors outlive the trainer: ls_trainer_free leaves their memory in
 * *kept, for the caller to release. */
void ls_trainer_lend(struct ls_trainer *trainer, struct ls_arena *kept);

/* Digests of each step's tensors, to find where two layouts part: outputs of layers ascending,
 * gradients of their inputs descending, gradients of parameters. The same numbers in any layout.
 * Collective; from the next step on. */
int ls_trainer_digests_enable(struct ls_trainer *trainer, struct ls_error *error);
/* Local. How many, and the i-th of the last step. */
int ls_trainer_digest_count(const struct ls_trainer *trainer);
void ls_trainer_digest(const struct ls_trainer *trainer, int i, char *name, size_t bytes,
                       struct ls_digest *digest);

/* ---- a whole run ----------------------------------------------------------------------------- */

/* What a run tells its caller, on rank 0. Every function may be NULL. */
struct ls_run_hooks {
    void *user;
    void (*started)(void *user, const struct ls_config *config, const struct ls_memory_plan *plan,
                    const struct ls_params *params, int64_t first_step);
    void (*stepped)(void *user, const struct ls_step_report *report);
    void (*evaluated)(void *user, int64_t step, const struct ls_eval_report *report);
    void (*sampled)(void *user, int64_t step, const char *text);
    void (*saved)(void *user, int64_t step);
    /* The run was at its last step (or beyond) when it began: no step follows. */
    void (*idle)(void *user, int64_t step, const char *hash);
    /* Asked once, before the first step: what a step of config (settled; threads of a rank) should
     * take. plan is zero and plan->stage_s is there. NULL: there is no plan. */
    int (*plan)(void *user, const struct ls_config *config, int threads, struct ls_run_plan *plan,
                struct ls_error *error);
    /* Something began to drift (log.drift_every). What it starts may take its time elsewhere; its
     * sentence is asked for after each step, and goes to log and records once it is there. */
    void (*drifted)(void *user, const struct ls_drift *drift);
    bool (*advice)(void *user, char *text, size_t bytes);
    /* Not zero: finish the step, save, return LS_ESTOPPED; a step that waits for its samples is not
     * begun, and no evaluation is finished but the last step's. Set by a signal handler; read on
     * every rank, agreed among them. */
    const volatile int *stop;
};
/* Collective. Trains to train.steps in train.out: config.yaml, metrics.jsonl, TensorBoard events,
 * trace/, checkpoints/. LS_ECOMM (such as a rank that is late, comm.timeout_s) leaves what
 * ls_run_late writes. */
int ls_run(const struct ls_config *config, struct ls_comm *world, const struct ls_log *log,
           const struct ls_run_hooks *hooks, struct ls_error *error);

/* The same step by step, for callers with a loop of their own:
 *
 *     ls_run_open                            all that ls_run does before its first step
 *     while !ls_run_ended: ls_run_step       a step, with all that follows it
 *     ls_run_close                           in each case, with what the last call returned
 *
 * A checkpoint or snapshot that falls due stands when the step returns (checkpoint.async is not
 * heard), but for a checkpoint that workers write from a snapshot. Between two steps the trainer
 * may be evaluated, hashed and read, and its parameters and states written (ls_trainer_publish,
 * ls_trainer_load): later hashes and checkpoints are of these. Collective, but for
 * ls_run_ended, _trainer and _folder, which are Local. */
struct ls_running;
/* config, world, log and hooks are borrowed until ls_run_close. After a failure *out is NULL. */
int ls_run_open(const struct ls_config *config, struct ls_comm *world, const struct ls_log *log,
                const struct ls_run_hooks *hooks, struct ls_running **out, struct ls_error *error);
/* At the run's last step, or once hooks->stop was heard. */
bool ls_run_ended(const struct ls_running *run);
/* Not once ls_run_ended. On batch, if one is given; else the update where a gradient waits
 * (ls_trainer_backward); else on a batch of the data. A batch that is refused changes nothing. */
int ls_run_step(struct ls_running *run, const struct ls_given_batch *batch,
                struct ls_step_report *report, struct ls_error *error);
struct ls_trainer *ls_run_trainer(struct ls_running *run);
/* Local. Whether a gradient waits for its update. */
bool ls_run_waits(const struct ls_running *run);
/* train.out, where it is now. */
const char *ls_run_folder(const struct ls_running *run);
/* A checkpoint of the state as it is, now. LS_EINVAL between two meetings of workers. */
int ls_run_save(struct ls_running *run, struct ls_error *error);
/* Saves the state where no checkpoint has it yet, unless status says that the run failed. Returns
 * status, or what failed then; LS_ESTOPPED if hooks->stop ended the run. NULL is allowed. */
int ls_run_close(struct ls_running *run, int status, struct ls_error *error);

/* Local. Whether this machine has snapshots of the run in config's train.out: a start with
 * train.resume=auto goes on from the newest. They are in folder/checkpoints. */
bool ls_run_has_snapshot(const struct ls_config *config, char folder[PATH_MAX]);

/* Local. After LS_ECOMM and before the communicators are freed: what became of the ranks goes to
 * directory/log/. rank-%05d.txt is why this rank failed; operations-%05d.txt, by one rank for all
 * that share its memory, what ls_comm_dump tells. LS_EIO if the directory is not there. */
int ls_run_late(const char *directory, struct ls_comm *world, const struct ls_error *why,
                struct ls_error *error);

LS_C_END
#endif
