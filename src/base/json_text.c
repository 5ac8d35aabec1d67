/* JSON as text, byte for byte as jansson writes it, in less time: json_dumps looks for circles at
 * each object and array, for which it takes and gives back memory. */
#include <lockstep/base/json.h>

#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct text {
    char *bytes; /* [used], of room */
    size_t used, room, flags;
    bool failed;
};

struct pair {
    const char *key;
    json_t *value;
};

/* count bytes to be written; NULL without memory. */
static char *more(struct text *text, size_t count)
{
    if (text->room - text->used < count) {
        size_t room = 2 * text->room + count;
        char *grown = realloc(text->bytes, room);
        text->failed = text->failed || !grown;
        if (!grown)
            return NULL;
        text->bytes = grown;
        text->room = room;
    }
    text->used += count;
    return text->bytes + text->used - count;
}

static void put(struct text *text, const char *bytes, size_t count)
{
    char *at = more(text, count);
    if (at)
        memcpy(at, bytes, count);
}

/* What needs more care than time, by jansson. */
static void put_by_jansson(struct text *text, const json_t *value)
{
    char *written = json_dumps(value, text->flags | JSON_ENCODE_ANY);
    text->failed = text->failed || !written;
    if (written)
        put(text, written, strlen(written));
    free(written);
}

/* Whether a string stands between quotes as it is. */
static bool is_plain(const char *string, size_t bytes)
{
    bool plain = true;
    for (size_t i = 0; i < bytes; i++) {
        unsigned char c = (unsigned char)string[i];
        plain = plain && c >= 0x20 && c < 0x80 && c != '"' && c != '\\';
    }
    return plain;
}

static void put_string(struct text *text, const char *string, size_t bytes)
{
    char *at = is_plain(string, bytes) ? more(text, bytes + 2) : NULL;
    if (at) {
        at[0] = at[bytes + 1] = '"';
        memcpy(at + 1, string, bytes);
    } else {
        json_t *value = json_stringn(string, bytes);
        put_by_jansson(text, value);
        json_decref(value);
    }
}

static void put_integer(struct text *text, json_int_t value)
{
    char digits[24], *at = digits + sizeof digits;
    uint64_t rest = value < 0 ? -(uint64_t)value : (uint64_t)value;
    do
        *--at = (char)('0' + rest % 10);
    while (rest /= 10);
    if (value < 0)
        *--at = '-';
    put(text, at, (size_t)(digits + sizeof digits - at));
}

static void put_line(struct text *text, int depth)
{
    size_t blanks = (size_t)depth * (text->flags & JSON_MAX_INDENT);
    char *at = text->flags & JSON_MAX_INDENT ? more(text, 1 + blanks) : NULL;
    if (at) {
        *at = '\n';
        memset(at + 1, ' ', blanks);
    }
}

/* Behind an element. */
static void put_next(struct text *text, bool last, int depth)
{
    bool blank = !last && !(text->flags & (JSON_COMPACT | JSON_MAX_INDENT));
    put(text, ", ", last ? 0 : blank ? 2 : 1);
    put_line(text, last ? depth : depth + 1);
}

static void put_value(struct text *text, json_t *value, int depth);

static void put_array(struct text *text, json_t *array, int depth)
{
    size_t count = json_array_size(array);
    put(text, "[", 1);
    if (count > 0)
        put_line(text, depth + 1);
    for (size_t i = 0; i < count; i++) {
        put_value(text, json_array_get(array, i), depth + 1);
        put_next(text, i + 1 == count, depth);
    }
    put(text, "]", 1);
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const struct pair *)a)->key, ((const struct pair *)b)->key);
}

/* pairs[json_object_size], in the order in which they are written. */
static void pairs_take(const struct text *text, json_t *object, struct pair *pairs)
{
    size_t count = 0;
    bool sorted = !(text->flags & JSON_SORT_KEYS);
    for (void *at = json_object_iter(object); at; at = json_object_iter_next(object, at))
        pairs[count++] = (struct pair){json_object_iter_key(at), json_object_iter_value(at)};
    if (!sorted)
        qsort(pairs, count, sizeof *pairs, by_key);
}

static void put_object(struct text *text, json_t *object, int depth)
{
    enum { FEW = 8 };
    struct pair few[FEW], *pairs = few;
    size_t count = json_object_size(object);
    if (count > FEW && !(pairs = malloc(count * sizeof *pairs))) {
        text->failed = true;
        return;
    }
    pairs_take(text, object, pairs);
    put(text, "{", 1);
    if (count > 0)
        put_line(text, depth + 1);
    for (size_t i = 0; i < count; i++) {
        put_string(text, pairs[i].key, strlen(pairs[i].key));
        put(text, ": ", text->flags & JSON_COMPACT ? 1 : 2);
        put_value(text, pairs[i].value, depth + 1);
        put_next(text, i + 1 == count, depth);
    }
    put(text, "}", 1);
    if (pairs != few)
        free(pairs);
}

static void put_value(struct text *text, json_t *value, int depth)
{
    if (json_is_object(value))
        put_object(text, value, depth);
    else if (json_is_array(value))
        put_array(text, value, depth);
    else if (json_is_string(value))
        put_string(text, json_string_value(value), json_string_length(value));
    else if (json_is_integer(value))
        put_integer(text, json_integer_value(value));
    else
        put_by_jansson(text, value);
}

char *ls_json_text(const json_t *value, size_t flags)
{
    struct text text = {.flags = flags};
    put_value(&text, (json_t *)value, 0); /* jansson's getters take no const */
    put(&text, "", 1);
    if (text.failed) {
        free(text.bytes);
        return NULL;
    }
    return text.bytes;
}
