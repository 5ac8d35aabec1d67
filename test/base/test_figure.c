/* Numbers with units: what is read, what is refused, and what is written. */

#include "../support/suite.h"

#include <lockstep/base/figure.h>

#include <math.h>

CASE(test_read)
{
    static const struct {
        enum ls_figure kind;
        const char *text;
        double value;
    } good[] = {
        {LS_FIGURE_NUMBER, "1e-3", 1e-3},
        {LS_FIGURE_NUMBER, "-.5", -0.5},
        {LS_FIGURE_NUMBER, "+5.", 5},
        {LS_FIGURE_COUNT, "300B", 300e9},
        {LS_FIGURE_COUNT, "2 T", 2e12},
        {LS_FIGURE_COUNT, "128000", 128000},
        {LS_FIGURE_BYTES, "80GB", 80e9},
        {LS_FIGURE_BYTES, "80 GB", 80e9},
        {LS_FIGURE_BYTES, "80G", 80e9},
        {LS_FIGURE_BYTES, "1.5GiB", 1.5 * 0x1p30},
        {LS_FIGURE_BYTES, "1 Ti", 0x1p40},
        {LS_FIGURE_BYTES, "12B", 12},
        {LS_FIGURE_BYTES, "0", 0},
        {LS_FIGURE_BYTES, "4194304", 4194304},
        {LS_FIGURE_RATE, "450 GB/s", 450e9},
        {LS_FIGURE_RATE, "100Gbps", 12.5e9},
        {LS_FIGURE_RATE, "100 Gbit/s", 12.5e9},
        {LS_FIGURE_RATE, "8Mb/s", 1e6},
        {LS_FIGURE_FLOPS, "989 TFLOP/s", 989e12},
        {LS_FIGURE_FLOPS, "2TFLOPS", 2e12},
        {LS_FIGURE_FLOPS, "2.5e10", 2.5e10},
        {LS_FIGURE_SECONDS, "3 us", 0.000003},
        {LS_FIGURE_SECONDS, "5min", 300},
        {LS_FIGURE_SECONDS, "2", 2},
        {LS_FIGURE_WATTS, "0.7 kW", 700},
    };
    static const struct {
        enum ls_figure kind;
        const char *text;
    } bad[] = {
        {LS_FIGURE_NUMBER, ""},        {LS_FIGURE_NUMBER, "1 k"},     {LS_FIGURE_NUMBER, "inf"},
        {LS_FIGURE_NUMBER, "nan"},     {LS_FIGURE_NUMBER, "0x10"},    {LS_FIGURE_NUMBER, "1e999"},
        {LS_FIGURE_NUMBER, " 1"},      {LS_FIGURE_NUMBER, "."},       {LS_FIGURE_COUNT, "2Z"},
        {LS_FIGURE_BYTES, "80"},       {LS_FIGURE_BYTES, "80gb"},     {LS_FIGURE_BYTES, "GB"},
        {LS_FIGURE_BYTES, "80GB/s"},   {LS_FIGURE_RATE, "100"},       {LS_FIGURE_RATE, "100 GBps!"},
        {LS_FIGURE_FLOPS, "1000"},     {LS_FIGURE_SECONDS, "3 days"}, {LS_FIGURE_WATTS, "700w"},
        {LS_FIGURE_BYTES, "1e5 e5 B"},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        double value = NAN;
        if (!ls_figure_read(good[i].kind, good[i].text, &value) || value != good[i].value)
            fail_msg("%s: %.17g, expected %.17g", good[i].text, value, good[i].value);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        double value = 7;
        if (ls_figure_read(bad[i].kind, bad[i].text, &value) || value != 7)
            fail_msg("\"%s\" was read as %g", bad[i].text, value);
    }
}

/* What is written reads back as the same double, in few digits. */
CASE(test_written)
{
    static const struct {
        enum ls_figure kind;
        double value;
        const char *text;
    } cases[] = {
        {LS_FIGURE_RATE, 3.35e12, "3.35 TB/s"},
        {LS_FIGURE_BYTES, 80 * 0x1p30, "80 GiB"},
        {LS_FIGURE_BYTES, 0, "0 B"},
        {LS_FIGURE_SECONDS, 0.000003, "3 us"},
        {LS_FIGURE_WATTS, 700, "700 W"},
        {LS_FIGURE_FLOPS, 989e12, "989 TFLOP/s"},
        {LS_FIGURE_NUMBER, 100000, "100000"},
        {LS_FIGURE_NUMBER, 0.1, "0.1"},
    };
    uint64_t drawn = 1;
    char text[LS_FIGURE_BYTES_MAX];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ls_figure_text(cases[i].kind, cases[i].value, text);
        assert_string_equal(text, cases[i].text);
    }
    for (int i = 0; i < 7000; i++) {
        enum ls_figure kind = (enum ls_figure)(i % LS_FIGURES);
        drawn = drawn * 6364136223846793005u + 1442695040888963407u;
        double value = ldexp((double)(drawn >> 12), (int)(drawn % 60) - 60), again = NAN;
        value = kind == LS_FIGURE_SECONDS || value > 1e6 ? value : value + 1e6;
        ls_figure_text(kind, value, text);
        if (!ls_figure_read(kind, text, &again) || again != value)
            fail_msg("%.17g was written as %s, which reads %.17g", value, text, again);
    }
}

SUITE_MAIN(NULL, NULL)
