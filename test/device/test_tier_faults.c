/* Disks that fail: errors, full disks and short transfers at every piece of a small workload. */
/* check: disk */
#include "../support/extent.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "../support/wrapped.h"
#include "tiers.h"

#include "device/tier_private.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- results that are cut short -------------------------------------------------------------- */

static atomic_int results_seen, short_at = -1, short_count;
static atomic_int short_kept; /* bytes that went */
static atomic_bool cut_short_but_whole;

/* What the system did not move is made wrong: it may not be relied on. */
static void spoil(const struct ls_tier *tier, const struct tier_piece *piece, size_t from)
{
    size_t bytes = piece->bytes - from;
    if (piece->writes) {
        unsigned char *wrong = device_new(bytes);
        assert_int_equal(pwrite(tier->file.fd, wrong, bytes, (off_t)(piece->offset + from)), bytes);
        free(wrong);
    } else {
        memset(piece->device + from, 0xee, bytes);
    }
}

/* The linker puts this in place of the tier's own (Makefile). */
WRAPPED(tier_settle);
bool __wrap_tier_settle(struct ls_tier *tier, struct tier_piece *piece, int64_t result)
{
    int at = results_seen++;
    if (short_at >= 0 && at >= short_at && at < short_at + short_count && result > short_kept) {
        spoil(tier, piece, (size_t)short_kept / LS_TIER_ALIGN * LS_TIER_ALIGN);
        result = cut_short_but_whole ? result : short_kept;
    }
    return __real_tier_settle(tier, piece, result);
}

static void cut_short(int at, int count, int kept)
{
    results_seen = 0;
    short_count = count;
    short_kept = kept;
    short_at = at;
}

/* ---- the workload ---------------------------------------------------------------------------- */

enum {
    ITEMS = 3,
    PIECES = 2, /* a transfer */
    ITEM_BYTES = (PIECES - 1) * TIER_PIECE_BYTES + 12345,
    ITEM_ROOM = PIECES * TIER_PIECE_BYTES,
};

struct outcome {
    int failed[2 * ITEMS]; /* the code of each transfer: writes, then reads */
    char text[1024];       /* of the last that failed */
    int failures, wrong;   /* wrong: pairs without failure whose bytes differ */
};

static void note_end(struct outcome *outcome, int i, struct ls_transfer *move)
{
    struct ls_error error = {0};
    outcome->failed[i] = ls_transfer_wait(move, &error);
    if (outcome->failed[i])
        snprintf(outcome->text, sizeof outcome->text, "%s", error.text);
    outcome->failures += outcome->failed[i] != LS_OK;
}

static struct outcome work(struct ls_tier *tier)
{
    struct outcome outcome = {0};
    struct ls_error error = {0};
    struct ls_transfer moves[2 * ITEMS] = {{0}};
    unsigned char *from[ITEMS], *to[ITEMS];
    for (int i = 0; i < ITEMS; i++) {
        from[i] = device_new(ITEM_BYTES);
        to[i] = device_new(ITEM_BYTES);
        pattern_fill(from[i], ITEM_BYTES, (uint32_t)i);
        size_t offset = (size_t)i * ITEM_ROOM;
        assert_int_equal(ls_tier_write(tier, offset, from[i], ITEM_BYTES, &moves[i], &error), 0);
        assert_int_equal(ls_tier_read(tier, offset, to[i], ITEM_BYTES, &moves[ITEMS + i], &error),
                         0);
    }
    for (int i = 0; i < 2 * ITEMS; i++)
        note_end(&outcome, i, &moves[i]);
    for (int i = 0; i < ITEMS; i++) {
        if (!outcome.failed[i] && !outcome.failed[ITEMS + i])
            outcome.wrong += pattern_differs(to[i], ITEM_BYTES, (uint32_t)i) != 0;
        free(from[i]);
        free(to[i]);
    }
    return outcome;
}

/* After a failure the tier goes on; at the end nothing stays. */
static struct outcome work_with(enum mover mover, const char *folder, struct failing *failing)
{
    int at = short_at;
    struct ls_tier *tier =
        mover_open(mover, folder, (size_t)ITEMS * ITEM_ROOM, failing ? &failing->fault : NULL);
    struct outcome outcome = work(tier);
    if (failing)
        failing->first = -1;
    short_at = -1;
    struct outcome again = work(tier);
    assert_int_equal(again.failures, 0);
    assert_int_equal(again.wrong, 0);
    ls_tier_free(tier);
    assert_int_equal(scratch_count(folder), 0);
    short_at = at;
    return outcome;
}

/* Every n-th read and write fails with an errno. */
static void check_errors(enum mover mover, const char *folder, int errno_value, int code)
{
    static const char *const calls[] = {"write", "read"};
    for (int c = 0; c < 2; c++)
        for (int64_t n = 0; n < PIECES * ITEMS; n++) {
            struct failing failing;
            if (!check_pair((int)n, c + (errno_value == EIO), 2))
                continue;
            failing_init(&failing, calls[c], n, errno_value);
            struct outcome outcome = work_with(mover, folder, &failing);
            assert_int_equal(outcome.failures, 1);
            assert_int_equal(outcome.wrong, 0);
            for (int i = 0; i < 2 * ITEMS; i++)
                assert_true(!outcome.failed[i] || outcome.failed[i] == code);
            if (!strstr(outcome.text, "rank-00003.offload/data") ||
                !strstr(outcome.text, calls[c]) || !strstr(outcome.text, "bytes at offset") ||
                !strstr(outcome.text, "memory.file") ||
                !strstr(outcome.text, strerror(errno_value)))
                fail_msg("%s", outcome.text);
        }
}

CASE_WITH(test_errors_at_every_piece, scratch_setup, scratch_teardown)
{
    for (enum mover mover = MOVER_THREADS; mover < MOVERS; mover++) {
        if (!mover_allowed(mover))
            continue;
        check_errors(mover, *state, EIO, LS_EIO);
        check_errors(mover, *state, ENOSPC, LS_ENOSPC);
    }
}

CASE_WITH(test_what_is_tried_again_at_every_piece, scratch_setup, scratch_teardown)
{
    static const int errnos[] = {EINTR, EAGAIN};
    for (enum mover mover = MOVER_THREADS; mover < MOVERS; mover++)
        for (int64_t n = 0; n < PIECES * ITEMS && mover_allowed(mover); n++)
            for (int e = 0; e < 2; e++) {
                struct failing failing;
                if (!check_pair((int)(n / 2), e, 2))
                    continue;
                failing_init(&failing, n % 2 ? "read" : "write", n, errnos[e]);
                failing.count = 3;
                struct outcome outcome = work_with(mover, *state, &failing);
                assert_int_equal(outcome.failures, 0);
                assert_int_equal(outcome.wrong, 0);
            }
}

/* A disk that is busy for ever is an error, at last. */
CASE_WITH(test_what_does_not_go_on, scratch_setup, scratch_teardown)
{
    for (enum mover mover = MOVER_THREADS; mover < MOVERS; mover++) {
        struct failing failing;
        if (!mover_allowed(mover))
            continue;
        failing_init(&failing, "read", 0, EAGAIN);
        failing.count = INT32_MAX;
        struct outcome outcome = work_with(mover, *state, &failing);
        assert_int_equal(outcome.failures, ITEMS);
        assert_int_equal(outcome.failed[ITEMS], LS_EIO);
    }
}

/* ---- short transfers ------------------------------------------------------------------------- */

CASE_WITH(test_short_transfers_go_on, scratch_setup, scratch_teardown)
{
    static const int kept[] = {0, 100, 4096, 5000, 512 * 1024 + 512};
    for (enum mover mover = MOVER_THREADS; mover < MOVERS; mover++)
        for (int n = 0; n < 2 * PIECES * ITEMS && mover_allowed(mover); n += check_every(3, 3)) {
            cut_short(n, 2, kept[n % 5]);
            struct outcome outcome = work_with(mover, *state, NULL);
            assert_int_equal(outcome.failures, 0);
            assert_int_equal(outcome.wrong, 0);
        }
    cut_short(-1, 0, 0);
}

CASE_WITH(test_a_file_that_was_cut_short, scratch_setup, scratch_teardown)
{
    for (enum mover mover = MOVER_THREADS; mover < MOVERS; mover++) {
        if (!mover_allowed(mover))
            continue;
        struct ls_error error = {0};
        struct ls_transfer move = {0};
        unsigned char *memory = device_new(ITEM_BYTES);
        struct ls_tier *tier = mover_open(mover, *state, ITEM_ROOM, NULL);
        const char *path = scratch_path(*state, "rank-00003.offload/data");
        assert_int_equal(truncate(path, (1 << 20) + 8192), 0);
        assert_int_equal(ls_tier_read(tier, 0, memory, ITEM_BYTES, &move, &error), LS_OK);
        assert_int_equal(ls_transfer_wait(&move, &error), LS_EIO);
        if (!strstr(error.text, "was the file cut short?"))
            fail_msg("%s", error.text);
        free(memory);
        ls_tier_free(tier);
    }
}

/* The broken twin: a short write that counts as whole is seen. */
CASE_WITH(test_a_short_transfer_that_counts_as_whole_is_seen, scratch_setup, scratch_teardown)
{
    for (enum mover mover = MOVER_THREADS; mover < MOVERS; mover++) {
        if (!mover_allowed(mover))
            continue;
        cut_short_but_whole = true;
        cut_short(0, 1, 8192);
        struct outcome outcome = work_with(mover, *state, NULL);
        cut_short_but_whole = false;
        cut_short(-1, 0, 0);
        assert_int_equal(outcome.failures, 0);
        assert_int_equal(outcome.wrong, 1);
    }
}

SUITE_MAIN(NULL, NULL)
