/* Files that appear whole or not at all: written aside, synced, renamed. Pipes and devices are
 * written to instead. */
#include <lockstep/base/file.h>
#include <lockstep/base/temporary.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <linux/magic.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

enum {
    BUFFER_BYTES = LS_FILE_STRAIGHT_BYTES,
    DIRECT_BYTES = 4 << 20,     /* the buffer of a file that bypasses the page cache */
    WRITE_BYTES_MAX = 8 << 20,  /* one write(2): well under the kernel's 2 GiB limit */
    WRITEBACK_BYTES = 32 << 20, /* the disk starts early, so that fsync has little to wait for */
    SETTLE_BYTES = 8 << 20,
};

void ls_path_parent(const char *path, char parent[PATH_MAX])
{
    snprintf(parent, PATH_MAX, "%s", path);
    for (size_t length = strlen(parent); length > 1 && parent[length - 1] == '/'; length--)
        parent[length - 1] = '\0';
    char *slash = strrchr(parent, '/');
    if (!slash)
        strcpy(parent, ".");
    else if (slash == parent)
        strcpy(parent, "/");
    else
        *slash = '\0';
}

/* Replaces path by what it links to, which need not be there; false if that has no end. */
static bool links_follow(char path[PATH_MAX])
{
    enum { LINKS_MAX = 40 }; /* as many as Linux follows */
    char parent[PATH_MAX], target[PATH_MAX];
    for (int i = 0; i < LINKS_MAX; i++) {
        ssize_t length = readlink(path, target, sizeof target - 1);
        if (length < 0)
            return true;
        target[length] = '\0';
        ls_path_parent(path, parent);
        bool whole = target[0] == '/';
        if (snprintf(path, PATH_MAX, "%s%s%s", whole ? "" : parent, whole ? "" : "/", target) >=
            PATH_MAX)
            return false;
    }
    return false;
}

/* A pipe or a device stays under the name that it has: what links of /proc say of a pipe, such as
 * /dev/stdout, is no path. */
int ls_path_follow(char path[PATH_MAX], bool *special, struct ls_error *error)
{
    struct stat there;
    bool found = stat(path, &there) == 0;
    *special = found && !S_ISREG(there.st_mode) && !S_ISDIR(there.st_mode);
    if (*special)
        return LS_OK;
    if (!links_follow(path))
        return ls_error_set(error, LS_EINVAL, "%.300s: expected a file, found links without an end",
                            path);
    return found && S_ISDIR(there.st_mode)
               ? ls_error_set(error, LS_EIO, "%.300s: expected a file, found a folder", path)
               : LS_OK;
}

/* The names that are written to: what path links to, and the temporary beside it, which a pipe or a
 * device does not have. */
static int names_choose(struct ls_atomic_file *file, const char *path, struct ls_error *error)
{
    bool fits = snprintf(file->path, sizeof file->path, "%s", path) < (int)sizeof file->path;
    bool special = !strcmp(path, "-");
    int status = fits && !special ? ls_path_follow(file->path, &special, error) : LS_OK;
    if (status || special)
        return status;
    return fits && ls_temporary_name(file->path, file->temporary)
               ? LS_OK
               : ls_error_set(error, LS_EINVAL, "%.200s...: the path is longer than %d bytes", path,
                              LS_TEMPORARY_PATH_MAX);
}

static const char *shown(const char *path)
{
    return strcmp(path, "-") ? path : "standard output";
}

/* A pipe is waited for until somebody reads it. */
static int special_open(const char *path)
{
    enum { PAUSE_MS = 10 };
    if (!strcmp(path, "-"))
        return fflush(stdout) ? -1 : fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0);
    int fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    for (int ms = 0; fd < 0 && errno == ENXIO && ms < 1000 * LS_FILE_WAIT_S; ms += PAUSE_MS) {
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_MS * 1000000L}, NULL);
        fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    }
    if (fd >= 0)
        fcntl(fd, F_SETFL, 0);
    return fd;
}

bool ls_path_absolute(const char *path, char out[PATH_MAX])
{
    char folder[PATH_MAX], resolved[PATH_MAX];
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    if (strlen(path) >= PATH_MAX)
        return false;
    snprintf(folder, sizeof folder, "%.*s", slash > path ? (int)(slash - path) : 1,
             slash ? path : ".");
    return realpath(folder, resolved) &&
           snprintf(out, PATH_MAX, "%s/%s", strcmp(resolved, "/") ? resolved : "", name) < PATH_MAX;
}

bool ls_path_same(const char *a, const char *b)
{
    struct stat one, other;
    return !stat(a, &one) && !stat(b, &other) && one.st_dev == other.st_dev &&
           one.st_ino == other.st_ino;
}

int ls_path_join(char out[PATH_MAX], const char *folder, const char *name, struct ls_error *error)
{
    const char *between = ls_path_ends(folder, "/") ? "" : "/";
    if (snprintf(out, PATH_MAX, "%s%s%s", folder, between, name) < PATH_MAX)
        return LS_OK;
    return ls_error_set(error, LS_EINVAL, "%.200s...: the path is longer than %d bytes", folder,
                        PATH_MAX);
}

bool ls_path_ends(const char *path, const char *ending)
{
    size_t length = strlen(path), tail = strlen(ending);
    return length >= tail && strcmp(path + length - tail, ending) == 0;
}

int ls_path_inside(char out[PATH_MAX], const char *folder, const char *name, struct ls_error *error)
{
    char tree[PATH_MAX], file[PATH_MAX];
    int status = ls_path_join(out, folder, name, error);
    if (status || !realpath(folder, tree))
        return status;
    if (!realpath(out, file)) {
        ssize_t length = readlink(out, file, sizeof file - 1);
        return length < 0 ? LS_OK
                          : ls_error_set(error, LS_EIO,
                                         "%.300s: links to %.*s, which cannot be read: was all of "
                                         "it downloaded?",
                                         out, (int)ls_min((int64_t)length, 300), file);
    }
    char *revision = strrchr(tree, '/');
    size_t length = (size_t)(revision - tree), word = strlen("/snapshots");
    if (length > word && !strncmp(revision - word, "/snapshots", word))
        revision[-(long)word] = '\0';
    length = strlen(tree);
    if (!strcmp(tree, "/") || (!strncmp(file, tree, length) && file[length] == '/'))
        return LS_OK;
    return ls_error_set(error, LS_EIO,
                        "%.300s: links to %.300s, which is not in the folder: put a copy in its "
                        "place",
                        out, file);
}

void ls_atomic_file_reuse(const char *path)
{
    struct ls_atomic_file file = {.fd = -1};
    struct stat about;
    if (!names_choose(&file, path, NULL) && file.temporary[0] && !lstat(file.path, &about) &&
        S_ISREG(about.st_mode) && about.st_nlink == 1)
        rename(file.path, file.temporary);
}

int ls_atomic_file_open(struct ls_atomic_file *file, const char *path, const struct ls_fault *fault,
                        struct ls_error *error)
{
    *file = (struct ls_atomic_file){.fd = -1, .fault = fault};
    int status = names_choose(file, path, error);
    if (status)
        return status;
    file->buffer = malloc(BUFFER_BYTES);
    file->room = BUFFER_BYTES;
    if (!file->buffer)
        return ls_error_set(error, LS_ENOMEM, "%s: no memory for a write buffer", path);
    bool special = !file->temporary[0];
    int failure = ls_fault_check(fault, "open");
    if (!failure) {
        file->fd = special ? special_open(file->path)
                           : open(file->temporary, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
        failure = file->fd < 0 ? errno : 0;
        ls_fd_opened(file->fd);
    }
    if (!failure)
        return LS_OK;
    free(file->buffer);
    file->buffer = NULL;
    if (special && failure == ENXIO)
        return ls_error_set(error, LS_EIO, "%.300s: nobody read this pipe for %d s", path,
                            LS_FILE_WAIT_S);
    char hint[512] = "";
    if (failure == ENOENT || failure == ENOTDIR)
        ls_path_hint(file->path, NULL, hint, sizeof hint);
    status = ls_error_errno(error, failure, "%s: cannot %s", special ? shown(path) : file->path,
                            special ? "write to it" : "create");
    ls_error_suffix(error, "%s", hint);
    return status;
}

/* ---- written over in memory ------------------------------------------------------------------ */

enum { MAPS = 4 }; /* two parts of a checkpoint, in two buffers */

struct ls_file_maps {
    struct map {
        dev_t device;
        ino_t file;
        unsigned char *memory; /* [bytes] */
        size_t bytes;
    } list[MAPS]; /* the last one that was asked for first; bytes 0: none */
    int kept[MAPS], kept_count;
};

static void map_drop(struct map *map)
{
    if (map->bytes)
        munmap(map->memory, map->bytes);
    *map = (struct map){0};
}

void ls_file_maps_free(struct ls_file_maps *maps)
{
    for (int i = 0; maps && i < MAPS; i++)
        map_drop(&maps->list[i]);
    for (int i = 0; maps && i < maps->kept_count; i++)
        close(maps->kept[i]);
    free(maps);
}

void ls_file_maps_keep(struct ls_file_maps **maps, int fd)
{
    *maps = *maps ? *maps : calloc(1, sizeof **maps);
    if (*maps && (*maps)->kept_count < MAPS)
        (*maps)->kept[(*maps)->kept_count++] = fd;
    else
        close(fd);
}

/* At its beginning. -1: there is none. */
static int kept_take(struct ls_file_maps *maps)
{
    if (!maps || !maps->kept_count)
        return -1;
    int fd = maps->kept[0];
    memmove(maps->kept, maps->kept + 1, (size_t)--maps->kept_count * sizeof fd);
    lseek(fd, 0, SEEK_SET);
    return fd;
}

/* That nobody can execute: with vm.memfd_noexec = 2 there is no other. Kernels before 6.3 do not
 * know of it. */
static int memory_new(void)
{
    int fd = memfd_create("lockstep", MFD_CLOEXEC | MFD_NOEXEC_SEAL);
    return fd < 0 && errno == EINVAL ? memfd_create("lockstep", MFD_CLOEXEC) : fd;
}

int ls_memory_file_open(struct ls_atomic_file *file, const char *path, struct ls_file_maps **maps,
                        const struct ls_fault *fault, struct ls_error *error)
{
    *file = (struct ls_atomic_file){.fd = -1, .fault = fault};
    snprintf(file->path, sizeof file->path, "%s", path);
    file->buffer = malloc(BUFFER_BYTES);
    file->room = BUFFER_BYTES;
    if (!file->buffer)
        return ls_error_set(error, LS_ENOMEM, "%s: no memory for a write buffer", path);
    int failure = ls_fault_check(fault, "open");
    if (!failure) {
        file->fd = kept_take(*maps);
        if (file->fd < 0)
            file->fd = memory_new();
        failure = file->fd < 0 ? errno : 0;
        ls_fd_opened(file->fd);
    }
    if (!failure)
        return LS_OK;
    ls_atomic_file_abort(file);
    return ls_error_errno(error, failure, "%s: no file in memory for it", path);
}

/* A page that is not there yet may find no room, and whoever stores to it would be killed. */
static bool has_memory(int fd, const struct stat *about)
{
    struct statfs system;
    return about->st_size > 0 && (int64_t)about->st_blocks * 512 >= about->st_size &&
           !fstatfs(fd, &system) && system.f_type == TMPFS_MAGIC;
}

/* What is open for writing alone cannot be mapped, so it is opened again. NULL on failure. */
static unsigned char *file_map(int fd, const char *path, size_t bytes)
{
    bool named = path[0];
    fd = named ? open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC) : fd;
    void *memory =
        fd < 0 ? MAP_FAILED
               : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (named && fd >= 0)
        close(fd);
    return memory == MAP_FAILED ? NULL : memory;
}

/* The file's, now the first one of the list. path "": it has no name. NULL: there is none. */
static const struct map *map_take(struct ls_file_maps *maps, int fd, const char *path,
                                  const struct stat *about)
{
    struct map taken = {
        .device = about->st_dev, .file = about->st_ino, .bytes = (size_t)about->st_size};
    int at = 0;
    while (at < MAPS - 1 &&
           (maps->list[at].file != taken.file || maps->list[at].device != taken.device))
        at++;
    struct map *old = &maps->list[at];
    if (old->file == taken.file && old->device == taken.device && old->bytes == taken.bytes) {
        taken.memory = old->memory;
    } else {
        map_drop(old);
        taken.memory = file_map(fd, path, taken.bytes);
    }
    if (!taken.memory)
        return NULL;
    memmove(&maps->list[1], &maps->list[0], (size_t)at * sizeof *old);
    maps->list[0] = taken;
    return &maps->list[0];
}

void ls_atomic_file_map(struct ls_atomic_file *file, struct ls_file_maps **maps)
{
    struct stat about;
    LS_ASSERT(file->fd >= 0 && !file->size);
    if (fstat(file->fd, &about) || !has_memory(file->fd, &about)) {
        ls_file_maps_free(*maps);
        *maps = NULL;
        return;
    }
    *maps = *maps ? *maps : calloc(1, sizeof **maps);
    const struct map *map = *maps ? map_take(*maps, file->fd, file->temporary, &about) : NULL;
    file->map = map ? map->memory : NULL;
    file->map_bytes = map ? map->bytes : 0;
}

const unsigned char *ls_file_maps_memory(struct ls_file_maps **maps, int fd, int64_t *bytes)
{
    struct stat about;
    if (fstat(fd, &about) || !has_memory(fd, &about))
        return NULL;
    *maps = *maps ? *maps : calloc(1, sizeof **maps);
    const struct map *map = *maps ? map_take(*maps, fd, "", &about) : NULL;
    *bytes = about.st_size;
    return map ? map->memory : NULL;
}

/* What is stored is not read soon: it goes to memory past the caches, which need not fetch it
 * first. */
static void memory_put(unsigned char *to, const unsigned char *from, size_t bytes)
{
#ifdef __SSE2__
    size_t head = ls_min((size_t)(-(uintptr_t)to % sizeof(__m128i)), bytes);
    memcpy(to, from, head);
    to += head, from += head, bytes -= head;
    for (; bytes >= sizeof(__m128i); bytes -= sizeof(__m128i)) {
        _mm_stream_si128((__m128i *)(void *)to,
                         _mm_loadu_si128((const __m128i *)(const void *)from));
        to += sizeof(__m128i), from += sizeof(__m128i);
    }
    _mm_sfence();
#endif
    memcpy(to, from, bytes);
}

void ls_atomic_file_direct(struct ls_atomic_file *file)
{
    LS_ASSERT(file->fd >= 0 && !file->size);
    unsigned char *room =
        file->temporary[0] ? aligned_alloc(LS_FILE_BLOCK_BYTES, DIRECT_BYTES) : NULL;
    if (!room || fcntl(file->fd, F_SETFL, O_DIRECT)) {
        free(room);
        return;
    }
    free(file->buffer);
    file->buffer = room;
    file->room = DIRECT_BYTES;
    file->direct = true;
}

static void direct_end(struct ls_atomic_file *file)
{
    fcntl(file->fd, F_SETFL, 0);
    file->direct = false;
}

static int file_fail(struct ls_atomic_file *file, int errno_value, const char *what)
{
    return ls_error_errno(&file->error, errno_value, "%s: cannot %s after %llu bytes",
                          shown(file->path), what, (unsigned long long)file->on_disk);
}

int ls_fd_write(int fd, const void *data, size_t bytes, const struct ls_fault *fault, size_t *done)
{
    size_t none;
    done = done ? done : &none;
    for (*done = 0; *done < bytes;) {
        int failure = ls_fault_check(fault, "write");
        ssize_t written = failure ? -1 : write(fd, (const char *)data + *done, bytes - *done);
        if (written < 0 && !failure)
            failure = errno;
        if (failure && failure != EINTR)
            return failure;
        *done += written > 0 ? (size_t)written : 0;
        ls_progress(); /* of a slow disk too */
    }
    return 0;
}

/* A hint: file systems that lack it lose only time. */
static void file_writeback(struct ls_atomic_file *file)
{
    sync_file_range(file->fd, (off_t)file->started, (off_t)(file->on_disk - file->started),
                    SYNC_FILE_RANGE_WRITE);
    file->started = file->on_disk;
}

/* Hands all of data to the system. */
static int file_put(struct ls_atomic_file *file, const unsigned char *data, size_t bytes)
{
    while (bytes > 0) {
        size_t piece = bytes < WRITE_BYTES_MAX ? bytes : WRITE_BYTES_MAX;
        size_t written;
        if (file->direct && (piece % LS_FILE_BLOCK_BYTES || file->on_disk % LS_FILE_BLOCK_BYTES))
            direct_end(file); /* the last bytes */
        int failure = ls_fd_write(file->fd, data, piece, file->fault, &written);
        file->on_disk += written;
        if (failure == EINVAL && file->direct) {
            direct_end(file); /* the disk's blocks are larger */
            failure = 0;
        }
        if (failure == EPIPE && !strcmp(file->path, "-")) {
            failure = 0;
            written = piece; /* of whoever read the output and had enough */
        }
        if (failure)
            return file_fail(file, failure, "write");
        data += written;
        bytes -= written;
        ls_progress();
    }
    if (file->on_disk - file->started >= WRITEBACK_BYTES)
        file_writeback(file);
    return LS_OK;
}

/* As much of data[*bytes] as there is a map for, nothing if a write is to fail. */
static void map_put(struct ls_atomic_file *file, const unsigned char **data, size_t *bytes)
{
    size_t piece = ls_min(*bytes, file->map_bytes - file->on_disk);
    int failure = ls_fault_check(file->fault, "write");
    if (failure) {
        file_fail(file, failure, "write");
        return;
    }
    memory_put(file->map + file->on_disk, *data, piece);
    file->on_disk += piece;
    file->size += piece;
    *data += piece;
    *bytes -= piece;
    ls_progress();
    if (file->on_disk == file->map_bytes) { /* what is more is written as ever */
        file->map = NULL;
        if (lseek(file->fd, (off_t)file->on_disk, SEEK_SET) < 0)
            file_fail(file, errno, "write");
    }
}

static int file_flush(struct ls_atomic_file *file)
{
    size_t bytes = file->buffered;
    file->buffered = 0;
    return file_put(file, file->buffer, bytes);
}

int ls_atomic_file_write(struct ls_atomic_file *file, const void *data, size_t bytes)
{
    LS_ASSERT(file->fd >= 0);
    if (file->error.code || bytes == 0)
        return file->error.code;
    const unsigned char *from = data;
    if (file->map)
        map_put(file, &from, &bytes);
    file->size += bytes;
    if (file->buffered && bytes >= file->room && !file->direct)
        file_flush(file); /* else all that follows would go through the buffer */
    while (bytes > 0 && !file->error.code) {
        size_t piece = ls_min(file->room - file->buffered, bytes);
        if (!file->buffered && bytes >= file->room &&
            (!file->direct || (uintptr_t)from % LS_FILE_BLOCK_BYTES == 0)) {
            piece = bytes - (file->direct ? bytes % LS_FILE_BLOCK_BYTES : 0);
            file_put(file, from, piece);
        } else {
            memcpy(file->buffer + file->buffered, from, piece);
            file->buffered += piece;
            if (file->buffered == file->room)
                file_flush(file);
        }
        from += piece;
        bytes -= piece;
    }
    return file->error.code;
}

int ls_atomic_file_printf(struct ls_atomic_file *file, const char *format, ...)
{
    char text[4096];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    LS_ASSERT(length >= 0 && length < (int)sizeof text);
    return ls_atomic_file_write(file, text, (size_t)length);
}

void ls_atomic_file_start(struct ls_atomic_file *file)
{
    LS_ASSERT(file->fd >= 0);
    if (!file->error.code && !file_flush(file) && file->on_disk > file->started)
        file_writeback(file);
}

/* What fsync would wait for in one piece, in pieces: a slow disk gets on. A hint, as above. */
static void file_settle(struct ls_atomic_file *file)
{
    const unsigned how =
        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
    for (uint64_t at = 0; at < file->on_disk; at += SETTLE_BYTES) {
        sync_file_range(file->fd, (off_t)at, SETTLE_BYTES, how);
        ls_progress();
    }
}

/* What an older file had behind the end of this one goes. */
static int file_cut(const struct ls_atomic_file *file)
{
    struct stat about;
    if (fstat(file->fd, &about))
        return errno;
    bool longer = (uint64_t)about.st_size > file->on_disk;
    return longer && ftruncate(file->fd, (off_t)file->on_disk) ? errno : 0;
}

/* fsync, close and rename, each only where the ones before went well. */
static int file_publish(struct ls_atomic_file *file)
{
    bool special = !file->temporary[0];
    int failure = special ? 0 : ls_fault_check(file->fault, "fsync");
    if (!failure && !special)
        failure = file_cut(file);
    if (!failure && !special)
        file_settle(file);
    if (!failure && !special && fsync(file->fd))
        failure = errno;
    if (failure)
        return file_fail(file, failure, "make durable (fsync)");
    int closed = close(file->fd);
    file->fd = -1;
    if (closed)
        return file_fail(file, errno, "close");
    if (special)
        return LS_OK;
    failure = ls_fault_check(file->fault, "rename");
    if (!failure && rename(file->temporary, file->path))
        failure = errno;
    if (failure)
        return file_fail(file, failure, "rename into place");
    file->temporary[0] = '\0'; /* nothing to remove from here on */
    char parent[PATH_MAX];
    ls_path_parent(file->path, parent);
    return ls_directory_sync(parent, file->fault, &file->error);
}

int ls_atomic_file_commit(struct ls_atomic_file *file, struct ls_error *error)
{
    LS_ASSERT(file->fd >= 0);
    if (!file->error.code && !file_flush(file))
        file_publish(file);
    int status = file->error.code;
    if (status)
        ls_error_copy(error, status, &file->error);
    ls_atomic_file_abort(file);
    return status;
}

int ls_memory_file_take(struct ls_atomic_file *file, int *fd, struct ls_error *error)
{
    LS_ASSERT(file->fd >= 0 && !file->temporary[0]);
    int status = file->error.code ? file->error.code : file_flush(file);
    int failure = status ? 0 : file_cut(file);
    status = failure ? file_fail(file, failure, "cut it") : status;
    *fd = -1;
    if (status) {
        ls_error_copy(error, status, &file->error);
    } else {
        *fd = file->fd;
        file->fd = -1;
    }
    ls_atomic_file_abort(file);
    return status;
}

void ls_atomic_file_abort(struct ls_atomic_file *file)
{
    if (file->fd >= 0)
        close(file->fd);
    file->fd = -1;
    if (file->temporary[0])
        unlink(file->temporary);
    file->temporary[0] = '\0';
    free(file->buffer);
    file->buffer = NULL;
}

int ls_text_write(ls_writer *write, const void *context, char **text, size_t *bytes,
                  struct ls_error *error)
{
    *text = NULL;
    FILE *file = open_memstream(text, bytes);
    int status = file ? write(context, file, error) : LS_OK;
    if (!file || (fclose(file) != 0 && !status))
        status = ls_no_memory(error, "for a text");
    if (status) {
        free(*text);
        *text = NULL;
    }
    return status;
}

int ls_file_put(const char *path, const void *data, size_t bytes, const struct ls_fault *fault,
                struct ls_error *error)
{
    struct ls_atomic_file file;
    int status = ls_atomic_file_open(&file, path, fault, error);
    if (status)
        return status;
    ls_atomic_file_write(&file, data, bytes); /* the commit reports its failure */
    return ls_atomic_file_commit(&file, error);
}

int ls_file_write(const char *path, ls_writer *write, const void *context, struct ls_error *error)
{
    char *text;
    size_t bytes;
    int status = ls_text_write(write, context, &text, &bytes, error);
    status = status ? status : ls_file_put(path, text, bytes, NULL, error);
    free(text);
    return status;
}

static bool is_temporary(const char *name, const char *prefix)
{
    const char *at = NULL;
    for (const char *next = name; (next = strstr(next, LS_TEMPORARY_MARK)); next++)
        at = next + strlen(LS_TEMPORARY_MARK);
    return at && *at && at[strspn(at, "0123456789")] == '\0' &&
           strncmp(name, prefix, strlen(prefix)) == 0;
}

int ls_atomic_file_sweep(const char *directory, const char *prefix)
{
    int removed = 0;
    DIR *stream = opendir(directory);
    if (!stream)
        return 0;
    for (struct dirent *entry; (entry = readdir(stream));)
        if (is_temporary(entry->d_name, prefix))
            removed += unlinkat(dirfd(stream), entry->d_name, 0) == 0;
    closedir(stream);
    return removed;
}

int ls_directory_sync(const char *path, const struct ls_fault *fault, struct ls_error *error)
{
    int failure = ls_fault_check(fault, "fsync");
    int fd = failure ? -1 : open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return ls_error_errno(error, failure ? failure : errno, "%s: cannot open the directory",
                              path);
    /* EINVAL: a file system that cannot sync directories keeps their order by itself. */
    if (fsync(fd) && errno != EINVAL)
        failure = errno;
    close(fd);
    return failure ? ls_error_errno(error, failure, "%s: cannot sync (fsync)", path) : LS_OK;
}

int ls_directory_add(const char *path, const struct ls_fault *fault, struct ls_error *error)
{
    struct stat status;
    int failure = 0;
    if (stat(path, &status)) {
        failure = ls_fault_check(fault, "mkdir");
        if (!failure && mkdir(path, 0777) && errno != EEXIST) /* else somebody was faster */
            failure = errno;
    } else if (!S_ISDIR(status.st_mode)) {
        failure = ENOTDIR;
    }
    return failure ? ls_error_errno(error, failure, "%s: cannot create the directory", path)
                   : LS_OK;
}

int ls_directory_make(const char *path, const struct ls_fault *fault, struct ls_error *error)
{
    char part[PATH_MAX];
    if (snprintf(part, sizeof part, "%s", path) >= (int)sizeof part)
        return ls_error_set(error, LS_EINVAL, "%.200s...: the path is longer than %d bytes", path,
                            PATH_MAX);
    for (char *end = part + 1; *part; end++) {
        if (*end != '/' && *end != '\0')
            continue;
        char separator = *end;
        *end = '\0';
        int status = ls_directory_add(part, fault, error);
        if (status || separator == '\0')
            return status;
        *end = separator;
    }
    return LS_OK;
}

static int entry_remove(const char *path, const struct stat *status, int type, struct FTW *place)
{
    (void)status, (void)type, (void)place;
    remove(path);
    return 0;
}

bool ls_directory_remove(const char *path)
{
    enum { OPEN_MAX = 16 };
    struct stat left;
    nftw(path, entry_remove, OPEN_MAX, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
    return lstat(path, &left) != 0 && errno == ENOENT;
}

bool ls_directory_has_room(const char *path, int64_t bytes)
{
    int fd = open(path, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    int failure = fd < 0 ? errno : posix_fallocate(fd, 0, bytes);
    if (fd >= 0)
        close(fd);
    return ls_error_errno(NULL, failure, "%s", path) != LS_ENOSPC;
}
