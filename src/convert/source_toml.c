/* TOML 1.0 as configuration files use it, into entries. It is ours because Debian 12 has no C
 * library for TOML; dates, which no configuration here has, are refused by name. */
#include "convert/convert_private.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

enum { PATH_BYTES = 1024, DEPTH_MAX = 16 };

/* A text that grows. */
struct buffer {
    char *text;
    size_t bytes, capacity;
};

struct toml {
    struct convert_entries *entries;
    struct convert_entries tables; /* headers that were met */
    json_t *counts;                /* of an array's name: the number of its next table */
    const char *name, *text;
    size_t at, bytes;
    int line, depth;
    struct ls_error *error;
    int status; /* the first failure; what follows does nothing */
};

static void fail(struct toml *t, const char *what)
{
    if (!t->status)
        t->status = ls_error_line(t->error, LS_ECONFIG, t->name, t->line, "%s", what);
}

static void put(struct toml *t, struct buffer *out, const char *text, size_t bytes)
{
    if (t->status)
        return;
    if (!ls_bytes_grow(&out->text, out->bytes + bytes + 1, &out->capacity)) {
        t->status = ls_error_set(t->error, LS_ENOMEM, "%.200s: no memory to read it", t->name);
        return;
    }
    memcpy(out->text + out->bytes, text, bytes);
    out->bytes += bytes;
    out->text[out->bytes] = '\0';
}

/* ---- characters ----------------------------------------------------------------------------- */

static char peek(const struct toml *t, size_t ahead)
{
    return !t->status && t->at + ahead < t->bytes ? t->text[t->at + ahead] : '\0';
}

static bool begins(const struct toml *t, const char *word)
{
    size_t length = strlen(word);
    return !t->status && t->bytes - t->at >= length && memcmp(t->text + t->at, word, length) == 0;
}

static void next(struct toml *t)
{
    if (t->at < t->bytes)
        t->line += t->text[t->at++] == '\n';
}

static void blanks(struct toml *t)
{
    while (peek(t, 0) == ' ' || peek(t, 0) == '\t')
        t->at++;
}

/* Blanks, line ends and comments. */
static void gap(struct toml *t)
{
    for (;;) {
        blanks(t);
        if (peek(t, 0) == '#')
            while (t->at < t->bytes && t->text[t->at] != '\n')
                t->at++;
        if (peek(t, 0) != '\n' && !begins(t, "\r\n"))
            return;
        next(t);
    }
}

static bool taken(struct toml *t, char c)
{
    if (peek(t, 0) != c)
        return false;
    next(t);
    return true;
}

/* ---- strings -------------------------------------------------------------------------------- */

static void put_utf8(struct toml *t, struct buffer *out, unsigned long code)
{
    utf8proc_uint8_t bytes[4];
    if (code == 0 || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
        fail(t, "an escape that is no character");
    else
        put(t, out, (const char *)bytes,
            (size_t)utf8proc_encode_char((utf8proc_int32_t)code, bytes));
}

/* Behind \u or \U: so many hexadecimal digits. */
static void escape_code(struct toml *t, struct buffer *out, int digits)
{
    unsigned long code = 0;
    for (int i = 0; i < digits; i++) {
        int c = tolower((unsigned char)peek(t, 0));
        if (!isxdigit(c)) {
            fail(t, "an escape with too few hexadecimal digits");
            return;
        }
        code = code * 16 + (unsigned long)(c <= '9' ? c - '0' : c - 'a' + 10);
        next(t);
    }
    put_utf8(t, out, code);
}

/* Behind a backslash. In a text of several lines, one at a line's end swallows what is blank. */
static void escape(struct toml *t, struct buffer *out, bool lines)
{
    static const char from[] = "btnfre\"\\", to[] = "\b\t\n\f\r\033\"\\";
    char c = peek(t, 0);
    const char *found = c ? strchr(from, c) : NULL;
    if (lines && (c == '\n' || c == ' ' || c == '\t' || c == '\r')) {
        while (isspace((unsigned char)peek(t, 0)))
            next(t);
        return;
    }
    next(t);
    if (found)
        put(t, out, &to[found - from], 1);
    else if (c == 'u' || c == 'U')
        escape_code(t, out, c == 'u' ? 4 : 8);
    else
        fail(t, "an unknown escape: expected one of \\b \\t \\n \\f \\r \\\" \\\\ \\uXXXX");
}

/* "basic", 'literal', and both in threes over several lines. */
static void string(struct toml *t, struct buffer *out, bool may_have_lines)
{
    char quote = peek(t, 0), three[4] = {quote, quote, quote, '\0'};
    bool lines = begins(t, three);
    if (lines && !may_have_lines)
        fail(t, "expected a key on one line");
    t->at += lines ? 3 : 1;
    if (lines && begins(t, "\r\n"))
        t->at++;
    if (lines && peek(t, 0) == '\n')
        next(t);
    while (!t->status) {
        char c = peek(t, 0);
        if (t->at >= t->bytes || (c == '\n' && !lines)) {
            fail(t, "a text without its closing quote");
        } else if (lines && begins(t, three)) {
            for (t->at += 3; peek(t, 0) == quote; t->at++) /* up to two belong to the text */
                put(t, out, &quote, 1);
            return;
        } else if (!lines && c == quote) {
            t->at++;
            return;
        } else if (c == '\\' && quote == '"') {
            t->at++;
            escape(t, out, lines);
        } else if (((unsigned char)c < 0x20 && !strchr("\t\n\r", c)) || c == 0x7f || c == '\0') {
            fail(t, "a control character in a text");
        } else {
            put(t, out, &c, 1);
            next(t);
        }
    }
}

/* ---- keys ----------------------------------------------------------------------------------- */

static bool is_bare(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '-';
}

/* One part of a key, behind what path has. A part with a dot in it stays in quotes. */
static void key_part(struct toml *t, char path[PATH_BYTES])
{
    struct buffer part = {0};
    blanks(t);
    bool quoted = peek(t, 0) == '"' || peek(t, 0) == '\'';
    if (quoted)
        string(t, &part, false);
    for (; !quoted && is_bare(peek(t, 0)); t->at++)
        put(t, &part, &t->text[t->at], 1);
    if (!quoted && part.bytes == 0)
        fail(t, "expected a key, such as steps = 10 or [training]");
    const char *mark = quoted && (part.bytes == 0 || strchr(part.text, '.')) ? "\"" : "";
    size_t used = strlen(path);
    int length = snprintf(path + used, PATH_BYTES - used, "%s%s%s%s", used ? "." : "", mark,
                          part.text ? part.text : "", mark);
    if (used + (size_t)length >= PATH_BYTES)
        fail(t, "expected a shorter key");
    free(part.text);
    blanks(t);
}

static void key_path(struct toml *t, char path[PATH_BYTES])
{
    do
        key_part(t, path);
    while (taken(t, '.'));
}

/* ---- values --------------------------------------------------------------------------------- */

static void value(struct toml *t, char *path, struct buffer *out, enum convert_kind *kind);

static bool is_date(const char *word)
{
    size_t digits = strspn(word, "0123456789");
    return (digits == 4 && word[4] == '-' && isdigit((unsigned char)word[5])) ||
           (digits == 2 && word[2] == ':');
}

/* Hexadecimal, octal and binary become decimal. */
static bool other_base(char *word, size_t bytes)
{
    static const struct {
        char mark;
        int base;
    } bases[] = {{'x', 16}, {'o', 8}, {'b', 2}};
    for (size_t i = 0; i < sizeof bases / sizeof *bases; i++)
        if (word[0] == '0' && word[1] == bases[i].mark) {
            char *end;
            unsigned long long number = strtoull(word + 2, &end, bases[i].base);
            bool good = isxdigit((unsigned char)word[2]) && !*end && number <= INT64_MAX;
            snprintf(word, bytes, "%llu", number);
            return good;
        }
    double ignored;
    return convert_number(word, &ignored);
}

/* true, a number: what stands without quotes. */
static void bare(struct toml *t, struct buffer *out, enum convert_kind *kind)
{
    char word[80];
    size_t used = 0;
    for (;
         used + 1 < sizeof word && (is_bare(peek(t, 0)) || strchr("+.:", peek(t, 0))) && peek(t, 0);
         t->at++)
        if (peek(t, 0) != '_' || !used || !isxdigit((unsigned char)word[used - 1]) ||
            !isxdigit((unsigned char)peek(t, 1)))
            word[used++] = peek(t, 0);
    word[used] = '\0';
    *kind = CONVERT_NUMBER;
    if (strcmp(word, "true") == 0 || strcmp(word, "false") == 0)
        *kind = CONVERT_BOOL;
    else if (is_date(word))
        fail(t, "dates are not read: write it as a text, in quotes");
    else if (strcmp(word, "inf") != 0 && strcmp(word, "+inf") != 0 && strcmp(word, "-inf") != 0 &&
             strcmp(word, "nan") != 0 && !other_base(word, sizeof word))
        fail(t, "expected a text in quotes, a number, true, false, [list] or {table}");
    put(t, out, word, strlen(word));
}

static void list(struct toml *t, struct buffer *out)
{
    enum convert_kind ignored;
    bool first = true;
    t->at++;
    for (gap(t); !t->status && !taken(t, ']'); gap(t)) {
        if (!first)
            put(t, out, " ", 1);
        first = false;
        char open = peek(t, 0);
        bool nested = open == '[' || open == '{';
        if (nested)
            put(t, out, &open, 1);
        value(t, NULL, out, &ignored);
        if (nested)
            put(t, out, open == '[' ? "]" : "}", 1);
        gap(t);
        if (!taken(t, ',') && peek(t, 0) != ']')
            fail(t, "expected , or ] in a list");
    }
    put(t, out, "", 0);
}

static void pair(struct toml *t, const char *prefix, struct buffer *out);

/* {a = 1, b = 2}: its keys are those of path; within a list (path NULL) they become text. */
static bool inline_table(struct toml *t, char *path, struct buffer *out)
{
    bool any = false;
    t->at++;
    blanks(t);
    while (!t->status && !taken(t, '}')) {
        if (any && !path)
            put(t, out, " ", 1);
        any = true;
        pair(t, path, path ? NULL : out);
        blanks(t);
        if (!taken(t, ',') && peek(t, 0) != '}')
            fail(t, "expected , or } in a table");
        blanks(t);
    }
    return any;
}

static void value(struct toml *t, char *path, struct buffer *out, enum convert_kind *kind)
{
    char c = peek(t, 0);
    if (++t->depth > DEPTH_MAX)
        fail(t, "expected fewer levels");
    if (c == '"' || c == '\'') {
        *kind = CONVERT_TEXT;
        string(t, out, true);
    } else if (c == '[') {
        *kind = CONVERT_LIST;
        list(t, out);
    } else if (c == '{') {
        *kind = CONVERT_EMPTY;
        if (inline_table(t, path, out) && path)
            *kind = CONVERT_LIST; /* its keys are entries of their own */
    } else {
        bare(t, out, kind);
    }
    t->depth--;
}

static bool is_known(const struct toml *t, const char *key)
{
    return convert_entries_find(t->entries, key) || convert_entries_find(&t->tables, key);
}

static void add(struct toml *t, struct convert_entries *to, const char *key, const char *text,
                enum convert_kind kind, int line)
{
    struct convert_entry entry = {
        .key = (char *)key, .text = (char *)text, .kind = kind, .line = line};
    if (t->status)
        return;
    t->status = convert_entries_add(to, &entry, t->error);
    if (t->status == LS_ECONFIG)
        ls_error_prefix(t->error, "%.200s:%d", t->name, line);
}

/* key = value below prefix; or, where out is given, as text. */
static void pair(struct toml *t, const char *prefix, struct buffer *out)
{
    char path[PATH_BYTES] = "";
    struct buffer text = {0};
    enum convert_kind kind = CONVERT_TEXT;
    int line = t->line;
    if (prefix)
        snprintf(path, sizeof path, "%s", prefix);
    key_path(t, path);
    if (!taken(t, '='))
        fail(t, "expected = behind the key");
    blanks(t);
    if (out) {
        put(t, out, path, strlen(path));
        put(t, out, "=", 1);
        value(t, NULL, out, &kind);
        return;
    }
    if (is_known(t, path))
        fail(t, "a key that is given twice");
    bool table = peek(t, 0) == '{';
    value(t, path, &text, &kind);
    if (!table || kind == CONVERT_EMPTY)
        add(t, t->entries, path, text.text, kind, line);
    free(text.text);
}

/* Behind the name of an array in path: the number of its next table. */
static void number_put(struct toml *t, char path[PATH_BYTES])
{
    size_t used = strlen(path), room = PATH_BYTES - used;
    json_t *count = json_object_get(t->counts, path);
    json_int_t next = json_integer_value(count);
    if (!count && json_object_set_new_nocheck(t->counts, path, count = json_integer(0)))
        t->status = ls_error_set(t->error, LS_ENOMEM, "%.200s: no memory to read it", t->name);
    do
        if (snprintf(path + used, room, ".%lld", (long long)next++) >= (int)room)
            fail(t, "expected a shorter key");
    while (!t->status && is_known(t, path));
    json_integer_set(count, next);
}

/* [table] or [[array of tables]]: the path of what follows. */
static void header(struct toml *t, char path[PATH_BYTES])
{
    bool many = begins(t, "[[");
    t->at += many ? 2 : 1;
    path[0] = '\0';
    key_path(t, path);
    if (!taken(t, ']') || (many && !taken(t, ']')))
        fail(t, "expected ] behind a table's name");
    if (many)
        number_put(t, path);
    else if (is_known(t, path))
        fail(t, "a table that is given twice");
    add(t, &t->tables, path, "", CONVERT_EMPTY, t->line);
}

int convert_toml_read(struct convert_entries *entries, const char *name, const char *text,
                      size_t bytes, const struct ls_convert_options *options,
                      struct ls_error *error)
{
    (void)options;
    struct toml t = {.entries = entries,
                     .name = name,
                     .text = text,
                     .bytes = bytes,
                     .line = 1,
                     .error = error,
                     .counts = json_object()};
    char path[PATH_BYTES] = "";
    for (gap(&t); !t.status && t.at < t.bytes; gap(&t)) {
        if (peek(&t, 0) == '[')
            header(&t, path);
        else
            pair(&t, path, NULL);
        blanks(&t);
        if (peek(&t, 0) != '#' && peek(&t, 0) != '\n' && !begins(&t, "\r\n") && t.at < t.bytes)
            fail(&t, "expected the end of the line");
    }
    convert_entries_release(&t.tables);
    json_decref(t.counts);
    return t.status;
}
