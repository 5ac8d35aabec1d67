/* The only additions of this module: the tree over rank index (law of sums, S1 and S3). */
#include "comm/internal.h"

#include <string.h>

/* A strip of every input and a partial sum per tree level stay in the first cache level. */
enum { STRIP = 1024 };

static void add(const float *restrict a, const float *restrict b, float *restrict sum,
                int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        sum[i] = a[i] + b[i];
}

static void add_into(float *restrict sum, const float *restrict b, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        sum[i] += b[i];
}

/* sum[count] = tree sum of inputs[0..n)[offset + i], n >= 2, count <= STRIP. */
static void strip_sum(const float *const *inputs, int n, int64_t offset, int64_t count, float *sum)
{
    if (n == 2) {
        add(inputs[0] + offset, inputs[1] + offset, sum, count);
        return;
    }
    int split = (int)ls_tree_split(n);
    strip_sum(inputs, split, offset, count, sum);
    if (n - split == 1) {
        add_into(sum, inputs[split] + offset, count);
        return;
    }
    float right[STRIP];
    strip_sum(inputs + split, n - split, offset, count, right);
    add_into(sum, right, count);
}

void comm_tree_sum(const float *const *inputs, int n, int64_t from, float *const *outputs,
                   int outputs_count, int64_t to, int64_t count)
{
    float sum[STRIP];
    for (int64_t i = 0; i < count; i += STRIP) {
        int64_t length = ls_min(STRIP, count - i);
        if (n == 1)
            memcpy(sum, inputs[0] + from + i, (size_t)length * sizeof *sum);
        else
            strip_sum(inputs, n, from + i, length, sum);
        for (int j = 0; j < outputs_count; j++)
            memcpy(outputs[j] + to + i, sum, (size_t)length * sizeof *sum);
    }
}
