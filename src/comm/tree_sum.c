/* The only arithmetic of this module: the tree over rank index (law of sums, S1), and the chain
 * over leaves that ranks hold (S3). An addition of two floats has one result, so vectors of any
 * width give the same bits. */
#include "comm/internal.h"

#include <string.h>

/* A strip of every input and a partial sum per tree level stay in the first cache level. */
enum { STRIP = 1024 };

/* sum may be a. */
static inline void add_loop(const float *a, const float *restrict b, float *sum, int64_t count)
{
#pragma omp simd
    for (int64_t i = 0; i < count; i++)
        sum[i] = a[i] + b[i];
}

/* NaN wins, always the same one, and +0 is above -0: the bits do not depend on the order. */
static inline float max_of(float a, float b)
{
    union {
        float f;
        uint32_t u;
    } x = {a}, y = {b}, equal;
    const union {
        uint32_t u;
        float f;
    } nan = {0x7fc00000u};
    equal.u = x.u & y.u;
    float greater = a > b ? a : b;
    float result = a == b ? equal.f : greater;
    return a != a || b != b ? nan.f : result;
}

static inline void max_loop(const float *a, const float *restrict b, float *max, int64_t count)
{
#pragma omp simd
    for (int64_t i = 0; i < count; i++)
        max[i] = max_of(a[i], b[i]);
}

static void add_plain(const float *a, const float *b, float *sum, int64_t count)
{
    add_loop(a, b, sum, count);
}

static void max_plain(const float *a, const float *b, float *max, int64_t count)
{
    max_loop(a, b, max, count);
}

/* to[count] = from[count], rounded to bf16. to may be from. */
static inline void round_loop(const float *from, float *to, int64_t count)
{
#pragma omp simd
    for (int64_t i = 0; i < count; i++)
        to[i] = ls_bf16_to_f32(ls_f32_to_bf16(from[i]));
}

static void round_plain(const float *from, float *to, int64_t count)
{
    round_loop(from, to, count);
}

#ifdef __x86_64__
__attribute__((target("avx2"))) static void add_avx2(const float *a, const float *b, float *sum,
                                                     int64_t count)
{
    add_loop(a, b, sum, count);
}

__attribute__((target("avx2"))) static void max_avx2(const float *a, const float *b, float *max,
                                                     int64_t count)
{
    max_loop(a, b, max, count);
}

__attribute__((target("avx2"))) static void round_avx2(const float *from, float *to, int64_t count)
{
    round_loop(from, to, count);
}
#endif

struct arithmetic {
    void (*add)(const float *a, const float *b, float *sum, int64_t count);
    void (*round)(const float *from, float *to, int64_t count);
};

static struct arithmetic arithmetic_best(bool max)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2"))
        return (struct arithmetic){max ? max_avx2 : add_avx2, round_avx2};
#endif
    return (struct arithmetic){max ? max_plain : add_plain, round_plain};
}

/* ---- float32 inputs ------------------------------------------------------------------------- */

/* sum[count] = tree sum of inputs[0..n)[offset + i], n >= 2, count <= STRIP. */
static void strip_sum(const struct arithmetic *with, const void *const *inputs, int n,
                      int64_t offset, int64_t count, float *sum)
{
    if (n == 2) {
        with->add((const float *)inputs[0] + offset, (const float *)inputs[1] + offset, sum, count);
        return;
    }
    int split = (int)ls_tree_split(n);
    strip_sum(with, inputs, split, offset, count, sum);
    if (n - split == 1) {
        with->add(sum, (const float *)inputs[split] + offset, sum, count);
        return;
    }
    float right[STRIP];
    strip_sum(with, inputs + split, n - split, offset, count, right);
    with->add(sum, right, sum, count);
}

/* sum[count] = (sum, where onto, +) leaf after leaf, each the tree over `inner` inputs. */
static void strip_leaves(const struct arithmetic *with, const void *const *inputs, int n, int inner,
                         bool onto, int64_t offset, int64_t count, float *sum)
{
    float tree[STRIP];
    for (int r = 0; r < n; r += inner) {
        const float *leaf = (const float *)inputs[r] + offset;
        if (inner > 1) {
            strip_sum(with, inputs + r, inner, offset, count, tree);
            leaf = tree;
        }
        if (r || onto)
            with->add(sum, leaf, sum, count);
        else
            memcpy(sum, leaf, (size_t)count * sizeof *sum);
    }
}

void comm_sum(const struct comm_call *call, const void *const *inputs, int n, int64_t from,
              float *const *outputs, int outputs_count, int64_t to, int64_t count)
{
    float sum[STRIP];
    struct arithmetic with = arithmetic_best(call->op == COMM_ALL_REDUCE_MAX);
    int inner = call->leaves.inner;
    if (n == 2 && outputs_count == 1 && !inner) {
        with.add((const float *)inputs[0] + from, (const float *)inputs[1] + from, outputs[0] + to,
                 count);
        return;
    }
    for (int64_t i = 0; i < count; i += STRIP) {
        int64_t length = ls_min(STRIP, count - i);
        size_t bytes = (size_t)length * sizeof *sum;
        if (call->leaves.onto)
            memcpy(sum, outputs[0] + to + i, bytes);
        if (inner)
            strip_leaves(&with, inputs, n, inner, call->leaves.onto, from + i, length, sum);
        else if (n == 1)
            memcpy(sum, (const float *)inputs[0] + from + i, bytes);
        else
            strip_sum(&with, inputs, n, from + i, length, sum);
        for (int j = 0; j < outputs_count; j++)
            memcpy(outputs[j] + to + i, sum, bytes);
    }
}

/* ---- inputs rounded to bf16 ----------------------------------------------------------------- */

void comm_round_bf16(const float *from, ls_bf16 *to, int64_t count)
{
#pragma omp simd
    for (int64_t i = 0; i < count; i++)
        to[i] = ls_f32_to_bf16(from[i]);
}

/* As strip_sum, for ranks first to first + n - 1; n >= 1. */
static void strip_sum_bf16(const struct arithmetic *with, const void *const *inputs, int first,
                           int n, int wide, int64_t offset, int64_t count, float *sum)
{
    if (n == 1 && (wide < 0 || wide == first)) {
        with->round((const float *)inputs[first] + offset, sum, count);
        return;
    }
    if (n == 1) {
        const ls_bf16 *narrow = inputs[first];
        for (int64_t i = 0; i < count; i++)
            sum[i] = ls_bf16_to_f32(narrow[offset + i]);
        return;
    }
    int split = (int)ls_tree_split(n);
    float right[STRIP];
    strip_sum_bf16(with, inputs, first, split, wide, offset, count, sum);
    strip_sum_bf16(with, inputs, first + split, n - split, wide, offset, count, right);
    with->add(sum, right, sum, count);
}

void comm_tree_sum_bf16(const void *const *inputs, int n, int wide, int64_t from, float *output,
                        int64_t count)
{
    struct arithmetic with = arithmetic_best(false);
    for (int64_t i = 0; i < count; i += STRIP)
        strip_sum_bf16(&with, inputs, 0, n, wide, from + i, ls_min(STRIP, count - i), output + i);
}
