/* ops/gemm_onednn.h - one small product by the library, and what is done to its results. The only
 * place that knows oneDNN's interface is gemm_onednn.c. */
#ifndef OPS_GEMM_ONEDNN_H
#define OPS_GEMM_ONEDNN_H

#include "ops/gemm.h"

/* C = A x B, or C += A x B with `add` (the product from zero in float32, then one addition an
 * element). C is float32. Sizes and distances as in struct ls_gemm. */
struct product {
    int64_t m, n, k, lda, ldb, ldc;
    int64_t a_transposed, b_transposed, add, bf16; /* truth values; int64_t leaves no padding */
};

/* Local. Makes the library ready for ops->isa; call it outside parallel regions. */
int onednn_open(struct ls_ops *ops, enum ls_dtype in, struct ls_error *error);
/* Runs on the calling thread alone, which is number `thread` of ops. */
int onednn_run(struct ls_ops *ops, int thread, const struct product *product, const void *a,
               const void *b, float *c, struct ls_error *error);

/* gemm_finish.c; for machines with AVX2. A matrix is [rows, columns] with row distance ld. */
/* into += from, both packed: count elements. */
void finish_merge(int64_t count, float *into, const float *from);
/* gemm's C at (row, column) from the finished sums, which may be C itself. */
void finish_write(const struct ls_gemm *gemm, int64_t row, int64_t column, int64_t rows,
                  int64_t columns, const float *sum, int64_t ld);
/* to [rows, columns], row distance `columns`, = from, as float32; beyond used_rows and used_columns
 * zero. */
void finish_widen(const ls_bf16 *from, int64_t ld, int64_t used_rows, int64_t used_columns,
                  int64_t rows, int64_t columns, float *to);

#endif
