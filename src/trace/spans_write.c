/* A trace as a file: Chrome's Trace Event Format, as a list that grows at its end. */
#include "trace/append.h"
#include "trace/spans.h"

#include <lockstep/base/json.h>

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { RANKS_SHOWN = 16, BUFFER_BYTES = 1 << 16 };

/* The file, and which thread is being written. */
struct ls_trace_file {
    struct trace_append file;
    const struct ls_trace *trace;
    size_t tid;
    int64_t now_ns;
    struct ls_error *error;
    int status; /* the first failure of a call; what follows does nothing */
    FILE *out;  /* whole objects, gathered in buffer */
    char *buffer;
    size_t used, count;
    struct ls_trace *traces[];
};

/* What is gathered goes to the file, or is gathered no more. */
static void drain(struct ls_trace_file *w)
{
    if (!w->status && (fflush(w->out) || ferror(w->out)))
        w->status = ls_error_set(w->error, LS_ENOMEM, "%s: no memory for events", w->file.path);
    if (!w->status && w->used > 0)
        w->status = trace_append_write(&w->file, w->buffer, w->used, w->error);
    rewind(w->out);
}

static void put_text(FILE *out, const char *text)
{
    ls_json_string(out, text, strlen(text));
}

/* ---- names and order ------------------------------------------------------------------------- */

static void put_metadata(struct ls_trace_file *w, const char *what, const char *name, int64_t order)
{
    fprintf(w->out, "{\"name\":\"%s\",\"ph\":\"M\",\"pid\":%d,\"tid\":%zu,\"args\":{", what,
            w->trace->rank, w->tid);
    if (name) {
        fputs("\"name\":", w->out);
        put_text(w->out, name);
    } else {
        fprintf(w->out, "\"sort_index\":%lld", (long long)order);
    }
    fputs("}},\n", w->out);
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
static void put_time(FILE *out, const char *key, int64_t ns)
{
    fprintf(out, ",\"%s\":%lld.%03d", key, (long long)(ns / 1000), (int)(ns % 1000));
}

static void put_field(FILE *out, const char *key, const char *value)
{
    fprintf(out, ",\"%s\":", key);
    put_text(out, value ? value : "");
}

static void put_head(struct ls_trace_file *w, const char *name, const char *category,
                     const char *ph, int64_t ns)
{
    fputs("{\"name\":", w->out);
    put_text(w->out, name);
    put_field(w->out, "cat", category);
    fprintf(w->out, ",\"ph\":\"%s\",\"pid\":%d,\"tid\":%zu", ph, w->trace->rank, w->tid);
    put_time(w->out, "ts", ns);
}

static void put_transfer(struct ls_trace_file *w, const struct trace_event *event)
{
    const struct trace_transfer *transfer = &event->transfer;
    const struct trace_group *group = &w->trace->groups[transfer->group];
    put_field(w->out, "operation", event->name);
    put_field(w->out, "kind", transfer->kind);
    put_field(w->out, "group", group->name);
    fprintf(w->out, ",\"size\":%d,\"ranks\":[", group->size);
    for (int i = 0; i < group->size && i < RANKS_SHOWN; i++)
        fprintf(w->out, "%s%d", i ? "," : "", group->ranks[i]);
    fprintf(w->out, "],\"bytes\":%lld,\"elements\":%lld", (long long)transfer->bytes,
            (long long)transfer->elements);
    put_field(w->out, "dtype", transfer->dtype);
    if (transfer->peer >= 0)
        fprintf(w->out, ",\"peer\":%d", transfer->peer);
    if (transfer->label[0])
        put_field(w->out, "label", transfer->label);
}

static void put_op(struct ls_trace_file *w, const struct ls_trace_op *op)
{
    put_field(w->out, "dtype", op->dtype);
    fprintf(w->out, ",\"m\":%lld,\"n\":%lld,\"k\":%lld,\"flops\":%.0f,\"bytes\":%.0f",
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
    fputs(",\"args\":{\"phase\":", w->out);
    put_text(w->out, event->phase ? event->phase : "");
    for (int key = 0; key < LS_TRACE_KEYS; key++)
        if (event->at[key] >= 0)
            fprintf(w->out, ",\"%s\":%lld", keys[key], (long long)event->at[key]);
    if (is_transfer(event))
        put_transfer(w, event);
    if (event->type == TRACE_OP)
        put_op(w, &event->op);
    if (event->duration_ns < 0)
        fputs(",\"unfinished\":true", w->out);
    fputs("}},\n", w->out);
}

/* An arrow from a send to its receive; it ties to the span around it. */
static void put_flow(struct ls_trace_file *w, const struct trace_event *event, bool finish,
                     int64_t ns)
{
    put_head(w, "message", "message", finish ? "f" : "s", ns);
    fprintf(w->out, ",\"id\":\"%016llx\"%s},\n", (unsigned long long)event->transfer.flow,
            finish ? ",\"bp\":\"e\"" : "");
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
    put_time(w->out, "dur", duration);
    put_args(w, event);
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
        fprintf(w->out, ",\"id\":\"%d.%zu.%llu\"", w->trace->rank, w->tid,
                (unsigned long long)event->transfer.number);
        if (i == 0)
            put_args(w, event);
        else
            fputs("},\n", w->out);
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
    fprintf(w->out,
            "{\"name\":\"group\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"name\":", w->trace->rank);
    put_text(w->out, group->name);
    fputs(",\"ranks\":[", w->out);
    for (int i = 0; i < group->size; i++)
        fprintf(w->out, "%s%d", i ? "," : "", group->ranks[i]);
    fputs("]}},\n", w->out);
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
    fprintf(w->out,
            "{\"name\":\"events\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"kept\":%llu,"
            "\"dropped\":%llu,\"monotonic_ns\":%lld,\"realtime_ns\":%lld%09ld}},\n",
            w->traces[0]->rank, (unsigned long long)kept, (unsigned long long)dropped,
            (long long)w->now_ns, (long long)wall.tv_sec, wall.tv_nsec);
}

static void call_begin(struct ls_trace_file *w, struct ls_error *error)
{
    w->now_ns = trace_now_ns();
    w->error = error;
    w->status = LS_OK;
    rewind(w->out);
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
        while (next < trace->written && ftell(w->out) < BUFFER_BYTES)
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
    if (w)
        w->out = open_memstream(&w->buffer, &w->used);
    if (!w || !w->out) {
        free(w);
        return ls_error_set(error, LS_ENOMEM, "%s: no memory for a trace's file", path);
    }
    int status = trace_append_open(&w->file, path, O_TRUNC, error);
    if (status) {
        fclose(w->out);
        free(w->buffer);
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
    fputs("[\n", w->out);
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
    fseek(w->out, -2, SEEK_CUR);
    fputs("\n]\n", w->out); /* in place of the last comma */
    drain(w);
    int status = w->status, closed = trace_append_close(&w->file, status ? NULL : error);
    fclose(w->out);
    free(w->buffer);
    free(w);
    return status ? status : closed;
}
