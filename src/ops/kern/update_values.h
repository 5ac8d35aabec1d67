/* ops/kern/update_values.h - what updates read and write: the gradient, the rounded copy. */
#ifndef OPS_KERN_UPDATE_VALUES_H
#define OPS_KERN_UPDATE_VALUES_H

#include "ops/kern/half.h"

/* (gradient + second) * gradient_scale */
static inline void scaled_gradient(const struct ls_update *update, int64_t at, int64_t n,
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

static inline void write_compute(const struct ls_update *update, int64_t at, int64_t n)
{
    if (update->compute)
        half_round(update->compute_type, update->master + at, n, update->compute + at);
}

#endif
