/* Outer deltas: their largest magnitude, encodings and sums; mixing and compensation. */
#include "ops/kernels.h"

#include "ops/kern/block.h"

static uint32_t amax(const float *restrict global, const float *restrict local, int64_t begin,
                     int64_t end)
{
    uint32_t most = 0;
    for (int64_t i = begin; i < end; i++) {
        union {
            float f;
            uint32_t u;
        } d = {global[i] - local[i]};
        uint32_t size = d.u & 0x7fffffffu;
        most = size > most ? size : most;
    }
    return most;
}

/* Adding 1.5 x 2^23 leaves a whole number in the last bits of the sum, halves rounded to even. */
static void to_int8(const float *restrict x, int64_t n, float scale, int8_t *restrict q)
{
    if (scale == 0.0f) {
        memset(q, 0, (size_t)n);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        float ratio = x[i] / scale, number = ratio == ratio ? ratio : 0.0f;
        float below = number < 127.0f ? number : 127.0f, kept = below > -127.0f ? below : -127.0f;
        union {
            float f;
            int32_t i;
        } sum = {kept + 0x1.8p23f};
        q[i] = (int8_t)(sum.i - 0x4b400000);
    }
}

static void encode(const struct delta_call *c, int64_t begin, int64_t end)
{
    const float *global = c->x, *local = c->z;
    float delta[BLOCK];
    for (int64_t at = begin; at < end; at += BLOCK) {
        int64_t n = block_length(at, end);
        for (int64_t i = 0; i < n; i++)
            delta[i] = global[at + i] - local[at + i];
        if (c->type == LS_DELTA_INT8)
            to_int8(delta, n, c->factor, (int8_t *)c->y + at);
        else
            block_write(ls_delta_dtype(c->type), delta, n, c->y, at);
    }
}

static void sum_whole(enum ls_dtype dtype, const void *parts, int64_t stride, int parts_count,
                      void *out, int64_t begin, int64_t end)
{
    float buffer[BLOCK], sum[BLOCK];
    for (int64_t at = begin; at < end; at += BLOCK) {
        int64_t n = block_length(at, end);
        memcpy(sum, block_read(dtype, parts, at, n, buffer), (size_t)n * sizeof *sum);
        for (int p = 1; p < parts_count; p++) {
            const float *part = block_read(dtype, parts, p * stride + at, n, buffer);
            for (int64_t i = 0; i < n; i++)
                sum[i] += part[i];
        }
        block_write(dtype, sum, n, out, at);
    }
}

static void sum_int8(const int8_t *restrict parts, int64_t stride, int parts_count,
                     int16_t *restrict out, int64_t begin, int64_t end)
{
    for (int64_t at = begin; at < end; at += BLOCK) {
        int64_t n = block_length(at, end);
        for (int64_t i = 0; i < n; i++)
            out[at + i] = parts[at + i];
        for (int p = 1; p < parts_count; p++)
            for (int64_t i = 0; i < n; i++)
                out[at + i] = (int16_t)(out[at + i] + parts[p * stride + at + i]);
    }
}

static void sum(enum ls_delta_type type, const void *parts, int64_t stride, int parts_count,
                void *out, int64_t begin, int64_t end)
{
    if (type == LS_DELTA_INT8)
        sum_int8(parts, stride, parts_count, out, begin, end);
    else
        sum_whole(ls_delta_dtype(type), parts, stride, parts_count, out, begin, end);
}

static void decode(const struct delta_call *c, int64_t begin, int64_t end)
{
    float *restrict out = c->y, scale = c->factor;
    if (c->type == LS_DELTA_F32)
        memcpy(out + begin, (const float *)c->x + begin, (size_t)(end - begin) * sizeof *out);
    else if (c->type == LS_DELTA_BF16)
        block_read(LS_BF16, c->x, begin, end - begin, out + begin);
    else
        for (int64_t i = begin; i < end; i++)
            out[i] = (float)((const int16_t *)c->x)[i] * scale;
}

static void mix(const struct delta_call *c, int64_t begin, int64_t end)
{
    const float *restrict global = c->x, share = c->factor;
    float *restrict local = c->y;
    if (share == 0.0f)
        memcpy(local + begin, global + begin, (size_t)(end - begin) * sizeof *local);
    else if (share < 0.5f)
        for (int64_t i = begin; i < end; i++)
            local[i] = __builtin_fmaf(share, local[i] - global[i], global[i]);
    else if (share != 1.0f)
        for (int64_t i = begin; i < end; i++)
            local[i] = __builtin_fmaf(share - 1.0f, local[i] - global[i], local[i]);
}

static void compensate(const struct delta_call *c, int64_t begin, int64_t end)
{
    float *restrict gradient = c->y, lambda = c->factor;
    const float *restrict now = c->x, *restrict then = c->z;
    if (lambda == 0.0f)
        return;
    for (int64_t i = begin; i < end; i++) {
        float g = gradient[i], curvature = lambda * g * g;
        gradient[i] = g + curvature * (now[i] - then[i]);
    }
}

extern const struct delta_kernels KERNEL(delta_kernels);
const struct delta_kernels KERNEL(delta_kernels) = {
    .amax = amax,
    .of = {[DELTA_ENCODE] = encode,
           [DELTA_DECODE] = decode,
           [DELTA_MIX] = mix,
           [DELTA_COMPENSATE] = compensate},
    .sum = sum,
};
