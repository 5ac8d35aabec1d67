/* numerics.mode fast agrees with the default as far as two orders of the same sums can. */
#ifndef TEST_INVARIANCE_FAST_H
#define TEST_INVARIANCE_FAST_H

#include <stdint.h>

/* Trains every recipe for `steps`, and its broken twins; the number of recipes that failed. */
int fast_check(const char *folder, int64_t steps);

#endif
