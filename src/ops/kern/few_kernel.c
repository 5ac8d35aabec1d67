/* Sums of a tile for a few rows of A and 32 columns of B, stored [n, k]: B is turned in registers
 * and used at once, since packing it would cost more than the product. */
#include "ops/gemm_kernel.h"
#include "ops/kern/attention_vector.h"
#include "ops/kernels.h"

#if defined(__AVX512F__)
#include "ops/gemm_transpose.h"
#endif

/* B is turned by cache lines: of each of 32 columns 16 words, which hold one element or more. */
enum {
    EDGE = GEMM_EDGE,
    WORDS = 16,
    LINE = WORDS * 4, /* bytes */
    VECTORS = EDGE / LANES,
    TOGETHER = 4 /* rows whose sums are in registers */
};

/* Word p of LANES columns in words[v][p]. */
static inline void words_turn(const unsigned char *b, int64_t ld, vec_int words[VECTORS][WORDS])
{
#if defined(__AVX512F__)
    for (int v = 0; v < VECTORS; v++) {
        __m512i t[LANES];
        for (int p = 0; p < WORDS; p += 4)
            gemm_transpose_quad(b + v * LANES * ld + p * 4, ld, t + p);
        for (int p = 0; p < WORDS; p++)
            words[v][p] = (vec_int)t[p];
    }
#elif defined(__AVX2__)
    for (int i = 0; i < VECTORS * 2; i++) {
        const unsigned char *from = b + i / 2 * LANES * ld + i % 2 * (LINE / 2);
        vec_int *to = words[i / 2] + i % 2 * LANES;
        __m256i r[LANES], t[LANES];
        for (int c = 0; c < LANES; c++)
            r[c] = _mm256_loadu_si256((const void *)(from + c * ld));
        for (int c = 0; c < LANES; c += 2) {
            t[c] = _mm256_unpacklo_epi32(r[c], r[c + 1]);
            t[c + 1] = _mm256_unpackhi_epi32(r[c], r[c + 1]);
        }
        for (int c = 0; c < LANES; c += 4)
            for (int j = 0; j < 2; j++) {
                r[c + 2 * j] = _mm256_unpacklo_epi64(t[c + j], t[c + 2 + j]);
                r[c + 2 * j + 1] = _mm256_unpackhi_epi64(t[c + j], t[c + 2 + j]);
            }
        for (int p = 0; p < 4; p++) {
            to[p] = (vec_int)_mm256_permute2x128_si256(r[p], r[4 + p], 0x20);
            to[4 + p] = (vec_int)_mm256_permute2x128_si256(r[p], r[4 + p], 0x31);
        }
    }
#else
    for (int c = 0; c < EDGE; c++) {
        int32_t word[WORDS];
        memcpy(word, b + c * ld, sizeof word);
        for (int p = 0; p < WORDS; p++)
            words[c / LANES][p][c % LANES] = word[p];
    }
#endif
}

/* Element i of each word as float32: x86-64 and AArch64 keep the lowest bytes first. */
static inline vec element_of(enum ls_dtype type, vec_int words, int i)
{
    if (type == LS_I8)
        return __builtin_convertvector((words << (24 - 8 * i)) >> 24, vec);
    if (type == LS_BF16)
        return (vec)(i == 0 ? words << 16 : words & -65536);
    if (type == LS_F32)
        return (vec)words;
    words = i == 0 ? words & 65535 : (words >> 16) & 65535;
#if defined(__AVX512F__)
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16((__m512i)words));
#elif defined(__F16C__)
    __m256i all = (__m256i)words;
    return _mm256_cvtph_ps(
        _mm_packus_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1)));
#else
    vec value;
    for (int lane = 0; lane < LANES; lane++)
        value[lane] = ls_f16_to_f32((ls_f16)words[lane]);
    return value;
#endif
}

/* What is constant where it is inlined. */
struct form {
    enum ls_dtype type; /* of B */
    bool pairs;
    int each, words; /* elements in a word; words of a step, or of a line where that is less */
};
#define INLINE static inline __attribute__((always_inline))

/* The elements of form.words words of two vectors of columns, on to sums. */
INLINE void step_sums(struct form form, int rows, const float *a, int64_t lda, const vec_int *low,
                      const vec_int *high, float *sums)
{
    vec chain[2][TOGETHER][2]; /* of all k, or of even and of odd k */
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < 2; v++) {
            chain[0][r][v] = form.pairs ? vec_set(0) : vec_load(sums + r * EDGE + v * LANES);
            chain[1][r][v] = vec_set(0);
        }
    for (int p = 0; p < form.words; p++)
#pragma GCC unroll 4
        for (int i = 0; i < form.each; i++) {
            vec b_low = element_of(form.type, low[p], i),
                b_high = element_of(form.type, high[p], i);
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++) {
                vec *to = chain[form.pairs && i % 2][r],
                    x = vec_set(a[r * lda + p * form.each + i]);
                to[0] = vec_fma(x, b_low, to[0]);
                to[1] = vec_fma(x, b_high, to[1]);
            }
        }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < 2; v++) {
            float *place = sums + r * EDGE + v * LANES;
            vec sum = chain[0][r][v];
            if (form.pairs)
                sum = vec_load(place) + (sum + chain[1][r][v]);
            vec_store(place, sum);
        }
}

/* The tile for `rows` rows (a constant) of the product's. */
INLINE void rows_sums(struct form form, int rows, const float *a, int64_t lda,
                      vec_int words[VECTORS][WORDS], int64_t k, float *sums)
{
    for (int64_t at = 0; at < k; at += form.words * form.each)
        for (int v = 0; v < VECTORS; v += 2)
            step_sums(form, rows, a + at, lda, words[v] + at / form.each,
                      words[v + 1] + at / form.each, sums + v * LANES);
}

INLINE void tile_sums(struct form form, const struct gemm_few *few, float *sums)
{
    unsigned char block[EDGE][LINE];
    const int64_t line = WORDS * form.each, size = 4 / form.each;
    const int64_t whole = ls_round_up(few->k, EDGE), ld = few->ldb * size;
    for (int64_t at = 0; at < whole; at += line) {
        vec_int words[VECTORS][WORDS];
        const unsigned char *b = (const unsigned char *)few->b + at * size;
        if (few->columns < EDGE || few->k - at < line) {
            memset(block, 0, sizeof block);
            for (int64_t c = 0; c < few->columns && at < few->k; c++)
                memcpy(block[c], b + c * ld, (size_t)(ls_min(line, few->k - at) * size));
            words_turn(block[0], LINE, words);
        } else {
            gemm_few_fetch(few, at, line, b, ld);
            words_turn(b, ld, words);
        }
        int64_t row = 0, k = ls_min(line, whole - at);
        const float *a = (const float *)few->a + at;
        for (; row + TOGETHER <= few->rows; row += TOGETHER)
            rows_sums(form, TOGETHER, a + row * few->lda, few->lda, words, k, sums + row * EDGE);
        a += row * few->lda;
        float *rest = sums + row * EDGE;
        switch (few->rows - row) {
        case 3:
            rows_sums(form, 3, a, few->lda, words, k, rest);
            break;
        case 2:
            rows_sums(form, 2, a, few->lda, words, k, rest);
            break;
        case 1:
            rows_sums(form, 1, a, few->lda, words, k, rest);
            break;
        default:
            break;
        }
    }
}

static void few_sums(const struct gemm_few *few, float *sums)
{
    if (few->type == LS_I8 && few->pairs)
        tile_sums((struct form){LS_I8, true, 4, 8}, few, sums);
    else if (few->type == LS_I8)
        tile_sums((struct form){LS_I8, false, 4, 8}, few, sums);
    else if (few->type == LS_BF16 && few->pairs)
        tile_sums((struct form){LS_BF16, true, 2, 16}, few, sums);
    else if (few->type == LS_BF16)
        tile_sums((struct form){LS_BF16, false, 2, 16}, few, sums);
    else if (few->type == LS_F16)
        tile_sums((struct form){LS_F16, false, 2, 16}, few, sums);
    else
        tile_sums((struct form){LS_F32, false, 1, 16}, few, sums);
}

const struct few_kernels KERNEL(few_kernels) = {.sums = few_sums};
