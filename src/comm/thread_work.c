/* The work of one operation among thread ranks, cut into blocks that any thread may do. */
#include "comm/thread.h"

#include <string.h>

/* A block touches about BLOCK_BYTES over all ranks: small against a cache, large against the cost
 * of claiming it and of waking a thread. Threads that are awake share smaller ones. */
enum { BLOCK_BYTES = 512 * 1024, FINE_BYTES = 64 * 1024, BLOCK_ALIGN = 1024 };

/* How an operation over n ranks is cut: into parts, and how many buffers one element touches. */
static void work_shape(enum comm_op op, int n, int64_t *parts, int64_t *buffers)
{
    *parts = 1;
    *buffers = n;
    switch (op) {
    case COMM_REDUCE_SCATTER: /* part r: the output of rank r */
    case COMM_REDUCE_SCATTER_BF16:
    case COMM_ALL_GATHER: /* part r: the input of rank r */
        *parts = n;
        break;
    case COMM_ALL_TO_ALL: /* part r * n + s: what s gives to r */
        *parts = (int64_t)n * n;
        *buffers = 2;
        break;
    case COMM_SEND:
    case COMM_RECV:
        *buffers = 2;
        break;
    case COMM_ALL_REDUCE:
    case COMM_ALL_REDUCE_MAX:
    case COMM_BROADCAST:
    case COMM_BARRIER:
        break;
    }
}

void comm_work_plan(struct work *work)
{
    const struct comm_call *calls = work->calls;
    int64_t parts, buffers, count = calls->count;
    work_shape(calls->op, work->n, &parts, &buffers);
    int64_t element = buffers * (int64_t)ls_dtype_bytes(calls->dtype), bytes = BLOCK_BYTES;
    if (work->fine)
        bytes = ls_max(FINE_BYTES, ls_min(bytes, parts * count * element / (2 * work->n)));
    int64_t block = bytes / element;
    work->block = ls_round_up(ls_max(block, 1), BLOCK_ALIGN);
    work->per_part = ls_ceil_div(count, work->block);
    work->blocks = comm_is_in_place(calls) && work->n == 1 ? 0 : parts * work->per_part;
    if (!comm_is_sum(calls->op))
        return;
    for (int r = 0; r < work->n; r++) {
        work->inputs[r] = calls[r].input;
        work->outputs[r] = calls[r].output;
    }
}

/* Elements of the calls' dtype. The same place is an in-place call. */
static void copy(const struct comm_call *to, int64_t to_first, const struct comm_call *from,
                 int64_t from_first, int64_t count)
{
    size_t bytes = ls_dtype_bytes(from->dtype);
    char *output = (char *)to->output + (size_t)to_first * bytes;
    const char *input = (const char *)from->input + (size_t)from_first * bytes;
    if (output != input)
        memcpy(output, input, (size_t)count * bytes);
}

/* Of all inputs' elements from, from + 1, ... */
static void sum(const struct work *work, float *const *outputs, int outputs_count, int64_t from,
                int64_t to, int64_t count)
{
    const struct comm_call *call = work->calls;
    const struct comm_sum sum = {work->ops, comm_sum_form(call->op), call->leaves,
                                 work->n,   outputs_count,           work->inputs,
                                 outputs};
    comm_sum(&sum, from, to, count);
}

void comm_work_run(const struct work *work, int64_t index)
{
    const struct comm_call *calls = work->calls;
    int64_t part = index / work->per_part, first = index % work->per_part * work->block;
    int64_t count = calls->count, length = ls_min(work->block, count - first);
    int n = work->n;
    switch (calls->op) {
    case COMM_ALL_REDUCE:
    case COMM_ALL_REDUCE_MAX:
        sum(work, work->outputs, n, first, first, length);
        break;
    case COMM_REDUCE_SCATTER:
    case COMM_REDUCE_SCATTER_BF16:
        sum(work, work->outputs + part, 1, part * count + first, first, length);
        break;
    case COMM_ALL_GATHER:
        for (int r = 0; r < n; r++)
            copy(&calls[r], part * count + first, &calls[part], first, length);
        break;
    case COMM_ALL_TO_ALL: {
        int64_t to = part / n, from = part % n;
        copy(&calls[to], from * count + first, &calls[from], to * count + first, length);
        break;
    }
    case COMM_BROADCAST:
        for (int r = 0; r < n; r++)
            copy(&calls[r], first, &calls[calls->peer], first, length);
        break;
    case COMM_SEND:
    case COMM_RECV:
        copy(&calls[1], first, &calls[0], first, length);
        break;
    case COMM_BARRIER:
        break;
    }
}
