#include "ops/kernels.h"

#include "ops/kern/block.h"

/* h = x + residual into sum, rounded; returns what the norm reads from then on. */
static const void *add_residual(const struct ls_norm *norm, const void *x, const void *residual,
                                void *sum, int64_t from)
{
    if (!residual)
        return x;
    float x_buffer[BLOCK], r_buffer[BLOCK], out[BLOCK];
    for (int64_t at = 0; at < norm->channels; at += BLOCK) {
        int64_t n = block_length(at, norm->channels);
        const float *a = block_read(norm->act, x, from + at, n, x_buffer);
        const float *b = block_read(norm->act, residual, from + at, n, r_buffer);
        for (int64_t i = 0; i < n; i++)
            out[i] = a[i] + b[i];
        block_write(norm->act, out, n, sum, from + at);
    }
    return sum;
}

static float row_mean(const struct ls_norm *norm, const void *h, int64_t from)
{
    float buffer[BLOCK], lane[LANES] = {0};
    for (int64_t at = 0; at < norm->channels; at += BLOCK) {
        int64_t n = block_length(at, norm->channels);
        lanes_add(lane, block_read(norm->act, h, from + at, n, buffer), n);
    }
    return lanes_sum(lane) / (float)norm->channels;
}

/* mean of (h - center)^2 */
static float row_mean_square(const struct ls_norm *norm, const void *h, int64_t from, float center)
{
    float buffer[BLOCK], difference[BLOCK], lane[LANES] = {0};
    for (int64_t at = 0; at < norm->channels; at += BLOCK) {
        int64_t n = block_length(at, norm->channels);
        const float *in = block_read(norm->act, h, from + at, n, buffer);
        for (int64_t i = 0; i < n; i++)
            difference[i] = in[i] - center;
        lanes_add_product(lane, difference, difference, n);
    }
    return lanes_sum(lane) / (float)norm->channels;
}

static void row_scale(const struct ls_norm *norm, const void *h, int64_t from, float center,
                      float rstd, void *y)
{
    float buffer[BLOCK], out[BLOCK];
    for (int64_t at = 0; at < norm->channels; at += BLOCK) {
        int64_t n = block_length(at, norm->channels);
        const float *in = block_read(norm->act, h, from + at, n, buffer);
        const float *weight = norm->weight + at;
        if (norm->bias)
            for (int64_t i = 0; i < n; i++)
                out[i] = (in[i] - center) * rstd * weight[i] + norm->bias[at + i];
        else
            for (int64_t i = 0; i < n; i++)
                out[i] = (in[i] - center) * rstd * weight[i];
        block_write(norm->act, out, n, y, from + at);
    }
}

static void layernorm_forward(const struct ls_norm *norm, const void *x, const void *residual,
                              void *sum, void *y, int64_t begin, int64_t end)
{
    for (int64_t row = begin; row < end; row++) {
        int64_t from = row * norm->channels;
        const void *h = add_residual(norm, x, residual, sum, from);
        float mean = row_mean(norm, h, from);
        float variance = row_mean_square(norm, h, from, mean);
        float rstd = 1.0f / __builtin_sqrtf(variance + norm->epsilon);
        row_scale(norm, h, from, mean, rstd, y);
        norm->mean[row] = mean;
        norm->rstd[row] = rstd;
    }
}

static void rmsnorm_forward(const struct ls_norm *norm, const void *x, const void *residual,
                            void *sum, void *y, int64_t begin, int64_t end)
{
    for (int64_t row = begin; row < end; row++) {
        int64_t from = row * norm->channels;
        const void *h = add_residual(norm, x, residual, sum, from);
        float square = row_mean_square(norm, h, from, 0.0f);
        float rstd = 1.0f / __builtin_sqrtf(square + norm->epsilon);
        row_scale(norm, h, from, 0.0f, rstd, y);
        norm->rstd[row] = rstd;
    }
}

/* With n = (h - mean) rstd and g = dy weight:
 *   LayerNorm  dh = rstd (g - mean(g) - n mean(g n)),   RMSNorm  dh = rstd (g - n mean(g n)). */
static void backward_row(const struct ls_norm *norm, bool centered, const void *h, const void *dy,
                         const void *d_residual, void *dh, int64_t row)
{
    float h_buffer[BLOCK], dy_buffer[BLOCK], r_buffer[BLOCK], normal[BLOCK], grad[BLOCK];
    float g_lane[LANES] = {0}, gn_lane[LANES] = {0};
    float mean = centered ? norm->mean[row] : 0.0f, rstd = norm->rstd[row];
    int64_t from = row * norm->channels;
    for (int64_t at = 0; at < norm->channels; at += BLOCK) {
        int64_t n = block_length(at, norm->channels);
        const float *in = block_read(norm->act, h, from + at, n, h_buffer);
        const float *out_grad = block_read(norm->act, dy, from + at, n, dy_buffer);
        for (int64_t i = 0; i < n; i++) {
            normal[i] = (in[i] - mean) * rstd;
            grad[i] = out_grad[i] * norm->weight[at + i];
        }
        if (centered)
            lanes_add(g_lane, grad, n);
        lanes_add_product(gn_lane, grad, normal, n);
    }
    float g_mean = centered ? lanes_sum(g_lane) / (float)norm->channels : 0.0f;
    float gn_mean = lanes_sum(gn_lane) / (float)norm->channels;
    for (int64_t at = 0; at < norm->channels; at += BLOCK) {
        int64_t n = block_length(at, norm->channels);
        const float *in = block_read(norm->act, h, from + at, n, h_buffer);
        const float *out_grad = block_read(norm->act, dy, from + at, n, dy_buffer);
        for (int64_t i = 0; i < n; i++) {
            float normalised = (in[i] - mean) * rstd;
            float g = out_grad[i] * norm->weight[at + i];
            grad[i] = rstd * (g - g_mean - normalised * gn_mean);
        }
        if (d_residual) {
            const float *around = block_read(norm->act, d_residual, from + at, n, r_buffer);
            for (int64_t i = 0; i < n; i++)
                grad[i] += around[i];
        }
        block_write(norm->act, grad, n, dh, from + at);
    }
}

static void layernorm_backward_input(const struct ls_norm *norm, const void *h, const void *dy,
                                     const void *d_residual, void *dh, int64_t begin, int64_t end)
{
    for (int64_t row = begin; row < end; row++)
        backward_row(norm, true, h, dy, d_residual, dh, row);
}

static void rmsnorm_backward_input(const struct ls_norm *norm, const void *h, const void *dy,
                                   const void *d_residual, void *dh, int64_t begin, int64_t end)
{
    for (int64_t row = begin; row < end; row++)
        backward_row(norm, false, h, dy, d_residual, dh, row);
}

extern const struct norm_kernels KERNEL(norm_kernels);
const struct norm_kernels KERNEL(norm_kernels) = {
    .layernorm_forward = layernorm_forward,
    .rmsnorm_forward = rmsnorm_forward,
    .layernorm_backward_input = layernorm_backward_input,
    .rmsnorm_backward_input = rmsnorm_backward_input,
};
