/* What a matrix product should be, nearly: the same sums in plain C. */
#ifndef TEST_OPS_GEMM_REFERENCE_H
#define TEST_OPS_GEMM_REFERENCE_H

#include <lockstep/ops.h>

/* A product without blocks: the tiles and the tree of ls_gemm_run, but ascending order inside a
 * tile, so that bits differ there. */
void gemm_reference(const struct ls_gemm *gemm);

#endif
