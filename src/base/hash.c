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

/* Each of a float's two rounds is the finalizer of MurmurHash3 (Appleby), bijective on 64 bits: a
 * fold before, between and behind two products. */
static inline uint64_t fold(uint64_t x)
{
    return x ^ x >> 33;
}

/* Of a word that is folded already; the result is not folded yet. */
static inline uint64_t multiply(uint64_t x)
{
    return fold(x * 0xff51afd7ed558ccdu) * 0xc4ceb9fe1a85ec53u;
}

/* The second round begins with what the first one ended with, and the key: fold(fold(x) ^ k) is
 * x ^ fold(k). */
WIDER static struct ls_digest floats_digest(XXH128_hash_t key, int64_t first, int64_t count,
                                            const float *values)
{
    const uint64_t step = 0x9e3779b97f4a7c15u, second = fold(key.high64);
    uint64_t low = 0, high = 0, place = key.low64 + (uint64_t)first * step;
    /* An odd factor keeps indices apart; the value is added to both halves of the word. */
    for (int64_t i = 0; i < count; i++, place += step) {
        uint32_t bits;
        memcpy(&bits, values + i, sizeof bits);
        uint64_t x = multiply(fold(place ^ ((uint64_t)bits << 32 | bits)));
        low += fold(x);
        high += fold(multiply(x ^ second));
    }
    return (struct ls_digest){low, high};
}

/* While some floats are digested, what lies behind them comes from memory, as many lines as a core
 * asks for at once: otherwise the wait takes longer than the digest. It may be the caller's next
 * row, or nothing that is there: a prefetch does not fail. */
enum { LINE = 64 /* bytes */, AHEAD = 16 * LINE / 4 };

void ls_digest_floats(struct ls_digest *digest, const char *name, int64_t first, int64_t count,
                      const float *values)
{
    const XXH128_hash_t key = XXH3_128bits(name, strlen(name));
    for (int64_t at = 0; at < count; at += AHEAD) {
        const int64_t some = count - at < AHEAD ? count - at : AHEAD;
        const uintptr_t next = (uintptr_t)(values + at + some);
        for (size_t i = 0; i < AHEAD * sizeof *values; i += LINE)
            __builtin_prefetch((const void *)(next + i));
        struct ls_digest floats = floats_digest(key, first + at, some, values + at);
        ls_digest_merge(digest, &floats);
    }
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
