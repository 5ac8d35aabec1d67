/* The file of a memory tier: a rank's own, locked, its blocks taken first, gone at the end. */
#include "device/tier_private.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

int64_t tier_file_move(const struct ls_tier *tier, const struct tier_piece *piece)
{
    off_t offset = (off_t)piece->offset;
    ssize_t moved = piece->writes ? pwrite(tier->file.fd, piece->device, piece->bytes, offset)
                                  : pread(tier->file.fd, piece->device, piece->bytes, offset);
    return moved < 0 ? -errno : moved;
}

/* ---- its folder ----------------------------------------------------------------------------- */

static int name_paths(struct tier_file *file, const struct ls_tier_options *options,
                      struct ls_error *error)
{
    if (snprintf(file->folder, PATH_MAX, "%s", options->folder) < PATH_MAX &&
        snprintf(file->home, PATH_MAX, "%s/rank-%05d.offload", options->folder, options->rank) <
            PATH_MAX &&
        snprintf(file->path, PATH_MAX, "%s/data", file->home) < PATH_MAX)
        return LS_OK;
    return ls_error_set(error, LS_EINVAL, "%.200s...: the path is longer than %d bytes",
                        options->folder, PATH_MAX);
}

static int make_folder(struct tier_file *file, const struct ls_fault *fault, struct ls_error *error)
{
    struct stat status;
    int failure = ls_fault_check(fault, "mkdir");
    if (!failure && mkdir(file->folder, 0777) == 0)
        file->folder_made = true;
    else if (!failure)
        failure = errno;
    if (failure == EEXIST && !stat(file->folder, &status))
        failure = S_ISDIR(status.st_mode) ? 0 : ENOTDIR;
    if (failure == ENOENT)
        return ls_error_errno(error, failure,
                              "%s: the folder that should contain it does not exist", file->folder);
    if (failure)
        return ls_error_errno(error, failure, "%s: cannot make the folder", file->folder);
    return LS_OK;
}

/* ---- its blocks ----------------------------------------------------------------------------- */

/* What a killed process left there goes; a link is not followed. */
static int create(struct tier_file *file, const struct ls_fault *fault, struct ls_error *error)
{
    int failure = ls_fault_check(fault, "open");
    if (!failure && unlink(file->path) && errno != ENOENT)
        failure = errno;
    if (!failure) {
        file->fd = open(file->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        failure = file->fd < 0 ? errno : 0;
    }
    if (failure)
        return ls_error_errno(error, failure, "%s: cannot create the file", file->path);
    failure = ls_fault_check(fault, "fcntl");
    if (!failure && fcntl(file->fd, F_SETFL, O_DIRECT))
        failure = errno;
    snprintf(file->access, sizeof file->access, "O_DIRECT");
    if (failure)
        snprintf(file->access, sizeof file->access, "buffered: no O_DIRECT here: %s",
                 strerror(failure));
    return LS_OK;
}

static int refuse_size(const struct tier_file *file, size_t bytes, int failure,
                       struct ls_error *error)
{
    struct statvfs system = {0};
    fstatvfs(file->fd, &system);
    double free_bytes = (double)system.f_bavail * (double)system.f_frsize;
    return ls_error_errno(error, failure,
                          "%s: it needs %.3f GiB, of which the file system has %.3f GiB free; make "
                          "room, or name a folder on another disk in memory.file",
                          file->path, (double)bytes / 0x1p30, free_bytes / 0x1p30);
}

/* Asked first: where blocks are lacking, fallocate takes all that there are before it fails. */
static int check_free(const struct tier_file *file, size_t bytes, struct ls_error *error)
{
    struct statvfs system;
    if (!fstatvfs(file->fd, &system) &&
        ls_ceil_div((int64_t)bytes, (int64_t)system.f_frsize) > (int64_t)system.f_bavail)
        return refuse_size(file, bytes, ENOSPC, error);
    return LS_OK;
}

static int take_blocks(struct tier_file *file, size_t bytes, const struct ls_fault *fault,
                       struct ls_error *error)
{
    int failure, status = check_free(file, bytes, error);
    if (status)
        return status;
    do {
        failure = ls_fault_check(fault, "fallocate");
        if (!failure && fallocate(file->fd, 0, 0, (off_t)bytes))
            failure = errno;
    } while (failure == EINTR);
    /* Some file systems take blocks only as they are written. */
    if ((failure == EOPNOTSUPP || failure == ENOSYS) && !ftruncate(file->fd, (off_t)bytes))
        failure = 0;
    return failure ? refuse_size(file, bytes, failure, error) : LS_OK;
}

/* ---- what killed processes left ------------------------------------------------------------- */

/* Whether the tier's folder was left behind, and could be removed. */
static bool leftover_remove(const char *home)
{
    char path[PATH_MAX], who[8];
    struct ls_lock lock;
    if (ls_lock_look(home, who, sizeof who) != LS_LOCK_LEFT ||
        snprintf(path, sizeof path, "%s/data", home) >= PATH_MAX ||
        ls_lock_take(&lock, home, NULL, NULL))
        return false;
    unlink(path);
    ls_lock_release(&lock);
    return rmdir(home) == 0;
}

int ls_tier_sweep(const char *folder)
{
    DIR *directory = opendir(folder);
    int removed = 0;
    for (struct dirent *entry; directory && (entry = readdir(directory));) {
        char home[PATH_MAX];
        int end = 0;
        (void)sscanf(entry->d_name, "rank-%*[0-9].offload%n", &end);
        if (end > 0 && !entry->d_name[end] &&
            snprintf(home, sizeof home, "%s/%s", folder, entry->d_name) < PATH_MAX)
            removed += leftover_remove(home);
    }
    if (directory)
        closedir(directory);
    return removed;
}

/* ---- life ----------------------------------------------------------------------------------- */

int tier_file_open(struct ls_tier *tier, const struct ls_tier_options *options,
                   struct ls_error *error)
{
    struct tier_file *file = &tier->file;
    const struct ls_fault *fault = options->fault;
    int status = name_paths(file, options, error);
    if (!status)
        status = make_folder(file, fault, error);
    if (!status)
        status = ls_lock_take(&file->lock, file->home, fault, error);
    if (!status)
        status = create(file, fault, error);
    if (!status)
        status = take_blocks(file, tier->bytes, fault, error);
    return status;
}

void tier_file_close(struct tier_file *file)
{
    if (file->fd >= 0) {
        close(file->fd);
        unlink(file->path);
    }
    if (file->lock.held) {
        ls_lock_release(&file->lock);
        rmdir(
            file->home); /* a killed process may have made it; stays if somebody else has it now */
    }
    if (file->folder_made)
        rmdir(file->folder); /* stays while another rank is there */
}
