/* ops/share.h - how a range is cut among threads. No bit depends on it. */
#ifndef OPS_SHARE_H
#define OPS_SHARE_H

#include <lockstep/ops.h>

/* Below this many elements a team costs more than it saves. */
enum { OPS_SHARE_MIN = 16384 };

static inline int ops_parts(const struct ls_ops *ops, int64_t elements)
{
    return elements < OPS_SHARE_MIN ? 1 : ops->threads;
}

/* Part `part` of `parts` of [0, count): *begin and *end, cut at multiples of align. */
static inline void ops_share(int64_t count, int64_t align, int part, int parts, int64_t *begin,
                             int64_t *end)
{
    int64_t units = ls_ceil_div(count, align);
    *begin = ls_min(units * part / parts * align, count);
    *end = ls_min(units * (part + 1) / parts * align, count);
}

static inline const void *ops_at(enum ls_dtype act, const void *base, int64_t element)
{
    return (const char *)base + element * (act == LS_BF16 ? 2 : 4);
}
static inline void *ops_at_mutable(enum ls_dtype act, void *base, int64_t element)
{
    return (char *)base + element * (act == LS_BF16 ? 2 : 4);
}

#endif
