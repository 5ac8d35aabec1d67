#include "ops/kernels.h"

#include "ops/kern/block.h"
#include "ops/kern/math.h"

/* sqrt(2 / pi) */
#define GELU_SLOPE 0.79788456f
#define GELU_CUBIC 0.044715f

static void gelu_forward(enum ls_gelu kind, enum ls_dtype act, int64_t count, const void *x,
                         void *y)
{
    float x_buffer[BLOCK], out[BLOCK];
    for (int64_t at = 0; at < count; at += BLOCK) {
        int64_t n = block_length(at, count);
        const float *in = block_read(act, x, at, n, x_buffer);
        if (kind == LS_GELU_TANH)
            for (int64_t i = 0; i < n; i++) {
                float v = in[i], u = GELU_SLOPE * v * __builtin_fmaf(GELU_CUBIC * v, v, 1.0f);
                out[i] = v * math_sigmoid(2.0f * u);
            }
        else
            for (int64_t i = 0; i < n; i++)
                out[i] = in[i] * math_normal_cdf(in[i]);
        block_write(act, out, n, y, at);
    }
}

/* tanh form, with s = (1 + tanh u) / 2 and ds/du = 2 s (1 - s): y' = s + x 2 s (1 - s) u'.
 * erf form: y' = Phi(x) + x phi(x). */
static void gelu_backward(enum ls_gelu kind, enum ls_dtype act, int64_t count, const void *x,
                          const void *dy, void *dx)
{
    float x_buffer[BLOCK], dy_buffer[BLOCK], out[BLOCK];
    for (int64_t at = 0; at < count; at += BLOCK) {
        int64_t n = block_length(at, count);
        const float *in = block_read(act, x, at, n, x_buffer);
        const float *grad = block_read(act, dy, at, n, dy_buffer);
        if (kind == LS_GELU_TANH)
            for (int64_t i = 0; i < n; i++) {
                float v = in[i], v2 = GELU_CUBIC * v * v;
                float u = GELU_SLOPE * v * (1.0f + v2);
                float du = GELU_SLOPE * __builtin_fmaf(3.0f, v2, 1.0f);
                float s = math_sigmoid(2.0f * u);
                out[i] = grad[i] * __builtin_fmaf(2.0f * v * du, s * (1.0f - s), s);
            }
        else
            for (int64_t i = 0; i < n; i++)
                out[i] = grad[i] *
                         __builtin_fmaf(in[i], math_normal_density(in[i]), math_normal_cdf(in[i]));
        block_write(act, out, n, dx, at);
    }
}

static void swiglu_forward(enum ls_dtype act, int64_t rows, int64_t width, const void *gate_up,
                           void *y)
{
    float gate_buffer[BLOCK], up_buffer[BLOCK], out[BLOCK];
    for (int64_t row = 0; row < rows; row++)
        for (int64_t at = 0; at < width; at += BLOCK) {
            int64_t n = block_length(at, width), from = row * 2 * width + at;
            const float *gate = block_read(act, gate_up, from, n, gate_buffer);
            const float *up = block_read(act, gate_up, from + width, n, up_buffer);
            for (int64_t i = 0; i < n; i++)
                out[i] = gate[i] * math_sigmoid(gate[i]) * up[i];
            block_write(act, out, n, y, row * width + at);
        }
}

/* silu'(g) = s (1 + g (1 - s)), s = sigmoid(g). */
static void swiglu_backward(enum ls_dtype act, int64_t rows, int64_t width, const void *gate_up,
                            const void *dy, void *d_gate_up)
{
    float gate_buffer[BLOCK], up_buffer[BLOCK], dy_buffer[BLOCK], d_gate[BLOCK], d_up[BLOCK];
    for (int64_t row = 0; row < rows; row++)
        for (int64_t at = 0; at < width; at += BLOCK) {
            int64_t n = block_length(at, width), from = row * 2 * width + at;
            const float *gate = block_read(act, gate_up, from, n, gate_buffer);
            const float *up = block_read(act, gate_up, from + width, n, up_buffer);
            const float *grad = block_read(act, dy, row * width + at, n, dy_buffer);
            for (int64_t i = 0; i < n; i++) {
                float s = math_sigmoid(gate[i]);
                d_up[i] = grad[i] * (gate[i] * s);
                d_gate[i] = grad[i] * up[i] * (s * __builtin_fmaf(gate[i], 1.0f - s, 1.0f));
            }
            block_write(act, d_gate, n, d_gate_up, from);
            block_write(act, d_up, n, d_gate_up, from + width);
        }
}

static void add(enum ls_dtype act, int64_t count, const void *x, const void *z, void *y)
{
    float x_buffer[BLOCK], z_buffer[BLOCK], out[BLOCK];
    for (int64_t at = 0; at < count; at += BLOCK) {
        int64_t n = block_length(at, count);
        const float *a = block_read(act, x, at, n, x_buffer);
        const float *b = block_read(act, z, at, n, z_buffer);
        for (int64_t i = 0; i < n; i++)
            out[i] = a[i] + b[i];
        block_write(act, out, n, y, at);
    }
}

static void cast_f32_to_bf16(int64_t count, const float *restrict x, ls_bf16 *restrict y)
{
    for (int64_t i = 0; i < count; i++)
        y[i] = ls_f32_to_bf16(x[i]);
}

static void cast_bf16_to_f32(int64_t count, const ls_bf16 *restrict x, float *restrict y)
{
    for (int64_t i = 0; i < count; i++)
        y[i] = ls_bf16_to_f32(x[i]);
}

static void tree_add(int64_t count, float *restrict into, const float *restrict from)
{
    for (int64_t i = 0; i < count; i++)
        into[i] += from[i];
}

/* Philox 4x32-10 for counters {first + j, 0, c2, c3}, j < GROUPS: the loop of base/random.c turned
 * inside out so that it runs in vector lanes. bits[w][j] is word w. */
enum { GROUPS = BLOCK / 4 };
static void philox_groups(struct ls_philox_key key, uint32_t first, uint32_t c2, uint32_t c3,
                          int64_t groups, uint32_t bits[4][GROUPS])
{
    for (int64_t j = 0; j < groups; j++) {
        uint32_t a = first + (uint32_t)j, b = 0, c = c2, d = c3;
        uint32_t k0 = key.word[0], k1 = key.word[1];
        for (int round = 0; round < 10; round++) {
            uint64_t p0 = (uint64_t)0xD2511F53u * a, p1 = (uint64_t)0xCD9E8D57u * c;
            a = (uint32_t)(p1 >> 32) ^ b ^ k0;
            c = (uint32_t)(p0 >> 32) ^ d ^ k1;
            b = (uint32_t)p1;
            d = (uint32_t)p0;
            k0 += 0x9E3779B9u;
            k1 += 0xBB67AE85u;
        }
        bits[0][j] = a;
        bits[1][j] = b;
        bits[2][j] = c;
        bits[3][j] = d;
    }
}

static void dropout(enum ls_dtype act, const struct ls_dropout *op, int64_t begin, int64_t end,
                    const void *x, void *y)
{
    float x_buffer[BLOCK], out[BLOCK], factor[BLOCK];
    uint32_t bits[4][GROUPS];
    float scale = 1.0f / (1.0f - op->p);
    for (int64_t row = begin; row < end; row++) {
        uint64_t token = (uint64_t)(op->first_row + row);
        for (int64_t at = 0; at < op->channels; at += BLOCK) {
            int64_t n = block_length(at, op->channels);
            philox_groups(op->key, (uint32_t)(at / 4), (uint32_t)token, (uint32_t)(token >> 32),
                          (n + 3) / 4, bits);
            for (int64_t j = 0; j < (n + 3) / 4; j++)
                for (int word = 0; word < 4; word++)
                    factor[4 * j + word] = ls_uniform_of(bits[word][j]) >= op->p ? scale : 0.0f;
            const float *in = block_read(act, x, row * op->channels + at, n, x_buffer);
            for (int64_t i = 0; i < n; i++)
                out[i] = factor[i] > 0.0f ? in[i] * scale : 0.0f;
            block_write(act, out, n, y, row * op->channels + at);
        }
    }
}

static void rope(enum ls_dtype act, const struct ls_rope *op, bool backward, int64_t begin,
                 int64_t end, void *x)
{
    enum { HALF_MAX = BLOCK };
    float low_buffer[HALF_MAX], high_buffer[HALF_MAX], low_out[HALF_MAX], high_out[HALF_MAX];
    int64_t half = op->head_dim / 2;
    float sign = backward ? -1.0f : 1.0f;
    for (int64_t row = begin; row < end; row++) {
        int64_t position = op->first_position + row % op->tokens;
        for (int64_t head = 0; head < op->heads; head++)
            for (int64_t at = 0; at < half; at += HALF_MAX) {
                int64_t n = block_length(at, half), from = row * op->ld + head * op->head_dim + at;
                const float *cosine = op->cosine + position * half + at;
                const float *sine = op->sine + position * half + at;
                const float *low = block_read(act, x, from, n, low_buffer);
                const float *high = block_read(act, x, from + half, n, high_buffer);
                for (int64_t i = 0; i < n; i++) {
                    float s = sign * sine[i];
                    low_out[i] = low[i] * cosine[i] - high[i] * s;
                    high_out[i] = high[i] * cosine[i] + low[i] * s;
                }
                block_write(act, low_out, n, x, from);
                block_write(act, high_out, n, x, from + half);
            }
    }
}

extern const struct pointwise_kernels KERNEL(pointwise_kernels);
const struct pointwise_kernels KERNEL(pointwise_kernels) = {
    .gelu_forward = gelu_forward,
    .gelu_backward = gelu_backward,
    .swiglu_forward = swiglu_forward,
    .swiglu_backward = swiglu_backward,
    .add = add,
    .cast_f32_to_bf16 = cast_f32_to_bf16,
    .cast_bf16_to_f32 = cast_bf16_to_f32,
    .tree_add = tree_add,
    .dropout = dropout,
    .rope = rope,
};
