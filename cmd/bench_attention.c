/* `lockstep bench attention`: attention to all keys, to those in a window and with capped scores,
 * forward and backward, and of one token that is generated. */
#include "bench.h"

#include <math.h>
#include <stdio.h>

enum { RUNS = 5, TOKENS = 20 };

struct bench {
    struct ls_ops ops;
    struct ls_attention a;
    int64_t window;
    double flops; /* of a forward, as it tells them */
};

/* ---- buffers ---- */

static void buffers_take(void *user, struct ls_arena *arena)
{
    struct ls_attention *a = user;
    int64_t queries = a->tokens * a->heads * a->head_dim;
    int64_t keys = a->tokens * a->kv_heads * a->head_dim;
    a->q = bench_filled(arena, a->act, queries);
    a->k = bench_filled(arena, a->act, keys);
    a->v = bench_filled(arena, a->act, keys);
    a->o = bench_filled(arena, a->act, queries);
    a->d_o = bench_filled(arena, a->act, queries);
    a->d_q = bench_filled(arena, a->act, queries);
    a->d_k = bench_filled(arena, a->act, keys);
    a->d_v = bench_filled(arena, a->act, keys);
    a->lse = bench_filled(arena, LS_F32, a->tokens * a->heads);
}

/* ---- runs ---- */

enum way { FORWARD, BACKWARD, WAYS };

struct running {
    struct ls_ops *ops;
    const struct ls_attention *a;
    const struct ls_attention_decode *decode; /* in its place */
};

static int run(void *user, int way, double *counts, struct ls_error *error)
{
    struct running *running = user;
    (void)counts;
    if (running->decode)
        return ls_attention_decode(running->ops, running->decode, error);
    return way == FORWARD ? ls_attention_forward(running->ops, running->a, error)
                          : ls_attention_backward(running->ops, running->a, error);
}

static void told(void *user, const struct ls_queue *queue, const struct ls_command *command)
{
    struct ls_work work;
    if (ls_command_work(queue, command, &work))
        *(double *)user = work.flops;
}

/* The first line's times are what the others are compared with. */
static int line(struct bench *b, const char *name, const struct ls_attention *a, double first[2],
                struct ls_error *error)
{
    const struct ls_queue_watch watch = {told, NULL, &b->flops};
    struct running running = {.ops = &b->ops, .a = a};
    struct bench_turns turns = {.ways = WAYS, .rounds = RUNS, .run = run, .user = &running};
    int status = bench_turns(&turns, error);
    b->ops.queue.watch = &watch;
    if (!status)
        status = ls_attention_forward(&b->ops, a, error);
    b->ops.queue.watch = NULL;
    if (status)
        return status;
    double forward = bench_seconds(&turns, FORWARD), backward = bench_seconds(&turns, BACKWARD);
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
    struct running running = {.ops = &b->ops, .decode = &d};
    struct bench_turns turns = {.ways = 1, .rounds = TOKENS, .run = run, .user = &running};
    int status = bench_turns(&turns, error);
    const int64_t keys = window ? ls_min(window, a->tokens) : a->tokens;
    double bytes = 2.0 * (double)(keys * a->kv_ld) * (double)ls_dtype_bytes(a->act);
    double median = bench_seconds(&turns, 0);
    if (!status)
        printf("%-16s %9.3f ms %8.2f GB/s of the cache\n", name, median * 1e3,
               bytes / median * 1e-9);
    return status;
}

static int lines(struct bench *b, struct ls_error *error)
{
    double first[2] = {0};
    char window[32];
    struct ls_attention a = b->a;
    snprintf(window, sizeof window, "window %ld", (long)b->window);
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
    return status ? status : line_decode(b, "token, window", b->window, error);
}

static int bench_run(struct bench *b, struct ls_error *error)
{
    struct ls_attention *a = &b->a;
    struct ls_arena arena;
    a->batch = 1;
    a->scale = (float)(1 / sqrt((double)a->head_dim));
    a->q_ld = a->o_ld = a->heads * a->head_dim;
    a->kv_ld = a->kv_heads * a->head_dim;
    int status = bench_arena(&arena, buffers_take, a, error);
    if (status)
        return status;
    printf("%ld tokens, %ld heads of %ld, %ld key/value heads; %s, %s\n", (long)a->tokens,
           (long)a->heads, (long)a->head_dim, (long)a->kv_heads, ls_dtype_name(a->act),
           bench_ops_text(&b->ops).text);
    status = lines(b, error);
    ls_arena_release(&arena);
    return status;
}

int cmd_bench_attention(const struct cmd_args *args, struct ls_error *error)
{
    struct bench b = {.a = {.tokens = 4096, .heads = 12, .head_dim = 64}, .window = 256};
    struct bench_machine machine = bench_machine();
    int dtype = LS_BF16;
    const struct bench_key keys[] = {
        BENCH_MACHINE(&machine),
        BENCH_WORD("dtype", &dtype, "numerics.precision"),
        {.name = "tokens", .number = &b.a.tokens, .min = 1, .max = 1 << 20},
        {.name = "window", .number = &b.window, .min = 1, .max = 1 << 20},
        {.name = "heads", .number = &b.a.heads, .min = 1, .max = 1024},
        {.name = "kv_heads", .number = &b.a.kv_heads, .min = 1, .max = 1024},
        {.name = "head_dim", .number = &b.a.head_dim, .min = 8, .max = 256},
        {0}};
    int status = bench_args(args, keys, error);
    b.a.act = (enum ls_dtype)dtype;
    b.a.kv_heads = b.a.kv_heads ? b.a.kv_heads : b.a.heads;
    if (!status)
        status = bench_ops(&b.ops, &machine, b.a.act, error);
    if (!status)
        status = bench_run(&b, error);
    ls_ops_release(&b.ops);
    return status;
}
