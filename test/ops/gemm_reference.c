/* The matrix product in plain C, block by block. */
#include "gemm_reference.h"

#include "ops/gemm_kernel.h"

#include <string.h>

enum { ROWS = 16, COLUMNS = 64, DEPTH = 64 };

struct part {
    int64_t row, rows, column, columns;
};

static float element(const void *x, enum ls_dtype dtype, int64_t index)
{
    return dtype == LS_F32 ? ((const float *)x)[index]
                           : ls_half_to_f32(dtype, ((const ls_half *)x)[index]);
}

/* sum [ROWS, COLUMNS] += A[part's rows, k0 .. k0 + depth) x B[same, its columns), k ascending. */
static void add_product(const struct ls_gemm *gemm, struct part part, int64_t k0, int64_t depth,
                        float sum[ROWS][COLUMNS])
{
    float b[DEPTH][COLUMNS];
    for (int64_t k = 0; k < depth; k++)
        for (int64_t j = 0; j < part.columns; j++) {
            int64_t row = k0 + k, column = part.column + j;
            b[k][j] =
                element(gemm->b, gemm->in,
                        gemm->b_transposed ? column * gemm->ldb + row : row * gemm->ldb + column);
        }
    for (int64_t i = 0; i < part.rows; i++)
        for (int64_t k = 0; k < depth; k++) {
            int64_t row = part.row + i, column = k0 + k;
            float a =
                element(gemm->a, gemm->in,
                        gemm->a_transposed ? column * gemm->lda + row : row * gemm->lda + column);
            for (int64_t j = 0; j < part.columns; j++)
                sum[i][j] += a * b[k][j];
        }
}

/* sum = the part of C. */
static void read_c(const struct ls_gemm *gemm, struct part part, float sum[ROWS][COLUMNS])
{
    for (int64_t i = 0; i < part.rows; i++)
        for (int64_t j = 0; j < part.columns; j++)
            sum[i][j] = ((const float *)gemm->c)[(part.row + i) * gemm->ldc + part.column + j];
}

static void tile_product(const struct ls_gemm *gemm, struct part part, int64_t tile,
                         float sum[ROWS][COLUMNS])
{
    memset(sum, 0, sizeof(float) * ROWS * COLUMNS);
    if (gemm->onto == LS_ONTO_CHAIN)
        read_c(gemm, part, sum);
    int64_t start = 0;
    for (int s = 0; s < gemm->sections; s++) {
        int64_t length = gemm->k[s] / gemm->tiles;
        for (int64_t k = 0; k < length; k += DEPTH)
            add_product(gemm, part, start + tile * length + k, ls_min(DEPTH, length - k), sum);
        start += gemm->k[s];
    }
}

static void write_out(const struct ls_gemm *gemm, struct part part, float sum[ROWS][COLUMNS])
{
    for (int64_t i = 0; i < part.rows; i++)
        for (int64_t j = 0; j < part.columns; j++) {
            int64_t column = part.column + j;
            int64_t index = (part.row + i) * gemm->ldc + column;
            float value = sum[i][j];
            if (gemm->bias)
                value += gemm->bias[column];
            if (gemm->out != LS_F32)
                ((ls_half *)gemm->c)[index] = ls_f32_to_half(gemm->out, value);
            else if (gemm_adds_to_c(gemm))
                ((float *)gemm->c)[index] += value;
            else
                ((float *)gemm->c)[index] = value;
        }
}

static void block_product(const struct ls_gemm *gemm, struct part part)
{
    float waiting[GEMM_LEVELS_MAX + 1][ROWS][COLUMNS];
    if (gemm_starts_from_c(gemm))
        read_c(gemm, part, waiting[0]);
    for (int64_t tile = 0; tile < gemm->tiles; tile++) {
        int top = gemm_waiting(gemm, tile);
        tile_product(gemm, part, tile, waiting[top]);
        for (int merges = gemm_merges(gemm, tile); merges > 0; merges--, top--)
            for (int64_t i = 0; i < ROWS; i++)
                for (int64_t j = 0; j < COLUMNS; j++)
                    waiting[top - 1][i][j] += waiting[top][i][j];
    }
    write_out(gemm, part, waiting[0]);
}

void gemm_reference(const struct ls_gemm *gemm)
{
    if (gemm_k(gemm) == 0 && gemm->onto != LS_ONTO_NOTHING)
        return;
    for (int64_t row = 0; row < gemm->m; row += ROWS)
        for (int64_t column = 0; column < gemm->n; column += COLUMNS)
            block_product(gemm, (struct part){row, ls_min(ROWS, gemm->m - row), column,
                                              ls_min(COLUMNS, gemm->n - column)});
}
