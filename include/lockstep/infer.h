/* lockstep/infer.h - a trained model at work: validation loss and generated text, in any layout.
 *
 * Of a finished run, where ranks is what the configuration's layout has:
 *
 *     ls_finished_configure("runs/one", LS_TO_EVALUATE, words, count, &config, &error)
 *     on each rank of a world:
 *         ls_finished_new(&config, "runs/one", NULL, world, &log, &finished, &error)
 *         ls_runner_evaluate(ls_finished_runner(finished), ...), ls_runner_continue
 *         ls_finished_free
 *
 * A trainer evaluates and samples by a runner of its own, over the parts that it trains with
 * (lockstep/train.h). Loss, logits and text have the same bits in any layout. */
#ifndef LOCKSTEP_INFER_H
#define LOCKSTEP_INFER_H

#include <lockstep/base.h>
#include <lockstep/comm.h>
#include <lockstep/config.h>
#include <lockstep/data.h>
#include <lockstep/device.h>
#include <lockstep/infer/defaults.h>
#include <lockstep/infer/requests.h>
#include <lockstep/nn.h>
#include <lockstep/ops.h>
#include <lockstep/plan.h>
#include <lockstep/plan/groups.h>
#include <lockstep/trace.h>

LS_C_BEGIN

/* ---- the runner ------------------------------------------------------------------------------ */

/* What a runner is made of; pointers are borrowed. */
struct ls_runner_parts {
    const struct ls_config *config; /* resolved */
    const struct ls_layout *layout;
    struct ls_comm *const *groups; /* [LS_GROUPS] */
    struct ls_ops *ops;
    const struct ls_tokenizer *tokenizer; /* NULL: none is known */
    struct ls_trace *trace;               /* NULL: none */
    /* What the model is, which part of it is here, and where weights lie. */
    struct ls_model_options part;
    /* Takes micro-batches of layout->micro_sequences. NULL: the first evaluation makes one. */
    struct ls_model *model;
    /* Around each layer's work: its weights are there between the two. The layers after it, up to
     * last, come next. NULL: weights always are. */
    int (*enter)(void *user, int layer, int last, struct ls_error *error);
    void (*leave)(void *user, int layer);
    void *user;
    bool together; /* enter is collective over LS_GROUP_SHARD: in generation all ranks take part in
                    * each step, with texts or without */
};

/* A model that is run forward alone, over all stages of its layout. */
struct ls_runner;
/* Local. Memory for evaluations, and for text, is taken when they are first asked for. */
int ls_runner_new(const struct ls_runner_parts *parts, struct ls_runner **out,
                  struct ls_error *error);
void ls_runner_free(struct ls_runner *runner);
/* Local, on every rank or none. While *flag is not 0 on some rank, evaluation, scores and
 * generation end between two batches or tokens with LS_ESTOPPED on all ranks, and the runner may be
 * used again. Borrowed; NULL, as at first: they do not ask. Returns the flag before. */
const volatile int *ls_runner_set_interrupt(struct ls_runner *runner, const volatile int *flag);
/* Local. NULL if none is known. */
const struct ls_tokenizer *ls_runner_tokenizer(const struct ls_runner *runner);

/* ---- evaluation ------------------------------------------------------------------------------ */

struct ls_eval_report {
    double loss;          /* mean over tokens, nats */
    double bits_per_byte; /* of the decoded text; 0 if no tokenizer is known */
    int64_t sequences, tokens;
};
/* Collective over the world. Of the store's first so many sequences, in order; 0: of all. The sum
 * over leaves is exact, so it does not matter which data-parallel rank takes which. *logprobs
 * [report->sequences, T] = each target's log-probability, minus its loss; NaN if the mask says
 * that it does not count. To be freed on every rank; NULL: they are not asked for. */
int ls_runner_evaluate(struct ls_runner *runner, const struct ls_token_store *store,
                       int64_t sequences, struct ls_eval_report *report, float **logprobs,
                       struct ls_error *error);

/* A text whose tokens are scored. */
struct ls_scored {
    const int32_t *ids; /* [count]; borrowed */
    int64_t count;
    int64_t first; /* tokens [first, count) are; never the first one, which nothing stands before */
    float *logprobs; /* [count]: the scored tokens' are filled in; the caller's */
    /* [count] or NULL: filled in with the entropy, in nats, of the distribution over the vocabulary
     * that each scored token is of, exact but for rounding; the caller's. All ranks want it or
     * none; it costs another pass over the logits. */
    float *entropies;
    bool likeliest; /* each scored token is the likeliest (the lowest one of several) */
};
/* Collective over the world, each rank with the same texts. The log-probability of a token is minus
 * its loss in training, bit for bit, whatever the layout, and whichever texts stand beside it; so
 * is its entropy one set of bits. LS_EDATA for a text of more than ls_runner_score_room tokens, or
 * a token that is not in the vocabulary; LS_ECONFIG for a vocabulary of 2^24 tokens or more. */
int ls_runner_score(struct ls_runner *runner, struct ls_scored *texts, int64_t count,
                    struct ls_error *error);
/* The same of the distribution at that temperature: logits are divided by it first. */
int ls_runner_score_at(struct ls_runner *runner, struct ls_scored *texts, int64_t count,
                       float temperature, struct ls_error *error);
/* Local. The model's context and one more, which is scored alone. */
int64_t ls_runner_score_room(const struct ls_runner *runner);

/* What ls_runner_score makes of a request. */
struct ls_request_score {
    float *logprobs;      /* [tokens.count]: the scored tokens' are filled in */
    double loglikelihood; /* their sum, nats */
    int64_t tokens;       /* how many */
    bool likeliest;       /* what greedy generation would have written */
};
/* Collective over the world. *scores [requests->count], for ls_request_scores_free, or NULL after a
 * failure. A whole text that is longer than the context
 * is scored in windows: each token once, with as many before it as its window has, which follow
 * each other but for the last, which is full. LS_EDATA names the line of another request that is
 * too long, unless truncate leaves out its first tokens, as far as they are not scored. */
int ls_runner_score_requests(struct ls_runner *runner, const struct ls_text_requests *requests,
                             bool truncate, struct ls_request_score **scores,
                             struct ls_error *error);
/* scores [count]; NULL is allowed. */
void ls_request_scores_free(struct ls_request_score *scores, int64_t count);

struct ls_choice_report {
    int64_t examples;
    int64_t right;        /* whose label's ending has the largest mean log-probability of a token */
    int64_t right_by_sum; /* the largest log-probability */
};
/* Collective over the world. Of the first so many examples; 0: of all. */
int ls_runner_score_choices(struct ls_runner *runner, const struct ls_choices *choices,
                            int64_t examples, struct ls_choice_report *report,
                            struct ls_error *error);

/* ---- text ------------------------------------------------------------------------------------ */

/* Collective over the world. What continues the prompt, as `sample` of the configuration says, the
 * prompt in front: *text is malloc'ed on rank 0 and NULL on the others. A text may be longer than
 * the model's context: then the newer half is kept each time it is full. LS_ECONFIG without a
 * tokenizer. */
int ls_runner_sample(struct ls_runner *runner, const char *prompt, char **text,
                     struct ls_error *error);

/* ---- many prompts ---------------------------------------------------------------------------- */

/* Why a text ends: it has as many tokens as asked for; a text to stop at; a token that ends it; or
 * the model's context is full. */
enum ls_finish { LS_FINISH_LENGTH, LS_FINISH_STOP, LS_FINISH_END, LS_FINISH_CONTEXT };
const char *ls_finish_name(enum ls_finish finish); /* "length", "stop", "end", "context" */

struct ls_generated {
    const int32_t *ids; /* [count]: the prompt's, and behind them all that were drawn */
    int64_t count, prompt_count;
    /* [count], from the second token on: minus the loss of training, bit for bit. NULL: not asked
     * for. */
    const float *logprobs;
    const char
        *text; /* [bytes] of what was drawn, up to a text to stop at; "" without a tokenizer */
    size_t bytes;
    enum ls_finish finish;
};
/* To keep one; ids are NULL if there is none. */
int ls_generated_copy(struct ls_generated *out, const struct ls_generated *text,
                      struct ls_error *error);
void ls_generated_release(struct ls_generated *copy);

struct ls_generation {
    const struct ls_text_requests *prompts; /* LS_PROMPTS; borrowed */
    int64_t tokens; /* to add to each at most, where a prompt does not say itself */
    struct ls_sampling sampling;
    uint64_t seed;
    int64_t samples;      /* texts that continue each prompt; 0: one */
    int64_t batch;        /* texts under work at a time */
    int64_t cache_tokens; /* room for keys and values, all texts together, in whole blocks of
                           * LS_ATTENTION_BLOCK, at most a batch of the longest text's; 0: what
                           * the batch needs */
    const int32_t *ends;  /* [end_count] tokens that end a text */
    int end_count;
    const char *const *stops; /* [stop_count], beside those of a prompt */
    int stop_count;
    bool logprobs;
    bool scaled; /* they are of the distribution at sampling.temperature, above 0, as
                  * ls_runner_score_at gives them */
    bool slides; /* a text may be longer than the context: the newer half is kept each time it is
                  * full. Without logprobs, and without prompts' own stops where piece is set. */
    /* On rank 0 of the world. piece: what was drawn, as it comes, of a single text. done: a text,
     * in whichever order they end, and those of other copies of the model at the end; its failure
     * ends all. Both may be NULL. */
    void (*piece)(void *user, const char *bytes, size_t count);
    const char *echo; /* what piece gets first, once nothing was refused; NULL: nothing */
    int (*done)(void *user, int64_t prompt, int64_t sample, const struct ls_generated *text,
                struct ls_error *error);
    void *user;
    bool everywhere; /* done is called on all ranks: elsewhere than on rank 0 at the end */
};
/* Of all ranks together, and the same on each, but for seconds and bytes. */
struct ls_generation_report {
    int64_t read, written; /* tokens of prompts, each prompt once, and drawn */
    double seconds;
    int64_t batch, context; /* texts at a time, tokens that each may come to */
    int64_t blocks;      /* of LS_ATTENTION_BLOCK tokens of keys and values, all texts together */
    int64_t blocks_used; /* at a time, at most */
    int64_t put_back;    /* how often a text gave its blocks to an older one */
    size_t bytes;        /* of this rank's decoder: mostly keys and values */
};
/* Collective over the world, each rank with the same prompts, which are shared out among the data-
 * and context-parallel copies of the model. Prompts are fed many tokens at a time, beside the texts
 * that go on by one; a text that ends makes room for the next. What becomes of a prompt depends on
 * its tokens, its number, that of the sample, the seed and the sampling alone: not on the batch,
 * the other prompts and samples, memory or the layout; sample 0 is what a single one would be. The
 * samples of a prompt share its keys and values. A text takes memory for its own as it grows; if
 * none is left, the youngest text is put back: it is fed again with what it has written when there
 * is room. So a batch needs no more than its longest text alone, and where too little is free for
 * cache_tokens = 0, it works with what is. LS_EINVAL for more than 2^32 samples, for pieces of
 * several, and for fewer than one token to add; LS_EDATA for a prompt that is longer than the
 * context, LS_ECONFIG for cache_tokens without room for the longest text, LS_ENOMEM if not even
 * that is free. */
int ls_runner_continue(struct ls_runner *runner, const struct ls_generation *generation,
                       struct ls_generation_report *report, struct ls_error *error);

/* Text token by token. ls_runner_restart, collective over the world, begins a text; ls_runner_next,
 * collective over pp, tp and what enter is collective over, appends a token, and gives on the ranks
 * of the last stage the float32 logits [vocab] of the next one, which are the runner's; NULL on the
 * others. LS_EINVAL past config.model.context. */
int ls_runner_restart(struct ls_runner *runner, struct ls_error *error);
int ls_runner_next(struct ls_runner *runner, int32_t token, const float **logits,
                   struct ls_error *error);

/* ---- a finished run -------------------------------------------------------------------------- */

enum ls_finished_use { LS_TO_EVALUATE, LS_TO_GENERATE };
/* What becomes of the blocks' matrices (lockstep/ops/int8.h); tables stay in the compute type. */
enum ls_quantize {
    LS_QUANTIZE_NONE,
    LS_QUANTIZE_INT8,        /* they are int8, and so are activations where they meet them */
    LS_QUANTIZE_INT8_WEIGHTS /* they alone are int8 */
};
/* "none", "int8", "int8-weights". */
extern const struct ls_word ls_quantizes[];
/* What of a run, and how. A zero struct: the newest checkpoint, as it is. */
struct ls_finished_choice {
    const char *which; /* of ls_checkpoint_choose; NULL: the newest */
    enum ls_quantize quantize;
};
/* Local. The configuration that the run of a path (ls_checkpoint_run) kept, with the layout of
 * words ("parallel.tp=2"), whatever layout trained it; one rank without. path may be another
 * program's model too (ls_model_is_foreign). A word data.tokenizer is for a model that has none,
 * numerics.precision for another program's.
 * LS_ECONFIG for a key that has no meaning here. */
int ls_finished_configure(const char *path, enum ls_finished_use use, const char *const *words,
                          int count, struct ls_config *config, struct ls_error *error);

/* A checkpoint's parameters in a layout, in the compute type: each rank reads its part. */
struct ls_finished;
/* Collective over world, which is borrowed and has as many ranks as the layout. config is of
 * ls_finished_configure, and copied; path is that of ls_checkpoint_choose. choice NULL: a zero
 * struct. LS_EDATA if a matrix cannot be int8: it has a weight that is not finite. */
int ls_finished_new(const struct ls_config *config, const char *path,
                    const struct ls_finished_choice *choice, struct ls_comm *world,
                    const struct ls_log *log, struct ls_finished **out, struct ls_error *error);
void ls_finished_free(struct ls_finished *finished);
struct ls_runner *ls_finished_runner(struct ls_finished *finished);
const struct ls_model_config *ls_finished_model(const struct ls_finished *finished);
/* NULL if none is known. */
const struct ls_tokenizer *ls_finished_tokenizer(const struct ls_finished *finished);
int64_t ls_finished_step(const struct ls_finished *finished);
/* Local. The layout that runs, this rank's part of the parameters, the type of their matrices
 * (vectors are float32), and parameter i as a distributed tensor, whose data are those that are
 * computed with. LS_EINVAL for a matrix in int8, or in blocks (lora.base). */
const struct ls_layout *ls_finished_layout(const struct ls_finished *finished);
const struct ls_params *ls_finished_params(const struct ls_finished *finished);
enum ls_dtype ls_finished_dtype(const struct ls_finished *finished);
int ls_finished_dtensor(const struct ls_finished *finished, int i, struct ls_dtensor *out,
                        struct ls_error *error);
/* Local. Pointers to these data outlive it: ls_finished_free leaves their memory in *kept. */
void ls_finished_lend(struct ls_finished *finished, struct ls_arena *kept);

LS_C_END
#endif
