/* The pictures of lessons, by lines of their pages:
 *
 *   !bars TITLE|AXIS|PART|PART...          bars of amounts that add up, one below the other
 *   !limit TEXT|VALUE                      a line across them
 *   !bar NAME|TEXT BEHIND|VALUE|VALUE...
 *
 *   !chart TITLE|X AXIS|LOGARITHMIC        curves
 *   !panel Y AXIS|HEIGHT|LOGARITHMIC
 *   !curve NAME|COLOUR
 *   !point X|Y                             of a line
 *   !dot X|Y                               by itself
 */
#include "planner/lesson_private.h"

#include <lockstep/trace/picture.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PARTS_MAX = 5, BARS_MAX = 12, PANELS_MAX = 2, CURVES_MAX = 8, POINTS_MAX = 640 };
enum { TEXTS_MAX = 40, TEXT_BYTES = 128, CELLS_MAX = 2 + PARTS_MAX };

struct bar {
    const char *label, *note;
    double parts[PARTS_MAX];
};
struct bars {
    const char *title, *axis, *legends[PARTS_MAX], *limit_text;
    int part_count, count;
    struct bar bar[BARS_MAX];
    double limit; /* 0: none */
};

struct lesson_picture {
    struct bars bars;
    struct ls_chart chart;
    struct ls_panel panels[PANELS_MAX];
    struct ls_curve curves[CURVES_MAX];
    int curve_count;
    double x[CURVES_MAX][POINTS_MAX], y[CURVES_MAX][POINTS_MAX];
    char texts[TEXTS_MAX][TEXT_BYTES];
    int text_count;
};

int lesson_picture_new(struct lesson_picture **picture, struct ls_error *error)
{
    *picture = calloc(1, sizeof **picture);
    return *picture ? LS_OK : ls_no_memory(error, "for a picture");
}

/* ---- lines ----------------------------------------------------------------------------------- */

enum line { BARS, LIMIT, BAR, CHART, PANEL, CURVE, POINT, DOT };
static const struct {
    const char *word;
    int texts; /* the first cells, at most; the others are expressions */
} lines[] = {{"bars ", CELLS_MAX}, {"limit ", 1}, {"bar ", 2},   {"chart ", 2},
             {"panel ", 1},        {"curve ", 1}, {"point ", 0}, {"dot ", 0}};

/* A line in cells. */
struct cells {
    const char *text[CELLS_MAX];
    int texts;
    double value[PARTS_MAX]; /* 0 if there is none */
};

static struct cells cells_read(struct lesson_page *page, int texts_max, const char *at)
{
    struct cells cells = {.texts = 0};
    for (; *at && cells.texts < texts_max; at += *at == '|') {
        LS_ASSERT(page->picture->text_count < TEXTS_MAX);
        char *text = page->picture->texts[page->picture->text_count++];
        int length = (int)strcspn(at, "|");
        snprintf(text, TEXT_BYTES, "%.*s", length, at);
        cells.text[cells.texts++] = text;
        at += length;
    }
    for (int i = 0; *at; i++, at += *at == '|') {
        LS_ASSERT(i < PARTS_MAX);
        cells.value[i] = lesson_expression(page, &at);
    }
    return cells;
}

static void bars_take(struct bars *bars, enum line line, const struct cells *cells)
{
    if (line == BARS) {
        bars->title = cells->text[0];
        bars->axis = cells->text[1];
        bars->part_count = cells->texts - 2;
        memcpy(bars->legends, &cells->text[2], sizeof bars->legends);
    } else if (line == LIMIT) {
        bars->limit_text = cells->text[0];
        bars->limit = cells->value[0];
    } else {
        LS_ASSERT(bars->count < BARS_MAX);
        struct bar *bar = &bars->bar[bars->count++];
        *bar = (struct bar){.label = cells->text[0], .note = cells->text[1]};
        memcpy(bar->parts, cells->value, sizeof bar->parts);
    }
}

static void point_add(struct lesson_picture *picture, double x, double y)
{
    struct ls_series *series = &picture->curves[picture->curve_count - 1].series;
    LS_ASSERT(series->count < POINTS_MAX);
    series->x[series->count] = x;
    series->y[series->count++] = y;
}

static void curve_add(struct lesson_picture *picture, const struct cells *cells)
{
    int c = picture->curve_count++;
    LS_ASSERT(c < CURVES_MAX);
    picture->curves[c] = (struct ls_curve){.legend = *cells->text[0] ? cells->text[0] : NULL,
                                           .colour = (int)cells->value[0],
                                           .series = {picture->x[c], picture->y[c], 0}};
    picture->panels[picture->chart.count - 1].count++;
}

static void chart_take(struct lesson_picture *picture, enum line line, const struct cells *cells)
{
    if (line == CHART) {
        picture->chart = (struct ls_chart){.title = cells->text[0],
                                           .x_label = cells->text[1],
                                           .x_log = cells->value[0] != 0,
                                           .x_whole = true,
                                           .panels = picture->panels};
    } else if (line == PANEL) {
        LS_ASSERT(picture->chart.count < PANELS_MAX);
        picture->panels[picture->chart.count++] =
            (struct ls_panel){.label = cells->text[0],
                              .height = (int)cells->value[0],
                              .log = cells->value[1] != 0,
                              .whole = cells->value[1] != 0,
                              .curves = &picture->curves[picture->curve_count]};
    } else if (line == CURVE) {
        curve_add(picture, cells);
    } else if (line == DOT || isfinite(cells->value[1])) {
        point_add(picture, cells->value[0], cells->value[1]);
        if (line == DOT)
            point_add(picture, cells->value[0], (double)NAN);
    }
}

void lesson_picture_line(struct lesson_page *page, const char *at)
{
    int line = BARS;
    if (!page->picture)
        return;
    while (strncmp(at, lines[line].word, strlen(lines[line].word)) != 0)
        LS_ASSERT(++line <= DOT);
    const struct cells cells = cells_read(page, lines[line].texts, at + strlen(lines[line].word));
    if (line <= BAR)
        bars_take(&page->picture->bars, line, &cells);
    else
        chart_take(page->picture, line, &cells);
}

/* ---- bars ------------------------------------------------------------------------------------ */

enum { WIDTH = 880, LEFT = 300, RIGHT = 120, TOP = 66, ROW = 30, THICK = 20, BOTTOM = 52 };

static double sum_of(const struct bars *bars, int i)
{
    double sum = 0;
    for (int part = 0; part < bars->part_count; part++)
        sum += bars->bar[i].parts[part];
    return sum;
}

/* Whether the part is wide enough to be seen. */
static bool is_drawn(const struct bars *bars, int i, int part, const struct ls_scale *x)
{
    return ls_scale_place(x, bars->bar[i].parts[part]) - x->from > 0.05;
}

/* Of the parts that some bar has. */
static void legend_draw(const struct bars *bars, const struct ls_scale *x, FILE *file)
{
    struct ls_legend legend = {.file = file, .left = 18, .right = WIDTH, .x = 18, .y = 36};
    for (int part = 0; part < bars->part_count; part++) {
        bool drawn = false;
        for (int i = 0; i < bars->count && !drawn; i++)
            drawn = is_drawn(bars, i, part, x);
        if (drawn)
            ls_legend_add(&legend, ls_picture_class("ls-f", part).text, bars->legends[part]);
    }
}

static void grid_draw(const struct bars *bars, const struct ls_scale *x, FILE *file)
{
    double low = TOP + bars->count * ROW;
    for (int t = 0; t < x->ticks; t++) {
        double place = ls_scale_place(x, x->tick[t]);
        ls_picture_line(file, "ls-grid", place, TOP - 4, place, low);
        ls_picture_text(file, "ls-soft", place, low + 17, "middle", "%s",
                        ls_scale_label(x, x->tick[t]).text);
    }
    ls_picture_text(file, "ls-soft", (x->from + x->to) / 2, low + 37, "middle", "%s", bars->axis);
}

static void bar_draw(const struct bars *bars, int i, const struct ls_scale *x, FILE *file)
{
    const struct bar *bar = &bars->bar[i];
    double y = TOP + i * ROW + (ROW - THICK) / 2, before = 0;
    ls_picture_text(file, "ls-text", LEFT - 10, y + 15, "end", "%s", bar->label);
    for (int part = 0; part < bars->part_count; part++) {
        char tip[128];
        double from = ls_scale_place(x, before);
        double to = ls_scale_place(x, before + bar->parts[part]);
        before += bar->parts[part];
        snprintf(tip, sizeof tip, "%s: %.3g", bars->legends[part], bar->parts[part]);
        if (is_drawn(bars, i, part, x))
            ls_picture_rect(file, ls_picture_class("ls-f", part).text, from, y, to - from, THICK,
                            tip);
    }
    ls_picture_text(file, "ls-text ls-halo", ls_scale_place(x, before) + 6, y + 15, "start", "%s",
                    bar->note);
}

static void bars_draw(const struct bars *bars, FILE *file)
{
    struct ls_scale x = {.low = 0, .high = bars->limit, .from = LEFT, .to = WIDTH - RIGHT};
    for (int i = 0; i < bars->count; i++)
        x.high = fmax(x.high, sum_of(bars, i));
    ls_scale_fit(&x, 6);
    int height = TOP + bars->count * ROW + BOTTOM;
    ls_picture_begin(file, WIDTH, height, bars->title);
    ls_picture_text(file, "ls-title", 18, 24, "start", "%s", bars->title);
    legend_draw(bars, &x, file);
    grid_draw(bars, &x, file);
    for (int i = 0; i < bars->count; i++)
        bar_draw(bars, i, &x, file);
    if (bars->limit > 0) {
        double place = ls_scale_place(&x, bars->limit);
        ls_picture_line(file, "ls-line", place, TOP - 4, place, height - BOTTOM);
        ls_picture_text(file, "ls-soft", place + 4, TOP - 4, "start", "%s", bars->limit_text);
    }
    ls_picture_end(file);
}

int lesson_picture_draw(const struct lesson_picture *picture, FILE *file, struct ls_error *error)
{
    if (picture->bars.count == 0)
        return ls_chart_draw(&picture->chart, file, error);
    bars_draw(&picture->bars, file);
    return LS_OK;
}
