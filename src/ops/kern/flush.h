/* ops/kern/flush.h - in products of bf16 subnormal numbers are zero, as operands and as sums:
 * AVX512_BF16 and AMX know no other way. Sums of tiles keep them. AArch64 looks at a sum before it
 * is rounded, x86-64 after: they part where a sum below 2^-126 rounds up to it. Processors of other
 * kinds keep subnormal numbers. */
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
#elif defined(__aarch64__)
#include <stdint.h>

static inline unsigned subnormals_flush(void)
{
    enum { FLUSH_TO_ZERO = 1 << 24 };
    uint64_t control;
    __asm__ volatile("mrs %0, fpcr" : "=r"(control));
    __asm__ volatile("msr fpcr, %0" : : "r"(control | FLUSH_TO_ZERO) : "memory");
    return (unsigned)control;
}

static inline void subnormals_restore(unsigned control)
{
    __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)control) : "memory");
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
