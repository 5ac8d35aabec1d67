/* Blocks in a few buffers: who gives way, what comes back, against a plain model that keeps all. */
/* check: disk */
#include "../support/scratch.h"
#include "../support/suite.h"
#include "../support/wrapped.h"
#include "tiers.h"

#include "device/tier_private.h"

#include <lockstep/device/swap.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    BUFFERS = 3,
    BLOCKS = 7,
    BLOCK_BYTES = 2 * LS_TIER_ALIGN + 100,
    BLOCK_ROOM = 3 * LS_TIER_ALIGN,
    MOVES = 300,
};

/* ---- faults of the twins -------------------------------------------------------------------- */

static bool forgets_writes, waits_not;
static int writes;

/* The linker puts these in place of the tier's own (Makefile). */
WRAPPED(ls_tier_write);
int __wrap_ls_tier_write(struct ls_tier *tier, size_t offset, const void *device, size_t bytes,
                         struct ls_transfer *transfer, struct ls_error *error)
{
    if (forgets_writes && ++writes % 5 == 0)
        return LS_OK;
    return __real_ls_tier_write(tier, offset, device, bytes, transfer, error);
}

WRAPPED(ls_transfer_wait);
int __wrap_ls_transfer_wait(struct ls_transfer *transfer, struct ls_error *error)
{
    if (waits_not && is_read(transfer))
        return LS_OK;
    return __real_ls_transfer_wait(transfer, error);
}

/* ---- a swap, and what its blocks should be -------------------------------------------------- */

struct fixture {
    struct ls_arena arena;
    struct ls_tier *tier;
    struct ls_swap swap;
    size_t room;           /* between blocks in the tier */
    uint32_t seed[BLOCKS]; /* of the pattern that was put last; 0: none was */
    uint32_t draws, seeds;
    size_t wrong;
};

static void fixture_open(struct fixture *f, enum mover mover, const char *folder,
                         const struct ls_fault *fault)
{
    struct ls_error error = {0};
    *f = (struct fixture){.room = BLOCK_ROOM};
    assert_int_equal(ls_arena_init(&f->arena, (size_t)BUFFERS * BLOCK_ROOM + LS_TIER_ALIGN, &error),
                     LS_OK);
    f->tier = mover_open(mover, folder, (size_t)BLOCKS * BLOCK_ROOM, fault);
    ls_swap_init(&f->swap, f->tier, BUFFERS, BLOCK_BYTES, &f->arena);
}

static void fixture_close(struct fixture *f)
{
    waits_not = false;
    ls_swap_settle(&f->swap, NULL);
    assert_true(tier_is_still(f->tier));
    ls_tier_free(f->tier);
    ls_arena_release(&f->arena);
}

static struct ls_swap_block block_of(const struct fixture *f, int number)
{
    return (struct ls_swap_block){number, (size_t)number * f->room, BLOCK_BYTES};
}

static uint32_t draw(struct fixture *f, uint32_t below)
{
    uint32_t out[4], counter[4] = {f->draws++};
    ls_philox((struct ls_philox_key){{3, 5}}, counter, out);
    return out[0] % below;
}

/* A block with new bytes. */
static int make(struct fixture *f, int number, struct ls_error *error)
{
    const struct ls_swap_block block = block_of(f, number);
    struct ls_swap_buffer *buffer;
    int status = ls_swap_get(&f->swap, &block, false, &buffer, error);
    if (status)
        return status;
    f->seed[number] = ++f->seeds;
    pattern_fill(buffer->data, BLOCK_BYTES, f->seed[number]);
    return ls_swap_put(&f->swap, buffer, &block, error);
}

/* A block that comes and is looked at; with changes, it gets new bytes too. */
static int look(struct fixture *f, int number, bool changes, struct ls_error *error)
{
    const struct ls_swap_block block = block_of(f, number);
    struct ls_swap_buffer *buffer;
    int status = ls_swap_get(&f->swap, &block, true, &buffer, error);
    if (!status)
        status = changes ? ls_swap_wait(buffer, error) : ls_swap_wait_read(buffer, error);
    if (status)
        return status;
    f->wrong += pattern_differs(buffer->data, BLOCK_BYTES, f->seed[number]) != 0;
    if (!changes)
        return LS_OK;
    f->seed[number] = ++f->seeds;
    pattern_fill(buffer->data, BLOCK_BYTES, f->seed[number]);
    return ls_swap_put(&f->swap, buffer, &block, error);
}

/* A block is on its way. */
static int expect(struct fixture *f, int number, struct ls_error *error)
{
    const struct ls_swap_block block = block_of(f, number);
    struct ls_swap_buffer *buffer;
    return ls_swap_get(&f->swap, &block, true, &buffer, error);
}

/* One move at random. */
static int move(struct fixture *f, struct ls_error *error)
{
    int number = (int)draw(f, BLOCKS);
    uint32_t kind = draw(f, 4);
    if (kind == 0 || f->seed[number] == 0)
        return make(f, number, error);
    return kind == 1 ? expect(f, number, error) : look(f, number, kind == 2, error);
}

static int moves(struct fixture *f, int count, struct ls_error *error)
{
    int status = LS_OK;
    for (int i = 0; i < count && !status; i++)
        status = move(f, error);
    return status ? status : ls_swap_settle(&f->swap, error);
}

/* How many looks of a long sequence at random saw other bytes than were put last. */
static size_t wrong_looks(struct fixture *f)
{
    struct ls_error error = {0};
    assert_ok(moves(f, MOVES, &error), error);
    return f->wrong;
}

/* ---- tests ---------------------------------------------------------------------------------- */

CASE_WITH(test_the_least_recently_used_gives_way, scratch_setup, scratch_teardown)
{
    struct fixture f;
    struct ls_error error = {0};
    fixture_open(&f, MOVER_HOST, *state, NULL);
    assert_int_equal(ls_swap_next(&f.swap), -1);
    for (int i = 0; i < BUFFERS; i++) {
        assert_null(ls_swap_find(&f.swap, i));
        assert_int_equal(make(&f, i, &error), LS_OK);
        assert_non_null(ls_swap_find(&f.swap, i));
    }
    assert_int_equal(ls_swap_next(&f.swap), 0);
    const struct ls_swap_buffer *first = ls_swap_find(&f.swap, 0);
    assert_int_equal(look(&f, 0, false, &error), LS_OK);
    assert_ptr_equal(ls_swap_find(&f.swap, 0), first);
    static const int order[] = {1, 2, 0, 3};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(ls_swap_next(&f.swap), order[i]);
        assert_int_equal(make(&f, BUFFERS + i, &error), LS_OK);
        assert_null(ls_swap_find(&f.swap, order[i]));
        assert_non_null(ls_swap_find(&f.swap, BUFFERS + i));
    }
    fixture_close(&f);
}

/* Only what has no buffer is read. */
CASE_WITH(test_what_is_here_is_not_read, scratch_setup, scratch_teardown)
{
    struct fixture f;
    struct ls_error error = {0};
    fixture_open(&f, MOVER_HOST, *state, NULL);
    for (int i = 0; i < BUFFERS; i++)
        assert_int_equal(make(&f, i, &error), LS_OK);
    for (int i = 0; i < BUFFERS; i++)
        assert_int_equal(look(&f, i, false, &error), LS_OK);
    assert_int_equal(ls_tier_get_counts(f.tier).reads, 0);
    assert_int_equal(make(&f, BUFFERS, &error), LS_OK);
    assert_int_equal(look(&f, 0, false, &error), LS_OK);
    assert_int_equal(look(&f, 0, false, &error), LS_OK);
    assert_int_equal(ls_tier_get_counts(f.tier).reads, 1);
    assert_int_equal(f.wrong, 0);
    fixture_close(&f);
}

CASE_WITH(test_all_come_back, scratch_setup, scratch_teardown)
{
    for (enum mover mover = 0; mover < MOVERS; mover++) {
        struct fixture f;
        struct ls_error error = {0};
        if (!mover_allowed(mover))
            continue;
        fixture_open(&f, mover, *state, NULL);
        for (int i = 0; i < BLOCKS; i++)
            assert_int_equal(make(&f, i, &error), LS_OK);
        for (int i = BLOCKS - 1; i >= 0; i--) { /* the way of a backward: the next is on its way */
            assert_int_equal(look(&f, i, false, &error), LS_OK);
            if (i > 0)
                assert_int_equal(expect(&f, i - 1, &error), LS_OK);
        }
        assert_int_equal(f.wrong, 0);
        fixture_close(&f);
    }
}

CASE_WITH(test_random_moves_are_those_of_the_model, scratch_setup, scratch_teardown)
{
    for (enum mover mover = 0; mover < MOVERS; mover++) {
        struct fixture f;
        if (!mover_allowed(mover))
            continue;
        fixture_open(&f, mover, *state, NULL);
        assert_int_equal(wrong_looks(&f), 0);
        struct ls_tier_counts counts = ls_tier_get_counts(f.tier);
        print_message("%s: %d moves, %ld reads, %ld writes\n", ls_tier_text(f.tier), MOVES,
                      (long)counts.reads, (long)counts.writes);
        assert_true(counts.reads > MOVES / 10 && counts.writes > MOVES / 10);
        fixture_close(&f);
    }
}

/* Slow disks change nothing: transfers that are tried again and again. */
CASE_WITH(test_slow_disks_change_nothing, scratch_setup, scratch_teardown)
{
    for (int reads = 0; reads < 2; reads++) {
        struct fixture f;
        struct failing slow;
        failing_init(&slow, reads ? "read" : "write", 0, EAGAIN);
        slow.count = 60;
        fixture_open(&f, MOVER_THREADS, *state, &slow.fault);
        assert_int_equal(wrong_looks(&f), 0);
        assert_true(slow.seen > slow.count);
        fixture_close(&f);
    }
}

/* ---- disks that fail ------------------------------------------------------------------------ */

enum { FEW = 40 };

/* The n-th call fails: somebody is told, nothing moves in the end, and what comes after is whole.
 */
static bool fail_at(const char *folder, const char *call, int64_t n)
{
    struct fixture f;
    struct failing failing;
    struct ls_error error = {0};
    failing_init(&failing, call, n, EIO);
    fixture_open(&f, MOVER_THREADS, folder, &failing.fault);
    int status = moves(&f, FEW, &error);
    ls_swap_settle(&f.swap, NULL); /* after a failure others still move */
    if (failing.seen > n) {
        assert_int_equal(status, LS_EIO);
        assert_non_null(strstr(error.text, "rank-00003.offload/data"));
    } else {
        assert_int_equal(status, LS_OK);
    }
    assert_int_equal(f.wrong, 0);
    assert_true(tier_is_still(f.tier));
    memset(f.seed, 0, sizeof f.seed);
    failing.first = -1;
    assert_int_equal(moves(&f, FEW, &error), LS_OK);
    assert_int_equal(f.wrong, 0);
    fixture_close(&f);
    return status != LS_OK;
}

CASE_WITH(test_every_failure_is_told, scratch_setup, scratch_teardown)
{
    static const char *const calls[] = {"read", "write"};
    for (int c = 0; c < 2; c++) {
        int64_t n = 0;
        while (fail_at(*state, calls[c], n))
            n++;
        print_message("%ld of %s\n", (long)n, calls[c]);
        assert_true(n >= 5);
    }
}

/* A block whose read failed is not here: it is asked for again. */
CASE_WITH(test_what_could_not_be_read_is_read_again, scratch_setup, scratch_teardown)
{
    struct fixture f;
    struct failing failing;
    struct ls_error error = {0};
    failing_init(&failing, "read", 0, EIO);
    fixture_open(&f, MOVER_THREADS, *state, &failing.fault);
    for (int i = 0; i <= BUFFERS; i++)
        assert_int_equal(make(&f, i, &error), LS_OK);
    assert_int_equal(look(&f, 0, false, &error), LS_EIO);
    assert_int_equal(look(&f, 0, false, &error), LS_OK);
    assert_int_equal(f.wrong, 0);
    fixture_close(&f);
}

/* ---- broken twins --------------------------------------------------------------------------- */

CASE_WITH(test_a_write_that_is_forgotten_is_seen, scratch_setup, scratch_teardown)
{
    struct fixture f;
    fixture_open(&f, MOVER_HOST, *state, NULL);
    forgets_writes = true;
    size_t wrong = wrong_looks(&f);
    forgets_writes = false;
    fixture_close(&f);
    assert_true(wrong > 0);
}

CASE_WITH(test_two_blocks_in_one_place_are_seen, scratch_setup, scratch_teardown)
{
    struct fixture f;
    fixture_open(&f, MOVER_HOST, *state, NULL);
    f.room = BLOCK_ROOM - LS_TIER_ALIGN;
    assert_true(wrong_looks(&f) > 0);
    fixture_close(&f);
}

CASE_WITH(test_a_read_that_is_not_waited_for_is_seen, scratch_setup, scratch_teardown)
{
#ifdef __SANITIZE_THREAD__
    skip(); /* it races by intention */
#endif
    struct fixture f;
    struct failing slow;
    struct ls_error error = {0};
    failing_init(&slow, "read", 0, EAGAIN);
    slow.count = 20;
    fixture_open(&f, MOVER_THREADS, *state, &slow.fault);
    for (int i = 0; i < BLOCKS; i++)
        assert_int_equal(make(&f, i, &error), LS_OK);
    waits_not = true;
    assert_int_equal(look(&f, 0, false, &error), LS_OK);
    assert_int_equal(f.wrong, 1);
    fixture_close(&f);
}

SUITE_MAIN(NULL, NULL)
