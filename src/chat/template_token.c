/* The text of a chat template as texts and tags, and the tokens of a tag, as Jinja has them with
 * trim_blocks and lstrip_blocks, which is how transformers reads templates. */
#include "chat/chat_private.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- failing -------------------------------------------------------------------------------- */

int chat_refuse(const struct ls_chat_template *t, size_t at, struct ls_error *error,
                const char *format, va_list list)
{
    char text[400];
    vsnprintf(text, sizeof text, format, list);
    int line = 1, column = 1;
    for (size_t i = 0; i < at && i < t->text.count; i++) {
        column = t->text.bytes[i] == '\n' ? 1 : column + 1;
        line += t->text.bytes[i] == '\n';
    }
    return ls_error_set(error, LS_EDATA, "%.300s:%d:%d: %s", t->name, line, column, text);
}

void chat_parse_fail(struct chat_parser *p, size_t at, const char *format, ...)
{
    va_list list;
    if (p->status)
        return;
    va_start(list, format);
    p->status = chat_refuse(p->t, at, p->error, format, list);
    va_end(list);
    p->token = (struct chat_token){.kind = CHAT_END_TAG, .at = at};
}

/* ---- characters ----------------------------------------------------------------------------- */

static char peek(const struct chat_parser *p, size_t ahead)
{
    struct chat_string text = p->t->text;
    return p->at + ahead < text.count ? text.bytes[p->at + ahead] : 0;
}

static bool blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r') || (c >= 0x1c && c <= 0x1f);
}

static bool digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/* ---- texts between tags --------------------------------------------------------------------- */

/* The next "{{", "{%" or "{#" from p->at on; the text's end. */
static size_t tag_find(const struct chat_parser *p)
{
    struct chat_string text = p->t->text;
    for (size_t i = p->at; i + 1 < text.count; i++)
        if (text.bytes[i] == '{' && strchr("{%#", text.bytes[i + 1]) && text.bytes[i + 1])
            return i;
    return text.count;
}

/* Behind the tag that ends at p->at: white space goes with "-", else behind a block the end of its
 * line. */
static void trim_behind(struct chat_parser *p, bool all, bool block)
{
    while (all && blank(peek(p, 0)))
        p->at++;
    if (!all && block && peek(p, 0) == '\n')
        p->at++;
}

/* text ends in front of a tag: as the tag trims it. */
static struct chat_string trim_before(const struct chat_parser *p, size_t begin, size_t end)
{
    const char *bytes = p->t->text.bytes;
    char kind = bytes[end + 1], sign = end + 2 < p->t->text.count ? bytes[end + 2] : 0;
    size_t stop = end;
    if (sign == '-') {
        while (stop > begin && blank(bytes[stop - 1]))
            stop--;
    } else if (sign != '+' && kind != '{') {
        while (stop > begin && blank(bytes[stop - 1]) && bytes[stop - 1] != '\n')
            stop--;
        bool line_begins = stop == 0 || bytes[stop - 1] == '\n';
        stop = line_begins ? stop : end;
    }
    return (struct chat_string){bytes + begin, stop - begin};
}

static void comment_pass(struct chat_parser *p)
{
    size_t begin = p->at;
    p->at += 2;
    while (p->at < p->t->text.count && !(peek(p, 0) == '#' && peek(p, 1) == '}'))
        p->at++;
    if (p->at >= p->t->text.count) {
        chat_parse_fail(p, begin, "the comment has no end \"#}\"");
        return;
    }
    char sign = p->at > begin + 2 ? p->t->text.bytes[p->at - 1] : 0;
    p->at += 2;
    if (sign != '+')
        trim_behind(p, sign == '-', true);
}

struct chat_string chat_token_text(struct chat_parser *p, char *tag)
{
    *tag = 0;
    size_t begin = p->at, end = tag_find(p), count = p->t->text.count;
    if (p->status)
        return (struct chat_string){0};
    if (end == count) {
        p->at = count;
        return (struct chat_string){p->t->text.bytes + begin, count - begin};
    }
    struct chat_string text = trim_before(p, begin, end);
    *tag = p->t->text.bytes[end + 1];
    p->at = end;
    if (*tag == '#') {
        comment_pass(p);
        return text;
    }
    p->at += 2;
    p->at += peek(p, 0) == '-' || peek(p, 0) == '+';
    p->in_output = *tag == '{';
    p->open = 0;
    chat_token_next(p);
    return text;
}

/* ---- tokens of a tag ------------------------------------------------------------------------ */

/* The end of the tag at p->at, which is passed; white space behind it too. */
static bool tag_ends(struct chat_parser *p)
{
    size_t sign = peek(p, 0) == '-' || (peek(p, 0) == '+' && !p->in_output);
    const char end = p->in_output ? '}' : '%';
    if (p->open > 0 || peek(p, sign) != end || peek(p, sign + 1) != '}')
        return false;
    bool all = peek(p, 0) == '-', keep = peek(p, 0) == '+';
    p->at += sign + 2;
    if (!keep)
        trim_behind(p, all, !p->in_output);
    return true;
}

/* The character that \xHH, \uHHHH or \UHHHHHHHH at p->at means. */
static size_t escape_hex(struct chat_parser *p, int digits, char *to)
{
    uint32_t c = 0;
    for (int i = 0; i < digits; i++) {
        char h = peek(p, 2 + (size_t)i);
        const char *all = "0123456789abcdef", *found = h ? strchr(all, h | 0x20) : NULL;
        if (!found || (!digit(h) && !letter(h))) {
            chat_parse_fail(p, p->at, "\\%c needs %d hexadecimal digits", peek(p, 1), digits);
            return 0;
        }
        c = c * 16 + (uint32_t)(found - all);
    }
    if (c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff)) {
        chat_parse_fail(p, p->at, "no character has this number");
        return 0;
    }
    p->at += 2 + (size_t)digits;
    return chat_encode(c, to);
}

/* One escape of a string, as Python has them. */
static size_t escape(struct chat_parser *p, char *to)
{
    static const char names[] = "ntr\\'\"0abfv", means[] = "\n\t\r\\'\"\0\a\b\f\v";
    char c = peek(p, 1);
    if (c == 'x' || c == 'u' || c == 'U')
        return escape_hex(p, c == 'x' ? 2 : c == 'u' ? 4 : 8, to);
    const char *found = c ? strchr(names, c) : NULL;
    if (c == 'N' && peek(p, 2) == '{') {
        chat_parse_fail(p, p->at, "names of characters are not supported: write \\u....");
        return 0;
    }
    if (digit(c) && (c != '0' || digit(peek(p, 2)))) {
        chat_parse_fail(p, p->at, "octal escapes are not supported: write \\x..");
        return 0;
    }
    p->at += c == '\n' || found ? 2 : 1;
    if (c == '\n')
        return 0;
    *to = found ? means[found - names] : '\\'; /* others stay as they are */
    return 1;
}

static void string_read(struct chat_parser *p)
{
    char quote = peek(p, 0);
    size_t begin = p->at, end = begin + 1, count = 0;
    struct chat_string text = p->t->text;
    while (end < text.count && text.bytes[end] != quote)
        end += text.bytes[end] == '\\' ? 2 : 1;
    if (end >= text.count) {
        chat_parse_fail(p, begin, "the string has no end %c", quote);
        return;
    }
    char *bytes = chat_arena_take(&p->t->arena, end - begin + 4);
    if (!bytes) {
        chat_parse_fail(p, begin, "no memory for the template");
        return;
    }
    for (p->at++; p->at < end && !p->status;) {
        if (peek(p, 0) == '\\')
            count += escape(p, bytes + count);
        else
            bytes[count++] = text.bytes[p->at++];
    }
    p->at = end + 1;
    if (!p->status)
        p->token =
            (struct chat_token){.kind = CHAT_STRING_TOKEN,
                                .at = begin,
                                .text = {text.bytes + begin, end + 1 - begin},
                                .value = chat_text_value((struct chat_string){bytes, count})};
}

static void number_read(struct chat_parser *p)
{
    char copy[64];
    size_t begin = p->at, count = 0;
    bool real = false;
    for (;;) {
        char c = peek(p, 0);
        bool point = c == '.' && !real && digit(peek(p, 1));
        bool sign = (c == '+' || c == '-') && count > 0 && strchr("eE", copy[count - 1]);
        bool exponent = (c == 'e' || c == 'E') &&
                        (digit(peek(p, 1)) || (peek(p, 1) && strchr("+-", peek(p, 1))));
        if (!(digit(c) || point || exponent || sign || (c == '_' && digit(peek(p, 1)))) ||
            count + 1 >= sizeof copy)
            break;
        real = real || point || exponent;
        if (c != '_')
            copy[count++] = c;
        p->at++;
    }
    copy[count] = 0;
    p->token = (struct chat_token){
        .kind = CHAT_NUMBER, .at = begin, .text = {p->t->text.bytes + begin, p->at - begin}};
    char *end;
    errno = 0;
    if (real)
        p->token.value = (struct chat_value){.kind = CHAT_FLOAT, .real = strtod(copy, &end)};
    else
        p->token.value = chat_int_value(strtoll(copy, &end, 10));
    if (errno || *end || letter(peek(p, 0)) || digit(peek(p, 0)))
        chat_parse_fail(p, begin, "a number that does not fit 64 bits, or is followed by a letter");
}

static void sign_read(struct chat_parser *p)
{
    static const char *const pairs[] = {"==", "!=", "<=", ">=", "//", "**"};
    size_t count = 1;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (peek(p, 0) == pairs[i][0] && peek(p, 1) == pairs[i][1])
            count = 2;
    char c = peek(p, 0);
    if (count == 1 && !strchr("+-*/%~()[]{}<>=.:|,", c)) {
        chat_parse_fail(p, p->at, "a character that has no meaning here");
        return;
    }
    p->open += strchr("([{", c) != NULL;
    p->open -= strchr(")]}", c) != NULL && p->open > 0;
    p->token = (struct chat_token){
        .kind = CHAT_SIGN, .at = p->at, .text = {p->t->text.bytes + p->at, count}};
    p->at += count;
}

void chat_token_next(struct chat_parser *p)
{
    if (p->status)
        return;
    while (blank(peek(p, 0)))
        p->at++;
    size_t begin = p->at;
    if (tag_ends(p)) {
        p->token = (struct chat_token){.kind = CHAT_END_TAG, .at = begin};
    } else if (p->at >= p->t->text.count) {
        chat_parse_fail(p, begin, "the template ends within a tag: expected %s",
                        p->in_output ? "}}" : "%}");
    } else if (letter(peek(p, 0))) {
        while (letter(peek(p, 0)) || digit(peek(p, 0)))
            p->at++;
        p->token = (struct chat_token){
            .kind = CHAT_WORD, .at = begin, .text = {p->t->text.bytes + begin, p->at - begin}};
    } else if (digit(peek(p, 0))) {
        number_read(p);
    } else if (peek(p, 0) == '"' || peek(p, 0) == '\'') {
        string_read(p);
    } else if (peek(p, 0) == 0) {
        chat_parse_fail(p, begin, "a character that has no meaning here");
    } else {
        sign_read(p);
    }
}

bool chat_token_is(const struct chat_parser *p, enum chat_token_kind kind, const char *text)
{
    return !p->status && p->token.kind == kind && (!text || chat_string_is(p->token.text, text));
}

bool chat_token_take(struct chat_parser *p, enum chat_token_kind kind, const char *text)
{
    bool is = chat_token_is(p, kind, text);
    if (is)
        chat_token_next(p);
    return is;
}

void chat_token_expect(struct chat_parser *p, enum chat_token_kind kind, const char *text)
{
    if (p->status || chat_token_take(p, kind, text))
        return;
    bool ended = p->token.kind == CHAT_END_TAG;
    chat_parse_fail(p, p->token.at, "expected %s, found %.*s",
                    text                   ? text
                    : kind == CHAT_WORD    ? "a name"
                    : kind == CHAT_END_TAG ? "the end of the tag"
                                           : "a literal",
                    ended ? 18 : (int)ls_min((int64_t)p->token.text.count, 60),
                    ended ? "the end of the tag" : p->token.text.bytes);
}
