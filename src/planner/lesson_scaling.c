/* The lesson of scaling: how much faster 2 to 64 ranks are than one, and what is in the way. */
#include "lesson_private.h"

#include <lockstep/trace/picture.h>

#include <math.h>
#include <stdlib.h>

enum { SIZES = 7 };
static const int64_t ranks[SIZES] = {1, 2, 4, 8, 16, 32, 64};
#define RECIPE                                                                                     \
    "model.preset=llama-1b data.sequence=2048 numerics.leaf_sequences=1 batch.micro=1 "            \
    "batch.global=64"

/* ZeRO 0: every rank updates all parameters; ZeRO 1: each its part. */
enum { WAYS = 2 };
static const char *const ways[WAYS] = {"ZeRO 0", "ZeRO 1"};

struct measured {
    struct ls_forecast forecast[WAYS][SIZES];
    double serial; /* share of one rank's step that ZeRO 0 does not divide */
};

static void way_keys(int way, int64_t n, char *keys, size_t bytes)
{
    if (way == 0 || n == 1)
        snprintf(keys, bytes, RECIPE " parallel.dp_replicate=%ld", (long)n);
    else
        snprintf(keys, bytes, RECIPE " parallel.dp_shard=%ld parallel.zero=1", (long)n);
}

static int forecasts_make(const struct ls_cluster *cluster, struct measured *m,
                          struct ls_error *error)
{
    int status = lesson_room(cluster, "scaling", ranks[SIZES - 1], error);
    for (int way = 0; way < WAYS && !status; way++)
        for (int i = 0; i < SIZES && !status; i++) {
            char keys[512];
            way_keys(way, ranks[i], keys, sizeof keys);
            status = lesson_forecast(cluster, keys, &m->forecast[way][i], error);
        }
    if (!status) {
        const struct ls_forecast *one = &m->forecast[0][0];
        m->serial = (one->work_s[LS_WORK_UPDATE] + one->work_s[LS_WORK_SQUARES]) / one->step_s;
    }
    return status;
}

static double speedup(const struct measured *m, int way, int i)
{
    return m->forecast[way][0].step_s / m->forecast[way][i].step_s;
}
static double amdahl(const struct measured *m, int i)
{
    return ls_amdahl_speedup(1 - m->serial, (double)ranks[i]);
}
/* Than an equal part of one rank's step. */
static double longer(const struct measured *m, int way, int i)
{
    return m->forecast[way][i].step_s - m->forecast[way][0].step_s / (double)ranks[i];
}
static double waits(const struct ls_forecast *f)
{
    return f->exposed_s[LS_ACCOUNT_SHARD] + f->exposed_s[LS_ACCOUNT_REPLICATE] +
           f->exposed_s[LS_ACCOUNT_OTHER];
}

/* ---- the page --------------------------------------------------------------------------------
 */

static void given_print(const struct ls_lesson_page *page, const struct measured *m)
{
    lesson_part(page, "Question");
    lesson_say(page, "The same step on 1, 2, ... 64 ranks of data parallel: how many times faster "
                     "is it, and why not 64 times?");
    lesson_part(page, "Given");
    lesson_say(page, "Llama 1B, a step of 64 sequences of 2,048 tokens, whatever the ranks: 64 "
                     "ranks have one sequence each. bf16, gradients added in fp32.");
    lesson_say_cluster(page);
    lesson_part(page, "Formula");
    fputs("    speed-up = 1 / (s + (1 - s) / n)         Amdahl 1967\n", page->text);
    lesson_say(page,
               "s is the share of one rank's step that does not divide. With ZeRO 0 each rank "
               "updates all parameters: s = %s, the update's share of the forecast of one rank. "
               "Amdahl's law has no communication in it.",
               lesson_percent(m->serial).text);
}

static void numbers_print(const struct ls_lesson_page *page, const struct measured *m)
{
    lesson_part(page, "Numbers: Amdahl's law, and forecasts of the step");
    fprintf(page->text, "  %5s %8s   %-37s %s\n  %5s %8s", "", "", ways[0], ways[1], "ranks",
            "Amdahl");
    for (int way = 0; way < WAYS; way++)
        fprintf(page->text, "   %9s %8s %8s %6s", "a step", "speed-up", "of ideal", "waits");
    fputc('\n', page->text);
    for (int i = 0; i < SIZES; i++) {
        fprintf(page->text, "  %5ld %8.1f", (long)ranks[i], amdahl(m, i));
        for (int way = 0; way < WAYS; way++) {
            const struct ls_forecast *f = &m->forecast[way][i];
            fprintf(page->text, "   %9s %8.1f %8s %6s", lesson_seconds(f->step_s).text,
                    speedup(m, way, i), lesson_percent(speedup(m, way, i) / (double)ranks[i]).text,
                    lesson_percent(waits(f) / f->step_s).text);
        }
        fputc('\n', page->text);
    }
    lesson_say(
        page, "\"waits\": the share of the step in which ranks wait for gradients, with ZeRO 1 for "
              "parameters, for the norm and the loss, with nothing left to compute beside it.");
}

/* Where the time of the last size goes. */
enum { PARTS = 6 };
static const char *const part_names[PARTS] = {
    "a 64th of one rank's step",       "the update, beyond its 64th",
    "copies, beyond their 64th",       "other computing, beyond its 64th",
    "waits for gradients, parameters", "waits for the norm and the loss"};
static void parts_of(const struct measured *m, int way, double parts[PARTS])
{
    const struct ls_forecast *f = &m->forecast[way][SIZES - 1], *one = &m->forecast[way][0];
    double n = (double)ranks[SIZES - 1];
    double update = f->work_s[LS_WORK_UPDATE] + f->work_s[LS_WORK_SQUARES] -
                    (one->work_s[LS_WORK_UPDATE] + one->work_s[LS_WORK_SQUARES]) / n;
    double copies = fmax(f->work_s[LS_WORK_COPY] - one->work_s[LS_WORK_COPY] / n, 0);
    parts[0] = one->step_s / n;
    parts[1] = update;
    parts[2] = copies;
    parts[4] = f->exposed_s[LS_ACCOUNT_SHARD] + f->exposed_s[LS_ACCOUNT_REPLICATE];
    parts[5] = f->exposed_s[LS_ACCOUNT_OTHER];
    parts[3] = f->step_s - parts[0] - update - copies - parts[4] - parts[5];
}

static void parts_print(const struct ls_lesson_page *page, const struct measured *m)
{
    double parts[WAYS][PARTS];
    for (int way = 0; way < WAYS; way++)
        parts_of(m, way, parts[way]);
    lesson_part(page, "Numbers: where the step of 64 ranks goes");
    fprintf(page->text, "  %-34s %10s %10s\n", "", ways[0], ways[1]);
    for (int p = 0; p < PARTS; p++)
        fprintf(page->text, "  %-34s %10s %10s\n", part_names[p], lesson_seconds(parts[0][p]).text,
                lesson_seconds(parts[1][p]).text);
    fprintf(page->text, "  %-34s %10s %10s\n", "in all",
            lesson_seconds(m->forecast[0][SIZES - 1].step_s).text,
            lesson_seconds(m->forecast[1][SIZES - 1].step_s).text);
    lesson_say(page, "\"copies\" are into the buffers that ZeRO sends from, and out of them: more "
                     "ranks do not divide them.");
}

static void answer_print(const struct ls_lesson_page *page, const struct measured *m)
{
    int last = SIZES - 1;
    const struct ls_forecast *zero = &m->forecast[0][last], *one = &m->forecast[1][last];
    char keys[512];
    lesson_part(page, "Answer");
    lesson_say(page,
               "%ld ranks are %.1f times faster with ZeRO 0, where Amdahl's law alone allows %.1f, "
               "and %.1f times with ZeRO 1, which divides the update too. What they take longer "
               "than 1/%ld of one rank's step is %s and %s; of this %s and %s is waiting. What a "
               "rank computes shrinks with the ranks, what it sends (2 (n - 1) / n of all "
               "gradients) does not.",
               (long)ranks[last], speedup(m, 0, last), amdahl(m, last), speedup(m, 1, last),
               (long)ranks[last], lesson_seconds(longer(m, 0, last)).text,
               lesson_seconds(longer(m, 1, last)).text, lesson_seconds(waits(zero)).text,
               lesson_seconds(waits(one)).text);
    lesson_part(page, "Try it");
    lesson_say(page,
               "With four times the sequences a step, is %ld ranks' speed-up larger? Guess, "
               "then compare tokens/s here with batch.global=64 and batch.global=256:",
               (long)ranks[last]);
    way_keys(1, ranks[last], keys, sizeof keys);
    lesson_command(page, "plan %s --accelerators %ld --top 1 --cluster clusters/h100-2048.yaml",
                   keys, (long)ranks[last]);
}

/* ---- the picture -----------------------------------------------------------------------------
 */

static int picture_draw(FILE *file, const struct measured *m, struct ls_error *error)
{
    double x[SIZES], lines[4][SIZES], shares[WAYS][SIZES];
    struct ls_curve speeds[4], waiting[WAYS];
    const char *const legends[4] = {"ideal", "Amdahl's law, ZeRO 0", "forecast, ZeRO 0",
                                    "forecast, ZeRO 1"};
    for (int i = 0; i < SIZES; i++) {
        x[i] = lines[0][i] = (double)ranks[i];
        lines[1][i] = amdahl(m, i);
        for (int way = 0; way < WAYS; way++) {
            const struct ls_forecast *f = &m->forecast[way][i];
            lines[2 + way][i] = speedup(m, way, i);
            shares[way][i] = 100 * waits(f) / f->step_s;
        }
    }
    for (int c = 0; c < 4; c++)
        speeds[c] = (struct ls_curve){
            .legend = legends[c], .series = {x, lines[c], SIZES}, .colour = c == 0 ? 5 : c - 1};
    for (int way = 0; way < WAYS; way++)
        waiting[way] = (struct ls_curve){.series = {x, shares[way], SIZES}, .colour = 1 + way};
    const struct ls_panel panels[] = {
        {.label = "times faster than one rank",
         .curves = speeds,
         .count = 4,
         .height = 280,
         .log = true,
         .whole = true},
        {.label = "waiting, % of a step", .curves = waiting, .count = WAYS, .height = 130}};
    const struct ls_chart chart = {.title = "Llama 1B, 64 sequences a step, on 1 to 64 ranks",
                                   .x_label = "ranks",
                                   .panels = panels,
                                   .count = 2,
                                   .x_whole = true,
                                   .x_log = true};
    return ls_chart_draw(&chart, file, error);
}

int lesson_scaling(const struct ls_lesson_page *page, struct ls_error *error)
{
    struct measured *m = calloc(1, sizeof *m);
    int status = m ? forecasts_make(page->cluster, m, error)
                   : ls_error_set(error, LS_ENOMEM, "no memory for forecasts");
    if (!status) {
        given_print(page, m);
        numbers_print(page, m);
        parts_print(page, m);
        answer_print(page, m);
    }
    if (!status && page->picture)
        status = picture_draw(page->picture, m, error);
    free(m);
    return status;
}
