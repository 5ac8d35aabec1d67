/* Temporaries that killed processes left. */
#include <lockstep/base/temporary.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

/* Of a process that is not on this host: it may be another host's. */
static bool is_foreign(const char *pid)
{
    size_t digits = strspn(pid, "0123456789");
    return digits > 0 && digits < 10 && !pid[digits] && kill((pid_t)atol(pid), 0) && errno == ESRCH;
}

/* A file system over the network locks what is open for writing. */
static bool is_held(const char *path)
{
    int fd = open(path, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 && errno == EISDIR)
        fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    bool held = fd < 0 || flock(fd, LOCK_EX | LOCK_NB);
    if (fd >= 0)
        close(fd);
    return held;
}

bool ls_temporary_name(const char *path, char temporary[PATH_MAX])
{
    bool fits = strlen(path) <= LS_TEMPORARY_PATH_MAX;
    return fits && snprintf(temporary, PATH_MAX, "%s" LS_TEMPORARY_MARK "%ld", path,
                            (long)getpid()) < PATH_MAX;
}

void ls_temporary_hold(const char *temporary, int fd)
{
    char folder[PATH_MAX], path[PATH_MAX];
    const char *slash = strrchr(temporary, '/'), *own = slash ? slash + 1 : temporary;
    size_t length = (size_t)(strrchr(own, '-') + 1 - own); /* of "<name>.tmp-" */
    ls_path_parent(temporary, folder);
    DIR *stream = flock(fd, LOCK_EX | LOCK_NB) ? NULL : opendir(folder);
    if (!stream)
        return;
    for (struct dirent *entry; (entry = readdir(stream));)
        if (!strncmp(entry->d_name, own, length) && is_foreign(entry->d_name + length) &&
            !ls_path_join(path, folder, entry->d_name, NULL) && !is_held(path))
            ls_directory_remove(path);
    closedir(stream);
}

void ls_atomic_file_hold(const struct ls_atomic_file *file)
{
    if (file->temporary[0])
        ls_temporary_hold(file->temporary, file->fd);
}
