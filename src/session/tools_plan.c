/* The verbs plan and layout: the best layouts of a recipe on a cluster, and what one is. */
#include "session/tools.h"

#include <lockstep/planner.h>
#include <lockstep/train/fit.h>
#include <lockstep/train/memory.h>
#include <lockstep/train/recorded.h>

#include <stdlib.h>

/* ---- a plan ---------------------------------------------------------------------------------- */

struct planning {
    struct ls_session *session;
    struct ls_config config;
    struct ls_cluster cluster;
    struct ls_search_options search;
    bool layout, draw;
};

static int planning_read(struct planning *p, struct ls_error *error)
{
    const char *cluster = NULL;
    int64_t top = 10;
    double within_days = 0;
    int goal = LS_GOAL_TIME;
    const struct option options[] = {
        {"goal", .word = &goal, .words = ls_goals},
        {"top", .whole = &top, .least = 1, .most = LS_SEARCH_TOP_MAX},
        {"accelerators", .whole = &p->search.accelerators, .least = 1, .most = INT32_MAX},
        {"tokens", .real = &p->search.tokens},
        {"within_days", .real = &within_days},
        {"seconds", .real = &p->search.seconds},
        {"layout", .flag = &p->layout},
        {"draw", .flag = &p->draw},
        {"cluster", .text = &cluster},
        {0}};
    p->search.seconds = 8;
    int status = options_read(&p->session->order, options, error);
    if (!status)
        status = tool_config(p->session, true, &p->config, error);
    p->search.within_s = 86400 * within_days;
    p->search.goal = (enum ls_goal)goal;
    p->search.top = (int)top;
    if (status)
        return status;
    return cluster ? ls_cluster_read(cluster, &p->cluster, error)
                   : ls_measure_here(&p->config, &p->cluster, error);
}

static json_t *plan_json(const struct planning *p, const struct ls_search *search, int i)
{
    const struct ls_search_plan *plan = &search->plans[i];
    json_t *json = json_object();
    json_object_set_new(json, "keys", json_string(plan->keys));
    json_object_set_new(json, "forecast", ls_forecast_json(&plan->forecast));
    json_object_set_new(json, "value", real_json(ls_search_value(&p->search, &plan->forecast)));
    if (i > 0)
        json_object_set_new(
            json, "reason",
            json_string(ls_search_reason(&search->plans[0].forecast, &plan->forecast).text));
    return json;
}

static int draw(const void *context, FILE *file, struct ls_error *error)
{
    const struct planning *p = context;
    return ls_timeline_draw(&p->config, &p->cluster, file, error);
}

/* Of a configuration in its layout. */
static int finish(struct planning *p, struct ls_error *error)
{
    char *yaml = NULL;
    int status = ls_config_text(&p->config, &yaml, error);
    if (!status)
        answer_set(p->session, "yaml", json_string(yaml));
    free(yaml);
    answer_set(p->session, "cluster", json_string(p->cluster.name));
    answer_set(p->session, "goal", json_string(ls_word_of(ls_goals, p->search.goal)));
    if (!status && p->draw)
        status = tool_answer_text(p->session, "svg", draw, p, error);
    return status;
}

static int searched_answer(struct planning *p, const struct ls_search *search,
                           struct ls_error *error)
{
    json_t *plans = json_array();
    for (int i = 0; i < search->count; i++)
        json_array_append_new(plans, plan_json(p, search, i));
    answer_set(p->session, "plans", plans);
    answer_set(p->session, "candidates", json_integer(search->candidates));
    answer_set(p->session, "refused", json_integer(search->refused));
    answer_set(p->session, "too_large", json_integer(search->too_large));
    answer_set(p->session, "simulated", json_integer(search->simulated));
    answer_set(p->session, "unproven", json_integer(search->unproven));
    answer_set(p->session, "unlisted", json_integer(search->unlisted));
    int status = ls_search_apply(&search->plans[0], &p->config, error);
    return status ? status : finish(p, error);
}

static int best_find(struct planning *p, struct ls_error *error)
{
    struct ls_search search = {0};
    p->search.config = &p->config;
    p->search.cluster = &p->cluster;
    p->search.pinned = ls_search_given;
    int status = ls_search_run(&p->search, &search, error);
    if (!status)
        status = searched_answer(p, &search, error);
    ls_search_release(&search);
    return status;
}

/* The configuration's own layout. */
static int own_forecast(struct planning *p, struct ls_error *error)
{
    struct ls_layout layout;
    struct ls_forecast forecast;
    const struct ls_forecast_ask ask = {.config = &p->config,
                                        .layout = &layout,
                                        .cluster = &p->cluster,
                                        .tokens = p->search.tokens,
                                        .extend = true,
                                        .tells = true};
    int status = ls_config_layout(&p->config, 0, &layout, error);
    if (!status)
        status = ls_forecast_make(&ask, &forecast, error);
    if (!status)
        status = ls_forecast_run(&ask, &forecast, error);
    if (status)
        return status;
    char keys[LS_SEARCH_KEYS_BYTES];
    ls_config_layout_text(&p->config, NULL, keys, sizeof keys);
    json_t *plan = json_object();
    json_object_set_new(plan, "keys", json_string(keys));
    json_object_set_new(plan, "forecast", ls_forecast_json(&forecast));
    answer_set(p->session, "plans", json_pack("[o]", plan));
    return finish(p, error);
}

static int plan_alone(struct ls_session *s, struct ls_error *error)
{
    struct planning p = {.session = s};
    int status = planning_read(&p, error);
    if (!status)
        status = p.layout ? own_forecast(&p, error) : best_find(&p, error);
    ls_cluster_release(&p.cluster);
    return status;
}

/* ---- a layout -------------------------------------------------------------------------------- */

static json_t *axes_json(const struct ls_layout *layout)
{
    json_t *axes = json_object();
    for (int axis = 0; axis < LS_AXES; axis++)
        json_object_set_new(axes, ls_axis_name((enum ls_layout_axis)axis),
                            json_integer(layout->size[axis]));
    return axes;
}

static json_t *groups_json(const struct ls_layout *layout)
{
    enum { MEMBERS_MAX = 4096 };
    json_t *groups = json_array();
    for (int g = 0; g < LS_GROUPS; g++) {
        enum ls_layout_group group = (enum ls_layout_group)g;
        int64_t size = ls_group_size(layout, group);
        if (size == 1)
            continue;
        json_t *members = json_array();
        for (int64_t i = 0; i < ls_min(size, MEMBERS_MAX); i++)
            json_array_append_new(members, json_integer(ls_group_member(layout, group, 0, i)));
        json_array_append_new(groups,
                              json_pack("{s:s,s:I,s:I,s:o}", "name", ls_group_name(group), "size",
                                        (json_int_t)size, "groups",
                                        (json_int_t)(layout->ranks / size), "members", members));
    }
    return groups;
}

static json_t *stages_json(const struct ls_layout *layout)
{
    struct ls_stage_cost costs[LS_LAYOUT_LAYERS_MAX + 2];
    json_t *stages = json_array();
    double total = 0;
    ls_layout_stage_costs(layout, costs);
    for (int64_t i = 0; i < layout->stages; i++)
        total += costs[i].forward;
    for (int64_t i = 0; i < layout->stages; i++)
        json_array_append_new(stages, json_pack("{s:i,s:i,s:i,s:f}", "pp", layout->stage_rank[i],
                                                "first", layout->stage_first[i], "last",
                                                layout->stage_first[i + 1] - 1, "share",
                                                costs[i].forward / total));
    return stages;
}

static json_t *bytes_json(const size_t bytes[LS_MEMORY_KINDS], size_t all)
{
    json_t *json = json_object();
    for (int kind = 0; kind < LS_MEMORY_KINDS; kind++)
        json_object_set_new(json, ls_memory_name((enum ls_memory_kind)kind),
                            json_integer((json_int_t)bytes[kind]));
    json_object_set_new(json, "all", json_integer((json_int_t)all));
    return json;
}

/* What the ranks of a pipeline rank send and keep. */
static int pp_rank_json(const struct ls_config *config, const struct ls_layout *layout, int64_t pp,
                        json_t **out, struct ls_error *error)
{
    struct ls_memory_plan plan;
    struct ls_memory_moment peak;
    int64_t bytes[LS_ACCOUNTS], rank = ls_layout_first_rank(layout, pp);
    int status = ls_plan_rank(config, layout, rank, &plan, error);
    if (!status)
        status = ls_memory_peak(config, layout, rank, &peak, error);
    if (!status)
        status = ls_record_bytes(config, layout, rank, bytes, error);
    if (status)
        return status;
    json_t *sends = json_object();
    for (int a = 0; a < LS_ACCOUNTS; a++)
        json_object_set_new(sends, ls_account_name((enum ls_account)a), json_integer(bytes[a]));
    *out = json_pack("{s:I,s:I,s:o,s:o,s:I,s:I,s:I,s:i,s:o,s:s}", "pp", (json_int_t)pp, "rank",
                     (json_int_t)rank, "sends", sends, "memory", bytes_json(plan.bytes, plan.total),
                     "host", (json_int_t)plan.tiers[LS_TIER_HOST], "file",
                     (json_int_t)plan.tiers[LS_TIER_FILE], "rollout", (json_int_t)plan.rollout,
                     "live", plan.live, "peak", bytes_json(peak.bytes, peak.all), "peak_at",
                     ls_memory_moment_text(&peak).text);
    return LS_OK;
}

static int pp_ranks_answer(struct ls_session *s, const struct ls_config *config,
                           const struct ls_layout *layout, struct ls_error *error)
{
    json_t *ranks = json_array(), *one;
    int status = LS_OK;
    for (int64_t pp = 0; pp < layout->size[LS_AXIS_PP] && !status; pp++) {
        status = pp_rank_json(config, layout, pp, &one, error);
        if (!status)
            json_array_append_new(ranks, one);
    }
    answer_set(s, "pp_ranks", ranks);
    return status;
}

static int schedule_answer(struct ls_session *s, const struct ls_layout *layout,
                           struct ls_error *error)
{
    struct ls_stage_cost stage[LS_LAYOUT_LAYERS_MAX + 2];
    struct ls_schedule_costs costs = {.stage = stage};
    struct ls_schedule_figures figures;
    struct ls_schedule table;
    int status = ls_layout_table(layout, layout->micro_batches, &table, error);
    if (status)
        return status;
    ls_layout_stage_costs(layout, stage);
    status = ls_schedule_simulate(&table, &costs, &figures, error);
    if (!status) {
        answer_set(s, "bubble", real_json(figures.bubble));
        ls_schedule_figures_release(&figures);
    }
    answer_set(s, "schedule",
               json_string(layout->schedule == LS_LAYOUT_CSV
                               ? layout->schedule_file
                               : ls_schedule_name((enum ls_schedule_kind)layout->schedule)));
    ls_schedule_release(&table);
    return status;
}

/* Of a run that takes steps as it is told to (ls_run_open). */
static int fit_answer(struct ls_session *s, const struct ls_config *given,
                      const struct ls_layout *layout, struct ls_error *error)
{
    static const char *const words[] = {
        [LS_FITS] = "fits", [LS_FITS_NOT_NOW] = "not now", [LS_FITS_NOT] = "no"};
    struct ls_memory_fit fit;
    struct ls_config config = *given;
    config.checkpoint.async = false;
    int status = ls_memory_fit(&config, layout, NULL, &fit, error);
    if (!status)
        answer_set(s, "here",
                   json_pack("{s:I,s:I,s:I,s:s}", "bytes", (json_int_t)fit.bytes, "total",
                             (json_int_t)fit.machine.total, "free", (json_int_t)fit.machine.free,
                             "fits", words[ls_memory_fits(&fit)]));
    return status;
}

static int check_answer(struct ls_session *s, const struct ls_config *config,
                        const struct ls_layout *layout, struct ls_error *error)
{
    struct ls_layout_proof proof;
    int status = ls_layout_check(config, layout, true, &proof, error);
    if (!status)
        answer_set(s, "proof",
                   json_pack("{s:I,s:I,s:I,s:I}", "ranks", (json_int_t)proof.ranks, "groups",
                             (json_int_t)proof.groups, "collectives", (json_int_t)proof.collectives,
                             "messages", (json_int_t)proof.messages));
    return status;
}

struct drawn {
    const struct ls_config *config;
    const struct ls_layout *layout;
};

static int schedule_draw(const void *context, FILE *file, struct ls_error *error)
{
    return ls_layout_draw_schedule(((const struct drawn *)context)->layout, 0, file, error);
}

static int memory_draw(const void *context, FILE *file, struct ls_error *error)
{
    const struct drawn *drawn = context;
    return ls_memory_draw(drawn->config, drawn->layout, 0, 0, file, error);
}

static int layout_answer(struct ls_session *s, const struct ls_config *config,
                         const struct ls_layout *layout, struct ls_error *error)
{
    bool check = false, pictures = false;
    const struct option options[] = {{"check", .flag = &check}, {"draw", .flag = &pictures}, {0}};
    const struct drawn drawn = {config, layout};
    int status = options_read(&s->order, options, error);
    answer_set(s, "ranks", json_integer(layout->ranks));
    answer_set(s, "axes", axes_json(layout));
    answer_set(s, "zero", json_integer(layout->zero));
    answer_set(s, "sp", json_boolean(layout->sp));
    answer_set(s, "micro_batches", json_integer(layout->micro_batches));
    answer_set(s, "batches", json_string(ls_layout_batches(layout).text));
    answer_set(s, "note", json_string(layout->note));
    answer_set(s, "groups", groups_json(layout));
    answer_set(s, "stages", stages_json(layout));
    if (!status)
        status = schedule_answer(s, layout, error);
    if (!status)
        status = pp_ranks_answer(s, config, layout, error);
    if (!status)
        status = fit_answer(s, config, layout, error);
    if (!status && check)
        status = check_answer(s, config, layout, error);
    if (!status && pictures)
        status = tool_answer_text(s, "schedule_svg", schedule_draw, &drawn, error);
    if (!status && pictures)
        status = tool_answer_text(s, "memory_svg", memory_draw, &drawn, error);
    return status;
}

static int layout_alone(struct ls_session *s, struct ls_error *error)
{
    struct ls_config config;
    struct ls_layout layout;
    int status = tool_config(s, true, &config, error);
    if (!status)
        status = ls_config_layout(&config, 0, &layout, error);
    if (!status)
        status = ls_config_rollout_check(&config, ls_config_ranks(&config), NULL, error);
    return status ? status : layout_answer(s, &config, &layout, error);
}

const struct verb verbs_plan[] = {
    {"plan", "config|keys|cluster|goal|top|accelerators|tokens|within_days|seconds|layout|draw", "",
     VERB_ALONE, .alone = plan_alone},
    {"layout", "config|keys|check|draw", "", VERB_ALONE, .alone = layout_alone},
    {0}};
