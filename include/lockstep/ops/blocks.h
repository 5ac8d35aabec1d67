/* lockstep/ops/blocks.h - weights in blocks of few bits, as QLoRA keeps a frozen model. Included by
 * lockstep/ops.h.
 *
 * A row of a matrix is cut into blocks of 64 values. A block has the largest absolute value of its
 * weights, absmax, in float32, and a code for each of them:
 *
 *   w = map[code] * absmax        one product, rounded to float32
 *
 *   LS_BLOCKS_INT8   code is an int8, -127 to 127, map[code] = code / 127: 68 bytes a block
 *   LS_BLOCKS_NF4    code has 4 bits, map is NormalFloat4 (Dettmers et al. 2023, "QLoRA", arXiv
 *                    2305.14314, appendix E), that of bitsandbytes: 36 bytes a block
 *
 * Blocks of a row lie one behind the other: absmax in the machine's order, then the codes. Those of
 * NF4 are as in bitsandbytes: two a byte, the first one in the high bits.
 *
 * Quantisation takes the nearest value of the map for w / absmax (NF4: of two that are equally near
 * the lower one; int8: (w / absmax) * 127 rounded, halves to even). A block whose absmax is below
 * 2^-100 becomes zeros. The largest weight gets 1 or -1, so values that came from such a block give
 * the same block again: quantising them is exact. So are values of an NF4 block whose absmax is
 * negative, as bitsandbytes' nested ones may be: they give that block.
 *
 * A product takes B in blocks (ls_gemm.b_blocks): each value is rounded to the type of A when B is
 * read, so the bits are those of the product with a matrix of these values. */
#ifndef LOCKSTEP_OPS_BLOCKS_H
#define LOCKSTEP_OPS_BLOCKS_H

enum ls_blocks { LS_BLOCKS_NONE, LS_BLOCKS_INT8, LS_BLOCKS_NF4 };
enum { LS_BLOCK_VALUES = 64 };

/* Local. Bytes of a block; of a row of so many values, a multiple of LS_BLOCK_VALUES. */
size_t ls_block_bytes(enum ls_blocks blocks);
size_t ls_blocks_row_bytes(enum ls_blocks blocks, int64_t cols);

/* Local. The map of 16 values of NF4, ascending: -1 to 1. */
const float *ls_nf4_map(void);

/* Local. count values, a multiple of LS_BLOCK_VALUES, to blocks. LS_EDATA with the index where one
 * is not finite; to is then unspecified. */
int ls_blocks_quantize(enum ls_blocks blocks, int64_t count, const float *values, void *to,
                       struct ls_error *error);
/* Local. Values [first, first + count) of a run of blocks, as float32. */
void ls_blocks_values(enum ls_blocks blocks, const void *from, int64_t first, int64_t count,
                      float *values);

#endif
