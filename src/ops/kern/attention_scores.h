/* ops/kern/attention_scores.h - what is done to a pair's scores between the product and the
 * softmax, by attention's kernels of either arithmetic. Scores lie with keys as rows and queries as
 * columns: key j of query i at s[j * ld + i]. */
#ifndef OPS_KERN_ATTENTION_SCORES_H
#define OPS_KERN_ATTENTION_SCORES_H

#include "ops/attention_kernel.h"
#include "ops/kern/attention_vector.h"

#include <math.h>

/* A part of a pair's scores: keys [key, key + keys) of queries [query, query + queries), the latter
 * a multiple of LANES. s is its first element. */
struct scores {
    float *s;
    int64_t ld, key, keys, query, queries;
};

/* What a score is multiplied by to be an exponent of 2. A score that was capped is a tanh. */
static inline float scores_log2(const struct attention_shape *shape)
{
    return (shape->softcap > 0 ? shape->softcap : shape->scale) * LOG2_E;
}

/* s = tanh(scale s / softcap): what is left of softcap * that is a factor of the exponent. */
static __attribute__((noinline)) void scores_cap_all(const struct attention_shape *shape,
                                                     struct scores scores)
{
    const vec factor = vec_set(shape->scale / shape->softcap);
    for (int64_t j = 0; j < scores.keys; j++)
        for (int64_t i = 0; i < scores.queries; i += LANES) {
            float *at = scores.s + j * scores.ld + i;
            vec_store(at, vec_tanh(vec_load(at) * factor));
        }
}

static inline void scores_cap(const struct attention_shape *shape, struct scores scores)
{
    if (shape->softcap > 0)
        scores_cap_all(shape, scores);
}

/* The derivative of a capped score by the score, less the factor scale: 1 - tanh^2. A masked score
 * gives 0. */
static inline vec scores_cap_slope(vec s)
{
    const vec u = vec_max(s, vec_set(-1.0f));
    return vec_fma(-u, u, vec_set(1.0f));
}

/* A score that is masked is -inf, which exp2 turns into an exact zero. */
static __attribute__((noinline)) void scores_mask_all(const struct attention_mask *mask,
                                                      struct scores scores)
{
    for (int64_t j = 0; j < scores.keys; j++)
        for (int64_t i = 0; i < scores.queries; i += LANES) {
            const vec_int key = (vec_int){0} + (int32_t)(scores.key + j);
            vec_int first, last;
            memcpy(&first, mask->first + scores.query + i, sizeof first);
            memcpy(&last, mask->last + scores.query + i, sizeof last);
            const vec_int outside = (key < first) | (key > last);
            float *at = scores.s + j * scores.ld + i;
            vec_store(at, (vec)((outside & (vec_int)vec_set(-INFINITY)) |
                                (~outside & (vec_int)vec_load(at))));
        }
}

static inline void scores_mask(const struct attention_mask *mask, struct scores scores)
{
    if (mask)
        scores_mask_all(mask, scores);
}

/* The reference that a query's exponents are taken from: its maximum, or 0 if it has seen no key
 * yet, for which -inf less -inf would be no number. */
static inline vec scores_reference(vec max)
{
    vec_int none = (vec_int)(max == vec_set(-INFINITY));
    return (vec)(~none & (vec_int)max);
}

#endif
