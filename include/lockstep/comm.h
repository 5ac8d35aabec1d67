/* lockstep/comm.h - collectives among ranks. Transport moves bytes; only our kernels add (S1).
 *
 * A rank is a process or a thread. Each rank holds one struct ls_comm per group it belongs to.
 *
 *   self     a group of one; every operation is a copy
 *   thread   ranks are threads of one process over shared memory: ls_world_new once, then
 *            ls_comm_thread_new(world, rank) in each thread. ls_world_run does both.
 *   mpi      ranks are processes: ls_comm_mpi_new in each (LS_ENOTSUP in a build with MPI=0)
 *   alone    nothing moves: what a rank would do, recorded (lockstep/plan/recording.h)
 *
 * Order of calls: make the world communicator, split it into groups, call operations in the same
 * order on every rank of the group, free. Operations on one communicator by one rank are called
 * from one thread at a time. Non-blocking operations: up to LS_COMM_PENDING_MAX may be started
 * before they are waited for; buffers belong to the operation until its wait returns. They make
 * progress while the caller computes.
 *
 * Queues: starts and waits are commands of the queue that ls_comm_set_queue names (of none: they
 * run at once). A start comes after what was submitted before it; what is submitted behind a wait
 * comes after the operation's end. No host waits for that. The blocking forms do wait on the host.
 *
 * Sums: float32 values are added by the binary tree over rank index (ls_tree_split), so that a rank
 * which holds a whole subtree of a larger tree continues it; the result has the same bits on every
 * rank and in every transport.
 *
 * Failure: every operation returns LS_OK or LS_ECOMM with a text (LS_EINVAL for arguments that no
 * rank could use, LS_ENOMEM). In debug builds (LS_COMM_CHECK) ranks agree on operation, dtype,
 * count and root before a byte moves, and a mismatch is an error on all of them that names both
 * ranks and call sites; the group remains of use. ls_comm_agree makes a local failure known to all.
 * A thread rank that frees its communicator, returns or fails makes what its peers have pending
 * with it fail with a text that names it. An MPI process that fails alone ends by ls_mpi_abort, or
 * exits without ls_mpi_finish and with a status that is not 0: the launcher then ends the others.
 *
 * No hang: with ls_comm_set_timeout a wait that lasts longer is LS_ECOMM on every rank that waits.
 * The text says who is late, for which operation (its sequence number in the group, count, label
 * and call site), and where the late rank is. See "who is late" below.
 *
 * Progress: thread ranks read and write each other's buffers; whoever waits does the work, and
 * helper threads (at most one a core, asleep when idle) do it if nobody waits. Over MPI the
 * caller drives what it waits for, and one thread a process, started with the first non-blocking
 * operation, drives the rest; MPI_THREAD_SERIALIZED is asked for. Memory is taken when a
 * communicator is made and with the first sum over MPI, not later. */
#ifndef LOCKSTEP_COMM_H
#define LOCKSTEP_COMM_H

#include <lockstep/device/queue.h>

#include <stdio.h>

LS_C_BEGIN

struct ls_comm;  /* this rank's handle of one group */
struct ls_world; /* what the thread ranks of one process share */

enum {
    LS_COMM_PENDING_MAX = 128,
    LS_COMM_TAG_MAX = 32767,
    LS_COMM_NAME_MAX = 31,
    LS_COMM_FLIGHT = 64 /* operations that a rank's flight record holds */
};

enum ls_transport { LS_TRANSPORT_SELF, LS_TRANSPORT_THREAD, LS_TRANSPORT_MPI, LS_TRANSPORT_ALONE };

/* ---- making and ending ---------------------------------------------------------------------- */

/* Local. A group of one. */
int ls_comm_self_new(struct ls_comm **out, struct ls_error *error);
/* Local. Shared state for size thread ranks; free it after every rank freed its communicators. */
int ls_world_new(int size, struct ls_world **out, struct ls_error *error);
void ls_world_free(struct ls_world *world);
/* Collective over the world's ranks: each thread makes its own. */
int ls_comm_thread_new(struct ls_world *world, int rank, struct ls_comm **out,
                       struct ls_error *error);
/* Runs body(comm, user) in size threads, each with its world communicator (borrowed); returns the
 * first failure by rank (its text prefixed with the rank, if there are several), if one that
 * only reports that a peer left comes after those that do not. A rank whose body fails makes the
 * others' pending operations fail rather than hang. If some rank has failed and timeouts are set
 * (ls_comm_set_timeout), a rank that for twice the longest of them has neither returned nor got on
 * (ls_progress) is given up, and the text and its cause, LS_CAUSE_GIVEN_UP, say so: its thread goes
 * on, with user and whatever else it was given. Free nothing of that, whatever the status is, and
 * end the process soon. Local to the calling process. */
int ls_world_run(int size, int (*body)(struct ls_comm *comm, void *user, struct ls_error *error),
                 void *user, struct ls_error *error);
/* Collective over MPI_COMM_WORLD. Initialises MPI when nobody did, with the thread level that is
 * used. LS_ENOTSUP if the build has no MPI; LS_ECOMM once ls_comm_split has given up a group that
 * MPI did not make in time. */
int ls_comm_mpi_new(struct ls_comm **out, struct ls_error *error);
/* Local. What a communicator over MPI of so many ranks allocates for its first sum, and keeps. */
int64_t ls_comm_mpi_sum_bytes(int ranks);
/* True if this process was started by an MPI launcher or srun (doc/mpi.md). */
bool ls_mpi_launched(void);
/* This process's rank as the launcher says, before MPI begins; -1 if it does not say. */
int ls_mpi_launched_rank(void);
/* Whether Open MPI was told to let the other processes live when one dies (orte_enable_recovery,
 * as `lockstep launch` does for workers that need not wait for each other). A wait for a process
 * that is known to have ended then fails with LS_ECOMM at once. Nobody ends the others: each
 * process that fails has to end by itself, and mpirun ends with 0 once all have. */
bool ls_mpi_survives(void);
/* Local. Of `count` ranks of the group from that one on: one whose process is known to have ended,
 * -1: none is. One that left (ls_comm_leave) counts only if no other has: then the one that it left
 * for, if that is among them. */
int ls_comm_lost(const struct ls_comm *comm, int first, int count);
/* Local. This rank is about to end, but only because that rank of the group has ended. */
void ls_comm_leave(struct ls_comm *comm, int lost);
/* How many ranks are on this machine as the launcher says, before MPI begins: of several hosts of
 * an srun the most that one has. 0 if it does not say. */
int ls_mpi_machine_ranks(void);
/* Collective over all processes. Ends MPI if ls_comm_mpi_new began it; call last, with all
 * communicators freed. */
void ls_mpi_finish(void);
/* Collective. Ranks of equal color form a group, ordered by (key, rank). */
int ls_comm_split(struct ls_comm *comm, int color, int key, struct ls_comm **out,
                  struct ls_error *error);
/* Collective. The same where each rank knows its group: members[size] are ranks of comm, this one
 * among them, in the order of the new group; each rank of it gives the same. */
int ls_comm_group(struct ls_comm *comm, const int *members, int size, struct ls_comm **out,
                  struct ls_error *error);
/* Local (over MPI: Collective). What this rank has pending is given up: a message that has not
 * begun to arrive is not written to its buffer any more. NULL is allowed. */
void ls_comm_free(struct ls_comm *comm);

/* Local. */
int ls_comm_rank(const struct ls_comm *comm);
int ls_comm_size(const struct ls_comm *comm);
/* How many ranks of the world are on this machine, this one too. */
int ls_comm_machine_ranks(const struct ls_comm *comm);
/* How many of them may run on cores that this one may run on, this one too: a launcher may bind
 * ranks to cores. */
int ls_comm_core_ranks(const struct ls_comm *comm);
/* Whether that rank of the world is on this machine. */
bool ls_comm_on_machine(const struct ls_comm *comm, int world_rank);
/* Whether this rank is the first of the communicator's on its machine. */
bool ls_comm_first_on_machine(const struct ls_comm *comm);
/* "rank 2", or "rank 2 on host node1" if there are several. */
struct ls_rank_text {
    char text[112];
};
struct ls_rank_text ls_comm_rank_text(const struct ls_comm *comm, int world_rank);
/* Its host, if there are several; else "". */
const char *ls_comm_rank_host(const struct ls_comm *comm, int world_rank);
enum ls_transport ls_comm_transport(const struct ls_comm *comm);
const char *ls_transport_name(enum ls_transport transport);
/* Logically collective, with nothing pending. Whether the ranks of the group agree on each
 * operation before a byte moves (see above). A new communicator checks in debug builds
 * (LS_COMM_CHECK); a split inherits. The transports self and thread see every rank's call at
 * no cost and check always; over MPI it costs one small message to each peer. */
void ls_comm_set_check(struct ls_comm *comm, bool check);

/* Local. queue, which is borrowed, gets the commands of comm on this rank: the queue of the ops
 * that work on its buffers. NULL, as at first: they run at once. With nothing pending. A split does
 * not inherit it. */
void ls_comm_set_queue(struct ls_comm *comm, struct ls_queue *queue);
/* Local. Rank `rank` of a world of `size`, of which no other rank exists. Nothing moves, and no
 * buffer is read or written: waits return at once, ls_test is false, and where ranks tell each
 * other words (ls_comm_agree, integer and exact sums, maxima) this one hears only itself. Groups
 * come from ls_comm_group; ls_comm_split is LS_ENOTSUP. */
int ls_comm_alone_new(int rank, int size, struct ls_comm **out, struct ls_error *error);

/* ---- who is late ----------------------------------------------------------------------------
 *
 * Each rank keeps a flight record: its last LS_COMM_FLIGHT operations in all groups, with sequence
 * number, group, count, label, call site, state and age. Collectives of a group are numbered from
 * 0; sends to a rank, and receives from it, by themselves. Ranks of one process, and processes of
 * one machine (over MPI, by a shared window), read each other's records, be a rank asleep, stopped
 * or dead; those of other machines are asked by small messages once a wait has lasted a while, and
 * a neighbour answers for one that is stopped. Where the late rank itself waits for another, the
 * text follows that to its end. In the good case this sends nothing and costs less than 0.1 us an
 * operation. */

/* Local. A wait of comm may last that long without anything moving on it and without progress of
 * those that it waits for; 0, as at first: for ever. Progress is an operation called or ended in
 * any group, and ls_progress; waiting for a rank that makes progress
 * counts as progress. Time in which the
 * waiting rank itself did not run does not count. A split inherits. All
 * ranks should set the same; a rank that does longer work than this without ls_progress is late.
 * After a timeout over MPI the communicator is of no use; over threads that one operation has
 * failed, for who comes to it later too. Unwind, ls_comm_free, and end: over MPI by ls_mpi_abort,
 * or with a status that is not 0 (ls_mpi_finish then leaves MPI as it is). ls_test does not time
 * out. */
void ls_comm_set_timeout(struct ls_comm *comm, double seconds);
/* Local. What texts call the group: "tp". Copied, LS_COMM_NAME_MAX bytes at most; all ranks should
 * give the same. At first "world", after a split "group". */
void ls_comm_set_name(struct ls_comm *comm, const char *name);
/* Local. What the operations that follow on comm move, for texts: a tensor's name. Borrowed until
 * they have ended; NULL for none. Costs nothing. */
void ls_comm_label(struct ls_comm *comm, const char *label);
struct ls_trace;
/* Local. Each operation of comm on this rank, but in a group of one, and each wait for one becomes
 * an event of trace (lockstep/trace.h), which is borrowed; NULL: no more. With nothing pending. A
 * split does not inherit it. LS_ENOMEM. */
int ls_comm_set_trace(struct ls_comm *comm, struct ls_trace *trace, struct ls_error *error);
/* Local. Writes a line for each operation in the records of all ranks of the world (not only of the
 * group) that can be read, by rank, oldest first. */
void ls_comm_dump(struct ls_comm *comm, FILE *file);
/* Local. True for the first caller among the ranks of the world that share memory: that it may be
 * one rank that prints what all would. */
bool ls_comm_dump_claim(struct ls_comm *comm);
/* Local. Ends all processes of the MPI job, this one with exit_code, which the launcher returns.
 * Returns only where MPI does not run. Flush what was printed before. */
void ls_mpi_abort(int exit_code);
/* Local. Tells all other processes of the MPI job that this one does not go on with what all do
 * together: a wait for it fails there with LS_ECOMM and that text. Waits until all others have told
 * the same. True if they did within so many seconds, each with whole: it can still do what they
 * begin together from here on. Otherwise exit without ls_mpi_finish, which does nothing then. */
bool ls_mpi_part(const char *why, bool whole, double seconds);

/* ---- operations: all Collective over the group, except send and recv ------------------------- */
/* count is elements, any int64 (transports cut it where their own counts are narrower).
 * n = group size, r = this rank. In-place where said. */

/* What operations are counted as. LS_COMM_OTHER: barriers, and the words by which ranks agree,
 * split, and make integer and exact sums. LS_COMM_SEND also counts receives, as operations. */
enum ls_comm_kind {
    LS_COMM_ALL_REDUCE, /* sums and maxima */
    LS_COMM_REDUCE_SCATTER,
    LS_COMM_ALL_GATHER,
    LS_COMM_ALL_TO_ALL,
    LS_COMM_BROADCAST,
    LS_COMM_SEND,
    LS_COMM_OTHER,
    LS_COMM_KINDS
};
/* "all_reduce" and so on. */
const char *ls_comm_kind_name(enum ls_comm_kind kind);

/* What this rank's operations moved and took, since the communicator was made. */
struct ls_comm_stats {
    /* Bytes this rank handed over. With n ranks and b = count elements in bytes: all_reduce
     * b - own + own (n-1), where own is its share of the buffer (b/n: in all 2 b (n-1)/n; the first
     * count % n ranks own one element more); reduce_scatter, all_gather and all_to_all b (n-1),
     * where b of reduce_scatter_bf16 is 2 count; broadcast b (n-1) at the root; send b. */
    int64_t sent_bytes;
    double wait_s; /* seconds the caller spent inside waits and blocking calls */
    int64_t operations;
    struct {
        int64_t sent_bytes, operations;
    } kind[LS_COMM_KINDS]; /* the same, apart; they add up to the above */
};
void ls_comm_get_stats(const struct ls_comm *comm, struct ls_comm_stats *stats);

/* A request is a small value the caller keeps. Where it is NULL, the operation is done when its
 * start returns. Where it is LS_QUEUED, its wait is submitted with it: what is submitted behind it
 * comes after its end, and the host does not wait. */
struct ls_request {
    struct ls_comm *comm;
    uint64_t ticket; /* 0: nothing pending */
};
extern struct ls_request ls_request_queued; /* only its address is used */
#define LS_QUEUED (&ls_request_queued)

/* Each call site is recorded for error texts. */
struct ls_call_site {
    const char *file;
    int line;
};
#define LS_HERE ((struct ls_call_site){__FILE__, __LINE__})

/* buffer[count] float32 becomes the tree sum over ranks, in place. */
int ls_all_reduce_start(struct ls_comm *comm, float *buffer, int64_t count,
                        struct ls_request *request, struct ls_call_site site,
                        struct ls_error *error);
/* buffer[count] become the greatest over ranks, in place. NaN wins, +0 is above -0: no order. */
int ls_all_reduce_max_f32_start(struct ls_comm *comm, float *buffer, int64_t count,
                                struct ls_request *request, struct ls_call_site site,
                                struct ls_error *error);
/* input[n * count]; output[count] = the tree sum over ranks of input's block r. Not in place. */
int ls_reduce_scatter_start(struct ls_comm *comm, const float *input, float *output, int64_t count,
                            struct ls_request *request, struct ls_call_site site,
                            struct ls_error *error);
/* The same with half the bytes: each rank's contribution (its own too) is rounded to bf16, and what
 * came is added in float32 by the tree. For numerics.mode fast only: how often a value is rounded
 * depends on how the group is cut, so the bits do. */
int ls_reduce_scatter_bf16_start(struct ls_comm *comm, const float *input, float *output,
                                 int64_t count, struct ls_request *request,
                                 struct ls_call_site site, struct ls_error *error);
/* Sums of leaves that ranks hold, as the law of sums has them (S3): `inner` neighbours (a divisor
 * of the group's size) each hold a part of one leaf, which is the tree over them; leaves are added
 * one after the other, in the order of ranks, with `onto` to what output holds before. */
struct ls_comm_leaves {
    int inner;
    bool onto;
};
/* input[count]; output[count], which has the same content on all ranks. In place where input is
 * output, which `onto` excludes. */
int ls_all_reduce_leaves_start(struct ls_comm *comm, const float *input, float *output,
                               int64_t count, struct ls_comm_leaves leaves,
                               struct ls_request *request, struct ls_call_site site,
                               struct ls_error *error);
/* input[n * count]; output[count], block r of the sum. Not in place. */
int ls_reduce_scatter_leaves_start(struct ls_comm *comm, const float *input, float *output,
                                   int64_t count, struct ls_comm_leaves leaves,
                                   struct ls_request *request, struct ls_call_site site,
                                   struct ls_error *error);
/* input[count]; output[n * count], block i from rank i. input may be output + r * count. */
int ls_all_gather_start(struct ls_comm *comm, const void *input, void *output, int64_t count,
                        enum ls_dtype dtype, struct ls_request *request, struct ls_call_site site,
                        struct ls_error *error);
/* input[n * count], block i goes to rank i; output[n * count], block i came from rank i. */
int ls_all_to_all_start(struct ls_comm *comm, const void *input, void *output, int64_t count,
                        enum ls_dtype dtype, struct ls_request *request, struct ls_call_site site,
                        struct ls_error *error);
/* buffer[count] of root to all. */
int ls_broadcast_start(struct ls_comm *comm, void *buffer, int64_t count, enum ls_dtype dtype,
                       int root, struct ls_request *request, struct ls_call_site site,
                       struct ls_error *error);
/* Point to point; matched by (peer, tag) in the order of calls, 0 <= tag <= LS_COMM_TAG_MAX. A send
 * may wait for its recv. Different lengths are LS_ECOMM: on both ranks over threads, where it is
 * received over MPI. */
int ls_send_start(struct ls_comm *comm, const void *buffer, int64_t count, enum ls_dtype dtype,
                  int peer, int tag, struct ls_request *request, struct ls_call_site site,
                  struct ls_error *error);
int ls_recv_start(struct ls_comm *comm, void *buffer, int64_t count, enum ls_dtype dtype, int peer,
                  int tag, struct ls_request *request, struct ls_call_site site,
                  struct ls_error *error);
/* What is submitted behind it comes after the operation's end; the request is then empty. An empty
 * request is LS_OK at once. */
int ls_wait(struct ls_request *request, struct ls_error *error);
/* Local. True if ls_wait would not block; false as long as its queue runs commands late. */
bool ls_test(struct ls_request *request);

/* An operation, apart from where it reads and writes. */
struct ls_operation {
    const char *name; /* "all_reduce", "all_reduce_max", "send", "recv", ... */
    enum ls_comm_kind kind;
    enum ls_dtype dtype; /* as it travels: BF16 of a reduce_scatter_bf16 */
    int64_t count;
    bool receive;
    int peer, tag;     /* of a message; peer also the root of a broadcast, else -1 */
    const char *label; /* what the caller said it moves, NULL: nothing */
    struct ls_call_site site;
};

/* Local. Bytes that rank of a group of n hands over in it (struct ls_comm_stats); 0 for
 * LS_COMM_OTHER. */
int64_t ls_operation_bytes(const struct ls_operation *operation, int64_t n, int64_t rank);

/* What a command of a communicator says, for who watches its queue. */
struct ls_comm_told {
    struct ls_request request; /* which is started, or waited for; ticket 0: both */
    bool waits;                /* a wait: nothing is said of the operation */
    struct ls_operation operation;
};
/* Local. False: the command is none of a communicator. */
bool ls_comm_command(const struct ls_command *command, struct ls_comm_told *out);

/* Blocking forms. */
#define ls_all_reduce(comm, buffer, count, error)                                                  \
    ls_all_reduce_start(comm, buffer, count, NULL, LS_HERE, error)
#define ls_reduce_scatter(comm, input, output, count, error)                                       \
    ls_reduce_scatter_start(comm, input, output, count, NULL, LS_HERE, error)
#define ls_reduce_scatter_bf16(comm, input, output, count, error)                                  \
    ls_reduce_scatter_bf16_start(comm, input, output, count, NULL, LS_HERE, error)
#define ls_all_reduce_max_f32(comm, buffer, count, error)                                          \
    ls_all_reduce_max_f32_start(comm, buffer, count, NULL, LS_HERE, error)
#define ls_all_gather(comm, input, output, count, dtype, error)                                    \
    ls_all_gather_start(comm, input, output, count, dtype, NULL, LS_HERE, error)
#define ls_all_to_all(comm, input, output, count, dtype, error)                                    \
    ls_all_to_all_start(comm, input, output, count, dtype, NULL, LS_HERE, error)
#define ls_broadcast(comm, buffer, count, dtype, root, error)                                      \
    ls_broadcast_start(comm, buffer, count, dtype, root, NULL, LS_HERE, error)
#define ls_send(comm, buffer, count, dtype, peer, tag, error)                                      \
    ls_send_start(comm, buffer, count, dtype, peer, tag, NULL, LS_HERE, error)
#define ls_recv(comm, buffer, count, dtype, peer, tag, error)                                      \
    ls_recv_start(comm, buffer, count, dtype, peer, tag, NULL, LS_HERE, error)
#define ls_barrier(comm, error) ls_barrier_at(comm, LS_HERE, error)

int ls_barrier_at(struct ls_comm *comm, struct ls_call_site site, struct ls_error *error);

/* Collective. Every rank brings its own status (and text in *error where it failed); all return the
 * status of the lowest failing rank, and its text behind "rank N: " if they did not fail alike.
 * Call it after a step that may fail locally and before the next collective: peers never hang on
 * it. */
int ls_comm_agree(struct ls_comm *comm, int status, struct ls_error *error);
/* Collective. Integer and exact sums: any order gives the same. value[count] in place. */
int ls_all_reduce_u64(struct ls_comm *comm, uint64_t *value, int64_t count, struct ls_error *error);
int ls_all_reduce_exact(struct ls_comm *comm, struct ls_exact_sum *sum, struct ls_error *error);
/* Collective. *value becomes the maximum over ranks. */
int ls_all_reduce_max(struct ls_comm *comm, int64_t *value, struct ls_error *error);
/* Collective. first[size]: of each rank the first rank of the world on its machine. */
int ls_comm_machines(struct ls_comm *comm, int64_t *first, struct ls_error *error);

LS_C_END
#endif
