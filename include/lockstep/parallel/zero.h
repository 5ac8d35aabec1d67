/* lockstep/parallel/zero.h - ZeRO 0 to 3 (FSDP): who stores which part of parameters, gradients and
 * optimizer states, what is gathered before a layer runs and how its gradient is reduced after.
 *
 * Source: Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter
 * Models"; Zhao et al. 2023, "PyTorch FSDP". Stage 0 keeps everything on every rank, stage 1 cuts
 * the optimizer's part (float32 masters and states), stage 2 also the gradients, stage 3 also the
 * parameters. No stage changes a bit: gradients are added leaf after leaf, in the order of leaves
 * (law of sums, S3).
 *
 * What is cut is described by struct ls_params (lockstep/parallel/param.h), without layers:
 *
 *   unit     what is gathered together (a layer): a flat range of elements, matrices first, then
 *            vectors. Matrices are read in the compute type, vectors in float32.
 *   tensor   a parameter: a matrix or vector at an offset of its unit. Rank j of d has the part
 *            that its spec gives to coordinate j of the axis "shard": ceil(rows / d) rows; the last
 *            ranks may have fewer, or none.
 *   region   a piece of the gradient that is final at one moment of the backward: a flat range. A
 *            tensor's gradient is at an offset of one region; a tied table has a second gradient in
 *            another one, summed apart and added by who reads both (struct ls_update's second).
 *   slice    this rank's part of a tensor: what optimizer, norm, hash and checkpoint walk over.
 *
 * One ZeRO serves one set of parameters; units, regions and tensors of others are none of its. Two
 * groups of ranks take part, the set's:
 *
 *                 stage 0                          stages 1 to 3
 *   shard         dp_replicate x dp_shard x cp     dp_shard x cp: the d ranks that share one copy
 *   replicate     -                                dp_replicate: ranks that hold equal shards
 *
 * each in the order of the leaves they hold, which they take in turn (struct ls_dp_cut); cp is the
 * inner axis, its ranks hold parts of one leaf. From a step's first ls_zero_gradient_done to
 * ls_zero_gradient_finish nobody else communicates over `replicate`.
 *
 * A leaf is reduced as soon as a rank has it whole: the owner of a shard gets the raw pieces of all
 * ranks and adds them in order to the sum so far. With several replicas the sum goes from one to
 * the next, round after round, and in the end from the last to all.
 *
 * Order of calls, the same on all ranks of both groups:
 *
 *     ls_zero_new (first with a measuring arena, to learn the size); fill ls_zero_master and
 *     ls_zero_compute of each tensor; ls_zero_publish
 *     each step:
 *       each micro-batch:
 *         each unit, forward and again backward:
 *           ls_zero_prefetch of the units that come next; ls_zero_weights; compute; ls_zero_release
 *         each region, in the backward:
 *           ls_zero_gradient; compute; ls_zero_gradient_done
 *       ls_zero_gradient_finish; clip, optimizer over the slices; ls_zero_publish
 *     ls_zero_free
 *
 * Several micro-batches may be between their forward and backward (pipelines); those of one region
 * come in ascending order. Those of one micro-batch may come in any order that all ranks share. */
#ifndef LOCKSTEP_PARALLEL_ZERO_H
#define LOCKSTEP_PARALLEL_ZERO_H

#include <lockstep/comm.h>
#include <lockstep/device/tier.h>
#include <lockstep/ops.h>
#include <lockstep/parallel.h>
#include <lockstep/parallel/param.h>

LS_C_BEGIN

struct ls_zero;

/* ---- what there is -------------------------------------------------------------------------- */

struct ls_zero_options {
    int stage; /* 0 .. 3 */
    /* Regions whose sum over leaves, and whose leaf that grows beside it, lie in a tier, but while
     * something is added: [regions], NULL: none. They have no second gradients. Tiers are NULL
     * while their rooms count, and if nothing moves. */
    const bool *regions_away;
    struct ls_tier *regions_tier;
    struct ls_tier_room *regions_room;
    /* Units whose matrices, as they are computed with, lie in a tier between their uses: [units],
     * NULL: none. In stage 3 this rank's shard of them does, and otherwise only if nothing is
     * cut. */
    const bool *units_away;
    struct ls_tier *units_tier;
    struct ls_tier_room *units_room;
    const struct ls_params *params; /* borrowed: units, regions, and parameters with their specs, of
                                     * which this file's "tensor i" is list[i] */
    int set;                        /* whose of these it serves */
    const float *gradient_base;     /* where places of gradients are counted from: *gradient of
                                     * another one in this arena. NULL: this one's */

    int shard_ranks, shard_rank, replicate_ranks, replicate_rank;
    int inner;                         /* neighbours of `shard` that hold parts of one leaf: cp */
    struct ls_comm *shard, *replicate; /* borrowed; may be NULL for a group of one, and while the
                                        * arena is measuring */
    int64_t leaves_max;                /* of this rank in a step */
    int64_t micro_batches_max;         /* of a step */
    bool parts;                        /* a leaf may last several micro-batches */
    bool fast;            /* numerics.mode fast: any order; reduced at each micro-batch in
                           * stages 2 and 3, else once a step */
    enum ls_dtype act;    /* any that ls_is_act admits */
    enum ls_dtype reduce; /* what gradients travel in: LS_F32, or with fast LS_BF16: then the
                           * reduce-scatters of stages 1 to 3 move half the bytes (all-reduces
                           * stay in float32) */

    int64_t bucket_bytes; /* larger all-reduces are cut in pieces of this (up to 8); 0: never */
    /* Stage 3 (prefetch also: how many units ls_zero_publish gathers ahead in stages 1 and 2). */
    int prefetch;                 /* units that may be gathered ahead */
    int64_t persistence_elements; /* tensors of up to this many elements stay whole */
    bool masters_away; /* the caller keeps matrices' masters and writes ls_zero_compute, */
    bool vectors_away; /* and those of vectors that are trained */
    /* Another one in this arena, with these options but for this: what is computed with lies in its
     * memory, so whoever computes writes all of ls_zero_compute first and publishes. Not with
     * units_away. NULL: in memory of its own. */
    const struct ls_zero *lender;
    bool reshard_after_forward; /* false: a unit stays whole from its first use to
                                 * ls_zero_publish, in memory of its own */
};

/* Local. Takes all memory from arena, which may be measuring (then *out only answers sizes and
 * slices). LS_EINVAL for a description that contradicts itself (a tensor outside its unit or
 * region, a spec that does not cut it over the shard group, a stage that does not exist),
 * LS_ELAYOUT if stage 3 would shard nothing because every tensor is within persistence_elements,
 * LS_ENOMEM. */
int ls_zero_new(const struct ls_zero_options *options, struct ls_arena *arena, struct ls_zero **out,
                struct ls_error *error);
/* NULL is allowed. After a failure free the groups first: they may still move buffers. */
void ls_zero_free(struct ls_zero *zero);

/* Bytes taken from the arena, by what they are for. With P parameters, act of a bytes, d ranks and
 * every tensor counted as ceil(rows/d) d rows where it is cut (doc/parallel/zero.md); with moments
 * in bf16 the optimizer's part is half:
 *
 *              master   parameters               gradients       optimizer (the caller's), AdamW
 *   stage 0    4 P      2 P (half), 0 (f32)      4 P             8 P
 *   stage 1    4 P/d    a P                      4 P/d           8 P/d
 *   stage 2    4 P/d    a P                      4 P/d           8 P/d
 *   stage 3    4 P/d    2 P/d (half), 0 (f32)    4 P/d           8 P/d
 *
 * and 4 P of gradients more where leaves last several micro-batches (in stage 0 only where a rank
 * has several such leaves; fast: in stage 1 only, always). buffers: what is in transit. */
struct ls_zero_sizes {
    size_t master, parameters, gradients, buffers;
};
void ls_zero_get_sizes(const struct ls_zero *zero, struct ls_zero_sizes *sizes);

/* Of the gradients, the buffers through which sums in a tier pass. */
size_t ls_zero_passing_bytes(const struct ls_zero *zero);
/* Bytes that a gather of the unit goes through; first: the unit's first one of a step. 0 if
 * nothing is gathered then. */
size_t ls_zero_unit_bytes(const struct ls_zero *zero, int unit, bool first);
/* What a micro-batch's gradient of a region needs. */
struct ls_zero_region_bytes {
    size_t sum;  /* of the sum over leaves, from the first on; 0 in a tier */
    size_t leaf; /* of a leaf that grows beside it, from where one begins to where it ends */
    bool begins, ends;
    size_t transit; /* what it goes through on its way there */
    bool large;     /* on its way no other large one is */
};
void ls_zero_region_bytes(const struct ls_zero *zero, int region, const struct ls_dp_micro *micro,
                          struct ls_zero_region_bytes *out);

/* ---- slices --------------------------------------------------------------------------------- */

struct ls_zero_slice {
    int64_t offset;        /* of its first element in the shard, of the compute type */
    int64_t first;         /* element of the tensor: first row * cols */
    int64_t count;         /* elements; 0 if this rank has no row of it */
    int64_t room;          /* elements of the largest rank's slice: the same on all ranks */
    int64_t gradient;      /* of its first element in the final gradient; -1: it has none */
    bool gradient_away;    /* that lies in the tier, */
    size_t gradient_place; /* there; a multiple of 4 */
    int64_t second;        /* the same for the second gradient; -1 if there is none */
};
/* [params.count], slice i of tensor i; those of other sets are empty. */
const struct ls_zero_slice *ls_zero_slices(const struct ls_zero *zero);
/* What the places of gradients are counted from; NULL while the arena is measuring. */
float *ls_zero_gradient_base(const struct ls_zero *zero);
/* Whether the tensor's float32 master is kept here: not that of a matrix with masters_away, nor of
 * a vector that is trained with vectors_away. */
bool ls_zero_has_master(const struct ls_zero *zero, int tensor);
/* The slice's master, or NULL if it is not kept here. */
float *ls_zero_master(struct ls_zero *zero, int tensor);
/* Whether ls_zero_compute's place is only there between this and the next one of another unit, or
 * ls_zero_publish. Collective over nobody, but it waits for gathers that this rank started. What is
 * there is undefined, until all slices of the unit were written once since the last
 * ls_zero_publish. Errors of the tier's disk. */
bool ls_zero_compute_away(const struct ls_zero *zero, int tensor);
int ls_zero_compute_open(struct ls_zero *zero, struct ls_ops *ops, int tensor, void **compute,
                         struct ls_error *error);
/* Where the copy of a slice that is computed with goes (struct ls_slice's compute), a matrix's in
 * act; NULL for vectors, and matrices in float32, whose masters are here, and for those that are
 * away. Of a matrix in few bits (ls_param.blocks) copy or master is its rows of blocks. */
void *ls_zero_compute(struct ls_zero *zero, int tensor);

/* ---- parameters ----------------------------------------------------------------------------- */

/* What a unit's computation reads. */
struct ls_zero_weights {
    const void *matrices; /* act; element `offset` of the unit at index offset */
    const float *vectors; /* element `offset` at index offset - matrix_elements */
};
/* Collective over `shard`. The unit's whole weights, waited for or gathered if necessary.
 * Stages 0 to 2: the same pointers in every call. Stage 3: valid until ls_zero_release; at least
 * two units may be held at once, LS_EINVAL if too many are. */
int ls_zero_weights(struct ls_zero *zero, struct ls_ops *ops, int unit, struct ls_zero_weights *out,
                    struct ls_error *error);
/* Collective over `shard`. Starts to gather a unit that ls_zero_weights will want soon; nothing
 * if it is there, if no buffer is free, and in stages 0 to 2. */
int ls_zero_prefetch(struct ls_zero *zero, int unit, struct ls_error *error);
/* Local. The unit's weights are not read until the next ls_zero_weights. */
void ls_zero_release(struct ls_zero *zero, int unit);
/* Collective over `shard`. The masters and ls_zero_compute's copies of all slices are new: what is
 * made of them on other ranks follows. Between this and the next ls_zero_settle or
 * ls_zero_gradient_finish they are not to be written. In stages 1 and 2 the gathers go on while the
 * next forward computes, in the order in which the last step first used the units. */
int ls_zero_publish(struct ls_zero *zero, struct ls_ops *ops, struct ls_error *error);

/* Collective over `shard`. Waits for the gathers that ls_zero_publish and ls_zero_prefetch left
 * under way: call it before memory or groups are given back. */
int ls_zero_settle(struct ls_zero *zero, struct ls_ops *ops, struct ls_error *error);

/* ---- gradients ------------------------------------------------------------------------------ */

struct ls_zero_gradient {
    float *flat; /* [elements of the region] */
    enum ls_onto onto;
};
/* Collective. Where a micro-batch writes the region's gradient. At most one region is between this
 * and ls_zero_gradient_done. */
int ls_zero_gradient(struct ls_zero *zero, struct ls_ops *ops, int region,
                     const struct ls_dp_micro *micro, struct ls_zero_gradient *out,
                     struct ls_error *error);
/* Collective. The region is written: it joins the sum over leaves, and the reductions that this
 * completes start; they move while the caller goes on. */
int ls_zero_gradient_done(struct ls_zero *zero, struct ls_ops *ops, int region,
                          const struct ls_dp_micro *micro, struct ls_error *error);
/* Collective over `shard`. Waits for the reductions over it, and sends on what the next replica
 * goes on from: for who will wait for ranks of neither group, such as those of other pipeline
 * stages or of another set, which may wait for that replica. Nothing with one replica. */
int ls_zero_gradient_pass_on(struct ls_zero *zero, struct ls_ops *ops, struct ls_error *error);
/* Collective over both groups. Waits for all reductions. *gradient (at the slices' offsets) is the
 * batch's, until the next step's first ls_zero_gradient; the caller may write to it. LS_ECOMM if a
 * region's last micro-batch was never reported. */
int ls_zero_gradient_finish(struct ls_zero *zero, struct ls_ops *ops, float **gradient,
                            struct ls_error *error);

LS_C_END
#endif
