/* RUN/launch.prom: what became of a job since its launcher began. */
#include "launch/launch_private.h"

#include <lockstep/base/file.h>
#include <lockstep/config/inputs.h>

#include <stdio.h>

enum { SECONDS_BETWEEN_WRITES = 10, METRICS_MAX = 16 + LAUNCH_CAUSES };

void launch_prom_open(struct launch_prom *prom, const struct ls_launch *launch)
{
    const char *out = launch->config->train.out;
    double now_s = ls_now_s();
    *prom = (struct launch_prom){
        .log = launch->log, .out = out, .began_s = now_s, .further_s = now_s, .stands = true};
    snprintf(prom->path, sizeof prom->path, "%s/launch.prom", out);
}

void launch_prom_further(struct launch_prom *prom)
{
    double now_s = ls_now_s();
    if (prom->stands)
        prom->lost_s += now_s - prom->further_s;
    prom->stands = false;
    prom->further_s = now_s;
}

static double goodput(const struct launch_prom *prom, double now_s)
{
    double lost_s = prom->lost_s + (prom->stands ? now_s - prom->further_s : 0);
    return now_s > prom->began_s ? 1 - lost_s / (now_s - prom->began_s) : 0;
}

static size_t metrics_of(const struct launch_prom *prom, struct ls_metric list[METRICS_MAX])
{
    double saved;
    int64_t step = launch_newest(prom->out, &saved);
    const struct ls_metric counters[] = {
        {"lockstep_launch_starts", "Starts of the job.", NULL, .value = prom->starts},
        {"lockstep_launch_steps_again", "Steps that were computed again after failures.", NULL,
         .value = (double)prom->again},
        {"lockstep_launch_recovery_seconds",
         "From each failure, as the launcher saw it, to the first new step after it.", "seconds",
         .value = prom->recovery_s},
    };
    const struct ls_metric gauges[] = {
        {"lockstep_launch_last_recovery_seconds",
         "The same of the last failure that the job got over; 0: there was none.", "seconds",
         .value = prom->last_s},
        {"lockstep_launch_goodput",
         "Share of the time since the launcher began in which the job got further.", NULL,
         .value = goodput(prom, ls_now_s())},
        {"lockstep_launch_ranks", "Ranks of the newest start.", NULL, .value = (double)prom->ranks},
        {"lockstep_launch_updated_timestamp_seconds",
         "Time of day of this file, seconds since 1970.", "seconds", .value = ls_record_time_s()},
        {"lockstep_launch_checkpoint_timestamp_seconds",
         "When the newest checkpoint was written, seconds since 1970.", "seconds", .value = saved},
    };
    size_t count = 0, always = sizeof counters / sizeof *counters;
    for (size_t i = 0; i < always; i++) {
        list[count] = counters[i];
        list[count++].type = LS_METRIC_COUNTER;
    }
    for (int cause = LAUNCH_KILLED; cause < LAUNCH_CAUSES; cause++)
        list[count++] = (struct ls_metric){
            .name = "lockstep_launch_failures",
            .help = "Failures of the job, by kind.",
            .type = LS_METRIC_COUNTER,
            .labels = {{0}, {"kind", launch_cause_name((enum launch_cause)cause)}},
            .value = (double)prom->failures[cause]};
    for (size_t i = 0; i + (step < 0) < sizeof gauges / sizeof *gauges; i++) {
        list[count] = gauges[i];
        list[count++].type = LS_METRIC_GAUGE;
    }
    return count;
}

static int write_metrics(const void *context, FILE *file, struct ls_error *error)
{
    const struct launch_prom *prom = context;
    struct ls_metric list[METRICS_MAX];
    struct ls_run_name run = ls_run_name(prom->out);
    size_t count = metrics_of(prom, list);
    for (size_t i = 0; i < count; i++)
        list[i].labels[0] = (struct ls_metric_label){"run", run.text};
    return ls_prometheus_write(file, list, count, error);
}

void launch_prom_write(struct launch_prom *prom, bool now)
{
    struct ls_error error = {0};
    double now_s = ls_now_s();
    if (!now && now_s < prom->next_s)
        return;
    prom->next_s = now_s + SECONDS_BETWEEN_WRITES;
    bool failed = ls_file_write(prom->path, write_metrics, prom, &error) != LS_OK;
    if (failed && !prom->failed)
        ls_log(prom->log, LS_LOG_WARNING, "%s: is not up to date: %s", prom->path, error.text);
    prom->failed = failed;
}
