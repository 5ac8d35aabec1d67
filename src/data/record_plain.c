/* The text of a JSONL record that is plain, in one pass: well-formed UTF-8, JSON without what only
 * Python reads, and no half of a surrogate pair. It takes a tenth of the time that a parser takes
 * which builds the whole record. Whatever is not certain here is left to record.c, which judges it
 * and says what is wrong; the tests hold both against each other. */
#include "data/tokenizer_private.h"

#include <utf8proc.h>

enum { DEPTH_MAX = 64 };

/* What is not read yet. p NULL: the record is not plain. */
struct reader {
    const char *p, *end;
};

static void give_up(struct reader *r)
{
    r->p = NULL;
}

static void skip_space(struct reader *r)
{
    while (r->p < r->end && (*r->p == ' ' || *r->p == '\t' || *r->p == '\n' || *r->p == '\r'))
        r->p++;
}

static bool next_is(struct reader *r, char c)
{
    bool is = r->p && r->p < r->end && *r->p == c;
    if (is)
        r->p++;
    return is;
}

/* To the next byte of a string that is a quote, a backslash or a control character. */
static void skip_run(struct reader *r)
{
    const char *p = r->p;
    while (p < r->end && *p != '"' && *p != '\\' && (unsigned char)*p >= 0x20)
        p++;
    r->p = p;
}

/* Behind the backslash: the character, as at most 3 bytes of UTF-8. */
static int escape(struct reader *r, char out[3])
{
    static const char letters[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    const char *letter = r->p < r->end && *r->p ? strchr(letters, *r->p) : NULL;
    if (letter) {
        r->p++;
        out[0] = values[letter - letters];
        return 1;
    }
    if (r->end - r->p < 5 || *r->p != 'u') {
        give_up(r);
        return 0;
    }
    int unit = data_hex_at(r->p + 1, 4);
    if (unit < 0 || (unit >= 0xd800 && unit <= 0xdfff)) {
        give_up(r);
        return 0;
    }
    r->p += 5;
    return (int)utf8proc_encode_char(unit, (utf8proc_uint8_t *)out);
}

/* The string whose quote was read; appended to out, which has room, unless that is NULL. */
static void read_string(struct reader *r, struct ls_text *out)
{
    while (r->p) {
        const char *from = r->p;
        char character[3];
        skip_run(r);
        size_t run = (size_t)(r->p - from);
        if (out) {
            memcpy(out->bytes + out->count, from, run);
            out->count += run;
        }
        if (next_is(r, '"'))
            return;
        if (!next_is(r, '\\')) {
            give_up(r);
            return;
        }
        int count = escape(r, character);
        for (int i = 0; i < count && out; i++)
            out->bytes[out->count++] = character[i];
    }
}

static void skip_digits(struct reader *r)
{
    const char *from = r->p;
    while (r->p && r->p < r->end && *r->p >= '0' && *r->p <= '9')
        r->p++;
    if (r->p == from)
        give_up(r);
}

static void skip_number(struct reader *r)
{
    next_is(r, '-');
    if (!next_is(r, '0'))
        skip_digits(r);
    if (next_is(r, '.'))
        skip_digits(r);
    if (next_is(r, 'e') || next_is(r, 'E')) {
        if (!next_is(r, '+'))
            next_is(r, '-');
        skip_digits(r);
    }
}

static void skip_word(struct reader *r)
{
    static const char *const words[] = {"true", "false", "null"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t length = strlen(words[i]);
        if ((size_t)(r->end - r->p) >= length && !memcmp(r->p, words[i], length)) {
            r->p += length;
            return;
        }
    }
    give_up(r);
}

/* A key: without escapes, since two spellings of one key are one key. */
static size_t read_key(struct reader *r, const char **key)
{
    if (!next_is(r, '"')) {
        give_up(r);
        return 0;
    }
    *key = r->p;
    skip_run(r);
    size_t length = (size_t)(r->p - *key);
    if (!next_is(r, '"'))
        give_up(r);
    return length;
}

static void skip_value(struct reader *r, int depth);

/* Behind a key or a value: whether another member follows. */
static bool goes_on(struct reader *r, char closing)
{
    skip_space(r);
    if (!r->p || next_is(r, closing))
        return false;
    if (!next_is(r, ','))
        give_up(r);
    else
        skip_space(r);
    return r->p != NULL;
}

static void skip_list(struct reader *r, int depth)
{
    skip_space(r);
    if (next_is(r, ']'))
        return;
    do
        skip_value(r, depth);
    while (r->p && goes_on(r, ']'));
}

/* Behind the opening brace. The last string under key is the text; out is NULL in inner objects. */
static bool read_object(struct reader *r, const char *key, struct ls_text *out, int depth)
{
    size_t begin = out ? out->count : 0, wanted = out ? strlen(key) : 0;
    bool found = false;
    skip_space(r);
    if (next_is(r, '}'))
        return false;
    do {
        const char *name;
        size_t length = read_key(r, &name);
        if (r->p)
            skip_space(r);
        if (!next_is(r, ':'))
            give_up(r);
        if (!r->p)
            return false;
        skip_space(r);
        if (out && length == wanted && !memcmp(name, key, length)) {
            out->count = begin;
            found = next_is(r, '"');
            if (found)
                read_string(r, out);
            else
                give_up(r);
        } else {
            skip_value(r, depth);
        }
    } while (r->p && goes_on(r, '}'));
    return found && r->p;
}

static void skip_value(struct reader *r, int depth)
{
    if (depth == DEPTH_MAX || r->p >= r->end)
        give_up(r);
    else if (next_is(r, '"'))
        read_string(r, NULL);
    else if (next_is(r, '{'))
        read_object(r, NULL, NULL, depth + 1);
    else if (next_is(r, '['))
        skip_list(r, depth + 1);
    else if (*r->p == '-' || (*r->p >= '0' && *r->p <= '9'))
        skip_number(r);
    else
        skip_word(r);
}

bool data_record_plain(const char *line, size_t length, const char *key, struct ls_text *out)
{
    struct reader r = {line, line + length};
    size_t begin = out->count;
    if (data_text_reserve(out, length, NULL) ||
        ls_utf8_valid((const unsigned char *)line, length) != length)
        return false;
    skip_space(&r);
    bool found = next_is(&r, '{') && read_object(&r, key, out, 0);
    if (found)
        skip_space(&r);
    if (found && r.p == r.end)
        return true;
    out->count = begin;
    return false;
}
