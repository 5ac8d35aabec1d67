/* The matrix product with weights of int8 (lockstep/ops/int8.h): rows of A are made int8, as many
 * at a time as the workspace holds; then each thread takes columns of C.
 *
 * Four rows of B stay in the nearest cache while the rows of A pass by. */
#include "ops/gemm_kernel.h"
#include "ops/kernels.h"
#include "ops/share.h"
#include "ops/tree.h"

#include <omp.h>

enum { BLOCK_VALUES = INT8_EDGE * INT8_EDGE, LEVELS_MAX = 20 };

/* A product, and the rows [row, row_end) of it whose A lies in the workspace. */
struct job {
    const struct ls_gemm *gemm;
    const struct int8_kernels *kernels;
    int8_dots_fn *dots;
    int64_t k, part; /* all of the contraction; a tile of it */
    int64_t row, row_end;
    int8_t *a;    /* [rows, k] */
    float *scale; /* [rows, tiles] */
    float *wide;  /* [threads, INT8_EDGE, part]: B's rows as float32; with a_kept */
};

static int8_dots_fn *dots_of(const struct ls_ops *ops)
{
#if defined(__x86_64__)
    if (ops->isa >= LS_ISA_AVX512_BF16 && int8_vnni_is_there())
        return int8_vnni_dots;
#endif
    return ops->kernels->int8->dots;
}

/* Rows [begin, end) of the job's. */
static void rows_quantize(const struct job *job, int64_t begin, int64_t end)
{
    const struct ls_gemm *gemm = job->gemm;
    for (int64_t i = begin; i < end; i++)
        for (int64_t tile = 0; tile < gemm->tiles; tile++) {
            int64_t at = tile * job->part;
            job->scale[i * gemm->tiles + tile] =
                job->kernels->quantize(gemm->in, job->part, gemm->a,
                                       (job->row + i) * gemm->lda + at, job->a + i * job->k + at);
        }
}

/* The tile's P_r of rows [i, i + rows) of the job's and INT8_EDGE columns from j. */
static void tile_values(const struct job *job, int64_t i, int64_t rows, int64_t j, int64_t columns,
                        int64_t tile, float values[BLOCK_VALUES])
{
    const struct ls_gemm *gemm = job->gemm;
    int64_t tiles = gemm->tiles, at = tile * job->part;
    int32_t sums[BLOCK_VALUES];
    const int8_t *b = (const int8_t *)gemm->b + j * gemm->ldb + at;
    if (columns == INT8_EDGE)
        job->dots(job->a + i * job->k + at, job->k, rows, b, gemm->ldb, job->part, sums);
    else
        for (int64_t c = 0; c < columns; c++) /* each as if it stood four times */
            for (int64_t r = 0; r < rows; r++) {
                int32_t same[BLOCK_VALUES];
                job->dots(job->a + (i + r) * job->k + at, job->k, 1, b + c * gemm->ldb, 0,
                          job->part, same);
                sums[r * INT8_EDGE + c] = same[0];
            }
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++)
            values[r * INT8_EDGE + c] =
                (float)sums[r * INT8_EDGE + c] *
                (job->scale[(i + r) * tiles + tile] * gemm->b_scales[(j + c) * tiles + tile]);
}

/* The same with A as it is. */
static void kept_values(const struct job *job, int64_t i, int64_t rows, int64_t j, int64_t columns,
                        int64_t tile, const float *wide, float values[BLOCK_VALUES])
{
    const struct ls_gemm *gemm = job->gemm;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) {
            int64_t from = (job->row + i + r) * gemm->lda + tile * job->part;
            float sum = job->kernels->dot(gemm->in, gemm->a, from,
                                          wide + (c * gemm->tiles + tile) * job->part, job->part);
            values[r * INT8_EDGE + c] = sum * gemm->b_scales[(j + c) * gemm->tiles + tile];
        }
}

static void block_write_out(const struct job *job, int64_t i, int64_t rows, int64_t j,
                            int64_t columns, const float values[BLOCK_VALUES])
{
    const struct ls_gemm *gemm = job->gemm;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) {
            float value = values[r * INT8_EDGE + c] + (gemm->bias ? gemm->bias[j + c] : 0);
            int64_t at = (job->row + i + r) * gemm->ldc + j + c;
            if (gemm->out == LS_F32)
                ((float *)gemm->c)[at] = value;
            else
                ((ls_half *)gemm->c)[at] = ls_f32_to_half(gemm->out, value);
        }
}

/* Tiles by the tree. */
static void block_product(const struct job *job, int64_t i, int64_t rows, int64_t j,
                          int64_t columns, const float *wide)
{
    float waiting[LEVELS_MAX][BLOCK_VALUES] = {{0}};
    int64_t tiles = job->gemm->tiles;
    int top = 0;
    for (int64_t tile = 0; tile < tiles; tile++) {
        if (wide)
            kept_values(job, i, rows, j, columns, tile, wide, waiting[top++]);
        else
            tile_values(job, i, rows, j, columns, tile, waiting[top++]);
        for (int merges = ops_tree_merges(tile, tiles); merges > 0; merges--, top--)
            for (int v = 0; v < BLOCK_VALUES; v++)
                waiting[top - 2][v] += waiting[top - 1][v];
    }
    block_write_out(job, i, rows, j, columns, waiting[0]);
}

static void columns_product(const struct job *job, int64_t j, int64_t columns, float *wide)
{
    const struct ls_gemm *gemm = job->gemm;
    int64_t rows = job->row_end - job->row;
    for (int64_t c = 0; c < columns && wide; c++)
        job->kernels->widen(job->k, (const int8_t *)gemm->b + (j + c) * gemm->ldb,
                            wide + c * job->k);
    for (int64_t i = 0; i < rows; i += INT8_EDGE)
        block_product(job, i, ls_min(INT8_EDGE, rows - i), j, columns, wide);
}

/* Bytes of a thread's float32 rows of B. */
static int64_t wide_bytes(const struct ls_gemm *gemm)
{
    return gemm->a_kept ? ls_round_up(INT8_EDGE * gemm_k(gemm) * (int64_t)sizeof(float), 64) : 0;
}

/* Rows whose int8 and scales fit what is left of the workspace. */
static int64_t rows_at_once(const struct ls_ops *ops, const struct ls_gemm *gemm)
{
    int64_t each = gemm_k(gemm) + gemm->tiles * (int64_t)sizeof(float);
    int64_t room = ops->threads * ((int64_t)ops->workspace_bytes - wide_bytes(gemm)) - 64;
    return gemm->a_kept ? gemm->m : ls_min(gemm->m, room / each);
}

int gemm_int8_check(const struct ls_ops *ops, const struct ls_gemm *gemm, struct ls_error *error)
{
    int64_t k = gemm_k(gemm);
    if (gemm->sections != 1 || gemm->a_transposed || !gemm->b_transposed ||
        gemm->onto != LS_ONTO_NOTHING || gemm->leaves > 1)
        return ls_error_set(error, LS_EINVAL,
                            "ls_gemm: weights of int8 are for y = x W^T alone: one section, A "
                            "[m, k], B [n, k], written");
    if (k / gemm->tiles > LS_INT8_K_MAX)
        return ls_error_set(error, LS_EINVAL,
                            "ls_gemm: a tile of k has %lld: expected at most %d, whose sum fits "
                            "32 bits",
                            (long long)(k / gemm->tiles), LS_INT8_K_MAX);
    if (!ops->idle && k &&
        (rows_at_once(ops, gemm) < 1 || wide_bytes(gemm) < 0 ||
         wide_bytes(gemm) > (int64_t)ops->workspace_bytes))
        return ls_error_set(error, LS_EINVAL,
                            "ls_gemm: a row of int8 with k %lld does not fit the workspace of "
                            "%zu bytes",
                            (long long)k, ops->workspace_bytes);
    return LS_OK;
}

void gemm_run_int8(struct ls_ops *ops, const struct ls_gemm *gemm)
{
    int64_t k = gemm_k(gemm), most = rows_at_once(ops, gemm);
    int64_t wide = wide_bytes(gemm) / (int64_t)sizeof(float);
    struct job job = {.gemm = gemm,
                      .kernels = ops->kernels->int8,
                      .dots = dots_of(ops),
                      .k = k,
                      .part = k / gemm->tiles,
                      .wide = (float *)ops->workspace,
                      .scale = (float *)ops->workspace + ops->threads * wide};
    job.a = (int8_t *)(job.scale + most * gemm->tiles);
    for (job.row = 0; job.row < gemm->m; job.row = job.row_end) {
        job.row_end = ls_min(job.row + most, gemm->m);
        int64_t rows = job.row_end - job.row;
        if (!gemm->a_kept)
            OPS_EACH_SHARE (ops, rows * k, rows, 1)
                rows_quantize(&job, begin, end);
        OPS_EACH_SHARE (ops, rows * k * gemm->n, gemm->n, INT8_EDGE) {
            float *own = gemm->a_kept ? job.wide + omp_get_thread_num() * wide : NULL;
            for (int64_t j = begin; j < end; j += INT8_EDGE)
                columns_product(&job, j, ls_min(INT8_EDGE, end - j), own);
        }
    }
}

/* ---- weights ----------------------------------------------------------------------------------
 */

int ls_int8_quantize(struct ls_ops *ops, int64_t rows, int64_t cols, int64_t tiles,
                     const float *weights, int8_t *values, float *scales, struct ls_error *error)
{
    LS_ASSERT(tiles >= 1 && cols % tiles == 0);
    int64_t length = cols / tiles;
    OPS_TELL(ops, ops_pass(LS_WORK_CAST, LS_F32, rows, cols, 3, 1.25));
    OPS_EACH_SHARE (ops, rows * cols, rows, 1)
        for (int64_t i = begin * tiles; i < end * tiles; i++)
            scales[i] = ops->kernels->int8->quantize(LS_F32, length, weights, i * length,
                                                     values + i * length);
    for (int64_t i = 0; i < rows * tiles && !ops->idle; i++)
        if (scales[i] != scales[i])
            return ls_error_set(error, LS_EDATA,
                                "row %lld has a weight that is not finite: it cannot be int8",
                                (long long)(i / tiles));
    return LS_OK;
}
