/* A file of records that may fail without ending the run. */
#include "train/sink.h"

int sink_judge(struct sink *sink, const char *name, int status, const struct ls_log *log,
               const struct ls_error *error)
{
    if (sink_refused(status)) {
        if (sink->lost++ == 0)
            ls_log(log, LS_LOG_WARNING, "the run continues without records in %s: %s", name,
                   error->text);
        return LS_OK;
    }
    int64_t lost = sink->lost;
    if (!status && lost > 0) {
        sink->lost = 0;
        ls_log(log, LS_LOG_WARNING, "%s is written again; %ld records before this one are lost",
               name, (long)lost);
    }
    return status;
}

void sink_close(const struct sink *sink, const char *name, const struct ls_log *log)
{
    if (sink->lost > 0)
        ls_log(log, LS_LOG_WARNING, "%s: the last %ld records are lost", name, (long)sink->lost);
}
