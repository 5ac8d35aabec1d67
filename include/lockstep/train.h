/* lockstep/train.h - the step, the loop, evaluation, generation.
 *
 *     text -> tokens -> sample order -> micro-batches -> forward/backward -> gradient reduction
 *          -> clip -> optimizer -> parameters -> checkpoint
 *
 * Order of calls, on every rank of a world communicator:
 *
 *     ls_config_*                        lockstep/config.h: a resolved configuration
 *     ls_trainer_new                     plans and takes all memory, initialises the parameters
 *     ls_trainer_resume                  optional: the newest checkpoint of the run
 *     ls_trainer_step ...                one optimizer step each
 *     ls_trainer_evaluate, ls_trainer_hash, ls_trainer_save
 *     ls_trainer_free
 *
 * or ls_run, which is that loop with records, evaluation, samples and checkpoints as configured.
 * For one recipe all layouts give the same losses and the same hash, bit for bit.
 */
#ifndef LOCKSTEP_TRAIN_H
#define LOCKSTEP_TRAIN_H

#include <lockstep/comm.h>
#include <lockstep/config.h>
#include <lockstep/data.h>
#include <lockstep/dtensor.h>
#include <lockstep/nn.h>
#include <lockstep/optim.h>
#include <lockstep/plan/moves.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ls_trainer;

/* ---- the layout, before anything is allocated ------------------------------------------------ */

/* Local. ls_config_resolve with the vocabulary of the data's tokenizer (data.tokenizer, or the one
 * found beside data.train). */
int ls_train_resolve(struct ls_config *config, struct ls_error *error);
/* What a run will take, to the byte, per rank. */
struct ls_memory_plan {
    /* Bytes. parameters: masters and the copies that are computed with; transit: what ZeRO gathers
     * and scatters through; activations: with what pipelines receive. */
    size_t parameters, gradients, optimizer, transit, activations, total;
    int64_t micro_sequences;        /* of a micro-batch */
    int64_t micro_batches;          /* of a step on each rank, at the full batch */
    struct ls_batches_text batches; /* the same in words (ls_layout_batches) */
    int slots;                      /* micro-batches whose activations exist at once */
};
/* Local. LS_ELAYOUT (with the nearest layout that works) where the recipe does not admit
 * config->parallel and batch.micro; otherwise the plan of the rank that takes most. config is
 * resolved. */
int ls_plan(const struct ls_config *config, struct ls_memory_plan *plan, struct ls_error *error);
/* Local. What the optimizer is told of a resolved configuration. */
struct ls_optim_config ls_config_optim(const struct ls_config *config);
/* Local. Sequences of the step that begins when `samples` were consumed: Megatron's
 * --rampup-batch-size start increment samples. */
int64_t ls_batch_at(const struct ls_config *config, int64_t samples);
/* Local. What a checkpoint remembers of what gave its bits: numerics.version
 * (lockstep/base/version.h), instruction set, compiler, and the version and commit of Lockstep. */
void ls_fingerprint(enum ls_isa isa, char *text, size_t bytes);
/* Local. Whether the bits of two fingerprints may differ: numerics.version, instruction set or
 * compiler does. Another commit alone is no difference. text names what differs ("isa avx2 there,
 * amx here"; there: a, here: b), "" where nothing does. */
bool ls_fingerprint_differs(const char *a, const char *b, char *text, size_t bytes);

/* ---- a trainer ------------------------------------------------------------------------------- */

struct ls_step_report {
    int64_t step;            /* counted from 1 */
    int64_t samples, tokens; /* consumed since the start of the run */
    float loss;              /* mean over the batch's tokens, nats */
    uint32_t loss_bits;      /* the same, as stored */
    double grad_norm;        /* before clipping */
    float lr;
    bool skipped; /* not finite, and train.on_nonfinite is skip */
    double step_s, tokens_per_s;
    double peak_share; /* model flops per second / the best rate seen so far: that of one large
                        * product (ls_trainer_measure_peak), or of a step that was faster. Never
                        * above 1; 0 where nothing was measured */
    /* Of this rank, parts of step_s: the rest is computing. comm: the axes of wait_s, without
     * LS_ACCOUNT_OTHER. */
    double data_wait_s, comm_wait_s;
    double wait_s[LS_ACCOUNTS]; /* for other ranks, pipeline bubbles included */
    double optimizer_s;         /* the update */
    bool hashed;
    char hash[33]; /* of the state after this step, where hashed */
};

/* Collective over world, which is borrowed and must have as many ranks as the layout. config is
 * resolved and copied. log may be NULL. */
int ls_trainer_new(const struct ls_config *config, struct ls_comm *world, const struct ls_log *log,
                   struct ls_trainer **out, struct ls_error *error);
void ls_trainer_free(struct ls_trainer *trainer);

/* Collective. Measures the rate of one large product on all threads of the run at once, a fraction
 * of a second, for peak_share. */
int ls_trainer_measure_peak(struct ls_trainer *trainer, struct ls_error *error);

/* Collective. One step. LS_ENUMERIC where loss or gradient is not finite and train.on_nonfinite is
 * stop: nothing was updated. */
int ls_trainer_step(struct ls_trainer *trainer, struct ls_step_report *report,
                    struct ls_error *error);
/* Local. Steps done so far. */
int64_t ls_trainer_steps(const struct ls_trainer *trainer);

/* Collective. Over the first eval.samples sequences of data.valid, in order. */
struct ls_eval_report {
    double loss;          /* mean over tokens, nats */
    double bits_per_byte; /* of the decoded text; 0 where no tokenizer is known */
    int64_t sequences, tokens;
};
int ls_trainer_evaluate(struct ls_trainer *trainer, struct ls_eval_report *report,
                        struct ls_error *error);

/* Collective. The state hash (DESIGN: 128 bits, the same in any layout): parameters, optimizer
 * state, step, data position. LS_ENUMERIC where ranks that must hold the same values do not, naming
 * one: silent corruption. Compared are copies (data parallel), what tensor-parallel ranks hold
 * alike (norms, shared key/value heads), and a table tied across pipeline stages. */
int ls_trainer_hash(struct ls_trainer *trainer, struct ls_digest *digest, struct ls_error *error);
/* Collective. Writes train.out/checkpoints/step-%08d and prunes to train.keep. Rank 0 writes, one
 * whole tensor at a time, gathered from the ranks that hold its parts; the files do not tell which
 * layout wrote them. */
int ls_trainer_save(struct ls_trainer *trainer, struct ls_error *error);
/* Collective. Loads the newest whole checkpoint (train.resume auto) or the one named, whatever
 * layout wrote it; *resumed is false where there is none and train.resume is auto. LS_ECKPT where
 * it belongs to another recipe, with the keys that differ, or where ranks found different ones. */
int ls_trainer_resume(struct ls_trainer *trainer, bool *resumed, struct ls_error *error);
/* Collective. Text continued from prompt by the current parameters; *text is malloc'ed on rank 0
 * and NULL on the others. Needs a tokenizer. Where no rank holds the whole model, it is gathered on
 * rank 0, in the compute type. */
int ls_trainer_sample(struct ls_trainer *trainer, const char *prompt, char **text,
                      struct ls_error *error);
/* Local. The layout that runs, this rank's part of the parameters, and its masters (in the order of
 * struct ls_zero_slice). */
const struct ls_layout *ls_trainer_layout(const struct ls_trainer *trainer);
const struct ls_params *ls_trainer_params(const struct ls_trainer *trainer);
float *ls_trainer_master(struct ls_trainer *trainer);
/* Local. What this rank's operations moved and waited for since the trainer was made, by group:
 * between two steps the bytes are those that ls_layout_moves derives. */
void ls_trainer_stats(const struct ls_trainer *trainer, struct ls_comm_stats stats[LS_GROUPS]);

/* ---- its tensors ----------------------------------------------------------------------------- */

/* Each parameter, gradient and optimizer state is a distributed tensor (lockstep/dtensor.h):
 * float32, vectors [n], matrices [rows, columns]. It lies over the ranks that hold its layer, those
 * of one pp coordinate in the order of the world: ls_comm_split(world, color = the pp coordinate,
 * key = the rank, ...) makes the communicator for ls_mesh_comms_init. The mesh and its placements:
 *
 *   dp_replicate   Replicate
 *   shard          dp_shard x cp. ZeRO 0: Replicate. ZeRO 1 to 3: Shard(0), or StridedShard(0, n)
 *                  where tp cuts dim 0 in n parts, of which ZeRO cuts each
 *   tp             Shard(0): rows by heads, ffn or vocabulary, and their biases; Shard(1): the
 *                  matrices that come after those (attn.proj, mlp.down); Replicate: the others
 *
 * What belongs to key/value heads has two axes in place of tp where tp exceeds the heads: tp_heads,
 * Shard(0), and tp_sharers, Replicate. A tied table lies so over the first and over the last stage.
 *
 * ZeRO 3 gathers and frees copies of the parameters in the compute type; these here are the masters
 * that they are made of, and stay. */
enum ls_tensor_kind {
    LS_TENSOR_PARAMETER,
    LS_TENSOR_GRADIENT, /* of the last step, before clipping; of a tied table that of the head */
    LS_TENSOR_TABLE_GRADIENT, /* of a tied table that of the embedding; others have none */
    LS_TENSOR_STATE,          /* + s: state s of the optimizer */
};
/* Local. How many parameters this rank has a part of; number i is
 * ls_trainer_params(trainer)->list[i]. */
int ls_trainer_tensor_count(const struct ls_trainer *trainer);
/* Local. Tensor `kind` of parameter i: its data are the trainer's own, to be read, until the next
 * ls_trainer_step or ls_trainer_free. LS_EINVAL where there is no such tensor, or no step was taken
 * yet that made the gradient. */
int ls_trainer_dtensor(const struct ls_trainer *trainer, int i, enum ls_tensor_kind kind,
                       struct ls_dtensor *out, struct ls_error *error);

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
    /* Not zero: finish the step, save, return LS_ESTOPPED. Set by a signal handler; read on every
     * rank, agreed among them. */
    const volatile int *stop;
};
/* Collective. Trains to train.steps in train.out: config.yaml, metrics.jsonl, TensorBoard events,
 * trace/, checkpoints/. LS_ECOMM (such as a rank that is late, comm.timeout_s) leaves what
 * ls_run_late writes. */
int ls_run(const struct ls_config *config, struct ls_comm *world, const struct ls_log *log,
           const struct ls_run_hooks *hooks, struct ls_error *error);

/* Local. After LS_ECOMM and before the communicators are freed: what became of the ranks goes to
 * directory/log/. rank-%05d.txt is why this rank failed; operations-%05d.txt, by one rank for all
 * that share its memory, what ls_comm_dump tells. LS_EIO where the directory is not there. */
int ls_run_late(const char *directory, struct ls_comm *world, const struct ls_error *why,
                struct ls_error *error);

/* ---- proving that layouts agree -------------------------------------------------------------- */

/* What two layouts of one recipe must have alike, after each step. */
struct ls_proof {
    uint32_t loss_bits;
    struct ls_digest hash; /* of the state */
};
/* Collective. Trains from the start to `steps` and fills proof [steps] (on every rank). Writes
 * nothing. */
int ls_proof_make(const struct ls_config *config, struct ls_comm *world, int64_t steps,
                  struct ls_proof *proof, struct ls_error *error);
/* Local. The same on as many thread ranks as the layout has. */
int ls_proof_threads(const struct ls_config *config, int64_t steps, struct ls_proof *proof,
                     struct ls_error *error);
/* The first step (counted from 1) at which two proofs differ, 0 where they are equal. */
int64_t ls_proof_differs(const struct ls_proof *a, const struct ls_proof *b, int64_t steps);
/* Local. Runs both layouts again on thread ranks, up to step, and names the first tensor in which
 * that step differs: outputs of layers ascending, gradients descending, gradients of parameters;
 * "the update" where none does. */
int ls_proof_trace(const struct ls_config *a, const struct ls_config *b, int64_t step, char *name,
                   size_t bytes, struct ls_error *error);

/* ---- a finished run -------------------------------------------------------------------------- */

/* A checkpoint with its run's configuration and tokenizer, for evaluation and generation on this
 * process alone. path and which (NULL: the newest) are those of ls_checkpoint_choose. */
struct ls_loaded;
int ls_loaded_new(const char *path, const char *which, int threads, const struct ls_log *log,
                  struct ls_loaded **out, struct ls_error *error);
void ls_loaded_free(struct ls_loaded *loaded);
const struct ls_config *ls_loaded_config(const struct ls_loaded *loaded);
int64_t ls_loaded_step(const struct ls_loaded *loaded);
/* sequences 0: all. data is a token store's spec. */
int ls_loaded_evaluate(struct ls_loaded *loaded, const char *data, int64_t sequences,
                       struct ls_eval_report *report, struct ls_error *error);
struct ls_generate {
    const char *prompt;
    int64_t tokens; /* to add at most; stops at the end of a document. May exceed the model's
                     * context: then the newer half of it is kept each time it is full */
    struct ls_sampling sampling;
    uint64_t seed;
    /* Receives each piece of text as it is made, the prompt first. */
    void (*piece)(void *user, const char *bytes, size_t count);
    void *user;
};
int ls_loaded_generate(struct ls_loaded *loaded, const struct ls_generate *generate,
                       struct ls_error *error);

#ifdef __cplusplus
}
#endif
#endif
