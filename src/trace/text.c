/* Characters as files of other programs have them. */
#include "trace/text.h"

#include <lockstep/base.h>

#include <string.h>

size_t trace_character(const char **string, const char **bytes)
{
    size_t length = ls_utf8_character(*string, strlen(*string));
    *bytes = length ? *string : "\xef\xbf\xbd"; /* U+FFFD */
    *string += length ? length : 1;
    return length ? length : 3;
}
