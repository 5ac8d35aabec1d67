/* Attention in the arithmetic bf16_pairs without tiles, for bf16; see attention_pairs.h. Correct
 * before fast: products run at about the rate of fma, and moving and rounding is plain. */
#include <lockstep/ops.h>

typedef struct half_row {
    ls_bf16 at[LS_ATTENTION_BLOCK / 2];
} half_row;
#include "ops/kern/attention_pairs.h"
#include "ops/kern/flush.h"

typedef uint32_t vec_word __attribute__((vector_size(LANES * 4)));
typedef uint16_t vec_half __attribute__((vector_size(LANES * 2)));

/* ---- products ---- */

#if defined(__AVX512F__)
enum { ROWS = 4 };
#else
enum { ROWS = 2 };
#endif
enum { STEP = 32 };

static inline void widen(const ls_bf16 *from, int64_t count, float *to)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = ls_bf16_to_f32(from[i]);
}

/* One step: ROWS rows of a by two vectors of columns of b, [STEP / 2][ldb] pairs. */
static inline __attribute__((always_inline)) void step(const float a[ROWS][STEP], const ls_bf16 *b,
                                                       int64_t ldb, vec sum[ROWS][2])
{
    vec even[ROWS][2] = {0}, odd[ROWS][2] = {0};
    for (int64_t pair = 0; pair < STEP / 2; pair++) {
        vec_word words[2];
        memcpy(words, b + pair * ldb, sizeof words);
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; r++) {
            vec first = vec_set(a[r][2 * pair]), second = vec_set(a[r][2 * pair + 1]);
            for (int v = 0; v < 2; v++) {
                even[r][v] = VEC_FMA_BF16(first, (vec)(words[v] << 16), even[r][v]);
                odd[r][v] = VEC_FMA_BF16(second, (vec)(words[v] & 0xffff0000u), odd[r][v]);
            }
        }
    }
    for (int r = 0; r < ROWS; r++)
        for (int v = 0; v < 2; v++)
            sum[r][v] += even[r][v] + odd[r][v];
}

/* ROWS rows from m on, two vectors of columns from n on. A function of its own: inside of others
 * the compiler keeps fewer of its sums in registers, and it takes half as long again. */
static __attribute__((noinline)) void block_multiply(int64_t m, int64_t n, int64_t depth,
                                                     struct operand a, struct operand b,
                                                     struct result c)
{
    float *to = c.at + m * c.ld + n, wide[ROWS][STEP];
    vec sum[ROWS][2] = {0};
    for (int r = 0; r < ROWS && c.add; r++)
        for (int v = 0; v < 2; v++)
            sum[r][v] = vec_load(to + r * c.ld + v * LANES);
    for (int64_t k = 0; k < depth; k += STEP) {
        for (int r = 0; r < ROWS; r++)
            widen((const ls_bf16 *)a.at + (m + r) * a.ld + k, STEP, wide[r]);
        step(wide, (const ls_bf16 *)b.at + k / 2 * b.ld + 2 * n, b.ld, sum);
    }
    for (int r = 0; r < ROWS; r++)
        for (int v = 0; v < 2; v++)
            vec_store(to + r * c.ld + v * LANES, sum[r][v]);
}

static inline void multiply(int64_t rows, int64_t columns, int64_t depth, struct operand a,
                            struct operand b, struct result c, struct attention_ahead *ahead)
{
    unsigned control = subnormals_flush();
    for (int64_t m = 0; m < rows; m += ROWS) {
        for (int64_t n = 0; n < columns; n += 2 * LANES)
            block_multiply(m, n, depth, a, b, c);
        if (m % STEP == 0)
            attention_ahead(ahead, AHEAD_ROWS * columns / STEP);
    }
    subnormals_restore(control);
}

/* ---- panels ---- */

/* Element d of row i; zero past D or past the last row. */
static inline ls_bf16 element(const struct attention_shape *shape,
                              const struct attention_rows *rows, int64_t i, int64_t d)
{
    return i < rows->count && d < shape->dim ? ((const ls_bf16 *)rows->at)[i * rows->ld + d] : 0;
}

static void pack_left(const struct attention_shape *shape, const struct attention_rows *rows,
                      ls_bf16 *panel)
{
    for (int64_t i = 0; i < BLOCK; i++)
        for (int64_t d = 0; d < shape->padded; d++)
            panel[i * shape->padded + d] = element(shape, rows, i, d);
}

static void pack_left_turned(const struct attention_shape *shape, const struct attention_rows *rows,
                             ls_bf16 *panel)
{
    for (int64_t i = 0; i < BLOCK; i++)
        for (int64_t d = 0; d < shape->padded; d++)
            panel[d * BLOCK + i] = element(shape, rows, i, d);
}

static void pack_right_columns(const struct attention_shape *shape,
                               const struct attention_rows *rows, ls_bf16 *panel)
{
    for (int64_t i = 0; i < BLOCK; i++)
        for (int64_t d = 0; d < shape->padded; d++)
            panel[(d / 2 * BLOCK + i) * 2 + d % 2] = element(shape, rows, i, d);
}

static void pack_right_rows(const struct attention_shape *shape, const struct attention_rows *rows,
                            ls_bf16 *panel)
{
    for (int64_t i = 0; i < BLOCK; i++)
        for (int64_t d = 0; d < shape->padded; d++)
            panel[(i / 2 * shape->padded + d) * 2 + i % 2] = element(shape, rows, i, d);
}

static float delta_of(const struct attention_shape *shape, const struct attention_rows *o,
                      const struct attention_rows *d_o, int64_t i)
{
    enum { CHAINS = 32, VECS = CHAINS / LANES };
    vec chain[VECS] = {0};
    float lane[CHAINS];
    for (int64_t d = 0; d < shape->dim; d += CHAINS) {
        float x[CHAINS], y[CHAINS];
        for (int64_t l = 0; l < CHAINS; l++) {
            x[l] = ls_bf16_to_f32(element(shape, o, i, d + l));
            y[l] = ls_bf16_to_f32(element(shape, d_o, i, d + l));
        }
        for (int v = 0; v < VECS; v++)
            chain[v] = vec_fma(vec_load(x + v * LANES), vec_load(y + v * LANES), chain[v]);
    }
    memcpy(lane, chain, sizeof lane);
    for (int left = CHAINS / 2; left > 0; left /= 2)
        for (int l = 0; l < left; l++)
            lane[l] += lane[l + left];
    return lane[0];
}

static void pack_delta(const struct attention_shape *shape, const struct attention_rows *o,
                       const struct attention_rows *d_o, float *delta)
{
    for (int64_t i = 0; i < BLOCK; i++)
        delta[i] = delta_of(shape, o, d_o, i);
}

/* ---- rounding ---- */

static inline vec_word rounded(vec value)
{
    vec_word bits = (vec_word)value, high = bits >> 16, size = bits & 0x7fffffffu;
    vec_word nearest = (bits + 0x7fff + (high & 1)) >> 16;
    vec_word nan = (vec_word)(size > 0x7f800000u), tiny = (vec_word)(size < 0x00800000u);
    nearest = (nearest & ~nan) | ((high | 0x40) & nan);
    return (nearest & ~tiny) | (high & 0x8000u & tiny);
}

static inline half_row round_half(const vec values[PARTS])
{
    half_row row;
    for (int part = 0; part < PARTS; part++) {
        vec_half halves = __builtin_convertvector(rounded(values[part]), vec_half);
        memcpy(row.at + part * LANES, &halves, sizeof halves);
    }
    return row;
}

static inline void half_store(half_row row, ls_bf16 *to)
{
    memcpy(to, row.at, sizeof row.at);
}

static inline void half_pairs(half_row a, half_row b, ls_bf16 *to)
{
    for (int i = 0; i < HALF; i++) {
        to[2 * i] = a.at[i];
        to[2 * i + 1] = b.at[i];
    }
}

/* A row of sums [P], of which D are wanted. */
static void row_store(const struct attention_shape *shape, const float *row,
                      const struct attention_rows *out, int64_t i)
{
    for (int64_t d = 0; d < shape->dim; d += HALF) {
        vec values[PARTS];
        memcpy(values, row + d, sizeof values);
        half_row rounded = round_half(values);
        memcpy((ls_bf16 *)out->at + i * out->ld + d, rounded.at,
               (size_t)ls_min(HALF, shape->dim - d) * sizeof *rounded.at);
    }
}

static void store_rows(const struct attention_shape *shape, const float *sum, float factor,
                       const struct attention_rows *out)
{
    float row[ATTENTION_DIM_MAX];
    for (int64_t i = 0; i < out->count; i++) {
        for (int64_t d = 0; d < shape->padded; d++)
            row[d] = sum[i * shape->padded + d] * factor;
        row_store(shape, row, out, i);
    }
}

static void columns_store(const struct attention_shape *shape, const float *sum,
                          const float factor[BLOCK], const struct attention_rows *out)
{
    float row[ATTENTION_DIM_MAX];
    for (int64_t i = 0; i < out->count; i++) {
        for (int64_t d = 0; d < shape->padded; d++)
            row[d] = sum[d * BLOCK + i] * factor[i];
        row_store(shape, row, out, i);
    }
}

/* attention_kernel_pairs_avx2 and so on. */
#define NAME_(stem, isa) stem##isa
#define NAME(stem, isa)  NAME_(stem, isa)
const struct attention_kernel NAME(attention_kernel_pairs_, LS_KERNEL_ISA) = {ATTENTION_PAIRS};
