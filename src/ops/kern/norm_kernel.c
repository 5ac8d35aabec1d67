/* LayerNorm and RMSNorm: forward, gradient of the input, gradient of the weights. */
#include "ops/kernels.h"

#include "ops/kern/block.h"
#include "ops/tree.h"

/* Where row r and its statistics lie. */
static inline int64_t place_of(const struct ls_norm *norm, int64_t r)
{
    if (!norm->heads)
        return r * norm->channels;
    return r / norm->heads * norm->ld + r % norm->heads * norm->channels;
}

static inline int64_t statistics_of(const struct ls_norm *norm, int64_t r)
{
    return norm->heads ? r / norm->heads * norm->statistics_ld + r % norm->heads : r;
}

/* A row is worked on as float32 on the stack, whatever act is: it stays in the nearest cache. */

HALF_INLINE void load_sum_half(enum ls_dtype act, int64_t n, const ls_half *a, const ls_half *b,
                               ls_half *restrict to, float *restrict row)
{
    for (int64_t i = 0; i < n; i++) {
        to[i] = half_rounded(act, ls_half_to_f32(act, a[i]) + ls_half_to_f32(act, b[i]));
        row[i] = ls_half_to_f32(act, to[i]);
    }
}

/* row = x + residual rounded to act, also written to sum; without residual row = x. */
static void load_sum(const struct ls_norm *norm, const void *x, const void *residual, void *sum,
                     int64_t from, float *restrict row)
{
    int64_t n = norm->channels;
    if (!residual) {
        const float *in = block_read(norm->act, x, from, n, row);
        if (in != row)
            memcpy(row, in, (size_t)n * sizeof *row);
    } else if (norm->act == LS_F32) {
        const float *a = (const float *)x + from, *b = (const float *)residual + from;
        float *to = (float *)sum + from;
        for (int64_t i = 0; i < n; i++)
            to[i] = row[i] = a[i] + b[i];
    } else {
        const ls_half *a = (const ls_half *)x + from, *b = (const ls_half *)residual + from;
        ls_half *to = (ls_half *)sum + from;
        if (norm->act == LS_BF16)
            load_sum_half(LS_BF16, n, a, b, to, row);
        else
            load_sum_half(LS_F16, n, a, b, to, row);
    }
}

static float row_mean(const float *row, int64_t n)
{
    float lane[LANES] = {0};
    lanes_add(lane, row, n);
    return lanes_sum(lane) / (float)n;
}

static float row_mean_square(const float *row, int64_t n)
{
    float lane[LANES] = {0};
    lanes_add_product(lane, row, row, n);
    return lanes_sum(lane) / (float)n;
}

/* y = row * rstd * weight + bias */
static void store_scaled(const struct ls_norm *norm, const float *restrict row, float rstd, void *y,
                         int64_t from)
{
    float out[BLOCK];
    for (int64_t at = 0; at < norm->channels; at += BLOCK) {
        int64_t n = block_length(at, norm->channels);
        const float *weight = norm->weight + at;
        if (norm->bias)
            for (int64_t i = 0; i < n; i++)
                out[i] = row[at + i] * rstd * weight[i] + norm->bias[at + i];
        else
            for (int64_t i = 0; i < n; i++)
                out[i] = row[at + i] * rstd * weight[i];
        block_write(norm->act, out, n, y, from + at);
    }
}

static void layernorm_forward(const struct norm_call *c, int64_t begin, int64_t end)
{
    const struct ls_norm *norm = &c->norm;
    float row[LS_NORM_CHANNELS_MAX];
    int64_t n = norm->channels;
    for (int64_t r = begin; r < end; r++) {
        int64_t from = place_of(norm, r), at = statistics_of(norm, r);
        load_sum(norm, c->x, c->z, c->sum, from, row);
        float mean = row_mean(row, n);
        for (int64_t i = 0; i < n; i++)
            row[i] -= mean;
        float rstd = 1.0f / __builtin_sqrtf(row_mean_square(row, n) + norm->epsilon);
        store_scaled(norm, row, rstd, c->y, from);
        norm->mean[at] = mean;
        norm->rstd[at] = rstd;
    }
}

/* The weight itself, in buffer where it is kept as its distance from one. */
static const float *weight_of(const struct ls_norm *norm, float *restrict buffer)
{
    if (!norm->plus_one)
        return norm->weight;
    for (int64_t i = 0; i < norm->channels; i++)
        buffer[i] = 1.0f + norm->weight[i];
    return buffer;
}

static void rmsnorm_forward(const struct norm_call *c, int64_t begin, int64_t end)
{
    float row[LS_NORM_CHANNELS_MAX], weight[LS_NORM_CHANNELS_MAX];
    struct ls_norm of_weight = c->norm;
    const struct ls_norm *norm = &of_weight;
    of_weight.weight = weight_of(&c->norm, weight);
    int64_t n = norm->channels;
    for (int64_t r = begin; r < end; r++) {
        int64_t from = place_of(norm, r);
        load_sum(norm, c->x, c->z, c->sum, from, row);
        float rstd = 1.0f / __builtin_sqrtf(row_mean_square(row, n) + norm->epsilon);
        store_scaled(norm, row, rstd, c->y, from);
        norm->rstd[statistics_of(norm, r)] = rstd;
    }
}

HALF_INLINE void load_gradient_half(enum ls_dtype act, const struct ls_norm *norm, float mean,
                                    float rstd, const ls_half *h, const ls_half *dy,
                                    float *restrict normal, float *restrict grad)
{
    const float *restrict weight = norm->weight;
    for (int64_t i = 0; i < norm->channels; i++) {
        normal[i] = (ls_half_to_f32(act, h[i]) - mean) * rstd;
        grad[i] = ls_half_to_f32(act, dy[i]) * weight[i];
    }
}

/* normal = (h - mean) rstd and grad = dy weight, for one row. */
static void load_gradient(const struct ls_norm *norm, float mean, float rstd, const void *h,
                          const void *dy, int64_t from, float *restrict normal,
                          float *restrict grad)
{
    int64_t n = norm->channels;
    const float *restrict weight = norm->weight;
    if (norm->act == LS_F32) {
        const float *in = (const float *)h + from, *out_grad = (const float *)dy + from;
        for (int64_t i = 0; i < n; i++) {
            normal[i] = (in[i] - mean) * rstd;
            grad[i] = out_grad[i] * weight[i];
        }
    } else {
        const ls_half *in = (const ls_half *)h + from, *out_grad = (const ls_half *)dy + from;
        if (norm->act == LS_BF16)
            load_gradient_half(LS_BF16, norm, mean, rstd, in, out_grad, normal, grad);
        else
            load_gradient_half(LS_F16, norm, mean, rstd, in, out_grad, normal, grad);
    }
}

/* With n = (h - mean) rstd and g = dy weight:
 *   LayerNorm  dh = rstd (g - mean(g) - n mean(g n)),   RMSNorm  dh = rstd (g - n mean(g n)). */
static void backward_input(const struct norm_call *c, const struct ls_norm *norm, bool centered,
                           int64_t begin, int64_t end)
{
    float normal[LS_NORM_CHANNELS_MAX], grad[LS_NORM_CHANNELS_MAX], buffer[BLOCK], out[BLOCK];
    for (int64_t r = begin; r < end; r++) {
        int64_t from = place_of(norm, r), statistics = statistics_of(norm, r);
        float rstd = norm->rstd[statistics], g_lane[LANES] = {0}, gn_lane[LANES] = {0};
        load_gradient(norm, centered ? norm->mean[statistics] : 0.0f, rstd, c->x, c->z, from,
                      normal, grad);
        if (centered)
            lanes_add(g_lane, grad, norm->channels);
        lanes_add_product(gn_lane, grad, normal, norm->channels);
        float g_mean = centered ? lanes_sum(g_lane) / (float)norm->channels : 0.0f;
        float gn_mean = lanes_sum(gn_lane) / (float)norm->channels;
        for (int64_t at = 0; at < norm->channels; at += BLOCK) {
            int64_t n = block_length(at, norm->channels);
            for (int64_t i = 0; i < n; i++)
                out[i] = rstd * (grad[at + i] - g_mean - normal[at + i] * gn_mean);
            if (c->around) {
                const float *around = block_read(norm->act, c->around, from + at, n, buffer);
                for (int64_t i = 0; i < n; i++)
                    out[i] += around[i];
            }
            block_write(norm->act, out, n, c->y, from + at);
        }
    }
}

static void layernorm_backward(const struct norm_call *c, int64_t begin, int64_t end)
{
    backward_input(c, &c->norm, true, begin, end);
}

static void rmsnorm_backward(const struct norm_call *c, int64_t begin, int64_t end)
{
    float weight[LS_NORM_CHANNELS_MAX];
    struct ls_norm of_weight = c->norm;
    of_weight.weight = weight_of(&c->norm, weight);
    backward_input(c, &of_weight, false, begin, end);
}

/* ---- rows of which ranks hold parts ---------------------------------------------------------- */

/* Of one tile: of h^2, or of dy weight h rstd. */
static float cut_tile(const struct ls_norm *norm, int64_t row, int64_t first, int64_t count,
                      const void *h, const void *dy)
{
    float h_buffer[BLOCK], dy_buffer[BLOCK], product[BLOCK], lane[LANES] = {0};
    for (int64_t at = 0; at < count; at += BLOCK) {
        int64_t n = block_length(at, count), from = row * norm->ld + first + at;
        const float *in = block_read(norm->act, h, from, n, h_buffer);
        if (dy) {
            const float *grad = block_read(norm->act, dy, from, n, dy_buffer);
            const float *weight = norm->weight + first + at;
            float rstd = norm->rstd[row * norm->statistics_ld];
            for (int64_t i = 0; i < n; i++)
                product[i] = grad[i] * weight[i] * (in[i] * rstd);
        } else {
            for (int64_t i = 0; i < n; i++)
                product[i] = in[i] * in[i];
        }
        lanes_add(lane, product, n);
    }
    return lanes_sum(lane);
}

static void cut_sum(const struct norm_call *c, int64_t begin, int64_t end)
{
    const struct ls_norm_cut *cut = &c->cut;
    int64_t width = cut->count / cut->tiles;
    for (int64_t row = begin; row < end; row++) {
        float stack[64] = {0};
        int top = 0;
        for (int64_t tile = 0; tile < cut->tiles; tile++) {
            stack[top++] = cut_tile(&c->norm, row, cut->first + tile * width, width, c->x, c->z);
            for (int merges = ops_tree_merges(tile, cut->tiles); merges > 0; merges--, top--)
                stack[top - 2] += stack[top - 1];
        }
        c->row_sums[row] = stack[0];
    }
}

static void cut_finish(const struct norm_call *c, int64_t begin, int64_t end)
{
    const struct ls_norm *norm = &c->norm;
    const void *dy = c->z;
    float h_buffer[BLOCK], dy_buffer[BLOCK], out[BLOCK];
    for (int64_t row = begin; row < end; row++) {
        float mean = c->row_sums[row] / (float)c->cut.whole;
        float *rstd = &norm->rstd[row * norm->statistics_ld];
        if (!dy)
            *rstd = 1.0f / __builtin_sqrtf(mean + norm->epsilon);
        for (int64_t at = 0; at < norm->channels; at += BLOCK) {
            int64_t n = block_length(at, norm->channels), from = row * norm->ld + at;
            const float *in = block_read(norm->act, c->x, from, n, h_buffer);
            const float *weight = norm->weight + at;
            const float *grad = dy ? block_read(norm->act, dy, from, n, dy_buffer) : NULL;
            if (dy)
                for (int64_t i = 0; i < n; i++)
                    out[i] = *rstd * (grad[i] * weight[i] - in[i] * *rstd * mean);
            else
                for (int64_t i = 0; i < n; i++)
                    out[i] = in[i] * *rstd * weight[i];
            block_write(norm->act, out, n, c->y, from);
        }
    }
}

extern const struct norm_kernels KERNEL(norm_kernels);
const struct norm_kernels KERNEL(norm_kernels) = {
    .of = {[LAYERNORM_FORWARD] = layernorm_forward,
           [RMSNORM_FORWARD] = rmsnorm_forward,
           [LAYERNORM_BACKWARD] = layernorm_backward,
           [RMSNORM_BACKWARD] = rmsnorm_backward,
           [RMSNORM_CUT_SUM] = cut_sum,
           [RMSNORM_CUT_FINISH] = cut_finish},
};
