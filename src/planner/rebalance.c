/* The split of layers by what stages were measured to take. */
#include <lockstep/planner/rebalance.h>

#include <lockstep/base/median.h>
#include <lockstep/parallel/stage_times.h>
#include <lockstep/train/fit.h>

#include <stdio.h>

enum { STAGES_MAX = LS_LAYOUT_LAYERS_MAX + 2 };

/* A layout's stages: what their layers cost, and how long its pipeline ranks take for that. */
struct measured {
    struct ls_layout layout;
    double layer[STAGES_MAX]; /* cost */
    double times[STAGES_MAX]; /* [pipeline ranks] seconds of a step for a layer of cost 1 */
};

static double stage_cost(const struct measured *m, const struct ls_layout *layout, int64_t stage)
{
    double cost = 0;
    for (int l = layout->stage_first[stage]; l < layout->stage_first[stage + 1]; l++)
        cost += m->layer[l];
    return cost;
}

/* False: a stage has no operations by which to know it. */
static bool measured_set(struct measured *m, const double *stage_s)
{
    const struct ls_layout *layout = &m->layout;
    double cost[STAGES_MAX] = {0};
    for (int64_t l = 0; l < layout->model.layers + 2; l++)
        m->layer[l] = ls_layer_flops_per_token(&layout->model, l, layout->sequence);
    for (int64_t s = 0; s < layout->stages; s++)
        cost[layout->stage_rank[s]] += stage_cost(m, layout, s);
    for (int64_t pp = 0; pp < layout->size[LS_AXIS_PP]; pp++) {
        if (!(cost[pp] > 0 && stage_s[pp] > 0))
            return false;
        m->times[pp] = stage_s[pp] / cost[pp];
    }
    return true;
}

static void slowest_find(const struct measured *m, struct ls_rebalance *found)
{
    int64_t stages = m->layout.size[LS_AXIS_PP], others = 0;
    double rest[STAGES_MAX];
    for (int64_t pp = 1; pp < stages; pp++)
        found->stage = m->times[pp] > m->times[found->stage] ? pp : found->stage;
    for (int64_t pp = 0; pp < stages; pp++)
        if (pp != found->stage)
            rest[others++] = m->times[pp];
    ls_sort(rest, others);
    found->above = m->times[found->stage] / rest[(others - 1) / 2] - 1;
}

/* Seconds of a step by its schedule; 0: it has none. A third each: the forward, and both halves of
 * the backward. */
static int schedule_length(const struct measured *m, const struct ls_layout *layout, double *length,
                           struct ls_error *error)
{
    enum { PASSES = 3 };
    struct ls_stage_cost costs[STAGES_MAX];
    struct ls_schedule_figures figures = {0};
    struct ls_schedule table;
    for (int64_t s = 0; s < layout->stages; s++) {
        double each = stage_cost(m, layout, s) * m->times[layout->stage_rank[s]] /
                      (double)(PASSES * layout->micro_batches);
        costs[s] = (struct ls_stage_cost){each, each, each};
    }
    int status = ls_layout_table(layout, layout->micro_batches, &table, error);
    if (status)
        return status;
    status =
        ls_schedule_simulate(&table, &(struct ls_schedule_costs){.stage = costs}, &figures, error);
    *length = figures.makespan;
    ls_schedule_figures_release(&figures);
    ls_schedule_release(&table);
    return status;
}

/* The split's text; "": there is none, or it is the one that is there. */
static int split_find(const struct measured *m, char *split, size_t bytes, struct ls_error *error)
{
    const struct ls_layout *layout = &m->layout;
    double times[STAGES_MAX];
    int64_t first[STAGES_MAX + 1];
    bool same = true;
    for (int64_t s = 0; s < layout->stages; s++)
        times[s] = m->times[layout->stage_rank[s]];
    int status = ls_stage_split_timed(m->layer, layout->model.layers + 2, times, layout->stages,
                                      first, error);
    for (int64_t s = 0; s < layout->stages && !status; s++)
        same = same && first[s] == layout->stage_first[s];
    if (status || same || !ls_stage_split_text(first, layout->stages, split, bytes))
        split[0] = '\0';
    return status;
}

static int fits(const struct ls_config *config, const struct ls_layout *layout, int64_t slots,
                bool *yes, struct ls_error *error)
{
    struct ls_memory_fit fit;
    int status = ls_memory_fit(config, layout, NULL, &fit, error);
    *yes = !status && ls_memory_keeps_budget(config, &fit) &&
           (fit.machine.total <= 0 || fit.rank_bytes * slots <= fit.machine.total);
    return status;
}

/* What a step takes with found->split, which goes where it does not fit. */
static int split_judge(const struct measured *m, const struct ls_config *config, int64_t slots,
                       struct ls_rebalance *found, struct ls_error *error)
{
    struct ls_config changed = *config;
    struct ls_layout layout;
    double now = 0, then = 0;
    bool yes = false;
    snprintf(changed.parallel.split, sizeof changed.parallel.split, "%s", found->split);
    int status = ls_config_layout(&changed, 0, &layout, error);
    if (!status)
        status = fits(&changed, &layout, slots, &yes, error);
    if (!status && yes)
        status = schedule_length(m, &m->layout, &now, error);
    if (!status && yes)
        status = schedule_length(m, &layout, &then, error);
    if (status || !yes || !(then < now))
        found->split[0] = '\0';
    else
        found->share = then / now;
    return status;
}

int ls_rebalance_find(const struct ls_config *config, const double *stage_s, int64_t slots,
                      struct ls_rebalance *found, struct ls_error *error)
{
    struct measured m;
    *found = (struct ls_rebalance){.share = 1};
    int status = ls_config_layout(config, 0, &m.layout, error);
    if (status || m.layout.size[LS_AXIS_PP] == 1 || !measured_set(&m, stage_s))
        return status;
    slowest_find(&m, found);
    status = split_find(&m, found->split, sizeof found->split, error);
    return status || !found->split[0] ? status : split_judge(&m, config, slots, found, error);
}
