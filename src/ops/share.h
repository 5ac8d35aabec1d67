/* ops/share.h - how a range is cut among threads, and what is told of an op. No bit depends on
 * either. */
#ifndef OPS_SHARE_H
#define OPS_SHARE_H

#include <lockstep/ops.h>

/* Below this many elements a team costs more than it saves. */
enum { OPS_SHARE_MIN = 16384 };

/* None where ops is idle. */
static inline int ops_parts(const struct ls_ops *ops, int64_t elements)
{
    return ops->idle ? 0 : elements < OPS_SHARE_MIN ? 1 : ops->threads;
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

/* ---- what is told of an op ---------------------------------------------------------------------
 */

struct ops_told {
    const struct ls_work_watch *watch;
    struct ls_work work;
};
static inline struct ops_told ops_tell(const struct ls_ops *ops, struct ls_work work)
{
    if (ops->watch->begin)
        ops->watch->begin(ops->watch->user, &work, (enum ls_work_pass)ops->pass);
    return (struct ops_told){ops->watch, work};
}
static inline void ops_told_end(const struct ops_told *told)
{
    if (told->watch && told->watch->end)
        told->watch->end(told->watch->user, &told->work);
}
/* From here to the end of the block the op works. Nothing is computed where nobody watches. */
#define OPS_TELL(ops, work)                                                                        \
    __attribute__((cleanup(ops_told_end))) const struct ops_told ops_told_ =                       \
        (ops)->watch ? ops_tell(ops, work) : (struct ops_told){0};                                 \
    (void)ops_told_

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
