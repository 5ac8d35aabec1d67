/* Pieces of text as the published patterns cut them, found without a regular expression. Each
 * scanner stands for one form of pattern in split.c, which also has the patterns: tests hold a
 * scanner against its pattern, which PCRE2 carries out, over every character and over random texts.
 */
#include "data/tokenizer_private.h"

#include <stdlib.h>
#include <string.h>

enum {
    LETTER = 1, /* \p{L} */
    NUMBER = 2, /* \p{N} */
    SPACE = 4,  /* \s */
    OTHER = 8,  /* none of them */
    UPPER = 16, /* Lu, Lt, Lm, Lo or M */
    LOWER = 32, /* Ll, Lm, Lo or M */
    CODES = 0x110000,
    PLANE_LAST = 0x40000, /* planes 4 to 13 hold nothing, 15 and 16 what is private: no classes */
    TAGS = 0xe0000,       /* and what follows them in plane 14: marks */
};

static unsigned char class_of(uint32_t code)
{
    int category = data_category(code);
    const char *name = data_category_name(category);
    bool letter = name[0] == 'L', mark = name[0] == 'M';
    bool both = mark || (letter && (name[1] == 'm' || name[1] == 'o'));
    unsigned class = letter                ? LETTER
                     : name[0] == 'N'      ? NUMBER
                     : data_is_space(code) ? SPACE
                                           : OTHER;
    if (both || (letter && (name[1] == 'u' || name[1] == 't')))
        class |= UPPER;
    if (both || (letter && name[1] == 'l'))
        class |= LOWER;
    return (unsigned char)class;
}

unsigned char *data_scan_classes_new(struct ls_error *error)
{
    unsigned char *classes = malloc(CODES);
    if (!classes)
        ls_no_memory(error, "for a tokenizer");
    if (!classes)
        return NULL;
    memset(classes, OTHER, CODES);
    for (uint32_t code = 0; code < PLANE_LAST; code++)
        classes[code] = class_of(code);
    for (uint32_t code = TAGS; code < TAGS + 0x1000; code++)
        classes[code] = class_of(code);
    return classes;
}

/* A text that is scanned. */
struct scan {
    const unsigned char *classes, *text;
    size_t bytes;
};

/* Class of the character at `at`, 0 at the end of the text; *length = its bytes. */
static inline unsigned class_at(const struct scan *s, size_t at, size_t *length)
{
    *length = 1;
    if (at >= s->bytes)
        return 0;
    if (s->text[at] < 0x80)
        return s->classes[s->text[at]];
    return s->classes[data_utf8_decode(s->text + at, length)];
}

/* End of the run of characters of a class in `wanted` that begins at `at`. */
static inline size_t run_end(const struct scan *s, size_t at, unsigned wanted)
{
    size_t length;
    while (class_at(s, at, &length) & wanted)
        at += length;
    return at;
}

static bool newline_at(const struct scan *s, size_t at)
{
    return at < s->bytes && (s->text[at] == '\r' || s->text[at] == '\n');
}

/* Bytes of 's 't 're 've 'm 'll 'd at `at`; 0: none. In any case s is U+017F too. */
static size_t contraction(const struct scan *s, size_t at, bool any_case)
{
    if (at + 1 >= s->bytes || s->text[at] != '\'')
        return 0;
    unsigned fold = any_case ? 0x20 : 0;
    unsigned char a = (unsigned char)(s->text[at + 1] | fold);
    unsigned char b = at + 2 < s->bytes ? (unsigned char)(s->text[at + 2] | fold) : 0;
    if (a == 's' || a == 't' || a == 'm' || a == 'd')
        return 2;
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l'))
        return 3;
    bool long_s =
        any_case && at + 2 < s->bytes && s->text[at + 1] == 0xc5 && s->text[at + 2] == 0xbf;
    return long_s ? 3 : 0;
}

/* \s+(?!\S)|\s+: white space, without its last character where text follows. */
static size_t spaces_end(const struct scan *s, size_t at, size_t end)
{
    if (end == s->bytes)
        return end;
    size_t last = data_utf8_before(s->text, end);
    return last > at ? last : end;
}

/* \s*[\r\n]+|\s+(?!\S)|\s+, or with final_spaces \s++$ before all of them. */
static size_t lines_end(const struct scan *s, const struct data_scan_rules *rules, size_t at)
{
    size_t end = run_end(s, at, SPACE), line = end;
    if (rules->final_spaces && end == s->bytes)
        return end;
    while (line > at && !newline_at(s, line - 1))
        line--;
    return line > at ? line : spaces_end(s, at, end);
}

/* ` ?[^\s\p{L}\p{N}]+[\r\n]*`; 0: no match. */
static size_t others_end(const struct scan *s, size_t at, bool slashes)
{
    size_t length, begin = at + (s->text[at] == ' ');
    if (!(class_at(s, begin, &length) & OTHER))
        return 0;
    size_t end = run_end(s, begin, OTHER);
    while (newline_at(s, end) || (slashes && end < s->bytes && s->text[end] == '/'))
        end++;
    return end;
}

static size_t numbers_end(const struct scan *s, size_t at, int most)
{
    size_t length;
    for (int i = 0; i < most && class_at(s, at, &length) & NUMBER; i++)
        at += length;
    return at;
}

/* 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
static size_t scan_gpt2(const struct scan *s, size_t at)
{
    size_t length = contraction(s, at, false), begin = at + (s->text[at] == ' ');
    if (length)
        return at + length;
    unsigned class = class_at(s, begin, &length);
    if (class & (LETTER | NUMBER | OTHER))
        return run_end(s, begin + length, class & (LETTER | NUMBER | OTHER));
    return spaces_end(s, at, run_end(s, at, SPACE));
}

/* (?i:'s|...)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*| and lines */
static size_t scan_words(const struct scan *s, const struct data_scan_rules *rules, size_t at)
{
    size_t length = contraction(s, at, true), next;
    if (length)
        return at + length;
    unsigned class = class_at(s, at, &length);
    if (class & LETTER)
        return run_end(s, at + length, LETTER);
    if (class & NUMBER)
        return numbers_end(s, at, rules->digits);
    if (!newline_at(s, at) && class_at(s, at + length, &next) & LETTER)
        return run_end(s, at + length + next, LETTER);
    size_t end = others_end(s, at, false);
    return end ? end : lines_end(s, rules, at);
}

/* U*W+ from `at`, where U is UPPER and W is LOWER; 0: no match. */
static size_t cased_lower_end(const struct scan *s, size_t at)
{
    size_t upper = run_end(s, at, UPPER), end = run_end(s, upper, LOWER), length;
    while (end == upper && upper > at) { /* U* gives characters back until one is LOWER too */
        upper = data_utf8_before(s->text, upper);
        if (class_at(s, upper, &length) & LOWER)
            return upper + length;
        end = upper;
    }
    return end > upper ? end : 0;
}

/* [^\r\n\p{L}\p{N}]?U*W+|[^\r\n\p{L}\p{N}]?U+W*, each with a contraction behind it; 0: no match. */
static size_t cased_end(const struct scan *s, const struct data_scan_rules *rules, size_t at)
{
    size_t length, begin = at, end = 0;
    if (!(class_at(s, at, &length) & (LETTER | NUMBER)) && !newline_at(s, at))
        begin += length;
    end = cased_lower_end(s, begin);
    if (!end && begin > at)
        end = cased_lower_end(s, at);
    if (!end) {
        end = run_end(s, begin, UPPER);
        if (end == begin)
            return 0;
    }
    return end + (rules->contractions ? contraction(s, end, true) : 0);
}

static size_t scan_cased(const struct scan *s, const struct data_scan_rules *rules, size_t at)
{
    size_t length, end = cased_end(s, rules, at);
    if (end)
        return end;
    if (class_at(s, at, &length) & NUMBER)
        return numbers_end(s, at, rules->digits);
    end = others_end(s, at, true);
    return end ? end : lines_end(s, rules, at);
}

size_t data_scan_next(const struct data_scan_rules *rules, const unsigned char *classes,
                      const unsigned char *text, size_t bytes, size_t start)
{
    const struct scan s = {classes, text, bytes};
    switch (rules->form) {
    case DATA_SCAN_GPT2:
        return scan_gpt2(&s, start);
    case DATA_SCAN_WORDS:
        return scan_words(&s, rules, start);
    default:
        return scan_cased(&s, rules, start);
    }
}
