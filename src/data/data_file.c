/* Files of tokens, wherever they lie. Of local ones, which are read in pieces, a process holds few
 * open, however many it reads. */
#include "data/remote_file.h"

#include <lockstep/base.h>
#include <lockstep/base/file.h>

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    OPEN_MAX_FILES = 128,
    LOOK_EVERY = 256, /* reads after which a file is asked whether it is what it was */
};

/* Those of this machine that are open and that nobody reads are a list, the one that was read last
 * in front. */
struct data_file {
    char *name;
    int64_t bytes;
    struct remote_file *remote; /* NULL: a file of this machine, which has what follows */
    struct stat was;            /* when it was opened */
    int fd;                     /* -1: closed for another; as all below, under the lock */
    int readers;
    int reads; /* since it was looked at */
    struct data_file *before, *after;
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct data_file idle = {.before = &idle, .after = &idle};
static int open_files;

static void list_take(struct data_file *file)
{
    file->before->after = file->after;
    file->after->before = file->before;
}

static void one_close(struct data_file *file)
{
    list_take(file);
    close(file->fd);
    file->fd = -1;
    open_files--;
}

static void excess_close(void)
{
    while (open_files > OPEN_MAX_FILES && idle.before != &idle)
        one_close(idle.before);
}

/* Whether fd is the file that was opened, as it was. */
static int same_check(const struct data_file *file, int fd, struct ls_error *error)
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
                        "Put back the file as it was, or begin anew",
                        file->name, (long long)now.st_size, (long long)was->st_size,
                        now.st_ino != was->st_ino     ? ", and is another file"
                        : now.st_size == was->st_size ? ", and was written to"
                                                      : "");
}

/* The descriptor, which stays open until reader_end. */
static int reader_begin(struct data_file *file, int *fd, struct ls_error *error)
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
    excess_close();
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

static void reader_end(struct data_file *file)
{
    pthread_mutex_lock(&lock);
    if (--file->readers == 0) {
        file->before = &idle;
        file->after = idle.after;
        idle.after->before = file;
        idle.after = file;
    }
    excess_close();
    pthread_mutex_unlock(&lock);
}

static int local_open(struct data_file *file, struct ls_error *error)
{
    int status = ls_file_open(file->name, 0, LS_EDATA, &file->fd, &file->bytes, error);
    if (!status && fstat(file->fd, &file->was)) {
        status = ls_error_errno(error, errno, "%.300s: cannot be looked at", file->name);
        close(file->fd);
    }
    if (status) {
        file->fd = -1;
        return status;
    }
    pthread_mutex_lock(&lock);
    open_files++;
    file->readers = 1;
    pthread_mutex_unlock(&lock);
    reader_end(file);
    return LS_OK;
}

static int read_whole(const struct data_file *file, int fd, int64_t at, int64_t bytes, void *buffer,
                      struct ls_error *error)
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

static int local_read(struct data_file *file, int64_t at, int64_t bytes, void *buffer,
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

static bool local_absent(const char *name)
{
    return access(name, F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR);
}

int data_file_open(const char *name, struct data_remote *remote, struct data_file **out,
                   struct ls_error *error)
{
    *out = NULL;
    struct data_file *file = calloc(1, sizeof *file);
    if (!file)
        return ls_no_memory(error, "to open %.300s", name);
    bool url = ls_url_is(name), there = url || !local_absent(name);
    int status = LS_OK;
    file->fd = -1;
    file->name = strdup(name);
    if (!file->name)
        status = ls_no_memory(error, "to open %.300s", name);
    else if (url)
        status = remote_file_open(file->name, remote, &file->remote, &file->bytes, error);
    else if (there)
        status = local_open(file, error);
    if (!status && (url ? file->remote != NULL : there))
        *out = file;
    else
        data_file_close(file);
    return status;
}

void data_file_close(struct data_file *file)
{
    if (!file)
        return;
    LS_ASSERT(file->readers == 0);
    pthread_mutex_lock(&lock);
    if (file->fd >= 0)
        one_close(file);
    pthread_mutex_unlock(&lock);
    remote_file_close(file->remote);
    free(file->name);
    free(file);
}

const char *data_file_name(const struct data_file *file)
{
    return file->name;
}

int64_t data_file_bytes(const struct data_file *file)
{
    return file->bytes;
}

bool data_file_is_remote(const struct data_file *file)
{
    return file->remote != NULL;
}

int data_file_look(struct data_file *file, struct ls_error *error)
{
    if (file->remote)
        return LS_OK;
    pthread_mutex_lock(&lock);
    file->reads = LOOK_EVERY;
    pthread_mutex_unlock(&lock);
    return local_read(file, 0, 0, NULL, error);
}

static void range_check(const struct data_file *file, int64_t at, int64_t bytes)
{
    LS_ASSERT(at >= 0 && bytes >= 0 && at <= file->bytes - bytes);
}

int data_file_read(struct data_file *file, int64_t at, int64_t bytes, void *buffer,
                   struct ls_error *error)
{
    range_check(file, at, bytes);
    return file->remote ? remote_file_read(file->remote, at, bytes, buffer, error)
                        : local_read(file, at, bytes, buffer, error);
}

int data_file_peek(struct data_file *file, int64_t at, int64_t bytes, void *buffer,
                   struct ls_error *error)
{
    range_check(file, at, bytes);
    return file->remote ? remote_file_peek(file->remote, at, bytes, buffer, error)
                        : local_read(file, at, bytes, buffer, error);
}

void data_file_want(struct data_file *file, int64_t at, int64_t bytes)
{
    range_check(file, at, bytes);
    if (file->remote)
        remote_queue(file->remote, at, bytes);
}

int data_file_tries(const struct data_file *file)
{
    return file->remote ? remote_file_tries(file->remote) : 1;
}

void data_file_expect(struct data_file *file, const struct ls_sums *sums, int which)
{
    if (file->remote)
        remote_file_expect(file->remote, sums, which);
}

/* ---- small files ----------------------------------------------------------------------------- */

static int small_fetch(const char *url, const struct ls_net_options *net, size_t limit, bool *there,
                       char **text, size_t *bytes, struct ls_error *error)
{
    struct ls_server *server;
    const struct ls_net_options until = data_net(net);
    int status = ls_server_open(&server, url, &until, error);
    if (status)
        return status;
    struct ls_http_request get = {
        .method = "GET", .key = ls_server_key(server), .limit = limit, .absent_is_fine = true};
    status = ls_http_send(server, &get, error);
    *there = !status && get.code != 404;
    if (*there) {
        *text = get.text;
        *bytes = get.bytes;
        get.text = NULL;
    }
    ls_http_request_release(&get);
    ls_server_close(server);
    return status;
}

int data_small_read(const char *name, const struct ls_net_options *net, size_t limit, bool *there,
                    char **text, size_t *bytes, struct ls_error *error)
{
    *text = NULL;
    *bytes = 0;
    if (ls_url_is(name))
        return small_fetch(name, net, limit, there, text, bytes, error);
    *there = !local_absent(name);
    return *there ? ls_file_read(name, limit, LS_EDATA, text, bytes, error) : LS_OK;
}
