/* lockstep/device/tier.h - memory tiers: room for what a rank's device memory does not hold.
 *
 *   struct ls_tier *tier;
 *   struct ls_transfer out = {0}, in = {0};
 *   ls_tier_new(&options, &tier, error)
 *   ls_tier_write(tier, offset, device, bytes, &out, error)    starts; the caller computes
 *   ls_tier_read(tier, offset, device, bytes, &in, error)      starts behind it, as it must
 *   ls_transfer_wait(&out, error), ls_transfer_wait(&in, error)
 *   ls_tier_free(tier)
 *
 * A tier is one range of bytes, in ordinary memory (host) or in a file on a local disk (file).
 * Transfers between device memory and the tier run beside the thread that starts them. On a CPU
 * device memory is the arena (struct ls_arena). One thread at a time uses a tier. Everything here
 * is Local.
 *
 * Order: transfers take effect as if each ended before the next began. Those that have nothing in
 * common run side by side. So a read that is started after a write of the same range gives what was
 * written, and memory that a write still reads may be named as the target of the next read. */
#ifndef LOCKSTEP_DEVICE_TIER_H
#define LOCKSTEP_DEVICE_TIER_H

#include <lockstep/base/file.h>
#include <lockstep/device/queue.h>

LS_C_BEGIN

enum ls_tier_kind {
    LS_TIER_DEVICE, /* the device's own memory: nothing moves, there is no struct ls_tier */
    LS_TIER_HOST,
    LS_TIER_FILE,
    LS_TIER_KINDS
};
/* "none", "host", "file". */
const char *ls_tier_name(enum ls_tier_kind kind);

/* Device addresses and offsets of transfers are multiples of it, in bytes
 * (ls_arena_take_aligned, ls_tier_room_take). */
enum { LS_TIER_ALIGN = 4096 };

/* ---- offsets -------------------------------------------------------------------------------- */

/* Where things lie in a tier, counted before there is one; begins as {0}. */
struct ls_tier_room {
    size_t used; /* bytes so far: what the tier needs */
};
/* The offset of the next bytes, front to back. Each piece ends at a multiple of LS_TIER_ALIGN. An
 * overflow is a broken invariant and aborts. */
size_t ls_tier_room_take(struct ls_tier_room *room, size_t bytes);

/* ---- a tier --------------------------------------------------------------------------------- */

struct ls_tier;
struct ls_tier_options {
    enum ls_tier_kind kind; /* LS_TIER_HOST or LS_TIER_FILE */
    size_t bytes;           /* room, more than 0 */
    /* Of LS_TIER_FILE: the tier lies in FOLDER/rank-00003.offload/data, beside the lock that says
     * who uses it. FOLDER is made where only its last name is absent. */
    const char *folder; /* borrowed for the call */
    int rank;
    /* Threads that read and write take the place of io_uring. They do anyway where the system
     * does not allow io_uring, or the environment says LOCKSTEP_IO_URING=0. */
    bool threads;
    /* May be NULL; borrowed. Calls: "mkdir", "open", "flock", "fcntl", "fallocate",
     * "io_uring_setup", and "read" and "write" for each piece of a transfer, from threads of the
     * tier, one at a time. */
    const struct ls_fault *fault;
};

/* A tier that goes through the motions: takes no room and moves nothing. Waits return at once.
 * LS_ENOMEM. */
int ls_tier_idle_new(enum ls_tier_kind kind, size_t bytes, struct ls_tier **out,
                     struct ls_error *error);

/* Takes the room: host memory from the system, zeroed; a file's blocks from its file system, so
 * that a full disk is refused here. What was never written reads as zeros. LS_EBUSY: another
 * process, or another tier of this one, uses the file; the text names it. What a process that was
 * killed left behind is taken over. LS_ENOSPC: the disk has less room; the text has both figures.
 * LS_EIO: the folder cannot be made or written. LS_ENOMEM. LS_EINVAL: options contradict. A failed
 * start leaves nothing behind. */
int ls_tier_new(const struct ls_tier_options *options, struct ls_tier **out,
                struct ls_error *error);
/* Waits for what moves, then gives the room back and removes the file and what was made for it.
 * Pending transfers become invalid. NULL is allowed. */
void ls_tier_free(struct ls_tier *tier);
/* Removes from the folder what tiers of killed processes of this host left there, of any rank: what
 * a process that runs holds stays. One process of a host calls it, before the others open theirs.
 * Returns how many tiers went. */
int ls_tier_sweep(const char *folder);
/* How it moves bytes, for people: "host memory", "FOLDER/rank-00003.offload/data (O_DIRECT,
 * io_uring)", or with "buffered" and "threads" in place of these, and why. Borrowed. */
const char *ls_tier_text(const struct ls_tier *tier);

/* Whether the system lets this process use io_uring; containers often forbid it. *error says why
 * not (NULL is allowed). False also with LOCKSTEP_IO_URING=0 in the environment. */
bool ls_io_uring_allowed(struct ls_error *error);

/* ---- transfers ------------------------------------------------------------------------------ */

/* A transfer that is under way: a small value that the caller keeps. One of zeros is none. */
struct ls_transfer {
    struct ls_tier *tier; /* NULL: none */
    uint64_t ticket;
};

/* Starts and waits are commands. queue, which is borrowed, is what they are submitted to: a start
 * comes after what was submitted before it, and what is submitted behind a wait comes after the
 * transfer's end. NULL, as at first: they run at once. With no transfer under way. */
void ls_tier_set_queue(struct ls_tier *tier, struct ls_queue *queue);
/* What a command of a tier says; false: it is none. */
struct ls_tier_told {
    struct ls_transfer transfer; /* which is started, or waited for */
    enum ls_tier_kind kind;
    bool waits;
    bool writes; /* of a start, and bytes as they were asked for */
    size_t bytes;
};
bool ls_tier_command(const struct ls_command *command, struct ls_tier_told *out);

/* Starts to move bytes (0 allowed: nothing moves) from the device to the tier, or back. *transfer
 * is none before the call. The tier may move up to the next multiple of LS_TIER_ALIGN: tier and
 * device memory have that room, and nobody else uses it. Until the transfer was waited for, the
 * device memory of a write is not to be changed, and that of a read not to be touched.
 * LS_EINVAL: an address or offset that is not aligned, or past the end of the tier. */
int ls_tier_write(struct ls_tier *tier, size_t offset, const void *device, size_t bytes,
                  struct ls_transfer *transfer, struct ls_error *error);
int ls_tier_read(struct ls_tier *tier, size_t offset, void *device, size_t bytes,
                 struct ls_transfer *transfer, struct ls_error *error);
/* What is submitted behind it comes after the transfer's end; *transfer is none then. Does nothing
 * for none. LS_EIO or LS_ENOSPC if the system
 * failed: the text names file, offset and bytes. Then what was to be written, or read, is
 * undefined, and later transfers go on. */
int ls_transfer_wait(struct ls_transfer *transfer, struct ls_error *error);

/* While it is held, the wait for a transfer that failed returns LS_OK, and what was to be read is
 * undefined. So a rank whose disk failed keeps up with others until all can agree on it. */
void ls_tier_hold(struct ls_tier *tier, bool held);
/* The first failure of a transfer that was waited for so far, held or not. LS_OK: none. */
int ls_tier_failure(const struct ls_tier *tier, struct ls_error *error);

/* What moved since the tier was made. */
struct ls_tier_counts {
    int64_t reads, writes;             /* transfers that were started */
    int64_t read_bytes, written_bytes; /* of these, as they were asked for */
    double wait_s;                     /* that the caller spent in ls_transfer_wait */
    double
        busy_s; /* in which at least one transfer was under way: 1 - wait_s / busy_s was hidden */
};
struct ls_tier_counts ls_tier_get_counts(struct ls_tier *tier);

LS_C_END
#endif
