/* The matrix product with weights of int8 (lockstep/ops/int8.h).
 *
 * Where rows of A are made int8, as many at a time as the workspace holds, the sums are whole
 * numbers, which any order gives. For many rows B is packed, as in any product (gemm_blocked.c).
 * For few it is read where it lies, four rows of it at a time, which stay in the nearest cache
 * while the rows of A pass by. Where A is kept, it is a product like any other, whose B is widened
 * when it is packed. */
#include "ops/gemm_kernel.h"
#include "ops/kernels.h"
#include "ops/share.h"
#include "ops/tree.h"

enum {
    BLOCK_VALUES = INT8_EDGE * INT8_EDGE,
    LEVELS_MAX = 20,
    PACK_ROWS_MIN = 12,    /* rows that are worth it to pack B */
    PACK_BYTES = 12 << 20, /* of a thread's workspace, for packing */
    PACK_SHARE = 4,        /* then rows of int8 have this part of the workspace */
};

/* A product, and the rows [row, row_end) of it whose A lies in the workspace. */
struct job {
    const struct ls_gemm *gemm;
    const struct int8_kernels *kernels;
    int8_dots_fn *dots;
    int64_t k, part; /* all of the contraction; a tile of it */
    int64_t row, row_end;
    float *scale; /* [rows, tiles] */
    int32_t *sum; /* the same */
    int8_t *a;    /* [rows, k] */
};

static bool vnni_is_there(const struct ls_ops *ops)
{
#if defined(__x86_64__)
    return ops->isa >= LS_ISA_AVX512_BF16 && int8_vnni_is_there();
#else
    (void)ops;
    return false;
#endif
}

static int8_dots_fn *dots_of(const struct ls_ops *ops)
{
#if defined(__x86_64__)
    if (vnni_is_there(ops))
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
            int64_t from = tile * job->part, at = i * gemm->tiles + tile;
            int8_t *to = job->a + i * job->k + from;
            job->scale[at] = job->kernels->quantize(gemm->in, job->part, gemm->a,
                                                    (job->row + i) * gemm->lda + from, to);
            job->sum[at] = job->kernels->sum(job->part, to);
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

static void block_write_out(const struct job *job, int64_t i, int64_t rows, int64_t j,
                            int64_t columns, const float values[BLOCK_VALUES])
{
    const struct ls_gemm *gemm = job->gemm;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) {
            float value = values[r * INT8_EDGE + c];
            if (gemm->bias) /* -0 stays what it is if there is none */
                value += gemm->bias[j + c];
            int64_t at = (job->row + i + r) * gemm->ldc + j + c;
            if (gemm->out == LS_F32)
                ((float *)gemm->c)[at] = value;
            else
                ((ls_half *)gemm->c)[at] = ls_f32_to_half(gemm->out, value);
        }
}

/* Tiles by the tree. */
static void block_product(const struct job *job, int64_t i, int64_t rows, int64_t j,
                          int64_t columns)
{
    float waiting[LEVELS_MAX][BLOCK_VALUES] = {{0}};
    int64_t tiles = job->gemm->tiles;
    int top = 0;
    for (int64_t tile = 0; tile < tiles; tile++) {
        tile_values(job, i, rows, j, columns, tile, waiting[top++]);
        for (int merges = ops_tree_merges(tile, tiles); merges > 0; merges--, top--)
            for (int v = 0; v < BLOCK_VALUES; v++)
                waiting[top - 2][v] += waiting[top - 1][v];
    }
    block_write_out(job, i, rows, j, columns, waiting[0]);
}

static void columns_product(const struct job *job, int64_t begin, int64_t end)
{
    int64_t rows = job->row_end - job->row;
    for (int64_t j = begin; j < end; j += INT8_EDGE)
        for (int64_t i = 0; i < rows; i += INT8_EDGE)
            block_product(job, i, ls_min(INT8_EDGE, rows - i), j, ls_min(INT8_EDGE, end - j));
}

/* ---- rows of A as int8 ----------------------------------------------------------------------- */

/* Rows whose int8, scales and sums fit so many bytes. */
static int64_t rows_that_fit(const struct ls_gemm *gemm, int64_t bytes)
{
    int64_t each = gemm_k(gemm) + gemm->tiles * (int64_t)(sizeof(float) + sizeof(int32_t));
    return ls_min(gemm->m, (bytes - 64) / each);
}

int gemm_int8_check(const struct ls_ops *ops, const struct ls_gemm *gemm, struct ls_error *error)
{
    int64_t k = gemm_k(gemm);
    if (gemm->sections != 1 || gemm->a_transposed || !gemm->b_transposed ||
        gemm->onto != LS_ONTO_NOTHING || gemm->leaves > 1)
        return ls_error_set(error, LS_EINVAL,
                            "ls_gemm: weights of int8 are for y = x W^T alone: one section, A "
                            "[m, k], B [n, k], written");
    if (!gemm->a_kept && k / gemm->tiles > LS_INT8_K_MAX)
        return ls_error_set(error, LS_EINVAL,
                            "ls_gemm: a tile of k has %lld: expected at most %d, whose sum fits "
                            "32 bits",
                            (long long)(k / gemm->tiles), LS_INT8_K_MAX);
    int64_t workspace = ops->threads * (int64_t)ops->workspace_bytes;
    if (!ops->idle && k && gemm->m && !gemm->a_kept && rows_that_fit(gemm, workspace) < 1)
        return ls_error_set(error, LS_EINVAL,
                            "ls_gemm: a row of int8 with k %lld does not fit the workspace of "
                            "%zu bytes",
                            (long long)k, ops->workspace_bytes);
    return LS_OK;
}

/* The job's rows, which are int8, by packing, with what they leave of the workspace. */
static void rows_product_packed(const struct ls_ops *ops, const struct job *job)
{
    struct ls_gemm gemm = *job->gemm;
    struct gemm_int8_rows rows = {job->scale, job->sum};
    struct ls_ops rest = *ops;
    int64_t taken =
        ls_round_up(job->a + (job->row_end - job->row) * job->k - (int8_t *)ops->workspace, 64);
    rest.workspace += taken;
    rest.workspace_bytes -= (size_t)ls_round_up(ls_ceil_div(taken, ops->threads), 64);
    gemm.m = job->row_end - job->row;
    gemm.in = LS_I8;
    gemm.a = job->a;
    gemm.lda = job->k;
    gemm.c = ops_at_mutable(gemm.out, gemm.c, job->row * gemm.ldc);
    gemm_run_blocked(&rest, &gemm, &rows);
}

void gemm_run_int8(struct ls_ops *ops, const struct ls_gemm *gemm)
{
    int64_t k = gemm_k(gemm), workspace = ops->threads * (int64_t)ops->workspace_bytes;
    int64_t most = rows_that_fit(gemm, workspace / PACK_SHARE);
    bool packs = gemm->m >= PACK_ROWS_MIN && most >= PACK_ROWS_MIN && vnni_is_there(ops) &&
                 (int64_t)ops->workspace_bytes / PACK_SHARE * (PACK_SHARE - 1) >= PACK_BYTES;
    most = packs ? most : rows_that_fit(gemm, workspace);
    struct job job = {.gemm = gemm,
                      .kernels = ops->kernels->int8,
                      .dots = dots_of(ops),
                      .k = k,
                      .part = k / gemm->tiles,
                      .scale = (float *)ops->workspace,
                      .sum = (int32_t *)ops->workspace + most * gemm->tiles};
    job.a = (int8_t *)(job.sum + most * gemm->tiles);
    for (job.row = 0; job.row < gemm->m; job.row = job.row_end) {
        job.row_end = ls_min(job.row + most, gemm->m);
        int64_t rows = job.row_end - job.row;
        OPS_EACH_SHARE (ops, rows * k, rows, 1)
            rows_quantize(&job, begin, end);
        if (packs)
            rows_product_packed(ops, &job);
        else
            OPS_EACH_SHARE (ops, rows * k * gemm->n, gemm->n, INT8_EDGE)
                columns_product(&job, begin, end);
    }
}

/* ---- weights --------------------------------------------------------------------------------- */

struct quantize_call {
    int64_t rows, cols, tiles;
    const float *weights;
    int8_t *values;
    float *scales;
};

static struct ls_work quantize_work(const void *arguments)
{
    const struct quantize_call *c = arguments;
    return ops_pass(LS_WORK_CAST, LS_F32, c->rows, c->cols, 3, 1.25);
}

static void quantize_operands(const void *arguments, struct ls_operands *out)
{
    const struct quantize_call *c = arguments;
    ls_operand_add(out, c, &c->weights, ops_bytes(LS_F32, c->rows * c->cols), LS_READS);
    ls_operand_add(out, c, &c->values, ops_bytes(LS_I8, c->rows * c->cols), LS_WRITES);
    ls_operand_add(out, c, &c->scales, ops_bytes(LS_F32, c->rows * c->tiles), LS_WRITES);
}

static int quantize_run(struct ls_ops *ops, const void *arguments, struct ls_error *error)
{
    const struct quantize_call *c = arguments;
    int64_t tiles = c->tiles, length = c->cols / tiles;
    OPS_EACH_SHARE (ops, c->rows * c->cols, c->rows, 1)
        for (int64_t i = begin * tiles; i < end * tiles; i++)
            c->scales[i] = ops->kernels->int8->quantize(LS_F32, length, c->weights, i * length,
                                                        c->values + i * length);
    for (int64_t i = 0; i < c->rows * tiles; i++)
        if (c->scales[i] != c->scales[i])
            return ls_error_set(error, LS_EDATA,
                                "row %lld has a weight that is not finite: it cannot be int8",
                                (long long)(i / tiles));
    return LS_OK;
}

int ls_int8_quantize(struct ls_ops *ops, int64_t rows, int64_t cols, int64_t tiles,
                     const float *weights, int8_t *values, float *scales, struct ls_error *error)
{
    static const struct ops_op op =
        OPS_ATTEMPT(struct quantize_call, quantize_work, quantize_operands, quantize_run);
    const struct quantize_call call = {rows, cols, tiles, weights, values, scales};
    LS_ASSERT(tiles >= 1 && cols % tiles == 0);
    return ops_try(ops, &op, &call, error);
}
