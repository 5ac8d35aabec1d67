/* Rows made int8, and sums of products of int8 on each instruction set. */
#include "ops/kernels.h"

#include "ops/kern/block.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif
#include <math.h>

/* ---- rounding to int8 ------------------------------------------------------------------------ */

/* The largest absolute value as an integer, which orders floats without their sign; one that is not
 * finite is larger than all others. */
static uint32_t largest(const float *x, int64_t n)
{
    uint32_t most = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        bits &= 0x7fffffffu;
        most = bits > most ? bits : most;
    }
    return most;
}

/* Adding and taking away 1.5 x 2^23 rounds to a whole number, halves to even. */
static void round_to(const float *x, int64_t n, float inverse, int8_t *q)
{
    const float whole = 0x1.8p23f;
    for (int64_t i = 0; i < n; i++)
        q[i] = (int8_t)(int32_t)((x[i] * inverse + whole) - whole);
}

/* x[n] in blocks, each widened; the scale is NaN if x is not finite. */
static float quantize(enum ls_dtype act, int64_t n, const void *x, int64_t from, int8_t *q)
{
    float buffer[BLOCK], most;
    uint32_t bits = 0;
    for (int64_t at = 0; at < n; at += BLOCK) {
        int64_t count = block_length(at, n);
        uint32_t here = largest(block_read(act, x, from + at, count, buffer), count);
        bits = here > bits ? here : bits;
    }
    memcpy(&most, &bits, sizeof most);
    if (bits >= 0x7f800000u || most < 0x1p-100f) {
        memset(q, 0, (size_t)n);
        return bits >= 0x7f800000u ? NAN : 0;
    }
    for (int64_t at = 0; at < n; at += BLOCK) {
        int64_t count = block_length(at, n);
        round_to(block_read(act, x, from + at, count, buffer), count, LS_INT8_MOST / most, q + at);
    }
    return most / LS_INT8_MOST;
}

/* ---- sums of int8 ---------------------------------------------------------------------------- */

static int32_t sum_of(int64_t n, const int8_t *q)
{
    int32_t sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += q[i];
    return sum;
}

#if defined(__AVX512BW__)
typedef __m512i words;
enum { STEP = 32 };
static inline words words_of(const int8_t *x)
{
    return _mm512_cvtepi8_epi16(_mm256_loadu_si256((const void *)x));
}
static inline words words_add(words sum, words a, words b)
{
    return _mm512_add_epi32(sum, _mm512_madd_epi16(a, b));
}
static inline int32_t words_sum(words sum)
{
    return _mm512_reduce_add_epi32(sum);
}
#elif defined(__AVX2__)
typedef __m256i words;
enum { STEP = 16 };
static inline words words_of(const int8_t *x)
{
    return _mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)x));
}
static inline words words_add(words sum, words a, words b)
{
    return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
}
static inline int32_t words_sum(words sum)
{
    __m128i half = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
    half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0x4e));
    half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0xb1));
    return _mm_cvtsi128_si32(half);
}
#else
typedef struct {
    int32_t lane[8];
} words;
enum { STEP = 8 };
static inline words words_of(const int8_t *x)
{
    words w;
    for (int i = 0; i < STEP; i++)
        w.lane[i] = x[i];
    return w;
}
static inline words words_add(words sum, words a, words b)
{
    for (int i = 0; i < STEP; i++)
        sum.lane[i] += a.lane[i] * b.lane[i];
    return sum;
}
static inline int32_t words_sum(words sum)
{
    int32_t all = 0;
    for (int i = 0; i < STEP; i++)
        all += sum.lane[i];
    return all;
}
#endif

/* One row of A against four of B. */
static void row_dots(const int8_t *a, const int8_t *b, int64_t ldb, int64_t k, int32_t *sums)
{
    words sum[INT8_EDGE];
    memset(sum, 0, sizeof sum);
    int64_t i = 0;
    for (; i + STEP <= k; i += STEP) {
        words x = words_of(a + i);
        for (int c = 0; c < INT8_EDGE; c++)
            sum[c] = words_add(sum[c], x, words_of(b + c * ldb + i));
    }
    for (int c = 0; c < INT8_EDGE; c++) {
        sums[c] = words_sum(sum[c]);
        for (int64_t rest = i; rest < k; rest++)
            sums[c] += (int32_t)a[rest] * b[c * ldb + rest];
    }
}

static void dots(const int8_t *a, int64_t lda, int64_t rows, const int8_t *b, int64_t ldb,
                 int64_t k, int32_t sums[INT8_EDGE * INT8_EDGE])
{
    for (int64_t r = 0; r < rows; r++)
        row_dots(a + r * lda, b, ldb, k, sums + r * INT8_EDGE);
}

const struct int8_kernels KERNEL(int8_kernels) = {
    .quantize = quantize,
    .sum = sum_of,
    .dots = dots,
};
