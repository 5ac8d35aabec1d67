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
    int64_t part, padded;                                  /* of k: a tile; in whole steps */
    void (*sums)(const struct gemm_few *few, float *sums); /* of a tile */
    void (*row)(const struct job *job, const void *from,
                void *to); /* of A becomes what that reads */
    int64_t words;         /* of 4 bytes that it becomes */
    char *a;               /* [m, tiles, words] */
};

static void row_widen(const struct job *job, const void *from, void *to)
{
    memset(to, 0, (size_t)job->padded * sizeof(float));
    if (job->gemm->in == LS_F32)
        memcpy(to, from, (size_t)job->part * sizeof(float));
    else
        job->kernels->pointwise->cast_from_half(job->gemm->in, job->part, from, to);
}

#if defined(__x86_64__)
/* VDPBF16PS adds the second product of a pair first (gemm_bf16.c). */
static void row_pair(const struct job *job, const void *from, void *to)
{
    uint32_t *words = to;
    memset(to, 0, (size_t)job->words * sizeof *words);
    memcpy(to, from, (size_t)job->part * sizeof(ls_half));
    for (int64_t i = 0; i < job->words; i++)
        words[i] = words[i] << 16 | words[i] >> 16;
}
#endif

static void rows_convert(const struct job *job)
{
    const struct ls_gemm *gemm = job->gemm;
    for (int64_t i = 0; i < gemm->m * gemm->tiles; i++) {
        int64_t from = i / gemm->tiles * gemm->lda + i % gemm->tiles * job->part;
        job->row(job, ops_at(gemm->in, gemm->a, from), job->a + i * job->words * 4);
    }
}

static void kernel_choose(struct job *job, const struct ls_ops *ops)
{
    job->sums = job->kernels->few->sums;
    job->row = row_widen;
    job->words = job->padded;
#if defined(__x86_64__)
    if (job->type != LS_BF16 || job->pairs || ops->isa < LS_ISA_AVX512_BF16)
        return;
    job->sums = gemm_few_bf16;
    job->row = row_pair;
    job->words = job->padded / 2;
#endif
    (void)ops;
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
            .a = job->a + tile * job->words * 4,
            .lda = gemm->tiles * job->words,
            .b = ops_at(job->type, gemm->b, column * gemm->ldb + tile * job->part),
            .type = job->type,
            .ldb = gemm->ldb,
            .pairs = job->pairs};
        job->sums(&few, waiting[top]);
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
                      .a = (char *)ops->workspace};
    job.padded = ls_round_up(job.part, GEMM_EDGE);
    kernel_choose(&job, ops);
    size_t bytes = (size_t)(gemm->m * gemm->tiles * job.words) * sizeof(float);
    if (gemm->m > rows_most(ops, &job) || !is_plain(gemm) ||
        bytes > (size_t)ops->threads * ops->workspace_bytes)
        return false;
    rows_convert(&job);
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
