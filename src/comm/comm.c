/* The face of every transport: arguments are checked here, requests and statistics kept. */
#include "comm/inquire.h"

#include <stdio.h>
#include <stdlib.h>

static const char *const op_names[] = {"all_reduce",     "all_reduce_max",
                                       "reduce_scatter", "reduce_scatter_bf16",
                                       "all_gather",     "all_to_all",
                                       "broadcast",      "barrier",
                                       "send",           "recv"};

const char *ls_comm_kind_name(enum ls_comm_kind kind)
{
    static const char *const names[] = {"all_reduce", "reduce_scatter", "all_gather", "all_to_all",
                                        "broadcast",  "send",           "other"};
    return names[kind];
}

const char *ls_transport_name(enum ls_transport transport)
{
    static const char *const names[] = {"self", "thread", "mpi", "alone"};
    return names[transport];
}

int comm_init(struct ls_comm *comm, const struct comm_transport *transport, int rank, int size,
              struct ls_error *error)
{
    *comm = (struct ls_comm){
        .transport = transport, .rank = rank, .size = size, .id = 1, .name = "world"};
    comm->queue = &comm->own;
#ifdef LS_COMM_CHECK
    comm->check = true;
#endif
    comm->scratch = calloc((size_t)size * COMM_SCRATCH_WORDS, sizeof *comm->scratch);
    comm->pair_sequence = calloc((size_t)size * 2, sizeof *comm->pair_sequence);
    if (!comm->scratch || !comm->pair_sequence)
        return ls_no_memory(error, "for a communicator of %d ranks", size);
    return LS_OK;
}

void comm_release(struct ls_comm *comm)
{
    free(comm->pair_sequence);
    free(comm->scratch);
}

void ls_comm_free(struct ls_comm *comm)
{
    if (comm)
        comm->transport->free(comm);
}

int ls_comm_rank(const struct ls_comm *comm)
{
    return comm->rank;
}
int ls_comm_size(const struct ls_comm *comm)
{
    return comm->size;
}
int ls_comm_machine_ranks(const struct ls_comm *comm)
{
    return comm->board->machine_ranks;
}
int ls_comm_core_ranks(const struct ls_comm *comm)
{
    return comm->board->core_ranks;
}
bool ls_comm_on_machine(const struct ls_comm *comm, int world_rank)
{
    return !comm->board->here || comm->board->here[world_rank];
}
bool ls_comm_first_on_machine(const struct ls_comm *comm)
{
    int lower = 0;
    while (lower < comm->rank && !ls_comm_on_machine(comm, comm->world_ranks[lower]))
        lower++;
    return lower == comm->rank;
}
const char *ls_comm_rank_host(const struct ls_comm *comm, int world_rank)
{
    const struct inquirer *inquirer = comm->board->inquirer;
    return inquirer ? inquire_host(inquirer, world_rank) : "";
}
struct ls_rank_text ls_comm_rank_text(const struct ls_comm *comm, int world_rank)
{
    struct ls_rank_text out;
    const char *host = ls_comm_rank_host(comm, world_rank);
    snprintf(out.text, sizeof out.text, "rank %d%s%.64s", world_rank, *host ? " on host " : "",
             host);
    return out;
}
enum ls_transport ls_comm_transport(const struct ls_comm *comm)
{
    return comm->transport->kind;
}
void ls_comm_set_check(struct ls_comm *comm, bool check)
{
    comm->check = check;
}

int ls_comm_set_trace(struct ls_comm *comm, struct ls_trace *trace, struct ls_error *error)
{
    comm->trace = NULL;
    if (comm->size == 1)
        return LS_OK;
    int status =
        ls_trace_group(trace, comm->name, comm->world_ranks, comm->size, &comm->trace_group, error);
    comm->trace = status ? NULL : trace;
    return status;
}

void ls_comm_get_stats(const struct ls_comm *comm, struct ls_comm_stats *stats)
{
    *stats = comm->stats;
}

/* ---- pure arithmetic and texts --------------------------------------------------------------- */

int64_t comm_piece(int64_t count, int n, int rank, int64_t *begin)
{
    int64_t each = count / n, rest = count % n;
    *begin = each * rank + ls_min(rank, rest);
    return each + (rank < rest);
}

static enum ls_comm_kind op_kind(enum comm_op op)
{
    static const enum ls_comm_kind kinds[] = {
        LS_COMM_ALL_REDUCE, LS_COMM_ALL_REDUCE, LS_COMM_REDUCE_SCATTER, LS_COMM_REDUCE_SCATTER,
        LS_COMM_ALL_GATHER, LS_COMM_ALL_TO_ALL, LS_COMM_BROADCAST,      LS_COMM_OTHER,
        LS_COMM_SEND,       LS_COMM_SEND};
    return kinds[op];
}

/* As it travels. */
static enum ls_dtype sent_dtype(const struct comm_call *call)
{
    return call->op == COMM_REDUCE_SCATTER_BF16 ? LS_BF16 : call->dtype;
}

int64_t ls_operation_bytes(const struct ls_operation *operation, int64_t n, int64_t rank)
{
    int64_t bytes = operation->count * (int64_t)ls_dtype_bytes(operation->dtype), own, begin;
    switch (operation->kind) {
    case LS_COMM_ALL_REDUCE:
        own = comm_piece(operation->count, (int)n, (int)rank, &begin) *
              (int64_t)ls_dtype_bytes(operation->dtype);
        return bytes - own + own * (n - 1);
    case LS_COMM_REDUCE_SCATTER:
    case LS_COMM_ALL_GATHER:
    case LS_COMM_ALL_TO_ALL:
        return bytes * (n - 1);
    case LS_COMM_BROADCAST:
        return rank == operation->peer ? bytes * (n - 1) : 0;
    case LS_COMM_SEND:
        return operation->receive ? 0 : bytes;
    case LS_COMM_OTHER:
    case LS_COMM_KINDS:
        break;
    }
    return 0;
}

int64_t comm_sent_bytes(const struct comm_call *call, int n, int rank)
{
    const struct ls_operation operation = {.kind = op_kind(call->op),
                                           .dtype = sent_dtype(call),
                                           .count = call->count,
                                           .receive = call->op == COMM_RECV,
                                           .peer = call->peer};
    return ls_operation_bytes(&operation, n, rank);
}

/* What a function of this module stands for is no transfer of the caller's. */
static enum ls_comm_kind kind_of(const struct comm_call *call)
{
    return call->site.line ? op_kind(call->op) : LS_COMM_OTHER;
}

static void count_call(struct ls_comm *comm, const struct comm_call *call)
{
    int64_t bytes = comm_sent_bytes(call, comm->size, comm->rank);
    enum ls_comm_kind kind = kind_of(call);
    comm->stats.operations++;
    comm->stats.sent_bytes += bytes;
    comm->stats.kind[kind].operations++;
    comm->stats.kind[kind].sent_bytes += bytes;
}

struct comm_text comm_describe(const struct comm_call *call)
{
    struct comm_text out;
    char where[96], what[192] = "";
    const char *label = call->label ? call->label : "";
    if (call->site.line)
        snprintf(where, sizeof where, "%.80s:%d", call->site.file, call->site.line);
    else
        snprintf(where, sizeof where, "%.80s", call->site.file);
    if (call->op != COMM_BARRIER)
        snprintf(what, sizeof what, " of %lld %s%s%.47s%s", (long long)call->count,
                 ls_dtype_name(call->dtype), *label ? " [" : "", label, *label ? "]" : "");
    if (call->leaves.inner)
        ls_string_add(what, sizeof what, "", ", a leaf on each %d%s", call->leaves.inner,
                      call->leaves.onto ? ", onto a sum" : "");
    if (call->op == COMM_BROADCAST)
        snprintf(out.text, sizeof out.text, "broadcast%s from root %d (%s)", what, call->peer,
                 where);
    else if (comm_is_collective(call->op))
        snprintf(out.text, sizeof out.text, "%s%s (%s)", op_names[call->op], what, where);
    else
        snprintf(out.text, sizeof out.text, "%s%s %s rank %d with tag %d (%s)", op_names[call->op],
                 what, call->op == COMM_SEND ? "to" : "from", call->peer, call->tag, where);
    return out;
}

struct comm_rank_text comm_rank_text(int rank, int world_rank)
{
    struct comm_rank_text out;
    if (world_rank == rank)
        snprintf(out.text, sizeof out.text, "rank %d", rank);
    else
        snprintf(out.text, sizeof out.text, "rank %d (of the world: %d)", rank, world_rank);
    return out;
}

bool comm_calls_match(const struct comm_call *a, const struct comm_call *b)
{
    return a->op == b->op && a->dtype == b->dtype && a->count == b->count && a->peer == b->peer &&
           a->leaves.inner == b->leaves.inner && a->leaves.onto == b->leaves.onto;
}

/* The call as its event tells it. What stands for several operations says its own name. */
static struct ls_trace_transfer transfer_of(const struct ls_comm *comm,
                                            const struct comm_call *call)
{
    bool message = !comm_is_collective(call->op);
    return (struct ls_trace_transfer){
        .operation = op_names[call->op],
        .kind = ls_comm_kind_name(kind_of(call)),
        .group = comm->trace_group,
        .peer = message || call->op == COMM_BROADCAST ? comm->world_ranks[call->peer] : -1,
        .tag = call->tag,
        .send = call->op == COMM_SEND,
        .receive = call->op == COMM_RECV,
        .bytes = comm_sent_bytes(call, comm->size, comm->rank),
        .elements = call->count,
        .dtype = ls_dtype_name(call->dtype),
        .label = call->label || call->site.line ? call->label : call->site.file,
    };
}

/* ---- starting and waiting -------------------------------------------------------------------- */

static int call_validate(const struct ls_comm *comm, const struct comm_call *call,
                         struct ls_error *error)
{
    size_t bytes;
    bool needs_buffers = call->count > 0;
    if (call->count < 0 || !ls_size_mul((size_t)call->count, ls_dtype_bytes(call->dtype), &bytes) ||
        !ls_size_mul(bytes, (size_t)comm->size, &bytes) || bytes > INT64_MAX / 2)
        return ls_error_set(error, LS_EINVAL, "%s: the count is negative or too large",
                            comm_describe(call).text);
    if (needs_buffers && (!call->input || !call->output))
        return ls_error_set(error, LS_EINVAL, "%s: a buffer is NULL", comm_describe(call).text);
    if (call->peer < 0 || call->peer >= comm->size)
        return ls_error_set(error, LS_EINVAL, "%s: the group has ranks 0 to %d",
                            comm_describe(call).text, comm->size - 1);
    if (call->tag < 0 || call->tag > LS_COMM_TAG_MAX)
        return ls_error_set(error, LS_EINVAL, "%s: tags are 0 to %d", comm_describe(call).text,
                            LS_COMM_TAG_MAX);
    return LS_OK;
}

static void call_number(struct ls_comm *comm, struct comm_call *call)
{
    int side = call->op == COMM_RECV ? comm->size : 0;
    call->sequence =
        comm_is_collective(call->op) ? comm->sequence++ : comm->pair_sequence[side + call->peer]++;
}

/* A span until it is done, or of one in the background until it is started; then *traced is its
 * number. */
static void trace_start(struct ls_comm *comm, const struct comm_call *call, int *traced)
{
    if (!comm->trace)
        return;
    struct ls_trace_transfer transfer = transfer_of(comm, call);
    if (call->blocking)
        ls_trace_transfer(comm->trace, &transfer);
    else
        *traced = ls_trace_start(comm->trace, &transfer);
}

/* Nobody waits for a rank that is alone: planning records millions of its calls, and a look at the
 * clock for each was an eighth of their time. */
static double now_of(const struct ls_comm *comm)
{
    return comm->transport->kind == LS_TRANSPORT_ALONE ? 0 : ls_now_s();
}

static int call_start(struct ls_comm *comm, struct comm_call *call, double now_s,
                      struct comm_pending *pending, struct ls_error *error)
{
    call_number(comm, call);
    pending->flight = flight_start(comm, call, now_s);
    pending->traced = 0;
    trace_start(comm, call, &pending->traced);
    int status = comm->transport->start(comm, call, &pending->operation, error);
    if (status == LS_OK)
        count_call(comm, call);
    else
        flight_change(comm, pending->flight, FLIGHT_FAILED, now_s);
    if (status || !call->blocking)
        ls_trace_end(comm->trace);
    if (status)
        ls_trace_finish(comm->trace, pending->traced);
    return status;
}

static int call_wait(struct ls_comm *comm, const struct comm_pending *pending, double begin_s,
                     struct ls_error *error)
{
    int status = comm->transport->wait(comm, pending->operation, error);
    double end_s = now_of(comm);
    comm->stats.wait_s += end_s - begin_s;
    flight_change(comm, pending->flight, status == LS_OK ? FLIGHT_DONE : FLIGHT_FAILED, end_s);
    return status;
}

/* ---- commands -------------------------------------------------------------------------------- */

/* The arguments of each; of a wait comm and ticket alone. */
struct comm_command {
    struct ls_comm *comm;
    uint64_t ticket; /* 0: it is waited for at once */
    struct comm_call call;
};

/* What is pending by that ticket, 0: a free place; NULL: none. */
static struct comm_pending *pending_find(struct ls_comm *comm, uint64_t ticket)
{
    for (int slot = 0; slot < LS_COMM_PENDING_MAX; slot++)
        if (comm->pending[slot].ticket == ticket)
            return &comm->pending[slot];
    return NULL;
}

static int begin_run(struct ls_queue *queue, const struct ls_command *command,
                     struct ls_error *error)
{
    const struct comm_command *c = command->arguments;
    struct comm_call call = c->call;
    struct comm_pending *pending = pending_find(c->comm, 0);
    (void)queue;
    if (!pending)
        return ls_error_set(error, LS_EINVAL,
                            "%s: %d operations are pending on this communicator; wait for some "
                            "before starting more",
                            comm_describe(&call).text, LS_COMM_PENDING_MAX);
    int status = call_start(c->comm, &call, now_of(c->comm), pending, error);
    if (!status)
        pending->ticket = c->ticket;
    return status;
}

static int wait_run(struct ls_queue *queue, const struct ls_command *command,
                    struct ls_error *error)
{
    const struct comm_command *c = command->arguments;
    struct ls_comm *comm = c->comm;
    struct comm_pending *pending = pending_find(comm, c->ticket);
    double begin_s = now_of(comm);
    (void)queue;
    /* A stale copy of a request that was waited for is the caller's bug; stop before it waits for
     * another operation's buffers. */
    LS_ASSERT(pending);
    flight_change(comm, pending->flight, FLIGHT_WAITING, begin_s);
    ls_trace_wait(comm->trace, pending->traced);
    int status = call_wait(comm, pending, begin_s, error);
    ls_trace_end(comm->trace);
    ls_trace_finish(comm->trace, pending->traced);
    pending->ticket = 0;
    return status;
}

static int whole_run(struct ls_queue *queue, const struct ls_command *command,
                     struct ls_error *error)
{
    const struct comm_command *c = command->arguments;
    struct comm_call call = c->call;
    struct comm_pending pending = {0};
    double begin_s = now_of(c->comm);
    (void)queue;
    int status = call_start(c->comm, &call, begin_s, &pending, error);
    if (status)
        return status;
    status = call_wait(c->comm, &pending, begin_s, error);
    ls_trace_end(c->comm->trace);
    return status;
}

static void call_operands(const struct ls_queue *queue, const struct ls_command *command,
                          struct ls_operands *out)
{
    const struct comm_command *c = command->arguments;
    const struct comm_call *call = &c->call;
    const enum comm_op op = call->op;
    size_t block = (size_t)call->count * ls_dtype_bytes(call->dtype);
    size_t all = block * (size_t)c->comm->size;
    (void)queue;
    if (op == COMM_SEND || (op == COMM_BROADCAST && call->peer == c->comm->rank)) {
        ls_operand_add(out, c, &call->input, block, LS_READS);
        return;
    }
    if (op == COMM_RECV || op == COMM_BROADCAST) {
        ls_operand_add(out, c, &call->output, block, LS_WRITES);
        return;
    }
    if (call->input == call->output) { /* both pointers name it */
        ls_operand_add(out, c, &call->input, block, LS_READS);
        ls_operand_add(out, c, &call->output, block, LS_READS_WRITES);
        return;
    }
    ls_operand_add(out, c, &call->input,
                   comm_is_reduce_scatter(op) || op == COMM_ALL_TO_ALL ? all : block, LS_READS);
    ls_operand_add(out, c, &call->output,
                   op == COMM_ALL_GATHER || op == COMM_ALL_TO_ALL ? all : block,
                   call->leaves.onto ? LS_READS_WRITES : LS_WRITES);
}

static const struct ls_op begin_op = {sizeof(struct comm_command), call_operands, begin_run};
static const struct ls_op whole_op = {sizeof(struct comm_command), call_operands, whole_run};
static const struct ls_op wait_op = {sizeof(struct comm_command), NULL, wait_run};

bool ls_comm_command(const struct ls_command *command, struct ls_comm_told *out)
{
    const struct comm_command *c = command->arguments;
    const struct comm_call *call = &c->call;
    if (command->op != &begin_op && command->op != &whole_op && command->op != &wait_op)
        return false;
    *out = (struct ls_comm_told){.request = {c->comm, c->ticket}, .waits = true};
    if (command->op == &wait_op)
        return true;
    bool message = !comm_is_collective(call->op);
    out->waits = false;
    out->operation =
        (struct ls_operation){.name = op_names[call->op],
                              .kind = kind_of(call),
                              .dtype = sent_dtype(call),
                              .count = call->count,
                              .receive = call->op == COMM_RECV,
                              .peer = message || call->op == COMM_BROADCAST ? call->peer : -1,
                              .tag = call->tag,
                              .label = call->label,
                              .site = call->site};
    return true;
}

void ls_comm_set_queue(struct ls_comm *comm, struct ls_queue *queue)
{
    comm->queue = queue ? queue : &comm->own;
}

struct ls_request ls_request_queued;

static int begin(struct ls_comm *comm, struct comm_call call, struct ls_request *request,
                 struct ls_error *error)
{
    const bool keeps = request && request != LS_QUEUED;
    int status = call_validate(comm, &call, error);
    if (keeps)
        *request = (struct ls_request){0};
    if (status != LS_OK)
        return status;
    call.label = comm->label;
    call.blocking = !keeps;
    const struct comm_command c = {comm, keeps ? ++comm->tickets : 0, call};
    status = ls_submit(comm->queue, &(struct ls_command){keeps ? &begin_op : &whole_op, &c}, error);
    if (!status && keeps)
        *request = (struct ls_request){comm, c.ticket};
    if (!status && !request)
        status = ls_queue_synchronise(comm->queue, error);
    return status;
}

int ls_wait(struct ls_request *request, struct ls_error *error)
{
    const struct comm_command c = {.comm = request->comm, .ticket = request->ticket};
    if (!c.ticket)
        return LS_OK;
    *request = (struct ls_request){0};
    return ls_submit(c.comm->queue, &(struct ls_command){&wait_op, &c}, error);
}

bool ls_test(struct ls_request *request)
{
    struct ls_comm *comm = request->comm;
    if (!request->ticket)
        return true;
    if (!ls_queue_is_prompt(comm->queue))
        return false;
    const struct comm_pending *pending = pending_find(comm, request->ticket);
    LS_ASSERT(pending);
    bool done = comm->transport->test(comm, pending->operation);
    if (done)
        ls_trace_done(comm->trace, pending->traced);
    return done;
}

/* ---- the operations ---------------------------------------------------------------------- */

#define CALL(kind, type, from, to, ...)                                                            \
    (struct comm_call)                                                                             \
    {                                                                                              \
        .op = kind, .dtype = type, .input = from, .output = to, .count = count, .site = site,      \
        __VA_ARGS__                                                                                \
    }

int ls_all_reduce_start(struct ls_comm *comm, float *buffer, int64_t count,
                        struct ls_request *request, struct ls_call_site site,
                        struct ls_error *error)
{
    return begin(comm, CALL(COMM_ALL_REDUCE, LS_F32, buffer, buffer), request, error);
}

int ls_reduce_scatter_start(struct ls_comm *comm, const float *input, float *output, int64_t count,
                            struct ls_request *request, struct ls_call_site site,
                            struct ls_error *error)
{
    return begin(comm, CALL(COMM_REDUCE_SCATTER, LS_F32, input, output), request, error);
}

static int leaves_begin(struct ls_comm *comm, struct comm_call call, struct ls_comm_leaves leaves,
                        struct ls_request *request, struct ls_error *error)
{
    LS_ASSERT(leaves.inner >= 1 && comm->size % leaves.inner == 0);
    call.leaves = leaves;
    return begin(comm, call, request, error);
}

int ls_all_reduce_leaves_start(struct ls_comm *comm, const float *input, float *output,
                               int64_t count, struct ls_comm_leaves leaves,
                               struct ls_request *request, struct ls_call_site site,
                               struct ls_error *error)
{
    return leaves_begin(comm, CALL(COMM_ALL_REDUCE, LS_F32, input, output), leaves, request, error);
}

int ls_reduce_scatter_leaves_start(struct ls_comm *comm, const float *input, float *output,
                                   int64_t count, struct ls_comm_leaves leaves,
                                   struct ls_request *request, struct ls_call_site site,
                                   struct ls_error *error)
{
    return leaves_begin(comm, CALL(COMM_REDUCE_SCATTER, LS_F32, input, output), leaves, request,
                        error);
}

int ls_reduce_scatter_bf16_start(struct ls_comm *comm, const float *input, float *output,
                                 int64_t count, struct ls_request *request,
                                 struct ls_call_site site, struct ls_error *error)
{
    return begin(comm, CALL(COMM_REDUCE_SCATTER_BF16, LS_F32, input, output), request, error);
}

int ls_all_reduce_max_f32_start(struct ls_comm *comm, float *buffer, int64_t count,
                                struct ls_request *request, struct ls_call_site site,
                                struct ls_error *error)
{
    return begin(comm, CALL(COMM_ALL_REDUCE_MAX, LS_F32, buffer, buffer), request, error);
}

int ls_all_gather_start(struct ls_comm *comm, const void *input, void *output, int64_t count,
                        enum ls_dtype dtype, struct ls_request *request, struct ls_call_site site,
                        struct ls_error *error)
{
    return begin(comm, CALL(COMM_ALL_GATHER, dtype, input, output), request, error);
}

int ls_all_to_all_start(struct ls_comm *comm, const void *input, void *output, int64_t count,
                        enum ls_dtype dtype, struct ls_request *request, struct ls_call_site site,
                        struct ls_error *error)
{
    return begin(comm, CALL(COMM_ALL_TO_ALL, dtype, input, output), request, error);
}

int ls_broadcast_start(struct ls_comm *comm, void *buffer, int64_t count, enum ls_dtype dtype,
                       int root, struct ls_request *request, struct ls_call_site site,
                       struct ls_error *error)
{
    return begin(comm, CALL(COMM_BROADCAST, dtype, buffer, buffer, .peer = root), request, error);
}

int ls_send_start(struct ls_comm *comm, const void *buffer, int64_t count, enum ls_dtype dtype,
                  int peer, int tag, struct ls_request *request, struct ls_call_site site,
                  struct ls_error *error)
{
    /* Nothing is written there: output only marks that there is a buffer. */
    return begin(comm, CALL(COMM_SEND, dtype, buffer, (void *)buffer, .peer = peer, .tag = tag),
                 request, error);
}

int ls_recv_start(struct ls_comm *comm, void *buffer, int64_t count, enum ls_dtype dtype, int peer,
                  int tag, struct ls_request *request, struct ls_call_site site,
                  struct ls_error *error)
{
    return begin(comm, CALL(COMM_RECV, dtype, buffer, buffer, .peer = peer, .tag = tag), request,
                 error);
}

int ls_barrier_at(struct ls_comm *comm, struct ls_call_site site, struct ls_error *error)
{
    const struct comm_call call = {.op = COMM_BARRIER, .dtype = LS_U8, .site = site};
    return begin(comm, call, NULL, error);
}
