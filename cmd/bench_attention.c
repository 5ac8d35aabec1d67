/* `lockstep bench attention`: attention to all keys, to those in a window and with capped scores,
 * forward and backward, and of one token that is generated. */
#include "bench.h"

#include <lockstep/base/words.h>
#include <lockstep/ops.h>

#include <math.h>
#include <stdio.h>

enum { RUNS = 5 };

struct bench {
    struct ls_ops ops;
    struct ls_attention a;
    int64_t window;
    double flops; /* of a forward, as it tells them */
};

/* ---- buffers ---- */

/* Values around 1 with another sign each, which cost no more and no less than others. */
static void *filled(struct ls_arena *arena, enum ls_dtype dtype, int64_t elements)
{
    void *x = ls_arena_take(arena, (size_t)elements * ls_dtype_bytes(dtype));
    for (int64_t i = 0; x && i < elements; i++) {
        float value = (float)((i * 2654435761 >> 8) % 2048 - 1024) / 1024;
        if (dtype == LS_F32)
            ((float *)x)[i] = value;
        else
            ((ls_half *)x)[i] = ls_f32_to_half(dtype, value);
    }
    return x;
}

static void buffers_take(struct ls_attention *a, struct ls_arena *arena)
{
    int64_t queries = a->tokens * a->heads * a->head_dim;
    int64_t keys = a->tokens * a->kv_heads * a->head_dim;
    a->q = filled(arena, a->act, queries);
    a->k = filled(arena, a->act, keys);
    a->v = filled(arena, a->act, keys);
    a->o = filled(arena, a->act, queries);
    a->d_o = filled(arena, a->act, queries);
    a->d_q = filled(arena, a->act, queries);
    a->d_k = filled(arena, a->act, keys);
    a->d_v = filled(arena, a->act, keys);
    a->lse = filled(arena, LS_F32, a->tokens * a->heads);
}

/* ---- runs ---- */

typedef int (*attention_op)(struct ls_ops *ops, const struct ls_attention *a,
                            struct ls_error *error);

/* Median seconds. */
static int seconds(struct bench *b, attention_op op, const struct ls_attention *a, double *out,
                   struct ls_error *error)
{
    double s[RUNS];
    int status = op(&b->ops, a, error);
    for (int run = 0; run < RUNS && !status; run++) {
        double begin = ls_now_s();
        status = op(&b->ops, a, error);
        s[run] = ls_now_s() - begin;
    }
    *out = bench_median(s, RUNS);
    return status;
}

static void told(void *user, const struct ls_command *command, const struct ls_work *work,
                 enum ls_work_pass pass)
{
    (void)command, (void)pass;
    *(double *)user = work->flops;
}

/* The first line's times are what the others are compared with. */
static int line(struct bench *b, const char *name, const struct ls_attention *a, double first[2],
                struct ls_error *error)
{
    const struct ls_ops_watch watch = {told, NULL, &b->flops};
    double forward = 0, backward = 0;
    int status = seconds(b, ls_attention_forward, a, &forward, error);
    if (!status)
        status = seconds(b, ls_attention_backward, a, &backward, error);
    b->ops.watch = &watch;
    if (!status)
        status = ls_attention_forward(&b->ops, a, error);
    b->ops.watch = NULL;
    if (status)
        return status;
    if (first[0] == 0) {
        first[0] = forward;
        first[1] = backward;
    }
    printf("%-16s %9.2f ms %8.1f %7.0f %% %11.2f ms %8.1f %7.0f %%\n", name, forward * 1e3,
           b->flops / forward / 1e9, 100 * forward / first[0], backward * 1e3,
           2.5 * b->flops / backward / 1e9, 100 * backward / first[1]);
    fflush(stdout);
    return LS_OK;
}

/* One token behind all the others, whose keys and values are the cache. */
static int line_decode(struct bench *b, const char *name, int64_t window, struct ls_error *error)
{
    enum { TOKENS = 20 };
    const struct ls_attention *a = &b->a;
    const int32_t length = (int32_t)a->tokens;
    const struct ls_attention_decode d = {.batch = 1,
                                          .capacity = a->tokens,
                                          .heads = a->heads,
                                          .kv_heads = a->kv_heads,
                                          .head_dim = a->head_dim,
                                          .scale = a->scale,
                                          .act = a->act,
                                          .lengths = &length,
                                          .q = a->q,
                                          .k_cache = a->k,
                                          .v_cache = a->v,
                                          .q_ld = a->q_ld,
                                          .o_ld = a->o_ld,
                                          .o = a->o,
                                          .window = window};
    double s[TOKENS];
    int status = LS_OK;
    for (int i = 0; i < TOKENS && !status; i++) {
        double begin = ls_now_s();
        status = ls_attention_decode(&b->ops, &d, error);
        s[i] = ls_now_s() - begin;
    }
    const int64_t keys = window ? ls_min(window, a->tokens) : a->tokens;
    double bytes = 2.0 * (double)(keys * a->kv_ld) * (double)ls_dtype_bytes(a->act);
    double median = bench_median(s, TOKENS);
    if (!status)
        printf("%-16s %9.3f ms %8.2f GB/s of the cache\n", name, median * 1e3,
               bytes / median * 1e-9);
    return status;
}

static int lines(struct bench *b, struct ls_error *error)
{
    double first[2] = {0};
    char window[32], token[40];
    struct ls_attention a = b->a;
    snprintf(window, sizeof window, "window %ld", (long)b->window);
    snprintf(token, sizeof token, "token, window");
    printf("%-16s %12s %8s %9s %14s %8s %9s\n", "", "forward", "GFLOP/s", "of all", "backward",
           "GFLOP/s", "of all");
    int status = line(b, "all keys", &a, first, error);
    a.window = b->window;
    if (!status)
        status = line(b, window, &a, first, error);
    a.window = 0;
    a.softcap = 50;
    if (!status)
        status = line(b, "softcap 50", &a, first, error);
    if (!status)
        status = line_decode(b, "one token", 0, error);
    return status ? status : line_decode(b, token, b->window, error);
}

static int bench_run(struct bench *b, struct ls_error *error)
{
    struct ls_attention *a = &b->a;
    struct ls_arena arena;
    a->batch = 1;
    a->scale = (float)(1 / sqrt((double)a->head_dim));
    a->q_ld = a->o_ld = a->heads * a->head_dim;
    a->kv_ld = a->kv_heads * a->head_dim;
    ls_arena_measure(&arena);
    buffers_take(a, &arena);
    int status = ls_arena_init(&arena, arena.peak, error);
    if (status)
        return status;
    buffers_take(a, &arena);
    printf("%ld tokens, %ld heads of %ld, %ld key/value heads; %s, %s on %s, %s\n", (long)a->tokens,
           (long)a->heads, (long)a->head_dim, (long)a->kv_heads, ls_dtype_name(a->act),
           ls_arithmetic_name(b->ops.arithmetic), ls_isa_name(b->ops.isa),
           ls_counted(b->ops.threads, "thread").text);
    status = lines(b, error);
    ls_arena_release(&arena);
    return status;
}

int cmd_bench_attention(int argc, char **argv)
{
    struct bench b = {.a = {.tokens = 4096, .heads = 12, .head_dim = 64}, .window = 256};
    int64_t threads = ls_device_cores(), isa = ls_isa_best(), dtype = LS_BF16, arithmetic = -1;
    const struct bench_key keys[] = {
        {"threads", &threads, 1, ls_device_threads_max(), NULL, NULL, NULL},
        BENCH_ISA(&isa),
        BENCH_ARITHMETIC(&arithmetic),
        BENCH_DTYPE(&dtype),
        {"tokens", &b.a.tokens, 1, 1 << 20, NULL, NULL, NULL},
        {"window", &b.window, 1, 1 << 20, NULL, NULL, NULL},
        {"heads", &b.a.heads, 1, 1024, NULL, NULL, NULL},
        {"kv_heads", &b.a.kv_heads, 1, 1024, NULL, NULL, NULL},
        {"head_dim", &b.a.head_dim, 8, 256, NULL, NULL, NULL},
        {0}};
    struct ls_error error = {0};
    int status = bench_args("bench attention", argc, argv, keys, &error);
    if (!status)
        status = ls_ops_init(&b.ops, (int)threads, (enum ls_isa)isa, &error);
    if (status)
        return cmd_fail("bench attention", status, &error);
    b.a.act = (enum ls_dtype)dtype;
    b.a.kv_heads = b.a.kv_heads ? b.a.kv_heads : b.a.heads;
    b.ops.arithmetic =
        arithmetic < 0 ? ls_arithmetic_fastest(b.ops.isa, b.a.act) : (enum ls_arithmetic)arithmetic;
    status = bench_run(&b, &error);
    ls_ops_release(&b.ops);
    return status ? cmd_fail("bench attention", status, &error) : 0;
}
