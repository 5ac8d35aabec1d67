/* The timeline of a planned step: a picture, and a trace for Perfetto. */
#include <lockstep/planner/timeline.h>
#include <lockstep/trace/picture.h>

#include <math.h>
#include <stdlib.h>

/* ---- what is drawn ----------------------------------------------------------------------------
 *
 * A row a kind of rank, in it a lane of computing, by pass, over a lane of what moves, by account.
 * A picture has so many columns: in each of them a lane is divided as the column's time is. */

enum { COLUMNS = 900, ROWS_MAX = 48, LEFT = 78, RIGHT = 22, ROW = 36 };
enum { MOVES = LS_WORK_PASSES, TIERS = MOVES + LS_ACCOUNTS, KINDS };

struct row {
    int64_t rank;
    float part[KINDS][COLUMNS]; /* of the column, in seconds */
};

struct timeline {
    struct row *rows; /* [ROWS_MAX] */
    int count;
    bool left_out; /* some kinds of ranks */
    double step_s;
    int colour[KINDS]; /* of what moves */
    FILE *trace;
    bool first; /* no event was written yet */
};

struct lane {
    const char *name;
    int first, end; /* kinds */
    int top, height;
};
static const struct lane computing = {"computes", 0, MOVES, 0, 16};
static const struct lane moving = {"moves", MOVES, KINDS, 17, 10};

/* Passes in their order; what has none comes last. */
static enum ls_work_pass pass_of(int kind)
{
    return (enum ls_work_pass)((kind + 1) % LS_WORK_PASSES);
}

static int kind_of(const struct ls_simulated_span *span)
{
    return span->account >= 0 ? MOVES + span->account
           : span->operation  ? TIERS
                              : ((int)span->pass + LS_WORK_PASSES - 1) % LS_WORK_PASSES;
}

static const char *kind_name(int kind)
{
    return kind < MOVES    ? ls_work_pass_name(pass_of(kind))
           : kind == TIERS ? "memory tiers"
                           : ls_account_name((enum ls_account)(kind - MOVES));
}

static struct row *row_of(struct timeline *timeline, int64_t rank)
{
    for (int i = 0; i < timeline->count; i++)
        if (timeline->rows[i].rank == rank)
            return &timeline->rows[i];
    timeline->left_out |= timeline->count == ROWS_MAX;
    if (timeline->left_out)
        return NULL;
    timeline->rows[timeline->count] = (struct row){.rank = rank};
    return &timeline->rows[timeline->count++];
}

static void column_fill(void *user, const struct ls_simulated_span *span)
{
    struct timeline *timeline = user;
    struct row *row = row_of(timeline, span->rank);
    double width = timeline->step_s / COLUMNS;
    if (!row)
        return;
    for (int64_t c = ls_max((int64_t)(span->from_s / width), 0); c < COLUMNS; c++) {
        double from = fmax(span->from_s, (double)c * width);
        double to = fmin(span->to_s, (double)(c + 1) * width);
        if (from >= span->to_s)
            break;
        row->part[kind_of(span)][c] += (float)fmax(to - from, 0);
    }
}

static int by_rank(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* How high a lane is filled in a column by its kinds up to this one, in whole units, rounded up. */
static int level(const struct timeline *timeline, int r, const struct lane *lane, int kind, int c)
{
    double filled = 0, all = 0;
    for (int k = lane->first; k < lane->end; k++) {
        all += (double)timeline->rows[r].part[k][c];
        filled = k == kind ? all : filled;
    }
    double share = filled / fmax(all, timeline->step_s / COLUMNS);
    return (int)ceil(lane->height * share - 1e-3);
}

static bool is_drawn(const struct timeline *timeline, const struct lane *lane, int kind)
{
    for (int r = 0; r < timeline->count; r++)
        for (int c = 0; c < COLUMNS; c++)
            if (level(timeline, r, lane, kind, c) > level(timeline, r, lane, kind - 1, c))
                return true;
    return false;
}

static bool waits(const struct timeline *timeline)
{
    for (int r = 0; r < timeline->count; r++)
        for (int c = 0; c < COLUMNS; c++)
            if (level(timeline, r, &computing, MOVES - 1, c) < computing.height)
                return true;
    return false;
}

/* ---- colours --------------------------------------------------------------------------------- */

/* Each account its own, but where another one that is drawn has it. */
static void colours_choose(struct timeline *timeline)
{
    static const int own[] = {
        [LS_ACCOUNT_TP] = 1,    [LS_ACCOUNT_CP] = 2,        [LS_ACCOUNT_PP] = 3,
        [LS_ACCOUNT_SHARD] = 4, [LS_ACCOUNT_REPLICATE] = 0, [LS_ACCOUNT_OPTIMIZER] = 0,
        [LS_ACCOUNT_OTHER] = 5, [TIERS - MOVES] = 2};
    bool taken[LS_PICTURE_COLOURS] = {false};
    for (int kind = MOVES; kind < KINDS; kind++) {
        if (!is_drawn(timeline, &moving, kind))
            continue;
        int colour = own[kind - MOVES];
        for (int i = 0; i < LS_PICTURE_COLOURS && taken[colour]; i++)
            colour = (colour + 1) % LS_PICTURE_COLOURS;
        taken[colour] = true;
        timeline->colour[kind] = colour;
    }
}

static struct ls_picture_class class_of(const struct timeline *timeline, int kind)
{
    static const char *const passes[] = {
        [LS_WORK_PASS_NONE] = "ls-f5",       [LS_WORK_PASS_FORWARD] = "ls-a00",
        [LS_WORK_PASS_RECOMPUTE] = "ls-a01", [LS_WORK_PASS_BACKWARD] = "ls-a30",
        [LS_WORK_PASS_INPUT] = "ls-a10",     [LS_WORK_PASS_WEIGHTS] = "ls-a20",
        [LS_WORK_PASS_REDUCE] = "ls-a21",    [LS_WORK_PASS_UPDATE] = "ls-a11"};
    struct ls_picture_class class = ls_picture_class("ls-f", timeline->colour[kind]);
    if (kind < MOVES)
        snprintf(class.text, sizeof class.text, "%s", passes[pass_of(kind)]);
    return class;
}

/* ---- the picture ----------------------------------------------------------------------------- */

/* What is drawn of the lane's kinds. Returns where what follows begins; file NULL: only that. */
static int legend_draw(const struct timeline *timeline, const struct lane *lane, int y, FILE *file)
{
    struct ls_legend legend = {
        .file = file, .left = LEFT, .right = LEFT + COLUMNS + RIGHT, .x = LEFT, .y = y};
    for (int kind = lane->first; kind < lane->end; kind++)
        if (is_drawn(timeline, lane, kind))
            ls_legend_add(&legend, class_of(timeline, kind).text, kind_name(kind));
    if (lane == &computing && waits(timeline))
        ls_legend_add(&legend, "ls-idle", "waiting");
    if (legend.x == LEFT)
        return y;
    if (file)
        ls_picture_text(file, "ls-soft", LEFT - 8, y + 12, "end", "%s", lane->name);
    return (int)legend.y + LS_LEGEND_ROW;
}

/* A kind's columns in a lane, neighbours of one height together. */
static void kind_draw(FILE *file, const struct timeline *timeline, int r, const struct lane *lane,
                      int kind, int y)
{
    bool any = false;
    for (int c = 0, end; c < COLUMNS; c = end) {
        int low = level(timeline, r, lane, kind - 1, c);
        int high = level(timeline, r, lane, kind, c);
        for (end = c + 1; end < COLUMNS && level(timeline, r, lane, kind - 1, end) == low &&
                          level(timeline, r, lane, kind, end) == high;)
            end++;
        if (high == low)
            continue;
        if (!any)
            fprintf(file, "<path class=\"%s\" d=\"", class_of(timeline, kind).text);
        fprintf(file, "M%d %dh%dv%dh%dz", LEFT + c, y + lane->height - high, end - c, high - low,
                c - end);
        any = true;
    }
    if (any)
        fprintf(file, "\"><title>%s</title></path>\n", kind_name(kind));
}

static void row_draw(FILE *file, const struct timeline *timeline, int r, int y)
{
    ls_picture_text(file, "ls-soft", LEFT - 8, y + 13, "end", "rank %ld",
                    (long)timeline->rows[r].rank);
    if (waits(timeline))
        ls_picture_rect(file, "ls-idle", LEFT, y, COLUMNS, computing.height, NULL);
    for (int kind = 0; kind < KINDS; kind++) {
        const struct lane *lane = kind < MOVES ? &computing : &moving;
        kind_draw(file, timeline, r, lane, kind, y + lane->top);
    }
}

static void axis_draw(FILE *file, const struct timeline *timeline, double y)
{
    char text[128];
    bool long_step = timeline->step_s >= 1;
    struct ls_scale scale = {
        .high = timeline->step_s * (long_step ? 1 : 1e3), .from = LEFT, .to = LEFT + COLUMNS};
    ls_scale_fit(&scale, 8);
    snprintf(text, sizeof text, "%s; ranks that do the same are drawn once%s",
             long_step ? "seconds" : "milliseconds",
             timeline->left_out ? ", and some kinds are left out" : "");
    ls_scale_axis(file, &scale, y, text);
}

/* "1.90 s", "94.2 ms" */
static void title_write(double step_s, char *text, size_t bytes)
{
    double number = step_s >= 1 ? step_s : step_s * 1e3;
    int decimals = number >= 100 ? 0 : number >= 10 ? 1 : 2;
    snprintf(text, bytes, "A step of %.*f %s: what ranks compute, and what moves meanwhile",
             decimals, number, step_s >= 1 ? "s" : "ms");
}

static void timeline_write(const struct timeline *timeline, FILE *file)
{
    char title[128];
    title_write(timeline->step_s, title, sizeof title);
    int top = legend_draw(timeline, &moving, legend_draw(timeline, &computing, 36, NULL), NULL) + 8;
    int bottom = top + timeline->count * ROW;
    ls_picture_begin(file, LEFT + COLUMNS + RIGHT, bottom + 50, title);
    ls_picture_text(file, "ls-title", 8, 24, "start", "%s", title);
    legend_draw(timeline, &moving, legend_draw(timeline, &computing, 36, file), file);
    for (int r = 0; r < timeline->count; r++)
        row_draw(file, timeline, r, top + r * ROW);
    axis_draw(file, timeline, bottom);
    ls_picture_end(file);
}

int ls_timeline_draw(const struct ls_config *config, const struct ls_cluster *cluster, FILE *file,
                     struct ls_error *error)
{
    struct ls_layout layout;
    struct timeline timeline = {.rows = calloc(ROWS_MAX, sizeof *timeline.rows)};
    struct ls_forecast_ask ask = {
        .config = config, .layout = &layout, .cluster = cluster, .tells = true};
    struct ls_forecast forecast;
    int status = timeline.rows ? ls_config_layout(config, 0, &layout, error)
                               : ls_no_memory(error, "for a picture");
    if (!status)
        status = ls_forecast_make(&ask, &forecast, error); /* how wide a column is */
    if (!status) {
        timeline.step_s = forecast.step_s;
        ask.visit = column_fill;
        ask.visit_user = &timeline;
        status = ls_forecast_make(&ask, &forecast, error);
    }
    if (!status) {
        qsort(timeline.rows, (size_t)timeline.count, sizeof *timeline.rows, by_rank);
        colours_choose(&timeline);
        timeline_write(&timeline, file);
    }
    free(timeline.rows);
    return status;
}

/* ---- the trace ------------------------------------------------------------------------------- */

static void event_write(void *user, const struct ls_simulated_span *span)
{
    struct timeline *timeline = user;
    int kind = kind_of(span);
    fprintf(timeline->trace,
            "%s{\"name\": \"%s\", \"cat\": \"%s\", \"ph\": \"X\", \"ts\": %.3f, \"dur\": %.3f, "
            "\"pid\": %ld, \"tid\": %d}",
            timeline->first ? "" : ",\n", span->operation ? span->operation : kind_name(kind),
            kind < MOVES ? computing.name : kind_name(kind), span->from_s * 1e6,
            (span->to_s - span->from_s) * 1e6, (long)span->rank,
            kind < MOVES ? 0 : kind - MOVES + 1);
    timeline->first = false;
}

int ls_timeline_trace(const struct ls_config *config, const struct ls_cluster *cluster, FILE *file,
                      struct ls_error *error)
{
    struct ls_layout layout;
    struct timeline timeline = {.trace = file, .first = true};
    struct ls_forecast forecast;
    const struct ls_forecast_ask ask = {.config = config,
                                        .layout = &layout,
                                        .cluster = cluster,
                                        .tells = true,
                                        .visit = event_write,
                                        .visit_user = &timeline};
    int status = ls_config_layout(config, 0, &layout, error);
    fprintf(file, "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n");
    if (!status)
        status = ls_forecast_make(&ask, &forecast, error);
    fprintf(file, "\n]}\n");
    return status;
}
