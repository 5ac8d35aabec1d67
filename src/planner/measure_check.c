/* Holds the sum of a step's works against the step itself, in turns. */
#include <lockstep/planner/cost.h>
#include <lockstep/train.h>

#include "planner/measure_private.h"

#include <stdlib.h>

enum { WARM_UP = 2, TURNS_MAX = 64 };

struct check_run {
    const struct ls_config *config;
    const struct ls_measure_list *list;
    int turns, teams;
    double *step_s, *replay_s; /* [teams, turns] */
    double *work_s;            /* [teams, steps of the list]: medians */
};

static int step_time(struct ls_trainer *trainer, double *seconds, struct ls_error *error)
{
    struct ls_step_report report;
    int status = ls_trainer_step(trainer, &report, error);
    *seconds = report.step_s - report.data_wait_s;
    return status;
}

static int list_time(const struct ls_measure_list *list, struct ls_replay *replay, double *works,
                     double *seconds, struct ls_error *error)
{
    int status = LS_OK;
    *seconds = 0;
    for (int64_t i = 0; i < list->commands.count && !status; i++) {
        status = ls_replay_run(replay, i, &works[i], error);
        *seconds += works[i];
    }
    return status;
}

/* The first turns warm up. */
static int turns_run(const struct check_run *run, struct ls_comm *comm, struct ls_trainer *trainer,
                     struct ls_replay *replay, double *works, struct ls_error *error)
{
    int64_t first = (int64_t)ls_comm_rank(comm) * run->turns;
    int status = LS_OK;
    for (int turn = -WARM_UP; turn < run->turns && !status; turn++) {
        int64_t at = turn < 0 ? 0 : turn;
        status = ls_barrier(comm, error);
        if (!status)
            status = step_time(trainer, &run->step_s[first + at], error);
        if (!status)
            status = ls_barrier(comm, error);
        if (!status)
            status = list_time(run->list, replay, works + at * run->list->commands.count,
                               &run->replay_s[first + at], error);
    }
    return status;
}

static int team_run(struct ls_comm *comm, void *user, struct ls_error *error)
{
    const struct check_run *run = user;
    struct ls_comm *self = NULL;
    struct ls_trainer *trainer = NULL;
    struct ls_replay *replay = NULL;
    int64_t steps = run->list->commands.count;
    double one[TURNS_MAX];
    double *works = calloc((size_t)(run->turns * steps) + 1, sizeof *works);
    int status = works ? LS_OK : ls_no_memory(error, "for a check");
    if (!status)
        status = ls_comm_self_new(&self, error);
    if (!status)
        status = ls_trainer_new(run->config, self, NULL, &trainer, error);
    if (!status)
        ls_trainer_record_nothing(trainer);
    if (!status)
        status = ls_replay_new(&run->list->options, &run->list->commands, &replay, error);
    status = ls_comm_agree(comm, status, error);
    if (!status)
        status = turns_run(run, comm, trainer, replay, works, error);
    for (int64_t i = 0; i < steps && !status; i++) {
        for (int turn = 0; turn < run->turns; turn++)
            one[turn] = works[turn * steps + i];
        run->work_s[ls_comm_rank(comm) * steps + i] = ls_median(one, run->turns);
    }
    ls_replay_free(replay);
    ls_trainer_free(trainer);
    ls_comm_free(self);
    free(works);
    return status;
}

static void kinds_sum(const struct check_run *run, struct ls_measure_check *check)
{
    const struct ls_measure_list *list = run->list;
    for (int64_t i = 0; i < list->commands.count; i++) {
        enum ls_work_kind kind = list->works[list->order[i]].kind;
        check->kind_count[kind]++;
        for (int team = 0; team < run->teams; team++)
            check->kind_s[kind] += run->work_s[team * list->commands.count + i] / run->teams;
    }
}

static void file_sum(const struct ls_cluster *cluster, const struct ls_measure_list *list,
                     struct ls_measure_check *check)
{
    int threads = list->options.threads;
    for (int64_t i = 0; cluster && i < list->commands.count; i++) {
        const struct ls_work *work = &list->works[list->order[i]];
        double seconds = ls_cost_work(cluster, threads, work);
        check->missing += work->m > 0 && work->n > 0 && !ls_cost_row(cluster, threads, work);
        check->file_s[work->kind] += seconds;
        check->file_total_s += seconds;
    }
}

static int check_run(const struct ls_measure *measure, struct check_run *run,
                     struct ls_measure_check *check, struct ls_error *error)
{
    int64_t samples = (int64_t)run->teams * run->turns;
    run->step_s = calloc((size_t)samples, sizeof(double));
    run->replay_s = calloc((size_t)samples, sizeof(double));
    run->work_s = calloc((size_t)(run->teams * run->list->commands.count) + 1, sizeof(double));
    double *ratio = calloc((size_t)samples, sizeof *ratio);
    int status = LS_OK;
    if (!run->step_s || !run->replay_s || !run->work_s || !ratio)
        status = ls_no_memory(error, "for a check");
    if (!status)
        status = ls_world_run(run->teams, team_run, run, error);
    if (!status) {
        for (int64_t i = 0; i < samples; i++)
            ratio[i] = run->replay_s[i] / run->step_s[i];
        kinds_sum(run, check);
        file_sum(measure->cluster && measure->cluster->accelerators ? measure->cluster : NULL,
                 run->list, check);
        check->ratio = ls_median(ratio, samples);
        check->step_s = ls_median(run->step_s, samples);
        check->replay_s = ls_median(run->replay_s, samples);
    }
    free(ratio);
    free(run->step_s);
    free(run->replay_s);
    free(run->work_s);
    return status;
}

int ls_measure_check(const struct ls_measure *measure, const struct ls_config *config, int threads,
                     int turns, struct ls_measure_check *check, struct ls_error *error)
{
    struct ls_layout layout;
    struct ls_config own = *config;
    struct ls_measure_list list = {.count = 0};
    *check = (struct ls_measure_check){.step_s = 0};
    own.parallel.threads = threads;
    int status = ls_config_layout(&own, 0, &layout, error);
    if (!status && layout.ranks != 1)
        status = ls_error_set(error, LS_ECONFIG,
                              "the layout has %lld ranks: a check takes one rank, so give no keys "
                              "of group parallel",
                              (long long)layout.ranks);
    if (!status)
        status = ls_measure_list_record(&own, &layout, 0, threads, &list, error);
    struct check_run run = {.config = &own,
                            .list = &list,
                            .turns = (int)ls_max(1, ls_min(turns, TURNS_MAX)),
                            .teams = measure_teams(measure, threads)};
    if (!status)
        status = check_run(measure, &run, check, error);
    ls_measure_list_release(&list);
    return status;
}
