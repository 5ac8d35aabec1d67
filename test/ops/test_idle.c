/* Ops that go through the motions: each of them, on buffers that nobody may touch. */
#include "../support/suite.h"
#include "every_op.h"

#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static void *nowhere; /* memory that faults */

static void *at_nowhere(void)
{
    return nowhere;
}

static int nowhere_setup(void **state)
{
    nowhere = mmap(NULL, EVERY_OP_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    every_op_at = at_nowhere;
    return nowhere == MAP_FAILED;
}

/* ---- tests ----------------------------------------------------------------------------------- */

CASE(test_no_op_touches_a_buffer)
{
    struct ls_ops idle;
    ls_ops_init_idle(&idle, LS_ISA_PLAIN);
    for (int i = 0; i < every_op_count; i++)
        if (every_op[i].run(&idle))
            fail_msg("%s refuses", every_op[i].name);
    ls_ops_release(&idle);
}

/* The same calls by ops that compute: each would have touched one. */
CASE(test_each_would)
{
    struct ls_ops ops;
    assert_int_equal(ls_ops_init(&ops, 1, LS_ISA_PLAIN, NULL), LS_OK);
    for (int i = 0; i < every_op_count; i++) {
        int status;
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            signal(SIGSEGV, SIG_DFL); /* not cmocka's */
            signal(SIGBUS, SIG_DFL);
            every_op[i].run(&ops);
            _exit(0);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
            fail_msg("%s touches nothing here: its call shows nothing", every_op[i].name);
    }
    ls_ops_release(&ops);
}

static bool is_tried(const char *name, size_t length)
{
    for (int i = 0; i < every_op_count; i++)
        if (strlen(every_op[i].name) == length && memcmp(every_op[i].name, name, length) == 0)
            return true;
    return false;
}

/* The headers' functions that take ops to compute with are those above. */
CASE(test_all_ops_are_tried)
{
    static const char parameter[] = "(struct ls_ops *ops,";
    static char text[1 << 16];
    int found = 0;
    glob_t headers;
    assert_int_equal(glob("include/lockstep/ops/*.h", 0, NULL, &headers), 0);
    for (size_t i = 0; i < headers.gl_pathc; i++) {
        if (strstr(headers.gl_pathv[i], "/command.h")) /* submits any op */
            continue;
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
    assert_int_equal(found, every_op_count);
}

/* A wrong size is told by idle ops too. */
CASE(test_sizes_are_checked)
{
    struct ls_ops idle;
    struct ls_error error = {0};
    struct ls_gemm gemm = {.m = 8, .n = 8, .sections = 1, .k = {9}, .tiles = 2};
    ls_ops_init_idle(&idle, LS_ISA_PLAIN);
    assert_int_equal(ls_gemm_run(&idle, &gemm, &error), LS_EINVAL);
    struct ls_attention a = {.batch = 1, .tokens = 1, .heads = 1, .kv_heads = 1, .head_dim = 7};
    assert_int_equal(ls_attention_forward(&idle, &a, &error), LS_EINVAL);
}

SUITE_MAIN(nowhere_setup, NULL)
