/* The matrix product on the library's small products.
 *
 * The library's order of sums is not ours, but for a contraction of at most CHUNK it was found (and
 * test/ops/test_gemm.c checks) to depend on the instruction set alone: not on m and n (from 2 on; a
 * single row or column takes another path, so it gets a second one of zeros), nor on leading
 * distances and threads. So a tile is cut into chunks of at most CHUNK, ascending; each is computed
 * from zero and added to the ones before it.
 */
#include <omp.h>
#include <string.h>

#include "ops/gemm_onednn.h"

enum {
    CHUNK = 384,
    ROWS = 512, /* of C worked on at one time by a thread */
    COLUMNS = 768,
    ROWS_MIN = 64, /* blocks are made smaller, down to this, to give every thread some */
};

/* A block of C and the workspace of the thread that computes it. */
struct block {
    struct ls_ops *ops;
    const struct ls_gemm *gemm;
    int thread;
    int64_t row, rows, column, columns;
    int64_t rows_run, columns_run; /* at least 2 */
    float *sums;                   /* [1 + levels][rows_run, columns_run] */
    void *a, *b;                   /* copies of operands, [CHUNK] of k */
};

struct sizes {
    int64_t rows, columns;
    size_t sums, a, b; /* bytes */
};

static bool is_widened(const struct ls_ops *ops, const struct ls_gemm *gemm)
{
    return gemm->in == LS_BF16 && ops->isa != LS_ISA_AVX512_BF16;
}

/* A copy of an operand's piece [rows, k] (or [k, rows] as stored) as the library is to see it. */
static const void *copied(const struct block *block, const void *x, bool transposed, int64_t ld,
                          int64_t used, int64_t rows, int64_t k, void *to, int64_t *to_ld)
{
    int64_t lines = transposed ? k : rows, length = transposed ? rows : k;
    int64_t used_lines = transposed ? k : used, used_length = transposed ? used : k;
    *to_ld = length;
    if (is_widened(block->ops, block->gemm)) {
        finish_widen(x, ld, used_lines, used_length, lines, length, to);
        return to;
    }
    size_t size = ls_dtype_bytes(block->gemm->in);
    for (int64_t i = 0; i < lines; i++) {
        unsigned char *line = (unsigned char *)to + (size_t)(i * length) * size;
        size_t bytes = i < used_lines ? (size_t)used_length * size : 0;
        memcpy(line, (const unsigned char *)x + (size_t)(i * ld) * size, bytes);
        memset(line + bytes, 0, (size_t)length * size - bytes);
    }
    return to;
}

/* c (+)= the product over k values from index k0. */
static int chunk_product(const struct block *block, int64_t k0, int64_t k, bool add, float *c,
                         int64_t ldc, struct ls_error *error)
{
    const struct ls_gemm *gemm = block->gemm;
    size_t size = ls_dtype_bytes(gemm->in);
    bool widened = is_widened(block->ops, gemm);
    int64_t a_index =
        gemm->a_transposed ? k0 * gemm->lda + block->row : block->row * gemm->lda + k0;
    int64_t b_index =
        gemm->b_transposed ? block->column * gemm->ldb + k0 : k0 * gemm->ldb + block->column;
    const void *a = (const unsigned char *)gemm->a + (size_t)a_index * size;
    const void *b = (const unsigned char *)gemm->b + (size_t)b_index * size;
    struct product product = {.m = block->rows_run,
                              .n = block->columns_run,
                              .k = k,
                              .lda = gemm->lda,
                              .ldb = gemm->ldb,
                              .ldc = ldc,
                              .a_transposed = gemm->a_transposed,
                              .b_transposed = gemm->b_transposed,
                              .add = add,
                              .bf16 = gemm->in == LS_BF16 && !widened};
    if (widened || block->rows_run != block->rows)
        a = copied(block, a, gemm->a_transposed, gemm->lda, block->rows, block->rows_run, k,
                   block->a, &product.lda);
    if (widened || block->columns_run != block->columns)
        b = copied(block, b, !gemm->b_transposed, gemm->ldb, block->columns, block->columns_run, k,
                   block->b, &product.ldb);
    return onednn_run(block->ops, block->thread, &product, a, b, c, error);
}

/* c (+)= the whole of one tile; with add there is only one chunk. */
static int tile_product(const struct block *block, int64_t tile, bool add, float *c, int64_t ldc,
                        struct ls_error *error)
{
    const struct ls_gemm *gemm = block->gemm;
    int64_t start = 0;
    for (int s = 0; s < gemm->sections; start += gemm->k[s++]) {
        int64_t length = gemm->k[s] / gemm->tiles;
        for (int64_t k = 0; k < length; k += CHUNK) {
            int status = chunk_product(block, start + tile * length + k, ls_min(CHUNK, length - k),
                                       add, c, ldc, error);
            if (status != LS_OK)
                return status;
            add = true;
        }
    }
    return LS_OK;
}

/* The sums can be made in C itself. */
static bool is_direct(const struct block *block)
{
    const struct ls_gemm *gemm = block->gemm;
    bool padded = block->rows_run != block->rows || block->columns_run != block->columns;
    if (gemm->out != LS_F32 || gemm->tiles > 1 || padded)
        return false;
    return !gemm->accumulate || (gemm->sections == 1 && gemm->k[0] <= CHUNK);
}

static int block_product(const struct block *block, struct ls_error *error)
{
    const struct ls_gemm *gemm = block->gemm;
    if (is_direct(block)) {
        float *c = (float *)gemm->c + block->row * gemm->ldc + block->column;
        int status = tile_product(block, 0, gemm->accumulate, c, gemm->ldc, error);
        if (status == LS_OK && gemm->bias)
            finish_write(gemm, block->row, block->column, block->rows, block->columns, c,
                         gemm->ldc);
        return status;
    }
    int64_t size = block->rows_run * block->columns_run;
    for (int64_t tile = 0; tile < gemm->tiles; tile++) {
        int top = gemm_waiting(tile);
        int status =
            tile_product(block, tile, false, block->sums + top * size, block->columns_run, error);
        if (status != LS_OK)
            return status;
        for (int merges = gemm_merges(tile, gemm->tiles); merges > 0; merges--, top--)
            finish_merge(size, block->sums + (top - 1) * size, block->sums + top * size);
    }
    finish_write(gemm, block->row, block->column, block->rows, block->columns, block->sums,
                 block->columns_run);
    return LS_OK;
}

static struct sizes cut(const struct ls_ops *ops, const struct ls_gemm *gemm)
{
    struct sizes sizes = {.rows = ls_min(ROWS, gemm->m), .columns = ls_min(COLUMNS, gemm->n)};
    while (sizes.rows > ROWS_MIN &&
           ls_ceil_div(gemm->m, sizes.rows) * ls_ceil_div(gemm->n, sizes.columns) < ops->threads)
        sizes.rows = ls_ceil_div(sizes.rows, 2);
    for (;; sizes.rows = ls_ceil_div(sizes.rows, 2)) {
        int64_t rows = ls_max(2, sizes.rows), columns = ls_max(2, sizes.columns);
        sizes.sums = (size_t)ls_round_up((1 + gemm_levels(gemm->tiles)) * rows * columns * 4, 64);
        sizes.a = (size_t)ls_round_up(rows * CHUNK * 4, 64);
        sizes.b = (size_t)ls_round_up(columns * CHUNK * 4, 64);
        if (sizes.sums + sizes.a + sizes.b <= ops->workspace_bytes)
            return sizes;
        LS_ASSERT(sizes.rows > 1);
    }
}

int gemm_run_library(struct ls_ops *ops, const struct ls_gemm *gemm, struct ls_error *error)
{
    int status = onednn_open(ops, is_widened(ops, gemm) ? LS_F32 : gemm->in, error);
    if (status != LS_OK)
        return status;
    struct sizes sizes = cut(ops, gemm);
    int64_t across = ls_ceil_div(gemm->n, sizes.columns);
    int64_t blocks = ls_ceil_div(gemm->m, sizes.rows) * across;
#pragma omp parallel num_threads((int)ls_min(ops->threads, blocks))
    {
        int thread = omp_get_thread_num();
        unsigned char *own = ops->workspace + (size_t)thread * ops->workspace_bytes;
        struct block block = {.ops = ops,
                              .gemm = gemm,
                              .thread = thread,
                              .sums = (float *)own,
                              .a = own + sizes.sums,
                              .b = own + sizes.sums + sizes.a};
#pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < blocks; i++) {
            struct ls_error local = {0};
            block.row = i / across * sizes.rows;
            block.rows = ls_min(sizes.rows, gemm->m - block.row);
            block.column = i % across * sizes.columns;
            block.columns = ls_min(sizes.columns, gemm->n - block.column);
            block.rows_run = ls_max(2, block.rows);
            block.columns_run = ls_max(2, block.columns);
            if (block_product(&block, &local) != LS_OK) {
#pragma omp critical(gemm_library_error)
                status = ls_error_set(error, local.code, "%s", local.text);
            }
        }
    }
    return status;
}
