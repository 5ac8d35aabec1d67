/* Ops that go through the motions: each of them, on buffers that nobody may touch. */
#include <lockstep/ops.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- every op, once ---------------------------------------------------------------------------
 */

enum { N = 64, BYTES = 1 << 20 };
static void *at; /* BYTES that fault */

static const struct ls_token_sum sum = {1, 1, 1, N, LS_ONTO_NOTHING};
static const struct ls_cross_entropy loss = {N, N, N, 1, LS_F32, 1, 0};

static struct ls_attention attention(void)
{
    return (struct ls_attention){1, N,  1,  1,  8,  1,  LS_F32, at, at, at, 8, 8,
                                 8, at, at, at, at, at, at,     N,  0,  at, at};
}

#define OP(name, arguments)                                                                        \
    static int run_##name(struct ls_ops *ops)                                                      \
    {                                                                                              \
        name arguments;                                                                            \
        return LS_OK;                                                                              \
    }
#define CHECKED_OP(name, arguments)                                                                \
    static int run_##name(struct ls_ops *ops)                                                      \
    {                                                                                              \
        const struct ls_attention a = attention();                                                 \
        (void)a;                                                                                   \
        return name arguments;                                                                     \
    }
#define NORM      (&(struct ls_norm){1, N, LS_F32, 1e-5f, at, at, at, at})
#define EMBEDDING (&(struct ls_embedding){LS_F32, 1, N, at, 0, N, at, 0, 1, at})
#define UPDATE    (&(struct ls_update){N, at, at, LS_F16, at, at, 1, 1, 1, LS_F32, {.step = 1}})

OP(ls_gelu_forward, (ops, LS_GELU_TANH, LS_F32, N, at, at))
OP(ls_gelu_backward, (ops, LS_GELU_TANH, LS_F32, N, at, at, at))
OP(ls_swiglu_forward, (ops, LS_F32, 1, N, at, at))
OP(ls_swiglu_backward, (ops, LS_F32, 1, N, at, at, at))
OP(ls_bias_backward, (ops, LS_F32, 1, 1, at, &sum, at))
OP(ls_add, (ops, LS_F32, N, at, at, at))
OP(ls_bias_round, (ops, LS_F32, 1, N, at, at, at))
OP(ls_dropout, (ops, LS_F32, &(struct ls_dropout){{{1, 2}}, 0.5f, 1, N, 0}, at, at))
OP(ls_cast_to_half, (ops, LS_F16, N, at, at))
OP(ls_cast_from_half, (ops, LS_F16, N, at, at))
OP(ls_tree_add, (ops, N, at, at))
OP(ls_fill_zero, (ops, N, at))
OP(ls_fill, (ops, N, 7, at))
OP(ls_filled, (ops, N, 7, at))
OP(ls_copy, (ops, N, at, at))
OP(ls_copy_rows, (ops, N, 4, at, 8, at, 8))
OP(ls_embedding_forward, (ops, EMBEDDING, at))
OP(ls_embedding_gather, (ops, EMBEDDING, at))
OP(ls_embedding_finish, (ops, EMBEDDING, at, at))
OP(ls_embedding_backward, (ops, EMBEDDING, at, &sum, (struct ls_embedding_scratch){at, at}, at))
OP(ls_position_backward, (ops, LS_F32, N, at, &sum, 0, N, at))
OP(ls_cross_entropy, (ops, &loss, at, at, at))
OP(ls_cross_entropy_max, (ops, &loss, at, at))
OP(ls_cross_entropy_sum, (ops, &loss, at, at, at, at, at))
OP(ls_cross_entropy_finish, (ops, &loss, at, at, at, at, at, at))
OP(ls_loss_sum, (ops, at, 1, 1, N, at))
OP(ls_layernorm_forward, (ops, NORM, at, at, at, at))
OP(ls_rmsnorm_forward, (ops, NORM, at, at, at, at))
OP(ls_layernorm_backward_input, (ops, NORM, at, at, at, at))
OP(ls_rmsnorm_backward_input, (ops, NORM, at, at, at, at))
OP(ls_layernorm_backward_weight,
   (ops, NORM, at, at, &(struct ls_token_sum){1, 1, 1, 1, LS_ONTO_NOTHING}, at, at))
OP(ls_rmsnorm_backward_weight,
   (ops, NORM, at, at, &(struct ls_token_sum){1, 1, 1, 1, LS_ONTO_NOTHING}, at))
OP(ls_rope_apply, (ops, LS_F32, &(struct ls_rope){1, 1, 1, 8, 8, 0, at, at}, at, false))
OP(ls_adamw_update, (ops, UPDATE, &(struct ls_adamw){0.9f, 0.9f, 1e-8f, 1}, at, at))
OP(ls_sgd_update, (ops, UPDATE, &(struct ls_sgd){0.9f, false, 1}, at))
OP(ls_lion_update, (ops, UPDATE, &(struct ls_lion){0.9f, 0.9f}, at))
OP(ls_squared_norm, (ops, N, at, at, at))
OP(ls_muon_momentum, (ops, UPDATE, &(struct ls_muon_momentum){0.9f, true}, at, at))
OP(ls_muon_update, (ops, UPDATE, 1, at))
CHECKED_OP(ls_newton_schulz,
           (ops, &(struct ls_newton_schulz){8, 8, 5}, at, at, &(float *){NULL}, NULL))
OP(ls_attention_kv_finish, (ops, &(struct ls_kv_gradient){LS_F32, 1, 8, 8, 1, at, at, at, at}))
CHECKED_OP(ls_attention_forward, (ops, &a, NULL))
CHECKED_OP(ls_attention_forward_part, (ops, &a, 0, N, at, NULL))
CHECKED_OP(ls_attention_forward_finish, (ops, &a, at, NULL))
CHECKED_OP(ls_attention_backward, (ops, &a, NULL))
CHECKED_OP(ls_attention_backward_part, (ops, &a, 0, N, at, NULL))
CHECKED_OP(ls_attention_backward_finish, (ops, &a, at, NULL))
CHECKED_OP(ls_attention_decode,
           (ops, &(struct ls_attention_decode){1, N, N, 1, 1, 8, 1, LS_F32, at, at, at, 8, 8, at},
            NULL))
CHECKED_OP(ls_gemm_run, (ops,
                         &(struct ls_gemm){.m = 8,
                                           .n = 8,
                                           .sections = 1,
                                           .k = {8},
                                           .tiles = 1,
                                           .a = at,
                                           .b = at,
                                           .c = at,
                                           .lda = 8,
                                           .ldb = 8,
                                           .ldc = 8},
                         NULL))

#define ENTRY(name)                                                                                \
    {                                                                                              \
#name, run_##name                                                                          \
    }
static const struct {
    const char *name;
    int (*run)(struct ls_ops *ops);
} ops_all[] = {
    ENTRY(ls_gelu_forward),
    ENTRY(ls_gelu_backward),
    ENTRY(ls_swiglu_forward),
    ENTRY(ls_swiglu_backward),
    ENTRY(ls_bias_backward),
    ENTRY(ls_add),
    ENTRY(ls_bias_round),
    ENTRY(ls_dropout),
    ENTRY(ls_cast_to_half),
    ENTRY(ls_cast_from_half),
    ENTRY(ls_tree_add),
    ENTRY(ls_fill_zero),
    ENTRY(ls_fill),
    ENTRY(ls_filled),
    ENTRY(ls_copy),
    ENTRY(ls_copy_rows),
    ENTRY(ls_embedding_forward),
    ENTRY(ls_embedding_gather),
    ENTRY(ls_embedding_finish),
    ENTRY(ls_embedding_backward),
    ENTRY(ls_position_backward),
    ENTRY(ls_cross_entropy),
    ENTRY(ls_cross_entropy_max),
    ENTRY(ls_cross_entropy_sum),
    ENTRY(ls_cross_entropy_finish),
    ENTRY(ls_loss_sum),
    ENTRY(ls_layernorm_forward),
    ENTRY(ls_rmsnorm_forward),
    ENTRY(ls_layernorm_backward_input),
    ENTRY(ls_rmsnorm_backward_input),
    ENTRY(ls_layernorm_backward_weight),
    ENTRY(ls_rmsnorm_backward_weight),
    ENTRY(ls_rope_apply),
    ENTRY(ls_adamw_update),
    ENTRY(ls_sgd_update),
    ENTRY(ls_lion_update),
    ENTRY(ls_squared_norm),
    ENTRY(ls_muon_momentum),
    ENTRY(ls_muon_update),
    ENTRY(ls_newton_schulz),
    ENTRY(ls_attention_kv_finish),
    ENTRY(ls_attention_forward),
    ENTRY(ls_attention_forward_part),
    ENTRY(ls_attention_forward_finish),
    ENTRY(ls_attention_backward),
    ENTRY(ls_attention_backward_part),
    ENTRY(ls_attention_backward_finish),
    ENTRY(ls_attention_decode),
    ENTRY(ls_gemm_run),
};
enum { OPS = sizeof ops_all / sizeof *ops_all };

static int nowhere_setup(void **state)
{
    (void)state;
    at = mmap(NULL, BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return at == MAP_FAILED;
}

/* ---- tests ------------------------------------------------------------------------------------
 */

static void test_no_op_touches_a_buffer(void **state)
{
    (void)state;
    struct ls_ops idle;
    ls_ops_init_idle(&idle, LS_ISA_PLAIN);
    for (int i = 0; i < OPS; i++)
        if (ops_all[i].run(&idle))
            fail_msg("%s refuses", ops_all[i].name);
    ls_ops_release(&idle);
}

/* The same calls by ops that compute: each would have touched one. */
static void test_each_would(void **state)
{
    (void)state;
    struct ls_ops ops;
    assert_int_equal(ls_ops_init(&ops, 1, LS_ISA_PLAIN, NULL), LS_OK);
    for (int i = 0; i < OPS; i++) {
        int status;
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            signal(SIGSEGV, SIG_DFL); /* not cmocka's */
            signal(SIGBUS, SIG_DFL);
            ops_all[i].run(&ops);
            _exit(0);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
            fail_msg("%s touches nothing here: its call shows nothing", ops_all[i].name);
    }
    ls_ops_release(&ops);
}

static bool is_tried(const char *name, size_t length)
{
    for (int i = 0; i < OPS; i++)
        if (strlen(ops_all[i].name) == length && memcmp(ops_all[i].name, name, length) == 0)
            return true;
    return false;
}

/* The headers' functions that take ops to compute with are those above. */
static void test_all_ops_are_tried(void **state)
{
    (void)state;
    static const char parameter[] = "(struct ls_ops *ops,";
    static char text[1 << 16];
    int found = 0;
    glob_t headers;
    assert_int_equal(glob("include/lockstep/ops/*.h", 0, NULL, &headers), 0);
    for (size_t i = 0; i < headers.gl_pathc; i++) {
        FILE *file = fopen(headers.gl_pathv[i], "r");
        assert_non_null(file);
        text[fread(text, 1, sizeof text - 1, file)] = '\0';
        fclose(file);
        for (const char *p = text; (p = strstr(p, parameter)); p++) {
            const char *name = p;
            while (name[-1] != ' ' && name[-1] != '*')
                name--;
            size_t length = (size_t)(p - name);
            bool measures = strncmp(name, "ls_gemm_peak", length) == 0;
            if (!measures && !is_tried(name, length))
                fail_msg("%s: %.*s is not tried", headers.gl_pathv[i], (int)length, name);
            found += !measures;
        }
    }
    globfree(&headers);
    assert_int_equal(found, OPS);
}

/* A wrong size is told by idle ops too. */
static void test_sizes_are_checked(void **state)
{
    (void)state;
    struct ls_ops idle;
    struct ls_error error = {0};
    struct ls_gemm gemm = {.m = 8, .n = 8, .sections = 1, .k = {9}, .tiles = 2};
    ls_ops_init_idle(&idle, LS_ISA_PLAIN);
    assert_int_equal(ls_gemm_run(&idle, &gemm, &error), LS_EINVAL);
    struct ls_attention a = attention();
    a.head_dim = 7;
    assert_int_equal(ls_attention_forward(&idle, &a, &error), LS_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_op_touches_a_buffer),
        cmocka_unit_test(test_each_would),
        cmocka_unit_test(test_all_ops_are_tried),
        cmocka_unit_test(test_sizes_are_checked),
    };
    return cmocka_run_group_tests_name("idle", tests, nowhere_setup, NULL);
}
