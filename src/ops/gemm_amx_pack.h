/* ops/gemm_amx_pack.h - operands in the form that the AMX tile product reads.
 *
 * A block is 32 rows (of A) or columns (of B) by 32 of the contraction, 2 KiB: two tiles of 1 KiB,
 * each of 16 rows of 64 bytes. A tile of A is 16 rows of 32 values along k. A tile of B is 16 pairs
 * along k by 16 columns: row p holds b[2p][c], b[2p + 1][c] for c = 0..15 (the "VNNI" form). A
 * panel is the blocks of one group of 32, one after the other along k.
 *
 * What lies outside the matrix is zero, so the last block is computed as every other.
 */
#ifndef OPS_GEMM_AMX_PACK_H
#define OPS_GEMM_AMX_PACK_H

#include <immintrin.h>
#include <lockstep/base.h>

enum { AMX_EDGE = 32, AMX_BLOCK_BYTES = 2048, AMX_TILE_BYTES = 1024 };

static inline __mmask32 amx_mask(int64_t count)
{
    return count >= 32 ? 0xffffffffu : count <= 0 ? 0 : (1u << count) - 1;
}

/* 16 x 16 transpose of 32-bit words, in place. */
static inline __attribute__((always_inline)) void amx_transpose(__m512i r[16])
{
    __m512i t[16];
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    /* r[4g + c] holds, in 128-bit lane l, words 4g..4g+3 of column 4l + c. */
    for (int c = 0; c < 4; c++) {
        t[c] = _mm512_shuffle_i32x4(r[c], r[4 + c], 0x88);
        t[4 + c] = _mm512_shuffle_i32x4(r[c], r[4 + c], 0xdd);
        t[8 + c] = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0x88);
        t[12 + c] = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0xdd);
    }
    for (int c = 0; c < 4; c++) {
        r[c] = _mm512_shuffle_i32x4(t[c], t[8 + c], 0x88);
        r[8 + c] = _mm512_shuffle_i32x4(t[c], t[8 + c], 0xdd);
        r[4 + c] = _mm512_shuffle_i32x4(t[4 + c], t[12 + c], 0x88);
        r[12 + c] = _mm512_shuffle_i32x4(t[4 + c], t[12 + c], 0xdd);
    }
}

/* A stored [rows, k]: rows of the source are rows of the tile. */
static inline void amx_pack_copy(unsigned char *block, const ls_bf16 *x, int64_t ld, int64_t rows,
                                 int64_t k)
{
    __mmask32 mask = amx_mask(k);
    for (int64_t r = 0; r < 32; r++) {
        __m512i v = r < rows ? _mm512_maskz_loadu_epi16(mask, x + r * ld) : _mm512_setzero_si512();
        _mm512_store_si512(block + r * 64, v);
    }
}

/* B stored [columns, k]. */
static inline void amx_pack_transpose(unsigned char *block, const ls_bf16 *x, int64_t ld,
                                      int64_t columns, int64_t k)
{
    __mmask32 mask = amx_mask(k);
    for (int64_t half = 0; half < 2; half++) {
        __m512i v[16];
        for (int64_t c = 0; c < 16; c++)
            v[c] = half * 16 + c < columns
                       ? _mm512_maskz_loadu_epi16(mask, x + (half * 16 + c) * ld)
                       : _mm512_setzero_si512();
        amx_transpose(v);
        for (int64_t p = 0; p < 16; p++)
            _mm512_store_si512(block + half * AMX_TILE_BYTES + p * 64, v[p]);
    }
}

/* Rows 2p and 2p + 1 of a source stored [k, columns], as pairs: low holds columns 0..15,
 * high 16..31. */
static inline __attribute__((always_inline)) void amx_pairs(const ls_bf16 *x, int64_t ld, int64_t p,
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
static inline void amx_pack_pairs(unsigned char *block, const ls_bf16 *x, int64_t ld,
                                  int64_t columns, int64_t k)
{
    __mmask32 mask = amx_mask(columns);
    for (int64_t p = 0; p < 16; p++) {
        __m512i low, high;
        amx_pairs(x, ld, p, k, mask, &low, &high);
        _mm512_store_si512(block + p * 64, low);
        _mm512_store_si512(block + AMX_TILE_BYTES + p * 64, high);
    }
}

/* A stored [k, rows]. */
static inline void amx_pack_pairs_transpose(unsigned char *block, const ls_bf16 *x, int64_t ld,
                                            int64_t rows, int64_t k)
{
    __mmask32 mask = amx_mask(rows);
    __m512i low[16], high[16];
    for (int64_t p = 0; p < 16; p++)
        amx_pairs(x, ld, p, k, mask, &low[p], &high[p]);
    amx_transpose(low);
    for (int64_t r = 0; r < 16; r++)
        _mm512_store_si512(block + r * 64, low[r]);
    amx_transpose(high);
    for (int64_t r = 0; r < 16; r++)
        _mm512_store_si512(block + AMX_TILE_BYTES + r * 64, high[r]);
}

#endif
