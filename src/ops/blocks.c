/* Weights in blocks of few bits. */
#include "ops/kernels.h"

#include <math.h>
#include <string.h>

/* The map of QLoRA's appendix E: quantiles of a normal distribution, scaled to [-1, 1], one of them
 * zero. */
static const float nf4_map[16] = {
    -1.0f,
    -0.6961928009986877f,
    -0.5250730514526367f,
    -0.39491748809814453f,
    -0.28444138169288635f,
    -0.18477343022823334f,
    -0.09105003625154495f,
    0.0f,
    0.07958029955625534f,
    0.16093020141124725f,
    0.24611230194568634f,
    0.33791524171829224f,
    0.44070982933044434f,
    0.5626170039176941f,
    0.7229568362236023f,
    1.0f,
};

const float *ls_nf4_map(void)
{
    return nf4_map;
}

size_t ls_block_bytes(enum ls_blocks blocks)
{
    return sizeof(float) + (blocks == LS_BLOCKS_NF4 ? LS_BLOCK_VALUES / 2 : LS_BLOCK_VALUES);
}

size_t ls_blocks_row_bytes(enum ls_blocks blocks, int64_t cols)
{
    LS_ASSERT(cols % LS_BLOCK_VALUES == 0);
    return (size_t)(cols / LS_BLOCK_VALUES) * ls_block_bytes(blocks);
}

/* ---- quantisation ---------------------------------------------------------------------------- */

/* How many midpoints of neighbours lie below x. */
static unsigned char nf4_code(float x)
{
    int code = 0;
    for (int i = 0; i < 15; i++)
        code += x > (float)(((double)nf4_map[i] + (double)nf4_map[i + 1]) / 2);
    return (unsigned char)code;
}

static void nf4_write(const float *values, float absmax, unsigned char *codes)
{
    for (int i = 0; i < LS_BLOCK_VALUES / 2; i++)
        codes[i] = (unsigned char)(nf4_code(values[2 * i] / absmax) << 4 |
                                   nf4_code(values[2 * i + 1] / absmax));
}

static bool nf4_is_exact(const float *values, float absmax)
{
    int i = 0;
    while (i < LS_BLOCK_VALUES && nf4_map[nf4_code(values[i] / absmax)] * absmax == values[i])
        i++;
    return i == LS_BLOCK_VALUES;
}

/* The map is not symmetric, and bitsandbytes' nested absmax of a block that is nearly zero may be
 * negative. */
static float nf4_sign(const float *values, float absmax)
{
    return !nf4_is_exact(values, absmax) && nf4_is_exact(values, -absmax) ? -absmax : absmax;
}

/* Adding and taking away 1.5 x 2^23 rounds to a whole number, halves to even. */
static void int8_write(const float *values, float absmax, unsigned char *codes)
{
    const float whole = 0x1.8p23f;
    for (int i = 0; i < LS_BLOCK_VALUES; i++)
        codes[i] = (unsigned char)(int8_t)((values[i] / absmax * 127.0f + whole) - whole);
}

/* NaN if one is not finite. */
static float largest(const float *values)
{
    float most = 0;
    for (int i = 0; i < LS_BLOCK_VALUES; i++) {
        if (!isfinite(values[i]))
            return NAN;
        most = fmaxf(most, fabsf(values[i]));
    }
    return most;
}

static int refuse(const float *values, int64_t at, struct ls_error *error)
{
    while (isfinite(values[at]))
        at++;
    return ls_error_set(error, LS_EDATA, "value %ld is %g: blocks of few bits hold finite ones",
                        (long)at, (double)values[at]);
}

int ls_blocks_quantize(enum ls_blocks blocks, int64_t count, const float *values, void *to,
                       struct ls_error *error)
{
    LS_ASSERT(count % LS_BLOCK_VALUES == 0);
    size_t bytes = ls_block_bytes(blocks);
    for (int64_t at = 0; at < count; at += LS_BLOCK_VALUES) {
        unsigned char *block = (unsigned char *)to + (size_t)(at / LS_BLOCK_VALUES) * bytes;
        static const float zeros[LS_BLOCK_VALUES];
        const float *from = values + at;
        float absmax = largest(from);
        if (isnan(absmax))
            return refuse(values, at, error);
        if (absmax < 0x1p-100f) {
            from = zeros;
            absmax = 0;
        }
        if (absmax > 0 && blocks == LS_BLOCKS_NF4)
            absmax = nf4_sign(from, absmax);
        memcpy(block, &absmax, sizeof absmax);
        (blocks == LS_BLOCKS_NF4 ? nf4_write : int8_write)(from, absmax != 0 ? absmax : 1,
                                                           block + sizeof absmax);
    }
    return LS_OK;
}

void ls_blocks_values(enum ls_blocks blocks, const void *from, int64_t first, int64_t count,
                      float *values)
{
    kernels_of(LS_ISA_PLAIN)->blocks->read(blocks, LS_F32, from, first, count, values);
}
