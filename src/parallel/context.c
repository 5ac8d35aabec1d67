#include <lockstep/parallel/context.h>

#include <string.h>

void ls_cp_init(struct ls_cp *cp, struct ls_comm *comm, enum ls_cp_method method)
{
    *cp = (struct ls_cp){.comm = comm,
                         .size = comm ? ls_comm_size(comm) : 1,
                         .rank = comm ? ls_comm_rank(comm) : 0,
                         .method = method};
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

/* Rows between the order of a rank's segments and that of tokens. */
struct rows {
    char *at;
    size_t distance; /* bytes from row to row */
};

static void copy_rows(struct rows to, int64_t to_row, struct rows from, int64_t from_row,
                      int64_t count, size_t bytes)
{
    for (int64_t i = 0; i < count; i++)
        memcpy(to.at + (size_t)(to_row + i) * to.distance,
               from.at + (size_t)(from_row + i) * from.distance, bytes);
}

/* natural's rows of rank's segments from (or, with back, to) ranked. */
static void permute(const struct ls_cp *cp, int rank, int64_t seq_tiles, int64_t tokens,
                    struct rows natural, struct rows ranked, size_t bytes, bool back)
{
    int64_t row = 0;
    for (int i = 0; i < ls_segments(seq_tiles, cp->size); i++) {
        int64_t first, count;
        ls_segment(seq_tiles, cp->size, rank, tokens, i, &first, &count);
        if (back)
            copy_rows(ranked, row, natural, first, count, bytes);
        else
            copy_rows(natural, first, ranked, row, count, bytes);
        row += count;
    }
}

int ls_cp_gather(const struct ls_cp *cp, int64_t seq_tiles, enum ls_dtype dtype, int64_t tokens,
                 int64_t width, const void *own, int64_t ld, void *staging, void *natural,
                 struct ls_error *error)
{
    size_t element = ls_dtype_bytes(dtype), bytes = (size_t)width * element;
    struct rows mine = {(char *)own, (size_t)ld * element}, all = {natural, bytes};
    if (cp->size == 1) {
        permute(cp, 0, seq_tiles, tokens, all, mine, bytes, false);
        return LS_OK;
    }
    int64_t local = tokens / cp->size;
    struct rows packed = {(char *)staging + (size_t)(cp->rank * local) * bytes, bytes};
    copy_rows(packed, 0, mine, 0, local, bytes);
    int status = ls_all_gather(cp->comm, packed.at, staging, local * width, dtype, error);
    for (int rank = 0; rank < cp->size && !status; rank++) {
        struct rows ranked = {(char *)staging + (size_t)(rank * local) * bytes, bytes};
        permute(cp, rank, seq_tiles, tokens, all, ranked, bytes, false);
    }
    return status;
}

int ls_cp_reduce(const struct ls_cp *cp, int64_t seq_tiles, int64_t tokens, int64_t width,
                 int parts, const float *natural, float *staging, float *own,
                 struct ls_error *error)
{
    int64_t local = tokens / cp->size;
    size_t bytes = (size_t)width * sizeof(float);
    for (int rank = 0; rank < cp->size; rank++)
        for (int part = 0; part < parts; part++) {
            struct rows all = {(char *)(natural + part * tokens * width), bytes};
            struct rows ranked = {(char *)(staging + (rank * parts + part) * local * width), bytes};
            permute(cp, rank, seq_tiles, tokens, all, ranked, bytes, true);
        }
    if (cp->size > 1)
        return ls_reduce_scatter(cp->comm, staging, own, parts * local * width, error);
    memcpy(own, staging, (size_t)(parts * tokens) * bytes);
    return LS_OK;
}
