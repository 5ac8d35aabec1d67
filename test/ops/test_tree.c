/* The stack walk of ops/tree.h against the recursive definition. */
#include "../support/suite.h"
#include "ops/tree.h"
#include <lockstep/base.h>

static float walk(const float *values, int64_t n, int *depth)
{
    float stack[64];
    int top = 0;
    *depth = 0;
    for (int64_t i = 0; i < n; i++) {
        stack[top++] = values[i];
        *depth = top > *depth ? top : *depth;
        for (int merges = ops_tree_merges(i, n); merges > 0; merges--, top--)
            stack[top - 2] += stack[top - 1];
    }
    assert_int_equal(top, 1);
    return stack[0];
}

/* Values of such different sizes that another shape of tree gives another sum. */
CASE(test_walk_is_the_tree)
{
    enum { N = 300 };
    float values[N];
    ls_normal_fill(ls_philox_key_of(1, "tree"), 0, N, 0, 1, values);
    for (int i = 0; i < N; i += 3)
        values[i] *= 1e4f;
    int ascending_differs = 0, depth;
    for (int64_t n = 1; n <= N; n++) {
        float ascending = 0, want = ls_tree_sum(values, n), got = walk(values, n, &depth);
        for (int64_t i = 0; i < n; i++)
            ascending += values[i];
        ascending_differs += ascending != want;
        if (got != want)
            fail_msg("n %lld: %.9g, tree %.9g", (long long)n, (double)got, (double)want);
        assert_true((1ll << depth) <= 4 * n);
    }
    assert_true(ascending_differs > N / 2);
}

SUITE_MAIN(NULL, NULL)
