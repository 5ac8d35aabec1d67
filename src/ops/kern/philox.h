/* ops/kern/philox.h - Philox 4x32-10 for many counters at once: the loop of base/random.c turned
 * inside out, so that it runs in vector lanes. */
#ifndef OPS_KERN_PHILOX_H
#define OPS_KERN_PHILOX_H

#include "ops/kern/block.h"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

/* ---- lanes ------------------------------------------------------------------------------------
 *
 * A word is the low half of a lane of 64 bits, as a product has 64; the high half is anything. */
#if defined(__AVX512F__)
enum { PHILOX_LANES = 8 };
#elif defined(__AVX2__)
enum { PHILOX_LANES = 4 };
#else
enum { PHILOX_LANES = 2 };
#endif
typedef uint64_t philox_lanes __attribute__((vector_size(PHILOX_LANES * sizeof(uint64_t))));
typedef uint32_t philox_words __attribute__((vector_size(PHILOX_LANES * sizeof(uint32_t))));

static inline philox_lanes philox_product(philox_lanes x, uint32_t by)
{
    philox_lanes factor = (philox_lanes){0} + by;
#if defined(__AVX512F__)
    return (philox_lanes)_mm512_mul_epu32((__m512i)x, (__m512i)factor);
#elif defined(__AVX2__)
    return (philox_lanes)_mm256_mul_epu32((__m256i)x, (__m256i)factor);
#elif defined(__SSE2__)
    return (philox_lanes)_mm_mul_epu32((__m128i)x, (__m128i)factor);
#else
    return (x & 0xffffffffu) * factor;
#endif
}

struct philox_state {
    philox_lanes a, b, c, d;
};

/* Lane i: counters {low half of first + i, high half, low half of other, high half}. */
static inline struct philox_state philox_rounds(struct ls_philox_key key, uint64_t first,
                                                uint64_t other)
{
    struct philox_state s = {.a = (philox_lanes){0} + first, .c = (philox_lanes){0} + other};
    for (int i = 0; i < PHILOX_LANES; i++)
        s.a[i] += (uint64_t)i;
    s.b = s.a >> 32;
    s.d = s.c >> 32;
    uint32_t k0 = key.word[0], k1 = key.word[1];
#pragma GCC unroll 10
    for (int round = 0; round < 10; round++) {
        philox_lanes p0 = philox_product(s.a, 0xD2511F53u), p1 = philox_product(s.c, 0xCD9E8D57u);
        s = (struct philox_state){(p1 >> 32) ^ s.b ^ k0, p1, (p0 >> 32) ^ s.d ^ k1, p0};
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return s;
}

/* ---- many counters ---------------------------------------------------------------------------
 *
 * groups <= PHILOX_GROUPS; what is written ends at the next multiple of PHILOX_LANES groups. */

enum { PHILOX_GROUPS = BLOCK / 4 };

static inline void philox_word_store(uint32_t *to, philox_lanes x)
{
    philox_words words = __builtin_convertvector(x, philox_words);
    memcpy(to, &words, sizeof words);
}

/* bits[w][j] is word w of ls_philox(key, {low half of first + j, high half, low half of other, high
 * half}), j < groups. */
static inline void philox_groups(struct ls_philox_key key, uint64_t first, uint64_t other,
                                 int64_t groups, uint32_t bits[4][PHILOX_GROUPS])
{
    for (int64_t j = 0; j < groups; j += PHILOX_LANES) {
        struct philox_state s = philox_rounds(key, first + (uint64_t)j, other);
        philox_word_store(&bits[0][j], s.a);
        philox_word_store(&bits[1][j], s.b);
        philox_word_store(&bits[2][j], s.c);
        philox_word_store(&bits[3][j], s.d);
    }
}

/* The lanes of both in turn. */
static inline void philox_interleave(philox_lanes x, philox_lanes y, philox_lanes out[2])
{
#if defined(__AVX512F__)
    out[0] = __builtin_shufflevector(x, y, 0, 8, 1, 9, 2, 10, 3, 11);
    out[1] = __builtin_shufflevector(x, y, 4, 12, 5, 13, 6, 14, 7, 15);
#elif defined(__AVX2__)
    out[0] = __builtin_shufflevector(x, y, 0, 4, 1, 5);
    out[1] = __builtin_shufflevector(x, y, 2, 6, 3, 7);
#else
    out[0] = (philox_lanes){x[0], y[0]};
    out[1] = (philox_lanes){x[1], y[1]};
#endif
}

/* The same words in the order of groups, each as two halves, low ones first: 8 halves a group. */
static inline void philox_halves(struct ls_philox_key key, uint64_t first, uint64_t other,
                                 int64_t groups, uint16_t *halves)
{
    for (int64_t j = 0; j < groups; j += PHILOX_LANES) {
        struct philox_state s = philox_rounds(key, first + (uint64_t)j, other);
        philox_lanes ordered[2];
        philox_interleave((s.a & 0xffffffffu) | s.b << 32, (s.c & 0xffffffffu) | s.d << 32,
                          ordered);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        memcpy(halves + 8 * j, ordered, sizeof ordered);
#else
        for (int i = 0; i < 8 * PHILOX_LANES; i++)
            halves[8 * j + i] =
                (uint16_t)(ordered[i / 4 / PHILOX_LANES][i / 4 % PHILOX_LANES] >> 16 * (i % 4));
#endif
    }
}

#endif
