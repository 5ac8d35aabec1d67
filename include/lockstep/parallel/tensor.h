/* lockstep/parallel/tensor.h - tensor and sequence parallel: rows of a matrix among tp ranks.
 *
 * A column-parallel product needs all rows of its input and makes a slice of the columns; the
 * row-parallel product behind it makes float32 partial sums of all rows, one subtree of the tile
 * tree a rank (law of sums, S2). Adding them over ranks is the tree's top: a reduce-scatter by
 * rows, after which each rank has its share of the rows whole. Without sequence parallel the shares
 * are gathered again at once; with it norms, dropout and the residual stream stay on shares, and
 * rows are gathered in front of the next column-parallel product (Korthikanti et al. 2022). The
 * bits are the same.
 *
 * Of M rows, rank t has share t: rows [t m, (t + 1) m) with m = ceil(M / tp); the last shares may
 * be shorter or empty. What moves is always whole shares, so buffers of all rows have room for
 * tp * m (ls_tp_room). What lies behind row M is not read. */
#ifndef LOCKSTEP_PARALLEL_TENSOR_H
#define LOCKSTEP_PARALLEL_TENSOR_H

#include <lockstep/comm.h>
#include <lockstep/ops.h>

LS_C_BEGIN

/* All parts of a product may be pending at once. */
enum { LS_TP_CHUNKS_MAX = LS_COMM_PENDING_MAX / 2 };

struct ls_tp {
    struct ls_comm *comm; /* borrowed; its size and rank are tp's; NULL for a group of one */
    int size, rank;
    bool sequence; /* the residual stream is cut by rows */
    int chunks;    /* parts a product is cut into so that one moves while the next is computed:
                    * 1 to LS_TP_CHUNKS_MAX, and fewer where they would be short */
    /* Ranks that hold query heads of the same key/value head, if there are more ranks than such
     * heads: neighbours. Borrowed; NULL for a group of one. */
    struct ls_comm *sharers_comm;
    int sharers;
};

/* Local. comm and sharers are borrowed, NULL for a group of one; rank r of comm shares with the
 * ranks of the same r / size of sharers. */
void ls_tp_init(struct ls_tp *tp, struct ls_comm *comm, struct ls_comm *sharers, bool sequence,
                int chunks);

/* Local. Ranks that hold each key/value head: 1 unless tp exceeds kv_heads. */
int ls_tp_sharers(int64_t tp, int64_t kv_heads);
/* Local. Rows that a buffer of all `rows` needs. */
int64_t ls_tp_room(const struct ls_tp *tp, int64_t rows);
/* Local. This rank's share: rows [*first, *first + *count). */
void ls_tp_share(const struct ls_tp *tp, int64_t rows, int64_t *first, int64_t *count);
/* Local. Whether shares of rows are whole subtrees of token sums over `tiles` tiles of `tokens`
 * tokens (sequences, or tiles of them): tp divides tiles, or each tile is cut into a power of two
 * of powers of two of LS_TOKEN_TILEs. */
bool ls_tp_admits(int64_t tp, int64_t tiles, int64_t tokens);

/* Buffers for the operations below, for products of up to `rows` rows and `width` columns. */
struct ls_tp_scratch {
    float *partial; /* [ls_tp_room(rows), width]: this rank's tiles of all rows */
    float *sum;     /* [ls_tp_room(rows) / size, width]: all tiles of its share */
    void *staging;  /* act [ls_tp_room(rows), width] where chunks > 1 and rows are gathered */
};

/* Collective. all [ls_tp_room(rows), width]: every rank's share. own [share, width] may lie in all
 * at its place; otherwise it is not written. With a request it is begun: ls_wait ends it. */
int ls_tp_gather(const struct ls_tp *tp, enum ls_dtype dtype, int64_t rows, int64_t width,
                 const void *own, void *all, struct ls_request *request, struct ls_error *error);
/* Collective. scratch->sum = this rank's share of the tree sum over ranks of scratch->partial. */
int ls_tp_reduce(const struct ls_tp *tp, int64_t rows, int64_t width,
                 const struct ls_tp_scratch *scratch, struct ls_error *error);
/* Collective. y = the rows of round(tree sum over ranks of scratch->partial): this rank's share
 * with sequence parallel, all rows (in ls_tp_room(rows)) without. */
int ls_tp_reduce_round(const struct ls_tp *tp, struct ls_ops *ops, enum ls_dtype act, int64_t rows,
                       int64_t width, const struct ls_tp_scratch *scratch, void *y,
                       struct ls_error *error);

/* Collective. The row-parallel product: gemm is what this rank would compute alone from its part of
 * the contraction, its tiles a subtree, out the activation type, ldc == n, not accumulating; bias
 * is added once, to the sum. gemm->c gets rows as ls_tp_reduce_round's y. In a group of one:
 * ls_gemm_run. */
int ls_tp_reduced_product(const struct ls_tp *tp, struct ls_ops *ops, const struct ls_gemm *gemm,
                          const struct ls_tp_scratch *scratch, struct ls_error *error);
/* Collective with sequence parallel: the column-parallel product of all gemm->m rows, of which
 * gemm->a (lda == k) holds this rank's share; they are gathered into all [ls_tp_room(m), k], where
 * the share may lie already. Without sequence parallel, and in a group of one: ls_gemm_run, and all
 * is not used. */
int ls_tp_gathered_product(const struct ls_tp *tp, struct ls_ops *ops, const struct ls_gemm *gemm,
                           void *all, const struct ls_tp_scratch *scratch, struct ls_error *error);

LS_C_END
#endif
