/* ops/gemm_kernel.h - what the files of the matrix product share.
 *
 * C is computed in blocks of 32 x 32, the contraction in steps of 32 (gemm_blocked.c has the
 * loops). A kernel multiplies one packed panel of A with one of B. For the arithmetic fma there is
 * one on each vector width (kern/gemm_kernel.c) and one for bf16 on AVX512_BF16 (gemm_bf16.c); for
 * bf16_pairs one on each vector width too, and one on AMX (gemm_amx.c). All of them pack a B of
 * int8 as well, in the type that they multiply, which holds it exactly. For int8 on both sides
 * there is one on AVX512_VNNI (int8_vnni.c), whose chains are of int32. */
#ifndef OPS_GEMM_KERNEL_H
#define OPS_GEMM_KERNEL_H

#include <lockstep/ops.h>

enum { GEMM_EDGE = 32, GEMM_BLOCK_FLOATS = GEMM_EDGE * GEMM_EDGE };

/* How an operand lies in memory: is it B, and do neighbours lie along k (A stored [m, k], B stored
 * [n, k])? */
struct gemm_form {
    bool is_b, k_contiguous;
    enum ls_dtype dtype;
};

/* What the caller will read soon: the kernel fetches these cache lines while it works. */
struct gemm_ahead {
    const unsigned char *lines;
    int64_t count;
};
/* Fetches the share of turn `turn` out of `turns`. */
static inline void gemm_fetch(struct gemm_ahead ahead, int64_t turns, int64_t turn)
{
    int64_t share = (ahead.count + turns - 1) / turns;
    for (int64_t i = turn * share; i < (turn + 1) * share && i < ahead.count; i++)
        __builtin_prefetch(ahead.lines + i * 64, 0, 2);
}

struct gemm_kernel {
    int64_t block_bytes; /* of a packed block: 32 rows of A or columns of B by one step */
    int64_t chunk_bytes; /* of a panel of B, at most, so that it stays in L1 */
    /* What a thread does before its first and after its last product; NULL for nothing. */
    void (*begin)(void);
    void (*end)(void);
    /* Packs the block whose first element is x; ld is the distance between lines. It has `edge`
     * rows or columns and k of the contraction, each 1 to 32; the rest of the block is zero. */
    void (*pack)(struct gemm_form form, const void *x, int64_t ld, int64_t edge, int64_t k,
                 unsigned char *block);
    /* to [32, 32] = (from, or zero where it is NULL) + the product of `steps` packed blocks each,
     * one chain an element, steps ascending; inside a step the order is the kernel's own and fixed.
     * Only the first `rows` rows are wanted. to may be from. */
    void (*product)(const unsigned char *a, const unsigned char *b, int64_t rows, int64_t steps,
                    const float *from, float *to, struct gemm_ahead ahead);
};

/* Rows of A that were made int8, [m, tiles] each: scales, and the sums of the int8. */
struct gemm_int8_rows {
    const float *scales;
    const int32_t *sums;
};
/* B goes into the kernel with so much added to each element, so that it has no sign. */
enum { GEMM_INT8_ADDED = 128 };

/* What happens to a block's sums; by vector width. chain [32, 32] is the latest tile's sum, and top
 * is past the latest of the sums that wait, [32, 32] each. */
struct gemm_finish {
    /* Weights of int8: a tile's sums [32, 32] at (row, column) of C become what the tree adds
     * (lockstep/ops/int8.h). Where A is int8 too they are int32, with rows; else rows is NULL. */
    void (*scale)(const struct ls_gemm *gemm, const struct gemm_int8_rows *rows, int64_t row,
                  int64_t column, int64_t tile, float *sums);
    /* The earliest of the latest `merges` (>= 1) becomes the sum of all of them and the chain. */
    void (*merge)(const float *chain, float *top, int merges);
    /* C's block at (row, column) from that sum (merges >= 0); with `stream` past the caches, for a
     * C whose rows all start at a cache line. */
    void (*write)(const struct ls_gemm *gemm, int64_t row, int64_t column, const float *chain,
                  const float *top, int merges, bool stream);
};

extern const struct gemm_kernel gemm_kernel_plain, gemm_kernel_pairs_plain;
extern const struct gemm_finish gemm_finish_plain;
#if defined(__x86_64__)
extern const struct gemm_kernel gemm_kernel_avx2, gemm_kernel_avx512;
extern const struct gemm_kernel gemm_kernel_pairs_avx2, gemm_kernel_pairs_avx512;
extern const struct gemm_finish gemm_finish_avx2, gemm_finish_avx512;
extern const struct gemm_kernel gemm_kernel_bf16, gemm_kernel_amx, gemm_kernel_int8;
#endif

const struct gemm_finish *gemm_finish_of(const struct ls_ops *ops);

/* A few rows of A against at most 32 columns of B, stored [n, k]: a tile of k, or whole steps of
 * one. Behind the tile A has zeros to a whole step. */
enum { GEMM_FEW_ROWS = 16 };
struct gemm_few {
    int64_t rows, columns, k;
    const void *a; /* float32; for gemm_few_bf16 pairs of bf16, the second of each first */
    const void *b;
    enum ls_dtype type; /* of B */
    int64_t lda, ldb;   /* of A in words of 4 bytes */
    int64_t skip;       /* elements between a column's k and what is read of it, or in place of it,
                         * next: 0 if that is its next tile */
    bool pairs;         /* the arithmetic */
};
/* Fetches what 32 columns, `ld` bytes apart, are read of a few lines after the line at b, which is
 * at `at` of k and has so many elements. */
static inline void gemm_few_fetch(const struct gemm_few *few, int64_t at, int64_t line,
                                  const void *b, int64_t ld)
{
    enum { AHEAD = 4, LINE_BYTES = 64 };
    int64_t skip = at + AHEAD * line < few->k ? 0 : few->skip;
    const char *from = (const char *)b + AHEAD * LINE_BYTES + skip * LINE_BYTES / line;
    for (int64_t c = 0; c < GEMM_EDGE; c++)
        __builtin_prefetch(from + c * ld, 0, 2);
}
#if defined(__x86_64__)
/* sums [rows, 32] += those of bf16 in one chain (LS_ARITHMETIC_FMA) by VDPBF16PS. */
void gemm_few_bf16(const struct gemm_few *few, float *sums);
#endif
/* The product of a few rows without packing, with the same bits, if that is the fast way; false,
 * and nothing done, if not. */
bool gemm_run_few(const struct ls_ops *ops, const struct ls_gemm *gemm);

/* A valid product with m, n, k > 0. Where A is int8 (gemm->in is LS_I8), with its rows; NULL
 * otherwise. */
void gemm_run_blocked(const struct ls_ops *ops, const struct ls_gemm *gemm,
                      const struct gemm_int8_rows *int8);
/* The same with weights of int8, which gemm_int8_check has admitted. */
int gemm_int8_check(const struct ls_ops *ops, const struct ls_gemm *gemm, struct ls_error *error);
void gemm_run_int8(struct ls_ops *ops, const struct ls_gemm *gemm);

/* Tiles are added as they come, on a stack of partial sums. At its bottom is the sum of the leaves
 * so far (of C's own first, where a chain of several leaves goes on from it); above it, while a
 * leaf grows, a binary counter of its subtrees: when the leaf's tile i is complete, as many as i
 * has low one bits are merged with it, the latest first, which is the tree of ls_tree_split. More
 * tiles than this are refused: no model cuts a contraction so fine. */
enum { GEMM_LEVELS_MAX = 18 }; /* of LS_GEMM_TILES_MAX */
static inline int64_t gemm_leaf_tiles(const struct ls_gemm *gemm)
{
    return gemm->tiles / (gemm->leaves ? gemm->leaves : 1);
}
/* Whether C is the first thing on the stack; else it is added to (or not) when it is written. */
static inline bool gemm_starts_from_c(const struct ls_gemm *gemm)
{
    return gemm->onto == LS_ONTO_SUM && gemm->leaves > 1;
}
static inline bool gemm_adds_to_c(const struct ls_gemm *gemm)
{
    return gemm->onto == LS_ONTO_SUM && gemm->leaves <= 1;
}
/* Sums on the stack when tile r starts. */
static inline int gemm_waiting(const struct ls_gemm *gemm, int64_t r)
{
    int64_t leaf = gemm_leaf_tiles(gemm);
    return (r >= leaf || gemm_starts_from_c(gemm)) + __builtin_popcountll((uint64_t)(r % leaf));
}
/* Those that tile r merges with when it is complete; all where it is the last of its leaf. */
static inline int gemm_merges(const struct ls_gemm *gemm, int64_t r)
{
    int64_t leaf = gemm_leaf_tiles(gemm), i = r % leaf;
    return i == leaf - 1 ? gemm_waiting(gemm, r) : __builtin_ctzll(~(uint64_t)i);
}

/* Sum of the sections' lengths. */
static inline int64_t gemm_k(const struct ls_gemm *gemm)
{
    int64_t k = 0;
    for (int s = 0; s < gemm->sections; s++)
        k += gemm->k[s];
    return k;
}

#endif
