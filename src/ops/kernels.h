/* ops/kernels.h - the row and range functions behind the ops, one table per instruction set.
 *
 * src/ops/kern/X.c is plain C, compiled once per instruction set with -DLS_KERNEL_ISA=plain, avx2
 * or avx512, and defines `const struct X_kernels KERNEL(X_kernels)`. The ls_ functions in
 * src/ops/X.c cut their range among threads and call the table. All tables give the same bits: a
 * kernel uses explicit __builtin_fmaf or separate multiplications and additions, sums run in a
 * fixed number of interleaved lanes whatever the vector width, and the build has -ffp-contract=off.
 *
 * Ranges are [begin, end). Pointers are to element 0 of the whole op, unless said. */
#ifndef OPS_KERNELS_H
#define OPS_KERNELS_H

#include <lockstep/ops.h>

#define KERNEL_JOIN_(name, isa) name##_##isa
#define KERNEL_JOIN(name, isa)  KERNEL_JOIN_(name, isa)
#define KERNEL(name)            KERNEL_JOIN(name, LS_KERNEL_ISA)

/* Pointers are to the range's first element. */
struct pointwise_kernels {
    void (*gelu_forward)(enum ls_gelu kind, enum ls_dtype act, int64_t count, const void *x,
                         void *y);
    void (*gelu_backward)(enum ls_gelu kind, enum ls_dtype act, int64_t count, const void *x,
                          const void *dy, void *dx);
    void (*glu_forward)(enum ls_glu kind, enum ls_dtype act, int64_t rows, int64_t width,
                        const void *gate_up, void *y);
    void (*glu_backward)(enum ls_glu kind, enum ls_dtype act, int64_t rows, int64_t width,
                         const void *gate_up, const void *dy, void *d_gate_up);
    void (*softcap)(enum ls_dtype act, int64_t count, float cap, const void *x, void *y);
    void (*scale)(enum ls_dtype act, int64_t count, float factor, const void *x, void *y);
    void (*add)(enum ls_dtype act, int64_t count, const void *x, const void *z, void *y);
    void (*bias_round)(enum ls_dtype act, int64_t rows, int64_t n, const float *x,
                       const float *bias, void *y);
    void (*cast_to_half)(enum ls_dtype half, int64_t count, const float *x, ls_half *y);
    void (*cast_from_half)(enum ls_dtype half, int64_t count, const ls_half *x, float *y);
    void (*tree_add)(int64_t count, float *into, const float *from);
    /* Elements, then rows, [begin, end) of the whole op. */
    void (*rank_sum)(const struct ls_rank_sum *sum, int64_t begin, int64_t end);
    void (*dropout)(enum ls_dtype act, const struct ls_dropout *dropout, int64_t begin, int64_t end,
                    const void *x, void *y);
    void (*rope)(enum ls_dtype act, const struct ls_rope *rope, bool backward, int64_t begin,
                 int64_t end, void *x);
};

struct norm_kernels {
    void (*layernorm_forward)(const struct ls_norm *norm, const void *x, const void *residual,
                              void *sum, void *y, int64_t begin, int64_t end);
    void (*rmsnorm_forward)(const struct ls_norm *norm, const void *x, const void *residual,
                            void *sum, void *y, int64_t begin, int64_t end);
    void (*layernorm_backward_input)(const struct ls_norm *norm, const void *h, const void *dy,
                                     const void *d_residual, void *dh, int64_t begin, int64_t end);
    void (*rmsnorm_backward_input)(const struct ls_norm *norm, const void *h, const void *dy,
                                   const void *d_residual, void *dh, int64_t begin, int64_t end);
    /* dy NULL: of the forward. */
    void (*cut_sum)(const struct ls_norm *norm, const struct ls_norm_cut *cut, const void *h,
                    const void *dy, float *sums, int64_t begin, int64_t end);
    void (*cut_finish)(const struct ls_norm *norm, const struct ls_norm_cut *cut, const void *h,
                       const void *dy, const float *sums, void *to, int64_t begin, int64_t end);
};

/* Column sums: ranges are columns; each column is summed by one call, in ls_token_sum's order. */
struct sum_kernels {
    /* norm->mean NULL: RMSNorm. d_bias may be NULL. */
    void (*norm_weight)(const struct ls_norm *norm, const void *h, const void *dy,
                        const struct ls_token_sum *sum, float *d_weight, float *d_bias,
                        int64_t begin, int64_t end);
    void (*bias)(enum ls_dtype act, int64_t ld, const void *dy, const struct ls_token_sum *sum,
                 float *d_bias, int64_t begin, int64_t end);
};

struct embedding_kernels {
    /* Rows [begin, end). */
    void (*forward)(const struct ls_embedding *e, void *y, int64_t begin, int64_t end);
    void (*gather)(const struct ls_embedding *e, float *y, int64_t begin, int64_t end);
    void (*finish)(const struct ls_embedding *e, const float *x, void *y, int64_t begin,
                   int64_t end);
    /* Vocabulary rows [begin, end); scratch is sorted: order[start[v]] .. order[start[v + 1] - 1]
     * are the tokens with the id of row v, ascending. */
    void (*backward)(const struct ls_embedding *e, const void *dy, const struct ls_token_sum *sum,
                     struct ls_embedding_scratch scratch, float *d_table, int64_t begin,
                     int64_t end);
    /* Tokens row_first + [begin, end), to rows [begin, end) of d_position. */
    void (*position_backward)(enum ls_dtype act, int64_t channels, const void *dy,
                              const struct ls_token_sum *sum, int64_t row_first, float *d_position,
                              int64_t begin, int64_t end);
};

/* Of each row, over all ranks. */
struct loss_rows {
    const float *max, *sum, *target_logit;
};
struct loss_kernels {
    /* Rows [begin, end). */
    void (*cross_entropy)(const struct ls_cross_entropy *op, void *logits, const int32_t *target,
                          float *loss, int64_t begin, int64_t end);
    void (*max)(const struct ls_cross_entropy *op, const void *logits, float *max, int64_t begin,
                int64_t end);
    void (*sum)(const struct ls_cross_entropy *op, const void *logits, const int32_t *target,
                const float *max, float *sum, float *target_logit, int64_t begin, int64_t end);
    void (*finish)(const struct ls_cross_entropy *op, void *logits, const int32_t *target,
                   const struct loss_rows *rows, float *loss, int64_t begin, int64_t end);
    void (*entropy_sums)(const struct ls_cross_entropy *op, const void *logits, const float *max,
                         float *sum, float *product, int64_t begin, int64_t end);
    void (*entropy)(const float *sum, const float *product, float *entropy, int64_t begin,
                    int64_t end);
};

/* Elements [begin, end) of the update; moments are of update->moment_type. */
struct update_kernels {
    /* step_size = lr / (1 - beta1^step), inverse_root = 1 / sqrt(1 - beta2^step). */
    void (*adamw)(const struct ls_update *update, const struct ls_adamw *adamw, float step_size,
                  float inverse_root, void *m, void *v, int64_t begin, int64_t end);
    void (*sgd)(const struct ls_update *update, const struct ls_sgd *sgd, void *buffer,
                int64_t begin, int64_t end);
    void (*lion)(const struct ls_update *update, const struct ls_lion *lion, void *m, int64_t begin,
                 int64_t end);
    /* Squares of elements [begin, end), exactly. */
    void (*squares)(const float *gradient, const float *second, int64_t begin, int64_t end,
                    struct ls_exact_sum *sum);
};

/* Elements [begin, end). */
struct delta_kernels {
    /* The largest magnitude of a difference, as bits: NaN is above infinity. */
    uint32_t (*amax)(const float *global, const float *local, int64_t begin, int64_t end);
    void (*encode)(enum ls_delta_type type, const float *global, const float *local, float scale,
                   void *out, int64_t begin, int64_t end);
    void (*sum)(enum ls_delta_type type, const void *parts, int64_t stride, int parts_count,
                void *out, int64_t begin, int64_t end);
    void (*decode)(enum ls_delta_type type, const void *sums, float scale, float *out,
                   int64_t begin, int64_t end);
    void (*mix)(const float *global, float *local, float share, int64_t begin, int64_t end);
    void (*compensate)(float *gradient, const float *now, const float *then, float lambda,
                       int64_t begin, int64_t end);
};

struct muon_kernels {
    /* Elements [begin, end) of the update. */
    void (*momentum)(const struct ls_update *update, const struct ls_muon_momentum *muon, void *m,
                     float *direction, int64_t begin, int64_t end);
    void (*step)(const struct ls_update *update, float scale, const float *orthogonal,
                 int64_t begin, int64_t end);
    void (*scale)(float factor, float *x, int64_t begin, int64_t end);
    /* Rows [begin, end) of n: square = a I + b gram + c square, up to the diagonal. */
    void (*polynomial)(int64_t n, const float *gram, float *square, int64_t begin, int64_t end);
};

/* sums[r * INT8_EDGE + c] = the exact sum of A's row r times B's row c, of [rows, k] and
 * [INT8_EDGE, k]; rows is at most INT8_EDGE. */
enum { INT8_EDGE = 4 };
typedef void int8_dots_fn(const int8_t *a, int64_t lda, int64_t rows, const int8_t *b, int64_t ldb,
                          int64_t k, int32_t sums[INT8_EDGE * INT8_EDGE]);
struct int8_kernels {
    /* q[n] of elements from, from + 1, ... of x; returns their scale: NaN where one is not finite.
     */
    float (*quantize)(enum ls_dtype act, int64_t n, const void *x, int64_t from, int8_t *q);
    int32_t (*sum)(int64_t n, const int8_t *q);
    int8_dots_fn *dots;
};
#if defined(__x86_64__)
bool int8_vnni_is_there(void);
int8_dots_fn int8_vnni_dots;
#endif

struct gemm_few;
struct few_kernels {
    /* sums [rows, 32]: on by k of the tile, before scales. */
    void (*sums)(const struct gemm_few *few, float *sums);
};

struct blocks_kernels {
    /* Values [first, first + count) of a row in blocks, rounded to type. */
    void (*read)(enum ls_blocks blocks, enum ls_dtype type, const void *row, int64_t first,
                 int64_t count, void *to);
};

struct ls_kernels {
    const struct pointwise_kernels *pointwise;
    const struct norm_kernels *norm;
    const struct sum_kernels *sum;
    const struct embedding_kernels *embedding;
    const struct loss_kernels *loss;
    const struct update_kernels *update;
    const struct delta_kernels *delta;
    const struct muon_kernels *muon;
    const struct int8_kernels *int8;
    const struct few_kernels *few;
    const struct blocks_kernels *blocks;
};

/* plain for LS_ISA_PLAIN, avx2 for LS_ISA_AVX2, avx512 for that and above; never NULL for an
 * instruction set that this build offers. */
const struct ls_kernels *kernels_of(enum ls_isa isa);

#endif
