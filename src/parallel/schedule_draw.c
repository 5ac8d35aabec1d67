/* A schedule to look at: as text, one column a slot of time, and as SVG 1.1. */
#include "parallel/schedule_private.h"

#include <lockstep/base/words.h>
#include <lockstep/trace/picture.h>

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Which ranks are shown: the first `head` and the last `tail`. */
struct shown_ranks {
    int head, tail, all;
};

static struct shown_ranks rows_of(const struct ls_schedule *schedule, int ranks_max)
{
    int p = schedule->ranks;
    if (ranks_max <= 0 || p <= ranks_max)
        return (struct shown_ranks){p, 0, p};
    return (struct shown_ranks){ranks_max - ranks_max / 2, ranks_max / 2, p};
}

static int rows_count(struct shown_ranks rows)
{
    return rows.head + rows.tail;
}

static int rank_of_row(struct shown_ranks rows, int row)
{
    return row < rows.head ? row : rows.all - rows.tail + (row - rows.head);
}

static int times_new(const struct ls_schedule *schedule, const struct ls_schedule_costs *costs,
                     double **start, struct ls_error *error)
{
    *start = malloc((size_t)(schedule->first[schedule->ranks] + 1) * sizeof **start);
    return *start ? ls_schedule_times(schedule, costs, *start, error)
                  : ls_no_memory(error, "to draw a schedule");
}

/* The last end among the ranks shown. */
static double last_end(const struct ls_schedule *schedule, const struct ls_schedule_costs *costs,
                       const double *start, struct shown_ranks rows)
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
    struct shown_ranks rows;
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
    int status = times_new(schedule, costs, &start, error);
    if (status == LS_OK) {
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
            status = ls_no_memory(error, "to print a schedule");
    }
    if (status == LS_OK) {
        int64_t shown = 0;
        for (int row = 0; row < rows_count(grid.rows); row++)
            shown = ls_max(shown, fill_line(&grid, rank_of_row(grid.rows, row)));
        int64_t part = columns > 9 ? ls_max(1, (columns - 9) / grid.width) : shown;
        for (int64_t from = 0; from < shown; from += part) {
            fprintf(file, "%sslots %lld to %lld\n", from ? "\n" : "", (long long)from,
                    (long long)ls_min(from + part, shown) - 1);
            print_part(&grid, from, ls_min(part, shown - from), file);
        }
        status = written(file, error);
    }
    free(grid.line);
    free(start);
    return status;
}

/* ---- SVG ------------------------------------------------------------------------------------ */

enum {
    WIDTH = 1000,
    LEFT = 66,
    RIGHT = 18,
    ROW = 26,
    LINE = 18, /* of text */
    AXIS = 48, /* below the rows */
    KINDS = 4,
    SVG_ACTIONS_MAX = 200000
};

/* Dark letters on the light colours of even chunks, light ones on the dark colours of odd chunks;
 * on white and on black alike. */
static const char style[] = "<style>\n"
                            ".ls-picture .ls-n0,.ls-picture .ls-n1{font-size:11px;fill:#10161c}\n"
                            ".ls-picture .ls-n1{fill:#ffffff}\n"
                            "</style>\n";

static int parity(const struct ls_schedule *schedule, struct ls_action action)
{
    return schedule->stage_chunk[action.stage] % 2;
}

/* What is drawn, measured once. */
struct drawing {
    const struct ls_schedule *schedule;
    const struct ls_schedule_costs *costs;
    const struct ls_schedule_picture *picture;
    const double *start;
    struct shown_ranks rows;
    double end; /* of the actions shown */
    int width;
    bool present[KINDS][2]; /* by kind and parity of the chunk */
    bool idle;              /* some rank, at some time */
    char title[256], note[256];
};

static void find_present(struct drawing *d)
{
    for (int row = 0; row < rows_count(d->rows); row++) {
        int64_t count;
        const struct ls_action *actions =
            ls_schedule_actions(d->schedule, rank_of_row(d->rows, row), &count);
        double busy = 0;
        for (int64_t i = 0; i < count; i++) {
            d->present[actions[i].kind][parity(d->schedule, actions[i])] = true;
            busy += parallel_action_cost(d->costs, actions[i]);
        }
        d->idle |= busy < d->end * (1 - 1e-9);
    }
}

static void write_title(struct drawing *d, const struct ls_schedule_figures *figures,
                        const struct ls_schedule_figures *even)
{
    const struct ls_schedule *s = d->schedule;
    char chunks[48] = "", alike[64] = "";
    if (s->chunks > 1)
        snprintf(chunks, sizeof chunks, ", %d chunks a rank", s->chunks);
    if (d->costs->stage)
        snprintf(alike, sizeof alike, " (%.1f%% if all stages were equal)", 100 * even->bubble);
    snprintf(d->title, sizeof d->title, "%.120s: %s, %s%s", d->picture->name,
             ls_counted(s->ranks, "rank").text, ls_counted(s->micro_batches, "micro-batch").text,
             chunks);
    snprintf(d->note, sizeof d->note,
             "Bubble: %.1f%% of the time%s. A rank holds activations of up to %s%s.",
             100 * figures->bubble, alike, ls_counted(figures->live_max, "micro-batch").text,
             s->chunks > 1 ? " x chunks" : "");
}

/* Title and figures are those of the costs that are drawn. */
static int measure(struct drawing *d, struct ls_error *error)
{
    struct ls_schedule_figures figures, even;
    int status = ls_schedule_simulate(d->schedule, d->costs, &figures, error);
    if (status)
        return status;
    status = ls_schedule_simulate(d->schedule, &(struct ls_schedule_costs){.all = {1, 1, 1}}, &even,
                                  error);
    if (!status) {
        write_title(d, &figures, &even);
        ls_schedule_figures_release(&even);
    }
    ls_schedule_figures_release(&figures);
    d->end = last_end(d->schedule, d->costs, d->start, d->rows);
    find_present(d);
    return status;
}

static void draw_action(const struct drawing *d, struct ls_action action, double x, double width,
                        double y, FILE *file)
{
    char classes[16], number[16];
    int odd = parity(d->schedule, action);
    snprintf(classes, sizeof classes, "ls-a%d%d", action.kind, odd);
    snprintf(number, sizeof number, "%d", action.micro_batch);
    /* A line of background stays between two neighbours. */
    ls_picture_rect(file, classes, x, y, fmax(width - 0.6, fmin(width, 0.3)), ROW - 4,
                    ls_action_text(action).text);
    if (width < ls_picture_text_width(number) + 3)
        return;
    ls_picture_text(file, ls_picture_class("ls-n", odd).text, x + width / 2, y + ROW - 11, "middle",
                    "%s", number);
}

static void draw_rows(const struct drawing *d, const struct ls_scale *time, int top, FILE *file)
{
    for (int row = 0; row < rows_count(d->rows); row++) {
        int rank = rank_of_row(d->rows, row);
        int y = top + row * ROW + (row >= d->rows.head ? ROW / 2 : 0);
        int64_t count, first = d->schedule->first[rank];
        const struct ls_action *actions = ls_schedule_actions(d->schedule, rank, &count);
        ls_picture_text(file, "ls-text", LEFT - 8, y + ROW - 9, "end", "rank %d", rank);
        if (d->idle)
            ls_picture_rect(file, "ls-idle", LEFT, y, time->to - time->from, ROW - 4, NULL);
        for (int64_t i = 0; i < count; i++) {
            double x = ls_scale_place(time, d->start[first + i]);
            double cost = parallel_action_cost(d->costs, actions[i]);
            double end = ls_scale_place(time, d->start[first + i] + cost);
            draw_action(d, actions[i], x, end - x, y, file);
        }
    }
    if (d->rows.tail)
        ls_picture_text(file, "ls-soft", LEFT - 8, top + d->rows.head * ROW + 6, "end", "...");
}

/* Of what is present, in rows; returns their height. file NULL: only measures. */
static int draw_legend(const struct drawing *d, int y, FILE *file)
{
    static const char *const kind_text[KINDS] = {"F forward", "I backward, input",
                                                 "W backward, weights", "B backward"};
    struct ls_legend legend = {.file = file, .left = 8, .right = d->width, .x = 8, .y = y};
    for (int kind = 0; kind < KINDS + 1; kind++)
        for (int odd = 0; odd < 2; odd++) {
            char text[64], classes[16];
            bool idle = kind == KINDS;
            const char *of = d->schedule->chunks == 1   ? ""
                             : d->schedule->chunks == 2 ? (odd ? ", chunk 1" : ", chunk 0")
                                                        : (odd ? ", odd chunks" : ", even chunks");
            if (idle ? odd || !d->idle : !d->present[kind][odd])
                continue;
            snprintf(text, sizeof text, "%s%s", idle ? "idle" : kind_text[kind], idle ? "" : of);
            snprintf(classes, sizeof classes, idle ? "ls-idle" : "ls-a%d%d", kind, odd);
            ls_legend_add(&legend, classes, text);
        }
    return (int)legend.y + LINE + 8;
}

static void draw_all(const struct drawing *d, FILE *file)
{
    double room = d->width - 16;
    int note = 8 + ls_picture_title(NULL, d->width, d->title);
    int top = note + LINE * ls_picture_wrap(NULL, "", 0, 0, room, LINE, d->note) - 8;
    int legend = top;
    top = draw_legend(d, top, NULL);
    int bottom = top + rows_count(d->rows) * ROW + (d->rows.tail ? ROW / 2 : 0);
    struct ls_scale time = {.high = d->end, .from = LEFT, .to = d->width - RIGHT};
    ls_scale_fit(&time, (int)ls_max(d->width / 90, 2));
    ls_picture_begin(file, d->width, bottom + AXIS, d->title);
    fputs(style, file);
    ls_picture_title(file, d->width, d->title);
    ls_picture_wrap(file, "ls-soft", 8, note, room, LINE, d->note);
    draw_legend(d, legend, file);
    draw_rows(d, &time, top, file);
    ls_scale_axis(file, &time, bottom + 2, d->picture->time_label);
    ls_picture_end(file);
}

int ls_schedule_draw(const struct ls_schedule *schedule, const struct ls_schedule_costs *costs,
                     const struct ls_schedule_picture *picture, FILE *file, struct ls_error *error)
{
    struct drawing d = {.schedule = schedule,
                        .costs = costs,
                        .picture = picture,
                        .rows = rows_of(schedule, picture->ranks_max),
                        .width = picture->width ? picture->width : WIDTH};
    int64_t actions = 0;
    for (int row = 0; row < rows_count(d.rows); row++) {
        int rank = rank_of_row(d.rows, row);
        actions += schedule->first[rank + 1] - schedule->first[rank];
    }
    if (actions > SVG_ACTIONS_MAX)
        return ls_error_set(error, LS_EINVAL,
                            "a drawing of %lld actions is too large to read: show fewer ranks "
                            "(at most %d actions)",
                            (long long)actions, SVG_ACTIONS_MAX);
    double *start;
    int status = times_new(schedule, costs, &start, error);
    d.start = start;
    if (status == LS_OK)
        status = measure(&d, error);
    if (status == LS_OK) {
        draw_all(&d, file);
        status = written(file, error);
    }
    free(start);
    return status;
}
