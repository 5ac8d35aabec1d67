/* lockstep/base/formatted.h - the text of a format and of what follows it. */
#ifndef LOCKSTEP_BASE_FORMATTED_H
#define LOCKSTEP_BASE_FORMATTED_H

#include <stdarg.h>
#include <stdio.h>

/* In a function whose last arguments are format and "...": text[] = them; what does not fit is left
 * out. */
#define LS_FORMAT(text, format)                                                                    \
    do {                                                                                           \
        va_list following;                                                                         \
        va_start(following, format);                                                               \
        vsnprintf(text, sizeof text, format, following);                                           \
        va_end(following);                                                                         \
    } while (0)

#endif
