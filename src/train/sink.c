/* A file of records that may fail without ending the run. */
#include "train/sink.h"

/* Records that are lost since that was last told. */
static int64_t lost(struct sink *sink)
{
    int64_t all = sink->keeps ? ls_jsonl_lost(sink->keeps) : sink->refused;
    int64_t since = all - sink->told;
    sink->told = sink->keeps ? all : 0;
    return since;
}

static void told_again(struct sink *sink, const char *name, const struct ls_log *log)
{
    int64_t count = lost(sink);
    sink->refused = 0;
    if (count > 0)
        ls_log(log, LS_LOG_WARNING, "%s is written again; %ld records before this one are lost",
               name, (long)count);
    else
        ls_log(log, LS_LOG_WARNING, "%s is written again, with the records that waited for it",
               name);
}

int sink_judge(struct sink *sink, const char *name, int status, const struct ls_log *log,
               const struct ls_error *error)
{
    if (sink_refused(status)) {
        if (sink->refused++ == 0)
            ls_log(log, LS_LOG_WARNING, "the run continues without records in %s: %s", name,
                   error->text);
        return LS_OK;
    }
    if (!status && sink->refused > 0)
        told_again(sink, name, log);
    return status;
}

void sink_close(struct sink *sink, const char *name, const struct ls_log *log)
{
    if (sink->refused == 0)
        return;
    if (sink->keeps && !ls_jsonl_flush(sink->keeps, NULL))
        told_again(sink, name, log);
    else
        ls_log(log, LS_LOG_WARNING, "%s: the last %ld records are lost", name, (long)sink->refused);
}
