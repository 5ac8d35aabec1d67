/* The loops of the matrix product: what is packed when, what rests where, who computes what.
 *
 * An element's sum inside a tile of the contraction is one chain, ascending in k. The chain may
 * rest in memory between two chunks of steps (a float32 stored and loaded again is the same), so no
 * cut below - chunks, blocks of k, rows, columns, threads - is seen in the bits. Each section's
 * part of a tile is padded with zeros to a whole number of steps.
 *
 * Cache: a chunk of one panel of B stays in L1 while the panels of A's rows stream past it from L2;
 * B is packed once by all threads together and read from the shared cache. */
#include "ops/gemm_kernel.h"
#include "ops/kern/flush.h"
#include "ops/kernels.h"

#include <omp.h>
#include <stdatomic.h>
#include <string.h>

enum {
    A_BYTES = 12 << 16,        /* packed rows of A, in L2 */
    ROW_PANELS_MAX = 16,       /* of those, at most */
    ROW_PANELS_MIN = 6,        /* where k is so long that this many do not fit, it is cut in runs */
    RUN_BYTES = 96 << 10,      /* of at most this much of a panel */
    B_SHARE_BYTES = 10 << 20,  /* packed B, per thread */
    B_BYTES_MAX = 32 << 20,    /* and in all: it should stay in the shared cache */
    B_PASSING_BYTES = 1 << 19, /* packed B where every panel is used at once and once, in L2 */
    COLUMN_PANELS_MIN = 8,  /* where k is so long that this many do not fit, B is packed by runs */
    COLUMN_PANELS_RUN = 32, /* as many runs as fit with this many */
    STREAM_BYTES = 2 << 20, /* a C of this size is written past the caches */
    SPLIT_ROW_PANELS = 8,   /* rows are split over threads where each gets this many panels */
    PIECE_PANELS = 8,       /* of B, packed by one thread at one time */
    THREAD_BLOCKS = 64,     /* products of 32 x 32 x 32 that are worth a thread */
};

/* One product, as it is cut. Panels are groups of 32 rows or columns; steps are 32 of k. */
struct plan {
    const struct ls_gemm *gemm;
    const struct gemm_int8_rows *rows; /* A's, where they are int8 */
    const struct gemm_kernel *kernel;
    const struct gemm_finish *finish;
    int64_t part[LS_GEMM_SECTIONS_MAX];       /* a tile's length in each section */
    int64_t part_steps[LS_GEMM_SECTIONS_MAX]; /* the same in steps */
    int64_t tile_steps, steps;                /* of a tile; of all tiles */
    int levels;                               /* sums that wait at one time */
    const struct blocks_kernels *blocks;      /* reads B, where it is in blocks */
    int64_t row_panels, column_panels;
    int64_t block_rows;    /* panels of A packed at one time by a thread */
    int64_t block_columns; /* panels of B packed at one time */
    int64_t run_steps;     /* steps of A packed at one time */
    int64_t b_steps;       /* steps of B packed at one time: all, or some runs */
    int64_t slots;         /* row blocks of a thread that take turns at each run of B */
    int64_t chains, trees; /* panels of columns whose chains, and whose waiting subtrees, rest */
    bool stream;           /* C is written past the caches */
};

/* What threads that share packed B share besides. Work is handed out in pieces, so that a thread
 * that the system holds up does not hold up the others. */
struct team {
    _Atomic int64_t next_columns, next_rows; /* the next piece to pack; the next row block */
};

/* What one thread works on. `threads` threads share packed B; this one is number `index`. */
struct worker {
    const struct plan *plan;
    struct team *team;
    int threads, index;
    int64_t column, column_end; /* panels, of all that share B */
    unsigned char *a, *b;       /* packed */
    float *chain;               /* [chains, block_rows] blocks: sums of unfinished tiles */
    float *tree;                /* [trees, block_rows, levels] blocks: subtrees that wait */
};

/* A run of k that was packed and is worked on: steps [step, step_end). */
struct k_run {
    int64_t step, step_end;
};

/* ---- packing -------------------------------------------------------------------------------- */

static int64_t run_bytes(const struct plan *plan, struct k_run run)
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

/* A block of B that is in blocks of few bits: its values first. */
static void pack_blocks(const struct plan *plan, struct gemm_form form, int64_t first, int64_t edge,
                        int64_t start, int64_t k, unsigned char *to)
{
    const struct ls_gemm *gemm = plan->gemm;
    float values[GEMM_BLOCK_FLOATS];
    size_t row_bytes = ls_blocks_row_bytes(gemm->b_blocks, gemm->ldb);
    size_t line = GEMM_EDGE * ls_dtype_bytes(form.dtype);
    int64_t row = form.k_contiguous ? first : start, rows = form.k_contiguous ? edge : k;
    int64_t column = form.k_contiguous ? start : first, columns = form.k_contiguous ? k : edge;
    for (int64_t r = 0; r < rows; r++)
        plan->blocks->read(gemm->b_blocks, form.dtype,
                           (const unsigned char *)gemm->b + (size_t)(row + r) * row_bytes, column,
                           columns, (unsigned char *)values + (size_t)r * line);
    plan->kernel->pack(form, values, GEMM_EDGE, edge, k, to);
}

/* Panels [panel, panel_end) of A or B, one run of k each, one behind the other. Where neighbours in
 * memory lie along the panels, all panels take a step before any takes the next, so that memory is
 * read in long rows. */
static void pack_panels(const struct plan *plan, bool is_b, int64_t panel, int64_t panel_end,
                        struct k_run run, unsigned char *to)
{
    const struct ls_gemm *gemm = plan->gemm;
    struct gemm_form form = {.is_b = is_b,
                             .k_contiguous = is_b ? gemm->b_transposed : !gemm->a_transposed,
                             .dtype = is_b && gemm->b_scales ? LS_I8 : gemm->in};
    const unsigned char *x = is_b ? gemm->b : gemm->a;
    int64_t ld = is_b ? gemm->ldb : gemm->lda, size = (int64_t)ls_dtype_bytes(form.dtype);
    int64_t edge = is_b ? gemm->n : gemm->m;
    int64_t steps = run.step_end - run.step, panels = panel_end - panel;
    for (int64_t i = 0; i < steps * panels; i++) {
        int64_t at = form.k_contiguous ? i / steps : i % panels;
        int64_t step = form.k_contiguous ? i % steps : i / panels;
        int64_t first = (panel + at) * GEMM_EDGE;
        int64_t k, start = step_place(plan, run.step + step, &k);
        int64_t index = form.k_contiguous ? first * ld + start : start * ld + first;
        int64_t wide = ls_min(GEMM_EDGE, edge - first);
        unsigned char *block = to + (at * steps + step) * plan->kernel->block_bytes;
        if (is_b && gemm->b_blocks)
            pack_blocks(plan, form, first, wide, start, k, block);
        else
            plan->kernel->pack(form, x + index * size, ld, wide, k, block);
    }
}

/* How often threads take a row block each, until none is left. */
static int64_t turns_of(const struct plan *plan, int64_t threads)
{
    return ls_ceil_div(ls_ceil_div(plan->row_panels, plan->block_rows), threads);
}

/* ---- the loops ------------------------------------------------------------------------------- */

/* limit cut into the fewest equal pieces of at most most: their size. */
static int64_t even_piece(int64_t limit, int64_t most)
{
    most = ls_max(most, 1);
    return ls_ceil_div(limit, ls_ceil_div(limit, most));
}

/* The chunk that starts at `step` of a run: part of a tile, or several whole ones. */
static struct k_run chunk_at(const struct plan *plan, struct k_run run, int64_t step)
{
    int64_t tile = plan->tile_steps, most = plan->kernel->chunk_bytes / plan->kernel->block_bytes;
    if (tile <= most)
        return (struct k_run){step, ls_min(step + most / tile * tile, run.step_end)};
    int64_t tile_end = (step / tile + 1) * tile;
    return (struct k_run){step,
                          ls_min(ls_min(step + even_piece(tile, most), tile_end), run.step_end)};
}

/* One block of C, and where its sums rest. */
struct block {
    int64_t row_panel, column_panel;
    float *chain, *tree;
};

/* C's block in [32, 32]; what is past its edges does not matter. */
static void block_read(const struct ls_gemm *gemm, const struct block *block, float *to)
{
    int64_t row = block->row_panel * GEMM_EDGE, column = block->column_panel * GEMM_EDGE;
    int64_t rows = ls_min(GEMM_EDGE, gemm->m - row), columns = ls_min(GEMM_EDGE, gemm->n - column);
    memset(to, 0, GEMM_BLOCK_FLOATS * sizeof *to);
    for (int64_t r = 0; r < rows; r++)
        memcpy(to + r * GEMM_EDGE, (const float *)gemm->c + (row + r) * gemm->ldc + column,
               (size_t)columns * sizeof *to);
}

/* One block of C through steps of one tile: on with its chain and, where the tile ends, on to the
 * stack. */
static void block_steps(const struct plan *plan, const struct block *block, struct k_run steps,
                        const unsigned char *a, const unsigned char *b, struct gemm_ahead ahead)
{
    int64_t tile = steps.step / plan->tile_steps;
    bool first = steps.step % plan->tile_steps == 0, last = steps.step_end % plan->tile_steps == 0;
    float *top = block->tree + gemm_waiting(plan->gemm, tile) * GEMM_BLOCK_FLOATS;
    int merges = gemm_merges(plan->gemm, tile);
    bool ends = tile == plan->gemm->tiles - 1;
    int64_t row = block->row_panel * GEMM_EDGE, column = block->column_panel * GEMM_EDGE;
    int64_t rows = ls_min(GEMM_EDGE, plan->gemm->m - row);
    if (steps.step == 0 && gemm_starts_from_c(plan->gemm))
        block_read(plan->gemm, block, block->tree);
    if (steps.step == 0 && plan->gemm->onto == LS_ONTO_CHAIN) {
        block_read(plan->gemm, block, block->chain);
        first = false;
    }
    float *to = last && merges == 0 && !ends ? top : block->chain;
    /* Not what is added behind it: where ranks do that, subnormal numbers are kept. */
    bool flush = plan->gemm->in == LS_BF16;
    unsigned control = flush ? subnormals_flush() : 0;
    plan->kernel->product(a, b, rows, steps.step_end - steps.step, first ? NULL : block->chain, to,
                          ahead);
    if (flush)
        subnormals_restore(control);
    if (last && plan->gemm->b_scales)
        plan->finish->scale(plan->gemm, plan->rows, row, column, tile, to);
    if (last && ends)
        plan->finish->write(plan->gemm, row, column, block->chain, top, merges, plan->stream);
    else if (last && merges > 0)
        plan->finish->merge(block->chain, top, merges);
}

static void block_chunk(const struct plan *plan, const struct block *block, struct k_run chunk,
                        const unsigned char *a, const unsigned char *b, struct gemm_ahead ahead)
{
    for (int64_t step = chunk.step; step < chunk.step_end;) {
        int64_t tile_end = (step / plan->tile_steps + 1) * plan->tile_steps;
        struct k_run steps = {step, ls_min(tile_end, chunk.step_end)};
        block_steps(plan, block, steps, a, b, ahead);
        a += run_bytes(plan, steps);
        b += run_bytes(plan, steps);
        ahead.count = 0;
        step = steps.step_end;
    }
}

/* The packed rows [row, row_end) against one packed panel of B, the `index`-th of its block,
 * through a run of k. While a chunk of B is used by one row panel after the other, the next is
 * fetched, a part each time (past the last panel there is more workspace). */
static void panel_product(const struct worker *worker, int64_t row, int64_t row_end,
                          int64_t column_panel, int64_t index, struct k_run run,
                          const unsigned char *b)
{
    const struct plan *plan = worker->plan;
    const unsigned char *a = worker->a;
    int64_t rows = row_end - row;
    int64_t chain = index % plan->chains * plan->block_rows;
    int64_t tree = index % plan->trees * plan->block_rows;
    for (int64_t step = run.step; step < run.step_end;) {
        struct k_run chunk = chunk_at(plan, run, step);
        int64_t bytes = run_bytes(plan, chunk), lines = bytes / 64;
        for (int64_t i = 0; i < rows; i++, a += bytes) {
            int64_t from = lines * i / rows, to = lines * (i + 1) / rows;
            struct gemm_ahead ahead = {b + bytes + from * 64, to - from};
            struct block block = {row + i, column_panel,
                                  worker->chain + (chain + i) * GEMM_BLOCK_FLOATS,
                                  worker->tree + (tree + i) * plan->levels * GEMM_BLOCK_FLOATS};
            block_chunk(plan, &block, chunk, a, b, ahead);
        }
        b += bytes;
        step = chunk.step_end;
    }
}

static void wait_for_all(const struct worker *worker)
{
    if (worker->threads > 1) {
#pragma omp barrier
    }
}

/* Packs columns [column, column_end), all threads together; all is there on return. */
static void pack_b_together(const struct worker *worker, int64_t column, int64_t column_end,
                            struct k_run run)
{
    wait_for_all(worker);
    if (worker->index == 0)
        atomic_store(&worker->team->next_rows, 0);
    for (;;) {
        int64_t piece = atomic_fetch_add(&worker->team->next_columns, 1);
        int64_t from = column + piece * PIECE_PANELS;
        if (from >= column_end)
            break;
        pack_panels(worker->plan, true, from, ls_min(from + PIECE_PANELS, column_end), run,
                    worker->b + (from - column) * run_bytes(worker->plan, run));
    }
    wait_for_all(worker);
    if (worker->index == 0)
        atomic_store(&worker->team->next_columns, 0);
}

/* A in the order in which panel_product reads it: chunk by chunk, in a chunk row by row. */
static void pack_a_rows(const struct worker *worker, int64_t row, int64_t row_end, struct k_run run)
{
    unsigned char *to = worker->a;
    for (int64_t step = run.step; step < run.step_end;) {
        struct k_run chunk = chunk_at(worker->plan, run, step);
        pack_panels(worker->plan, false, row, row_end, chunk, to);
        to += (row_end - row) * run_bytes(worker->plan, chunk);
        step = chunk.step_end;
    }
}

/* Row block `block` and columns [column, column_end) of C, as far as B is packed. `slot` says where
 * the block's sums rest. */
static void block_product(const struct worker *worker, int64_t block, int64_t slot, int64_t column,
                          int64_t column_end, struct k_run packed, bool a_is_packed)
{
    const struct plan *plan = worker->plan;
    int64_t row = ls_min(block * plan->block_rows, plan->row_panels);
    int64_t row_end = ls_min(row + plan->block_rows, plan->row_panels);
    for (int64_t step = packed.step; step < packed.step_end; step += plan->run_steps) {
        struct k_run run = {step, ls_min(step + plan->run_steps, packed.step_end)};
        const unsigned char *b = worker->b + (step - packed.step) * plan->kernel->block_bytes;
        if (!a_is_packed)
            pack_a_rows(worker, row, row_end, run);
        for (int64_t j = column; j < column_end; j++, b += run_bytes(plan, packed))
            panel_product(worker, row, row_end, j, slot * plan->block_columns + j - column, run, b);
    }
}

/* All of k was packed: row blocks go to whom is free. */
static void work_on_all(const struct worker *worker, int64_t column, int64_t column_end,
                        int64_t *packed_block)
{
    const struct plan *plan = worker->plan;
    struct k_run all = {0, plan->steps};
    pack_b_together(worker, column, column_end, all);
    for (;;) {
        int64_t block = atomic_fetch_add(&worker->team->next_rows, 1);
        if (block >= ls_ceil_div(plan->row_panels, plan->block_rows))
            break;
        bool a_is_packed = plan->run_steps == plan->steps && *packed_block == block;
        block_product(worker, block, 0, column, column_end, all, a_is_packed);
        *packed_block = block;
    }
}

/* B is packed by runs, which all threads do together: each thread has its own row blocks and all
 * make the same number of turns, `slots` of them for each run. */
static void work_by_runs(const struct worker *worker, int64_t column, int64_t column_end)
{
    const struct plan *plan = worker->plan;
    int64_t turns = turns_of(plan, worker->threads);
    for (int64_t turn = 0; turn < turns; turn += plan->slots)
        for (int64_t step = 0; step < plan->steps; step += plan->b_steps) {
            struct k_run packed = {step, ls_min(step + plan->b_steps, plan->steps)};
            pack_b_together(worker, column, column_end, packed);
            for (int64_t slot = 0; slot < plan->slots; slot++)
                block_product(worker, (turn + slot) * worker->threads + worker->index, slot, column,
                              column_end, packed, false);
        }
}

static void work(const struct worker *worker)
{
    const struct plan *plan = worker->plan;
    int64_t packed_block = -1;
    for (int64_t column = worker->column; column < worker->column_end;
         column += plan->block_columns) {
        int64_t column_end = ls_min(column + plan->block_columns, worker->column_end);
        if (plan->b_steps < plan->steps)
            work_by_runs(worker, column, column_end);
        else
            work_on_all(worker, column, column_end, &packed_block);
    }
}

/* ---- the plan -------------------------------------------------------------------------------- */

static size_t chain_bytes(const struct plan *plan)
{
    return (size_t)(plan->chains * plan->block_rows * GEMM_BLOCK_FLOATS) * sizeof(float);
}
static size_t tree_bytes(const struct plan *plan)
{
    return (size_t)(plan->trees * plan->block_rows * plan->levels * GEMM_BLOCK_FLOATS) *
           sizeof(float);
}
static size_t a_bytes(const struct plan *plan)
{
    return (size_t)(plan->block_rows * plan->run_steps * plan->kernel->block_bytes);
}
static size_t b_bytes(const struct plan *plan)
{
    return (size_t)(plan->block_columns * plan->b_steps * plan->kernel->block_bytes);
}

/* Cuts k and rows, for threads that have `rows` row panels each. */
static void plan_rows(struct plan *plan, int64_t rows)
{
    int64_t block_bytes = plan->kernel->block_bytes, tile = plan->tile_steps;
    int64_t run_most = RUN_BYTES / block_bytes;
    plan->run_steps = plan->steps;
    if (A_BYTES / (plan->steps * block_bytes) < ls_min(rows, ROW_PANELS_MIN))
        plan->run_steps = tile <= run_most ? run_most / tile * tile : even_piece(tile, run_most);
    plan->block_rows =
        even_piece(rows, ls_min(A_BYTES / (plan->run_steps * block_bytes), ROW_PANELS_MAX));
}

/* Cuts columns: `columns` panels, which `threads` threads with `rows` row panels each pack
 * together, in `workspace` bytes a thread. Sums rest for as many column panels as runs of k
 * interrupt. */
static void plan_columns(struct plan *plan, int64_t rows, int64_t columns, int threads,
                         int64_t workspace)
{
    int64_t block_bytes = plan->kernel->block_bytes;
    int64_t b_limit = ls_min((int64_t)threads * B_SHARE_BYTES, B_BYTES_MAX);
    plan->b_steps = plan->steps;
    if (b_limit / (plan->steps * block_bytes) < ls_min(columns, COLUMN_PANELS_MIN)) {
        int64_t run_bytes = ls_min(columns, COLUMN_PANELS_RUN) * plan->run_steps * block_bytes;
        plan->b_steps = plan->run_steps * ls_max(1, b_limit / run_bytes);
    }
    if (threads == 1 && rows <= plan->block_rows && plan->run_steps == plan->steps)
        b_limit = B_PASSING_BYTES;
    bool trees_rest = plan->run_steps < plan->steps;
    bool chains_rest = plan->run_steps % plan->tile_steps != 0;
    int64_t panel_bytes = plan->block_rows * GEMM_BLOCK_FLOATS * (int64_t)sizeof(float);
    int64_t resting = panel_bytes * ((chains_rest ? 1 : 0) + (trees_rest ? plan->levels : 0));
    int64_t fixed = (int64_t)a_bytes(plan) + panel_bytes * (1 + plan->levels) + 4096;
    int64_t each = resting + ls_ceil_div(plan->b_steps * block_bytes, threads);
    plan->block_columns = even_piece(
        columns, ls_min(b_limit / (plan->b_steps * block_bytes), (workspace - fixed) / each));
    plan->slots = 1;
    if (plan->b_steps < plan->steps) {
        int64_t turns = turns_of(plan, threads);
        int64_t left = workspace - fixed - plan->block_columns * (each - resting);
        plan->slots = even_piece(turns, left / (plan->block_columns * ls_max(1, resting)));
    }
    plan->chains = chains_rest ? plan->slots * plan->block_columns : 1;
    plan->trees = trees_rest ? plan->slots * plan->block_columns : 1;
}

/* The most sums that wait at one time. */
static int levels_of(const struct ls_gemm *gemm)
{
    int levels = 0;
    for (int64_t tile = 0; tile < gemm->tiles; tile++)
        levels = (int)ls_max(levels, gemm_waiting(gemm, tile));
    return levels;
}

static const struct gemm_kernel *kernel_of(const struct ls_ops *ops, enum ls_dtype in)
{
    bool pairs = in == LS_BF16 && ops->arithmetic == LS_ARITHMETIC_BF16_PAIRS;
#if defined(__x86_64__)
    if (in == LS_I8)
        return &gemm_kernel_int8;
    if (pairs && ops->isa >= LS_ISA_AMX)
        return &gemm_kernel_amx;
    if (in == LS_BF16 && !pairs && ops->isa >= LS_ISA_AVX512_BF16)
        return &gemm_kernel_bf16;
    if (ops->isa >= LS_ISA_AVX512)
        return pairs ? &gemm_kernel_pairs_avx512 : &gemm_kernel_avx512;
    if (ops->isa == LS_ISA_AVX2)
        return pairs ? &gemm_kernel_pairs_avx2 : &gemm_kernel_avx2;
#endif
    return pairs ? &gemm_kernel_pairs_plain : &gemm_kernel_plain;
}

const struct gemm_finish *gemm_finish_of(const struct ls_ops *ops)
{
#if defined(__x86_64__)
    if (ops->isa >= LS_ISA_AVX2)
        return ops->isa == LS_ISA_AVX2 ? &gemm_finish_avx2 : &gemm_finish_avx512;
#endif
    (void)ops;
    return &gemm_finish_plain;
}

static struct plan plan_of(const struct ls_ops *ops, const struct ls_gemm *gemm,
                           const struct gemm_int8_rows *rows)
{
    struct plan plan = {.gemm = gemm,
                        .rows = rows,
                        .kernel = kernel_of(ops, gemm->in),
                        .finish = gemm_finish_of(ops),
                        .levels = levels_of(gemm),
                        .blocks = ops->kernels->blocks,
                        .row_panels = ls_ceil_div(gemm->m, GEMM_EDGE),
                        .column_panels = ls_ceil_div(gemm->n, GEMM_EDGE)};
    for (int s = 0; s < gemm->sections; s++) {
        plan.part[s] = gemm->k[s] / gemm->tiles;
        plan.part_steps[s] = ls_ceil_div(plan.part[s], GEMM_EDGE);
        plan.tile_steps += plan.part_steps[s];
    }
    plan.steps = plan.tile_steps * gemm->tiles;
    int64_t row_bytes = gemm->ldc * (int64_t)ls_dtype_bytes(gemm->out);
    plan.stream = gemm->onto == LS_ONTO_NOTHING && gemm->m * row_bytes >= STREAM_BYTES &&
                  row_bytes % 64 == 0 && (uintptr_t)gemm->c % 64 == 0;
    return plan;
}

void gemm_run_blocked(const struct ls_ops *ops, const struct ls_gemm *gemm,
                      const struct gemm_int8_rows *int8)
{
    struct plan plan = plan_of(ops, gemm, int8);
    int64_t blocks = plan.row_panels * plan.column_panels * plan.steps;
    int threads = (int)ls_min(ops->threads, ls_ceil_div(blocks, THREAD_BLOCKS));
    bool by_columns = plan.row_panels < (int64_t)threads * SPLIT_ROW_PANELS &&
                      plan.column_panels > plan.row_panels;
    int64_t rows = by_columns ? plan.row_panels : ls_ceil_div(plan.row_panels, threads);
    int64_t columns = by_columns ? ls_ceil_div(plan.column_panels, threads) : plan.column_panels;
    plan_rows(&plan, rows);
    plan_columns(&plan, rows, columns, by_columns ? 1 : threads, (int64_t)ops->workspace_bytes);
    size_t shared = by_columns ? 0 : b_bytes(&plan);
    size_t share =
        ((size_t)threads * ops->workspace_bytes - shared) / (size_t)threads & ~(size_t)63;
    size_t chain_at = a_bytes(&plan), tree_at = chain_at + chain_bytes(&plan);
    size_t b_at = tree_at + tree_bytes(&plan);
    LS_ASSERT(b_at + (by_columns ? b_bytes(&plan) : 0) <= share);
    struct team shared_team = {0};
#pragma omp parallel num_threads(threads)
    {
        int thread = omp_get_thread_num(), team = omp_get_num_threads();
        struct team own_team = {0};
        unsigned char *own = ops->workspace + shared + (size_t)thread * share;
        struct worker worker = {.plan = &plan,
                                .team = by_columns ? &own_team : &shared_team,
                                .threads = by_columns ? 1 : team,
                                .index = by_columns ? 0 : thread,
                                .column_end = plan.column_panels,
                                .a = own,
                                .b = by_columns ? own + b_at : ops->workspace,
                                .chain = (float *)(own + chain_at),
                                .tree = (float *)(own + tree_at)};
        if (by_columns) {
            worker.column = plan.column_panels * thread / team;
            worker.column_end = plan.column_panels * (thread + 1) / team;
        }
        if (plan.kernel->begin)
            plan.kernel->begin();
        work(&worker);
        if (plan.kernel->end)
            plan.kernel->end();
        /* Streamed stores are seen by no one else before a fence. */
        atomic_thread_fence(memory_order_seq_cst);
    }
}
