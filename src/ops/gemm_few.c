/* The product of a few rows with weights, as each token that is generated takes it: B is read where
 * it lies and not packed; one in blocks of few bits is read into the cache, some of it at a time.
 * An element's chain is that of gemm_blocked.c, zeros behind a tile's last step included. */
#include "ops/gemm_kernel.h"
#include "ops/kern/flush.h"
#include "ops/kernels.h"
#include "ops/share.h"
#include "ops/tree.h"

#include <string.h>

enum {
    BLOCK_FLOATS = GEMM_FEW_ROWS * GEMM_EDGE,
    READ_VALUES = 128, /* of each of 32 columns in blocks of few bits, at a time: in L1 */
};

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
        job->kernels->pointwise->of[CAST_FROM_HALF](
            &(struct pointwise){job->gemm->in, 0, 0, job->part, 1, from, NULL, to});
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

/* While 32 columns in blocks are worked on, the same part of those behind them is fetched. */
static void blocks_fetch(const struct ls_gemm *gemm, int64_t column, int64_t at, int64_t k)
{
    const int64_t bytes = GEMM_EDGE * (int64_t)ls_blocks_row_bytes(gemm->b_blocks, gemm->ldb);
    const char *next = (const char *)gemm->b + (column / GEMM_EDGE + 1) * bytes;
    for (int64_t i = bytes * at / gemm_k(gemm); i < bytes * (at + k) / gemm_k(gemm); i += 64)
        __builtin_prefetch(next + i, 0, 2);
}

static void few_sums(const struct job *job, const struct gemm_few *few, float *sums)
{
    bool flush = job->gemm->in == LS_BF16;
    unsigned control = flush ? subnormals_flush() : 0;
    job->sums(few, sums);
    if (flush)
        subnormals_restore(control);
}

/* few, whose B is in blocks from `column` and `start`: its values, some at a time. */
static void blocks_sums(const struct job *job, struct gemm_few few, int64_t column, int64_t start,
                        float *sums)
{
    const struct ls_gemm *gemm = job->gemm;
    float values[GEMM_EDGE * READ_VALUES] __attribute__((aligned(64)));
    const size_t row_bytes = ls_blocks_row_bytes(gemm->b_blocks, gemm->ldb);
    const int64_t to_bytes = READ_VALUES * (int64_t)ls_dtype_bytes(few.type);
    const int64_t a_bytes = READ_VALUES * job->words / job->padded * 4;
    const unsigned char *row = (const unsigned char *)gemm->b + (size_t)column * row_bytes;
    few.b = values;
    few.ldb = READ_VALUES;
    for (int64_t at = 0; at < job->part; at += READ_VALUES) {
        few.k = ls_min(READ_VALUES, job->part - at);
        blocks_fetch(gemm, column, start + at, few.k);
        for (int64_t c = 0; c < few.columns; c++)
            job->kernels->blocks->read(gemm->b_blocks, few.type, row + (size_t)c * row_bytes,
                                       start + at, few.k, (char *)values + c * to_bytes);
        few_sums(job, &few, sums);
        few.a = (const char *)few.a + a_bytes;
    }
}

/* 32 columns from `column`: tiles by the tree. */
static void columns_product(const struct job *job, int64_t column)
{
    const struct ls_gemm *gemm = job->gemm;
    float waiting[GEMM_LEVELS_MAX + 1][BLOCK_FLOATS] __attribute__((aligned(64)));
    int top = 0;
    for (int64_t tile = 0; tile < gemm->tiles; tile++) {
        struct gemm_few few = {.rows = gemm->m,
                               .columns = ls_min(GEMM_EDGE, gemm->n - column),
                               .k = job->part,
                               .a = job->a + tile * job->words * 4,
                               .lda = gemm->tiles * job->words,
                               .type = job->type,
                               .ldb = gemm->ldb,
                               .pairs = job->pairs};
        memset(waiting[top], 0, (size_t)(gemm->m * GEMM_EDGE) * sizeof(float));
        if (gemm->b_blocks) {
            blocks_sums(job, few, column, tile * job->part, waiting[top]);
        } else {
            few.skip = tile == gemm->tiles - 1 ? GEMM_EDGE * gemm->ldb - gemm_k(gemm) : 0;
            few.b = ops_at(job->type, gemm->b, column * gemm->ldb + tile * job->part);
            few_sums(job, &few, waiting[top]);
        }
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
 * beside bf16 is packed as bf16, so widened once, and here for each few rows. */
static int64_t rows_most(const struct ls_ops *ops, const struct job *job)
{
    bool amx = job->pairs && ops->isa >= LS_ISA_AMX;
    bool widened = job->type == LS_I8 && job->gemm->in == LS_BF16 && ops->isa >= LS_ISA_AVX512_BF16;
    return amx || widened ? GEMM_FEW_ROWS / 2 : GEMM_FEW_ROWS;
}

/* y = x W^T, and nothing that only packed products do. */
static bool is_plain(const struct ls_gemm *gemm)
{
    return gemm->sections == 1 && !gemm->a_transposed && gemm->b_transposed &&
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
        for (int64_t column = begin; column < end; column += GEMM_EDGE)
            columns_product(&job, column);
    }
    return true;
}
