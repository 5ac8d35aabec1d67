/* Cross-entropy over a vocabulary, whole or in tiles, and the gradient of its logits. */
#include "ops/kernels.h"

#include "ops/kern/block.h"
#include "ops/kern/math.h"
#include "ops/tree.h"

/* Columns here that are no padding. */
static int64_t columns_of(const struct ls_cross_entropy *op)
{
    return ls_max(0, ls_min(op->padded, op->vocabulary - op->first));
}

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

/* Sums over the vocabulary: of e = exp(z - max), and of (z - max) e where these are asked for. */
struct sums {
    float powers, products;
};

/* 0 if e is: z may be -inf. */
static void products_of(const float *z, float max, int64_t n, float *power)
{
    for (int64_t i = 0; i < n; i++)
        power[i] = power[i] == 0.0f ? 0.0f : (z[i] - max) * power[i];
}

/* Over one tile. */
static struct sums tile_sums(enum ls_dtype act, const void *z, int64_t from, int64_t count,
                             float max, bool products)
{
    float buffer[BLOCK], power[BLOCK], lane[LANES] = {0}, product_lane[LANES] = {0};
    for (int64_t at = 0; at < count; at += BLOCK) {
        int64_t n = block_length(at, count);
        const float *in = block_read(act, z, from + at, n, buffer);
        for (int64_t i = 0; i < n; i++)
            power[i] = math_exp_nonpositive(in[i] - max);
        lanes_add(lane, power, n);
        if (products) {
            products_of(in, max, n, power);
            lanes_add(product_lane, power, n);
        }
    }
    return (struct sums){lanes_sum(lane), products ? lanes_sum(product_lane) : 0.0f};
}

/* Tiles by the tree. */
static struct sums row_sums(const struct ls_cross_entropy *op, const void *z, int64_t from,
                            float max, bool products)
{
    struct sums stack[64];
    int top = 0;
    int64_t tile_width = op->padded / op->tiles, columns = columns_of(op);
    for (int64_t tile = 0; tile < op->tiles; tile++) {
        int64_t at = tile * tile_width;
        int64_t count = ls_max(0, ls_min(tile_width, columns - at));
        stack[top++] = tile_sums(op->act, z, from + at, count, max, products);
        for (int merges = ops_tree_merges(tile, op->tiles); merges > 0; merges--, top--) {
            stack[top - 2].powers += stack[top - 1].powers;
            stack[top - 2].products += stack[top - 1].products;
        }
    }
    return stack[0];
}

/* The target's logit, 0 if its column is not here. */
static float row_target(const struct ls_cross_entropy *op, const void *z, int64_t from,
                        int64_t target)
{
    float one[1];
    int64_t column = target - op->first;
    bool here = target >= 0 && column >= 0 && column < op->padded;
    return here ? *block_read(op->act, z, from + column, 1, one) : 0.0f;
}

/* The derivative of z = cap tanh(x / cap): 1 - (z / cap)^2. */
static void through_softcap(float cap, const float *restrict z, int64_t n, float *restrict out)
{
    float inverse = 1.0f / cap;
    for (int64_t i = 0; i < n; i++) {
        float t = z[i] * inverse;
        out[i] *= (1.0f - t) * (1.0f + t);
    }
}

/* What a row's loss is weighted by. */
static float row_weight(const struct ls_cross_entropy *op, int64_t row)
{
    return op->weight ? op->weight[row] : 1.0f;
}

/* What the entropy of its row is weighted by. */
static float row_entropy_weight(const struct ls_cross_entropy *op, int64_t row)
{
    return op->entropy_weight ? op->entropy_weight[row] : 0.0f;
}

/* out -= scale * p (log p + H), where log p + H = z - max - W / S; 0 if p is: z may be -inf. */
static void entropy_gradient(const float *restrict z, const float *restrict p, float max,
                             float mean, float scale, int64_t n, float *restrict out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] -= p[i] == 0.0f ? 0.0f : p[i] * (z[i] - max - mean) * scale;
}

/* z = scale * (weight (p - onehot) - entropy_weight p (log p + H)), p = exp(z - max) / sum, through
 * the soft cap where there is one. */
static void row_gradient(const struct ls_cross_entropy *op, void *z, int64_t row, int64_t column,
                         float max, float sum)
{
    float buffer[BLOCK], p[BLOCK], out[BLOCK];
    float inverse = 1.0f / sum, scale = op->scale * row_weight(op, row);
    float entropy_scale = op->scale * row_entropy_weight(op, row);
    int64_t columns = columns_of(op), from = row * op->padded;
    for (int64_t at = 0; at < columns; at += BLOCK) {
        int64_t n = block_length(at, columns);
        const float *in = block_read(op->act, z, from + at, n, buffer);
        for (int64_t i = 0; i < n; i++) {
            p[i] = math_exp_nonpositive(in[i] - max) * inverse;
            out[i] = p[i] * scale;
        }
        if (column >= at && column < at + n)
            out[column - at] = (p[column - at] - 1.0f) * scale;
        if (entropy_scale != 0.0f)
            entropy_gradient(in, p, max, op->product[row] / sum, entropy_scale, n, out);
        if (op->softcap > 0.0f)
            through_softcap(op->softcap, in, n, out);
        block_write(op->act, out, n, z, from + at);
    }
}

static void row_clear(const struct ls_cross_entropy *op, void *z, int64_t from, int64_t begin,
                      int64_t end)
{
    size_t bytes = ls_dtype_bytes(op->act);
    memset((char *)z + (size_t)(from + begin) * bytes, 0, (size_t)(end - begin) * bytes);
}

/* A row of weights 0 has a gradient of zero even where its softmax is no number. */
static float row_finish(const struct ls_cross_entropy *op, void *z, int64_t row, int32_t target,
                        float max, float sum, float target_logit)
{
    int64_t from = row * op->padded;
    bool counts = row_weight(op, row) != 0.0f || row_entropy_weight(op, row) != 0.0f;
    if (op->scale != 0.0f) {
        if (counts)
            row_gradient(op, z, row, target - op->first, max, sum);
        row_clear(op, z, from, counts ? columns_of(op) : 0, op->padded);
    }
    return math_log(sum) + (max - target_logit);
}

static float row_ignored(const struct ls_cross_entropy *op, void *z, int64_t from)
{
    if (op->scale != 0.0f)
        row_clear(op, z, from, 0, op->padded);
    return 0.0f;
}

static void whole(const struct loss_call *c, int64_t begin, int64_t end)
{
    const struct ls_cross_entropy *op = &c->op;
    for (int64_t row = begin; row < end; row++) {
        int64_t from = row * op->padded;
        if (c->target[row] < 0) {
            c->out[row] = row_ignored(op, c->logits, from);
            continue;
        }
        float max = row_max(op->act, c->logits, from, columns_of(op));
        float sum = row_sums(op, c->logits, from, max, false).powers;
        float target_logit = row_target(op, c->logits, from, c->target[row]);
        c->out[row] = row_finish(op, c->logits, row, c->target[row], max, sum, target_logit);
    }
}

static void max_of(const struct loss_call *c, int64_t begin, int64_t end)
{
    for (int64_t row = begin; row < end; row++)
        c->max[row] = row_max(c->op.act, c->logits, row * c->op.padded, columns_of(&c->op));
}

static void sum_of(const struct loss_call *c, int64_t begin, int64_t end)
{
    for (int64_t row = begin; row < end; row++) {
        int64_t from = row * c->op.padded, target = c->target[row];
        struct sums sums = {0};
        if (target >= 0 || c->out)
            sums = row_sums(&c->op, c->logits, from, c->max[row], c->out != NULL);
        c->sum[row] = sums.powers;
        c->beside[row] = row_target(&c->op, c->logits, from, target);
        if (c->out)
            c->out[row] = sums.products;
    }
}

static void finish(const struct loss_call *c, int64_t begin, int64_t end)
{
    for (int64_t row = begin; row < end; row++) {
        int32_t target = c->target[row];
        c->out[row] = target < 0 ? row_ignored(&c->op, c->logits, row * c->op.padded)
                                 : row_finish(&c->op, c->logits, row, target, c->max[row],
                                              c->sum[row], c->beside[row]);
    }
}

static void entropy(const struct loss_call *c, int64_t begin, int64_t end)
{
    for (int64_t row = begin; row < end; row++)
        c->out[row] = math_log(c->sum[row]) - c->beside[row] / c->sum[row];
}

extern const struct loss_kernels KERNEL(loss_kernels);
const struct loss_kernels KERNEL(loss_kernels) = {.of = {[LOSS_WHOLE] = whole,
                                                         [LOSS_MAX] = max_of,
                                                         [LOSS_SUM] = sum_of,
                                                         [LOSS_FINISH] = finish,
                                                         [ENTROPY] = entropy}};
