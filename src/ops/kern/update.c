#include "ops/kernels.h"

#include "ops/kern/block.h"

/* (gradient + second) * gradient_scale */
static void scaled_gradient(const struct ls_update *update, int64_t at, int64_t n,
                            float *restrict out)
{
    const float *gradient = update->gradient + at, scale = update->gradient_scale;
    if (update->second)
        for (int64_t i = 0; i < n; i++)
            out[i] = (gradient[i] + update->second[at + i]) * scale;
    else
        for (int64_t i = 0; i < n; i++)
            out[i] = gradient[i] * scale;
}

static void write_compute(const struct ls_update *update, int64_t at, int64_t n)
{
    if (update->compute)
        block_write(LS_BF16, update->master + at, n, update->compute, at);
}

static void adamw(const struct ls_update *update, const struct ls_adamw *adamw, float step_size,
                  float inverse_root, float *m, float *v, int64_t begin, int64_t end)
{
    float buffer[BLOCK];
    float beta1 = adamw->beta1, beta2 = adamw->beta2, epsilon = adamw->epsilon;
    float rest1 = (float)(1.0 - (double)beta1), rest2 = (float)(1.0 - (double)beta2);
    float decay = update->lr * update->weight_decay;
    for (int64_t at = begin; at < end; at += BLOCK) {
        int64_t n = block_length(at, end);
        float *restrict p = update->master + at, *restrict m_at = m + at, *restrict v_at = v + at;
        scaled_gradient(update, at, n, buffer);
        for (int64_t i = 0; i < n; i++) {
            float g = buffer[i], kept = p[i] - decay * p[i];
            m_at[i] = beta1 * m_at[i] + rest1 * g;
            v_at[i] = beta2 * v_at[i] + rest2 * (g * g);
            float root = __builtin_sqrtf(v_at[i]) * inverse_root + epsilon;
            p[i] = kept - step_size * m_at[i] / root;
        }
        write_compute(update, at, n);
    }
}

static void sgd(const struct ls_update *update, const struct ls_sgd *sgd, float *buffer,
                int64_t begin, int64_t end)
{
    float gradient[BLOCK];
    float momentum = sgd->momentum, decay = update->weight_decay, lr = update->lr;
    for (int64_t at = begin; at < end; at += BLOCK) {
        int64_t n = block_length(at, end);
        float *restrict p = update->master + at;
        scaled_gradient(update, at, n, gradient);
        for (int64_t i = 0; i < n; i++)
            gradient[i] += decay * p[i];
        if (momentum != 0.0f) {
            float *restrict velocity = buffer + at;
            for (int64_t i = 0; i < n; i++) {
                float kept = sgd->step > 1 ? momentum * velocity[i] + gradient[i] : gradient[i];
                velocity[i] = kept;
                gradient[i] = sgd->nesterov ? gradient[i] + momentum * kept : kept;
            }
        }
        for (int64_t i = 0; i < n; i++)
            p[i] -= lr * gradient[i];
        write_compute(update, at, n);
    }
}

static void lion(const struct ls_update *update, const struct ls_lion *lion, float *m,
                 int64_t begin, int64_t end)
{
    float buffer[BLOCK];
    float beta1 = lion->beta1, beta2 = lion->beta2, lr = update->lr, decay = update->weight_decay;
    float rest1 = (float)(1.0 - (double)beta1), rest2 = (float)(1.0 - (double)beta2);
    for (int64_t at = begin; at < end; at += BLOCK) {
        int64_t n = block_length(at, end);
        float *restrict p = update->master + at, *restrict m_at = m + at;
        scaled_gradient(update, at, n, buffer);
        for (int64_t i = 0; i < n; i++) {
            float g = buffer[i], c = beta1 * m_at[i] + rest1 * g;
            float sign = c > 0.0f ? 1.0f : c < 0.0f ? -1.0f : c; /* NaN stays */
            p[i] -= lr * (sign + decay * p[i]);
            m_at[i] = beta2 * m_at[i] + rest2 * g;
        }
        write_compute(update, at, n);
    }
}

static double squares(const float *gradient, const float *second, int64_t begin, int64_t end)
{
    enum { WIDE_LANES = 16 };
    double lane[WIDE_LANES] = {0};
    float buffer[BLOCK];
    for (int64_t at = begin; at < end; at += BLOCK) {
        int64_t n = block_length(at, end), i = 0;
        const float *x = gradient + at;
        if (second) {
            for (int64_t k = 0; k < n; k++)
                buffer[k] = gradient[at + k] + second[at + k];
            x = buffer;
        }
        for (; i + WIDE_LANES <= n; i += WIDE_LANES)
            for (int j = 0; j < WIDE_LANES; j++)
                lane[j] += (double)x[i + j] * (double)x[i + j];
        for (int j = 0; i < n; i++, j++)
            lane[j] += (double)x[i] * (double)x[i];
    }
    for (int half = WIDE_LANES / 2; half > 0; half /= 2)
        for (int j = 0; j < half; j++)
            lane[j] += lane[j + half];
    return lane[0];
}

extern const struct update_kernels KERNEL(update_kernels);
const struct update_kernels KERNEL(update_kernels) = {
    .adamw = adamw,
    .sgd = sgd,
    .lion = lion,
    .squares = squares,
};
