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

/* Elementwise ops of rows of one width, or of single elements: y of x and z. */
enum pointwise_op {
    GELU_FORWARD,
    GELU_BACKWARD, /* x, dy -> dx */
    GLU_FORWARD,
    GLU_BACKWARD, /* gate and up, dy -> their gradients */
    SOFTCAP,
    SCALE,
    ADD,
    BIAS_ROUND, /* z: one row, or NULL */
    CAST_TO_HALF,
    CAST_FROM_HALF,
    TREE_ADD, /* y += x */
    POINTWISE_OPS
};
struct pointwise {
    enum ls_dtype act;
    int form;     /* enum ls_gelu, enum ls_glu */
    float factor; /* the cap */
    int64_t rows, width;
    const void *x, *z;
    void *y;
};

struct pointwise_kernels {
    void (*of[POINTWISE_OPS])(const struct pointwise *e);
    /* Elements, then rows, [begin, end) of the whole op. */
    void (*rank_sum)(const struct ls_rank_sum *sum, int64_t begin, int64_t end);
    void (*dropout)(enum ls_dtype act, const struct ls_dropout *dropout, int64_t begin, int64_t end,
                    const void *x, void *y);
    void (*rope)(enum ls_dtype act, const struct ls_rope *rope, bool backward, int64_t begin,
                 int64_t end, void *x);
};

/* A norm's command; what an op does not have is 0 and NULL. Of norm there are the pointers that the
 * op uses. */
enum norm_op {
    LAYERNORM_FORWARD,
    RMSNORM_FORWARD,
    LAYERNORM_BACKWARD,
    RMSNORM_BACKWARD,
    RMSNORM_CUT_SUM,
    RMSNORM_CUT_FINISH,
    NORM_OPS
};
struct norm_call {
    const struct norm_kind *kind;
    struct ls_norm norm;
    struct ls_norm_cut cut;
    struct ls_token_sum tokens;
    int64_t units, tiles, unit_tokens, sums_ld; /* of struct ls_norm_parts */
    const void *x, *z, *around;                 /* rows: x or h, residual or dy, d_residual */
    void *sum, *y;                              /* rows that are written */
    float *row_sums, *d_weight, *d_bias, *parts;
};
struct norm_kernels {
    /* Rows [begin, end). */
    void (*of[NORM_OPS])(const struct norm_call *c, int64_t begin, int64_t end);
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

/* The command of an embedding's forward. */
enum embedding_op { EMBEDDING_FORWARD, EMBEDDING_GATHER, EMBEDDING_FINISH, EMBEDDING_OPS };
struct embedding_call {
    const struct embedding_kind *kind;
    struct ls_embedding embedding;
    const float *x; /* NULL: none */
    void *y;
};
struct embedding_kernels {
    /* Rows [begin, end). */
    void (*of[EMBEDDING_OPS])(const struct embedding_call *c, int64_t begin, int64_t end);
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

/* A loss's command; what an op does not have is NULL. */
enum loss_op { LOSS_WHOLE, LOSS_MAX, LOSS_SUM, LOSS_FINISH, ENTROPY, LOSS_OPS };
struct loss_call {
    const struct loss_kind *kind;
    struct ls_cross_entropy op;
    void *logits;
    const int32_t *target;
    /* [rows]; beside: logits of targets, or products; out: losses, products, places, entropies */
    float *max, *sum, *beside, *out;
};
struct loss_kernels {
    /* Rows [begin, end). */
    void (*of[LOSS_OPS])(const struct loss_call *c, int64_t begin, int64_t end);
};

/* The command of an update; moments are of update.moment_type. */
enum update_op { UPDATE_ADAMW, UPDATE_SGD, UPDATE_LION, UPDATE_OPS };
struct update_call {
    enum update_op op;
    struct ls_update update;
    union {
        struct ls_adamw adamw;
        struct ls_sgd sgd;
        struct ls_lion lion;
    } rule;
    float step_size, inverse_root; /* AdamW's lr / (1 - beta1^step), 1 / sqrt(1 - beta2^step) */
    void *moment[2];               /* NULL: none */
};
struct update_kernels {
    /* Elements [begin, end) of the update. */
    void (*of[UPDATE_OPS])(const struct update_call *c, int64_t begin, int64_t end);
    /* Squares of elements [begin, end), exactly. */
    void (*squares)(const float *gradient, const float *second, int64_t begin, int64_t end,
                    struct ls_exact_sum *sum);
};

/* The command of an op on deltas, element by element: y of x and z. */
enum delta_op {
    DELTA_ENCODE,     /* global, local */
    DELTA_DECODE,     /* sums */
    DELTA_MIX,        /* global -> local */
    DELTA_COMPENSATE, /* parameters now, then -> gradient */
    DELTA_OPS
};
struct delta_call {
    const struct delta_kind *kind;
    enum ls_delta_type type;
    enum ls_dtype x_type, y_type; /* z is float32 */
    int64_t count;
    float factor;      /* scale, share, lambda */
    const void *x, *z; /* z NULL: none */
    void *y;
};
/* Elements [begin, end). */
struct delta_kernels {
    /* The largest magnitude of a difference, as bits: NaN is above infinity. */
    uint32_t (*amax)(const float *global, const float *local, int64_t begin, int64_t end);
    void (*of[DELTA_OPS])(const struct delta_call *c, int64_t begin, int64_t end);
    void (*sum)(enum ls_delta_type type, const void *parts, int64_t stride, int parts_count,
                void *out, int64_t begin, int64_t end);
};

/* The momentum has no master and no compute, the step no gradients and nothing of its own but
 * scale and orthogonal. */
enum muon_op { MUON_MOMENTUM, MUON_STEP, MUON_OPS };
struct muon_call {
    enum muon_op op;
    struct ls_update update;
    struct ls_muon_momentum muon;
    float scale;
    void *m;
    float *direction;
    const float *orthogonal;
};
struct muon_kernels {
    /* Elements [begin, end) of the update. */
    void (*of[MUON_OPS])(const struct muon_call *c, int64_t begin, int64_t end);
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
    /* q[n] of elements from, from + 1, ... of x; returns their scale: NaN if one is not finite. */
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
