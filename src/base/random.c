/* Philox 4x32-10, and normal numbers that are the same on every machine. */
#include "base/wider.h"

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

/* Normals are made in blocks of this many pairs, in loops without branches that compilers
 * vectorise. They hold only additions, multiplications, divisions, square roots and integer steps,
 * which IEEE 754 fixes to the last bit: so a block's values depend neither on the machine nor on
 * how wide its vectors are. */
enum { PAIRS = 16 };

/* Words of counters pair, pair + 1, ... */
WIDER static void philox_block(struct ls_philox_key key, uint64_t pair, uint32_t bits[4][PAIRS])
{
    for (int i = 0; i < PAIRS; i++) {
        bits[0][i] = (uint32_t)(pair + (uint64_t)i);
        bits[1][i] = (uint32_t)((pair + (uint64_t)i) >> 32);
        bits[2][i] = 0;
        bits[3][i] = 0;
    }
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < PAIRS; i++) {
            uint64_t p0 = (uint64_t)0xD2511F53u * bits[0][i];
            uint64_t p1 = (uint64_t)0xCD9E8D57u * bits[2][i];
            bits[0][i] = (uint32_t)(p1 >> 32) ^ bits[1][i] ^ key.word[0];
            bits[2][i] = (uint32_t)(p0 >> 32) ^ bits[3][i] ^ key.word[1];
            bits[1][i] = (uint32_t)p1;
            bits[3][i] = (uint32_t)p0;
        }
        key.word[0] += 0x9E3779B9u;
        key.word[1] += 0xBB67AE85u;
    }
}

/* y[i] = sqrt(-2 ln u[i]), u in (0, 1]: ln m = 2 atanh((m - 1) / (m + 1)), m in [sqrt 1/2, sqrt 2).
 */
WIDER static void radius_block(const double u[PAIRS], double y[PAIRS])
{
    for (int i = 0; i < PAIRS; i++) {
        int64_t bits;
        memcpy(&bits, &u[i], sizeof bits);
        /* The exponent that leaves the significand in the wanted interval. */
        int64_t shifted = bits - 0x3fe6a09e667f3bcd;
        double exponent = (double)(int32_t)(shifted >> 52);
        bits -= shifted & ~(int64_t)0xfffffffffffff;
        double m;
        memcpy(&m, &bits, sizeof m);
        double s = (m - 1) / (m + 1), s2 = s * s;
        double series = 1.0 / 23;
        series = series * s2 + 1.0 / 21;
        series = series * s2 + 1.0 / 19;
        series = series * s2 + 1.0 / 17;
        series = series * s2 + 1.0 / 15;
        series = series * s2 + 1.0 / 13;
        series = series * s2 + 1.0 / 11;
        series = series * s2 + 1.0 / 9;
        series = series * s2 + 1.0 / 7;
        series = series * s2 + 1.0 / 5;
        series = series * s2 + 1.0 / 3;
        series = series * s2 + 1;
        y[i] = sqrt(-2 * (2 * s * series + exponent * 0.69314718055994530942));
    }
}

/* cosine[i], sine[i] of 2 pi u[i], u in [0, 1): u is folded to x in [-1/8, 1/8] of a turn around
 * the nearest quarter, then Taylor series. */
WIDER static void circle_block(const double u[PAIRS], double cosine[PAIRS], double sine[PAIRS])
{
    for (int i = 0; i < PAIRS; i++) {
        int32_t quarter = (int32_t)(u[i] * 4 + 0.5);
        double x = (u[i] - 0.25 * quarter) * 6.28318530717958647693, x2 = x * x;
        double c = -1.0 / (17 * 18) * x2, s = -1.0 / (18 * 19) * x2;
        c = (1 + c) * (-1.0 / (15 * 16)) * x2;
        s = (1 + s) * (-1.0 / (16 * 17)) * x2;
        c = (1 + c) * (-1.0 / (13 * 14)) * x2;
        s = (1 + s) * (-1.0 / (14 * 15)) * x2;
        c = (1 + c) * (-1.0 / (11 * 12)) * x2;
        s = (1 + s) * (-1.0 / (12 * 13)) * x2;
        c = (1 + c) * (-1.0 / (9 * 10)) * x2;
        s = (1 + s) * (-1.0 / (10 * 11)) * x2;
        c = (1 + c) * (-1.0 / (7 * 8)) * x2;
        s = (1 + s) * (-1.0 / (8 * 9)) * x2;
        c = (1 + c) * (-1.0 / (5 * 6)) * x2;
        s = (1 + s) * (-1.0 / (6 * 7)) * x2;
        c = (1 + c) * (-1.0 / (3 * 4)) * x2;
        s = (1 + s) * (-1.0 / (4 * 5)) * x2;
        c = 1 + (1 + c) * (-1.0 / (1 * 2)) * x2;
        s = x * (1 + (1 + s) * (-1.0 / (2 * 3)) * x2);
        /* Quarters turn (c, s) to (-s, c), (-c, -s), (s, -c). */
        double a = quarter & 1 ? s : c, b = quarter & 1 ? c : s;
        cosine[i] = (quarter + 1) & 2 ? -a : a;
        sine[i] = quarter & 2 ? -b : b;
    }
}

/* Box-Muller: counter `pair` gives the normals 2 * pair and 2 * pair + 1. */
static void normal_block(struct ls_philox_key key, uint64_t pair, double z[2 * PAIRS])
{
    uint32_t bits[4][PAIRS];
    double u[PAIRS], angle[PAIRS], radius[PAIRS], cosine[PAIRS], sine[PAIRS];
    philox_block(key, pair, bits);
    for (int i = 0; i < PAIRS; i++) {
        u[i] = ((double)bits[0][i] * 0x1p32 + bits[1][i] + 1) * 0x1p-64; /* in (0, 1] */
        angle[i] = (double)bits[2][i] * 0x1p-32;                         /* in [0, 1) */
    }
    radius_block(u, radius);
    circle_block(angle, cosine, sine);
    for (int i = 0; i < PAIRS; i++) {
        z[2 * i] = radius[i] * cosine[i];
        z[2 * i + 1] = radius[i] * sine[i];
    }
}

void ls_normal_fill(struct ls_philox_key key, int64_t first, int64_t count, double mean,
                    double stddev, float *values)
{
    double z[2 * PAIRS];
    int64_t base = first & ~(int64_t)1, done = 0;
    for (; done < count; base += 2 * PAIRS) {
        normal_block(key, (uint64_t)base / 2, z);
        int64_t begin = first + done - base;
        int64_t end = ls_min(2 * PAIRS, first + count - base);
        for (int64_t i = begin; i < end; i++)
            values[done++] = (float)(mean + stddev * z[i]);
    }
}
