/* A ring of blocks that a thread fills from files, past the page cache, ahead of who takes them. */
#include "ckpt/read_ahead.h"

#include <lockstep/base/helper_thread.h>

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    BLOCK_BYTES = 4 << 20, /* of a read: smaller ones reach less of the disk's rate */
    BLOCKS = 4,
    PIECES = 256,
    HUGE_BYTES = 2 << 20,
    DISK_BLOCK_BYTES = 4096, /* a read begins and ends on a multiple */
};

struct piece {
    const char *path;
    int64_t begin, end; /* in the file */
};

/* Piece n is in pieces[n % PIECES], block n in memory + n % BLOCKS * BLOCK_BYTES; a block is of one
 * piece. */
struct read_ahead {
    unsigned char *memory;
    struct piece pieces[PIECES];
    bool good[BLOCKS]; /* read whole */
    /* Counts; who takes changes added, taken and emptied, the thread filled. */
    uint64_t added, taken, filled, emptied;
    int64_t at;   /* of piece `taken`: the next byte in the file */
    bool emptier; /* the block of the last bytes is not needed any more */
    bool refused; /* a read failed: no piece is added any more */
    bool over;
    struct ls_progress progress; /* of the thread */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
};

static int64_t aligned(int64_t offset)
{
    return offset / DISK_BLOCK_BYTES * DISK_BLOCK_BYTES;
}

/* ---- its thread ------------------------------------------------------------------------------ */

/* False if it ends. */
static bool piece_wait(struct read_ahead *ahead, uint64_t number)
{
    pthread_mutex_lock(&ahead->lock);
    while (ahead->added <= number && !ahead->over)
        pthread_cond_wait(&ahead->changed, &ahead->lock);
    bool over = ahead->over;
    pthread_mutex_unlock(&ahead->lock);
    return !over;
}

static bool room_wait(struct read_ahead *ahead)
{
    pthread_mutex_lock(&ahead->lock);
    while (ahead->filled - ahead->emptied == BLOCKS && !ahead->over)
        pthread_cond_wait(&ahead->changed, &ahead->lock);
    bool over = ahead->over;
    pthread_mutex_unlock(&ahead->lock);
    return !over;
}

/* fd -1: the file cannot be read so. */
static void block_fill(struct read_ahead *ahead, int fd, int64_t from, int64_t end)
{
    uint64_t slot = ahead->filled % BLOCKS;
    int64_t bytes = ls_min(end - from, BLOCK_BYTES);
    size_t whole = (size_t)aligned(bytes + DISK_BLOCK_BYTES - 1);
    ssize_t got = fd < 0 ? -1 : pread(fd, ahead->memory + slot * BLOCK_BYTES, whole, from);
    ls_progress();
    pthread_mutex_lock(&ahead->lock);
    ahead->good[slot] = got >= bytes;
    ahead->refused = ahead->refused || !ahead->good[slot];
    ahead->filled++;
    pthread_cond_broadcast(&ahead->changed);
    pthread_mutex_unlock(&ahead->lock);
}

static void *thread_main(void *argument)
{
    struct read_ahead *ahead = argument;
    const char *path = NULL; /* of fd */
    int fd = -1;
    ls_progress_keep(&ahead->progress);
    for (uint64_t number = 0; piece_wait(ahead, number); number++) {
        const struct piece piece = ahead->pieces[number % PIECES];
        if (path != piece.path) {
            if (fd >= 0)
                close(fd);
            fd = open(piece.path, O_RDONLY | O_DIRECT | O_CLOEXEC);
            path = piece.path;
        }
        for (int64_t from = aligned(piece.begin); from < piece.end && room_wait(ahead);
             from += BLOCK_BYTES)
            block_fill(ahead, fd, from, piece.end);
    }
    if (fd >= 0)
        close(fd);
    return NULL;
}

/* ---- life ------------------------------------------------------------------------------------ */

struct read_ahead *read_ahead_new(void)
{
    struct read_ahead *ahead = calloc(1, sizeof *ahead);
    unsigned char *memory = aligned_alloc(HUGE_BYTES, (size_t)BLOCKS * BLOCK_BYTES);
    if (ahead && memory) {
        ahead->memory = memory;
        madvise(memory, (size_t)BLOCKS * BLOCK_BYTES, MADV_HUGEPAGE); /* a hint */
        pthread_mutex_init(&ahead->lock, NULL);
        ls_condition_init(&ahead->changed);
        if (!ls_helper_start(&ahead->thread, thread_main, ahead))
            return ahead;
        pthread_cond_destroy(&ahead->changed);
        pthread_mutex_destroy(&ahead->lock);
    }
    free(memory);
    free(ahead);
    return NULL;
}

void read_ahead_free(struct read_ahead *ahead)
{
    if (!ahead)
        return;
    pthread_mutex_lock(&ahead->lock);
    ahead->over = true;
    pthread_cond_broadcast(&ahead->changed);
    pthread_mutex_unlock(&ahead->lock);
    pthread_join(ahead->thread, NULL);
    pthread_cond_destroy(&ahead->changed);
    pthread_mutex_destroy(&ahead->lock);
    free(ahead->memory);
    free(ahead);
}

/* ---- who takes ------------------------------------------------------------------------------- */

uint64_t read_ahead_add(struct read_ahead *ahead, const char *path, int64_t offset, int64_t bytes)
{
    pthread_mutex_lock(&ahead->lock);
    uint64_t number = 0;
    if (!ahead->refused && ahead->added - ahead->taken < PIECES) {
        ahead->pieces[ahead->added % PIECES] = (struct piece){path, offset, offset + bytes};
        number = ++ahead->added;
        pthread_cond_broadcast(&ahead->changed);
    }
    pthread_mutex_unlock(&ahead->lock);
    return number;
}

/* The block of the next bytes is filled, and the one of those before them is free. */
static void block_wait(struct read_ahead *ahead)
{
    pthread_mutex_lock(&ahead->lock);
    if (ahead->emptier) {
        ahead->emptied++;
        ahead->emptier = false;
        pthread_cond_broadcast(&ahead->changed);
    }
    while (ahead->filled == ahead->emptied)
        ls_helper_wait(&ahead->changed, &ahead->lock, &ahead->progress);
    pthread_mutex_unlock(&ahead->lock);
}

int64_t read_ahead_take(struct read_ahead *ahead, int64_t most, const unsigned char **from)
{
    const struct piece *piece = &ahead->pieces[ahead->taken % PIECES];
    int64_t at = ls_max(ahead->at, piece->begin);
    int64_t in = (at - aligned(piece->begin)) % BLOCK_BYTES;
    int64_t bytes = ls_min(ls_min(BLOCK_BYTES - in, piece->end - at), most);
    block_wait(ahead);
    uint64_t slot = ahead->emptied % BLOCKS;
    *from = ahead->good[slot] ? ahead->memory + slot * BLOCK_BYTES + in : NULL;
    ahead->at = at + bytes;
    ahead->emptier = ahead->at == piece->end || in + bytes == BLOCK_BYTES;
    if (ahead->at == piece->end) {
        pthread_mutex_lock(&ahead->lock);
        ahead->taken++;
        pthread_mutex_unlock(&ahead->lock);
        ahead->at = 0;
    }
    return bytes;
}

bool read_ahead_begin(struct read_ahead *ahead, uint64_t number)
{
    const unsigned char *passed;
    while (ahead->taken + 1 < number)
        read_ahead_take(ahead, INT64_MAX, &passed);
    return ahead->taken + 1 == number && ahead->at == 0;
}
