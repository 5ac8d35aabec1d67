/* Operations over MPI as state machines: post messages, test them, do the local work, go on. */
#ifdef LS_WITH_MPI
#include "comm/mpi.h"

#include <lockstep/base/formatted.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* All far below what MPI's int counts hold. */
static const struct comm_limits limits = {
    .sum_bytes = 1 << 20, .copy_bytes = 4 << 20, .direct_bytes = 32 << 10};
/* Of one message of send and recv. */
static const int64_t part_bytes_max = 1 << 30;

/* Tags of one collective: two phases a lane, and the check. */
enum { TAGS = 64, TAG_CHECK = TAGS - 1, PAGE = 4096 };
_Static_assert((int)TAG_CHECK >= 2 * (int)MPI_LANES, "a tag for each phase of each lane");

static void *take(size_t count, size_t bytes, bool *failed)
{
    void *memory = calloc(count ? count : 1, bytes);
    *failed |= !memory;
    return memory;
}

int comm_mpi_resources_new(struct mpi_comm *comm, struct ls_error *error)
{
    size_t n = (size_t)comm->base.size;
    bool failed = false;
    ls_ops_init_shared(&comm->ops);
    comm->missing = take(n, sizeof *comm->missing, &failed);
    for (int i = 0; i < LS_COMM_PENDING_MAX && !failed; i++) {
        struct mpi_op *op = take(1, sizeof *op, &failed);
        if (op) {
            op->next = comm->spare;
            comm->spare = op;
        }
    }
    for (int s = 0; s < MPI_ACTIVE; s++) {
        struct mpi_slot *slot = &comm->slots[s];
        slot->calls = take(n, sizeof *slot->calls, &failed);
        slot->statuses = take(2 * n, sizeof *slot->statuses, &failed);
        for (int l = 0; l < MPI_LANES; l++) {
            slot->lanes[l].requests = take(2 * n, sizeof *slot->lanes[l].requests, &failed);
            for (size_t i = 0; i < 2 * n && slot->lanes[l].requests; i++)
                slot->lanes[l].requests[i] = MPI_REQUEST_NULL;
            slot->lanes[l].peers = take(2 * n, sizeof *slot->lanes[l].peers, &failed);
            slot->lanes[l].inputs = take(n, sizeof *slot->lanes[l].inputs, &failed);
        }
    }
    return failed ? ls_no_memory(error, "for an MPI communicator of %zu ranks", n) : LS_OK;
}

/* Messages that are under way are given up: none that begins to arrive later is written to its
 * buffer. */
static void requests_drop(MPI_Request *requests, int count)
{
    for (int i = 0; i < count; i++) {
        if (requests[i] == MPI_REQUEST_NULL)
            continue;
        MPI_Cancel(&requests[i]);
        MPI_Request_free(&requests[i]);
    }
}

/* A request of MPI_Ibarrier may be neither cancelled nor freed. */
static void slot_drop(struct mpi_slot *slot)
{
    const struct mpi_op *op = slot->op;
    bool ours = op && !(op->call.op == COMM_BARRIER && op->stage == MPI_MOVING);
    for (int l = 0; l < MPI_LANES; l++) {
        struct mpi_lane *lane = &slot->lanes[l];
        if (lane->busy && ours)
            requests_drop(lane->requests, lane->requests_count);
        lane->busy = false;
    }
}

static void ops_free(struct mpi_op *list)
{
    while (list) {
        struct mpi_op *op = list;
        list = op->next;
        requests_drop(op->parts, op->parts_count);
        if (op->parts != op->few_parts)
            free(op->parts);
        free(op);
    }
}

/* Operations that are pending are given up: only a caller that unwinds from an error does so. */
void comm_mpi_resources_free(struct mpi_comm *comm)
{
    for (int s = 0; s < MPI_ACTIVE; s++) {
        struct mpi_slot *slot = &comm->slots[s];
        slot_drop(slot);
        for (int l = 0; l < MPI_LANES; l++) {
            struct mpi_lane *lane = &slot->lanes[l];
            free(lane->requests);
            free(lane->peers);
            free(lane->inputs);
        }
        free(slot->statuses);
        free(slot->calls);
        free(slot->scratch);
        free(slot->op);
    }
    free(comm->missing);
    ops_free(comm->queue);
    ops_free(comm->sends);
    ops_free(comm->spare);
}

/* ---- endings -------------------------------------------------------------------------------- */

static void op_over(struct mpi_comm *comm, struct mpi_op *op, int status)
{
    op->status = status;
    comm->unfinished--;
    atomic_store_explicit(&op->over, true, memory_order_release);
}

static void ops_over_broken(struct mpi_comm *comm, struct mpi_op *list)
{
    for (; list; list = list->next) {
        if (atomic_load_explicit(&list->over, memory_order_relaxed))
            continue;
        snprintf(list->text, sizeof list->text, "%s", comm->broken_text);
        op_over(comm, list, LS_ECOMM);
    }
}

/* A failed MPI call, or a rank that does not come, leaves messages in flight that nobody will
 * match: the communicator is of no use from here on, and nothing that is pending on it will end
 * otherwise. broken_text says why. */
static void comm_end_all(struct mpi_comm *comm)
{
    comm->broken = true;
    for (int s = 0; s < MPI_ACTIVE; s++) {
        if (comm->slots[s].op) {
            comm->slots[s].op->next = NULL;
            ops_over_broken(comm, comm->slots[s].op);
        }
        comm->slots[s].op = NULL;
    }
    ops_over_broken(comm, comm->queue);
    ops_over_broken(comm, comm->sends);
    comm->queue = comm->sends = NULL;
}

/* Before that, where MPI may be called: buffers are their callers' again. */
static void comm_drop_all(struct mpi_comm *comm)
{
    for (const struct mpi_op *op = comm->sends; op; op = op->next)
        requests_drop(op->parts, op->parts_count);
    for (int s = 0; s < MPI_ACTIVE; s++)
        slot_drop(&comm->slots[s]);
}

static void comm_break(struct mpi_comm *comm, const char *what, int code)
{
    char reason[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(code, reason, &length);
    snprintf(comm->broken_text, sizeof comm->broken_text, "%s failed: %.400s", what, reason);
    comm_drop_all(comm);
    comm_end_all(comm);
}

void comm_mpi_retire(struct mpi_comm *comm, struct mpi_op *op)
{
    if (!comm->broken) /* behind a part of another length than expected */
        requests_drop(op->parts, op->parts_count);
    if (op->parts != op->few_parts)
        free(op->parts);
    op->parts = NULL;
    op->parts_count = 0;
    op->next = comm->spare;
    comm->spare = op;
}

/* ---- collectives ---------------------------------------------------------------------------- */

static int tag_of(const struct mpi_comm *comm, const struct mpi_op *op, int which)
{
    uint64_t period = (uint64_t)comm->tag_max / TAGS;
    return (int)(op->call.sequence % period) * TAGS + which;
}

static float *lane_scratch(const struct mpi_comm *comm, const struct mpi_slot *slot,
                           const struct mpi_lane *lane)
{
    size_t bytes = comm_rounds_scratch_bytes(comm->base.size, &limits);
    return slot->scratch ? (float *)(slot->scratch + (size_t)lane->scratch * bytes) : NULL;
}

/* Adds either the sends or the receives of the lane's phase to its requests. */
static int lane_post(struct mpi_comm *comm, struct mpi_slot *slot, int l, bool send)
{
    struct mpi_lane *lane = &slot->lanes[l];
    const struct comm_rounds *rounds = &slot->op->rounds;
    int n = comm->base.size, code = MPI_SUCCESS, tag = tag_of(comm, slot->op, 2 * l + lane->phase);
    float *scratch = lane_scratch(comm, slot, lane);
    for (int i = 1; i < n && code == MPI_SUCCESS; i++) {
        int peer = (comm->base.rank + (send ? i : n - i)) % n;
        MPI_Request *request = &lane->requests[lane->requests_count];
        struct comm_message message;
        comm_rounds_message(rounds, lane->round, lane->phase, peer, scratch, &message);
        if (send ? !message.send_bytes : !message.recv_bytes)
            continue;
        lane->peers[lane->requests_count++] = send ? ~peer : peer;
        code = send ? MPI_Isend(message.send, (int)message.send_bytes, MPI_BYTE, peer, tag,
                                comm->group, request)
                    : MPI_Irecv(message.recv, (int)message.recv_bytes, MPI_BYTE, peer, tag,
                                comm->group, request);
    }
    return code;
}

/* What goes out is made in scratch first. */
static bool sends_scratch(const struct mpi_op *op)
{
    return op->call.op == COMM_REDUCE_SCATTER_BF16;
}

/* What is to be added waits for scratch; what a peer waits for goes out at once where it can. */
static int lane_begin(struct mpi_comm *comm, struct mpi_slot *slot, int l)
{
    struct mpi_lane *lane = &slot->lanes[l];
    lane->busy = lane->round < slot->op->rounds.count;
    lane->requests_count = 0;
    if (!lane->busy)
        return MPI_SUCCESS;
    lane->lacks_scratch = comm_is_sum(slot->op->call.op) && lane->phase == 0;
    if (lane->lacks_scratch && sends_scratch(slot->op))
        return MPI_SUCCESS;
    int code = lane->lacks_scratch ? MPI_SUCCESS : lane_post(comm, slot, l, false);
    return code == MPI_SUCCESS ? lane_post(comm, slot, l, true) : code;
}

/* Gives free scratch to the earliest rounds that lack it. */
static int scratch_assign(struct mpi_comm *comm, struct mpi_slot *slot)
{
    int code = MPI_SUCCESS;
    for (int i = 0; i < MPI_SCRATCHES && code == MPI_SUCCESS; i++) {
        int first = -1;
        for (int l = 0; l < MPI_LANES; l++)
            if (slot->lanes[l].busy && slot->lanes[l].lacks_scratch &&
                (first < 0 || slot->lanes[l].round < slot->lanes[first].round))
                first = l;
        if (slot->scratch_taken[i] || first < 0)
            continue;
        slot->scratch_taken[i] = true;
        slot->lanes[first].scratch = i;
        slot->lanes[first].lacks_scratch = false;
        code = lane_post(comm, slot, first, false);
        if (code == MPI_SUCCESS && sends_scratch(slot->op)) {
            const struct mpi_lane *lane = &slot->lanes[first];
            comm_rounds_prepare(&slot->op->rounds, lane->round, lane->phase,
                                lane_scratch(comm, slot, lane));
            code = lane_post(comm, slot, first, true);
        }
    }
    return code;
}

static int moving_begin(struct mpi_comm *comm, struct mpi_slot *slot)
{
    struct mpi_op *op = slot->op;
    int code = MPI_SUCCESS;
    op->stage = MPI_MOVING;
    if (op->call.op == COMM_BARRIER && !comm->base.check) {
        slot->lanes[0].busy = true;
        slot->lanes[0].lacks_scratch = false;
        slot->lanes[0].requests_count = 1;
        return MPI_Ibarrier(comm->group, slot->lanes[0].requests);
    }
    for (int l = 0; l < MPI_LANES && code == MPI_SUCCESS; l++) {
        slot->lanes[l].round = l;
        slot->lanes[l].phase = 0;
        code = lane_begin(comm, slot, l);
    }
    return code == MPI_SUCCESS ? scratch_assign(comm, slot) : code;
}

/* Lane 0 carries the calls of all ranks. */
static int checking_begin(struct mpi_comm *comm, struct mpi_slot *slot)
{
    struct mpi_op *op = slot->op;
    struct mpi_lane *lane = &slot->lanes[0];
    int n = comm->base.size, rank = comm->base.rank, code = MPI_SUCCESS;
    int tag = tag_of(comm, op, TAG_CHECK);
    struct mpi_call_wire *own = &slot->calls[rank];
    *own = (struct mpi_call_wire){
        op->call.count,     (int32_t)op->call.op,  (int32_t)op->call.dtype, op->call.peer,
        op->call.site.line, op->call.leaves.inner, op->call.leaves.onto,    ""};
    snprintf(own->file, sizeof own->file, "%.80s", op->call.site.file);
    op->stage = MPI_CHECKING;
    lane->busy = true;
    lane->lacks_scratch = false;
    lane->requests_count = 0;
    for (int i = 1; i < n && code == MPI_SUCCESS; i++) {
        int from = (rank + n - i) % n;
        lane->peers[lane->requests_count] = from;
        code = MPI_Irecv(&slot->calls[from], sizeof *own, MPI_BYTE, from, tag, comm->group,
                         &lane->requests[lane->requests_count++]);
    }
    for (int i = 1; i < n && code == MPI_SUCCESS; i++) {
        int to = (rank + i) % n;
        lane->peers[lane->requests_count] = ~to;
        code = MPI_Isend(own, sizeof *own, MPI_BYTE, to, tag, comm->group,
                         &lane->requests[lane->requests_count++]);
    }
    return code;
}

static struct comm_call call_of_wire(const struct mpi_call_wire *wire)
{
    return (struct comm_call){.op = (enum comm_op)wire->op,
                              .dtype = (enum ls_dtype)wire->dtype,
                              .count = wire->count,
                              .peer = wire->peer,
                              .leaves = {wire->inner, wire->onto},
                              .site = {wire->file, wire->line}};
}

/* All ranks compare the same calls, so all come to the same end. */
static bool calls_agree(const struct mpi_comm *comm, const struct mpi_slot *slot)
{
    struct comm_call first = call_of_wire(&slot->calls[0]);
    for (int r = 1; r < comm->base.size; r++) {
        struct comm_call other = call_of_wire(&slot->calls[r]);
        if (comm_calls_match(&first, &other))
            continue;
        snprintf(slot->op->text, sizeof slot->op->text,
                 "mismatch: rank 0 calls %s, rank %d calls %s; nothing was moved",
                 comm_describe(&first).text, r, comm_describe(&other).text);
        return false;
    }
    return true;
}

static int64_t slot_scratch_bytes(int ranks)
{
    int64_t bytes = (int64_t)comm_rounds_scratch_bytes(ranks, &limits);
    return ls_round_up(bytes * MPI_SCRATCHES, PAGE);
}

int64_t ls_comm_mpi_sum_bytes(int ranks)
{
    return MPI_ACTIVE * slot_scratch_bytes(ranks);
}

/* For the first sum, for all slots: which of them a later one finds free depends on time. */
static bool scratch_take(struct mpi_comm *comm)
{
    size_t bytes = (size_t)slot_scratch_bytes(comm->base.size);
    for (int s = 0; s < MPI_ACTIVE; s++)
        if (!comm->slots[s].scratch && !(comm->slots[s].scratch = aligned_alloc(PAGE, bytes)))
            return false;
    return true;
}

static int slot_begin(struct mpi_comm *comm, struct mpi_slot *slot)
{
    struct mpi_op *op = slot->op;
    comm_rounds_init(&op->rounds, &op->call, &comm->ops, comm->base.size, comm->base.rank, &limits);
    if (comm_is_sum(op->call.op) && !slot->scratch && !scratch_take(comm))
        return MPI_ERR_NO_MEM;
    return comm->base.check ? checking_begin(comm, slot) : moving_begin(comm, slot);
}

/* The lane's messages are through. */
static int lane_next(struct mpi_comm *comm, struct mpi_slot *slot, int l)
{
    struct mpi_op *op = slot->op;
    struct mpi_lane *lane = &slot->lanes[l];
    lane->busy = false;
    if (op->stage == MPI_CHECKING) {
        if (calls_agree(comm, slot))
            return moving_begin(comm, slot);
        op_over(comm, op, LS_ECOMM);
        slot->op = NULL;
        return MPI_SUCCESS;
    }
    if (op->call.op == COMM_BARRIER)
        return MPI_SUCCESS;
    comm_rounds_finish(&op->rounds, lane->round, lane->phase, lane_scratch(comm, slot, lane),
                       lane->inputs);
    if (comm_is_sum(op->call.op) && lane->phase == 0)
        slot->scratch_taken[lane->scratch] = false;
    if (++lane->phase == op->rounds.phases) {
        lane->phase = 0;
        lane->round += MPI_LANES;
    }
    int code = lane_begin(comm, slot, l);
    return code == MPI_SUCCESS ? scratch_assign(comm, slot) : code;
}

static bool slot_advance(struct mpi_comm *comm, struct mpi_slot *slot)
{
    struct mpi_op *op = slot->op;
    bool moved = false, busy = false;
    int code = MPI_SUCCESS;
    for (int l = 0; l < MPI_LANES && code == MPI_SUCCESS && slot->op; l++) {
        struct mpi_lane *lane = &slot->lanes[l];
        int through = 0;
        if (!lane->busy || lane->lacks_scratch)
            continue;
        code = MPI_Testall(lane->requests_count, lane->requests, &through, slot->statuses);
        if (through && code == MPI_SUCCESS) {
            code = lane_next(comm, slot, l);
            moved = true;
        }
    }
    for (int l = 0; l < MPI_LANES; l++)
        busy |= slot->lanes[l].busy;
    if (code != MPI_SUCCESS) {
        comm_break(comm, "an MPI message", code);
    } else if (slot->op && !busy) {
        op_over(comm, op, LS_OK);
        slot->op = NULL;
    }
    return moved || !slot->op;
}

/* Takes the oldest operation that waits its turn. */
static bool slot_fill(struct mpi_comm *comm, struct mpi_slot *slot)
{
    struct mpi_op *op = comm->queue;
    if (!op)
        return false;
    comm->queue = op->next;
    slot->op = op;
    int code = slot_begin(comm, slot);
    if (code != MPI_SUCCESS)
        comm_break(comm, "starting an MPI message", code);
    return true;
}

/* ---- send and recv -------------------------------------------------------------------------- */

static int64_t part_of(const struct mpi_op *op, int part, int64_t *offset)
{
    int64_t bytes = op->call.count * (int64_t)ls_dtype_bytes(op->call.dtype);
    return comm_part(bytes, part_bytes_max, part, offset);
}

/* All parts at once: between two calls to the same peer and tag the order is that of the calls. */
static int parts_post(struct mpi_comm *comm, struct mpi_op *op)
{
    const struct comm_call *call = &op->call;
    int64_t bytes = call->count * (int64_t)ls_dtype_bytes(call->dtype), offset;
    int code = MPI_SUCCESS, parts = (int)comm_parts_count(bytes, part_bytes_max);
    op->parts = parts <= MPI_PARTS ? op->few_parts : calloc((size_t)parts, sizeof *op->parts);
    if (!op->parts)
        return MPI_ERR_NO_MEM;
    for (int i = 0; i < parts && code == MPI_SUCCESS; i++) {
        int length = (int)part_of(op, i, &offset);
        code = call->op == COMM_SEND
                   ? MPI_Isend((const char *)call->input + offset, length, MPI_BYTE, call->peer,
                               call->tag, comm->pairs, &op->parts[i])
                   : MPI_Irecv((char *)call->output + offset, length, MPI_BYTE, call->peer,
                               call->tag, comm->pairs, &op->parts[i]);
        op->parts_count += code == MPI_SUCCESS;
    }
    return code;
}

/* True if the operation is over. A message of another length than expected spoils this recv
 * only; MPI reports a longer one as an error. */
static bool parts_advance(struct mpi_comm *comm, struct mpi_op *op)
{
    for (int i = 0; i < op->parts_count; i++) {
        MPI_Status status;
        int through = 0, received = 0;
        int64_t offset, expected = part_of(op, i, &offset);
        if (op->parts[i] == MPI_REQUEST_NULL)
            continue;
        int code = MPI_Test(&op->parts[i], &through, &status), class = MPI_SUCCESS;
        MPI_Error_class(code, &class);
        bool longer = class == MPI_ERR_TRUNCATE;
        if (code != MPI_SUCCESS && !longer) {
            comm_break(comm, "an MPI message", code);
            return true;
        }
        if (!through && !longer)
            return false;
        if (op->call.op == COMM_RECV && !longer)
            MPI_Get_count(&status, MPI_BYTE, &received);
        if (op->call.op == COMM_RECV && received != expected) {
            snprintf(op->text, sizeof op->text,
                     "mismatch: rank %d sends %s than the %lld bytes that are expected here",
                     op->call.peer, longer ? "more" : "less", (long long)expected);
            op_over(comm, op, LS_ECOMM);
            return true;
        }
    }
    op_over(comm, op, LS_OK);
    return true;
}

/* ---- who is late ----------------------------------------------------------------------------- */

/* Adds the peers whose messages (or, of sends, whose receipt) have not come. */
static void lane_late(const struct mpi_lane *lane, bool sends, bool *missing)
{
    for (int i = 0; lane->busy && !lane->lacks_scratch && i < lane->requests_count; i++) {
        int through = 0, peer = lane->peers[i];
        MPI_Status status;
        if ((peer < 0) != sends || lane->requests[i] == MPI_REQUEST_NULL)
            continue;
        if (MPI_Request_get_status(lane->requests[i], &through, &status) == MPI_SUCCESS && !through)
            missing[peer < 0 ? ~peer : peer] = true;
    }
}

/* The operation that has been in its slot longest: those behind it wait for the same. */
static struct mpi_slot *oldest_slot(struct mpi_comm *comm)
{
    struct mpi_slot *oldest = NULL;
    for (int s = 0; s < MPI_ACTIVE; s++) {
        struct mpi_slot *slot = &comm->slots[s];
        if (slot->op && (!oldest || slot->op->call.sequence < oldest->op->call.sequence))
            oldest = slot;
    }
    return oldest;
}

/* missing[n]: who owes a message. A barrier's are not ours: any rank may. */
static void find_missing(struct mpi_comm *comm, struct mpi_slot *slot, bool *missing)
{
    int n = comm->base.size, found = 0;
    memset(missing, 0, (size_t)n * sizeof *missing);
    bool counted = slot->op->call.op != COMM_BARRIER || slot->op->stage == MPI_CHECKING;
    for (int sends = 0; counted && sends < 2 && !found; sends++) {
        for (int l = 0; l < MPI_LANES; l++)
            lane_late(&slot->lanes[l], sends, missing);
        for (int r = 0; r < n; r++)
            found += missing[r];
    }
    for (int r = 0; r < n && !found; r++)
        missing[r] = r != comm->base.rank;
}

/* Those that owe a message and are not known to have come; else all that owe one. */
static void find_late(struct mpi_comm *comm, const struct comm_call *call, const bool *missing,
                      struct flight_late *late)
{
    for (int known = 1; known >= 0 && late->count == 0; known--) {
        for (int r = 0; r < comm->base.size; r++) {
            struct flight_record *record = comm->base.board->records[comm->world_ranks[r]];
            bool has_come = known && record && flight_has_started(record, comm->base.id, call);
            if (missing[r] && !has_come)
                flight_late_add(late, &comm->base, r);
        }
    }
}

int comm_mpi_ended(const struct mpi_comm *comm, const bool *among)
{
    for (int r = 0; r < comm->base.size && ls_mpi_survives(); r++)
        if ((!among || among[r]) && flight_ended(&comm->base, r))
            return r;
    return -1;
}

bool comm_mpi_look(struct mpi_comm *comm, const struct mpi_op *op, struct flight_wait *wait,
                   double now_s)
{
    struct flight_late late = {0};
    const struct comm_call *call = &op->call;
    struct mpi_slot *slot = oldest_slot(comm);
    memset(comm->missing, 0, (size_t)comm->base.size * sizeof *comm->missing);
    if (!comm_is_collective(call->op)) {
        comm->missing[call->peer] = true;
        flight_late_add(&late, &comm->base, call->peer);
    } else if (slot) {
        call = &slot->op->call;
        find_missing(comm, slot, comm->missing);
        find_late(comm, call, comm->missing, &late);
    }
    int ended = comm_mpi_ended(comm, comm->missing);
    /* What it sent before may have come since. */
    if (ended >= 0 && (comm_mpi_advance(comm) || atomic_load(&op->over)))
        return true;
    if (ended >= 0) {
        comm_mpi_give_up(comm, true, "the process of %s has ended",
                         comm_rank_text(ended, comm->world_ranks[ended]).text);
        return false;
    }
    if (flight_wait_look(wait, &comm->base, &late, now_s))
        return true;
    flight_late_text(&comm->base, call, now_s - wait->begin_s, &late, comm->broken_text,
                     sizeof comm->broken_text);
    comm->broken_cause = flight_late_cause(&late);
    comm_drop_all(comm);
    comm_end_all(comm);
    return false;
}

void comm_mpi_give_up(struct mpi_comm *comm, bool drops, const char *format, ...)
{
    LS_FORMAT(comm->broken_text, format);
    if (drops)
        comm_drop_all(comm);
    comm_end_all(comm);
}

/* ---- what mpi.c calls ----------------------------------------------------------------------- */

static void append(struct mpi_op **list, struct mpi_op *op)
{
    while (*list)
        list = &(*list)->next;
    op->next = NULL;
    *list = op;
}

int comm_mpi_post(struct mpi_comm *comm, const struct comm_call *call, struct mpi_op **out,
                  struct ls_error *error)
{
    bool collective = comm_is_collective(call->op);
    if (comm->broken) {
        ls_error_set(error, LS_ECOMM, "%s: this communicator failed before: %s",
                     comm_describe(call).text, comm->broken_text);
        ls_error_blame(error, comm->broken_cause, "");
        return LS_ECOMM;
    }
    struct mpi_op *op = comm->spare;
    if (op)
        comm->spare = op->next;
    else
        op = calloc(1, sizeof *op);
    if (!op)
        return ls_error_set(error, LS_ENOMEM, "%s: no memory to start it",
                            comm_describe(call).text);
    op->call = *call;
    op->stage = MPI_QUEUED;
    op->parts_count = 0;
    op->parts = op->few_parts;
    atomic_store_explicit(&op->over, false, memory_order_relaxed);
    comm->unfinished++;
    append(collective ? &comm->queue : &comm->sends, op);
    int code = collective ? MPI_SUCCESS : parts_post(comm, op);
    if (code != MPI_SUCCESS)
        comm_break(comm, "starting an MPI message", code);
    *out = op;
    return LS_OK;
}

bool comm_mpi_advance(struct mpi_comm *comm)
{
    bool moved = false;
    for (int s = 0; s < MPI_ACTIVE; s++) {
        struct mpi_slot *slot = &comm->slots[s];
        if (!slot->op)
            moved |= slot_fill(comm, slot);
        if (slot->op)
            moved |= slot_advance(comm, slot);
    }
    for (struct mpi_op **at = &comm->sends; *at;) {
        struct mpi_op *op = *at;
        if (!parts_advance(comm, op)) {
            at = &op->next;
            continue;
        }
        moved = true;
        if (comm->broken)
            break;
        *at = op->next;
    }
    comm->moves += moved;
    return moved;
}
#else
/* Built without MPI: mpi.c says so to the caller. */
typedef int comm_mpi_op_is_empty;
#endif
