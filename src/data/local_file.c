/* Local files that are read in pieces: a process holds few of them open, however many it reads. */
#include "data/local_file.h"

#include <lockstep/base/file.h>

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    OPEN_MAX_FILES = 128,
    LOOK_EVERY = 256, /* reads after which a file is asked whether it is what it was */
};

/* Those that are open and that nobody reads are a list, the one that was read last in front. */
struct local_file {
    char *name;
    int64_t bytes;
    struct stat was; /* when it was opened */
    int fd;          /* -1: closed for another; as all below, under the lock */
    int readers;
    int reads; /* since it was looked at */
    struct local_file *before, *after;
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct local_file idle = {.before = &idle, .after = &idle};
static int open_files;

static void list_take(struct local_file *file)
{
    file->before->after = file->after;
    file->after->before = file->before;
}

static void list_put(struct local_file *file)
{
    file->before = &idle;
    file->after = idle.after;
    idle.after->before = file;
    idle.after = file;
}

static void one_close(struct local_file *file)
{
    list_take(file);
    close(file->fd);
    file->fd = -1;
    open_files--;
}

/* Whether fd is the file that was opened, as it was. */
static int same_check(const struct local_file *file, int fd, struct ls_error *error)
{
    struct stat now;
    const struct stat *was = &file->was;
    if (fstat(fd, &now))
        return ls_error_errno(error, errno, "%.300s: cannot be looked at", file->name);
    if (now.st_size == was->st_size && now.st_ino == was->st_ino && now.st_dev == was->st_dev &&
        now.st_mtim.tv_sec == was->st_mtim.tv_sec && now.st_mtim.tv_nsec == was->st_mtim.tv_nsec)
        return LS_OK;
    return ls_error_set(error, LS_EDATA,
                        "%.300s: changed while it was in use: it has %lld bytes and had %lld%s. "
                        "Put back the file that the run began with, or begin another run",
                        file->name, (long long)now.st_size, (long long)was->st_size,
                        now.st_ino != was->st_ino     ? ", and is another file"
                        : now.st_size == was->st_size ? ", and was written to"
                                                      : "");
}

/* The descriptor, which stays open until reader_end. */
static int reader_begin(struct local_file *file, int *fd, struct ls_error *error)
{
    int status = LS_OK;
    pthread_mutex_lock(&lock);
    if (file->fd >= 0 && file->readers == 0)
        list_take(file);
    bool look = file->fd < 0 || ++file->reads >= LOOK_EVERY;
    if (file->fd < 0) {
        int64_t bytes;
        status = ls_file_open(file->name, 0, LS_EDATA, &file->fd, &bytes, error);
        file->fd = status ? -1 : file->fd;
        open_files += status == LS_OK;
    }
    if (!status) {
        file->readers++;
        file->reads = look ? 0 : file->reads;
        *fd = file->fd;
    }
    while (open_files > OPEN_MAX_FILES && idle.before != &idle)
        one_close(idle.before);
    pthread_mutex_unlock(&lock);
    if (!status && look)
        status = same_check(file, *fd, error);
    if (status && look) { /* the next one looks too */
        pthread_mutex_lock(&lock);
        file->reads = LOOK_EVERY;
        pthread_mutex_unlock(&lock);
    }
    return status;
}

static void reader_end(struct local_file *file)
{
    pthread_mutex_lock(&lock);
    if (--file->readers == 0)
        list_put(file);
    pthread_mutex_unlock(&lock);
}

int local_file_open(const char *name, struct local_file **out, struct ls_error *error)
{
    struct local_file *file = calloc(1, sizeof *file);
    *out = NULL;
    if (file)
        file->name = strdup(name);
    if (!file || !file->name) {
        free(file);
        return ls_error_set(error, LS_ENOMEM, "no memory to open %.300s", name);
    }
    int status = ls_file_open(name, 0, LS_EDATA, &file->fd, &file->bytes, error);
    if (!status && fstat(file->fd, &file->was)) {
        status = ls_error_errno(error, errno, "%.300s: cannot be looked at", name);
        close(file->fd);
    }
    if (status) {
        free(file->name);
        free(file);
        return status;
    }
    pthread_mutex_lock(&lock);
    open_files++;
    list_put(file);
    while (open_files > OPEN_MAX_FILES && idle.before != &idle)
        one_close(idle.before);
    pthread_mutex_unlock(&lock);
    *out = file;
    return LS_OK;
}

void local_file_close(struct local_file *file)
{
    if (!file)
        return;
    LS_ASSERT(file->readers == 0);
    pthread_mutex_lock(&lock);
    if (file->fd >= 0)
        one_close(file);
    pthread_mutex_unlock(&lock);
    free(file->name);
    free(file);
}

int64_t local_file_bytes(const struct local_file *file)
{
    return file->bytes;
}

static int read_whole(const struct local_file *file, int fd, int64_t at, int64_t bytes,
                      void *buffer, struct ls_error *error)
{
    size_t done;
    int failure = ls_fd_read(fd, at, buffer, (size_t)bytes, &done);
    if (failure)
        return ls_error_errno(error, failure, "%.300s: cannot be read at byte %lld", file->name,
                              (long long)at + (long long)done);
    if ((int64_t)done == bytes)
        return LS_OK;
    int status = same_check(file, fd, error);
    return status ? status
                  : ls_error_set(error, LS_EDATA, "%.300s: ends at byte %lld of %lld", file->name,
                                 (long long)at + (long long)done, (long long)file->bytes);
}

int local_file_look(struct local_file *file, struct ls_error *error)
{
    pthread_mutex_lock(&lock);
    file->reads = LOOK_EVERY;
    pthread_mutex_unlock(&lock);
    return local_file_read(file, 0, 0, NULL, error);
}

int local_file_read(struct local_file *file, int64_t at, int64_t bytes, void *buffer,
                    struct ls_error *error)
{
    int fd = -1;
    int status = reader_begin(file, &fd, error);
    if (fd < 0)
        return status;
    status = status ? status : read_whole(file, fd, at, bytes, buffer, error);
    reader_end(file);
    return status;
}
