/* A table carried out on paper: every rank goes down its list as ls_pipeline_run does, as far as
 * what it waits for is there. A result for another rank is a meeting of the two: one starts it
 * where the result is made, the other where it posts the receive. */
#include "parallel/schedule_private.h"

#include <lockstep/comm/executor.h>
#include <lockstep/parallel/pipeline.h>

#include <stdlib.h>

enum { SENDS = PARALLEL_INPUT + 1 }; /* activations, gradients */

/* An action, and the meetings at which its input and its result are there; -1: none. */
struct turn {
    struct ls_action action;
    int64_t input, output;
    bool receives, sends; /* from and to another rank */
};

/* A rank on its way. */
struct walker {
    int32_t at;          /* the action it is at */
    int32_t posted;      /* so many actions have their receives posted */
    struct turn turn[2]; /* of these the last, by the lowest bit of their numbers */
    double time;
    int32_t oldest[SENDS];  /* the oldest send under way, as the action that made it */
    int32_t pending[SENDS]; /* how many */
};

struct walk {
    const struct ls_schedule *schedule;
    const struct parallel_index *index;
    const struct ls_schedule_costs *costs;
    const struct parallel_visit *visit;
    struct walker *rank;
    double *done; /* by meeting: when the result was made */
    int limit[SENDS];
    struct ls_executor executor;
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

static enum parallel_part part_of(struct ls_action action)
{
    return action.kind == LS_ACTION_F ? PARALLEL_FORWARD : PARALLEL_INPUT;
}

static bool sends(const struct ls_schedule *schedule, int rank, struct ls_action action)
{
    int to = parallel_target(schedule, action);
    return to >= 0 && schedule->stage_rank[to] != rank;
}

static const struct ls_action *action_at(const struct walk *walk, int rank, int32_t position)
{
    return &walk->schedule->actions[walk->schedule->first[rank] + position];
}

/* The meeting at which a stage's result for a micro-batch, F's or else I's and B's, is there. */
static int64_t meeting_of(const struct ls_schedule *schedule, struct ls_action action, int stage)
{
    return ((int64_t)part_of(action) * schedule->stages + stage) * schedule->micro_batches +
           action.micro_batch;
}

/* Posts the receives of actions up to the one behind the current one. */
static void receives_post(struct walk *walk, int rank, int32_t count)
{
    const struct ls_schedule *schedule = walk->schedule;
    struct walker *walker = &walk->rank[rank];
    for (; walker->posted <= walker->at + 1 && walker->posted < count; walker->posted++) {
        const struct ls_action action = *action_at(walk, rank, walker->posted);
        int from = parallel_source(schedule, action), to = parallel_target(schedule, action);
        const struct turn turn = {
            .action = action,
            .input = from >= 0 ? meeting_of(schedule, action, from) : -1,
            .output = to >= 0 ? meeting_of(schedule, action, action.stage) : -1,
            .receives = from >= 0 && schedule->stage_rank[from] != rank,
            .sends = to >= 0 && schedule->stage_rank[to] != rank,
        };
        walker->turn[walker->posted & 1] = turn;
        if (turn.receives)
            ls_executor_start(&walk->executor, turn.input, 2);
    }
}

/* Whether what the rank's current action waits for is there: its input, and room for its result. */
static bool may_begin(struct walk *walk, int rank, const struct turn *turn)
{
    const struct walker *walker = &walk->rank[rank];
    const enum parallel_part part = part_of(turn->action);
    if (turn->input >= 0 && !ls_executor_wait(&walk->executor, rank, turn->input, 0))
        return false;
    if (!turn->sends || walker->pending[part] < walk->limit[part])
        return true;
    const struct ls_action sent = *action_at(walk, rank, walker->oldest[part]);
    return ls_executor_wait(&walk->executor, rank, meeting_of(walk->schedule, sent, sent.stage), 0);
}

/* The send joins those under way, and the oldest leaves if there is no room. */
static void count_send(struct walk *walk, int rank, enum parallel_part part)
{
    struct walker *walker = &walk->rank[rank];
    int32_t *oldest = &walker->oldest[part];
    if (walker->pending[part] == 0)
        *oldest = walker->at;
    if (walker->pending[part] < walk->limit[part]) {
        walker->pending[part]++;
        return;
    }
    const struct ls_action *next;
    do
        next = action_at(walk, rank, ++*oldest);
    while (part_of(*next) != part || !sends(walk->schedule, rank, *next));
}

/* Carries out the current action. */
static void step(struct walk *walk, int rank, const struct turn *turn)
{
    struct walker *walker = &walk->rank[rank];
    double start = walker->time;
    if (turn->input >= 0) {
        double there = walk->done[turn->input] + (turn->receives ? walk->costs->send : 0);
        start = there > start ? there : start;
    }
    walker->time = start + parallel_action_cost(walk->costs, turn->action);
    if (turn->sends)
        count_send(walk, rank, part_of(turn->action));
    if (walk->visit && walk->visit->each)
        walk->visit->each(walk->visit->user, rank, walker->at, turn->action, start, walker->time);
    walker->at++;
    if (turn->output < 0)
        return;
    walk->done[turn->output] = walker->time;
    ls_executor_start(&walk->executor, turn->output, turn->sends ? 2 : 1);
}

/* ---- who waits for ever ---------------------------------------------------------------------- */

/* What keeps a rank from its current action: what makes its input, or (*for_buffer) what receives
 * its oldest send. */
static struct ls_action awaited(const struct walk *walk, int rank, bool *for_buffer)
{
    const struct ls_schedule *schedule = walk->schedule;
    const struct turn *turn = &walk->rank[rank].turn[walk->rank[rank].at & 1];
    struct ls_action action = turn->action;
    const enum parallel_part part = part_of(action);
    int stage = parallel_source(schedule, action);
    *for_buffer = walk->executor.players[rank].meeting != turn->input;
    if (*for_buffer) {
        action = *action_at(walk, rank, walk->rank[rank].oldest[part]);
        stage = parallel_target(schedule, action);
    }
    return *action_at(walk, schedule->stage_rank[stage],
                      parallel_position(walk->index, schedule, part, stage, action.micro_batch));
}

static int absent(void *user, int rank)
{
    const struct walk *walk = user;
    bool for_buffer;
    return walk->schedule->stage_rank[awaited(walk, rank, &for_buffer).stage];
}

static void waits_text(void *user, int rank, int absent_one, char *text, size_t bytes)
{
    const struct walk *walk = user;
    bool for_buffer;
    const struct ls_action other = awaited(walk, rank, &for_buffer);
    snprintf(text, bytes, "%s on rank %d waits for %s%s on rank %d",
             ls_action_text(*action_at(walk, rank, walk->rank[rank].at)).text, rank,
             for_buffer ? "the receive of " : "", ls_action_text(other).text, absent_one);
}

/* ---- the walk -------------------------------------------------------------------------------- */

static int walk_init(struct walk *walk, struct ls_error *error)
{
    const struct ls_schedule *schedule = walk->schedule;
    const int64_t meetings = 2 * schedule->stages * schedule->micro_batches;
    walk->rank = calloc((size_t)schedule->ranks, sizeof *walk->rank);
    walk->done = calloc((size_t)meetings, sizeof *walk->done);
    walk->limit[PARALLEL_FORWARD] = LS_PIPELINE_SENDS;
    walk->limit[PARALLEL_INPUT] = ls_pipeline_gradient_sends(schedule);
    if (walk->rank && walk->done)
        return ls_executor_init(&walk->executor, schedule->ranks, meetings, false, error);
    return ls_no_memory(error, "to walk through a schedule of %d stages", schedule->stages);
}

int parallel_schedule_walk(const struct ls_schedule *schedule, const struct parallel_index *index,
                           const struct ls_schedule_costs *costs,
                           const struct parallel_visit *visit, struct ls_error *error)
{
    struct walk walk = {.schedule = schedule, .index = index, .costs = costs, .visit = visit};
    const struct ls_executor_words words = {absent, waits_text, &walk, "schedule: "};
    int status = walk_init(&walk, error);
    for (int rank; !status && (rank = ls_executor_next(&walk.executor)) >= 0;) {
        const int32_t count = (int32_t)(schedule->first[rank + 1] - schedule->first[rank]);
        for (struct walker *walker = &walk.rank[rank]; walker->at < count;) {
            const struct turn *turn = &walker->turn[walker->at & 1];
            receives_post(&walk, rank, count);
            if (!may_begin(&walk, rank, turn))
                break;
            step(&walk, rank, turn);
        }
    }
    if (!status)
        status = ls_executor_finish(&walk.executor, &words, error);
    ls_executor_release(&walk.executor);
    free(walk.done);
    free(walk.rank);
    return status;
}
