/* The report's curves, throughput, and where the time went. */
#include "compare/report_private.h"

#include <lockstep/base/words.h>

#include <math.h>
#include <stddef.h>
#include <stdlib.h>

enum { CURVES_MAX = 2 * LS_REPORT_RUNS_MAX, PANELS = 4 };
_Static_assert((int)CURVES_MAX >= (int)REPORT_SOURCES, "a curve of each source");

/* ---- the axis -------------------------------------------------------------------------------- */

enum by { BY_STEP, BY_TOKENS, BY_TIME };
struct axis {
    enum by by;
    double unit; /* of what is drawn */
    const char *label;
};
static const struct axis by_step = {BY_STEP, 1, "step"};

static double place_on(const struct axis *axis, int64_t step, double tokens, double trained_s)
{
    return (axis->by == BY_STEP     ? (double)step
            : axis->by == BY_TOKENS ? tokens
                                    : trained_s) /
           axis->unit;
}

/* "at step 12", "after 1,234 tokens", "after 2 min 05 s" */
struct place_text {
    char text[64];
};
static struct place_text place_text(const struct axis *axis, double x)
{
    struct place_text out;
    if (axis->by == BY_STEP)
        snprintf(out.text, sizeof out.text, "at step %.0f", x);
    else if (axis->by == BY_TOKENS)
        snprintf(out.text, sizeof out.text, "after %s tokens", report_count(x * axis->unit).text);
    else
        snprintf(out.text, sizeof out.text, "after %s", report_seconds(x * axis->unit).text);
    return out;
}

/* The largest unit of which there are two at least. */
struct unit {
    double seconds;
    const char *name;
};
static struct unit unit_of(double seconds)
{
    static const struct unit units[] = {
        {86400, "days"}, {3600, "hours"}, {60, "minutes"}, {1, "seconds"}};
    int i = 0;
    while (units[i].seconds > 1 && seconds < 2 * units[i].seconds)
        i++;
    return units[i];
}

/* ---- curves ---------------------------------------------------------------------------------- */

void report_series_add(struct ls_series *series, double x, double y)
{
    if (!isfinite(x) || (series->count > 0 && x < series->x[series->count - 1]))
        return;
    series->x[series->count] = x;
    series->y[series->count++] = y;
}

struct ls_series report_series(int64_t count)
{
    double *x = malloc((size_t)ls_max(count, 1) * 2 * sizeof *x);
    return (struct ls_series){x, x ? x + count : NULL, 0};
}

/* One field of a run's points; memory of the caller. NULL x: no memory. */
static struct ls_series series_of(const struct report_run *run, const struct axis *axis,
                                  size_t field)
{
    struct ls_series series = report_series(run->count);
    for (int64_t i = 0; series.x && i < run->count; i++) {
        const struct report_point *p = &run->points[i];
        report_series_add(&series, place_on(axis, p->step, p->tokens, p->trained_s),
                          *(const double *)((const char *)p + field));
    }
    return series;
}

static struct ls_series evaluations_of(const struct report_run *run, const struct axis *axis)
{
    struct ls_series series = report_series(run->evals.count);
    for (int64_t i = 0; series.x && i < run->evals.count; i++) {
        const struct report_eval *e = report_eval(run, i);
        report_series_add(&series, place_on(axis, e->step, e->tokens, e->trained_s), e->loss);
    }
    return series;
}

/* A panel of one field of all runs. */
struct panel {
    const char *label, *what;
    size_t field;
    int height;
    bool smooth, evaluations;
};

struct drawing {
    const struct axis *axis;
    struct ls_curve curve[CURVES_MAX];
    char legend[CURVES_MAX][160];
    int count;
};

static void drawing_release(struct drawing *drawing)
{
    for (int i = 0; i < drawing->count; i++)
        free(drawing->curve[i].series.x);
}

/* The curve's last finite value in the legend's words; none for a curve without one. A curve of
 * points is of evaluations; of many steps a value is the mean of neighbours. */
static void curve_add(const struct report *report, struct drawing *drawing,
                      const struct report_run *run, const char *what, struct ls_series series,
                      int colour, bool points, bool smooth)
{
    size_t last = series.count;
    int at = drawing->count++;
    while (last > 0 && !isfinite(series.y[last - 1]))
        last--;
    double value = last ? series.y[last - 1] : 0;
    char text[48];
    snprintf(text, sizeof text, "%.4f", value);
    snprintf(drawing->legend[at], sizeof drawing->legend[at], "%s%s%s: %s%s %s", run->label,
             *run->label ? " " : "", what, fabs(value) < 1000 ? text : report_count(value).text,
             points || run->width == 1 ? "" : " (mean)",
             place_text(drawing->axis, last ? series.x[last - 1] : 0.0).text);
    drawing->curve[at] = (struct ls_curve){.legend = last ? drawing->legend[at] : NULL,
                                           .series = series,
                                           .colour = colour,
                                           .points = points,
                                           .rings = points && run != report->runs,
                                           .smooth = smooth,
                                           .gaps = smooth};
}

static int no_memory(const struct report *report)
{
    return ls_no_memory(report->error, "for the curves of a report");
}

/* The first panel's legend tells the runs apart; the others' axes say what they show. */
static int drawing_make(const struct report *report, const struct axis *axis,
                        const struct panel *panel, bool legend, struct drawing *drawing)
{
    drawing->axis = axis;
    for (int i = 0; i < report->count; i++) {
        const struct report_run *run = &report->runs[i];
        curve_add(report, drawing, run, panel->what, series_of(run, axis, panel->field), i, false,
                  panel->smooth);
        if (panel->evaluations)
            curve_add(report, drawing, run, "validation", evaluations_of(run, axis),
                      report->count == 1 ? 1 : i, true, false);
    }
    for (int i = 0; i < drawing->count && !legend; i++)
        drawing->curve[i].legend = NULL;
    for (int i = 0; i < drawing->count; i++)
        if (!drawing->curve[i].series.x)
            return no_memory(report);
    return LS_OK;
}

int report_chart(struct report *report, const struct ls_chart *chart)
{
    static const struct {
        const char *classes;
        int width, share;
    } sizes[] = {{"wide", 860, 100}, {"narrow", 320, 75}};
    struct ls_error nothing = {0};
    int status = LS_OK;
    LS_ASSERT(chart->count <= PANELS);
    for (int s = 0; s < 2 && !status; s++) {
        struct ls_panel shown[PANELS];
        struct ls_chart one = *chart;
        for (int p = 0; p < chart->count; p++) {
            shown[p] = chart->panels[p];
            shown[p].height = shown[p].height * sizes[s].share / 100;
        }
        one.panels = shown;
        one.width = sizes[s].width;
        fprintf(report->file, "<figure class=\"%s\">\n", sizes[s].classes);
        status = ls_chart_draw(&one, report->file, &nothing);
        if (status == LS_EDATA && s == 0)
            ls_html_print(report->file, "p", "note", "No record has a finite value yet.");
        else if (status && status != LS_EDATA)
            *report->error = nothing;
        fputs("</figure>\n", report->file);
        status = status == LS_EDATA ? LS_OK : status;
    }
    return status;
}

static int chart_print(struct report *report, const char *alt, const struct panel *panels,
                       const struct drawing *drawings, int count)
{
    struct ls_panel shown[PANELS];
    for (int p = 0; p < count; p++)
        shown[p] = (struct ls_panel){.label = panels[p].label,
                                     .curves = drawings[p].curve,
                                     .count = drawings[p].count,
                                     .height = panels[p].height};
    const struct ls_chart chart = {.alt = alt,
                                   .x_label = drawings->axis->label,
                                   .panels = shown,
                                   .count = count,
                                   .x_whole = drawings->axis->by != BY_TIME};
    return report_chart(report, &chart);
}

/* Panels without a finite point are left out. */
static int chart(struct report *report, const char *alt, const struct axis *axis,
                 const struct panel *panels, int count)
{
    struct drawing drawings[PANELS] = {0};
    int status = LS_OK;
    for (int p = 0; p < count && !status; p++)
        status = drawing_make(report, axis, &panels[p], p == 0, &drawings[p]);
    if (!status)
        status = chart_print(report, alt, panels, drawings, count);
    for (int p = 0; p < PANELS; p++)
        drawing_release(&drawings[p]);
    return status;
}

/* The loss of each source of one run. */
static int sources_chart(struct report *report, const struct report_run *run)
{
    const struct panel panel = {.label = "loss by source (nats per token)", .height = 240};
    struct drawing drawing = {.axis = &by_step};
    int status = LS_OK;
    ls_html_print(report->file, "h3", NULL, "%s%sLoss by source", run->label,
                  *run->label ? ": " : "");
    for (int i = 0; i < run->source_count; i++) {
        size_t field = offsetof(struct report_point, source) + (size_t)i * sizeof(double);
        curve_add(report, &drawing, run, run->sources[i], series_of(run, &by_step, field), i, false,
                  true);
        if (!drawing.curve[i].series.x)
            status = no_memory(report);
    }
    if (!status)
        status =
            chart_print(report, "Curves of the loss of each source, by step", &panel, &drawing, 1);
    if (run->source_all > run->source_count)
        ls_html_print(report->file, "p", "note", "The first %d of %d sources are drawn.",
                      run->source_count, run->source_all);
    drawing_release(&drawing);
    return status;
}

/* A step of one run may be worth many of another one's, and take as long: so the losses of several
 * runs are drawn once more, by tokens and by time. */
static int losses_compare(struct report *report, const struct panel *loss)
{
    double most_s = 0;
    for (int r = 0; r < report->count; r++)
        most_s = fmax(most_s, report->runs[r].wall_s);
    const struct unit unit = unit_of(most_s);
    char label[64];
    snprintf(label, sizeof label, "%s of training", unit.name);
    const struct axis tokens = {BY_TOKENS, 1, "tokens"}, time = {BY_TIME, unit.seconds, label};
    ls_html_print(report->file, "h3", NULL, "Loss against tokens");
    int status = chart(report, "Curves of loss by tokens", &tokens, loss, 1);
    if (status)
        return status;
    ls_html_print(report->file, "h3", NULL, "Loss against time");
    status = chart(report, "Curves of loss by time", &time, loss, 1);
    ls_html_print(report->file, "p", "note",
                  "Time is that by the clock since the run began, with evaluations and saves. Of a "
                  "run that was resumed, the time between its starts does not count, nor what was "
                  "computed again.");
    return status;
}

int report_curves(struct report *report)
{
    static const struct panel panels[] = {
        {"loss (nats per token)", "training", offsetof(struct report_point, loss), 300, true, true},
        {"gradient norm, before clipping", "gradient norm",
         offsetof(struct report_point, grad_norm), 120, true, false},
        {"learning rate", "learning rate", offsetof(struct report_point, lr), 80, false, false},
    };
    int status = chart(report, "Curves of loss, gradient norm and learning rate by step", &by_step,
                       panels, 3);
    if (!status && report->count > 1)
        status = losses_compare(report, &panels[0]);
    for (int r = 0; r < report->count && !status; r++)
        if (report->runs[r].source_count > 0)
            status = sources_chart(report, &report->runs[r]);
    return status;
}

/* ---- throughput ------------------------------------------------------------------------------ */

/* A figure of each run, by where it is in its speed. */
static void speed_row(const struct report *report, struct ls_html_table *table, const char *name,
                      const struct report_speed *speeds, size_t field,
                      struct report_text (*text)(double value))
{
    ls_html_cell(table, "%s", name);
    for (int r = 0; r < report->count; r++)
        ls_html_cell(table, "%s", text(*(const double *)((const char *)&speeds[r] + field)).text);
}

static void speed_rows(struct report *report, const struct report_speed *speeds)
{
    static const char *const names[REPORT_PERCENTILES] = {
        "fastest", "5th percentile", "25th", "median", "75th", "95th percentile", "slowest"};
    struct ls_html_column columns[LS_REPORT_RUNS_MAX + 2];
    struct ls_html_table table;
    int count = report_columns(report, (struct ls_html_column){"Percentile", LS_HTML_TEXT}, "time",
                               LS_HTML_NUMBER, (struct ls_html_column){0}, columns);
    ls_html_table_begin(&table, report->file, "Time of a step", columns, count);
    for (size_t i = 0; i < REPORT_PERCENTILES; i++)
        speed_row(report, &table, names[i], speeds,
                  offsetof(struct report_speed, percentile) + i * sizeof(double), report_seconds);
    speed_row(report, &table, "mean", speeds, offsetof(struct report_speed, mean_s),
              report_seconds);
    ls_html_table_end(&table);
}

static void rate_rows(struct report *report, const struct report_speed *speeds)
{
    struct ls_html_column columns[LS_REPORT_RUNS_MAX + 2];
    struct ls_html_table table;
    int count = report_columns(report, (struct ls_html_column){"Measure", LS_HTML_TEXT}, "value",
                               LS_HTML_NUMBER, (struct ls_html_column){0}, columns);
    ls_html_table_begin(&table, report->file, "Rates", columns, count);
    speed_row(report, &table, "tokens a second, median", speeds,
              offsetof(struct report_speed, tokens_per_s_median), report_count);
    speed_row(report, &table, "tokens a second, overall", speeds,
              offsetof(struct report_speed, tokens_per_s_mean), report_count);
    speed_row(report, &table, "share of the machine's rate", speeds,
              offsetof(struct report_speed, peak_share_mean), report_share);
    speed_row(report, &table, "the same, best step", speeds,
              offsetof(struct report_speed, peak_share_best), report_share);
    ls_html_cell(&table, "one large product, at the start");
    for (int r = 0; r < report->count; r++)
        if (report->runs[r].peak_flops > 0)
            ls_html_cell(&table, "%.4g GFLOP/s", report->runs[r].peak_flops / 1e9);
        else
            ls_html_cell(&table, "not recorded");
    ls_html_table_end(&table);
}

int report_speeds(struct report *report)
{
    static const struct panel panels[] = {
        {"tokens a second", "tokens a second", offsetof(struct report_point, tokens_per_s), 160,
         true, false},
        {"time of a step (s)", "step", offsetof(struct report_point, step_s), 120, true, false},
    };
    struct report_speed speeds[LS_REPORT_RUNS_MAX];
    int status = LS_OK;
    for (int r = 0; r < report->count && !status; r++)
        status = report_speed_of(&report->runs[r], &speeds[r], report->error);
    if (status)
        return status;
    fputs("<div class=\"pair\">\n<div>\n", report->file);
    rate_rows(report, speeds);
    fputs("</div>\n<div>\n", report->file);
    speed_rows(report, speeds);
    fputs("</div>\n</div>\n", report->file);
    ls_html_print(report->file, "p", "note",
                  "The share is of the best rate that the run saw: that of one large product on "
                  "all its threads, measured at the start, or of a step that was faster.");
    return chart(report, "Curves of tokens a second and the time of a step, by step", &by_step,
                 panels, 2);
}

/* ---- where the time went --------------------------------------------------------------------- */

/* One bar a run: the parts of a whole, as long as their shares. */
static void bars(struct report *report, const char *what, const double (*seconds)[PARTS],
                 const char *classes, int width)
{
    enum { BAR = 26, GAP = 12 };
    char title[256];
    int label = report->count > 1 ? 24 : 0;
    snprintf(title, sizeof title, "%s: bars of the parts' shares; the table has the numbers", what);
    fprintf(report->file, "<figure class=\"%s\">\n", classes);
    ls_picture_begin(report->file, width, report->count * (BAR + GAP), title);
    for (int r = 0; r < report->count; r++) {
        double all = 0, x = label, y = r * (BAR + GAP);
        for (int p = 0; p < PARTS; p++)
            all += seconds[r][p];
        if (label)
            ls_picture_text(report->file, "ls-text", 0, y + BAR - 8, "start", "%s",
                            report->runs[r].label);
        ls_picture_rect(report->file, "ls-idle", x, y, width - label, BAR, NULL);
        for (int p = 0; p < PARTS && all > 0; p++) {
            double wide = (width - label) * seconds[r][p] / all;
            char tip[128];
            if (wide < 0.05)
                continue;
            snprintf(tip, sizeof tip, "%s: %s, %.1f %%", report_part_name((enum report_part)p),
                     report_seconds(seconds[r][p]).text, 100 * seconds[r][p] / all);
            ls_picture_rect(report->file, ls_picture_class("ls-part", p).text, x, y, wide, BAR,
                            tip);
            x += wide;
        }
    }
    ls_picture_end(report->file);
    fputs("</figure>\n", report->file);
}

/* Bars and table of [runs][PARTS] seconds; parts that no run has are left out. */
static void account(struct report *report, const char *what, const double (*seconds)[PARTS])
{
    struct ls_html_column columns[1 + 2 * LS_REPORT_RUNS_MAX] = {{"Part", LS_HTML_TEXT}};
    char names[2 * LS_REPORT_RUNS_MAX][32];
    struct ls_html_table table;
    double all[LS_REPORT_RUNS_MAX] = {0};
    for (int r = 0; r < report->count; r++) {
        const char *label = report->runs[r].label, *space = *label ? ": " : "";
        snprintf(names[2 * r], sizeof names[0], "%s%stime", label, space);
        snprintf(names[2 * r + 1], sizeof names[0], "%s%sshare", label, space);
        columns[1 + 2 * r] = (struct ls_html_column){names[2 * r], LS_HTML_NUMBER};
        columns[2 + 2 * r] = (struct ls_html_column){names[2 * r + 1], LS_HTML_NUMBER};
        for (int p = 0; p < PARTS; p++)
            all[r] += seconds[r][p];
    }
    bars(report, what, seconds, "wide", 860);
    bars(report, what, seconds, "narrow", 320);
    ls_html_table_begin(&table, report->file, what, columns, 1 + 2 * report->count);
    for (int p = 0; p < PARTS; p++) {
        double any = 0;
        for (int r = 0; r < report->count; r++)
            any += seconds[r][p];
        if (any <= 0)
            continue;
        ls_html_cell_part(&table, p, report_part_name((enum report_part)p));
        for (int r = 0; r < report->count; r++) {
            ls_html_cell(&table, "%s", report_seconds(seconds[r][p]).text);
            ls_html_cell(&table, "%.1f %%", all[r] > 0 ? 100 * seconds[r][p] / all[r] : 0.0);
        }
    }
    ls_html_cell(&table, "together");
    for (int r = 0; r < report->count; r++) {
        ls_html_cell(&table, "%s", report_seconds(all[r]).text);
        ls_html_cell(&table, " ");
    }
    ls_html_table_end(&table);
}

/* The run from its first start to its end, with the time from each failure to the first new step,
 * of at least two units. */
static void failures_draw(FILE *file, const struct report_run *run, const char *classes, int width)
{
    enum { BAR = 26, LEFT = 10, HEIGHT = 84 };
    double all_s = run->last_s - run->first_s;
    const struct unit unit = unit_of(all_s);
    char label[64];
    snprintf(label, sizeof label, "%s since the first start", unit.name);
    struct ls_scale x = {
        .high = all_s / unit.seconds, .from = LEFT, .to = width - LS_AXES_RIGHT - LEFT};
    ls_scale_fit(&x, width / 100);
    fprintf(file, "<figure class=\"%s\">\n", classes);
    ls_picture_begin(file, width, HEIGHT, "The run by the clock, with its failures");
    ls_picture_rect(file, ls_picture_class("ls-part", PART_COMPUTE).text, x.from, 0,
                    ls_scale_place(&x, x.high) - x.from, BAR, NULL);
    for (int64_t i = 0; i < run->failures.count; i++) {
        const struct report_failure *failure = report_failure(run, i);
        double until = isfinite(failure->until) ? failure->until : run->last_s;
        double from = ls_scale_place(&x, (failure->time - run->first_s) / unit.seconds);
        double to = ls_scale_place(&x, (until - run->first_s) / unit.seconds);
        char tip[400];
        snprintf(tip, sizeof tip, "%s; %s", failure->text,
                 isfinite(failure->until) ? report_seconds(until - failure->time).text
                                          : "no new step since");
        from = fmin(fmax(from, x.from), x.to);
        ls_picture_rect(file, ls_picture_class("ls-part", PART_REST).text, from, 0,
                        fmax(fmin(to, x.to) - from, 2), BAR, tip);
    }
    ls_scale_axis(file, &x, BAR + 8, label);
    ls_picture_end(file);
    fputs("</figure>\n", file);
}

static void failures_print(struct report *report)
{
    for (int r = 0; r < report->count; r++) {
        const struct report_run *run = &report->runs[r];
        if (*run->launch_problem)
            ls_html_print(report->file, "p", "warn", "events.jsonl was not read: %s",
                          run->launch_problem);
        if (run->failures.count == 0 || run->last_s <= run->first_s)
            continue;
        ls_html_print(report->file, "h3", NULL, "%s%sFailures", run->label,
                      *run->label ? ": " : "");
        failures_draw(report->file, run, "wide", 860);
        failures_draw(report->file, run, "narrow", 320);
        ls_html_print(report->file, "p", "note",
                      "%s that the launcher saw, each until the first new step after it; point at "
                      "one to see what it was. The events have them all.",
                      ls_counted(run->failures.all, "failure").text);
    }
}

int report_times(struct report *report)
{
    failures_print(report);
    double step[LS_REPORT_RUNS_MAX][PARTS] = {{0}}, whole[LS_REPORT_RUNS_MAX][PARTS] = {{0}};
    bool any = false, walls = false;
    for (int r = 0; r < report->count; r++) {
        const struct report_run *run = &report->runs[r];
        for (int p = 0; p < PARTS; p++) {
            whole[r][p] = run->total_s[p] / (p < PART_STEP ? (double)run->abreast : 1);
            if (p < PART_STEP && run->steps > 0)
                step[r][p] = run->total_s[p] / (double)run->steps;
        }
        any |= run->has_parts;
        walls |= run->wall_s > 0;
    }
    if (!any) {
        ls_html_print(report->file, "p", "note",
                      "metrics.jsonl does not tell: no step has compute_s and what goes with it "
                      "(older versions did not record it).");
        return LS_OK;
    }
    account(report, "A step, mean over steps and ranks", (const double(*)[PARTS])step);
    ls_html_print(report->file, "p", "note",
                  "Waiting is the time in which a rank does nothing else. What moves while it "
                  "computes costs nothing here. Waiting on pp holds the pipeline's bubbles.");
    if (walls) {
        ls_html_print(report->file, "h3", NULL, "The whole run");
        account(report, "From start to end, all starts together", (const double(*)[PARTS])whole);
    }
    return LS_OK;
}
