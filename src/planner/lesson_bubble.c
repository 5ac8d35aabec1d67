/* The lesson of the bubble: how long pipeline stages wait, by formula and by the schedule's table.
 */
#include "lesson_private.h"

#include <lockstep/trace/picture.h>

#include <math.h>
#include <stdlib.h>

enum { STAGES = 32, CHUNKS = 2, SMALL = 4, SMALL_MICRO = 16, CURVE = 320, ROWS = 4 };
static const int64_t micro_batches[ROWS] = {8, 16, 32, 64};
static const double goal = 0.9;

/* F, I and W take equally long. */
static const struct ls_pass_times times = {1, 1, 1};
enum { KINDS = 3 };
static const struct {
    enum ls_schedule_kind kind;
    int chunks;
    const char *name;
} kinds[KINDS] = {
    {LS_SCHEDULE_1F1B, 1, "1F1B"},
    {LS_SCHEDULE_INTERLEAVED, CHUNKS, "interleaved, 2 chunks"},
    {LS_SCHEDULE_ZB_H1, 1, "ZB-H1"},
};

/* NaN where the closed form does not hold. */
static double by_formula(int k, int64_t ranks, int64_t m)
{
    bool holds = kinds[k].kind == LS_SCHEDULE_INTERLEAVED ? m % ranks == 0
                 : kinds[k].kind == LS_SCHEDULE_ZB_H1     ? m >= ranks
                                                          : true;
    return holds ? 1 - ls_bubble_share(kinds[k].kind, ranks, kinds[k].chunks, m, times)
                 : (double)NAN;
}

/* The same of the table that a run carries out, against a clock. */
static int by_table(int k, int ranks, int64_t m, double *efficiency, struct ls_error *error)
{
    struct ls_schedule table;
    struct ls_schedule_figures figures;
    const struct ls_schedule_costs costs = {
        .all = {times.forward, times.backward_input, times.backward_weight}};
    int status = ls_schedule_generate(&table, kinds[k].kind, ranks, kinds[k].chunks, m, error);
    if (status)
        return status;
    status = ls_schedule_simulate(&table, &costs, &figures, error);
    if (!status) {
        *efficiency = 1 - figures.bubble;
        ls_schedule_figures_release(&figures);
    }
    ls_schedule_release(&table);
    return status;
}

/* The fewest micro-batches with which the table has at least the goal: more never make it less. */
static int fewest_find(int k, int64_t *fewest, struct ls_error *error)
{
    int64_t low = 0, high = CURVE; /* too few, enough */
    while (high - low > 1) {
        int64_t m = (low + high) / 2;
        double efficiency;
        int status = by_table(k, STAGES, m, &efficiency, error);
        if (status)
            return status;
        *(efficiency >= goal - 1e-9 ? &high : &low) = m;
    }
    *fewest = high;
    return LS_OK;
}

/* ---- the page --------------------------------------------------------------------------------
 */

static void given_print(const struct ls_lesson_page *page)
{
    lesson_part(page, "Question");
    lesson_say(page,
               "A model is cut into %d pipeline stages. Which share of a step do they work with 8, "
               "16, 32 and 64 micro-batches, and from how many on at least %.0f %%?",
               STAGES, 100 * goal);
    lesson_part(page, "Given");
    lesson_say(page,
               "p = %d stages that take equally long, m micro-batches; a forward takes 1, a "
               "backward 2 (1 for the input's gradient, 1 for the weights'); messages take "
               "no time.",
               STAGES);
    lesson_part(page, "Formula");
    lesson_say(page, "GPipe and 1F1B: the last micro-batch reaches the last stage after p - 1 "
                     "others have gone ahead, so a step lasts as long as m + p - 1 micro-batches:");
    fputs("    efficiency = m / (m + p - 1)             Huang et al. 2019; Narayanan et al. 2021, "
          "2.2.1\n",
          page->text);
    lesson_say(page, "With v chunks on each rank, interleaved, the wait is v times shorter (p "
                     "divides m). ZB-H1 fills most of it with the weights' gradients (m >= p):");
    fputs("    interleaved  m v / (m v + p - 1)         Narayanan et al. 2021, 2.2.2\n"
          "    ZB-H1        3 m / (3 m + p - 1)         Qi et al. 2023, section 2\n",
          page->text);
}

static int numbers_row(const struct ls_lesson_page *page, int64_t m, struct ls_error *error)
{
    fprintf(page->text, "  %6ld", (long)m);
    for (int k = 0; k < KINDS; k++) {
        double table;
        int status = by_table(k, STAGES, m, &table, error);
        if (status)
            return status;
        fprintf(page->text, "   %10s %10s", lesson_percent(by_formula(k, STAGES, m)).text,
                lesson_percent(table).text);
    }
    fputc('\n', page->text);
    return LS_OK;
}

static int numbers_print(const struct ls_lesson_page *page, const int64_t fewest[KINDS],
                         struct ls_error *error)
{
    lesson_part(page, "Numbers: the share of a step in which stages work, by formula and by table");
    fprintf(page->text, "  %6s", "");
    for (int k = 0; k < KINDS; k++)
        fprintf(page->text, "   %-*s", k < KINDS - 1 ? 21 : 0, kinds[k].name);
    fprintf(page->text, "\n  %6s", "m");
    for (int k = 0; k < KINDS; k++)
        fprintf(page->text, "   %10s %10s", "formula", "table");
    fputc('\n', page->text);
    int status = LS_OK;
    for (int i = 0; i < ROWS && !status; i++)
        status = numbers_row(page, micro_batches[i], error);
    for (int k = KINDS - 1; k >= 0 && !status; k--)
        status = numbers_row(page, fewest[k], error);
    lesson_say(
        page,
        "\"table\" is the schedule as Lockstep runs it, action by action, carried out "
        "against a clock. Where the formula does not hold there is a dash. The last three rows "
        "are the fewest micro-batches of each schedule that reach %.0f %%.",
        100 * goal);
    return status;
}

/* 84.2 %, not 78.9 %. */
static int small_print(const struct ls_lesson_page *page, struct ls_error *error)
{
    double m = SMALL_MICRO, p = SMALL, table, share = ls_pipeline_efficiency(SMALL, SMALL_MICRO);
    int status = by_table(0, SMALL, SMALL_MICRO, &table, error);
    if (status)
        return status;
    double fewer = (m - 1) / (m + p - 1);
    lesson_part(page, "A number that is often copied");
    lesson_say(page,
               "%d micro-batches on %d stages: %d / %d = %s, and by the table %s. A page that is "
               "widely read has %s: that is %d / %d, one micro-batch too few, as if each stage "
               "waited p slots. It waits p - 1: stage r begins r slots late and ends p - 1 - r "
               "slots early, so each has all of its %d slots of work within the %d of the step.",
               SMALL_MICRO, SMALL, SMALL_MICRO, SMALL_MICRO + SMALL - 1, lesson_percent(share).text,
               lesson_percent(table).text, lesson_percent(fewer).text, SMALL_MICRO - 1,
               SMALL_MICRO + SMALL - 1, SMALL_MICRO, SMALL_MICRO + SMALL - 1);
    lesson_say(page,
               "The bubble also has two names: (p - 1) / m = %s is its share of the ideal time, "
               "and (p - 1) / (m + p - 1) = %s of the whole step. Only the second is 1 - "
               "efficiency.",
               lesson_percent((p - 1) / m).text, lesson_percent(1 - share).text);
    struct ls_schedule schedule;
    const struct ls_schedule_costs costs = {.all = {1, 1, 1}};
    status = ls_schedule_generate(&schedule, LS_SCHEDULE_1F1B, SMALL, 1, SMALL, error);
    if (status)
        return status;
    lesson_say(page, "A smaller one to count: 1F1B, %d stages, %d micro-batches.", SMALL, SMALL);
    status = ls_schedule_print(&schedule, &costs, 0, 96, page->text, error);
    ls_schedule_release(&schedule);
    return status;
}

static void answer_print(const struct ls_lesson_page *page, const int64_t fewest[KINDS])
{
    double share[ROWS];
    for (int i = 0; i < ROWS; i++)
        share[i] = by_formula(0, STAGES, micro_batches[i]);
    lesson_part(page, "Answer");
    lesson_say(page,
               "%s, %s, %s and %s; 1F1B works at least %.0f %% of the time from %ld micro-batches "
               "on, interleaved with %d chunks from %ld, ZB-H1 from %ld.",
               lesson_percent(share[0]).text, lesson_percent(share[1]).text,
               lesson_percent(share[2]).text, lesson_percent(share[3]).text, 100 * goal,
               (long)fewest[0], CHUNKS, (long)fewest[1], (long)fewest[2]);
    lesson_part(page, "Try it");
    lesson_say(page,
               "How many micro-batches do 8 stages need for 90 %% with 1F1B? Work it out, put "
               "it in place of 56 and read the bubble \"if all stages were equal\"; then try "
               "parallel.schedule=zb-h1 with a third of it:");
    lesson_command(page, "layout model.preset=gpt2-774m data.sequence=1024 batch.micro=1 "
                         "parallel.pp=8 batch.global=56");
}

/* ---- the picture -----------------------------------------------------------------------------
 */

/* One curve by formula, where it holds, and dots by table. */
struct curve {
    double x[CURVE], y[CURVE];
    size_t count;
};
struct curves {
    struct curve formula[KINDS], table[KINDS], goal;
};

static void point_add(struct curve *curve, int64_t m, double efficiency)
{
    curve->x[curve->count] = (double)m;
    curve->y[curve->count++] = 100 * efficiency;
}

static int curves_fill(struct curves *curves, struct ls_error *error)
{
    for (int k = 0; k < KINDS; k++) {
        for (int64_t m = 1; m <= CURVE; m++)
            if (isfinite(by_formula(k, STAGES, m)))
                point_add(&curves->formula[k], m, by_formula(k, STAGES, m));
        for (int i = 0; i < ROWS; i++) {
            double table;
            int status = by_table(k, STAGES, micro_batches[i], &table, error);
            if (status)
                return status;
            point_add(&curves->table[k], micro_batches[i], table);
            point_add(&curves->table[k], micro_batches[i], (double)NAN); /* dots, no line */
        }
    }
    point_add(&curves->goal, 1, goal);
    point_add(&curves->goal, CURVE, goal);
    return LS_OK;
}

static struct ls_curve shown(struct curve *curve, const char *legend, int colour)
{
    return (struct ls_curve){
        .legend = legend, .series = {curve->x, curve->y, curve->count}, .colour = colour};
}

static int picture_draw(FILE *file, struct ls_error *error)
{
    struct curves *curves = calloc(1, sizeof *curves);
    struct ls_curve all[2 * KINDS + 1];
    if (!curves)
        return ls_error_set(error, LS_ENOMEM, "no memory for curves");
    int status = curves_fill(curves, error);
    for (int k = 0; k < KINDS; k++) {
        all[k] = shown(&curves->formula[k], kinds[k].name, k);
        all[KINDS + k] = shown(&curves->table[k], NULL, k);
    }
    all[2 * KINDS] = shown(&curves->goal, "90 %", 5);
    const struct ls_panel panel = {
        .label = "working, % of a step", .curves = all, .count = 2 * KINDS + 1, .height = 320};
    const struct ls_chart chart = {.title =
                                       "32 stages: lines by formula, dots by the schedule's table",
                                   .x_label = "micro-batches of a step",
                                   .panels = &panel,
                                   .count = 1,
                                   .x_whole = true};
    if (!status)
        status = ls_chart_draw(&chart, file, error);
    free(curves);
    return status;
}

int lesson_bubble(const struct ls_lesson_page *page, struct ls_error *error)
{
    int64_t fewest[KINDS];
    int status = LS_OK;
    for (int k = 0; k < KINDS && !status; k++)
        status = fewest_find(k, &fewest[k], error);
    if (status)
        return status;
    given_print(page);
    status = numbers_print(page, fewest, error);
    if (!status)
        status = small_print(page, error);
    if (!status)
        answer_print(page, fewest);
    if (!status && page->picture)
        status = picture_draw(page->picture, error);
    return status;
}
