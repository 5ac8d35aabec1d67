/* Counts with their nouns, numbers that are none, and lines cut to a terminal. */
#include "../support/suite.h"

#include <lockstep/base/words.h>

#include <math.h>
#include <stdio.h>

CASE(test_counts)
{
    static const struct {
        int64_t n;
        const char *noun, *want;
    } cases[] = {{1, "rank", "1 rank"},
                 {0, "rank", "0 ranks"},
                 {2, "rank", "2 ranks"},
                 {1, "micro-batch", "1 micro-batch"},
                 {4, "micro-batch", "4 micro-batches"},
                 {2, "process", "2 processes"},
                 {2, "copy", "2 copies"},
                 {2, "key", "2 keys"},
                 {1, "leaf", "1 leaf"},
                 {2, "leaf", "2 leaves"},
                 {1, "rank thread", "1 rank thread"},
                 {3, "rank thread", "3 rank threads"},
                 {16384, "rank", "16384 ranks"},
                 {-1, "step", "-1 steps"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(ls_counted(cases[i].n, cases[i].noun).text, cases[i].want);
}

CASE(test_no_sign_before_nan)
{
    char text[32];
    volatile double zero = 0;
    const double values[] = {NAN, -NAN, zero / zero, copysign(NAN, -1)};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        snprintf(text, sizeof text, "%.4f", ls_shown(values[i]));
        assert_string_equal(text, "nan");
    }
    assert_true(ls_shown(-1.5) == -1.5);
    assert_true(ls_shown(-INFINITY) == -INFINITY);
}

CASE(test_lines_are_cut)
{
    static const struct {
        const char *line;
        int columns;
        size_t want;
    } cases[] = {{"step 1", 80, 6},
                 {"step 1", 6, 6},
                 {"step 1", 4, 4},
                 {"step 1", 0, 0},
                 {"", 10, 0},
                 {"\xc3\xa9\xc3\xa9x", 2, 4},
                 {"a\xe4\xb8\xad"
                  "b",
                  3, 4},
                 {"a\xe4\xb8\xad"
                  "b",
                  2, 1},
                 {"\xf0\x9f\x98\x80!", 2, 4},
                 {"\xf0\x9f\x98\x80!", 1, 0},
                 {"\xff\xff", 1, 1},
                 {"\xe4\xb8", 5, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (ls_columns_fit(cases[i].line, cases[i].columns) != cases[i].want)
            fail_msg("case %zu: %zu bytes, expected %zu", i,
                     ls_columns_fit(cases[i].line, cases[i].columns), cases[i].want);
}

CASE(test_durations)
{
    static const struct {
        double s;
        const char *want;
    } cases[] = {{0, "0 s"},
                 {2e-6, "2 us"},
                 {0.0236, "23.6 ms"},
                 {1.2345, "1.234 s"},
                 {1199, "1199 s"},
                 {2700, "45 min"},
                 {7200, "2 h"},
                 {86400 * 2.5, "2.5 days"},
                 {86400 * 365.25 * 4e3, "4 k years"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(ls_duration(cases[i].s).text, cases[i].want);
    assert_string_equal(ls_amount(973600).text, "974 k");
    assert_string_equal(ls_amount(999600).text, "1 M");
}

SUITE_MAIN(NULL, NULL)
