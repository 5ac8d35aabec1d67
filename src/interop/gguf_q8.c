/* Q8_0, ggml's int8: of 32 values one scale in fp16 and 32 integers. */
#include "interop/gguf.h"

#include <math.h>
#include <string.h>

/* To the nearest integer, halves away from zero, as C's roundf: of |x| < 2^31, in operations that
 * are exact and become vectors. */
static inline int32_t rounded(float x)
{
    int32_t whole = (int32_t)x;
    float rest = x - (float)whole;
    return whole + (rest >= 0.5f) - (rest <= -0.5f);
}

/* False where the scale is more than fp16 has, or a value is not finite. */
static bool block_quantize(const float *x, unsigned char *out)
{
    uint32_t largest = 0; /* of |x|: as integers, floats have their own order, and NaN is above */
    for (int i = 0; i < GGUF_Q8_VALUES; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        bits &= 0x7fffffffu;
        largest = bits > largest ? bits : largest;
    }
    float most;
    memcpy(&most, &largest, sizeof most);
    float scale = most / 127, inverse = 1 / scale;
    ls_f16 half = ls_f32_to_f16(scale);
    if (ls_f16_to_f32(half) > 65504.0f || largest > 0x7f800000u)
        return false;
    memcpy(out, &half, sizeof half);
    signed char *q = (signed char *)out + sizeof half;
    if (!isfinite(inverse)) /* of 0, and of what is far below the least fp16 */
        memset(q, 0, GGUF_Q8_VALUES);
    else
        for (int i = 0; i < GGUF_Q8_VALUES; i++)
            q[i] = (signed char)rounded(x[i] * inverse);
    return true;
}

int64_t gguf_q8_bytes(int64_t count)
{
    LS_ASSERT(count % GGUF_Q8_VALUES == 0);
    return count / GGUF_Q8_VALUES * (GGUF_Q8_VALUES + (int64_t)sizeof(ls_f16));
}

int64_t gguf_q8_quantize(int64_t count, const float *values, void *out)
{
    unsigned char *bytes = out;
    for (int64_t at = 0; at < count; at += GGUF_Q8_VALUES)
        if (!block_quantize(values + at, bytes + gguf_q8_bytes(at)))
            return at;
    return count;
}
