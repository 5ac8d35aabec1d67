/* A step's time: each distinct rank is recorded, given its times on the cluster, carried out. */
#include <lockstep/base/meter.h>
#include <lockstep/ckpt/interval.h>
#include <lockstep/config/inputs.h>
#include <lockstep/planner/closed_forms.h>
#include <lockstep/planner/forecast.h>
#include <lockstep/train/fit.h>
#include <lockstep/train/recorded.h>

#include <math.h>
#include <string.h>

/* Of the host that has most. */
static int64_t ranks_on_host(const struct ls_cluster *cluster, const struct ls_layout *layout)
{
    return ls_ceil_div(layout->ranks, cluster->hosts);
}

int ls_forecast_accelerators(const struct ls_cluster *cluster, const struct ls_config *config,
                             const struct ls_layout *layout)
{
    if (!cluster->accelerator.is_core)
        return 1;
    if (config->parallel.threads > 0)
        return (int)config->parallel.threads;
    return (int)ls_max(cluster->accelerators / ranks_on_host(cluster, layout), 1);
}

/* ---- the pace -------------------------------------------------------------------------------- */

struct pace {
    const struct ls_layout *layout;
    const struct ls_cluster *cluster;
    int accelerators;
    double slowest;
};

static struct ls_work_time work_time(void *user, const struct ls_work *work)
{
    const struct pace *pace = user;
    struct ls_work_time time = ls_cost_work_time(pace->cluster, pace->accelerators, work);
    time.seconds *= pace->slowest;
    time.units_s *= pace->slowest;
    time.memory_s *= pace->slowest;
    return time;
}

/* The ranks that take part, on the cluster. */
static struct ls_cost_group group_of(const struct pace *pace, int64_t rank,
                                     const struct ls_recorded *move)
{
    enum ls_layout_group group = (enum ls_layout_group)move->group;
    bool message = move->operation.kind == LS_COMM_SEND;
    int64_t first = message ? rank : ls_group_member(pace->layout, group, rank, 0);
    int64_t next = ls_group_member(pace->layout, group, rank, message ? move->operation.peer : 1);
    int64_t low = ls_min(first, next), stride = ls_max(first, next) - low;
    int64_t ranks = message ? 2 : ls_group_size(pace->layout, group);
    struct ls_cost_group on =
        ls_cost_group_of(pace->cluster, pace->accelerators, low, ranks, stride);
    on.shift = message && group == LS_GROUP_PP ? (double)(stride * pace->accelerators) : 0;
    return on;
}

/* What does not hide runs alone, so it takes nothing from what computes. */
static struct ls_move_time move_time(void *user, int64_t rank, const struct ls_recorded *move)
{
    const struct pace *pace = user;
    const struct ls_cost_group group = group_of(pace, rank, move);
    double bytes = (double)move->operation.count * (double)ls_dtype_bytes(move->operation.dtype);
    bool pieces = move->operation.kind == LS_COMM_ALL_GATHER ||
                  move->operation.kind == LS_COMM_REDUCE_SCATTER ||
                  move->operation.kind == LS_COMM_ALL_TO_ALL;
    struct ls_move_time time = {.link = (int)ls_max(group.level, 0)};
    time.seconds = ls_cost_move(pace->cluster, &group, move->operation.kind,
                                pieces ? bytes * (double)group.ranks : bytes);
    ls_cost_taken(pace->cluster, &group, &time.units, &time.memory);
    time.units *= pace->cluster->overlap;
    time.memory *= pace->cluster->overlap;
    return time;
}

static double transfer_s(void *user, const struct ls_recorded_transfer *transfer)
{
    const struct pace *pace = user;
    return ls_cost_tier(pace->cluster, transfer->kind, transfer->writes,
                        (double)transfer->bytes / pace->accelerators);
}

/* ---- memory ---------------------------------------------------------------------------------- */

double ls_forecast_capacity(const struct ls_cluster *cluster, const struct ls_config *config,
                            int64_t accelerators)
{
    double has = cluster->accelerator.memory_bytes * (double)accelerators;
    double budget = (double)config->memory.device_budget;
    return budget > 0 ? fmin(has, budget) : has;
}

/* Ranks, memory, and whether it fits. */
static int memory_set(const struct ls_forecast_ask *ask, struct ls_forecast *f,
                      struct ls_error *error)
{
    const struct ls_layout *layout = ask->layout;
    const struct ls_cluster *cluster = ask->cluster;
    int status = LS_OK;
    f->ranks = layout->ranks;
    f->accelerators = ls_forecast_accelerators(cluster, ask->config, layout);
    f->capacity_bytes = ls_forecast_capacity(cluster, ask->config, f->accelerators);
    f->device_bytes = 0;
    for (int64_t pp = 0; pp < layout->size[LS_AXIS_PP]; pp++) {
        if (ask->first_misfit && f->device_bytes > f->capacity_bytes)
            break;
        struct ls_memory_plan plan;
        status = ls_plan_rank(ask->config, layout, ls_layout_first_rank(layout, pp), &plan, error);
        if (status)
            return status;
        f->device_bytes = fmax(f->device_bytes, (double)plan.total);
        for (int tier = 0; tier < LS_TIER_KINDS; tier++)
            f->tier_bytes[tier] = fmax(f->tier_bytes[tier], (double)plan.tiers[tier]);
    }
    int trainers = ls_memory_trainers(ask->config);
    f->device_bytes *= trainers;
    for (int tier = 0; tier < LS_TIER_KINDS; tier++)
        f->tier_bytes[tier] *= trainers;
    double on_host = fmax(1, floor((double)cluster->accelerators / f->accelerators));
    on_host = fmin(on_host, (double)(layout->ranks * ls_config_groups(ask->config)));
    double host = on_host * f->tier_bytes[LS_TIER_HOST];
    double disk = on_host * f->tier_bytes[LS_TIER_FILE];
    f->fits = f->device_bytes <= f->capacity_bytes &&
              (host == 0 || host <= cluster->host_memory_bytes) &&
              (disk == 0 || cluster->disk_bytes == 0 || disk <= cluster->disk_bytes);
    return status;
}

/* ---- the simulation -------------------------------------------------------------------------- */

static int ranks_add(const struct ls_forecast_ask *ask, struct ls_simulation *simulation,
                     struct ls_error *error)
{
    int status = LS_OK;
    for (int64_t rank = 0; rank < ask->layout->ranks && !status; rank++) {
        struct ls_recording recording;
        int64_t second_at;
        if (ask->tells)
            ls_meter("ranks", rank, ask->layout->ranks);
        if (ls_simulation_alike(simulation, rank) != rank)
            continue;
        if (ask->until_s > 0 && ls_now_s() > ask->until_s)
            return ls_error_set(error, LS_ESTOPPED, "time was up before a step was simulated");
        ls_recording_init(&recording);
        status = ls_record_works(ask->config, ask->layout, rank, &recording, &second_at, error);
        if (!status)
            status = ls_simulation_add(simulation, rank, &recording, second_at, error);
        ls_recording_release(&recording);
    }
    if (ask->tells)
        ls_meter("ranks", ask->layout->ranks, ask->layout->ranks);
    return status;
}

struct step_times {
    double step_s, flops; /* flops: of all ranks */
    double slowest_s;     /* of the rank that takes most without its waits for other stages */
    struct ls_simulated_rank mean;
};

/* A rank's figures. true: it grows alike with every micro-batch; waits move between passes. */
#define FIGURES(FIGURE)                                                                            \
    FIGURE(compute_s, true)                                                                        \
    FIGURE(work_s, true)                                                                           \
    FIGURE(contended_s, true)                                                                      \
    FIGURE(exposed_s, true)                                                                        \
    FIGURE(moving_s, true)                                                                         \
    FIGURE(offload_exposed_s, true)                                                                \
    FIGURE(offload_s, true)                                                                        \
    FIGURE(flops, true)                                                                            \
    FIGURE(pass_s, false)                                                                          \
    FIGURE(fixed_s, false)                                                                         \
    FIGURE(begin_s, false)                                                                         \
    FIGURE(end_s, false)
#define RANK(name) (((struct ls_simulated_rank *)0)->name)
/* No other type is compiled. */
#define DOUBLES(name)                                                                              \
    (_Generic(RANK(name), double : sizeof RANK(name), double * : sizeof RANK(name)))
#define ROW(name, grows)                                                                           \
    {offsetof(struct ls_simulated_rank, name), DOUBLES(name) / sizeof(double), grows},
#define PLUS(name, grows) +DOUBLES(name)
static const struct figure {
    size_t offset;
    int count;
    bool grows;
} figures[] = {FIGURES(ROW)};
_Static_assert(0 FIGURES(PLUS) == sizeof(struct ls_simulated_rank),
               "FIGURES has every member of struct ls_simulated_rank");
enum { FIGURE_ROWS = sizeof figures / sizeof *figures };

static double *figure_at(const struct ls_simulated_rank *rank, const struct figure *figure)
{
    return (double *)((char *)rank + figure->offset);
}

static double own_s(const struct ls_simulated_rank *rank)
{
    double own = rank->compute_s + rank->offload_exposed_s - rank->exposed_s[LS_ACCOUNT_PP];
    for (int account = 0; account < LS_ACCOUNTS; account++)
        own += rank->exposed_s[account];
    return own;
}

/* Means over all ranks; the flops of all of them. */
static void ranks_average(const struct ls_simulation *simulation, int64_t ranks,
                          struct step_times *times)
{
    *times = (struct step_times){.step_s = ls_simulation_step_s(simulation)};
    for (int64_t rank = 0; rank < ranks; rank++) {
        const struct ls_simulated_rank *one = ls_simulation_rank(simulation, rank);
        times->flops += one->flops;
        times->slowest_s = fmax(times->slowest_s, own_s(one));
        for (const struct figure *f = figures; f < figures + FIGURE_ROWS; f++)
            for (int i = 0; i < f->count; i++)
                figure_at(&times->mean, f)[i] += figure_at(one, f)[i] / (double)ranks;
    }
}

static double slowest_of(const struct ls_forecast_ask *ask, int accelerators)
{
    int64_t all = ask->slowest_of > 0 ? ask->slowest_of : ask->layout->ranks * accelerators;
    return ls_cost_slowest(ask->cluster, (double)all);
}

static int step_simulate(const struct ls_forecast_ask *ask, struct step_times *times,
                         struct ls_error *error)
{
    const struct ls_cluster *cluster = ask->cluster;
    struct ls_simulation *simulation = NULL;
    int accelerators = ls_forecast_accelerators(cluster, ask->config, ask->layout);
    struct pace user = {ask->layout, cluster, accelerators, slowest_of(ask, accelerators)};
    struct ls_pace pace = {work_time, move_time, transfer_s, &user, cluster->overlap, {0}};
    for (int l = 0; l < cluster->links; l++)
        pace.message_overlap[l] = cluster->link[l].overlap;
    int status = ls_simulation_new(ask->layout, &pace, &simulation, error);
    if (!status && ask->visit)
        ls_simulation_watch(simulation, ask->visit, ask->visit_user);
    if (!status)
        status = ranks_add(ask, simulation, error);
    if (!status)
        status = ls_simulation_run(simulation, error);
    if (!status)
        ranks_average(simulation, ask->layout->ranks, times);
    ls_simulation_free(simulation);
    return status;
}

/* What a step may grow less than its slowest rank: rounding. */
#define SLACK 1e-3

/* time is more's: false if it becomes negative. */
static bool time_extend(double *time, double few, double further)
{
    *time += further * (*time - few);
    return *time >= 0;
}

/* The line through the times of two steps, `further` times their distance behind the second one.
 * false if it is not straight: a time would become negative, or the step grew by less than its
 * slowest rank has to do, which lives on the waits of the first micro-batches for a while (as with
 * interleaved stages). */
static bool line_extend(const struct step_times *few, const struct step_times *more, double further,
                        struct step_times *times)
{
    bool straight = more->step_s - few->step_s >= (1 - SLACK) * (more->slowest_s - few->slowest_s);
    *times = *more;
    straight = time_extend(&times->step_s, few->step_s, further) && straight;
    straight = time_extend(&times->flops, few->flops, further) && straight;
    straight = time_extend(&times->slowest_s, few->slowest_s, further) && straight;
    for (const struct figure *f = figures; f < figures + FIGURE_ROWS; f++)
        for (int i = 0; f->grows && i < f->count; i++)
            straight =
                time_extend(&figure_at(&times->mean, f)[i], figure_at(&few->mean, f)[i], further) &&
                straight;
    return straight;
}

/* From steps of 3 and of 4 micro-batches for each stage: in between, each costs the same. If
 * that is not so yet, from 4 and 8, then 8 and 16, as long as the whole step, which is simulated
 * else, has twice as many. */
static int step_extend(const struct ls_forecast_ask *ask, struct step_times *times, bool *extended,
                       struct ls_error *error)
{
    const int64_t pp = ask->layout->size[LS_AXIS_PP], m = ask->layout->micro_batches;
    int64_t some = 3 * pp, next = 4 * pp;
    struct ls_config config;
    struct ls_layout layout;
    struct step_times few, more;
    struct ls_forecast_ask part = *ask;
    part.config = &config;
    part.layout = &layout;
    int status = LS_OK;
    *extended = false;
    if (m > next + pp && ls_step_shorten(ask->config, ask->layout, some, &config, &layout)) {
        status = step_simulate(&part, &few, error);
        while (!status && !*extended &&
               ls_step_shorten(ask->config, ask->layout, next, &config, &layout)) {
            status = step_simulate(&part, &more, error);
            if (status)
                break;
            *extended = line_extend(&few, &more, (double)(m - next) / (double)(next - some), times);
            if (4 * next > m)
                break;
            few = more;
            some = next;
            next *= 2;
        }
    }
    return status;
}

static void rates_set(const struct ls_forecast_ask *ask, const struct step_times *times,
                      struct ls_forecast *f)
{
    const struct ls_layout *layout = ask->layout;
    double sequences = (double)(layout->ramp.full * layout->numerics.leaf_sequences);
    double tokens = sequences * (double)layout->sequence;
    double peak = ls_cluster_peak(ask->cluster, layout->numerics.act) * (double)f->ranks *
                  (double)f->accelerators;
    double model = ls_model_flops_per_token(&layout->model, layout->sequence) * tokens;
    const struct ls_simulated_rank *mean = &times->mean;
    double busy = mean->compute_s + mean->offload_exposed_s;
    f->samples = ls_cost_samples(ask->cluster, ask->config, layout, f->accelerators);
    f->samples_exposed_s = fmax(f->samples.seconds - times->step_s, 0);
    f->step_s = times->step_s + f->samples_exposed_s;
    f->compute_s = mean->compute_s;
    f->slowest = slowest_of(ask, f->accelerators);
    f->contended_s = mean->contended_s;
    memcpy(f->work_s, mean->work_s, sizeof f->work_s);
    memcpy(f->exposed_s, mean->exposed_s, sizeof f->exposed_s);
    memcpy(f->moving_s, mean->moving_s, sizeof f->moving_s);
    f->offload_exposed_s = mean->offload_exposed_s;
    f->offload_s = mean->offload_s;
    for (int account = 0; account < LS_ACCOUNTS; account++)
        busy += f->exposed_s[account];
    f->idle_s = fmax(times->step_s - busy, 0);
    f->tokens_per_s = tokens / f->step_s;
    f->bubble = f->exposed_s[LS_ACCOUNT_PP] / f->step_s;
    f->mfu = model / (f->step_s * peak);
    f->hfu = times->flops / (f->step_s * peak);
}

/* ---- the whole run --------------------------------------------------------------------------- */

double ls_forecast_parameters(const struct ls_config *config)
{
    struct ls_params params;
    const struct ls_part all = {.tp = 1};
    const struct ls_numerics numerics = ls_config_numerics(config);
    double sum = 0;
    if (ls_params_init(&params, &config->model, &numerics, &all, NULL))
        return 0;
    for (int i = 0; i < params.count; i++)
        sum += (double)params.list[i].rows * (double)params.list[i].cols;
    ls_params_release(&params);
    return sum;
}

double ls_forecast_tokens(const struct ls_config *config)
{
    double samples = (double)ls_config_samples(config, ls_config_steps(config));
    return samples / (double)ls_config_batches(config) * (double)config->data.sequence;
}

/* How often snapshots are taken; false: a failure loses more than what came after the last one. */
static bool snapshots_set(const struct ls_forecast_ask *ask, double mtbf_s, struct ls_forecast *f)
{
    int64_t every = ask->config->snapshot.every;
    bool one_host = (double)f->ranks * f->accelerators <= (double)ask->cluster->accelerators;
    if (every == 0)
        return false;
    f->run.snapshot = ls_cost_snapshot(ask->cluster, ask->config, ask->layout, f->accelerators,
                                       &f->run.save, f->step_s);
    /* As the run weighs it: what steps wait, and what threads take. */
    double cost_s = f->run.snapshot.seconds + f->run.save.hash_s + f->run.snapshot.copy_s;
    f->run.snapshot_every_s =
        every > 0 ? (double)every * f->step_s : ls_snapshot_interval(cost_s, mtbf_s);
    f->run.snapshot_every_s = fmax(f->run.snapshot_every_s, f->step_s);
    return one_host || f->run.snapshot.send_s > 0;
}

/* Checkpoints, failures and restarts. */
static void goodput_set(const struct ls_forecast_ask *ask, double failures_per_hour,
                        struct ls_forecast *f)
{
    double mtbf_s = failures_per_hour > 0 ? 3600 / failures_per_hour : INFINITY;
    double save_s = f->run.save.seconds;
    /* Between steps alone. */
    if (failures_per_hour > 0)
        f->run.best_every_s = fmax(ls_daly_interval(save_s, mtbf_s), f->step_s);
    f->run.save_every_s = ask->config->train.save_every > 0
                              ? (double)ask->config->train.save_every * f->step_s
                              : f->run.best_every_s;
    double every_s = f->run.save_every_s > 0 ? f->run.save_every_s : INFINITY, held_s = save_s;
    if (snapshots_set(ask, mtbf_s, f)) {
        held_s = f->run.snapshot.seconds;
        every_s = f->run.snapshot_every_s;
    }
    f->run.goodput = ls_goodput(every_s, held_s, ask->cluster->restart_s, mtbf_s);
}

int ls_forecast_run(const struct ls_forecast_ask *ask, struct ls_forecast *f,
                    struct ls_error *error)
{
    const struct ls_cluster *cluster = ask->cluster;
    double used = (double)f->ranks * f->accelerators;
    double hosts = ceil(used / (double)cluster->accelerators);
    double failures_per_hour = cluster->failures_per_hour * used;
    int status =
        ls_cost_save(cluster, ask->config, ask->layout, f->accelerators, &f->run.save, error);
    if (status)
        return status;
    goodput_set(ask, failures_per_hour, f);
    f->run.tokens = ask->tokens > 0 ? ask->tokens : ls_forecast_tokens(ask->config);
    f->power_w = (used * cluster->accelerator.power_w + hosts * cluster->host_power_w) *
                 cluster->power_overhead;
    f->price_per_hour = used * cluster->price_per_hour;
    double hours = f->run.tokens / f->tokens_per_s / f->run.goodput / 3600;
    f->run.days = hours / 24;
    f->run.price = hours * f->price_per_hour;
    f->run.energy_wh = hours * f->power_w;
    f->run.failures = hours * failures_per_hour;
    return LS_OK;
}

int ls_forecast_make(const struct ls_forecast_ask *ask, struct ls_forecast *f,
                     struct ls_error *error)
{
    const struct ls_layout *layout = ask->layout;
    struct step_times times;
    bool extended = false;
    *f = (struct ls_forecast){0};
    int accelerators = ls_forecast_accelerators(ask->cluster, ask->config, layout);
    int64_t cores = ask->cluster->accelerators, there = ask->cluster->hosts * cores;
    int64_t on_host = ranks_on_host(ask->cluster, layout);
    if (layout->ranks * accelerators > there)
        return ls_error_set(error, LS_ELAYOUT,
                            "the layout has %ld ranks of %d each: the cluster has %ld "
                            "accelerators; give it more hosts, or cut the model less",
                            (long)layout->ranks, accelerators, (long)there);
    if (on_host * accelerators > cores)
        return ls_error_set(error, LS_ELAYOUT,
                            "parallel.threads = %d: a host has %ld cores and %s; expected at most "
                            "%ld, or 0, which divides a host's cores by its ranks",
                            accelerators, (long)cores, ls_counted(on_host, "rank").text,
                            (long)(cores / on_host));
    int status = memory_set(ask, f, error);
    if (status || (ask->first_misfit && !f->fits))
        return status;
    if (ask->extend && !ask->visit)
        status = step_extend(ask, &times, &extended, error);
    if (!status && !extended) {
        status = step_simulate(ask, &times, error);
        memcpy(f->pass_s, times.mean.pass_s, sizeof f->pass_s);
        f->fixed_s = times.mean.fixed_s;
    }
    if (!status)
        rates_set(ask, &times, f);
    return status;
}
