/* Sums of products of int8 by VPDPBUSD (AVX512_VNNI), which adds four of them to an int32 at once,
 * exactly. Its first operand has no sign: A goes in with 128 added, and 128 times the sum of B's
 * row comes off again. */
/* cflags: -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni -O3 */
#include "ops/kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

enum { STEP = 64 };

static inline __m512i unsigned_of(__m512i a)
{
    return _mm512_xor_si512(a, _mm512_set1_epi8((char)0x80));
}

/* The sums of the lanes of four vectors, less those of four others. */
static inline __attribute__((always_inline)) __m128i four_sums(const __m512i *sum,
                                                               const __m512i *less)
{
    __m512i v[INT8_EDGE];
    for (int c = 0; c < INT8_EDGE; c++)
        v[c] = _mm512_sub_epi32(sum[c], less[c]);
    __m512i low =
        _mm512_add_epi32(_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[0], v[1]));
    __m512i high =
        _mm512_add_epi32(_mm512_unpacklo_epi32(v[2], v[3]), _mm512_unpackhi_epi32(v[2], v[3]));
    __m512i all =
        _mm512_add_epi32(_mm512_unpacklo_epi64(low, high), _mm512_unpackhi_epi64(low, high));
    __m256i half = _mm256_add_epi32(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64(all, 1));
    return _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}

/* `rows` is a constant where it is inlined. */
static inline __attribute__((always_inline)) void block_dots(const int8_t *a, int64_t lda, int rows,
                                                             const int8_t *b, int64_t ldb,
                                                             int64_t k, int32_t *sums)
{
    __m512i sum[INT8_EDGE][INT8_EDGE], of_b[INT8_EDGE];
    const __m512i offset = _mm512_set1_epi8((char)0x80);
    for (int c = 0; c < INT8_EDGE; c++) {
        of_b[c] = _mm512_setzero_si512();
        for (int r = 0; r < rows; r++)
            sum[r][c] = _mm512_setzero_si512();
    }
    for (int64_t i = 0; i < k; i += STEP) {
        __mmask64 mask = k - i >= STEP ? ~(__mmask64)0 : ((__mmask64)1 << (k - i)) - 1;
        __m512i y[INT8_EDGE];
        for (int c = 0; c < INT8_EDGE; c++) {
            y[c] = _mm512_maskz_loadu_epi8(mask, b + c * ldb + i);
            of_b[c] = _mm512_dpbusd_epi32(of_b[c], offset, y[c]);
        }
        for (int r = 0; r < rows; r++) {
            __m512i x = unsigned_of(_mm512_maskz_loadu_epi8(mask, a + r * lda + i));
            for (int c = 0; c < INT8_EDGE; c++)
                sum[r][c] = _mm512_dpbusd_epi32(sum[r][c], x, y[c]);
        }
    }
    for (int r = 0; r < rows; r++)
        _mm_storeu_si128((void *)(sums + r * INT8_EDGE), four_sums(sum[r], of_b));
}

void int8_vnni_dots(const int8_t *a, int64_t lda, int64_t rows, const int8_t *b, int64_t ldb,
                    int64_t k, int32_t sums[INT8_EDGE * INT8_EDGE])
{
    if (rows == INT8_EDGE) {
        block_dots(a, lda, INT8_EDGE, b, ldb, k, sums);
        return;
    }
    for (int64_t r = 0; r < rows; r++)
        block_dots(a + r * lda, lda, 1, b, ldb, k, sums + r * INT8_EDGE);
}

bool int8_vnni_is_there(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512vnni");
}
#endif
