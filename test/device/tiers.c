/* What the tests of memory tiers share: every way to move bytes, memory, and faults. */
#include "tiers.h"

#include "device/tier_private.h"

#include <stdlib.h>
#include <string.h>

bool mover_allowed(enum mover mover)
{
    struct ls_error error = {0};
    if (mover != MOVER_RING || ls_io_uring_allowed(&error))
        return true;
    print_message("skipped: io_uring is not allowed here: %s\n", error.text);
    return false;
}

struct ls_tier *mover_open(enum mover mover, const char *folder, size_t bytes,
                           const struct ls_fault *fault)
{
    struct ls_tier *tier;
    struct ls_error error = {0};
    struct ls_tier_options options = {.kind = mover == MOVER_HOST ? LS_TIER_HOST : LS_TIER_FILE,
                                      .bytes = bytes,
                                      .folder = folder,
                                      .rank = 3,
                                      .threads = mover == MOVER_THREADS,
                                      .fault = fault};
    if (ls_tier_new(&options, &tier, &error))
        fail_msg("%s", error.text);
    if (mover == MOVER_RING)
        assert_non_null(strstr(ls_tier_text(tier), "io_uring)"));
    return tier;
}

bool tier_is_still(struct ls_tier *tier)
{
    pthread_mutex_lock(&tier->mutex);
    bool still = !tier->first;
    pthread_mutex_unlock(&tier->mutex);
    return still;
}

bool is_read(const struct ls_transfer *transfer)
{
    const struct tier_transfer *open = transfer->tier ? transfer->tier->open : NULL;
    while (open && open->ticket != transfer->ticket)
        open = open->open;
    return open && !open->writes;
}

unsigned char *device_new(size_t bytes)
{
    size_t aligned = (bytes + LS_TIER_ALIGN - 1) / LS_TIER_ALIGN * LS_TIER_ALIGN;
    unsigned char *memory = aligned_alloc(LS_TIER_ALIGN, aligned ? aligned : LS_TIER_ALIGN);
    assert_non_null(memory);
    memset(memory, 0xa5, aligned);
    return memory;
}

static uint32_t pattern(size_t i, uint32_t seed)
{
    uint32_t x = (uint32_t)i * 2654435761u ^ seed * 40503u;
    return x ^ x >> 15;
}

/* Behind the last whole word comes a part of one. */
void pattern_fill(unsigned char *memory, size_t bytes, uint32_t seed)
{
    size_t i = 0;
    for (; i + sizeof(uint32_t) <= bytes; i += sizeof(uint32_t)) {
        uint32_t word = pattern(i, seed);
        memcpy(memory + i, &word, sizeof word);
    }
    uint32_t last = pattern(i, seed);
    memcpy(memory + i, &last, bytes - i);
}

size_t pattern_differs(const unsigned char *memory, size_t bytes, uint32_t seed)
{
    size_t count = 0, i = 0;
    for (; i + sizeof(uint32_t) <= bytes; i += sizeof(uint32_t)) {
        uint32_t word = pattern(i, seed);
        count += memcmp(memory + i, &word, sizeof word) != 0;
    }
    uint32_t last = pattern(i, seed);
    return count + (memcmp(memory + i, &last, bytes - i) != 0);
}

static int before(void *user, const char *call)
{
    struct failing *failing = user;
    if (failing->call && strcmp(failing->call, call) != 0)
        return 0;
    int64_t at = failing->seen++;
    bool fails =
        failing->first >= 0 && at >= failing->first && at < failing->first + failing->count;
    return fails ? failing->errno_value : 0;
}

void failing_init(struct failing *failing, const char *call, int64_t first, int errno_value)
{
    *failing =
        (struct failing){.call = call, .first = first, .count = 1, .errno_value = errno_value};
    failing->fault = (struct ls_fault){.before = before, .user = failing};
}
