/* The values of a chat template as text: as Python prints them, and as its json writes them. */
#include "chat/chat_private.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How a value is written. */
struct writing {
    struct chat_output out;
    bool json;
    int indent; /* < 0: all on one line */
};

static void put(struct chat_run *run, struct writing *w, const char *text)
{
    chat_put(run, &w->out, chat_string_of(text));
}

/* The shortest digits that give the number back, in the form of Python's repr. */
static void put_real(struct chat_run *run, struct writing *w, double real)
{
    char text[40], *exponent;
    if (isnan(real) || isinf(real)) {
        put(run, w,
            isnan(real) ? (w->json ? "NaN" : "nan")
            : w->json   ? (real < 0 ? "-Infinity" : "Infinity")
                        : (real < 0 ? "-inf" : "inf"));
        return;
    }
    int digits = 1;
    do
        snprintf(text, sizeof text, "%.*e", digits - 1, real);
    while (strtod(text, NULL) != real && ++digits <= 17);
    exponent = strchr(text, 'e');
    int power = atoi(exponent + 1);
    if (power >= -4 && power < 16) {
        snprintf(text, sizeof text, "%.*f", digits - 1 > power ? digits - 1 - power : 0, real);
        if (!strchr(text, '.'))
            strcat(text, ".0");
    }
    put(run, w, text);
}

/* A string in quotes: Python's choose the kind that it does not hold. */
static void put_quoted(struct chat_run *run, struct writing *w, struct chat_string text)
{
    bool single =
        !w->json && (!memchr(text.bytes, '\'', text.count) || memchr(text.bytes, '"', text.count));
    const char quote = single ? '\'' : '"';
    put(run, w, single ? "'" : "\"");
    for (size_t i = 0, plain = 0; i <= text.count && !run->status; i++) {
        unsigned char c = i < text.count ? (unsigned char)text.bytes[i] : 0;
        char escape[8] = "";
        if (i < text.count && c != '\\' && c != (unsigned char)quote && c >= 0x20 &&
            (c != 0x7f || w->json))
            continue;
        chat_put(run, &w->out, (struct chat_string){text.bytes + plain, i - plain});
        plain = i + 1;
        if (i == text.count)
            break;
        if (c == '\n' || c == '\r' || c == '\t')
            snprintf(escape, sizeof escape, "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
        else if (w->json && (c == '\b' || c == '\f'))
            snprintf(escape, sizeof escape, "\\%c", c == '\b' ? 'b' : 'f');
        else if (c == '\\' || c == (unsigned char)quote)
            snprintf(escape, sizeof escape, "\\%c", c);
        else
            snprintf(escape, sizeof escape, w->json ? "\\u%04x" : "\\x%02x", c);
        put(run, w, escape);
    }
    put(run, w, single ? "'" : "\"");
}

static void write_value(struct chat_run *run, struct writing *w, struct chat_value value);

/* In front of element i of a list or mapping, or of its end. */
static void put_break(struct chat_run *run, struct writing *w, int64_t i, bool end)
{
    if (i > 0 && !end)
        put(run, w, w->indent < 0 ? ", " : ",");
    if (w->indent < 0)
        return;
    put(run, w, "\n");
    for (int n = 0; n < w->indent * (run->depth - end) && !run->status; n++)
        put(run, w, " ");
}

static void write_list(struct chat_run *run, struct writing *w, const struct chat_list *list)
{
    bool tuple = list->tuple && !w->json;
    put(run, w, tuple ? "(" : "[");
    for (int64_t i = 0; i < list->count && !run->status; i++) {
        put_break(run, w, i, false);
        write_value(run, w, list->items[i]);
    }
    if (list->count > 0)
        put_break(run, w, list->count, true);
    put(run, w, tuple && list->count == 1 ? ",)" : tuple ? ")" : "]");
}

static void write_key(struct chat_run *run, struct writing *w, struct chat_value key)
{
    if (key.kind == CHAT_STRING || !w->json) {
        write_value(run, w, key);
        return;
    }
    put(run, w, "\"");
    write_value(run, w, key);
    put(run, w, "\"");
}

static void write_dict(struct chat_run *run, struct writing *w, const struct chat_dict *dict)
{
    put(run, w, "{");
    for (int64_t i = 0; i < dict->count && !run->status; i++) {
        put_break(run, w, i, false);
        write_key(run, w, dict->entries[i].key);
        put(run, w, ": ");
        write_value(run, w, dict->entries[i].value);
    }
    if (dict->count > 0)
        put_break(run, w, dict->count, true);
    put(run, w, "}");
}

static void write_plain(struct chat_run *run, struct writing *w, struct chat_value value)
{
    char text[32];
    switch (value.kind) {
    case CHAT_NONE:
        put(run, w, w->json ? "null" : "None");
        break;
    case CHAT_BOOL:
        put(run, w,
            w->json ? (value.integer ? "true" : "false") : (value.integer ? "True" : "False"));
        break;
    case CHAT_INT:
        snprintf(text, sizeof text, "%lld", (long long)value.integer);
        put(run, w, text);
        break;
    case CHAT_FLOAT:
        if (value.rounded)
            chat_fail(run, "a number of 2^63 or more: expected a lesser one, or a string");
        put_real(run, w, value.real);
        break;
    case CHAT_STRING:
        put_quoted(run, w, value.string);
        break;
    default:
        if (w->json || value.kind == CHAT_LOOP || value.kind == CHAT_MACRO_VALUE)
            chat_fail(run, "a %s has no text", chat_kind_name(value));
        else
            put(run, w, "Undefined");
    }
}

static void write_value(struct chat_run *run, struct writing *w, struct chat_value value)
{
    if (!chat_spend(run, 1))
        return;
    if (++run->depth > CHAT_DEPTH_MAX)
        chat_fail(run, "values are nested more than %d deep", CHAT_DEPTH_MAX);
    else if (value.kind == CHAT_LIST)
        write_list(run, w, value.list);
    else if (value.kind == CHAT_DICT && value.dict->changes)
        chat_fail(run, "a namespace has no text");
    else if (value.kind == CHAT_DICT)
        write_dict(run, w, value.dict);
    else
        write_plain(run, w, value);
    run->depth--;
}

struct chat_string chat_text_of(struct chat_run *run, struct chat_value value)
{
    struct writing w = {.indent = -1};
    if (value.kind == CHAT_STRING)
        return value.string;
    if (value.kind != CHAT_UNDEFINED)
        write_value(run, &w, value);
    return chat_written(&w.out);
}

struct chat_string chat_json_of(struct chat_run *run, struct chat_value value, int indent)
{
    struct writing w = {.json = true, .indent = indent};
    int depth = run->depth;
    run->depth = 0;
    write_value(run, &w, value);
    run->depth = depth;
    return chat_written(&w.out);
}
