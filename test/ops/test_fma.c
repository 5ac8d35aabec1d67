/* The fused multiply-add of plain C is the library's, bit for bit. */
#include "../support/suite.h"
#include "ops/kern/fma.h"

#include <lockstep/base.h>

#include <math.h>
#include <string.h>

enum { RANDOM = 1 << 20 };

typedef fma_vec fma_function(fma_vec a, fma_vec b, fma_vec c);

/* Rounded twice: what fma_plain would be without its rare cases. */
static fma_vec fma_rounded_twice(fma_vec a, fma_vec b, fma_vec c)
{
    for (int i = 0; i < FMA_LANES; i++)
        c[i] = (float)((double)a[i] * (double)b[i] + (double)c[i]);
    return c;
}

/* A product that ends below the normal floats or beyond the largest, rounded by itself. */
static fma_vec fma_apart(fma_vec a, fma_vec b, fma_vec c)
{
    return a * b + c;
}

static uint32_t kept = UINT32_MAX; /* bits of a and b */

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return isnan(x) ? 0x7fc00000 : bits;
}

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

struct lanes {
    fma_vec a, b, c;
};

/* Lanes in which f is not fmaf. */
static int wrong(fma_function *f, struct lanes x)
{
    int count = 0;
    for (int i = 0; i < FMA_LANES; i++) {
        x.a[i] = float_of(bits_of(x.a[i]) & kept);
        x.b[i] = float_of(bits_of(x.b[i]) & kept);
    }
    fma_vec got = f(x.a, x.b, x.c);
    for (int i = 0; i < FMA_LANES; i++)
        count += bits_of(got[i]) != bits_of(fmaf(x.a[i], x.b[i], x.c[i]));
    return count;
}

static void draw(uint32_t at, uint32_t out[4])
{
    ls_philox((struct ls_philox_key){{5, 6}}, (uint32_t[4]){at, 0, 0, 0}, out);
}

/* Any three floats, infinite ones and NaN among them. */
static int wrong_of_any(fma_function *f)
{
    int count = 0;
    for (uint32_t n = 0; n < RANDOM; n++) {
        struct lanes x;
        for (int i = 0; i < FMA_LANES; i++) {
            uint32_t bits[4];
            draw(n * FMA_LANES + (uint32_t)i, bits);
            x.a[i] = float_of(bits[0]);
            x.b[i] = float_of(bits[1]);
            x.c[i] = float_of(bits[2]);
        }
        count += wrong(f, x);
    }
    return count;
}

/* Sums that lie in the reach of each other: c is about -a b, or its neighbour in size; results down
 * to where floats end. */
static int wrong_of_near(fma_function *f)
{
    int count = 0;
    for (uint32_t n = 0; n < RANDOM; n++) {
        struct lanes x;
        for (int i = 0; i < FMA_LANES; i++) {
            uint32_t bits[4];
            draw(n * FMA_LANES + (uint32_t)i, bits);
            int exponent = (int)(bits[3] % 150) - 149;
            x.a[i] = float_of(0x3f800000 | bits[0] >> 9);
            x.b[i] = ldexpf(float_of(0x3f800000 | bits[1] >> 9), exponent);
            x.c[i] = ldexpf(-x.a[i] * x.b[i], (int)(bits[2] % 64) - 32) *
                     (bits[2] >> 31 ? 1.0f : 1.0f + 0x1p-23f);
        }
        count += wrong(f, x);
    }
    return count;
}

/* Sums half way between two floats, but for t^2: (1 + t) (1 - t) of half a unit of c's last place.
 * c is 1 to 2 times 2^e, first <= e < end. */
static int wrong_of_ties(fma_function *f, int first, int end)
{
    int count = 0;
    for (uint32_t n = 0; n < 1 << 16; n++) {
        struct lanes x;
        for (int i = 0; i < FMA_LANES; i++) {
            uint32_t bits[4];
            draw(n * FMA_LANES + (uint32_t)i, bits);
            int exponent = first + (int)(bits[1] % (uint32_t)(end - first));
            int half = (exponent > -126 ? exponent : -126) - 24;
            float t = ldexpf((float)(bits[2] % 128), -23);
            x.c[i] = ldexpf(float_of(0x3f800000 | bits[0] >> 9), exponent);
            x.a[i] = ldexpf(bits[3] & 1 ? 1.0f + t : -1.0f - t, half / 2);
            x.b[i] = ldexpf(1.0f - t, half - half / 2);
        }
        count += wrong(f, x);
    }
    return count;
}

static int wrong_of_special(fma_function *f)
{
    static const float special[] = {
        0.0f,     -0.0f,    1.0f,     -1.0f,     INFINITY,  -INFINITY,  NAN,  0x1p-149f,
        0x1p-75f, 0x1p-74f, 0x1p127f, -0x1p127f, 0x1p-126f, -0x1p-126f, 3.0f, 0x1.fffffep127f};
    enum { COUNT = sizeof special / sizeof *special };
    int count = 0;
    for (int i = 0; i < COUNT * COUNT * COUNT; i++) {
        struct lanes x;
        for (int lane = 0; lane < FMA_LANES; lane++) {
            x.a[lane] = special[i % COUNT];
            x.b[lane] = special[i / COUNT % COUNT];
            x.c[lane] = special[i / COUNT / COUNT];
        }
        count += wrong(f, x);
    }
    return count;
}

CASE(test_plain_is_the_library)
{
    assert_int_equal(wrong_of_any(fma_plain), 0);
    assert_int_equal(wrong_of_near(fma_plain), 0);
    assert_int_equal(wrong_of_ties(fma_plain, -149, 127), 0);
    assert_int_equal(wrong_of_special(fma_plain), 0);
}

/* Products of bf16, and a twin that takes all of them for exact. */
CASE(test_bf16_is_the_library)
{
    kept = 0xffff0000;
    int wrong_here = wrong_of_any(fma_bf16) + wrong_of_near(fma_bf16) +
                     wrong_of_ties(fma_bf16, -149, 127) + wrong_of_special(fma_bf16);
    int low = wrong_of_ties(fma_apart, -149, -126), high = wrong_of_special(fma_apart);
    kept = UINT32_MAX;
    assert_int_equal(wrong_here, 0);
    assert_true(low > 0 && high > 0);
}

CASE(test_rounding_twice_is_seen)
{
    assert_true(wrong_of_ties(fma_rounded_twice, -126, 127) > RANDOM / 32);
    /* Below the normal floats too. */
    assert_true(wrong_of_ties(fma_rounded_twice, -130, -126) > RANDOM / 32);
}

SUITE_MAIN(NULL, NULL)
