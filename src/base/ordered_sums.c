/* Sums whose result does not depend on who adds: the tree over indices, and the exact sum. */
#include <lockstep/base.h>

#include <math.h>
#include <string.h>

float ls_tree_sum(const float *values, int64_t n)
{
    if (n <= 1)
        return n == 1 ? values[0] : 0.0f;
    int64_t split = ls_tree_split(n);
    return ls_tree_sum(values, split) + ls_tree_sum(values + split, n - split);
}

/* The accumulator is a two's complement integer in units of 2^-1074: limb[0] is the lowest. A
 * double's integer significand lands at bit (exponent + 1074), at most bit 2046 + 53, so 33 limbs
 * hold every value and three more hold the carries of 2^128 additions. */
enum { LIMBS = 36 };

void ls_exact_clear(struct ls_exact_sum *sum)
{
    memset(sum, 0, sizeof *sum);
}

static void limbs_add(uint64_t *limb, int from, uint64_t value)
{
    for (int i = from; i < LIMBS && value; i++)
        value = __builtin_add_overflow(limb[i], value, &limb[i]);
}

static void limbs_subtract(uint64_t *limb, int from, uint64_t value)
{
    for (int i = from; i < LIMBS && value; i++)
        value = __builtin_sub_overflow(limb[i], value, &limb[i]);
}

void ls_exact_add(struct ls_exact_sum *sum, double value)
{
    if (!isfinite(value)) {
        sum->nonfinite = 1;
        return;
    }
    if (value == 0)
        return;
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    int biased = (int)((bits >> 52) & 0x7ff);
    uint64_t significand = bits & 0xfffffffffffffull;
    int shift = biased ? biased - 1 : 0; /* value = significand * 2^(shift - 1074) */
    if (biased)
        significand |= 1ull << 52;
    int limb = shift / 64, bit = shift % 64;
    uint64_t low = significand << bit, high = bit ? significand >> (64 - bit) : 0;
    if (bits >> 63) {
        limbs_subtract(sum->limb, limb, low);
        limbs_subtract(sum->limb, limb + 1, high);
    } else {
        limbs_add(sum->limb, limb, low);
        limbs_add(sum->limb, limb + 1, high);
    }
}

void ls_exact_merge(struct ls_exact_sum *sum, const struct ls_exact_sum *other)
{
    uint64_t carry = 0;
    for (int i = 0; i < LIMBS; i++) {
        uint64_t partial;
        uint64_t c1 = __builtin_add_overflow(sum->limb[i], other->limb[i], &partial);
        uint64_t c2 = __builtin_add_overflow(partial, carry, &sum->limb[i]);
        carry = c1 | c2;
    }
    sum->nonfinite |= other->nonfinite;
}

double ls_exact_value(const struct ls_exact_sum *sum)
{
    if (sum->nonfinite)
        return NAN;
    uint64_t limb[LIMBS];
    memcpy(limb, sum->limb, sizeof limb);
    bool negative = limb[LIMBS - 1] >> 63;
    if (negative) {
        uint64_t carry = 1;
        for (int i = 0; i < LIMBS; i++)
            carry = __builtin_add_overflow(~limb[i], carry, &limb[i]);
    }
    int top = LIMBS - 1;
    while (top >= 0 && limb[top] == 0)
        top--;
    if (top < 0)
        return 0;
    /* The 64 bits from the highest set one, the rest as a sticky bit, then one rounding. */
    int zeros = __builtin_clzll(limb[top]);
    uint64_t head = limb[top] << zeros;
    if (zeros && top > 0)
        head |= limb[top - 1] >> (64 - zeros);
    bool sticky = false;
    if (top > 0 && zeros)
        sticky = (limb[top - 1] << zeros) != 0;
    else if (top > 0)
        sticky = limb[top - 1] != 0;
    for (int i = 0; i < top - 1; i++)
        sticky |= limb[i] != 0;
    int exponent = top * 64 - zeros - 1074;
    /* Round to 53 bits here, so that ldexp below is exact (sums of interest are normal). */
    uint64_t kept = head >> 11, rest = head & 0x7ff;
    if (rest > 0x400 || (rest == 0x400 && (sticky || (kept & 1))))
        kept++;
    double value = ldexp((double)kept, exponent + 11);
    return negative ? -value : value;
}
