/* Files that are read in pieces. Of those of a process few are open at a time, however many it
 * reads. */
#include <lockstep/base/file.h>
#include <lockstep/base/stored_file.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LOOK_EVERY = 256 }; /* reads after which a file is asked whether it is what it was */

/* Those that are open are a list, the next one to be closed in front. Readers count themselves
 * without the lock; it is taken to open, to close, and for the list. */
struct ls_stored_file {
    char *name;
    int64_t bytes;
    int code;
    struct stat was;     /* when it was opened */
    int fd;              /* valid while it is open */
    _Atomic int readers; /* -1: it is closed */
    _Atomic int reads;   /* since it was looked at */
    _Atomic bool used;   /* since its turn to be closed came */
    struct ls_stored_file *before, *after;
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ls_stored_file list = {.before = &list, .after = &list};
static int open_files;

static void list_take(struct ls_stored_file *file)
{
    file->before->after = file->after;
    file->after->before = file->before;
}

static void list_append(struct ls_stored_file *file)
{
    file->before = list.before;
    file->after = &list;
    list.before->after = file;
    list.before = file;
}

/* Takes turns: one that is being read stays open, and one that was read waits a turn. */
static void excess_close(void)
{
    for (int turns = 2 * open_files; open_files > LS_STORED_FILES_OPEN && turns > 0; turns--) {
        struct ls_stored_file *file = list.after;
        int nobody = 0;
        list_take(file);
        if (atomic_exchange(&file->used, false) ||
            !atomic_compare_exchange_strong(&file->readers, &nobody, -1)) {
            list_append(file);
            continue;
        }
        close(file->fd);
        open_files--;
    }
}

/* It is open, with one reader. */
static void opened_add(struct ls_stored_file *file)
{
    open_files++;
    list_append(file);
    atomic_store(&file->readers, 1);
    excess_close();
}

static void reader_end(struct ls_stored_file *file)
{
    atomic_store_explicit(&file->used, true, memory_order_relaxed);
    atomic_fetch_sub(&file->readers, 1);
}

/* Whether it is the file that was opened, as it was. */
static int same_check(const struct ls_stored_file *file, struct ls_error *error)
{
    struct stat now;
    const struct stat *was = &file->was;
    if (fstat(file->fd, &now))
        return ls_error_errno(error, errno, "%.300s: cannot be looked at", file->name);
    if (now.st_size == was->st_size && now.st_ino == was->st_ino && now.st_dev == was->st_dev &&
        now.st_mtim.tv_sec == was->st_mtim.tv_sec && now.st_mtim.tv_nsec == was->st_mtim.tv_nsec)
        return LS_OK;
    return ls_error_set(error, file->code,
                        "%.300s: changed while it was in use: it has %lld bytes and had %lld%s. "
                        "Put back the file as it was, or begin anew",
                        file->name, (long long)now.st_size, (long long)was->st_size,
                        now.st_ino != was->st_ino     ? ", and is another file"
                        : now.st_size == was->st_size ? ", and was written to"
                                                      : "");
}

/* What is found under the name now may be another file: the next read looks. */
static int open_again(struct ls_stored_file *file, struct ls_error *error)
{
    int64_t bytes;
    int status = LS_OK;
    pthread_mutex_lock(&lock);
    if (atomic_load(&file->readers) >= 0)
        atomic_fetch_add(&file->readers, 1); /* another reader was before */
    else if (access(file->name, F_OK))
        status = ls_error_set(error, file->code,
                              "%.300s: is gone since it was opened. Put it back, "
                              "or begin anew",
                              file->name);
    else {
        status = ls_file_open(file->name, 0, file->code, &file->fd, &bytes, error);
        atomic_store(&file->reads, LOOK_EVERY);
        if (!status)
            opened_add(file);
    }
    pthread_mutex_unlock(&lock);
    return status;
}

/* The descriptor stays open until reader_end. */
static int reader_begin(struct ls_stored_file *file, struct ls_error *error)
{
    int readers = atomic_load(&file->readers);
    while (readers >= 0 && !atomic_compare_exchange_weak(&file->readers, &readers, readers + 1)) {
    }
    return readers < 0 ? open_again(file, error) : LS_OK;
}

static int look(struct ls_stored_file *file, struct ls_error *error)
{
    int status = same_check(file, error);
    atomic_store(&file->reads, status ? LOOK_EVERY : 0); /* after a failure the next one looks */
    return status;
}

int ls_stored_file_open(struct ls_stored_file **out, const char *path, int code,
                        struct ls_error *error)
{
    *out = NULL;
    struct ls_stored_file *file = calloc(1, sizeof *file);
    char *name = strdup(path);
    int status = file && name ? LS_OK : ls_no_memory(error, "to open %.300s", path);
    if (!status) {
        *file = (struct ls_stored_file){.name = name, .code = code};
        status = ls_file_open(path, 0, code, &file->fd, &file->bytes, error);
    }
    if (!status && fstat(file->fd, &file->was)) {
        status = ls_error_errno(error, errno, "%.300s: cannot be looked at", path);
        close(file->fd);
    }
    if (status) {
        free(name);
        free(file);
        return status;
    }
    pthread_mutex_lock(&lock);
    opened_add(file);
    pthread_mutex_unlock(&lock);
    reader_end(file);
    *out = file;
    return LS_OK;
}

void ls_stored_file_close(struct ls_stored_file *file)
{
    if (!file)
        return;
    pthread_mutex_lock(&lock);
    LS_ASSERT(atomic_load(&file->readers) <= 0);
    if (atomic_load(&file->readers) == 0) {
        list_take(file);
        close(file->fd);
        open_files--;
    }
    pthread_mutex_unlock(&lock);
    free(file->name);
    free(file);
}

const char *ls_stored_file_name(const struct ls_stored_file *file)
{
    return file->name;
}

int64_t ls_stored_file_bytes(const struct ls_stored_file *file)
{
    return file->bytes;
}

static int read_whole(struct ls_stored_file *file, int64_t at, int64_t bytes, void *buffer,
                      struct ls_error *error)
{
    size_t done;
    int failure = ls_fd_read(file->fd, at, buffer, (size_t)bytes, &done);
    if (failure)
        return ls_error_errno(error, failure, "%.300s: cannot be read at byte %lld", file->name,
                              (long long)at + (long long)done);
    if ((int64_t)done == bytes)
        return LS_OK;
    int status = look(file, error);
    return status ? status
                  : ls_error_set(error, file->code, "%.300s: ends at byte %lld of %lld", file->name,
                                 (long long)at + (long long)done, (long long)file->bytes);
}

int ls_stored_file_read(struct ls_stored_file *file, int64_t at, int64_t bytes, void *buffer,
                        struct ls_error *error)
{
    LS_ASSERT(at >= 0 && bytes >= 0 && at <= file->bytes - bytes);
    int status = reader_begin(file, error);
    if (status)
        return status;
    if (atomic_fetch_add_explicit(&file->reads, 1, memory_order_relaxed) >= LOOK_EVERY - 1)
        status = look(file, error);
    status = status ? status : read_whole(file, at, bytes, buffer, error);
    reader_end(file);
    return status;
}

int ls_stored_file_look(struct ls_stored_file *file, struct ls_error *error)
{
    int status = reader_begin(file, error);
    if (status)
        return status;
    status = look(file, error);
    reader_end(file);
    return status;
}

/* A page of the file that is mapped and never touched: asking by a read, RWF_NOWAIT too, would
 * bring the page that is asked about. */
static bool page_cached(int fd, int64_t at)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char there = 1;
    void *map = mmap(NULL, page, PROT_NONE, MAP_SHARED, fd, at / (int64_t)page * (int64_t)page);
    if (map == MAP_FAILED)
        return true;
    bool cached = mincore(map, page, &there) || there & 1;
    munmap(map, page);
    return cached;
}

bool ls_stored_file_cached(struct ls_stored_file *file, int64_t at, int64_t bytes)
{
    bool cached = true;
    if (reader_begin(file, NULL)) /* who reads it is told */
        return true;
    for (int i = 0; i < 3 && cached; i++)
        cached = page_cached(file->fd, at + (bytes - 1) * i / 2);
    reader_end(file);
    return cached;
}

/* By steps of what the system reads ahead at once, whatever the disk. */
void ls_stored_file_expect(struct ls_stored_file *file, int64_t at, int64_t bytes)
{
    enum { STEP_BYTES = 1 << 20 };
    if (reader_begin(file, NULL)) /* who reads it is told */
        return;
    for (int64_t end = at + bytes; at < end; at += STEP_BYTES)
        posix_fadvise(file->fd, at, ls_min(STEP_BYTES, end - at), POSIX_FADV_WILLNEED);
    reader_end(file);
}
