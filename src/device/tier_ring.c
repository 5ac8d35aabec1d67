/* One thread that feeds io_uring with pieces of a memory tier: the system moves many at once. */
#include "device/tier_private.h"

#include <errno.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum { TRY_NS = 1000000 };

struct slot {
    struct tier_piece piece;
    bool taken;
};

/* Only its thread touches it, but for event_fd. */
struct tier_ring {
    struct io_uring uring;
    struct slot slots[TIER_RING_DEPTH];
    int event_fd;   /* written to by who has work */
    uint64_t event; /* what the ring reads from there */
    bool listening;
};

/* ---- whether it is allowed ------------------------------------------------------------------ */

static int ring_init(struct io_uring *uring, unsigned entries, const struct ls_fault *fault,
                     struct ls_error *error)
{
    const char *wanted = getenv("LOCKSTEP_IO_URING");
    if (wanted && strcmp(wanted, "0") == 0)
        return ls_error_set(error, LS_ENOTSUP, "LOCKSTEP_IO_URING=0");
    int result = -ls_fault_check(fault, "io_uring_setup");
    if (!result)
        result = io_uring_queue_init(entries, uring, 0);
    if (result < 0)
        return ls_error_set(error, LS_ENOTSUP, "io_uring_setup: %s", strerror(-result));
    struct io_uring_probe *probe = io_uring_get_probe_ring(uring);
    bool reads = probe && io_uring_opcode_supported(probe, IORING_OP_READ);
    io_uring_free_probe(probe);
    if (reads)
        return LS_OK;
    io_uring_queue_exit(uring);
    return ls_error_set(error, LS_ENOTSUP, "the kernel's io_uring is older than Linux 5.6");
}

bool ls_io_uring_allowed(struct ls_error *error)
{
    struct io_uring uring;
    if (ring_init(&uring, 1, NULL, error))
        return false;
    io_uring_queue_exit(&uring);
    return true;
}

/* ---- its thread ----------------------------------------------------------------------------- */

static struct slot *free_slot(struct tier_ring *ring)
{
    for (int i = 0; i < TIER_RING_DEPTH; i++)
        if (!ring->slots[i].taken)
            return &ring->slots[i];
    return NULL;
}

/* Puts the slot's piece into the ring; a fault of a test takes its place. */
static void submit(struct ls_tier *tier, struct slot *slot)
{
    struct tier_piece *piece = &slot->piece;
    int failure;
    while ((failure = tier_fault(tier, piece)) != 0)
        if (!tier_settle(tier, piece, -failure))
            return;
    slot->taken = true;
    struct io_uring_sqe *entry = io_uring_get_sqe(&tier->ring->uring);
    LS_ASSERT(entry); /* one for each slot, and one for the event */
    if (piece->writes)
        io_uring_prep_write(entry, tier->file.fd, piece->device, (unsigned)piece->bytes,
                            piece->offset);
    else
        io_uring_prep_read(entry, tier->file.fd, piece->device, (unsigned)piece->bytes,
                           piece->offset);
    io_uring_sqe_set_data(entry, slot);
}

/* Fills the free slots; false if the tier ends. */
static bool fill(struct ls_tier *tier)
{
    struct slot *slot;
    while ((slot = free_slot(tier->ring)) != NULL) {
        pthread_mutex_lock(&tier->mutex);
        bool over = tier_over(tier), found = tier_take(tier, &slot->piece);
        pthread_mutex_unlock(&tier->mutex);
        if (!found)
            return !over;
        submit(tier, slot);
    }
    return true;
}

static void listen_for_work(struct tier_ring *ring)
{
    if (ring->listening)
        return;
    struct io_uring_sqe *entry = io_uring_get_sqe(&ring->uring);
    LS_ASSERT(entry);
    io_uring_prep_read(entry, ring->event_fd, &ring->event, sizeof ring->event, 0);
    io_uring_sqe_set_data(entry, NULL);
    ring->listening = true;
}

/* What the ring is through with. */
static void reap(struct ls_tier *tier)
{
    struct tier_ring *ring = tier->ring;
    struct io_uring_cqe *entry;
    while (io_uring_peek_cqe(&ring->uring, &entry) == 0) {
        struct slot *slot = io_uring_cqe_get_data(entry);
        int64_t result = entry->res;
        io_uring_cqe_seen(&ring->uring, entry);
        if (!slot) {
            ring->listening = false;
            continue;
        }
        slot->taken = false;
        if (tier_settle(tier, &slot->piece, result))
            submit(tier, slot);
    }
}

static void wait_and_reap(struct ls_tier *tier)
{
    /* The system may lack the memory for a request; what is in the ring stays there. */
    if (io_uring_submit_and_wait(&tier->ring->uring, 1) < 0)
        nanosleep(&(struct timespec){.tv_nsec = TRY_NS}, NULL);
    reap(tier);
}

static void *ring_main(void *user)
{
    struct ls_tier *tier = user;
    while (fill(tier)) {
        listen_for_work(tier->ring);
        wait_and_reap(tier);
    }
    /* Nothing stays in the ring that would write into memory which is freed. */
    if (tier->ring->listening)
        tier_ring_wake(tier->ring);
    while (tier->ring->listening)
        wait_and_reap(tier);
    return NULL;
}

void tier_ring_wake(struct tier_ring *ring)
{
    uint64_t one = 1;
    while (write(ring->event_fd, &one, sizeof one) < 0 && errno == EINTR)
        continue;
}

/* ---- life ----------------------------------------------------------------------------------- */

int tier_ring_start(struct ls_tier *tier, struct ls_error *error)
{
    struct tier_ring *ring = calloc(1, sizeof *ring);
    if (!ring)
        return ls_no_memory(error, "for a ring");
    int status = ring_init(&ring->uring, TIER_RING_DEPTH + 1, tier->fault, error);
    if (status) {
        free(ring);
        return status;
    }
    tier->ring = ring;
    ring->event_fd = eventfd(0, EFD_CLOEXEC);
    if (ring->event_fd < 0)
        status = ls_error_errno(error, errno, "eventfd");
    else
        status = tier_thread_start(tier, ring_main, error);
    if (status) {
        tier_ring_free(ring);
        tier->ring = NULL;
    }
    return status;
}

void tier_ring_free(struct tier_ring *ring)
{
    if (!ring)
        return;
    io_uring_queue_exit(&ring->uring);
    if (ring->event_fd >= 0)
        close(ring->event_fd);
    free(ring);
}
