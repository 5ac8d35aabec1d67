/* The bf16 matrix product on AMX tiles.
 *
 * Why ours: the order in which one element is summed has to be ours to fix, and the library's
 * changes with m and with the number of threads.
 *
 * An element's sum inside a tile of the contraction is one chain: 32 of k a step, ascending, by
 * TDPBF16PS (which adds pairs in ascending order; Intel SDM). The chain may rest in memory between
 * two chunks of steps; a float32 stored and loaded again is the same. So no cut below (chunks,
 * blocks of k, rows, columns, threads) is seen in the bits. Tiles are padded with zeros to a whole
 * number of steps.
 *
 * Both operands are packed (gemm_amx_pack.h). C is cut in blocks of 32 x 32 = 2 x 2 tile registers.
 * Cache: a chunk of one panel of B stays in L1 while the panels of A's rows stream past it from L2;
 * B is packed once by all threads together and read from the shared cache.
 */
/* cflags: -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512bf16 -mamx-tile -mamx-bf16 -O3 */
#include "ops/gemm.h"

#if defined(__x86_64__)
#include <omp.h>
#include <string.h>

#include "ops/gemm_amx_pack.h"

enum {
    BLOCK_FLOATS = AMX_EDGE * AMX_EDGE,
    CHUNK_STEPS = 16,             /* one chunk of a panel of B: 32 KiB of L1 */
    A_BYTES = 5 << 18,            /* packed rows of A, in L2 */
    ROWS_MAX = 512,               /* of those, at most */
    ROWS_MIN = 128,               /* where k is so long that this many do not fit, k is cut */
    K_BLOCK_STEPS = 48,           /* then in blocks of this many steps */
    B_SHARE_BYTES = 7 << 19,      /* packed B, per thread */
    B_BYTES_MAX = 32 << 20,       /* and in all: it should stay in the shared cache */
    COLUMN_PANELS_PER_THREAD = 8, /* rows are split over threads unless each gets fewer panels */
};

/* One product, as it is cut. Panels are groups of 32 rows or columns; steps are 32 of k. */
struct plan {
    const struct ls_gemm *gemm;
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

static void tiles_configure(void)
{
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } config __attribute__((aligned(64))) = {.palette = 1};
    for (int tile = 0; tile < 8; tile++) {
        config.row_bytes[tile] = 64;
        config.rows[tile] = 16;
    }
    _tile_loadconfig(&config);
}

/* to = (from, or zero where it is NULL) + A x B over `steps` blocks; [32, 32] float32 each. */
static void block_product(const unsigned char *a, const unsigned char *b, int64_t steps,
                          const float *from, float *to)
{
    enum { HALF = 16 * AMX_EDGE, LD = AMX_EDGE * sizeof(float) };
    if (from) {
        _tile_loadd(0, from, LD);
        _tile_loadd(1, from + 16, LD);
        _tile_loadd(2, from + HALF, LD);
        _tile_loadd(3, from + HALF + 16, LD);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int64_t step = 0; step < steps; step++) {
        _tile_loadd(4, a, 64);
        _tile_loadd(6, b, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, b + AMX_TILE_BYTES, 64);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, a + AMX_TILE_BYTES, 64);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
        a += AMX_BLOCK_BYTES;
        b += AMX_BLOCK_BYTES;
    }
    _tile_stored(0, to, LD);
    _tile_stored(1, to + 16, LD);
    _tile_stored(2, to + HALF, LD);
    _tile_stored(3, to + HALF + 16, LD);
}

/* ---- packing -------------------------------------------------------------------------------- */

/* Where a step lies in k: k values from the returned index. */
static int64_t step_place(const struct plan *plan, int64_t step, int64_t *k)
{
    int64_t tile = step / plan->tile_steps, rest = step % plan->tile_steps, start = 0;
    int s = 0;
    while (rest >= plan->part_steps[s]) {
        rest -= plan->part_steps[s];
        start += plan->gemm->k[s++];
    }
    *k = ls_min(AMX_EDGE, plan->part[s] - rest * AMX_EDGE);
    return start + tile * plan->part[s] + rest * AMX_EDGE;
}

/* Panel `panel` of A, one run of k. */
static void pack_a(const struct plan *plan, int64_t panel, struct run run, unsigned char *to)
{
    const struct ls_gemm *gemm = plan->gemm;
    const ls_bf16 *a = gemm->a;
    int64_t row = panel * AMX_EDGE, rows = ls_min(AMX_EDGE, gemm->m - row);
    for (int64_t step = run.step; step < run.step_end; step++, to += AMX_BLOCK_BYTES) {
        int64_t k, start = step_place(plan, step, &k);
        if (gemm->a_transposed)
            amx_pack_pairs_transpose(to, a + start * gemm->lda + row, gemm->lda, rows, k);
        else
            amx_pack_copy(to, a + row * gemm->lda + start, gemm->lda, rows, k);
    }
}

static void pack_b(const struct plan *plan, int64_t panel, struct run run, unsigned char *to)
{
    const struct ls_gemm *gemm = plan->gemm;
    const ls_bf16 *b = gemm->b;
    int64_t column = panel * AMX_EDGE, columns = ls_min(AMX_EDGE, gemm->n - column);
    for (int64_t step = run.step; step < run.step_end; step++, to += AMX_BLOCK_BYTES) {
        int64_t k, start = step_place(plan, step, &k);
        if (gemm->b_transposed)
            amx_pack_transpose(to, b + column * gemm->ldb + start, gemm->ldb, columns, k);
        else
            amx_pack_pairs(to, b + start * gemm->ldb + column, gemm->ldb, columns, k);
    }
}

/* ---- what happens to a finished sum ---------------------------------------------------------- */

/* Sixteen columns of a row of C from their sums. */
static inline __attribute__((always_inline)) void
write_sixteen(const struct ls_gemm *gemm, int64_t row, int64_t column, __mmask16 mask, __m512 value)
{
    int64_t index = row * gemm->ldc + column;
    if (gemm->bias)
        value = _mm512_add_ps(value, _mm512_maskz_loadu_ps(mask, gemm->bias + column));
    if (gemm->out == LS_BF16) {
        /* As ls_f32_to_bf16, which VCVTNEPS2BF16 is not for denormals. */
        __m512i bits = _mm512_castps_si512(value), high = _mm512_srli_epi32(bits, 16);
        __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
        __m512i up = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
        __m512i rounded = _mm512_srli_epi32(up, 16);
        __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
        rounded = _mm512_mask_or_epi32(rounded, nan, high, _mm512_set1_epi32(0x40));
        _mm512_mask_cvtepi32_storeu_epi16((ls_bf16 *)gemm->c + index, mask, rounded);
        return;
    }
    float *c = (float *)gemm->c + index;
    if (gemm->accumulate)
        value = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, c), value);
    _mm512_mask_storeu_ps(c, mask, value);
}

/* The chain's sum with the latest `merges` of the waiting subtrees; top is past the latest. */
static inline __attribute__((always_inline)) __m512 merged(const float *chain, const float *top,
                                                           int merges, int64_t offset)
{
    __m512 value = _mm512_load_ps(chain + offset);
    for (int i = 1; i <= merges; i++)
        value = _mm512_add_ps(_mm512_load_ps(top - i * BLOCK_FLOATS + offset), value);
    return value;
}

static void write_block(const struct ls_gemm *gemm, int64_t row_panel, int64_t column_panel,
                        const float *chain, const float *top, int merges)
{
    int64_t row = row_panel * AMX_EDGE, column = column_panel * AMX_EDGE;
    int64_t rows = ls_min(AMX_EDGE, gemm->m - row);
    __mmask32 mask = amx_mask(gemm->n - column);
    for (int64_t r = 0; r < rows; r++) {
        __m512 low = merged(chain, top, merges, r * AMX_EDGE);
        __m512 high = merged(chain, top, merges, r * AMX_EDGE + 16);
        write_sixteen(gemm, row + r, column, (__mmask16)mask, low);
        write_sixteen(gemm, row + r, column + 16, (__mmask16)(mask >> 16), high);
    }
}

static void merge_block(const float *chain, float *top, int merges)
{
    float *into = top - merges * BLOCK_FLOATS;
    for (int64_t offset = 0; offset < BLOCK_FLOATS; offset += 16)
        _mm512_store_ps(into + offset, merged(chain, top, merges, offset));
}

/* ---- the loops ------------------------------------------------------------------------------- */

/* One block of C through one chunk of steps: on with its chain and, where the tile ends, into the
 * tree. state: chain [32, 32], then the waiting subtrees. */
static void block_chunk(const struct worker *worker, int64_t row_panel, int64_t column_panel,
                        struct run chunk, const unsigned char *a, const unsigned char *b,
                        float *state)
{
    const struct plan *plan = worker->plan;
    int64_t tile = chunk.step / plan->tile_steps;
    bool first = chunk.step % plan->tile_steps == 0, last = chunk.step_end % plan->tile_steps == 0;
    float *top = state + (1 + gemm_waiting(tile)) * BLOCK_FLOATS;
    int merges = gemm_merges(tile, plan->gemm->tiles);
    bool ends = tile == plan->gemm->tiles - 1;
    float *to = last && merges == 0 && !ends ? top : state;
    block_product(a, b, chunk.step_end - chunk.step, first ? NULL : state, to);
    if (last && ends)
        write_block(plan->gemm, row_panel, column_panel, state, top, merges);
    else if (last && merges > 0)
        merge_block(state, top, merges);
}

/* The packed rows [row, row_end) against one packed panel of B, through a run of k. The state of
 * row panel row + i is at state + i * (1 + levels) blocks. */
static void panel_product(const struct worker *worker, int64_t row, int64_t row_end,
                          int64_t column_panel, struct run run, const unsigned char *b,
                          float *state)
{
    const struct plan *plan = worker->plan;
    int64_t panel_bytes = (run.step_end - run.step) * AMX_BLOCK_BYTES;
    int64_t chunks = ls_ceil_div(plan->tile_steps, CHUNK_STEPS);
    int64_t chunk_steps = ls_ceil_div(plan->tile_steps, chunks);
    for (int64_t step = run.step; step < run.step_end;) {
        int64_t tile_end = (step / plan->tile_steps + 1) * plan->tile_steps;
        struct run chunk = {step, ls_min(ls_min(step + chunk_steps, tile_end), run.step_end)};
        int64_t offset = (step - run.step) * AMX_BLOCK_BYTES;
        for (int64_t i = row; i < row_end; i++)
            block_chunk(worker, i, column_panel, chunk,
                        worker->a + (i - row) * panel_bytes + offset, b + offset,
                        state + (i - row) * (1 + plan->levels) * BLOCK_FLOATS);
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
    int64_t panel_bytes = (run.step_end - run.step) * AMX_BLOCK_BYTES;
    int64_t count = column_end - column;
    int64_t from = count * worker->index / worker->threads;
    int64_t to = count * (worker->index + 1) / worker->threads;
    for (int64_t i = from; i < to; i++)
        pack_b(worker->plan, column + i, run, worker->b + i * panel_bytes);
    wait_for_all(worker);
}

static void pack_a_rows(const struct worker *worker, int64_t row, int64_t row_end, struct run run)
{
    int64_t panel_bytes = (run.step_end - run.step) * AMX_BLOCK_BYTES;
    for (int64_t i = row; i < row_end; i++)
        pack_a(worker->plan, i, run, worker->a + (i - row) * panel_bytes);
}

/* All of k fits: every element is finished in one go, its chain and tree never leave L2. */
static void work_whole_k(const struct worker *worker)
{
    const struct plan *plan = worker->plan;
    struct run run = {0, plan->steps};
    int64_t panel_bytes = plan->steps * AMX_BLOCK_BYTES, packed_row = -1;
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
    int64_t panel_state = plan->block_rows * (1 + plan->levels) * BLOCK_FLOATS;
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
                int64_t panel_bytes = (run.step_end - run.step) * AMX_BLOCK_BYTES;
                for (int64_t j = column; j < column_end; j++)
                    panel_product(worker, row, row_end, j, run,
                                  worker->b + (j - column) * panel_bytes,
                                  worker->state + (j - column) * panel_state);
            }
        }
}

/* ---- the plan -------------------------------------------------------------------------------- */

/* limit cut into the fewest equal pieces of at most most: their size. */
static int64_t even_piece(int64_t limit, int64_t most)
{
    most = ls_max(most, 1);
    return ls_ceil_div(limit, ls_ceil_div(limit, most));
}

static bool is_whole_k(const struct plan *plan)
{
    return plan->block_steps == plan->steps;
}

static size_t state_bytes(const struct plan *plan)
{
    int64_t blocks = plan->block_rows * (is_whole_k(plan) ? 1 : plan->block_columns);
    return (size_t)(blocks * (1 + plan->levels) * BLOCK_FLOATS) * sizeof(float);
}
static size_t a_bytes(const struct plan *plan)
{
    return (size_t)(plan->block_rows * plan->block_steps * AMX_BLOCK_BYTES);
}
static size_t b_bytes(const struct plan *plan)
{
    return (size_t)(plan->block_columns * plan->block_steps * AMX_BLOCK_BYTES);
}

/* Cuts for workers that have `rows` row panels each, `columns` column panels together, `threads`
 * of them sharing B, in `workspace` bytes a thread. */
static void plan_blocks(struct plan *plan, int64_t rows, int64_t columns, int threads,
                        size_t workspace)
{
    int64_t fitting = A_BYTES / (plan->steps * AMX_BLOCK_BYTES);
    if (fitting >= ls_min(rows, ROWS_MIN / AMX_EDGE)) {
        plan->block_steps = plan->steps;
        plan->block_rows = even_piece(rows, ls_min(fitting, ROWS_MAX / AMX_EDGE));
    } else {
        plan->block_steps = K_BLOCK_STEPS;
        plan->block_rows = even_piece(
            rows, ls_min(A_BYTES / (K_BLOCK_STEPS * AMX_BLOCK_BYTES), ROWS_MAX / AMX_EDGE));
    }
    int64_t b_limit = ls_min((int64_t)threads * B_SHARE_BYTES, B_BYTES_MAX);
    plan->block_columns = even_piece(columns, b_limit / (plan->block_steps * AMX_BLOCK_BYTES));
    while (a_bytes(plan) + state_bytes(plan) + b_bytes(plan) / (size_t)threads + 64 > workspace) {
        if (plan->block_columns > 1 && !is_whole_k(plan))
            plan->block_columns = ls_ceil_div(plan->block_columns, 2);
        else
            plan->block_rows = ls_ceil_div(plan->block_rows, 2);
        LS_ASSERT(plan->block_columns > 1 || plan->block_rows > 1 || is_whole_k(plan));
    }
}

static void plan_contraction(struct plan *plan, const struct ls_gemm *gemm)
{
    *plan = (struct plan){.gemm = gemm,
                          .levels = gemm_levels(gemm->tiles),
                          .row_panels = ls_ceil_div(gemm->m, AMX_EDGE),
                          .column_panels = ls_ceil_div(gemm->n, AMX_EDGE)};
    for (int s = 0; s < gemm->sections; s++) {
        plan->part[s] = gemm->k[s] / gemm->tiles;
        plan->part_steps[s] = ls_ceil_div(plan->part[s], AMX_EDGE);
        plan->tile_steps += plan->part_steps[s];
    }
    plan->steps = plan->tile_steps * gemm->tiles;
}

int gemm_run_amx(struct ls_ops *ops, const struct ls_gemm *gemm)
{
    struct plan plan;
    plan_contraction(&plan, gemm);
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
        tiles_configure();
        if (is_whole_k(&plan))
            work_whole_k(&worker);
        else
            work_blocks_of_k(&worker,
                             ls_ceil_div(ls_ceil_div(plan.row_panels, team), plan.block_rows));
        _tile_release();
    }
    return LS_OK;
}
#else
int gemm_run_amx(struct ls_ops *ops, const struct ls_gemm *gemm)
{
    (void)ops;
    (void)gemm;
    return LS_ENOTSUP;
}
#endif
