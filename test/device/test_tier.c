/* Memory tiers give back what they took, in the order of the program, whoever moves the bytes. */
/* check: disk */
#include "../support/await.h"
#include "../support/extent.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "../support/wrapped.h"
#include "tiers.h"

#include "device/tier_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The linker puts this in place of the tier's own rule (Makefile). */
WRAPPED(tier_may_begin);
static bool order_is_broken;
bool __wrap_tier_may_begin(const struct ls_tier *tier, const struct tier_transfer *transfer)
{
    return order_is_broken || __real_tier_may_begin(tier, transfer);
}

/* The twins race by intention, which the thread sanitizer would report. */
static bool twins_may_run(void)
{
#ifdef __SANITIZE_THREAD__
    return false;
#else
    return true;
#endif
}

static void wait_for(struct ls_transfer *transfer)
{
    struct ls_error error = {0};
    assert_ok(ls_transfer_wait(transfer, &error), error);
    assert_null(transfer->tier);
}

static void start_write(struct ls_tier *tier, size_t offset, const void *device, size_t bytes,
                        struct ls_transfer *transfer)
{
    struct ls_error error = {0};
    assert_ok(ls_tier_write(tier, offset, device, bytes, transfer, &error), error);
}

static void start_read(struct ls_tier *tier, size_t offset, void *device, size_t bytes,
                       struct ls_transfer *transfer)
{
    struct ls_error error = {0};
    assert_ok(ls_tier_read(tier, offset, device, bytes, transfer, &error), error);
}

/* ---- round trips ---------------------------------------------------------------------------- */

enum { SIZES = 9, RED_ZONE = LS_TIER_ALIGN };
static const size_t sizes[SIZES] = {1,
                                    4095,
                                    4096,
                                    4097,
                                    TIER_PIECE_BYTES - 1,
                                    TIER_PIECE_BYTES,
                                    TIER_PIECE_BYTES + 1,
                                    3 * TIER_PIECE_BYTES + 5,
                                    100000};

/* Writes pieces of odd sizes, all under way at once, and reads them back. Returns the bytes that
 * came back wrong when wait said that they were there. */
static size_t round_trips(struct ls_tier *tier, void (*wait)(struct ls_transfer *))
{
    struct ls_transfer moves[SIZES] = {{0}};
    unsigned char *from[SIZES], *to[SIZES];
    size_t offsets[SIZES], wrong = 0;
    struct ls_tier_room room = {0};
    for (int i = 0; i < SIZES; i++) {
        offsets[i] = ls_tier_room_take(&room, sizes[i]);
        from[i] = device_new(sizes[i]);
        to[i] = device_new(sizes[i] + LS_TIER_ALIGN + RED_ZONE);
        pattern_fill(from[i], sizes[i], (uint32_t)i);
        start_write(tier, offsets[i], from[i], sizes[i], &moves[i]);
    }
    for (int i = SIZES - 1; i >= 0; i--)
        wait_for(&moves[i]);
    for (int i = 0; i < SIZES; i++)
        start_read(tier, offsets[i], to[i], sizes[i], &moves[i]);
    for (int i = 0; i < SIZES; i++) {
        wait(&moves[i]);
        wrong += pattern_differs(to[i], sizes[i], (uint32_t)i);
    }
    for (int i = 0; i < SIZES; i++) {
        wait_for(&moves[i]);
        size_t end = (sizes[i] + LS_TIER_ALIGN - 1) / LS_TIER_ALIGN * LS_TIER_ALIGN;
        for (size_t k = end; k < end + RED_ZONE; k++)
            assert_int_equal(to[i][k], 0xa5);
        free(from[i]);
        free(to[i]);
    }
    return wrong;
}

static size_t round_trip_bytes(void)
{
    struct ls_tier_room room = {0};
    for (int i = 0; i < SIZES; i++)
        ls_tier_room_take(&room, sizes[i]);
    return room.used;
}

CASE_WITH(test_round_trips, scratch_setup, scratch_teardown)
{
    for (enum mover mover = 0; mover < MOVERS; mover++) {
        if (!mover_allowed(mover))
            continue;
        struct ls_tier *tier = mover_open(mover, *state, round_trip_bytes(), NULL);
        print_message("%s\n", ls_tier_text(tier));
        for (int round = 0; round < 3; round++)
            assert_int_equal(round_trips(tier, wait_for), 0);
        ls_tier_free(tier);
    }
}

static void wait_not(struct ls_transfer *transfer)
{
    (void)transfer;
}

/* The broken twin: reads are held up, so a wait that does not wait sees old bytes. */
CASE_WITH(test_a_wait_that_does_not_wait_is_seen, scratch_setup, scratch_teardown)
{
    for (enum mover mover = 0; mover < MOVERS && twins_may_run(); mover++) {
        if (!mover_allowed(mover))
            continue;
        struct failing slow;
        failing_init(&slow, "read", 0, EAGAIN);
        slow.count = 20;
        struct ls_tier *tier = mover_open(mover, *state, round_trip_bytes(), &slow.fault);
        assert_true(round_trips(tier, wait_not) > 0);
        ls_tier_free(tier);
    }
}

CASE_WITH(test_what_was_never_written_is_zero, scratch_setup, scratch_teardown)
{
    for (enum mover mover = 0; mover < MOVERS; mover++) {
        if (!mover_allowed(mover))
            continue;
        struct ls_tier *tier = mover_open(mover, *state, 10000, NULL);
        struct ls_transfer move = {0};
        unsigned char *memory = device_new(12288);
        start_read(tier, 0, memory, 10000, &move);
        wait_for(&move);
        for (int i = 0; i < 10000; i++)
            assert_int_equal(memory[i], 0);
        free(memory);
        ls_tier_free(tier);
    }
}

/* ---- order ---------------------------------------------------------------------------------- */

enum {
    UNIT = TIER_PIECE_BYTES / 4 * 3, /* no part of a piece */
    UNITS = 12,
    MOVES = 40,
    SPAN_MAX = 4,
};

static int batches(void)
{
    return 12 / check_every(4, 4);
}

/* One history: device and tier as they are, and as they should be. */
struct history {
    struct ls_tier *tier;
    unsigned char *device, *device_model, *tier_model;
    uint32_t draws;
};

static uint32_t draw(struct history *history, uint32_t below)
{
    uint32_t out[4], counter[4] = {history->draws++};
    ls_philox((struct ls_philox_key){{7, 11}}, counter, out);
    return out[0] % below;
}

/* Starts transfers of ranges that overlap, on both sides, and waits only at the end. */
static void history_batch(struct history *history)
{
    struct ls_transfer moves[MOVES] = {{0}};
    for (int i = 0; i < MOVES; i++) {
        size_t span = 1 + draw(history, SPAN_MAX), bytes = span * UNIT;
        size_t at = draw(history, (uint32_t)(UNITS - span + 1)) * (size_t)UNIT;
        size_t offset = draw(history, (uint32_t)(UNITS - span + 1)) * (size_t)UNIT;
        if (draw(history, 2)) {
            start_write(history->tier, offset, history->device + at, bytes, &moves[i]);
            memcpy(history->tier_model + offset, history->device_model + at, bytes);
        } else {
            start_read(history->tier, offset, history->device + at, bytes, &moves[i]);
            memcpy(history->device_model + at, history->tier_model + offset, bytes);
        }
    }
    for (int i = 0; i < MOVES; i++)
        wait_for(&moves[i]);
}

/* Batches of transfers against the same in plain memory; the number of batches that differ. */
static int histories_differ(struct ls_tier *tier)
{
    size_t bytes = (size_t)UNITS * UNIT;
    struct history history = {.tier = tier,
                              .device = device_new(bytes),
                              .device_model = malloc(bytes),
                              .tier_model = calloc(1, bytes)};
    int differ = 0;
    for (int batch = 0; batch < batches(); batch++) {
        pattern_fill(history.device, bytes, (uint32_t)batch);
        memcpy(history.device_model, history.device, bytes);
        history_batch(&history);
        differ += memcmp(history.device, history.device_model, bytes) != 0;
    }
    free(history.tier_model);
    free(history.device_model);
    free(history.device);
    return differ;
}

CASE_WITH(test_overlapping_transfers_keep_their_order, scratch_setup, scratch_teardown)
{
    for (enum mover mover = 0; mover < MOVERS; mover++) {
        if (!mover_allowed(mover))
            continue;
        struct ls_tier *tier = mover_open(mover, *state, (size_t)UNITS * UNIT, NULL);
        assert_int_equal(histories_differ(tier), 0);
        ls_tier_free(tier);
    }
}

/* The broken twin. One thread that copies front to back keeps any order by itself. On a busy
 * machine several may keep it for a while, so it has many tries. */
CASE_WITH(test_a_tier_without_order_is_seen, scratch_setup, scratch_teardown)
{
    for (enum mover mover = MOVER_THREADS; mover < MOVERS && twins_may_run(); mover++) {
        if (!mover_allowed(mover))
            continue;
        int differ = 0, tries = 0;
        while (!differ && tries++ < 50) {
            struct ls_tier *tier = mover_open(mover, *state, (size_t)UNITS * UNIT, NULL);
            order_is_broken = true;
            differ = histories_differ(tier);
            order_is_broken = false;
            ls_tier_free(tier);
        }
        print_message("without order %d of %d batches differ, at try %d\n", differ, batches(),
                      tries);
        assert_true(differ > 0);
    }
}

CASE(test_order_asks_for_what_is_shared)
{
    unsigned char *memory = device_new(4 * LS_TIER_ALIGN);
    struct tier_transfer second = {.bytes = LS_TIER_ALIGN, .device = memory, .offset = 0};
    struct tier_transfer first = {.bytes = LS_TIER_ALIGN, .next = &second};
    struct ls_tier tier = {.first = &first};
    const struct {
        bool first_writes, second_writes;
        size_t device, offset; /* of the first, in units */
        bool may_begin;
    } cases[] = {
        {true, true, 1, 1, true},   {true, true, 1, 0, false},  {true, true, 0, 1, true},
        {true, false, 1, 0, false}, {true, false, 0, 1, false}, {false, true, 1, 0, false},
        {false, true, 0, 1, false}, {false, false, 1, 0, true}, {false, false, 0, 1, false},
        {true, false, 1, 1, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        first.writes = cases[i].first_writes;
        second.writes = cases[i].second_writes;
        first.device = memory + cases[i].device * LS_TIER_ALIGN;
        first.offset = cases[i].offset * LS_TIER_ALIGN;
        if (tier_may_begin(&tier, &second) != cases[i].may_begin)
            fail_msg("case %zu: expected %d", i, cases[i].may_begin);
    }
    free(memory);
}

/* ---- many, none, and what is refused -------------------------------------------------------- */

CASE_WITH(test_many_transfers, scratch_setup, scratch_teardown)
{
    enum { MANY = 400, BYTES = 9000, ROOM = 12288 };
    static struct ls_transfer moves[MANY];
    for (enum mover mover = 0; mover < MOVERS; mover++) {
        if (!mover_allowed(mover))
            continue;
        struct ls_tier *tier = mover_open(mover, *state, (size_t)MANY * ROOM, NULL);
        unsigned char *from = device_new((size_t)MANY * ROOM),
                      *to = device_new((size_t)MANY * ROOM);
        for (size_t i = 0; i < MANY; i++) {
            pattern_fill(from + i * ROOM, BYTES, (uint32_t)i);
            start_write(tier, (MANY - 1 - i) * ROOM, from + i * ROOM, BYTES, &moves[i]);
        }
        for (size_t i = MANY; i-- > 0;)
            wait_for(&moves[i]);
        for (size_t i = 0; i < MANY; i++)
            start_read(tier, (MANY - 1 - i) * ROOM, to + i * ROOM, BYTES, &moves[i]);
        for (size_t i = 0; i < MANY; i++) {
            wait_for(&moves[i]);
            assert_int_equal(pattern_differs(to + i * ROOM, BYTES, (uint32_t)i), 0);
        }
        free(from);
        free(to);
        ls_tier_free(tier);
    }
}

CASE_WITH(test_refusals, scratch_setup, scratch_teardown)
{
    for (enum mover mover = 0; mover < MOVERS; mover++) {
        if (!mover_allowed(mover))
            continue;
        struct ls_error error = {0};
        struct ls_transfer none = {0};
        unsigned char *memory = device_new(16384);
        struct ls_tier *tier = mover_open(mover, *state, 8192, NULL);
        assert_int_equal(ls_tier_read(tier, 1, memory, 1, &none, &error), LS_EINVAL);
        assert_int_equal(ls_tier_write(tier, 0, memory + 64, 1, &none, &error), LS_EINVAL);
        assert_int_equal(ls_tier_write(tier, 4096, memory, 4097, &none, &error), LS_EINVAL);
        assert_non_null(strstr(error.text, "4097 bytes at offset 4096: it has 8192"));
        assert_int_equal(ls_tier_write(tier, 0, memory, SIZE_MAX, &none, &error), LS_EINVAL);
        assert_int_equal(ls_tier_read(tier, SIZE_MAX - 4095, memory, 4096, &none, &error),
                         LS_EINVAL);
        assert_int_equal(ls_tier_write(tier, 4096, memory, 0, &none, &error), LS_OK);
        assert_null(none.tier);
        assert_int_equal(ls_transfer_wait(&none, &error), LS_OK);
        assert_int_equal(ls_tier_get_counts(tier).writes, 0);
        ls_tier_free(tier);
        free(memory);
    }
    const struct ls_tier_options wrong[] = {
        {.kind = LS_TIER_DEVICE, .bytes = 1},
        {.kind = LS_TIER_HOST},
        {.kind = LS_TIER_HOST, .bytes = SIZE_MAX},
        {.kind = LS_TIER_FILE, .bytes = 1},
        {.kind = LS_TIER_FILE, .bytes = 1, .folder = ""},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct ls_tier *tier;
        struct ls_error error = {0};
        assert_int_equal(ls_tier_new(&wrong[i], &tier, &error), LS_EINVAL);
        assert_null(tier);
    }
    struct ls_tier *tier;
    struct ls_error error = {0};
    struct ls_tier_options large = {.kind = LS_TIER_HOST, .bytes = (size_t)1 << 62};
    assert_int_equal(ls_tier_new(&large, &tier, &error), LS_ENOMEM);
    ls_tier_free(NULL);
}

/* Held up by 50 tries of a millisecond each. */
CASE_WITH(test_counts, scratch_setup, scratch_teardown)
{
    for (enum mover mover = 0; mover < MOVERS; mover++) {
        if (!mover_allowed(mover))
            continue;
        struct failing slow;
        failing_init(&slow, "write", 0, EAGAIN);
        slow.count = 50;
        struct ls_tier *tier = mover_open(mover, *state, 1 << 20, &slow.fault);
        struct ls_transfer move = {0};
        unsigned char *memory = device_new(1 << 20);
        struct ls_tier_counts first = {0};
        int writes = 0;
        while (first.wait_s == 0) { /* who is held up until it has moved waits for nothing */
            slow.seen = 0;
            start_write(tier, 0, memory, 5000, &move);
            wait_for(&move);
            first = ls_tier_get_counts(tier);
            assert_int_equal(first.writes, ++writes);
            assert_int_equal(first.written_bytes, writes * 5000);
        }
        assert_true(first.busy_s >= 0.05);
        slow.seen = 0; /* again, while the caller does something else */
        start_write(tier, 0, memory, 5000, &move);
        for (double busy_s = 0, before = -1; busy_s == first.busy_s || busy_s != before;) {
            before = busy_s; /* it grows while something moves, and not while nothing does */
            await_pause();
            busy_s = ls_tier_get_counts(tier).busy_s;
        }
        wait_for(&move);
        start_read(tier, 0, memory, 7, &move);
        struct ls_tier_counts second = ls_tier_get_counts(tier);
        wait_for(&move);
        assert_int_equal(second.writes, writes + 1);
        assert_int_equal(second.reads, 1);
        assert_int_equal(second.read_bytes, 7);
        assert_true(second.busy_s >= first.busy_s + 0.05);
        assert_true(second.wait_s == first.wait_s);
        free(memory);
        ls_tier_free(tier);
    }
}

CASE_WITH(test_free_waits_for_what_moves, scratch_setup, scratch_teardown)
{
    enum { BYTES = 2 * TIER_PIECE_BYTES };
    for (enum mover mover = 0; mover < MOVERS; mover++) {
        if (!mover_allowed(mover))
            continue;
        struct failing slow;
        failing_init(&slow, "read", 0, EAGAIN);
        slow.count = 10;
        struct ls_tier *tier = mover_open(mover, *state, BYTES, &slow.fault);
        struct ls_transfer out = {0}, in = {0};
        unsigned char *from = device_new(BYTES), *to = device_new(BYTES);
        pattern_fill(from, BYTES, 1);
        start_write(tier, 0, from, BYTES, &out);
        start_read(tier, 0, to, BYTES, &in);
        ls_tier_free(tier);
        assert_int_equal(pattern_differs(to, BYTES, 1), 0);
        free(from);
        free(to);
    }
}

CASE(test_room)
{
    struct ls_tier_room room = {0};
    assert_int_equal(ls_tier_room_take(&room, 1), 0);
    assert_int_equal(ls_tier_room_take(&room, 0), 4096);
    assert_int_equal(ls_tier_room_take(&room, 8192), 4096);
    assert_int_equal(ls_tier_room_take(&room, 4097), 12288);
    assert_int_equal(room.used, 20480);
    assert_string_equal(ls_tier_name(LS_TIER_DEVICE), "none");
    assert_string_equal(ls_tier_name(LS_TIER_HOST), "host");
    assert_string_equal(ls_tier_name(LS_TIER_FILE), "file");
}

SUITE_MAIN(NULL, NULL)
