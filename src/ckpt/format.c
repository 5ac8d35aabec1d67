/* What readers and writers of checkpoints share: number types' names, digests as text, paths. */
#include "ckpt/format.h"

#include <lockstep/base/helper_thread.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

/* Ascending, as safetensors' enum Dtype. */
static const struct ckpt_dtype dtypes[] = {
    {"BOOL", 8, true, LS_U8},     {"F4", 4, false, 0},          {"F6_E2M3", 6, false, 0},
    {"F6_E3M2", 6, false, 0},     {"U8", 8, true, LS_U8},       {"I8", 8, true, LS_I8},
    {"F8_E5M2", 8, false, 0},     {"F8_E4M3", 8, false, 0},     {"F8_E8M0", 8, false, 0},
    {"F8_E4M3FNUZ", 8, false, 0}, {"F8_E5M2FNUZ", 8, false, 0}, {"I16", 16, true, LS_I16},
    {"U16", 16, true, LS_U16},    {"F16", 16, true, LS_F16},    {"BF16", 16, true, LS_BF16},
    {"I32", 32, true, LS_I32},    {"U32", 32, false, 0},        {"F32", 32, true, LS_F32},
    {"C64", 64, false, 0},        {"F64", 64, true, LS_F64},    {"I64", 64, true, LS_I64},
    {"U64", 64, true, LS_U64},
};

const struct ckpt_version ckpt_versions[] = {{2, 3, "manifest.json", "manifest_xxh3_128"},
                                             {1, 1, "state.json", "state_xxh3_128"},
                                             {0, 0, NULL, NULL}};
const char *const ckpt_part_names[CKPT_PARTS] = {"model", "optimizer"};

bool ckpt_describes(const char *name)
{
    const struct ckpt_version *v = ckpt_versions;
    while (v->file && strcmp(v->file, name))
        v++;
    return v->file;
}

const struct ckpt_dtype *ckpt_dtype_named(const char *name)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++)
        if (!strcmp(dtypes[i].name, name))
            return &dtypes[i];
    return NULL;
}

const struct ckpt_dtype *ckpt_dtype_of(enum ls_dtype dtype)
{
    const struct ckpt_dtype *found = ckpt_dtype_named(ls_dtype_name(dtype));
    LS_ASSERT(found);
    return found;
}

#ifdef __x86_64__
/* xxh_x86dispatch.h; NULL in a library without it. */
extern XXH_errorcode XXH3_128bits_update_dispatch(XXH3_state_t *, const void *, size_t)
    __attribute__((weak));
#endif

void ckpt_digest_add(XXH3_state_t *digest, const void *data, size_t bytes)
{
#ifdef __x86_64__
    if (XXH3_128bits_update_dispatch) {
        XXH3_128bits_update_dispatch(digest, data, bytes);
        return;
    }
#endif
    XXH3_128bits_update(digest, data, bytes);
}

bool ckpt_object_digest(json_t *object, const char *field, char text[33])
{
    json_object_del(object, field);
    char *bytes = json_dumps(object, JSON_COMPACT | JSON_SORT_KEYS);
    if (!bytes)
        return false;
    XXH128_hash_t hash = XXH3_128bits(bytes, strlen(bytes));
    ls_digest_hex(&(struct ls_digest){.high = hash.high64, .low = hash.low64}, text);
    free(bytes);
    return true;
}

int ckpt_file_size(const char *path, uint64_t *size, struct ls_error *error)
{
    struct stat status;
    *size = 0;
    if (stat(path, &status)) {
        int failure = errno;
        if (failure == ENOENT || failure == ENOTDIR)
            return ls_error_set(error, LS_ECKPT, "%s: %s", path, strerror(failure));
        return ls_error_errno(error, failure, "%s: cannot be looked at", path);
    }
    *size = (uint64_t)status.st_size;
    return S_ISREG(status.st_mode)
               ? LS_OK
               : ls_error_set(error, LS_ECKPT, "%s: expected a regular file", path);
}

/* Files without names, which are open: it is a wait to give their blocks back to the disk. */
struct removed {
    int count, files[64];
};

/* Threads of this process that close such files. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t fewer;
    int threads;
    pid_t process; /* a child has none of its parent's */
} closing = {.lock = PTHREAD_MUTEX_INITIALIZER, .fewer = PTHREAD_COND_INITIALIZER};

static void removed_close(struct removed *removed)
{
    while (removed && removed->count > 0)
        close(removed->files[--removed->count]);
    free(removed);
}

static void *closing_main(void *removed)
{
    removed_close(removed);
    pthread_mutex_lock(&closing.lock);
    closing.threads--;
    pthread_cond_broadcast(&closing.fewer);
    pthread_mutex_unlock(&closing.lock);
    return NULL;
}

void ckpt_room_wait(void)
{
    pthread_mutex_lock(&closing.lock);
    while (closing.threads && closing.process == getpid())
        pthread_cond_wait(&closing.fewer, &closing.lock);
    closing.threads = 0;
    pthread_mutex_unlock(&closing.lock);
}

/* NULL: nothing was removed. */
static void removed_leave(struct removed *removed)
{
    pthread_t thread;
    pthread_mutex_lock(&closing.lock);
    bool leaves = removed && removed->count && !ls_helper_start(&thread, closing_main, removed);
    if (leaves) {
        pthread_detach(thread);
        closing.threads++;
        closing.process = getpid();
    }
    pthread_mutex_unlock(&closing.lock);
    if (!leaves)
        removed_close(removed);
}

/* Where it can, keeps the file for removed_leave. 0 or errno. */
static int file_remove(int folder, const char *name, struct removed *removed)
{
    enum { SLOTS = sizeof removed->files / sizeof *removed->files };
    if (removed && removed->count < SLOTS) {
        int file = openat(folder, name, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
        removed->files[removed->count] = file;
        removed->count += file >= 0;
    }
    return unlinkat(folder, name, 0) ? errno : 0;
}

int ckpt_remove_directory(const char *directory, struct ls_error *error)
{
    DIR *stream = opendir(directory);
    if (!stream)
        return errno == ENOENT ? LS_OK : ls_error_errno(error, errno, "%s: cannot open", directory);
    struct removed *removed = calloc(1, sizeof *removed);
    int failure = 0;
    for (struct dirent *entry; !failure && (entry = readdir(stream));)
        if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
            failure = file_remove(dirfd(stream), entry->d_name, removed);
    closedir(stream);
    if (!failure && rmdir(directory)) { /* NFS has other names for what is open */
        removed_close(removed);
        removed = NULL;
        failure = rmdir(directory) ? errno : 0;
    }
    removed_leave(removed);
    return failure ? ls_error_errno(error, failure, "%s: cannot remove", directory) : LS_OK;
}

/* rename(2), or where a checkpoint of this step stands there already, an exchange with it: at every
 * moment one whole checkpoint has the name. */
int ckpt_give_name(const char *temporary, const char *directory, const char *parent,
                   const struct ls_fault *fault, struct ls_error *error)
{
    int failure = ls_fault_check(fault, "rename");
    struct stat status;
    bool exists = !failure && lstat(directory, &status) == 0;
    if (!failure &&
        renameat2(AT_FDCWD, temporary, AT_FDCWD, directory, exists ? RENAME_EXCHANGE : 0))
        failure = errno;
    if (failure == EINVAL && exists) { /* a file system without exchange */
        int code = ckpt_remove_directory(directory, error);
        if (code)
            return code;
        failure = rename(temporary, directory) ? errno : 0;
        exists = false;
    }
    if (failure)
        return ls_error_errno(error, failure, "%s: cannot rename into place", directory);
    return ls_directory_sync(parent, fault, error);
}
