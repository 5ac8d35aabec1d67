/* The report's pictures of what the planner says of the configuration: ranks, memory, schedule. */
#include "compare/report_private.h"

#include <lockstep/base/words.h>
#include <lockstep/train/recorded.h>

#include <math.h>
#include <stdlib.h>

enum { WIDE = 860, NARROW = 320, SHOWN = 64 };

/* ---- the grid of ranks ----------------------------------------------------------------------- */

/* What is drawn of each axis: cells of one replica are cp rows of tp columns, replicas stand side
 * by side and go on below, and a pipeline rank is a band of them. */
struct grid {
    const struct ls_layout *layout;
    FILE *file;
    int64_t shown[LS_AXES];
    int cell_width, per_line, lines; /* replicas on a line, and lines of a band */
    int box_width, box_height, label, band;
};
enum { CELL = 24, GAP = 8, PAD = 5, HEAD = 16 };

static void grid_measure(struct grid *grid, const struct ls_layout *layout, int width)
{
    static const int64_t most[LS_AXES] = {16, 8, 16, 4, 8};
    int64_t ranks = layout->ranks - 1, digits = 1;
    for (; ranks >= 10; ranks /= 10)
        digits++;
    for (int a = 0; a < LS_AXES; a++)
        grid->shown[a] = ls_min(layout->size[a], most[a]);
    int64_t replicas = grid->shown[LS_AXIS_DP_REPLICATE] * grid->shown[LS_AXIS_DP_SHARD];
    grid->layout = layout;
    grid->cell_width = 16 + 8 * (int)digits;
    grid->label = layout->size[LS_AXIS_PP] > 1 ? 48 : 0;
    grid->box_width = (int)grid->shown[LS_AXIS_TP] * grid->cell_width + 2 * PAD;
    if (replicas > 1) /* "dp 12" */
        grid->box_width = (int)ls_max(grid->box_width, 2 * PAD + 24 + 7 * (int)digits);
    grid->box_height = (int)grid->shown[LS_AXIS_CP] * CELL + 2 * PAD + (replicas > 1 ? HEAD : 0);
    grid->per_line = (int)ls_max(1, (width - grid->label) / (grid->box_width + GAP));
    grid->per_line = (int)ls_min(grid->per_line, replicas);
    grid->lines = (int)ls_ceil_div(replicas, grid->per_line);
    grid->band = grid->lines * (grid->box_height + GAP) + GAP;
}

static void cell_draw(const struct grid *grid, const int64_t at[LS_AXES], double x, double y)
{
    char tip[160];
    int64_t rank = ls_layout_rank(grid->layout, at);
    snprintf(tip, sizeof tip, "rank %ld", (long)rank);
    for (int a = 0; a < LS_AXES; a++)
        ls_string_add(tip, sizeof tip, a ? ", " : ": ", "%s %ld",
                      ls_axis_name((enum ls_layout_axis)a), (long)at[a]);
    ls_picture_rect(grid->file, "ls-cell", x + 1, y + 1, grid->cell_width - 2, CELL - 2, tip);
    ls_picture_text(grid->file, "ls-text", x + grid->cell_width / 2.0, y + CELL - 7.5, "middle",
                    "%ld", (long)rank);
}

/* One replica of one pipeline rank. */
static void box_draw(const struct grid *grid, int64_t at[LS_AXES], double x, double y)
{
    const int64_t *size = grid->layout->size;
    double top = y + PAD;
    ls_picture_rect(grid->file, "ls-box", x, y, grid->box_width, grid->box_height, NULL);
    if (size[LS_AXIS_DP_REPLICATE] * size[LS_AXIS_DP_SHARD] > 1) {
        char name[48];
        if (size[LS_AXIS_DP_REPLICATE] > 1 && size[LS_AXIS_DP_SHARD] > 1)
            snprintf(name, sizeof name, "r%ld s%ld", (long)at[LS_AXIS_DP_REPLICATE],
                     (long)at[LS_AXIS_DP_SHARD]);
        else
            snprintf(name, sizeof name, "dp %ld",
                     (long)(at[LS_AXIS_DP_REPLICATE] + at[LS_AXIS_DP_SHARD]));
        ls_picture_text(grid->file, "ls-soft", x + PAD + 1, y + 14, "start", "%s", name);
        top += HEAD;
    }
    for (int64_t cp = 0; cp < grid->shown[LS_AXIS_CP]; cp++)
        for (int64_t tp = 0; tp < grid->shown[LS_AXIS_TP]; tp++) {
            at[LS_AXIS_CP] = cp;
            at[LS_AXIS_TP] = tp;
            cell_draw(grid, at, x + PAD + (double)(tp * grid->cell_width),
                      top + (double)(cp * CELL));
        }
}

static void grid_draw(struct report *report, const struct ls_layout *layout, const char *classes,
                      int width)
{
    struct grid grid = {.file = report->file};
    char title[128];
    grid_measure(&grid, layout, width);
    int drawn = grid.label + grid.per_line * (grid.box_width + GAP);
    snprintf(title, sizeof title, "The %ld ranks by the axes of the layout", (long)layout->ranks);
    fprintf(report->file, "<figure class=\"%s\">\n", classes);
    ls_picture_begin(report->file, drawn > 120 ? drawn : 120,
                     (int)grid.shown[LS_AXIS_PP] * grid.band - GAP, title);
    for (int64_t pp = 0; pp < grid.shown[LS_AXIS_PP]; pp++) {
        int64_t shards = grid.shown[LS_AXIS_DP_SHARD];
        double top = (double)(pp * grid.band);
        if (grid.label)
            ls_picture_text(report->file, "ls-soft", 0, top + 16, "start", "pp %ld", (long)pp);
        for (int64_t i = 0; i < grid.shown[LS_AXIS_DP_REPLICATE] * shards; i++) {
            int64_t at[LS_AXES] = {pp, i / shards, i % shards, 0, 0};
            box_draw(&grid, at, grid.label + (double)(i % grid.per_line * (grid.box_width + GAP)),
                     top + (double)(i / grid.per_line * (grid.box_height + GAP)));
        }
    }
    ls_picture_end(report->file);
    fputs("</figure>\n", report->file);
}

/* What of a large layout is not drawn. */
static void grid_note(struct report *report, const struct ls_layout *layout)
{
    struct grid grid = {0};
    char text[256] = "";
    grid_measure(&grid, layout, WIDE);
    for (int a = 0; a < LS_AXES; a++)
        if (grid.shown[a] < layout->size[a])
            ls_string_add(text, sizeof text, ", ", "the first %ld of %ld %s", (long)grid.shown[a],
                          (long)layout->size[a], ls_axis_name((enum ls_layout_axis)a));
    if (*text)
        ls_html_print(report->file, "p", "note", "Drawn are %s.", text);
}

/* ---- axes ------------------------------------------------------------------------------------ */

/* The most that a pipeline rank's first rank sends in a step, by axis; -1: not known. */
static void bytes_most(const struct ls_config *config, const struct ls_layout *layout,
                       double bytes[LS_AXES])
{
    static const enum ls_account accounts[LS_AXES] = {
        [LS_AXIS_PP] = LS_ACCOUNT_PP,          [LS_AXIS_DP_REPLICATE] = LS_ACCOUNT_REPLICATE,
        [LS_AXIS_DP_SHARD] = LS_ACCOUNT_SHARD, [LS_AXIS_CP] = LS_ACCOUNT_CP,
        [LS_AXIS_TP] = LS_ACCOUNT_TP,
    };
    int64_t pp_ranks = layout->size[LS_AXIS_PP], stride = layout->ranks / pp_ranks;
    for (int a = 0; a < LS_AXES; a++)
        bytes[a] = 0;
    for (int64_t pp = 0; pp < ls_min(pp_ranks, SHOWN); pp++) {
        int64_t sent[LS_ACCOUNTS];
        if (ls_record_bytes(config, layout, pp * stride, sent, NULL))
            return;
        for (int a = 0; a < LS_AXES; a++)
            bytes[a] = fmax(bytes[a], (double)sent[accounts[a]]);
    }
}

static void axes_print(struct report *report, const struct report_run *run)
{
    static const struct ls_html_column columns[] = {{"Axis", LS_HTML_WORD},
                                                    {"Ranks", LS_HTML_NUMBER},
                                                    {"A rank sends in a step", LS_HTML_NUMBER},
                                                    {"What is cut", LS_HTML_TEXT}};
    static const char *const cuts[LS_AXES] = {"layers, in stages", "the batch; state in copies",
                                              "the batch; state shared by ZeRO", "each sequence",
                                              "each layer"};
    const struct ls_layout *layout = &run->layout;
    struct ls_html_table table;
    double bytes[LS_AXES];
    bytes_most(&run->config, layout, bytes);
    ls_html_table_begin(&table, report->file, "Axes, outermost first", columns, 4);
    for (int a = 0; a < LS_AXES; a++) {
        ls_html_cell(&table, "%s", ls_axis_name((enum ls_layout_axis)a));
        ls_html_cell(&table, "%ld", (long)layout->size[a]);
        ls_html_cell(&table, "%s", bytes[a] > 0 ? ls_bytes(bytes[a]).text : "–");
        ls_html_cell(&table, "%s", cuts[a]);
    }
    ls_html_table_end(&table);
}

int report_layout(struct report *report, const struct report_run *run)
{
    static const char *const keeps[] = {"nothing", "optimizer state",
                                        "optimizer state and gradients",
                                        "optimizer state, gradients and parameters"};
    const struct ls_layout *l = &run->layout;
    ls_html_print(report->file, "p", NULL,
                  "%s. A step is %s of %s; each rank computes %s. ZeRO %d: dp_shard ranks share "
                  "%s. Sequence parallel is %s.",
                  ls_counted(l->ranks, "rank").text,
                  ls_counted(l->ramp.full * l->numerics.leaf_sequences, "sequence").text,
                  ls_counted(l->sequence, "token").text, ls_layout_batches(l).text, l->zero,
                  keeps[l->zero], l->sp ? "on" : "off");
    if (*l->note)
        ls_html_print(report->file, "p", "note", "%s", l->note);
    grid_draw(report, l, "wide", WIDE);
    grid_draw(report, l, "narrow own", NARROW);
    grid_note(report, l);
    axes_print(report, run);
    if (*run->layout_text && run->starts > 1)
        ls_html_print(report->file, "p", "note",
                      "This is the layout of config.yaml, which the newest start wrote; the events "
                      "tell of the %ld starts.",
                      (long)run->starts);
    return LS_OK;
}

/* ---- memory ---------------------------------------------------------------------------------- */

enum { KINDS = LS_MEMORY_KINDS };
static const char *const kinds[KINDS] = {"Parameters",  "Gradients", "Optimizer",
                                         "Activations", "Workspace", "Communication"};
/* Colours of the parts of lockstep/trace/html.h. */
static const int kind_colours[KINDS] = {0, 3, 1, 2, 4, 11};

/* Of the first ranks of up to SHOWN pipeline ranks; their number, or what failed. */
static int memory_of(const struct report_run *run, struct ls_memory_plan *plans, int64_t *count,
                     struct ls_error *error)
{
    const struct ls_layout *layout = &run->layout;
    *count = ls_min(layout->size[LS_AXIS_PP], SHOWN);
    for (int64_t pp = 0; pp < *count; pp++) {
        int64_t rank = ls_layout_first_rank(layout, pp);
        int status = ls_plan_rank(&run->config, layout, rank, &plans[pp], error);
        if (status)
            return status;
    }
    return LS_OK;
}

static void memory_bars(struct report *report, const struct ls_memory_plan *plans, int64_t count,
                        const char *classes, int width)
{
    enum { BAR = 22, SPACE = 8, LABEL = 44, BARS = 16 };
    int label = count > 1 ? LABEL : 0, bars = (int)ls_min(count, BARS);
    fprintf(report->file, "<figure class=\"%s\">\n", classes);
    ls_picture_begin(report->file, width, bars * (BAR + SPACE),
                     "Memory of a rank of each pipeline rank; the table has the numbers");
    for (int i = 0; i < bars; i++) {
        double x = label, y = i * (BAR + SPACE);
        if (label)
            ls_picture_text(report->file, "ls-soft", 0, y + BAR - 6, "start", "pp %d", i);
        for (int k = 0; k < KINDS && report->memory_most > 0; k++) {
            double wide = (width - label) * (double)plans[i].bytes[k] / report->memory_most;
            char tip[96];
            snprintf(tip, sizeof tip, "%s: %s", kinds[k], ls_bytes((double)plans[i].bytes[k]).text);
            ls_picture_rect(report->file, ls_picture_class("ls-part", kind_colours[k]).text, x, y,
                            wide, BAR, tip);
            x += wide;
        }
    }
    ls_picture_end(report->file);
    fputs("</figure>\n", report->file);
}

static void memory_table(struct report *report, const struct ls_memory_plan *plans, int64_t count)
{
    static const struct ls_html_column columns[] = {
        {"Pipeline rank", LS_HTML_NUMBER},     {"In all", LS_HTML_NUMBER},
        {"Parameters", LS_HTML_NUMBER},        {"Gradients", LS_HTML_NUMBER},
        {"Optimizer", LS_HTML_NUMBER},         {"Activations", LS_HTML_NUMBER},
        {"Workspace", LS_HTML_NUMBER},         {"Communication", LS_HTML_NUMBER},
        {"Live micro-batches", LS_HTML_NUMBER}};
    struct ls_html_table table;
    ls_html_stack_begin(&table, report->file, "What one rank keeps", columns, 9);
    for (int64_t i = 0; i < count; i++) {
        ls_html_cell(&table, "%ld", (long)i);
        ls_html_cell(&table, "%s", ls_bytes((double)plans[i].total).text);
        for (int k = 0; k < KINDS; k++)
            ls_html_cell(&table, "%s", ls_bytes((double)plans[i].bytes[k]).text);
        ls_html_cell(&table, "%d", plans[i].live);
    }
    ls_html_table_end(&table);
}

/* The most that a rank of any run keeps: bars of all runs have one scale. */
static double memory_most(const struct report *report, struct ls_memory_plan *plans)
{
    double most = 0;
    for (int r = 0; r < report->count; r++) {
        int64_t count = 0;
        if (report->runs[r].laid_out && memory_of(&report->runs[r], plans, &count, NULL))
            count = 0;
        for (int64_t i = 0; i < count; i++)
            most = fmax(most, (double)plans[i].total);
    }
    return most;
}

int report_memory(struct report *report, const struct report_run *run)
{
    struct ls_memory_plan plans[SHOWN];
    struct ls_error problem = {0};
    int64_t count;
    if (report->memory_most == 0)
        report->memory_most = memory_most(report, plans);
    if (memory_of(run, plans, &count, &problem)) {
        ls_html_print(report->file, "p", "note", "Not known: %s", problem.text);
        return LS_OK;
    }
    memory_bars(report, plans, count, "wide", WIDE);
    memory_bars(report, plans, count, "narrow", NARROW);
    fputs("<p class=\"note\">", report->file);
    for (int k = 0; k < KINDS; k++)
        fprintf(report->file,
                "<span class=\"legend\"><span class=\"key ls-part%d\"></span>%s</span>\n",
                kind_colours[k], kinds[k]);
    fputs("</p>\n", report->file);
    memory_table(report, plans, count);
    if (run->layout.size[LS_AXIS_PP] > SHOWN)
        ls_html_print(report->file, "p", "note", "%d of %ld pipeline ranks are shown.", SHOWN,
                      (long)run->layout.size[LS_AXIS_PP]);
    return LS_OK;
}

/* ---- stages and schedule --------------------------------------------------------------------- */

static void stages_print(struct report *report, const struct ls_layout *layout)
{
    static const struct ls_html_column columns[] = {{"Stage", LS_HTML_NUMBER},
                                                    {"Pipeline rank", LS_HTML_NUMBER},
                                                    {"Layers", LS_HTML_NUMBER},
                                                    {"Share of the work", LS_HTML_NUMBER}};
    struct ls_html_table table;
    struct ls_stage_cost costs[LS_LAYOUT_LAYERS_MAX + 2];
    double all = 0;
    ls_layout_stage_costs(layout, costs);
    for (int64_t s = 0; s < layout->stages; s++)
        all += costs[s].forward;
    ls_html_table_begin(&table, report->file, "Stages; layer 0 is the embedding, the last the head",
                        columns, 4);
    for (int64_t s = 0; s < ls_min(layout->stages, SHOWN); s++) {
        ls_html_cell(&table, "%ld", (long)s);
        ls_html_cell(&table, "%d", layout->stage_rank[s]);
        ls_html_cell(&table, "%d to %d", layout->stage_first[s], layout->stage_first[s + 1] - 1);
        ls_html_cell(&table, "%.1f %%", 100 * costs[s].forward / all);
    }
    ls_html_table_end(&table);
}

/* A schedule too large to draw is said to be. */
static int schedule_draw(struct report *report, const struct ls_layout *layout, const char *classes,
                         int width)
{
    struct ls_error problem = {0};
    char *text = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&text, &bytes);
    int status = stream ? ls_layout_draw_schedule(layout, width, stream, &problem)
                        : ls_no_memory(&problem, "for the picture");
    if (stream && fclose(stream) && !status)
        status = ls_no_memory(&problem, "for the picture");
    fprintf(report->file, "<figure class=\"%s\">\n", classes);
    if (status)
        ls_html_print(report->file, "p", "note", "Not drawn: %s", problem.text);
    else
        fwrite(text, 1, bytes, report->file);
    fputs("</figure>\n", report->file);
    free(text);
    return status == LS_ENOMEM ? ls_error_copy(report->error, status, &problem) : LS_OK;
}

/* One of many actions would not be seen on a narrow page, and one of very many on none. */
static int schedule_print(struct report *report, const struct ls_layout *layout)
{
    enum { NARROW_MAX = 800, PAGE_MAX = 12000, KINDS_OF_ACTION = 3 };
    int64_t rows = ls_min(layout->size[LS_AXIS_PP], SHOWN);
    int64_t actions = rows * layout->chunks * layout->micro_batches * KINDS_OF_ACTION;
    if (actions > PAGE_MAX) {
        ls_html_print(report->file, "p", "note",
                      "Too large for a page, with %ld micro-batches: `lockstep layout --svg FILE` "
                      "draws it.",
                      (long)layout->micro_batches);
        return LS_OK;
    }
    if (actions > NARROW_MAX)
        return schedule_draw(report, layout, "own", WIDE);
    int status = schedule_draw(report, layout, "wide", WIDE);
    return status ? status : schedule_draw(report, layout, "narrow", NARROW);
}

int report_schedule(struct report *report, const struct report_run *run)
{
    if (run->layout.size[LS_AXIS_PP] == 1) {
        ls_html_print(report->file, "p", "note",
                      "No pipeline: each rank has all layers and takes forward and backward of one "
                      "micro-batch after the other.");
        return LS_OK;
    }
    int status = schedule_print(report, &run->layout);
    if (!status)
        stages_print(report, &run->layout);
    return status;
}
