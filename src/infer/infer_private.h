/* Private to infer. */
#ifndef INFER_PRIVATE_H
#define INFER_PRIVATE_H

#include <lockstep/infer.h>

struct ls_runner {
    struct ls_runner_parts parts;
    int64_t pp_rank;
    struct ls_arena arena; /* of a model that is made here */
    struct ls_model *model;
    struct ls_decoder *decoder;        /* NULL before the first text */
    struct ls_token_segment *segments; /* of a sequence: the tokens of this rank */
    int segment_count;
    int32_t *tokens; /* [4, micro_sequences, T] of an evaluation */
    float *losses;   /* [micro_sequences] */
    void *input;     /* what came from the stage before */
    size_t input_bytes;
};

/* Whether this rank holds the head. */
bool runner_ends(const struct ls_runner *runner);
/* Collective over pp (and what layers are collective over). The layers of all stages over one
 * micro-batch, whose input is set here. */
int runner_forward(struct ls_runner *runner, struct ls_model *model, struct ls_micro_batch *batch,
                   struct ls_error *error);

/* The weights of this rank's layers as a model reads them, where nothing trains them. */
struct held_weights {
    const struct ls_params *params; /* borrowed */
    enum ls_dtype act;
    struct ls_arena arena;
    struct ls_weights *list; /* [params.unit_count] */
};
int held_weights_init(struct held_weights *held, const struct ls_params *params, enum ls_dtype act,
                      struct ls_error *error);
void held_weights_release(struct held_weights *held);
/* Elements [first, first + count) of the part of the parameter become values. */
void held_weights_set(struct held_weights *held, struct ls_ops *ops, const struct ls_param *param,
                      int64_t first, int64_t count, const float *values);

#endif
