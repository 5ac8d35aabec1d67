/* Element loops around the library's products. Only reached where the machine has AVX2. */
/* cflags: -mavx2 -mfma */
#include "ops/gemm_onednn.h"

void finish_merge(int64_t count, float *restrict into, const float *restrict from)
{
    for (int64_t i = 0; i < count; i++)
        into[i] += from[i];
}

static void write_bf16(int64_t columns, const float *restrict sum, const float *restrict bias,
                       ls_bf16 *restrict c)
{
    if (bias)
        for (int64_t j = 0; j < columns; j++)
            c[j] = ls_f32_to_bf16(sum[j] + bias[j]);
    else
        for (int64_t j = 0; j < columns; j++)
            c[j] = ls_f32_to_bf16(sum[j]);
}

static void write_f32(int64_t columns, const float *sum, const float *restrict bias, float *c)
{
    if (bias)
        for (int64_t j = 0; j < columns; j++)
            c[j] = sum[j] + bias[j];
    else if (sum != c)
        for (int64_t j = 0; j < columns; j++)
            c[j] = sum[j];
}

void finish_write(const struct ls_gemm *gemm, int64_t row, int64_t column, int64_t rows,
                  int64_t columns, const float *sum, int64_t ld)
{
    const float *bias = gemm->bias ? gemm->bias + column : NULL;
    for (int64_t i = 0; i < rows; i++) {
        int64_t index = (row + i) * gemm->ldc + column;
        if (gemm->out == LS_BF16)
            write_bf16(columns, sum + i * ld, bias, (ls_bf16 *)gemm->c + index);
        else if (gemm->accumulate)
            finish_merge(columns, (float *)gemm->c + index, sum + i * ld);
        else
            write_f32(columns, sum + i * ld, bias, (float *)gemm->c + index);
    }
}

void finish_widen(const ls_bf16 *from, int64_t ld, int64_t used_rows, int64_t used_columns,
                  int64_t rows, int64_t columns, float *to)
{
    for (int64_t i = 0; i < rows; i++) {
        int64_t used = i < used_rows ? used_columns : 0;
        for (int64_t j = 0; j < used; j++)
            to[i * columns + j] = ls_bf16_to_f32(from[i * ld + j]);
        for (int64_t j = used; j < columns; j++)
            to[i * columns + j] = 0;
    }
}
