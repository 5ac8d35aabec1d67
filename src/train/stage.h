/* Private to train: what a rank computes of a batch, micro-batch by micro-batch. */
#ifndef TRAIN_STAGE_H
#define TRAIN_STAGE_H

#include "train/trainer.h"

#include <float.h>
#include <math.h>

/* A batch, loaded: what this rank computes of it. */
struct train_batch {
    int64_t step;
    int64_t first; /* of its samples, in the order of the run; */
    int64_t shift; /* of them those that other workers take before it in this step */
    double loss_scale;
    struct ls_dp_share share;        /* of its leaves */
    int64_t counted;                 /* targets of the whole batch that count */
    const int64_t *source_counted;   /* [sources] the same; NULL: nothing is read */
    const double *source_weights;    /* [sources] the sum of their weights; NULL: there are none */
    double divisor;                  /* of the sum of the batch's losses: as many, or the sum of
                                      * their weights, or 1 */
    float temperature;               /* of logits; 0: 1 */
    const int32_t *inputs, *targets; /* [share.count * share.leaf, tokens held here] */
    const float *weights;            /* the same, of the losses; NULL: each is 1 */
    const float *entropy_weights;    /* the same, of the entropies; NULL: each is 0 */
    const int32_t *starts;           /* [share.count * share.leaf, T]; NULL: no documents */
    float *row_losses;    /* where the head leaves those of all rows, as targets; NULL: nowhere */
    float *row_entropies; /* the same */
    bool given;           /* by the caller: it is none of the data's */
    bool sum;             /* the divisor is 1, whatever the weights */
};

/* What is told of the final gradient of a batch, t->state->gradient. */
struct train_gradient {
    double scale; /* the loss scale, by which its values are too large */
    double norm;  /* without it */
    float loss;   /* the batch's mean */
    double start_s;
    bool weighted; /* its targets have weights */
};
/* Whether losses can be divided by it: not 0, and its reciprocal is a float32. */
static inline bool stage_divides(double divisor)
{
    return divisor != 0 && fabs(1 / divisor) <= (double)FLT_MAX;
}

/* Forward or backward (the input halves, the weight halves, or layer by layer both) of a chunk's
 * layers on a micro-batch, whose saved activations are in that slot. The forward of the head leaves
 * the losses in t->losses. */
int stage_forward(struct ls_trainer *t, const struct train_batch *batch,
                  const struct ls_pipeline_task *task, int slot, struct ls_error *error);
int stage_backward(struct ls_trainer *t, const struct train_batch *batch,
                   const struct ls_pipeline_task *task, int slot, struct ls_error *error);

/* What comes next works for that pass, as traces and recordings tell; returns the one before, to go
 * back to. */
enum ls_work_pass stage_pass_begin(struct ls_trainer *t, enum ls_work_pass pass);
void stage_pass_end(struct ls_trainer *t, enum ls_work_pass before);

/* Starts to gather what layer reads, where ZeRO has cut it. */
int stage_prefetch(struct ls_trainer *t, int layer, struct ls_error *error);
/* All micro-batches forward and backward in the order of the pipeline's table. */
int stage_pipeline_run(struct ls_trainer *t, const struct train_batch *batch,
                       struct ls_error *error);
/* Evaluates and samples with the model and the weights that t trains; t's trace may be there. */
int stage_runner_new(struct ls_trainer *t, struct ls_runner **out, struct ls_error *error);

/* Buffers of the pipeline, from arena: fills memory's pipeline, slots and split_backward. */
int stage_take(const struct memory_request *request, struct ls_arena *arena,
               struct train_memory *memory, struct ls_error *error);
void stage_release(struct train_memory *memory);
/* The pipeline for so many micro-batches, which a step of the run has; its table. */
const struct ls_pipeline *stage_pipeline_of(const struct train_memory *memory,
                                            int64_t micro_batches,
                                            const struct ls_schedule **schedule);
/* The units that a layer reads: its own, and the embedding that of the head where they are tied. */
int stage_units_of(const struct ls_params *params, int layer, int units[2]);

/* A batch that the caller gives (src/train/given.c). Collective: checks it, without a change of
 * anything, and what all ranks were given is the same; then this rank's share of it, for a batch
 * whose share and step are set; then, behind its forward, the log-probabilities and entropies where
 * they were asked for. */
int given_admit(struct ls_trainer *t, const struct ls_given_batch *batch, struct ls_error *error);
void given_take(struct ls_trainer *t, struct train_batch *batch);
int given_answer(struct ls_trainer *t, const struct train_batch *batch, struct ls_error *error);
void given_free(struct given *given);
/* Local. The sequences of the batch of the next step. */
int64_t step_sequences(const struct ls_trainer *t);

/* Digests of a step's tensors, where they are on (t->digests is not NULL). */
enum digest_kind { DIGEST_OUTPUT, DIGEST_INPUT_GRADIENT };
void digests_release(struct tensor_digests *digests);
void digests_begin(struct tensor_digests *digests);
/* rows [M, channels] act: the residual stream behind layer, or the gradient of what it reads. */
int digests_note_stream(struct ls_trainer *t, enum digest_kind kind, int layer,
                        const struct ls_micro_batch *micro, const void *rows,
                        struct ls_error *error);
/* Collective. With the final gradients. */
int digests_finish(struct ls_trainer *t, struct ls_error *error);

#endif
