/* XXH3 hashes, and digests that add up in any order; the clock. */
#include "base/wider.h"

#include <lockstep/base.h>

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <xxhash.h>

uint64_t ls_hash64(const void *data, size_t bytes, uint64_t seed)
{
    return XXH3_64bits_withSeed(data, bytes, seed);
}

void ls_digest_piece(struct ls_digest *digest, const char *name, int64_t row, int64_t tile,
                     const void *data, size_t bytes)
{
    int64_t place[2] = {row, tile};
    uint64_t seed = ls_hash64(place, sizeof place, ls_hash64(name, strlen(name), 0));
    XXH128_hash_t hash = XXH3_128bits_withSeed(data, bytes, seed);
    ls_digest_merge(digest, &(struct ls_digest){hash.low64, hash.high64});
}

/* Bijective on 64 bits with good avalanche (the finalizer of MurmurHash3, Appleby). */
static inline uint64_t mix(uint64_t x)
{
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdu;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53u;
    return x ^ (x >> 33);
}

WIDER static struct ls_digest floats_digest(XXH128_hash_t key, int64_t first, int64_t count,
                                            const float *values)
{
    uint64_t low = 0, high = 0;
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, values + i, sizeof bits);
        /* An odd factor keeps indices apart; the value is added to both halves of the word. */
        uint64_t place = key.low64 + (uint64_t)(first + i) * 0x9e3779b97f4a7c15u;
        uint64_t x = mix(place ^ ((uint64_t)bits << 32 | bits));
        low += x;
        high += mix(x ^ key.high64);
    }
    return (struct ls_digest){low, high};
}

void ls_digest_floats(struct ls_digest *digest, const char *name, int64_t first, int64_t count,
                      const float *values)
{
    struct ls_digest floats = floats_digest(XXH3_128bits(name, strlen(name)), first, count, values);
    ls_digest_merge(digest, &floats);
}

void ls_digest_merge(struct ls_digest *digest, const struct ls_digest *other)
{
    digest->low += other->low;
    digest->high += other->high;
}

void ls_digest_hex(const struct ls_digest *digest, char text[33])
{
    snprintf(text, 33, "%016llx%016llx", (unsigned long long)digest->high,
             (unsigned long long)digest->low);
}

double ls_now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}
