/* What an error of a rank that waited in vain says. */
#ifndef TEST_SUPPORT_LATE_H
#define TEST_SUPPORT_LATE_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Whether it says that it waited for at least so long: a busy machine lets it wait for longer. */
static inline bool says_waited(const char *text, double least_s)
{
    static const char words[] = "timed out after ";
    const char *at = strstr(text, words);
    return at && strtod(at + strlen(words), NULL) >= least_s;
}

#endif
