/* What orders give back, and events. */
#include "session/session_private.h"

#include <lockstep/base/json.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

json_t *real_json(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

json_t *ids_json(const int32_t *ids, int64_t count)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < count && list; i++)
        json_array_append_new(list, json_integer(ids[i]));
    return list;
}

json_t *text_json(const char *bytes, size_t count)
{
    char *quoted = NULL;
    size_t size = 0;
    json_error_t where;
    FILE *file = open_memstream(&quoted, &size);
    if (!file)
        return NULL;
    ls_json_string(file, bytes, count);
    json_t *text =
        fclose(file) ? NULL : ls_json_load(quoted, size, JSON_DECODE_ANY | JSON_ALLOW_NUL, &where);
    free(quoted);
    return text;
}

void session_tell(struct ls_session *s, const char *event, json_t *more)
{
    enum { UNHEARD_MAX = 4096 }; /* a caller who does not listen loses the oldest */
    json_t *object = json_pack("{s:s}", "event", event);
    if (object && more)
        json_object_update(object, more);
    json_decref(more);
    pthread_mutex_lock(&s->lock);
    if (json_array_size(s->events) >= UNHEARD_MAX)
        json_array_remove(s->events, 0);
    if (object)
        json_array_append_new(s->events, object);
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

void answer_set(struct ls_session *s, const char *key, json_t *value)
{
    if (value)
        json_object_set_new(s->answer, key, value);
}

void answer_report(struct ls_session *s)
{
    const struct ls_session_report *r = &s->report;
    json_t *json = json_pack(
        "{s:I,s:I,s:I,s:I,s:o,s:o,s:o,s:o,s:b,s:o,s:o,s:o,s:b}", "step", (json_int_t)r->step,
        "samples", (json_int_t)r->samples, "tokens", (json_int_t)r->tokens, "sequences",
        (json_int_t)r->sequences, "loss", real_json(r->loss), "grad_norm", real_json(r->grad_norm),
        "loss_scale", real_json(r->loss_scale), "lr", real_json(r->lr), "skipped", r->skipped,
        "step_s", real_json(r->step_s), "tokens_per_s", real_json(r->tokens_per_s), "peak_share",
        real_json(r->peak_share), "ended", r->ended);
    if (json)
        json_object_update(s->answer, json);
    json_decref(json);
    if (*r->hash)
        answer_set(s, "hash", json_string(r->hash));
    if (r->counted > 0)
        answer_set(s, "counted", json_integer(r->counted));
    if (!isnan(r->weight))
        answer_set(s, "weight", json_real(r->weight));
}

int answer_array(struct ls_session *s, const char *name, const char *dtype, int dims,
                 const int64_t *shape, void **data, bool owned, struct ls_error *error)
{
    size_t bytes = strcmp(dtype, "bf16") ? (size_t)(dtype[1] - '0') : 2;
    LS_ASSERT(s->array_count < ANSWER_ARRAYS_MAX);
    struct answer_array *answer = &s->arrays[s->array_count];
    *answer = (struct answer_array){.array = {.dtype = dtype, .dims = dims}, .owned = owned};
    snprintf(answer->name, sizeof answer->name, "%s", name);
    answer->array.name = answer->name;
    for (int i = 0; i < dims; i++) {
        answer->array.shape[i] = shape[i];
        bytes *= (size_t)shape[i];
    }
    if (owned)
        *data = calloc(1, bytes + 1);
    answer->array.data = *data;
    if (!*data && owned)
        return ls_no_memory(error, "for %s of %zu bytes", name, bytes);
    s->array_count++;
    return LS_OK;
}
