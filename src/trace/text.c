/* Numbers and characters as files of other programs have them. */
#include "trace/text.h"

#include <lockstep/base.h>

#include <math.h>
#include <string.h>

void trace_put_number(FILE *file, double value, int digits)
{
    char number[40] = "null";
    if (isfinite(value))
        snprintf(number, sizeof number, "%.*g", digits, value);
    char *comma = strchr(number, ',');
    if (comma)
        *comma = '.';
    fputs(number, file);
}

size_t trace_character(const char **string, const char **bytes)
{
    size_t length = ls_utf8_character(*string, strlen(*string));
    *bytes = length ? *string : "\xef\xbf\xbd"; /* U+FFFD */
    *string += length ? length : 1;
    return length ? length : 3;
}
