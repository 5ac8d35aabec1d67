/* What a thread did and when: a ring of events. */
#include "trace/spans.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

int64_t trace_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int ls_trace_new(struct ls_trace **out, int rank, const char *role, size_t event_count,
                 struct ls_error *error)
{
    *out = NULL;
    size_t bytes;
    if (event_count == 0)
        return ls_error_set(error, LS_EINVAL, "a trace needs room for at least one event");
    if (!ls_size_mul(event_count, sizeof(struct trace_event), &bytes) ||
        !ls_size_add(bytes, sizeof(struct ls_trace), &bytes) || !(*out = calloc(1, bytes)))
        return ls_no_memory(error, "for a trace of %zu events", event_count);
    (*out)->rank = rank;
    (*out)->capacity = event_count;
    for (int key = 0; key < LS_TRACE_KEYS; key++)
        (*out)->at[key] = -1;
    snprintf((*out)->role, sizeof(*out)->role, "%s", role);
    return LS_OK;
}

void ls_trace_free(struct ls_trace *trace)
{
    for (int g = 0; trace && g < trace->group_count; g++)
        free(trace->groups[g].ranks);
    free(trace);
}

uint64_t ls_trace_dropped(const struct ls_trace *trace)
{
    return trace ? trace->dropped : 0;
}

bool ls_trace_half_full(const struct ls_trace *trace)
{
    return trace && trace->written - trace->passed >= trace->capacity / 2;
}

void ls_trace_set(struct ls_trace *trace, enum ls_trace_key key, int64_t value)
{
    if (trace)
        trace->at[key] = value;
}

const char *ls_trace_phase(struct ls_trace *trace, const char *phase)
{
    const char *before = trace ? trace->phase : NULL;
    if (trace)
        trace->phase = phase;
    return before;
}

/* ---- spans ----------------------------------------------------------------------------------- */

static struct trace_event event_of(const struct ls_trace *trace, enum trace_event_type type)
{
    struct trace_event event = {.type = type, .phase = trace->phase, .begin_ns = trace_now_ns()};
    memcpy(event.at, trace->at, sizeof event.at);
    return event;
}

static void push(struct ls_trace *trace, const struct trace_event *event)
{
    if (trace->written - trace->passed == trace->capacity) {
        trace->passed++;
        trace->dropped++;
    }
    trace->ring[trace->written++ % trace->capacity] = *event;
}

static struct trace_event *open_span(struct ls_trace *trace, enum trace_event_type type)
{
    LS_ASSERT(trace->depth < TRACE_DEPTH_MAX);
    struct trace_event *event = &trace->open[trace->depth++];
    *event = event_of(trace, type);
    return event;
}

void ls_trace_begin(struct ls_trace *trace, const char *name, const char *category)
{
    if (!trace)
        return;
    LS_ASSERT(name && category);
    struct trace_event *event = open_span(trace, TRACE_SPAN);
    event->name = name;
    event->category = category;
}

void ls_trace_op(struct ls_trace *trace, const struct ls_trace_op *op)
{
    if (!trace)
        return;
    struct trace_event *event = open_span(trace, TRACE_OP);
    event->name = op->name;
    event->category = "op";
    event->op = *op;
}

void ls_trace_end(struct ls_trace *trace)
{
    if (!trace)
        return;
    LS_ASSERT(trace->depth > 0);
    struct trace_event *event = &trace->open[--trace->depth];
    event->duration_ns = trace_now_ns() - event->begin_ns;
    push(trace, event);
}

/* ---- transfers ------------------------------------------------------------------------------- */

int ls_trace_group(struct ls_trace *trace, const char *name, const int *ranks, int size, int *group,
                   struct ls_error *error)
{
    *group = 0;
    if (!trace)
        return LS_OK;
    if (trace->group_count == TRACE_GROUPS_MAX)
        return ls_error_set(error, LS_EINVAL, "a trace takes at most %d groups of ranks",
                            TRACE_GROUPS_MAX);
    struct trace_group *added = &trace->groups[trace->group_count];
    added->ranks = malloc((size_t)size * sizeof *added->ranks);
    if (!added->ranks)
        return ls_no_memory(error, "for a group of %d ranks", size);
    memcpy(added->ranks, ranks, (size_t)size * sizeof *added->ranks);
    added->size = size;
    snprintf(added->name, sizeof added->name, "%s", name);
    *group = trace->group_count++;
    return LS_OK;
}

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

/* The same number on both ends of a message: its ranks, tag, and how many such came before. 0: no
 * room to count them. */
static uint64_t flow_of(struct ls_trace *trace, const struct ls_trace_transfer *transfer)
{
    const struct trace_group *group = &trace->groups[transfer->group];
    int from = transfer->send ? trace->rank : transfer->peer;
    int to = transfer->send ? transfer->peer : trace->rank;
    uint64_t hash = 1;
    for (const char *c = group->name; *c; c++)
        hash = mix(hash, (unsigned char)*c);
    hash = mix(mix(mix(hash, (uint64_t)from), (uint64_t)to), (uint64_t)transfer->tag) | 1;
    for (uint64_t probe = 0; probe < TRACE_FLOWS_MAX; probe++) {
        struct trace_flow *flow = &trace->flows[(hash + probe) % TRACE_FLOWS_MAX];
        if (flow->key && flow->key != hash)
            continue;
        flow->key = hash;
        return mix(hash, ++flow->count) | 1;
    }
    return 0;
}

static void set_transfer(struct ls_trace *trace, struct trace_event *event,
                         const struct ls_trace_transfer *transfer)
{
    event->name = transfer->operation;
    event->category = "comm";
    event->transfer = (struct trace_transfer){
        .kind = transfer->kind,
        .dtype = transfer->dtype,
        .bytes = transfer->bytes,
        .elements = transfer->elements,
        .group = transfer->group,
        .peer = transfer->peer,
        .send = transfer->send,
        .receive = transfer->receive,
        .flow = transfer->send || transfer->receive ? flow_of(trace, transfer) : 0,
    };
    snprintf(event->transfer.label, sizeof event->transfer.label, "%s",
             transfer->label ? transfer->label : "");
}

void ls_trace_transfer(struct ls_trace *trace, const struct ls_trace_transfer *transfer)
{
    if (trace)
        set_transfer(trace, open_span(trace, TRACE_TRANSFER), transfer);
}

/* A span about the transfer in the background of that number. */
static void open_about(struct ls_trace *trace, enum trace_event_type type, const char *category,
                       int number)
{
    struct trace_event *span = open_span(trace, type);
    span->name = "a transfer";
    span->category = category;
    if (number == 0)
        return;
    span->name = trace->background[number - 1].name;
    span->transfer = trace->background[number - 1].transfer;
}

/* Its place in background, from 1; 0 if all are taken. */
static int background_take(struct ls_trace *trace)
{
    for (int i = 0; i < TRACE_BACKGROUND_MAX; i++) {
        /* Places come free in about the order in which they were taken. */
        int at = (trace->background_next + i) % TRACE_BACKGROUND_MAX;
        if (trace->background[at].type == TRACE_NONE) {
            trace->background_next = at + 1;
            return at + 1;
        }
    }
    return 0;
}

int ls_trace_start(struct ls_trace *trace, const struct ls_trace_transfer *transfer)
{
    if (!trace)
        return 0;
    int number = background_take(trace);
    if (number) {
        struct trace_event *event = &trace->background[number - 1];
        *event = event_of(trace, TRACE_BACKGROUND);
        set_transfer(trace, event, transfer);
        event->transfer.number = ++trace->started;
        event->duration_ns = -1;
    }
    open_about(trace, TRACE_START, "start", number);
    return number;
}

void ls_trace_done(struct ls_trace *trace, int number)
{
    if (!trace || number == 0)
        return;
    struct trace_event *event = &trace->background[number - 1];
    if (event->duration_ns < 0)
        event->duration_ns = trace_now_ns() - event->begin_ns;
}

void ls_trace_wait(struct ls_trace *trace, int number)
{
    if (trace)
        open_about(trace, TRACE_WAIT, "wait", number);
}

void ls_trace_finish(struct ls_trace *trace, int number)
{
    if (!trace || number == 0)
        return;
    ls_trace_done(trace, number);
    push(trace, &trace->background[number - 1]);
    trace->background[number - 1].type = TRACE_NONE;
}
