/* Measures works: lists of them are replayed by teams of threads that keep all cores busy. */
#include <lockstep/base/meter.h>
#include <lockstep/train/recorded.h>

#include "planner/measure_private.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS_MIN = 3, ROUNDS_MAX = 15, PLACES_MAX = 48 };

struct ls_measure_effort ls_measure_effort_full(void)
{
    return (struct ls_measure_effort){
        .works_s = 4, .once_s = 0.05, .moves_s = 12, .bytes_max = 64 << 20, .ranks_max = 16};
}

struct ls_measure_effort ls_measure_effort_quick(void)
{
    return (struct ls_measure_effort){.works_s = 0.5,
                                      .once_s = 0.02,
                                      .moves_s = 4,
                                      .bytes_max = 1 << 20,
                                      .ranks_max = 4,
                                      .coarse = true};
}

int measure_cores(const struct ls_measure *measure)
{
    return measure->effort.cores > 0 ? measure->effort.cores : ls_device_cores();
}

int measure_teams(const struct ls_measure *measure, int threads)
{
    return (int)ls_max(1, measure_cores(measure) / threads);
}

/* ---- a list ---------------------------------------------------------------------------------- */

int ls_measure_list_record(const struct ls_config *config, const struct ls_layout *layout,
                           int64_t rank, int threads, struct ls_measure_list *list,
                           struct ls_error *error)
{
    struct ls_command_list both = {.count = 0};
    struct ls_recording recording;
    enum ls_dtype act = config->numerics.precision;
    int64_t second = 0;
    *list = (struct ls_measure_list){.options = {.threads = threads, .act = act}};
    ls_recording_init(&recording);
    recording.commands = &both;
    int status = ls_record_works(config, layout, rank, &recording, &second, error);
    list->order = calloc((size_t)recording.done_count + 1, sizeof *list->order);
    if (!list->order && !status)
        status = ls_no_memory(error, "for the commands of a step");
    for (int64_t i = 0; i < recording.done_count && !status; i++) {
        const struct ls_command command = ls_command_list_get(&both, i);
        if (recording.done[i].at < second)
            continue;
        list->order[list->commands.count] = recording.done[i].work;
        if (!ls_command_list_add(&list->commands, &command))
            status = ls_no_memory(error, "for the commands of a step");
    }
    ls_command_list_release(&both);
    list->works = recording.works;
    list->count = recording.works_count;
    memcpy(list->options.memories, recording.memories, sizeof recording.memories);
    recording.works = NULL;
    ls_recording_release(&recording);
    struct ls_replay_options *options = &list->options;
    options->arithmetic = config->numerics.arithmetic == LS_CONFIG_AUTO
                              ? ls_arithmetic_fastest(ls_isa_best(), act)
                              : (enum ls_arithmetic)config->numerics.arithmetic;
    options->isa = config->numerics.isa == LS_CONFIG_AUTO
                       ? ls_isa_fastest(ls_isa_best(), options->arithmetic, act)
                       : (enum ls_isa)config->numerics.isa;
    if (status)
        ls_measure_list_release(list);
    return status;
}

void ls_measure_list_release(struct ls_measure_list *list)
{
    ls_command_list_release(&list->commands);
    free(list->order);
    free(list->works);
    *list = (struct ls_measure_list){.count = 0};
}

/* ---- replays of a list ----------------------------------------------------------------------- */

/* Where the list is measured: all of it, or of each work the first commands. */
struct course {
    const struct ls_measure *measure;
    const struct ls_measure_list *list;
    int64_t *place; /* [places]: commands */
    int64_t places;
    double *seconds; /* [teams, places]: medians over rounds */
    int teams;
};

static int course_init(struct course *course, const struct ls_measure *measure,
                       const struct ls_measure_list *list, struct ls_error *error)
{
    int64_t steps = list->commands.count;
    *course = (struct course){.measure = measure, .list = list};
    course->teams = measure_teams(measure, list->options.threads);
    int *seen = calloc((size_t)list->count + 1, sizeof *seen);
    course->place = calloc((size_t)steps + 1, sizeof *course->place);
    for (int64_t i = 0; i < steps && seen && course->place; i++)
        if (list->order[i] >= 0 && seen[list->order[i]]++ < PLACES_MAX)
            course->place[course->places++] = i;
    course->seconds = calloc((size_t)(course->teams * course->places) + 1, sizeof(double));
    bool fails = !seen || !course->place || !course->seconds;
    free(seen);
    return fails ? ls_no_memory(error, "to measure %lld commands", (long long)steps) : LS_OK;
}

static void course_release(struct course *course)
{
    free(course->place);
    free(course->seconds);
}

/* long_s[places]: what took longer than effort.once_s the last time keeps that; NULL: all run. */
static int round_run(const struct course *course, struct ls_comm *comm, struct ls_replay *replay,
                     const double *long_s, double *seconds, struct ls_error *error)
{
    const struct ls_measure_list *list = course->list;
    double once_s = course->measure->effort.once_s;
    int status = ls_barrier(comm, error);
    for (int64_t i = 0; i < course->places && !status; i++) {
        int64_t begin = course->place[i];
        if (long_s && once_s > 0 && list->alone && long_s[i] > once_s) {
            seconds[i] = long_s[i];
            continue;
        }
        while (begin > 0 && list->order[begin - 1] < 0)
            begin--;
        for (int64_t at = begin; at <= course->place[i] && !status; at++)
            status = ls_replay_run(replay, at, &seconds[i], error);
    }
    return status;
}

/* How many rounds there is time for, the same for all teams. */
static int rounds_agree(const struct course *course, struct ls_comm *comm, double round_s,
                        int64_t *rounds, struct ls_error *error)
{
    double fit = course->measure->effort.works_s / fmax(round_s, 1e-6);
    *rounds = ls_max(ROUNDS_MIN, (int64_t)fmin(fit, ROUNDS_MAX));
    return ls_all_reduce_max(comm, rounds, error);
}

static int team_run(struct ls_comm *comm, void *user, struct ls_error *error)
{
    const struct course *course = user;
    struct ls_replay *replay = NULL;
    int64_t rounds = 0, places = course->places;
    double *own = course->seconds + ls_comm_rank(comm) * places, *all = NULL, one[ROUNDS_MAX];
    int status = ls_replay_new(&course->list->options, &course->list->commands, &replay, error);
    status = ls_comm_agree(comm, status, error);
    if (!status) /* pages, caches, threads */
        status = round_run(course, comm, replay, NULL, own, error);
    double begin = ls_now_s();
    if (!status)
        status = round_run(course, comm, replay, own, own, error);
    if (!status)
        status = rounds_agree(course, comm, ls_now_s() - begin, &rounds, error);
    if (!status)
        all = calloc((size_t)(rounds * places) + 1, sizeof *all);
    if (!status && !all)
        status = ls_no_memory(error, "for %lld rounds", (long long)rounds);
    status = ls_comm_agree(comm, status, error);
    for (int64_t round = 0; round < rounds && !status; round++) {
        status = round_run(course, comm, replay, own, all + round * places, error);
        if (ls_comm_rank(comm) == 0)
            ls_meter("rounds", round + 1, rounds);
    }
    for (int64_t i = 0; i < places && !status; i++) {
        for (int64_t round = 0; round < rounds; round++)
            one[round] = all[round * places + i];
        own[i] = ls_median(one, rounds);
    }
    free(all);
    ls_replay_free(replay);
    return status;
}

int ls_measure_works(const struct ls_measure *measure, const struct ls_measure_list *list,
                     double *seconds, struct ls_error *error)
{
    struct course course;
    int status = course_init(&course, measure, list, error);
    if (!status)
        status = ls_world_run(course.teams, team_run, &course, error);
    for (int64_t w = 0; w < list->count && !status; w++) {
        double sum = 0;
        int64_t times = 0;
        for (int64_t i = 0; i < course.places; i++)
            for (int team = 0; team < course.teams && list->order[course.place[i]] == w;
                 team++, times++)
                sum += course.seconds[team * course.places + i];
        seconds[w] = times ? sum / (double)times : 0;
    }
    course_release(&course);
    return status;
}

/* Whether two works are one row of a cluster. */
static bool same_row(const struct ls_work *a, const struct ls_work *b)
{
    return a->kind == b->kind && a->dtype == b->dtype && a->m == b->m && a->n == b->n &&
           a->k == b->k && a->bytes == b->bytes;
}

int ls_measure_list_add(const struct ls_measure *measure, const struct ls_measure_list *list,
                        struct ls_error *error)
{
    double *seconds = calloc((size_t)list->count + 1, sizeof *seconds);
    int64_t *times = calloc((size_t)list->count + 1, sizeof *times);
    int status = seconds && times ? ls_measure_works(measure, list, seconds, error)
                                  : ls_no_memory(error, "for %lld works", (long long)list->count);
    for (int64_t i = 0; i < list->commands.count && !status; i++)
        if (list->order[i] >= 0)
            times[list->order[i]]++;
    for (int64_t w = 0; w < list->count && !status; w++) {
        const struct ls_work *work = &list->works[w];
        double sum = 0, count = 0;
        for (int64_t v = 0; v < list->count; v++)
            if (same_row(work, &list->works[v])) {
                sum += seconds[v] * (double)times[v];
                count += (double)times[v];
            }
        if (times[w] == 0 || work->m == 0 || work->n == 0)
            continue;
        status = measure_row_add(measure, list->options.threads, work, (int64_t)work->bytes,
                                 sum / count, error);
    }
    free(seconds);
    free(times);
    return status;
}

/* ---- rows ------------------------------------------------------------------------------------ */

struct measure_key measure_work_key(const struct ls_measured_work *row)
{
    return (struct measure_key){
        {row->kind, row->dtype, row->threads, row->m, row->n, row->k, row->bytes}};
}

struct measure_key measure_move_key(const struct ls_measured_move *row)
{
    return (struct measure_key){{row->kind, row->ranks, row->bytes}};
}

static int compare(struct measure_key a, struct measure_key b)
{
    for (int i = 0; i < MEASURE_KEY; i++)
        if (a.part[i] != b.part[i])
            return a.part[i] < b.part[i] ? -1 : 1;
    return 0;
}

static int by_work(const void *left, const void *right)
{
    return compare(measure_work_key(left), measure_work_key(right));
}

static int by_move(const void *left, const void *right)
{
    return compare(measure_move_key(left), measure_move_key(right));
}

/* Puts a row where it belongs in *list (of any pointer type), in place of one of the same thing. */
static int row_add(void *list, int64_t *count, const void *row, size_t bytes,
                   int (*by)(const void *, const void *), struct ls_error *error)
{
    char **rows = list;
    size_t at = 0, end = (size_t)*count * bytes;
    while (at < end && by(*rows + at, row) < 0)
        at += bytes;
    if (at == end || by(*rows + at, row) != 0) {
        char *grown = realloc(*rows, end + bytes);
        if (!grown)
            return ls_no_memory(error, "for %lld rows", (long long)*count);
        *rows = grown;
        memmove(grown + at + bytes, grown + at, end - at);
        ++*count;
    }
    memcpy(*rows + at, row, bytes);
    return LS_OK;
}

int ls_measure_add_work(struct ls_cluster *cluster, const struct ls_measured_work *row,
                        struct ls_error *error)
{
    return row_add(&cluster->works, &cluster->works_count, row, sizeof *row, by_work, error);
}

int ls_measure_add_move(struct ls_cluster *cluster, const struct ls_measured_move *row,
                        struct ls_error *error)
{
    return row_add(&cluster->moves, &cluster->moves_count, row, sizeof *row, by_move, error);
}

int measure_row_add(const struct ls_measure *measure, int threads, const struct ls_work *work,
                    int64_t bytes, double seconds, struct ls_error *error)
{
    const struct ls_measured_work row = {.kind = work->kind,
                                         .dtype = work->dtype,
                                         .threads = threads,
                                         .m = work->m,
                                         .n = work->n,
                                         .k = work->k,
                                         .bytes = bytes,
                                         .seconds = seconds};
    return ls_measure_add_work(measure->cluster, &row, error);
}
