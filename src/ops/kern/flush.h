/* ops/kern/flush.h - in products of bf16 subnormal numbers are zero, as operands and as sums, on
 * every instruction set of x86-64: AVX512_BF16 and AMX know no other way. Other processors keep
 * them, so far. */
#ifndef OPS_KERN_FLUSH_H
#define OPS_KERN_FLUSH_H

#if defined(__SSE2__)
#include <xmmintrin.h>

/* What this thread computes from here on; returns what subnormals_restore takes. */
static inline unsigned subnormals_flush(void)
{
    enum { FLUSH_TO_ZERO = 1 << 15, DENORMALS_ARE_ZERO = 1 << 6 };
    unsigned control = _mm_getcsr();
    _mm_setcsr(control | FLUSH_TO_ZERO | DENORMALS_ARE_ZERO);
    return control;
}

static inline void subnormals_restore(unsigned control)
{
    _mm_setcsr(control);
}
#else
static inline unsigned subnormals_flush(void)
{
    return 0;
}

static inline void subnormals_restore(unsigned control)
{
    (void)control;
}
#endif

#endif
