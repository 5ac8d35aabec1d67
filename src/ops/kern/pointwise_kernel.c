/* Elementwise kernels: activations, sums, biases, dropout, casts. */
#include "ops/kernels.h"

#include "ops/kern/math.h"
#include "ops/kern/philox.h"

/* tanh form: with u = sqrt(2/pi) (x + 0.044715 x^3), (1 + tanh u) / 2 = 1 / (1 + 2^t), where
 * t = -2 u log2(e) = x (A x^2 + B). */
#define GELU_A -0.10294324f
#define GELU_B -2.3022082f
/* 2 x du/dx = x (C x^2 + D) */
#define GELU_C 0.21406445f
#define GELU_D 1.5957691f

static void gelu_forward(const struct pointwise *e)
{
    float x_buffer[BLOCK], out[BLOCK];
    for (int64_t at = 0; at < e->rows; at += BLOCK) {
        int64_t n = block_length(at, e->rows);
        const float *in = block_read(e->act, e->x, at, n, x_buffer);
        if (e->form == LS_GELU_TANH)
            for (int64_t i = 0; i < n; i++) {
                float v = in[i], t = v * __builtin_fmaf(GELU_A * v, v, GELU_B);
                out[i] = v / (1.0f + math_exp2_clamped(t));
            }
        else
            for (int64_t i = 0; i < n; i++)
                out[i] = in[i] * math_normal_cdf(in[i]);
        block_write(e->act, out, n, e->y, at);
    }
}

/* tanh form, with s = (1 + tanh u) / 2 and ds/du = 2 s (1 - s): y' = s + s (1 - s) 2 x du/dx.
 * erf form: y' = Phi(x) + x phi(x). */
static void gelu_backward(const struct pointwise *e)
{
    float x_buffer[BLOCK], dy_buffer[BLOCK], out[BLOCK];
    for (int64_t at = 0; at < e->rows; at += BLOCK) {
        int64_t n = block_length(at, e->rows);
        const float *in = block_read(e->act, e->x, at, n, x_buffer);
        const float *grad = block_read(e->act, e->z, at, n, dy_buffer);
        if (e->form == LS_GELU_TANH)
            for (int64_t i = 0; i < n; i++) {
                float v = in[i], v2 = v * v;
                float s = 1.0f / (1.0f + math_exp2_clamped(v * __builtin_fmaf(GELU_A, v2, GELU_B)));
                float rise = s * v * __builtin_fmaf(GELU_C, v2, GELU_D);
                out[i] = grad[i] * __builtin_fmaf(1.0f - s, rise, s);
            }
        else
            for (int64_t i = 0; i < n; i++)
                out[i] = grad[i] *
                         __builtin_fmaf(in[i], math_normal_density(in[i]), math_normal_cdf(in[i]));
        block_write(e->act, out, n, e->y, at);
    }
}

/* GELU's tanh form, and its derivative: s as above. */
static inline float gelu_share(float x)
{
    return 1.0f / (1.0f + math_exp2_clamped(x * __builtin_fmaf(GELU_A * x, x, GELU_B)));
}

static inline float gelu_slope(float x, float s)
{
    return __builtin_fmaf(1.0f - s, s * x * __builtin_fmaf(GELU_C, x * x, GELU_D), s);
}

HALF_INLINE void glu_forward_of(enum ls_glu kind, enum ls_dtype act, int64_t rows, int64_t width,
                                const void *gate_up, void *y)
{
    bool gelu = kind == LS_GEGLU;
    float gate_buffer[BLOCK], up_buffer[BLOCK], out[BLOCK];
    for (int64_t row = 0; row < rows; row++)
        for (int64_t at = 0; at < width; at += BLOCK) {
            int64_t n = block_length(at, width), from = row * 2 * width + at;
            const float *gate = block_read(act, gate_up, from, n, gate_buffer);
            const float *up = block_read(act, gate_up, from + width, n, up_buffer);
            for (int64_t i = 0; i < n; i++) {
                float s = gelu ? gelu_share(gate[i]) : math_sigmoid(gate[i]);
                out[i] = gate[i] * s * up[i];
            }
            block_write(act, out, n, y, row * width + at);
        }
}

/* silu'(g) = s (1 + g (1 - s)), s = sigmoid(g). */
HALF_INLINE void glu_backward_of(enum ls_glu kind, enum ls_dtype act, int64_t rows, int64_t width,
                                 const void *gate_up, const void *dy, void *d_gate_up)
{
    bool gelu = kind == LS_GEGLU;
    float gate_buffer[BLOCK], up_buffer[BLOCK], dy_buffer[BLOCK], d_gate[BLOCK], d_up[BLOCK];
    for (int64_t row = 0; row < rows; row++)
        for (int64_t at = 0; at < width; at += BLOCK) {
            int64_t n = block_length(at, width), from = row * 2 * width + at;
            const float *gate = block_read(act, gate_up, from, n, gate_buffer);
            const float *up = block_read(act, gate_up, from + width, n, up_buffer);
            const float *grad = block_read(act, dy, row * width + at, n, dy_buffer);
            for (int64_t i = 0; i < n; i++) {
                float s = gelu ? gelu_share(gate[i]) : math_sigmoid(gate[i]);
                float slope =
                    gelu ? gelu_slope(gate[i], s) : s * __builtin_fmaf(gate[i], 1.0f - s, 1.0f);
                d_up[i] = grad[i] * (gate[i] * s);
                d_gate[i] = grad[i] * up[i] * slope;
            }
            block_write(act, d_gate, n, d_gate_up, from);
            block_write(act, d_up, n, d_gate_up, from + width);
        }
}

/* Each kind is compiled on its own. */
static void glu_forward(const struct pointwise *e)
{
    if (e->form == LS_GEGLU)
        glu_forward_of(LS_GEGLU, e->act, e->rows, e->width, e->x, e->y);
    else
        glu_forward_of(LS_SWIGLU, e->act, e->rows, e->width, e->x, e->y);
}

static void glu_backward(const struct pointwise *e)
{
    if (e->form == LS_GEGLU)
        glu_backward_of(LS_GEGLU, e->act, e->rows, e->width, e->x, e->z, e->y);
    else
        glu_backward_of(LS_SWIGLU, e->act, e->rows, e->width, e->x, e->z, e->y);
}

static void softcap(const struct pointwise *e)
{
    float x_buffer[BLOCK], out[BLOCK], cap = e->factor, inverse = 1.0f / cap;
    for (int64_t at = 0; at < e->rows; at += BLOCK) {
        int64_t n = block_length(at, e->rows);
        const float *in = block_read(e->act, e->x, at, n, x_buffer);
        for (int64_t i = 0; i < n; i++)
            out[i] = cap * math_tanh(in[i] * inverse);
        block_write(e->act, out, n, e->y, at);
    }
}

static void scale(const struct pointwise *e)
{
    float x_buffer[BLOCK], out[BLOCK], factor = e->factor;
    for (int64_t at = 0; at < e->rows; at += BLOCK) {
        int64_t n = block_length(at, e->rows);
        const float *in = block_read(e->act, e->x, at, n, x_buffer);
        for (int64_t i = 0; i < n; i++)
            out[i] = factor * in[i];
        block_write(e->act, out, n, e->y, at);
    }
}

static void add(const struct pointwise *e)
{
    float x_buffer[BLOCK], z_buffer[BLOCK], out[BLOCK];
    for (int64_t at = 0; at < e->rows; at += BLOCK) {
        int64_t n = block_length(at, e->rows);
        const float *a = block_read(e->act, e->x, at, n, x_buffer);
        const float *b = block_read(e->act, e->z, at, n, z_buffer);
        for (int64_t i = 0; i < n; i++)
            out[i] = a[i] + b[i];
        block_write(e->act, out, n, e->y, at);
    }
}

HALF_INLINE void bias_round_half(enum ls_dtype act, int64_t n, const float *x, const float *bias,
                                 ls_half *y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = half_rounded(act, bias ? x[i] + bias[i] : x[i]);
}

/* Not with block_write: y may be x. */
static void bias_round_row(enum ls_dtype act, int64_t n, const float *x, const float *bias, void *y)
{
    float *whole = y;
    if (act == LS_F32)
        for (int64_t i = 0; i < n; i++)
            whole[i] = bias ? x[i] + bias[i] : x[i];
    else if (act == LS_BF16)
        bias_round_half(LS_BF16, n, x, bias, y);
    else
        bias_round_half(LS_F16, n, x, bias, y);
}

static void bias_round(const struct pointwise *e)
{
    int64_t n = e->width, bytes = e->act == LS_F32 ? 4 : 2;
    for (int64_t row = 0; row < e->rows; row++)
        bias_round_row(e->act, n, (const float *)e->x + row * n, e->z,
                       (char *)e->y + row * n * bytes);
}

static void cast_to_half(const struct pointwise *e)
{
    block_write(e->act, e->x, e->rows, e->y, 0);
}

static void cast_from_half(const struct pointwise *e)
{
    block_read(e->act, e->x, 0, e->rows, e->y);
}

static void tree_add(const struct pointwise *e)
{
    float *restrict into = e->y;
    const float *restrict from = e->x;
    int64_t count = e->rows;
    for (int64_t i = 0; i < count; i++)
        into[i] += from[i];
}

/* NaN wins, always the same one, and +0 is above -0: the bits do not depend on the order. */
static inline float greater_of(float a, float b)
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

/* out may be a or b. */
static void rank_join(enum ls_rank_sum_form form, int64_t n, const float *a, const float *b,
                      float *out)
{
    if (form == LS_RANK_SUM_MAX) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            out[i] = greater_of(a[i], b[i]);
    } else {
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            out[i] = a[i] + b[i];
    }
}

/* A block of the tree over in[inputs]: it is in[0], or in out. left is room for a block: out,
 * unless that is one of the inputs. */
static const float *rank_tree(enum ls_rank_sum_form form, const float *const *in, int inputs,
                              int64_t n, float *left, float *out)
{
    float right[BLOCK];
    int split = inputs > 1 ? (int)ls_tree_split(inputs) : 0;
    if (split == 0)
        return in[0];
    const float *a = rank_tree(form, in, split, n, left, left);
    const float *b = rank_tree(form, in + split, inputs - split, n, right, right);
    rank_join(form, n, a, b, out);
    return out;
}

static const float *rank_block(enum ls_rank_sum_form form, const void *input, int64_t at, int64_t n,
                               float *restrict buffer)
{
    const float *whole = (const float *)input + at;
    if (form != LS_RANK_SUM_ROUNDED)
        return block_read(form == LS_RANK_SUM_BF16 ? LS_BF16 : LS_F32, input, at, n, buffer);
    for (int64_t i = 0; i < n; i++)
        buffer[i] = ls_bf16_to_f32(half_rounded(LS_BF16, whole[i]));
    return buffer;
}

static void rank_sum(const struct ls_rank_sum *op, int64_t begin, int64_t end)
{
    float buffers[LS_RANK_SUM_INPUTS][BLOCK], tree[BLOCK];
    const float *in[LS_RANK_SUM_INPUTS];
    /* Two inputs of float32 need no buffer, but for a leaf that is added to out. */
    bool direct = op->n <= 2 && (op->inner == 1 || !op->onto) &&
                  (op->form == LS_RANK_SUM_F32 || op->form == LS_RANK_SUM_MAX);
    for (int64_t at = begin, n; at < end; at += n) {
        float *out = op->out + at;
        n = direct ? end - at : block_length(at, end);
        const float *sum = op->onto ? out : NULL;
        for (int r = 0; r < op->n; r++)
            in[r] = rank_block(op->form, op->inputs[r], at, n, buffers[r]);
        for (int r = 0; r < op->n; r += op->inner) {
            const float *leaf = rank_tree(op->form, in + r, op->inner, n, tree, sum ? tree : out);
            if (sum)
                rank_join(op->form, n, sum, leaf, out);
            sum = sum ? out : leaf;
        }
        if (sum != out)
            memcpy(out, sum, (size_t)n * sizeof *out);
    }
}

static void dropout(enum ls_dtype act, const struct ls_dropout *op, int64_t begin, int64_t end,
                    const void *x, void *y)
{
    float x_buffer[BLOCK], out[BLOCK], factor[BLOCK];
    uint32_t bits[4][PHILOX_GROUPS];
    float p = op->p, scale = 1.0f / (1.0f - p);
    for (int64_t row = begin; row < end; row++) {
        uint64_t token = (uint64_t)(op->first_row + row);
        for (int64_t at = 0; at < op->channels; at += BLOCK) {
            int64_t n = block_length(at, op->channels);
            philox_groups(op->key, (uint64_t)at / 4, token, (n + 3) / 4, bits);
            for (int64_t j = 0; j < (n + 3) / 4; j++) {
                factor[4 * j] = ls_uniform_of(bits[0][j]) >= p ? scale : 0.0f;
                factor[4 * j + 1] = ls_uniform_of(bits[1][j]) >= p ? scale : 0.0f;
                factor[4 * j + 2] = ls_uniform_of(bits[2][j]) >= p ? scale : 0.0f;
                factor[4 * j + 3] = ls_uniform_of(bits[3][j]) >= p ? scale : 0.0f;
            }
            const float *in = block_read(act, x, row * op->channels + at, n, x_buffer);
            for (int64_t i = 0; i < n; i++)
                out[i] = factor[i] > 0.0f ? in[i] * scale : 0.0f;
            block_write(act, out, n, y, row * op->channels + at);
        }
    }
}

static void rope_head_f32(int64_t half, const float *restrict cosine, const float *restrict sine,
                          float sign, float *restrict low, float *restrict high)
{
    for (int64_t i = 0; i < half; i++) {
        float s = sign * sine[i], a = low[i], b = high[i];
        low[i] = a * cosine[i] - b * s;
        high[i] = b * cosine[i] + a * s;
    }
}

HALF_INLINE void rope_head_half(enum ls_dtype act, int64_t half, const float *restrict cosine,
                                const float *restrict sine, float sign, ls_half *restrict low)
{
    ls_half *restrict high = low + half;
    for (int64_t i = 0; i < half; i++) {
        float s = sign * sine[i], a = ls_half_to_f32(act, low[i]);
        float b = ls_half_to_f32(act, high[i]);
        low[i] = half_rounded(act, a * cosine[i] - b * s);
        high[i] = half_rounded(act, b * cosine[i] + a * s);
    }
}

static void rope(enum ls_dtype act, const struct ls_rope *op, bool backward, int64_t begin,
                 int64_t end, void *x)
{
    int64_t half = op->head_dim / 2;
    float sign = backward ? -1.0f : 1.0f;
    for (int64_t row = begin; row < end; row++) {
        int64_t position = op->first_position + row % op->tokens;
        const float *cosine = op->cosine + position * half, *sine = op->sine + position * half;
        for (int64_t head = 0; head < op->heads; head++) {
            int64_t from = row * op->ld + head * op->head_dim;
            if (act == LS_F32)
                rope_head_f32(half, cosine, sine, sign, (float *)x + from,
                              (float *)x + from + half);
            else if (act == LS_BF16)
                rope_head_half(LS_BF16, half, cosine, sine, sign, (ls_half *)x + from);
            else
                rope_head_half(LS_F16, half, cosine, sine, sign, (ls_half *)x + from);
        }
    }
}

extern const struct pointwise_kernels KERNEL(pointwise_kernels);
const struct pointwise_kernels KERNEL(pointwise_kernels) = {
    .of = {[GELU_FORWARD] = gelu_forward,
           [GELU_BACKWARD] = gelu_backward,
           [GLU_FORWARD] = glu_forward,
           [GLU_BACKWARD] = glu_backward,
           [SOFTCAP] = softcap,
           [SCALE] = scale,
           [ADD] = add,
           [BIAS_ROUND] = bias_round,
           [CAST_TO_HALF] = cast_to_half,
           [CAST_FROM_HALF] = cast_from_half,
           [TREE_ADD] = tree_add},
    .rank_sum = rank_sum,
    .dropout = dropout,
    .rope = rope,
};
