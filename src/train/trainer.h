/* Private to train: what a rank holds. */
#ifndef TRAIN_TRAINER_H
#define TRAIN_TRAINER_H

#include <lockstep/mesh.h>
#include <lockstep/parallel.h>
#include <lockstep/trace.h>
#include <lockstep/train.h>

/* Sizes that follow from the configuration alone. */
struct train_sizes {
    int64_t sequence_tokens;
    int64_t leaves_max; /* of a global batch */
    int64_t micro_leaves;
    int64_t micro_batches_max;
    int64_t micro_sequences;
    int gradient_buffers;
};

/* Buffers, one arena a rank. */
struct train_memory {
    struct ls_arena arena;
    struct ls_weights weights;
    float *gradient[64]; /* [params.gradient_elements] each; the sum ends in gradient[0] */
};

struct ls_trainer {
    struct ls_config config;
    struct ls_comm *world;
    struct ls_mesh mesh;
    struct ls_comm *replicas; /* the group over the mesh's axis dp */
    const struct ls_log *log;
    struct train_sizes sizes;
    struct train_memory memory;
    struct ls_memory_plan plan;
    struct ls_numerics numerics;
    struct ls_ops ops;
    struct ls_params params;
    struct ls_model *model;
    struct ls_optimizer optimizer;
    struct ls_dp *dp;
    struct ls_token_store *store, *valid_store;
    struct ls_tokenizer *tokenizer; /* NULL where none is known */
    struct ls_loader *loader;
    float *leaf_loss;           /* [leaves of this rank's share] */
    int32_t *eval_ids;          /* [2, micro_sequences, T] */
    struct ls_decoder *decoder; /* made for the first sample */
    struct ls_trace *trace;
    double peak_flops;     /* of all ranks of this machine, 0 where not measured */
    int64_t step, samples; /* done, consumed */
    int64_t saved_step;    /* of the newest checkpoint that this run wrote or went on from, or -1 */
    bool posted;           /* the next step's samples are on their way */
};

int sizes_of(const struct ls_config *config, struct train_sizes *sizes, struct ls_error *error);
struct ls_numerics numerics_of(const struct ls_config *config);
/* Takes (or measures) all buffers in the order of the plan. */
int memory_take(const struct ls_config *config, const struct train_sizes *sizes,
                const struct ls_numerics *numerics, const struct ls_params *params,
                struct ls_arena *arena, struct train_memory *memory, struct ls_optimizer *optimizer,
                struct ls_model **model, struct ls_memory_plan *plan, struct ls_error *error);
/* Rounds the masters of all parameters into the compute copy, where there is one. */
void weights_refresh(const struct ls_weights *weights, const struct ls_params *params,
                     struct ls_ops *ops);
/* Tokenizer of the data or of data.tokenizer; *out NULL (and LS_OK) where the data has none. */
int tokenizer_find(const struct ls_config *config, struct ls_tokenizer **out,
                   struct ls_error *error);

/* Evaluation of sequences [first, first + count) of a store, summed exactly. */
struct eval_sum {
    struct ls_exact_sum loss;
    uint64_t sequences, tokens, bytes;
};
struct eval_task {
    struct ls_model *model;
    struct ls_ops *ops;
    const struct ls_token_store *store;
    const struct ls_tokenizer *tokenizer; /* may be NULL */
    int64_t sequence_tokens, micro_sequences, leaf_sequences, vocabulary;
    int32_t *ids; /* [2, micro_sequences, T] */
};
int eval_range(const struct eval_task *task, int64_t first, int64_t count, struct eval_sum *sum,
               struct ls_error *error);
void eval_report_of(const struct eval_sum *sum, struct ls_eval_report *report);

/* Continues prompt with decoder and hands out pieces. */
int generate_text(struct ls_decoder *decoder, struct ls_ops *ops,
                  const struct ls_tokenizer *tokenizer, int64_t context,
                  const struct ls_generate *generate, struct ls_error *error);

#endif
