/* ops/gemm.h - what the files of the matrix product share. */
#ifndef OPS_GEMM_H
#define OPS_GEMM_H

#include <lockstep/ops.h>

/* Library primitives that were made already; used by one caller at a time, as struct ls_ops. */
struct ls_gemm_cache *gemm_cache_new(void);
void gemm_cache_free(struct ls_gemm_cache *cache);

#endif
