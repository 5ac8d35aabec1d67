/* Attention in pieces: queries at an offset, raw gradient sums, ranges of keys with carried state.
 * Each has the bits of one whole call, with a window, documents and a cap too. */
#include "../support/extent.h"
#include "../support/suite.h"
#include "gradient.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 2, TOKENS = 300, HEADS = 4, KV_HEADS = 2, DIM = 40, GROUP = HEADS / KV_HEADS };
enum { WIDTH = HEADS * DIM, KV_WIDTH = KV_HEADS * DIM };

/* Buffers of one call on `tokens` queries and `keys` keys per sequence, dense. */
struct call {
    struct ls_attention a;
    void *q, *k, *v, *o, *d_o, *d_q, *d_k, *d_v;
    float *lse, *d_k_sum, *d_v_sum;
};

/* Rows [first, first + count) of each sequence of `rows` rows. */
static void *rows_of(const struct ls_attention *a, const void *from, int64_t rows, int64_t width,
                     int64_t first, int64_t count)
{
    const size_t row = (size_t)width * ls_dtype_bytes(a->act);
    char *to = values_new((size_t)(BATCH * count) * row);
    for (int64_t b = 0; b < BATCH; b++)
        memcpy(to + (size_t)(b * count) * row,
               (const char *)from + (size_t)(b * rows + first) * row, (size_t)count * row);
    return to;
}

static void outputs_new(struct call *c, int64_t tokens, int64_t keys)
{
    const int64_t bytes = (int64_t)ls_dtype_bytes(c->a.act);
    c->a.tokens = tokens;
    c->a.keys = keys;
    c->a.q = c->q;
    c->a.k = c->k;
    c->a.v = c->v;
    c->a.d_o = c->d_o;
    c->a.o = c->o = values_new((size_t)(BATCH * tokens * WIDTH * bytes));
    c->a.d_q = c->d_q = values_new((size_t)(BATCH * tokens * WIDTH * bytes));
    c->a.d_k = c->d_k = values_new((size_t)(BATCH * keys * KV_WIDTH * bytes));
    c->a.d_v = c->d_v = values_new((size_t)(BATCH * keys * KV_WIDTH * bytes));
    c->a.lse = c->lse = values_new(BATCH * HEADS * (size_t)tokens * sizeof(float));
    c->d_k_sum = values_new((size_t)(BATCH * keys * KV_WIDTH) * sizeof(float));
    c->d_v_sum = values_new((size_t)(BATCH * keys * KV_WIDTH) * sizeof(float));
}

/* Documents that end inside blocks, at a block's end, and one that spans three. */
static const int32_t *documents(void)
{
    static int32_t starts[BATCH * TOKENS];
    static const int32_t firsts[] = {0, 5, 64, 100, 290};
    for (int32_t i = 0; i < BATCH * TOKENS; i++)
        for (int n = 0; n < 5; n++)
            if (firsts[n] <= i % TOKENS)
                starts[i] = firsts[n];
    return starts;
}

static struct call whole_new(enum ls_dtype act, bool masked)
{
    struct call c = {.a = {.batch = BATCH,
                           .heads = HEADS,
                           .kv_heads = KV_HEADS,
                           .head_dim = DIM,
                           .scale = (float)(1 / sqrt(DIM)),
                           .act = act,
                           .q_ld = WIDTH,
                           .kv_ld = KV_WIDTH,
                           .o_ld = WIDTH}};
    c.q = values_normal(1, act, BATCH * TOKENS * WIDTH, 1.5);
    c.k = values_normal(2, act, BATCH * TOKENS * KV_WIDTH, 1.5);
    c.v = values_normal(3, act, BATCH * TOKENS * KV_WIDTH, 1);
    c.d_o = values_normal(4, act, BATCH * TOKENS * WIDTH, 1);
    outputs_new(&c, TOKENS, TOKENS);
    c.a.keys = 0;
    if (masked) {
        c.a.window = 130;
        c.a.softcap = 5;
        c.a.starts = documents();
        c.a.starts_ld = TOKENS;
    }
    return c;
}

/* Queries [first, first + tokens) of each sequence against the first `keys` keys. */
static struct call piece_new(const struct call *whole, int64_t first, int64_t tokens, int64_t keys)
{
    struct call c = {.a = whole->a};
    c.q = rows_of(&c.a, whole->q, TOKENS, WIDTH, first, tokens);
    c.k = rows_of(&c.a, whole->k, TOKENS, KV_WIDTH, 0, keys);
    c.v = rows_of(&c.a, whole->v, TOKENS, KV_WIDTH, 0, keys);
    c.d_o = rows_of(&c.a, whole->d_o, TOKENS, WIDTH, first, tokens);
    outputs_new(&c, tokens, keys);
    c.a.q_first = first;
    return c;
}

static void call_free(struct call *c)
{
    free(c->q), free(c->k), free(c->v), free(c->o), free(c->d_o), free(c->d_q), free(c->d_k);
    free(c->d_v), free(c->lse), free(c->d_k_sum), free(c->d_v_sum);
}

static void must(int status, const struct ls_error *error)
{
    if (status != LS_OK)
        fail_msg("%s", error->text);
}

static void run(struct ls_ops *ops, const struct ls_attention *a)
{
    struct ls_error error = {0};
    must(ls_attention_forward(ops, a, &error), &error);
    must(ls_attention_backward(ops, a, &error), &error);
}

static void with_sums(struct call *c)
{
    c->a.d_k_sum = c->d_k_sum;
    c->a.d_v_sum = c->d_v_sum;
}

static void assert_same(const char *what, const void *got, const void *want, size_t bytes)
{
    for (size_t i = 0; memcmp(got, want, bytes) && i < bytes; i++)
        if (((const char *)got)[i] != ((const char *)want)[i])
            fail_msg("%s: byte %zu of %zu is %#x, in the whole call %#x", what, i, bytes,
                     ((const unsigned char *)got)[i], ((const unsigned char *)want)[i]);
}

/* o, d_q and lse of a piece against those rows of the whole. */
static void assert_rows_same(const char *what, const struct call *piece, const struct call *whole)
{
    const struct ls_attention *a = &piece->a;
    const size_t bytes = (size_t)(BATCH * a->tokens * WIDTH) * ls_dtype_bytes(a->act);
    void *o = rows_of(a, whole->o, TOKENS, WIDTH, a->q_first, a->tokens);
    void *d_q = rows_of(a, whole->d_q, TOKENS, WIDTH, a->q_first, a->tokens);
    assert_same(what, piece->o, o, bytes);
    assert_same(what, piece->d_q, d_q, bytes);
    for (int64_t head = 0; head < BATCH * HEADS; head++)
        assert_same(what, piece->lse + head * a->tokens, whole->lse + head * TOKENS + a->q_first,
                    (size_t)a->tokens * sizeof(float));
    free(o), free(d_q);
}

/* In `make check` plain C, which is slow, in fp32 with a mask alone, in two of the four checks;
 * each other set in one type, with a mask or without, another one in each check. */
static bool is_tried(int isa, int a, int masked, int check)
{
    if (isa == LS_ISA_PLAIN)
        return check_all() || (masked && a == 0 && check % 2);
    return check_pair(a + 4 * masked, 3 * isa + 5 * check, 8);
}

static void for_each_kernel(int number, void (*check)(struct ls_ops *ops, struct call *whole))
{
    for (int isa = LS_ISA_PLAIN; isa <= (int)ls_isa_best(); isa++)
        for (int a = 0; a < 4; a++) {
            static const enum ls_dtype acts[] = {LS_F32, LS_BF16, LS_F16, LS_BF16};
            struct ls_ops ops;
            struct ls_error error = {0};
            must(ls_ops_init(&ops, 2, (enum ls_isa)isa, &error), &error);
            ops.arithmetic = a == 3 ? LS_ARITHMETIC_BF16_PAIRS : LS_ARITHMETIC_FMA;
            for (int masked = 0; masked < 2; masked++) {
                if (!is_tried(isa, a, masked, number))
                    continue;
                struct call whole = whole_new(acts[a], masked);
                run(&ops, &whole.a);
                check(&ops, &whole);
                call_free(&whole);
            }
            ls_ops_release(&ops);
        }
}

/* Room for the two-pass backward only, where there is more than one key block. */
static size_t small_workspace(const struct ls_ops *ops)
{
    return (size_t)ls_min((int64_t)ops->workspace_bytes, 200 << 10);
}

/* ---- queries at an offset -------------------------------------------------------------------- */

/* Pieces that begin and end at blocks and inside of them; with all keys, and with no
 * more than the piece needs. The pieces' sums add up to the whole's (in another order). */
static void check_offset(struct ls_ops *ops, struct call *whole)
{
    static const int64_t cuts[] = {0, 64, 219, TOKENS};
    const size_t room = ops->workspace_bytes, count = BATCH * TOKENS * KV_WIDTH;
    double *want = values_in_double(whole->a.act, whole->d_v, (int64_t)count);
    float *sum = calloc(count, sizeof *sum);
    for (int n = 0; n < 3; n++) {
        const int64_t first = cuts[n], tokens = cuts[n + 1] - first;
        struct call piece = piece_new(whole, first, tokens, TOKENS);
        with_sums(&piece);
        run(ops, &piece.a);
        assert_rows_same("queries at an offset", &piece, whole);
        for (int64_t row = 0; row < BATCH * TOKENS; row++)
            for (int64_t c = 0; c < KV_WIDTH && row % TOKENS >= cuts[n + 1]; c++)
                if (piece.d_k_sum[row * KV_WIDTH + c] != 0 ||
                    piece.d_v_sum[row * KV_WIDTH + c] != 0)
                    fail_msg("key %lld, which no query sees, has a gradient", (long long)row);
        ls_tree_add(ops, (int64_t)count, sum, piece.d_v_sum);
        struct call again = piece_new(whole, first, tokens, TOKENS);
        with_sums(&again);
        ops->workspace_bytes = small_workspace(ops);
        run(ops, &again.a);
        assert_rows_same("queries at an offset, in two passes", &again, whole);
        assert_same("d_k in two passes", again.d_k_sum, piece.d_k_sum, count * sizeof(float));
        assert_same("d_v in two passes", again.d_v_sum, piece.d_v_sum, count * sizeof(float));
        call_free(&again);
        ops->workspace_bytes = room;
        call_free(&piece);
        piece = piece_new(whole, first, tokens - 30, first + tokens - 30);
        run(ops, &piece.a);
        assert_rows_same("a short piece", &piece, whole);
        call_free(&piece);
    }
    assert_near("sums of pieces", LS_F32, sum, want, (int64_t)count,
                whole->a.act == LS_F32 ? 1e-6 : 1e-2);
    free(want), free(sum);
}

CASE(test_queries_at_an_offset)
{
    for_each_kernel(0, check_offset);
}

/* ---- raw gradient sums ----------------------------------------------------------------------- */

/* Sums, then finish, are the fused gradients; in one pass and in two; rows of d_k at a distance. */
static void check_sums(struct ls_ops *ops, struct call *whole)
{
    enum { LD = KV_WIDTH + 24 };
    const size_t bytes = ls_dtype_bytes(whole->a.act), room = ops->workspace_bytes;
    char *d_k = values_new(BATCH * TOKENS * LD * bytes),
         *d_v = values_new(BATCH * TOKENS * LD * bytes);
    for (int passes = 1; passes <= 2; passes++) {
        struct call again = piece_new(whole, 0, TOKENS, TOKENS);
        with_sums(&again);
        ops->workspace_bytes = passes == 2 ? small_workspace(ops) : room;
        run(ops, &again.a);
        ls_attention_kv_finish(ops, &(struct ls_kv_gradient){whole->a.act, BATCH * TOKENS, KV_WIDTH,
                                                             LD, whole->a.scale, again.d_k_sum,
                                                             again.d_v_sum, d_k, d_v});
        for (size_t row = 0; row < BATCH * TOKENS; row++) {
            assert_same("d_k from its sum", d_k + row * LD * bytes,
                        (char *)whole->d_k + row * KV_WIDTH * bytes, KV_WIDTH * bytes);
            assert_same("d_v from its sum", d_v + row * LD * bytes,
                        (char *)whole->d_v + row * KV_WIDTH * bytes, KV_WIDTH * bytes);
        }
        call_free(&again);
    }
    ops->workspace_bytes = room;
    free(d_k), free(d_v);
}

CASE(test_sums_are_the_gradients_before_rounding)
{
    for_each_kernel(1, check_sums);
}

/* Key/value head g and heads [first, first + GROUP / 2) of its group, as a rank has them that
 * shares the head with another. */
static void half_group(struct ls_ops *ops, const struct call *whole, int64_t g, int64_t first,
                       float *d_k_sum, float *d_v_sum)
{
    const size_t bytes = ls_dtype_bytes(whole->a.act), kv = (size_t)(g * DIM) * bytes;
    const size_t at = (size_t)((g * GROUP + first) * DIM) * bytes;
    struct ls_attention a = whole->a;
    a.heads = GROUP / 2;
    a.kv_heads = 1;
    a.q = (char *)whole->q + at;
    a.o = (char *)whole->o + at;
    a.d_o = (char *)whole->d_o + at;
    a.k = (char *)whole->k + kv;
    a.v = (char *)whole->v + kv;
    a.lse = values_new(BATCH * TOKENS * HEADS * sizeof(float));
    a.d_q = values_new(BATCH * TOKENS * WIDTH * bytes);
    a.d_k_sum = d_k_sum;
    a.d_v_sum = d_v_sum;
    run(ops, &a);
    free(a.lse), free(a.d_q);
}

static void check_halves(struct ls_ops *ops, struct call *whole)
{
    enum { COUNT = BATCH * TOKENS * DIM };
    const size_t bytes = ls_dtype_bytes(whole->a.act);
    float *sum[4];
    for (int i = 0; i < 4; i++)
        sum[i] = values_new(COUNT * sizeof(float));
    char *d_k = values_new(COUNT * bytes), *d_v = values_new(COUNT * bytes);
    for (size_t g = 0; g < KV_HEADS; g++) {
        half_group(ops, whole, (int64_t)g, 0, sum[0], sum[1]);
        half_group(ops, whole, (int64_t)g, GROUP / 2, sum[2], sum[3]);
        ls_tree_add(ops, COUNT, sum[0], sum[2]);
        ls_tree_add(ops, COUNT, sum[1], sum[3]);
        ls_attention_kv_finish(ops,
                               &(struct ls_kv_gradient){whole->a.act, BATCH * TOKENS, DIM, DIM,
                                                        whole->a.scale, sum[0], sum[1], d_k, d_v});
        for (size_t row = 0; row < BATCH * TOKENS; row++) {
            const size_t at = (row * KV_WIDTH + g * DIM) * bytes;
            assert_same("d_k of two halves of a group", d_k + row * DIM * bytes,
                        (char *)whole->d_k + at, DIM * bytes);
            assert_same("d_v of two halves of a group", d_v + row * DIM * bytes,
                        (char *)whole->d_v + at, DIM * bytes);
        }
    }
    for (int i = 0; i < 4; i++)
        free(sum[i]);
    free(d_k), free(d_v);
}

CASE(test_halves_of_a_group_add_up)
{
    for_each_kernel(2, check_halves);
}

/* ---- ranges of keys -------------------------------------------------------------------------- */

/* The piece's op for keys [first, first + count), whose rows are copied: K and V of the others are
 * not there. */
struct range {
    struct ls_attention a;
    void *k, *v, *d_k, *d_v;
};

static struct range range_new(const struct call *piece, const struct call *whole, int64_t first,
                              int64_t count)
{
    const size_t bytes = (size_t)(BATCH * count * KV_WIDTH) * ls_dtype_bytes(piece->a.act);
    struct range r = {.a = piece->a,
                      .k = rows_of(&piece->a, whole->k, TOKENS, KV_WIDTH, first, count),
                      .v = rows_of(&piece->a, whole->v, TOKENS, KV_WIDTH, first, count),
                      .d_k = values_new(bytes),
                      .d_v = values_new(bytes)};
    r.a.keys = count;
    r.a.k = r.k;
    r.a.v = r.v;
    r.a.d_k = r.d_k;
    r.a.d_v = r.d_v;
    return r;
}

static void range_free(struct range *r)
{
    free(r->k), free(r->v), free(r->d_k), free(r->d_v);
}

static const int64_t ranges[] = {0, 64, 192, 256, TOKENS};
enum { RANGES = 4 };

/* Both directions of a piece through all ranges. d_k and d_v of each range must be those of `want`,
 * the same piece in one call. */
static void run_ranges(struct ls_ops *ops, struct call *piece, const struct call *whole,
                       const struct call *want)
{
    struct ls_error error = {0};
    const size_t bytes = ls_round_up((int64_t)ls_attention_state_bytes(ops, &piece->a), 64);
    float *state = aligned_alloc(64, bytes);
    memset(state, 0x5a, bytes);
    for (int n = 0; n < RANGES; n++) {
        const int64_t first = ranges[n], count = ranges[n + 1] - first;
        struct range r = range_new(piece, whole, first, count);
        must(ls_attention_forward_part(ops, &r.a, first, count, state, &error), &error);
        range_free(&r);
    }
    must(ls_attention_forward_finish(ops, &piece->a, state, &error), &error);
    memset(state, 0x5a, bytes);
    for (int n = 0; n < RANGES; n++) {
        const int64_t first = ranges[n], count = ranges[n + 1] - first;
        const size_t size = (size_t)(BATCH * count * KV_WIDTH) * ls_dtype_bytes(piece->a.act);
        struct range r = range_new(piece, whole, first, count);
        void *d_k = rows_of(&piece->a, want->d_k, TOKENS, KV_WIDTH, first, count);
        void *d_v = rows_of(&piece->a, want->d_v, TOKENS, KV_WIDTH, first, count);
        must(ls_attention_backward_part(ops, &r.a, first, count, state, &error), &error);
        assert_same("d_k of a range", r.d_k, d_k, size);
        assert_same("d_v of a range", r.d_v, d_v, size);
        free(d_k), free(d_v);
        range_free(&r);
    }
    must(ls_attention_backward_finish(ops, &piece->a, state, &error), &error);
    free(state);
}

/* All queries; then a hundred from the middle of a block, for which some ranges lie in the future.
 */
static void check_ranges(struct ls_ops *ops, struct call *whole)
{
    const size_t room = ops->workspace_bytes;
    for (int passes = 1; passes <= 2; passes++)
        for (int middle = 0; middle < 2; middle++) {
            struct call want = piece_new(whole, middle ? 77 : 0, middle ? 100 : TOKENS, TOKENS);
            struct call piece = piece_new(whole, middle ? 77 : 0, middle ? 100 : TOKENS, TOKENS);
            run(ops, &want.a);
            ops->workspace_bytes = passes == 2 ? small_workspace(ops) : room;
            run_ranges(ops, &piece, whole, &want);
            ops->workspace_bytes = room;
            const size_t bytes =
                (size_t)(BATCH * piece.a.tokens * WIDTH) * ls_dtype_bytes(piece.a.act);
            assert_same("o through ranges", piece.o, want.o, bytes);
            assert_same("d_q through ranges", piece.d_q, want.d_q, bytes);
            assert_same("lse through ranges", piece.lse, want.lse,
                        (size_t)(BATCH * HEADS * piece.a.tokens) * sizeof(float));
            call_free(&want), call_free(&piece);
        }
}

CASE(test_ranges_of_keys)
{
    for_each_kernel(3, check_ranges);
}

/* The twin: a ring that takes ranges as they come gives other bits, which is why order is asked
 * for. Queries of the last block; the ranges before it in descending order. */
CASE(test_order_of_ranges_matters)
{
    struct call whole = whole_new(LS_F32, false);
    struct call piece = piece_new(&whole, 256, TOKENS - 256, TOKENS);
    struct ls_error error = {0};
    const size_t bytes = ls_round_up((int64_t)ls_attention_state_bytes(&ops_best, &piece.a), 64);
    float *carried = aligned_alloc(64, bytes);
    static const int order[RANGES] = {0, 2, 1, 3};
    run(&ops_best, &whole.a);
    for (int n = 0; n < RANGES; n++) {
        const int64_t first = ranges[order[n]], count = ranges[order[n] + 1] - first;
        struct range r = range_new(&piece, &whole, first, count);
        must(ls_attention_forward_part(&ops_best, &r.a, first, count, carried, &error), &error);
        range_free(&r);
    }
    must(ls_attention_forward_finish(&ops_best, &piece.a, carried, &error), &error);
    void *want = rows_of(&whole.a, whole.o, TOKENS, WIDTH, 256, TOKENS - 256);
    assert_memory_not_equal(piece.o, want, BATCH * (TOKENS - 256) * WIDTH * sizeof(float));
    double *want64 = values_in_double(LS_F32, want, BATCH * (TOKENS - 256) * WIDTH);
    assert_near("ranges in another order", LS_F32, piece.o, want64, BATCH * (TOKENS - 256) * WIDTH,
                1e-5);
    free(want), free(want64), free(carried);
    call_free(&piece), call_free(&whole);
}

/* ---- bad arguments --------------------------------------------------------------------------- */

static void expect(int status, const struct ls_error *error, const char *part)
{
    assert_int_equal(status, LS_EINVAL);
    if (!strstr(error->text, part))
        fail_msg("\"%s\" does not name \"%s\"", error->text, part);
}

CASE(test_refusals)
{
    struct call whole = whole_new(LS_F32, false);
    struct ls_attention a = whole.a;
    struct ls_error error = {0};
    float *none = NULL;
    a.keys = TOKENS;
    a.q_first = -1;
    expect(ls_attention_forward(&ops_best, &a, &error), &error, "queries begin at position -1");
    a.q_first = 64;
    expect(ls_attention_forward(&ops_best, &a, &error), &error, "need 364 or more");
    a.q_first = 0;
    a.d_v_sum = whole.d_v_sum;
    expect(ls_attention_backward(&ops_best, &a, &error), &error, "d_v_sum without d_k_sum");
    a.d_v_sum = NULL;
    expect(ls_attention_forward_part(&ops_best, &a, 100, 64, none, &error), &error,
           "keys begin at position 100");
    expect(ls_attention_forward_part(&ops_best, &a, 64, 301, none, &error), &error, "301 keys");
    expect(ls_attention_forward_part(&ops_best, &a, 64, 0, none, &error), &error, "0 keys");
    expect(ls_attention_backward_part(&ops_best, &a, 64, 100, none, &error), &error,
           "a part of 100 keys");
    a.head_dim = 12;
    expect(ls_attention_forward_finish(&ops_best, &a, none, &error), &error, "head dim 12");
    expect(ls_attention_backward_finish(&ops_best, &a, none, &error), &error, "head dim 12");
    call_free(&whole);
}

SUITE_MAIN(ops_best_setup, ops_best_teardown)
