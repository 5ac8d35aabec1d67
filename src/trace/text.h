/* Text gathered in a fixed buffer of the caller: no allocation, and what does not fit is noted
 * instead of written. */
#ifndef TRACE_TEXT_H
#define TRACE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

struct trace_text {
    char *data;
    size_t size, used;
    bool overflow;
};

void trace_text_bytes(struct trace_text *text, const void *bytes, size_t count);
void trace_text_put(struct trace_text *text, const char *string);
void trace_text_printf(struct trace_text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* A number in at most so many digits, with a point whatever the locale; null where not finite. */
void trace_text_number(struct trace_text *text, double value, int digits);
/* The string, with U+FFFD in place of bytes that are no UTF-8. */
void trace_text_utf8(struct trace_text *text, const char *string);
/* A JSON string with its quotes. */
void trace_text_json(struct trace_text *text, const char *string);
/* The same characters inside XML text or an attribute's quotes. */
void trace_text_xml(struct trace_text *text, const char *string);

#endif
