/* Characters as files of other programs have them. */
#ifndef TRACE_TEXT_H
#define TRACE_TEXT_H

#include <stddef.h>

/* The next character of *string, which moves behind it: what is no UTF-8 is U+FFFD, a byte at a
 * time. Returns its bytes, which stand at *bytes. */
size_t trace_character(const char **string, const char **bytes);

#endif
