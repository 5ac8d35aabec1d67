/* lockstep bench gemm: the matrix products of a GPT-2 124M step, each beside one large product of
 * the library. */
#include "bench.h"
#include "launch.h"

#include <lockstep/base/words.h>
#include <lockstep/ops.h>

#include <math.h>
#include <string.h>

enum { REPEATS = 7, RUNS = 3 };

/* M tokens; C = 768 channels, 4C wide, 50304 words; four tiles or leaves where sums are cut. */
struct shape {
    const char *name;
    struct ls_gemm gemm; /* sizes and forms */
};
static const struct shape shapes[] = {
    {"square", {.m = 2048, .n = 2048, .k = {2048}, .tiles = 1, .b_transposed = true}},
    {"qkv", {.m = 4096, .n = 2304, .k = {768}, .tiles = 1, .b_transposed = true}},
    {"attention out", {.m = 4096, .n = 768, .k = {768}, .tiles = 4, .b_transposed = true}},
    {"mlp up", {.m = 4096, .n = 3072, .k = {768}, .tiles = 1, .b_transposed = true}},
    {"mlp down", {.m = 4096, .n = 768, .k = {3072}, .tiles = 4, .b_transposed = true}},
    {"qkv, dx", {.m = 4096, .n = 768, .sections = 3, .k = {768, 768, 768}, .tiles = 4}},
    {"mlp up, dx", {.m = 4096, .n = 768, .k = {3072}, .tiles = 4}},
    {"mlp down, dx", {.m = 4096, .n = 3072, .k = {768}, .tiles = 1}},
    {"qkv, dw", {.m = 2304, .n = 768, .k = {4096}, .tiles = 4, .leaves = 4, .a_transposed = true}},
    {"attention out, dw",
     {.m = 768, .n = 768, .k = {4096}, .tiles = 4, .leaves = 4, .a_transposed = true}},
    {"mlp up, dw",
     {.m = 3072, .n = 768, .k = {4096}, .tiles = 4, .leaves = 4, .a_transposed = true}},
    {"mlp up, dw +=",
     {.m = 3072,
      .n = 768,
      .k = {4096},
      .tiles = 4,
      .leaves = 4,
      .a_transposed = true,
      .onto = LS_ONTO_SUM}},
    {"mlp down, dw",
     {.m = 768, .n = 3072, .k = {4096}, .tiles = 4, .leaves = 4, .a_transposed = true}},
    {"head", {.m = 1024, .n = 50304, .k = {768}, .tiles = 1, .b_transposed = true}},
    {"head, dx", {.m = 1024, .n = 768, .k = {50304}, .tiles = 4}},
    {"head, dw +=",
     {.m = 50304, .n = 768, .k = {1024}, .tiles = 1, .a_transposed = true, .onto = LS_ONTO_SUM}},
    {"one token", {.m = 1, .n = 2304, .k = {768}, .tiles = 1, .b_transposed = true}},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

/* Operands between -1 and 1. */
static void *filled(struct ls_arena *arena, enum ls_dtype dtype, int64_t count)
{
    void *x = ls_arena_take(arena, (size_t)count * ls_dtype_bytes(dtype));
    for (int64_t i = 0; x && i < count; i++) {
        float value = (float)(i * 2654435761u % 4096) / 2048 - 1;
        if (dtype == LS_F32)
            ((float *)x)[i] = value;
        else
            ((ls_half *)x)[i] = ls_f32_to_half(dtype, value);
    }
    return x;
}

/* Any int8, and a scale for each row and tile. */
static void weights_set(struct ls_gemm *gemm, int64_t k, struct ls_arena *arena)
{
    int8_t *b = ls_arena_take(arena, (size_t)(gemm->n * k));
    for (int64_t i = 0; b && i < gemm->n * k; i++)
        b[i] = (int8_t)(i * 2654435761u % 255 - 127);
    gemm->b = b;
    gemm->b_scales = filled(arena, LS_F32, gemm->n * gemm->tiles);
}

/* Buffers for gemm, whose sizes are set. With a measuring arena only counts. */
static void operands(struct ls_gemm *gemm, int64_t k, bool int8, struct ls_arena *arena)
{
    gemm->lda = gemm->a_transposed ? gemm->m : k;
    gemm->ldb = gemm->b_transposed ? k : gemm->n;
    gemm->ldc = gemm->n;
    gemm->a = filled(arena, gemm->in, gemm->m * k);
    if (int8)
        weights_set(gemm, k, arena);
    else
        gemm->b = filled(arena, gemm->in, gemm->n * k);
    gemm->c = filled(arena, gemm->out, gemm->m * gemm->n);
}

/* The fastest of RUNS runs, in operations a second, as the yardstick takes the fastest of its own.
 */
static int rate(struct ls_ops *ops, const struct ls_gemm *gemm, double flops, double *out,
                struct ls_error *error)
{
    int calls = (int)ls_max(1, (int64_t)(2e7 / flops)), status = LS_OK;
    *out = 0;
    for (int run = 0; run < RUNS && !status; run++) {
        double begin = ls_now_s();
        for (int call = 0; call < calls && !status; call++)
            status = ls_gemm_run(ops, gemm, error);
        double now = flops * calls / (ls_now_s() - begin);
        *out = now > *out ? now : *out;
    }
    return status;
}

static int bench_shape(struct ls_ops *ops, const struct shape *shape, enum ls_dtype dtype,
                       struct ls_error *error)
{
    struct ls_gemm gemm = shape->gemm;
    struct ls_arena arena;
    double ours[REPEATS], share[REPEATS], best = 0;
    bool f32_out = gemm.a_transposed; /* gradients of weights */
    gemm.sections = (int)ls_max(1, gemm.sections);
    int64_t k = gemm.k[0] + gemm.k[1] + gemm.k[2];
    bool int8 = dtype == LS_I8; /* of activations in bf16 */
    gemm.in = int8 ? LS_BF16 : dtype;
    gemm.out = f32_out ? LS_F32 : gemm.in;
    if (int8 && (!gemm.b_transposed || gemm.sections > 1))
        return LS_OK; /* there are no gradients in int8 */
    ls_arena_measure(&arena);
    operands(&gemm, k, int8, &arena);
    int status = ls_arena_init(&arena, arena.peak, error);
    if (status)
        return status;
    operands(&gemm, k, int8, &arena);
    double flops = 2.0 * (double)gemm.m * (double)gemm.n * (double)k;
    for (int i = 0; i < REPEATS && !status; i++) {
        double peak = 0;
        status = ls_gemm_peak(ops, gemm.in, &peak, error);
        if (!status)
            status = rate(ops, &gemm, flops, &ours[i], error);
        best = fmax(best, fmax(peak, ours[i]));
    }
    for (int i = 0; i < REPEATS && !status; i++)
        share[i] = ours[i] / best;
    if (!status) {
        printf("%-18s %6ld %6ld %6ld %6ld  %9.1f  %6.2f\n", shape->name, (long)gemm.m, (long)gemm.n,
               (long)k, (long)gemm.tiles, bench_median(ours, REPEATS) / 1e9,
               bench_median(share, REPEATS));
        fflush(stdout);
    }
    ls_arena_release(&arena);
    return status;
}

/* Products may be of integers too. */
static int dtype_of_name(const char *name)
{
    return strcmp(name, "int8") ? bench_dtype_of_name(name) : LS_I8;
}

int cmd_bench_gemm(int argc, char **argv)
{
    int64_t threads = ls_device_cores(), isa = ls_isa_best(), dtype = LS_BF16, arithmetic = -1;
    const struct bench_key keys[] = {
        {"threads", &threads, 1, ls_device_threads_max(), NULL, NULL, NULL},
        BENCH_ISA(&isa),
        BENCH_ARITHMETIC(&arithmetic),
        {"dtype", &dtype, 0, 0, "bf16, fp16, fp32 or int8", dtype_of_name, NULL},
        {0}};
    struct ls_error error = {0};
    struct ls_ops ops;
    int status = bench_args("bench gemm", argc, argv, keys, &error);
    if (!status)
        status = ls_ops_init(&ops, (int)threads, (enum ls_isa)isa, &error);
    if (status)
        return cmd_fail("bench gemm", status, &error);
    ops.arithmetic = arithmetic < 0 ? ls_arithmetic_fastest(ops.isa, (enum ls_dtype)dtype)
                                    : (enum ls_arithmetic)arithmetic;
    printf("products of %s, %s on %s, %s; GFLOP/s, and share of the best rate in the same run, "
           "of\none large product by %s or of its own; medians of %d\n%-18s %6s %6s %6s %6s  %9s  "
           "%6s\n",
           ls_dtype_name((enum ls_dtype)dtype), ls_arithmetic_name(ops.arithmetic),
           ls_isa_name(ops.isa), ls_counted(threads, "thread").text, ls_gemm_library(), REPEATS, "",
           "m", "n", "k", "tiles", "GFLOP/s", "share");
    for (int i = 0; i < SHAPES && !status; i++)
        status = bench_shape(&ops, &shapes[i], (enum ls_dtype)dtype, &error);
    ls_ops_release(&ops);
    return status ? cmd_fail("bench gemm", status, &error) : 0;
}
