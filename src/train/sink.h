/* A file of records that may fail: the run goes on without it, says so once, counts what is lost,
 * and says so again when the file can be written. Records of metrics.jsonl wait for that. */
#ifndef TRAIN_SINK_H
#define TRAIN_SINK_H

#include <lockstep/trace.h>

struct sink {
    int64_t refused; /* records in a row that could not be written */
    struct ls_jsonl
        *keeps;   /* borrowed: the file, if such records wait there; NULL: they are lost */
    int64_t told; /* of ls_jsonl_lost(keeps) */
};
/* What the caller has to do about a write that ended with status: nothing if the system refused
 * it (LS_EIO, LS_ENOSPC); other codes are handed through. name is the file's, for the log. */
int sink_judge(struct sink *sink, const char *name, int status, const struct ls_log *log,
               const struct ls_error *error);
/* At the end: says what is missing. */
void sink_close(struct sink *sink, const char *name, const struct ls_log *log);
/* Whether the system refused to write. */
static inline bool sink_refused(int status)
{
    return status == LS_EIO || status == LS_ENOSPC;
}

#endif
