/* lockstep/ops/gemm.h - the matrix product in ordered tiles. Included by lockstep/ops.h.
 *
 *   C = round( T_0 + bias )                              leaves == 1, LS_ONTO_NOTHING
 *   C = (T_0 + T_1) + ... + T_(leaves - 1)               LS_ONTO_NOTHING
 *   C = ((C + T_0) + T_1) + ... + T_(leaves - 1)         LS_ONTO_SUM
 *   C = its own chain, on with P_0                       LS_ONTO_CHAIN (leaves == tiles == 1)
 *
 * with P_r the product over the r-th tile of the contraction, computed from zero in float32, and
 * T_l the binary tree over the tiles of leaf l: tiles / leaves of them, side by side.
 * The contraction (k) is the concatenation of `sections` (at most 3: one for a plain product; q, k
 * and v rows, or gate and up rows, for a stacked weight). Each section is cut into `tiles` equal
 * parts; tile r is part r of section 0, then part r of section 1, ... The tree makes a
 * tensor-parallel rank that holds whole tiles hold a whole subtree (S2). The chain over leaves is
 * S3's: with LS_ONTO_SUM it goes on from what earlier micro-batches left, so one C serves a batch
 * of any number of leaves, and with LS_ONTO_CHAIN a leaf lasts several micro-batches.
 *
 * Inside a tile an element is one chain of fused multiply-adds, ascending in k; with bf16 operands
 * in LS_ARITHMETIC_BF16_PAIRS two chains, of even and of odd k, which are added after each 32 (so
 * that with LS_ONTO_CHAIN the bits are those of one product where k is a multiple of 32). An
 * element's bits therefore depend on the arithmetic (enum ls_arithmetic), not on m, n, leading
 * dimensions, where a tile lies, nor on the number of threads. test/ops/test_gemm.c and test_isa.c
 * prove this on the shapes in use. bf16 operands are multiplied exactly; with them, a tile's
 * subnormal operands and sums count as zero, as the instructions of AVX512_BF16 and AMX have it.
 * Sums of tiles and leaves, with C and with the bias keep subnormal numbers: ranks add them too.
 *
 * A large C is written past the caches if that is possible: LS_ONTO_NOTHING, C at a multiple
 * of 64 bytes, ldc a multiple of a cache line. */
#ifndef LOCKSTEP_OPS_GEMM_H
#define LOCKSTEP_OPS_GEMM_H

enum { LS_GEMM_SECTIONS_MAX = 3, LS_GEMM_TILES_MAX = 1 << 16 };

/* What a sum is added to. */
enum ls_onto {
    LS_ONTO_NOTHING, /* it is written */
    LS_ONTO_SUM,     /* leaves that are complete: the next ones are added, each once it is whole */
    LS_ONTO_CHAIN    /* the first part of a leaf: this is its next part */
};

struct ls_gemm {
    int64_t m, n;
    int sections;                    /* >= 1 */
    int64_t k[LS_GEMM_SECTIONS_MAX]; /* length of each section; tiles divides each */
    int64_t tiles;                   /* 1 to LS_GEMM_TILES_MAX */
    int64_t leaves;                  /* divides tiles; 0 means 1 */
    bool a_transposed;               /* false: A is [m, k], true: A is stored [k, m] */
    bool b_transposed;               /* false: B is [k, n], true: B is stored [n, k] */
    enum ls_dtype in, out;           /* of A and B; of C: any that ls_is_act admits */
    const void *a, *b;               /* k runs over all sections, one after the other */
    void *c;                         /* [m, n] */
    int64_t lda, ldb, ldc;           /* elements */
    const float *bias;               /* [n] or NULL; only with LS_ONTO_NOTHING */
    enum ls_onto onto;               /* any but LS_ONTO_NOTHING needs out == LS_F32 */
    /* Not NULL: B is int8, and these are its scales [n, tiles] (lockstep/ops/int8.h). in is A's
     * type alone; one section, A [m, k], B [n, k], LS_ONTO_NOTHING. */
    const float *b_scales;
    bool a_kept; /* then: A is not made int8 */
    /* B's rows, as they are stored, are in blocks (lockstep/ops/blocks.h), ldb values each: a
     * multiple of LS_BLOCK_VALUES. in is what they are rounded to. Without b_scales. */
    enum ls_blocks b_blocks;
};

/* Local. Runs the product on ops->threads threads. k == 0 or m == 0 or n == 0 is allowed. */
int ls_gemm_run(struct ls_ops *ops, const struct ls_gemm *gemm, struct ls_error *error);

/* Local. The machine's own limit, as a yardstick: the rate, in floating-point operations a second,
 * of one large square product by oneDNN with its best instruction set on ops->threads threads, the
 * best of several runs. bf16 on a machine without instructions for it is the better of its rate and
 * float32's; fp16 is float32's. Takes 0.2 s or more, tells a meter, and has three matrices. */
int ls_gemm_peak(struct ls_ops *ops, enum ls_dtype dtype, double *flops_per_s,
                 struct ls_error *error);

/* Local. What it takes meanwhile, for its operands and their product. */
size_t ls_gemm_peak_bytes(enum ls_dtype dtype);
/* Local. "oneDNN 2.6.3": the library behind ls_gemm_peak. No result depends on it. */
const char *ls_gemm_library(void);

#endif
