/* lockstep profile RUN: where the time of a run went, against the plan. */
#include "cmd.h"

#include <lockstep/base/words.h>
#include <lockstep/planner.h>

#include <unistd.h>

/* In milliseconds. */
static void row_print(const struct ls_profile *p, const char *name,
                      const struct ls_profile_row *row, bool measured)
{
    printf("  %-28s", name);
    if (measured)
        printf(" %10.2f %9.2f to %9.2f %6.1f%%", 1e3 * row->median_s, 1e3 * row->low_s,
               1e3 * row->high_s, 100 * row->median_s / p->step.median_s);
    else
        printf(" %10s %9s    %9s %7s", "", "", "", "");
    if (p->planned)
        printf(" %10.2f %6.1f%%", 1e3 * row->planned_s, 100 * row->planned_s / p->step.planned_s);
    if (p->planned && measured)
        printf(" %+10.2f", 1e3 * (row->median_s - row->planned_s));
    printf("\n");
}

static bool shown(const struct ls_profile *p, const struct ls_profile_row *row)
{
    return row->measured || (p->planned && row->planned_s > 0.0005 * p->step.planned_s);
}

static void parts_print(const struct ls_profile *p)
{
    double rest = p->step.median_s;
    for (int i = 0; i < LS_PROFILE_PARTS; i++) {
        rest -= p->part[i].measured ? p->part[i].median_s : 0;
        if (shown(p, &p->part[i]))
            row_print(p, ls_profile_part_name(i), &p->part[i], p->part[i].measured);
    }
    /* Medians of parts need not add up to that of the whole; step_s is rank 0's. */
    printf("  %-28s %10.2f %25s %5.1f%%\n", "rest (medians do not add up)", 1e3 * rest, "",
           100 * rest / p->step.median_s);
    row_print(p, "a step", &p->step, true);
}

/* "ranks 0, 4, 8 and 12", "all ranks" */
static void traces_head(const struct ls_profile *p)
{
    const struct ls_profile_trace *trace = &p->trace;
    printf("by the spans of the traces of ");
    if (trace->ranks == p->layout.ranks)
        printf("all ranks\n\n");
    else
        printf("%s, of %ld\n\n", ls_counted(trace->ranks, "rank").text, (long)p->layout.ranks);
}

static void traces_print(const struct ls_profile *p)
{
    const struct ls_profile_trace *trace = &p->trace;
    if (trace->ranks == 0)
        return;
    printf("\nwithin computing, by the traces\n");
    for (int i = 0; i < LS_PROFILE_PHASES; i++)
        if (trace->phase[i].median_s > 0)
            printf("  %-28s %10.2f %9.2f to %9.2f %6.1f%%\n", ls_profile_phase_name(i),
                   1e3 * trace->phase[i].median_s, 1e3 * trace->phase[i].low_s,
                   1e3 * trace->phase[i].high_s, 100 * trace->phase[i].median_s / p->step.median_s);
    if (trace->ranks > 1)
        printf("  rank %ld computes longest: %.2f, %.1f %% more than the middle one\n",
               (long)trace->slowest, 1e3 * trace->slowest_s,
               100 * (trace->slowest_s / trace->middle_s - 1));
    printf("\nbetween steps, in the whole trace of rank %ld\n", (long)trace->rank[0]);
    for (int i = 0; i < LS_PROFILE_BETWEENS; i++)
        if (trace->between[i].count)
            printf("  %-28s %10.2f each, %ld times\n", ls_profile_between_name(i),
                   1e3 * trace->between[i].sum_s / (double)trace->between[i].count,
                   (long)trace->between[i].count);
}

static void works_print(const struct ls_profile *p)
{
    struct ls_profile_row outside = p->part[LS_PROFILE_COMPUTE];
    if (!p->profiled && !p->planned)
        return;
    printf("\ncomputing and the optimizer by ops%s\n",
           p->profiled ? "" : " (log.profile=true in a run measures them)");
    outside.median_s += p->part[LS_PROFILE_OPTIMIZER].median_s;
    for (int i = 0; i < LS_PROFILE_WORKS; i++) {
        row_print(p, ls_profile_work_name(i), &p->work[i], p->work[i].measured);
        outside.median_s -= p->work[i].measured ? p->work[i].median_s : 0;
    }
    if (p->profiled)
        printf("  %-28s %10.2f %25s %5.1f%%\n", "outside of ops", 1e3 * outside.median_s, "",
               100 * outside.median_s / p->step.median_s);
}

static void profile_print(const struct ls_profile *p)
{
    cmd_print("%s: %s, %s of %s (%s)\n", p->directory, ls_counted(p->steps, "step").text,
              ls_counted(p->layout.ranks, "rank").text,
              ls_counted(ls_max(p->threads, 1), "thread").text, p->transport);
    printf("steps %ld to %ld; %ld others left out (the first ones after a start, skipped ones, "
           "another batch or layout%s)\n%s",
           (long)p->first, (long)p->last, (long)p->left_out,
           p->trace.ranks ? ", not in all traces" : "", p->trace.ranks ? "" : "\n");
    if (p->trace.ranks)
        traces_head(p);
    printf("%-30s %10s %22s %7s%s\n", "milliseconds, mean over ranks", "median",
           "nine in ten within", "share", p->planned ? "       plan   share difference" : "");
    parts_print(p);
    if (p->offload.measured)
        row_print(p, "of it for memory tiers (rank 0)", &p->offload, true);
    traces_print(p);
    works_print(p);
    if (p->between.measured)
        printf(
            "\nbetween steps (records, saves, evaluations): %.2f ms, in one of twenty above %.2f "
            "ms\n",
            1e3 * p->between.median_s, 1e3 * p->between.high_s);
    cmd_print("\n%s\n", ls_profile_bottleneck(p).text);
    if (!p->planned)
        cmd_print("For the plan beside it: lockstep bench machine --out machine.yaml "
                  "%s/config.yaml, then --cluster machine.yaml\n",
                  p->directory);
}

int cmd_profile(const struct cmd_args *args, struct ls_error *error)
{
    static struct ls_profile profile;
    struct ls_cluster cluster = {0};
    const char *path = cmd_args_value(args, "--cluster"), *planned = profile.config.train.plan;
    if (args->words == 0)
        return ls_error_set(error, LS_ECONFIG, "expected the directory of a run");
    cmd_progress_begin();
    int status = ls_profile_read(&profile, args->word[0], error);
    if (!status && !path && planned[0] && access(planned, R_OK) == 0)
        path = planned;
    if (!status && path)
        status = ls_cluster_read(path, &cluster, error);
    if (!status && path)
        status = ls_profile_plan(&profile, &cluster, error);
    if (!status)
        profile_print(&profile);
    ls_cluster_release(&cluster);
    return status;
}
