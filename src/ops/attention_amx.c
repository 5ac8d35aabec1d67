/* Attention in the arithmetic bf16_pairs on AMX tiles; see kern/attention_pairs.h.
 *
 * A tile holds 16 rows of 64 bytes. */
/* cflags: -mavx512dq -mavx512vl -mavx512bw -mavx512bf16 -mfma -mamx-tile -mamx-bf16 */
#include "ops/attention_kernel.h"

#if defined(__x86_64__)
#include "ops/gemm_transpose.h"

typedef __m512i half_row;
#include "ops/kern/attention_pairs.h"

/* ---- products ---- */

static void tiles_begin(void)
{
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } config __attribute__((aligned(64))) = {.palette = 1};
    for (int t = 0; t < 8; t++) {
        config.row_bytes[t] = 64;
        config.rows[t] = 16;
    }
    /* gcc's intrinsic claims to read 8 of the 64 bytes. */
    __asm__ volatile("" : : "r"(&config) : "memory");
    _tile_loadconfig(&config);
}

static void tiles_end(void)
{
    _tile_release();
}

/* gcc's tile loads do not tell the compiler that they read memory. */
static inline void memory_barrier(void)
{
    __asm__ volatile("" ::: "memory");
}

/* Four sums in tiles 0 to 3: two tiles of rows times two of columns, `depth` a multiple of 32. */
static inline void tiles_multiply(int64_t depth, const ls_bf16 *a, int64_t lda, const ls_bf16 *b,
                                  int64_t ldb)
{
    for (int64_t k = 0; k < depth; k += 32) {
        _tile_loadd(4, a + k, lda * 2);
        _tile_loadd(5, a + 16 * lda + k, lda * 2);
        _tile_loadd(6, b + k / 2 * ldb, ldb * 2);
        _tile_loadd(7, b + k / 2 * ldb + 32, ldb * 2);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
}

static inline __attribute__((always_inline)) void multiply(int64_t rows, int64_t columns,
                                                           int64_t depth, struct operand a,
                                                           struct operand b, struct result c,
                                                           struct attention_ahead *ahead)
{
    const int64_t row = c.ld * (int64_t)sizeof(float);
    memory_barrier();
    for (int64_t n = 0; n < columns; n += 32)
        for (int64_t m = 0; m < rows; m += 32) {
            float *c0 = c.at + m * c.ld + n, *c2 = c0 + 16 * c.ld;
            if (c.add) {
                _tile_loadd(0, c0, row);
                _tile_loadd(1, c0 + 16, row);
                _tile_loadd(2, c2, row);
                _tile_loadd(3, c2 + 16, row);
            } else {
                _tile_zero(0);
                _tile_zero(1);
                _tile_zero(2);
                _tile_zero(3);
            }
            tiles_multiply(depth, (const ls_bf16 *)a.at + m * a.ld, a.ld,
                           (const ls_bf16 *)b.at + 2 * n, b.ld);
            _tile_stored(0, c0, row);
            _tile_stored(1, c0 + 16, row);
            _tile_stored(2, c2, row);
            _tile_stored(3, c2 + 16, row);
            attention_ahead(ahead, AHEAD_ROWS);
        }
    memory_barrier();
}

/* ---- panels ---- */

/* 32 elements of row i from d on, zero past D or past the last row. */
static inline __m512i row_load(const struct attention_shape *shape,
                               const struct attention_rows *rows, int64_t i, int64_t d)
{
    int64_t left = i < rows->count ? ls_min(32, shape->dim - d) : 0;
    if (left <= 0)
        return _mm512_setzero_si512();
    __mmask32 mask = (__mmask32)((1ull << left) - 1);
    return _mm512_maskz_loadu_epi16(mask, (const ls_bf16 *)rows->at + i * rows->ld + d);
}

/* 16 rows from i on, 32 elements from d on: lane i of out[r] is the pair of elements d + 2r and
 * d + 2r + 1 of row i. */
static inline __attribute__((always_inline)) void pairs_load(const struct attention_shape *shape,
                                                             const struct attention_rows *rows,
                                                             int64_t i, int64_t d, __m512i out[16])
{
#pragma GCC unroll 16
    for (int r = 0; r < 16; r++)
        out[r] = row_load(shape, rows, i + r, d);
    gemm_transpose_words(out);
}

static void pack_left(const struct attention_shape *shape, const struct attention_rows *rows,
                      ls_bf16 *panel)
{
    for (int64_t i = 0; i < BLOCK; i++)
        for (int64_t d = 0; d < shape->padded; d += 32)
            _mm512_storeu_si512(panel + i * shape->padded + d, row_load(shape, rows, i, d));
}

static void pack_left_turned(const struct attention_shape *shape, const struct attention_rows *rows,
                             ls_bf16 *panel)
{
    const __m512i even =
        _mm512_set_epi16(62, 60, 58, 56, 54, 52, 50, 48, 46, 44, 42, 40, 38, 36, 34, 32, 30, 28, 26,
                         24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    const __m512i odd = _mm512_add_epi16(even, _mm512_set1_epi16(1));
    for (int64_t d = 0; d < shape->padded; d += 32)
        for (int64_t i = 0; i < BLOCK; i += 32) {
            __m512i low[16], high[16];
            pairs_load(shape, rows, i, d, low);
            pairs_load(shape, rows, i + 16, d, high);
            ls_bf16 *to = panel + d * BLOCK + i;
            for (int r = 0; r < 16; r++, to += 2 * BLOCK) {
                _mm512_storeu_si512(to, _mm512_permutex2var_epi16(low[r], even, high[r]));
                _mm512_storeu_si512(to + BLOCK, _mm512_permutex2var_epi16(low[r], odd, high[r]));
            }
        }
}

static void pack_right_columns(const struct attention_shape *shape,
                               const struct attention_rows *rows, ls_bf16 *panel)
{
    for (int64_t d = 0; d < shape->padded; d += 32)
        for (int64_t i = 0; i < BLOCK; i += 16) {
            __m512i pairs[16];
            pairs_load(shape, rows, i, d, pairs);
            for (int r = 0; r < 16; r++)
                _mm512_storeu_si512(panel + (d / 2 + r) * 2 * BLOCK + 2 * i, pairs[r]);
        }
}

/* Rows a and b, 32 columns each, become 32 pairs. */
static inline void pairs_store(ls_bf16 *to, __m512i a, __m512i b)
{
    const __m512i first =
        _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6,
                         37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    const __m512i second = _mm512_add_epi16(first, _mm512_set1_epi16(16));
    _mm512_storeu_si512(to, _mm512_permutex2var_epi16(a, first, b));
    _mm512_storeu_si512(to + 32, _mm512_permutex2var_epi16(a, second, b));
}

static void pack_right_rows(const struct attention_shape *shape, const struct attention_rows *rows,
                            ls_bf16 *panel)
{
    for (int64_t i = 0; i < BLOCK; i += 2)
        for (int64_t d = 0; d < shape->padded; d += 32)
            pairs_store(panel + i * shape->padded + 2 * d, row_load(shape, rows, i, d),
                        row_load(shape, rows, i + 1, d));
}

static inline __m512 widen(__m256i x)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}

static void pack_delta(const struct attention_shape *shape, const struct attention_rows *o,
                       const struct attention_rows *d_o, float *delta)
{
    for (int64_t i = 0; i < BLOCK; i++) {
        __m512 low = _mm512_setzero_ps(), high = low;
        for (int64_t d = 0; d < shape->dim; d += 32) {
            __m512i x = row_load(shape, o, i, d), y = row_load(shape, d_o, i, d);
            low = _mm512_fmadd_ps(widen(_mm512_castsi512_si256(x)),
                                  widen(_mm512_castsi512_si256(y)), low);
            high = _mm512_fmadd_ps(widen(_mm512_extracti64x4_epi64(x, 1)),
                                   widen(_mm512_extracti64x4_epi64(y, 1)), high);
        }
        delta[i] = _mm512_reduce_add_ps(low + high);
    }
}

/* 16 elements, d on, of row i of out. */
static inline void row_store(const struct attention_shape *shape, const struct attention_rows *out,
                             int64_t i, int64_t d, __m512 x)
{
    __mmask16 mask = (__mmask16)((1u << ls_min(16, shape->dim - d)) - 1);
    _mm256_mask_storeu_epi16((ls_bf16 *)out->at + i * out->ld + d, mask,
                             (__m256i)_mm512_cvtneps_pbh(x));
}

static void store_rows(const struct attention_shape *shape, const float *sum, float factor,
                       const struct attention_rows *out)
{
    for (int64_t i = 0; i < out->count; i++)
        for (int64_t d = 0; d < shape->dim; d += 16)
            row_store(shape, out, i, d, vec_load(sum + i * shape->padded + d) * vec_set(factor));
}

static void columns_store(const struct attention_shape *shape, const float *sum,
                          const float factor[BLOCK], const struct attention_rows *out)
{
    for (int64_t i = 0; i < out->count; i += 16)
        for (int64_t d = 0; d < shape->dim; d += 16) {
            __m512i tile[16];
#pragma GCC unroll 16
            for (int r = 0; r < 16; r++)
                tile[r] = (__m512i)(vec_load(sum + (d + r) * BLOCK + i) * vec_load(factor + i));
            gemm_transpose_words(tile);
            for (int r = 0; r < ls_min(16, out->count - i); r++)
                row_store(shape, out, i + r, d, (__m512)tile[r]);
        }
}

/* ---- rounding ---- */

static inline half_row round_half(const vec values[PARTS])
{
    return (__m512i)_mm512_cvtne2ps_pbh(values[1], values[0]);
}

static inline void half_store(half_row row, ls_bf16 *to)
{
    _mm512_storeu_si512(to, row);
}

static inline void half_pairs(half_row a, half_row b, ls_bf16 *to)
{
    pairs_store(to, a, b);
}

const struct attention_kernel attention_kernel_amx = {
    ATTENTION_PAIRS,
    .begin = tiles_begin,
    .end = tiles_end,
};
#endif
