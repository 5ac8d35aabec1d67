/* lockstep/parallel/tensor.h - tensor and sequence parallel: rows of a matrix among tp ranks.
 *
 * A column-parallel product needs all rows of its input and makes a slice of the columns; the
 * row-parallel product behind it makes float32 partial sums of all rows, one subtree of the tile
 * tree a rank (law of sums, S2). Adding them over ranks is the tree's top: a reduce-scatter by
 * rows, after which each rank has its share of the rows whole. Without sequence parallel the shares
 * are gathered again at once; with it norms, dropout and the residual stream stay on shares, and
 * rows are gathered in front of the next column-parallel product (Korthikanti et al. 2022). The
 * bits are the same.
 */
#ifndef LOCKSTEP_PARALLEL_TENSOR_H
#define LOCKSTEP_PARALLEL_TENSOR_H

#include <lockstep/comm.h>
#include <lockstep/ops.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ls_tp {
    struct ls_comm *comm; /* borrowed; its size and rank are tp's */
    int size, rank;
    bool sequence; /* the residual stream is cut by rows */
    int chunks;    /* parts a product is cut into so that one moves while the next is computed */
};

#ifdef __cplusplus
}
#endif
#endif
