/* A schedule to look at: as text, one column a slot of time, and as SVG 1.1. */
#include "parallel/schedule_private.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Which ranks are shown: the first `head` and the last `tail`. */
struct rows {
    int head, tail, all;
};

static struct rows rows_of(const struct ls_schedule *schedule, int ranks_max)
{
    int p = schedule->ranks;
    if (ranks_max <= 0 || p <= ranks_max)
        return (struct rows){p, 0, p};
    return (struct rows){ranks_max - ranks_max / 2, ranks_max / 2, p};
}

static int rows_count(struct rows rows)
{
    return rows.head + rows.tail;
}

static int rank_of_row(struct rows rows, int row)
{
    return row < rows.head ? row : rows.all - rows.tail + (row - rows.head);
}

static int times_new(const struct ls_schedule *schedule, const struct ls_schedule_costs *costs,
                     double **start, struct ls_error *error)
{
    *start = malloc((size_t)(schedule->first[schedule->ranks] + 1) * sizeof **start);
    int code = *start ? ls_schedule_times(schedule, costs, *start, error)
                      : ls_error_set(error, LS_ENOMEM, "no memory to draw a schedule");
    return code;
}

/* The last end among the ranks shown. */
static double last_end(const struct ls_schedule *schedule, const struct ls_schedule_costs *costs,
                       const double *start, struct rows rows)
{
    double last = 0;
    for (int row = 0; row < rows_count(rows); row++) {
        int64_t i = schedule->first[rank_of_row(rows, row) + 1] - 1;
        last = fmax(last, start[i] + parallel_action_cost(costs, schedule->actions[i]));
    }
    return last;
}

static int written(FILE *file, struct ls_error *error)
{
    return fflush(file) || ferror(file) ? ls_error_errno(error, errno, "cannot draw the schedule")
                                        : LS_OK;
}

/* ---- text ----------------------------------------------------------------------------------- */

/* Time in slots. */
struct grid {
    const struct ls_schedule *schedule;
    const struct ls_schedule_costs *costs;
    const double *start;
    struct rows rows;
    double unit;   /* of time, a slot */
    int width;     /* characters of a slot */
    int64_t slots; /* in all */
    char *line;    /* [slots * width] of one rank */
};

enum { SLOTS_MAX = 1 << 20 };

/* The least cost that is not 0. */
static double least_cost(const struct ls_schedule *schedule, const struct ls_schedule_costs *costs)
{
    double least = INFINITY;
    for (int s = 0; s < (costs->stage ? schedule->stages : 1); s++) {
        const struct ls_stage_cost *cost = costs->stage ? &costs->stage[s] : &costs->all;
        const double each[] = {cost->forward, cost->input, cost->weight};
        for (int k = 0; k < 3; k++)
            least = each[k] > 0 ? fmin(least, each[k]) : least;
    }
    return isfinite(least) ? least : 1;
}

static int label_width(const struct ls_schedule *schedule)
{
    struct ls_action widest = {schedule->stages - 1, (int32_t)schedule->micro_batches - 1, 0};
    return (int)strlen(ls_action_text(widest).text);
}

/* "0F3" at its beginning; dashes fill what it takes longer. Actions that cost nothing take a slot
 * too, which moves what follows to the right. Returns the slots used. */
static int64_t fill_line(const struct grid *grid, int rank)
{
    int64_t count, bytes = grid->slots * grid->width, free_from = 0;
    const struct ls_action *actions = ls_schedule_actions(grid->schedule, rank, &count);
    memset(grid->line, ' ', (size_t)bytes);
    for (int64_t i = 0; i < count; i++) {
        double start = grid->start[grid->schedule->first[rank] + i] / grid->unit;
        double cost = parallel_action_cost(grid->costs, actions[i]) / grid->unit;
        int64_t from = ls_max(llround(start), free_from);
        int64_t to = ls_min(ls_max(llround(start + cost), from + 1), grid->slots);
        if (from >= to)
            break;
        struct ls_action_text text = ls_action_text(actions[i]);
        int64_t length = (int64_t)strlen(text.text);
        memset(grid->line + from * grid->width, '-', (size_t)((to - from) * grid->width - 1));
        memset(grid->line + from * grid->width, ' ', (size_t)grid->width);
        memcpy(grid->line + from * grid->width, text.text, (size_t)length);
        free_from = to;
    }
    return free_from;
}

static void print_part(const struct grid *grid, int64_t from, int64_t slots, FILE *file)
{
    for (int row = 0; row < rows_count(grid->rows); row++) {
        int rank = rank_of_row(grid->rows, row);
        fill_line(grid, rank);
        int64_t bytes = slots * grid->width;
        const char *line = grid->line + from * grid->width;
        while (bytes > 0 && line[bytes - 1] == ' ')
            bytes--;
        if (row == grid->rows.head)
            fputs("      ...\n", file);
        fprintf(file, "%6d | %.*s\n", rank, (int)bytes, line);
    }
}

int ls_schedule_print(const struct ls_schedule *schedule, const struct ls_schedule_costs *costs,
                      int ranks_max, int columns, FILE *file, struct ls_error *error)
{
    struct grid grid = {.schedule = schedule,
                        .costs = costs,
                        .rows = rows_of(schedule, ranks_max),
                        .unit = least_cost(schedule, costs),
                        .width = label_width(schedule) + 1};
    double *start;
    int code = times_new(schedule, costs, &start, error);
    if (code == LS_OK) {
        grid.start = start;
        double end = last_end(schedule, costs, start, grid.rows) / grid.unit;
        int64_t longest = 0;
        for (int row = 0; row < rows_count(grid.rows); row++) {
            int rank = rank_of_row(grid.rows, row);
            longest = ls_max(longest, schedule->first[rank + 1] - schedule->first[rank]);
        }
        grid.slots = (int64_t)fmin(end, SLOTS_MAX) + longest + 1;
        grid.line = malloc((size_t)(grid.slots * grid.width));
        if (!grid.line)
            code = ls_error_set(error, LS_ENOMEM, "no memory to print a schedule");
    }
    if (code == LS_OK) {
        int64_t shown = 0;
        for (int row = 0; row < rows_count(grid.rows); row++)
            shown = ls_max(shown, fill_line(&grid, rank_of_row(grid.rows, row)));
        int64_t part = columns > 9 ? ls_max(1, (columns - 9) / grid.width) : shown;
        for (int64_t from = 0; from < shown; from += part) {
            fprintf(file, "%sslots %lld to %lld\n", from ? "\n" : "", (long long)from,
                    (long long)ls_min(from + part, shown) - 1);
            print_part(&grid, from, ls_min(part, shown - from), file);
        }
        code = written(file, error);
    }
    free(grid.line);
    free(start);
    return code;
}

/* ---- SVG ------------------------------------------------------------------------------------ */

enum {
    WIDTH = 1200,
    LEFT = 72,
    RIGHT = 20,
    TOP = 52,
    ROW = 26,
    BOTTOM = 40,
    SVG_ACTIONS_MAX = 200000
};

/* By kind, then light and dark for even and odd chunks. */
static const char *const colours[4][2] = {
    [LS_ACTION_F] = {"#7db5e8", "#2f76b5"},
    [LS_ACTION_I] = {"#8fd19e", "#3c8d50"},
    [LS_ACTION_W] = {"#f4b873", "#c97b1d"},
    [LS_ACTION_B] = {"#62b8a7", "#1f7a6a"},
};

static void put_xml(const char *text, FILE *file)
{
    for (; *text; text++) {
        if (*text == '<')
            fputs("&lt;", file);
        else if (*text == '&')
            fputs("&amp;", file);
        else
            fputc((unsigned char)*text < ' ' ? ' ' : *text, file);
    }
}

static void draw_action(const struct ls_schedule *schedule, struct ls_action action, double x,
                        double width, int y, FILE *file)
{
    bool odd = schedule->stage_chunk[action.stage] % 2;
    const char *colour = colours[action.kind][odd];
    /* Tenths of a unit as integers: a decimal comma of some locale would be no SVG. */
    long from = lround(x * 10), wide = lround(width * 10);
    fprintf(file,
            "<rect x=\"%ld.%ld\" y=\"%d\" width=\"%ld.%ld\" height=\"%d\" fill=\"%s\" "
            "stroke=\"#ffffff\" stroke-width=\"0.5\"><title>%s</title></rect>\n",
            from / 10, from % 10, y, wide / 10, wide % 10, ROW - 4, colour,
            ls_action_text(action).text);
    if (width >= 16)
        fprintf(file,
                "<text x=\"%ld\" y=\"%d\" text-anchor=\"middle\" font-size=\"11\" "
                "fill=\"%s\">%d</text>\n",
                lround(x + width / 2), y + ROW - 11, odd ? "#ffffff" : "#1c2733",
                action.micro_batch);
}

static void draw_legend(const struct ls_schedule *schedule, int y, FILE *file)
{
    static const char *const text[4] = {"F", "I", "W", "B"};
    int x = LEFT;
    for (int odd = 0; odd < (schedule->chunks > 1 ? 2 : 1); odd++) {
        for (int kind = 0; kind < 4; kind++, x += 44)
            fprintf(file,
                    "<rect x=\"%d\" y=\"%d\" width=\"14\" height=\"14\" fill=\"%s\"/>"
                    "<text x=\"%d\" y=\"%d\">%s</text>\n",
                    x, y, colours[kind][odd], x + 19, y + 12, text[kind]);
        if (schedule->chunks > 1)
            fprintf(file, "<text x=\"%d\" y=\"%d\">of %s chunks</text>\n", x, y + 12,
                    odd ? "odd" : "even");
        x += 120;
    }
}

static void draw_rows(const struct ls_schedule *schedule, const struct ls_schedule_costs *costs,
                      const double *start, struct rows rows, FILE *file)
{
    double end = last_end(schedule, costs, start, rows);
    double scale = end > 0 ? (WIDTH - LEFT - RIGHT) / end : 0;
    for (int row = 0; row < rows_count(rows); row++) {
        int rank = rank_of_row(rows, row), y = TOP + row * ROW + (row >= rows.head ? ROW / 2 : 0);
        int64_t count;
        const struct ls_action *actions = ls_schedule_actions(schedule, rank, &count);
        fprintf(file,
                "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">rank %d</text>\n"
                "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"#eef0f3\"/>\n",
                LEFT - 10, y + ROW - 9, rank, LEFT, y, WIDTH - LEFT - RIGHT, ROW - 4);
        for (int64_t i = 0; i < count; i++)
            draw_action(schedule, actions[i], LEFT + start[schedule->first[rank] + i] * scale,
                        parallel_action_cost(costs, actions[i]) * scale, y, file);
    }
}

int ls_schedule_draw(const struct ls_schedule *schedule, const struct ls_schedule_costs *costs,
                     int ranks_max, const char *title, FILE *file, struct ls_error *error)
{
    struct rows rows = rows_of(schedule, ranks_max);
    int64_t actions = 0;
    for (int row = 0; row < rows_count(rows); row++) {
        int rank = rank_of_row(rows, row);
        actions += schedule->first[rank + 1] - schedule->first[rank];
    }
    if (actions > SVG_ACTIONS_MAX)
        return ls_error_set(error, LS_EINVAL,
                            "a drawing of %lld actions is too large to look at: show fewer ranks "
                            "(at most %d actions)",
                            (long long)actions, SVG_ACTIONS_MAX);
    double *start;
    int code = times_new(schedule, costs, &start, error);
    if (code == LS_OK) {
        int height = TOP + rows_count(rows) * ROW + (rows.tail ? ROW / 2 : 0) + BOTTOM;
        fprintf(file,
                "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
                "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
                "viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"13\" "
                "fill=\"#36404a\">\n<rect width=\"%d\" height=\"%d\" fill=\"#ffffff\"/>\n"
                "<text x=\"%d\" y=\"30\" font-size=\"17\" font-weight=\"bold\">",
                WIDTH, height, WIDTH, height, WIDTH, height, LEFT);
        put_xml(title, file);
        fputs("</text>\n", file);
        draw_rows(schedule, costs, start, rows, file);
        draw_legend(schedule, height - BOTTOM + 14, file);
        fputs("</svg>\n", file);
        code = written(file, error);
    }
    free(start);
    return code;
}
