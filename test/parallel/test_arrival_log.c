/* The log of arrivals: written and read back, cut off anywhere, gone on with, and damaged. */
#include <lockstep/parallel/arrival_log.h>

#include "../support/scratch.h"
#include "../support/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EVENTS = 30 };
static const struct ls_arrival_rule rule = {3, 1};
static const int64_t times[] = {2, 3, 7};
static const char recipe[] = "0123456789abcdef0123456789abcdef";

/* Appends the events of the table from `first` on to the log, which goes on there. */
static void write_log(const char *path, int64_t first)
{
    struct ls_error error = {0};
    struct ls_arrivals *arrivals;
    struct ls_arrival_log *log;
    struct ls_clocks clocks;
    struct ls_arrival arrival;
    assert_int_equal(ls_arrivals_of_times(rule, times, &arrivals, &error), LS_OK);
    assert_int_equal(ls_clocks_init(&clocks, rule, &error), LS_OK);
    assert_ok(ls_arrival_log_open(path, recipe, rule, first, &log, &error), error);
    while (clocks.version < first)
        assert_true(ls_arrivals_next(arrivals, &clocks, &arrival));
    while (clocks.version < EVENTS && ls_arrivals_next(arrivals, &clocks, &arrival))
        assert_int_equal(ls_arrival_log_add(log, &arrival, &error), LS_OK);
    assert_int_equal(ls_arrival_log_close(log, &error), LS_OK);
    ls_clocks_release(&clocks);
    ls_arrivals_free(arrivals);
}

/* The log has the first `count` events of the table, and gives their clocks. */
static void check_order(const char *path, int64_t count)
{
    struct ls_error error = {0};
    struct ls_arrivals *table, *read;
    struct ls_clocks want, got;
    struct ls_arrival expected, arrival;
    assert_ok(ls_arrivals_of_log(path, recipe, rule, &read, &error), error);
    assert_int_equal(ls_arrivals_of_times(rule, times, &table, &error), LS_OK);
    assert_int_equal(ls_clocks_init(&want, rule, &error), LS_OK);
    assert_int_equal(ls_clocks_init(&got, rule, &error), LS_OK);
    assert_int_equal(ls_arrivals_end(read), count);
    assert_int_equal(ls_arrivals_rule(read).bound, rule.bound);
    for (int64_t e = 0; e < count; e++) {
        assert_int_equal(ls_arrivals_worker(read, e), ls_arrivals_worker(table, e));
        assert_true(ls_arrivals_next(table, &want, &expected));
        assert_true(ls_arrivals_next(read, &got, &arrival));
        assert_int_equal(arrival.clock, expected.clock);
        assert_int_equal(arrival.pulled, expected.pulled);
    }
    assert_false(ls_arrivals_next(read, &got, &arrival));
    ls_clocks_release(&want);
    ls_clocks_release(&got);
    ls_arrivals_free(table);
    ls_arrivals_free(read);
}

CASE_WITH(test_what_was_written_is_read, scratch_setup, scratch_teardown)
{
    const char *path = scratch_path(*state, "arrivals.jsonl");
    write_log(path, 0);
    check_order(path, EVENTS);
}

/* Cut off at any byte, the log has its whole lines, and goes on to what it was. */
CASE_WITH(test_cut_anywhere, scratch_setup, scratch_teardown)
{
    const char *whole_path = scratch_path(*state, "whole"), *path = scratch_path(*state, "cut");
    size_t bytes, again_bytes;
    write_log(whole_path, 0);
    char *whole = scratch_read(whole_path, &bytes);
    int64_t lines = 0;
    for (size_t cut = 0; cut <= bytes; cut++) {
        lines += cut > 0 && whole[cut - 1] == '\n';
        scratch_write(path, whole, cut);
        if (lines > 0)
            check_order(path, lines - 1);
        else {
            struct ls_arrivals *arrivals;
            struct ls_error error = {0};
            int status = ls_arrivals_of_log(path, recipe, rule, &arrivals, &error);
            assert_int_equal(status, LS_EDATA);
            assert_null(arrivals);
            assert_non_null(strstr(error.text, "the log of arrivals is empty"));
        }
        if (cut % 7 != 0 && cut != bytes)
            continue;
        write_log(path, ls_max(lines - 1, 0));
        char *again = scratch_read(path, &again_bytes);
        assert_int_equal(again_bytes, bytes);
        assert_memory_equal(again, whole, bytes);
        free(again);
    }
    free(whole);
}

/* A run that goes on from an older state does what is behind it again. */
CASE_WITH(test_what_comes_again_is_cut_off, scratch_setup, scratch_teardown)
{
    const char *path = scratch_path(*state, "arrivals.jsonl");
    struct ls_arrival_log *log;
    struct ls_error error = {0};
    for (int64_t event = EVENTS; event >= 0; event -= 6) {
        write_log(path, 0);
        assert_int_equal(ls_arrival_log_open(path, recipe, rule, event, &log, &error), LS_OK);
        assert_int_equal(ls_arrival_log_close(log, &error), LS_OK);
        check_order(path, event);
    }
    assert_int_equal(ls_arrival_log_open(path, recipe, rule, 1, &log, &error), LS_EDATA);
    assert_non_null(strstr(error.text, "has 0 events: expected at least the 1 that"));
    assert_int_equal(
        ls_arrival_log_open(scratch_path(*state, "no/log"), recipe, rule, 0, &log, &error), LS_EIO);
    assert_null(log);
}

/* ---- damage ---------------------------------------------------------------------------------- */

#define HEAD "{\"arrivals\": 1, \"recipe\": \"r\", \"workers\": 2, \"bound\": 1}\n"
#define EVENT(event, worker, clock)                                                                \
    "{\"event\": " #event ", \"worker\": " #worker ", \"clock\": " #clock "}\n"

#define LEFT(event, worker)    "{\"event\": " #event ", \"left\": " #worker "}\n"
#define RENEWED(event, worker) "{\"event\": " #event ", \"renewed\": " #worker "}\n"

static const struct {
    const char *text;
    int status;
    const char *says;
} damaged[] = {
    {"[]\n", LS_EDATA, ":1: expected one JSON object"},
    {EVENT(0, 0, 0), LS_EDATA, ":1: arrivals is missing: expected the first line of a log of v"},
    {"{\"arrivals\": 2}\n", LS_EDATA, ":1: arrivals is 2: expected the first line of a log of v"},
    {"{\"arrivals\": 1}\n", LS_ECONFIG, ":1: the order of arrivals of another recipe, without a d"},
    {"{\"arrivals\": 1, \"recipe\": \"q\"}\n", LS_ECONFIG, "another recipe, q: expected r; take"},
    {"{\"arrivals\": 1, \"recipe\": \"r\", \"workers\": 3}\n", LS_ECONFIG,
     ":1: workers is 3: expected as many as the recipe has, 2"},
    {"{\"arrivals\": 1, \"recipe\": \"r\", \"workers\": 2, \"bound\": -1}\n", LS_ECONFIG,
     ":1: bound is -1: expected the recipe's, 1"},
    {HEAD EVENT(1, 0, 0), LS_EDATA, ":2: event is 1: expected events without a gap, so 0"},
    {HEAD EVENT(0, 0, 0) EVENT(0, 0, 1), LS_EDATA, ":3: event is 0: expected events with"},
    {HEAD EVENT(0, 0, 0) HEAD, LS_EDATA, ":3: event is missing"},
    {HEAD EVENT(0, 2, 0), LS_EDATA, ":2: worker is 2: expected 0 to 1"},
    {HEAD EVENT(0, -1, 0), LS_EDATA, ":2: worker is -1: expected 0 to 1"},
    {HEAD EVENT(0, 0.5, 0), LS_EDATA, ":2: worker is 0.5: expected 0 to 1"},
    {HEAD EVENT(0, 1e300, 0), LS_EDATA, ":2: worker is 1e+300: expected 0 to 1"},
    {HEAD EVENT(0, "0", 0), LS_EDATA, ":2: worker is no number: expected 0 to 1"},
    {HEAD EVENT(0, 0, 0) EVENT(1, 0, 0), LS_EDATA, ":3: clock is 0: expected the worker's next, 1"},
    {HEAD EVENT(0, 0, 0) EVENT(1, 0, 2), LS_EDATA, ":3: clock is 2: expected the worker's next, 1"},
    {HEAD EVENT(0, 1, 0) EVENT(1, 1, 1) EVENT(2, 1, 2) "no line\n", LS_EDATA,
     ":4: worker 1 pushes at clock 2, and the slowest is at 0: expected it to wait, with bound 1"},
    {HEAD EVENT(0, 1, 0) "no line\n", LS_EDATA, ":3: expected one JSON object"},
    {HEAD EVENT(0, 1, 0) LEFT(1, 2), LS_EDATA, ":3: left is 2: expected 0 to 1"},
    {HEAD EVENT(0, 1, 0) LEFT(2, 1), LS_EDATA, ":3: event is 2: expected events without a gap"},
    {HEAD RENEWED(0, 1), LS_EDATA, ":2: worker 1 is renewed: expected that behind an event, bef"},
    {HEAD EVENT(0, 1, 0) LEFT(1, 1) RENEWED(1, 1), LS_EDATA,
     ":4: worker 1 is renewed: expected that behind an event, before any worker leaves there"},
    {HEAD LEFT(0, 1) EVENT(0, 1, 0), LS_EDATA,
     ":3: worker 1 pushes: expected nothing of it, as it has left"},
    {HEAD EVENT(0, 1, 0) RENEWED(0, 1), LS_EDATA, ":3: event is 0: expected events without a gap"},
};

/* Worker 0 waits for worker 1 before event 2, until that leaves; worker 1 is renewed at event 4, at
 * the clock of worker 0. A run that goes on there keeps that, and not who left behind it. */
CASE_WITH(test_who_leaves_and_comes_back, scratch_setup, scratch_teardown)
{
    static const char text[] = HEAD EVENT(0, 0, 0) EVENT(1, 0, 1) LEFT(2, 1) EVENT(2, 0, 2)
        EVENT(3, 0, 3) RENEWED(4, 1) LEFT(4, 0) EVENT(4, 1, 4);
    static const char cut[] =
        HEAD EVENT(0, 0, 0) EVENT(1, 0, 1) LEFT(2, 1) EVENT(2, 0, 2) EVENT(3, 0, 3) RENEWED(4, 1);
    const char *path = scratch_path(*state, "arrivals.jsonl");
    const struct ls_arrival_rule two = {2, 1};
    struct ls_arrivals *order;
    struct ls_arrival arrival;
    struct ls_arrival_log *log;
    struct ls_clocks clocks;
    struct ls_error error = {0};
    scratch_write(path, text, strlen(text));
    assert_ok(ls_arrivals_of_log(path, "r", two, &order, &error), error);
    assert_int_equal(ls_clocks_init(&clocks, two, &error), LS_OK);
    while (clocks.version < 2)
        assert_true(ls_arrivals_next(order, &clocks, &arrival));
    assert_false(ls_clocks_admit(&clocks, 0)); /* it waits */
    assert_false(clocks.gone[1]);
    assert_true(ls_arrivals_next(order, &clocks, &arrival));
    assert_int_equal(arrival.pulled, 2);
    assert_true(clocks.gone[1]);
    assert_true(ls_arrivals_next(order, &clocks, &arrival));
    assert_false(clocks.gone[0] || clocks.gone[1]);
    assert_int_equal(clocks.clock[1], clocks.clock[0]);
    assert_int_equal(clocks.pulled[1], 4);
    ls_clocks_release(&clocks);
    ls_arrivals_free(order);
    assert_ok(ls_arrival_log_open(path, "r", two, 4, &log, &error), error);
    assert_int_equal(ls_arrival_log_close(log, &error), LS_OK);
    char *left = scratch_read(path, NULL);
    assert_string_equal(left, cut);
    free(left);
}

CASE_WITH(test_damage_is_named, scratch_setup, scratch_teardown)
{
    const char *path = scratch_path(*state, "arrivals.jsonl");
    const struct ls_arrival_rule two = {2, 1};
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
        struct ls_arrivals *arrivals;
        struct ls_arrival_log *log;
        struct ls_error error = {0}, again = {0};
        size_t bytes;
        scratch_write(path, damaged[i].text, strlen(damaged[i].text));
        int status = ls_arrivals_of_log(path, "r", two, &arrivals, &error);
        if (status != damaged[i].status || error.code != status || arrivals ||
            !strstr(error.text, damaged[i].says))
            fail_msg("%s: %s: expected %s", damaged[i].text, error.text, damaged[i].says);
        /* Nor is it gone on with, nor changed. */
        assert_int_equal(ls_arrival_log_open(path, "r", two, 0, &log, &again), status);
        assert_string_equal(again.text, error.text);
        char *left = scratch_read(path, &bytes);
        assert_string_equal(left, damaged[i].text);
        free(left);
    }
}

/* With bound 0 the log of an order that is not the workers' is refused. */
CASE_WITH(test_bound_0_has_one_order, scratch_setup, scratch_teardown)
{
    const char *path = scratch_path(*state, "arrivals.jsonl");
    static const char text[] =
        "{\"arrivals\": 1, \"recipe\": \"r\", \"workers\": 2, \"bound\": 0}\n" EVENT(0, 0, 0)
            EVENT(1, 1, 0) EVENT(2, 1, 1);
    struct ls_arrivals *arrivals;
    struct ls_error error = {0};
    scratch_write(path, text, sizeof text - 1);
    int status = ls_arrivals_of_log(path, "r", (struct ls_arrival_rule){2, 0}, &arrivals, &error);
    assert_int_equal(status, LS_EDATA);
    assert_non_null(strstr(error.text, ":4: worker 1 pushes: expected worker 0, as with bound 0"));
}

SUITE_MAIN(NULL, NULL)
