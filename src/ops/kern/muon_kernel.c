/* The elementwise parts of Muon's update, and the polynomial of its iteration. */
#include "ops/kernels.h"

#include "ops/kern/moments.h"
#include "ops/kern/update_values.h"

static void momentum(const struct muon_call *c, int64_t begin, int64_t end)
{
    const struct ls_update *update = &c->update;
    bool nesterov = c->muon.nesterov;
    float gradient[BLOCK], m_buffer[BLOCK];
    float rest = (float)(1.0 - (double)c->muon.momentum);
    for (int64_t at = begin; at < end; at += BLOCK) {
        int64_t n = block_length(at, end);
        float *restrict m_at = moment_read(update, c->m, at, n, m_buffer), *out = c->direction + at;
        scaled_gradient(update, at, n, gradient);
        for (int64_t i = 0; i < n; i++) {
            float g = gradient[i], kept = m_at[i] + rest * (g - m_at[i]);
            m_at[i] = kept;
            out[i] = nesterov ? kept + rest * (g - kept) : kept;
        }
        moment_write(update, 0, m_at, n, c->m, at);
    }
}

static void step(const struct muon_call *c, int64_t begin, int64_t end)
{
    const struct ls_update *update = &c->update;
    float decay = update->lr * update->weight_decay, size = update->lr * c->scale;
    for (int64_t at = begin; at < end; at += BLOCK) {
        int64_t n = block_length(at, end);
        float *restrict p = update->master + at;
        const float *o = c->orthogonal + at;
        for (int64_t i = 0; i < n; i++)
            p[i] = (p[i] - decay * p[i]) - size * o[i];
        write_compute(update, at, n);
    }
}

static void scale(float factor, float *x, int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end; i++)
        x[i] *= factor;
}

/* Of each row up to its diagonal. */
static void polynomial(int64_t n, const float *gram, float *square, int64_t begin, int64_t end)
{
    const float a = 3.4445f, b = -4.7750f, c = 2.0315f;
    for (int64_t i = begin; i < end; i++) {
        const float *restrict g = gram + i * n;
        float *restrict s = square + i * n;
        for (int64_t j = 0; j <= i; j++)
            s[j] = b * g[j] + c * s[j];
        s[i] += a;
    }
}

extern const struct muon_kernels KERNEL(muon_kernels);
const struct muon_kernels KERNEL(muon_kernels) = {
    .of = {[MUON_MOMENTUM] = momentum, [MUON_STEP] = step},
    .scale = scale,
    .polynomial = polynomial,
};
