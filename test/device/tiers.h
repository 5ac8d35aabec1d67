/* What the tests of memory tiers share: every way to move bytes, memory, and faults. */
#ifndef TEST_DEVICE_TIERS_H
#define TEST_DEVICE_TIERS_H

#include <lockstep/device/tier.h>

#include "../support/testing.h"

/* Every way that this machine allows. */
enum mover { MOVER_HOST, MOVER_THREADS, MOVER_RING, MOVERS };
/* False, with a line, where io_uring is not allowed. */
bool mover_allowed(enum mover mover);
struct ls_tier *mover_open(enum mover mover, const char *folder, size_t bytes,
                           const struct ls_fault *fault);

/* Nothing moves. */
bool tier_is_still(struct ls_tier *tier);

/* Whether it is under way and reads. */
bool is_read(const struct ls_transfer *transfer);

/* Device memory; to be freed. */
unsigned char *device_new(size_t bytes);
/* Words that follow from the seed, and how many are not so. */
void pattern_fill(unsigned char *memory, size_t bytes, uint32_t seed);
size_t pattern_differs(const unsigned char *memory, size_t bytes, uint32_t seed);

/* Counts the calls of one name (NULL: of all), and fails those from first on, so many of them. */
struct failing {
    struct ls_fault fault;
    const char *call;
    int64_t first, count; /* first < 0: none fails */
    int errno_value;
    int64_t seen;
};
/* The hook is failing->fault. */
void failing_init(struct failing *failing, const char *call, int64_t first, int errno_value);

#endif
