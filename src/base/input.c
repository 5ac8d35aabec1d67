/* Opening and reading files that somebody named: nothing here waits for ever or reads for ever. */
#include <lockstep/base/file.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HINT_ENTRIES_MAX = 10000, READ_BYTES_MIN = 1 << 16, DEVICE_BYTES_MAX = 1 << 20 };

/* ---- a name that is not there ---------------------------------------------------------------- */

/* Cuts one of the endings off name. */
static void strip(char *name, const char *const *endings)
{
    size_t length = strlen(name);
    for (; endings && *endings; endings++) {
        size_t tail = strlen(*endings);
        if (length > tail && strcmp(name + length - tail, *endings) == 0) {
            name[length - tail] = '\0';
            return;
        }
    }
}

/* The entry of folder that word probably meant, in near; false if there is none. */
static bool entry_near(const char *folder, const char *word, const char *const *endings,
                       char near[NAME_MAX + 1])
{
    DIR *directory = opendir(*folder ? folder : ".");
    char(*names)[NAME_MAX + 1] = malloc(HINT_ENTRIES_MAX * sizeof *names);
    const char **list = malloc(HINT_ENTRIES_MAX * sizeof *list);
    const struct dirent *entry;
    size_t count = 0;
    while (directory && names && list && count < HINT_ENTRIES_MAX && (entry = readdir(directory))) {
        if (entry->d_name[0] == '.' && word[0] != '.')
            continue;
        snprintf(names[count], sizeof names[count], "%s", entry->d_name);
        strip(names[count], endings);
        list[count] = names[count];
        count++;
    }
    const char *best = count ? ls_nearest(word, list, count) : NULL;
    if (best)
        snprintf(near, NAME_MAX + 1, "%s", best);
    free(list);
    free(names);
    if (directory)
        closedir(directory);
    return best != NULL;
}

/* Whether the three together are a path that is there, as it is or with one of the endings. */
static bool is_there(const char *before, const char *near, const char *after,
                     const char *const *endings)
{
    char path[PATH_MAX];
    bool found = false;
    for (bool more = true; more && !found; endings += more) {
        more = endings && *endings;
        int length =
            snprintf(path, sizeof path, "%s%s%s%s", before, near, after, more ? *endings : "");
        found = length < (int)sizeof path && access(path, F_OK) == 0;
    }
    return found;
}

void ls_path_hint(const char *path, const char *const *endings, char *text, size_t bytes)
{
    char before[PATH_MAX] = "", near[NAME_MAX + 1];
    const char *rest = path;
    text[0] = '\0';
    while (*rest) { /* before is there; rest is what follows it */
        size_t slashes = strspn(rest, "/"), length = strcspn(rest + slashes, "/");
        const char *after = rest + slashes + length;
        bool last = after[strspn(after, "/")] == '\0';
        char part[NAME_MAX + 1], here[PATH_MAX];
        struct stat status;
        if (length == 0 || length > NAME_MAX ||
            snprintf(here, sizeof here, "%s%.*s", before, (int)(slashes + length), rest) >=
                (int)sizeof here)
            return;
        if (stat(here, &status) == 0) {
            memcpy(before, here, sizeof before);
            rest = after;
            continue;
        }
        if (lstat(here, &status) == 0) {
            snprintf(text, bytes, "; %.300s is a link to nothing", here);
            return;
        }
        snprintf(part, sizeof part, "%.*s", (int)length, rest + slashes);
        ls_string_add(before, sizeof before, "", "%.*s", (int)slashes, rest);
        bool found = entry_near(before, part, last ? endings : NULL, near);
        if (!last)
            snprintf(text, bytes, "; there is no folder %.300s", here);
        if (found)
            ls_string_add(text, bytes, "", "; did you mean %.300s%.200s%.300s?", before, near,
                          last || !is_there(before, near, after, endings) ? "" : after);
        return;
    }
}

/* ---- opening --------------------------------------------------------------------------------- */

static const char *kind_name(mode_t mode)
{
    return S_ISDIR(mode)    ? "a folder"
           : S_ISFIFO(mode) ? "a pipe"
           : S_ISCHR(mode)  ? "a device"
           : S_ISBLK(mode)  ? "a disk"
           : S_ISSOCK(mode) ? "a socket"
                            : "no regular file";
}

/* Waits for bytes, or (unless bytes_only) for the end of who writes them; false: in vain. */
static bool wait_for(int fd, bool bytes_only)
{
    struct pollfd waits = {.fd = fd, .events = POLLIN};
    int ready;
    do
        ready = poll(&waits, 1, LS_FILE_WAIT_S * 1000);
    while (ready < 0 && errno == EINTR);
    return ready > 0 && (!bytes_only || (waits.revents & POLLIN));
}

void ls_fd_opened(int fd)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    struct rlimit files;
    pthread_mutex_lock(&mutex);
    if (!getrlimit(RLIMIT_NOFILE, &files) && files.rlim_cur < files.rlim_max && fd >= 0 &&
        (rlim_t)fd >= files.rlim_cur - files.rlim_cur / 4) {
        files.rlim_cur = files.rlim_max / 2 < files.rlim_cur ? files.rlim_max : 2 * files.rlim_cur;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    pthread_mutex_unlock(&mutex);
}

/* ls_file_open without the wait; reads will not wait either. */
static int open_kind(const char *path, unsigned kinds, int code, int *fd, int64_t *size,
                     struct ls_error *error)
{
    struct stat status;
    /* Without O_NONBLOCK, open(2) itself waits for somebody who writes into a pipe. */
    *fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    *size = 0;
    if (*fd < 0 || fstat(*fd, &status)) {
        int failure = errno;
        char hint[1024] = "";
        if (failure == ENOENT || failure == ENOTDIR)
            ls_path_hint(path, NULL, hint, sizeof hint);
        if (*fd >= 0)
            close(*fd);
        int failed = ls_error_errno(error, failure, "%.500s: cannot be opened", path);
        ls_error_suffix(error, "%s", hint);
        return failed;
    }
    bool pipe = S_ISFIFO(status.st_mode), device = S_ISCHR(status.st_mode);
    bool wanted = S_ISREG(status.st_mode) || (pipe && (kinds & LS_FILE_PIPE)) ||
                  (device && (kinds & LS_FILE_DEVICE));
    if (!wanted) {
        close(*fd);
        return ls_error_set(error, code, "%.500s: %s: expected a regular file%s", path,
                            kind_name(status.st_mode), kinds & LS_FILE_PIPE ? " or a pipe" : "");
    }
    *size = S_ISREG(status.st_mode) ? (int64_t)status.st_size : 0;
    ls_fd_opened(*fd);
    return LS_OK;
}

int ls_file_open(const char *path, unsigned kinds, int code, int *fd, int64_t *size,
                 struct ls_error *error)
{
    int status = open_kind(path, kinds, code, fd, size, error);
    if (status)
        return status;
    wait_for(*fd, true);
    fcntl(*fd, F_SETFL, fcntl(*fd, F_GETFL) & ~O_NONBLOCK);
    return LS_OK;
}

/* ---- reading whole --------------------------------------------------------------------------- */

static int too_large(const char *path, int64_t size, size_t limit, int code, struct ls_error *error)
{
    char found[32];
    snprintf(found, sizeof found, "%lld bytes", (long long)size);
    return ls_error_set(error, code, "%.500s: %s: expected at most %zu bytes in such a file", path,
                        size > 0 ? found : "it does not end", limit);
}

int ls_fd_read(int fd, int64_t at, void *buffer, size_t bytes, size_t *done)
{
    for (*done = 0; *done < bytes;) {
        ssize_t got = pread(fd, (char *)buffer + *done, bytes - *done, (off_t)(at + (off_t)*done));
        if (got < 0 && errno != EINTR)
            return errno;
        if (got == 0)
            break;
        *done += got > 0 ? (size_t)got : 0;
    }
    return 0;
}

/* Appends up to limit + 1 bytes in all. */
static int read_to_end(int fd, const char *path, size_t limit, int code, char **text, size_t *bytes,
                       struct ls_error *error)
{
    struct stat status;
    bool pipe = fstat(fd, &status) == 0 && S_ISFIFO(status.st_mode);
    size_t room = 0;
    for (;;) {
        if (room - *bytes < 2) {
            room = room ? 2 * room : READ_BYTES_MIN;
            room = room < limit + 2 ? room : limit + 2;
            char *grown = realloc(*text, room);
            if (!grown)
                return ls_error_set(error, LS_ENOMEM, "%.500s: no memory to read it", path);
            *text = grown;
        }
        ssize_t got = read(fd, *text + *bytes, room - 1 - *bytes);
        if (got < 0 && errno == EINTR)
            continue;
        /* Nobody writes, or nobody has yet; or somebody does who has nothing to say yet. */
        bool nobody = got == 0 && pipe && *bytes == 0;
        bool silent = nobody || (got < 0 && errno == EAGAIN);
        if (silent && wait_for(fd, nobody))
            continue;
        if (silent)
            return ls_error_set(error, code, "%.500s: no data came through it in %d seconds", path,
                                LS_FILE_WAIT_S);
        if (got < 0)
            return ls_error_errno(error, errno, "%.500s: cannot be read", path);
        *bytes += (size_t)got;
        (*text)[*bytes] = '\0';
        if (*bytes > limit)
            return too_large(path, 0, limit, code, error);
        if (got == 0)
            return LS_OK;
    }
}

/* No file that is read whole is a device; the most that one such as /dev/zero is read. */
static size_t limit_of(int fd, size_t limit)
{
    struct stat status;
    bool device = fstat(fd, &status) == 0 && S_ISCHR(status.st_mode);
    return device && limit > DEVICE_BYTES_MAX ? DEVICE_BYTES_MAX : limit;
}

int ls_file_read(const char *path, size_t limit, int code, char **text, size_t *bytes,
                 struct ls_error *error)
{
    int fd;
    int64_t size;
    *text = NULL;
    *bytes = 0;
    int status = open_kind(path, LS_FILE_PIPE | LS_FILE_DEVICE, code, &fd, &size, error);
    if (status)
        return status;
    if (size > (int64_t)limit)
        status = too_large(path, size, limit, code, error);
    else
        status = read_to_end(fd, path, limit_of(fd, limit), code, text, bytes, error);
    close(fd);
    if (status) {
        free(*text);
        *text = NULL;
        *bytes = 0;
    }
    return status;
}

bool ls_file_head(const char *path, char *text, size_t bytes)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    text[fread(text, 1, bytes - 1, file)] = '\0';
    fclose(file);
    return true;
}
