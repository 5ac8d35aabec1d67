/* The text of one JSONL record, taken as Python's json.loads takes it.
 *
 * jansson refuses what Python reads: NaN and Infinity, numbers of any size, zeros in keys, and lone
 * halves of surrogate pairs. None of them matters to a text, so they are written over in place, in
 * as many bytes, by what jansson reads too; whatever is refused then is refused by both. */
#include "data/data_private.h"

#include <lockstep/base/json.h>

#include <jansson.h>
#include <math.h>
#include <stdlib.h>

/* ---- what both read ------------------------------------------------------------------------- */

/* The code unit of \uXXXX at p, -1 if there is none. */
static int escape_at(const char *p, const char *end)
{
    return end - p < 6 || p[0] != '\\' || p[1] != 'u' ? -1 : data_hex_at(p + 2, 4);
}

/* Whether a colon follows, so that the string that ends here is a key. */
static bool colon_at(const char *p, const char *end)
{
    while (p < end && *p && strchr(" \t\r\n", *p))
        p++;
    return p < end && *p == ':';
}

/* Behind the string that begins at p; half a surrogate pair becomes U+FFFD. */
static char *soften_string(char *p, char *end)
{
    char *begin = p++;
    while (p < end && *p != '"') {
        int unit = escape_at(p, end);
        if (unit >= 0xd800 && unit <= 0xdbff) {
            int low = escape_at(p + 6, end);
            bool pair = low >= 0xdc00 && low <= 0xdfff;
            if (!pair)
                memcpy(p, "\\ufffd", 6);
            p += pair ? 12 : 6;
        } else if (unit >= 0) {
            if (unit >= 0xdc00 && unit <= 0xdfff)
                memcpy(p, "\\ufffd", 6);
            p += 6;
        } else {
            p += *p == '\\' ? 2 : 1;
        }
    }
    if (p >= end)
        return end;
    const bool key = colon_at(++p, end);
    for (char *q = begin; key && q < p; q += *q == '\\' ? 2 : 1)
        if (escape_at(q, p) == 0)
            memcpy(q, "\\ufffd", 6);
    return p;
}

static size_t digits_at(const char *p, const char *end)
{
    size_t count = 0;
    while (p + count < end && p[count] >= '0' && p[count] <= '9')
        count++;
    return count;
}

/* Bytes of the number at p, 0 if there is none. */
static size_t number_at(const char *p, const char *end)
{
    static const char infinity[] = "Infinity";
    const char *at = p + (*p == '-');
    if ((size_t)(end - at) >= sizeof infinity - 1 && memcmp(at, infinity, sizeof infinity - 1) == 0)
        return (size_t)(at - p) + sizeof infinity - 1;
    if (end - p >= 3 && memcmp(p, "NaN", 3) == 0)
        return 3;
    size_t digits = digits_at(at, end);
    if (digits == 0)
        return 0;
    at += *at == '0' ? 1 : digits;
    size_t decimals = at < end && *at == '.' ? digits_at(at + 1, end) : 0;
    at += decimals ? decimals + 1 : 0;
    if (at < end && (*at == 'e' || *at == 'E')) {
        const char *exponent = at + 1 + (at + 1 < end && (at[1] == '+' || at[1] == '-'));
        size_t powers = exponent < end ? digits_at(exponent, end) : 0;
        at = powers ? exponent + powers : at;
    }
    return (size_t)(at - p);
}

/* Whether the key, with its quotes, is one of the list; one with escapes may be. */
static bool key_among(const char *key, const char *end, const char *const *list)
{
    const size_t bytes = (size_t)(end - key) - 2;
    bool among = memchr(key, '\\', bytes + 2) != NULL;
    for (; *list; list++)
        among |= strlen(*list) == bytes && !memcmp(key + 1, *list, bytes);
    return among;
}

/* Numbers too, which are of no use to a text, but for those within these members of the record:
 * NULL ends the list. */
static void soften(char *p, char *end, const char *const *kept)
{
    int64_t depth = 0;
    bool keeps = false;
    while (p < end) {
        size_t number = *p == '"' || keeps ? 0 : number_at(p, end);
        if (*p == '"') {
            const char *begin = p;
            p = soften_string(p, end);
            if (depth == 1 && colon_at(p, end))
                keeps = key_among(begin, p, kept);
        } else if (number > 0) {
            *p = '0';
            memset(p + 1, ' ', number - 1);
            p += number;
        } else if (*p == '-' && !keeps) { /* no number: nothing that follows may become one */
            while (p < end && *p && !strchr(" \t\r\n,:[]{}\"", *p))
                p++;
        } else {
            depth += (*p == '{' || *p == '[') - (*p == '}' || *p == ']');
            p++;
        }
    }
}

/* ---- the text ------------------------------------------------------------------------------- */

static const char *type_name(const json_t *value)
{
    static const char *const names[] = {"an object", "a list", "a string", "a number",
                                        "a number",  "true",   "false",    "null"};
    return names[json_typeof(value)];
}

/* "text", "url" and 3 more */
static void list_keys(json_t *record, char *text, size_t bytes)
{
    enum { SHOWN = 5 };
    size_t count = 0;
    const char *key;
    json_t *value;
    text[0] = '\0';
    json_object_foreach(record, key, value)
    {
        if (count++ < SHOWN)
            ls_string_add(text, bytes, ", ", "\"%.40s\"", key);
    }
    if (count > SHOWN)
        ls_string_add(text, bytes, " ", "and %zu more", count - SHOWN);
    if (count == 0)
        snprintf(text, bytes, "none");
}

/* The string under key; "" if it is empty. */
static int find_text(json_t *record, const char *key, const char *hint, const char **text,
                     size_t *length, struct ls_error *error)
{
    const json_t *value = json_object_get(record, key);
    if (!value) {
        char keys[400];
        list_keys(record, keys, sizeof keys);
        return ls_error_set(error, LS_EDATA, "no key \"%.100s\", the record has %s: expected %s",
                            key, keys, hint);
    }
    if (!json_is_string(value))
        return ls_error_set(error, LS_EDATA, "\"%.100s\" is %s: expected a string", key,
                            type_name(value));
    *text = json_string_value(value);
    *length = json_string_length(value);
    return LS_OK;
}

/* What stands in a line, to be released; kept: as of soften(). */
static int load(char *line, size_t length, const char *const *kept, json_t **record,
                struct ls_error *error)
{
    json_error_t where;
    soften(line, line + length, kept);
    *record = ls_json_load(line, length, JSON_ALLOW_NUL | JSON_DECODE_ANY, &where);
    /* Where jansson has no memory to begin with, it says nothing at all. */
    if (!*record && (!*where.text || json_error_code(&where) == json_error_out_of_memory))
        return ls_no_memory(error, "for a record");
    if (!*record)
        return ls_error_set(error, LS_EDATA, "column %d: %s: expected one JSON object a line",
                            where.column, where.text);
    return LS_OK;
}

/* The object of a line, to be released. */
static int parse(char *line, size_t length, json_t **record, struct ls_error *error)
{
    static const char *const none[] = {NULL};
    int status = load(line, length, none, record, error);
    if (status || json_is_object(*record))
        return status;
    const char *type = type_name(*record);
    json_decref(*record);
    *record = NULL;
    return ls_error_set(error, LS_EDATA, "%s: expected one JSON object a line", type);
}

int data_record_text(char *line, size_t length, const char *key, struct ls_text *out,
                     struct ls_error *error)
{
    return data_record_plain(line, length, key, out)
               ? LS_OK
               : data_record_any(line, length, key, out, error);
}

/* What a record without the text is for. */
static const char *text_hint(const json_t *record)
{
    if (json_object_get(record, "messages"))
        return "the text under that key; conversations are prepared with --chat";
    if (json_object_get(record, "prompt") && json_object_get(record, "completion"))
        return "the text under that key; prompts with completions are prepared with --pairs";
    return "the text under that key; --json-keys names another";
}

int data_record_any(char *line, size_t length, const char *key, struct ls_text *out,
                    struct ls_error *error)
{
    const char *text = NULL;
    size_t bytes = 0;
    json_t *record;
    int status = parse(line, length, &record, error);
    if (!status)
        status = find_text(record, key, text_hint(record), &text, &bytes, error);
    if (!status)
        status = data_text_put(out, text, bytes, error);
    json_decref(record);
    return status;
}

int data_record_check(char *line, size_t length, struct ls_error *error)
{
    json_t *record;
    int status = parse(line, length, &record, error);
    json_decref(record);
    return status;
}

int data_record_weight(const char *line, size_t length, const char *key, float *weight,
                       struct ls_error *error)
{
    json_t *record = NULL;
    char *copy = malloc(length + 1);
    int status = copy ? LS_OK : ls_no_memory(error, "for a record");
    if (!status) {
        memcpy(copy, line, length);
        status = load(copy, length, (const char *const[]){key, NULL}, &record, error);
    }
    free(copy);
    const json_t *value = json_object_get(record, key);
    *weight = 1;
    if (json_is_number(value))
        *weight = (float)json_number_value(value);
    else if (value && !json_is_null(value)) /* records of tables have every key */
        status = ls_error_set(error, LS_EDATA, "\"%.100s\" is %s: expected a number, the weight",
                              key, type_name(value));
    if (!status && !isfinite(*weight))
        status = ls_error_set(error, LS_EDATA,
                              "\"%.100s\" is %g: expected a weight that a float32 can hold", key,
                              json_number_value(value));
    json_decref(record);
    return status;
}

static int add_span(struct data_spans *spans, const struct data_span *span, struct ls_error *error)
{
    if (!ls_list_grow(&spans->list, spans->count, &spans->room, sizeof *spans->list))
        return ls_no_memory(error, "for a record");
    spans->list[spans->count++] = *span;
    return LS_OK;
}

int data_record_pair(char *line, size_t length, struct ls_text *out, struct data_spans *spans,
                     struct ls_error *error)
{
    static const char *const keys[] = {"prompt", "completion"};
    static const char hint[] = "{\"prompt\": ..., \"completion\": ...}";
    const char *text[2] = {NULL, NULL};
    size_t bytes[2] = {0, 0}, begin = out->count;
    json_t *record;
    spans->count = 0;
    int status = parse(line, length, &record, error);
    for (int i = 0; i < 2 && !status; i++)
        status = find_text(record, keys[i], hint, &text[i], &bytes[i], error);
    if (!status && bytes[1] == 0)
        status = ls_error_set(error, LS_EDATA,
                              "the completion is empty: nothing of this example would count");
    for (int i = 0; i < 2 && !status; i++) {
        status = data_text_put(out, text[i], bytes[i], error);
        if (!status)
            status =
                add_span(spans, &(struct data_span){out->count - begin, i == 1, i == 1}, error);
    }
    json_decref(record);
    return status;
}

int data_record_chat(char *line, size_t length, const struct ls_chat *chat, struct ls_text *out,
                     struct data_spans *spans, struct ls_error *error)
{
    struct ls_chat_text text = {0};
    spans->count = 0;
    soften(line, line + length, ls_chat_members);
    int status = ls_chat_examples(chat, line, length, &text, error);
    if (!status)
        status = data_text_put(out, text.bytes, text.count, error);
    for (int64_t i = 0; i < text.parts_count && !status; i++) {
        const struct ls_chat_part *part = &text.parts[i];
        status = add_span(spans, &(struct data_span){part->end, part->counts, part->ends_document},
                          error);
    }
    ls_chat_text_release(&text);
    return status;
}
