/* The thread transport: ranks are threads, buffers are read and written where they lie.
 *
 * Every rank of a collective posts its call. When the last has posted, the operation is ready: it
 * is a number of independent blocks of memory work, each with a fixed order of sums, and any thread
 * may do any block. Ranks that wait do blocks; if nobody waits, helper threads of the world do.
 * So an operation never depends on a particular thread being scheduled, and ranks that compute are
 * not interrupted.
 *
 * One mutex, the world's, guards all state but the block counter. Blocks are done without it. */
#ifndef COMM_THREAD_H
#define COMM_THREAD_H

#include "comm/flight.h"

#include <lockstep/base/helper_thread.h>

/* ---- thread_work.c: what an operation does once all ranks have posted ------------------------ */

struct work {
    const struct comm_call *calls; /* [n], by rank; send and recv: [0] sends, [1] receives */
    struct ls_ops *ops;            /* the world's */
    const void **inputs;           /* [n] of the calls */
    float **outputs;               /* [n] */
    int n;
    bool fine;        /* waiting ranks are awake: even a short operation is shared */
    int64_t block;    /* elements of a block */
    int64_t per_part; /* blocks of a part; an operation has one part, n, or n * n */
    int64_t blocks;
};
/* calls, ops, inputs, outputs and n are set; the calls are complete and match. */
void comm_work_plan(struct work *work);
void comm_work_run(const struct work *work, int64_t index);

/* ---- thread_op.c: posting, matching, waiting; called with the world's mutex held ------------- */

enum op_state {
    OP_POSTING, /* some rank has yet to post */
    OP_READY,   /* blocks are being done */
    OP_DONE,
    OP_FAILED, /* no byte moved; text says why */
};

/* One rank's part in an operation. */
struct comm_post {
    struct thread_op *op;
    enum { POST_NONE, POST_HELD, POST_RELEASED } state;
};

struct thread_op {
    struct thread_op *next;       /* in the group's list of live or free operations */
    struct thread_op *queue_next; /* in the world's queue for helpers */
    struct thread_group *group;
    bool collective;
    uint64_t sequence;       /* of a collective */
    int source, target, tag; /* of a send and its recv */
    atomic_int state;        /* enum op_state; written under the mutex, read by who spins */
    bool queued;
    bool by_leaving;            /* failed because a rank left */
    bool by_timeout;            /* failed because one did not come */
    int slots, posted, holders; /* holders: posts still to come or to be released */
    int waiters, workers;
    struct work work;
    atomic_llong next_block;
    int64_t blocks_done;
    pthread_cond_t changed;
    enum ls_error_cause cause;
    char text[880];
    struct comm_call *calls; /* [slots]: a collective's by rank; else the send, the recv */
    struct comm_post *posts; /* [slots] */
};

struct thread_group {
    struct thread_group *next; /* in the world's list */
    struct ls_world *world;
    int size;
    int handles;     /* communicators that exist or are still to be taken */
    int *world_rank; /* [size] */
    bool *taken;     /* [size] the rank has its communicator */
    bool *left;      /* [size] the rank takes part no more */
    int left_first;  /* the first of them; -1: all take part */
    struct thread_op *live, *spare;
    char *pool; /* memory of operations, of which the first pool_used are in a list */
    int pool_used;
};

struct ls_world {
    int size;
    pthread_mutex_t lock;
    struct ls_ops ops; /* adds; shared by all that work */
    struct thread_group *groups;
    struct thread_group *all; /* the world's own, one of groups */
    /* Per rank: why it takes part no more, and whether its error only reports another's leaving. */
    struct world_rank {
        bool left;
        bool was_left_alone;
        char reason[720];
    } * ranks;
    struct flight_board board;
    double timeout_s; /* the longest of its communicators */
    struct thread_op *queue_head, *queue_tail;
    pthread_cond_t queue_filled;
    pthread_t *helpers;
    int helpers_count, helpers_max;
    bool spins; /* each rank can have a core: a short wait does not sleep */
    bool helpers_started, stopping;
};

struct thread_comm {
    struct ls_comm base;
    struct thread_group *group;
    struct ls_world *own_world; /* transport self */
    double spin_s;              /* patience of the next wait before it sleeps */
};

/* What a thread that sleeps loses by being woken, and no more: what spinning may cost where it is
 * in vain. A wait that it did not shorten halves the patience of the next. */
#define COMM_SPIN_MAX_S 50e-6
#define COMM_SPIN_MIN_S 1e-6

/* Fails what waits for that rank in any group: it takes part no more. */
void comm_world_leave(struct ls_world *world, int rank, int status, const struct ls_error *error);
/* As the vtable's start, wait, test. */
int comm_thread_start(struct ls_comm *comm, const struct comm_call *call, void **operation,
                      struct ls_error *error);
int comm_thread_wait(struct ls_comm *comm, void *operation, struct ls_error *error);
bool comm_thread_test(struct ls_comm *comm, void *operation);
/* The mutex is held: fails what waits for that rank, finishes what it has posted and is ready. */
void comm_group_leave(struct thread_group *group, int rank);
/* The memory of a new group's operations; false when memory ran out. */
bool comm_ops_new(struct thread_group *group);
void comm_ops_free(struct thread_group *group);

/* ---- thread_helper.c: threads that do blocks while every rank computes ----------------------- */

void comm_helper_offer(struct ls_world *world, struct thread_op *op);
void comm_helpers_stop(struct ls_world *world);
/* Does blocks of a ready operation until none is left; drops and retakes the mutex. */
void comm_op_work(struct thread_op *op);

#endif
