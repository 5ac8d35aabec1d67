/* Tensor and sequence parallel: rows of activations gathered, added and shared out. */
#include <lockstep/parallel/tensor.h>

/* ---- the group ------------------------------------------------------------------------------- */

void ls_tp_init(struct ls_tp *tp, struct ls_comm *comm, struct ls_comm *sharers, bool sequence,
                int chunks)
{
    int size = comm ? ls_comm_size(comm) : 1;
    *tp = (struct ls_tp){.comm = comm,
                         .size = size,
                         .rank = comm ? ls_comm_rank(comm) : 0,
                         .sequence = sequence && size > 1,
                         .chunks = chunks,
                         .sharers_comm = sharers,
                         .sharers = sharers ? ls_comm_size(sharers) : 1};
    LS_ASSERT(size % tp->sharers == 0);
}

int ls_tp_sharers(int64_t tp, int64_t kv_heads)
{
    return tp > kv_heads ? (int)(tp / kv_heads) : 1;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static int64_t share_rows(const struct ls_tp *tp, int64_t rows)
{
    return ls_ceil_div(rows, tp->size);
}

int64_t ls_tp_room(const struct ls_tp *tp, int64_t rows)
{
    return share_rows(tp, rows) * tp->size;
}

void ls_tp_share(const struct ls_tp *tp, int64_t rows, int64_t *first, int64_t *count)
{
    int64_t share = share_rows(tp, rows);
    *first = ls_min(tp->rank * share, rows);
    *count = ls_min(share, rows - *first);
}

bool ls_tp_admits(int64_t tp, int64_t tiles, int64_t tokens)
{
    if (tiles % tp == 0)
        return true;
    if (tiles < 1 || tp % tiles || !ls_is_pow2(tp / tiles))
        return false;
    int64_t part = tp / tiles * LS_TOKEN_TILE;
    return tokens % part == 0 && ls_is_pow2(tokens / part);
}

/* ---- moving ---------------------------------------------------------------------------------- */

static char *row_at(enum ls_dtype dtype, const void *x, int64_t row, int64_t width)
{
    return (char *)x + (size_t)(row * width) * ls_dtype_bytes(dtype);
}

int ls_tp_gather(const struct ls_tp *tp, enum ls_dtype dtype, int64_t rows, int64_t width,
                 const void *own, void *all, struct ls_request *request, struct ls_error *error)
{
    return ls_all_gather_start(tp->comm, own, all, share_rows(tp, rows) * width, dtype, request,
                               LS_HERE, error);
}

int ls_tp_reduce(const struct ls_tp *tp, int64_t rows, int64_t width,
                 const struct ls_tp_scratch *scratch, struct ls_error *error)
{
    return ls_reduce_scatter_start(tp->comm, scratch->partial, scratch->sum,
                                   share_rows(tp, rows) * width, LS_QUEUED, LS_HERE, error);
}

/* Where this rank's share of y lies: y holds the share alone, or all rows. */
static void *share_of(const struct ls_tp *tp, enum ls_dtype act, int64_t rows, int64_t width,
                      void *y)
{
    return tp->sequence ? y : row_at(act, y, tp->rank * share_rows(tp, rows), width);
}

int ls_tp_reduce_round(const struct ls_tp *tp, struct ls_ops *ops, enum ls_dtype act, int64_t rows,
                       int64_t width, const struct ls_tp_scratch *scratch, void *y,
                       struct ls_error *error)
{
    int64_t first, count;
    void *own = share_of(tp, act, rows, width, y);
    int status = ls_tp_reduce(tp, rows, width, scratch, error);
    if (status)
        return status;
    ls_tp_share(tp, rows, &first, &count);
    ls_bias_round(ops, act, count, width, scratch->sum, NULL, own);
    return tp->sequence ? LS_OK : ls_tp_gather(tp, act, rows, width, own, y, LS_QUEUED, error);
}

/* ---- products -------------------------------------------------------------------------------- */

/* Rows are cut in at most tp->chunks pieces, so that one moves while the next is computed; fewer
 * where pieces would be so short that packing the weights anew is dearer than what is hidden. */
enum { PIECE_ROWS_MIN = 32 };

/* Length of a piece of `rows` rows, a multiple of `unit`. */
static int64_t piece_rows(const struct ls_tp *tp, int64_t rows, int64_t unit)
{
    LS_ASSERT(tp->chunks >= 1 && tp->chunks <= LS_TP_CHUNKS_MAX);
    return ls_round_up(ls_max(ls_ceil_div(rows, tp->chunks), PIECE_ROWS_MIN), unit);
}

/* gemm's rows [first, first + count), as far as there are such, into c. */
static int rows_run(struct ls_ops *ops, const struct ls_gemm *gemm, int64_t first, int64_t count,
                    void *c, struct ls_error *error)
{
    struct ls_gemm part = *gemm;
    part.m = ls_max(ls_min(count, gemm->m - first), 0);
    part.a = row_at(gemm->in, gemm->a, first, gemm->lda);
    part.c = c;
    return part.m > 0 ? ls_gemm_run(ops, &part, error) : LS_OK;
}

/* Waits for all that were started, also after a failure; the first failure is returned. */
static int wait_all(struct ls_request *requests, int count, int status, struct ls_error *error)
{
    for (int i = 0; i < count; i++) {
        struct ls_error later = {0};
        int result = ls_wait(&requests[i], status ? &later : error);
        status = status ? status : result;
    }
    return status;
}

/* What a product behind needs of its pieces. */
struct reduced {
    const struct ls_tp *tp;
    struct ls_ops *ops;
    const struct ls_gemm *gemm; /* as it would be alone */
    struct ls_gemm partial;     /* float32, without bias */
    const struct ls_tp_scratch *scratch;
};

/* Without sequence parallel nobody keeps a share, so each piece is rows that follow each other, and
 * each rank rounds its share of them. Sums of a piece travel while the next is computed, then its
 * rounded rows while the one after that is. */
static int block_round(const struct reduced *r, int64_t first, int64_t count,
                       struct ls_request *request, struct ls_error *error)
{
    int64_t n = r->gemm->n, share = ls_ceil_div(count, r->tp->size);
    int64_t own = first + r->tp->rank * share;
    enum ls_dtype act = r->gemm->out;
    char *y = row_at(act, r->gemm->c, own, n);
    ls_bias_round(r->ops, act, ls_max(ls_min(share, first + count - own), 0), n,
                  r->scratch->sum + first / r->tp->size * n, r->gemm->bias, y);
    return ls_all_gather_start(r->tp->comm, y, row_at(act, r->gemm->c, first, n), share * n, act,
                               request, LS_HERE, error);
}

static int reduced_blocks(const struct reduced *r, struct ls_error *error)
{
    int64_t m = r->gemm->m, n = r->gemm->n, piece = piece_rows(r->tp, m, r->tp->size);
    struct ls_request sums[LS_TP_CHUNKS_MAX] = {{0}}, rows[LS_TP_CHUNKS_MAX] = {{0}};
    int pieces = (int)ls_ceil_div(m, piece), status = LS_OK;
    for (int i = 0; i <= pieces && !status; i++) {
        int64_t first = i * piece, count = ls_min(piece, m - first);
        if (i < pieces)
            status =
                rows_run(r->ops, &r->partial, first, count, r->scratch->partial + first * n, error);
        if (i < pieces && !status)
            status = ls_reduce_scatter_start(r->tp->comm, r->scratch->partial + first * n,
                                             r->scratch->sum + first / r->tp->size * n,
                                             ls_ceil_div(count, r->tp->size) * n, &sums[i], LS_HERE,
                                             error);
        if (i > 0 && !status)
            status = ls_wait(&sums[i - 1], error);
        if (i > 0 && !status)
            status = block_round(r, first - piece, ls_min(piece, m - (first - piece)), &rows[i - 1],
                                 error);
    }
    status = wait_all(sums, pieces, status, error);
    return wait_all(rows, pieces, status, error);
}

/* partial [size, count] = rows [at, at + count) of every share. */
static int share_pieces_run(const struct reduced *r, int64_t share, int64_t at, int64_t count,
                            float *partial, struct ls_error *error)
{
    if (count == share)
        return rows_run(r->ops, &r->partial, 0, r->gemm->m, partial, error);
    int status = LS_OK;
    for (int rank = 0; rank < r->tp->size && !status; rank++)
        status = rows_run(r->ops, &r->partial, rank * share + at, count,
                          partial + rank * count * r->gemm->n, error);
    return status;
}

/* With sequence parallel a piece is the same part of every rank's share. */
static int reduced_shares(const struct reduced *r, struct ls_error *error)
{
    const struct ls_tp *tp = r->tp;
    int64_t n = r->gemm->n, share = share_rows(tp, r->gemm->m), piece = piece_rows(tp, share, 1);
    int64_t own_first, own_count;
    struct ls_request sums[LS_TP_CHUNKS_MAX] = {{0}};
    int pieces = (int)ls_ceil_div(share, piece), status = LS_OK;
    ls_tp_share(tp, r->gemm->m, &own_first, &own_count);
    for (int i = 0; i <= pieces && !status; i++) {
        int64_t at = i * piece, count = ls_min(piece, share - at), before = at - piece;
        float *partial = r->scratch->partial + tp->size * at * n;
        if (i < pieces)
            status = share_pieces_run(r, share, at, count, partial, error);
        if (i < pieces && !status)
            status = ls_reduce_scatter_start(tp->comm, partial, r->scratch->sum + at * n, count * n,
                                             &sums[i], LS_HERE, error);
        if (i > 0 && !status)
            status = ls_wait(&sums[i - 1], error);
        if (i > 0 && !status)
            ls_bias_round(r->ops, r->gemm->out, ls_max(ls_min(piece, own_count - before), 0), n,
                          r->scratch->sum + before * n, r->gemm->bias,
                          row_at(r->gemm->out, r->gemm->c, before, n));
    }
    return wait_all(sums, pieces, status, error);
}

int ls_tp_reduced_product(const struct ls_tp *tp, struct ls_ops *ops, const struct ls_gemm *gemm,
                          const struct ls_tp_scratch *scratch, struct ls_error *error)
{
    if (tp->size == 1)
        return ls_gemm_run(ops, gemm, error);
    struct reduced r = {tp, ops, gemm, *gemm, scratch};
    r.partial.out = LS_F32;
    r.partial.bias = NULL;
    return tp->sequence ? reduced_shares(&r, error) : reduced_blocks(&r, error);
}

/* Pieces of every share arrive while those before are multiplied. */
static int gathered_pieces(const struct ls_tp *tp, struct ls_ops *ops, const struct ls_gemm *gemm,
                           void *all, void *staging, struct ls_error *error)
{
    int64_t k = gemm->lda, share = share_rows(tp, gemm->m), piece = piece_rows(tp, share, 1);
    struct ls_request requests[LS_TP_CHUNKS_MAX] = {{0}};
    struct ls_gemm whole = *gemm;
    int pieces = (int)ls_ceil_div(share, piece), status = LS_OK;
    whole.a = all;
    for (int i = 0; i < pieces && !status; i++) {
        int64_t at = i * piece, count = ls_min(piece, share - at);
        status = ls_all_gather_start(tp->comm, row_at(gemm->in, gemm->a, at, k),
                                     row_at(gemm->in, staging, tp->size * at, k), count * k,
                                     gemm->in, &requests[i], LS_HERE, error);
    }
    for (int i = 0; i < pieces && !status; i++) {
        int64_t at = i * piece, count = ls_min(piece, share - at);
        status = ls_wait(&requests[i], error);
        for (int rank = 0; rank < tp->size && !status; rank++) {
            int64_t row = rank * share + at;
            char *to = row_at(gemm->in, all, row, k);
            if (to != row_at(gemm->in, gemm->a, at, k) || rank != tp->rank)
                ls_copy(ops, (size_t)(count * k) * ls_dtype_bytes(gemm->in),
                        row_at(gemm->in, staging, tp->size * at + rank * count, k), to);
            status = rows_run(ops, &whole, row, count, row_at(gemm->out, gemm->c, row, gemm->ldc),
                              error);
        }
    }
    return wait_all(requests, pieces, status, error);
}

int ls_tp_gathered_product(const struct ls_tp *tp, struct ls_ops *ops, const struct ls_gemm *gemm,
                           void *all, const struct ls_tp_scratch *scratch, struct ls_error *error)
{
    if (!tp->sequence)
        return ls_gemm_run(ops, gemm, error);
    if (tp->chunks > 1)
        return gathered_pieces(tp, ops, gemm, all, scratch->staging, error);
    struct ls_gemm whole = *gemm;
    int status = ls_tp_gather(tp, gemm->in, gemm->m, gemm->lda, gemm->a, all, LS_QUEUED, error);
    whole.a = all;
    return status ? status : ls_gemm_run(ops, &whole, error);
}
