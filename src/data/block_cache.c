/* Blocks of files elsewhere in a local directory. */
#include "data/block_cache.h"

#include <lockstep/base/temporary.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

enum {
    CHUNK_BYTES = 1 << 16,
    FIXED_BYTES = 48, /* of the header, before the digests of chunks */
    CHUNKS_MAX = 1024,
    LOCKS = 256,
    USED_AGAIN_S = 60, /* so much younger a use is not written down again */
    PAUSE_NS = 5000000,
};
static const char magic[8] = "LSBLOCK\1";
static const char ending[] = ".block";

struct block_cache {
    char directory[PATH_MAX];
    int64_t limit;
    const struct ls_fault *fault;
    bool counted;  /* DIR/used was made true by this process */
    int temporary; /* numbers names */
};

/* ---- a block's file -------------------------------------------------------------------------- */

/*     bytes 0-7     "LSBLOCK\1": the last is the version
 *     bytes 8-39    the file's digest, the number, the bytes of the block
 *     bytes 40-47   XXH3-64 of all of the header but these
 *     then          XXH3-64 of each 64 KiB of the block, and the block */
struct header {
    unsigned char bytes[FIXED_BYTES + 8 * CHUNKS_MAX];
    size_t count;
};

static int64_t chunks_of(const struct block_id *id)
{
    return ls_ceil_div(id->bytes, CHUNK_BYTES);
}

static uint64_t header_digest(const struct header *header)
{
    XXH64_hash_t first = XXH3_64bits(header->bytes, 40);
    return XXH3_64bits_withSeed(header->bytes + FIXED_BYTES, header->count - FIXED_BYTES, first);
}

/* All but what depends on the bytes of the block. */
static void header_begin(struct header *header, const struct block_id *id)
{
    header->count = (size_t)(FIXED_BYTES + 8 * chunks_of(id));
    memcpy(header->bytes, magic, 8);
    memcpy(header->bytes + 8, id->file, 16);
    memcpy(header->bytes + 24, &id->number, 8);
    memcpy(header->bytes + 32, &id->bytes, 8);
}

static void header_make(struct header *header, const struct block_id *id, const void *data)
{
    header_begin(header, id);
    for (int64_t i = 0; i < chunks_of(id); i++) {
        size_t bytes = (size_t)ls_min(CHUNK_BYTES, id->bytes - i * CHUNK_BYTES);
        uint64_t digest = XXH3_64bits((const char *)data + i * CHUNK_BYTES, bytes);
        memcpy(header->bytes + FIXED_BYTES + 8 * i, &digest, 8);
    }
    uint64_t digest = header_digest(header);
    memcpy(header->bytes + 40, &digest, 8);
}

static bool header_good(const struct header *header, const struct block_id *id)
{
    struct header expected;
    uint64_t digest = header_digest(header);
    header_begin(&expected, id);
    return !memcmp(header->bytes, expected.bytes, 40) && !memcmp(header->bytes + 40, &digest, 8);
}

static void path_make(const struct block_cache *cache, const struct block_id *id, char *path)
{
    snprintf(path, PATH_MAX, "%.4000s/%016llx%016llx-%lld%s", cache->directory,
             (unsigned long long)id->file[0], (unsigned long long)id->file[1],
             (long long)id->number, ending);
}

/* ---- reading --------------------------------------------------------------------------------- */

static bool read_whole(int fd, int64_t at, size_t bytes, void *buffer)
{
    size_t done;
    return ls_fd_read(fd, at, buffer, bytes, &done) == 0 && done == bytes;
}

/* The part of [at, at + bytes) that lies in chunk i. */
static bool chunk_read(int fd, const struct header *header, const struct block_id *id, int64_t i,
                       int64_t at, int64_t bytes, char *buffer)
{
    char chunk[CHUNK_BYTES];
    int64_t first = i * CHUNK_BYTES, count = ls_min(CHUNK_BYTES, id->bytes - first);
    int64_t begin = ls_max(at, first), end = ls_min(at + bytes, first + count);
    bool whole = begin == first && end == first + count;
    char *into = whole ? buffer + (begin - at) : chunk;
    if (!read_whole(fd, (int64_t)header->count + first, (size_t)count, into))
        return false;
    uint64_t digest = XXH3_64bits(into, (size_t)count);
    if (memcmp(header->bytes + FIXED_BYTES + 8 * i, &digest, 8) != 0)
        return false;
    if (!whole)
        memcpy(buffer + (begin - at), chunk + (begin - first), (size_t)(end - begin));
    return true;
}

/* Its use is the time of the file, to the minute: no read writes more than it must. */
static void used_now(int fd, const struct stat *file)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (now.tv_sec - file->st_mtim.tv_sec >= USED_AGAIN_S)
        futimens(fd, NULL);
}

enum block_found block_cache_read(struct block_cache *cache, const struct block_id *id, int64_t at,
                                  int64_t bytes, void *buffer)
{
    char path[PATH_MAX];
    struct header header;
    struct stat file;
    path_make(cache, id, path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return BLOCK_ABSENT;
    header_begin(&header, id);
    bool good = !fstat(fd, &file) && file.st_size == (off_t)header.count + id->bytes &&
                read_whole(fd, 0, header.count, header.bytes) && header_good(&header, id);
    for (int64_t i = at / CHUNK_BYTES; good && i * CHUNK_BYTES < at + bytes; i++)
        good = chunk_read(fd, &header, id, i, at, bytes, buffer);
    if (good)
        used_now(fd, &file);
    close(fd);
    if (!good)
        unlink(path);
    return good ? BLOCK_READ : BLOCK_DAMAGED;
}

bool block_cache_has(const struct block_cache *cache, const struct block_id *id)
{
    char path[PATH_MAX];
    path_make(cache, id, path);
    return access(path, F_OK) == 0;
}

/* ---- one fetches, others wait ---------------------------------------------------------------- */

int block_cache_lock(const struct block_cache *cache, const struct block_id *id,
                     bool (*ends)(void *user), void *user)
{
    char path[PATH_MAX];
    unsigned stripe = (unsigned)(id->file[0] + (uint64_t)id->number) % LOCKS;
    snprintf(path, sizeof path, "%.4000s/lock-%02x", cache->directory, stripe);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    while (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB)) {
        if ((errno != EWOULDBLOCK && errno != EINTR) || ends(user)) {
            close(fd);
            return -1;
        }
        ls_progress();
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
    }
    return fd;
}

/* ---- the size -------------------------------------------------------------------------------- */

struct kept {
    char name[NAME_MAX + 1];
    int64_t bytes;
    struct timespec used;
};
struct kept_list {
    struct kept *list;
    int64_t count, room, bytes;
};

static int by_use(const void *a, const void *b)
{
    const struct kept *x = a, *y = b;
    if (x->used.tv_sec != y->used.tv_sec)
        return x->used.tv_sec < y->used.tv_sec ? -1 : 1;
    if (x->used.tv_nsec != y->used.tv_nsec)
        return x->used.tv_nsec < y->used.tv_nsec ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* Removes what a process that was killed left: nobody holds its lock. */
static bool left_removed(int folder, const char *name)
{
    int fd = openat(folder, name, O_RDONLY | O_CLOEXEC);
    bool left = fd >= 0 && !flock(fd, LOCK_EX | LOCK_NB) && !unlinkat(folder, name, 0);
    if (fd >= 0)
        close(fd);
    return left;
}

static bool kept_add(struct kept_list *kept, const char *name, const struct stat *file)
{
    kept->bytes += file->st_size;
    if (!ls_list_grow(&kept->list, kept->count, &kept->room, sizeof *kept->list))
        return false;
    struct kept *one = &kept->list[kept->count++];
    *one = (struct kept){.bytes = file->st_size, .used = file->st_mtim};
    snprintf(one->name, sizeof one->name, "%s", name);
    return true;
}

/* All blocks, and in bytes also what is being written. */
static bool kept_find(int folder, struct kept_list *kept)
{
    int again = dup(folder);
    DIR *stream = again < 0 ? NULL : fdopendir(again);
    bool good = stream != NULL;
    if (stream)
        rewinddir(stream);
    else if (again >= 0)
        close(again);
    for (struct dirent *entry; good && (entry = readdir(stream));) {
        struct stat file;
        bool block = ls_path_ends(entry->d_name, ending);
        bool temporary = strstr(entry->d_name, ".block" LS_TEMPORARY_MARK) != NULL;
        if ((!block && !temporary) || fstatat(folder, entry->d_name, &file, AT_SYMLINK_NOFOLLOW))
            continue;
        if (temporary)
            kept->bytes += left_removed(folder, entry->d_name) ? 0 : file.st_size;
        else
            good = kept_add(kept, entry->d_name, &file);
    }
    if (stream)
        closedir(stream);
    return good;
}

enum room { ROOM, NO_ROOM, ROOM_UNKNOWN };

/* Removes blocks until all that is there fits; *used = its bytes. */
static enum room room_make(const struct block_cache *cache, int64_t *used)
{
    struct kept_list kept = {0};
    int folder = open(cache->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool good = folder >= 0 && kept_find(folder, &kept);
    if (good && kept.count > 0)
        qsort(kept.list, (size_t)kept.count, sizeof *kept.list, by_use);
    for (int64_t i = 0; good && i < kept.count && kept.bytes > cache->limit; i++)
        if (unlinkat(folder, kept.list[i].name, 0) == 0)
            kept.bytes -= kept.list[i].bytes;
    if (folder >= 0)
        close(folder);
    free(kept.list);
    *used = kept.bytes;
    return !good ? ROOM_UNKNOWN : kept.bytes <= cache->limit ? ROOM : NO_ROOM;
}

/* DIR/used, locked: what changes the bytes of the cache but for new temporary files is done under
 * it, so that looks at the directory and the count agree. -1: errno. Closing it ends that. */
static int used_lock(const struct block_cache *cache)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%.4000s/used", cache->directory);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    while (fd >= 0 && flock(fd, LOCK_EX) && errno == EINTR)
        ;
    return fd;
}

/* Under the lock. Counts a file of so many bytes that was made, or with fewer than 0 one that was
 * removed. NO_ROOM: what others are writing leaves none. What others made meanwhile and did not
 * count yet may be counted twice, never not at all; the next look at the directory mends that. */
static enum room room_count(struct block_cache *cache, int lock, int64_t bytes)
{
    int64_t used = 0;
    bool known = __atomic_exchange_n(&cache->counted, true, __ATOMIC_RELAXED) &&
                 pread(lock, &used, sizeof used, 0) == sizeof used && used >= 0;
    used = ls_max(used + bytes, 0);
    enum room room = known && used <= cache->limit ? ROOM : room_make(cache, &used);
    return pwrite(lock, &used, sizeof used, 0) == sizeof used ? room : ROOM_UNKNOWN;
}

/* *failure: the errno of DIR/used that cannot be opened. */
static enum room room_take(struct block_cache *cache, int64_t bytes, int *failure)
{
    int lock = used_lock(cache);
    if (lock < 0) {
        *failure = errno;
        return ROOM_UNKNOWN;
    }
    enum room room = room_count(cache, lock, bytes);
    close(lock);
    return room;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Opens a file and locks it before anyone takes it for one that was left. */
static int locked_open(const char *name)
{
    for (;;) {
        struct stat file;
        int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
        if (fd < 0)
            return -1;
        while (flock(fd, LOCK_EX) && errno == EINTR)
            ;
        if (fstat(fd, &file) || file.st_nlink > 0)
            return fd;
        close(fd);
    }
}

/* The temporary file of a block, locked by who writes it and as large as it will be. -1: *failure
 * is the errno. */
static int temporary_open(struct block_cache *cache, const char *name, int64_t bytes, int *failure)
{
    *failure = ls_fault_check(cache->fault, "open");
    int fd = *failure ? -1 : locked_open(name);
    if (fd < 0) {
        *failure = *failure ? *failure : errno;
        return -1;
    }
    if (ftruncate(fd, (off_t)bytes) == 0)
        return fd;
    *failure = errno;
    close(fd);
    unlink(name);
    return -1;
}

/* The temporary file gets its name, or goes. 0 or errno. */
static int temporary_end(struct block_cache *cache, const char *temporary, const char *path,
                         int64_t bytes, bool whole)
{
    int lock = used_lock(cache);
    int failure = whole ? ls_fault_check(cache->fault, "rename") : 0;
    if (whole && !failure && rename(temporary, path))
        failure = errno;
    if (!whole || failure) {
        unlink(temporary);
        room_count(cache, lock, -bytes);
    }
    if (lock >= 0)
        close(lock);
    return failure;
}

static int used_explain(const struct block_cache *cache, int failure, struct ls_error *error)
{
    int status = ls_error_errno(error, failure, "%.200s/used", cache->directory);
    if (failure == EACCES || failure == EPERM)
        ls_error_suffix(error, "; users do not share a cache: give each a folder of their own");
    return status;
}

int block_cache_write(struct block_cache *cache, const struct block_id *id, const void *data,
                      struct ls_error *error)
{
    char path[PATH_MAX], temporary[PATH_MAX + 64];
    struct header header;
    int failure, number = __atomic_fetch_add(&cache->temporary, 1, __ATOMIC_RELAXED);
    header_make(&header, id, data);
    path_make(cache, id, path);
    if (!ls_temporary_name(path, temporary))
        return ls_error_set(error, LS_EINVAL, "%.200s...: the path is too long", path);
    ls_string_add(temporary, sizeof temporary, "-", "%p-%d", (void *)cache, number);
    int64_t all = (int64_t)header.count + id->bytes;
    if (all > cache->limit)
        return LS_OK;
    int fd = temporary_open(cache, temporary, all, &failure);
    if (fd < 0)
        return ls_error_errno(error, failure, "%.300s: a block cannot be kept", cache->directory);
    /* Not synced: a block that a power cut spoils is found by its digests. */
    int unlocked = 0;
    enum room room = room_take(cache, all, &unlocked);
    if (room == ROOM)
        failure = ls_fd_write(fd, header.bytes, header.count, cache->fault, NULL);
    if (room == ROOM && !failure)
        failure = ls_fd_write(fd, data, (size_t)id->bytes, cache->fault, NULL);
    int ended = temporary_end(cache, temporary, path, all, room == ROOM && !failure);
    failure = failure ? failure : ended;
    close(fd);
    if (failure)
        return ls_error_errno(error, failure, "%.300s: a block cannot be kept", cache->directory);
    if (unlocked)
        return used_explain(cache, unlocked, error);
    return room == ROOM_UNKNOWN
               ? ls_error_set(error, LS_EIO, "%.300s: cannot be looked through", cache->directory)
               : LS_OK;
}

/* ---------------------------------------------------------------------------------------------- */

int block_cache_open(const char *directory, int64_t bytes, const struct ls_fault *fault,
                     struct block_cache **out, struct ls_error *error)
{
    *out = NULL;
    if (strlen(directory) > PATH_MAX - 128)
        return ls_error_set(error, LS_EINVAL, "%.200s...: the path is too long", directory);
    int status = ls_directory_make(directory, fault, error);
    if (!status && access(directory, R_OK | W_OK | X_OK))
        status = ls_error_errno(error, errno, "%.300s: cannot be written to", directory);
    if (status)
        return status;
    struct block_cache *cache = calloc(1, sizeof *cache);
    if (!cache)
        return ls_no_memory(error, "for the cache %.300s", directory);
    snprintf(cache->directory, sizeof cache->directory, "%s", directory);
    cache->limit = bytes;
    cache->fault = fault;
    *out = cache;
    return LS_OK;
}

void block_cache_close(struct block_cache *cache)
{
    free(cache);
}
