/* Sums of products of int8 by VPDPBUSD (AVX512_VNNI), which adds four of them to an int32 at once,
 * exactly. Its first operand has no sign: one side goes in with 128 added, and 128 times the sum of
 * the other side's row comes off again. An int32 that overflows on the way wraps, so that the
 * difference is exact where the sum itself fits (LS_INT8_K_MAX).
 *
 * For few rows of A, B is read as it lies; for many it is packed. */
/* cflags: -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni -O3 */
#include "ops/gemm_kernel.h"
#include "ops/kernels.h"

#if defined(__x86_64__)
#include <string.h>

#include "ops/gemm_transpose.h"

enum { STEP = 64 };

static inline __m512i unsigned_of(__m512i x)
{
    return _mm512_xor_si512(x, _mm512_set1_epi8((char)GEMM_INT8_ADDED));
}

/* ---- few rows -------------------------------------------------------------------------------- */

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
    const __m512i added = _mm512_set1_epi8((char)GEMM_INT8_ADDED);
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
            of_b[c] = _mm512_dpbusd_epi32(of_b[c], added, y[c]);
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

/* ---- many rows --------------------------------------------------------------------------------
 *
 * A packed block is 1 KiB. Of A it is 32 rows of 32 bytes along k. Of B it is two tiles, each of
 * 8 fours along k by 16 columns: row p holds b[4p][c], ... b[4p + 3][c], with 128 added, for
 * c = 0..15. */

enum { ROW_BYTES = 32, LINE_BYTES = 64, TILE_BYTES = 512, BLOCK_BYTES = 1024, FOURS = 8, ROWS = 8 };

static inline __m256i line_of(const int8_t *x, int64_t ld, int64_t line, int64_t edge,
                              __mmask32 mask)
{
    return line < edge ? _mm256_maskz_loadu_epi8(mask, x + line * ld) : _mm256_setzero_si256();
}

static void pack(struct gemm_form form, const void *x, int64_t ld, int64_t edge, int64_t k,
                 unsigned char *block)
{
    __mmask32 mask = k == GEMM_EDGE ? 0xffffffffu : (1u << k) - 1;
    __m512i v[16];
    if (!form.is_b) {
        for (int64_t r = 0; r < GEMM_EDGE; r++)
            _mm256_store_si256((void *)(block + r * ROW_BYTES), line_of(x, ld, r, edge, mask));
        return;
    }
    for (int64_t c = 0; c < 16; c++)
        v[c] = _mm512_inserti64x4(_mm512_castsi256_si512(line_of(x, ld, c, edge, mask)),
                                  line_of(x, ld, 16 + c, edge, mask), 1);
    gemm_transpose_words(v);
    for (int64_t p = 0; p < 16; p++)
        _mm512_store_si512(block + p * LINE_BYTES, unsigned_of(v[p]));
}

/* Four of A's row, in every place. */
static inline __m512i four_of(const unsigned char *row, int64_t four)
{
    int32_t word;
    memcpy(&word, row + four * 4, sizeof word);
    return _mm512_set1_epi32(word);
}

/* Eight rows by 32 columns in registers, through all of k. from and to hold int32. */
static void product(const unsigned char *a, const unsigned char *b, int64_t rows, int64_t steps,
                    const float *from, float *to, struct gemm_ahead ahead)
{
    gemm_fetch(ahead, 1, 0);
    for (int64_t row = 0; row < rows; row += ROWS, to += ROWS * GEMM_EDGE) {
        __m512i low[ROWS], high[ROWS];
        for (int r = 0; r < ROWS; r++) {
            const float *sums = from + r * GEMM_EDGE;
            low[r] = from ? _mm512_load_si512(sums) : _mm512_setzero_si512();
            high[r] = from ? _mm512_load_si512(sums + 16) : _mm512_setzero_si512();
        }
        for (int64_t step = 0; step < steps; step++)
            for (int64_t p = 0; p < FOURS; p++) {
                const unsigned char *fours = b + step * BLOCK_BYTES + p * LINE_BYTES;
                const unsigned char *a_rows = a + step * BLOCK_BYTES + row * ROW_BYTES;
                __m512i b_low = _mm512_load_si512(fours);
                __m512i b_high = _mm512_load_si512(fours + TILE_BYTES);
#pragma GCC unroll 8
                for (int r = 0; r < ROWS; r++) {
                    __m512i four = four_of(a_rows + r * ROW_BYTES, p);
                    low[r] = _mm512_dpbusd_epi32(low[r], b_low, four);
                    high[r] = _mm512_dpbusd_epi32(high[r], b_high, four);
                }
            }
        for (int r = 0; r < ROWS; r++) {
            _mm512_store_si512(to + r * GEMM_EDGE, low[r]);
            _mm512_store_si512(to + r * GEMM_EDGE + 16, high[r]);
        }
        if (from)
            from += ROWS * GEMM_EDGE;
    }
}

const struct gemm_kernel gemm_kernel_int8 = {
    .block_bytes = BLOCK_BYTES, .chunk_bytes = 16 << 10, .pack = pack, .product = product};

bool int8_vnni_is_there(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512vnni");
}
#endif
