/* The loss of a run as SVG 1.1: no scripts, no fonts of its own. */
#include <lockstep/trace.h>

#include <lockstep/base/file.h>

#include "text.h"

#include <math.h>
#include <string.h>

enum {
    WIDTH = 880,
    HEIGHT = 500,
    LEFT = 72,
    RIGHT = 24,
    TOP = 52,
    BOTTOM = 58,
    TICKS_WANTED = 6,
};
#define TRAIN_COLOUR      "#1f6fb4"
#define VALIDATION_COLOUR "#d1495b"

/* A data range on a pixel range. */
struct axis {
    double low, high;
    double pixel_low, pixel_high;
    double tick; /* distance of ticks */
};

static double axis_pixel(const struct axis *axis, double value)
{
    return axis->pixel_low +
           (value - axis->low) / (axis->high - axis->low) * (axis->pixel_high - axis->pixel_low);
}

/* 1, 2 or 5 times a power of ten, so that about `wanted` of them span the range. */
static double nice_tick(double range, int wanted)
{
    double raw = range / wanted;
    double power = pow(10, floor(log10(raw)));
    double lead = raw / power;
    return power * (lead < 1.5 ? 1 : lead < 3.5 ? 2 : lead < 7.5 ? 5 : 10);
}

/* Widens [low, high] so that it is no single point, and with `whole` to whole ticks. */
static void axis_fit(struct axis *axis, bool whole)
{
    if (!(axis->high > axis->low)) {
        double margin = axis->low == 0 ? 1 : fabs(axis->low) * 0.1;
        axis->low -= margin;
        axis->high += margin;
    }
    axis->tick = nice_tick(axis->high - axis->low, TICKS_WANTED);
    if (whole) {
        axis->low = floor(axis->low / axis->tick) * axis->tick;
        axis->high = ceil(axis->high / axis->tick) * axis->tick;
    }
}

static bool is_point(const struct ls_series *series, size_t i)
{
    return isfinite(series->x[i]) && isfinite(series->y[i]);
}

static void axes_include(struct axis *x, struct axis *y, const struct ls_series *series)
{
    for (size_t i = 0; i < series->count; i++) {
        if (!is_point(series, i))
            continue;
        x->low = fmin(x->low, series->x[i]);
        x->high = fmax(x->high, series->x[i]);
        y->low = fmin(y->low, series->y[i]);
        y->high = fmax(y->high, series->y[i]);
    }
}

static void put(struct ls_atomic_file *file, const struct trace_text *text)
{
    LS_ASSERT(!text->overflow);
    ls_atomic_file_write(file, text->data, text->used);
}

/* Text at a place; anchor is start, middle or end. */
static void put_label(struct ls_atomic_file *file, double x, double y, const char *anchor,
                      const char *attributes, const char *label)
{
    char buffer[2048];
    struct trace_text text = {.data = buffer, .size = sizeof buffer};
    char shown[256]; /* long titles are cut; a torn last character becomes U+FFFD */
    snprintf(shown, sizeof shown, "%s", label);
    trace_text_printf(&text, "<text x=\"%d\" y=\"%d\" text-anchor=\"%s\"%s>", (int)lround(x),
                      (int)lround(y), anchor, attributes);
    trace_text_xml(&text, shown);
    trace_text_put(&text, "</text>\n");
    put(file, &text);
}

static void put_line(struct ls_atomic_file *file, double x1, double y1, double x2, double y2,
                     const char *colour)
{
    char buffer[256];
    struct trace_text text = {.data = buffer, .size = sizeof buffer};
    trace_text_printf(&text, "<path d=\"M%d.5 %d.5L%d.5 %d.5\" stroke=\"%s\"/>\n", (int)lround(x1),
                      (int)lround(y1), (int)lround(x2), (int)lround(y2), colour);
    put(file, &text);
}

/* 1500 -> "1,500"; 0.25 -> "0.25". */
static void tick_label(char out[64], double value, double tick)
{
    int decimals = tick >= 1 ? 0 : (int)ceil(-log10(tick) - 1e-9);
    if (decimals > 9 || fabs(value) >= 1e9) {
        snprintf(out, 64, "%.3g", value);
        return;
    }
    char plain[48];
    snprintf(plain, sizeof plain, "%.*f", decimals, fabs(value) < tick / 2 ? 0.0 : value);
    size_t whole = strspn(plain, "-0123456789"), used = 0;
    for (size_t i = 0; plain[i]; i++) {
        if (i > 0 && i < whole && (whole - i) % 3 == 0 && plain[i - 1] != '-')
            out[used++] = ',';
        out[used++] = plain[i] == ',' ? '.' : plain[i];
    }
    out[used] = '\0';
}

static void put_axes(struct ls_atomic_file *file, const struct axis *x, const struct axis *y)
{
    char label[64];
    for (double i = ceil(y->low / y->tick - 1e-9); i * y->tick <= y->high + y->tick * 1e-6; i++) {
        double at = axis_pixel(y, i * y->tick);
        put_line(file, x->pixel_low, at, x->pixel_high, at, "#e3e6ea");
        tick_label(label, i * y->tick, y->tick);
        put_label(file, x->pixel_low - 10, at + 4, "end", "", label);
    }
    for (double i = ceil(x->low / x->tick - 1e-9); i * x->tick <= x->high + x->tick * 1e-6; i++) {
        double at = axis_pixel(x, i * x->tick);
        put_line(file, at, y->pixel_low, at, y->pixel_low + 5, "#7b8794");
        tick_label(label, i * x->tick, x->tick);
        put_label(file, at, y->pixel_low + 21, "middle", "", label);
    }
    put_line(file, x->pixel_low, y->pixel_low, x->pixel_high, y->pixel_low, "#7b8794");
    put_label(file, (x->pixel_low + x->pixel_high) / 2, HEIGHT - 14, "middle", "", "step");
    char rotate[64];
    int middle = (int)(y->pixel_low + y->pixel_high) / 2;
    snprintf(rotate, sizeof rotate, " transform=\"rotate(-90 20 %d)\"", middle);
    put_label(file, 20, middle, "middle", rotate, "loss (nats per token)");
}

/* One vertex of a path, in tenths of a unit. */
static void put_vertex(struct ls_atomic_file *file, const struct axis *x, const struct axis *y,
                       double step, double loss, bool first)
{
    char buffer[64];
    struct trace_text text = {.data = buffer, .size = sizeof buffer};
    trace_text_put(&text, first ? "M" : "L");
    trace_text_number(&text, round(axis_pixel(x, step) * 10) / 10, 6);
    trace_text_put(&text, " ");
    trace_text_number(&text, round(axis_pixel(y, loss) * 10) / 10, 6);
    trace_text_put(&text, "\n");
    put(file, &text);
}

/* The series as a line: of the points that share a pixel column, the lowest and the highest, in
 * their order. */
static void put_series(struct ls_atomic_file *file, const struct axis *x, const struct axis *y,
                       const struct ls_series *series, const char *colour, const char *stroke_width)
{
    ls_atomic_file_printf(file,
                          "<path fill=\"none\" stroke=\"%s\" stroke-width=\"%s\" "
                          "stroke-linejoin=\"round\" d=\"",
                          colour, stroke_width);
    bool first = true;
    for (size_t i = 0; i < series->count;) {
        if (!is_point(series, i)) {
            i++;
            continue;
        }
        double column = floor(axis_pixel(x, series->x[i]));
        size_t low = i, high = i, next = i + 1;
        for (; next < series->count &&
               (!is_point(series, next) || floor(axis_pixel(x, series->x[next])) == column);
             next++) {
            if (!is_point(series, next))
                continue;
            low = series->y[next] < series->y[low] ? next : low;
            high = series->y[next] > series->y[high] ? next : high;
        }
        size_t a = low < high ? low : high, b = low < high ? high : low;
        put_vertex(file, x, y, series->x[a], series->y[a], first);
        if (b != a)
            put_vertex(file, x, y, series->x[b], series->y[b], false);
        first = false;
        i = next;
    }
    ls_atomic_file_printf(file, "\"/>\n");
}

static void put_points(struct ls_atomic_file *file, const struct axis *x, const struct axis *y,
                       const struct ls_series *series, const char *colour)
{
    for (size_t i = 0; i < series->count; i++)
        if (is_point(series, i))
            ls_atomic_file_printf(file,
                                  "<circle cx=\"%d\" cy=\"%d\" r=\"4\" fill=\"%s\" "
                                  "stroke=\"#ffffff\"/>\n",
                                  (int)lround(axis_pixel(x, series->x[i])),
                                  (int)lround(axis_pixel(y, series->y[i])), colour);
}

/* The last finite loss in the legend's words. */
static void put_legend(struct ls_atomic_file *file, int row, const char *name, const char *colour,
                       const struct ls_series *series)
{
    size_t last = series->count;
    while (last > 0 && !is_point(series, last - 1))
        last--;
    if (last == 0)
        return;
    char label[128];
    snprintf(label, sizeof label, "%s: %.3f at step %.0f", name, series->y[last - 1],
             series->x[last - 1]);
    int y = TOP + 18 + 20 * row;
    ls_atomic_file_printf(
        file, "<rect x=\"%d\" y=\"%d\" width=\"240\" height=\"20\" fill=\"#ffffff\"/>\n",
        WIDTH - RIGHT - 240, y - 14);
    ls_atomic_file_printf(file, "<path d=\"M%d %dh26\" stroke=\"%s\" stroke-width=\"3\"/>\n",
                          WIDTH - RIGHT - 240, y - 4, colour);
    put_label(file, WIDTH - RIGHT - 206, y, "start", "", label);
}

int ls_plot_loss(const char *path, const struct ls_loss_plot *plot, struct ls_error *error)
{
    struct axis x = {INFINITY, -INFINITY, LEFT, WIDTH - RIGHT, 0};
    struct axis y = {INFINITY, -INFINITY, HEIGHT - BOTTOM, TOP, 0};
    axes_include(&x, &y, &plot->train);
    axes_include(&x, &y, &plot->validation);
    if (!(x.low <= x.high))
        return ls_error_set(error, LS_EDATA, "%s: nothing to draw: not one finite loss", path);
    axis_fit(&x, false);
    axis_fit(&y, true);
    struct ls_atomic_file file;
    int code = ls_atomic_file_open(&file, path, NULL, error);
    if (code)
        return code;
    ls_atomic_file_printf(&file,
                          "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
                          "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
                          "viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"13\" "
                          "fill=\"#36404a\">\n"
                          "<rect width=\"%d\" height=\"%d\" fill=\"#ffffff\"/>\n",
                          WIDTH, HEIGHT, WIDTH, HEIGHT, WIDTH, HEIGHT);
    put_label(&file, LEFT, 30, "start", " font-size=\"17\" font-weight=\"bold\"", plot->title);
    put_axes(&file, &x, &y);
    put_series(&file, &x, &y, &plot->train, TRAIN_COLOUR, "1.5");
    put_series(&file, &x, &y, &plot->validation, VALIDATION_COLOUR, "2");
    put_points(&file, &x, &y, &plot->validation, VALIDATION_COLOUR);
    put_legend(&file, 0, "train", TRAIN_COLOUR, &plot->train);
    put_legend(&file, 1, "validation", VALIDATION_COLOUR, &plot->validation);
    ls_atomic_file_printf(&file, "</svg>\n");
    return ls_atomic_file_commit(&file, error);
}
