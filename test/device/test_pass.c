/* A pass over arrays in a tier: each window is read before it is worked on and written after it,
 * the next one is on its way meanwhile, and an error ends it with nothing moving. */
/* check: disk */
#include "../support/scratch.h"
#include "../support/suite.h"
#include "../support/wrapped.h"
#include "tiers.h"

#include "device/tier_private.h"

#include <lockstep/device/pass.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    IN_OUT, /* read and written */
    IN,     /* read alone */
    OUT,    /* written alone */
    HALF,   /* read and written, of half as many bytes, in every third window */
    LANES,
    WINDOW = LS_TIER_ALIGN, /* elements of a window: each lane is whole units */
    WINDOWS_MAX = 9,
    LAST = 1001, /* elements of the last window */
    ROOM = (WINDOWS_MAX + 1) * WINDOW,
};

/* ---- what moves, in its order --------------------------------------------------------------- */

enum event { EVENT_READ, EVENT_WRITE, EVENT_WORK };
static struct {
    enum event event;
    size_t offset; /* of work: the window */
} events[200];
static int event_count;
static bool waits_not;

static void note(enum event event, size_t offset)
{
    if (event_count < (int)(sizeof events / sizeof *events)) {
        events[event_count].event = event;
        events[event_count++].offset = offset;
    }
}

/* When the event was, counted from 1; 0: never. */
static int when(enum event event, size_t offset)
{
    for (int i = 0; i < event_count; i++)
        if (events[i].event == event && events[i].offset == offset)
            return i + 1;
    return 0;
}

/* The linker puts these in place of the tier's own (Makefile). */
WRAPPED(ls_tier_read);
int __wrap_ls_tier_read(struct ls_tier *tier, size_t offset, void *device, size_t bytes,
                        struct ls_transfer *transfer, struct ls_error *error)
{
    note(EVENT_READ, offset);
    return __real_ls_tier_read(tier, offset, device, bytes, transfer, error);
}

WRAPPED(ls_tier_write);
int __wrap_ls_tier_write(struct ls_tier *tier, size_t offset, const void *device, size_t bytes,
                         struct ls_transfer *transfer, struct ls_error *error)
{
    note(EVENT_WRITE, offset);
    return __real_ls_tier_write(tier, offset, device, bytes, transfer, error);
}

WRAPPED(ls_transfer_wait);
int __wrap_ls_transfer_wait(struct ls_transfer *transfer, struct ls_error *error)
{
    if (waits_not && is_read(transfer))
        return LS_OK;
    return __real_ls_transfer_wait(transfer, error);
}

/* ---- arrays in a tier, and beside it what they should be ------------------------------------ */

struct fixture {
    struct ls_arena arena;
    struct ls_tier *tier;
    struct ls_pass pass;
    uint32_t *array[LANES]; /* [ROOM] */
    size_t place[LANES];    /* in the tier */
    int windows;            /* the last one is partial */
    int next, worked;
    int fails_at; /* work of this window; -1: none */
    int64_t step; /* elements between windows */
};

static size_t element_bytes(int lane)
{
    return lane == HALF ? sizeof(uint16_t) : sizeof(uint32_t);
}

static void fixture_open(struct fixture *f, enum mover mover, const char *folder, int windows,
                         const struct ls_fault *fault)
{
    struct ls_error error = {0};
    struct ls_tier_room room = {0};
    size_t lanes[LS_PASS_LANES] = {0};
    *f = (struct fixture){.windows = windows, .fails_at = -1, .step = WINDOW};
    for (int l = 0; l < LANES; l++) {
        lanes[l] = WINDOW * element_bytes(l);
        f->place[l] = ls_tier_room_take(&room, ROOM * element_bytes(l));
        f->array[l] = calloc(ROOM, sizeof *f->array[l]);
        assert_non_null(f->array[l]);
    }
    struct ls_arena measure;
    ls_arena_measure(&measure);
    ls_pass_init(&f->pass, lanes, &measure);
    assert_int_equal(ls_arena_init(&f->arena, measure.used, &error), LS_OK);
    ls_pass_init(&f->pass, lanes, &f->arena);
    f->tier = mover_open(mover, folder, room.used, fault);
    event_count = 0;
}

static void fixture_close(struct fixture *f)
{
    ls_tier_free(f->tier);
    ls_arena_release(&f->arena);
    for (int l = 0; l < LANES; l++)
        free(f->array[l]);
}

static bool has_half(int64_t window)
{
    return window % 3 == 1;
}

static bool window_next(void *user, struct ls_window *window)
{
    struct fixture *f = user;
    if (f->next == f->windows)
        return false;
    window->index = f->next;
    window->from = f->next * f->step;
    window->count = f->next == f->windows - 1 ? LAST : WINDOW;
    static const enum ls_access access[LANES] = {LS_READS_WRITES, LS_READS, LS_WRITES,
                                                 LS_READS_WRITES};
    for (int l = 0; l < LANES; l++)
        if (l != HALF || has_half(f->next))
            window->lane[l] =
                (struct ls_lane){.tier = f->tier,
                                 .offset = f->place[l] + (size_t)window->from * element_bytes(l),
                                 .bytes = (size_t)window->count * element_bytes(l),
                                 .access = access[l]};
    f->next++;
    return true;
}

/* One element of each lane. The order of elements and windows shows in what comes out. */
static void element_work(uint32_t *in_out, const uint32_t *in, uint32_t *out, uint16_t *half)
{
    *in_out = *in_out * 3 + *in + 1;
    *out = *in_out ^ *in;
    if (half)
        *half = (uint16_t)(*half * 5 + *in);
}

static int window_work(void *user, const struct ls_window *window, struct ls_error *error)
{
    struct fixture *f = user;
    note(EVENT_WORK, (size_t)window->index);
    assert_int_equal(window->index, f->worked++);
    if (window->index == f->fails_at)
        return ls_error_set(error, LS_ENUMERIC, "the work of window %d", f->fails_at);
    uint16_t *half = has_half(window->index) ? window->lane[HALF].data : NULL;
    uint32_t *in_out = window->lane[IN_OUT].data, *out = window->lane[OUT].data;
    const uint32_t *in = window->lane[IN].data;
    for (int64_t k = 0; k < window->count; k++)
        element_work(in_out + k, in + k, out + k, half ? half + k : NULL);
    return LS_OK;
}

static int pass_run(struct fixture *f, struct ls_error *error)
{
    const struct ls_pass_work work = {window_next, window_work, f};
    f->next = f->worked = 0;
    event_count = 0;
    int status = ls_pass_run(&f->pass, &work, error);
    assert_true(waits_not || tier_is_still(f->tier));
    return status;
}

/* The same on the arrays beside the tier. */
static void plain_run(struct fixture *f)
{
    for (int w = 0; w < f->windows; w++)
        for (int64_t k = w * f->step; k < w * f->step + (w == f->windows - 1 ? LAST : WINDOW); k++)
            element_work(f->array[IN_OUT] + k, f->array[IN] + k, f->array[OUT] + k,
                         has_half(w) ? (uint16_t *)f->array[HALF] + k : NULL);
}

/* Moves a lane's whole array between tier and memory, past the pass. */
static void array_move(struct fixture *f, int lane, unsigned char *memory, bool writes)
{
    struct ls_transfer transfer = {0};
    struct ls_error error = {0};
    size_t bytes = ROOM * element_bytes(lane);
    int status =
        writes ? __real_ls_tier_write(f->tier, f->place[lane], memory, bytes, &transfer, &error)
               : __real_ls_tier_read(f->tier, f->place[lane], memory, bytes, &transfer, &error);
    if (status || __real_ls_transfer_wait(&transfer, &error))
        fail_msg("%s", error.text);
}

static void arrays_fill(struct fixture *f)
{
    unsigned char *memory = device_new(ROOM * sizeof(uint32_t));
    for (int l = 0; l < LANES; l++) {
        size_t bytes = ROOM * element_bytes(l);
        pattern_fill(memory, bytes, (uint32_t)l + 1);
        memcpy(f->array[l], memory, bytes);
        array_move(f, l, memory, true);
    }
    free(memory);
}

/* Bytes in which the tier has something else than the arrays, the room behind the windows too. */
static size_t arrays_differ(struct fixture *f)
{
    unsigned char *memory = device_new(ROOM * sizeof(uint32_t));
    size_t count = 0;
    for (int l = 0; l < LANES; l++) {
        array_move(f, l, memory, false);
        const unsigned char *expected = (const unsigned char *)f->array[l];
        for (size_t i = 0; i < ROOM * element_bytes(l); i++)
            count += memory[i] != expected[i];
    }
    free(memory);
    return count;
}

/* The last window's transfers end within a unit, whose rest is the caller's to lose: it is made
 * equal. */
static void tails_forget(struct fixture *f)
{
    unsigned char *memory = device_new(ROOM * sizeof(uint32_t));
    for (int l = 0; l < LANES && f->windows > 0; l++) {
        size_t end = (size_t)((f->windows - 1) * f->step + LAST) * element_bytes(l);
        size_t unit = (size_t)ls_round_up((int64_t)end, LS_TIER_ALIGN);
        array_move(f, l, memory, false);
        memcpy((unsigned char *)f->array[l] + end, memory + end, unit - end);
    }
    free(memory);
}

/* ---- tests ---------------------------------------------------------------------------------- */

CASE_WITH(test_a_pass_is_the_plain_loop, scratch_setup, scratch_teardown)
{
    for (enum mover mover = 0; mover < MOVERS; mover++)
        for (int windows = 0; windows <= WINDOWS_MAX && mover_allowed(mover); windows++) {
            struct fixture f;
            struct ls_error error = {0};
            fixture_open(&f, mover, *state, windows, NULL);
            arrays_fill(&f);
            for (int again = 0; again < 2; again++) {
                assert_ok(pass_run(&f, &error), error);
                assert_int_equal(f.worked, windows);
                plain_run(&f);
                tails_forget(&f);
                assert_int_equal(arrays_differ(&f), 0);
            }
            fixture_close(&f);
        }
}

/* A window's reads are started before the work on the one before, its writes right behind its own
 * work; what is written alone is not read, and the other way round. */
CASE_WITH(test_the_next_window_is_on_its_way, scratch_setup, scratch_teardown)
{
    struct fixture f;
    struct ls_error error = {0};
    fixture_open(&f, MOVER_HOST, *state, WINDOWS_MAX, NULL);
    assert_int_equal(pass_run(&f, &error), LS_OK);
    for (int w = 0; w < WINDOWS_MAX; w++) {
        size_t first = (size_t)w * WINDOW * sizeof(uint32_t);
        int work = when(EVENT_WORK, (size_t)w);
        int read = when(EVENT_READ, f.place[IN_OUT] + first);
        int write = when(EVENT_WRITE, f.place[IN_OUT] + first);
        assert_true(read && work && write);
        assert_true(read < (w > 0 ? when(EVENT_WORK, (size_t)w - 1) : work));
        assert_true(write > work);
        assert_true(w == WINDOWS_MAX - 1 || write < when(EVENT_WORK, (size_t)w + 1));
        assert_true(when(EVENT_READ, f.place[IN] + first));
        assert_false(when(EVENT_WRITE, f.place[IN] + first));
        assert_false(when(EVENT_READ, f.place[OUT] + first));
        assert_true(when(EVENT_WRITE, f.place[OUT] + first));
        assert_int_equal(!when(EVENT_READ, f.place[HALF] + first / 2), !has_half(w));
        assert_int_equal(!when(EVENT_WRITE, f.place[HALF] + first / 2), !has_half(w));
    }
    fixture_close(&f);
}

/* Transfers that are held up change nothing: no buffer is used while one of them is under way. */
CASE_WITH(test_slow_disks_change_nothing, scratch_setup, scratch_teardown)
{
    for (int reads = 0; reads < 2; reads++) {
        struct fixture f;
        struct ls_error error = {0};
        struct failing slow;
        failing_init(&slow, reads ? "read" : "write", 2 * LANES, EAGAIN);
        slow.count = 60;
        fixture_open(&f, MOVER_THREADS, *state, WINDOWS_MAX, &slow.fault);
        arrays_fill(&f);
        assert_int_equal(pass_run(&f, &error), LS_OK);
        plain_run(&f);
        tails_forget(&f);
        assert_int_equal(arrays_differ(&f), 0);
        assert_true(slow.seen > slow.count);
        fixture_close(&f);
    }
}

/* The n-th read or write fails, for all n: the pass says so, and ends (pass_run sees that nothing
 * moves). The next pass is whole. */
static bool fail_at(const char *folder, const char *call, int64_t n, int errno_value)
{
    struct fixture f;
    struct failing failing;
    struct ls_error error = {0};
    failing_init(&failing, call, n, errno_value);
    fixture_open(&f, MOVER_THREADS, folder, WINDOWS_MAX, &failing.fault);
    int status = pass_run(&f, &error);
    bool failed = failing.seen > n;
    assert_int_equal(status, !failed ? LS_OK : errno_value == ENOSPC ? LS_ENOSPC : LS_EIO);
    assert_true(f.worked <= WINDOWS_MAX);
    if (failed)
        assert_non_null(strstr(error.text, "rank-00003.offload/data"));
    failing.first = -1;
    arrays_fill(&f);
    assert_int_equal(pass_run(&f, &error), LS_OK);
    plain_run(&f);
    tails_forget(&f);
    assert_int_equal(arrays_differ(&f), 0);
    fixture_close(&f);
    return failed;
}

CASE_WITH(test_every_failure_ends_the_pass, scratch_setup, scratch_teardown)
{
    static const struct {
        const char *call;
        int errno_value;
        int transfers; /* of a pass without failure */
    } cases[] = {{"read", EIO, 2 * WINDOWS_MAX + WINDOWS_MAX / 3},
                 {"write", ENOSPC, 2 * WINDOWS_MAX + WINDOWS_MAX / 3}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        int64_t n = 0;
        while (fail_at(*state, cases[c].call, n, cases[c].errno_value))
            n++;
        print_message("%ld of %s\n", (long)n, cases[c].call);
        assert_int_equal(n, cases[c].transfers);
    }
}

/* An error of the work is the pass's; nothing of that window is written. */
CASE_WITH(test_errors_of_the_work, scratch_setup, scratch_teardown)
{
    for (int w = 0; w < WINDOWS_MAX; w++) {
        struct fixture f;
        struct ls_error error = {0};
        fixture_open(&f, MOVER_THREADS, *state, WINDOWS_MAX, NULL);
        f.fails_at = w;
        assert_int_equal(pass_run(&f, &error), LS_ENUMERIC);
        assert_non_null(strstr(error.text, "the work of window"));
        assert_int_equal(f.worked, w + 1);
        assert_false(when(EVENT_WRITE, f.place[IN_OUT] + (size_t)w * WINDOW * sizeof(uint32_t)));
        assert_true(w == 0 || when(EVENT_WRITE,
                                   f.place[IN_OUT] + (size_t)(w - 1) * WINDOW * sizeof(uint32_t)));
        fixture_close(&f);
    }
}

/* Lanes without a tier move nothing: a pass that is only recorded. */
static bool window_bare(void *user, struct ls_window *window)
{
    bool more = window_next(user, window);
    for (int l = 0; l < LANES; l++)
        window->lane[l].tier = NULL;
    return more;
}

static int work_bare(void *user, const struct ls_window *window, struct ls_error *error)
{
    struct fixture *f = user;
    (void)error;
    assert_int_equal(window->index, f->worked++);
    return LS_OK;
}

CASE_WITH(test_nothing_moves_without_a_tier, scratch_setup, scratch_teardown)
{
    struct fixture f;
    struct ls_error error = {0};
    fixture_open(&f, MOVER_HOST, *state, WINDOWS_MAX, NULL);
    const struct ls_pass_work work = {window_bare, work_bare, &f};
    assert_int_equal(ls_pass_run(&f.pass, &work, &error), LS_OK);
    assert_int_equal(f.worked, WINDOWS_MAX);
    assert_int_equal(event_count, 0);
    fixture_close(&f);
}

/* ---- broken twins --------------------------------------------------------------------------- */

CASE_WITH(test_windows_that_share_a_unit_are_seen, scratch_setup, scratch_teardown)
{
    struct fixture f;
    struct ls_error error = {0};
    fixture_open(&f, MOVER_HOST, *state, WINDOWS_MAX, NULL);
    arrays_fill(&f);
    f.step = WINDOW - LS_TIER_ALIGN / (int64_t)sizeof(uint16_t);
    assert_int_equal(pass_run(&f, &error), LS_OK);
    plain_run(&f);
    tails_forget(&f);
    assert_true(arrays_differ(&f) > 0);
    fixture_close(&f);
}

CASE_WITH(test_work_on_what_has_not_come_is_seen, scratch_setup, scratch_teardown)
{
#ifdef __SANITIZE_THREAD__
    skip(); /* it races by intention */
#endif
    struct fixture f;
    struct ls_error error = {0};
    struct failing slow;
    failing_init(&slow, "read", 0, EAGAIN);
    slow.count = 30;
    fixture_open(&f, MOVER_THREADS, *state, 2, &slow.fault);
    arrays_fill(&f);
    waits_not = true;
    assert_int_equal(pass_run(&f, &error), LS_OK);
    while (!tier_is_still(f.tier))
        ;
    waits_not = false;
    plain_run(&f);
    tails_forget(&f);
    assert_true(arrays_differ(&f) > 0);
    fixture_close(&f);
}

SUITE_MAIN(NULL, NULL)
