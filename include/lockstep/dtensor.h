/* lockstep/dtensor.h - tensors laid out over a mesh.
 *
 * A distributed tensor is a global shape, a mesh, and one placement for each axis of the mesh:
 *
 *   Replicate                every coordinate of the axis holds the same
 *   Shard(dim)               dim is cut into one shard a coordinate, as torch.chunk cuts: shards of
 *                            ceil(size / parts), the last ones smaller or empty
 *   StridedShard(dim, k)     dim is cut into k pieces, each piece into one part a coordinate;
 *                            coordinate i holds part i of every piece, in order
 *   Partial(reduce)          the value is what the coordinates hold, reduced (sum, avg, max, min)
 *
 * Placements apply from the first axis to the last, each to what the ones before it left: the
 * semantics, shard sizes included, are those of PyTorch's DTensor (torch.distributed.tensor, where
 * StridedShard is _StridedShard). FSDP over tensor parallel cuts dim 0 by tp first and by dp within
 * that: on the mesh (dp, tp) it is {StridedShard(0, tp), Shard(0)}. Tensors are dense and
 * row-major.
 *
 * Order of calls: ls_mesh_comms_init once for a mesh; ls_dtensor_spec_init for a layout;
 * ls_dtensor_init for this rank's part of a tensor; ls_distribute, ls_redistribute, ls_full_tensor;
 * ls_dtensor_release; ls_mesh_comms_release. All that needs no values (local shapes, offsets, runs,
 * what two layouts share, what a redistribution moves) is Local, pure arithmetic, and answers for
 * any rank of a mesh that need not exist.
 *
 * Sums are of float32, by the tree over an axis' ranks (ls_tree_split), the last axis first: the
 * bits of a sum depend on the placements that were Partial, not on what they become. Where the
 * sizes of the axes are powers of two it is the tree over mesh rank. max and min give NaN if one
 * value is. Everything else moves bytes, of any type. */
#ifndef LOCKSTEP_DTENSOR_H
#define LOCKSTEP_DTENSOR_H

#include <lockstep/base.h>
#include <lockstep/comm.h>
#include <lockstep/mesh.h>

LS_C_BEGIN

enum { LS_DTENSOR_DIMS_MAX = 8, LS_PLACEMENT_TEXT_MAX = 40 };

/* ---- placements ----------------------------------------------------------------------------- */

enum ls_placement_kind { LS_REPLICATE, LS_SHARD, LS_STRIDED_SHARD, LS_PARTIAL };
enum ls_reduce { LS_REDUCE_SUM, LS_REDUCE_AVG, LS_REDUCE_MAX, LS_REDUCE_MIN };

/* A plain value. Make it with the functions below. */
struct ls_placement {
    enum ls_placement_kind kind;
    int dim;               /* of Shard and StridedShard; negative counts from the last dim */
    int64_t split_factor;  /* of StridedShard: the pieces, >= 1 */
    enum ls_reduce reduce; /* of Partial */
};

static inline struct ls_placement ls_replicate(void)
{
    struct ls_placement placement = {LS_REPLICATE, 0, 1, LS_REDUCE_SUM};
    return placement;
}
static inline struct ls_placement ls_shard(int dim)
{
    struct ls_placement placement = {LS_SHARD, dim, 1, LS_REDUCE_SUM};
    return placement;
}
static inline struct ls_placement ls_strided_shard(int dim, int64_t split_factor)
{
    struct ls_placement placement = {LS_STRIDED_SHARD, dim, split_factor, LS_REDUCE_SUM};
    return placement;
}
static inline struct ls_placement ls_partial(enum ls_reduce reduce)
{
    struct ls_placement placement = {LS_PARTIAL, 0, 1, reduce};
    return placement;
}
/* Shard or StridedShard. */
static inline bool ls_placement_cuts(struct ls_placement placement)
{
    return placement.kind == LS_SHARD || placement.kind == LS_STRIDED_SHARD;
}

/* Local. Whether two placements mean the same; fields that the kind does not use are ignored. */
bool ls_placement_equal(struct ls_placement a, struct ls_placement b);
/* Local. "Shard(0)", "StridedShard(0, 2)", "Partial(sum)", "Replicate". Returns text. */
const char *ls_placement_text(struct ls_placement placement, char text[LS_PLACEMENT_TEXT_MAX]);

/* Local. The part `index` of [0, size) cut into parts >= 1, as torch.chunk: [*first, *first +
 * *count). An empty part begins at size. */
void ls_shard_range(int64_t size, int64_t parts, int64_t index, int64_t *first, int64_t *count);

/* ---- layouts -------------------------------------------------------------------------------- */

/* What a tensor is and how it lies, without its values. A plain value: copy it freely. */
struct ls_dtensor_spec {
    enum ls_dtype dtype;
    int dims;
    int64_t shape[LS_DTENSOR_DIMS_MAX]; /* global */
    struct ls_mesh mesh;
    struct ls_placement placement[LS_MESH_AXES_MAX]; /* one for each axis */
};

/* Local. shape[dims], placements[mesh->axis_count]. Negative dims of placements become positive.
 * LS_EINVAL names the axis or dim: dims beyond LS_DTENSOR_DIMS_MAX, a negative size, more than
 * INT64_MAX bytes, a shard of a dim that is not there, a split factor below 1, Partial of different
 * reductions (sum and avg may be mixed, as in PyTorch). */
int ls_dtensor_spec_init(struct ls_dtensor_spec *spec, enum ls_dtype dtype, int dims,
                         const int64_t *shape, const struct ls_mesh *mesh,
                         const struct ls_placement *placements, struct ls_error *error);
/* Local. The same tensor with other placements. */
int ls_dtensor_spec_place(struct ls_dtensor_spec *spec, const struct ls_dtensor_spec *like,
                          const struct ls_placement *placements, struct ls_error *error);
/* Local. Elements of the whole tensor. */
int64_t ls_dtensor_count(const struct ls_dtensor_spec *spec);
/* Local. local_shape[dims] of what a mesh rank holds (NULL is allowed); returns its elements. */
int64_t ls_dtensor_local_shape(const struct ls_dtensor_spec *spec, int64_t rank,
                               int64_t *local_shape);
/* Local. offset[dims]: the global index of the first local element on each dim; a dim of which the
 * rank holds nothing has its global size. (compute_local_shape_and_global_offset of PyTorch.) */
void ls_dtensor_offset(const struct ls_dtensor_spec *spec, int64_t rank, int64_t *offset);

/* ---- runs ----------------------------------------------------------------------------------- */

/* Elements [global, global + count) of the row-major whole are [local, local + count) here. */
struct ls_run {
    int64_t global, local, count;
};

/* Walks over the runs of one rank, ascending in global and in local, neighbours joined. The fields
 * are private; spec is borrowed. */
struct ls_runs {
    const struct ls_dtensor_spec *spec;
    int64_t coordinate[LS_MESH_AXES_MAX];
    int64_t local_shape[LS_DTENSOR_DIMS_MAX];
    int64_t index[LS_DTENSOR_DIMS_MAX];
    int64_t inner; /* elements below dim `last` */
    int last;      /* the last dim that is cut, -1 if none is */
    bool ended;
    int64_t local;
    struct ls_run next; /* read ahead; count 0: nothing left */
};
/* Local. */
void ls_runs_init(struct ls_runs *runs, const struct ls_dtensor_spec *spec, int64_t rank);
/* Local. False if there is none left. */
bool ls_runs_next(struct ls_runs *runs, struct ls_run *run);

/* Elements [from, from + count) of one rank's part in one layout are [to, to + count) of another
 * rank's part in another. */
struct ls_copy {
    int64_t from, to, count;
};

/* Walks over what two parts share, ascending. The fields are private; specs are borrowed. */
struct ls_overlap {
    struct ls_runs from_runs, to_runs;
    struct ls_run from, to;
    bool more;
};
/* Local. The two layouts have one global shape (asserted); mesh and placements are free. To fill a
 * part from a checkpoint written in any layout: walk once for each stored part. */
void ls_overlap_init(struct ls_overlap *overlap, const struct ls_dtensor_spec *from,
                     int64_t from_rank, const struct ls_dtensor_spec *to, int64_t to_rank);
/* Local. False if there is none left. */
bool ls_overlap_next(struct ls_overlap *overlap, struct ls_copy *copy);

/* ---- tensors -------------------------------------------------------------------------------- */

/* The communicators of a mesh, as seen from this rank, and the temporary memory of what goes over
 * them: it grows to what the greatest operation so far needed and is used again, so a loop of the
 * same operations allocates in its first round only. One operation at a time. */
struct ls_mesh_comms {
    struct ls_mesh mesh;
    int64_t rank;                           /* of the mesh */
    struct ls_comm *all;                    /* every rank, ordered by mesh rank */
    struct ls_comm *axis[LS_MESH_AXES_MAX]; /* the ranks that differ on that axis alone */
    void *memory;
    size_t memory_bytes;
};
/* Collective over world, whose size must be ls_mesh_ranks(mesh). */
int ls_mesh_comms_init(struct ls_mesh_comms *comms, const struct ls_mesh *mesh,
                       struct ls_comm *world, struct ls_error *error);
/* Local (over MPI: Collective). A zeroed struct is allowed. */
void ls_mesh_comms_release(struct ls_mesh_comms *comms);

/* This rank's part of a distributed tensor. */
struct ls_dtensor {
    struct ls_dtensor_spec spec;
    int64_t rank; /* of the mesh */
    int64_t local_shape[LS_DTENSOR_DIMS_MAX];
    int64_t local_count; /* elements */
    void *data;          /* [local_shape], row-major; to_local of PyTorch */
    bool owns_data;
};
/* Local. data: the caller's buffer of that many elements, borrowed until the tensor is released;
 * NULL: a zeroed one is allocated and owned (LS_ENOMEM). */
int ls_dtensor_init(struct ls_dtensor *tensor, const struct ls_dtensor_spec *spec, int64_t rank,
                    void *data, struct ls_error *error);
/* Local. A zeroed struct is allowed. */
void ls_dtensor_release(struct ls_dtensor *tensor);

/* Collective over the mesh. A tensor of the parts that the ranks hold: data[local_shape] is
 * borrowed, and the global shape is found by adding the sizes along the axes that cut a dim.
 * LS_EINVAL on every rank where the parts are not those of the placements (shards of other sizes
 * than torch.chunk's, replicas of different shapes): the text names rank and shapes. */
int ls_from_local(struct ls_dtensor *tensor, enum ls_dtype dtype, int dims,
                  const int64_t *local_shape, void *data, const struct ls_placement *placements,
                  struct ls_mesh_comms *comms, struct ls_error *error);
/* Local. The part that this rank holds: tensor->data[local_shape], borrowed. */
static inline void *ls_to_local(const struct ls_dtensor *tensor)
{
    return tensor->data;
}

/* Collective over the mesh. full[shape] of mesh rank 0 (ignored elsewhere, may be NULL there)
 * becomes tensor, whose layout and buffer were made by ls_dtensor_init. A rank gets what it holds
 * and no more than its group's share passes through it. */
int ls_distribute(struct ls_dtensor *tensor, const void *full, struct ls_mesh_comms *comms,
                  struct ls_error *error);
/* Local. The same where every rank has full[shape]: a copy (src_data_rank=None of PyTorch). */
int ls_distribute_replicated(struct ls_dtensor *tensor, const void *full, struct ls_error *error);
/* Collective over the mesh. full[shape] on every rank: redistribute to Replicate on all axes. */
int ls_full_tensor(const struct ls_dtensor *tensor, void *full, struct ls_mesh_comms *comms,
                   struct ls_error *error);

/* ---- redistribution ------------------------------------------------------------------------- */

/* What one step of a redistribution calls. */
enum ls_redistribute_op {
    LS_STEP_LOCAL,      /* nothing moves: Replicate to Shard or Partial, Shard to Partial(sum) */
    LS_STEP_ALL_GATHER, /* Shard to Replicate; Partial(max, min) to Replicate */
    LS_STEP_ALL_REDUCE, /* Partial(sum, avg) to Replicate */
    LS_STEP_REDUCE_SCATTER, /* Partial(sum, avg) to Shard */
    LS_STEP_ALL_TO_ALL,     /* Shard to Shard; Partial(max, min) to Shard */
    LS_STEP_EXCHANGE,       /* several axes at once, point to point: each rank gets what it lacks */
};
struct ls_redistribute_step {
    enum ls_redistribute_op op;
    int axis; /* -1 for an exchange */
    struct ls_placement from, to;
    int64_t count; /* elements: the operation's argument in lockstep/comm.h (blocks of uneven shards
                      are padded to the largest); what this rank receives for an exchange */
};
enum { LS_REDISTRIBUTE_STEPS_MAX = 2 * LS_MESH_AXES_MAX };

/* Local. The steps that ls_redistribute takes on a rank: one a changed axis, from the last axis to
 * the first, and Replicate in between where shards of one dim are nested otherwise than in the
 * target. Where only shards and replicas change on several axes and an exchange receives no more
 * than these steps would, it is one exchange. steps[LS_REDISTRIBUTE_STEPS_MAX]; returns their
 * number, or LS_EINVAL if the layouts are not of one tensor on one mesh, or a type other than
 * LS_F32 would be reduced or made partial. */
int ls_redistribute_plan(const struct ls_dtensor_spec *from, const struct ls_dtensor_spec *to,
                         int64_t rank, struct ls_redistribute_step *steps, struct ls_error *error);

/* Collective over the mesh. The same tensor in the layout of `to`, whose buffer is written and does
 * not overlap from's. Temporary memory: two tensors of the largest layout on the way, where there
 * is one, and the padded blocks of a step whose shards do not lie in order; ranks agree that all
 * have it (LS_ENOMEM) before anything moves.
 *
 * Replicate to Partial keeps the value exactly: for sum, coordinate 0 of the axis keeps it and the
 * others hold -0.0, the number that adds to nothing; for avg, max and min all keep it. (PyTorch's
 * redistribute refuses it.) */
int ls_redistribute(const struct ls_dtensor *from, struct ls_dtensor *to,
                    struct ls_mesh_comms *comms, struct ls_error *error);

/* The gradient of a tensor is that of its global value: it has the placements of the tensor, but
 * Replicate where that is Partial (each term of a sum has the sum's gradient; of an average over n,
 * 1/n of it, which is for the caller to apply where it leaves the tensor). The adjoint of a
 * redistribution is then the redistribution back:
 *
 *     forward                            backward
 *     Shard -> Replicate  all-gather     Partial -> Shard       reduce-scatter, where ranks brought
 *                                                               different contributions, or
 *                                        Replicate -> Shard     a slice, where they did not
 *     Replicate -> Shard  a slice        Shard -> Replicate     all-gather
 *     Partial -> Replicate  all-reduce   Replicate              nothing
 *     Partial -> Shard  reduce-scatter   Shard -> Replicate     all-gather
 *     Shard(i) -> Shard(j)  all-to-all   Shard(j) -> Shard(i)   all-to-all
 *     Replicate -> Partial  local        Replicate; Partial is reduced
 *
 * as PyTorch's Redistribute does. */

/* Local. placements[axes]: what the gradient of `input` becomes when the gradient of the
 * redistributed tensor is laid out as `gradient`: input's placement; Replicate where that is
 * Partial and gradient is not; where both are Partial it stays so. LS_EINVAL for Partial(max) and
 * Partial(min): their gradient needs to know who won. */
int ls_redistribute_backward_placements(const struct ls_dtensor_spec *input,
                                        const struct ls_dtensor_spec *gradient,
                                        struct ls_placement *placements, struct ls_error *error);
/* Collective over the mesh. gradient: of the redistributed tensor, in any layout. input_gradient:
 * in the layout that ls_redistribute_backward_placements gives for `input` (LS_EINVAL otherwise);
 * its buffer is written. */
int ls_redistribute_backward(const struct ls_dtensor *gradient, const struct ls_dtensor_spec *input,
                             struct ls_dtensor *input_gradient, struct ls_mesh_comms *comms,
                             struct ls_error *error);

LS_C_END
#endif
