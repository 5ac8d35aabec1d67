/* Values of weights in blocks (lockstep/ops/blocks.h), 32 of them at a time. */
#include "ops/kernels.h"

#include "ops/kern/block.h"

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

enum { PART = LS_BLOCK_VALUES / 2 };

static void int8_part(const unsigned char *codes, float absmax, float values[PART])
{
    for (int i = 0; i < PART; i++)
        values[i] = (float)(int8_t)codes[i] / 127.0f * absmax;
}

#if defined(__AVX512F__)
/* 16 values of 8 bytes. */
static inline void nf4_half(const float *map, const unsigned char *codes, float absmax,
                            float *values)
{
    uint64_t bytes;
    memcpy(&bytes, codes, sizeof bytes);
    __m128i all = _mm_cvtsi64_si128((long long)bytes), low = _mm_set1_epi8(15);
    __m128i nibbles =
        _mm_unpacklo_epi8(_mm_and_si128(_mm_srli_epi16(all, 4), low), _mm_and_si128(all, low));
    __m512 of = _mm512_permutexvar_ps(_mm512_cvtepu8_epi32(nibbles), _mm512_loadu_ps(map));
    _mm512_storeu_ps(values, _mm512_mul_ps(of, _mm512_set1_ps(absmax)));
}
static void nf4_part(const float *map, const unsigned char *codes, float absmax, float values[PART])
{
    nf4_half(map, codes, absmax, values);
    nf4_half(map, codes + PART / 4, absmax, values + PART / 2);
}
#else
static void nf4_part(const float *map, const unsigned char *codes, float absmax, float values[PART])
{
    for (int i = 0; i < PART / 2; i++) {
        values[2 * i] = map[codes[i] >> 4] * absmax;
        values[2 * i + 1] = map[codes[i] & 15] * absmax;
    }
}
#endif

/* Values [first, first + count) of the row, rounded to type. */
static void read(enum ls_blocks blocks, enum ls_dtype type, const void *row, int64_t first,
                 int64_t count, void *to)
{
    const float *map = ls_nf4_map();
    const size_t bytes = ls_block_bytes(blocks);
    float values[PART];
    for (int64_t at = first, end = first + count; at < end;) {
        int64_t part = at / PART * PART, skip = at - part;
        int64_t n = PART - skip < end - at ? PART - skip : end - at;
        const unsigned char *block =
            (const unsigned char *)row + (size_t)(part / LS_BLOCK_VALUES) * bytes;
        const unsigned char *codes = block + sizeof(float);
        float absmax;
        memcpy(&absmax, block, sizeof absmax);
        if (blocks == LS_BLOCKS_NF4)
            nf4_part(map, codes + part % LS_BLOCK_VALUES / 2, absmax, values);
        else
            int8_part(codes + part % LS_BLOCK_VALUES, absmax, values);
        if (n == PART)
            block_write(type, values, PART, to, at - first);
        else /* where a tile begins or ends inside */
            for (int64_t i = 0; i < n; i++)
                block_write(type, &values[skip + i], 1, to, at - first + i);
        at += n;
    }
}

const struct blocks_kernels KERNEL(blocks_kernels) = {.read = read};
