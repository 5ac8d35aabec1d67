/* The only additions of this module: the tree over rank index (law of sums, S1 and S3). An addition
 * of two floats has one result, so vectors of any width give the same bits. */
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

static void add_plain(const float *a, const float *b, float *sum, int64_t count)
{
    add_loop(a, b, sum, count);
}

#ifdef __x86_64__
__attribute__((target("avx2"))) static void add_avx2(const float *a, const float *b, float *sum,
                                                     int64_t count)
{
    add_loop(a, b, sum, count);
}
#endif

typedef void add_function(const float *a, const float *b, float *sum, int64_t count);

static add_function *add_best(void)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2"))
        return add_avx2;
#endif
    return add_plain;
}

/* sum[count] = tree sum of inputs[0..n)[offset + i], n >= 2, count <= STRIP. */
static void strip_sum(add_function *add, const float *const *inputs, int n, int64_t offset,
                      int64_t count, float *sum)
{
    if (n == 2) {
        add(inputs[0] + offset, inputs[1] + offset, sum, count);
        return;
    }
    int split = (int)ls_tree_split(n);
    strip_sum(add, inputs, split, offset, count, sum);
    if (n - split == 1) {
        add(sum, inputs[split] + offset, sum, count);
        return;
    }
    float right[STRIP];
    strip_sum(add, inputs + split, n - split, offset, count, right);
    add(sum, right, sum, count);
}

void comm_tree_sum(const float *const *inputs, int n, int64_t from, float *const *outputs,
                   int outputs_count, int64_t to, int64_t count)
{
    float sum[STRIP];
    add_function *add = add_best();
    if (n == 2 && outputs_count == 1) {
        add(inputs[0] + from, inputs[1] + from, outputs[0] + to, count);
        return;
    }
    for (int64_t i = 0; i < count; i += STRIP) {
        int64_t length = ls_min(STRIP, count - i);
        if (n == 1)
            memcpy(sum, inputs[0] + from + i, (size_t)length * sizeof *sum);
        else
            strip_sum(add, inputs, n, from + i, length, sum);
        for (int j = 0; j < outputs_count; j++)
            memcpy(outputs[j] + to + i, sum, (size_t)length * sizeof *sum);
    }
}
