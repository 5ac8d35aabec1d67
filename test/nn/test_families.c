/* Every family, cut in every way: a model over tensor-, sequence- and context-parallel ranks has
 * the bits of one rank. What a family adds to Llama is cut here without being named. */
#include "cut.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* In turn by i: types, halves, ranks that share key/value heads. */
static struct cut cut_of(enum ls_arch arch, int i)
{
    static const enum ls_dtype acts[] = {LS_F32, LS_BF16, LS_F16};
    return (struct cut){.arch = arch,
                        .act = acts[i % 3],
                        .kv_heads = arch == LS_GPT2 ? 8 : 8 >> i % 4,
                        .seq_tiles = 1,
                        .sequences = 4,
                        .leaf_sequences = 1 + i % 2,
                        .dropout = i % 5 ? 0 : 0.1f,
                        .tied = i % 2,
                        .tp = 1,
                        .cp = 1,
                        .chunks = 1 + i % 2,
                        .split = i / 2 % 2,
                        .accumulate = i % 3 == 0};
}

static void test_tensor_and_sequence_parallel(void **state)
{
    (void)state;
    for (int arch = 0; arch < LS_ARCHES; arch++)
        for (int i = 0; i < 12; i++) {
            struct cut cut = cut_of((enum ls_arch)arch, i);
            cut.tp = 2 << i % 3;
            cut.sequence = i / 3 % 2;
            cut_check(cut);
        }
}

static void test_context_parallel(void **state)
{
    (void)state;
    for (int arch = 0; arch < LS_ARCHES; arch++)
        for (int i = 0; i < 6; i++) {
            struct cut cut = cut_of((enum ls_arch)arch, i);
            cut.cp = 2;
            cut.tp = 1 << i % 3;
            cut.seq_tiles = 2 << i % 2;
            cut.method = i % 2 ? LS_CP_RING : LS_CP_ALL_GATHER;
            cut.sequence = i / 2 % 2;
            cut.sequences = cut.leaf_sequences = 1;
            cut_check(cut);
        }
}

static void test_fast_agrees(void **state)
{
    (void)state;
    for (int arch = 0; arch < LS_ARCHES; arch++)
        for (int i = 0; i < 6; i++) {
            struct cut cut = cut_of((enum ls_arch)arch, i);
            cut.act = LS_F32;
            cut.fast = true;
            cut.tp = 2 << i % 3;
            cut.sequence = i / 3 % 2;
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
