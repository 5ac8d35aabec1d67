/* Which arithmetic is the fastest on an instruction set, and which set is in an arithmetic. */
#include <lockstep/ops.h>
#include <lockstep/ops/gemm.h>

#include <stdlib.h>
#include <string.h>

/* A product of a layer's size: large enough to show the rate, about a millisecond of a core. */
enum { M = 128, N = 768, K = 768, RUNS = 3 };

/* Seconds of the fastest of some runs of bf16 in fma, on one thread; 0 if it could not be
 * measured. */
static double fma_seconds(enum ls_isa isa)
{
    struct ls_ops ops;
    struct ls_arena arena;
    struct ls_error ignored;
    double least = 0;
    size_t size = ls_dtype_bytes(LS_BF16), operands = (M * K + K * N) * size;
    if (ls_arena_init(&arena, operands + M * N * sizeof(float) + 256, &ignored))
        return 0;
    if (ls_ops_init(&ops, 1, isa, &ignored)) {
        ls_arena_release(&arena);
        return 0;
    }
    ops.arithmetic = LS_ARITHMETIC_FMA;
    unsigned char *a = ls_arena_take(&arena, operands);
    struct ls_gemm gemm = {.m = M,
                           .n = N,
                           .sections = 1,
                           .k = {K},
                           .tiles = 1,
                           .b_transposed = true,
                           .in = LS_BF16,
                           .out = LS_F32,
                           .a = a,
                           .b = a + M * K * size,
                           .c = ls_arena_take(&arena, M * N * sizeof(float)),
                           .lda = K,
                           .ldb = K,
                           .ldc = N};
    memset(a, 0x3c, operands); /* numbers of ordinary size in each type */
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

/* Measured once a process: what a machine is does not change, and a program may open many runs. */
static enum ls_isa fastest_measured(enum ls_isa most)
{
    static _Atomic int known[LS_ISA_COUNT]; /* 1 + a set; 0: not measured */
    int set = known[most] - 1;
    if (set < 0) {
        double with = fma_seconds(most), without = fma_seconds(LS_ISA_AVX512);
        set = (int)(without > 0 && without < 0.95 * with ? LS_ISA_AVX512 : most);
        known[most] = 1 + set;
    }
    return (enum ls_isa)set;
}

enum ls_isa ls_isa_fastest(enum ls_isa most, enum ls_arithmetic arithmetic, enum ls_dtype act)
{
    if (most < LS_ISA_AVX512_BF16 || arithmetic != LS_ARITHMETIC_FMA || act != LS_BF16 ||
        getenv(LS_ISA_VARIABLE))
        return most;
    return fastest_measured(most);
}

enum ls_arithmetic ls_arithmetic_fastest(enum ls_isa isa, enum ls_dtype act)
{
    return isa >= LS_ISA_AMX && act == LS_BF16 ? LS_ARITHMETIC_BF16_PAIRS : LS_ARITHMETIC_FMA;
}
