/* Attention on pairs of blocks in AMX tiles, for bf16; see attention_kernel.h. Products multiply
 * bf16 and add in float32; p and ds are rounded to bf16 between products, as their operands are.
 * Legend: i query, j key, d of head dim, all within a block; P = padded.
 *
 * A tile holds 16 rows of 64 bytes. The left operand of a product is row-major bf16; the right one
 * has the rows of the contraction in pairs, [rows / 2][columns][2] ("paired" below). */
/* cflags: -mavx512dq -mavx512vl -mavx512bw -mavx512bf16 -mfma -mamx-tile -mamx-bf16 */
#include "ops/attention_kernel.h"

#if defined(__x86_64__)
#include "ops/kern/attention_vector.h"

#include <float.h>

enum {
    BLOCK = ATTENTION_BLOCK,
    AHEAD_ROWS = 4,
    HALF = BLOCK / 2, /* a product's scores are made and used in parts of this many rows or columns:
                       * after about half a microsecond without a product the tile unit is slow to
                       * wake, and parts stay in the first cache */
};

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

/* A matrix operand: row r at at + r * ld. For a right operand, r counts pairs of rows of the
 * contraction and ld two elements for each column. */
struct operand {
    const void *at;
    int64_t ld;
};

static inline struct operand left_of(const void *panel, int64_t ld, int64_t row)
{
    return (struct operand){(const ls_bf16 *)panel + row * ld, ld};
}

static inline struct operand right_of(const void *panel, int64_t columns, int64_t column)
{
    return (struct operand){(const ls_bf16 *)panel + 2 * column, 2 * columns};
}

/* Where a product goes: row r at at + r * ld, written or, with add, added to. */
struct result {
    float *at;
    int64_t ld;
    bool add;
};

/* c [rows, columns] = a b. rows, columns and depth are multiples of 32. */
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

/* 16 x 16 transpose of 32-bit elements: row[r] lane c becomes row[c] lane r. */
static inline __attribute__((always_inline)) void transpose(__m512i row[16])
{
    __m512i t[16];
#pragma GCC unroll 16
    for (int r = 0; r < 16; r += 2) {
        t[r] = _mm512_unpacklo_epi32(row[r], row[r + 1]);
        t[r + 1] = _mm512_unpackhi_epi32(row[r], row[r + 1]);
    }
#pragma GCC unroll 16
    for (int r = 0; r < 16; r += 4) {
        row[r] = _mm512_unpacklo_epi64(t[r], t[r + 2]);
        row[r + 1] = _mm512_unpackhi_epi64(t[r], t[r + 2]);
        row[r + 2] = _mm512_unpacklo_epi64(t[r + 1], t[r + 3]);
        row[r + 3] = _mm512_unpackhi_epi64(t[r + 1], t[r + 3]);
    }
    /* row[4 q + c] now holds, in 128-bit lane l, rows 4q..4q+3 of column 4l + c. */
#pragma GCC unroll 16
    for (int c = 0; c < 4; c++) {
        t[c] = _mm512_shuffle_i32x4(row[c], row[4 + c], 0x88);
        t[4 + c] = _mm512_shuffle_i32x4(row[8 + c], row[12 + c], 0x88);
        t[8 + c] = _mm512_shuffle_i32x4(row[c], row[4 + c], 0xdd);
        t[12 + c] = _mm512_shuffle_i32x4(row[8 + c], row[12 + c], 0xdd);
    }
#pragma GCC unroll 16
    for (int c = 0; c < 4; c++) {
        row[c] = _mm512_shuffle_i32x4(t[c], t[4 + c], 0x88);
        row[8 + c] = _mm512_shuffle_i32x4(t[c], t[4 + c], 0xdd);
        row[4 + c] = _mm512_shuffle_i32x4(t[8 + c], t[12 + c], 0x88);
        row[12 + c] = _mm512_shuffle_i32x4(t[8 + c], t[12 + c], 0xdd);
    }
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
    transpose(out);
}

/* Left operand with rows i: panel [BLOCK, P]. */
static void pack_left(const struct attention_shape *shape, const struct attention_rows *rows,
                      ls_bf16 *panel)
{
    for (int64_t i = 0; i < BLOCK; i++)
        for (int64_t d = 0; d < shape->padded; d += 32)
            _mm512_storeu_si512(panel + i * shape->padded + d, row_load(shape, rows, i, d));
}

/* Left operand with rows d: panel [P, BLOCK]. */
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

/* Right operand that contracts over d: paired [P / 2][BLOCK][2]. */
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

/* Right operand that contracts over i: paired [BLOCK / 2][P][2]. */
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

/* delta[i] = sum_d o[i][d] d_o[i][d]: two chains of 16 lanes, lanes by a fixed tree. */
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

static void pack_query_forward(const struct attention_shape *shape, const struct attention_rows *q,
                               const struct attention_query *query)
{
    pack_right_columns(shape, q, query->q_columns);
}

static void pack_query_backward(const struct attention_shape *shape, const struct attention_rows *q,
                                const struct attention_rows *o, const struct attention_rows *d_o,
                                const float *lse, const struct attention_query *query)
{
    pack_right_columns(shape, q, query->q_columns);
    pack_right_rows(shape, q, query->q_rows);
    pack_right_columns(shape, d_o, query->do_columns);
    pack_right_rows(shape, d_o, query->do_rows);
    pack_delta(shape, o, d_o, query->delta);
    for (int64_t i = 0; i < BLOCK; i++)
        query->lse[i] = i < q->count ? lse[i] * LOG2_E : 0.0f;
}

static void pack_key_forward(const struct attention_shape *shape, const struct attention_rows *k,
                             const struct attention_rows *v, const struct attention_key *key)
{
    pack_left(shape, k, key->k);
    pack_left_turned(shape, v, key->v);
}

static void pack_key_backward(const struct attention_shape *shape, const struct attention_rows *k,
                              const struct attention_rows *v, const struct attention_key *key)
{
    pack_left(shape, k, key->k);
    pack_left(shape, v, key->v);
    pack_left_turned(shape, k, key->k_turned);
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

/* out[i][d] = sum[d][i] * factor[i]. */
static void columns_store(const struct attention_shape *shape, const float *sum,
                          const float factor[BLOCK], const struct attention_rows *out)
{
    for (int64_t i = 0; i < out->count; i += 16)
        for (int64_t d = 0; d < shape->dim; d += 16) {
            __m512i tile[16];
#pragma GCC unroll 16
            for (int r = 0; r < 16; r++)
                tile[r] = (__m512i)(vec_load(sum + (d + r) * BLOCK + i) * vec_load(factor + i));
            transpose(tile);
            for (int r = 0; r < ls_min(16, out->count - i); r++)
                row_store(shape, out, i + r, d, (__m512)tile[r]);
        }
}

static void store_columns(const struct attention_shape *shape, const float *sum, float factor,
                          const struct attention_rows *out)
{
    float factors[BLOCK];
    for (int64_t i = 0; i < BLOCK; i++)
        factors[i] = factor;
    columns_store(shape, sum, factors, out);
}

/* ---- pairs ---- */

/* 2^t for t <= 126, exactly 1 at 0 and 0 below -126; NaN stays NaN. 2^fraction by a minimax
 * polynomial of relative error 2.9e-6 on [0, 1], an eightieth of a bf16 rounding; vscalefps takes
 * the floor of its exponent itself. */
static inline vec exp2_short(vec t)
{
    __mmask16 keep = _mm512_cmp_ps_mask(t, _mm512_set1_ps(-126.0f), _CMP_NLT_UQ);
    vec r = _mm512_reduce_ps(t, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    vec p = vec_set(0x1.b7f734p-7f);
    p = vec_fma(p, r, vec_set(0x1.abf868p-5f));
    p = vec_fma(p, r, vec_set(0x1.ee2452p-3f));
    p = vec_fma(p, r, vec_set(0x1.62d6c6p-1f));
    p = vec_fma(p, r, vec_set(1.0f));
    return _mm512_maskz_scalef_ps(keep, p, t);
}

static inline __m512i round_two(__m512 low, __m512 high)
{
    return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

/* Rows a and b, 16 columns each, rounded and in pairs. Ties go away from zero: that saves shuffles,
 * and exponentials have no preferred side. */
static inline __m512i round_pairs(vec a, vec b)
{
    const __m512i half = _mm512_set1_epi32(0x8000), upper = _mm512_set1_epi32((int)0xffff0000u);
    __m512i low = _mm512_srli_epi32(_mm512_add_epi32((__m512i)a, half), 16);
    return _mm512_ternarylogic_epi32(low, _mm512_add_epi32((__m512i)b, half), upper, 0xf8);
}

/* In a quarter on the diagonal, keys past the query get a score that exp2 turns into an exact zero.
 * The quarter past the diagonal is skipped: it would add exact zeros. */
static void mask_diagonal(float *s, int64_t ld)
{
    for (int64_t j = 1; j < HALF; j++)
        for (int64_t i = 0; i < j; i++)
            s[j * ld + i] = -FLT_MAX;
}

/* Queries [first, first + HALF) of scores^T s [keys, BLOCK] give p paired [keys / 2][BLOCK][2],
 * relative to the state's maximum. Returns whether the sums so far need the factors in rescale. */
static bool softmax_step(const float *s, int64_t keys, ls_bf16 *p, int64_t first, float scale_log2,
                         const struct attention_state *state, float *rescale)
{
    const vec scale = vec_set(scale_log2), one = vec_set(1.0f);
    bool any = false;
    for (int64_t i = first; i < first + HALF; i += LANES) {
        vec top0 = vec_load(s + i), top1 = vec_load(s + BLOCK + i);
        for (int64_t j = 2; j < keys; j += 2) {
            top0 = vec_max(top0, vec_load(s + j * BLOCK + i));
            top1 = vec_max(top1, vec_load(s + (j + 1) * BLOCK + i));
        }
        const vec old = vec_load(state->max + i);
        const vec max = vec_raise(vec_max(top0, top1) * scale, old, ATTENTION_MAX_SLACK);
        vec sum0 = vec_set(0.0f), sum1 = sum0;
        for (int64_t j = 0; j < keys; j += 2) {
            const float *at = s + j * BLOCK + i;
            vec p0 = exp2_short(vec_fma(vec_load(at), scale, -max));
            vec p1 = exp2_short(vec_fma(vec_load(at + BLOCK), scale, -max));
            _mm512_storeu_si512(p + j * BLOCK + 2 * i, round_pairs(p0, p1));
            sum0 += p0;
            sum1 += p1;
        }
        const vec factor = exp2_short(old - max);
        any |= _mm512_cmp_ps_mask(factor, one, _CMP_NEQ_UQ) != 0;
        vec_store(rescale + i, factor);
        vec_store(state->max + i, max);
        vec_store(state->sum + i, vec_fma(vec_load(state->sum + i), factor, sum0 + sum1));
    }
    return any;
}

static void forward_pair(const struct attention_shape *shape, const struct attention_query *query,
                         const struct attention_key *key, bool diagonal,
                         const struct attention_state *state, void *scratch,
                         struct attention_ahead *ahead)
{
    float *s = scratch, rescale[BLOCK];
    ls_bf16 *p = (ls_bf16 *)(s + BLOCK * BLOCK);
    const int64_t padded = shape->padded;
    for (int64_t i = 0; i < BLOCK; i += HALF) {
        const int64_t keys = diagonal ? i + HALF : BLOCK;
        multiply(keys, HALF, padded, left_of(key->k, padded, 0),
                 right_of(query->q_columns, BLOCK, i), (struct result){s + i, BLOCK, false}, ahead);
        if (diagonal)
            mask_diagonal(s + i * BLOCK + i, BLOCK);
        if (softmax_step(s, keys, p, i, shape->scale * LOG2_E, state, rescale))
            for (int64_t d = 0; d < padded; d++)
                for (int64_t lane = i; lane < i + HALF; lane++)
                    state->o[d * BLOCK + lane] *= rescale[lane];
        multiply(padded, HALF, keys, left_of(key->v, BLOCK, 0), right_of(p, BLOCK, i),
                 (struct result){state->o + i, BLOCK, true}, ahead);
    }
}

static void forward_store(const struct attention_shape *shape, const struct attention_state *state,
                          const struct attention_rows *o, float *lse)
{
    float factor[BLOCK], log_sum[BLOCK];
    for (int64_t i = 0; i < BLOCK; i += LANES) {
        vec sum = vec_load(state->sum + i);
        vec_store(log_sum + i, (vec_load(state->max + i) + vec_log2(sum)) * vec_set(LN_2));
        vec_store(factor + i, vec_set(1.0f) / sum);
    }
    memcpy(lse, log_sum, (size_t)o->count * sizeof *lse);
    columns_store(shape, state->o, factor, o);
}

/* Scores^T and dp^T [HALF, HALF] of queries [first, first + HALF) give p^T and ds^T as left
 * operands [HALF, BLOCK] and ds^T paired [HALF / 2][BLOCK][2], at their queries' columns. */
static void softmax_backward(const float *s, const float *dp, int64_t first, float scale_log2,
                             const struct attention_query *query, ls_bf16 *p, ls_bf16 *ds,
                             ls_bf16 *ds_paired)
{
    const vec scale = vec_set(scale_log2);
    const vec lse0 = vec_load(query->lse + first), lse1 = vec_load(query->lse + first + LANES);
    const vec delta0 = vec_load(query->delta + first);
    const vec delta1 = vec_load(query->delta + first + LANES);
    for (int64_t j = 0; j < HALF; j += 2) {
        __m512i rounded[2];
#pragma GCC unroll 2
        for (int64_t r = 0; r < 2; r++) {
            const float *s_row = s + (j + r) * HALF, *dp_row = dp + (j + r) * HALF;
            const int64_t to = (j + r) * BLOCK + first;
            vec p0 = exp2_short(vec_fma(vec_load(s_row), scale, -lse0));
            vec p1 = exp2_short(vec_fma(vec_load(s_row + LANES), scale, -lse1));
            _mm512_storeu_si512(p + to, round_two(p0, p1));
            vec ds0 = p0 * (vec_load(dp_row) - delta0);
            vec ds1 = p1 * (vec_load(dp_row + LANES) - delta1);
            rounded[r] = round_two(ds0, ds1);
            _mm512_storeu_si512(ds + to, rounded[r]);
        }
        pairs_store(ds_paired + j * BLOCK + 2 * first, rounded[0], rounded[1]);
    }
}

static void backward_pair(const struct attention_shape *shape, const struct attention_query *query,
                          const struct attention_key *key, bool diagonal,
                          const struct attention_gradient *gradient, void *scratch,
                          struct attention_ahead *ahead)
{
    float *dk = gradient->dk, *dv = gradient->dv, *dq = gradient->dq;
    float *s = scratch, *dp = s + HALF * HALF;
    ls_bf16 *p = (ls_bf16 *)(dp + HALF * HALF), *ds = p + BLOCK * BLOCK;
    ls_bf16 *ds_paired = ds + BLOCK * BLOCK;
    const int64_t padded = shape->padded;
    for (int64_t i = 0; i < BLOCK; i += HALF)
        for (int64_t j = 0; j < (diagonal ? i + HALF : BLOCK); j += HALF) {
            multiply(HALF, HALF, padded, left_of(key->k, padded, j),
                     right_of(query->q_columns, BLOCK, i), (struct result){s, HALF, false}, ahead);
            multiply(HALF, HALF, padded, left_of(key->v, padded, j),
                     right_of(query->do_columns, BLOCK, i), (struct result){dp, HALF, false},
                     ahead);
            if (diagonal && j == i)
                mask_diagonal(s, HALF);
            softmax_backward(s, dp, i, shape->scale * LOG2_E, query, p + j * BLOCK, ds + j * BLOCK,
                             ds_paired + j * BLOCK);
        }
    const int64_t part = diagonal ? HALF : BLOCK;
    for (int64_t j = 0; dk && j < BLOCK; j += part) {
        const int64_t first = diagonal ? j : 0, depth = BLOCK - first;
        multiply(part, padded, depth, left_of(p + first, BLOCK, j),
                 right_of((ls_bf16 *)query->do_rows + first * padded, padded, 0),
                 (struct result){dv + j * padded, padded, true}, ahead);
        multiply(part, padded, depth, left_of(ds + first, BLOCK, j),
                 right_of((ls_bf16 *)query->q_rows + first * padded, padded, 0),
                 (struct result){dk + j * padded, padded, true}, ahead);
    }
    for (int64_t i = 0; dq && i < BLOCK; i += part)
        multiply(padded, part, diagonal ? i + HALF : BLOCK, left_of(key->k_turned, BLOCK, 0),
                 right_of(ds_paired, BLOCK, i), (struct result){dq + i, BLOCK, true}, ahead);
}

const struct attention_kernel attention_kernel_amx = {
    .dim_step = 32,
    .element_bytes = sizeof(ls_bf16),
    .key_panels_backward = 3,
    .scratch_bytes = 2 * HALF * HALF * sizeof(float) + 3 * BLOCK * BLOCK * sizeof(ls_bf16),
    .begin = tiles_begin,
    .end = tiles_end,
    .pack_query_forward = pack_query_forward,
    .pack_query_backward = pack_query_backward,
    .pack_key_forward = pack_key_forward,
    .pack_key_backward = pack_key_backward,
    .forward_pair = forward_pair,
    .forward_store = forward_store,
    .backward_pair = backward_pair,
    .store_rows = store_rows,
    .store_columns = store_columns,
};
#endif
