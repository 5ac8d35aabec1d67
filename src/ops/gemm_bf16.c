/* bf16 operands packed for AMX and AVX512_BF16, and the product on the latter. */
/* cflags: -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512bf16 -mfma -O3 */
#include "ops/gemm_bf16.h"

#if defined(__x86_64__)
#include <string.h>

#include "ops/gemm_transpose.h"

static inline __mmask32 mask_of(int64_t count)
{
    return count >= 32 ? 0xffffffffu : count <= 0 ? 0 : (1u << count) - 1;
}

/* A stored [rows, k]: rows of the source are rows of the tile. */
static void pack_copy(unsigned char *block, const ls_bf16 *x, int64_t ld, int64_t rows, int64_t k)
{
    __mmask32 mask = mask_of(k);
    for (int64_t r = 0; r < 32; r++) {
        __m512i v = r < rows ? _mm512_maskz_loadu_epi16(mask, x + r * ld) : _mm512_setzero_si512();
        _mm512_store_si512(block + r * BF16_ROW_BYTES, v);
    }
}

/* 32 int8 as bf16, which holds each of them. */
static inline __m512i bf16_of_int8(__m256i q)
{
    __m512 low = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm256_castsi256_si128(q)));
    __m512 high = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm256_extracti128_si256(q, 1)));
    return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

/* B stored [columns, k]; of int8 where is_int8, a constant where this is inlined. */
static inline __attribute__((always_inline)) void pack_transpose(unsigned char *block,
                                                                 const void *x, bool is_int8,
                                                                 int64_t ld, int64_t columns,
                                                                 int64_t k)
{
    __mmask32 mask = mask_of(k);
    for (int64_t half = 0; half < 2; half++) {
        __m512i v[16];
        for (int64_t c = 0; c < 16; c++) {
            int64_t at = (half * 16 + c) * ld;
            if (half * 16 + c >= columns)
                v[c] = _mm512_setzero_si512();
            else if (is_int8)
                v[c] = bf16_of_int8(_mm256_maskz_loadu_epi8(mask, (const int8_t *)x + at));
            else
                v[c] = _mm512_maskz_loadu_epi16(mask, (const ls_bf16 *)x + at);
        }
        gemm_transpose_words(v);
        for (int64_t p = 0; p < 16; p++)
            _mm512_store_si512(block + half * BF16_TILE_BYTES + p * BF16_ROW_BYTES, v[p]);
    }
}

/* Rows 2p and 2p + 1 of a source stored [k, columns], as pairs: low holds columns 0..15,
 * high 16..31. */
static inline __attribute__((always_inline)) void pairs(const ls_bf16 *x, int64_t ld, int64_t p,
                                                        int64_t k, __mmask32 mask, __m512i *low,
                                                        __m512i *high)
{
    const __m512i low_lanes = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
    const __m512i high_lanes = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
    __m512i zero = _mm512_setzero_si512();
    __m512i even = 2 * p < k ? _mm512_maskz_loadu_epi16(mask, x + 2 * p * ld) : zero;
    __m512i odd = 2 * p + 1 < k ? _mm512_maskz_loadu_epi16(mask, x + (2 * p + 1) * ld) : zero;
    __m512i first = _mm512_unpacklo_epi16(even, odd);
    __m512i second = _mm512_unpackhi_epi16(even, odd);
    *low = _mm512_permutex2var_epi64(first, low_lanes, second);
    *high = _mm512_permutex2var_epi64(first, high_lanes, second);
}

/* B stored [k, columns]. */
static void pack_pairs(unsigned char *block, const ls_bf16 *x, int64_t ld, int64_t columns,
                       int64_t k)
{
    __mmask32 mask = mask_of(columns);
    for (int64_t p = 0; p < 16; p++) {
        __m512i low, high;
        pairs(x, ld, p, k, mask, &low, &high);
        _mm512_store_si512(block + p * BF16_ROW_BYTES, low);
        _mm512_store_si512(block + BF16_TILE_BYTES + p * BF16_ROW_BYTES, high);
    }
}

/* A stored [k, rows]. */
static void pack_pairs_transpose(unsigned char *block, const ls_bf16 *x, int64_t ld, int64_t rows,
                                 int64_t k)
{
    __mmask32 mask = mask_of(rows);
    __m512i low[16], high[16];
    for (int64_t p = 0; p < 16; p++)
        pairs(x, ld, p, k, mask, &low[p], &high[p]);
    gemm_transpose_words(low);
    for (int64_t r = 0; r < 16; r++)
        _mm512_store_si512(block + r * BF16_ROW_BYTES, low[r]);
    gemm_transpose_words(high);
    for (int64_t r = 0; r < 16; r++)
        _mm512_store_si512(block + BF16_TILE_BYTES + r * BF16_ROW_BYTES, high[r]);
}

void bf16_pack(struct gemm_form form, const void *x, int64_t ld, int64_t edge, int64_t k,
               unsigned char *block)
{
    if (form.dtype == LS_I8)
        pack_transpose(block, x, true, ld, edge, k);
    else if (form.is_b && form.k_contiguous)
        pack_transpose(block, x, false, ld, edge, k);
    else if (form.is_b)
        pack_pairs(block, x, ld, edge, k);
    else if (form.k_contiguous)
        pack_copy(block, x, ld, edge, k);
    else
        pack_pairs_transpose(block, x, ld, edge, k);
}

/* ---- the product on AVX512_BF16 -------------------------------------------------------------- */

/* VDPBF16PS adds the product of the second of each pair first, then that of the first, each by a
 * fused multiply-add: pairs the other way round make it one chain in ascending k. */
static void pack_swapped(struct gemm_form form, const void *x, int64_t ld, int64_t edge, int64_t k,
                         unsigned char *block)
{
    bf16_pack(form, x, ld, edge, k, block);
    for (int64_t at = 0; at < BF16_BLOCK_BYTES; at += BF16_ROW_BYTES)
        _mm512_store_si512(block + at, _mm512_rol_epi32(_mm512_load_si512(block + at), 16));
}

/* A pair of A's row, in every place. */
static inline __m512bh pair_of(const unsigned char *row, int64_t pair)
{
    int32_t word;
    memcpy(&word, row + pair * 4, sizeof word);
    return (__m512bh)_mm512_set1_epi32(word);
}

/* Eight rows by 32 columns in registers, through all of k, ascending. */
static void product(const unsigned char *a, const unsigned char *b, int64_t rows, int64_t steps,
                    const float *from, float *to, struct gemm_ahead ahead)
{
    enum { ROWS = 8 };
    gemm_fetch(ahead, 1, 0);
    for (int64_t row = 0; row < rows; row += ROWS, to += ROWS * GEMM_EDGE) {
        const unsigned char *a_rows = a + row / 16 * BF16_TILE_BYTES + row % 16 * BF16_ROW_BYTES;
        __m512 low[ROWS], high[ROWS];
        for (int r = 0; r < ROWS; r++) {
            low[r] = from ? _mm512_load_ps(from + r * GEMM_EDGE) : _mm512_setzero_ps();
            high[r] = from ? _mm512_load_ps(from + r * GEMM_EDGE + 16) : _mm512_setzero_ps();
        }
        for (int64_t step = 0; step < steps; step++)
            for (int64_t p = 0; p < 16; p++) {
                const unsigned char *pairs = b + step * BF16_BLOCK_BYTES + p * BF16_ROW_BYTES;
                __m512bh b_low = (__m512bh)_mm512_load_si512(pairs);
                __m512bh b_high = (__m512bh)_mm512_load_si512(pairs + BF16_TILE_BYTES);
#pragma GCC unroll 8
                for (int r = 0; r < ROWS; r++) {
                    __m512bh pair =
                        pair_of(a_rows + step * BF16_BLOCK_BYTES + r * BF16_ROW_BYTES, p);
                    low[r] = _mm512_dpbf16_ps(low[r], pair, b_low);
                    high[r] = _mm512_dpbf16_ps(high[r], pair, b_high);
                }
            }
        for (int r = 0; r < ROWS; r++) {
            _mm512_store_ps(to + r * GEMM_EDGE, low[r]);
            _mm512_store_ps(to + r * GEMM_EDGE + 16, high[r]);
        }
        if (from)
            from += ROWS * GEMM_EDGE;
    }
}

/* ---- a few rows ------------------------------------------------------------------------------ */

enum { LINE = 32, TOGETHER = 8 };

/* `rows` rows (a constant) on by a line of 32 columns, `ld` bytes apart. Words are used as soon as
 * they are turned, in the order of k; their halves change places as pack_swapped has it. */
static inline __attribute__((always_inline)) void few_line(int rows, const int32_t *a, int64_t lda,
                                                           const unsigned char *b, int64_t ld,
                                                           __m512 sums[TOGETHER][2])
{
#pragma GCC unroll 4
    for (int64_t p = 0; p < 16; p += 4) {
        __m512i words[2][4];
        gemm_transpose_quad(b + p * 4, ld, words[0]);
        gemm_transpose_quad(b + p * 4 + 16 * ld, ld, words[1]);
#pragma GCC unroll 4
        for (int64_t i = 0; i < 4; i++) {
            __m512bh low = (__m512bh)_mm512_rol_epi32(words[0][i], 16);
            __m512bh high = (__m512bh)_mm512_rol_epi32(words[1][i], 16);
#pragma GCC unroll 8
            for (int r = 0; r < rows; r++) {
                __m512bh pair = (__m512bh)_mm512_set1_epi32(a[r * lda + p + i]);
                sums[r][0] = _mm512_dpbf16_ps(sums[r][0], pair, low);
                sums[r][1] = _mm512_dpbf16_ps(sums[r][1], pair, high);
            }
        }
    }
}

/* A line that B does not have all of, with zeros for the rest. */
static void few_copy(const struct gemm_few *few, int64_t at, ls_bf16 to[GEMM_EDGE][LINE])
{
    const ls_bf16 *b = (const ls_bf16 *)few->b + at;
    for (int64_t c = 0; c < GEMM_EDGE; c++) {
        __mmask32 mask = c < few->columns ? mask_of(few->k - at) : 0;
        _mm512_storeu_si512(to[c], _mm512_maskz_loadu_epi16(mask, b + c * few->ldb));
    }
}

static inline __attribute__((always_inline)) void few_rows(int rows, const struct gemm_few *few,
                                                           int64_t row, float *to)
{
    const int32_t *a = (const int32_t *)few->a + row * few->lda;
    const int64_t ld = few->ldb * (int64_t)sizeof(ls_bf16);
    ls_bf16 block[GEMM_EDGE][LINE];
    __m512 sums[TOGETHER][2];
    for (int r = 0; r < rows; r++)
        for (int half = 0; half < 2; half++)
            sums[r][half] = _mm512_loadu_ps(to + (row + r) * GEMM_EDGE + half * 16);
    for (int64_t at = 0; at < few->k; at += LINE) {
        const void *b = (const ls_bf16 *)few->b + at;
        bool whole = few->columns == GEMM_EDGE && few->k - at >= LINE;
        if (whole)
            gemm_few_fetch(few, at, LINE, b, ld);
        else
            few_copy(few, at, block);
        few_line(rows, a + at / 2, few->lda, whole ? b : block, whole ? ld : LINE * 2, sums);
    }
    for (int r = 0; r < rows; r++)
        for (int half = 0; half < 2; half++)
            _mm512_storeu_ps(to + (row + r) * GEMM_EDGE + half * 16, sums[r][half]);
}

void gemm_few_bf16(const struct gemm_few *few, float *sums)
{
    int64_t row = 0;
    for (; row + TOGETHER <= few->rows; row += TOGETHER)
        few_rows(TOGETHER, few, row, sums);
    switch (few->rows - row) {
#define ROWS(count)                                                                                \
    case count:                                                                                    \
        few_rows(count, few, row, sums);                                                           \
        break
        ROWS(7);
        ROWS(6);
        ROWS(5);
        ROWS(4);
        ROWS(3);
        ROWS(2);
        ROWS(1);
#undef ROWS
    default:
        break;
    }
}

const struct gemm_kernel gemm_kernel_bf16 = {.block_bytes = BF16_BLOCK_BYTES,
                                             .chunk_bytes = 16 << 10,
                                             .pack = pack_swapped,
                                             .product = product};
#endif
