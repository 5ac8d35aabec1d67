/* The plan of a run under way, and the layout that would be faster where something drifts. */
#include <lockstep/planner/run_plan.h>

#include <lockstep/base/words.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORTH_PERCENT = 3 }; /* less is within what a forecast can tell */

/* A configuration with its layout, and with the threads that its ranks have. */
struct planned {
    struct ls_config config;
    struct ls_layout layout;
};

static int planned_make(const struct ls_config *config, int threads, struct planned *p,
                        struct ls_error *error)
{
    p->config = *config;
    p->config.parallel.threads = threads;
    return ls_config_layout(&p->config, 0, &p->layout, error);
}

/* ---- what steps should take ------------------------------------------------------------------ */

struct stages {
    const struct ls_layout *layout;
    double *seconds; /* [ranks] that were simulated */
};

static void span_visit(void *user, const struct ls_simulated_span *span)
{
    struct stages *stages = user;
    if (span->account < 0 && !span->operation)
        stages->seconds[span->rank] += span->to_s - span->from_s;
}

/* Of a stage the rank that computes most: of those that are alike one was simulated. */
static void stages_set(const struct stages *stages, double *stage_s)
{
    for (int64_t rank = 0; rank < stages->layout->ranks; rank++) {
        int64_t coordinates[LS_AXES];
        ls_layout_coordinates(stages->layout, rank, coordinates);
        double *stage = &stage_s[coordinates[LS_AXIS_PP]];
        *stage = fmax(*stage, stages->seconds[rank]);
    }
}

int ls_run_plan_make(const struct ls_config *config, int threads, const struct ls_cluster *cluster,
                     struct ls_run_plan *plan, struct ls_error *error)
{
    struct planned p;
    struct ls_forecast forecast;
    struct stages stages = {0};
    int status = planned_make(config, threads, &p, error);
    if (!status) {
        stages = (struct stages){&p.layout, calloc((size_t)p.layout.ranks, sizeof(double))};
        if (!stages.seconds)
            status = ls_no_memory(error, "for a plan");
    }
    if (!status) {
        const struct ls_forecast_ask ask = {.config = &p.config,
                                            .layout = &p.layout,
                                            .cluster = cluster,
                                            .visit = span_visit,
                                            .visit_user = &stages};
        status = ls_forecast_make(&ask, &forecast, error);
    }
    if (!status) {
        plan->step_s = forecast.step_s;
        memcpy(plan->exposed_s, forecast.exposed_s, sizeof plan->exposed_s);
        stages_set(&stages, plan->stage_s);
    }
    free(stages.seconds);
    return status;
}

/* ---- what would be faster -------------------------------------------------------------------- */

/* Of moves that were measured, which hold for the innermost link, a slower copy: *moves is to be
 * freed. */
static int moves_slow(struct ls_cluster *cluster, double times, struct ls_measured_move **moves,
                      struct ls_error *error)
{
    size_t bytes = (size_t)cluster->moves_count * sizeof **moves;
    *moves = malloc(bytes + 1);
    if (!*moves)
        return ls_no_memory(error, "for measured moves");
    if (bytes)
        memcpy(*moves, cluster->moves, bytes);
    for (int64_t i = 0; i < cluster->moves_count; i++)
        (*moves)[i].seconds *= times;
    cluster->moves = *moves;
    return LS_OK;
}

/* The link of an axis, as slow as its waits say. */
static int link_slow(const struct planned *p, const struct ls_drift *drift,
                     struct ls_cluster *cluster, struct ls_measured_move **moves,
                     struct ls_error *error)
{
    double share = fmin(fmax(drift->expected_s / drift->took_s, 1e-3), 1);
    int accelerators = ls_forecast_accelerators(cluster, &p->config, &p->layout);
    int level = -1;
    for (int g = 0; g < LS_GROUPS; g++) {
        enum ls_layout_group group = (enum ls_layout_group)g;
        int64_t ranks = ls_group_size(&p->layout, group);
        if ((int64_t)ls_account_of(&p->layout, group) != drift->subject || ranks < 2)
            continue;
        int64_t first = ls_group_member(&p->layout, group, 0, 0);
        int64_t stride = llabs(ls_group_member(&p->layout, group, 0, 1) - first);
        const struct ls_cost_group cost =
            ls_cost_group_of(cluster, accelerators, 0, ranks, ls_max(stride, 1));
        level = (int)ls_max(level, cost.level);
    }
    if (level >= 0)
        cluster->link[level].bytes_per_s *= share;
    return level == 0 ? moves_slow(cluster, 1 / share, moves, error) : LS_OK;
}

/* A run's command line gave it a layout; the advice may be another one. */
static void layout_free(struct ls_config *config)
{
    size_t count;
    const struct ls_config_key *keys = ls_config_keys(&count);
    for (size_t i = 0; i < count; i++)
        if (keys[i].part == LS_CONFIG_LAYOUT && config->origin[i].line == LS_CONFIG_FROM_OVERRIDE)
            config->origin[i].line = 1; /* as a file's */
}

static void advice_write(const struct ls_search *search, const struct ls_forecast *here,
                         struct ls_run_advice *advice)
{
    const struct ls_search_plan *best = &search->plans[0];
    double gain = 100 * (1 - best->forecast.step_s / here->step_s);
    if (gain < WORTH_PERCENT)
        snprintf(advice->text, sizeof advice->text,
                 "by the plan no layout that was looked at is faster than this one by %d %%",
                 WORTH_PERCENT);
    else
        snprintf(advice->text, sizeof advice->text,
                 "by the plan a step takes %s in this layout and %s (-%.0f %%) with %.300s",
                 ls_duration(here->step_s).text, ls_duration(best->forecast.step_s).text, gain,
                 best->keys);
}

int ls_run_plan_advise(const struct ls_config *config, int threads,
                       const struct ls_cluster *cluster, const struct ls_drift *drift,
                       double seconds, struct ls_run_advice *advice, struct ls_error *error)
{
    struct planned p;
    struct ls_cluster changed = *cluster; /* measured rows are borrowed */
    struct ls_measured_move *moves = NULL;
    struct ls_search search = {0};
    struct ls_forecast here;
    int status = planned_make(config, threads, &p, error);
    if (!status)
        layout_free(&p.config);
    if (!status && drift && drift->kind == LS_DRIFT_LINK)
        status = link_slow(&p, drift, &changed, &moves, error);
    if (!status) {
        const struct ls_forecast_ask ask = {
            .config = &p.config, .layout = &p.layout, .cluster = &changed, .extend = true};
        status = ls_forecast_make(&ask, &here, error);
    }
    if (!status) {
        const struct ls_search_options options = {.config = &p.config,
                                                  .cluster = &changed,
                                                  .goal = LS_GOAL_TIME,
                                                  .accelerators =
                                                      p.layout.ranks * here.accelerators,
                                                  .top = 1,
                                                  .seconds = seconds};
        status = ls_search_run(&options, &search, error);
        if (!status)
            advice_write(&search, &here, advice);
        ls_search_release(&search);
    }
    free(moves);
    return status;
}
