/* fp16: every value widened, and rounding to nearest even against arithmetic in double, by the
 * inline functions and by the casts of each instruction set. */
#include <lockstep/base.h>
#include <lockstep/ops.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../support/suite.h"

static uint32_t bits_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static float float_of(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* ---- what is right --------------------------------------------------------------------------- */

/* IEEE 754: (-1)^s 2^(e - 25) (1024 + m), or 2^-24 m where e is 0. */
static double value_of(ls_f16 x)
{
    int exponent = x >> 10 & 31, mantissa = x & 1023;
    double size = exponent == 31  ? (mantissa ? NAN : INFINITY)
                  : exponent == 0 ? ldexp(mantissa, -24)
                                  : ldexp(1024 + mantissa, exponent - 25);
    return x & 0x8000 ? -size : size;
}

/* value_of, of sizes alone: a search asks it a dozen times. */
static double size_of(int bits)
{
    static double sizes[0x7c00];
    for (int i = 0; sizes[0x7bff] == 0 && i < 0x7c00; i++)
        sizes[i] = value_of((ls_f16)i);
    return sizes[bits];
}

/* The nearest by search: of two that are as near, the one whose last bit is 0. */
static ls_f16 nearest(float x)
{
    ls_f16 sign = signbit(x) ? 0x8000 : 0;
    double size = fabs((double)x);
    if (isnan(x))
        return (ls_f16)(sign | 0x7e00 | (bits_of(x) >> 13 & 0x3ff));
    int low = 0, high = 0x7c00; /* value_of(low) <= size < value_of(high), infinity as 2^16 */
    if (size >= 0x1p16)
        return sign | 0x7c00;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (size_of(middle) <= size)
            low = middle;
        else
            high = middle;
    }
    double above = high == 0x7c00 ? 0x1p16 : size_of(high);
    double down = size - size_of(low), up = above - size;
    int choice = down < up || (down == up && low % 2 == 0) ? low : high;
    return (ls_f16)(sign | choice);
}

/* ---- the inline functions -------------------------------------------------------------------- */

CASE(test_every_value_is_widened)
{
    for (int i = 0; i < 1 << 16; i++) {
        float got = ls_f16_to_f32((ls_f16)i);
        double want = value_of((ls_f16)i);
        if (isnan(want) ? !isnan(got) : (double)got != want || !signbit(got) != !(i & 0x8000))
            fail_msg("%04x is %g, not %g", (unsigned)i, (double)got, want);
        if (isnan(want))
            assert_int_equal(ls_f32_to_f16(got), i | 0x200);
        else
            assert_int_equal(ls_f32_to_f16(got), i);
    }
}

enum { NEIGHBOURS = 5, FLOATS = (1 << 16) * NEIGHBOURS, DRAWN = 1 << 20 };

/* All halves, all middles between two, and the floats beside both; then any bits. */
static float *floats_new(int64_t *count)
{
    float *x = malloc((size_t)(FLOATS + DRAWN) * sizeof *x);
    *count = FLOATS + DRAWN;
    for (int i = 0; i < 1 << 16; i++) {
        double middle = (value_of((ls_f16)i) + value_of((ls_f16)(i + 1))) / 2;
        float half = (float)value_of((ls_f16)i), between = (float)middle;
        float *to = x + (int64_t)i * NEIGHBOURS;
        to[0] = half;
        to[1] = nextafterf(half, INFINITY);
        to[2] = between;
        to[3] = nextafterf(between, INFINITY);
        to[4] = nextafterf(between, -INFINITY);
    }
    for (uint32_t i = 0; i < DRAWN; i++) {
        uint32_t bits[4];
        ls_philox((struct ls_philox_key){{3, 1}}, (uint32_t[4]){i, 0, 0, 0}, bits);
        /* Half of them of the exponents that fp16 has, and a little more. */
        uint32_t exponent = i % 2 ? 100 + bits[1] % 46 : bits[1] & 255;
        x[FLOATS + i] = float_of((bits[0] & 0x807fffffu) | exponent << 23);
    }
    return x;
}

static int64_t differences(const float *x, int64_t count, ls_f16 (*round)(float))
{
    int64_t wrong = 0;
    for (int64_t i = 0; i < count; i++)
        wrong += round(x[i]) != nearest(x[i]);
    return wrong;
}

/* The broken twins: bits cut off, and ties away from zero. */
static ls_f16 cut_off(float x)
{
    return ls_f32_to_f16(float_of(bits_of(x) & ~0x1fffu));
}
static ls_f16 ties_away(float x)
{
    bool tie = (bits_of(x) & 0x3fffu) == 0x1000u;
    return ls_f32_to_f16(tie ? float_of(bits_of(x) + 1) : x);
}

CASE(test_rounding_is_to_nearest_even)
{
    int64_t count;
    float *x = floats_new(&count);
    assert_int_equal(differences(x, count, ls_f32_to_f16), 0);
    assert_true(differences(x, count, cut_off) > count / 10);
    assert_true(differences(x, count, ties_away) > 1 << 13);
    assert_int_equal(ls_f32_to_f16(65519.0f), 0x7bff);
    assert_int_equal(ls_f32_to_f16(65520.0f), 0x7c00);
    assert_int_equal(ls_f32_to_f16(0x1p-25f), 0);
    free(x);
}

/* ---- on every instruction set ---------------------------------------------------------------- */

CASE(test_casts_of_each_set)
{
    int64_t count;
    float *x = floats_new(&count), *back = malloc((size_t)count * sizeof *back);
    ls_f16 *half = malloc((size_t)count * sizeof *half);
    for (int isa = 0; isa <= (int)ls_isa_best(); isa++) {
        struct ls_ops ops;
        struct ls_error error = {0};
        assert_int_equal(ls_ops_init(&ops, 2, (enum ls_isa)isa, &error), LS_OK);
        ls_cast_to_half(&ops, LS_F16, count, x, half);
        ls_cast_from_half(&ops, LS_F16, count, half, back);
        for (int64_t i = 0; i < count; i++)
            if (half[i] != ls_f32_to_f16(x[i]) ||
                bits_of(back[i]) != bits_of(ls_f16_to_f32(half[i])))
                fail_msg("%s: %08x becomes %04x and %08x, not %04x and %08x",
                         ls_isa_name((enum ls_isa)isa), bits_of(x[i]), half[i], bits_of(back[i]),
                         ls_f32_to_f16(x[i]), bits_of(ls_f16_to_f32(half[i])));
        ls_ops_release(&ops);
    }
    free(x), free(back), free(half);
}

SUITE_MAIN(NULL, NULL)
