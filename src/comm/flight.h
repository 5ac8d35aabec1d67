/* The flight record: the last operations of each rank, readable by its peers while it computes,
 * sleeps, is stopped or has died. No locks: a rank writes its own record, word by word, under a
 * version that a reader checks before and after. It may lie in memory that processes share, so it
 * holds no pointers. */
#ifndef COMM_FLIGHT_H
#define COMM_FLIGHT_H

#include "comm/internal.h"

#include <stdatomic.h>

enum flight_state {
    FLIGHT_PENDING, /* started, nobody waits for it yet */
    FLIGHT_WAITING,
    FLIGHT_DONE,
    FLIGHT_FAILED
};

/* As one operation is told. Strings are cut to fit and terminated. */
struct flight_entry {
    uint64_t group; /* id of the communicator */
    uint64_t sequence;
    int64_t count;
    double started_s, changed_s; /* ls_now_s of the start and of the last change of state */
    int32_t op, dtype, peer, tag, line, state;
    int32_t peer_world; /* the peer of a send or recv, as rank of the world */
    char name[LS_COMM_NAME_MAX + 1], label[52], file[48];
};

enum { FLIGHT_WORDS = sizeof(struct flight_entry) / sizeof(uint64_t) };
_Static_assert(sizeof(struct flight_entry) % sizeof(uint64_t) == 0, "an entry is whole words");

struct flight_slot {
    atomic_ullong version; /* 2 i + 1 while entry i is written, 2 i + 2 when it is whole */
    atomic_ullong words[FLIGHT_WORDS];
};

struct flight_record {
    struct ls_progress progress; /* of the rank, or of whom it waits for */
    atomic_ullong count;         /* entries begun so far; entry i lies in slot i % LS_COMM_FLIGHT */
    atomic_int pid;
    atomic_int claimed; /* ls_comm_dump_claim, in the first record */
    /* 0; of a copy, as its machine told: 1 + enum flight_process, and 1 + whom it waits for. */
    atomic_int told, awaits;
    atomic_int left; /* 0; or 1 + the rank of the world for which this one left (ls_comm_leave) */
    struct flight_slot slots[LS_COMM_FLIGHT];
};

/* What the system does with a rank's process. */
enum flight_process { FLIGHT_RUNS, FLIGHT_STOPPED, FLIGHT_ENDED };

struct inquirer;

/* What ranks know of each other: by rank of the world. Where memory is not shared: NULL, or a copy
 * of what was answered (comm/inquire.h). */
struct flight_board {
    int count, machine_ranks;       /* in all; on this machine */
    int core_ranks;                 /* of these, on cores of this rank's */
    struct inquirer *inquirer;      /* NULL if all ranks are on one machine, or cannot ask */
    struct flight_record **records; /* [count] */
    bool *here;                     /* [count]: on this machine; NULL: all are */
    atomic_int *claimed;            /* for those that share memory */
};

/* The calling thread's progress (ls_progress) is that of the record's rank, unless it is another's
 * already. */
void flight_progress_begin(struct flight_record *record);
/* And no more: the record may go. */
void flight_progress_end(struct flight_record *record);
/* Records an operation as started, and waited for if it blocks; returns its index. */
uint64_t flight_start(struct ls_comm *comm, const struct comm_call *call, double now_s);
/* Entry index of the record, by its only writer. */
void flight_write(struct flight_record *record, uint64_t index, const struct flight_entry *entry);
/* Nothing if the entry was overwritten since. */
void flight_change(struct ls_comm *comm, uint64_t index, enum flight_state state, double now_s);
/* False if the entry is not there any more, or is being written. */
bool flight_read(struct flight_record *record, uint64_t index, struct flight_entry *entry);
enum flight_process flight_process_of(struct flight_record *record);
/* Whether the process of that rank of comm has ended. */
bool flight_ended(const struct ls_comm *comm, int rank);
/* What tells most in few words: the operation that the rank waits in, its last collective of the
 * group, and its last ones. Returns how many. */
struct flight_picked {
    uint64_t index;
    struct flight_entry entry;
};
int flight_pick(struct flight_record *record, uint64_t group, struct flight_picked *out, int room);
/* The rank of the world that a rank waits for, or did in vain, in the operation *at, as far as
 * records tell; else -1. One that is stopped or dead waits for nobody, whatever it was in. */
int flight_waits_for(const struct flight_board *board, int rank, struct flight_entry *at);
/* Whether an entry that came from elsewhere may be used; its texts are terminated. */
bool flight_entry_valid(struct flight_entry *entry, int world);
/* Whether the rank is known to have started that operation of the group. */
bool flight_has_started(struct flight_record *record, uint64_t group, const struct comm_call *call);

/* Ranks of the group that a wait is for. */
struct flight_late {
    int count;         /* of all */
    int rank[2];       /* the first of them */
    bool known;        /* progress_s is */
    double progress_s; /* when the one that has stood longest last got on, a time of ls_now_s */
};
void flight_late_add(struct flight_late *late, const struct ls_comm *comm, int rank);

/* How long a wait of comm may last without progress. */
static inline double flight_limit_s(const struct ls_comm *comm)
{
    return comm->timeout_s > 0 ? comm->timeout_s : __builtin_inf();
}

/* A wait that may fail: it does when for that time nothing has moved for it, nor has one of those
 * that it waits for got on. Time in which this rank itself did not run (it was stopped, or had no
 * core: it looks much later than look_s) does not count. Who waits for a rank that gets on does so
 * too: its own record takes over that progress, for those that wait for it. */
struct flight_wait {
    double begin_s; /* when there was progress last */
    double look_s;  /* when to look again */
    double seen_s;  /* when this rank ran last, as far as it says */
};
void flight_wait_begin(struct flight_wait *wait, const struct ls_comm *comm, double now_s);
/* Of a wait that polls, at each turn: of the time since the last one no more counts than a turn may
 * take. Where ranks share cores with many others, a limit of seconds is one of their own time. */
void flight_wait_seen(struct flight_wait *wait, double now_s);
/* Something moved. */
void flight_wait_moved(struct flight_wait *wait, const struct ls_comm *comm, double now_s);
/* False if the time is over. late: as things are now. */
bool flight_wait_look(struct flight_wait *wait, const struct ls_comm *comm,
                      const struct flight_late *late, double now_s);
/* "timed out after 0.50 s at #17 of tp (4 ranks); late: rank 2: it ..." */
void flight_late_text(const struct ls_comm *comm, const struct comm_call *call, double waited_s,
                      const struct flight_late *late, char *text, size_t bytes);
/* What that says. */
enum ls_error_cause flight_late_cause(const struct flight_late *late);

#endif
