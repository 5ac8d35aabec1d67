/* The values of a chat template as text: as Python prints them, and as its json writes them. */
#include "chat/chat_private.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <utf8proc.h>

/* How a value is written. */
struct writing {
    struct chat_output out;
    const struct chat_json *json; /* NULL: as Python's str */
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

/* As str.isprintable has it of what is not ASCII. */
static bool printable(uint32_t code)
{
    switch (utf8proc_category((utf8proc_int32_t)code)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
        return false;
    default:
        return true;
    }
}

/* Bytes of the character at the text's beginning if a string has it as it is; 0: it is escaped. */
static size_t plain(const struct writing *w, struct chat_string text, char quote)
{
    unsigned char c = (unsigned char)text.bytes[0];
    if (c < 0x7f)
        return c >= 0x20 && c != '\\' && c != (unsigned char)quote;
    if (w->json)
        return w->json->ascii ? 0 : chat_character(text);
    size_t count = chat_character(text);
    return printable(chat_code_point((struct chat_string){text.bytes, count})) ? count : 0;
}

/* A character that is not plain. */
static void put_escape(struct chat_run *run, struct writing *w, struct chat_string character)
{
    static const char names[] = "\n\r\t\b\f", letters[] = "nrtbf";
    char escape[16];
    uint32_t c = chat_code_point(character);
    const char *named = c ? strchr(names, (int)ls_min(c, 0x7f)) : NULL;
    if (c == '\\' || c == '"' || c == '\'')
        snprintf(escape, sizeof escape, "\\%c", (char)c);
    else if (named && (w->json || named - names < 3))
        snprintf(escape, sizeof escape, "\\%c", letters[named - names]);
    else if (c >= 0x10000 && w->json)
        snprintf(escape, sizeof escape, "\\u%04x\\u%04x", 0xd7c0 + (c >> 10), 0xdc00 + (c & 0x3ff));
    else
        snprintf(escape, sizeof escape,
                 c >= 0x10000            ? "\\U%08x"
                 : w->json || c >= 0x100 ? "\\u%04x"
                                         : "\\x%02x",
                 c);
    put(run, w, escape);
}

/* A string in quotes: Python's choose the kind that it does not hold. */
static void put_quoted(struct chat_run *run, struct writing *w, struct chat_string text)
{
    bool single =
        !w->json && (!memchr(text.bytes, '\'', text.count) || memchr(text.bytes, '"', text.count));
    const char quote = single ? '\'' : '"';
    put(run, w, single ? "'" : "\"");
    while (text.count > 0 && !run->status) {
        size_t count = 0;
        for (size_t bytes = 1; count < text.count && bytes > 0; count += bytes)
            bytes = plain(w, (struct chat_string){text.bytes + count, text.count - count}, quote);
        chat_put(run, &w->out, (struct chat_string){text.bytes, count});
        text = (struct chat_string){text.bytes + count, text.count - count};
        if (text.count == 0)
            break;
        count = chat_character(text);
        put_escape(run, w, (struct chat_string){text.bytes, count});
        text = (struct chat_string){text.bytes + count, text.count - count};
    }
    put(run, w, single ? "'" : "\"");
}

static void write_value(struct chat_run *run, struct writing *w, struct chat_value value);

/* In front of element i of a list or mapping, or of its end. */
static void put_break(struct chat_run *run, struct writing *w, int64_t i, bool end)
{
    if (i > 0 && !end)
        chat_put(run, &w->out, w->json ? w->json->between : chat_string_of(", "));
    if (!w->json || w->json->indent < 0)
        return;
    put(run, w, "\n");
    for (int n = 0; n < w->json->indent * (run->depth - end) && !run->status; n++)
        put(run, w, " ");
}

static void write_list(struct chat_run *run, struct writing *w, const struct chat_list *list)
{
    bool tuple = list->listing == CHAT_TUPLE && !w->json;
    if (list->listing > CHAT_TUPLE) {
        chat_no_list(run, "has no text");
        return;
    }
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

/* The entries by their keys, if the text has them so. */
static const struct chat_entry *entries_of(struct chat_run *run, const struct writing *w,
                                           const struct chat_dict *dict)
{
    if (!w->json || !w->json->sorted || dict->count < 2)
        return dict->entries;
    struct chat_entry *sorted = chat_take(run, (size_t)dict->count * sizeof *sorted);
    if (!sorted)
        return dict->entries;
    memcpy(sorted, dict->entries, (size_t)dict->count * sizeof *sorted);
    chat_sort(run, sorted, dict->count, false);
    return sorted;
}

static void write_dict(struct chat_run *run, struct writing *w, const struct chat_dict *dict)
{
    const struct chat_entry *entries = entries_of(run, w, dict);
    put(run, w, "{");
    for (int64_t i = 0; i < dict->count && !run->status; i++) {
        put_break(run, w, i, false);
        write_key(run, w, entries[i].key);
        chat_put(run, &w->out, w->json ? w->json->colon : chat_string_of(": "));
        write_value(run, w, entries[i].value);
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
    case CHAT_STRING: {
        bool markup = value.safe && !w->json;
        put(run, w, markup ? "Markup(" : "");
        put_quoted(run, w, value.string);
        put(run, w, markup ? ")" : "");
        break;
    }
    default:
        if (w->json || value.kind != CHAT_UNDEFINED)
            chat_fail(run, "%s has no text", chat_kind_name(value));
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
    struct writing w = {.json = NULL};
    if (value.kind == CHAT_STRING)
        return value.string;
    if (value.kind != CHAT_UNDEFINED)
        write_value(run, &w, value);
    return chat_written(&w.out);
}

struct chat_string chat_json_of(struct chat_run *run, struct chat_value value,
                                const struct chat_json *how)
{
    struct writing w = {.json = how};
    int depth = run->depth;
    run->depth = 0;
    write_value(run, &w, value);
    run->depth = depth;
    return chat_written(&w.out);
}
