/* lockstep plan: the best layouts of a recipe on a cluster, and what they take. Runs nothing. */
#include "cmd.h"
#include "planned.h"
#include "rank_start.h"

#include <lockstep/base/file.h>
#include <lockstep/base/words.h>
#include <lockstep/config.h>
#include <lockstep/planner/lesson.h>

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- what context parallel would give -------------------------------------------------------- */

enum { TILED_SHARE = 4 }; /* of the search's time, which all searches with tiles may take */

/* Sequences in so many tiles, as deep as the accelerators could use, are admitted. */
static bool tiles_are_admitted(const struct ls_search_options *options, int64_t tiles)
{
    const struct ls_config *config = options->config;
    int64_t there = options->cluster->hosts * options->cluster->accelerators;
    int64_t most = options->accelerators ? options->accelerators : there;
    return tiles <= most && !ls_seq_tiles_admit(tiles, config->data.sequence, 1, NULL);
}

/* The best plan of the same search with sequences in tiles; false if none uses them. seconds of
 * search, 0: no limit. */
static bool tiled_search(const struct ls_search_options *options, int64_t tiles, double seconds,
                         struct ls_search_plan *plan)
{
    struct ls_config config = *options->config, planned;
    struct ls_search_options other = *options;
    struct ls_search search = {0};
    config.numerics.seq_tiles = tiles;
    config.numerics.leaf_sequences = 1;
    planned = config;
    other.config = &config;
    other.top = 1;
    other.seconds = seconds;
    bool found = !ls_search_run(&other, &search, NULL) &&
                 !ls_search_apply(&search.plans[0], &planned, NULL) && planned.parallel.cp > 1;
    if (found)
        *plan = search.plans[0];
    ls_search_release(&search);
    return found;
}

/* More tiles admit more cp, and have smaller ops: the number from which on a step only gets
 * longer, with the plan there. 0: tiles give no plan. Each number has half of the time left. */
static int64_t tiles_best(const struct ls_search_options *options, struct ls_search_plan *best)
{
    bool limited = options->seconds > 0;
    double until_s = ls_now_s() + options->seconds / TILED_SHARE;
    int64_t found = 0;
    struct ls_search_plan plan;
    for (int64_t tiles = 2; tiles_are_admitted(options, tiles); tiles *= 2) {
        double left_s = until_s - ls_now_s();
        if (limited && left_s <= 0)
            break;
        if (!tiled_search(options, tiles, limited ? left_s / 2 : 0, &plan))
            continue;
        if (found && plan.forecast.step_s >= best->forecast.step_s)
            break;
        *best = plan;
        found = tiles;
    }
    return found;
}

/* Where sequences are too few for the accelerators, or nothing fits (best NULL): a sentence about
 * what context parallel would give a recipe that does not cut them. false: nothing to say. */
static bool planned_tiles(const struct ls_search_options *options, const struct ls_forecast *best,
                          char *text, size_t bytes)
{
    static const double worth = 0.02; /* of a step */
    const struct ls_config *config = options->config;
    bool pinned = options->pinned && options->pinned(config, "parallel.cp");
    bool enough = best && config->batch.global >= best->ranks * best->accelerators;
    bool leaves = config->numerics.leaf_sequences > 1 &&
                  ls_config_is_given(config, "numerics.leaf_sequences");
    struct ls_search_plan plan;
    int64_t tiles =
        config->numerics.seq_tiles > 1 || pinned || enough ? 0 : tiles_best(options, &plan);
    if (!tiles || (best && plan.forecast.step_s > best->step_s * (1 - worth)))
        return false;
    snprintf(text, bytes,
             "with numerics.seq_tiles=%ld%s (another recipe, other bits) a step would take %.32s: "
             "%s",
             (long)tiles, leaves ? " numerics.leaf_sequences=1" : "",
             ls_duration(plan.forecast.step_s).text, plan.keys);
    return true;
}

/* ---- what is asked --------------------------------------------------------------------------- */

/* A search's options have nothing to choose from here. */
static int goals_check(const struct cmd_args *args, struct ls_error *error)
{
    static const char *const searching[] = {"--goal",  "--within",  "--accelerators",
                                            "--top",   "--seconds", "--forecasts",
                                            "--apply", "--explain"};
    for (size_t i = 0; i < sizeof searching / sizeof searching[0]; i++)
        if (cmd_args_given(args, searching[i]))
            return ls_error_set(error, LS_ECONFIG,
                                "--layout forecasts one layout, and %s chooses among many: leave "
                                "one of them out",
                                searching[i]);
    return LS_OK;
}

/* ---- what is shown --------------------------------------------------------------------------- */

static void json_print(const struct ls_layout *layout, const struct ls_forecast *f)
{
    json_t *json = ls_forecast_json(f);
    json_object_set_new(json, "micro_batches", json_integer(layout->micro_batches));
    json_object_set_new(json, "leaves", json_integer(layout->ramp.full));
    json_dumpf(json, stdout, JSON_REAL_PRECISION(17));
    putchar('\n');
    json_decref(json);
}

static int layout_show(const struct cmd_args *args, const struct ls_forecast_ask *ask,
                       struct ls_error *error)
{
    const struct ls_search_options options = {
        .config = ask->config, .cluster = ask->cluster, .tokens = ask->tokens};
    struct ls_forecast forecast;
    const char *svg = cmd_args_value(args, "--svg"), *trace = cmd_args_value(args, "--trace");
    int status = ls_forecast_make(ask, &forecast, error);
    if (!status)
        status = ls_forecast_run(ask, &forecast, error);
    if (!status && cmd_args_given(args, "--json")) {
        json_print(ask->layout, &forecast);
    } else if (!status) {
        planned_head(&options);
        planned_forecast(&options, ask->config, ask->layout, &forecast);
    }
    if (!status && (svg || trace))
        status = planned_draw(ask->config, ask->cluster, svg, trace, error);
    return status;
}

/* `lockstep plan --layout`: no search; what the configuration's own layout takes. */
static int plan_layout(const struct cmd_args *args, struct ls_error *error)
{
    struct ls_error missing;
    struct ls_config config;
    struct ls_layout layout;
    struct ls_cluster cluster = {0};
    double tokens = 0;
    int status = goals_check(args, error);
    if (!status)
        status = ranks_plan_config(&config, args->word, args->words, &missing, error);
    if (!status)
        status = cmd_args_amount(args, "--tokens", 1e18, &tokens, error);
    if (!status)
        status = planned_cluster(cmd_args_value(args, "--cluster"), &config, &cluster, error);
    if (!status && cmd_args_given(args, "--what-if"))
        status = planned_change(&cluster, cmd_args_value(args, "--what-if"), error);
    if (!status)
        status = ls_config_layout(&config, 0, &layout, error);
    const struct ls_forecast_ask ask = {.config = &config,
                                        .layout = &layout,
                                        .cluster = &cluster,
                                        .tokens = tokens,
                                        .extend = true,
                                        .tells = true};
    cmd_progress_begin();
    if (!status)
        status = layout_show(args, &ask, error);
    ls_cluster_release(&cluster);
    return status;
}

/* ---- lessons --------------------------------------------------------------------------------- */

/* A lesson has its own recipe. */
static int refuse_others(const struct cmd_args *args, struct ls_error *error)
{
    if (args->words)
        return ls_error_set(error, LS_ECONFIG,
                            "%.200s: --lesson has a recipe of its own, and takes --svg and "
                            "--cluster alone",
                            args->word[0]);
    for (int i = 0; args->page->options[i].name; i++) {
        const char *option = args->page->options[i].name;
        if (args->value[i] && !ls_word_among("--lesson|--svg|--cluster", option))
            return ls_error_set(error, LS_ECONFIG, "%s: --lesson takes --svg and --cluster alone",
                                option);
    }
    return LS_OK;
}

struct lesson_asked {
    const struct ls_lesson *lesson;
    struct ls_lesson_ask ask;
};

static int lesson_write(const void *context, FILE *picture, struct ls_error *error)
{
    const struct lesson_asked *asked = context;
    struct ls_lesson_ask ask = asked->ask;
    ask.picture = picture;
    return ls_lesson_run(asked->lesson, &ask, error);
}

/* The page is printed once its picture is written. */
static int lesson_run(struct lesson_asked *asked, const char *svg, struct ls_error *error)
{
    char *page = NULL;
    size_t bytes;
    asked->ask.text = open_memstream(&page, &bytes);
    if (!asked->ask.text)
        return ls_no_memory(error, "for a lesson");
    int status =
        svg ? ls_file_write(svg, lesson_write, asked, error) : lesson_write(asked, NULL, error);
    fclose(asked->ask.text);
    if (!status)
        cmd_print("%s", page);
    if (!status && svg)
        cmd_print("\nwrote %s\n", svg);
    free(page);
    return status;
}

/* The lesson that --lesson names, printed; its picture in --svg's file. */
static int plan_lesson(const struct cmd_args *args, struct ls_error *error)
{
    struct ls_cluster cluster = {0};
    struct lesson_asked asked = {.lesson = NULL};
    const char *path = cmd_args_value(args, "--cluster");
    int status = ls_lesson_find(cmd_args_value(args, "--lesson"), &asked.lesson, error);
    if (!status)
        status = refuse_others(args, error);
    if (!status && path)
        status = ls_cluster_read(path, &cluster, error);
    asked.ask.cluster = path ? &cluster : NULL;
    cmd_progress_begin();
    if (!status)
        status = lesson_run(&asked, cmd_args_value(args, "--svg"), error);
    ls_cluster_release(&cluster);
    return status;
}

enum { TOP = 10, MANY = 2048 };

/* ---- the command ----------------------------------------------------------------------------- */

struct asked {
    struct ls_config config;
    struct ls_cluster cluster;
    struct ls_search_options search;
    const char *explain, *what_if, *apply, *svg, *trace;
};

/* The limit of the search's time, 0: none. */
static int seconds_read(const struct cmd_args *args, double initial, double *seconds,
                        struct ls_error *error)
{
    const char *given = cmd_args_value(args, "--seconds");
    bool unlimited = given && strcmp(given, "unlimited") == 0;
    *seconds = unlimited ? 0 : initial;
    if (!given || unlimited)
        return LS_OK;
    int status = cmd_args_real(args, "--seconds", 0, 1e6, seconds, error);
    if (!status && *seconds == 0)
        status = ls_error_set(error, LS_ECONFIG,
                              "--seconds = %s: expected more than 0, or unlimited, which searches "
                              "until the best is proven optimal",
                              given);
    return status;
}

static int asked_read(const struct cmd_args *args, struct asked *asked, struct ls_error *error)
{
    struct ls_error missing;
    const char *cluster = cmd_args_value(args, "--cluster");
    int64_t top = TOP;
    int goal = LS_GOAL_TIME;
    asked->explain = cmd_args_value(args, "--explain");
    asked->what_if = cmd_args_value(args, "--what-if");
    asked->apply = cmd_args_value(args, "--apply");
    asked->svg = cmd_args_value(args, "--svg");
    asked->trace = cmd_args_value(args, "--trace");
    asked->search = (struct ls_search_options){
        .config = &asked->config, .cluster = &asked->cluster, .pinned = ls_search_given};
    int status = ranks_plan_config(&asked->config, args->word, args->words, &missing, error);
    if (!status)
        status = cmd_args_word(args, "--goal", ls_goals, &goal, error);
    if (!status)
        status = cmd_args_int(args, "--top", 1, LS_SEARCH_TOP_MAX, &top, error);
    if (!status)
        status = cmd_args_amount(args, "--tokens", 1e18, &asked->search.tokens, error);
    if (!status)
        status = cmd_args_time(args, "--within", &asked->search.within_s, error);
    if (!status)
        status =
            cmd_args_int(args, "--accelerators", 1, INT32_MAX, &asked->search.accelerators, error);
    if (!status)
        status = cmd_args_int(args, "--forecasts", 1, INT64_MAX, &asked->search.forecasts, error);
    asked->search.top = (int)top;
    asked->search.goal = (enum ls_goal)goal;
    if (!status && asked->explain)
        status = ls_search_keys_set(&asked->config, asked->explain, error);
    const char *const files[] = {asked->apply, asked->svg, asked->trace};
    for (size_t i = 0; i < sizeof files / sizeof *files && !status; i++)
        status = files[i] ? planned_file_check(files[i], error) : LS_OK;
    if (!status)
        status = planned_cluster(cluster, &asked->config, &asked->cluster, error);
    if (!status && asked->what_if) { /* refused before the search */
        struct ls_cluster changed = asked->cluster;
        status = planned_change(&changed, asked->what_if, error);
    }
    if (!status) {
        int64_t there = asked->cluster.hosts * asked->cluster.accelerators;
        int64_t used = asked->search.accelerators ? asked->search.accelerators : there;
        double initial_s = asked->search.forecasts ? 0 : used > MANY ? 50 : 8;
        status = seconds_read(args, initial_s, &asked->search.seconds, error);
    }
    return status;
}

static int written(const struct asked *asked, const struct ls_search *search,
                   struct ls_error *error)
{
    struct ls_config config = asked->config;
    int status = ls_search_apply(&search->plans[0], &config, error);
    if (!status && asked->apply)
        status = ls_config_save_portable(&config, asked->apply, error);
    if (!status && asked->apply)
        cmd_print("\nwrote %s\n", asked->apply);
    if (!status && (asked->svg || asked->trace))
        status = planned_draw(&config, &asked->cluster, asked->svg, asked->trace, error);
    return status;
}

static int show(struct asked *asked, struct ls_error *error)
{
    struct ls_search search;
    char tiles[LS_SEARCH_KEYS_BYTES + 192];
    double start_s = ls_now_s();
    cmd_progress_begin();
    int status = planned_search(&asked->search, &search, error);
    double took_s = ls_now_s() - start_s;
    bool told = (!status || status == LS_ELAYOUT) && !asked->explain &&
                planned_tiles(&asked->search, status ? NULL : &search.plans[0].forecast, tiles,
                              sizeof tiles);
    if (status && told)
        ls_string_add(error->text, sizeof error->text, "; ", "%.480s", tiles);
    if (!status) {
        planned_head(&asked->search);
        planned_list(&asked->search, &search);
        planned_counts(&asked->search, &search, took_s);
        planned_details(&asked->search, &search.plans[0]);
        if (told)
            cmd_print("\nmore accelerators than sequences: %s\n", tiles);
        status = written(asked, &search, error);
    }
    if (!status && asked->what_if)
        status = planned_what_if(&asked->search, asked->what_if, &search.plans[0], error);
    ls_search_release(&search);
    return status;
}

/* "memoir": neither a file nor a key, but nearly `plan memory`. */
static int word_check(const struct cmd_args *args, struct ls_error *error)
{
    const char *names[] = {"memory"};
    const char *word = args->words ? args->word[0] : "";
    const char *near = *word && !strpbrk(word, "=./") && access(word, F_OK) != 0
                           ? ls_nearest(word, names, 1)
                           : NULL;
    return near ? ls_error_set(error, LS_ECONFIG,
                               "unknown command plan %.100s; did you mean plan %s?", word, near)
                : LS_OK;
}

int cmd_plan(const struct cmd_args *args, struct ls_error *error)
{
    static struct asked asked;
    if (!args->given) {
        cmd_print_page(stderr, args->page);
        return ls_exit_code(LS_ECONFIG);
    }
    int status = word_check(args, error);
    bool fixed = cmd_args_given(args, "--layout");
    if (!status && !fixed && cmd_args_given(args, "--json"))
        status = ls_error_set(error, LS_ECONFIG, "--json prints one layout: give --layout too");
    if (status)
        return status;
    if (cmd_args_given(args, "--lesson"))
        return plan_lesson(args, error);
    if (fixed)
        return plan_layout(args, error);
    asked = (struct asked){0};
    status = asked_read(args, &asked, error);
    if (!status)
        status = show(&asked, error);
    ls_cluster_release(&asked.cluster);
    return status;
}
