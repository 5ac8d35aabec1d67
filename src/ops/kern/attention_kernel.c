/* Attention on pairs of blocks in float32, for either act; see attention_kernel.h. Compiled once
 * per instruction set. Legend: i query, j key, d of head dim, all within a block; P = padded. */

#include "ops/kern/attention_scores.h"
#include "ops/kern/half.h"

#if defined(__AVX512F__)
#include "ops/gemm_transpose.h"
#endif

enum {
    BLOCK = ATTENTION_BLOCK,
    TILE_ROWS = 4,
    /* Vectors of a register tile: TILE_ROWS x TILE_VECTORS sums, enough to hide the latency of an
     * fma, leave registers for operands. */
    TILE_VECTORS = LANES == 16 ? 4 : 2,
    /* Of a block that has few queries, as those of one token's heads, one vector; then more rows
     * hide the latency. */
    FEW = LANES,
    FEW_ROWS = 8,
};

#define INLINE static inline __attribute__((always_inline))

/* ---- products ---- */

/* A matrix or its transpose: element (m, k) = at[m * row + k * column]. */
struct strided {
    const float *at;
    int64_t row, column;
};

/* c[m][n] += sum_k a(m, k) b[k][n] on rows x vectors, one ascending chain of fma per element. Rows
 * of b and c lie ld apart. */
INLINE void tile_multiply(int rows, int vectors, int64_t depth, struct strided a, const float *b,
                          float *c, int64_t ld)
{
    vec sum[FEW_ROWS][TILE_VECTORS];
#pragma GCC unroll 8
    for (int m = 0; m < rows; m++)
#pragma GCC unroll 4
        for (int n = 0; n < vectors; n++)
            sum[m][n] = vec_load(c + m * ld + n * LANES);
    for (int64_t k = 0; k < depth; k++) {
        vec right[TILE_VECTORS];
#pragma GCC unroll 4
        for (int n = 0; n < vectors; n++)
            right[n] = vec_load(b + k * ld + n * LANES);
#pragma GCC unroll 8
        for (int m = 0; m < rows; m++) {
            vec left = vec_set(a.at[m * a.row + k * a.column]);
#pragma GCC unroll 4
            for (int n = 0; n < vectors; n++)
                sum[m][n] = vec_fma(left, right[n], sum[m][n]);
        }
    }
#pragma GCC unroll 8
    for (int m = 0; m < rows; m++)
#pragma GCC unroll 4
        for (int n = 0; n < vectors; n++)
            vec_store(c + m * ld + n * LANES, sum[m][n]);
}

INLINE struct strided rows_from(struct strided a, int64_t m)
{
    return (struct strided){a.at + m * a.row, a.row, a.column};
}

/* The columns of b and c that are worked on, a multiple of LANES, of rows that lie ld apart. */
struct columns {
    int64_t count, ld;
};
static const struct columns queries_all = {BLOCK, BLOCK}, queries_few = {FEW, BLOCK};

/* c [rows, columns] += a b. rows is a multiple of FEW_ROWS. */
INLINE void multiply_strided(int64_t rows, struct columns columns, int64_t depth, struct strided a,
                             const float *b, float *c, struct attention_ahead *ahead)
{
    const int64_t ld = columns.ld;
    int64_t n = 0;
    for (; n + TILE_VECTORS * LANES <= columns.count; n += TILE_VECTORS * LANES)
        for (int64_t m = 0; m < rows; m += TILE_ROWS) {
            tile_multiply(TILE_ROWS, TILE_VECTORS, depth, rows_from(a, m), b + n, c + m * ld + n,
                          ld);
            attention_ahead(ahead, 1);
        }
    for (; n < columns.count; n += LANES)
        for (int64_t m = 0; m < rows; m += FEW_ROWS) {
            tile_multiply(FEW_ROWS, 1, depth, rows_from(a, m), b + n, c + m * ld + n, ld);
            attention_ahead(ahead, columns.count <= FEW ? 4 : 0);
        }
}

/* a [rows, depth]. */
static void multiply(int64_t rows, struct columns columns, int64_t depth, const float *a,
                     const float *b, float *c, struct attention_ahead *ahead)
{
    multiply_strided(rows, columns, depth, (struct strided){a, depth, 1}, b, c, ahead);
}

/* a [depth, rows], used as its transpose. */
static void multiply_transposed(int64_t rows, struct columns columns, int64_t depth, const float *a,
                                const float *b, float *c, struct attention_ahead *ahead)
{
    multiply_strided(rows, columns, depth, (struct strided){a, 1, rows}, b, c, ahead);
}

/* ---- panels ---- */

/* Row i widened; zeros past D, and for the whole of a row that is not there. */
static void row_load(const struct attention_shape *shape, const struct attention_rows *rows,
                     int64_t i, float *out)
{
    const int64_t dim = i < rows->count ? shape->dim : 0;
    if (shape->act == LS_F32) {
        memcpy(out, (const float *)rows->at + i * rows->ld, (size_t)dim * sizeof *out);
    } else {
        half_widen(shape->act, (const ls_half *)rows->at + i * rows->ld, dim, out);
    }
    memset(out + dim, 0, (size_t)(shape->padded - dim) * sizeof *out);
}

/* a . b over count, a multiple of 16: 16 interleaved chains, added by the tree. */
static float dot(const float *a, const float *b, int64_t count)
{
    enum { CHAINS = 16, VECTORS = CHAINS / LANES };
    vec sum[VECTORS];
    float chain[CHAINS];
    for (int v = 0; v < VECTORS; v++)
        sum[v] = vec_set(0.0f);
    for (int64_t d = 0; d < count; d += CHAINS)
        for (int v = 0; v < VECTORS; v++)
            sum[v] = vec_fma(vec_load(a + d + v * LANES), vec_load(b + d + v * LANES), sum[v]);
    for (int v = 0; v < VECTORS; v++)
        vec_store(chain + v * LANES, sum[v]);
    for (int n = 1; n < CHAINS; n *= 2)
        for (int c = 0; c < CHAINS; c += 2 * n)
            chain[c] += chain[c + n];
    return chain[0];
}

/* panel [BLOCK, P] */
static void pack_rows(const struct attention_shape *shape, const struct attention_rows *rows,
                      float *panel)
{
    for (int64_t i = 0; i < BLOCK; i++)
        row_load(shape, rows, i, panel + i * shape->padded);
}

/* panel [P, BLOCK] */
static void pack_columns(const struct attention_shape *shape, const struct attention_rows *rows,
                         float *panel)
{
    /* Sixteen queries at a time: their rows stay in cache while columns are written. */
    enum { GROUP = 16 };
    float group[GROUP][ATTENTION_DIM_MAX];
    for (int64_t first = 0; first < BLOCK; first += GROUP) {
        for (int64_t i = 0; i < GROUP; i++)
            row_load(shape, rows, first + i, group[i]);
        for (int64_t d = 0; d < shape->padded; d++)
            for (int64_t i = 0; i < GROUP; i++)
                panel[d * BLOCK + first + i] = group[i][d];
    }
}

static void pack_query_forward(const struct attention_shape *shape, const struct attention_rows *q,
                               const struct attention_query *query)
{
    pack_columns(shape, q, query->q_columns);
}

static void pack_query_backward(const struct attention_shape *shape, const struct attention_rows *q,
                                const struct attention_rows *o, const struct attention_rows *d_o,
                                const float *lse, const struct attention_query *query)
{
    pack_columns(shape, q, query->q_columns);
    pack_rows(shape, q, query->q_rows);
    pack_columns(shape, d_o, query->do_columns);
    pack_rows(shape, d_o, query->do_rows);
    for (int64_t i = 0; i < BLOCK; i++) {
        query->lse[i] = query->delta[i] = 0;
        if (i >= q->count)
            continue;
        query->lse[i] = lse[i] * LOG2_E;
        float o_row[ATTENTION_DIM_MAX];
        row_load(shape, o, i, o_row);
        query->delta[i] =
            dot(o_row, (const float *)query->do_rows + i * shape->padded, shape->padded);
    }
}

static void pack_key(const struct attention_shape *shape, const struct attention_rows *k,
                     const struct attention_rows *v, const struct attention_key *key)
{
    pack_rows(shape, k, key->k);
    pack_rows(shape, v, key->v);
}

/* out[d] = sum[d] * factor, rounded once. */
static void row_store(const struct attention_shape *shape, const float *sum, float factor,
                      const struct attention_rows *out, int64_t i)
{
    if (shape->act == LS_F32) {
        float *row = (float *)out->at + i * out->ld;
        for (int64_t d = 0; d < shape->dim; d++)
            row[d] = sum[d] * factor;
    } else {
        ls_half *row = (ls_half *)out->at + i * out->ld;
        for (int64_t d = 0; d < shape->dim; d++)
            row[d] = ls_f32_to_half(shape->act, sum[d] * factor);
    }
}

static void store_rows(const struct attention_shape *shape, const float *sum, float factor,
                       const struct attention_rows *out)
{
    for (int64_t i = 0; i < out->count; i++)
        row_store(shape, sum + i * shape->padded, factor, out, i);
}

static void column_store(const struct attention_shape *shape, const float *sum, float factor,
                         const struct attention_rows *out, int64_t i)
{
    float row[ATTENTION_DIM_MAX];
    for (int64_t d = 0; d < shape->dim; d++)
        row[d] = sum[d * BLOCK + i];
    row_store(shape, row, factor, out, i);
}

static void store_columns(const struct attention_shape *shape, const float *sum, float factor,
                          const struct attention_rows *out)
{
    for (int64_t i = 0; i < out->count; i++)
        column_store(shape, sum, factor, out, i);
}

/* ---- pairs ---- */

/* Whether any of the queries needs its sums rescaled. */
INLINE bool any_rescale(const float rescale[BLOCK], int64_t queries)
{
    int differ = 0;
    for (int64_t i = 0; i < queries; i++)
        differ |= rescale[i] != 1.0f;
    return differ;
}

/* s [BLOCK, BLOCK] = scores^T of the first `queries`; becomes p^T relative to the maximum. */
INLINE void softmax_step(float *s, int64_t queries, float scale_log2,
                         const struct attention_state *state, float *rescale)
{
    for (int64_t i = 0; i < queries; i += LANES) {
        vec top = vec_load(s + i);
        for (int64_t j = 1; j < BLOCK; j++)
            top = vec_max(top, vec_load(s + j * BLOCK + i));
        vec old = vec_load(state->max + i);
        vec max = vec_raise(top * vec_set(scale_log2), old, ATTENTION_MAX_SLACK);
        vec reference = scores_reference(max), sum = vec_set(0.0f);
        for (int64_t j = 0; j < BLOCK; j++) {
            vec t = vec_fma(vec_load(s + j * BLOCK + i), vec_set(scale_log2), -reference);
            vec p = vec_exp2(t);
            vec_store(s + j * BLOCK + i, p);
            sum += p;
        }
        vec factor = vec_exp2(old - reference);
        vec_store(rescale + i, factor);
        vec_store(state->max + i, max);
        vec_store(state->sum + i, vec_fma(vec_load(state->sum + i), factor, sum));
    }
}

INLINE void forward_queries(const struct attention_shape *shape,
                            const struct attention_query *query, const struct attention_key *key,
                            const struct attention_mask *mask, const struct attention_state *state,
                            float *s, struct columns queries, struct attention_ahead *ahead)
{
    const struct scores scores = {s, BLOCK, 0, BLOCK, 0, queries.count};
    float rescale[BLOCK];
    for (int64_t j = 0; j < BLOCK; j++)
        memset(s + j * BLOCK, 0, (size_t)queries.count * sizeof *s);
    multiply(BLOCK, queries, shape->padded, key->k, query->q_columns, s, ahead);
    scores_cap(shape, scores);
    scores_mask(mask, scores);
    softmax_step(s, queries.count, scores_log2(shape), state, rescale);
    if (any_rescale(rescale, queries.count))
        for (int64_t d = 0; d < shape->padded; d++)
            for (int64_t i = 0; i < queries.count; i++)
                state->o[d * BLOCK + i] *= rescale[i];
    multiply_transposed(shape->padded, queries, BLOCK, key->v, s, state->o, ahead);
}

static void forward_pair(const struct attention_shape *shape, const struct attention_query *query,
                         const struct attention_key *key, const struct attention_mask *mask,
                         const struct attention_state *state, void *scratch,
                         struct attention_ahead *ahead)
{
    if (query->count <= FEW)
        forward_queries(shape, query, key, mask, state, scratch, queries_few, ahead);
    else
        forward_queries(shape, query, key, mask, state, scratch, queries_all, ahead);
}

static void forward_store(const struct attention_shape *shape, const struct attention_state *state,
                          const struct attention_rows *o, float *lse)
{
    float log_sum[BLOCK];
    for (int64_t i = 0; i < BLOCK; i += LANES)
        vec_store(log_sum + i, vec_log2(vec_load(state->sum + i)));
    for (int64_t i = 0; i < o->count; i++) {
        lse[i] = (state->max[i] + log_sum[i]) * LN_2;
        column_store(shape, state->o, 1.0f / state->sum[i], o, i);
    }
}

/* s, dp [BLOCK, BLOCK] become p^T and ds^T = p^T (dp^T - delta), times the slope of the cap. */
INLINE void softmax_backward(float *s, float *dp, float scale_log2, bool capped,
                             const struct attention_query *query)
{
    for (int64_t j = 0; j < BLOCK; j++)
        for (int64_t i = 0; i < BLOCK; i += LANES) {
            int64_t at = j * BLOCK + i;
            vec score = vec_load(s + at);
            vec t = vec_fma(score, vec_set(scale_log2), -vec_load(query->lse + i));
            vec p = vec_exp2(t);
            vec ds = p * (vec_load(dp + at) - vec_load(query->delta + i));
            if (capped)
                ds *= scores_cap_slope(score);
            vec_store(s + at, p);
            vec_store(dp + at, ds);
        }
}

static void backward_pair(const struct attention_shape *shape, const struct attention_query *query,
                          const struct attention_key *key, const struct attention_mask *mask,
                          const struct attention_gradient *gradient, void *scratch,
                          struct attention_ahead *ahead)
{
    float *dk = gradient->dk, *dv = gradient->dv, *dq = gradient->dq;
    float *s = scratch, *dp = s + BLOCK * BLOCK;
    const struct scores scores = {s, BLOCK, 0, BLOCK, 0, BLOCK};
    const struct columns width = {shape->padded, shape->padded};
    memset(s, 0, 2 * BLOCK * BLOCK * sizeof *s);
    multiply(BLOCK, queries_all, shape->padded, key->k, query->q_columns, s, ahead);
    multiply(BLOCK, queries_all, shape->padded, key->v, query->do_columns, dp, ahead);
    scores_cap(shape, scores);
    scores_mask(mask, scores);
    if (shape->softcap > 0)
        softmax_backward(s, dp, scores_log2(shape), true, query);
    else
        softmax_backward(s, dp, scores_log2(shape), false, query);
    if (dk) {
        multiply(BLOCK, width, BLOCK, s, query->do_rows, dv, ahead);
        multiply(BLOCK, width, BLOCK, dp, query->q_rows, dk, ahead);
    }
    if (dq)
        multiply_transposed(shape->padded, queries_all, BLOCK, key->k, dp, dq, ahead);
}

/* ---- a few queries of one token -------------------------------------------------------------- */

#if defined(__AVX512F__)
/* Lanes are keys, then elements of a row; each element's chain is that of a pair above. */
enum { VECTORS = BLOCK / LANES };

/* Sixteen elements of row i from d on, widened; zeros past D, and of a row that is not there. */
INLINE vec values_load(const struct attention_shape *shape, const struct attention_rows *rows,
                       int64_t i, int64_t d)
{
    const int64_t left = i < rows->count ? shape->dim - d : 0, at = i * rows->ld + d;
    const __mmask16 mask = (__mmask16)(left >= LANES ? 0xffff : left > 0 ? (1 << left) - 1 : 0);
    if (shape->act == LS_F32)
        return _mm512_maskz_loadu_ps(mask, (const float *)rows->at + at);
    const __m256i half = _mm256_maskz_loadu_epi16(mask, (const ls_half *)rows->at + at);
    if (shape->act == LS_F16)
        return _mm512_cvtph_ps(half);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

/* Elements d to d + 15 of sixteen keys join the scores of all queries. */
INLINE void few_scores(const struct attention_shape *shape, const struct attention_rows *k,
                       int64_t key, int64_t d, int64_t queries, float (*q)[ATTENTION_DIM_MAX],
                       float (*s)[BLOCK])
{
    __m512i turned[LANES];
    for (int64_t j = 0; j < LANES; j++)
        turned[j] = _mm512_castps_si512(values_load(shape, k, key + j, d));
    gemm_transpose_words(turned);
    for (int64_t i = 0; i < queries; i++) {
        vec sum = vec_load(s[i] + key);
#pragma GCC unroll 16
        for (int64_t p = 0; p < LANES; p++)
            sum = vec_fma(_mm512_castsi512_ps(turned[p]), vec_set(q[i][d + p]), sum);
        vec_store(s[i] + key, sum);
    }
}

/* s of query i becomes p; returns the factor of what was summed before. */
INLINE float few_softmax(float *s, float scale_log2, const struct attention_state *state, int64_t i)
{
    vec top = vec_load(s);
    for (int64_t j = LANES; j < BLOCK; j += LANES)
        top = vec_max(top, vec_load(s + j));
    const vec old = vec_set(state->max[i]), scale = vec_set(scale_log2);
    const vec max = vec_raise(vec_set(_mm512_reduce_max_ps(top)) * scale, old, ATTENTION_MAX_SLACK);
    const vec reference = scores_reference(max), factor = vec_exp2(old - reference);
    for (int64_t j = 0; j < BLOCK; j += LANES)
        vec_store(s + j, vec_exp2(vec_fma(vec_load(s + j), scale, -reference)));
    float sum = 0;
    for (int64_t j = 0; j < BLOCK; j++)
        sum += s[j];
    state->max[i] = max[0];
    state->sum[i] = vec_fma(vec_set(state->sum[i]), factor, vec_set(sum))[0];
    return factor[0];
}

/* o of query i, from d on: keys in ascending order. A key that is not there adds 0. */
INLINE void few_values(const struct attention_shape *shape, const struct attention_rows *v,
                       int64_t d, int vectors, const float *p, float *o)
{
    vec sum[VECTORS];
    for (int n = 0; n < vectors; n++)
        sum[n] = vec_load(o + d + n * LANES);
    for (int64_t j = 0; j < ls_min(v->count + 1, BLOCK); j++)
        for (int n = 0; n < vectors; n++)
            sum[n] = vec_fma(values_load(shape, v, j, d + n * LANES), vec_set(p[j]), sum[n]);
    for (int n = 0; n < vectors; n++)
        vec_store(o + d + n * LANES, sum[n]);
}

INLINE void few_output(const struct attention_shape *shape, const struct attention_rows *v,
                       const float *p, float factor, const struct attention_state *state, int64_t i)
{
    float o[ATTENTION_DIM_MAX];
    int64_t d = 0;
    for (int64_t n = 0; n < shape->padded; n++)
        o[n] = factor != 1.0f ? state->o[n * BLOCK + i] * factor : state->o[n * BLOCK + i];
    for (; d + VECTORS * LANES <= shape->padded; d += VECTORS * LANES)
        few_values(shape, v, d, VECTORS, p, o);
    for (; d < shape->padded; d += LANES)
        few_values(shape, v, d, 1, p, o);
    for (int64_t n = 0; n < shape->padded; n++)
        state->o[n * BLOCK + i] = o[n];
}

INLINE void few_mask(const struct attention_mask *mask, float *s)
{
    for (int32_t j = 0; mask && j < BLOCK; j++)
        s[j] = j < mask->first[0] || j > mask->last[0] ? -INFINITY : s[j];
}

INLINE void few_pair(const struct attention_shape *shape, const struct attention_rows *q,
                     const struct attention_rows *k, const struct attention_rows *v,
                     const struct attention_mask *mask, const struct attention_state *state,
                     struct attention_ahead *ahead)
{
    float wide[ATTENTION_FEW][ATTENTION_DIM_MAX], s[ATTENTION_FEW][BLOCK];
    memset(s, 0, (size_t)q->count * sizeof s[0]);
    for (int64_t i = 0; i < q->count; i++)
        for (int64_t d = 0; d < shape->padded; d += LANES)
            vec_store(wide[i] + d, values_load(shape, q, i, d));
    for (int64_t d = 0; d < shape->padded; d += LANES)
        for (int64_t key = 0; key < BLOCK; key += LANES) {
            few_scores(shape, k, key, d, q->count, wide, s);
            attention_ahead(ahead, 8);
        }
    for (int64_t i = 0; i < q->count; i++) {
        scores_cap(shape, (struct scores){s[i], LANES, 0, VECTORS, 0, LANES});
        few_mask(mask, s[i]);
        few_output(shape, v, s[i], few_softmax(s[i], scores_log2(shape), state, i), state, i);
    }
}

static void forward_few(const struct attention_shape *shape, const struct attention_rows *q,
                        const struct attention_rows *k, const struct attention_rows *v,
                        const struct attention_mask *mask, const struct attention_state *state,
                        struct attention_ahead *ahead)
{
    struct attention_shape form = *shape; /* its type is a constant where this is inlined */
    form.act = LS_BF16;
    if (shape->act == LS_BF16) {
        few_pair(&form, q, k, v, mask, state, ahead);
        return;
    }
    form.act = LS_F32;
    if (shape->act == LS_F32)
        few_pair(&form, q, k, v, mask, state, ahead);
    else
        few_pair(shape, q, k, v, mask, state, ahead);
}
#endif

#define KERNEL_NAME_OF(isa) attention_kernel_##isa
#define KERNEL_NAME(isa)    KERNEL_NAME_OF(isa)

const struct attention_kernel KERNEL_NAME(LS_KERNEL_ISA) = {
    .dim_step = 16,
    .element_bytes = sizeof(float),
    .key_panels_backward = 2,
    .scratch_bytes = 2 * BLOCK * BLOCK * sizeof(float),
    .pack_query_forward = pack_query_forward,
    .pack_query_backward = pack_query_backward,
    .pack_key_forward = pack_key,
    .pack_key_backward = pack_key,
    .forward_pair = forward_pair,
#if defined(__AVX512F__)
    .forward_few = forward_few,
#endif
    .forward_store = forward_store,
    .backward_pair = backward_pair,
    .store_rows = store_rows,
    .store_columns = store_columns,
};
