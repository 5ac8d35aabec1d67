/* Proof and figures of a table: the walk, and what is counted on it. */
#include "parallel/schedule_private.h"

#include <stdlib.h>

static int walk_once(const struct ls_schedule *schedule, const struct ls_schedule_costs *costs,
                     const struct parallel_visit *visit, struct ls_error *error)
{
    struct parallel_index index;
    int status = parallel_index_init(&index, schedule, error);
    if (status == LS_OK)
        status = parallel_schedule_walk(schedule, &index, costs, visit, error);
    parallel_index_release(&index);
    return status;
}

int ls_schedule_validate(const struct ls_schedule *schedule, struct ls_error *error)
{
    return walk_once(schedule, &(struct ls_schedule_costs){.all = {1, 1, 1}}, NULL, error);
}

/* ---- figures -------------------------------------------------------------------------------- */

struct counting {
    struct ls_schedule_figures *figures;
    int32_t *live, *weight; /* [p] now */
    int32_t *stage_live;    /* [stages] now */
};

static void count(void *user, int rank, int64_t index, struct ls_action action, double start,
                  double end)
{
    struct counting *counting = user;
    struct ls_rank_figures *figures = &counting->figures->rank[rank];
    int32_t *stage_max = &counting->figures->stage_live_max[action.stage];
    int32_t *live = &counting->live[rank], *stage = &counting->stage_live[action.stage];
    int32_t *weight = &counting->weight[rank];
    if (index == 0)
        figures->begin = start;
    figures->end = end;
    figures->busy += end - start;
    *live += action.kind == LS_ACTION_F;
    *stage += action.kind == LS_ACTION_F;
    *weight += action.kind == LS_ACTION_I;
    figures->live_max = (int32_t)ls_max(figures->live_max, *live);
    figures->weight_max = (int32_t)ls_max(figures->weight_max, *weight);
    *stage_max = (int32_t)ls_max(*stage_max, *stage);
    bool ends = action.kind == LS_ACTION_W || action.kind == LS_ACTION_B;
    *live -= ends;
    *stage -= ends;
    *weight -= action.kind == LS_ACTION_W;
}

static void summarise(const struct ls_schedule *schedule, struct ls_schedule_figures *figures)
{
    double busy = 0, longest = 0;
    for (int rank = 0; rank < schedule->ranks; rank++) {
        const struct ls_rank_figures *one = &figures->rank[rank];
        double cost = one->end - one->begin;
        figures->makespan = one->end > figures->makespan ? one->end : figures->makespan;
        busy += one->busy;
        figures->live_max = (int32_t)ls_max(figures->live_max, one->live_max);
        if (cost > longest) {
            longest = cost;
            figures->bubble_rank = (cost - one->busy) / cost;
        }
    }
    if (figures->makespan > 0)
        figures->bubble = 1 - busy / (schedule->ranks * figures->makespan);
}

int ls_schedule_simulate(const struct ls_schedule *schedule, const struct ls_schedule_costs *costs,
                         struct ls_schedule_figures *figures, struct ls_error *error)
{
    size_t p = (size_t)schedule->ranks, stages = (size_t)schedule->stages;
    *figures = (struct ls_schedule_figures){
        .rank = calloc(p, sizeof *figures->rank),
        .stage_live_max = calloc(stages, sizeof *figures->stage_live_max),
    };
    struct counting counting = {.figures = figures,
                                .live = calloc(p, sizeof *counting.live),
                                .weight = calloc(p, sizeof *counting.weight),
                                .stage_live = calloc(stages, sizeof *counting.stage_live)};
    int status = LS_OK;
    if (!figures->rank || !figures->stage_live_max || !counting.live || !counting.weight ||
        !counting.stage_live)
        status = ls_no_memory(error, "for the figures of %d ranks", schedule->ranks);
    if (status == LS_OK)
        status = walk_once(schedule, costs, &(struct parallel_visit){count, &counting}, error);
    if (status == LS_OK)
        summarise(schedule, figures);
    else
        ls_schedule_figures_release(figures);
    free(counting.stage_live);
    free(counting.weight);
    free(counting.live);
    return status;
}

void ls_schedule_figures_release(struct ls_schedule_figures *figures)
{
    free(figures->rank);
    free(figures->stage_live_max);
    *figures = (struct ls_schedule_figures){0};
}

/* ---- times ---------------------------------------------------------------------------------- */

struct timing {
    const struct ls_schedule *schedule;
    double *start;
};

static void note_start(void *user, int rank, int64_t index, struct ls_action action, double start,
                       double end)
{
    const struct timing *timing = user;
    (void)action;
    (void)end;
    timing->start[timing->schedule->first[rank] + index] = start;
}

int ls_schedule_times(const struct ls_schedule *schedule, const struct ls_schedule_costs *costs,
                      double *start, struct ls_error *error)
{
    struct timing timing = {schedule, start};
    return walk_once(schedule, costs, &(struct parallel_visit){note_start, &timing}, error);
}
