/* ops/kern/block.h - how kernels walk a row: in blocks of BLOCK elements that are widened to
 * float32 into a buffer in the first-level cache, worked on there by plain loops, and rounded on
 * the way out. So each formula is written once for all activation types, and its loop sees float32
 * arrays that alias nothing, which compilers vectorise.
 *
 * Sums: element i of a row goes to lane i % LANES, in ascending order; lanes are then added in a
 * fixed tree (64 of them, so that additions of several vectors are under way at once). BLOCK is a
 * multiple of LANES, so blocks do not show in the bits. */
#ifndef OPS_KERN_BLOCK_H
#define OPS_KERN_BLOCK_H

#include <lockstep/ops.h>

#include "ops/kern/half.h"

#include <string.h>

enum { BLOCK = 512, LANES = 64 };

/* Elements at, at + 1, ... at + n - 1 of x as float32: in place where they are, else in buffer. */
static inline const float *block_read(enum ls_dtype act, const void *x, int64_t at, int64_t n,
                                      float *restrict buffer)
{
    if (act == LS_F32)
        return (const float *)x + at;
    half_widen(act, (const ls_half *)x + at, n, buffer);
    return buffer;
}

/* The empty assembly is there because gcc drops a function that does nothing but prefetch. */
static inline void block_prefetch(enum ls_dtype act, const void *x, int64_t at, int64_t n)
{
    int64_t bytes = act == LS_F32 ? 4 : 2;
    __asm__ volatile("");
    for (int64_t k = 0; k < n * bytes; k += 64)
        __builtin_prefetch((const char *)x + at * bytes + k);
}

/* buffer[n], which is not part of y, rounded into elements at ... of y. */
static inline void block_write(enum ls_dtype act, const float *restrict buffer, int64_t n, void *y,
                               int64_t at)
{
    if (act == LS_F32) {
        memcpy((float *)y + at, buffer, (size_t)n * sizeof *buffer);
        return;
    }
    half_round(act, buffer, n, (ls_half *)y + at);
}

static inline int64_t block_length(int64_t at, int64_t end)
{
    return end - at < BLOCK ? end - at : BLOCK;
}

static inline float lanes_sum(const float lane[LANES])
{
    float half[32], quarter[16], l8[8], l4[4];
    for (int j = 0; j < 32; j++)
        half[j] = lane[j] + lane[j + 32];
    for (int j = 0; j < 16; j++)
        quarter[j] = half[j] + half[j + 16];
    for (int j = 0; j < 8; j++)
        l8[j] = quarter[j] + quarter[j + 8];
    for (int j = 0; j < 4; j++)
        l4[j] = l8[j] + l8[j + 4];
    return (l4[0] + l4[2]) + (l4[1] + l4[3]);
}

/* lane[i % LANES] += x[i]. x is the next block of a row. */
static inline void lanes_add(float lane[LANES], const float *x, int64_t n)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++)
            lane[j] += x[i + j];
    for (int j = 0; i < n; i++, j++)
        lane[j] += x[i];
}

/* lane[i % LANES] += x[i] * z[i], rounded twice. */
static inline void lanes_add_product(float lane[LANES], const float *x, const float *z, int64_t n)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++)
            lane[j] += x[i + j] * z[i + j];
    for (int j = 0; i < n; i++, j++)
        lane[j] += x[i] * z[i];
}

#endif
