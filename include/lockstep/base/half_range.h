/* lockstep/base/half_range.h - which numbers bf16 and fp16 have no finite one for. */
#ifndef LOCKSTEP_BASE_HALF_RANGE_H
#define LOCKSTEP_BASE_HALF_RANGE_H

#include <lockstep/base.h>

/* Whether ls_f32_to_half makes a finite x infinite: fp16 from 65520 on, bf16 from 3.3961775e38. No
 * branches. */
static inline bool ls_half_overflows(enum ls_dtype dtype, float x)
{
    /* Of |x|, as integers: the least that is rounded to infinity, and infinity itself. */
    const uint32_t least = dtype == LS_F16 ? 0x477ff000u : 0x7f7f8000u, infinite = 0x7f800000u;
    union {
        float f;
        uint32_t u;
    } v = {x};
    return (v.u & 0x7fffffffu) - least < infinite - least;
}

#endif
