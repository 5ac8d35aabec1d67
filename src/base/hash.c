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
