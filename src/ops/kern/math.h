/* ops/kern/math.h - elementary functions for kernels: branch-free, without tables, made of IEEE
 * additions, multiplications, divisions and fused multiply-adds only, so that a loop over them
 * vectorises and gives the same bits in every lane, tail and instruction set. test/ops/test_math.c
 * holds them to the errors named here.
 *
 * GELU takes neither tanh nor erf: it needs (1 + tanh u) / 2 = 1 / (1 + exp(-2u)), a sigmoid, and
 * (1 + erf(x / sqrt 2)) / 2, which is math_normal_cdf(x). Both keep their relative precision where
 * the sum with 1 would lose it. */
#ifndef OPS_KERN_MATH_H
#define OPS_KERN_MATH_H

#include <stdint.h>

union math_float {
    float f;
    uint32_t u;
};

/* e^r for |r| <= ln 2 / 2: 1 + r + r^2 g(r), g of degree 4 fitted to the least largest relative
 * error (3e-9). */
static inline float math_exp_reduced(float r)
{
    float e = 1.3814467e-3f;
    e = __builtin_fmaf(e, r, 8.3687804e-3f);
    e = __builtin_fmaf(e, r, 4.1668394e-2f);
    e = __builtin_fmaf(e, r, 0.16666520f);
    e = __builtin_fmaf(e, r, 0.49999993f);
    e = __builtin_fmaf(e, r, 1.0f);
    return __builtin_fmaf(e, r, 1.0f);
}

/* x = n ln 2 + r with n whole, |r| <= ln 2 / 2 (Cody, Waite 1980: ln 2 in two parts, the first with
 * a short significand). Returns r; n lies in the low bits of *shifted, to which adding 1.5 * 2^23
 * put it, rounded to nearest. */
static inline float math_exp_reduce(float x, union math_float *shifted)
{
    shifted->f = __builtin_fmaf(x, 1.44269504f, 12582912.0f);
    float n = shifted->f - 12582912.0f;
    return __builtin_fmaf(n, -0x1.7f7d1cp-20f, __builtin_fmaf(n, -0x1.62e4p-1f, x));
}

/* e^x for x <= 0 as softmax needs it: 0 below -87, NaN for NaN. As 2^n is then normal, it takes one
 * multiplication; the shift drops all of `shifted` but n. */
static inline float math_exp_nonpositive(float x)
{
    union math_float shifted, scale;
    float e = math_exp_reduced(math_exp_reduce(x, &shifted));
    scale.u = (shifted.u << 23) + 0x3f800000u;
    e *= scale.f;
    return x < -87.0f ? 0.0f : e;
}

/* 2^x within 1.1 ulp for |x| <= 125, which x is clamped to. x = n + r exactly, and 2^r is 1 + r
 * q(r) with q of degree 5 fitted to the least largest relative error (2e-9). */
static inline float math_exp2_clamped(float x)
{
    x = x > 125.0f ? 125.0f : x;
    x = x < -125.0f ? -125.0f : x;
    union math_float shifted = {x + 12582912.0f}, scale;
    float r = x - (shifted.f - 12582912.0f);
    float e = 1.5353258e-4f;
    e = __builtin_fmaf(e, r, 1.3399003e-3f);
    e = __builtin_fmaf(e, r, 9.6184386e-3f);
    e = __builtin_fmaf(e, r, 5.5503322e-2f);
    e = __builtin_fmaf(e, r, 0.24022648f);
    e = __builtin_fmaf(e, r, 0.69314720f);
    e = __builtin_fmaf(e, r, 1.0f);
    scale.u = (shifted.u << 23) + 0x3f800000u;
    return e * scale.f;
}

/* 1 / (1 + e^-x) within 4 ulp for x > -2; further down the relative error is about |x| 2^-24, and
 * below -86 the value stays at 2^-125. */
static inline float math_sigmoid(float x)
{
    return 1.0f / (1.0f + math_exp2_clamped(-1.44269504f * x));
}

/* tanh x within 3 ulp; NaN stays. Below 0.625 x + x^3 p(x^2) with p of degree 4 fitted to the least
 * largest relative error (5e-9), above 1 - 2 / (e^2x + 1). */
static inline float math_tanh(float x)
{
    float a = x < 0.0f ? -x : x, z = x * x;
    float p = -5.70497035e-3f;
    p = __builtin_fmaf(p, z, 2.06390708e-2f);
    p = __builtin_fmaf(p, z, -5.37397094e-2f);
    p = __builtin_fmaf(p, z, 0.133314421f);
    p = __builtin_fmaf(p, z, -0.333332819f);
    float low = __builtin_fmaf(p * z, x, x);
    float high = 1.0f - 2.0f / (math_exp2_clamped(2.88539008f * a) + 1.0f);
    high = x < 0.0f ? -high : high;
    return a > 0.625f ? high : low;
}

/* Standard normal distribution function. For a >= 0, Phi(-a) = t exp(P(t) - a^2/2), t = 1/(1 + 0.35
 * a), with P of degree 9 fitted to the least largest error (4e-8) on 0 <= a <= 14.2: the form of
 * Hastings
 * ("Approximations for digital computers", 1955). Within 9 ulp for x > -2; further down the left
 * tail the relative error is about x^2 / 2 * 2^-24. */
static inline float math_normal_cdf(float x)
{
    float a = x < 0.0f ? -x : x;
    float t = 1.0f / __builtin_fmaf(0.35f, a, 1.0f);
    float p = 0.15071657f;
    p = __builtin_fmaf(p, t, -0.72483899f);
    p = __builtin_fmaf(p, t, 1.285723f);
    p = __builtin_fmaf(p, t, -0.88225295f);
    p = __builtin_fmaf(p, t, 0.054916719f);
    p = __builtin_fmaf(p, t, -0.048524686f);
    p = __builtin_fmaf(p, t, 0.054104363f);
    p = __builtin_fmaf(p, t, 0.38688998f);
    p = __builtin_fmaf(p, t, 0.99882193f);
    p = __builtin_fmaf(p, t, -1.9687031f);
    float tail = t * math_exp_nonpositive(__builtin_fmaf(-0.5f * a, a, p));
    return x < 0.0f ? tail : 1.0f - tail;
}

/* Standard normal density. */
static inline float math_normal_density(float x)
{
    return 0.39894228f * math_exp_nonpositive(-0.5f * x * x);
}

/* ln x for x > 0 (0 gives -inf; inf and NaN stay), rounded once from double: ln m = 2 atanh s,
 * s = (m - 1) / (m + 1), for m in [sqrt 1/2, sqrt 2). For scalars: one per row, not per element. */
static inline float math_log(float x)
{
    if (!(x > 0.0f && x < __builtin_inff()))
        return x == 0.0f ? -__builtin_inff() : x;
    int exponent = 0;
    double m = x;
    while (m >= 0x1p8)
        m *= 0x1p-8, exponent += 8;
    while (m < 0x1p-8)
        m *= 0x1p8, exponent -= 8;
    while (m >= 1.41421356237309504880)
        m *= 0.5, exponent++;
    while (m < 0.70710678118654752440)
        m *= 2, exponent--;
    double s = (m - 1) / (m + 1), s2 = s * s, series = 0;
    for (int k = 21; k >= 1; k -= 2)
        series = series * s2 + 1.0 / k;
    return (float)(2 * s * series + exponent * 0.69314718055994530942);
}

#endif
