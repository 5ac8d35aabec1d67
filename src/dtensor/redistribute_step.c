/* One step of a redistribution along one axis: pack, one collective, unpack. A block is what one
 * coordinate has and another gets, row-major; blocks of uneven shards are padded at their ends. */
#include "dtensor/dtensor_private.h"

#include <math.h>

/* ---- blocks ---------------------------------------------------------------------------------- */

/* A local tensor about one of its dims: [outer, length, inner_bytes]. */
struct view {
    int64_t outer, length;
    size_t inner_bytes;
};

static struct view view_of(const struct dtensor_step *step, struct ls_placement placement,
                           int64_t index, int dim, size_t element_bytes)
{
    struct view view = {.outer = 1, .inner_bytes = element_bytes};
    for (int d = 0; d < step->dims; d++) {
        struct dtensor_cut cut = dtensor_step_cut(step, placement, d, index);
        int64_t size = dtensor_cut_count(&cut);
        if (d < dim)
            view.outer *= size;
        else if (d == dim)
            view.length = size;
        else
            view.inner_bytes *= (size_t)size;
    }
    return view;
}

/* Elements [from_first, + count) of every outer row become [to_first, + count) of the other's. */
static void rows_copy(const char *from, int64_t from_length, int64_t from_first, char *to,
                      int64_t to_length, int64_t to_first, int64_t count, struct view view)
{
    size_t bytes = (size_t)count * view.inner_bytes;
    from += (size_t)from_first * view.inner_bytes;
    to += (size_t)to_first * view.inner_bytes;
    for (int64_t i = 0; i < view.outer && bytes > 0; i++) {
        memcpy(to, from, bytes);
        from += (size_t)from_length * view.inner_bytes;
        to += (size_t)to_length * view.inner_bytes;
    }
}

/* The block of two coordinates: out of the part of `from_index` (packs), or into that of
 * `to_index`. Returns its bytes. */
static size_t block_move(const struct dtensor_step *step, size_t element_bytes, int64_t from_index,
                         int64_t to_index, bool packs, const char *in, char *out)
{
    struct ls_placement source = step->public.from, target = step->public.to;
    int dim = packs ? target.dim : source.dim;
    struct view view =
        view_of(step, packs ? source : target, packs ? from_index : to_index, dim, element_bytes);
    struct dtensor_cut from = dtensor_step_cut(step, source, dim, from_index);
    struct dtensor_cut to = dtensor_step_cut(step, target, dim, to_index);
    int64_t length = dtensor_spans_count(from, to);
    struct dtensor_spans spans;
    struct dtensor_span span;
    dtensor_spans_init(&spans, from, to);
    while (dtensor_spans_next(&spans, &span))
        if (packs)
            rows_copy(in, view.length, span.from, out, length, span.shared, span.count, view);
        else
            rows_copy(in, length, span.shared, out, view.length, span.to, span.count, view);
    return (size_t)view.outer * (size_t)length * view.inner_bytes;
}

size_t dtensor_pack(const struct dtensor_step *step, size_t element_bytes, int64_t from_index,
                    int64_t to_index, const void *in, void *block)
{
    return block_move(step, element_bytes, from_index, to_index, true, in, block);
}

/* A block for each coordinate, `block_bytes` apart; the padding is zeros. */
static void pack_all(const struct dtensor_step *step, size_t element_bytes, const char *in,
                     char *blocks)
{
    size_t block_bytes = (size_t)step->public.count * element_bytes;
    for (int64_t j = 0; j < step->parts; j++, blocks += block_bytes) {
        size_t used = dtensor_pack(step, element_bytes, step->index, j, in, blocks);
        memset(blocks + used, 0, block_bytes - used);
    }
}

static void unpack_all(const struct dtensor_step *step, size_t element_bytes, const char *blocks,
                       char *out)
{
    size_t block_bytes = (size_t)step->public.count * element_bytes;
    for (int64_t i = 0; i < step->parts; i++, blocks += block_bytes)
        block_move(step, element_bytes, i, step->index, false, blocks, out);
}

/* ---- values ---------------------------------------------------------------------------------- */

void dtensor_fill_neutral(float *out, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        out[i] = -0.0f;
}

static void average(const struct dtensor_step *step, float *out, int64_t count)
{
    if (step->public.from.reduce != LS_REDUCE_AVG)
        return;
    for (int64_t i = 0; i < count; i++)
        out[i] /= (float)step->parts;
}

/* out = the greatest or least of the contributions in order of coordinates, `stride` apart. NaN
 * wins, and of equal ones the first. */
static void extreme(const struct dtensor_step *step, const float *contributions, int64_t stride,
                    float *out, int64_t count)
{
    bool most = step->public.from.reduce == LS_REDUCE_MAX;
    dtensor_copy(out, contributions, (size_t)count * sizeof *out);
    for (int64_t r = 1; r < step->parts; r++) {
        const float *x = contributions + r * stride;
        for (int64_t i = 0; i < count; i++)
            if (isnan(x[i]) || (most ? x[i] > out[i] : x[i] < out[i]))
                out[i] = x[i];
    }
}

/* ---- the operations -------------------------------------------------------------------------- */

static void run_local(const struct dtensor_step *step, size_t element_bytes, const void *in,
                      void *out)
{
    struct ls_placement from = step->public.from, to = step->public.to;
    bool sum = to.kind == LS_PARTIAL && to.reduce == LS_REDUCE_SUM;
    if (step->parts > 1 && ls_placement_cuts(to)) {
        dtensor_pack(step, element_bytes, step->index, step->index, in, out);
    } else if (step->parts > 1 && ls_placement_cuts(from)) {
        dtensor_fill_neutral(out, step->to_count);
        block_move(step, element_bytes, step->index, step->index, false, in, out);
    } else if (sum && step->index > 0) {
        dtensor_fill_neutral(out, step->to_count);
    } else {
        dtensor_copy(out, in, (size_t)step->to_count * element_bytes);
    }
}

static int run_all_gather(const struct dtensor_step *step, enum ls_dtype dtype, const void *in,
                          void *out, void *send, void *receive, struct ls_comm *comm,
                          struct ls_error *error)
{
    size_t element_bytes = ls_dtype_bytes(dtype), used = (size_t)step->from_count * element_bytes;
    if (step->send_count > 0) {
        dtensor_copy(send, in, used);
        memset((char *)send + used, 0, (size_t)step->send_count * element_bytes - used);
        in = send;
    }
    void *gathered = step->receive_count > 0 ? receive : out;
    int status = ls_all_gather(comm, in, gathered, step->public.count, dtype, error);
    if (status != LS_OK || step->receive_count == 0)
        return status;
    if (step->public.from.kind == LS_PARTIAL)
        extreme(step, gathered, step->public.count, out, step->to_count);
    else
        unpack_all(step, element_bytes, gathered, out);
    return LS_OK;
}

static int run_reduce_scatter(const struct dtensor_step *step, const float *in, float *out,
                              float *send, float *receive, struct ls_comm *comm,
                              struct ls_error *error)
{
    if (step->send_count > 0) {
        pack_all(step, sizeof *in, (const char *)in, (char *)send);
        in = send;
    }
    float *sums = step->receive_count > 0 ? receive : out;
    int status = ls_reduce_scatter(comm, in, sums, step->public.count, error);
    if (status != LS_OK)
        return status;
    if (sums != out)
        dtensor_copy(out, sums, (size_t)step->to_count * sizeof *out);
    average(step, out, step->to_count);
    return LS_OK;
}

static int run_all_to_all(const struct dtensor_step *step, enum ls_dtype dtype, const void *in,
                          void *out, void *send, void *receive, struct ls_comm *comm,
                          struct ls_error *error)
{
    size_t element_bytes = ls_dtype_bytes(dtype);
    if (step->send_count > 0) {
        pack_all(step, element_bytes, in, send);
        in = send;
    }
    int status = ls_all_to_all(comm, in, receive, step->public.count, dtype, error);
    if (status != LS_OK)
        return status;
    if (step->public.from.kind == LS_PARTIAL)
        extreme(step, receive, step->public.count, out, step->to_count);
    else
        unpack_all(step, element_bytes, receive, out);
    return LS_OK;
}

int dtensor_step_run(const struct dtensor_step *step, enum ls_dtype dtype, const void *in,
                     void *out, void *send, void *receive, struct ls_comm *comm,
                     struct ls_error *error)
{
    int status = LS_OK;
    if (step->public.op == LS_STEP_LOCAL) {
        run_local(step, ls_dtype_bytes(dtype), in, out);
        return LS_OK;
    }
    if (step->public.count == 0)
        return LS_OK;
    switch (step->public.op) {
    case LS_STEP_ALL_GATHER:
        return run_all_gather(step, dtype, in, out, send, receive, comm, error);
    case LS_STEP_REDUCE_SCATTER:
        return run_reduce_scatter(step, in, out, send, receive, comm, error);
    case LS_STEP_ALL_TO_ALL:
        return run_all_to_all(step, dtype, in, out, send, receive, comm, error);
    case LS_STEP_ALL_REDUCE:
        dtensor_copy(out, in, (size_t)step->to_count * sizeof(float));
        status = ls_all_reduce(comm, out, step->public.count, error);
        if (status == LS_OK)
            average(step, out, step->to_count);
        return status;
    case LS_STEP_LOCAL:
    case LS_STEP_EXCHANGE:
        break;
    }
    LS_ASSERT(!"a step of another kind");
    return LS_EINVAL;
}
