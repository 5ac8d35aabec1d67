/* What the files of src/comm share: the call that a user made, the transport's vtable, the order of
 * sums, how buffers are cut. Names: n = group size, piece = what one rank owns of a buffer. */
#ifndef COMM_INTERNAL_H
#define COMM_INTERNAL_H

#include <lockstep/comm.h>
#include <lockstep/ops.h>
#include <lockstep/trace.h>

enum comm_op {
    COMM_ALL_REDUCE,
    COMM_ALL_REDUCE_MAX,
    COMM_REDUCE_SCATTER,
    COMM_REDUCE_SCATTER_BF16,
    COMM_ALL_GATHER,
    COMM_ALL_TO_ALL,
    COMM_BROADCAST,
    COMM_BARRIER,
    COMM_SEND,
    COMM_RECV,
};

/* One operation as one rank called it. */
struct comm_call {
    enum comm_op op;
    enum ls_dtype dtype;
    const void *input;
    void *output; /* all_reduce but of leaves, broadcast: input == output */
    int64_t count;
    struct ls_comm_leaves leaves; /* of a sum of leaves; inner 0: the tree over ranks */
    int peer;                     /* broadcast: the root; send, recv: the other rank; else 0 */
    int tag;                      /* send, recv */
    bool blocking;                /* the caller waits at once: it may do the work itself */
    struct ls_call_site site;     /* line 0: file is the name of the function that stands for it */
    const char *label;            /* what the caller said it moves; may be NULL */
    uint64_t sequence; /* of the group's collectives; or of the sends to, receives from peer */
};

static inline bool comm_is_collective(enum comm_op op)
{
    return op < COMM_SEND;
}

static inline bool comm_is_all_reduce(enum comm_op op)
{
    return op == COMM_ALL_REDUCE || op == COMM_ALL_REDUCE_MAX;
}

static inline bool comm_is_reduce_scatter(enum comm_op op)
{
    return op == COMM_REDUCE_SCATTER || op == COMM_REDUCE_SCATTER_BF16;
}

static inline bool comm_is_sum(enum comm_op op)
{
    return comm_is_all_reduce(op) || comm_is_reduce_scatter(op);
}

/* The output is the input: one rank alone has nothing to do. */
static inline bool comm_is_in_place(const struct comm_call *call)
{
    return (comm_is_all_reduce(call->op) && !call->leaves.inner) || call->op == COMM_BROADCAST;
}

/* How bytes travel. An operation that start accepted is owned by the transport until wait, which
 * ends it in any case. */
struct comm_transport {
    enum ls_transport kind;
    int (*start)(struct ls_comm *comm, const struct comm_call *call, void **operation,
                 struct ls_error *error);
    int (*wait)(struct ls_comm *comm, void *operation, struct ls_error *error);
    bool (*test)(struct ls_comm *comm, void *operation);
    /* Collective. This rank becomes `rank` of the group of `size`, whose members are the ranks
     * members[size] of comm, in the new order. */
    int (*split)(struct ls_comm *comm, const int *members, int size, int rank, struct ls_comm **out,
                 struct ls_error *error);
    void (*free)(struct ls_comm *comm);
};

/* Small collectives on integers go through scratch in pieces of this many words a rank. */
enum { COMM_SCRATCH_WORDS = 64 };

struct flight_record;
struct flight_board;

/* An operation that was started and is to be waited for. */
struct comm_pending {
    uint64_t ticket; /* 0: free */
    void *operation;
    uint64_t flight;
    int traced; /* number in the trace */
};

struct ls_comm {
    const struct comm_transport *transport;
    int rank, size;
    bool check;
    struct ls_comm_stats stats;
    struct ls_queue own;    /* runs commands where they are submitted */
    struct ls_queue *queue; /* what they are submitted to */
    uint64_t tickets;       /* given out so far */
    struct comm_pending pending[LS_COMM_PENDING_MAX];
    uint64_t *scratch; /* [size * COMM_SCRATCH_WORDS] */
    uint64_t id;       /* the same on all ranks of the group, another for other groups */
    char name[LS_COMM_NAME_MAX + 1];
    const char *label;
    struct ls_trace *trace; /* NULL: off; borrowed */
    int trace_group;
    double timeout_s;
    uint64_t sequence;       /* collectives called */
    uint64_t *pair_sequence; /* [2 * size]: sends to, then receives from each rank */
    /* Set by the transport, which owns them. */
    const int *world_ranks; /* [size] */
    struct flight_board *board;
    struct flight_record *record; /* this rank's */
};

/* Fills the common part of a handle; release gives back what init took. */
int comm_init(struct ls_comm *comm, const struct comm_transport *transport, int rank, int size,
              struct ls_error *error);
void comm_release(struct ls_comm *comm);

/* "all_reduce of 10 F32 [wte] (train.c:88)", with the root or peer and the label where there is
 * one. */
struct comm_text {
    char text[256];
};
struct comm_text comm_describe(const struct comm_call *call);
/* "rank 2 (of the world: 6)" */
struct comm_rank_text {
    char text[64];
};
struct comm_rank_text comm_rank_text(int rank, int world_rank);
/* Whether two ranks of a collective mean the same. */
bool comm_calls_match(const struct comm_call *a, const struct comm_call *b);

/* Elements [*begin, *begin + returned) of count are what rank owns when a buffer is cut over n. */
int64_t comm_piece(int64_t count, int n, int rank, int64_t *begin);
/* Bytes that rank hands over in this call: what comm.h states for sent_bytes. */
int64_t comm_sent_bytes(const struct comm_call *call, int n, int rank);

/* tree_sum.c: a sum over ranks, as commands of ops. */
struct comm_sum {
    struct ls_ops *ops;
    enum ls_rank_sum_form form;
    struct ls_comm_leaves leaves; /* inner 0: the tree over ranks */
    int n, outputs_count;
    const void *const *inputs; /* [n] */
    float *const *outputs;     /* [outputs_count]: the same sum to each */
};
/* How the operation adds float32. */
enum ls_rank_sum_form comm_sum_form(enum comm_op op);
/* outputs[j][to + i] = the sum over r of inputs[r][from + i], for i < count, j < outputs_count;
 * onto outputs[0] where leaves say so, which is then apart from all inputs. Otherwise each output
 * may lie where an input of float32 does (same buffer and offset). */
void comm_sum(const struct comm_sum *sum, int64_t from, int64_t to, int64_t count);

#endif
