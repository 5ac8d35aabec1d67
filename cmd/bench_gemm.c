/* lockstep bench gemm: the matrix products of a GPT-2 124M step, each beside one large product of
 * the library. */
#include "bench.h"

#include <math.h>

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

/* A shape's product beside a large one by the library. */
struct bench {
    struct ls_ops ops;
    struct ls_gemm gemm;
    int64_t k;
    bool int8; /* of activations in bf16 */
    double flops;
};

static void operands(void *user, struct ls_arena *arena)
{
    struct bench *b = user;
    struct ls_gemm *gemm = &b->gemm;
    gemm->lda = gemm->a_transposed ? gemm->m : b->k;
    gemm->ldb = gemm->b_transposed ? b->k : gemm->n;
    gemm->ldc = gemm->n;
    gemm->a = bench_filled(arena, gemm->in, gemm->m * b->k);
    gemm->b = bench_filled(arena, b->int8 ? LS_I8 : gemm->in, gemm->n * b->k);
    if (b->int8)
        gemm->b_scales = bench_filled(arena, LS_F32, gemm->n * gemm->tiles);
    gemm->c = bench_filled(arena, gemm->out, gemm->m * gemm->n);
}

enum way { LIBRARY, OURS, WAYS };

/* The fastest of RUNS runs, as the yardstick takes the fastest of its own. */
static int run(void *user, int way, double *seconds, struct ls_error *error)
{
    struct bench *b = user;
    double rate = 0;
    int calls = (int)ls_max(1, (int64_t)(2e7 / b->flops));
    int status = way == LIBRARY ? ls_gemm_peak(&b->ops, b->gemm.in, &rate, error) : LS_OK;
    *seconds = way == LIBRARY ? b->flops / rate : INFINITY;
    for (int run = 0; way == OURS && run < RUNS && !status; run++) {
        double begin = ls_now_s();
        for (int call = 0; call < calls && !status; call++)
            status = ls_gemm_run(&b->ops, &b->gemm, error);
        *seconds = fmin(*seconds, (ls_now_s() - begin) / calls);
    }
    return status;
}

static int bench_shape(struct bench *b, const struct shape *shape, enum ls_dtype dtype,
                       struct ls_error *error)
{
    struct bench_turns turns = {.ways = WAYS, .rounds = REPEATS, .run = run, .user = b};
    struct ls_gemm *gemm = &b->gemm;
    struct ls_arena arena;
    *gemm = shape->gemm;
    gemm->sections = (int)ls_max(1, gemm->sections);
    b->k = gemm->k[0] + gemm->k[1] + gemm->k[2];
    b->flops = 2.0 * (double)gemm->m * (double)gemm->n * (double)b->k;
    b->int8 = dtype == LS_I8;
    gemm->in = b->int8 ? LS_BF16 : dtype;
    gemm->out = gemm->a_transposed ? LS_F32 : gemm->in; /* gradients of weights */
    if (b->int8 && (!gemm->b_transposed || gemm->sections > 1))
        return LS_OK; /* there are no gradients in int8 */
    int status = bench_arena(&arena, operands, b, error);
    if (status)
        return status;
    status = bench_turns(&turns, error);
    double best = fmin(bench_best(&turns, LIBRARY), bench_best(&turns, OURS));
    double median = bench_seconds(&turns, OURS);
    if (!status)
        printf("%-18s %6ld %6ld %6ld %6ld  %9.1f  %6.2f\n", shape->name, (long)gemm->m,
               (long)gemm->n, (long)b->k, (long)gemm->tiles, b->flops / median / 1e9,
               best / median);
    fflush(stdout);
    ls_arena_release(&arena);
    return status;
}

int cmd_bench_gemm(const struct cmd_args *args, struct ls_error *error)
{
    static const struct ls_word dtypes[] = {
        {"bf16", LS_BF16}, {"fp16", LS_F16}, {"fp32", LS_F32}, {"int8", LS_I8}, {0}};
    struct bench_machine machine = bench_machine();
    struct bench b = {.flops = 0};
    int dtype = LS_BF16;
    const struct bench_key keys[] = {
        BENCH_MACHINE(&machine), {.name = "dtype", .word = &dtype, .words = dtypes}, {0}};
    int status = bench_args(args, keys, error);
    if (!status)
        status = bench_ops(&b.ops, &machine, (enum ls_dtype)dtype, error);
    if (status)
        return status;
    printf("products of %s, %s; GFLOP/s, and share of the best rate in the same run, of\n"
           "one large product by %s or of its own; medians of %d\n%-18s %6s %6s %6s %6s  %9s  "
           "%6s\n",
           ls_dtype_name((enum ls_dtype)dtype), bench_ops_text(&b.ops).text, ls_gemm_library(),
           REPEATS, "", "m", "n", "k", "tiles", "GFLOP/s", "share");
    for (int i = 0; i < SHAPES && !status; i++)
        status = bench_shape(&b, &shapes[i], (enum ls_dtype)dtype, error);
    ls_ops_release(&b.ops);
    return status;
}
