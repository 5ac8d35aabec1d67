/* A trace's file read back: the spans of one rank. */
#include <lockstep/trace.h>

#include <lockstep/base/file.h>
#include <lockstep/base/json.h>

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_BYTES_MAX = 256 << 20 };

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

int ls_trace_read_text(const char *name, const char *text, size_t bytes,
                       void (*visit)(void *user, const struct ls_trace_span *span), void *user,
                       int64_t *dropped, struct ls_error *error)
{
    json_t *root;
    int status = ls_json_parse(name, text, bytes, LS_EDATA, &root, error);
    const json_t *events = json_object_get(root, "traceEvents");
    const json_t *other = json_object_get(root, "otherData");
    double lost = number_of(other, "events_dropped");
    size_t i;
    *dropped = lost > 0 && lost < 0x1p53 ? (int64_t)lost : 0;
    if (!status && !json_is_array(events))
        status = ls_error_set(error, LS_EDATA,
                              "%s: expected a trace as runs write it, an object with a list "
                              "traceEvents",
                              name);
    for (i = 0; i < json_array_size(events) && !status; i++)
        if (!event_show(json_array_get(events, i), visit, user))
            status = ls_error_set(error, LS_EDATA,
                                  "%s: event %zu is no object, or a span without ts and dur of at "
                                  "least 0",
                                  name, i);
    json_decref(root);
    return status;
}

int ls_trace_read(const char *path, void (*visit)(void *user, const struct ls_trace_span *span),
                  void *user, int64_t *dropped, struct ls_error *error)
{
    char *text = NULL;
    size_t bytes = 0;
    int status = ls_file_read(path, FILE_BYTES_MAX, LS_EDATA, &text, &bytes, error);
    if (!status)
        status = ls_trace_read_text(path, text, bytes, visit, user, dropped, error);
    free(text);
    return status;
}
