/* ops/share.h - how a range is cut among threads. No bit depends on it. */
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

static inline const void *ops_at(enum ls_dtype act, const void *base, int64_t element)
{
    return (const char *)base + element * (int64_t)ls_dtype_bytes(act);
}
static inline void *ops_at_mutable(enum ls_dtype act, void *base, int64_t element)
{
    return (char *)base + element * (int64_t)ls_dtype_bytes(act);
}

#endif
