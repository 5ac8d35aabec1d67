#include "ops/kernels.h"

#include "ops/kern/block.h"
#include "ops/kern/math.h"
#include "ops/tree.h"

/* Largest of row[0 .. count); NaNs are passed over (the sum of exponentials meets them). */
static float row_max(enum ls_dtype act, const void *z, int64_t from, int64_t count)
{
    float buffer[BLOCK], lane[LANES];
    for (int j = 0; j < LANES; j++)
        lane[j] = -__builtin_inff();
    for (int64_t at = 0; at < count; at += BLOCK) {
        int64_t n = block_length(at, count), i = 0;
        const float *in = block_read(act, z, from + at, n, buffer);
        for (; i + LANES <= n; i += LANES)
            for (int j = 0; j < LANES; j++) {
                float value = in[i + j];
                lane[j] = lane[j] < value ? value : lane[j];
            }
        for (; i < n; i++)
            lane[0] = lane[0] < in[i] ? in[i] : lane[0];
    }
    for (int j = 1; j < LANES; j++)
        lane[0] = lane[0] < lane[j] ? lane[j] : lane[0];
    return lane[0];
}

/* sum of exp(z - max) over one tile of the vocabulary. */
static float tile_sum(enum ls_dtype act, const void *z, int64_t from, int64_t count, float max)
{
    float buffer[BLOCK], power[BLOCK], lane[LANES] = {0};
    for (int64_t at = 0; at < count; at += BLOCK) {
        int64_t n = block_length(at, count);
        const float *in = block_read(act, z, from + at, n, buffer);
        for (int64_t i = 0; i < n; i++)
            power[i] = math_exp_nonpositive(in[i] - max);
        lanes_add(lane, power, n);
    }
    return lanes_sum(lane);
}

/* Tiles by the tree. */
static float row_sum(const struct ls_cross_entropy *op, const void *z, int64_t from, float max)
{
    float stack[64];
    int top = 0;
    int64_t tile_width = op->padded / op->tiles;
    for (int64_t tile = 0; tile < op->tiles; tile++) {
        int64_t first = tile * tile_width;
        int64_t count = ls_max(0, ls_min(tile_width, op->vocabulary - first));
        stack[top++] = tile_sum(op->act, z, from + first, count, max);
        for (int merges = ops_tree_merges(tile, op->tiles); merges > 0; merges--, top--)
            stack[top - 2] += stack[top - 1];
    }
    return stack[0];
}

/* z = scale * (exp(z - max) / sum - onehot), padding 0. */
static void row_gradient(const struct ls_cross_entropy *op, void *z, int64_t from, int32_t target,
                         float max, float sum)
{
    float buffer[BLOCK], out[BLOCK];
    float inverse = 1.0f / sum, scale = op->scale;
    for (int64_t at = 0; at < op->vocabulary; at += BLOCK) {
        int64_t n = block_length(at, op->vocabulary);
        const float *in = block_read(op->act, z, from + at, n, buffer);
        for (int64_t i = 0; i < n; i++)
            out[i] = math_exp_nonpositive(in[i] - max) * inverse * scale;
        if (target >= at && target < at + n)
            out[target - at] =
                (math_exp_nonpositive(in[target - at] - max) * inverse - 1.0f) * scale;
        block_write(op->act, out, n, z, from + at);
    }
}

static void row_clear(const struct ls_cross_entropy *op, void *z, int64_t from, int64_t begin,
                      int64_t end)
{
    size_t bytes = op->act == LS_BF16 ? sizeof(ls_bf16) : sizeof(float);
    memset((char *)z + (size_t)(from + begin) * bytes, 0, (size_t)(end - begin) * bytes);
}

static void cross_entropy(const struct ls_cross_entropy *op, void *logits, const int32_t *target,
                          float *loss, int64_t begin, int64_t end)
{
    for (int64_t row = begin; row < end; row++) {
        int64_t from = row * op->padded;
        if (target[row] < 0) {
            loss[row] = 0.0f;
            if (op->scale != 0.0f)
                row_clear(op, logits, from, 0, op->padded);
            continue;
        }
        float max = row_max(op->act, logits, from, op->vocabulary);
        float sum = row_sum(op, logits, from, max), one[1];
        float at_target = *block_read(op->act, logits, from + target[row], 1, one);
        loss[row] = math_log(sum) + (max - at_target);
        if (op->scale != 0.0f) {
            row_gradient(op, logits, from, target[row], max, sum);
            row_clear(op, logits, from, op->vocabulary, op->padded);
        }
    }
}

extern const struct loss_kernels KERNEL(loss_kernels);
const struct loss_kernels KERNEL(loss_kernels) = {.cross_entropy = cross_entropy};
