/* lockstep/comm/recording.h - what a rank did, written down, and a transport that does nothing
 * else.
 *
 *   ls_recording_init(&recording)
 *   ls_comm_set_recording(comm, &recording, group)   for each that shall be written down
 *   ... operations ...
 *   recording.list[0 .. recording.count)
 *   ls_recording_release(&recording)
 *
 * What the rank computes in between is written down too, where its ops are watched:
 *
 *   struct ls_ops_watch watch = ls_recording_watch(&recording);   ops->watch = &watch
 *
 * Starts, waits and works are numbered as they come: that number is their `at`.
 *
 * Any transport can be written down. Over ls_comm_alone_new nothing moves: a rank of a world that
 * does not exist runs alone, and what it would do in that world is in its recording.
 */
#ifndef LOCKSTEP_COMM_RECORDING_H
#define LOCKSTEP_COMM_RECORDING_H

#include <lockstep/comm.h>
#include <lockstep/device/tier.h>
#include <lockstep/ops.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { LS_RECORDED_PENDING = -1 };

/* One operation, in the order in which they were started. Texts live as long as the recording. */
struct ls_recorded {
    int group;             /* what ls_comm_set_recording called its communicator */
    const char *operation; /* "all_reduce", "all_reduce_max", "send", "recv", ... */
    enum ls_comm_kind kind;
    enum ls_dtype dtype; /* as it travels: BF16 of a reduce_scatter_bf16 */
    int64_t count;
    bool receive;
    int peer, tag;     /* of a message; peer also the root of a broadcast, else -1 */
    const char *label; /* what the caller said it moves, NULL: nothing */
    struct ls_call_site site;
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

struct ls_recording {
    struct ls_recorded *list;
    int64_t count, room;
    int64_t clock;    /* of what comes next: its `at` */
    bool wants_works; /* whoever has ops lets them be watched; set before */
    struct ls_recorded_work *done;
    int64_t done_count, done_room;
    struct ls_command_list *commands; /* borrowed: gets the command of each in done; NULL: none */
    struct ls_recorded_transfer *transfers;
    int64_t transfers_count, transfers_room;
    struct ls_work *works; /* each once */
    int32_t *works_table;  /* an open table of them, index + 1; its room is a power of two */
    int32_t *works_after;  /* of each the one that came behind it when it came last, index + 1 */
    int32_t works_count, works_room, works_last; /* works_last: of the last, index + 1 */
    bool incomplete;                             /* there was no memory to write down a work */
    char **texts; /* an open table of those that entries point to; texts_room is a power of two */
    int64_t texts_count, texts_room;
};

/* Local. */
void ls_recording_init(struct ls_recording *recording);
void ls_recording_release(struct ls_recording *recording);
/* Local. What appends to recording, which is borrowed, each op of a struct ls_ops that it watches.
 * Where there is no memory for it, recording->incomplete is set. */
struct ls_ops_watch ls_recording_watch(struct ls_recording *recording);
/* Local. The same of tiers that go through the motions (ls_tier_idle_new). */
struct ls_tier_watch ls_recording_tier_watch(struct ls_recording *recording);
/* Local. Each operation that comm starts on this rank, but in a group of one, is appended to
 * recording, which is borrowed and may be that of several communicators, each with its number
 * `group`; NULL: no more, with nothing pending that was recorded. A split does not inherit it. An
 * operation for which there is no memory is LS_ENOMEM. */
void ls_comm_set_recording(struct ls_comm *comm, struct ls_recording *recording, int group);

/* Local. Rank `rank` of a world of `size`, of which no other rank exists. Nothing moves, and no
 * buffer is read or written: waits return at once, ls_test is false, and where ranks tell each
 * other words (ls_comm_agree, integer and exact sums, maxima) this one hears only itself. Groups
 * come from ls_comm_group; ls_comm_split is LS_ENOTSUP. */
int ls_comm_alone_new(int rank, int size, struct ls_comm **out, struct ls_error *error);

#ifdef __cplusplus
}
#endif
#endif
