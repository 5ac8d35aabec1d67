/* A memory tier: transfers in order, cut into pieces for those who move them. */
#include "device/tier_private.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { TRIES_MAX = 100, TRY_NS = 1000000 };

const char *ls_tier_name(enum ls_tier_kind kind)
{
    static const char *const names[] = {"none", "host", "file"};
    return names[kind];
}

/* bytes rounded up to LS_TIER_ALIGN; false on overflow. */
static bool align_up(size_t bytes, size_t *out)
{
    if (!ls_size_add(bytes, LS_TIER_ALIGN - 1, out))
        return false;
    *out &= ~(size_t)(LS_TIER_ALIGN - 1);
    return true;
}

size_t ls_tier_room_take(struct ls_tier_room *room, size_t bytes)
{
    size_t offset = room->used, aligned;
    LS_ASSERT(align_up(bytes, &aligned) && ls_size_add(offset, aligned, &room->used));
    return offset;
}

/* ---- pieces ---------------------------------------------------------------------------------- */

bool tier_take(struct ls_tier *tier, struct tier_piece *piece)
{
    struct tier_transfer *transfer = tier->first;
    while (transfer && (transfer->handed == transfer->bytes ||
                        (transfer->handed == 0 && !tier_may_begin(tier, transfer))))
        transfer = transfer->next;
    if (!transfer)
        return false;
    *piece = (struct tier_piece){
        .transfer = transfer,
        .device = transfer->device + transfer->handed,
        .offset = transfer->offset + transfer->handed,
        .bytes = (size_t)ls_min(TIER_PIECE_BYTES, (int64_t)(transfer->bytes - transfer->handed)),
        .writes = transfer->writes};
    transfer->handed += piece->bytes;
    return true;
}

bool tier_over(const struct ls_tier *tier)
{
    return tier->stop && !tier->first;
}

/* ---- what became of a piece ----------------------------------------------------------------- */

int tier_fault(struct ls_tier *tier, const struct tier_piece *piece)
{
    if (!tier->fault)
        return 0;
    pthread_mutex_lock(&tier->mutex);
    int failure = ls_fault_check(tier->fault, piece->writes ? "write" : "read");
    pthread_mutex_unlock(&tier->mutex);
    return failure;
}

static void describe_failure(const struct ls_tier *tier, const struct tier_piece *piece,
                             int64_t result, struct ls_error *error)
{
    char what[512];
    snprintf(what, sizeof what, "%.400s: cannot %s %zu bytes at offset %zu", tier->text,
             piece->writes ? "write" : "read", piece->bytes, piece->offset);
    if (result < 0)
        ls_error_errno(error, (int)-result, "%s", what);
    else
        ls_error_set(error, LS_EIO, "%s: none of them moved in %d tries; was the file cut short?",
                     what, TRIES_MAX);
    ls_error_suffix(error, "; see what the system's log says of this disk, or name a folder on "
                           "another one in memory.file");
}

/* Takes a transfer that ended out of the order. With the mutex held. */
static void end_transfer(struct ls_tier *tier, struct tier_transfer *transfer)
{
    struct tier_transfer **at = &tier->first;
    while (*at != transfer)
        at = &(*at)->next;
    *at = transfer->next;
    if (!transfer->next)
        tier->last = at;
    if (!tier->first)
        tier->counts.busy_s += ls_now_s() - tier->busy_since;
    pthread_cond_broadcast(&tier->ended);
    pthread_cond_broadcast(&tier->work); /* what was behind it may begin */
}

/* Moves on within the piece. Only whole units count: direct access cannot go on between them. True
 * if something moved. */
static bool advance(struct tier_piece *piece, int64_t result)
{
    size_t moved = result > 0 ? (size_t)result : 0;
    LS_ASSERT(moved <= piece->bytes);
    if (moved < piece->bytes)
        moved -= moved % LS_TIER_ALIGN;
    piece->device += moved;
    piece->offset += moved;
    piece->bytes -= moved;
    return moved > 0;
}

bool tier_settle(struct ls_tier *tier, struct tier_piece *piece, int64_t result)
{
    struct tier_transfer *transfer = piece->transfer;
    size_t before = piece->bytes;
    bool moved = advance(piece, result);
    bool again = result >= 0 || result == -EINTR || result == -EAGAIN;
    piece->tries = moved ? 0 : piece->tries + 1;
    again = again && piece->tries < TRIES_MAX && piece->bytes > 0;
    if (again && !moved && result != -EINTR)
        nanosleep(&(struct timespec){.tv_nsec = TRY_NS}, NULL);
    pthread_mutex_lock(&tier->mutex);
    transfer->settled += before - piece->bytes;
    if (!again && piece->bytes > 0) {
        if (!transfer->failed)
            describe_failure(tier, piece, result, &transfer->error);
        transfer->failed = true;
        transfer->settled += piece->bytes + transfer->bytes - transfer->handed;
        transfer->handed = transfer->bytes;
    }
    if (transfer->settled == transfer->bytes)
        end_transfer(tier, transfer);
    pthread_mutex_unlock(&tier->mutex);
    return again;
}

/* ---- transfers ------------------------------------------------------------------------------ */

/* With the mutex held. */
static void enqueue(struct ls_tier *tier, struct tier_transfer *transfer, size_t bytes)
{
    if (!tier->first)
        tier->busy_since = ls_now_s();
    *tier->last = transfer;
    tier->last = &transfer->next;
    struct ls_tier_counts *counts = &tier->counts;
    *(transfer->writes ? &counts->writes : &counts->reads) += 1;
    *(transfer->writes ? &counts->written_bytes : &counts->read_bytes) += (int64_t)bytes;
}

/* The arguments of both commands; of a wait tier and ticket alone. */
struct transfer_call {
    struct ls_tier *tier;
    uint64_t ticket;
    unsigned char *device;
    size_t offset, bytes; /* bytes: as they were asked for */
    bool writes;
};

static void start_operands(const struct ls_queue *queue, const struct ls_command *command,
                           struct ls_operands *out)
{
    const struct transfer_call *c = command->arguments;
    (void)queue;
    ls_operand_add(out, c, &c->device, c->bytes, c->writes ? LS_READS : LS_WRITES);
}

static int start_run(struct ls_queue *queue, const struct ls_command *command,
                     struct ls_error *error)
{
    const struct transfer_call *c = command->arguments;
    struct ls_tier *tier = c->tier;
    (void)queue;
    if (tier->idle)
        return LS_OK;
    struct tier_transfer *transfer = tier->unused ? tier->unused : malloc(sizeof *transfer);
    if (!transfer)
        return ls_error_set(error, LS_ENOMEM, "%s: no memory for a transfer", tier->text);
    if (transfer == tier->unused)
        tier->unused = transfer->open;
    *transfer = (struct tier_transfer){.ticket = c->ticket,
                                       .open = tier->open,
                                       .device = c->device,
                                       .offset = c->offset,
                                       .writes = c->writes};
    LS_ASSERT(align_up(c->bytes, &transfer->bytes));
    tier->open = transfer;
    pthread_mutex_lock(&tier->mutex);
    enqueue(tier, transfer, c->bytes);
    pthread_cond_broadcast(&tier->work);
    pthread_mutex_unlock(&tier->mutex);
    if (tier->ring)
        tier_ring_wake(tier->ring);
    return LS_OK;
}

static int wait_run(struct ls_queue *queue, const struct ls_command *command,
                    struct ls_error *error)
{
    const struct transfer_call *c = command->arguments;
    struct ls_tier *tier = c->tier;
    (void)queue;
    if (tier->idle)
        return LS_OK;
    struct tier_transfer **at = &tier->open, *transfer;
    while (*at && (*at)->ticket != c->ticket)
        at = &(*at)->open;
    transfer = *at;
    LS_ASSERT(transfer);
    pthread_mutex_lock(&tier->mutex);
    double from = transfer->settled < transfer->bytes ? ls_now_s() : 0;
    while (transfer->settled < transfer->bytes)
        pthread_cond_wait(&tier->ended, &tier->mutex);
    tier->counts.wait_s += from > 0 ? ls_now_s() - from : 0;
    pthread_mutex_unlock(&tier->mutex);
    int status = LS_OK;
    if (transfer->failed && !tier->failed) {
        tier->failed = transfer->error.code;
        tier->why = transfer->error;
    }
    if (transfer->failed && !tier->held)
        status = ls_error_copy(error, transfer->error.code, &transfer->error);
    *at = transfer->open;
    transfer->open = tier->unused;
    tier->unused = transfer;
    return status;
}

static const struct ls_op start_op = {sizeof(struct transfer_call), start_operands, start_run};
static const struct ls_op wait_op = {sizeof(struct transfer_call), NULL, wait_run};

bool ls_tier_command(const struct ls_command *command, struct ls_tier_told *out)
{
    const struct transfer_call *c = command->arguments;
    if (command->op != &start_op && command->op != &wait_op)
        return false;
    *out = (struct ls_tier_told){.transfer = {c->tier, c->ticket},
                                 .kind = c->tier->kind,
                                 .waits = command->op == &wait_op,
                                 .writes = c->writes,
                                 .bytes = c->bytes};
    return true;
}

static int check(const struct transfer_call *call, struct ls_error *error)
{
    const struct ls_tier *tier = call->tier;
    size_t bytes, end;
    if (call->offset % LS_TIER_ALIGN || (uintptr_t)call->device % LS_TIER_ALIGN)
        return ls_error_set(error, LS_EINVAL,
                            "%s: a transfer between offset %zu and address %p: both must be "
                            "multiples of %d",
                            tier->text, call->offset, (void *)call->device, LS_TIER_ALIGN);
    if (!align_up(call->bytes, &bytes) || !ls_size_add(call->offset, bytes, &end) ||
        end > tier->bytes)
        return ls_error_set(error, LS_EINVAL, "%s: %zu bytes at offset %zu: it has %zu", tier->text,
                            call->bytes, call->offset, tier->bytes);
    return LS_OK;
}

static int start(struct ls_tier *tier, size_t offset, void *device, size_t bytes, bool writes,
                 struct ls_transfer *transfer, struct ls_error *error)
{
    const struct transfer_call call = {tier, ++tier->tickets, device, offset, bytes, writes};
    LS_ASSERT(!transfer->tier);
    int status = check(&call, error);
    if (status || bytes == 0)
        return status;
    status = ls_submit(tier->queue, &(struct ls_command){&start_op, &call}, error);
    if (!status)
        *transfer = (struct ls_transfer){tier, call.ticket};
    return status;
}

int ls_tier_write(struct ls_tier *tier, size_t offset, const void *device, size_t bytes,
                  struct ls_transfer *transfer, struct ls_error *error)
{
    /* Who moves it only reads there. */
    return start(tier, offset, (void *)device, bytes, true, transfer, error);
}

int ls_tier_read(struct ls_tier *tier, size_t offset, void *device, size_t bytes,
                 struct ls_transfer *transfer, struct ls_error *error)
{
    return start(tier, offset, device, bytes, false, transfer, error);
}

int ls_transfer_wait(struct ls_transfer *transfer, struct ls_error *error)
{
    const struct transfer_call call = {.tier = transfer->tier, .ticket = transfer->ticket};
    if (!call.tier)
        return LS_OK;
    *transfer = (struct ls_transfer){0};
    return ls_submit(call.tier->queue, &(struct ls_command){&wait_op, &call}, error);
}

void ls_tier_hold(struct ls_tier *tier, bool held)
{
    tier->held = held;
}

int ls_tier_failure(const struct ls_tier *tier, struct ls_error *error)
{
    return tier->failed ? ls_error_copy(error, tier->failed, &tier->why) : LS_OK;
}

struct ls_tier_counts ls_tier_get_counts(struct ls_tier *tier)
{
    pthread_mutex_lock(&tier->mutex);
    struct ls_tier_counts counts = tier->counts;
    counts.busy_s += tier->first ? ls_now_s() - tier->busy_since : 0;
    pthread_mutex_unlock(&tier->mutex);
    return counts;
}

/* ---- a tier --------------------------------------------------------------------------------- */

static int start_host(struct ls_tier *tier, struct ls_error *error)
{
    snprintf(tier->text, sizeof tier->text, "host memory");
    tier->move = tier_host_move;
    int status = ls_arena_init(&tier->host, tier->bytes, error);
    return status ? status : tier_threads_start(tier, 1, error);
}

static int start_file(struct ls_tier *tier, const struct ls_tier_options *options,
                      struct ls_error *error)
{
    struct ls_error why = {.text = "as asked for"};
    char mover[1200] = "io_uring";
    int status = tier_file_open(tier, options, error);
    if (status)
        return status;
    tier->move = tier_file_move;
    if (options->threads || tier_ring_start(tier, &why)) {
        status = tier_threads_start(tier, TIER_FILE_THREADS, error);
        snprintf(mover, sizeof mover, "threads: %s", why.text);
    }
    snprintf(tier->text, sizeof tier->text, "%s (%s, %s)", tier->file.path, tier->file.access,
             mover);
    return status;
}

/* A tier without room and without those who move. */
static struct ls_tier *tier_alloc(enum ls_tier_kind kind, size_t bytes, struct ls_error *error)
{
    struct ls_tier *tier = calloc(1, sizeof *tier);
    if (!tier) {
        ls_no_memory(error, "for a memory tier");
        return NULL;
    }
    tier->kind = kind;
    tier->queue = &tier->own;
    tier->file.fd = -1;
    tier->last = &tier->first;
    pthread_mutex_init(&tier->mutex, NULL);
    pthread_cond_init(&tier->work, NULL);
    pthread_cond_init(&tier->ended, NULL);
    align_up(bytes, &tier->bytes);
    return tier;
}

int ls_tier_idle_new(enum ls_tier_kind kind, size_t bytes, struct ls_tier **out,
                     struct ls_error *error)
{
    *out = tier_alloc(kind, bytes, error);
    if (!*out)
        return LS_ENOMEM;
    (*out)->idle = true;
    snprintf((*out)->text, sizeof(*out)->text, "%s, which moves nothing", ls_tier_name(kind));
    return LS_OK;
}

int ls_tier_new(const struct ls_tier_options *options, struct ls_tier **out, struct ls_error *error)
{
    *out = NULL;
    bool file = options->kind == LS_TIER_FILE;
    if ((!file && options->kind != LS_TIER_HOST) || options->bytes == 0 ||
        options->bytes > INT64_MAX - LS_TIER_ALIGN ||
        (file && (!options->folder || !*options->folder)))
        return ls_error_set(
            error, LS_EINVAL,
            "a memory tier is of kind host or file, has a size, and if it is a file, a folder");
    struct ls_tier *tier = tier_alloc(options->kind, options->bytes, error);
    if (!tier)
        return LS_ENOMEM;
    tier->fault = options->fault;
    int status = file ? start_file(tier, options, error) : start_host(tier, error);
    if (status)
        ls_tier_free(tier);
    else
        *out = tier;
    return status;
}

void ls_tier_set_queue(struct ls_tier *tier, struct ls_queue *queue)
{
    tier->queue = queue ? queue : &tier->own;
}

static void transfers_free(struct tier_transfer *open)
{
    while (open) {
        struct tier_transfer *next = open->open;
        free(open);
        open = next;
    }
}

void ls_tier_free(struct ls_tier *tier)
{
    if (!tier)
        return;
    pthread_mutex_lock(&tier->mutex);
    tier->stop = true;
    pthread_cond_broadcast(&tier->work);
    pthread_mutex_unlock(&tier->mutex);
    if (tier->ring)
        tier_ring_wake(tier->ring);
    for (int i = 0; i < tier->threads_count; i++)
        pthread_join(tier->threads[i], NULL);
    tier_ring_free(tier->ring);
    tier_file_close(&tier->file);
    ls_arena_release(&tier->host);
    transfers_free(tier->open);
    transfers_free(tier->unused);
    pthread_cond_destroy(&tier->ended);
    pthread_cond_destroy(&tier->work);
    pthread_mutex_destroy(&tier->mutex);
    free(tier);
}

const char *ls_tier_text(const struct ls_tier *tier)
{
    return tier->text;
}
