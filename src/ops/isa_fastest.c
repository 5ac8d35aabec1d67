/* Which arithmetic, and which of the instruction sets that give its bits, is the fastest here. */
#include <lockstep/ops.h>
#include <lockstep/ops/gemm.h>

#include <stdlib.h>

/* A product of a layer's size: large enough to show the rate, about a millisecond of a core. */
enum { M = 128, N = 768, K = 768, RUNS = 3 };

/* Seconds of the fastest of some runs on one thread; 0 where it could not be measured. */
static double seconds_of(enum ls_isa isa, enum ls_arithmetic arithmetic, enum ls_dtype act)
{
    struct ls_ops ops;
    struct ls_arena arena;
    struct ls_error ignored;
    double least = 0;
    size_t size = ls_dtype_bytes(act), operands = (M * K + K * N) * size;
    if (ls_arena_init(&arena, operands + M * N * sizeof(float) + 256, &ignored))
        return 0;
    if (ls_ops_init(&ops, 1, isa, &ignored)) {
        ls_arena_release(&arena);
        return 0;
    }
    ops.arithmetic = arithmetic;
    unsigned char *a = ls_arena_take(&arena, operands);
    struct ls_gemm gemm = {.m = M,
                           .n = N,
                           .sections = 1,
                           .k = {K},
                           .tiles = 1,
                           .b_transposed = true,
                           .in = act,
                           .out = LS_F32,
                           .a = a,
                           .b = a + M * K * size,
                           .c = ls_arena_take(&arena, M * N * sizeof(float)),
                           .lda = K,
                           .ldb = K,
                           .ldc = N};
    ls_fill(&ops, operands, 0x3c, a); /* numbers of ordinary size in each type */
    for (int run = 0; run <= RUNS; run++) {
        double begin = ls_now_s();
        if (ls_gemm_run(&ops, &gemm, &ignored) || ls_queue_synchronise(&ops.queue, &ignored))
            break;
        double seconds = ls_now_s() - begin;
        if (run == 1 || (run > 1 && seconds < least)) /* the first one warms up */
            least = seconds;
    }
    ls_ops_release(&ops);
    ls_arena_release(&arena);
    return least;
}

/* Of AVX-512 and `most`, which is above it, the faster one for bf16 in fma; its seconds. */
static enum ls_isa fma_fastest(enum ls_isa most, double *seconds)
{
    double with = seconds_of(most, LS_ARITHMETIC_FMA, LS_BF16);
    double without = seconds_of(LS_ISA_AVX512, LS_ARITHMETIC_FMA, LS_BF16);
    bool narrower = without > 0 && without < 0.95 * with;
    *seconds = narrower ? without : with;
    return narrower ? LS_ISA_AVX512 : most;
}

enum ls_isa ls_isa_fastest(enum ls_isa most, enum ls_arithmetic arithmetic, enum ls_dtype act)
{
    double seconds;
    if (most < LS_ISA_AVX512_BF16 || arithmetic != LS_ARITHMETIC_FMA || act != LS_BF16 ||
        getenv(LS_ISA_VARIABLE))
        return most;
    return fma_fastest(most, &seconds);
}

enum ls_arithmetic ls_arithmetic_fastest(enum ls_isa isa, enum ls_dtype act)
{
    double fma;
    if (isa < LS_ISA_AMX || act != LS_BF16)
        return LS_ARITHMETIC_FMA;
    if (getenv(LS_ISA_VARIABLE))
        return LS_ARITHMETIC_BF16_PAIRS;
    double pairs = seconds_of(isa, LS_ARITHMETIC_BF16_PAIRS, act);
    fma_fastest(isa, &fma);
    return pairs > 0 && pairs < fma ? LS_ARITHMETIC_BF16_PAIRS : LS_ARITHMETIC_FMA;
}
