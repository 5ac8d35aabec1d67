/* ops/kern/attention_pairs.h - attention in the arithmetic bf16_pairs, on pairs of blocks; see
 * attention_kernel.h. Products multiply bf16 and add in float32 by steps of 32
 * (LS_ARITHMETIC_BF16_PAIRS); p and ds are rounded to bf16 between products, as their operands are.
 * Legend: i query, j key, d of head dim, all within a block; P = padded.
 *
 * The left operand of a product is row-major bf16; the right one has the rows of the contraction in
 * pairs, [rows / 2][columns][2] ("paired" below).
 *
 * What is done to values is here, once. A file that includes this defines the functions that it
 * declares, which move and multiply: attention_amx.c in tiles, attention_pairs_kernel.c on any
 * instruction set. They give the same bits. */
#ifndef OPS_KERN_ATTENTION_PAIRS_H
#define OPS_KERN_ATTENTION_PAIRS_H

#include "ops/attention_kernel.h"
#include "ops/kern/attention_scores.h"

enum {
    BLOCK = ATTENTION_BLOCK,
    AHEAD_ROWS = 4,
    HALF = BLOCK / 2, /* a product's scores are made and used in parts of this many rows or columns:
                       * after about half a microsecond without a product AMX's tile unit is slow
                       * to wake, and parts stay in the first cache */
    PARTS = HALF / LANES,
};

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

/* ---- what the including file defines --------------------------------------------------------- */

/* c [rows, columns] = a b. rows, columns and depth are multiples of 32. Subnormal numbers are zero,
 * as operands and as sums. */
static inline void multiply(int64_t rows, int64_t columns, int64_t depth, struct operand a,
                            struct operand b, struct result c, struct attention_ahead *ahead);
/* Left operand with rows i: panel [BLOCK, P]. */
static void pack_left(const struct attention_shape *shape, const struct attention_rows *rows,
                      ls_bf16 *panel);
/* Left operand with rows d: panel [P, BLOCK]. */
static void pack_left_turned(const struct attention_shape *shape, const struct attention_rows *rows,
                             ls_bf16 *panel);
/* Right operand that contracts over d: paired [P / 2][BLOCK][2]. */
static void pack_right_columns(const struct attention_shape *shape,
                               const struct attention_rows *rows, ls_bf16 *panel);
/* Right operand that contracts over i: paired [BLOCK / 2][P][2]. */
static void pack_right_rows(const struct attention_shape *shape, const struct attention_rows *rows,
                            ls_bf16 *panel);
/* delta[i] = sum_d o[i][d] d_o[i][d], subnormal numbers included: columns in groups of 32, of which
 * the first and the second 16 are a chain in each of 16 lanes; then lane l of both chains, then
 * lanes l and l + 8, l + 4, l + 2, l + 1. */
static void pack_delta(const struct attention_shape *shape, const struct attention_rows *o,
                       const struct attention_rows *d_o, float *delta);
/* HALF values to bf16, to nearest, ties to even; subnormal numbers to zero. The type half_row,
 * which holds them, is defined before this file is included. */
static inline half_row round_half(const vec values[PARTS]);
static inline void half_store(half_row row, ls_bf16 *to);
/* Two rows become HALF pairs. */
static inline void half_pairs(half_row a, half_row b, ls_bf16 *to);
/* out[i][d] = sum[i][d] * factor, rounded as round_half does. */
static void store_rows(const struct attention_shape *shape, const float *sum, float factor,
                       const struct attention_rows *out);
/* out[i][d] = sum[d][i] * factor[i], the same. */
static void columns_store(const struct attention_shape *shape, const float *sum,
                          const float factor[BLOCK], const struct attention_rows *out);

/* ---- panels ---------------------------------------------------------------------------------- */

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

static void store_columns(const struct attention_shape *shape, const float *sum, float factor,
                          const struct attention_rows *out)
{
    float factors[BLOCK];
    for (int64_t i = 0; i < BLOCK; i++)
        factors[i] = factor;
    columns_store(shape, sum, factors, out);
}

/* ---- pairs of blocks ------------------------------------------------------------------------- */

/* 2^t for t <= 126, exactly 1 at 0 and 0 below -126; NaN stays NaN. 2^fraction by a minimax
 * polynomial of relative error 2.9e-6 on [0, 1], an eightieth of a bf16 rounding. fraction is
 * t - floor(t), rounded down, as vreduceps gives it. */
static inline vec exp2_short(vec t)
{
#if defined(__AVX512F__)
    __mmask16 keep = _mm512_cmp_ps_mask(t, _mm512_set1_ps(-126.0f), _CMP_NLT_UQ);
    vec r = _mm512_reduce_ps(t, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
#else
    /* 1.5 * 2^23 leaves the nearest integer in the low bits of a sum. */
    const vec magic = vec_set(0x1.8p23f);
    vec_int keep = ~(vec_int)(t < vec_set(-126.0f));
    t = vec_max(vec_set(-127.0f), t);
    vec nearest = t + magic - magic;
    vec floor = nearest - (vec)((vec_int)(nearest > t) & (vec_int)vec_set(1.0f));
    vec r = t - floor;
    /* r + floor - t is exact where it matters. */
    r = (vec)((vec_bits)r + (vec_bits)(t < r + floor));
#endif
    vec p = vec_set(0x1.b7f734p-7f);
    p = vec_fma(p, r, vec_set(0x1.abf868p-5f));
    p = vec_fma(p, r, vec_set(0x1.ee2452p-3f));
    p = vec_fma(p, r, vec_set(0x1.62d6c6p-1f));
    p = vec_fma(p, r, vec_set(1.0f));
#if defined(__AVX512F__)
    return _mm512_maskz_scalef_ps(keep, p, t); /* it takes the floor of its exponent itself */
#else
    vec_bits power = ((vec_bits) __builtin_convertvector(floor, vec_int) + 127) << 23;
    return (vec)((vec_int)(p * (vec)power) & keep);
#endif
}

/* Rows a and b, LANES columns each, to bf16 and in pairs. Ties go away from zero: that saves
 * shuffles, and exponentials have no preferred side. */
static inline void round_pairs(vec a, vec b, ls_bf16 *to)
{
    typedef uint32_t words __attribute__((vector_size(LANES * 4)));
    words low = ((words)a + 0x8000) >> 16, high = ((words)b + 0x8000) & 0xffff0000u;
    words pairs = low | high;
    memcpy(to, &pairs, sizeof pairs);
}

/* Keys that queries [first, first + HALF) need of a key block, in halves: 0 if they see none. */
static int64_t keys_needed(const struct attention_mask *mask, int64_t first)
{
    if (!mask)
        return BLOCK;
    int32_t end = 0;
    for (int64_t i = first; i < first + HALF; i++)
        if (mask->first[i] < BLOCK && mask->last[i] >= mask->first[i])
            end = mask->last[i] >= end ? mask->last[i] + 1 : end;
    return ls_min(ls_round_up(end, HALF), BLOCK);
}

/* Queries [first, first + HALF) of scores^T s [keys, BLOCK] give p paired [keys / 2][BLOCK][2],
 * relative to the state's maximum. Returns whether the sums so far need the factors in rescale. */
static bool softmax_step(const float *s, int64_t keys, ls_bf16 *p, int64_t first, float scale_log2,
                         const struct attention_state *state, float *rescale)
{
    const vec scale = vec_set(scale_log2), one = vec_set(1.0f);
    vec_int other = {0};
    for (int64_t i = first; i < first + HALF; i += LANES) {
        vec top0 = vec_load(s + i), top1 = vec_load(s + BLOCK + i);
        for (int64_t j = 2; j < keys; j += 2) {
            top0 = vec_max(top0, vec_load(s + j * BLOCK + i));
            top1 = vec_max(top1, vec_load(s + (j + 1) * BLOCK + i));
        }
        const vec old = vec_load(state->max + i);
        const vec max = vec_raise(vec_max(top0, top1) * scale, old, ATTENTION_MAX_SLACK);
        const vec reference = scores_reference(max);
        vec sum0 = vec_set(0.0f), sum1 = sum0;
        for (int64_t j = 0; j < keys; j += 2) {
            const float *at = s + j * BLOCK + i;
            vec p0 = exp2_short(vec_fma(vec_load(at), scale, -reference));
            vec p1 = exp2_short(vec_fma(vec_load(at + BLOCK), scale, -reference));
            round_pairs(p0, p1, p + j * BLOCK + 2 * i);
            sum0 += p0;
            sum1 += p1;
        }
        const vec factor = exp2_short(old - reference);
        other |= (vec_int)(factor != one);
        vec_store(rescale + i, factor);
        vec_store(state->max + i, max);
        vec_store(state->sum + i, vec_fma(vec_load(state->sum + i), factor, sum0 + sum1));
    }
    bool any = false;
    for (int lane = 0; lane < LANES; lane++)
        any |= other[lane] != 0;
    return any;
}

static void forward_pair(const struct attention_shape *shape, const struct attention_query *query,
                         const struct attention_key *key, const struct attention_mask *mask,
                         const struct attention_state *state, void *scratch,
                         struct attention_ahead *ahead)
{
    float *s = scratch, rescale[BLOCK];
    ls_bf16 *p = (ls_bf16 *)(s + BLOCK * BLOCK);
    const int64_t padded = shape->padded;
    for (int64_t i = 0; i < query->count; i += HALF) {
        const int64_t keys = keys_needed(mask, i);
        const struct scores scores = {s + i, BLOCK, 0, keys, i, HALF};
        if (keys == 0)
            continue;
        multiply(keys, HALF, padded, left_of(key->k, padded, 0),
                 right_of(query->q_columns, BLOCK, i), (struct result){s + i, BLOCK, false}, ahead);
        scores_cap(shape, scores);
        scores_mask(mask, scores);
        if (softmax_step(s, keys, p, i, scores_log2(shape), state, rescale))
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

/* Where a quarter's weights and changes go, from its first key on. */
struct backward_products {
    ls_bf16 *p, *ds, *ds_paired;
};

/* Scores^T and dp^T [HALF, HALF] of queries [first, first + HALF) give p^T and ds^T as left
 * operands [HALF, BLOCK] and ds^T paired [HALF / 2][BLOCK][2], at their queries' columns. */
static inline __attribute__((always_inline)) void
softmax_backward_of(const float *s, const float *dp, int64_t first, float scale_log2, bool capped,
                    const struct attention_query *query, struct backward_products to)
{
    const vec scale = vec_set(scale_log2);
    vec lse[PARTS], delta[PARTS];
    for (int part = 0; part < PARTS; part++) {
        lse[part] = vec_load(query->lse + first + part * LANES);
        delta[part] = vec_load(query->delta + first + part * LANES);
    }
    for (int64_t j = 0; j < HALF; j += 2) {
        half_row rounded[2];
#pragma GCC unroll 2
        for (int64_t r = 0; r < 2; r++) {
            const float *s_row = s + (j + r) * HALF, *dp_row = dp + (j + r) * HALF;
            const int64_t at = (j + r) * BLOCK + first;
            vec weight[PARTS], change[PARTS];
#pragma GCC unroll 8
            for (int part = 0; part < PARTS; part++) {
                const vec score = vec_load(s_row + part * LANES);
                weight[part] = exp2_short(vec_fma(score, scale, -lse[part]));
                change[part] = weight[part] * (vec_load(dp_row + part * LANES) - delta[part]);
                if (capped)
                    change[part] *= scores_cap_slope(score);
            }
            half_store(round_half(weight), to.p + at);
            rounded[r] = round_half(change);
            half_store(rounded[r], to.ds + at);
        }
        half_pairs(rounded[0], rounded[1], to.ds_paired + j * BLOCK + 2 * first);
    }
}

/* A function each, so that neither is in the way of the products. */
static __attribute__((noinline)) void softmax_backward(const float *s, const float *dp,
                                                       int64_t first, float scale_log2,
                                                       const struct attention_query *query,
                                                       struct backward_products to)
{
    softmax_backward_of(s, dp, first, scale_log2, false, query, to);
}

static __attribute__((noinline)) void softmax_backward_capped(const float *s, const float *dp,
                                                              int64_t first, float scale_log2,
                                                              const struct attention_query *query,
                                                              struct backward_products to)
{
    softmax_backward_of(s, dp, first, scale_log2, true, query, to);
}

static void backward_pair(const struct attention_shape *shape, const struct attention_query *query,
                          const struct attention_key *key, const struct attention_mask *mask,
                          const struct attention_gradient *gradient, void *scratch,
                          struct attention_ahead *ahead)
{
    float *dk = gradient->dk, *dv = gradient->dv, *dq = gradient->dq;
    float *s = scratch, *dp = s + HALF * HALF;
    ls_bf16 *p = (ls_bf16 *)(dp + HALF * HALF), *ds = p + BLOCK * BLOCK;
    ls_bf16 *ds_paired = ds + BLOCK * BLOCK;
    const int64_t padded = shape->padded;
    /* The first queries see none of the last keys: that quarter is skipped. */
    const bool diagonal = keys_needed(mask, 0) <= HALF;
    for (int64_t i = 0; i < BLOCK; i += HALF)
        for (int64_t j = 0; j < (diagonal ? i + HALF : BLOCK); j += HALF) {
            const struct scores scores = {s, HALF, j, HALF, i, HALF};
            const struct backward_products to = {p + j * BLOCK, ds + j * BLOCK,
                                                 ds_paired + j * BLOCK};
            multiply(HALF, HALF, padded, left_of(key->k, padded, j),
                     right_of(query->q_columns, BLOCK, i), (struct result){s, HALF, false}, ahead);
            multiply(HALF, HALF, padded, left_of(key->v, padded, j),
                     right_of(query->do_columns, BLOCK, i), (struct result){dp, HALF, false},
                     ahead);
            scores_cap(shape, scores);
            scores_mask(mask, scores);
            if (shape->softcap > 0)
                softmax_backward_capped(s, dp, i, scores_log2(shape), query, to);
            else
                softmax_backward(s, dp, i, scores_log2(shape), query, to);
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

/* What a struct attention_kernel of this arithmetic has; begin and end are the including file's. */
#define ATTENTION_PAIRS                                                                            \
    .dim_step = 32, .element_bytes = sizeof(ls_bf16), .key_panels_backward = 3,                    \
    .scratch_bytes = 2 * HALF * HALF * sizeof(float) + 3 * BLOCK * BLOCK * sizeof(ls_bf16),        \
    .pack_query_forward = pack_query_forward, .pack_query_backward = pack_query_backward,          \
    .pack_key_forward = pack_key_forward, .pack_key_backward = pack_key_backward,                  \
    .forward_pair = forward_pair, .forward_store = forward_store, .backward_pair = backward_pair,  \
    .store_rows = store_rows, .store_columns = store_columns

#endif
