/* ops/kern/philox.h - Philox 4x32-10 for many counters at once: the loop of base/random.c turned
 * inside out, so that it runs in vector lanes. */
#ifndef OPS_KERN_PHILOX_H
#define OPS_KERN_PHILOX_H

#include "ops/kern/block.h"

enum { PHILOX_GROUPS = BLOCK / 4 };

/* bits[w][j] is word w of ls_philox(key, {low half of first + j, high half, low half of other, high
 * half}), j < groups <= PHILOX_GROUPS. */
static inline void philox_groups(struct ls_philox_key key, uint64_t first, uint64_t other,
                                 int64_t groups, uint32_t bits[4][PHILOX_GROUPS])
{
    uint32_t low = (uint32_t)first, high = (uint32_t)(first >> 32);
    for (int64_t j = 0; j < groups; j++) {
        uint32_t a = low + (uint32_t)j, b = high + (a < low);
        uint32_t c = (uint32_t)other, d = (uint32_t)(other >> 32);
        uint32_t k0 = key.word[0], k1 = key.word[1];
        for (int round = 0; round < 10; round++) {
            uint64_t p0 = (uint64_t)0xD2511F53u * a, p1 = (uint64_t)0xCD9E8D57u * c;
            a = (uint32_t)(p1 >> 32) ^ b ^ k0;
            c = (uint32_t)(p0 >> 32) ^ d ^ k1;
            b = (uint32_t)p1;
            d = (uint32_t)p0;
            k0 += 0x9E3779B9u;
            k1 += 0xBB67AE85u;
        }
        bits[0][j] = a;
        bits[1][j] = b;
        bits[2][j] = c;
        bits[3][j] = d;
    }
}

#endif
