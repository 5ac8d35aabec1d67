/* metrics.prom: what is written, that it is well-formed, and that Prometheus' parsers read it. */
#include <lockstep/trace.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "../support/prom.h"
#include "../support/scratch.h"
#include "../support/suite.h"

static int prometheus(char **text, const struct ls_metric *metrics, size_t count,
                      struct ls_error *error)
{
    size_t bytes;
    FILE *out = open_memstream(text, &bytes);
    int code = ls_prometheus_write(out, metrics, count, error);
    fclose(out);
    return code;
}

#define GAUGE   .type = LS_METRIC_GAUGE
#define COUNTER .type = LS_METRIC_COUNTER

CASE_WITH(test_text, scratch_setup, scratch_teardown)
{
    const struct ls_metric metrics[] = {
        {"lockstep_loss", "Loss\\of the\nstep", NULL, GAUGE, .value = 2.5},
        {"lockstep_sent_bytes", "Bytes sent", "bytes", COUNTER,
         .labels = {{"peer", "a\"b\\c\nd"}, {"run", "\xff"}}, .value = 1e15},
        {"lockstep_sent_bytes", "not shown", "bytes", COUNTER, .labels = {{"peer", "e"}}},
        {"lockstep:max", "Largest", NULL, GAUGE, .value = -INFINITY},
        {"lockstep_none", "None", NULL, GAUGE, .value = NAN},
    };
    struct ls_error error = {0};
    char *text;
    assert_ok(prometheus(&text, metrics, 5, &error), error);
    assert_string_equal(text,
                        "# TYPE lockstep_loss gauge\n"
                        "# HELP lockstep_loss Loss\\\\of the\\nstep\n"
                        "lockstep_loss 2.5\n"
                        "# TYPE lockstep_sent_bytes counter\n"
                        "# UNIT lockstep_sent_bytes bytes\n"
                        "# HELP lockstep_sent_bytes Bytes sent\n"
                        "lockstep_sent_bytes_total{peer=\"a\\\"b\\\\c\\nd\",run=\"\xef\xbf\xbd\"} "
                        "1000000000000000\n"
                        "lockstep_sent_bytes_total{peer=\"e\"} 0\n"
                        "# TYPE lockstep:max gauge\n"
                        "# HELP lockstep:max Largest\n"
                        "lockstep:max -Inf\n"
                        "# TYPE lockstep_none gauge\n"
                        "# HELP lockstep_none None\n"
                        "lockstep_none NaN\n"
                        "# EOF\n");
    assert_prom(text);
    const char *path = scratch_path(*state, "metrics.prom");
    char command[600];
    scratch_write(path, text, strlen(text));
    free(text);
    snprintf(command, sizeof command, "tools/check-prom.py '%s' 1>&2", path);
    int code = WEXITSTATUS(system(command));
    if (code != 77) /* it says loudly that it was skipped */
        assert_int_equal(code, 0);
}

CASE(test_refusals)
{
    static const struct {
        struct ls_metric metric;
        const char *expected;
    } cases[] = {
        {{"", "", NULL, GAUGE}, "metric 2: the name is \"\""},
        {{"1a", "", NULL, GAUGE}, "the name is \"1a\""},
        {{"a-b", "", NULL, GAUGE}, "the name is \"a-b\""},
        {{"c_total", "", NULL, COUNTER}, "leave _total out"},
        {{"c_seconds", "", "bytes", GAUGE}, "does not end with its unit, _bytes"},
        {{"c", "", NULL, COUNTER, .value = NAN}, "a counter is nan"},
        {{"c", "", NULL, COUNTER, .value = -1}, "a counter is -1"},
        {{"c", "", NULL, GAUGE, .labels = {{"x:y", "z"}}}, "the label is \"x:y\""},
        {{"c", "", NULL, GAUGE, .labels = {{"x", NULL}}}, "the label is \"x\""},
        {{"c", "", NULL, GAUGE, .labels = {{"x", "1"}, {"x", "2"}}}, "the label x comes twice"},
        {{"a", "", NULL, GAUGE}, "metric a comes twice"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ls_metric metrics[3] = {
            {"a", "", NULL, GAUGE}, {"b", "", NULL, GAUGE}, cases[i].metric};
        struct ls_error error = {0};
        char *text;
        assert_int_equal(prometheus(&text, metrics, 3, &error), LS_EINVAL);
        if (!strstr(error.text, cases[i].expected))
            fail_msg("case %zu: \"%s\", expected \"%s\"", i, error.text, cases[i].expected);
        assert_string_equal(text, "");
        free(text);
    }
}

SUITE_MAIN(NULL, NULL)
