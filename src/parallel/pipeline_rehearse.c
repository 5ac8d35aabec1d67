/* A schedule run by stages that sleep: any number of ranks is truly concurrent on few cores. */
#include "parallel/schedule_private.h"

#include <lockstep/parallel/pipeline.h>

#include <stdlib.h>
#include <time.h>

/* What a rank reports. */
struct report {
    double begin, end, busy;
};

struct rehearsal {
    const struct ls_schedule *schedule;
    const struct ls_schedule_costs *costs;
    struct ls_ops ops;
    int64_t count;   /* elements of a boundary tensor */
    float *boundary; /* [count] handed on by every stage */
    struct report report;
    bool begun;
};

static void sleep_until(double when_s)
{
    for (double left = when_s - ls_now_s(); left > 0; left = when_s - ls_now_s()) {
        struct timespec rest = {.tv_sec = (time_t)left};
        rest.tv_nsec = (long)((left - (double)rest.tv_sec) * 1e9);
        nanosleep(&rest, NULL);
    }
}

static int64_t count_of(void *user, int64_t micro_batch)
{
    (void)micro_batch;
    return ((const struct rehearsal *)user)->count;
}

static int compute(void *user, const struct ls_pipeline_task *task, const void **result,
                   struct ls_error *error)
{
    (void)error;
    struct rehearsal *rehearsal = user;
    struct report *report = &rehearsal->report;
    double begin = ls_now_s();
    if (!rehearsal->begun)
        report->begin = begin;
    rehearsal->begun = true;
    sleep_until(begin + parallel_action_cost(rehearsal->costs, task->action));
    report->end = ls_now_s();
    report->busy += report->end - begin;
    if (result)
        *result = rehearsal->boundary;
    return LS_OK;
}

/* Times are counted from a barrier, so ranks whose clocks differ can be compared. */
static int summarise(struct ls_comm *comm, const struct rehearsal *rehearsal, double barrier_s,
                     struct ls_rehearsal *out, struct ls_error *error)
{
    int p = rehearsal->schedule->ranks;
    struct report own = rehearsal->report, *all = calloc((size_t)p, sizeof *all);
    own.begin -= barrier_s;
    own.end -= barrier_s;
    int status = all ? LS_OK : ls_no_memory(error, "for %d reports", p);
    status = ls_comm_agree(comm, status, error);
    if (status == LS_OK)
        status = ls_all_gather(comm, &own, all, sizeof own / sizeof(double), LS_F64, error);
    double first = own.begin, last = own.end, busy = 0, longest = 0;
    for (int r = 0; r < p && status == LS_OK; r++) {
        double cost = all[r].end - all[r].begin;
        first = all[r].begin < first ? all[r].begin : first;
        last = all[r].end > last ? all[r].end : last;
        busy += all[r].busy;
        if (cost > longest) {
            longest = cost;
            out->bubble_rank = (cost - all[r].busy) / cost;
        }
    }
    out->makespan_s = last - first;
    out->bubble = last > first ? 1 - busy / (p * out->makespan_s) : 0;
    free(all);
    return status;
}

/* With memory taken: one step. Ends the group, and with it what a failed run left under way. */
static int run_once(struct ls_comm *comm, struct ls_pipeline *pipeline, struct rehearsal *rehearsal,
                    struct ls_rehearsal *out, struct ls_error *error)
{
    const struct ls_pipeline_ops ops = {
        .user = rehearsal, .ops = &rehearsal->ops, .count = count_of, .compute = compute};
    int status = ls_barrier(comm, error);
    double barrier_s = ls_now_s();
    if (status == LS_OK)
        status = ls_pipeline_run(pipeline, &ops, error);
    if (status == LS_OK)
        status = summarise(comm, rehearsal, barrier_s, out, error);
    ls_comm_free(comm);
    return status;
}

int ls_pipeline_rehearse(struct ls_comm *comm, const struct ls_schedule *schedule,
                         const struct ls_schedule_costs *costs, int64_t count,
                         struct ls_rehearsal *out, struct ls_error *error)
{
    struct rehearsal rehearsal = {.schedule = schedule, .costs = costs, .count = count};
    struct ls_comm *group = NULL;
    *out = (struct ls_rehearsal){0};
    int status = ls_comm_split(comm, 0, ls_comm_rank(comm), &group, error);
    if (status)
        return status;
    struct ls_pipeline_options options = {
        .schedule = schedule, .comm = group, .dtype = LS_F32, .count_max = count};
    struct ls_pipeline *pipeline = NULL;
    struct ls_arena arena;
    ls_arena_measure(&arena);
    status = ls_pipeline_new(&options, &arena, &pipeline, error);
    ls_pipeline_free(pipeline);
    pipeline = NULL;
    if (status == LS_OK)
        status = ls_arena_init(&arena, arena.peak, error);
    if (status == LS_OK)
        status = ls_pipeline_new(&options, &arena, &pipeline, error);
    rehearsal.boundary = calloc((size_t)count + 1, sizeof *rehearsal.boundary);
    if (status == LS_OK && !rehearsal.boundary)
        status = ls_no_memory(error, "for a boundary tensor");
    if (status == LS_OK)
        status = ls_ops_init(&rehearsal.ops, 1, LS_ISA_PLAIN, error);
    status = ls_comm_agree(comm, status, error);
    if (status == LS_OK)
        status = run_once(group, pipeline, &rehearsal, out, error);
    else
        ls_comm_free(group);
    ls_ops_release(&rehearsal.ops);
    free(rehearsal.boundary);
    ls_pipeline_free(pipeline);
    if (!arena.measuring)
        ls_arena_release(&arena);
    return status;
}
