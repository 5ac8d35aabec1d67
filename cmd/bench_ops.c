/* `lockstep bench ops`: every kernel on the shapes of GPT-2 124M, timed. */
#include "bench.h"

#include <lockstep/base/words.h>

#include <stdio.h>
#include <string.h>

/* One micro-batch of GPT-2 124M: 4 sequences of 1024 tokens; the head's chunk of 1024 rows. */
enum {
    SEQUENCES = 4,
    TOKENS = 1024,
    ROWS = SEQUENCES * TOKENS,
    CHANNELS = 768,
    FFN = 4 * CHANNELS,
    VOCABULARY = 50257,
    PADDED = 50304,
    LOSS_ROWS = 1024,
    PARAMETERS = 16 << 20,
    RUNS = 25,
};

struct bench {
    struct ls_ops ops;
    unsigned char *base;
    size_t bytes; /* of one of the six equal buffers */
    int32_t *ids, *start, *order;
    float *floats;         /* statistics, losses */
    const struct row *row; /* of the table */
};

/* Buffer i. */
static void *at(struct bench *b, int i)
{
    return b->base + (size_t)i * b->bytes;
}

static struct ls_norm norm_of(struct bench *b)
{
    return (struct ls_norm){.rows = ROWS,
                            .channels = CHANNELS,
                            .act = LS_BF16,
                            .epsilon = 1e-5f,
                            .weight = at(b, 5),
                            .bias = at(b, 5),
                            .mean = b->floats,
                            .rstd = b->floats + ROWS};
}

static const struct ls_token_sum token_sum = {SEQUENCES, 1, 1, TOKENS, LS_ONTO_NOTHING};

static void layernorm_forward(struct bench *b)
{
    struct ls_norm norm = norm_of(b);
    ls_layernorm_forward(&b->ops, &norm, at(b, 0), at(b, 1), at(b, 2), at(b, 3));
}
static void layernorm_backward_input(struct bench *b)
{
    struct ls_norm norm = norm_of(b);
    ls_layernorm_backward_input(&b->ops, &norm, at(b, 0), at(b, 1), at(b, 2), at(b, 2));
}
static void layernorm_backward_weight(struct bench *b)
{
    struct ls_norm norm = norm_of(b);
    ls_layernorm_backward_weight(&b->ops, &norm, at(b, 0), at(b, 1), &token_sum, at(b, 4),
                                 (float *)at(b, 4) + CHANNELS);
}
static void rmsnorm_backward_input(struct bench *b)
{
    struct ls_norm norm = norm_of(b);
    ls_rmsnorm_backward_input(&b->ops, &norm, at(b, 0), at(b, 1), at(b, 2), at(b, 2));
}
static void bias_backward(struct bench *b)
{
    ls_bias_backward(&b->ops, LS_BF16, FFN, FFN, at(b, 0), &token_sum, at(b, 4));
}
static void gelu_forward(struct bench *b)
{
    ls_gelu_forward(&b->ops, LS_GELU_TANH, LS_BF16, ROWS * FFN, at(b, 0), at(b, 1));
}
static void gelu_backward(struct bench *b)
{
    ls_gelu_backward(&b->ops, LS_GELU_TANH, LS_BF16, ROWS * FFN, at(b, 0), at(b, 1), at(b, 1));
}
static void gelu_erf_forward(struct bench *b)
{
    ls_gelu_forward(&b->ops, LS_GELU_ERF, LS_BF16, ROWS * FFN, at(b, 0), at(b, 1));
}
static void swiglu_forward(struct bench *b)
{
    ls_glu_forward(&b->ops, LS_SWIGLU, LS_BF16, ROWS, FFN / 2, at(b, 0), at(b, 1));
}
static void swiglu_backward(struct bench *b)
{
    ls_glu_backward(&b->ops, LS_SWIGLU, LS_BF16, ROWS, FFN / 2, at(b, 0), at(b, 1), at(b, 2));
}
static void add(struct bench *b)
{
    ls_add(&b->ops, LS_BF16, ROWS * CHANNELS, at(b, 0), at(b, 1), at(b, 2));
}
static void dropout(struct bench *b)
{
    struct ls_dropout dropout = {{{1, 2}}, 0.1f, ROWS, CHANNELS, 0};
    ls_dropout(&b->ops, LS_BF16, &dropout, at(b, 0), at(b, 1));
}
static void rope(struct bench *b)
{
    struct ls_rope rope = {ROWS, TOKENS, 12, 64, CHANNELS, 0, at(b, 4), at(b, 5)};
    ls_rope_apply(&b->ops, LS_BF16, &rope, at(b, 0), false);
}
static void cross_entropy(struct bench *b)
{
    struct ls_cross_entropy op = {LOSS_ROWS, VOCABULARY, PADDED, 4, LS_BF16, 1, 0, 0, NULL};
    ls_cross_entropy(&b->ops, &op, at(b, 0), b->ids, b->floats);
}
static struct ls_embedding embedding_of(struct bench *b)
{
    return (struct ls_embedding){.act = LS_BF16,
                                 .rows = ROWS,
                                 .channels = CHANNELS,
                                 .ids = b->ids,
                                 .vocabulary = VOCABULARY,
                                 .table = at(b, 0),
                                 .tokens = TOKENS,
                                 .position = at(b, 3)};
}
static void embedding_forward(struct bench *b)
{
    struct ls_embedding embedding = embedding_of(b);
    ls_embedding_forward(&b->ops, &embedding, at(b, 4));
}
static void embedding_backward(struct bench *b)
{
    struct ls_token_sum sum = token_sum;
    sum.onto = LS_ONTO_SUM;
    struct ls_embedding embedding = embedding_of(b);
    ls_embedding_backward(&b->ops, &embedding, at(b, 4), &sum,
                          (struct ls_embedding_scratch){b->order, b->start}, at(b, 0));
}
static void position_backward(struct bench *b)
{
    ls_position_backward(&b->ops, LS_BF16, CHANNELS, at(b, 0), &token_sum, 0, TOKENS, at(b, 4));
}
static struct ls_update update_of(struct bench *b)
{
    return (struct ls_update){.count = PARAMETERS,
                              .master = at(b, 0),
                              .compute = at(b, 4),
                              .compute_type = LS_BF16,
                              .gradient = at(b, 3),
                              .gradient_scale = 1,
                              .lr = 1e-4f,
                              .weight_decay = 0.1f};
}
static void adamw(struct bench *b)
{
    struct ls_update update = update_of(b);
    struct ls_adamw adamw = {0.9f, 0.95f, 1e-8f, 10};
    ls_adamw_update(&b->ops, &update, &adamw, at(b, 1), at(b, 2));
}
static struct ls_update bf16_moments_of(struct bench *b)
{
    struct ls_update update = update_of(b);
    update.moment_type = LS_BF16;
    update.rounding = (struct ls_rounding){
        .key = {{{1, 2}}, {{3, 4}}}, .step = 10, .places = {0, CHANNELS, 0, CHANNELS}};
    return update;
}
static void adamw_bf16_moments(struct bench *b)
{
    struct ls_update update = bf16_moments_of(b);
    struct ls_adamw adamw = {0.9f, 0.95f, 1e-8f, 10};
    ls_adamw_update(&b->ops, &update, &adamw, at(b, 1), at(b, 2));
}
static void lion_bf16_moments(struct bench *b)
{
    struct ls_update update = bf16_moments_of(b);
    struct ls_lion lion = {0.9f, 0.99f};
    ls_lion_update(&b->ops, &update, &lion, at(b, 1));
}
static void sgd(struct bench *b)
{
    struct ls_update update = update_of(b);
    struct ls_sgd sgd = {0.9f, false, 10};
    ls_sgd_update(&b->ops, &update, &sgd, at(b, 1));
}
static void lion(struct bench *b)
{
    struct ls_update update = update_of(b);
    struct ls_lion lion = {0.9f, 0.99f};
    ls_lion_update(&b->ops, &update, &lion, at(b, 1));
}
static void squared_norm(struct bench *b)
{
    struct ls_exact_sum sum;
    ls_exact_clear(&sum);
    ls_squared_norm(&b->ops, PARAMETERS, at(b, 0), NULL, &sum);
}
static void cast_to_bf16(struct bench *b)
{
    ls_cast_to_half(&b->ops, LS_BF16, PARAMETERS, at(b, 0), at(b, 1));
}
static void tree_add(struct bench *b)
{
    ls_tree_add(&b->ops, PARAMETERS, at(b, 0), at(b, 1));
}

/* bytes: what must be read and written once. */
static const struct row {
    const char *name;
    void (*run)(struct bench *b);
    double bytes;
} table[] = {
    {"layernorm forward", layernorm_forward, 8.0 * ROWS *CHANNELS},
    {"layernorm backward input", layernorm_backward_input, 8.0 * ROWS *CHANNELS},
    {"layernorm backward weight", layernorm_backward_weight, 4.0 * ROWS *CHANNELS},
    {"rmsnorm backward input", rmsnorm_backward_input, 8.0 * ROWS *CHANNELS},
    {"bias backward", bias_backward, 2.0 * ROWS *FFN},
    {"gelu forward", gelu_forward, 4.0 * ROWS *FFN},
    {"gelu backward", gelu_backward, 6.0 * ROWS *FFN},
    {"gelu erf forward", gelu_erf_forward, 4.0 * ROWS *FFN},
    {"swiglu forward", swiglu_forward, 3.0 * ROWS *FFN},
    {"swiglu backward", swiglu_backward, 5.0 * ROWS *FFN},
    {"add", add, 6.0 * ROWS *CHANNELS},
    {"dropout", dropout, 4.0 * ROWS *CHANNELS},
    {"rope", rope, 4.0 * ROWS *CHANNELS},
    {"cross-entropy", cross_entropy, 4.0 * LOSS_ROWS *PADDED},
    {"embedding forward", embedding_forward, 6.0 * ROWS *CHANNELS},
    {"embedding backward +=", embedding_backward, 10.0 * ROWS *CHANNELS},
    {"position backward", position_backward, 2.0 * ROWS *CHANNELS},
    {"adamw", adamw, 30.0 * PARAMETERS},
    {"adamw, bf16 moments", adamw_bf16_moments, 22.0 * PARAMETERS},
    {"sgd", sgd, 22.0 * PARAMETERS},
    {"lion", lion, 22.0 * PARAMETERS},
    {"lion, bf16 moments", lion_bf16_moments, 18.0 * PARAMETERS},
    {"squared norm", squared_norm, 4.0 * PARAMETERS},
    {"cast to bf16", cast_to_bf16, 6.0 * PARAMETERS},
    {"tree add", tree_add, 12.0 * PARAMETERS},
};
enum { TABLE_ROWS = sizeof table / sizeof *table };

static void copy(struct bench *b, size_t bytes)
{
    int threads = b->ops.threads;
    size_t half = b->bytes * 3, share = bytes / 2 / (size_t)threads / 64 * 64;
    share = share * (size_t)threads > half ? half / (size_t)threads : share;
#pragma omp parallel for num_threads(threads)
    for (int part = 0; part < threads; part++)
        memcpy(b->base + half + (size_t)part * share, b->base + (size_t)part * share, share);
}

static void fill(struct bench *b)
{
    for (int i = 0; i < 6; i++) {
        float *values = at(b, i);
        for (size_t k = 0; k < b->bytes / 4; k++) /* two bf16 near 1, or one float near 1 */
            ((uint32_t *)values)[k] = 0x3f803f80u + ((uint32_t)k * 2654435761u >> 26) * 0x10001u;
    }
    for (int r = 0; r < ROWS; r++)
        b->ids[r] = (int32_t)((uint32_t)r * 2654435761u % VOCABULARY);
    for (int r = 0; r < 2 * ROWS; r++)
        b->floats[r] = 1;
}

enum way { OP, COPY, WAYS };

static int run(void *user, int way, double *counts, struct ls_error *error)
{
    struct bench *b = user;
    (void)counts, (void)error;
    if (way == OP)
        b->row->run(b);
    else
        copy(b, (size_t)b->row->bytes);
    return LS_OK;
}

static int measure(struct bench *b, struct ls_error *error)
{
    struct bench_turns turns = {.ways = WAYS, .rounds = RUNS, .run = run, .user = b};
    int status = bench_turns(&turns, error);
    double op = bench_seconds(&turns, OP);
    printf("%-26s %9.3f ms %8.2f GB/s %5.0f%% of copy (best runs %.0f%%)\n", b->row->name, op * 1e3,
           b->row->bytes / op * 1e-9, 100 * bench_seconds(&turns, COPY) / op,
           100 * bench_best(&turns, COPY) / bench_best(&turns, OP));
    fflush(stdout);
    return status;
}

static void buffers_take(void *user, struct ls_arena *arena)
{
    struct bench *b = user;
    b->base = ls_arena_take(arena, 6 * b->bytes);
    b->ids = ls_arena_take(arena, (size_t)ROWS * 4);
    b->order = ls_arena_take(arena, (size_t)ROWS * 4);
    b->start = ls_arena_take(arena, ((size_t)VOCABULARY + 1) * 4);
    b->floats = ls_arena_take(arena, (size_t)ROWS * 8);
}

int cmd_bench_ops(const struct cmd_args *args, struct ls_error *error)
{
    struct bench b = {.bytes = (size_t)LOSS_ROWS * PADDED * 2};
    struct bench_machine machine = bench_machine();
    struct ls_arena arena = {0};
    machine.threads = 2;
    const struct bench_key keys[] = {
        BENCH_THREADS(&machine.threads), BENCH_WORD("isa", &machine.isa, "numerics.isa"), {0}};
    int status = bench_args(args, keys, error);
    if (!status)
        status = bench_ops(&b.ops, &machine, LS_BF16, error);
    if (!status)
        status = bench_arena(&arena, buffers_take, &b, error);
    if (!status) {
        fill(&b);
        printf("%s, %s\n", ls_counted(b.ops.threads, "thread").text, ls_isa_name(b.ops.isa));
    }
    for (b.row = table; !status && b.row < table + TABLE_ROWS; b.row++)
        status = measure(&b, error);
    ls_arena_release(&arena);
    ls_ops_release(&b.ops);
    return status;
}
