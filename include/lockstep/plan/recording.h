/* lockstep/plan/recording.h - what a rank submits to its queue, written down.
 *
 *   ls_recording_init(&recording)
 *   struct ls_queue_watch watch = ls_recording_watch(&recording);   queue->watch = &watch
 *   ls_comm_set_queue(comm, queue)
 *   ls_recording_group(&recording, comm, group)      for each that shall be written down
 *   ... operations, ops, transfers ...
 *   recording.list[0 .. recording.count)
 *   ls_recording_release(&recording)
 *
 * Starts, waits and works are numbered as they come: that number is their `at`.
 *
 * Any transport can be written down. Over ls_comm_alone_new nothing moves: a rank of a world that
 * does not exist runs alone, and what it would do in that world is in its recording. */
#ifndef LOCKSTEP_PLAN_RECORDING_H
#define LOCKSTEP_PLAN_RECORDING_H

#include <lockstep/comm.h>
#include <lockstep/device/tier.h>
#include <lockstep/ops.h>
#include <lockstep/plan/groups.h>

LS_C_BEGIN

enum { LS_RECORDED_PENDING = -1 };

/* One operation, in the order in which they were started. Texts live as long as the recording. */
struct ls_recorded {
    int group; /* what ls_recording_group called its communicator */
    struct ls_operation operation;
    /* How many operations were started before this one was waited for: its own number plus one
     * where the caller waited at once, LS_RECORDED_PENDING where it has not yet. */
    int64_t until;
    int64_t started_at, waited_at; /* LS_RECORDED_PENDING: not yet */
};

/* A command that ran: what it computed is works[work]. */
struct ls_recorded_work {
    int32_t work;
    enum ls_work_pass pass;
    int64_t at;
};

/* A transfer to or from a memory tier. */
struct ls_recorded_transfer {
    enum ls_tier_kind kind;
    bool writes;
    size_t bytes;
    int64_t started_at, waited_at;
};

/* What was started and not yet waited for: of a communicator or a tier. */
struct ls_recorded_pending {
    const void *of;
    uint64_t ticket;
    int64_t number; /* in its list */
};

/* A block of memory that recorded commands have their operands in: where one lies is its offset in
 * it. The block itself may be gone. */
struct ls_recorded_memory {
    const void *base;
    size_t bytes;
};
enum { LS_RECORDED_MEMORIES = 2 };

struct ls_recording {
    struct ls_recorded_memory memories[LS_RECORDED_MEMORIES]; /* set by whoever owns them */
    const struct ls_comm *groups[LS_GROUPS];
    struct ls_recorded_pending *pending;
    int64_t pending_count, pending_room;
    struct ls_recorded *list;
    int64_t count, room;
    int64_t clock;    /* of what comes next: its `at` */
    bool wants_works; /* and transfers; set before */
    struct ls_recorded_work *done;
    int64_t done_count, done_room;
    struct ls_command_list *commands; /* borrowed: gets the command of each in done; NULL: none */
    struct ls_recorded_transfer *transfers;
    int64_t transfers_count, transfers_room;
    struct ls_work *works; /* each once */
    int32_t *works_table;  /* an open table of them, index + 1; its room is a power of two */
    int32_t *works_after;  /* of each the one that came behind it when it came last, index + 1 */
    int32_t works_count, works_room, works_last; /* works_last: of the last, index + 1 */
    bool incomplete;                             /* there was no memory to write something down */
    char **texts; /* an open table of those that entries point to; texts_room is a power of two */
    int64_t texts_count, texts_room;
};

/* Local. */
void ls_recording_init(struct ls_recording *recording);
void ls_recording_release(struct ls_recording *recording);
/* Local. What appends to recording, which is borrowed, the commands of each queue that it watches:
 * operations of the communicators that ls_recording_group names, and, where it wants works, what
 * ops compute and what tiers move. If there is no memory for it, recording->incomplete is set. */
struct ls_queue_watch ls_recording_watch(struct ls_recording *recording);
/* Local. The operations of comm are written down as those of `group`, a number below LS_GROUPS; a
 * group of one has none. */
void ls_recording_group(struct ls_recording *recording, const struct ls_comm *comm, int group);

LS_C_END
#endif
