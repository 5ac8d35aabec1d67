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
    json_t *names;  /* of a path: what it is (enum node) */
    json_t *arrays; /* of an array of tables: the number of its last */
    int texts;      /* tables within lists that were met */
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

static bool is_control(char c)
{
    return ((unsigned char)c < 0x20 && c != '\t') || c == 0x7f;
}

static void comment(struct toml *t)
{
    for (; !t->status && t->at < t->bytes && t->text[t->at] != '\n' && !begins(t, "\r\n"); t->at++)
        if (is_control(t->text[t->at]))
            fail(t, "a control character in a comment");
}

/* Blanks, line ends and comments. */
static void gap(struct toml *t)
{
    for (;;) {
        blanks(t);
        if (peek(t, 0) == '#')
            comment(t);
        if (begins(t, "\r\n"))
            t->at++;
        if (peek(t, 0) != '\n')
            return;
        next(t);
    }
}

/* Text is UTF-8; a mark in front of it, as editors write it, is none of it. */
static void check_utf8(struct toml *t)
{
    static const char mark[] = "\xef\xbb\xbf";
    int line = 1;
    for (size_t at = 0; at < t->bytes && !t->status;) {
        size_t length = ls_utf8_character(t->text + at, t->bytes - at);
        t->line = line;
        if (length == 0)
            fail(t, "expected UTF-8 text");
        line += t->text[at] == '\n';
        at += length;
    }
    t->line = 1;
    t->at = begins(t, mark) ? sizeof mark - 1 : 0;
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

/* A backslash at a line's end, in a text of several lines: it swallows what is blank behind it. */
static bool line_joined(struct toml *t)
{
    size_t ahead = 0;
    while (peek(t, ahead) == ' ' || peek(t, ahead) == '\t')
        ahead++;
    if (peek(t, ahead) != '\n' && !(peek(t, ahead) == '\r' && peek(t, ahead + 1) == '\n'))
        return false;
    while (begins(t, "\r\n") || (peek(t, 0) && strchr(" \t\n", peek(t, 0))))
        next(t);
    return true;
}

/* Behind a backslash. */
static void escape(struct toml *t, struct buffer *out, bool lines)
{
    static const char from[] = "btnfr\"\\", to[] = "\b\t\n\f\r\"\\";
    char c = peek(t, 0);
    const char *found = c ? strchr(from, c) : NULL;
    if (lines && line_joined(t))
        return;
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
            t->at += 3; /* up to two more belong to the text */
            for (int more = 0; more < 2 && peek(t, 0) == quote; more++, t->at++)
                put(t, out, &quote, 1);
            return;
        } else if (!lines && c == quote) {
            t->at++;
            return;
        } else if (c == '\\' && quote == '"') {
            t->at++;
            escape(t, out, lines);
        } else if (is_control(c) && c != '\n' && !(lines && begins(t, "\r\n"))) {
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

/* ---- names ---------------------------------------------------------------------------------- */

/* What a path is. Each name is given once; what is written at one place is not extended at another.
 */
enum node {
    NONE,
    VALUE,  /* or an inline table, which is closed */
    TABLE,  /* of a header */
    PARENT, /* of a header's table: a header of its own may follow */
    DOTTED, /* of a.b = 1 */
    ARRAY,  /* of [[tables]], of which each, PATH.N, is a TABLE */
};

static enum node node_of(const struct toml *t, const char *path)
{
    return (enum node)json_integer_value(json_object_get(t->names, path));
}

static void node_set(struct toml *t, const char *path, enum node node)
{
    if (!t->status && json_object_set_new_nocheck(t->names, path, json_integer(node)))
        t->status = ls_error_set(t->error, LS_ENOMEM, "%.200s: no memory to read it", t->name);
}

/* Makes path, of an array of tables, that of its last one. */
static void number_put(struct toml *t, char path[PATH_BYTES])
{
    size_t used = strlen(path), room = PATH_BYTES - used;
    long long last = json_integer_value(json_object_get(t->arrays, path));
    if (snprintf(path + used, room, ".%lld", last) >= (int)room)
        fail(t, "expected a shorter key");
}

/* path is a part of a header before its last, or, in a key with dots, of that. */
static void enter(struct toml *t, char path[PATH_BYTES], bool is_header)
{
    enum node node = node_of(t, path);
    if (node == VALUE || (!is_header && (node == TABLE || node == ARRAY)))
        fail(t, node == VALUE ? "a key that is given twice: it is no table, or a closed one"
                              : "a table that is given twice: its header is the other place");
    else if (node == NONE || (node == PARENT && !is_header))
        node_set(t, path, is_header ? PARENT : DOTTED);
    else if (node == ARRAY)
        number_put(t, path);
}

/* A key behind what path has. */
static void key_path(struct toml *t, char path[PATH_BYTES], bool is_header)
{
    key_part(t, path);
    while (!t->status && taken(t, '.')) {
        enter(t, path, is_header);
        key_part(t, path);
    }
}

/* ---- values --------------------------------------------------------------------------------- */

static void value(struct toml *t, char *path, struct buffer *out, enum convert_kind *kind);

static bool is_date(const char *word)
{
    size_t digits = strspn(word, "0123456789");
    return (digits == 4 && word[4] == '-' && isdigit((unsigned char)word[5])) ||
           (digits == 2 && word[2] == ':');
}

/* The digits at *c, with an underscore between two at most; false if there are none. */
static bool digits(const char **c, const char *among)
{
    if (!**c || !strchr(among, **c))
        return false;
    while (**c && (strchr(among, **c) || (**c == '_' && (*c)[1] && strchr(among, (*c)[1]))))
        ++*c;
    return true;
}

/* A number, or true or false, as TOML writes it; base: of a whole number without a sign. */
static bool is_word(const char *word, int *base)
{
    static const char decimal[] = "0123456789";
    static const struct {
        const char *mark, *digits;
        int base;
    } bases[] = {{"0x", "0123456789abcdefABCDEF", 16}, {"0o", "01234567", 8}, {"0b", "01", 2}};
    const char *c = word;
    *base = 10;
    for (size_t i = 0; i < sizeof bases / sizeof *bases; i++)
        if (strncmp(word, bases[i].mark, 2) == 0) {
            c += 2;
            *base = bases[i].base;
            return digits(&c, bases[i].digits) && !*c;
        }
    c += *c == '+' || *c == '-';
    if (strcmp(c, "inf") == 0 || strcmp(c, "nan") == 0)
        return true;
    if (c[0] == '0' && c[1] && strchr("_0123456789", c[1]))
        return false;
    bool good = digits(&c, decimal);
    if (good && *c == '.') {
        c++;
        good = digits(&c, decimal);
    }
    if (good && (*c == 'e' || *c == 'E')) {
        c += 1 + (c[1] == '+' || c[1] == '-');
        good = digits(&c, decimal);
    }
    return good && !*c;
}

/* As other files write numbers: decimal, without underscores. */
static bool plain_number(char *word, size_t bytes, int base)
{
    size_t kept = 0;
    double ignored;
    for (size_t i = 0; word[i]; i++)
        if (word[i] != '_')
            word[kept++] = word[i];
    word[kept] = '\0';
    if (base == 10)
        return strpbrk(word, "in") || convert_number(word, &ignored);
    unsigned long long number = strtoull(word + 2, NULL, base);
    snprintf(word, bytes, "%llu", number);
    return number <= INT64_MAX;
}

/* true, a number: what stands without quotes. */
static void bare(struct toml *t, struct buffer *out, enum convert_kind *kind)
{
    char word[80];
    size_t used = 0;
    int base;
    for (; used + 1 < sizeof word; t->at++) {
        char c = peek(t, 0);
        if (!c || !(is_bare(c) || strchr("+.:", c)))
            break;
        word[used++] = c;
    }
    word[used] = '\0';
    *kind = CONVERT_NUMBER;
    if (strcmp(word, "true") == 0 || strcmp(word, "false") == 0)
        *kind = CONVERT_BOOL;
    else if (is_date(word))
        fail(t, "dates are not read: write it as a text, in quotes");
    else if (!is_word(word, &base) || !plain_number(word, sizeof word, base))
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
    char apart[32]; /* where names of the text are kept: no key begins so */
    snprintf(apart, sizeof apart, "\1%d", t->texts += !path);
    t->at++;
    blanks(t);
    if (taken(t, '}'))
        return false;
    for (bool more = true; more && !t->status;) {
        pair(t, path ? path : apart, path ? NULL : out);
        blanks(t);
        more = taken(t, ',');
        if (more && !path)
            put(t, out, " ", 1);
    }
    if (!taken(t, '}'))
        fail(t, "expected , or } in a table, on one line");
    return true;
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

/* key = value below prefix; or, where out is given, as text, without prefix. */
static void pair(struct toml *t, const char *prefix, struct buffer *out)
{
    char path[PATH_BYTES];
    struct buffer text = {0};
    struct convert_entry entry = {.key = path, .kind = CONVERT_TEXT, .line = t->line};
    snprintf(path, sizeof path, "%s", prefix);
    key_path(t, path, false);
    if (!taken(t, '='))
        fail(t, "expected = behind the key");
    if (node_of(t, path) != NONE)
        fail(t, "a key that is given twice");
    node_set(t, path, VALUE);
    blanks(t);
    bool table = peek(t, 0) == '{';
    if (out) {
        put(t, out, path + strlen(prefix) + 1, strlen(path) - strlen(prefix) - 1);
        put(t, out, "=", 1);
        value(t, NULL, out, &entry.kind);
        return;
    }
    value(t, path, &text, &entry.kind);
    entry.text = text.text;
    if (!t->status && (!table || entry.kind == CONVERT_EMPTY)) {
        t->status = convert_entries_add(t->entries, &entry, t->error);
        if (t->status == LS_ECONFIG)
            ls_error_at(t->error, t->name, entry.line, 0);
    }
    free(text.text);
}

/* [[path]]: path becomes that of another table of the array. */
static void table_add(struct toml *t, char path[PATH_BYTES])
{
    json_t *last = json_object_get(t->arrays, path);
    enum node node = node_of(t, path);
    if (node != NONE && node != ARRAY)
        fail(t, "a table that is given twice, once as [[an array]]");
    if (!last && json_object_set_new_nocheck(t->arrays, path, json_integer(0)))
        t->status = ls_error_set(t->error, LS_ENOMEM, "%.200s: no memory to read it", t->name);
    if (last)
        json_integer_set(last, json_integer_value(last) + 1);
    node_set(t, path, ARRAY);
    number_put(t, path);
}

/* [table] or [[array of tables]]: the path of what follows. */
static void header(struct toml *t, char path[PATH_BYTES])
{
    bool many = begins(t, "[[");
    t->at += many ? 2 : 1;
    path[0] = '\0';
    key_path(t, path, true);
    if (!taken(t, ']') || (many && !taken(t, ']')))
        fail(t, "expected ] behind a table's name");
    enum node node = node_of(t, path);
    if (many)
        table_add(t, path);
    else if (node != NONE && node != PARENT)
        fail(t, "a table that is given twice");
    node_set(t, path, TABLE);
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
                     .names = json_object(),
                     .arrays = json_object()};
    char path[PATH_BYTES] = "";
    check_utf8(&t);
    for (gap(&t); !t.status && t.at < t.bytes; gap(&t)) {
        if (peek(&t, 0) == '[')
            header(&t, path);
        else
            pair(&t, path, NULL);
        blanks(&t);
        if (peek(&t, 0) != '#' && peek(&t, 0) != '\n' && !begins(&t, "\r\n") && t.at < t.bytes)
            fail(&t, "expected the end of the line");
    }
    json_decref(t.names);
    json_decref(t.arrays);
    return t.status;
}
