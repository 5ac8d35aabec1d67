/* The lesson of memory: 16 bytes a parameter, where they go, and what ZeRO takes off each rank. */
#include "lesson_private.h"

#include <stdlib.h>

enum { RANKS = 4, STAGES = 4 };
static const double parameters = 7e9;
/* Llama 2 7B. */
#define SEVEN                                                                                      \
    "model.arch=llama model.layers=32 model.channels=4096 model.heads=32 model.ffn=11008 "         \
    "model.vocab=32000 model.context=4096 data.sequence=4096 batch.micro=1"

static void seven_keys(int64_t ranks, int zero, char *keys, size_t bytes)
{
    snprintf(keys, bytes, SEVEN " batch.global=%ld parallel.dp_shard=%ld parallel.zero=%d",
             (long)ranks, (long)ranks, zero);
}

int ls_lesson_seven(int64_t ranks, int zero, struct ls_config *config, struct ls_error *error)
{
    char keys[512];
    seven_keys(ranks, zero, keys, sizeof keys);
    return lesson_config(keys, config, error);
}

/* ---- the textbook -----------------------------------------------------------------------------
 */

/* Bytes a parameter. A stage divides one more part by the ranks: what it takes off tells the part.
 */
struct parts {
    double parameters, gradients, optimizer;
};
static struct parts parts_whole(void)
{
    double shared = (RANKS - 1.0) / RANKS, at[STAGES];
    for (int zero = 0; zero < STAGES; zero++)
        at[zero] = ls_zero_state_bytes(zero, RANKS);
    return (struct parts){.optimizer = (at[0] - at[1]) / shared,
                          .gradients = (at[1] - at[2]) / shared,
                          .parameters = (at[2] - at[3]) / shared};
}
static struct parts parts_of(int zero)
{
    struct parts parts = parts_whole();
    parts.optimizer /= zero >= 1 ? RANKS : 1;
    parts.gradients /= zero >= 2 ? RANKS : 1;
    parts.parameters /= zero >= 3 ? RANKS : 1;
    return parts;
}

static void given_print(const struct ls_lesson_page *page)
{
    lesson_part(page, "Question");
    lesson_say(page,
               "A model of %.0f billion parameters is trained with Adam in mixed precision on %d "
               "ranks. What does each rank keep of it, at ZeRO 0, 1, 2 and 3?",
               parameters / 1e9, RANKS);
    lesson_part(page, "Given");
    lesson_say(page,
               "N = %.3g parameters, d = %d ranks; parameters and gradients in 16 bits; Adam keeps "
               "in 32 bits a master of each parameter, its momentum and its variance.",
               parameters, RANKS);
    lesson_say_cluster(page);
    lesson_part(page, "Formula");
    lesson_say(page, "Bytes a parameter on each rank (Rajbhandari et al. 2020, ZeRO, figure 1):");
    fputs("    ZeRO 0   2 + 2 + 12\n"
          "    ZeRO 1   2 + 2 + 12 / d       the optimizer's state is cut\n"
          "    ZeRO 2   2 + (2 + 12) / d     and the gradients\n"
          "    ZeRO 3   (2 + 2 + 12) / d     and the parameters\n",
          page->text);
}

static void sixteen_print(const struct ls_lesson_page *page)
{
    const struct parts parts = parts_whole();
    const struct {
        const char *name;
        double bytes;
    } rows[] = {
        {"parameters, 16 bits", parts.parameters},  {"gradients, 16 bits", parts.gradients},
        {"masters, 32 bits", parts.optimizer / 3},  {"momentum, 32 bits", parts.optimizer / 3},
        {"variance, 32 bits", parts.optimizer / 3}, {"in all", ls_zero_state_bytes(0, 1)}};
    lesson_part(page, "Numbers: where 16 bytes a parameter go");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        fprintf(page->text, "  %-22s %3.0f bytes %12s\n", rows[i].name, rows[i].bytes,
                lesson_gb(rows[i].bytes * parameters).text);
}

static void textbook_print(const struct ls_lesson_page *page)
{
    double room = page->cluster->accelerator.memory_bytes;
    lesson_part(page, "Numbers: the state of a rank, by the formula");
    fprintf(page->text, "  %-8s %12s %12s %12s %12s %12s   %s\n", "", "parameters", "gradients",
            "optimizer", "in all", "sent a step", "fits");
    for (int zero = 0; zero < STAGES; zero++) {
        const struct parts parts = parts_of(zero);
        double all = parameters * ls_zero_state_bytes(zero, RANKS);
        fprintf(page->text, "  ZeRO %-3d %12s %12s %12s %12s %12s   %s\n", zero,
                lesson_gb(parameters * parts.parameters).text,
                lesson_gb(parameters * parts.gradients).text,
                lesson_gb(parameters * parts.optimizer).text, lesson_gb(all).text,
                lesson_gb(2 * parameters * ls_zero_sent_elements(zero, RANKS)).text,
                all <= room ? "yes" : "no");
    }
    lesson_say(page,
               "\"sent\" is by each rank, 2 (d - 1) / d elements a parameter and at ZeRO 3 half as "
               "much again (ZeRO, section 7). \"fits\" is into %s, without activations.",
               lesson_gb(room).text);
}

/* ---- Lockstep's own plan ----------------------------------------------------------------------
 */

struct own {
    struct ls_memory_plan plan[STAGES];
    double parameters;
};

static int own_make(struct own *own, struct ls_error *error)
{
    struct ls_config *config = malloc(sizeof *config);
    struct ls_layout *layout = malloc(sizeof *layout);
    int status =
        config && layout ? LS_OK : ls_error_set(error, LS_ENOMEM, "no memory for a layout");
    for (int zero = 0; zero < STAGES && !status; zero++) {
        status = ls_lesson_seven(RANKS, zero, config, error);
        if (!status)
            status = ls_config_layout(config, 0, layout, error);
        if (!status)
            status = ls_plan_rank(config, layout, 0, &own->plan[zero], error);
        if (!status)
            own->parameters = ls_forecast_parameters(config);
    }
    free(config);
    free(layout);
    return status;
}

static double state_of(const struct ls_memory_plan *plan)
{
    return (double)plan->bytes[LS_MEMORY_PARAMETERS] + (double)plan->bytes[LS_MEMORY_GRADIENTS] +
           (double)plan->bytes[LS_MEMORY_OPTIMIZER];
}

static void own_print(const struct ls_lesson_page *page, const struct own *own)
{
    lesson_part(page, "Numbers: what Lockstep allocates, to the byte, for Llama 2 7B");
    fprintf(page->text, "  %-8s %12s %12s %12s %12s %12s %12s\n", "", "parameters", "gradients",
            "optimizer", "state", "the formula", "with all");
    for (int zero = 0; zero < STAGES; zero++) {
        const struct ls_memory_plan *plan = &own->plan[zero];
        fprintf(page->text, "  ZeRO %-3d %12s %12s %12s %12s %12s %12s\n", zero,
                lesson_gb((double)plan->bytes[LS_MEMORY_PARAMETERS]).text,
                lesson_gb((double)plan->bytes[LS_MEMORY_GRADIENTS]).text,
                lesson_gb((double)plan->bytes[LS_MEMORY_OPTIMIZER]).text,
                lesson_gb(state_of(plan)).text,
                lesson_gb(own->parameters * ls_zero_state_bytes(zero, RANKS)).text,
                lesson_gb((double)plan->total).text);
    }
    lesson_say(
        page,
        "It has %.2f billion parameters: the formula here is for these. Four things "
        "differ. Gradients are summed in 32 bits, so that no layout changes a bit: 4 bytes "
        "and not 2. ZeRO 1 scatters them as soon as they are made, as ZeRO 2 does, so both "
        "take the same. Masters are counted with the parameters. And \"with all\" has what the "
        "formula leaves out: activations of one sequence of 4,096 tokens, the work area of "
        "a layer, buffers for what is sent.",
        own->parameters / 1e9);
}

static void answer_print(const struct ls_lesson_page *page, const struct own *own)
{
    double first = parameters * ls_zero_state_bytes(0, RANKS);
    double last = parameters * ls_zero_state_bytes(STAGES - 1, RANKS);
    char keys[512];
    lesson_part(page, "Answer");
    lesson_say(page,
               "%s on each rank without ZeRO, %s with ZeRO 1, %s with ZeRO 2, %s with ZeRO 3: %.0f "
               "times less, for %s sent a step and not %s. Lockstep takes %s and %s of state.",
               lesson_gb(first).text, lesson_gb(parameters * ls_zero_state_bytes(1, RANKS)).text,
               lesson_gb(parameters * ls_zero_state_bytes(2, RANKS)).text, lesson_gb(last).text,
               first / last, lesson_gb(2 * parameters * ls_zero_sent_elements(3, RANKS)).text,
               lesson_gb(2 * parameters * ls_zero_sent_elements(0, RANKS)).text,
               lesson_gb(state_of(&own->plan[0])).text,
               lesson_gb(state_of(&own->plan[STAGES - 1])).text);
    lesson_part(page, "Try it");
    lesson_say(page,
               "What does each of %d ranks keep at ZeRO 3, and at ZeRO 1? Work it out, then "
               "read the state and the textbook's in:",
               2 * RANKS);
    seven_keys((int64_t)2 * RANKS, STAGES - 1, keys, sizeof keys);
    lesson_command(page, "plan memory %s --explain", keys);
}

static void picture_draw(const struct ls_lesson_page *page, const struct own *own)
{
    struct lesson_bars bars = {.title = "7 billion parameters on 4 ranks: the state of a rank",
                               .axis = "GB",
                               .legends = {"parameters", "gradients", "optimizer"},
                               .part_count = 3,
                               .limit = page->cluster->accelerator.memory_bytes / 1e9,
                               .limit_text = "one accelerator"};
    for (int zero = 0; zero < STAGES; zero++) {
        const struct parts parts = parts_of(zero);
        const struct ls_memory_plan *plan = &own->plan[zero];
        double each = parameters / 1e9;
        struct lesson_bar *book = &bars.bar[bars.count++], *here = &bars.bar[bars.count++];
        *book = (struct lesson_bar){
            .parts = {each * parts.parameters, each * parts.gradients, each * parts.optimizer}};
        *here = (struct lesson_bar){.parts = {(double)plan->bytes[LS_MEMORY_PARAMETERS] / 1e9,
                                              (double)plan->bytes[LS_MEMORY_GRADIENTS] / 1e9,
                                              (double)plan->bytes[LS_MEMORY_OPTIMIZER] / 1e9}};
        snprintf(book->label, sizeof book->label, "ZeRO %d, 7B by the formula", zero);
        snprintf(here->label, sizeof here->label, "ZeRO %d, Llama 2 7B here", zero);
        snprintf(book->note, sizeof book->note, "%s",
                 lesson_gb(parameters * ls_zero_state_bytes(zero, RANKS)).text);
        snprintf(here->note, sizeof here->note, "%s", lesson_gb(state_of(plan)).text);
    }
    lesson_bars_draw(&bars, page->picture);
}

int lesson_memory(const struct ls_lesson_page *page, struct ls_error *error)
{
    struct own own;
    int status = own_make(&own, error);
    if (status)
        return status;
    given_print(page);
    sixteen_print(page);
    textbook_print(page);
    own_print(page, &own);
    answer_print(page, &own);
    picture_draw(page, &own);
    return LS_OK;
}
