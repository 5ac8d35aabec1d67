#include "comm/plan.h"

#include <string.h>

enum { ALIGN = 16 }; /* elements; keeps the pieces of a buffer on cache lines */

static int64_t piece_elements(int64_t bytes, int64_t element)
{
    int64_t elements = bytes / element;
    return elements >= ALIGN ? elements / ALIGN * ALIGN : ls_max(elements, 1);
}

size_t comm_plan_scratch_bytes(int n, const struct comm_limits *limits)
{
    int64_t peers = ls_max(n - 1, 1);
    return (size_t)(peers * piece_elements(limits->sum_bytes / peers, sizeof(float))) *
           sizeof(float);
}

void comm_plan_init(struct comm_plan *plan, const struct comm_call *call, int n, int rank,
                    const struct comm_limits *limits)
{
    int64_t element = (int64_t)ls_dtype_bytes(call->dtype), first;
    bool sums = comm_is_all_reduce(call->op) || comm_is_reduce_scatter(call->op);
    bool pieces = comm_is_all_reduce(call->op) || call->op == COMM_BROADCAST;
    *plan = (struct comm_plan){.call = *call, .n = n, .rank = rank};
    plan->direct = pieces && (call->count <= limits->direct_bytes / element ||
                              (n == 2 && call->op == COMM_BROADCAST));
    plan->phases = pieces && !plan->direct ? 2 : 1;
    plan->piece = sums ? piece_elements(limits->sum_bytes / ls_max(n - 1, 1), element)
                       : piece_elements(limits->copy_bytes, element);
    /* Rank 0 has the longest piece. */
    int64_t longest = pieces && !plan->direct ? comm_piece(call->count, n, 0, &first) : call->count;
    plan->rounds = ls_ceil_div(longest, plan->piece);
    if (n == 1 && pieces)
        plan->rounds = 0;
}

/* The part of [begin, begin + count) that belongs to the round; returns its length. */
static int64_t cut(const struct comm_plan *plan, int64_t round, int64_t begin, int64_t count,
                   int64_t *first)
{
    int64_t offset = round * plan->piece;
    *first = begin + offset;
    return ls_max(0, ls_min(plan->piece, count - offset));
}

/* The round's part of rank's piece of a buffer that is cut over the group. */
static int64_t cut_piece(const struct comm_plan *plan, int64_t round, int rank, int64_t *first)
{
    int64_t begin, length = comm_piece(plan->call.count, plan->n, rank, &begin);
    return cut(plan, round, begin, length, first);
}

static float *scratch_of(const struct comm_plan *plan, float *scratch, int peer)
{
    return scratch + (peer < plan->rank ? peer : peer - 1) * plan->piece;
}

/* The halves of scratch that hold bf16: of each peer what comes in, of each what goes out. */
static ls_bf16 *narrow_of(const struct comm_plan *plan, float *scratch, int peer, bool send)
{
    int slot = (peer < plan->rank ? peer : peer - 1) + (send ? plan->n - 1 : 0);
    return (ls_bf16 *)scratch + slot * plan->piece;
}

static void send_from(const struct comm_plan *plan, struct comm_message *message, const void *base,
                      int64_t first, int64_t count)
{
    size_t element = ls_dtype_bytes(plan->call.dtype);
    message->send = (const char *)base + (size_t)first * element;
    message->send_bytes = (size_t)count * element;
}

static void recv_to(const struct comm_plan *plan, struct comm_message *message, void *base,
                    int64_t first, int64_t count)
{
    size_t element = ls_dtype_bytes(plan->call.dtype);
    message->recv = (char *)base + (size_t)first * element;
    message->recv_bytes = (size_t)count * element;
}

static void all_reduce_message(const struct comm_plan *plan, int64_t round, int phase, int peer,
                               float *scratch, struct comm_message *message)
{
    const struct comm_call *call = &plan->call;
    int64_t first, length;
    if (plan->direct) {
        length = cut(plan, round, 0, call->count, &first);
        send_from(plan, message, call->input, first, length);
        recv_to(plan, message, scratch_of(plan, scratch, peer), 0, length);
        return;
    }
    int64_t own_first, own = cut_piece(plan, round, plan->rank, &own_first);
    length = cut_piece(plan, round, peer, &first);
    if (phase == 0) {
        send_from(plan, message, call->input, first, length);
        recv_to(plan, message, scratch_of(plan, scratch, peer), 0, own);
    } else {
        send_from(plan, message, call->output, own_first, own);
        recv_to(plan, message, call->output, first, length);
    }
}

static void broadcast_message(const struct comm_plan *plan, int64_t round, int phase, int peer,
                              struct comm_message *message)
{
    const struct comm_call *call = &plan->call;
    int64_t first, length;
    int root = call->peer;
    if (plan->direct) {
        length = cut(plan, round, 0, call->count, &first);
        if (plan->rank == root)
            send_from(plan, message, call->input, first, length);
        else if (peer == root)
            recv_to(plan, message, call->output, first, length);
        return;
    }
    int64_t own_first, own = cut_piece(plan, round, plan->rank, &own_first);
    length = cut_piece(plan, round, peer, &first);
    if (phase == 0) {
        if (plan->rank == root)
            send_from(plan, message, call->input, first, length);
        else if (peer == root)
            recv_to(plan, message, call->output, own_first, own);
        return;
    }
    if (peer != root)
        send_from(plan, message, call->output, own_first, own);
    if (plan->rank != root)
        recv_to(plan, message, call->output, first, length);
}

void comm_plan_message(const struct comm_plan *plan, int64_t round, int phase, int peer,
                       float *scratch, struct comm_message *message)
{
    const struct comm_call *call = &plan->call;
    int64_t first, length = cut(plan, round, 0, call->count, &first);
    *message = (struct comm_message){0};
    switch (call->op) {
    case COMM_ALL_REDUCE:
    case COMM_ALL_REDUCE_MAX:
        all_reduce_message(plan, round, phase, peer, scratch, message);
        break;
    case COMM_REDUCE_SCATTER:
        send_from(plan, message, call->input, peer * call->count + first, length);
        recv_to(plan, message, scratch_of(plan, scratch, peer), 0, length);
        break;
    case COMM_REDUCE_SCATTER_BF16:
        message->send = narrow_of(plan, scratch, peer, true);
        message->recv = narrow_of(plan, scratch, peer, false);
        message->send_bytes = message->recv_bytes = (size_t)length * sizeof(ls_bf16);
        break;
    case COMM_ALL_GATHER:
        send_from(plan, message, call->input, first, length);
        recv_to(plan, message, call->output, peer * call->count + first, length);
        break;
    case COMM_ALL_TO_ALL:
        send_from(plan, message, call->input, peer * call->count + first, length);
        recv_to(plan, message, call->output, peer * call->count + first, length);
        break;
    case COMM_BROADCAST:
        broadcast_message(plan, round, phase, peer, message);
        break;
    case COMM_BARRIER:
    case COMM_SEND:
    case COMM_RECV:
        break;
    }
}

/* What the rank gives itself in all_gather and all_to_all. */
static void copy_own(const struct comm_plan *plan, int64_t from, int64_t to, int64_t count)
{
    size_t element = ls_dtype_bytes(plan->call.dtype);
    const char *input = (const char *)plan->call.input + (size_t)from * element;
    char *output = (char *)plan->call.output + (size_t)to * element;
    if (input != output)
        memcpy(output, input, (size_t)count * element);
}

void comm_plan_prepare(const struct comm_plan *plan, int64_t round, int phase, float *scratch)
{
    const struct comm_call *call = &plan->call;
    int64_t first, length = cut(plan, round, 0, call->count, &first);
    if (call->op != COMM_REDUCE_SCATTER_BF16 || phase > 0)
        return;
    for (int peer = 0; peer < plan->n; peer++)
        if (peer != plan->rank)
            comm_round_bf16((const float *)call->input + peer * call->count + first,
                            narrow_of(plan, scratch, peer, true), length);
}

void comm_plan_finish(const struct comm_plan *plan, int64_t round, int phase, float *scratch,
                      const void **inputs)
{
    const struct comm_call *call = &plan->call;
    int64_t first, length = cut(plan, round, 0, call->count, &first);
    int64_t block = (int64_t)plan->rank * call->count;
    float *output = call->output;
    if (call->op == COMM_ALL_GATHER)
        copy_own(plan, first, block + first, length);
    if (call->op == COMM_ALL_TO_ALL)
        copy_own(plan, block + first, block + first, length);
    if (phase > 0 || (!comm_is_all_reduce(call->op) && !comm_is_reduce_scatter(call->op)))
        return;
    int64_t own = first;
    bool narrow = call->op == COMM_REDUCE_SCATTER_BF16;
    if (comm_is_reduce_scatter(call->op)) {
        own = block + first;
    } else if (!plan->direct) {
        length = cut_piece(plan, round, plan->rank, &first);
        own = first;
    }
    for (int r = 0; r < plan->n; r++) {
        if (r == plan->rank)
            inputs[r] = (const float *)call->input + own;
        else
            inputs[r] = narrow ? (const void *)narrow_of(plan, scratch, r, false)
                               : scratch_of(plan, scratch, r);
    }
    if (narrow)
        comm_tree_sum_bf16(inputs, plan->n, plan->rank, 0, output + first, length);
    else
        comm_tree_sum(call->op, inputs, plan->n, 0, &output, 1, first, length);
}

int64_t comm_parts_count(int64_t bytes, int64_t part_max)
{
    return ls_max(1, ls_ceil_div(bytes, part_max));
}

int64_t comm_part(int64_t bytes, int64_t part_max, int64_t i, int64_t *offset)
{
    *offset = i * part_max;
    return ls_min(part_max, bytes - *offset);
}
