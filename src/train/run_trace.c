/* The spans of a run besides its steps, and when the trace is written. */
#include "run_trace.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#define SECONDS_BETWEEN_WRITES 10.0
#define WRITES_SHARE           20.0 /* of the time at most one part in so many */

void run_trace_open(struct run_trace *trace, const struct ls_trainer *trainer,
                    const struct ls_log *log)
{
    *trace = (struct run_trace){.trace = trainer->trace, .log = log, .trainer = trainer};
    trace->next_s = ls_now_s() + SECONDS_BETWEEN_WRITES;
}

void run_trace_begin(struct run_trace *trace, const char *phase)
{
    trace->phase = ls_trace_phase(trace->trace, phase);
    ls_trace_begin(trace->trace, phase, "phase");
}

void run_trace_end(struct run_trace *trace)
{
    ls_trace_end(trace->trace);
    ls_trace_phase(trace->trace, trace->phase);
}

static int write_file(struct run_trace *trace, const char *path, struct ls_error *error)
{
    char directory[LS_CONFIG_TEXT_BYTES + 64];
    snprintf(directory, sizeof directory, "%s", path);
    *strrchr(directory, '/') = '\0';
    if (mkdir(directory, 0777) && errno != EEXIST)
        return ls_error_errno(error, errno, "%s: cannot be made", directory);
    return ls_trace_write(path, &trace->trace, 1, error);
}

void run_trace_write(struct run_trace *trace, bool now)
{
    struct ls_error error = {0};
    char path[LS_CONFIG_TEXT_BYTES + 64];
    double begin_s = ls_now_s();
    if (!trace->trace || (!now && begin_s < trace->next_s))
        return;
    snprintf(path, sizeof path, "%s/trace/rank-%05d.json", trace->trainer->config.train.out,
             ls_comm_rank(trace->trainer->world));
    if (write_file(trace, path, &error)) {
        if (!trace->failed)
            ls_log(trace->log, LS_LOG_WARNING, "no trace is written: %s", error.text);
        trace->failed = true;
    }
    double took_s = ls_now_s() - begin_s, wait_s = WRITES_SHARE * took_s;
    trace->next_s = begin_s + (wait_s > SECONDS_BETWEEN_WRITES ? wait_s : SECONDS_BETWEEN_WRITES);
    uint64_t dropped = ls_trace_dropped(trace->trace);
    if (now && dropped)
        ls_log(trace->log, LS_LOG_WARNING,
               "%s: the trace holds only the newest events; %llu older ones were dropped", path,
               (unsigned long long)dropped);
}
