/* What ops tell of their work: each once, idle or not, what its formula says. */
#include "../support/suite.h"
#include "every_op.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- watching -------------------------------------------------------------------------------- */

enum { TOLD_MAX = 64 };
struct told {
    struct ls_work work[TOLD_MAX];
    int begun, ended;
};

static void told_begin(void *user, const struct ls_queue *queue, const struct ls_command *command)
{
    struct told *told = user;
    struct ls_work work;
    if (!ls_command_work(command, &work))
        return;
    assert_int_equal(queue->pass, LS_WORK_PASS_NONE); /* nobody said */
    if (told->begun != told->ended)
        fail_msg("%s begins inside another op", ls_work_name(work.kind));
    assert_true(told->begun < TOLD_MAX);
    told->work[told->begun++] = work;
}

static bool work_same(const struct ls_work *a, const struct ls_work *b)
{
    return a->kind == b->kind && a->dtype == b->dtype && a->m == b->m && a->n == b->n &&
           a->k == b->k && a->flops == b->flops && a->bytes == b->bytes;
}

static void told_end(void *user, const struct ls_queue *queue, const struct ls_command *command)
{
    struct told *told = user;
    struct ls_work work;
    (void)queue;
    if (!ls_command_work(command, &work))
        return;
    assert_int_equal(told->ended, told->begun - 1);
    assert_true(work_same(&work, &told->work[told->ended]));
    told->ended++;
}

/* ---- memory for every op --------------------------------------------------------------------- */

enum { BUFFERS = 32 };
static unsigned char *buffers; /* BUFFERS x EVERY_OP_BYTES, of zeros */
static int taken;

static void *next_buffer(void)
{
    assert_true(taken < BUFFERS);
    return buffers + (size_t)taken++ * EVERY_OP_BYTES;
}

static int buffers_setup(void **state)
{
    buffers = aligned_alloc(4096, (size_t)BUFFERS * EVERY_OP_BYTES);
    every_op_at = next_buffer;
    return buffers == NULL;
}

static int buffers_teardown(void **state)
{
    free(buffers);
    return 0;
}

/* What that call of an op tells; ops->queue.watch is as it was then. */
static struct told told_by(struct ls_ops *ops, const struct every_op *op)
{
    struct told told = {0};
    const struct ls_queue_watch watch = {told_begin, told_end, &told};
    for (int i = 0; i < taken; i++)
        memset(buffers + (size_t)i * EVERY_OP_BYTES, 0, EVERY_OP_BYTES);
    taken = 0;
    ops->queue.watch = &watch;
    if (op->run(ops))
        fail_msg("%s refuses", op->name);
    ops->queue.watch = NULL;
    assert_int_equal(told.begun, told.ended);
    return told;
}

/* ---- what each tells --------------------------------------------------------------------------
 *
 * Of every_op.c's calls. Bytes are those of the buffers that the header names, each once, a buffer
 * that is updated twice; statistics and other vectors of a matrix are left out. Operations of
 * elementwise ops are a convention: 0 to 32 an element.
 */

enum { N = EVERY_OP_N, D = 8, F = 4, H = 2 };  /* bytes of a float, of a half */
static const double pairs = N * (N + 1) / 2.0; /* of a query and a key that it sees */

#define CONVENTION (-1.0)
static const struct {
    const char *name;
    enum ls_work_kind kind;
    enum ls_dtype dtype;
    int64_t m, n, k;
    double flops, bytes;
} expected[] = {
    {"ls_gelu_forward", LS_WORK_ACTIVATION, LS_F32, N, 1, 1, CONVENTION, N *(F + F)},
    {"ls_gelu_backward", LS_WORK_ACTIVATION_BACKWARD, LS_F32, N, 1, 1, CONVENTION, N * 3 * F},
    {"ls_glu_forward", LS_WORK_ACTIVATION, LS_F32, 1, N, 1, CONVENTION, N * 3 * F},
    {"ls_glu_backward", LS_WORK_ACTIVATION_BACKWARD, LS_F32, 1, N, 1, CONVENTION, N * 5 * F},
    {"ls_softcap", LS_WORK_ACTIVATION, LS_F32, N, 1, 1, CONVENTION, N * 2 * F},
    {"ls_scale", LS_WORK_ADD, LS_F32, N, 1, 1, N, N * 2 * F},
    {"ls_bias_backward", LS_WORK_COLUMN_SUM, LS_F32, N, 1, 1, N, N *F},
    {"ls_add", LS_WORK_ADD, LS_F32, N, 1, 1, N, N * 3 * F},
    {"ls_bias_round", LS_WORK_ADD, LS_F32, 1, N, 1, N, N * 2 * F},
    {"ls_dropout", LS_WORK_DROPOUT, LS_F32, 1, N, 1, CONVENTION, N * 2 * F},
    {"ls_cast_to_half", LS_WORK_CAST, LS_F32, N, 1, 1, 0, N *(F + H)},
    {"ls_cast_from_half", LS_WORK_CAST, LS_F32, N, 1, 1, 0, N *(F + H)},
    {"ls_tree_add", LS_WORK_ADD, LS_F32, N, 1, 1, N, N * 3 * F},
    {"ls_rank_sum_run", LS_WORK_ADD, LS_F32, N, 1, 1, 3 * N, N * 5 * F},
    {"ls_fill_zero", LS_WORK_FILL, LS_U8, N, 1, 1, 0, N},
    {"ls_copy", LS_WORK_COPY, LS_U8, N, 1, 1, 0, 2 * N},
    {"ls_copy_rows", LS_WORK_COPY, LS_U8, N, 4, 1, 0, 2 * N * 4},
    {"ls_embedding_forward", LS_WORK_EMBEDDING, LS_F32, 1, N, 1, N, N * 3 * F},
    {"ls_embedding_gather", LS_WORK_EMBEDDING, LS_F32, 1, N, 1, 0, N * 2 * F},
    {"ls_embedding_finish", LS_WORK_ADD, LS_F32, 1, N, 1, N, N * 3 * F},
    {"ls_embedding_backward", LS_WORK_EMBEDDING_BACKWARD, LS_F32, 1, N, 1, N,
     N *F + (double)N *N *F}, /* all of the table's gradient is written */
    {"ls_position_backward", LS_WORK_COLUMN_SUM, LS_F32, N, N, 1, N *N, N *N *F},
    {"ls_cross_entropy", LS_WORK_LOSS, LS_F32, N, N, 1, CONVENTION, 3 * N *N *F},
    {"ls_cross_entropy_max", LS_WORK_LOSS, LS_F32, N, N, 1, CONVENTION, N *N *F},
    {"ls_cross_entropy_sum", LS_WORK_LOSS, LS_F32, N, N, 1, CONVENTION, N *N *F},
    {"ls_cross_entropy_place", LS_WORK_LOSS, LS_F32, N, N, 1, CONVENTION, N *N *F},
    {"ls_cross_entropy_finish", LS_WORK_LOSS, LS_F32, N, N, 1, CONVENTION, 2 * N *N *F},
    {"ls_entropy", LS_WORK_LOSS, LS_F32, N, 1, 1, CONVENTION, 3 * N *F},
    {"ls_layernorm_forward", LS_WORK_NORM, LS_F32, 1, N, 1, CONVENTION, N * 4 * F},
    {"ls_rmsnorm_forward", LS_WORK_NORM, LS_F32, 1, N, 1, CONVENTION, N * 4 * F},
    {"ls_layernorm_backward_input", LS_WORK_NORM_BACKWARD, LS_F32, 1, N, 1, CONVENTION, N * 4 * F},
    {"ls_rmsnorm_backward_input", LS_WORK_NORM_BACKWARD, LS_F32, 1, N, 1, CONVENTION, N * 4 * F},
    {"ls_layernorm_backward_weight", LS_WORK_COLUMN_SUM, LS_F32, 1, N, 1, CONVENTION, N * 2 * F},
    {"ls_rmsnorm_backward_weight", LS_WORK_COLUMN_SUM, LS_F32, 1, N, 1, CONVENTION, N * 2 * F},
    {"ls_rmsnorm_heads_weight", LS_WORK_COLUMN_SUM, LS_F32, 1, N, 1, CONVENTION, N * 2 * F},
    {"ls_rmsnorm_cut_sum", LS_WORK_COLUMN_SUM, LS_F32, 1, N, 1, CONVENTION, N *F},
    {"ls_rmsnorm_cut_finish", LS_WORK_NORM, LS_F32, 1, N, 1, CONVENTION, N * 2 * F},
    {"ls_rope_apply", LS_WORK_ROPE, LS_F32, 1, D, 1, 3 * D, D * 2 * F},
    /* Master and its half, gradient and a second one; and moments. */
    {"ls_adamw_update", LS_WORK_UPDATE, LS_F32, N, 1, 1, CONVENTION,
     N *(2 * F + H + 2 * F + 4 * F)},
    {"ls_sgd_update", LS_WORK_UPDATE, LS_F32, N, 1, 1, CONVENTION, N *(2 * F + H + 2 * F + 2 * F)},
    {"ls_lion_update", LS_WORK_UPDATE, LS_F32, N, 1, 1, CONVENTION, N *(2 * F + H + 2 * F + 2 * F)},
    {"ls_muon_momentum", LS_WORK_UPDATE, LS_F32, N, 1, 1, CONVENTION, N *(F + 2 * F + F)},
    {"ls_muon_update", LS_WORK_UPDATE, LS_F32, N, 1, 1, CONVENTION, N *(2 * F + H + F)},
    {"ls_squared_norm", LS_WORK_SQUARES, LS_F32, N, 1, 1, 2 * N, N * 2 * F},
    {"ls_delta_amax", LS_WORK_SQUARES, LS_F32, N, 1, 1, 2 * N, N * 2 * F},
    {"ls_delta_encode", LS_WORK_CAST, LS_F32, N, 1, 1, N, N *(2 * F + 1)},
    {"ls_delta_sum", LS_WORK_ADD, LS_I8, N, 1, 1, 2 * N, N *(3 + 2)},
    {"ls_delta_decode", LS_WORK_CAST, LS_F32, N, 1, 1, N, N *(2 + F)},
    {"ls_mix", LS_WORK_ADD, LS_F32, N, 1, 1, 3 * N, N * 3 * F},
    {"ls_compensate", LS_WORK_UPDATE, LS_F32, N, 1, 1, 5 * N, N * 4 * F},
    {"ls_attention_kv_finish", LS_WORK_CAST, LS_F32, 1, 2 * D, 1, 2 * D, 2 * D * 2 * F},
    /* 2 products of D for each pair; q, o and k, v. */
    {"ls_attention_forward", LS_WORK_ATTENTION, LS_F32, N, 33, D, 0, 4 * N *D *F},
    {"ls_attention_forward_part", LS_WORK_ATTENTION, LS_F32, N, 33, D, 0, 4 * N *D *F},
    {"ls_attention_forward_finish", LS_WORK_CAST, LS_F32, N, D, 1, N *D, N *D * 2 * F},
    /* 5 of them; q, o and their gradients; k, v and theirs. */
    {"ls_attention_backward", LS_WORK_ATTENTION_BACKWARD, LS_F32, N, 33, D, 0, 8 * N *D *F},
    {"ls_attention_backward_part", LS_WORK_ATTENTION_BACKWARD, LS_F32, N, 33, D, 0, 8 * N *D *F},
    {"ls_attention_backward_finish", LS_WORK_CAST, LS_F32, N, D, 1, N *D, N *D * 2 * F},
    {"ls_attention_decode", LS_WORK_ATTENTION, LS_F32, 1, N, D, 4 * N *D, 2 * N *D *F},
    {"ls_int8_quantize", LS_WORK_CAST, LS_F32, 1, N, 1, CONVENTION, N *(F + 1)},
    {"ls_gemm_run", LS_WORK_PRODUCT, LS_F32, D, D, D, 2 * D *D *D, 3 * D *D *F},
};

/* Those that tell nothing are small. And one is made of others. */
static const char *const quiet[] = {"ls_loss_sum", "ls_iota"};
static const char made_of_others[] = "ls_newton_schulz";

static void check_told(const struct every_op *op, const struct told *told)
{
    for (size_t i = 0; i < sizeof quiet / sizeof *quiet; i++)
        if (strcmp(op->name, quiet[i]) == 0) {
            assert_int_equal(told->begun, 0);
            return;
        }
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        if (strcmp(op->name, expected[i].name) != 0)
            continue;
        const struct ls_work *work = &told->work[0];
        double flops = expected[i].flops, elements = (double)work->m * (double)work->n;
        if (flops == 0 && (work->kind == LS_WORK_ATTENTION))
            flops = 4 * pairs * D;
        if (flops == 0 && (work->kind == LS_WORK_ATTENTION_BACKWARD))
            flops = 10 * pairs * D;
        bool good = flops == CONVENTION ? work->flops >= elements && work->flops <= 32 * elements
                                        : work->flops == flops;
        if (told->begun != 1 || work->kind != expected[i].kind ||
            work->dtype != expected[i].dtype || work->m != expected[i].m ||
            work->n != expected[i].n || work->k != expected[i].k || !good ||
            work->bytes != expected[i].bytes)
            fail_msg("%s tells %d works, the first %s %s %lld x %lld x %lld, %g operations, %g "
                     "bytes; expected one, %g operations (-1: some), %g bytes",
                     op->name, told->begun, ls_work_name(work->kind), ls_dtype_name(work->dtype),
                     (long long)work->m, (long long)work->n, (long long)work->k, work->flops,
                     work->bytes, flops, expected[i].bytes);
        return;
    }
    if (strcmp(op->name, made_of_others) != 0)
        fail_msg("%s: not in this test; what does it tell?", op->name);
    /* Five iterations of three products. */
    int products = 0;
    for (int i = 0; i < told->begun; i++)
        products += told->work[i].kind <= LS_WORK_PRODUCT_AT;
    assert_int_equal(products, 15);
}

CASE(test_each_tells_once)
{
    struct ls_ops idle, live;
    ls_ops_init_idle(&idle, LS_ISA_PLAIN);
    assert_int_equal(ls_ops_init(&live, 2, LS_ISA_PLAIN, NULL), LS_OK);
    for (int i = 0; i < every_op_count; i++) {
        struct told of_idle = told_by(&idle, &every_op[i]), of_live = told_by(&live, &every_op[i]);
        check_told(&every_op[i], &of_idle);
        check_told(&every_op[i], &of_live);
        assert_int_equal(of_idle.begun, of_live.begun);
        for (int w = 0; w < of_live.begun; w++)
            if (!work_same(&of_idle.work[w], &of_live.work[w]))
                fail_msg("%s tells another work where it is idle", every_op[i].name);
    }
    ls_ops_release(&live);
    ls_ops_release(&idle);
}

/* Every op here is one of the table's: no name is misspelt, or gone. */
CASE(test_names_are_ops)
{
    int known = 0;
    for (size_t e = 0; e < sizeof expected / sizeof *expected; e++)
        for (int i = 0; i < every_op_count; i++)
            known += strcmp(every_op[i].name, expected[e].name) == 0;
    assert_int_equal(known, sizeof expected / sizeof *expected);
}

/* ---- shapes ---------------------------------------------------------------------------------- */

static struct ls_work gemm_told(const struct ls_gemm *gemm)
{
    struct ls_ops idle;
    struct told told = {0};
    const struct ls_queue_watch watch = {told_begin, told_end, &told};
    struct ls_error error = {0};
    ls_ops_init_idle(&idle, LS_ISA_PLAIN);
    idle.queue.watch = &watch;
    assert_ok(ls_gemm_run(&idle, gemm, &error), error);
    assert_int_equal(told.begun, 1);
    return told.work[0];
}

CASE(test_products)
{
    struct ls_gemm gemm = {.m = 6, .n = 10, .sections = 2, .k = {8, 24}, .tiles = 4};
    gemm.in = LS_BF16;
    gemm.out = LS_F32;
    gemm.lda = gemm.ldb = gemm.ldc = 32;
    struct ls_work work = gemm_told(&gemm);
    assert_true(work.kind == LS_WORK_PRODUCT && work.dtype == LS_BF16);
    assert_true(work.m == 6 && work.n == 10 && work.k == 32 && work.flops == 2 * 6 * 10 * 32);
    assert_true(work.bytes == (6 * 32 + 32 * 10) * H + 6 * 10 * F);
    gemm.onto = LS_ONTO_SUM; /* C is read too */
    assert_true(gemm_told(&gemm).bytes == (6 * 32 + 32 * 10) * H + 2 * 6 * 10 * F);
    gemm.b_transposed = true;
    assert_int_equal(gemm_told(&gemm).kind, LS_WORK_PRODUCT_BT);
    gemm.b_transposed = false;
    gemm.a_transposed = true;
    assert_int_equal(gemm_told(&gemm).kind, LS_WORK_PRODUCT_AT);
}

/* Pairs, counted one by one, of pieces of the queries and ranges of the keys. */
CASE(test_attention_counts_what_is_seen)
{
    static const int64_t cases[][4] = {/* queries: first, count; keys: first, count */
                                       {0, 256, 0, 256},   {128, 128, 0, 256}, {128, 128, 0, 128},
                                       {128, 64, 128, 64}, {64, 192, 128, 64}, {0, 256, 64, 128},
                                       {0, 100, 64, 36},   {192, 64, 64, 64},  {0, 64, 128, 64},
                                       {64, 100, 64, 100}};
    static const int64_t windows[] = {1, 50, 64, 100, 300};
    for (size_t i = 0; i < 6 * sizeof cases / sizeof *cases; i++) {
        const int64_t *c = cases[i / 6], n = (int64_t)i % 6;
        const int64_t window = n ? windows[n - 1] : 0;
        double seen = 0;
        for (int64_t q = c[0]; q < c[0] + c[1]; q++)
            for (int64_t k = c[2]; k < c[2] + c[3]; k++)
                seen += k <= q && (!window || k > q - window);
        struct ls_ops idle;
        struct told told = {0};
        struct ls_error error = {0};
        const struct ls_queue_watch watch = {told_begin, told_end, &told};
        struct ls_attention a = {.batch = 2,
                                 .tokens = c[1],
                                 .heads = 4,
                                 .kv_heads = 2,
                                 .head_dim = 16,
                                 .scale = 1,
                                 .act = LS_BF16,
                                 .q_ld = 64,
                                 .kv_ld = 32,
                                 .o_ld = 64,
                                 .keys = c[3],
                                 .q_first = c[0],
                                 .window = window};
        ls_ops_init_idle(&idle, LS_ISA_PLAIN);
        idle.queue.watch = &watch;
        if (ls_attention_forward_part(&idle, &a, c[2], c[3], NULL, &error) ||
            ls_attention_backward_part(&idle, &a, c[2], c[3], NULL, &error))
            fail_msg("case %zu: %s", i, error.text);
        assert_int_equal(told.begun, 2);
        if (told.work[0].flops != 4 * 2 * 4 * seen * 16 ||
            told.work[1].flops != 2.5 * told.work[0].flops)
            fail_msg("case %zu: %g and %g operations, expected those of %g pairs", i,
                     told.work[0].flops, told.work[1].flops, seen);
        assert_int_equal(told.work[0].m, 2 * 4 * c[1]);
        assert_int_equal(told.work[0].n, (int64_t)ceil(seen / (double)c[1]));
    }
}

/* Names go both ways. */
CASE(test_kinds_have_names)
{
    for (int kind = 0; kind < LS_WORK_KINDS; kind++)
        assert_int_equal(ls_work_of_name(ls_work_name((enum ls_work_kind)kind)), kind);
    assert_int_equal(ls_work_of_name("produkt"), -1);
}

SUITE_MAIN(buffers_setup, buffers_teardown)
