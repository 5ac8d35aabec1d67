/* The search: candidates in the order of their estimates, admitted, held against memory, simulated,
 * until none that is left can be better; then the best are varied in details. */
#include "planner/candidates.h"

#include <lockstep/base/meter.h>
#include <lockstep/base/words.h>
#include <lockstep/parallel/stage_times.h>
#include <lockstep/planner/run_plan.h>
#include <lockstep/train/fit.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    POLISHED = 3,
    IN_VAIN = 8 /* layouts: if none of so many can be simulated and is in time, perhaps none is */
};

struct searching {
    const struct ls_search_options *options;
    struct ls_search *search;
    struct ls_config config;
    struct ls_layout layout;
    double until_s; /* ls_now_s, 0: no limit */
    int64_t forecasts;
    int top;
    struct candidate unadmitted;      /* by the recipe: the plainest; pp 0: none */
    struct ls_error beyond;           /* why the last of so many cannot be simulated */
    int64_t beyond_count, late_count; /* late: of those that were simulated */
    unsigned char *fits; /* [families] of candidates: a bit for each variant that was simulated */
};

const struct ls_word ls_goals[] = {
    {"time", LS_GOAL_TIME}, {"cost", LS_GOAL_COST}, {"memory", LS_GOAL_MEMORY}, {0}};

bool ls_search_given(const struct ls_config *config, const char *key)
{
    int index = ls_config_key_index(ls_config_keys(NULL), key);
    return index >= 0 && config->origin[index].line == LS_CONFIG_FROM_OVERRIDE;
}

/* What is to be small. */
static double value_of(const struct ls_search_options *options, double step_s, double accelerators,
                       double bytes)
{
    switch (options->goal) {
    case LS_GOAL_COST:
        return step_s * accelerators;
    case LS_GOAL_MEMORY:
        return bytes;
    default:
        return step_s;
    }
}

double ls_search_value(const struct ls_search_options *options, const struct ls_forecast *f)
{
    return value_of(options, f->step_s, (double)f->ranks * f->accelerators, f->device_bytes);
}

static double accelerators_of(const struct candidate *c)
{
    return (double)(c->pp * c->replicate * c->shard * c->cp * c->tp * ls_max(c->threads, 1));
}

/* ---- one candidate --------------------------------------------------------------------------- */

enum judgement { REFUSED, TOO_LARGE, TOO_SLOW, UNFINISHED, SIMULATED };

static bool is_late(const struct searching *s, double training_s)
{
    return s->options->within_s > 0 && training_s > s->options->within_s;
}

static void late_note(struct ls_search *search, double training_s)
{
    search->least_s = search->least_s > 0 ? fmin(search->least_s, training_s) : training_s;
}

/* A candidate's training as if nothing failed. */
static double training_least_s(const struct searching *s, const struct candidate *c)
{
    const struct ls_config *config = s->options->config;
    double tokens = s->options->tokens > 0 ? s->options->tokens : ls_forecast_tokens(config);
    return tokens / ((double)config->batch.global * (double)config->data.sequence) * c->bound_s;
}

/* Something has to be found, unless too many were simulated in vain: each of these takes long. */
static bool limits_count(const struct searching *s)
{
    return s->search->count > 0 || s->beyond_count + s->late_count >= IN_VAIN;
}

static bool limit_is_reached(const struct searching *s)
{
    int64_t most = s->options->forecasts;
    return limits_count(s) &&
           ((most > 0 && s->forecasts >= most) || (s->until_s > 0 && ls_now_s() > s->until_s));
}

/* The judgement of a layout that was simulated. */
static int in_time(struct searching *s, const struct ls_forecast_ask *ask,
                   enum judgement *judgement, struct ls_forecast *forecast, struct ls_error *error)
{
    int status = s->options->within_s > 0 ? ls_forecast_run(ask, forecast, error) : LS_OK;
    if (!status && is_late(s, 86400 * forecast->run.days)) {
        *judgement = TOO_SLOW;
        s->late_count++;
        late_note(s->search, 86400 * forecast->run.days);
    }
    return status;
}

/* As one writes the searched layout on a command line. */
static void keys_write(const struct searching *s, char keys[LS_SEARCH_KEYS_BYTES])
{
    const char *others[] = {"comm.bucket_mb", "parallel.threads"}; /* that cut no model */
    char value[4 * LS_CONFIG_TEXT_BYTES];
    ls_config_layout_text(&s->config, NULL, keys, LS_SEARCH_KEYS_BYTES);
    for (int i = 0; i < (s->options->cluster->accelerator.is_core ? 2 : 1); i++) {
        const struct ls_config_key *key = ls_config_key_of(others[i]);
        ls_config_value(&s->config, key, value, sizeof value);
        if (!strcmp(value, key->initial))
            continue;
        if (!strcmp(keys, "one rank"))
            keys[0] = '\0';
        ls_string_add(keys, LS_SEARCH_KEYS_BYTES, " ", "%s=%.20s", key->name, value);
    }
    LS_ASSERT(strlen(keys) + 1 < LS_SEARCH_KEYS_BYTES); /* they are read again */
}

/* config and layout are the candidate's. */
static int layout_evaluate(struct searching *s, enum judgement *judgement,
                           struct ls_forecast *forecast, struct ls_error *error)
{
    const struct ls_forecast_ask ask = {.config = &s->config,
                                        .layout = &s->layout,
                                        .cluster = s->options->cluster,
                                        .tokens = s->options->tokens,
                                        .extend = true,
                                        .until_s = limits_count(s) ? s->until_s : 0,
                                        .first_misfit = true};
    struct ls_error problem = {0};
    s->forecasts++;
    int status = ls_forecast_make(&ask, forecast, &problem);
    switch (status) {
    case LS_OK:
        *judgement = forecast->fits ? SIMULATED : TOO_LARGE;
        return forecast->fits ? in_time(s, &ask, judgement, forecast, error) : LS_OK;
    case LS_ESTOPPED:
        *judgement = UNFINISHED;
        return LS_OK;
    case LS_ENOTSUP: /* of this layout, which fits; others may do less */
        *judgement = REFUSED;
        s->beyond = problem;
        if (s->beyond_count++ == 0)
            keys_write(s, s->search->unsimulated);
        return LS_OK;
    default:
        return ls_error_copy(error, status, &problem);
    }
}

/* config is the candidate's. */
static int evaluate(struct searching *s, enum judgement *judgement, struct ls_forecast *forecast,
                    struct ls_error *error)
{
    *judgement = REFUSED;
    return ls_config_layout(&s->config, 0, &s->layout, NULL)
               ? LS_OK
               : layout_evaluate(s, judgement, forecast, error);
}

static void least_note(struct searching *s, const struct ls_forecast *forecast)
{
    struct ls_search *search = s->search;
    if (search->least_bytes > 0 && search->least_bytes <= forecast->device_bytes)
        return;
    search->least_bytes = forecast->device_bytes;
    search->capacity_bytes = forecast->capacity_bytes;
    keys_write(s, search->least_keys);
}

/* The listed plan of that kind, or the one that is this plan, as the first one tried; or -1. */
static int listed(const struct ls_search *search, int64_t kind, const struct ls_forecast *forecast)
{
    for (int i = 0; i < search->count; i++) {
        const struct ls_forecast *known = &search->plans[i].forecast;
        if (search->plans[i].kind == kind ||
            (forecast && known->step_s == forecast->step_s && known->ranks == forecast->ranks &&
             known->device_bytes == forecast->device_bytes))
            return i;
    }
    return -1;
}

/* Into the list, in order, in place of one of its kind that is not better; what falls out at the
 * end is forgotten. */
static void plan_insert(struct searching *s, const struct ls_forecast *forecast, int64_t kind,
                        double bound_s)
{
    struct ls_search *search = s->search;
    struct ls_search_plan *plans = search->plans;
    double value = ls_search_value(s->options, forecast);
    int at = 0, old = listed(search, kind, forecast);
    while (at < search->count && ls_search_value(s->options, &plans[at].forecast) <= value)
        at++;
    if (at == s->top || (old >= 0 && old < at))
        return;
    if (old < 0)
        old = (int)ls_min(search->count++, s->top - 1);
    search->count = (int)ls_min(search->count, s->top);
    memmove(&plans[at + 1], &plans[at], (size_t)(old - at) * sizeof *plans);
    plans[at] = (struct ls_search_plan){.forecast = *forecast, .kind = kind, .bound_s = bound_s};
    keys_write(s, plans[at].keys);
}

static unsigned variant_bit(int recompute, bool offload)
{
    return 1u << (2 * recompute + offload);
}

/* Whether a variant that recomputes and offloads no more than this one was simulated, so fits:
 * nobody waits less for doing more. */
static bool is_dominated(const struct searching *s, const struct candidate *c)
{
    unsigned less = 0;
    for (int recompute = 0; recompute <= c->recompute; recompute++)
        less |= variant_bit(recompute, false) | (c->offload ? variant_bit(recompute, true) : 0);
    return s->options->goal != LS_GOAL_MEMORY && s->fits[c->family] & less;
}

/* What a search is for: the best, then the list; or a candidate's judgement, whatever it is. */
enum wish { BEST, LISTED, WISHES, JUDGED = WISHES };

/* Whether it may still become the best, or come into the list. */
static bool may_win(const struct searching *s, const struct candidate *c, enum wish wish)
{
    const struct ls_search *search = s->search;
    int rival = wish == BEST ? 0 : listed(search, c->kind, NULL);
    if (is_late(s, training_least_s(s, c)))
        return false;
    if (rival < 0)
        rival = s->top - 1;
    return rival >= search->count ||
           value_of(s->options, c->bound_s, accelerators_of(c), 0) <
               ls_search_value(s->options, &search->plans[rival].forecast);
}

/* config and layout become the candidate's. */
static bool is_admitted(struct searching *s, struct candidate *c)
{
    s->config = *s->options->config;
    candidate_apply(c, s->options, &s->config);
    c->tried = true;
    bool refused = ls_config_layout(&s->config, 0, &s->layout, NULL);
    if (refused && (s->unadmitted.pp == 0 || c->family < s->unadmitted.family))
        s->unadmitted = *c;
    s->search->refused += refused;
    return !refused;
}

static int candidate_try(struct searching *s, struct candidate *c, enum wish wish,
                         struct ls_error *error)
{
    struct ls_forecast forecast;
    enum judgement judgement;
    if (!is_admitted(s, c))
        return LS_OK;
    c->bound_s = fmax(c->bound_s, candidate_pipeline_s(c, &s->layout));
    c->tried = wish == JUDGED || s->options->exhaustive || may_win(s, c, wish);
    if (!c->tried)
        return LS_OK;
    int status = layout_evaluate(s, &judgement, &forecast, error);
    if (status)
        return status;
    s->search->refused += judgement == REFUSED;
    s->search->too_large += judgement == TOO_LARGE;
    s->search->simulated += judgement == SIMULATED || judgement == TOO_SLOW;
    c->tried = judgement != UNFINISHED;
    if (judgement == TOO_LARGE)
        least_note(s, &forecast);
    if (judgement == SIMULATED || judgement == TOO_SLOW)
        s->fits[c->family] |= variant_bit(c->recompute, c->offload);
    if (judgement == SIMULATED) {
        s->search->bound_share = fmax(s->search->bound_share, c->bound_s / forecast.step_s);
        plan_insert(s, &forecast, c->kind, c->bound_s);
    }
    return LS_OK;
}

/* config becomes the options', in the plan's layout. */
static int plan_config(const struct searching *s, const struct ls_search_plan *plan,
                       struct ls_config *config, struct ls_error *error)
{
    *config = *s->options->config;
    return ls_search_apply(plan, config, error);
}

/* The plan that the options name: the best found is not worse, however soon the time is up. */
static int first_try(struct searching *s, struct ls_error *error)
{
    struct ls_search_plan plan = {.keys = ""};
    struct ls_forecast forecast;
    enum judgement judgement;
    snprintf(plan.keys, sizeof plan.keys, "%s", s->options->first);
    int status = plan_config(s, &plan, &s->config, error);
    if (!status)
        status = evaluate(s, &judgement, &forecast, error);
    if (!status && judgement == SIMULATED)
        plan_insert(s, &forecast, -1, 0);
    return status;
}

/* ---- all of them ----------------------------------------------------------------------------- */

static double estimate_of(const struct ls_search_options *options, const struct candidate *c)
{
    return value_of(options, c->estimate_s, accelerators_of(c), c->least_bytes);
}

static int by_estimate(const void *a, const void *b, void *options)
{
    const struct candidate *x = a, *y = b;
    double first = estimate_of(options, x), second = estimate_of(options, y);
    if (first != second)
        return first < second ? -1 : 1;
    return x->recompute != y->recompute ? x->recompute - y->recompute : x->offload - y->offload;
}

static bool is_too_large(const struct searching *s, const struct candidate *c)
{
    return ls_memory_trainers(s->options->config) * c->least_bytes >
           ls_forecast_capacity(s->options->cluster, s->options->config, ls_max(c->threads, 1));
}

static bool is_worth_it(const struct searching *s, const struct candidate *c, enum wish wish)
{
    if (c->tried || s->options->exhaustive)
        return !c->tried;
    return !is_too_large(s, c) && may_win(s, c, wish) && !is_dominated(s, c);
}

static int candidates_try(struct searching *s, struct candidates *all, struct ls_error *error)
{
    int status = LS_OK;
    int64_t fits = 0, left[WISHES] = {0};
    if (all->count > 0)
        qsort_r(all->list, (size_t)all->count, sizeof *all->list, by_estimate,
                (void *)(uintptr_t)s->options);
    for (int64_t i = 0; i < all->count && !s->options->exhaustive; i++)
        fits += !is_too_large(s, &all->list[i]);
    for (int wish = BEST; wish < WISHES; wish++)
        for (int64_t i = 0; i < all->count && !status; i++) {
            ls_meter("layouts", i + 1, all->count);
            if (!is_worth_it(s, &all->list[i], (enum wish)wish))
                continue;
            if (!limit_is_reached(s))
                status = candidate_try(s, &all->list[i], (enum wish)wish, error);
            left[wish] += limit_is_reached(s) && is_worth_it(s, &all->list[i], (enum wish)wish);
        }
    ls_meter_clear();
    s->search->unproven = left[BEST];
    s->search->unlisted = left[LISTED];
    if (!s->options->exhaustive)
        s->search->too_large += all->count - fits;
    if (fits == 0 && !status && all->count > 0 && !s->options->exhaustive) { /* for what it lacks */
        struct candidate *least = &all->list[0];
        for (int64_t k = 1; k < all->count; k++)
            if (all->list[k].least_bytes < least->least_bytes)
                least = &all->list[k];
        s->search->too_large--; /* by its bytes, which are judged here */
        status = candidate_try(s, least, JUDGED, error);
    }
    return status;
}

/* A candidate that is late by its bound: whether the recipe admits it and it fits. */
static int late_judge(struct searching *s, struct candidate *c, struct ls_error *error)
{
    struct ls_forecast forecast;
    const struct ls_forecast_ask ask = {.config = &s->config,
                                        .layout = &s->layout,
                                        .cluster = s->options->cluster,
                                        .until_s = 1e-9, /* its memory alone */
                                        .first_misfit = true};
    if (!is_admitted(s, c))
        return LS_OK;
    int status = ls_forecast_make(&ask, &forecast, error);
    if (status == LS_OK && !forecast.fits) {
        s->search->too_large++;
        least_note(s, &forecast);
    } else if (status == LS_OK || status == LS_ESTOPPED) {
        late_note(s->search, training_least_s(s, c));
        status = LS_OK;
    }
    return status;
}

/* Nothing was found: what a training takes at least of those that are late by their bounds. */
static int lates_judge(struct searching *s, struct candidates *all, struct ls_error *error)
{
    int status = LS_OK;
    for (int64_t i = 0; i < all->count && !status; i++) {
        struct candidate *c = &all->list[i];
        double training_s = training_least_s(s, c), least_s = s->search->least_s;
        if (!c->tried && !is_too_large(s, c) && is_late(s, training_s) &&
            (least_s == 0 || training_s < least_s))
            status = late_judge(s, c, error);
    }
    return status;
}

/* ---- details --------------------------------------------------------------------------------- */

/* What hides moves, and costs memory or nothing. */
static const char *const details[] = {
    "parallel.prefetch=2", "parallel.prefetch=0",   "comm.bucket_mb=100",
    "comm.bucket_mb=400",  "parallel.tp_overlap=2", "parallel.tp_overlap=4",
};

/* Tries one change of the plan at place `at`; takes it where it is better. */
static int detail_try(struct searching *s, const struct ls_config *base, int at,
                      const char *assignment, struct ls_config *kept, struct ls_error *error)
{
    char name[64];
    struct ls_forecast forecast;
    enum judgement judgement;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(assignment, "="), assignment);
    if (key_pinned(s->options, name))
        return LS_OK;
    s->config = *base;
    if (ls_config_set(&s->config, assignment, NULL))
        return LS_OK;
    int status = evaluate(s, &judgement, &forecast, error);
    struct ls_search_plan *plan = &s->search->plans[at];
    if (status || judgement != SIMULATED ||
        ls_search_value(s->options, &forecast) >=
            0.999 * ls_search_value(s->options, &plan->forecast))
        return status;
    plan->forecast = forecast;
    keys_write(s, plan->keys);
    *kept = s->config;
    return LS_OK;
}

/* Seconds of a micro-batch in a stage of so many blocks behind the embedding, and in the head. */
static int ends_forecast(struct searching *s, const struct ls_config *base, int64_t blocks,
                         double stage_s[2])
{
    struct ls_run_plan plan = {.stage_s = stage_s};
    struct ls_config *config = &s->config;
    *config = *base;
    config->model.layers = blocks;
    config->parallel.pp = 2;
    config->parallel.dp = config->parallel.zero = 0;
    config->parallel.dp_replicate = config->parallel.dp_shard = 1;
    config->parallel.schedule = LS_SCHEDULE_1F1B;
    config->parallel.chunks = 0;
    config->batch.global = ls_max(config->batch.micro, config->numerics.leaf_sequences);
    config->batch.rampup_start = config->batch.rampup_increment = config->batch.rampup_samples = 0;
    snprintf(config->parallel.split, sizeof config->parallel.split, "0-%ld,%ld", (long)blocks,
             (long)(blocks + 1));
    return ls_run_plan_make(config, (int)base->parallel.threads, s->options->cluster, &plan, NULL);
}

/* The stages by the times of their layers on this cluster, in place of their operations: taken
 * where the step becomes shorter. */
static int split_try(struct searching *s, struct ls_config *base, int at, struct ls_error *error)
{
    double one[2] = {0}, two[2] = {0};
    int64_t layers = base->model.layers;
    if (base->parallel.pp == 1 || *base->parallel.split || layers < 2 ||
        key_pinned(s->options, "parallel.split"))
        return LS_OK;
    if (ends_forecast(s, base, 1, one) || ends_forecast(s, base, 2, two))
        return LS_OK; /* cut so the recipe is not admitted */
    double cost[LS_LAYOUT_LAYERS_MAX + 2], block = fmax(two[0] - one[0], 0);
    int64_t begins[LS_LAYOUT_LAYERS_MAX + 3];
    for (int64_t l = 1; l <= layers; l++)
        cost[l] = block;
    cost[0] = fmax(one[0] - block, 0);
    cost[layers + 1] = one[1];
    s->config = *base;
    if (ls_config_layout(&s->config, 0, &s->layout, NULL) ||
        ls_stage_split(cost, layers + 2, s->layout.stages, begins, NULL))
        return LS_OK;
    char word[sizeof "parallel.split=" + LS_CONFIG_TEXT_BYTES];
    int used = snprintf(word, sizeof word, "parallel.split=");
    if (!ls_stage_split_text(begins, s->layout.stages, word + used, sizeof word - (size_t)used))
        return LS_OK; /* too many stages to write down */
    return detail_try(s, base, at, word, base, error);
}

/* Those of one value stay in their order. */
static void plans_sort(const struct ls_search_options *options, struct ls_search *search)
{
    for (int i = 1; i < search->count; i++) {
        const struct ls_search_plan plan = search->plans[i];
        double value = ls_search_value(options, &plan.forecast);
        int k = i;
        for (; k > 0 && value < ls_search_value(options, &search->plans[k - 1].forecast); k--)
            search->plans[k] = search->plans[k - 1];
        search->plans[k] = plan;
    }
}

static int plans_polish(struct searching *s, struct ls_error *error)
{
    struct ls_config base;
    int status = LS_OK;
    for (int at = 0; at < POLISHED && at < s->search->count && !status; at++) {
        status = plan_config(s, &s->search->plans[at], &base, error);
        for (size_t d = 0; d < sizeof details / sizeof *details && !status; d++) {
            if (limit_is_reached(s))
                break;
            status = detail_try(s, &base, at, details[d], &base, error);
        }
        if (!status && !limit_is_reached(s))
            status = split_try(s, &base, at, error);
    }
    plans_sort(s->options, s->search);
    return status;
}

/* What the whole training takes with each plan of the list. */
static int plans_run(struct searching *s, struct ls_error *error)
{
    int status = LS_OK;
    for (int at = 0; at < s->search->count && !status; at++) {
        struct ls_search_plan *plan = &s->search->plans[at];
        const struct ls_forecast_ask ask = {.config = &s->config,
                                            .layout = &s->layout,
                                            .cluster = s->options->cluster,
                                            .tokens = s->options->tokens};
        status = plan_config(s, plan, &s->config, error);
        if (!status)
            status = ls_config_layout(&s->config, 0, &s->layout, error);
        if (!status)
            status = ls_forecast_run(&ask, &plan->forecast, error);
    }
    return status;
}

/* ---- the search ------------------------------------------------------------------------------ */

/* A multiple of the accelerators on which a candidate would fit, by its least. */
static int64_t more_needed(struct searching *s, int64_t accelerators, struct ls_error *error)
{
    for (int64_t times = 2; times <= 1024; times *= 2) {
        struct candidates all = {0};
        bool found = false;
        int status = candidates_add(s->options, times * accelerators, &all, error);
        for (int64_t i = 0; i < all.count && !found; i++)
            found = !is_too_large(s, &all.list[i]);
        free(all.list);
        if (status || found)
            return status ? 0 : times * accelerators;
    }
    return 0;
}

enum { NEAR = 8192 }; /* numbers of accelerators, each way: a second or so */

/* The next number of accelerators, in steps of `by`, that the recipe admits a layout for; 0: none
 * of the cluster's that are near. */
static int64_t admitted_next(const struct searching *s, int64_t accelerators, int64_t by)
{
    int64_t there = s->options->cluster->hosts * s->options->cluster->accelerators;
    int64_t least = ls_max(accelerators - NEAR, 1), most = ls_min(accelerators + NEAR, there);
    for (int64_t n = accelerators + by; n >= least && n <= most; n += by) {
        struct candidates all = {0};
        int status = candidates_add(s->options, n, &all, NULL);
        bool found = all.count > 0;
        free(all.list);
        if (status || found)
            return status ? 0 : n;
    }
    return 0;
}

static int admits_none(const struct searching *s, int64_t accelerators, struct ls_error *error)
{
    int64_t fewer = admitted_next(s, accelerators, -1), more = admitted_next(s, accelerators, 1);
    char nearest[96] = "", stages[64] = "";
    if (split_parts(s->options))
        snprintf(stages, sizeof stages, " (parallel.split has %ld)", (long)split_parts(s->options));
    if (fewer > 0 && more > 0)
        snprintf(nearest, sizeof nearest, ", but for %ld and %ld", (long)fewer, (long)more);
    else if (fewer + more > 0)
        snprintf(nearest, sizeof nearest, ", but for %ld", (long)(fewer + more));
    return ls_error_set(error, LS_ELAYOUT,
                        "the recipe admits no layout for %ld accelerators%s: their number has to "
                        "be a product of stages%s, leaves, numerics.seq_tiles and "
                        "numerics.tp_tiles that divide the model and batch.global",
                        (long)accelerators, nearest, stages);
}

static int late_refuse(const struct searching *s, struct ls_error *error)
{
    const struct ls_search *search = s->search;
    const struct ls_counted within = ls_duration(s->options->within_s);
    if (search->unproven > 0)
        return ls_error_set(error, LS_ELAYOUT,
                            "no layout on which the training ends within %s was found before the "
                            "search reached its limit, with %s left",
                            within.text, ls_counted(search->unproven, "layout").text);
    return ls_error_set(error, LS_ELAYOUT,
                        "no layout that fits ends the training within %s: it takes %s at least; "
                        "give it more time, fewer tokens or more accelerators",
                        within.text, ls_duration(search->least_s).text);
}

static int refuse(struct searching *s, int64_t accelerators, struct ls_error *error)
{
    struct ls_search *search = s->search;
    if (search->unproven > 0 ? s->late_count > 0 : search->least_s > 0)
        return late_refuse(s, error);
    bool none = search->candidates == 0 || !*search->least_keys;
    if (s->beyond_count > 0 && search->unproven > 0)
        return ls_error_set(
            error, LS_ELAYOUT,
            "no layout was found before the search reached its limit, with %s left: "
            "%ld cannot be simulated, the last as %s",
            ls_counted(search->unproven, "layout").text, (long)s->beyond_count, s->beyond.text);
    if (s->beyond_count > 0) /* these fit */
        return ls_error_set(error, LS_ELAYOUT, "no layout %scan be simulated: %s",
                            none ? "" : "that fits ", s->beyond.text);
    int status = none ? pinned_refuse(s->options, accelerators, error) : LS_OK;
    if (none && !status && s->unadmitted.pp > 0)
        status = unadmitted_refuse(s->options, &s->unadmitted, accelerators, error);
    if (none && !status)
        return admits_none(s, accelerators, error);
    if (status)
        return status;
    search->least_accelerators = more_needed(s, accelerators, NULL);
    int64_t there = s->options->cluster->hosts * s->options->cluster->accelerators;
    char more[96] = "";
    if (search->least_accelerators)
        snprintf(more, sizeof more, ", or use %ld accelerators", (long)search->least_accelerators);
    if (search->least_accelerators > there)
        ls_string_add(more, sizeof more, "", " (the cluster has %ld)", (long)there);
    return ls_error_set(error, LS_ELAYOUT,
                        "no layout fits: the one that takes least needs %s of a rank, which has "
                        "%s (%s); %s%s",
                        ls_bytes(search->least_bytes).text, ls_bytes(search->capacity_bytes).text,
                        search->least_keys,
                        s->options->config->memory.device_budget > 0
                            ? "raise memory.device_budget, or give accelerators more memory"
                            : "give accelerators more memory",
                        more);
}

/* For cost, halves of the accelerators too, in one order: what is cheapest comes first. */
static int counts_try(struct searching *s, int64_t accelerators, struct ls_error *error)
{
    struct candidates all = {0};
    int64_t least = s->options->goal == LS_GOAL_COST ? 1 : accelerators;
    int status = LS_OK;
    for (int64_t n = accelerators; n >= least && !status; n = n % 2 ? 0 : n / 2)
        status = candidates_add(s->options, n, &all, error);
    s->search->candidates = all.count;
    s->unadmitted = all.unadmitted;
    s->fits = calloc((size_t)all.families + 1, 1);
    if (!status && !s->fits)
        status = ls_no_memory(error, "for a search");
    if (!status && s->options->first)
        status = first_try(s, error);
    if (!status)
        status = candidates_try(s, &all, error);
    if (!status && s->search->count == 0 && s->search->unproven == 0)
        status = lates_judge(s, &all, error);
    free(all.list);
    free(s->fits);
    return status;
}

int ls_search_run(const struct ls_search_options *options, struct ls_search *search,
                  struct ls_error *error)
{
    const struct ls_cluster *cluster = options->cluster;
    int64_t there = cluster->hosts * cluster->accelerators;
    int64_t accelerators = options->accelerators ? options->accelerators : there;
    struct searching s = {.options = options,
                          .search = search,
                          .until_s = options->seconds > 0 ? ls_now_s() + options->seconds : 0,
                          .top = (int)ls_max(1, ls_min(options->top, LS_SEARCH_TOP_MAX))};
    *search = (struct ls_search){.plans = calloc((size_t)s.top + 1, sizeof *search->plans)};
    int status = search->plans ? LS_OK : ls_no_memory(error, "for a search");
    if (!status && accelerators > there)
        status =
            ls_error_set(error, LS_ELAYOUT, "%ld accelerators are asked for: the cluster has %ld",
                         (long)accelerators, (long)there);
    if (!status)
        status = counts_try(&s, accelerators, error);
    if (!status && search->count == 0)
        status = refuse(&s, accelerators, error);
    if (!status && !options->exhaustive)
        status = plans_polish(&s, error);
    return status ? status : plans_run(&s, error);
}

void ls_search_release(struct ls_search *search)
{
    free(search->plans);
    *search = (struct ls_search){0};
}
