/* How much a test program runs: `make check` a case of everything, CHECK=all everything. */
#ifndef TEST_SUPPORT_EXTENT_H
#define TEST_SUPPORT_EXTENT_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static inline bool check_all(void)
{
    const char *extent = getenv("CHECK");
    return extent && !strcmp(extent, "all");
}

/* Of how many cases of a long list one runs: `usual` in `make check`, every case with CHECK=all;
 * `few` with CHECK=few, where programs are many times slower: with sanitizers, and emulated. */
static inline int check_every(int few, int usual)
{
    const char *extent = getenv("CHECK");
    return check_all() ? 1 : extent && !strcmp(extent, "few") ? few : usual;
}

/* Of the pairs of two lists one in `every`, such that each list is gone through whole; every pair
 * with CHECK=all. */
static inline bool check_pair(int a, int b, int every)
{
    return check_all() || (a + b) % every == 0;
}

#endif
