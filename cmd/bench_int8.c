/* lockstep bench int8: one product in float32, in bf16, with int8 on both sides and with weights of
 * int8 alone, for few rows and for many, in turns. */
#include "bench.h"

#include <lockstep/base/words.h>

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

static void operands(void *user, struct ls_arena *arena)
{
    struct bench *b = user;
    const int64_t most = row_counts[ROW_COUNTS - 1];
    void *c = bench_filled(arena, LS_F32, most * b->n);
    const float *scales = bench_filled(arena, LS_F32, b->n * b->tiles);
    const void *x[] = {bench_filled(arena, LS_F32, most * b->k),
                       bench_filled(arena, LS_BF16, most * b->k)};
    const void *w[] = {bench_filled(arena, LS_F32, b->n * b->k),
                       bench_filled(arena, LS_BF16, b->n * b->k),
                       bench_filled(arena, LS_I8, b->n * b->k)};
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

static double flops_of(const struct bench *b)
{
    return 2.0 * (double)b->rows * (double)b->n * (double)b->k;
}

static int run(void *user, int kind, double *seconds, struct ls_error *error)
{
    struct bench *b = user;
    int calls = (int)ls_max(1, (int64_t)(1e9 / flops_of(b))), status = LS_OK;
    double begin = ls_now_s();
    b->gemm[kind].m = b->rows;
    for (int call = 0; call < calls && !status; call++)
        status = ls_gemm_run(&b->ops, &b->gemm[kind], error);
    *seconds = (ls_now_s() - begin) / calls;
    return status;
}

static int line(struct bench *b, struct ls_error *error)
{
    struct bench_turns turns = {.ways = KINDS, .rounds = ROUNDS, .run = run, .user = b};
    int status = bench_turns(&turns, error);
    if (status)
        return status;
    printf("%5ld", (long)b->rows);
    for (int kind = 0; kind < KINDS; kind++)
        printf("  %9.1f %5.2f", flops_of(b) / bench_seconds(&turns, kind) / 1e9,
               bench_ratio(&turns, BF16, kind));
    printf("\n");
    fflush(stdout);
    return LS_OK;
}

static int bench_run(struct bench *b, struct ls_error *error)
{
    struct ls_arena arena;
    int status = bench_arena(&arena, operands, b, error);
    if (status)
        return status;
    printf("y [rows, %ld] = x [rows, %ld] W^T, %s; %s; GFLOP/s, and how\nmany times as "
           "fast as bf16; medians of %d rounds in turns\n rows  %15s  %15s  %15s  %15s\n",
           (long)b->n, (long)b->k, ls_counted(b->tiles, "tile").text, bench_ops_text(&b->ops).text,
           ROUNDS, "fp32", "bf16", "int8", "int8-weights");
    for (int i = 0; i < ROW_COUNTS && !status; i++) {
        b->rows = row_counts[i];
        status = line(b, error);
    }
    ls_arena_release(&arena);
    return status;
}

int cmd_bench_int8(const struct cmd_args *args, struct ls_error *error)
{
    struct bench b = {.n = 4096, .k = 4096, .tiles = 1};
    struct bench_machine machine = bench_machine();
    const struct bench_key keys[] = {BENCH_MACHINE(&machine),
                                     {.name = "n", .number = &b.n, .min = 1, .max = 1 << 18},
                                     {.name = "k", .number = &b.k, .min = 1, .max = 1 << 17},
                                     {.name = "tiles", .number = &b.tiles, .min = 1, .max = 64},
                                     {0}};
    int status = bench_args(args, keys, error);
    if (!status)
        status = bench_ops(&b.ops, &machine, LS_BF16, error);
    if (!status)
        status = bench_run(&b, error);
    ls_ops_release(&b.ops);
    return status;
}
