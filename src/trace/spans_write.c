/* A trace as a file: Chrome's Trace Event Format. */
#include "spans.h"

#include <lockstep/base/file.h>

#include "text.h"

#include <time.h>
#include <unistd.h>

enum { RANKS_SHOWN = 16 };

/* The file, and which thread is being written. */
struct writer {
    struct ls_atomic_file *file;
    const struct ls_trace *trace;
    size_t tid;
    int64_t now_ns;
    bool any; /* an object was written */
    char buffer[4096];
    struct trace_text text;
};

static struct trace_text *begin_object(struct writer *w)
{
    w->text = (struct trace_text){.data = w->buffer, .size = sizeof w->buffer};
    return &w->text;
}

static void end_object(struct writer *w)
{
    LS_ASSERT(!w->text.overflow); /* names are literals, and copies are cut */
    ls_atomic_file_write(w->file, w->any ? ",\n" : "\n", w->any ? 2 : 1);
    ls_atomic_file_write(w->file, w->text.data, w->text.used);
    w->any = true;
}

/* ---- names and order ------------------------------------------------------------------------- */

static void put_metadata(struct writer *w, const char *what, const char *name, int64_t order)
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

static void put_names(struct writer *w)
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

static void put_head(struct writer *w, const char *name, const char *category, const char *ph,
                     int64_t ns)
{
    struct trace_text *text = begin_object(w);
    trace_text_put(text, "{\"name\":");
    trace_text_json(text, name);
    put_field(text, "cat", category);
    trace_text_printf(text, ",\"ph\":\"%s\",\"pid\":%d,\"tid\":%zu", ph, w->trace->rank, w->tid);
    put_time(text, "ts", ns);
}

static void put_transfer(struct writer *w, const struct trace_event *event)
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

static bool is_transfer(const struct trace_event *event)
{
    return event->type != TRACE_SPAN && event->transfer.kind;
}

/* A span of no step is of those before the first, and so on: what does not hold is left out. */
static void put_args(struct writer *w, const struct trace_event *event)
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
    if (event->duration_ns < 0)
        trace_text_put(text, ",\"unfinished\":true");
    trace_text_put(text, "}}");
}

/* An arrow from a send to its receive; it ties to the span around it. */
static void put_flow(struct writer *w, const struct trace_event *event, bool finish, int64_t ns)
{
    put_head(w, "message", "message", finish ? "f" : "s", ns);
    trace_text_printf(&w->text, ",\"id\":\"%016llx\"%s}", (unsigned long long)event->transfer.flow,
                      finish ? ",\"bp\":\"e\"" : "");
    end_object(w);
}

static void put_span(struct writer *w, const struct trace_event *event)
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

static void put_background(struct writer *w, const struct trace_event *event)
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

static void put_event(struct writer *w, const struct trace_event *event)
{
    if (event->type == TRACE_BACKGROUND)
        put_background(w, event);
    else
        put_span(w, event);
}

/* What is under way ends now, or is not there yet: its own duration is kept to be counted later. */
static void put_open(struct writer *w)
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

static void put_groups(struct ls_atomic_file *file, const struct ls_trace *trace)
{
    for (int g = 0; g < trace->group_count; g++) {
        const struct trace_group *group = &trace->groups[g];
        char buffer[256];
        struct trace_text text = {.data = buffer, .size = sizeof buffer};
        trace_text_put(&text, g ? ",\n{\"name\":" : "\n{\"name\":");
        trace_text_json(&text, group->name);
        trace_text_put(&text, ",\"ranks\":[");
        ls_atomic_file_write(file, text.data, text.used);
        for (int i = 0; i < group->size; i++)
            ls_atomic_file_printf(file, "%s%d", i ? "," : "", group->ranks[i]);
        ls_atomic_file_printf(file, "]}");
    }
}

static void put_other(struct ls_atomic_file *file, struct ls_trace *const *traces, size_t count,
                      int64_t now_ns)
{
    struct timespec wall;
    uint64_t dropped = 0, kept = 0;
    clock_gettime(CLOCK_REALTIME, &wall);
    for (size_t t = 0; t < count; t++) {
        dropped += ls_trace_dropped(traces[t]);
        kept += traces[t]->written - ls_trace_dropped(traces[t]);
    }
    ls_atomic_file_printf(file,
                          "\n],\"otherData\":{\"events_kept\":%llu,\"events_dropped\":%llu,"
                          "\"monotonic_ns\":%lld,\"realtime_ns\":%lld%09ld,\"groups\":[",
                          (unsigned long long)kept, (unsigned long long)dropped, (long long)now_ns,
                          (long long)wall.tv_sec, wall.tv_nsec);
    if (count > 0)
        put_groups(file, traces[0]);
    ls_atomic_file_printf(file, "]}}\n");
}

int ls_trace_write(const char *path, struct ls_trace *const *traces, size_t count,
                   struct ls_error *error)
{
    struct ls_atomic_file file;
    int code = ls_atomic_file_open(&file, path, NULL, error);
    if (code)
        return code;
    struct writer w = {.file = &file, .now_ns = trace_now_ns()};
    ls_atomic_file_printf(&file, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[");
    for (size_t t = 0; t < count; t++) {
        w.trace = traces[t];
        w.tid = t;
        put_names(&w);
        uint64_t oldest = ls_trace_dropped(traces[t]);
        for (uint64_t i = oldest; i < traces[t]->written; i++)
            put_event(&w, &traces[t]->ring[i % traces[t]->capacity]);
        put_open(&w);
    }
    put_other(&file, traces, count, w.now_ns);
    return ls_atomic_file_commit(&file, error);
}
