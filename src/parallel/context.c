/* Context parallel: which tokens of a sequence a rank holds, and rows moved between the orders. */
#include <lockstep/parallel/context.h>

void ls_cp_init(struct ls_cp *cp, struct ls_comm *comm, enum ls_cp_method method)
{
    *cp = (struct ls_cp){.comm = comm,
                         .size = comm ? ls_comm_size(comm) : 1,
                         .rank = comm ? ls_comm_rank(comm) : 0,
                         .method = method};
}

int ls_seq_tiles_admit(int64_t seq_tiles, int64_t tokens, int64_t leaf_sequences,
                       struct ls_error *error)
{
    if (seq_tiles == 1)
        return LS_OK;
    if (tokens % (2 * seq_tiles * LS_ATTENTION_BLOCK))
        return ls_error_set(error, LS_ELAYOUT,
                            "data.sequence = %ld is not a multiple of 2 * %ld * %d: each tile is "
                            "two parts of a sequence, in whole blocks of %d tokens",
                            (long)tokens, (long)seq_tiles, LS_ATTENTION_BLOCK, LS_ATTENTION_BLOCK);
    if (leaf_sequences > 1)
        return ls_error_set(error, LS_ELAYOUT,
                            "a sequence that is cut must be a leaf: it needs "
                            "numerics.leaf_sequences = 1, not %ld",
                            (long)leaf_sequences);
    return LS_OK;
}

int ls_cp_admits(int64_t cp, int64_t seq_tiles, enum ls_cp_method method, struct ls_error *error)
{
    if (seq_tiles % cp)
        return ls_error_set(error, LS_ELAYOUT, "it does not divide numerics.seq_tiles = %ld",
                            (long)seq_tiles);
    if (cp > 1 && !ls_is_pow2(seq_tiles / cp))
        return ls_error_set(
            error, LS_ELAYOUT,
            "each rank would have %ld of numerics.seq_tiles = %ld tiles: expected a "
            "power of two of them",
            (long)(seq_tiles / cp), (long)seq_tiles);
    if (method == LS_CP_RING && cp > LS_CP_RING_RANKS_MAX)
        return ls_error_set(error, LS_ELAYOUT, "a ring has at most %d ranks", LS_CP_RING_RANKS_MAX);
    return LS_OK;
}

int ls_segments(int64_t seq_tiles, int64_t cp)
{
    return seq_tiles == 1 ? 1 : (int)(2 * seq_tiles / cp);
}

void ls_segment(int64_t seq_tiles, int64_t cp, int64_t cp_rank, int64_t tokens, int i,
                int64_t *first, int64_t *count)
{
    if (seq_tiles == 1) {
        *first = 0;
        *count = tokens;
        return;
    }
    int64_t tile = cp_rank * (seq_tiles / cp) + i / 2;
    int64_t chunk = i % 2 ? 2 * seq_tiles - 1 - tile : tile;
    *count = tokens / (2 * seq_tiles);
    *first = chunk * *count;
}

/* Rows that lie `distance` bytes apart. */
struct placed {
    char *at;
    size_t distance;
};

/* natural's rows of rank's segments from (or, with back, to) ranked. */
static void permute(const struct ls_cp *cp, struct ls_ops *ops, int rank,
                    const struct ls_cp_rows *rows, struct placed natural, struct placed ranked,
                    bool back)
{
    size_t bytes = (size_t)rows->width * ls_dtype_bytes(rows->dtype);
    for (int i = 0; i < ls_segments(rows->seq_tiles, cp->size); i++) {
        int64_t first, count;
        ls_segment(rows->seq_tiles, cp->size, rank, rows->tokens, i, &first, &count);
        char *at = natural.at + (size_t)first * natural.distance;
        if (back)
            ls_copy_rows(ops, count, bytes, at, natural.distance, ranked.at, ranked.distance);
        else
            ls_copy_rows(ops, count, bytes, ranked.at, ranked.distance, at, natural.distance);
        ranked.at += (size_t)count * ranked.distance;
    }
}

int ls_cp_gather(const struct ls_cp *cp, struct ls_ops *ops, const struct ls_cp_rows *rows,
                 const void *own, int64_t ld, void *staging, void *natural, struct ls_error *error)
{
    size_t element = ls_dtype_bytes(rows->dtype), bytes = (size_t)rows->width * element;
    struct placed mine = {(char *)own, (size_t)ld * element}, all = {natural, bytes};
    if (cp->size == 1) {
        permute(cp, ops, 0, rows, all, mine, false);
        return LS_OK;
    }
    int64_t local = rows->tokens / cp->size;
    char *packed = (char *)staging + (size_t)(cp->rank * local) * bytes;
    ls_copy_rows(ops, local, bytes, own, mine.distance, packed, bytes);
    int status = ls_all_gather_start(cp->comm, packed, staging, local * rows->width, rows->dtype,
                                     LS_QUEUED, LS_HERE, error);
    for (int rank = 0; rank < cp->size && !status; rank++) {
        struct placed ranked = {(char *)staging + (size_t)(rank * local) * bytes, bytes};
        permute(cp, ops, rank, rows, all, ranked, false);
    }
    return status;
}

int ls_cp_reduce(const struct ls_cp *cp, struct ls_ops *ops, const struct ls_cp_rows *rows,
                 int parts, const float *natural, float *staging, float *own,
                 struct ls_error *error)
{
    int64_t local = rows->tokens / cp->size, width = rows->width;
    size_t bytes = (size_t)width * sizeof(float);
    LS_ASSERT(rows->dtype == LS_F32);
    for (int rank = 0; rank < cp->size; rank++)
        for (int part = 0; part < parts; part++) {
            struct placed all = {(char *)(natural + part * rows->tokens * width), bytes};
            struct placed ranked = {(char *)(staging + (rank * parts + part) * local * width),
                                    bytes};
            permute(cp, ops, rank, rows, all, ranked, true);
        }
    if (cp->size > 1)
        return ls_reduce_scatter_start(cp->comm, staging, own, parts * local * width, LS_QUEUED,
                                       LS_HERE, error);
    ls_copy(ops, (size_t)(parts * rows->tokens) * bytes, staging, own);
    return LS_OK;
}
