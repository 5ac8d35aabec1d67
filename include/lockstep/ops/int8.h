/* lockstep/ops/int8.h - products with weights of int8, for inference. Included by lockstep/ops.h.
 *
 * A weight matrix [n, k] is kept as int8, symmetric about zero (Jacob et al. 2018; Dettmers et al.
 * 2022, "LLM.int8()"), with one scale for each of its rows (output channels) and each tile of the
 * contraction:
 *
 *   scale[j, r] = max over tile r of |w[j, :]| / 127,    q[j, i] = w[j, i] / scale[j, r], rounded
 *
 * A product takes it where ls_gemm.b_scales is set (lockstep/ops/gemm.h):
 *
 *   P_r[i, j] = float(sum over tile r of qa[i, :] q[j, :]) * (a_scale[i, r] * scale[j, r])
 *
 * with the row a[i, :] made int8 in the same way, just before. The sum is exact in int32, so that
 * its bits depend on nothing; tiles are added by the tree, as those of any product (S2), so a
 * tensor-parallel rank that holds whole tiles gives the bits of one rank.
 *
 * With ls_gemm.a_kept the rows of A stay what they are (weights alone are int8):
 *
 *   P_r[i, j] = (product over tile r of a[i, :] and q[j, :]) * scale[j, r]
 *
 * The product is that of lockstep/ops/gemm.h in the arithmetic of struct ls_ops, as if q were a
 * matrix of A's type, which holds each int8 exactly. So a row has the same bits alone and among
 * others, as every product's has.
 *
 * Halves round to even. A row whose largest value is below 2^-100 counts as zero. */
#ifndef LOCKSTEP_OPS_INT8_H
#define LOCKSTEP_OPS_INT8_H

enum { LS_INT8_MOST = 127, LS_INT8_K_MAX = 1 << 17 /* of a tile: 127 x 127 x k fits int32 */ };

/* Local. values [rows, cols] int8 and scales [rows, tiles] of weights [rows, cols]; tiles divides
 * cols. LS_EDATA with the row where a weight is not finite. */
int ls_int8_quantize(struct ls_ops *ops, int64_t rows, int64_t cols, int64_t tiles,
                     const float *weights, int8_t *values, float *scales, struct ls_error *error);

#endif
