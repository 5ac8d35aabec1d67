/* The rounds of a collective: which bytes go to which peer, and what is added when they are there.
 * */
#include "comm/rounds.h"

#include <string.h>

enum { ALIGN = 16 }; /* elements; keeps the pieces of a buffer on cache lines */

static int64_t piece_elements(int64_t bytes, int64_t element)
{
    int64_t elements = bytes / element;
    return elements >= ALIGN ? elements / ALIGN * ALIGN : ls_max(elements, 1);
}

size_t comm_rounds_scratch_bytes(int n, const struct comm_limits *limits)
{
    int64_t peers = ls_max(n - 1, 1);
    return (size_t)(peers * piece_elements(limits->sum_bytes / peers, sizeof(float))) *
           sizeof(float);
}

void comm_rounds_init(struct comm_rounds *rounds, const struct comm_call *call, struct ls_ops *ops,
                      int n, int rank, const struct comm_limits *limits)
{
    int64_t element = (int64_t)ls_dtype_bytes(call->dtype), first;
    bool pieces = comm_is_all_reduce(call->op) || call->op == COMM_BROADCAST;
    *rounds = (struct comm_rounds){.call = *call, .ops = ops, .n = n, .rank = rank};
    rounds->direct = pieces && (call->count <= limits->direct_bytes / element ||
                                (n == 2 && call->op == COMM_BROADCAST));
    rounds->phases = pieces && !rounds->direct ? 2 : 1;
    rounds->piece = comm_is_sum(call->op)
                        ? piece_elements(limits->sum_bytes / ls_max(n - 1, 1), element)
                        : piece_elements(limits->copy_bytes, element);
    /* Rank 0 has the longest piece. */
    int64_t longest =
        pieces && !rounds->direct ? comm_piece(call->count, n, 0, &first) : call->count;
    rounds->count = ls_ceil_div(longest, rounds->piece);
    if (n == 1 && comm_is_in_place(call))
        rounds->count = 0;
}

/* The part of [begin, begin + count) that belongs to the round; returns its length. */
static int64_t cut(const struct comm_rounds *rounds, int64_t round, int64_t begin, int64_t count,
                   int64_t *first)
{
    int64_t offset = round * rounds->piece;
    *first = begin + offset;
    return ls_max(0, ls_min(rounds->piece, count - offset));
}

/* The round's part of rank's piece of a buffer that is cut over the group. */
static int64_t cut_piece(const struct comm_rounds *rounds, int64_t round, int rank, int64_t *first)
{
    int64_t begin, length = comm_piece(rounds->call.count, rounds->n, rank, &begin);
    return cut(rounds, round, begin, length, first);
}

static float *scratch_of(const struct comm_rounds *rounds, float *scratch, int peer)
{
    return scratch + (peer < rounds->rank ? peer : peer - 1) * rounds->piece;
}

/* The halves of scratch that hold bf16: of each peer what comes in, of each what goes out. */
static ls_bf16 *narrow_of(const struct comm_rounds *rounds, float *scratch, int peer, bool send)
{
    int slot = (peer < rounds->rank ? peer : peer - 1) + (send ? rounds->n - 1 : 0);
    return (ls_bf16 *)scratch + slot * rounds->piece;
}

static void send_from(const struct comm_rounds *rounds, struct comm_message *message,
                      const void *base, int64_t first, int64_t count)
{
    size_t element = ls_dtype_bytes(rounds->call.dtype);
    message->send = (const char *)base + (size_t)first * element;
    message->send_bytes = (size_t)count * element;
}

static void recv_to(const struct comm_rounds *rounds, struct comm_message *message, void *base,
                    int64_t first, int64_t count)
{
    size_t element = ls_dtype_bytes(rounds->call.dtype);
    message->recv = (char *)base + (size_t)first * element;
    message->recv_bytes = (size_t)count * element;
}

static void all_reduce_message(const struct comm_rounds *rounds, int64_t round, int phase, int peer,
                               float *scratch, struct comm_message *message)
{
    const struct comm_call *call = &rounds->call;
    int64_t first, length;
    if (rounds->direct) {
        length = cut(rounds, round, 0, call->count, &first);
        send_from(rounds, message, call->input, first, length);
        recv_to(rounds, message, scratch_of(rounds, scratch, peer), 0, length);
        return;
    }
    int64_t own_first, own = cut_piece(rounds, round, rounds->rank, &own_first);
    length = cut_piece(rounds, round, peer, &first);
    if (phase == 0) {
        send_from(rounds, message, call->input, first, length);
        recv_to(rounds, message, scratch_of(rounds, scratch, peer), 0, own);
    } else {
        send_from(rounds, message, call->output, own_first, own);
        recv_to(rounds, message, call->output, first, length);
    }
}

static void broadcast_message(const struct comm_rounds *rounds, int64_t round, int phase, int peer,
                              struct comm_message *message)
{
    const struct comm_call *call = &rounds->call;
    int64_t first, length;
    int root = call->peer;
    if (rounds->direct) {
        length = cut(rounds, round, 0, call->count, &first);
        if (rounds->rank == root)
            send_from(rounds, message, call->input, first, length);
        else if (peer == root)
            recv_to(rounds, message, call->output, first, length);
        return;
    }
    int64_t own_first, own = cut_piece(rounds, round, rounds->rank, &own_first);
    length = cut_piece(rounds, round, peer, &first);
    if (phase == 0) {
        if (rounds->rank == root)
            send_from(rounds, message, call->input, first, length);
        else if (peer == root)
            recv_to(rounds, message, call->output, own_first, own);
        return;
    }
    if (peer != root)
        send_from(rounds, message, call->output, own_first, own);
    if (rounds->rank != root)
        recv_to(rounds, message, call->output, first, length);
}

void comm_rounds_message(const struct comm_rounds *rounds, int64_t round, int phase, int peer,
                         float *scratch, struct comm_message *message)
{
    const struct comm_call *call = &rounds->call;
    int64_t first, length = cut(rounds, round, 0, call->count, &first);
    *message = (struct comm_message){0};
    switch (call->op) {
    case COMM_ALL_REDUCE:
    case COMM_ALL_REDUCE_MAX:
        all_reduce_message(rounds, round, phase, peer, scratch, message);
        break;
    case COMM_REDUCE_SCATTER:
        send_from(rounds, message, call->input, peer * call->count + first, length);
        recv_to(rounds, message, scratch_of(rounds, scratch, peer), 0, length);
        break;
    case COMM_REDUCE_SCATTER_BF16:
        message->send = narrow_of(rounds, scratch, peer, true);
        message->recv = narrow_of(rounds, scratch, peer, false);
        message->send_bytes = message->recv_bytes = (size_t)length * sizeof(ls_bf16);
        break;
    case COMM_ALL_GATHER:
        send_from(rounds, message, call->input, first, length);
        recv_to(rounds, message, call->output, peer * call->count + first, length);
        break;
    case COMM_ALL_TO_ALL:
        send_from(rounds, message, call->input, peer * call->count + first, length);
        recv_to(rounds, message, call->output, peer * call->count + first, length);
        break;
    case COMM_BROADCAST:
        broadcast_message(rounds, round, phase, peer, message);
        break;
    case COMM_BARRIER:
    case COMM_SEND:
    case COMM_RECV:
        break;
    }
}

/* What the rank gives itself in all_gather and all_to_all. */
static void copy_own(const struct comm_rounds *rounds, int64_t from, int64_t to, int64_t count)
{
    size_t element = ls_dtype_bytes(rounds->call.dtype);
    const char *input = (const char *)rounds->call.input + (size_t)from * element;
    char *output = (char *)rounds->call.output + (size_t)to * element;
    if (input != output)
        memcpy(output, input, (size_t)count * element);
}

/* to[count] = the call's input from there, rounded. */
static void round_piece(const struct comm_rounds *rounds, int64_t from, int64_t count, ls_bf16 *to)
{
    ls_cast_to_half(rounds->ops, LS_BF16, count, (const float *)rounds->call.input + from, to);
}

void comm_rounds_prepare(const struct comm_rounds *rounds, int64_t round, int phase, float *scratch)
{
    const struct comm_call *call = &rounds->call;
    int64_t first, length = cut(rounds, round, 0, call->count, &first);
    if (call->op != COMM_REDUCE_SCATTER_BF16 || phase > 0)
        return;
    for (int peer = 0; peer < rounds->n; peer++)
        if (peer != rounds->rank)
            round_piece(rounds, peer * call->count + first, length,
                        narrow_of(rounds, scratch, peer, true));
    ls_queue_synchronise(&rounds->ops->queue, NULL);
}

void comm_rounds_finish(const struct comm_rounds *rounds, int64_t round, int phase, float *scratch,
                        const void **inputs)
{
    const struct comm_call *call = &rounds->call;
    int64_t first, length = cut(rounds, round, 0, call->count, &first);
    int64_t block = (int64_t)rounds->rank * call->count;
    float *output = call->output;
    if (call->op == COMM_ALL_GATHER)
        copy_own(rounds, first, block + first, length);
    if (call->op == COMM_ALL_TO_ALL)
        copy_own(rounds, block + first, block + first, length);
    if (phase > 0 || !comm_is_sum(call->op))
        return;
    int64_t own = first;
    bool narrow = call->op == COMM_REDUCE_SCATTER_BF16;
    if (comm_is_reduce_scatter(call->op)) {
        own = block + first;
    } else if (!rounds->direct) {
        length = cut_piece(rounds, round, rounds->rank, &first);
        own = first;
    }
    for (int r = 0; r < rounds->n; r++) {
        if (r == rounds->rank)
            inputs[r] = (const float *)call->input + own;
        else
            inputs[r] = narrow ? (const void *)narrow_of(rounds, scratch, r, false)
                               : scratch_of(rounds, scratch, r);
    }
    if (narrow) { /* in the place of what has gone out */
        ls_bf16 *stays = (ls_bf16 *)scratch + (rounds->n - 1) * rounds->piece;
        round_piece(rounds, own, length, stays);
        inputs[rounds->rank] = stays;
    }
    const struct comm_sum sum = {rounds->ops,
                                 narrow ? LS_RANK_SUM_BF16 : comm_sum_form(call->op),
                                 call->leaves,
                                 rounds->n,
                                 1,
                                 inputs,
                                 &output};
    comm_sum(&sum, 0, first, length);
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
