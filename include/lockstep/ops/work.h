/* lockstep/ops/work.h - what a command computes: kind, shape, operations and bytes, derived from
 * its arguments by its op. Included by lockstep/ops.h.
 *
 * Ops made of others (Newton-Schulz) are the commands of these. ls_loss_sum and ls_iota, which are
 * small, have no work.
 * The planner records what a rank would compute; a profile measures what it did. */
#ifndef LOCKSTEP_OPS_WORK_H
#define LOCKSTEP_OPS_WORK_H

enum ls_work_kind {
    LS_WORK_PRODUCT,    /* C [m, n] = A [m, k] B [k, n] */
    LS_WORK_PRODUCT_BT, /* B is stored [n, k] */
    LS_WORK_PRODUCT_AT, /* A is stored [k, m]: gradients of weights */
    /* m query rows of all heads and sequences, n keys that such a row sees on average (rounded up),
     * k head_dim */
    LS_WORK_ATTENTION,
    LS_WORK_ATTENTION_BACKWARD,
    /* The others work on [m, n] elements, k is 1. */
    LS_WORK_NORM,
    LS_WORK_NORM_BACKWARD,
    LS_WORK_COLUMN_SUM, /* gradients of biases, norms and positions */
    LS_WORK_ACTIVATION, /* GELU, SwiGLU */
    LS_WORK_ACTIVATION_BACKWARD,
    LS_WORK_ADD, /* of rows, biases, partial sums */
    LS_WORK_DROPOUT,
    LS_WORK_ROPE,
    LS_WORK_EMBEDDING,
    LS_WORK_EMBEDDING_BACKWARD,
    LS_WORK_LOSS,
    LS_WORK_UPDATE,
    LS_WORK_SQUARES, /* the exact norm */
    LS_WORK_CAST,
    LS_WORK_COPY,
    LS_WORK_FILL,
    LS_WORK_KINDS
};
/* "product", "product_bt", "attention_backward", ... */
const char *ls_work_name(enum ls_work_kind kind);
/* -1 if the name is none of them. */
int ls_work_of_name(const char *name);

struct ls_work {
    enum ls_work_kind kind;
    enum ls_dtype dtype; /* of what is multiplied, or of activations */
    int64_t m, n, k;
    /* Additions and multiplications, and bytes read and written at least once, as the formula of
     * the op has them: exponentials count as one. */
    double flops, bytes;
};
/* Local. What the command computes. False: it is none of an op, or computes so little that nobody
 * counts it. */
bool ls_command_work(const struct ls_command *command, struct ls_work *out);

#endif
