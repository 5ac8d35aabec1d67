/* One dim cut by one placement: pieces, and in each piece the range that torch.chunk gives. */
#include "dtensor/dtensor_private.h"

void ls_shard_range(int64_t size, int64_t parts, int64_t index, int64_t *first, int64_t *count)
{
    /* Not ls_ceil_div: parts may be near INT64_MAX, and the sum would overflow. */
    int64_t part = size / parts + (size % parts != 0);
    *first = part > 0 && index > (size - 1) / part ? size : part * index;
    *count = ls_min(part, size - *first);
}

struct dtensor_cut dtensor_cut_of(struct ls_placement placement, int64_t size, int64_t parts,
                                  int64_t index)
{
    struct dtensor_cut cut = {.size = size, .parts = 1};
    int64_t split = placement.kind == LS_STRIDED_SHARD ? placement.split_factor : 1;
    if (ls_placement_cuts(placement)) {
        cut.parts = parts;
        cut.index = index;
    }
    cut.piece = size / split + (size % split != 0);
    cut.pieces = cut.piece > 0 ? size / cut.piece : 0;
    cut.rest = cut.piece > 0 ? size % cut.piece : 0;
    ls_shard_range(cut.piece, cut.parts, cut.index, &cut.piece_first, &cut.piece_count);
    ls_shard_range(cut.rest, cut.parts, cut.index, &cut.rest_first, &cut.rest_count);
    return cut;
}

int64_t dtensor_cut_count(const struct dtensor_cut *cut)
{
    return cut->pieces * cut->piece_count + cut->rest_count;
}

int64_t dtensor_cut_locate(const struct dtensor_cut *cut, int64_t local, int64_t *run)
{
    int64_t before = cut->pieces * cut->piece_count;
    if (local >= before) {
        *run = cut->rest_count - (local - before);
        return cut->pieces * cut->piece + cut->rest_first + (local - before);
    }
    int64_t within = local % cut->piece_count;
    *run = cut->piece_count - within;
    return local / cut->piece_count * cut->piece + cut->piece_first + within;
}

void dtensor_spans_init(struct dtensor_spans *spans, struct dtensor_cut from, struct dtensor_cut to)
{
    *spans = (struct dtensor_spans){.from = from, .to = to};
}

bool dtensor_spans_next(struct dtensor_spans *spans, struct dtensor_span *span)
{
    int64_t from_count = dtensor_cut_count(&spans->from), to_count = dtensor_cut_count(&spans->to);
    while (spans->from_next < from_count && spans->to_next < to_count) {
        int64_t from_run, to_run;
        int64_t from_first = dtensor_cut_locate(&spans->from, spans->from_next, &from_run);
        int64_t to_first = dtensor_cut_locate(&spans->to, spans->to_next, &to_run);
        int64_t first = ls_max(from_first, to_first);
        int64_t end = ls_min(from_first + from_run, to_first + to_run);
        *span =
            (struct dtensor_span){spans->from_next + (first - from_first),
                                  spans->to_next + (first - to_first), spans->shared, end - first};
        /* Both go on behind the run that ends first. */
        spans->from_next += ls_min(from_run, ls_max(0, end - from_first));
        spans->to_next += ls_min(to_run, ls_max(0, end - to_first));
        if (span->count > 0) {
            spans->shared += span->count;
            return true;
        }
    }
    return false;
}

int64_t dtensor_spans_count(struct dtensor_cut from, struct dtensor_cut to)
{
    struct dtensor_spans spans;
    struct dtensor_span span;
    dtensor_spans_init(&spans, from, to);
    while (dtensor_spans_next(&spans, &span))
        continue;
    return spans.shared;
}
