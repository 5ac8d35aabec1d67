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
enum { MOMENT_GROUP = 8, MOMENT_HALVES = BLOCK + MOMENT_GROUP * (1 + PHILOX_LANES) };

/* random[0 .. n) = ls_random_half of elements index, index + 1, ...; n <= BLOCK. Returns where it
 * begins in halves. */
static inline const uint16_t *random_halves(struct ls_philox_key key, int64_t step, int64_t index,
                                            int64_t n, uint16_t halves[MOMENT_HALVES])
{
    int64_t begin = index % MOMENT_GROUP;
    int64_t groups = (begin + n + MOMENT_GROUP - 1) / MOMENT_GROUP;
    philox_halves(key, (uint64_t)(index / MOMENT_GROUP), (uint64_t)step, groups, halves);
    return halves + begin;
}

static inline void round_stochastic(const float *restrict from, const uint16_t *restrict random,
                                    int64_t n, ls_bf16 *restrict to)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = ls_f32_to_bf16_stochastic(from[i], random[i]);
}

/* Fetches the block of an array that follows the one at `at`, where moments are rounded: that takes
 * so long that the hardware does not read ahead by itself. */
static inline void block_ahead(const struct ls_update *update, const void *array, size_t element,
                               int64_t at, int64_t end)
{
    const char *next = (const char *)array + (size_t)(at + BLOCK) * element;
    int64_t bytes = (ls_min(at + 2 * BLOCK, end) - at - BLOCK) * (int64_t)element;
    for (int64_t i = 0; i < bytes && update->moment_type != LS_F32; i += 64)
        __builtin_prefetch(next + i, 0, 2);
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
    uint16_t halves[MOMENT_HALVES];
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
