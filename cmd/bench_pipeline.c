/* lockstep bench pipeline: what each schedule idles, on ranks whose stages sleep, beside theory. */
#include "bench.h"

#include <lockstep/base/words.h>
#include <lockstep/parallel/pipeline.h>

enum { RANKS_MAX = 64, BOUNDARY = 4096 };

struct bench {
    int64_t ranks, micro_batches, work_ms;
};

/* One schedule on all ranks. */
struct trial {
    const struct ls_schedule *schedule;
    const struct ls_schedule_costs *costs;
    struct ls_rehearsal result;
};

static int rehearse(struct ls_comm *comm, void *user, struct ls_error *error)
{
    struct trial *trial = user;
    struct ls_rehearsal result;
    int status =
        ls_pipeline_rehearse(comm, trial->schedule, trial->costs, BOUNDARY, &result, error);
    if (status == LS_OK && ls_comm_rank(comm) == 0)
        trial->result = result;
    return status;
}

/* What a rank does for a micro-batch takes as long with any number of chunks. */
static int bench_schedule(const struct bench *bench, enum ls_schedule_kind kind, int chunks,
                          struct ls_error *error)
{
    struct ls_schedule schedule;
    struct ls_schedule_figures figures;
    double third = (double)bench->work_ms * 1e-3 / 3 / chunks;
    const struct ls_schedule_costs costs = {.all = {third, third, third}};
    int status = ls_schedule_generate(&schedule, kind, (int)bench->ranks, chunks,
                                      bench->micro_batches, error);
    if (status)
        return status;
    struct trial trial = {.schedule = &schedule, .costs = &costs};
    status = ls_schedule_simulate(&schedule, &costs, &figures, error);
    if (status == LS_OK) {
        status = ls_world_run(schedule.ranks, rehearse, &trial, error);
        if (status == LS_OK)
            printf("%-12s %3d  %9.2f  %7.2f %7.2f  %7.2f %7.2f  %8.2f\n", ls_schedule_name(kind),
                   chunks, trial.result.makespan_s * 1e3, 100 * figures.bubble,
                   100 * trial.result.bubble, 100 * figures.bubble_rank,
                   100 * trial.result.bubble_rank, (double)figures.live_max / chunks);
        cmd_flush();
        ls_schedule_figures_release(&figures);
    }
    ls_schedule_release(&schedule);
    return status;
}

int cmd_bench_pipeline(const struct cmd_args *args, struct ls_error *error)
{
    struct bench bench = {.ranks = 8, .micro_batches = 16, .work_ms = 30};
    const struct bench_key keys[] = {
        {.name = "ranks", .number = &bench.ranks, .min = 1, .max = RANKS_MAX},
        {.name = "micro", .number = &bench.micro_batches, .min = 1, .max = 4096},
        {.name = "ms", .number = &bench.work_ms, .min = 1, .max = 10000},
        {0}};
    int status = bench_args(args, keys, error);
    if (status == LS_OK)
        printf("%s, %s of %d ms a rank, a third each for F, I and W\n"
               "idle: of all ranks in %%; rank: of the slowest rank, from its first action to its "
               "last, in %%\n"
               "live: activations of most micro-batches at once, in those of a whole rank\n"
               "%-12s %3s  %9s  %7s %7s  %7s %7s  %8s\n",
               ls_counted(bench.ranks, "thread rank").text,
               ls_counted(bench.micro_batches, "micro-batch").text, (int)bench.work_ms, "schedule",
               "v", "step, ms", "idle", "run", "rank", "run", "live");
    for (int kind = 0; kind < LS_SCHEDULE_KINDS && status == LS_OK; kind++) {
        int fixed = ls_schedule_chunks((enum ls_schedule_kind)kind), chunks = fixed ? fixed : 2;
        bool interleaved = kind == LS_SCHEDULE_INTERLEAVED;
        if (ls_schedule_admits((enum ls_schedule_kind)kind, bench.ranks, chunks,
                               bench.micro_batches, NULL))
            continue;
        status = bench_schedule(&bench, (enum ls_schedule_kind)kind, chunks, error);
        if (status == LS_OK && interleaved)
            status = bench_schedule(&bench, (enum ls_schedule_kind)kind, 4, error);
    }
    return status;
}
