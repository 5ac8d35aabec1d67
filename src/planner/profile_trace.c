/* The parts of steps by the spans of a run's traces. */
#include "planner/profile_private.h"

#include <lockstep/plan/groups.h>
#include <lockstep/trace.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *ls_profile_phase_name(int phase)
{
    static const char *const names[] = {"forward", "backward", "of it recomputing",
                                        "reducing gradients", "starting moves"};
    return names[phase];
}

const char *ls_profile_between_name(int between)
{
    static const char *const names[] = {"checkpoints",         "evaluations", "samples of text",
                                        "hashes of the state", "replays",     "records"};
    return names[between];
}

/* A span within a step that is not over yet. part, phase: -1 for none. */
struct inner {
    int part, phase;
    double begin_s, own_s; /* own_s: without what is told apart */
};

/* One rank's trace. */
struct rank_trace {
    struct ls_profile *profile;
    struct profile_steps *steps;
    int64_t index; /* of trace.rank */
    struct inner *inner;
    int64_t count, room;
    int64_t seen; /* steps */
    double began; /* time of the newest start; NaN: any */
    struct ls_trace_sums sums;
    bool no_memory;
};

/* ---- spans ----------------------------------------------------------------------------------- */

static int account_of(const struct ls_layout *layout, const char *group)
{
    for (int g = 0; g < LS_GROUPS; g++)
        if (strcmp(group, ls_group_name((enum ls_layout_group)g)) == 0)
            return (int)ls_account_of(layout, (enum ls_layout_group)g);
    return LS_ACCOUNT_OTHER;
}

/* What is told apart from the span around it: waits, and starts of moves. */
static bool is_apart(const struct inner *inner)
{
    return inner->part == LS_PROFILE_DATA || inner->part >= LS_PROFILE_WAIT ||
           inner->phase == LS_PROFILE_STARTS;
}

/* What a span of a step is; false: nothing that is told. */
static bool inner_of(const struct ls_layout *layout, const struct ls_trace_span *span,
                     struct inner *inner)
{
    *inner = (struct inner){-1, -1, span->begin_s, span->duration_s};
    const char *category = span->category;
    if (strcmp(category, "op") == 0) /* within what is told */
        return false;
    if (strcmp(category, "comm") == 0 || strcmp(category, "wait") == 0)
        inner->part = LS_PROFILE_WAIT + account_of(layout, span->group);
    else if (strcmp(category, "data") == 0)
        inner->part = LS_PROFILE_DATA;
    else if (strcmp(category, "start") == 0)
        inner->phase = LS_PROFILE_STARTS;
    else if (strcmp(span->name, "update") == 0)
        inner->part = LS_PROFILE_OPTIMIZER;
    else if (strcmp(span->name, "forward") == 0)
        inner->phase = LS_PROFILE_FORWARD;
    else if (strncmp(span->name, "backward", 8) == 0)
        inner->phase = LS_PROFILE_BACKWARD;
    else if (strcmp(span->name, "recompute") == 0)
        inner->phase = LS_PROFILE_RECOMPUTE;
    else if (strcmp(span->name, "reduce") == 0)
        inner->phase = LS_PROFILE_REDUCE;
    return inner->part >= 0 || inner->phase >= 0;
}

/* Those before it in the file that began later lie within it. */
static void inner_add(struct rank_trace *r, struct inner inner)
{
    for (int64_t i = r->count - 1; i >= 0 && r->inner[i].begin_s >= inner.begin_s; i--)
        if (is_apart(&r->inner[i]) && !is_apart(&inner))
            inner.own_s -= r->inner[i].own_s;
    if (!ls_list_grow(&r->inner, r->count, &r->room, sizeof *r->inner))
        r->no_memory = true;
    else
        r->inner[r->count++] = inner;
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* The step's place in the list, which the first trace makes; NULL: it has none. */
static struct profile_step *step_of(struct rank_trace *r, int64_t step)
{
    struct profile_steps *steps = r->steps;
    int64_t low = 0, high = steps->count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (steps->list[middle].step < step)
            low = middle + 1;
        else
            high = middle;
    }
    if (low < steps->count)
        return steps->list[low].step == step ? &steps->list[low] : NULL;
    if (r->index > 0)
        return NULL;
    if (!ls_list_grow(&steps->list, steps->count, &steps->room, sizeof *steps->list)) {
        r->no_memory = true;
        return NULL;
    }
    steps->list[steps->count] = (struct profile_step){.step = step};
    return &steps->list[steps->count++];
}

static void step_end(struct rank_trace *r, const struct ls_trace_span *span)
{
    struct profile_step *step = step_of(r, span->step);
    double part[LS_PROFILE_PARTS] = {0};
    if (!step || step->ranks != r->index) /* another rank's has it not, or this one twice */
        return;
    step->ranks++;
    step->step_s += span->duration_s;
    part[LS_PROFILE_COMPUTE] = span->duration_s;
    for (int64_t i = 0; i < r->count; i++) {
        const struct inner *inner = &r->inner[i];
        if (inner->begin_s < span->begin_s)
            continue;
        if (inner->phase >= 0)
            step->phase_s[inner->phase] += inner->own_s;
        if (inner->part < 0)
            continue;
        part[inner->part] += inner->own_s;
        part[LS_PROFILE_COMPUTE] -= inner->own_s;
    }
    for (int i = 0; i < LS_PROFILE_PARTS; i++)
        step->part_s[i] += part[i];
    step->compute_s[r->index] = part[LS_PROFILE_COMPUTE];
}

static void between_add(struct rank_trace *r, const struct ls_trace_span *span)
{
    static const char *const names[] = {"save", "evaluate", "sample", "hash", "replay", "record"};
    for (int i = 0; i < LS_PROFILE_BETWEENS; i++)
        if (strcmp(span->name, names[i]) == 0) {
            r->profile->trace.between[i].count++;
            r->profile->trace.between[i].sum_s += span->duration_s;
        }
}

/* Steps of a file that is older than the start are done, and maybe done again. The time in it
 * counts, as a copy has another one. */
static bool is_of_start(const struct rank_trace *r)
{
    return isnan(r->began) || r->sums.written_s >= r->began;
}

static void span_visit(void *user, const struct ls_trace_span *span)
{
    struct rank_trace *r = user;
    struct inner inner;
    if (!is_of_start(r))
        return;
    if (strcmp(span->category, "step") == 0) {
        /* Some of what lay within the oldest step may be lost. */
        if (span->step >= 0 && (r->sums.dropped == 0 || r->seen > 0))
            step_end(r, span);
        r->seen++;
        r->count = 0;
    } else if (strcmp(span->category, "phase") == 0 && r->index == 0) {
        between_add(r, span);
    } else if (inner_of(&r->profile->layout, span, &inner)) {
        inner_add(r, inner);
    }
}

/* ---- files ----------------------------------------------------------------------------------- */

/* A rank without a file, or with that of an older start, has none. */
static int trace_read(struct ls_profile *p, double began, struct profile_steps *steps, int64_t rank,
                      struct ls_error *error)
{
    struct rank_trace r = {.profile = p, .steps = steps, .index = p->trace.ranks, .began = began};
    char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/trace/rank-%05ld.json", p->directory, (long)rank);
    if (access(path, F_OK))
        return LS_OK;
    int status = ls_trace_read(path, span_visit, &r, &r.sums, error);
    if (!status && r.no_memory)
        status = ls_error_set(error, LS_ENOMEM, "%s: no memory for its spans", path);
    if (!status && is_of_start(&r))
        p->trace.rank[p->trace.ranks++] = rank;
    free(r.inner);
    return status;
}

/* Steps that all have, as means. */
static void steps_finish(struct profile_steps *steps, int64_t ranks)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < steps->count; i++) {
        struct profile_step step = steps->list[i];
        if (step.ranks != ranks)
            continue;
        step.step_s /= (double)ranks;
        for (int part = 0; part < LS_PROFILE_PARTS; part++)
            step.part_s[part] /= (double)ranks;
        for (int phase = 0; phase < LS_PROFILE_PHASES; phase++)
            step.phase_s[phase] /= (double)ranks;
        steps->list[kept++] = step;
    }
    steps->count = kept;
}

int profile_traces_read(struct ls_profile *p, double began, struct profile_steps *steps,
                        struct ls_error *error)
{
    int64_t all = p->layout.ranks, most = ls_min(all, LS_PROFILE_TRACES_MAX);
    int status = LS_OK;
    *steps = (struct profile_steps){0};
    for (int64_t i = 0; i < most && !status && (i == 0 || p->trace.ranks); i++)
        status = trace_read(p, began, steps, i * all / most, error);
    if (!status && p->trace.ranks)
        steps_finish(steps, p->trace.ranks);
    return status ? ls_error_prefix(error, "a trace of the run (without it, its records are read)")
                  : LS_OK;
}
