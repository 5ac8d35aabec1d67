/* The line that says how far a long work is, on a clock of the test's own. */
#include <lockstep/base/meter.h>

#include <stdio.h>
#include <string.h>

#include "../support/suite.h"
#include "../support/wrapped.h"

static double clock_s;
static char shown[1000];

WRAPPED(ls_now_s);
double __wrap_ls_now_s(void)
{
    return clock_s;
}

static void note(void *user, const char *text, size_t bytes)
{
    size_t used = strlen(shown);
    assert_true(used + bytes < sizeof shown);
    memcpy(shown + used, text, bytes);
    shown[used + bytes] = '\0';
}

static void show(int columns)
{
    shown[0] = '\0';
    clock_s = 100;
    ls_meter_show(
        &(struct ls_meter_view){.title = "lockstep eval", .columns = columns, .write = note});
}

/* At that time of the work. */
static void tell(double after_s, int64_t done, int64_t all)
{
    clock_s = 100 + after_s;
    ls_meter("sequences", done, all);
}

CASE(test_a_short_work_shows_nothing)
{
    const int columns[] = {0, 80};
    for (int i = 0; i < 2; i++) {
        show(columns[i]);
        for (int done = 1; done <= 19; done++)
            tell(0.1 * done, done, 19);
        assert_string_equal(shown, "");
    }
}

CASE(test_a_terminal_shows_one_line)
{
    show(80);
    tell(1, 10, 100);
    assert_string_equal(shown, "");
    tell(3, 30, 100);
    tell(3.05, 31, 100); /* too soon */
    tell(4, 40, 100);
    assert_string_equal(shown, "\rlockstep eval: 30 of 100 sequences  ETA 0:07\033[K"
                               "\rlockstep eval: 40 of 100 sequences  ETA 0:06\033[K");
    shown[0] = '\0';
    tell(4.01, 100, 100);
    ls_meter_clear(); /* nothing stands any more */
    assert_string_equal(shown, "\r\033[K");
}

CASE(test_a_narrow_terminal_cuts_it)
{
    show(20);
    tell(3, 30, 100);
    assert_string_equal(shown, "\rlockstep eval: 30 o\033[K");
    ls_meter_show(NULL);
}

CASE(test_a_log_gets_a_line_now_and_then)
{
    show(0);
    for (int s = 0; s < 25; s++)
        tell(s, 4 * s, 100);
    tell(25, 100, 100);
    assert_string_equal(shown, "lockstep eval: 40 of 100 sequences  ETA 0:15\n"
                               "lockstep eval: 80 of 100 sequences  ETA 0:05\n");
}

CASE(test_the_next_work_begins_anew)
{
    show(80);
    tell(3, 99, 100);
    shown[0] = '\0';
    clock_s = 110;
    ls_meter("MiB read", 7, 0);
    clock_s = 112;
    ls_meter("MiB read", 9, 0);
    assert_string_equal(shown,
                        "\rlockstep eval: 7 MiB read\033[K\rlockstep eval: 9 MiB read\033[K");
    shown[0] = '\0';
    ls_meter_clear();
    assert_string_equal(shown, "\r\033[K");
}

CASE(test_nobody_is_told_without_a_view)
{
    show(80);
    ls_meter_show(NULL);
    tell(5, 1, 2);
    ls_meter_clear();
    assert_string_equal(shown, "");
}

SUITE_MAIN(NULL, NULL)
