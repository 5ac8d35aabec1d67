/* Products cut over tensor-parallel ranks: the bits of one rank's product, for any number of ranks
 * and of chunks, and rows that ranks cannot share evenly. */
#include "../support/suite.h"

#include <lockstep/parallel/tensor.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- arithmetic ------------------------------------------------------------------------------ */

CASE(test_shares_cover_the_rows)
{
    for (int size = 1; size <= 12; size++)
        for (int64_t rows = 0; rows <= 30; rows++) {
            int64_t next = 0;
            for (int rank = 0; rank < size; rank++) {
                struct ls_tp tp = {.size = size, .rank = rank};
                int64_t first, count;
                ls_tp_share(&tp, rows, &first, &count);
                assert_int_equal(first, next);
                assert_true(count >= 0 && count <= ls_tp_room(&tp, rows) / size);
                next = first + count;
            }
            assert_int_equal(next, rows);
        }
}

CASE(test_what_shares_admit)
{
    assert_true(ls_tp_admits(4, 8, 100)); /* two units each */
    assert_true(ls_tp_admits(1, 3, 7));
    assert_false(ls_tp_admits(4, 6, 64));
    assert_true(ls_tp_admits(4, 1, 64)); /* one tile of 16 tokens each */
    assert_false(ls_tp_admits(8, 1, 64));
    assert_false(ls_tp_admits(2, 1, 96)); /* three tiles each: no subtree */
    assert_true(ls_tp_admits(4, 4, 40));  /* one sequence each */
    assert_false(ls_tp_admits(8, 4, 40));
    assert_false(ls_tp_admits(4, 6, 64));
    assert_int_equal(ls_tp_sharers(8, 2), 4);
    assert_int_equal(ls_tp_sharers(2, 8), 1);
}

/* ---- products -------------------------------------------------------------------------------- */

enum { TILES = 8, K = TILES * 24, N = 40, ROWS_MAX = 300 };

struct product {
    enum ls_dtype act;
    int64_t rows;
    bool sequence;
    int chunks;
    /* whole operands and the one rank's results */
    const void *a, *b;    /* [rows, K], [N, K] */
    const float *bias;    /* [N] */
    const void *reduced;  /* [rows, N] */
    const void *gathered; /* [rows, N], the product without tiles */
};

static struct ls_gemm gemm_of(const struct product *p)
{
    return (struct ls_gemm){.m = p->rows,
                            .n = N,
                            .sections = 1,
                            .k = {K},
                            .tiles = TILES,
                            .b_transposed = true,
                            .in = p->act,
                            .out = p->act,
                            .a = p->a,
                            .b = p->b,
                            .lda = K,
                            .ldb = K,
                            .ldc = N,
                            .bias = p->bias};
}

static const char *at(enum ls_dtype act, const void *x, int64_t element)
{
    return (const char *)x + (size_t)element * ls_dtype_bytes(act);
}

static int rows_compare(const struct product *p, const char *what, const void *want,
                        const void *got, int64_t first, int64_t count, struct ls_error *error)
{
    size_t bytes = N * ls_dtype_bytes(p->act);
    for (int64_t row = 0; row < count; row++)
        if (memcmp(at(p->act, want, (first + row) * N), at(p->act, got, row * N), bytes))
            return ls_error_set(error, LS_EINVAL, "%s: row %ld has other bits than on one rank",
                                what, (long)(first + row));
    return LS_OK;
}

struct buffers {
    struct ls_ops ops;
    struct ls_tp_scratch scratch;
    void *c, *all;
};

static int buffers_open(struct buffers *b, const struct ls_tp *tp, int64_t rows,
                        struct ls_error *error)
{
    size_t room = (size_t)ls_tp_room(tp, rows);
    b->scratch = (struct ls_tp_scratch){.partial = calloc(room * N, sizeof(float)),
                                        .sum = calloc(room * N, sizeof(float)),
                                        .staging = calloc(room * K, sizeof(float))};
    b->c = calloc(room * N, sizeof(float));
    b->all = calloc(room * K, sizeof(float));
    return ls_ops_init(&b->ops, 1, ls_isa_best(), error);
}

static void buffers_close(struct buffers *b)
{
    free(b->scratch.partial);
    free(b->scratch.sum);
    free(b->scratch.staging);
    free(b->c);
    free(b->all);
    ls_ops_release(&b->ops);
}

/* This rank's columns of A and of B. */
static int reduced_check(const struct product *p, const struct ls_tp *tp, struct buffers *b,
                         struct ls_error *error)
{
    int64_t part = K / tp->size, first = 0, count = p->rows;
    struct ls_gemm gemm = gemm_of(p);
    gemm.k[0] = part;
    gemm.tiles = TILES / tp->size;
    gemm.a = at(p->act, p->a, tp->rank * part);
    gemm.b = at(p->act, p->b, tp->rank * part);
    gemm.c = b->c;
    int status = ls_tp_reduced_product(tp, &b->ops, &gemm, &b->scratch, error);
    if (tp->sequence)
        ls_tp_share(tp, p->rows, &first, &count);
    return status ? status : rows_compare(p, "reduced", p->reduced, b->c, first, count, error);
}

/* All columns: they are cut over ranks by who calls. own in its place among all, or apart. */
static int gathered_check(const struct product *p, const struct ls_tp *tp, struct buffers *b,
                          bool in_place, struct ls_error *error)
{
    int64_t first = 0, count = p->rows, share = ls_tp_room(tp, p->rows) / tp->size;
    struct ls_gemm gemm = gemm_of(p);
    gemm.tiles = 1;
    gemm.c = b->c;
    memset(b->all, 0xff, (size_t)(share * tp->size * K) * ls_dtype_bytes(p->act));
    if (tp->sequence) {
        ls_tp_share(tp, p->rows, &first, &count);
        void *own = in_place ? (void *)at(p->act, b->all, tp->rank * share * K)
                             : malloc((size_t)(share * K) * sizeof(float));
        memcpy(own, at(p->act, p->a, first * K), (size_t)(count * K) * ls_dtype_bytes(p->act));
        gemm.a = own;
    }
    int status = ls_tp_gathered_product(tp, &b->ops, &gemm, b->all, &b->scratch, error);
    if (!status && tp->sequence &&
        memcmp(b->all, p->a, (size_t)(p->rows * K) * ls_dtype_bytes(p->act)))
        status = ls_error_set(error, LS_EINVAL, "the gathered rows are others");
    if (tp->sequence && !in_place)
        free((void *)gemm.a);
    return status ? status : rows_compare(p, "gathered", p->gathered, b->c, 0, p->rows, error);
}

static int rank_run(struct ls_comm *comm, void *user, struct ls_error *error)
{
    const struct product *p = user;
    struct ls_tp tp;
    struct buffers b;
    ls_tp_init(&tp, comm, NULL, p->sequence, p->chunks);
    int status = buffers_open(&b, &tp, p->rows, error);
    if (!status)
        status = reduced_check(p, &tp, &b, error);
    for (int in_place = 0; in_place < 2 && !status; in_place++)
        status = gathered_check(p, &tp, &b, in_place, error);
    status = ls_comm_agree(comm, status, error);
    buffers_close(&b);
    return status;
}

static void operand_fill(enum ls_dtype act, const char *name, int64_t count, void *x)
{
    float *values = calloc((size_t)count, sizeof *values);
    ls_normal_fill(ls_philox_key_of(4, name), 0, count, 0, 1, values);
    for (int64_t i = 0; i < count; i++)
        if (act == LS_BF16)
            ((ls_bf16 *)x)[i] = ls_f32_to_bf16(values[i]);
        else
            ((float *)x)[i] = values[i];
    free(values);
}

static void check_products(enum ls_dtype act, int64_t rows)
{
    static float a[ROWS_MAX * K], b[N * K], bias[N], reduced[ROWS_MAX * N], gathered[ROWS_MAX * N];
    struct product p = {act, rows, false, 1, a, b, bias, reduced, gathered};
    struct ls_error error = {0};
    struct ls_ops ops;
    operand_fill(act, "a", rows * K, a);
    operand_fill(act, "b", N * K, b);
    operand_fill(LS_F32, "bias", N, bias);
    assert_int_equal(ls_ops_init(&ops, 1, ls_isa_best(), &error), LS_OK);
    struct ls_gemm gemm = gemm_of(&p);
    gemm.c = reduced;
    assert_int_equal(ls_gemm_run(&ops, &gemm, &error), LS_OK);
    gemm.tiles = 1;
    gemm.c = gathered;
    assert_int_equal(ls_gemm_run(&ops, &gemm, &error), LS_OK);
    for (int size = 1; size <= 8; size *= 2)
        for (p.chunks = 1; p.chunks <= 4; p.chunks++)
            for (int sequence = 0; sequence < 2; sequence++) {
                p.sequence = sequence;
                if (ls_world_run(size, rank_run, &p, &error))
                    fail_msg("%s, %ld rows, %d ranks%s, %d chunks: %s", ls_dtype_name(act),
                             (long)rows, size, sequence ? " with sequence parallel" : "", p.chunks,
                             error.text);
            }
    ls_ops_release(&ops);
}

CASE(test_products)
{
    for (int act = 0; act < 2; act++) {
        check_products(act ? LS_BF16 : LS_F32, ROWS_MAX);
        check_products(act ? LS_BF16 : LS_F32, 149);
        check_products(act ? LS_BF16 : LS_F32, 5); /* fewer rows than ranks */
    }
}

/* ---- pieces ---------------------------------------------------------------------------------- */

/* A piece is one operation, or two where its rows are gathered behind the sum. */
static int pieces_run(struct ls_comm *comm, void *user, struct ls_error *error)
{
    const struct product *p = user;
    struct ls_comm_stats before, reduced, gathered;
    struct ls_tp tp;
    struct buffers b;
    ls_tp_init(&tp, comm, NULL, p->sequence, p->chunks);
    int status = buffers_open(&b, &tp, p->rows, error);
    ls_comm_get_stats(comm, &before);
    if (!status)
        status = reduced_check(p, &tp, &b, error);
    ls_comm_get_stats(comm, &reduced);
    if (!status)
        status = gathered_check(p, &tp, &b, true, error);
    ls_comm_get_stats(comm, &gathered);
    int64_t sums = reduced.operations - before.operations;
    int64_t rows = gathered.operations - reduced.operations;
    if (!status && (sums != (p->sequence ? p->chunks : 2 * p->chunks) ||
                    rows != (p->sequence ? p->chunks : 0)))
        status = ls_error_set(error, LS_EINVAL, "%d pieces take %ld operations and %ld", p->chunks,
                              (long)sums, (long)rows);
    buffers_close(&b);
    return status;
}

CASE(test_as_many_pieces_as_the_key_takes)
{
    enum { RANKS = 2, ROWS = RANKS * LS_TP_CHUNKS_MAX * 32 };
    static float a[ROWS * K], b[N * K], bias[N], zeros[ROWS * N];
    struct product p = {LS_F32, ROWS, false, LS_TP_CHUNKS_MAX, a, b, bias, zeros, zeros};
    struct ls_error error = {0};
    for (int sequence = 0; sequence < 2; sequence++) {
        p.sequence = sequence;
        if (ls_world_run(RANKS, pieces_run, &p, &error))
            fail_msg("%s", error.text);
    }
}

/* The broken twin: the ranks' sums in rank order are another number. */
CASE(test_rank_order_is_seen)
{
    enum { RANKS = 8, ROWS = 20 };
    static float a[ROWS * K], b[N * K], part[RANKS][ROWS * N], tree[ROWS * N], chain[ROWS * N];
    struct product p = {.act = LS_F32, .rows = ROWS, .a = a, .b = b};
    struct ls_error error = {0};
    struct ls_ops ops;
    operand_fill(LS_F32, "a", ROWS * K, a);
    operand_fill(LS_F32, "b", N * K, b);
    assert_int_equal(ls_ops_init(&ops, 1, ls_isa_best(), &error), LS_OK);
    struct ls_gemm gemm = gemm_of(&p);
    gemm.c = tree;
    assert_int_equal(ls_gemm_run(&ops, &gemm, &error), LS_OK);
    for (int rank = 0; rank < RANKS; rank++) {
        gemm.k[0] = K / RANKS;
        gemm.tiles = TILES / RANKS;
        gemm.a = a + rank * (K / RANKS);
        gemm.b = b + rank * (K / RANKS);
        gemm.c = part[rank];
        assert_int_equal(ls_gemm_run(&ops, &gemm, &error), LS_OK);
    }
    memcpy(chain, part[0], sizeof chain);
    for (int rank = 1; rank < RANKS; rank++)
        ls_tree_add(&ops, ROWS * N, chain, part[rank]);
    assert_memory_not_equal(chain, tree, sizeof tree);
    for (int step = 1; step < RANKS; step *= 2)
        for (int rank = 0; rank < RANKS; rank += 2 * step)
            ls_tree_add(&ops, ROWS * N, part[rank], part[rank + step]);
    assert_memory_equal(part[0], tree, sizeof tree);
    ls_ops_release(&ops);
}

SUITE_MAIN(NULL, NULL)
