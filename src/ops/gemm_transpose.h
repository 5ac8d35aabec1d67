/* ops/gemm_transpose.h - transposes of words in registers. Needs AVX-512. */
#ifndef OPS_GEMM_TRANSPOSE_H
#define OPS_GEMM_TRANSPOSE_H

#include <immintrin.h>
#include <stdint.h>

/* 16 x 16 transpose of 32-bit words, in place. */
static inline __attribute__((always_inline)) void gemm_transpose_words(__m512i r[16])
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

/* Four words of each of 16 lines, `line` bytes apart: r[i] holds word i of each. A load puts what a
 * line has where it belongs, which takes none of the few units that shuffle. */
static inline __attribute__((always_inline)) void gemm_transpose_quad(const unsigned char *lines,
                                                                      int64_t line, __m512i r[4])
{
    __m512i x[4], t[4];
    for (int c = 0; c < 4; c++) { /* 128-bit lane l: of line 4l + c */
        const unsigned char *from = lines + c * line;
        x[c] = _mm512_castsi128_si512(_mm_loadu_si128((const void *)from));
        for (int l = 1; l < 4; l++)
            x[c] =
                _mm512_mask_broadcast_i32x4(x[c], (__mmask16)(15 << 4 * l),
                                            _mm_loadu_si128((const void *)(from + 4 * l * line)));
    }
    for (int c = 0; c < 4; c += 2) {
        t[c] = _mm512_unpacklo_epi32(x[c], x[c + 1]);
        t[c + 1] = _mm512_unpackhi_epi32(x[c], x[c + 1]);
    }
    for (int half = 0; half < 2; half++) {
        r[2 * half] = _mm512_unpacklo_epi64(t[half], t[half + 2]);
        r[2 * half + 1] = _mm512_unpackhi_epi64(t[half], t[half + 2]);
    }
}

#endif
