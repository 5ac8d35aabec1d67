/* A trace's file read back: the spans of one rank. */
#include "trace/spans.h"

#include <lockstep/base/file.h>
#include <lockstep/base/json.h>

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

/* NaN: no number. */
static double number_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

/* Whether an event is a span that ended; then it is shown. false: it is none that a run writes. */
static bool event_show(const json_t *event, void (*visit)(void *, const struct ls_trace_span *),
                       void *user)
{
    const json_t *args = json_object_get(event, "args");
    if (!json_is_object(event))
        return false;
    if (strcmp(text_of(event, "ph"), "X") != 0 || json_object_get(args, "unfinished"))
        return true;
    double begin_us = number_of(event, "ts"), duration_us = number_of(event, "dur");
    double step = number_of(args, "step");
    const struct ls_trace_span span = {
        .name = text_of(event, "name"),
        .category = text_of(event, "cat"),
        .group = text_of(args, "group"),
        .step = step >= 0 && step < 0x1p53 ? (int64_t)step : -1,
        .begin_s = begin_us / 1e6,
        .duration_s = duration_us / 1e6,
    };
    if (!(begin_us >= 0 && duration_us >= 0))
        return false;
    visit(user, &span);
    return true;
}

/* A run that was killed leaves its list open, perhaps within an event: closed behind the last whole
 * one. *closed is to be freed; NULL: the list ends by itself. */
static int list_close(const char *name, const char *text, size_t *bytes, char **closed,
                      struct ls_error *error)
{
    size_t end = *bytes;
    *closed = NULL;
    while (end > 0 && strchr(" \t\r\n", text[end - 1]) && text[end - 1])
        end--;
    if (end > 0 && text[end - 1] == ']')
        return LS_OK;
    end = *bytes;
    while (end > 1 && !(text[end - 2] == ',' && text[end - 1] == '\n'))
        end--;
    end = end > 1 ? end - 2 : 1; /* without that comma; or the bracket alone */
    *closed = malloc(end + 1);
    if (!*closed)
        return ls_error_set(error, LS_ENOMEM, "%.300s: no memory to read it", name);
    memcpy(*closed, text, end);
    (*closed)[end] = ']';
    *bytes = end + 1;
    return LS_OK;
}

/* *root is released by the caller: a list of events, or an object that holds one. */
static int parse(const char *name, const char *text, size_t bytes, json_t **root,
                 struct ls_error *error)
{
    char *closed;
    json_error_t where;
    *root = NULL;
    if (bytes == 0 || text[0] != '[')
        return ls_json_parse(name, text, bytes, LS_EDATA, root, error);
    int status = list_close(name, text, &bytes, &closed, error);
    if (status)
        return status;
    *root = ls_json_load(closed ? closed : text, bytes, JSON_REJECT_DUPLICATES, &where);
    free(closed);
    if (*root)
        return LS_OK;
    bool memory = json_error_code(&where) == json_error_out_of_memory;
    return ls_error_set(error, memory ? LS_ENOMEM : LS_EDATA,
                        "%.300s:%d:%d: %s: expected a trace as runs write it, a list of events",
                        name, where.line, where.column, where.text);
}

/* What the last event "events" says, or that of older files. */
static struct ls_trace_sums sums_of(const json_t *root, const json_t *events)
{
    const json_t *old = json_object_get(root, "otherData");
    double lost = number_of(old, "events_dropped"), ns = number_of(old, "realtime_ns");
    for (size_t i = json_array_size(events); i > 0; i--) {
        const json_t *event = json_array_get(events, i - 1);
        const json_t *args = json_object_get(event, "args");
        if (strcmp(text_of(event, "ph"), "M") != 0 || strcmp(text_of(event, "name"), "events") != 0)
            continue;
        lost = number_of(args, "dropped");
        ns = number_of(args, "realtime_ns");
        break;
    }
    return (struct ls_trace_sums){lost > 0 && lost < 0x1p53 ? (int64_t)lost : 0, ns / 1e9};
}

int ls_trace_read_text(const char *name, const char *text, size_t bytes,
                       void (*visit)(void *user, const struct ls_trace_span *span), void *user,
                       struct ls_trace_sums *sums, struct ls_error *error)
{
    json_t *root;
    int status = parse(name, text, bytes, &root, error);
    const json_t *events = json_is_array(root) ? root : json_object_get(root, "traceEvents");
    *sums = sums_of(root, events);
    if (!status && !json_is_array(events))
        status = ls_error_set(error, LS_EDATA,
                              "%s: expected a trace as runs write it, a list of events", name);
    for (size_t i = 0; i < json_array_size(events) && !status; i++)
        if (!event_show(json_array_get(events, i), visit, user))
            status = ls_error_set(error, LS_EDATA,
                                  "%s: event %zu is no object, or a span without ts and dur of at "
                                  "least 0",
                                  name, i);
    json_decref(root);
    return status;
}

int ls_trace_read(const char *path, void (*visit)(void *user, const struct ls_trace_span *span),
                  void *user, struct ls_trace_sums *sums, struct ls_error *error)
{
    char *text = NULL;
    size_t bytes = 0;
    int status = ls_file_read(path, TRACE_FILE_BYTES_MAX, LS_EDATA, &text, &bytes, error);
    if (!status)
        status = ls_trace_read_text(path, text, bytes, visit, user, sums, error);
    free(text);
    return status;
}
