/* Pictures of runs: what is drawn is what was recorded. */
#include <lockstep/trace/picture.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../support/scratch.h"
#include "../support/suite.h"
#include "../support/svg.h"
#include "../support/xml.h"

static int count_of(const char *text, const char *what)
{
    int count = 0;
    for (; (text = strstr(text, what)); text++)
        count++;
    return count;
}

/* The plot as text, well-formed, for the caller to free. */
static char *plot_of(const struct ls_plot *plot)
{
    struct ls_error error = {0};
    char *text = NULL;
    size_t bytes;
    FILE *file = open_memstream(&text, &bytes);
    assert_ok(ls_plot_draw(plot, file, &error), error);
    fclose(file);
    assert_xml(text);
    assert_svg_texts(text);
    assert_null(strstr(text, "nan"));
    assert_null(strstr(text, "inf"));
    return text;
}

/* ---- reading a picture back ------------------------------------------------------------------ */

/* Values from places, by two labels of the first panel's axis (its grid lines have them) and two of
 * the last panel's steps. */
struct ruler {
    double place[2], value[2];
};

static double ruler_value(const struct ruler *ruler, double place)
{
    double share = (place - ruler->place[0]) / (ruler->place[1] - ruler->place[0]);
    return ruler->value[0] + share * (ruler->value[1] - ruler->value[0]);
}

/* The labels with that anchor, first and last until one that is out of order: another panel's. */
static struct ruler ruler_of(const char *svg, const char *anchor, char attribute)
{
    struct ruler ruler = {0};
    char mark[64], name[8];
    int found = 0;
    double direction = 0;
    snprintf(mark, sizeof mark, "text-anchor=\"%s\">", anchor);
    snprintf(name, sizeof name, " %c=\"", attribute);
    for (const char *at = svg; (at = strstr(at, mark)); at++) {
        const char *begin = at;
        while (strncmp(begin, "<text", 5) != 0)
            begin--;
        if (strncmp(begin, "<text class=\"ls-text\"", 21) != 0)
            continue;
        double place = strtod(strstr(begin, name) + 4, NULL), value = 0;
        for (const char *c = at + strlen(mark); *c != '<'; c++) /* "1,234.5" */
            if (*c != ',' && (c == at + strlen(mark) || c[-1] == ','))
                value = value * 1000 + strtod(c, NULL);
        int which = found++ > 0;
        if (found > 2 && (place - ruler.place[1]) * direction < 0)
            break;
        ruler.place[which] = attribute == 'y' ? place - 4.5 : place;
        ruler.value[which] = value;
        direction = ruler.place[1] - ruler.place[0];
    }
    assert_true(found > 1);
    return ruler;
}

/* Vertices of the nth path of those classes, as values; returns how many. */
static int vertices(const char *svg, const char *classes, int nth, double (*out)[2], int room)
{
    struct ruler x = ruler_of(svg, "middle", 'x'), y = ruler_of(svg, "end", 'y');
    char mark[64];
    snprintf(mark, sizeof mark, "<path class=\"%s ", classes);
    const char *at = svg;
    for (int i = 0; i <= nth && at; i++)
        at = strstr(at + 1, mark);
    if (!at)
        return 0;
    at = strstr(at, " d=\"") + 4;
    int count = 0;
    for (; *at == 'M' || *at == 'L'; count++) {
        assert_true(count < room);
        char *end;
        out[count][0] = ruler_value(&x, strtod(at + 1, &end));
        out[count][1] = ruler_value(&y, strtod(end, &end));
        at = end;
    }
    return count;
}

/* ---- tests ----------------------------------------------------------------------------------- */

CASE(test_points_are_what_was_recorded)
{
    double x[7] = {10, 11, 12, 13, 14, 15, 16};
    double y[7] = {4, 3, 3.5, (double)NAN, 2, INFINITY, 1}, drawn[16][2];
    double lr[7] = {1, 2, 3, 4, 3, 2, 1};
    struct ls_run_curves run = {"a <run> & \"more\"", {x, y, 7}, {x, lr, 7}, {0}};
    char *svg = plot_of(&(struct ls_plot){.runs = &run, .count = 1});
    assert_non_null(strstr(svg, "a &lt;run&gt; &amp; &quot;more&quot;"));
    assert_non_null(strstr(svg, "train: 1.0000 at step 16"));
    /* Three points are a line up to the gap; 2 and 1 stand alone between gaps, as dots. */
    assert_int_equal(vertices(svg, "ls-curve", 0, drawn, 16), 3);
    for (int i = 0; i < 3; i++)
        if (fabs(drawn[i][0] - x[i]) > 0.01 || fabs(drawn[i][1] - y[i]) > 0.01)
            fail_msg("point %d is drawn at %g, %g, expected %g, %g", i, drawn[i][0], drawn[i][1],
                     x[i], y[i]);
    assert_int_equal(count_of(svg, "<circle class=\"ls-f0\""), 2);
    assert_int_equal(count_of(svg, "<line class=\"ls-gap ls-s0"), 2);   /* in the run's colour */
    assert_int_equal(count_of(svg, "<line class=\"ls-gap ls-line"), 1); /* the legend */
    assert_non_null(strstr(svg, "2 steps without a finite value"));
    assert_non_null(strstr(svg, ">learning rate<"));
    assert_null(strstr(svg, "validation"));
    free(svg);
}

CASE(test_a_long_run)
{
    enum { COUNT = 200000 };
    double *x = malloc(COUNT * sizeof *x), *y = malloc(COUNT * sizeof *y);
    static double drawn[4000][2];
    for (int i = 0; i < COUNT; i++) {
        x[i] = i;
        y[i] = i == 777 ? (double)NAN : 2 + exp(-i / 1e4) + (i % 2 ? 0.05 : -0.05);
    }
    double val_x[3] = {0, 1e5, 2e5}, val_y[3] = {3, 2.5, 2.25};
    struct ls_run_curves run = {"long", {x, y, COUNT}, {x, y, COUNT}, {val_x, val_y, 3}};
    y[123456] = 10; /* a spike survives the thinning */
    y[123457] = 1;
    char *svg = plot_of(&(struct ls_plot){.runs = &run, .count = 1});
    assert_in_range(strlen(svg), 1000, 90000);
    assert_non_null(strstr(svg, ">200,000<"));
    assert_non_null(strstr(svg, "validation: 2.2500 at step 200000"));
    assert_non_null(strstr(svg, "mean of 5001 steps"));
    double low = HUGE_VAL, high = -HUGE_VAL;
    int count = 0;
    for (int path = 0, got; (got = vertices(svg, "ls-curve ls-faint", path, drawn, 4000)); path++)
        for (int i = 0; i < got; i++, count++) {
            low = fmin(low, drawn[i][1]);
            high = fmax(high, drawn[i][1]);
        }
    assert_in_range(count, 800, 1800);
    if (fabs(high - 10) > 0.05 || fabs(low - 1) > 0.05)
        fail_msg("drawn from %g to %g, expected 1 to 10", low, high);
    /* The means know neither the spike nor the zigzag. */
    count = vertices(svg, "ls-curve ls-mean", 1, drawn, 4000);
    assert_true(count > 100);
    for (int i = 0; i < count; i++)
        if (fabs(drawn[i][1] - (2 + exp(-drawn[i][0] / 1e4))) > 0.1)
            fail_msg("at step %g the mean is drawn as %g", drawn[i][0], drawn[i][1]);
    free(svg);
    free(x);
    free(y);
}

CASE(test_little_data)
{
    struct ls_error error = {0};
    double x = 1, y = 0, nan = (double)NAN;
    struct ls_run_curves run = {.name = "one point", .loss = {&x, &y, 1}, .lr = {&x, &y, 1}};
    char *svg = plot_of(&(struct ls_plot){.runs = &run, .count = 1});
    assert_non_null(strstr(svg, "train: 0.0000 at step 1"));
    assert_int_equal(count_of(svg, "<circle"), 2); /* one step is a dot in each panel */
    assert_non_null(strstr(svg, "text-anchor=\"middle\">1<"));
    assert_null(strstr(svg, "text-anchor=\"middle\">0.5<")); /* there are no half steps */
    free(svg);
    run.loss = run.lr = (struct ls_series){&x, &nan, 1};
    FILE *null = fopen("/dev/null", "w");
    assert_int_equal(ls_plot_draw(&(struct ls_plot){.runs = &run, .count = 1}, null, &error),
                     LS_EDATA);
    assert_non_null(strstr(error.text, "not one finite point"));
    fclose(null);
}

/* Values that differ in their last bit are drawn as one, however large they are. */
CASE(test_values_side_by_side)
{
    static const double places[] = {3, -3e-4, 1e25, 1e18, 0x1p-1073, 0x1.fp1023, 0};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
        for (int log = 0; log < (places[i] > 0 ? 2 : 1); log++) {
            double y[2] = {places[i], nextafter(places[i], HUGE_VAL)};
            double x[3] = {1, 2, 3}, few[3] = {1, 1, 1};
            struct ls_run_curves run = {"close", {x, y, 2}, {x, few, 3}, {y, y, 2}};
            char *svg = plot_of(&(struct ls_plot){.runs = &run, .count = 1, .log = log});
            assert_null(strstr(svg, "\"-9223372"));
            free(svg);
        }
    struct ls_scale scale = {.low = 1, .high = 1, .from = 0, .to = 1, .log = true, .whole = true};
    ls_scale_fit(&scale, 6);
    assert_true(scale.low > 0 && scale.low < 1 && scale.high > 1 && scale.ticks > 0);
}

/* A name without blanks is cut between characters, where a line of the picture ends. */
CASE(test_a_long_name)
{
    char name[256] = "", seen[512] = "";
    while (strlen(name) < 250)
        strcat(name, "run\u00e9");
    double x[2] = {1, 2};
    struct ls_run_curves run = {name, {x, x, 2}, {0}, {0}};
    for (int width = 280; width <= 880; width += 600) {
        char *svg = plot_of(&(struct ls_plot){.runs = &run, .count = 1, .width = width});
        static const char mark[] = "<text class=\"ls-title\"";
        seen[0] = '\0';
        for (const char *at = svg; (at = strstr(at, mark)); at++) {
            const char *from = strchr(at, '>') + 1;
            strncat(seen, from, strcspn(from, "<"));
        }
        assert_string_equal(seen, name);
        free(svg);
    }
}

/* The first path of means: its first and its last vertex. */
static void means_ends(const char *svg, double first[2], double last[2])
{
    const char *at = strstr(strstr(svg, "<path class=\"ls-curve ls-mean"), " d=\"") + 4;
    char *end;
    first[0] = strtod(at + 1, &end);
    first[1] = strtod(end, &end);
    for (at = end; *at == 'L'; at = end) {
        last[0] = strtod(at + 1, &end);
        last[1] = strtod(end, &end);
    }
}

/* It had taken the small values behind it with it, by rounding. */
CASE(test_means_behind_a_spike)
{
    enum { COUNT = 400 };
    double x[COUNT], y[COUNT], first[2], last[2] = {0};
    for (int i = 0; i < COUNT; i++) {
        x[i] = i;
        y[i] = i == 100 ? 1e25 : 3;
    }
    struct ls_run_curves run = {"spike", {x, y, COUNT}, {0}, {0}};
    char *svg = plot_of(&(struct ls_plot){.runs = &run, .count = 1, .log = true});
    means_ends(svg, first, last);
    assert_true(first[1] == last[1] && last[0] - first[0] > 790);
    free(svg);
}

CASE(test_several_runs)
{
    enum { COUNT = 4, POINTS = 100 };
    static const char *const names[COUNT] = {"first", "second",
                                             ("a name of sixty letters or so, "
                                              "that does not fit on a phone at all"),
                                             "<&>"};
    double x[POINTS], y[COUNT][POINTS];
    struct ls_run_curves runs[COUNT];
    for (int r = 0; r < COUNT; r++) {
        for (int i = 0; i < POINTS; i++) {
            x[i] = i + 1;
            y[r][i] = 3 + r - i * 0.01;
        }
        runs[r] = (struct ls_run_curves){names[r], {x, y[r], POINTS}, {x, y[r], POINTS}, {0}};
    }
    for (int width = 280; width <= 880; width += 600) {
        char *svg = plot_of(&(struct ls_plot){.runs = runs, .count = COUNT, .width = width});
        char box[48];
        snprintf(box, sizeof box, "viewBox=\"0 0 %d ", width);
        assert_non_null(strstr(svg, box));
        assert_non_null(strstr(svg, "Loss of 4 runs"));
        assert_non_null(strstr(svg, "first, train: 2.0100"));
        assert_non_null(strstr(svg, "&lt;&amp;&gt;, train: 5.0100"));
        /* Each has a colour and dashes of its own. */
        assert_non_null(strstr(svg, "ls-mean ls-s0\" d="));
        assert_non_null(strstr(svg, "ls-mean ls-s1\" stroke-dasharray=\"8 4\""));
        assert_non_null(strstr(svg, "ls-mean ls-s2\" stroke-dasharray=\"2 3\""));
        assert_non_null(strstr(svg, "ls-mean ls-s3\" stroke-dasharray=\"10 3 2 3\""));
        free(svg);
    }
}

/* Of two equal runs both are seen: dots within rings, in the legend too. */
CASE(test_equal_runs)
{
    double x[3] = {1, 2, 3}, y[3] = {3, 2, 1};
    const struct ls_run_curves runs[2] = {
        {.name = "a", .loss = {x, y, 3}, .validation = {x, y, 3}},
        {.name = "b", .loss = {x, y, 3}, .validation = {x, y, 3}},
    };
    char *svg = plot_of(&(struct ls_plot){.runs = runs, .count = 2});
    assert_int_equal(count_of(svg, "<circle class=\"ls-f0\""), 3 + 1);
    assert_int_equal(count_of(svg, "<circle class=\"ls-s1\" fill=\"none\""), 3 + 1);
    free(svg);
}

CASE(test_logarithmic)
{
    double x[4] = {1, 2, 3, 4}, y[4] = {1000, 10, 0, 1};
    struct ls_run_curves run = {.name = "log", .loss = {x, y, 4}};
    char *svg = plot_of(&(struct ls_plot){.runs = &run, .count = 1, .log = true});
    assert_non_null(strstr(svg, ">1,000<"));
    assert_non_null(strstr(svg, ">100<"));
    assert_non_null(strstr(svg, ">1<"));
    assert_non_null(strstr(svg, "1 step without a finite value")); /* 0 has no logarithm */
    free(svg);
}

CASE(test_axis_labels)
{
    static const struct {
        double x_high, y_high;
        const char *x_label, *y_label;
    } cases[] = {
        {10, 1, ">10<", ">1.0<"},
        {1234567, 0.0123, ">1,200,000<", ">0.012<"},
        {3, 11.5, ">3<", ">12<"},
        {1e12, 1e-12, ">1e+12<", ">1e-12<"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        double x[2] = {0, cases[i].x_high}, y[2] = {cases[i].y_high, 0};
        struct ls_run_curves run = {.name = "", .loss = {x, y, 2}};
        char *svg = plot_of(&(struct ls_plot){.runs = &run, .count = 1});
        if (!strstr(svg, cases[i].x_label) || !strstr(svg, cases[i].y_label))
            fail_msg("case %zu: expected %s and %s in\n%s", i, cases[i].x_label, cases[i].y_label,
                     svg);
        free(svg);
    }
}

CASE_WITH(test_a_resumed_run, scratch_setup, scratch_teardown)
{
    /* Steps 3 and 4 came twice, and the validation of the first time is void. */
    static const char text[] = "{\"step\": 1, \"loss\": 9, \"lr\": 1}\n{\"step\": 2, \"loss\": 8}\n"
                               "{\"step\": 2, \"validation_loss\": 7}\n"
                               "{\"step\": 3, \"loss\": 7}\n{\"step\": 4, \"loss\": 6}\n"
                               "{\"step\": 4, \"validation_loss\": 5}\n"
                               "{\"step\": 3, \"loss\": 5}\n{\"step\": 4, \"loss\": 4}\n"
                               "{\"note\": \"no step\"}\n{\"step\": 5, \"loss\": null}\n";
    const char *path = scratch_path(*state, "metrics.jsonl");
    struct ls_error error = {0};
    struct ls_run_curves run;
    scratch_write(path, text, sizeof text - 1);
    assert_ok(ls_run_curves_read(&run, "resumed", path, &error), error);
    static const double expected[] = {9, 8, 5, 4};
    assert_int_equal(run.loss.count, 5);
    for (int i = 0; i < 4; i++)
        assert_true(run.loss.x[i] == i + 1 && run.loss.y[i] == expected[i]);
    assert_true(isnan(run.loss.y[4]));
    assert_int_equal(run.validation.count, 1);
    assert_int_equal(run.lr.count, 1);
    ls_run_curves_release(&run);
    scratch_write(path, "{\"step\": 1}\n", 12);
    assert_int_equal(ls_run_curves_read(&run, "none", path, &error), LS_EDATA);
    assert_non_null(strstr(error.text, "no record has a loss yet"));
}

/* ---- amounts that add up --------------------------------------------------------------------- */

enum { MOMENTS = 400, PEAK = 150 };

static char *stack_of(const struct ls_stack *stack)
{
    struct ls_error error = {0};
    char *text = NULL;
    size_t bytes;
    FILE *file = open_memstream(&text, &bytes);
    assert_int_equal(ls_stack_draw(stack, file, &error), LS_OK);
    fclose(file);
    assert_xml(text);
    assert_svg_texts(text);
    assert_svg_legend(text);
    return text;
}

/* How often the path of that class goes up or down, with its highest point (the least y). */
static int turns_of(const char *svg, const char *classes, double *highest)
{
    char mark[64];
    double before = INFINITY;
    int turns = -1;
    snprintf(mark, sizeof mark, "<path class=\"%s\" d=\"", classes);
    const char *at = strstr(svg, mark);
    if (!at)
        return 0;
    *highest = INFINITY;
    for (at += strlen(mark); *at == 'M' || *at == 'L';) {
        char *end;
        strtod(at + 1, &end);
        double y = strtod(end, &end);
        turns += y != before;
        *highest = fmin(*highest, y);
        before = y;
        at = end;
    }
    return turns;
}

/* Buffers that are there at every other moment are one band, faint, and not 200 spikes. */
CASE(test_what_comes_and_goes_is_one_band)
{
    double lasts[MOMENTS], brief[MOMENTS], none[MOMENTS] = {0}, top, base, veil;
    for (int i = 0; i < MOMENTS; i++) {
        lasts[i] = 60;
        brief[i] = i % 2 ? 20 : 0;
    }
    brief[PEAK] = 40; /* 60 + 40 = 100, the end of the axis */
    const struct ls_stack_part parts[] = {{"lasts", lasts}, {"none", none}, {"brief", brief}};
    struct ls_stack stack = {.title = "stack",
                             .x_label = "moments",
                             .y_label = "GiB",
                             .parts = parts,
                             .part_count = 3,
                             .count = MOMENTS,
                             .marked = PEAK,
                             .marked_text = "most"};
    char *svg = stack_of(&stack);
    assert_int_equal(turns_of(svg, "ls-f2", &top), 3); /* to the peak, back, and down */
    assert_int_equal(turns_of(svg, "ls-f0", &base), 1);
    assert_int_equal(turns_of(svg, "ls-veil", &veil), 3);
    assert_true(veil == top);
    double unused, hundred, zero;
    svg_text_place(svg, "ls-text", "end", "100", &unused, &hundred);
    svg_text_place(svg, "ls-text", "end", "0", &unused, &zero);
    assert_true(fabs(top - (hundred - 4.5)) < 0.2);
    assert_true(fabs(base - (zero - 4.5 + 0.6 * (hundred - zero))) < 0.2);
    assert_null(strstr(svg, ">none<"));
    assert_non_null(strstr(svg, ">faint: comes and goes<"));
    free(svg);
    stack.part_count = 1;
    svg = stack_of(&stack);
    assert_null(strstr(svg, "<path class=\"ls-veil\""));
    assert_null(strstr(svg, "faint:"));
    free(svg);
}

SUITE_MAIN(NULL, NULL)
