/* Private to infer. */
#ifndef INFER_INFER_PRIVATE_H
#define INFER_INFER_PRIVATE_H

#include <lockstep/infer.h>

/* What errors say where text is to become tokens, or tokens text. */
#define NO_TOKENIZER                                                                               \
    "text needs the tokenizer that made the model's data, and the model has none that can be "     \
    "read: name one with data.tokenizer=SPEC"

struct ls_runner {
    struct ls_runner_parts parts;
    int64_t pp_rank;
    const volatile int *interrupt; /* NULL: nobody interrupts */
    struct ls_arena arena;         /* of a model that is made here */
    struct ls_model *model;
    bool documents;                    /* it was made for packed samples, too */
    struct ls_decoder *decoder;        /* NULL before the first text */
    struct ls_token_segment *segments; /* of a sequence: the tokens of this rank */
    int segment_count;
    int32_t *tokens; /* [5, micro_sequences, T] of an evaluation */
    float *losses;   /* [micro_sequences] */
    void *input;     /* what came from the stage before */
    size_t input_bytes;
};

/* Whether this rank holds the head. */
bool runner_ends(const struct ls_runner *runner);
/* And answers for it among those of tp, who all know the same. */
bool runner_answers(const struct ls_runner *runner);
/* Local. status, or LS_ESTOPPED if this rank was interrupted: to be agreed on. */
int runner_interrupted(const struct ls_runner *runner, int status, struct ls_error *error);
/* Rank 0 tells how far a work of all ranks is (lockstep/base/meter.h). */
void runner_tell(const struct ls_runner *runner, const char *what, int64_t done, int64_t all);
/* A model over memory of its own. */
int runner_model_make(const struct ls_model_options *options, struct ls_arena *arena,
                      struct ls_model **out, struct ls_error *error);
/* Collective over pp (and what layers are collective over). The layers of all stages over one
 * micro-batch, whose input is set here. The host may read what they made. batch NULL: weights come
 * and go, and nothing is made. */
int runner_forward(struct ls_runner *runner, struct ls_model *model, struct ls_micro_batch *batch,
                   struct ls_error *error);

/* Local. A decoder of that size; LS_ENOMEM if the machine has too little. */
int runner_decoder(struct ls_runner *runner, const struct ls_decoder_size *size,
                   struct ls_error *error);

/* Tokens that a prompt's text may get, of whom asks for `tokens`: sums with it do not overflow. */
int64_t prompt_added(const struct ls_text_request *request, int64_t tokens);

/* ---- what the head found of each token ------------------------------------------------------- */

/* The bits of a token's log-probability, that it counts, and whether it is the likeliest. Zero
 * where this rank knows nothing of it, so that the sum over ranks is what one of them found. */
#define FOUND           ((uint64_t)1 << 32)
#define FOUND_LIKELIEST ((uint64_t)1 << 33)
uint64_t found_of(float loss, bool likeliest);
float found_logprob(uint64_t found);
/* Rows of the model's last micro-batch, whose tokens here are these segments of each sequence. */
struct found_rows {
    const struct ls_model *model;
    const struct ls_token_segment *segments;
    int segment_count;
};
/* found[t] of token t of a sequence of batch, if it is here and its target counts, and entropies[t]
 * of what the target was drawn from, with batch->entropies. */
void found_take(const struct found_rows *rows, const struct ls_micro_batch *batch, int64_t sequence,
                uint64_t *found, float *entropies);

/* ---- weights --------------------------------------------------------------------------------- */

/* The weights of this rank's layers as a model reads them, if nothing trains them. */
struct held_weights {
    const struct ls_params *params; /* borrowed */
    enum ls_dtype act;
    enum ls_quantize quantize;
    struct ls_arena arena;
    struct ls_weights *list; /* [params.unit_count] */
    float *staging;          /* the matrix that becomes int8; NULL: none does */
};
/* lent: [params.unit_count], units below 0 get memory, of the others the caller sets list; NULL:
 * all get it. */
int held_weights_init(struct held_weights *held, const struct ls_params *params, enum ls_dtype act,
                      enum ls_quantize quantize, const int *lent, struct ls_error *error);
/* What that takes, with weights in the compute type. */
size_t held_weights_bytes(const struct ls_params *params, enum ls_dtype act, const int *lent);
void held_weights_release(struct held_weights *held);
/* Where the part of the parameter lies; NULL if it is int8. */
void *held_weights_data(const struct held_weights *held, const struct ls_param *param);
/* Elements [first, first + count) of the part of the parameter become values. */
void held_weights_set(struct held_weights *held, struct ls_ops *ops, const struct ls_param *param,
                      int64_t first, int64_t count, const float *values);
/* All elements of the parameter were set, and none of another since its first. LS_EDATA if it
 * cannot be int8. */
int held_weights_end(struct held_weights *held, struct ls_ops *ops, const struct ls_param *param,
                     struct ls_error *error);

/* ---- a rank's place in a layout -------------------------------------------------------------- */

struct model_place {
    struct ls_layout layout; /* set before it is opened */
    struct ls_comm *groups[LS_GROUPS];
    struct ls_tp tp;
    struct ls_cp cp;
    bool *held, *chunk_first; /* [layers + 2] */
    struct ls_params params;
    struct held_weights weights; /* initialised by the caller, behind the rest */
};
/* Collective over world. All but the weights. After a failure, close groups and release it. */
int model_place_open(struct model_place *place, struct ls_comm *world, struct ls_queue *queue,
                     struct ls_error *error);
/* Local. After ls_groups_close. */
void model_place_release(struct model_place *place);
/* What a runner is told of it; borrows from place. */
struct ls_model_options model_place_part(const struct model_place *place);

#endif
