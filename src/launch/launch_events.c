/* RUN/events.jsonl, and the command that hears of each event. */
#include "launch/launch_private.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COMMAND_S = 10 };

int launch_events_open(struct launch_events *events, const struct ls_launch *launch,
                       struct ls_error *error)
{
    *events =
        (struct launch_events){.command = launch->config->launch.on_event, .log = launch->log};
    snprintf(events->path, sizeof events->path, "%s/events.jsonl", launch->config->train.out);
    return ls_jsonl_open(&events->file, events->path, error);
}

struct ls_jsonl *launch_events_begin(struct launch_events *events, const char *event, int64_t step)
{
    ls_jsonl_begin(events->file);
    ls_jsonl_double(events->file, "time", ls_record_time_s());
    ls_jsonl_string(events->file, "event", event);
    ls_jsonl_int(events->file, "step", step);
    return events->file;
}

/* Its stdin is the line. */
static void command_run(const struct launch_events *events)
{
    size_t bytes;
    const char *line = ls_jsonl_line(events->file, &bytes);
    char *input = strndup(line, bytes), *command = strdup(events->command);
    char *const argv[] = {"sh", "-c", command, NULL};
    int code = input && command ? process_run(argv, input, NULL, 0, COMMAND_S) : PROCESS_FAILED;
    if (code == PROCESS_FAILED)
        ls_log(events->log, LS_LOG_WARNING, "launch.on_event: %s may not have run: %s",
               events->command, strerror(errno));
    else if (code < 0)
        ls_log(events->log, LS_LOG_WARNING,
               "launch.on_event: %s was ended by a signal: the launcher sends one after %d s",
               events->command, COMMAND_S);
    else if (code)
        ls_log(events->log, LS_LOG_WARNING, "launch.on_event: %s ended with %d", events->command,
               code);
    free(input);
    free(command);
}

/* The command hears of it even if the disk is full. */
void launch_events_end(struct launch_events *events)
{
    struct ls_error error = {0};
    if (ls_jsonl_end(events->file, &error))
        ls_log(events->log, LS_LOG_WARNING,
               "%s: this event waits in memory until it can be recorded: %s", events->path,
               error.text);
    if (events->command[0])
        command_run(events);
}
