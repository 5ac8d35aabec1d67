#include <lockstep/trace.h>

#include <lockstep/base/file.h>

#include "text.h"

#include <stdlib.h>
#include <time.h>

enum { DEPTH_MAX = 32, ROLE_BYTES = 32 };

struct event {
    const char *name;
    const char *category; /* NULL: a counter */
    int64_t begin_ns;
    int64_t duration_ns; /* spans */
    double value;        /* counters */
};

struct ls_trace {
    int rank;
    int depth;
    uint64_t written; /* events so far; the ring holds the last `capacity` of them */
    size_t capacity;
    char role[ROLE_BYTES];
    struct event open[DEPTH_MAX];
    struct event ring[];
};

static int64_t now_ns(void)
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
    if (!ls_size_mul(event_count, sizeof(struct event), &bytes) ||
        !ls_size_add(bytes, sizeof(struct ls_trace), &bytes) || !(*out = calloc(1, bytes)))
        return ls_error_set(error, LS_ENOMEM, "no memory for a trace of %zu events", event_count);
    (*out)->rank = rank;
    (*out)->capacity = event_count;
    snprintf((*out)->role, ROLE_BYTES, "%s", role);
    return LS_OK;
}

void ls_trace_free(struct ls_trace *trace)
{
    free(trace);
}

static void push(struct ls_trace *trace, struct event event)
{
    trace->ring[trace->written++ % trace->capacity] = event;
}

void ls_trace_begin(struct ls_trace *trace, const char *name, const char *category)
{
    if (!trace)
        return;
    LS_ASSERT(trace->depth < DEPTH_MAX && category);
    trace->open[trace->depth++] =
        (struct event){.name = name, .category = category, .begin_ns = now_ns()};
}

void ls_trace_end(struct ls_trace *trace)
{
    if (!trace)
        return;
    LS_ASSERT(trace->depth > 0);
    struct event event = trace->open[--trace->depth];
    event.duration_ns = now_ns() - event.begin_ns;
    push(trace, event);
}

void ls_trace_counter(struct ls_trace *trace, const char *name, double value)
{
    if (trace)
        push(trace, (struct event){.name = name, .begin_ns = now_ns(), .value = value});
}

/* Appends one event object; first is true until something was written. */
static void put_object(struct ls_atomic_file *file, struct trace_text *text, bool *first)
{
    LS_ASSERT(!text->overflow); /* names are literals */
    ls_atomic_file_write(file, *first ? "\n" : ",\n", *first ? 1 : 2);
    ls_atomic_file_write(file, text->data, text->used);
    *first = false;
}

static void put_name(struct ls_atomic_file *file, const char *what, int pid, size_t tid,
                     const char *name, bool *first)
{
    char buffer[512];
    struct trace_text text = {.data = buffer, .size = sizeof buffer};
    trace_text_printf(&text, "{\"name\":\"%s\",\"ph\":\"M\",\"pid\":%d,\"tid\":%zu,", what, pid,
                      tid);
    trace_text_put(&text, "\"args\":{\"name\":");
    trace_text_json(&text, name);
    trace_text_put(&text, "}}");
    put_object(file, &text, first);
}

static void put_event(struct ls_atomic_file *file, const struct event *event, int pid, size_t tid,
                      bool *first)
{
    char buffer[2048];
    struct trace_text text = {.data = buffer, .size = sizeof buffer};
    trace_text_put(&text, "{\"name\":");
    trace_text_json(&text, event->name);
    if (event->category) {
        trace_text_put(&text, ",\"cat\":");
        trace_text_json(&text, event->category);
    }
    trace_text_printf(&text, ",\"ph\":\"%s\",\"pid\":%d,\"tid\":%zu,\"ts\":%lld.%03d",
                      event->category ? "X" : "C", pid, tid, (long long)(event->begin_ns / 1000),
                      (int)(event->begin_ns % 1000));
    if (event->category)
        trace_text_printf(&text, ",\"dur\":%lld.%03d}", (long long)(event->duration_ns / 1000),
                          (int)(event->duration_ns % 1000));
    if (!event->category) {
        trace_text_put(&text, ",\"args\":{\"value\":");
        trace_text_number(&text, event->value, 9);
        trace_text_put(&text, "}}");
    }
    put_object(file, &text, first);
}

int ls_trace_write(const char *path, struct ls_trace *const *traces, size_t count,
                   struct ls_error *error)
{
    struct ls_atomic_file file;
    int code = ls_atomic_file_open(&file, path, NULL, error);
    if (code)
        return code;
    bool first = true;
    ls_atomic_file_printf(&file, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[");
    for (size_t t = 0; t < count; t++) {
        const struct ls_trace *trace = traces[t];
        char process[32];
        snprintf(process, sizeof process, "rank %d", trace->rank);
        put_name(&file, "process_name", trace->rank, t, process, &first);
        put_name(&file, "thread_name", trace->rank, t, trace->role, &first);
        uint64_t oldest = trace->written > trace->capacity ? trace->written - trace->capacity : 0;
        for (uint64_t i = oldest; i < trace->written; i++)
            put_event(&file, &trace->ring[i % trace->capacity], trace->rank, t, &first);
    }
    ls_atomic_file_printf(&file, "\n]}\n");
    return ls_atomic_file_commit(&file, error);
}
