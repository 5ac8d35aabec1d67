/* Text from outside: what is well-formed, how it is shown, what may have been meant by it. */
#include <lockstep/base.h>

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

size_t ls_utf8_character(const char *text, size_t bytes)
{
    const unsigned char *p = (const unsigned char *)text;
    if (bytes == 0)
        return 0;
    size_t length = p[0] < 0x80   ? 1
                    : p[0] < 0xc2 ? 0
                    : p[0] < 0xe0 ? 2
                    : p[0] < 0xf0 ? 3
                    : p[0] < 0xf5 ? 4
                                  : 0;
    if (length < 2 || length > bytes)
        return length > bytes ? 0 : length;
    unsigned second_min = p[0] == 0xe0 ? 0xa0 : p[0] == 0xf0 ? 0x90 : 0x80;
    unsigned second_max = p[0] == 0xed ? 0x9f : p[0] == 0xf4 ? 0x8f : 0xbf;
    if (p[1] < second_min || p[1] > second_max)
        return 0;
    for (size_t i = 2; i < length; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    return length;
}

size_t ls_utf8_valid(const void *from, size_t bytes)
{
    const char *text = from;
    size_t at = 0;
    while (at < bytes) {
        uint64_t eight;
        if (bytes - at >= sizeof eight) {
            memcpy(&eight, text + at, sizeof eight);
            if ((eight & 0x8080808080808080u) == 0) {
                at += sizeof eight;
                continue;
            }
        }
        size_t character = ls_utf8_character(text + at, bytes - at);
        if (character == 0)
            break;
        at += character;
    }
    return at;
}

/* A well-formed character that a terminal obeys instead of showing: C0, DEL, C1, and the marks that
 * turn the direction of what follows. */
static bool commands(const unsigned char *p, size_t length)
{
    if (length == 1)
        return p[0] < 0x20 || p[0] == 0x7f;
    if (length == 2)
        return p[0] == 0xc2 && p[1] < 0xa0;
    bool embeds = length == 3 && p[0] == 0xe2 && p[1] == 0x80 && p[2] >= 0xaa && p[2] <= 0xae;
    bool isolates = length == 3 && p[0] == 0xe2 && p[1] == 0x81 && p[2] >= 0xa6 && p[2] <= 0xa9;
    return embeds || isolates;
}

/* p[length] as it is shown where it would command a terminal; at most 4 characters a byte. */
static size_t spell(const unsigned char *p, size_t length, char out[16])
{
    static const char digits[] = "0123456789abcdef";
    if (*p == '\n' || *p == '\t') {
        memcpy(out, *p == '\n' ? "\\n" : "\\t", 2);
        return 2;
    }
    for (size_t i = 0; i < length; i++) {
        const char byte[] = {'\\', 'x', digits[p[i] >> 4], digits[p[i] & 15]};
        memcpy(out + 4 * i, byte, sizeof byte);
    }
    return 4 * length;
}

size_t ls_escape(const char *text, size_t bytes, const char *keep, char *out, size_t out_bytes)
{
    size_t used = 0;
    for (size_t at = 0; at < bytes;) {
        const unsigned char *p = (const unsigned char *)text + at;
        size_t length = ls_utf8_character(text + at, bytes - at);
        char spelled[16];
        bool plain = length > 0 && (!commands(p, length) || (*p && strchr(keep, *p)));
        length = length ? length : 1;
        size_t put = plain ? length : spell(p, length, spelled);
        if (used + put >= out_bytes)
            break;
        memcpy(out + used, plain ? text + at : spelled, put);
        used += put;
        at += length;
    }
    out[used] = '\0';
    return used;
}

/* Changes that turn a into b: a letter more, less or other, or two side by side exchanged (optimal
 * string alignment). Case does not count. Capped: words here are short. */
static size_t edit_distance(const char *a, const char *b)
{
    enum { LENGTH_MAX = 64 };
    size_t la = strnlen(a, LENGTH_MAX), lb = strnlen(b, LENGTH_MAX);
    size_t rows[3][LENGTH_MAX + 1], *before = rows[0], *above = rows[1], *row = rows[2];
    for (size_t j = 0; j <= lb; j++)
        row[j] = j;
    for (size_t i = 1; i <= la; i++) {
        size_t *free = before;
        before = above;
        above = row;
        row = free;
        row[0] = i;
        for (size_t j = 1; j <= lb; j++) {
            int x = tolower((unsigned char)a[i - 1]), y = tolower((unsigned char)b[j - 1]);
            size_t best = above[j - 1] + (x != y);
            best = above[j] + 1 < best ? above[j] + 1 : best;
            best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
            if (i > 1 && j > 1 && x == tolower((unsigned char)b[j - 2]) &&
                tolower((unsigned char)a[i - 2]) == y && before[j - 2] + 1 < best)
                best = before[j - 2] + 1;
            row[j] = best;
        }
    }
    return row[lb];
}

/* Thousandths of the longer word that differ. */
static size_t difference(const char *a, const char *b)
{
    size_t la = strlen(a), lb = strlen(b), longer = la > lb ? la : lb;
    return longer ? 1000 * edit_distance(a, b) / longer : 0;
}

const char *ls_nearest(const char *word, const char *const *candidates, size_t count)
{
    enum { DIFFERENCE_MAX = 334, BEGINNING_MIN = 3 };
    const char *best = NULL;
    size_t least = DIFFERENCE_MAX + 1, length = strlen(word);
    for (size_t i = 0; i < count; i++) {
        size_t differs = difference(word, candidates[i]);
        if (length >= BEGINNING_MIN && strncmp(word, candidates[i], length) == 0 &&
            differs > DIFFERENCE_MAX)
            differs = DIFFERENCE_MAX;
        if (differs < least) {
            least = differs;
            best = candidates[i];
        }
    }
    return best;
}

void ls_string_add(char *text, size_t bytes, const char *between, const char *format, ...)
{
    size_t used = strlen(text);
    va_list args;
    if (used > 0)
        used += (size_t)snprintf(text + used, bytes - used, "%s", between);
    if (used >= bytes)
        return;
    va_start(args, format);
    vsnprintf(text + used, bytes - used, format, args);
    va_end(args);
}

struct ls_meant ls_meant(const char *near, const char *otherwise)
{
    struct ls_meant meant;
    snprintf(meant.text, sizeof meant.text, "%s%s%s", near ? "; did you mean " : "",
             near ? near : otherwise, near ? "?" : "");
    return meant;
}
