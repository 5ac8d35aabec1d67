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

/* Values between -1 and 1, of int8 as many steps; NULL of an arena that measures. */
static void *filled(struct ls_arena *arena, enum ls_dtype dtype, int64_t count)
{
    void *x = ls_arena_take(arena, (size_t)count * ls_dtype_bytes(dtype));
    for (int64_t i = 0; x && i < count; i++) {
        float value = (float)(i * 2654435761u % 4096) / 2048 - 1;
        if (dtype == LS_F32)
            ((float *)x)[i] = value;
        else if (dtype == LS_I8)
            ((int8_t *)x)[i] = (int8_t)(value * LS_INT8_MOST);
        else
            ((ls_half *)x)[i] = ls_f32_to_half(dtype, value);
    }
    return x;
}

static const int64_t row_counts[] = {1, 4, 16, 64, 256, 1024};
enum { ROW_COUNTS = sizeof row_counts / sizeof row_counts[0] };

static void operands_take(struct bench *b, struct ls_arena *arena)
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
    cmd_flush();
    return LS_OK;
}

static int bench_run(struct bench *b, struct ls_error *error)
{
    struct ls_arena arena;
    ls_arena_measure(&arena);
    operands_take(b, &arena);
    int status = ls_arena_init(&arena, arena.peak, error);
    if (status)
        return status;
    operands_take(b, &arena);
    printf("y [rows, %ld] = x [rows, %ld] W^T, %s; %s on %s, %s; "
           "GFLOP/s, and how\nmany times as fast as bf16; medians of %d rounds in turns\n rows  "
           "%15s  %15s  %15s  %15s\n",
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

/* The key of a word that a key of the configuration has too. */
#define WORD(key, value, same)                                                                     \
    {                                                                                              \
        .name = key, .word = value, .words = ls_config_key_of(same)->words                         \
    }

int cmd_bench_int8(const struct cmd_args *args, struct ls_error *error)
{
    struct bench b = {.n = 4096, .k = 4096, .tiles = 1};
    int64_t threads = ls_device_cores();
    int isa = LS_CONFIG_AUTO, arithmetic = LS_CONFIG_AUTO; /* the best, the fastest */
    const struct bench_key keys[] = {BENCH_THREADS(&threads),
                                     WORD("isa", &isa, "numerics.isa"),
                                     WORD("arithmetic", &arithmetic, "numerics.arithmetic"),
                                     {.name = "n", .number = &b.n, .min = 1, .max = 1 << 18},
                                     {.name = "k", .number = &b.k, .min = 1, .max = 1 << 17},
                                     {.name = "tiles", .number = &b.tiles, .min = 1, .max = 64},
                                     {0}};
    int status = bench_args(args, keys, error);
    isa = isa == LS_CONFIG_AUTO ? (int)ls_isa_best() : isa;
    if (!status)
        status = ls_ops_init(&b.ops, (int)threads, (enum ls_isa)isa, error);
    b.ops.arithmetic = arithmetic == LS_CONFIG_AUTO
                           ? ls_arithmetic_fastest((enum ls_isa)isa, LS_BF16)
                           : (enum ls_arithmetic)arithmetic;
    if (!status)
        status = bench_run(&b, error);
    ls_ops_release(&b.ops);
    return status;
}
