/* Every family, cut in every way: a model over tensor-, sequence- and context-parallel ranks has
 * the bits of one rank. What a family adds to Llama is cut here without being named. */
#include "../support/extent.h"
#include "../support/suite.h"
#include "cut.h"

/* In turn by i: types, halves, ranks that share key/value heads. */
CASE(test_tensor_and_sequence_parallel)
{
    for (int arch = 0; arch < LS_ARCHES; arch++)
        for (int i = 0; i < 12; i++)
            if (check_pair(arch, i, 3))
                cut_check(cut_tensor((enum ls_arch)arch, i));
}

CASE(test_context_parallel)
{
    for (int arch = 0; arch < LS_ARCHES; arch++)
        for (int i = 0; i < 6; i++)
            if (check_pair(arch, i, 3))
                cut_check(cut_context((enum ls_arch)arch, i));
}

CASE(test_fast_agrees)
{
    for (int arch = 0; arch < LS_ARCHES; arch++)
        for (int i = 0; i < 6; i++) {
            if (!check_pair(arch, i, 3))
                continue;
            struct cut cut = cut_tensor((enum ls_arch)arch, i);
            cut.act = LS_F32;
            cut.fast = true;
            cut.leaf_sequences = 1;
            cut_check(cut);
        }
}

SUITE_MAIN(NULL, NULL)
