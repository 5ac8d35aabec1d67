/* lockstep/ops/delta.h - what workers that train apart for a while send each other: outer deltas,
 * their sums, and the mix of what came back. Included by lockstep/ops.h.
 *
 * DiLoCo (Douillard et al. 2023, arXiv 2311.08105): a worker's delta is global - local, what its
 * inner steps took away from the parameters that all workers began with, so that the mean of the
 * deltas is a gradient to the outer optimizer. In one outer step of a tensor:
 *
 *   ls_delta_amax(...)     int8 only: the largest of all workers gives scale = amax / 127
 *   ls_delta_encode(...)   each worker: the delta as it is sent
 *   ls_delta_sum(...)      the sum over workers, in their order, as it is sent back
 *   ls_delta_decode(...)   the sum in float32; ls_update's gradient_scale makes it the mean
 *   ls_mix(...)            streaming DiLoCo (arXiv 2501.18512): the worker takes a share of its own
 *
 * All elementwise: any cut into calls, any number of threads and every instruction set give the
 * same bits, and ls_delta_sum alone adds what several workers hold, by their index. A NaN stays
 * one; which one is not said. Buffers of different arguments do not overlap. */
#ifndef LOCKSTEP_OPS_DELTA_H
#define LOCKSTEP_OPS_DELTA_H

/* How a delta is sent. LS_DELTA_INT8: as q in [-127, 127], which means q * scale; all workers share
 * the scale of a tensor, so that sums of q are whole numbers, and exact. */
enum ls_delta_type { LS_DELTA_F32, LS_DELTA_BF16, LS_DELTA_INT8 };
/* Sums of int8 are int16: so many workers cannot leave its range, 258 * 127 < 2^15. */
enum { LS_DELTA_INT8_WORKERS_MAX = 258 };

/* Type of one element as a worker sends it (F32, BF16, I8), and of a sum as it is sent back (F32,
 * BF16, I16); and their bytes: 4, 2, 1 and 4, 2, 2. */
enum ls_dtype ls_delta_dtype(enum ls_delta_type type);
enum ls_dtype ls_delta_sum_dtype(enum ls_delta_type type);
static inline size_t ls_delta_bytes(enum ls_delta_type type)
{
    return ls_dtype_bytes(ls_delta_dtype(type));
}
static inline size_t ls_delta_sum_bytes(enum ls_delta_type type)
{
    return ls_dtype_bytes(ls_delta_sum_dtype(type));
}

/* *amax = max(*amax, max over i of |global[i] - local[i]|). *amax was 0 or more, or NaN; a NaN of
 * either wins, as 7fc00000, like LS_RANK_SUM_MAX, by which workers take the largest of theirs. */
void ls_delta_amax(struct ls_ops *ops, const float *global, const float *local, int64_t count,
                   float *amax);

/* out[i], of ls_delta_dtype(type) = d, the difference global[i] - local[i] in float32, as it is; to
 * bf16 rounded to nearest even; or to int8: d / scale rounded to the nearest whole number, halves
 * to even, and at most 127 of either sign. global, local [count]. scale: LS_DELTA_INT8 only, 0 or
 * more. All are 0 if scale is 0; so is an element whose d / scale is NaN. It is not lost: where
 * any d is not finite, neither is amax, nor scale, and decoding gives NaN. */
void ls_delta_encode(struct ls_ops *ops, enum ls_delta_type type, const float *global,
                     const float *local, int64_t count, float scale, void *out);

/* out[i], of ls_delta_sum_dtype(type) = parts[0][i] + parts[1][i] + ... + parts[n - 1][i], where
 * part p is [count] of ls_delta_dtype(type) and begins p * stride elements behind parts. One chain
 * in the order of p, in float32, rounded after each addition; of bf16 rounded to bf16 once, at the
 * end. Of int8 in int16, exactly; n is at most LS_DELTA_INT8_WORKERS_MAX there. n >= 1,
 * stride >= count. */
void ls_delta_sum(struct ls_ops *ops, enum ls_delta_type type, const void *parts, int64_t stride,
                  int n, int64_t count, void *out);

/* out[i] = sum[i], [count] of ls_delta_sum_dtype(type), in float32; of int8 times scale, rounded
 * once (scale: LS_DELTA_INT8 only). */
void ls_delta_decode(struct ls_ops *ops, enum ls_delta_type type, const void *sum, int64_t count,
                     float scale, float *out);

/* local[i] keeps a share of itself, in [0, 1]: torch.lerp(global, local, share), bit for bit what
 * PyTorch's vector code on CPUs gives. With d = local - global, rounded, one fused multiply-add:
 *   share < 0.5     local = global + share * d
 *   otherwise       local = local + (share - 1) * d
 * share 0 copies global, share 1 leaves local as it is, whatever the other one is. global, local
 * [count]. */
void ls_mix(struct ls_ops *ops, const float *global, float *local, int64_t count, float share);

/* gradient += lambda * gradient * gradient * (now - then): the gradient of parameters `then`,
 * corrected towards that of parameters `now` by the diagonal of the outer product of gradients in
 * the place of the Hessian: DC-ASGD (Zheng et al. 2017, arXiv 1609.08326, eq. 10). As
 * g + ((lambda * g) * g) * (now - then), rounded after each operation; lambda 0 leaves gradient as
 * it is. All [count]. */
void ls_compensate(struct ls_ops *ops, float *gradient, const float *now, const float *then,
                   int64_t count, float lambda);

#endif
