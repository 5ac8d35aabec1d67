/* Bars of amounts that add up, one below the other, with names: the pictures of lessons. */
#include "lesson_private.h"

#include <lockstep/trace/picture.h>

#include <math.h>

enum { WIDTH = 880, LEFT = 300, RIGHT = 120, TOP = 66, ROW = 30, BAR = 20, BOTTOM = 52 };

static double sum_of(const struct lesson_bars *bars, int i)
{
    double sum = 0;
    for (int part = 0; part < bars->part_count; part++)
        sum += bars->bar[i].parts[part];
    return sum;
}

/* Whether the part is wide enough to be seen. */
static bool is_drawn(const struct lesson_bars *bars, int i, int part, const struct ls_scale *x)
{
    return ls_scale_place(x, bars->bar[i].parts[part]) - x->from > 0.05;
}

/* Of the parts that some bar has. */
static void legend_draw(const struct lesson_bars *bars, const struct ls_scale *x, FILE *file)
{
    struct ls_legend legend = {.file = file, .left = 18, .right = WIDTH, .x = 18, .y = 36};
    for (int part = 0; part < bars->part_count; part++) {
        char classes[16];
        bool drawn = false;
        for (int i = 0; i < bars->count && !drawn; i++)
            drawn = is_drawn(bars, i, part, x);
        snprintf(classes, sizeof classes, "ls-f%d", part);
        if (drawn)
            ls_legend_add(&legend, classes, bars->legends[part]);
    }
}

static void grid_draw(const struct lesson_bars *bars, const struct ls_scale *x, FILE *file)
{
    double low = TOP + bars->count * ROW;
    for (int t = 0; t < x->ticks; t++) {
        double place = ls_scale_place(x, x->tick[t]);
        ls_picture_line(file, "ls-grid", place, TOP - 4, place, low);
        ls_picture_text(file, "ls-soft", place, low + 17, "middle", "",
                        ls_scale_label(x, x->tick[t]).text);
    }
    ls_picture_text(file, "ls-soft", (x->from + x->to) / 2, low + 37, "middle", "", bars->axis);
}

static void bar_draw(const struct lesson_bars *bars, int i, const struct ls_scale *x, FILE *file)
{
    const struct lesson_bar *bar = &bars->bar[i];
    double y = TOP + i * ROW + (ROW - BAR) / 2, before = 0;
    ls_picture_text(file, "ls-text", LEFT - 10, y + 15, "end", "", bar->label);
    for (int part = 0; part < bars->part_count; part++) {
        char classes[16], tip[128];
        double from = ls_scale_place(x, before);
        double to = ls_scale_place(x, before + bar->parts[part]);
        before += bar->parts[part];
        snprintf(classes, sizeof classes, "ls-f%d", part);
        snprintf(tip, sizeof tip, "%s: %.3g", bars->legends[part], bar->parts[part]);
        if (is_drawn(bars, i, part, x))
            ls_picture_rect(file, classes, from, y, to - from, BAR, tip);
    }
    ls_picture_text(file, "ls-text ls-halo", ls_scale_place(x, before) + 6, y + 15, "start", "",
                    bar->note);
}

void lesson_bars_draw(const struct lesson_bars *bars, FILE *file)
{
    struct ls_scale x = {.low = 0, .high = bars->limit, .from = LEFT, .to = WIDTH - RIGHT};
    if (!file)
        return;
    for (int i = 0; i < bars->count; i++)
        x.high = fmax(x.high, sum_of(bars, i));
    ls_scale_fit(&x, 6);
    int height = TOP + bars->count * ROW + BOTTOM;
    ls_picture_begin(file, WIDTH, height, bars->title);
    ls_picture_text(file, "ls-title", 18, 24, "start", "", bars->title);
    legend_draw(bars, &x, file);
    grid_draw(bars, &x, file);
    for (int i = 0; i < bars->count; i++)
        bar_draw(bars, i, &x, file);
    if (bars->limit > 0) {
        double place = ls_scale_place(&x, bars->limit);
        ls_picture_line(file, "ls-line", place, TOP - 4, place, height - BOTTOM);
        ls_picture_text(file, "ls-soft", place + 4, TOP - 4, "start", "", bars->limit_text);
    }
    ls_picture_end(file);
}
