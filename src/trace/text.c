/* Text put together in a buffer of fixed size: escaped for JSON or XML, numbers without a locale.
 * */
#include "trace/text.h"

#include <lockstep/base.h>

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void trace_text_bytes(struct trace_text *text, const void *bytes, size_t count)
{
    if (text->overflow || count > text->size - text->used) {
        text->overflow = true;
        return;
    }
    memcpy(text->data + text->used, bytes, count);
    text->used += count;
}

void trace_text_put(struct trace_text *text, const char *string)
{
    trace_text_bytes(text, string, strlen(string));
}

void trace_text_printf(struct trace_text *text, const char *format, ...)
{
    if (text->overflow)
        return;
    size_t room = text->size - text->used;
    va_list args;
    va_start(args, format);
    int length = vsnprintf(text->data + text->used, room, format, args);
    va_end(args);
    if (length < 0 || (size_t)length >= room)
        text->overflow = true;
    else
        text->used += (size_t)length;
}

void trace_text_number(struct trace_text *text, double value, int digits)
{
    char number[40] = "null";
    if (isfinite(value))
        snprintf(number, sizeof number, "%.*g", digits, value);
    char *comma = strchr(number, ',');
    if (comma)
        *comma = '.';
    trace_text_put(text, number);
}

static const char *xml_escape(unsigned char c, char scratch[8]);

/* Appends string, with the characters below 0x80 as escape() spells them: NULL means as they are.
 */
static void put_escaped(struct trace_text *text, const char *string,
                        const char *(*escape)(unsigned char c, char scratch[8]))
{
    const unsigned char *s = (const unsigned char *)string, *end = s + strlen(string);
    while (*s) {
        size_t length = ls_utf8_character((const char *)s, (size_t)(end - s));
        /* U+FFFE and U+FFFF are characters, though none of XML's. */
        bool barred =
            length == 3 && s[0] == 0xef && s[1] == 0xbf && s[2] >= 0xbe && escape == xml_escape;
        if (length == 0 || barred) {
            trace_text_put(text, "\xef\xbf\xbd"); /* U+FFFD */
            s += barred ? length : 1;
            continue;
        }
        char scratch[8];
        const char *escaped = length == 1 ? escape(*s, scratch) : NULL;
        if (escaped)
            trace_text_put(text, escaped);
        else
            trace_text_bytes(text, s, length);
        s += length;
    }
}

static const char *json_escape(unsigned char c, char scratch[8])
{
    switch (c) {
    case '"':
        return "\\\"";
    case '\\':
        return "\\\\";
    case '\n':
        return "\\n";
    case '\r':
        return "\\r";
    case '\t':
        return "\\t";
    }
    if (c >= 0x20)
        return NULL;
    snprintf(scratch, 8, "\\u%04x", c);
    return scratch;
}

static const char *xml_escape(unsigned char c, char scratch[8])
{
    (void)scratch;
    switch (c) {
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '&':
        return "&amp;";
    case '"':
        return "&quot;";
    }
    return c >= 0x20 ? NULL : " "; /* XML 1.0 has no other control characters */
}

static const char *no_escape(unsigned char c, char scratch[8])
{
    (void)c;
    (void)scratch;
    return NULL;
}

void trace_text_utf8(struct trace_text *text, const char *string)
{
    put_escaped(text, string, no_escape);
}

void trace_text_json(struct trace_text *text, const char *string)
{
    trace_text_put(text, "\"");
    put_escaped(text, string, json_escape);
    trace_text_put(text, "\"");
}

void trace_text_xml(struct trace_text *text, const char *string)
{
    put_escaped(text, string, xml_escape);
}
