/* ops/kern/half.h - runs of bf16 or fp16 to and from float32. Vectors where the set has them for
 * fp16 (F16C; bf16 is shifts and additions, which compilers find); the bits are those of
 * ls_half_to_f32 and ls_f32_to_half. */
#ifndef OPS_KERN_HALF_H
#define OPS_KERN_HALF_H

#include <lockstep/base.h>

#if defined(__F16C__)
#include <immintrin.h>
#endif

/* to[n] = from[n]; the two share nothing, here and below. Where the vectors end is computed, not
 * counted: a constant n then leaves no loop for the rest. */
static inline void half_widen_f16(const ls_f16 *restrict from, int64_t n, float *restrict to)
{
    int64_t vectors = 0;
#if defined(__F16C__)
    vectors = n - n % 8;
    for (int64_t i = 0; i < vectors; i += 8)
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128((const void *)(from + i))));
#endif
    for (int64_t i = vectors; i < n; i++)
        to[i] = ls_f16_to_f32(from[i]);
}

static inline void half_round_f16(const float *restrict from, int64_t n, ls_f16 *restrict to)
{
    int64_t vectors = 0;
#if defined(__F16C__)
    vectors = n - n % 8;
    for (int64_t i = 0; i < vectors; i += 8)
        _mm_storeu_si128((void *)(to + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
#endif
    for (int64_t i = vectors; i < n; i++)
        to[i] = ls_f32_to_f16(from[i]);
}

static inline void half_widen(enum ls_dtype half, const ls_half *restrict from, int64_t n,
                              float *restrict to)
{
    if (half == LS_F16)
        half_widen_f16(from, n, to);
    else
        for (int64_t i = 0; i < n; i++)
            to[i] = ls_bf16_to_f32(from[i]);
}

/* ls_f32_to_half, with the NaN of bf16 told by a comparison of floats, which compilers vectorise
 * into less. */
static inline ls_half half_rounded(enum ls_dtype half, float x)
{
    if (half == LS_F16)
        return ls_f32_to_f16(x);
    union {
        float f;
        uint32_t u;
    } v = {x};
    uint32_t rounded = v.u + 0x7fffu + ((v.u >> 16) & 1u), quiet_nan = v.u | 0x400000u;
    return (ls_half)((x != x ? quiet_nan : rounded) >> 16);
}

static inline void half_round(enum ls_dtype half, const float *restrict from, int64_t n,
                              ls_half *restrict to)
{
    if (half == LS_F16)
        half_round_f16(from, n, to);
    else
        for (int64_t i = 0; i < n; i++)
            to[i] = half_rounded(LS_BF16, from[i]);
}

/* Inlined where the type is a constant: each gets loops of its own. */
#define HALF_INLINE static inline __attribute__((always_inline))

#endif
