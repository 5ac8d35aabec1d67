/* ops/kern/moments.h - how the updates read and write moments: float32 in place, bf16 by a block of
 * float32 that is rounded stochastically on the way out. The random bits are those of
 * ls_random_half, the rounding is that of ls_f32_to_bf16_stochastic, element by element. */
#ifndef OPS_KERN_MOMENTS_H
#define OPS_KERN_MOMENTS_H

#include "ops/kern/philox.h"

/* Elements at, at + 1, ... at + n - 1 of a moment, to be updated: in place, or in buffer. */
static inline float *moment_read(const struct ls_update *update, void *moment, int64_t at,
                                 int64_t n, float *restrict buffer)
{
    if (update->moment_type == LS_F32)
        return (float *)moment + at;
    half_widen(LS_BF16, (const ls_bf16 *)moment + at, n, buffer);
    return buffer;
}

/* One Philox call has the random bits of 8 elements: of a block that begins within the first. */
enum { MOMENT_GROUP = 8, MOMENT_GROUPS = BLOCK / MOMENT_GROUP + 1 };

/* random[0 .. n) = ls_random_half of elements index, index + 1, ...; n <= BLOCK. Returns where it
 * begins in halves. */
static inline const uint16_t *random_halves(struct ls_philox_key key, int64_t step, int64_t index,
                                            int64_t n,
                                            uint16_t halves[MOMENT_GROUPS * MOMENT_GROUP])
{
    uint32_t bits[4][PHILOX_GROUPS], words[4 * MOMENT_GROUPS];
    int64_t begin = index % MOMENT_GROUP;
    int64_t groups = (begin + n + MOMENT_GROUP - 1) / MOMENT_GROUP;
    philox_groups(key, (uint64_t)(index / MOMENT_GROUP), (uint64_t)step, groups, bits);
    for (int64_t j = 0; j < groups; j++) {
        words[4 * j] = bits[0][j];
        words[4 * j + 1] = bits[1][j];
        words[4 * j + 2] = bits[2][j];
        words[4 * j + 3] = bits[3][j];
    }
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    memcpy(halves, words, (size_t)groups * 4 * sizeof *words);
#else
    for (int64_t i = 0; i < groups * MOMENT_GROUP; i++)
        halves[i] = (uint16_t)(words[i / 2] >> 16 * (i % 2));
#endif
    return halves + begin;
}

static inline void round_stochastic(const float *restrict from, const uint16_t *restrict random,
                                    int64_t n, ls_bf16 *restrict to)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = ls_f32_to_bf16_stochastic(from[i], random[i]);
}

/* What moment_read gave, back to where it came from; which: 0 or 1, the first or second moment. Row
 * by row of the whole tensor, where the rank holds columns of it. */
static inline void moment_write(const struct ls_update *update, int which, const float *values,
                                int64_t n, void *moment, int64_t at)
{
    if (update->moment_type == LS_F32)
        return;
    const struct ls_rounding *rounding = &update->rounding;
    const struct ls_places *places = &rounding->places;
    uint16_t halves[MOMENT_GROUPS * MOMENT_GROUP];
    int64_t count;
    for (int64_t i = 0; i < n; i += count) {
        int64_t col = (places->first + at + i) % places->cols;
        count = places->cols == places->whole_cols ? n : ls_min(places->cols - col, n - i);
        const uint16_t *random = random_halves(rounding->key[which], rounding->step,
                                               ls_place(places, at + i), count, halves);
        round_stochastic(values + i, random, count, (ls_bf16 *)moment + at + i);
    }
}

#endif
