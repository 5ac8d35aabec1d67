/* The MPI transport. All MPI calls of the process go through one engine, under its lock, so that
 * MPI_THREAD_SERIALIZED suffices. Who waits drives the engine itself; a progress thread, started
 * with the first non-blocking operation, drives it while nobody waits and something is pending, and
 * sleeps with growing pauses when nothing moves. */
#ifndef COMM_MPI_H
#define COMM_MPI_H

#include "comm/flight.h"
#include "comm/rounds.h"

#include <mpi.h>

/* Rounds of one operation in flight: many, so that a rank whose peer has lost its core goes on with
 * what the peer posted before. Of these, rounds that receive what is to be added: few, so that
 * scratch stays in the cache. Operations of one communicator that have rounds in flight: the others
 * wait their turn, in the order of calls, which is the same on every rank. */
enum { MPI_LANES = 16, MPI_SCRATCHES = 3, MPI_ACTIVE = 2, MPI_PARTS = 4 };

/* A round in flight. */
struct mpi_lane {
    bool busy;
    bool lacks_scratch; /* its receives are not posted yet */
    int64_t round;
    int phase, requests_count;
    MPI_Request *requests; /* [2 (n - 1)] */
    int *peers;            /* [2 (n - 1)] of the requests; ~peer for a send */
    int scratch;           /* index of the slot's, if it has one */
    const void **inputs;   /* [n] */
};

/* A call as it travels to the other ranks for the check. */
struct mpi_call_wire {
    int64_t count;
    int32_t op, dtype, peer, line, inner, onto;
    char file[88];
};

enum mpi_stage { MPI_QUEUED, MPI_CHECKING, MPI_MOVING };

struct mpi_op {
    struct mpi_op *next; /* in one list of its communicator */
    struct comm_call call;
    struct comm_rounds rounds;
    enum mpi_stage stage;
    atomic_bool over; /* then status and text are final */
    int status;
    /* Of send and recv. */
    int parts_count;
    MPI_Request *parts, few_parts[MPI_PARTS];
    char text[720];
};

struct mpi_slot {
    struct mpi_op *op;
    struct mpi_lane lanes[MPI_LANES];
    struct mpi_call_wire *calls; /* [n] */
    MPI_Status *statuses;        /* [2 (n - 1)], not looked at: MPICH's way to ignore them does not
                                    pass gcc's bounds warnings */
    char *scratch;               /* MPI_SCRATCHES of them; NULL until a sum needs it */
    bool scratch_taken[MPI_SCRATCHES];
};

struct mpi_comm {
    struct ls_comm base;
    struct mpi_comm *next; /* in the engine's list */
    struct ls_ops ops;     /* adds */
    MPI_Comm group, pairs; /* pairs: send and recv, so that their tags are the caller's */
    int tag_max;
    int *world_ranks; /* [n] */
    bool *missing;    /* [n] of comm_mpi_look: who owes a message */
    uint64_t moves;   /* how often something moved */
    int unfinished;   /* operations that are not over */
    struct mpi_op *queue, *sends, *spare;
    struct mpi_slot slots[MPI_ACTIVE];
    bool broken;
    enum ls_error_cause broken_cause;
    char broken_text[720];
};

/* mpi.c. Collective over comm, while communicators are made: if a rank failed, a failure on all,
 * with a text that names it on those that did not. */
int comm_mpi_agree(MPI_Comm comm, int status, struct ls_error *error);
/* Local. code: of the MPI call that makes a communicator. */
int comm_mpi_made(int code, struct ls_error *error);

/* mpi_op.c. The engine's lock is held. */
int comm_mpi_resources_new(struct mpi_comm *comm, struct ls_error *error);
void comm_mpi_resources_free(struct mpi_comm *comm);
int comm_mpi_post(struct mpi_comm *comm, const struct comm_call *call, struct mpi_op **out,
                  struct ls_error *error);
void comm_mpi_retire(struct mpi_comm *comm, struct mpi_op *op);
/* Does what can be done without blocking; true if something moved. */
bool comm_mpi_advance(struct mpi_comm *comm);
/* The operation is not over. Where the wait's time is (false), all that is pending on the
 * communicator fails with a text that names who is late. */
bool comm_mpi_look(struct mpi_comm *comm, const struct mpi_op *op, struct flight_wait *wait,
                   double now_s);
/* A rank that has ended, where others live on: of those in among[n], or of all (NULL); -1: none. */
int comm_mpi_ended(const struct mpi_comm *comm, const bool *among);
/* Fails all that is pending on the communicator, for that reason. drops: no message that begins
 * to arrive later is written to its buffers, for which MPI is called. */
void comm_mpi_give_up(struct mpi_comm *comm, bool drops, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* mpi_farewell.c: who left the job while others go on. */
struct mpi_farewell {
    struct {
        int32_t whole; /* it would still do what all do together */
        char why[500];
    } said;
    int times;      /* that it has said so */
    double heard_s; /* when it did last */
};
struct mpi_farewells {
    bool opened;
    bool apart; /* all have said so, and not all whole: nobody may listen any more */
    MPI_Comm comm;
    int rank, size, together;  /* how often all have said so, all whole: that is forgotten */
    struct mpi_farewell *from; /* [size] */
    MPI_Request *sends;        /* [size] */
    __typeof__(((struct mpi_farewell *)0)->said) own;
};
/* Collective over all processes. */
int comm_mpi_farewells_new(struct mpi_farewells *f, struct ls_error *error);
void comm_mpi_farewells_free(struct mpi_farewells *f);
/* What has come. */
void comm_mpi_farewells_take(struct mpi_farewells *f, double now_s);
void comm_mpi_farewells_send(struct mpi_farewells *f, const char *why, bool whole);
/* After sending: whether all others have said so too, and have got what was sent. */
bool comm_mpi_farewells_all(struct mpi_farewells *f, bool *whole);
/* Why the first of these ranks of the world left, if it said so before then; NULL: none has. */
const char *comm_mpi_farewells_of(const struct mpi_farewells *f, const int *ranks, int count,
                                  double before_s, int *rank);

/* mpi_board.c: flight records that the processes of one machine share. */
struct mpi_board {
    struct flight_board base;
    MPI_Win window;
    bool shared;    /* there is a window */
    bool in_window; /* the records lie there */
};
/* Collective over all processes; the records of ranks elsewhere stay NULL. *shares_cores: more
 * ranks on this machine than cores that they may use. */
int comm_mpi_board_new(struct mpi_board *board, bool *shares_cores, struct ls_error *error);
/* Collective over all processes. */
void comm_mpi_board_free(struct mpi_board *board);

#endif
