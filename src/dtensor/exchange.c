/* Shards and replicas on several axes at once: each rank gets what it lacks from one rank that has
 * it, point to point. Of the replicas of a part the one sends that shares the receiver's
 * coordinates on the axes that do not cut: it is itself where the receiver holds the part. */
#include "dtensor/dtensor_private.h"

static bool is_sender(const struct ls_dtensor_spec *from, int64_t from_rank, int64_t to_rank)
{
    int64_t a[LS_MESH_AXES_MAX], b[LS_MESH_AXES_MAX];
    ls_mesh_coordinates(&from->mesh, from_rank, a);
    ls_mesh_coordinates(&from->mesh, to_rank, b);
    for (int axis = 0; axis < from->mesh.axis_count; axis++)
        if (!ls_placement_cuts(from->placement[axis]) && a[axis] != b[axis])
            return false;
    return true;
}

int64_t dtensor_exchange_count(const struct ls_dtensor_spec *from, int64_t from_rank,
                               const struct ls_dtensor_spec *to, int64_t to_rank)
{
    struct ls_overlap overlap;
    struct ls_copy copy;
    int64_t count = 0;
    if (!is_sender(from, from_rank, to_rank))
        return 0;
    ls_overlap_init(&overlap, from, from_rank, to, to_rank);
    while (ls_overlap_next(&overlap, &copy))
        count += copy.count;
    return count;
}

void dtensor_exchange_staging(const struct ls_dtensor_spec *from, const struct ls_dtensor_spec *to,
                              int64_t rank, int64_t *send_count, int64_t *receive_count)
{
    *send_count = *receive_count = 0;
    for (int64_t r = 0; r < ls_mesh_ranks(&from->mesh); r++) {
        if (r == rank)
            continue;
        *send_count = ls_max(*send_count, dtensor_exchange_count(from, rank, to, r));
        *receive_count = ls_max(*receive_count, dtensor_exchange_count(from, r, to, rank));
    }
}

/* What two parts share, out of the one or out of a block of it alone, into the other or a block.
 * Returns its elements. */
static int64_t shared_copy(const struct ls_dtensor_spec *from, int64_t from_rank,
                           const struct ls_dtensor_spec *to, int64_t to_rank, const char *in,
                           bool in_block, char *out, bool out_block)
{
    size_t bytes = ls_dtype_bytes(from->dtype);
    struct ls_overlap overlap;
    struct ls_copy copy;
    int64_t count = 0;
    ls_overlap_init(&overlap, from, from_rank, to, to_rank);
    for (; ls_overlap_next(&overlap, &copy); count += copy.count)
        memcpy(out + (size_t)(out_block ? count : copy.to) * bytes,
               in + (size_t)(in_block ? count : copy.from) * bytes, (size_t)copy.count * bytes);
    return count;
}

int dtensor_exchange(const struct ls_dtensor *from, struct ls_dtensor *to, void *send,
                     void *receive, struct ls_comm *comm, struct ls_error *error)
{
    enum ls_dtype dtype = from->spec.dtype;
    int64_t n = ls_comm_size(comm), me = from->rank;
    int status = LS_OK;
    shared_copy(&from->spec, me, &to->spec, me, from->data, false, to->data, false);
    /* In round k each rank sends k ranks on and receives from k ranks back. */
    for (int64_t k = 1; k < n && status == LS_OK; k++) {
        int64_t next = (me + k) % n, last = (me + n - k) % n;
        struct ls_request sending = {0}, receiving = {0};
        int64_t in = dtensor_exchange_count(&from->spec, last, &to->spec, me);
        int64_t out = 0;
        if (is_sender(&from->spec, me, next))
            out = shared_copy(&from->spec, me, &to->spec, next, from->data, false, send, true);
        if (in > 0)
            status =
                ls_recv_start(comm, receive, in, dtype, (int)last, 0, &receiving, LS_HERE, error);
        if (status == LS_OK && out > 0)
            status = ls_send_start(comm, send, out, dtype, (int)next, 0, &sending, LS_HERE, error);
        int received = ls_wait(&receiving, status == LS_OK ? error : NULL);
        status = status == LS_OK ? received : status;
        int sent = ls_wait(&sending, status == LS_OK ? error : NULL);
        status = status == LS_OK ? sent : status;
        if (status == LS_OK && in > 0)
            shared_copy(&from->spec, last, &to->spec, me, receive, true, to->data, false);
    }
    return status;
}
