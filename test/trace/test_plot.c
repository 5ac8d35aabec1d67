#include <lockstep/trace.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../support/scratch.h"

static int count_of(const char *text, const char *what)
{
    int count = 0;
    for (; (text = strstr(text, what)); text++)
        count++;
    return count;
}

/* The least y of the vertices of the first path that is a line chart: its highest point. */
static double highest(const char *svg)
{
    const char *path = strstr(svg, "stroke-linejoin");
    assert_non_null(path);
    path = strstr(path, "d=\"M") + 3;
    double top = HUGE_VAL;
    while (*path == 'M' || *path == 'L') {
        char *end;
        strtod(path + 1, &end);
        top = fmin(top, strtod(end, &end));
        path = end + 1; /* past the newline */
    }
    return top;
}

static void test_a_long_run(void **state)
{
    enum { COUNT = 200000 };
    const char *path = scratch_path(*state, "loss.svg");
    struct ls_error error = {0};
    double *x = malloc(COUNT * sizeof *x), *y = malloc(COUNT * sizeof *y);
    for (int i = 0; i < COUNT; i++) {
        x[i] = i;
        y[i] = i == 777 ? (double)NAN : 2 + exp(-i / 1e4);
    }
    double val_x[3] = {0, 1e5, 2e5}, val_y[3] = {3, 2.5, 2.25};
    struct ls_loss_plot plot = {"a <run> & \"more\"", {x, y, COUNT}, {val_x, val_y, 3}};
    y[123456] = 10; /* a spike survives the thinning */
    if (ls_plot_loss(path, &plot, &error))
        fail_msg("%s", error.text);
    size_t bytes;
    char *svg = scratch_read(path, &bytes);
    assert_in_range(bytes, 1000, 60000);
    assert_non_null(strstr(svg, "a &lt;run&gt; &amp; &quot;more&quot;"));
    assert_non_null(strstr(svg, ">200,000<"));
    assert_non_null(strstr(svg, ">10<"));
    assert_non_null(strstr(svg, "validation: 2.250 at step 200000"));
    assert_int_equal(count_of(svg, "<circle"), 3);
    assert_null(strstr(svg, "nan"));
    assert_true(highest(svg) == 52); /* the top of the plot is loss 10 */
    assert_string_equal(svg + bytes - 7, "</svg>\n");
    free(svg);
    free(x);
    free(y);
}

static void test_little_data(void **state)
{
    const char *path = scratch_path(*state, "loss.svg");
    struct ls_error error = {0};
    double x = 1, y = 0, nan = (double)NAN;
    struct ls_loss_plot plot = {.title = "one point", .train = {&x, &y, 1}};
    if (ls_plot_loss(path, &plot, &error))
        fail_msg("%s", error.text);
    char *svg = scratch_read(path, NULL);
    assert_null(strstr(svg, "nan"));
    assert_null(strstr(svg, "inf"));
    assert_non_null(strstr(svg, "train: 0.000 at step 1"));
    assert_null(strstr(svg, "validation"));
    free(svg);
    plot.train = (struct ls_series){&x, &nan, 1};
    assert_int_equal(ls_plot_loss(scratch_path(*state, "none.svg"), &plot, &error), LS_EDATA);
    assert_non_null(strstr(error.text, "not one finite loss"));
    assert_int_equal(scratch_count(*state), 1);
}

static void test_axis_labels(void **state)
{
    static const struct {
        double x_high, y_high;
        const char *x_label, *y_label;
    } cases[] = {
        {10, 1, ">10<", ">1.0<"},
        {1234567, 0.0123, ">1,200,000<", ">0.012<"},
        {3, 11.5, ">3.0<", ">12<"},
        {1e12, 1e-12, ">1e+12<", ">1e-12<"},
    };
    const char *path = scratch_path(*state, "labels.svg");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ls_error error = {0};
        double x[2] = {0, cases[i].x_high}, y[2] = {cases[i].y_high, 0};
        struct ls_loss_plot plot = {.title = "", .train = {x, y, 2}};
        if (ls_plot_loss(path, &plot, &error))
            fail_msg("%s", error.text);
        char *svg = scratch_read(path, NULL);
        if (!strstr(svg, cases[i].x_label) || !strstr(svg, cases[i].y_label))
            fail_msg("case %zu: expected %s and %s in\n%s", i, cases[i].x_label, cases[i].y_label,
                     svg);
        free(svg);
    }
}

int main(void)
{
#define IN_SCRATCH(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)
    const struct CMUnitTest tests[] = {
        IN_SCRATCH(test_a_long_run),
        IN_SCRATCH(test_little_data),
        IN_SCRATCH(test_axis_labels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
