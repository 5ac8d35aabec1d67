/* A table carried out on paper: every rank goes down its list as ls_pipeline_run does, as far as
 * what it waits for is there. A rank that stops is looked at again when what it may wait for has
 * happened, so the walk takes time in proportion to the actions. */
#include "parallel/schedule_private.h"

#include <lockstep/parallel/pipeline.h>

#include <stdlib.h>
#include <string.h>

enum { SEND_F, SEND_B, SENDS };

/* A rank on its way. */
struct walker {
    int32_t at; /* the action it is at; receives up to at + 1 are posted */
    double time;
    int32_t oldest[SENDS];  /* the oldest send under way, as the action that made it */
    int32_t pending[SENDS]; /* how many */
    bool queued;
};

struct walk {
    const struct ls_schedule *schedule;
    const struct parallel_index *index;
    const struct ls_schedule_costs *costs;
    const struct parallel_visit *visit;
    struct walker *rank;
    double *done[2]; /* [stages * m] ends of F, and of I or B */
    int32_t *queue;  /* [p] ring of ranks to look at */
    int64_t queue_first, queue_count;
    int gradient_sends;
};

/* What a rank waits for: an action of a rank to be done, or (a send without a free buffer) its
 * receive to be posted. */
struct wait {
    int rank;
    int32_t position; /* nothing to wait for once that rank is past it */
    struct ls_action action;
    bool for_buffer;
};

double parallel_action_cost(const struct ls_schedule_costs *costs, struct ls_action action)
{
    const struct ls_stage_cost *cost = costs->stage ? &costs->stage[action.stage] : &costs->all;
    switch (action.kind) {
    case LS_ACTION_F:
        return cost->forward;
    case LS_ACTION_I:
        return cost->input;
    case LS_ACTION_W:
        return cost->weight;
    default:
        return cost->input + cost->weight;
    }
}

/* The stage that gets the action's result, -1: none. */
static int target_of(const struct ls_schedule *schedule, struct ls_action action)
{
    if (action.kind == LS_ACTION_F)
        return action.stage + 1 < schedule->stages ? action.stage + 1 : -1;
    return action.kind == LS_ACTION_W ? -1 : action.stage - 1;
}

/* The stage whose result the action reads, -1: none. */
static int source_of(const struct ls_schedule *schedule, struct ls_action action)
{
    if (action.kind == LS_ACTION_F)
        return action.stage - 1;
    if (action.kind == LS_ACTION_W || action.stage + 1 == schedule->stages)
        return -1;
    return action.stage + 1;
}

static enum parallel_part part_of(struct ls_action action)
{
    return action.kind == LS_ACTION_F ? PARALLEL_FORWARD : PARALLEL_INPUT;
}

static bool sends(const struct ls_schedule *schedule, int rank, struct ls_action action, int kind)
{
    int to = target_of(schedule, action);
    return (action.kind == LS_ACTION_F) == (kind == SEND_F) && to >= 0 &&
           schedule->stage_rank[to] != rank;
}

static const struct ls_action *action_at(const struct walk *walk, int rank, int32_t position)
{
    return &walk->schedule->actions[walk->schedule->first[rank] + position];
}

/* The action that waits with this rank's current one, if any. */
static bool blocked(const struct walk *walk, int rank, struct wait *wait)
{
    const struct ls_schedule *schedule = walk->schedule;
    const struct walker *walker = &walk->rank[rank];
    struct ls_action action = *action_at(walk, rank, walker->at);
    int from = source_of(schedule, action);
    if (from >= 0) {
        int other = schedule->stage_rank[from];
        int32_t position =
            parallel_position(walk->index, schedule, part_of(action), from, action.micro_batch);
        if (walk->rank[other].at <= position) {
            *wait = (struct wait){other, position, *action_at(walk, other, position), false};
            return true;
        }
    }
    for (int kind = 0; kind < SENDS; kind++) {
        int limit = kind == SEND_F ? LS_PIPELINE_SENDS : walk->gradient_sends;
        if (!sends(schedule, rank, action, kind) || walker->pending[kind] < limit)
            continue;
        struct ls_action sent = *action_at(walk, rank, walker->oldest[kind]);
        int to = target_of(schedule, sent), other = schedule->stage_rank[to];
        int32_t position =
            parallel_position(walk->index, schedule, part_of(sent), to, sent.micro_batch);
        if (walk->rank[other].at + 1 < position) {
            *wait = (struct wait){other, position, *action_at(walk, other, position), true};
            return true;
        }
    }
    return false;
}

static void wake(struct walk *walk, int rank)
{
    if (walk->rank[rank].queued)
        return;
    walk->rank[rank].queued = true;
    int64_t slot = (walk->queue_first + walk->queue_count++) % walk->schedule->ranks;
    walk->queue[slot] = rank;
}

/* The send joins those under way, and the oldest leaves where there is no room. */
static void count_send(struct walk *walk, int rank, struct ls_action action)
{
    struct walker *walker = &walk->rank[rank];
    for (int kind = 0; kind < SENDS; kind++) {
        if (!sends(walk->schedule, rank, action, kind))
            continue;
        int limit = kind == SEND_F ? LS_PIPELINE_SENDS : walk->gradient_sends;
        if (walker->pending[kind]++ == 0)
            walker->oldest[kind] = walker->at;
        if (walker->pending[kind] <= limit)
            continue;
        walker->pending[kind]--;
        do
            walker->oldest[kind]++;
        while (!sends(walk->schedule, rank, *action_at(walk, rank, walker->oldest[kind]), kind));
    }
}

/* Carries out the current action and wakes whom it concerns. */
static void step(struct walk *walk, int rank)
{
    const struct ls_schedule *schedule = walk->schedule;
    struct walker *walker = &walk->rank[rank];
    struct ls_action action = *action_at(walk, rank, walker->at);
    double start = walker->time;
    int from = source_of(schedule, action), to = target_of(schedule, action);
    if (from >= 0) {
        double there =
            walk->done[part_of(action)][from * schedule->micro_batches + action.micro_batch];
        if (schedule->stage_rank[from] != rank)
            there += walk->costs->send;
        start = there > start ? there : start;
    }
    walker->time = start + parallel_action_cost(walk->costs, action);
    if (action.kind != LS_ACTION_W)
        walk->done[part_of(action)][action.stage * schedule->micro_batches + action.micro_batch] =
            walker->time;
    count_send(walk, rank, action);
    if (walk->visit && walk->visit->each)
        walk->visit->each(walk->visit->user, rank, walker->at, action, start, walker->time);
    walker->at++;
    if (to >= 0)
        wake(walk, schedule->stage_rank[to]);
    if (schedule->first[rank] + walker->at + 1 < schedule->first[rank + 1]) {
        int posted = source_of(schedule, *action_at(walk, rank, walker->at + 1));
        if (posted >= 0)
            wake(walk, schedule->stage_rank[posted]);
    }
}

static bool finished(const struct walk *walk, int rank)
{
    const int64_t *first = walk->schedule->first;
    return walk->rank[rank].at == first[rank + 1] - first[rank];
}

/* The waits from any stopped rank lead into a circle: walks in, then around once. */
static int report_circle(const struct walk *walk, struct ls_error *error)
{
    int rank = 0, shown = 0;
    while (finished(walk, rank))
        rank++;
    struct wait wait;
    for (int i = 0; i < walk->schedule->ranks; i++)
        rank = blocked(walk, rank, &wait) ? wait.rank : rank;
    char text[900] = "";
    size_t used = 0;
    int begin = rank;
    do {
        LS_ASSERT(blocked(walk, rank, &wait));
        if (++shown <= 8)
            used += (size_t)snprintf(
                text + used, sizeof text - used, "%s%s on rank %d waits for %s%s on rank %d",
                shown == 1 ? "" : "; ",
                ls_action_text(*action_at(walk, rank, walk->rank[rank].at)).text, rank,
                wait.for_buffer ? "the receive of " : "", ls_action_text(wait.action).text,
                wait.rank);
        rank = wait.rank;
    } while (rank != begin);
    if (shown > 8)
        snprintf(text + used, sizeof text - used, "; and %d more", shown - 8);
    return ls_error_set(error, LS_ELAYOUT, "schedule: deadlock: %s, and so on in a circle", text);
}

static int walk_init(struct walk *walk, struct ls_error *error)
{
    const struct ls_schedule *schedule = walk->schedule;
    size_t cells = (size_t)(schedule->stages * schedule->micro_batches);
    walk->rank = calloc((size_t)schedule->ranks, sizeof *walk->rank);
    walk->queue = calloc((size_t)schedule->ranks, sizeof *walk->queue);
    walk->done[0] = calloc(cells, sizeof *walk->done[0]);
    walk->done[1] = calloc(cells, sizeof *walk->done[1]);
    walk->gradient_sends = ls_pipeline_gradient_sends(schedule);
    if (walk->rank && walk->queue && walk->done[0] && walk->done[1])
        return LS_OK;
    return ls_error_set(error, LS_ENOMEM, "no memory to walk through a schedule of %d stages",
                        schedule->stages);
}

int parallel_schedule_walk(const struct ls_schedule *schedule, const struct parallel_index *index,
                           const struct ls_schedule_costs *costs,
                           const struct parallel_visit *visit, struct ls_error *error)
{
    struct walk walk = {.schedule = schedule, .index = index, .costs = costs, .visit = visit};
    int status = walk_init(&walk, error);
    if (status == LS_OK)
        for (int rank = 0; rank < schedule->ranks; rank++)
            wake(&walk, rank);
    while (status == LS_OK && walk.queue_count > 0) {
        int rank = walk.queue[walk.queue_first];
        walk.queue_first = (walk.queue_first + 1) % schedule->ranks;
        walk.queue_count--;
        walk.rank[rank].queued = false;
        struct wait wait;
        while (!finished(&walk, rank) && !blocked(&walk, rank, &wait))
            step(&walk, rank);
    }
    for (int rank = 0; rank < schedule->ranks && status == LS_OK; rank++)
        if (!finished(&walk, rank))
            status = report_circle(&walk, error);
    free(walk.done[1]);
    free(walk.done[0]);
    free(walk.queue);
    free(walk.rank);
    return status;
}
