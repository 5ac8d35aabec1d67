/* The grid of shapes that is measured where no configuration says which ones matter. */
#include <lockstep/planner/measure.h>

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

enum { WIDTH = 512, VOCABULARY = 4096, RING_BYTES = 128 << 20, WORKS_MAX = 512, AGAIN_MAX = 2 };
static const double tolerance = 1.05;

/* Passes: what each tells (lockstep/ops/work.h). type LS_BF16 here stands for that of activations;
 * width 1: counted elements. */
static const struct pass {
    enum ls_work_kind kind;
    enum ls_dtype dtype;
    int64_t width;
    double flops, moved; /* of an element; moved in elements */
} passes[] = {
    {LS_WORK_NORM, LS_BF16, WIDTH, 8, 4},
    {LS_WORK_NORM_BACKWARD, LS_BF16, WIDTH, 10, 4},
    {LS_WORK_COLUMN_SUM, LS_BF16, WIDTH, 1, 1},
    {LS_WORK_ACTIVATION, LS_BF16, 1, 12, 2},
    {LS_WORK_ACTIVATION_BACKWARD, LS_BF16, 1, 20, 3},
    {LS_WORK_ADD, LS_BF16, 1, 1, 3},
    {LS_WORK_DROPOUT, LS_BF16, WIDTH, 1, 2},
    {LS_WORK_ROPE, LS_BF16, WIDTH, 3, 2},
    {LS_WORK_EMBEDDING, LS_BF16, WIDTH, 1, 2},
    {LS_WORK_EMBEDDING_BACKWARD, LS_BF16, WIDTH, 1, 1},
    {LS_WORK_LOSS, LS_BF16, VOCABULARY, 4, 3},
    {LS_WORK_ADD, LS_F32, 1, 1, 3},
    {LS_WORK_UPDATE, LS_F32, 1, 15, 7},
    {LS_WORK_SQUARES, LS_F32, 1, 2, 1},
    {LS_WORK_CAST, LS_F32, 1, 0, 1.5},
    {LS_WORK_COPY, LS_U8, 1, 0, 2},
    {LS_WORK_FILL, LS_U8, 1, 0, 1},
};

struct grid {
    struct ls_work works[WORKS_MAX];
    int32_t order[WORKS_MAX];
    int count;
    bool coarse;
    int64_t elements;
};

static void grid_put(struct grid *grid, struct ls_work work)
{
    LS_ASSERT(grid->count < WORKS_MAX);
    grid->order[grid->count] = grid->count;
    grid->works[grid->count++] = work;
}

static void put_products(struct grid *grid, enum ls_dtype act)
{
    const int64_t *side = grid->coarse ? sides_coarse : sides;
    int count = grid->coarse ? COUNT_OF(sides_coarse) : COUNT_OF(sides);
    double in = (double)ls_dtype_bytes(act);
    for (int kind = LS_WORK_PRODUCT; kind <= LS_WORK_PRODUCT_AT; kind++)
        for (int i = 0; i < count * count * count; i++) {
            struct ls_work w = {.kind = (enum ls_work_kind)kind, .dtype = act};
            w.m = side[i / (count * count)];
            w.n = side[i / count % count];
            w.k = side[i % count];
            double m = (double)w.m, n = (double)w.n, k = (double)w.k;
            w.flops = 2 * m * n * k;
            w.bytes = (m + n) * k * in + m * n * (kind == LS_WORK_PRODUCT_AT ? 4 : in);
            grid_put(grid, w);
        }
}

static void put_attention(struct grid *grid, enum ls_dtype act)
{
    int rows = grid->coarse ? 1 : COUNT_OF(rows_of);
    int tokens = grid->coarse ? 2 : COUNT_OF(tokens_of);
    double each = (double)ls_dtype_bytes(act);
    for (int backward = 0; backward < 2; backward++)
        for (int i = 0; i < rows * tokens * COUNT_OF(dims); i++) {
            int64_t m = rows_of[i / (tokens * COUNT_OF(dims))];
            int64_t t = tokens_of[i / COUNT_OF(dims) % tokens], d = dims[i % COUNT_OF(dims)];
            double moved = (double)m * (double)d * each;
            grid_put(grid,
                     (struct ls_work){
                         .kind = backward ? LS_WORK_ATTENTION_BACKWARD : LS_WORK_ATTENTION,
                         .dtype = act,
                         .m = m,
                         .n = (t + 2) / 2,
                         .k = d,
                         .flops = (backward ? 5 : 2) * (double)m * (double)(t + 1) * (double)d,
                         .bytes = (backward ? 8 : 4) * moved,
                     });
        }
}

/* What no activation takes part in is measured with float32 alone. */
static void put_passes(struct grid *grid, enum ls_dtype act)
{
    int count = grid->coarse ? 3 : COUNT_OF(elements);
    for (int p = 0; p < COUNT_OF(passes); p++)
        for (int i = 0; i < count; i++) {
            const struct pass *pass = &passes[p];
            int64_t most = grid->elements ? grid->elements : elements[COUNT_OF(elements) - 1];
            int64_t count_of = ls_min(elements[grid->coarse ? 3 * i : i], most);
            int64_t rows = ls_max(1, count_of / pass->width);
            double all = (double)rows * (double)pass->width;
            struct ls_work w = {.kind = pass->kind, .m = rows, .n = pass->width, .k = 1};
            w.dtype = pass->dtype == LS_BF16 ? act : pass->dtype;
            w.flops = all * pass->flops;
            w.bytes = all * pass->moved * (double)ls_dtype_bytes(w.dtype);
            if (pass->kind == LS_WORK_EMBEDDING_BACKWARD)
                w.bytes += 8 * all;
            if (act == LS_F32 ? !(pass->kind == LS_WORK_ADD && pass->dtype == LS_BF16)
                              : pass->dtype == LS_BF16)
                grid_put(grid, w);
        }
}

/* A shape that is nowhere larger took longer: one of both was disturbed. */
static bool contradicts(const struct ls_work *a, double a_s, const struct ls_work *b, double b_s)
{
    return a->kind == b->kind && a->dtype == b->dtype && a->m <= b->m && a->n <= b->n &&
           a->k <= b->k && a_s > tolerance * b_s;
}

/* Indices of what contradicts something else. */
static int64_t doubtful(const struct grid *grid, const double *seconds, int32_t *order)
{
    int64_t count = 0;
    for (int i = 0; i < grid->count; i++) {
        bool doubt = false;
        for (int j = 0; j < grid->count && !doubt; j++) {
            const struct ls_work *a = &grid->works[i], *b = &grid->works[j];
            doubt = i != j && (contradicts(a, seconds[i], b, seconds[j]) ||
                               contradicts(b, seconds[j], a, seconds[i]));
        }
        if (doubt)
            order[count++] = i;
    }
    return count;
}

/* What is disturbed takes longer, never less: of several measurements the shortest counts. */
static int measure_again(const struct ls_measure *measure, struct ls_measure_list *list,
                         const struct grid *grid, double *seconds, struct ls_error *error)
{
    int32_t order[WORKS_MAX];
    double again[WORKS_MAX];
    int status = LS_OK;
    for (int turn = 0; turn < AGAIN_MAX && !status; turn++) {
        list->order = order;
        list->steps = doubtful(grid, seconds, order);
        if (list->steps == 0)
            break;
        status = ls_measure_works(measure, list, again, error);
        for (int64_t i = 0; i < list->steps && !status; i++)
            seconds[order[i]] = fmin(seconds[order[i]], again[order[i]]);
    }
    return status;
}

static int grid_measure(const struct ls_measure *measure, struct ls_measure_list *list,
                        const struct grid *grid, struct ls_error *error)
{
    double seconds[WORKS_MAX];
    int status = ls_measure_works(measure, list, seconds, error);
    if (!status)
        status = measure_again(measure, list, grid, seconds, error);
    for (int i = 0; i < grid->count && !status; i++) {
        const struct ls_work *w = &grid->works[i];
        struct ls_measured_work row = {.kind = w->kind,
                                       .dtype = w->dtype,
                                       .threads = list->options.threads,
                                       .m = w->m,
                                       .n = w->n,
                                       .k = w->k,
                                       .seconds = seconds[i]};
        status = ls_measure_add_work(measure->cluster, &row, error);
    }
    return status;
}

int ls_measure_grid(const struct ls_measure *measure, enum ls_dtype act, int threads,
                    struct ls_error *error)
{
    struct grid *grid = calloc(1, sizeof *grid);
    if (!grid)
        return ls_error_set(error, LS_ENOMEM, "no memory for the grid");
    grid->coarse = measure->effort.coarse;
    grid->elements = measure->effort.elements;
    put_products(grid, act);
    put_attention(grid, act);
    put_passes(grid, act);
    enum ls_arithmetic arithmetic = ls_arithmetic_fastest(ls_isa_best(), act);
    size_t ring = grid->coarse ? RING_BYTES / 4 : RING_BYTES;
    struct ls_measure_list list = {
        .options =
            {.threads = threads,
             .arithmetic = arithmetic,
             .isa = ls_isa_fastest(ls_isa_best(), arithmetic, act),
             .hints = {.sequence = 256, .vocabulary = VOCABULARY, .tile_tokens = 256, .act = act},
             .read_bytes = ring,
             .write_bytes = ring,
             .alone = true},
        .works = grid->works,
        .order = grid->order,
        .count = grid->count,
        .steps = grid->count,
    };
    int status = grid_measure(measure, &list, grid, error);
    free(grid);
    return status;
}
