/* The lesson of 3D parallelism: 405B on 2,048 accelerators, one axis after the other. */
#include "lesson_private.h"

#include <lockstep/planner/search.h>

#include <math.h>
#include <stdlib.h>

enum { RANKS = 2048, CHUNKS = 2 };
/* What all layouts have: a model of 405 billion, 16.8 million tokens a step. */
#define RECIPE                                                                                     \
    "model.preset=llama-405b data.sequence=8192 batch.global=2048 numerics.leaf_sequences=1"
#define CUT RECIPE " batch.micro=1 memory.recompute=full"

/* The ladder: each step says what it asks. */
static const struct step {
    const char *name;
    int64_t pp, shard, tp;
    int zero;
} steps[] = {
    {"dp alone", 1, 2048, 1, 3},   {"tp 2", 1, 1024, 2, 3},
    {"tp 4", 1, 512, 4, 3},        {"tp 8", 1, 256, 8, 3},
    {"tp 16", 1, 128, 16, 3},      {"tp 8, pp 4", 4, 64, 8, 3},
    {"tp 8, pp 16", 16, 16, 8, 3}, {"tp 8, pp 16, ZeRO 1", 16, 16, 8, 1},
};
/* BOOK: the cut of most publications. */
enum { STEPS = sizeof steps / sizeof steps[0], BOOK = STEPS - 1 };

struct ladder {
    struct ls_forecast forecast[STEPS];
    int best; /* of those that fit; -1: none does */
};

static void step_keys(const struct step *step, char *keys, size_t bytes)
{
    snprintf(keys, bytes,
             CUT " parallel.tp=%ld parallel.pp=%ld parallel.dp_shard=%ld parallel.zero=%d%s%s",
             (long)step->tp, (long)step->pp, (long)step->shard, step->zero,
             step->pp > 1 ? " parallel.schedule=interleaved parallel.chunks=2" : "",
             step->tp > 8 ? " numerics.tp_tiles=16" : ""); /* by default tp has at most 8 */
}

static int ladder_make(const struct ls_cluster *cluster, struct ladder *ladder,
                       struct ls_error *error)
{
    int status = lesson_room(cluster, "3d", RANKS, error);
    ladder->best = -1;
    for (int i = 0; i < STEPS && !status; i++) {
        char keys[512];
        step_keys(&steps[i], keys, sizeof keys);
        struct ls_forecast *f = &ladder->forecast[i];
        status = lesson_forecast(cluster, keys, f, error);
        if (!status && f->fits &&
            (ladder->best < 0 || f->step_s < ladder->forecast[ladder->best].step_s))
            ladder->best = i;
    }
    return status;
}

static double tp_s(const struct ls_forecast *f)
{
    return f->exposed_s[LS_ACCOUNT_TP];
}
static double dp_s(const struct ls_forecast *f)
{
    return f->exposed_s[LS_ACCOUNT_SHARD] + f->exposed_s[LS_ACCOUNT_REPLICATE];
}
static double pp_s(const struct ls_forecast *f)
{
    return f->exposed_s[LS_ACCOUNT_PP];
}

/* ---- the page --------------------------------------------------------------------------------
 */

static int given_print(const struct ls_lesson_page *page, struct ls_error *error)
{
    struct ls_config *config = malloc(sizeof *config);
    int status = config ? lesson_config(RECIPE, config, error)
                        : ls_error_set(error, LS_ENOMEM, "no memory for a configuration");
    if (!status) {
        double n = ls_forecast_parameters(config), state = n * ls_zero_state_bytes(0, 1);
        double room = page->cluster->accelerator.memory_bytes;
        lesson_part(page, "Question");
        lesson_say(page,
                   "How are %.0f billion parameters trained on %d accelerators: how much "
                   "data parallel, tensor parallel, pipeline, and why?",
                   n / 1e9, RANKS);
        lesson_part(page, "Given");
        lesson_say(page, "Llama 405B, a step of 2,048 sequences of 8,192 tokens, bf16, blocks "
                         "recomputed in full, micro-batches of one sequence.");
        lesson_say_cluster(page);
        lesson_part(page, "Formula");
        fputs("    ranks = tp x pp x dp                     Narayanan et al. 2021, section 3\n"
              "    state = 16 N / (tp pp dp) with ZeRO 3    Rajbhandari et al. 2020\n",
              page->text);
        lesson_say(page,
                   "The state alone is %s: it takes %.0f accelerators of %s, and with all %d each "
                   "has %s of it. What is left has to hold activations, and each axis has a price. "
                   "dp: every rank sends %s a step with ZeRO 3 and tp = pp = 1, and the step has "
                   "to be as many sequences. tp: the ranks of a block meet in each block, many "
                   "times. pp: stages wait for each other, (p - 1) / (m v + p - 1) of a step.",
                   lesson_gb(state).text, ceil(state / room), lesson_gb(room).text, RANKS,
                   lesson_gb(n * ls_zero_state_bytes(3, RANKS)).text,
                   lesson_gb(2 * n * ls_zero_sent_elements(3, RANKS)).text);
    }
    free(config);
    return status;
}

static void numbers_print(const struct ls_lesson_page *page, const struct ladder *ladder)
{
    lesson_part(page, "Numbers: forecasts of a step");
    fprintf(page->text, "  %-20s %4s %4s %5s %4s %9s %8s %7s %7s %7s %7s\n", "", "tp", "pp", "dp",
            "ZeRO", "memory", "a step", "MFU", "tp", "pp", "dp");
    for (int i = 0; i < STEPS; i++) {
        const struct ls_forecast *f = &ladder->forecast[i];
        fprintf(page->text, "  %-20s %4ld %4ld %5ld %4d %9s %8s %7s %7s %7s %7s%s\n", steps[i].name,
                (long)steps[i].tp, (long)steps[i].pp, (long)steps[i].shard, steps[i].zero,
                lesson_gb(f->device_bytes).text, lesson_seconds(f->step_s).text,
                lesson_percent(f->mfu).text, lesson_percent(tp_s(f) / f->step_s).text,
                lesson_percent(pp_s(f) / f->step_s).text, lesson_percent(dp_s(f) / f->step_s).text,
                f->fits ? "" : "  does not fit");
    }
    lesson_say(page,
               "The last three are shares of the step in which ranks wait for tp, for other "
               "stages and for dp, with nothing to hide it. Pipelines here are interleaved, "
               "%d chunks.",
               CHUNKS);
}

/* What step `after` is beside step `before`. */
static void reason_print(const struct ls_lesson_page *page, const struct ladder *ladder, int before,
                         int after, const char *why)
{
    const struct ls_forecast *a = &ladder->forecast[before], *b = &ladder->forecast[after];
    lesson_say(page,
               "%s -> %s: memory %s -> %s%s, a step %s -> %s (%+.1f %%), waits for tp %s -> %s, "
               "for other stages %s -> %s, for dp %s -> %s. %s",
               steps[before].name, steps[after].name, lesson_gb(a->device_bytes).text,
               lesson_gb(b->device_bytes).text,
               a->fits == b->fits ? ""
               : b->fits          ? ", now it fits"
                                  : ", no longer fits",
               lesson_seconds(a->step_s).text, lesson_seconds(b->step_s).text,
               100 * (b->step_s / a->step_s - 1), lesson_seconds(tp_s(a)).text,
               lesson_seconds(tp_s(b)).text, lesson_seconds(pp_s(a)).text,
               lesson_seconds(pp_s(b)).text, lesson_seconds(dp_s(a)).text,
               lesson_seconds(dp_s(b)).text, why);
}

static void reasons_print(const struct ls_lesson_page *page, const struct ladder *ladder)
{
    lesson_part(page, "Why, one axis after the other");
    reason_print(page, ladder, 0, 1,
                 "dp cuts the state, but not what one sequence takes: activations, the work area "
                 "of a layer, the layer that is gathered. tp cuts these.");
    reason_print(
        page, ladder, 1, 3,
        "More tp takes less memory and has smaller products, and ranks meet in every block. "
        "It also leaves fewer copies, so each rank has more micro-batches, and ZeRO 3 "
        "gathers the parameters again for each.");
    reason_print(page, ladder, 3, 4,
                 page->cluster->link[0].joins < steps[4].tp
                     ? "The fast link joins fewer than 16: the same bytes go over a slower one, so "
                       "tp ends where the fast link does."
                     : "Here one link joins all 16.");
    reason_print(page, ladder, 3, 6,
                 "Stages send each other one activation of a micro-batch. A rank has fewer layers, "
                 "so less to gather for each; but stages wait for each other.");
    reason_print(page, ladder, 6, 7,
                 "With so few layers on a rank there is room for all their parameters: ZeRO 1 "
                 "gathers them once a step, not for each micro-batch.");
}

static void answer_print(const struct ls_lesson_page *page, const struct ladder *ladder)
{
    lesson_part(page, "Answer");
    if (ladder->best < 0) {
        lesson_say(page, "None of these fits into this cluster's accelerators.");
    } else {
        const struct ls_forecast *best = &ladder->forecast[ladder->best],
                                 *book = &ladder->forecast[BOOK];
        lesson_say(page,
                   "Of these %s is the fastest that fits: %s a step, %s of peak. %s is %s, and "
                   "takes %s of a rank where the first takes %s: room for longer sequences, or for "
                   "less recomputation. With fewer sequences a step dp has to shrink, and pp and "
                   "tp take its place.",
                   steps[ladder->best].name, lesson_seconds(best->step_s).text,
                   lesson_percent(best->mfu).text, steps[BOOK].name,
                   ladder->best == BOOK ? "that one" : ls_search_reason(best, book).text,
                   lesson_gb(book->device_bytes).text, lesson_gb(best->device_bytes).text);
    }
    lesson_part(page, "Try it");
    lesson_say(page,
               "These are %d of many thousand layouts. Which is the best of all, and what "
               "changes with 512 sequences a step?",
               STEPS);
    lesson_command(page, "plan " RECIPE " --cluster clusters/h100-2048.yaml");
}

static void picture_draw(const struct ls_lesson_page *page, const struct ladder *ladder)
{
    struct lesson_bars bars = {
        .title = "405B on 2,048 accelerators: where a step goes",
        .axis = "seconds",
        .legends = {"computing", "waits for tp", "waits for stages", "waits for dp", "other"},
        .part_count = 5};
    for (int i = 0; i < STEPS; i++) {
        const struct ls_forecast *f = &ladder->forecast[i];
        struct lesson_bar *bar = &bars.bar[bars.count++];
        double known = f->compute_s + tp_s(f) + pp_s(f) + dp_s(f);
        *bar = (struct lesson_bar){.parts = {f->compute_s, tp_s(f), pp_s(f), dp_s(f),
                                             f->step_s > known ? f->step_s - known : 0}};
        snprintf(bar->label, sizeof bar->label, "%s", steps[i].name);
        snprintf(bar->note, sizeof bar->note, "%s%s", lesson_seconds(f->step_s).text,
                 f->fits ? "" : ", too large");
    }
    lesson_bars_draw(&bars, page->picture);
}

int lesson_3d(const struct ls_lesson_page *page, struct ls_error *error)
{
    struct ladder *ladder = calloc(1, sizeof *ladder);
    int status = ladder ? ladder_make(page->cluster, ladder, error)
                        : ls_error_set(error, LS_ENOMEM, "no memory for forecasts");
    if (!status)
        status = given_print(page, error);
    if (!status) {
        numbers_print(page, ladder);
        reasons_print(page, ladder);
        answer_print(page, ladder);
        picture_draw(page, ladder);
    }
    free(ladder);
    return status;
}
