/* Numbers and characters as files of other programs have them. */
#ifndef TRACE_TEXT_H
#define TRACE_TEXT_H

#include <stdio.h>

/* A number in at most so many digits, with a point whatever the locale; null if not finite. */
void trace_put_number(FILE *file, double value, int digits);
/* The next character of *string, which moves behind it: what is no UTF-8 is U+FFFD, a byte at a
 * time. Returns its bytes, which stand at *bytes. */
size_t trace_character(const char **string, const char **bytes);

#endif
