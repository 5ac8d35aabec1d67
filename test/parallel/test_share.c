/* How large batches are, who computes which leaves, and in which order micro-batches are added: all
 * pure arithmetic, over every small case. */
#include "../support/suite.h"

#include <lockstep/parallel.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { LEAVES_MAX = 12, LEAF_MAX = 4, SEQUENCES_MAX = LEAVES_MAX * LEAF_MAX };

/* One rank's walk: its leaves one after the other, each from its first sequence to its last. */
static void check_walk(const struct ls_dp_share *share, int *seen)
{
    int64_t offset = 0, d = share->cut.ranks, leaf = share->leaf;
    for (int64_t m = 0; m < share->micro_batches; m++) {
        struct ls_dp_micro micro = ls_dp_micro_batch(share, m);
        int64_t own = offset / leaf, whole = share->cut.in_turn
                                                 ? own * d + share->cut.rank
                                                 : share->cut.rank * share->count + own;
        assert_int_equal(micro.m, m);
        assert_int_equal(micro.offset, offset);
        assert_int_equal(micro.first, whole * leaf + offset % leaf);
        assert_true(micro.count >= 1 && micro.count <= share->micro);
        assert_true(micro.count % leaf == 0 || offset % leaf + micro.count <= leaf);
        assert_int_equal(micro.begins, offset % leaf == 0);
        assert_int_equal(micro.begins_sum, offset < leaf);
        for (int64_t i = 0; i < micro.count; i++)
            seen[micro.first + i]++;
        offset += micro.count;
        assert_int_equal(micro.ends, offset % leaf == 0);
        assert_int_equal(micro.last, m == share->micro_batches - 1);
    }
    assert_int_equal(offset, share->count * leaf);
}

/* Whether all ranks' walks are the batch. */
static bool check_cut(int64_t leaves, int64_t leaf, int64_t ranks, int64_t micro, bool in_turn)
{
    bool expected = leaves % ranks == 0;
    int64_t most = expected && in_turn ? leaf : leaves / ranks * leaf;
    int64_t largest = ls_min(micro, most);
    while (largest > leaf && largest % leaf)
        largest--;
    int seen[SEQUENCES_MAX] = {0};
    for (int64_t rank = 0; rank < ranks; rank++) {
        struct ls_dp_share share;
        struct ls_dp_cut cut = {ranks, rank, in_turn};
        struct ls_error error = {0};
        int status = ls_dp_share_init(&share, &cut, leaves, leaf, micro, &error);
        if (status != (expected ? LS_OK : LS_ELAYOUT))
            fail_msg("%ld leaves of %ld, %ld ranks, micro-batches of %ld: status %d %s",
                     (long)leaves, (long)leaf, (long)ranks, (long)micro, status, error.text);
        if (!expected)
            continue;
        assert_int_equal(share.micro, largest);
        check_walk(&share, seen);
    }
    for (int64_t i = 0; expected && i < leaves * leaf; i++)
        assert_int_equal(seen[i], 1);
    return expected;
}

CASE(test_shares_are_the_batch)
{
    int admitted = 0, refused = 0;
    for (int64_t leaves = 1; leaves <= LEAVES_MAX; leaves++)
        for (int64_t leaf = 1; leaf <= LEAF_MAX; leaf++)
            for (int64_t ranks = 1; ranks <= LEAVES_MAX; ranks++)
                for (int64_t micro = 1; micro <= SEQUENCES_MAX; micro++)
                    for (int in_turn = 0; in_turn < 2; in_turn++)
                        if (check_cut(leaves, leaf, ranks, micro, in_turn))
                            admitted++;
                        else
                            refused++;
    print_message("%d cuts admitted, %d refused\n", admitted, refused);
    assert_true(admitted > 1000 && refused > 1000);
}

/* Megatron-LM, RampupBatchsizeNumMicroBatchesCalculator: start + floor(samples / (span /
 * increments)) * increment until span samples were seen. */
/* Megatron-LM, RampupBatchsizeNumMicroBatchesCalculator: start + floor(samples / (span /
 * increments)) * increment until span samples were seen. */
CASE(test_ramp_up_is_megatrons)
{
    static const int64_t shapes[][4] = {/* start, increment, full, span */
                                        {4, 4, 16, 60},  {4, 4, 16, 50},       {2, 3, 32, 1000},
                                        {16, 8, 24, 1},  {32, 32, 1024, 7777}, {1, 1, 9, 8},
                                        {8, 8, 256, 100}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        int64_t start = shapes[i][0], increment = shapes[i][1], full = shapes[i][2];
        double span = (double)shapes[i][3];
        const struct ls_ramp ramp = {full, start, increment, shapes[i][3]};
        double each = span / (double)((full - start) / increment);
        for (int64_t samples = 0; samples < 9000; samples++) {
            /* The double quotient may miss a whole number by its rounding: nudged upwards. */
            int64_t want = (double)samples > span
                               ? full
                               : start + (int64_t)floor((double)samples / each + 1e-9) * increment;
            int64_t got = ls_ramp_at(&ramp, samples);
            if (got != want)
                fail_msg("ramp %ld:%ld:%ld over %g: %ld at %ld samples, expected %ld", (long)start,
                         (long)increment, (long)full, span, (long)got, (long)samples, (long)want);
        }
    }
}

/* The walk over a ramp-up's batches: each that a run meets, ascending, and then the end. */
CASE(test_ramp_up_is_walked)
{
    static const struct ls_ramp ramps[] = {
        {.full = 12}, {12, 4, 4, 300}, {9, 1, 1, 64}, {1024, 32, 32, 7777}};
    for (size_t i = 0; i < sizeof ramps / sizeof ramps[0]; i++) {
        int64_t leaves = 0, met = 0;
        for (int64_t samples = 0; samples < 8000; samples++) {
            int64_t batch = ls_ramp_at(&ramps[i], samples);
            if (batch == met)
                continue;
            met = batch;
            leaves = ls_ramp_next(&ramps[i], leaves);
            assert_int_equal(leaves, batch);
        }
        assert_int_equal(ls_ramp_next(&ramps[i], leaves), 0);
    }
}

SUITE_MAIN(NULL, NULL)
