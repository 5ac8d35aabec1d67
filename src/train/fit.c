/* What memory a run asks of its machine, before it takes any of it. */
#include "train/trainer.h"

#include <lockstep/base/words.h>
#include <lockstep/state.h>
#include <lockstep/train/fit.h>

#include <math.h>
#include <stdio.h>
#include <sys/statvfs.h>

/* Ranks of a pipeline rank on this machine. */
static int64_t ranks_here(const struct ls_config *config, const struct ls_layout *layout,
                          const struct ls_comm *world, int64_t pp)
{
    int64_t count = 0, at[LS_AXES];
    if (!world)
        return ls_config_groups(config) * layout->ranks / layout->size[LS_AXIS_PP];
    for (int rank = 0; rank < ls_comm_size(world); rank++) {
        ls_layout_coordinates(layout, rank % layout->ranks, at);
        count += at[LS_AXIS_PP] == pp && ls_comm_on_machine(world, rank);
    }
    return count;
}

/* Measured, and rounded up. PROCESS: 14 MiB of library files and 4 of their data; over MPI 5 more.
 * RANK: half a MiB of tables, stacks of its threads, 2 MiB of records of pending operations. */
enum { PROCESS_BYTES = 24 << 20, RANK_BYTES = 3 << 20 };

/* Of a rank, for the sums of its groups over MPI. */
static int64_t sums_bytes(const struct ls_layout *layout)
{
    int64_t bytes = 0;
    for (int g = 0; g < LS_GROUPS; g++) {
        int64_t ranks = ls_group_size(layout, (enum ls_layout_group)g);
        if (ranks > 1)
            bytes += ls_comm_mpi_sum_bytes((int)ranks);
    }
    return bytes;
}

static int64_t beside(const struct ls_config *config, const struct ls_layout *layout,
                      const struct ls_comm *world, int64_t ranks)
{
    bool mpi = world ? ls_comm_transport(world) == LS_TRANSPORT_MPI
                     : config->comm.transport == LS_TRANSPORT_MPI;
    int64_t processes = mpi ? ranks : 1;
    int64_t measures = processes * (int64_t)ls_gemm_peak_bytes(layout->numerics.act);
    int threads = ls_rank_threads(config, world ? ls_comm_core_ranks(world) : (int)ranks);
    int64_t step = (int64_t)ls_ops_workspace_bytes(threads) + (mpi ? sums_bytes(layout) : 0);
    return processes * PROCESS_BYTES + ranks * RANK_BYTES + ls_max(measures, ranks * step);
}

/* Of a machine with that many ranks, of the files of a unit of `bytes` that so many groups hold. */
static int64_t unit_share(const struct ls_layout *layout, const struct ls_state_files *files,
                          double ranks, double groups, double bytes)
{
    double all = (double)(files->model + files->optimizer);
    double stage = ranks * (double)layout->size[LS_AXIS_PP] / (double)layout->ranks / groups *
                   (double)files->stage / all;
    return (int64_t)(bytes * fmin(stage, 1));
}

/* Of a machine with that many ranks, what they write of all units: workers of a parameter server
 * have parameters alone, and the global ones of DiLoCo their outer optimizer. */
static int copy_of(const struct ls_config *config, const struct ls_layout *layout, int64_t ranks,
                   int64_t *bytes, struct ls_error *error)
{
    struct ls_state_files files;
    int status = ls_state_file_bytes(config, layout, &files, error);
    if (status)
        return status;
    const double count = (double)ranks, all = (double)(files.model + files.optimizer);
    double workers = 0, outer = all;
    if (config->async.mode == LS_CONFIG_SERVER)
        workers = (double)files.model;
    if (config->async.mode == LS_CONFIG_DILOCO) {
        const struct ls_optim_config optim = ls_config_outer_optim(config);
        workers = all;
        outer = (double)files.model * (1 + ls_optimizer_states_most(&optim));
    }
    const double groups = (double)config->parallel.workers;
    *bytes =
        unit_share(layout, &files, count, groups, workers * (double)ls_config_workers(config)) +
        unit_share(layout, &files, count, 1, outer);
    return LS_OK;
}

/* The newest, the one that is being taken, and the one before, which is being removed or stored. */
static int snapshots_of(const struct ls_config *config, const struct ls_layout *layout,
                        int64_t ranks, int64_t *bytes, struct ls_error *error)
{
    int status = copy_of(config, layout, ranks, bytes, error);
    *bytes *= 3;
    return status;
}

bool ls_memory_saves(const struct ls_config *config)
{
    bool any = config->train.save_every || (config->train.keep_best && config->eval.every);
    return any && config->checkpoint.async && !config->snapshot.every &&
           config->async.mode == LS_CONFIG_SYNC;
}

/* The copy of a checkpoint that is written beside steps. */
static int saves_of(const struct ls_config *config, const struct ls_layout *layout,
                    struct ls_memory_fit *fit, struct ls_error *error)
{
    if (!ls_memory_saves(config))
        return LS_OK;
    int64_t bytes, free = fit->machine.free;
    int status = copy_of(config, layout, fit->ranks, &bytes, error);
    bool room = free == 0 || fit->bytes + fit->beside + bytes <= free;
    if (!status && (room || config->checkpoint.async != LS_CONFIG_AUTO))
        fit->saves = bytes;
    return status;
}

/* snapshot.every=auto leaves half of what the ranks do not plan to take to others. */
static int half_left(const struct ls_memory_fit *fit, int64_t bytes, int64_t more,
                     struct ls_error *error)
{
    int64_t left = ls_max(fit->machine.total - fit->bytes, 0) / 2;
    if (fit->machine.total > 0 && bytes > left)
        return ls_error_set(error, LS_ENOSPC,
                            "up to three would take %s, and snapshot.every=auto takes half of what "
                            "the ranks leave of this machine's memory, %s. With a number of steps "
                            "they are taken anyway",
                            ls_bytes((double)bytes).text, ls_bytes((double)left).text);
    if (fit->machine.free > 0 && more > fit->machine.free)
        return ls_error_set(error, LS_ENOSPC,
                            "they would take %s, and %s of this machine's memory are free",
                            ls_bytes((double)more).text, ls_bytes((double)fit->machine.free).text);
    return LS_OK;
}

int fit_snapshots(const struct ls_config *config, const struct ls_layout *layout,
                  const struct ls_comm *world, bool holds, struct ls_error *error)
{
    bool automatic = config->snapshot.every == LS_CONFIG_AUTO;
    struct ls_memory_fit fit;
    struct statvfs room;
    int64_t bytes = 0;
    int status = ls_memory_fit(config, layout, world, &fit, error);
    if (!status)
        status = snapshots_of(config, layout, fit.ranks, &bytes, error);
    int64_t more = holds ? bytes / 3 * 2 : bytes;
    if (!status && automatic)
        status = half_left(&fit, bytes, more, error);
    /* MPI's own memory may lie there too, and ends a rank where it finds no room. Who makes the
     * folder says what is wrong with it. */
    if (status || statvfs(config->snapshot.folder, &room))
        return status;
    int64_t there = (int64_t)(room.f_bavail * room.f_frsize), least = automatic ? 2 * more : more;
    return there >= least
               ? LS_OK
               : ls_error_set(error, LS_ENOSPC, "%.300s has %s free: expected at least %s",
                              config->snapshot.folder, ls_bytes((double)there).text,
                              ls_bytes((double)least).text);
}

int ls_memory_trainers(const struct ls_config *config)
{
    return config->check.replay > 0 ? 2 : 1;
}

int ls_memory_fit(const struct ls_config *config, const struct ls_layout *layout,
                  const struct ls_comm *world, struct ls_memory_fit *fit, struct ls_error *error)
{
    const int64_t trainers = ls_memory_trainers(config);
    *fit = (struct ls_memory_fit){.machine = ls_device_memory()};
    for (int64_t pp = 0; pp < layout->size[LS_AXIS_PP]; pp++) {
        struct ls_memory_plan plan;
        int64_t ranks = ranks_here(config, layout, world, pp);
        if (ranks == 0)
            continue;
        int status = ls_plan_rank(config, layout, ls_layout_first_rank(layout, pp), &plan, error);
        if (status)
            return status;
        fit->ranks += ranks;
        int64_t rollout = (int64_t)plan.rollout;
        fit->bytes +=
            ranks * (trainers * (int64_t)(plan.total + plan.tiers[LS_TIER_HOST]) + rollout);
        fit->rank_bytes = ls_max(fit->rank_bytes, trainers * (int64_t)plan.total + rollout);
    }
    fit->beside = beside(config, layout, world, fit->ranks);
    int status = saves_of(config, layout, fit, error);
    if (!status && config->snapshot.every > 0)
        status = snapshots_of(config, layout, fit->ranks, &fit->snapshots, error);
    fit->bytes += fit->snapshots + fit->saves;
    return status;
}

enum ls_fit ls_memory_fits(const struct ls_memory_fit *fit)
{
    if (fit->machine.total > 0 && fit->bytes > fit->machine.total)
        return LS_FITS_NOT;
    return fit->machine.free > 0 && fit->bytes > fit->machine.free ? LS_FITS_NOT_NOW : LS_FITS;
}

bool ls_memory_keeps_budget(const struct ls_config *config, const struct ls_memory_fit *fit)
{
    int64_t budget = config->memory.device_budget;
    return budget == 0 || fit->rank_bytes <= budget;
}

struct changes_text {
    char text[500];
};

/* "enough would be memory.recompute=full (8.1 GiB), or ..."; if nothing would, what else. */
static struct changes_text changes_name(const struct ls_config *config,
                                        const struct ls_layout *layout, const struct ls_comm *world,
                                        int64_t limit, const char *what_else)
{
    struct changes_text out;
    struct ls_memory_change changes[LS_MEMORY_CHANGES_MAX];
    int count = ls_memory_changes(config, layout, world, limit, changes);
    snprintf(out.text, sizeof out.text,
             count ? "enough would be "
                   : "no change of memory.recompute, memory.offload, parallel.zero and batch.micro "
                     "is enough; %s",
             what_else);
    for (int i = 0; i < count; i++)
        ls_string_add(out.text, sizeof out.text, i ? ", or " : "", "%s (%s)", changes[i].keys,
                      ls_bytes((double)changes[i].bytes).text);
    return out;
}

int fit_check(const struct ls_config *config, const struct ls_layout *layout,
              const struct ls_comm *world, const struct ls_log *log, int64_t *saves,
              struct ls_error *error)
{
    struct ls_memory_fit fit;
    int status = ls_memory_fit(config, layout, world, &fit, error);
    if (status)
        return status;
    *saves = fit.saves;
    if (!ls_memory_keeps_budget(config, &fit))
        return ls_config_reject(config, LS_ELAYOUT, "memory.device_budget", error,
                                "a rank would take %s of its device's memory: %s. `lockstep plan "
                                "memory` shows what takes it",
                                ls_bytes((double)fit.rank_bytes).text,
                                changes_name(config, layout, world, 0, "use more ranks").text);
    enum ls_fit fits = ls_memory_fits(&fit);
    struct ls_counted ranks = ls_counted(fit.ranks, "rank"), needs = ls_bytes((double)fit.bytes),
                      has = ls_bytes((double)fit.machine.total);
    if (fits == LS_FITS_NOT && !config->train.overcommit)
        return ls_error_set(error, LS_ELAYOUT,
                            "%s on this machine would take %s of memory, and it has %s: %s. "
                            "`lockstep plan memory` shows what takes it; memory.overcommit=true "
                            "starts anyway",
                            ranks.text, needs.text, has.text,
                            changes_name(config, layout, world, fit.machine.total,
                                         "set memory.file to offload to a disk, or use more "
                                         "machines")
                                .text);
    if (fits != LS_FITS && ls_comm_first_on_machine(world))
        ls_log(log, LS_LOG_WARNING, "%s on this machine will take %s of memory, of %s %s free now",
               ranks.text, needs.text, has.text, ls_bytes((double)fit.machine.free).text);
    return LS_OK;
}

int ls_memory_here(const struct ls_config *config, double *bytes, struct ls_error *error)
{
    struct ls_memory_fit fit;
    struct ls_layout layout;
    int status = ls_config_layout(config, 0, &layout, error);
    if (!status)
        status = ls_memory_fit(config, &layout, NULL, &fit, error);
    if (status)
        return status;
    *bytes = (double)fit.bytes;
    if (ls_memory_fits(&fit) == LS_FITS)
        return LS_OK;
    return ls_error_set(error, LS_ENOMEM,
                        "%s on this machine would need %s of memory, but only %s is free: use "
                        "fewer layers, a smaller batch.global or shorter data.sequence",
                        ls_counted(fit.ranks, "rank").text, ls_bytes(*bytes).text,
                        ls_bytes((double)fit.machine.free).text);
}
