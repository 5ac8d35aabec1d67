/* Amounts that add up, as areas one over the other. */
#include <lockstep/trace/picture.h>

#include <math.h>
#include <stdlib.h>

enum {
    WIDTH = 880,
    HEIGHT = 320, /* of the areas */
    LEFT = 68,
    RIGHT = 18,
    TITLE = 22, /* of a line of the title */
    ROW = 20,   /* of a line below the legend */
    LABEL = 38, /* above the areas */
    BOTTOM = 50
};

struct drawing {
    const struct ls_stack *stack;
    FILE *file;
    int width;
    struct ls_scale x, y;
    int64_t *shown; /* [columns]: the moment that each column shows */
    int columns;
};

static double sum_to(const struct ls_stack *stack, int parts, int64_t i)
{
    double sum = 0;
    for (int p = 0; p < parts; p++)
        sum += stack->parts[p].values[i];
    return sum;
}

static int64_t highest(const struct ls_stack *stack, int64_t from, int64_t to)
{
    int64_t best = from;
    for (int64_t i = from; i < to; i++)
        if (sum_to(stack, stack->part_count, i) > sum_to(stack, stack->part_count, best))
            best = i;
    return best;
}

static int columns_make(struct drawing *d, struct ls_error *error)
{
    d->columns = (int)ls_min(d->stack->count, d->width - LEFT - RIGHT);
    d->shown = calloc((size_t)d->columns, sizeof *d->shown);
    if (!d->shown)
        return ls_error_set(error, LS_ENOMEM, "no memory for a picture of %ld moments",
                            (long)d->stack->count);
    for (int c = 0; c < d->columns; c++)
        d->shown[c] = highest(d->stack, d->stack->count * c / d->columns,
                              d->stack->count * (c + 1) / d->columns);
    return LS_OK;
}

/* ---- areas ----------------------------------------------------------------------------------- */

static void put_point(const struct drawing *d, char command, double x, double y)
{
    fputc(command, d->file);
    ls_picture_number(d->file, x);
    fputc(' ', d->file);
    ls_picture_number(d->file, ls_scale_place(&d->y, y));
}

/* The upper edge of the first `parts` parts, forwards, or backwards as the lower edge of the next
 * one: a step for each column. */
static void put_edge(const struct drawing *d, int parts, bool back)
{
    double step = (d->x.to - d->x.from) / d->columns;
    for (int i = 0; i < d->columns; i++) {
        int c = back ? d->columns - 1 - i : i;
        double y = sum_to(d->stack, parts, d->shown[c]), left = d->x.from + step * c;
        put_point(d, i == 0 && !back ? 'M' : 'L', back ? left + step : left, y);
        put_point(d, 'L', back ? left : left + step, y);
    }
}

static void put_areas(const struct drawing *d)
{
    for (int p = 0; p < d->stack->part_count; p++) {
        fprintf(d->file, "<path class=\"ls-f%d\" d=\"", p % LS_PICTURE_COLOURS);
        put_edge(d, p + 1, false);
        put_edge(d, p, true);
        fputs("Z\"><title>", d->file);
        ls_picture_xml(d->file, d->stack->parts[p].legend);
        fputs("</title></path>\n", d->file);
    }
}

/* ---- around them ----------------------------------------------------------------------------- */

static void put_marks(const struct drawing *d)
{
    const struct ls_stack *stack = d->stack;
    if (stack->limit > 0) {
        double at = ls_scale_place(&d->y, stack->limit);
        ls_picture_line(d->file, "ls-gap ls-line", d->x.from, at, d->x.to, at);
        ls_picture_text(d->file, "ls-text", d->x.to, at - 6, "end", "", stack->limit_text);
    }
    if (stack->marked >= 0) {
        double at = ls_scale_place(&d->x, (double)stack->marked + 0.5);
        ls_picture_line(d->file, "ls-line", at, d->y.to, at, d->y.from);
    }
}

/* Entries side by side while they fit; the marked moment in a line of its own. Returns the height;
 * file NULL: only that. */
static int put_legend(const struct drawing *d, FILE *file, int top)
{
    const struct ls_stack *stack = d->stack;
    struct ls_legend legend = {
        .file = file, .left = 8, .right = d->width, .x = 8, .y = (double)top + 2};
    for (int p = stack->part_count - 1; p >= 0; p--) {
        char classes[16];
        snprintf(classes, sizeof classes, "ls-f%d", p % LS_PICTURE_COLOURS);
        ls_legend_add(&legend, classes, stack->parts[p].legend);
    }
    int y = (int)legend.y - 2 + LS_LEGEND_ROW;
    if (stack->marked >= 0)
        y += ROW * ls_picture_wrap(file, "ls-text", 8, y + 14, d->width - 16, ROW - 4,
                                   stack->marked_text);
    return y - top;
}

static int put_title(const struct drawing *d, FILE *file)
{
    return 14 + TITLE * ls_picture_wrap(file, "ls-title", 8, 26, (d->width - 16) * 13 / 17.0, TITLE,
                                        d->stack->title);
}

int ls_stack_draw(const struct ls_stack *stack, FILE *file, struct ls_error *error)
{
    struct drawing d = {.stack = stack, .file = file, .width = stack->width ? stack->width : WIDTH};
    LS_ASSERT(stack->count >= 1 && stack->part_count <= LS_PICTURE_COLOURS);
    int status = columns_make(&d, error);
    if (status)
        return status;
    int title = put_title(&d, NULL), top = title + put_legend(&d, NULL, 0) + LABEL;
    double most = sum_to(stack, stack->part_count, highest(stack, 0, stack->count));
    d.x = (struct ls_scale){
        .high = (double)stack->count, .from = LEFT, .to = d.width - RIGHT, .whole = true};
    d.y = (struct ls_scale){
        .high = fmax(most, stack->limit), .from = top + HEIGHT, .to = top, .rounded = true};
    ls_scale_fit(&d.x, d.width / 130 > 2 ? d.width / 130 : 2);
    ls_scale_fit(&d.y, 6);
    ls_picture_begin(file, d.width, top + HEIGHT + BOTTOM, stack->title);
    put_title(&d, file);
    put_legend(&d, file, title);
    ls_scale_axes(file, &d.x, &d.y, stack->x_label, stack->y_label);
    put_areas(&d);
    put_marks(&d);
    ls_picture_end(file);
    free(d.shown);
    return LS_OK;
}
