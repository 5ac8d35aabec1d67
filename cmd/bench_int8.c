/* lockstep bench int8: one product in float32, in bf16, with int8 on both sides and with weights of
 * int8 alone, for few rows and for many, in turns. */
#include "bench.h"
#include "launch.h"

#include <lockstep/base/words.h>
#include <lockstep/ops.h>

#include <stdio.h>

enum { ROUNDS = 7 };

/* y = x W^T in each kind; of int8 the activations are bf16. */
enum kind { FP32, BF16, INT8, WEIGHTS, KINDS };

struct bench {
    struct ls_ops ops;
    int64_t rows, n, k, tiles;
    struct ls_gemm gemm[KINDS];
};

static const int64_t row_counts[] = {1, 4, 16, 64, 256, 1024};
enum { ROW_COUNTS = sizeof row_counts / sizeof row_counts[0] };

static float value_of(int64_t i)
{
    return (float)(i * 2654435761u % 4096) / 2048 - 1;
}

static void *filled(struct ls_arena *arena, enum ls_dtype dtype, int64_t count)
{
    void *x = ls_arena_take(arena, (size_t)count * ls_dtype_bytes(dtype));
    for (int64_t i = 0; x && i < count; i++)
        if (dtype == LS_F32)
            ((float *)x)[i] = value_of(i);
        else if (dtype == LS_BF16)
            ((ls_half *)x)[i] = ls_f32_to_half(dtype, value_of(i));
        else
            ((int8_t *)x)[i] = (int8_t)(value_of(i) * LS_INT8_MOST);
    return x;
}

/* With a measuring arena only counts. */
static void operands(struct bench *b, struct ls_arena *arena)
{
    const int64_t most = row_counts[ROW_COUNTS - 1];
    void *c = filled(arena, LS_F32, most * b->n);
    const float *scales = filled(arena, LS_F32, b->n * b->tiles);
    const void *x[] = {filled(arena, LS_F32, most * b->k), filled(arena, LS_BF16, most * b->k)};
    const void *w[] = {filled(arena, LS_F32, b->n * b->k), filled(arena, LS_BF16, b->n * b->k),
                       filled(arena, LS_I8, b->n * b->k)};
    for (int kind = 0; kind < KINDS; kind++)
        b->gemm[kind] = (struct ls_gemm){.n = b->n,
                                         .sections = 1,
                                         .k = {b->k},
                                         .tiles = b->tiles,
                                         .b_transposed = true,
                                         .in = kind == FP32 ? LS_F32 : LS_BF16,
                                         .out = kind == FP32 ? LS_F32 : LS_BF16,
                                         .a = x[kind != FP32],
                                         .b = w[ls_min(kind, INT8)],
                                         .b_scales = kind >= INT8 ? scales : NULL,
                                         .a_kept = kind == WEIGHTS,
                                         .c = c,
                                         .lda = b->k,
                                         .ldb = b->k,
                                         .ldc = b->n};
}

/* Operations a second over some calls. */
static int rate(struct bench *b, enum kind kind, double *out, struct ls_error *error)
{
    struct ls_gemm *gemm = &b->gemm[kind];
    double flops = 2.0 * (double)b->rows * (double)b->n * (double)b->k;
    int calls = (int)ls_max(1, (int64_t)(1e9 / flops)), status = LS_OK;
    gemm->m = b->rows;
    double begin = ls_now_s();
    for (int call = 0; call < calls && !status; call++)
        status = ls_gemm_run(&b->ops, gemm, error);
    *out = flops * calls / (ls_now_s() - begin);
    return status;
}

static int line(struct bench *b, struct ls_error *error)
{
    double rates[KINDS][ROUNDS], ratio[KINDS][ROUNDS];
    int status = LS_OK;
    for (int round = -1; round < ROUNDS && !status; round++) /* the first one warms up */
        for (int kind = 0; kind < KINDS && !status; kind++)
            status = rate(b, (enum kind)kind, &rates[kind][round < 0 ? 0 : round], error);
    if (status)
        return status;
    for (int kind = 0; kind < KINDS; kind++)
        for (int round = 0; round < ROUNDS; round++)
            ratio[kind][round] = rates[kind][round] / rates[BF16][round];
    printf("%5ld", (long)b->rows);
    for (int kind = 0; kind < KINDS; kind++)
        printf("  %9.1f %5.2f", bench_median(rates[kind], ROUNDS) / 1e9,
               bench_median(ratio[kind], ROUNDS));
    printf("\n");
    fflush(stdout);
    return LS_OK;
}

static int bench_run(struct bench *b, struct ls_error *error)
{
    struct ls_arena arena;
    ls_arena_measure(&arena);
    operands(b, &arena);
    int status = ls_arena_init(&arena, arena.peak, error);
    if (status)
        return status;
    operands(b, &arena);
    printf("y [rows, %ld] = x [rows, %ld] W^T, %s; %s on %s, %s; GFLOP/s, and how\nmany times as "
           "fast as bf16; medians of %d rounds in turns\n rows  %15s  %15s  %15s  %15s\n",
           (long)b->n, (long)b->k, ls_counted(b->tiles, "tile").text,
           ls_arithmetic_name(b->ops.arithmetic), ls_isa_name(b->ops.isa),
           ls_counted(b->ops.threads, "thread").text, ROUNDS, "fp32", "bf16", "int8",
           "int8-weights");
    for (int i = 0; i < ROW_COUNTS && !status; i++) {
        b->rows = row_counts[i];
        status = line(b, error);
    }
    ls_arena_release(&arena);
    return status;
}

int cmd_bench_int8(int argc, char **argv)
{
    struct bench b = {.n = 4096, .k = 4096, .tiles = 1};
    int64_t threads = ls_device_cores(), isa = ls_isa_best(), arithmetic = -1;
    const struct bench_key keys[] = {
        {"threads", &threads, 1, ls_device_threads_max(), NULL, NULL, NULL},
        BENCH_ISA(&isa),
        BENCH_ARITHMETIC(&arithmetic),
        {"n", &b.n, 1, 1 << 18, NULL, NULL, NULL},
        {"k", &b.k, 1, 1 << 17, NULL, NULL, NULL},
        {"tiles", &b.tiles, 1, 64, NULL, NULL, NULL},
        {0}};
    struct ls_error error = {0};
    int status = bench_args("bench int8", argc, argv, keys, &error);
    if (!status)
        status = ls_ops_init(&b.ops, (int)threads, (enum ls_isa)isa, &error);
    if (status)
        return cmd_fail("bench int8", status, &error);
    b.ops.arithmetic =
        arithmetic < 0 ? ls_arithmetic_fastest(b.ops.isa, LS_BF16) : (enum ls_arithmetic)arithmetic;
    status = bench_run(&b, &error);
    ls_ops_release(&b.ops);
    return status ? cmd_fail("bench int8", status, &error) : 0;
}
