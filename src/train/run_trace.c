/* The spans of a run besides its steps, and when the trace is written. */
#include "train/run_trace.h"

#include <lockstep/base/file.h>

#include <stdio.h>

#define SECONDS_BETWEEN_WRITES 10.0

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

static int file_open(struct run_trace *trace, struct ls_error *error)
{
    char path[LS_CONFIG_TEXT_BYTES + 64], directory[LS_CONFIG_TEXT_BYTES + 64];
    snprintf(directory, sizeof directory, "%s/trace", trace->trainer->config.train.out);
    snprintf(path, sizeof path, "%s/trace/rank-%05d.json", trace->trainer->config.train.out,
             ls_comm_rank(trace->trainer->whole));
    int status = ls_directory_add(directory, NULL, error);
    return status ? status : ls_trace_file_open(&trace->file, path, &trace->trace, 1, error);
}

/* A failure is a warning, once. */
static void note(struct run_trace *trace, int status, const struct ls_error *error)
{
    if (status && !trace->failed)
        ls_log(trace->log, LS_LOG_WARNING, "no trace is written: %s", error->text);
    trace->failed = trace->failed || status;
}

void run_trace_write(struct run_trace *trace)
{
    struct ls_error error = {0};
    double now_s = ls_now_s();
    if (!trace->trace || (now_s < trace->next_s && !ls_trace_half_full(trace->trace)))
        return;
    int status = trace->file ? LS_OK : file_open(trace, &error);
    if (!status)
        status = ls_trace_file_write(trace->file, &error);
    note(trace, status, &error);
    trace->next_s = now_s + SECONDS_BETWEEN_WRITES;
}

void run_trace_close(struct run_trace *trace)
{
    struct ls_error error = {0};
    if (!trace->trace)
        return;
    int status = trace->file ? LS_OK : file_open(trace, &error);
    if (!status)
        status = ls_trace_file_close(trace->file, &error);
    trace->file = NULL;
    note(trace, status, &error);
    uint64_t dropped = ls_trace_dropped(trace->trace);
    if (dropped)
        ls_log(trace->log, LS_LOG_WARNING, "%s/trace: rank %d: %llu events were dropped",
               trace->trainer->config.train.out, ls_comm_rank(trace->trainer->whole),
               (unsigned long long)dropped);
}
