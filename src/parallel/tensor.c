#include <lockstep/parallel/tensor.h>

#include <string.h>

/* ---- the group --------------------------------------------------------------------------------
 */

int ls_tp_init(struct ls_tp *tp, struct ls_comm *comm, bool sequence, int chunks, int sharers,
               struct ls_error *error)
{
    int size = comm ? ls_comm_size(comm) : 1;
    *tp = (struct ls_tp){.comm = comm,
                         .size = size,
                         .rank = comm ? ls_comm_rank(comm) : 0,
                         .sequence = sequence && size > 1,
                         .chunks = chunks,
                         .sharers = sharers};
    if (chunks < 1 || sharers < 1 || size % sharers)
        return ls_error_set(error, LS_EINVAL,
                            "%d tensor-parallel ranks in %d chunks, %d a key/value head: expected "
                            "at least 1 chunk and a divisor of the ranks",
                            size, chunks, sharers);
    if (sharers == 1)
        return LS_OK;
    return ls_comm_split(comm, tp->rank / sharers, tp->rank, &tp->sharers_comm, error);
}

void ls_tp_release(struct ls_tp *tp)
{
    ls_comm_free(tp->sharers_comm);
    *tp = (struct ls_tp){.size = 1, .chunks = 1, .sharers = 1};
}

int ls_tp_sharers(int64_t tp, int64_t kv_heads)
{
    return tp > kv_heads ? (int)(tp / kv_heads) : 1;
}

/* ---- rows -------------------------------------------------------------------------------------
 */

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

bool ls_tp_admits(int64_t tp, int64_t units, int64_t sequences, int64_t tokens)
{
    if (units % tp == 0)
        return true;
    if (units < 1 || tp % units || !ls_is_pow2(tp / units) || !ls_is_pow2(sequences))
        return false;
    int64_t parts = tp / units;
    if (parts <= sequences)
        return true;
    parts /= sequences;
    return tokens % (parts * LS_TOKEN_TILE) == 0 && ls_is_pow2(tokens / (parts * LS_TOKEN_TILE));
}

/* ---- moving -----------------------------------------------------------------------------------
 */

static char *row_at(enum ls_dtype dtype, const void *x, int64_t row, int64_t width)
{
    return (char *)x + (size_t)(row * width) * ls_dtype_bytes(dtype);
}

int ls_tp_gather(const struct ls_tp *tp, enum ls_dtype dtype, int64_t rows, int64_t width,
                 const void *own, void *all, struct ls_error *error)
{
    return ls_all_gather(tp->comm, own, all, share_rows(tp, rows) * width, dtype, error);
}

int ls_tp_reduce(const struct ls_tp *tp, int64_t rows, int64_t width,
                 const struct ls_tp_scratch *scratch, struct ls_error *error)
{
    return ls_reduce_scatter(tp->comm, scratch->partial, scratch->sum, share_rows(tp, rows) * width,
                             error);
}

/* Where this rank's share of y lies: y holds the share alone, or all rows. */
static void *share_of(const struct ls_tp *tp, enum ls_dtype act, int64_t rows, int64_t width,
                      void *y)
{
    return tp->sequence ? y : row_at(act, y, tp->rank * share_rows(tp, rows), width);
}

int ls_tp_reduce_round(const struct ls_tp *tp, struct ls_ops *ops, enum ls_dtype act, int64_t rows,
                       int64_t width, const struct ls_tp_scratch *scratch, const float *bias,
                       void *y, struct ls_error *error)
{
    int64_t first, count;
    void *own = share_of(tp, act, rows, width, y);
    int status = ls_tp_reduce(tp, rows, width, scratch, error);
    if (status)
        return status;
    ls_tp_share(tp, rows, &first, &count);
    ls_bias_round(ops, act, count, width, scratch->sum, bias, own);
    return tp->sequence ? LS_OK : ls_tp_gather(tp, act, rows, width, own, y, error);
}

/* ---- products ---------------------------------------------------------------------------------
 */

int ls_tp_reduced_product(const struct ls_tp *tp, struct ls_ops *ops, const struct ls_gemm *gemm,
                          const struct ls_tp_scratch *scratch, struct ls_error *error)
{
    if (tp->size == 1)
        return ls_gemm_run(ops, gemm, error);
    struct ls_gemm partial = *gemm;
    partial.out = LS_F32;
    partial.bias = NULL;
    partial.c = scratch->partial;
    int status = ls_gemm_run(ops, &partial, error);
    if (status)
        return status;
    return ls_tp_reduce_round(tp, ops, gemm->out, gemm->m, gemm->n, scratch, gemm->bias, gemm->c,
                              error);
}

int ls_tp_gathered_product(const struct ls_tp *tp, struct ls_ops *ops, const struct ls_gemm *gemm,
                           void *all, const struct ls_tp_scratch *scratch, struct ls_error *error)
{
    (void)scratch;
    if (!tp->sequence)
        return ls_gemm_run(ops, gemm, error);
    struct ls_gemm whole = *gemm;
    int status = ls_tp_gather(tp, gemm->in, gemm->m, gemm->lda, gemm->a, all, error);
    whole.a = all;
    return status ? status : ls_gemm_run(ops, &whole, error);
}
