/* A file that only grows, each write whole or taken back. */
#include "trace/append.h"

#include <lockstep/base/file.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

int trace_append_open(struct trace_append *file, const char *path, int flags,
                      struct ls_error *error)
{
    if (snprintf(file->path, sizeof file->path, "%s", path) >= (int)sizeof file->path)
        return ls_error_set(error, LS_EINVAL, "%.200s...: the path is longer than %d bytes", path,
                            PATH_MAX);
    file->fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | flags, 0666);
    if (file->fd < 0) {
        int failure = errno;
        ls_error_errno(error, failure, "%s: cannot open for writing", path);
        errno = failure;
        return LS_EIO;
    }
    struct stat status;
    if (fstat(file->fd, &status)) {
        int failure = errno;
        close(file->fd);
        file->fd = -1;
        return ls_error_errno(error, failure, "%s: cannot read its size", path);
    }
    file->size = status.st_size;
    file->torn = false;
    return LS_OK;
}

int trace_append_write(struct trace_append *file, const void *data, size_t bytes,
                       struct ls_error *error)
{
    size_t done;
    if (file->torn && ftruncate(file->fd, file->size))
        return ls_error_errno(error, errno, "%s: cannot cut off a torn record", file->path);
    file->torn = false;
    int failure = ls_fd_write(file->fd, data, bytes, NULL, &done);
    if (failure) {
        file->torn = done > 0 && ftruncate(file->fd, file->size);
        return ls_error_errno(error, failure, "%s: cannot append", file->path);
    }
    file->size += (int64_t)bytes;
    return LS_OK;
}

int trace_append_close(struct trace_append *file, struct ls_error *error)
{
    int failure = close(file->fd) ? errno : 0;
    return failure ? ls_error_errno(error, failure, "%s: cannot close", file->path) : LS_OK;
}
