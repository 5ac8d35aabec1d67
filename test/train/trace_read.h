/* A rank's trace, read back. */
#ifndef TEST_TRAIN_TRACE_READ_H
#define TEST_TRAIN_TRACE_READ_H

#include "../support/scratch.h"

#include <lockstep/config.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline json_t *trace_of(const struct ls_config *config, int rank)
{
    char path[1200];
    json_error_t where;
    snprintf(path, sizeof path, "%s/trace/rank-%05d.json", config->train.out, rank);
    char *text = scratch_read(path, NULL);
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &where);
    if (!root)
        fail_msg("%s:%d: %s", path, where.line, where.text);
    free(text);
    return root;
}

static inline const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static inline double number_of(const json_t *object, const char *key)
{
    const json_t *number = json_object_get(object, key);
    return json_is_number(number) ? json_number_value(number) : -1;
}

static inline bool is(const json_t *event, const char *key, const char *value)
{
    return strcmp(text_of(event, key), value) == 0;
}

#define EACH_EVENT(root, i, event) json_array_foreach(root, i, event)

struct span {
    const json_t *event;
    double begin, end;
};

/* By begin; of those that begin together, the longest first. */
static inline int by_begin(const void *a, const void *b)
{
    const struct span *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return (x->end < y->end) - (x->end > y->end);
}

/* The complete events ("X") of a trace, by their begin, those that hold others first. */
static inline size_t spans_of(const json_t *root, struct span *spans, size_t room)
{
    size_t count = 0, i;
    json_t *event;
    EACH_EVENT(root, i, event)
    {
        if (!is(event, "ph", "X"))
            continue;
        assert_true(count < room);
        double begin = number_of(event, "ts"), duration = number_of(event, "dur");
        assert_true(begin >= 0 && duration >= 0);
        spans[count++] = (struct span){event, begin, begin + duration};
    }
    qsort(spans, count, sizeof *spans, by_begin);
    return count;
}

#endif
