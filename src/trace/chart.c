/* Curves over one axis, in panels below each other. */
#include <lockstep/trace/picture.h>

#include <math.h>
#include <stdlib.h>

enum {
    WIDTH = 880,
    LEFT = 68,
    RIGHT = LS_AXES_RIGHT,
    ROW = 20,    /* of a line of the legend */
    LABEL = 38,  /* above a panel */
    BOTTOM = 50, /* below the last one */
    SWATCH = 34,
    DOTS_MAX = 100,
    PANELS_MAX = 16,
};

static const char *const dashes[] = {"", "8 4", "2 3", "10 3 2 3", "14 5", "5 2"};
enum { DASHES = sizeof dashes / sizeof dashes[0] };

/* A panel while it is drawn. */
struct drawn_panel {
    FILE *file;
    const struct ls_panel *panel;
    struct ls_scale x, y;
};

/* Not what is infinite, or nearly so: a range of it would be. */
static bool is_point(const struct ls_panel *panel, const struct ls_series *series, size_t i)
{
    static const double most = 1e300;
    return fabs(series->x[i]) <= most && fabs(series->y[i]) <= most &&
           (!panel->log || series->y[i] >= 1 / most);
}

/* Points, and with gaps the places without one. */
static size_t count_points(const struct ls_panel *panel, const struct ls_curve *curve, size_t *gaps)
{
    size_t points = 0;
    for (size_t i = 0; i < curve->series.count; i++)
        points += is_point(panel, &curve->series, i);
    *gaps = curve->gaps ? curve->series.count - points : 0;
    return points;
}

static const char *dash_of(const struct ls_curve *curve)
{
    return curve->points ? "" : dashes[curve->colour % DASHES];
}

/* ---- ranges ---------------------------------------------------------------------------------- */

/* False if the panel has nothing to show. */
static bool include(const struct ls_panel *panel, struct ls_scale *x, struct ls_scale *y)
{
    bool any = false;
    for (int c = 0; c < panel->count; c++) {
        const struct ls_series *series = &panel->curves[c].series;
        for (size_t i = 0; i < series->count; i++) {
            if (!is_point(panel, series, i))
                continue;
            any = true;
            x->low = fmin(x->low, series->x[i]);
            x->high = fmax(x->high, series->x[i]);
            y->low = fmin(y->low, series->y[i]);
            y->high = fmax(y->high, series->y[i]);
        }
    }
    return any;
}

/* ---- curves ---------------------------------------------------------------------------------- */

/* A line that is being written: a path from gap to gap. */
struct pen {
    const struct drawn_panel *place;
    int colour;
    const char *classes, *dash;
    int vertices;
    double x, y; /* the first */
};

static void put_pair(FILE *file, char command, double x, double y)
{
    fputc(command, file);
    ls_picture_number(file, x);
    fputc(' ', file);
    ls_picture_number(file, y);
}

static void pen_to(struct pen *pen, double x, double y)
{
    FILE *file = pen->place->file;
    x = ls_scale_place(&pen->place->x, x);
    y = ls_scale_place(&pen->place->y, y);
    if (pen->vertices++ == 0) {
        pen->x = x;
        pen->y = y;
        return;
    }
    if (pen->vertices == 2) {
        fprintf(file, "<path class=\"%s ls-s%d\"%s%s%s d=\"", pen->classes, pen->colour,
                *pen->dash ? " stroke-dasharray=\"" : "", pen->dash, *pen->dash ? "\"" : "");
        put_pair(file, 'M', pen->x, pen->y);
    }
    put_pair(file, 'L', x, y);
}

static void put_dot(FILE *file, int colour, bool ring, double x, double y, double radius)
{
    fprintf(file,
            ring ? "<circle class=\"ls-s%d\" fill=\"none\" stroke-width=\"2\" cx=\""
                 : "<circle class=\"ls-f%d\" cx=\"",
            colour);
    ls_picture_number(file, x);
    fputs("\" cy=\"", file);
    ls_picture_number(file, y);
    fputs("\" r=\"", file);
    ls_picture_number(file, ring ? radius + 2 : radius);
    fputs("\"", file);
}

/* A point between gaps would be no line: it becomes a dot. */
static void pen_up(struct pen *pen)
{
    if (pen->vertices > 1)
        fputs("\"/>\n", pen->place->file);
    if (pen->vertices == 1) {
        put_dot(pen->place->file, pen->colour, false, pen->x, pen->y, 2.5);
        fputs("/>\n", pen->place->file);
    }
    pen->vertices = 0;
}

/* Of the points that share a unit of width the lowest and the highest, in their order. */
static void put_line(const struct drawn_panel *place, const struct ls_series *series, int colour,
                     const char *classes, const char *dash)
{
    const struct ls_panel *panel = place->panel;
    struct pen pen = {place, colour % LS_PICTURE_COLOURS, classes, dash, 0, 0, 0};
    for (size_t i = 0; i < series->count;) {
        if (!is_point(panel, series, i)) {
            pen_up(&pen);
            i++;
            continue;
        }
        double column = floor(ls_scale_place(&place->x, series->x[i]));
        size_t low = i, high = i;
        for (; i < series->count && is_point(panel, series, i) &&
               floor(ls_scale_place(&place->x, series->x[i])) == column;
             i++) {
            low = series->y[i] < series->y[low] ? i : low;
            high = series->y[i] > series->y[high] ? i : high;
        }
        size_t a = low < high ? low : high, b = low < high ? high : low;
        pen_to(&pen, series->x[a], series->y[a]);
        if (b != a)
            pen_to(&pen, series->x[b], series->y[b]);
    }
    pen_up(&pen);
}

size_t ls_smooth_window(size_t count)
{
    return count / 40 | 1;
}

/* means[count]: of the points around each, as many on its left as on its right while there are;
 * NaN if there is a gap. work[3 * count + 1]. A window lies in two blocks of its length at most,
 * which are added from their ends to the middle (van Herk 1992): nothing is taken away again, so a
 * spike is in the means around it alone. */
static void smooth(const struct ls_panel *panel, const struct ls_series *series, double *work,
                   double *means)
{
    size_t window = ls_smooth_window(series->count), reach = window / 2, count = series->count;
    double *behind = work, *ahead = work + count, *points = work + 2 * count;
    points[0] = 0; /* so many are before each */
    for (size_t i = 0; i < count; i++) {
        bool is = is_point(panel, series, i);
        behind[i] = (i % window ? behind[i - 1] : 0) + (is ? series->y[i] : 0);
        points[i + 1] = points[i] + is;
    }
    for (size_t i = count; i-- > 0;)
        ahead[i] = ((i + 1) % window && i + 1 < count ? ahead[i + 1] : 0) +
                   (is_point(panel, series, i) ? series->y[i] : 0);
    for (size_t i = 0; i < count; i++) {
        size_t left = i < reach ? i : reach, right = count - 1 - i < left ? count - 1 - i : left;
        size_t from = i - left, last = i + right;
        double sum = from / window < last / window ? ahead[from] + behind[last]
                     : from % window               ? ahead[from]
                                                   : behind[last];
        means[i] =
            is_point(panel, series, i) ? sum / (points[last + 1] - points[from]) : (double)NAN;
    }
}

static int put_smooth(const struct drawn_panel *place, const struct ls_curve *curve,
                      struct ls_error *error)
{
    size_t count = curve->series.count;
    double *work = malloc((4 * count + 1) * sizeof *work);
    if (!work)
        return ls_no_memory(error, "to smooth %zu points", count);
    put_line(place, &curve->series, curve->colour, "ls-curve ls-faint", "");
    struct ls_series means = {curve->series.x, work + 3 * count + 1, count};
    smooth(place->panel, &curve->series, work, means.y);
    put_line(place, &means, curve->colour, "ls-curve ls-mean", dash_of(curve));
    free(work);
    return LS_OK;
}

static void put_dots(const struct drawn_panel *place, const struct ls_curve *curve)
{
    for (size_t i = 0; i < curve->series.count; i++) {
        if (!is_point(place->panel, &curve->series, i))
            continue;
        put_dot(place->file, curve->colour % LS_PICTURE_COLOURS, curve->rings,
                ls_scale_place(&place->x, curve->series.x[i]),
                ls_scale_place(&place->y, curve->series.y[i]), 4);
        fprintf(place->file, "><title>%s: ", ls_scale_label(&place->x, curve->series.x[i]).text);
        char value[48];
        snprintf(value, sizeof value, "%.6g", curve->series.y[i]);
        ls_picture_xml(place->file, value);
        fputs("</title></circle>\n", place->file);
    }
}

/* A mark at the bottom of each unit of width that has a gap. */
static void put_gaps(const struct drawn_panel *place, const struct ls_curve *curve)
{
    char classes[32];
    double marked = -1;
    snprintf(classes, sizeof classes, "ls-gap ls-s%d", curve->colour % LS_PICTURE_COLOURS);
    for (size_t i = 0; i < curve->series.count; i++) {
        double x = curve->series.x[i];
        if (is_point(place->panel, &curve->series, i) || !isfinite(x) || x < place->x.low ||
            x > place->x.high)
            continue;
        double at = floor(ls_scale_place(&place->x, x)) + 0.5;
        if (at != marked)
            ls_picture_line(place->file, classes, at, place->y.from - 10, at, place->y.from);
        marked = at;
    }
}

static int put_curve(const struct drawn_panel *place, const struct ls_curve *curve,
                     struct ls_error *error)
{
    size_t gaps, points = count_points(place->panel, curve, &gaps);
    if (gaps)
        put_gaps(place, curve);
    if (curve->smooth && ls_smooth_window(curve->series.count) > 1)
        return put_smooth(place, curve, error);
    put_line(place, &curve->series, curve->colour, "ls-curve", dash_of(curve));
    if (curve->points && points <= DOTS_MAX)
        put_dots(place, curve);
    return LS_OK;
}

/* ---- legend ---------------------------------------------------------------------------------- */

/* One entry, in as many lines as it takes; returns them. file NULL: only counts. */
static int put_entry(FILE *file, const struct ls_curve *curve, const char *text, int y, int width)
{
    int colour = curve->colour % LS_PICTURE_COLOURS;
    if (file && !curve->points)
        fprintf(file, "<path class=\"ls-key ls-s%d\" stroke-dasharray=\"%s\" d=\"M8 %dh26\"/>\n",
                colour, dashes[curve->colour % DASHES], y - 4);
    if (file && curve->points) {
        put_dot(file, colour, curve->rings, 21, y - 4, curve->rings ? 3 : 4);
        fputs("/>\n", file);
    }
    return ls_picture_wrap(file, "ls-text", 8 + SWATCH, y, width - 16 - SWATCH, ROW - 4, text);
}

/* Returns the height. */
static int put_legend(FILE *file, const struct ls_chart *chart, int y, int width)
{
    int begin = y;
    size_t missing = 0;
    for (int p = 0; p < chart->count; p++)
        for (int c = 0; c < chart->panels[p].count; c++) {
            const struct ls_curve *curve = &chart->panels[p].curves[c];
            size_t gaps;
            count_points(&chart->panels[p], curve, &gaps);
            missing += gaps;
            if (curve->legend) {
                int lines = put_entry(file, curve, curve->legend, y + 14, width);
                y += lines * (ROW - 4) + 4;
            }
        }
    if (missing) {
        char text[96];
        snprintf(text, sizeof text, "%zu step%s without a finite value, marked at the bottom",
                 missing, missing == 1 ? "" : "s");
        if (file)
            ls_picture_line(file, "ls-gap ls-line", 21, y + 4, 21, y + 14);
        y += ls_picture_wrap(file, "ls-text", 8 + SWATCH, y + 14, width - 16 - SWATCH, ROW - 4,
                             text) *
                 (ROW - 4) +
             4;
    }
    return y - begin;
}

/* Returns the height. */
static int put_title(FILE *file, const struct ls_chart *chart, int width)
{
    return chart->title && *chart->title ? ls_picture_title(file, width, chart->title) : 8;
}

/* ---- the chart ------------------------------------------------------------------------------- */

static int put_panels(const struct ls_chart *chart, const struct drawn_panel *places, int count,
                      struct ls_error *error)
{
    int status = LS_OK;
    for (int p = 0; p < count && !status; p++) {
        ls_scale_axes(places[p].file, &places[p].x, &places[p].y,
                      p == count - 1 ? chart->x_label : NULL, places[p].panel->label);
        for (int c = 0; c < places[p].panel->count && !status; c++)
            status = put_curve(&places[p], &places[p].panel->curves[c], error);
    }
    return status;
}

int ls_chart_draw(const struct ls_chart *chart, FILE *file, struct ls_error *error)
{
    struct drawn_panel places[PANELS_MAX];
    int width = chart->width ? chart->width : WIDTH, count = 0;
    struct ls_scale x = {
        .low = INFINITY, .high = -INFINITY, .whole = chart->x_whole, .log = chart->x_log};
    LS_ASSERT(chart->count <= PANELS_MAX);
    for (int p = 0; p < chart->count; p++) {
        const struct ls_panel *panel = &chart->panels[p];
        struct ls_scale y = {
            .low = INFINITY, .high = -INFINITY, .log = panel->log, .whole = panel->whole};
        y.rounded = !panel->log;
        if (include(panel, &x, &y))
            places[count++] = (struct drawn_panel){.file = file, .panel = panel, .y = y};
    }
    if (count == 0)
        return ls_error_set(error, LS_EDATA, "nothing to draw: not one finite point");
    int title = put_title(NULL, chart, width), y = title + put_legend(NULL, chart, 0, width);
    x.from = LEFT;
    x.to = width - RIGHT;
    ls_scale_fit(&x, width / 130 > 2 ? width / 130 : 2);
    for (int p = 0; p < count; p++) {
        y += LABEL;
        places[p].x = x;
        places[p].y.to = y;
        places[p].y.from = y += places[p].panel->height;
        ls_scale_fit(&places[p].y, places[p].panel->height > 120 ? 6 : 2);
    }
    ls_picture_begin(file, width, y + BOTTOM,
                     chart->alt     ? chart->alt
                     : chart->title ? chart->title
                                    : chart->x_label);
    put_title(file, chart, width);
    put_legend(file, chart, title, width);
    int status = put_panels(chart, places, count, error);
    ls_picture_end(file);
    return status;
}
