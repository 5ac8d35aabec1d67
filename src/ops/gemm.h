/* ops/gemm.h - what the files of the matrix product share. */
#ifndef OPS_GEMM_H
#define OPS_GEMM_H

#include <lockstep/ops.h>

/* Tiles are added as they come, by a binary counter: when tile r is complete, as many finished
 * subtrees as r has low one bits are merged with it, the latest first. That is the tree of
 * ls_tree_split. More tiles than this are refused: no model cuts a contraction so fine. */
enum { GEMM_TILES_MAX = 1 << 16, GEMM_LEVELS_MAX = 16 };
/* Subtrees waiting when tile r starts. */
static inline int gemm_waiting(int64_t r)
{
    return __builtin_popcountll((uint64_t)r);
}
/* Subtrees that tile r merges with when it is complete; all that wait when it is the last. */
static inline int gemm_merges(int64_t r, int64_t tiles)
{
    return r == tiles - 1 ? gemm_waiting(r) : __builtin_ctzll(~(uint64_t)r);
}
/* The most subtrees that wait at one time. */
static inline int gemm_levels(int64_t tiles)
{
    int levels = 0;
    for (int64_t r = 0; r < tiles; r++)
        if (levels < gemm_waiting(r))
            levels = gemm_waiting(r);
    return levels;
}

/* Sum of the sections' lengths. */
static inline int64_t gemm_k(const struct ls_gemm *gemm)
{
    int64_t k = 0;
    for (int s = 0; s < gemm->sections; s++)
        k += gemm->k[s];
    return k;
}

/* The paths of ls_gemm_run. All are given a valid product with m, n, k > 0. */
int gemm_run_amx(struct ls_ops *ops, const struct ls_gemm *gemm);
int gemm_run_library(struct ls_ops *ops, const struct ls_gemm *gemm, struct ls_error *error);

/* Library primitives that were made already; used by one caller at a time, as struct ls_ops. */
struct ls_gemm_cache *gemm_cache_new(int threads);
void gemm_cache_free(struct ls_gemm_cache *cache);

/* Plain C: rows [row, row + rows) and columns [column, column + columns) of the product, at most
 * GEMM_PLAIN_ROWS x GEMM_PLAIN_COLUMNS of them. */
enum { GEMM_PLAIN_ROWS = 16, GEMM_PLAIN_COLUMNS = 64 };
void gemm_plain_block(const struct ls_gemm *gemm, int64_t row, int64_t rows, int64_t column,
                      int64_t columns);

#endif
