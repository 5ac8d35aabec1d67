/* What the formulas of lessons call: closed forms, schedule tables, memory plans, forecasts. */
#include "planner/lesson_private.h"

#include <math.h>
#include <string.h>

/* ---- cases ----------------------------------------------------------------------------------- */

int lesson_config(const char *keys, struct ls_config *config, struct ls_error *error)
{
    int status = LS_OK;
    ls_config_defaults(config);
    while (*keys && !status) {
        char word[256];
        size_t length = strcspn(keys, " ");
        snprintf(word, sizeof word, "%.*s", (int)length, keys);
        status = ls_config_set(config, word, error);
        keys += length + (keys[length] == ' ');
    }
    return status ? status : ls_config_resolve(config, 0, error);
}

static int result_make(struct lesson_page *page, struct ls_config *config, struct lesson_result *r)
{
    struct ls_layout layout;
    struct ls_memory_plan plan;
    const struct ls_forecast_ask ask = {.config = config,
                                        .layout = &layout,
                                        .cluster = page->cluster,
                                        .extend = true,
                                        .tells = true};
    int status = ls_config_layout(config, 0, &layout, page->error);
    if (!status && page->lesson->forecasts)
        status = ls_forecast_make(&ask, &r->forecast, page->error);
    if (!status)
        status = ls_plan_rank(config, &layout, 0, &plan, page->error);
    if (status)
        return status;
    r->parameters = ls_forecast_parameters(config);
    r->flops = ls_model_flops_per_token(&config->model, config->data.sequence);
    r->ranks = (double)layout.ranks;
    r->tp = (double)layout.size[LS_AXIS_TP];
    r->pp = (double)layout.size[LS_AXIS_PP];
    r->dp = (double)layout.size[LS_AXIS_DP_SHARD];
    r->zero = layout.zero;
    r->fits = r->forecast.fits;
    r->taken = (double)plan.total;
    for (int kind = 0; kind < LS_MEMORY_KINDS; kind++)
        r->held[kind] = (double)plan.bytes[kind];
    return LS_OK;
}

void lesson_case(struct lesson_page *page, const char *line)
{
    struct ls_config config;
    const char *keys = strchr(line, ':') + 2;
    LS_ASSERT(page->result_count < LESSON_CASES_MAX);
    struct lesson_result *r = &page->results[page->result_count++];
    r->name = line;
    if (!page->status)
        page->status = lesson_config(lesson_expand(page, keys).text, &config, page->error);
    if (!page->status)
        page->status = result_make(page, &config, r);
}

/* The fastest case that fits; -1: none does. */
static int best(const struct lesson_page *page)
{
    int found = -1;
    for (int i = 0; i < page->result_count; i++) {
        const struct ls_forecast *f = &page->results[i].forecast;
        if (f->fits && (found < 0 || f->step_s < page->results[found].forecast.step_s))
            found = i;
    }
    return found;
}

struct ls_reason lesson_reason(const struct lesson_page *page, int i)
{
    int first = best(page);
    if (first == i)
        return (struct ls_reason){"that one"};
    return ls_search_reason(&page->results[first].forecast, &page->results[i].forecast);
}

/* ---- pipelines ------------------------------------------------------------------------------- */

/* F, I and W take equally long. */
static const struct ls_pass_times times = {1, 1, 1};
static const struct ls_schedule_costs costs = {.all = {1, 1, 1}};
static const struct {
    enum ls_schedule_kind kind;
    int chunks;
} kinds[] = {{LS_SCHEDULE_1F1B, 1}, {LS_SCHEDULE_INTERLEAVED, 2}, {LS_SCHEDULE_ZB_H1, 1}};

/* The share of a step in which stages work; NaN if the closed form does not hold. */
static double formula(int k, int64_t p, int64_t m)
{
    bool holds = kinds[k].kind == LS_SCHEDULE_INTERLEAVED ? m % p == 0
                 : kinds[k].kind == LS_SCHEDULE_ZB_H1     ? m >= p
                                                          : true;
    return holds ? 1 - ls_bubble_share(kinds[k].kind, p, kinds[k].chunks, m, times) : (double)NAN;
}

/* The same of the table that a run carries out, against a clock. */
static double table(struct lesson_page *page, int k, int p, int64_t m)
{
    struct ls_schedule schedule;
    struct ls_schedule_figures figures;
    double efficiency = 0;
    if (!page->status)
        page->status =
            ls_schedule_generate(&schedule, kinds[k].kind, p, kinds[k].chunks, m, page->error);
    if (page->status)
        return 0;
    page->status = ls_schedule_simulate(&schedule, &costs, &figures, page->error);
    if (!page->status) {
        efficiency = 1 - figures.bubble;
        ls_schedule_figures_release(&figures);
    }
    ls_schedule_release(&schedule);
    return efficiency;
}

/* Micro-batches with which the table has the goal: more never make it less. */
static double fewest(struct lesson_page *page, int k, int p, double goal)
{
    int low = 0, high = 512; /* too few, enough */
    while (high - low > 1) {
        int m = (low + high) / 2;
        *(table(page, k, p, m) >= goal - 1e-9 ? &high : &low) = m;
    }
    return high;
}

void lesson_schedule(struct lesson_page *page, int stages)
{
    struct ls_schedule schedule;
    if (!page->status)
        page->status =
            ls_schedule_generate(&schedule, LS_SCHEDULE_1F1B, stages, 1, stages, page->error);
    if (page->status)
        return;
    page->status = ls_schedule_print(&schedule, &costs, 0, 96, page->text, page->error);
    ls_schedule_release(&schedule);
}

/* ---- by name --------------------------------------------------------------------------------- */

#define FIELD(name, of)                                                                            \
    {                                                                                              \
        name, offsetof(struct lesson_result, of)                                                   \
    }
/* Of case i. */
static const struct {
    const char *name;
    size_t offset;
} fields[] = {
    FIELD("parameters", parameters),
    FIELD("flops", flops),
    FIELD("ranks", ranks),
    FIELD("tp_ranks", tp),
    FIELD("pp_ranks", pp),
    FIELD("dp_ranks", dp),
    FIELD("zero", zero),
    FIELD("fits", fits),
    FIELD("masters", held[LS_MEMORY_PARAMETERS]),
    FIELD("gradients", held[LS_MEMORY_GRADIENTS]),
    FIELD("moments", held[LS_MEMORY_OPTIMIZER]),
    FIELD("taken", taken),
    FIELD("step", forecast.step_s),
    FIELD("compute", forecast.compute_s),
    FIELD("mfu", forecast.mfu),
    FIELD("memory", forecast.device_bytes),
    FIELD("tp", forecast.exposed_s[LS_ACCOUNT_TP]),
    FIELD("pp", forecast.exposed_s[LS_ACCOUNT_PP]),
    FIELD("shard", forecast.exposed_s[LS_ACCOUNT_SHARD]),
    FIELD("replicate", forecast.exposed_s[LS_ACCOUNT_REPLICATE]),
    FIELD("other", forecast.exposed_s[LS_ACCOUNT_OTHER]),
    FIELD("update", forecast.work_s[LS_WORK_UPDATE]),
    FIELD("squares", forecast.work_s[LS_WORK_SQUARES]),
    FIELD("copy", forecast.work_s[LS_WORK_COPY]),
};

/* All-reduces over the lesson's hosts, one rank on each: latency, rate, ring(bytes), tree(bytes),
 * and the planner's. */
static double link_value(const struct lesson_page *page, const char *name, double bytes)
{
    const struct ls_cluster *c = page->cluster;
    int64_t n = page->lesson->hosts;
    const struct ls_cost_group group = ls_cost_group_of(c, 1, 0, n, c->accelerators);
    double latency_s, bytes_per_s;
    ls_cost_link(c, &group, &latency_s, &bytes_per_s);
    if (!strcmp(name, "latency"))
        return latency_s;
    if (!strcmp(name, "rate"))
        return bytes_per_s;
    if (!strcmp(name, "ring"))
        return ls_ring_seconds(n, bytes, latency_s, bytes_per_s, true);
    if (!strcmp(name, "tree"))
        return ls_tree_seconds(n, bytes, latency_s, bytes_per_s, true);
    LS_ASSERT(!strcmp(name, "planned"));
    return ls_cost_move(c, &group, LS_COMM_ALL_REDUCE, bytes);
}

double lesson_call(struct lesson_page *page, const char *name, const double *a)
{
    const struct ls_cluster *c = page->cluster;
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (!strcmp(fields[i].name, name))
            return *(const double *)((const char *)&page->results[(int)a[0]] + fields[i].offset);
    if (!strcmp(name, "best"))
        return best(page);
    if (!strcmp(name, "formula")) /* (k, p, m) */
        return formula((int)a[0], (int64_t)a[1], (int64_t)a[2]);
    if (!strcmp(name, "table")) /* (k, p, m) */
        return table(page, (int)a[0], (int)a[1], (int64_t)a[2]);
    if (!strcmp(name, "fewest")) /* (k, p, goal) */
        return fewest(page, (int)a[0], (int)a[1], a[2]);
    if (!strcmp(name, "state")) /* bytes a parameter: (stage of ZeRO, ranks) */
        return ls_zero_state_bytes((int)a[0], (int64_t)a[1]);
    if (!strcmp(name, "sent")) /* elements a parameter: the same */
        return ls_zero_sent_elements((int)a[0], (int64_t)a[1]);
    if (!strcmp(name, "amdahl")) /* (share that is serial, ranks) */
        return ls_amdahl_speedup(1 - a[0], a[1]);
    if (!strcmp(name, "ceil"))
        return ceil(a[0]);
    if (!strcmp(name, "own"))
        return page->own;
    if (!strcmp(name, "room")) /* bytes of an accelerator */
        return c->accelerator.memory_bytes;
    if (!strcmp(name, "speed")) /* operations a second in bf16 that large products reach */
        return ls_cluster_peak(c, LS_BF16) * c->accelerator.product_share;
    if (!strcmp(name, "joins")) /* accelerators, by the fast link */
        return (double)c->link[0].joins;
    return link_value(page, name, a[0]);
}
