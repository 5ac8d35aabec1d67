/* lockstep plan: the best layouts of a recipe on a cluster, and what they take. Runs nothing. */
#include "cmd.h"
#include "plan_lesson.h"
#include "planned.h"
#include "rank_start.h"

#include <lockstep/base/words.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TOP = 10, MANY = 2048 };

/* ---- the command ----------------------------------------------------------------------------- */

struct asked {
    struct ls_config config;
    struct ls_cluster cluster;
    struct ls_search_options search;
    const char *explain, *what_if, *apply, *svg, *trace;
};

/* "pp=8,tp=8": keys of the layout, "parallel." may be left out. */
static int keys_set(struct ls_config *config, const char *text, struct ls_error *error)
{
    int status = LS_OK;
    while (*text && !status) {
        char word[LS_CONFIG_TEXT_BYTES];
        int length = (int)strcspn(text, ", ");
        bool bare = !memchr(text, '.', strcspn(text, "="));
        snprintf(word, sizeof word, "%s%.*s", bare ? "parallel." : "", length, text);
        if (length > 0)
            status = ls_config_set(config, word, error);
        text += length + (text[length] != '\0');
    }
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
    asked->search = (struct ls_search_options){.config = &asked->config,
                                               .cluster = &asked->cluster,
                                               .pinned = planned_given(&asked->config)};
    int status = ranks_plan_config(&asked->config, args->word, args->words, &missing, error);
    if (!status)
        status = cmd_args_word(args, "--goal", ls_goals, &goal, error);
    if (!status)
        status = cmd_args_int(args, "--top", 1, LS_SEARCH_TOP_MAX, &top, error);
    if (!status)
        status = cmd_args_amount(args, "--tokens", 1e18, &asked->search.tokens, error);
    if (!status)
        status =
            cmd_args_int(args, "--accelerators", 1, INT32_MAX, &asked->search.accelerators, error);
    asked->search.top = (int)top;
    asked->search.goal = (enum ls_goal)goal;
    double seconds = 0;
    if (!status && asked->explain)
        status = keys_set(&asked->config, asked->explain, error);
    if (!status)
        status = planned_cluster(cluster, &asked->config, &asked->cluster, error);
    if (!status && asked->what_if) { /* refused before the search */
        struct ls_cluster changed = asked->cluster;
        status = planned_change(&changed, asked->what_if, error);
    }
    if (!status) {
        int64_t there = asked->cluster.hosts * asked->cluster.accelerators;
        seconds = (asked->search.accelerators ? asked->search.accelerators : there) > MANY ? 50 : 8;
        status = cmd_args_real(args, "--seconds", 0, 1e6, &seconds, error);
        asked->search.seconds = seconds;
    }
    return status;
}

static int written(const struct asked *asked, const struct ls_search *search,
                   struct ls_error *error)
{
    struct ls_config *config = malloc(sizeof *config);
    if (!config)
        return ls_error_set(error, LS_ENOMEM, "no memory for a configuration");
    *config = asked->config;
    int status = ls_search_apply(&search->plans[0], config, error);
    if (!status && asked->apply)
        status = ls_config_save_portable(config, asked->apply, error);
    if (!status && asked->apply)
        cmd_print("\nwrote %s\n", asked->apply);
    if (!status && (asked->svg || asked->trace))
        status = planned_draw(config, &asked->cluster, asked->svg, asked->trace, error);
    free(config);
    return status;
}

static int show(struct asked *asked, struct ls_error *error)
{
    struct ls_search search;
    char tiles[LS_CONFIG_TEXT_BYTES + 128];
    double start_s = ls_now_s();
    cmd_progress_begin();
    int status = ls_search_run(&asked->search, &search, error);
    double took_s = ls_now_s() - start_s;
    bool told = (!status || status == LS_ELAYOUT) && !asked->explain &&
                planned_tiles(&asked->search, status ? NULL : &search.plans[0].forecast, tiles,
                              sizeof tiles);
    if (status && told) {
        size_t used = strlen(error->text);
        snprintf(error->text + used, sizeof error->text - used, "; %.480s", tiles);
    }
    if (!status) {
        planned_head(&asked->search);
        planned_list(&asked->search, &search);
        planned_counts(&search, took_s);
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
