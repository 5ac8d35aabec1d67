/* ops/gemm_bf16.h - packed bf16 operands, in the form that AMX tiles and VDPBF16PS read.
 *
 * A block is two tiles of 1 KiB, each of 16 rows of 64 bytes. A tile of A is 16 rows of 32 values
 * along k. A tile of B is 16 pairs along k by 16 columns: row p holds b[2p][c], b[2p + 1][c] for
 * c = 0..15 (the "VNNI" form). For VDPBF16PS every pair is the other way round. */
#ifndef OPS_GEMM_BF16_H
#define OPS_GEMM_BF16_H

#include "ops/gemm_kernel.h"

enum { BF16_BLOCK_BYTES = 2048, BF16_TILE_BYTES = 1024, BF16_ROW_BYTES = 64 };

void bf16_pack(struct gemm_form form, const void *x, int64_t ld, int64_t edge, int64_t k,
               unsigned char *block);

#endif
