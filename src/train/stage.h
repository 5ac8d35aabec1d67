/* Private to train: what a rank computes of a micro-batch, for the pipeline to call. */
#ifndef TRAIN_STAGE_H
#define TRAIN_STAGE_H

#include "trainer.h"

/* One step's (or evaluation's) micro-batches on this rank. */
struct stage_batch {
    struct ls_trainer *t;
    int64_t step;
    int64_t leaves, micro_leaves, micro_batches; /* of this rank */
    const struct ls_dp_share *share;             /* where micro-batches lie in the global batch */
    const int32_t *inputs, *targets;             /* [leaves * leaf_sequences, tokens held here] */
    bool training;
    float gradient_scale;
    float *leaf_loss; /* [leaves], written where the head is held */
};

/* Forward of the layers of a chunk. slot: of the saved activations. */
int stage_forward(const struct stage_batch *batch, int chunk, int64_t m, int slot,
                  const void *input, struct ls_error *error);
/* Backward of a chunk's layers: the input halves, the weight halves, or layer by layer both. */
enum stage_halves { STAGE_INPUT = 1, STAGE_WEIGHT = 2, STAGE_BOTH = 3 };
int stage_backward(const struct stage_batch *batch, int chunk, int64_t m, int slot,
                   const void *input, const void *d_output, enum stage_halves halves,
                   struct ls_error *error);

/* Starts to gather what layer reads, where ZeRO has cut it. */
int stage_prefetch(struct ls_trainer *t, int layer, struct ls_error *error);
/* All micro-batches forward and backward in the order of the pipeline's table. */
int stage_pipeline_run(const struct stage_batch *batch, struct ls_error *error);
/* The forward alone of one micro-batch through all stages. Collective over pp. */
int stage_forward_all(const struct stage_batch *batch, struct ls_error *error);

/* Buffers of the pipeline, from arena: fills memory's pipeline, slots and split_backward. */
int stage_take(const struct memory_request *request, struct ls_arena *arena,
               struct train_memory *memory, struct ls_error *error);
void stage_release(struct train_memory *memory);

/* Digests of a step's tensors, where they are on (t->digests is not NULL). */
enum digest_kind { DIGEST_OUTPUT, DIGEST_INPUT_GRADIENT };
void digests_release(struct tensor_digests *digests);
void digests_begin(struct tensor_digests *digests);
/* rows [M, channels] act: the residual stream behind layer, or the gradient of what it reads. */
void digests_note_stream(struct ls_trainer *t, enum digest_kind kind, int layer,
                         const struct ls_micro_batch *micro, const void *rows);
/* Collective. With the final gradients. */
int digests_finish(struct ls_trainer *t, const float *gradient, struct ls_error *error);

#endif
