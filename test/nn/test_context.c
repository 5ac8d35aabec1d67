/* Sequences in tiles, cut over context-parallel ranks: the bits of one rank. */
#include "../support/extent.h"
#include "../support/suite.h"
#include "cut.h"

#include <string.h>

static struct cut gpt2(int cp, int tp, int64_t seq_tiles, enum ls_dtype act)
{
    return (struct cut){.arch = LS_GPT2,
                        .act = act,
                        .kv_heads = 8,
                        .seq_tiles = seq_tiles,
                        .sequences = 1,
                        .leaf_sequences = 1,
                        .tied = true,
                        .tp = tp,
                        .cp = cp,
                        .chunks = 1};
}

static struct cut llama(int cp, int tp, int64_t seq_tiles, enum ls_dtype act)
{
    struct cut cut = gpt2(cp, tp, seq_tiles, act);
    cut.arch = LS_LLAMA;
    cut.kv_heads = 2;
    cut.tied = false;
    return cut;
}

static void check_method(enum ls_cp_method method)
{
    for (int act = 0; act < 2; act++)
        for (int cp = 2; cp <= 4; cp *= 2) {
            struct cut a = gpt2(cp, 1, 4, act ? LS_BF16 : LS_F32);
            struct cut b = llama(cp, 1, cp, act ? LS_BF16 : LS_F32);
            a.method = b.method = method;
            a.dropout = 0.1f;
            cut_check(a);
            cut_check(b);
        }
}

CASE(test_all_gather)
{
    check_method(LS_CP_ALL_GATHER);
}

CASE(test_ring)
{
    check_method(LS_CP_RING);
}

/* Three tiles, of which three ranks have one each; seven and six, which one has, or three. */
CASE(test_any_number_of_tiles)
{
    static const int64_t cuts[][2] = {{3, 3}, {6, 3}, {6, 6}, {5, 5}, {7, 1}};
    for (int method = LS_CP_ALL_GATHER; method <= LS_CP_RING; method++)
        for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
            if (!check_pair((int)i, method, 2))
                continue;
            struct cut a = gpt2((int)cuts[i][1], 1, cuts[i][0], i % 2 ? LS_F32 : LS_BF16);
            struct cut b = llama((int)cuts[i][1], 2, cuts[i][0], i % 2 ? LS_BF16 : LS_F32);
            a.method = b.method = method;
            cut_check(a);
            cut_check(b);
        }
}

/* Key/value heads that several ranks share, alone and with everything else. */
CASE(test_shared_heads)
{
    for (int act = 0; act < 2; act++)
        for (int sequence = 0; sequence < 2; sequence++) {
            struct cut cut = llama(1, 4, 1, act ? LS_BF16 : LS_F32);
            cut.sequences = 4;
            cut.sequence = sequence;
            cut_check(cut);
            cut.tp = 8;
            cut_check(cut);
            cut.kv_heads = 1;
            cut_check(cut);
        }
}

CASE(test_with_tensor_parallel)
{
    for (int method = LS_CP_ALL_GATHER; method <= LS_CP_RING; method++)
        for (int sequence = 0; sequence < 2; sequence++) {
            struct cut cut = llama(2, 4, 2, LS_BF16); /* heads shared */
            cut.method = method;
            cut.sequence = sequence;
            cut_check(cut);
            cut = gpt2(2, 2, 4, LS_F32);
            cut.method = method;
            cut.sequence = sequence;
            cut_check(cut);
        }
}

CASE(test_bytes)
{
    for (int method = LS_CP_ALL_GATHER; method <= LS_CP_RING; method++)
        for (int cp = 2; cp <= 4; cp *= 2) {
            struct cut cut = gpt2(cp, 4 / cp, 4, LS_BF16);
            cut.method = method;
            cut.sequence = cp == 2;
            cut.counted = true;
            cut_check(cut);
        }
}

/* Tiles are the recipe's: one rank takes several sequences of them; so do ranks that evaluate. */
CASE(test_several_sequences)
{
    struct cut cut = llama(1, 2, 2, LS_BF16);
    cut.sequences = 3;
    cut.accumulate = true;
    cut_check(cut);
    cut = gpt2(2, 2, 2, LS_F32);
    cut.sequences = 2;
    cut.forward = true;
    cut_check(cut);
    cut.method = LS_CP_RING;
    cut_check(cut);
}

CASE(test_what_cannot_be_cut_is_refused)
{
    char text[1024];
    struct cut cut = gpt2(4, 1, 2, LS_F32);
    assert_int_equal(cut_run(&cut, text, sizeof text), LS_ELAYOUT);
    assert_non_null(strstr(text, "4 context-parallel ranks"));
    cut = gpt2(2, 1, 6, LS_F32);
    assert_int_equal(cut_run(&cut, text, sizeof text), LS_ELAYOUT);
    assert_non_null(strstr(text, "3 of numerics.seq_tiles = 6"));
    cut = gpt2(2, 1, 2, LS_F32);
    cut.tokens = 320;
    assert_int_equal(cut_run(&cut, text, sizeof text), LS_ELAYOUT);
    assert_non_null(strstr(text, "2 * 2 * 64"));
}

SUITE_MAIN(NULL, NULL)
