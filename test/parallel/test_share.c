/* How large batches are, who computes which leaves, and in which order micro-batches are added: all
 * pure arithmetic, over every small case. */
#include <lockstep/parallel.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEAVES_MAX = 24, MICRO_BATCHES_MAX = 40 };

/* Every replica's share is a whole subtree. */
static bool replicas_admitted(int64_t leaves, int64_t dp)
{
    if (leaves % dp)
        return false;
    for (int64_t r = 0; r < dp; r++)
        if (!ls_tree_is_subtree(leaves, r * (leaves / dp), leaves / dp))
            return false;
    return true;
}

/* Every micro-batch of every share is one. */
static bool micro_batches_admitted(int64_t leaves, int64_t dp, int64_t micro)
{
    int64_t count = leaves / dp;
    for (int64_t r = 0; r < dp; r++)
        for (int64_t at = 0; at < count; at += micro)
            if (!ls_tree_is_subtree(leaves, r * count + at, ls_min(micro, count - at)))
                return false;
    return true;
}

/* The micro-batches of a share follow each other and cover it. */
static void check_walk(const struct ls_dp_share *share)
{
    int64_t next = share->first;
    for (int64_t m = 0; m < share->micro_batches; m++) {
        int64_t first, count;
        ls_dp_micro_batch(share, m, &first, &count);
        assert_int_equal(first, next);
        assert_true(count >= 1 && count <= share->micro_leaves);
        next += count;
    }
    assert_int_equal(next, share->first + share->count);
}

static void test_shares_are_subtrees(void **state)
{
    (void)state;
    int admitted = 0, refused = 0;
    for (int64_t leaves = 1; leaves <= LEAVES_MAX; leaves++)
        for (int64_t dp = 1; dp <= LEAVES_MAX; dp++)
            for (int64_t micro = 1; micro <= LEAVES_MAX; micro++) {
                struct ls_dp_share share;
                struct ls_error error = {0};
                bool replicas = replicas_admitted(leaves, dp);
                bool expected = replicas && micro_batches_admitted(leaves, dp, micro);
                for (int64_t rank = 0; rank < dp; rank++) {
                    struct ls_dp_cut cut = {.replicas = dp, .replica = rank, .shards = 1};
                    int status = ls_dp_share_init(&share, leaves, &cut, micro, &error);
                    if ((status == LS_OK) != expected)
                        fail_msg("%ld leaves, dp %ld, micro %ld: status %d, %s", (long)leaves,
                                 (long)dp, (long)micro, status,
                                 expected ? "but all parts are subtrees" : "expected a refusal");
                    if (status == LS_OK) {
                        assert_int_equal(share.first, rank * (leaves / dp));
                        check_walk(&share);
                    } else {
                        assert_int_equal(status, LS_ELAYOUT);
                    }
                }
                admitted += expected;
                refused += !expected;
            }
    assert_true(admitted > 100 && refused > 100);
}

/* ---- the sum over micro-batches -------------------------------------------------------------- */

enum { TEXT_BYTES = 1024 };

/* The tree over micro-batches [first, first + count) as text: "((0+1)+2)". */
static void tree_text(int64_t first, int64_t count, char *text)
{
    if (count == 1) {
        snprintf(text, TEXT_BYTES, "%ld", (long)first);
        return;
    }
    char left[TEXT_BYTES], right[TEXT_BYTES];
    int64_t split = ls_tree_split(count);
    tree_text(first, split, left);
    tree_text(first + split, count - split, right);
    assert_true(snprintf(text, TEXT_BYTES, "(%s+%s)", left, right) < TEXT_BYTES);
}

static void text_add(char *into, const char *from)
{
    char sum[TEXT_BYTES];
    assert_true(snprintf(sum, sizeof sum, "(%s+%s)", into, from) < TEXT_BYTES);
    memcpy(into, sum, sizeof sum);
}

/* Walks like a trainer does, on texts instead of gradients; returns how many buffers were used. */
static int walk(int64_t micro_batches, char buffer[8][TEXT_BYTES])
{
    int used = 0;
    for (int b = 0; b < 8; b++)
        buffer[b][0] = '\0';
    for (int64_t m = 0; m < micro_batches; m++) {
        struct ls_accumulation step = ls_accumulation_of(m, micro_batches);
        assert_in_range(step.target, 0, 7);
        used = step.target + 1 > used ? step.target + 1 : used;
        char one[24];
        snprintf(one, sizeof one, "%ld", (long)m);
        char *target = buffer[step.target];
        if (step.accumulate != (target[0] != '\0'))
            fail_msg("micro-batch %ld of %ld: buffer %d holds \"%s\"", (long)m, (long)micro_batches,
                     step.target, target);
        if (step.accumulate)
            text_add(target, one);
        else
            strcpy(target, one);
        for (int i = step.target; i > step.target - step.merges; i--) {
            text_add(buffer[i - 1], buffer[i]);
            buffer[i][0] = '\0';
        }
    }
    return used;
}

static void test_accumulation_is_the_tree(void **state)
{
    (void)state;
    for (int64_t n = 1; n <= MICRO_BATCHES_MAX; n++) {
        char buffer[8][TEXT_BYTES], expected[TEXT_BYTES];
        int used = walk(n, buffer), log2 = 0;
        tree_text(0, n, expected);
        if (strcmp(buffer[0], expected))
            fail_msg("%ld micro-batches: %s, expected %s", (long)n, buffer[0], expected);
        for (int b = 1; b < 8; b++)
            assert_string_equal(buffer[b], "");
        while ((2 << log2) <= n)
            log2++;
        assert_int_equal(used, ls_accumulation_buffers(n));
        assert_true(used <= log2 + 1);
    }
}

/* ---- two levels of ranks ----------------------------------------------------------------------
 */

/* Sums as hashes, so that two are equal only where they were added in one order. */
static uint64_t node(uint64_t left, uint64_t right)
{
    return (left * 0x9e3779b97f4a7c15u + 1) ^ (right * 0xc2b2ae3d27d4eb4fu >> 17 | right << 21);
}

static uint64_t leaves_sum(int64_t first, int64_t count)
{
    if (count == 1)
        return (uint64_t)first + 12345;
    int64_t split = ls_tree_split(count);
    return node(leaves_sum(first, split), leaves_sum(first + split, count - split));
}

static uint64_t values_sum(const uint64_t *values, int64_t count)
{
    if (count == 1)
        return values[0];
    int64_t split = ls_tree_split(count);
    return node(values_sum(values, split), values_sum(values + split, count - split));
}

/* Who adds what, as the ranks of a layout do: micro is what a rank holds of a micro-step. */
static uint64_t cut_sum(int64_t leaves, struct ls_dp_cut cut, int64_t micro, uint64_t *seen)
{
    uint64_t replica[LEAVES_MAX], outer[LEAVES_MAX], inner[LEAVES_MAX];
    bool neighbours = cut.order == LS_DP_NEIGHBOURS;
    if (cut.order == LS_DP_FLAT) /* one level */
        cut = (struct ls_dp_cut){.replicas = cut.replicas * cut.shards, .shards = 1};
    int64_t share = leaves / (cut.replicas * cut.shards);
    micro = ls_min(micro, share);
    int64_t steps = ls_ceil_div(share, micro);
    for (int64_t i = 0; i < cut.replicas; i++) {
        int64_t block = i * (leaves / cut.replicas);
        for (int64_t a = 0; a < (neighbours ? steps : cut.shards); a++) {
            for (int64_t b = 0; b < (neighbours ? cut.shards : steps); b++) {
                int64_t m = neighbours ? a : b, j = neighbours ? b : a;
                int64_t count = ls_min(micro, share - m * micro);
                int64_t first = block + j * share + m * micro;
                if (neighbours)
                    first = block + m * micro * cut.shards + j * count;
                for (int64_t l = first; l < first + count; l++)
                    *seen |= 1ull << l;
                inner[b] = leaves_sum(first, count);
            }
            outer[a] = values_sum(inner, neighbours ? cut.shards : steps);
        }
        replica[i] = values_sum(outer, neighbours ? steps : cut.shards);
    }
    return values_sum(replica, cut.replicas);
}

/* Every micro-batch that ls_dp_micro_batch names is a subtree; all of them are the batch. */
static void check_cut_walk(int64_t leaves, struct ls_dp_cut cut, int64_t micro)
{
    uint64_t seen = 0;
    int64_t walked = 0;
    for (cut.replica = 0; cut.replica < cut.replicas; cut.replica++)
        for (cut.shard = 0; cut.shard < cut.shards; cut.shard++) {
            struct ls_dp_share share;
            struct ls_error error = {0};
            if (ls_dp_share_init(&share, leaves, &cut, micro, &error))
                fail_msg("%s", error.text);
            for (int64_t m = 0; m < share.micro_batches; m++) {
                int64_t first, count;
                ls_dp_micro_batch(&share, m, &first, &count);
                if (!ls_tree_is_subtree(leaves, first, count))
                    fail_msg("%ld leaves, %ld x %ld: [%ld, +%ld) is no subtree", (long)leaves,
                             (long)cut.replicas, (long)cut.shards, (long)first, (long)count);
                walked += count;
                for (int64_t l = first; l < first + count; l++)
                    seen |= 1ull << l;
            }
        }
    assert_int_equal(walked, leaves);
    assert_int_equal(seen, (1ull << leaves) - 1);
}

static void check_cut(int64_t leaves, struct ls_dp_cut cut, int64_t micro, int *admitted,
                      int *refused)
{
    struct ls_dp_share share;
    struct ls_error error = {0};
    int status = ls_dp_share_init(&share, leaves, &cut, micro, &error);
    uint64_t seen = 0;
    bool expected = leaves % (cut.replicas * cut.shards) == 0 &&
                    cut_sum(leaves, cut, micro, &seen) == leaves_sum(0, leaves) &&
                    seen == (1ull << leaves) - 1;
    if ((status == LS_OK) != expected)
        fail_msg("%ld leaves, %ld x %ld ranks, micro %ld, order %d: status %d, but the sums "
                 "are %s",
                 (long)leaves, (long)cut.replicas, (long)cut.shards, (long)micro, cut.order, status,
                 expected ? "equal" : "not equal");
    *admitted += expected;
    *refused += !expected;
    if (expected) {
        check_cut_walk(leaves, cut, micro);
        return;
    }
    assert_int_equal(status, LS_ELAYOUT);
    assert_int_not_equal(*error.text, 0);
}

static void test_cuts_are_the_tree(void **state)
{
    (void)state;
    int admitted = 0, refused = 0;
    for (int64_t leaves = 1; leaves <= LEAVES_MAX; leaves++)
        for (int64_t replicas = 1; replicas <= 8; replicas++)
            for (int64_t shards = 1; shards <= 8; shards++)
                for (int64_t micro = 1; micro <= 16; micro++)
                    for (int order = LS_DP_FLAT; order < LS_DP_ANY; order++) {
                        struct ls_dp_cut cut = {.replicas = replicas,
                                                .shards = shards,
                                                .order = (enum ls_dp_order)order};
                        check_cut(leaves, cut, micro, &admitted, &refused);
                    }
    assert_true(admitted > 1000 && refused > 1000);
}

/* Megatron-LM, RampupBatchsizeNumMicroBatchesCalculator: start + floor(samples / (span /
 * increments)) * increment until span samples were seen. */
static void test_ramp_up_is_megatrons(void **state)
{
    (void)state;
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
static void test_ramp_up_is_walked(void **state)
{
    (void)state;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ramp_up_is_megatrons),
        cmocka_unit_test(test_ramp_up_is_walked),
        cmocka_unit_test(test_shares_are_subtrees),
        cmocka_unit_test(test_accumulation_is_the_tree),
        cmocka_unit_test(test_cuts_are_the_tree),
    };
    return cmocka_run_group_tests_name("share", tests, NULL, NULL);
}
