/* What the files of dtensor/ share: one cut of one dim, and the steps of a redistribution. */
#ifndef DTENSOR_DTENSOR_PRIVATE_H
#define DTENSOR_DTENSOR_PRIVATE_H

#include <lockstep/dtensor.h>

#include <string.h>

/* One dim of `size` elements as one placement cuts it among `parts`; Replicate is one piece among
 * one. Pieces of `piece` elements come first, then one of `rest`. */
struct dtensor_cut {
    int64_t size, parts, index;
    int64_t piece, pieces, rest;
    int64_t piece_first, piece_count; /* the part's range within a whole piece */
    int64_t rest_first, rest_count;   /* and within the last one */
};
struct dtensor_cut dtensor_cut_of(struct ls_placement placement, int64_t size, int64_t parts,
                                  int64_t index);
/* Elements of the part. */
int64_t dtensor_cut_count(const struct dtensor_cut *cut);
/* The index in the dim of element `local` of the part; *run = how many follow on from there, at
 * least 1. local < dtensor_cut_count. */
int64_t dtensor_cut_locate(const struct dtensor_cut *cut, int64_t local, int64_t *run);

/* Elements [from, from + count) of one part and [to, to + count) of another are the same elements
 * of the dim, and `shared` of those that both have came before. */
struct dtensor_span {
    int64_t from, to, shared, count;
};
struct dtensor_spans {
    struct dtensor_cut from, to;
    int64_t from_next, to_next, shared;
};
void dtensor_spans_init(struct dtensor_spans *spans, struct dtensor_cut from,
                        struct dtensor_cut to);
bool dtensor_spans_next(struct dtensor_spans *spans, struct dtensor_span *span);
/* Elements that both parts have. */
int64_t dtensor_spans_count(struct dtensor_cut from, struct dtensor_cut to);

/* The local size of a dim on a rank, where `skip_axis` (-1: none) does not cut. */
int64_t dtensor_local_size(const struct ls_dtensor_spec *spec, const int64_t *coordinates, int dim,
                           int skip_axis);

/* One step on one rank, with all sizes. Dims other than those that from and to cut are local. */
struct dtensor_step {
    struct ls_redistribute_step public;
    int64_t parts, index; /* of the axis */
    /* The local shape where the axis does not cut. */
    int dims;
    int64_t shape[LS_DTENSOR_DIMS_MAX];
    int64_t from_count, to_count;      /* local elements before and after */
    int64_t send_count, receive_count; /* elements of staging; 0 if the step works in place */
};
/* The step that takes `now` to placement `to` on one axis; `now` is then there. */
void dtensor_step_init(struct dtensor_step *step, struct ls_dtensor_spec *now,
                       const int64_t *coordinates, int axis, struct ls_placement to);
/* At least one step unless from and to are alike; returns their number or an error. An exchange is
 * not chosen here. */
int dtensor_plan_axes(const struct ls_dtensor_spec *from, const struct ls_dtensor_spec *to,
                      int64_t rank, struct dtensor_step steps[LS_REDISTRIBUTE_STEPS_MAX],
                      struct ls_error *error);
/* True if the whole is better one exchange than these steps; the same on every rank. */
bool dtensor_prefers_exchange(const struct ls_dtensor_spec *from, const struct ls_dtensor_spec *to,
                              const struct dtensor_step *steps, int count);
/* The cut of the step's dim by one of its two placements, at a coordinate of the axis. */
struct dtensor_cut dtensor_step_cut(const struct dtensor_step *step, struct ls_placement placement,
                                    int dim, int64_t index);

/* Collective over comm. Carries a step out: in[from_count] to out[to_count], float32 where it sums.
 * send and receive have the step's elements. */
int dtensor_step_run(const struct dtensor_step *step, enum ls_dtype dtype, const void *in,
                     void *out, void *send, void *receive, struct ls_comm *comm,
                     struct ls_error *error);

/* block = what coordinate `to_index` of the axis gets of in, the part of `from_index`; returns its
 * bytes. */
size_t dtensor_pack(const struct dtensor_step *step, size_t element_bytes, int64_t from_index,
                    int64_t to_index, const void *in, void *block);
/* Whether meshes have axes of the same sizes. */
static inline bool dtensor_mesh_is(const struct ls_mesh *a, const struct ls_mesh *b)
{
    return a->axis_count == b->axis_count &&
           memcmp(a->size, b->size, (size_t)a->axis_count * sizeof *a->size) == 0;
}
/* LS_EINVAL if a tensor is not this rank's part on the mesh of comms; `what` is the operation. */
int dtensor_comms_check(const struct ls_dtensor *tensor, const struct ls_mesh_comms *comms,
                        const char *what, struct ls_error *error);
/* buffers[i] of counts[i] elements in the temporary memory of comms, NULL if that is 0;
 * LS_ENOMEM. What an earlier call gave is gone. */
int dtensor_memory(struct ls_mesh_comms *comms, const int64_t *counts, int count,
                   enum ls_dtype dtype, void **buffers, struct ls_error *error);
/* LS_EINVAL if a placement is Partial and the type is not F32. */
int dtensor_partial_check(const struct ls_dtensor_spec *spec, struct ls_error *error);
/* memcpy, also of empty parts, which have no memory. */
static inline void dtensor_copy(void *to, const void *from, size_t bytes)
{
    if (bytes > 0)
        memcpy(to, from, bytes);
}
/* What adds to nothing: x + -0.0 is x for every x, -0.0 too. */
void dtensor_fill_neutral(float *out, int64_t count);

/* Elements that `to_rank` gets from `from_rank`, itself included, 0 if that is not the one to
 * send; the ranks that send hold every element exactly once. */
int64_t dtensor_exchange_count(const struct ls_dtensor_spec *from, int64_t from_rank,
                               const struct ls_dtensor_spec *to, int64_t to_rank);
/* The staging of an exchange on a rank: the largest block that it sends and receives. */
void dtensor_exchange_staging(const struct ls_dtensor_spec *from, const struct ls_dtensor_spec *to,
                              int64_t rank, int64_t *send_count, int64_t *receive_count);
/* Collective over comms->all. */
int dtensor_exchange(const struct ls_dtensor *from, struct ls_dtensor *to, void *send,
                     void *receive, struct ls_comm *comm, struct ls_error *error);

#endif
