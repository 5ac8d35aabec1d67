/* lockstep/trace/picture.h - pictures as SVG: what drawings of curves and of schedules share.
 *
 *   FILE *file                                    any open FILE: alone, or within an HTML page
 *   ls_picture_begin(file, width, height, "title")
 *   ls_picture_rect, _text, _line ...             by class: one set of colours for light and dark
 *   ls_picture_end(file)
 *   or, for a file of its own: ls_file_write(path, draw, context, error)
 *
 *   ls_chart_draw                                 curves over one axis, in panels below each other
 *   ls_stack_draw                                 amounts that add up, over a row of moments
 *
 * A picture is one <svg> element without scripts, fonts or addresses. It has its own background and
 * follows the reader's choice of light or dark. It shrinks with the page; for a narrow one draw it
 * again with a smaller width, and text keeps its size. All lengths are in its units. Writing fails
 * as FILEs do: check ferror or fclose at the end.
 *
 * Classes: ls-text, ls-soft (less important text), ls-title, ls-halo (of text over lines), ls-back,
 * ls-grid, ls-line (of an axis), and for curve i of LS_PICTURE_COLOURS ls-s<i> (its stroke) and
 * ls-f<i> (its fill). Fills of what a pipeline does, the same in light and dark: ls-a<i><odd>, of
 * forward (0), the backward's input half (1), its weight half (2), backward (3); odd: darker.
 *
 * Everything here is Local. */
#ifndef LOCKSTEP_TRACE_PICTURE_H
#define LOCKSTEP_TRACE_PICTURE_H

#include <lockstep/trace.h>

LS_C_BEGIN

/* Colours that color-blind readers tell apart; curves after the last begin again, with other
 * dashes. */
enum { LS_PICTURE_COLOURS = 6 };

void ls_picture_begin(FILE *file, int width, int height, const char *title);
void ls_picture_end(FILE *file);
/* Text with what XML reserves escaped. */
void ls_picture_xml(FILE *file, const char *text);
/* To a tenth of a unit, with a point in every locale. */
void ls_picture_number(FILE *file, double value);
/* anchor: start, middle or end. Less than 512 bytes of text. */
void ls_picture_text(FILE *file, const char *classes, double x, double y, const char *anchor,
                     const char *format, ...) __attribute__((format(printf, 6, 7)));
/* The text in lines of at most width units, by an estimate of its letters, `leading` apart; returns
 * how many. file NULL: only counts. */
int ls_picture_wrap(FILE *file, const char *classes, double x, double y, double width, int leading,
                    const char *text);
/* The picture's title, in lines; returns where what follows begins. file NULL: only that. */
int ls_picture_title(FILE *file, int width, const char *title);
/* "ls-f3" of ls-f and 3. */
struct ls_picture_class {
    char text[16];
};
struct ls_picture_class ls_picture_class(const char *of, int number);
/* Units that the text takes at 13 units a line, by the same estimate. */
double ls_picture_text_width(const char *text);
void ls_picture_line(FILE *file, const char *classes, double x1, double y1, double x2, double y2);
/* tip: what the reader sees who points at it, or NULL. */
void ls_picture_rect(FILE *file, const char *classes, double x, double y, double width,
                     double height, const char *tip);

/* Swatches with their names, side by side from x on while they end before right, then in a next row
 * from left on, of LS_LEGEND_ROW units. file NULL: only moves on. */
enum { LS_LEGEND_ROW = 20 };
struct ls_legend {
    FILE *file;
    double left, right, x, y;
};
void ls_legend_add(struct ls_legend *legend, const char *classes, const char *text);

/* ---- scales ---------------------------------------------------------------------------------- */

enum { LS_TICKS_MAX = 32 };

/* A range of values on a range of units. Set low and high (of the data), from and to, and what
 * follows them; ls_scale_fit does the rest. */
struct ls_scale {
    double low, high;
    double from, to; /* where low and high lie */
    bool log;        /* low > 0 */
    bool whole;      /* of whole numbers: ticks are, too; with log they are powers of two */
    bool rounded;    /* ends at ticks */
    double step;     /* between ticks; 0: 1, 2, 5, 10 and so on */
    double tick[LS_TICKS_MAX];
    int ticks;
};
void ls_scale_fit(struct ls_scale *scale, int ticks_wanted);
double ls_scale_place(const struct ls_scale *scale, double value);
struct ls_tick_text {
    char text[64];
};
struct ls_tick_text ls_scale_label(const struct ls_scale *scale, double value);
/* The axis of a fitted scale at height y, with its ticks. label NULL: they have no text. */
void ls_scale_axis(FILE *file, const struct ls_scale *x, double y, const char *label);
/* Both axes and their ticks, of fitted scales. x_label NULL: x has ticks without text. Right of the
 * axes the picture has LS_AXES_RIGHT units at least. */
enum { LS_AXES_RIGHT = 18 };
void ls_scale_axes(FILE *file, const struct ls_scale *x, const struct ls_scale *y,
                   const char *x_label, const char *y_label);

/* ---- charts ---------------------------------------------------------------------------------- */

/* One curve. Points whose y is not finite (with a logarithmic scale: or not above 0) are gaps. x
 * ascends. Long curves are drawn by the lowest and the highest point of each unit of width, so that
 * a picture's size is bounded. */
struct ls_curve {
    const char *legend; /* NULL: none */
    struct ls_series series;
    int colour;  /* 0 ... */
    bool smooth; /* the points faint, a line of neighbours' means over them; ls_smooth_window */
    bool points; /* a dot on each, while they are few */
    bool rings;  /* a larger ring in place of the dot: over one of another curve both are seen */
    bool gaps;   /* marks where points are missing */
};
struct ls_panel {
    const char *label; /* of the axis: "loss (nats per token)" */
    const struct ls_curve *curves;
    int count;
    int height;
    bool log, whole; /* as of a scale */
};
struct ls_chart {
    const char *title, *x_label;
    const char *alt; /* what is read out instead of the picture; NULL: the title */
    const struct ls_panel *panels;
    int count;
    int width;    /* 0: 880; at least 280 */
    bool x_whole; /* x is a number of steps, or of ranks */
    bool x_log;   /* x > 0 */
};
/* LS_EDATA: not one finite point in any panel (a panel without points is left out). LS_ENOMEM. */
int ls_chart_draw(const struct ls_chart *chart, FILE *file, struct ls_error *error);
/* How many neighbouring points a mean of a curve of so many is over: 1 if they are few. */
size_t ls_smooth_window(size_t count);

/* ---- amounts that add up --------------------------------------------------------------------- */

/* Parts of a whole at count moments, one over the other, the first at the bottom. Of the moments
 * that share a unit of width the one with the most in all is drawn, so that the highest is seen.
 * Dips and peaks narrower than 12 units are not drawn one by one: they are a faint band, from the
 * lowest moment near by to the highest. The legend has what is half a unit high somewhere. */
struct ls_stack_part {
    const char *legend;
    const double *values; /* [count] */
};
struct ls_stack {
    const char *title, *x_label, *y_label;
    const struct ls_stack_part *parts;
    int part_count; /* up to LS_PICTURE_COLOURS */
    int64_t count;  /* at least 1 */
    double limit;   /* a line above all; 0: none */
    const char *limit_text;
    int64_t marked;          /* a moment with a line of its own; -1: none */
    const char *marked_text; /* above the legend */
    int width;               /* 0: 880; at least 280 */
};
/* LS_ENOMEM. */
int ls_stack_draw(const struct ls_stack *stack, FILE *file, struct ls_error *error);

/* ---- runs ------------------------------------------------------------------------------------ */

/* What metrics.jsonl says of a run, by step. */
struct ls_run_curves {
    const char *name; /* borrowed */
    struct ls_series loss, lr, validation;
};
/* LS_EDATA: no record has a loss yet. On failure there is nothing to release. */
int ls_run_curves_read(struct ls_run_curves *run, const char *name, const char *metrics_path,
                       struct ls_error *error);
void ls_run_curves_release(struct ls_run_curves *run);

enum { LS_PLOT_RUNS_MAX = 12 };
struct ls_plot {
    const struct ls_run_curves *runs;
    int count; /* 1 to LS_PLOT_RUNS_MAX */
    int width; /* as of a chart */
    bool log;  /* the loss on a logarithmic scale */
};
/* Losses, each step faint and their means over them; validation losses as dots; below them the
 * learning rate. */
int ls_plot_draw(const struct ls_plot *plot, FILE *file, struct ls_error *error);

LS_C_END
#endif
