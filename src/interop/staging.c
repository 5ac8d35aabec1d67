/* A folder that appears complete or not at all, and copies of files. */
#include "interop/staging.h"

#include <lockstep/base/temporary.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_empty(const char *path)
{
    DIR *directory = opendir(path);
    const struct dirent *entry;
    int count = 0;
    if (!directory)
        return false;
    while (count < 3 && (entry = readdir(directory)))
        count++;
    closedir(directory);
    return count == 2; /* . and .. */
}

/* Why rename(2) does not put a folder in the place of this empty one; NULL: it does. */
static const char *fixed_as(const char *path, const struct stat *found)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    struct statx more = {0};
    if (S_ISLNK(found->st_mode))
        return "a link";
    if (!strcmp(name, ".") || !strcmp(name, ".."))
        return "a folder under no name of its own";
    statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, STATX_TYPE, &more);
    return more.stx_attributes & STATX_ATTR_MOUNT_ROOT ? "a mount point" : NULL;
}

/* An error of the temporary folder names the folder that was asked for. */
static void name_final(const struct staging *staging, struct ls_error *error)
{
    char *at = error ? strstr(error->text, staging->temporary) : NULL;
    size_t own = strlen(staging->path), with = strlen(staging->temporary);
    if (at)
        memmove(at + own, at + with, strlen(at + with) + 1);
}

int staging_open(struct staging *staging, const char *path, const struct ls_fault *fault,
                 struct ls_error *error)
{
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    *staging = (struct staging){.fault = fault};
    snprintf(staging->path, PATH_MAX, "%.*s", (int)ls_min(length, PATH_MAX - 1), path);
    if (!ls_temporary_name(staging->path, staging->temporary))
        return ls_error_set(error, LS_EINVAL, "%.200s...: the path is too long", path);
    struct stat found;
    bool there = lstat(staging->path, &found) == 0, empty = there && is_empty(staging->path);
    const char *fixed = empty ? fixed_as(staging->path, &found) : NULL;
    if ((there && !empty) || fixed)
        staging->temporary[0] = '\0';
    if (there && !empty)
        return ls_error_set(error, LS_ECONFIG, "%.300s: already exists: name another folder",
                            staging->path);
    if (fixed)
        return ls_error_set(error, LS_ECONFIG,
                            "%.300s: %s, in whose place no finished folder can be put: name a "
                            "folder that is not there yet, such as %.300s/model",
                            staging->path, fixed, staging->path);
    ls_directory_remove(staging->temporary);
    int status = ls_directory_make(staging->temporary, fault, error);
    if (status) {
        name_final(staging, error);
        staging->temporary[0] = '\0';
    } else {
        staging->fd = open(staging->temporary, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
    if (!status && staging->fd >= 0)
        ls_temporary_hold(staging->temporary, staging->fd);
    return status;
}

static void let_go(struct staging *staging)
{
    if (staging->temporary[0] && staging->fd >= 0)
        close(staging->fd);
    staging->temporary[0] = '\0';
}

int staging_commit(struct staging *staging, struct ls_error *error)
{
    char parent[PATH_MAX];
    int status = ls_directory_sync(staging->temporary, staging->fault, error);
    int failure = status ? 0 : ls_fault_check(staging->fault, "rename");
    if (!status && !failure && rename(staging->temporary, staging->path))
        failure = errno;
    if (failure)
        status = ls_error_errno(error, failure, "%.300s: cannot rename into place", staging->path);
    if (!status)
        let_go(staging);
    ls_path_parent(staging->path, parent);
    return status ? status : ls_directory_sync(parent, staging->fault, error);
}

void staging_close(struct staging *staging)
{
    if (staging->temporary[0])
        ls_directory_remove(staging->temporary);
    let_go(staging);
}

int file_copy(const char *from, const char *to, const struct ls_fault *fault,
              struct ls_error *error)
{
    enum { PIECE = 1 << 20 };
    struct ls_atomic_file file;
    int fd;
    int64_t size;
    char *piece = malloc(PIECE);
    if (!piece)
        return ls_error_set(error, LS_ENOMEM, "%.300s: no memory to copy it", from);
    int status = ls_file_open(from, 0, LS_EIO, &fd, &size, error);
    if (status) {
        free(piece);
        return status;
    }
    status = ls_atomic_file_open(&file, to, fault, error);
    size_t got = PIECE;
    int failure = 0;
    for (int64_t at = 0; !status && !failure && got == PIECE; at += (int64_t)got) {
        failure = ls_fd_read(fd, at, piece, PIECE, &got);
        ls_atomic_file_write(&file, piece, got);
    }
    if (failure) {
        status = ls_error_errno(error, failure, "%.300s: cannot be read", from);
        ls_atomic_file_abort(&file);
    } else if (!status) {
        status = ls_atomic_file_commit(&file, error);
    }
    close(fd);
    free(piece);
    return status;
}
