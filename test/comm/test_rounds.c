/* How collectives are cut into messages: pure arithmetic, played through here without a network,
 * with cuts so small that every buffer is far past them, as buffers past 2^31 bytes are past MPI's.
 */
#include "../support/suite.h"
#include "comm/rounds.h"

#include <stdlib.h>
#include <string.h>

enum { RANKS_MAX = 11, COUNT_MAX = 400 };

static float inputs[RANKS_MAX][RANKS_MAX * COUNT_MAX], outputs[RANKS_MAX][RANKS_MAX * COUNT_MAX];

static float value(int rank, int64_t i)
{
    return (float)((i * 7919 + rank * 104729) % 1000 - 500) * (rank % 3 ? 1e-3f : 1e4f);
}

static void messages_pass(struct comm_rounds *ranks, int n, int64_t round, int phase,
                          float *const *scratch, const struct comm_limits *limits)
{
    for (int from = 0; from < n; from++) {
        for (int to = 0; to < n; to++) {
            struct comm_message sent, received;
            if (from == to)
                continue;
            comm_rounds_message(&ranks[from], round, phase, to, scratch[from], &sent);
            comm_rounds_message(&ranks[to], round, phase, from, scratch[to], &received);
            assert_int_equal(sent.send_bytes, received.recv_bytes);
            int64_t most = ls_max(limits->sum_bytes, limits->copy_bytes);
            assert_true((int64_t)sent.send_bytes <= ls_max(most, limits->direct_bytes));
            if (sent.send_bytes)
                memcpy(received.recv, sent.send, sent.send_bytes);
        }
    }
}

/* All ranks' ranks of one call, played in step; rounds in order, or the last first. */
static void play(enum comm_op op, struct ls_comm_leaves leaves, int n, int64_t count, int root,
                 bool backwards, const struct comm_limits *limits)
{
    static const char *const here = __FILE__;
    /* Of leaves once so, once apart. */
    bool in_place = op == COMM_BROADCAST ||
                    (comm_is_all_reduce(op) && (!leaves.inner || (!leaves.onto && !backwards)));
    struct comm_rounds ranks[RANKS_MAX];
    float *scratch[RANKS_MAX];
    const void *pointers[RANKS_MAX];
    struct ls_ops ops;
    ls_ops_init_shared(&ops);
    for (int r = 0; r < n; r++) {
        for (int64_t i = 0; i < n * count; i++)
            outputs[r][i] = value(leaves.inner && !in_place ? 0 : r, i);
        for (int64_t i = 0; i < n * count; i++)
            inputs[r][i] = value(r, i);
        struct comm_call call = {.op = op, .dtype = LS_F32, .count = count, .peer = root};
        call.input = in_place ? outputs[r] : inputs[r];
        call.output = outputs[r];
        call.leaves = leaves;
        call.site = (struct ls_call_site){here, __LINE__};
        comm_rounds_init(&ranks[r], &call, &ops, n, r, limits);
        scratch[r] = malloc(comm_rounds_scratch_bytes(n, limits));
        assert_non_null(scratch[r]);
        assert_int_equal(ranks[r].count, ranks[0].count);
        assert_int_equal(ranks[r].phases, ranks[0].phases);
    }
    for (int64_t k = 0; k < ranks[0].count; k++) {
        int64_t round = backwards ? ranks[0].count - 1 - k : k;
        for (int phase = 0; phase < ranks[0].phases; phase++) {
            for (int r = 0; r < n; r++)
                comm_rounds_prepare(&ranks[r], round, phase, scratch[r]);
            messages_pass(ranks, n, round, phase, scratch, limits);
            for (int r = 0; r < n; r++)
                comm_rounds_finish(&ranks[r], round, phase, scratch[r], pointers);
        }
    }
    for (int r = 0; r < n; r++)
        free(scratch[r]);
}

static float tree(int n, int64_t i)
{
    float leaves[RANKS_MAX];
    for (int r = 0; r < n; r++)
        leaves[r] = value(r, i);
    return ls_tree_sum(leaves, n);
}

static float greatest(int n, int64_t i)
{
    float most = value(0, i);
    for (int r = 1; r < n; r++)
        most = value(r, i) > most ? value(r, i) : most;
    return most;
}

static float tree_bf16(int n, int64_t i)
{
    float leaves[RANKS_MAX];
    for (int r = 0; r < n; r++)
        leaves[r] = ls_bf16_to_f32(ls_f32_to_bf16(value(r, i)));
    return ls_tree_sum(leaves, n);
}

/* Leaves, of which `inner` ranks hold parts each, onto what was in output[i] where leaves.onto. */
static float chain(struct ls_comm_leaves leaves, int n, int64_t at, int64_t i)
{
    float sum = value(0, i);
    for (int r = 0; r < n; r += leaves.inner) {
        float parts[RANKS_MAX];
        for (int j = 0; j < leaves.inner; j++)
            parts[j] = value(r + j, at);
        float leaf = ls_tree_sum(parts, leaves.inner);
        sum = r || leaves.onto ? sum + leaf : leaf;
    }
    return sum;
}

static float expected(enum comm_op op, struct ls_comm_leaves leaves, int n, int64_t count, int root,
                      int rank, int64_t i)
{
    switch (op) {
    case COMM_ALL_REDUCE:
        return leaves.inner ? chain(leaves, n, i, i) : tree(n, i);
    case COMM_ALL_REDUCE_MAX:
        return greatest(n, i);
    case COMM_REDUCE_SCATTER:
        return leaves.inner ? chain(leaves, n, rank * count + i, i) : tree(n, rank * count + i);
    case COMM_REDUCE_SCATTER_BF16:
        return tree_bf16(n, rank * count + i);
    case COMM_ALL_GATHER:
        return value((int)(i / count), i % count);
    case COMM_ALL_TO_ALL:
        return value((int)(i / count), rank * count + i % count);
    case COMM_BROADCAST:
        return value(root, i);
    default:
        return 0;
    }
}

static void check(enum comm_op op, struct ls_comm_leaves leaves, int n, int64_t count,
                  const struct comm_limits *limits)
{
    for (int variant = 0; variant < 2; variant++) {
        int root = variant ? n - 1 : 0;
        play(op, leaves, n, count, root, variant, limits);
        bool blocks = op == COMM_ALL_GATHER || op == COMM_ALL_TO_ALL;
        for (int r = 0; r < n; r++) {
            for (int64_t i = 0; i < (blocks ? n * count : count); i++) {
                float want = expected(op, leaves, n, count, root, r, i);
                if (memcmp(&outputs[r][i], &want, sizeof want) != 0)
                    fail_msg("operation %d, %d ranks, %lld elements: rank %d has %a at %lld, "
                             "expected %a",
                             (int)op, n, (long long)count, r, (double)outputs[r][i], (long long)i,
                             (double)want);
            }
        }
    }
}

CASE(test_every_cut_gives_the_whole)
{
    const struct comm_limits limits[] = {
        {.sum_bytes = 64, .copy_bytes = 64, .direct_bytes = 0},
        {.sum_bytes = 1000, .copy_bytes = 300, .direct_bytes = 40},
        {.sum_bytes = 4, .copy_bytes = 4, .direct_bytes = 100},
        {.sum_bytes = 1 << 20, .copy_bytes = 1 << 20, .direct_bytes = 1 << 20},
    };
    const int64_t counts[] = {0, 1, 2, 3, 10, 11, 12, 64, 399, 400};
    for (size_t l = 0; l < sizeof limits / sizeof *limits; l++)
        for (int n = 1; n <= RANKS_MAX; n++)
            for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
                for (enum comm_op op = COMM_ALL_REDUCE; op <= COMM_BROADCAST; op++)
                    check(op, (struct ls_comm_leaves){0, false}, n, counts[c], &limits[l]);
}

CASE(test_leaves_are_added_in_order)
{
    const struct comm_limits limits[] = {
        {.sum_bytes = 64, .copy_bytes = 64, .direct_bytes = 0},
        {.sum_bytes = 1000, .copy_bytes = 300, .direct_bytes = 40},
        {.sum_bytes = 1 << 20, .copy_bytes = 1 << 20, .direct_bytes = 1 << 20},
    };
    const int64_t counts[] = {0, 1, 2, 3, 11, 12, 64, 399, 400};
    for (size_t l = 0; l < sizeof limits / sizeof *limits; l++)
        for (int n = 1; n <= RANKS_MAX; n++)
            for (int inner = 1; inner <= n; inner++)
                for (size_t c = 0; c < sizeof counts / sizeof *counts && n % inner == 0; c++)
                    for (int onto = 0; onto < 2; onto++) {
                        struct ls_comm_leaves leaves = {inner, onto};
                        check(COMM_ALL_REDUCE, leaves, n, counts[c], &limits[l]);
                        check(COMM_REDUCE_SCATTER, leaves, n, counts[c], &limits[l]);
                    }
}

/* Pieces cover a buffer once, in order, and differ by one element at most; counts near 2^62 do not
 * overflow on the way. */
CASE(test_pieces)
{
    const int64_t counts[] = {0, 1, 6, 7, 8, 1000003, INT64_MAX / 4};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        for (int n = 1; n <= 16; n++) {
            int64_t next = 0, first, least = INT64_MAX, most = 0;
            for (int r = 0; r < n; r++) {
                int64_t length = comm_piece(counts[c], n, r, &first);
                assert_int_equal(first, next);
                next += length;
                least = ls_min(least, length);
                most = ls_max(most, length);
            }
            assert_int_equal(next, counts[c]);
            assert_true(most - least <= 1);
        }
    }
}

/* Parts of a send cover its bytes once, in order; nothing is one empty part. */
CASE(test_parts)
{
    for (int64_t bytes = 0; bytes < 40; bytes++) {
        for (int64_t most = 1; most < 9; most++) {
            int64_t next = 0, offset, count = comm_parts_count(bytes, most);
            for (int64_t i = 0; i < count; i++) {
                int64_t length = comm_part(bytes, most, i, &offset);
                assert_int_equal(offset, next);
                assert_true(length <= most && (length > 0 || bytes == 0));
                next += length;
            }
            assert_true(count >= 1);
            assert_int_equal(next, bytes);
        }
    }
}

/* A buffer of 12 GiB: no message is past MPI's counts, and the last one ends at the buffer's end.
 */
CASE(test_a_count_past_two_to_the_31)
{
    const struct comm_limits limits = {1 << 20, 4 << 20, 32 << 10};
    char *base = (char *)(uintptr_t)(1 << 20); /* only computed with */
    struct comm_call call = {.op = COMM_ALL_GATHER, .dtype = LS_F32, .count = 3ll << 30};
    struct comm_rounds rounds;
    struct comm_message message;
    call.input = call.output = base;
    comm_rounds_init(&rounds, &call, NULL, 2, 0, &limits);
    comm_rounds_message(&rounds, rounds.count - 1, 0, 1, NULL, &message);
    assert_true(message.recv_bytes > 0 && message.recv_bytes <= INT32_MAX);
    assert_ptr_equal((char *)message.recv + message.recv_bytes, base + (24ll << 30));
    assert_ptr_equal((const char *)message.send + message.send_bytes, base + (12ll << 30));
    call.op = COMM_ALL_REDUCE;
    comm_rounds_init(&rounds, &call, NULL, 2, 0, &limits);
    comm_rounds_message(&rounds, rounds.count - 1, 1, 1, NULL, &message);
    assert_ptr_equal((char *)message.recv + message.recv_bytes, base + (12ll << 30));
    assert_int_equal(comm_sent_bytes(&call, 2, 0), 12ll << 30);
}

SUITE_MAIN(NULL, NULL)
