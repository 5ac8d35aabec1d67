/* Values of weights in blocks (lockstep/ops/blocks.h), 32 of them at a time. */
#include "ops/kernels.h"

#include "ops/kern/block.h"

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

enum { PART = LS_BLOCK_VALUES / 2, HALF = PART / 2 };

/* What is constant where it is inlined. */
struct form {
    enum ls_blocks blocks;
    enum ls_dtype type;
    int64_t size, code_bytes; /* of a value of type; of PART codes */
};
#define INLINE static inline __attribute__((always_inline))

#if defined(__AVX512F__)
/* 16 codes of int8: one times 1 / 127 in two floats rounds to code / 127.0f, for each code. */
static inline __m512 int8_values(const unsigned char *codes, __m512 absmax)
{
    const float high = 1.0f / 127, low = (float)(1.0 / 127 - (double)high);
    __m512 all = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)codes)));
    __m512 of = _mm512_fmadd_ps(all, _mm512_set1_ps(high), _mm512_mul_ps(all, _mm512_set1_ps(low)));
    return _mm512_mul_ps(of, absmax);
}

/* 16 values of 8 bytes, by the map times absmax. */
static inline __m512 nf4_values(const unsigned char *codes, __m512 map)
{
    uint64_t bytes;
    memcpy(&bytes, codes, sizeof bytes);
    __m128i all = _mm_cvtsi64_si128((long long)bytes), low = _mm_set1_epi8(15);
    __m128i nibbles =
        _mm_unpacklo_epi8(_mm_and_si128(_mm_srli_epi16(all, 4), low), _mm_and_si128(all, low));
    return _mm512_permutexvar_ps(_mm512_cvtepu8_epi32(nibbles), map);
}

/* half_round of 16 values. */
static inline __m256i halves_of(enum ls_dtype half, __m512 x)
{
    if (half == LS_F16)
        return _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT);
    __m512i bits = _mm512_castps_si512(x), one = _mm512_set1_epi32(1);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), one);
    __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    rounded = _mm512_mask_or_epi32(rounded, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), bits,
                                   _mm512_set1_epi32(0x400000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
}

/* A block has 16 different values, so each is rounded once. An index has 5 bits: the map is there
 * twice. */
static inline __m512i nf4_halves(enum ls_dtype half, const unsigned char *codes, __m512 map)
{
    __m512i twice = _mm512_broadcast_i64x4(halves_of(half, map));
    __m512i all = _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)codes));
    __m512i indices = _mm512_or_si512(_mm512_srli_epi32(all, 4), _mm512_slli_epi32(all, 16));
    return _mm512_permutexvar_epi16(indices, twice);
}

INLINE void part_read(struct form form, const float *map, const unsigned char *codes, float absmax,
                      void *to)
{
    __m512 most = _mm512_set1_ps(absmax), low, high;
    if (form.blocks == LS_BLOCKS_NF4) {
        __m512 products = _mm512_mul_ps(_mm512_loadu_ps(map), most);
        if (form.type != LS_F32) {
            _mm512_storeu_si512(to, nf4_halves(form.type, codes, products));
            return;
        }
        low = nf4_values(codes, products);
        high = nf4_values(codes + HALF / 2, products);
    } else {
        low = int8_values(codes, most);
        high = int8_values(codes + HALF, most);
    }
    if (form.type == LS_F32) {
        _mm512_storeu_ps(to, low);
        _mm512_storeu_ps((float *)to + HALF, high);
    } else {
        _mm256_storeu_si256(to, halves_of(form.type, low));
        _mm256_storeu_si256((__m256i *)to + 1, halves_of(form.type, high));
    }
}
#else
INLINE void part_read(struct form form, const float *map, const unsigned char *codes, float absmax,
                      void *to)
{
    float values[PART];
    for (int i = 0; i < HALF && form.blocks == LS_BLOCKS_NF4; i++) {
        values[2 * i] = map[codes[i] >> 4] * absmax;
        values[2 * i + 1] = map[codes[i] & 15] * absmax;
    }
    for (int i = 0; i < PART && form.blocks == LS_BLOCKS_INT8; i++)
        values[i] = (float)(int8_t)codes[i] / 127.0f * absmax;
    for (int i = 0; i < PART; i += HALF)
        block_write(form.type, values + i, HALF, to, i);
}
#endif

/* Parts of a block, from `part`. */
INLINE void parts_read(struct form form, const float *map, const unsigned char *block, int64_t part,
                       int64_t parts, unsigned char *to)
{
    float absmax;
    memcpy(&absmax, block, sizeof absmax);
    for (int64_t i = 0; i < parts; i++)
        part_read(form, map, block + sizeof absmax + (part + i) * form.code_bytes, absmax,
                  to + i * PART * form.size);
}

INLINE void row_read(struct form form, const unsigned char *block, int64_t first, int64_t count,
                     unsigned char *to)
{
    const float *map = ls_nf4_map();
    const int64_t bytes = (int64_t)sizeof(float) + 2 * form.code_bytes;
    block += first / LS_BLOCK_VALUES * bytes;
    first %= LS_BLOCK_VALUES;
    for (int64_t left = count; left > 0; block += bytes, first = 0) {
        int64_t n = LS_BLOCK_VALUES - first < left ? LS_BLOCK_VALUES - first : left;
        if (n == LS_BLOCK_VALUES) {
            parts_read(form, map, block, 0, 2, to);
        } else if (first % PART == 0 && n == PART) {
            parts_read(form, map, block, first / PART, 1, to);
        } else { /* where a tile begins or ends inside */
            unsigned char values[LS_BLOCK_VALUES * sizeof(float)];
            parts_read(form, map, block, 0, 2, values);
            memcpy(to, values + first * form.size, (size_t)(n * form.size));
        }
        to += n * form.size;
        left -= n;
    }
}

static void read(enum ls_blocks blocks, enum ls_dtype type, const void *row, int64_t first,
                 int64_t count, void *to)
{
    if (blocks == LS_BLOCKS_INT8 && type == LS_F32)
        row_read((struct form){LS_BLOCKS_INT8, LS_F32, 4, PART}, row, first, count, to);
    else if (blocks == LS_BLOCKS_INT8 && type == LS_BF16)
        row_read((struct form){LS_BLOCKS_INT8, LS_BF16, 2, PART}, row, first, count, to);
    else if (blocks == LS_BLOCKS_INT8)
        row_read((struct form){LS_BLOCKS_INT8, LS_F16, 2, PART}, row, first, count, to);
    else if (type == LS_F32)
        row_read((struct form){LS_BLOCKS_NF4, LS_F32, 4, HALF}, row, first, count, to);
    else if (type == LS_BF16)
        row_read((struct form){LS_BLOCKS_NF4, LS_BF16, 2, HALF}, row, first, count, to);
    else
        row_read((struct form){LS_BLOCKS_NF4, LS_F16, 2, HALF}, row, first, count, to);
}

const struct blocks_kernels KERNEL(blocks_kernels) = {.read = read};
