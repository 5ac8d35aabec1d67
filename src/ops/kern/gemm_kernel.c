/* Matrix product, float32: one kernel per vector width and arithmetic, and what is done to finished
 * sums. Half operands, and int8, are widened when they are packed.
 *
 * A packed block is [32 of k][32 rows or columns] float32, the same for A and B. A product keeps
 * ROWS x (2 vectors) of C in registers and runs through k once: 32 k a step, fused multiply-adds
 * (plain C: kern/fma.h). */
#include <string.h>

#include "ops/gemm_kernel.h"
#include "ops/kern/half.h"

#if defined(__AVX512F__)
#include "ops/gemm_transpose.h"
#elif defined(__AVX2__)
#endif

#if defined(__AVX512F__)
enum { WIDTH = 16, ROWS = 12 };
#elif defined(__AVX2__)
enum { WIDTH = 8, ROWS = 4 };
#else
#include "ops/kern/fma.h"
#if defined(__aarch64__) /* 32 registers */
enum { WIDTH = FMA_LANES, ROWS = 8 };
#else
enum { WIDTH = FMA_LANES, ROWS = 4 };
#endif
#endif
enum { EDGE = GEMM_EDGE };

typedef float vec __attribute__((vector_size(WIDTH * 4), may_alias));
/* C may be of half type with an odd row distance: only 2-byte alignment is sure. */
typedef float vec_unaligned __attribute__((vector_size(WIDTH * 4), aligned(2), may_alias));
typedef uint32_t vec_u32 __attribute__((vector_size(WIDTH * 4), may_alias));
typedef int32_t vec_i32 __attribute__((vector_size(WIDTH * 4), may_alias));
typedef uint16_t vec_u16 __attribute__((vector_size(WIDTH * 2), aligned(2), may_alias));

static inline vec multiply_add(float a, vec b, vec c)
{
#if defined(__AVX512F__)
    return (vec)_mm512_fmadd_ps(_mm512_set1_ps(a), (__m512)b, (__m512)c);
#elif defined(__AVX2__)
    return (vec)_mm256_fmadd_ps(_mm256_set1_ps(a), (__m256)b, (__m256)c);
#else
    return fma_plain((vec){a, a, a, a}, b, c);
#endif
}

/* The same where a and b are bf16. */
static inline vec multiply_add_bf16(float a, vec b, vec c)
{
#if defined(__AVX2__)
    return multiply_add(a, b, c);
#else
    return fma_bf16((vec){a, a, a, a}, b, c);
#endif
}

/* Rows [row, row + rows) and two vectors of columns; rows is constant where this is inlined. */
static inline __attribute__((always_inline)) void rows_product(const float *a, const float *b,
                                                               int64_t length, const float *from,
                                                               float *to, int at, int rows)
{
    vec low[ROWS], high[ROWS];
    for (int r = 0; r < rows; r++) {
        low[r] = from ? *(const vec *)(from + at + r * EDGE) : (vec){0};
        high[r] = from ? *(const vec *)(from + at + r * EDGE + WIDTH) : (vec){0};
    }
    for (int64_t k = 0; k < length; k++) {
        vec b_low = *(const vec *)(b + k * EDGE), b_high = *(const vec *)(b + k * EDGE + WIDTH);
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++) {
            low[r] = multiply_add(a[k * EDGE + r], b_low, low[r]);
            high[r] = multiply_add(a[k * EDGE + r], b_high, high[r]);
        }
    }
    for (int r = 0; r < rows; r++) {
        *(vec *)(to + at + r * EDGE) = low[r];
        *(vec *)(to + at + r * EDGE + WIDTH) = high[r];
    }
}

static void product(const unsigned char *a_block, const unsigned char *b_block, int64_t rows,
                    int64_t steps, const float *from, float *to, struct gemm_ahead ahead)
{
    const float *a = (const float *)a_block, *b = (const float *)b_block;
    gemm_fetch(ahead, 1, 0);
    for (int column = 0; column < EDGE; column += 2 * WIDTH) {
        int row = 0;
        for (; row < rows && row + ROWS <= EDGE; row += ROWS)
            rows_product(a + row, b + column, steps * EDGE, from, to, row * EDGE + column, ROWS);
        if (row < rows && row < EDGE)
            rows_product(a + row, b + column, steps * EDGE, from, to, row * EDGE + column,
                         EDGE % ROWS);
    }
}

/* ---- the arithmetic bf16_pairs --------------------------------------------------------------- */

enum { PAIR_ROWS = ROWS / 2 };

/* One step of rows [row, row + rows) and two vectors of columns; rows is constant where this is
 * inlined. */
static inline __attribute__((always_inline)) void
rows_pairs(const float *a, const float *b, const float *from, float *to, int at, int rows)
{
    vec even[PAIR_ROWS][2], odd[PAIR_ROWS][2];
    for (int r = 0; r < rows; r++)
        even[r][0] = even[r][1] = odd[r][0] = odd[r][1] = (vec){0};
    for (int64_t k = 0; k < EDGE; k += 2) {
        const vec *first = (const vec *)(b + k * EDGE), *second = (const vec *)(b + (k + 1) * EDGE);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++)
            for (int v = 0; v < 2; v++) {
                even[r][v] = multiply_add_bf16(a[k * EDGE + r], first[v], even[r][v]);
                odd[r][v] = multiply_add_bf16(a[(k + 1) * EDGE + r], second[v], odd[r][v]);
            }
    }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < 2; v++) {
            int64_t place = at + r * EDGE + v * WIDTH;
            vec before = from ? *(const vec *)(from + place) : (vec){0};
            *(vec *)(to + place) = before + (even[r][v] + odd[r][v]);
        }
}

static void product_pairs(const unsigned char *a_block, const unsigned char *b_block, int64_t rows,
                          int64_t steps, const float *from, float *to, struct gemm_ahead ahead)
{
    const float *a = (const float *)a_block, *b = (const float *)b_block;
    gemm_fetch(ahead, 1, 0);
    for (int64_t step = 0; step < steps; step++, a += EDGE * EDGE, b += EDGE * EDGE, from = to)
        for (int column = 0; column < EDGE; column += 2 * WIDTH) {
            int row = 0;
            for (; row < rows && row + PAIR_ROWS <= EDGE; row += PAIR_ROWS)
                rows_pairs(a + row, b + column, from, to, row * EDGE + column, PAIR_ROWS);
            if (row < rows && row < EDGE)
                rows_pairs(a + row, b + column, from, to, row * EDGE + column, EDGE % PAIR_ROWS);
        }
}

/* ---- packing -------------------------------------------------------------------------------- */

static inline void int8_widen(const int8_t *q, int64_t count, float *line)
{
    for (int64_t i = 0; i < count; i++)
        line[i] = q[i];
}

/* One line of at most 32, with zeros behind. */
static inline void read_line(enum ls_dtype dtype, const void *x, int64_t index, int64_t count,
                             float line[EDGE])
{
    if (count < EDGE)
        memset(line, 0, EDGE * sizeof *line);
    if (dtype == LS_F32 && count == EDGE) {
        memcpy(line, (const float *)x + index, EDGE * sizeof *line);
    } else if (dtype == LS_F32) {
        memcpy(line, (const float *)x + index, (size_t)count * sizeof *line);
    } else if (dtype == LS_I8 && count == EDGE) {
        int8_widen((const int8_t *)x + index, EDGE, line);
    } else if (dtype == LS_I8) {
        int8_widen((const int8_t *)x + index, count, line);
    } else if (count == EDGE) {
        half_widen(dtype, (const ls_half *)x + index, EDGE, line);
    } else {
        half_widen(dtype, (const ls_half *)x + index, count, line);
    }
}

/* to [32 of k][32] = 32 lines of 32 along k, from x with distance ld. */
static void transpose(const float *x, int64_t ld, float *to)
{
#if defined(__AVX512F__)
    for (int i = 0; i < EDGE; i += 16)
        for (int j = 0; j < EDGE; j += 16) {
            __m512i r[16];
            for (int l = 0; l < 16; l++)
                r[l] = _mm512_loadu_si512(x + (i + l) * ld + j);
            gemm_transpose_words(r);
            for (int l = 0; l < 16; l++)
                _mm512_store_si512(to + (j + l) * EDGE + i, r[l]);
        }
#else
    typedef float four __attribute__((vector_size(16), may_alias));
    typedef float four_unaligned __attribute__((vector_size(16), aligned(4), may_alias));
    for (int i = 0; i < EDGE; i += 4)
        for (int j = 0; j < EDGE; j += 4) {
            four r[4], t[4];
            for (int l = 0; l < 4; l++)
                r[l] = *(const four_unaligned *)(x + (i + l) * ld + j);
            t[0] = __builtin_shufflevector(r[0], r[1], 0, 4, 1, 5);
            t[1] = __builtin_shufflevector(r[2], r[3], 0, 4, 1, 5);
            t[2] = __builtin_shufflevector(r[0], r[1], 2, 6, 3, 7);
            t[3] = __builtin_shufflevector(r[2], r[3], 2, 6, 3, 7);
            four *line = (four *)(to + j * EDGE + i);
            line[0] = __builtin_shufflevector(t[0], t[1], 0, 1, 4, 5);
            line[EDGE / 4] = __builtin_shufflevector(t[0], t[1], 2, 3, 6, 7);
            line[2 * EDGE / 4] = __builtin_shufflevector(t[2], t[3], 0, 1, 4, 5);
            line[3 * EDGE / 4] = __builtin_shufflevector(t[2], t[3], 2, 3, 6, 7);
        }
#endif
}

static void pack(struct gemm_form form, const void *x, int64_t ld, int64_t edge, int64_t k,
                 unsigned char *block)
{
    float *to = (float *)block;
    if (!form.k_contiguous) {
        for (int64_t i = 0; i < EDGE; i++)
            read_line(form.dtype, x, i * ld, i < k ? edge : 0, to + i * EDGE);
    } else if (form.dtype == LS_F32 && edge == EDGE && k == EDGE) {
        transpose(x, ld, to);
    } else {
        float line[EDGE * EDGE] __attribute__((aligned(64)));
        for (int64_t i = 0; i < EDGE; i++)
            read_line(form.dtype, x, i * ld, i < edge ? k : 0, line + i * EDGE);
        transpose(line, EDGE, to);
    }
}

/* ---- finished sums --------------------------------------------------------------------------- */

static void scale(const struct ls_gemm *gemm, const struct gemm_int8_rows *rows, int64_t row,
                  int64_t column, int64_t tile, float *sums)
{
    int64_t count = ls_min(EDGE, gemm->m - row), columns = ls_min(EDGE, gemm->n - column);
    float of_b[EDGE] __attribute__((aligned(64))) = {0};
    for (int64_t c = 0; c < columns; c++)
        of_b[c] = gemm->b_scales[(column + c) * gemm->tiles + tile];
    for (int64_t r = 0; r < count; r++)
        for (int v = 0; v < EDGE; v += WIDTH) {
            vec *sum = (vec *)(sums + r * EDGE + v), by = *(const vec *)(of_b + v);
            if (rows) {
                int64_t at = (row + r) * gemm->tiles + tile;
                vec_u32 whole = (vec_u32)*sum - GEMM_INT8_ADDED * (uint32_t)rows->sums[at];
                *sum = __builtin_convertvector((vec_i32)whole, vec) * (rows->scales[at] * by);
            } else {
                *sum *= by;
            }
        }
}

static inline vec merged(const float *chain, const float *top, int merges, int offset)
{
    vec value = *(const vec *)(chain + offset);
    for (int i = 1; i <= merges; i++)
        value = *(const vec *)(top - i * GEMM_BLOCK_FLOATS + offset) + value;
    return value;
}

static void merge(const float *chain, float *top, int merges)
{
    float *into = top - merges * GEMM_BLOCK_FLOATS;
    for (int offset = 0; offset < GEMM_BLOCK_FLOATS; offset += WIDTH)
        *(vec *)(into + offset) = merged(chain, top, merges, offset);
}

/* As ls_f32_to_bf16, for every input: bf16 in the low half of each 32-bit lane. */
static inline vec_u32 rounded(vec value)
{
    vec_u32 bits = (vec_u32)value, high = bits >> 16;
    vec_u32 nearest = (bits + 0x7fff + (high & 1)) >> 16;
    vec_u32 is_nan = (vec_u32)(value != value);
    return (nearest & ~is_nan) | ((high | 0x40) & is_nan);
}

/* A row of a block on the right edge: fewer than 32 columns. */
static void write_short_row(const struct ls_gemm *gemm, int64_t index, const float *bias,
                            int64_t columns, const float *sum)
{
    for (int64_t j = 0; j < columns; j++) {
        float value = bias ? sum[j] + bias[j] : sum[j];
        if (gemm->out != LS_F32)
            ((ls_half *)gemm->c)[index + j] = ls_f32_to_half(gemm->out, value);
        else if (gemm_adds_to_c(gemm))
            ((float *)gemm->c)[index + j] += value;
        else
            ((float *)gemm->c)[index + j] = value;
    }
}

/* Past the caches where `stream` is set (then at a multiple of the width's bytes). */
static inline void store(void *to, vec value, bool stream)
{
#if defined(__AVX512F__)
    if (stream)
        _mm512_stream_ps(to, (__m512)value);
    else
#elif defined(__AVX2__)
    if (stream)
        _mm256_stream_ps(to, (__m256)value);
    else
#endif
        *(vec_unaligned *)to = value;
    (void)stream;
}

/* Two vectors rounded to bf16, side by side in one. */
static inline vec rounded_pair(vec low, vec high)
{
#if defined(__AVX512F__)
    __m256i first = _mm512_cvtepi32_epi16((__m512i)rounded(low));
    __m256i second = _mm512_cvtepi32_epi16((__m512i)rounded(high));
    return (vec)_mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1);
#elif defined(__AVX2__)
    /* Packing goes by halves of 128 bits: the middle quarters change places. */
    __m256i packed = _mm256_packus_epi32((__m256i)rounded(low), (__m256i)rounded(high));
    return (vec)_mm256_permute4x64_epi64(packed, 0xd8);
#else
    union {
        vec_u16 half[2];
        vec whole;
    } pair = {{__builtin_convertvector(rounded(low), vec_u16),
               __builtin_convertvector(rounded(high), vec_u16)}};
    return pair.whole;
#endif
}

/* sum[32], the bias already added, to a whole row of a block. */
static inline void write_row(const struct ls_gemm *gemm, int64_t index, const vec *sum, bool stream)
{
    if (gemm->out == LS_F16) {
        half_round(LS_F16, (const float *)sum, EDGE, (ls_half *)gemm->c + index);
        return;
    }
    if (gemm->out == LS_BF16) {
        ls_bf16 *c = (ls_bf16 *)gemm->c + index;
        for (int v = 0; v < EDGE / WIDTH; v += 2)
            store(c + v * WIDTH, rounded_pair(sum[v], sum[v + 1]), stream);
        return;
    }
    float *c = (float *)gemm->c + index;
    for (int v = 0; v < EDGE / WIDTH; v++) {
        vec value = sum[v];
        if (gemm_adds_to_c(gemm))
            value = *(const vec_unaligned *)(c + v * WIDTH) + value;
        store(c + v * WIDTH, value, stream);
    }
}

static void write(const struct ls_gemm *gemm, int64_t row, int64_t column, const float *chain,
                  const float *top, int merges, bool stream)
{
    const float *bias = gemm->bias ? gemm->bias + column : NULL;
    int64_t rows = ls_min(EDGE, gemm->m - row), columns = ls_min(EDGE, gemm->n - column);
    for (int64_t r = 0; r < rows; r++) {
        int64_t index = (row + r) * gemm->ldc + column;
        vec sum[EDGE / WIDTH];
        for (int v = 0; v < EDGE / WIDTH; v++)
            sum[v] = merged(chain, top, merges, (int)r * EDGE + v * WIDTH);
        if (columns < EDGE) {
            write_short_row(gemm, index, bias, columns, (const float *)sum);
            continue;
        }
        for (int v = 0; bias && v < EDGE / WIDTH; v++)
            sum[v] += *(const vec_unaligned *)(bias + v * WIDTH);
        write_row(gemm, index, sum, stream);
    }
}

/* gemm_kernel_avx2 and so on. */
#define NAME_(stem, isa) stem##isa
#define NAME(stem, isa)  NAME_(stem, isa)
const struct gemm_kernel NAME(gemm_kernel_,
                              LS_KERNEL_ISA) = {.block_bytes = EDGE * EDGE * sizeof(float),
                                                .chunk_bytes = 16 << 10,
                                                .pack = pack,
                                                .product = product};
const struct gemm_kernel NAME(gemm_kernel_pairs_,
                              LS_KERNEL_ISA) = {.block_bytes = EDGE * EDGE * sizeof(float),
                                                .chunk_bytes = 16 << 10,
                                                .pack = pack,
                                                .product = product_pairs};
const struct gemm_finish NAME(gemm_finish_,
                              LS_KERNEL_ISA) = {.scale = scale, .merge = merge, .write = write};
