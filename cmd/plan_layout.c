/* `lockstep plan --layout`: what the configuration's own layout takes on a cluster. No search. */
#include "cmd.h"
#include "planned.h"
#include "rank_start.h"

#include <stdlib.h>
#include <string.h>

/* ---- what is asked --------------------------------------------------------------------------- */

/* A search's options have nothing to choose from here. */
static int goals_check(const struct cmd_args *args, struct ls_error *error)
{
    static const char *const searching[] = {"--goal",    "--accelerators", "--top",
                                            "--seconds", "--apply",        "--explain"};
    for (size_t i = 0; i < sizeof searching / sizeof searching[0]; i++)
        if (cmd_args_given(args, searching[i]))
            return ls_error_set(error, LS_ECONFIG,
                                "--layout forecasts one layout, and %s chooses among many: leave "
                                "one of them out",
                                searching[i]);
    return LS_OK;
}

/* "hosts=4,link.inter=100Gbps": each a figure of the cluster. */
static int figures_change(struct ls_cluster *cluster, const char *text, struct ls_error *error)
{
    int status = LS_OK;
    while (text && *text && !status) {
        char change[2 * LS_CLUSTER_NAME_BYTES];
        size_t length = strcspn(text, ",");
        if (length >= sizeof change)
            return ls_error_set(error, LS_ECONFIG, "--what-if %s: expected FIGURE=VALUE", text);
        memcpy(change, text, length);
        change[length] = '\0';
        status = planned_change(cluster, change, error);
        text += length + (text[length] == ',');
    }
    return status;
}

/* ---- what is shown --------------------------------------------------------------------------- */

static void json_print(const struct ls_layout *layout, const struct ls_forecast *f)
{
    const char *name;
    double value;
    printf("{\"ranks\": %ld, \"accelerators\": %ld, \"micro_batches\": %ld, \"leaves\": %ld",
           (long)f->ranks, (long)f->ranks * f->accelerators, (long)layout->micro_batches,
           (long)layout->ramp.full);
    for (int i = 0; (name = ls_forecast_figure(f, i, &value)); i++)
        printf(", \"%s\": %.17g", name, value);
    printf(", \"fits\": %s", f->fits ? "true" : "false");
    for (int moving = 0; moving < 2; moving++) {
        printf(", \"%s\": {", moving ? "moving_s" : "exposed_s");
        for (int a = 0; a < LS_ACCOUNTS; a++)
            printf("%s\"%s\": %.17g", a ? ", " : "", ls_account_name((enum ls_account)a),
                   moving ? f->moving_s[a] : f->exposed_s[a]);
        printf("}");
    }
    printf(", \"work_s\": {");
    for (int kind = 0; kind < LS_WORK_KINDS; kind++)
        printf("%s\"%s\": %.17g", kind ? ", " : "", ls_work_name((enum ls_work_kind)kind),
               f->work_s[kind]);
    printf("}}\n");
}

static int show(const struct cmd_args *args, const struct ls_forecast_ask *ask,
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

/* ---- the command ----------------------------------------------------------------------------- */

int plan_layout(const struct cmd_args *args, struct ls_error *error)
{
    struct ls_error missing;
    struct ls_config *config = malloc(sizeof *config);
    struct ls_layout *layout = malloc(sizeof *layout);
    struct ls_cluster cluster = {0};
    double tokens = 0;
    int status = config && layout ? goals_check(args, error)
                                  : ls_error_set(error, LS_ENOMEM, "no memory for a layout");
    if (!status)
        status = ranks_plan_config(config, args->word, args->words, &missing, error);
    if (!status)
        status = cmd_args_amount(args, "--tokens", 1e18, &tokens, error);
    if (!status)
        status = planned_cluster(cmd_args_value(args, "--cluster"), config, &cluster, error);
    if (!status)
        status = figures_change(&cluster, cmd_args_value(args, "--what-if"), error);
    if (!status)
        status = ls_config_layout(config, 0, layout, error);
    const struct ls_forecast_ask ask = {.config = config,
                                        .layout = layout,
                                        .cluster = &cluster,
                                        .tokens = tokens,
                                        .extend = true,
                                        .tells = true};
    cmd_progress_begin();
    if (!status)
        status = show(args, &ask, error);
    ls_cluster_release(&cluster);
    free(layout);
    free(config);
    return status;
}
