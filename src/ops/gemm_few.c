/* The product of a few rows with weights, as each token that is generated takes it: B is read once
 * where it lies and not packed. An element's chain is that of gemm_blocked.c, zeros behind a tile's
 * last step included. */
#include "ops/gemm_kernel.h"
#include "ops/kern/flush.h"
#include "ops/kernels.h"
#include "ops/share.h"
#include "ops/tree.h"

#include <string.h>

enum { BLOCK_FLOATS = GEMM_FEW_ROWS * GEMM_EDGE };

struct job {
    const struct ls_gemm *gemm;
    const struct gemm_finish *finish;
    const struct ls_kernels *kernels;
    enum ls_dtype type; /* of B */
    bool pairs;
    int64_t part, padded; /* of k: a tile; the same in whole steps */
    float *a;             /* [m, tiles, padded]: A as float32 */
};

static void rows_widen(const struct job *job)
{
    const struct ls_gemm *gemm = job->gemm;
    for (int64_t i = 0; i < gemm->m * gemm->tiles; i++) {
        float *to = job->a + i * job->padded;
        int64_t from = i / gemm->tiles * gemm->lda + i % gemm->tiles * job->part;
        memset(to, 0, (size_t)job->padded * sizeof *to);
        if (gemm->in == LS_F32)
            memcpy(to, (const float *)gemm->a + from, (size_t)job->part * sizeof *to);
        else
            job->kernels->pointwise->cast_from_half(gemm->in, job->part,
                                                    (const ls_half *)gemm->a + from, to);
    }
}

/* 32 columns from `column`: tiles by the tree. */
static void columns_product(const struct job *job, int64_t column)
{
    const struct ls_gemm *gemm = job->gemm;
    float waiting[GEMM_LEVELS_MAX + 1][BLOCK_FLOATS] __attribute__((aligned(64)));
    int top = 0;
    for (int64_t tile = 0; tile < gemm->tiles; tile++) {
        struct gemm_few few = {
            .rows = gemm->m,
            .columns = ls_min(GEMM_EDGE, gemm->n - column),
            .k = job->part,
            .a = job->a + tile * job->padded,
            .lda = gemm->tiles * job->padded,
            .b = ops_at(job->type, gemm->b, column * gemm->ldb + tile * job->part),
            .type = job->type,
            .ldb = gemm->ldb,
            .pairs = job->pairs};
        job->kernels->few->sums(&few, waiting[top]);
        if (gemm->b_scales)
            job->finish->scale(gemm, NULL, 0, column, tile, waiting[top]);
        top++;
        for (int merges = ops_tree_merges(tile, gemm->tiles); merges > 0; merges--, top--)
            for (int64_t v = 0; v < gemm->m * GEMM_EDGE; v++)
                waiting[top - 2][v] += waiting[top - 1][v];
    }
    job->finish->write(gemm, 0, column, waiting[0], waiting[0], 0, false);
}

/* Up to so many rows are faster without packing. AMX takes next to no time for what is packed; int8
 * that is packed as bf16 is widened once, and here for each few rows. */
static int64_t rows_most(const struct ls_ops *ops, const struct job *job)
{
    bool amx = job->pairs && ops->isa >= LS_ISA_AMX;
    bool widened = job->type == LS_I8 && ops->isa >= LS_ISA_AVX512_BF16;
    return amx || widened ? GEMM_FEW_ROWS / 2 : GEMM_FEW_ROWS;
}

/* y = x W^T, and nothing that only packed products do. */
static bool is_plain(const struct ls_gemm *gemm)
{
    return !gemm->b_blocks && gemm->sections == 1 && !gemm->a_transposed && gemm->b_transposed &&
           gemm->onto == LS_ONTO_NOTHING && gemm->leaves <= 1;
}

bool gemm_run_few(const struct ls_ops *ops, const struct ls_gemm *gemm)
{
    struct job job = {.gemm = gemm,
                      .finish = gemm_finish_of(ops),
                      .kernels = ops->kernels,
                      .type = gemm->b_scales ? LS_I8 : gemm->in,
                      .pairs = gemm->in == LS_BF16 && ops->arithmetic == LS_ARITHMETIC_BF16_PAIRS,
                      .part = gemm_k(gemm) / gemm->tiles,
                      .a = (float *)ops->workspace};
    job.padded = ls_round_up(job.part, GEMM_EDGE);
    size_t bytes = (size_t)(gemm->m * gemm->tiles * job.padded) * sizeof(float);
    if (gemm->m > rows_most(ops, &job) || !is_plain(gemm) ||
        bytes > (size_t)ops->threads * ops->workspace_bytes)
        return false;
    rows_widen(&job);
    OPS_EACH_SHARE (ops, gemm->n * gemm_k(gemm), gemm->n, GEMM_EDGE) {
        bool flush = gemm->in == LS_BF16;
        unsigned control = flush ? subnormals_flush() : 0;
        for (int64_t column = begin; column < end; column += GEMM_EDGE)
            columns_product(&job, column);
        if (flush)
            subnormals_restore(control);
    }
    return true;
}
