/* The report of runs whose workers do not wait for each other (async.mode): outer gradients, how
 * stale updates of a parameter server were, and how long groups of ranks waited. */
#include "compare/report_private.h"

#include <lockstep/base/words.h>

#include <math.h>
#include <stdlib.h>

/* ---- reading --------------------------------------------------------------------------------- */

bool report_meeting_read(struct report_run *run, const struct ls_record *record)
{
    struct report_async *async = &run->async;
    double norm, wait_s;
    async->meetings++;
    for (int i = 0; i < REPORT_GROUPS; i++) {
        char key[32];
        snprintf(key, sizeof key, "outer_wait_s/%d", i);
        if (!ls_record_number(record, key, &wait_s))
            break;
        async->wait_s[i] += wait_s > 0 ? wait_s : 0;
        async->groups = i >= async->groups ? i + 1 : async->groups;
    }
    if (!ls_record_number(record, "outer_norm", &norm))
        return true;
    struct report_outer *outer = report_list_add(&run->outers, sizeof *outer);
    if (!outer)
        return false;
    const int64_t fragment = ls_record_whole(record, "fragment", 0);
    *outer = (struct report_outer){ls_record_whole(record, "step", 0),
                                   fragment >= 0 && fragment < 4096 ? (int)fragment : 0, norm};
    return true;
}

/* Bins become twice as wide until the value has one. */
static int bin_of(struct report_async *async, int64_t value)
{
    async->bin_width = async->bin_width ? async->bin_width : 1;
    while (value / async->bin_width >= REPORT_BINS) {
        for (int w = 0; w <= REPORT_DRAWN; w++)
            for (int b = 0; b < REPORT_BINS; b++) {
                int64_t count = async->bin[w][b];
                async->bin[w][b] = 0;
                async->bin[w][b / 2] += count;
            }
        async->bin_width *= 2;
    }
    return (int)(value / async->bin_width);
}

void report_push_read(struct report_run *run, const struct ls_record *record)
{
    struct report_async *async = &run->async;
    double worker, staleness;
    if (!ls_record_number(record, "worker", &worker) ||
        !ls_record_number(record, "staleness", &staleness) || !(worker >= 0) ||
        !(worker < REPORT_GROUPS) || !(staleness >= 0) || !(staleness < 1e15))
        return;
    int w = (int)worker;
    int64_t value = (int64_t)staleness;
    async->pushes++;
    async->workers = w >= async->workers ? w + 1 : async->workers;
    async->updates[w]++;
    async->sum[w] += staleness;
    async->most[w] = value > async->most[w] ? value : async->most[w];
    int b = bin_of(async, value);
    async->bin[w < REPORT_DRAWN ? w : REPORT_DRAWN][b]++;
}

double report_staleness(const struct report_async *async)
{
    double sum = 0;
    for (int w = 0; w < async->workers; w++)
        sum += async->sum[w];
    return async->pushes > 0 ? sum / (double)async->pushes : (double)NAN;
}

bool report_has_workers(const struct report_run *run)
{
    return run->async.meetings > 0 || run->async.pushes > 0;
}

/* ---- outer gradients ------------------------------------------------------------------------- */

/* Of one fragment, or of all (-1). NULL x: no memory. */
static struct ls_series norms_of(const struct report_run *run, int fragment)
{
    struct ls_series series = report_series(run->outers.count);
    for (int64_t i = 0; series.x && i < run->outers.count; i++) {
        const struct report_outer *outer = report_outer(run, i);
        if (fragment < 0 || outer->fragment == fragment)
            report_series_add(&series, (double)outer->step, outer->norm);
    }
    return series;
}

/* A curve of each fragment, where colours tell them apart: larger ones have larger norms. */
static int norms_print(struct report *report, const struct report_run *run)
{
    struct ls_curve curves[LS_PICTURE_COLOURS];
    char legends[LS_PICTURE_COLOURS][32];
    int count = 1, status = LS_OK;
    for (int64_t i = 0; i < run->outers.count; i++)
        count =
            report_outer(run, i)->fragment >= count ? report_outer(run, i)->fragment + 1 : count;
    bool each = count > 1 && count <= LS_PICTURE_COLOURS;
    count = each ? count : 1;
    for (int i = 0; i < count; i++) {
        snprintf(legends[i], sizeof legends[i], "fragment %d", i);
        curves[i] = (struct ls_curve){.legend = each ? legends[i] : NULL,
                                      .series = norms_of(run, each ? i : -1),
                                      .colour = i,
                                      .points = true};
        if (!curves[i].series.x)
            status = ls_no_memory(report->error, "for the outer gradients");
    }
    const struct ls_panel panel = {
        .label = "outer gradient norm", .curves = curves, .count = count, .height = 160};
    const struct ls_chart chart = {.alt = "Curve of the norm of the outer gradient, by step",
                                   .x_label = "step",
                                   .panels = &panel,
                                   .count = 1,
                                   .x_whole = true};
    if (!status)
        status = report_chart(report, &chart);
    for (int i = 0; i < count; i++)
        free(curves[i].series.x);
    return status;
}

/* ---- staleness ------------------------------------------------------------------------------- */

/* How a histogram is drawn: bars of each bin, over each other by worker where they are few. */
struct histogram {
    FILE *file;
    const struct report_async *async;
    bool each; /* worker has its own colour */
    int bins;
    struct ls_scale x, y;
};

static int64_t bin_count(const struct histogram *h, int worker, int bin)
{
    int64_t all = 0;
    if (h->each)
        return h->async->bin[worker][bin];
    for (int w = 0; w <= REPORT_DRAWN; w++)
        all += h->async->bin[w][bin];
    return all;
}

static void bin_draw(const struct histogram *h, int bin)
{
    int64_t width = h->async->bin_width, first = bin * width, below = 0;
    double left = ls_scale_place(&h->x, (double)first - 0.5);
    double right = ls_scale_place(&h->x, (double)(first + width) - 0.5);
    double gap = fmin(2, (right - left) / 8);
    for (int w = 0; w < (h->each ? h->async->workers : 1); w++) {
        int64_t count = bin_count(h, w, bin);
        double low = ls_scale_place(&h->y, (double)below);
        double high = ls_scale_place(&h->y, (double)(below + count));
        char who[32] = "", values[64], tip[160];
        if (!count)
            continue;
        if (h->each)
            snprintf(who, sizeof who, "worker %d: ", w);
        snprintf(values, sizeof values, width > 1 ? "%ld to %ld" : "%ld", (long)first,
                 (long)(first + width - 1));
        snprintf(tip, sizeof tip, "%s%s of staleness %s", who, ls_counted(count, "update").text,
                 values);
        ls_picture_rect(h->file, ls_picture_class("ls-f", w).text, left + gap, high,
                        right - left - 2 * gap, low - high, tip);
        below += count;
    }
}

/* The names of workers, in rows from y on; where what follows begins. file NULL: only that. */
static double workers_legend(const struct histogram *h, FILE *file, int width, double y)
{
    struct ls_legend legend = {file, 8, width - LS_AXES_RIGHT, 8, y};
    for (int w = 0; w < h->async->workers; w++) {
        char name[32];
        snprintf(name, sizeof name, "worker %d", w);
        ls_legend_add(&legend, ls_picture_class("ls-f", w).text, name);
    }
    return legend.y + LS_LEGEND_ROW;
}

static void histogram_draw(struct histogram *h, const char *classes, int width, int high)
{
    enum { TOP = 8, LEFT = 68, LABEL = 30, BELOW = 52 };
    double top = (h->each ? workers_legend(h, NULL, width, TOP) : TOP) + LABEL;
    int64_t most = 0;
    h->bins = 0;
    for (int b = 0; b < REPORT_BINS; b++) {
        int64_t all = 0;
        for (int w = 0; w < (h->each ? h->async->workers : 1); w++)
            all += bin_count(h, w, b);
        most = ls_max(most, all);
        h->bins = all ? b + 1 : h->bins;
    }
    h->x = (struct ls_scale){.low = -0.5,
                             .high = (double)(h->bins * h->async->bin_width) - 0.5,
                             .from = LEFT,
                             .to = width - LS_AXES_RIGHT,
                             .whole = true};
    h->y = (struct ls_scale){
        .high = (double)most, .from = top + high, .to = top, .whole = true, .rounded = true};
    ls_scale_fit(&h->x, width / 60);
    ls_scale_fit(&h->y, 5);
    fprintf(h->file, "<figure class=\"%s\">\n", classes);
    ls_picture_begin(h->file, width, (int)top + high + BELOW, "Updates by their staleness");
    if (h->each)
        workers_legend(h, h->file, width, TOP);
    ls_scale_axes(h->file, &h->x, &h->y, "staleness (updates since the pull)", "updates");
    for (int b = 0; b < h->bins; b++)
        bin_draw(h, b);
    ls_picture_end(h->file);
    fputs("</figure>\n", h->file);
}

static void staleness_rows(struct report *report, const struct report_async *async)
{
    static const struct ls_html_column columns[] = {{"Worker", LS_HTML_NUMBER},
                                                    {"Updates", LS_HTML_NUMBER},
                                                    {"Staleness, mean", LS_HTML_NUMBER},
                                                    {"Most", LS_HTML_NUMBER}};
    struct ls_html_table table;
    fputs("<div class=\"tall\">\n", report->file);
    ls_html_table_begin(&table, report->file, "Updates of each worker", columns, 4);
    for (int w = 0; w < async->workers; w++) {
        ls_html_cell(&table, "%d", w);
        ls_html_cell(&table, "%s", report_count((double)async->updates[w]).text);
        if (async->updates[w])
            ls_html_cell(&table, "%.2f", async->sum[w] / (double)async->updates[w]);
        else
            ls_html_cell(&table, "–");
        ls_html_cell(&table, "%s", report_count((double)async->most[w]).text);
    }
    ls_html_table_end(&table);
    fputs("</div>\n", report->file);
}

static void staleness_print(struct report *report, const struct report_run *run)
{
    struct histogram h = {.file = report->file,
                          .async = &run->async,
                          .each = run->async.workers > 1 && run->async.workers <= REPORT_DRAWN};
    histogram_draw(&h, "wide", 860, 200);
    histogram_draw(&h, "narrow", 320, 150);
    staleness_rows(report, &run->async);
    ls_html_print(report->file, "p", "note",
                  "A step is one worker's gradient, and steps of several workers go on at the same "
                  "time. Its staleness is the number of updates between the parameters that it was "
                  "computed with and those that it was added to.");
}

/* ---- waiting --------------------------------------------------------------------------------- */

static void group_cell(struct ls_html_table *table, const struct report_run *run, int group)
{
    const struct ls_layout_keys *keys = &run->config.parallel;
    if (run->configured && keys->servers > 0 && group >= keys->workers)
        ls_html_cell(table, "%d (server)", group);
    else
        ls_html_cell(table, "%d", group);
}

static void waits_print(struct report *report, const struct report_run *run)
{
    static const struct ls_html_column columns[] = {{"Group of ranks", LS_HTML_TEXT},
                                                    {"Waited", LS_HTML_NUMBER},
                                                    {"A meeting, mean", LS_HTML_NUMBER},
                                                    {"Share of the time", LS_HTML_NUMBER}};
    const struct report_async *async = &run->async;
    struct ls_html_table table;
    if (!async->groups)
        return;
    fputs("<div class=\"tall\">\n", report->file);
    ls_html_table_begin(&table, report->file, "How long groups waited for others", columns, 4);
    for (int g = 0; g < async->groups; g++) {
        double share = run->wall_s > 0 ? async->wait_s[g] / run->wall_s : (double)NAN;
        group_cell(&table, run, g);
        ls_html_cell(&table, "%s", report_seconds(async->wait_s[g]).text);
        ls_html_cell(&table, "%s", report_seconds(async->wait_s[g] / (double)async->meetings).text);
        ls_html_cell(&table, "%s", report_share(share).text);
    }
    ls_html_table_end(&table);
    fputs("</div>\n", report->file);
    ls_html_print(report->file, "p", "note", "%s in all.",
                  ls_counted(async->meetings, "meeting").text);
}

/* ---- the section ----------------------------------------------------------------------------- */

int report_workers(struct report *report, const struct report_run *run)
{
    int status = run->outers.count > 0 ? norms_print(report, run) : LS_OK;
    if (run->async.pushes > 0)
        staleness_print(report, run);
    waits_print(report, run);
    return status;
}
