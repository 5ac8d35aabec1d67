/* Vectors of float32 for attention's kernels, of the width that the file is compiled for, and the
 * transcendental functions that they need. Those of the softmax work in base 2: the factor log2(e)
 * rides on the scale of the scores, which saves a product and a rounding per score. */
#ifndef OPS_KERN_ATTENTION_VECTOR_H
#define OPS_KERN_ATTENTION_VECTOR_H

#include <stdint.h>
#include <string.h>

#define LOG2_E 0x1.715476p+0f
#define LN_2   0x1.62e430p-1f

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#if defined(__AVX512F__)
typedef __m512 vec;
enum { LANES = 16 };
#define VEC_OP(name) _mm512_##name##_ps
#else
typedef __m256 vec;
enum { LANES = 8 };
#define VEC_OP(name) _mm256_##name##_ps
#endif
static inline vec vec_fma(vec a, vec b, vec c)
{
    return VEC_OP(fmadd)(a, b, c);
}
static inline vec vec_max(vec a, vec b)
{
    return VEC_OP(max)(a, b);
}
static inline vec vec_set(float a)
{
    return VEC_OP(set1)(a);
}
static inline vec vec_load(const float *p)
{
    return VEC_OP(loadu)(p);
}
static inline void vec_store(float *p, vec a)
{
    VEC_OP(storeu)(p, a);
}
#else
#include "ops/kern/fma.h"
typedef fma_vec vec;
enum { LANES = FMA_LANES };
static inline vec vec_fma(vec a, vec b, vec c)
{
    return fma_plain(a, b, c);
}
#define VEC_FMA_BF16 fma_bf16
static inline vec vec_set(float a)
{
    return (vec){a, a, a, a};
}
static inline vec vec_load(const float *p)
{
    vec a;
    memcpy(&a, p, sizeof a);
    return a;
}
static inline void vec_store(float *p, vec a)
{
    memcpy(p, &a, sizeof a);
}
/* As maxps: b where either is NaN. */
static inline vec vec_max(vec a, vec b)
{
    typedef int32_t ints __attribute__((vector_size(16)));
    ints larger = a > b;
    return (vec)((larger & (ints)a) | (~larger & (ints)b));
}
#endif

/* vec_fma where a and b are bf16. */
#if !defined(VEC_FMA_BF16)
#define VEC_FMA_BF16 vec_fma
#endif

typedef int32_t vec_int __attribute__((vector_size(LANES * 4)));
typedef uint32_t vec_bits __attribute__((vector_size(LANES * 4))); /* whose sums wrap */

/* a where a > b + margin, else b. */
static inline vec vec_raise(vec a, vec b, float margin)
{
    vec_int larger = (vec_int)(a > b + vec_set(margin));
    return (vec)((larger & (vec_int)a) | (~larger & (vec_int)b));
}

/* 2^t for t <= 126, exactly 1 at 0. Exactly 0 below -126, so that masked scores vanish; NaN
 * stays NaN. 2^r on [-1/2, 1/2] by a minimax polynomial (Remez) of relative error 2.6e-9. */
static inline vec vec_exp2_fraction(vec r)
{
    vec p = vec_set(0x1.470b4ap-13f);
    p = vec_fma(p, r, vec_set(0x1.5f7276p-10f));
    p = vec_fma(p, r, vec_set(0x1.3b270ep-7f));
    p = vec_fma(p, r, vec_set(0x1.c6ae72p-5f));
    p = vec_fma(p, r, vec_set(0x1.ebfbe2p-3f));
    p = vec_fma(p, r, vec_set(0x1.62e432p-1f));
    return vec_fma(p, r, vec_set(1.0f));
}

static inline vec vec_exp2(vec t)
{
#if defined(__AVX512F__)
    __mmask16 keep = _mm512_cmp_ps_mask(t, _mm512_set1_ps(-126.0f), _CMP_NLT_UQ);
    vec n = _mm512_roundscale_ps(t, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    return _mm512_maskz_scalef_ps(keep, vec_exp2_fraction(t - n), n);
#else
    /* 1.5 * 2^23 leaves the nearest integer in the low bits of a sum; -127 makes the factor 0. */
    const vec magic = vec_set(0x1.8p23f);
    vec_int low = (vec_int)(t < vec_set(-126.0f));
    t = (vec)((low & (vec_int)vec_set(-127.0f)) | (~low & (vec_int)t));
    vec shifted = t + magic;
    vec_bits factor = ((vec_bits)shifted << 23) + 0x3f800000;
    return vec_exp2_fraction(t - (shifted - magic)) * (vec)factor;
#endif
}

/* |x| < bound ? a : b, in each lane. */
static inline vec vec_choose_small(vec x, float bound, vec a, vec b)
{
    vec_int small = (vec_int)(x < vec_set(bound)) & (vec_int)(-x < vec_set(bound));
    return (vec)((small & (vec_int)a) | (~small & (vec_int)b));
}

/* tanh(x) within 4 ulp; NaN stays NaN. (1 - e) / (1 + e) with e = exp(-2 |x|), which is the sigmoid
 * of 2 |x|, twice, less 1; below 0.625, where that loses relative precision, x + x^3 p(x^2) with p
 * of degree 4 fitted to the least largest relative error (9e-9). */
static inline vec vec_tanh(vec x)
{
    const vec_int sign = (vec_int)x & INT32_MIN;
    const vec size = (vec)((vec_int)x & INT32_MAX), one = vec_set(1.0f), x2 = x * x;
    vec e = vec_exp2(size * vec_set(-2.0f * LOG2_E));
    vec large = (vec)((vec_int)((one - e) / (one + e)) | sign);
    vec p = vec_set(-0x1.75e1b6p-8f);
    p = vec_fma(p, x2, vec_set(0x1.522696p-6f));
    p = vec_fma(p, x2, vec_set(-0x1.b83c5ap-5f));
    p = vec_fma(p, x2, vec_set(0x1.110726p-3f));
    p = vec_fma(p, x2, vec_set(-0x1.555532p-2f));
    return vec_choose_small(x, 0.625f, vec_fma(x * x2, p, x), large);
}

/* log2(x) for normal x > 0: x = 2^e m with m in [sqrt(1/2), sqrt(2)), log m = 2 artanh(s) with
 * s = (m - 1) / (m + 1), by the series to s^11 (next term below 2e-11). */
static inline vec vec_log2(vec x)
{
    vec_int exponent = (vec_int)((vec_bits)x - 0x3f3504f3) >> 23;
    vec m = (vec)((vec_bits)x - ((vec_bits)exponent << 23));
    vec s = (m - vec_set(1.0f)) / (m + vec_set(1.0f)), s2 = s * s;
    vec p = vec_set(1.0f / 11);
    p = vec_fma(p, s2, vec_set(1.0f / 9));
    p = vec_fma(p, s2, vec_set(1.0f / 7));
    p = vec_fma(p, s2, vec_set(1.0f / 5));
    p = vec_fma(p, s2, vec_set(1.0f / 3));
    p = vec_fma(p, s2, vec_set(1.0f));
    vec e = (vec) __builtin_convertvector(exponent, vec);
    return vec_fma(p, s * vec_set(0x1.715476p+1f), e); /* 2 log2(e) */
}

#endif
