/* How a collective over messages is cut: pure arithmetic, tested without a network.
 *
 * An operation is rounds of one or two phases. In a phase this rank exchanges at most one message
 * with each peer; when all of a phase's messages are through, finish does the local work and the
 * round's next phase may begin. Rounds are independent of each other. Every rank of the group makes
 * the same rounds and phases, and what one sends is what its peer expects.
 *
 *   all_reduce      phase 0: peers' parts of my piece come to scratch, finish adds them; phase 1:
 *                   sums go out. Short buffers are exchanged whole in one phase, all add them
 *   reduce_scatter  as phase 0. In bf16, prepare rounds what goes out into the second half of
 *                   scratch, and what comes in takes the first; finish rounds what stays here
 *   broadcast       phase 0: the root deals pieces; phase 1: each passes its own on (van de Geijn).
 *                   Short ones, and any over two ranks, go from the root to all in one phase
 *   all_gather, all_to_all   one phase
 */
#ifndef COMM_ROUNDS_H
#define COMM_ROUNDS_H

#include "comm/internal.h"

struct comm_limits {
    int64_t sum_bytes;    /* scratch of a round */
    int64_t copy_bytes;   /* of one message */
    int64_t direct_bytes; /* a buffer up to this is exchanged whole */
};

struct comm_rounds {
    struct comm_call call;
    struct ls_ops *ops; /* borrowed: adds */
    int n, rank;
    bool direct;
    int64_t piece; /* elements of a message at most */
    int64_t count;
    int phases;
};

struct comm_message {
    const void *send;
    size_t send_bytes; /* 0: nothing to send */
    void *recv;
    size_t recv_bytes;
};

void comm_rounds_init(struct comm_rounds *rounds, const struct comm_call *call, struct ls_ops *ops,
                      int n, int rank, const struct comm_limits *limits);
/* Scratch bytes that a round needs for these limits, whatever the operation. */
size_t comm_rounds_scratch_bytes(int n, const struct comm_limits *limits);
/* scratch: of the round, kept from its first phase to its last. */
void comm_rounds_message(const struct comm_rounds *rounds, int64_t round, int phase, int peer,
                         float *scratch, struct comm_message *message);
/* Local work before a phase's messages go out. */
void comm_rounds_prepare(const struct comm_rounds *rounds, int64_t round, int phase,
                         float *scratch);
/* Local work after a phase; inputs[n] is room for pointers. */
void comm_rounds_finish(const struct comm_rounds *rounds, int64_t round, int phase, float *scratch,
                        const void **inputs);

/* A send or recv of bytes goes as messages of part_max at most, and at least one, which may be
 * empty: how many, and what part i of them is. */
int64_t comm_parts_count(int64_t bytes, int64_t part_max);
int64_t comm_part(int64_t bytes, int64_t part_max, int64_t i, int64_t *offset);

#endif
