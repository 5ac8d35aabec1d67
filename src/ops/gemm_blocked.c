/* The loops of the matrix product: what is packed when, what rests where, who computes what.
 *
 * An element's sum inside a tile of the contraction is one chain, ascending in k. The chain may
 * rest in memory between two chunks of steps (a float32 stored and loaded again is the same), so no
 * cut below - chunks, blocks of k, rows, columns, threads - is seen in the bits. Each section's
 * part of a tile is padded with zeros to a whole number of steps.
 *
 * Cache: a chunk of one panel of B stays in L1 while the panels of A's rows stream past it from L2;
 * B is packed once by all threads together and read from the shared cache.
 */
#include "ops/gemm.h"

#include <omp.h>

enum {
    CHUNK_BYTES = 32 << 10,       /* one chunk of a panel of B, in L1 */
    A_BYTES = 5 << 18,            /* packed rows of A, in L2 */
    ROWS_MAX = 512,               /* of those, at most */
    ROWS_MIN = 128,               /* where k is so long that this many do not fit, k is cut */
    K_BLOCK_BYTES = 96 << 10,     /* then in blocks of this much a panel */
    B_SHARE_BYTES = 7 << 19,      /* packed B, per thread */
    B_BYTES_MAX = 32 << 20,       /* and in all: it should stay in the shared cache */
    COLUMN_PANELS_PER_THREAD = 8, /* rows are split over threads unless each gets fewer panels */
};

/* One product, as it is cut. Panels are groups of 32 rows or columns; steps are 32 of k. */
struct plan {
    const struct ls_gemm *gemm;
    const struct gemm_kernel *kernel;
    const struct gemm_finish *finish;
    int64_t part[LS_GEMM_SECTIONS_MAX];       /* a tile's length in each section */
    int64_t part_steps[LS_GEMM_SECTIONS_MAX]; /* the same in steps */
    int64_t tile_steps, steps;                /* of a tile; of all tiles */
    int levels;                               /* subtrees that wait at one time */
    int64_t row_panels, column_panels;
    int64_t block_rows;    /* panels of A packed at one time by a thread */
    int64_t block_columns; /* panels of B packed at one time */
    int64_t block_steps;   /* steps packed at one time */
};

/* What one thread works on. `threads` threads share packed B; this one is number `index`. */
struct worker {
    const struct plan *plan;
    int threads, index;
    int64_t row, row_end;       /* panels of this thread */
    int64_t column, column_end; /* panels of all that share B */
    unsigned char *a, *b;       /* packed */
    float *state;               /* sums at rest: per block, the chain, then `levels` subtrees */
};

/* A run of k that was packed and is worked on: steps [step, step_end). */
struct run {
    int64_t step, step_end;
};

/* ---- packing -------------------------------------------------------------------------------- */

static int64_t run_bytes(const struct plan *plan, struct run run)
{
    return (run.step_end - run.step) * plan->kernel->block_bytes;
}

/* Where a step lies in k: k values from the returned index. */
static int64_t step_place(const struct plan *plan, int64_t step, int64_t *k)
{
    int64_t tile = step / plan->tile_steps, rest = step % plan->tile_steps, start = 0;
    int s = 0;
    while (rest >= plan->part_steps[s]) {
        rest -= plan->part_steps[s];
        start += plan->gemm->k[s++];
    }
    *k = ls_min(GEMM_EDGE, plan->part[s] - rest * GEMM_EDGE);
    return start + tile * plan->part[s] + rest * GEMM_EDGE;
}

/* One panel of A or B, one run of k. */
static void pack_panel(const struct plan *plan, bool is_b, int64_t panel, struct run run,
                       unsigned char *to)
{
    const struct ls_gemm *gemm = plan->gemm;
    struct gemm_form form = {.is_b = is_b,
                             .k_contiguous = is_b ? gemm->b_transposed : !gemm->a_transposed,
                             .dtype = gemm->in};
    const unsigned char *x = is_b ? gemm->b : gemm->a;
    int64_t ld = is_b ? gemm->ldb : gemm->lda, size = (int64_t)ls_dtype_bytes(gemm->in);
    int64_t first = panel * GEMM_EDGE,
            count = ls_min(GEMM_EDGE, (is_b ? gemm->n : gemm->m) - first);
    for (int64_t step = run.step; step < run.step_end; step++, to += plan->kernel->block_bytes) {
        int64_t k, start = step_place(plan, step, &k);
        int64_t index = form.k_contiguous ? first * ld + start : start * ld + first;
        plan->kernel->pack(form, x + index * size, ld, count, k, to);
    }
}

/* ---- the loops ------------------------------------------------------------------------------- */

/* limit cut into the fewest equal pieces of at most most: their size. */
static int64_t even_piece(int64_t limit, int64_t most)
{
    most = ls_max(most, 1);
    return ls_ceil_div(limit, ls_ceil_div(limit, most));
}

/* One block of C through one chunk of steps: on with its chain and, where the tile ends, into the
 * tree. state: chain [32, 32], then the waiting subtrees. */
static void block_chunk(const struct worker *worker, int64_t row_panel, int64_t column_panel,
                        struct run chunk, const unsigned char *a, const unsigned char *b,
                        float *state)
{
    const struct plan *plan = worker->plan;
    int64_t tile = chunk.step / plan->tile_steps;
    bool first = chunk.step % plan->tile_steps == 0, last = chunk.step_end % plan->tile_steps == 0;
    float *top = state + (1 + gemm_waiting(tile)) * GEMM_BLOCK_FLOATS;
    int merges = gemm_merges(tile, plan->gemm->tiles);
    bool ends = tile == plan->gemm->tiles - 1;
    float *to = last && merges == 0 && !ends ? top : state;
    plan->kernel->product(a, b, chunk.step_end - chunk.step, first ? NULL : state, to);
    if (last && ends)
        plan->finish->write(plan->gemm, row_panel * GEMM_EDGE, column_panel * GEMM_EDGE, state, top,
                            merges);
    else if (last && merges > 0)
        plan->finish->merge(state, top, merges);
}

/* The packed rows [row, row_end) against one packed panel of B, through a run of k. The state of
 * row panel row + i is at state + i * (1 + levels) blocks. */
static void panel_product(const struct worker *worker, int64_t row, int64_t row_end,
                          int64_t column_panel, struct run run, const unsigned char *b,
                          float *state)
{
    const struct plan *plan = worker->plan;
    int64_t panel_bytes = run_bytes(worker->plan, run);
    int64_t chunk_steps = even_piece(plan->tile_steps, CHUNK_BYTES / plan->kernel->block_bytes);
    for (int64_t step = run.step; step < run.step_end;) {
        int64_t tile_end = (step / plan->tile_steps + 1) * plan->tile_steps;
        struct run chunk = {step, ls_min(ls_min(step + chunk_steps, tile_end), run.step_end)};
        int64_t offset = (step - run.step) * plan->kernel->block_bytes;
        for (int64_t i = row; i < row_end; i++)
            block_chunk(worker, i, column_panel, chunk,
                        worker->a + (i - row) * panel_bytes + offset, b + offset,
                        state + (i - row) * (1 + plan->levels) * GEMM_BLOCK_FLOATS);
        step = chunk.step_end;
    }
}

static void wait_for_all(const struct worker *worker)
{
    if (worker->threads > 1) {
#pragma omp barrier
    }
}

/* Packs this thread's part of columns [column, column_end); all is there on return. */
static void pack_b_together(const struct worker *worker, int64_t column, int64_t column_end,
                            struct run run)
{
    wait_for_all(worker);
    int64_t panel_bytes = run_bytes(worker->plan, run);
    int64_t count = column_end - column;
    int64_t from = count * worker->index / worker->threads;
    int64_t to = count * (worker->index + 1) / worker->threads;
    for (int64_t i = from; i < to; i++)
        pack_panel(worker->plan, true, column + i, run, worker->b + i * panel_bytes);
    wait_for_all(worker);
}

static void pack_a_rows(const struct worker *worker, int64_t row, int64_t row_end, struct run run)
{
    int64_t panel_bytes = run_bytes(worker->plan, run);
    for (int64_t i = row; i < row_end; i++)
        pack_panel(worker->plan, false, i, run, worker->a + (i - row) * panel_bytes);
}

/* All of k fits: every element is finished in one go, its chain and tree never leave L2. */
static void work_whole_k(const struct worker *worker)
{
    const struct plan *plan = worker->plan;
    struct run run = {0, plan->steps};
    int64_t panel_bytes = run_bytes(plan, run), packed_row = -1;
    for (int64_t column = worker->column; column < worker->column_end;
         column += plan->block_columns) {
        int64_t column_end = ls_min(column + plan->block_columns, worker->column_end);
        pack_b_together(worker, column, column_end, run);
        for (int64_t row = worker->row; row < worker->row_end; row += plan->block_rows) {
            int64_t row_end = ls_min(row + plan->block_rows, worker->row_end);
            if (packed_row != row)
                pack_a_rows(worker, row, row_end, run);
            packed_row = row;
            for (int64_t j = column; j < column_end; j++)
                panel_product(worker, row, row_end, j, run, worker->b + (j - column) * panel_bytes,
                              worker->state);
        }
    }
}

/* k in blocks: the state of a whole block of C rests between them. Every thread makes the same
 * number of turns, also where it has fewer rows, because B is packed together. */
static void work_blocks_of_k(const struct worker *worker, int64_t turns)
{
    const struct plan *plan = worker->plan;
    int64_t panel_state = plan->block_rows * (1 + plan->levels) * GEMM_BLOCK_FLOATS;
    for (int64_t column = worker->column; column < worker->column_end;
         column += plan->block_columns)
        for (int64_t turn = 0; turn < turns; turn++) {
            int64_t column_end = ls_min(column + plan->block_columns, worker->column_end);
            int64_t row = ls_min(worker->row + turn * plan->block_rows, worker->row_end);
            int64_t row_end = ls_min(row + plan->block_rows, worker->row_end);
            for (int64_t step = 0; step < plan->steps; step += plan->block_steps) {
                struct run run = {step, ls_min(step + plan->block_steps, plan->steps)};
                pack_b_together(worker, column, column_end, run);
                pack_a_rows(worker, row, row_end, run);
                int64_t panel_bytes = run_bytes(worker->plan, run);
                for (int64_t j = column; j < column_end; j++)
                    panel_product(worker, row, row_end, j, run,
                                  worker->b + (j - column) * panel_bytes,
                                  worker->state + (j - column) * panel_state);
            }
        }
}

/* ---- the plan -------------------------------------------------------------------------------- */

static bool is_whole_k(const struct plan *plan)
{
    return plan->block_steps == plan->steps;
}

static size_t state_bytes(const struct plan *plan)
{
    int64_t blocks = plan->block_rows * (is_whole_k(plan) ? 1 : plan->block_columns);
    return (size_t)(blocks * (1 + plan->levels) * GEMM_BLOCK_FLOATS) * sizeof(float);
}
static size_t a_bytes(const struct plan *plan)
{
    return (size_t)(plan->block_rows * plan->block_steps * plan->kernel->block_bytes);
}
static size_t b_bytes(const struct plan *plan)
{
    return (size_t)(plan->block_columns * plan->block_steps * plan->kernel->block_bytes);
}

/* Cuts for workers that have `rows` row panels each, `columns` column panels together, `threads`
 * of them sharing B, in `workspace` bytes a thread. */
static void plan_blocks(struct plan *plan, int64_t rows, int64_t columns, int threads,
                        size_t workspace)
{
    int64_t block_bytes = plan->kernel->block_bytes;
    int64_t fitting = A_BYTES / (plan->steps * block_bytes);
    if (fitting >= ls_min(rows, ROWS_MIN / GEMM_EDGE)) {
        plan->block_steps = plan->steps;
        plan->block_rows = even_piece(rows, ls_min(fitting, ROWS_MAX / GEMM_EDGE));
    } else {
        plan->block_steps = K_BLOCK_BYTES / block_bytes;
        plan->block_rows = even_piece(rows, ls_min(A_BYTES / K_BLOCK_BYTES, ROWS_MAX / GEMM_EDGE));
    }
    int64_t b_limit = ls_min((int64_t)threads * B_SHARE_BYTES, B_BYTES_MAX);
    plan->block_columns = even_piece(columns, b_limit / (plan->block_steps * block_bytes));
    while (a_bytes(plan) + state_bytes(plan) + b_bytes(plan) / (size_t)threads + 64 > workspace) {
        if (plan->block_columns > 1 && !is_whole_k(plan))
            plan->block_columns = ls_ceil_div(plan->block_columns, 2);
        else
            plan->block_rows = ls_ceil_div(plan->block_rows, 2);
        LS_ASSERT(plan->block_columns > 1 || plan->block_rows > 1 || is_whole_k(plan));
    }
}

/* The most subtrees that wait at one time. */
static int levels_of(int64_t tiles)
{
    int levels = 0;
    for (int64_t tile = 0; tile < tiles; tile++)
        levels = (int)ls_max(levels, gemm_waiting(tile));
    return levels;
}

static struct plan plan_of(const struct ls_ops *ops, const struct ls_gemm *gemm)
{
    struct plan plan = {.gemm = gemm,
                        .kernel = &gemm_kernel_plain,
                        .finish = &gemm_finish_plain,
                        .levels = levels_of(gemm->tiles),
                        .row_panels = ls_ceil_div(gemm->m, GEMM_EDGE),
                        .column_panels = ls_ceil_div(gemm->n, GEMM_EDGE)};
#if defined(__x86_64__)
    if (ops->isa >= LS_ISA_AVX2) {
        plan.kernel = ops->isa == LS_ISA_AVX2 ? &gemm_kernel_avx2 : &gemm_kernel_avx512;
        plan.finish = ops->isa == LS_ISA_AVX2 ? &gemm_finish_avx2 : &gemm_finish_avx512;
    }
    if (gemm->in == LS_BF16 && ops->isa >= LS_ISA_AVX512_BF16)
        plan.kernel = ops->isa == LS_ISA_AMX ? &gemm_kernel_amx : &gemm_kernel_bf16;
#else
    (void)ops;
#endif
    for (int s = 0; s < gemm->sections; s++) {
        plan.part[s] = gemm->k[s] / gemm->tiles;
        plan.part_steps[s] = ls_ceil_div(plan.part[s], GEMM_EDGE);
        plan.tile_steps += plan.part_steps[s];
    }
    plan.steps = plan.tile_steps * gemm->tiles;
    return plan;
}

void gemm_run_blocked(struct ls_ops *ops, const struct ls_gemm *gemm)
{
    struct plan plan = plan_of(ops, gemm);
    int threads = (int)ls_min(ops->threads, ls_max(plan.row_panels, plan.column_panels));
    bool by_columns = plan.row_panels < (int64_t)threads * COLUMN_PANELS_PER_THREAD &&
                      plan.column_panels > plan.row_panels;
    int64_t rows = by_columns ? plan.row_panels : ls_ceil_div(plan.row_panels, threads);
    int64_t columns = by_columns ? ls_ceil_div(plan.column_panels, threads) : plan.column_panels;
    plan_blocks(&plan, rows, columns, by_columns ? 1 : threads, ops->workspace_bytes);
    size_t shared = by_columns ? 0 : b_bytes(&plan);
    size_t share =
        ((size_t)threads * ops->workspace_bytes - shared) / (size_t)threads & ~(size_t)63;
#pragma omp parallel num_threads(threads)
    {
        int thread = omp_get_thread_num(), team = omp_get_num_threads();
        unsigned char *own = ops->workspace + shared + (size_t)thread * share;
        struct worker worker = {.plan = &plan,
                                .threads = by_columns ? 1 : team,
                                .index = by_columns ? 0 : thread,
                                .row_end = plan.row_panels,
                                .column_end = plan.column_panels,
                                .a = own,
                                .state = (float *)(own + a_bytes(&plan))};
        worker.b = by_columns ? own + a_bytes(&plan) + state_bytes(&plan) : ops->workspace;
        if (by_columns) {
            worker.column = plan.column_panels * thread / team;
            worker.column_end = plan.column_panels * (thread + 1) / team;
        } else {
            worker.row = plan.row_panels * thread / team;
            worker.row_end = plan.row_panels * (thread + 1) / team;
        }
        if (plan.kernel->begin)
            plan.kernel->begin();
        if (is_whole_k(&plan))
            work_whole_k(&worker);
        else
            work_blocks_of_k(&worker,
                             ls_ceil_div(ls_ceil_div(plan.row_panels, team), plan.block_rows));
        if (plan.kernel->end)
            plan.kernel->end();
    }
}
