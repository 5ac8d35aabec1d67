/* The updates of AdamW, SGD and Lion, and the exact sum of squares. */
#include "ops/kernels.h"

#include "ops/kern/moments.h"
#include "ops/kern/update_values.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

static void adamw(const struct update_call *c, int64_t begin, int64_t end)
{
    const struct ls_update *update = &c->update;
    const struct ls_adamw *adamw = &c->rule.adamw;
    void *m = c->moment[0], *v = c->moment[1];
    float step_size = c->step_size, inverse_root = c->inverse_root;
    float buffer[BLOCK], m_buffer[BLOCK], v_buffer[BLOCK];
    float beta1 = adamw->beta1, beta2 = adamw->beta2, epsilon = adamw->epsilon;
    float rest1 = (float)(1.0 - (double)beta1), rest2 = (float)(1.0 - (double)beta2);
    float decay = update->lr * update->weight_decay;
    for (int64_t at = begin; at < end; at += BLOCK) {
        int64_t n = block_length(at, end);
        float *restrict p = update->master + at;
        float *restrict m_at = moment_read(update, m, at, n, m_buffer);
        float *restrict v_at = moment_read(update, v, at, n, v_buffer);
        scaled_gradient(update, at, n, buffer);
        for (int64_t i = 0; i < n; i++) {
            float g = buffer[i], kept = p[i] - decay * p[i];
            m_at[i] = beta1 * m_at[i] + rest1 * g;
            v_at[i] = beta2 * v_at[i] + rest2 * (g * g);
            float root = __builtin_sqrtf(v_at[i]) * inverse_root + epsilon;
            p[i] = kept - step_size * m_at[i] / root;
        }
        block_ahead(update, update->gradient, sizeof(float), at, end);
        moment_write(update, 0, m_at, n, m, at);
        block_ahead(update, update->master, sizeof(float), at, end);
        block_ahead(update, m, sizeof(ls_bf16), at, end);
        block_ahead(update, v, sizeof(ls_bf16), at, end);
        moment_write(update, 1, v_at, n, v, at);
        write_compute(update, at, n);
    }
}

static void sgd(const struct update_call *c, int64_t begin, int64_t end)
{
    const struct ls_update *update = &c->update;
    const struct ls_sgd *sgd = &c->rule.sgd;
    void *buffer = c->moment[0];
    float gradient[BLOCK], velocity_buffer[BLOCK];
    float momentum = sgd->momentum, decay = update->weight_decay, lr = update->lr;
    for (int64_t at = begin; at < end; at += BLOCK) {
        int64_t n = block_length(at, end);
        float *restrict p = update->master + at;
        scaled_gradient(update, at, n, gradient);
        for (int64_t i = 0; i < n; i++)
            gradient[i] += decay * p[i];
        if (momentum != 0.0f) {
            float *restrict velocity = moment_read(update, buffer, at, n, velocity_buffer);
            for (int64_t i = 0; i < n; i++) {
                float kept = sgd->step > 1 ? momentum * velocity[i] + gradient[i] : gradient[i];
                velocity[i] = kept;
                gradient[i] = sgd->nesterov ? gradient[i] + momentum * kept : kept;
            }
            moment_write(update, 0, velocity, n, buffer, at);
        }
        for (int64_t i = 0; i < n; i++)
            p[i] -= lr * gradient[i];
        write_compute(update, at, n);
    }
}

static void lion(const struct update_call *c, int64_t begin, int64_t end)
{
    const struct ls_update *update = &c->update;
    const struct ls_lion *lion = &c->rule.lion;
    void *m = c->moment[0];
    float buffer[BLOCK], m_buffer[BLOCK];
    float beta1 = lion->beta1, beta2 = lion->beta2, lr = update->lr, decay = update->weight_decay;
    float rest1 = (float)(1.0 - (double)beta1), rest2 = (float)(1.0 - (double)beta2);
    for (int64_t at = begin; at < end; at += BLOCK) {
        int64_t n = block_length(at, end);
        float *restrict p = update->master + at;
        float *restrict m_at = moment_read(update, m, at, n, m_buffer);
        scaled_gradient(update, at, n, buffer);
        for (int64_t i = 0; i < n; i++) {
            float g = buffer[i], mix = beta1 * m_at[i] + rest1 * g;
            float sign = mix > 0.0f ? 1.0f : mix < 0.0f ? -1.0f : mix; /* NaN stays */
            p[i] -= lr * (sign + decay * p[i]);
            m_at[i] = beta2 * m_at[i] + rest2 * g;
        }
        block_ahead(update, update->gradient, sizeof(float), at, end);
        block_ahead(update, update->master, sizeof(float), at, end);
        block_ahead(update, m, sizeof(ls_bf16), at, end);
        moment_write(update, 0, m_at, n, m, at);
        write_compute(update, at, n);
    }
}

/* ---- exact sum of squares --------------------------------------------------------------------
 *
 * The square of a float is exact in double: 48 bits. With 2^E above the largest magnitude of a
 * block, a square splits exactly at 2^(2E - 44): adding M = 1.5 * 2^(2E + 8) rounds it to a
 * multiple of that (M's own last place), `high`, and what is left, `low`, is at most 2^(2E - 45).
 * For magnitudes of at least 2^(E - 21) low is a multiple of 2^(2E - 88), so that BLOCK = 2^9 of
 * either add up in double without a rounding, in any order: both are multiples of a unit, and their
 * sums stay below 2^53 of it. Rare magnitudes below are taken by another pass, of a smaller E. */
enum { WINDOW_BINADES = 21 };

#if defined(__AVX512F__)
enum { WIDE_LANES = 8 };
#elif defined(__AVX2__)
enum { WIDE_LANES = 4 };
#else
enum { WIDE_LANES = 2 };
#endif
enum { CHAINS = 4, STEP = CHAINS * WIDE_LANES, AHEAD = 4 * BLOCK };
typedef double wide __attribute__((vector_size(WIDE_LANES * sizeof(double))));
typedef int64_t wide_int __attribute__((vector_size(WIDE_LANES * sizeof(int64_t))));

static inline wide widen(const float *x)
{
#if defined(__AVX512F__)
    return _mm512_cvtps_pd(_mm256_loadu_ps(x));
#elif defined(__AVX2__)
    return _mm256_cvtps_pd(_mm_loadu_ps(x));
#else
    return (wide){(double)x[0], (double)x[1]};
#endif
}

/* The least and the largest nonzero magnitude as bits; *least is above *largest where there is
 * none. */
static void magnitudes(const float *x, int64_t n, uint32_t *least, uint32_t *largest)
{
    uint32_t low = UINT32_MAX, high = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        bits &= 0x7fffffffu;
        low = low < bits - 1 ? low : bits - 1; /* zero becomes the largest number */
        high = high > bits ? high : bits;
    }
    *least = low + 1 ? low + 1 : UINT32_MAX;
    *largest = high;
}

static double power_of_two(int exponent)
{
    uint64_t bits = (uint64_t)(exponent + 1023) << 52;
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Squares of x[0 .. n), n <= BLOCK and a multiple of STEP, whose magnitude is in
 * [2^(top - WINDOW_BINADES), 2^top); not masked: all are, or 0. ahead[0 .. n) is fetched by the
 * way: a pass for magnitudes and one for squares hide from the hardware that memory is read on. */
static inline __attribute__((always_inline)) void window_squares(const float *x, int64_t n,
                                                                 const float *ahead, int top,
                                                                 bool masked,
                                                                 struct ls_exact_sum *sum)
{
    const double end = power_of_two(2 * top), begin = power_of_two(2 * (top - WINDOW_BINADES));
    const double magic = 1.5 * power_of_two(2 * top + 8);
    double lane[2][WIDE_LANES];
    wide high[CHAINS] = {{0}}, low[CHAINS] = {{0}};
    for (int64_t i = 0; i < n; i += STEP) {
        for (int64_t k = 0; k < STEP; k += 16)
            __builtin_prefetch(ahead + i + k);
#pragma GCC unroll 4
        for (int c = 0; c < CHAINS; c++) {
            wide value = widen(x + i + c * WIDE_LANES), square = value * value;
            if (masked)
                square = (wide)((wide_int)square & (square >= begin) & (square < end));
            wide part = (square + magic) - magic;
            high[c] += part;
            low[c] += square - part;
        }
    }
    high[0] = (high[0] + high[1]) + (high[2] + high[3]);
    low[0] = (low[0] + low[1]) + (low[2] + low[3]);
    memcpy(lane[0], &high[0], sizeof lane[0]);
    memcpy(lane[1], &low[0], sizeof lane[1]);
    for (int j = 1; j < WIDE_LANES; j++) {
        lane[0][0] += lane[0][j];
        lane[1][0] += lane[1][j];
    }
    ls_exact_add(sum, lane[0][0]);
    ls_exact_add(sum, lane[1][0]);
}

/* The exponent of the first power of two above a magnitude given as bits. */
static int top_of(uint32_t bits)
{
    int biased = (int)(bits >> 23);
    return biased ? biased - 126 : -117 - __builtin_clz(bits);
}

static void squares(const float *gradient, const float *second, int64_t begin, int64_t end,
                    struct ls_exact_sum *sum)
{
    float buffer[BLOCK];
    for (int64_t at = begin; at < end; at += BLOCK) {
        int64_t n = block_length(at, end), whole = ls_round_up(n, STEP);
        const float *x = gradient + at;
        if (second || n < whole) {
            for (int64_t k = 0; k < n; k++)
                buffer[k] = second ? gradient[at + k] + second[at + k] : gradient[at + k];
            memset(buffer + n, 0, (size_t)(whole - n) * sizeof *buffer);
            x = buffer;
        }
        uint32_t least, largest;
        magnitudes(x, n, &least, &largest);
        if (largest >= 0x7f800000u) {
            sum->nonfinite = 1;
            return;
        }
        const float *ahead = gradient + ls_min(at + AHEAD, end - n);
        int top = top_of(largest | 1), bottom = top_of(least);
        if (bottom > top - WINDOW_BINADES)
            window_squares(x, whole, ahead, top, false, sum);
        else
            for (; bottom <= top; top -= WINDOW_BINADES)
                window_squares(x, whole, ahead, top, true, sum);
    }
}

extern const struct update_kernels KERNEL(update_kernels);
const struct update_kernels KERNEL(update_kernels) = {
    .of = {[UPDATE_ADAMW] = adamw, [UPDATE_SGD] = sgd, [UPDATE_LION] = lion},
    .squares = squares,
};
