/* ops/kern/fma.h - fused multiply-adds of four floats, rounded once, on machines with and without
 * an instruction for them: what makes plain C give the bits of AVX2. On AArch64 they are NEON's.
 * test/ops/test_fma.c holds it to the library's fmaf. */
#ifndef OPS_KERN_FMA_H
#define OPS_KERN_FMA_H

#if defined(__SSE2__)
#include <emmintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif
#include <float.h>
#include <stdint.h>

enum { FMA_LANES = 4 };

typedef float fma_vec __attribute__((vector_size(FMA_LANES * 4)));

#if defined(__ARM_NEON) && defined(__aarch64__)
static inline fma_vec fma_plain(fma_vec a, fma_vec b, fma_vec c)
{
    return (fma_vec)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
}
#else
/* a b + c in each lane. */
static __attribute__((cold)) fma_vec fma_each(fma_vec a, fma_vec b, fma_vec c)
{
    for (int i = 0; i < FMA_LANES; i++)
        c[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return c;
}

#if defined(__SSE2__) && !defined(__FMA__)
/* In double the product is exact, so its sum with c is rounded twice, to double and to float. That
 * is the same as once, but where the sum in double lies half way between two floats; below the
 * normal floats half way is elsewhere. Such sums are rare, and go to the library's fmaf. */
static inline fma_vec fma_plain(fma_vec a, fma_vec b, fma_vec c)
{
    __m128 x = (__m128)a, y = (__m128)b, z = (__m128)c;
    __m128d low = _mm_add_pd(_mm_mul_pd(_mm_cvtps_pd(x), _mm_cvtps_pd(y)), _mm_cvtps_pd(z));
    __m128d high =
        _mm_add_pd(_mm_mul_pd(_mm_cvtps_pd(_mm_movehl_ps(x, x)), _mm_cvtps_pd(_mm_movehl_ps(y, y))),
                   _mm_cvtps_pd(_mm_movehl_ps(z, z)));
    __m128 sum = _mm_movelh_ps(_mm_cvtpd_ps(low), _mm_cvtpd_ps(high));
    /* Of each sum in double the low and the high half. */
    __m128i lows = _mm_castps_si128(_mm_shuffle_ps((__m128)low, (__m128)high, 0x88));
    __m128i highs = _mm_castps_si128(_mm_shuffle_ps((__m128)low, (__m128)high, 0xdd));
    __m128i size = _mm_set1_epi32(INT32_MAX), half = _mm_set1_epi32(0x10000000);
    __m128i tie = _mm_cmpeq_epi32(_mm_and_si128(lows, _mm_set1_epi32(0x1fffffff)), half);
    __m128i tiny = _mm_and_si128(
        _mm_cmplt_epi32(_mm_and_si128((__m128i)sum, size), _mm_set1_epi32(0x01000000)),
        _mm_cmpgt_epi32(_mm_and_si128(highs, size), _mm_setzero_si128()));
    if (__builtin_expect(_mm_movemask_epi8(_mm_or_si128(tie, tiny)), 0))
        return fma_each(a, b, c);
    return (fma_vec)sum;
}

/* The same where a and b are bf16: their product is exact in float, but beyond the largest float
 * and below the normal ones. */
#define FMA_BF16 1
static inline fma_vec fma_bf16(fma_vec a, fma_vec b, fma_vec c)
{
    __m128 x = (__m128)a, y = (__m128)b, zero = _mm_setzero_ps();
    __m128 product = _mm_mul_ps(x, y), size = _mm_andnot_ps(_mm_set1_ps(-0.0f), product);
    __m128 factors = _mm_and_ps(_mm_cmpneq_ps(x, zero), _mm_cmpneq_ps(y, zero));
    __m128 small = _mm_and_ps(factors, _mm_cmplt_ps(size, _mm_set1_ps(FLT_MIN)));
    __m128 large = _mm_cmpgt_ps(size, _mm_set1_ps(FLT_MAX));
    if (__builtin_expect(_mm_movemask_ps(_mm_or_ps(small, large)), 0))
        return fma_plain(a, b, c);
    return (fma_vec)_mm_add_ps(product, (__m128)c);
}
#else
static inline fma_vec fma_plain(fma_vec a, fma_vec b, fma_vec c)
{
    return fma_each(a, b, c);
}
#endif
#endif

#if !defined(FMA_BF16)
static inline fma_vec fma_bf16(fma_vec a, fma_vec b, fma_vec c)
{
    return fma_plain(a, b, c);
}
#endif

#endif
