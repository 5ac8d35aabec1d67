/* A log file that only grows, by whole records. */
#ifndef TRACE_APPEND_H
#define TRACE_APPEND_H

#include <lockstep/base.h>

#include <limits.h>

struct trace_append {
    int fd;
    int64_t size; /* what is in the file: whole records */
    bool torn;    /* part of a record stands behind them, which could not be cut off yet */
    char path[PATH_MAX];
};

/* open(2) for appending with more flags. LS_EIO leaves the reason in errno. */
int trace_append_open(struct trace_append *file, const char *path, int flags,
                      struct ls_error *error);
/* All of data or, after a failure, nothing of it. */
int trace_append_write(struct trace_append *file, const void *data, size_t bytes,
                       struct ls_error *error);
int trace_append_close(struct trace_append *file, struct ls_error *error);

#endif
