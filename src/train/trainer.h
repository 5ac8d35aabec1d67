/* Private to train: what a rank holds. */
#ifndef TRAIN_TRAINER_H
#define TRAIN_TRAINER_H

#include <lockstep/dtensor.h>
#include <lockstep/mesh.h>
#include <lockstep/parallel.h>
#include <lockstep/parallel/pipeline.h>
#include <lockstep/parallel/schedule.h>
#include <lockstep/parallel/zero.h>
#include <lockstep/plan.h>
#include <lockstep/trace.h>
#include <lockstep/train.h>

/* The groups of ranks that this rank belongs to. One that is not needed because it has one rank is
 * still a communicator. */
struct train_groups {
    struct ls_comm *pp, *cp, *tp;
    struct ls_comm *dp;       /* dp_replicate x dp_shard: the ranks that see other samples */
    struct ls_comm *dp_shard; /* the axis alone */
    struct ls_comm *dp_replicate;
    struct ls_comm *shard;     /* of struct ls_zero_options */
    struct ls_comm *replicate; /* of struct ls_zero_options */
    struct ls_comm *owners;    /* the ranks that together hold the state once */
    struct ls_comm *copies;    /* the ranks that hold the same part of it; rank 0 of each such group
                                * forms the first copy */
};
int groups_open(const struct ls_layout *layout, struct ls_comm *world, struct train_groups *groups,
                struct ls_error *error);
void groups_close(struct train_groups *groups);

/* Which layers a rank holds: chunk i of the pipeline's virtual stages is layers [first, end). */
struct train_chunk {
    int first, end;
};
struct train_part {
    struct train_chunk *chunks;
    int chunk_count;
    bool *held, *chunk_first; /* [layers + 2] */
    bool head;                /* the head's layer is held */
};
int part_init(struct train_part *part, const struct ls_layout *layout, int64_t pp_rank,
              struct ls_error *error);
void part_release(struct train_part *part);
/* The virtual stage that computes layer. */
static inline int stage_of_layer(const struct ls_layout *layout, int layer)
{
    int stage = 0;
    while (layout->stage_first[stage + 1] <= layer)
        stage++;
    return stage;
}

/* What one layout makes of the model on one rank: its part, and how it is stored. All of it lies in
 * one arena, which may be measuring. */
struct train_memory {
    struct ls_arena arena;
    struct ls_zero *zero;
    struct ls_optimizer optimizer;
    struct ls_model *model;
    struct stage_tables *tables; /* the pipeline's */
    int slots;           /* micro-batches of a chunk between forward and the end of backward */
    bool split_backward; /* weight halves come on their own */
    struct ls_weights *weights; /* [units] as the model reads them */
    struct ls_slice *slices;    /* [params.count] as the optimizer walks over them */
};
/* What memory_take needs to know; groups NULL while planning. */
struct memory_request {
    const struct ls_config *config;
    const struct ls_layout *layout;
    const int64_t *coordinates; /* [LS_AXES] */
    const struct ls_params *params;
    const struct train_part *part;
    const struct train_groups *groups;
    const struct ls_tp *tp;
    const struct ls_cp *cp;
};
/* Takes (or measures) all buffers in the order of the plan. */
int memory_take(const struct memory_request *request, struct ls_arena *arena,
                struct train_memory *memory, struct ls_memory_plan *plan, struct ls_error *error);
void memory_release(struct train_memory *memory);
/* What the rank at those coordinates takes. */
int memory_plan(const struct ls_config *config, const struct ls_layout *layout,
                const int64_t coordinates[LS_AXES], struct ls_memory_plan *plan,
                struct ls_error *error);

/* The whole model in one place, for generation and evaluation on one process. */
struct whole_model {
    struct ls_params params;
    struct ls_arena arena;
    struct ls_weights *weights; /* [params.unit_count] */
    enum ls_dtype act;
};
int whole_init(struct whole_model *whole, const struct ls_model_config *config,
               const struct ls_numerics *numerics, struct ls_error *error);
void whole_release(struct whole_model *whole);
/* Parameter i becomes values [rows, cols]. */
void whole_set(struct whole_model *whole, struct ls_ops *ops, int i, const float *values);

struct ls_trainer {
    struct ls_config config;
    struct ls_comm *world;
    struct train_groups groups;
    const struct ls_log *log;
    struct ls_layout layout;
    int64_t coordinates[LS_AXES]; /* of this rank */
    struct train_part part;
    struct train_memory memory;
    struct ls_memory_plan plan;
    struct ls_numerics numerics;
    struct ls_ops ops;
    struct ls_params params; /* of this rank's part */
    struct ls_tp tp;
    struct ls_cp cp;
    struct ls_token_store *store, *valid_store;
    struct ls_tokenizer *tokenizer; /* NULL where none is known */
    struct ls_loader *loader;
    struct ls_token_segment *segments; /* of a sequence: the tokens of this rank */
    int segment_count;
    float *leaf_loss;            /* [leaves of this rank's share], on the last stage */
    struct ls_sample_run *runs;  /* [micro-batches of a step]: what is asked of the loader */
    int32_t *eval_ids;           /* [4, micro_sequences, T] */
    void *eval_input;            /* a boundary activation received */
    struct whole_model *sampled; /* the model gathered for a sample, made for the first */
    struct ls_decoder *decoder;
    struct ls_trace *trace;
    struct tensor_digests *digests; /* NULL: not asked for */
    double peak_flops;              /* of all ranks of this machine, 0 where not measured */
    int64_t step, samples;          /* done, consumed */
    int64_t saved_step; /* of the newest checkpoint that this run wrote or went on from, or -1 */
    bool failed;        /* a step did: transfers may be under way that never end */
    bool posted;        /* the next step's samples are on their way */
};

/* Tokenizer of the data or of data.tokenizer; *out NULL (and LS_OK) where the data has none. */
int tokenizer_find(const struct ls_config *config, struct ls_tokenizer **out,
                   struct ls_error *error);

/* Writes what a run's directory needs to be used on its own: the tokenizer's files, and
 * config.yaml. begun: it goes on from a checkpoint. LS_ECONFIG where another tokenizer is kept
 * there. */
int kept_write(const struct ls_config *config, const struct ls_tokenizer *tokenizer, bool begun,
               struct ls_error *error);
/* The resolved configuration of a run, and its tokenizer: NULL where there is none. To be freed,
 * also after a failure. */
int kept_read(const char *run, struct ls_config *config, struct ls_tokenizer **tokenizer,
              struct ls_error *error);

/* Where a parameter's elements lie: over a mesh of the layout's ranks of one pp coordinate
 * (lockstep/train.h). */
int tensor_spec(const struct ls_layout *layout, const struct ls_param *param,
                struct ls_dtensor_spec *spec, struct ls_error *error);
/* This rank's slice of parameter i of an array that is laid out as the master. */
int tensor_slice(const struct ls_trainer *t, int i, float *array, struct ls_dtensor *out,
                 struct ls_error *error);

/* Every layer's parameters as tp rank 0 holds them, which says how they are cut. */
int state_params(const struct ls_trainer *t, struct ls_params *all, struct ls_error *error);
/* Elements of the largest of them, whole. */
int64_t state_largest(const struct ls_params *all);
enum { STATE_MESSAGE = 1 << 20 };
/* Collective over world. Parameter i of all, or with state >= 0 the optimizer's state of it, whole
 * on rank 0: values [its elements], followed there by room for STATE_MESSAGE more. Unused
 * elsewhere. */
int state_collect(struct ls_trainer *t, const struct ls_params *all, int i, int state,
                  float *values, struct ls_error *error);

/* Evaluation of sequences [first, first + count) of a store, summed exactly. */
struct eval_sum {
    struct ls_exact_sum loss;
    uint64_t sequences, tokens, bytes;
};
void eval_report_of(const struct eval_sum *sum, struct ls_eval_report *report);
/* Reads sequences [first, first + count) and as many more as make whole leaves (their targets are
 * -1) into ids and targets [padded, T]; adds to the sum's counts. Returns through *padded. */
int eval_read(const struct ls_token_store *store, const struct ls_tokenizer *tokenizer,
              const struct ls_config *config, int64_t first, int64_t count, int32_t *ids,
              int32_t *targets, int64_t *padded, struct eval_sum *sum, struct ls_error *error);

/* Sleeps a while after a timeout: ranks that wait in other groups come to their own, and say who is
 * late there, before this one unwinds under them. */
void train_late_grace(double timeout_s);

/* Continues prompt with decoder and hands out pieces. */
int generate_text(struct ls_decoder *decoder, struct ls_ops *ops,
                  const struct ls_tokenizer *tokenizer, int64_t context,
                  const struct ls_generate *generate, struct ls_error *error);

#endif
