/* ops/share.h - how a range is cut among threads, and what commands are made of. No bit depends on
 * either. */
#ifndef OPS_SHARE_H
#define OPS_SHARE_H

#include <lockstep/ops.h>

/* None if ops is idle. */
static inline int ops_parts(const struct ls_ops *ops, int64_t elements)
{
    return ops->idle ? 0 : ls_ops_team(ops, elements);
}

/* Where part `part` of `parts` of [0, count) begins, at a multiple of align. */
static inline int64_t ops_cut(int64_t count, int64_t align, int part, int parts)
{
    return ls_min(ls_ceil_div(count, align) * part / parts * align, count);
}

/* clang-format off */
/* The statement behind it runs for each part [begin, end) of [0, count), on as many threads as so
 * many elements are worth. */
#define OPS_EACH_SHARE(ops, elements, count, align)                                                \
    for (int parts = ops_parts(ops, elements); parts > 0; parts = 0)                               \
        _Pragma("omp parallel for num_threads(parts)")                                             \
        for (int part = 0; part < parts; part++)                                                   \
            for (int64_t begin = ops_cut(count, align, part, parts),                               \
                         end = ops_cut(count, align, part + 1, parts); begin < end; begin = end)
/* clang-format on */

/* ---- commands -------------------------------------------------------------------------------- */

/* One for each op, beside what it runs. */
struct ops_op {
    struct ls_op op;
    /* What it computes, as lockstep/ops/work.h has it. NULL: so little that nobody is told. */
    struct ls_work (*work)(const void *arguments);
    void (*operands)(const void *arguments, struct ls_operands *out);
    void (*run)(struct ls_ops *ops, const void *arguments); /* NULL: attempt, which may fail */
    int (*attempt)(struct ls_ops *ops, const void *arguments, struct ls_error *error);
};
/* Of arguments of this type. */
#define OPS_OP(type, its_work, its_operands, its_run)                                              \
    {                                                                                              \
        .op = {sizeof(type), ops_operands, ops_run}, .work = (its_work),                           \
        .operands = (its_operands), .run = (its_run)                                               \
    }
#define OPS_ATTEMPT(type, its_work, its_operands, its_attempt)                                     \
    {                                                                                              \
        .op = {sizeof(type), ops_operands, ops_run}, .work = (its_work),                           \
        .operands = (its_operands), .attempt = (its_attempt)                                       \
    }
void ops_operands(const struct ls_queue *queue, const struct ls_command *command,
                  struct ls_operands *out);
int ops_run(struct ls_queue *queue, const struct ls_command *command, struct ls_error *error);

static inline int ops_try(struct ls_ops *ops, const struct ops_op *op, const void *arguments,
                          struct ls_error *error)
{
    return ls_submit(&ops->queue, &(struct ls_command){&op->op, arguments}, error);
}
/* Submits an op that refuses nothing. */
static inline void ops_submit(struct ls_ops *ops, const struct ops_op *op, const void *arguments)
{
    (void)ops_try(ops, op, arguments, NULL);
}

/* They are whole numbers in [least, below). */
static inline void ops_operand_ids(struct ls_operand *operand, int64_t least, int64_t below)
{
    if (!operand)
        return;
    operand->least = (int32_t)least;
    operand->below = (int32_t)below;
}

static inline size_t ops_bytes(enum ls_dtype dtype, int64_t elements)
{
    return (size_t)elements * ls_dtype_bytes(dtype);
}
/* From the first to the last byte of rows that lie ld elements apart. */
static inline size_t ops_rows_bytes(enum ls_dtype dtype, int64_t rows, int64_t width, int64_t ld)
{
    return rows > 0 ? ops_bytes(dtype, (rows - 1) * ld + width) : 0;
}

/* Those of an update, a member of arguments, but for its moments. */
static inline void ops_update_operands(const struct ls_update *update, const void *arguments,
                                       struct ls_operands *out)
{
    const size_t bytes = ops_bytes(LS_F32, update->count);
    ls_operand_add(out, arguments, &update->master, bytes, LS_READS_WRITES);
    ls_operand_add(out, arguments, &update->compute, bytes / 2, LS_WRITES);
    ls_operand_add(out, arguments, &update->gradient, bytes, LS_READS);
    ls_operand_add(out, arguments, &update->second, bytes, LS_READS);
}

/* Of what a sum over tokens goes to. */
static inline enum ls_access ops_sum_access(const struct ls_token_sum *sum)
{
    return sum->onto == LS_ONTO_NOTHING ? LS_WRITES : LS_READS_WRITES;
}

/* An op on [rows, cols] elements of a type, each with so many operations; `moved` elements of that
 * type are read and written for each of them. */
static inline struct ls_work ops_pass(enum ls_work_kind kind, enum ls_dtype dtype, int64_t rows,
                                      int64_t cols, int flops_each, double moved)
{
    double elements = (double)rows * (double)cols;
    return (struct ls_work){.kind = kind,
                            .dtype = dtype,
                            .m = rows,
                            .n = cols,
                            .k = 1,
                            .flops = elements * flops_each,
                            .bytes = elements * moved * (double)ls_dtype_bytes(dtype)};
}

static inline const void *ops_at(enum ls_dtype act, const void *base, int64_t element)
{
    return (const char *)base + element * (int64_t)ls_dtype_bytes(act);
}
static inline void *ops_at_mutable(enum ls_dtype act, void *base, int64_t element)
{
    return (char *)base + element * (int64_t)ls_dtype_bytes(act);
}

#endif
