/* What the files of a memory tier share: its transfers in order, cut into pieces, and who moves
 * them. */
#ifndef DEVICE_TIER_PRIVATE_H
#define DEVICE_TIER_PRIVATE_H

#include <lockstep/base/lock.h>
#include <lockstep/device/tier.h>

#include <pthread.h>

/* `lockstep bench tier` measures them: smaller pieces reach less of a disk's rate, larger ones
 * nothing more. */
enum {
    TIER_PIECE_BYTES = 2 << 20,
    TIER_RING_DEPTH = 16,  /* pieces that io_uring has at a time */
    TIER_FILE_THREADS = 8, /* the same, where threads read and write */
};

/* A transfer that was started and is to be waited for. */
struct tier_transfer {
    uint64_t ticket;
    struct tier_transfer *next; /* that was started after it, while both are under way */
    struct tier_transfer *open; /* that was started before it, until it was waited for */
    unsigned char *device;
    size_t offset, bytes;   /* bytes: a multiple of LS_TIER_ALIGN */
    size_t handed, settled; /* bytes given to the system, and through with it */
    bool writes, failed;
    struct ls_error error; /* the first failure */
};

/* A part of a transfer that goes to the system at once. */
struct tier_piece {
    struct tier_transfer *transfer;
    unsigned char *device;
    size_t offset, bytes; /* what is left of it */
    bool writes;
    int tries; /* in a row that moved nothing */
};

/* Moves what it can of a piece and returns the bytes, or -errno. */
typedef int64_t tier_move(const struct ls_tier *tier, const struct tier_piece *piece);

struct tier_file {
    struct ls_lock lock; /* of home */
    bool folder_made;
    char folder[PATH_MAX], home[PATH_MAX], path[PATH_MAX]; /* FOLDER, FOLDER/RANK, its data */
    int fd;
    char access[96]; /* "O_DIRECT", or "buffered" and why */
};

struct tier_ring;

struct ls_tier {
    enum ls_tier_kind kind;
    size_t bytes;
    const struct ls_fault *fault;
    bool idle;              /* it moves nothing */
    struct ls_queue own;    /* runs its commands where they are submitted */
    struct ls_queue *queue; /* what they are submitted to */
    uint64_t tickets;       /* given out so far */
    struct tier_transfer *open,
        *unused; /* to be waited for, the last first; and to be used again */
    char text[PATH_MAX + 1400];
    struct ls_arena host;
    struct tier_file file;
    bool held;
    int failed; /* the first transfer that did, and why */
    struct ls_error why;

    pthread_mutex_t mutex;               /* of what follows */
    pthread_cond_t work;                 /* there may be a piece, or the end */
    pthread_cond_t ended;                /* a transfer has */
    struct tier_transfer *first, **last; /* those under way, in the order of their start */
    bool stop;
    double busy_since;
    struct ls_tier_counts counts;

    /* Who moves: threads, or one that feeds a ring. */
    tier_move *move;
    pthread_t threads[TIER_FILE_THREADS];
    int threads_count;
    struct tier_ring *ring; /* NULL for threads */
};

/* ---- tier.c: for who moves ------------------------------------------------------------------ */

/* The next piece that may go now; false if there is none. With the mutex held. */
bool tier_take(struct ls_tier *tier, struct tier_piece *piece);
/* Whether all is done and the tier ends. With the mutex held. */
bool tier_over(const struct ls_tier *tier);
/* The errno that a test wants the piece to fail with, 0 to go on. */
int tier_fault(struct ls_tier *tier, const struct tier_piece *piece);
/* What became of a piece: bytes moved, or -errno. True: the piece now names the rest, which is to
 * be moved; false: it is through. */
bool tier_settle(struct ls_tier *tier, struct tier_piece *piece, int64_t result);

/* ---- tier_order.c --------------------------------------------------------------------------- */

/* Whether a transfer has nothing in common with those under way that were started before it. With
 * the mutex held. */
bool tier_may_begin(const struct ls_tier *tier, const struct tier_transfer *transfer);

/* ---- tier_file.c ---------------------------------------------------------------------------- */

int tier_file_open(struct ls_tier *tier, const struct ls_tier_options *options,
                   struct ls_error *error);
/* Also after a failed open. */
void tier_file_close(struct tier_file *file);
tier_move tier_file_move;

/* ---- tier_threads.c, tier_ring.c ------------------------------------------------------------ */

tier_move tier_host_move;
/* A thread of the tier, which runs main(tier). */
int tier_thread_start(struct ls_tier *tier, void *(*main)(void *), struct ls_error *error);
/* Starts up to count threads that move pieces by tier->move; fails if there is none. */
int tier_threads_start(struct ls_tier *tier, int count, struct ls_error *error);
/* LS_ENOTSUP if io_uring is not allowed. */
int tier_ring_start(struct ls_tier *tier, struct ls_error *error);
/* Tells its thread that there is work. */
void tier_ring_wake(struct tier_ring *ring);
/* After its thread has ended. NULL is allowed. */
void tier_ring_free(struct tier_ring *ring);

#endif
