/* The grid of shapes that is measured where no configuration says which ones matter. */
#include "planner/measure_private.h"

#include <math.h>
#include <stdlib.h>

/* Sides of products; m, n, k of all combinations. From small models' widths to large ones', and
 * from one sequence's tokens to a micro-batch's. */
static const int64_t sides[] = {64, 256, 1024, 4096}, sides_coarse[] = {64, 512};
/* Attention: rows (heads and sequences times tokens), tokens, head dim. */
static const int64_t rows_of[] = {1024, 8192, 65536}, tokens_of[] = {64, 256, 1024};
static const int64_t dims[] = {64, 128};
/* Elements of a pass: from L1 to beyond the caches. */
static const int64_t elements[] = {1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24};
#define COUNT_OF(list) ((int)(sizeof(list) / sizeof *(list)))

enum {
    WIDTH = 512,
    HEAD_DIM = 64,
    VOCABULARY = 4096,
    TOKENS = 256,
    WORKS_MAX = 512,
    AGAIN_MAX = 2
};
enum { RING_BYTES = 128 << 20, OP_BYTES = 1 << 30 };
static const double tolerance = 1.05;

/* Ops are called with addresses alone; the list keeps them as commands. Operands go round two
 * rings, so that they were last touched long ago, but for what flows into an op from the one
 * before: that is copied there first. */
struct grid {
    struct ls_measure_list *list;
    struct ls_ops idle;
    struct ls_arena reads, writes; /* addresses of the two rings */
    size_t ring;
    int32_t work; /* of the op to come: -1, it prepares */
    enum ls_dtype act;
    bool coarse, incomplete;
    int64_t elements;
};

/* ---- commands -------------------------------------------------------------------------------- */

static void keep(void *user, const struct ls_queue *queue, const struct ls_command *command)
{
    struct grid *grid = user;
    struct ls_measure_list *list = grid->list;
    struct ls_work work;
    (void)queue;
    if (!ls_command_work(command, &work))
        return;
    LS_ASSERT(list->commands.count < 4 * WORKS_MAX && list->count < WORKS_MAX);
    list->order[list->commands.count] = grid->work;
    if (grid->work >= 0)
        list->works[list->count++] = work;
    grid->incomplete |= !ls_command_list_add(&list->commands, command);
}

/* An op begins: what it takes lies behind each other. */
static void begin(struct grid *grid)
{
    if (grid->reads.used > grid->ring)
        ls_arena_reset(&grid->reads, 0);
    if (grid->writes.used > grid->ring)
        ls_arena_reset(&grid->writes, 0);
    grid->work = (int32_t)grid->list->count;
}

static size_t bytes_of(enum ls_dtype dtype, int64_t elements)
{
    return (size_t)elements * ls_dtype_bytes(dtype);
}

static void *from_memory(struct grid *grid, enum ls_dtype dtype, int64_t elements)
{
    return ls_arena_take(&grid->reads, bytes_of(dtype, elements));
}

static void *to_memory(struct grid *grid, enum ls_dtype dtype, int64_t elements)
{
    return ls_arena_take(&grid->writes, bytes_of(dtype, elements));
}

static void *flow(struct grid *grid, enum ls_dtype dtype, int64_t elements)
{
    void *to = to_memory(grid, dtype, elements);
    int32_t work = grid->work;
    grid->work = -1;
    ls_copy(&grid->idle, bytes_of(dtype, elements), from_memory(grid, dtype, elements), to);
    grid->work = work;
    return to;
}

/* ---- products and attention ------------------------------------------------------------------ */

static int put_product(struct grid *grid, enum ls_work_kind kind, int64_t m, int64_t n, int64_t k,
                       struct ls_error *error)
{
    struct ls_gemm gemm = {.m = m, .n = n, .sections = 1, .k = {k}, .in = grid->act};
    begin(grid);
    gemm.a_transposed = kind == LS_WORK_PRODUCT_AT;
    gemm.b_transposed = kind == LS_WORK_PRODUCT_BT;
    gemm.out = gemm.a_transposed ? LS_F32 : grid->act;
    gemm.tiles = gemm.leaves = gemm.a_transposed && k % TOKENS == 0 ? k / TOKENS : 1;
    gemm.lda = gemm.a_transposed ? m : k;
    gemm.ldb = gemm.b_transposed ? k : n;
    gemm.ldc = n;
    gemm.a = flow(grid, grid->act, m * k);
    gemm.b = from_memory(grid, grid->act, n * k);
    gemm.c = to_memory(grid, gemm.out, m * n);
    return ls_gemm_run(&grid->idle, &gemm, error);
}

static int put_products(struct grid *grid, struct ls_error *error)
{
    const int64_t *side = grid->coarse ? sides_coarse : sides;
    int count = grid->coarse ? COUNT_OF(sides_coarse) : COUNT_OF(sides), status = LS_OK;
    for (int kind = LS_WORK_PRODUCT; kind <= LS_WORK_PRODUCT_AT; kind++)
        for (int i = 0; i < count * count * count && !status; i++)
            status = put_product(grid, (enum ls_work_kind)kind, side[i / (count * count)],
                                 side[i / count % count], side[i % count], error);
    return status;
}

/* Heads with keys and values of their own, side by side as a stacked product writes them. */
static int put_attention_of(struct grid *grid, bool backward, int64_t rows, int64_t tokens,
                            int64_t dim, struct ls_error *error)
{
    struct ls_attention a = {.batch = rows / tokens,
                             .tokens = tokens,
                             .heads = 1,
                             .kv_heads = 1,
                             .head_dim = dim,
                             .scale = 0.125f,
                             .act = grid->act,
                             .q_ld = 3 * dim,
                             .kv_ld = 3 * dim,
                             .o_ld = dim};
    begin(grid);
    a.q = backward ? from_memory(grid, a.act, 3 * rows * dim) : flow(grid, a.act, 3 * rows * dim);
    a.k = (const char *)a.q + bytes_of(a.act, dim);
    a.v = (const char *)a.k + bytes_of(a.act, dim);
    a.o = backward ? from_memory(grid, a.act, rows * dim) : to_memory(grid, a.act, rows * dim);
    a.lse = backward ? from_memory(grid, LS_F32, rows) : to_memory(grid, LS_F32, rows);
    if (!backward)
        return ls_attention_forward(&grid->idle, &a, error);
    a.d_o = flow(grid, a.act, rows * dim);
    a.d_q = to_memory(grid, a.act, 3 * rows * dim);
    a.d_k = (char *)a.d_q + bytes_of(a.act, dim);
    a.d_v = (char *)a.d_k + bytes_of(a.act, dim);
    return ls_attention_backward(&grid->idle, &a, error);
}

static int put_attention(struct grid *grid, struct ls_error *error)
{
    int rows = grid->coarse ? 1 : COUNT_OF(rows_of), status = LS_OK;
    int tokens = grid->coarse ? 2 : COUNT_OF(tokens_of);
    for (int backward = 0; backward < 2; backward++)
        for (int i = 0; i < rows * tokens * COUNT_OF(dims) && !status; i++)
            status = put_attention_of(grid, backward, rows_of[i / (tokens * COUNT_OF(dims))],
                                      tokens_of[i / COUNT_OF(dims) % tokens],
                                      dims[i % COUNT_OF(dims)], error);
    return status;
}

/* ---- passes ---------------------------------------------------------------------------------- */

static struct ls_token_sum leaves_of(int64_t rows)
{
    bool whole = rows % TOKENS == 0;
    return (struct ls_token_sum){whole ? rows / TOKENS : 1, 1, 1, whole ? TOKENS : rows,
                                 LS_ONTO_NOTHING};
}

static struct ls_norm norm_of(struct grid *grid, int64_t rows, bool forward)
{
    return (struct ls_norm){
        .rows = rows,
        .channels = WIDTH,
        .act = grid->act,
        .epsilon = 1e-5f,
        .weight = from_memory(grid, LS_F32, WIDTH),
        .bias = from_memory(grid, LS_F32, WIDTH),
        .mean = forward ? to_memory(grid, LS_F32, rows) : from_memory(grid, LS_F32, rows),
        .rstd = forward ? to_memory(grid, LS_F32, rows) : from_memory(grid, LS_F32, rows),
    };
}

static void put_norm(struct grid *grid, int64_t rows)
{
    enum ls_dtype act = grid->act;
    int64_t all = rows * WIDTH;
    const struct ls_norm norm = norm_of(grid, rows, true);
    const void *x = flow(grid, act, all), *residual = from_memory(grid, act, all);
    void *sum = to_memory(grid, act, all);
    ls_layernorm_forward(&grid->idle, &norm, x, residual, sum, to_memory(grid, act, all));
}

static void put_norm_backward(struct grid *grid, int64_t rows)
{
    enum ls_dtype act = grid->act;
    int64_t all = rows * WIDTH;
    const struct ls_norm norm = norm_of(grid, rows, false);
    const void *h = from_memory(grid, act, all), *dy = flow(grid, act, all);
    const void *around = from_memory(grid, act, all);
    ls_layernorm_backward_input(&grid->idle, &norm, h, dy, around, to_memory(grid, act, all));
}

static void put_column_sum(struct grid *grid, int64_t rows)
{
    const struct ls_token_sum sum = leaves_of(rows);
    const void *dy = flow(grid, grid->act, rows * WIDTH);
    ls_bias_backward(&grid->idle, grid->act, WIDTH, WIDTH, dy, &sum,
                     to_memory(grid, LS_F32, WIDTH));
}

static void put_activation(struct grid *grid, int64_t count)
{
    const void *x = flow(grid, grid->act, count);
    ls_gelu_forward(&grid->idle, LS_GELU_TANH, grid->act, count, x,
                    to_memory(grid, grid->act, count));
}

static void put_activation_backward(struct grid *grid, int64_t count)
{
    const void *x = from_memory(grid, grid->act, count), *dy = flow(grid, grid->act, count);
    ls_gelu_backward(&grid->idle, LS_GELU_TANH, grid->act, count, x, dy,
                     to_memory(grid, grid->act, count));
}

static void put_add(struct grid *grid, int64_t count)
{
    const void *x = flow(grid, grid->act, count), *z = from_memory(grid, grid->act, count);
    ls_add(&grid->idle, grid->act, count, x, z, to_memory(grid, grid->act, count));
}

static void put_dropout(struct grid *grid, int64_t rows)
{
    const struct ls_dropout dropout = {.key = {{1, 2}}, .p = 0.1f, .rows = rows, .channels = WIDTH};
    void *x = flow(grid, grid->act, rows * WIDTH);
    ls_dropout(&grid->idle, grid->act, &dropout, x, x);
}

static void put_rope(struct grid *grid, int64_t rows)
{
    struct ls_rope rope = {.rows = rows,
                           .tokens = TOKENS,
                           .heads = WIDTH / HEAD_DIM,
                           .head_dim = HEAD_DIM,
                           .ld = WIDTH};
    rope.cosine = from_memory(grid, LS_F32, TOKENS * HEAD_DIM / 2);
    rope.sine = from_memory(grid, LS_F32, TOKENS * HEAD_DIM / 2);
    ls_rope_apply(&grid->idle, grid->act, &rope, flow(grid, grid->act, rows * WIDTH), false);
}

static struct ls_embedding embedding_of(struct grid *grid, int64_t rows)
{
    return (struct ls_embedding){.act = grid->act,
                                 .rows = rows,
                                 .channels = WIDTH,
                                 .vocabulary = VOCABULARY,
                                 .tokens = TOKENS,
                                 .ids = from_memory(grid, LS_F32, rows)};
}

static void put_embedding(struct grid *grid, int64_t rows)
{
    struct ls_embedding embedding = embedding_of(grid, rows);
    embedding.table = from_memory(grid, grid->act, VOCABULARY * WIDTH);
    ls_embedding_forward(&grid->idle, &embedding, to_memory(grid, grid->act, rows * WIDTH));
}

static void put_embedding_backward(struct grid *grid, int64_t rows)
{
    struct ls_token_sum sum = leaves_of(rows);
    sum.onto = LS_ONTO_SUM;
    const struct ls_embedding embedding = embedding_of(grid, rows);
    const void *dy = flow(grid, grid->act, rows * WIDTH);
    struct ls_embedding_scratch scratch = {.order = to_memory(grid, LS_F32, rows)};
    scratch.start = to_memory(grid, LS_F32, VOCABULARY + 1);
    ls_embedding_backward(&grid->idle, &embedding, dy, &sum, scratch,
                          to_memory(grid, LS_F32, VOCABULARY * WIDTH));
}

static void put_loss(struct grid *grid, int64_t rows)
{
    const struct ls_cross_entropy op = {.rows = rows,
                                        .vocabulary = VOCABULARY,
                                        .padded = VOCABULARY,
                                        .tiles = 1,
                                        .act = grid->act,
                                        .scale = 1e-3f};
    void *logits = flow(grid, grid->act, rows * VOCABULARY);
    const int32_t *target = from_memory(grid, LS_F32, rows);
    ls_cross_entropy(&grid->idle, &op, logits, target, to_memory(grid, LS_F32, rows));
}

static void put_tree_add(struct grid *grid, int64_t count)
{
    float *into = to_memory(grid, LS_F32, count);
    ls_tree_add(&grid->idle, count, into, flow(grid, LS_F32, count));
}

static void put_update(struct grid *grid, int64_t count)
{
    const struct ls_adamw adamw = {0.9f, 0.95f, 1e-8f, 10};
    struct ls_update update = {.count = count,
                               .gradient_scale = 1,
                               .lr = 1e-6f,
                               .weight_decay = 0.1f,
                               .moment_type = LS_F32};
    update.master = to_memory(grid, LS_F32, count);
    update.gradient = to_memory(grid, LS_F32, count);
    void *m = to_memory(grid, LS_F32, count), *v = to_memory(grid, LS_F32, count);
    ls_adamw_update(&grid->idle, &update, &adamw, m, v);
}

static void put_squares(struct grid *grid, int64_t count)
{
    const float *x = from_memory(grid, LS_F32, count);
    ls_squared_norm(&grid->idle, count, x, NULL,
                    to_memory(grid, LS_U8, sizeof(struct ls_exact_sum)));
}

static void put_cast(struct grid *grid, int64_t count)
{
    const float *x = flow(grid, LS_F32, count);
    ls_cast_to_half(&grid->idle, LS_BF16, count, x, to_memory(grid, LS_BF16, count));
}

static void put_copy(struct grid *grid, int64_t bytes)
{
    const void *from = from_memory(grid, LS_U8, bytes);
    ls_copy(&grid->idle, (size_t)bytes, from, to_memory(grid, LS_U8, bytes));
}

static void put_fill(struct grid *grid, int64_t bytes)
{
    ls_fill_zero(&grid->idle, (size_t)bytes, to_memory(grid, LS_U8, bytes));
}

/* What no activation takes part in is measured with float32 alone. */
static const struct pass {
    void (*put)(struct grid *grid, int64_t rows);
    int64_t width; /* of a row; 1: counted elements */
    bool halves, floats;
} passes[] = {
    {put_norm, WIDTH, true, true},
    {put_norm_backward, WIDTH, true, true},
    {put_column_sum, WIDTH, true, true},
    {put_activation, 1, true, true},
    {put_activation_backward, 1, true, true},
    {put_add, 1, true, false},
    {put_dropout, WIDTH, true, true},
    {put_rope, WIDTH, true, true},
    {put_embedding, WIDTH, true, true},
    {put_embedding_backward, WIDTH, true, true},
    {put_loss, VOCABULARY, true, true},
    {put_tree_add, 1, false, true},
    {put_update, 1, false, true},
    {put_squares, 1, false, true},
    {put_cast, 1, false, true},
    {put_copy, 1, false, true},
    {put_fill, 1, false, true},
};

static void put_passes(struct grid *grid)
{
    int count = grid->coarse ? 3 : COUNT_OF(elements);
    int64_t most = grid->elements ? grid->elements : elements[COUNT_OF(elements) - 1];
    for (int p = 0; p < COUNT_OF(passes); p++)
        for (int i = 0; i < count && (grid->act == LS_F32 ? passes[p].floats : passes[p].halves);
             i++) {
            int64_t all = ls_min(elements[grid->coarse ? 3 * i : i], most);
            begin(grid);
            passes[p].put(grid, ls_max(1, all / passes[p].width));
        }
}

/* ---- measuring ------------------------------------------------------------------------------- */

/* A shape that is nowhere larger took longer: one of both was disturbed. */
static bool contradicts(const struct ls_work *a, double a_s, const struct ls_work *b, double b_s)
{
    return a->kind == b->kind && a->dtype == b->dtype && a->m <= b->m && a->n <= b->n &&
           a->k <= b->k && a_s > tolerance * b_s;
}

/* Marks in again what contradicts something else; returns how many. */
static int64_t doubtful(const struct ls_measure_list *list, const double *seconds, bool *again)
{
    int64_t count = 0;
    for (int64_t i = 0; i < list->count; i++) {
        again[i] = false;
        for (int64_t j = 0; j < list->count && !again[i]; j++) {
            const struct ls_work *a = &list->works[i], *b = &list->works[j];
            again[i] = i != j && (contradicts(a, seconds[i], b, seconds[j]) ||
                                  contradicts(b, seconds[j], a, seconds[i]));
        }
        count += again[i];
    }
    return count;
}

/* The commands of the marked works, and those that prepare them. */
static int list_pick(const struct ls_measure_list *list, const bool *marked,
                     struct ls_measure_list *out, struct ls_error *error)
{
    *out = *list;
    out->commands = (struct ls_command_list){.count = 0};
    out->order = calloc((size_t)list->commands.count + 1, sizeof *out->order);
    bool fails = !out->order;
    for (int64_t i = 0; i < list->commands.count && !fails; i++) {
        int64_t of = i;
        while (list->order[of] < 0)
            of++;
        if (!marked[list->order[of]])
            continue;
        const struct ls_command command = ls_command_list_get(&list->commands, i);
        out->order[out->commands.count] = list->order[i];
        fails = !ls_command_list_add(&out->commands, &command);
    }
    return fails ? ls_no_memory(error, "for the grid") : LS_OK;
}

/* What is disturbed takes longer, never less: of several measurements the shortest counts. */
static int measure_again(const struct ls_measure *measure, const struct ls_measure_list *list,
                         double *seconds, struct ls_error *error)
{
    bool marked[WORKS_MAX];
    double again[WORKS_MAX];
    int status = LS_OK;
    for (int turn = 0; turn < AGAIN_MAX && !status; turn++) {
        struct ls_measure_list some;
        if (doubtful(list, seconds, marked) == 0)
            break;
        status = list_pick(list, marked, &some, error);
        if (!status)
            status = ls_measure_works(measure, &some, again, error);
        for (int64_t i = 0; i < list->count && !status; i++)
            if (marked[i])
                seconds[i] = fmin(seconds[i], again[i]);
        ls_command_list_release(&some.commands);
        free(some.order);
    }
    return status;
}

static int grid_measure(const struct ls_measure *measure, const struct ls_measure_list *list,
                        struct ls_error *error)
{
    double seconds[WORKS_MAX];
    int status = ls_measure_works(measure, list, seconds, error);
    if (!status)
        status = measure_again(measure, list, seconds, error);
    for (int64_t i = 0; i < list->count && !status; i++)
        status =
            measure_row_add(measure, list->options.threads, &list->works[i], 0, seconds[i], error);
    return status;
}

/* The list of the grid, to be released in any case. */
static int grid_record(const struct ls_measure *measure, enum ls_dtype act,
                       struct ls_measure_list *list, struct ls_error *error)
{
    struct grid grid = {.list = list,
                        .act = act,
                        .coarse = measure->effort.coarse,
                        .elements = measure->effort.elements};
    const struct ls_queue_watch watch = {.begin = keep, .user = &grid};
    grid.ring = grid.coarse ? RING_BYTES / 4 : RING_BYTES;
    list->works = calloc(WORKS_MAX, sizeof *list->works);
    list->order = calloc(4 * WORKS_MAX, sizeof *list->order);
    if (!list->works || !list->order)
        return ls_no_memory(error, "for the grid");
    ls_ops_init_idle(&grid.idle, LS_ISA_PLAIN);
    grid.idle.queue.watch = &watch;
    int status = ls_arena_reserve(&grid.reads, grid.ring + OP_BYTES, error);
    if (!status)
        status = ls_arena_reserve(&grid.writes, grid.ring + OP_BYTES, error);
    if (!status)
        status = put_products(&grid, error);
    if (!status)
        status = put_attention(&grid, error);
    if (!status)
        put_passes(&grid);
    if (!status && grid.incomplete)
        status = ls_no_memory(error, "for the grid");
    list->options.memories[0] = (struct ls_recorded_memory){grid.reads.base, grid.reads.peak};
    list->options.memories[1] = (struct ls_recorded_memory){grid.writes.base, grid.writes.peak};
    ls_arena_release(&grid.reads);
    ls_arena_release(&grid.writes);
    return status;
}

int ls_measure_grid(const struct ls_measure *measure, enum ls_dtype act, int threads,
                    struct ls_error *error)
{
    enum ls_arithmetic arithmetic = ls_arithmetic_fastest(ls_isa_best(), act);
    struct ls_measure_list list = {
        .options = {.threads = threads,
                    .arithmetic = arithmetic,
                    .isa = ls_isa_fastest(ls_isa_best(), arithmetic, act),
                    .act = act},
        .alone = true,
    };
    int status = grid_record(measure, act, &list, error);
    if (!status)
        status = grid_measure(measure, &list, error);
    ls_measure_list_release(&list);
    return status;
}
