/* The timeline of a planned step: a picture, and a trace for Perfetto. */
#include "planned.h"

#include <lockstep/base/file.h>
#include <lockstep/trace/picture.h>

#include <stdlib.h>
#include <string.h>

/* ---- the picture ------------------------------------------------------------------------------
 *
 * A row a kind of rank, in it a lane of computing over a lane of moves. A picture has so many
 * columns: in each of them a lane shows what took most of it.
 */

enum { COLUMNS = 900, ROWS_MAX = 48, LEFT = 70, TOP = 64, LANE = 9, ROW = 24, LEGEND = 26 };
enum { COMPUTES = LS_ACCOUNTS, TIERS, KINDS };

struct row {
    int64_t rank;
    float part[KINDS][COLUMNS]; /* of the column, in seconds */
};

struct timeline {
    struct row *rows; /* [ROWS_MAX] */
    int count, left_out;
    double step_s;
    FILE *trace;
    bool first; /* no event was written yet */
};

static int kind_of(const struct ls_simulated_span *span)
{
    return span->account >= 0 ? span->account : span->operation ? TIERS : COMPUTES;
}

static struct row *row_of(struct timeline *timeline, int64_t rank)
{
    for (int i = 0; i < timeline->count; i++)
        if (timeline->rows[i].rank == rank)
            return &timeline->rows[i];
    if (timeline->count == ROWS_MAX) {
        timeline->left_out++;
        return NULL;
    }
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
    for (int64_t c = (int64_t)(span->from_s / width); c < COLUMNS; c++) {
        double from = span->from_s > (double)c * width ? span->from_s : (double)c * width;
        double end = (double)(c + 1) * width, to = span->to_s < end ? span->to_s : end;
        if (to <= from)
            break;
        if (c >= 0)
            row->part[kind_of(span)][c] += (float)(to - from);
    }
}

/* What a lane shows in a column: a kind, or -1. */
static int shown(const struct row *row, bool moves, int column, double width)
{
    int best = -1;
    float most = (float)(0.25 * width);
    for (int kind = 0; kind < KINDS; kind++)
        if ((kind != COMPUTES) == moves && row->part[kind][column] > most) {
            most = row->part[kind][column];
            best = kind;
        }
    return best;
}

static const char *kind_class(int kind)
{
    static const char *const classes[KINDS] = {[LS_ACCOUNT_TP] = "ls-f1",
                                               [LS_ACCOUNT_CP] = "ls-f2",
                                               [LS_ACCOUNT_PP] = "ls-f3",
                                               [LS_ACCOUNT_SHARD] = "ls-f4",
                                               [LS_ACCOUNT_REPLICATE] = "ls-f5",
                                               [LS_ACCOUNT_OPTIMIZER] = "ls-f5",
                                               [LS_ACCOUNT_OTHER] = "ls-f5",
                                               [COMPUTES] = "ls-f0",
                                               [TIERS] = "ls-f2"};
    return classes[kind];
}

static const char *kind_name(int kind)
{
    return kind == COMPUTES ? "computes"
           : kind == TIERS  ? "memory tiers"
                            : ls_account_name((enum ls_account)kind);
}

static void lane_draw(FILE *file, const struct row *row, bool moves, double y, double width)
{
    for (int c = 0; c < COLUMNS;) {
        int kind = shown(row, moves, c, width), end = c + 1;
        while (end < COLUMNS && shown(row, moves, end, width) == kind)
            end++;
        if (kind >= 0)
            ls_picture_rect(file, kind_class(kind), LEFT + c, y, end - c, LANE, kind_name(kind));
        c = end;
    }
}

static bool is_used(const struct timeline *timeline, int kind)
{
    for (int r = 0; r < timeline->count; r++)
        for (int c = 0; c < COLUMNS; c++)
            if (timeline->rows[r].part[kind][c] > 0)
                return true;
    return false;
}

static int by_rank(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

static int timeline_write(const void *context, FILE *file, struct ls_error *error)
{
    const struct timeline *timeline = context;
    char text[128];
    double width = timeline->step_s / COLUMNS, x = LEFT;
    int height = TOP + timeline->count * ROW + 50;
    (void)error;
    snprintf(text, sizeof text, "A step of %.4g s: what ranks compute, and what moves below it",
             timeline->step_s);
    ls_picture_begin(file, LEFT + COLUMNS + 20, height, text);
    ls_picture_text(file, "ls-title", LEFT, 22, "start", "", text);
    for (int kind = KINDS - 1; kind >= 0; kind--) {
        if (!is_used(timeline, kind))
            continue;
        ls_picture_rect(file, kind_class(kind), x, LEGEND + 8, 12, 12, NULL);
        ls_picture_text(file, "ls-text", x + 18, LEGEND + 18, "start", "", kind_name(kind));
        x += 34 + ls_picture_text_width(kind_name(kind));
    }
    for (int r = 0; r < timeline->count; r++) {
        double y = TOP + r * ROW;
        snprintf(text, sizeof text, "rank %ld", (long)timeline->rows[r].rank);
        ls_picture_text(file, "ls-soft", LEFT - 8, y + 13, "end", "", text);
        lane_draw(file, &timeline->rows[r], false, y, width);
        lane_draw(file, &timeline->rows[r], true, y + LANE + 1, width);
    }
    struct ls_scale scale = {
        .low = 0, .high = timeline->step_s, .from = LEFT, .to = LEFT + COLUMNS};
    ls_scale_fit(&scale, 8);
    double bottom = TOP + timeline->count * ROW + 4;
    ls_picture_line(file, "ls-line", LEFT, bottom, LEFT + COLUMNS, bottom);
    for (int i = 0; i < scale.ticks; i++) {
        double at = ls_scale_place(&scale, scale.tick[i]);
        ls_picture_line(file, "ls-line", at, bottom, at, bottom + 4);
        ls_picture_text(file, "ls-soft", at, bottom + 18, "middle", "",
                        ls_scale_label(&scale, scale.tick[i]).text);
    }
    ls_picture_text(file, "ls-soft", LEFT, bottom + 36, "start", "",
                    timeline->left_out ? "seconds; ranks that are alike are drawn once, and some "
                                         "kinds are left out"
                                       : "seconds; ranks that are alike are drawn once");
    ls_picture_end(file);
    return LS_OK;
}

/* ---- the trace --------------------------------------------------------------------------------
 */

static void event_write(void *user, const struct ls_simulated_span *span)
{
    struct timeline *timeline = user;
    int kind = kind_of(span);
    fprintf(timeline->trace,
            "%s{\"name\": \"%s\", \"cat\": \"%s\", \"ph\": \"X\", \"ts\": %.3f, \"dur\": %.3f, "
            "\"pid\": %ld, \"tid\": %d}",
            timeline->first ? "" : ",\n", span->operation ? span->operation : "computes",
            kind_name(kind), span->from_s * 1e6, (span->to_s - span->from_s) * 1e6,
            (long)span->rank, kind == COMPUTES ? 0 : kind + 1);
    timeline->first = false;
}

struct asked {
    struct ls_forecast_ask ask;
    struct timeline *timeline;
};

static int trace_write(const void *context, FILE *file, struct ls_error *error)
{
    const struct asked *asked = context;
    struct ls_forecast forecast;
    struct ls_forecast_ask ask = asked->ask;
    asked->timeline->trace = file;
    asked->timeline->first = true;
    ask.visit = event_write;
    ask.visit_user = asked->timeline;
    fprintf(file, "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n");
    int status = ls_forecast_make(&ask, &forecast, error);
    fprintf(file, "\n]}\n");
    return status;
}

int planned_draw(const struct ls_config *config, const struct ls_cluster *cluster, const char *svg,
                 const char *trace, struct ls_error *error)
{
    struct ls_layout *layout = malloc(sizeof *layout);
    struct row *rows = calloc(ROWS_MAX, sizeof *rows);
    struct timeline timeline = {.rows = rows};
    struct asked asked = {.timeline = &timeline};
    struct ls_forecast forecast;
    int status = layout && rows ? ls_config_layout(config, 0, layout, error)
                                : ls_error_set(error, LS_ENOMEM, "no memory for a picture");
    asked.ask = (struct ls_forecast_ask){.config = config, .layout = layout, .cluster = cluster};
    if (!status && svg) {
        status = ls_forecast_make(&asked.ask, &forecast, error);
        timeline.step_s = forecast.step_s;
        asked.ask.visit = column_fill;
        asked.ask.visit_user = &timeline;
        if (!status)
            status = ls_forecast_make(&asked.ask, &forecast, error);
        qsort(rows, (size_t)timeline.count, sizeof *rows, by_rank);
        if (!status)
            status = ls_file_write(svg, timeline_write, &timeline, error);
    }
    if (!status && trace)
        status = ls_file_write(trace, trace_write, &asked, error);
    free(rows);
    free(layout);
    return status;
}
