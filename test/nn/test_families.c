/* Every family, cut in every way: a model over tensor-, sequence- and context-parallel ranks has
 * the bits of one rank. What a family adds to Llama is cut here without being named. */
#include "../support/extent.h"
#include "../support/testing.h"
#include "cut.h"

/* In turn by i: types, halves, ranks that share key/value heads. */
static void test_tensor_and_sequence_parallel(void **state)
{
    for (int arch = 0; arch < LS_ARCHES; arch++)
        for (int i = 0; i < 12; i++)
            if (check_pair(arch, i, 2))
                cut_check(cut_tensor((enum ls_arch)arch, i));
}

static void test_context_parallel(void **state)
{
    for (int arch = 0; arch < LS_ARCHES; arch++)
        for (int i = 0; i < 6; i++)
            if (check_pair(arch, i, 2))
                cut_check(cut_context((enum ls_arch)arch, i));
}

static void test_fast_agrees(void **state)
{
    for (int arch = 0; arch < LS_ARCHES; arch++)
        for (int i = 0; i < 6; i++) {
            if (!check_pair(arch, i, 2))
                continue;
            struct cut cut = cut_tensor((enum ls_arch)arch, i);
            cut.act = LS_F32;
            cut.fast = true;
            cut.leaf_sequences = 1;
            cut_check(cut);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensor_and_sequence_parallel),
        cmocka_unit_test(test_context_parallel),
        cmocka_unit_test(test_fast_agrees),
    };
    return cmocka_run_group_tests_name("families", tests, NULL, NULL);
}
