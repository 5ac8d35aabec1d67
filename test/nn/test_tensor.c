/* Tensor and sequence parallel: a model cut over ranks has the bits of one rank. */
#include "../support/suite.h"
#include "cut.h"

#include <string.h>

static struct cut gpt2(int tp, bool sequence, enum ls_dtype act)
{
    return (struct cut){.arch = LS_GPT2,
                        .act = act,
                        .kv_heads = 8,
                        .seq_tiles = 1,
                        .sequences = 4,
                        .leaf_sequences = 1,
                        .tied = true,
                        .tp = tp,
                        .cp = 1,
                        .sequence = sequence,
                        .chunks = 1};
}

static struct cut llama(int tp, bool sequence, enum ls_dtype act)
{
    struct cut cut = gpt2(tp, sequence, act);
    cut.arch = LS_LLAMA;
    cut.tied = false;
    return cut;
}

CASE(test_tensor_parallel)
{
    for (int tp = 2; tp <= 8; tp *= 2) {
        cut_check(gpt2(tp, false, LS_F32));
        cut_check(gpt2(tp, false, LS_BF16));
        cut_check(llama(tp, false, LS_F32));
        cut_check(llama(tp, false, LS_BF16));
    }
}

CASE(test_sequence_parallel)
{
    for (int tp = 2; tp <= 8; tp *= 2) { /* with 8, half a sequence a rank */
        cut_check(gpt2(tp, true, LS_F32));
        cut_check(gpt2(tp, true, LS_BF16));
        cut_check(llama(tp, true, LS_F32));
        cut_check(llama(tp, true, LS_BF16));
    }
}

CASE(test_dropout_and_accumulation)
{
    for (int sequence = 0; sequence < 2; sequence++)
        for (int split = 0; split < 2; split++) {
            struct cut cut = gpt2(4, sequence, LS_BF16);
            cut.dropout = 0.2f;
            cut.accumulate = true;
            cut.split = split;
            cut_check(cut);
            cut.tp = 8; /* ranks begin inside a sequence */
            cut_check(cut);
            cut.dropout = 0;
            cut.tied = false;
            cut_check(cut);
        }
}

/* Products in pieces that move while the next is computed. */
CASE(test_chunks)
{
    for (int sequence = 0; sequence < 2; sequence++)
        for (int chunks = 2; chunks <= 4; chunks++) {
            struct cut cut = gpt2(2, sequence, LS_BF16);
            cut.chunks = chunks;
            cut.dropout = 0.1f;
            cut.sequences = 16;
            cut_check(cut);
            cut = llama(4, sequence, LS_F32);
            cut.chunks = chunks;
            cut.sequences = 16;
            cut_check(cut);
        }
}

CASE(test_bytes)
{
    for (int tp = 2; tp <= 8; tp *= 2)
        for (int sequence = 0; sequence < 2; sequence++)
            for (int chunks = 1; chunks < 3; chunks++) {
                struct cut cut = gpt2(tp, sequence, chunks == 1 ? LS_BF16 : LS_F32);
                cut.sequences = 8;
                cut.chunks = chunks;
                cut.counted = true;
                cut_check(cut);
            }
}

/* Leaves of several sequences, which 8 ranks cut. */
CASE(test_leaves_of_sequences)
{
    struct cut cut = llama(8, true, LS_F32);
    cut.leaf_sequences = 2;
    cut_check(cut);
    cut.sequences = 6; /* three leaves, of which two ranks have one and a half each */
    cut.tp = 2;
    cut_check(cut);
    cut.sequences = 3; /* three sequences, which they cannot share */
    cut.leaf_sequences = 1;
    char text[1024];
    assert_int_equal(cut_run(&cut, text, sizeof text), LS_EINVAL);
}

/* Rows that ranks cannot share evenly: sequence parallel can only run them forward. */
CASE(test_odd_rows)
{
    for (int i = 0; i < 4; i++) {
        struct cut cut = i % 2 ? llama(8, i / 2, LS_F32) : gpt2(8, i / 2, LS_BF16);
        cut.tokens = 27;
        cut.sequences = 3;
        cut.forward = cut.sequence;
        cut_check(cut);
        cut.sequences = 1;
        cut.tokens = 5; /* some ranks have none */
        cut_check(cut);
    }
}

/* Without the law's order any number of ranks that divides the heads will do, and sums that no
 * tree would admit. */
CASE(test_fast_agrees)
{
    for (int tp = 2; tp <= 8; tp *= 2)
        for (int sequence = 0; sequence < 2; sequence++) {
            struct cut cut = gpt2(tp, sequence, LS_F32);
            cut.fast = true;
            cut.sequences = 3;
            cut_check(cut);
            cut = llama(tp, sequence, LS_F32);
            cut.fast = true;
            cut.kv_heads = 2;
            cut_check(cut);
        }
}

/* The broken twin: a norm's gradient that is not added over the ranks that cut its rows. */
CASE(test_a_norm_not_reduced_is_seen)
{
    char text[1024];
    struct cut cut = gpt2(2, true, LS_F32);
    cut.own_norm = true;
    assert_int_equal(cut_run(&cut, text, sizeof text), LS_EINVAL);
    assert_non_null(strstr(text, "ln_f.weight"));
}

SUITE_MAIN(NULL, NULL)
