#include <lockstep/base.h>

#include <math.h>
#include <string.h>

void ls_philox(struct ls_philox_key key, const uint32_t counter[4], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key.word[0], k1 = key.word[1];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0;
        uint64_t p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

struct ls_philox_key ls_philox_key_of(uint64_t seed, const char *purpose)
{
    uint64_t hash = ls_hash64(purpose, strlen(purpose), seed);
    return (struct ls_philox_key){{(uint32_t)hash, (uint32_t)(hash >> 32)}};
}

/* ln x for x in (0, 1], by ln m = 2 atanh((m - 1) / (m + 1)) with m in [sqrt 1/2, sqrt 2). Only
 * additions, multiplications and divisions, which IEEE 754 fixes to the last bit. */
static double log_fixed(double x)
{
    int exponent;
    double m = frexp(x, &exponent);
    if (m < 0.70710678118654752440) {
        m *= 2;
        exponent--;
    }
    double s = (m - 1) / (m + 1), s2 = s * s, series = 0;
    for (int k = 23; k >= 1; k -= 2)
        series = series * s2 + 1.0 / k;
    return 2 * s * series + exponent * 0.69314718055994530942;
}

/* cos and sin of 2 pi u, u in [0, 1): reduced to an eighth of a turn, then Taylor series. */
static void cos_sin_turn(double u, double *cosine, double *sine)
{
    int eighth = (int)(u * 8);
    bool odd = eighth & 1;
    double within = u * 8 - eighth; /* exact */
    double x = (odd ? 1 - within : within) * 0.78539816339744830962;
    double x2 = x * x;
    double c = 0, s = 0;
    for (int k = 18; k >= 2; k -= 2)
        c = (1 + c) * (-x2 / ((k - 1) * k));
    c += 1;
    for (int k = 19; k >= 3; k -= 2)
        s = (1 + s) * (-x2 / ((k - 1) * k));
    s = x * (1 + s);
    static const struct {
        bool swap;
        double sign_c, sign_s;
    } table[8] = {{false, 1, 1},   {true, 1, 1},   {true, -1, 1}, {false, -1, 1},
                  {false, -1, -1}, {true, -1, -1}, {true, 1, -1}, {false, 1, -1}};
    double a = table[eighth].swap ? s : c, b = table[eighth].swap ? c : s;
    *cosine = a * table[eighth].sign_c;
    *sine = b * table[eighth].sign_s;
}

/* Two normals from four words: Box-Muller with a 64-bit radius and a 32-bit angle each... one pair
 * per counter, so element i takes half (i & 1) of counter i / 2. */
static void normal_pair(struct ls_philox_key key, uint64_t pair, double z[2])
{
    uint32_t counter[4] = {(uint32_t)pair, (uint32_t)(pair >> 32), 0, 0}, bits[4];
    ls_philox(key, counter, bits);
    double radius_u = ((double)bits[0] * 0x1p32 + bits[1] + 1) * 0x1p-64; /* in (0, 1] */
    double angle_u = ((double)bits[2] + bits[3] * 0x1p-32) * 0x1p-32;
    if (angle_u >= 1)
        angle_u = 0;
    double radius = sqrt(-2 * log_fixed(radius_u)), cosine, sine;
    cos_sin_turn(angle_u, &cosine, &sine);
    z[0] = radius * cosine;
    z[1] = radius * sine;
}

void ls_normal_fill(struct ls_philox_key key, int64_t first, int64_t count, double mean,
                    double stddev, float *values)
{
    double z[2];
    for (int64_t i = 0; i < count; i++) {
        uint64_t element = (uint64_t)(first + i);
        if (i == 0 || (element & 1) == 0)
            normal_pair(key, element / 2, z);
        values[i] = (float)(mean + stddev * z[element & 1]);
    }
}
