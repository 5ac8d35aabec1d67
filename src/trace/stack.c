/* Amounts that add up, as areas one over the other. */
#include <lockstep/trace/picture.h>

#include <math.h>
#include <stdlib.h>

enum {
    WIDTH = 880,
    HEIGHT = 320, /* of the areas */
    LEFT = 68,
    RIGHT = LS_AXES_RIGHT,
    LABEL = 38, /* above the areas */
    DIP = 6,    /* half the width of what is too narrow to be drawn */
    BOTTOM = 68
};

struct drawing {
    const struct ls_stack *stack;
    FILE *file;
    int width;
    struct ls_scale x, y;
    int64_t *shown, *lowest; /* [columns]: the moments with most and with least near each */
    int columns;
    double most; /* of all, at any moment */
};

static double sum_to(const struct ls_stack *stack, int parts, int64_t i)
{
    double sum = 0;
    for (int p = 0; p < parts; p++)
        sum += stack->parts[p].values[i];
    return sum;
}

static double whole(const struct ls_stack *stack, int64_t i)
{
    return sum_to(stack, stack->part_count, i);
}

/* The moment with most in all, or with sign -1 the one with least. */
static int64_t extreme(const struct ls_stack *stack, int64_t from, int64_t to, int sign)
{
    int64_t best = from;
    for (int64_t i = from; i < to; i++)
        best = sign * (whole(stack, i) - whole(stack, best)) > 0 ? i : best;
    return best;
}

/* Each column takes the extreme of those at most `reach` columns away. */
static void spread(const struct drawing *d, const int64_t *from, int64_t *to, int sign)
{
    int reach = (int)lround((double)DIP * d->columns / (d->width - LEFT - RIGHT));
    for (int c = 0; c < d->columns; c++) {
        to[c] = from[c];
        for (int n = c > reach ? c - reach : 0; n <= c + reach && n < d->columns; n++)
            if (sign * (whole(d->stack, from[n]) - whole(d->stack, to[c])) > 0)
                to[c] = from[n];
    }
}

/* The extreme of each column; then spread out and drawn in again: it fills what is narrow, and
 * leaves the extreme of all where it is. */
static void envelope(const struct drawing *d, int64_t *moments, int64_t *spare, int sign)
{
    int64_t count = d->stack->count;
    for (int c = 0; c < d->columns; c++)
        moments[c] = extreme(d->stack, count * c / d->columns, count * (c + 1) / d->columns, sign);
    spread(d, moments, spare, sign);
    spread(d, spare, moments, -sign);
}

static int columns_make(struct drawing *d, struct ls_error *error)
{
    d->columns = (int)ls_min(d->stack->count, d->width - LEFT - RIGHT);
    d->shown = calloc((size_t)d->columns * 3, sizeof *d->shown);
    if (!d->shown)
        return ls_no_memory(error, "for a picture of %ld moments", (long)d->stack->count);
    d->lowest = d->shown + d->columns;
    envelope(d, d->shown, d->lowest + d->columns, 1);
    envelope(d, d->lowest, d->lowest + d->columns, -1);
    d->most = whole(d->stack, extreme(d->stack, 0, d->stack->count, 1));
    return LS_OK;
}

/* Whether a part is half a unit high in some column. */
static bool is_drawn(const struct drawing *d, int part)
{
    for (int c = 0; c < d->columns; c++)
        if (d->stack->parts[part].values[d->shown[c]] * 2 * HEIGHT > d->most)
            return true;
    return false;
}

/* ---- areas ----------------------------------------------------------------------------------- */

static void put_point(const struct drawing *d, char command, double x, double y)
{
    fputc(command, d->file);
    ls_picture_number(d->file, x);
    fputc(' ', d->file);
    ls_picture_number(d->file, ls_scale_place(&d->y, y));
}

/* The upper edge of the first `parts` parts at the moments of all columns, forwards, or backwards
 * as the lower edge of what is above: a step for each column. */
static void put_edge(const struct drawing *d, const int64_t *moments, int parts, bool back)
{
    double step = (d->x.to - d->x.from) / d->columns;
    for (int i = 0; i < d->columns; i++) {
        int c = back ? d->columns - 1 - i : i;
        double y = sum_to(d->stack, parts, moments[c]), left = d->x.from + step * c;
        put_point(d, i == 0 && !back ? 'M' : 'L', back ? left + step : left, y);
        put_point(d, 'L', back ? left : left + step, y);
    }
}

static void put_areas(const struct drawing *d)
{
    for (int p = 0; p < d->stack->part_count; p++) {
        if (!is_drawn(d, p))
            continue;
        fprintf(d->file, "<path class=\"ls-f%d\" d=\"", p);
        put_edge(d, d->shown, p + 1, false);
        put_edge(d, d->shown, p, true);
        fputs("Z\"><title>", d->file);
        ls_picture_xml(d->file, d->stack->parts[p].legend);
        fputs("</title></path>\n", d->file);
    }
}

/* Over what comes and goes; nothing if that is less than half a unit high. */
static void put_veil(const struct drawing *d)
{
    double widest = 0;
    for (int c = 0; c < d->columns; c++)
        widest = fmax(widest, whole(d->stack, d->shown[c]) - whole(d->stack, d->lowest[c]));
    if (widest * 2 * HEIGHT < d->most)
        return;
    fputs("<path class=\"ls-veil\" d=\"", d->file);
    put_edge(d, d->shown, d->stack->part_count, false);
    put_edge(d, d->lowest, d->stack->part_count, true);
    fputs("Z\"/>\n", d->file);
    ls_picture_text(d->file, "ls-soft", (d->x.from + d->x.to) / 2, d->y.from + 58, "middle",
                    "faint: comes and goes");
}

/* ---- around them ----------------------------------------------------------------------------- */

/* The limit's text lies over the marked line. */
static void put_marks(const struct drawing *d)
{
    const struct ls_stack *stack = d->stack;
    if (stack->marked >= 0) {
        double at = ls_scale_place(&d->x, (double)stack->marked + 0.5);
        ls_picture_line(d->file, "ls-line", at, d->y.to, at, d->y.from);
    }
    if (stack->limit > 0) {
        double at = ls_scale_place(&d->y, stack->limit);
        ls_picture_line(d->file, "ls-gap ls-line", d->x.from, at, d->x.to, at);
        ls_picture_text(d->file, "ls-text ls-halo", d->x.to, at - 6, "end", "%s",
                        stack->limit_text);
    }
}

/* The marked moment, and what is drawn. Returns the height; file NULL: only that. */
static int put_legend(const struct drawing *d, FILE *file, int top)
{
    const struct ls_stack *stack = d->stack;
    int y = top;
    if (stack->marked >= 0)
        y += (LS_LEGEND_ROW - 4) * ls_picture_wrap(file, "ls-text", 8, y + 14, d->width - 16,
                                                   LS_LEGEND_ROW - 4, stack->marked_text) +
             4;
    struct ls_legend legend = {
        .file = file, .left = 8, .right = d->width, .x = 8, .y = (double)y + 2};
    for (int p = stack->part_count - 1; p >= 0; p--)
        if (is_drawn(d, p))
            ls_legend_add(&legend, ls_picture_class("ls-f", p).text, stack->parts[p].legend);
    return (int)legend.y - 2 + LS_LEGEND_ROW - top;
}

int ls_stack_draw(const struct ls_stack *stack, FILE *file, struct ls_error *error)
{
    struct drawing d = {.stack = stack, .file = file, .width = stack->width ? stack->width : WIDTH};
    LS_ASSERT(stack->count >= 1 && stack->part_count <= LS_PICTURE_COLOURS);
    int status = columns_make(&d, error);
    if (status)
        return status;
    int title = ls_picture_title(NULL, d.width, stack->title),
        top = title + put_legend(&d, NULL, 0) + LABEL;
    d.x = (struct ls_scale){
        .high = (double)stack->count, .from = LEFT, .to = d.width - RIGHT, .whole = true};
    d.y = (struct ls_scale){
        .high = fmax(d.most, stack->limit), .from = top + HEIGHT, .to = top, .rounded = true};
    ls_scale_fit(&d.x, d.width / 130 > 2 ? d.width / 130 : 2);
    ls_scale_fit(&d.y, 6);
    ls_picture_begin(file, d.width, top + HEIGHT + BOTTOM, stack->title);
    ls_picture_title(file, d.width, stack->title);
    put_legend(&d, file, title);
    ls_scale_axes(file, &d.x, &d.y, stack->x_label, stack->y_label);
    put_areas(&d);
    put_veil(&d);
    put_marks(&d);
    ls_picture_end(file);
    free(d.shown);
    return LS_OK;
}
