/* What the files of a pipeline schedule share: making a table, finding an action in it, and the one
 * walk through it that validation and simulation are made of (lockstep/comm/executor.h). */
#ifndef PARALLEL_SCHEDULE_PRIVATE_H
#define PARALLEL_SCHEDULE_PRIVATE_H

#include <lockstep/parallel/schedule.h>

/* A table that grows action by action, rank by rank. Failed allocations are noted and reported at
 * the end. */
struct parallel_builder {
    struct ls_schedule *schedule;
    int64_t capacity;
    bool with_cells;
    bool failed;
};

/* Fills the shape and, unless the placement is LS_PLACEMENT_FILE, the maps. */
int parallel_schedule_init(struct ls_schedule *schedule, int ranks, int chunks,
                           int64_t micro_batches, enum ls_stage_placement placement,
                           struct ls_error *error);
/* stage_chunk and rank_stage from stage_rank; false if a rank has more than its chunks. */
bool parallel_schedule_map(struct ls_schedule *schedule);
/* Appends to the list of the rank that is being made. cell is kept with_cells. */
void parallel_builder_add(struct parallel_builder *builder, enum ls_action_kind kind, int stage,
                          int64_t micro_batch, int32_t cell);

/* What an action does for its stage and micro-batch. */
enum parallel_part { PARALLEL_FORWARD, PARALLEL_INPUT, PARALLEL_WEIGHT, PARALLEL_PARTS };

/* Where each part stands in its rank's list: position[part][stage * m + micro_batch], or -1. */
struct parallel_index {
    int32_t *position[PARALLEL_PARTS];
};
/* Builds the index and checks everything but waiting. */
int parallel_index_init(struct parallel_index *index, const struct ls_schedule *schedule,
                        struct ls_error *error);
void parallel_index_release(struct parallel_index *index);
static inline int32_t parallel_position(const struct parallel_index *index,
                                        const struct ls_schedule *schedule, enum parallel_part part,
                                        int64_t stage, int64_t micro_batch)
{
    return index->position[part][stage * schedule->micro_batches + micro_batch];
}

/* The stage whose result the action reads, -1: none. */
static inline int parallel_source(const struct ls_schedule *schedule, struct ls_action action)
{
    if (action.kind == LS_ACTION_F)
        return action.stage - 1;
    bool reads = action.kind != LS_ACTION_W && action.stage + 1 < schedule->stages;
    return reads ? action.stage + 1 : -1;
}
/* The stage that gets the action's result, -1: none. */
static inline int parallel_target(const struct ls_schedule *schedule, struct ls_action action)
{
    if (action.kind == LS_ACTION_F)
        return action.stage + 1 < schedule->stages ? action.stage + 1 : -1;
    return action.kind == LS_ACTION_W ? -1 : action.stage - 1;
}

/* Carries the table out with the runtime's waits. each is called for every action, in the order of
 * each rank's list; NULL is allowed. LS_ELAYOUT with the circle where it does not end. */
struct parallel_visit {
    void (*each)(void *user, int rank, int64_t index, struct ls_action action, double start,
                 double end);
    void *user;
};
int parallel_schedule_walk(const struct ls_schedule *schedule, const struct parallel_index *index,
                           const struct ls_schedule_costs *costs,
                           const struct parallel_visit *visit, struct ls_error *error);

/* Of one action. */
double parallel_action_cost(const struct ls_schedule_costs *costs, struct ls_action action);

#endif
