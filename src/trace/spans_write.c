/* A trace as a file: Chrome's Trace Event Format, as a list that grows at its end. */
#include "trace/append.h"
#include "trace/spans.h"

#include "trace/text.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { RANKS_SHOWN = 16, BUFFER_BYTES = 1 << 16, OBJECT_BYTES = 4096 };

/* The file, and which thread is being written. */
struct ls_trace_file {
    struct trace_append file;
    const struct ls_trace *trace;
    size_t tid;
    int64_t now_ns;
    struct ls_error *error;
    int status;                /* the first failure of a call; what follows does nothing */
    char buffer[BUFFER_BYTES]; /* whole objects */
    size_t used;
    struct trace_text text; /* the object under work, behind them */
    size_t count;
    struct ls_trace *traces[];
};

/* What is gathered goes to the file, or is gathered no more. */
static void drain(struct ls_trace_file *w)
{
    if (!w->status && w->used > 0)
        w->status = trace_append_write(&w->file, w->buffer, w->used, w->error);
    w->used = 0;
}

static struct trace_text *begin_object(struct ls_trace_file *w)
{
    if (sizeof w->buffer - w->used < OBJECT_BYTES)
        drain(w);
    w->text = (struct trace_text){.data = w->buffer + w->used, .size = OBJECT_BYTES};
    return &w->text;
}

static void end_object(struct ls_trace_file *w)
{
    trace_text_put(&w->text, ",\n");
    LS_ASSERT(!w->text.overflow); /* names are literals, and copies are cut */
    w->used += w->text.used;
}

/* ---- names and order ------------------------------------------------------------------------- */

static void put_metadata(struct ls_trace_file *w, const char *what, const char *name, int64_t order)
{
    struct trace_text *text = begin_object(w);
    trace_text_printf(text, "{\"name\":\"%s\",\"ph\":\"M\",\"pid\":%d,\"tid\":%zu,\"args\":{", what,
                      w->trace->rank, w->tid);
    if (name) {
        trace_text_put(text, "\"name\":");
        trace_text_json(text, name);
    } else {
        trace_text_printf(text, "\"sort_index\":%lld", (long long)order);
    }
    trace_text_put(text, "}}");
    end_object(w);
}

static void put_names(struct ls_trace_file *w)
{
    char host[128] = "", process[192];
    if (gethostname(host, sizeof host - 1))
        host[0] = '\0';
    snprintf(process, sizeof process, "rank %d%s%s", w->trace->rank, *host ? " on " : "", host);
    put_metadata(w, "process_name", process, 0);
    put_metadata(w, "process_sort_index", NULL, w->trace->rank);
    put_metadata(w, "thread_name", w->trace->role, 0);
    put_metadata(w, "thread_sort_index", NULL, (int64_t)w->tid);
}

/* ---- events ---------------------------------------------------------------------------------- */

/* Microseconds. */
static void put_time(struct trace_text *text, const char *key, int64_t ns)
{
    trace_text_printf(text, ",\"%s\":%lld.%03d", key, (long long)(ns / 1000), (int)(ns % 1000));
}

static void put_field(struct trace_text *text, const char *key, const char *value)
{
    trace_text_printf(text, ",\"%s\":", key);
    trace_text_json(text, value ? value : "");
}

static void put_head(struct ls_trace_file *w, const char *name, const char *category,
                     const char *ph, int64_t ns)
{
    struct trace_text *text = begin_object(w);
    trace_text_put(text, "{\"name\":");
    trace_text_json(text, name);
    put_field(text, "cat", category);
    trace_text_printf(text, ",\"ph\":\"%s\",\"pid\":%d,\"tid\":%zu", ph, w->trace->rank, w->tid);
    put_time(text, "ts", ns);
}

static void put_transfer(struct ls_trace_file *w, const struct trace_event *event)
{
    struct trace_text *text = &w->text;
    const struct trace_transfer *transfer = &event->transfer;
    const struct trace_group *group = &w->trace->groups[transfer->group];
    put_field(text, "operation", event->name);
    put_field(text, "kind", transfer->kind);
    put_field(text, "group", group->name);
    trace_text_printf(text, ",\"size\":%d,\"ranks\":[", group->size);
    for (int i = 0; i < group->size && i < RANKS_SHOWN; i++)
        trace_text_printf(text, "%s%d", i ? "," : "", group->ranks[i]);
    trace_text_printf(text, "],\"bytes\":%lld,\"elements\":%lld", (long long)transfer->bytes,
                      (long long)transfer->elements);
    put_field(text, "dtype", transfer->dtype);
    if (transfer->peer >= 0)
        trace_text_printf(text, ",\"peer\":%d", transfer->peer);
    if (transfer->label[0])
        put_field(text, "label", transfer->label);
}

static void put_op(struct ls_trace_file *w, const struct ls_trace_op *op)
{
    put_field(&w->text, "dtype", op->dtype);
    trace_text_printf(&w->text, ",\"m\":%lld,\"n\":%lld,\"k\":%lld,\"flops\":%.0f,\"bytes\":%.0f",
                      (long long)op->m, (long long)op->n, (long long)op->k, op->flops, op->bytes);
}

static bool is_transfer(const struct trace_event *event)
{
    return event->type != TRACE_SPAN && event->type != TRACE_OP && event->transfer.kind;
}

/* A span of no step is of those before the first, and so on: what does not hold is left out. */
static void put_args(struct ls_trace_file *w, const struct trace_event *event)
{
    static const char *const keys[LS_TRACE_KEYS] = {"step", "micro_batch", "chunk", "stage",
                                                    "layer"};
    struct trace_text *text = &w->text;
    trace_text_put(text, ",\"args\":{\"phase\":");
    trace_text_json(text, event->phase ? event->phase : "");
    for (int key = 0; key < LS_TRACE_KEYS; key++)
        if (event->at[key] >= 0)
            trace_text_printf(text, ",\"%s\":%lld", keys[key], (long long)event->at[key]);
    if (is_transfer(event))
        put_transfer(w, event);
    if (event->type == TRACE_OP)
        put_op(w, &event->op);
    if (event->duration_ns < 0)
        trace_text_put(text, ",\"unfinished\":true");
    trace_text_put(text, "}}");
}

/* An arrow from a send to its receive; it ties to the span around it. */
static void put_flow(struct ls_trace_file *w, const struct trace_event *event, bool finish,
                     int64_t ns)
{
    put_head(w, "message", "message", finish ? "f" : "s", ns);
    trace_text_printf(&w->text, ",\"id\":\"%016llx\"%s}", (unsigned long long)event->transfer.flow,
                      finish ? ",\"bp\":\"e\"" : "");
    end_object(w);
}

static void put_span(struct ls_trace_file *w, const struct trace_event *event)
{
    int64_t duration = event->duration_ns < 0 ? w->now_ns - event->begin_ns : event->duration_ns;
    char name[64];
    snprintf(name, sizeof name, "%s%s",
             event->type == TRACE_WAIT    ? "wait for "
             : event->type == TRACE_START ? "start "
                                          : "",
             event->name);
    put_head(w, name, event->category, "X", event->begin_ns);
    put_time(&w->text, "dur", duration);
    put_args(w, event);
    end_object(w);
    if (!is_transfer(event) || !event->transfer.flow)
        return;
    bool starts = event->type != TRACE_WAIT, ends = event->type != TRACE_START;
    if (starts && event->transfer.send)
        put_flow(w, event, false, event->begin_ns);
    if (ends && event->transfer.receive && event->duration_ns > 0)
        put_flow(w, event, true, event->begin_ns + duration - 1);
}

static void put_background(struct ls_trace_file *w, const struct trace_event *event)
{
    int64_t end = event->duration_ns < 0 ? w->now_ns : event->begin_ns + event->duration_ns;
    for (int i = 0; i < 2; i++) {
        put_head(w, event->name, event->category, i ? "e" : "b", i ? end : event->begin_ns);
        trace_text_printf(&w->text, ",\"id\":\"%d.%zu.%llu\"", w->trace->rank, w->tid,
                          (unsigned long long)event->transfer.number);
        if (i == 0)
            put_args(w, event);
        else
            trace_text_put(&w->text, "}");
        end_object(w);
    }
}

static void put_event(struct ls_trace_file *w, const struct trace_event *event)
{
    if (event->type == TRACE_BACKGROUND)
        put_background(w, event);
    else
        put_span(w, event);
}

/* What is under way ends now, or is not there yet: its own duration is kept to be counted later. */
static void put_open(struct ls_trace_file *w)
{
    for (int i = 0; i < w->trace->depth; i++) {
        struct trace_event event = w->trace->open[i];
        event.duration_ns = -1;
        put_event(w, &event);
    }
    for (int i = 0; i < TRACE_BACKGROUND_MAX; i++)
        if (w->trace->background[i].type != TRACE_NONE)
            put_event(w, &w->trace->background[i]);
}

/* ---- the file -------------------------------------------------------------------------------- */

static void put_group(struct ls_trace_file *w, const struct trace_group *group)
{
    struct trace_text *text = begin_object(w);
    trace_text_printf(
        text, "{\"name\":\"group\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"name\":", w->trace->rank);
    trace_text_json(text, group->name);
    trace_text_put(text, ",\"ranks\":[");
    for (int i = 0; i < group->size; i++) {
        if (text->used + 16 > OBJECT_BYTES) { /* a long list goes on in the next piece */
            w->used += text->used;
            text = begin_object(w);
        }
        trace_text_printf(text, "%s%d", i ? "," : "", group->ranks[i]);
    }
    trace_text_put(text, "]}}");
    end_object(w);
}

/* Sums up to here; the last one in the file counts. */
static void put_sums(struct ls_trace_file *w)
{
    struct timespec wall;
    uint64_t dropped = 0, kept = 0;
    clock_gettime(CLOCK_REALTIME, &wall);
    for (size_t t = 0; t < w->count; t++) {
        dropped += w->traces[t]->dropped;
        kept += w->traces[t]->written - w->traces[t]->dropped;
    }
    trace_text_printf(begin_object(w),
                      "{\"name\":\"events\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"kept\":%llu,"
                      "\"dropped\":%llu,\"monotonic_ns\":%lld,\"realtime_ns\":%lld%09ld}}",
                      w->traces[0]->rank, (unsigned long long)kept, (unsigned long long)dropped,
                      (long long)w->now_ns, (long long)wall.tv_sec, wall.tv_nsec);
    end_object(w);
}

static void call_begin(struct ls_trace_file *w, struct ls_error *error)
{
    w->now_ns = trace_now_ns();
    w->error = error;
    w->status = LS_OK;
    w->used = 0;
}

/* Those that are not in the file yet; after a failure they stay. */
static void put_new(struct ls_trace_file *w, struct ls_trace *trace)
{
    bool full = w->file.size > TRACE_FILE_BYTES_MAX - 2 * BUFFER_BYTES;
    uint64_t next = trace->passed;
    if (full) {
        trace->dropped += trace->written - trace->passed;
        trace->passed = trace->written;
    }
    while (trace->passed < trace->written && !w->status) {
        while (next < trace->written && sizeof w->buffer - w->used >= 4 * OBJECT_BYTES)
            put_event(w, &trace->ring[next++ % trace->capacity]);
        drain(w);
        if (!w->status)
            trace->passed = next;
    }
}

int ls_trace_file_open(struct ls_trace_file **out, const char *path, struct ls_trace *const *traces,
                       size_t count, struct ls_error *error)
{
    struct ls_trace_file *w = calloc(1, sizeof *w + count * sizeof w->traces[0]);
    *out = NULL;
    if (!w)
        return ls_error_set(error, LS_ENOMEM, "%s: no memory for a trace's file", path);
    int status = trace_append_open(&w->file, path, O_TRUNC, error);
    if (status) {
        free(w);
        return status;
    }
    w->count = count;
    memcpy(w->traces, traces, count * sizeof w->traces[0]);
    *out = w;
    return LS_OK;
}

/* Once, before the first events. */
static void put_start(struct ls_trace_file *w)
{
    memcpy(w->buffer, "[\n", 2);
    w->used = 2;
    for (size_t t = 0; t < w->count; t++) {
        w->trace = w->traces[t];
        w->tid = t;
        put_names(w);
    }
    w->trace = w->traces[0];
    for (int g = 0; g < w->trace->group_count; g++)
        put_group(w, &w->trace->groups[g]);
    drain(w);
}

static void write_new(struct ls_trace_file *w, struct ls_error *error)
{
    call_begin(w, error);
    if (w->file.size == 0)
        put_start(w);
    for (size_t t = 0; t < w->count && !w->status; t++) {
        w->trace = w->traces[t];
        w->tid = t;
        put_new(w, w->traces[t]);
    }
}

int ls_trace_file_write(struct ls_trace_file *w, struct ls_error *error)
{
    write_new(w, error);
    put_sums(w);
    drain(w);
    return w->status;
}

int ls_trace_file_close(struct ls_trace_file *w, struct ls_error *error)
{
    if (!w)
        return LS_OK;
    write_new(w, error);
    for (size_t t = 0; t < w->count; t++) {
        w->trace = w->traces[t];
        w->tid = t;
        put_open(w);
    }
    put_sums(w);
    memcpy(w->buffer + w->used - 2, "\n]\n", 3); /* in place of the last comma */
    w->used++;
    drain(w);
    int status = w->status, closed = trace_append_close(&w->file, status ? NULL : error);
    free(w);
    return status ? status : closed;
}
